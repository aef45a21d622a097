//! The report: the figures of a run, as text and as JSON.

use std::io;
use std::time::{Duration, Instant};

use rollhouse_cli::human::{Bytes, Count, Si, counted};
use rollhouse_cli::output::Output;
use serde::Serialize;

use super::audit::{Audit, Held};
use super::killed_trainers::TrainersAudit;
use super::storm::{Faults, Kind, Recovery, Sample, Storm};
use super::tenants::BesideTenants;
use super::trainer::{Fill, Seen};
use super::{ENV, LANES, NODES};
use crate::args::ChaosArgs;

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
pub(super) struct ChaosResult {
    env: &'static str,
    lanes: usize,
    nodes: usize,
    /// Whether it is a development build, with checks that a release build leaves out.
    debug_assertions: bool,
    seed: u64,
    /// Seconds from the first fault until all was well again.
    seconds: f64,
    faults: Faults,
    /// Number of datagrams that did not arrive because a link was cut.
    datagrams_lost: u64,
    recovery: Recoveries,
    /// Kills of nodes that delayed the trainer longest, while no process was paused and no link cut.
    slowest_kills: Vec<Slow>,
    throughput: Throughput,
    pub(super) audit: Audited,
    trainers: TrainersAudit,
    memory: Memory,
    /// Present if tenants flooded.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside_tenants: Option<BesideTenants>,
}

/// Times from a fault of a node that has lanes, or of the link to it, to the first step of all lanes that was begun
/// after it.
#[derive(Debug, Serialize)]
struct Recoveries {
    #[serde(flatten)]
    all: Times,
    node_killed: Times,
    /// Those of killed nodes while no process was paused and no link cut.
    node_killed_amid_no_silence: Times,
    /// Those of killed nodes while the coordinator was there.
    node_killed_coordinated: Times,
    node_paused: Times,
    node_disk_full: Times,
    link_cut: Times,
}

/// Times of recovery; they are absent if nothing of the kind hit lanes.
#[derive(Debug, Serialize)]
struct Times {
    count: usize,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    /// The longest time, counted from the fault's end on: for a kill, from the restart of the process.
    max_after_end_ms: Option<f64>,
}

/// A fault that delayed the trainer for long; times in seconds since the first fault.
#[derive(Debug, Serialize)]
struct Slow {
    at: f64,
    took: f64,
    /// The other faults shortly before or during it, with their times.
    beside: Vec<(f64, String)>,
}

/// Steps a second.
#[derive(Debug, Serialize)]
struct Throughput {
    undisturbed: f64,
    disturbed: f64,
    kept: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Audited {
    frames: u64,
    frames_differing: u64,
    episodes: u64,
    durable_lost: u64,
    /// The first of these episodes.
    lost: Vec<Lost>,
    /// Number of episodes that are not in the store and were open, or not durable yet, when their node's disk was full.
    undurable_lost: u64,
    duplicates: u64,
    invented: u64,
    changed: u64,
    leaked: Leaked,
}

/// A durable episode that is not in the store; times in seconds since the first fault.
#[derive(Debug, Serialize)]
struct Lost {
    lane: usize,
    number: u64,
    node: String,
    asked: f64,
    answered: f64,
    /// The last time before that at which the disk of its node was full.
    full: Option<(f64, Option<f64>)>,
}

#[derive(Debug, Serialize)]
pub(super) struct Leaked {
    /// Resources held by the trainer.
    #[serde(flatten)]
    pub(super) held: Held,
    /// Resources held by coordinator and nodes while they ran, beyond what they held before the first fault.
    pub(super) of_services: Held,
    /// Number of processes of the cluster that were left when all had been ended.
    pub(super) processes: u64,
    pub(super) socket_files: u64,
}

/// The memory of the trainer's process, unless a field says otherwise.
#[derive(Debug, Serialize)]
struct Memory {
    resident_bytes: u64,
    /// Slope of the straight line through the samples of the last four fifths of the time; absent in a run of under a
    /// minute.
    slope_mib_per_minute: Option<f64>,
    /// Largest number of open descriptors in the second fifth of the time; the next field is that in the last fifth.
    descriptors_early: u64,
    descriptors_late: u64,
    /// Resident bytes of the coordinator at the end.
    coordinator_resident_bytes: u64,
    node_resident_bytes: Vec<u64>,
}

/// What was found afterwards.
pub(super) struct Compared {
    pub(super) audit: Audit,
    pub(super) trainers: TrainersAudit,
    pub(super) leaked: Leaked,
    /// Number of datagrams that the links lost.
    pub(super) datagrams_lost: u64,
}

impl ChaosResult {
    pub(super) fn of(
        args: &ChaosArgs,
        storm: &Storm<'_>,
        compared: Compared,
        seen: &Seen,
        (fills, resident): (&[Fill], &[u64]),
        beside_tenants: Option<BesideTenants>,
    ) -> Self {
        let Compared { audit, trainers, leaked, datagrams_lost } = compared;
        let audit = Audited {
            frames: storm.batches(),
            frames_differing: seen.differing,
            episodes: seen.lanes.iter().map(|lane| lane.len() as u64).sum(),
            durable_lost: audit.lost.len() as u64,
            lost: audit
                .lost
                .iter()
                .take(MOST_NAMED)
                .map(|&name| Lost::of(name, seen, fills, storm.began))
                .collect(),
            undurable_lost: audit.lost_undurable,
            duplicates: audit.duplicates,
            invented: audit.invented,
            changed: audit.changed,
            leaked,
        };
        let seconds = storm.samples.last().map_or(0.0, |last| last.seconds);
        Self {
            env: ENV,
            lanes: LANES,
            nodes: NODES,
            debug_assertions: cfg!(debug_assertions),
            seed: args.seed,
            seconds,
            faults: storm.faults,
            datagrams_lost,
            recovery: Recoveries::of(&storm.recoveries),
            slowest_kills: Slow::of(storm),
            throughput: Throughput {
                undisturbed: storm.undisturbed,
                disturbed: storm.disturbed,
                kept: storm.disturbed / storm.undisturbed,
            },
            audit,
            trainers,
            memory: Memory::of(&storm.samples, seconds, resident),
            beside_tenants,
        }
    }

