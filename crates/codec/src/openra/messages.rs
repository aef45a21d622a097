//! The messages, field by field. A field's number is its name on the wire, and never changes.

#![expect(missing_docs, reason = "fields have the protocol's own names")]

/// What the agent is shown of a game.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GameObservation {
    #[prost(int32, tag = "1")]
    pub tick: i32,
    #[prost(string, tag = "2")]
    pub episode_id: String,
    #[prost(message, optional, tag = "3")]
    pub economy: Option<Economy>,
    #[prost(message, optional, tag = "4")]
    pub military: Option<Military>,
    #[prost(message, repeated, tag = "5")]
    pub units: Vec<UnitInfo>,
    #[prost(message, repeated, tag = "6")]
    pub buildings: Vec<BuildingInfo>,
    #[prost(message, repeated, tag = "7")]
    pub production: Vec<ProductionInfo>,
    #[prost(message, repeated, tag = "8")]
    pub visible_enemies: Vec<UnitInfo>,
    #[prost(message, optional, tag = "9")]
    pub map_info: Option<MapInfo>,
    /// f32, little-endian, `[row][column][plane]`.
    #[prost(bytes = "vec", tag = "10")]
    pub spatial_map: Vec<u8>,
    #[prost(int32, tag = "11")]
    pub spatial_channels: i32,
    #[prost(bool, tag = "12")]
    pub done: bool,
    #[prost(float, tag = "13")]
    pub reward: f32,
    /// `win`, `lose` or `draw` of a game that is over, else empty.
    #[prost(string, tag = "14")]
    pub result: String,
    #[prost(string, repeated, tag = "15")]
    pub available_production: Vec<String>,
    #[prost(message, repeated, tag = "16")]
    pub visible_enemy_buildings: Vec<BuildingInfo>,
    /// 0 to 100.
    #[prost(float, tag = "17")]
    pub explored_percent: f32,
    #[prost(bool, tag = "18")]
    pub interrupted: bool,
    #[prost(string, tag = "19")]
    pub interrupt_reason: String,
    #[prost(int32, tag = "20")]
    pub actual_ticks_advanced: i32,
    #[prost(message, repeated, tag = "21")]
    pub kill_events: Vec<KillEvent>,
}

/// The books of a side (`RlEconomy`).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Economy {
    #[prost(int32, tag = "1")]
    pub cash: i32,
    #[prost(int32, tag = "2")]
    pub ore: i32,
    #[prost(int32, tag = "3")]
    pub power_provided: i32,
    #[prost(int32, tag = "4")]
    pub power_drained: i32,
    #[prost(int32, tag = "5")]
    pub resource_capacity: i32,
    #[prost(int32, tag = "6")]
    pub harvester_count: i32,
}

/// What a side has destroyed, lost and owns (`RlMilitary`).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Military {
    #[prost(int32, tag = "1")]
    pub units_killed: i32,
    #[prost(int32, tag = "2")]
    pub units_lost: i32,
    #[prost(int32, tag = "3")]
    pub buildings_killed: i32,
    #[prost(int32, tag = "4")]
    pub buildings_lost: i32,
    #[prost(int32, tag = "5")]
    pub army_value: i32,
    #[prost(int32, tag = "6")]
    pub active_unit_count: i32,
    #[prost(int32, tag = "7")]
    pub kills_cost: i32,
    #[prost(int32, tag = "8")]
    pub deaths_cost: i32,
    #[prost(int32, tag = "9")]
    pub assets_value: i32,
    #[prost(int32, tag = "10")]
    pub experience: i32,
    #[prost(int32, tag = "11")]
    pub order_count: i32,
}

