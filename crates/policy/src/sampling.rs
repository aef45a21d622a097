//! How actions are drawn from what a net says, and with which probability.
//!
//! Everything random is a counter hash of (run seed, lane, step, element), so that actions depend neither on threads nor on
//! what is drawn for other lanes. Probabilities are computed in double precision by functions that give the same bits on
//! every machine.

use rollhouse_core::{BoxSpace, ColumnMut, DType, Space, random_bits_keyed, random_key, split_mix64};
use rollhouse_env::sin_cos;
use serde::{Deserialize, Serialize};

use crate::{ActError, ModelError};

/// What is asked of the drawing of actions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// Whether the likeliest action is taken instead of one that is drawn; of choices, as often as `epsilon` leaves it.
    pub deterministic: bool,
    /// Logits are divided by it, and standard deviations multiplied; above 0.
    pub temperature: f64,
    /// Probability of an action of all allowed ones alike instead; only of choices.
    pub epsilon: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { deterministic: false, temperature: 1.0, epsilon: 0.0 }
    }
}

impl Sampling {
    /// Returns it, if there can be such a drawing.
    ///
    /// # Errors
    /// The temperature is not above 0, or epsilon is no probability.
    pub(crate) fn checked(self) -> Result<Self, SamplingError> {
        let Self { temperature, epsilon, .. } = self;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(SamplingError::Temperature(temperature));
        }
        if !(0.0..=1.0).contains(&epsilon) {
            return Err(SamplingError::Epsilon(epsilon));
        }
        Ok(self)
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

/// Distribution over actions that the outputs of a net stand for.
#[derive(Debug, Clone)]
pub(crate) enum Head {
    /// Each element is one of some values: the least, and their number. There is an output for each value.
    Categorical(Vec<(i64, usize)>),
    /// Each element is 0 or 1, by one output.
    Bernoulli(usize),
    /// Each element is a quantity.
    Gaussian(Gaussian),
    /// Nothing is drawn: the outputs are an action.
    #[cfg_attr(not(feature = "onnx"), expect(dead_code, reason = "files of ONNX alone give actions"))]
    Taken(Taken),
}

/// How outputs are an action.
#[cfg_attr(not(feature = "onnx"), expect(dead_code, reason = "files of ONNX alone give actions"))]
#[derive(Debug, Clone)]
pub(crate) enum Taken {
    /// There is an output for each element: the place of its value among some, whose least and number these are.
    Choices(Vec<(i64, usize)>),
    /// There is an output for each value of each element, of which the greatest is taken.
    OneHot(Vec<(i64, usize)>),
    /// There is an output for each element, a quantity between two bounds.
    Quantities(Vec<(f64, f64)>),
}

/// A normal distribution for each element of an action.
#[derive(Debug, Clone)]
pub(crate) struct Gaussian {
    /// Logarithms of the standard deviations; none if the net's second half of outputs are these.
    pub(crate) log_std: Option<Vec<f32>>,
    /// Whether its hyperbolic tangent is taken, of [-1, 1], and stretched to the bounds.
    pub(crate) squashed: bool,
    pub(crate) low: Vec<f64>,
    pub(crate) high: Vec<f64>,
}

impl Head {
    /// Returns the distribution over the actions of a space for a net with so many outputs.
    ///
    /// # Errors
    /// The net has another number of outputs than the space needs, or a squashed distribution has no bounds.
    pub(crate) fn of(
        space: &Space,
        outputs: usize,
        log_std: Option<Vec<f32>>,
        squashed: bool,
    ) -> Result<Self, ModelError> {
        let head = match space {
            Space::Discrete(space) => Self::Categorical(vec![(space.start, space.n as usize)]),
            Space::Box(space) if space.parts.is_some() => return Err(ModelError::Parts),
            Space::Box(of) if of.kind() == "multi_binary" && outputs == space.elements() => {
                Self::Bernoulli(outputs)
            }
            Space::Box(of) if of.choices => Self::Categorical(values_of(of)),
            Space::Box(space) => Self::Gaussian(Gaussian {
                log_std,
                squashed,
                low: space.low.iter().collect(),
                high: space.high.iter().collect(),
            }),
        };
        let wanted = head.outputs();
        if outputs != wanted {
            return Err(ModelError::Outputs { net: outputs, env: wanted });
        }
        match &head {
            Self::Gaussian(of) if of.log_std.as_ref().is_some_and(|all| all.len() != of.low.len()) => {
                let given = of.log_std.as_ref().map_or(0, Vec::len);
                Err(ModelError::Deviations { given, elements: of.low.len() })
            }
            Self::Gaussian(of)
                if squashed && !of.low.iter().chain(&of.high).all(|bound| bound.is_finite()) =>
            {
                Err(ModelError::Unbounded)
            }
            _ => Ok(head),
        }
    }

