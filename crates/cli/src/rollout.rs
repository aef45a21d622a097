//! `rollhouse rollout`: plays and records episodes, which is the main job.

mod remote;
mod summary;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_core::limits::{MAX_THREADS, PER_EPISODE_SEED_BOUND};
use rollhouse_core::{AutoresetMode, Determinism, EnvSpec, GameResult, Goal, Options, Outcome, RecordRule};
use rollhouse_engine::EngineConfig;
use rollhouse_env::EnvEntry;
use rollhouse_host::ConnectWatch;
use rollhouse_node::{Cancel, Exit, Node, Report, Rollout, RolloutError};
use rollhouse_replay::{Beside, RecordError, Recorded, Recorder};

use crate::args::{OptionArgs, Place, RolloutArgs, data_option};
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, Real, Si, Time, counted};
use crate::logging::Logging;
use crate::output::{Output, complain, say};
use crate::progress_bar::ProgressBar;
use crate::python_envs;
use crate::recording::{open_recorder, wall_ms};
use crate::service::PROGRAM;
use crate::signals;
use summary::RolloutSummary;

pub(crate) fn run(args: &RolloutArgs, out: &mut Output) -> Result<Status, Failure> {
    match args.data.place() {
        Place::Folder(_) if args.detach => {
            let message = "--detach is for the nodes of a cluster, and none is named";
            Err(Failure::new(Status::Usage, message).hint("give --connect URL or set $ROLLHOUSE_CONNECT"))
        }
        Place::Folder(dir) => local(args, &dir, out),
        Place::Cluster if !args.plugins.plugins.is_empty() => {
            let message = "--plugin is for rollouts on this machine, and a cluster is named";
            Err(Failure::new(Status::Usage, message)
                .hint("a node loads the plug-ins that [[plugin]] in its config names"))
        }
        Place::Cluster => match args.python.hosting.given() {
            Some(name) => {
                let message = format_args!("{name} is for this machine, and a cluster is named");
                Err(Failure::new(Status::Usage, message)
                    .hint("[python] in a node's config says how it hosts envs"))
            }
            None => remote::run(args, out),
        },
    }
}

/// Runs the rollout on this machine, in this process.
fn local(args: &RolloutArgs, dir: &Path, out: &mut Output) -> Result<Status, Failure> {
    let connecting = ConnectWatch::default();
    if args.env.source().is_learned() {
        // Reasons for which its lanes are lost are logged from here on.
        Logging::begin_warnings("rollout")?;
    }
    let env = python_envs::of_id(&args.env, &args.plugins, &args.python, false, &connecting)?;
    let rollout = Rollout { connecting, ..plan(args, env)? };
    // Also finds out whether the policy can play here, before anything is written.
    let made = rollout.policy.make(rollout.env.spec(), rollout.seed);
    made.map_err(|error| Failure::of(Status::Usage, &error))?;
    let cancel = Cancel::shared(signals::ending()?);
    let mut recorder = match args.record {
        RecordRule::None => None,
        _ => {
            let way_out = "choose another --data folder, or play without recording: --record none";
            Some(open_recorder(dir, "--data", way_out)?)
        }
    };
    let here = Here { args, dir, rollout, run: RunId::generate() };
    let exit = here.play(recorder.as_ref(), cancel)?;
    let recorded = recorder.take().map(Recorder::finish).transpose();
    here.conclude(&exit, recorded, out)
}

fn plan(args: &RolloutArgs, env: Arc<EnvEntry>) -> Result<Rollout, Failure> {
    let goal = goal(args)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or_else(|| cores.min(MAX_THREADS));
    // SAME_STEP: every lane takes a step in every batch, so that whole batches are whole steps.
    let options = checked_options(&env, &args.env_options)?;
    let engine = EngineConfig {
        threads,
        autoreset: AutoresetMode::SameStep,
        options: vec![options],
        lane_deadlines: args.python.hosting.deadlines.of_lanes(),
        ..EngineConfig::new(args.lanes)
    };
    let deadlines = engine.lane_deadlines;
    let rollout = Rollout::new(env, engine, seed_or_drawn(args.seed), args.policy.model()?, goal);
    // Lanes are given up before the whole rollout is.
    let hang_deadline = deadlines.of_session(rollout.hang_deadline);
    Ok(Rollout { hang_deadline, ..rollout })
}

