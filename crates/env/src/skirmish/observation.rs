//! What a side is shown of a game: its own, and of the enemy what it sees or has seen of buildings.

use std::sync::OnceLock;

use rollhouse_core::ColumnMut;

use super::actor::{Actor, Target};
use super::building::Building;
use super::events::{Event, Events};
use super::figures::Figure;
use super::game::Game;
use super::kinds::{ITEM_NUMBERS, Item, Line};
use super::map::{CELLS, Cell, MAP_COUNT, Map, SIDE};
use super::orders::{ORDER_KINDS, OrderKind, SUBJECTS};
use super::production::Job;
use super::spaces::{PLANES, SHOWN_JOBS};
use super::unit::Unit;

/// Writes the observation of side 0 into the columns of the spec, in their order. `events` happened since the last one.
///
/// # Panics
/// If the columns are not those of the spec.
pub(super) fn observe(game: &Game, events: Events, obs: &mut [ColumnMut<'_>]) {
    let mut columns = Columns { columns: obs.iter_mut() };
    let own = &game.sides[0];
    columns.items(own.buildings().map(|(slot, building)| of_building(game, slot, building)));
    for figure in ECONOMY {
        columns.integer(figure.of(game, 0));
    }
    let visible = game.sides[1].units().filter(|(_, unit)| own.fog.sees(unit.cell));
    columns.items(visible.map(|(slot, unit)| of_enemy(slot, unit)));
    let known = (0..).zip(&own.sightings).filter_map(|(slot, it)| Some((slot, it.as_ref()?)));
    columns.items(known.map(|(slot, it)| {
        let seen = game.sees_building(0, it.kind, it.cell);
        let id = Actor::Building(slot).id(true);
        let kind = Item::Building(it.kind).number();
        [it.cell.x.into(), it.cell.y.into(), it.hp_percent.into(), id.into(), seen.into(), kind.into()]
    }));
    columns.bits(Event::ALL.into_iter().map(|event| events.has(event)));
    columns.integer(own.fog.explored_percent(game.map).into());
    for number in [game.map.height.into(), game.map.number as i64, game.map.width.into()] {
        columns.integer(number);
    }
    mask_orders(game, columns.next_bits());
    mask_places(game, columns.next_bits());
    let items = (0..ITEM_NUMBERS as u8).map(Item::of_number);
    columns.bits(items.map(|item| item.is_some_and(|item| game.producible(0, item).is_ok())));
    for figure in MILITARY {
        columns.integer(figure.map_or_else(|| experience(game), |figure| figure.of(game, 0)));
    }
    columns.items(Line::ALL.into_iter().flat_map(|line| of_line(game, line)).take(SHOWN_JOBS));
    paint(game, columns.next_floats());
    columns.integer(game.tick.into());
    columns.items(own.units().map(|(slot, unit)| of_unit(game, slot, unit)));
}

const ECONOMY: [Figure; 6] = [
    Figure::Cash,
    Figure::HarvesterCount,
    Figure::Ore,
    Figure::PowerDrained,
    Figure::PowerProvided,
    Figure::ResourceCapacity,
];

/// The military figures; `None` is the experience.
const MILITARY: [Option<Figure>; 11] = [
    Some(Figure::ActiveUnitCount),
    Some(Figure::ArmyValue),
    Some(Figure::AssetsValue),
    Some(Figure::BuildingsKilled),
    Some(Figure::BuildingsLost),
    Some(Figure::DeathsCost),
    None,
    Some(Figure::KillsCost),
    Some(Figure::OrderCount),
    Some(Figure::UnitsKilled),
    Some(Figure::UnitsLost),
];

/// Returns the kills of all units that live.
pub(super) fn experience(game: &Game) -> i64 {
    game.sides[0].units().map(|(_, unit)| i64::from(unit.kills)).sum()
}

/// The columns that are still to be written.
struct Columns<'a, 'b> {
    columns: std::slice::IterMut<'a, ColumnMut<'b>>,
}

impl<'a> Columns<'a, '_> {
    fn integer(&mut self, value: i64) {
        let column = self.columns.next().and_then(ColumnMut::as_i32_mut);
        column.expect("the column has the spec's type")[0] = value as i32;
    }

    fn next_bits(&mut self) -> &'a mut [u8] {
        self.columns.next().and_then(ColumnMut::as_u8_mut).expect("the column has the spec's type")
    }

    fn next_floats(&mut self) -> &'a mut [f32] {
        self.columns.next().and_then(ColumnMut::as_f32_mut).expect("the column has the spec's type")
    }

    fn bits(&mut self, bits: impl Iterator<Item = bool>) {
        self.next_bits().iter_mut().zip(bits).for_each(|(column, bit)| *column = bit.into());
    }

    /// Writes the items of a sequence, zeros behind them, and their number.
    fn items<const N: usize>(&mut self, items: impl Iterator<Item = [i64; N]>) {
        let mut next = || self.columns.next().and_then(ColumnMut::as_i64_mut);
        let (rows, count) = next().zip(next()).expect("a sequence has two columns of the spec's type");
        let (rows, mut written) = (rows.as_chunks_mut::<N>().0, 0);
        for (row, item) in rows.iter_mut().zip(items) {
            *row = item;
            written += 1;
        }
        rows[written..].as_flattened_mut().fill(0);
        count[0] = written as i64;
    }
}

