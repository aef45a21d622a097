//! Actions that are drawn at random, made ones that the masks of an observation allow.

use rollhouse_core::ColumnRef;

use super::action::WIDTH;
use super::kinds::UNIT_KINDS;
use super::map::SIDE;
use super::orders::{MAX_ORDERS, ORDER_KINDS, OrderKind};
use super::spaces::{
    BUILDING_FIELDS, ENEMY_BUILDING_FIELDS, ENEMY_FIELDS, JOB_FIELDS, ORDER_FIELDS, PLANES, UNIT_FIELDS,
};

const ORDER: usize = ORDER_FIELDS.len();

/// Rewrites the orders of drawn actions, a row for each lane, so that the masks of what lanes show allow them: the numbers that were
/// drawn choose among what is allowed. An order may be refused all the same, as where two spend the same money. Columns of another
/// form leave the actions as they are.
pub(crate) fn allow(obs: &[ColumnRef<'_>], actions: &mut [i64]) {
    for (lane, row) in actions.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
        let Some(masks) = Masks::of(obs, lane) else { return };
        let (orders, count) = row[1..].split_at_mut(MAX_ORDERS * ORDER);
        let count = usize::try_from(count[0]).unwrap_or_default();
        orders.as_chunks_mut().0.iter_mut().take(count).for_each(|order| masks.allow(order));
    }
}

/// What the columns of a lane's observation say can be ordered.
struct Masks<'a> {
    buildings: &'a [[i64; BUILDING_FIELDS.len()]],
    enemies: &'a [[i64; ENEMY_FIELDS.len()]],
    enemy_buildings: &'a [[i64; ENEMY_BUILDING_FIELDS.len()]],
    /// The mask of orders: a row for each subject.
    orders: &'a [[u8; ORDER_KINDS]],
    place: &'a [u8],
    produce: &'a [u8],
    jobs: &'a [[i64; JOB_FIELDS.len()]],
    planes: &'a [[f32; PLANES]],
    units: &'a [[i64; UNIT_FIELDS.len()]],
}