/// Returns all options of an env, with those that were given in place of the defaults.
pub(crate) fn checked_options(env: &EnvEntry, given: &OptionArgs) -> Result<Options, Failure> {
    let options = Options::check(&env.spec().options, &given.options);
    let options = options.map_err(|error| Failure::of(Status::Usage, &error))?;
    env.check_drawn(&options).map_err(|error| Failure::of(Status::Usage, &error))?;
    Ok(options)
}

fn goal(args: &RolloutArgs) -> Result<Goal, Failure> {
    match (args.goal.steps, args.goal.episodes) {
        (Some(steps), None) => Ok(Goal::steps(steps, args.lanes)),
        (None, Some(episodes)) => Ok(Goal::Episodes(episodes)),
        _ => Err(Failure::new(Status::Usage, "give either --steps or --episodes")),
    }
}

/// Returns the seed that was asked for, or else draws one.
pub(crate) fn seed_or_drawn(seed: Option<u64>) -> u64 {
    seed.unwrap_or_else(|| RandomState::new().hash_one("seed") % PER_EPISODE_SEED_BOUND)
}

/// A rollout in this process.
struct Here<'a> {
    args: &'a RolloutArgs,
    /// The folder into which it records.
    dir: &'a Path,
    rollout: Rollout,
    run: RunId,
}

impl Here<'_> {
    /// Runs it on a node of this process and shows its progress.
    fn play(&self, recorder: Option<&Recorder>, cancel: Cancel) -> Result<Arc<Exit>, Failure> {
        let rollout = &self.rollout;
        let begin = |recorder: &Recorder| {
            let header = rollout.header(self.run, self.args.record, PROGRAM.to_owned(), wall_ms());
            let step_columns = rollout.policy.columns(&header.spec);
            let beside = Beside { step_columns, ..Beside::default() };
            recorder.begin_run_with(header, beside).map_err(|error| Failure::of(Status::Failed, &error))
        };
        let recording = recorder.map(begin).transpose()?;
        let node = Node::start().map_err(|error| Failure::of(Status::Failed, &error))?;
        let handle = node
            .rollout(rollout.clone(), recording, cancel)
            .map_err(|error| Failure::of(Status::Unavailable, &error))?;
        let mut bar = ProgressBar::new(&rollout.env.spec().id, rollout.goal, rollout.engine.lanes);
        loop {
            if let Some(exit) = handle.wait(DRAW_EVERY) {
                bar.clear();
                return Ok(exit);
            }
            bar.draw(handle.progress().snapshot());
        }
    }

    /// Prints the result.
    fn conclude(
        &self,
        exit: &Exit,
        recorded: Result<Option<Recorded>, RecordError>,
        out: &mut Output,
    ) -> Result<Status, Failure> {
        let (report, mut status) = match exit {
            Exit::Finished(report) => (report, Status::Done),
            Exit::Cancelled(report) => (report, Status::Interrupted),
            Exit::Failed(RolloutError::LanesFailed { report, .. }) => (report, Status::Failed),
            other => return Err(lost(other, recorded)),
        };
        if let Exit::Failed(error) = exit {
            complain(&error.to_string(), &[], None);
        }
        if status == Status::Interrupted {
            say("ended early, as asked; what was played until then is kept");
        }
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                status = Status::Failed;
                complain(&full_message(&error), &[], None);
                Some(*error.recorded())
            }
        };
        if let Some(recorded) = &recorded
            && recorded.stalled > WORTH_SAYING
        {
            let stalled = Time(recorded.stalled);
            say(&format!(
                "note: the disk could not follow; stepping waited {stalled} for it, added up over threads"
            ));
        }
        if self.args.json {
            out.json(&RolloutSummary::here(&self.rollout, self.run, report, recorded.as_ref()))?;
        } else {
            print(self.dir, &self.rollout, report, recorded.as_ref(), out)?;
        }
        Ok(status)
    }
}

