//! How messages are read: lengths and counts are checked first, for two bytes on the wire can be a hundred in memory.

use prost::Message;

use super::messages::{
    AgentAction, Command, CreateSessionRequest, CreateSessionResponse, DestroySessionRequest,
    DestroySessionResponse, FastAdvanceRequest, GameObservation, GameState, StateRequest,
};

/// Maximum number of bytes of an observation; clients of the bridge take no more.
pub const MAX_OBSERVATION_BYTES: usize = 64 << 20;
/// Maximum number of bytes of any other message; clients of the bridge send no more.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;
/// Maximum number of commands in a message.
pub const MAX_COMMANDS: usize = 256;
/// Maximum number of interrupts that a request names.
pub const MAX_INTERRUPTS: usize = 64;
/// Maximum number of units, buildings, items or kills in one list of an observation.
pub const MAX_ACTORS: usize = 16_384;
/// Maximum number of texts in one list of an observation, or of a building in it.
pub const MAX_TEXTS: usize = 4096;

/// Reason for which bytes are no message.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is too long.
    #[error("a message of {bytes} bytes; it has at most {limit}")]
    TooLong {
        /// Number of bytes that were given.
        bytes: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// A list has too many items.
    #[error("more than {limit} items in field {field}")]
    TooMany {
        /// Number of the list's field.
        field: u32,
        /// Maximum number of items.
        limit: usize,
    },
    /// The bytes do not come apart into fields.
    #[error("byte {at} begins no field")]
    NoField {
        /// Place of the byte.
        at: usize,
    },
    /// A field is of another type.
    #[error(transparent)]
    Field(#[from] prost::DecodeError),
}

/// A message that can be read from a stranger's bytes.
pub trait Readable: Message + Default {
    /// Maximum number of its bytes.
    const MAX_BYTES: usize = MAX_REQUEST_BYTES;
    #[doc(hidden)]
    const LISTS: &'static [List] = &[];
}

/// A list in a message: its field, how many items it may have, and the lists in each.
#[derive(Debug, Clone, Copy)]
pub struct List {
    field: u32,
    most: usize,
    inside: &'static [List],
}

const fn list(field: u32, most: usize) -> List {
    List { field, most, inside: &[] }
}

/// Reads a message. Fields that are not known are passed over.
///
/// # Errors
/// If there are more bytes or items than may be, or the bytes are no such message. Memory is taken only for what has been
/// found to be within the limits.
pub fn decode<M: Readable>(bytes: &[u8]) -> Result<M, MessageError> {
    if bytes.len() > M::MAX_BYTES {
        return Err(MessageError::TooLong { bytes: bytes.len(), limit: M::MAX_BYTES });
    }
    count(bytes, M::LISTS)?;
    Ok(M::decode(bytes)?)
}

/// Counts the items of lists, in a message and in the messages in them.
fn count(bytes: &[u8], lists: &'static [List]) -> Result<(), MessageError> {
    if lists.is_empty() {
        return Ok(());
    }
    let mut counts = [0_usize; MOST_LISTS];
    let mut fields = Fields { bytes, at: 0 };
    while let Some((field, content)) = fields.next()? {
        let Some(place) = lists.iter().position(|list| list.field == field) else { continue };
        let list = &lists[place];
        counts[place] += 1;
        if counts[place] > list.most {
            return Err(MessageError::TooMany { field, limit: list.most });
        }
        count(content, list.inside)?;
    }
    Ok(())
}

/// The fields of a message, one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Returns the number of the next field and, if it has a length, its content.
    fn next(&mut self) -> Result<Option<(u32, &'a [u8])>, MessageError> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let at = self.at;
        let wrong = || MessageError::NoField { at };
        let key = self.varint().ok_or_else(wrong)?;
        let field = u32::try_from(key >> 3).ok().filter(|field| *field > 0).ok_or_else(wrong)?;
        let content = match key & 7 {
            0 => self.varint().map(|_| &[][..]),
            1 => self.take(8).map(|_| &[][..]),
            2 => {
                let length = self.varint().and_then(|length| usize::try_from(length).ok());
                length.and_then(|length| self.take(length))
            }
            // Groups are of proto2, and whoever decodes says so.
            3 | 4 => Some(&[][..]),
            5 => self.take(4).map(|_| &[][..]),
            _ => None,
        };
        Ok(Some((field, content.ok_or_else(wrong)?)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }
}

/// Lists of the message that has most of them.
const MOST_LISTS: usize = 8;

const BUILDINGS: [List; 2] = [
    List { field: 6, most: MAX_ACTORS, inside: &[list(16, MAX_TEXTS)] },
    List { field: 16, most: MAX_ACTORS, inside: &[list(16, MAX_TEXTS)] },
];

impl Readable for GameObservation {
    const MAX_BYTES: usize = MAX_OBSERVATION_BYTES;
    const LISTS: &'static [List] = &[
        list(5, MAX_ACTORS),
        BUILDINGS[0],
        list(7, MAX_ACTORS),
        list(8, MAX_ACTORS),
        list(15, MAX_TEXTS),
        BUILDINGS[1],
        list(21, MAX_ACTORS),
    ];
}

impl Readable for AgentAction {
    const LISTS: &'static [List] = &[list(1, MAX_COMMANDS)];
}

impl Readable for FastAdvanceRequest {
    const LISTS: &'static [List] = &[list(2, MAX_COMMANDS), list(5, MAX_INTERRUPTS)];
}

impl Readable for Command {}
impl Readable for GameState {}
impl Readable for StateRequest {}
impl Readable for CreateSessionRequest {}
impl Readable for CreateSessionResponse {}
impl Readable for DestroySessionRequest {}
impl Readable for DestroySessionResponse {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_has_more_lists_than_are_counted() {
        for lists in [GameObservation::LISTS, AgentAction::LISTS, FastAdvanceRequest::LISTS] {
            assert!(lists.len() <= MOST_LISTS);
        }
    }

    #[test]
    fn one_command_more_than_may_be_is_refused_before_any_is_read() {
        let bytes = |count: usize| [0x0a, 0].repeat(count);
        assert_eq!(decode::<AgentAction>(&bytes(MAX_COMMANDS)).unwrap().commands.len(), MAX_COMMANDS);
        let refused = decode::<AgentAction>(&bytes(MAX_COMMANDS + 1));
        assert_eq!(refused, Err(MessageError::TooMany { field: 1, limit: MAX_COMMANDS }));
        assert_eq!(refused.unwrap_err().to_string(), "more than 256 items in field 1");
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_with_its_length_and_the_limit() {
        let refused = decode::<StateRequest>(&vec![0; MAX_REQUEST_BYTES + 1]).unwrap_err();
        assert_eq!(refused.to_string(), "a message of 16777217 bytes; it has at most 16777216");
    }

    #[test]
    fn a_building_that_could_produce_more_than_may_be_is_refused() {
        let building = [0x82, 0x01, 0].repeat(MAX_TEXTS + 1);
        let mut bytes = vec![0x32];
        prost::encode_length_delimiter(building.len(), &mut bytes).unwrap();
        bytes.extend(building);
        let refused = decode::<GameObservation>(&bytes).unwrap_err();
        assert_eq!(refused, MessageError::TooMany { field: 16, limit: MAX_TEXTS });
    }
}
