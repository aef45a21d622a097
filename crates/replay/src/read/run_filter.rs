//! Whose runs a reader may see.

use std::fmt;
use std::sync::Arc;

use rollhouse_core::RunId;

/// A choice among runs by the names of owners: the runs of other owners are not there for who reads with it.
#[derive(Clone)]
pub struct RunFilter {
    owners: Arc<[String]>,
    is_of: fn(&str, RunId) -> bool,
}

impl RunFilter {
    /// Makes the filter that lets pass the runs of these owners. `is_of` says whether a run is an owner's, always in the
    /// same way.
    pub fn new(owners: impl IntoIterator<Item = String>, is_of: fn(&str, RunId) -> bool) -> Self {
        Self { owners: owners.into_iter().collect(), is_of }
    }

    /// Returns whether a run is of one of the owners.
    pub fn passes(&self, run: RunId) -> bool {
        self.owners.iter().any(|owner| (self.is_of)(owner, run))
    }
}

/// Two are equal if their owners are.
impl PartialEq for RunFilter {
    fn eq(&self, other: &Self) -> bool {
        self.owners == other.owners
    }
}

impl fmt::Debug for RunFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunFilter").field(&self.owners).finish()
    }
}
