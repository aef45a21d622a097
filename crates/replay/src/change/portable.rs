//! Files of one episode: each is a sealed segment with nothing else in it.
//!
//! [`write_portable`] records the episode once more, by the very code that records episodes, into any writer; equal
//! recordings give equal files. A [`Portable`] is such a file that was read and is whole; an
//! [`Importer`](crate::Importer) adds it to a folder.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::msgpack::DecodeError;
use rollhouse_core::{ColumnData, ColumnRef, ColumnSpec, LaneSet, split_mix64};

use crate::change::one_segment::OneSegment;
use crate::code::buffer::{BlockLanes, Buffer};
use crate::code::coding::stepped::skips_after_end;
use crate::code::encode::Encoder;
use crate::code::episode::{Episode, EpisodeInfo};
use crate::code::events::{EndEvent, UNKNOWN_RETURN};
use crate::code::lanes::BlockState;
use crate::code::layout::Layout;
use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::code::run_record::RunInfo;
use crate::limits::MAX_SEGMENT_BYTES;
use crate::read::query::Query;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::stored::scan::{Found, Records};
use crate::write::block::{BlockRecorder, End, Row, has_state};
use crate::write::handover::RunShared;

/// Writes an episode as a segment that has nothing else. After an error, the file is not whole. `each` is called after
/// every step; it stops the writing if it returns false.
///
/// # Errors
/// If `out` fails, the episode would take more than [`MAX_SEGMENT_BYTES`], or `each` stops.
pub fn write_portable(
    episode: &Episode,
    out: &mut dyn Write,
    each: impl FnMut(u64) -> bool,
) -> Result<(), PortableError> {
    write_placed(episode, placement_of(&episode.info), out, each)
}

/// Writes an episode as [`write_portable`] does, as a recording of that placement.
pub(crate) fn write_placed(
    episode: &Episode,
    placement: u64,
    out: &mut dyn Write,
    mut each: impl FnMut(u64) -> bool,
) -> Result<(), PortableError> {
    let info = &episode.info;
    let mut run = RunInfo::clone(&info.run);
    run.placement = placement;
    let layout = Layout::of_run(&run);
    let shared = RunShared::new(layout.clone(), 1, skips_after_end(&run.autoreset), Arc::default());
    let mut pack = Pack {
        out,
        at: 0,
        tag: run.tag(),
        started_ms: info.started_ms,
        prev: 0,
        rows: 0,
        encoder: Encoder::new(layout, run.sampling(), &run.autoreset),
        state: BlockState::new(1),
        payload: Vec::new(),
        shared: shared.clone(),
    };
    let header = run.encode().map_err(PortableError::Run)?;
    pack.begin(&header)?;
    shared.set_options(&[run.options(info.name.lane)]);
    let mut lane = BlockRecorder::new(shared, info.name.lane, 1);
    lane.number(0, info.name.number);
    lane.options(0, info.name.number, &info.lane_options());
    let first = episode.steps.iter().flat_map(|steps| &steps.first_obs).map(ColumnData::as_ref);
    let first: Vec<ColumnRef<'_>> = first.collect();
    let specs = Specs { action: run.spec.action_column(), obs: run.spec.obs_columns() };
    if info.length == 0 {
        // The lane rests in a row, so that the episode does not end before all rows: what would follow it there, and has
        // not begun, would be taken for one under way.
        rest(&mut lane, &first, &specs.action, &run.spec.info_channels, info.started_ms);
    }
    lane.begin(0, info.start, &first);
    let frame_of = |step| episode.steps.as_ref().and_then(|steps| steps.frames.of(step)).cloned();
    frame_of(0).into_iter().for_each(|frame| lane.frame(0, true, frame));
    let mut windows = episode.windows.iter().peekable();
    for row in 0..info.length as usize {
        lane.policy_version(episode.policy_versions.of_step(row as u64));
        // Every call has a step behind it, so the state before it is not asked for.
        episode.calls_after(row as u64).iter().for_each(|called| lane.call(0, 0, called.call.clone()));
        record_row(&mut lane, episode, &specs, &run.spec.info_channels, row)?;
        let age = row as u64 + 1;
        frame_of(age).into_iter().for_each(|frame| lane.frame(0, false, frame));
        while let Some(&(_, hash)) = windows.next_if(|&&(at, _)| at == age) {
            lane.window(0, hash);
        }
        pack.take()?;
        if !each(age) {
            return Err(PortableError::Stopped);
        }
    }
    write_end(&mut pack, lane, episode)?;
    pack.end(&header)
}

