//! Scans of segments: their records, walked through from any byte on, and the index that follows from them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rollhouse_core::Outcome;

use crate::code::chunk::Decoder;
use crate::code::extent::ChunkEnds;
use crate::code::frame_chunk;
use crate::code::record::{HEADER_BYTES, Header, Kind, MARK};
use crate::code::run_record::RunInfo;
use crate::disk::{DiskFile, read_all};
use crate::limits::{MAX_DAMAGE_LISTED, MAX_PAYLOAD_BYTES, MAX_RUNS_MEMORY};
use crate::stored::damage::{Damage, DamageCause};
use crate::stored::followed::FollowedBlocks;
use crate::stored::index::{LastChunk, RunEntry, SegmentIndex, tails_of};
use crate::stored::rows::{ChunkBytes, RowsWriter};
use crate::stored::run_headers::{WholeHeaders, base_of};

/// A walk over the records of a stretch of bytes.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    /// Offset of `bytes` in the segment.
    base: u64,
    at: usize,
}

/// One item of a walk over records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Found<'a> {
    /// An intact record.
    Record(u64, Header, &'a [u8]),
    /// Bytes that are no intact record.
    Bad { from: u64, to: u64, cause: DamageCause },
}

impl<'a> Records<'a> {
    pub(crate) const fn new(bytes: &'a [u8], base: u64) -> Self {
        Self { bytes, base, at: 0 }
    }

    /// Returns the place of the next record with an intact header after `at`, or the end.
    fn resync(&self, mut at: usize) -> usize {
        while let Some(step) = self.bytes[at..].iter().position(|&b| b == MARK[0]) {
            at += step;
            if self.header(at).is_some() {
                return at;
            }
            at += 1;
        }
        self.bytes.len()
    }

    fn header(&self, at: usize) -> Option<Header> {
        Header::decode(self.bytes[at..].first_chunk::<HEADER_BYTES>()?)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let from = self.at;
        let bad = |records: &mut Self, to: usize, cause| {
            records.at = to;
            Some(Found::Bad { from: records.base + from as u64, to: records.base + to as u64, cause })
        };
        let Some(header) = self.header(from) else {
            let to = self.resync(from + 1);
            return bad(self, to, DamageCause::Header);
        };
        let start = from + HEADER_BYTES;
        let payload = self.bytes[start..].get(..header.payload_len as usize);
        let Some(payload) = payload.filter(|_| header.payload_len as usize <= MAX_PAYLOAD_BYTES) else {
            // The length is covered by the header's checksum, so the rest of the record is missing.
            let to = self.resync(from + 1);
            return bad(self, to, DamageCause::Payload);
        };
        if crc32c::crc32c(payload) != header.payload_crc {
            let to = start + payload.len();
            return bad(self, to, DamageCause::Payload);
        }
        self.at = start + payload.len();
        Some(Found::Record(self.base + from as u64, header, payload))
    }
}

/// The results of a scan of a whole segment.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) index: SegmentIndex,
    /// Run headers by index in the segment.
    pub(crate) runs: BTreeMap<u32, RunInfo>,
    /// Bad stretches below the durable offset, or anywhere in a sealed segment.
    pub(crate) damage: Vec<Damage>,
    /// Offset up to which everything has reached the disk, as the last intact mark says.
    pub(crate) durable: u64,
    /// Offset of the torn tail, if there is one.
    pub(crate) torn_from: Option<u64>,
    /// Offset after the last intact record before a torn tail.
    pub(crate) intact_to: u64,
    /// Number of episodes that ended in the segment.
    pub(crate) episodes: u64,
    /// Smallest and largest number of a finished episode that ended in it, by run's index and first lane of its block.
    pub(crate) ranges: BTreeMap<(u32, u32), (u64, u64)>,
}

/// Reads and scans a whole segment.
pub(crate) fn scan(number: u64, file: &dyn DiskFile) -> io::Result<Scan> {
    let bytes = read_all(file)?;
    Ok(scan_bytes(number, &bytes))
}

