//! Sessions get another place when their owner asks for one, and never have two.

use std::time::Duration;

use rollhouse_coordinator::{Event, LinkId, Reply};
use rollhouse_wire::{
    EndCause, Grant, Heartbeat, Incarnation, RefusalCode, ReplaceSession, SeenTerm, SessionCounts,
    SessionEnd, SessionId, SessionReport, Takes, Unfit, UnfitReason,
};

use crate::deciding::stage::{POOL, Stage, asked, asker, heartbeat, open_pool, register_of, spec};

/// What an earlier coordinator granted, of a pool of two lanes.
fn granted_before() -> Grant {
    Stage::new(1, &["z"]).open_pool(2).remove(0)
}

#[test]
fn a_session_of_a_lost_node_gets_a_place_elsewhere_and_the_old_one_is_fenced() {
    let mut stage = Stage::new(1, &["a", "b", "c"]);
    let grants = stage.open_pool(6);
    stage.lose("a", false);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap();
    let new = stage.replace(lost, 6).unwrap();
    assert!(new.node != "a" && new.incarnation > lost.incarnation && new.secret != lost.secret);
    assert_eq!((new.index, new.first_lane, new.lanes), (lost.index, lost.first_lane, lost.lanes));
    // Asked again, with the placement that the owner knows, the answer is the same.
    assert_eq!(stage.replace(lost, 6).unwrap(), new);
    assert_eq!(stage.opened.iter().filter(|(_, incarnation)| *incarnation == new.incarnation).count(), 1);
    // The old node comes back: what it has is closed.
    stage.links.insert(LinkId(99), "a");
    let ticket = stage.ticket();
    let register = register_of("a", 1, spec().dynamics_hash);
    stage.tell(Event::Register { link: LinkId(99), ticket, node: "a".to_owned(), register });
    assert_eq!(stage.closed, [("a", lost.incarnation)]);
}

#[test]
fn a_session_that_its_owner_misses_is_closed_where_it_was_before_it_is_placed_elsewhere() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let new = stage.replace(&grants[0], 2).unwrap();
    assert_eq!(stage.closed, [(if grants[0].node == "a" { "a" } else { "b" }, grants[0].incarnation)]);
    assert!(new.incarnation > grants[0].incarnation);
}

#[test]
fn a_session_that_is_moved_stays_where_it_is_until_it_has_another_place() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let (here, there) = (grants[0].clone(), grants[1].node.clone());
    let moving = ReplaceSession { moving: true, ..asked(&here, 2) };
    stage.full = if there == "a" { vec!["a"] } else { vec!["b"] };
    let refusal = stage.replace_as("ada", moving.clone()).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert_eq!(stage.closed, []);
    stage.full.clear();
    let new = stage.replace_as("ada", moving).unwrap().grant;
    assert_eq!(new.node, there);
    assert_eq!(stage.closed.len(), 1, "now it is closed where it was");
    assert_eq!(stage.closed[0].1, here.incarnation);
}

