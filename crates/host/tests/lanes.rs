//! Late lanes whose worker is a program that fails as it is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnRef, Distribution, LaneDeadlines, LaneSet, OptionValue, Options, Start,
};
use rollhouse_engine::{Engine, EngineConfig, LaneOptions, OptionsError, Reset, StepError};
use rollhouse_env::{
    BlockEnv, CallError, Collected, EnvEntry, ImageSize, LateRows, MakeError, Post, RenderError,
};
use rollhouse_host::{
    Connect, ConnectWatch, DescriptionError, EnvRequest, InfoRequest, Launcher, PythonError, PythonHost,
    RefusalKind,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

/// Lanes of one block, and their rows.
struct Lanes {
    block: BlockEnv,
    pairs: Vec<f32>,
    flags: Vec<u8>,
    rewards: Vec<f64>,
}

impl Lanes {
    fn of(kwargs: serde_json::Value, lanes: usize, workers: usize) -> Self {
        Self::watched(kwargs, lanes, workers, &ConnectWatch::default())
    }

    /// Lanes whose connecting `watch` shows.
    fn watched(kwargs: serde_json::Value, lanes: usize, workers: usize, watch: &ConnectWatch) -> Self {
        let entry = watched_entry(kwargs, workers, watch).expect("the worker describes its env");
        let mut blocks = make(&entry, lanes).expect("the workers start");
        assert_eq!(blocks.len(), 1);
        let mut block = blocks.remove(0);
        (0..lanes).for_each(|lane| block.seed(lane, 10 + lane as u64));
        Self { block, pairs: vec![0.0; 2 * lanes], flags: vec![0; lanes], rewards: vec![-1.0; lanes] }
    }

    fn post(&mut self, step: LaneSet, reset: LaneSet) {
        let actions: Vec<i64> = (0..self.rewards.len() as i64).collect();
        let late = self.block.late().expect("its lanes are late");
        late.post(Post { step, reset, actions: ColumnRef::I64(&actions), repeats: false });
        late.flush();
    }

    fn collect(&mut self) -> Collected {
        let Self { block, pairs, flags, rewards } = self;
        let obs = &mut [ColumnMut::F32(pairs), ColumnMut::U8(flags)];
        block.late().expect("its lanes are late").collect(LateRows { obs, infos: &mut [], rewards })
    }

    /// Collects until that many lanes are no longer under way.
    fn collect_all(&mut self, lanes: usize) -> Collected {
        self.collect_until(|over| over.len() >= lanes)
    }

    /// Collects until `are_all` holds of the lanes that are no longer under way.
    fn collect_until(&mut self, are_all: impl Fn(LaneSet) -> bool) -> Collected {
        let (mut all, deadline) = (Collected::default(), Instant::now() + Duration::from_secs(60));
        loop {
            let new = self.collect();
            all.add(new);
            if are_all(all.done | all.lost | all.hung) {
                return all;
            }
            assert!(Instant::now() < deadline, "{all:?}");
            self.block.late().expect("its lanes are late").wait(deadline);
        }
    }

    /// Collects as [`Lanes::collect_all`] does, asleep on the descriptor meanwhile.
    fn sleep_and_collect(&mut self, lanes: usize) -> Collected {
        let (mut all, deadline) = (Collected::default(), Instant::now() + Duration::from_secs(60));
        loop {
            let late = self.block.late().expect("its lanes are late");
            late.flush();
            all.add(self.collect());
            if (all.done | all.lost | all.hung).len() >= lanes {
                return all;
            }
            let (now, late) = (Instant::now(), self.block.late().expect("its lanes are late"));
            assert!(now < deadline, "nobody woke the sleeper: {all:?}");
            let until = late.arm(now).unwrap_or(deadline);
            let left = Timespec::try_from(until.saturating_duration_since(now)).expect("a time");
            let descriptor = late.descriptor().expect("workers have one");
            poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&left))
                .expect("it is open");
        }
    }

    fn step(&mut self) -> Collected {
        let lanes = self.rewards.len();
        self.post(LaneSet::first(lanes), LaneSet::NONE);
        self.collect_all(lanes)
    }

    fn reset(&mut self) -> Collected {
        let lanes = self.rewards.len();
        self.post(LaneSet::NONE, LaneSet::first(lanes));
        self.collect_all(lanes)
    }

    /// Asks for lanes until they are back.
    fn revive(&mut self, lanes: LaneSet) {
        let (mut back, deadline) = (LaneSet::NONE, Instant::now() + Duration::from_secs(60));
        while back != lanes {
            assert!(Instant::now() < deadline, "{back:?} are back");
            back |= self.block.revive(lanes & !back);
            let late = self.block.late().expect("its lanes are late");
            assert_eq!(late.coming() | back, lanes);
            late.wait(Instant::now() + Duration::from_millis(20));
        }
    }

    fn pair(&self, lane: usize) -> [f32; 2] {
        [self.pairs[2 * lane], self.pairs[2 * lane + 1]]
    }
}

