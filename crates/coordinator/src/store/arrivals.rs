//! In which order segments came to the store, durably: the order in which they are dropped when it is full.
//!
//! Times that stand in segments are those of nodes' clocks, which may be wrong by years; the coordinator's own clock
//! may go back. So the store counts. The file `arrivals` has a line for each segment, the oldest first:
//!
//! ```text
//! <CRC-32C of the rest> <folder> <number> <CRC-32C of the segment>
//! ```
//!
//! A line is durable before its segment has its name; one without a segment means nothing. A line that cannot be read
//! is left out, and a segment without a line, as stores of earlier versions have them, is older than those with one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_replay::{Disk, DiskError, DiskFile};

/// Which segment came: folder, number and CRC-32C over its bytes.
pub(crate) type Arrival = (Arc<str>, u64, u32);

/// The file, while the store is open.
#[derive(Debug)]
pub(crate) struct Arrivals {
    dir: PathBuf,
    /// `None` after a failed operation: what is in the file is not known then, and it is written anew.
    file: Option<Box<dyn DiskFile>>,
    lines: usize,
}

impl Arrivals {
    /// Of the store in `dir`; nothing can be noted before it is written anew.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), file: None, lines: 0 }
    }

    /// What stands in the file: each segment's place in the order, counted from 1. Blocks for the disk.
    pub(crate) fn load(&self, disk: &dyn Disk) -> Result<BTreeMap<Arrival, u64>, DiskError> {
        let path = self.path();
        let failed = |error| DiskError::new("read", &path, error);
        let file = match disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(failed(error)),
        };
        let len = file.len().map_err(failed)?.min(MAX_BYTES);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let lines = bytes[..filled].split(|&byte| byte == b'\n');
        // Of a segment that came again after it was dropped, the last line counts.
        Ok((1..).zip(lines).filter_map(|(at, line)| Some((decode(line)?, at))).collect())
    }

    /// Notes that a segment comes now. Durable on return. `known` are those that are there, the oldest first, for when
    /// the file has to be written anew.
    pub(crate) fn note(
        &mut self,
        disk: &dyn Disk,
        arrival: &Arrival,
        known: impl FnOnce() -> Vec<Arrival>,
        there: usize,
    ) -> Result<(), DiskError> {
        if self.file.is_none() || self.lines > 2 * there + SPARE_LINES {
            self.rewrite(disk, &known())?;
        }
        let path = self.path();
        // Put back when it has worked.
        let Some(file) = self.file.take() else { return Ok(()) };
        file.append_all(encode(arrival).as_bytes()).map_err(|e| DiskError::new("append", &path, e))?;
        file.sync_data().map_err(|e| DiskError::new("sync", &path, e))?;
        self.file = Some(file);
        self.lines += 1;
        Ok(())
    }

    /// Makes the file have just these lines, durably.
    pub(crate) fn rewrite(&mut self, disk: &dyn Disk, known: &[Arrival]) -> Result<(), DiskError> {
        self.file = None;
        let (path, new) = (self.path(), self.dir.join(NEW));
        let failed = |operation| {
            let new = new.clone();
            move |error| DiskError::new(operation, &new, error)
        };
        match disk.remove(&new) {
            // Left by an attempt that failed.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        }
        let file = disk.create(&new).map_err(failed("create"))?;
        let lines: String = known.iter().map(encode).collect();
        file.append_all(lines.as_bytes()).map_err(failed("append"))?;
        file.sync_data().map_err(failed("sync"))?;
        disk.rename(&new, &path).map_err(failed("rename"))?;
        disk.sync_dir(&self.dir).map_err(|e| DiskError::new("sync", &self.dir, e))?;
        (self.file, self.lines) = (Some(file), known.len());
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.dir.join(ARRIVALS)
    }
}

