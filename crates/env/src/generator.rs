//! NumPy's default random generator, reproduced word for word.

use rollhouse_core::Start;

/// A random generator that gives exactly what `numpy.random.default_rng(seed)` gives, and thus what Gymnasium's
/// `np_random` gives after `reset(seed)`: PCG64 (XSL-RR 128/64) seeded through NumPy's `SeedSequence`.
///
/// It counts the 64-bit words it has yielded since it was seeded, so that its position is a [`Start`] and any
/// position can be reached again in O(log words).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generator {
    state: u128,
    /// Increment of the generator, an odd number that chooses the stream.
    increment: u128,
    seed: u64,
    words: u64,
    half: Option<u32>,
}

impl Generator {
    /// Returns the generator of `numpy.random.default_rng(seed)`.
    pub fn seeded(seed: u64) -> Self {
        let [state_high, state_low, stream_high, stream_low] = seed_sequence(seed);
        let stream = join(stream_high, stream_low);
        let increment = (stream << 1) | 1;
        let state = join(state_high, state_low).wrapping_add(increment);
        let state = state.wrapping_mul(MULTIPLIER).wrapping_add(increment);
        Self { state, increment, seed, words: 0, half: None }
    }

    /// Returns a generator at the position `start`, which may come from another process.
    pub fn at(start: Start) -> Self {
        let mut generator = Self::seeded(start.seed);
        generator.advance(start.words);
        generator.half = start.half;
        generator
    }

    /// Returns the position of the generator, from which [`Generator::at`] continues.
    #[inline]
    pub const fn position(&self) -> Start {
        Start { seed: self.seed, words: self.words, half: self.half }
    }

    /// Returns what NumPy calls the `state` and the `inc` of the generator.
    pub const fn numpy_state(&self) -> (u128, u128) {
        (self.state, self.increment)
    }

    /// Moves on to where a generator of the same seed stands: NumPy's `state` and `inc`, and the buffered half. Returns
    /// false, and stays, if it is not one of the same seed, or has not drawn less than 2^64 words since.
    pub fn follow(&mut self, (state, increment): (u128, u128), half: Option<u32>) -> bool {
        let words = if increment == self.increment { self.words_to(state) } else { None };
        let Some(words) = words.and_then(|words| self.words.checked_add(words)) else { return false };
        (self.state, self.words, self.half) = (state, words, half);
        true
    }

    /// Returns how many words have to be drawn to come to that state. It takes as many rounds as that number has bits.
    fn words_to(&self, state: u128) -> Option<u64> {
        let (mut at, mut multiplier, mut increment) = (self.state, MULTIPLIER, self.increment);
        let mut words = 0;
        for bit in 0..u64::BITS {
            if at == state {
                break;
            }
            // The lowest bits of such a sequence go round by themselves: each tells one bit of the number.
            if (at ^ state) >> bit & 1 == 1 {
                at = at.wrapping_mul(multiplier).wrapping_add(increment);
                words |= 1 << bit;
            }
            increment = increment.wrapping_mul(multiplier.wrapping_add(1));
            multiplier = multiplier.wrapping_mul(multiplier);
        }
        (at == state).then_some(words)
    }

    /// Draws the next 64-bit word. Leaves a buffered half alone, as NumPy does.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        self.words = self.words.wrapping_add(1);
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Draws the next 32-bit word: the lower half of a new 64-bit word, then its upper half.
    #[inline]
    pub const fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let word = self.next_u64();
        self.half = Some((word >> 32) as u32);
        word as u32
    }

    /// Draws a double in `[0, 1)` with 53 random bits (NumPy's `random()`).
    #[inline]
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws a double in `[low, high)` (NumPy's `uniform(low, high)`); `high - low` must be finite and not negative for
    /// that to hold. Where doubles are too coarse between the two, rounding may give `high`, as NumPy's does.
    #[inline]
    pub const fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_f64()
    }

    /// Skips `words` 64-bit words, as if they had been drawn (NumPy's `advance`, except that a buffered half stays).
    pub const fn advance(&mut self, words: u64) {
        // n steps of s -> a*s + c are one step with a^n and c*(a^(n-1) + ... + 1); built by squaring.
        let (mut multiplier, mut increment) = (MULTIPLIER, self.increment);
        let (mut total_multiplier, mut total_increment) = (1u128, 0u128);
        let mut left = words;
        while left > 0 {
            if left & 1 == 1 {
                total_multiplier = total_multiplier.wrapping_mul(multiplier);
                total_increment = total_increment.wrapping_mul(multiplier).wrapping_add(increment);
            }
            increment = increment.wrapping_mul(multiplier.wrapping_add(1));
            multiplier = multiplier.wrapping_mul(multiplier);
            left >>= 1;
        }
        self.state = self.state.wrapping_mul(total_multiplier).wrapping_add(total_increment);
        self.words = self.words.wrapping_add(words);
    }
}