fn entry(kwargs: serde_json::Value, workers: usize) -> Result<EnvEntry, PythonError> {
    watched_entry(kwargs, workers, &ConnectWatch::default())
}

fn watched_entry(
    kwargs: serde_json::Value,
    workers: usize,
    watch: &ConnectWatch,
) -> Result<EnvEntry, PythonError> {
    let mut path = std::env::current_exe().expect("a test knows its path");
    path.pop();
    path.pop();
    path.extend(["examples", "lane_worker"]);
    let host = PythonHost {
        interpreter: path.into(),
        allow: vec!["lanes".to_owned()],
        workers: Some(workers),
        launch_deadline: Duration::from_secs(60),
        lane_deadlines: LaneDeadlines::default(),
        connect: Connect::default(),
        launcher: Launcher::new(2),
        memory: None,
        census: None,
        draw: false,
    };
    let serde_json::Value::Object(kwargs) = kwargs else { panic!("arguments are a map") };
    let env = EnvRequest {
        id: "lanes:Counting".into(),
        kwargs,
        deterministic: None,
        infos: InfoRequest::default(),
    };
    host.entry(&env, watch)
}

fn make(entry: &EnvEntry, lanes: usize) -> Result<Vec<BlockEnv>, MakeError> {
    entry.make_blocks_on(rollhouse_env::InstructionSet::best(), &vec![Options::default(); lanes])
}

/// An env that declares options.
fn shifting(length: u64) -> EnvEntry {
    entry(json!({"length": length, "shift": true}), 2).expect("it can be hosted")
}

fn shifted(entry: &EnvEntry, shift: OptionValue) -> Options {
    Options::check(&entry.spec().options, &[("shift".to_owned(), shift)]).expect("it is one of its options")
}

fn between(low: f64, high: f64) -> OptionValue {
    OptionValue::Drawn(Distribution::Uniform([low, high]))
}

fn lanes(lanes: &[usize]) -> LaneSet {
    lanes.iter().copied().collect()
}

#[test]
fn lanes_of_all_workers_do_what_was_posted_with_their_own_seeds_and_actions() {
    let mut five = Lanes::of(json!({"length": 3}), 5, 2);
    assert_eq!(five.reset(), Collected { done: LaneSet::first(5), ..Collected::default() });
    for step in 1..=3 {
        let collected = five.step();
        let over = if step == 3 { LaneSet::first(5) } else { LaneSet::NONE };
        let wanted = Collected { done: LaneSet::first(5), terminated: over, ..Collected::default() };
        assert_eq!(collected, wanted);
        for lane in 0..5 {
            assert_eq!(
                (five.pair(lane), five.rewards[lane]),
                ([10.0 + lane as f32, step as f32], lane as f64)
            );
        }
    }
    // One steps, one begins again, and the rows of others are left alone.
    five.pairs.fill(-7.0);
    five.block.seed(4, 99);
    five.post(lanes(&[1]), lanes(&[2, 4]));
    assert_eq!(five.collect_all(3).done, lanes(&[1, 2, 4]));
    let shown: Vec<_> = (0..5).map(|lane| five.pair(lane)).collect();
    assert_eq!(shown, [[-7.0, -7.0], [11.0, 4.0], [12.0, 0.0], [-7.0, -7.0], [99.0, 0.0]]);
    let word = |seed, words| Start { seed, words, half: None };
    assert_eq!([1, 2, 4].map(|lane| five.block.position(lane)), [word(11, 1), word(12, 2), word(99, 1)]);
}

