//! The exact state of a world as doubles: everything on which later states depend, in packed fields.
//!
//! What follows from the rest is computed as a state is set: which cells are taken, what a side sees, its power, and ways.

use arrayvec::ArrayVec;
use rollhouse_core::GameResult;

use super::actor::{Actor, MAX_BUILDINGS, MAX_UNITS, Target};
use super::advance::{Advance, Comparison, Condition, MAX_CHECK_EVERY, MAX_CONDITIONS, MAX_TICKS, MAX_VALUE};
use super::building::{Building, Sighting, footprint};
use super::events::{EVENT_COUNT, Event, Events};
use super::figures::{FIGURES, Figure};
use super::game::{Game, mark};
use super::groups::{MAX_GROUP_NAME_BYTES, MAX_GROUPS};
use super::kinds::{BUILDING_KINDS, BuildingKind, ITEM_NUMBERS, Item, Line, UNIT_KINDS, UnitKind};
use super::map::{CELLS, Cell, MAP_COUNT, RICH};
use super::packing::Fields;
use super::production::{Job, MAX_JOBS};
use super::side::{MAX_CASH, Side, Stats};
use super::spaces::MAX_TIME;
use super::unit::{MAX_CARGO, MAX_QUEUED, Stance, Task, Unit};
use super::world::World;
use crate::StateError;

/// Doubles of a state: as many as one with every unit, building and group takes.
pub(super) const STATE_NUMBERS: usize = 2560;
/// Greatest serial number, and greatest figure of what a side has done, that a state may have.
const MOST: u64 = 1 << 30;
/// Most ticks until something can shoot, and for which a unit remembers a hit.
const MOST_TICKS: u64 = 1000;

type Done = Result<(), StateError>;

impl World {
    /// Returns the exact state.
    pub(super) fn packed(&self) -> Result<Vec<f64>, StateError> {
        let mut fields = Fields::write();
        self.of_state().pass(&mut fields)?;
        fields.written(STATE_NUMBERS)
    }

    /// Puts the world into a state that [`World::packed`] gave, of the same options.
    pub(super) fn unpack(&mut self, state: &[f64]) -> Done {
        if state.len() != STATE_NUMBERS {
            return Err(StateError::Length { given: state.len(), wanted: STATE_NUMBERS });
        }
        let mut world = Self::new(*self.terms());
        world.game = Game::bare(self.terms().setup);
        let mut fields = Fields::read(state);
        world.pass(&mut fields)?;
        fields.end()?;
        *self = world;
        Ok(())
    }

    fn pass(&mut self, fields: &mut Fields<'_>) -> Done {
        self.game.pass(fields)?;
        fields.flag(&mut self.script.is_attacking)?;
        self.pass_groups(fields)?;
        fields.option(&mut self.asked, Advance::default, advance)?;
        fields.flag(&mut self.is_given_up)?;
        events(fields, &mut self.events)
    }

    fn pass_groups(&mut self, fields: &mut Fields<'_>) -> Done {
        let groups = &mut self.groups.groups;
        let mut count = groups.len();
        fields.integer(&mut count, MAX_GROUPS as u64)?;
        groups.resize_with(count, Default::default);
        for place in 0..count {
            let (name, members) = &mut groups[place];
            let mut bytes = std::mem::take(name).into_bytes();
            let (mut length, mut units) = (bytes.len(), members.len());
            fields.integer(&mut length, MAX_GROUP_NAME_BYTES as u64)?;
            bytes.resize(length, 0);
            bytes.iter_mut().try_for_each(|byte| fields.integer(byte, u8::MAX.into()))?;
            fields.integer(&mut units, MAX_UNITS as u64)?;
            members.resize(units, 0);
            members.iter_mut().try_for_each(|unit| fields.integer(unit, MOST))?;
            match String::from_utf8(bytes) {
                Ok(read) if !read.is_empty() => *name = read,
                _ => return fields.refuse(),
            }
            if place > 0 && groups[place - 1].0 >= groups[place].0 {
                return fields.refuse();
            }
        }
        Ok(())
    }
}

