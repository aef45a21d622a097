//! Nets whose layers are dense, and the kernel that runs them.
//!
//! Each output is one sum, in the order of its inputs and with a rounding after each product and each addition. Instruction
//! sets, the number of rows and their places change no bit of it.

use rollhouse_env::{Kernel, Target};

use crate::Activation;

/// A layer: `activation(weights * inputs + bias)`.
#[derive(Debug, Clone)]
pub struct DenseLayer {
    inputs: usize,
    outputs: usize,
    /// The weights of each input: one for each output, padded to whole groups of [`GROUP`] with zeros.
    weights: Vec<f32>,
    bias: Vec<f32>,
    activation: Activation,
}

impl DenseLayer {
    /// Makes a layer of weights `[outputs, inputs]`, row-major as PyTorch has them, and a bias for each output; no bias is zeros.
    ///
    /// # Panics
    /// If `weights` or `bias` has another length.
    pub fn new(inputs: usize, outputs: usize, weights: &[f32], bias: &[f32], activation: Activation) -> Self {
        assert_eq!(weights.len(), inputs * outputs, "a weight for each input of each output");
        assert!(bias.is_empty() || bias.len() == outputs, "a bias for each output");
        let width = outputs.next_multiple_of(GROUP);
        let mut packed = vec![0.0; inputs * width];
        for (output, of_output) in weights.chunks_exact(inputs.max(1)).enumerate() {
            for (input, weight) in of_output.iter().enumerate() {
                packed[input * width + output] = *weight;
            }
        }
        let mut padded = vec![0.0; width];
        padded[..bias.len()].copy_from_slice(bias);
        Self { inputs, outputs, weights: packed, bias: padded, activation }
    }

    /// Returns the number of inputs.
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of outputs.
    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns the function that is applied to each of its sums.
    #[cfg(feature = "onnx")]
    pub(crate) const fn activation(&self) -> Activation {
        self.activation
    }

    /// Returns the weights of an output, one for each input, and its bias.
    #[cfg(feature = "onnx")]
    pub(crate) fn output(&self, output: usize) -> (impl Iterator<Item = f32>, f32) {
        let width = self.bias.len();
        let weights = self.weights.chunks_exact(width.max(1)).map(move |of_input| of_input[output]);
        (weights, self.bias[output])
    }

    /// Computes the outputs of one row, padded to whole groups.
    #[inline(always)]
    fn row(&self, inputs: &[f32], outputs: &mut Vec<f32>) {
        outputs.clear();
        outputs.extend_from_slice(&self.bias);
        let width = self.bias.len();
        let (eights, rest) = inputs.as_chunks();
        let (of_eights, of_rest) = self.weights.split_at(eights.len() * EIGHT * width);
        for (numbers, weights) in eights.iter().zip(of_eights.chunks_exact(EIGHT * width)) {
            add_eight(outputs, numbers, weights);
        }
        for (number, weights) in rest.iter().zip(of_rest.chunks_exact(width)) {
            for (sum, weight) in outputs.iter_mut().zip(weights) {
                *sum += number * weight;
            }
        }
        self.activation.apply(outputs);
    }
}

/// Adds the products of eight inputs to the sums, one after the other: so each sum is read and written once for eight.
#[inline(always)]
fn add_eight(sums: &mut [f32], numbers: &[f32; EIGHT], weights: &[f32]) {
    let width = sums.len();
    let mut rows = weights.chunks_exact(width);
    let mut row = || &rows.next().unwrap_or_default()[..width];
    let rows: [&[f32]; EIGHT] = [row(), row(), row(), row(), row(), row(), row(), row()];
    let [a, b, c, d, e, f, g, h] = rows;
    // Written out, it is a loop over sums, which compilers make wide.
    for at in 0..width {
        let mut sum = sums[at];
        sum += numbers[0] * a[at];
        sum += numbers[1] * b[at];
        sum += numbers[2] * c[at];
        sum += numbers[3] * d[at];
        sum += numbers[4] * e[at];
        sum += numbers[5] * f[at];
        sum += numbers[6] * g[at];
        sum += numbers[7] * h[at];
        sums[at] = sum;
    }
}

/// Memory between the layers of a net, to be used again and again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch {
    from: Vec<f32>,
    to: Vec<f32>,
}

/// Runs layers on rows of inputs and leaves the rows of outputs in `out`.
///
/// # Panics
/// If a layer has not as many inputs as the one before has outputs.
pub(crate) fn run_layers(
    target: Target,
    layers: &[DenseLayer],
    inputs: &[f32],
    scratch: &mut Scratch,
    out: &mut Vec<f32>,
) {
    out.clear();
    target.run(RunLayers { layers, inputs, scratch, out });
}

