//! The protocol of workers that have lanes: a record of each in the worker's memory, and a byte of it in a command.

mod call;
mod exact;
mod lane;
mod own;
mod python;
mod talk;

use std::ops::Range;
use std::time::{Duration, Instant};

use rollhouse_arena::SharedMemory;
use rollhouse_core::{LaneSet, Options, Start, StateHasher, Verdict};
use rollhouse_env::{CallError, Collected, Image, ImageSize, LateRows, MakeError, Post, RenderError};
use tracing::warn;

use crate::pool::{Gone, Met, Outstanding, Protocol, WorkerPool};
use crate::record::{LaneRecord, Record};
use crate::supervisor::{Restart, WorkerState};
use crate::worker_slot::Memories;

use lane::{Lane, Stage, Task};
pub use own::{Answers, OwnWorkers, Said, Why};
pub(crate) use python::{PythonMessages, PythonPool};
use talk::SAYS_LATER;
pub(crate) use talk::Talk;

/// The lanes of a pool's workers.
///
/// ```text
///           ┌────────────── collected ──────────────┐
///           ▼                                       │
///         Ready ─ posted ─▶ Waiting ─ dispatched ─▶ UnderWay
///           ▲ │                │ lost                 │ lost
///   revived │ │ lost           ▼                      │
///         Lost ◀─ collected ─ Failing ◀───────────────┘
/// ```
///
/// A lost lane that is posted fails as well, so that each loss is told to who asks for the lane.
#[derive(Debug)]
pub(crate) struct LaneProtocol<M> {
    record: Record,
    lanes: Vec<Lane>,
    /// Bytes of a row: kept so that a step allocates none.
    row: Vec<u8>,
    /// Whether the lanes of a worker step together: they are lost together, and come back together. So a row that is nonsense
    /// ends its worker: no lane can be made anew without the others.
    together: bool,
    /// Of each worker whose lanes come back together, whether they do.
    returning: Vec<bool>,
    messages: M,
}

/// What is sent beside commands and rows of lanes.
pub(crate) trait LaneMessages: Send + Sized + 'static {
    /// Whether lanes send more than rows.
    const SPEAKS: bool;

    /// Takes a worker's answer to its hello, as [`Protocol::meet`] has it.
    fn meet(&mut self, worker: usize, answer: Vec<u8>) -> Result<Met, String>;

    /// Adds to a command of `without` bytes what goes beside it.
    fn add_to(&self, command: &mut Vec<u8>, without: usize, lanes: &mut [Lane]) {
        let _ = (command, without, lanes);
    }

    /// Takes what came with the answer to a command of these lanes. The error says what is wrong with it.
    fn take_words(&mut self, lanes: &mut [Lane], payload: &[u8]) -> Result<(), String>;

    /// Takes the answer of a worker to its first command, or to a call. Returns whether its lanes are there for the first
    /// time.
    fn take_reply(&mut self, worker: usize, to: Outstanding, payload: Vec<u8>) -> bool {
        let _ = (worker, to, payload);
        false
    }

    /// Notes that a worker has ended, as [`Protocol::take_end`] has it.
    fn take_end(&mut self, gone: Gone, to: Outstanding, restart: Restart) {
        let _ = (gone, to, restart);
    }
}

impl<M: LaneMessages> LaneProtocol<M> {
    /// Makes the lanes of workers with these ranges of lanes, each with its record in its worker's memory.
    pub(crate) fn new(record: Record, ranges: &[Range<usize>], together: bool, messages: M) -> Self {
        let exact = record.has_generator();
        let lanes = ranges
            .iter()
            .enumerate()
            .flat_map(|(worker, range)| (0..range.len()).map(move |index| Lane::new(worker, index, exact)));
        let (lanes, returning) = (lanes.collect(), vec![false; ranges.len()]);
        Self { record, lanes, row: Vec::new(), together, returning, messages }
    }

    /// Gives a lane's next resets options; none if the env has none.
    pub(crate) fn give_options(&mut self, lane: usize, options: &Options) {
        let has_options = options.iter().next().is_some();
        // Nothing in it can fail to be written: its keys are texts.
        let json = has_options.then(|| serde_json::to_vec(options).unwrap_or_default());
        self.lanes[lane].options = json.unwrap_or_default();
    }

