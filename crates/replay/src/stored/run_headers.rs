//! The headers of a segment's runs, as its records have them: whole, or coded against a whole one of the same segment.

use std::collections::BTreeMap;

use crate::code::coded_run::{whole, whole_len};
use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::disk::{DiskFile, read_range};
use crate::limits::{MAX_PAYLOAD_BYTES, SEGMENT_RUNS_MEMORY};
use crate::stored::damage::DamageCause;
use crate::stored::index::RunEntry;

/// The whole headers of a segment, of which those are made that are coded against them.
#[derive(Debug)]
pub(crate) struct WholeHeaders<'a> {
    by_run: BTreeMap<u32, &'a [u8]>,
    /// Bytes of headers that may still be made: a few bytes may stand for a long header. Writers have two copies of each.
    left: usize,
}

impl Default for WholeHeaders<'_> {
    fn default() -> Self {
        Self { by_run: BTreeMap::new(), left: 2 * SEGMENT_RUNS_MEMORY }
    }
}

impl<'a> WholeHeaders<'a> {
    /// Takes the whole header of the run with that index in the segment.
    pub(crate) fn add(&mut self, run: u32, header: &'a [u8]) {
        self.by_run.entry(run).or_insert(header);
    }

    /// Makes no header any more.
    pub(crate) const fn close(&mut self) {
        self.left = 0;
    }

    /// Returns the whole of the header in a record that has it coded.
    ///
    /// # Errors
    /// If its base is not there or is another one, it cannot be read, or all headers take too much memory.
    pub(crate) fn whole(&mut self, record: &Header, payload: &[u8]) -> Result<Vec<u8>, DamageCause> {
        let base = base_of(record).and_then(|base| self.by_run.get(&base)).ok_or(DamageCause::Base)?;
        let bytes = whole_len(payload).map_err(|_| DamageCause::Content)?;
        self.left = self.left.checked_sub(bytes.max(1)).ok_or(DamageCause::Content)?;
        whole(base, payload).map_err(|_| DamageCause::Base)
    }
}

/// Returns the index of the run against whose header that of the record is coded; `None` if it is whole.
pub(crate) const fn base_of(record: &Header) -> Option<u32> {
    record.prev.checked_sub(1)
}

/// Returns what the record of a run has in `prev` whose header is coded against that of `base`, or is whole.
pub(crate) const fn prev_of(base: Option<u32>) -> u32 {
    match base {
        Some(base) => base + 1,
        None => 0,
    }
}

/// Reads the header of a run of a segment; `None` if it is not intact, or what it is coded against is not.
pub(crate) fn read_header(file: &dyn DiskFile, runs: &[RunEntry], run: &RunEntry) -> Option<Vec<u8>> {
    let record_of =
        |entry: &RunEntry| read_record(file, entry.offset).filter(|(record, _)| record.kind == Kind::Run);
    let (record, payload) = record_of(run)?;
    let Some(base) = base_of(&record) else { return Some(payload) };
    let base = record_of(runs.iter().find(|entry| entry.index == base)?);
    let (_, base) = base.filter(|(record, _)| base_of(record).is_none())?;
    whole(&base, &payload).ok()
}

/// Reads the record at `offset`; `None` if it is not intact.
pub(crate) fn read_record(file: &dyn DiskFile, offset: u64) -> Option<(Header, Vec<u8>)> {
    let head = read_range(file, offset, offset + HEADER_BYTES as u64).ok()?;
    let header = Header::decode(head.first_chunk()?)?;
    let start = offset + HEADER_BYTES as u64;
    let end = start + u64::from(header.payload_len);
    if end > file.len().ok()? || header.payload_len as usize > MAX_PAYLOAD_BYTES {
        return None;
    }
    let payload = read_range(file, start, end).ok()?;
    (crc32c::crc32c(&payload) == header.payload_crc).then_some((header, payload))
}