/// Writes the end of an episode whose rows are written.
fn write_end(pack: &mut Pack<'_>, mut lane: BlockRecorder, episode: &Episode) -> Result<(), PortableError> {
    let info = &episode.info;
    let total_reward = info.total_reward.unwrap_or(UNKNOWN_RETURN);
    let hash = episode.end_hash;
    let is_cut = hash.is_none() && has_state(info.outcome);
    if !is_cut {
        let (outcome, result, score) = (info.outcome, info.result, info.score);
        lane.end(0, End { outcome, total_reward, hash: hash.unwrap_or(0), result, score });
    }
    let options = lane.own_options().to_vec();
    drop(lane);
    pack.take()?;
    if is_cut {
        // As a writer ends the episodes of those that are given up: without a hash.
        let code = info.outcome.code();
        let lanes = BlockLanes { first: info.name.lane, count: 1 };
        let mut buffer = Buffer { lanes, opened_ms: info.started_ms, ..Buffer::default() };
        buffer.between.options = options;
        buffer.events.push_end(EndEvent { total_reward, hash: 0, pos: 0, lane: 0, code }, info.score);
        pack.chunk(&mut buffer)?;
    }
    Ok(())
}

struct Specs {
    action: ColumnSpec,
    obs: Vec<ColumnSpec>,
}

/// Records a row in which the lane does not step.
fn rest(
    lane: &mut BlockRecorder,
    obs: &[ColumnRef<'_>],
    action: &ColumnSpec,
    infos: &[ColumnSpec],
    now_ms: u64,
) {
    let zeros = |column: &ColumnSpec| ColumnData::zeros(column.dtype, column.elements());
    let (action, infos) = (zeros(action), infos.iter().map(zeros).collect::<Vec<_>>());
    let infos: Vec<ColumnRef<'_>> = infos.iter().map(ColumnData::as_ref).collect();
    lane.row(Row {
        stepped: LaneSet::NONE,
        begun: LaneSet::NONE,
        actions: action.as_ref(),
        obs,
        rewards: &[0.0],
        infos: &infos,
        now_ms,
    });
}

fn record_row(
    lane: &mut BlockRecorder,
    episode: &Episode,
    specs: &Specs,
    infos: &[ColumnSpec],
    row: usize,
) -> Result<(), PortableError> {
    let missing = || PortableError::Steps;
    let actions = episode.actions.row(row, specs.action.elements()).ok_or_else(missing)?;
    let now_ms = episode.info.started_ms;
    let noted = episode.info.run.step_columns.specs();
    if !noted.is_empty() {
        lane.note(&rows_of(&episode.step_columns, noted, row).ok_or_else(missing)?);
    }
    let (mut obs, mut info_rows, mut rewards) = (Vec::new(), Vec::new(), &[][..]);
    if let Some(steps) = &episode.steps {
        obs = rows_of(&steps.obs, &specs.obs, row).ok_or_else(missing)?;
        info_rows = rows_of(&steps.infos, infos, row).ok_or_else(missing)?;
        rewards = steps.rewards.get(row..=row).ok_or_else(missing)?;
    }
    lane.row(Row {
        stepped: LaneSet::one(0),
        begun: LaneSet::NONE,
        actions,
        obs: &obs,
        rewards,
        infos: &info_rows,
        now_ms,
    });
    Ok(())
}

/// Returns one row of each column.
fn rows_of<'a>(columns: &'a [ColumnData], specs: &[ColumnSpec], row: usize) -> Option<Vec<ColumnRef<'a>>> {
    columns.iter().zip(specs).map(|(column, spec)| column.row(row, spec.elements())).collect()
}

