//! Integer actions as bit planes: one word of 64 lanes for each bit.

use rollhouse_core::LANE_BIT;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_env::Kernel;

/// A kernel that gathers bit `plane` of each lane's action above `start`, lane 0 lowest.
pub(crate) struct PlaneBits<'a> {
    pub(crate) actions: &'a [i64],
    pub(crate) start: i64,
    pub(crate) plane: u32,
}

impl Kernel for PlaneBits<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let bit = |action: i64| (action.wrapping_sub(self.start) as u64 >> self.plane) & 1;
        self.actions
            .iter()
            .zip(&LANE_BIT)
            .fold(0, |bits, (&action, lane)| bits | bit(action).wrapping_neg() & lane)
    }
}

/// A kernel that gathers plane 0 of a whole block: eight sums side by side, with half as many instructions as for any
/// number of lanes.
pub(crate) struct LowestBits<'a> {
    pub(crate) actions: &'a [i64; BLOCK_LANES],
    pub(crate) start: i64,
    /// [`SHIFTS`], by reference: if the compiler knew them, it would do less for lane 0 and make no vectors of the
    /// others.
    pub(crate) shifts: &'a [u64; 8],
}

/// Bits by which the sums of eight lanes are shifted.
pub(crate) static SHIFTS: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

impl Kernel for LowestBits<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let mut sums = [0; 8];
        for eight in self.actions.as_chunks::<8>().0.iter().rev() {
            for (sum, &action) in sums.iter_mut().zip(eight) {
                *sum = *sum << 8 | (action as u64 & 1);
            }
        }
        let bits = sums.iter().zip(self.shifts).fold(0, |bits, (sum, shift)| bits | sum << (shift & 7));
        bits ^ (self.start as u64 & 1).wrapping_neg()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rollhouse_env::{InstructionSet, Target};

    use super::*;

    proptest! {
        #[test]
        fn bit_planes_give_every_action_back(
            raw in prop_oneof![prop::collection::vec(any::<u64>(), 64), prop::collection::vec(any::<u64>(), 1..64)],
            start in prop_oneof![Just(0), -3i64..4, any::<i64>()],
            count in prop_oneof![Just(1u32), 0u32..=64],
        ) {
            let kept = |word: u64| if count == 0 { 0 } else { word >> (64 - count) };
            let actions: Vec<u64> = raw.iter().map(|&word| kept(word)).collect();
            let shifted: Vec<i64> = actions.iter().map(|&a| start.wrapping_add(a as i64)).collect();
            for set in InstructionSet::available() {
                let target = Target::new(set).unwrap();
                let planes: Vec<u64> =
                    (0..count).map(|plane| target.run(PlaneBits { actions: &shifted, start, plane })).collect();
                if let (Some(plane), Ok(actions)) = (planes.first(), shifted[..].try_into()) {
                    prop_assert_eq!(target.run(LowestBits { actions, start, shifts: &SHIFTS }), *plane, "{}", set);
                }
                for (lane, &action) in actions.iter().enumerate() {
                    let read = (0..count as usize).map(|p| (planes[p] >> lane & 1) << p).sum::<u64>();
                    prop_assert_eq!(read, action, "{} lane {}", set, lane);
                }
            }
        }
    }
}
