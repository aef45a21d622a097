//! What is compared afterwards: episodes of the store with those that were played, and what this process holds.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::failed;
use super::trainer::Episodes;
use crate::failure::{Failure, Status};

/// What the store has of a run, beside what its trainer saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Audit {
    /// Finished, and not there.
    pub(super) lost: u64,
    /// Listed more than once.
    pub(super) duplicates: u64,
    /// There as finished, but never seen.
    pub(super) invented: u64,
    /// Lanes of whose episodes all are there, but not as they were.
    pub(super) changed_lanes: u64,
}

/// A finished episode of the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stored {
    pub(super) lane: usize,
    pub(super) number: u64,
    pub(super) length: u64,
    pub(super) total_reward: f64,
}

impl Audit {
    /// Compares; `stored` in any order.
    pub(super) fn of(seen: &[Episodes], mut stored: Vec<Stored>) -> Self {
        stored.sort_by_key(|episode| (episode.lane, episode.number));
        let mut audit = Self::default();
        let mut found = vec![Episodes::default(); seen.len()];
        let mut last = None;
        for episode in stored {
            let Stored { lane, number, length, total_reward } = episode;
            let name = Some((lane, number));
            if name == last {
                audit.duplicates += 1;
            } else if seen.get(lane).is_none_or(|episodes| number >= episodes.count) {
                audit.invented += 1;
            } else {
                found[lane].add(length, total_reward);
            }
            last = name;
        }
        for (seen, found) in seen.iter().zip(&found) {
            audit.lost += seen.count - found.count;
            audit.changed_lanes += u64::from(seen.count == found.count && seen.digest != found.digest);
        }
        audit
    }
}

/// What this process holds that could leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Held {
    pub(super) sockets: u64,
    /// Beside sockets.
    pub(super) descriptors: u64,
    /// Of shared memory.
    pub(super) mappings: u64,
}

impl Held {
    /// By this process, now.
    pub(super) fn now() -> Result<Self, Failure> {
        let mut held = Self::default();
        for entry in std::fs::read_dir("/proc/self/fd").map_err(failed)? {
            // The one that reads the folder is gone by now.
            let Ok(link) = std::fs::read_link(entry.map_err(failed)?.path()) else { continue };
            match link.to_string_lossy().starts_with("socket:") {
                true => held.sockets += 1,
                false => held.descriptors += 1,
            }
        }
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(failed)?;
        held.mappings = maps.lines().filter(|line| line.contains("/memfd:")).count() as u64;
        Ok(held)
    }

    /// What is held now beyond that.
    pub(super) fn beyond(self, before: Self) -> Self {
        Self {
            sockets: self.sockets.saturating_sub(before.sockets),
            descriptors: self.descriptors.saturating_sub(before.descriptors),
            mappings: self.mappings.saturating_sub(before.mappings),
        }
    }
}

/// Processes that work in that folder.
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

/// The finished episodes of a store, as `replay ls` lists them to anybody.
pub(super) fn list(connection: &Path) -> Result<Vec<Stored>, Failure> {
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["replay", "ls", "--json", "--connect"]).arg(connection);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut stored = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let listed: Listed = serde_json::from_str(&line.map_err(failed)?).map_err(failed)?;
        if listed.outcome != "terminated" && listed.outcome != "truncated" {
            continue;
        }
        let mut numbers = listed.id.rsplit('-').map_while(|part| part.parse::<u64>().ok());
        let (Some(number), Some(lane), Some(total_reward)) =
            (numbers.next(), numbers.next(), listed.total_reward)
        else {
            let message = format_args!("an episode without a lane, a number or a return: {}", listed.id);
            return Err(Failure::new(Status::Failed, message));
        };
        stored.push(Stored { lane: lane as usize, number, length: listed.length, total_reward });
    }
    match child.wait().map_err(failed)?.success() {
        true => Ok(stored),
        false => Err(Failure::new(Status::Failed, "the store could not be listed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(facts: &[&[(u64, f64)]]) -> Vec<Episodes> {
        let lane = |facts: &&[(u64, f64)]| {
            let mut episodes = Episodes::default();
            facts.iter().for_each(|&(length, total_reward)| episodes.add(length, total_reward));
            episodes
        };
        facts.iter().map(lane).collect()
    }

    const fn stored(lane: usize, number: u64, length: u64, total_reward: f64) -> Stored {
        Stored { lane, number, length, total_reward }
    }

    #[test]
    fn an_audit_tells_what_is_lost_doubled_invented_and_changed() {
        let seen = seen(&[&[(3, -3.0), (5, -5.0)], &[(9, -9.0)]]);
        let all = vec![stored(1, 0, 9, -9.0), stored(0, 1, 5, -5.0), stored(0, 0, 3, -3.0)];
        assert_eq!(Audit::of(&seen, all.clone()), Audit::default());
        let without = all[..2].to_vec();
        assert_eq!(Audit::of(&seen, without), Audit { lost: 1, ..Audit::default() });
        let twice = [all.clone(), vec![all[0]]].concat();
        assert_eq!(Audit::of(&seen, twice), Audit { duplicates: 1, ..Audit::default() });
        let more = [all.clone(), vec![stored(1, 1, 2, -2.0), stored(2, 0, 2, -2.0)]].concat();
        assert_eq!(Audit::of(&seen, more), Audit { invented: 2, ..Audit::default() });
        let other = [all[..2].to_vec(), vec![stored(0, 0, 3, -2.0)]].concat();
        assert_eq!(Audit::of(&seen, other), Audit { changed_lanes: 1, ..Audit::default() });
    }
}
