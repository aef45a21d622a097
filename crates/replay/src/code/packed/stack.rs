//! Rows that are stacks of frames: with each step the frames move up by one, the oldest goes and a new one comes.

use crate::code::codec::Malformed;

/// A stack of frames in a row. Each block of the row moves by `shift` bytes a step, and has as many new ones at its end: the
/// whole row is a block if the frames stand one after the other, each pixel if they stand side by side in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stack {
    block: usize,
    shift: usize,
}

impl Stack {
    /// Returns the stacks that rows of this shape may be: of frames of one channel or three, along the first axis or the last.
    pub(crate) fn possible(shape: &[usize], element_bytes: usize) -> Vec<Self> {
        let (&[first, ..], &[.., last]) = (shape, shape) else { return Vec::new() };
        if shape.len() < 2 {
            return Vec::new();
        }
        let row = shape.iter().product::<usize>() * element_bytes;
        let along = |extent: usize, block: usize| {
            let is_stack = move |channels: &usize| {
                (2 * channels..=MAX_EXTENT).contains(&extent) && extent.is_multiple_of(*channels)
            };
            let stack = move |channels| Self { block, shift: block / extent * channels };
            [1, 3].into_iter().filter(is_stack).map(stack)
        };
        along(first, row).chain(along(last, last * element_bytes)).collect()
    }

    /// Returns the stack of rows of `row_bytes` bytes with these numbers.
    pub(crate) fn read(row_bytes: usize, block: u64, shift: u64) -> Result<Self, Malformed> {
        let fits = block <= row_bytes as u64 && (1..block).contains(&shift);
        if !fits || !(row_bytes as u64).is_multiple_of(block) {
            return Err(Malformed("stack of frames"));
        }
        Ok(Self { block: block as usize, shift: shift as usize })
    }

    pub(crate) const fn block(&self) -> usize {
        self.block
    }

    pub(crate) const fn shift(&self) -> usize {
        self.shift
    }

    /// Returns the bytes of the new frame in a row.
    pub(crate) const fn new_bytes(&self, row_bytes: usize) -> usize {
        row_bytes / self.block * self.shift
    }

    /// Returns whether all frames of `now` but the new one are those of `before` moved.
    pub(crate) fn has_moved(&self, now: &[u8], before: &[u8]) -> bool {
        match self.block {
            4 => self.all_moved(now, before, u32::from_le_bytes),
            8 => self.all_moved(now, before, u64::from_le_bytes),
            block => {
                let kept = block - self.shift;
                let mut blocks = now.chunks_exact(block).zip(before.chunks_exact(block));
                blocks.all(|(now, before)| now[..kept] == before[self.shift..])
            }
        }
    }

    /// Does as [`Stack::has_moved`] with blocks that are words, of which many are compared at once.
    fn all_moved<const BLOCK: usize, W: Word>(
        &self,
        now: &[u8],
        before: &[u8],
        word: impl Fn([u8; BLOCK]) -> W,
    ) -> bool {
        let (now, before) = (now.as_chunks::<BLOCK>().0, before.as_chunks::<BLOCK>().0);
        let (bits, kept) = (8 * self.shift as u32, W::ALL >> (8 * self.shift as u32));
        let mut groups = now.chunks(BLOCKS_AT_ONCE).zip(before.chunks(BLOCKS_AT_ONCE));
        groups.all(|(now, before)| {
            let differing =
                |(now, before): (&[u8; BLOCK], &[u8; BLOCK])| (word(*now) & kept) ^ (word(*before) >> bits);
            now.iter().zip(before).map(differing).fold(W::NONE, |any, differing| any | differing) == W::NONE
        })
    }

    /// Appends the new frame of a row.
    pub(crate) fn take_new(&self, row: &[u8], out: &mut Vec<u8>) {
        let blocks = row.chunks_exact(self.block);
        match (self.block, self.shift) {
            (4, 1) => out.extend(row.as_chunks::<4>().0.iter().map(|block| block[3])),
            (_, 1) => out.extend(blocks.map(|block| block[self.block - 1])),
            _ => blocks.for_each(|block| out.extend_from_slice(&block[self.block - self.shift..])),
        }
    }

