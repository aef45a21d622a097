//! The result of verifying an episode.

use std::error::Error;

use rollhouse_core::{EnvSpec, EpisodeName, Options};

use crate::code::run_record::RunInfo;
use crate::play::divergence::{Divergence, Value, differs};
use crate::play::envs::Envs;
use crate::play::simulate::{SimulateError, Simulator};

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

impl Verification {
    /// Returns whether it was compared: with what its steps gave when they were taken again, or with itself, if that showed
    /// a difference already. Of any other its note says why it was not.
    pub const fn is_compared(&self) -> bool {
        self.note.is_none() || self.first_divergence.is_some()
    }

    /// Returns whether it was not compared because its env is one of a Python package, which was not to be imported.
    pub fn wants_python(&self) -> bool {
        !self.is_compared() && self.note.as_ref().is_some_and(|note| note.contains(NOT_HERE))
    }
}

/// Makes a simulator for episodes of `run` with these options, if the env has not changed.
pub(crate) fn ready(
    envs: Envs<'_>,
    run: &RunInfo,
    options: &Options,
    lanes: usize,
) -> Result<Box<Simulator>, SimulateError> {
    Simulator::of(&*envs.entry_of(run)?, &run.spec, options, lanes).map(Box::new)
}

/// Returns the verification of an episode of `spec` that was not simulated.
pub(crate) fn not_simulated(why: &SimulateError, name: EpisodeName, spec: &EnvSpec) -> Verification {
    let (first_divergence, note) = match why {
        SimulateError::Dynamics { recorded, now } => {
            let (recorded, now) = (Value::Hash(*recorded), Value::Hash(*now));
            let note = spec.source.is_learned().then(|| ANOTHER.to_owned());
            (Some(differs(0, 0, "dynamics", recorded, now)), note)
        }
        SimulateError::NotHosted { .. } => (None, Some(NOT_HERE.to_owned())),
        why => (None, Some(chain(why))),
    };
    Verification { name, ok: false, steps: 0, first_divergence, note }
}

/// Returns the message of an error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors show their cause in their own message already.
        if !message.ends_with(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// Reason for which an episode of a Python env is not stepped again.
pub(crate) const NOT_HERE: &str = "the env is one of a Python package, which is imported only when that is asked for: \
                                    --python, or python= in Python";
/// What is said of a Python env with another dynamics hash.
const ANOTHER: &str = "the env is another one here: its package, what it needs, or this machine";
