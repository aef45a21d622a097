//! `rollhouse bench chaos`: a trainer steps lanes of a cluster whose processes are killed and paused.
//!
//! Coordinator and nodes are processes of this program, the trainer is this one. It compares every frame with that of
//! an engine of its own, and afterwards every episode of the store with those it saw.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rollhouse_client::{Address, Cluster, ConnectOptions, OnLoss, Pool, PoolRequest, Transport};
use rollhouse_core::RunId;
use rollhouse_metrics::ProcessSample;
use rollhouse_wire::Spread;
use serde::Serialize;

use self::audit::{Audit, Held};
use self::plan::{Blow, Fault, Plan, Target};
use self::processes::Processes;
use self::trainer::{Progress, Seen, Trainer};
use super::Scratch;
use crate::args::BenchChaosArgs;
use crate::certs::write_private;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, Si, counted};
use crate::output::{Output, say};

mod audit;
mod plan;
mod processes;
mod trainer;

/// Runs and prints. An episode that is lost, doubled, invented or changed, a frame that differs, and anything that
/// leaks make it fail, after the figures.
pub(super) fn run(args: &BenchChaosArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let processes = Processes::start(&folder.0, NODES)?;
    let connection = folder.0.join("connection");
    write_private(&connection, &format!("{}\n", processes.connection))?;
    let result = measure(args, processes, &folder.0, &connection)?;
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    if cfg!(debug_assertions) {
        say("note: a development build, with checks that a release build leaves out");
    }
    Ok(if result.audit.is_clean() { Status::Done } else { Status::Found })
}

fn measure(
    args: &BenchChaosArgs,
    mut processes: Processes,
    folder: &Path,
    connection: &Path,
) -> Result<ChaosResult, Failure> {
    let before = Held::now()?;
    let cluster = connect(&processes.connection)?;
    let pool = cluster.open_pool(request()).map_err(failed)?;
    let run = pool.id();
    let trainer = Trainer::begin(pool)?;
    let progress = Progress::default();
    let (storm, played) = thread::scope(|scope| {
        let playing = scope.spawn(|| trainer.play(&progress));
        let storm = Storm::new(args, &progress).rage(&mut processes);
        progress.end.store(true, Ordering::Relaxed);
        (storm, playing.join())
    });
    let (pool, mut seen) = played.map_err(|_| Failure::new(Status::Failed, "the trainer panicked"))?;
    if let Some(failure) = seen.failure.take() {
        return Err(failure);
    }
    let storm = storm?;
    close(&cluster, pool, run)?;
    let audit = settled_audit(&seen, connection)?;
    drop(cluster);
    processes.end()?;
    let leaked = Leaked {
        held: released(before)?,
        processes: audit::processes_in(folder)?,
        socket_files: socket_files(folder)?,
    };
    Ok(ChaosResult::of(args, &storm, &audit, leaked, &seen))
}

fn connect(connection: &str) -> Result<Cluster, Failure> {
    let address: Address = connection.parse().map_err(failed)?;
    let options =
        ConnectOptions { timeout: PATIENCE, transport: Some(Transport::Quic), ..ConnectOptions::default() };
    Cluster::connect(&address, options, None).map_err(failed)
}

fn request() -> PoolRequest {
    let mut request = PoolRequest::new(ENV, LANES as u32);
    (request.spread, request.on_loss) = (Spread::Even, Some(OnLoss::Resume));
    request
}

