//! Control messages as bytes: a little-endian length word and a msgpack map.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_CONTROL_BYTES, MAX_CONTROL_DEPTH};

/// Appends a message with its length word to `out`.
///
/// # Errors
/// If the message is longer than [`MAX_CONTROL_BYTES`]; `out` is as it was then.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), ControlError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let written = message.serialize(&mut rmp_serde::Serializer::new(&mut *out).with_struct_map());
    let bytes = out.len() - start - 4;
    let failed = match written {
        Err(error) => Some(ControlError::Encode(error)),
        Ok(()) if bytes > MAX_CONTROL_BYTES => Some(ControlError::TooLong { bytes }),
        Ok(()) => None,
    };
    if let Some(error) = failed {
        out.truncate(start);
        return Err(error);
    }
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
    Ok(())
}

/// How many bytes follow a length word.
///
/// # Errors
/// If they are more than [`MAX_CONTROL_BYTES`]: nothing is to be allocated for them.
pub fn length(word: [u8; 4]) -> Result<usize, ControlError> {
    let bytes = u32::from_le_bytes(word) as usize;
    if bytes > MAX_CONTROL_BYTES { Err(ControlError::TooLong { bytes }) } else { Ok(bytes) }
}

/// Reads a message without its length word. Unknown fields are ignored.
///
/// # Errors
/// If it is no msgpack, is nested deeper than [`MAX_CONTROL_DEPTH`], lacks a field or has bytes left over.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ControlError> {
    let mut reader = rmp_serde::Deserializer::new(bytes);
    reader.set_max_depth(MAX_CONTROL_DEPTH);
    let message = T::deserialize(&mut reader).map_err(ControlError::Decode)?;
    let left = reader.get_ref().len();
    if left > 0 { Err(ControlError::LeftOver { bytes: left }) } else { Ok(message) }
}

/// Why a control message could not be written or read.
#[derive(Debug)]
pub enum ControlError {
    /// Longer than [`MAX_CONTROL_BYTES`].
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// It cannot be written as msgpack.
    Encode(rmp_serde::encode::Error),
    /// It is not what was expected.
    Decode(rmp_serde::decode::Error),
    /// Bytes follow it.
    LeftOver {
        /// How many.
        bytes: usize,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "a control message of {bytes} bytes, at most {MAX_CONTROL_BYTES} are taken")
            }
            Self::Encode(_) => f.write_str("a control message cannot be written"),
            Self::Decode(error) => write!(f, "a control message cannot be read: {error}"),
            Self::LeftOver { bytes } => write!(f, "{bytes} bytes follow a control message in its frame"),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Encode(error) => Some(error),
            Self::Decode(error) => Some(error),
            Self::TooLong { .. } | Self::LeftOver { .. } => None,
        }
    }
}