/// Returns a placement that tells this recording of the lane from those that a folder may have of its run. Equal
/// episodes have the same.
fn placement_of(info: &EpisodeInfo) -> u64 {
    let lane = split_mix64(info.run.placement ^ split_mix64(u64::from(info.name.lane)));
    split_mix64(lane ^ info.name.number) | 1
}

/// The segment that is being written.
struct Pack<'a> {
    out: &'a mut dyn Write,
    at: u64,
    tag: u32,
    started_ms: u64,
    /// Offset of the last chunk.
    prev: u32,
    rows: u64,
    encoder: Encoder,
    state: BlockState,
    payload: Vec<u8>,
    shared: Arc<RunShared>,
}

impl Pack<'_> {
    fn begin(&mut self, run: &[u8]) -> Result<(), PortableError> {
        let (tag, ms) = (self.tag, self.started_ms);
        self.put(Header { position: PORTABLE_NUMBER, ms, tag, ..Header::new(Kind::Segment) }, &[])?;
        self.put(Header { tag, ..Header::new(Kind::Run) }, run)
    }

    /// Writes what the lane's recorder has handed over.
    fn take(&mut self) -> Result<(), PortableError> {
        while let Some(mut buffer) = self.shared.take_full() {
            self.chunk(&mut buffer)?;
            self.shared.recycle(buffer);
        }
        Ok(())
    }

    fn chunk(&mut self, buffer: &mut Buffer) -> Result<(), PortableError> {
        if buffer.rows == 0 {
            // No row has said when it was.
            buffer.opened_ms = self.started_ms;
        }
        for (_, number) in buffer.between.numbers.drain(..) {
            self.state.table[0].number = number;
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let kept = self.encoder.encode(buffer, &mut self.state, &mut payload, |_| {});
        let (offset, position) = (self.at, self.rows);
        self.rows += u64::from(buffer.rows);
        if kept.map_err(|_| PortableError::Steps)? {
            let header = Header {
                lanes: 1,
                first_lane: buffer.lanes.first,
                rows: buffer.rows,
                prev: self.prev,
                position,
                ms: buffer.opened_ms,
                tag: self.tag,
                ..Header::new(Kind::Chunk)
            };
            self.put(header, &payload)?;
            self.prev = offset as u32;
            payload.clear();
            buffer.frames.put(self.encoder.present(), &mut payload);
            if !payload.is_empty() {
                let header = Header { kind: Kind::Frames, prev: offset as u32, ..header };
                self.put(header, &payload)?;
            }
        }
        self.payload = payload;
        Ok(())
    }

    fn end(&mut self, run: &[u8]) -> Result<(), PortableError> {
        let tag = self.tag;
        self.put(Header { tag, ..Header::new(Kind::Run) }, run)?;
        self.put(Header { tag, ..Header::new(Kind::RunEnd) }, &[])?;
        self.put(Header { position: self.at, ..Header::new(Kind::Mark) }, &[])?;
        self.put(Header { position: self.at, ..Header::new(Kind::Seal) }, &[])
    }

    fn put(&mut self, header: Header, payload: &[u8]) -> Result<(), PortableError> {
        let header =
            Header { payload_len: payload.len() as u32, payload_crc: crc32c::crc32c(payload), ..header };
        self.at += header.record_len();
        if self.at > MAX_SEGMENT_BYTES {
            return Err(PortableError::TooLarge);
        }
        self.out.write_all(&header.encode())?;
        Ok(self.out.write_all(payload)?)
    }
}