fn encode((folder, number, crc): &Arrival) -> String {
    let mut rest = format!("{folder} {number} {crc:08x}");
    let sum = crc32c::crc32c(rest.as_bytes());
    rest.insert_str(0, &format!("{sum:08x} "));
    let _never = rest.write_char('\n');
    rest
}

fn decode(line: &[u8]) -> Option<Arrival> {
    let (sum, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(rest.as_bytes()) {
        return None;
    }
    let mut parts = rest.split(' ');
    let (folder, number, crc) = (parts.next()?, parts.next()?, parts.next()?);
    Some((folder.into(), number.parse().ok()?, u32::from_str_radix(crc, 16).ok()?))
}

/// Sorts segments into the order in which they came: those without a line first, by `opened_ms`, which is all that is
/// known of them.
pub(crate) fn sorted<T>(
    mut segments: Vec<(Arrival, u64, T)>,
    order: &BTreeMap<Arrival, u64>,
) -> Vec<(Arrival, u64, T)> {
    segments.sort_by_cached_key(|(arrival, opened_ms, _)| {
        (order.get(arrival).copied().unwrap_or(0), *opened_ms, arrival.clone())
    });
    segments
}

/// Names in the store's folder that are no folders of spools.
pub(crate) fn own_files() -> BTreeSet<&'static str> {
    BTreeSet::from([ARRIVALS, NEW])
}

const ARRIVALS: &str = "arrivals";
const NEW: &str = "arrivals.new";
/// Lines beyond twice as many as there are segments at which the file is written anew.
const SPARE_LINES: usize = 4_096;
/// Bytes of the file that are looked at: some ten million lines.
const MAX_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_replay::testing::{Faults, FaultyDisk};

    fn arrival(number: u64) -> Arrival {
        ("node-a-aaaaaaaa".into(), number, number as u32 * 77)
    }

    #[test]
    fn the_order_survives_a_power_cut_a_failed_write_and_a_torn_line() {
        let (disk, dir) = (FaultyDisk::new(), Path::new("/store"));
        disk.create_dir(dir).unwrap();
        let mut arrivals = Arrivals::new(dir);
        arrivals.rewrite(&disk, &[arrival(9)]).unwrap();
        arrivals.note(&disk, &arrival(4), Vec::new, 2).unwrap();
        disk.set_faults(Faults { fail_syncs: true, ..Faults::default() });
        arrivals.note(&disk, &arrival(5), Vec::new, 2).unwrap_err();
        disk.set_faults(Faults::default());
        arrivals.note(&disk, &arrival(6), || vec![arrival(9), arrival(4)], 2).unwrap();
        let left = disk.after_power_cut(|_, _| 0);
        let order = Arrivals::new(dir).load(&left).unwrap();
        assert_eq!(order, BTreeMap::from([(arrival(9), 1), (arrival(4), 2), (arrival(6), 3)]));
        let path = dir.join(ARRIVALS);
        let bytes = disk.read(&path).unwrap();
        for len in 0..bytes.len() {
            disk.write(&path, bytes[..len].to_vec());
            let read = Arrivals::new(dir).load(&disk).unwrap();
            assert!(read.len() <= 3 && read.iter().all(|(known, at)| order.get(known) == Some(at)), "{len}");
        }
    }

    #[test]
    fn the_file_is_written_anew_before_it_has_many_lines_of_what_was_dropped() {
        let (disk, dir) = (FaultyDisk::new(), Path::new("/store"));
        disk.create_dir(dir).unwrap();
        let mut arrivals = Arrivals::new(dir);
        arrivals.rewrite(&disk, &[]).unwrap();
        for number in 0..20_000 {
            arrivals.note(&disk, &arrival(number), || vec![arrival(number - 1)], 1).unwrap();
            assert!(arrivals.lines <= SPARE_LINES + 4);
        }
        let order = arrivals.load(&disk).unwrap();
        assert!(order.contains_key(&arrival(19_999)) && order.len() <= SPARE_LINES + 4);
    }
}
