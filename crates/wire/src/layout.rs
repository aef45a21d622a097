//! The places of the columns in a frame.
//!
//! Columns follow each other in the order: observations in the space's own order, info channels, rewards (float64),
//! terminated, truncated and reset flags (one byte each), and, if the frame's flag says so, last observations. Each
//! column is its rows back to back, little-endian, filled up with zeros to a multiple of 8 bytes. Frames over some
//! lanes begin with their count (u32, filled up to 8 bytes) and a column of their numbers (u32).

use std::ops::Range;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use bytes::BufMut;
use rollhouse_core::{ColumnMut, ColumnRef, ColumnSpec, DType, EnvSpec};
use rollhouse_policy::LaneStates;

use crate::limits::MAX_FRAME_BYTES;

const _: () = assert!(cfg!(target_endian = "little"), "columns are carried as they lie in memory");

/// The columns of a session's frames.
#[derive(Debug, Clone)]
pub struct FrameLayout {
    /// The column of actions.
    pub action: ColumnSpec,
    /// The columns of observations.
    pub obs: Vec<ColumnSpec>,
    /// The columns of per-step info channels.
    pub infos: Vec<ColumnSpec>,
}

/// The places of the columns in the bytes of one batch of `rows` rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlaces {
    /// The count of lanes; empty in frames over all lanes.
    pub count: Range<usize>,
    /// The numbers of lanes; empty in frames over all lanes.
    pub lanes: Range<usize>,
    /// The columns of observations.
    pub obs: Vec<Range<usize>>,
    /// The columns of info channels.
    pub infos: Vec<Range<usize>>,
    /// The column of rewards.
    pub rewards: Range<usize>,
    /// The column of terminated flags.
    pub terminated: Range<usize>,
    /// The column of truncated flags.
    pub truncated: Range<usize>,
    /// The column of flags of rows that began an episode.
    pub reset: Range<usize>,
    /// The columns of last observations; empty if the frame has none.
    pub final_obs: Vec<Range<usize>>,
    /// Bytes of all columns.
    pub bytes: usize,
}

/// The places of the columns in the bytes of actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionPlaces {
    /// The count of lanes; empty in frames over all lanes.
    pub count: Range<usize>,
    /// The numbers of lanes; empty in frames over all lanes.
    pub lanes: Range<usize>,
    /// One action per lane.
    pub actions: Range<usize>,
    /// Bytes of all columns.
    pub bytes: usize,
}

/// The places of the columns in the bytes of a fragment: in each, rows of all lanes of a step behind those of the step before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentPlaces {
    /// The columns of observations, of the frames that came of the steps.
    pub obs: Vec<Range<usize>>,
    /// The columns of info channels, of the same frames.
    pub infos: Vec<Range<usize>>,
    /// The column of actions that were taken.
    pub actions: Range<usize>,
    /// The columns that the policy has noted.
    pub notes: Vec<Range<usize>>,
    /// The column of rewards.
    pub rewards: Range<usize>,
    /// The column of terminated flags.
    pub terminated: Range<usize>,
    /// The column of truncated flags.
    pub truncated: Range<usize>,
    /// The column of flags of rows that began an episode.
    pub reset: Range<usize>,
    /// The columns of last observations, a row for each that the fragment's notes name.
    pub final_obs: Vec<Range<usize>>,
    /// What the policy remembers of the lanes after the last step; `None` if it remembers nothing.
    pub memory: Option<MemoryPlaces>,
    /// Bytes of all columns.
    pub bytes: usize,
}

/// The places of what a policy remembers of lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlaces {
    /// The column of flags of lanes that begin an episode with what they show next: their states count as zeros.
    pub began: Range<usize>,
    /// The columns of states, a row for each lane.
    pub states: Vec<Range<usize>>,
}

impl MemoryPlaces {
    /// Returns the end of the last column.
    pub fn end(&self) -> usize {
        self.states.last().unwrap_or(&self.began).end.next_multiple_of(ALIGNMENT)
    }

    /// Reads what is remembered from a buffer that has these places.
    ///
    /// # Panics
    /// Those of [`ColumnBuffer::column`].
    pub fn read(&self, buffer: &ColumnBuffer) -> LaneStates {
        let began = buffer.bytes()[self.began.clone()].iter().map(|&began| began != 0).collect();
        let rows = self.states.iter().map(|place| typed(&buffer.bytes()[place.clone()]).to_vec()).collect();
        LaneStates { began, rows }
    }
}

