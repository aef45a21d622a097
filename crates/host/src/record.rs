//! The record that each lane has in the memory shared with its worker, in which it counts from the worker's first lane.
//!
//! ```text
//! number    u64: what the lane has answered, in the low byte how
//! reward    f64
//! verdict   u64: what the env says of the lane's episode: bits 0-1 the result, bit 2 a score; then the score, f64
//! action    one value; each part begins at a multiple of 8 bytes
//! columns   the observation, column by column, then the info channels
//! generator where the lane's generator stands, 5 u64: state and increment, each low half first, and the buffered half with
//!           bit 32; only of envs that are declared deterministic
//! further   u64: the length of the numbers in its infos that have no column, as JSON, then these; only where columns say which
//!           infos are there
//! said      u64: the length of what the lane says beside it, then its bytes; only where lanes say something
//! ahead     columns and said once more, of the episode that the lane has begun after the end of the one before; likewise
//! ```
//!
//! A record is a multiple of 64 bytes, so that workers do not write to the same cache line. The host writes the action
//! while the lane is not under way, its worker everything else while it is; the number comes last.

use std::sync::atomic::Ordering;

use rollhouse_arena::SharedMemory;
use rollhouse_core::limits::MAX_LANE_WORDS_BYTES;
use rollhouse_core::{
    ColumnMut, ColumnRef, ColumnSpec, DType, Determinism, EnvSpec, Role, StateHasher, Verdict,
};
use rollhouse_env::Generator;
use serde::Serialize;

/// Places in the record of a lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    stride: usize,
    action: usize,
    columns: Vec<Place>,
    infos: Vec<Place>,
    /// End of what is hashed: the observation, and the action mask, which is the first info channel. Other infos are of steps
    /// alone, and stay as the next episode begins.
    hashed: usize,
    end: usize,
    /// Place of the generator; `None` if the env is not deterministic.
    generator: Option<usize>,
    /// Place of infos that have no column; `None` if it says none.
    further: Option<usize>,
    /// Place of what the lane says; `None` if it says nothing.
    said: Option<usize>,
    /// Bytes from the observation and what the lane says to the same of an episode that was begun ahead.
    ahead: usize,
    /// Whether lanes report the action that they took.
    reports: bool,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    bytes: usize,
    dtype: DType,
}

/// Places in the record of a lane, as a worker is told them. Each is in bytes from the record's beginning.
#[derive(Debug, Serialize)]
pub struct Places {
    /// Number in the session of the worker's first lane, by which it can name its lanes. Its record is the memory's first.
    pub first: usize,
    /// Bytes from one record to the next.
    pub stride: usize,
    /// Place of the reward.
    pub reward: usize,
    /// Place of what the env says of the episode.
    pub verdict: usize,
    /// Place of the action.
    pub action: usize,
    /// Place of each column of the observation.
    pub observation: Vec<usize>,
    /// Place of each info channel.
    pub infos: Vec<usize>,
    /// Place of the generator; `None` if the env is not deterministic.
    pub generator: Option<usize>,
    /// Place and number of bytes of infos that have no column, with their length; `None` if it says none.
    pub further: Option<(usize, usize)>,
    /// Place and number of bytes of what the lane says, with its length; `None` if it says nothing.
    pub said: Option<(usize, usize)>,
    /// Bytes from both of these to those of an episode that is begun ahead.
    pub ahead: usize,
}

/// Record of one lane.
#[derive(Clone, Copy)]
pub(crate) struct LaneRecord<'a> {
    record: &'a Record,
    memory: &'a SharedMemory,
    at: usize,
    /// Bytes from the places of observation and words to those that are meant.
    shift: usize,
}

/// A byte of a boolean that is neither 0 nor 1, a reward that is not finite, or words of another length than there is
/// room for.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub(crate) enum Nonsense {
    #[error("a reward of {0}")]
    Reward(f64),
    #[error("a boolean of {0}")]
    Boolean(u8),
    #[error("words of {0} bytes")]
    Said(u64),
    #[error("an np_random that is not the generator of its seed, or was set back")]
    Generator,
}

