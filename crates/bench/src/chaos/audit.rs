//! The audit afterwards: episodes of the store are compared with those that were played, and leaks of this process are
//! found.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_core::{EpisodeName, RunId};
use serde::{Deserialize, Serialize};

use super::trainer::{Ended, digest};
use crate::failed::failed;
use crate::itself;

/// The store's episodes of a run, compared with those that its trainer saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Audit {
    /// Lane and number of episodes that finished and are not in the store, though no disk was full.
    pub(super) lost: Vec<(usize, u64)>,
    /// Number of episodes that finished and are not in the store, because the disk was full before they were durable.
    pub(super) lost_undurable: u64,
    /// Number of episodes that are listed more than once.
    pub(super) duplicates: u64,
    /// Number of episodes that are in the store as finished, but were never seen.
    pub(super) invented: u64,
    /// Number of episodes that are in the store, but not as they were seen.
    pub(super) changed: u64,
}

/// An episode of the store.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Short id of its run, [`RunId::short`].
    pub(super) run: u64,
    /// Word of the outcome, as it is listed.
    pub(super) outcome: String,
    pub(super) episode: Stored,
}

impl Entry {
    pub(super) fn is_finished(&self) -> bool {
        self.outcome == "terminated" || self.outcome == "truncated"
    }
}

/// Returns the finished episodes of one run.
pub(super) fn finished_of(entries: &[Entry], run: RunId) -> Vec<Stored> {
    let of_it = entries.iter().filter(|entry| entry.run == run.short() && entry.is_finished());
    of_it.map(|entry| entry.episode).collect()
}

/// An episode in the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stored {
    pub(super) lane: usize,
    pub(super) number: u64,
    pub(super) length: u64,
    pub(super) total_reward: f64,
}

impl Audit {
    /// Compares the episodes that were `seen` with those that are `stored`, in any order. Those that are `is_at_risk`
    /// may be missing.
    pub(super) fn of(seen: &[Vec<Ended>], is_at_risk: impl Fn(&Ended) -> bool, stored: &[Stored]) -> Self {
        let mut audit = Self::default();
        let mut found: Vec<Vec<bool>> = seen.iter().map(|lane| vec![false; lane.len()]).collect();
        for &Stored { lane, number, length, total_reward } in stored {
            let number = number as usize;
            let Some(found) = found.get_mut(lane).and_then(|lane| lane.get_mut(number)) else {
                audit.invented += 1;
                continue;
            };
            audit.duplicates += u64::from(*found);
            audit.changed += u64::from(!*found && seen[lane][number].digest != digest(length, total_reward));
            *found = true;
        }
        for (lane, (seen, found)) in seen.iter().zip(&found).enumerate() {
            for (number, (ended, _)) in (0..).zip(seen.iter().zip(found)).filter(|(_, (_, found))| !**found) {
                match is_at_risk(ended) {
                    true => audit.lost_undurable += 1,
                    false => audit.lost.push((lane, number)),
                }
            }
        }
        audit
    }
}

/// Resources of a process that could leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Held {
    pub(super) sockets: u64,
    /// Number of descriptors other than sockets.
    pub(super) descriptors: u64,
    /// Number of mappings of shared memory.
    pub(super) mappings: u64,
}

impl Held {
    /// Returns what this process holds now.
    pub(super) fn now() -> Result<Self, Failure> {
        Self::of("self")
    }

    /// Returns what the process with that id holds.
    pub(super) fn of(process: &str) -> Result<Self, Failure> {
        let mut held = Self::default();
        for entry in std::fs::read_dir(format!("/proc/{process}/fd")).map_err(failed)? {
            // The one that reads the folder is gone by now.
            let Ok(link) = std::fs::read_link(entry.map_err(failed)?.path()) else { continue };
            match link.to_string_lossy().starts_with("socket:") {
                true => held.sockets += 1,
                false => held.descriptors += 1,
            }
        }
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).map_err(failed)?;
        held.mappings = maps.lines().filter(|line| line.contains("/memfd:")).count() as u64;
        Ok(held)
    }

    /// Returns the sum of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            sockets: self.sockets + other.sockets,
            descriptors: self.descriptors + other.descriptors,
            mappings: self.mappings + other.mappings,
        }
    }

    /// Returns what is held beyond `before`.
    pub(super) fn beyond(self, before: Self) -> Self {
        Self {
            sockets: self.sockets.saturating_sub(before.sockets),
            descriptors: self.descriptors.saturating_sub(before.descriptors),
            mappings: self.mappings.saturating_sub(before.mappings),
        }
    }
}

