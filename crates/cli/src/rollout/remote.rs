//! `rollhouse rollout --connect`: the nodes of a cluster play, and its store gathers their recordings.
//!
//! ```text
//! (pool opened) -> playing -> shipping -> done      every session ended; then everything recorded is in the store
//!                  playing -> closing -> shipping   the first Ctrl-C; a second one ends the command
//! (pool opened) -> done                             `--detach`: the nodes play on by themselves
//! ```
//!
//! Without `--detach` the coordinator closes the pool when it has not heard of the command for 30 s, however that
//! ended.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use rollhouse_client::{Cluster, RequestError};
use rollhouse_core::{AutoresetMode, Goal, RecordRule, RunId, SeedSchedule, StepColumns};
use rollhouse_node::ProgressSnapshot;
use rollhouse_wire::{Collect, EndCause, LaneSettings, OpenPool, PoolOpened, PoolStatus, Spread};
use serde::Serialize;

use super::{goal, seed_or_drawn};
use crate::args::{Object, RolloutArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, Si, Time, counted};
use crate::output::{Output, say};
use crate::progress_bar::ProgressBar;
use crate::signals;

pub(super) fn run(args: &RolloutArgs, out: &mut Output) -> Result<Status, Failure> {
    let goal = goal(args)?;
    let seed = seed_or_drawn(args.seed);
    let asked = signals::ending()?;
    let cluster = connect(&args.data.cluster)?;
    let pool = cluster.new_pool_id().map_err(|error| request_failure(&error))?;
    let open = request(pool, args, goal, seed);
    let began = Instant::now();
    let opened = cluster.open_collecting(open).map_err(|error| request_failure(&error))?;
    if args.detach {
        return detached(pool, &opened, args, seed, out);
    }
    let played = Played::watch(&cluster, pool, args, goal, &asked)?;
    let took = began.elapsed();
    let stored = played.ship(&cluster, pool, args, &asked)?;
    Outcome { run: pool, opened, played, stored, took }.conclude(args, seed, out)
}

fn request(pool: RunId, args: &RolloutArgs, goal: Goal, seed: u64) -> OpenPool {
    let collect = Collect { policy: args.policy.name().to_owned(), seed, goal, leased: !args.detach };
    let settings = LaneSettings {
        env: args.env.clone(),
        env_kwargs: args.python.env_kwargs.as_ref().map(json).unwrap_or_default(),
        deterministic: args.python.deterministic.then_some(true),
        options: args.env_options.options.iter().cloned().collect(),
        // As on one machine: every lane takes a step in every batch.
        autoreset: AutoresetMode::SameStep,
        max_episode_steps: None,
        seeds: SeedSchedule::PerEpisode { run_seed: seed },
        record: args.record.0,
        collect: Some(collect),
        replay: None,
        step_columns: StepColumns::default(),
    };
    let lanes = u32::try_from(args.lanes).unwrap_or(u32::MAX);
    OpenPool { pool, lanes, settings, labels: Default::default(), spread: Spread::Even }
}

fn json(object: &Object) -> String {
    serde_json::Value::Object(object.clone()).to_string()
}

/// The state of the pool when its last session had ended.
struct Played {
    status: PoolStatus,
    cancelled: bool,
}

impl Played {
    /// Watches until no session is open any more.
    fn watch(
        cluster: &Cluster,
        pool: RunId,
        args: &RolloutArgs,
        goal: Goal,
        asked: &AtomicBool,
    ) -> Result<Self, Failure> {
        let mut bar = ProgressBar::new(&args.env, goal, args.lanes);
        let mut cancelled = false;
        loop {
            let status = if asked.load(Ordering::Relaxed) && !cancelled {
                cancelled = true;
                cluster.close_pool(pool)
            } else {
                cluster.keep_pool(pool)
            };
            let status = status.map_err(|error| {
                bar.clear();
                lost(&error, pool)
            })?;
            bar.draw(progress(&status));
            if status.open == 0 {
                bar.clear();
                return Ok(Self { status, cancelled });
            }
            park_timeout(LOOK_EVERY);
        }
    }