/// Number of the segment in every file of one episode.
const PORTABLE_NUMBER: u64 = 1;

/// A file of one episode that was read: every byte of it is intact, and the episode is there from its first step to its
/// end.
#[derive(Debug, Clone)]
pub struct Portable {
    bytes: Arc<[u8]>,
    info: EpisodeInfo,
}

impl Portable {
    /// Reads and checks the bytes of such a file. While it does, it takes about as much memory again.
    ///
    /// # Errors
    /// If they are no segment, are damaged anywhere, or do not have exactly one whole episode.
    pub fn read(bytes: Vec<u8>) -> Result<Self, PortableError> {
        let (portable, _) = Self::open(bytes)?;
        Ok(portable)
    }

    /// Reads the episode in the bytes of such a file, for callers that do not need the bytes afterwards.
    ///
    /// # Errors
    /// As [`Portable::read`].
    pub fn episode_of(bytes: Vec<u8>) -> Result<Episode, PortableError> {
        let (_, episode) = Self::open(bytes)?;
        Ok(episode)
    }

    fn open(bytes: Vec<u8>) -> Result<(Self, Episode), PortableError> {
        let number = match Records::new(&bytes, 0).next() {
            Some(Found::Record(0, header, _)) if header.kind == Kind::Segment => header.position,
            _ => return Err(PortableError::NoRecording),
        };
        let bytes: Arc<[u8]> = bytes.into();
        let file = OneSegment::new(number, bytes.clone());
        let replays = Replays::open_scanning(Arc::new(file), Path::new("")).map_err(PortableError::Read)?;
        if let Some(damage) = replays.damage().next() {
            return Err(PortableError::Damaged { at: damage.from });
        }
        if replays.sealed_here().count() != 1 {
            return Err(PortableError::Damaged { at: bytes.len() as u64 });
        }
        let episodes = replays.count().map_err(PortableError::Read)?;
        let listed =
            replays.list(&Query { limit: Some(1), ..Query::default() }).map_err(PortableError::Read)?;
        let Some(info) = listed.into_iter().next().filter(|_| episodes == 1) else {
            return Err(PortableError::NotOne { episodes });
        };
        let episode = replays.load(&info).map_err(PortableError::Read)?;
        Ok((Self { bytes, info: episode.info.clone() }, episode))
    }

    /// Returns the episode as listings show it.
    pub const fn info(&self) -> &EpisodeInfo {
        &self.info
    }

    /// Returns the segment's bytes with another number.
    pub(crate) fn numbered(&self, number: u64) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        if let Some(first) = bytes.first_chunk_mut::<HEADER_BYTES>()
            && let Some(header) = Header::decode(first)
        {
            *first = Header { position: number, ..header }.encode();
        }
        bytes
    }
}

/// An error: an episode could not be written to a file of its own, or such a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    /// The writer that it goes to failed.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// The caller asked to stop.
    #[error("stopped before the end")]
    Stopped,
    /// It would be larger than any segment.
    #[error("the episode takes more than {MAX_SEGMENT_BYTES} bytes")]
    TooLarge,
    /// No reader would accept the header of its run.
    #[error("no reader would accept the header of the run")]
    Run(#[source] DecodeError),
    /// Some of its steps are missing.
    #[error("some steps of the episode are missing")]
    Steps,
    /// The bytes do not begin as a recording does.
    #[error("this is not a recording")]
    NoRecording,
    /// The bytes are damaged, or cut off.
    #[error("it is damaged at byte {at}")]
    Damaged {
        /// Offset of the damage.
        at: u64,
    },
    /// The file does not have exactly one episode.
    #[error("it has {episodes} episodes, not 1")]
    NotOne {
        /// Number of episodes in the file.
        episodes: u64,
    },
    /// The episode cannot be read.
    #[error(transparent)]
    Read(ReadError),
}
