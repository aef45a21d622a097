//! How items are produced, buildings placed and mended.

use super::building::{Building, footprint};
use super::events::Event;
use super::game::Game;
use super::kinds::{BuildingKind, Item, Line};
use super::map::Cell;
use super::production::Job;
use super::unit::Task;

impl Game {
    /// Works on the first item of each line of a side.
    pub(super) fn produce(&mut self, side: usize) {
        for line in Line::ALL {
            let Some(&job) = self.sides[side].production.line(line).first() else { continue };
            let Some(producer) = self.sides[side].producer(line) else { continue };
            let work = self.work(side, line);
            let left = job.left.saturating_sub(work);
            self.set_left(side, line, left);
            if left > 0 {
                continue;
            }
            match job.item {
                Item::Unit(kind) => {
                    let Some(producer) = self.sides[side].building(producer) else { continue };
                    let (door, rally) = (producer.middle(), producer.rally);
                    let Some(slot) = self.add_unit(side, kind, door) else {
                        // It leaves as soon as there is room.
                        self.set_left(side, line, 1);
                        continue;
                    };
                    self.send_out(side, slot, rally);
                    self.sides[side].production.line_mut(line).pop_at(0);
                    self.sides[side].events.insert(Event::ProductionComplete);
                }
                Item::Building(kind) => self.finish_building(side, kind, job),
            }
        }
    }

    /// Returns the half ticks of work that a line does in a tick: half of it without enough power, more with more producers.
    fn work(&self, side: usize, line: Line) -> u32 {
        let own = &self.sides[side];
        let producers = own.count(line.producer()).clamp(1, MAX_PRODUCERS) as u32;
        if own.power.is_low() { producers.div_ceil(2) } else { producers + 1 }
    }

    fn set_left(&mut self, side: usize, line: Line, left: u32) {
        if let Some(job) = self.sides[side].production.line_mut(line).first_mut() {
            job.left = left;
        }
    }

    /// Sends a new unit to where its producer's go; a harvester goes for ore.
    fn send_out(&mut self, side: usize, slot: u8, rally: Option<Cell>) {
        let Some(unit) = &mut self.sides[side].units[usize::from(slot)] else { return };
        match rally {
            _ if unit.weapon().is_none() => unit.take_on(Task::Harvest { near: unit.cell }, false),
            Some(to) => unit.take_on(Task::AttackMove { to }, false),
            None => {}
        }
    }

    /// Reports a building that has become ready, and places it where that was ordered and it fits.
    fn finish_building(&mut self, side: usize, kind: BuildingKind, job: Job) {
        if job.left > 0 {
            self.sides[side].events.insert(Event::ProductionComplete);
        }
        if let Some(cell) = job.place.filter(|&cell| self.fits(side, kind, cell)) {
            self.place(side, kind, cell);
        }
    }

    /// Places the building that is ready at a cell, which it has been found to fit.
    pub(super) fn place(&mut self, side: usize, kind: BuildingKind, cell: Cell) {
        if self.add_building(side, kind, cell).is_some() {
            self.sides[side].production.line_mut(Line::Structures).pop_at(0);
        }
    }

    /// Returns whether a building could be placed: on clear ground without ore that nothing takes and the side sees, near to
    /// another building of its own.
    pub(crate) fn fits(&self, side: usize, kind: BuildingKind, cell: Cell) -> bool {
        let size = kind.rules().size;
        let last = Cell::new(cell.x.saturating_add(size - 1), cell.y.saturating_add(size - 1));
        if !self.map.has(last) {
            return false;
        }
        let own = &self.sides[side];
        let ground = footprint(kind, cell)
            .all(|cell| self.is_free(cell) && self.map.ore[cell.index()] == 0 && own.fog.sees(cell));
        ground && own.buildings().any(|(_, other)| gap(other, cell, last) <= BUILD_STEPS)
    }

    /// Returns the cells at which a building could be placed, at most `most`, the nearest to a cell first.
    pub(crate) fn placements(&self, side: usize, kind: BuildingKind, near: Cell, most: usize) -> Vec<Cell> {
        let mut cells: Vec<_> = self.map.cells().filter(|&cell| self.fits(side, kind, cell)).collect();
        cells.sort_by_key(|cell| (cell.square_to(near), cell.index()));
        cells.truncate(most);
        cells
    }

    /// Mends the buildings of a side that are repaired, as long as there is money.
    pub(super) fn mend(&mut self, side: usize) {
        if !self.tick.is_multiple_of(MEND_TICKS) {
            return;
        }
        let own = &mut self.sides[side];
        for slot in 0..own.buildings.len() {
            let money = own.money();
            let Some(building) = own.buildings[slot].as_mut().filter(|building| building.is_repaired) else {
                continue;
            };
            let most = building.rules().hp;
            if building.hp >= most {
                building.is_repaired = false;
                continue;
            }
            if money >= MEND_COST {
                building.hp = (building.hp + MEND_HP).min(most);
                building.marked_hp = building.marked_hp.max(building.hp);
                own.spend(MEND_COST);
            }
        }
    }
}

/// Returns the number of cells between a building and those from `first` to `last`, and one.
fn gap(building: &Building, first: Cell, last: Cell) -> u8 {
    let end = building.rules().size - 1;
    let apart =
        |low: u8, high: u8, first: u8, last: u8| first.saturating_sub(high).max(low.saturating_sub(last));
    let x = apart(building.cell.x, building.cell.x + end, first.x, last.x);
    x.max(apart(building.cell.y, building.cell.y + end, first.y, last.y))
}

/// Steps from a building within which another may be placed.
const BUILD_STEPS: u8 = 4;
/// Producers by which a line gets faster, at most.
const MAX_PRODUCERS: usize = 3;
const MEND_TICKS: u32 = 10;
const MEND_HP: i32 = 10;
const MEND_COST: i32 = 3;