    /// Returns the record of a lane.
    fn record_of<'a>(&'a self, lane: usize, memories: Memories<'a>) -> Option<LaneRecord<'a>> {
        self.lanes[lane].record(&self.record, memories)
    }

    /// Writes the rows of a block's lanes that have answered. Workers that lied are added to `liars`.
    fn collect(
        &mut self,
        block: Range<usize>,
        rows: LateRows<'_, '_>,
        memories: Memories<'_>,
        liars: &mut Vec<usize>,
    ) -> Collected {
        let mut collected = Collected::default();
        let Self { record, lanes, row, together, .. } = self;
        let count = block.len();
        for (index, number) in block.enumerate() {
            let lane = &mut lanes[number];
            if let Stage::Failing { hung } = lane.stage {
                let lost = if hung { &mut collected.hung } else { &mut collected.lost };
                lost.insert(index);
                lane.stage = Stage::LOST;
                continue;
            }
            let its = lane.record(record, memories);
            let Some((its, mut flags)) = its.and_then(|its| lane.row(its)) else { continue };
            if M::SPEAKS {
                if flags & SAYS_LATER != 0 && !lane.talk.has_come() {
                    continue;
                }
                let (left, heard) = lane.hear(flags, its);
                if let Err(nonsense) = heard {
                    warn!(lane = number, %nonsense, "a worker's words make no sense");
                    liars.push(lane.worker);
                }
                flags = left;
            }
            if flags == LOST || flags > TERMINATED | TRUNCATED {
                if flags != LOST {
                    warn!(worker = lane.worker, flags, "a worker writes flags that there are not");
                    liars.push(lane.worker);
                }
                lane.fail(M::SPEAKS);
                collected.lost.insert(index);
                continue;
            }
            let reward = if lane.stage == Stage::Ahead { Ok(0.0) } else { its.reward() };
            let written = reward.and_then(|reward| {
                rows.rewards[index] = reward;
                its.columns(rows.obs, rows.infos, (index, count), row)?;
                lane.exact.as_mut().map_or(Ok(()), |exact| exact.add(its, reward, flags))
            });
            if let Err(nonsense) = written {
                warn!(lane = number, %nonsense, "an env gives what it cannot; the lane is lost");
                lane.lose_for(&nonsense);
                liars.extend(together.then_some(lane.worker));
                collected.lost.insert(index);
                continue;
            }
            lane.stage = if lane.orphaned { Stage::Lost { hung: lane.talk.is_hung() } } else { Stage::Ready };
            collected.done.insert(index);
            collected.terminated.insert_if(index, flags & TERMINATED != 0);
            collected.truncated.insert_if(index, flags & TRUNCATED != 0);
        }
        collected
    }
}

impl<M: LaneMessages> Protocol for LaneProtocol<M> {
    const LOOKS_FIRST: bool = false;

