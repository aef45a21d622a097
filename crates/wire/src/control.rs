//! Control messages as bytes: a little-endian length word and a msgpack map.

use rollhouse_core::msgpack::{self, DecodeError};
use serde::{Deserialize, Serialize};

use crate::limits::MAX_CONTROL_BYTES;

/// Appends a message with its length word to `out`.
///
/// # Errors
/// If the message is longer than [`MAX_CONTROL_BYTES`]; `out` is unchanged in that case.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), ControlError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let written = message.serialize(&mut rmp_serde::Serializer::new(&mut *out).with_struct_map());
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
/// If the message is longer than [`MAX_CONTROL_BYTES`], and the errors of [`msgpack::decode`].
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ControlError> {
    msgpack::decode(bytes, MAX_CONTROL_BYTES).map_err(|error| match error {
        DecodeError::TooLong { bytes, limit } => ControlError::TooLong { bytes, most: limit },
        DecodeError::Malformed(error) => ControlError::Decode(error),
        DecodeError::LeftOver { bytes } => ControlError::LeftOver { bytes },
    })
}

/// The reason why a control message could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The message is longer than it may be.
    #[error("a control message of {bytes} bytes, at most {most} are taken")]
    TooLong {
        /// Length of the message in bytes.
        bytes: usize,
        /// Largest number of bytes that is accepted.
        most: usize,
    },
    /// The message cannot be written as msgpack.
    #[error("a control message cannot be written")]
    Encode(#[source] rmp_serde::encode::Error),
    /// The bytes are not the message that was expected.
    #[error("a control message cannot be read: {0}")]
    Decode(#[source] rmp_serde::decode::Error),
    /// Bytes follow the message.
    #[error("{bytes} bytes follow a control message in its frame")]
    LeftOver {
        /// Number of those bytes.
        bytes: usize,
    },
}
