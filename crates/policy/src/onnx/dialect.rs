//! Dense nets in the forms of ONNX that other programs take.

use std::ops::Range;

use rollhouse_core::EnvSpec;

use super::graph::Graph;
use super::tensor::ElementType;
use crate::inputs::{Inputs, Scaling};
use crate::sampling::{Gaussian, Head, LOG_STD_LEAST, LOG_STD_MOST};
use crate::{Activation, DenseLayer, DenseNet, Dialect, DialectError, Model, ModelError};

impl DenseNet {
    /// Returns the bytes of a file in a dialect.
    ///
    /// # Errors
    /// The net does not fit the env, or the dialect has no place for what the env observes or allows.
    pub(crate) fn in_dialect(&self, dialect: Dialect, env: &EnvSpec) -> Result<Vec<u8>, DialectError> {
        for (path, space) in env.observation_space.columns() {
            let shape = space.shape();
            if shape.len() > 1 {
                let column = if path.is_empty() { "obs".to_owned() } else { path };
                return Err(DialectError::Picture { dialect, column, shape: shape.to_vec() });
            }
        }
        if env.action_mask().is_some() && !dialect.has_mask() {
            return Err(DialectError::Mask { dialect });
        }
        let head = self.head(&env.action_space)?;
        let inputs = self.policy.first().map_or(0, DenseLayer::inputs);
        Inputs::of(&env.observation_space, inputs, None)?;
        let Some((last, hidden)) = self.policy.split_last() else {
            return Err(ModelError::Outputs { net: 0, env: head.outputs() }.into());
        };
        let mut file = DialectFile { dialect, graph: Graph::default(), last };
        let row = [file.rows(), Some(inputs)];
        let obs = file.graph.input(if dialect == Dialect::MlAgents { "obs_0" } else { "obs" }, &row);
        let mut value = match &self.scaling {
            Some(scaling) => file.scaled(&obs, scaling),
            None => obs,
        };
        for layer in hidden {
            value = file.layer(&value, layer);
        }
        match &head {
            Head::Gaussian(of) => file.quantities(&value, of),
            _ => file.choices(&value, &branches(&head), self.is_greedy()),
        }
        file.says_beside(self.version());
        Ok(file.graph.into_file())
    }

    /// Returns whether it takes the likeliest choice unless something else is asked for.
    fn is_greedy(&self) -> bool {
        self.sampling().is_some_and(|sampling| sampling.deterministic)
    }
}

/// A choice's outputs among a layer's; of one with two values and one output, that of the second.
struct Branch {
    outputs: Range<usize>,
    values: usize,
}

/// Returns the choices of a distribution that is of choices.
fn branches(head: &Head) -> Vec<Branch> {
    let mut first = 0;
    let mut next = |outputs: usize, values: usize| {
        first += outputs;
        Branch { outputs: first - outputs..first, values }
    };
    match head {
        Head::Categorical(parts) => parts.iter().map(|(_, values)| next(*values, *values)).collect(),
        Head::Bernoulli(elements) => (0..*elements).map(|_| next(1, 2)).collect(),
        // Dense nets have no others: what is taken as it is comes of files of ONNX.
        Head::Gaussian(_) | Head::Taken(_) => Vec::new(),
    }
}

/// A file that is written of a net, whose last layer is `last`.
struct DialectFile<'a> {
    dialect: Dialect,
    graph: Graph,
    last: &'a DenseLayer,
}

