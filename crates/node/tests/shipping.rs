//! The shipper against a store, a network and a spool that misbehave, in virtual time.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;
use rollhouse_core::{Claimant, WhenFull, split_mix64};
use rollhouse_node::{Pace, ShipAction, ShipEvent, Shipper, ShipperConfig};
use rollhouse_replay::SealedSegment;
use rollhouse_wire::Shipped;

/// A spool, a network and a store in virtual time. Everything that happens follows from the seed.
struct World {
    word: u64,
    now: Duration,
    shipper: Shipper,
    /// What will happen, by time and order of planning.
    plans: BTreeMap<(Duration, u64), Plan>,
    planned: u64,
    connection: u64,
    connected: bool,
    /// On the disk: bytes.
    spool: BTreeMap<u64, u64>,
    /// Durable in the store.
    store: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
    held: bool,
    in_flight: BTreeSet<u64>,
    sealed: u64,
    to_seal: u64,
    quiet_from: Duration,
    lost_answers: u64,
    known: u64,
}

#[derive(Debug, Clone, Copy)]
enum Plan {
    Seal,
    Connect,
    Disconnect,
    Restart,
    Arrive { number: u64, connection: u64, answer_lost: bool },
    Answer { number: u64, connection: u64, answer: Shipped },
    Fail { number: u64, connection: u64 },
    Remove { number: u64, fails: bool },
    Tick,
}

impl World {
    fn new(seed: u64, when_full: WhenFull, spool_bytes: u64, to_seal: u64) -> Self {
        let config = ShipperConfig { spool_bytes, when_full, seed };
        let mut world = Self {
            word: seed,
            now: Duration::ZERO,
            shipper: Shipper::new(config),
            plans: BTreeMap::new(),
            planned: 0,
            connection: 0,
            connected: false,
            spool: BTreeMap::new(),
            store: BTreeSet::new(),
            dropped: BTreeSet::new(),
            held: false,
            in_flight: BTreeSet::new(),
            sealed: 0,
            to_seal,
            quiet_from: Duration::from_secs(600),
            lost_answers: 0,
            known: 0,
        };
        world.plan(1000, Plan::Seal);
        world.plan(3000, Plan::Connect);
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.word = split_mix64(self.word);
        self.word % below
    }

    /// Whether something goes wrong; nothing does towards the end.
    fn bad_luck(&mut self, in_a_hundred: u64) -> bool {
        self.draw(100) < in_a_hundred && self.now < self.quiet_from
    }

    fn plan(&mut self, within_ms: u64, plan: Plan) {
        let after = Duration::from_millis(1 + self.draw(within_ms));
        self.planned += 1;
        self.plans.insert((self.now + after, self.planned), plan);
    }

    fn tell(&mut self, event: ShipEvent) {
        let mut actions = Vec::new();
        self.shipper.handle(self.now, event, &mut actions);
        for action in actions {
            self.act(action);
        }
        let counts = self.shipper.counts();
        for count in [|a: rollhouse_node::Amount| a.segments, |a: rollhouse_node::Amount| a.bytes] {
            assert_eq!(
                count(counts.offered),
                count(counts.shipped) + count(counts.dropped) + count(counts.waiting)
            );
        }
        if let Some(at) = self.shipper.wake_at() {
            self.planned += 1;
            self.plans.insert((at.max(self.now), self.planned), Plan::Tick);
        }
    }

    fn act(&mut self, action: ShipAction) {
        match action {
            ShipAction::Ship(segment) => {
                assert!(self.connected, "shipped without a connection");
                assert!(self.spool.contains_key(&segment.number), "shipped what is not there");
                assert!(self.in_flight.insert(segment.number), "shipped twice at a time");
                assert!(self.in_flight.len() <= 2);
                let (number, connection) = (segment.number, self.connection);
                if self.bad_luck(15) {
                    self.plan(2000, Plan::Fail { number, connection });
                } else {
                    let answer_lost = self.bad_luck(20);
                    self.plan(2000, Plan::Arrive { number, connection, answer_lost });
                }
            }
            ShipAction::TakeAway { number, dropped } => {
                if dropped {
                    assert!(!self.in_flight.contains(&number), "dropped in flight");
                    self.dropped.insert(number);
                } else {
                    assert!(self.store.contains(&number), "taken away before it was in the store");
                }
                let fails = self.bad_luck(10);
                self.plan(50, Plan::Remove { number, fails });
            }
            ShipAction::SetAside { number } => panic!("segment {number} is set aside"),
            ShipAction::Hold(held) => {
                assert_ne!(self.held, held);
                self.held = held;
            }
        }
    }

