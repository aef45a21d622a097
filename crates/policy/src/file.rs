//! Dense nets in files of safetensors, of several makers.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::inputs::Scaling;
use crate::{Activation, DenseLayer, DenseNet, Sampling};

/// Names under which a maker keeps the tensors of a net.
struct Dialect {
    /// Where it is from, for messages.
    maker: &'static str,
    /// Names of the layers to the outputs: those of a list have numbers behind it, in that order.
    policy: &'static [&'static str],
    /// Names of a second half of the outputs beside the last layer, which has standard deviations.
    deviations: Option<&'static str>,
    /// Names of the layers to the value; such a net may be without.
    value: &'static [&'static str],
    /// Names of the standard deviations' logarithms.
    log_std: Option<&'static str>,
    /// The activation between layers, where a file does not say it.
    activation: Activation,
    /// Whether quantities are squashed, where a file does not say it.
    squashed: bool,
    /// Whether the outputs are values of actions, of which the greatest is taken, and no logits.
    greedy: bool,
}

/// The dialects, the most particular first.
const DIALECTS: [Dialect; 6] = [
    Dialect {
        maker: "rollhouse",
        policy: &["policy"],
        deviations: None,
        value: &["value"],
        log_std: Some("log_std"),
        activation: Activation::Tanh,
        squashed: false,
        greedy: false,
    },
    Dialect {
        maker: "Stable-Baselines3, actor and critic",
        policy: &["mlp_extractor.policy_net", "action_net"],
        deviations: None,
        value: &["mlp_extractor.value_net", "value_net"],
        log_std: Some("log_std"),
        activation: Activation::Tanh,
        squashed: false,
        greedy: false,
    },
    Dialect {
        maker: "Stable-Baselines3, soft actor-critic",
        policy: &["actor.latent_pi", "actor.mu"],
        deviations: Some("actor.log_std"),
        value: &[],
        log_std: None,
        activation: Activation::Relu,
        squashed: true,
        greedy: false,
    },
    Dialect {
        maker: "Stable-Baselines3, deep Q-network",
        policy: &["q_net.q_net"],
        deviations: None,
        value: &[],
        log_std: None,
        activation: Activation::Relu,
        squashed: false,
        greedy: true,
    },
    Dialect {
        maker: "CleanRL, quantities",
        policy: &["actor_mean"],
        deviations: None,
        value: &["critic"],
        log_std: Some("actor_logstd"),
        activation: Activation::Tanh,
        squashed: false,
        greedy: false,
    },
    Dialect {
        maker: "CleanRL, choices",
        policy: &["actor"],
        deviations: None,
        value: &["critic"],
        log_std: None,
        activation: Activation::Tanh,
        squashed: false,
        greedy: false,
    },
];

/// Reason for which a file is no dense net.
#[derive(Debug, thiserror::Error)]
pub enum NetFileError {
    /// The file is not one of safetensors.
    #[error("the file is none of safetensors")]
    Format(#[source] SafeTensorError),
    /// No tensors have names by which a net is recognised.
    #[error(
        "none of its tensors, {names}, has a name of a known net's: policy.0.weight, or as {known} have them"
    )]
    Unknown {
        /// Names of the first tensors.
        names: String,
        /// The makers whose names are known.
        known: String,
    },
    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    Missing(String),
    /// A tensor has another shape.
    #[error("tensor `{name}` has the shape {given:?}, must have {wanted}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Its shape.
        given: Vec<usize>,
        /// The shape that it must have.
        wanted: String,
    },
    /// A tensor is of a type that is not read.
    #[error("tensor `{name}` is of type {given:?}, must be F32 or F64")]
    Type {
        /// Name of the tensor.
        name: String,
        /// Its type.
        given: Dtype,
    },
    /// A number of a tensor is none, or infinite.
    #[error("number {index} of tensor `{name}` is {given}")]
    NotFinite {
        /// Name of the tensor.
        name: String,
        /// Place of the number.
        index: usize,
        /// The number.
        given: f64,
    },
    /// The file's metadata say what cannot be.
    #[error("metadata `{key}` is `{given}`, must be {wanted}")]
    Metadata {
        /// Key of the metadata.
        key: &'static str,
        /// What the file has.
        given: String,
        /// What it may have.
        wanted: &'static str,
    },
}