    /// Returns how an action of a space is taken as it is; `one_hot` if there is an output for each value of each element.
    #[cfg(feature = "onnx")]
    pub(crate) fn taken(space: &Space, one_hot: bool) -> Self {
        let choices = |parts| Self::Taken(if one_hot { Taken::OneHot(parts) } else { Taken::Choices(parts) });
        match space {
            Space::Discrete(space) => choices(vec![(space.start, space.n as usize)]),
            Space::Box(of) if of.choices => choices(values_of(of)),
            Space::Box(of) => Self::Taken(Taken::Quantities(of.low.iter().zip(of.high.iter()).collect())),
        }
    }

    /// Returns the number of outputs of a net.
    pub(crate) fn outputs(&self) -> usize {
        match self {
            Self::Categorical(parts) => parts.iter().fold(0, |sum, (_, values)| sum.saturating_add(*values)),
            Self::Bernoulli(elements) => *elements,
            Self::Gaussian(of) => of.low.len() * if of.log_std.is_some() { 1 } else { 2 },
            Self::Taken(Taken::OneHot(parts)) => {
                parts.iter().fold(0, |sum, (_, values)| sum.saturating_add(*values))
            }
            Self::Taken(taken) => taken.elements(),
        }
    }

    /// Returns the number of elements of an action.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Categorical(parts) => parts.len(),
            Self::Bernoulli(elements) => *elements,
            Self::Gaussian(of) => of.low.len(),
            Self::Taken(taken) => taken.elements(),
        }
    }

    /// Returns whether outputs for one lane stand for an action. Those of which one is drawn always do.
    pub(crate) fn has_action(&self, outputs: &[f32]) -> bool {
        match self {
            Self::Taken(Taken::Choices(parts)) => parts
                .iter()
                .zip(outputs)
                .all(|((_, values), place)| place.fract() == 0.0 && (0.0..*values as f32).contains(place)),
            _ => true,
        }
    }

    /// Returns whether an action may be another than the one that was drawn, because that is out of bounds.
    pub(crate) fn cuts(&self) -> bool {
        match self {
            Self::Gaussian(of) => {
                !of.squashed && of.low.iter().chain(&of.high).any(|bound| bound.is_finite())
            }
            Self::Taken(Taken::Quantities(bounds)) => {
                bounds.iter().any(|(low, high)| low.is_finite() || high.is_finite())
            }
            Self::Categorical(_) | Self::Bernoulli(_) | Self::Taken(_) => false,
        }
    }

    /// Chooses an action from the outputs for one lane. Writes it to `action` as numbers, and what was drawn to `drawn`.
    /// Returns the logarithm of its probability, or of its density: that of the distribution which `sampling` makes of the
    /// outputs, and 0 where nothing is drawn.
    pub(crate) fn choose(
        &self,
        outputs: &[f32],
        mask: Option<&[u8]>,
        sampling: Sampling,
        mut words: Words,
        (action, drawn): (&mut [f64], &mut [f32]),
    ) -> f64 {
        match self {
            Self::Categorical(parts) => {
                let (mut first, mut sum) = (0, 0.0);
                for ((least, values), action) in parts.iter().zip(action) {
                    let range = first..first + values;
                    let mask = mask.map(|mask| &mask[range.clone()]);
                    let (value, log_prob) = categorical(&outputs[range.clone()], mask, sampling, &mut words);
                    *action = (least + value as i64) as f64;
                    sum += log_prob;
                    first = range.end;
                }
                sum
            }
            Self::Bernoulli(_) => {
                let two = |(at, (output, action)): (usize, (&f32, &mut f64))| {
                    let mask = mask.map(|mask| &mask[2 * at..2 * at + 2]);
                    let (value, log_prob) = categorical(&[0.0, *output], mask, sampling, &mut words);
                    *action = value as f64;
                    log_prob
                };
                outputs.iter().zip(action).enumerate().map(two).sum()
            }
            Self::Gaussian(of) => of.choose(outputs, sampling, &mut words, (action, drawn)),
            Self::Taken(taken) => {
                taken.take(outputs, mask, (action, drawn));
                0.0
            }
        }
    }
}

