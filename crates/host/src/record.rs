//! The record that each lane has in the memory shared with its worker.
//!
//! ```text
//! number    u64: what the lane has answered, in the low byte how
//! reward    f64
//! action    one value; each part begins at a multiple of 8 bytes
//! columns   the observation, column by column
//! ```
//!
//! A record is a multiple of 64 bytes, so that workers do not write to the same cache line. The host writes the action
//! while the lane is not under way, its worker everything else while it is; the number comes last.

use std::sync::atomic::Ordering;

use rollhouse_arena::SharedMemory;
use rollhouse_core::{ColumnMut, ColumnRef, ColumnSpec, DType, EnvSpec, StateHasher};
use serde::Serialize;

/// Places in the record of a lane.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    stride: usize,
    action: usize,
    columns: Vec<Place>,
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    bytes: usize,
    dtype: DType,
}

/// Places in the record of a lane, as a worker is told them. Each is in bytes from the record's beginning.
#[derive(Debug, Serialize)]
pub(crate) struct Places {
    /// First lane of the worker, whose records begin `stride` times that behind the beginning of the memory.
    first: usize,
    stride: usize,
    reward: usize,
    action: usize,
    observation: Vec<usize>,
}

/// Record of one lane.
#[derive(Clone, Copy)]
pub(crate) struct LaneRecord<'a> {
    record: &'a Record,
    memory: &'a SharedMemory,
    at: usize,
}

/// A byte of a boolean that is neither 0 nor 1, or a reward that is not finite.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub(crate) enum Nonsense {
    #[error("a reward of {0}")]
    Reward(f64),
    #[error("a boolean of {0}")]
    Boolean(u8),
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
        let columns = spec.obs_columns().iter().map(place).collect();
        Self { stride: end.next_multiple_of(CACHE_LINE), action: ACTION, columns, end }
    }

    /// Returns the number of bytes of that many records; `None` if no memory has as many.
    pub(crate) fn bytes(&self, lanes: usize) -> Option<usize> {
        self.stride.checked_mul(lanes)
    }

    /// Returns what a worker is told whose first lane is `first`.
    pub(crate) fn places(&self, first: usize) -> Places {
        let observation = self.columns.iter().map(|place| place.at).collect();
        Places { first, stride: self.stride, reward: REWARD, action: self.action, observation }
    }

    /// Returns the record of a lane in the memory, in which records begin at byte `at`.
    pub(crate) fn lane<'a>(&'a self, memory: &'a SharedMemory, at: usize, lane: usize) -> LaneRecord<'a> {
        LaneRecord { record: self, memory, at: at + lane * self.stride }
    }
}

impl LaneRecord<'_> {
    /// Returns the lane's number. What its worker wrote before it is visible then.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.memory.word(self.at).load(Ordering::Acquire)
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
    /// If it is not finite.
    pub(crate) fn reward(self) -> Result<f64, Nonsense> {
        let reward = f64::from_bits(self.memory.word(self.at + REWARD).load(Ordering::Relaxed));
        if reward.is_finite() { Ok(reward) } else { Err(Nonsense::Reward(reward)) }
    }

    /// Copies the observation to row `lane` of columns of `lanes` rows.
    ///
    /// # Errors
    /// If a boolean is none. The row means nothing then.
    pub(crate) fn observation(
        self,
        columns: &mut [ColumnMut<'_>],
        lane: usize,
        lanes: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Nonsense> {
        for (place, column) in self.record.columns.iter().zip(columns) {
            scratch.resize(place.bytes, 0);
            self.memory.read_to(self.at + place.at, scratch);
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

    /// Returns a hash of the observation's bits.
    pub(crate) fn hash(self) -> u32 {
        let first = self.record.columns.first().map_or(self.record.end, |column| column.at);
        let words = (first..self.record.end).step_by(8);
        words
            .fold(StateHasher::new(), |hash, word| {
                hash.word(self.memory.word(self.at + word).load(Ordering::Relaxed))
            })
            .finish()
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

const REWARD: usize = 8;
const ACTION: usize = 16;
const CACHE_LINE: usize = 64;
