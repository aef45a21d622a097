//! `rollhouse policy compare`: two policies play the same episodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rollhouse_client::{
    Cluster, Difference, EmbeddedLanes, OpenError, PlayedEpisode, PoolRequest, Rollouts, RolloutsError,
    RolloutsOptions, Transport, first_episodes,
};
use rollhouse_core::{AutoresetMode, RecordRule};
use rollhouse_engine::{Engine, EngineConfig};
use rollhouse_host::ConnectWatch;
use rollhouse_wire::PolicyGiven;
use serde::Serialize;

use super::fetch;
use crate::args::policy::{of_no_cluster, read, stem};
use crate::args::{PolicyCompareArgs, PolicyName};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::human::Real;
use crate::logging::Logging;
use crate::output::{Output, complain, say};
use crate::python_envs;
use crate::rollout::seed_or_drawn;
use crate::signals;
use crate::table::{Align, Table};

pub(super) fn run(args: &PolicyCompareArgs, out: &mut Output) -> Result<Status, Failure> {
    let asked = signals::ending()?;
    let cluster = match args.cluster.url() {
        Some(_) => Some(connect(&args.cluster)?),
        None => None,
    };
    if cluster.is_some() {
        refuse_of_here(args)?;
    } else if args.env.source().is_learned() {
        // Reasons for which its lanes are lost are logged from here on.
        Logging::begin_warnings("policy")?;
    }
    let seed = seed_or_drawn(args.seed);
    let mut scores = Vec::new();
    for policy in [&args.first, &args.second] {
        let given = given(policy, seed, cluster.as_ref())?;
        let name = policy.to_string();
        let played = play(args, given, cluster.as_ref(), seed, &asked)?;
        if asked.load(Ordering::Relaxed) {
            say("ended early, as asked; nothing is compared");
            return Ok(Status::Interrupted);
        }
        scores.push(Score { name, episodes: played });
    }
    let returns = |score: &Score| score.returns().collect::<Vec<_>>();
    let difference = Difference::of(&returns(&scores[1]), &returns(&scores[0]));
    let compared = Compared::of(args, seed, &scores, difference);
    if args.json {
        out.json(&compared)?;
    } else {
        print(args, &scores, difference, seed, out)?;
    }
    if difference.is_none() {
        complain("fewer than two episodes came to their end under both, too few to compare", &[], None);
        return Ok(Status::Failed);
    }
    Ok(Status::Done)
}

/// Refuses what says how this machine plays, where a cluster's nodes do.
fn refuse_of_here(args: &PolicyCompareArgs) -> Result<(), Failure> {
    let plugin = (!args.plugins.plugins.is_empty()).then_some("--plugin");
    match plugin.or_else(|| args.python.hosting.given()) {
        None => Ok(()),
        Some(name) => {
            let message = format_args!("{name} is for this machine, and a cluster is named");
            Err(Failure::new(Status::Usage, message).hint("the configs of nodes say what they load and host"))
        }
    }
}

/// Returns a policy as lanes are given it, with its file.
fn given(
    policy: &PolicyName,
    seed: u64,
    cluster: Option<&Cluster>,
) -> Result<(PolicyGiven, Vec<u8>), Failure> {
    let given =
        |name: String, version: u64| PolicyGiven { name, version, seed, sampling: None, keeps_states: false };
    match (policy, cluster) {
        (PolicyName::Builtin(builtin), _) => Ok((given(builtin.name().to_owned(), 0), Vec::new())),
        (PolicyName::File(path), _) => Ok((given(stem(path), 0), read(path)?)),
        (PolicyName::OfCluster(policy), Some(cluster)) => {
            let fetched = fetch(cluster, policy)?;
            Ok((given(fetched.info.policy.name, fetched.info.policy.version), fetched.file.to_vec()))
        }
        (PolicyName::OfCluster(of), None) => Err(of_no_cluster(of)),
    }
}