/// Returns the number of a unit's kind, from 1.
pub(super) fn kind_of(unit: &Unit) -> i64 {
    Item::Unit(unit.kind).number().into()
}

pub(super) fn of_unit(game: &Game, slot: u8, unit: &Unit) -> [i64; 19] {
    let (x, y) = unit.place();
    let aim = unit.aim.filter(|aim| is_seen(game, *aim, unit.cell));
    [
        unit.task.number().into(),
        unit.weapon().map_or(0, |weapon| weapon.range.into()),
        unit.weapon().is_some().into(),
        unit.cargo.into(),
        unit.cell.x.into(),
        unit.cell.y.into(),
        unit.cooldown.into(),
        unit.motion.facing.into(),
        unit.hp_percent(),
        Actor::Unit(slot).id(false).into(),
        unit.is_idle().into(),
        unit.level().into(),
        x,
        y,
        unit.queued.len() as i64,
        unit.rules().speed.into(),
        (unit.stance as u8).into(),
        aim.map_or(0, |aim| aim.actor.id(aim.side != 0).into()),
        kind_of(unit),
    ]
}

/// Returns whether side 0 sees what is aimed at.
fn is_seen(game: &Game, aim: Target, from: Cell) -> bool {
    game.place_of(aim, from).is_some_and(|place| game.sides[0].fog.sees(place))
}

fn of_enemy(slot: u8, unit: &Unit) -> [i64; 12] {
    let (x, y) = unit.place();
    [
        unit.weapon().map_or(0, |weapon| weapon.range.into()),
        unit.weapon().is_some().into(),
        unit.cell.x.into(),
        unit.cell.y.into(),
        unit.motion.facing.into(),
        unit.hp_percent(),
        Actor::Unit(slot).id(true).into(),
        unit.level().into(),
        x,
        y,
        unit.rules().speed.into(),
        kind_of(unit),
    ]
}

pub(super) fn of_building(game: &Game, slot: u8, building: &Building) -> [i64; 15] {
    let own = &game.sides[0];
    let line = Line::ALL.into_iter().find(|line| line.producer() == building.kind);
    let is_primary = line.is_some_and(|line| own.producer(line) == Some(slot));
    let job = line.filter(|_| is_primary).and_then(|line| own.production.line(line).first());
    let (rally_x, rally_y) = building.rally.map_or((-1, -1), |cell| (cell.x.into(), cell.y.into()));
    [
        building.cell.x.into(),
        building.cell.y.into(),
        building.hp_percent(),
        Actor::Building(slot).id(false).into(),
        (!building.is_off && !own.power.is_low()).into(),
        is_primary.into(),
        job.is_some_and(|job| !job.is_ready()).into(),
        building.is_repaired.into(),
        building.rules().power.into(),
        job.map_or(0, |job| job.item.number().into()),
        job.map_or(0, Job::percent),
        rally_x,
        rally_y,
        building.sell_value().into(),
        Item::Building(building.kind).number().into(),
    ]
}

pub(super) fn of_line(game: &Game, line: Line) -> impl Iterator<Item = [i64; 6]> {
    let own = &game.sides[0];
    let is_paused = own.producer(line).is_none();
    let low = own.power.is_low();
    own.production.line(line).iter().map(move |job| {
        [
            is_paused.into(),
            job.is_ready().into(),
            job.item.number().into(),
            (line as u8).into(),
            job.percent(),
            i64::from(if low { job.left } else { job.left.div_ceil(2) }),
        ]
    })
}

