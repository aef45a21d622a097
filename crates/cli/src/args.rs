//! The command line: its commands and their arguments.

mod bridge;
mod cluster;
mod env_options;
mod export;
mod gate;
mod hand;
mod help;
mod number;
#[cfg(feature = "viewer")]
mod play;
mod plugin;
pub(crate) mod policy;
mod python;
mod shelf;
mod store;
#[cfg(feature = "viewer")]
mod watch;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use rollhouse_client::MAX_LISTED;
use rollhouse_core::limits::{MAX_LANES, MAX_THREADS};
use rollhouse_core::{EnvId, EpisodeName, RecordRule};

pub(crate) use bridge::{BridgeArgs, BridgeWhat};
pub(crate) use cluster::{
    AuditArgs, COORDINATOR_DATA, CertsArgs, CertsInitArgs, CertsIssueArgs, CertsIssuerArgs, CertsRevokeArgs,
    CertsRevokedArgs, CertsWhat, CloseArgs, ConfigArgs, ConfigCheckArgs, ConfigShowArgs, ConfigWhat,
    ConnectArgs, CoordinatorArgs, DoctorArgs, DoctorRole, DrainArgs, HealthArgs, ListArgs, LookArgs,
    NodeArgs, ServiceArgs, TokenArgs, TokenCreateArgs, TokenLsArgs, TokenRevokeArgs, TokenRotateArgs,
    TokenWhat, UndrainArgs, UpArgs,
};
pub(crate) use env_options::OptionArgs;
pub(crate) use export::{ExportArgs, FilterArgs, ImportArgs};
pub(crate) use gate::GateArgs;
#[cfg(feature = "gate")]
pub(crate) use gate::{GateLanesArgs, GateWhat, OpenenvArgs, OpenraArgs};
pub(crate) use hand::ForkArgs;
#[cfg(feature = "viewer")]
pub(crate) use hand::{HandArgs, PlayEnvArgs};
pub(crate) use help::command;
#[cfg(feature = "viewer")]
pub(crate) use play::PlayArgs;
pub(crate) use plugin::{PluginArgs, PluginWorkerArgs};
pub(crate) use policy::{
    PoliciesArgs, PoliciesWhat, PolicyArgs, PolicyCompareArgs, PolicyExportArgs, PolicyLsArgs, PolicyName,
    PolicyPutArgs, PolicyRmArgs, PolicyShowArgs,
};
pub(crate) use python::{HostingArgs, PythonArgs};
pub(crate) use shelf::{NoteArgs, PinArgs, PruneArgs, TagArgs};
pub(crate) use store::{StoreArgs, StoreExportArgs, StoreImportArgs, StoreVerifyArgs, StoreWhat, TargetArgs};
#[cfg(feature = "viewer")]
pub(crate) use watch::WatchArgs;

/// Steps reinforcement-learning environments and records every episode.
#[derive(Debug, Parser)]
#[command(
    name = "rollhouse",
    version,
    long_version = LONG_VERSION,
    disable_help_subcommand = true,
    max_term_width = 100
)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 usage or config, 3 difference or damage found, \
                        4 refused, 5 unavailable, 130 ended by Ctrl-C.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The text of `--version` beside the version, for bug reports.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("ROLLHOUSE_COMMIT"),
    "\nfeatures: ",
    env!("ROLLHOUSE_FEATURES")
);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Play episodes by a policy and record them, here or on a cluster
    Rollout(RolloutArgs),
    /// Play an environment with the keyboard and record it
    #[cfg(feature = "viewer")]
    Play(PlayEnvArgs),
    /// List the environments, or describe one
    Envs(EnvsArgs),
    /// Serve another simulator's protocol: its clients play an environment of this one
    Gate(GateArgs),
    /// Look at recordings, verify, export and repair them
    Replay(ReplayArgs),
    /// Store, list and remove the policies of a cluster
    Policy(PoliciesArgs),
    /// Carry recordings to a folder or to object storage, and back
    Store(StoreArgs),
    /// Start a cluster on this machine: a coordinator and a node in one process
    Up(UpArgs),
    /// Run the coordinator of a cluster
    Coordinator(CoordinatorArgs),
    /// Run a node: it joins a coordinator and hosts lanes
    Node(NodeArgs),
    /// Run a node beside another simulator, whose worlds the cluster plays then
    Bridge(BridgeArgs),
    /// Check whether this machine has what a service needs, and say what to change
    Doctor(DoctorArgs),
    /// Ask the services of this machine whether they are well: what probes of containers run
    Health(HealthArgs),
    /// Show a cluster at a glance
    Status(LookArgs),
    /// Watch a cluster on the terminal: nodes, sessions, steps a second, and drain nodes from there
    #[cfg(feature = "viewer")]
    Top(TopArgs),
    /// List the nodes of a cluster
    Nodes(ListArgs),
    /// List the open sessions of a cluster
    Sessions(ListArgs),
    /// Watch lanes of a cluster while they are played
    #[cfg(feature = "viewer")]
    Watch(WatchArgs),
    /// End a pool of a cluster: a rollout that goes on by itself, or a trainer's lanes
    Close(CloseArgs),
    /// Drain a node: it takes no new sessions and ends when its last has
    Drain(DrainArgs),
    /// Take a drain back: the node takes new sessions again, unless it has ended
    Undrain(UndrainArgs),
    /// Make the certificates of a cluster's processes
    Certs(CertsArgs),
    /// Make, rotate, revoke and list the tokens of a cluster's users
    Token(TokenArgs),
    /// Show who changed what at a coordinator
    Audit(AuditArgs),
    /// Check a service's settings, or show them with where each comes from
    Config(ConfigArgs),
    /// Print the script with which a shell completes this command
    Completions(CompletionsArgs),
    /// Write the manual: a page for each command
    Man(ManArgs),
    /// Step the lanes of a plug-in for the process that started this one
    #[command(hide = true)]
    PluginWorker(PluginWorkerArgs),
}

