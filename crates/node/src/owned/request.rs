//! Requests of an owner, and how bytes fail to be a request to its session.

use std::fmt;

use rollhouse_wire::limits::{MAX_FRAME_BYTES, MAX_PAST_BYTES, MAX_POLICY_BYTES};
use rollhouse_wire::{ColumnBuffer, FrameHeader, FrameKind, FrameLayout, PastError};

use bytes::Bytes;

use super::OwnedSession;
use crate::turn::{Turn, TurnOver};
use crate::{Cancel, Gone};

/// The columns and the sidecar that a request's header announces.
#[derive(Debug, Default)]
pub struct FrameRequest {
    /// The request's columns.
    pub columns: ColumnBuffer,
    /// The request's sidecar, encoded.
    pub sidecar: Vec<u8>,
}

/// Why a session's stream cannot go on: what came is no request to this session. Nothing has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// Its number is neither the last request's nor the next.
    OutOfOrder {
        /// The number that came.
        given: u32,
        /// The number of the last request that was answered.
        last: u32,
    },
    /// A frame that only nodes send, or one with flags.
    NoRequest(FrameKind),
    /// Columns of another length than the session's.
    Columns {
        /// Bytes that came.
        given: u32,
        /// Bytes that such a request has in this session.
        wanted: usize,
    },
    /// More lanes than the session has, or as many as do not fit the bytes.
    Lanes {
        /// The count that came.
        given: u32,
        /// Number of lanes of the session.
        lanes: usize,
    },
    /// A sidecar where none belongs.
    Sidecar(u32),
    /// A sidecar that is no list of lanes to reset.
    Reset,
    /// A sidecar that does not say how sent lanes are to be answered.
    Send,
    /// A sidecar that says of no steps that are to be played.
    Play,
    /// A sidecar that names no policy.
    Policy,
    /// Columns that are no states of its policy and lanes.
    Memory,
    /// Columns that are no records of a past.
    Past(PastError),
}

/// Why a request was not answered.
#[derive(Debug)]
pub enum Unanswered {
    /// The bytes that came are no request to this session.
    Fault(RequestFault),
    /// Another attachment has taken over.
    Replaced,
    /// The session ends: the request is not done any more.
    Ended,
    /// The session is gone; the caller that finds it so, by a hang or a panic, ends it.
    Gone(Gone),
}

impl OwnedSession {
    /// Decides on a request of the attachment with that number, to be called before anything is allocated for it.
    /// Returns the kept answer if the request was answered before, and `None` if it is to be carried out with
    /// [`OwnedSession::handle`].
    ///
    /// # Errors
    /// Why it is not answered: another attachment has taken over, the session's token is raised, or the request may
    /// not follow.
    pub fn admit(
        &mut self,
        turn: Turn,
        attachment: u64,
        token: &Cancel,
        header: FrameHeader,
    ) -> Result<Option<Bytes>, Unanswered> {
        match turn.admit(attachment) {
            Err(TurnOver::Replaced) => return Err(Unanswered::Replaced),
            Ok(()) if !token.is_cancelled() => {}
            Ok(()) | Err(TurnOver::Ended) => return Err(Unanswered::Ended),
        }
        self.check(header).map_err(Unanswered::Fault)?;
        Ok(self.repeated(header.number))
    }

    /// Checks whether a request with that header may follow. To be called before anything is allocated for it.
    ///
    /// # Errors
    /// The rule that it breaks; nothing has moved.
    pub fn check(&self, header: FrameHeader) -> Result<(), RequestFault> {
        check_header(header, self.answer.number, self.lanes(), &self.layout)
    }
}

/// Checks whether a request with that header may follow the request `last` to a session of `lanes` lanes.
pub(crate) fn check_header(
    header: FrameHeader,
    last: u32,
    lanes: usize,
    layout: &FrameLayout,
) -> Result<(), RequestFault> {
    if header.number != last && header.number != FrameHeader::next_number(last) || header.number == 0 {
        return Err(RequestFault::OutOfOrder { given: header.number, last });
    }
    if header.flags != 0 {
        return Err(RequestFault::NoRequest(header.kind));
    }
    let given = header.columns as usize;
    let bytes = |named| layout.actions(lanes, named).map_or(0, |places| places.bytes);
    let (fits, wanted) = match header.kind {
        FrameKind::Reset => (given == 0, 0),
        FrameKind::Step => (given == bytes(false), bytes(false)),
        FrameKind::Send | FrameKind::Latest => (given <= bytes(true), bytes(true)),
        FrameKind::Resume => (given <= MAX_PAST_BYTES, MAX_PAST_BYTES),
        FrameKind::Play => (given == 0, 0),
        FrameKind::Policy => (given <= MAX_POLICY_BYTES, MAX_POLICY_BYTES),
        FrameKind::Memory => (given <= MAX_FRAME_BYTES, MAX_FRAME_BYTES),
        FrameKind::Hasten
        | FrameKind::Batch
        | FrameKind::Rows
        | FrameKind::Refused
        | FrameKind::Resumed
        | FrameKind::Fragment
        | FrameKind::Follows => return Err(RequestFault::NoRequest(header.kind)),
    };
    if !fits {
        return Err(RequestFault::Columns { given: header.columns, wanted });
    }
    let beside = [FrameKind::Reset, FrameKind::Send, FrameKind::Play, FrameKind::Policy];
    if header.sidecar != 0 && !beside.contains(&header.kind) {
        return Err(RequestFault::Sidecar(header.sidecar));
    }
    Ok(())
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder { given, last } => {
                let next = FrameHeader::next_number(*last);
                write!(f, "request {given} is out of order: {last} was answered last, {next} is next")
            }
            Self::NoRequest(kind) => {
                write!(f, "a frame of kind {} with these flags is not a request", *kind as u8)
            }
            Self::Columns { given, wanted } => {
                write!(f, "a request with {given} bytes of columns, this session's have {wanted}")
            }
            Self::Lanes { given, lanes } => {
                write!(
                    f,
                    "a request for {given} lanes that its bytes or the session's {lanes} lanes do not fit"
                )
            }
            Self::Sidecar(bytes) => write!(f, "a sidecar of {bytes} bytes where none belongs"),
            Self::Reset => f.write_str("a sidecar that does not say which lanes to reset"),
            Self::Send => f.write_str("a sidecar that does not say how lanes are to be answered"),
            Self::Play => f.write_str("a sidecar that does not say how many steps to play"),
            Self::Policy => f.write_str("a sidecar that names no policy"),
            Self::Memory => f.write_str("states that are none of this session's policy and lanes"),
            Self::Past(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RequestFault {}
