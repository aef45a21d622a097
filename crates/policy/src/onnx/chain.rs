//! Files that are no more than dense layers, one behind the other: they run as a [`DenseNet`](crate::DenseNet) does, on the caller's
//! thread and with the same bits on every machine.

use rollhouse_env::Target;

use super::file::{Node, OnnxFile};
use crate::dense::{Scratch, run_layers};
use crate::{Activation, DenseLayer};

/// Layers to each of the outputs that are asked for.
#[derive(Debug, Clone)]
pub(super) struct Chains {
    layers: Vec<Vec<DenseLayer>>,
}

/// The most layers of a chain.
const MOST_LAYERS: usize = 64;

impl Chains {
    /// Returns the layers from an input to each of the outputs; `None` if one of them comes of something else.
    pub(super) fn of(file: &OnnxFile, input: &str, outputs: &[&str]) -> Option<Self> {
        let layers = outputs.iter().map(|output| chain(file, input, output)).collect::<Option<_>>()?;
        Some(Self { layers })
    }

    /// Computes the outputs of rows of inputs.
    pub(super) fn run(&self, target: Target, inputs: &[f32], scratch: &mut Scratch, out: &mut Vec<Vec<f32>>) {
        out.resize(self.layers.len(), Vec::new());
        for (layers, out) in self.layers.iter().zip(out) {
            run_layers(target, layers, inputs, scratch, out);
        }
    }
}

/// Follows an output to the input, through what changes nothing, activations, products and sums.
fn chain(file: &OnnxFile, input: &str, output: &str) -> Option<Vec<DenseLayer>> {
    let (mut layers, mut name) = (Vec::new(), output);
    let mut behind = Behind::default();
    while name != input {
        let node = file.node_of(name)?;
        let first = &**node.inputs.first()?;
        match (&*node.operator, node.inputs.len()) {
            ("Identity" | "Flatten", 1) if node.whole("axis", 1) == 1 => {}
            ("Cast", 1) if node.whole("to", 0) == 1 => {}
            ("Gemm", 2 | 3) if node.is_plain_product() => {
                let bias = node
                    .inputs
                    .get(2)
                    .map(|bias| file.singles(bias))
                    .map_or(Some(Vec::new()), |bias| bias?.flat())?;
                let (shape, weights) = file.singles(node.inputs.get(1)?)?.parts();
                let is_transposed = node.whole("transB", 0) == 1;
                layers.push(behind.take(&shape, weights, bias, is_transposed)?);
            }
            ("MatMul", 2) => {
                let (shape, weights) = file.singles(&node.inputs[1])?.parts();
                layers.push(behind.take(&shape, weights, Vec::new(), false)?);
            }
            ("Add", 2) if behind.bias.is_none() => {
                let (bias, from) = match file.singles(&node.inputs[1]) {
                    Some(bias) => (bias, first),
                    None => (file.singles(first)?, &*node.inputs[1]),
                };
                behind.bias = Some(bias.flat()?);
                name = from;
                continue;
            }
            (operator, 1) if behind.is_empty() => behind.activation = Some(activation(operator, node)?),
            _ => return None,
        }
        name = first;
        if layers.len() > MOST_LAYERS {
            return None;
        }
    }
    layers.reverse();
    (behind.is_empty() && !layers.is_empty()).then_some(layers)
}

/// What stands behind a product.
#[derive(Default)]
struct Behind {
    activation: Option<Activation>,
    bias: Option<Vec<f32>>,
}

impl Behind {
    const fn is_empty(&self) -> bool {
        self.activation.is_none() && self.bias.is_none()
    }

    /// Returns the layer of a product with weights of that shape, and of what stands behind it.
    fn take(
        &mut self,
        shape: &[usize],
        weights: Vec<f32>,
        bias: Vec<f32>,
        is_transposed: bool,
    ) -> Option<DenseLayer> {
        let Self { activation, bias: behind } = std::mem::take(self);
        let bias = match behind {
            Some(behind) if bias.is_empty() => behind,
            Some(_) => return None,
            None => bias,
        };
        let (inputs, outputs, weights) = match *shape {
            [outputs, inputs] if is_transposed => (inputs, outputs, weights),
            [inputs, outputs] => {
                let of = |output: usize| (0..inputs).map(move |input| input * outputs + output);
                (inputs, outputs, (0..outputs).flat_map(of).map(|at| weights[at]).collect())
            }
            _ => return None,
        };
        let fits = inputs > 0 && outputs > 0 && (bias.is_empty() || bias.len() == outputs);
        let activation = activation.unwrap_or(Activation::Identity);
        fits.then(|| DenseLayer::new(inputs, outputs, &weights, &bias, activation))
    }
}

fn activation(operator: &str, node: &Node) -> Option<Activation> {
    match operator {
        "Tanh" => Some(Activation::Tanh),
        "Relu" => Some(Activation::Relu),
        "Elu" if node.single("alpha", 1.0) == 1.0 => Some(Activation::Elu),
        _ => None,
    }
}
