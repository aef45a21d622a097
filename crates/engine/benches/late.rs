//! One slow lane among 64 that finish when they finish: what it costs the others in first-done mode.
//!
//! Each lane takes 1 ms a step, and in the second of each pair of runs lane 0 takes 100 ms. `cargo bench -p
//! rollhouse-engine --bench late` prints the steps per second of the other 63 lanes in both, and the median of the ratios.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it found")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnMut, DType, Determinism, EnvSpec, LaneSet, Options, Space, Start};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::{BatchEnv, BlockStep, Collected, Ended, EnvEntry, LateLanes, LateRows, Post};

const LANES: usize = 64;
const MIN: usize = 32;
const PAIRS: usize = 7;
const RUN: Duration = Duration::from_secs(2);

/// Lanes that do nothing, each for its time.
struct Timed {
    time: [Duration; BLOCK_LANES],
    done_at: [Instant; BLOCK_LANES],
    under_way: LaneSet,
}

impl BatchEnv for Timed {
    fn lanes(&self) -> usize {
        LANES
    }
    fn seed(&mut self, _: usize, _: u64) {}
    fn position(&self, _: usize) -> Start {
        Start::default()
    }
    fn restore(&mut self, _: usize, _: Start) {}
    fn reset(&mut self, _: LaneSet, _: &mut [ColumnMut<'_>]) -> LaneSet {
        LaneSet::NONE
    }
    fn step(&mut self, _: BlockStep<'_, '_>) -> Ended {
        Ended::default()
    }
    fn state_hash(&self, _: usize) -> u32 {
        0
    }
    fn late(&mut self) -> Option<&mut dyn LateLanes> {
        Some(self)
    }
}

impl LateLanes for Timed {
    fn post(&mut self, post: Post<'_>) {
        let now = Instant::now();
        for lane in post.step | post.reset {
            self.done_at[lane] = now + self.time[lane];
        }
        self.under_way |= post.step | post.reset;
    }

    fn flush(&mut self) {}

    fn wait(&mut self, deadline: Instant) {
        let first = self.under_way.into_iter().map(|lane| self.done_at[lane]).min();
        let until = first.map_or(deadline, |first| first.min(deadline));
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        let now = Instant::now();
        let done: LaneSet = self.under_way.into_iter().filter(|&lane| self.done_at[lane] <= now).collect();
        self.under_way &= !done;
        for lane in done {
            rows.rewards[lane] = 1.0;
        }
        Collected { done, ..Collected::default() }
    }

    fn give_up(&mut self, lanes: LaneSet) -> LaneSet {
        self.under_way &= !lanes;
        lanes
    }
}

fn entry(slow: Duration) -> Arc<EnvEntry> {
    let spec = EnvSpec {
        id: "bench/Timed".into(),
        summary: String::new(),
        observation_space: Space::f32_box(&[0.0], &[1.0]).into(),
        action_space: Space::discrete(2),
        observation_names: vec![],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::NonDeterministic,
        methods: Vec::new(),
        options: vec![],
        info_channels: vec![],
        dynamics_hash: 0,
    };
    Arc::new(EnvEntry::late(spec, move |_: &[Options]| {
        let mut time = [Duration::from_millis(1); BLOCK_LANES];
        time[0] = slow;
        let block = Timed { time, done_at: [Instant::now(); BLOCK_LANES], under_way: LaneSet::NONE };
        Ok(vec![Box::new(block) as Box<dyn BatchEnv>])
    }))
}

/// Returns the steps per second of all lanes but the first.
fn run(slow: Duration) -> f64 {
    let mut engine = Engine::new(&entry(slow), EngineConfig::new(LANES), None).expect("a good configuration");
    engine.reset(&Reset::seeded(1, LANES)).expect("a reset");
    let mut idle: Vec<u32> = (0..LANES as u32).collect();
    let (began, mut steps) = (Instant::now(), 0u64);
    while began.elapsed() < RUN {
        let actions = ColumnData::zeros(DType::I64, idle.len());
        engine.send(&idle, actions.as_ref()).expect("lanes that are not outstanding");
        let received = engine.recv(MIN, Duration::from_secs(60)).expect("lanes that finish");
        steps += received.lanes.iter().filter(|&&lane| lane != 0).count() as u64;
        idle = received.lanes;
    }
    steps as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    println!("{LANES} lanes of 1 ms a step, first-done with min {MIN}; steps per second of 63 of them");
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let alike = run(Duration::from_millis(1));
        let slow = run(Duration::from_millis(100));
        println!(
            "lane 0 as the others: {alike:>8.0}   lane 0 takes 100 ms: {slow:>8.0}   {:.3}",
            slow / alike
        );
        ratios.push(slow / alike);
    }
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[PAIRS / 2], ratios[PAIRS - 1]);
    println!("ratio: median {median:.3}, from {least:.3} to {most:.3}; 0.95 or more is wanted");
}
