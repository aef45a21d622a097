//! A panic in any method of late lanes loses their block, and no other; so do options that a block does not take. Blocks
//! of late lanes are made together, so that one that is lost stays lost.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{act, header};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    AutoresetMode, Determinism, EnvSource, EnvSpec, Interruption, LaneDeadlines, LaneSet, OptionSpec,
    OptionValue, Options, RecordRule, Space, Start,
};
use rollhouse_engine::{Engine, EngineConfig, LaneOptions, Reset};
use rollhouse_env::{Collected, EnvEntry, LaneBlock, LateLanes, LateRows, MakeError, Post};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Beside, Recorder, RecorderConfig};

const LONG: Duration = Duration::from_secs(30);
const LANES: usize = 70;

/// A method of a late block that panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Post,
    Flush,
    Linger,
    Wait,
    Collect,
    GiveUp,
    Connecting,
    TakePictures,
    Coming,
    SetOptions,
}

const ALL: [At; 9] = [
    At::Post,
    At::Flush,
    At::Linger,
    At::Wait,
    At::Collect,
    At::GiveUp,
    At::Connecting,
    At::TakePictures,
    At::Coming,
];

/// The fault that is to come, in whichever block calls the method first.
#[derive(Debug)]
struct Fuse {
    at: At,
    burns: AtomicBool,
    /// Block in which it came.
    came_in: AtomicUsize,
}

impl Fuse {
    fn burns(&self) -> bool {
        self.burns.load(Ordering::Relaxed)
    }
}

/// A block whose lanes finish when they are collected after a wait, and which hangs while the fuse of a fault burns that
/// comes only to lanes that hang.
struct Slow {
    number: usize,
    counts: Vec<u64>,
    steps: LaneSet,
    resets: LaneSet,
    /// Whether it was waited for since something was posted.
    waited: bool,
    /// Lanes that were asked for once and are being made anew.
    coming: LaneSet,
    fuse: Arc<Fuse>,
}

impl Slow {
    fn pass(&self, here: At) {
        if self.fuse.at == here && self.fuse.burns.swap(false, Ordering::Relaxed) {
            self.fuse.came_in.store(self.number, Ordering::Relaxed);
            panic!("told to panic in {here:?}");
        }
    }

    /// Whether no lane finishes: the fault is in what is asked of lanes that are overdue.
    fn hangs(&self) -> bool {
        matches!(self.fuse.at, At::GiveUp | At::Connecting) && self.fuse.burns()
    }
}

impl LaneBlock for Slow {
    fn lanes(&self) -> usize {
        self.counts.len()
    }
    fn seed(&mut self, _: usize, _: u64) {}
    fn position(&self, _: usize) -> Start {
        Start::default()
    }
    fn restore(&mut self, _: usize, _: Start) {}
    fn set_options(&mut self, _: usize, options: &Options) -> Result<(), MakeError> {
        self.pass(At::SetOptions);
        match options.int("level") {
            Some(13) => Err(MakeError::Kept),
            _ => Ok(()),
        }
    }
    fn state_hash(&self, lane: usize) -> u32 {
        self.counts[lane] as u32
    }
    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let at_once = if self.fuse.at == At::Coming { lanes & self.coming } else { lanes };
        self.coming = lanes & !at_once;
        at_once
    }
}

impl LateLanes for Slow {
    fn post(&mut self, post: Post<'_>) {
        self.pass(At::Post);
        self.steps |= post.step;
        self.resets |= post.reset;
        self.waited = false;
    }
    fn flush(&mut self) {
        self.pass(At::Flush);
    }
    fn linger(&mut self) {
        self.pass(At::Linger);
    }
    fn wait(&mut self, _: Instant) {
        self.pass(At::Wait);
        self.waited = true;
        std::thread::yield_now();
    }
    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        self.pass(At::Collect);
        // The first block alone is waited for, while it is there.
        if self.hangs() || self.number == 0 && !self.waited {
            return Collected::default();
        }
        let (mut steps, mut resets) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.resets));
        // A lane that comes back late is lost first.
        let one =
            if self.fuse.at == At::Coming && self.fuse.burns() { LaneSet::one(1) } else { LaneSet::NONE };
        let lost = (steps | resets) & one;
        steps &= !lost;
        resets &= !lost;
        let mut terminated = LaneSet::NONE;
        for lane in steps | resets {
            self.counts[lane] = if resets.has(lane) { 0 } else { self.counts[lane] + 1 };
            rows.rewards[lane] = if resets.has(lane) { 0.0 } else { 1.0 };
            terminated.insert_if(lane, steps.has(lane) && self.counts[lane] == 50);
            rows.obs[0].as_f32_mut().unwrap()[lane] = self.counts[lane] as f32;
        }
        Collected { done: steps | resets, terminated, lost, ..Collected::default() }
    }
    fn give_up(&mut self, lanes: LaneSet, _why: &str) -> LaneSet {
        self.pass(At::GiveUp);
        self.steps &= !lanes;
        self.resets &= !lanes;
        lanes
    }
    fn connecting(&mut self) -> LaneSet {
        self.pass(At::Connecting);
        LaneSet::NONE
    }
    fn take_pictures(&mut self, _: LaneSet, _: bool) -> Vec<(usize, Vec<u8>)> {
        self.pass(At::TakePictures);
        Vec::new()
    }
    fn coming(&self) -> LaneSet {
        self.pass(At::Coming);
        self.coming
    }
}

