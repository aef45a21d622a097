//! The envs in which recorded episodes are stepped again.

use std::fmt;
use std::sync::Arc;

use rollhouse_core::EnvKind;
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
pub type LearnEnv<'a> = dyn Fn(&RunInfo) -> Result<Arc<EnvEntry>, String> + 'a;

impl<'a> Envs<'a> {
    /// Adds envs of Python packages to those of a registry. Whoever decides what is imported is `learn`: a recording has no
    /// more than an id and arguments.
    pub fn learning(registry: &'a Registry, learn: &'a LearnEnv<'a>) -> Self {
        Self { registry, learn: Some(learn) }
    }

    /// Returns whether an env is one of a Python package, which is hosted for as long as its episodes are stepped.
    pub(crate) fn hosts(self, run: &RunInfo) -> bool {
        self.learn.is_some() && EnvKind::has_id(&run.spec.id) && self.registry.get(&run.spec.id).is_err()
    }

    /// Returns the env of a run.
    pub(crate) fn entry(self, run: &RunInfo) -> Result<Arc<EnvEntry>, Unready> {
        match (self.registry.get(&run.spec.id), self.learn) {
            (Ok(entry), _) => Ok(entry),
            (Err(error), _) if !EnvKind::has_id(&run.spec.id) => {
                Err(Unready::Failed(SimulateError::Unknown(error).to_string()))
            }
            (Err(_), Some(learn)) => learn(run).map_err(Unready::Failed),
            (Err(_), None) => Err(Unready::NotHosted),
        }
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

/// The reason why episodes are not simulated.
pub(crate) enum Unready {
    /// The env is one of a Python package, and nobody hosts those.
    NotHosted,
    /// The env's dynamics have this hash now. Those of a Python env are `hosted`.
    Dynamics { now: u64, hosted: bool },
    /// The env cannot be made: the message says why.
    Failed(String),
}