/// Symptom: lanes stayed for good on a node that could not record, so that their trainer ended after a minute. Cause: an
/// owner asked for another place only of a node that went away. Fix: he asks when it cannot record, and is given a better
/// node, or none: lanes do not go round among nodes that cannot.
#[test]
fn a_session_is_moved_off_a_node_that_cannot_record_to_a_better_one_only_and_off_one_that_drains_to_any() {
    let unfit = |takes, reason| Some(Unfit { takes, reason, why: "full".to_owned() });
    let disk = unfit(Takes::Unrecorded, UnfitReason::Disk);
    let spool = unfit(Takes::Last, UnfitReason::SpoolFull);
    let shipping = unfit(Takes::Last, UnfitReason::Shipping);
    for (here, there, moves) in [
        (&disk, &None, true),
        (&disk, &shipping, true),
        (&disk, &spool, false),
        (&disk, &disk, false),
        (&spool, &None, true),
        (&spool, &shipping, true),
        (&spool, &spool, false),
        (&shipping, &None, true),
        (&shipping, &spool, false),
        // It has not said so yet.
        (&None, &spool, true),
    ] {
        let mut stage = Stage::new(1, &["a", "b"]);
        let grants = stage.open_pool(2);
        let from = grants[0].clone();
        let tell = |stage: &mut Stage, number| {
            for (link, node) in stage.links.clone() {
                let unfit = if node == from.node { here.clone() } else { there.clone() };
                let told = Heartbeat { unfit, ..heartbeat(number) };
                let ticket = stage.ticket();
                stage.tell(Event::Heartbeat { link, ticket, heartbeat: Box::new(told) });
            }
        };
        tell(&mut stage, 50);
        let moving = ReplaceSession { moving: true, ..asked(&from, 2) };
        let moved = stage.replace_as("ada", moving.clone());
        assert_eq!(moved.is_ok(), moves, "{here:?} {there:?} {moved:?}");
        if !moves {
            assert_eq!(moved.unwrap_err().code, RefusalCode::Busy);
            let ticket = stage.ticket();
            stage.tell(Event::Drain { ticket, node: from.node.clone() });
            let drained = stage.replace_as("ada", moving);
            assert_eq!(drained.is_ok(), *there != disk, "{here:?} {there:?} {drained:?}");
        }
    }
}

#[test]
fn a_coordinator_that_has_just_started_places_by_the_owners_word_once_its_nodes_had_time_to_come_back() {
    let mut before = Stage::new(1, &["a", "b"]);
    let grants = before.open_pool(2);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap();
    let mut stage = Stage::new(2, &["b"]);
    stage.now = Duration::from_secs(1);
    assert_eq!(stage.replace(lost, 2).unwrap_err().code, RefusalCode::Busy);
    stage.now = Duration::from_secs(6);
    stage.beat(LinkId(1));
    let new = stage.replace(lost, 2).unwrap();
    assert_eq!((new.node.as_str(), new.incarnation.term), ("b", 2));
}

/// Symptom: a pool whose owner had lost a node was told that its session "has ended", for good. Cause: a coordinator that had
/// just started knew of an earlier placement only, which the one before had closed, and took its end for that of the
/// placement that the owner had. Fix: the end of an earlier placement ends nothing.
#[test]
fn the_end_of_a_placement_before_the_one_that_the_owner_has_ends_nothing() {
    let mut stage = Stage::new(3, &["a"]);
    let grant = Grant { incarnation: Incarnation { term: 2, counter: 7 }, ..granted_before() };
    let earlier = Incarnation { term: 1, counter: 4 };
    let end = SessionEnd {
        session: SessionId { pool: POOL, index: grant.index },
        incarnation: earlier,
        cause: EndCause::Closed,
        detail: String::new(),
        done: SessionCounts::default(),
        report: Some(Box::new(SessionReport {
            session: SessionId { pool: POOL, index: grant.index },
            incarnation: earlier,
            owner: "ada".to_owned(),
            env: spec().id.into(),
            first_lane: 0,
            lanes: grant.lanes,
            pool_lanes: 2,
            replaces: false,
            launching: false,
            attached: Some(false),
            transport: None,
            done: SessionCounts::default(),
            replay: None,
            plays: None,
        })),
        unreached: false,
    };
    let ticket = stage.ticket();
    let beat = Box::new(Heartbeat { ended: vec![end], ..heartbeat(1) });
    stage.tell(Event::Heartbeat { link: LinkId(1), ticket, heartbeat: beat });
    let new = stage.replace(&grant, 2).unwrap();
    assert_eq!((&*new.node, new.incarnation.term), ("a", 3));
}

