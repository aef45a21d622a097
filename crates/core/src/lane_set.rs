//! Sets of lanes of one block, each as one machine word.

use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, Not};

use crate::limits::BLOCK_LANES;

/// A set of lanes of one block, which is one machine word: lane 0 is its lowest bit.
///
/// Its complement has lanes that the block may not have; who iterates over one cuts it with [`LaneSet::first`].
///
/// ```
/// use rollhouse_core::LaneSet;
///
/// let lanes = LaneSet::one(5) | LaneSet::first(2);
/// assert_eq!(lanes.into_iter().collect::<Vec<_>>(), [0, 1, 5]);
/// assert!((lanes & !LaneSet::first(4)).has(5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "a set of lanes says which ones are concerned"]
#[repr(transparent)]
pub struct LaneSet(u64);

impl LaneSet {
    /// The set without a lane.
    pub const NONE: Self = Self(0);
    /// The set of all lanes that a block can have.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns the set of the lanes whose bits are set.
    #[inline(always)]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the set as bits, lane 0 lowest.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the set of one lane.
    #[inline(always)]
    pub const fn one(lane: usize) -> Self {
        Self(1 << lane)
    }

    /// Returns the set of the first `lanes` lanes; `lanes` above [`BLOCK_LANES`] gives all of them.
    #[inline(always)]
    pub const fn first(lanes: usize) -> Self {
        if lanes >= BLOCK_LANES { Self::ALL } else { Self((1 << lanes) - 1) }
    }

    /// Returns the lanes whose flags are set in a column of flags, each 0 or 1. Flags after the first [`BLOCK_LANES`]
    /// are ignored.
    #[inline]
    pub fn of_flags(flags: &[u8]) -> Self {
        let (words, rest) = flags[..flags.len().min(BLOCK_LANES)].as_chunks();
        let gathered =
            words.iter().rev().fold(0, |bits, word| bits << 8 | gather_byte(u64::from_le_bytes(*word)));
        Self(
            rest.iter()
                .zip(words.len() * 8..)
                .fold(gathered, |bits, (&flag, lane)| bits | u64::from(flag & 1) << lane),
        )
    }

    /// Returns whether the set has a lane.
    #[inline(always)]
    pub const fn has(self, lane: usize) -> bool {
        self.0 >> lane & 1 == 1
    }

    /// Returns whether the set has no lane.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of lanes in the set.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the lowest lane of the set; `None` if it has none.
    #[inline]
    pub const fn lowest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// Returns the highest lane of the set; `None` if it has none.
    #[inline]
    pub const fn highest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.ilog2() as usize) }
    }

    /// Adds a lane.
    #[inline(always)]
    pub const fn insert(&mut self, lane: usize) {
        self.0 |= 1 << lane;
    }

    /// Adds a lane if `wanted`, without a branch.
    #[inline(always)]
    pub const fn insert_if(&mut self, lane: usize, wanted: bool) {
        self.0 |= (wanted as u64) << lane;
    }

    /// Takes a lane away.
    #[inline(always)]
    pub const fn remove(&mut self, lane: usize) {
        self.0 &= !(1 << lane);
    }
}

/// Iterates over a set of lanes, lowest first.
#[derive(Debug, Clone, Copy)]
pub struct LaneSetIter(LaneSet);

impl LaneSetIter {
    /// Returns the lanes that have not come yet.
    #[inline(always)]
    pub const fn rest(self) -> LaneSet {
        self.0
    }
}

impl Iterator for LaneSetIter {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let LaneSet(bits) = self.0;
        if bits == 0 {
            return None;
        }
        self.0 = LaneSet(bits & (bits - 1));
        Some(bits.trailing_zeros() as usize)
    }
}

impl IntoIterator for LaneSet {
    type Item = usize;
    type IntoIter = LaneSetIter;

    #[inline(always)]
    fn into_iter(self) -> LaneSetIter {
        LaneSetIter(self)
    }
}

impl FromIterator<usize> for LaneSet {
    #[inline]
    fn from_iter<I: IntoIterator<Item = usize>>(lanes: I) -> Self {
        lanes.into_iter().fold(Self::NONE, |set, lane| set | Self::one(lane))
    }
}

impl BitAnd for LaneSet {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for LaneSet {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitXor for LaneSet {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl Not for LaneSet {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl BitAndAssign for LaneSet {
    #[inline(always)]
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}

impl BitOrAssign for LaneSet {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
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
    fn lanes_come_out_lowest_first_and_make_the_set_again() {
        let set: LaneSet = [63, 0, 5, 5].into_iter().collect();
        assert_eq!(set.into_iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(set.into_iter().collect::<LaneSet>(), set);
        assert_eq!((set.len(), set.is_empty(), set.lowest()), (3, false, Some(0)));
        assert_eq!((LaneSet::NONE.is_empty(), LaneSet::NONE.lowest()), (true, None));
        assert_eq!(
            [set, LaneSet::one(63), LaneSet::NONE].map(LaneSet::highest),
            [set.into_iter().last(), Some(63), None]
        );
    }

    #[test]
    fn flags_become_the_set_of_their_lanes() {
        for bits in (0..=u64::from(u8::MAX)).chain([0x8421_0f00_a55a_f00d, u64::MAX]) {
            let set = LaneSet::of_bits(bits);
            for lanes in 0..=BLOCK_LANES {
                let flags: Vec<u8> = (0..lanes).map(|lane| u8::from(set.has(lane))).collect();
                assert_eq!(LaneSet::of_flags(&flags), set & LaneSet::first(lanes), "{lanes} lanes");
            }
        }
        assert_eq!(LaneSet::of_flags(&[1; 100]), LaneSet::ALL);
    }

    #[test]
    fn the_first_lanes_are_none_some_or_all() {
        assert_eq!(LaneSet::first(0), LaneSet::NONE);
        assert_eq!(LaneSet::first(3).bits(), 0b111);
        assert_eq!(LaneSet::first(64), LaneSet::ALL);
    }

    #[test]
    fn a_lane_is_added_and_taken_away_alone() {
        let mut set = LaneSet::first(2);
        set.insert(7);
        set.insert_if(8, false);
        set.insert_if(9, true);
        set.remove(0);
        assert_eq!(set.into_iter().collect::<Vec<_>>(), [1, 7, 9]);
    }
}