impl Game {
    fn pass(&mut self, fields: &mut Fields<'_>) -> Done {
        let mut map = self.map.number;
        fields.integer(&mut map, MAP_COUNT as u64 - 1)?;
        if map != self.map.number {
            return fields.refuse();
        }
        fields.integer(&mut self.tick, MAX_TIME as u64)?;
        fields.word(&mut self.random)?;
        fields.integer(&mut self.serial, MOST)?;
        let mut result = self.result.map_or(0, GameResult::code);
        fields.integer(&mut result, GameResult::Draw.code().into())?;
        self.result = Some(GameResult::of_code(result)).filter(|result| *result != GameResult::None);
        for cell in self.map.cells() {
            fields.integer(&mut self.ore[cell.index()], RICH.into())?;
        }
        for side in 0..self.sides.len() {
            self.sides[side].pass(fields)?;
            if fields.is_reading() && !self.settle(side) {
                return fields.refuse();
            }
            for cell in self.map.cells() {
                let fog = &mut self.sides[side].fog;
                let mut has_seen = fog.has_seen(cell);
                fields.flag(&mut has_seen)?;
                if has_seen {
                    fog.explore(cell);
                }
            }
        }
        Ok(())
    }

    /// Computes what follows of a side's units and buildings. Returns false if they cannot stand where they do.
    fn settle(&mut self, side: usize) -> bool {
        let (units, buildings) = (self.sides[side].units.clone(), self.sides[side].buildings.clone());
        for (slot, building) in buildings.iter().enumerate() {
            let Some(building) = building else { continue };
            if !self.takes(side, slot, building) {
                return false;
            }
            self.sides[side].fog.add(self.map, building.middle(), building.rules().sight);
        }
        for (slot, unit) in units.iter().enumerate() {
            let Some(unit) = unit else { continue };
            if !self.map.has(unit.cell) || !self.is_free(unit.cell) {
                return false;
            }
            self.occupied[unit.cell.index()] = mark(side, slot, MAX_UNITS);
            self.sides[side].fog.add(self.map, unit.cell, unit.rules().sight);
        }
        let ore = self.sides[side].ore;
        self.sides[side].count_buildings();
        ore == self.sides[side].ore
    }

    /// Marks the cells of a building; returns false if they are not all free.
    fn takes(&mut self, side: usize, slot: usize, building: &Building) -> bool {
        let far = i32::from(building.rules().size) - 1;
        if !building.cell.shifted(far, far).is_some_and(|last| self.map.has(last)) {
            return false;
        }
        footprint(building.kind, building.cell).all(|cell| {
            let is_free = self.is_free(cell);
            self.walls[cell.index()] = mark(side, slot, MAX_BUILDINGS);
            is_free
        })
    }
}

impl Side {
    fn pass(&mut self, fields: &mut Fields<'_>) -> Done {
        fields.integer(&mut self.cash, MAX_CASH as u64)?;
        fields.integer(&mut self.ore, MAX_CASH as u64)?;
        let empty = || Unit::new(UnitKind::Rifle, 0, Cell::default());
        for slot in &mut self.units {
            fields.option(slot, empty, unit)?;
        }
        let empty = || Building::new(BuildingKind::Yard, 0, Cell::default());
        for slot in &mut self.buildings {
            fields.option(slot, empty, building)?;
        }
        let empty = || Sighting { kind: BuildingKind::Yard, serial: 0, cell: Cell::default(), hp_percent: 0 };
        for slot in &mut self.sightings {
            fields.option(slot, empty, sighting)?;
        }
        for line in Line::ALL {
            jobs(fields, line, self.production.line_mut(line))?;
        }
        for primary in &mut self.production.primary {
            fields.option(primary, || 0, |fields, slot| fields.integer(slot, MAX_BUILDINGS as u64 - 1))?;
        }
        let Stats { units_killed, units_lost, buildings_killed, buildings_lost, .. } = &mut self.stats;
        let counts = [units_killed, units_lost, buildings_killed, buildings_lost];
        counts.into_iter().try_for_each(|count| fields.integer(count, MOST))?;
        let Stats { kills_cost, deaths_cost, income, orders, .. } = &mut self.stats;
        [kills_cost, deaths_cost, income, orders]
            .into_iter()
            .try_for_each(|sum| fields.integer(sum, MOST))?;
        events(fields, &mut self.events)?;
        fields.word(&mut self.spotted)?;
        fields.integer(&mut self.tenths, 10)?;
        fields.flag(&mut self.has_surrendered)
    }
}

