//! A game: two sides on a map, tick by tick.
//!
//! It is a value without clock, files or a generator of the machine's: map, setup, seed and orders decide everything that
//! happens, by integers alone. Both sides shoot in a tick before any hit takes effect, and take turns to move first.

use std::hash::{Hash, Hasher};

use rollhouse_core::{GameResult, split_mix64};

use super::actor::{Actor, MAX_UNITS, Target};
use super::building::{Building, footprint, middle_of};
use super::events::{Event, Events};
use super::hit::Hit;
use super::kinds::{BuildingKind, UnitKind};
use super::map::{CELLS, Cell, Map};
use super::paths::Paths;
use super::side::Side;
use super::unit::{Task, Unit};

/// What a game is begun with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Setup {
    /// Number of the map.
    pub(crate) map: usize,
    /// Cash of either side.
    pub(crate) cash: i32,
    pub(crate) has_fog: bool,
}

/// A game in some tick.
#[derive(Clone)]
pub(crate) struct Game {
    pub(crate) map: &'static Map,
    pub(crate) tick: u32,
    /// State of the generator from which the game draws.
    pub(super) random: u64,
    /// Number that the last unit or building was given.
    pub(super) serial: u32,
    /// Loads of ore of each cell.
    pub(crate) ore: Box<[u8; CELLS]>,
    /// Which unit stands on a cell: 1 and up those of side 0, then those of side 1; 0 for none.
    pub(crate) occupied: Box<[u8; CELLS]>,
    /// Which building stands on a cell, in the same way.
    pub(crate) walls: Box<[u8; CELLS]>,
    pub(crate) sides: [Side; 2],
    pub(crate) paths: Paths,
    /// Shots of the current tick.
    pub(super) hits: Vec<Hit>,
    /// Result for side 0; `None` while the game goes on.
    pub(crate) result: Option<GameResult>,
}

impl Hash for Game {
    /// Hashes everything on which later ticks depend, and nothing that follows from the rest.
    fn hash<H: Hasher>(&self, words: &mut H) {
        (self.map.name, self.tick, self.random, self.serial).hash(words);
        (&self.ore, &self.sides, self.result.map(GameResult::code)).hash(words);
    }
}

impl Game {
    /// Begins a game. The seed decides which side begins where.
    pub(crate) fn new(setup: Setup, seed: u64) -> Self {
        let mut game = Self { random: seed, ..Self::bare(setup) };
        let map = game.map;
        let first = (game.draw() & 1) as usize;
        for side in 0..2 {
            let start = map.starts[(side + first) % 2];
            game.add_building(side, BuildingKind::Yard, Cell::new(start.x - 1, start.y - 1));
            for kind in START {
                game.add_unit(side, kind, start);
            }
        }
        (0..2).for_each(|side| {
            game.sides[side].tenths = game.sides[side].fog.explored_percent(map) / 10;
            game.sides[side].events = Events::NONE;
        });
        game
    }

    /// Makes a game in which nobody has anything yet.
    pub(super) fn bare(setup: Setup) -> Self {
        let map = Map::of(setup.map);
        let side = || Side::new(map, setup.cash, setup.has_fog);
        Self {
            map,
            tick: 0,
            random: 0,
            serial: 0,
            ore: Box::new(map.ore),
            occupied: Box::new([0; CELLS]),
            walls: Box::new([0; CELLS]),
            sides: [side(), side()],
            paths: Paths::default(),
            hits: Vec::new(),
            result: None,
        }
    }

    /// Returns a copy without what follows from the rest.
    pub(super) fn without_ways(&self) -> Self {
        let (ore, sides) = (self.ore.clone(), self.sides.clone());
        let (occupied, walls) = (self.occupied.clone(), self.walls.clone());
        let (paths, hits) = (Paths::default(), Vec::new());
        Self { ore, occupied, walls, sides, paths, hits, ..*self }
    }

    /// Lets a tick pass. Nothing happens any more once the game is over.
    pub(crate) fn tick(&mut self) {
        if self.result.is_some() {
            return;
        }
        self.tick += 1;
        for side in 0..2 {
            self.sides[side].events = Events::NONE;
            self.produce(side);
            self.mend(side);
        }
        let first = self.tick as usize & 1;
        for side in [first, 1 - first] {
            (0..MAX_UNITS).for_each(|slot| self.act(side, slot));
        }
        (0..2).for_each(|side| self.fire_turrets(side));
        self.land_hits();
        (0..2).for_each(|side| self.look(side));
        self.judge();
    }

