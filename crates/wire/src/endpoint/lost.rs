//! Reasons for which connections and streams end.

use std::fmt;

use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use rollhouse_core::is_plain;

/// The reason why a side closed a connection or gave up a stream; a number on the wire. A text for people goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CloseCode {
    /// Nothing is wrong; the work is done.
    Finished = 0,
    /// The peer was not admitted; the answer to `Hello` says why.
    Refused = 1,
    /// Something was sent that the protocol does not know.
    Malformed = 2,
    /// A message or frame is longer than its limit.
    TooLong = 3,
    /// Something came before or after its time: a first request that is no `Hello`, a frame whose number does
    /// not follow.
    OutOfOrder = 4,
    /// More streams or requests were opened at a time than the limit allows.
    TooMany = 5,
    /// Something that had been begun was not finished in time.
    TooSlow = 6,
    /// A newer stream of the same session has taken its place.
    Replaced = 7,
    /// The process is going away.
    ShuttingDown = 8,
    /// The fault is on the closing side.
    Internal = 9,
    /// The session has ended.
    SessionEnded = 10,
    /// A code of a newer version, or none of ours.
    Unknown = 0xffff,
}

impl CloseCode {
    /// All codes that this version knows.
    pub const ALL: [Self; 11] = [
        Self::Finished,
        Self::Refused,
        Self::Malformed,
        Self::TooLong,
        Self::OutOfOrder,
        Self::TooMany,
        Self::TooSlow,
        Self::Replaced,
        Self::ShuttingDown,
        Self::Internal,
        Self::SessionEnded,
    ];

    /// Returns the word in messages and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::OutOfOrder => "out_of_order",
            Self::TooMany => "too_many",
            Self::TooSlow => "too_slow",
            Self::Replaced => "replaced",
            Self::ShuttingDown => "shutting_down",
            Self::Internal => "internal",
            Self::SessionEnded => "session_ended",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) const fn number(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }

    pub(crate) fn from_number(number: VarInt) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(Self::Unknown)
    }
}

/// The reason why a connection is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionLost {
    /// The peer closed it.
    ByPeer {
        /// The code that the peer gave.
        code: CloseCode,
        /// The peer's reason in words; at most [`MAX_REASON_BYTES`] bytes are kept.
        reason: String,
    },
    /// This side closed it.
    ByUs,
    /// The peer was silent for too long.
    Silent,
    /// The peer does not know the connection any more: it was restarted.
    Forgotten,
    /// The peer answered nothing, and its host said that nobody listens at its port: its process has ended.
    PortClosed,
    /// QUIC or TLS failed; in the library's words.
    Transport(String),
}

impl From<ConnectionError> for ConnectionLost {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                Self::ByPeer { code: CloseCode::from_number(close.error_code), reason: words(&close.reason) }
            }
            ConnectionError::LocallyClosed => Self::ByUs,
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::Reset => Self::Forgotten,
            other => Self::Transport(other.to_string()),
        }
    }
}

impl fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer { code, reason } if reason.is_empty() => {
                write!(f, "the peer closed the connection ({})", code.word())
            }
            Self::ByPeer { code, reason } => {
                write!(f, "the peer closed the connection ({}): {reason}", code.word())
            }
            Self::ByUs => f.write_str("the connection was closed here"),
            Self::Silent => f.write_str("the peer was silent for too long"),
            Self::Forgotten => f.write_str("the peer does not know the connection any more"),
            Self::PortClosed => f.write_str("nobody listens at the peer's port any more"),
            Self::Transport(text) => write!(f, "the connection failed: {text}"),
        }
    }
}

impl std::error::Error for ConnectionLost {}

/// The reason why a stream is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamLost {
    /// Its connection is gone.
    #[error("{0}")]
    Connection(ConnectionLost),
    /// The peer gave it up.
    #[error("the peer gave up the stream ({code})", code = .0.word())]
    ByPeer(CloseCode),
    /// This side had finished it or given it up.
    #[error("the stream was given up here")]
    ByUs,
    /// The stream ended in the middle of a message or a frame.
    #[error("the stream ended in the middle of a message")]
    Cut,
    /// The peer did not take what it had asked for, or did not finish what it had begun, in time.
    #[error("the peer is too slow")]
    TooSlow,
}

impl From<ReadError> for StreamLost {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::ByPeer(CloseCode::from_number(code)),
            ReadError::ConnectionLost(error) => Self::Connection(error.into()),
            ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
                Self::ByUs
            }
        }
    }
}

impl From<WriteError> for StreamLost {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::ByPeer(CloseCode::from_number(code)),
            WriteError::ConnectionLost(error) => Self::Connection(error.into()),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::ByUs,
        }
    }
}

impl From<ConnectionError> for StreamLost {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error.into())
    }
}

/// Makes a peer's reason fit for a log.
fn words(reason: &[u8]) -> String {
    let text = String::from_utf8_lossy(&reason[..reason.len().min(MAX_REASON_BYTES)]);
    text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect()
}

/// Returns the start of a reason, cut to what fits into one close frame.
pub(crate) fn short_reason(reason: &str) -> &[u8] {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason.as_bytes()[..end]
}

/// Largest number of bytes of the text that goes with a closed connection.
pub const MAX_REASON_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire_and_others_are_unknown() {
        for code in CloseCode::ALL {
            assert_eq!(CloseCode::from_number(code.number()), code);
        }
        assert_eq!(CloseCode::from_number(VarInt::from_u32(4_000)), CloseCode::Unknown);
    }

    #[test]
    fn a_reason_is_cut_between_characters_and_has_no_control_characters() {
        let long = "ü".repeat(400);
        assert!(std::str::from_utf8(short_reason(&long)).is_ok());
        assert_eq!(words(b"a\nb\x1b[2J"), "a b [2J");
    }
}
