//! Units and buildings as something that orders and weapons are aimed at.

/// A place of a unit or a building of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Actor {
    Unit(u8),
    Building(u8),
}

/// A certain unit or building. It is not mistaken for a later one that has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) side: u8,
    pub(crate) actor: Actor,
    pub(crate) serial: u32,
}

/// Maximum number of units of a side.
pub(crate) const MAX_UNITS: usize = 64;
/// Maximum number of buildings of a side.
pub(crate) const MAX_BUILDINGS: usize = 32;
/// Number of ids of a side's units and buildings.
const IDS: u8 = (MAX_UNITS + MAX_BUILDINGS) as u8;
/// Number of ids of one's own actors, with 0 for none.
pub(crate) const OWN_IDS: usize = 1 + IDS as usize;
/// Number of ids of all actors, with 0 for none.
pub(crate) const ALL_IDS: usize = 1 + 2 * IDS as usize;

impl Actor {
    /// Returns the id by which a side knows it: its own units from 1, its own buildings, then those of the enemy.
    pub(crate) const fn id(self, is_enemy: bool) -> u8 {
        let place = match self {
            Self::Unit(slot) => slot,
            Self::Building(slot) => MAX_UNITS as u8 + slot,
        };
        1 + place + if is_enemy { IDS } else { 0 }
    }

    /// Returns whether an id is of an enemy's, and which; `None` of 0 and beyond the last.
    pub(crate) const fn of_id(id: u8) -> Option<(bool, Self)> {
        if id == 0 || id as usize >= ALL_IDS {
            return None;
        }
        let (is_enemy, place) = if id > IDS { (true, id - 1 - IDS) } else { (false, id - 1) };
        let actor =
            if place < MAX_UNITS as u8 { Self::Unit(place) } else { Self::Building(place - MAX_UNITS as u8) };
        Some((is_enemy, actor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_that_of_one_actor() {
        for id in 1..ALL_IDS as u8 {
            let (is_enemy, actor) = Actor::of_id(id).unwrap();
            assert_eq!((actor.id(is_enemy), is_enemy), (id, usize::from(id) >= OWN_IDS));
        }
        assert!([0, ALL_IDS as u8, u8::MAX].into_iter().all(|id| Actor::of_id(id).is_none()));
    }
}
