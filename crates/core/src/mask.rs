//! Sets of lanes of one block, each as one machine word.

use crate::limits::BLOCK_LANES;

/// Iterates over the set bits of a block mask, lowest lane first.
#[derive(Debug, Clone, Copy)]
pub struct Lanes(pub u64);

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(lane)
    }
}

/// Returns the mask whose first `lanes` bits are set; `lanes` above [`BLOCK_LANES`] gives all of them.
#[inline]
pub const fn lane_bits(lanes: usize) -> u64 {
    if lanes >= BLOCK_LANES { u64::MAX } else { (1 << lanes) - 1 }
}

/// Returns the mask of a column of flags, each 0 or 1. Flags after the first [`BLOCK_LANES`] are ignored.
#[inline]
pub fn mask_of(flags: &[u8]) -> u64 {
    let (words, rest) = flags[..flags.len().min(BLOCK_LANES)].as_chunks();
    let gathered =
        words.iter().rev().fold(0, |mask, word| mask << 8 | gather_byte(u64::from_le_bytes(*word)));
    rest.iter()
        .zip(words.len() * 8..)
        .fold(gathered, |mask, (&flag, lane)| mask | u64::from(flag & 1) << lane)
}

/// Returns the lowest bits of eight bytes side by side. The product moves the bit of byte i to bit 56 + i, and no other
/// sum of two shifts comes there.
#[inline]
const fn gather_byte(bytes: u64) -> u64 {
    (bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The bit of each lane. It is a table because vector code has no shift by differing amounts on every instruction set.
pub const LANE_BIT: [u64; BLOCK_LANES] = {
    let mut table = [0; BLOCK_LANES];
    let mut lane = 0;
    while lane < BLOCK_LANES {
        table[lane] = 1 << lane;
        lane += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_bits_come_out_lowest_first() {
        let lanes: Vec<_> = Lanes(1 | 1 << 5 | 1 << 63).collect();
        assert_eq!(lanes, [0, 5, 63]);
    }

    #[test]
    fn flags_become_the_bits_of_their_lanes() {
        for mask in (0..=u64::from(u8::MAX)).chain([0x8421_0f00_a55a_f00d, u64::MAX]) {
            for lanes in 0..=BLOCK_LANES {
                let flags: Vec<u8> = (0..lanes).map(|lane| (mask >> lane & 1) as u8).collect();
                assert_eq!(mask_of(&flags), mask & lane_bits(lanes), "{lanes} lanes");
            }
        }
        assert_eq!(mask_of(&[1; 100]), u64::MAX);
    }

    #[test]
    fn lane_bits_covers_none_some_and_all() {
        assert_eq!(lane_bits(0), 0);
        assert_eq!(lane_bits(3), 0b111);
        assert_eq!(lane_bits(64), u64::MAX);
    }
}
