//! What units do in a tick: they move, fight, guard and harvest.

use super::actor::{Actor, Target};
use super::events::Event;
use super::game::{Game, mark};
use super::kinds::BuildingKind;
use super::map::{Cell, Terrain, WAYS};
use super::paths::NO_WAY;
use super::side::Side;
use super::unit::{MAX_CARGO, Task, Unit};

impl Game {
    /// Has a unit act, if there is one in that place. It is taken out of its side meanwhile.
    pub(super) fn act(&mut self, side: usize, slot: usize) {
        let Some(mut unit) = self.sides[side].units[slot].take() else { return };
        unit.cooldown = unit.cooldown.saturating_sub(1);
        unit.hurt = unit.hurt.saturating_sub(1);
        if unit.motion.from.is_some() {
            let terrain = self.map.terrain[unit.cell.index()];
            glide(&mut unit, terrain);
        }
        if unit.weapon().is_some() {
            self.fight(side, slot, &mut unit);
        }
        if unit.motion.from.is_none() && self.do_task(side, slot, &mut unit) && unit.be_done() {
            self.sides[side].events.insert(Event::UnitArrived);
        }
        self.sides[side].units[slot] = Some(unit);
    }

    /// Does a bit of the unit's task; returns whether that is done.
    fn do_task(&mut self, side: usize, slot: usize, unit: &mut Unit) -> bool {
        match unit.task {
            Task::Idle => {
                self.close_in(side, slot, unit);
                false
            }
            Task::Move { to } => self.step_towards(side, slot, unit, to, 0),
            Task::AttackMove { to } => {
                !self.close_in(side, slot, unit) && self.step_towards(side, slot, unit, to, 0)
            }
            Task::Patrol { to, back } => {
                if !self.close_in(side, slot, unit) && self.step_towards(side, slot, unit, to, 0) {
                    unit.task = Task::Patrol { to: back, back: to };
                    unit.motion.stuck = 0;
                }
                false
            }
            Task::Attack { target } => self.attack(side, slot, unit, target),
            Task::Guard { target } => {
                let Some(place) = self.place_of(target, unit.cell) else { return true };
                if !self.close_in(side, slot, unit) {
                    self.step_towards(side, slot, unit, place, GUARD_STEPS);
                }
                false
            }
            Task::Harvest { near } => {
                self.harvest(side, slot, unit, near);
                false
            }
        }
    }

    /// Has a unit go where it can shoot at what it aims at; returns false if there is nothing that it goes after.
    fn close_in(&mut self, side: usize, slot: usize, unit: &mut Unit) -> bool {
        let Some(aim) = unit.aim.filter(|_| unit.goes_after_enemies()) else { return false };
        let Some(place) = self.place_of(aim, unit.cell) else { return false };
        if !unit.reaches(place) {
            self.step_towards(side, slot, unit, place, 0);
        }
        true
    }

    /// Attacks a target as long as it is there, or may be for all that the side knows.
    fn attack(&mut self, side: usize, slot: usize, unit: &mut Unit, target: Target) -> bool {
        let own = &self.sides[side];
        let place = match target.actor {
            Actor::Unit(_) => self.place_of(target, unit.cell).filter(|&place| own.fog.sees(place)),
            Actor::Building(building) => {
                let known = own.sightings[usize::from(building)].filter(|it| it.serial == target.serial);
                self.place_of(target, unit.cell).or_else(|| known.map(|it| it.cell))
            }
        };
        let Some(place) = place else { return true };
        if !unit.reaches(place) || !self.sides[side].fog.sees(place) {
            self.step_towards(side, slot, unit, place, 0);
        }
        false
    }

    /// Sets out for the next cell on the way to a goal. Returns whether the unit is within `near` steps of it, or as near as
    /// it will come.
    fn step_towards(&mut self, side: usize, slot: usize, unit: &mut Unit, goal: Cell, near: u8) -> bool {
        if unit.cell.steps_to(goal) <= near {
            return true;
        }
        let Self { map, walls, occupied, paths, .. } = self;
        let steps = paths.to(map, walls, goal);
        let here = steps[unit.cell.index()];
        // A building is reached beside it.
        let beside = u16::from(walls[goal.index()] != 0);
        if here == NO_WAY || here <= beside {
            return true;
        }
        // A unit that waits for long goes around.
        let most = here - u16::from(unit.motion.stuck < PATIENCE);
        let ways = WAYS.iter().enumerate().filter_map(|(way, &(x, y))| {
            let cell = unit.cell.shifted(x, y)?;
            Some((steps[cell.index()], way, cell)).filter(|(steps, ..)| *steps <= most)
        });
        // There is no way over ground that is not passable.
        let best = ways
            .filter(|(.., cell)| occupied[cell.index()] == 0 && walls[cell.index()] == 0)
            .min_by_key(|&(steps, way, _)| (steps, way));
        let Some((_, way, cell)) = best else {
            unit.motion.stuck = unit.motion.stuck.saturating_add(1);
            // The goal is taken by others, or there is no getting through.
            return unit.motion.stuck > PATIENCE && here <= CROWD || unit.motion.stuck == u8::MAX;
        };
        let own = &mut self.sides[side];
        let sight = unit.rules().sight;
        self.occupied[unit.cell.index()] = 0;
        self.occupied[cell.index()] = mark(side, slot, own.units.len());
        own.fog.remove(self.map, unit.cell, sight);
        own.fog.add(self.map, cell, sight);
        unit.motion.from = Some(unit.cell);
        (unit.motion.progress, unit.motion.facing, unit.cell) = (0, way as u8, cell);
        unit.motion.stuck = unit.motion.stuck.saturating_sub(PATIENCE / 4);
        false
    }

