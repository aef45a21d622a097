//! Nodes that are refused because they have seen a later coordinator: this one's folder is older than its cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_wire::{BehindStatus, Refusal, RefusalCode, Register, SeenTerm};

use crate::data::MAX_TERM;
use crate::limits::{BEHIND_KEPT, MAX_NODES};
use crate::membership::out_of_bounds;

/// The nodes that have seen a later coordinator, with the time at which each last said so, and the term.
#[derive(Debug, Default)]
pub(crate) struct Behind(BTreeMap<Arc<str>, (Duration, u64)>);

impl Behind {
    /// Notes that a node has seen that term, and returns what is to be said of all of them.
    fn note(&mut self, now: Duration, node: &str, term: u64) -> BehindStatus {
        // Each has a certificate of its own; more than can join tell nothing that these do not.
        if self.0.len() < MAX_NODES || self.0.contains_key(node) {
            self.0.insert(node.into(), (now, term));
        }
        let nodes = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let greatest = self.status().map_or(term, |status| status.term.max(term));
        BehindStatus { term: greatest, node: node.to_owned(), nodes }
    }

    /// Refuses a node that has seen a later coordinator than `own`: it takes no orders of this one, whose folder is older
    /// than the cluster, or which another took over from.
    pub(crate) fn check(&mut self, now: Duration, own: SeenTerm, register: &Register) -> Result<(), Refusal> {
        let seen = register.seen.unwrap_or_default();
        // An older node says what its sessions have.
        let seen = if register.term > seen.term { SeenTerm { term: register.term, boot: 0 } } else { seen };
        if !own.is_behind(seen) {
            return Ok(());
        }
        if seen.term >= MAX_TERM {
            return Err(out_of_bounds("seen", seen.term, 0, MAX_TERM as usize - 1));
        }
        let behind = self.note(now, &register.node, seen.term);
        Err(Refusal::new(RefusalCode::Stale, behind.to_string()))
    }

    /// Notes that a node has joined.
    pub(crate) fn joined(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Forgets nodes that have not asked for some time: each that is there asks again within seconds.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.0.retain(|_, (asked, _)| now.saturating_sub(*asked) < BEHIND_KEPT);
    }

    /// Returns what is to be said of them; `None` if there are none.
    pub(crate) fn status(&self) -> Option<BehindStatus> {
        let (node, (_, term)) = self.0.iter().max_by_key(|(_, (_, term))| *term)?;
        let nodes = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        Some(BehindStatus { term: *term, node: node.to_string(), nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_term_is_told_until_its_node_joins_or_asks_no_more() {
        let at = Duration::from_secs;
        let mut behind = Behind::default();
        assert_eq!(behind.status(), None);
        behind.note(at(0), "a", 7);
        let said = behind.note(at(1), "b", 5);
        assert_eq!((said.term, said.nodes, said.least_term()), (7, 2, 8));
        assert_eq!(behind.status().map(|status| (status.node, status.nodes)), Some(("a".to_owned(), 2)));
        behind.joined("a");
        assert_eq!(behind.status().map(|status| status.term), Some(5));
        behind.tick(at(1) + BEHIND_KEPT);
        assert_eq!(behind.status(), None);
    }

    #[test]
    fn no_more_are_kept_than_can_join() {
        let mut behind = Behind::default();
        (0..2 * MAX_NODES).for_each(|node| {
            behind.note(Duration::ZERO, &node.to_string(), 3);
        });
        assert_eq!(behind.0.len(), MAX_NODES);
    }
}
