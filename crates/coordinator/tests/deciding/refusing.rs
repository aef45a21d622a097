//! Nodes that state more than they show: what they refuse to open goes to others, and they come last for a while.

use rollhouse_coordinator::{CallFailure, Event, LinkId, Reply};
use rollhouse_core::RunId;
use rollhouse_wire::{OpenPool, Refusal, RefusalCode, Spread};

use crate::deciding::stage::{Stage, asker, open_pool, register_of, spec};

/// A cluster with a node that has a large room, refuses everything that it is asked for, and counts it.
fn with_liar(honest: &[&'static str], dynamics: u64, code: RefusalCode) -> Stage {
    let mut stage = Stage::new(1, honest);
    let large = rollhouse_wire::Register { capacity: 1 << 20, ..*register_of("liar", 1, dynamics) };
    let link = LinkId(stage.links.len() as u64 + 1);
    stage.links.insert(link, "liar");
    let ticket = stage.ticket();
    let reply =
        stage.tell(Event::Register { link, ticket, node: "liar".to_owned(), register: Box::new(large) });
    assert!(matches!(reply, Some(Reply::Registered(_))), "{reply:?}");
    stage.liars.insert("liar", CallFailure::Refused(Refusal::new(code, "no")));
    stage
}

fn open(stage: &mut Stage, number: u128) -> Result<Vec<String>, Refusal> {
    let ticket = stage.ticket();
    let request = OpenPool { pool: RunId::from_u128(number), spread: Spread::Pack, ..open_pool(2) };
    match stage.tell(Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(request) }) {
        Some(Reply::PoolOpened(opened)) => Ok(opened.sessions.into_iter().map(|grant| grant.node).collect()),
        Some(Reply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

/// Symptom: a node with other dynamics and a large claimed capacity took every pool of an env and refused it. Cause:
/// among several dynamics those with most stated room were taken, and the refusal of one node was that of the pool.
/// Fix: most nodes decide, and what a node has shown.
#[test]
fn a_node_with_other_dynamics_and_a_large_stated_room_takes_no_pool_from_those_that_agree() {
    for code in [RefusalCode::Busy, RefusalCode::BadRequest, RefusalCode::Internal] {
        let mut stage = with_liar(&["a", "b"], spec().dynamics_hash ^ 1, code);
        for number in 1..20 {
            let nodes = open(&mut stage, number).unwrap();
            assert!(!nodes.contains(&"liar".to_owned()), "{nodes:?}");
        }
        assert_eq!(stage.refused, 0, "it is never asked");
    }
}

#[test]
fn of_two_nodes_that_do_not_agree_the_one_that_opens_sessions_is_asked_from_then_on() {
    let mut stage = with_liar(&["a"], spec().dynamics_hash ^ 1, RefusalCode::Busy);
    assert!(open(&mut stage, 1).is_err(), "nobody has shown anything yet, and it states most room");
    for number in 2..20 {
        assert_eq!(open(&mut stage, number).unwrap(), ["a"]);
        stage.now += std::time::Duration::from_secs(1);
        stage.links.keys().copied().collect::<Vec<_>>().into_iter().for_each(|link| stage.beat(link));
    }
    assert_eq!(stage.refused, 1);
}

/// The refusal of one node that had shown nothing was that of the pool, whatever it said was wrong.
#[test]
fn what_a_node_refuses_for_good_is_asked_of_another_and_the_node_comes_last_if_that_one_opens_it() {
    for code in [RefusalCode::BadRequest, RefusalCode::NotFound, RefusalCode::Forbidden, RefusalCode::Busy] {
        let mut stage = with_liar(&["a", "b"], spec().dynamics_hash, code);
        for number in 1..20 {
            assert!(open(&mut stage, number).is_ok(), "{code:?}");
        }
        assert_eq!(stage.refused, 1, "{code:?}");
    }
}

#[test]
fn what_two_nodes_refuse_for_good_is_refused() {
    let mut stage = with_liar(&["a", "b"], spec().dynamics_hash, RefusalCode::BadRequest);
    for node in ["a", "b"] {
        stage.liars.insert(node, CallFailure::Refused(Refusal::new(RefusalCode::BadRequest, "no")));
    }
    assert_eq!(open(&mut stage, 1).unwrap_err().code, RefusalCode::BadRequest);
    assert_eq!(stage.refused, 2);
}
