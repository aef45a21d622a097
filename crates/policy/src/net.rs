//! Policies of dense nets.

use std::sync::Arc;

use rollhouse_core::{ColumnData, EnvSpec, Space, StepColumns};
use rollhouse_env::Target;

use crate::chooser::{Chooser, Looked};
use crate::dense::{Scratch, run_layers};
use crate::inputs::{Inputs, Scaling};
use crate::sampling::Head;
use crate::{Act, ActError, DenseLayer, Model, ModelError, Policy, Sampling, SamplingError};

/// A net of dense layers that chooses actions. It gives the same actions on every machine. Clones share its weights.
#[derive(Debug, Clone)]
pub struct DenseNet {
    pub(crate) name: String,
    pub(crate) version: u64,
    /// Layers from the inputs to the outputs, of which actions are chosen.
    pub(crate) policy: Arc<[DenseLayer]>,
    /// Layers from the inputs to the value of what is seen; none if the net has no value.
    pub(crate) value: Arc<[DenseLayer]>,
    /// Logarithms of the standard deviations of quantities, if the net's outputs have them not.
    pub(crate) log_std: Option<Vec<f32>>,
    /// Whether quantities are squashed to the bounds.
    pub(crate) squashed: bool,
    pub(crate) scaling: Option<Scaling>,
    pub(crate) sampling: Sampling,
}

impl DenseNet {
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

    pub(crate) fn head(&self, space: &Space) -> Result<Head, ModelError> {
        let outputs = self.policy.last().map_or(0, DenseLayer::outputs);
        let head = Head::of(space, outputs, self.log_std.clone(), self.squashed)?;
        match head {
            Head::Gaussian(_) if self.sampling.epsilon > 0.0 => {
                Err(ModelError::Epsilon { epsilon: self.sampling.epsilon })
            }
            head => Ok(head),
        }
    }
}

impl Model for DenseNet {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn description(&self) -> String {
        let widths = |layers: &[DenseLayer]| {
            let inputs = layers.first().map_or(0, DenseLayer::inputs);
            let outputs = layers.iter().map(|layer| format!("-{}", layer.outputs()));
            format!("{inputs}{}", outputs.collect::<String>())
        };
        let policy = format!("dense layers {} to the actions", widths(&self.policy));
        if self.value.is_empty() { policy } else { format!("{policy}, {} to the value", widths(&self.value)) }
    }

    /// As it is read, a net of values of actions takes the greatest, any other draws.
    fn sampling(&self) -> Option<Sampling> {
        Some(self.sampling)
    }

    fn columns(&self, env: &EnvSpec) -> StepColumns {
        Chooser::columns(self.head(&env.action_space).ok().as_ref(), !self.value.is_empty())
    }

    fn make(&self, env: &EnvSpec, run_seed: u64) -> Result<Box<dyn Policy>, ModelError> {
        let head = self.head(&env.action_space)?;
        let wanted = self.policy.first().map_or(0, DenseLayer::inputs);
        let inputs = Inputs::of(&env.observation_space, wanted, self.scaling.clone())?;
        let notes = self.columns(env).unknown(0);
        let chooser = Chooser::new(&env.action_space, head, self.sampling, notes, run_seed);
        let (target, rows) = (Target::best(), Rows::default());
        Ok(Box::new(DensePolicy { target, inputs, chooser, net: self.clone(), rows }))
    }
}

/// Lanes that a dense net plays.
struct DensePolicy {
    target: Target,
    inputs: Inputs,
    chooser: Chooser,
    net: DenseNet,
    rows: Rows,
}

/// Rows of all lanes of a request, which are used again in the next.
#[derive(Default)]
struct Rows {
    inputs: Vec<f32>,
    outputs: Vec<f32>,
    values: Vec<f32>,
    scratch: Scratch,
}

impl Policy for DensePolicy {
    fn name(&self) -> &str {
        &self.net.name
    }

    fn version(&self) -> u64 {
        self.net.version
    }

    fn act(&mut self, request: Act<'_>) -> Result<(), ActError> {
        let count = self.chooser.rows(&request)?;
        let Rows { inputs, outputs, values, scratch } = &mut self.rows;
        self.inputs.write(request.obs, count, inputs);
        run_layers(self.target, &self.net.policy, inputs, scratch, outputs);
        run_layers(self.target, &self.net.value, inputs, scratch, values);
        self.chooser.choose(request, Looked { outputs, values, log_probs: &[], failed: &[] })
    }

    fn notes(&self) -> &[ColumnData] {
        self.chooser.notes()
    }

    fn failed(&self) -> &[u32] {
        self.chooser.failed()
    }
}
