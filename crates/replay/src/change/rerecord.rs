//! Recording episodes once more, into a segment with nothing else in it.
//!
//! Each goes through the code that records episodes, as into a file of its own; the records are then put one after
//! another. Episodes of a run and lane follow each other as one recording of the lane.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::split_mix64;

use crate::change::one_segment::OneSegment;
use crate::change::portable::{PortableError, write_placed};
use crate::code::episode::{Episode, EpisodeInfo};
use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::limits::MAX_SEGMENT_BYTES;
use crate::read::replays::Replays;
use crate::stored::scan::{Found, Records};
use crate::stored::summary::EpisodeKey;

/// A segment in memory into which episodes are recorded again.
pub(crate) struct Rerecording {
    number: u64,
    bytes: Vec<u8>,
    /// Headers of runs, in the order of their indexes, each with the low 32 bits of the run's id.
    runs: Vec<(Vec<u8>, u32)>,
    /// Last chunk of each lane, by the run's index and the lane.
    lanes: BTreeMap<(u32, u32), LaneEnd>,
}

/// The state of the recording of a lane.
#[derive(Clone, Copy, Default)]
struct LaneEnd {
    /// Offset of the lane's last chunk.
    offset: u32,
    rows: u64,
}

impl Rerecording {
    /// Makes an empty segment of that number.
    pub(crate) fn new(number: u64, now_ms: u64) -> Self {
        let mut segment = Self { number, bytes: Vec::new(), runs: Vec::new(), lanes: BTreeMap::new() };
        let tag = (split_mix64(number ^ split_mix64(now_ms)) as u32) | 1;
        segment.put(Header { position: number, ms: now_ms, tag, ..Header::new(Kind::Segment) }, &[]);
        segment
    }

    /// Returns the bytes of the segment so far.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Adds an episode.
    pub(crate) fn add(&mut self, episode: &Episode) -> Result<(), PortableError> {
        let mut alone = Vec::new();
        write_placed(episode, self.placement_of(&episode.info), &mut alone, |_| true)?;
        if self.len() + alone.len() as u64 > MAX_SEGMENT_BYTES {
            return Err(PortableError::TooLarge);
        }
        let mut run = 0;
        // Rows that the lane had before the episode.
        let mut before = None;
        for found in Records::new(&alone, 0) {
            let Found::Record(_, header, payload) = found else { return Err(PortableError::Steps) };
            match header.kind {
                Kind::Run => run = self.run(payload, header.tag),
                Kind::Chunk => {
                    let lane = self.lanes.get(&(run, header.first_lane)).copied().unwrap_or_default();
                    let before = *before.get_or_insert(lane.rows);
                    let position = before + header.position;
                    let end =
                        LaneEnd { offset: self.bytes.len() as u32, rows: position + u64::from(header.rows) };
                    self.put(Header { run, position, prev: lane.offset, ..header }, payload);
                    self.lanes.insert((run, header.first_lane), end);
                }
                Kind::Frames => {
                    // Of the chunk that was put before it.
                    let chunk = self.lanes.get(&(run, header.first_lane)).copied().unwrap_or_default();
                    let position = before.unwrap_or(0) + header.position;
                    self.put(Header { run, position, prev: chunk.offset, ..header }, payload);
                }
                // That one episode ends says nothing of the run's others.
                Kind::RunEnd | Kind::Segment | Kind::Mark | Kind::Seal => {}
            }
        }
        Ok(())
    }

    /// Seals the segment and returns it. Its episodes have been read back and are those that were added.
    pub(crate) fn finish(mut self, originals: &[Episode]) -> Result<Vec<u8>, PortableError> {
        for (index, (payload, tag)) in std::mem::take(&mut self.runs).into_iter().enumerate() {
            self.put(Header { run: index as u32, tag, ..Header::new(Kind::Run) }, &payload);
        }
        let durable = self.len();
        self.put(Header { position: durable, ..Header::new(Kind::Mark) }, &[]);
        let position = self.len();
        self.put(Header { position, ..Header::new(Kind::Seal) }, &[]);
        check(self.number, &self.bytes, originals)?;
        Ok(self.bytes)
    }

    /// Returns the index of a run, which is added if it is new.
    fn run(&mut self, payload: &[u8], tag: u32) -> u32 {
        if let Some(known) = self.runs.iter().position(|(known, _)| known == payload) {
            return known as u32;
        }
        let index = self.runs.len() as u32;
        self.put(Header { run: index, tag, ..Header::new(Kind::Run) }, payload);
        self.runs.push((payload.to_vec(), tag));
        index
    }

    /// Returns a placement that tells this recording from the one that the episode had, and from those of other
    /// segments.
    fn placement_of(&self, info: &EpisodeInfo) -> u64 {
        split_mix64(split_mix64(info.run.placement ^ SALT) ^ self.number) | 1
    }

    fn put(&mut self, header: Header, payload: &[u8]) {
        let header =
            Header { payload_len: payload.len() as u32, payload_crc: crc32c::crc32c(payload), ..header };
        self.bytes.reserve(HEADER_BYTES + payload.len());
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(payload);
    }
}

/// Reads a segment back and compares all its episodes with what they were.
fn check(number: u64, bytes: &[u8], originals: &[Episode]) -> Result<(), PortableError> {
    let disk = OneSegment::new(number, bytes.into());
    let replays = Replays::open_scanning(Arc::new(disk), Path::new("")).map_err(PortableError::Read)?;
    if let Some(damage) = replays.damage().next() {
        return Err(PortableError::Damaged { at: damage.from });
    }
    let mut listed = BTreeMap::new();
    let mut count = 0;
    let visit = |info: EpisodeInfo| {
        count += 1;
        listed.insert(EpisodeKey::of(&info), info);
    };
    replays.for_each(visit).map_err(PortableError::Read)?;
    if count != originals.len() {
        return Err(PortableError::NotOne { episodes: count as u64 });
    }
    let found = originals.iter().map(|original| listed.get(&EpisodeKey::of(&original.info)));
    let found: Vec<&EpisodeInfo> = found.collect::<Option<_>>().ok_or(PortableError::Steps)?;
    for (read, original) in replays.load_many(found).zip(originals) {
        let read = read.map_err(PortableError::Read)?;
        if !read.has_contents_of(original) || !read.has_notes_of(original) {
            return Err(PortableError::Steps);
        }
    }
    Ok(())
}

/// Salt that tells placements of recordings that were made again from those that recorders drew.
const SALT: u64 = 0x7052_554e_4564_0001;
