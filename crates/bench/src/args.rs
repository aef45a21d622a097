//! The command line of `rollhouse-bench`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rollhouse_cli::args::{lanes, threads};
use rollhouse_core::AutoresetMode;
use rollhouse_env::InstructionSet;
use serde::Serialize;

/// Measure how fast this machine, or a cluster on it, is
#[derive(Debug, Parser)]
#[command(name = "rollhouse-bench", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Steps per second through the engine, without and with recording
    Engine(EngineArgs),
    /// Bytes and round trips per second through the cluster's transport, beside a bare QUIC stream
    Quic(QuicArgs),
    /// Many small sessions of a cluster in this process, the opening of a large pool, and sessions at rest
    Cluster(ClusterArgs),
    /// A step through memory shared with a node's process, beside the engine alone and QUIC
    Shm(ShmArgs),
    /// What one slow lane costs the others in first-done mode, embedded, through memory and over QUIC
    FirstDone(FirstDoneArgs),
    /// Rounds of late sessions over QUIC on few threads, and many sessions at rest
    Late(LateArgs),
    /// A trainer on a cluster whose processes are killed and paused, whose disks are full and whose links are cut,
    /// compared with an engine and with the store
    Chaos(ChaosArgs),
    /// A trainer that steps until it is killed: `chaos` starts it
    #[command(hide = true)]
    ChaosTrainer(ChaosTrainerArgs),
    /// A tenant that floods until it is killed: `chaos --tenants` starts it
    #[command(hide = true)]
    ChaosTenant(ChaosTenantArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ChaosTrainerArgs {
    /// File with the connection string
    #[arg(long, value_name = "FILE")]
    pub(crate) connect: PathBuf,
}

/// What a tenant does without a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TenantKind {
    /// Connects to coordinator and nodes, and keeps the connections.
    Connections,
    /// Asks all that a viewer may ask.
    Questions,
    /// Asks for long answers and reads none.
    Unread,
    /// Opens recorded episodes as sessions, and watches them.
    Replays,
    /// Opens pools, and leaves them open.
    Pools,
    /// Steps many lanes of many sessions.
    Steps,
    /// Begins rollouts that play by themselves.
    Rollouts,
    /// Asks for ever new Python envs, whose constructors sleep.
    Learning,
    /// Steps Python envs whose steps sleep.
    Sleepers,
}

#[derive(Debug, Args)]
pub(crate) struct ChaosTenantArgs {
    /// What it does
    pub(crate) kind: TenantKind,
    /// File with the connection string
    #[arg(long, value_name = "FILE")]
    pub(crate) connect: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// Minutes during which faults happen; before them the trainer steps undisturbed for a quarter of that time, at
    /// least 5 s and at most a minute
    #[arg(long, value_name = "M", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub(crate) minutes: u32,
    /// Number of processes that are killed at least, however long that takes
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) kills: u64,
    /// Seed of the faults
    #[arg(long, value_name = "SEED", default_value = "1")]
    pub(crate) seed: u64,
    /// Have tenants flood the cluster for all that time, after a quarter of it in which the same kinds of faults happen
    /// without them, and backups be restored; fail if anybody honest waits more than twice as long. No link is cut then
    #[arg(long)]
    pub(crate) tenants: bool,
    /// Interpreter with gymnasium and rollhouse, for tenants whose envs sleep
    #[arg(long, value_name = "PYTHON", requires = "tenants")]
    pub(crate) python: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShmArgs {
    /// Steps of 64 lanes in a repetition; a twentieth of them over QUIC
    #[arg(long, value_name = "N", default_value = "20000", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) steps: u32,
    /// Batches of 4,096 wide lanes
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) batches: u32,
    /// Number of repetitions, each of all variants in turn
    #[arg(long, value_name = "R", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// Milliseconds for which trainers of both transports step on the node side by side
    #[arg(long, value_name = "MS", default_value = "3000", value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub(crate) beside_ms: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FirstDoneArgs {
    /// Milliseconds of a run
    #[arg(long, value_name = "MS", default_value = "2000", value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub(crate) run_ms: u64,
    /// Number of pairs of runs on each transport: all lanes alike, and with a slow one
    #[arg(long, value_name = "R", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LateArgs {
    /// Sessions that are played side by side
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) sessions: u32,
    /// Threads that each node has for what may wait
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) waiting_threads: u32,
    /// Number of rounds of each kind
    #[arg(long, value_name = "R", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
    /// Sessions that are left at rest
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) idle_sessions: u32,
    /// Seconds for which they are left at rest
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) idle_seconds: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Sessions of one lane that are played side by side
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub(crate) sessions: u32,
    /// Number of episodes that each of them plays
    #[arg(long, value_name = "E", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) episodes: u32,
    /// Sessions that are left at rest
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub(crate) idle_sessions: u32,
    /// Seconds for which they are left at rest
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) idle_seconds: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuicArgs {
    /// Bytes that go there and back: at least as many as 64 stepped lanes return
    #[arg(long, value_name = "B", default_value = "65536", value_parser = clap::value_parser!(u32).range(2048..=16_777_216))]
    pub(crate) bytes: u32,
    /// Number of round trips in a repetition
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) round_trips: u32,
    /// Number of repetitions, each of all variants in turn
    #[arg(long, value_name = "R", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Environment to step
    #[arg(long, value_name = "ID", default_value = "CartPole-v1")]
    pub(crate) env: String,
    /// Number of copies of it to step side by side
    #[arg(long, value_name = "N", default_value = "4096", value_parser = lanes)]
    pub(crate) lanes: usize,
    /// The most threads to step on
    #[arg(long, value_name = "T", default_value = "1", value_parser = threads)]
    pub(crate) threads: usize,
    /// Instruction set: sse2, avx2 or avx512 [default: the best this machine has]
    #[arg(long, value_name = "SET")]
    pub(crate) isa: Option<InstructionSet>,
    /// NextStep or SameStep
    #[arg(long, value_name = "MODE", default_value = "NextStep", value_parser = autoreset)]
    pub(crate) autoreset: AutoresetMode,
    /// Repetitions of about a fifth of a second each, without and with recording in turn
    #[arg(long, value_name = "R", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn autoreset(text: &str) -> Result<AutoresetMode, String> {
    match text.parse::<AutoresetMode>() {
        // Nobody would reset the lanes.
        Ok(AutoresetMode::Disabled) => Err("a bench needs NextStep or SameStep".to_owned()),
        Ok(mode) => Ok(mode),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
