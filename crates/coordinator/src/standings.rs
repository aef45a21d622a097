//! What an operator's log says of the nodes: each change of how one stands, once.

use std::collections::BTreeMap;
use std::sync::Arc;

use rollhouse_wire::NodeState;

/// How each node stood when it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    nodes: BTreeMap<Arc<str>, NodeState>,
}

impl Standings {
    /// The nodes stand like this now: what has changed, in sentences, the first [`MAX_LINES`] of them.
    pub(crate) fn update(&mut self, now: impl Iterator<Item = (Arc<str>, NodeState)>) -> Vec<String> {
        let mut before = std::mem::take(&mut self.nodes);
        let mut changes = Vec::new();
        for (node, state) in now {
            match before.remove(&node) {
                Some(known) if known == state => {}
                Some(known) => {
                    changes.push(format!("node {node} is {}, it was {}", word(state), word(known)))
                }
                None => changes.push(format!("node {node} has joined: {}", word(state))),
            }
            self.nodes.insert(node, state);
        }
        changes.extend(before.into_keys().map(|node| format!("node {node} has gone")));
        if changes.len() > MAX_LINES {
            let more = changes.len() - MAX_LINES;
            changes.truncate(MAX_LINES);
            changes.push(format!("{more} more nodes have changed"));
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

/// Lines of one look: when a network falls apart, the log stays readable.
const MAX_LINES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn update(standings: &mut Standings, now: &[(&str, NodeState)]) -> Vec<String> {
        standings.update(now.iter().map(|&(node, state)| (node.into(), state)))
    }

    #[test]
    fn each_change_is_said_once() {
        let mut standings = Standings::default();
        let (a, b) = (("a", NodeState::Alive), ("b", NodeState::Alive));
        assert_eq!(update(&mut standings, &[a]), ["node a has joined: alive"]);
        assert_eq!(update(&mut standings, &[a, b]), ["node b has joined: alive"]);
        let lost = [("a", NodeState::Lost), b];
        assert_eq!(update(&mut standings, &lost), ["node a is lost, it was alive"]);
        assert!(update(&mut standings, &lost).is_empty());
        assert_eq!(update(&mut standings, &[b]), ["node a has gone"]);
    }

    #[test]
    fn of_many_changes_at_once_the_first_are_said_and_the_others_counted() {
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let all: Vec<_> = names.iter().map(|name| (name.as_str(), NodeState::Alive)).collect();
        let said = update(&mut Standings::default(), &all);
        assert_eq!(said.len(), MAX_LINES + 1);
        assert_eq!(said.last().unwrap(), "68 more nodes have changed");
    }
}