#[test]
fn more_lanes_than_a_block_has_share_the_workers() {
    let entry = entry(json!({"length": 3}), 3).unwrap();
    let mut blocks = make(&entry, 150).unwrap();
    assert_eq!(blocks.iter().map(|block| block.lanes()).collect::<Vec<_>>(), [64, 64, 22]);
    for block in &mut blocks {
        let count = block.lanes();
        let (mut pairs, mut flags) = (vec![0.0; 2 * count], vec![0; count]);
        (0..count).for_each(|lane| block.seed(lane, lane as u64));
        let obs = &mut [ColumnMut::F32(&mut pairs), ColumnMut::U8(&mut flags)];
        assert!(block.reset_at_once(LaneSet::first(count), obs, Instant::now).is_empty());
        assert_eq!(pairs[2 * (count - 1)], (count - 1) as f32);
        assert_eq!(flags, vec![1; count]);
    }
}

#[test]
fn a_lane_is_collected_while_its_neighbour_in_the_same_process_hangs_and_the_hung_one_is_given_up() {
    let mut four = Lanes::of(json!({"length": 9, "fault": "hang", "lane": 1, "at": 2}), 4, 2);
    let _ = four.reset();
    assert_eq!(four.step().done, LaneSet::first(4));
    four.post(LaneSet::first(4), LaneSet::NONE);
    assert_eq!(four.collect_all(3).done, lanes(&[0, 2, 3]));
    let late = four.block.late().unwrap();
    assert_eq!(late.give_up(lanes(&[1]), "late"), lanes(&[1]));
    // Its neighbour had nothing to do; when it is asked for it is told that something it shares was late.
    assert_eq!(late.give_up(lanes(&[0, 1]), "late"), LaneSet::NONE);
    let collected = four.step();
    assert_eq!((collected.done, collected.lost, collected.hung), (lanes(&[2, 3]), lanes(&[1]), lanes(&[0])));
    assert_eq!(four.pair(2), [12.0, 3.0]);
    four.revive(lanes(&[0, 1]));
    four.post(LaneSet::NONE, lanes(&[0, 1]));
    assert_eq!(four.collect_all(2).done, lanes(&[0, 1]));
    // Their seeds follow from where they stood.
    assert!(four.pair(0)[0] != 10.0 && four.pair(0)[1] == 0.0 && four.pair(0) != four.pair(1));
}

/// Symptom: a pool was refused because one of its processes was killed while it started, as when memory was short for a
/// moment. Cause: whatever was lost before all were there ended the start. Fix: a process that dies is started once more,
/// and refuses the pool only if that dies as well.
/// A worker rings nobody for what it publishes in the first millisecond of a command: the sleeper looks by itself.
#[test]
fn one_who_sleeps_wakes_for_a_lane_whose_neighbour_hangs_and_for_the_end_of_a_worker() {
    let mut two = Lanes::of(json!({ "fault": "hang", "lane": 1, "at": 2, "length": 100 }), 2, 1);
    two.post(LaneSet::NONE, LaneSet::first(2));
    assert_eq!(two.sleep_and_collect(2).done, LaneSet::first(2));
    two.post(LaneSet::first(2), LaneSet::NONE);
    assert_eq!(two.sleep_and_collect(2).done, LaneSet::first(2));
    two.post(LaneSet::first(2), LaneSet::NONE);
    assert_eq!(two.sleep_and_collect(1).done, lanes(&[0]));
    let late = two.block.late().unwrap();
    assert_eq!(late.arm(Instant::now()), None, "nothing of one lane is unheard of");
    assert_eq!(late.give_up(lanes(&[1]), "it took too long"), lanes(&[1]));
    let mut four = Lanes::of(json!({ "fault": "exit", "lane": 2, "at": 1, "length": 100 }), 4, 2);
    four.post(LaneSet::NONE, LaneSet::first(4));
    assert_eq!(four.sleep_and_collect(4).done, LaneSet::first(4));
    four.post(LaneSet::first(4), LaneSet::NONE);
    let Collected { done, lost, .. } = four.sleep_and_collect(4);
    assert_eq!((done, lost), (lanes(&[0, 1]), lanes(&[2, 3])));
}