    fn begin(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.stage = Stage::Ready);
    }

    fn meet(&mut self, worker: usize, answer: Vec<u8>) -> Result<Met, String> {
        self.messages.meet(worker, answer)
    }

    fn take_reply(&mut self, worker: usize, to: Outstanding, parts: Range<usize>, payload: Vec<u8>) {
        if self.messages.take_reply(worker, to, payload) {
            self.lanes[parts].iter_mut().for_each(|lane| lane.stage = Stage::Ready);
        }
    }

    fn take_end(&mut self, gone: Gone, to: Outstanding, restart: Restart) {
        self.messages.take_end(gone, to, restart);
    }

    fn command(
        &mut self,
        (worker, parts): (usize, Range<usize>),
        number: u64,
        _: Memories<'_>,
        command: &mut Vec<u8>,
    ) -> bool {
        let count = parts.len();
        let lanes = &mut self.lanes[parts];
        if !lanes.iter().any(|lane| matches!(lane.stage, Stage::Waiting(_))) {
            return false;
        }
        self.returning[worker] = false;
        command.resize(count * COMMAND_BYTES, Task::Nothing as u8);
        for (index, lane) in lanes.iter_mut().enumerate() {
            let Stage::Waiting(task) = lane.stage else { continue };
            if !task.steps() && !lane.add_options(index, command, count * COMMAND_BYTES) {
                continue;
            }
            lane.stage = Stage::UnderWay(number);
            command[index] = task as u8;
            if !task.steps() {
                let at = count + index * size_of::<u64>();
                command[at..at + size_of::<u64>()].copy_from_slice(&lane.take_seed().to_le_bytes());
            }
        }
        self.messages.add_to(command, count * COMMAND_BYTES, lanes);
        true
    }

    fn has_losses(&self) -> bool {
        self.lanes.iter().any(Lane::is_known)
    }

    fn has_rows(&self, memories: Memories<'_>) -> bool {
        self.lanes.iter().any(|lane| lane.has_answered(&self.record, memories))
    }

    fn is_unheard(&self, parts: Range<usize>) -> bool {
        let under_way = |lane: &&Lane| matches!(lane.stage, Stage::UnderWay(_));
        self.lanes[parts].iter().filter(under_way).nth(1).is_some()
    }

    fn take_words(&mut self, _: usize, parts: Range<usize>, payload: &[u8]) -> Result<(), String> {
        self.messages.take_words(&mut self.lanes[parts], payload)
    }

    fn is_silent(&self, mut parts: Range<usize>, number: u64, memories: Memories<'_>) -> bool {
        parts.any(|lane| {
            self.lanes[lane].stage == Stage::UnderWay(number)
                && self.record_of(lane, memories).is_none_or(|its| its.number() >> 8 != number)
        })
    }

    fn keep_rows(&self, parts: Range<usize>, memories: Memories<'_>, (left, at): (&SharedMemory, usize)) {
        for lane in &self.lanes[parts] {
            let waits = lane.orphaned && matches!(lane.stage, Stage::UnderWay(_) | Stage::Ahead);
            if let (true, Some(its)) = (waits, lane.record(&self.record, memories)) {
                its.copy_from(self.record.lane(left, at, lane.index));
            }
        }
    }

    fn lose(
        &mut self,
        (worker, parts): (usize, Range<usize>),
        memories: Memories<'_>,
        hung: bool,
        why: &str,
    ) {
        self.returning[worker] = false;
        for lane in &mut self.lanes[parts] {
            // Its worker makes all of its envs anew.
            (lane.anew, lane.ahead) = (false, false);
            let its = lane.record(&self.record, memories);
            let written = |wanted| {
                its.is_some_and(|its| {
                    let answer = its.number();
                    answer >> 8 == wanted && (answer & SAYS_LATER == 0 || lane.talk.has_come())
                })
            };
            match lane.stage {
                Stage::UnderWay(wanted) if written(wanted) => lane.orphaned = true,
                Stage::Ahead => lane.orphaned = true,
                Stage::Waiting(_) | Stage::UnderWay(_) => lane.stage = Stage::Failing { hung },
                Stage::Ready => lane.stage = Stage::Lost { hung },
                Stage::Failing { .. } | Stage::Lost { .. } => continue,
            }
            lane.talk.end(hung, why);
        }
    }

    fn post(pool: &mut WorkerPool<Self>, block: Range<usize>, post: &Post<'_>) {
        let Self { record, lanes, row, .. } = &mut pool.protocol;
        let (memories, count) = (pool.host.memories(), block.len());
        for index in (post.step | post.reset) & LaneSet::first(count) {
            let number = block.start + index;
            let lane = &mut lanes[number];
            let its = lane.record(record, memories);
            let task = lane.task(post.step.has(index), post.repeats && record.reports());
            let ahead = std::mem::take(&mut lane.ahead) && task == Task::Reset;
            match lane.stage {
                Stage::Ready if ahead => {
                    lane.position.words += 1;
                    lane.stage = Stage::Ahead;
                }
                Stage::Ready => lane.stage = Stage::Waiting(task),
                Stage::Lost { hung } => lane.stage = Stage::Failing { hung },
                // It is under way already, which whoever posts knows.
                Stage::Waiting(_) | Stage::UnderWay(_) | Stage::Ahead | Stage::Failing { .. } => continue,
            }
            lane.talk.begin(task.steps());
            if let (true, Some(its)) = (task.steps(), its) {
                its.put_action(post.actions, index, count, row);
            }
            if let Some(exact) = &mut lane.exact {
                if let (Task::Placed, Some(generator), Some(its)) = (task, exact.wanted(), its) {
                    its.put_generator(generator);
                    lane.seed = Some(generator.position().seed);
                }
                exact.post(task.steps());
            }
        }
    }

    fn collect(pool: &mut WorkerPool<Self>, block: Range<usize>, rows: LateRows<'_, '_>) -> Collected {
        pool.pump();
        let mut liars = Vec::new();
        let collected = pool.protocol.collect(block, rows, pool.host.memories(), &mut liars);
        liars.into_iter().for_each(|worker| pool.end_worker(worker, true));
        // Lanes are back before their worker replies.
        pool.host.look_again_at_tries();
        collected
    }

    fn workers_of(&self, block: Range<usize>, lanes: LaneSet) -> Vec<usize> {
        let of = |index: usize| {
            let lane = &self.lanes[block.start + index];
            matches!(lane.stage, Stage::Waiting(_) | Stage::UnderWay(_)).then_some(lane.worker)
        };
        let mut workers: Vec<_> = lanes.into_iter().filter_map(of).collect();
        workers.dedup();
        workers
    }

    fn take_given_up(&mut self, block: Range<usize>) -> LaneSet {
        let mut lost = LaneSet::NONE;
        for (index, lane) in self.lanes[block].iter_mut().enumerate() {
            if lane.stage == (Stage::Failing { hung: true }) {
                lane.stage = Stage::LOST;
                lost.insert(index);
            }
        }
        lost
    }

    fn connecting(pool: &mut WorkerPool<Self>, block: Range<usize>) -> LaneSet {
        let lanes = pool.protocol.lanes[block].iter().enumerate();
        let under_way = |lane: &Lane| matches!(lane.stage, Stage::Waiting(_) | Stage::UnderWay(_));
        lanes
            .filter(|(_, lane)| under_way(lane) && pool.host.is_connecting(lane.worker))
            .map(|(index, _)| index)
            .collect()
    }

    fn revive(pool: &mut WorkerPool<Self>, block: Range<usize>, lanes: LaneSet) -> LaneSet {
        pool.pump();
        if pool.protocol.together {
            gather(pool, block.clone(), lanes);
        }
        let coming = Self::coming(pool, block.clone(), lanes);
        let Self { lanes: all, returning, together, .. } = &mut pool.protocol;
        let mut revived = LaneSet::NONE;
        for index in lanes & LaneSet::first(block.len()) {
            let lane = &mut all[block.start + index];
            // One that does not come back is tried again later, and not with the others.
            lane.to_return &= coming.has(index);
            let up = pool.workers[lane.worker].up;
            if lane.stage.is_lost() && up && (returning[lane.worker] || !*together) {
                lane.revive();
                revived.insert(index);
            }
        }
        revived
    }

    fn coming(pool: &WorkerPool<Self>, block: Range<usize>, lanes: LaneSet) -> LaneSet {
        let Self { lanes: all, returning, together, .. } = &pool.protocol;
        let comes = |index: &usize| {
            let lane = &all[block.start + index];
            let waits_for_others = *together && pool.workers[lane.worker].up && !returning[lane.worker];
            lane.stage.is_lost() && (pool.is_coming(lane.worker) || waits_for_others)
        };
        (lanes & LaneSet::first(block.len())).into_iter().filter(comes).collect()
    }

    fn gone(&self, block: Range<usize>) -> Collected {
        let mut gone = Collected::default();
        for (index, lane) in self.lanes[block].iter().enumerate() {
            if let Stage::Lost { hung } = lane.stage {
                if hung { gone.hung.insert(index) } else { gone.lost.insert(index) }
            }
        }
        gone
    }

    fn refuse(&mut self, lane: usize, why: &str) {
        warn!(lane, why, "a row is refused; its lane is lost");
        self.lanes[lane].lose_by(why);
    }

    /// Waits a moment for the words of an env that has failed, which come with the answer to its worker's command.
    fn why_lost(pool: &mut WorkerPool<Self>, lane: usize) -> Option<String> {
        let (worker, deadline) = (pool.protocol.lanes[lane].worker, Instant::now() + WORDS_WITHIN);
        while pool.host.state(worker) == WorkerState::Busy && Instant::now() < deadline {
            pool.wait(deadline);
        }
        let Why { hung, detail, .. } = pool.protocol.lanes[lane].talk.why();
        Some(match (detail.is_empty(), hung) {
            (false, _) => detail,
            (true, true) => "it took too long".to_owned(),
            (true, false) => "its worker was ended for what it wrote".to_owned(),
        })
    }

    fn further_infos(&self, lane: usize, memories: Memories<'_>) -> Option<String> {
        self.record_of(lane, memories)?.further()
    }

    fn take_pictures(
        pool: &mut WorkerPool<Self>,
        block: Range<usize>,
        lanes: LaneSet,
        begun: bool,
    ) -> Vec<(usize, Vec<u8>)> {
        let lanes = lanes & LaneSet::first(block.len());
        let of = |lane: usize| {
            let number = block.start + lane;
            let known = &mut pool.protocol.lanes[number];
            let picture = match M::SPEAKS {
                true => known.talk.take_picture(begun),
                false if std::mem::take(&mut known.painted) => call::fetch_picture(pool, number),
                false => None,
            };
            Some((lane, picture?))
        };
        lanes.into_iter().filter_map(of).collect()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.lanes[lane].seed(seed);
    }

    fn position(pool: &mut WorkerPool<Self>, lane: usize) -> Start {
        pool.protocol.lanes[lane].position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.lanes[lane].restore(start);
    }

    fn set_options(pool: &mut WorkerPool<Self>, lane: usize, options: &Options) -> Result<(), MakeError> {
        pool.protocol.give_options(lane, options);
        Ok(())
    }

    /// Returns a hash of what a lane's episode has shown, if the env is declared deterministic, else of its last
    /// observation.
    fn hash(pool: &mut WorkerPool<Self>, lane: usize) -> u32 {
        if let Some(exact) = &pool.protocol.lanes[lane].exact {
            return exact.hash();
        }
        let its = pool.protocol.record_of(lane, pool.host.memories());
        its.map_or(0, |its| its.hashed(StateHasher::new()).finish())
    }

    fn has_verdicts(&self) -> bool {
        true
    }

    fn verdict(pool: &mut WorkerPool<Self>, lane: usize) -> Verdict {
        let its = pool.protocol.record_of(lane, pool.host.memories());
        its.map(LaneRecord::verdict).unwrap_or_default()
    }

    fn call(
        pool: &mut WorkerPool<Self>,
        lane: usize,
        method: &str,
        payload: &str,
    ) -> Result<String, CallError> {
        call::call(pool, lane, method, payload)
    }

    fn render(pool: &mut WorkerPool<Self>, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        call::render(pool, lane, size)
    }
}

/// Notes that lanes of a block are to come back, and which workers' lanes do so now: those of which every lane is lost
/// and is to. It is decided as the block of a worker's first lane asks, after which the other blocks ask.
fn gather<M: LaneMessages>(pool: &mut WorkerPool<LaneProtocol<M>>, block: Range<usize>, lanes: LaneSet) {
    let LaneProtocol { lanes: all, returning, .. } = &mut pool.protocol;
    for index in lanes & LaneSet::first(block.len()) {
        all[block.start + index].to_return = true;
    }
    let first = pool.workers.iter().zip(returning).filter(|(worker, _)| block.contains(&worker.parts.start));
    for (worker, returning) in first {
        let mine = &all[worker.parts.clone()];
        *returning = worker.up && mine.iter().all(|lane| lane.stage.is_lost() && lane.to_return);
    }
}

/// Bytes of a command for each lane: its task and its seed.
const COMMAND_BYTES: usize = 1 + size_of::<u64>();

/// How a lane answered, in the low byte of its number.
const TERMINATED: u64 = 1;
const TRUNCATED: u64 = 2;
const LOST: u64 = 4;

/// Time for which the words of an env that has failed are waited for.
const WORDS_WITHIN: Duration = Duration::from_secs(1);
