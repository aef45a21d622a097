//! The counts of a session's episodes that are told when it has ended.

use std::fmt;

use rollhouse_core::{GameResult, Outcome};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Episodes by how they ended, and the spread of their figures.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EpisodeCounts {
    /// Episodes by outcome, in the order of [`Outcome::ALL`].
    #[serde(default)]
    pub outcomes: Tallies<{ Outcome::ALL.len() }>,
    /// Finished episodes by the result that their env gave them, in the order of [`GameResult::ALL`].
    #[serde(default)]
    pub results: Tallies<{ GameResult::ALL.len() }>,
    /// Sum of the lengths of finished episodes, in steps.
    #[serde(default)]
    pub length_sum: f64,
    /// Least and greatest of these lengths.
    #[serde(default)]
    pub lengths: Extent,
    /// Least and greatest return of finished episodes.
    #[serde(default)]
    pub returns: Extent,
}

/// Numbers of a fixed count. Fewer that are read are filled up with zeros, and more are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tallies<const N: usize>(pub [u64; N]);

/// The least and the greatest of some numbers; `None` of none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Extent(pub Option<(f64, f64)>);

impl EpisodeCounts {
    /// Returns whether nothing was counted, as where nobody counts.
    pub fn is_empty(&self) -> bool {
        self.outcomes == Tallies::default()
    }

    /// Returns the number of episodes that were counted.
    pub fn episodes(&self) -> u64 {
        self.outcomes.0.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Adds the counts of another session. Sums saturate at their largest value.
    pub fn add(&mut self, other: &Self) {
        self.outcomes.add(&other.outcomes);
        self.results.add(&other.results);
        self.length_sum += other.length_sum;
        self.lengths = self.lengths.with(other.lengths);
        self.returns = self.returns.with(other.returns);
    }
}

impl<const N: usize> Tallies<N> {
    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
}

impl Extent {
    fn with(self, other: Self) -> Self {
        let both = self.0.zip(other.0).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
        Self(both.or(self.0).or(other.0))
    }
}

impl<const N: usize> Default for Tallies<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Serialize for Tallies<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Tallies<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers<const N: usize>;
        impl<'de, const N: usize> Visitor<'de> for Numbers<N> {
            type Value = Tallies<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of counts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut read = Tallies::default();
                let mut places = read.0.iter_mut();
                while let Some(count) = list.next_element()? {
                    if let Some(place) = places.next() {
                        *place = count;
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_seq(Numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_lists_of_other_versions_are_read() {
        let of = |outcome: usize, length: f64| {
            let mut counts = EpisodeCounts { length_sum: length, ..EpisodeCounts::default() };
            counts.outcomes.0[outcome] = 1;
            (counts.lengths, counts.returns) =
                (Extent(Some((length, length))), Extent(Some((-length, -length))));
            counts
        };
        let mut all = EpisodeCounts::default();
        assert!(all.is_empty());
        [of(0, 9.0), of(1, 5.0), of(0, 7.0)].iter().for_each(|counts| all.add(counts));
        assert_eq!((all.outcomes.0[..2].to_vec(), all.length_sum, all.episodes()), (vec![2, 1], 21.0, 3));
        assert_eq!((all.lengths, all.returns), (Extent(Some((5.0, 9.0))), Extent(Some((-9.0, -5.0)))));
        let bytes = rmp_serde::to_vec_named(&all).unwrap();
        assert_eq!(rmp_serde::from_slice::<EpisodeCounts>(&bytes).unwrap(), all);
        let read = |counts: &[u64]| {
            rmp_serde::from_slice::<Tallies<3>>(&rmp_serde::to_vec(counts).unwrap()).unwrap().0
        };
        assert_eq!((read(&[1, 2]), read(&[1, 2, 3, 4])), ([1, 2, 0], [1, 2, 3]));
    }

    #[test]
    fn counts_of_any_size_leave_room_for_the_ends_of_a_heartbeat() {
        let widest = Extent(Some((f64::MAX, f64::MAX)));
        let counts = EpisodeCounts {
            outcomes: Tallies([u64::MAX; Outcome::ALL.len()]),
            results: Tallies([u64::MAX; GameResult::ALL.len()]),
            length_sum: f64::MAX,
            lengths: widest,
            returns: widest,
        };
        assert!(rmp_serde::to_vec_named(&counts).unwrap().len() <= 256);
    }
}
