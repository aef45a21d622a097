//! The envs that a command knows: the built-in ones and those of plug-ins.

use rollhouse_core::Plugin;
use rollhouse_env::{Registry, UnknownEnv};
use rollhouse_plugin::{PluginFault, register};

use crate::failure::{Failure, Status};

/// Makes the registry of built-in envs and of those of plug-ins, which it loads. Blocks for as long as that takes.
///
/// # Errors
/// If a plug-in cannot be loaded; `way` says how one is declared trusted.
pub(crate) fn registry(plugins: &[Plugin], way: &str) -> Result<Registry, Failure> {
    let registry = Registry::builtin();
    register(&registry, plugins).map_err(|error| {
        let failure = Failure::of(Status::Usage, &error);
        match error.fault {
            PluginFault::Untrusted => failure.hint(way),
            _ => failure,
        }
    })?;
    Ok(registry)
}

/// Makes the failure of an env that the command does not know.
pub(crate) fn unknown_env(error: &UnknownEnv) -> Failure {
    Failure::of(Status::Usage, error)
        .hint("`rollhouse envs` lists all of them; an env of a plug-in needs --plugin PATH")
}
