//! Distributions of options, of which each episode draws a value.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{OptionValue, ValueVisitor};
use crate::limits::MAX_OPTION_CHOICES;
use crate::{Start, split_mix64};

/// A distribution of an option's values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Numbers from the first to the second, all equally likely.
    Uniform([f64; 2]),
    /// Integers from the first to the second, both included, all equally likely.
    Integers([i64; 2]),
    /// Values of any kind, at most [`MAX_OPTION_CHOICES`], all equally likely. None of them is a distribution.
    Choice(Vec<OptionValue>),
}

/// How the distributions are written, for errors.
pub(super) const DISTRIBUTIONS: &str =
    r#"{"uniform": [low, high]}, {"integers": [low, high]} or {"choice": [value, ...]}"#;

impl Distribution {
    /// Returns the value that 64 random bits stand for.
    pub(super) fn draw(&self, bits: u64) -> OptionValue {
        match self {
            Self::Uniform([low, high]) => {
                let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
                OptionValue::Float((low + (high - low) * unit).clamp(*low, *high))
            }
            Self::Integers([low, high]) => {
                // The number of integers is 0 if it is 2^64.
                let count = high.wrapping_sub(*low).wrapping_add(1) as u64;
                let offset = if count == 0 { bits } else { below(bits, count) };
                OptionValue::Int(low.wrapping_add(offset as i64))
            }
            Self::Choice(choices) => choices[below(bits, choices.len() as u64) as usize].clone(),
        }
    }

    /// Returns the number of values that it chooses from one by one.
    pub(super) const fn choices(&self) -> usize {
        match self {
            Self::Uniform(_) | Self::Integers(_) => 0,
            Self::Choice(choices) => choices.len(),
        }
    }

    /// Returns the least and the greatest value, or all choices.
    pub(super) fn ends(&self) -> Vec<OptionValue> {
        match self {
            Self::Uniform(ends) => ends.map(OptionValue::Float).into(),
            Self::Integers(ends) => ends.map(OptionValue::Int).into(),
            Self::Choice(choices) => choices.clone(),
        }
    }

    /// Returns the distribution with values of the kind of `kind`; `None` if some are of another.
    pub(super) fn accepted_by(&self, kind: &OptionValue) -> Option<Self> {
        match (self, kind) {
            (Self::Uniform(_), OptionValue::Float(_)) | (Self::Integers(_), OptionValue::Int(_)) => {
                Some(self.clone())
            }
            (Self::Choice(choices), _) => {
                let plain = |value: &&OptionValue| !matches!(value, OptionValue::Drawn(_));
                let accepted = |value| Some(value).filter(plain).and_then(|value| kind.accept(value));
                choices.iter().map(accepted).collect::<Option<_>>().map(Self::Choice)
            }
            _ => None,
        }
    }

    /// Returns the reason for which nothing can be drawn, if there is one.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Uniform([low, high]) if !(high - low).is_finite() => {
                Err("the ends of a range are finite numbers whose difference is finite")
            }
            Self::Uniform([low, high]) if low > high => Err("the first end of a range is above the second"),
            Self::Integers([low, high]) if low > high => Err("the first end of a range is above the second"),
            Self::Choice(choices) if choices.is_empty() => Err("there is nothing to choose from"),
            _ => Ok(()),
        }
    }

    /// Reads a map of one name.
    pub(super) fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let unknown = || A::Error::custom(format_args!("a distribution is {DISTRIBUTIONS}"));
        let distribution = match map.next_key::<String>()?.as_deref() {
            Some("uniform") => Self::Uniform(map.next_value()?),
            Some("integers") => Self::Integers(map.next_value()?),
            Some("choice") => Self::Choice(map.next_value_seed(Choices)?),
            _ => return Err(unknown()),
        };
        if map.next_key::<String>()?.is_some() {
            return Err(unknown());
        }
        distribution.check().map_err(A::Error::custom)?;
        Ok(distribution)
    }
}

/// Returns a number below `count`, as likely as each other to 2^-64.
const fn below(bits: u64, count: u64) -> u64 {
    ((bits as u128 * count as u128) >> 64) as u64
}

