//! Figures of this process, read from /proc.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::exporter::Figures;
use crate::family::{Family, Kind, Page};

/// Figures of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSample {
    /// Time that processors have spent on the process since it began, to 10 ms.
    pub processor_time: Duration,
    /// Bytes that the process has in memory.
    pub resident_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of open descriptors.
    pub descriptors: u64,
}

/// Source of the figures of this process; it has none where there is no /proc.
#[derive(Debug)]
pub struct ProcessFigures {
    /// Time at which the process began, in seconds since 1970.
    started: Option<u64>,
}

impl ProcessSample {
    /// Reads the present figures of this process. Does not block: /proc is memory.
    ///
    /// # Errors
    /// If there is no /proc, or it is not as Linux has it.
    pub fn now() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let stat = fs::read_to_string("/proc/self/stat")?;
        let field = |name| status_field(&status, name).ok_or_else(|| unexpected("status"));
        let tick = |number| stat_field(&stat, number).ok_or_else(|| unexpected("stat"));
        // One descriptor is that of the folder being read.
        let descriptors = (fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1);
        Ok(Self {
            processor_time: in_ticks(tick(USER_TIME)? + tick(SYSTEM_TIME)?),
            resident_bytes: field("VmRSS:")? * 1024,
            threads: field("Threads:")?,
            descriptors,
        })
    }
}

impl ProcessFigures {
    /// Metrics of a process.
    pub const FAMILIES: &'static [Family] = &[CPU, RESIDENT, DESCRIPTORS, THREADS, STARTED];

    /// Makes the source for this process.
    pub fn new() -> Self {
        let uptime = fs::read_to_string("/proc/uptime").ok();
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = uptime.zip(stat).and_then(|(uptime, stat)| started(now, &uptime, &stat));
        Self { started }
    }
}

impl Default for ProcessFigures {
    fn default() -> Self {
        Self::new()
    }
}

impl Figures for ProcessFigures {
    fn families(&self) -> Vec<&'static Family> {
        Self::FAMILIES.iter().collect()
    }

    fn put(&self, page: &mut Page) {
        if let Ok(sample) = ProcessSample::now() {
            page.value(&CPU, sample.processor_time.as_secs_f64());
            page.value(&RESIDENT, sample.resident_bytes as f64);
            page.value(&DESCRIPTORS, sample.descriptors as f64);
            page.value(&THREADS, sample.threads as f64);
        }
        if let Some(started) = self.started {
            page.value(&STARTED, started as f64);
        }
    }
}

/// Returns the time at which the process of `stat` began, in seconds since 1970. `now` is the present time, and
/// `uptime` says how long the machine has been running.
fn started(now: Duration, uptime: &str, stat: &str) -> Option<u64> {
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let runs =
        Duration::try_from_secs_f64(uptime).ok()?.checked_sub(in_ticks(stat_field(stat, START_TIME)?))?;
    Some(now.checked_sub(runs)?.as_secs())
}

/// Returns the number behind a name in /proc/self/status; sizes are in kB there.
fn status_field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Returns a field of /proc/self/stat, counted from 1 as its manual does, from the third on. The second is the
/// program's name, which may itself hold blanks and brackets.
fn stat_field(stat: &str, number: usize) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn in_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND))
}

fn unexpected(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/self/{file} is not as expected"))
}

const USER_TIME: usize = 14;
const SYSTEM_TIME: usize = 15;
const START_TIME: usize = 22;
/// Number of ticks in a second in the times that /proc shows to programs, whatever the kernel's own unit is.
const TICKS_PER_SECOND: u64 = 100;

const fn family(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family { name, help, kind, labels: &[] }
}

const CPU: Family =
    family("process_cpu_seconds_total", Kind::Counter, "Time that processors have spent on the process.");
const RESIDENT: Family =
    family("process_resident_memory_bytes", Kind::Gauge, "Bytes that the process has in memory.");
const DESCRIPTORS: Family =
    family("process_open_fds", Kind::Gauge, "File descriptors that the process has open.");
const THREADS: Family = family("process_threads", Kind::Gauge, "Threads of the process.");
const STARTED: Family = family(
    "process_start_time_seconds",
    Kind::Gauge,
    "When the process began, in seconds since the start of 1970 (UTC).",
);

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) (b c) S 1 7 7 0 -1 4194560 100 0 3 0 250 31 5 6 20 0 9 0 1200 2 3";

    #[test]
    fn a_program_name_with_brackets_and_blanks_shifts_no_field() {
        assert_eq!((stat_field(STAT, USER_TIME), stat_field(STAT, SYSTEM_TIME)), (Some(250), Some(31)));
        assert_eq!(stat_field("7 (a) S 1 7", USER_TIME), None);
    }

    #[test]
    fn a_process_began_so_long_ago_as_the_machine_ran_less_before() {
        // The machine runs for 100.5 s; the process began 12 s after it did.
        assert_eq!(started(Duration::from_secs(1_000_089), "100.50 190.00\n", STAT), Some(1_000_000));
        assert_eq!(started(Duration::from_secs(10), "nonsense", STAT), None);
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
        let before = ProcessSample::now().unwrap();
        assert!(before.resident_bytes > 0 && before.descriptors > 0 && before.threads > 0);
        let held: Vec<_> = (0..200).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        // Other tests of this process open files, too, but not so many.
        assert!(ProcessSample::now().unwrap().descriptors >= before.descriptors + 100);
        drop(held);
    }
}
