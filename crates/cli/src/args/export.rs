//! The arguments of `rollhouse replay export` and `import`, and the filters of episodes.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rollhouse_core::{EpisodeName, GameResult, OptionValue, Outcome};
use rollhouse_env::ImageSize;
use rollhouse_export::{Format, MAX_FPS, Settings};
use rollhouse_replay::{Query, Sort, Tag};

use crate::failure::{Failure, Status};

use super::env_options::value_of_option;
use super::{DataArgs, PluginArgs, finite, help, number, return_of_agent, short_run, usual_folder};

#[derive(Debug, Args)]
#[command(
    after_help = "Without NAME it is every episode that `rollhouse replay ls` lists with the same filters.\n\
                        docs/exports.md has what each form is for and what is in it."
)]
pub(crate) struct ExportArgs {
    /// The episodes, as `replay ls` prints them, e.g. k3f9q2tz-17-203
    #[arg(value_name = "NAME", conflicts_with_all = ["env", "outcome", "all_outcomes", "min_return", "min_agent_returns", "options", "run", "sort", "limit", "best", "pinned", "tag"])]
    pub(crate) names: Vec<EpisodeName>,
    /// The form to write [default: that of the ending of --output, as in -o a.html; else jsonl]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Write the one episode into this file instead of to stdout; with parquet all of them, as one table
    #[arg(short, long, value_name = "FILE", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// Write a file for each episode into this folder, which is made if need be; episodes whose file is there are
    /// skipped
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Only the N with the highest return that came to their end
    #[arg(long, value_name = "N", conflicts_with_all = ["sort", "limit"], value_parser = number::any::<usize>)]
    pub(crate) best: Option<usize>,
    #[command(flatten)]
    pub(crate) pictures: PictureArgs,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

impl ExportArgs {
    /// Returns the form with its chosen settings.
    ///
    /// # Errors
    /// If no form is named, and the output's ending is not that of one.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let PictureArgs { every, size, fps, at } = self.pictures;
        let format = self.format.map_or_else(|| ExportFormat::of_output(self.output.as_deref()), Ok)?;
        Ok(Settings { format: format.format(), every, size, fps, at })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The files, each with one episode; of those that end in .orarep what they say is listed, and nothing taken in
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Folder of the recordings, which is made if need be [env: ROLLHOUSE_DATA] [default: ./rollhouse-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

impl ImportArgs {
    /// Returns the folder of recordings.
    pub(crate) fn folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(usual_folder)
    }
}

/// The arguments of pictures.
#[derive(Debug, Args)]
pub(crate) struct PictureArgs {
    /// In films, a picture of every N-th step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::positive::<u64>, help_heading = help::PICTURES)]
    pub(crate) every: u64,
    /// Size in pixels, e.g. 300x200 [default: the env's own]
    #[arg(long, value_name = "WxH", value_parser = size, help_heading = help::PICTURES)]
    pub(crate) size: Option<ImageSize>,
    /// Pictures a second of a film, 1 to 50 [default: the env's own speed]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32, 1, { MAX_FPS as u64 }>, help_heading = help::PICTURES)]
    pub(crate) fps: Option<u32>,
    /// The step of a single picture, 0 is the reset [default: the last]
    #[arg(long, value_name = "STEP", value_parser = number::any::<u64>, help_heading = help::PICTURES)]
    pub(crate) at: Option<u64>,
}

fn size(text: &str) -> Result<ImageSize, String> {
    let sides = text.split_once(['x', 'X']);
    let sides = sides.and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    let (width, height) = sides.ok_or("WIDTHxHEIGHT is wanted, e.g. 300x200")?;
    ImageSize::new(width, height).map_err(|error| error.to_string())
}

/// The filters and the order of episodes of a folder.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only episodes of this environment
    #[arg(long, value_name = "ID")]
    pub(crate) env: Option<String>,
    /// Only episodes that ended in this way: terminated, truncated, crashed, hung, node_lost, evicted, cancelled,
    /// disconnected or policy
    #[arg(long, value_name = "O")]
    pub(crate) outcome: Option<Outcome>,
    /// Only episodes with this result, for envs that give one: win, lose or draw
    #[arg(long, value_name = "W")]
    pub(crate) result: Option<GameResult>,
    /// Also interrupted episodes if the order is by return or length, which otherwise has only finished ones
    #[arg(long)]
    pub(crate) all_outcomes: bool,
    /// Only episodes with at least this return
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = finite)]
    pub(crate) min_return: Option<f64>,
    /// Only episodes in which this agent, of several, has at least that return; may be given again
    #[arg(long = "min-agent-return", value_name = "AGENT=R", value_parser = return_of_agent)]
    pub(crate) min_agent_returns: Vec<(String, f64)>,
    /// Only episodes that had this option of their environment, drawn or given; may be given again
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = value_of_option)]
    pub(crate) options: Vec<(String, OptionValue)>,
    /// Only episodes of this run: the first part of their names, e.g. k3f9q2tz
    #[arg(long, value_name = "RUN", value_parser = short_run)]
    pub(crate) run: Option<u64>,
    /// Only pinned episodes
    #[arg(long)]
    pub(crate) pinned: bool,
    /// Only episodes with this tag
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<Tag>,
    /// Order by return, length, started or name; with - in front, the largest first [default: name; `replay ls` on a
    /// terminal: -started]
    #[arg(long, value_name = "[-]KEY", allow_hyphen_values = true)]
    pub(crate) sort: Option<Sort>,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = number::any::<usize>)]
    pub(crate) limit: Option<usize>,
}