/// A unit of either side (`RlUnitInfo`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct UnitInfo {
    #[prost(uint32, tag = "1")]
    pub actor_id: u32,
    #[prost(string, tag = "2")]
    pub r#type: String,
    /// 1/1024 of a cell.
    #[prost(int32, tag = "3")]
    pub pos_x: i32,
    /// 1/1024 of a cell.
    #[prost(int32, tag = "4")]
    pub pos_y: i32,
    #[prost(int32, tag = "5")]
    pub cell_x: i32,
    #[prost(int32, tag = "6")]
    pub cell_y: i32,
    /// 0 to 1.
    #[prost(float, tag = "7")]
    pub hp_percent: f32,
    #[prost(bool, tag = "8")]
    pub is_idle: bool,
    #[prost(string, tag = "9")]
    pub current_activity: String,
    #[prost(string, tag = "10")]
    pub owner: String,
    #[prost(int32, tag = "11")]
    pub ammo: i32,
    #[prost(bool, tag = "12")]
    pub can_attack: bool,
    /// 1/1024 of a turn from north, counter-clockwise.
    #[prost(int32, tag = "13")]
    pub facing: i32,
    #[prost(int32, tag = "14")]
    pub experience_level: i32,
    #[prost(int32, tag = "15")]
    pub stance: i32,
    /// 1/1024 of a cell in a tick.
    #[prost(int32, tag = "16")]
    pub speed: i32,
    /// 1/1024 of a cell.
    #[prost(int32, tag = "17")]
    pub attack_range: i32,
    #[prost(int32, tag = "18")]
    pub passenger_count: i32,
    #[prost(bool, tag = "19")]
    pub is_building: bool,
}

/// A building of either side (`RlBuildingInfo`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct BuildingInfo {
    #[prost(uint32, tag = "1")]
    pub actor_id: u32,
    #[prost(string, tag = "2")]
    pub r#type: String,
    #[prost(int32, tag = "3")]
    pub pos_x: i32,
    #[prost(int32, tag = "4")]
    pub pos_y: i32,
    /// 0 to 1.
    #[prost(float, tag = "5")]
    pub hp_percent: f32,
    #[prost(string, tag = "6")]
    pub owner: String,
    #[prost(bool, tag = "7")]
    pub is_producing: bool,
    /// 0 to 1.
    #[prost(float, tag = "8")]
    pub production_progress: f32,
    #[prost(string, tag = "9")]
    pub producing_item: String,
    #[prost(bool, tag = "10")]
    pub is_powered: bool,
    #[prost(bool, tag = "11")]
    pub is_repairing: bool,
    #[prost(int32, tag = "12")]
    pub sell_value: i32,
    #[prost(int32, tag = "13")]
    pub rally_x: i32,
    #[prost(int32, tag = "14")]
    pub rally_y: i32,
    #[prost(int32, tag = "15")]
    pub power_amount: i32,
    #[prost(string, repeated, tag = "16")]
    pub can_produce: Vec<String>,
    #[prost(int32, tag = "17")]
    pub cell_x: i32,
    #[prost(int32, tag = "18")]
    pub cell_y: i32,
}

/// An item that is being produced (`RlProductionInfo`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProductionInfo {
    #[prost(string, tag = "1")]
    pub queue_type: String,
    #[prost(string, tag = "2")]
    pub item: String,
    /// 0 to 1.
    #[prost(float, tag = "3")]
    pub progress: f32,
    #[prost(int32, tag = "4")]
    pub remaining_ticks: i32,
    #[prost(int32, tag = "5")]
    pub remaining_cost: i32,
    #[prost(bool, tag = "6")]
    pub paused: bool,
}

/// The map (`RlMapInfo`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MapInfo {
    #[prost(int32, tag = "1")]
    pub width: i32,
    #[prost(int32, tag = "2")]
    pub height: i32,
    #[prost(string, tag = "3")]
    pub map_name: String,
}

