//! The blocks that one thread steps, and the orders that it follows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_arena::{Patience, Rows, Share, Turns};
use rollhouse_core::LaneSet;
use rollhouse_core::limits::BLOCK_LANES;

use crate::block::{Block, Turn};
use crate::block::{flush, note_time, settle, wait};
use crate::first_done::{Received, Task, TaskChannels, ToCrew, look};
use crate::timings::{Laps, Timings};

/// Blocks that one thread steps, with their rows.
pub(crate) struct Crew {
    pub(crate) share: Share,
    pub(crate) blocks: Vec<Block>,
    pub(crate) timings: Timings,
    /// True if lanes finish when they finish.
    pub(crate) late: bool,
}

/// Work between two frames that every crew does on its blocks.
pub(crate) type Job = dyn Fn(&mut Block, &mut Rows<'_>) + Send + Sync;

/// Orders of the owner to the crews, written before a turn starts and read by the crews during it.
#[derive(Default)]
pub(crate) struct Orders {
    order: AtomicU8,
    sampled: AtomicBool,
    now_ms: AtomicU64,
    since_start_ns: AtomicU64,
    policy_version: AtomicU64,
    job: Mutex<Option<Arc<Job>>>,
    /// Timings that crews reported in the last [`Order::Report`].
    reported: Mutex<Timings>,
}

/// Purpose of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Step every lane once.
    Step,
    /// Do the job on every block.
    Job,
    /// Report the crew's timings.
    Report,
    /// Take sub-batches from the crew's channel until it is closed.
    Serve,
    /// End the thread.
    Stop,
}

impl Orders {
    /// Sets the next turn's order. The atomics need no ordering of their own: starting the turn releases
    /// them, and a crew reads them after it has acquired the turn.
    #[inline]
    pub(crate) fn give(&self, order: Order, turn: Turn, sampled: bool) {
        self.order.store(order as u8, Ordering::Relaxed);
        self.sampled.store(sampled, Ordering::Relaxed);
        self.now_ms.store(turn.now_ms, Ordering::Relaxed);
        self.since_start_ns.store(turn.since_start.as_nanos() as u64, Ordering::Relaxed);
        self.policy_version.store(turn.policy_version, Ordering::Relaxed);
    }

    /// Sets the job that [`Order::Job`] does.
    pub(crate) fn set_job(&self, job: Option<Arc<Job>>) {
        *self.job.lock() = job;
    }

    /// Takes the timings that the crews reported.
    pub(crate) fn take_report(&self) -> Timings {
        std::mem::take(&mut *self.reported.lock())
    }

    fn report(&self, timings: &Timings) {
        self.reported.lock().merge(timings);
    }

    fn job(&self) -> Option<Arc<Job>> {
        self.job.lock().clone()
    }

    fn order(&self) -> Order {
        match self.order.load(Ordering::Relaxed) {
            0 => Order::Step,
            1 => Order::Job,
            2 => Order::Report,
            3 => Order::Serve,
            _ => Order::Stop,
        }
    }

    pub(crate) fn turn(&self) -> Turn {
        Turn {
            now_ms: self.now_ms.load(Ordering::Relaxed),
            since_start: Duration::from_nanos(self.since_start_ns.load(Ordering::Relaxed)),
            policy_version: self.policy_version.load(Ordering::Relaxed),
        }
    }
}

impl Crew {
    /// Returns the lanes of the crew.
    pub(crate) fn range(&self) -> Range<usize> {
        self.share.range()
    }

    /// Steps every lane of the crew once.
    #[inline]
    pub(crate) fn step(&mut self, turn: Turn, sampled: bool) {
        if self.late {
            return self.step_frame(turn, sampled);
        }
        let Some(mut rows) = self.share.begin() else { return };
        let mut laps = Laps::start(sampled);
        for block in &mut self.blocks {
            block.step(&mut rows, turn, &mut laps);
        }
        drop(rows);
        laps.finish(&mut self.timings);
    }

