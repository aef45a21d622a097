//! Headers of runs coded against the header of another run: of two sessions of one env little but ids and seeds differs.
//!
//! ```text
//! CRC-32C u32 of the whole header, varint its bytes, then pieces up to the end:
//!   varint bytes that are as in the base, varint bytes of the base that are passed over, varint bytes that follow, these
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use crate::code::codec::{Cursor, Malformed, put_varint};
use crate::limits::MAX_RUN_BYTES;

/// A header that is coded against another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodedRun {
    /// Number of the run against whose whole header it is coded.
    pub(crate) base: u32,
    pub(crate) bytes: Arc<[u8]>,
}

/// The runs of each env against whose headers others are coded.
#[derive(Debug, Default)]
pub(crate) struct Bases(HashMap<Arc<str>, (u32, Arc<[u8]>)>);

impl Bases {
    /// Codes the header of run `number`, of an env, against one that came before it. `None` if no such header makes it
    /// much shorter: it is to be written whole, and others are coded against it.
    pub(crate) fn code(&mut self, number: u32, env: &Arc<str>, whole: &Arc<[u8]>) -> Option<CodedRun> {
        let coded = self.0.get(env).and_then(|(base, bytes)| Some((*base, code(bytes, whole)?)));
        if let Some((base, bytes)) = coded {
            return Some(CodedRun { base, bytes: bytes.into() });
        }
        self.0.insert(env.clone(), (number, whole.clone()));
        None
    }
}

/// Codes a header against a base; `None` if it does not get shorter by half.
fn code(base: &[u8], whole: &[u8]) -> Option<Vec<u8>> {
    let most = whole.len() / 2;
    let mut out = Vec::new();
    out.extend_from_slice(&crc32c::crc32c(whole).to_le_bytes());
    put_varint(&mut out, whole.len() as u64);
    let (mut base, mut whole) = (base, whole);
    for _ in 0..PIECES {
        if whole.is_empty() || out.len() >= most {
            break;
        }
        let same = base.iter().zip(whole).take_while(|(a, b)| a == b).count();
        (base, whole) = (&base[same..], &whole[same..]);
        let (passed, put) = next_alike(base, whole);
        put_varint(&mut out, same as u64);
        put_varint(&mut out, passed as u64);
        put_varint(&mut out, put as u64);
        out.extend_from_slice(&whole[..put.min(most)]);
        (base, whole) = (&base[passed..], &whole[put..]);
    }
    (whole.is_empty() && out.len() < most).then_some(out)
}

/// Returns how many bytes of two headers differ before they are alike again; all of them if that is far away.
fn next_alike(base: &[u8], whole: &[u8]) -> (usize, usize) {
    if whole.len() < ALIKE {
        return (base.len(), whole.len());
    }
    for apart in 1..=2 * FARTHEST {
        for put in apart.saturating_sub(FARTHEST)..=apart.min(FARTHEST) {
            let passed = apart - put;
            if let (Some(a), Some(b)) = (base.get(passed..), whole.get(put..))
                && let (Some(a), Some(b)) = (a.first_chunk::<ALIKE>(), b.first_chunk::<ALIKE>())
                && a == b
            {
                return (passed, put);
            }
        }
    }
    (base.len(), whole.len())
}

/// Returns the number of bytes that the whole of a coded header has, as it says.
///
/// # Errors
/// If they cannot be read, or no header has so many.
pub(crate) fn whole_len(coded: &[u8]) -> Result<usize, Malformed> {
    let mut cursor = Cursor::new(coded);
    cursor.u32(WHAT)?;
    usize::try_from(cursor.varint(WHAT)?).ok().filter(|bytes| *bytes <= MAX_RUN_BYTES).ok_or(Malformed(WHAT))
}

/// Returns the whole of a header that is coded against `base`.
///
/// # Errors
/// If it cannot be read, or is coded against another header.
pub(crate) fn whole(base: &[u8], coded: &[u8]) -> Result<Vec<u8>, Malformed> {
    let bytes = whole_len(coded)?;
    let mut cursor = Cursor::new(coded);
    let crc = cursor.u32(WHAT)?;
    cursor.varint(WHAT)?;
    // No piece gives more than it takes of the two.
    if bytes > base.len() + coded.len() {
        return Err(Malformed(WHAT));
    }
    let mut base = Cursor::new(base);
    let mut out = Vec::with_capacity(bytes);
    while cursor.left() > 0 {
        let mut count = || usize::try_from(cursor.varint(WHAT)?).map_err(|_| Malformed(WHAT));
        let (same, passed, put) = (count()?, count()?, count()?);
        out.extend_from_slice(base.take(same, WHAT)?);
        base.take(passed, WHAT)?;
        out.extend_from_slice(cursor.take(put, WHAT)?);
    }
    if out.len() == bytes && crc32c::crc32c(&out) == crc { Ok(out) } else { Err(Malformed(WHAT)) }
}

/// Pieces of a coded header; one that would have more is written whole.
const PIECES: usize = 256;
/// Bytes that have to be alike for a piece to begin.
const ALIKE: usize = 8;
/// Bytes that differ in one place at most.
const FARTHEST: usize = 64;
const WHAT: &str = "coded run header";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_that_differs_in_a_few_places_takes_little_more_than_these() {
        let base: Vec<u8> = (0..2400u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut other = base.clone();
        other.splice(7..23, [1; 16]);
        other.splice(1000..1009, [2; 3]);
        let end = other.len();
        other.splice(end - 1..end, [3; 9]);
        let coded = code(&base, &other).unwrap();
        assert!(coded.len() < 50, "{} bytes", coded.len());
        assert_eq!(whole(&base, &coded), Ok(other));
    }

    #[test]
    fn a_header_that_is_nothing_like_the_base_is_not_coded() {
        let (base, other) = ([1; 4000], (0..1000u32).map(|at| (at * 7) as u8 | 2).collect::<Vec<_>>());
        assert_eq!(code(&base, &other), None);
    }

    proptest! {
        #[test]
        fn what_is_coded_is_read_back_and_another_base_is_noticed(
            base in prop::collection::vec(any::<u8>(), 0..600),
            cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..90, prop::collection::vec(any::<u8>(), 0..90)), 0..5),
            other in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut header = base.clone();
            for (at, taken, put) in cuts {
                let from = at.index(header.len() + 1);
                let to = (from + taken).min(header.len());
                header.splice(from..to, put);
            }
            if let Some(coded) = code(&base, &header) {
                prop_assert_eq!(whole(&base, &coded), Ok(header.clone()));
                prop_assert!(whole(&other, &coded).is_err() || whole(&other, &coded) == Ok(header));
            }
        }

        #[test]
        fn whatever_bytes_are_given_are_read_without_a_panic_or_refused(
            base in prop::collection::vec(any::<u8>(), 0..100), coded in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _read = whole(&base, &coded);
        }
    }
}
