//! Writing one segment: an append-only file of records.
//!
//! ```text
//! new -> open -> sealed            in order; a new one has no file yet and keeps what comes in memory
//!        open -> latched           after a failed operation: nothing more is written to it
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::Claimant;

use crate::code::coded_run::{Bases, CodedRun};
use crate::code::extent::ChunkEnds;
use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::disk::{Disk, DiskFile};
use crate::disk_error::DiskError;
use crate::limits::SEGMENT_RUNS_MEMORY;
use crate::stored::followed::FollowedBlocks;
use crate::stored::index::{LastChunk, RunEntry, SegmentIndex, Tails, tails_of};
use crate::stored::names::segment_name;
use crate::stored::rows::{ChunkBytes, RowsWriter};
use crate::stored::run_headers::prev_of;

/// A segment that is being written. After an error it cannot be used any more.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    path: PathBuf,
    /// The segment's file; `None` while it has none yet.
    file: Option<Arc<dyn DiskFile>>,
    /// Records not yet given to the operating system.
    pending: Vec<u8>,
    /// Bytes of the segment, pending ones included.
    len: u64,
    /// Bytes that have reached the disk.
    durable: u64,
    /// Length of the segment after the last mark.
    marked: u64,
    /// Last chunk of each block.
    tails: Tails,
    heads: FollowedBlocks,
    /// Writer of the rows; `None` if nobody lists the folder.
    rows: Option<RowsWriter>,
    run_payloads: Vec<RunPayload>,
    /// Runs against whose headers others are coded.
    bases: Bases,
    /// Bytes of memory that a reader takes for the runs.
    runs_memory: usize,
    index: SegmentIndex,
}

#[derive(Debug)]
struct RunPayload {
    tag: u32,
    /// The whole header.
    bytes: Arc<[u8]>,
    /// The header in the form that its records have, unless that is the whole one.
    coded: Option<CodedRun>,
    ended: bool,
}

/// A run's header, and its place in a segment.
#[derive(Debug)]
pub(crate) struct RunPlace {
    pub(crate) tag: u32,
    /// Id of the run's env.
    pub(crate) env: Arc<str>,
    pub(crate) payload: Arc<[u8]>,
    /// Bytes of memory that a reader of a segment takes for the run.
    pub(crate) memory: usize,
    /// The last segment that has the header, and the run's index there.
    pub(crate) at: Option<(u64, u32)>,
    /// The owner to whom its bytes count.
    pub(crate) owner: Option<Claimant>,
}

/// The fields of a chunk's header that do not follow from its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkPlace {
    /// Index of the run in this segment.
    pub(crate) run: u32,
    pub(crate) first_lane: u32,
    pub(crate) lanes: u16,
    pub(crate) rows: u32,
    /// Rows of the block before this chunk.
    pub(crate) position: u64,
    pub(crate) ms: u64,
}

/// Makes the header of the pictures of the chunk at that place and offset.
pub(crate) const fn frames_header(place: ChunkPlace, tag: u32, chunk: u32) -> Header {
    Header {
        lanes: place.lanes,
        run: place.run,
        first_lane: place.first_lane,
        rows: place.rows,
        prev: chunk,
        position: place.position,
        ms: place.ms,
        tag,
        ..Header::new(Kind::Frames)
    }
}

impl SegmentWriter {
    /// Makes the segment `number` in `dir`, without a file. `lists` says whether rows are kept, so that its episodes
    /// can be listed quickly.
    pub(crate) fn new(dir: &Path, number: u64, session: u32, ms: u64, lists: bool) -> Self {
        let mut writer = Self {
            path: dir.join(segment_name(number)),
            file: None,
            pending: Vec::with_capacity(PENDING_BYTES),
            len: 0,
            durable: 0,
            marked: 0,
            tails: BTreeMap::new(),
            heads: FollowedBlocks::default(),
            rows: lists.then(RowsWriter::default),
            run_payloads: Vec::new(),
            bases: Bases::default(),
            runs_memory: 0,
            index: SegmentIndex::new(number, session),
        };
        writer.put(Header { position: number, ms, tag: session, ..Header::new(Kind::Segment) }, &[]);
        writer
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the segment its file, which [`make_file`] made: from now on it can be flushed, committed and sealed.
    pub(crate) fn open(&mut self, file: Arc<dyn DiskFile>) {
        self.file = Some(file);
    }

    pub(crate) const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the bytes of the segment so far.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether something is not durable yet.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.durable < self.len
    }

