//! Whose recordings, pools and sessions a peer may read.

use std::collections::BTreeSet;
use std::fmt;

use rollhouse_core::RunId;
use serde::{Deserialize, Serialize};

use crate::{Role, is_name, is_pool_of};

/// The owners whose recordings, pools and sessions may be read. In JSON `"all"`, or `{"owners": [...]}`.
///
/// An owner is the name in a certificate, or name and id of a token, as in `ada:1f2e3d4c`. In what is granted to a token
/// a bare name stands for the certificate and for every token of that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadGrant {
    /// Those of all owners, and recordings that are nobody's: of runs that no pool was opened for.
    All,
    /// Those of these owners.
    Owners(BTreeSet<String>),
}

impl ReadGrant {
    /// Returns the grant that reads nothing.
    pub const fn none() -> Self {
        Self::Owners(BTreeSet::new())
    }

    /// Reads the words of a command: owners, or `all`.
    ///
    /// # Errors
    /// [`BadReadGrant`] if a word is no owner's name, or there are too many.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, BadReadGrant> {
        let mut owners = BTreeSet::new();
        for word in words {
            if word == ALL {
                return Ok(Self::All);
            }
            if !is_owner(word) {
                return Err(BadReadGrant::Owner(word.chars().take(200).collect()));
            }
            owners.insert(word.to_owned());
        }
        if owners.len() > MAX_READ_OWNERS {
            Err(BadReadGrant::TooMany(owners.len()))
        } else {
            Ok(Self::Owners(owners))
        }
    }

    /// Returns what the holder of a role may read: an admin everything; a viewer what it was granted, or everything; a
    /// trainer what it was granted. Both read what is their `own` in any case, and other roles nothing.
    pub fn of_role(role: Role, own: String, granted: Option<Self>) -> Self {
        let mut owners = match (role, granted) {
            (Role::Admin, _) | (Role::Viewer, None) | (Role::Viewer | Role::Trainer, Some(Self::All)) => {
                return Self::All;
            }
            (Role::Viewer | Role::Trainer, Some(Self::Owners(owners))) => owners,
            (Role::Trainer, None) => BTreeSet::new(),
            (Role::Anonymous | Role::Join | Role::Node | Role::Coordinator, _) => return Self::none(),
        };
        owners.insert(own);
        Self::Owners(owners)
    }

    /// Returns whether everything may be read.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Returns whether the sessions of that owner may be read.
    pub fn has_owner(&self, owner: &str) -> bool {
        match self {
            Self::All => true,
            Self::Owners(owners) => owners.contains(owner),
        }
    }

    /// Returns whether that run, or the pool of that id, may be read: the id tells its owner.
    pub fn has_run(&self, run: RunId) -> bool {
        match self {
            Self::All => true,
            Self::Owners(owners) => owners.iter().any(|owner| is_pool_of(owner, run)),
        }
    }
}

/// Prints `all`, or the owners.
impl fmt::Display for ReadGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str(ALL),
            Self::Owners(owners) => {
                for (at, owner) in owners.iter().enumerate() {
                    write!(f, "{}{owner}", if at == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

/// The reason why words are no grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReadGrant {
    /// The word names no owner.
    #[error("`{0}` is not an owner; an owner is NAME or NAME:ID, as `rollhouse sessions` shows it, or `all`")]
    Owner(String),
    /// There are more owners than a token may name.
    #[error("{0} owners are named, a token may read those of at most {MAX_READ_OWNERS}, or `all`")]
    TooMany(usize),
}

fn is_owner(word: &str) -> bool {
    let (name, id) = word.split_once(':').unwrap_or((word, "0"));
    is_name(name) && is_name(id)
}

/// The word for all owners.
const ALL: &str = "all";
/// Number of owners that a token may name.
pub const MAX_READ_OWNERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_pool_id;

    #[test]
    fn a_trainer_reads_his_own_a_viewer_what_it_was_granted_and_an_admin_everything() {
        let (ada, eve) = (new_pool_id("ada:1"), new_pool_id("eve"));
        let reads = |role, granted: Option<&str>| {
            let granted = granted.map(|words| ReadGrant::of_words(words.split(' ')).unwrap());
            let grant = ReadGrant::of_role(role, "ada:1".to_owned(), granted);
            (grant.has_run(ada), grant.has_run(eve), grant.has_owner("eve"))
        };
        assert_eq!(reads(Role::Trainer, None), (true, false, false));
        assert_eq!(reads(Role::Trainer, Some("bob eve")), (true, true, true));
        assert_eq!(reads(Role::Trainer, Some("all")), (true, true, true));
        assert_eq!(reads(Role::Viewer, None), (true, true, true));
        assert_eq!(reads(Role::Viewer, Some("bob")), (true, false, false), "its own replays");
        assert_eq!(reads(Role::Viewer, Some("eve")), (true, true, true));
        assert_eq!(reads(Role::Admin, None), (true, true, true));
        for role in [Role::Anonymous, Role::Join, Role::Node, Role::Coordinator] {
            assert_eq!(reads(role, Some("all")), (false, false, false), "{role:?}");
        }
        assert!(!ReadGrant::Owners(["ada".to_owned()].into()).has_run(ada), "another owner of that name");
    }

    #[test]
    fn words_that_are_no_owners_and_too_many_of_them_are_refused() {
        for word in ["", "a b", "a:", ":a", "a:b:c", "ä"] {
            assert_eq!(ReadGrant::of_words([word]), Err(BadReadGrant::Owner(word.to_owned())));
        }
        let many: Vec<String> = (0..=MAX_READ_OWNERS).map(|at| format!("o{at}")).collect();
        let refused = ReadGrant::of_words(many.iter().map(String::as_str));
        assert_eq!(refused, Err(BadReadGrant::TooMany(MAX_READ_OWNERS + 1)));
        let grant = ReadGrant::of_words(["bob", "ada:1"]).unwrap();
        assert_eq!(grant.to_string(), "ada:1, bob");
        assert_eq!(serde_json::to_string(&grant).unwrap(), r#"{"owners":["ada:1","bob"]}"#);
        assert_eq!(serde_json::to_string(&ReadGrant::All).unwrap(), r#""all""#);
    }
}