fn unit(fields: &mut Fields<'_>, unit: &mut Unit) -> Done {
    choice(fields, &mut unit.kind, &UnitKind::ALL, UNIT_KINDS)?;
    let hp = unit.rules().hp as u64;
    fields.integer(&mut unit.serial, MOST)?;
    fields.integer(&mut unit.hp, hp)?;
    if unit.hp == 0 {
        return fields.refuse();
    }
    fields.integer(&mut unit.marked_hp, hp)?;
    cell(fields, &mut unit.cell)?;
    fields.option(&mut unit.motion.from, Cell::default, cell)?;
    fields.integer(&mut unit.motion.progress, 1023)?;
    fields.integer(&mut unit.motion.facing, 7)?;
    fields.integer(&mut unit.motion.stuck, u8::MAX.into())?;
    fields.integer(&mut unit.cooldown, MOST_TICKS)?;
    fields.integer(&mut unit.hurt, MOST_TICKS)?;
    fields.integer(&mut unit.cargo, MAX_CARGO.into())?;
    choice(fields, &mut unit.stance, &Stance::ALL, Stance::ALL.len())?;
    fields.integer(&mut unit.kills, u16::MAX.into())?;
    task(fields, &mut unit.task)?;
    let mut queued = unit.queued.len();
    fields.integer(&mut queued, MAX_QUEUED as u64)?;
    let tasks = std::mem::take(&mut unit.queued).into_iter().chain(std::iter::repeat(Task::Idle));
    for mut next in tasks.take(queued) {
        task(fields, &mut next)?;
        unit.queued.push(next);
    }
    fields.option(&mut unit.aim, no_target, target)?;
    fields.flag(&mut unit.is_ordered)
}

fn building(fields: &mut Fields<'_>, building: &mut Building) -> Done {
    choice(fields, &mut building.kind, &BuildingKind::ALL, BUILDING_KINDS)?;
    let hp = building.rules().hp as u64;
    fields.integer(&mut building.serial, MOST)?;
    fields.integer(&mut building.hp, hp)?;
    if building.hp == 0 {
        return fields.refuse();
    }
    fields.integer(&mut building.marked_hp, hp)?;
    cell(fields, &mut building.cell)?;
    fields.option(&mut building.rally, Cell::default, cell)?;
    fields.integer(&mut building.cooldown, MOST_TICKS)?;
    fields.flag(&mut building.is_repaired)?;
    fields.flag(&mut building.is_off)
}

fn sighting(fields: &mut Fields<'_>, sighting: &mut Sighting) -> Done {
    choice(fields, &mut sighting.kind, &BuildingKind::ALL, BUILDING_KINDS)?;
    fields.integer(&mut sighting.serial, MOST)?;
    cell(fields, &mut sighting.cell)?;
    fields.integer(&mut sighting.hp_percent, 100)
}

fn jobs(fields: &mut Fields<'_>, line: Line, jobs: &mut ArrayVec<Job, MAX_JOBS>) -> Done {
    let mut count = jobs.len();
    fields.integer(&mut count, MAX_JOBS as u64)?;
    let first = Job::new(Item::Building(BuildingKind::PowerPlant), None);
    for mut job in std::mem::take(jobs).into_iter().chain(std::iter::repeat(first)).take(count) {
        let mut number = job.item.number();
        fields.integer(&mut number, ITEM_NUMBERS as u64 - 1)?;
        match Item::of_number(number) {
            Some(item) if item.line() == line => job.item = item,
            _ => return fields.refuse(),
        }
        fields.integer(&mut job.left, u64::from(job.item.ticks()) * 2)?;
        fields.option(&mut job.place, Cell::default, cell)?;
        jobs.push(job);
    }
    Ok(())
}

