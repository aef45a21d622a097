//! The envs in which recorded episodes are stepped again.

use std::fmt;
use std::sync::Arc;

use rollhouse_env::{EnvEntry, Registry};

use crate::code::run_record::RunInfo;
use crate::play::simulate::SimulateError;

/// Envs in which recorded episodes are stepped again: those of a registry, and if it is asked for those of Python packages,
/// each as its recording says.
#[derive(Clone, Copy)]
pub struct Envs<'a> {
    registry: &'a Registry,
    learn: Option<&'a LearnEnv<'a>>,
}

/// A function that gives the env of a run that was recorded of a Python package, or says why it cannot. It is called for
/// each pass, so it remembers what it learned.
pub type LearnEnv<'a> = dyn Fn(&RunInfo) -> Result<Arc<EnvEntry>, String> + Sync + 'a;

impl<'a> Envs<'a> {
    /// Adds envs of Python packages to those of a registry. Whoever decides what is imported is `learn`: a recording has no
    /// more than an id and arguments.
    pub fn learning(registry: &'a Registry, learn: &'a LearnEnv<'a>) -> Self {
        Self { registry, learn: Some(learn) }
    }

    /// Returns whether an env is one of a Python package, which is hosted for as long as its episodes are stepped.
    pub(crate) fn hosts(self, run: &RunInfo) -> bool {
        self.learn.is_some() && run.spec.source.is_learned() && self.registry.get(&run.spec.id).is_err()
    }

    /// Returns the env of a run, if it is still the recorded one.
    ///
    /// # Errors
    /// [`SimulateError::Unknown`], [`SimulateError::NotHosted`], [`SimulateError::Learn`] or [`SimulateError::Dynamics`].
    pub fn entry_of(self, run: &RunInfo) -> Result<Arc<EnvEntry>, SimulateError> {
        let entry = match (self.registry.get(&run.spec.id), self.learn) {
            (Ok(entry), _) => entry,
            (Err(error), _) if !run.spec.source.is_learned() => return Err(SimulateError::Unknown(error)),
            (Err(_), Some(learn)) => learn(run).map_err(SimulateError::Learn)?,
            (Err(_), None) => return Err(SimulateError::NotHosted { env: run.spec.id.clone() }),
        };
        let (recorded, now) = (run.spec.dynamics_hash, entry.spec().dynamics_hash);
        if now == recorded { Ok(entry) } else { Err(SimulateError::Dynamics { recorded, now }) }
    }
}

impl<'a> From<&'a Registry> for Envs<'a> {
    fn from(registry: &'a Registry) -> Self {
        Self { registry, learn: None }
    }
}

impl fmt::Debug for Envs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envs").field("registry", self.registry).finish_non_exhaustive()
    }
}
