//! Lanes for which no node has room count as waiting for as long as their askers ask again.

use std::time::Duration;

use rollhouse_coordinator::limits::WAITS_FOR;
use rollhouse_coordinator::{Asker, Event, Reply};
use rollhouse_core::RunId;
use rollhouse_wire::{OpenPool, RefusalCode, pool_id_of};

use crate::deciding::stage::{Stage, asked, asker, open_pool};

impl Stage {
    /// Asks for a pool, and says what became of it: granted, or the refusal's code.
    fn ask(&mut self, pool: u128, lanes: u32, asker: Asker) -> Option<RefusalCode> {
        let pool = pool_id_of(&asker.owner, RunId::from_u128(pool << 32));
        let request = Box::new(OpenPool { pool, ..open_pool(lanes) });
        let ticket = self.ticket();
        match self.tell(Event::OpenPool { ticket, asker, request }) {
            Some(Reply::PoolOpened(_)) => None,
            Some(Reply::Refused(refusal)) => Some(refusal.code),
            other => panic!("{other:?}"),
        }
    }

    /// Time goes by in which the nodes are heard of.
    fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            self.now += Duration::from_secs(1);
            self.links.clone().into_keys().for_each(|link| self.beat(link));
            self.tell(Event::Tick);
        }
    }

    fn waiting(&self) -> u64 {
        self.cluster.waiting_lanes(self.now).lanes
    }

    fn close(&mut self, pool: u128) {
        let ticket = self.ticket();
        let pool = pool_id_of("ada", RunId::from_u128(pool << 32));
        self.tell(Event::ClosePool { ticket, asker: asker("ada"), pool });
    }
}

const BUSY: Option<RefusalCode> = Some(RefusalCode::Busy);

#[test]
fn lanes_wait_from_their_refusal_until_they_are_placed_closed_or_not_asked_for_any_more() {
    let mut stage = Stage::new(1, &["a"]);
    assert_eq!(stage.ask(1, 64, asker("ada")), None);
    assert_eq!(stage.waiting(), 0);
    assert_eq!(stage.ask(2, 8, asker("ada")), BUSY);
    assert_eq!(stage.ask(2, 8, asker("ada")), BUSY);
    assert_eq!(stage.ask(3, 5, asker("eve")), BUSY);
    assert_eq!(stage.waiting(), 13, "who asks twice waits once");
    stage.pass(Duration::from_secs(4));
    assert_eq!(stage.ask(2, 8, asker("ada")), BUSY);
    stage.pass(WAITS_FOR - Duration::from_secs(4));
    assert_eq!(stage.waiting(), 8, "eve has not asked again");
    stage.close(2);
    assert_eq!(stage.waiting(), 0, "who closes does not wait");
    assert_eq!(stage.ask(4, 9, asker("ada")), BUSY);
    stage.join("b", 1);
    assert_eq!(stage.ask(4, 9, asker("ada")), None);
    assert_eq!(stage.waiting(), 0, "another node had room");
}

#[test]
fn lanes_wait_for_the_first_node_and_not_for_what_no_node_could_give() {
    let mut stage = Stage::new(1, &[]);
    assert_eq!(stage.ask(1, 8, asker("ada")), BUSY);
    assert_eq!(stage.waiting(), 8);
    stage.close(1);
    stage.join("a", 1);
    assert_eq!(stage.ask(2, 65, asker("ada")), Some(RefusalCode::BadRequest), "more than all nodes take");
    let eve = Asker { max_lanes: Some(4), ..asker("eve") };
    assert_eq!(stage.ask(3, 4, eve.clone()), None);
    assert_eq!(stage.ask(4, 4, eve), BUSY, "her own lanes are in her way");
    assert_eq!(stage.waiting(), 0);
}

#[test]
fn lanes_that_lost_their_node_wait_for_another_place() {
    let mut stage = Stage::new(1, &["a"]);
    let grants = stage.open_pool(16);
    stage.lose("a", false);
    let refusal = stage.replace(&grants[0], 16).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert_eq!(stage.waiting(), 16);
    stage.join("b", 1);
    let replaced = stage.replace_as("ada", asked(&grants[0], 16)).unwrap();
    assert_eq!((replaced.grant.node.as_str(), stage.waiting()), ("b", 0));
}