/// Writes what a policy remembers of lanes, as the columns of [`FrameLayout::memory`].
pub fn put_memory(lanes: &LaneStates, out: &mut impl BufMut) {
    let mut put = |bytes: &[u8]| {
        out.put_slice(bytes);
        out.put_bytes(0, bytes.len().next_multiple_of(ALIGNMENT) - bytes.len());
    };
    put(&lanes.began.iter().map(|&began| u8::from(began)).collect::<Vec<_>>());
    lanes.rows.iter().for_each(|rows| put(cast_slice(rows)));
}

impl FrameLayout {
    /// Returns the layout of the sessions of an env.
    pub fn of(spec: &EnvSpec) -> Self {
        Self { action: spec.action_column(), obs: spec.obs_columns(), infos: spec.info_channels.clone() }
    }

    /// Returns the number of the info channel with the action that was taken, if rows report it.
    pub fn action_taken(&self) -> Option<usize> {
        self.action.place_taken(&self.infos)
    }

    /// Returns the places in a batch over all `rows` lanes; `None` if it is larger than a frame may be.
    pub fn batch(&self, rows: usize, final_obs: bool) -> Option<BatchPlaces> {
        self.places(rows, false, final_obs)
    }

    /// Returns the places in a frame over `rows` lanes that names them; `None` if it is larger than a frame may be.
    pub fn rows(&self, rows: usize, final_obs: bool) -> Option<BatchPlaces> {
        self.places(rows, true, final_obs)
    }

    /// Returns the places of what `lanes` lanes have shown and done in some steps, with so many last observations. `notes` are
    /// the columns that their policy notes, `states` those of what it remembers, if it does. `None` if it is larger than a frame may be.
    pub fn fragment(
        &self,
        (steps, lanes): (usize, usize),
        notes: &[ColumnSpec],
        finals: usize,
        states: Option<&[ColumnSpec]>,
    ) -> Option<FragmentPlaces> {
        let mut next = Cursor { rows: steps.checked_mul(lanes)?, at: 0 };
        Some(FragmentPlaces {
            obs: next.columns(&self.obs)?,
            infos: next.columns(&self.infos)?,
            actions: next.column(&self.action)?,
            notes: next.columns(notes)?,
            rewards: next.take(size_of::<f64>())?,
            terminated: next.take(1)?,
            truncated: next.take(1)?,
            reset: next.take(1)?,
            final_obs: next.of_rows(finals).columns(&self.obs)?,
            memory: match states {
                Some(states) => Some(next.of_rows(lanes).memory(states)?),
                None => None,
            },
            bytes: next.at,
        })
    }

    /// Returns the places in a frame with what a policy remembers of `lanes` lanes, whose states have these columns; `None` if it is
    /// larger than a frame may be.
    pub fn memory(lanes: usize, states: &[ColumnSpec]) -> Option<MemoryPlaces> {
        Cursor { rows: lanes, at: 0 }.memory(states)
    }

    /// Returns the places of the actions of `rows` lanes, which are `named` or all lanes; `None` if they are larger
    /// than a frame may be.
    pub fn actions(&self, rows: usize, named: bool) -> Option<ActionPlaces> {
        let mut next = Cursor { rows, at: 0 };
        let (count, lanes) = next.lanes(named)?;
        let actions = next.column(&self.action)?;
        Some(ActionPlaces { count, lanes, actions, bytes: next.at })
    }

    fn places(&self, rows: usize, named: bool, final_obs: bool) -> Option<BatchPlaces> {
        let mut next = Cursor { rows, at: 0 };
        let last: &[ColumnSpec] = if final_obs { &self.obs } else { &[] };
        let (count, lanes) = next.lanes(named)?;
        Some(BatchPlaces {
            count,
            lanes,
            obs: next.columns(&self.obs)?,
            infos: next.columns(&self.infos)?,
            rewards: next.take(size_of::<f64>())?,
            terminated: next.take(1)?,
            truncated: next.take(1)?,
            reset: next.take(1)?,
            final_obs: next.columns(last)?,
            bytes: next.at,
        })
    }
}

/// Hands out places one after the other.
struct Cursor {
    rows: usize,
    at: usize,
}

impl Cursor {
    fn take(&mut self, row_bytes: usize) -> Option<Range<usize>> {
        let bytes = row_bytes.checked_mul(self.rows)?;
        let end = self.at.checked_add(bytes)?;
        let place = self.at..end;
        self.at = end.checked_next_multiple_of(ALIGNMENT).filter(|&at| at <= MAX_FRAME_BYTES)?;
        Some(place)
    }

