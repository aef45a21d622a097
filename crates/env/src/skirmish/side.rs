//! A side: its money, units, buildings, production, and what it has done and knows.

use super::actor::{Actor, MAX_BUILDINGS, MAX_UNITS, Target};
use super::building::{Building, Sighting};
use super::events::Events;
use super::fog::Fog;
use super::kinds::{BUILDING_KINDS, BuildingKind, Item, Line};
use super::map::Map;
use super::production::Production;
use super::unit::Unit;

/// One of the two sides of a game.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) struct Side {
    pub(crate) cash: i32,
    /// Ore in refineries and silos; it is worth as much as cash.
    pub(crate) ore: i32,
    pub(crate) units: Vec<Option<Unit>>,
    pub(crate) buildings: Vec<Option<Building>>,
    /// Number of buildings of each kind.
    standing: [u8; BUILDING_KINDS],
    pub(crate) production: Production,
    /// What power plants give and buildings take.
    pub(crate) power: Power,
    pub(crate) fog: Fog,
    pub(crate) stats: Stats,
    /// What has happened to it in the current tick.
    pub(crate) events: Events,
    /// Whether it saw each unit of the enemy after the last tick, a bit each.
    pub(crate) spotted: u64,
    /// Buildings of the enemy by their places, as it saw them last.
    pub(crate) sightings: Vec<Option<Sighting>>,
    /// Tenths of the map that it had seen after the last tick.
    pub(crate) tenths: u32,
    pub(crate) has_surrendered: bool,
}

/// Power that is given and taken.
#[derive(Debug, Clone, Copy, PartialEq, Default, Hash)]
pub(crate) struct Power {
    pub(crate) provided: i32,
    pub(crate) drained: i32,
    /// Ore that refineries and silos hold.
    pub(crate) capacity: i32,
}

impl Power {
    /// Returns whether there is less than is taken.
    pub(crate) const fn is_low(self) -> bool {
        self.drained > self.provided
    }
}

/// What a side has done and lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Stats {
    pub(crate) units_killed: i32,
    pub(crate) units_lost: i32,
    pub(crate) buildings_killed: i32,
    pub(crate) buildings_lost: i32,
    /// Cost of everything of the enemy's that it destroyed, and of its own that the enemy did.
    pub(crate) kills_cost: i32,
    pub(crate) deaths_cost: i32,
    /// Worth of the ore that was brought in.
    pub(crate) income: i32,
    pub(crate) orders: i32,
}

impl Side {
    pub(crate) fn new(map: &Map, cash: i32, has_fog: bool) -> Self {
        Self {
            cash,
            ore: 0,
            units: vec![None; MAX_UNITS],
            buildings: vec![None; MAX_BUILDINGS],
            standing: [0; BUILDING_KINDS],
            production: Production::default(),
            power: Power::default(),
            fog: Fog::new(map, has_fog),
            stats: Stats::default(),
            events: Events::NONE,
            spotted: 0,
            sightings: vec![None; MAX_BUILDINGS],
            tenths: 0,
            has_surrendered: false,
        }
    }

    /// Returns the units with their places.
    pub(crate) fn units(&self) -> impl Iterator<Item = (u8, &Unit)> {
        (0..).zip(&self.units).filter_map(|(slot, unit)| Some((slot, unit.as_ref()?)))
    }

    /// Returns the buildings with their places.
    pub(crate) fn buildings(&self) -> impl Iterator<Item = (u8, &Building)> {
        (0..).zip(&self.buildings).filter_map(|(slot, building)| Some((slot, building.as_ref()?)))
    }

    pub(crate) fn unit(&self, slot: u8) -> Option<&Unit> {
        self.units.get(usize::from(slot))?.as_ref()
    }

    pub(crate) fn building(&self, slot: u8) -> Option<&Building> {
        self.buildings.get(usize::from(slot))?.as_ref()
    }

    /// Returns the number of buildings of a kind.
    pub(crate) const fn count(&self, kind: BuildingKind) -> usize {
        self.standing[kind as usize] as usize
    }

    pub(crate) const fn has(&self, kind: BuildingKind) -> bool {
        self.count(kind) > 0
    }

    /// Returns the first building that has to stand before an item can be produced and does not.
    pub(crate) fn lacks(&self, item: Item) -> Option<BuildingKind> {
        let producer = item.line().producer();
        item.needs().iter().copied().chain([producer]).find(|&kind| !self.has(kind))
    }

    /// Returns the place of the building that produces a line's items: the chosen one, else the first.
    pub(crate) fn producer(&self, line: Line) -> Option<u8> {
        let is_one = |slot: &u8| self.building(*slot).is_some_and(|it| it.kind == line.producer());
        let first = || self.buildings().map(|(slot, _)| slot).find(is_one);
        self.production.primary[line as usize].filter(is_one).or_else(first)
    }

    /// Returns cash and ore together.
    pub(crate) const fn money(&self) -> i32 {
        self.cash.saturating_add(self.ore)
    }

    /// Spends money, ore first. The caller has looked whether there is enough.
    pub(crate) fn spend(&mut self, amount: i32) {
        let of_ore = amount.min(self.ore);
        self.ore -= of_ore;
        self.cash = (self.cash - (amount - of_ore)).max(0);
    }

    /// Adds cash up to [`MAX_CASH`].
    pub(crate) fn earn(&mut self, amount: i32) {
        self.cash = self.cash.saturating_add(amount).min(MAX_CASH);
    }

    /// Adds the ore of a harvester as far as there is room, and counts it as income.
    pub(crate) fn store(&mut self, worth: i32) {
        let stored = worth.min((self.power.capacity - self.ore).max(0));
        self.ore += stored;
        self.stats.income = self.stats.income.saturating_add(stored);
    }

    /// Recomputes power, capacity and numbers of buildings, since a building came, went or was switched.
    pub(crate) fn count_buildings(&mut self) {
        let (mut power, mut standing) = (Power::default(), [0; BUILDING_KINDS]);
        for (_, building) in self.buildings() {
            let rules = building.rules();
            standing[building.kind as usize] += 1;
            power.capacity += rules.capacity;
            if !building.is_off {
                power.provided += rules.power.max(0);
                power.drained += (-rules.power).max(0);
            }
        }
        (self.power, self.standing) = (power, standing);
        // What no building holds any more is lost.
        self.ore = self.ore.min(power.capacity);
    }

    /// Returns what the units cost that can shoot.
    pub(crate) fn army_value(&self) -> i32 {
        self.units().filter(|(_, unit)| unit.weapon().is_some()).map(|(_, unit)| unit.rules().cost).sum()
    }

    /// Returns what units and buildings cost, with the money.
    pub(crate) fn assets_value(&self) -> i32 {
        let units: i32 = self.units().map(|(_, unit)| unit.rules().cost).sum();
        let buildings: i32 = self.buildings().map(|(_, building)| building.rules().cost).sum();
        units + buildings + self.money()
    }

    /// Returns the target that an actor of this side is; `None` if nothing has that place.
    pub(crate) fn target(&self, side: u8, actor: Actor) -> Option<Target> {
        let serial = match actor {
            Actor::Unit(slot) => self.unit(slot)?.serial,
            Actor::Building(slot) => self.building(slot)?.serial,
        };
        Some(Target { side, actor, serial })
    }

    /// Returns the score: what it destroyed less what it lost, and a tenth of what it brought in.
    pub(crate) const fn score(&self) -> i32 {
        self.stats.kills_cost - self.stats.deaths_cost + self.stats.income / 10
    }
}

/// Most cash that a side has.
pub(crate) const MAX_CASH: i32 = 1_000_000;