#[test]
fn a_worker_that_dies_as_it_is_launched_is_launched_once_more() {
    let marker = std::env::temp_dir().join(format!("rollhouse-died-{}", std::process::id()));
    let kwargs = json!({"length": 9, "fault": "die", "lane": 2, "marker": marker.to_str()});
    let mut four = Lanes::of(kwargs, 4, 2);
    std::fs::remove_file(&marker).expect("it has died once");
    assert_eq!(four.reset().done, LaneSet::first(4));
    assert_eq!(four.step().done, LaneSet::first(4));
    let entry = entry(json!({"length": 9, "fault": "die", "lane": 2}), 2).unwrap();
    let Err(refused) = make(&entry, 4) else { panic!("it dies each time") };
    let mut causes = std::iter::successors(Some(&refused as &dyn std::error::Error), |error| error.source());
    assert!(causes.any(|cause| cause.to_string().contains("its last output: it fell over")), "{refused:?}");
}

#[test]
fn lanes_whose_worker_connects_are_told_apart_from_others_under_way() {
    let mut four = Lanes::of(json!({"length": 9, "fault": "connect", "lane": 1, "at": 1}), 4, 2);
    let _ = four.reset();
    four.post(LaneSet::first(4), LaneSet::NONE);
    assert_eq!(four.collect_all(3).done, lanes(&[0, 2, 3]));
    let late = four.block.late().unwrap();
    while late.connecting().is_empty() {
        late.wait(Instant::now() + Duration::from_millis(20));
    }
    assert_eq!(late.connecting(), lanes(&[1]));
    assert_eq!(late.give_up(lanes(&[1]), "late"), lanes(&[1]));
    assert_eq!(late.connecting(), LaneSet::NONE);
}

/// Symptom: a session whose lanes had all begun was said to connect for as long as its trainer asked for nothing more. Cause:
/// lanes are back with their rows, before their worker answers, and nobody looked at what it said until the next step.
#[test]
fn lanes_that_are_back_are_no_longer_said_to_connect_though_their_worker_has_not_answered() {
    let marker = std::env::temp_dir().join(format!("rollhouse-reached-{}", std::process::id()));
    let kwargs = json!({"length": 9, "fault": "connect late", "lane": 1, "at": 1, "marker": marker.to_str()});
    let watch = ConnectWatch::default();
    let mut two = Lanes::watched(kwargs, 2, 1, &watch);
    let _ = two.reset();
    two.post(LaneSet::first(2), LaneSet::NONE);
    while watch.retries().is_none() {
        two.block.late().unwrap().wait(Instant::now() + Duration::from_millis(20));
    }
    std::fs::write(&marker, []).unwrap();
    let collected = two.collect_all(2);
    std::fs::remove_file(&marker).unwrap();
    assert_eq!((collected.done, watch.retries()), (LaneSet::first(2), None));
}

#[test]
fn a_worker_that_ends_costs_its_own_lanes_and_comes_back() {
    let mut four = Lanes::of(json!({"length": 9, "fault": "exit", "lane": 2, "at": 1}), 4, 2);
    let _ = four.reset();
    let collected = four.step();
    assert_eq!((collected.done, collected.lost), (lanes(&[0, 1]), lanes(&[2, 3])));
    assert_eq!(four.pair(1), [11.0, 1.0]);
    four.revive(lanes(&[2, 3]));
    four.post(LaneSet::NONE, lanes(&[2, 3]));
    assert_eq!(four.collect_all(2).done, lanes(&[2, 3]));
}

