//! Where the columns of a frame lie.
//!
//! Columns follow each other in the order: observations in the space's own order, info channels, rewards
//! (float64), terminated, truncated and reset flags (one byte each), and, if the frame's flag says so, last
//! observations. Each is its rows back to back, little-endian, and is filled up with zeros to a multiple of 8
//! bytes. Frames over some lanes begin with how many they are (u32, filled up to 8 bytes) and a column of their
//! numbers (u32).

use std::ops::Range;

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use rollhouse_core::{ColumnMut, ColumnRef, ColumnSpec, DType, EnvSpec};

use crate::limits::MAX_FRAME_BYTES;

const _: () = assert!(cfg!(target_endian = "little"), "columns are carried as they lie in memory");

/// The columns of a session's frames.
#[derive(Debug, Clone)]
pub struct FrameLayout {
    /// The action.
    pub action: ColumnSpec,
    /// Observations.
    pub obs: Vec<ColumnSpec>,
    /// Per-step info channels.
    pub infos: Vec<ColumnSpec>,
}

/// Places of the columns in the bytes of one batch of `rows` rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlaces {
    /// How many lanes; empty in frames over all lanes.
    pub count: Range<usize>,
    /// Numbers of lanes; empty in frames over all lanes.
    pub lanes: Range<usize>,
    /// Observations.
    pub obs: Vec<Range<usize>>,
    /// Info channels.
    pub infos: Vec<Range<usize>>,
    /// Rewards.
    pub rewards: Range<usize>,
    /// Terminated flags.
    pub terminated: Range<usize>,
    /// Truncated flags.
    pub truncated: Range<usize>,
    /// Flags of rows that began an episode.
    pub reset: Range<usize>,
    /// Last observations; empty if the frame has none.
    pub final_obs: Vec<Range<usize>>,
    /// Bytes of all columns.
    pub bytes: usize,
}

/// Places of the columns in the bytes of actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionPlaces {
    /// How many lanes; empty in frames over all lanes.
    pub count: Range<usize>,
    /// Numbers of lanes; empty in frames over all lanes.
    pub lanes: Range<usize>,
    /// One action per lane.
    pub actions: Range<usize>,
    /// Bytes of all.
    pub bytes: usize,
}

impl FrameLayout {
    /// Of an env's sessions.
    pub fn of(spec: &EnvSpec) -> Self {
        Self { action: spec.action_column(), obs: spec.obs_columns(), infos: spec.info_channels.clone() }
    }

    /// Places in a batch over all `rows` lanes; `None` if it is larger than a frame may be.
    pub fn batch(&self, rows: usize, final_obs: bool) -> Option<BatchPlaces> {
        self.places(rows, false, final_obs)
    }

    /// Places in a frame over `rows` lanes that names them; `None` if it is larger than a frame may be.
    pub fn rows(&self, rows: usize, final_obs: bool) -> Option<BatchPlaces> {
        self.places(rows, true, final_obs)
    }

    /// Places of the actions of `rows` lanes, `named` or all; `None` if they are larger than a frame may be.
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
            obs: self.obs.iter().map(|c| next.column(c)).collect::<Option<_>>()?,
            infos: self.infos.iter().map(|c| next.column(c)).collect::<Option<_>>()?,
            rewards: next.take(size_of::<f64>())?,
            terminated: next.take(1)?,
            truncated: next.take(1)?,
            reset: next.take(1)?,
            final_obs: last.iter().map(|c| next.column(c)).collect::<Option<_>>()?,
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

    /// Places of the count and of the numbers.
    fn lanes(&mut self, named: bool) -> Option<(Range<usize>, Range<usize>)> {
        if !named {
            return Some((0..0, 0..0));
        }
        let count = self.at..self.at + size_of::<u32>();
        self.at = count.end.next_multiple_of(ALIGNMENT);
        Some((count, self.take(size_of::<u32>())?))
    }
}

/// Bytes of a frame's columns, aligned for every element type. Grows and is used again; never shrinks.
#[derive(Debug, Default)]
pub struct ColumnBuffer {
    words: Vec<u64>,
    bytes: usize,
}

impl ColumnBuffer {
    /// Makes room for `bytes` bytes; what they hold is unspecified. Whoever sets a length from outside has
    /// checked it against the layout or against [`MAX_FRAME_BYTES`].
    pub fn resize(&mut self, bytes: usize) {
        self.words.resize(self.words.len().max(bytes.div_ceil(size_of::<u64>())), 0);
        self.bytes = bytes;
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &cast_slice(&self.words)[..self.bytes]
    }

    /// All bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// The column of that type at `place`, which must come from a layout this buffer was sized by.
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

    /// The column of that type at `place`, to write.
    ///
    /// # Panics
    /// As [`ColumnBuffer::column`].
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

    /// How many lanes a frame over some lanes says it has. A count is no proof: whoever got it from outside
    /// compares the bytes such a frame has with those that came.
    pub fn count(&self) -> Option<u32> {
        let (count, _) = self.bytes().split_first_chunk()?;
        Some(u32::from_le_bytes(*count))
    }

    /// Says at `place` that the frame has `count` lanes, and fills up.
    ///
    /// # Panics
    /// As [`ColumnBuffer::column`].
    pub fn set_count(&mut self, place: &Range<usize>, count: u32) {
        let end = place.end.next_multiple_of(ALIGNMENT);
        self.bytes_mut()[place.start..end].copy_from_slice(&u64::from(count).to_le_bytes());
    }

    /// The numbers of lanes at `place`.
    ///
    /// # Panics
    /// As [`ColumnBuffer::column`].
    pub fn lanes(&self, place: &Range<usize>) -> &[u32] {
        typed(&self.bytes()[place.clone()])
    }

    /// The numbers of lanes at `place`, to write.
    ///
    /// # Panics
    /// As [`ColumnBuffer::column`].
    pub fn lanes_mut(&mut self, place: &Range<usize>) -> &mut [u32] {
        cast_slice_mut(&mut self.bytes_mut()[place.clone()])
    }
}

/// A column as the bytes it is carried as.
pub fn column_bytes(column: ColumnRef<'_>) -> &[u8] {
    match column {
        ColumnRef::U8(values) => values,
        ColumnRef::I32(values) => cast_slice(values),
        ColumnRef::I64(values) => cast_slice(values),
        ColumnRef::F32(values) => cast_slice(values),
        ColumnRef::F64(values) => cast_slice(values),
    }
}

/// A column as the bytes it is carried as, to write.
pub fn column_bytes_mut(column: ColumnMut<'_>) -> &mut [u8] {
    match column {
        ColumnMut::U8(values) => values,
        ColumnMut::I32(values) => cast_slice_mut(values),
        ColumnMut::I64(values) => cast_slice_mut(values),
        ColumnMut::F32(values) => cast_slice_mut(values),
        ColumnMut::F64(values) => cast_slice_mut(values),
    }
}

/// Places begin at multiples of 8 in an 8-aligned buffer and hold whole rows, so the cast cannot fail.
fn typed<T: Pod>(bytes: &[u8]) -> &[T] {
    cast_slice(bytes)
}

/// What every column is filled up to.
const ALIGNMENT: usize = 8;