    fn column(&mut self, column: &ColumnSpec) -> Option<Range<usize>> {
        let elements = column.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))?;
        self.take(elements.checked_mul(column.dtype.size())?)
    }

    fn columns(&mut self, columns: &[ColumnSpec]) -> Option<Vec<Range<usize>>> {
        columns.iter().map(|column| self.column(column)).collect()
    }

    fn memory(&mut self, states: &[ColumnSpec]) -> Option<MemoryPlaces> {
        Some(MemoryPlaces { began: self.take(1)?, states: self.columns(states)? })
    }

    /// Goes on with columns of another number of rows.
    const fn of_rows(&mut self, rows: usize) -> &mut Self {
        self.rows = rows;
        self
    }

    /// Takes the places of the count and of the numbers.
    fn lanes(&mut self, named: bool) -> Option<(Range<usize>, Range<usize>)> {
        if !named {
            return Some((0..0, 0..0));
        }
        let count = self.at..self.at + size_of::<u32>();
        self.at = count.end.next_multiple_of(ALIGNMENT);
        Some((count, self.take(size_of::<u32>())?))
    }
}

/// The bytes of a frame's columns, aligned for every element type. The buffer grows and is used again; it never
/// shrinks.
#[derive(Debug, Default)]
pub struct ColumnBuffer {
    words: Vec<u64>,
    bytes: usize,
}

impl ColumnBuffer {
    /// Makes room for `bytes` bytes; what they hold is unspecified. A length from outside must be checked first,
    /// against the layout or against [`MAX_FRAME_BYTES`].
    pub fn resize(&mut self, bytes: usize) {
        self.words.resize(self.words.len().max(bytes.div_ceil(size_of::<u64>())), 0);
        self.bytes = bytes;
    }

    /// Returns all bytes.
    pub fn bytes(&self) -> &[u8] {
        &cast_slice(&self.words)[..self.bytes]
    }

    /// Returns all bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// Returns the column of that type at `place`, which must come from the layout that this buffer was sized for.
    ///
    /// # Panics
    /// If `place` does not lie in the buffer.
    pub fn column(&self, place: &Range<usize>, dtype: DType) -> ColumnRef<'_> {
        let bytes = &self.bytes()[place.clone()];
        match dtype {
            DType::Bool | DType::U8 => ColumnRef::U8(bytes),
            DType::I32 => ColumnRef::I32(typed(bytes)),
            DType::I64 => ColumnRef::I64(typed(bytes)),
            DType::F32 => ColumnRef::F32(typed(bytes)),
            DType::F64 => ColumnRef::F64(typed(bytes)),
        }
    }

    /// Returns the column of that type at `place`, to write.
    ///
    /// # Panics
    /// Those of [`ColumnBuffer::column`].
    pub fn column_mut(&mut self, place: &Range<usize>, dtype: DType) -> ColumnMut<'_> {
        let bytes = &mut self.bytes_mut()[place.clone()];
        match dtype {
            DType::Bool | DType::U8 => ColumnMut::U8(bytes),
            DType::I32 => ColumnMut::I32(cast_slice_mut(bytes)),
            DType::I64 => ColumnMut::I64(cast_slice_mut(bytes)),
            DType::F32 => ColumnMut::F32(cast_slice_mut(bytes)),
            DType::F64 => ColumnMut::F64(cast_slice_mut(bytes)),
        }
    }

    /// Returns the number of lanes that a frame over some lanes claims to have. A count is no proof: if it came from
    /// outside, compare the bytes that such a frame has with those that came.
    pub fn count(&self) -> Option<u32> {
        let (count, _) = self.bytes().split_first_chunk()?;
        Some(u32::from_le_bytes(*count))
    }

    /// Writes at `place` that the frame has `count` lanes, and fills up with zeros.
    ///
    /// # Panics
    /// Those of [`ColumnBuffer::column`].
    pub fn set_count(&mut self, place: &Range<usize>, count: u32) {
        let end = place.end.next_multiple_of(ALIGNMENT);
        self.bytes_mut()[place.start..end].copy_from_slice(&u64::from(count).to_le_bytes());
    }

    /// Returns the numbers of lanes at `place`.
    ///
    /// # Panics
    /// Those of [`ColumnBuffer::column`].
    pub fn lanes(&self, place: &Range<usize>) -> &[u32] {
        typed(&self.bytes()[place.clone()])
    }

    /// Returns the numbers of lanes at `place`, to write.
    ///
    /// # Panics
    /// Those of [`ColumnBuffer::column`].
    pub fn lanes_mut(&mut self, place: &Range<usize>) -> &mut [u32] {
        cast_slice_mut(&mut self.bytes_mut()[place.clone()])
    }
}

/// Casts bytes to elements. Places begin at multiples of 8 in an 8-aligned buffer and hold whole rows, so the cast
/// cannot fail.
fn typed<T: Pod>(bytes: &[u8]) -> &[T] {
    cast_slice(bytes)
}

/// Multiple of bytes to which every column is filled up.
const ALIGNMENT: usize = 8;