/// Counts the processes whose working folder is that one.
pub(super) fn processes_in(folder: &Path) -> Result<u64, Failure> {
    let folder = std::fs::canonicalize(folder).map_err(failed)?;
    let processes = std::fs::read_dir("/proc").map_err(failed)?.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        (std::fs::read_link(entry.path().join("cwd")).ok()? == folder).then_some(())
    });
    Ok(processes.count() as u64)
}

/// A line of `replay ls --json`.
#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    length: u64,
    #[serde(rename = "return")]
    total_reward: Option<f64>,
    outcome: String,
}

/// Returns the episodes of a store, as `replay ls` lists them.
pub(super) fn list(connection: &Path) -> Result<Vec<Entry>, Failure> {
    let mut command = itself::command().map_err(failed)?;
    command.args(["replay", "ls", "--json", "--connect"]).arg(connection);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut entries = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let listed: Listed = serde_json::from_str(&line.map_err(failed)?).map_err(failed)?;
        entries.push(listed.entry()?);
    }
    match child.wait().map_err(failed)?.success() {
        true => Ok(entries),
        false => Err(Failure::new(Status::Failed, "the store could not be listed")),
    }
}

impl Listed {
    fn entry(self) -> Result<Entry, Failure> {
        let Self { id, length, total_reward, outcome } = self;
        let EpisodeName { run, lane, number } = id.parse().map_err(failed)?;
        // A finished one has a return.
        let total_reward = total_reward.unwrap_or(f64::NAN);
        let episode = Stored { lane: lane as usize, number, length, total_reward };
        Ok(Entry { run, outcome, episode })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn seen(facts: &[&[(u64, f64)]]) -> Vec<Vec<Ended>> {
        let now = Instant::now();
        let ended = |&(length, total_reward): &(u64, f64)| Ended {
            digest: digest(length, total_reward),
            began: now,
            asked: now,
            answered: now,
            node: 0,
        };
        facts.iter().map(|lane| lane.iter().map(ended).collect()).collect()
    }

    const fn stored(lane: usize, number: u64, length: u64, total_reward: f64) -> Stored {
        Stored { lane, number, length, total_reward }
    }

    #[test]
    fn an_audit_tells_what_is_lost_doubled_invented_and_changed() {
        let seen = seen(&[&[(3, -3.0), (5, -5.0)], &[(9, -9.0)]]);
        let audit = |stored: Vec<Stored>| Audit::of(&seen, |_| false, &stored);
        let all = vec![stored(1, 0, 9, -9.0), stored(0, 1, 5, -5.0), stored(0, 0, 3, -3.0)];
        assert_eq!(audit(all.clone()), Audit::default());
        for missing in 0..3 {
            let mut without = all.clone();
            let Stored { lane, number, .. } = without.remove(missing);
            assert_eq!(audit(without), Audit { lost: vec![(lane, number)], ..Audit::default() });
        }
        let twice = [all.clone(), vec![all[0]]].concat();
        assert_eq!(audit(twice), Audit { duplicates: 1, ..Audit::default() });
        let more = [all.clone(), vec![stored(1, 1, 2, -2.0), stored(2, 0, 2, -2.0)]].concat();
        assert_eq!(audit(more), Audit { invented: 2, ..Audit::default() });
        let other = [all[..2].to_vec(), vec![stored(0, 0, 3, -2.0)]].concat();
        assert_eq!(audit(other), Audit { changed: 1, ..Audit::default() });
    }

    #[test]
    fn what_was_not_durable_when_a_disk_was_full_may_be_missing_and_nothing_else() {
        let seen = seen(&[&[(3, -3.0), (5, -5.0), (7, -7.0)]]);
        let risky = digest(5, -5.0);
        let all = [stored(0, 0, 3, -3.0), stored(0, 1, 5, -5.0), stored(0, 2, 7, -7.0)];
        let audit = |stored: &[Stored]| Audit::of(&seen, |ended| ended.digest == risky, stored);
        assert_eq!(audit(&all), Audit::default());
        assert_eq!(audit(&[all[0], all[2]]), Audit { lost_undurable: 1, ..Audit::default() });
        assert_eq!(audit(&all[1..]), Audit { lost: vec![(0, 0)], ..Audit::default() });
        let changed = Audit { lost_undurable: 1, changed: 1, ..Audit::default() };
        assert_eq!(audit(&[all[0], stored(0, 2, 7, -6.0)]), changed);
    }
}
