//! The tables of rules: what units and buildings cost, stand, see, do and need.

/// Kinds of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum UnitKind {
    Rifle,
    Rocket,
    Buggy,
    Tank,
    Artillery,
    Harvester,
}

/// Kinds of buildings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum BuildingKind {
    Yard,
    PowerPlant,
    Refinery,
    Barracks,
    Factory,
    Silo,
    Turret,
    Radar,
}

use BuildingKind::{Barracks, Factory, PowerPlant, Radar, Refinery, Silo, Turret, Yard};
use UnitKind::{Artillery, Buggy, Harvester, Rifle, Rocket, Tank};

/// Number of kinds of units.
pub(crate) const UNIT_KINDS: usize = 6;
/// Number of kinds of buildings.
pub(crate) const BUILDING_KINDS: usize = 8;

/// Where something is produced, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Line {
    Structures,
    Infantry,
    Vehicles,
}

impl Line {
    pub(crate) const ALL: [Self; 3] = [Self::Structures, Self::Infantry, Self::Vehicles];

    /// Returns the building in which the line works.
    pub(crate) const fn producer(self) -> BuildingKind {
        match self {
            Self::Structures => Yard,
            Self::Infantry => Barracks,
            Self::Vehicles => Factory,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Structures => "structures",
            Self::Infantry => "infantry",
            Self::Vehicles => "vehicles",
        }
    }
}

/// What a hit meets, as a place in [`Weapon::percent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Armour {
    Flesh,
    Steel,
    Stone,
}

/// A weapon.
#[derive(Debug)]
pub(crate) struct Weapon {
    /// Greatest distance of a target, in cells.
    pub(crate) range: u8,
    /// Hit points that a shot takes where it takes all of them.
    pub(crate) damage: i32,
    /// Ticks between two shots.
    pub(crate) reload: u16,
    /// Part of the damage by [`Armour`], in percent.
    pub(crate) percent: [i32; 3],
}

impl Weapon {
    /// Returns the hit points that a shot takes of that armour.
    pub(crate) const fn damage_to(&self, armour: Armour) -> i32 {
        self.damage * self.percent[armour as usize] / 100
    }
}

/// Rules of a kind of unit.
#[derive(Debug)]
pub(crate) struct UnitRules {
    pub(crate) name: &'static str,
    pub(crate) cost: i32,
    pub(crate) hp: i32,
    /// Thousandths (1/1024) of a cell that it moves in a tick.
    pub(crate) speed: u16,
    /// Distance in cells up to which it sees.
    pub(crate) sight: u8,
    pub(crate) armour: Armour,
    pub(crate) weapon: Option<Weapon>,
    /// Ticks that its production takes.
    pub(crate) ticks: u32,
    pub(crate) line: Line,
    pub(crate) needs: &'static [BuildingKind],
}

/// Rules of a kind of building.
#[derive(Debug)]
pub(crate) struct BuildingRules {
    pub(crate) name: &'static str,
    pub(crate) cost: i32,
    pub(crate) hp: i32,
    /// Cells of a side; it is a square.
    pub(crate) size: u8,
    /// Power that it gives, or takes where it is negative.
    pub(crate) power: i32,
    /// Distance in cells up to which it sees.
    pub(crate) sight: u8,
    /// Ore that it holds.
    pub(crate) capacity: i32,
    pub(crate) weapon: Option<Weapon>,
    /// Ticks that its production takes.
    pub(crate) ticks: u32,
    pub(crate) needs: &'static [BuildingKind],
}

impl UnitKind {
    pub(crate) const ALL: [Self; UNIT_KINDS] = [Rifle, Rocket, Buggy, Tank, Artillery, Harvester];

    #[inline]
    pub(crate) const fn rules(self) -> &'static UnitRules {
        &UNITS[self as usize]
    }
}

impl BuildingKind {
    pub(crate) const ALL: [Self; BUILDING_KINDS] =
        [Yard, PowerPlant, Refinery, Barracks, Factory, Silo, Turret, Radar];

    #[inline]
    pub(crate) const fn rules(self) -> &'static BuildingRules {
        &BUILDINGS[self as usize]
    }
}

/// Something that is produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Unit(UnitKind),
    Building(BuildingKind),
}

/// Number of items, with 0 for none.
pub(crate) const ITEM_NUMBERS: usize = 1 + UNIT_KINDS + BUILDING_KINDS;