impl FilterArgs {
    /// Returns whether they ask for labels, which folders have and stores do not.
    pub(crate) const fn has_labels(&self) -> bool {
        self.pinned || self.tag.is_some()
    }

    /// Returns the query without its limit and its labels.
    pub(crate) fn query(&self) -> Query {
        Query {
            env: self.env.clone(),
            outcome: self.outcome,
            result: self.result,
            all_outcomes: self.all_outcomes,
            options: self.options.clone(),
            min_return: self.min_return,
            min_agent_returns: self.min_agent_returns.clone(),
            run: self.run,
            sort: self.sort.unwrap_or_default(),
            ..Query::default()
        }
    }
}

/// A form in which an episode is written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A JSON object a line and step, for scripts
    Jsonl,
    /// A film, for pages and chats
    Gif,
    /// A picture of one step
    Png,
    /// A page that plays it, to open in a browser: one file, no network
    Html,
    /// NumPy arrays, for `numpy.load`
    Npz,
    /// A table with a row for each step, for pandas, Polars, DuckDB and Spark
    #[cfg(feature = "formats")]
    Parquet,
    /// Messages for each step, for Foxglove and Rerun
    #[cfg(feature = "formats")]
    Mcap,
    /// The recording itself, in a file that `replay import` takes in again
    Rhr,
}

impl ExportFormat {
    /// Returns the form that the ending of a file's name stands for; lines of JSON without a file or an ending.
    fn of_output(output: Option<&Path>) -> Result<Self, Failure> {
        let ending = output.and_then(Path::extension).map(|ending| ending.to_string_lossy().to_lowercase());
        let form = match ending.as_deref() {
            None | Some("json" | "ndjson") => Some(Self::Jsonl),
            Some("htm") => Some(Self::Html),
            Some(ending) => Self::from_str(ending, false).ok(),
        };
        form.ok_or_else(|| {
            let ending = ending.unwrap_or_default();
            let known = Self::value_variants().iter().filter_map(Self::to_possible_value);
            let known: Vec<_> = known.map(|value| value.get_name().to_owned()).collect();
            Failure::new(
                Status::Usage,
                format_args!("`.{ending}` is the ending of no form that is written here"),
            )
            .hint(format_args!("name the form: --format {}", known.join("|")))
        })
    }

    /// Returns the form in the words of the export crate.
    pub(crate) const fn format(self) -> Format {
        match self {
            Self::Jsonl => Format::Jsonl,
            Self::Gif => Format::Gif,
            Self::Png => Format::Png,
            Self::Html => Format::Html,
            Self::Npz => Format::Npz,
            #[cfg(feature = "formats")]
            Self::Parquet => Format::Parquet,
            #[cfg(feature = "formats")]
            Self::Mcap => Format::Mcap,
            Self::Rhr => Format::Rhr,
        }
    }
}
