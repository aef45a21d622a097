//! One message of each type, with every field set.

use rollhouse_codec::openra::*;

/// A message as it stands on the wire, and its reader: whether what it reads is written the same again.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) reads: fn(&[u8]) -> Result<Vec<u8>, MessageError>,
}

fn again<M: Readable>(bytes: &[u8]) -> Result<Vec<u8>, MessageError> {
    decode::<M>(bytes).map(|message| message.encode_to_vec())
}

fn sample<M: Readable>(name: &'static str, message: &M) -> Sample {
    Sample { name, bytes: message.encode_to_vec(), reads: again::<M> }
}

fn unit(actor_id: u32) -> UnitInfo {
    UnitInfo {
        actor_id,
        r#type: "2tnk".into(),
        pos_x: 5632,
        pos_y: -1,
        cell_x: 5,
        cell_y: 6,
        hp_percent: 0.75,
        is_idle: true,
        current_activity: "attack_move".into(),
        owner: "Multi1".into(),
        ammo: 3,
        can_attack: true,
        facing: 896,
        experience_level: 2,
        stance: 3,
        speed: 64,
        attack_range: 5120,
        passenger_count: 1,
        is_building: true,
    }
}

fn building(actor_id: u32) -> BuildingInfo {
    BuildingInfo {
        actor_id,
        r#type: "weap".into(),
        pos_x: 1024,
        pos_y: 2048,
        hp_percent: 1.0,
        owner: "Multi1".into(),
        is_producing: true,
        production_progress: 0.5,
        producing_item: "harv".into(),
        is_powered: true,
        is_repairing: true,
        sell_value: 750,
        rally_x: 9,
        rally_y: 10,
        power_amount: -30,
        can_produce: vec!["harv".into(), "2tnk".into()],
        cell_x: 1,
        cell_y: 2,
    }
}

fn observation() -> GameObservation {
    GameObservation {
        tick: 250,
        episode_id: "0123456789ab".into(),
        economy: Some(Economy {
            cash: 4000,
            ore: 120,
            power_provided: 200,
            power_drained: 80,
            resource_capacity: 2000,
            harvester_count: 1,
        }),
        military: Some(military()),
        units: vec![unit(1), unit(2)],
        buildings: vec![building(65)],
        production: vec![ProductionInfo {
            queue_type: "Vehicle".into(),
            item: "harv".into(),
            progress: 0.5,
            remaining_ticks: 125,
            remaining_cost: 500,
            paused: true,
        }],
        visible_enemies: vec![unit(97)],
        map_info: Some(MapInfo { width: 24, height: 24, map_name: "duel".into() }),
        spatial_map: 1.0_f32.to_le_bytes().repeat(PLANES),
        spatial_channels: PLANES as i32,
        done: true,
        reward: 1.5,
        result: "win".into(),
        available_production: vec!["e1".into()],
        visible_enemy_buildings: vec![building(161)],
        explored_percent: 12.5,
        interrupted: true,
        interrupt_reason: "enemy_spotted".into(),
        actual_ticks_advanced: 17,
        kill_events: vec![kill()],
    }
}

fn military() -> Military {
    Military {
        units_killed: 1,
        units_lost: 2,
        buildings_killed: 3,
        buildings_lost: 4,
        army_value: 5,
        active_unit_count: 6,
        kills_cost: 7,
        deaths_cost: 8,
        assets_value: 9,
        experience: 10,
        order_count: 11,
    }
}

fn kill() -> KillEvent {
    KillEvent {
        tick: 249,
        victim_actor_id: 97,
        victim_type: "e1".into(),
        victim_cell_x: 3,
        victim_cell_y: 4,
        attacker_actor_id: 1,
        attacker_type: "2tnk".into(),
        attacker_cell_x: 5,
        attacker_cell_y: 6,
        victim_is_own: true,
        attacker_is_own: true,
        victim_is_building: true,
    }
}

fn command() -> Command {
    Command {
        action: ActionKind::Patrol as i32,
        actor_id: 4,
        target_actor_id: 97,
        target_x: -7,
        target_y: 8,
        item_type: "powr".into(),
        queued: true,
        ticks: 9,
    }
}

/// All samples.
pub(crate) fn samples() -> Vec<Sample> {
    let advance = FastAdvanceRequest {
        ticks: 50,
        commands: vec![command(), Command::default()],
        session_id: "0123456789ab".into(),
        check_events_every: 5,
        enabled_interrupts: Interrupt::ALL.iter().map(|it| it.name().to_owned()).collect(),
    };
    let state = GameState {
        episode_id: "0123456789ab".into(),
        tick: 250,
        phase: Phase::Playing.name().into(),
        winner: "Multi1".into(),
        player_count: 2,
        player_faction: "england".into(),
        enemy_faction: "russia".into(),
    };
    let session_id = "0123456789ab".to_owned();
    let create = CreateSessionRequest {
        map_name: "singles.oramap".into(),
        bots: "Multi1:rl-agent,Multi0:beginner".into(),
        seed: 7,
    };
    vec![
        sample("game-observation", &observation()),
        sample("game-observation-empty", &GameObservation::default()),
        sample("agent-action", &AgentAction { commands: vec![command()] }),
        sample("command", &command()),
        sample("game-state", &state),
        sample("state-request", &StateRequest { session_id: session_id.clone() }),
        sample("fast-advance-request", &advance),
        sample("create-session-request", &create),
        sample("create-session-response", &CreateSessionResponse { session_id: session_id.clone() }),
        sample("destroy-session-request", &DestroySessionRequest { session_id }),
        sample("destroy-session-response", &DestroySessionResponse {}),
    ]
}
