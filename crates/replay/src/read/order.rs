//! The order of a listing as plain numbers, so that what is known of an episode, a chunk or an extent can be compared.

use crate::code::episode::EpisodeInfo;
use crate::read::query::{Sort, SortKey};

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
        let value = match self.key {
            SortKey::Name => 0,
            SortKey::Return => sortable(facts.total_reward.unwrap_or(f64::NEG_INFINITY)),
            SortKey::Length => facts.length,
            SortKey::Started => facts.started_ms,
        };
        let Facts { run, lane, number, .. } = *facts;
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

/// Returns a number that has the order of `f64::total_cmp`.
#[inline]
const fn sortable(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_as_numbers_have_the_total_order_of_floats() {
        let nan = f64::NAN;
        let values = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, nan];
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
            assert_eq!(sortable(a).cmp(&sortable(b)), a.total_cmp(&b), "{a} and {b}");
        }
    }
}