    /// Returns whether readers of the segment take the header of one more run.
    pub(crate) const fn takes_run(&self, run: &RunPlace) -> bool {
        self.run_payloads.is_empty() || self.runs_memory + run.memory <= SEGMENT_RUNS_MEMORY
    }

    /// Adds a run and returns its index.
    pub(crate) fn add_run(&mut self, run: &RunPlace) -> u32 {
        let index = self.run_payloads.len() as u32;
        let coded = self.bases.code(index, &run.env, &run.payload);
        self.index.runs.push(RunEntry { index, offset: self.len, ended: false });
        self.run_payloads.push(RunPayload { tag: run.tag, bytes: run.payload.clone(), coded, ended: false });
        self.runs_memory += run.memory;
        self.put_run(index);
        index
    }

    /// Notes that the run ended in order; repeats its header, so that no one damaged place makes a segment's
    /// chunks unreadable.
    pub(crate) fn end_run(&mut self, index: u32) {
        self.put_run(index);
        if let Some(run) = self.run_payloads.get_mut(index as usize) {
            run.ended = true;
            let tag = run.tag;
            self.put(Header { run: index, tag, ..Header::new(Kind::RunEnd) }, &[]);
        }
        if let Some(run) = self.index.runs.get_mut(index as usize) {
            run.ended = true;
        }
    }

    /// Adds a chunk and the ends in it.
    pub(crate) fn add_chunk(&mut self, place: ChunkPlace, payload: &[u8], ends: &ChunkEnds) {
        let tag = self.run_payloads.get(place.run as usize).map_or(0, |run| run.tag);
        let block = (place.run, place.first_lane);
        let rows = self.heads.chunk(block, self.len, place.position, place.rows, ends.under_way);
        let last = LastChunk { offset: self.len as u32, lanes: place.lanes, rows };
        let before = self.tails.insert((place.run, place.first_lane), last);
        let prev = before.map_or(0, |before| before.offset);
        let header = Header {
            lanes: place.lanes,
            run: place.run,
            first_lane: place.first_lane,
            rows: place.rows,
            prev,
            position: place.position,
            ms: place.ms,
            tag,
            ..Header::new(Kind::Chunk)
        };
        let from = self.len;
        self.put(header, payload);
        let to = self.len;
        self.index.add_chunk(from, to, place.run, place.ms, ends);
        if let Some(rows) = &mut self.rows {
            let chunk = ChunkBytes { offset: from, bytes: (to - from) as u32, steps: ends.stepped as u32 };
            rows.chunk(self.index.extents.len(), chunk, place.run, place.first_lane, ends);
        }
    }

    /// Adds pictures of the chunk that was added last.
    pub(crate) fn add_frames(&mut self, place: ChunkPlace, payload: &[u8]) {
        let tag = self.run_payloads.get(place.run as usize).map_or(0, |run| run.tag);
        let chunk = self.tails.get(&(place.run, place.first_lane)).map_or(0, |last| last.offset);
        self.put(frames_header(place, tag, chunk), payload);
    }

    /// Gives pending records to the operating system.
    pub(crate) fn flush(&mut self) -> Result<(), DiskError> {
        let appended = self.file().and_then(|file| file.append_all(&self.pending));
        appended.map_err(|error| DiskError::new("append", &self.path, error))?;
        self.pending.clear();
        self.pending.shrink_to(PENDING_BYTES);
        Ok(())
    }

