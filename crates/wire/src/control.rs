//! Control messages as bytes: a little-endian length word and a msgpack map.

use rollhouse_core::msgpack::{DecodeError, EncodeError, MalformedError, Message};

use crate::limits::MAX_CONTROL_BYTES;

/// Appends a message with its length word to `out`.
///
/// # Errors
/// If the message is longer than [`MAX_CONTROL_BYTES`]; `out` is unchanged in that case.
pub fn encode<T: Message>(message: &T, out: &mut Vec<u8>) -> Result<(), ControlError> {
    put(out, &|out| message.write(out))
}

/// Appends what `write` appends, with its length word, as [`encode`] does.
pub(crate) fn put(out: &mut Vec<u8>, write: &Write<'_>) -> Result<(), ControlError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let written = write(out);
    let bytes = out.len() - start - 4;
    let failed = match written {
        Err(error) => Some(ControlError::Encode(error)),
        Ok(()) if bytes > MAX_CONTROL_BYTES => Some(ControlError::TooLong { bytes, most: MAX_CONTROL_BYTES }),
        Ok(()) => None,
    };
    if let Some(error) = failed {
        out.truncate(start);
        return Err(error);
    }
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
    Ok(())
}

/// Appends the bytes of a message.
pub(crate) type Write<'a> = dyn Fn(&mut Vec<u8>) -> Result<(), EncodeError> + 'a;

/// Returns how many bytes follow a length word.
///
/// # Errors
/// If they are more than `most`, which is at most [`MAX_CONTROL_BYTES`]: no memory is to be allocated for them.
pub fn length(word: [u8; 4], most: usize) -> Result<usize, ControlError> {
    let (bytes, most) = (u32::from_le_bytes(word) as usize, most.min(MAX_CONTROL_BYTES));
    if bytes > most { Err(ControlError::TooLong { bytes, most }) } else { Ok(bytes) }
}

/// Reads a message without its length word. Unknown fields are ignored.
///
/// # Errors
/// If the message is longer than [`MAX_CONTROL_BYTES`], and the errors of [`Message::read`].
pub fn decode<T: Message>(bytes: &[u8]) -> Result<T, ControlError> {
    Ok(T::read(bytes, MAX_CONTROL_BYTES)?)
}

impl From<DecodeError> for ControlError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLong { bytes, limit } => Self::TooLong { bytes, most: limit },
            DecodeError::Malformed(error) => Self::Decode(error),
            DecodeError::LeftOver { bytes } => Self::LeftOver { bytes },
        }
    }
}

/// The reason why a control message could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The message is longer than it may be.
    #[error("a control message of {bytes} bytes, at most {most} allowed")]
    TooLong {
        /// Length of the message in bytes.
        bytes: usize,
        /// Largest number of bytes that is accepted.
        most: usize,
    },
    /// The message cannot be written as msgpack.
    #[error("a control message cannot be written")]
    Encode(#[source] EncodeError),
    /// The bytes are not the message that was expected.
    #[error("a control message cannot be read: {0}")]
    Decode(#[source] MalformedError),
    /// Bytes follow the message.
    #[error("{bytes} bytes follow a control message in its frame")]
    LeftOver {
        /// Number of those bytes.
        bytes: usize,
    },
}
