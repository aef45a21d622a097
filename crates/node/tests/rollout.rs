//! Rollouts through the node: goals, cancelling, and every way in which one can fail.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rollhouse_core::{ColumnMut, ColumnRef, EnvSpec, Goal, Interruption, Outcome, Space};
use rollhouse_engine::EngineConfig;
use rollhouse_env::testing::{Gate, Timing, late};
use rollhouse_env::{Env, EnvEntry, Generator, Registry, StepResult};
use rollhouse_node::{Cancel, Exit, Node, Report, Rollout, RolloutError};
use rollhouse_policy::Builtin;
use rollhouse_wire::{Collect, EndCause, OpenSession};

use crate::cluster::{Cluster, THOUSAND, session_of};

/// Far longer than anything here takes; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts to ten, and does something else at one step of its third episode.
struct Counter {
    step: u32,
    episode: u32,
    turn: fn(),
}

impl Env for Counter {
    fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.step = 0;
        self.episode += 1;
        show(self.step, obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        _: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.step += 1;
        if self.step == 5 && self.episode == 3 {
            (self.turn)();
        }
        show(self.step, obs);
        StepResult { reward: 1.0, terminated: self.step == 10, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        self.step
    }
}

fn show(step: u32, obs: &mut [ColumnMut<'_>]) {
    if let [ColumnMut::F32(values)] = obs {
        values[0] = step as f32;
    }
}

fn counter(turn: fn()) -> Arc<EnvEntry> {
    let spec = EnvSpec {
        observation_space: Space::f32_box(&[0.0], &[10.0]).into(),
        observation_names: vec!["count".to_owned()],
        id: "Counter".to_owned(),
        max_episode_steps: None,
        options: Vec::new(),
        ..Registry::builtin().get("CartPole-v1").unwrap().spec().clone()
    };
    Arc::new(EnvEntry::per_lane(spec, move |_| Ok(Counter { step: 0, episode: 0, turn })))
}

/// Returns what `nice` shows of the thread that calls.
fn niceness() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    // The nineteenth, of which the first two come before.
    fields.split(' ').nth(16).unwrap().parse().unwrap()
}

/// Says in the order of the sessions what `nice` shows of the thread that makes their lanes.
fn looked_at(priorities: SyncSender<i32>) -> EnvEntry {
    let spec = counter(|| {}).spec().clone();
    EnvEntry::per_lane(spec, move |_| {
        let _seen = priorities.try_send(niceness());
        Ok(Counter { step: 0, episode: 0, turn: || {} })
    })
}

/// A session that plays by itself, to a goal that never comes.
fn endless(owner: &str, pool: u128, env: &str) -> OpenSession {
    let mut open = session_of(owner, pool, env, 1);
    let goal = Goal::Batches(u64::MAX);
    open.settings.collect = Some(Collect::new("noop", 0, goal));
    open
}

fn cluster_with(env: Arc<EnvEntry>, hang_deadline: Duration) -> Cluster {
    let registry = Registry::default();
    registry.register(Arc::into_inner(env).unwrap()).unwrap();
    Cluster::start(|config| {
        config.registry = Arc::new(registry);
        config.stepping.capacity = 4_096;
        config.stepping.hang_deadline = hang_deadline;
    })
}

/// Symptom: one tenant's rollouts on a node, a thread each, left lanes that trainers step a fiftieth of the processors.
/// Cause: threads of all sessions were as urgent. Fix: those that nobody waits for yield; owners have turns at them, and the
/// processes of an owner's sessions yield the more, the more sessions it has.
#[test]
fn sessions_that_play_by_themselves_yield_to_others_the_more_of_them_an_owner_has() {
    let (sender, priorities) = std::sync::mpsc::sync_channel(1);
    let late = late(&Arc::new(looked_at(sender)), Timing::default());
    while priorities.try_recv().is_ok() {}
    let cluster = cluster_with(late, PATIENCE);
    let priority = |owner, pool| {
        cluster.coordinator.open(&endless(owner, pool, "Counter")).unwrap();
        priorities.recv_timeout(PATIENCE).unwrap()
    };
    // No thread has less than 19.
    let below = |steps: i32| (niceness() + steps).min(19);
    let own = [1, 2, 3, 4].map(|pool| priority("many", pool));
    assert_eq!(own, [5, 8, 11, 11].map(below));
    assert_eq!(priority("few", 9), below(5));
}

/// Symptom: each session that played by itself had a thread for as long as it lived, so a node took 64 of them, however slow their
/// lanes. Cause: the thread waited for the lanes. Fix: sessions have turns at the executor's threads, and none while they wait.
#[test]
fn a_thousand_sessions_that_wait_for_slow_lanes_have_no_threads_and_all_go_on_once_their_lanes_do() {
    static GATE: Gate = Gate::new();
    const SESSIONS: u128 = 1_000;
    let _alone = THOUSAND.lock();
    GATE.close(true);
    let slow = late(&counter(|| ()), Timing { gate: Some(&GATE), ..Timing::default() });
    let cluster = cluster_with(slow, 10 * PATIENCE);
    for pool in 1..=SESSIONS {
        let mut open = endless("many", pool, "Counter");
        open.settings.collect.as_mut().unwrap().goal = Goal::Episodes(3);
        cluster.coordinator.open(&open).unwrap();
    }
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < 300, "{threads} threads of {SESSIONS} sessions");
    GATE.close(false);
    while cluster.node.figures().finished() < 3 * SESSIONS as u64 {
        std::thread::yield_now();
    }
}