impl DialectFile<'_> {
    /// Returns the extent of the axis of rows.
    const fn rows(&self) -> Option<usize> {
        match self.dialect {
            Dialect::Unreal => Some(1),
            Dialect::Godot | Dialect::MlAgents => None,
        }
    }

    fn scaled(&mut self, obs: &str, Scaling { mean, factor, clip }: &Scaling) -> String {
        let graph = &mut self.graph;
        let shape = [1, mean.len()];
        let (mean, factor) = (graph.singles(&shape, mean), graph.singles(&shape, factor));
        let centred = graph.add("Sub", &[obs, &mean], &[]);
        let value = graph.add("Mul", &[&centred, &factor], &[]);
        self.cut(&value, &[-clip], &[*clip])
    }

    /// Cuts a value to bounds, for all elements or for each.
    fn cut(&mut self, value: &str, low: &[f32], high: &[f32]) -> String {
        let graph = &mut self.graph;
        let (low, high) = (graph.singles(&[1, low.len()], low), graph.singles(&[1, high.len()], high));
        let value = graph.add("Max", &[value, &low], &[]);
        graph.add("Min", &[&value, &high], &[])
    }

    fn layer(&mut self, value: &str, layer: &DenseLayer) -> String {
        let sums = self.product(value, layer, (0..layer.outputs()).map(Some));
        let graph = &mut self.graph;
        match layer.activation() {
            Activation::Identity => sums,
            Activation::Tanh => graph.add("Tanh", &[&sums], &[]),
            Activation::Relu => graph.add("Relu", &[&sums], &[]),
            Activation::Elu => graph.add("Elu", &[&sums], &[]),
            Activation::Silu => {
                let logistic = graph.add("Sigmoid", &[&sums], &[]);
                graph.add("Mul", &[&sums, &logistic], &[])
            }
        }
    }

    /// Computes some of a layer's outputs, before its activation; `None` among them is 0.
    fn product(
        &mut self,
        value: &str,
        layer: &DenseLayer,
        outputs: impl Iterator<Item = Option<usize>>,
    ) -> String {
        let (mut weights, mut bias) = (Vec::new(), Vec::new());
        for output in outputs {
            match output.map(|output| layer.output(output)) {
                Some((of_output, of_bias)) => {
                    weights.extend(of_output);
                    bias.push(of_bias);
                }
                None => {
                    weights.resize(weights.len() + layer.inputs(), 0.0);
                    bias.push(0.0);
                }
            }
        }
        let weights = self.graph.singles(&[bias.len(), layer.inputs()], &weights);
        let bias = self.graph.singles(&[bias.len()], &bias);
        self.graph.add("Gemm", &[value, &weights, &bias], &[("transB", 1)])
    }

    /// Writes actions that are choices.
    fn choices(&mut self, hidden: &str, branches: &[Branch], is_greedy: bool) {
        let rows = self.rows();
        let values: usize = branches.iter().map(|branch| branch.values).sum();
        let logits = |Branch { outputs, values }: &Branch| {
            let zeros = values - outputs.len();
            std::iter::repeat_n(None, zeros).chain(outputs.clone().map(Some)).collect::<Vec<_>>()
        };
        if self.dialect == Dialect::Godot {
            let output = self.product(hidden, self.last, branches.iter().flat_map(logits));
            self.graph.output("output", &output, ElementType::F32, &[rows, Some(values)]);
            if is_greedy {
                self.graph.says("rollhouse.output.output".to_owned(), "q_values".to_owned());
            }
            return;
        }
        let forbidden = (self.dialect == Dialect::MlAgents).then(|| self.forbidden(values));
        let (mut likeliest, mut drawn, mut first) = (Vec::new(), Vec::new(), 0);
        for branch in branches {
            let mut of = self.product(hidden, self.last, logits(branch).into_iter());
            if let Some(forbidden) = &forbidden {
                let places = self.graph.wholes(first..first + branch.values);
                let here = self.graph.add("Gather", &[forbidden, &places], &[("axis", 1)]);
                of = self.graph.add("Add", &[&of, &here], &[]);
            }
            likeliest.push(self.graph.add("ArgMax", &[&of], &[("axis", 1), ("keepdims", 1)]));
            if !is_greedy && forbidden.is_some() {
                let attributes = [("dtype", ElementType::I64.number()), ("sample_size", 1)];
                drawn.push(self.graph.add("Multinomial", &[&of], &attributes));
            }
            first += branch.values;
        }
        let elements = branches.len();
        let likeliest = self.joined(&likeliest);
        if forbidden.is_none() {
            let places = self.graph.add("Cast", &[&likeliest], &[("to", ElementType::F32.number())]);
            self.graph.output("actions", &places, ElementType::F32, &[rows, Some(elements)]);
            return;
        }
        let drawn = if drawn.is_empty() { likeliest.clone() } else { self.joined(&drawn) };
        let sizes: Vec<f32> = branches.iter().map(|branch| branch.values as f32).collect();
        self.ml_agents("discrete_action", (ElementType::I64, elements), &sizes, (&likeliest, &drawn));
    }

    /// Returns what is added to logits: a great negative number where an action is not allowed.
    fn forbidden(&mut self, values: usize) -> String {
        let rows = self.rows();
        let graph = &mut self.graph;
        let masks = graph.input("action_masks", &[rows, Some(values)]);
        let (one, much) = (graph.singles(&[1, 1], &[1.0]), graph.singles(&[1, 1], &[FORBIDDEN]));
        let forbidden = graph.add("Sub", &[&one, &masks], &[]);
        graph.add("Mul", &[&forbidden, &much], &[])
    }

    /// Joins columns to rows.
    fn joined(&mut self, columns: &[String]) -> String {
        let columns: Vec<&str> = columns.iter().map(|column| &**column).collect();
        self.graph.add("Concat", &columns, &[("axis", 1)])
    }

    /// Writes actions that are quantities.
    fn quantities(&mut self, hidden: &str, of: &Gaussian) {
        let elements = of.low.len();
        let means = self.product(hidden, self.last, (0..elements).map(Some));
        let likeliest = self.settled(&means, of);
        let shape = [self.rows(), Some(elements)];
        match self.dialect {
            Dialect::Unreal => self.graph.output("actions", &likeliest, ElementType::F32, &shape),
            Dialect::Godot => self.graph.output("output", &likeliest, ElementType::F32, &shape),
            Dialect::MlAgents => {
                let deviations = self.deviations(hidden, of);
                let normal = self.graph.add("RandomNormalLike", &[&means], &[]);
                let away = self.graph.add("Mul", &[&normal, &deviations], &[]);
                let drawn = self.graph.add("Add", &[&means, &away], &[]);
                let drawn = self.settled(&drawn, of);
                let what = (ElementType::F32, elements);
                self.ml_agents("continuous_action", what, &[elements as f32], (&likeliest, &drawn));
            }
        }
    }

    fn deviations(&mut self, hidden: &str, of: &Gaussian) -> String {
        let (least, most) = (LOG_STD_LEAST as f32, LOG_STD_MOST as f32);
        let elements = of.low.len();
        let Some(log_std) = &of.log_std else {
            let log_std = self.product(hidden, self.last, (elements..2 * elements).map(Some));
            let log_std = self.cut(&log_std, &[least], &[most]);
            return self.graph.add("Exp", &[&log_std], &[]);
        };
        let deviations: Vec<f32> = log_std.iter().map(|of| libm::expf(of.clamp(least, most))).collect();
        self.graph.singles(&[1, elements], &deviations)
    }

    /// Stretches or cuts quantities to the bounds of actions.
    fn settled(&mut self, value: &str, of: &Gaussian) -> String {
        if !of.squashed {
            let bounds = |bounds: &[f64]| {
                bounds.iter().map(|bound| (*bound as f32).clamp(f32::MIN, f32::MAX)).collect::<Vec<_>>()
            };
            let is_bounded = of.low.iter().chain(&of.high).any(|bound| bound.is_finite());
            return if is_bounded {
                self.cut(value, &bounds(&of.low), &bounds(&of.high))
            } else {
                value.to_owned()
            };
        }
        let bounds = || of.low.iter().zip(&of.high);
        let half: Vec<f32> = bounds().map(|(low, high)| (0.5 * (high - low)) as f32).collect();
        let middle: Vec<f32> = bounds().map(|(low, high)| (0.5 * (high + low)) as f32).collect();
        let graph = &mut self.graph;
        let (half, middle) =
            (graph.singles(&[1, half.len()], &half), graph.singles(&[1, middle.len()], &middle));
        let squashed = graph.add("Tanh", &[value], &[]);
        let stretched = graph.add("Mul", &[&squashed, &half], &[]);
        graph.add("Add", &[&stretched, &middle], &[])
    }

    /// Writes actions of one kind as ML-Agents has them: how many there are, those that are drawn, and the likeliest.
    fn ml_agents(
        &mut self,
        kind: &str,
        (of, elements): (ElementType, usize),
        sizes: &[f32],
        (likeliest, drawn): (&str, &str),
    ) {
        let shape = [self.rows(), Some(elements)];
        self.graph.output(&format!("{kind}s"), drawn, of, &shape);
        self.graph.output(&format!("deterministic_{kind}s"), likeliest, of, &shape);
        // The sizes of several choices are a row, that of quantities stands alone.
        let (given, said): (&[usize], &[Option<usize>]) = match of {
            ElementType::F32 => (&[1], &[Some(1)]),
            _ => (&[1, sizes.len()], &[Some(1), Some(sizes.len())]),
        };
        let sizes = self.graph.singles(given, sizes);
        self.graph.output(&format!("{kind}_output_shape"), &sizes, ElementType::F32, said);
        for (name, number) in [("version_number", ML_AGENTS_VERSION), ("memory_size", 0.0)] {
            let number = self.graph.singles(&[1], &[number]);
            self.graph.output(name, &number, ElementType::F32, &[Some(1)]);
        }
    }

    /// Writes what a file has beside actions.
    fn says_beside(&mut self, version: u64) {
        if self.dialect == Dialect::Godot {
            // A net without a state gives back what it gets.
            let state = self.graph.input("state_ins", &[Some(1)]);
            self.graph.output("state_outs", &state, ElementType::F32, &[Some(1)]);
        }
        self.graph.says("version".to_owned(), version.to_string());
    }
}

/// Added to the logit of an action that is not allowed.
const FORBIDDEN: f32 = -1e8;

/// The version of ML-Agents' files that have outputs for choices and for quantities.
const ML_AGENTS_VERSION: f32 = 3.0;