fn task(fields: &mut Fields<'_>, task: &mut Task) -> Done {
    let mut number = task.number();
    fields.integer(&mut number, Task::NAMES.len() as u64 - 1)?;
    let (mut to, mut back, mut at) = match *task {
        Task::Idle => (Cell::default(), Cell::default(), no_target()),
        Task::Move { to } | Task::AttackMove { to } | Task::Harvest { near: to } => {
            (to, Cell::default(), no_target())
        }
        Task::Patrol { to, back } => (to, back, no_target()),
        Task::Attack { target } | Task::Guard { target } => (Cell::default(), Cell::default(), target),
    };
    match number {
        0 => {}
        3 | 4 => target(fields, &mut at)?,
        5 => {
            cell(fields, &mut to)?;
            cell(fields, &mut back)?;
        }
        _ => cell(fields, &mut to)?,
    }
    *task = match number {
        0 => Task::Idle,
        1 => Task::Move { to },
        2 => Task::AttackMove { to },
        3 => Task::Attack { target: at },
        4 => Task::Guard { target: at },
        5 => Task::Patrol { to, back },
        _ => Task::Harvest { near: to },
    };
    Ok(())
}

const fn no_target() -> Target {
    Target { side: 0, actor: Actor::Unit(0), serial: 0 }
}

fn target(fields: &mut Fields<'_>, target: &mut Target) -> Done {
    let mut id = target.actor.id(false);
    fields.integer(&mut target.side, 1)?;
    fields.integer(&mut id, (MAX_UNITS + MAX_BUILDINGS) as u64)?;
    let Some((false, actor)) = Actor::of_id(id) else { return fields.refuse() };
    target.actor = actor;
    fields.integer(&mut target.serial, MOST)
}

fn cell(fields: &mut Fields<'_>, cell: &mut Cell) -> Done {
    let mut index = cell.index();
    fields.integer(&mut index, CELLS as u64 - 1)?;
    *cell = Cell::of_index(index);
    Ok(())
}

fn events(fields: &mut Fields<'_>, events: &mut Events) -> Done {
    let happened = Event::ALL.into_iter().filter(|&event| events.has(event));
    let mut bits = happened.fold(0_u32, |bits, event| bits | 1 << event as u32);
    fields.integer(&mut bits, (1 << EVENT_COUNT) - 1)?;
    *events = Events::NONE;
    Event::ALL.into_iter().filter(|&event| bits >> event as u32 & 1 == 1).for_each(|it| events.insert(it));
    Ok(())
}

fn advance(fields: &mut Fields<'_>, advance: &mut Advance) -> Done {
    fields.integer(&mut advance.ticks, MAX_TICKS.into())?;
    fields.integer(&mut advance.check_every, MAX_CHECK_EVERY.into())?;
    if advance.ticks == 0 || advance.check_every == 0 {
        return fields.refuse();
    }
    let until = &mut advance.until;
    events(fields, &mut until.interrupts)?;
    fields.flag(&mut until.needs_all)?;
    let mut count = until.conditions.len();
    fields.integer(&mut count, MAX_CONDITIONS as u64)?;
    let first = Condition { figure: Figure::Tick, comparison: Comparison::AtLeast, value: 0 };
    for mut it in
        std::mem::take(&mut until.conditions).into_iter().chain(std::iter::repeat(first)).take(count)
    {
        choice(fields, &mut it.figure, &Figure::ALL, FIGURES)?;
        choice(fields, &mut it.comparison, &Comparison::ALL, Comparison::ALL.len())?;
        fields.integer(&mut it.value, MAX_VALUE as u64)?;
        until.conditions.push(it);
    }
    Ok(())
}

/// Takes one of some values by its place among them.
fn choice<T: Copy + PartialEq>(fields: &mut Fields<'_>, value: &mut T, all: &[T], count: usize) -> Done {
    let mut place = all.iter().position(|known| known == value).unwrap_or_default();
    fields.integer(&mut place, count as u64 - 1)?;
    *value = all.get(place).copied().unwrap_or(*value);
    Ok(())
}