    pub(super) fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { env, lanes, nodes, seed, seconds, faults, recovery, throughput, .. } = self;
        writeln!(
            out,
            "{lanes} lanes of {env} on {nodes} nodes, recorded; faults of seed {seed} for {seconds:.0} s\n"
        )?;
        let Faults { node_killed, node_paused, node_disk_full, link_cut, link_cut_one_way, .. } = faults;
        writeln!(
            out,
            "Nodes were killed {node_killed} times, paused {node_paused} times and had a full disk {node_disk_full} \
             times, the coordinator {}, {} and {} times, and {} backups of it were restored; trainers were killed {} times. Links were cut {link_cut} times, and one way \
             {link_cut_one_way} times: {} datagrams were lost.",
            faults.coordinator_killed,
            faults.coordinator_paused,
            faults.coordinator_disk_full,
            faults.coordinator_restored,
            faults.trainer_killed,
            Count(self.datagrams_lost)
        )?;
        writeln!(out, "How long faults of nodes with lanes held the trainer up:")?;
        for (what, times) in [
            ("killed", &recovery.node_killed),
            ("- no pause", &recovery.node_killed_amid_no_silence),
            ("  - placed", &recovery.node_killed_coordinated),
            ("paused", &recovery.node_paused),
            ("full disk", &recovery.node_disk_full),
            ("link cut", &recovery.link_cut),
            ("all", &recovery.all),
        ] {
            times.print(what, out)?;
        }
        for slow in &self.slowest_kills {
            slow.print(out)?;
        }
        writeln!(
            out,
            "It made {} steps a second, {} undisturbed: {:.0} % are kept.",
            Si(throughput.disturbed),
            Si(throughput.undisturbed),
            throughput.kept * 100.0
        )?;
        self.audit.print(out)?;
        self.trainers.print(out)?;
        self.memory.print(out)?;
        self.beside_tenants.as_ref().map_or(Ok(()), |beside| beside.print(out))
    }
}

impl ChaosResult {
    /// Returns whether nothing was lost, doubled, invented or changed, and nothing is left over.
    pub(super) fn is_clean(&self) -> bool {
        let beside = self.beside_tenants.as_ref().is_none_or(BesideTenants::is_clean);
        self.audit.is_clean() && self.trainers.is_clean() && beside
    }
}

