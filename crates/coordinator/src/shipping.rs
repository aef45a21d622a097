//! Tracks when the recordings of ended sessions are in the store.
//!
//! A node ships its recordings in order and counts the bytes that have left its spool. When a heartbeat tells of a
//! session's end, the session's recording is among the bytes that have left or still wait. Once that many have left,
//! its recording is in the store (or was dropped and counted).

use std::collections::BTreeMap;
use std::sync::Arc;

use rollhouse_core::RunId;
use rollhouse_wire::{NodeLoad, ReportView, SessionEnd};

use crate::limits::MAX_UNSHIPPED;
use crate::placements::Key;
use crate::remembered::Remembered;

/// Ended sessions whose recordings may not be in the store, by node.
#[derive(Debug, Default)]
pub(crate) struct Shipping {
    by_node: BTreeMap<Arc<str>, BTreeMap<Key, Due>>,
    /// All of them, so that their number is bounded.
    waiting: Remembered<(Arc<str>, Key)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// No heartbeat has told of its end yet, so no count of bytes is known to cover it.
    Unreported,
    /// An earlier coordinator placed it, and its node has not said whether it is there.
    Unseen,
    /// Its node started anew: the counts in the next heartbeat cover it.
    NextHeartbeat,
    /// Its recording is in the store when this many bytes have left the spool.
    At(u64),
}

impl Shipping {
    /// Adds a session that ended, or is to end, and may have recorded something. Returns false if its recording is
    /// waited for already.
    pub(crate) fn ended(&mut self, node: &Arc<str>, owner: &Arc<str>, key: Key) -> bool {
        if let Some(due) = self.by_node.get_mut(node).and_then(|waiting| waiting.get_mut(&key)) {
            if *due == Due::Unseen {
                *due = Due::Unreported;
            }
            return false;
        }
        self.add(node, owner, key, Due::Unreported);
        true
    }

    /// Adds a session that an earlier coordinator placed on a node and of which nothing is known. Returns false if its
    /// recording is waited for already, because the node has reported it since.
    pub(crate) fn expect_unseen(&mut self, node: &str, owner: &Arc<str>, key: Key) -> bool {
        if self.by_node.get(node).is_some_and(|waiting| waiting.contains_key(&key)) {
            return false;
        }
        self.add(&node.into(), owner, key, Due::Unseen);
        true
    }

    fn add(&mut self, node: &Arc<str>, owner: &Arc<str>, key: Key, due: Due) {
        self.by_node.entry(Arc::clone(node)).or_default().insert(key, due);
        self.waiting.insert((Arc::clone(node), key), owner, 1);
        while self.waiting.len() > MAX_UNSHIPPED {
            // Its pool never counts as shipped.
            let Some((node, key)) = self.waiting.forget() else { break };
            self.drop_due(&node, &key);
        }
    }

    fn drop_due(&mut self, node: &str, key: &Key) {
        let Some(waiting) = self.by_node.get_mut(node) else { return };
        waiting.remove(key);
        if waiting.is_empty() {
            self.by_node.remove(node);
        }
    }

    /// Handles a node that started anew: its counts begin again, and ends that it has not told of stay untold.
    pub(crate) fn restarted(&mut self, node: &str) {
        if let Some(waiting) = self.by_node.get_mut(node) {
            waiting.values_mut().for_each(|due| *due = Due::NextHeartbeat);
        }
    }

    /// Takes in a node's heartbeat, which told of these ends. Returns the pools of sessions whose recordings are in the
    /// store now, one entry for each session. `sessions` are those that the node has, once it has reported all.
    pub(crate) fn beat(
        &mut self,
        node: &str,
        load: &NodeLoad,
        ended: &[SessionEnd],
        sessions: Option<&ReportView>,
    ) -> Vec<RunId> {
        let Some((name, mut waiting)) = self.by_node.remove_entry(node) else { return Vec::new() };
        let covered = load.spool_left.saturating_add(load.spool_bytes);
        for end in ended {
            if let Some(due @ (Due::Unreported | Due::Unseen)) =
                waiting.get_mut(&(end.session, end.incarnation))
            {
                *due = Due::At(covered);
            }
        }
        let mut shipped = Vec::new();
        waiting.retain(|&(session, incarnation), due| {
            match (*due, sessions) {
                (Due::NextHeartbeat, _) => *due = Due::At(covered),
                (Due::Unseen, Some(sessions)) if sessions.has(session, incarnation) => *due = Due::Unreported,
                // It ended, whenever that was, and what it recorded is among the bytes that are counted.
                (Due::Unseen, Some(_)) => *due = Due::At(covered),
                _ => {}
            }
            // Less may leave than was there if a disk failed in between: an empty spool says it too.
            let has_left = |bytes: u64| load.spool_left >= bytes || load.spool_bytes == 0;
            let waits = !matches!(due, Due::At(bytes) if has_left(*bytes));
            if !waits {
                self.waiting.remove(&(Arc::clone(&name), (session, incarnation)));
                shipped.push(session.pool);
            }
            waits
        });
        if !waiting.is_empty() {
            self.by_node.insert(name, waiting);
        }
        shipped
    }