impl Taken {
    fn elements(&self) -> usize {
        match self {
            Self::Choices(parts) | Self::OneHot(parts) => parts.len(),
            Self::Quantities(bounds) => bounds.len(),
        }
    }

    fn take(&self, outputs: &[f32], mask: Option<&[u8]>, (action, drawn): (&mut [f64], &mut [f32])) {
        match self {
            Self::Choices(parts) => {
                for (((least, _), place), action) in parts.iter().zip(outputs).zip(action) {
                    *action = least.saturating_add(*place as i64) as f64;
                }
            }
            Self::OneHot(parts) => {
                let likeliest = Sampling { deterministic: true, ..Sampling::default() };
                let head = Head::Categorical(parts.clone());
                head.choose(outputs, mask, likeliest, Words::of(0, 0, 0), (action, drawn));
            }
            Self::Quantities(bounds) => {
                for ((((low, high), output), action), drawn) in
                    bounds.iter().zip(outputs).zip(action).zip(drawn)
                {
                    *drawn = *output;
                    *action = f64::from(*output).max(*low).min(*high);
                }
            }
        }
    }
}

/// Returns least and number of the values of each element of a box of choices.
fn values_of(space: &BoxSpace) -> Vec<(i64, usize)> {
    let values = space.low.iter().zip(space.high.iter());
    values.map(|(low, high)| (low as i64, ((high - low) as usize).saturating_add(1))).collect()
}

impl Gaussian {
    fn choose(
        &self,
        outputs: &[f32],
        sampling: Sampling,
        words: &mut Words,
        (action, drawn): (&mut [f64], &mut [f32]),
    ) -> f64 {
        let (means, own) = outputs.split_at(self.low.len());
        let log_stds = self.log_std.as_deref().unwrap_or(own);
        let mut sum = 0.0;
        for (at, (mean, log_std)) in means.iter().zip(log_stds).enumerate() {
            let log_std =
                f64::from(*log_std).clamp(LOG_STD_LEAST, LOG_STD_MOST) + libm::log(sampling.temperature);
            let normal = if sampling.deterministic { 0.0 } else { words.normal() };
            let value = f64::from(*mean) + libm::exp(log_std) * normal;
            sum -= 0.5 * normal * normal + log_std + HALF_LOG_TAU;
            let (low, high) = (self.low[at], self.high[at]);
            if self.squashed {
                let squashed = libm::tanh(value);
                sum -= libm::log(1.0 - squashed * squashed + SQUASHED_LEAST);
                drawn[at] = squashed as f32;
                action[at] = (low + 0.5 * (squashed + 1.0) * (high - low)).clamp(low, high);
            } else {
                drawn[at] = value as f32;
                // Bounds may be infinite, and are never no numbers.
                action[at] = value.max(low).min(high);
            }
        }
        if sampling.deterministic { 0.0 } else { sum }
    }
}