/// Closes the pool, and waits until everything that nodes recorded of it is in the store.
fn close(cluster: &Cluster, pool: Pool, run: RunId) -> Result<(), Failure> {
    pool.close().map_err(failed)?;
    let until = Instant::now() + PATIENCE;
    while !cluster.pool_status(run).map_err(failed)?.shipped {
        if Instant::now() >= until {
            return Err(Failure::new(
                Status::Failed,
                "recordings of the run did not reach the store in time",
            ));
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Looks until nothing is missing any more, or for as long as shipping may take.
fn settled_audit(seen: &Seen, connection: &Path) -> Result<Audit, Failure> {
    let until = Instant::now() + SHIPPED_WITHIN;
    loop {
        let audit = Audit::of(&seen.lanes, audit::list(connection)?);
        // A coordinator that was killed has forgotten what nodes still have of the run.
        if audit.lost == 0 || Instant::now() >= until {
            return Ok(audit);
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// What is held beyond `before`, once what ends in the background has ended.
fn released(before: Held) -> Result<Held, Failure> {
    let until = Instant::now() + RELEASED_WITHIN;
    loop {
        let beyond = Held::now()?.beyond(before);
        if beyond == Held::default() || Instant::now() >= until {
            return Ok(beyond);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Sockets that processes left in the folder.
fn socket_files(folder: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::FileTypeExt;
    let mut found = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            let inside = fs::read_dir(path).map_err(failed)?.flatten();
            found += inside.filter(|e| e.file_type().is_ok_and(|kind| kind.is_socket())).count() as u64;
        }
    }
    Ok(found)
}

/// Faults, and how the trainer fares under them.
struct Storm<'a> {
    args: &'a BenchChaosArgs,
    progress: &'a Progress,
    plan: Plan,
    began: Instant,
    faults: Faults,
    /// Faults that hit lanes: when, and the batch after which the trainer knows them behind it.
    open: Vec<(Instant, u64)>,
    /// From such a fault to the first batch that was begun after it.
    recoveries: Vec<Duration>,
    /// Seconds since the first fault, and bytes.
    memory: Vec<(f64, f64)>,
    undisturbed: f64,
    disturbed: f64,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Faults {
    node_killed: u64,
    node_paused: u64,
    coordinator_killed: u64,
    coordinator_paused: u64,
}

impl<'a> Storm<'a> {
    fn new(args: &'a BenchChaosArgs, progress: &'a Progress) -> Self {
        Self {
            args,
            progress,
            plan: Plan::new(args.seed, NODES),
            began: Instant::now(),
            faults: Faults::default(),
            open: Vec::new(),
            recoveries: Vec::new(),
            memory: Vec::new(),
            undisturbed: 0.0,
            disturbed: 0.0,
        }
    }

    /// Looks on for a while, then has faults happen until there were enough for long enough, and waits until all that
    /// they hit runs again.
    fn rage(mut self, processes: &mut Processes) -> Result<Self, Failure> {
        let quarter = Duration::from_secs(15 * u64::from(self.args.minutes));
        let calm = quarter.clamp(LEAST_CALM, MOST_CALM);
        self.began = Instant::now();
        let steps = self.batches();
        while self.began.elapsed() < calm && !self.trainer_has_failed() {
            thread::sleep(LOOK_AGAIN);
        }
        self.undisturbed = self.rate(steps);

        let steps = self.batches();
        self.began = Instant::now();
        let time = Duration::from_secs(60 * u64::from(self.args.minutes));
        let mut next = self.began;
        let mut fault = self.plan.next();
        let mut alone = false;
        while self.began.elapsed() < time || self.kills() < self.args.kills {
            let (now, up) = self.turn(processes)?;
            let quiet = !alone || up && self.open.is_empty();
            if !quiet {
                next = now + fault.rest;
            } else if now >= next && processes.is_up(fault.target) {
                self.strike(processes, fault, now)?;
                (next, alone) = (now + fault.rest, fault.alone);
                fault = self.plan.next();
            } else if now >= next {
                fault = self.plan.next();
            }
        }
        let until = Instant::now() + PATIENCE;
        while !self.turn(processes)?.1 || !self.open.is_empty() {
            if Instant::now() >= until {
                return Err(Failure::new(Status::Failed, "the trainer did not go on after the last fault"));
            }
        }
        self.disturbed = self.rate(steps);
        self.recoveries.sort();
        Ok(self)
    }

    /// A moment passes: what is due happens. Whether all processes run.
    fn turn(&mut self, processes: &mut Processes) -> Result<(Instant, bool), Failure> {
        thread::sleep(TURN);
        let now = Instant::now();
        let up = processes.turn(now)?;
        let batches = self.batches();
        self.open.retain(|&(since, batch)| {
            let over = batches >= batch;
            if over {
                self.recoveries.push(now - since);
            }
            !over
        });
        let seconds = self.began.elapsed().as_secs_f64();
        if self.memory.last().is_none_or(|&(last, _)| seconds - last >= SAMPLE_EVERY) {
            let bytes = ProcessSample::now().map_err(failed)?.resident_bytes;
            self.memory.push((seconds, bytes as f64));
        }
        if self.trainer_has_failed() {
            self.open.clear();
            return Err(Failure::new(Status::Failed, "a step of the trainer failed"));
        }
        Ok((now, up))
    }

    fn strike(&mut self, processes: &mut Processes, fault: Fault, now: Instant) -> Result<(), Failure> {
        let until = now + fault.lasts;
        let counter = match (fault.target, fault.blow) {
            (Target::Node(_), Blow::Kill) => &mut self.faults.node_killed,
            (Target::Node(_), Blow::Pause) => &mut self.faults.node_paused,
            (Target::Coordinator, Blow::Kill) => &mut self.faults.coordinator_killed,
            (Target::Coordinator, Blow::Pause) => &mut self.faults.coordinator_paused,
        };
        *counter += 1;
        let has_lanes = processes.name(fault.target).is_some_and(|name| {
            let nodes = self.progress.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.iter().any(|node| node == name)
        });
        match fault.blow {
            Blow::Kill => processes.kill(fault.target, until),
            Blow::Pause => processes.pause(fault.target, until),
        }
        .map_err(failed)?;
        if has_lanes {
            // The batch after the one that is under way was begun later than this.
            self.open.push((now, self.batches() + 2));
        }
        Ok(())
    }

    fn kills(&self) -> u64 {
        self.faults.node_killed + self.faults.coordinator_killed
    }

    fn batches(&self) -> u64 {
        self.progress.batches.load(Ordering::Acquire)
    }

    /// Steps a second since there were `steps` batches.
    fn rate(&self, steps: u64) -> f64 {
        (self.batches() - steps) as f64 * LANES as f64 / self.began.elapsed().as_secs_f64()
    }

    fn trainer_has_failed(&self) -> bool {
        self.progress.failed.load(Ordering::Relaxed)
    }
}

/// What `--json` prints; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct ChaosResult {
    env: &'static str,
    lanes: usize,
    nodes: usize,
    /// A development build, with checks that a release build leaves out.
    debug_assertions: bool,
    seed: u64,
    /// From the first fault on, until all was well again.
    seconds: f64,
    faults: Faults,
    recovery: Recovery,
    throughput: Throughput,
    audit: Audited,
    memory: Memory,
}

/// From a fault of a node that has lanes to the first step of all lanes that was begun after it.
#[derive(Debug, Serialize)]
struct Recovery {
    count: usize,
    /// Absent if no fault hit lanes.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
}

/// Steps a second.
#[derive(Debug, Serialize)]
struct Throughput {
    undisturbed: f64,
    disturbed: f64,
    kept: f64,
}

#[derive(Debug, Serialize)]
struct Audited {
    frames: u64,
    frames_differing: u64,
    episodes: u64,
    durable_lost: u64,
    duplicates: u64,
    invented: u64,
    changed_lanes: u64,
    leaked: Leaked,
}

#[derive(Debug, Serialize)]
struct Leaked {
    /// By the trainer.
    #[serde(flatten)]
    held: Held,
    /// Of the cluster, when all had been ended.
    processes: u64,
    socket_files: u64,
}

/// Of the trainer's process.
#[derive(Debug, Serialize)]
struct Memory {
    resident_bytes: u64,
    /// Of a straight line through the samples of the last four fifths of the time; absent in a run of under a minute.
    slope_mib_per_minute: Option<f64>,
}

impl ChaosResult {
    fn of(args: &BenchChaosArgs, storm: &Storm<'_>, audit: &Audit, leaked: Leaked, seen: &Seen) -> Self {
        let ms = |share| quantile(&storm.recoveries, share).map(|time| time.as_secs_f64() * 1e3);
        let recovery =
            Recovery { count: storm.recoveries.len(), p50_ms: ms(0.5), p99_ms: ms(0.99), max_ms: ms(1.0) };
        let audit = Audited {
            frames: storm.batches(),
            frames_differing: seen.differing,
            episodes: seen.lanes.iter().map(|lane| lane.count).sum(),
            durable_lost: audit.lost,
            duplicates: audit.duplicates,
            invented: audit.invented,
            changed_lanes: audit.changed_lanes,
            leaked,
        };
        let seconds = storm.memory.last().map_or(0.0, |&(seconds, _)| seconds);
        Self {
            env: ENV,
            lanes: LANES,
            nodes: NODES,
            debug_assertions: cfg!(debug_assertions),
            seed: args.seed,
            seconds,
            faults: storm.faults,
            recovery,
            throughput: Throughput {
                undisturbed: storm.undisturbed,
                disturbed: storm.disturbed,
                kept: storm.disturbed / storm.undisturbed,
            },
            audit,
            memory: Memory {
                resident_bytes: storm.memory.last().map_or(0, |&(_, bytes)| bytes as u64),
                slope_mib_per_minute: (seconds >= 60.0).then(|| slope(&storm.memory, seconds / 5.0)),
            },
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { env, lanes, nodes, seed, seconds, faults, recovery, throughput, audit, memory, .. } = self;
        writeln!(
            out,
            "{lanes} lanes of {env} on {nodes} nodes, recorded; faults of seed {seed} for {seconds:.0} s\n"
        )?;
        let Faults { node_killed, node_paused, coordinator_killed, coordinator_paused } = faults;
        writeln!(
            out,
            "Nodes were killed {node_killed} times and paused {node_paused} times, the coordinator \
             {coordinator_killed} and {coordinator_paused} times."
        )?;
        let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        writeln!(
            out,
            "After {} of nodes with lanes the trainer went on within {} (median), {} (99th percentile), {} (longest).",
            counted(recovery.count as u64, "fault"),
            time(recovery.p50_ms),
            time(recovery.p99_ms),
            time(recovery.max_ms)
        )?;
        writeln!(
            out,
            "It made {} steps a second, {} undisturbed: {:.0} % are kept.",
            Si(throughput.disturbed),
            Si(throughput.undisturbed),
            throughput.kept * 100.0
        )?;
        writeln!(
            out,
            "Of {} frames {} differ from an engine's. Of {} episodes {} are lost, {} listed twice, {} invented; {} \
             lanes have others than were played.",
            Count(audit.frames),
            audit.frames_differing,
            Count(audit.episodes),
            audit.durable_lost,
            audit.duplicates,
            audit.invented,
            audit.changed_lanes
        )?;
        let Leaked { held, processes, socket_files } = &audit.leaked;
        writeln!(
            out,
            "Left over: {} sockets, {} other descriptors, {} mappings, {processes} processes, {socket_files} socket \
             files.",
            held.sockets, held.descriptors, held.mappings
        )?;
        let slope = memory.slope_mib_per_minute.map_or("-".to_owned(), |slope| format!("{slope:.2} MiB"));
        writeln!(out, "The trainer holds {}, and {slope} more each minute.", Bytes(memory.resident_bytes))
    }
}

impl Audited {
    fn is_clean(&self) -> bool {
        let Leaked { held, processes, socket_files } = &self.leaked;
        *held == Held::default()
            && [self.frames_differing, self.durable_lost, self.duplicates, self.invented, self.changed_lanes]
                .iter()
                .chain([processes, socket_files])
                .all(|&count| count == 0)
    }
}

/// Mebibytes a minute, of the straight line that is nearest to the samples from `from` seconds on.
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

/// The smallest of the sorted values that at least this share of them does not exceed.
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn failed(error: impl Error + 'static) -> Failure {
    Failure::of(Status::Failed, &error)
}

/// Its episodes last some hundreds of steps, so that a long run has not too many of them.
const ENV: &str = "Acrobot-v1";
const LANES: usize = 64;
const NODES: usize = 3;
/// For a step, and for whatever else is waited for: several faults in turn take less.
const PATIENCE: Duration = Duration::from_secs(120);
/// Nodes that could not ship try again within 30 s.
const SHIPPED_WITHIN: Duration = Duration::from_secs(60);
const RELEASED_WITHIN: Duration = Duration::from_secs(10);
/// How long the trainer steps before the first fault: a quarter of the time, within these.
const LEAST_CALM: Duration = Duration::from_secs(5);
const MOST_CALM: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const TURN: Duration = Duration::from_millis(2);
/// Seconds between samples of memory.
const SAMPLE_EVERY: f64 = 1.0;
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
