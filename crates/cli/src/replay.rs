//! `rollhouse replay`: looking at recordings.

mod diff;
mod export;
mod fork;
mod import;
mod label;
mod ls;
pub(crate) mod nearest;
#[cfg(feature = "viewer")]
mod play;
#[cfg(feature = "viewer")]
mod plot;
mod prune;
mod quarantine;
mod repair;
mod show;
pub(crate) mod source;
mod stats;
mod verify;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;

use rollhouse_core::{EpisodeName, Parent};
use rollhouse_replay::{EpisodeInfo, EpisodeKey, LabelError, Labels, ReadError};
use rollhouse_wire::StoreEpisode;
use serde::Serialize;

use crate::args::ReplayWhat;
use crate::failure::{Failure, Status};
use crate::human::{When, rfc3339};
use crate::json::dynamics;
use crate::output::Output;
use label::ShownLabel;

pub(crate) fn run(what: ReplayWhat, out: &mut Output) -> Result<Status, Failure> {
    let place = what.place_option();
    run_in(what, out).map_err(|failure| failure.with_option_of("replay", &place))
}

fn run_in(what: ReplayWhat, out: &mut Output) -> Result<Status, Failure> {
    match what {
        ReplayWhat::Ls(args) if args.watch => watch::run(&args, out),
        ReplayWhat::Ls(args) => ls::run(&args, out),
        ReplayWhat::Show(args) => show::run(&args, out),
        #[cfg(feature = "viewer")]
        ReplayWhat::Play(args) => play::run(&args),
        ReplayWhat::Fork(args) => fork::run(&args, out),
        ReplayWhat::Verify(args) => verify::run(&args, out),
        ReplayWhat::Diff(args) => diff::run(&args, out),
        ReplayWhat::Export(args) => export::run(&args, out),
        ReplayWhat::Import(args) => import::run(&args, out),
        ReplayWhat::Pin(args) => label::pin(&args, true, out),
        ReplayWhat::Unpin(args) => label::pin(&args, false, out),
        ReplayWhat::Tag(args) => label::tag(&args, true, out),
        ReplayWhat::Untag(args) => label::tag(&args, false, out),
        ReplayWhat::Note(args) => label::note(&args, out),
        ReplayWhat::Prune(args) => prune::run(&args, out),
        ReplayWhat::Repair(args) => repair::run(&args, out),
        ReplayWhat::Stats(args) => stats::run(&args, out),
        ReplayWhat::Quarantine(args) => quarantine::run(&args.what, out),
    }
}

/// Returns the name of a folder inside the one that was named; `None` is that folder itself.
fn subfolder(data: &Path, dir: &Path) -> Option<String> {
    let inside = dir.strip_prefix(data).ok().filter(|inside| !inside.as_os_str().is_empty());
    inside.map(|inside| inside.display().to_string())
}

pub(crate) fn read_failure(error: ReadError) -> Failure {
    let status = match &error {
        ReadError::NoFolder(_)
        | ReadError::NoEpisode(_)
        | ReadError::Ambiguous { .. }
        | ReadError::InSeveralFolders { .. }
        | ReadError::Archived { .. } => Status::Usage,
        ReadError::Incomplete { .. } | ReadError::Malformed { .. } => Status::Found,
        ReadError::TooManyFolders { .. } | ReadError::Disk(_) => Status::Failed,
    };
    if let ReadError::NoFolder(path) = &error
        && path.to_string_lossy().starts_with("rollhouse:")
    {
        // It is not shown, as there may be a token in it.
        return Failure::new(
            status,
            "--data names a folder; a cluster's connection string goes to --connect",
        );
    }
    let failure = Failure::of(status, &error);
    match &error {
        ReadError::NoFolder(_) => failure.hint(
            "recordings are looked for in --data DIR, else in $ROLLHOUSE_DATA, else in ./rollhouse-data",
        ),
        ReadError::NoEpisode(_) => failure.hint("`rollhouse replay ls` lists the episodes there are"),
        ReadError::Incomplete { .. } | ReadError::Malformed { .. } => {
            failure.hint("`rollhouse replay stats` lists what is damaged")
        }
        ReadError::Archived { dir, target, .. } => failure.hint(format!(
            "--connect asks the coordinator, which reads them from there; with none at work, `rollhouse store import \
             --from {target} --data {}` brings them back",
            dir.display()
        )),
        ReadError::InSeveralFolders { .. } => failure.hint("name one of the folders with --data DIR"),
        ReadError::TooManyFolders { .. } => {
            failure.hint("name one of the folders with --data DIR, or move some of them elsewhere")
        }
        ReadError::Ambiguous { .. } | ReadError::Disk(_) => failure,
    }
}