impl Record {
    /// Lays out the record of a lane of that env.
    pub(crate) fn of(spec: &EnvSpec) -> Self {
        let mut end = ACTION;
        let mut place = |column: &ColumnSpec| {
            let place = Place { at: end, bytes: column.row_bytes(), dtype: column.dtype };
            end += place.bytes.next_multiple_of(8);
            place
        };
        place(&spec.action_column());
        let columns: Vec<_> = spec.obs_columns().iter().map(&mut place).collect();
        let is_mask = |channel: &&ColumnSpec| channel.role == Role::ActionMask;
        let masks = spec.info_channels.iter().take_while(is_mask).count();
        let (masks, others) = spec.info_channels.split_at(masks);
        let mut infos: Vec<_> = masks.iter().map(&mut place).collect();
        let hashed = infos
            .last()
            .or(columns.last())
            .map_or(ACTION, |last: &Place| last.at + last.bytes.next_multiple_of(8));
        infos.extend(others.iter().map(place));
        let generator = (spec.determinism == Determinism::Deterministic).then_some(end);
        let after = end + generator.map_or(0, |_| GENERATOR_BYTES);
        // One boolean more than there are other channels is for those that have none.
        let tells_more = |mask: &ColumnSpec| mask.role == Role::RemarkMask && mask.elements() == others.len();
        let further = others.last().is_some_and(tells_more).then_some(after);
        let stride = (after + further.map_or(0, |_| FURTHER_BYTES)).next_multiple_of(CACHE_LINE);
        let (action, said, ahead, reports) = (ACTION, None, 0, spec.action_taken().is_some());
        Self { stride, action, columns, infos, hashed, end, generator, further, said, ahead, reports }
    }

    /// Lays out the record of a lane that says something beside its rows.
    pub(crate) fn of_talking(spec: &EnvSpec) -> Self {
        let record = Self::of(spec);
        let first = record.columns.first().map_or(record.end, |column| column.at);
        let ahead = record.end + size_of::<u64>() + SAID_BYTES - first;
        let stride = (first + 2 * ahead).next_multiple_of(CACHE_LINE);
        Self { stride, said: Some(record.end), ahead, ..record }
    }

    /// Returns the number of bytes of that many records; `None` if no memory has as many.
    pub(crate) fn bytes(&self, lanes: usize) -> Option<usize> {
        self.stride.checked_mul(lanes)
    }

    /// Returns whether workers tell where lanes' generators stand.
    pub(crate) const fn has_generator(&self) -> bool {
        self.generator.is_some()
    }

    /// Returns whether lanes report the action that they took.
    pub(crate) const fn reports(&self) -> bool {
        self.reports
    }

    /// Returns what a worker is told whose first lane is `first`.
    pub(crate) fn places(&self, first: usize) -> Places {
        let of = |places: &[Place]| places.iter().map(|place| place.at).collect();
        let (observation, infos) = (of(&self.columns), of(&self.infos));
        let further = self.further.map(|at| (at, FURTHER_BYTES));
        let said = self.said.map(|at| (at, size_of::<u64>() + SAID_BYTES));
        let Self { stride, action, generator, ahead, .. } = *self;
        Places {
            first,
            stride,
            reward: REWARD,
            verdict: VERDICT,
            action,
            observation,
            infos,
            generator,
            further,
            said,
            ahead,
        }
    }

    /// Returns the record of its worker's lane number `lane` in the worker's memory, in which records begin at byte `at`.
    #[inline]
    pub(crate) fn lane<'a>(&'a self, memory: &'a SharedMemory, at: usize, lane: usize) -> LaneRecord<'a> {
        LaneRecord { record: self, memory, at: at + lane * self.stride, shift: 0 }
    }
}

