//! Lists that are longer than a message come in pages, in which each item is there once.

use std::collections::BTreeMap;

use rollhouse_wire::limits::MAX_LABELS;
use rollhouse_wire::{EnvPlace, ListAfter, NodeList, NodeStatus, OfferedEnv, ReadGrant, Register, SessionId};

use crate::deciding::stage::{Stage, register_of, spec};

const NODES: usize = 400;

/// A cluster of nodes of which a message does not have all: each has long labels and envs of its own.
fn large() -> Stage {
    let mut stage = Stage::new(3, &[]);
    let labels: BTreeMap<String, String> =
        (0..MAX_LABELS).map(|at| (format!("label-{at}"), "v".repeat(100))).collect();
    for number in 0..NODES {
        let name: &'static str = format!("node-{number:04}").leak();
        let envs = (0..40).map(|env| (format!("of/{}-{number}-{env}", "e".repeat(90)), 7));
        let envs = envs.chain([("CartPole-v1".to_owned(), spec().dynamics_hash)]).collect();
        let labels = labels.clone();
        let register = Register { labels, envs, ..*register_of(name, 1, spec().dynamics_hash) };
        stage.try_register(name, Box::new(register)).unwrap();
    }
    stage
}

/// All items of a list, and the number of its pages.
fn all<T, K>(page: impl Fn(Option<K>) -> (Vec<T>, u32), key: impl Fn(&T) -> K) -> (Vec<T>, usize) {
    let (mut items, mut pages) = (Vec::new(), 0);
    loop {
        let (more, omitted) = page(items.last().map(&key));
        pages += 1;
        assert!(!more.is_empty());
        items.extend(more);
        if omitted == 0 {
            return (items, pages);
        }
    }
}

/// Symptom: `nodes`, `sessions` and `envs` of a large cluster showed the beginning, and nobody saw the rest. Cause: a list
/// was cut to a message. Fix: whoever asks says behind which item it goes on.
#[test]
fn all_nodes_envs_and_sessions_of_a_large_cluster_are_there_once_in_pages() {
    let mut stage = large();
    stage.open_pool(NODES as u32);
    let (cluster, now) = (&stage.cluster, stage.now);
    let nodes = |after| {
        let NodeList { nodes, omitted } = cluster.nodes_after(now, &ListAfter { after });
        (nodes, omitted)
    };
    let (nodes, pages) = all(nodes, |node: &NodeStatus| node.node.clone());
    assert!(nodes.len() == NODES && pages > 1, "{} nodes on {pages} pages", nodes.len());
    assert!(nodes.is_sorted_by(|a, b| a.node < b.node));
    let envs = |after: Option<EnvPlace>| {
        let list = cluster.envs_after(now, &ListAfter { after });
        (list.envs, list.omitted)
    };
    let (envs, pages) = all(envs, OfferedEnv::place);
    assert!(envs.len() == 40 * NODES + 1 && pages > 1, "{} envs on {pages} pages", envs.len());
    assert!(envs.is_sorted_by(|a, b| a.place() < b.place()));
    let sessions = |after: Option<SessionId>| {
        let list = cluster.sessions_of(&ReadGrant::All, &ListAfter { after });
        (list.sessions, list.omitted)
    };
    let (sessions, _) = all(sessions, |session| session.report.session);
    assert!(!sessions.is_empty() && sessions.is_sorted_by(|a, b| a.report.session < b.report.session));
    let behind = sessions[0].report.session;
    let rest = cluster.sessions_of(&ReadGrant::All, &ListAfter { after: Some(behind) });
    assert_eq!(rest.sessions.len(), sessions.len() - 1, "a page begins behind the item it is asked for");
}
