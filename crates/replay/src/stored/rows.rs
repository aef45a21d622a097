//! A few bytes of each episode of a segment, side by side: all that a listing says of it.
//!
//! They lie in a file beside the segments, chunk by chunk as the episodes ended, so that a query goes through millions
//! of them and decodes no chunk. It is a part of the catalogue: a file that is missing or does not have an extent's
//! checksum costs reading that extent.
//!
//! ```text
//! chunk:    offset u32, run u32, first lane u32, bytes u32, lane-steps u32, episodes u32, lanes (a byte each),
//!           numbers, lengths, times (columns), returns, outcomes, starts, results
//! column:   least u64, most u64, width u8 (0, 1, 2, 4 or 8), differences from the least
//! returns:  u8: 0 each is its length, 1 minus its length, 2 an f64 each
//! outcomes: u8 code of all, or 255 and a byte each
//! starts:   u8: 0 they follow from the run, or 1 and seeds, words, halves (columns; a half that is buffered plus 1, else 0)
//! results:  u8: 0 no result or score, or 1, a byte each (bits 0-1 result, bit 2 a score) and an f64 each
//! ```
//!
//! Behind the rows of all extents come, by extent, the returns of agents of its chunks with episodes of several:
//!
//! ```text
//! agents:   offset u32, run u32, first lane u32, count u32, an f64 of each agent in each episode
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{EpisodeName, GameResult, Interruption, Outcome, Start};

use crate::code::codec::{Cursor, Malformed};
use crate::code::episode::{EpisodeInfo, Place, agents_at, known_return, share_of, start_of};
use crate::code::events::CODE_RESULT_SHIFT;
use crate::code::extent::{ChunkEnds, EndFacts, Extent, RowsPlace};
use crate::code::run_record::RunInfo;
use crate::disk::{Disk, read_range};
use crate::limits::MAX_ROWS_BYTES;

/// The place of a chunk in its segment, with the numbers that give an episode's share of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkBytes {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// Lane-steps of the chunk.
    pub(crate) steps: u32,
}

/// A writer that packs the rows of a segment.
#[derive(Debug, Default)]
pub(crate) struct RowsWriter {
    bytes: Vec<u8>,
    /// Returns of agents, which stand behind all rows: those that know none read the rows all the same.
    agents: Vec<u8>,
    /// Offsets at which the rows of each extent and its agents' returns begin.
    extents: Vec<(usize, usize)>,
    /// Extents, by their place, in which an episode has other options than its run, which rows do not tell.
    without: BTreeSet<usize>,
    /// Whether there are more than [`MAX_ROWS_BYTES`], so that no rows are kept.
    too_many: bool,
}

