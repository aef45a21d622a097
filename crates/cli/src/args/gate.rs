//! The arguments of gates.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use rollhouse_core::EnvId;

use super::{ConnectArgs, OptionArgs, PluginArgs, PythonArgs, help, number};

#[derive(Debug, Args)]
#[cfg_attr(not(feature = "gate"), allow(dead_code, reason = "only gates read them"))]
pub(crate) struct GateArgs {
    #[command(subcommand)]
    pub(crate) what: GateWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateWhat {
    /// Serve OpenRA's bridge for learners (gRPC, openra.rl.RLBridge): its clients play Skirmish-v0
    Openra(OpenraArgs),
    /// Serve OpenEnv's protocol (HTTP and WebSocket): its clients play any environment
    Openenv(OpenenvArgs),
}

impl GateWhat {
    /// Returns the environment that is served, and what its lanes stand on.
    pub(crate) const fn lanes(&mut self) -> (&EnvId, &mut GateLanesArgs) {
        match self {
            Self::Openra(args) => (&args.env, &mut args.lanes),
            Self::Openenv(args) => (&args.env, &mut args.lanes),
        }
    }
}

/// The lanes behind a gate: where they are stepped and recorded.
#[derive(Debug, Args)]
#[cfg_attr(not(feature = "gate"), allow(dead_code, reason = "only gates read all of them"))]
pub(crate) struct GateLanesArgs {
    #[command(flatten)]
    pub(crate) env_options: OptionArgs,
    /// Folder to record all sessions into, which are stepped in this process then [default: none is recorded]
    #[arg(long, value_name = "DIR", help_heading = help::RECORDINGS, conflicts_with = "connect")]
    pub(crate) data: Option<PathBuf>,
    /// Step the sessions on a cluster's nodes, each as a pool of one lane that is recorded there
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
}

#[derive(Debug, Args)]
#[cfg_attr(not(feature = "gate"), allow(dead_code, reason = "only gates read all of them"))]
pub(crate) struct OpenraArgs {
    /// Address to listen on; one that other machines reach needs --token-file. Port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9999", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// File with the token that calls have to carry, as `authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Environment of all sessions: Skirmish-v0, or another with its observations and actions
    #[arg(long, value_name = "ID", default_value = "Skirmish-v0")]
    pub(crate) env: EnvId,
    /// Most sessions at a time, beside the one of the stream, 1 to 4096
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number::whole::<usize, 1, 4096>)]
    pub(crate) sessions: usize,
    /// Ticks a second of the stream GameSession, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = number::whole::<u32, 1, 1000>)]
    pub(crate) ticks_per_second: u32,
    /// Play maps that the environment does not have on the map of its option, instead of not beginning such a session
    #[arg(long)]
    pub(crate) any_map: bool,
    /// Seed of the stream's first game [default: drawn]
    #[arg(long, value_name = "S", value_parser = number::any::<u64>)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) lanes: GateLanesArgs,
    /// Print the address as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[cfg_attr(not(feature = "gate"), allow(dead_code, reason = "only gates read all of them"))]
pub(crate) struct OpenenvArgs {
    /// Address to listen on; one that other machines reach needs --token-file. Port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// File with the token that requests have to carry, as `authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Environment of all sessions
    #[arg(long, value_name = "ID")]
    pub(crate) env: EnvId,
    /// Most sessions at a time, 1 to 1024: each socket is one
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number::whole::<usize, 1, 1024>)]
    pub(crate) sessions: usize,
    /// Seconds after which a session is ended whose client sends nothing, 1 to 604800
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = number::whole::<u64, 1, 604_800>)]
    pub(crate) idle: u64,
    #[command(flatten)]
    pub(crate) lanes: GateLanesArgs,
    /// Print the address as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads `HOST:PORT`; of a name's addresses the first is taken.
fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| format!("HOST:PORT is wanted: {error}"))?;
    found.next().ok_or_else(|| "the name has no address".to_owned())
}
