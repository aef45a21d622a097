//! A reader for the part of DER (X.690) that certificates and requests for them need here.

/// The rest of some DER that has not been read.
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// Takes the contents of the next value, which must have that tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first & 0x80 != 0 {
            let digits = usize::from(first & 0x7f);
            if digits == 0 || digits > 4 || rest.len() < digits {
                return None;
            }
            let (bytes, after) = rest.split_at(digits);
            length = bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            rest = after;
        }
        if found != tag || rest.len() < length {
            return None;
        }
        let (value, after) = rest.split_at(length);
        self.0 = after;
        Some(value)
    }

    /// Takes the next value with its tag and length: the form that is signed. The value must have that tag.
    pub(super) fn take_whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.take(tag)?;
        Some(&before[..before.len() - self.0.len()])
    }

    /// Returns `Some` if nothing is left.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
