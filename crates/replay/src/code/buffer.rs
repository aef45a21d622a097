//! The buffer that a stepping thread appends to: the raw form of one chunk.

use rollhouse_core::{Call, LaneSet, Start};
use rollhouse_env::fetch_to_write;

use crate::code::coding::stepped::Rule;
use crate::code::events::EventWords;
use crate::code::frame_chunk::FrameBuffer;
use crate::code::layout::{ActionCoding, Layout};
use crate::code::noted::NotedRows;
use crate::code::own_options::{self, OwnOptions};
use crate::code::packed::rows::PackedRows;
use crate::limits::{CHUNK_ROWS, CHUNK_TARGET_BYTES};

/// One chunk as the stepping thread leaves it. Positions count rows: an event with `pos` p happened after the
/// first p rows.
///
/// The fields that each row touches fill one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Buffer {
    pub(crate) events: EventWords,
    /// Plane-minor: `planes` words per row.
    pub(crate) planes: Vec<u64>,
    pub(crate) rows: u32,
    /// Estimated bytes on disk.
    pub(crate) estimate: u32,
    /// Wall clock of the first row.
    pub(crate) opened_ms: u64,
    /// Rule that says which lanes step in the first row, unless an event says otherwise.
    pub(crate) rule: Rule,
    /// Words that every begin draws which is noted by a row or by the rule.
    pub(crate) drawn: u32,
    /// Whether an episode begins in the row in which a lane rests because one ended, unless an event says otherwise.
    pub(crate) begins_by_rule: bool,
    pub(crate) lanes: BlockLanes,
    /// Bytes of each row: raw actions, then in traces and full recordings each observation column, the rewards and each
    /// info column, but for the packed ones; every lane of the block.
    pub(crate) raw: Vec<u8>,
    /// Starts of the begins whose start is written in full, in the order of the begins, then of the lanes.
    pub(crate) full_starts: Vec<Start>,
    /// First observations, one per begin: that lane's row of each observation column that is not packed.
    pub(crate) first_obs: Vec<u8>,
    /// Rows and first observations of each packed column.
    pub(crate) packed: Vec<PackedRows>,
    /// What happened between rows beside episodes.
    pub(crate) between: BetweenRows,
    /// Pictures of lanes.
    pub(crate) frames: FrameBuffer,
}

const _: () = assert!(std::mem::offset_of!(Buffer, rule) == 64);

/// What happened between rows beside episodes, which is seldom anything.
#[derive(Debug, Default)]
pub(crate) struct BetweenRows {
    /// Lanes, before the first row, whose next episode does not have the number that follows; each with that number.
    pub(crate) numbers: Vec<(u8, u64)>,
    /// Rows from which on another version of the policy acts, ascending, each with the version.
    pub(crate) versions: Vec<(u32, u64)>,
    /// Values of each step column.
    pub(crate) noted: Vec<NotedRows>,
    /// Calls that changed lanes, in the order of their events.
    pub(crate) calls: Vec<Call>,
    /// Options of lanes that are others than the run's.
    pub(crate) options: Vec<OwnOptions>,
}

/// The lanes of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BlockLanes {
    /// Lane of the run that is the block's first.
    pub(crate) first: u32,
    pub(crate) count: usize,
}

impl BlockLanes {
    pub(crate) const fn all(self) -> LaneSet {
        LaneSet::first(self.count)
    }

    /// Returns the number that a lane of the block has in the run.
    pub(crate) const fn in_run(self, lane: usize) -> u32 {
        self.first + lane as u32
    }
}

/// Estimated bytes on disk of an end, a window hash, a begin, a row that is not as the rules say, and a change of the
/// policy's version.
pub(crate) const END_ESTIMATE: u32 = 6;
pub(crate) const WINDOW_ESTIMATE: u32 = 4;
pub(crate) const BEGIN_ESTIMATE: u32 = 2;
pub(crate) const ROW_ESTIMATE: u32 = 2;
const VERSION_ESTIMATE: u32 = 4;
/// Estimated bytes on disk of a call beside its texts.
const CALL_ESTIMATE: u32 = 8;
/// Estimated bytes on disk of a lane's options beside themselves.
const OPTIONS_ESTIMATE: u32 = 4;

