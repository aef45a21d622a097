//! The part of a sealed segment that belongs to some of its runs, as a segment of its own.
//!
//! A node's recorder writes all of its sessions into the same segments, so that a run is carried elsewhere, and an owner
//! reads what is his own, as a part of each segment. Records are taken as they are, payload and checksum; only numbers that
//! name a place in the segment are changed, and headers of runs are coded against those of the part.

use std::collections::BTreeMap;
use std::sync::Arc;

use rollhouse_core::RunId;

use crate::code::coded_run::{Bases, CodedRun};
use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::code::run_record::RunInfo;
use crate::stored::aside::{AsideEpisode, SetAside};
use crate::stored::run_headers::{WholeHeaders, base_of, prev_of};
use crate::stored::scan::{Found, Records};

/// Cuts the records of `run` out of the bytes of a sealed segment, as [`part_of_runs`] does.
pub fn part_of_run(bytes: &[u8], run: RunId, aside: &SetAside) -> Option<(Vec<u8>, SetAside)> {
    part_of_runs(bytes, |of| of == run, aside)
}

/// Cuts the records of the runs that pass out of the bytes of a sealed segment, and those runs' episodes out of the set of
/// those that are set aside. The part has the segment's number and a seal of its own; a segment that has nothing else comes
/// back as it is. Takes as much memory as the part has bytes.
///
/// `None` if the segment is damaged anywhere: nobody knows to which run the damaged stretch belongs.
pub fn part_of_runs(
    bytes: &[u8],
    passes: impl Fn(RunId) -> bool,
    aside: &SetAside,
) -> Option<(Vec<u8>, SetAside)> {
    let mut headers = WholeHeaders::default();
    let mut sealed = false;
    for found in Records::new(bytes, 0) {
        let Found::Record(_, header, payload) = found else { return None };
        sealed = header.kind == Kind::Seal;
        if header.kind == Kind::Run && base_of(&header).is_none() {
            headers.add(header.run, payload);
        }
    }
    if !sealed {
        return None;
    }
    let mut part = Part {
        bytes: Vec::new(),
        headers,
        bases: Bases::default(),
        runs: BTreeMap::new(),
        offsets: BTreeMap::new(),
    };
    let mut left_out = false;
    for found in Records::new(bytes, 0) {
        if let Found::Record(offset, header, payload) = found {
            left_out |= !part.take(&passes, offset, header, payload)?;
        }
    }
    if !left_out {
        return Some((bytes.to_vec(), aside.clone()));
    }
    let mut kept = SetAside::default();
    for &AsideEpisode { offset, key } in aside.episodes() {
        if passes(RunId::from_u128(key.run)) {
            kept.insert(AsideEpisode { offset: u64::from(*part.offsets.get(&offset)?), key });
        }
    }
    part.seal();
    Some((part.bytes, kept))
}

/// A part that is being gathered.
struct Part<'a> {
    bytes: Vec<u8>,
    headers: WholeHeaders<'a>,
    bases: Bases,
    /// The header of each run of the segment that passes, by its index there; `None` for one that does not.
    runs: BTreeMap<u32, Option<RunHere>>,
    /// Offset of each chunk in the segment, and in the part.
    offsets: BTreeMap<u64, u32>,
}

/// The header of a run of the part.
struct RunHere {
    whole: Arc<[u8]>,
    coded: Option<CodedRun>,
}

impl Part<'_> {
    /// Takes a record if it belongs to a run that passes or to no run; returns false if it belongs to another run. Marks
    /// and the seal name places: they are written anew. `None` if the header of a run cannot be read.
    fn take(
        &mut self,
        passes: impl Fn(RunId) -> bool,
        offset: u64,
        header: Header,
        payload: &[u8],
    ) -> Option<bool> {
        match header.kind {
            Kind::Mark | Kind::Seal => return Some(true),
            Kind::Segment => {
                self.put(header, payload);
                return Some(true);
            }
            Kind::Run => return self.take_run(passes, header, payload),
            Kind::Chunk | Kind::RunEnd | Kind::Frames => {}
        }
        if self.runs.get(&header.run).is_none_or(Option::is_none) {
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

    /// Takes the record of a run's header.
    fn take_run(&mut self, passes: impl Fn(RunId) -> bool, header: Header, payload: &[u8]) -> Option<bool> {
        if !self.runs.contains_key(&header.run) {
            let whole: Arc<[u8]> = match base_of(&header) {
                Some(_) => self.headers.whole(&header, payload).ok()?.into(),
                None => payload.into(),
            };
            let info = RunInfo::decode(&whole).ok()?;
            let here = passes(info.run()).then(|| {
                let coded = self.bases.code(header.run, &info.spec.id.as_str().into(), &whole);
                RunHere { whole, coded }
            });
            self.runs.insert(header.run, here);
        }
        let Some(RunHere { whole, coded }) = self.runs.get(&header.run)?.as_ref() else { return Some(false) };
        let prev = prev_of(coded.as_ref().map(|coded| coded.base));
        let payload = coded.as_ref().map_or(whole, |coded| &coded.bytes).clone();
        self.put(Header { prev, ..header }, &payload);
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
