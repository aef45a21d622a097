//! The protocol of workers that have blocks of a plug-in's lanes: a slot of each in the worker's memory.

use std::ops::Range;

use rollhouse_arena::Patience;
use rollhouse_core::limits::{ASK_DEADLINE, BLOCK_LANES};
use rollhouse_core::{EnvSpec, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    CallError, Collected, Image, ImageSize, LateRows, MakeError, Post, RenderError, StateError,
};
use tracing::warn;

use super::WorkerFault;
use super::lanes::{BlockLanes, Moves};
use super::slot::{Layout, Order, Slot};
use super::talk::{ASK, Answer, BlockAnswer, Question, What, heard, said};
use crate::pool::{Met, Protocol, WorkerPool};
use crate::worker_slot::Memories;

/// The blocks of a pool's workers. A block's number is the session's.
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
pub(super) struct BlockProtocol {
    layout: Layout,
    /// Answer that every worker has to give when it is ready.
    expected: Answer,
    blocks: Vec<BlockLanes>,
    verdicts: bool,
    patience: Patience,
    /// Whether blocks are worth waiting for awake: none has kept this side waiting since the last command.
    patient: bool,
}

/// Pool of workers that step blocks of a plug-in's lanes.
type PluginPool = WorkerPool<BlockProtocol>;

/// A lane is lost.
struct Lost;

impl From<Lost> for StateError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl From<Lost> for RenderError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl From<Lost> for CallError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl BlockProtocol {
    /// Makes the blocks of workers with these ranges of blocks, each with its slot in its worker's memory. `verdicts` says
    /// whether lanes may give an episode a result or a score.
    pub(super) fn new(
        (spec, layout): (&EnvSpec, Layout),
        expected: Answer,
        ranges: &[Range<usize>],
        lanes: usize,
        verdicts: bool,
    ) -> Self {
        let owned = ranges
            .iter()
            .enumerate()
            .flat_map(|(worker, blocks)| (0..blocks.len()).map(move |at| (worker, at)));
        let blocks = owned.enumerate().map(|(number, place)| {
            let count = (lanes - number * BLOCK_LANES).min(BLOCK_LANES);
            BlockLanes::new(place, count, spec)
        });
        let (blocks, patience) = (blocks.collect(), Patience::among(ranges.len() + 1));
        Self { layout, expected, blocks, verdicts, patience, patient: false }
    }

    fn block_of(&mut self, lane: usize) -> &mut BlockLanes {
        &mut self.blocks[lane / BLOCK_LANES]
    }

    /// Writes the rows of a block's lanes that are done.
    fn collect(&mut self, number: usize, memories: Memories<'_>, rows: LateRows<'_, '_>) -> Collected {
        let block = &mut self.blocks[number];
        let mut collected = block.take_failing();
        let Some(slot) = block.slot(&self.layout, memories) else { return collected };
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
}

impl Protocol for BlockProtocol {
    const LOOKS_FIRST: bool = true;

    fn begin(&mut self) {
        self.blocks.iter_mut().for_each(BlockLanes::begin);
    }