    fn happen(&mut self, plan: Plan) {
        match plan {
            Plan::Seal => {
                if !self.held {
                    self.sealed += 1;
                    let bytes = 1 + self.draw(1000);
                    self.spool.insert(self.sealed, bytes);
                }
                if self.sealed < self.to_seal {
                    self.plan(3000, Plan::Seal);
                }
                // As the skin does: all that are there are told, again and again.
                let there: Vec<_> = self.spool.iter().map(|(&number, &bytes)| (number, bytes)).collect();
                for (number, bytes) in there {
                    self.tell(ShipEvent::Spooled(SealedSegment { number, bytes, episodes: Some(3) }));
                }
            }
            Plan::Connect => {
                self.connected = true;
                self.connection += 1;
                self.tell(ShipEvent::Connected);
                if self.now < self.quiet_from {
                    let plan = if self.draw(3) == 0 { Plan::Restart } else { Plan::Disconnect };
                    self.plan(20_000, plan);
                }
            }
            Plan::Disconnect => {
                self.connected = false;
                self.in_flight.clear();
                self.tell(ShipEvent::Disconnected);
                self.plan(8000, Plan::Connect);
            }
            // The task panicked: what it held is let go, what it had begun goes on without it.
            Plan::Restart => {
                self.connected = false;
                self.in_flight.clear();
                self.held = false;
                self.tell(ShipEvent::Restarted);
                self.plan(8000, Plan::Connect);
            }
            // Bytes that were sent may arrive although the connection is gone.
            Plan::Arrive { number, connection, answer_lost } => {
                let answer = if self.store.insert(number) { Shipped::Durable } else { Shipped::Known };
                if answer_lost {
                    self.lost_answers += 1;
                    self.plan(100, Plan::Fail { number, connection });
                } else {
                    self.plan(100, Plan::Answer { number, connection, answer });
                }
            }
            Plan::Answer { number, connection, answer }
                if connection == self.connection && self.connected =>
            {
                self.in_flight.remove(&number);
                self.known += u64::from(answer == Shipped::Known);
                self.tell(ShipEvent::Answered { number, answer });
            }
            Plan::Fail { number, connection } if connection == self.connection && self.connected => {
                self.in_flight.remove(&number);
                self.tell(ShipEvent::Failed { number, retry_after: None });
            }
            Plan::Answer { .. } | Plan::Fail { .. } => {}
            Plan::Remove { number, fails: true } => self.tell(ShipEvent::Stuck { number }),
            Plan::Remove { number, fails: false } => {
                self.spool.remove(&number);
                self.tell(ShipEvent::TakenAway { number, episodes: Some(3) });
            }
            Plan::Tick => self.tell(ShipEvent::Tick),
        }
    }

    /// Until nothing is planned any more, or too much happened.
    fn run(&mut self) {
        for _ in 0..200_000 {
            let Some(((at, _), plan)) = self.plans.pop_first() else { return };
            self.now = at;
            self.happen(plan);
        }
        panic!("it does not come to rest");
    }
}

#[test]
fn whatever_happens_every_segment_reaches_the_store_and_leaves_the_spool() {
    let (mut known, mut lost) = (0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed, WhenFull::BackPressure, 3_000, 150);
        world.run();
        assert_eq!(world.store, (1..=150).collect(), "seed {seed}");
        assert!(world.spool.is_empty() && world.shipper.is_empty() && !world.held, "seed {seed}");
        let counts = world.shipper.counts();
        assert_eq!((counts.shipped.segments, counts.dropped.segments, counts.known), (150, 0, world.known));
        (known, lost) = (known + world.known, lost + world.lost_answers);
    }
    assert!(known > 0 && lost > 0, "answers were lost and segments shipped again");
}

