//! The slot that each block of a plug-in's lanes has in the memory shared with its worker. Blocks count from the worker's
//! first.
//!
//! ```text
//! of the host      number of the command to which the block belongs, lanes that step, that reset, that are seeded, that
//!                  are restored; whether facts are wanted, which of the two places for actions has them
//! of the worker    number of the command that is done, how it went, lanes that terminated, were truncated or lost, lanes
//!                  of which facts are there
//! starts           for the lanes that are seeded or restored; then those that the worker knows
//! facts            a state hash for each lane, and what is said of its episode: the result and whether there is a score,
//!                  the score
//! ```
//!
//! Behind all slots come the columns of each block: rewards; actions, twice, because while some are being stepped the next
//! are posted; observations; infos. The worker steps in them. The host, which does not trust it, reaches them as words.
//!
//! Lines of the two sides keep 128 bytes apart because processors fetch cache lines in pairs. The host writes its part
//! while the block is in no command, the worker its own while it is; the worker's number comes last. What a worker wrote
//! is data to be checked: sets of lanes are cut to those that were posted, and everything else is numbers.

use std::sync::atomic::Ordering;

use rollhouse_arena::{ColumnPlace, SharedMemory};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, ColumnSpec, DType, EnvSpec, LaneSet, Start, Verdict};

/// Places in the slots and columns of the blocks of a worker, the same for each worker of a session.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    blocks: usize,
    rewards: Column,
    actions: [Column; 2],
    obs: Vec<Column>,
    infos: Vec<Column>,
    /// Bytes of the columns of a block.
    stride: usize,
}

/// A column of a block.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// How far it is behind the beginning of the block's columns.
    at: usize,
    /// Elements in the row of a lane.
    width: usize,
    dtype: DType,
}

/// What a block is to do in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Order {
    pub(super) step: LaneSet,
    pub(super) reset: LaneSet,
    /// Lanes whose generators are seeded before, with the seed of their start.
    pub(super) seed: LaneSet,
    /// Lanes whose generators are moved before, to their start.
    pub(super) restore: LaneSet,
    /// Whether facts are wanted of lanes that may be asked for them.
    pub(super) facts: bool,
    /// Which of the two places for actions has those of the lanes that step.
    pub(super) place: usize,
}

/// How a block did what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Done {
    /// Whether the block as a whole has failed.
    pub(super) failed: bool,
    pub(super) terminated: LaneSet,
    pub(super) truncated: LaneSet,
    pub(super) lost: LaneSet,
    /// Lanes of which hash and position are there.
    pub(super) known: LaneSet,
}

/// Slot of one block.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    layout: &'a Layout,
    memory: &'a SharedMemory,
    at: usize,
    /// Byte at which its columns begin.
    columns: usize,
}

impl Layout {
    /// Lays out as many blocks of lanes of that env as the worker has that has most.
    pub(super) fn of(spec: &EnvSpec, blocks: usize) -> Self {
        let mut end = 0;
        let mut place = |dtype: DType, width: usize| {
            let at = end;
            end += (dtype.size() * width * BLOCK_LANES).next_multiple_of(LINE);
            Column { at, width, dtype }
        };
        let action = spec.action_column();
        let rewards = place(DType::F64, 1);
        let actions = [0, 1].map(|_| place(action.dtype, action.elements()));
        let mut place = |column: &ColumnSpec| place(column.dtype, column.elements());
        let obs = spec.obs_columns().iter().map(&mut place).collect();
        let infos = spec.info_channels.iter().map(&mut place).collect();
        Self { blocks, rewards, actions, obs, infos, stride: end }
    }

    /// Returns the number of bytes of all slots and columns; `None` if no memory has as many.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.stride.checked_mul(self.blocks)?.checked_add(self.columns_at())
    }

    /// Returns how far the columns are behind the beginning of the slots.
    pub(super) const fn columns_at(&self) -> usize {
        self.blocks * SLOT
    }

    /// Returns the slot of its worker's block number `block` in the worker's memory, in which slots begin at byte `at`.
    pub(super) fn slot<'a>(&'a self, memory: &'a SharedMemory, at: usize, block: usize) -> Slot<'a> {
        let columns = at + self.columns_at() + block * self.stride;
        Slot { layout: self, memory, at: at + block * SLOT, columns }
    }

    /// Returns how far behind the beginning of the slots the number is that a block's worker writes last.
    pub(super) const fn done_at(&self, block: usize) -> usize {
        block * SLOT + DONE
    }

    /// Returns the places of all columns of a block of `count` lanes: rewards, the two of actions, observations, infos.
    /// Slots begin at byte `at`.
    pub(super) fn places(&self, at: usize, block: usize, count: usize) -> impl Iterator<Item = ColumnPlace> {
        let start = at + self.columns_at() + block * self.stride;
        let columns = [&self.rewards].into_iter().chain(&self.actions).chain(&self.obs).chain(&self.infos);
        columns.map(move |&Column { at, width, dtype }| ColumnPlace {
            offset: start + at,
            elements: width * count,
            dtype,
        })
    }

    /// Returns the number of columns of an observation.
    pub(super) const fn obs_columns(&self) -> usize {
        self.obs.len()
    }
}

