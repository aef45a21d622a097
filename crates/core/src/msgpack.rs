//! Reads msgpack that comes from outside of the process, and writes what goes there.

mod reader;

use serde::{Deserialize, Serialize};

pub use reader::MalformedError;
pub use rmp_serde::encode::Error as EncodeError;

use reader::Reader;

/// Reads one message of at most `limit` bytes. Unknown fields are ignored.
///
/// Everything that comes from a disk or a peer is read by this function, so that length, depth and left-over bytes are
/// always checked. How much memory a message takes is up to its type: lists whose elements take more memory than bytes
/// are read by [`bounded_list`](crate::bounded_list).
///
/// # Errors
/// If the message is longer, is no msgpack, is nested deeper than [`MAX_CONTROL_DEPTH`](crate::limits::MAX_CONTROL_DEPTH), lacks a field or has bytes
/// left over.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8], limit: usize) -> Result<T, DecodeError> {
    if bytes.len() > limit {
        return Err(DecodeError::TooLong { bytes: bytes.len(), limit });
    }
    let mut reader = Reader::new(bytes);
    let message = T::deserialize(&mut reader).map_err(DecodeError::Malformed)?;
    match reader.left() {
        0 => Ok(message),
        left => Err(DecodeError::LeftOver { bytes: left }),
    }
}

/// Appends a message as a map with the names of its fields.
///
/// # Errors
/// If the message has parts that msgpack does not know.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    message.serialize(&mut rmp_serde::Serializer::new(out).with_struct_map())
}

/// A message that processes tell each other.
///
/// [`messages!`](crate::messages) implements it beside the type, so that the code which writes and reads the message is
/// compiled once, in the type's own crate. Generic functions that serialise would bring it into every crate that calls
/// them, where it was up to half of the code that was compiled.
pub trait Message: Sized {
    /// Appends the message, as [`encode`] does.
    ///
    /// # Errors
    /// If the message has parts that msgpack does not know.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a message of at most `limit` bytes, as [`decode`] does.
    ///
    /// # Errors
    /// See [`DecodeError`].
    fn read(bytes: &[u8], limit: usize) -> Result<Self, DecodeError>;
}

/// Makes types with serde's traits messages.
#[macro_export]
macro_rules! messages {
    ($($message:ty),+ $(,)?) => {
        $(impl $crate::msgpack::Message for $message {
            fn write(&self, out: &mut Vec<u8>) -> Result<(), $crate::msgpack::EncodeError> {
                $crate::msgpack::encode(self, out)
            }

            fn read(bytes: &[u8], limit: usize) -> Result<Self, $crate::msgpack::DecodeError> {
                $crate::msgpack::decode(bytes, limit)
            }
        })+
    };
}

messages!(());

/// Reason for which bytes are not the expected message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message has more bytes than such a message may have.
    #[error("a message of {bytes} bytes, at most {limit} allowed")]
    TooLong {
        /// Number of bytes in the message.
        bytes: usize,
        /// Maximum number of bytes of such a message.
        limit: usize,
    },
    /// The bytes are not the expected message, or are nested too deeply.
    #[error("a message cannot be read: {0}")]
    Malformed(#[source] MalformedError),
    /// Bytes follow the message.
    #[error("{bytes} bytes are left over after a message")]
    LeftOver {
        /// Number of bytes that follow.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;
    use crate::limits::MAX_CONTROL_DEPTH;

    /// A list in a list, `depth` times.
    fn nested(depth: usize) -> Vec<u8> {
        let mut bytes = vec![0x91; depth - 1];
        bytes.push(0x90);
        bytes
    }

    #[test]
    fn what_is_too_long_nested_too_deeply_cut_short_or_followed_by_more_is_refused() {
        assert!(decode::<IgnoredAny>(&nested(MAX_CONTROL_DEPTH - 1), 64).is_ok());
        assert!(matches!(decode::<IgnoredAny>(&nested(40), 39), Err(DecodeError::TooLong { .. })));
        assert!(matches!(decode::<IgnoredAny>(&nested(40), 64), Err(DecodeError::Malformed(_))));
        assert!(matches!(decode::<IgnoredAny>(&[0x91], 64), Err(DecodeError::Malformed(_))));
        assert!(matches!(decode::<u8>(&[1, 2], 64), Err(DecodeError::LeftOver { bytes: 1 })));
    }
}
