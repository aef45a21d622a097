//! What an engine shows as a row of columns, and a row of the action column as what an engine is asked for.

use rollhouse_codec::openra::{
    BuildingInfo, Command, Economy, FastAdvanceRequest, GameObservation, Interrupt, Military, PLANES,
    ProductionInfo, UnitInfo,
};
use rollhouse_core::{ColumnData, ColumnRef};

use super::settings::Sight;
use super::spaces::{
    AVAILABLE_FIELDS, BUILDING_FIELDS, Field, JOB_FIELDS, MAX_AVAILABLE, MAX_BUILDINGS, MAX_JOBS, MAX_ORDERS,
    MAX_PLANE, MAX_UNITS, UNIT_FIELDS, most, order_fields,
};

/// Reason for which what an engine shows is not what was declared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "the engine's map has {width} x {height} cells, and `map_size` in the environment's arguments declares \
         {declared_width} x {declared_height}"
    )]
    MapSize { width: i32, height: i32, declared_width: usize, declared_height: usize },
    #[error("the engine shows a map of {bytes} bytes; {wanted} are wanted, of {PLANES} planes")]
    Planes { bytes: usize, wanted: usize },
    #[error("the engine shows {0} on a plane of the map; numbers from 0 to {MAX_PLANE} may be there")]
    Plane(f32),
}

/// A row of a lane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Columns of the observation, in the spec's order.
    pub(crate) obs: Vec<ColumnData>,
    /// Info channels, in the spec's order.
    pub(crate) infos: [i32; 3],
}

impl Row {
    /// Makes the row of what is shown `ticks` after the last row, if the engine does not say how many.
    pub(crate) fn of(shown: &GameObservation, ticks: i32, sight: &Sight) -> Result<Self, Unfit> {
        let spatial = planes(shown, sight)?;
        let mut obs = Vec::new();
        let mut left_out = 0;
        let mut list =
            |obs: &mut Vec<ColumnData>, (fields, rows): (&[Field], Vec<Vec<i64>>), all: usize, most| {
                left_out += all.saturating_sub(most);
                obs.extend(items(fields, rows, most, sight));
            };
        let word = |word: &str| sight.words.number(word);
        let available = &shown.available_production;
        let rows = available.iter().take(MAX_AVAILABLE).map(|item| vec![word(item)]).collect();
        list(&mut obs, (&AVAILABLE_FIELDS, rows), available.len(), MAX_AVAILABLE);
        let buildings = |all: &[BuildingInfo]| {
            (&BUILDING_FIELDS[..], all.iter().take(MAX_BUILDINGS).map(|it| building(it, sight)).collect())
        };
        let units = |all: &[UnitInfo]| {
            (&UNIT_FIELDS[..], all.iter().take(MAX_UNITS).map(|it| unit(it, sight)).collect())
        };
        list(&mut obs, buildings(&shown.buildings), shown.buildings.len(), MAX_BUILDINGS);
        obs.extend(scalars(economy(&shown.economy.unwrap_or_default())));
        list(&mut obs, units(&shown.visible_enemies), shown.visible_enemies.len(), MAX_UNITS);
        let enemy = &shown.visible_enemy_buildings;
        list(&mut obs, buildings(enemy), enemy.len(), MAX_BUILDINGS);
        obs.push(ColumnData::F32(vec![part(shown.explored_percent, 100.0)]));
        obs.extend(scalars(military(&shown.military.unwrap_or_default())));
        let jobs = shown.production.iter().take(MAX_JOBS).map(|it| job(it, sight)).collect();
        list(&mut obs, (&JOB_FIELDS, jobs), shown.production.len(), MAX_JOBS);
        obs.push(ColumnData::F32(spatial));
        obs.push(ColumnData::I32(vec![shown.tick.max(0)]));
        list(&mut obs, units(&shown.units), shown.units.len(), MAX_UNITS);
        let advanced = shown.actual_ticks_advanced;
        let ticks = if advanced > 0 { advanced } else { ticks.max(0) };
        Ok(Self { obs, infos: [interrupt(shown), i32::try_from(left_out).unwrap_or(i32::MAX), ticks] })
    }
}

/// Returns the items and the count of a list; what stands behind the last item is zero.
fn items(fields: &[Field], rows: Vec<Vec<i64>>, maximum: usize, sight: &Sight) -> [ColumnData; 2] {
    let mut items = Vec::with_capacity(maximum * fields.len());
    for row in &rows {
        let clamped =
            fields.iter().zip(row).map(|(field, value)| (*value).clamp(field.1, most(field, sight)));
        items.extend(clamped);
    }
    items.resize(maximum * fields.len(), 0);
    [ColumnData::I64(items), ColumnData::I64(vec![rows.len() as i64])]
}

