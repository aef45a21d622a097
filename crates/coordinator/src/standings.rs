//! Log lines about the nodes: each change of a node's state is logged once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use rollhouse_wire::{NodeState, Takes, Unfit, UnfitReason};
use tracing::{info, warn};

/// The state of a node.
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    pub(crate) node: &'a Arc<str>,
    pub(crate) address: &'a str,
    pub(crate) state: NodeState,
    pub(crate) unfit: Option<Cow<'a, Unfit>>,
}

/// The nodes as they were at the last look.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    nodes: BTreeMap<Arc<str>, Known>,
}

/// A node as it was at the last look.
#[derive(Debug)]
struct Known {
    state: NodeState,
    address: String,
    /// The sessions that it took if it was unfit, and why it was.
    unfit: Option<(Takes, UnfitReason)>,
}

/// A change in one sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The node's name; empty if the change is not about one node.
    node: Arc<str>,
    is_warning: bool,
    what: String,
}

impl Change {
    pub(crate) fn log(&self) {
        let Self { node, is_warning, what } = self;
        if *is_warning { warn!(%node, "{what}") } else { info!(%node, "{what}") }
    }
}

impl Standings {
    /// Takes the states of the nodes and returns the changes, the first [`MAX_LINES`] of them.
    pub(crate) fn update<'a>(&mut self, now: impl Iterator<Item = Standing<'a>>) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.nodes);
        let mut changes = Vec::new();
        let mut note = |node: &Arc<str>, is_warning, what| {
            changes.push(Change { node: Arc::clone(node), is_warning, what });
        };
        for Standing { node, address, state, unfit } in now {
            let trouble = unfit.as_ref().map(|unfit| (unfit.takes, unfit.reason));
            let known = before.remove(node);
            match &known {
                Some(known) if known.state == state => {}
                Some(known) => {
                    let what = format!("node {node} is {}, it was {}", word(state), word(known.state));
                    note(node, state == NodeState::Lost, what);
                }
                None => {
                    note(node, false, format!("node {node} has joined: {}, at {address}", word(state)));
                }
            }
            if let Some(known) = known.as_ref().filter(|known| known.address != address) {
                note(node, false, format!("node {node} is reached at {address}, it was {}", known.address));
            }
            if known.and_then(|known| known.unfit) != trouble {
                match &unfit {
                    Some(unfit) => note(node, true, format!("node {node} {}: {}", unfit.takes, unfit.why)),
                    None => note(node, false, format!("node {node} takes sessions again as any other")),
                }
            }
            let known = Known { state, address: address.to_owned(), unfit: trouble };
            self.nodes.insert(Arc::clone(node), known);
        }
        before.into_keys().for_each(|node| note(&node, false, format!("node {node} has gone")));
        if changes.len() > MAX_LINES {
            let more = changes.len() - MAX_LINES;
            changes.truncate(MAX_LINES);
            let what = format!("{more} more changes of nodes");
            changes.push(Change { node: "".into(), is_warning: true, what });
        }
        changes
    }
}

const fn word(state: NodeState) -> &'static str {
    match state {
        NodeState::Alive => "alive",
        NodeState::Suspect => "suspect",
        NodeState::Lost => "lost",
        NodeState::Draining => "draining",
    }
}

/// Number of lines of one look: when a network falls apart, the log stays readable.
const MAX_LINES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn update(standings: &mut Standings, now: &[(&str, NodeState)]) -> Vec<String> {
        update_with(standings, now, None)
    }

    fn update_with(
        standings: &mut Standings,
        now: &[(&str, NodeState)],
        unfit: Option<Unfit>,
    ) -> Vec<String> {
        update_at(standings, "h:1", now, unfit)
    }

    fn update_at(
        standings: &mut Standings,
        address: &str,
        now: &[(&str, NodeState)],
        unfit: Option<Unfit>,
    ) -> Vec<String> {
        let names: Vec<Arc<str>> = now.iter().map(|&(node, _)| node.into()).collect();
        let all = names.iter().zip(now).map(|(node, &(_, state))| {
            let unfit = unfit.as_ref().map(Cow::Borrowed);
            Standing { node, address, state, unfit }
        });
        standings.update(all).into_iter().map(|change| change.what).collect()
    }

    #[test]
    fn that_a_node_is_unfit_and_that_it_is_not_any_more_is_said_once_and_why() {
        let mut standings = Standings::default();
        let a = [("a", NodeState::Alive)];
        assert_eq!(update(&mut standings, &a).len(), 1);
        let unfit = |why: &str| {
            Some(Unfit { takes: Takes::Unrecorded, reason: UnfitReason::Disk, why: why.to_owned() })
        };
        let said = update_with(&mut standings, &a, unfit("its disk is full"));
        assert_eq!(said, ["node a takes no new sessions that are recorded: its disk is full"]);
        assert!(update_with(&mut standings, &a, unfit("its disk has 3 bytes")).is_empty());
        assert_eq!(update(&mut standings, &a), ["node a takes sessions again as any other"]);
        assert!(update(&mut standings, &a).is_empty());
    }

    #[test]
    fn each_change_is_said_once() {
        let mut standings = Standings::default();
        let (a, b) = (("a", NodeState::Alive), ("b", NodeState::Alive));
        assert_eq!(update(&mut standings, &[a]), ["node a has joined: alive, at h:1"]);
        assert_eq!(update(&mut standings, &[a, b]), ["node b has joined: alive, at h:1"]);
        let lost = [("a", NodeState::Lost), b];
        assert_eq!(update(&mut standings, &lost), ["node a is lost, it was alive"]);
        assert!(update(&mut standings, &lost).is_empty());
        assert_eq!(update(&mut standings, &[b]), ["node a has gone"]);
    }

    /// Symptom: the log said neither that a node was reached at another address than before, nor that its trouble had
    /// become another. Cause: state and `takes` alone were compared. Fix: address and reason are, too.
    #[test]
    fn another_address_of_a_node_and_another_trouble_are_said_once() {
        let mut standings = Standings::default();
        let a = [("a", NodeState::Alive)];
        update(&mut standings, &a);
        let moved = update_at(&mut standings, "h:2", &a, None);
        assert_eq!(moved, ["node a is reached at h:2, it was h:1"]);
        let last = |reason, why: &str| Some(Unfit { takes: Takes::Last, reason, why: why.to_owned() });
        let full = update_at(&mut standings, "h:2", &a, last(UnfitReason::SpoolFull, "its spool is full"));
        assert_eq!(full, ["node a is given sessions last: its spool is full"]);
        let alone = last(UnfitReason::Unreached, "`ada` did not reach it");
        let alone = update_at(&mut standings, "h:2", &a, alone);
        assert_eq!(alone, ["node a is given sessions last: `ada` did not reach it"]);
    }

    #[test]
    fn of_many_changes_at_once_the_first_are_said_and_the_others_counted() {
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), NodeState::Alive)).collect();
        let said = update(&mut Standings::default(), &all);
        assert_eq!(said.len(), MAX_LINES + 1);
        assert_eq!(said.last().unwrap(), "68 more changes of nodes");
    }
}
