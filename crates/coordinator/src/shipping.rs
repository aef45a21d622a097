//! When what an ended session recorded is in the store.
//!
//! A node ships what it recorded in order and counts the bytes that left its spool. When a heartbeat tells of a
//! session's end, all that the session recorded is among the bytes that have left or still wait; once as many have
//! left, its recording is in the store (or was dropped and counted).

use std::collections::BTreeMap;
use std::sync::Arc;

use rollhouse_core::RunId;
use rollhouse_wire::{NodeLoad, ReportView, SessionEnd};

use crate::limits::{MAX_ENDED_SESSIONS, MAX_NODES};
use crate::placements::Key;

/// Ended sessions whose recordings may not be in the store, by node.
#[derive(Debug, Default)]
pub(crate) struct Shipping {
    by_node: BTreeMap<Arc<str>, BTreeMap<Key, Due>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Its end stands in no heartbeat yet, so no count of bytes is known to cover it.
    Unreported,
    /// An earlier coordinator placed it, and its node has not said whether it is there.
    Unseen,
    /// Its node started anew: the next heartbeat's counts cover it.
    NextHeartbeat,
    /// When so many bytes have left the spool.
    At(u64),
}

impl Shipping {
    /// A session ended, or is to end, that may have recorded something. False if its recording is waited for already.
    pub(crate) fn ended(&mut self, node: &Arc<str>, key: Key) -> bool {
        let waiting = self.by_node.entry(Arc::clone(node)).or_default();
        if let Some(due) = waiting.get_mut(&key) {
            if *due == Due::Unseen {
                *due = Due::Unreported;
            }
            return false;
        }
        add(waiting, key, Due::Unreported);
        true
    }

    /// An earlier coordinator placed a session on a node, and nothing is known of it. False if this cannot be followed
    /// up: there is no such name, or there are too many.
    pub(crate) fn expect_unseen(&mut self, node: &str, key: Key) -> bool {
        if node.is_empty() || !self.by_node.contains_key(node) && self.by_node.len() >= MAX_NODES {
            return false;
        }
        add(self.by_node.entry(node.into()).or_default(), key, Due::Unseen);
        true
    }

    /// A node started anew: its counts begin again, and ends it has not told of stay untold.
    pub(crate) fn restarted(&mut self, node: &str) {
        if let Some(waiting) = self.by_node.get_mut(node) {
            waiting.values_mut().for_each(|due| *due = Due::NextHeartbeat);
        }
    }

    /// A node was heard of, and told of these ends. Pools of sessions whose recordings are in the store now, one for
    /// each session. `sessions` are those that the node has, once it has told of all.
    pub(crate) fn beat(
        &mut self,
        node: &str,
        load: &NodeLoad,
        ended: &[SessionEnd],
        sessions: Option<&ReportView>,
    ) -> Vec<RunId> {
        let Some(waiting) = self.by_node.get_mut(node) else { return Vec::new() };
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
                shipped.push(session.pool);
            }
            waits
        });
        if waiting.is_empty() {
            self.by_node.remove(node);
        }
        shipped
    }

    /// A node is forgotten: what it did not ship stays unshipped.
    pub(crate) fn forget(&mut self, node: &str) {
        self.by_node.remove(node);
    }
}

fn add(waiting: &mut BTreeMap<Key, Due>, key: Key, due: Due) {
    if waiting.len() >= MAX_ENDED_SESSIONS {
        // Its pool never counts as shipped.
        waiting.pop_first();
    }
    waiting.insert(key, due);
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
        }
    }

    fn load(waiting: u64, left: u64) -> NodeLoad {
        NodeLoad { spool_bytes: waiting, spool_left: left, ..NodeLoad::default() }
    }

    #[test]
    fn a_recording_is_in_the_store_when_as_much_has_left_the_spool_as_was_there_at_its_end() {
        let (node, end) = (Arc::from("a"), end(1));
        let mut shipping = Shipping::default();
        shipping.ended(&node, (end.session, end.incarnation));
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
        shipping.ended(&node, (end.session, end.incarnation));
        shipping.restarted("a");
        assert_eq!(shipping.beat("a", &load(70, 0), &[], None), []);
        assert_eq!(shipping.beat("a", &load(0, 70), &[], None), [RunId::from_u128(1)]);
    }
}