/// Plays one episode of each lane, to its end.
fn play(
    args: &PolicyCompareArgs,
    (policy, file): (PolicyGiven, Vec<u8>),
    cluster: Option<&Cluster>,
    seed: u64,
    asked: &AtomicBool,
) -> Result<Vec<Option<PlayedEpisode>>, Failure> {
    let lanes = args.episodes as usize;
    let options = RolloutsOptions {
        steps: STEPS,
        staleness: 0,
        seed,
        group: 1,
        whole: false,
        policy,
        file: file.into(),
    };
    // A lane then shows the end of its episode, and nothing of the next one in that row.
    let autoreset = AutoresetMode::NextStep;
    let begun = match cluster {
        Some(cluster) => {
            let mut request = PoolRequest::new(args.env.clone(), args.episodes);
            request.settings.autoreset = autoreset;
            request.settings.env_kwargs = args.python.kwargs();
            request.settings.deterministic = args.python.deterministic.then_some(true);
            request.settings.record = RecordRule::None;
            request.transport = Some(Transport::Quic);
            let pool = cluster.open_pool(request).map_err(|error| match error {
                OpenError::Request(error) => request_failure(&error),
                error => Failure::of(Status::Failed, &error),
            })?;
            Rollouts::begin(pool, options)
        }
        None => {
            let env =
                python_envs::of_id(&args.env, &args.plugins, &args.python, false, &ConnectWatch::default())?;
            let config = EngineConfig { autoreset, ..EngineConfig::new(lanes) };
            let engine =
                Engine::new(&env, config, None).map_err(|error| Failure::of(Status::Usage, &error))?;
            Rollouts::begin(EmbeddedLanes::new(engine), options)
        }
    };
    let mut rollouts = begun.map_err(|error| failure(&error))?;
    let go_on = || !asked.load(Ordering::Relaxed);
    first_episodes(&mut rollouts, lanes, PATIENCE, go_on).map_err(|error| failure(&error))
}

fn failure(error: &RolloutsError) -> Failure {
    let status = match error {
        RolloutsError::Policy(_) | RolloutsError::Model { .. } => Status::Usage,
        _ => Status::Failed,
    };
    Failure::of(status, error)
}

/// How well a policy played.
struct Score {
    name: String,
    episodes: Vec<Option<PlayedEpisode>>,
}

impl Score {
    fn returns(&self) -> impl Iterator<Item = Option<f64>> {
        self.episodes.iter().map(|episode| episode.map(|episode| episode.total))
    }

    fn lost(&self) -> usize {
        self.episodes.iter().filter(|episode| episode.is_none()).count()
    }

    /// Returns mean and standard deviation of the returns; `None` if there are too few.
    fn mean_and_spread(&self) -> (Option<f64>, Option<f64>) {
        let ended: Vec<f64> = self.returns().flatten().collect();
        let count = ended.len() as f64;
        let mean = (count > 0.0).then(|| ended.iter().sum::<f64>() / count);
        let squares = mean.map(|mean| ended.iter().map(|one| (one - mean).powi(2)).sum::<f64>());
        (mean, squares.filter(|_| count > 1.0).map(|squares| (squares / (count - 1.0)).sqrt()))
    }
}

fn print(
    args: &PolicyCompareArgs,
    scores: &[Score],
    difference: Option<Difference>,
    seed: u64,
    out: &mut Output,
) -> std::io::Result<()> {
    writeln!(out, "{}: {} episodes each, from the same seeds\n", args.env, args.episodes)?;
    let right = ["MEAN", "SPREAD", "LOST"].map(|column| (column, Align::Right));
    let mut table = Table::new(&[&[("POLICY", Align::Left)][..], &right].concat());
    for score in scores {
        let (mean, spread) = score.mean_and_spread();
        let shown =
            |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| Real(number).to_string());
        table.row(vec![score.name.clone(), shown(mean), shown(spread), score.lost().to_string()]);
    }
    table.write(out)?;
    if let Some(found @ Difference { mean, low, high, .. }) = difference {
        let verdict = match (found.is_clear(), mean > 0.0) {
            (true, true) => "is better than",
            (true, false) => "is worse than",
            (false, _) => "is not clearly other than",
        };
        let (mean, low, high) = (Real(mean), Real(low), Real(high));
        writeln!(
            out,
            "\n{} {verdict} {}: the mean return differs by {mean} (95 %: {low} to {high})",
            scores[1].name, scores[0].name
        )?;
    }
    writeln!(out, "seed {seed} (the same seed gives the same episodes)")
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Serialize)]
struct Compared<'a> {
    env: String,
    episodes: u32,
    seed: u64,
    policies: Vec<ScoreRow<'a>>,
    difference: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    pairs: usize,
}

#[derive(Serialize)]
struct ScoreRow<'a> {
    policy: &'a str,
    mean: Option<f64>,
    spread: Option<f64>,
    lost: usize,
}

impl<'a> Compared<'a> {
    fn of(args: &PolicyCompareArgs, seed: u64, scores: &'a [Score], difference: Option<Difference>) -> Self {
        let row = |score: &'a Score| {
            let (mean, spread) = score.mean_and_spread();
            ScoreRow { policy: &score.name, mean, spread, lost: score.lost() }
        };
        Self {
            env: args.env.to_string(),
            episodes: args.episodes,
            seed,
            policies: scores.iter().map(row).collect(),
            difference: difference.map(|found| found.mean),
            low: difference.map(|found| found.low),
            high: difference.map(|found| found.high),
            pairs: difference.map_or(0, |found| found.pairs),
        }
    }
}

/// Steps that are played at a time.
const STEPS: usize = 64;

/// Interval at which it is looked whether to end.
const PATIENCE: Duration = Duration::from_millis(100);