    /// Waits until the store has everything that was recorded, or has set some of it aside, and returns what it has
    /// then. Ctrl-C and [`SHIPPED_WITHIN`] end the wait.
    fn ship(
        &self,
        cluster: &Cluster,
        pool: RunId,
        args: &RolloutArgs,
        asked: &AtomicBool,
    ) -> Result<Stored, Failure> {
        if args.record.0 == RecordRule::None {
            return Ok(Stored::default());
        }
        let mut status = self.status.clone();
        let until = Instant::now() + SHIPPED_WITHIN;
        // Whoever has asked to end once is not made to wait for the network.
        while status.is_on_its_way() && !asked.load(Ordering::Relaxed) && Instant::now() < until {
            park_timeout(LOOK_EVERY);
            status = cluster.pool_status(pool).map_err(|error| lost(&error, pool))?;
        }
        Ok(Stored { all: status.shipped, settled: status.settled, set_aside: status.set_aside })
    }
}

/// The part of a pool's recording that the store has.
#[derive(Debug, Clone, Copy, Default)]
struct Stored {
    /// Whether it has all of it.
    all: bool,
    /// Whether nothing of it is on its way any more.
    settled: bool,
    /// Number of episodes that it has set aside.
    set_aside: u64,
}

fn lost(error: &RequestError, pool: RunId) -> Failure {
    request_failure(error).hint(format_args!(
        "the nodes play on until the coordinator has not heard of this command for 30 s; `rollhouse close {pool}` ends \
         that before; what they record goes to the store"
    ))
}

/// The output for a rollout that goes on without its command.
#[derive(Debug, Serialize)]
struct Detached<'a> {
    env: &'a str,
    lanes: usize,
    sessions: usize,
    run: String,
    seed: u64,
}

fn detached(
    pool: RunId,
    opened: &PoolOpened,
    args: &RolloutArgs,
    seed: u64,
    out: &mut Output,
) -> Result<Status, Failure> {
    let (run, sessions) = (pool.to_string(), opened.sessions.len());
    if args.json {
        out.json(&Detached { env: &args.env, lanes: args.lanes, sessions, run, seed })?;
    } else {
        writeln!(out, "{run}")?;
    }
    say(&format!(
        "{} play on to the goal by themselves; `rollhouse close {pool}` ends them before",
        counted(args.lanes as u64, "lane")
    ));
    Ok(Status::Done)
}

fn progress(status: &PoolStatus) -> ProgressSnapshot {
    let done = &status.done;
    let mean_return = (done.episodes > 0).then(|| done.return_sum / done.episodes as f64);
    ProgressSnapshot {
        steps: done.steps,
        episodes: done.episodes,
        mean_return,
        ..ProgressSnapshot::default()
    }
}

/// The result of a rollout.
struct Outcome {
    run: RunId,
    opened: PoolOpened,
    played: Played,
    /// The part of the recording that the store has.
    stored: Stored,
    took: Duration,
}

impl Outcome {
    fn conclude(&self, args: &RolloutArgs, seed: u64, out: &mut Output) -> Result<Status, Failure> {
        let PoolStatus { ended, failures, .. } = &self.played.status;
        let bad: u32 = ended.iter().filter(|(cause, _)| is_bad(**cause)).map(|(_, count)| count).sum();
        for failure in failures {
            say(&format!("error: {failure}"));
        }
        if bad > 0 && failures.is_empty() {
            say(&format!("error: {} did not reach the goal", counted(bad.into(), "session")));
        }
        if self.played.cancelled {
            say("ended early, as asked; what was played until then is kept");
        }
        if self.stored.set_aside > 0 {
            say(&format!(
                "{} set aside by the store, which has others of the same names; `rollhouse replay quarantine ls` lists them",
                counted(self.stored.set_aside, "episode")
            ));
        } else if self.stored.settled && !self.stored.all {
            say(
                "some of it came damaged and is set aside by the store; `rollhouse replay quarantine ls` lists what can be read",
            );
        } else if args.record.0 != RecordRule::None && !self.stored.all {
            say("the nodes have not shipped all of it yet; they go on by themselves");
        }
        let summed = Summed::of(args, seed, self);
        if args.json {
            out.json(&summed)?;
        } else {
            summed.print(args, out)?;
        }
        Ok(match (bad, self.played.cancelled) {
            (0, false) => Status::Done,
            (0, true) => Status::Interrupted,
            _ => Status::Failed,
        })
    }
}

const fn is_bad(cause: EndCause) -> bool {
    !matches!(cause, EndCause::Finished | EndCause::Closed)
}