impl Buffer {
    /// Makes an empty buffer, whose vectors hold a whole chunk of any block of up to `lanes` lanes without growing.
    /// Memory that a chunk does not touch stays untouched.
    pub(crate) fn new(layout: &Layout, lanes: usize) -> Self {
        let has_observations = layout.recorded.has_observations();
        let rows = if has_observations {
            (layout.raw_target() / layout.step_bytes() + 2 * lanes).min(CHUNK_ROWS)
        } else {
            CHUNK_ROWS
        };
        let raw = match layout.actions {
            ActionCoding::Planes { .. } if !has_observations => 0,
            _ => layout.raw_target() + 2 * layout.row_bytes(lanes),
        };
        // A row is taken while the estimate is under the target. No event has more words than estimated bytes.
        let events = CHUNK_TARGET_BYTES + 8 * lanes;
        let noted_bytes = (layout.noted_bytes() * lanes).max(1);
        let noted =
            |row: &Vec<u8>| NotedRows::with_capacity(CHUNK_TARGET_BYTES / noted_bytes + 2, row.len() * lanes);
        let begins = if layout.starts { CHUNK_TARGET_BYTES / BEGIN_ESTIMATE as usize + 2 * lanes } else { 0 };
        Self {
            events: EventWords::with_capacity(events),
            planes: Vec::with_capacity((rows + 1) * layout.actions.planes()),
            raw: Vec::with_capacity(raw),
            full_starts: Vec::with_capacity(begins),
            first_obs: Vec::with_capacity(if has_observations {
                layout.raw_target() + 2 * layout.obs_bytes * lanes
            } else {
                0
            }),
            packed: layout.packed().map(|_| PackedRows::with_capacity(layout.packed_target(lanes))).collect(),
            between: BetweenRows {
                noted: layout.unnoted.iter().map(noted).collect(),
                ..BetweenRows::default()
            },
            ..Self::default()
        }
    }

    /// Returns the bytes of memory that the buffer holds.
    pub(crate) fn bytes(&self) -> usize {
        self.events.bytes()
            + self.planes.capacity() * size_of::<u64>()
            + self.raw.capacity()
            + self.full_starts.capacity() * size_of::<Start>()
            + self.first_obs.capacity()
            + self.packed.iter().map(PackedRows::memory).sum::<usize>()
            + self.between.noted.iter().map(NotedRows::memory).sum::<usize>()
    }

    /// Has the processor fetch the memory that the next rows fill. The writer read that memory last, on another core,
    /// and with thousands of lanes waiting for it cost as much as all else that recording does.
    #[inline]
    pub(crate) fn fetch_ahead(&self) {
        self.events.fetch_ahead();
        fetch_to_write(self.planes.as_ptr().wrapping_add(self.planes.len() + PLANES_FETCHED_AHEAD));
    }

    /// Has the processor fetch the memory that the first rows fill, in a buffer that the writer has emptied.
    pub(crate) fn fetch_first(&self) {
        self.events.fetch_first();
        fetch_to_write(self.planes.as_ptr());
        fetch_to_write(self.planes.as_ptr().wrapping_add(PLANES_FETCHED_AHEAD));
    }

    /// Notes that from the next row on that version of the policy acts.
    pub(crate) fn change_version(&mut self, version: u64) {
        let versions = &mut self.between.versions;
        match versions.last_mut().filter(|(row, _)| *row == self.rows) {
            Some((_, last)) => *last = version,
            None => versions.push((self.rows, version)),
        }
        self.estimate += VERSION_ESTIMATE;
    }

    /// Notes a call that changed a lane before the next row.
    pub(crate) fn push_call(&mut self, lane: usize, call: Call) {
        self.events.push_call(self.rows as usize, lane);
        self.estimate += (call.method.len() + call.payload.len()) as u32 + CALL_ESTIMATE;
        self.between.calls.push(call);
    }

    /// Notes the options that a lane has from an episode on.
    pub(crate) fn push_options(&mut self, own: OwnOptions) {
        let bytes = own.difference.as_ref().map_or(0, |options| options.bytes()) as u32;
        self.estimate += bytes + OPTIONS_ESTIMATE;
        own_options::note(&mut self.between.options, own);
    }

    /// Returns whether the buffer has nothing to write.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows == 0 && self.events.is_empty()
    }

    /// Empties the buffer for the next chunk and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.planes.clear();
        self.raw.clear();
        self.full_starts.clear();
        self.first_obs.clear();
        self.packed.iter_mut().for_each(PackedRows::clear);
        self.between.numbers.clear();
        self.between.versions.clear();
        self.between.calls.clear();
        self.between.options.clear();
        self.between.noted.iter_mut().for_each(NotedRows::clear);
        if self.frames.bytes() > 0 {
            self.frames = FrameBuffer::default();
        }
        self.rows = 0;
        self.estimate = 0;
    }
}

/// Words of bit planes that are fetched ahead: a cache line.
const PLANES_FETCHED_AHEAD: usize = 8;