#[test]
fn a_full_spool_drops_the_oldest_and_counts_them() {
    let mut dropped = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, WhenFull::Drop, 2_000, 150);
        world.run();
        let counts = world.shipper.counts();
        assert_eq!(counts.offered.segments, 150);
        assert_eq!(counts.shipped.segments + counts.dropped.segments, 150, "seed {seed}");
        assert_eq!(counts.dropped.segments, world.dropped.len() as u64);
        assert_eq!(counts.dropped_episodes, 3 * counts.dropped.segments);
        // One whose answer was lost may be dropped although the store has it; none is missing without being counted.
        for number in 1..=150 {
            assert!(
                world.store.contains(&number) || world.dropped.contains(&number),
                "seed {seed}: {number}"
            );
        }
        dropped += counts.dropped.segments;
    }
    assert!(dropped > 0);
}

#[test]
fn back_pressure_holds_the_recorder_until_there_is_room_again() {
    let config = ShipperConfig { spool_bytes: 1000, when_full: WhenFull::BackPressure, seed: 1 };
    let mut shipper = Shipper::new(config);
    let mut at = 0;
    let mut tell = |event| {
        at += 1;
        let mut actions = Vec::new();
        shipper.handle(Duration::from_secs(at), event, &mut actions);
        actions
    };
    let segment = |number| SealedSegment { number, bytes: 400, episodes: None };
    for number in 1..=2 {
        assert_eq!(tell(ShipEvent::Spooled(segment(number))), []);
    }
    assert_eq!(tell(ShipEvent::Open { bytes: 201 }), [ShipAction::Hold(true)]);
    assert_eq!(tell(ShipEvent::Open { bytes: 150 }), [], "not much room yet");
    assert_eq!(tell(ShipEvent::Connected), [1, 2].map(|number| ShipAction::Ship(segment(number))));
    assert_eq!(
        tell(ShipEvent::Answered { number: 1, answer: Shipped::Durable }),
        [ShipAction::TakeAway { number: 1, dropped: false }],
        "its bytes are there until it is gone"
    );
    assert_eq!(tell(ShipEvent::TakenAway { number: 1, episodes: None }), [ShipAction::Hold(false)]);
}

/// Symptom: one owner's recordings filled a node's spool while the store took nothing, and every owner's stepping waited.
/// Cause: the spool's limit was counted for all together. Fix: an owner that has its share is held, and nobody else.
#[test]
fn an_owner_that_has_its_share_of_the_spool_is_held_until_it_has_less_and_others_are_not() {
    let config = ShipperConfig { spool_bytes: 1600, when_full: WhenFull::BackPressure, seed: 1 };
    let mut shipper = Shipper::new(config);
    let (ada, bob) = (Claimant::owner("ada"), Claimant::owner("bob"));
    let of =
        |parts: &[(&Claimant, u64)]| parts.iter().map(|&(owner, bytes)| (owner.clone(), bytes)).collect();
    let mut actions = Vec::new();
    // Of 1,600 bytes 100 are kept for admins: alone one owner may have half of the rest.
    for number in 1..=3 {
        shipper.segment_is_of(number, || of(&[(&ada, 200), (&bob, 20)]));
        let segment = SealedSegment { number, bytes: 220, episodes: None };
        shipper.handle(Duration::ZERO, ShipEvent::Spooled(segment), &mut actions);
        assert!(shipper.held_owners().is_empty(), "{number}");
    }
    shipper.open_is_of(&of(&[(&ada, 150), (&bob, 30)]));
    shipper.handle(Duration::ZERO, ShipEvent::Open { bytes: 180 }, &mut actions);
    assert_eq!(shipper.held_owners().iter().collect::<Vec<_>>(), [&ada], "750 of (1500 - 90) / 2");
    assert!(!shipper.is_held() && actions.is_empty(), "the others record on");
    shipper.handle(Duration::ZERO, ShipEvent::Connected, &mut actions);
    let durable = ShipEvent::Answered { number: 1, answer: Shipped::Durable };
    shipper.handle(Duration::ZERO, durable, &mut actions);
    assert_eq!(shipper.held_owners().len(), 1, "its bytes are there until the segment is gone");
    let gone = ShipEvent::TakenAway { number: 1, episodes: None };
    shipper.handle(Duration::ZERO, gone, &mut actions);
    assert!(shipper.held_owners().is_empty(), "550 of (1500 - 70) / 2");
}