/// Makes the failure of a session that left no report.
fn lost(exit: &Exit, recorded: Result<Option<Recorded>, RecordError>) -> Failure {
    let failure = match exit {
        Exit::Failed(error) => Failure::of(Status::Failed, error),
        Exit::Panicked(message) => Failure::new(
            Status::Failed,
            format_args!("the session panicked, which is a bug in rollhouse: {message}"),
        ),
        Exit::Hung(still) => {
            let still = Time(*still);
            Failure::new(
                Status::Failed,
                format_args!("the environment hangs: no step was finished for {still}"),
            )
        }
        Exit::Unwatched => {
            Failure::new(Status::Failed, "the session was given up: its actor failed too often")
        }
        Exit::Finished(_) | Exit::Cancelled(_) => Failure::new(Status::Failed, "the session left no report"),
    };
    match recorded {
        Ok(Some(recorded)) => failure
            .hint(format_args!("{} recorded until then are safe", counted(recorded.episodes, "episode"))),
        Ok(None) => failure,
        Err(error) => failure.hint(format_args!("the recording failed too: {}", full_message(&error))),
    }
}

fn full_message(error: &RecordError) -> String {
    let cause = std::error::Error::source(error).and_then(std::error::Error::source);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error} ({cause})"))
}

/// Returns the outcomes that occurred, by word, in the order of their codes.
fn outcomes(counts: &[u64; Outcome::ALL.len()]) -> Vec<(&'static str, u64)> {
    let mut words: Vec<(&'static str, u64)> = Vec::new();
    for (outcome, &count) in Outcome::ALL.iter().zip(counts) {
        // Two finished outcomes share the word `terminated`.
        match words.iter_mut().find(|(word, _)| *word == outcome.word()) {
            Some((_, sum)) => *sum += count,
            None => words.push((outcome.word(), count)),
        }
    }
    words.retain(|(_, count)| *count > 0);
    words
}

/// Returns the results that occurred, by word.
fn results(counts: [u64; GameResult::ALL.len()]) -> impl Iterator<Item = (&'static str, u64)> {
    let counts = GameResult::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    counts.filter_map(|(result, count)| Some((result.word()?, count)))
}

/// Returns what the seed of a rollout is worth.
const fn what_of_seed(spec: &EnvSpec) -> &'static str {
    match spec.determinism {
        Determinism::Deterministic => " (the same seed gives the same episodes)",
        Determinism::NonDeterministic => " (the env does not say that the same seed gives the same episodes)",
    }
}

fn print(
    dir: &Path,
    rollout: &Rollout,
    report: &Report,
    recorded: Option<&Recorded>,
    out: &mut Output,
) -> io::Result<()> {
    let stats = &report.stats;
    let rate = Si(stats.steps as f64 / report.took.as_secs_f64().max(f64::MIN_POSITIVE));
    writeln!(
        out,
        "{}: {} and {} on {} in {} ({rate} steps/s)\n",
        rollout.env.spec().id,
        counted(stats.finished(), "episode"),
        counted(stats.steps, "step"),
        counted(rollout.engine.lanes as u64, "lane"),
        Time(report.took),
    )?;
    for (word, count) in outcomes(&stats.outcomes).into_iter().chain(results(stats.results)) {
        writeln!(out, "  {word:<12} {}", Count(count))?;
    }
    for (what, summary) in [("return", &stats.returns), ("length", &stats.lengths)] {
        if let (Some(mean), Some(min), Some(max)) = (summary.mean(), summary.min(), summary.max()) {
            writeln!(out, "  {what:<12} mean {}, from {} to {}", Real(mean), Real(min), Real(max))?;
        }
    }
    if stats.restarts > 0 {
        writeln!(out, "  restarts     {}", Count(stats.restarts))?;
    }
    writeln!(out, "  seed         {}{}", rollout.seed, what_of_seed(rollout.env.spec()))?;
    let Some(recorded) = recorded else { return writeln!(out, "  recorded     nothing, as asked") };
    let shown = dir.display();
    let size = Bytes(recorded.bytes);
    writeln!(out, "  recorded     {} in {size}, in {shown}", counted(recorded.episodes, "episode"))?;
    if recorded.dropped_segments > 0 {
        let size = Bytes(recorded.dropped_bytes);
        writeln!(out, "  dropped      {size} of the oldest recordings, to stay within the folder's budget")?;
    }
    writeln!(out, "\nThe best of them: rollhouse replay ls --sort -return --limit 5{}", data_option(dir))
}

const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Shortest wait for the disk that is reported.
const WORTH_SAYING: Duration = Duration::from_millis(100);
