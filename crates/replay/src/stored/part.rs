//! The part of a sealed segment that belongs to one run, as a segment of its own.
//!
//! A node's recorder writes all of its sessions into the same segments, so that a run is carried elsewhere as a part of
//! each segment. Records are taken as they are, payload and checksum; only numbers that name a place in the segment are
//! changed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::RunId;

use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::code::run_record::RunInfo;
use crate::stored::aside::{AsideEpisode, SetAside};
use crate::stored::run_headers::{WholeHeaders, base_of, prev_of};
use crate::stored::scan::{Found, Records};

/// Cuts the records of `run` out of the bytes of a sealed segment, and that run's episodes out of the set of those that
/// are set aside. The part has the segment's number and a seal of its own; a segment that has nothing else comes back
/// as it is. Takes as much memory as the part has bytes.
///
/// `None` if the segment is damaged anywhere: nobody knows to which run the damaged stretch belongs.
pub fn part_of_run(bytes: &[u8], run: RunId, aside: &SetAside) -> Option<(Vec<u8>, SetAside)> {
    let mut headers = WholeHeaders::default();
    for found in Records::new(bytes, 0) {
        let Found::Record(_, header, payload) = found else { return None };
        if header.kind == Kind::Run && base_of(&header).is_none() {
            headers.add(header.run, payload);
        }
    }
    let mut part = Part { bytes: Vec::new(), headers, runs: BTreeSet::new(), offsets: BTreeMap::new() };
    let (mut left_out, mut sealed) = (false, false);
    for found in Records::new(bytes, 0) {
        let Found::Record(offset, header, payload) = found else { return None };
        sealed = header.kind == Kind::Seal;
        left_out |= !part.take(run, offset, header, payload)?;
    }
    if !sealed {
        return None;
    }
    let of_run = aside.episodes().filter(|episode| episode.key.run == run.as_u128());
    if !left_out {
        return Some((bytes.to_vec(), aside.clone()));
    }
    let mut kept = SetAside::default();
    for &AsideEpisode { offset, key } in of_run {
        kept.insert(AsideEpisode { offset: u64::from(*part.offsets.get(&offset)?), key });
    }
    part.seal();
    Some((part.bytes, kept))
}

/// A part that is being gathered.
struct Part<'a> {
    bytes: Vec<u8>,
    headers: WholeHeaders<'a>,
    /// The run's indexes in the segment: one for each placement.
    runs: BTreeSet<u32>,
    /// Offset of each chunk in the segment, and in the part.
    offsets: BTreeMap<u64, u32>,
}

impl Part<'_> {
    /// Takes a record if it belongs to the run or to no run; returns false if it belongs to another run. Marks and the
    /// seal name places: they are written anew. The header of a run is written whole. `None` if it cannot be read.
    fn take(&mut self, run: RunId, offset: u64, header: Header, payload: &[u8]) -> Option<bool> {
        match header.kind {
            Kind::Mark | Kind::Seal => return Some(true),
            Kind::Segment => {}
            Kind::Run if header.tag != run.as_u128() as u32 => {}
            Kind::Run => {
                let whole = match base_of(&header) {
                    Some(_) => Cow::Owned(self.headers.whole(&header, payload).ok()?),
                    None => Cow::Borrowed(payload),
                };
                if RunInfo::decode(&whole).is_ok_and(|info| info.run() == run) {
                    self.runs.insert(header.run);
                    self.put(Header { prev: prev_of(None), ..header }, &whole);
                    return Some(true);
                }
            }
            Kind::Chunk | Kind::RunEnd | Kind::Frames => {}
        }
        if header.kind != Kind::Segment && !self.runs.contains(&header.run) {
            return Some(false);
        }
        let mut header = header;
        if matches!(header.kind, Kind::Chunk | Kind::Frames) {
            // A block's chunks are all there or none is.
            header.prev = self.offsets.get(&u64::from(header.prev)).copied().unwrap_or_default();
        }
        if header.kind == Kind::Chunk {
            self.offsets.insert(offset, self.bytes.len() as u32);
        }
        self.put(header, payload);
        Some(true)
    }

    fn seal(&mut self) {
        let durable = self.bytes.len() as u64;
        self.put(Header { position: durable, ..Header::new(Kind::Mark) }, &[]);
        let position = self.bytes.len() as u64;
        self.put(Header { position, ..Header::new(Kind::Seal) }, &[]);
    }

    fn put(&mut self, header: Header, payload: &[u8]) {
        let header =
            Header { payload_len: payload.len() as u32, payload_crc: crc32c::crc32c(payload), ..header };
        self.bytes.reserve(HEADER_BYTES + payload.len());
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(payload);
    }
}
