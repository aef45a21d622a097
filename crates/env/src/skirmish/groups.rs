//! Groups of units under names of the player's.

use super::actor::MAX_UNITS;
use super::game::Game;

/// Named groups, in the order of their names. Units are known by their serial numbers, so that none is mistaken for a later one
/// with its id.
#[derive(Debug, Clone, PartialEq, Default, Hash)]
pub(crate) struct Groups {
    pub(super) groups: Vec<(String, Vec<u32>)>,
}

/// Maximum number of groups.
pub(crate) const MAX_GROUPS: usize = 16;
/// Maximum number of bytes in a group's name.
pub(crate) const MAX_GROUP_NAME_BYTES: usize = 32;

/// Reason for which there is no such group.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadGroup {
    #[error("a group's name has {bytes} bytes, must have 1 to {MAX_GROUP_NAME_BYTES}")]
    Name { bytes: usize },
    #[error("at most {MAX_GROUPS} groups")]
    Full,
    #[error("no group `{0}`")]
    Unknown(String),
}

impl Groups {
    /// Puts units into a group, beside those that it has if `keeps` them.
    ///
    /// # Errors
    /// If the name is none, or there are too many groups.
    pub(crate) fn assign(&mut self, name: &str, units: &[u32], keeps: bool) -> Result<(), BadGroup> {
        if name.is_empty() || name.len() > MAX_GROUP_NAME_BYTES {
            return Err(BadGroup::Name { bytes: name.len() });
        }
        let place = match self.groups.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(place) => place,
            Err(_) if self.groups.len() == MAX_GROUPS => return Err(BadGroup::Full),
            Err(place) => {
                self.groups.insert(place, (name.to_owned(), Vec::new()));
                place
            }
        };
        let members = &mut self.groups[place].1;
        if !keeps {
            members.clear();
        }
        for unit in units {
            if !members.contains(unit) && members.len() < MAX_UNITS {
                members.push(*unit);
            }
        }
        Ok(())
    }

    /// Returns the places of a group's units that live.
    ///
    /// # Errors
    /// If there is no such group.
    pub(crate) fn members(&self, game: &Game, name: &str) -> Result<Vec<u8>, BadGroup> {
        let group = self.groups.iter().find(|(known, _)| known == name);
        let (_, members) =
            group.ok_or_else(|| BadGroup::Unknown(name.chars().take(MAX_GROUP_NAME_BYTES).collect()))?;
        let units = game.sides[0].units().filter(|(_, unit)| members.contains(&unit.serial));
        Ok(units.map(|(slot, _)| slot).collect())
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|(name, _)| name.as_str())
    }

    /// Forgets units that no longer live, so that a group that is added to has room.
    pub(crate) fn forget_dead(&mut self, game: &Game) {
        for (_, members) in &mut self.groups {
            members.retain(|serial| game.sides[0].units().any(|(_, unit)| unit.serial == *serial));
        }
    }
}
