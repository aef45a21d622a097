//! The arguments of `rollhouse replay fork` and `rollhouse play`.

use std::path::PathBuf;

use clap::Args;
use rollhouse_core::EpisodeName;
#[cfg(feature = "viewer")]
use rollhouse_viewer::Pictures;

#[cfg(feature = "viewer")]
use super::play::pictures;
use super::{DataArgs, HostingArgs, Place, PluginArgs, PolicyName, number, usual_folder};
#[cfg(feature = "viewer")]
use super::{OptionArgs, PythonArgs};

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The episode, as `replay ls` prints it, e.g. k3f9q2tz-17-203
    #[arg(value_name = "NAME")]
    pub(crate) name: EpisodeName,
    /// The last step that the new episode shares with it; 0 is the reset
    #[arg(long, value_name = "STEP", value_parser = number::any::<u64>)]
    pub(crate) at: u64,
    #[command(flatten)]
    pub(crate) way: WayArgs,
    /// Seed of the policy; the same seed gives the same fork [default: drawn and shown]
    #[arg(long, value_name = "S", requires = "policy", value_parser = number::any::<u64>)]
    pub(crate) seed: Option<u64>,
    /// Take at most this many steps from there; without it the episode goes on to its end, or its time limit
    #[arg(long, value_name = "N", value_parser = number::positive::<u64>)]
    #[cfg_attr(feature = "viewer", arg(conflicts_with = "by_hand"))]
    pub(crate) steps: Option<u64>,
    /// Folder into which the fork is recorded [default: that of --data; for a cluster's episodes $ROLLHOUSE_DATA, else
    /// ./rollhouse-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    #[cfg(feature = "viewer")]
    #[command(flatten)]
    pub(crate) hand: HandArgs,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) hosting: HostingArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The source of actions after the fork.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WayArgs {
    /// A policy: random, noop, or a file of a net (FILE.safetensors, FILE.onnx)
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<PolicyName>,
    /// A file: a JSON line for each step, an action or an object that has one as `action`, as `replay export` writes
    /// them; lines that name their step as `t` are skipped up to --at. `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) actions: Option<PathBuf>,
    /// You, with the keyboard
    #[cfg(feature = "viewer")]
    #[arg(long, conflicts_with = "json")]
    pub(crate) by_hand: bool,
}

impl ForkArgs {
    /// Returns whether a person plays on.
    pub(crate) const fn by_hand(&self) -> bool {
        #[cfg(feature = "viewer")]
        return self.way.by_hand;
        #[cfg(not(feature = "viewer"))]
        false
    }

    /// Returns the folder into which it is recorded.
    pub(crate) fn folder(&self) -> PathBuf {
        self.into.clone().unwrap_or_else(|| match self.data.place() {
            Place::Folder(folder) => folder,
            Place::Cluster => usual_folder(),
        })
    }
}

/// The arguments of how playing by hand is shown.
#[cfg(feature = "viewer")]
#[derive(Debug, Args)]
pub(crate) struct HandArgs {
    /// Steps a second when it is played by hand [default: as the env is usually shown, else 30]
    #[arg(long, value_name = "X", value_parser = steps_per_second)]
    pub(crate) fps: Option<f64>,
    /// Way of drawing the env's picture then: pixels by a terminal's protocol, or its cells; by default the terminal is
    /// asked
    #[arg(long, value_name = "HOW", default_value = "asked", value_parser = pictures())]
    pub(crate) pictures: Pictures,
}

#[cfg(feature = "viewer")]
#[derive(Debug, Args)]
pub(crate) struct PlayEnvArgs {
    /// The env: one of `rollhouse envs`, gymnasium:ID, or package.module:Class in Python
    #[arg(value_name = "ENV")]
    pub(crate) env: rollhouse_core::EnvId,
    /// Seed of the episodes: the same seed begins the same ones [default: drawn and shown]
    #[arg(long, value_name = "S", value_parser = number::any::<u64>)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) env_options: OptionArgs,
    #[command(flatten)]
    pub(crate) hand: HandArgs,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    /// Folder into which it is recorded [env: ROLLHOUSE_DATA] [default: ./rollhouse-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[cfg(feature = "viewer")]
impl PlayEnvArgs {
    /// Returns the folder into which it is recorded.
    pub(crate) fn folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(usual_folder)
    }
}

#[cfg(feature = "viewer")]
fn steps_per_second(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.1..=240.0).contains(number));
    number.ok_or_else(|| "0.1 to 240 steps a second are wanted".to_owned())
}

#[cfg(all(test, feature = "viewer"))]
mod tests {
    use super::*;

    #[test]
    fn steps_a_second_are_within_what_a_person_can_follow() {
        assert_eq!(steps_per_second("12.5"), Ok(12.5));
        for bad in ["", "0", "0.09", "241", "-1", "nan", "inf"] {
            assert!(steps_per_second(bad).is_err(), "{bad}");
        }
    }
}
