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

use rollhouse_client::{Cluster, FetchedPolicy, RequestError};
use rollhouse_core::{AutoresetMode, Goal, RecordRule, RunId, StepColumns};
use rollhouse_node::{ProgressSnapshot, Rollout};
use rollhouse_policy::{Builtin, Sampling, model_of};
use rollhouse_wire::{
    Collect, EndCause, LaneSettings, OpenPool, POLICY_NAME_RULE, PolicyRef, PoolOpened, PoolStatus, Spread,
    is_policy_name,
};

use super::summary::RolloutSummary;
use super::{goal, seed_or_drawn};
use crate::args::policy::{net_of, read, stem};
use crate::args::{PolicyName, RolloutArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::{Count, Real, Si, Time, counted};
use crate::output::{Output, complain, say};
use crate::progress_bar::ProgressBar;
use crate::signals;

pub(super) fn run(args: &RolloutArgs, out: &mut Output) -> Result<Status, Failure> {
    let goal = goal(args)?;
    let seed = seed_or_drawn(args.seed);
    let asked = signals::ending()?;
    let chosen = Chosen::of(args)?;
    let cluster = connect(&args.data.cluster)?;
    let pool = cluster.new_pool_id().map_err(|error| request_failure(&error))?;
    let collect = Collect { leased: !args.detach, ..chosen.collect(&cluster, args, seed, goal)? };
    let open = request(pool, args, collect);
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

/// The policy by which nodes are to play, before the cluster is asked.
enum Chosen {
    Builtin(Builtin),
    /// A file, which the cluster is given first, under its name.
    File(String, Vec<u8>, Option<Sampling>),
    OfCluster(PolicyRef),
}

impl Chosen {
    fn of(args: &RolloutArgs) -> Result<Self, Failure> {
        match &args.policy.policy {
            PolicyName::Builtin(policy) => {
                args.policy.refuse_drawing()?;
                Ok(Self::Builtin(*policy))
            }
            PolicyName::File(path) => {
                let (name, file) = (stem(path), read(path)?);
                if !is_policy_name(&name) {
                    let message = format_args!(
                        "{} would be policy `{name}`, and a policy's name has {POLICY_NAME_RULE}",
                        path.display()
                    );
                    return Err(Failure::new(Status::Usage, message)
                        .hint("`rollhouse policy put NAME FILE` stores it under another name"));
                }
                let sampling = args.policy.sampling(net_of(path, &file)?.as_model());
                Ok(Self::File(name, file, sampling))
            }
            PolicyName::OfCluster(policy) => Ok(Self::OfCluster(policy.clone())),
        }
    }

    /// Returns what nodes are to be asked for. Stores a file, and looks a policy up that is to draw otherwise than it says.
    fn collect(
        self,
        cluster: &Cluster,
        args: &RolloutArgs,
        seed: u64,
        goal: Goal,
    ) -> Result<Collect, Failure> {
        let failed = |error: RequestError| request_failure(&error);
        match self {
            Self::Builtin(policy) => Ok(Collect::new(policy.name(), seed, goal)),
            Self::File(name, file, sampling) => {
                let put = cluster.put_policy(&name, None, file.into()).map_err(failed)?;
                let version = Some(put.version);
                if !put.known {
                    let policy = PolicyRef { name: name.clone(), version };
                    say(&format!("stored as policy {policy} of the cluster"));
                }
                Ok(Collect { version, sampling, ..Collect::new(name, seed, goal) })
            }
            Self::OfCluster(PolicyRef { name, version }) if args.policy.draws_otherwise() => {
                let FetchedPolicy { info, file } = cluster.fetch_policy(&name, version).map_err(failed)?;
                let model = model_of(&name, info.policy.version, None, &file);
                let model = model.map_err(|error| Failure::of(Status::Usage, &error))?;
                let sampling = args.policy.sampling(&*model);
                let version = Some(info.policy.version);
                Ok(Collect { version, sampling, ..Collect::new(name, seed, goal) })
            }
            Self::OfCluster(PolicyRef { name, version }) => {
                Ok(Collect { version, ..Collect::new(name, seed, goal) })
            }
        }
    }
}

fn request(pool: RunId, args: &RolloutArgs, collect: Collect) -> OpenPool {
    // As on one machine: every lane takes a step in every batch.
    let (autoreset, seeds) = Rollout::modes(args.env.source(), AutoresetMode::SameStep, collect.seed);
    let settings = LaneSettings {
        env: args.env.clone(),
        env_kwargs: args.python.kwargs(),
        deterministic: args.python.deterministic.then_some(true),
        options: args.env_options.options.iter().cloned().collect(),
        autoreset,
        max_episode_steps: None,
        seeds,
        record: args.record,
        collect: Some(collect),
        replay: None,
        step_columns: StepColumns::default(),
        infos: Default::default(),
        pace: None,
    };
    let lanes = u32::try_from(args.lanes).unwrap_or(u32::MAX);
    OpenPool { pool, lanes, settings, labels: Default::default(), spread: Spread::Even }
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
                lost(&error, pool, &args.data.option())
            })?;
            bar.draw(progress(&status));
            if status.open == 0 {
                bar.clear();
                return Ok(Self { status, cancelled });
            }
            park_timeout(LOOK_EVERY);
        }
    }

    /// Waits until the store has everything that was recorded, or has set some of it aside, and returns the pool's state
    /// then. Ctrl-C and [`SHIPPED_WITHIN`] end the wait.
    fn ship(
        &self,
        cluster: &Cluster,
        pool: RunId,
        args: &RolloutArgs,
        asked: &AtomicBool,
    ) -> Result<PoolStatus, Failure> {
        let mut status = self.status.clone();
        if args.record == RecordRule::None {
            return Ok(status);
        }
        let until = Instant::now() + SHIPPED_WITHIN;
        // Whoever has asked to end once is not made to wait for the network.
        while status.is_on_its_way() && !asked.load(Ordering::Relaxed) && Instant::now() < until {
            park_timeout(LOOK_EVERY);
            status = cluster.pool_status(pool).map_err(|error| lost(&error, pool, &args.data.option()))?;
        }
        Ok(status)
    }
}

