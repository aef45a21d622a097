//! Sessions that play by themselves go on elsewhere when their node is lost.

use std::time::Duration;

use rollhouse_coordinator::limits::{RESUME_WITHIN, TICK};
use rollhouse_coordinator::{Event, LinkId, Reply};
use rollhouse_core::{Goal, RecordRule};
use rollhouse_wire::{
    Collect, EndCause, Incarnation, LaneStanding, NodeLoad, OpenPool, SessionCounts, SessionEnd, SessionId,
    SessionStanding, Spread, Standing,
};

use crate::deciding::stage::{POOL, Stage, asker, heartbeat, open_pool};

fn rollout(lanes: u32) -> OpenPool {
    let mut open = OpenPool { spread: Spread::Pack, ..open_pool(lanes) };
    let goal = Goal::Batches(u64::MAX);
    open.settings.collect = Some(Collect::new("random", 1, goal));
    open
}

/// Two lanes, of which each has ended `ended` episodes of ten steps.
fn standing(ended: u64) -> Standing {
    let lane = LaneStanding(ended, 10 * ended, true);
    let done = SessionCounts { steps: 20 * ended, episodes: 2 * ended, ..SessionCounts::default() };
    Standing { batch: 10 * ended + 3, lanes: vec![lane; 2], done }
}

const ID: SessionId = SessionId { pool: POOL, index: 0 };

impl Stage {
    /// Opens a rollout of two lanes, and returns where they are.
    fn begin_rollout(&mut self, open: OpenPool) -> (LinkId, Incarnation) {
        let ticket = self.ticket();
        let reply =
            self.tell(Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(open) }).unwrap();
        let Reply::PoolOpened(opened) = reply else { panic!("{reply:?}") };
        assert_eq!(opened.sessions.len(), 1);
        (self.link_of(&opened.sessions[0].node), opened.sessions[0].incarnation)
    }

    fn link_of(&self, node: &str) -> LinkId {
        *self.links.iter().rev().find(|(_, name)| **name == node).unwrap().0
    }

    /// A node tells of where its lanes stand, with so many bytes recorded of which so many have left its spool.
    fn stand(
        &mut self,
        link: LinkId,
        incarnation: Incarnation,
        (recorded, left): (u64, u64),
        standing: Option<Standing>,
    ) {
        let ticket = self.ticket();
        let mut beat = heartbeat(ticket.0);
        beat.load = NodeLoad { spool_bytes: recorded - left, spool_left: left, ..NodeLoad::default() };
        beat.standings = standing
            .into_iter()
            .map(|standing| SessionStanding { session: ID, incarnation, standing })
            .collect();
        self.tell(Event::Heartbeat { link, ticket, heartbeat: Box::new(beat) });
    }

    fn counts(&self) -> (u32, u64, u64) {
        let status = self.cluster.pool_status(self.now, POOL).unwrap();
        (status.open, status.done.steps, status.done.episodes)
    }

    fn node_of(&self, incarnation: Incarnation) -> &'static str {
        self.opened.iter().find(|(_, opened)| *opened == incarnation).unwrap().0
    }

    fn other(node: &str) -> &'static str {
        if node == "a" { "b" } else { "a" }
    }
}

/// Symptom: a rollout failed when one of its nodes died. Cause: nobody placed its lanes anew, and no node knew where they stood.
/// Fix: nodes report it, and the coordinator has the lanes go on elsewhere.
#[test]
fn lanes_go_on_elsewhere_from_where_everything_before_is_in_the_store() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let (link, incarnation) = stage.begin_rollout(rollout(2));
    let node = stage.node_of(incarnation);
    stage.stand(link, incarnation, (1_000, 400), Some(standing(3)));
    stage.stand(link, incarnation, (2_000, 900), Some(standing(5)));
    // The first is safe now; the one before it was not taken, and this one is not safe yet.
    stage.stand(link, incarnation, (3_000, 1_000), Some(standing(7)));
    stage.lose(node, false);
    assert_eq!(stage.opened.last().unwrap().0, Stage::other(node));
    assert_eq!(stage.resumed, [None, Some(standing(3))]);
    assert_eq!(stage.counts(), (1, 60, 6), "what is played again is not counted before it is");
    let status = stage.cluster.pool_status(stage.now, POOL).unwrap();
    assert!(status.ended.is_empty() && status.failures.is_empty(), "{status:?}");
}