/// Symptom: after a restore a placement was given a second time, to a node that had seen nothing of the coordinator before,
/// and an owner whose lanes a later coordinator had placed got a placement that was older than its own. Cause: only nodes
/// were asked what they had seen, and each coordinator counted its placements from 1. Fix: what the owner has shows it as
/// well, and coordinators of the same term count from different numbers.
#[test]
fn an_owner_whose_lanes_another_coordinator_placed_in_this_term_or_a_later_one_gets_no_place_of_this_one() {
    for (term, counter) in [(3, 1), (2, 7), (2, 1 << 30), (u64::MAX, 1)] {
        let mut stage = Stage::new(2, &["a"]);
        let grant = Grant { incarnation: Incarnation { term, counter }, ..granted_before() };
        let refusal = stage.replace(&grant, 2).unwrap_err();
        let needed = format!("--least-term {}", term.saturating_add(1));
        assert!(refusal.code == RefusalCode::Busy && refusal.message.contains(&needed), "{refusal:?}");
        assert_eq!(stage.opened, []);
        assert!(
            stage.cluster.pool_status(stage.now, POOL).is_err(),
            "its word is no reason to know the pool"
        );
    }
}

#[test]
fn two_coordinators_of_the_same_term_never_give_the_same_placement() {
    let placements = |boot: u64| {
        let mut stage = Stage::of(SeenTerm { term: 2, boot }, &["a", "b"]);
        let grants = stage.open_pool(2);
        let again = stage.replace(&grants[0], 2).unwrap();
        assert!(again.incarnation > grants[0].incarnation, "its own placements it follows");
        [grants[0].incarnation, grants[1].incarnation, again.incarnation]
    };
    let (one, other) = (placements(0x1234_5678_9abc_def0), placements(0x1234_5679_9abc_def0));
    assert!(one.iter().all(|placement| !other.contains(placement)), "{one:?} {other:?}");
}

#[test]
fn a_node_that_dies_while_it_opens_a_session_is_replaced_by_another_one() {
    let mut stage = Stage::new(1, &["a", "b", "c"]);
    let grants = stage.open_pool(3);
    stage.lose("a", false);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap().clone();
    stage.full = vec!["b"];
    assert_eq!(stage.replace(&lost, 3).unwrap().node, "c");
    // No other place at all: later there may be one.
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    stage.lose("a", false);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap().clone();
    stage.full = vec!["b"];
    assert_eq!(stage.replace(&lost, 2).unwrap_err().code, RefusalCode::Busy);
    stage.full.clear();
    assert_eq!(stage.replace(&lost, 2).unwrap().node, "b");
}

#[test]
fn a_pool_whose_only_session_ended_with_its_node_goes_on() {
    let mut stage = Stage::new(1, &["a"]);
    let grants = stage.open_pool(1);
    stage.lose("a", true);
    stage.join("b", 1);
    let new = stage.replace(&grants[0], 1).unwrap();
    assert_eq!(new.node, "b");
    let ticket = stage.ticket();
    let closed = stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: POOL });
    let Some(Reply::PoolClosed(status)) = closed else { panic!("{closed:?}") };
    assert_eq!(status.done.steps, 10);
    assert_eq!(stage.closed.last(), Some(&("b", new.incarnation)));
}

#[test]
fn who_is_not_the_owner_or_asks_for_other_lanes_gets_no_place() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let good = asked(&grants[0], 2);
    let code = |stage: &mut Stage, owner: &str, replace| stage.replace_as(owner, replace).unwrap_err().code;
    assert_eq!(code(&mut stage, "eve", good.clone()), RefusalCode::Forbidden);
    let wrong = [
        ReplaceSession { lanes: 2, ..good.clone() },
        ReplaceSession { index: 7, ..good.clone() },
        ReplaceSession { first_lane: 1, ..good.clone() },
        ReplaceSession { open: open_pool(3), ..good.clone() },
        ReplaceSession { first_lane: u32::MAX, index: 9, ..good.clone() },
    ];
    for replace in wrong {
        assert_eq!(code(&mut stage, "ada", replace), RefusalCode::BadRequest);
    }
    let ticket = stage.ticket();
    stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: POOL });
    assert_eq!(code(&mut stage, "ada", good), RefusalCode::Stale);
}