impl DenseNet {
    /// Takes the net of the bytes of a file, under a name.
    ///
    /// # Errors
    /// See [`NetFileError`].
    pub fn of_bytes(name: &str, bytes: &[u8]) -> Result<Self, NetFileError> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(NetFileError::Format)?;
        let metadata = header.metadata().as_ref().into_iter().flatten();
        let metadata = metadata.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let file =
            NetFile { tensors: SafeTensors::deserialize(bytes).map_err(NetFileError::Format)?, metadata };
        let has = |list: &str| file.layer_names(list).next().is_some();
        let dialect = DIALECTS.iter().find(|dialect| dialect.policy.iter().all(|list| has(list)));
        file.net(name, dialect.ok_or_else(|| file.unknown())?)
    }
}

/// A file whose header was read.
struct NetFile<'a> {
    tensors: SafeTensors<'a>,
    metadata: BTreeMap<&'a str, &'a str>,
}

impl NetFile<'_> {
    fn net(&self, name: &str, dialect: &Dialect) -> Result<DenseNet, NetFileError> {
        let activation = match self.metadata.get("activation") {
            None => dialect.activation,
            Some(name) => Activation::of_name(name).ok_or_else(|| NetFileError::Metadata {
                key: "activation",
                given: (*name).to_owned(),
                wanted: "identity, tanh, relu, elu or silu",
            })?,
        };
        let log_std = match dialect.log_std {
            Some(name) if self.tensors.tensor(name).is_ok() => Some(self.numbers(name)?.1),
            _ => None,
        };
        let has_value = !dialect.value.is_empty()
            && dialect.value.iter().all(|list| self.layer_names(list).next().is_some());
        let policy = self.layers(dialect.policy, dialect.deviations, activation)?;
        let inputs = policy.first().map_or(0, DenseLayer::inputs);
        let value = if has_value { self.value(dialect, inputs, activation)? } else { Vec::new() };
        Ok(DenseNet {
            name: name.to_owned(),
            version: self.whole("version", 0)?,
            policy: policy.into(),
            value: value.into(),
            log_std,
            squashed: match self.metadata.get("squashed").copied() {
                None => dialect.squashed,
                Some("true") => true,
                Some("false") => false,
                Some(given) => {
                    let (given, wanted) = (given.to_owned(), "true or false");
                    return Err(NetFileError::Metadata { key: "squashed", given, wanted });
                }
            },
            scaling: self.scaling(inputs)?,
            sampling: Sampling { deterministic: dialect.greedy, ..Sampling::default() },
        })
    }

    /// Returns the names of the layers of a list in order: the list's own, or those with numbers behind it.
    fn layer_names(&self, list: &str) -> impl Iterator<Item = String> {
        let number = |name: &str| {
            let rest = name.strip_prefix(list)?.strip_suffix(".weight")?;
            match rest.strip_prefix('.') {
                None => rest.is_empty().then_some(0),
                Some(number) => number.parse::<u32>().ok(),
            }
        };
        let mut found: Vec<_> =
            self.tensors.names().into_iter().filter_map(|name| Some((number(name)?, name))).collect();
        found.sort_unstable();
        let names = found.into_iter().map(|(_, name)| name.trim_end_matches(".weight").to_owned());
        names.collect::<Vec<_>>().into_iter()
    }

    /// Returns the layers of several lists, one behind the other. The last has no activation; `deviations` is a layer beside it
    /// whose outputs come behind its own.
    fn layers(
        &self,
        lists: &[&str],
        deviations: Option<&str>,
        activation: Activation,
    ) -> Result<Vec<DenseLayer>, NetFileError> {
        let names: Vec<String> = lists.iter().flat_map(|list| self.layer_names(list)).collect();
        let mut layers: Vec<DenseLayer> = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let last = at + 1 == names.len();
            let (mut weights, mut bias, inputs) = self.layer(name)?;
            if let Some(deviations) = deviations.filter(|_| last) {
                let (more, more_bias, of) = self.layer(deviations)?;
                if of != inputs || more.len() != weights.len() {
                    return Err(self.shape_error(deviations, format!("that of `{name}.weight`")));
                }
                bias.resize(weights.len() / inputs, 0.0);
                weights.extend(more);
                bias.extend(more_bias);
                bias.resize(weights.len() / inputs, 0.0);
            }
            if let Some(before) = layers.last()
                && before.outputs() != inputs
            {
                return Err(self.shape_error(name, format!("{} inputs", before.outputs())));
            }
            let activation = if last { Activation::Identity } else { activation };
            layers.push(DenseLayer::new(inputs, weights.len() / inputs, &weights, &bias, activation));
        }
        Ok(layers)
    }

    /// Returns the layers from so many inputs to the value, which is one number.
    fn value(
        &self,
        dialect: &Dialect,
        inputs: usize,
        activation: Activation,
    ) -> Result<Vec<DenseLayer>, NetFileError> {
        let layers = self.layers(dialect.value, None, activation)?;
        let names: Vec<String> = dialect.value.iter().flat_map(|list| self.layer_names(list)).collect();
        match (layers.first().zip(names.first()), layers.last().zip(names.last())) {
            (Some((first, name)), _) if first.inputs() != inputs => {
                Err(self.shape_error(name, format!("{inputs} inputs, as the layers to the actions")))
            }
            (_, Some((last, name))) if last.outputs() != 1 => {
                Err(self.shape_error(name, "one output".to_owned()))
            }
            _ => Ok(layers),
        }
    }

    /// Returns weights, bias and the number of inputs of a layer.
    fn layer(&self, name: &str) -> Result<(Vec<f32>, Vec<f32>, usize), NetFileError> {
        let (shape, weights) = self.numbers(&format!("{name}.weight"))?;
        let (outputs, inputs) = match shape[..] {
            [outputs, inputs] if outputs > 0 && inputs > 0 => (outputs, inputs),
            _ => return Err(self.shape_error(name, "[outputs, inputs]".to_owned())),
        };
        let bias = format!("{name}.bias");
        let bias = match self.tensors.tensor(&bias) {
            Err(_) => Vec::new(),
            Ok(_) => {
                let (shape, numbers) = self.numbers(&bias)?;
                if shape != [outputs] {
                    let wanted = format!("[{outputs}]");
                    return Err(NetFileError::Shape { name: bias, given: shape, wanted });
                }
                numbers
            }
        };
        Ok((weights, bias, inputs))
    }

    fn shape_error(&self, layer: &str, wanted: String) -> NetFileError {
        let name = format!("{layer}.weight");
        let given = self.tensors.tensor(&name).map_or_else(|_| Vec::new(), |tensor| tensor.shape().to_vec());
        NetFileError::Shape { name, given, wanted }
    }

    /// Returns how inputs are centred and scaled, if the file says it: tensors `obs_mean` and `obs_var` (variances), and
    /// metadata `obs_clip`. Each is of the net's number of inputs.
    fn scaling(&self, inputs: usize) -> Result<Option<Scaling>, NetFileError> {
        if self.tensors.tensor("obs_mean").is_err() {
            return Ok(None);
        }
        let ((shape, mean), (of, variance)) = (self.numbers("obs_mean")?, self.numbers("obs_var")?);
        for (name, given) in [("obs_mean", shape), ("obs_var", of)] {
            if given != [inputs] {
                let wanted = format!("[{inputs}], as the net's inputs");
                return Err(NetFileError::Shape { name: name.to_owned(), given, wanted });
            }
        }
        let factor = variance.iter().map(|variance| 1.0 / (variance.max(0.0) + OBS_VARIANCE_LEAST).sqrt());
        Ok(Some(Scaling { mean, factor: factor.collect(), clip: self.whole("obs_clip", 10)? as f32 }))
    }

    /// Returns shape and numbers of a tensor, as singles.
    fn numbers(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), NetFileError> {
        let tensor = self.tensors.tensor(name).map_err(|_| NetFileError::Missing(name.to_owned()))?;
        let data = tensor.data();
        let numbers: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Dtype::F64 => data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
            given => return Err(NetFileError::Type { name: name.to_owned(), given }),
        };
        match numbers.iter().position(|number| !number.is_finite()) {
            Some(index) => {
                let given = f64::from(numbers[index]);
                Err(NetFileError::NotFinite { name: name.to_owned(), index, given })
            }
            None => Ok((tensor.shape().to_vec(), numbers)),
        }
    }

    fn whole(&self, key: &'static str, default: u64) -> Result<u64, NetFileError> {
        let Some(given) = self.metadata.get(key) else { return Ok(default) };
        let error = || NetFileError::Metadata { key, given: (*given).to_owned(), wanted: "a whole number" };
        given.parse().map_err(|_| error())
    }

    fn unknown(&self) -> NetFileError {
        let mut names = self.tensors.names();
        names.sort_unstable();
        let first: Vec<String> =
            names.iter().take(MOST_NAMED).map(|name| name.chars().take(64).collect()).collect();
        let known: Vec<&str> = DIALECTS[1..].iter().map(|dialect| dialect.maker).collect();
        NetFileError::Unknown { names: first.join(", "), known: known.join("; ") }
    }
}

/// The longest file of a net.
pub const MAX_NET_BYTES: u64 = 256 << 20;

/// Added to variances of inputs, as Stable-Baselines3's `VecNormalize` does.
const OBS_VARIANCE_LEAST: f32 = 1e-8;

/// The most tensors that a message names.
const MOST_NAMED: usize = 8;
