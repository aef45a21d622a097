//! The arguments of bridges.

use clap::{Args, Subcommand};

use super::NodeArgs;

#[derive(Debug, Args)]
pub(crate) struct BridgeArgs {
    #[command(subcommand)]
    pub(crate) what: BridgeWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeWhat {
    /// Join a cluster with games of OpenRA's engines: its pools play the worlds openra://MAP
    Openra(OpenraBridgeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OpenraBridgeArgs {
    /// Engine that the node connects to, HOST:PORT, or several with commas between them
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9999")]
    pub(crate) engine: String,
    /// Command line that starts the engine, and starts it again when it ends: a program and its arguments [default: it runs already]
    #[arg(long, value_name = "LINE")]
    pub(crate) launch: Option<String>,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}