#[test]
fn an_env_that_hangs_ends_its_session_as_hung_and_another_thread_takes_the_place_of_its_own() {
    let hang = || loop {
        std::thread::park();
    };
    let cluster = cluster_with(counter(hang), Duration::from_millis(200));
    for pool in 1..=2 {
        let open = endless("ada", pool, "Counter");
        cluster.coordinator.open(&open).unwrap();
        assert_eq!(cluster.coordinator.end_of(&open).cause, EndCause::Hung);
    }
    assert_eq!(cluster.node.figures().threads.abandoned.get(), 2);
}

fn rollout(env: Arc<EnvEntry>, lanes: usize, goal: Goal) -> Rollout {
    Rollout::new(env, EngineConfig::new(lanes), 7, Arc::new(Builtin::Random), goal)
}

fn exit_of(rollout: Rollout) -> Arc<Exit> {
    let node = Node::start().unwrap();
    node.rollout(rollout, None, Cancel::default()).unwrap().wait(PATIENCE).unwrap()
}

fn finished(rollout: Rollout) -> Report {
    match &*exit_of(rollout) {
        Exit::Finished(report) => (**report).clone(),
        other => panic!("{other:?}"),
    }
}

fn cartpole() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

#[test]
fn exactly_the_asked_episodes_are_played_however_they_divide_by_lanes() {
    for (lanes, episodes) in [(1, 1), (8, 3), (8, 8), (70, 203)] {
        let stats = finished(rollout(cartpole(), lanes, Goal::Episodes(episodes))).stats;
        assert_eq!(stats.outcomes.iter().sum::<u64>(), episodes, "{lanes} lanes");
        assert_eq!(stats.finished(), episodes);
    }
}

#[test]
fn rollouts_of_parts_of_a_run_play_what_a_rollout_of_all_of_it_plays() {
    let part = |first_lane: u32, lanes: usize| {
        let mut part = rollout(cartpole(), lanes, Goal::Episodes(53));
        part.engine.first_lane = first_lane;
        part.run_lanes = 10;
        finished(part).stats
    };
    let (whole, parts) = (part(0, 10), [part(0, 4), part(4, 6)]);
    // Lanes 0 to 2 play six episodes, the others five.
    assert_eq!((whole.finished(), parts[0].finished()), (53, 3 * 6 + 5));
    assert_eq!(parts.iter().map(|part| part.finished()).sum::<u64>(), 53);
    assert_eq!(parts.iter().map(|part| part.steps).sum::<u64>(), whole.steps);
    assert_eq!(parts.iter().map(|part| part.returns.sum()).sum::<f64>(), whole.returns.sum());
}

#[test]
fn the_same_seed_gives_the_same_returns_on_any_number_of_threads() {
    let with = |threads| {
        let mut rollout = rollout(cartpole(), 1024, Goal::Episodes(5000));
        rollout.engine.threads = threads;
        finished(rollout)
    };
    let (one, three) = (with(1), with(3));
    assert_eq!((one.threads, three.threads), (1, 3));
    assert_eq!(one.stats, three.stats);
}

#[test]
fn what_is_open_at_the_last_batch_is_cancelled() {
    let stats = finished(rollout(counter(|| ()), 4, Goal::Batches(7))).stats;
    assert_eq!(stats.steps, 28);
    assert_eq!(stats.outcomes[usize::from(Outcome::Interrupted(Interruption::Cancelled).code())], 4);
}

#[test]
fn whole_batches_cover_the_asked_steps() {
    assert_eq!(Goal::steps(1000, 64), Goal::Batches(16));
    assert_eq!(Goal::steps(64, 64), Goal::Batches(1));
    assert_eq!(Goal::steps(1, 64), Goal::Batches(1));
}

#[test]
fn a_cancelled_rollout_ends_with_what_it_has_done() {
    let node = Node::start().unwrap();
    let cancel = Cancel::default();
    let endless = rollout(cartpole(), 64, Goal::Batches(u64::MAX));
    let handle = node.rollout(endless, None, cancel.clone()).unwrap();
    while handle.progress().snapshot().beats < 50 {
        std::thread::yield_now();
    }
    cancel.cancel();
    let exit = handle.wait(PATIENCE).unwrap();
    let Exit::Cancelled(report) = &*exit else { panic!("{exit:?}") };
    assert!(report.stats.steps > 0);
}

