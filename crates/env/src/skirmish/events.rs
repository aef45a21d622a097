//! What can happen in a tick that an agent may want to be interrupted by.

use std::ops::{BitOr, BitOrAssign};

/// An event, by its priority: the first of those that happened is the reason of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Event {
    /// The game is won, lost or drawn.
    GameOver,
    /// A unit of the enemy came into sight.
    EnemySpotted,
    /// A unit of one's own was destroyed.
    UnitDestroyed,
    /// A unit or building of one's own has lost more than 5 % of its hit points since that was last reported.
    UnderAttack,
    /// A building of the enemy was seen for the first time.
    BuildingDiscovered,
    /// A building of the enemy was destroyed.
    EnemyBuildingDestroyed,
    /// A building of one's own was destroyed.
    OwnBuildingDestroyed,
    /// A unit has done what it was ordered: it came to its goal, or its target is gone.
    UnitArrived,
    /// A unit left its producer, or a building is ready to be placed.
    ProductionComplete,
    /// Another tenth of the map has been seen.
    ExplorationMilestone,
}

/// Number of events.
pub(crate) const EVENT_COUNT: usize = 10;

impl Event {
    pub(crate) const ALL: [Self; EVENT_COUNT] = [
        Self::GameOver,
        Self::EnemySpotted,
        Self::UnitDestroyed,
        Self::UnderAttack,
        Self::BuildingDiscovered,
        Self::EnemyBuildingDestroyed,
        Self::OwnBuildingDestroyed,
        Self::UnitArrived,
        Self::ProductionComplete,
        Self::ExplorationMilestone,
    ];

    pub(crate) const NAMES: [&str; EVENT_COUNT] = [
        "game_over",
        "enemy_spotted",
        "unit_destroyed",
        "under_attack",
        "building_discovered",
        "enemy_building_destroyed",
        "own_building_destroyed",
        "unit_arrived",
        "production_complete",
        "exploration_milestone",
    ];

    /// Returns the event's name.
    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A set of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Events(u16);

impl Events {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn has(self, event: Event) -> bool {
        self.0 >> event as u8 & 1 == 1
    }

    pub(crate) const fn insert(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    /// Returns the events that are in both sets.
    pub(crate) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the event of the highest priority.
    pub(crate) fn first(self) -> Option<Event> {
        Event::ALL.into_iter().find(|&event| self.has(event))
    }
}

impl From<Event> for Events {
    fn from(event: Event) -> Self {
        Self(1 << event as u8)
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Events {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}
