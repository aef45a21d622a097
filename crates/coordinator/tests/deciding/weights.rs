//! Lanes that weigh something are laid by what nodes have for them, and never beyond a limit.

use std::collections::BTreeMap;

use rollhouse_coordinator::{Event, LinkId, Reply};
use rollhouse_core::{Budget, EnvTerms, RunId, Weight, Workers};
use rollhouse_wire::{Grant, Heartbeat, OpenPool, Refusal, RefusalCode, Register, Spread};

use crate::deciding::stage::{Stage, asked, asker, heartbeat, open_pool, register_of, spec};

/// Terms of lanes that take half a core.
fn half_a_core() -> EnvTerms {
    EnvTerms { cpu_milli: Some(500), ..EnvTerms::default() }
}

/// A cluster of nodes with so many cores, for lanes on those terms.
fn cluster(nodes: &[(&'static str, u64)], terms: &EnvTerms) -> Stage {
    let mut stage = Stage::new(1, &[]);
    for &(node, cores) in nodes {
        let total = Weight { cpu_milli: cores * 1000, memory: 1000 };
        let envs = BTreeMap::from([("CartPole-v1".to_owned(), terms.clone())]);
        stage.join_as(node, |register| register.budget = Some(Budget { total, stated: false, envs }));
    }
    stage
}

impl Stage {
    /// A node joins that describes itself so.
    fn join_as(&mut self, node: &'static str, change: impl FnOnce(&mut Register)) {
        let mut register = register_of(node, 1, spec().dynamics_hash);
        register.capacity = 4096;
        change(&mut register);
        let link = LinkId(self.links.len() as u64 + 1);
        self.links.insert(link, node);
        let (ticket, node) = (self.ticket(), node.to_owned());
        let reply = self.tell(Event::Register { link, ticket, node, register });
        assert!(matches!(reply, Some(Reply::Registered(_))), "{reply:?}");
    }

    fn spread(&mut self, pool: u128, lanes: u32, spread: Spread) -> Result<Vec<Grant>, Refusal> {
        let request = OpenPool { pool: RunId::from_u128(pool), spread, ..open_pool(lanes) };
        let ticket = self.ticket();
        match self.tell(Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(request) }) {
            Some(Reply::PoolOpened(opened)) => Ok(opened.sessions),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }
}

/// The lanes on each node, by name.
fn lanes(grants: &[Grant]) -> BTreeMap<&str, u32> {
    let mut lanes = BTreeMap::new();
    for grant in grants {
        *lanes.entry(grant.node.as_str()).or_default() += grant.lanes;
    }
    lanes
}

#[test]
fn pools_of_heavy_lanes_fill_nodes_evenly_one_after_the_other() {
    let mut stage = cluster(&[("big", 8), ("small", 2)], &half_a_core());
    let even = |stage: &mut Stage, pool, of| stage.spread(pool, of, Spread::Even).unwrap();
    assert_eq!(lanes(&even(&mut stage, 1, 10)), [("big", 8), ("small", 2)].into());
    assert_eq!(lanes(&even(&mut stage, 2, 10)), [("big", 8), ("small", 2)].into());
    assert_eq!(lanes(&even(&mut stage, 3, 20)), [("big", 16), ("small", 4)].into(), "CPU refuses none");
    let ticket = stage.ticket();
    stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: RunId::from_u128(3) });
    let packed = stage.spread(4, 5, Spread::Pack).unwrap();
    assert_eq!(lanes(&packed), [("big", 4), ("small", 1)].into(), "no node has a core for any");
}

#[test]
fn a_session_that_is_placed_anew_goes_where_it_leaves_a_node_least_full() {
    let mut stage = cluster(&[("big", 8), ("lost", 4), ("small", 2)], &half_a_core());
    stage.spread(1, 14, Spread::Even).unwrap();
    stage.full = vec!["big", "small"];
    let request = OpenPool { spread: Spread::Single, ..open_pool(1) };
    let ticket = stage.ticket();
    // By the number of free lanes it would go to the smallest.
    let Some(Reply::PoolOpened(opened)) =
        stage.tell(Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(request.clone()) })
    else {
        panic!("it is opened")
    };
    assert_eq!(lanes(&opened.sessions), [("lost", 1)].into());
    stage.full.clear();
    stage.lose("lost", false);
    let replace = rollhouse_wire::ReplaceSession { open: request, ..asked(&opened.sessions[0], 1) };
    assert_eq!(stage.replace_as("ada", replace).unwrap().grant.node, "big");
}