#[test]
fn what_makes_no_sense_costs_the_lane_or_its_worker_and_no_other() {
    for (fault, lost) in [
        ("raise", &[1][..]),
        ("reward", &[1]),
        ("boolean", &[1]),
        // Who writes flags that there are not, or says that it is done when it is not, is not believed any more.
        ("silence", &[1]),
        ("flags", &[1]),
    ] {
        let mut four = Lanes::of(json!({"length": 9, "fault": fault, "lane": 1, "at": 1}), 4, 2);
        let _ = four.reset();
        let collected = four.step();
        assert!(
            collected.lost.has(1) && (collected.lost & lanes(&[2, 3])).is_empty(),
            "{fault}: {collected:?}"
        );
        assert!(collected.lost.len() <= lost.len() + 1, "{fault}: {collected:?}");
        assert_eq!((four.pair(3), four.rewards[3]), ([13.0, 1.0], 3.0), "{fault}");
        four.revive(lanes(&[1]));
        four.post(lanes(&[2, 3]), lanes(&[1]));
        assert_eq!(four.collect_all(3).done, lanes(&[1, 2, 3]), "{fault}");
    }
}

/// Symptom: lanes of all workers were lost, or had numbers of nowhere. Cause: the workers of a session shared one memory, so
/// that one which had run wild wrote over the rows and control words of the others. Fix: each has a memory of its own.
#[test]
fn a_worker_that_writes_over_all_memory_that_it_reaches_costs_its_own_lanes_and_no_other_number() {
    for fault in ["fill and end", "fill and hang", "fill and go on"] {
        let mut four = Lanes::of(json!({"length": 9, "fault": fault, "lane": 1, "at": 2}), 4, 2);
        let expect_others = |four: &Lanes, steps: usize| {
            for lane in [2, 3] {
                let shown = (four.pair(lane), four.rewards[lane]);
                assert_eq!(shown, ([10.0 + lane as f32, steps as f32], lane as f64), "{fault}");
            }
        };
        let _ = four.reset();
        assert_eq!(four.step().done, LaneSet::first(4));
        four.post(LaneSet::first(4), LaneSet::NONE);
        let others = lanes(&[2, 3]);
        let mut collected = four.collect_until(|over| over & others == others);
        assert_eq!(collected.done & others, others, "{fault}");
        expect_others(&four, 2);
        if fault == "fill and hang" {
            let _ = four.block.late().unwrap().give_up(LaneSet::first(4), "a step took longer than 1s");
        } else if collected.lanes() != LaneSet::first(4) {
            let over = collected.lanes();
            let _ = four.collect_until(|later| over | later == LaneSet::first(4));
        }
        // A row that it wrote before it ended stands; then it is gone with its lanes.
        for steps in 3..6 {
            collected = four.step();
            assert_eq!(collected.done & others, others, "{fault}");
            expect_others(&four, steps);
        }
        let gone = collected.lost | collected.hung;
        if fault != "fill and go on" {
            assert_eq!(gone, lanes(&[0, 1]), "{fault}");
            let why = four.block.late().unwrap().why_lost(1).unwrap();
            assert!(why.contains("exit status: 5") || why.contains("took longer"), "{fault}: {why}");
        }
        four.revive(gone);
        (0..2).for_each(|lane| four.block.seed(lane, 10 + lane as u64));
        four.post(others, lanes(&[0, 1]));
        assert_eq!(four.collect_all(4).done, LaneSet::first(4), "{fault}");
        assert_eq!([0, 1].map(|lane| four.pair(lane)), [[10.0, 0.0], [11.0, 0.0]], "{fault}");
        expect_others(&four, 6);
    }
}

/// A file that is removed at the end of a test, however it ends.
struct Marker(std::path::PathBuf);

