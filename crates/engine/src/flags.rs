//! Writes sets of lanes as columns of 0 and 1.

use rollhouse_core::LaneSet;

/// Writes 1 to the bytes of `column` whose lanes are in the set, and 0 to the others.
#[inline]
pub(crate) fn spread(lanes: LaneSet, column: &mut [u8]) {
    if lanes.is_empty() {
        column.fill(0);
        return;
    }
    let mut chunks = column.chunks_exact_mut(8);
    let mut rest = lanes.bits();
    for chunk in &mut chunks {
        chunk.copy_from_slice(&spread_byte(rest).to_le_bytes());
        rest >>= 8;
    }
    for (bit, byte) in chunks.into_remainder().iter_mut().enumerate() {
        *byte = (rest >> bit & 1) as u8;
    }
}

/// Returns eight bytes of 0 or 1 from the low eight bits. Each byte keeps its own bit of eight copies, and adding 0x7f
/// carries a kept bit to the top of its byte.
#[inline]
const fn spread_byte(bits: u64) -> u64 {
    let kept = (bits & 0xff).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    (kept + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_spreads_to_its_bits() {
        for bits in 0..=u8::MAX {
            let mut column = [9; 8];
            spread(LaneSet::of_bits(u64::from(bits)), &mut column);
            for (bit, &byte) in column.iter().enumerate() {
                assert_eq!(byte, bits >> bit & 1);
            }
        }
    }

    #[test]
    fn columns_that_are_no_multiple_of_eight_are_filled_to_their_end() {
        let mask = 0x8421_0000_0000_f00d;
        for lanes in 0..=64 {
            let mut column = vec![9; lanes];
            spread(LaneSet::of_bits(mask), &mut column);
            assert!(column.iter().enumerate().all(|(bit, &byte)| byte == (mask >> bit & 1) as u8), "{lanes}");
        }
    }
}
