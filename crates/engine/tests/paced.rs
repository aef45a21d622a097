//! Live lanes on a simulated clock: whatever owners do, their worlds' time goes on as their clocks say, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{
    AutoresetMode, BoxSpace, Clock, ClockEvent, ColumnData, ColumnMut, ColumnRef, CompositeSpace,
    Determinism, DiscreteSpace, EnvSource, EnvSpec, LaneState, Pace, SequenceSpace, Space, split_mix64,
};
use rollhouse_engine::{
    Engine, EngineConfig, MAX_QUEUED_ACTIONS, PacedLanes, PostError, Received, Reset, StepError,
};
use rollhouse_env::{Env, EnvEntry, Generator, StepResult};

/// What the worlds of all lanes have done.
#[derive(Debug, Default)]
struct Ledger {
    /// Orders in the order in which they were carried out.
    orders: Vec<i64>,
    steps: u64,
    ends: u64,
    reward: f64,
}

/// A world that writes orders down; its observation is the number of its steps, its reward the number of orders.
struct Clerk {
    ledger: Arc<Mutex<Ledger>>,
    count: i64,
    length: i64,
}

impl Env for Clerk {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        (self.count, self.length) = (0, 5 + (generator.uniform(0.0, 30.0) as i64));
        obs[0].as_f32_mut().unwrap()[0] = 0.0;
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        let (items, count) = action.as_i64().unwrap().split_at(MAX_QUEUED_ACTIONS);
        let orders = &items[..count[0] as usize];
        self.count += 1;
        obs[0].as_f32_mut().unwrap()[0] = self.count as f32;
        let terminated = self.count >= self.length;
        let mut ledger = self.ledger.lock();
        ledger.orders.extend(orders);
        ledger.steps += 1;
        ledger.ends += u64::from(terminated);
        ledger.reward += orders.len() as f64;
        StepResult { reward: orders.len() as f64, terminated, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        self.count as u32
    }
}

fn clerk(ledger: &Arc<Mutex<Ledger>>) -> Arc<EnvEntry> {
    let order = Space::Discrete(DiscreteSpace { n: 1 << 40, start: 0, own: None });
    let orders = SequenceSpace::new(order, MAX_QUEUED_ACTIONS, true).unwrap();
    let spec = EnvSpec {
        id: "test/Clerk-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "writes orders down".into(),
        observation_space: Space::f32_box(&[0.0], &[1e9]).into(),
        action_space: Space::Box(BoxSpace::of_parts(CompositeSpace::Sequence(Box::new(orders))).unwrap()),
        observation_names: vec![],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![],
        info_channels: vec![],
        dynamics_hash: 0,
    };
    let ledger = Arc::clone(ledger);
    let make = move |_: &_| Ok(Clerk { ledger: Arc::clone(&ledger), count: 0, length: 0 });
    Arc::new(EnvEntry::per_lane(spec, make))
}

/// An action of one order.
fn order(number: i64) -> ColumnData {
    let mut row = vec![0; MAX_QUEUED_ACTIONS + 1];
    (row[0], row[MAX_QUEUED_ACTIONS]) = (number, 1);
    ColumnData::I64(row)
}

/// Live lanes, whoever steps them, and an owner that counts.
struct World {
    engine: Engine,
    paced: PacedLanes,
    ledger: Arc<Mutex<Ledger>>,
    now: Duration,
    posted: i64,
    dropped: i64,
    ticks: i64,
    reward: f64,
    ends: u64,
    late: i64,
}

impl World {
    fn new(pace: Pace, lanes: usize, autoreset: AutoresetMode, seed: u64) -> Self {
        let ledger = Arc::default();
        let entry = clerk(&ledger);
        let config = EngineConfig { autoreset, ..EngineConfig::new(lanes) };
        let mut engine = Engine::new(&entry, config, None).unwrap();
        let mut paced = PacedLanes::new(entry.spec(), pace, lanes, autoreset);
        let frame = engine.reset(&Reset::seeded(seed, lanes)).unwrap();
        paced.begin(&frame, &[], Duration::ZERO);
        paced.attend(true, Duration::ZERO);
        let (now, posted, dropped, ticks, reward, ends, late) = (Duration::ZERO, 0, 0, 0, 0.0, 0, 0);
        Self { engine, paced, ledger, now, posted, dropped, ticks, reward, ends, late }
    }

    /// Does what whoever has the session does when something is due.
    fn tick(&mut self) {
        loop {
            let (due, actions) = self.paced.due(self.now, |_| false);
            if due.is_empty() {
                return;
            }
            self.engine.send(&due, actions.as_ref()).unwrap();
            let received = self.engine.recv(due.len(), Duration::from_secs(9)).unwrap();
            self.paced.take(&received, self.now);
        }
    }

