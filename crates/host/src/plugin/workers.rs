//! The workers that step the lanes of one session of a plug-in's env.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_arena::Patience;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{EnvSpec, LaneDeadlines, LaneSet, Start, Verdict};
use rollhouse_env::{Collected, LateRows, Post};
use tracing::warn;

use super::generators::Generators;
use super::lanes::{BlockLanes, Moves};
use super::slot::{Layout, Order, Slot};
use super::talk::{ASK, Answer, BlockAnswer, CLOSE, KIND_BITS, Question, WORK, What, heard, said};
use crate::host::{Host, Until, WorkerEvent};
use crate::supervisor::{Cause, Restart, WorkerState};
use crate::worker_slot::Memories;

/// Workers and the blocks that each of them has. A block's number is the session's.
///
/// ```text
///             ┌───────── collected ──────────┐
///             ▼                              │
///   block:  Ready ─ posted ─▶ waiting ─ dispatched ─▶ under way
///
///   lane:   usable ─ its worker or its block is gone, or the plug-in lost it ─▶ lost ─ revived ─▶ usable
/// ```
///
/// While a block is under way, what is posted for its other lanes waits for the next command. A lane that is lost while
/// it is posted, or posted while it is lost, is *failing* until that is collected, so that each loss is told to who asks
/// for the lane.
#[derive(Debug)]
pub(super) struct Workers {
    host: Host,
    layout: Layout,
    /// Answer that every worker has to give when it is ready.
    expected: Answer,
    workers: Vec<Worker>,
    blocks: Vec<BlockLanes>,
    patience: Patience,
    /// Whether blocks are worth waiting for awake: none has kept this side waiting since the last command.
    patient: bool,
}

/// What is known of a worker beside its state.
#[derive(Debug)]
struct Worker {
    blocks: Range<usize>,
    /// Whether it is there and has made what was expected.
    up: bool,
    /// Number of its last command to work.
    number: u64,
    /// Whether it was ended for what it said, and not because it was late.
    lied: bool,
    /// Its answer to the last question.
    answer: Option<Vec<u8>>,
}

impl Workers {
    /// Makes the blocks of a host whose workers have these ranges of blocks, each with its slots in the worker's memory.
    pub(super) fn new(
        host: Host,
        (spec, layout): (&EnvSpec, Layout),
        expected: Answer,
        ranges: &[Range<usize>],
        lanes: usize,
    ) -> Self {
        let workers = ranges.iter().cloned();
        let workers =
            workers.map(|blocks| Worker { blocks, up: false, number: 0, lied: false, answer: None });
        let owned = ranges
            .iter()
            .enumerate()
            .flat_map(|(worker, blocks)| (0..blocks.len()).map(move |at| (worker, at)));
        let blocks = owned.enumerate().map(|(number, place)| {
            let count = (lanes - number * BLOCK_LANES).min(BLOCK_LANES);
            BlockLanes::new(place, count, spec)
        });
        Self {
            layout,
            expected,
            blocks: blocks.collect(),
            patience: Patience::among(ranges.len() + 1),
            patient: false,
            workers: workers.collect(),
            host,
        }
    }

