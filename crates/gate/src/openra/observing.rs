//! What a lane shows, as the bridge's message.

use rollhouse_codec::openra::{
    BuildingInfo, Economy, GameObservation, MapInfo, Military, PLANES, ProductionInfo, UnitInfo,
};
use rollhouse_core::ColumnRef;

use super::names;
use super::shape::{ObservedColumns, Planes};
use crate::lanes::LaneRow;

/// Points of a cell on the bridge, and how many of them a point of the world is.
const CELL: i32 = 1024;
const POINT: i64 = 4;
/// Where a unit faces, by the world's numbers: north, east, south, west and between them, counter-clockwise from north.
const FACINGS: [i32; 8] = [0, 768, 512, 256, 896, 640, 384, 128];

/// Who plays, as the bridge names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Players {
    pub(crate) own: String,
    pub(crate) enemy: String,
}

impl ObservedColumns {
    /// Returns the message of what is shown: all but what an advance says of itself.
    pub(crate) fn message(&self, shown: &LaneRow<'_>, players: &Players) -> GameObservation {
        let obs = shown.obs;
        let produce = bytes(obs[self.masks.produce]);
        let available = names::ITEMS.iter().zip(produce.get(1..).unwrap_or_default());
        let [width, height, number] = self.map.map(|column| integer(obs[column]));
        let map_name = usize::try_from(number).ok().and_then(|number| names::MAPS.get(number));
        let map_name = map_name.copied().unwrap_or_default().to_owned();
        GameObservation {
            tick: integer(obs[self.tick]),
            economy: Some(economy(self.economy.map(|column| integer(obs[column])))),
            military: Some(military(self.military.map(|column| integer(obs[column])))),
            units: self.units(obs, &players.own),
            buildings: self.buildings.of(obs).map(|row| building(row, produce, &players.own)).collect(),
            production: self.jobs.of(obs).map(job).collect(),
            visible_enemies: self.enemies(obs, &players.enemy),
            map_info: Some(MapInfo { width, height, map_name }),
            spatial_map: self.planes.cut(obs, width, height),
            spatial_channels: PLANES as i32,
            reward: shown.reward as f32,
            available_production: available
                .filter(|(_, may)| **may == 1)
                .map(|(item, _)| item.actor.to_owned())
                .collect(),
            visible_enemy_buildings: self
                .enemy_buildings
                .of(obs)
                .map(|row| enemy_building(row, &players.enemy))
                .collect(),
            explored_percent: integer(obs[self.explored]) as f32,
            ..GameObservation::default()
        }
    }

