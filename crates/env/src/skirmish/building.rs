//! A building.

use super::kinds::{BuildingKind, BuildingRules};
use super::map::Cell;

/// A building of a side.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(crate) struct Building {
    pub(crate) kind: BuildingKind,
    /// Number by which no other unit or building of the game has ever gone.
    pub(crate) serial: u32,
    pub(crate) hp: i32,
    /// Hit points at the last report of an attack.
    pub(crate) marked_hp: i32,
    /// Upper left cell.
    pub(crate) cell: Cell,
    /// Where units go that it produces.
    pub(crate) rally: Option<Cell>,
    /// Ticks until it can shoot.
    pub(crate) cooldown: u16,
    pub(crate) is_repaired: bool,
    /// Whether its power was cut by an order.
    pub(crate) is_off: bool,
}

/// A building of the enemy as it was seen last. It may be gone since.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub(crate) struct Sighting {
    pub(crate) kind: BuildingKind,
    pub(crate) serial: u32,
    pub(crate) cell: Cell,
    pub(crate) hp_percent: u8,
}

impl Building {
    pub(crate) fn new(kind: BuildingKind, serial: u32, cell: Cell) -> Self {
        let hp = kind.rules().hp;
        Self {
            kind,
            serial,
            hp,
            marked_hp: hp,
            cell,
            rally: None,
            cooldown: 0,
            is_repaired: false,
            is_off: false,
        }
    }

    #[inline]
    pub(crate) const fn rules(&self) -> &'static BuildingRules {
        self.kind.rules()
    }

    /// Returns the cell in its middle.
    #[inline]
    pub(crate) const fn middle(&self) -> Cell {
        middle_of(self.kind, self.cell)
    }

    /// Returns the cell of it that is nearest to another.
    pub(crate) fn nearest(&self, to: Cell) -> Cell {
        let last = self.rules().size - 1;
        let near = |to: u8, first: u8| to.clamp(first, first + last);
        Cell::new(near(to.x, self.cell.x), near(to.y, self.cell.y))
    }

    /// Returns the hit points in percent, at least 1 while it stands.
    pub(crate) fn hp_percent(&self) -> i64 {
        i64::from((self.hp * 100 / self.rules().hp).max(1))
    }

    /// Returns what an enemy sees of it.
    pub(crate) fn sighting(&self) -> Sighting {
        let Self { kind, serial, cell, .. } = *self;
        Sighting { kind, serial, cell, hp_percent: self.hp_percent() as u8 }
    }

    /// Returns what selling it gives.
    pub(crate) fn sell_value(&self) -> i32 {
        let BuildingRules { cost, hp, .. } = *self.rules();
        cost / 2 * self.hp / hp
    }
}

/// Returns the cells that a building of that kind takes at a cell, as far as a grid has them.
pub(crate) fn footprint(kind: BuildingKind, at: Cell) -> impl Iterator<Item = Cell> {
    let size = i32::from(kind.rules().size);
    (0..size).flat_map(move |y| (0..size).filter_map(move |x| at.shifted(x, y)))
}

/// Returns the cell in the middle of a building of that kind whose upper left cell is `at`.
pub(crate) const fn middle_of(kind: BuildingKind, at: Cell) -> Cell {
    let half = (kind.rules().size - 1) / 2;
    Cell::new(at.x + half, at.y + half)
}
