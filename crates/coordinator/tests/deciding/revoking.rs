//! Who is not believed any more loses what it has, at once, and nobody else anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use rollhouse_coordinator::{Event, LinkId, Reply};
use rollhouse_core::RunId;
use rollhouse_wire::{EndCause, NodeState, OpenPool};

use crate::deciding::stage::{POOL, Stage, asked, asker, open_pool};

#[test]
fn a_node_that_is_not_believed_any_more_counts_as_lost_without_a_time_of_silence() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let there = grants.iter().find(|grant| grant.node == "a").unwrap();
    let state = |stage: &Stage| {
        let nodes = stage.cluster.nodes(stage.now).nodes;
        nodes.iter().find(|node| node.node == "a").unwrap().state
    };
    let gone = |stage: &Stage| stage.cluster.pool_status(stage.now, POOL).unwrap().gone;
    stage.tell(Event::LinkRefused { link: LinkId(1) });
    assert_eq!(state(&stage), NodeState::Lost);
    let lost = gone(&stage);
    assert_eq!((lost.len(), lost[0].index, lost[0].cause), (1, there.index, EndCause::NodeLost));
    // Believed again, it has what it had.
    stage.join("a", 1);
    assert_eq!((state(&stage), gone(&stage)), (NodeState::Alive, Vec::new()));
}

#[test]
fn an_owner_that_is_not_admitted_any_more_loses_its_pools_and_gets_no_place_and_others_keep_theirs() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let theirs = stage.open_pool(2);
    let ticket = stage.ticket();
    let kept = OpenPool { pool: RunId::from_u128(8), ..open_pool(2) };
    let request = Box::new(kept.clone());
    let opened = stage.tell(Event::OpenPool { ticket, asker: asker("bob"), request });
    assert!(matches!(opened, Some(Reply::PoolOpened(_))), "{opened:?}");
    assert_eq!(stage.cluster.owners(), BTreeSet::from(["ada", "bob"].map(Arc::from)));

    stage.tell(Event::Revoked { owner: "ada".into(), why: "the token was revoked".to_owned() });
    let closed: BTreeSet<_> = stage.closed.iter().map(|(_, incarnation)| *incarnation).collect();
    assert_eq!(closed, theirs.iter().map(|grant| grant.incarnation).collect());
    let status = |pool| stage.cluster.pool_status(stage.now, pool).unwrap();
    assert_eq!((status(POOL).open, status(kept.pool).open), (0, 2));
    assert!(status(POOL).failures[0].ends_with("the token was revoked"), "{:?}", status(POOL).failures);
    assert_eq!(status(kept.pool).failures, Vec::<String>::new());
    assert_eq!(stage.cluster.owners(), BTreeSet::from(["bob".into()]));
    let placed = stage.opened.len();
    stage.replace_as("ada", asked(&theirs[0], 2)).unwrap_err();
    assert_eq!(stage.opened.len(), placed, "nothing is placed for it");
}
