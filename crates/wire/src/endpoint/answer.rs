//! Answers as bytes, and the reasons why there is none.

use std::fmt;
use std::time::Duration;

use rollhouse_core::msgpack::Message;
use tracing::Span;
use tracing::field::display;

use super::lost::{CloseCode, StreamLost};
use super::stream::MessageError;
use crate::control::{self, ControlError};
use crate::limits::MAX_OPEN_REQUESTS;
use crate::request::{is_refusal, write_answer};
use crate::{Answer, Refusal, RefusalCode};

/// An answer that has been received and not been read yet. It is no refusal.
#[derive(Debug)]
pub struct UnreadAnswer(Vec<u8>);

impl UnreadAnswer {
    /// Takes the bytes of an answer.
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, CallError> {
        let answer = Self(bytes);
        if is_refusal(&answer.0) {
            answer.read::<()>()?;
        }
        Ok(answer)
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// [`CallError::Malformed`] if it is another one.
    pub fn read<T: Message>(&self) -> Result<T, CallError> {
        let answer: Answer<T> = control::decode(&self.0).map_err(CallError::Malformed)?;
        answer.into_result().map_err(CallError::Refused)
    }
}

/// Returns an answer as it is sent; the refusal that says why if it cannot be.
pub(super) fn answer_bytes<T: Message>(answer: Result<&T, &Refusal>) -> Vec<u8> {
    if let Err(refusal) = answer {
        Span::current().record("error", display(refusal));
    }
    let mut bytes = Vec::with_capacity(256);
    if let Err(error) = control::put(&mut bytes, &|out| write_answer(answer, out)) {
        let refusal = Refusal::new(RefusalCode::Internal, format!("the answer cannot be sent: {error}"));
        let written = control::put(&mut bytes, &|out| write_answer::<T>(Err(&refusal), out));
        debug_assert!(written.is_ok(), "a refusal of one sentence is within the limit");
    }
    bytes
}

/// The reason why a request has no answer, or a refusal.
#[derive(Debug)]
pub enum CallError {
    /// The peer refused it.
    Refused(Refusal),
    /// The stream or its connection is gone.
    Lost(StreamLost),
    /// The bytes that came are not an answer, or the request cannot be sent.
    Malformed(ControlError),
    /// There was no answer in time.
    TimedOut {
        /// The request's word.
        request: &'static str,
        /// Time that was waited.
        after: Duration,
    },
}

impl From<StreamLost> for CallError {
    fn from(lost: StreamLost) -> Self {
        match lost {
            // Refused without being read: the answer is the code.
            StreamLost::ByPeer(CloseCode::TooMany) => Self::Refused(Refusal::busy(
                format!("{MAX_OPEN_REQUESTS} requests of this connection are unanswered"),
                BUSY_RETRY_MS,
            )),
            lost => Self::Lost(lost),
        }
    }
}

impl From<MessageError> for CallError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::Lost(lost) => lost.into(),
            MessageError::Control(error) => Self::Malformed(error),
        }
    }
}

impl CallError {
    /// Returns the code of the refusal, if the peer refused.
    pub const fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost(lost) => lost.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::TimedOut { request, after } => {
                write!(f, "no answer to {request} within {} ms", after.as_millis())
            }
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Lost(lost) => Some(lost),
            Self::Malformed(error) => Some(error),
            Self::TimedOut { .. } => None,
        }
    }
}

/// Milliseconds after which to ask again after too many requests at a time: about as long as they take.
const BUSY_RETRY_MS: u64 = 50;