/// Scans a whole segment as [`scan`] does, with the rows that the catalogue keeps.
pub(crate) fn scan_with_rows(number: u64, file: &dyn DiskFile) -> io::Result<Scan> {
    let bytes = read_all(file)?;
    Ok(scan_bytes_with_rows(number, &bytes))
}

/// Scans the bytes of a segment, with the rows that the catalogue keeps.
pub(crate) fn scan_bytes_with_rows(number: u64, bytes: &[u8]) -> Scan {
    scan_all(number, bytes, Some(RowsWriter::default()))
}

/// Scans the bytes of a segment.
pub(crate) fn scan_bytes(number: u64, bytes: &[u8]) -> Scan {
    scan_all(number, bytes, None)
}

fn scan_all(number: u64, bytes: &[u8], rows: Option<RowsWriter>) -> Scan {
    let mut bad = Vec::new();
    let mut records = Vec::new();
    let mut index = SegmentIndex::new(number, 0);
    index.bytes = bytes.len() as u64;
    let mut runs = RunsFound::default();
    let mut durable = 0;
    for found in Records::new(bytes, 0) {
        match found {
            Found::Bad { from, to, cause } => bad.push(Damage { segment: number, from, to, cause }),
            Found::Record(offset, header, payload) => match header.kind {
                Kind::Segment => index.session = header.tag,
                Kind::Mark => durable = durable.max(header.position.min(offset)),
                Kind::Seal => index.sealed = offset + HEADER_BYTES as u64 == index.bytes,
                Kind::Run if base_of(&header).is_some() => runs.coded.push((offset, header, payload)),
                Kind::Run => {
                    if let Err(cause) = runs.take_whole(offset, &header, payload) {
                        bad.push(damage_of(number, offset, &header, cause));
                    }
                }
                Kind::Frames if frame_chunk::read(payload).is_err() => {
                    bad.push(damage_of(number, offset, &header, DamageCause::Content));
                }
                Kind::Frames => {}
                Kind::Chunk | Kind::RunEnd => records.push((offset, header, payload)),
            },
        }
    }
    let runs = runs.finish(&mut index, |offset, header, cause| {
        bad.push(damage_of(number, offset, header, cause));
    });
    let mut scan = Scan {
        index,
        runs,
        damage: Vec::new(),
        durable,
        torn_from: None,
        intact_to: 0,
        episodes: 0,
        ranges: BTreeMap::new(),
    };
    scan.take_chunks(&records, &mut bad, rows);
    bad.sort_unstable();
    scan.judge(bad, bytes.len() as u64);
    scan
}

/// The runs of a segment that is scanned.
#[derive(Debug, Default)]
struct RunsFound<'a> {
    runs: BTreeMap<u32, FoundRun>,
    whole: WholeHeaders<'a>,
    /// Records of headers that are coded, each with its offset.
    coded: Vec<(u64, Header, &'a [u8])>,
    /// Bytes of memory that the runs take.
    memory: usize,
}

#[derive(Debug)]
struct FoundRun {
    offset: u64,
    header: Arc<[u8]>,
    info: RunInfo,
}

impl<'a> RunsFound<'a> {
    fn take_whole(&mut self, offset: u64, header: &Header, payload: &'a [u8]) -> Result<(), DamageCause> {
        self.take(offset, header.run, payload, 0)?;
        self.whole.add(header.run, payload);
        Ok(())
    }

    /// Takes a whole header, which takes `beside` bytes of memory that the segment has not.
    fn take(&mut self, offset: u64, run: u32, header: &[u8], beside: usize) -> Result<(), DamageCause> {
        let info = RunInfo::decode(header).map_err(|_| DamageCause::Content)?;
        if self.runs.contains_key(&run) {
            // One more copy of what is known.
            return Ok(());
        }
        let memory = self.memory + info.memory() + beside;
        if memory > MAX_RUNS_MEMORY {
            self.whole.close();
            return Err(DamageCause::Content);
        }
        self.memory = memory;
        self.runs.insert(run, FoundRun { offset, header: header.into(), info });
        Ok(())
    }