impl Command {
    /// Returns how the command hosts the Python environment that it makes on this machine; `None` if it makes none.
    pub(crate) fn hosting(&mut self) -> Option<&mut HostingArgs> {
        let (id, python) = match self {
            Self::Rollout(args) if args.data.place() != Place::Cluster => (Some(&args.env), &mut args.python),
            Self::Envs(args) => (args.id.as_ref(), &mut args.python),
            Self::Gate(GateArgs { what }) => {
                let (env, lanes) = what.lanes();
                (Some(env), &mut lanes.python)
            }
            Self::Policy(PoliciesArgs { what: PoliciesWhat::Compare(args) })
                if args.cluster.url().is_none() =>
            {
                (Some(&args.env), &mut args.python)
            }
            #[cfg(feature = "viewer")]
            Self::Play(args) => (Some(&args.env), &mut args.python),
            _ => return None,
        };
        id.is_some_and(|id| id.source().is_learned()).then_some(&mut python.hosting)
    }
}

/// The arguments of `rollhouse top`.
#[cfg(feature = "viewer")]
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell: bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages; it is made if need be
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    /// Environment to step: one of `rollhouse envs`, gymnasium:ID, or package.module:Class in Python
    #[arg(long, value_name = "ID")]
    pub(crate) env: EnvId,
    /// Number of copies of it to step side by side
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LANES, allow_negative_numbers = true, value_parser = lanes)]
    pub(crate) lanes: usize,
    #[command(flatten)]
    pub(crate) goal: GoalArgs,
    /// Seed of everything random; the same seed gives the same episodes [default: drawn and shown]
    #[arg(long, value_name = "S", value_parser = number::any::<u64>)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// The most threads to step on [default: one per core]
    #[arg(long, value_name = "T", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Episodes to record: all, none, sample:P (each episode with probability P), or trace (also every
    /// observation and reward)
    #[arg(long, value_name = "WHAT", default_value = "all")]
    pub(crate) record: RecordRule,
    #[command(flatten)]
    pub(crate) env_options: OptionArgs,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// On a cluster: begin and end at once; the nodes play on to the goal, or until `rollhouse close RUN`. Else a rollout
    /// whose command is gone ends within 30 s
    #[arg(long)]
    pub(crate) detach: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
}

/// The condition under which the rollout is done.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct GoalArgs {
    /// Stop after this many steps, added up over lanes and rounded up to whole batches
    #[arg(long, value_name = "S", value_parser = number::positive::<u64>)]
    pub(crate) steps: Option<u64>,
    /// Stop after exactly this many episodes
    #[arg(long, value_name = "E", value_parser = number::positive::<u64>)]
    pub(crate) episodes: Option<u64>,
}

/// The place of recordings: what is given first of --connect or --data, $ROLLHOUSE_CONNECT, $ROLLHOUSE_DATA,
/// ./rollhouse-data.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// Folder of the recordings [env: ROLLHOUSE_DATA] [default: ./rollhouse-data]
    #[arg(long, value_name = "DIR", help_heading = help::RECORDINGS, conflicts_with = "connect")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
}

/// The place of recordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A folder on this machine.
    Folder(PathBuf),
    /// The store of a cluster.
    Cluster,
}