    /// Forgets a node: recordings that it did not ship stay unshipped.
    pub(crate) fn forget(&mut self, node: &str) {
        let Some((name, waiting)) = self.by_node.remove_entry(node) else { return };
        for key in waiting.into_keys() {
            self.waiting.remove(&(Arc::clone(&name), key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_wire::{EndCause, Incarnation, SessionCounts, SessionId};

    fn end(pool: u128) -> SessionEnd {
        SessionEnd {
            session: SessionId { pool: RunId::from_u128(pool), index: 0 },
            incarnation: Incarnation { term: 1, counter: 1 },
            cause: EndCause::Finished,
            detail: String::new(),
            done: SessionCounts::default(),
            report: None,
            unreached: false,
        }
    }

    fn load(waiting: u64, left: u64) -> NodeLoad {
        NodeLoad { spool_bytes: waiting, spool_left: left, ..NodeLoad::default() }
    }

    #[test]
    fn a_recording_is_in_the_store_when_as_much_has_left_the_spool_as_was_there_at_its_end() {
        let (node, end) = (Arc::from("a"), end(1));
        let mut shipping = Shipping::default();
        shipping.ended(&node, &"ada".into(), (end.session, end.incarnation));
        assert_eq!(
            shipping.beat("a", &load(0, 500), &[], None),
            [],
            "its end is not covered by these counts"
        );
        assert_eq!(shipping.beat("a", &load(100, 500), std::slice::from_ref(&end), None), []);
        // Other sessions go on recording: the spool is never empty.
        assert_eq!(shipping.beat("a", &load(300, 599), &[], None), []);
        assert_eq!(shipping.beat("a", &load(900, 600), &[], None), [RunId::from_u128(1)]);
        assert_eq!(shipping.beat("a", &load(0, 9000), &[end], None), [], "it is told once");
    }

    #[test]
    fn what_a_node_recorded_before_it_started_anew_is_shipped_by_the_new_one() {
        let (node, end) = (Arc::from("a"), end(1));
        let mut shipping = Shipping::default();
        shipping.ended(&node, &"ada".into(), (end.session, end.incarnation));
        shipping.restarted("a");
        assert_eq!(shipping.beat("a", &load(70, 0), &[], None), []);
        assert_eq!(shipping.beat("a", &load(0, 70), &[], None), [RunId::from_u128(1)]);
    }

    /// Names of nodes that nobody knows were counted without regard to who had said them: an owner who made up as many
    /// as there may be nodes had everybody's pools never count as shipped after a coordinator's start. What is waited
    /// for is counted by owner, and whoever has most has its oldest forgotten.
    #[test]
    fn made_up_names_of_nodes_leave_what_others_wait_for_as_it_is() {
        let (ada, eve, end) = (Arc::from("ada"), Arc::from("eve"), end(1));
        let mut shipping = Shipping::default();
        for pool in 0..MAX_UNSHIPPED as u128 + 10 {
            let session = SessionId { pool: RunId::from_u128(pool + 2), index: 0 };
            shipping.expect_unseen(&format!("made-up-{}", pool % 5000), &eve, (session, end.incarnation));
        }
        assert!(shipping.expect_unseen("a", &ada, (end.session, end.incarnation)));
        assert_eq!(shipping.waiting.len(), MAX_UNSHIPPED);
        let none = ReportView::default();
        assert_eq!(shipping.beat("a", &load(0, 0), &[], Some(&none)), [RunId::from_u128(1)]);
        (0..5000).for_each(|node| shipping.forget(&format!("made-up-{node}")));
        assert_eq!((shipping.waiting.len(), shipping.by_node.len()), (0, 0));
    }
}
