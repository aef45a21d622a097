//! The arguments of `rollhouse watch`.

use clap::Args;
use rollhouse_core::EpisodeName;
use rollhouse_viewer::Pictures;

use super::play::pictures;
use super::{ConnectArgs, HostingArgs, PluginArgs, number};

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// A session or pool as `rollhouse sessions` shows it, e.g. k3f9q2tz/0 or k3f9q2tz, or a node's name
    #[arg(value_name = "SESSION|POOL|NODE", required_unless_present = "replay")]
    pub(crate) what: Option<String>,
    /// Open a recorded episode of the cluster's store on a node and watch that, e.g. k3f9q2tz-17-203
    #[arg(long, value_name = "NAME", conflicts_with_all = ["what", "lane"])]
    pub(crate) replay: Option<EpisodeName>,
    /// Begin the recorded episode at this step, paused
    #[arg(long, value_name = "STEP", requires = "replay", default_value_t = 0, value_parser = number::any::<u64>)]
    pub(crate) at: u64,
    /// Have the recorded episode go on by itself, so many times as fast as 30 steps a second (1/16 to 64)
    #[arg(long, value_name = "TIMES", requires = "replay", num_args = 0..=1, default_missing_value = "1")]
    pub(crate) speed: Option<f64>,
    /// Begin with this lane, counted from 0 over all that is watched
    #[arg(long, value_name = "LANE", default_value_t = 0, value_parser = number::any::<u32>)]
    pub(crate) lane: u32,
    /// Way of drawing the env's picture: pixels by a terminal's protocol, or its cells; by default the terminal is asked
    #[arg(long, value_name = "HOW", default_value = "asked", value_parser = pictures())]
    pub(crate) pictures: Pictures,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) hosting: HostingArgs,
    #[command(flatten)]
    pub(crate) cluster: ConnectArgs,
    /// Print each frame of the lane as a line of JSON instead of showing it
    #[arg(long)]
    pub(crate) json: bool,
    /// End after so many frames
    #[arg(long, value_name = "COUNT", requires = "json", value_parser = number::any::<u64>)]
    pub(crate) frames: Option<u64>,
}