/// The output of `--json`; the field names are those of a rollout on one machine where both have them.
#[derive(Debug, Serialize)]
struct Summed<'a> {
    env: &'a str,
    lanes: usize,
    nodes: usize,
    sessions: usize,
    run: String,
    seed: u64,
    policy: &'static str,
    steps: u64,
    episodes: u64,
    interrupted: u64,
    #[serde(rename = "return")]
    total_reward: Mean,
    seconds: f64,
    steps_per_second: f64,
    /// Number of sessions by how they ended.
    ended: Vec<(&'static str, u32)>,
    #[serde(flatten)]
    recorded: Recorded,
}

/// What became of what was recorded.
#[derive(Debug, Serialize)]
struct Recorded {
    /// Whether everything recorded is in the store; null if nothing was to be recorded.
    stored: Option<bool>,
    /// Whether nothing of it is on its way to the store any more.
    settled: bool,
    /// Number of episodes that the store has set aside: it has others with their names.
    set_aside: u64,
}

/// The mean of a figure; null where no episode finished.
#[derive(Debug, Serialize)]
struct Mean {
    mean: Option<f64>,
}

impl<'a> Summed<'a> {
    fn of(args: &'a RolloutArgs, seed: u64, outcome: &Outcome) -> Self {
        let Outcome { run, opened, played, stored, took } = outcome;
        let done = &played.status.done;
        let mut nodes: Vec<&str> = opened.sessions.iter().map(|grant| grant.node.as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let seconds = took.as_secs_f64();
        Self {
            env: &args.env,
            lanes: args.lanes,
            nodes: nodes.len(),
            sessions: opened.sessions.len(),
            run: run.to_string(),
            seed,
            policy: args.policy.name(),
            steps: done.steps,
            episodes: done.episodes,
            interrupted: done.interrupted,
            total_reward: Mean { mean: progress(&played.status).mean_return },
            seconds,
            steps_per_second: done.steps as f64 / seconds.max(f64::MIN_POSITIVE),
            ended: played.status.ended.iter().map(|(cause, count)| (cause.word(), *count)).collect(),
            recorded: Recorded {
                stored: (args.record.0 != RecordRule::None).then_some(stored.all),
                settled: stored.settled,
                set_aside: stored.set_aside,
            },
        }
    }

    fn print(&self, args: &RolloutArgs, out: &mut Output) -> io::Result<()> {
        let rate = Si(self.steps_per_second);
        writeln!(
            out,
            "{}: {} and {} on {} of {} in {} ({rate} steps/s)\n",
            self.env,
            counted(self.episodes, "episode"),
            counted(self.steps, "step"),
            counted(self.lanes as u64, "lane"),
            counted(self.nodes as u64, "node"),
            Time(Duration::from_secs_f64(self.seconds)),
        )?;
        if let Some(mean) = self.total_reward.mean {
            writeln!(out, "  return       mean {}", Real(mean))?;
        }
        if self.interrupted > 0 {
            writeln!(out, "  interrupted  {}", Count(self.interrupted))?;
        }
        writeln!(out, "  seed         {} (the same seed gives the same episodes)", self.seed)?;
        match self.recorded.stored {
            None => return writeln!(out, "  recorded     nothing, as asked"),
            Some(true) => writeln!(out, "  recorded     in the cluster's store, all of it")?,
            Some(false) if self.recorded.set_aside > 0 => {
                writeln!(
                    out,
                    "  recorded     in the cluster's store, but for {} set aside",
                    Count(self.recorded.set_aside)
                )?;
            }
            Some(false) if self.recorded.settled => {
                writeln!(out, "  recorded     in the cluster's store, but for what came damaged")?;
            }
            Some(false) => writeln!(out, "  recorded     on its way to the cluster's store")?,
        }
        let connect = match &args.data.cluster.connect {
            Some(given) if !given.contains("token=") => format!(" --connect {given}"),
            Some(_) => " --connect URL".to_owned(),
            None => String::new(),
        };
        writeln!(out, "\nThe best of them: rollhouse replay ls --sort -return --limit 5{connect}")
    }
}

/// Longest wait for shipping: nodes that could not ship try again within 30 s. A restarted coordinator may never know
/// what a lost node has.
const SHIPPED_WITHIN: Duration = Duration::from_secs(300);

/// Interval at which the coordinator is asked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
