//! The difference of a row from another one of its length, as runs of words that are equal and words that changed.

use crate::code::codec::{Cursor, Malformed, put_varint};

/// Bytes of a word. The last word of a row may have fewer.
const WORD: usize = 8;
/// Bytes that are compared at once: mostly all of them are equal.
const BLOCK: usize = 64;

/// Appends the difference of `now` from `before`, and makes `before` equal to `now`. It has at most [`most_bytes`].
///
/// # Panics
/// If they have different lengths.
pub(crate) fn put(now: &[u8], before: &mut [u8], out: &mut Vec<u8>) {
    assert_eq!(now.len(), before.len(), "bytes of a row");
    let mut changes = Changes { row: now, out, from: 0, to: 0, written: 0 };
    let (blocks, rest) = now.as_chunks::<BLOCK>();
    let (blocks_before, rest_before) = before.as_chunks_mut::<BLOCK>();
    for (index, (block, block_before)) in blocks.iter().zip(blocks_before).enumerate() {
        if block != block_before {
            changes.add(index * (BLOCK / WORD), block, block_before);
            *block_before = *block;
        }
    }
    changes.add(blocks.len() * (BLOCK / WORD), rest, rest_before);
    rest_before.copy_from_slice(rest);
    changes.finish();
}

/// Returns how many bytes the difference of two rows of that length has at most: a run of changed words costs no more
/// than the equal word that is left out before it, but for the first.
pub(crate) const fn most_bytes(row_bytes: usize) -> usize {
    row_bytes + 16
}

/// Reads a difference and changes `row` by it.
pub(crate) fn apply(cursor: &mut Cursor<'_>, row: &mut [u8]) -> Result<(), Malformed> {
    walk(cursor, row.len(), |from, bytes| row[from..from + bytes.len()].copy_from_slice(bytes))
}

/// Reads a difference of rows of `row_bytes` bytes and does nothing with it.
pub(crate) fn skip(cursor: &mut Cursor<'_>, row_bytes: usize) -> Result<(), Malformed> {
    walk(cursor, row_bytes, |_, _| ())
}

/// Calls `change` for each run of changed bytes, which lies within the row.
fn walk(
    cursor: &mut Cursor<'_>,
    row_bytes: usize,
    mut change: impl FnMut(usize, &[u8]),
) -> Result<(), Malformed> {
    let words = row_bytes.div_ceil(WORD);
    let mut at = 0;
    while at < words {
        let mut next = || usize::try_from(cursor.varint(WHAT)?).map_err(|_| Malformed(WHAT));
        let (equal, changed) = (next()?, next()?);
        let left = words - at;
        if equal > left || changed > left - equal || equal + changed == 0 {
            return Err(Malformed(WHAT));
        }
        let from = (at + equal) * WORD;
        at += equal + changed;
        let to = (at * WORD).min(row_bytes);
        if changed > 0 {
            change(from, cursor.take(to - from, WHAT)?);
        }
    }
    Ok(())
}

const WHAT: &str = "packed row";

/// Runs of changed words that are being appended.
struct Changes<'a> {
    row: &'a [u8],
    out: &'a mut Vec<u8>,
    /// Words of the run that is not written yet; none if both are equal.
    from: usize,
    to: usize,
    /// Words that the written runs cover.
    written: usize,
}

impl Changes<'_> {
    /// Adds those words that changed of the bytes whose first word is `first`.
    fn add(&mut self, first: usize, now: &[u8], before: &[u8]) {
        for (index, (word, word_before)) in now.chunks(WORD).zip(before.chunks(WORD)).enumerate() {
            if word == word_before {
                continue;
            }
            let at = first + index;
            if at != self.to {
                self.write();
                self.from = at;
            }
            self.to = at + 1;
        }
    }

    fn write(&mut self) {
        if self.from < self.to {
            put_varint(self.out, (self.from - self.written) as u64);
            put_varint(self.out, (self.to - self.from) as u64);
            let to = (self.to * WORD).min(self.row.len());
            self.out.extend_from_slice(&self.row[self.from * WORD..to]);
            self.written = self.to;
        }
    }

    fn finish(mut self) {
        self.write();
        let words = self.row.len().div_ceil(WORD);
        if self.written < words {
            put_varint(self.out, (words - self.written) as u64);
            put_varint(self.out, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row and another one, some of whose bytes are different.
    fn rows() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        (
            prop::collection::vec(any::<u8>(), 0..400),
            prop::collection::vec((any::<usize>(), any::<u8>()), 0..40),
        )
            .prop_map(|(before, changes)| {
                let mut now = before.clone();
                for (at, byte) in changes.into_iter().filter(|_| !before.is_empty()) {
                    now[at % before.len()] = byte;
                }
                (before, now)
            })
    }

    proptest! {
        #[test]
        fn a_difference_makes_one_row_of_the_other(
            (before, now) in prop_oneof![
                rows(),
                prop::collection::vec((any::<u8>(), any::<u8>()), 0..400)
                    .prop_map(|bytes| bytes.into_iter().unzip()),
            ],
        ) {
            let mut out = Vec::new();
            let mut row = before.clone();
            put(&now, &mut row, &mut out);
            prop_assert_eq!(&row, &now);
            prop_assert!(out.len() <= most_bytes(now.len()), "{} of {}", out.len(), now.len());
            let mut cursor = Cursor::new(&out);
            let mut row = before;
            apply(&mut cursor, &mut row).unwrap();
            prop_assert_eq!((&row, cursor.left()), (&now, 0));
            let mut cursor = Cursor::new(&out);
            skip(&mut cursor, now.len()).unwrap();
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn arbitrary_bytes_change_a_row_or_are_malformed(
            bytes in prop::collection::vec(prop_oneof![0u8..5, any::<u8>()], 0..200),
            row_bytes in 0usize..300,
        ) {
            let mut row = vec![0; row_bytes];
            let whole = apply(&mut Cursor::new(&bytes), &mut row);
            prop_assert_eq!(skip(&mut Cursor::new(&bytes), row_bytes), whole);
        }
    }

    #[test]
    fn equal_rows_take_a_few_bytes_and_changes_their_words() {
        let difference = |now: &[u8], before: &[u8]| {
            let mut out = Vec::new();
            put(now, &mut before.to_vec(), &mut out);
            out
        };
        assert_eq!(difference(&[7; 90], &[7; 90]), [12, 0]);
        let mut now = [7; 90];
        (now[64], now[89]) = (1, 2);
        assert_eq!(difference(&now, &[7; 90]), [8, 1, 1, 7, 7, 7, 7, 7, 7, 7, 2, 1, 7, 2]);
        assert_eq!(difference(&[], &[]), [0; 0]);
    }

    #[test]
    fn runs_that_are_of_nothing_or_leave_the_row_are_malformed() {
        for bytes in [&[0, 0][..], &[3, 0], &[1, 2], &[0, 3], &[2], &[0, 2, 9], &[0xFF; 12]] {
            assert!(apply(&mut Cursor::new(bytes), &mut [0; 16]).is_err(), "{bytes:?}");
        }
    }
}