impl Start {
    /// Returns 64 random bits for option number `rank` of the episode that begins here: SplitMix64 chained over seed,
    /// words with half, and rank.
    pub(super) const fn option_bits(self, rank: u64) -> u64 {
        let place = self.words.rotate_left(1) ^ self.half.is_some() as u64;
        split_mix64(split_mix64(split_mix64(self.seed ^ OPTIONS) ^ place) ^ rank)
    }
}

/// Sets the draws of options apart from other draws of the same seed: "options" in ASCII.
const OPTIONS: u64 = 0x6f70_7469_6f6e_7300;

/// Reads plain values, of which there may be so many.
struct Choices;

impl<'de> DeserializeSeed<'de> for Choices {
    type Value = Vec<OptionValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Choices {
    type Value = Vec<OptionValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_OPTION_CHOICES} values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut choices = Vec::new();
        while let Some(choice) = seq.next_element_seed(Plain)? {
            if choices.len() == MAX_OPTION_CHOICES {
                return Err(A::Error::custom(format_args!("more than {MAX_OPTION_CHOICES} choices")));
            }
            choices.push(choice);
        }
        Ok(choices)
    }
}

/// Reads a value that is no distribution, so that nothing is nested.
struct Plain;

impl<'de> DeserializeSeed<'de> for Plain {
    type Value = OptionValue;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(ValueVisitor { plain: true })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform([low, high]) => write!(f, "uniform from {low} to {high}"),
            Self::Integers([low, high]) => write!(f, "integers from {low} to {high}"),
            Self::Choice(choices) => {
                f.write_str("one of ")?;
                for (at, choice) in choices.iter().enumerate() {
                    write!(f, "{}{choice}", if at == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(distribution: &Distribution) -> impl Iterator<Item = OptionValue> {
        let starts = (0..10_000).map(|words| Start { seed: 5, words, half: None });
        starts.map(|start| distribution.draw(start.option_bits(0)))
    }

    #[test]
    fn a_range_is_drawn_over_its_whole_width_and_not_beyond() {
        let range = Distribution::Uniform([9.0, 10.5]);
        let mut parts = [0; 10];
        for value in drawn(&range) {
            let OptionValue::Float(value) = value else { panic!("{value}") };
            assert!((9.0..=10.5).contains(&value));
            parts[((value - 9.0) / 0.15).min(9.0) as usize] += 1;
        }
        // 1,000 each; six standard deviations are 180.
        assert!(parts.iter().all(|part| (820..1180).contains(part)), "{parts:?}");
    }

    #[test]
    fn both_ends_of_integers_and_every_choice_are_drawn_equally_often() {
        let mut counts = [0; 4];
        for value in drawn(&Distribution::Integers([-1, 2])) {
            let OptionValue::Int(value) = value else { panic!("{value}") };
            counts[(value + 1) as usize] += 1;
        }
        // 2,500 each; six standard deviations are 260.
        assert!(counts.iter().all(|count| (2240..2760).contains(count)), "{counts:?}");
        let choice = Distribution::Choice(vec![OptionValue::Bool(true), OptionValue::Bool(false)]);
        let flags = drawn(&choice).filter(|value| *value == OptionValue::Bool(true)).count();
        assert!((4700..5300).contains(&flags), "{flags}");
    }

    #[test]
    fn all_integers_are_a_range() {
        let all = Distribution::Integers([i64::MIN, i64::MAX]);
        assert_eq!(all.draw(0), OptionValue::Int(i64::MIN));
        assert_eq!(all.draw(u64::MAX), OptionValue::Int(i64::MAX));
    }

    #[test]
    fn a_distribution_of_no_values_or_in_another_is_refused() {
        for json in [
            r#"{"uniform": [2, 1]}"#,
            r#"{"uniform": [1]}"#,
            r#"{"uniform": [-1.7e308, 1.7e308]}"#,
            r#"{"integers": [2, 1]}"#,
            r#"{"integers": [0.5, 1]}"#,
            r#"{"choice": []}"#,
            r#"{"choice": [{"uniform": [1, 2]}]}"#,
            r#"{"normal": [1, 2]}"#,
            r#"{"uniform": [1, 2], "integers": [1, 2]}"#,
            "{}",
        ] {
            assert!(serde_json::from_str::<OptionValue>(json).is_err(), "{json}");
        }
    }
}
