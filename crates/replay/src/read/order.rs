//! The order of a listing as plain numbers, so that what is known of an episode, a chunk or an extent can be compared.

use std::cmp::Ordering;
use std::str::FromStr;

use crate::code::episode::EpisodeInfo;

/// An order of episodes. Ties are in the order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sort {
    /// Property by which episodes are sorted.
    pub key: SortKey,
    /// Whether the largest come first.
    pub descending: bool,
}

/// The property by which episodes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortKey {
    /// Name: run (older first), lane, number.
    #[default]
    Name,
    /// Return; unknown ones count as the smallest, and those that are no number come last in either direction.
    Return,
    /// Number of steps.
    Length,
    /// Wall clock of the first step.
    Started,
}

/// An error: a text is no order of episodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot sort by `{0}`; known are return, length, started, name, each with - in front")]
pub struct UnknownSort(String);

impl FromStr for Sort {
    type Err = UnknownSort;

    /// Reads the word of a key, with `-` in front for the largest first.
    fn from_str(text: &str) -> Result<Self, UnknownSort> {
        let (descending, key) = match text.strip_prefix('-') {
            Some(key) => (true, key),
            None => (false, text),
        };
        let key = match key {
            "name" | "id" => SortKey::Name,
            "return" => SortKey::Return,
            "length" => SortKey::Length,
            "started" => SortKey::Started,
            _ => return Err(UnknownSort(text.to_owned())),
        };
        Ok(Self { key, descending })
    }
}

/// The place of an episode in an order: smaller is earlier. Two different episodes never have the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    value: u64,
    run: u128,
    lane: u32,
    number: u64,
}

/// The facts about an episode that an order compares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) run: u128,
    pub(crate) lane: u32,
    pub(crate) number: u64,
    pub(crate) length: u64,
    pub(crate) total_reward: Option<f64>,
    pub(crate) started_ms: u64,
}

impl Facts {
    pub(crate) fn of(info: &EpisodeInfo) -> Self {
        Self {
            run: info.run_id().as_u128(),
            lane: info.name.lane,
            number: info.name.number,
            length: info.length,
            total_reward: info.total_reward,
            started_ms: info.started_ms,
        }
    }
}

impl Rank {
    /// Returns the rank as numbers that another process can read: see [`Rank::from_words`].
    pub const fn to_words(self) -> [u64; 5] {
        [self.value, (self.run >> 64) as u64, self.run as u64, self.lane as u64, self.number]
    }

    /// Returns the rank for which [`Rank::to_words`] gave these numbers. Any numbers are some rank.
    pub const fn from_words([value, high, low, lane, number]: [u64; 5]) -> Self {
        Self { value, run: (high as u128) << 64 | low as u128, lane: lane as u32, number }
    }

    pub(crate) const LEAST: Self = Self { value: 0, run: 0, lane: 0, number: 0 };
    pub(crate) const MOST: Self = Self { value: u64::MAX, run: u128::MAX, lane: u32::MAX, number: u64::MAX };
}

impl Sort {
    #[inline]
    pub(crate) fn rank(self, facts: &Facts) -> Rank {
        let Facts { run, lane, number, .. } = *facts;
        let value = match self.key {
            SortKey::Name => 0,
            // Neither large nor small: it is the last either way.
            SortKey::Return if facts.total_reward.is_some_and(f64::is_nan) => {
                return Rank { value: u64::MAX, run, lane, number };
            }
            SortKey::Return => sortable(facts.total_reward.unwrap_or(f64::NEG_INFINITY)),
            SortKey::Length => facts.length,
            SortKey::Started => facts.started_ms,
        };
        match (self.key, self.descending) {
            (SortKey::Name, true) => Rank { value, run: !run, lane: !lane, number: !number },
            (_, true) => Rank { value: !value, run, lane, number },
            (_, false) => Rank { value, run, lane, number },
        }
    }

    /// Returns bounds of the ranks of episodes, each of whose facts is between those of `least` and `most`.
    pub(crate) fn ranks_between(self, least: &Facts, most: &Facts) -> (Rank, Rank) {
        if !self.descending {
            return (self.rank(least), self.rank(most));
        }
        if self.key == SortKey::Name {
            return (self.rank(most), self.rank(least));
        }
        // Values are turned round, names are not.
        let with_value_of = |names: Rank, values: Rank| Rank { value: values.value, ..names };
        let (low, high) = (self.rank(least), self.rank(most));
        (with_value_of(low, high), with_value_of(high, low))
    }
}

/// Returns a number that has the order of `f64::total_cmp`, and is less than the largest of all for any number.
#[inline]
const fn sortable(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

impl Sort {
    /// Returns whether the key tells better episodes from worse ones; episodes have to be whole for that.
    pub fn is_of_merit(self) -> bool {
        matches!(self.key, SortKey::Return | SortKey::Length)
    }

    /// Returns the place of an episode in this order.
    pub fn rank_of(self, info: &EpisodeInfo) -> Rank {
        self.rank(&Facts::of(info))
    }

    /// Compares two episodes in this order, also when they come from different folders.
    pub fn compare(self, a: &EpisodeInfo, b: &EpisodeInfo) -> Ordering {
        self.rank_of(a).cmp(&self.rank_of(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_that_is_no_number_comes_last_whatever_the_direction() {
        let facts =
            |total_reward| Facts { run: 1, lane: 0, number: 0, length: 1, total_reward, started_ms: 0 };
        let numbers = [None, Some(f64::NEG_INFINITY), Some(-1.0), Some(f64::INFINITY)];
        for sort in ["return", "-return"].map(|word| word.parse::<Sort>().unwrap()) {
            for nan in [f64::NAN, -f64::NAN].map(|nan| facts(Some(nan))) {
                assert!(numbers.iter().all(|number| sort.rank(&facts(*number)) < sort.rank(&nan)));
            }
        }
    }

    #[test]
    fn returns_as_numbers_have_the_total_order_of_floats() {
        let nan = f64::NAN;
        let values = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, nan];
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
            assert_eq!(sortable(a).cmp(&sortable(b)), a.total_cmp(&b), "{a} and {b}");
        }
    }
}