impl Drop for Marker {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

#[test]
fn what_a_lost_worker_left_behind_changes_no_number_of_the_next_one() {
    let marker = Marker(std::env::temp_dir().join(format!("rollhouse-left-{}", std::process::id())));
    std::fs::write(&marker.0, []).unwrap();
    let kwargs = json!({"length": 9, "fault": "leave", "lane": 1, "at": 1, "marker": marker.0.to_str()});
    let mut four = Lanes::of(kwargs, 4, 2);
    let _ = four.reset();
    let collected = four.step();
    assert!(collected.done & lanes(&[2, 3]) == lanes(&[2, 3]) && collected.lost.has(1), "{collected:?}");
    four.revive(lanes(&[0, 1]));
    for number in 0..50 {
        // No lane of it steps, so that it leaves nothing more behind.
        four.block.seed(0, number);
        four.block.seed(1, 2 * number);
        four.post(LaneSet::NONE, LaneSet::first(4));
        assert_eq!(four.collect_all(4).done, LaneSet::first(4));
        let shown = [0, 1, 2, 3].map(|lane| four.pair(lane));
        let of = |seed: u64| [seed as f32, 0.0];
        assert_eq!(shown, [of(number), of(2 * number), [12.0, 0.0], [13.0, 0.0]]);
        std::thread::yield_now();
    }
    assert!(marker.0.exists());
}

#[test]
fn a_worker_that_prints_a_lot_is_not_held_up() {
    let mut two = Lanes::of(json!({"length": 9, "fault": "noise", "lane": 0, "at": 1}), 2, 1);
    let _ = two.reset();
    assert_eq!(two.step().done, LaneSet::first(2));
}

#[test]
fn what_cannot_be_hosted_is_refused_by_its_kind() {
    let refused = entry(json!({"length": 1, "fault": "refuse"}), 1).unwrap_err();
    let PythonError::Description(DescriptionError::Refused(refusal)) = refused else { panic!("{refused}") };
    assert_eq!(refusal.kind, RefusalKind::NotAllowed);
    let lie = entry(json!({"length": 1, "fault": "lie"}), 1).unwrap_err();
    assert!(matches!(lie, PythonError::Description(DescriptionError::Nonsense(_))), "{lie}");
    let differ = entry(json!({"length": 1, "fault": "differ"}), 2).unwrap();
    assert!(make(&differ, 1).is_ok());
    let Err(MakeError::Refused { source }) = make(&differ, 2) else { panic!("workers that differ are used") };
    assert!(source.to_string().contains("are others"), "{source}");
}

#[test]
fn each_reset_has_the_options_of_its_lane_and_one_after_the_end_of_its_worker_as_well() {
    let entry = entry(json!({"length": 9, "shift": true, "fault": "exit", "lane": 2, "at": 1}), 2).unwrap();
    let of = |shift: f64| shifted(&entry, OptionValue::Float(shift));
    let options = [of(0.25), of(0.5), of(2.25), of(3.0)];
    let block = entry.make_blocks_on(rollhouse_env::InstructionSet::best(), &options).unwrap().remove(0);
    let mut four = Lanes { block, pairs: vec![0.0; 8], flags: vec![0; 4], rewards: vec![0.0; 4] };
    (0..4).for_each(|lane| four.block.seed(lane, 10 + lane as u64));
    let _ = four.reset();
    assert_eq!([0, 1, 2, 3].map(|lane| four.pair(lane)[0]), [10.25, 11.5, 14.25, 16.0]);
    four.block.set_options(1, &of(7.0)).unwrap();
    assert_eq!(four.step().lost, lanes(&[2, 3]));
    four.revive(lanes(&[2, 3]));
    (0..4).for_each(|lane| four.block.seed(lane, 0));
    let _ = four.reset();
    assert_eq!([0, 1, 2, 3].map(|lane| four.pair(lane)[0]), [0.25, 7.0, 2.25, 3.0]);
}

#[test]
fn options_that_are_too_much_for_one_command_go_with_several() {
    let entry = shifting(9);
    let text = OptionValue::Text("x".repeat(4096));
    let of = |lane: u32| {
        let given = [("shift".to_owned(), OptionValue::Int(lane.into())), ("text".to_owned(), text.clone())];
        Options::check(&entry.spec().options, &given).unwrap()
    };
    let options: Vec<_> = (0..1_000).map(of).collect();
    let blocks = entry.make_blocks_on(rollhouse_env::InstructionSet::best(), &options).unwrap();
    for (first, mut block) in (0..).step_by(64).zip(blocks) {
        let count = block.lanes();
        let (mut pairs, mut flags) = (vec![0.0; 2 * count], vec![0; count]);
        (0..count).for_each(|lane| block.seed(lane, 0));
        let obs = &mut [ColumnMut::F32(&mut pairs), ColumnMut::U8(&mut flags)];
        assert!(block.reset_at_once(LaneSet::first(count), obs, Instant::now).is_empty());
        let shown: Vec<_> = pairs.iter().step_by(2).copied().collect();
        assert_eq!(shown, (first..).take(count).map(|lane| lane as f32).collect::<Vec<_>>());
    }
}

#[test]
fn what_an_episode_draws_is_what_its_env_gets_in_every_mode() {
    let entry = Arc::new(shifting(3));
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let options = vec![shifted(&entry, between(0.0, 0.5))];
        let mut engine =
            Engine::new(&entry, EngineConfig { autoreset, options, ..EngineConfig::new(5) }, None).unwrap();
        engine.reset(&Reset::seeded(1, 5)).unwrap();
        let (mut first, mut values) = (Vec::new(), Vec::new());
        for step in 0..13 {
            let told: Vec<_> =
                engine.options(0..5).unwrap().iter().map(|o| o.float("shift").unwrap()).collect();
            let frame = engine.frame().unwrap();
            let shown: Vec<_> = frame.obs(0).as_f32().unwrap().iter().step_by(2).copied().collect();
            if step == 0 {
                first.clone_from(&shown);
            }
            for lane in 0..5 {
                // Seeds are whole numbers. Those of later episodes are too large for a single's fraction.
                if shown[lane] < 1e4 {
                    assert_eq!(shown[lane], (shown[lane].trunc() as f64 + told[lane]) as f32);
                }
                if !values.contains(&told[lane]) {
                    values.push(told[lane]);
                }
            }
            engine.step().unwrap();
        }
        assert!(first.iter().zip(1..).all(|(&shown, seed)| shown > seed as f32));
        assert!(values.len() >= 15 && values.iter().all(|value| (0.0..0.5).contains(value)), "{values:?}");
    }
}