impl TrainersAudit {
    fn is_clean(&self) -> bool {
        let Self { lost, duplicates, invented, changed, otherwise, sessions, .. } = *self;
        [lost, duplicates, invented, changed, otherwise, sessions] == [0; 6]
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { killed, lost, undurable_lost, duplicates, invented, changed, .. } = *self;
        writeln!(
            out,
            "{} that played were killed: of {} episodes that they saw end {lost} are lost, and {undurable_lost} that were \
             not durable when a node was harmed; {duplicates} are listed twice, {invented} invented, {changed} changed. \
             {} lanes ended as disconnected, {} otherwise; {} sessions are left.",
            counted(killed, "trainer"),
            Count(self.episodes),
            self.disconnected,
            self.otherwise,
            self.sessions
        )?;
        if let (Some(median), Some(longest)) = (self.lanes_back_p50_ms, self.lanes_back_max_ms) {
            writeln!(
                out,
                "The next one with the token had its lanes {median} ms later (median), {longest} ms at most."
            )?;
        }
        Ok(())
    }
}

impl Recoveries {
    fn of(recoveries: &[Recovery]) -> Self {
        let of = |kind| Times::of(recoveries.iter().filter(|recovery| recovery.kind == kind));
        let kills =
            recoveries.iter().filter(|recovery| recovery.kind == Kind::Kill && !recovery.amid_silence);
        Self {
            all: Times::of(recoveries.iter()),
            node_killed: of(Kind::Kill),
            node_killed_coordinated: Times::of(kills.clone().filter(|recovery| !recovery.uncoordinated)),
            node_killed_amid_no_silence: Times::of(kills),
            node_paused: of(Kind::Pause),
            node_disk_full: of(Kind::Fill),
            link_cut: of(Kind::Cut),
        }
    }
}

impl Times {
    fn of<'a>(recoveries: impl Iterator<Item = &'a Recovery> + Clone) -> Self {
        let mut took: Vec<Duration> = recoveries.clone().map(|recovery| recovery.took).collect();
        took.sort();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let at = |share| quantile(&took, share).map(ms);
        let after = recoveries.map(|recovery| recovery.took - recovery.lasted).max();
        Self {
            count: took.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
            max_after_end_ms: after.map(ms),
        }
    }

    fn print(&self, what: &str, out: &mut Output) -> io::Result<()> {
        let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        writeln!(
            out,
            "  {what:<10} {:>11}: median {}, 99th percentile {}, longest {}, {} after its end",
            counted(self.count as u64, "fault"),
            time(self.p50_ms),
            time(self.p99_ms),
            time(self.max_ms),
            time(self.max_after_end_ms)
        )
    }
}

impl Audited {
    pub(super) fn is_clean(&self) -> bool {
        let Leaked { held, of_services, processes, socket_files } = &self.leaked;
        [held, of_services].into_iter().all(|held| *held == Held::default())
            && [self.frames_differing, self.durable_lost, self.duplicates, self.invented, self.changed]
                .iter()
                .chain([processes, socket_files])
                .all(|&count| count == 0)
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        writeln!(
            out,
            "Of {} frames {} differ from an engine's. Of {} episodes {} are lost, and {} that were not durable when a \
             disk was full; {} are listed twice, {} invented, {} changed.",
            Count(self.frames),
            self.frames_differing,
            Count(self.episodes),
            self.durable_lost,
            self.undurable_lost,
            self.duplicates,
            self.invented,
            self.changed
        )?;
        for lost in &self.lost {
            lost.print(out)?;
        }
        let Leaked { held, of_services, processes, socket_files } = &self.leaked;
        writeln!(
            out,
            "Left over: {} sockets, {} other descriptors, {} mappings, {processes} processes, {socket_files} socket \
             files; in the cluster's processes {} sockets, {} other descriptors, {} mappings.",
            held.sockets,
            held.descriptors,
            held.mappings,
            of_services.sockets,
            of_services.descriptors,
            of_services.mappings
        )
    }
}

impl Slow {
    fn of(storm: &Storm<'_>) -> Vec<Self> {
        let mut kills: Vec<&Recovery> =
            storm.recoveries.iter().filter(|r| r.kind == Kind::Kill && !r.amid_silence).collect();
        kills.sort_by_key(|recovery| std::cmp::Reverse(recovery.took));
        let slow = |recovery: &&Recovery| {
            let at = recovery.since;
            let beside = storm.happened.iter().filter(|happened| {
                happened.at <= at + recovery.took && happened.at + happened.fault.lasts + AFTERMATH >= at
            });
            let beside = beside.map(|h| (seconds(storm.began, h.at), h.fault.to_string())).collect();
            Self { at: seconds(storm.began, at), took: recovery.took.as_secs_f64(), beside }
        };
        kills.iter().take(MOST_SLOW).map(slow).collect()
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let beside: Vec<String> = self.beside.iter().map(|(at, what)| format!("{at:.1} s {what}")).collect();
        writeln!(out, "  a kill at {:.1} s took {:.1} s: {}", self.at, self.took, beside.join(", "))
    }
}

