//! The holdings of owners, counted as pools change.
//!
//! They are looked at whenever a pool is asked for. To count those of all pools then would take the longer the more there
//! are: the ten-thousandth pool would be opened after a look at ten thousand. So what a pool counts for is kept, and only
//! pools that may have changed since are counted anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rollhouse_core::RunId;

/// The pools, sessions and lanes of an owner that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Holding {
    /// Number of pools, including those that are being closed.
    pub(crate) pools: u64,
    /// Number of pools of other owners.
    pub(crate) of_owners: u64,
    /// Number of pools of other admins.
    pub(crate) of_operators: u64,
    /// Number of sessions that nobody has asked to close.
    pub(crate) sessions: usize,
    /// Number of lanes of these sessions, which count against the owner's quota.
    pub(crate) lanes: u64,
}

/// The holdings of all owners.
#[derive(Debug, Default)]
pub(crate) struct OwnerHoldings {
    /// Pools that may have changed since they were counted.
    changed: BTreeSet<RunId>,
    /// What each pool counts for. Pools that count for nothing are left out.
    counted: BTreeMap<RunId, Counted>,
    owners: BTreeMap<Arc<str>, Sum>,
    all: Sum,
}

/// What a pool counts for.
#[derive(Debug)]
struct Counted {
    owner: Arc<str>,
    sum: Sum,
}

/// What an owner may hold.
pub(crate) trait Held {
    /// Returns its owner and what it counts for; `None` for one that has ended, and for one of which only nodes have said whose
    /// it is.
    fn counts_for(&self) -> Option<(Arc<str>, Sum)>;
}

/// What some pools count for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    /// Number of pools of owners that are admins.
    pub(crate) operated: u64,
    /// Number of other pools.
    pub(crate) owned: u64,
    pub(crate) sessions: usize,
    pub(crate) lanes: u64,
}

impl OwnerHoldings {
    /// Notes that a pool may change.
    pub(crate) fn changes(&mut self, id: RunId) {
        self.changed.insert(id);
    }

    /// Forgets a pool that is there no more.
    pub(crate) fn gone(&mut self, id: RunId) {
        self.changed.remove(&id);
        self.uncount(id);
    }

    /// Returns the holding of an owner. `pools` are all that there are.
    pub(crate) fn of<P: Held>(&mut self, owner: &str, pools: &BTreeMap<RunId, P>) -> Holding {
        for id in std::mem::take(&mut self.changed) {
            self.count(id, pools.get(&id));
        }
        let own = self.owners.get(owner).copied().unwrap_or_default();
        debug_assert_eq!((own, self.all), Sum::anew(owner, pools), "whoever changes a pool says so");
        Holding {
            pools: own.operated + own.owned,
            of_owners: self.all.owned - own.owned,
            of_operators: self.all.operated - own.operated,
            sessions: own.sessions,
            lanes: own.lanes,
        }
    }

    fn count(&mut self, id: RunId, pool: Option<&impl Held>) {
        self.uncount(id);
        let Some((owner, sum)) = pool.and_then(Held::counts_for) else { return };
        self.all.add(sum);
        self.owners.entry(Arc::clone(&owner)).or_default().add(sum);
        self.counted.insert(id, Counted { owner, sum });
    }

    fn uncount(&mut self, id: RunId) {
        if let Some(Counted { owner, sum }) = self.counted.remove(&id) {
            self.all.subtract(sum);
            if let Some(own) = self.owners.get_mut(&owner) {
                own.subtract(sum);
                if *own == Sum::default() {
                    self.owners.remove(&owner);
                }
            }
        }
    }
}

impl Sum {
    /// Returns the sum of an owner's pools, and of all, counted anew.
    fn anew(owner: &str, pools: &BTreeMap<RunId, impl Held>) -> (Self, Self) {
        let (mut own, mut all) = (Self::default(), Self::default());
        for (of, sum) in pools.values().filter_map(Held::counts_for) {
            all.add(sum);
            if &*of == owner {
                own.add(sum);
            }
        }
        (own, all)
    }

    const fn add(&mut self, other: Self) {
        self.operated += other.operated;
        self.owned += other.owned;
        self.sessions += other.sessions;
        self.lanes += other.lanes;
    }

    const fn subtract(&mut self, other: Self) {
        self.operated -= other.operated;
        self.owned -= other.owned;
        self.sessions -= other.sessions;
        self.lanes -= other.lanes;
    }
}
