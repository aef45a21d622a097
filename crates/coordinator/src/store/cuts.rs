//! The parts of segments that have some of the segment's runs, for peers that may not read the others.
//!
//! A part is cut out when it is first read, and stays in memory for the reads that follow it. It is a segment of its own,
//! under the name of the whole one, and has no byte of another owner's records.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_replay::{DiskFile, RunFilter, SetAside, part_of_runs};

use crate::limits::MAX_CUT_BYTES;

/// The segment and the owners of whom a part is.
pub(crate) type CutKey = (Arc<str>, u64, u32, RunFilter);

/// A part of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) segment: Arc<[u8]>,
    /// What is set aside of it, as its file says it; empty if nothing is.
    pub(crate) aside: Arc<[u8]>,
}

/// The parts that were read last, of [`MAX_CUT_BYTES`] together; the last one stays whatever it has.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    parts: Mutex<Parts>,
    /// Locked while a segment is in memory as a whole: one at a time.
    cutting: Mutex<()>,
}

#[derive(Debug, Default)]
struct Parts {
    /// Parts by the turn of their last use.
    by_turn: BTreeMap<u64, (CutKey, Cut)>,
    bytes: usize,
    turn: u64,
}

impl Cut {
    /// Cuts the runs that pass out of a segment; `None` if it is damaged.
    pub(crate) fn of(segment: &[u8], aside: &SetAside, of: &RunFilter) -> Option<Self> {
        let (segment, aside) = part_of_runs(segment, |run| of.passes(run), aside)?;
        let aside = if aside.is_empty() { Vec::new() } else { aside.encode() };
        Some(Self { segment: segment.into(), aside: aside.into() })
    }

    fn bytes(&self) -> usize {
        self.segment.len() + self.aside.len()
    }
}

impl Cuts {
    /// Returns a part, which `make` cuts out unless it is here. Blocks as long as `make`, and the makings of others before
    /// it, do.
    pub(crate) fn get<E>(&self, key: &CutKey, make: impl FnOnce() -> Result<Cut, E>) -> Result<Cut, E> {
        if let Some(known) = self.parts.lock().touch(key) {
            return Ok(known);
        }
        let _alone = self.cutting.lock();
        if let Some(known) = self.parts.lock().touch(key) {
            return Ok(known);
        }
        let cut = make()?;
        self.parts.lock().keep(key.clone(), cut.clone());
        Ok(cut)
    }
}

impl Parts {
    fn touch(&mut self, key: &CutKey) -> Option<Cut> {
        let turn = *self.by_turn.iter().find(|(_, (known, _))| known == key)?.0;
        let found = self.by_turn.remove(&turn)?;
        let cut = found.1.clone();
        self.turn += 1;
        self.by_turn.insert(self.turn, found);
        Some(cut)
    }

    fn keep(&mut self, key: CutKey, cut: Cut) {
        self.bytes += cut.bytes();
        self.turn += 1;
        self.by_turn.insert(self.turn, (key, cut));
        while self.bytes > MAX_CUT_BYTES && self.by_turn.len() > 1 {
            let Some((_, (_, gone))) = self.by_turn.pop_first() else { return };
            self.bytes -= gone.bytes();
        }
    }
}

/// A part as a file that can be read.
#[derive(Debug)]
pub(crate) struct CutFile(pub(crate) Arc<[u8]>);

impl DiskFile for CutFile {
    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|from| self.0.get(from..)).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> CutKey {
        ("a".into(), number, 0, RunFilter::new([], |_, _| false))
    }

    #[test]
    fn parts_are_cut_once_and_those_read_longest_ago_go_when_they_take_too_much() {
        let cuts = Cuts::default();
        let cut = |bytes: usize| Cut { segment: vec![0; bytes].into(), aside: Arc::default() };
        let get = |number: u64| {
            let mut made = false;
            let make = || {
                made = true;
                Ok::<_, ()>(cut(MAX_CUT_BYTES / 4))
            };
            cuts.get(&key(number), make).unwrap();
            made
        };
        assert!([1, 2, 3, 4].into_iter().all(get));
        assert!(![1, 3].into_iter().any(get));
        assert!(get(5), "which takes the place of the second");
        assert!(![1, 3, 4, 5].into_iter().any(get));
        assert!(get(2));
        assert_eq!(cuts.parts.lock().bytes, MAX_CUT_BYTES);
        cuts.get(&key(6), || Ok::<_, ()>(cut(2 * MAX_CUT_BYTES))).unwrap();
        assert_eq!(cuts.parts.lock().by_turn.len(), 1, "the last one stays");
    }
}