impl<'a> Masks<'a> {
    /// Returns what a lane shows; `None` if the columns are not those of the spec.
    fn of(obs: &[ColumnRef<'a>], lane: usize) -> Option<Self> {
        if obs.len() != COLUMNS {
            return None;
        }
        Some(Self {
            buildings: items(obs, BUILDINGS, lane)?,
            enemies: items(obs, ENEMIES, lane)?,
            enemy_buildings: items(obs, ENEMY_BUILDINGS, lane)?,
            orders: bits(obs, ORDERS, lane)?.as_chunks().0,
            place: bits(obs, PLACE, lane)?,
            produce: bits(obs, PRODUCE, lane)?,
            jobs: items(obs, PRODUCTION, lane)?,
            planes: floats(obs, lane)?.as_chunks().0,
            units: items(obs, UNITS, lane)?,
        })
    }

    /// Rewrites an order; where nothing can be ordered it is `no_op`.
    fn allow(&self, order: &mut [i64; ORDER]) {
        let [item, kind, _, subject, target, x, y] = *order;
        *order = [0; ORDER];
        let is_allowed = |kind: &OrderKind| self.orders.iter().any(|row| row[*kind as usize] != 0);
        let kinds = OrderKind::ALL.into_iter().filter(|kind| *kind != OrderKind::NoOp && is_allowed(kind));
        let Some(kind) = pick(kinds, kind) else { return };
        let subjects = self.orders.iter().enumerate().filter(|(_, row)| row[kind as usize] != 0);
        let subject = pick(subjects.map(|(subject, _)| subject as i64), subject).unwrap_or_default();
        let cell = y * SIDE as i64 + x;
        let (item, target, cell) = match kind {
            OrderKind::Build | OrderKind::Train => (self.item(kind, item), Some(0), Some(0)),
            OrderKind::CancelProduction => (pick(self.jobs.iter().map(|job| job[2]), item), Some(0), Some(0)),
            OrderKind::PlaceBuilding => (Some(0), Some(0), self.site(cell)),
            OrderKind::Attack => (Some(0), self.enemy(target), Some(0)),
            OrderKind::Guard => (Some(0), self.ward(subject, target), Some(0)),
            OrderKind::SetStance => (Some(0), Some(0), Some(x % 4)),
            _ => (Some(0), Some(0), self.ground(cell)),
        };
        if let (Some(item), Some(target), Some(cell)) = (item, target, cell) {
            *order = [item, kind as i64, 0, subject, target, cell % SIDE as i64, cell / SIDE as i64];
        }
    }

    /// Returns an item that can be built, or trained.
    fn item(&self, kind: OrderKind, drawn: i64) -> Option<i64> {
        let allowed = self.produce.iter().enumerate().filter(|(_, bit)| **bit != 0);
        let items = allowed.map(|(number, _)| number as i64);
        pick(items.filter(|&number| (number > UNIT_KINDS as i64) == (kind == OrderKind::Build)), drawn)
    }

    fn site(&self, drawn: i64) -> Option<i64> {
        let sites = self.place.iter().enumerate().filter(|(_, bit)| **bit != 0);
        pick(sites.map(|(cell, _)| cell as i64), drawn)
    }

    /// Returns a cell on which units can stand.
    fn ground(&self, drawn: i64) -> Option<i64> {
        let cells = self.planes.iter().enumerate().filter(|(_, planes)| planes[PASSABLE] != 0.0);
        pick(cells.map(|(cell, _)| cell as i64), drawn)
    }

    /// Returns the id of an enemy that is seen or known.
    fn enemy(&self, drawn: i64) -> Option<i64> {
        let units = self.enemies.iter().map(|unit| unit[6]);
        pick(units.chain(self.enemy_buildings.iter().map(|building| building[3])), drawn)
    }

    /// Returns the id of what a unit can guard.
    fn ward(&self, subject: i64, drawn: i64) -> Option<i64> {
        let units = self.units.iter().map(|unit| unit[9]).filter(|&id| id != subject);
        pick(units.chain(self.buildings.iter().map(|building| building[3])), drawn)
    }
}

/// Returns the one among several that a drawn number chooses; `None` of none.
fn pick<T>(among: impl Iterator<Item = T> + Clone, drawn: i64) -> Option<T> {
    let count = among.clone().count();
    let place = drawn.unsigned_abs() as usize % count.max(1);
    among.into_iter().nth(place)
}

/// Returns the items of a lane's sequence, whose number stands in the next column.
fn items<'a, const N: usize>(obs: &[ColumnRef<'a>], column: usize, lane: usize) -> Option<&'a [[i64; N]]> {
    let counts = obs.get(column + 1)?.as_i64()?;
    let rows = obs[column].as_i64()?.as_chunks().0;
    let most = rows.len() / counts.len().max(1);
    let count = usize::try_from(*counts.get(lane)?).ok()?.min(most);
    rows.get(lane * most..lane * most + count)
}

fn bits<'a>(obs: &[ColumnRef<'a>], column: usize, lane: usize) -> Option<&'a [u8]> {
    row_of(obs[column].as_u8()?, obs, lane)
}

fn floats<'a>(obs: &[ColumnRef<'a>], lane: usize) -> Option<&'a [f32]> {
    row_of(obs[SPATIAL].as_f32()?, obs, lane)
}

/// Returns a lane's row of a column.
fn row_of<'a, T>(column: &'a [T], obs: &[ColumnRef<'_>], lane: usize) -> Option<&'a [T]> {
    let width = column.len() / obs[TICK].len().max(1);
    column.get(lane * width..(lane + 1) * width)
}

// Places of columns in the observation; a test looks at their paths.
pub(super) const BUILDINGS: usize = 0;
pub(super) const ENEMIES: usize = 8;
pub(super) const ENEMY_BUILDINGS: usize = 10;
pub(super) const ORDERS: usize = 17;
pub(super) const PLACE: usize = 18;
pub(super) const PRODUCE: usize = 19;
pub(super) const PRODUCTION: usize = 31;
pub(super) const SPATIAL: usize = 33;
pub(super) const TICK: usize = 34;
pub(super) const UNITS: usize = 35;
pub(super) const COLUMNS: usize = 37;
/// Place of the plane that says where units can stand.
const PASSABLE: usize = 3;
