//! The arguments of plug-ins.

use std::path::PathBuf;

use clap::Args;
use rollhouse_core::Plugin;
use rollhouse_env::Registry;

use super::help;
use crate::failure::Failure;
use crate::plugins;

#[derive(Debug, Clone, Args)]
pub(crate) struct PluginArgs {
    /// Load the envs of this shared object as well; may be given several times. docs/plugins.md has how one is made
    #[arg(long = "plugin", value_name = "PATH", help_heading = help::PLUGINS)]
    pub(crate) plugins: Vec<PathBuf>,
    /// Let them run inside of this process, where they are faster and their faults are its own, and not in processes of
    /// their own
    #[arg(long, requires = "plugins", help_heading = help::PLUGINS)]
    pub(crate) trust_plugins: bool,
}

impl PluginArgs {
    /// Loads the plug-ins and returns all envs. Blocks for as long as that takes.
    pub(crate) fn registry(&self) -> Result<Registry, Failure> {
        let plugin = |path: &PathBuf| Plugin { path: path.clone(), trusted: self.trust_plugins };
        let plugins: Vec<_> = self.plugins.iter().map(plugin).collect();
        if !plugins.is_empty() && !self.trust_plugins {
            plugins::log_losses();
        }
        plugins::registry(&plugins, plugins::Hosting::default())
    }
}

/// The arguments of `rollhouse plugin-worker`, which processes of this program start.
#[derive(Debug, Args)]
pub(crate) struct PluginWorkerArgs {
    /// Process that wants the worker
    #[arg(value_name = "PID")]
    pub(crate) host: u32,
}
