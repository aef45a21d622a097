//! Sets of lanes of one block as one machine word.

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

/// The mask with the first `lanes` bits set; `lanes` above [`BLOCK_LANES`] gives all of them.
#[inline]
pub const fn lane_bits(lanes: usize) -> u64 {
    if lanes >= BLOCK_LANES { u64::MAX } else { (1 << lanes) - 1 }
}

/// The bit of each lane, as a table because vector code has no shift by differing amounts on every
/// instruction set.
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
    fn lane_bits_covers_none_some_and_all() {
        assert_eq!(lane_bits(0), 0);
        assert_eq!(lane_bits(3), 0b111);
        assert_eq!(lane_bits(64), u64::MAX);
    }
}