impl RowsWriter {
    /// Adds a chunk of the segment, in which `ends` happened; `extents` is the number of extents that have begun so
    /// far.
    pub(crate) fn chunk(
        &mut self,
        extents: usize,
        place: ChunkBytes,
        run: u32,
        first_lane: u32,
        ends: &ChunkEnds,
    ) {
        self.extents.resize(extents, (self.bytes.len(), self.agents.len()));
        if ends.have_options {
            self.without.insert(extents.saturating_sub(1));
        }
        let (ends, agents) = (&ends.each[..], &ends.agents[..]);
        if ends.is_empty() || self.too_many {
            return;
        }
        if self.bytes.len() + self.agents.len() > MAX_ROWS_BYTES {
            (self.too_many, self.bytes, self.agents) = (true, Vec::new(), Vec::new());
            return;
        }
        if !agents.is_empty() {
            for word in [offset_of(place), run, first_lane, agents.len() as u32] {
                self.agents.extend_from_slice(&word.to_le_bytes());
            }
            self.agents.extend(agents.iter().flat_map(|total| total.to_le_bytes()));
        }
        let out = &mut self.bytes;
        let ChunkBytes { bytes, steps, .. } = place;
        for word in [offset_of(place), run, first_lane, bytes, steps, ends.len() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend(ends.iter().map(|end| (end.lane - first_lane) as u8));
        put_column(out, ends, |end| end.number);
        put_column(out, ends, |end| end.length);
        put_column(out, ends, |end| end.started_ms);
        put_returns(out, ends);
        let first = ends.first().map_or(0, EndFacts::outcome);
        if ends.iter().all(|end| end.outcome() == first) {
            out.push(first);
        } else {
            out.push(OUTCOME_EACH);
            out.extend(ends.iter().map(EndFacts::outcome));
        }
        if ends.iter().all(|end| end.start == Start::default()) {
            out.push(START_FOLLOWS);
        } else {
            out.push(START_EACH);
            put_column(out, ends, |end| end.start.seed);
            put_column(out, ends, |end| end.start.words);
            put_column(out, ends, |end| end.start.half.map_or(0, |half| u64::from(half) + 1));
        }
        if ends.iter().all(|end| end.result_code() == 0 && end.score.is_none()) {
            out.push(RESULT_NONE);
        } else {
            out.push(RESULT_EACH);
            out.extend(ends.iter().map(|end| end.result_code() | u8::from(end.score.is_some()) << 2));
            out.extend(ends.iter().flat_map(|end| end.score.unwrap_or(0.0).to_le_bytes()));
        }
    }

    /// Notes the place of their rows in the segment's extents; returns the bytes of the rows' file.
    pub(crate) fn finish(mut self, extents: &mut [Extent]) -> Vec<u8> {
        self.extents.resize(extents.len() + 1, (self.bytes.len(), self.agents.len()));
        let rows = self.bytes.len();
        self.bytes.append(&mut self.agents);
        let place = |from: usize, to: usize| {
            let bytes = &self.bytes[from..to];
            RowsPlace { at: from as u64, bytes: bytes.len() as u32, crc: crc32c::crc32c(bytes) }
        };
        if !self.too_many {
            let places = extents.iter_mut().zip(self.extents.windows(2)).enumerate();
            for (_, (extent, ends)) in places.filter(|(at, _)| !self.without.contains(at)) {
                let [from, to] = [ends[0], ends[1]];
                extent.rows = Some(place(from.0, to.0));
                extent.agents = (to.1 > from.1).then(|| place(rows + from.1, rows + to.1));
            }
        }
        self.bytes
    }
}

/// Returns the offset of a chunk, which stands in 32 bits: segments are shorter.
const fn offset_of(place: ChunkBytes) -> u32 {
    place.offset as u32
}

fn put_returns(out: &mut Vec<u8>, ends: &[EndFacts]) {
    let is =
        |sign: f64| ends.iter().all(|end| end.total_reward.to_bits() == (sign * end.length as f64).to_bits());
    if is(1.0) {
        out.push(RETURN_LENGTH);
    } else if is(-1.0) {
        out.push(RETURN_MINUS_LENGTH);
    } else {
        out.push(RETURN_EACH);
        out.extend(ends.iter().flat_map(|end| end.total_reward.to_le_bytes()));
    }
}

fn put_column(out: &mut Vec<u8>, ends: &[EndFacts], value: impl Fn(&EndFacts) -> u64) {
    let (mut least, mut most) = (u64::MAX, 0);
    for value in ends.iter().map(&value) {
        (least, most) = (least.min(value), most.max(value));
    }
    out.extend_from_slice(&least.to_le_bytes());
    out.extend_from_slice(&most.to_le_bytes());
    let rest = ends.iter().map(|end| value(end) - least);
    match most - least {
        0 => out.push(0),
        1..=0xFF => {
            out.push(1);
            out.extend(rest.map(|value| value as u8));
        }
        0x100..=0xFFFF => {
            out.push(2);
            out.extend(rest.flat_map(|value| (value as u16).to_le_bytes()));
        }
        0x1_0000..=0xFFFF_FFFF => {
            out.push(4);
            out.extend(rest.flat_map(|value| (value as u32).to_le_bytes()));
        }
        _ => {
            out.push(8);
            out.extend(rest.flat_map(u64::to_le_bytes));
        }
    }
}

/// The rows of one chunk.
#[derive(Debug)]
pub(crate) struct RowChunk<'a> {
    place: ChunkBytes,
    /// Index of the chunk's run in the segment.
    pub(crate) run: u32,
    pub(crate) first_lane: u32,
    lanes: &'a [u8],
    pub(crate) numbers: Column<'a>,
    pub(crate) lengths: Column<'a>,
    pub(crate) started: Column<'a>,
    returns: Returns<'a>,
    outcomes: Result<u8, &'a [u8]>,
    /// Seeds, words and halves; `None` if they follow from the run.
    starts: Option<[Column<'a>; 3]>,
    /// Results and scores; `None` if there are none.
    results: Option<(&'a [u8], &'a [u8])>,
    /// Returns of the agents in each episode; empty of an env of one.
    agents: Vec<f64>,
}

/// The packed rows of an extent.
#[derive(Debug)]
pub(crate) struct PackedRows {
    rows: Vec<u8>,
    agents: Vec<u8>,
}

/// Whole numbers, packed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<'a> {
    pub(crate) least: u64,
    pub(crate) most: u64,
    width: u8,
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
enum Returns<'a> {
    Length,
    MinusLength,
    Each(&'a [u8]),
}

impl<'a> RowChunk<'a> {
    /// Reads the rows of an extent, chunk by chunk.
    pub(crate) fn all(packed: &'a PackedRows) -> Result<Vec<Self>, Malformed> {
        let mut cursor = Cursor::new(&packed.rows);
        let mut chunks: Vec<Self> = Vec::new();
        while cursor.left() > 0 {
            chunks.push(Self::next(&mut cursor)?);
        }
        let (what, mut cursor) = ("agents' returns of the catalogue", Cursor::new(&packed.agents));
        let mut rest = chunks.iter_mut();
        while cursor.left() > 0 {
            let of = (u64::from(cursor.u32(what)?), cursor.u32(what)?, cursor.u32(what)?);
            let count = cursor.u32(what)? as usize;
            let returns = cursor.take(count.saturating_mul(size_of::<f64>()), what)?;
            let chunk = rest.find(|chunk| (chunk.offset(), chunk.run, chunk.first_lane) == of);
            let chunk = chunk.filter(|chunk| count.is_multiple_of(chunk.len().max(1)));
            chunk.ok_or(Malformed(what))?.agents =
                returns.as_chunks().0.iter().map(|total| f64::from_le_bytes(*total)).collect();
        }
        Ok(chunks)
    }

