//! Lanes that do nothing, each for its time.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Determinism, EnvSource, EnvSpec, LaneSet, Options, Space, Start};
use rollhouse_env::{Collected, EnvEntry, LaneBlock, LateLanes, LateRows, MakeError, Post};

pub(super) const ID: &str = "bench/Timed-v0";

/// A block of such lanes.
struct Timed {
    lanes: usize,
    time: [Duration; BLOCK_LANES],
    done_at: [Instant; BLOCK_LANES],
    under_way: LaneSet,
    number: usize,
    session: Arc<Session>,
}

/// What the blocks of a session share.
struct Session {
    /// A pipe into which nobody writes: time alone makes lanes finish.
    silent: (PipeReader, PipeWriter),
    /// When the first lane of each block is done.
    first_done: Mutex<Vec<Option<Instant>>>,
}

impl Timed {
    fn note_first(&self) {
        let first = self.under_way.into_iter().map(|lane| self.done_at[lane]).min();
        self.session.first_done.lock()[self.number] = first;
    }

    /// Returns when the first lane of the session is done.
    fn first_done(&self) -> Option<Instant> {
        self.session.first_done.lock().iter().flatten().min().copied()
    }
}

impl LaneBlock for Timed {
    fn lanes(&self) -> usize {
        self.lanes
    }
    fn seed(&mut self, _: usize, _: u64) {}
    fn position(&self, _: usize) -> Start {
        Start::default()
    }
    fn restore(&mut self, _: usize, _: Start) {}
    fn state_hash(&self, _: usize) -> u32 {
        0
    }
}

impl LateLanes for Timed {
    fn post(&mut self, post: Post<'_>) {
        let now = Instant::now();
        for lane in post.step | post.reset {
            self.done_at[lane] = now + self.time[lane];
        }
        self.under_way |= post.step | post.reset;
        self.note_first();
    }

    fn flush(&mut self) {}

    fn wait(&mut self, deadline: Instant) {
        let until = self.first_done().map_or(deadline, |first| first.min(deadline));
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.session.silent.0.as_fd())
    }

    fn arm(&mut self, _: Instant) -> Option<Instant> {
        self.first_done()
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        let now = Instant::now();
        let done: LaneSet = self.under_way.into_iter().filter(|&lane| self.done_at[lane] <= now).collect();
        self.under_way &= !done;
        self.note_first();
        for lane in done {
            rows.rewards[lane] = 1.0;
        }
        Collected { done, ..Collected::default() }
    }

    fn give_up(&mut self, lanes: LaneSet, _why: &str) -> LaneSet {
        self.under_way &= !lanes;
        self.note_first();
        lanes
    }
}

/// Returns an env whose lanes take so long for a step, by their number in a block of 64.
pub(super) fn entry(time: impl Fn(usize) -> Duration) -> EnvEntry {
    let time: [Duration; BLOCK_LANES] = std::array::from_fn(time);
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
        let silent = pipe().map_err(|error| MakeError::Refused { source: error.into() })?;
        let first_done = Mutex::new(vec![None; options.len().div_ceil(BLOCK_LANES)]);
        let session = Arc::new(Session { silent, first_done });
        let block = |(number, options): (usize, &[Options])| {
            let (lanes, done_at) = (options.len(), [Instant::now(); BLOCK_LANES]);
            let (under_way, session) = (LaneSet::NONE, Arc::clone(&session));
            Box::new(Timed { lanes, time, done_at, under_way, number, session }) as Box<dyn LateLanes>
        };
        Ok(options.chunks(BLOCK_LANES).enumerate().map(block).collect())
    })
}