impl DataArgs {
    /// Returns the option that names the same place in another command, as it is typed after one; empty if none was given.
    pub(crate) fn option(&self) -> String {
        self.data.as_deref().map_or_else(|| self.cluster.option(), data_option)
    }

    pub(crate) fn place(&self) -> Place {
        match &self.data {
            Some(folder) => Place::Folder(folder.clone()),
            None if self.cluster.url().is_some() => Place::Cluster,
            None => Place::Folder(usual_folder()),
        }
    }
}

/// Returns the folder of recordings if none is named.
fn usual_folder() -> PathBuf {
    let folder = std::env::var_os("ROLLHOUSE_DATA").filter(|value| !value.is_empty());
    folder.map_or_else(|| DEFAULT_DATA.into(), PathBuf::from)
}

impl ConnectArgs {
    /// Returns the option that names the same cluster in another command, as it is typed after one; empty if none was given.
    /// A token is not repeated.
    pub(crate) fn option(&self) -> String {
        match &self.connect {
            Some(given) if given.contains("token=") => " --connect URL".to_owned(),
            Some(given) => format!(" --connect {given}"),
            None => String::new(),
        }
    }

    /// Returns the name of a cluster from the flag or the variable, if there is one.
    pub(crate) fn url(&self) -> Option<String> {
        self.connect.clone().or_else(|| environment("ROLLHOUSE_CONNECT"))
    }
}

/// Returns a variable of the environment, unless it is empty.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[derive(Debug, Args)]
pub(crate) struct EnvsArgs {
    /// Describe only this one, in full: one of the list, gymnasium:ID, or package.module:Class in Python
    #[arg(value_name = "ID")]
    pub(crate) id: Option<EnvId>,
    /// List those under `test/` too, which test the machinery and are no worlds to train in
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    /// List those of a cluster's nodes, and the kinds that they learn when one is asked for
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// List at most that many of a cluster's
    #[arg(long, value_name = "N", default_value_t = MAX_LISTED, value_parser = number::any::<usize>)]
    pub(crate) limit: usize,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(subcommand)]
    pub(crate) what: ReplayWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayWhat {
    /// List recorded episodes
    Ls(LsArgs),
    /// Show everything that is known of one episode
    Show(ShowArgs),
    /// Watch an episode in the terminal: play, pause, step and seek, forward and back
    #[cfg(feature = "viewer")]
    Play(PlayArgs),
    /// Continue an episode from one of its steps in another way: by a policy, by actions from a file, by hand
    Fork(ForkArgs),
    /// Recompute episodes and compare them with what was recorded
    Verify(VerifyArgs),
    /// Show the step at which two episodes part, and how
    Diff(DiffArgs),
    /// Write episodes out for other programs
    Export(ExportArgs),
    /// Take in episodes that `replay export --format rhr` has written; list what replays of OpenRA say of themselves
    Import(ImportArgs),
    /// Pin episodes: no budget drops them and no pruning removes them
    Pin(PinArgs),
    /// Remove pins
    Unpin(PinArgs),
    /// Mark an episode with words that `replay ls --tag` narrows by
    Tag(TagArgs),
    /// Remove such words
    Untag(TagArgs),
    /// Write a note on an episode
    Note(NoteArgs),
    /// Remove episodes, by age, size and filter: lists what would go, and removes it with --yes
    Prune(PruneArgs),
    /// Cut off what a crash left half written, list damage, rebuild the catalogue
    Repair(RepairArgs),
    /// Show totals of the folder; reads all of it and lists damage
    Stats(StatsArgs),
    /// Look at what a store has set aside: episodes that contradict others, and damaged segments
    Quarantine(QuarantineArgs),
}

