//! `rollhouse-bench cluster`: measures a cluster with many small sessions, with a large one, and at rest.
//!
//! Coordinator, node and client are this one process, as `rollhouse up` starts them, and speak over the loopback
//! device. The client is one thread, which plays all sessions at a time. Everything is recorded and shipped.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::human::{Bytes, Count, Si};
use rollhouse_cli::output::{Output, say};
use rollhouse_cli::service::STOP_DEADLINE;
use rollhouse_cli::table::{Align, Table};
use rollhouse_cli::up::Local;
use rollhouse_client::{Address, AsyncCluster, ConnectOptions, Transport};
use rollhouse_config::{LocalConfig, LocalListen, LocalMetrics};
use rollhouse_coordinator::Stopped;
use serde::Serialize;
use tokio::runtime::Builder;

use self::crashes::Crashed;
use self::footprint::Footprint;
use self::sessions::{Played, Rested};
use crate::args::ClusterArgs;
use crate::failed::failed;
use crate::scratch::Scratch;
use crate::spread::Spread;

mod crashes;
mod footprint;
mod sessions;

/// Measures and prints the figures. It fails, after the figures, if sessions did not pass.
pub(super) fn run(args: &ClusterArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let local = start(&folder.0)?;
    // The client's alone: coordinator and node have threads of their own.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let measured = runtime.block_on(measure(args, &local.connection));
    drop(runtime);
    let stopped = stop(local);
    let (result, failure) = measured?;
    stopped?;
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    if cfg!(debug_assertions) {
        say("note: a development build, with checks that a release build leaves out");
    }
    failure.map_or(Ok(Status::Done), Err)
}

pub(super) fn start(folder: &Path) -> Result<Local, Failure> {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let local = Local::start(&LocalConfig {
        data: folder.join("cluster"),
        listen: LocalListen { coordinator: any, node: any },
        metrics: LocalMetrics { coordinator: None, node: None },
        ..LocalConfig::default()
    })?;
    match local.joined {
        true => Ok(local),
        false => Err(Failure::new(Status::Failed, "the node did not join its coordinator")),
    }
}

pub(super) fn stop(local: Local) -> Result<(), Failure> {
    let report = local.node.stop(STOP_DEADLINE);
    let stopped = local.coordinator.stop(STOP_DEADLINE);
    // Figures of a cluster that did not record would be of something else.
    report.recorded.transpose().map_err(failed)?;
    match stopped {
        Stopped::InOrder | Stopped::CutOff => Ok(()),
        Stopped::Failed => Err(Failure::new(Status::Failed, "the coordinator has failed")),
    }
}

/// Returns the figures, and why a session did not pass.
async fn measure(args: &ClusterArgs, connection: &str) -> Result<(ClusterResult, Option<Failure>), Failure> {
    let address: Address = connection.parse().map_err(failed)?;
    let cluster = AsyncCluster::connect(&address, options()).await.map_err(failed)?;
    let mut played = sessions::play(&cluster, args.sessions, args.episodes).await?;
    let opening = sessions::time_opening(&cluster, LARGE_POOL, OPENINGS).await?;
    let crashed = crashes::crash(&cluster, CRASHING_LANES).await?;
    let time = Duration::from_secs(args.idle_seconds.into());
    let rested = sessions::rest(&cluster, args.idle_sessions, time).await?;
    cluster.close().await;
    let failure = played.failure.take();
    let result = ClusterResult {
        env: ENV,
        debug_assertions: cfg!(debug_assertions),
        playing: Playing::of(args, &played),
        opening: Opening { lanes: LARGE_POOL, times: OPENINGS, ms: spread_ms(opening) },
        crashing: Crashing::of(&crashed),
        resting: Resting::of(args, &rested),
    };
    Ok((result, failure))
}