    /// Hands over what may not wait any longer once stepping has paused for so long. Returns whether something stays. It
    /// needs no turn, for it looks at no row.
    pub(crate) fn hand_over(&mut self, paused: Duration) -> bool {
        self.blocks.iter_mut().fold(false, |stays, block| block.hand_over(paused) | stays)
    }

    /// Does a job on every block. Late lanes that it posted have finished when this returns.
    pub(crate) fn run(&mut self, job: &Job, turn: Turn) {
        let Some(mut rows) = self.share.begin() else { return };
        if self.late {
            note_time(&mut self.blocks, Instant::now());
        }
        for block in &mut self.blocks {
            job(block, &mut rows);
        }
        if self.late {
            settle(&mut self.blocks, &mut rows, turn, &mut Laps::start(false), None);
        }
    }

    /// Steps the lanes of a task. Returns `None` if the crew has no turn.
    pub(crate) fn do_task(&mut self, task: &Task) -> Option<Received> {
        let mut rows = self.share.begin()?;
        let mut result = Received::default();
        for part in task.parts(&self.blocks) {
            let block = &mut self.blocks[part.block];
            let range = block.rows().clone();
            block.step_some(&mut rows, part.actions.as_ref(), part.lanes, task.turn, &mut Laps::start(false));
            rows.with_block(&range, |rows| result.gather(rows, part.lanes, &range));
        }
        rows.suspend();
        Some(result)
    }
}

/// Lanes that finish when they finish.
impl Crew {
    /// Steps every lane of the crew once, and waits for all.
    pub(crate) fn step_frame(&mut self, turn: Turn, sampled: bool) {
        let Some(mut rows) = self.share.begin() else { return };
        note_time(&mut self.blocks, Instant::now());
        let mut laps = Laps::start(sampled);
        for block in &mut self.blocks {
            block.post_frame(&mut rows, turn);
        }
        settle(&mut self.blocks, &mut rows, turn, &mut laps, None);
        drop(rows);
        laps.finish(&mut self.timings);
    }

    /// Posts a step of every lane of the crew, without waiting for any. [`Crew::finish`] ends the turn.
    pub(crate) fn post_frame(&mut self, turn: Turn) {
        let Some(mut rows) = self.share.begin() else { return };
        note_time(&mut self.blocks, Instant::now());
        for block in &mut self.blocks {
            block.post_frame(&mut rows, turn);
        }
        rows.suspend();
        flush(&mut self.blocks);
    }

    /// Does a job on every block, without waiting for the lanes that it posts. [`Crew::finish`] ends the turn.
    pub(crate) fn post_job(&mut self, job: &Job) {
        let Some(mut rows) = self.share.begin() else { return };
        note_time(&mut self.blocks, Instant::now());
        for block in &mut self.blocks {
            job(block, &mut rows);
        }
        rows.suspend();
        flush(&mut self.blocks);
    }

    /// Waits until no lane is under way, at most until `deadline`. Returns whether none is; the turn has ended then.
    pub(crate) fn finish(&mut self, turn: Turn, deadline: Instant) -> bool {
        let Some(mut rows) = self.share.begin() else { return true };
        let mut laps = Laps::start(false);
        let finished = settle(&mut self.blocks, &mut rows, turn, &mut laps, Some(deadline));
        if !finished {
            rows.suspend();
        }
        finished
    }

    /// Makes lost lanes anew whose back-off is over, while others are under way.
    pub(crate) fn restart(&mut self, since_start: Duration) {
        self.blocks.iter_mut().for_each(|block| block.restart_now(since_start));
    }

    /// Posts the lanes of a task.
    pub(crate) fn post_task(&mut self, task: &Task) {
        let Some(mut rows) = self.share.begin() else { return };
        note_time(&mut self.blocks, Instant::now());
        for part in task.parts(&self.blocks) {
            let block = &mut self.blocks[part.block];
            block.post_some(&mut rows, part.actions.as_ref(), part.lanes, task.turn);
        }
        rows.suspend();
        flush(&mut self.blocks);
    }