    fn units(&self, obs: &[ColumnRef<'_>], owner: &str) -> Vec<UnitInfo> {
        let ranges = self.unit_ranges.of(obs);
        self.units.of(obs).zip(ranges).map(|(row, [range])| own_unit(row, range, owner)).collect()
    }

    fn enemies(&self, obs: &[ColumnRef<'_>], owner: &str) -> Vec<UnitInfo> {
        let ranges = self.enemy_ranges.of(obs);
        self.enemies.of(obs).zip(ranges).map(|(row, [range])| enemy(row, range, owner)).collect()
    }
}

impl Planes {
    /// Returns the planes of the map alone: the world's grid is as wide as that of its largest map.
    fn cut(&self, obs: &[ColumnRef<'_>], width: i32, height: i32) -> Vec<u8> {
        let Some(grid) = obs[self.column].as_f32() else { return Vec::new() };
        let side = |cells: i32| usize::try_from(cells).unwrap_or_default().min(self.side);
        let (width, height) = (side(width), side(height));
        let mut bytes = Vec::with_capacity(width * height * PLANES * size_of::<f32>());
        for row in grid.chunks_exact(self.side * PLANES).take(height) {
            for cell in row[..width * PLANES].as_chunks::<PLANES>().0 {
                let mut cell = *cell;
                // The world has the building's number where the bridge has whether there is one.
                (cell[5], cell[7]) = (cell[5].min(1.0), cell[7].min(1.0));
                bytes.extend_from_slice(cell.map(f32::to_le_bytes).as_flattened());
            }
        }
        bytes
    }
}

/// Returns the number in a column of one.
pub(crate) fn integer(column: ColumnRef<'_>) -> i32 {
    column.as_i32().and_then(|column| column.first()).copied().unwrap_or_default()
}

/// Returns the elements of a column of bytes.
pub(crate) fn bytes(column: ColumnRef<'_>) -> &[u8] {
    column.as_u8().unwrap_or_default()
}

const fn economy([cash, ore, provided, drained, capacity, harvesters]: [i32; 6]) -> Economy {
    Economy {
        cash,
        ore,
        power_provided: provided,
        power_drained: drained,
        resource_capacity: capacity,
        harvester_count: harvesters,
    }
}

const fn military(figures: [i32; 11]) -> Military {
    let [units_killed, units_lost, buildings_killed, buildings_lost, army_value, active, ..] = figures;
    let [.., kills_cost, deaths_cost, assets_value, experience, order_count] = figures;
    Military {
        units_killed,
        units_lost,
        buildings_killed,
        buildings_lost,
        army_value,
        active_unit_count: active,
        kills_cost,
        deaths_cost,
        assets_value,
        experience,
        order_count,
    }
}

fn name_of(item: i64) -> String {
    names::of_number(item).map(|item| item.actor).unwrap_or_default().to_owned()
}

fn part(percent: i64) -> f32 {
    percent as f32 / 100.0
}

fn facing(way: i64) -> i32 {
    usize::try_from(way).ok().and_then(|way| FACINGS.get(way)).copied().unwrap_or_default()
}

fn own_unit(row: [i64; 14], range: i64, owner: &str) -> UnitInfo {
    let [
        id,
        kind,
        pos_x,
        pos_y,
        cell_x,
        cell_y,
        hp,
        is_idle,
        activity,
        can_attack,
        way,
        level,
        stance,
        speed,
    ] = row;
    let activity = usize::try_from(activity).ok().and_then(|number| names::ACTIVITIES.get(number));
    UnitInfo {
        is_idle: is_idle == 1,
        current_activity: activity.copied().unwrap_or_default().to_owned(),
        stance: stance as i32,
        ..enemy([id, kind, pos_x, pos_y, cell_x, cell_y, hp, can_attack, way, level, speed], range, owner)
    }
}

fn enemy(row: [i64; 11], range: i64, owner: &str) -> UnitInfo {
    let [id, kind, pos_x, pos_y, cell_x, cell_y, hp, can_attack, way, level, speed] = row;
    UnitInfo {
        actor_id: id as u32,
        r#type: name_of(kind),
        pos_x: (pos_x * POINT) as i32,
        pos_y: (pos_y * POINT) as i32,
        cell_x: cell_x as i32,
        cell_y: cell_y as i32,
        hp_percent: part(hp),
        owner: owner.to_owned(),
        // Ammunition does not run out.
        ammo: -1,
        can_attack: can_attack == 1,
        facing: facing(way),
        experience_level: level as i32,
        speed: speed as i32,
        attack_range: range as i32 * CELL,
        ..UnitInfo::default()
    }
}

fn building(row: [i64; 14], producible: &[u8], owner: &str) -> BuildingInfo {
    let [id, kind, cell_x, cell_y, hp, producing, percent, item, powered, repairing, value, x, y, power] =
        row;
    BuildingInfo {
        is_producing: producing == 1,
        production_progress: part(percent),
        producing_item: name_of(item),
        is_powered: powered == 1,
        is_repairing: repairing == 1,
        sell_value: value as i32,
        rally_x: x as i32,
        rally_y: y as i32,
        power_amount: power as i32,
        can_produce: names::produced_by(kind, producible),
        ..enemy_building([id, kind, cell_x, cell_y, hp], owner)
    }
}

fn enemy_building([id, kind, cell_x, cell_y, hp]: [i64; 5], owner: &str) -> BuildingInfo {
    let size = names::of_number(kind).map_or(1, |item| item.size);
    let middle = |cell: i64| cell as i32 * CELL + size * CELL / 2;
    BuildingInfo {
        actor_id: id as u32,
        r#type: name_of(kind),
        pos_x: middle(cell_x),
        pos_y: middle(cell_y),
        hp_percent: part(hp),
        owner: owner.to_owned(),
        rally_x: -1,
        rally_y: -1,
        cell_x: cell_x as i32,
        cell_y: cell_y as i32,
        ..BuildingInfo::default()
    }
}

fn job([line, item, percent, remaining_ticks, is_paused]: [i64; 5]) -> ProductionInfo {
    let names = names::of_number(item);
    let cost = names.map_or(0, |item| item.cost);
    ProductionInfo {
        queue_type: names.map_or_else(|| names::queue_of(line), |item| item.queue).to_owned(),
        item: name_of(item),
        progress: part(percent),
        remaining_ticks: remaining_ticks as i32,
        // All of it was paid at the beginning; a client is told of the part that is not built yet.
        remaining_cost: cost - (i64::from(cost) * percent / 100) as i32,
        paused: is_paused == 1,
    }
}
