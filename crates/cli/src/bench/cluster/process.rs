//! What this process uses, as Linux tells it under /proc.

use std::fs;
use std::io;
use std::time::Duration;

use serde::Serialize;

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Footprint {
    /// Bytes in memory (VmRSS).
    pub(super) resident_bytes: u64,
    pub(super) threads: u64,
    pub(super) descriptors: u64,
}

impl Footprint {
    /// Of this process, now.
    pub(super) fn now() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let field = |name| status_field(&status, name).ok_or_else(|| unexpected("status"));
        // One descriptor is that of the folder being read.
        let descriptors = fs::read_dir("/proc/self/fd")?.count() as u64 - 1;
        Ok(Self { resident_bytes: field("VmRSS:")? * 1024, threads: field("Threads:")?, descriptors })
    }
}

/// Time that processors have spent on this process since it began, to 10 ms.
pub(super) fn processor_time() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let ticks = stat_ticks(&stat).ok_or_else(|| unexpected("stat"))?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// The number behind a name in /proc/self/status; sizes are in kB there.
fn status_field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// utime and stime together: the 14th and the 15th field, the 12th and the 13th behind the program's name, which may
/// itself hold blanks and brackets.
fn stat_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn unexpected(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/self/{file} is not as expected"))
}

/// The unit of times in /proc towards programs, whatever the kernel's own.
const TICKS_PER_SECOND: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_brackets_and_blanks_shifts_no_field() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194560 100 0 3 0 250 31 5 6 20 0 9 0 1 2 3";
        assert_eq!(stat_ticks(stat), Some(281));
        assert_eq!(stat_ticks("7 (a) S 1 7"), None);
    }

    #[test]
    fn a_status_field_is_found_by_its_whole_name() {
        let status = "Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t  812 kB\nThreads:\t9\n";
        assert_eq!(status_field(status, "VmRSS:"), Some(812));
        assert_eq!(status_field(status, "Threads:"), Some(9));
        assert_eq!(status_field(status, "VmSwap:"), None);
    }

    #[test]
    fn open_files_show_as_descriptors() {
        let before = Footprint::now().unwrap();
        assert!(before.resident_bytes > 0 && before.descriptors > 0);
        let held: Vec<_> = (0..200).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        // Other tests of this process open files, too, but not so many.
        assert!(Footprint::now().unwrap().descriptors >= before.descriptors + 100);
        drop(held);
    }
}
