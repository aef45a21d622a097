//! Functions of single precision that give the same bits on every machine: they use `+ - * /`, comparisons and bit
//! operations only, each in the order in which it is written.

/// Function that a layer applies to each of its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// The sum itself.
    Identity,
    /// Hyperbolic tangent.
    Tanh,
    /// The sum, or 0 where it is negative.
    Relu,
    /// The sum, or `exp(sum) - 1` where it is negative.
    Elu,
    /// The sum times its logistic function.
    Silu,
}

impl Activation {
    /// All activations.
    pub const ALL: [Self; 5] = [Self::Identity, Self::Tanh, Self::Relu, Self::Elu, Self::Silu];

    /// Returns the name, as files and messages have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Tanh => "tanh",
            Self::Relu => "relu",
            Self::Elu => "elu",
            Self::Silu => "silu",
        }
    }

    /// Returns the activation of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|activation| activation.name() == name)
    }

    /// Applies it to each number.
    #[inline(always)]
    pub(crate) fn apply(self, sums: &mut [f32]) {
        match self {
            Self::Identity => {}
            Self::Tanh => sums.iter_mut().for_each(|sum| *sum = tanh(*sum)),
            // A sum that is no number stays one, to be found in the end.
            Self::Relu => sums.iter_mut().for_each(|sum| *sum = if *sum < 0.0 { 0.0 } else { *sum }),
            Self::Elu => sums.iter_mut().for_each(|sum| {
                let below = exp(*sum) - 1.0;
                *sum = if *sum < 0.0 { below } else { *sum };
            }),
            Self::Silu => sums.iter_mut().for_each(|sum| *sum /= 1.0 + exp(-*sum)),
        }
    }
}

/// Hyperbolic tangent, with a relative error of at most 4e-7: the rational function of Eigen's `ptanh_float` (degree 13 over
/// 6), whose argument is cut where single precision has 1.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    const P: [f32; 7] = [
        4.893_524_6e-3,
        6.372_619_3e-4,
        1.485_722_4e-5,
        5.122_297e-8,
        -8.604_672e-11,
        2.000_188e-13,
        -2.760_768_5e-16,
    ];
    const Q: [f32; 4] = [4.893_525e-3, 2.268_434_6e-3, 1.185_347_1e-4, 1.198_258_4e-6];
    let cut = x.clamp(-7.905_311, 7.905_311);
    let square = cut * cut;
    let over = P.iter().rev().fold(0.0, |sum, term| sum * square + term) * cut;
    over / Q.iter().rev().fold(0.0, |sum, term| sum * square + term)
}

/// The exponential function, with a relative error of at most 3e-7; 0 below -87.3 and cut above 88.3. Cephes' `expf`: two parts
/// of ln 2 are taken away, and a polynomial of degree 5 is left.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const P: [f32; 6] = [0.5, 0.166_666_66, 4.166_579_6e-2, 8.333_452e-3, 1.398_199_9e-3, 1.987_569_2e-4];
    let cut = x.clamp(LEAST, 88.3);
    // Adding 1.5 * 2^23 rounds to a whole number, in the low bits of the sum.
    let shifted = cut * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = cut - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let series = P.iter().rev().fold(0.0, |sum, term| sum * rest + term);
    let of_rest = series * (rest * rest) + rest + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    let whole = of_rest * power;
    if x < LEAST { 0.0 } else { whole }
}

/// 1.5 * 2^23: sums with it have no bits behind the point.
const ROUND: f32 = 12_582_912.0;

/// Least argument whose exponential is a normal number.
const LEAST: f32 = -87.3;

#[cfg(test)]
mod tests {
    use super::*;

    fn off(found: f32, wanted: f64) -> f64 {
        (f64::from(found) - wanted).abs() / wanted.abs().max(1e-30)
    }

    #[test]
    fn tanh_and_exp_are_near_those_of_double_precision() {
        let mut worst = (0.0f64, 0.0f64);
        for at in -90_000..90_000 {
            let x = at as f32 * 1e-3;
            worst.1 = worst.1.max(off(exp(x.clamp(LEAST, 88.0)), f64::from(x.clamp(LEAST, 88.0)).exp()));
            let small = x / 10.0;
            worst.0 = worst.0.max(off(tanh(small), f64::from(small).tanh()));
        }
        assert!(worst.0 < 5e-7 && worst.1 < 3e-7, "{worst:?}");
    }

    #[test]
    fn what_is_no_number_stays_none_through_every_activation() {
        for activation in Activation::ALL {
            let mut sums = [f32::NAN, 1.0];
            activation.apply(&mut sums);
            assert!(sums[0].is_nan(), "{activation:?}");
            assert_eq!(Activation::of_name(activation.name()), Some(activation));
        }
    }

    #[test]
    fn far_arguments_have_the_limits_of_each_activation() {
        let far = |activation: Activation| {
            let mut sums = [-1e30, 1e30];
            activation.apply(&mut sums);
            sums
        };
        assert!(
            far(Activation::Tanh)
                .iter()
                .zip([-1.0, 1.0])
                .all(|(found, wanted)| (found - wanted).abs() < 1e-6)
        );
        assert_eq!(far(Activation::Relu), [0.0, 1e30]);
        assert_eq!(far(Activation::Elu), [-1.0, 1e30]);
        assert_eq!(far(Activation::Silu)[1], 1e30);
    }
}