impl ReplayWhat {
    /// Returns the option of the place of recordings, as [`DataArgs::option`] does.
    pub(crate) fn place_option(&self) -> String {
        let data = match self {
            Self::Ls(args) => &args.data,
            Self::Show(args) => &args.data,
            #[cfg(feature = "viewer")]
            Self::Play(args) => &args.data,
            Self::Fork(args) => &args.data,
            Self::Verify(args) => &args.data,
            Self::Diff(args) => &args.data,
            Self::Export(args) => &args.data,
            Self::Import(args) => return args.data.as_deref().map(data_option).unwrap_or_default(),
            Self::Pin(args) | Self::Unpin(args) => &args.data,
            Self::Tag(args) | Self::Untag(args) => &args.data,
            Self::Note(args) => &args.data,
            Self::Prune(args) => &args.data,
            Self::Repair(args) => &args.data,
            Self::Stats(args) => &args.data,
            Self::Quarantine(args) => match &args.what {
                QuarantineWhat::Ls(args) => &args.data,
                QuarantineWhat::Read(args) => &args.data,
            },
        };
        data.option()
    }
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineArgs {
    #[command(subcommand)]
    pub(crate) what: QuarantineWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineWhat {
    /// List the episodes that are set aside, and the segments that are set aside as a whole
    Ls(QuarantineLsArgs),
    /// Write out an episode that is set aside, step by step
    Read(QuarantineReadArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineLsArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuarantineReadArgs {
    /// The episode, as `replay quarantine ls` prints it
    #[arg(value_name = "NAME")]
    pub(crate) name: EpisodeName,
    /// The folder of the one that is meant, if several have that name, as `replay quarantine ls` prints it
    #[arg(long = "in", value_name = "FOLDER")]
    pub(crate) folder: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// List no existing episodes, but each new one as it comes, until Ctrl-C or --limit
    #[arg(long, conflicts_with = "sort")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The episode, as `replay ls` prints it, e.g. k3f9q2tz-17-203
    #[arg(value_name = "NAME", value_parser = episode)]
    pub(crate) name: EpisodeName,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// One episode, as `replay ls` prints it, e.g. k3f9q2tz-17-203
    #[arg(value_name = "A")]
    pub(crate) a: EpisodeName,
    /// The other one
    #[arg(value_name = "B")]
    pub(crate) b: EpisodeName,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The episodes, as `replay ls` prints them [default: all]
    #[arg(value_name = "NAME", value_parser = episode)]
    pub(crate) names: Vec<EpisodeName>,
    /// Every episode of the folder; also finds all damage
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) hosting: HostingArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Draw returns and lengths over the episodes, and how they ended, for each env
    #[cfg(feature = "viewer")]
    #[arg(long, conflicts_with = "json")]
    pub(crate) plot: bool,
    /// Write that drawing into this file as an SVG picture
    #[cfg(feature = "viewer")]
    #[arg(long, value_name = "FILE", requires = "plot")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a number of lanes, 1 to [`MAX_LANES`]; the error is one sentence.
pub fn lanes(text: &str) -> Result<usize, String> {
    bounded(text, "lanes", MAX_LANES)
}

/// Reads a number of threads, 1 to [`MAX_THREADS`]; the error is one sentence.
pub fn threads(text: &str) -> Result<usize, String> {
    bounded(text, "threads", MAX_THREADS)
}

fn bounded(text: &str, what: &str, most: usize) -> Result<usize, String> {
    let number = number::read(text).and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("there can be 1 to {most} {what}"))
}

/// Reads the short id of a run, with which episodes' names begin, or the whole id, as JSON has it.
fn short_run(text: &str) -> Result<u64, String> {
    if let Some(run) = rollhouse_client::run_named(text) {
        return Ok(run.short());
    }
    let name = format!("{text}-0-0").parse::<EpisodeName>();
    name.map(|name| name.run)
        .map_err(|_| format!("`{text}` is neither what an episode's name begins with nor the id of a run"))
}

/// Reads an episode's name. A file of OpenRA is no episode: the error says why.
fn episode(text: &str) -> Result<EpisodeName, String> {
    let ending = Path::new(text).extension();
    if ending.is_some_and(|ending| ending.eq_ignore_ascii_case("orarep")) {
        return Err(
            "a replay of OpenRA has orders alone, and no states: only OpenRA plays it, with the same build \
                    and map; `rollhouse replay import FILE.orarep` lists what it says of itself"
                .to_owned(),
        );
    }
    text.parse::<EpisodeName>().map_err(|error| error.to_string())
}

fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or_else(|| "a number is wanted".to_owned())
}

/// Reads `AGENT=R`: the least return of an agent, whose name may have the sign in it, too.
fn return_of_agent(text: &str) -> Result<(String, f64), String> {
    let (agent, least) = text.rsplit_once('=').ok_or("AGENT=R is wanted")?;
    Ok((agent.to_owned(), finite(least)?))
}

/// Returns the option that has to be typed for another folder than the usual one.
pub(crate) fn data_option(dir: &Path) -> String {
    if dir == Path::new(DEFAULT_DATA) { String::new() } else { format!(" --data {}", dir.display()) }
}

/// Number of lanes of a rollout that does not name any: some for each core, and few enough for worlds that take a process.
const DEFAULT_LANES: usize = 16;

/// The folder of recordings if no other is named.
pub(crate) const DEFAULT_DATA: &str = "./rollhouse-data";