/// Chooses one of some values by their logits. Returns its place and the logarithm of its probability.
fn categorical(logits: &[f32], mask: Option<&[u8]>, sampling: Sampling, words: &mut Words) -> (usize, f64) {
    // Where a mask allows nothing, as after an episode's end, all is allowed.
    let mask = mask.filter(|mask| mask.iter().any(|allowed| *allowed != 0));
    let allowed = |at: usize| mask.is_none_or(|mask| mask[at] != 0);
    let values = || (0..logits.len()).filter(|&at| allowed(at));
    let logit = |at: usize| f64::from(logits[at]) / sampling.temperature;
    // The first of the greatest.
    let best = values().fold(None, |best: Option<usize>, at| match best {
        Some(best) if logit(best) >= logit(at) => Some(best),
        _ => Some(at),
    });
    let best = best.unwrap_or(0);
    let Sampling { deterministic, epsilon, .. } = sampling;
    let weight = |at: usize| match deterministic {
        true => f64::from(u8::from(at == best)),
        false => libm::exp(logit(at) - logit(best)),
    };
    let (sum, count) = values().fold((0.0, 0.0), |(sum, count), at| (sum + weight(at), count + 1.0));
    let alike = epsilon > 0.0 && words.unit() < epsilon;
    let mut left = words.unit() * if alike { count } else { sum };
    let mut chosen = best;
    for at in values() {
        let weight = if alike { 1.0 } else { weight(at) };
        if weight > 0.0 {
            chosen = at;
        }
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    match (deterministic, epsilon > 0.0) {
        (true, false) => (chosen, 0.0),
        (false, false) => (chosen, logit(chosen) - logit(best) - libm::log(sum)),
        (_, true) => (chosen, libm::log((1.0 - epsilon) * weight(chosen) / sum + epsilon / count)),
    }
}

/// Random words of one lane's step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    word: u64,
    next: u64,
}

impl Words {
    /// Returns the words of a step of a lane, in a run whose key [`Words::key`] made.
    pub(crate) const fn of(key: u64, lane: u32, step: u64) -> Self {
        Self { word: random_bits_keyed(key, lane, step), next: 0 }
    }

    /// Returns the key of a run's words. They are others than those of random actions.
    pub(crate) const fn key(run_seed: u64) -> u64 {
        random_key(split_mix64(run_seed))
    }

    const fn draw(&mut self) -> u64 {
        self.next += 1;
        split_mix64(self.word.wrapping_add(self.next))
    }

    /// Returns a number of [0, 1), a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 * (0.5f64).powi(53)
    }

    /// Returns a number of the standard normal distribution, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * sin_cos(std::f64::consts::TAU * self.unit()).1
    }
}

/// Writes actions, given as numbers, to a column of their type.
///
/// # Errors
/// The column is of another type than `space`.
pub(crate) fn write_actions(space: &Space, numbers: &[f64], column: ColumnMut<'_>) -> Result<(), ActError> {
    fn each<T>(to: &mut [T], numbers: &[f64], of: impl Fn(f64) -> T) {
        to.iter_mut().zip(numbers).for_each(|(to, number)| *to = of(*number));
    }
    let wanted = space.dtype();
    match (wanted, column) {
        (DType::I64, ColumnMut::I64(to)) => each(to, numbers, |number| number as i64),
        (DType::I32, ColumnMut::I32(to)) => each(to, numbers, |number| number as i32),
        (DType::F32, ColumnMut::F32(to)) => each(to, numbers, |number| number as f32),
        (DType::F64, ColumnMut::F64(to)) => each(to, numbers, |number| number),
        (DType::Bool | DType::U8, ColumnMut::U8(to)) => each(to, numbers, |number| number as u8),
        _ => return Err(ActError::DType { wanted }),
    }
    Ok(())
}

/// Half the logarithm of 2 pi.
const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_7;

/// Least and greatest logarithm of a standard deviation, as soft actor-critic has them.
pub(crate) const LOG_STD_LEAST: f64 = -20.0;
pub(crate) const LOG_STD_MOST: f64 = 2.0;

/// Added to the derivative of the hyperbolic tangent before its logarithm is taken, as Stable-Baselines3 does.
const SQUASHED_LEAST: f64 = 1e-6;