    /// Mines ore near a cell, or brings it to a refinery.
    fn harvest(&mut self, side: usize, slot: usize, unit: &mut Unit, near: Cell) {
        let dock = refinery(&self.sides[side], unit.cell);
        if let Some(dock) = dock.filter(|dock| unit.cargo > 0 && unit.cell.steps_to(*dock) <= 1) {
            unit.face(dock);
            let own = &mut self.sides[side];
            if self.tick.is_multiple_of(UNLOAD_TICKS) && own.ore + LOAD_WORTH <= own.power.capacity {
                unit.cargo -= 1;
                own.store(LOAD_WORTH);
            }
            return;
        }
        let here = unit.cell.index();
        if self.ore[here] > 0 && unit.cargo < MAX_CARGO {
            if self.tick.is_multiple_of(MINE_TICKS) {
                self.ore[here] -= 1;
                unit.cargo += 1;
            }
            return;
        }
        if unit.cargo < MAX_CARGO && self.go_for_ore(side, slot, unit, near) {
            return;
        }
        if let Some(dock) = dock.filter(|_| unit.cargo > 0) {
            self.step_towards(side, slot, unit, dock, 1);
        }
    }

    /// Goes for the ore that is nearest to a cell and to the unit; returns whether there is any that the side has seen.
    fn go_for_ore(&mut self, side: usize, slot: usize, unit: &mut Unit, near: Cell) -> bool {
        let is_left = self.ore[near.index()] > 0 && self.is_free(near) && unit.motion.stuck < PATIENCE;
        let goal = if is_left { Some(near) } else { self.find_ore(side, unit, near) };
        let Some(goal) = goal else { return false };
        unit.task = Task::Harvest { near: goal };
        self.step_towards(side, slot, unit, goal, 0);
        true
    }

    fn find_ore(&mut self, side: usize, unit: &mut Unit, near: Cell) -> Option<Cell> {
        // Looking through the whole map is dear: a unit that found none waits.
        if self.tick % SEARCH_TICKS != unit.serial % SEARCH_TICKS {
            return None;
        }
        unit.motion.stuck = 0;
        let fog = &self.sides[side].fog;
        let cells = self.map.cells().filter(|cell| self.ore[cell.index()] > 0);
        let known = cells.filter(|&cell| fog.has_seen(cell) && self.is_free(cell));
        known.min_by_key(|cell| (cell.square_to(near) + cell.square_to(unit.cell), cell.index()))
    }
}

/// Comes nearer to the cell for which the unit has set out.
fn glide(unit: &mut Unit, terrain: Terrain) {
    let speed = u32::from(unit.rules().speed);
    // A diagonal is longer by the square root of two.
    let speed = if unit.motion.facing >= 4 { speed * 724 / 1024 } else { speed };
    let speed = if terrain == Terrain::Rough { speed * 2 / 3 } else { speed };
    unit.motion.progress += speed as u16;
    if unit.motion.progress >= 1024 {
        (unit.motion.progress, unit.motion.from) = (0, None);
    }
}

/// Returns the nearest cell of the nearest refinery.
fn refinery(side: &Side, from: Cell) -> Option<Cell> {
    let refineries = side.buildings().filter(|(_, building)| building.kind == BuildingKind::Refinery);
    refineries.map(|(_, building)| building.nearest(from)).min_by_key(|cell| cell.square_to(from))
}

/// Worth of a load of ore.
pub(crate) const LOAD_WORTH: i32 = 25;
/// Ticks that a unit waits for a cell nearer to its goal.
const PATIENCE: u8 = 12;
/// Steps from a goal that is taken within which a unit has arrived.
const CROWD: u16 = 5;
/// Steps within which a guard stays.
const GUARD_STEPS: u8 = 2;
const MINE_TICKS: u32 = 6;
const UNLOAD_TICKS: u32 = 4;
const SEARCH_TICKS: u32 = 16;