#[test]
fn a_reset_gives_its_lanes_options_without_new_workers_and_nothing_of_what_the_env_refuses() {
    let entry = Arc::new(shifting(9));
    let mut engine = Engine::new(&entry, EngineConfig::new(3), None).unwrap();
    engine.reset(&Reset::seeded(10, 3)).unwrap();
    let first = |engine: &mut Engine| {
        let frame = engine.frame().unwrap();
        frame.obs(0).as_f32().unwrap().iter().step_by(2).copied().collect::<Vec<_>>()
    };
    assert_eq!(first(&mut engine), [10.5, 11.5, 12.5]);
    let give = |values: &[f64]| {
        let values = values.iter().copied().map(OptionValue::Float).collect();
        LaneOptions::from([("shift".to_owned(), values)])
    };
    let reset = |options, mask: [bool; 3]| {
        let seeds = vec![Some(20), Some(21), Some(22)];
        Reset { seeds, mask: mask.to_vec(), options }
    };
    engine.reset(&reset(give(&[1.0, 2.0, 3.0]), [true, false, true])).unwrap();
    // The worker's lane begins a new env with a seed; the one between plays on.
    assert_eq!(first(&mut engine), [21.0, 11.5, 25.0]);
    let refused = engine.reset(&reset(give(&[-1.0]), [true; 3])).unwrap_err();
    assert!(refused.to_string().contains("shift is below 0"), "{refused}");
    engine.reset(&reset(LaneOptions::new(), [true; 3])).unwrap();
    assert_eq!(first(&mut engine), [21.0, 21.5, 25.0]);
    let playing = engine.set_options(0..3, give(&[4.0])).unwrap_err();
    assert!(matches!(playing, StepError::Options(OptionsError::State { lane: 0, .. })), "{playing}");
}

