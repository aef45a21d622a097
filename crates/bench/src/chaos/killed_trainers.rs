//! Trainers that are processes of their own: they are started, killed, and followed by others with the same token.
//!
//! Afterwards the episodes that each saw are compared with the store. An episode that it saw end has to be there
//! unchanged, and those that were open in its lanes must have ended as `disconnected`, unless its nodes were harmed at
//! about that time: then nobody is left who could have lanes rebuilt elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rollhouse_cli::certs::write_private;
use rollhouse_cli::failure::{Failure, Status};
use rollhouse_core::RunId;
use serde::Serialize;

use super::audit::{Entry, Stored, finished_of};
use super::logged::{log_of, spawn};
use super::trainer::FOUND_WITHIN;
use super::trainer_process::{SeenEpisode, TrainerLine, now_ms};
use crate::failed::failed;
use crate::itself;

/// The processes. Killed when dropped.
pub(super) struct Trainers {
    folder: PathBuf,
    slots: Vec<Slot>,
    ended: Vec<Life>,
    harms: Vec<NodeHarm>,
}

/// A token and the trainers that have it one after the other.
struct Slot {
    /// File with the connection string.
    connection: PathBuf,
    name: String,
    child: Child,
    /// The time at which the trainer before was killed.
    before_ms: Option<u64>,
    /// The time at which the next trainer is to be started.
    due: Option<Instant>,
    started: u64,
    playing: bool,
}

/// One process, from its start until it was killed.
pub(super) struct Life {
    log: PathBuf,
    before_ms: Option<u64>,
    killed_ms: u64,
}

/// A kill of a node, or a time in which its disk was full.
#[derive(Debug, Clone)]
struct NodeHarm {
    node: String,
    from_ms: u64,
    until_ms: u64,
}

/// The traces that killed trainers left behind; the field names are part of the interface.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct TrainersAudit {
    /// Number of processes that had a pool when they were killed.
    pub(super) killed: u64,
    /// Number of episodes that they saw end.
    pub(super) episodes: u64,
    /// Number of those that are not in the store, though no node was harmed.
    pub(super) lost: u64,
    /// Number of those that are not in the store, because a node was harmed before they were durable and nobody was
    /// left to have them back.
    pub(super) undurable_lost: u64,
    /// Number of episodes that are listed more than once.
    pub(super) duplicates: u64,
    /// Number of episodes that are in the store as finished, and later than anything that can have been stepped.
    pub(super) invented: u64,
    /// Number of episodes that are in the store, but not as they were seen.
    pub(super) changed: u64,
    /// Number of lanes whose open episode ended as `disconnected`.
    pub(super) disconnected: u64,
    /// Number of lanes whose open episode ended in another way, though no node was harmed before their lease was over.
    pub(super) otherwise: u64,
    /// Number of their sessions that are left when their leases are over.
    pub(super) sessions: u64,
    /// Time from the kill of a trainer until the next one with its token had its lanes, which are all that it may have.
    /// Absent if there was none.
    pub(super) lanes_back_p50_ms: Option<u64>,
    /// The longest such time.
    pub(super) lanes_back_max_ms: Option<u64>,
}

impl Trainers {
    /// Starts one trainer for each connection string.
    pub(super) fn start(folder: &Path, connections: &[String]) -> Result<Self, Failure> {
        let slot = |(index, connection): (usize, &String)| {
            let path = folder.join(format!("trainer-{index}"));
            write_private(&path, &format!("{connection}\n"))?;
            let name = format!("trainer-{index}-0");
            let child = Self::spawn(folder, &name, &path)?;
            Ok(Slot { connection: path, name, child, before_ms: None, due: None, started: 1, playing: false })
        };
        let slots = connections.iter().enumerate().map(slot).collect::<Result<_, Failure>>()?;
        Ok(Self { folder: folder.to_owned(), slots, ended: Vec::new(), harms: Vec::new() })
    }

