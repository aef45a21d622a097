//! Nodes that have seen a later coordinator than the one that they ask.

use rollhouse_coordinator::{Event, MAX_TERM, Reply};
use rollhouse_wire::{Refusal, RefusalCode, Register, SeenTerm, StoreStatus};

use super::stage::{Stage, asker, open_pool, register_of};

fn seen(term: u64, boot: u64) -> Box<Register> {
    Box::new(Register { seen: Some(SeenTerm { term, boot }), ..*register("n", 1) })
}

fn register(node: &str, boot: u64) -> Box<Register> {
    register_of(node, boot, 7)
}

/// Why the node's registration is refused.
fn refusal(stage: &mut Stage, register: Box<Register>) -> Refusal {
    stage.try_register("n", register).unwrap_err()
}

/// Symptom, cause, fix: as in `tests/tests/restoring.rs`.
#[test]
fn a_node_without_sessions_that_has_seen_a_later_coordinator_is_refused_with_the_term_that_is_needed() {
    let mut stage = Stage::new(5, &[]);
    for later in [seen(6, 1), seen(5, 6)] {
        let term = later.seen.unwrap().term;
        let refused = refusal(&mut stage, later);
        assert_eq!(refused.code, RefusalCode::Stale);
        assert!(refused.message.contains(&format!("--least-term {}", term + 1)), "{refused}");
    }
    let status = stage.cluster.status(stage.now, "test", StoreStatus::default());
    assert!(status.is_behind());
    let (ticket, request) = (stage.ticket(), Box::new(open_pool(4)));
    let pool = match stage.tell(Event::OpenPool { ticket, asker: asker("ada"), request }) {
        Some(Reply::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert!(pool.code == RefusalCode::Busy && pool.message.contains("--least-term"), "{pool}");
    // This very coordinator, an earlier one, and none.
    for known in [seen(5, 5), seen(4, 9), seen(5, 0), register("n", 1)] {
        stage.try_register("n", known).unwrap();
    }
    assert_eq!(stage.cluster.status(stage.now, "test", StoreStatus::default()).behind, None);
}

#[test]
fn a_node_that_has_seen_an_absurd_term_is_refused_for_that_and_counts_for_nothing() {
    let mut stage = Stage::new(5, &[]);
    assert_eq!(refusal(&mut stage, seen(MAX_TERM, 1)).code, RefusalCode::BadRequest);
    let term = Register { term: u64::MAX, ..*register("n", 1) };
    assert_eq!(refusal(&mut stage, Box::new(term)).code, RefusalCode::BadRequest);
    assert_eq!(stage.cluster.status(stage.now, "test", StoreStatus::default()).behind, None);
}

#[test]
fn one_node_among_many_that_have_joined_does_not_make_a_coordinator_behind() {
    let mut stage = Stage::new(5, &["a", "b"]);
    refusal(&mut stage, seen(6, 1));
    let status = stage.cluster.status(stage.now, "test", StoreStatus::default());
    assert!(status.behind.is_some() && !status.is_behind());
    stage.open_pool(4);
}
