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
    /// The outputs' weights for each input, padded to whole groups of [`GROUP`] with zeros.
    weights: Vec<[f32; GROUP]>,
    bias: Vec<[f32; GROUP]>,
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
        let groups = outputs.div_ceil(GROUP);
        let at = |index: usize, value: &dyn Fn(usize) -> f32| {
            std::array::from_fn(|place| {
                Some(index * GROUP + place).filter(|at| *at < outputs).map_or(0.0, value)
            })
        };
        let mut packed = Vec::with_capacity(inputs * groups);
        for group in 0..groups {
            packed.extend((0..inputs).map(|input| at(group, &|output| weights[output * inputs + input])));
        }
        let bias = (0..groups).map(|group| at(group, &|output| bias.get(output).copied().unwrap_or(0.0)));
        Self { inputs, outputs, weights: packed, bias: bias.collect(), activation }
    }

    /// Returns the number of inputs.
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of outputs.
    pub const fn outputs(&self) -> usize {
        self.outputs
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
    let Scratch { from, to } = scratch;
    let mut rows = inputs;
    for (index, layer) in layers.iter().enumerate() {
        let target_rows = if index + 1 == layers.len() { &mut *out } else { &mut *to };
        target_rows.resize(rows.len() / layer.inputs * layer.outputs, 0.0);
        target.run(RunLayer { layer, inputs: rows, outputs: target_rows });
        std::mem::swap(from, to);
        rows = from;
    }
}

struct RunLayer<'a> {
    layer: &'a DenseLayer,
    inputs: &'a [f32],
    outputs: &'a mut [f32],
}

impl Kernel for RunLayer<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { layer, inputs, outputs } = self;
        let from = inputs.chunks(TILE * layer.inputs);
        let to = outputs.chunks_mut(TILE * layer.outputs);
        for (inputs, outputs) in from.zip(to) {
            if inputs.len() == TILE * layer.inputs {
                layer.tile::<TILE>(inputs, outputs);
            } else {
                let rows = inputs.chunks_exact(layer.inputs).zip(outputs.chunks_exact_mut(layer.outputs));
                rows.for_each(|(inputs, outputs)| layer.tile::<1>(inputs, outputs));
            }
        }
    }
}

impl DenseLayer {
    /// Computes the outputs of `R` rows.
    #[inline(always)]
    fn tile<const R: usize>(&self, inputs: &[f32], outputs: &mut [f32]) {
        let rows: [&[f32]; R] =
            std::array::from_fn(|row| &inputs[row * self.inputs..(row + 1) * self.inputs]);
        for (group, (weights, bias)) in self.weights.chunks_exact(self.inputs).zip(&self.bias).enumerate() {
            let mut sums = [*bias; R];
            for (input, weights) in weights.iter().enumerate() {
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let number = row[input];
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum += number * weight;
                    }
                }
            }
            let first = group * GROUP;
            let count = (self.outputs - first).min(GROUP);
            for (row, sums) in sums.iter_mut().enumerate() {
                self.activation.apply(sums);
                outputs[row * self.outputs + first..][..count].copy_from_slice(&sums[..count]);
            }
        }
    }
}

/// Outputs that are computed side by side: the singles of an AVX-512 register.
const GROUP: usize = 16;

/// Rows that are computed side by side: their sums of a group, a group of weights and a number fit the registers of AVX2.
const TILE: usize = 6;

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
