//! The census of worker processes: how many lanes of which env each has, whose it is, and what it takes of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{Claimant, RunId};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, getpriority_process, setpriority_pgrp};

use crate::connect_watch::ConnectWatch;

/// The worker processes that are ready to step, of all hosts that were given a clone of it.
///
/// Processes that workers start themselves are not counted.
#[derive(Debug, Clone, Default)]
pub struct Census {
    processes: Arc<Mutex<Processes>>,
    connect_retries: Arc<AtomicU64>,
}

type Processes = BTreeMap<u32, Entry>;

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

/// The session that worker processes are of, and its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its owner.
    pub owner: Claimant,
    /// Its pool.
    pub pool: RunId,
    /// Its index in the pool.
    pub index: u32,
    /// Term and counter of its placement.
    pub placement: (u64, u64),
}

#[derive(Debug)]
struct Entry {
    env: Arc<str>,
    lanes: u64,
    /// Ticks of CPU time at the last look.
    ticks: u64,
    holder: Option<Arc<Holder>>,
    /// Niceness that it was given beyond this process's.
    nice: i32,
}

/// The place of a host's workers in a census.
#[derive(Debug)]
pub(crate) struct Counting {
    census: Census,
    env: Arc<str>,
    /// Number of lanes of each worker.
    lanes: Vec<u64>,
    holder: Option<Arc<Holder>>,
}

/// A process in a census, until this is dropped.
#[derive(Debug)]
pub(crate) struct InCensus {
    census: Census,
    process: u32,
}

impl Census {
    /// Makes the place of a host whose workers have so many lanes of an env each, for a holder if they are a session's.
    pub(crate) fn counting(
        &self,
        env: &str,
        lanes: impl Iterator<Item = usize>,
        holder: Option<Arc<Holder>>,
    ) -> Counting {
        let lanes = lanes.map(|lanes| lanes as u64).collect();
        Counting { census: self.clone(), env: env.into(), lanes, holder }
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

    /// Returns the bytes of memory that the processes of each holder have to themselves. Reads a small file of each.
    pub fn memory(&self) -> BTreeMap<Holder, u64> {
        let held: Vec<_> = {
            let processes = self.processes.lock();
            processes.iter().filter_map(|(&process, entry)| Some((process, entry.holder.clone()?))).collect()
        };
        let mut all = BTreeMap::new();
        for (process, holder) in held {
            *all.entry((*holder).clone()).or_default() += private_memory(process).unwrap_or(0);
        }
        all
    }
}

impl Counting {
    /// Counts a worker's process, which is ready.
    pub(crate) fn enter(&self, worker: usize, process: u32) -> Option<InCensus> {
        let (env, lanes) = (Arc::clone(&self.env), *self.lanes.get(worker)?);
        // It may have ended already; then nothing is read of it.
        let (ticks, holder) = (cpu_ticks(process).unwrap_or(0), self.holder.clone());
        let mut processes = self.census.processes.lock();
        processes.insert(process, Entry { env, lanes, ticks, holder, nice: 0 });
        share_cpu(&mut processes);
        Some(InCensus { census: self.census.clone(), process })
    }
}

impl Drop for InCensus {
    fn drop(&mut self) {
        let mut processes = self.census.processes.lock();
        processes.remove(&self.process);
        share_cpu(&mut processes);
    }
}

/// Gives the processes of several owners such niceness that those of each weigh together what one process weighs; of one owner
/// alone none. A process whose niceness may not be lowered again keeps it.
fn share_cpu(processes: &mut Processes) {
    let mut counts: BTreeMap<&Claimant, u32> = BTreeMap::new();
    for holder in processes.values().filter_map(|entry| entry.holder.as_deref()) {
        *counts.entry(&holder.owner).or_default() += 1;
    }
    let shared = counts.len() > 1;
    let levels: BTreeMap<Claimant, i32> = counts
        .into_iter()
        .map(|(owner, count)| (owner.clone(), if shared { niceness(count) } else { 0 }))
        .collect();
    for (&process, entry) in processes {
        let Some(wanted) = entry.holder.as_deref().and_then(|holder| levels.get(&holder.owner)) else {
            continue;
        };
        let group = i32::try_from(process).ok().and_then(Pid::from_raw);
        // It may have ended, or it may not be lowered.
        if entry.nice != *wanted
            && let Some(group) = group
            && let Ok(own) = getpriority_process(None)
            && setpriority_pgrp(Some(group), (own + wanted).min(MOST_NICE)).is_ok()
        {
            entry.nice = *wanted;
        }
    }
}

/// Returns the niceness at which so many processes weigh what one weighs at 0: each step is a quarter less.
fn niceness(processes: u32) -> i32 {
    let level = f64::from(processes.max(1)).ln() / 1.25_f64.ln();
    (level.round() as i32).min(MOST_NICE)
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

/// Greatest niceness. It makes up for 69 processes.
const MOST_NICE: i32 = 19;

/// Maximum number of processes that one look reads of: it takes a few milliseconds then.
pub const MAX_LOOKED_AT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_env_with_lanes_and_memory_until_they_end() {
        let census = Census::default();
        let counting = census.counting("a:B", [3, 4].into_iter(), None);
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

    /// Symptom: an owner with many worker processes had as much of a node's cores as it had processes, and others waited. Cause:
    /// every process weighed the same. Fix: those of an owner weigh together what one does.
    #[test]
    fn the_processes_of_each_owner_weigh_together_what_one_process_weighs() {
        assert_eq!([1, 2, 10, 64, 1000].map(niceness), [0, 3, 10, 19, 19]);
        let census = Census::default();
        let holder = |owner: &str, index| {
            let (owner, pool) = (Claimant::owner(owner), RunId::generate());
            Some(Arc::new(Holder { owner, pool, index, placement: (1, 1) }))
        };
        let sleep = || {
            use std::os::unix::process::CommandExt;
            std::process::Command::new("sleep").arg("1000").process_group(0).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..4).map(|_| sleep()).collect();
        let own = getpriority_process(None).unwrap();
        let nice = |child: &std::process::Child| {
            getpriority_process(Pid::from_raw(child.id() as i32)).unwrap() - own
        };
        let greedy = census.counting("a:B", [1; 3].into_iter(), holder("greedy", 0));
        let mut entered: Vec<_> = (0..3).map(|at| greedy.enter(at, children[at].id()).unwrap()).collect();
        assert_eq!([0, 1, 2].map(|at| nice(&children[at])), [0; 3], "nobody else has any");
        let other = census.counting("a:B", [1].into_iter(), holder("other", 1));
        entered.push(other.enter(0, children[3].id()).unwrap());
        assert_eq!([0, 1, 2, 3].map(|at| nice(&children[at])), [5, 5, 5, 0]);
        let memory = census.memory();
        assert_eq!(memory.keys().map(|holder| holder.owner.name()).collect::<Vec<_>>(), ["greedy", "other"]);
        assert!(memory.values().all(|&bytes| bytes > 0), "{memory:?}");
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_process_that_is_gone_is_left_out() {
        let census = Census::default();
        let counting = census.counting("a:B", [1].into_iter(), None);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        child.wait().unwrap();
        let _entered = counting.enter(0, id);
        assert!(census.look().is_empty());
    }
}
