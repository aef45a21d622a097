//! The 32-bit hash of exact state bits that replays are verified by.

/// Folds 64-bit words of a lane's state into 32 bits.
///
/// Each word is mixed with a constant of its place and multiplied; the products, which do not depend on each
/// other, are added with a rotation, and the sum is finalised as in SplitMix64. Each step is a bijection, so
/// one changed word always changes the 64-bit sum. It detects accidents, not
/// attackers: two different states collide with probability 2^-32.
///
/// Part of the replay format: changing it changes every recorded hash.
#[derive(Debug, Clone, Copy, Default)]
pub struct StateHasher {
    sum: u64,
    words: u64,
}

impl StateHasher {
    /// An empty hash.
    #[inline]
    pub const fn new() -> Self {
        Self { sum: 0, words: 0 }
    }

    /// Adds one word; the order of words matters.
    #[inline]
    #[must_use]
    pub const fn word(mut self, word: u64) -> Self {
        self.words = self.words.wrapping_add(GOLDEN);
        let mixed = (word ^ (word >> 32) ^ self.words).wrapping_mul(MULTIPLIER);
        self.sum = self.sum.wrapping_add(mixed ^ (mixed >> 29)).rotate_left(5);
        self
    }

    /// Adds the exact bits of a double: `-0.0` differs from `0.0`, and NaN payloads count.
    #[inline]
    #[must_use]
    pub const fn f64(self, value: f64) -> Self {
        self.word(value.to_bits())
    }

    /// The hash of everything added so far.
    #[inline]
    pub const fn finish(self) -> u32 {
        let mut z = self.sum ^ self.words;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as u32
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const MULTIPLIER: u64 = 0xD6E8_FEB8_6659_FD93;

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
        assert_eq!(StateHasher::new().f64(1.0).f64(-0.5).finish(), 2_416_524_900);
    }
}