    /// Lets time pass; a machine that is busy looks after the lanes as late as `lag` says.
    fn pass(&mut self, time: Duration, mut lag: impl FnMut() -> Duration) {
        let end = self.now + time;
        while let Some(due) = self.paced.due_at().filter(|&due| due <= end) {
            self.now = self.now.max(due + lag()).min(end);
            self.tick();
            if self.paced.due_at().is_some_and(|due| due <= self.now) {
                break;
            }
        }
        self.now = end;
        self.tick();
    }

    fn post(&mut self, lane: u32, awaited: bool) -> Result<(), PostError> {
        let posted = self.paced.post((&[lane], order(self.posted).as_ref()), awaited, self.now, |_| false);
        self.posted += i64::from(posted.is_ok());
        posted
    }

    /// Takes an answer about some lanes, as an owner does.
    fn answer(&mut self, lanes: &[u32]) -> Received {
        let rows = self.paced.rows(lanes, true, self.now);
        let sum = |channel: &ColumnData| channel.as_ref().as_i64().unwrap().iter().sum::<i64>();
        let [ticks, dropped, late] = &rows.infos[..] else { panic!("three infos") };
        self.ticks += sum(ticks);
        self.dropped += sum(dropped);
        self.late += sum(late);
        self.reward += rows.rewards.iter().sum::<f64>();
        self.ends += rows.terminated.iter().map(|&flag| u64::from(flag)).sum::<u64>();
        rows
    }
}

/// A small generator of a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = split_mix64(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.0 % bound
    }
}

/// Owners that come late, act much or little, wait or do not, vanish and are replaced, pause, plan and look: 200 seeds.
#[test]
fn no_order_is_carried_out_twice_no_end_is_lost_and_what_was_dropped_is_counted() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let clock = Clock::ALL[chance.below(3) as usize];
        let autoreset = [AutoresetMode::NextStep, AutoresetMode::SameStep][chance.below(2) as usize];
        let lanes = 1 + chance.below(3) as u32;
        let mut world = World::new(Pace { hz: 25.0, clock }, lanes as usize, autoreset, seed);
        let all: Vec<u32> = (0..lanes).collect();
        for _ in 0..300 {
            let lane = chance.below(lanes.into()) as u32;
            let refused = match chance.below(16) {
                0..5 => world.post(lane, true).is_err(),
                5..9 => (0..=chance.below(24)).any(|_| world.post(lane, false).is_err()),
                9..12 => {
                    let ready = world.paced.ready_of(&all);
                    world.answer(&ready);
                    false
                }
                12 => {
                    // The owner vanishes; another comes, or the same one again.
                    world.paced.attend(false, world.now);
                    let steps = world.ledger.lock().steps;
                    world.pass(Duration::from_millis(chance.below(900)), || Duration::ZERO);
                    assert_eq!(
                        world.ledger.lock().steps,
                        steps,
                        "seed {seed}: a lane without an owner stands"
                    );
                    world.paced.attend(true, world.now);
                    false
                }
                13 => world.paced.control(&[lane], ClockEvent::Pause, world.now).is_err(),
                14 => world.paced.control(&[lane], ClockEvent::Resume, world.now).is_err(),
                _ => {
                    let time = Duration::from_millis(chance.below(300));
                    world.paced.control(&[lane], ClockEvent::Plan(time), world.now).is_err()
                }
            };
            if refused && chance.below(2) == 0 {
                let _resumed = world.paced.control(&[lane], ClockEvent::Resume, world.now);
            }
            let (time, late) = (Duration::from_millis(chance.below(200)), chance.below(4) == 0);
            let mut lags = Chance(chance.below(u64::MAX));
            world.pass(time, || Duration::from_millis(if late { lags.below(150) } else { 0 }));
            // What an owner sees is where the world is: each row is that of the newest tick.
            for (row, &lane) in world.paced.rows(&[], false, world.now).lanes.iter().enumerate() {
                let seen = world.paced.rows(&[], false, world.now).obs[0].number(row);
                let frame = world.engine.glance(lane as usize).unwrap();
                let is_over = world.paced.state(lane as usize) == Some(LaneState::Over);
                assert!(is_over || seen == frame.steps as f64, "seed {seed}: an older row");
            }
        }
        // Everything that is owed is played, and the last answers are taken.
        let _resumed =
            all.iter().map(|&lane| world.paced.control(&[lane], ClockEvent::Resume, world.now)).count();
        world.pass(Duration::from_secs(1), || Duration::ZERO);
        world.answer(&all);
        world.pass(Duration::from_secs(1), || Duration::ZERO);
        world.answer(&all);
        let ledger = world.ledger.lock();
        let mut orders = ledger.orders.clone();
        orders.sort_unstable();
        let count = orders.len();
        orders.dedup();
        assert_eq!(orders.len(), count, "seed {seed}: an order was carried out twice");
        assert_eq!(world.ticks, ledger.steps as i64, "seed {seed}: ticks");
        assert_eq!(world.reward, ledger.reward, "seed {seed}: rewards");
        assert_eq!(world.ends, ledger.ends, "seed {seed}: ends");
        // Actions that began an episode are ignored, as with any lane.
        assert!(count as i64 + world.dropped <= world.posted, "seed {seed}: dropped {}", world.dropped);
        let begun = 2 * ledger.ends as i64 * MAX_QUEUED_ACTIONS as i64;
        assert!(count as i64 + world.dropped + begun >= world.posted, "seed {seed}: none is forgotten");
    }
}