fn lost(error: &RequestError, pool: RunId, place: &str) -> Failure {
    request_failure(error).hint(format_args!(
        "the nodes play on for 30 s after the coordinator has lost this command; `rollhouse close {pool}{place}` ends that \
         before; what they record goes to the store"
    ))
}

fn detached(
    pool: RunId,
    opened: &PoolOpened,
    args: &RolloutArgs,
    seed: u64,
    out: &mut Output,
) -> Result<Status, Failure> {
    if args.json {
        out.json(&RolloutSummary::going_on(args, pool, seed, opened))?;
    } else {
        writeln!(out, "{pool}")?;
    }
    let place = args.data.option();
    say(&format!(
        "{} play on to the goal by themselves; `rollhouse close {pool}{place}` ends them before",
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
    /// The pool's state when it was known what the store has of its recordings.
    stored: PoolStatus,
    took: Duration,
}

impl Outcome {
    fn conclude(&self, args: &RolloutArgs, seed: u64, out: &mut Output) -> Result<Status, Failure> {
        let PoolStatus { ended, failures, .. } = &self.played.status;
        let is_recorded = args.record != RecordRule::None;
        let bad: u32 = ended.iter().filter(|(cause, _)| is_bad(**cause)).map(|(_, count)| count).sum();
        for failure in failures {
            complain(failure, &[], None);
        }
        if bad > 0 && failures.is_empty() {
            complain(&format!("{} did not reach the goal", counted(bad.into(), "session")), &[], None);
        }
        if self.played.cancelled {
            say("ended early, as asked; what was played until then is kept");
        }
        let place = args.data.option();
        if is_recorded && self.stored.set_aside > 0 {
            say(&format!(
                "{} set aside by the store, which has others of the same names; `rollhouse replay quarantine ls{place}` lists them",
                counted(self.stored.set_aside, "episode")
            ));
        } else if is_recorded && self.stored.settled && !self.stored.shipped {
            say(&format!(
                "some of it came damaged and is set aside by the store; `rollhouse replay quarantine ls{place}` lists what can be \
                 read",
            ));
        } else if is_recorded && !self.stored.shipped {
            say("the nodes have not shipped all of it yet; they go on by themselves");
        }
        let summary = RolloutSummary::going_on(args, self.run, seed, &self.opened).with(
            args,
            &self.played.status,
            &self.stored,
            self.took,
        );
        if args.json {
            out.json(&summary)?;
        } else {
            self.print(args, &summary, seed, out)?;
        }
        Ok(match (bad, self.played.cancelled) {
            (0, false) => Status::Done,
            (0, true) => Status::Interrupted,
            _ => Status::Failed,
        })
    }

    fn print(
        &self,
        args: &RolloutArgs,
        summary: &RolloutSummary,
        seed: u64,
        out: &mut Output,
    ) -> io::Result<()> {
        let done = &self.played.status.done;
        let rate = Si(summary.steps_per_second());
        writeln!(
            out,
            "{}: {} and {} on {} of {} in {} ({rate} steps/s)\n",
            args.env,
            counted(done.episodes, "episode"),
            counted(done.steps, "step"),
            counted(args.lanes as u64, "lane"),
            counted(summary.nodes() as u64, "node"),
            Time(self.took),
        )?;
        if let Some(mean) = summary.mean_return() {
            writeln!(out, "  return       mean {}", Real(mean))?;
        }
        if done.interrupted > 0 {
            writeln!(out, "  interrupted  {}", Count(done.interrupted))?;
        }
        writeln!(out, "  seed         {seed}{}", super::what_of_seed(&self.opened.spec))?;
        match summary.stored() {
            None => return writeln!(out, "  recorded     nothing, as asked"),
            Some(true) => writeln!(out, "  recorded     in the cluster's store, all of it")?,
            Some(false) if self.stored.set_aside > 0 => {
                writeln!(
                    out,
                    "  recorded     in the cluster's store, but for {} set aside",
                    Count(self.stored.set_aside)
                )?;
            }
            Some(false) if self.stored.settled => {
                writeln!(out, "  recorded     in the cluster's store, but for what came damaged")?;
            }
            Some(false) => writeln!(out, "  recorded     on its way to the cluster's store")?,
        }
        let connect = args.data.option();
        writeln!(out, "\nThe best of them: rollhouse replay ls --sort -return --limit 5{connect}")
    }
}

const fn is_bad(cause: EndCause) -> bool {
    !matches!(cause, EndCause::Finished | EndCause::Closed)
}

/// Longest wait for shipping: nodes that could not ship try again within 30 s. A restarted coordinator may never know
/// what a lost node has.
const SHIPPED_WITHIN: Duration = Duration::from_secs(300);

/// Interval at which the coordinator is asked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
