//! The spaces of Skirmish's observations and actions. The parts of a Dict stand in the order of their names.

use rollhouse_core::{
    BadCounted, Bounds, BoxSpace, ColumnSpec, CompositeSpace, DType, DiscreteSpace, InexactPart,
    ObservationSpace, Role, SequenceSpace, Space,
};

use super::actor::{ALL_IDS, MAX_BUILDINGS, MAX_UNITS};
use super::advance::{Comparison, MAX_CHECK_EVERY, MAX_CONDITIONS, MAX_TICKS, MAX_VALUE};
use super::events::EVENT_COUNT;
use super::figures::FIGURES;
use super::kinds::{ITEM_NUMBERS, UNIT_KINDS};
use super::map::{MAP_COUNT, SIDE};
use super::orders::{MAX_ORDERS, ORDER_KINDS, SUBJECTS};
use super::production::MAX_JOBS;
use super::side::MAX_CASH;
use super::unit::{MAX_CARGO, MAX_QUEUED};

/// An integer of an observation: its name, its least and its greatest value.
pub(super) type Field = (&'static str, i64, i64);

const CELL: i64 = SIDE as i64 - 1;
const POINT: i64 = SIDE as i64 * 256;
const LAST_ID: i64 = ALL_IDS as i64 - 1;
const LAST_ITEM: i64 = ITEM_NUMBERS as i64 - 1;
/// Greatest number of ticks of a game.
pub(super) const MAX_TIME: i64 = 100_000;
/// Greatest worth of something.
const WORTH: i64 = i32::MAX as i64;

pub(super) const UNIT_FIELDS: [Field; 19] = [
    ("activity", 0, 6),
    ("attack_range", 0, 16),
    ("can_attack", 0, 1),
    ("cargo", 0, MAX_CARGO as i64),
    ("cell_x", 0, CELL),
    ("cell_y", 0, CELL),
    ("cooldown", 0, 1000),
    ("facing", 0, 7),
    ("hp_percent", 0, 100),
    ("id", 0, LAST_ID),
    ("is_idle", 0, 1),
    ("level", 0, 3),
    ("pos_x", 0, POINT),
    ("pos_y", 0, POINT),
    ("queued", 0, MAX_QUEUED as i64),
    ("speed", 0, 1024),
    ("stance", 0, 3),
    ("target", 0, LAST_ID),
    ("type", 0, UNIT_KINDS as i64),
];

pub(super) const ENEMY_FIELDS: [Field; 12] = [
    ("attack_range", 0, 16),
    ("can_attack", 0, 1),
    ("cell_x", 0, CELL),
    ("cell_y", 0, CELL),
    ("facing", 0, 7),
    ("hp_percent", 0, 100),
    ("id", 0, LAST_ID),
    ("level", 0, 3),
    ("pos_x", 0, POINT),
    ("pos_y", 0, POINT),
    ("speed", 0, 1024),
    ("type", 0, UNIT_KINDS as i64),
];

pub(super) const BUILDING_FIELDS: [Field; 15] = [
    ("cell_x", 0, CELL),
    ("cell_y", 0, CELL),
    ("hp_percent", 0, 100),
    ("id", 0, LAST_ID),
    ("is_powered", 0, 1),
    ("is_primary", 0, 1),
    ("is_producing", 0, 1),
    ("is_repairing", 0, 1),
    ("power", -1000, 1000),
    ("producing_item", 0, LAST_ITEM),
    ("production_percent", 0, 100),
    ("rally_x", -1, CELL),
    ("rally_y", -1, CELL),
    ("sell_value", 0, MAX_CASH as i64),
    ("type", 0, LAST_ITEM),
];

pub(super) const ENEMY_BUILDING_FIELDS: [Field; 6] = [
    ("cell_x", 0, CELL),
    ("cell_y", 0, CELL),
    ("hp_percent", 0, 100),
    ("id", 0, LAST_ID),
    ("is_visible", 0, 1),
    ("type", 0, LAST_ITEM),
];

pub(super) const JOB_FIELDS: [Field; 6] = [
    ("is_paused", 0, 1),
    ("is_ready", 0, 1),
    ("item", 0, LAST_ITEM),
    ("line", 0, 2),
    ("percent", 0, 100),
    ("remaining_ticks", 0, 10_000),
];

pub(super) const ECONOMY_FIELDS: [Field; 6] = [
    ("cash", 0, MAX_CASH as i64),
    ("harvester_count", 0, MAX_UNITS as i64),
    ("ore", 0, WORTH),
    ("power_drained", 0, WORTH),
    ("power_provided", 0, WORTH),
    ("resource_capacity", 0, WORTH),
];

pub(super) const MILITARY_FIELDS: [Field; 11] = [
    ("active_unit_count", 0, MAX_UNITS as i64),
    ("army_value", 0, WORTH),
    ("assets_value", 0, WORTH),
    ("buildings_killed", 0, WORTH),
    ("buildings_lost", 0, WORTH),
    ("deaths_cost", 0, WORTH),
    ("experience", 0, WORTH),
    ("kills_cost", 0, WORTH),
    ("order_count", 0, WORTH),
    ("units_killed", 0, WORTH),
    ("units_lost", 0, WORTH),
];

pub(super) const MAP_FIELDS: [Field; 3] =
    [("height", 0, SIDE as i64), ("number", 0, MAP_COUNT as i64 - 1), ("width", 0, SIDE as i64)];

/// An order in an action.
pub(super) const ORDER_FIELDS: [Field; 7] = [
    ("item", 0, LAST_ITEM),
    ("kind", 0, ORDER_KINDS as i64 - 1),
    ("queued", 0, 1),
    ("subject", 0, SUBJECTS as i64 - 1),
    ("target", 0, LAST_ID),
    ("x", 0, CELL),
    ("y", 0, CELL),
];

/// A condition in an action.
pub(super) const CONDITION_FIELDS: [Field; 3] = [
    ("comparison", 0, Comparison::ALL.len() as i64 - 1),
    ("figure", 0, FIGURES as i64 - 1),
    ("value", 0, MAX_VALUE),
];

/// Maximum number of items that are shown to be produced.
pub(super) const SHOWN_JOBS: usize = 3 * MAX_JOBS;
/// Planes of the map.
pub(super) const PLANES: usize = 9;

/// Reason for which spaces cannot be made; none of the tables above gives one.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadSpace {
    #[error(transparent)]
    Counted(#[from] BadCounted),
    #[error(transparent)]
    Parts(#[from] InexactPart),
}

type Part = (String, ObservationSpace);

fn boxed(low: f64, high: f64, shape: &[usize], dtype: DType, choices: bool) -> Space {
    let elements = shape.iter().product();
    let (low, high) = (Bounds::all(low, elements), Bounds::all(high, elements));
    Space::Box(BoxSpace { low, high, shape: shape.to_vec(), dtype, choices, parts: None, own: None })
}

fn integer((name, low, high): Field) -> Part {
    (name.to_owned(), boxed(low as f64, high as f64, &[], DType::I32, false).into())
}

fn bits(shape: &[usize]) -> Space {
    boxed(0.0, 1.0, shape, DType::U8, true)
}

fn choice(start: i64, n: u32) -> Space {
    Space::Discrete(DiscreteSpace { n: n.into(), start, own: None })
}

fn dict(spaces: Vec<Part>) -> CompositeSpace {
    CompositeSpace::Dict { spaces }
}

fn integers(fields: &[Field]) -> ObservationSpace {
    dict(fields.iter().copied().map(integer).collect()).into()
}

/// Returns sequences of Dicts of integers.
fn sequence(fields: &[Field], most: usize) -> Result<ObservationSpace, BadSpace> {
    let item = BoxSpace::of_parts(dict(fields.iter().copied().map(integer).collect()))?;
    Ok(CompositeSpace::from(SequenceSpace::new(Space::Box(item), most, false)?).into())
}

/// Returns sequences of Dicts of choices.
fn choices(fields: &[Field], most: usize) -> Result<ObservationSpace, BadSpace> {
    let field = |&(name, low, high): &Field| (name.to_owned(), choice(low, (high - low + 1) as u32).into());
    let item = BoxSpace::of_parts(dict(fields.iter().map(field).collect()))?;
    Ok(CompositeSpace::from(SequenceSpace::new(Space::Box(item), most, false)?).into())
}

/// Returns the space of observations.
pub(super) fn observations() -> Result<ObservationSpace, BadSpace> {
    let masks = dict(vec![
        ("orders".to_owned(), bits(&[SUBJECTS, ORDER_KINDS]).into()),
        ("place".to_owned(), bits(&[SIDE, SIDE]).into()),
        ("produce".to_owned(), bits(&[ITEM_NUMBERS]).into()),
    ]);
    let spaces = [
        ("buildings", sequence(&BUILDING_FIELDS, MAX_BUILDINGS)?),
        ("economy", integers(&ECONOMY_FIELDS)),
        ("enemies", sequence(&ENEMY_FIELDS, MAX_UNITS)?),
        ("enemy_buildings", sequence(&ENEMY_BUILDING_FIELDS, MAX_BUILDINGS)?),
        ("events", bits(&[EVENT_COUNT]).into()),
        ("explored_percent", integer(("", 0, 100)).1),
        ("map", integers(&MAP_FIELDS)),
        ("masks", masks.into()),
        ("military", integers(&MILITARY_FIELDS)),
        ("production", sequence(&JOB_FIELDS, SHOWN_JOBS)?),
        ("spatial", boxed(0.0, 255.0, &[SIDE, SIDE, PLANES], DType::F32, false).into()),
        ("tick", integer(("", 0, MAX_TIME)).1),
        ("units", sequence(&UNIT_FIELDS, MAX_UNITS)?),
    ];
    Ok(dict(spaces.map(|(name, space)| (name.to_owned(), space)).into()).into())
}

/// Returns the space of actions.
pub(super) fn actions() -> Result<Space, BadSpace> {
    let until = dict(vec![
        ("all".to_owned(), choice(0, 2).into()),
        ("conditions".to_owned(), choices(&CONDITION_FIELDS, MAX_CONDITIONS)?),
        ("interrupts".to_owned(), bits(&[EVENT_COUNT]).into()),
    ]);
    let spaces = [
        ("check_every", choice(1, MAX_CHECK_EVERY).into()),
        ("orders", choices(&ORDER_FIELDS, MAX_ORDERS)?),
        ("ticks", choice(1, MAX_TICKS).into()),
        ("until", until.into()),
    ];
    let spaces = spaces.map(|(name, space)| (name.to_owned(), space)).into();
    Ok(Space::Box(BoxSpace::of_parts(dict(spaces))?))
}

/// Returns the info channels: what a step came to.
pub(super) fn info_channels() -> Vec<ColumnSpec> {
    let channel = |path: &str| ColumnSpec {
        path: path.to_owned(),
        dtype: DType::I32,
        shape: Vec::new(),
        names: Vec::new(),
        role: Role::Info,
    };
    INFOS.map(channel).into()
}

/// Names of the info channels: the code of the first refusal of an order, the number of refused orders, the score, the number of the
/// reason for which the step ended, and the ticks that it took.
pub(super) const INFOS: [&str; 5] = ["refusal", "rejected_orders", "score", "stop_reason", "ticks_advanced"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_dicts_stand_in_the_order_of_their_names() {
        for space in [observations().unwrap().columns(), actions().unwrap().parts().unwrap().columns()] {
            let names: Vec<_> = space.iter().map(|(path, _)| path.split('/').next().unwrap()).collect();
            assert!(names.is_sorted(), "{names:?}");
        }
        let tables: [&[Field]; 8] = [
            &UNIT_FIELDS,
            &ENEMY_FIELDS,
            &BUILDING_FIELDS,
            &ENEMY_BUILDING_FIELDS,
            &JOB_FIELDS,
            &ECONOMY_FIELDS,
            &MILITARY_FIELDS,
            &ORDER_FIELDS,
        ];
        assert!(tables.iter().all(|fields| fields.is_sorted_by_key(|(name, ..)| name)));
    }
}