    /// Returns the rows that are complete by now.
    pub(crate) fn take_ready(&mut self, turn: Turn) -> Received {
        let mut received = Received::default();
        let Some(mut rows) = self.share.begin() else { return received };
        note_time(&mut self.blocks, Instant::now());
        for block in &mut self.blocks {
            let ready = block.collect(&mut rows, turn, &mut Laps::start(false));
            if !ready.is_empty() {
                let range = block.rows().clone();
                rows.with_block(&range, |rows| received.gather(rows, ready, &range));
            }
        }
        rows.suspend();
        flush(&mut self.blocks);
        received
    }

    /// Returns the newest row of a lane that is not under way.
    pub(crate) fn row(&mut self, lane: usize) -> Option<Received> {
        let range = self.blocks.get(lane / BLOCK_LANES)?.rows().clone();
        let mut rows = self.share.begin()?;
        let mut received = Received::default();
        let one = LaneSet::one(lane - range.start);
        rows.with_block(&range, |rows| received.gather(rows, one, &range));
        rows.suspend();
        Some(received)
    }

    /// Waits until a lane may have finished or has been under way for too long, at most until `deadline`.
    pub(crate) fn wait_for_any(&mut self, deadline: Instant) {
        let due = self.blocks.iter().filter_map(Block::due).min();
        wait(&mut self.blocks, due.map_or(deadline, |due| due.min(deadline)));
    }

    /// Ends a turn in which lanes were posted: waits for those that are under way, and drops their rows.
    pub(crate) fn end_posting(&mut self, turn: Turn) {
        let Some(mut rows) = self.share.begin() else { return };
        settle(&mut self.blocks, &mut rows, turn, &mut Laps::start(false), None);
    }
}

/// Runs a crew's thread, which takes turns until it is told to stop. Where it comes late, the owner may have stepped
/// its crew.
///
/// On cancel: ends at the next turn, or, while it serves tasks, when the owner is gone. On error: a panic outside an env ends the thread and its turn; the
/// owner notices at its next turn's deadline.
pub(crate) fn work(
    shared: &Mutex<Crew>,
    mut turns: Turns,
    orders: &Orders,
    channels: &TaskChannels,
    mut patience: Patience,
    started: Instant,
) {
    loop {
        // Without a deadline waiting cannot time out.
        if turns.wait(&mut patience, None).is_err() {
            continue;
        }
        let mut crew: MutexGuard<'_, Crew> = shared.lock();
        // While it has none, orders may be those of a turn that has not begun.
        if !crew.share.has_turn() {
            continue;
        }
        let turn = orders.turn();
        match orders.order() {
            Order::Step => {
                let sampled = orders.sampled.load(Ordering::Relaxed);
                if sampled {
                    crew.timings.queue_wait.add(started.elapsed().saturating_sub(turn.since_start));
                }
                crew.step(turn, sampled);
            }
            Order::Job => match orders.job() {
                Some(job) => crew.run(&*job, turn),
                None => drop(crew.share.begin()),
            },
            Order::Report => {
                orders.report(&crew.timings);
                drop(crew.share.begin());
            }
            Order::Serve => {
                if !serve(&mut crew, channels, &mut patience, started) {
                    return;
                }
            }
            Order::Stop => {
                drop(crew.share.begin());
                return;
            }
        }
    }
}

/// Serves tasks until the owner says that no more come. This is one turn: the rows are the crew's throughout. Returns false
/// if there is no owner any more.
fn serve(crew: &mut Crew, channels: &TaskChannels, patience: &mut Patience, started: Instant) -> bool {
    let tasks = channels.tasks.lock();
    let owned = loop {
        let Some(next) = look(&tasks, patience).or_else(|| tasks.recv().ok()) else { break false };
        let task = match next {
            ToCrew::Step(task) => task,
            ToCrew::HandOver(paused) => {
                crew.hand_over(paused);
                continue;
            }
            ToCrew::End => break true,
        };
        crew.timings.queue_wait.add(started.elapsed().saturating_sub(task.turn.since_start));
        let Some(result) = crew.do_task(&task) else { return true };
        if channels.results.send((channels.crew, result)).is_err() {
            break false;
        }
    };
    drop(crew.share.begin());
    owned
}
