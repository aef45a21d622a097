//! What a node says of itself and its sessions may be any numbers: they are bounded or saturate, and stop nobody.

use proptest::prelude::*;
use rollhouse_coordinator::limits::FIRST_LANES;
use rollhouse_coordinator::{Action, Event, LinkId, Reply};
use rollhouse_core::RunId;
use rollhouse_wire::{
    Changes, EndCause, Heartbeat, Incarnation, NodeLoad, SessionCounts, SessionEnd, SessionId, SessionReport,
    StoreStatus, pool_id_of,
};

use rollhouse_wire::OpenPool;

use crate::deciding::stage::{POOL, Stage, asker, heartbeat, open_pool};

fn numbers() -> impl Strategy<Value = u64> {
    let extremes = vec![0, 1, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
    prop_oneof![0u64..100, prop::sample::select(extremes), any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..70, prop::sample::select(vec![65_535, 65_536, 1 << 31, u32::MAX]), any::<u32>()]
}

fn counts() -> impl Strategy<Value = SessionCounts> {
    (numbers(), numbers(), any::<f64>(), numbers()).prop_map(|(steps, episodes, return_sum, interrupted)| {
        SessionCounts { steps, episodes, return_sum, interrupted, ..SessionCounts::default() }
    })
}

prop_compose! {
    fn reports()(
        (pool, index) in (0u128..3, small()),
        (term, counter) in (0u64..4, numbers()),
        (first_lane, lanes, pool_lanes) in (small(), small(), small()),
        done in counts(),
    ) -> SessionReport {
        SessionReport {
            session: SessionId { pool: RunId::from_u128(POOL.as_u128() + pool), index: index % 8 },
            incarnation: Incarnation { term, counter },
            owner: "ada".to_owned(),
            env: "CartPole-v1".into(),
            first_lane,
            lanes,
            pool_lanes,
            replaces: false,
            launching: false,
            attached: Some(true),
            transport: None,
            done,
            replay: None,
            plays: None,
        }
    }
}

fn end_of(report: SessionReport) -> SessionEnd {
    SessionEnd {
        session: report.session,
        incarnation: report.incarnation,
        cause: EndCause::Closed,
        detail: String::new(),
        done: report.done,
        report: Some(Box::new(report)),
        unreached: false,
    }
}

/// A heartbeat that tells of those sessions, and of ends.
fn told(load: NodeLoad, sessions: Vec<SessionReport>, ended: Vec<SessionEnd>, through: u64) -> Heartbeat {
    let changes = Changes { since: 0, through, sessions, more: false };
    Heartbeat { load, changes, ended, ..heartbeat(1) }
}

/// Everything that is asked of a cluster.
fn ask(stage: &Stage) {
    let status = stage.cluster.status(stage.now, "test", StoreStatus::default());
    assert_eq!(status.pools, stage.cluster.status(stage.now, "test", StoreStatus::default()).pools);
    let _lists = (stage.cluster.nodes(stage.now), stage.cluster.sessions());
}

proptest! {
    #[test]
    fn a_node_that_says_any_numbers_costs_nobody_a_pool_and_the_cluster_no_panic(
        loads in prop::collection::vec((numbers(), numbers(), small()), 2),
        sessions in prop::collection::vec(reports(), 0..6),
        ended in prop::collection::vec(reports(), 0..4),
        through in numbers(),
    ) {
        let mut stage = Stage::new(3, &["good", "evil", "worse"]);
        let [_, evil, worse] = [1, 2, 3].map(LinkId);
        for (link, (steps, episodes, lanes)) in [evil, worse].into_iter().zip(loads) {
            let load = NodeLoad { steps, episodes, lanes, spool_bytes: steps, spool_left: episodes, ..NodeLoad::default() };
            let ends = ended.iter().cloned().map(end_of).collect();
            let heartbeat = Box::new(told(load, sessions.clone(), ends, through));
            let ticket = stage.ticket();
            let reply = stage.tell(Event::Heartbeat { link, ticket, heartbeat });
            prop_assert!(matches!(reply, Some(Reply::HeartbeatTaken(_) | Reply::Refused(_))), "{reply:?}");
            ask(&stage);
        }
        stage.lose("evil", false);
        ask(&stage);
        stage.lose("worse", true);
        ask(&stage);
    }
}

/// Asks for a pool, and returns the lanes that each node is asked for, which none of them answers.
fn lay(stage: &mut Stage, number: u128, lanes: u32) -> Vec<(&'static str, u32)> {
    let pool = pool_id_of("ada", RunId::from_u128(number << 64));
    let request = Box::new(OpenPool { pool, ..open_pool(lanes) });
    let event = Event::OpenPool { ticket: stage.ticket(), asker: asker("ada"), request };
    let opens = stage.cluster.handle(stage.now, event).into_iter().filter_map(|action| match action {
        Action::Open { link, request } => Some((stage.links[&link], request.lanes)),
        _ => None,
    });
    opens.collect()
}

fn of_evil(laid: &[(&'static str, u32)]) -> u32 {
    laid.iter().filter(|(node, _)| *node == "evil").map(|(_, lanes)| lanes).sum()
}

/// Symptom: a node that stated a huge capacity was given almost all lanes of every pool until it had refused some. Cause:
/// the room that it stated counted like that of nodes which had opened such lanes. Fix: its first lanes are bounded, of all
/// pools together, until it has opened some.
#[test]
fn a_node_that_states_a_huge_capacity_gets_a_bounded_first_share_until_it_has_opened_such_lanes() {
    let mut stage = Stage::new(1, &[]);
    stage.join_with("a", 2048);
    stage.join_with("b", 2048);
    assert_eq!(stage.open_pool(2).len(), 2);
    stage.join_with("evil", 1 << 20);
    let laid = lay(&mut stage, 1, 3000);
    assert_eq!(laid.iter().map(|(_, lanes)| lanes).sum::<u32>(), 3000);
    assert!(of_evil(&laid) <= FIRST_LANES, "{laid:?}");
    let small: u32 = (2..10).map(|number| of_evil(&lay(&mut stage, number, 64))).sum();
    assert!(of_evil(&laid) + small <= FIRST_LANES, "those of all pools together: {small}");
}

#[test]
fn a_node_that_has_opened_such_lanes_gets_what_it_has_room_for_and_so_does_one_when_no_other_has_room() {
    let mut stage = Stage::new(1, &[]);
    stage.join_with("a", 64);
    stage.join_with("evil", 1 << 14);
    assert!(of_evil(&lay(&mut stage, 1, 4096)) > FIRST_LANES, "no other node has room");
    let mut stage = Stage::new(1, &[]);
    stage.join_with("a", 2048);
    stage.join_with("evil", 1 << 14);
    stage.open_pool(2);
    assert!(
        of_evil(&lay(&mut stage, 1, 2048 + FIRST_LANES)) > FIRST_LANES,
        "it has shown that it opens them"
    );
}
