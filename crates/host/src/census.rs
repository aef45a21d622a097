//! The census of worker processes: how many lanes of which env each has, and what it takes of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::param::clock_ticks_per_second;

use crate::connect_watch::ConnectWatch;

/// The worker processes that are ready to step, of all hosts that were given a clone of it.
///
/// Processes that workers start themselves are not counted.
#[derive(Debug, Clone, Default)]
pub struct Census {
    processes: Arc<Mutex<BTreeMap<u32, Entry>>>,
    connect_retries: Arc<AtomicU64>,
}

/// What the worker processes of one env have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Number of their lanes.
    pub lanes: u64,
    /// Bytes of memory that they have to themselves (`RssAnon`).
    pub memory: u64,
    /// CPU time that they took since they were looked at last. Of a process that is looked at for the first time it counts
    /// from when it was ready.
    pub cpu: Duration,
}

#[derive(Debug)]
struct Entry {
    env: Arc<str>,
    lanes: u64,
    /// Ticks of CPU time at the last look.
    ticks: u64,
}

/// The place of a host's workers in a census.
#[derive(Debug)]
pub(crate) struct Counting {
    census: Census,
    env: Arc<str>,
    /// Number of lanes of each worker.
    lanes: Vec<u64>,
}

/// A process in a census, until this is dropped.
#[derive(Debug)]
pub(crate) struct InCensus {
    census: Census,
    process: u32,
}

impl Census {
    /// Makes the place of a host whose workers have so many lanes of an env each.
    pub(crate) fn counting(&self, env: &str, lanes: impl Iterator<Item = usize>) -> Counting {
        Counting { census: self.clone(), env: env.into(), lanes: lanes.map(|lanes| lanes as u64).collect() }
    }

    /// Returns a watch over the connecting of one host's workers, whose retries are counted here.
    pub fn connect_watch(&self) -> ConnectWatch {
        ConnectWatch::counted_in(&self.connect_retries)
    }

    /// Returns how often workers have tried again to connect, those of all watches together.
    pub fn connect_retries(&self) -> u64 {
        self.connect_retries.load(Ordering::Relaxed)
    }

    /// Returns the number of processes.
    pub fn processes(&self) -> usize {
        self.processes.lock().len()
    }

    /// Looks at the processes and returns what those of each env have; of more than [`MAX_LOOKED_AT`] it looks at as many.
    /// Reads two small files of each. One that has just ended is left out.
    pub fn look(&self) -> BTreeMap<Arc<str>, Counted> {
        let mut all: BTreeMap<Arc<str>, Counted> = BTreeMap::new();
        let ticks_a_second = clock_ticks_per_second().max(1);
        for (&process, entry) in self.processes.lock().iter_mut().take(MAX_LOOKED_AT) {
            let (Some(memory), Some(ticks)) = (private_memory(process), cpu_ticks(process)) else { continue };
            let counted = all.entry(Arc::clone(&entry.env)).or_default();
            let took = ticks.saturating_sub(std::mem::replace(&mut entry.ticks, ticks));
            counted.lanes += entry.lanes;
            counted.memory += memory;
            counted.cpu += Duration::from_millis(took * 1000 / ticks_a_second);
        }
        all
    }
}

impl Counting {
    /// Counts a worker's process, which is ready.
    pub(crate) fn enter(&self, worker: usize, process: u32) -> Option<InCensus> {
        let (env, lanes) = (Arc::clone(&self.env), *self.lanes.get(worker)?);
        // It may have ended already; then nothing is read of it.
        let ticks = cpu_ticks(process).unwrap_or(0);
        self.census.processes.lock().insert(process, Entry { env, lanes, ticks });
        Some(InCensus { census: self.census.clone(), process })
    }
}

impl Drop for InCensus {
    fn drop(&mut self) {
        self.census.processes.lock().remove(&self.process);
    }
}

/// Returns the bytes of memory that a process has to itself.
fn private_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the ticks of CPU time that a process took, in user and kernel mode.
fn cpu_ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may have blanks; the 14th and 15th field are the times, and the 3rd follows the name.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(14 - 3);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Maximum number of processes that one look reads of: it takes a few milliseconds then.
pub const MAX_LOOKED_AT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_env_with_lanes_and_memory_until_they_end() {
        let census = Census::default();
        let counting = census.counting("a:B", [3, 4].into_iter());
        let here = std::process::id();
        let entered = counting.enter(1, here).unwrap();
        assert!(counting.enter(2, here).is_none(), "there is no such worker");
        let looked = census.look();
        let counted = looked["a:B"];
        assert_eq!((looked.len(), counted.lanes), (1, 4));
        assert!(counted.memory >= 64 << 10, "{counted:?}");
        let begun = std::time::Instant::now();
        while cpu_ticks(here) <= census.processes.lock().get(&here).map(|entry| entry.ticks + 4) {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        let cpu = census.look()["a:B"].cpu;
        assert!(cpu > Duration::ZERO && cpu < Duration::from_secs(3600), "{cpu:?}");
        drop(entered);
        assert_eq!((census.processes(), census.look().len()), (0, 0));
    }

    #[test]
    fn a_process_that_is_gone_is_left_out() {
        let census = Census::default();
        let counting = census.counting("a:B", [1].into_iter());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        child.wait().unwrap();
        let _entered = counting.enter(0, id);
        assert!(census.look().is_empty());
    }
}
