//! The durable order in which segments came to the store, in which they are dropped when it is full.
//!
//! Times that stand in segments are those of nodes' clocks, which may be wrong by years; the coordinator's own clock
//! may go back. So the store counts. The file `arrivals` has a line ([`Lines`]) for each segment, the oldest first:
//!
//! ```text
//! <folder> <number> <CRC-32C of the segment> <owner>...
//! ```
//!
//! An owner of recordings in it is the bytes of these, `o` or `a` (an admin), and the name's bytes in hexadecimal, joined
//! by `:`.
//!
//! A line is durable before its segment has its name; one without a segment means nothing. A line that cannot be read
//! is left out, and a segment without a line, as stores of earlier versions have them, is older than those with one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{Claimant, OwnedBytes};
use rollhouse_replay::{Disk, DiskError, Lines};

/// A segment that came: its folder, number and CRC-32C.
pub(crate) type Arrival = (Arc<str>, u64, u32);

/// The file `arrivals`, while the store is open.
#[derive(Debug)]
pub(crate) struct Arrivals {
    lines: Lines,
}

impl Arrivals {
    /// Makes the value for the store in `dir`. Nothing can be noted before the file is written anew.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { lines: Lines::new(dir, ARRIVALS) }
    }

    /// Returns each segment's place in the order from the file, counted from 1, and whose it is. Blocks for the disk.
    pub(crate) fn load(&self, disk: &dyn Disk) -> Result<BTreeMap<Arrival, (u64, OwnedBytes)>, DiskError> {
        let read = self.lines.read(disk)?;
        // Of a segment that came again after it was dropped, the last line counts.
        Ok(read.lines.iter().filter_map(|(at, line)| decode(*at, line)).collect())
    }

    /// Notes that a segment comes now. Durable on return. `known` are the segments that are there, the oldest first, in
    /// case the file has to be written anew.
    pub(crate) fn note(
        &mut self,
        disk: &dyn Disk,
        (arrival, owned): (&Arrival, &OwnedBytes),
        known: impl FnOnce() -> Vec<(Arrival, OwnedBytes)>,
        there: usize,
    ) -> Result<(), DiskError> {
        if self.lines.is_unsure() || self.lines.count() > 2 * there + SPARE_LINES {
            self.rewrite(disk, &known())?;
        }
        self.lines.add(&encode(arrival, owned))
    }

    /// Writes the file anew with just these lines, durably.
    pub(crate) fn rewrite(
        &mut self,
        disk: &dyn Disk,
        known: &[(Arrival, OwnedBytes)],
    ) -> Result<(), DiskError> {
        self.lines.rewrite(disk, known.iter().map(|(arrival, owned)| encode(arrival, owned)))
    }
}

fn encode((folder, number, crc): &Arrival, owned: &OwnedBytes) -> String {
    let mut line = format!("{folder} {number} {crc:08x}");
    for (owner, bytes) in owned.iter() {
        let letter = if owner.operates() { 'a' } else { 'o' };
        line += &format!(" {bytes}:{letter}:");
        line.extend(owner.name().bytes().map(|byte| format!("{byte:02x}")));
    }
    line
}

fn decode(at: u64, line: &str) -> Option<(Arrival, (u64, OwnedBytes))> {
    let mut parts = line.split(' ');
    let (folder, number, crc) = (parts.next()?, parts.next()?, parts.next()?);
    let owned = parts.filter_map(decode_owner).collect();
    Some(((folder.into(), number.parse().ok()?, u32::from_str_radix(crc, 16).ok()?), (at, owned)))
}

fn decode_owner(part: &str) -> Option<(Claimant, u64)> {
    let mut parts = part.split(':');
    let (bytes, letter, hex) = (parts.next()?, parts.next()?, parts.next()?);
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let name: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    let name = String::from_utf8(name?).ok()?;
    let owner = if letter == "a" { Claimant::operator(name) } else { Claimant::owner(name) };
    Some((owner, bytes.parse().ok()?))
}

/// Sorts segments into the order in which they came. Those without a line come first, by `opened_ms`, which is all that
/// is known of them.
pub(crate) fn sorted<T>(
    mut segments: Vec<(Arrival, u64, T)>,
    order: &BTreeMap<Arrival, (u64, OwnedBytes)>,
) -> Vec<(Arrival, u64, T)> {
    segments.sort_by_cached_key(|(arrival, opened_ms, _)| {
        (order.get(arrival).map_or(0, |(at, _)| *at), *opened_ms, arrival.clone())
    });
    segments
}

const ARRIVALS: &str = "arrivals";
/// Number of lines beyond twice the number of segments at which the file is written anew.
pub(crate) const SPARE_LINES: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_replay::testing::{Faults, FaultyDisk};

    fn arrival(number: u64) -> Arrival {
        ("node-a-aaaaaaaa".into(), number, number as u32 * 77)
    }

    /// Whose a segment is: of no owner, one, or two of whom one is an admin with an odd name.
    fn owned(number: u64) -> OwnedBytes {
        let parts = [(Claimant::owner("ada:1f"), number + 1), (Claimant::operator("a dmin é:"), 7)];
        parts.into_iter().take(number as usize % 3).collect()
    }

    fn with_owned(number: u64) -> (Arrival, OwnedBytes) {
        (arrival(number), owned(number))
    }

    #[test]
    fn the_order_survives_a_power_cut_a_failed_write_and_a_torn_line() {
        let (disk, dir) = (FaultyDisk::new(), Path::new("/store"));
        disk.create_dir(dir).unwrap();
        let mut arrivals = Arrivals::new(dir);
        arrivals.rewrite(&disk, &[with_owned(9)]).unwrap();
        arrivals.note(&disk, (&arrival(4), &owned(4)), Vec::new, 2).unwrap();
        disk.set_faults(Faults { fail_syncs: true, ..Faults::default() });
        arrivals.note(&disk, (&arrival(5), &owned(5)), Vec::new, 2).unwrap_err();
        disk.set_faults(Faults::default());
        arrivals.note(&disk, (&arrival(6), &owned(6)), || vec![with_owned(9), with_owned(4)], 2).unwrap();
        let left = disk.after_power_cut(|_, _| 0);
        let order = Arrivals::new(dir).load(&left).unwrap();
        assert_eq!(
            order,
            BTreeMap::from([
                (arrival(9), (1, owned(9))),
                (arrival(4), (2, owned(4))),
                (arrival(6), (3, owned(6)))
            ])
        );
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
            arrivals
                .note(&disk, (&arrival(number), &owned(number)), || vec![with_owned(number - 1)], 1)
                .unwrap();
            assert!(arrivals.lines.count() <= SPARE_LINES + 4);
        }
        let order = arrivals.load(&disk).unwrap();
        assert!(order.contains_key(&arrival(19_999)) && order.len() <= SPARE_LINES + 4);
    }
}