    /// Returns the returns of the agents in a row's episode.
    fn agents(&self, at: usize) -> Option<Arc<[f64]>> {
        agents_at(&self.agents, at, self.len())
    }

    /// Returns the episode of a row as listings show it; `run` is the chunk's.
    pub(crate) fn info(&self, at: usize, run: &Arc<RunInfo>, segment: u64) -> EpisodeInfo {
        let (lane, number, length) = (self.lane(at), self.numbers.get(at), self.lengths.get(at));
        let (result, score) = self.result(at);
        EpisodeInfo {
            name: EpisodeName { run: run.run().short(), lane, number },
            run: run.clone(),
            start: start_of(run, lane, number, self.start(at)),
            length,
            total_reward: known_return(self.total_reward(at)),
            outcome: Outcome::from_code(self.outcome(at)).unwrap_or(UNKNOWN_OUTCOME),
            result,
            score,
            agents: self.agents(at),
            started_ms: self.started.get(at),
            bytes: share_of(self.place.bytes.into(), length, self.place.steps.into()),
            // Extents with such episodes have no rows.
            own_options: None,
            place: Place { segment, offset: self.place.offset },
        }
    }

    /// Returns the end of a row's episode, as the catalogue was told of it.
    pub(crate) fn end(&self, at: usize) -> EndFacts {
        let (result, score) = self.result(at);
        EndFacts {
            lane: self.lane(at),
            number: self.numbers.get(at),
            code: self.outcome(at) | result.code() << CODE_RESULT_SHIFT,
            length: self.lengths.get(at),
            total_reward: self.total_reward(at),
            started_ms: self.started.get(at),
            start: self.start(at),
            score,
        }
    }

    /// Returns the chunk's offset in its segment.
    pub(crate) const fn offset(&self) -> u64 {
        self.place.offset
    }

    fn start(&self, at: usize) -> Start {
        let Some([seeds, words, halves]) = &self.starts else { return Start::default() };
        let half = halves.get(at).checked_sub(1).map(|half| half as u32);
        Start { seed: seeds.get(at), words: words.get(at), half }
    }

    /// Returns whether an env gave any of its episodes a result or score.
    pub(crate) const fn has_results(&self) -> bool {
        self.results.is_some()
    }

    /// Returns the result and score of a row's episode.
    pub(crate) fn result(&self, at: usize) -> (GameResult, Option<f64>) {
        let Some((codes, scores)) = self.results else { return (GameResult::None, None) };
        let code = codes.get(at).copied().unwrap_or_default();
        let score = scores.as_chunks().0.get(at).map(|bytes| f64::from_le_bytes(*bytes));
        (GameResult::of_code(code & 3), score.filter(|_| code & 4 != 0))
    }