#[test]
fn lanes_of_which_nothing_is_recorded_go_on_from_the_last_report_and_others_from_the_beginning() {
    for (record, reported, wanted) in [
        (RecordRule::None, Some(standing(3)), Some(standing(3))),
        (RecordRule::All, Some(standing(3)), None),
        (RecordRule::None, None, None),
    ] {
        let mut stage = Stage::new(1, &["a", "b"]);
        let mut open = rollout(2);
        open.settings.record = record;
        let (link, incarnation) = stage.begin_rollout(open);
        stage.stand(link, incarnation, (1_000, 0), reported);
        stage.lose(stage.node_of(incarnation), false);
        assert_eq!(stage.resumed, [None, wanted], "{record:?}");
    }
}

#[test]
fn lanes_that_go_on_twice_are_counted_once() {
    let mut stage = Stage::new(1, &["a", "b", "c"]);
    let (link, first) = stage.begin_rollout(rollout(2));
    stage.stand(link, first, (0, 0), Some(standing(3)));
    stage.stand(link, first, (0, 0), None);
    stage.lose(stage.node_of(first), false);
    let (node, second) = *stage.opened.last().unwrap();
    // Its counts begin where it began: lanes stand at ten episodes, of which it has played seven.
    let later = Standing { done: standing(7).done, ..standing(10) };
    stage.stand(stage.link_of(node), second, (500, 500), Some(later.clone()));
    stage.stand(stage.link_of(node), second, (500, 500), None);
    stage.lose(node, false);
    assert_eq!(stage.resumed, [None, Some(standing(3)), Some(later)]);
    assert_eq!(stage.counts(), (1, 200, 20));
}

#[test]
fn lanes_that_no_node_takes_wait_for_one_and_are_lost_after_a_while() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let (_, incarnation) = stage.begin_rollout(rollout(2));
    let node = stage.node_of(incarnation);
    stage.full.push(Stage::other(node));
    stage.lose(node, false);
    assert_eq!(stage.counts().0, 1, "it waits");
    stage.full.clear();
    stage.tell(Event::Tick);
    assert_eq!(stage.opened.last().unwrap().0, Stage::other(node));

    let (node, _) = *stage.opened.last().unwrap();
    stage.full.extend(["a", "b"]);
    stage.lose(node, false);
    let end = stage.now + RESUME_WITHIN;
    while stage.now < end {
        assert_eq!(stage.counts().0, 1);
        stage.now += TICK;
        stage.tell(Event::Tick);
    }
    let status = stage.cluster.pool_status(stage.now, POOL).unwrap();
    assert_eq!((status.open, status.ended.get(&EndCause::NodeLost)), (0, Some(&1)));
}

#[test]
fn a_node_that_comes_back_first_keeps_its_lanes() {
    let mut stage = Stage::new(1, &["a"]);
    let (link, incarnation) = stage.begin_rollout(rollout(2));
    stage.now += Duration::from_secs(6);
    stage.tell(Event::Tick);
    assert_eq!(stage.counts().0, 1);
    stage.beat(link);
    stage.tell(Event::Tick);
    stage.tell(Event::Tick);
    assert_eq!((stage.opened.len(), stage.counts().0), (1, 1));
    assert!(stage.closed.is_empty(), "{incarnation:?}");
}

#[test]
fn lanes_of_a_node_that_drains_go_on_elsewhere_when_it_ends_them() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let (link, incarnation) = stage.begin_rollout(rollout(2));
    stage.stand(link, incarnation, (0, 0), Some(standing(3)));
    let ticket = stage.ticket();
    let mut beat = heartbeat(ticket.0);
    let done = SessionCounts { steps: 99, interrupted: 2, ..SessionCounts::default() };
    beat.ended.push(SessionEnd {
        session: ID,
        incarnation,
        cause: EndCause::Drained,
        detail: String::new(),
        done,
        report: None,
        unreached: false,
    });
    stage.tell(Event::Heartbeat { link, ticket, heartbeat: Box::new(beat) });
    assert_eq!(stage.resumed, [None, Some(standing(3))]);
    assert_eq!(stage.counts(), (1, 60, 6));
}
