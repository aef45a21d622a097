//! Models of ONNX files.
//!
//! ```text
//! bytes --read, checked--> file --fitted to an env's spaces, loaded, tried--> bound file --> policies
//! ```

mod bound;
mod chain;
mod dialect;
mod errors;
mod feeds;
mod file;
mod graph;
mod layout;
mod operators;
mod outputs;
mod playing;
mod runtime;
mod tensor;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};

use rollhouse_core::{EnvSpec, ObservationSpace, Space, StepColumns};

use crate::chooser::Chooser;
use crate::sampling::{Head, Taken};
use crate::{Model, ModelError, Policy, Sampling, SamplingError};
use bound::Bound;
use errors::shown;
pub use errors::{BindError, Cause, OnnxError};
use file::{OnnxFile, Port};
use playing::OnnxPolicy;

/// A net of an ONNX file that chooses actions, as its maker wrote it. Clones share its weights.
#[derive(Debug, Clone)]
pub struct OnnxModel {
    name: String,
    version: u64,
    sampling: Sampling,
    file: Arc<OnnxFile>,
    /// The file as it was fitted last.
    fitted: Arc<Mutex<Option<Fitted>>>,
}

/// How a file is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Computation {
    /// As a net of dense layers, with the same bits on every machine.
    DenseLayers,
    /// By a runtime, all lanes of a request at once: a lane has the same bits among any others.
    Together,
    /// By a runtime, lane by lane: the file is of one row, and several at once give something else, or other bits. At 64 lanes this
    /// takes many times as long.
    LaneByLane,
}

/// A file that was fitted to spaces.
#[derive(Debug, Clone)]
struct Fitted {
    observation: ObservationSpace,
    action: Space,
    has_mask: bool,
    bound: Arc<Bound>,
}

impl OnnxModel {
    /// Takes the net of the bytes of a file, under a name.
    ///
    /// # Errors
    /// See [`OnnxError`].
    pub fn of_bytes(name: &str, bytes: &[u8]) -> Result<Self, OnnxError> {
        let file = OnnxFile::read(bytes)?;
        let version = match file.metadata.get("version") {
            Some(given) => given.parse().map_err(|_| OnnxError::Version { given: shown(given) })?,
            None => 0,
        };
        let sampling = Sampling { deterministic: outputs::Outputs::is_greedy(&file), ..Sampling::default() };
        Ok(Self { name: name.to_owned(), version, sampling, file: Arc::new(file), fitted: Arc::default() })
    }

    /// Returns the net as another version of its weights than the one that its file says.
    #[must_use]
    pub fn with_version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Has actions drawn in another way.
    ///
    /// # Errors
    /// The temperature is not above 0, or epsilon is no probability.
    pub fn with_sampling(self, sampling: Sampling) -> Result<Self, SamplingError> {
        Ok(Self { sampling: sampling.checked()?, ..self })
    }

    /// Returns how the file is computed in an env.
    ///
    /// # Errors
    /// The file does not fit the env.
    pub fn computation(&self, env: &EnvSpec) -> Result<Computation, ModelError> {
        Ok(self.bound(env)?.computation())
    }

    /// Returns the file as it is fitted to the spaces of an env.
    fn bound(&self, env: &EnvSpec) -> Result<Arc<Bound>, ModelError> {
        let has_mask = env.action_mask().is_some();
        let mut fitted = self.fitted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Fitted { observation, action, has_mask: had, bound }) = &*fitted
            && (observation, action, *had) == (&env.observation_space, &env.action_space, has_mask)
        {
            return Ok(bound.clone());
        }
        let bound = Arc::new(Bound::new(&self.file, env).map_err(ModelError::Onnx)?);
        let (observation, action) = (env.observation_space.clone(), env.action_space.clone());
        *fitted = Some(Fitted { observation, action, has_mask, bound: bound.clone() });
        Ok(bound)
    }

    /// Checks that actions can be drawn as is asked.
    fn check_drawing(&self, head: &Head, bound: &Bound, env: &EnvSpec) -> Result<(), ModelError> {
        let Sampling { temperature, epsilon, .. } = self.sampling;
        match head {
            Head::Gaussian(_) if epsilon > 0.0 => Err(ModelError::Epsilon { epsilon }),
            Head::Taken(_) if epsilon > 0.0 || temperature != 1.0 => Err(ModelError::Onnx(BindError::Taken)),
            Head::Taken(Taken::Choices(_)) if env.action_mask().is_some() && !bound.feeds.takes_mask() => {
                Err(ModelError::Onnx(BindError::Unmasked))
            }
            _ => Ok(()),
        }
    }
}

impl Model for OnnxModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn description(&self) -> String {
        let names = |ports: &[Port]| {
            let ports = ports.iter().take(MOST_SHOWN);
            ports
                .map(|port| format!("{} {}", shown(&port.name), port.shown_shape()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let net =
            format!("a file of ONNX from {} to {}", names(&self.file.inputs), names(&self.file.outputs));
        let fitted = self.fitted.lock().unwrap_or_else(PoisonError::into_inner);
        match fitted.as_ref().map(|fitted| fitted.bound.computation()) {
            Some(Computation::LaneByLane) => {
                format!("{net}, computed lane by lane, which takes many times as long at 64 lanes")
            }
            Some(Computation::Together) => format!("{net}, computed for all lanes at once"),
            Some(Computation::DenseLayers) => format!("{net}, computed as dense layers"),
            None => net,
        }
    }

    /// It is of outputs that are logits or means. As it is read, a net of values of actions takes the greatest, any other draws.
    fn sampling(&self) -> Option<Sampling> {
        Some(self.sampling)
    }

    fn is_recurrent(&self, env: &EnvSpec) -> bool {
        self.bound(env).is_ok_and(|bound| bound.feeds.is_recurrent())
    }

    fn states(&self, env: &EnvSpec) -> StepColumns {
        self.bound(env).map(|bound| bound.states.clone()).unwrap_or_default()
    }

    fn columns(&self, env: &EnvSpec) -> StepColumns {
        let bound = self.bound(env).ok();
        let outputs = bound.as_deref().map(|bound| &bound.outputs);
        Chooser::columns(
            outputs.map(|outputs| &outputs.head),
            outputs.is_some_and(|outputs| outputs.value.is_some()),
        )
    }

    fn make(&self, env: &EnvSpec, run_seed: u64) -> Result<Box<dyn Policy>, ModelError> {
        let bound = self.bound(env)?;
        let head = bound.outputs.head.clone();
        self.check_drawing(&head, &bound, env)?;
        let notes = self.columns(env).unknown(0);
        let chooser = Chooser::new(&env.action_space, head, self.sampling, notes, run_seed);
        Ok(Box::new(OnnxPolicy::new(self.name.clone(), self.version, bound, chooser)))
    }
}

/// The most inputs, and outputs, that a description names.
const MOST_SHOWN: usize = 8;