#[test]
fn a_lane_that_panics_is_restarted_and_the_episodes_are_played_in_full() {
    let stats = finished(rollout(counter(|| panic!("the third episode")), 3, Goal::Episodes(12))).stats;
    let crashed = stats.outcomes[usize::from(Outcome::Interrupted(Interruption::Crashed).code())];
    // Each lane's env value crashes in its own third episode; the fourth plays on a fresh value.
    assert_eq!(crashed, 3);
    assert_eq!(stats.outcomes.iter().sum::<u64>(), 12);
}

#[test]
fn an_env_that_hangs_is_given_up_and_others_on_the_node_go_on() {
    let node = Node::start().unwrap();
    let hang = || loop {
        std::thread::park();
    };
    let mut stuck = rollout(counter(hang), 2, Goal::Episodes(100));
    stuck.hang_deadline = Duration::from_millis(200);
    let stuck = node.rollout(stuck, None, Cancel::default()).unwrap();
    let exit = stuck.wait(PATIENCE).unwrap();
    assert!(matches!(*exit, Exit::Hung(still) if still >= Duration::from_millis(200)), "{exit:?}");
    let other = rollout(cartpole(), 2, Goal::Episodes(10));
    let other = node.rollout(other, None, Cancel::default()).unwrap();
    assert!(matches!(*other.wait(PATIENCE).unwrap(), Exit::Finished(_)));
}

#[test]
fn a_thread_of_the_engine_that_hangs_is_told_as_a_hang_too() {
    let hang = || loop {
        std::thread::park();
    };
    let mut stuck = rollout(counter(hang), 512, Goal::Episodes(10_000));
    stuck.engine.threads = 2;
    stuck.engine.step_deadline = Duration::from_millis(200);
    // Whichever is noticed first: the thread that steps the second half, or the one that steps the first.
    stuck.hang_deadline = Duration::from_millis(400);
    assert!(matches!(*exit_of(stuck), Exit::Hung(_)));
}

#[test]
fn lanes_that_cannot_be_made_fail_the_session_with_the_reason() {
    let exit = exit_of(rollout(cartpole(), 0, Goal::Batches(1)));
    assert!(matches!(&*exit, Exit::Failed(RolloutError::Engine(_))), "{exit:?}");
}

#[test]
fn late_lanes_play_what_lanes_of_a_kernel_play_whatever_the_order_in_which_they_finish() {
    let kernel = finished(rollout(cartpole(), 70, Goal::Episodes(203))).stats;
    for seed in 0..3 {
        let late = late(&cartpole(), Timing { seed, ..Timing::default() });
        assert_eq!(finished(rollout(Arc::clone(&late), 70, Goal::Episodes(203))).stats, kernel, "{seed}");
        let batches = |env| finished(rollout(env, 3, Goal::Batches(100))).stats;
        assert_eq!(batches(late), batches(cartpole()), "{seed}");
    }
}

/// Symptom: in a rollout of Python envs all lanes waited for the slowest. Cause: they were stepped together. Fix: a late
/// lane goes on as soon as its row is there.
#[test]
fn a_slow_late_lane_holds_no_other_lane_of_its_rollout_up() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (made, seen) = (AtomicUsize::new(0), Arc::clone(&steps));
    let spec = counter(|| ()).spec().clone();
    let entry = EnvEntry::per_lane(spec, move |_| {
        Ok(Numbered { number: made.fetch_add(1, Ordering::Relaxed), step: 0, steps: Arc::clone(&seen) })
    });
    let entry = late(&Arc::new(entry), Timing { last: Some(0), ..Timing::default() });
    steps.lock().unwrap().clear();
    finished(rollout(entry, 4, Goal::Batches(9)));
    let steps = steps.lock().unwrap();
    let (others, slow) = steps.split_at(3 * 9);
    assert!(others.iter().all(|&lane| lane != 0) && slow == [0; 9], "{steps:?}");
}

#[test]
fn late_lanes_that_are_lost_come_back_and_their_episodes_are_played_in_full() {
    let panics = late(&counter(|| panic!("the third episode")), Timing::default());
    let stats = finished(rollout(panics, 3, Goal::Episodes(12))).stats;
    assert!(stats.outcomes[usize::from(Outcome::Interrupted(Interruption::Crashed).code())] > 0);
    assert_eq!(stats.outcomes.iter().sum::<u64>(), 12);
}

/// Says the number of its lane at each step.
struct Numbered {
    number: usize,
    step: u32,
    steps: Arc<Mutex<Vec<usize>>>,
}

impl Env for Numbered {
    fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.step = 0;
        show(self.step, obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        _: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.steps.lock().unwrap().push(self.number);
        self.step += 1;
        show(self.step, obs);
        StepResult { reward: 1.0, terminated: self.step == 10, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        self.step
    }
}