    /// Reads the coded headers, puts the runs into the index, in the order of their places, and returns them.
    fn finish(
        mut self,
        index: &mut SegmentIndex,
        mut bad: impl FnMut(u64, &Header, DamageCause),
    ) -> BTreeMap<u32, RunInfo> {
        let mut copies: BTreeMap<u32, (u32, &[u8])> = BTreeMap::new();
        for (offset, header, payload) in std::mem::take(&mut self.coded) {
            if copies.get(&header.run) == Some(&(header.prev, payload)) {
                continue;
            }
            let whole = self.whole.whole(&header, payload);
            let taken = whole.and_then(|whole| self.take(offset, header.run, &whole, whole.len()));
            match taken {
                Ok(()) => drop(copies.insert(header.run, (header.prev, payload))),
                Err(cause) => bad(offset, &header, cause),
            }
        }
        let mut found: Vec<_> = self.runs.into_iter().collect();
        found.sort_by_key(|(_, run)| run.offset);
        let mut runs = BTreeMap::new();
        for (run, FoundRun { offset, header, info }) in found {
            index.runs.push(RunEntry { index: run, offset, ended: false });
            index.headers.push(header);
            runs.insert(run, info);
        }
        runs
    }
}

impl Scan {
    /// Decodes the chunks and gathers extents and tails.
    fn take_chunks(
        &mut self,
        records: &[(u64, Header, &[u8])],
        bad: &mut Vec<Damage>,
        mut rows: Option<RowsWriter>,
    ) {
        let mut decoders: BTreeMap<u32, (u32, Decoder)> = BTreeMap::new();
        for (&index, run) in &self.runs {
            decoders.insert(index, (run.tag(), Decoder::of_run(run)));
        }
        let mut tails = BTreeMap::new();
        let mut heads = FollowedBlocks::default();
        let mut ends = ChunkEnds::new();
        for (offset, header, payload) in records {
            let decoder = decoders.get_mut(&header.run).filter(|(tag, _)| *tag == header.tag);
            if header.kind == Kind::RunEnd {
                if let Some(run) = self.index.runs.iter_mut().find(|run| run.index == header.run) {
                    run.ended = true;
                }
                continue;
            }
            ends.clear();
            let decoded = decoder.and_then(|(_, decoder)| {
                let columns = decoder.decode(header, payload).ok()?;
                (ends.under_way, ends.stepped) = (decoder.under_way(&columns), decoder.steps());
                ends.have_options = decoder.has_options();
                ends.agents.extend_from_slice(decoder.agent_returns());
                Some(decoder)
            });
            let Some(decoder) = decoded else {
                bad.push(damage_of(self.index.number, *offset, header, DamageCause::Content));
                continue;
            };
            for end in decoder.end_facts(header.first_lane) {
                ends.add(end);
                if Outcome::from_code(end.outcome()).is_some_and(Outcome::is_finished) {
                    let range = self.ranges.entry((header.run, header.first_lane)).or_insert((u64::MAX, 0));
                    *range = (range.0.min(end.number), range.1.max(end.number));
                }
            }
            self.episodes += ends.episodes();
            self.index.add_chunk(*offset, offset + header.record_len(), header.run, header.ms, &ends);
            if let Some(rows) = &mut rows {
                let bytes = header.record_len() as u32;
                let chunk = ChunkBytes { offset: *offset, bytes, steps: ends.stepped as u32 };
                rows.chunk(self.index.extents.len(), chunk, header.run, header.first_lane, &ends);
            }
            let block = (header.run, header.first_lane);
            let rows = heads.chunk(block, *offset, header.position, header.rows, ends.under_way);
            tails.insert(
                (header.run, header.first_lane),
                LastChunk { offset: *offset as u32, lanes: header.lanes, rows },
            );
        }
        self.index.tails = tails_of(&tails);
        self.index.entering = heads.entering;
        if let Some(rows) = rows {
            self.index.rows = rows.finish(&mut self.index.extents);
        }
    }