/// Something that was destroyed (`RlKillEvent`, of newer engines).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KillEvent {
    #[prost(int32, tag = "1")]
    pub tick: i32,
    #[prost(uint32, tag = "2")]
    pub victim_actor_id: u32,
    #[prost(string, tag = "3")]
    pub victim_type: String,
    #[prost(int32, tag = "4")]
    pub victim_cell_x: i32,
    #[prost(int32, tag = "5")]
    pub victim_cell_y: i32,
    /// 0 is unknown, the victim itself or its surroundings.
    #[prost(uint32, tag = "6")]
    pub attacker_actor_id: u32,
    #[prost(string, tag = "7")]
    pub attacker_type: String,
    #[prost(int32, tag = "8")]
    pub attacker_cell_x: i32,
    #[prost(int32, tag = "9")]
    pub attacker_cell_y: i32,
    #[prost(bool, tag = "10")]
    pub victim_is_own: bool,
    #[prost(bool, tag = "11")]
    pub attacker_is_own: bool,
    #[prost(bool, tag = "12")]
    pub victim_is_building: bool,
}

/// What an agent does at once.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AgentAction {
    #[prost(message, repeated, tag = "1")]
    pub commands: Vec<Command>,
}

/// One order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Command {
    #[prost(enumeration = "ActionKind", tag = "1")]
    pub action: i32,
    #[prost(uint32, tag = "2")]
    pub actor_id: u32,
    #[prost(uint32, tag = "3")]
    pub target_actor_id: u32,
    #[prost(int32, tag = "4")]
    pub target_x: i32,
    #[prost(int32, tag = "5")]
    pub target_y: i32,
    #[prost(string, tag = "6")]
    pub item_type: String,
    #[prost(bool, tag = "7")]
    pub queued: bool,
    #[prost(int32, tag = "8")]
    pub ticks: i32,
}

/// Kinds of orders (`ActionType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ActionKind {
    NoOp = 0,
    Move = 1,
    AttackMove = 2,
    Attack = 3,
    Stop = 4,
    Harvest = 5,
    Build = 6,
    Train = 7,
    Deploy = 8,
    Sell = 9,
    Repair = 10,
    PlaceBuilding = 11,
    CancelProduction = 12,
    SetRallyPoint = 13,
    Guard = 14,
    SetStance = 15,
    EnterTransport = 16,
    Unload = 17,
    PowerDown = 18,
    SetPrimary = 19,
    Surrender = 20,
    FastAdvance = 21,
    Patrol = 22,
}

/// How a session stands.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GameState {
    #[prost(string, tag = "1")]
    pub episode_id: String,
    #[prost(int32, tag = "2")]
    pub tick: i32,
    #[prost(string, tag = "3")]
    pub phase: String,
    #[prost(string, tag = "4")]
    pub winner: String,
    #[prost(int32, tag = "5")]
    pub player_count: i32,
    #[prost(string, tag = "6")]
    pub player_faction: String,
    #[prost(string, tag = "7")]
    pub enemy_faction: String,
}

/// Asks how a session stands.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StateRequest {
    #[prost(string, tag = "1")]
    pub session_id: String,
}

/// Asks for several ticks at once.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FastAdvanceRequest {
    #[prost(int32, tag = "1")]
    pub ticks: i32,
    #[prost(message, repeated, tag = "2")]
    pub commands: Vec<Command>,
    #[prost(string, tag = "3")]
    pub session_id: String,
    #[prost(int32, tag = "4")]
    pub check_events_every: i32,
    #[prost(string, repeated, tag = "5")]
    pub enabled_interrupts: Vec<String>,
}

/// Asks for a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateSessionRequest {
    #[prost(string, tag = "1")]
    pub map_name: String,
    /// `SLOT:BOT,SLOT:BOT`.
    #[prost(string, tag = "2")]
    pub bots: String,
    /// 0 is drawn.
    #[prost(int32, tag = "3")]
    pub seed: i32,
}

/// Names the session that is being made.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateSessionResponse {
    #[prost(string, tag = "1")]
    pub session_id: String,
}

/// Asks for the end of a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DestroySessionRequest {
    #[prost(string, tag = "1")]
    pub session_id: String,
}

/// Says nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DestroySessionResponse {}