const fn join(high: u64, low: u64) -> u128 {
    (high as u128) << 64 | low as u128
}

/// Computes `numpy.random.SeedSequence(seed).generate_state(4, uint64)`.
fn seed_sequence(seed: u64) -> [u64; 4] {
    // NumPy's entropy of an integer is its 32-bit digits, lowest first, without leading zeros; a pool of four
    // words reads missing ones as zero, so padding gives the same pool.
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0];
    let mut hash = INIT_A;
    // Loops and no closures over arrays: without link-time optimisation those stay calls, a third of the cost.
    for word in &mut pool {
        *word = hash_mix(*word, &mut hash, MULT_A);
    }
    for source in 0..pool.len() {
        for target in 0..pool.len() {
            if source != target {
                pool[target] = mix(pool[target], hash_mix(pool[source], &mut hash, MULT_A));
            }
        }
    }
    let mut hash = INIT_B;
    let mut words = [0; 4];
    for (place, word) in words.iter_mut().enumerate() {
        let low = hash_mix(pool[2 * place % 4], &mut hash, MULT_B);
        let high = hash_mix(pool[(2 * place + 1) % 4], &mut hash, MULT_B);
        *word = u64::from(low) | u64::from(high) << 32;
    }
    words
}

#[inline(always)]
const fn hash_mix(word: u32, hash: &mut u32, multiplier: u32) -> u32 {
    let mixed = word ^ *hash;
    *hash = hash.wrapping_mul(multiplier);
    let mixed = mixed.wrapping_mul(*hash);
    mixed ^ (mixed >> 16)
}

#[inline(always)]
const fn mix(x: u32, y: u32) -> u32 {
    let mixed = MIX_LEFT.wrapping_mul(x).wrapping_sub(MIX_RIGHT.wrapping_mul(y));
    mixed ^ (mixed >> 16)
}

/// PCG's 128-bit multiplier.
const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

const INIT_A: u32 = 0x43B0_D7E5;
const MULT_A: u32 = 0x931E_8875;
const INIT_B: u32 = 0x8B51_F9DD;
const MULT_B: u32 = 0x58F3_8DED;
const MIX_LEFT: u32 = 0xCA01_F9DD;
const MIX_RIGHT: u32 = 0x4973_F715;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_of_the_same_seed_is_followed_to_wherever_it_stands() {
        for words in [0, 1, 2, 3, 1_000, (1 << 40) + 12_345, u64::MAX] {
            let mut other = Generator::seeded(7);
            other.advance(words);
            let mut own = Generator::seeded(7);
            assert!(own.follow(other.numpy_state(), Some(9)), "{words}");
            assert_eq!(own.position(), Start { words, half: Some(9), ..Start::seeded(7) });
            assert_eq!(own.next_u64(), other.next_u64());
        }
    }

    #[test]
    fn one_of_another_seed_or_one_that_was_set_back_is_not_followed() {
        let mut own = Generator::seeded(7);
        own.advance(5);
        let (before, (state, increment)) = (own.clone(), own.numpy_state());
        let back = Generator::seeded(7);
        for other in [Generator::seeded(8).numpy_state(), back.numpy_state(), (state ^ 1 << 127, increment)] {
            assert!(!own.follow(other, None), "{other:?}");
            assert_eq!(own, before);
        }
    }
}