/// Symptom: one owner's recordings, and nothing but the oldest segments, decided whose episodes a full spool dropped.
/// Cause: the oldest segment went first, whoever had recorded it. Fix: that of the owner who has most beyond its share.
#[test]
fn a_full_spool_that_drops_drops_what_the_owner_beyond_its_share_recorded() {
    let mut shipper = Shipper::new(ShipperConfig { spool_bytes: 1600, when_full: WhenFull::Drop, seed: 1 });
    let (ada, bob) = (Claimant::owner("ada"), Claimant::owner("bob"));
    let mut actions = Vec::new();
    for number in 1..=9 {
        let owner = if number <= 2 { &bob } else { &ada };
        shipper.segment_is_of(number, || [(owner.clone(), 200)].into_iter().collect());
        let segment = SealedSegment { number, bytes: 200, episodes: None };
        shipper.handle(Duration::ZERO, ShipEvent::Spooled(segment), &mut actions);
    }
    assert_eq!(actions, [ShipAction::TakeAway { number: 3, dropped: true }]);
    assert!(shipper.held_owners().is_empty(), "nobody waits");
}

#[test]
fn a_segment_waits_from_when_it_was_first_told_of_until_the_store_has_it() {
    let mut shipper =
        Shipper::new(ShipperConfig { spool_bytes: 1000, when_full: WhenFull::BackPressure, seed: 1 });
    let seconds = Duration::from_secs;
    let mut tell = |at, event| {
        shipper.handle(seconds(at), event, &mut Vec::new());
        shipper.oldest_since()
    };
    let spooled = |number| ShipEvent::Spooled(SealedSegment { number, bytes: 1, episodes: None });
    let durable = |number| ShipEvent::Answered { number, answer: Shipped::Durable };
    assert_eq!(tell(1, ShipEvent::Connected), None);
    assert_eq!(tell(2, spooled(1)), Some(seconds(2)));
    assert_eq!(tell(3, spooled(2)), Some(seconds(2)));
    assert_eq!(tell(4, spooled(1)), Some(seconds(2)), "told of again");
    assert_eq!(
        tell(5, ShipEvent::Disconnected),
        Some(seconds(2)),
        "an attempt that failed begins nothing anew"
    );
    assert_eq!(tell(6, durable(1)), Some(seconds(3)));
    assert_eq!(tell(7, durable(2)), None);
}

#[test]
fn failures_are_retried_later_and_later_and_a_new_connection_at_once() {
    let config = ShipperConfig { spool_bytes: 1000, when_full: WhenFull::Drop, seed: 9 };
    let mut shipper = Shipper::new(config);
    let mut now = Duration::ZERO;
    let mut actions = Vec::new();
    shipper.handle(now, ShipEvent::Connected, &mut actions);
    let segment = SealedSegment { number: 7, bytes: 1, episodes: None };
    shipper.handle(now, ShipEvent::Spooled(segment), &mut actions);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(std::mem::take(&mut actions), [ShipAction::Ship(segment)]);
        shipper.handle(now, ShipEvent::Failed { number: 7, retry_after: None }, &mut actions);
        assert_eq!(actions, []);
        let at = shipper.wake_at().unwrap();
        shipper.handle(at - Duration::from_nanos(1), ShipEvent::Tick, &mut actions);
        assert_eq!(actions, []);
        pauses.push(at - now);
        assert_eq!(shipper.is_failing(), pauses.len() >= 3);
        now = at;
        shipper.handle(now, ShipEvent::Tick, &mut actions);
    }
    let bounds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0];
    for (pause, most) in pauses.iter().zip(bounds) {
        assert!((0.75 * most..=most).contains(&pause.as_secs_f64()), "{pauses:?}");
    }
    actions.clear();
    shipper.handle(
        now,
        ShipEvent::Failed { number: 7, retry_after: Some(Duration::from_secs(9)) },
        &mut actions,
    );
    shipper.handle(now, ShipEvent::Disconnected, &mut actions);
    assert_eq!((actions.as_slice(), shipper.wake_at()), ([].as_slice(), None));
    shipper.handle(now, ShipEvent::Connected, &mut actions);
    assert_eq!(actions, [ShipAction::Ship(segment)]);
}

