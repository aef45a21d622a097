//! The arguments of `rollhouse watch`.

use clap::Args;
use rollhouse_viewer::Pictures;

use super::ConnectArgs;
use super::play::pictures;

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// A session or pool as `rollhouse sessions` shows it, e.g. k3f9q2tz/0 or k3f9q2tz, or a node's name
    #[arg(value_name = "SESSION|POOL|NODE")]
    pub(crate) what: String,
    /// Begin with this lane, counted from 0 over all that is watched
    #[arg(long, value_name = "LANE", default_value_t = 0)]
    pub(crate) lane: u32,
    /// Way of drawing the env's picture: pixels by a terminal's protocol, or its cells; by default the terminal is asked
    #[arg(long, value_name = "HOW", default_value = "asked", value_parser = pictures())]
    pub(crate) pictures: Pictures,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print each frame of the lane as a line of JSON instead of showing it
    #[arg(long)]
    pub(crate) json: bool,
    /// End after so many frames
    #[arg(long, value_name = "COUNT", requires = "json")]
    pub(crate) frames: Option<u64>,
}
