//! The figures of a side: what a glance at its books shows, and conditions compare.

use super::game::Game;
use super::kinds::UnitKind;

/// A figure of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Figure {
    Tick,
    Cash,
    Ore,
    PowerProvided,
    PowerDrained,
    ResourceCapacity,
    HarvesterCount,
    UnitsKilled,
    UnitsLost,
    BuildingsKilled,
    BuildingsLost,
    ArmyValue,
    ActiveUnitCount,
    KillsCost,
    DeathsCost,
    AssetsValue,
    OrderCount,
    Score,
    ExploredPercent,
    IdleUnits,
    VisibleEnemies,
    KnownEnemyBuildings,
    WaitingItems,
    ReadyBuildings,
}

/// Number of figures.
pub(crate) const FIGURES: usize = 24;

impl Figure {
    pub(crate) const ALL: [Self; FIGURES] = [
        Self::Tick,
        Self::Cash,
        Self::Ore,
        Self::PowerProvided,
        Self::PowerDrained,
        Self::ResourceCapacity,
        Self::HarvesterCount,
        Self::UnitsKilled,
        Self::UnitsLost,
        Self::BuildingsKilled,
        Self::BuildingsLost,
        Self::ArmyValue,
        Self::ActiveUnitCount,
        Self::KillsCost,
        Self::DeathsCost,
        Self::AssetsValue,
        Self::OrderCount,
        Self::Score,
        Self::ExploredPercent,
        Self::IdleUnits,
        Self::VisibleEnemies,
        Self::KnownEnemyBuildings,
        Self::WaitingItems,
        Self::ReadyBuildings,
    ];

    pub(crate) const NAMES: [&str; FIGURES] = [
        "tick",
        "cash",
        "ore",
        "power_provided",
        "power_drained",
        "resource_capacity",
        "harvester_count",
        "units_killed",
        "units_lost",
        "buildings_killed",
        "buildings_lost",
        "army_value",
        "active_unit_count",
        "kills_cost",
        "deaths_cost",
        "assets_value",
        "order_count",
        "score",
        "explored_percent",
        "idle_units",
        "visible_enemies",
        "known_enemy_buildings",
        "waiting_items",
        "ready_buildings",
    ];

    /// Returns the figure of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|place| Self::ALL[place])
    }

    /// Returns its value for a side.
    pub(crate) fn of(self, game: &Game, side: usize) -> i64 {
        let own = &game.sides[side];
        let stats = own.stats;
        let value = match self {
            Self::Tick => return game.tick.into(),
            Self::Cash => own.cash,
            Self::Ore => own.ore,
            Self::PowerProvided => own.power.provided,
            Self::PowerDrained => own.power.drained,
            Self::ResourceCapacity => own.power.capacity,
            Self::UnitsKilled => stats.units_killed,
            Self::UnitsLost => stats.units_lost,
            Self::BuildingsKilled => stats.buildings_killed,
            Self::BuildingsLost => stats.buildings_lost,
            Self::ArmyValue => own.army_value(),
            Self::KillsCost => stats.kills_cost,
            Self::DeathsCost => stats.deaths_cost,
            Self::AssetsValue => own.assets_value(),
            Self::OrderCount => stats.orders,
            Self::Score => own.score(),
            Self::ExploredPercent => return own.fog.explored_percent(game.map).into(),
            counted => return counted.count(game, side) as i64,
        };
        value.into()
    }

    fn count(self, game: &Game, side: usize) -> usize {
        let (own, enemy) = (&game.sides[side], &game.sides[1 - side]);
        match self {
            Self::HarvesterCount => own.units().filter(|(_, it)| it.kind == UnitKind::Harvester).count(),
            Self::ActiveUnitCount => own.units().count(),
            Self::IdleUnits => own.units().filter(|(_, it)| it.is_idle()).count(),
            Self::VisibleEnemies => enemy.units().filter(|(_, it)| own.fog.sees(it.cell)).count(),
            Self::KnownEnemyBuildings => own.sightings.iter().flatten().count(),
            Self::WaitingItems => own.production.jobs().count(),
            Self::ReadyBuildings => usize::from(own.production.ready().is_some()),
            _ => 0,
        }
    }
}
