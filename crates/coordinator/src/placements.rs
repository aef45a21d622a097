//! The placements of sessions that may be alive, and their nodes.
//!
//! ```text
//! (asked for) -> opening, wanted -> open, wanted -> unwanted -> (gone: the node said so, or it is another boot)
//!                opening, unwanted ----------------^
//! ```
//!
//! A node may claim placements of an earlier coordinator, a bounded number of them.
//!
//! A placement counts against its node's capacity from before the node is asked to open it until the node has said
//! that it is gone. That may be longer than its pool lives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rollhouse_core::{EnvId, Holdings, RunId};
use rollhouse_wire::{Incarnation, SessionId};

use crate::limits::{MAX_CLAIMS, MAX_NODE_CLAIMS};

/// One placement of one session.
pub(crate) type Key = (SessionId, Incarnation);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) node: Arc<str>,
    pub(crate) load: PlacedLanes,
    /// Whether an earlier coordinator placed it, as its node says.
    claimed: bool,
    wanted: bool,
    /// Whether the node was asked to open it and has not answered.
    opening: bool,
    /// Whether the node was asked to close it and has not answered.
    closing: bool,
}

/// The lanes of a placement, as they count on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedLanes {
    /// The env that they weigh by.
    pub(crate) env: EnvId,
    pub(crate) lanes: u32,
    /// Number of worker processes that step them, as far as the env's terms there tell.
    pub(crate) processes: u32,
}

/// All placements, by name and by node.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    all: BTreeMap<Key, Placement>,
    by_node: BTreeMap<Arc<str>, OnNode>,
    removed: u64,
    /// Number of claimed placements.
    claimed: usize,
}

#[derive(Debug, Default)]
struct OnNode {
    held: Holdings,
    keys: BTreeSet<Key>,
    unwanted: BTreeSet<Key>,
    /// Number of those that are claimed.
    claimed: usize,
}

impl Placements {
    /// Adds a placement that the node is being asked for.
    pub(crate) fn ask(&mut self, key: Key, node: &Arc<str>, load: PlacedLanes) {
        self.insert(key, node, load, false);
    }

    /// Adds a placement that the node claims to have from an earlier coordinator, unless there is one of that name. What
    /// one node claims takes nothing from another.
    pub(crate) fn claim(&mut self, key: Key, node: &Arc<str>, load: PlacedLanes) {
        if !self.all.contains_key(&key) {
            self.insert(key, node, load, true);
        }
    }

    fn insert(&mut self, key: Key, node: &Arc<str>, load: PlacedLanes, claimed: bool) {
        let on = self.by_node.entry(Arc::clone(node)).or_default();
        on.held.add(&load.env, load.lanes, load.processes);
        on.keys.insert(key);
        on.claimed += usize::from(claimed);
        self.claimed += usize::from(claimed);
        let (node, opening) = (Arc::clone(node), !claimed);
        self.all.insert(key, Placement { node, load, claimed, wanted: true, opening, closing: false });
    }

    /// Returns whether a node may claim another placement.
    pub(crate) fn takes_claims_of(&self, node: &str) -> bool {
        let own = self.by_node.get(node).map_or(0, |on| on.claimed);
        own < MAX_NODE_CLAIMS && self.claimed < MAX_CLAIMS
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Placement> {
        self.all.get(key)
    }

    /// Returns whether the placement is wanted, if it is on that node.
    pub(crate) fn wanted_on(&self, key: &Key, node: &str) -> Option<bool> {
        self.all.get(key).filter(|p| &*p.node == node).map(|p| p.wanted)
    }

    /// Marks the placement as unwanted: it is to be closed.
    pub(crate) fn unwant(&mut self, key: &Key) {
        let Some(placement) = self.all.get_mut(key) else { return };
        placement.wanted = false;
        if let Some(on) = self.by_node.get_mut(&placement.node) {
            on.unwanted.insert(*key);
        }
    }

    /// Notes that the node has answered the request to open it, or never will.
    pub(crate) fn open_answered(&mut self, key: &Key) {
        if let Some(placement) = self.all.get_mut(key) {
            placement.opening = false;
        }
    }

    /// Notes that the node has answered the request to close it, or never will.
    pub(crate) fn close_answered(&mut self, key: &Key) {
        if let Some(placement) = self.all.get_mut(key) {
            placement.closing = false;
        }
    }

    /// Removes the placement, which is gone from its node.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Placement> {
        let placement = self.all.remove(key)?;
        self.removed += 1;
        self.claimed -= usize::from(placement.claimed);
        if let Some(on) = self.by_node.get_mut(&placement.node) {
            let PlacedLanes { env, lanes, processes } = &placement.load;
            on.held.remove(env, *lanes, *processes);
            on.keys.remove(key);
            on.unwanted.remove(key);
            on.claimed -= usize::from(placement.claimed);
            if on.keys.is_empty() {
                self.by_node.remove(&placement.node);
            }
        }
        Some(placement)
    }

    /// Returns how many placements were ever removed.
    pub(crate) const fn removed(&self) -> u64 {
        self.removed
    }

    /// Returns the unwanted placements of a node about which nothing is being asked, and marks them as being asked to
    /// close.
    pub(crate) fn begin_closing(&mut self, node: &str) -> Vec<Key> {
        let Some(on) = self.by_node.get(node) else { return Vec::new() };
        let mut begun = Vec::new();
        for key in &on.unwanted {
            if let Some(placement) = self.all.get_mut(key).filter(|p| !p.opening && !p.closing) {
                placement.closing = true;
                begun.push(*key);
            }
        }
        begun
    }

    /// Returns what a node may be holding; `None` if that is nothing.
    pub(crate) fn held_on(&self, node: &str) -> Option<&Holdings> {
        self.by_node.get(node).map(|on| &on.held)
    }

    /// Returns whether the placement is on that node, wanted or not.
    pub(crate) fn is_on(&self, key: &Key, node: &str) -> bool {
        self.by_node.get(node).is_some_and(|on| on.keys.contains(key))
    }

    /// Returns the placements of a pool's sessions, earlier ones of the same session among them.
    pub(crate) fn of_pool(&self, pool: RunId) -> impl Iterator<Item = (&Key, &Arc<str>)> {
        let (first, last) = (SessionId { pool, index: 0 }, SessionId { pool, index: u32::MAX });
        let newest = Incarnation { term: u64::MAX, counter: u64::MAX };
        let placed = self.all.range((first, Incarnation::default())..=(last, newest));
        placed.map(|(key, placement)| (key, &placement.node))
    }

    /// Returns the placements that a node claims.
    pub(crate) fn claimed_by(&self, node: &str) -> Vec<Key> {
        let is_claimed = |key: &Key| self.all.get(key).is_some_and(|placement| placement.claimed);
        let keys = self.by_node.get(node).into_iter().flat_map(|on| on.keys.iter().copied());
        keys.filter(is_claimed).collect()
    }

    /// Returns the placements of a node.
    pub(crate) fn on(&self, node: &str) -> Vec<Key> {
        self.by_node.get(node).map(|on| on.keys.iter().copied().collect()).unwrap_or_default()
    }
}