/// Returns the options with which trainers of other machines connect.
fn options() -> ConnectOptions {
    ConnectOptions { transport: Some(Transport::Quic), ..ConnectOptions::default() }
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct ClusterResult {
    env: &'static str,
    /// Whether it is a development build, with checks that a release build leaves out.
    debug_assertions: bool,
    playing: Playing,
    opening: Opening,
    crashing: Crashing,
    resting: Resting,
}

#[derive(Debug, Serialize)]
struct Playing {
    sessions: u32,
    episodes_per_session: u32,
    passed: u32,
    pass_rate: f64,
    /// Median time of a reset; absent if no reset was answered.
    reset_p50_ms: Option<f64>,
    reset_p99_ms: Option<f64>,
    steps: u64,
    seconds: f64,
    steps_per_second: f64,
    /// Footprint of coordinator, node and client together, with all sessions open.
    process: Footprint,
    reference: Reference,
}

/// Stated figures of the system from which this one grew. Nothing here measures them.
#[derive(Debug, Serialize)]
struct Reference {
    reset_ms: f64,
    steps_per_second: f64,
    resident_bytes: u64,
    threads: u64,
}

#[derive(Debug, Serialize)]
struct Opening {
    lanes: u32,
    times: usize,
    ms: Spread,
}

#[derive(Debug, Serialize)]
struct Crashing {
    lanes: u32,
    /// Number of lanes that crashed and came back.
    crashed: usize,
    /// Median time from the answer that told of the crash to the one with the lane's next episode.
    away_p50_ms: Option<f64>,
    away_p99_ms: Option<f64>,
    /// Number of steps of lanes that were there.
    steps: u64,
    steps_missing: u64,
}

impl Crashing {
    fn of(crashed: &Crashed) -> Self {
        let Crashed { away, steps, steps_missing } = crashed;
        let away_ms = |share| quantile(away, share).map(|time| time.as_secs_f64() * 1e3);
        Self {
            lanes: CRASHING_LANES,
            crashed: away.len(),
            away_p50_ms: away_ms(0.50),
            away_p99_ms: away_ms(0.99),
            steps: *steps,
            steps_missing: *steps_missing,
        }
    }
}

#[derive(Debug, Serialize)]
struct Resting {
    sessions: u32,
    seconds: f64,
    /// Share of one core that coordinator, node and client together used.
    core_share: f64,
    /// The footprint before the sessions were opened; threads that wait for the disk may still end then.
    before: Footprint,
    /// The footprint with the sessions, at the end.
    with: Footprint,
}

impl Playing {
    fn of(args: &ClusterArgs, played: &Played) -> Self {
        let reset_ms = |share| quantile(&played.resets, share).map(|time| time.as_secs_f64() * 1e3);
        let seconds = played.took.as_secs_f64();
        Self {
            sessions: args.sessions,
            episodes_per_session: args.episodes,
            passed: played.passed,
            pass_rate: f64::from(played.passed) / f64::from(args.sessions),
            reset_p50_ms: reset_ms(0.50),
            reset_p99_ms: reset_ms(0.99),
            steps: played.steps,
            seconds,
            steps_per_second: played.steps as f64 / seconds,
            process: played.footprint,
            reference: REFERENCE,
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { process, reference, .. } = self;
        let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
        let stated = |text: String| format!("{text} (stated)");
        let mut table = Table::new(&[("", Align::Left), ("HERE", Align::Right), ("REFERENCE", Align::Right)]);
        let mut row = |what: &str, here, reference| table.row(vec![what.to_owned(), here, reference]);
        let passed = format!("{} of {} ({:.1} %)", self.passed, self.sessions, self.pass_rate * 100.0);
        row("sessions that passed", passed, String::new());
        row("reset, median", ms(self.reset_p50_ms), stated(format!("{} ms", reference.reset_ms)));
        row("reset, 99th percentile", ms(self.reset_p99_ms), String::new());
        let speed = |speed| Si(speed).to_string();
        row("steps a second", speed(self.steps_per_second), stated(speed(reference.steps_per_second)));
        let (bytes, there) = (Bytes(process.resident_bytes), Bytes(reference.resident_bytes));
        row("resident memory", bytes.to_string(), stated(there.to_string()));
        row("threads", process.threads.to_string(), stated(reference.threads.to_string()));
        row("descriptors", process.descriptors.to_string(), String::new());
        table.write(out)
    }
}

impl Resting {
    fn of(args: &ClusterArgs, rested: &Rested) -> Self {
        let [before, with] = rested.footprints;
        let seconds = rested.took.as_secs_f64();
        Self {
            sessions: args.idle_sessions,
            seconds,
            core_share: rested.processor_time.as_secs_f64() / seconds,
            before,
            with,
        }
    }
}

impl ClusterResult {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { env, playing, opening, crashing, resting, .. } = self;
        writeln!(
            out,
            "{} sessions of one lane of {env}, {} episodes in each, random actions, recorded: {} steps in {:.2} s\n",
            playing.sessions,
            playing.episodes_per_session,
            Count(playing.steps),
            playing.seconds
        )?;
        playing.print(out)?;
        writeln!(
            out,
            "\nCoordinator, node and client are this process, over loopback; resets are explicit requests and count \
             into the time, not as steps.\nThe reference is what is stated of the system this grew from: other \
             environments, and not measured here.\n"
        )?;
        let Opening { lanes, times, ms } = opening;
        let lanes = Count((*lanes).into());
        writeln!(
            out,
            "A pool of {lanes} lanes opens in {:.1} ms (median of {times}, {:.1} to {:.1}; 50 is wanted).",
            ms.median, ms.min, ms.max
        )?;
        let Crashing { crashed, away_p50_ms, away_p99_ms, steps_missing, .. } = crashing;
        writeln!(
            out,
            "Of {} lanes in one pool {crashed} crashed and were back after {:.0} ms (median) and {:.0} ms (99th \
             percentile; 1,000 is wanted); the others missed {} steps.",
            crashing.lanes,
            away_p50_ms.unwrap_or(f64::NAN),
            away_p99_ms.unwrap_or(f64::NAN),
            Count(*steps_missing)
        )?;
        let Resting { sessions, seconds, core_share, before, with } = resting;
        let grown = with.resident_bytes as f64 - before.resident_bytes as f64;
        writeln!(
            out,
            "{} open sessions that nobody steps use {:.2} % of a core over {seconds:.1} s (1 is wanted) and {:.1} kB of \
             memory each.\nThe process has {} threads and {} descriptors then; before they were opened it had {} and {}.",
            Count((*sessions).into()),
            core_share * 100.0,
            grown / f64::from(*sessions) / 1e3,
            with.threads,
            with.descriptors,
            before.threads,
            before.descriptors
        )
    }
}

/// Returns the smallest of the sorted values that at least this share of them does not exceed.
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn spread_ms(mut times: Vec<Duration>) -> Spread {
    times.sort();
    let ms = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
    let (min, max) = (times.first().copied(), times.last().copied());
    Spread { min: ms(min), median: ms(quantile(&times, 0.5)), max: ms(max) }
}

const ENV: &str = "CartPole-v1";
const LARGE_POOL: u32 = 4096;
const CRASHING_LANES: u32 = 256;
/// Number of openings; odd, so that the median is one of them.
const OPENINGS: usize = 11;
const REFERENCE: Reference =
    Reference { reset_ms: 256.0, steps_per_second: 15e3, resident_bytes: 6_000_000_000, threads: 20 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantile(&times, 0.5), Some(Duration::from_millis(50)));
        assert_eq!(quantile(&times, 0.99), Some(Duration::from_millis(99)));
        assert_eq!(quantile(&times[..1], 0.99), Some(Duration::from_millis(1)));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