#[test]
fn orders_that_wait_for_one_tick_are_carried_out_in_it_in_their_order() {
    let mut world = World::new(Pace { hz: 25.0, clock: Clock::Realtime }, 1, AutoresetMode::NextStep, 7);
    for _ in 0..MAX_QUEUED_ACTIONS + 3 {
        world.post(0, false).unwrap();
    }
    assert_eq!(world.ledger.lock().steps, 0);
    world.pass(Duration::from_millis(40), || Duration::ZERO);
    assert_eq!(world.ledger.lock().orders, (3..19).collect::<Vec<i64>>(), "the oldest went");
    let rows = world.answer(&[0]);
    assert_eq!((world.ticks, world.dropped, rows.rewards[0]), (1, 3, 16.0));
}

#[test]
fn a_late_tick_is_counted_and_not_made_up_for() {
    let mut world = World::new(Pace { hz: 25.0, clock: Clock::Realtime }, 1, AutoresetMode::NextStep, 7);
    world.now = Duration::from_millis(170);
    world.tick();
    world.answer(&[0]);
    assert_eq!((world.ticks, world.late), (1, 3));
}

#[test]
fn an_end_stays_until_it_is_answered_and_the_next_episode_begins_with_the_owners_next_action() {
    let mut world = World::new(Pace { hz: 25.0, clock: Clock::Realtime }, 1, AutoresetMode::NextStep, 7);
    world.pass(Duration::from_secs(10), || Duration::ZERO);
    let length = world.ledger.lock().steps;
    assert!(length < 40, "it has ended long before");
    world.post(0, true).unwrap();
    let rows = world.answer(&[0]);
    assert_eq!((rows.terminated[0], rows.obs[0].number(0)), (1, length as f64));
    assert_eq!((world.ticks, world.dropped), (length as i64, 1), "its action came too late");
    world.post(0, true).unwrap();
    world.tick();
    let rows = world.answer(&[0]);
    assert_eq!((rows.reset[0], rows.terminated[0], rows.obs[0].number(0)), (1, 0, 0.0));
    world.pass(Duration::from_millis(80), || Duration::ZERO);
    assert_eq!(world.answer(&[0]).obs[0].number(0), 2.0);
}

#[test]
fn what_is_no_action_is_refused_before_it_waits() {
    let mut world = World::new(Pace { hz: 25.0, clock: Clock::Realtime }, 2, AutoresetMode::NextStep, 7);
    let mut bad = vec![0; MAX_QUEUED_ACTIONS + 1];
    bad[MAX_QUEUED_ACTIONS] = MAX_QUEUED_ACTIONS as i64 + 1;
    let refused = world.paced.post((&[1], ColumnRef::I64(&bad)), true, world.now, |_| false);
    assert!(matches!(refused, Err(PostError::Action(bad)) if bad.lane == 1));
    assert_eq!(world.paced.ready_of(&[0, 1]), [0, 1], "nobody waits for anything");
    let refused = world.paced.control(&[1], ClockEvent::EndPlan, world.now).unwrap_err();
    let refused = StepError::NotNow { lane: refused.0, why: refused.1 };
    assert_eq!(refused.to_string(), "lane 1: a lane that is playing cannot end planning");
}

#[test]
fn an_action_that_comes_while_a_tick_is_under_way_waits_for_the_one_that_takes_it() {
    let mut world = World::new(Pace { hz: 25.0, clock: Clock::Realtime }, 1, AutoresetMode::NextStep, 7);
    world.now = Duration::from_millis(40);
    let (due, actions) = world.paced.due(world.now, |_| false);
    world.post(0, true).unwrap();
    world.engine.send(&due, actions.as_ref()).unwrap();
    let received = world.engine.recv(1, Duration::from_secs(9)).unwrap();
    world.paced.take(&received, world.now);
    assert!(world.paced.ready_of(&[0]).is_empty(), "that tick has not taken it");
    world.pass(Duration::from_millis(40), || Duration::ZERO);
    assert_eq!((world.paced.ready_of(&[0]), &world.ledger.lock().orders[..]), (vec![0], &[0][..]));
}
