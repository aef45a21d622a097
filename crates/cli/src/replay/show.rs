//! `rollhouse replay show`: shows all facts of one episode.

use std::collections::BTreeMap;
use std::io;

use rollhouse_core::{ColumnSpec, Distribution, OptionValue, Options, StepColumns};
use rollhouse_replay::{EpisodeInfo, EpisodeKey, RecordKind};
use serde::Serialize;

use crate::args::ShowArgs;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, Count, Real, When};
use crate::json::{StepColumnObject, dynamics};
use crate::output::Output;
use crate::replay::Listed;
use crate::replay::label::ShownLabel;
use crate::replay::nearest::find_or_nearest;
use crate::replay::source::Source;

pub(super) fn run(args: &ShowArgs, out: &mut Output) -> Result<Status, Failure> {
    let source = Source::of(&args.data)?;
    let library = source.open()?;
    let found = find_or_nearest(&library, args.name)?;
    let labels = source.labels(&library)?;
    let label = ShownLabel::of(labels.of(&EpisodeKey::of(&found.info)));
    let folder = source.subfolder(found.folder.dir());
    if args.json {
        out.json(&EpisodeDetails::of(&found.info, folder, label))?;
    } else {
        print(&found.info, folder, &label, out)?;
    }
    Ok(Status::Done)
}

/// The output of `--json` beside the fields of `replay ls`.
#[derive(Debug, Serialize)]
struct EpisodeDetails<'a> {
    #[serde(flatten)]
    listed: Listed<'a>,
    run: String,
    lane: u32,
    number: u64,
    start: ShownStart,
    options: Options,
    /// The distributions of the options that were drawn.
    drawn: BTreeMap<String, Distribution>,
    max_episode_steps: Option<u32>,
    autoreset: &'a str,
    policy_version: u64,
    recorded: RecordKind,
    #[serde(flatten)]
    beside: ShownBeside<'a>,
    program: &'a str,
    /// The folder inside the one that was named, if the episode is in one.
    folder: Option<String>,
}

/// What only some recordings have.
#[derive(Debug, Serialize)]
struct ShownBeside<'a> {
    /// The arguments of an env of a Python package, if it has some: an object.
    env_kwargs: Option<serde_json::Value>,
    /// The spacing in steps of recorded pictures, if there are any.
    frames_every: Option<u64>,
    /// What was noted of each step beside that.
    step_columns: Vec<StepColumnObject<'a>>,
}

/// The start of its randomness: a generator seeded with `seed` that has yielded `words` words.
#[derive(Debug, Serialize)]
struct ShownStart {
    seed: u64,
    words: u64,
    half: Option<u32>,
}

impl<'a> EpisodeDetails<'a> {
    fn of(info: &'a EpisodeInfo, folder: Option<String>, label: ShownLabel) -> Self {
        Self {
            listed: Listed { label, ..Listed::of(info) },
            run: info.run_id().to_string(),
            lane: info.name.lane,
            number: info.name.number,
            start: ShownStart { seed: info.start.seed, words: info.start.words, half: info.start.half },
            options: info.options(),
            drawn: drawn(&info.lane_options()),
            max_episode_steps: info.run.max_episode_steps,
            autoreset: &info.run.autoreset,
            policy_version: info.policy().version,
            recorded: info.recorded(),
            beside: ShownBeside {
                env_kwargs: arguments(info)
                    .map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.into())),
                frames_every: Some(info.run.frames_every).filter(|&every| every > 0),
                step_columns: info.run.step_columns.specs().iter().map(StepColumnObject::from).collect(),
            },
            program: &info.run.program,
            folder,
        }
    }
}

/// Returns the arguments of an env of a Python package as they were recorded, if there are some.
fn arguments(info: &EpisodeInfo) -> Option<&str> {
    Some(&*info.run.arguments).filter(|text| !text.is_empty())
}

/// Returns the distributions of a lane's options.
fn drawn(options: &Options) -> BTreeMap<String, Distribution> {
    options.drawn().map(|(name, distribution)| (name.to_owned(), distribution.clone())).collect()
}

