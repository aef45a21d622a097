//! What a node says of itself and its sessions may be any numbers: they are bounded or saturate, and stop nobody.

use proptest::prelude::*;
use rollhouse_coordinator::{Event, LinkId, Reply};
use rollhouse_core::RunId;
use rollhouse_wire::{
    Changes, EndCause, Heartbeat, Incarnation, NodeLoad, SessionCounts, SessionEnd, SessionId, SessionReport,
    StoreStatus,
};

use crate::deciding::stage::{POOL, Stage, heartbeat};

fn numbers() -> impl Strategy<Value = u64> {
    let extremes = vec![0, 1, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
    prop_oneof![0u64..100, prop::sample::select(extremes), any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..70, prop::sample::select(vec![65_535, 65_536, 1 << 31, u32::MAX]), any::<u32>()]
}

fn counts() -> impl Strategy<Value = SessionCounts> {
    (numbers(), numbers(), any::<f64>(), numbers()).prop_map(|(steps, episodes, return_sum, interrupted)| {
        SessionCounts { steps, episodes, return_sum, interrupted }
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
            env: "CartPole-v1".to_owned(),
            first_lane,
            lanes,
            pool_lanes,
            replaces: false,
            launching: false,
            attached: Some(true),
            transport: None,
            done,
            replay: None,
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