#[test]
fn options_with_which_the_env_begins_no_episode_are_refused_before_lanes_are_made() {
    let entry = shifting(9);
    let described = &entry.spec().options;
    assert_eq!(described.iter().map(|option| &option.name[..]).collect::<Vec<_>>(), ["shift", "text"]);
    assert_eq!(described[0].default, OptionValue::Float(0.5));
    for good in [OptionValue::Int(3), between(0.0, 2.0)] {
        entry.check_drawn(&shifted(&entry, good)).unwrap();
    }
    for bad in [OptionValue::Int(-3), between(-0.5, 2.0)] {
        let Err(MakeError::Refused { source }) = entry.check_drawn(&shifted(&entry, bad)) else {
            panic!("they are taken")
        };
        assert_eq!(source.to_string(), "the options are refused: shift is below 0");
    }
}

#[test]
fn a_call_is_answered_by_its_lane_and_one_that_fails_costs_the_lane_or_its_worker() {
    let mut four = Lanes::of(json!({"length": 9}), 4, 2);
    let _ = four.reset();
    let _ = four.step();
    let call = |lanes: &mut Lanes, lane, method| lanes.block.call(lane, method, "{\"a\": 1}");
    assert_eq!(call(&mut four, 3, "say"), Ok("1 {\"a\": 1}".to_owned()));
    assert_eq!(call(&mut four, 0, "refuse"), Err(CallError::refused("{\"a\": 1}")));
    assert_eq!(four.step().done, LaneSet::first(4));
    assert_eq!(call(&mut four, 0, "fail"), Err(CallError::Lost));
    assert_eq!(four.block.late().unwrap().gone().lost, lanes(&[0]));
    assert_eq!(call(&mut four, 0, "say"), Err(CallError::Lost));
    let Collected { done, lost, .. } = four.step();
    assert_eq!((done, lost), (lanes(&[1, 2, 3]), lanes(&[0])));
    four.revive(lanes(&[0]));
    for (lane, method) in [(2, "exit"), (1, "nonsense")] {
        assert_eq!(call(&mut four, lane, method), Err(CallError::Lost), "{method}");
        let gone = four.block.late().unwrap().gone();
        let mates = if lane == 2 { lanes(&[2, 3]) } else { lanes(&[0, 1]) };
        assert!((gone.lost & mates) == mates, "{method}: {gone:?}");
        four.revive(mates);
    }
    assert_eq!(four.reset().done, LaneSet::first(4));
    assert_eq!(call(&mut four, 2, "say"), Ok("0 {\"a\": 1}".to_owned()));
}

#[test]
fn a_lane_is_drawn_in_any_size_and_what_is_no_picture_costs_no_lane() {
    let drawing = json!({"length": 9, "fault": "draw"});
    let known = entry(drawing.clone(), 1).unwrap();
    let own = known.render_size().expect("it says how large its pictures are");
    assert_eq!((own.width(), own.height(), known.render_fps()), (2, 1, Some(7)));
    assert_eq!(entry(json!({"length": 9}), 1).unwrap().render_size(), None);
    let mut four = Lanes::of(drawing, 4, 1);
    let _ = four.reset();
    assert_eq!(four.block.render(0, own).unwrap().pixels(), [1, 2, 3, 4, 5, 6]);
    let larger = four.block.render(0, ImageSize::new(4, 1).unwrap()).unwrap();
    assert_eq!(larger.pixels(), [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]);
    for lane in [1, 2] {
        assert_eq!(four.block.render(lane, own).unwrap_err(), RenderError::Unsupported, "{lane}");
        assert_eq!(four.step().done, LaneSet::first(4));
    }
    // Who ends over it is lost.
    assert_eq!(four.block.render(3, own).unwrap_err(), RenderError::Lost);
    assert_eq!(four.block.late().unwrap().gone().lost, LaneSet::first(4));
}