proptest! {
    #[test]
    fn no_stretch_of_time_carries_more_than_the_rate_and_one_piece(
        rate in 1_000u64..1_000_000,
        pieces in prop::collection::vec((1u64..4096, 0u64..10_000), 1..200),
    ) {
        let mut pace = Pace::new(NonZeroU64::new(rate));
        let mut now = Duration::ZERO;
        let mut sent: Vec<(Duration, u64)> = Vec::new();
        for (bytes, idle_us) in pieces {
            now += Duration::from_micros(idle_us);
            now += pace.wait(now, bytes);
            sent.push((now, bytes));
        }
        for from in 0..sent.len() {
            let mut sum = 0;
            for &(at, bytes) in &sent[from..] {
                let span = (at - sent[from].0).as_secs_f64();
                prop_assert!(sum as f64 <= span * rate as f64 * 1.000_001 + 1.0, "{sum} in {span} s");
                sum += bytes;
            }
        }
        prop_assert_eq!(Pace::new(None).wait(now, u64::MAX), Duration::ZERO);
    }
}

/// Symptom: a segment that the store had set aside was deleted by its node, so that nothing but a folder of the store had
/// it, which drops what is oldest. Fix: the node keeps it, counts it apart, and ships it no more.
#[test]
fn what_the_store_sets_aside_is_kept_and_counts_against_the_limit() {
    let config = ShipperConfig { spool_bytes: 200, when_full: WhenFull::BackPressure, seed: 1 };
    let mut shipper = Shipper::new(config);
    let segment = |number| SealedSegment { number, bytes: 100, episodes: None };
    let mut tell = |event| {
        let mut actions = Vec::new();
        shipper.handle(Duration::ZERO, event, &mut actions);
        (actions, shipper.counts())
    };
    tell(ShipEvent::Connected);
    assert_eq!(tell(ShipEvent::Spooled(segment(1))).0, [ShipAction::Ship(segment(1))]);
    let (actions, counts) = tell(ShipEvent::Answered { number: 1, answer: Shipped::Quarantined });
    assert_eq!(actions, [ShipAction::SetAside { number: 1 }], "it is not taken away");
    assert_eq!((counts.aside.segments, counts.shipped.segments), (1, 0), "nor called shipped");
    // What cannot be moved is moved later.
    tell(ShipEvent::Stuck { number: 1 });
    let mut actions = Vec::new();
    shipper.handle(Duration::from_secs(60), ShipEvent::Tick, &mut actions);
    assert_eq!(actions, [ShipAction::SetAside { number: 1 }]);
    let mut tell = |event| {
        let mut actions = Vec::new();
        shipper.handle(Duration::from_secs(60), event, &mut actions);
        actions
    };
    assert_eq!(tell(ShipEvent::TakenAway { number: 1, episodes: None }), []);
    assert_eq!(tell(ShipEvent::Spooled(segment(2))), [ShipAction::Ship(segment(2))]);
    // Two hundred bytes are the limit, and each segment has a hundred.
    assert_eq!(tell(ShipEvent::Open { bytes: 1 }), [ShipAction::Hold(true)]);
    // What earlier lives of the node have left counts too.
    assert_eq!(tell(ShipEvent::Answered { number: 2, answer: Shipped::Durable }).len(), 1);
    assert_eq!(tell(ShipEvent::TakenAway { number: 2, episodes: None }), [ShipAction::Hold(false)]);
    assert_eq!(tell(ShipEvent::FoundAside { bytes: 100 }), [ShipAction::Hold(true)]);
}

/// Symptom: a pool was told as shipped while a segment of it was still on its way. Cause: bytes were counted in whatever
/// order segments left, and a later one that left first stood for it. Fix: they count up to the oldest that waits.
#[test]
fn bytes_count_as_left_only_when_all_that_was_recorded_before_them_has_left() {
    let config = ShipperConfig { spool_bytes: 1000, when_full: WhenFull::BackPressure, seed: 1 };
    let (mut shipper, mut actions) = (Shipper::new(config), Vec::new());
    shipper.handle(Duration::ZERO, ShipEvent::Connected, &mut actions);
    for number in 1..=3 {
        let segment = SealedSegment { number, bytes: 10 * number, episodes: None };
        shipper.handle(Duration::ZERO, ShipEvent::Spooled(segment), &mut actions);
    }
    let mut left_after = |number| {
        let answered = ShipEvent::Answered { number, answer: Shipped::Durable };
        shipper.handle(Duration::ZERO, answered, &mut actions);
        shipper.counts().left_bytes
    };
    assert_eq!([left_after(2), left_after(1), left_after(3)], [0, 30, 60]);
}
