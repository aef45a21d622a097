//! Where lanes stand that play by themselves, as their nodes report it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_wire::{NodeLoad, Standing};

use crate::placements::Key;

/// Where lanes stand that play by themselves, by node.
#[derive(Debug, Default)]
pub(crate) struct LaneStandings {
    by_node: BTreeMap<Arc<str>, BTreeMap<Key, Reported>>,
    /// Sessions for which there was no place, with the time since.
    pub(crate) homeless: BTreeMap<Key, Duration>,
}

/// What a node has reported of one placement.
#[derive(Debug, Default)]
struct Reported {
    /// The last of which everything recorded before is in the store.
    safe: Option<Standing>,
    /// A later one, which is safe when so many bytes have left the node's spool.
    next: Option<(u64, Standing)>,
}

impl LaneStandings {
    /// Takes in what a node reports of a placement that it has. It counts at once, or when what lanes recorded `is_needed`, as soon
    /// as that is in the store.
    pub(crate) fn report(
        &mut self,
        node: &Arc<str>,
        key: Key,
        load: &NodeLoad,
        is_needed: bool,
        standing: Standing,
    ) {
        let reported = self.by_node.entry(Arc::clone(node)).or_default().entry(key).or_default();
        if !is_needed {
            reported.safe = Some(standing);
        } else if reported.next.is_none() {
            // A later one would be safe later.
            reported.next = Some((load.spool_left.saturating_add(load.spool_bytes), standing));
        }
    }

    /// Takes in how much has left a node's spool.
    pub(crate) fn shipped(&mut self, node: &str, load: &NodeLoad) {
        for reported in self.by_node.get_mut(node).into_iter().flat_map(BTreeMap::values_mut) {
            let left = |(bytes, _): &mut (u64, Standing)| load.spool_left >= *bytes || load.spool_bytes == 0;
            if let Some((_, standing)) = reported.next.take_if(left) {
                reported.safe = Some(standing);
            }
        }
    }

    /// Takes where the lanes of a placement go on.
    pub(crate) fn take(&mut self, node: &str, key: &Key) -> Option<Standing> {
        let of_node = self.by_node.get_mut(node)?;
        let reported = of_node.remove(key)?;
        if of_node.is_empty() {
            self.by_node.remove(node);
        }
        reported.safe
    }

    /// Forgets a placement that is over.
    pub(crate) fn forget(&mut self, node: &str, key: &Key) {
        self.take(node, key);
        self.homeless.remove(key);
    }
}