    /// Waits until every worker is there. Returns what is wrong with the first one that is lost instead, for more than the
    /// time that it is launched once more. Blocks until the host's launch deadline.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        while !self.workers.iter().all(|worker| worker.up) {
            if let Err(error) = self.host.wait_for_start(LOOK_AGAIN) {
                return Err(error.to_string());
            }
            if let Some(wrong) = self.take_events() {
                return Err(wrong);
            }
        }
        self.blocks.iter_mut().for_each(BlockLanes::begin);
        Ok(())
    }

    /// Returns the times that lanes may take for what is waited for here.
    pub(super) const fn deadlines(&self) -> LaneDeadlines {
        self.host.lane_deadlines()
    }

    /// Returns the generators of a block's lanes, which are set before the lanes do anything else.
    pub(super) fn generators(&mut self, block: usize, lane: usize) -> &mut Generators {
        let block = &mut self.blocks[block];
        block.known.remove(lane);
        &mut block.generators
    }

    /// Takes what the lanes of a block are to do, as [`rollhouse_env::LateLanes::post`] has it.
    pub(super) fn post(&mut self, number: usize, post: &Post<'_>) {
        let Self { host, layout, blocks, .. } = self;
        let block = &mut blocks[number];
        let all = LaneSet::first(block.lanes);
        block.failing |= (post.step | post.reset) & all & block.lost;
        let (step, reset) = (post.step & all & !block.lost, post.reset & all & !block.lost);
        if (step | reset).is_empty() {
            return;
        }
        let waiting = block.waiting.get_or_insert_default();
        waiting.step |= step;
        waiting.reset |= reset;
        if !step.is_empty()
            && let Some(slot) = block.slot(layout, host.memories())
        {
            slot.put_actions(block.place, post.actions, step, block.lanes);
        }
    }

    /// Tells workers that are idle what was posted for their blocks. Returns whether something happened to a worker since
    /// it was last looked after.
    pub(super) fn dispatch(&mut self) -> bool {
        let happened = self.pump();
        for worker in 0..self.workers.len() {
            if self.workers[worker].up && self.host.state(worker) == WorkerState::Idle {
                self.command(worker);
            }
        }
        happened
    }

    /// Gives an idle worker a command, if a block waits for one.
    fn command(&mut self, worker: usize) {
        let Self { host, layout, workers, blocks, .. } = self;
        let number = workers[worker].number + 1;
        let mut any = false;
        for block in &mut blocks[workers[worker].blocks.clone()] {
            if block.under_way.is_some() {
                continue;
            }
            let Some(slot) = block.slot(layout, host.memories()) else { return };
            let Some(moves) = block.waiting.take() else { continue };
            let (seed, restore) = block.generators.write(slot);
            let Moves { step, reset } = moves;
            let (facts, place) = (block.facts, block.place);
            slot.put_order(number, Order { step, reset, seed, restore, facts, place });
            block.place ^= 1;
            block.known &= !(step | reset);
            block.under_way = Some((number, moves));
            any = true;
        }
        if !any {
            return;
        }
        self.workers[worker].number = number;
        self.patient = true;
        if let Err(error) = self.host.post(worker, number << KIND_BITS | WORK, &[], None) {
            warn!(worker, %error, "the worker of a plug-in cannot be given a command");
            self.end_worker(worker, true);
        }
    }

    /// Waits awake for a moment for a block that is under way.
    pub(super) fn linger(&mut self, number: usize) {
        let (Some((command, _)), true) = (self.blocks[number].under_way, self.patient) else { return };
        let Some(slot) = self.blocks[number].slot(&self.layout, self.host.memories()) else { return };
        self.patient = self.patience.poll(|| slot.is_done(command).then_some(())).is_some();
    }

    /// Waits until a block may be done, at most until `deadline`.
    pub(super) fn wait(&mut self, deadline: Instant) {
        if self.dispatch() || self.blocks.iter().any(BlockLanes::is_failing) {
            return;
        }
        let Self { host, layout, blocks, .. } = self;
        let seen = |memories: Memories<'_>| blocks.iter().any(|block| block.has_answered(layout, memories));
        let there = seen(host.memories());
        let patience = deadline.saturating_duration_since(Instant::now());
        if !there && let Err(error) = host.wait_or(Until::AnyEvent, &seen, Some(patience)) {
            warn!(%error, "the workers of a plug-in cannot be waited for");
            (0..self.workers.len()).for_each(|worker| self.lose_blocks(worker, false));
        }
        self.dispatch();
    }

    /// Returns the descriptor that is readable when workers have to be looked after.
    pub(super) const fn descriptor(&self) -> &Arc<OwnedFd> {
        self.host.descriptor()
    }

    /// Has workers ring for one who sleeps on the descriptor, as [`rollhouse_env::LateLanes::arm`] has it.
    pub(super) fn arm(&mut self, now: Instant) -> Option<Instant> {
        if self.dispatch() || self.blocks.iter().any(BlockLanes::is_failing) {
            return Some(now);
        }
        let Self { host, layout, blocks, workers, .. } = self;
        let seen = |memories: Memories<'_>| blocks.iter().any(|block| block.has_answered(layout, memories));
        // The last block of a command is followed by the reply, which always rings.
        let unheard = workers.iter().any(|worker| {
            let under_way = |block: &&BlockLanes| block.under_way.is_some();
            blocks[worker.blocks.clone()].iter().filter(under_way).nth(1).is_some()
        });
        host.arm(now, &seen, unheard)
    }

    /// Writes the rows of a block's lanes that are done, as [`rollhouse_env::LateLanes::collect`] has it.
    pub(super) fn collect(&mut self, number: usize, rows: LateRows<'_, '_>) -> Collected {
        let block = &mut self.blocks[number];
        let mut collected = block.take_failing();
        let Some(slot) = block.slot(&self.layout, self.host.memories()) else { return collected };
        let Some((_, moves)) = block.under_way.filter(|&(command, _)| slot.is_done(command)) else {
            return collected;
        };
        block.under_way = None;
        let (moved, all) = (moves.step | moves.reset, LaneSet::first(block.lanes));
        let done = slot.done();
        if done.failed {
            // As new once it is revived; see `revive`.
            block.lose(all, LaneSet::NONE, false);
            collected.lost |= moved;
            return collected;
        }
        let wrong = block.read(slot, moves, rows);
        let lost = (done.lost | wrong) & moved;
        if !(wrong & moved).is_empty() {
            warn!(block = number, "a plug-in gives a boolean that is none; the lane is lost");
        }
        block.lost |= lost;
        // What the plug-in did not lose itself is there, and only has to be reset.
        block.renewed |= wrong & moved & !done.lost;
        block.known |= done.known & moves.step & !lost;
        collected.lost |= lost;
        collected.done = moved & !lost;
        collected.terminated = done.terminated & moves.step & !lost;
        collected.truncated = done.truncated & moves.step & !lost;
        collected
    }

    /// Copies the last rows of all lanes of a block.
    pub(super) fn show(&mut self, number: usize, rows: &mut LateRows<'_, '_>) {
        // What makes no sense was told when it was collected.
        let _wrong = self.slot(number).map(|slot| slot.obs(rows.obs));
    }

    /// Gives up lanes of a block with their worker, as [`rollhouse_env::LateLanes::give_up`] has it.
    pub(super) fn give_up(&mut self, number: usize, lanes: LaneSet, why: &str) -> LaneSet {
        let block = &self.blocks[number];
        if !(block.posted() & lanes).is_empty() {
            let worker = block.worker;
            warn!(worker, why, "the worker of a plug-in is given up, with its lanes");
            self.end_worker(worker, false);
        }
        let Collected { hung, lost, .. } = self.blocks[number].take_failing();
        hung | lost
    }

    /// Makes lost lanes of a block usable whose worker is there. Blocks while the plug-in makes some of them anew.
    pub(super) fn revive(&mut self, number: usize, lanes: LaneSet) -> LaneSet {
        self.pump();
        let block = &self.blocks[number];
        let wanted = lanes & block.lost;
        if wanted.is_empty() || !self.workers[block.worker].up {
            return LaneSet::NONE;
        }
        let asked = wanted & !block.renewed;
        if !asked.is_empty() {
            match self.ask(number, What::Revive { lanes: asked.bits() }) {
                Some(BlockAnswer::Revived(back)) => {
                    let block = &mut self.blocks[number];
                    block.renewed |= LaneSet::of_bits(back) & block.lost;
                }
                _ => return LaneSet::NONE,
            }
        }
        let block = &mut self.blocks[number];
        let back = wanted & block.renewed;
        block.lost &= !back;
        block.renewed &= !back;
        // A generator that is new is anywhere unless it is set.
        block.generators.set_again(back);
        back
    }

    /// Returns which of these lanes are lost and have a worker that is coming.
    pub(super) fn coming(&self, number: usize, lanes: LaneSet) -> LaneSet {
        let block = &self.blocks[number];
        let comes = !self.workers[block.worker].up && self.host.state(block.worker).is_coming();
        if comes { lanes & block.lost } else { LaneSet::NONE }
    }

    /// Returns the position of a lane's generator.
    pub(super) fn position(&mut self, number: usize, lane: usize) -> Start {
        let block = &mut self.blocks[number];
        block.facts = true;
        if block.generators.is_set(lane) || block.lost.has(lane) || !self.knows(number, lane) {
            return self.blocks[number].generators.start(lane);
        }
        let block = &mut self.blocks[number];
        let slot = block.slot(&self.layout, self.host.memories());
        let Some(position) = slot.map(|slot| slot.position(lane)) else { return Start::default() };
        block.generators.note(lane, position);
        position
    }

    /// Returns the hash of a lane's state; 0 for one that is lost.
    pub(super) fn hash(&mut self, number: usize, lane: usize) -> u32 {
        let block = &mut self.blocks[number];
        block.facts = true;
        if block.lost.has(lane) || !self.knows(number, lane) {
            return 0;
        }
        self.slot(number).map_or(0, |slot| slot.hash(lane))
    }

    /// Returns what is said of a lane's episode; nothing of one that is lost.
    pub(super) fn verdict(&mut self, number: usize, lane: usize) -> Verdict {
        let block = &mut self.blocks[number];
        block.facts = true;
        if block.lost.has(lane) || !self.knows(number, lane) {
            return Verdict::default();
        }
        self.slot(number).map(|slot| slot.verdict(lane)).unwrap_or_default()
    }

    /// Returns the slot of a block.
    fn slot(&self, number: usize) -> Option<Slot<'_>> {
        self.blocks[number].slot(&self.layout, self.host.memories())
    }

    /// Sees to it that the slot has the facts of a lane. Returns false if its worker does not tell them.
    fn knows(&mut self, number: usize, lane: usize) -> bool {
        if !self.blocks[number].known.has(lane) && self.ask(number, What::Facts) == Some(BlockAnswer::Done) {
            let block = &mut self.blocks[number];
            block.known = LaneSet::first(block.lanes) & !(block.lost | block.posted());
        }
        self.blocks[number].known.has(lane)
    }

    /// Asks the worker of a block, for which it has to be idle. Returns `None` if it does not answer; a worker that has not
    /// answered after [`ASK_DEADLINE`] is ended.
    pub(super) fn ask(&mut self, number: usize, what: What) -> Option<BlockAnswer> {
        let worker = self.blocks[number].worker;
        let deadline = Instant::now() + ASK_DEADLINE;
        self.pump();
        while self.workers[worker].up && self.host.state(worker) == WorkerState::Busy {
            if deadline <= Instant::now() {
                self.end_worker(worker, false);
            }
            self.listen();
        }
        if !self.workers[worker].up {
            return None;
        }
        let block = &mut self.blocks[number];
        let slot = block.slot(&self.layout, self.host.memories())?;
        let (seed, restore) = block.generators.write(slot);
        slot.put_order_of_ask(seed, restore);
        self.workers[worker].answer = None;
        let ask = said(&Question { block: block.index, what });
        if let Err(error) = self.host.post(worker, ASK, &ask, Some(ASK_DEADLINE)) {
            warn!(worker, %error, "the worker of a plug-in cannot be asked");
            return None;
        }
        while self.workers[worker].up && self.workers[worker].answer.is_none() {
            self.listen();
        }
        let answer = self.workers[worker].answer.take()?;
        match heard(&answer) {
            Ok(told) => Some(told),
            Err(error) => {
                warn!(worker, %error, "the worker of a plug-in answers what makes no sense");
                self.end_worker(worker, true);
                None
            }
        }
    }

    /// Notes that a lane has been put into another state.
    pub(super) fn forget(&mut self, number: usize, lane: usize) {
        self.blocks[number].known.remove(lane);
    }

    /// Loses lanes of a block, none of which is under way, until they are revived.
    pub(super) fn lose(&mut self, number: usize, lanes: LaneSet) {
        let block = &mut self.blocks[number];
        block.lose(lanes & LaneSet::first(block.lanes), LaneSet::NONE, false);
    }

    /// Returns whether a lane is lost.
    pub(super) fn is_lost(&self, number: usize, lane: usize) -> bool {
        self.blocks[number].lost.has(lane)
    }

    /// Waits until something happens to a worker, and handles it.
    fn listen(&mut self) {
        if let Err(error) = self.host.wait(Until::AnyEvent, Some(LOOK_AGAIN)) {
            warn!(%error, "the workers of a plug-in cannot be waited for");
            (0..self.workers.len()).for_each(|worker| self.lose_blocks(worker, false));
        }
        self.take_events();
    }

    /// Looks after the workers without waiting. Returns whether something happened to one.
    fn pump(&mut self) -> bool {
        if let Err(error) = self.host.wait(Until::AnyEvent, Some(Duration::ZERO)) {
            warn!(%error, "the workers of a plug-in cannot be looked after");
        }
        let happened = self.host.has_events();
        self.take_events();
        happened
    }

    /// Handles what happened to workers. Returns what is wrong with the last one that was lost.
    fn take_events(&mut self) -> Option<String> {
        let mut wrong = None;
        while let Some(event) = self.host.next_event() {
            match event {
                WorkerEvent::Ready { worker, answer, .. } => {
                    wrong = self.meet(worker, &answer).or(wrong);
                }
                WorkerEvent::Replied(reply) if reply.code == ASK => {
                    self.workers[reply.worker].answer = Some(reply.payload);
                }
                WorkerEvent::Replied(reply) => self.hear(reply.worker, &reply.payload),
                WorkerEvent::Lost { worker, cause, restart, detail } => {
                    let lied = std::mem::take(&mut self.workers[worker].lied);
                    if !lied {
                        warn!(
                            worker,
                            ?cause,
                            ?restart,
                            detail,
                            "a worker of a plug-in is lost, with its lanes"
                        );
                        // One that was there comes back as it does later.
                        let again = matches!(restart, Restart::Again(_))
                            || self.workers[worker].up && matches!(restart, Restart::After(_));
                        if !again {
                            wrong = Some(detail);
                        }
                    }
                    self.lose_blocks(worker, cause == Cause::Hung && !lied);
                }
            }
        }
        wrong
    }

    /// Takes the first answer of a worker. Returns what is wrong with it.
    fn meet(&mut self, worker: usize, answer: &[u8]) -> Option<String> {
        let told = match heard(answer) {
            Ok(Answer::Refused(why)) => why,
            Ok(answer) if answer == self.expected => {
                (self.workers[worker].up, self.workers[worker].lied) = (true, false);
                return None;
            }
            Ok(_) => "the plug-in is another than when it was loaded".to_owned(),
            Err(error) => error.to_string(),
        };
        warn!(worker, told, "a worker of a plug-in cannot be used; its lanes are lost");
        self.end_worker(worker, true);
        Some(told)
    }

    /// Takes the answer to a command, at which every block of the command has to be done.
    fn hear(&mut self, worker: usize, payload: &[u8]) {
        if !payload.is_empty() {
            match heard::<Vec<(usize, String)>>(payload) {
                Ok(failures) => failures.into_iter().for_each(|(index, words)| {
                    let block = self.workers[worker].blocks.start.saturating_add(index);
                    warn!(worker, block, words, "a plug-in failed; the lanes of the block are lost");
                }),
                Err(error) => warn!(worker, %error, "the words of a plug-in's worker make no sense"),
            }
        }
        let silent = self.workers[worker].blocks.clone().any(|number| {
            let done = |command| self.slot(number).is_some_and(|slot| slot.is_done(command));
            self.blocks[number].under_way.is_some_and(|(command, _)| !done(command))
        });
        if silent {
            warn!(worker, "the worker of a plug-in has answered without all of its blocks");
            self.end_worker(worker, true);
        }
    }

    /// Ends a worker, with its lanes.
    fn end_worker(&mut self, worker: usize, lied: bool) {
        self.workers[worker].lied |= lied;
        self.lose_blocks(worker, !lied);
        if let Err(error) = self.host.give_up(worker) {
            warn!(worker, %error, "the worker of a plug-in cannot be ended");
        }
    }

    fn lose_blocks(&mut self, worker: usize, hung: bool) {
        self.workers[worker].up = false;
        for block in &mut self.blocks[self.workers[worker].blocks.clone()] {
            let all = LaneSet::first(block.lanes);
            block.lose(all, all, hung);
        }
    }
}

impl Drop for Workers {
    /// Lets workers that are idle close their envs, for at most [`CLOSE_PATIENCE`], and ends all.
    fn drop(&mut self) {
        // The last rows may have been taken before their worker said that it was done.
        let _ = self.host.wait(Until::AllReplied, Some(CLOSE_PATIENCE));
        for worker in 0..self.workers.len() {
            // One that takes no command is ended without.
            let _ = self.host.post(worker, CLOSE, &[], Some(CLOSE_PATIENCE));
        }
        let _ = self.host.wait(Until::AllReplied, Some(CLOSE_PATIENCE));
        self.host.end(CLOSE_PATIENCE);
    }
}

/// Maximum time for an answer to a question, as for a picture.
const ASK_DEADLINE: Duration = Duration::from_secs(10);
/// Time for which workers may close their envs at the end.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
