//! Lanes that do nothing, each for its time.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, Determinism, EnvSource, EnvSpec, LaneSet, Options, Space, Start};
use rollhouse_env::{BatchEnv, BlockStep, Collected, Ended, EnvEntry, LateLanes, LateRows, MakeError, Post};

pub(super) const ID: &str = "bench/Timed-v0";

/// A block of such lanes.
struct Timed {
    lanes: usize,
    time: [Duration; BLOCK_LANES],
    done_at: [Instant; BLOCK_LANES],
    under_way: LaneSet,
    /// A pipe into which nobody writes: time alone makes lanes finish.
    silent: Arc<(PipeReader, PipeWriter)>,
}

impl Timed {
    /// Returns when the first lane under way is done.
    fn first_done(&self) -> Option<Instant> {
        self.under_way.into_iter().map(|lane| self.done_at[lane]).min()
    }
}

impl BatchEnv for Timed {
    fn lanes(&self) -> usize {
        self.lanes
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
        let until = self.first_done().map_or(deadline, |first| first.min(deadline));
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.silent.0.as_fd())
    }

    fn arm(&mut self, _: Instant) -> Option<Instant> {
        self.first_done()
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

    fn give_up(&mut self, lanes: LaneSet, _why: &str) -> LaneSet {
        self.under_way &= !lanes;
        lanes
    }
}

/// Returns an env whose lanes take 1 ms a step, but the first of a block `first`.
pub(super) fn entry(first: Duration) -> EnvEntry {
    let spec = EnvSpec {
        id: ID.into(),
        source: EnvSource::BuiltIn,
        summary: String::new(),
        observation_space: Space::f32_box(&[0.0], &[1.0]).into(),
        action_space: Space::discrete(2),
        observation_names: vec![],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::NonDeterministic,
        methods: vec![],
        options: vec![],
        info_channels: vec![],
        dynamics_hash: 0,
    };
    EnvEntry::late(spec, move |options: &[Options]| {
        let mut time = [super::ALIKE; BLOCK_LANES];
        time[0] = first;
        let silent = pipe().map_err(|error| MakeError::Refused { source: error.into() })?;
        let silent = Arc::new(silent);
        let block = |options: &[Options]| {
            let (lanes, done_at) = (options.len(), [Instant::now(); BLOCK_LANES]);
            let (under_way, silent) = (LaneSet::NONE, Arc::clone(&silent));
            Box::new(Timed { lanes, time, done_at, under_way, silent }) as Box<dyn BatchEnv>
        };
        Ok(options.chunks(BLOCK_LANES).map(block).collect())
    })
}
