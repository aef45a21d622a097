//! The command channel of a session: envelopes, and the request that opens its stream.

use rollhouse_core::RunId;
use rollhouse_core::msgpack::Message;
use serde::{Deserialize, Serialize};
use tracing::field::Empty;
use tracing::{Span, error_span};

use crate::control::{self, ControlError};
use crate::ids::run_id;
use crate::limits::{MAX_COMMAND_BYTES, MAX_METHOD_BYTES};
use crate::{CallId, Incarnation, Refusal, Secret, call_id};

/// The first message of a session's command stream, from owner to node. After the answer the stream carries
/// [`Envelope`]s. It neither replaces the stream of frames nor keeps the session's lease.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenCommands {
    /// The pool of the session.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Index of the session in its pool.
    pub index: u32,
    /// The placement of the session that is meant.
    pub incarnation: Incarnation,
    /// The secret from the grant.
    pub secret: Secret,
}

/// The answer to [`OpenCommands`]: the command stream is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandsOpened {
    /// Number of lanes of the session.
    pub lanes: u32,
}

/// A command or its answer: both have the same form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Correlation id, chosen by the asker and repeated in the answer. Answers come in the order of their commands.
    pub id: u64,
    /// Name of the method.
    pub method: String,
    /// The client's call that the command is part of; in commands only. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "call_id::optional")]
    pub call: Option<CallId>,
    /// A msgpack map: the method's params, or its answer. Empty in an answer with an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// The reason why the command was not done; in answers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Refusal>,
}

impl Envelope {
    /// Makes a command with those params.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub fn command<T: Message>(id: u64, method: &str, params: &T) -> Result<Self, EnvelopeError> {
        let payload = Self::packed(params)?;
        Ok(Self { id, method: method.to_owned(), call: None, payload, error: None })
    }

    /// Returns params or an answer as an envelope has them.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub fn packed<T: Message>(message: &T) -> Result<Vec<u8>, EnvelopeError> {
        let mut bytes = Vec::new();
        control::encode(message, &mut bytes).map_err(EnvelopeError::Control)?;
        Ok(bytes.split_off(size_of::<u32>()))
    }

    /// Marks the command as part of a client's call.
    #[must_use]
    pub fn of_call(self, call: CallId) -> Self {
        Self { call: Some(call), ..self }
    }

    /// Returns a span that names the call that this command is part of; log lines inside it carry the call.
    pub fn span(&self) -> Span {
        match self.call {
            Some(call) => error_span!("call", %call, request = self.method, error = Empty),
            None => Span::none(),
        }
    }

    /// Makes the answer to this command, or the refusal in its place. An answer that is too long becomes an error that
    /// says so.
    #[must_use]
    pub fn answered<T: Message>(self, answer: Result<&T, Refusal>) -> Self {
        let packed = answer.and_then(|answer| {
            Self::packed(answer)
                .map_err(|error| Refusal::new(crate::RefusalCode::Unsupported, error.to_string()))
        });
        let answered = match packed {
            Ok(payload) => Self { call: None, payload, error: None, ..self },
            Err(refusal) => Self { call: None, payload: Vec::new(), error: Some(refusal), ..self },
        };
        match answered.encode() {
            Ok(_) => answered,
            Err(error) => {
                let refusal = Refusal::new(crate::RefusalCode::Unsupported, error.to_string());
                Self { payload: Vec::new(), error: Some(refusal), ..answered }
            }
        }
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// If the payload is not of that type.
    pub fn payload<T: Message>(&self) -> Result<T, ControlError> {
        control::decode(&self.payload)
    }

    /// Writes the envelope as bytes, without a length word.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub fn encode(&self) -> Result<Vec<u8>, EnvelopeError> {
        let bytes = Self::packed(self)?;
        match bytes.len() > MAX_COMMAND_BYTES {
            true => Err(EnvelopeError::TooLong { bytes: bytes.len() }),
            false => Ok(bytes),
        }
    }

    /// Reads an envelope from bytes without a length word.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if bytes.len() > MAX_COMMAND_BYTES {
            return Err(EnvelopeError::TooLong { bytes: bytes.len() });
        }
        let envelope: Self = control::decode(bytes).map_err(EnvelopeError::Control)?;
        match envelope.method.len() {
            1..=MAX_METHOD_BYTES => Ok(envelope),
            bytes => Err(EnvelopeError::Method { bytes }),
        }
    }
}

/// The reason why bytes are not an envelope, or why an envelope cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// The envelope is longer than [`MAX_COMMAND_BYTES`].
    #[error("a command or answer of {bytes} bytes, at most {MAX_COMMAND_BYTES} allowed")]
    TooLong {
        /// Length of the envelope in bytes.
        bytes: usize,
    },
    /// A method's name is empty or longer than [`MAX_METHOD_BYTES`].
    #[error("a method's name has {bytes} bytes, must have 1 to {MAX_METHOD_BYTES}")]
    Method {
        /// Length of the name in bytes.
        bytes: usize,
    },
    /// The bytes are not a message, or the value cannot be written as one.
    #[error(transparent)]
    Control(ControlError),
}