fn scalars<const N: usize>(values: [i32; N]) -> [ColumnData; N] {
    values.map(|value| ColumnData::I32(vec![value.max(-i32::MAX)]))
}

/// Returns a number between 0 and `most`; one that is none is 0.
fn part(value: f32, most: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, most) }
}

fn percent(part_of: f32) -> i64 {
    (part(part_of, 1.0) * 100.0).round() as i64
}

fn unit(it: &UnitInfo, sight: &Sight) -> Vec<i64> {
    vec![
        sight.words.number(&it.current_activity),
        it.ammo.into(),
        it.attack_range.into(),
        it.can_attack.into(),
        it.cell_x.into(),
        it.cell_y.into(),
        it.facing.into(),
        percent(it.hp_percent),
        it.actor_id.into(),
        it.is_building.into(),
        it.is_idle.into(),
        it.experience_level.into(),
        sight.words.number(&it.owner),
        it.passenger_count.into(),
        it.pos_x.into(),
        it.pos_y.into(),
        it.speed.into(),
        it.stance.into(),
        sight.words.number(&it.r#type),
    ]
}

fn building(it: &BuildingInfo, sight: &Sight) -> Vec<i64> {
    vec![
        it.cell_x.into(),
        it.cell_y.into(),
        percent(it.hp_percent),
        it.actor_id.into(),
        it.is_powered.into(),
        it.is_producing.into(),
        it.is_repairing.into(),
        sight.words.number(&it.owner),
        it.pos_x.into(),
        it.pos_y.into(),
        it.power_amount.into(),
        sight.words.number(&it.producing_item),
        percent(it.production_progress),
        it.rally_x.into(),
        it.rally_y.into(),
        it.sell_value.into(),
        sight.words.number(&it.r#type),
    ]
}

fn job(it: &ProductionInfo, sight: &Sight) -> Vec<i64> {
    vec![
        it.paused.into(),
        sight.words.number(&it.item),
        percent(it.progress),
        sight.words.number(&it.queue_type),
        it.remaining_cost.into(),
        it.remaining_ticks.into(),
    ]
}

const fn economy(it: &Economy) -> [i32; 6] {
    [it.cash, it.harvester_count, it.ore, it.power_drained, it.power_provided, it.resource_capacity]
}

const fn military(it: &Military) -> [i32; 11] {
    [
        it.active_unit_count,
        it.army_value,
        it.assets_value,
        it.buildings_killed,
        it.buildings_lost,
        it.deaths_cost,
        it.experience,
        it.kills_cost,
        it.order_count,
        it.units_killed,
        it.units_lost,
    ]
}

fn interrupt(shown: &GameObservation) -> i32 {
    if !shown.interrupted {
        return 0;
    }
    let unknown = Interrupt::ALL.len() as i32 + 1;
    Interrupt::of_name(&shown.interrupt_reason).map_or(unknown, |it| it as i32 + 1)
}

/// Returns the planes of the map, which is as large as was declared.
fn planes(shown: &GameObservation, sight: &Sight) -> Result<Vec<f32>, Unfit> {
    let (width, height) = (sight.width, sight.height);
    let map = shown.map_info.as_ref().map(|map| (map.width, map.height));
    let is = |given: i32, declared: usize| usize::try_from(given) == Ok(declared);
    if let Some((given_width, given_height)) = map.filter(|(x, y)| !is(*x, width) || !is(*y, height)) {
        let (declared_width, declared_height) = (width, height);
        return Err(Unfit::MapSize {
            width: given_width,
            height: given_height,
            declared_width,
            declared_height,
        });
    }
    let wanted = width * height * PLANES * size_of::<f32>();
    if shown.spatial_map.is_empty() && shown.done {
        // A game that ends need not show its map once more.
        return Ok(vec![0.0; width * height * PLANES]);
    }
    if shown.spatial_map.len() != wanted {
        return Err(Unfit::Planes { bytes: shown.spatial_map.len(), wanted });
    }
    let numbers = shown.spatial_map.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    numbers
        .map(
            |number| if (0.0..=MAX_PLANE).contains(&number) { Ok(number) } else { Err(Unfit::Plane(number)) },
        )
        .collect()
}

/// Number of an action's elements before its orders, and of an order's.
const BEFORE_ORDERS: usize = 1 + Interrupt::ALL.len();
const ORDER_WIDTH: usize = 7;
/// Number of an action's elements.
pub(super) const ACTION_WIDTH: usize = BEFORE_ORDERS + MAX_ORDERS * ORDER_WIDTH + 2;
/// Number of the patrol on the bridge, and here, where it has the place of the advance.
const PATROL: i32 = 22;
const PATROL_HERE: i64 = 21;

/// Returns what an engine is asked for by an action: without a session's name. What is out of bounds is clamped.
pub(crate) fn request(action: ColumnRef<'_>, sight: &Sight) -> FastAdvanceRequest {
    let mut row = [0; ACTION_WIDTH];
    let given = action.as_i64().unwrap_or_default();
    row.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
    let [check_every, .., count, ticks] = row;
    let (count, ticks) = (usize::try_from(count).unwrap_or_default().min(MAX_ORDERS), ticks.clamp(1, 5000));
    let fields = order_fields(sight);
    let orders = row[BEFORE_ORDERS..].as_chunks::<ORDER_WIDTH>().0;
    let commands = orders[..count].iter().map(|order| {
        let mut order = *order;
        order.iter_mut().zip(fields).for_each(|(value, (_, low, high))| *value = (*value).clamp(low, high));
        let [actor, item, kind, queued, target, x, y] = order;
        Command {
            action: if kind == PATROL_HERE { PATROL } else { kind as i32 },
            actor_id: actor as u32,
            target_actor_id: target as u32,
            target_x: x as i32,
            target_y: y as i32,
            item_type: sight.words.word(item).to_owned(),
            queued: queued == 1,
            ticks: 0,
        }
    });
    let wanted = row[1..BEFORE_ORDERS].iter().zip(Interrupt::ALL).filter(|(bit, _)| **bit == 1);
    let enabled_interrupts: Vec<_> = wanted.map(|(_, it)| it.name().to_owned()).collect();
    let looks = if enabled_interrupts.is_empty() { 0 } else { check_every.clamp(1, 1000) };
    FastAdvanceRequest {
        ticks: ticks as i32,
        commands: commands.collect(),
        session_id: String::new(),
        check_events_every: looks as i32,
        enabled_interrupts,
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_codec::openra::{ActionKind, MapInfo};
    use rollhouse_core::ObservationSpace;

    use super::super::spaces::{actions, observations};
    use super::super::words::Words;
    use super::*;

    fn sight() -> Sight {
        Sight { width: 3, height: 2, words: Words::usual(), max_actor_id: 100 }
    }

    fn shown() -> GameObservation {
        let numbers = (0..54).flat_map(|number| (number as f32).to_le_bytes());
        GameObservation {
            tick: 9,
            units: vec![UnitInfo {
                actor_id: u32::MAX,
                r#type: "e1".into(),
                hp_percent: 0.5,
                owner: "nobody".into(),
                cell_x: 1_000_000,
                ..UnitInfo::default()
            }],
            map_info: Some(MapInfo { width: 3, height: 2, map_name: "small".into() }),
            spatial_map: numbers.collect(),
            explored_percent: f32::NAN,
            ..GameObservation::default()
        }
    }

    fn column<'a>(row: &'a Row, space: &ObservationSpace, path: &str) -> &'a ColumnData {
        let place = space.columns().iter().position(|(known, _)| known == path).unwrap();
        &row.obs[place]
    }

    #[test]
    fn a_row_has_the_columns_of_the_space_whatever_is_shown() {
        let (sight, space) = (sight(), observations(&sight()).unwrap());
        let all = GameObservation {
            units: vec![UnitInfo::default(); 600],
            buildings: vec![BuildingInfo::default(); 300],
            production: vec![ProductionInfo::default(); 65],
            available_production: vec!["powr".into(); 129],
            ..shown()
        };
        for (shown, left_out) in [(shown(), 0), (all, 88 + 44 + 1 + 1)] {
            let row = Row::of(&shown, 5, &sight).unwrap();
            let columns = space.columns();
            assert_eq!(row.obs.len(), columns.len());
            for (data, (path, space)) in row.obs.iter().zip(columns) {
                assert_eq!((data.as_ref().dtype(), data.len()), (space.dtype(), space.elements()), "{path}");
            }
            assert_eq!(row.infos, [0, left_out, 5]);
        }
    }

    #[test]
    fn names_are_numbers_and_numbers_keep_within_their_bounds() {
        let (sight, space) = (sight(), observations(&sight()).unwrap());
        let row = Row::of(&shown(), 0, &sight).unwrap();
        let ColumnData::I64(units) = column(&row, &space, "units/items") else { panic!() };
        let field = |name: &str| units[UNIT_FIELDS.iter().position(|(known, ..)| *known == name).unwrap()];
        assert_eq!((field("type"), field("owner"), field("hp_percent")), (1, 0, 50));
        assert_eq!((field("id"), field("cell_x"), field("ammo")), (i64::from(u32::MAX), 512, 0));
        assert_eq!(column(&row, &space, "units/count"), &ColumnData::I64(vec![1]));
        assert_eq!(column(&row, &space, "explored_percent"), &ColumnData::F32(vec![0.0]));
        assert_eq!(column(&row, &space, "tick"), &ColumnData::I32(vec![9]));
    }

    #[test]
    fn a_map_of_another_size_or_with_numbers_that_are_none_is_refused_by_name() {
        let map_info = Some(MapInfo { width: 44, height: -2, map_name: String::new() });
        let other = Row::of(&GameObservation { map_info, ..shown() }, 0, &sight()).unwrap_err().to_string();
        assert!(
            other.contains("44 x -2") && other.contains("`map_size`") && other.contains("3 x 2"),
            "{other}"
        );
        let short = GameObservation { spatial_map: vec![0; 215], ..shown() };
        assert_eq!(Row::of(&short, 0, &sight()), Err(Unfit::Planes { bytes: 215, wanted: 216 }));
        for number in [f32::NAN, -1.0, f32::INFINITY] {
            let spatial_map = number.to_le_bytes().repeat(54);
            assert!(matches!(
                Row::of(&GameObservation { spatial_map, ..shown() }, 0, &sight()),
                Err(Unfit::Plane(_))
            ));
        }
    }

    #[test]
    fn the_last_row_of_a_game_needs_no_map_and_interrupts_have_numbers() {
        let end = GameObservation { done: true, map_info: None, spatial_map: Vec::new(), ..shown() };
        assert!(Row::of(&end, 3, &sight()).is_ok());
        for (word, number) in [("game_over", 1), ("exploration_milestone", 10), ("earthquake", 11)] {
            let interrupted = GameObservation {
                interrupted: true,
                interrupt_reason: word.into(),
                actual_ticks_advanced: 7,
                ..shown()
            };
            assert_eq!(Row::of(&interrupted, 3, &sight()).unwrap().infos, [number, 0, 7]);
        }
    }

    #[test]
    fn an_action_becomes_commands_ticks_and_interrupts() {
        let space = actions(&sight()).unwrap();
        assert_eq!(space.elements(), ACTION_WIDTH);
        let mut row = [0; ACTION_WIDTH];
        (row[0], row[2], row[ACTION_WIDTH - 2], row[ACTION_WIDTH - 1]) = (7, 1, 2, 50);
        row[11..18].copy_from_slice(&[5, 0, ActionKind::AttackMove as i64, 1, 6, 2, 1]);
        let build = [0, sight().words.number("powr"), 21, 0, 0, 9, 9];
        row[18..25].copy_from_slice(&build);
        let asked = request(ColumnRef::I64(&row), &sight());
        assert_eq!((asked.ticks, asked.check_events_every), (50, 7));
        assert_eq!(asked.enabled_interrupts, ["enemy_spotted"]);
        let [first, second] = asked.commands.as_slice() else { panic!("{asked:?}") };
        assert_eq!((first.action, first.actor_id, first.target_actor_id), (2, 5, 6));
        assert_eq!((first.target_x, first.target_y, first.queued), (2, 1, true));
        assert_eq!((second.action, second.item_type.as_str(), second.target_y), (22, "powr", 1));
        let none = request(ColumnRef::I64(&[0; ACTION_WIDTH]), &sight());
        assert_eq!((none.ticks, none.check_events_every, none.commands.len()), (1, 0, 0));
        let wild = request(ColumnRef::I64(&[i64::MAX; ACTION_WIDTH]), &sight());
        assert_eq!((wild.ticks, wild.commands.len(), wild.commands[0].actor_id), (5000, 16, 100));
    }

    #[test]
    fn the_parts_of_an_action_stand_where_they_are_looked_for() {
        let space = actions(&sight()).unwrap();
        let columns = space.parts().unwrap().columns();
        let shown: Vec<_> = columns.iter().map(|(path, space)| (path.as_str(), space.elements())).collect();
        let orders = MAX_ORDERS * ORDER_WIDTH;
        let wanted = [
            ("check_every", 1),
            ("interrupts", 10),
            ("orders/items", orders),
            ("orders/count", 1),
            ("ticks", 1),
        ];
        assert_eq!(shown, wanted);
    }
}