    /// Returns the bytes of pending records.
    pub(crate) const fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether enough is pending for one write.
    pub(crate) const fn is_flush_due(&self) -> bool {
        self.pending.len() >= WRITE_BYTES
    }

    /// Makes everything so far durable and then says so in the file: on return both are on the disk.
    pub(crate) fn commit(&mut self) -> Result<(), DiskError> {
        self.flush()?;
        self.sync()?;
        self.put_mark(self.len);
        self.flush()?;
        self.sync()?;
        self.durable = self.len;
        Ok(())
    }

    /// Returns the file and how much of it the operating system has, so that another thread can make it durable.
    pub(crate) fn to_sync(&self) -> Option<(Arc<dyn DiskFile>, u64)> {
        Some((self.file.clone()?, self.len - self.pending.len() as u64))
    }

    /// Notes that the first `len` bytes are durable, unless nothing but a mark has come since the last mark.
    pub(crate) fn synced_to(&mut self, len: u64) {
        self.durable = self.durable.max(len);
        if len > self.marked {
            self.put_mark(len);
        }
    }

    fn put_mark(&mut self, durable: u64) {
        self.put(Header { position: durable, ..Header::new(Kind::Mark) }, &[]);
        self.marked = self.len;
    }

    /// Writes the last record and makes the segment durable; returns what readers need to know of it.
    pub(crate) fn seal(mut self) -> Result<SegmentIndex, DiskError> {
        for index in 0..self.run_payloads.len() {
            if !self.run_payloads[index].ended {
                self.put_run(index as u32);
            }
        }
        self.commit()?;
        let position = self.len;
        self.put(Header { position, ..Header::new(Kind::Seal) }, &[]);
        self.flush()?;
        self.sync()?;
        let mut index = self.index;
        index.bytes = self.len;
        index.sealed = true;
        index.tails = tails_of(&self.tails);
        index.entering = self.heads.entering;
        index.headers = self.run_payloads.into_iter().map(|run| run.bytes).collect();
        if let Some(rows) = self.rows {
            index.rows = rows.finish(&mut index.extents);
        }
        Ok(index)
    }

    /// Makes durable what was appended; after a failed append, what was appended before it.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        let synced = self.file().and_then(|file| file.sync_data());
        synced.map_err(|error| DiskError::new("sync", &self.path, error))
    }

    fn file(&self) -> io::Result<&dyn DiskFile> {
        self.file.as_deref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn put_run(&mut self, index: u32) {
        if let Some(RunPayload { tag, bytes, coded, .. }) = self.run_payloads.get(index as usize) {
            let base = coded.as_ref().map(|coded| coded.base);
            let header = Header { run: index, tag: *tag, prev: prev_of(base), ..Header::new(Kind::Run) };
            let payload = coded.as_ref().map_or(bytes, |coded| &coded.bytes).clone();
            self.put(header, &payload);
        }
    }

    fn put(&mut self, header: Header, payload: &[u8]) {
        let header =
            Header { payload_len: payload.len() as u32, payload_crc: crc32c::crc32c(payload), ..header };
        self.pending.extend_from_slice(&header.encode());
        self.pending.extend_from_slice(payload);
        self.len += (HEADER_BYTES + payload.len()) as u64;
    }
}

/// Makes the file of a segment; its name is durable on return.
pub(crate) fn make_file(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFile>, DiskError> {
    let file = disk.create(path).map_err(|e| DiskError::new("create", path, e))?;
    let dir = path.parent().unwrap_or(path);
    disk.sync_dir(dir).map_err(|e| DiskError::new("sync", dir, e))?;
    Ok(file.into())
}

/// Bytes given to the operating system in one write.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes of memory that a segment keeps for pending records.
const PENDING_BYTES: usize = 2 * WRITE_BYTES;