/// An episode in JSON listings; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: String,
    env: &'a str,
    seed: Option<u64>,
    length: u64,
    #[serde(rename = "return")]
    total_reward: Option<f64>,
    outcome: &'a str,
    #[serde(flatten)]
    beside: ListedResult<'a>,
    started: String,
    #[serde(skip)]
    shown_started: String,
    policy: &'a str,
    dynamics: String,
    bytes: u64,
    #[serde(flatten)]
    label: ShownLabel,
    /// The parent of a fork.
    parent: Option<ListedParent>,
}

/// The results of an episode beside its return.
#[derive(Debug, Serialize)]
struct ListedResult<'a> {
    result: Option<&'a str>,
    score: Option<f64>,
    /// The sum of each agent's rewards, of an episode of several.
    agent_returns: BTreeMap<&'a str, f64>,
}

/// The episode from which an episode was forked.
#[derive(Debug, Serialize)]
struct ListedParent {
    id: String,
    step: u64,
}

impl From<Parent> for ListedParent {
    fn from(parent: Parent) -> Self {
        Self { id: parent.name().to_string(), step: parent.step }
    }
}

impl<'a> Listed<'a> {
    fn of(info: &'a EpisodeInfo) -> Self {
        Self {
            id: info.name.to_string(),
            env: info.env(),
            seed: info.seed(),
            length: info.length,
            total_reward: info.total_reward,
            outcome: info.outcome.word(),
            beside: ListedResult {
                result: info.result.word(),
                score: info.score,
                agent_returns: info.agent_returns().collect(),
            },
            started: rfc3339(info.started_ms),
            shown_started: When(info.started_ms).to_string(),
            policy: &info.policy().name,
            dynamics: dynamics(info.dynamics()),
            bytes: info.bytes,
            parent: info.parent().map(ListedParent::from),
            label: ShownLabel::default(),
        }
    }

    /// Adds the labels of the episode.
    fn with(self, labels: &Labels, info: &EpisodeInfo) -> Self {
        Self { label: ShownLabel::of(labels.of(&EpisodeKey::of(info))), ..self }
    }

    /// Makes the entry of an episode that a coordinator lists from its store.
    fn stored(episode: &'a StoreEpisode, labels: &Labels) -> Self {
        let StoreEpisode { run, lane, number, .. } = *episode;
        let key = EpisodeKey { run: run.as_u128(), lane, number };
        Self {
            id: EpisodeName { run: run.short(), lane, number }.to_string(),
            env: &episode.env,
            seed: episode.seed,
            length: episode.length,
            total_reward: episode.total_reward,
            outcome: &episode.outcome,
            beside: ListedResult {
                result: episode.beside.result.as_deref(),
                score: episode.beside.score,
                agent_returns: episode
                    .beside
                    .agent_returns
                    .iter()
                    .map(|(agent, &total)| (&**agent, total))
                    .collect(),
            },
            started: rfc3339(episode.started_ms),
            shown_started: When(episode.started_ms).to_string(),
            policy: &episode.policy,
            dynamics: dynamics(episode.dynamics),
            bytes: episode.bytes,
            parent: episode.parent.map(ListedParent::from),
            label: ShownLabel::of(labels.of(&key)),
        }
    }
}

pub(crate) fn label_failure(error: LabelError) -> Failure {
    match error {
        LabelError::Read(error) => read_failure(error),
        LabelError::TooManyTags { .. } | LabelError::Full(_) => Failure::of(Status::Usage, &error),
        LabelError::Store(_) | LabelError::Locked(_) => Failure::of(Status::Refused, &error),
        LabelError::Damaged { .. } => Failure::of(Status::Found, &error).hint(
            "while it is, nothing of the folder is dropped or pruned; without the file nothing is pinned",
        ),
        LabelError::Disk(_) => Failure::of(Status::Failed, &error),
    }
}