impl LaneRecord<'_> {
    /// Returns the lane's number. What its worker wrote before it is visible then.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.memory.word(self.at).load(Ordering::Acquire)
    }

    /// Returns the record with the observation and the words of the episode that was begun ahead.
    pub(crate) const fn ahead(self) -> Self {
        Self { shift: self.record.ahead, ..self }
    }

    /// Copies the whole record from another memory.
    pub(crate) fn copy_from(self, other: LaneRecord<'_>) {
        self.memory.write(self.at, &other.memory.read(other.at, self.record.stride));
    }

    /// Writes row `lane` of the actions of `lanes` lanes.
    pub(crate) fn put_action(self, actions: ColumnRef<'_>, lane: usize, lanes: usize, scratch: &mut Vec<u8>) {
        let width = actions.len() / lanes.max(1);
        scratch.clear();
        match actions.slice(lane * width, (lane + 1) * width) {
            ColumnRef::U8(values) => scratch.extend_from_slice(values),
            ColumnRef::I32(values) => values.iter().for_each(|v| scratch.extend(v.to_ne_bytes())),
            ColumnRef::I64(values) => values.iter().for_each(|v| scratch.extend(v.to_ne_bytes())),
            ColumnRef::F32(values) => values.iter().for_each(|v| scratch.extend(v.to_ne_bytes())),
            ColumnRef::F64(values) => values.iter().for_each(|v| scratch.extend(v.to_ne_bytes())),
        }
        // A column of another type than the spec's must not reach the observation.
        scratch.truncate(self.record.columns.first().map_or(0, |column| column.at - self.record.action));
        self.memory.write(self.at + self.record.action, scratch);
    }

    /// Returns the reward.
    ///
    /// # Errors
    /// If it is not finite. What one's own worker says is taken as it is.
    pub(crate) fn reward(self) -> Result<f64, Nonsense> {
        let reward = f64::from_bits(self.memory.word(self.at + REWARD).load(Ordering::Relaxed));
        let fine = reward.is_finite() || self.record.said.is_some();
        if fine { Ok(reward) } else { Err(Nonsense::Reward(reward)) }
    }

    /// Returns what the env says of the lane's episode.
    pub(crate) fn verdict(self) -> Verdict {
        let word = |at| self.memory.word(self.at + VERDICT + at).load(Ordering::Relaxed);
        Verdict::of_words([word(0), word(size_of::<u64>())])
    }

    /// Returns the infos that have no column; `None` if there are none, or what is there is no text of their length.
    pub(crate) fn further(self) -> Option<String> {
        let at = self.at + self.record.further?;
        let given = self.memory.word(at).load(Ordering::Relaxed);
        let len = usize::try_from(given).ok().filter(|len| (1..=MAX_LANE_WORDS_BYTES).contains(len))?;
        let mut text = vec![0; len];
        self.memory.read_to(at + size_of::<u64>(), &mut text);
        String::from_utf8(text).ok()
    }

    /// Reads what the lane says.
    ///
    /// # Errors
    /// If its length is a lie.
    pub(crate) fn said(self, to: &mut Vec<u8>) -> Result<(), Nonsense> {
        let Some(at) = self.record.said else { return Err(Nonsense::Said(0)) };
        let at = self.at + self.shift + at;
        let given = self.memory.word(at).load(Ordering::Relaxed);
        let len = usize::try_from(given).ok().filter(|&len| len <= SAID_BYTES);
        to.resize(len.ok_or(Nonsense::Said(given))?, 0);
        self.memory.read_to(at + size_of::<u64>(), to);
        Ok(())
    }

    /// Copies the observation and the info channels to row `lane` of columns of `lanes` rows.
    ///
    /// # Errors
    /// If a boolean is none. The row means nothing then.
    #[inline]
    pub(crate) fn columns(
        self,
        obs: &mut [ColumnMut<'_>],
        infos: &mut [ColumnMut<'_>],
        (lane, lanes): (usize, usize),
        scratch: &mut Vec<u8>,
    ) -> Result<(), Nonsense> {
        self.copy_out(&self.record.columns, obs, (lane, lanes), scratch)?;
        self.copy_out(&self.record.infos, infos, (lane, lanes), scratch)
    }

    #[inline]
    fn copy_out(
        self,
        places: &[Place],
        columns: &mut [ColumnMut<'_>],
        (lane, lanes): (usize, usize),
        scratch: &mut Vec<u8>,
    ) -> Result<(), Nonsense> {
        for (place, column) in places.iter().zip(columns) {
            scratch.resize(place.bytes, 0);
            self.memory.read_to(self.at + self.shift + place.at, scratch);
            if place.dtype == DType::Bool
                && let Some(&byte) = scratch.iter().find(|&&byte| byte > 1)
            {
                return Err(Nonsense::Boolean(byte));
            }
            let width = column.as_ref().len() / lanes.max(1);
            copy(scratch, column.slice(lane * width, (lane + 1) * width));
        }
        Ok(())
    }

    /// Adds the bits of the observation and the action mask to a hash.
    pub(crate) fn hashed(self, hasher: StateHasher) -> StateHasher {
        let first = self.record.columns.first().map_or(self.record.hashed, |column| column.at);
        let words = (first..self.record.hashed).step_by(8);
        words.fold(hasher, |hash, word| hash.word(self.memory.word(self.at + word).load(Ordering::Relaxed)))
    }

    /// Returns where the lane's generator stands, as NumPy has it: state and increment, and the buffered half.
    pub(crate) fn generator(self) -> Option<((u128, u128), Option<u32>)> {
        let at = self.at + self.record.generator?;
        let word = |index| self.memory.word(at + index * size_of::<u64>()).load(Ordering::Relaxed);
        let number = |index| u128::from(word(index)) | u128::from(word(index + 1)) << 64;
        let half = (word(4) >> 32 != 0).then_some(word(4) as u32);
        Some(((number(0), number(2)), half))
    }

    /// Writes where the lane's generator is to stand.
    pub(crate) fn put_generator(self, generator: &Generator) {
        let Some(at) = self.record.generator else { return };
        let (state, increment) = generator.numpy_state();
        let half = generator.position().half.map_or(0, |half| u64::from(half) | 1 << 32);
        let words = [state as u64, (state >> 64) as u64, increment as u64, (increment >> 64) as u64, half];
        for (index, word) in words.into_iter().enumerate() {
            self.memory.word(self.at + at + index * size_of::<u64>()).store(word, Ordering::Relaxed);
        }
    }
}

/// Copies elements out of their bytes.
fn copy(bytes: &[u8], to: ColumnMut<'_>) {
    macro_rules! values {
        ($to:expr, $type:ty) => {
            for (value, bytes) in $to.iter_mut().zip(bytes.as_chunks().0) {
                *value = <$type>::from_ne_bytes(*bytes);
            }
        };
    }
    match to {
        ColumnMut::U8(to) => values!(to, u8),
        ColumnMut::I32(to) => values!(to, i32),
        ColumnMut::I64(to) => values!(to, i64),
        ColumnMut::F32(to) => values!(to, f32),
        ColumnMut::F64(to) => values!(to, f64),
    }
}

/// Room for infos that have no column, with their length.
const FURTHER_BYTES: usize = size_of::<u64>() + MAX_LANE_WORDS_BYTES;
/// Room for what a lane says beside its row. What is longer travels with its worker's answer.
const SAID_BYTES: usize = 1024;
const REWARD: usize = 8;
const VERDICT: usize = 16;
const ACTION: usize = 32;
const GENERATOR_BYTES: usize = 5 * size_of::<u64>();
const CACHE_LINE: usize = 64;