impl Slot<'_> {
    fn load(self, offset: usize) -> u64 {
        self.memory.word(self.at + offset).load(Ordering::Relaxed)
    }

    fn lanes(self, offset: usize) -> LaneSet {
        LaneSet::of_bits(self.load(offset))
    }

    fn store(self, offset: usize, value: u64) {
        self.memory.word(self.at + offset).store(value, Ordering::Relaxed);
    }

    /// Writes what the block is to do in the command of that number. The starts have been written.
    pub(super) fn put_order(self, number: u64, order: Order) {
        let Order { step, reset, seed, restore, facts, place } = order;
        self.store(STEP, step.bits());
        self.store(RESET, reset.bits());
        self.store(SEED, seed.bits());
        self.store(RESTORE, restore.bits());
        self.store(HOW, u64::from(facts) | (place as u64) << 1);
        self.store(NUMBER, number);
    }

    /// Returns what the block is to do, if it belongs to the command of that number.
    pub(super) fn order(self, number: u64) -> Option<Order> {
        (self.load(NUMBER) == number).then(|| Order {
            step: self.lanes(STEP),
            reset: self.lanes(RESET),
            seed: self.lanes(SEED),
            restore: self.lanes(RESTORE),
            facts: self.load(HOW) & 1 != 0,
            place: (self.load(HOW) >> 1 & 1) as usize,
        })
    }

    /// Writes which generators are to be set before a question is answered.
    pub(super) fn put_order_of_ask(self, seed: LaneSet, restore: LaneSet) {
        self.store(SEED, seed.bits());
        self.store(RESTORE, restore.bits());
    }

    /// Returns which generators are to be set before a question is answered.
    pub(super) fn order_of_ask(self) -> Order {
        Order { seed: self.lanes(SEED), restore: self.lanes(RESTORE), ..Order::default() }
    }

    /// Writes how the block did; the number is published after it.
    pub(super) fn put_done(self, done: Done) {
        let Done { failed, terminated, truncated, lost, known } = done;
        self.store(FAILED, failed.into());
        self.store(TERMINATED, terminated.bits());
        self.store(TRUNCATED, truncated.bits());
        self.store(LOST, lost.bits());
        self.store(KNOWN, known.bits());
    }

    /// Returns whether the block is done with the command of that number. What its worker wrote before is visible then.
    #[inline]
    pub(super) fn is_done(self, number: u64) -> bool {
        self.memory.word(self.at + DONE).load(Ordering::Acquire) == number
    }

    /// Returns how the block did.
    pub(super) fn done(self) -> Done {
        Done {
            failed: self.load(FAILED) != 0,
            terminated: self.lanes(TERMINATED),
            truncated: self.lanes(TRUNCATED),
            lost: self.lanes(LOST),
            known: self.lanes(KNOWN),
        }
    }

    /// Writes where the generator of a lane is to begin.
    pub(super) fn put_start(self, lane: usize, start: Start) {
        self.put_start_at(STARTS + lane * START, start);
    }

    /// Returns where the generator of a lane is to begin.
    pub(super) fn start(self, lane: usize) -> Start {
        self.start_at(STARTS + lane * START)
    }

    /// Writes what is known of a lane: its state's hash, where its generator is, and what is said of its episode.
    pub(super) fn put_facts(self, lane: usize, hash: u32, position: Start, verdict: Verdict) {
        self.store(HASHES + lane * WORD, hash.into());
        for (index, word) in verdict.to_words().into_iter().enumerate() {
            self.store(VERDICTS + lane * VERDICT + index * WORD, word);
        }
        self.put_start_at(POSITIONS + lane * START, position);
    }

    /// Returns the hash of a lane's state, as it was last told.
    pub(super) fn hash(self, lane: usize) -> u32 {
        self.load(HASHES + lane * WORD) as u32
    }

    /// Returns what is said of a lane's episode, as it was last told.
    pub(super) fn verdict(self, lane: usize) -> Verdict {
        Verdict::of_words([0, WORD].map(|at| self.load(VERDICTS + lane * VERDICT + at)))
    }

    /// Returns where a lane's generator is, as it was last told.
    pub(super) fn position(self, lane: usize) -> Start {
        self.start_at(POSITIONS + lane * START)
    }

    fn put_start_at(self, at: usize, start: Start) {
        self.store(at, start.seed);
        self.store(at + WORD, start.words);
        self.store(at + 2 * WORD, start.half.unwrap_or_default().into());
        self.store(at + 3 * WORD, start.half.is_some().into());
    }

    fn start_at(self, at: usize) -> Start {
        let half = (self.load(at + 3 * WORD) != 0).then_some(self.load(at + 2 * WORD) as u32);
        Start { seed: self.load(at), words: self.load(at + WORD), half }
    }

    /// Writes the actions from those of the first of `lanes` to those of the last. A column of another length than the
    /// spec's is left out.
    pub(super) fn put_actions(self, place: usize, actions: ColumnRef<'_>, lanes: LaneSet, count: usize) {
        let Column { at, width, dtype } = self.layout.actions[place];
        let (bytes, row) = (actions.bytes(), width * dtype.size());
        let (Some(first), Some(last)) = (lanes.lowest(), lanes.highest()) else { return };
        if bytes.len() == row * count && last < count {
            // Whole words: a row may share one with its neighbour.
            let (start, end) = (first * row / WORD * WORD, ((last + 1) * row).next_multiple_of(WORD));
            self.memory.write(self.columns + at + start, &bytes[start..end.min(bytes.len())]);
        }
    }

    /// Copies the rewards of a block.
    pub(super) fn rewards(self, to: &mut [f64]) {
        self.memory.read_column(self.columns + self.layout.rewards.at, ColumnMut::F64(to));
    }

    /// Copies the observation of all lanes of a block. Returns the lanes with a boolean that is none, which is taken for
    /// 1.
    pub(super) fn obs(self, to: &mut [ColumnMut<'_>]) -> LaneSet {
        self.columns(&self.layout.obs, to)
    }

    /// Copies the infos of all lanes of a block, as [`Slot::obs`] does.
    pub(super) fn infos(self, to: &mut [ColumnMut<'_>]) -> LaneSet {
        self.columns(&self.layout.infos, to)
    }

    fn columns(self, from: &[Column], to: &mut [ColumnMut<'_>]) -> LaneSet {
        let mut wrong = LaneSet::NONE;
        for (&Column { at, width, dtype }, to) in from.iter().zip(to) {
            self.memory.read_column(self.columns + at, to.reborrow());
            if let (DType::Bool, ColumnMut::U8(values)) = (dtype, to) {
                for (lane, row) in values.chunks_mut(width.max(1)).enumerate() {
                    wrong.insert_if(lane, row.iter().any(|&byte| byte > 1));
                    row.iter_mut().for_each(|byte| *byte = (*byte).min(1));
                }
            }
        }
        wrong
    }
}

const WORD: usize = 8;
/// Bytes that the lines of the two sides keep apart.
const LINE: usize = 128;

const NUMBER: usize = 0;
const STEP: usize = 8;
const RESET: usize = 16;
const SEED: usize = 24;
const RESTORE: usize = 32;
const HOW: usize = 40;

const DONE: usize = LINE;
const FAILED: usize = LINE + 8;
const TERMINATED: usize = LINE + 16;
const TRUNCATED: usize = LINE + 24;
const LOST: usize = LINE + 32;
const KNOWN: usize = LINE + 40;

/// Bytes of a start.
const START: usize = 4 * WORD;
const STARTS: usize = 2 * LINE;
const POSITIONS: usize = STARTS + BLOCK_LANES * START;
const HASHES: usize = POSITIONS + BLOCK_LANES * START;
/// Bytes of what is said of a lane's episode.
const VERDICT: usize = 2 * WORD;
const VERDICTS: usize = HASHES + BLOCK_LANES * WORD;
/// Bytes of a slot.
const SLOT: usize = VERDICTS + BLOCK_LANES * VERDICT;
const _: () = assert!(SLOT.is_multiple_of(LINE), "columns begin at a line of their own");

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_env::Registry;

    #[test]
    fn actions_that_share_a_word_with_those_of_other_lanes_leave_them_as_they_are() {
        let entry = Registry::builtin().get("MountainCarContinuous-v0").expect("a built-in env");
        let layout = Layout::of(entry.spec(), 1);
        let memory = SharedMemory::create("test", layout.bytes().expect("it is small")).expect("memory");
        let slot = layout.slot(&memory, 0, 0);
        let mut actions = [0.0; 7];
        for (lanes, value) in [([2, 3], 1.0), ([5, 5], 2.0), ([6, 6], 3.0), ([1, 6], 4.0)] {
            let lanes: LaneSet = lanes.into_iter().collect();
            lanes.into_iter().for_each(|lane| actions[lane] = value);
            slot.put_actions(0, ColumnRef::F32(&actions), lanes, 7);
        }
        slot.put_actions(0, ColumnRef::F32(&[9.0; 8]), LaneSet::first(7), 7);
        let mut found = [0.0; 7];
        memory.read_column(slot.columns + layout.actions[0].at, ColumnMut::F32(&mut found));
        assert_eq!(found, [0.0, 4.0, 1.0, 1.0, 0.0, 2.0, 4.0]);
    }
}