    /// Decides which bad stretch is a torn tail and which is corruption.
    fn judge(&mut self, bad: Vec<Damage>, len: u64) {
        self.intact_to = len;
        for damage in bad {
            if !self.index.sealed && damage.from >= self.durable && !damage.cause.is_of_an_intact_record() {
                self.torn_from.get_or_insert(damage.from);
                self.intact_to = self.intact_to.min(damage.from);
            } else if self.damage.len() < MAX_DAMAGE_LISTED {
                self.damage.push(damage);
            }
        }
    }
}

/// Returns the damage of an intact record.
const fn damage_of(segment: u64, offset: u64, header: &Header, cause: DamageCause) -> Damage {
    Damage { segment, from: offset, to: offset + header.record_len(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sealed segment of at least 64 KiB, written through the segment writer.
    fn segment() -> Vec<u8> {
        use crate::disk::Disk;
        use crate::stored::names::segment_name;
        use crate::testing::FaultyDisk;
        use crate::write::segment_writer::{ChunkPlace, RunPlace, SegmentWriter, make_file};

        let disk = FaultyDisk::new();
        let dir = std::path::Path::new("/segments");
        disk.create_dir(dir).unwrap();
        let mut writer = SegmentWriter::new(dir, 1, 7, 0, true);
        writer.open(make_file(&disk, writer.path()).unwrap());
        let run = writer.add_run(&RunPlace {
            tag: 3,
            env: "env".into(),
            payload: vec![0xC0; 900].into(),
            memory: 900,
            at: None,
            owner: None,
        });
        let mut word = 1;
        for position in 0..9 {
            let payload: Vec<u8> = (0..8000)
                .map(|_| {
                    word = rollhouse_core::split_mix64(word);
                    word as u8
                })
                .collect();
            let place = ChunkPlace { run, first_lane: 0, lanes: 64, rows: 100, position, ms: 5 };
            writer.add_chunk(place, &payload, &ChunkEnds::new());
        }
        writer.end_run(run);
        writer.seal().unwrap();
        disk.read(&dir.join(segment_name(1))).unwrap()
    }

    #[test]
    fn every_flipped_bit_of_a_64_kib_segment_is_noticed() {
        let bytes = segment();
        assert!(bytes.len() >= 64 * 1024, "{} bytes", bytes.len());
        let mut covered = 0;
        let records: Vec<_> = Records::new(&bytes, 0).collect();
        for found in records {
            let Found::Record(from, header, _) = found else { panic!("{found:?}") };
            // What stands before a record does not depend on it, so the walk may begin with it; one header of
            // the next is needed to resynchronise.
            let to = ((from + header.record_len()) as usize + HEADER_BYTES).min(bytes.len());
            let mut stretch = bytes[from as usize..to].to_vec();
            let record = header.record_len() as usize;
            for bit in 0..record * 8 {
                stretch[bit / 8] ^= 1 << (bit % 8);
                let first = Records::new(&stretch, from).next();
                let noticed = matches!(first, Some(Found::Bad { from: at, .. }) if at == from);
                assert!(noticed, "record at {from}, bit {bit}: {first:?}");
                stretch[bit / 8] ^= 1 << (bit % 8);
            }
            covered += record;
        }
        assert_eq!(covered, bytes.len(), "every byte belongs to a record");
    }

    #[test]
    fn arbitrary_bytes_are_scanned_without_a_panic_and_never_as_intact() {
        let mut word = 5;
        for len in (0..3000).step_by(7) {
            let mut bytes: Vec<u8> = (0..len)
                .map(|_| {
                    word = rollhouse_core::split_mix64(word);
                    word as u8
                })
                .collect();
            if len > MARK.len() + 100 {
                bytes[50..50 + MARK.len()].copy_from_slice(&MARK);
            }
            let scan = scan_bytes(1, &bytes);
            assert_eq!(scan.torn_from, (len > 0).then_some(0));
            assert!(scan.index.extents.is_empty());
        }
    }
}
