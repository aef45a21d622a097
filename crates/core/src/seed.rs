//! The seeds and generator positions from which episodes start.

use serde::{Deserialize, Serialize};

use crate::limits::PER_EPISODE_SEED_BOUND;

/// Rule by which a lane's next episode is seeded when no one seeds it explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeedSchedule {
    /// Autoreset draws on from the lane's generator, as Gymnasium does.
    #[default]
    Continue,
    /// Every episode is seeded anew with [`per_episode_seed`], so that `reset(seed)` alone repeats it.
    PerEpisode {
        /// Seed of the run, from which all episodes' seeds are made.
        run_seed: u64,
    },
}

/// Position of a lane's generator at an episode's reset, which is enough to replay the episode alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// Seed of the lane's last seeded reset.
    pub seed: u64,
    /// Number of 64-bit words that the lane's generator had yielded since that reset, when this episode's reset began.
    pub words: u64,
    /// Upper half of the last word, which is buffered if a 32-bit draw left it over.
    pub half: Option<u32>,
}

impl Start {
    /// Returns the start of an episode whose reset was given `seed`.
    pub const fn seeded(seed: u64) -> Self {
        Self { seed, words: 0, half: None }
    }

    /// Returns the number with which `reset(seed)` alone gives the first state, if there is one.
    pub const fn plain_seed(self) -> Option<u64> {
        match self {
            Self { seed, words: 0, half: None } => Some(seed),
            _ => None,
        }
    }
}

/// Mixes a 64-bit word by SplitMix64's output function (Steele, Lea, Flood 2014), a bijection.
#[inline]
pub const fn split_mix64(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the seed of episode `number` of `lane` under the `per_episode` schedule: SplitMix64 chained over run seed,
/// lane and number, kept under 2^53.
#[inline]
pub const fn per_episode_seed(run_seed: u64, lane: u32, number: u64) -> u64 {
    split_mix64(split_mix64(split_mix64(run_seed) ^ lane as u64) ^ number) % PER_EPISODE_SEED_BOUND
}

/// Returns the random word of (run seed, lane, step). It is a counter hash, so that random actions depend neither on
/// threads nor on the order in which lanes are stepped.
#[inline]
pub const fn random_bits(run_seed: u64, lane: u32, step: u64) -> u64 {
    random_bits_keyed(random_key(run_seed), lane, step)
}

/// Returns the part of [`random_bits`] that all words of a run share, for callers that need many words.
#[inline]
pub const fn random_key(run_seed: u64) -> u64 {
    split_mix64(run_seed ^ 0x5DEE_CE66_D1CE_5EED)
}

/// Returns [`random_bits`] of the run for which [`random_key`] made `key`.
#[inline]
pub const fn random_bits_keyed(key: u64, lane: u32, step: u64) -> u64 {
    split_mix64(key.wrapping_add((lane as u64) << 40) ^ step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix64_gives_the_published_sequence() {
        // The first outputs of Vigna's splitmix64.c from state 1234567.
        let mut state = 1_234_567u64;
        let mut next = || {
            let out = split_mix64(state);
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            out
        };
        assert_eq!(
            [next(), next(), next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn per_episode_seeds_differ_and_stay_exact_in_a_double() {
        let mut seen = std::collections::HashSet::new();
        for lane in 0..64 {
            for number in 0..64 {
                let seed = per_episode_seed(7, lane, number);
                assert!(seed < PER_EPISODE_SEED_BOUND);
                assert!(seen.insert(seed));
            }
        }
    }

    #[test]
    fn a_start_has_a_plain_seed_only_before_anything_was_drawn() {
        assert_eq!(Start::seeded(3).plain_seed(), Some(3));
        assert_eq!(Start { words: 4, ..Start::seeded(3) }.plain_seed(), None);
        assert_eq!(Start { half: Some(0), ..Start::seeded(3) }.plain_seed(), None);
    }
}
