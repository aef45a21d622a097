//! The fields of a message of Protocol Buffers, read and written without knowing more of it.

/// What a field has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Field<'a> {
    /// A number of as many bytes as it needs.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// A text, a message, or numbers one behind the other.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

/// The fields of a message that are not read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// Error of bytes that are no message, or end too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoMessage;

impl<'a> Fields<'a> {
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns number and content of the next field; `None` at the message's end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, NoMessage> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(self.array()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| NoMessage)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(NoMessage)?;
                self.rest = rest;
                Field::Bytes(bytes)
            }
            5 => Field::Fixed32(self.array()?),
            _ => return Err(NoMessage),
        };
        Ok(Some((tag >> 3, field)))
    }

    fn varint(&mut self) -> Result<u64, NoMessage> {
        let mut value = 0;
        for place in 0..10 {
            let (&byte, rest) = self.rest.split_first().ok_or(NoMessage)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(NoMessage)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NoMessage> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(NoMessage)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

impl<'a> Field<'a> {
    pub(super) const fn bytes(self) -> Result<&'a [u8], NoMessage> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(NoMessage),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, NoMessage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| NoMessage)
    }

    pub(super) const fn number(self) -> Result<i64, NoMessage> {
        match self {
            Self::Varint(value) => Ok(value.cast_signed()),
            _ => Err(NoMessage),
        }
    }

    /// Adds the whole numbers of a field that may have several of them.
    pub(super) fn numbers(self, into: &mut Vec<i64>) -> Result<(), NoMessage> {
        let Self::Bytes(bytes) = self else {
            into.push(self.number()?);
            return Ok(());
        };
        let mut fields = Fields::new(bytes);
        while !fields.rest.is_empty() {
            into.push(fields.varint()?.cast_signed());
        }
        Ok(())
    }
}

/// A message that is written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Returns the message's bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds a number.
    pub(super) fn number(&mut self, field: u64, value: i64) {
        self.varint(field << 3);
        self.varint(value.cast_unsigned());
    }

    /// Adds a text or a message.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in prop::collection::vec(any::<i64>(), 0..9), text in ".{0,300}") {
            let mut message = Message::default();
            numbers.iter().for_each(|&number| message.number(3, number));
            message.bytes(17, text.as_bytes());
            let bytes = message.into_bytes();
            let mut fields = Fields::new(&bytes);
            for number in numbers {
                let (field, value) = fields.next().unwrap().unwrap();
                prop_assert_eq!((field, value.number()), (3, Ok(number)));
            }
            let (field, value) = fields.next().unwrap().unwrap();
            prop_assert_eq!((field, value.text()), (17, Ok(&*text)));
            prop_assert_eq!(fields.next(), Ok(None));
        }

        #[test]
        fn any_bytes_are_fields_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut fields = Fields::new(&bytes);
            while let Ok(Some(_)) = fields.next() {}
        }
    }
}
