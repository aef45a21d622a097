//! The spaces of a world's observations and actions. The parts of a Dict stand in the order of their names.

use rollhouse_codec::openra::{Interrupt, MAX_TICKS, PLANES};
use rollhouse_core::{
    BadCounted, Bounds, BoxSpace, ColumnSpec, CompositeSpace, DType, DiscreteSpace, InexactPart,
    ObservationSpace, Role, SequenceSpace, Space,
};

use super::settings::{MAX_SIDE, Sight};

/// An integer: its name, its least and its greatest value.
pub(super) type Field = (&'static str, i64, i64);

/// Most items of the lists that are shown.
pub(super) const MAX_UNITS: usize = 512;
pub(super) const MAX_BUILDINGS: usize = 256;
pub(super) const MAX_JOBS: usize = 64;
pub(super) const MAX_AVAILABLE: usize = 128;
/// Most orders of an action, and most ticks between two looks at interrupts.
pub(super) const MAX_ORDERS: usize = 16;
pub(super) const MAX_CHECK_EVERY: i64 = 1000;
/// Kinds of orders: those of the bridge, without the advance, in the place of whose number the patrol's is.
pub(super) const ORDER_KINDS: i64 = 22;
/// Greatest number on a plane of the map.
pub(super) const MAX_PLANE: f32 = 65_535.0;

const CELL: i64 = MAX_SIDE as i64;
const ANY: i64 = i32::MAX as i64;
const ID: i64 = u32::MAX as i64;
/// Stands for the greatest number of a word.
const WORD: i64 = i64::MAX;

pub(super) const UNIT_FIELDS: [Field; 19] = [
    ("activity", 0, WORD),
    ("ammo", -1, ANY),
    ("attack_range", 0, ANY),
    ("can_attack", 0, 1),
    ("cell_x", -1, CELL),
    ("cell_y", -1, CELL),
    ("facing", 0, 1023),
    ("hp_percent", 0, 100),
    ("id", 0, ID),
    ("is_building", 0, 1),
    ("is_idle", 0, 1),
    ("level", 0, 127),
    ("owner", 0, WORD),
    ("passengers", 0, 255),
    ("pos_x", -ANY, ANY),
    ("pos_y", -ANY, ANY),
    ("speed", 0, ANY),
    ("stance", -1, 3),
    ("type", 0, WORD),
];

pub(super) const BUILDING_FIELDS: [Field; 17] = [
    ("cell_x", -1, CELL),
    ("cell_y", -1, CELL),
    ("hp_percent", 0, 100),
    ("id", 0, ID),
    ("is_powered", 0, 1),
    ("is_producing", 0, 1),
    ("is_repairing", 0, 1),
    ("owner", 0, WORD),
    ("pos_x", -ANY, ANY),
    ("pos_y", -ANY, ANY),
    ("power", -ANY, ANY),
    ("producing_item", 0, WORD),
    ("production_percent", 0, 100),
    ("rally_x", -1, CELL),
    ("rally_y", -1, CELL),
    ("sell_value", 0, ANY),
    ("type", 0, WORD),
];

pub(super) const JOB_FIELDS: [Field; 6] = [
    ("is_paused", 0, 1),
    ("item", 0, WORD),
    ("percent", 0, 100),
    ("queue", 0, WORD),
    ("remaining_cost", 0, ANY),
    ("remaining_ticks", 0, ANY),
];

pub(super) const AVAILABLE_FIELDS: [Field; 1] = [("item", 0, WORD)];

pub(super) const ECONOMY_FIELDS: [Field; 6] = [
    ("cash", -ANY, ANY),
    ("harvester_count", -ANY, ANY),
    ("ore", -ANY, ANY),
    ("power_drained", -ANY, ANY),
    ("power_provided", -ANY, ANY),
    ("resource_capacity", -ANY, ANY),
];

pub(super) const MILITARY_FIELDS: [Field; 11] = [
    ("active_unit_count", -ANY, ANY),
    ("army_value", -ANY, ANY),
    ("assets_value", -ANY, ANY),
    ("buildings_killed", -ANY, ANY),
    ("buildings_lost", -ANY, ANY),
    ("deaths_cost", -ANY, ANY),
    ("experience", -ANY, ANY),
    ("kills_cost", -ANY, ANY),
    ("order_count", -ANY, ANY),
    ("units_killed", -ANY, ANY),
    ("units_lost", -ANY, ANY),
];

/// Names of the info channels: the interrupt that ended the advance (0 for none, its number from 1, one more than the last
/// of an unknown one), the number of items that no list had room for, and the ticks that passed.
pub(super) const INFOS: [&str; 3] = ["interrupt", "left_out", "ticks_advanced"];

/// Reason for which spaces cannot be made; none of the tables above gives one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadSpace {
    #[error(transparent)]
    Counted(#[from] BadCounted),
    #[error(transparent)]
    Parts(#[from] InexactPart),
}

type Part = (String, ObservationSpace);

/// Returns a field's greatest value.
pub(super) fn most((_, _, high): &Field, sight: &Sight) -> i64 {
    if *high == WORD { sight.words.last() } else { *high }
}

fn boxed(low: f64, high: f64, shape: &[usize], dtype: DType, choices: bool) -> Space {
    let elements = shape.iter().product();
    let (low, high) = (Bounds::all(low, elements), Bounds::all(high, elements));
    Space::Box(BoxSpace { low, high, shape: shape.to_vec(), dtype, choices, parts: None, own: None })
}

fn choice(start: i64, last: i64) -> ObservationSpace {
    Space::Discrete(DiscreteSpace { n: (last - start + 1).unsigned_abs(), start, own: None }).into()
}

fn dict(spaces: Vec<Part>) -> CompositeSpace {
    CompositeSpace::Dict { spaces }
}

fn integers(fields: &[Field], dtype: DType, sight: &Sight) -> CompositeSpace {
    let part = |field: &Field| {
        let space = boxed(field.1 as f64, most(field, sight) as f64, &[], dtype, false);
        (field.0.to_owned(), space.into())
    };
    dict(fields.iter().map(part).collect())
}

fn sequence(item: CompositeSpace, most: usize) -> Result<ObservationSpace, BadSpace> {
    let item = BoxSpace::of_parts(item)?;
    Ok(CompositeSpace::from(SequenceSpace::new(Space::Box(item), most, false)?).into())
}

/// Returns the space of observations.
pub(super) fn observations(sight: &Sight) -> Result<ObservationSpace, BadSpace> {
    let list = |fields: &[Field], most| sequence(integers(fields, DType::I64, sight), most);
    let scalars = |fields: &[Field]| ObservationSpace::from(integers(fields, DType::I32, sight));
    let planes = [sight.height, sight.width, PLANES];
    let spaces = [
        ("available", list(&AVAILABLE_FIELDS, MAX_AVAILABLE)?),
        ("buildings", list(&BUILDING_FIELDS, MAX_BUILDINGS)?),
        ("economy", scalars(&ECONOMY_FIELDS)),
        ("enemies", list(&UNIT_FIELDS, MAX_UNITS)?),
        ("enemy_buildings", list(&BUILDING_FIELDS, MAX_BUILDINGS)?),
        ("explored_percent", boxed(0.0, 100.0, &[], DType::F32, false).into()),
        ("military", scalars(&MILITARY_FIELDS)),
        ("production", list(&JOB_FIELDS, MAX_JOBS)?),
        ("spatial", boxed(0.0, MAX_PLANE.into(), &planes, DType::F32, false).into()),
        ("tick", boxed(0.0, ANY as f64, &[], DType::I32, false).into()),
        ("units", list(&UNIT_FIELDS, MAX_UNITS)?),
    ];
    Ok(dict(spaces.map(|(name, space)| (name.to_owned(), space)).into()).into())
}

/// Returns the space of actions.
pub(super) fn actions(sight: &Sight) -> Result<Space, BadSpace> {
    let order =
        dict(order_fields(sight).map(|(name, low, high)| (name.to_owned(), choice(low, high))).into());
    let spaces = [
        ("check_every", choice(1, MAX_CHECK_EVERY)),
        ("interrupts", boxed(0.0, 1.0, &[Interrupt::ALL.len()], DType::U8, true).into()),
        ("orders", sequence(order, MAX_ORDERS)?),
        ("ticks", choice(1, MAX_TICKS.into())),
    ];
    Ok(Space::Box(BoxSpace::of_parts(dict(spaces.map(|(name, space)| (name.to_owned(), space)).into()))?))
}

/// Returns the fields of an order. A stance is ordered by its number as x.
pub(super) fn order_fields(sight: &Sight) -> [Field; 7] {
    let id = i64::from(sight.max_actor_id);
    [
        ("actor", 0, id),
        ("item", 0, sight.words.last()),
        ("kind", 0, ORDER_KINDS - 1),
        ("queued", 0, 1),
        ("target", 0, id),
        ("x", 0, sight.width.max(4) as i64 - 1),
        ("y", 0, sight.height as i64 - 1),
    ]
}

/// Returns the info channels.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_in_the_order_of_their_names() {
        let tables: [&[Field]; 6] = [
            &UNIT_FIELDS,
            &BUILDING_FIELDS,
            &JOB_FIELDS,
            &AVAILABLE_FIELDS,
            &ECONOMY_FIELDS,
            &MILITARY_FIELDS,
        ];
        assert!(tables.iter().all(|fields| fields.is_sorted_by_key(|(name, ..)| name)));
    }
}
