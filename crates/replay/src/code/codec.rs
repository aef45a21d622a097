//! Integers in few bytes: varints and packed columns, with a reader that never trusts a length.

use rollhouse_core::ColumnRef;

/// An error: bytes do not decode. It names what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Appends a varint: 7 bits a byte, lowest first; all but the last byte have bit 7 set.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps signed numbers of small magnitude to small unsigned ones.
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Maps a number back, as the inverse of [`zigzag`].
#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends `values` as an offset and equally wide differences from it: a head byte (bits 0-6 the width in bits,
/// bit 7 set when value i is offset + i and no difference follows), the offset as a varint, the differences
/// as bits, lowest first, padded to a byte.
pub(crate) fn put_packed(out: &mut Vec<u8>, values: &[u64]) {
    let Some(&first) = values.first() else {
        return;
    };
    if values.len() > 1 && values.iter().zip(0..).all(|(&v, i)| v == first.wrapping_add(i)) {
        out.push(CONSECUTIVE);
        put_varint(out, first);
        return;
    }
    let (least, most) = values.iter().fold((first, first), |(lo, hi), &v| (lo.min(v), hi.max(v)));
    let width = 64 - (most - least).leading_zeros();
    out.push(width as u8);
    put_varint(out, least);
    if width == 0 {
        return;
    }
    let (mut bits, mut held) = (0u128, 0);
    for value in values {
        bits |= u128::from(value - least) << held;
        held += width;
        if held >= u64::BITS {
            out.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= u64::BITS;
            held -= u64::BITS;
        }
    }
    out.extend_from_slice(&(bits as u64).to_le_bytes()[..held.div_ceil(8) as usize]);
}

/// A reader of a slice, from front to back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the number of bytes that are left.
    pub(crate) const fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Malformed(what))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Malformed(what))?;
        self.bytes = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn f64(&mut self, what: &'static str) -> Result<f64, Malformed> {
        self.array(what).map(f64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed(what))
    }

    /// Reads a count of items that take at least `least_bytes` each; a count that cannot fit in what is left is an
    /// error.
    pub(crate) fn count(&mut self, least_bytes: usize, what: &'static str) -> Result<usize, Malformed> {
        let count = usize::try_from(self.varint(what)?).map_err(|_| Malformed(what))?;
        if count > self.left() / least_bytes.max(1) { Err(Malformed(what)) } else { Ok(count) }
    }

    /// Reads a count as [`Cursor::count`] does, of at most `most` items.
    pub(crate) fn count_of(
        &mut self,
        most: usize,
        least_bytes: usize,
        what: &'static str,
    ) -> Result<usize, Malformed> {
        let count = self.count(least_bytes, what)?;
        if count > most { Err(Malformed(what)) } else { Ok(count) }
    }

    /// Fills `values` from a packed column.
    pub(crate) fn packed(&mut self, values: &mut [u64], what: &'static str) -> Result<(), Malformed> {
        if values.is_empty() {
            return Ok(());
        }
        let head = self.u8(what)?;
        let least = self.varint(what)?;
        if head == CONSECUTIVE {
            for (value, i) in values.iter_mut().zip(0..) {
                *value = least.wrapping_add(i);
            }
            return Ok(());
        }
        let width = u32::from(head);
        if width > 64 {
            return Err(Malformed(what));
        }
        let bytes = self.take((values.len() * width as usize).div_ceil(8), what)?;
        let (mut bits, mut held, mut next) = (0u128, 0, bytes.iter());
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        for value in values {
            while held < width {
                bits |= u128::from(next.next().copied().unwrap_or(0)) << held;
                held += 8;
            }
            *value = least.wrapping_add(bits as u64 & mask);
            bits >>= width;
            held -= width;
        }
        Ok(())
    }
}

const CONSECUTIVE: u8 = 0x80;

/// Returns the bits of `word` under `mask`, moved together, lowest first.
#[inline]
pub(crate) const fn gather_bits(word: u64, mut mask: u64) -> u64 {
    let (mut out, mut place) = (0, 0);
    while mask != 0 {
        out |= (word >> mask.trailing_zeros() & 1) << place;
        place += 1;
        mask &= mask - 1;
    }
    out
}

/// Puts the low bits of `word` where `mask` has bits: the inverse of [`gather_bits`].
#[inline]
pub(crate) const fn scatter_bits(word: u64, mut mask: u64) -> u64 {
    let (mut out, mut place) = (0, 0);
    while mask != 0 {
        out |= (word >> place & 1) << mask.trailing_zeros();
        place += 1;
        mask &= mask - 1;
    }
    out
}

/// Appends the elements as little-endian bytes.
#[inline]
pub(crate) fn append_le(out: &mut Vec<u8>, column: ColumnRef<'_>) {
    macro_rules! copy {
        ($values:expr) => {{
            let start = out.len();
            out.resize(start + size_of_val($values), 0);
            for (to, value) in out[start..].as_chunks_mut().0.iter_mut().zip($values) {
                *to = value.to_le_bytes();
            }
        }};
    }
    match column {
        ColumnRef::U8(values) => out.extend_from_slice(values),
        ColumnRef::I32(values) => copy!(values),
        ColumnRef::I64(values) => copy!(values),
        ColumnRef::F32(values) => copy!(values),
        ColumnRef::F64(values) => copy!(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_varint_reads_back(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varint("v"), Ok(value));
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn every_signed_number_survives_zigzag(value: i64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn every_packed_column_reads_back(
            base: u64, shift in 0u32..64, raw in prop::collection::vec(any::<u64>(), 0..70),
        ) {
            let values: Vec<u64> = raw.iter().map(|v| base.wrapping_add(v >> shift)).collect();
            let mut bytes = Vec::new();
            put_packed(&mut bytes, &values);
            let mut read = vec![0; values.len()];
            let mut cursor = Cursor::new(&bytes);
            cursor.packed(&mut read, "p").unwrap();
            prop_assert_eq!(&read, &values);
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), count in 0usize..66) {
            let mut cursor = Cursor::new(&bytes);
            let _ = cursor.packed(&mut vec![0; count], "p");
            let _ = cursor.varint("v");
            let _ = cursor.count(3, "c");
        }

        #[test]
        fn scattered_bits_are_gathered_again(word: u64, mask: u64) {
            prop_assert_eq!(scatter_bits(gather_bits(word, mask), mask), word & mask);
        }
    }

    #[test]
    fn equal_values_take_no_bits_and_consecutive_ones_neither() {
        let size = |values: &[u64]| {
            let mut out = Vec::new();
            put_packed(&mut out, values);
            out.len()
        };
        assert_eq!(size(&[7; 64]), 2);
        assert_eq!(size(&std::array::from_fn::<_, 64, _>(|i| 5 + i as u64)), 2);
        assert_eq!(size(&[0, 1, 1, 0, 0, 1, 1, 1]), 3);
    }
}