    fn meet(&mut self, _: usize, answer: Vec<u8>) -> Result<Met, String> {
        match heard(&answer) {
            Ok(Answer::Refused(why)) => Err(why),
            Ok(answer) if answer == self.expected => Ok(Met::Up),
            Ok(_) => Err("the plug-in is another than when it was loaded".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn command(
        &mut self,
        (_, parts): (usize, Range<usize>),
        number: u64,
        memories: Memories<'_>,
        _: &mut Vec<u8>,
    ) -> bool {
        let mut any = false;
        for block in &mut self.blocks[parts] {
            if block.under_way.is_some() {
                continue;
            }
            let Some(slot) = block.slot(&self.layout, memories) else { return false };
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
        self.patient |= any;
        any
    }

    fn has_losses(&self) -> bool {
        self.blocks.iter().any(BlockLanes::is_failing)
    }

    fn has_rows(&self, memories: Memories<'_>) -> bool {
        self.blocks.iter().any(|block| block.is_done(&self.layout, memories) == Some(true))
    }

    fn is_unheard(&self, parts: Range<usize>) -> bool {
        self.blocks[parts].iter().filter(|block| block.under_way.is_some()).nth(1).is_some()
    }

    fn take_words(&mut self, worker: usize, parts: Range<usize>, payload: &[u8]) -> Result<(), String> {
        if !payload.is_empty() {
            let failures: Vec<(usize, String)> = heard(payload).map_err(|error| error.to_string())?;
            for (index, words) in failures {
                let block = parts.start.saturating_add(index);
                warn!(worker, block, words, "a plug-in failed; the lanes of the block are lost");
            }
        }
        Ok(())
    }

    fn is_silent(&self, parts: Range<usize>, _: u64, memories: Memories<'_>) -> bool {
        self.blocks[parts].iter().any(|block| block.is_done(&self.layout, memories) == Some(false))
    }

    fn lose(&mut self, (_, parts): (usize, Range<usize>), _: Memories<'_>, hung: bool, _: &str) {
        for block in &mut self.blocks[parts] {
            let all = LaneSet::first(block.lanes);
            block.lose(all, all, hung);
        }
    }

    fn post(pool: &mut PluginPool, block: Range<usize>, post: &Post<'_>) {
        let Self { layout, blocks, .. } = &mut pool.protocol;
        let block = &mut blocks[block.start / BLOCK_LANES];
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
            && let Some(slot) = block.slot(layout, pool.host.memories())
        {
            slot.put_actions(block.place, post.actions, step, block.lanes);
        }
    }

    fn linger(&mut self, block: Range<usize>, memories: Memories<'_>) {
        let block = &self.blocks[block.start / BLOCK_LANES];
        let (Some((command, _)), true) = (block.under_way, self.patient) else { return };
        let Some(slot) = block.slot(&self.layout, memories) else { return };
        self.patient = self.patience.poll(|| slot.is_done(command).then_some(())).is_some();
    }

    fn collect(pool: &mut PluginPool, block: Range<usize>, rows: LateRows<'_, '_>) -> Collected {
        pool.protocol.collect(block.start / BLOCK_LANES, pool.host.memories(), rows)
    }

    fn workers_of(&self, block: Range<usize>, lanes: LaneSet) -> Vec<usize> {
        let block = &self.blocks[block.start / BLOCK_LANES];
        if (block.posted() & lanes).is_empty() { Vec::new() } else { vec![block.worker] }
    }

    fn take_given_up(&mut self, block: Range<usize>) -> LaneSet {
        let Collected { hung, lost, .. } = self.block_of(block.start).take_failing();
        hung | lost
    }

    /// Blocks while the plug-in makes some of the lanes anew.
    fn revive(pool: &mut PluginPool, block: Range<usize>, lanes: LaneSet) -> LaneSet {
        pool.pump();
        let known = pool.protocol.block_of(block.start);
        let wanted = lanes & known.lost;
        let (worker, asked) = (known.worker, wanted & !known.renewed);
        if wanted.is_empty() || !pool.workers[worker].up {
            return LaneSet::NONE;
        }
        if !asked.is_empty() {
            match ask(pool, block.start, What::Revive { lanes: asked.bits() }) {
                Some(BlockAnswer::Revived(back)) => {
                    let known = pool.protocol.block_of(block.start);
                    known.renewed |= LaneSet::of_bits(back) & known.lost;
                }
                _ => return LaneSet::NONE,
            }
        }
        let known = pool.protocol.block_of(block.start);
        let back = wanted & known.renewed;
        known.lost &= !back;
        known.renewed &= !back;
        // A generator that is new is anywhere unless it is set.
        known.generators.set_again(back);
        back
    }

    fn coming(pool: &PluginPool, block: Range<usize>, lanes: LaneSet) -> LaneSet {
        let block = &pool.protocol.blocks[block.start / BLOCK_LANES];
        if pool.is_coming(block.worker) { lanes & block.lost } else { LaneSet::NONE }
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        let block = self.block_of(lane);
        block.known.remove(at(lane));
        block.generators.seed(at(lane), seed);
    }

    fn position(pool: &mut PluginPool, lane: usize) -> Start {
        let is_set = pool.protocol.block_of(lane).generators.is_set(at(lane));
        let position = if is_set { None } else { fact(pool, lane, |slot| slot.position(at(lane))) };
        let known = pool.protocol.block_of(lane);
        known.facts = true;
        if let Some(position) = position {
            known.generators.note(at(lane), position);
        }
        known.generators.start(at(lane))
    }

    fn restore(&mut self, lane: usize, start: Start) {
        let block = self.block_of(lane);
        block.known.remove(at(lane));
        block.generators.restore(at(lane), start);
    }

    fn set_options(pool: &mut PluginPool, lane: usize, options: &Options) -> Result<(), MakeError> {
        let refused = |fault| MakeError::Refused { source: Box::new(fault) };
        match ask_about(pool, lane, What::SetOptions { lane: at(lane), options: options.clone() }) {
            Ok(Some(BlockAnswer::Done)) => Ok(()),
            Ok(Some(BlockAnswer::Refused(why))) => Err(refused(WorkerFault::Refused(why))),
            Ok(Some(_)) => Err(MakeError::Kept),
            Ok(None) | Err(Lost) => Err(refused(WorkerFault::Gone)),
        }
    }

    fn hash(pool: &mut PluginPool, lane: usize) -> u32 {
        fact(pool, lane, |slot| slot.hash(at(lane))).unwrap_or(0)
    }

    fn has_verdicts(&self) -> bool {
        self.verdicts
    }

    fn verdict(pool: &mut PluginPool, lane: usize) -> Verdict {
        fact(pool, lane, |slot| slot.verdict(at(lane))).unwrap_or_default()
    }

    fn state(pool: &mut PluginPool, lane: usize) -> Result<Vec<f64>, StateError> {
        match ask_about(pool, lane, What::State { lane: at(lane) })? {
            Some(BlockAnswer::State(state)) => Ok(state),
            Some(_) => Err(StateError::Unsupported),
            None => Err(StateError::Lost),
        }
    }

    fn set_state(pool: &mut PluginPool, lane: usize, state: &[f64]) -> Result<(), StateError> {
        match ask_about(pool, lane, What::SetState { lane: at(lane), state: state.to_vec() })? {
            Some(BlockAnswer::Done) => {
                pool.protocol.block_of(lane).known.remove(at(lane));
                Ok(())
            }
            Some(_) => Err(StateError::Unsupported),
            None => Err(StateError::Lost),
        }
    }

    fn call(pool: &mut PluginPool, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        let what = What::Call { lane: at(lane), method: method.to_owned(), payload: payload.to_owned() };
        let answer = ask_about(pool, lane, what)?.ok_or(CallError::Lost)?;
        let known = pool.protocol.block_of(lane);
        let lost = match answer {
            BlockAnswer::Answer(answer) => {
                // Hash and position may be others now.
                known.known.remove(at(lane));
                return Ok(answer);
            }
            BlockAnswer::Refused(message) => return Err(CallError::Refused { message }),
            BlockAnswer::Unsupported => return Err(CallError::Unsupported),
            BlockAnswer::BlockLost => LaneSet::first(known.lanes),
            _ => LaneSet::one(at(lane)),
        };
        // None of them is under way.
        known.lose(lost, LaneSet::NONE, false);
        Err(CallError::Lost)
    }

    fn render(pool: &mut PluginPool, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let (width, height) = (size.width(), size.height());
        match ask_about(pool, lane, What::Render { lane: at(lane), width, height })? {
            // A picture has the bytes of its size, or it is none.
            Some(BlockAnswer::Picture(pixels)) => Image::new(size, pixels),
            Some(_) => Err(RenderError::Unsupported),
            None => Err(RenderError::Lost),
        }
    }

    fn text(pool: &mut PluginPool, lane: usize, columns: usize) -> Result<String, RenderError> {
        let shown = |line: &str| {
            line.len() <= columns && line.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
        };
        match ask_about(pool, lane, What::Text { lane: at(lane), columns })? {
            Some(BlockAnswer::Text(line)) if shown(&line) => Ok(line),
            Some(_) => Err(RenderError::Unsupported),
            None => Err(RenderError::Lost),
        }
    }
}

/// Returns the number of a session's lane in its block.
const fn at(lane: usize) -> usize {
    lane % BLOCK_LANES
}

/// Returns a fact of a lane out of its block's slot, in which its worker writes it if it is not there; `None` if the lane
/// is lost, or its worker does not write it.
fn fact<T>(pool: &mut PluginPool, lane: usize, read: impl FnOnce(Slot<'_>) -> T) -> Option<T> {
    let known = pool.protocol.block_of(lane);
    known.facts = true;
    if known.lost.has(at(lane)) {
        return None;
    }
    if !known.known.has(at(lane)) {
        if ask(pool, lane, What::Facts) == Some(BlockAnswer::Done) {
            let known = pool.protocol.block_of(lane);
            known.known = LaneSet::first(known.lanes) & !(known.lost | known.posted());
        }
        if !pool.protocol.block_of(lane).known.has(at(lane)) {
            return None;
        }
    }
    let BlockProtocol { layout, blocks, .. } = &pool.protocol;
    blocks[lane / BLOCK_LANES].slot(layout, pool.host.memories()).map(read)
}

/// Asks the worker about a lane that is not lost.
fn ask_about(pool: &mut PluginPool, lane: usize, what: What) -> Result<Option<BlockAnswer>, Lost> {
    if pool.protocol.block_of(lane).lost.has(at(lane)) { Err(Lost) } else { Ok(ask(pool, lane, what)) }
}

/// Asks the worker of a block, for which it has to be idle. Returns `None` if it does not answer; a worker that has not
/// answered after [`ASK_DEADLINE`] is ended.
fn ask(pool: &mut PluginPool, lane: usize, what: What) -> Option<BlockAnswer> {
    let worker = pool.protocol.block_of(lane).worker;
    let answer = pool.ask(worker, ASK, ASK_DEADLINE, |pool| {
        let BlockProtocol { layout, blocks, .. } = &mut pool.protocol;
        let block = &mut blocks[lane / BLOCK_LANES];
        let slot = block.slot(layout, pool.host.memories())?;
        let (seed, restore) = block.generators.write(slot);
        slot.put_order_of_ask(seed, restore);
        Some(said(&Question { block: block.index, what }))
    })?;
    match heard(&answer) {
        Ok(answer) => Some(answer),
        Err(error) => {
            warn!(worker, %error, "the worker of a plug-in answers what makes no sense");
            pool.end_worker(worker, true);
            None
        }
    }
}