/// Returns the seconds from `began` to `at`; negative before it began.
fn seconds(began: Instant, at: Instant) -> f64 {
    match at.checked_duration_since(began) {
        Some(since) => since.as_secs_f64(),
        None => -(began - at).as_secs_f64(),
    }
}

impl Lost {
    fn of((lane, number): (usize, u64), seen: &Seen, fills: &[Fill], began: Instant) -> Self {
        let ended = seen.lanes[lane][number as usize];
        let node = seen.nodes[ended.node].clone();
        let seconds = |at| seconds(began, at);
        let before = |fill: &&Fill| fill.node == node && fill.from <= ended.answered;
        let full = fills.iter().rev().find(before).map(|fill| (seconds(fill.from), fill.until.map(seconds)));
        Self { lane, number, asked: seconds(ended.asked), answered: seconds(ended.answered), node, full }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { lane, number, node, asked, answered, full } = self;
        write!(
            out,
            "  lost: lane {lane}, episode {number}, which {node} ended between {asked:.3} s and {answered:.3} s"
        )?;
        match full {
            Some((from, Some(until))) => {
                writeln!(out, "; its disk had been full from {from:.3} s to {until:.3} s")
            }
            Some((from, None)) => writeln!(out, "; its disk was full from {from:.3} s on"),
            None => writeln!(out, "; its disk had not been full"),
        }
    }
}

impl Memory {
    fn of(samples: &[Sample], seconds: f64, services: &[u64]) -> Self {
        let points: Vec<_> = samples.iter().map(|sample| (sample.seconds, sample.resident as f64)).collect();
        let fifth = seconds / 5.0;
        let most = |from: f64, to: f64| {
            let within = samples.iter().filter(|sample| (from..=to).contains(&sample.seconds));
            within.map(|sample| sample.descriptors).max().unwrap_or(0)
        };
        Self {
            resident_bytes: samples.last().map_or(0, |last| last.resident),
            slope_mib_per_minute: (seconds >= 60.0).then(|| slope(&points, fifth)),
            descriptors_early: most(fifth, 2.0 * fifth),
            descriptors_late: most(4.0 * fifth, seconds),
            coordinator_resident_bytes: services.first().copied().unwrap_or(0),
            node_resident_bytes: services.get(1..).unwrap_or_default().to_vec(),
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let slope = self.slope_mib_per_minute.map_or("-".to_owned(), |slope| format!("{slope:.2} MiB"));
        writeln!(
            out,
            "The trainer holds {}, and {slope} more each minute; at most {} descriptors early, {} late.",
            Bytes(self.resident_bytes),
            self.descriptors_early,
            self.descriptors_late
        )
    }
}

/// Returns the slope in mebibytes a minute of the straight line nearest to the samples from `from` seconds on.
fn slope(samples: &[(f64, f64)], from: f64) -> f64 {
    let late: Vec<_> = samples.iter().filter(|(seconds, _)| *seconds >= from).collect();
    let count = late.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| late.iter().map(|sample| of(sample)).sum::<f64>() / count;
    let (at, bytes) = (mean(|sample| sample.0), mean(|sample| sample.1));
    let (mut above, mut below) = (0.0, 0.0);
    for (second, byte) in late {
        above += (second - at) * (byte - bytes);
        below += (second - at) * (second - at);
    }
    if below == 0.0 { 0.0 } else { above / below * 60.0 / MIB }
}

/// Returns the smallest of the sorted values that at least this share of them does not exceed.
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Number of slow kills that are reported.
const MOST_SLOW: usize = 8;
/// Time after its end for which a fault may still delay others.
const AFTERMATH: Duration = Duration::from_secs(5);
/// Number of lost episodes that are named.
const MOST_NAMED: usize = 20;
const MIB: f64 = (1 << 20) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_line_through_the_samples_after_warm_up() {
        let line = |second: f64| (second, 5.0 * MIB + second / 60.0 * 2.0 * MIB);
        let mut samples: Vec<_> = (0..100).map(|second| line(f64::from(second))).collect();
        samples[3].1 = 0.0;
        assert!((slope(&samples, 20.0) - 2.0).abs() < 1e-6);
        assert!(slope(&samples, 0.0) > 2.0);
        assert_eq!(slope(&samples[..1], 0.0), 0.0);
    }
}