#[test]
fn a_pool_beyond_a_limit_waits_or_is_refused_with_the_limit_and_what_is_taken() {
    let terms = EnvTerms {
        max_lanes: Some(8),
        max_processes: Some(4),
        workers: Some(Workers { most: 2, lanes: 1 }),
        ..half_a_core()
    };
    let mut stage = cluster(&[("a", 8), ("b", 8)], &terms);
    assert_eq!(lanes(&stage.spread(1, 10, Spread::Even).unwrap()), [("a", 5), ("b", 5)].into());
    let refusal = stage.spread(2, 7, Spread::Even).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    let message = "node `a`: max_lanes of `CartPole-v1` is 8: 5 in use, 7 more asked for";
    assert!(refusal.message.contains(message), "{refusal}");
    assert_eq!(lanes(&stage.spread(3, 6, Spread::Even).unwrap()), [("a", 3), ("b", 3)].into());
    let refusal = stage.spread(4, 17, Spread::Even).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    assert!(refusal.message.starts_with("lanes is 17, must be 1 to 16; node `a`: max_lanes"), "{refusal}");
    let alone = EnvTerms { max_lanes: None, ..terms };
    let mut stage = cluster(&[("a", 8)], &alone);
    for pool in 1..3 {
        assert!(stage.spread(pool, 2, Spread::Even).is_ok());
    }
    let refusal = stage.spread(3, 1, Spread::Even).unwrap_err();
    let message = "max_processes of `CartPole-v1` is 4: 4 in use, 1 more asked for";
    assert!(refusal.message.contains(message), "{refusal}");
}

#[test]
fn memory_that_is_stated_is_never_exceeded_and_what_was_measured_only_spreads() {
    let terms = EnvTerms { memory: Some(100), ..EnvTerms::default() };
    let mut stage = cluster(&[("a", 8), ("b", 8)], &terms);
    assert_eq!(lanes(&stage.spread(1, 20, Spread::Even).unwrap()), [("a", 10), ("b", 10)].into());
    let refusal = stage.spread(2, 1, Spread::Even).unwrap_err();
    assert!(refusal.message.contains("memory is 1 MiB for all lanes"), "{refusal}");
    let mut stage = cluster(&[("a", 8), ("b", 8)], &EnvTerms::default());
    let measured = BTreeMap::from([("CartPole-v1".to_owned(), Weight { cpu_milli: 10, memory: 400 })]);
    let (ticket, heartbeat) = (stage.ticket(), Box::new(Heartbeat { measured, ..heartbeat(100) }));
    stage.tell(Event::Heartbeat { link: LinkId(1), ticket, heartbeat });
    assert_eq!(lanes(&stage.spread(1, 20, Spread::Pack).unwrap()), [("a", 10), ("b", 10)].into());
    assert!(stage.spread(2, 4000, Spread::Even).is_ok());
}

/// Symptom: all lanes of a pool went to the node that had not weighed such lanes yet. Cause: one node's lanes counted as
/// measured and the other's as light. Fix: what one has measured counts for all.
#[test]
fn nodes_of_which_only_one_has_measured_an_env_are_filled_alike() {
    let mut stage = cluster(&[("a", 2), ("b", 2)], &EnvTerms::default());
    let measured = BTreeMap::from([("CartPole-v1".to_owned(), Weight { cpu_milli: 900, memory: 0 })]);
    let (ticket, heartbeat) = (stage.ticket(), Box::new(Heartbeat { measured, ..heartbeat(100) }));
    stage.tell(Event::Heartbeat { link: LinkId(1), ticket, heartbeat });
    assert_eq!(lanes(&stage.spread(1, 4, Spread::Even).unwrap()), [("a", 2), ("b", 2)].into());
}

#[test]
fn a_node_that_tells_too_many_terms_or_weights_is_refused_by_name() {
    let mut stage = Stage::new(1, &["a"]);
    let many = (0..65).map(|number| (number.to_string(), Weight::default())).collect();
    let (ticket, heartbeat) = (stage.ticket(), Box::new(Heartbeat { measured: many, ..heartbeat(1) }));
    let reply = stage.tell(Event::Heartbeat { link: LinkId(1), ticket, heartbeat });
    let Some(Reply::Refused(refusal)) = reply else { panic!("{reply:?}") };
    assert_eq!(refusal.message, "measured is 65, must be 0 to 64");
    let envs = (0..65).map(|number| (number.to_string(), EnvTerms::default())).collect();
    let mut register = register_of("b", 1, spec().dynamics_hash);
    register.budget = Some(Budget { envs, ..Budget::default() });
    let (ticket, node) = (stage.ticket(), "b".to_owned());
    let reply = stage.tell(Event::Register { link: LinkId(9), ticket, node, register });
    let Some(Reply::Refused(refusal)) = reply else { panic!("{reply:?}") };
    assert_eq!(refusal.message, "budget.envs is 65, must be 0 to 64");
}
