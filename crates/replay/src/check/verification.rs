//! The result of verifying an episode.

use rollhouse_core::{EnvSpec, EpisodeName, Options};
use rollhouse_env::Registry;

use crate::code::run_record::RunInfo;
use crate::play::divergence::{Divergence, Value, differs};
use crate::play::simulate::Simulator;

/// The result of verifying one episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Verification {
    /// The episode.
    pub name: EpisodeName,
    /// Whether nothing differs and nothing is missing.
    pub ok: bool,
    /// Steps that were checked.
    pub steps: u64,
    /// First difference; `None` if there is none.
    pub first_divergence: Option<Divergence>,
    /// Note on what could not be checked, and why; `None` if all was.
    pub note: Option<String>,
}

/// The reason why episodes are not simulated.
pub(crate) enum Unready {
    /// The env's dynamics have this hash now.
    Dynamics(u64),
    /// The env cannot be made: the message says why.
    Failed(String),
}

/// Makes a simulator for episodes of `run` with these options, if the env has not changed.
pub(crate) fn ready(
    registry: &Registry,
    run: &RunInfo,
    options: &Options,
    lanes: usize,
) -> Result<Box<Simulator>, Unready> {
    let simulator = Simulator::new(registry, &run.spec, options, lanes);
    let simulator = simulator.map_err(|error| Unready::Failed(error.to_string()))?;
    match registry.get(&run.spec.id).map(|entry| entry.spec().dynamics_hash) {
        Ok(now) if now != run.spec.dynamics_hash => Err(Unready::Dynamics(now)),
        _ => Ok(Box::new(simulator)),
    }
}

impl Unready {
    /// Returns the verification of an episode of `spec` that was not simulated.
    pub(crate) fn verification(&self, name: EpisodeName, spec: &EnvSpec) -> Verification {
        let (first_divergence, note) = match self {
            Self::Dynamics(now) => {
                let (recorded, now) = (Value::Hash(spec.dynamics_hash), Value::Hash(*now));
                (Some(differs(0, 0, "dynamics", recorded, now)), None)
            }
            Self::Failed(why) => (None, Some(why.clone())),
        };
        Verification { name, ok: false, steps: 0, first_divergence, note }
    }
}
