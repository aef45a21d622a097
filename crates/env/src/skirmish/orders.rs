//! Orders: what a side can be report to do, and for which reasons it does not.

use super::actor::{ALL_IDS, Actor, MAX_BUILDINGS, MAX_UNITS, OWN_IDS};
use super::kinds::Item;
use super::map::Cell;

/// An order of a side, by the ids that it knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Order {
    pub(crate) kind: OrderKind,
    /// Id of the unit or building that is to obey, or a [`Selector`]; 0 where the whole side does.
    pub(crate) subject: u8,
    /// Id of what is attacked or guarded.
    pub(crate) target: u8,
    /// Where to; of a stance its number as the column.
    pub(crate) cell: Cell,
    /// Number of what is built, trained or cancelled.
    pub(crate) item: u8,
    /// Whether a unit does it after what it does already. A building is placed at the cell as soon as it is ready.
    pub(crate) queued: bool,
}

/// Kinds of orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum OrderKind {
    NoOp,
    Move,
    AttackMove,
    Attack,
    Stop,
    Harvest,
    Build,
    Train,
    Sell,
    Repair,
    PlaceBuilding,
    CancelProduction,
    SetRallyPoint,
    Guard,
    SetStance,
    PowerDown,
    SetPrimary,
    Patrol,
    Retreat,
    Scatter,
}

/// Number of kinds of orders.
pub(crate) const ORDER_KINDS: usize = 20;

impl OrderKind {
    pub(crate) const ALL: [Self; ORDER_KINDS] = [
        Self::NoOp,
        Self::Move,
        Self::AttackMove,
        Self::Attack,
        Self::Stop,
        Self::Harvest,
        Self::Build,
        Self::Train,
        Self::Sell,
        Self::Repair,
        Self::PlaceBuilding,
        Self::CancelProduction,
        Self::SetRallyPoint,
        Self::Guard,
        Self::SetStance,
        Self::PowerDown,
        Self::SetPrimary,
        Self::Patrol,
        Self::Retreat,
        Self::Scatter,
    ];

    pub(crate) const NAMES: [&str; ORDER_KINDS] = [
        "no_op",
        "move",
        "attack_move",
        "attack",
        "stop",
        "harvest",
        "build",
        "train",
        "sell",
        "repair",
        "place_building",
        "cancel_production",
        "set_rally_point",
        "guard",
        "set_stance",
        "power_down",
        "set_primary",
        "patrol",
        "retreat",
        "scatter",
    ];

    /// Returns what the order is about.
    pub(crate) const fn addressee(self) -> Addressee {
        match self {
            Self::NoOp | Self::Build | Self::Train | Self::PlaceBuilding | Self::CancelProduction => {
                Addressee::Side
            }
            Self::Sell | Self::Repair | Self::SetRallyPoint | Self::PowerDown | Self::SetPrimary => {
                Addressee::Building
            }
            _ => Addressee::Unit,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Who obeys an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addressee {
    Side,
    Unit,
    Building,
}

/// Several units at once, as the subject of an order: all that fight, do nothing, walk or drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Selector {
    Combat,
    Idle,
    Infantry,
    Vehicles,
}

impl Selector {
    pub(crate) const ALL: [Self; 4] = [Self::Combat, Self::Idle, Self::Infantry, Self::Vehicles];
    pub(crate) const NAMES: [&str; 4] = ["all_combat", "all_idle", "all_infantry", "all_vehicles"];

    /// Returns the selector's number as the subject of an order.
    pub(crate) const fn id(self) -> u8 {
        OWN_IDS as u8 + self as u8
    }

    /// Returns the selector of that number.
    pub(crate) fn of_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id).checked_sub(OWN_IDS)?).copied()
    }
}

/// Number of subjects of orders: ids of one's own, with 0 for the side, and selectors.
pub(crate) const SUBJECTS: usize = OWN_IDS + Selector::ALL.len();

/// Maximum number of orders in a step.
pub(crate) const MAX_ORDERS: usize = 16;

