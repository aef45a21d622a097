//! The 32-bit hash of exact state bits by which replays are verified.

/// Folds 64-bit words of a lane's state into 32 bits.
///
/// Each word is added by exclusive or, multiplied by an odd constant and folded onto itself. Every step is a bijection
/// of the 64-bit sum, so one changed word always changes it; two different states collide with probability 2^-32. It
/// detects accidents, not attackers. It costs four instructions a word, because it runs in the step of every episode
/// that ends.
///
/// It is part of the replay format: changing it changes every recorded hash.
#[derive(Debug, Clone, Copy)]
pub struct StateHasher(u64);

impl StateHasher {
    /// Returns the hash of no words.
    #[inline]
    pub const fn new() -> Self {
        Self(SEED)
    }

    /// Adds one word; order and number of words matter.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u64) -> Self {
        let product = (self.0 ^ word).wrapping_mul(MULTIPLIER);
        Self(product ^ (product >> 32))
    }

    /// Adds the exact bits of a double: `-0.0` differs from `0.0`, and NaN payloads count.
    #[inline]
    #[must_use]
    pub const fn f64(self, value: f64) -> Self {
        self.word(value.to_bits())
    }

    /// Returns the hash of everything added so far.
    #[inline]
    pub const fn finish(self) -> u32 {
        ((self.0 ^ (self.0 >> 29)).wrapping_mul(FINAL_MULTIPLIER) >> 32) as u32
    }
}

impl Default for StateHasher {
    fn default() -> Self {
        Self::new()
    }
}

/// Initial sum: 2^64 divided by the golden ratio, so that words of zeros are not lost.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
/// Multiplier of well-spread bits, from Degski's 64-bit mixer.
const MULTIPLIER: u64 = 0xD6E8_FEB8_6659_FD93;
/// Multiplier of well-spread bits, from SplitMix64.
const FINAL_MULTIPLIER: u64 = 0xBF58_476D_1CE4_E5B9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_of_any_word_changes_the_hash() {
        let words = [0.1f64, -2.5, 0.0, 1e300].map(f64::to_bits);
        let hash = |w: [u64; 4]| w.iter().fold(StateHasher::new(), |h, &w| h.word(w)).finish();
        let clean = hash(words);
        for index in 0..4 {
            for bit in 0..64 {
                let mut flipped = words;
                flipped[index] ^= 1 << bit;
                assert_ne!(hash(flipped), clean, "word {index} bit {bit}");
            }
        }
    }

    #[test]
    fn order_and_count_of_words_matter() {
        let hash = |w: &[u64]| w.iter().fold(StateHasher::new(), |h, &w| h.word(w)).finish();
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
        assert_ne!(hash(&[]), hash(&[0]));
    }

    #[test]
    fn the_hash_is_frozen_as_part_of_the_format() {
        assert_eq!(StateHasher::new().f64(1.0).f64(-0.5).finish(), 3_473_515_644);
    }
}
