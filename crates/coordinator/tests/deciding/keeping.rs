//! Pools that play by themselves end with their owner's lease, if they were asked for so.

use std::time::Duration;

use rollhouse_coordinator::limits::{ROLLOUT_LEASE, TICK};
use rollhouse_coordinator::{Event, LinkId, Reply};
use rollhouse_core::Goal;
use rollhouse_wire::{Collect, OpenPool, PoolStatus};

use crate::deciding::stage::{POOL, Stage, asker, open_pool};

fn rollout(leased: bool) -> OpenPool {
    let goal = Goal::Batches(u64::MAX);
    let mut open = open_pool(4);
    open.settings.collect = Some(Collect { leased, ..Collect::new("random", 1, goal) });
    open
}

impl Stage {
    fn begin(&mut self, open: OpenPool) {
        let ticket = self.ticket();
        let event = Event::OpenPool { ticket, asker: asker("ada"), request: Box::new(open) };
        let reply = self.tell(event);
        assert!(matches!(reply, Some(Reply::PoolOpened(_))), "{reply:?}");
    }

    fn keep(&mut self, owner: &str) {
        self.tell(Event::KeepPool { asker: asker(owner), pool: POOL });
    }

    /// Time passes in which the node is heard of.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            self.beat(LinkId(1));
            self.tell(Event::Tick);
        }
    }

    fn status(&self) -> PoolStatus {
        self.cluster.pool_status(self.now, POOL).unwrap()
    }
}

/// A rollout went on when its command was killed, to a goal that may never come, and nobody was told how to end it. It ends
/// when its owner was not heard of for the time of its lease, unless it was asked to go on.
#[test]
fn a_leased_rollout_ends_when_its_owner_is_not_heard_of_and_not_before() {
    let mut stage = Stage::new(1, &["a"]);
    stage.begin(rollout(true));
    stage.wait(ROLLOUT_LEASE / 2);
    stage.keep("ada");
    stage.wait(ROLLOUT_LEASE - TICK);
    assert_eq!(stage.status().open, 1, "it was kept in the middle");
    // Whoever else looks at it does not keep it.
    stage.keep("eve");
    stage.wait(TICK);
    let status = stage.status();
    assert_eq!((status.open, stage.closed.len()), (0, 1));
    assert_eq!(status.failures, ["closed: its owner did not answer for 30 s"]);
}

#[test]
fn a_rollout_that_is_not_leased_goes_on_whoever_is_heard_of() {
    let mut stage = Stage::new(1, &["a"]);
    stage.begin(rollout(false));
    stage.wait(3 * ROLLOUT_LEASE);
    assert_eq!((stage.status().open, stage.closed.len()), (1, 0));
}

#[test]
fn lanes_that_an_owner_steps_are_kept_by_their_nodes_and_not_by_who_asks_for_their_pool() {
    let mut stage = Stage::new(1, &["a"]);
    stage.begin(open_pool(4));
    stage.keep("ada");
    stage.wait(2 * ROLLOUT_LEASE);
    assert_eq!((stage.status().open, stage.closed.len()), (1, 0));
}
