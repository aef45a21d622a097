//! Policies of dense nets.

use std::sync::Arc;

use rollhouse_core::{ColumnData, ColumnRef, DType, EnvSpec, Space, StepColumn, StepColumns};
use rollhouse_env::Target;

use crate::dense::{Scratch, run_layers};
use crate::inputs::{Inputs, Scaling};
use crate::sampling::{Head, Words, write_actions};
use crate::{Act, ActError, DenseLayer, Model, ModelError, Policy, Sampling};

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
    pub fn with_sampling(mut self, sampling: Sampling) -> Result<Self, SamplingError> {
        let Sampling { temperature, epsilon, .. } = sampling;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(SamplingError::Temperature(temperature));
        }
        if !(0.0..=1.0).contains(&epsilon) {
            return Err(SamplingError::Epsilon(epsilon));
        }
        self.sampling = sampling;
        Ok(self)
    }

    fn head(&self, space: &Space) -> Result<Head, ModelError> {
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

/// Error of a [`Sampling`] that there cannot be.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// The temperature is no positive number.
    #[error("temperature {0}; it is above 0")]
    Temperature(f64),
    /// Epsilon is no probability.
    #[error("epsilon {0}; it is from 0 to 1")]
    Epsilon(f64),
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
        let number = |name: &str| StepColumn { name: name.to_owned(), dtype: DType::F32, shape: Vec::new() };
        let mut columns = vec![number(LOG_PROB)];
        if !self.value.is_empty() {
            columns.push(number(VALUE));
        }
        if let Ok(head) = self.head(&env.action_space)
            && head.cuts()
        {
            columns.push(StepColumn { shape: vec![head.elements()], ..number(DRAWN) });
        }
        // Three short columns with different names.
        StepColumns::new(columns).unwrap_or_default()
    }

    fn make(&self, env: &EnvSpec, run_seed: u64) -> Result<Box<dyn Policy>, ModelError> {
        let head = self.head(&env.action_space)?;
        let wanted = self.policy.first().map_or(0, DenseLayer::inputs);
        let inputs = Inputs::of(&env.observation_space, wanted, self.scaling.clone())?;
        let notes = self.columns(env).unknown(0);
        Ok(Box::new(DensePolicy {
            key: Words::key(run_seed),
            target: Target::best(),
            space: env.action_space.clone(),
            head,
            inputs,
            notes,
            net: self.clone(),
            rows: Rows::default(),
            failed: Vec::new(),
        }))
    }
}

/// Lanes that a dense net plays.
struct DensePolicy {
    key: u64,
    target: Target,
    space: Space,
    head: Head,
    inputs: Inputs,
    /// What is noted of the last actions, in the order of the model's columns.
    notes: Vec<ColumnData>,
    net: DenseNet,
    rows: Rows,
    failed: Vec<u32>,
}

/// Rows of all lanes of a request, which are used again in the next.
#[derive(Default)]
struct Rows {
    inputs: Vec<f32>,
    outputs: Vec<f32>,
    values: Vec<f32>,
    scratch: Scratch,
    actions: Vec<f64>,
    drawn: Vec<f32>,
    log_probs: Vec<f32>,
}

impl Policy for DensePolicy {
    fn name(&self) -> &str {
        &self.net.name
    }

    fn version(&self) -> u64 {
        self.net.version
    }

    fn act(&mut self, request: Act<'_>) -> Result<(), ActError> {
        let Act { first_lane, step, obs, mask, actions } = request;
        let elements = self.head.elements();
        let given = actions.as_ref().len();
        let count = given / elements;
        if count * elements != given {
            return Err(ActError::Rows { elements, given });
        }
        let booleans = self.space.choices().unwrap_or(0) as usize;
        if let Some(mask) = mask
            && mask.len() != count * booleans
        {
            return Err(ActError::Mask { wanted: count * booleans, given: mask.len() });
        }
        self.look(obs, count);
        let outputs = self.head.outputs();
        self.rows.resize(count, elements);
        let Rows { outputs: rows, values, actions: numbers, drawn, log_probs, .. } = &mut self.rows;
        self.failed.clear();
        for (row, of_row) in rows.chunks_exact_mut(outputs).enumerate() {
            let lane = first_lane + row as u32;
            if of_row.iter().chain(values.get(row)).any(|number| !number.is_finite()) {
                self.failed.push(lane);
                of_row.fill(0.0);
                values.get_mut(row).into_iter().for_each(|value| *value = 0.0);
            }
            let mask = mask.map(|mask| &mask[row * booleans..(row + 1) * booleans]);
            let words = Words::of(self.key, lane, step);
            let places = row * elements..(row + 1) * elements;
            let chosen = (&mut numbers[places.clone()], &mut drawn[places]);
            log_probs[row] = self.head.choose(of_row, mask, self.net.sampling, words, chosen) as f32;
        }
        write_actions(&self.space, numbers, actions)?;
        self.note();
        Ok(())
    }

    fn notes(&self) -> &[ColumnData] {
        &self.notes
    }

    fn failed(&self) -> &[u32] {
        &self.failed
    }
}

impl DensePolicy {
    /// Computes the outputs and values of `count` rows.
    fn look(&mut self, obs: &[ColumnRef<'_>], count: usize) {
        let Rows { inputs, outputs, values, scratch, .. } = &mut self.rows;
        self.inputs.write(obs, count, inputs);
        run_layers(self.target, &self.net.policy, inputs, scratch, outputs);
        run_layers(self.target, &self.net.value, inputs, scratch, values);
    }

    /// Keeps what is to be noted of the actions.
    fn note(&mut self) {
        let Rows { values, drawn, log_probs, .. } = &self.rows;
        let noted = [log_probs].into_iter().chain((!values.is_empty()).then_some(values)).chain([drawn]);
        for (column, numbers) in self.notes.iter_mut().zip(noted) {
            column.clear();
            let fits = column.extend(ColumnRef::F32(numbers));
            debug_assert!(fits, "what is noted are singles");
        }
    }
}

impl Rows {
    fn resize(&mut self, count: usize, elements: usize) {
        self.actions.resize(count * elements, 0.0);
        self.drawn.resize(count * elements, 0.0);
        self.log_probs.resize(count, 0.0);
    }
}

/// Step column of the logarithm of the probability, or density, of the action that was drawn.
const LOG_PROB: &str = "log_prob";

/// Step column of the value that the net gives what it saw.
const VALUE: &str = "value";

/// Step column of the action that was drawn, where the one that is taken is cut to the bounds.
const DRAWN: &str = "drawn_action";