/// Reason for which an order is not carried out. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the game is over")]
    Over,
    #[error("subject {0} is no unit of one's own; they have ids from 1 to {MAX_UNITS}")]
    NoUnit(u8),
    #[error("subject {id} is no building of one's own; they have ids from {first} to {last}",
        first = MAX_UNITS + 1, last = OWN_IDS - 1)]
    NoBuilding { id: u8 },
    #[error("no unit is among {}", Selector::NAMES[*.0 as usize])]
    NoneSelected(Selector),
    #[error("target {id} is nothing that is seen or known; ids go from 1 to {last}", last = ALL_IDS - 1)]
    NoTarget { id: u8 },
    #[error("target {0} is on the wrong side, or the unit itself")]
    WrongTarget(u8),
    #[error("cell {},{} is not on the map or cannot be entered", .0.x, .0.y)]
    NoPlace(Cell),
    #[error("a unit of that kind cannot {}", .0.name())]
    Incapable(OrderKind),
    #[error("the unit has as many tasks waiting as it may")]
    TasksFull,
    #[error("stance {0} must be from 0 to 3")]
    NoStance(u8),
    #[error("item {0} is none that is ordered so")]
    NoItem(u8),
    #[error("{} needs a {}", .item.name(), .lacking.rules().name)]
    Lacks { item: Item, lacking: super::kinds::BuildingKind },
    #[error("{} costs {}, there is {money}", .item.name(), .item.cost())]
    Poor { item: Item, money: i32 },
    #[error("{} are at most {limit} items at a time", .line.name())]
    LineFull { line: super::kinds::Line, limit: usize },
    #[error("a side has at most {MAX_UNITS} units")]
    UnitsFull,
    #[error("a side has at most {MAX_BUILDINGS} buildings")]
    BuildingsFull,
    #[error("no building of that kind is ready to be placed")]
    NotReady,
    #[error("a {} does not fit at {},{}", .kind.rules().name, .cell.x, .cell.y)]
    Unfit { kind: super::kinds::BuildingKind, cell: Cell },
    #[error("nothing of that kind is being produced")]
    NotProduced,
    #[error("a yard cannot be sold")]
    Unsellable,
    #[error("the building is not damaged")]
    Undamaged,
    #[error("the building produces nothing")]
    Unproductive,
}

impl Refusal {
    /// Returns the number of the reason in infos, from 1.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Over => 1,
            Self::NoUnit(_) => 2,
            Self::NoBuilding { .. } => 3,
            Self::NoneSelected(_) => 4,
            Self::NoTarget { .. } => 5,
            Self::WrongTarget(_) => 6,
            Self::NoPlace(_) => 7,
            Self::Incapable(_) => 8,
            Self::TasksFull => 9,
            Self::NoStance(_) => 10,
            Self::NoItem(_) => 11,
            Self::Lacks { .. } => 12,
            Self::Poor { .. } => 13,
            Self::LineFull { .. } => 14,
            Self::UnitsFull => 15,
            Self::BuildingsFull => 16,
            Self::NotReady => 17,
            Self::Unfit { .. } => 18,
            Self::NotProduced => 19,
            Self::Unsellable => 20,
            Self::Undamaged => 21,
            Self::Unproductive => 22,
        }
    }
}

impl Order {
    /// Makes an order of a kind that says nothing else.
    pub(crate) const fn new(kind: OrderKind) -> Self {
        Self { kind, subject: 0, target: 0, cell: Cell::new(0, 0), item: 0, queued: false }
    }

    #[must_use]
    pub(crate) const fn by(self, subject: u8) -> Self {
        Self { subject, ..self }
    }

    #[must_use]
    pub(crate) const fn by_unit(self, slot: u8) -> Self {
        self.by(Actor::Unit(slot).id(false))
    }

    #[must_use]
    pub(crate) const fn by_building(self, slot: u8) -> Self {
        self.by(Actor::Building(slot).id(false))
    }

    #[must_use]
    pub(crate) const fn to(self, cell: Cell) -> Self {
        Self { cell, ..self }
    }

    #[must_use]
    pub(crate) const fn at(self, target: u8) -> Self {
        Self { target, ..self }
    }

    #[must_use]
    pub(crate) const fn of(self, item: Item) -> Self {
        Self { item: item.number(), ..self }
    }
}