/// Returns the words for what was recorded.
const fn recorded(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::ActionLog => "its start and its actions; the rest is recomputed",
        RecordKind::Trace => "everything, and it can be recomputed",
        RecordKind::Full => "everything; it cannot be recomputed",
    }
}

/// Returns the words for what was noted of each step.
fn noted(columns: &StepColumns) -> String {
    let shown = |column: &ColumnSpec| match &column.shape[..] {
        [] => format!("{} ({})", column.path, column.dtype),
        shape => {
            let shape: Vec<_> = shape.iter().map(usize::to_string).collect();
            format!("{} ({} {})", column.path, column.dtype, shape.join(" x "))
        }
    };
    format!("of each step {}", columns.specs().iter().map(shown).collect::<Vec<_>>().join(", "))
}

/// Returns the options of an episode, and of what they were drawn.
fn options(info: &EpisodeInfo) -> String {
    let drawn = drawn(&info.lane_options());
    let shown = |(name, value): (&str, &OptionValue)| match drawn.get(name) {
        Some(distribution) => format!("{name} = {value} (drawn: {distribution})"),
        None => format!("{name} = {value}"),
    };
    info.options().iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Returns the sum of its rewards, in words if it is not known.
fn total(info: &EpisodeInfo) -> String {
    let unknown = || "not known: its end was never recorded".to_owned();
    info.total_reward.map_or_else(unknown, |total| Real(total).to_string())
}

fn agents(info: &EpisodeInfo) -> String {
    let shown = info.agent_returns().map(|(agent, total)| format!("{agent} {}", Real(total)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns where its randomness starts, under its name.
fn start(info: &EpisodeInfo) -> (&'static str, String) {
    if let Some(seed) = info.seed() {
        return ("seed", format!("{seed}: reset(seed) gives its first state"));
    }
    let (words, seed) = (Count(info.start.words), info.start.seed);
    ("start", format!("{words} random words after the lane was seeded with {seed}"))
}

fn print(info: &EpisodeInfo, folder: Option<String>, label: &ShownLabel, out: &mut Output) -> io::Result<()> {
    writeln!(
        out,
        "{}: episode {} of lane {} of a run of {}\n",
        info.name,
        info.name.number,
        info.name.lane,
        info.env()
    )?;
    let mut line = |what: &str, value: String| writeln!(out, "  {what:<10} {value}");
    line("return", total(info))?;
    let agents = agents(info);
    if !agents.is_empty() {
        line("agents", agents)?;
    }
    line("steps", Count(info.length).to_string())?;
    line("outcome", info.outcome.word().into())?;
    if let Some(word) = info.result.word() {
        line("result", word.into())?;
    }
    if let Some(score) = info.score {
        line("score", Real(score).to_string())?;
    }
    line("policy", format!("{}, version {}", info.policy().name, info.policy().version))?;
    if let Some(parent) = info.parent() {
        line("fork of", format!("{}, step {}: the same up to there", parent.name(), Count(parent.step)))?;
    }
    line("started", format!("{} UTC", When(info.started_ms)))?;
    let (what, start) = start(info);
    line(what, start)?;
    let limit = info.run.max_episode_steps.map(|limit| format!("{} steps", Count(limit.into())));
    line("limit", limit.unwrap_or_else(|| "none".into()))?;
    if let Some(arguments) = arguments(info) {
        line("arguments", arguments.to_owned())?;
    }
    let options = options(info);
    if !options.is_empty() {
        line("options", options)?;
    }
    line("recorded", recorded(info.recorded()).into())?;
    if info.run.frames_every > 0 {
        line("pictures", format!("of every {} steps", Count(info.run.frames_every)))?;
    }
    if !info.run.step_columns.is_empty() {
        line("noted", noted(&info.run.step_columns))?;
    }
    line("size", format!("about {}", Bytes(info.bytes)))?;
    line("dynamics", dynamics(info.dynamics()))?;
    line("run", info.run_id().to_string())?;
    if let Some(folder) = folder {
        line("folder", folder)?;
    }
    line("program", info.run.program.clone())?;
    label.lines().into_iter().try_for_each(|(what, value)| line(what, value))
}