    /// Draws 64 bits.
    pub(crate) const fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        split_mix64(self.random)
    }

    const fn next_serial(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    /// Returns whether a unit could stand on the cell now.
    #[inline]
    pub(crate) fn is_free(&self, cell: Cell) -> bool {
        let index = cell.index();
        self.occupied[index] == 0 && self.walls[index] == 0 && self.map.terrain[index].is_passable()
    }

    /// Returns the free cell that is nearest to another, within [`NEAR`] steps.
    pub(crate) fn free_near(&self, cell: Cell) -> Option<Cell> {
        let ring = |radius: i32| {
            (-radius..=radius).flat_map(move |y| {
                let step = if y.abs() == radius { 1 } else { (2 * radius).max(1) };
                (-radius..=radius).step_by(step as usize).map(move |x| (x, y))
            })
        };
        let mut cells = (0..=NEAR).flat_map(ring).filter_map(|(x, y)| cell.shifted(x, y));
        cells.find(|&cell| self.is_free(cell))
    }

    /// Adds a unit near a cell; returns its place, or `None` if there is no room for it.
    pub(crate) fn add_unit(&mut self, side: usize, kind: UnitKind, near: Cell) -> Option<u8> {
        let slot = self.sides[side].units.iter().position(Option::is_none)?;
        let cell = self.free_near(near)?;
        let unit = Unit::new(kind, self.next_serial(), cell);
        self.occupied[cell.index()] = mark(side, slot, MAX_UNITS);
        self.sides[side].fog.add(self.map, cell, unit.rules().sight);
        self.sides[side].units[slot] = Some(unit);
        Some(slot as u8)
    }

    /// Adds a building, which has been found to fit; returns its place, or `None` if the side has too many.
    pub(crate) fn add_building(&mut self, side: usize, kind: BuildingKind, cell: Cell) -> Option<u8> {
        let slot = self.sides[side].buildings.iter().position(Option::is_none)?;
        let building = Building::new(kind, self.next_serial(), cell);
        for cell in footprint(kind, cell) {
            self.walls[cell.index()] = mark(side, slot, self.sides[side].buildings.len());
        }
        self.sides[side].fog.add(self.map, building.middle(), building.rules().sight);
        self.sides[side].buildings[slot] = Some(building);
        self.sides[side].count_buildings();
        self.paths.forget();
        if kind == BuildingKind::Refinery
            && let Some(harvester) = self.add_unit(side, UnitKind::Harvester, middle_of(kind, cell))
            && let Some(unit) = &mut self.sides[side].units[usize::from(harvester)]
        {
            unit.take_on(Task::Harvest { near: unit.cell }, false);
        }
        Some(slot as u8)
    }

    /// Takes a unit off the map.
    pub(crate) fn remove_unit(&mut self, side: usize, slot: u8) {
        if let Some(unit) = self.sides[side].units[usize::from(slot)].take() {
            self.occupied[unit.cell.index()] = 0;
            self.sides[side].fog.remove(self.map, unit.cell, unit.rules().sight);
        }
    }

    /// Takes a building off the map.
    pub(crate) fn remove_building(&mut self, side: usize, slot: u8) {
        if let Some(building) = self.sides[side].buildings[usize::from(slot)].take() {
            for cell in footprint(building.kind, building.cell) {
                self.walls[cell.index()] = 0;
            }
            self.sides[side].fog.remove(self.map, building.middle(), building.rules().sight);
            self.sides[side].count_buildings();
            self.paths.forget();
        }
    }

    /// Returns the cell of a target and its armour's and value's owner, if it still is there: where it is nearest to `from`.
    pub(crate) fn place_of(&self, target: Target, from: Cell) -> Option<Cell> {
        let side = self.sides.get(usize::from(target.side))?;
        match target.actor {
            Actor::Unit(slot) => {
                side.unit(slot).filter(|unit| unit.serial == target.serial).map(|unit| unit.cell)
            }
            Actor::Building(slot) => {
                let building = side.building(slot).filter(|building| building.serial == target.serial)?;
                Some(building.nearest(from))
            }
        }
    }

    /// Has a side look at what its units and buildings see.
    fn look(&mut self, side: usize) {
        let [first, second] = &mut self.sides;
        let (own, enemy) = if side == 0 { (first, second) } else { (second, first) };
        let seen = enemy.units().filter(|(_, unit)| own.fog.sees(unit.cell));
        let seen = seen.fold(0_u64, |seen, (slot, _)| seen | 1 << slot);
        if seen & !own.spotted != 0 {
            own.events.insert(Event::EnemySpotted);
        }
        own.spotted = seen;
        if self.tick.is_multiple_of(LOOK_TICKS) {
            look_at_buildings(own, enemy);
        }
        let tenths = own.fog.explored_percent(self.map) / 10;
        if tenths > own.tenths {
            own.tenths = tenths;
            own.events.insert(Event::ExplorationMilestone);
        }
    }

    /// Ends the game if a side has no building any more, or has surrendered.
    fn judge(&mut self) {
        let lost = |side: &Side| side.has_surrendered || side.buildings.iter().all(Option::is_none);
        self.result = match (lost(&self.sides[0]), lost(&self.sides[1])) {
            (false, false) => None,
            (true, true) => Some(GameResult::Draw),
            (true, false) => Some(GameResult::Lose),
            (false, true) => Some(GameResult::Win),
        };
        if self.result.is_some() {
            self.sides.iter_mut().for_each(|side| side.events.insert(Event::GameOver));
        }
    }
}

/// Renews what a side knows of the enemy's buildings: those that it sees, and those that it sees to be gone.
fn look_at_buildings(own: &mut Side, enemy: &Side) {
    let fog = &own.fog;
    let sees = |kind, cell| footprint(kind, cell).any(|cell| fog.sees(cell));
    for (sighting, building) in own.sightings.iter_mut().zip(&enemy.buildings) {
        let seen = building.as_ref().filter(|building| sees(building.kind, building.cell));
        if let Some(building) = seen {
            if sighting.is_none_or(|sighting| sighting.serial != building.serial) {
                own.events.insert(Event::BuildingDiscovered);
            }
            *sighting = Some(building.sighting());
        } else if sighting.is_some_and(|sighting| sees(sighting.kind, sighting.cell)) {
            *sighting = None;
        }
    }
}

/// Returns the mark of a unit or building on the cells that it takes.
pub(super) const fn mark(side: usize, slot: usize, of: usize) -> u8 {
    (1 + side * of + slot) as u8
}

/// Units with which a side begins.
const START: [UnitKind; 4] = [UnitKind::Rifle, UnitKind::Rifle, UnitKind::Rifle, UnitKind::Buggy];
/// Steps within which a unit finds room.
const NEAR: i32 = 8;
/// Ticks between two looks at buildings.
const LOOK_TICKS: u32 = 4;