    /// Moves the frames of a row, and puts `new` behind them.
    pub(crate) fn push(&self, row: &mut [u8], new: &[u8]) {
        for (block, new) in row.chunks_exact_mut(self.block).zip(new.chunks_exact(self.shift)) {
            block.copy_within(self.shift.., 0);
            block[self.block - self.shift..].copy_from_slice(new);
        }
    }
}

/// A number that a small block is taken for.
trait Word:
    Copy
    + PartialEq
    + std::ops::BitAnd<Output = Self>
    + std::ops::BitOr<Output = Self>
    + std::ops::BitXor<Output = Self>
    + std::ops::Shr<u32, Output = Self>
{
    const NONE: Self;
    const ALL: Self;
}

impl Word for u32 {
    const NONE: Self = 0;
    const ALL: Self = Self::MAX;
}

impl Word for u64 {
    const NONE: Self = 0;
    const ALL: Self = Self::MAX;
}

/// Extent of an axis along which frames are looked for.
const MAX_EXTENT: usize = 16;
/// Blocks that are compared before one looks whether any differs.
const BLOCKS_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stacks_are_looked_for_along_the_first_axis_and_the_last() {
        let found = |shape: &[usize], bytes| {
            Stack::possible(shape, bytes).iter().map(|stack| (stack.block, stack.shift)).collect::<Vec<_>>()
        };
        assert_eq!(found(&[4, 84, 84], 1), [(28_224, 7056)]);
        assert_eq!(found(&[4, 84, 84], 4), [(112_896, 28_224)]);
        assert_eq!(found(&[84, 84, 4], 1), [(4, 1)]);
        assert_eq!(found(&[4, 84, 84, 3], 1), [(84_672, 21_168), (3, 1)]);
        assert_eq!(found(&[84, 84, 12], 1), [(12, 1), (12, 3)]);
        assert_eq!(found(&[12, 84, 84], 1), [(84_672, 7056), (84_672, 21_168)]);
        for none in [&[84, 84][..], &[128], &[], &[1, 84, 84]] {
            assert_eq!(found(none, 1), [], "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn a_frame_that_is_pushed_is_found_again(
            (block, shift, blocks) in prop_oneof![
                Just((4usize, 1usize)), Just((8, 1)), Just((12, 3)), Just((12, 1)), Just((40, 10)), Just((2, 1)),
            ].prop_flat_map(|(block, shift)| (Just(block), Just(shift), 1usize..300)),
            seed: u64,
        ) {
            let stack = Stack { block, shift };
            let mut bytes = (0..).map(|at: u64| rollhouse_core::split_mix64(seed ^ at) as u8);
            let before: Vec<u8> = bytes.by_ref().take(block * blocks).collect();
            let new: Vec<u8> = bytes.by_ref().take(stack.new_bytes(before.len())).collect();
            let mut now = before.clone();
            stack.push(&mut now, &new);
            prop_assert!(stack.has_moved(&now, &before));
            let mut found = Vec::new();
            stack.take_new(&now, &mut found);
            prop_assert_eq!(found, new);
            let at = bytes.next().unwrap() as usize % (block - shift);
            now[at] ^= 1;
            prop_assert!(!stack.has_moved(&now, &before), "byte {}", at);
        }
    }

    #[test]
    fn blocks_that_do_not_fill_the_row_are_malformed() {
        assert!(Stack::read(12, 12, 4).is_ok() && Stack::read(12, 4, 1).is_ok());
        for (block, shift) in [(0, 0), (5, 1), (24, 1), (4, 0), (4, 4), (1, 1), (u64::MAX, 1)] {
            assert!(Stack::read(12, block, shift).is_err(), "{block} {shift}");
        }
    }
}