fn entry(fuse: &Arc<Fuse>) -> EnvEntry {
    let level = OptionSpec { name: "level".into(), default: OptionValue::Int(0), summary: String::new() };
    let spec = EnvSpec {
        id: "test/Slow-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "finishes when it finishes".into(),
        observation_space: Space::f32_box(&[0.0], &[1e9]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["count".into()],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::NonDeterministic,
        methods: vec![],
        options: vec![level],
        info_channels: vec![],
        dynamics_hash: 0,
    };
    let fuse = Arc::clone(fuse);
    EnvEntry::late(spec, move |options| {
        let block = |(number, options): (usize, &[Options])| {
            Box::new(Slow {
                number,
                counts: vec![0; options.len()],
                steps: LaneSet::NONE,
                resets: LaneSet::NONE,
                waited: false,
                coming: LaneSet::NONE,
                fuse: Arc::clone(&fuse),
            }) as Box<dyn LateLanes>
        };
        Ok(options.chunks(BLOCK_LANES).enumerate().map(block).collect())
    })
}

fn fuse(at: At) -> Arc<Fuse> {
    Arc::new(Fuse { at, burns: AtomicBool::new(false), came_in: AtomicUsize::new(usize::MAX) })
}

/// Steps until no lane is lost but those of a block that is gone. Every other lane steps then.
fn come_back(engine: &mut Engine, gone: &Range<usize>, what: &str) {
    let began = Instant::now();
    while engine.lost() > gone.len() {
        assert!(began.elapsed() < LONG, "{what}: they do not come back");
        act(engine, &[1; LANES]);
        engine.step().unwrap();
    }
    assert!(gone.clone().all(|lane| engine.loss(lane).is_some()), "{what}");
    // In one of these two a lane begins, in the other it steps.
    let steps = [(), ()].map(|()| {
        act(engine, &[1; LANES]);
        engine.step().unwrap().rewards().to_vec()
    });
    let stepped = |lane: usize| steps.iter().any(|rewards| rewards[lane] == 1.0);
    assert!((0..LANES).all(|lane| stepped(lane) != gone.contains(&lane)), "{what}");
}

#[test]
fn a_panic_in_any_method_of_late_lanes_loses_their_block_alone_and_the_others_step_on() {
    for at in ALL {
        let what = format!("{at:?}");
        let fuse = fuse(at);
        let entry = Arc::new(entry(&fuse));
        let config = EngineConfig {
            autoreset: AutoresetMode::NextStep,
            lane_deadlines: LaneDeadlines::both(Duration::from_millis(50)),
            ..EngineConfig::new(LANES)
        };
        let recorder =
            Recorder::open(Arc::new(FaultyDisk::new()), Path::new("data"), RecorderConfig::default())
                .unwrap();
        let beside = Beside { frames_every: 1, ..Beside::default() };
        let run = recorder.begin_run_with(header(&entry, &config, RecordRule::All), beside).unwrap();
        let mut engine = Engine::new(&entry, config, Some(&run)).unwrap();
        engine.reset(&Reset::all()).unwrap();
        act(&mut engine, &[1; LANES]);
        engine.step().unwrap();
        fuse.burns.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while fuse.burns() {
            assert!(began.elapsed() < LONG, "{what}: it was not called");
            act(&mut engine, &[1; LANES]);
            engine.step().unwrap();
        }
        let block = fuse.came_in.load(Ordering::Relaxed) * BLOCK_LANES;
        let lost = block..(block + BLOCK_LANES).min(LANES);
        for lane in 0..LANES {
            let loss = engine.loss(lane);
            match at {
                // Those of the other block hung as well, and are given up for that.
                At::GiveUp | At::Connecting if !lost.contains(&lane) => {
                    assert!(matches!(loss, None | Some(Interruption::Hung)), "{what}, lane {lane}: {loss:?}");
                }
                // One lane of each block was lost for that to be asked.
                At::Coming if !lost.contains(&lane) && lane % BLOCK_LANES == 1 => {
                    assert!(
                        matches!(loss, None | Some(Interruption::Crashed)),
                        "{what}, lane {lane}: {loss:?}"
                    );
                }
                _ if lost.contains(&lane) => {
                    assert_eq!(loss, Some(Interruption::Crashed), "{what}, lane {lane}")
                }
                _ => assert_eq!(loss, None, "{what}, lane {lane}"),
            }
        }
        come_back(&mut engine, &lost, &what);
        engine.close().unwrap();
    }
}

/// Options that are given between two episodes and that the env does not take, or panics over, although they were tried.
#[test]
fn options_that_a_late_block_refuses_lose_the_lane_and_those_that_it_panics_over_the_block() {
    for panics in [false, true] {
        let fuse = fuse(At::SetOptions);
        let entry = Arc::new(entry(&fuse).with_tried_options(|_| Ok(())));
        let config = EngineConfig { autoreset: AutoresetMode::NextStep, ..EngineConfig::new(LANES) };
        let mut engine = Engine::new(&entry, config, None).unwrap();
        fuse.burns.store(panics, Ordering::Relaxed);
        let level = if panics { 7 } else { 13 };
        let values = LaneOptions::from([("level".to_owned(), vec![OptionValue::Int(level)])]);
        let refused = engine.set_options(2..3, values).unwrap_err().to_string();
        let cause = if panics { "panicked" } else { "keep the options" };
        assert!(refused.contains(cause), "{refused}");
        let lost = if panics { 0..BLOCK_LANES } else { 2..3 };
        for lane in 0..LANES {
            let wanted = lost.contains(&lane).then_some(Interruption::Crashed);
            assert_eq!(engine.loss(lane), wanted, "lane {lane}, {panics}");
        }
        let had = engine.options(0..LANES).unwrap();
        assert!(had.iter().all(|options| options.int("level") == Some(0)), "none is given");
        engine.reset(&Reset::all()).unwrap();
        let gone = if panics { lost } else { 0..0 };
        come_back(&mut engine, &gone, cause);
    }
}