impl Item {
    /// Returns the item's number in orders and observations: units from 1, then buildings.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Unit(kind) => 1 + kind as u8,
            Self::Building(kind) => (1 + UNIT_KINDS) as u8 + kind as u8,
        }
    }

    /// Returns the item of that number; `None` of 0 and beyond the last.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        let place = usize::from(number).checked_sub(1)?;
        match place.checked_sub(UNIT_KINDS) {
            None => Some(Self::Unit(UnitKind::ALL[place])),
            Some(place) => BuildingKind::ALL.get(place).map(|&kind| Self::Building(kind)),
        }
    }

    /// Returns the item of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        (1..ITEM_NUMBERS as u8).filter_map(Self::of_number).find(|item| item.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unit(kind) => kind.rules().name,
            Self::Building(kind) => kind.rules().name,
        }
    }

    pub(crate) const fn cost(self) -> i32 {
        match self {
            Self::Unit(kind) => kind.rules().cost,
            Self::Building(kind) => kind.rules().cost,
        }
    }

    pub(crate) const fn ticks(self) -> u32 {
        match self {
            Self::Unit(kind) => kind.rules().ticks,
            Self::Building(kind) => kind.rules().ticks,
        }
    }

    pub(crate) const fn line(self) -> Line {
        match self {
            Self::Unit(kind) => kind.rules().line,
            Self::Building(_) => Line::Structures,
        }
    }

    /// Returns the buildings that have to stand before it can be produced.
    pub(crate) const fn needs(self) -> &'static [BuildingKind] {
        match self {
            Self::Unit(kind) => kind.rules().needs,
            Self::Building(kind) => kind.rules().needs,
        }
    }
}

const fn weapon(range: u8, damage: i32, reload: u16, percent: [i32; 3]) -> Option<Weapon> {
    Some(Weapon { range, damage, reload, percent })
}

const BULLETS: [i32; 3] = [100, 35, 25];
const ROCKETS: [i32; 3] = [40, 120, 100];
const SHELLS: [i32; 3] = [50, 100, 70];
const BLASTS: [i32; 3] = [120, 70, 130];

static UNITS: [UnitRules; UNIT_KINDS] = [
    UnitRules {
        name: "rifle",
        cost: 100,
        hp: 60,
        speed: 42,
        sight: 5,
        armour: Armour::Flesh,
        weapon: weapon(4, 9, 15, BULLETS),
        ticks: 75,
        line: Line::Infantry,
        needs: &[Barracks],
    },
    UnitRules {
        name: "rocket",
        cost: 300,
        hp: 50,
        speed: 38,
        sight: 6,
        armour: Armour::Flesh,
        weapon: weapon(5, 34, 50, ROCKETS),
        ticks: 125,
        line: Line::Infantry,
        needs: &[Barracks],
    },
    UnitRules {
        name: "buggy",
        cost: 500,
        hp: 160,
        speed: 110,
        sight: 7,
        armour: Armour::Steel,
        weapon: weapon(4, 12, 10, BULLETS),
        ticks: 150,
        line: Line::Vehicles,
        needs: &[Factory],
    },
    UnitRules {
        name: "tank",
        cost: 800,
        hp: 420,
        speed: 64,
        sight: 6,
        armour: Armour::Steel,
        weapon: weapon(5, 42, 45, SHELLS),
        ticks: 225,
        line: Line::Vehicles,
        needs: &[Factory],
    },
    UnitRules {
        name: "artillery",
        cost: 700,
        hp: 90,
        speed: 50,
        sight: 6,
        armour: Armour::Steel,
        weapon: weapon(9, 80, 120, BLASTS),
        ticks: 225,
        line: Line::Vehicles,
        needs: &[Factory, Radar],
    },
    UnitRules {
        name: "harvester",
        cost: 1000,
        hp: 600,
        speed: 60,
        sight: 4,
        armour: Armour::Steel,
        weapon: None,
        ticks: 250,
        line: Line::Vehicles,
        needs: &[Factory, Refinery],
    },
];

static BUILDINGS: [BuildingRules; BUILDING_KINDS] = [
    building("yard", 2500, 1500, 3, 0, &[Yard]),
    building("power_plant", 300, 400, 2, 100, &[Yard]),
    BuildingRules { capacity: 2000, ..building("refinery", 1500, 900, 3, -30, &[PowerPlant]) },
    building("barracks", 400, 600, 2, -20, &[PowerPlant]),
    building("factory", 1500, 900, 3, -30, &[Refinery]),
    BuildingRules { capacity: 1500, ..building("silo", 150, 300, 1, -10, &[Refinery]) },
    BuildingRules { weapon: weapon(6, 36, 40, SHELLS), ..building("turret", 600, 400, 1, -20, &[Barracks]) },
    BuildingRules { sight: 10, ..building("radar", 1000, 600, 2, -40, &[Factory]) },
];

const fn building(
    name: &'static str,
    cost: i32,
    hp: i32,
    size: u8,
    power: i32,
    needs: &'static [BuildingKind],
) -> BuildingRules {
    let ticks = (50 + cost / 5) as u32;
    BuildingRules { name, cost, hp, size, power, sight: 6, capacity: 0, weapon: None, ticks, needs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_the_numbers_and_names_of_their_own() {
        let items: Vec<_> = (0..=u8::MAX).filter_map(Item::of_number).collect();
        assert_eq!(items.len(), UNIT_KINDS + BUILDING_KINDS);
        for (number, item) in (1..).zip(items) {
            assert_eq!((item.number(), Item::of_name(item.name())), (number, Some(item)));
            assert!(item.cost() > 0 && item.ticks() > 0 && !item.needs().is_empty(), "{item:?}");
        }
    }
}