struct RunLayers<'a> {
    layers: &'a [DenseLayer],
    inputs: &'a [f32],
    scratch: &'a mut Scratch,
    out: &'a mut Vec<f32>,
}

impl Kernel for RunLayers<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { layers, inputs, scratch: Scratch { from, to }, out } = self;
        let Some((first, others)) = layers.split_first() else { return };
        for row in inputs.chunks_exact(first.inputs) {
            first.row(row, from);
            let mut outputs = first.outputs;
            for layer in others {
                layer.row(&from[..layer.inputs], to);
                outputs = layer.outputs;
                std::mem::swap(from, to);
            }
            out.extend_from_slice(&from[..outputs]);
        }
    }
}

/// Inputs whose products are added in one pass over the sums.
const EIGHT: usize = 8;

/// Outputs that are computed side by side at least: the singles of an AVX2 register.
const GROUP: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rollhouse_core::split_mix64;
    use rollhouse_env::InstructionSet;

    use super::*;

    /// A number of [-1, 1) from a counter.
    fn number(seed: u64, at: usize) -> f32 {
        (split_mix64(seed.wrapping_mul(1 << 32).wrapping_add(at as u64)) >> 40) as f32 / (1 << 23) as f32
            - 1.0
    }

    fn layers(seed: u64, sizes: &[usize], activation: Activation) -> Vec<DenseLayer> {
        let layer = |(at, pair): (usize, &[usize])| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let weights: Vec<f32> = (0..inputs * outputs).map(|i| number(seed + at as u64, i)).collect();
            let bias: Vec<f32> = (0..outputs).map(|i| number(seed + 100 + at as u64, i)).collect();
            DenseLayer::new(inputs, outputs, &weights, &bias, activation)
        };
        sizes.windows(2).enumerate().map(layer).collect()
    }

    fn run(set: InstructionSet, layers: &[DenseLayer], inputs: &[f32]) -> Vec<f32> {
        let mut out = Vec::new();
        run_layers(Target::new(set).unwrap(), layers, inputs, &mut Scratch::default(), &mut out);
        out
    }

    proptest! {
        #[test]
        fn a_row_has_the_same_bits_on_every_instruction_set_and_among_any_others(
            seed in 0u64..1000, rows in 1usize..20, hidden in 1usize..40, outputs in 1usize..20,
        ) {
            let layers = layers(seed, &[5, hidden, outputs], Activation::Tanh);
            let inputs: Vec<f32> = (0..rows * 5).map(|i| 3.0 * number(seed + 7, i)).collect();
            let wanted: Vec<f32> =
                inputs.chunks(5).flat_map(|row| run(InstructionSet::Portable, &layers, row)).collect();
            for set in InstructionSet::available() {
                prop_assert_eq!(&run(set, &layers, &inputs), &wanted, "{}", set);
            }
        }

        #[test]
        fn outputs_are_those_of_double_precision_but_for_rounding(seed in 0u64..1000, hidden in 1usize..70) {
            for activation in Activation::ALL {
                let layers = layers(seed, &[3, hidden, 4], activation);
                let inputs: Vec<f32> = (0..3).map(|i| number(seed + 7, i)).collect();
                let mut row: Vec<f64> = inputs.iter().map(|&x| f64::from(x)).collect();
                for (at, pair) in [3, hidden, 4].windows(2).enumerate() {
                    let sum = |output: usize| {
                        let weight = |input: usize| f64::from(number(seed + at as u64, output * pair[0] + input));
                        let bias = f64::from(number(seed + 100 + at as u64, output));
                        bias + (0..pair[0]).map(|input| weight(input) * row[input]).sum::<f64>()
                    };
                    row = (0..pair[1]).map(|output| exact(activation, sum(output))).collect();
                }
                let found = run(InstructionSet::best(), &layers, &inputs);
                for (found, wanted) in found.iter().zip(&row) {
                    prop_assert!((f64::from(*found) - wanted).abs() < 1e-4 * wanted.abs().max(1.0));
                }
            }
        }
    }

    fn exact(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Identity => x,
            Activation::Tanh => x.tanh(),
            Activation::Relu => x.max(0.0),
            Activation::Elu => {
                if x < 0.0 {
                    x.exp() - 1.0
                } else {
                    x
                }
            }
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }
}