    fn next(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let what = "rows of the catalogue";
        let (offset, run) = (cursor.u32(what)?, cursor.u32(what)?);
        let (first_lane, bytes, steps) = (cursor.u32(what)?, cursor.u32(what)?, cursor.u32(what)?);
        let count = cursor.u32(what)? as usize;
        let lanes = cursor.take(count, what)?;
        let numbers = Column::read(cursor, count)?;
        let lengths = Column::read(cursor, count)?;
        let started = Column::read(cursor, count)?;
        let returns = match cursor.u8(what)? {
            RETURN_LENGTH => Returns::Length,
            RETURN_MINUS_LENGTH => Returns::MinusLength,
            _ => Returns::Each(cursor.take(count.saturating_mul(8), what)?),
        };
        let outcomes = match cursor.u8(what)? {
            OUTCOME_EACH => Err(cursor.take(count, what)?),
            all => Ok(all),
        };
        let starts = match cursor.u8(what)? {
            START_FOLLOWS => None,
            _ => Some([
                Column::read(cursor, count)?,
                Column::read(cursor, count)?,
                Column::read(cursor, count)?,
            ]),
        };
        let results = match cursor.u8(what)? {
            RESULT_NONE => None,
            _ => Some((cursor.take(count, what)?, cursor.take(count.saturating_mul(8), what)?)),
        };
        Ok(Self {
            place: ChunkBytes { offset: offset.into(), bytes, steps },
            run,
            first_lane,
            lanes,
            numbers,
            lengths,
            started,
            returns,
            outcomes,
            starts,
            results,
            agents: Vec::new(),
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn lane(&self, at: usize) -> u32 {
        self.first_lane.wrapping_add(u32::from(self.lanes[at]))
    }

    /// Returns the sum of rewards of a row's episode, as it was recorded.
    #[inline]
    pub(crate) fn total_reward(&self, at: usize) -> f64 {
        match self.returns {
            Returns::Length => self.lengths.get(at) as f64,
            Returns::MinusLength => -(self.lengths.get(at) as f64),
            Returns::Each(bytes) => bytes.as_chunks().0.get(at).map_or(f64::NAN, |b| f64::from_le_bytes(*b)),
        }
    }

    /// Returns the smallest and the largest return; `None` where finding them would take a search.
    pub(crate) const fn returns(&self) -> Option<(f64, f64)> {
        let (least, most) = (self.lengths.least as f64, self.lengths.most as f64);
        match self.returns {
            Returns::Length => Some((least, most)),
            Returns::MinusLength => Some((-most, -least)),
            Returns::Each(_) => None,
        }
    }

    /// Returns the outcome's code of a row's episode.
    #[inline]
    pub(crate) fn outcome(&self, at: usize) -> u8 {
        match self.outcomes {
            Ok(all) => all,
            Err(each) => each.get(at).copied().unwrap_or(OUTCOME_EACH),
        }
    }

    /// Returns the code of all outcomes, if they are the same.
    pub(crate) fn only_outcome(&self) -> Option<u8> {
        self.outcomes.ok()
    }
}

impl<'a> Column<'a> {
    fn read(cursor: &mut Cursor<'a>, count: usize) -> Result<Self, Malformed> {
        let what = "column of the catalogue";
        let (least, most, width) = (cursor.u64(what)?, cursor.u64(what)?, cursor.u8(what)?);
        if !matches!(width, 0 | 1 | 2 | 4 | 8) {
            return Err(Malformed(what));
        }
        let bytes = cursor.take(count.saturating_mul(width.into()), what)?;
        Ok(Self { least, most, width, bytes })
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> u64 {
        let rest = match self.width {
            0 => 0,
            1 => u64::from(self.bytes[at]),
            2 => self.bytes.as_chunks().0.get(at).map_or(0, |b| u64::from(u16::from_le_bytes(*b))),
            4 => self.bytes.as_chunks().0.get(at).map_or(0, |b| u64::from(u32::from_le_bytes(*b))),
            _ => self.bytes.as_chunks().0.get(at).map_or(0, |b| u64::from_le_bytes(*b)),
        };
        self.least.wrapping_add(rest)
    }
}

/// Returns the folder with the files of rows of the folder `dir`.
pub(crate) fn rows_dir(dir: &Path) -> PathBuf {
    dir.join("rows")
}

/// Returns the path of the file with the rows of segment `number` in the folder `dir`.
pub fn rows_path(dir: &Path, number: u64) -> PathBuf {
    rows_dir(dir).join(format!("{number:010}.rows"))
}

/// Reads the rows of an extent of segment `number`; `None` if they are not there as they were written.
pub(crate) fn load(disk: &dyn Disk, dir: &Path, number: u64, extent: &Extent) -> Option<PackedRows> {
    let place = extent.rows?;
    let file = disk.open(&rows_path(dir, number)).ok()?;
    let read = |RowsPlace { at, bytes, crc }| {
        if bytes as usize > 2 * MAX_ROWS_BYTES {
            return None;
        }
        let rows = read_range(&*file, at, at.checked_add(bytes.into())?).ok()?;
        (rows.len() == bytes as usize && crc32c::crc32c(&rows) == crc).then_some(rows)
    };
    Some(PackedRows { rows: read(place)?, agents: extent.agents.map_or(Some(Vec::new()), read)? })
}

const RETURN_LENGTH: u8 = 0;
const RETURN_MINUS_LENGTH: u8 = 1;
const RETURN_EACH: u8 = 2;
const OUTCOME_EACH: u8 = 255;
const START_FOLLOWS: u8 = 0;
const START_EACH: u8 = 1;
const RESULT_NONE: u8 = 0;
const RESULT_EACH: u8 = 1;
/// Outcome for a code that no writer gives.
const UNKNOWN_OUTCOME: Outcome = Outcome::Interrupted(Interruption::Crashed);