    fn spawn(folder: &Path, name: &str, connection: &Path) -> Result<Child, Failure> {
        let mut command = itself::bench().map_err(failed)?;
        command.args(["chaos-trainer", "--connect"]).arg(connection);
        spawn(folder, name, command)
    }

    /// Returns whether it has lanes.
    pub(super) fn is_playing(&mut self, index: usize) -> Result<bool, Failure> {
        let Self { folder, slots, .. } = self;
        let slot = &mut slots[index];
        if slot.due.is_none() && !slot.playing {
            slot.playing = said_in(&log_of(folder, &slot.name))?.next().is_some();
        }
        Ok(slot.due.is_none() && slot.playing)
    }

    /// Kills one trainer; the next one is started at that time.
    pub(super) fn kill(&mut self, index: usize, until: Instant) -> io::Result<()> {
        let slot = &mut self.slots[index];
        slot.child.kill()?;
        slot.child.wait()?;
        let killed_ms = now_ms();
        let log = log_of(&self.folder, &slot.name);
        self.ended.push(Life { log, before_ms: slot.before_ms, killed_ms });
        (slot.before_ms, slot.due, slot.playing) = (Some(killed_ms), Some(until), false);
        Ok(())
    }

    /// Starts the trainers that are due. Fails if one ended by itself.
    pub(super) fn turn(&mut self, now: Instant) -> Result<(), Failure> {
        let Self { folder, slots, .. } = self;
        for slot in slots {
            match slot.due {
                Some(at) if at <= now => {
                    let base = slot.connection.file_name().unwrap_or_default().to_string_lossy();
                    slot.name = format!("{base}-{}", slot.started);
                    slot.child = Self::spawn(folder, &slot.name, &slot.connection)?;
                    (slot.due, slot.started) = (None, slot.started + 1);
                }
                Some(_) => {}
                None => {
                    if let Some(status) = slot.child.try_wait().map_err(failed)? {
                        let said = fs::read_to_string(log_of(folder, &slot.name)).unwrap_or_default();
                        let last = said.lines().last().unwrap_or_default().to_owned();
                        let what = format_args!("{} ended by itself: {status}", slot.name);
                        return Err(Failure::new(Status::Failed, what).hint(last));
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes that a node was killed now, or that its disk is full for that long.
    pub(super) fn harmed(&mut self, node: &str, lasts: Duration) {
        let from_ms = now_ms();
        let until_ms = from_ms + u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        self.harms.push(NodeHarm { node: node.to_owned(), from_ms, until_ms });
    }

    /// Kills all of them.
    pub(super) fn end(mut self) -> io::Result<Lives> {
        for index in 0..self.slots.len() {
            if self.slots[index].due.is_none() {
                self.kill(index, Instant::now())?;
            }
        }
        Ok(Lives { ended: std::mem::take(&mut self.ended), harms: std::mem::take(&mut self.harms) })
    }
}

impl Drop for Trainers {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // It may have ended already.
            let _killed = slot.child.kill();
            let _reaped = slot.child.wait();
        }
    }
}

/// The lives of all trainers, after all of them are killed.
pub(super) struct Lives {
    ended: Vec<Life>,
    harms: Vec<NodeHarm>,
}

/// The lines that a killed trainer printed.
struct TrainerLog {
    pool: RunId,
    got_ms: u64,
    killed_ms: u64,
    episodes: Vec<SeenEpisode>,
    /// Lane and number of the episodes that it saw begin.
    begun: BTreeSet<(usize, u64)>,
}

impl Lives {
    /// Returns the runs of their pools.
    pub(super) fn pools(&self) -> Result<Vec<RunId>, Failure> {
        let all = self.ended.iter().map(Life::testimony).collect::<Result<Vec<_>, Failure>>()?;
        Ok(all.into_iter().flatten().map(|testimony| testimony.pool).collect())
    }

    /// Compares what they saw with the store. `lanes` is the number of lanes of each.
    pub(super) fn audit(&self, entries: &[Entry], lanes: usize) -> Result<TrainersAudit, Failure> {
        let mut audit = TrainersAudit::default();
        let mut back = Vec::new();
        for life in &self.ended {
            let Some(testimony) = life.testimony()? else { continue };
            audit.killed += 1;
            back.extend(life.before_ms.map(|before| testimony.got_ms.saturating_sub(before)));
            testimony.compare(entries, lanes, &self.harms, &mut audit);
        }
        back.sort_unstable();
        audit.lanes_back_p50_ms = back.get(back.len() / 2).copied();
        audit.lanes_back_max_ms = back.last().copied();
        Ok(audit)
    }
}

impl Life {
    /// Reads its lines; `None` if it was killed before it had a pool.
    fn testimony(&self) -> Result<Option<TrainerLog>, Failure> {
        let mut said = said_in(&self.log)?;
        let Some(TrainerLine::Pool { id, at_ms }) = said.next() else { return Ok(None) };
        let (mut episodes, mut begun) = (Vec::new(), BTreeSet::new());
        for said in said {
            match said {
                TrainerLine::Episode(episode) => episodes.push(episode),
                TrainerLine::Begun { lane, number } => drop(begun.insert((lane, number))),
                TrainerLine::Pool { .. } => {}
            }
        }
        Ok(Some(TrainerLog { pool: id, got_ms: at_ms, killed_ms: self.killed_ms, episodes, begun }))
    }
}

impl TrainerLog {
    fn compare(&self, entries: &[Entry], lanes: usize, harms: &[NodeHarm], audit: &mut TrainersAudit) {
        let mut stored: BTreeMap<(usize, u64), Vec<Stored>> = BTreeMap::new();
        for episode in finished_of(entries, self.pool) {
            stored.entry((episode.lane, episode.number)).or_default().push(episode);
        }
        let mut next = vec![0; lanes];
        // When the batch was asked for that ended the episode before.
        let mut began = vec![self.got_ms; lanes];
        for seen in &self.episodes {
            audit.episodes += 1;
            next[seen.lane] = seen.number + 1;
            let began_ms = std::mem::replace(&mut began[seen.lane], seen.asked_ms);
            match stored.get(&(seen.lane, seen.number)).map(Vec::as_slice) {
                None if self.is_at_risk(began_ms, seen, harms) => audit.undurable_lost += 1,
                None => audit.lost += 1,
                Some([one]) => {
                    let same = (one.length, one.total_reward.to_bits())
                        == (seen.length, seen.total_reward.to_bits());
                    audit.changed += u64::from(!same);
                }
                Some(_) => audit.duplicates += 1,
            }
        }
        // The batch that was under way may have ended one episode of each lane, which nobody saw.
        let late = |(lane, number): &(usize, u64)| next.get(*lane).is_none_or(|&next| *number > next);
        audit.invented += stored.keys().filter(|name| late(name)).count() as u64;
        // One is open if it began, and the batch that was under way did not end it.
        let open = |lane: usize, number: &u64| {
            self.begun.contains(&(lane, *number)) && !stored.contains_key(&(lane, *number))
        };
        let open: Vec<bool> = next.iter().enumerate().map(|(lane, number)| open(lane, number)).collect();
        self.compare_open(entries, &next, &open, harms, audit);
    }

    /// Compares the episodes that were open: each lane must have its episode's number or a later one.
    fn compare_open(
        &self,
        entries: &[Entry],
        next: &[u64],
        open: &[bool],
        harms: &[NodeHarm],
        audit: &mut TrainersAudit,
    ) {
        let of_it = |entry: &&Entry| entry.run == self.pool.short() && entry.outcome == "disconnected";
        let mut disconnected = vec![false; next.len()];
        for entry in entries.iter().filter(of_it) {
            let Stored { lane, number, .. } = entry.episode;
            if next.get(lane).is_some_and(|&next| number >= next) {
                disconnected[lane] = true;
            }
        }
        let until_ms = self.killed_ms + LEASE_OVER_MS;
        let undisturbed = !harms.iter().any(|harm| harm.overlaps(self.killed_ms - SETTLED_MS, until_ms));
        for (disconnected, &open) in disconnected.into_iter().zip(open) {
            audit.disconnected += u64::from(disconnected);
            audit.otherwise += u64::from(open && !disconnected && undisturbed);
        }
    }

    /// Returns whether the episode may be missing: its node's disk was full while it was open or shortly afterwards,
    /// before it was durable, or had room that its recorder had not found yet; or it ended so shortly before the
    /// trainer that it was neither durable nor could be recorded again elsewhere when a node was harmed.
    fn is_at_risk(&self, began_ms: u64, seen: &SeenEpisode, harms: &[NodeHarm]) -> bool {
        let full = |harm: &NodeHarm| {
            let is_full = harm.until_ms > harm.from_ms && harm.node == seen.node;
            is_full && harm.overlaps(began_ms.saturating_sub(FOUND_MS), seen.at_ms + NOT_DURABLE_MS)
        };
        let last = self.killed_ms < seen.at_ms + SETTLED_MS;
        let harmed = |harm: &NodeHarm| harm.overlaps(seen.asked_ms, self.killed_ms + NOT_DURABLE_MS);
        harms.iter().any(|harm| full(harm) || last && harmed(harm))
    }
}

impl NodeHarm {
    const fn overlaps(&self, from_ms: u64, until_ms: u64) -> bool {
        self.from_ms <= until_ms && from_ms <= self.until_ms
    }
}

/// Reads the lines that a trainer printed, in order; the last line may have been cut off.
fn said_in(log: &Path) -> Result<impl Iterator<Item = TrainerLine>, Failure> {
    let said = fs::read_to_string(log).map_err(failed)?;
    let whole = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let said: Vec<TrainerLine> = whole.filter_map(|line| TrainerLine::parse(line.trim_end())).collect();
    Ok(said.into_iter())
}

/// Milliseconds until a record is durable: as for the trainer that is compared.
const NOT_DURABLE_MS: u64 = 2_000;
const FOUND_MS: u64 = FOUND_WITHIN.as_millis() as u64;
/// Milliseconds after which an ended episode is safe: an owner that lives for so long has it recorded again where its
/// lanes go on, and it is durable then.
const SETTLED_MS: u64 = 10_000 + NOT_DURABLE_MS;
/// Time for which nothing may happen before trainers are killed whose lanes all have to end as `disconnected`.
pub(super) const SETTLED: Duration = Duration::from_millis(SETTLED_MS + 1_000);
/// Milliseconds of an owner's lease, and of the time before in which its connection still counts as alive.
const LEASE_OVER_MS: u64 = 30_000 + 15_000 + NOT_DURABLE_MS;

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: u64 = 100_000;

    fn seen(number: u64, at_ms: u64) -> SeenEpisode {
        let node = "node-0".to_owned();
        SeenEpisode { lane: 0, number, length: 5, total_reward: -5.0, asked_ms: at_ms - 500, at_ms, node }
    }

    fn entry(number: u64, length: u64, outcome: &str) -> Entry {
        let episode = Stored { lane: 0, number, length, total_reward: -5.0 };
        Entry { run: RunId::from_u128(7).short(), outcome: outcome.to_owned(), episode }
    }

    fn audit(episodes: &[SeenEpisode], entries: &[Entry], harms: &[NodeHarm]) -> TrainersAudit {
        let testimony = TrainerLog {
            pool: RunId::from_u128(7),
            got_ms: 0,
            killed_ms: KILLED,
            episodes: episodes.to_vec(),
            begun: (0..=2).map(|number| (0, number)).collect(),
        };
        let mut audit = TrainersAudit::default();
        testimony.compare(entries, 1, harms, &mut audit);
        audit
    }

    fn harm(from_ms: u64, until_ms: u64) -> NodeHarm {
        NodeHarm { node: "node-0".to_owned(), from_ms, until_ms }
    }

    #[test]
    fn an_audit_tells_what_of_a_killed_trainer_is_lost_doubled_invented_changed_and_open() {
        let saw = [seen(0, 50_000), seen(1, 60_000)];
        let all = [entry(0, 5, "terminated"), entry(1, 5, "terminated"), entry(2, 3, "disconnected")];
        let clean = TrainersAudit { episodes: 2, disconnected: 1, ..TrainersAudit::default() };
        assert_eq!(audit(&saw, &all, &[]), clean);
        let unseen = [&all[..2], &[entry(2, 5, "truncated"), entry(3, 1, "disconnected")]].concat();
        assert_eq!(audit(&saw, &unseen, &[]), TrainersAudit { ..clean });
        let clean = || TrainersAudit { episodes: 2, disconnected: 1, ..TrainersAudit::default() };
        assert_eq!(audit(&saw, &all[1..], &[]), TrainersAudit { lost: 1, ..clean() });
        let twice = [&all[..], &all[..1]].concat();
        assert_eq!(audit(&saw, &twice, &[]), TrainersAudit { duplicates: 1, ..clean() });
        let changed = [&all[1..], &[entry(0, 4, "terminated")]].concat();
        assert_eq!(audit(&saw, &changed, &[]), TrainersAudit { changed: 1, ..clean() });
        let invented = [&all[..], &[entry(3, 5, "terminated")]].concat();
        assert_eq!(audit(&saw, &invented, &[]), TrainersAudit { invented: 1, ..clean() });
        let otherwise = TrainersAudit { disconnected: 0, otherwise: 1, ..clean() };
        assert_eq!(audit(&saw, &all[..2], &[]), otherwise);
        let not_the_open_one = [&all[..2], &[entry(1, 3, "disconnected")]].concat();
        assert_eq!(audit(&saw, &not_the_open_one, &[]), otherwise);
        let ended_unseen = [&all[..2], &[entry(2, 5, "truncated")]].concat();
        assert_eq!(audit(&saw, &ended_unseen, &[]), TrainersAudit { disconnected: 0, ..clean() });
        let not_begun = [seen(0, 50_000), seen(1, 60_000), seen(2, 70_000)];
        let ended = TrainersAudit { episodes: 3, disconnected: 0, ..clean() };
        assert_eq!(audit(&not_begun, &ended_unseen, &[]), ended);
    }

    #[test]
    fn what_a_harmed_node_had_of_a_killed_trainer_may_be_missing_and_nothing_else() {
        let saw = [seen(0, 50_000), seen(1, KILLED - 1_000)];
        let lost = |harms: &[NodeHarm]| {
            let TrainersAudit { lost, undurable_lost, otherwise, .. } = audit(&saw, &[], harms);
            (lost, undurable_lost, otherwise)
        };
        assert_eq!(lost(&[]), (2, 0, 1));
        assert_eq!(lost(&[harm(KILLED + 1_500, KILLED + 1_500)]), (1, 1, 0), "shortly afterwards");
        assert_eq!(lost(&[harm(KILLED + 20_000, KILLED + 20_000)]), (2, 0, 0), "before its lease was over");
        assert_eq!(lost(&[harm(KILLED + 50_000, KILLED + 50_000)]), (2, 0, 1), "after that");
        assert_eq!(lost(&[harm(49_000, 49_000)]), (2, 0, 1), "a kill that its owner lived to see");
        assert_eq!(lost(&[harm(KILLED - 1_400, KILLED - 1_400)]), (1, 1, 0), "before all had answered");
        assert_eq!(lost(&[harm(40_000, 40_500)]), (1, 1, 1), "a full disk while the first was open");
        assert_eq!(lost(&[harm(49_000, 49_500)]), (0, 2, 1), "a full disk while one ended and one began");
    }
}