/// Writes which kinds of orders each subject could carry out.
fn mask_orders(game: &Game, mask: &mut [u8]) {
    let kinds = |subject| OrderKind::ALL.map(|kind| u8::from(game.may(0, kind, subject)));
    // All units that are armed can do the same, and all others.
    let mut of_units: [Option<[u8; ORDER_KINDS]>; 2] = [None; 2];
    for (subject, row) in (0..SUBJECTS as u8).zip(mask.as_chunks_mut().0) {
        *row = match Actor::of_id(subject) {
            Some((false, Actor::Unit(slot))) => game.sides[0].unit(slot).map_or([0; ORDER_KINDS], |unit| {
                let place = usize::from(unit.weapon().is_some());
                *of_units[place].get_or_insert_with(|| kinds(subject))
            }),
            Some((false, actor)) if game.sides[0].target(0, actor).is_none() => [0; ORDER_KINDS],
            _ => kinds(subject),
        };
    }
}

/// Writes where the building could be placed that is ready.
fn mask_places(game: &Game, mask: &mut [u8]) {
    mask.fill(0);
    if let Some(Item::Building(kind)) = game.sides[0].production.ready().map(|job| job.item) {
        for cell in game.map.cells().filter(|&cell| game.fits(0, kind, cell)) {
            mask[cell.index()] = 1;
        }
    }
}

/// Paints the planes: terrain, height, ore, passable, fog, own building, own units, enemy building, enemy units. Of ground that
/// has not been seen terrain, height and passable are shown, which the map says, and of ore what [`known_ore`] says.
fn paint(game: &Game, planes: &mut [f32]) {
    let (planes, _) = planes.as_chunks_mut::<PLANES>();
    let (fog, ground) = (&game.sides[0].fog, ground_of(game.map));
    let (width, height) = (usize::from(game.map.width), usize::from(game.map.height));
    for (y, row) in planes.chunks_exact_mut(SIDE).enumerate() {
        let (shown, outside) = row.split_at_mut(if y < height { width } else { 0 });
        outside.fill([0.0; PLANES]);
        let first = y * SIDE;
        shown.copy_from_slice(&ground[first..first + shown.len()]);
        for (x, plane) in (0..).zip(shown) {
            let cell = Cell::new(x, y as u8);
            plane[2] = known_ore(game, cell).into();
            plane[4] = SHADES[usize::from(fog.has_seen(cell))][usize::from(fog.sees(cell))];
        }
    }
    debug_assert_eq!(planes.len(), CELLS);
    let own = &game.sides[0];
    for (_, building) in own.buildings() {
        for cell in super::building::footprint(building.kind, building.cell) {
            planes[cell.index()][5] = Item::Building(building.kind).number().into();
        }
    }
    own.units().for_each(|(_, unit)| planes[unit.cell.index()][6] += 1.0);
    for sighting in own.sightings.iter().flatten() {
        for cell in super::building::footprint(sighting.kind, sighting.cell) {
            planes[cell.index()][7] = Item::Building(sighting.kind).number().into();
        }
    }
    let seen = game.sides[1].units().filter(|(_, unit)| own.fog.sees(unit.cell));
    seen.for_each(|(_, unit)| planes[unit.cell.index()][8] += 1.0);
}

/// What the plane of fog shows of a cell, by whether it has been seen and is.
const SHADES: [[f32; 2]; 2] = [[0.0, 1.0], [0.5, 1.0]];

/// Returns the planes of each cell of a map with what never changes: terrain, height and passable. They are made once and shared
/// by all lanes.
fn ground_of(map: &Map) -> &'static [[f32; PLANES]] {
    static GROUNDS: [OnceLock<Vec<[f32; PLANES]>>; MAP_COUNT] = [const { OnceLock::new() }; MAP_COUNT];
    let plane = |index: usize| {
        let terrain = map.terrain[index];
        let mut plane = [0.0; PLANES];
        plane[0] = terrain as u8 as f32;
        plane[1] = map.heights[index].into();
        plane[3] = f32::from(u8::from(terrain.is_passable()));
        plane
    };
    GROUNDS[map.number].get_or_init(|| (0..CELLS).map(plane).collect())
}

/// Returns the loads of ore that side 0 takes to be in a cell: those that it sees, and of a cell that it has seen and does not see
/// any more those with which the game began.
pub(crate) fn known_ore(game: &Game, cell: Cell) -> u8 {
    let fog = &game.sides[0].fog;
    match (fog.sees(cell), fog.has_seen(cell)) {
        (true, _) => game.ore[cell.index()],
        (false, true) => game.map.ore[cell.index()],
        (false, false) => 0,
    }
}
