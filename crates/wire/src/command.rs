//! The command channel of a session: envelopes, and the request that opens its stream.

use rollhouse_core::RunId;
use rollhouse_core::msgpack::Message;
use serde::{Deserialize, Serialize};
use tracing::field::Empty;
use tracing::{Span, error_span};

use crate::control::{self, ControlError};
use crate::ids::run_id;
use crate::limits::{ANSWER_ENVELOPE_BYTES, MAX_COMMAND_BYTES, MAX_METHOD_BYTES};
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
    /// Bytes of the answer's payload that the asker takes, in pieces; in commands only. With fewer than an envelope may have,
    /// it takes what fits one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub room: u32,
    /// Bytes of the payload that come in the next envelopes, each of which has the same id; in answers only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
const fn is_zero(bytes: &u32) -> bool {
    *bytes == 0
}

impl Envelope {
    /// Makes a command with those params.
    ///
    /// # Errors
    /// See [`EnvelopeError`].
    pub fn command<T: Message>(id: u64, method: &str, params: &T) -> Result<Self, EnvelopeError> {
        let payload = Self::packed(params)?;
        Ok(Self { id, method: method.to_owned(), call: None, payload, error: None, room: 0, more: 0 })
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

    /// Lets the answer have a payload of so many bytes, in pieces.
    #[must_use]
    pub fn with_room(self, bytes: usize) -> Self {
        Self { room: bytes.try_into().unwrap_or(u32::MAX), ..self }
    }

    /// Returns a span that names the call that this command is part of; log lines inside it carry the call.
    pub fn span(&self) -> Span {
        match self.call {
            Some(call) => error_span!("call", %call, request = self.method, error = Empty),
            None => Span::none(),
        }
    }

    /// Makes the answer to this command, or the refusal in its place. An answer that is longer than the asker takes becomes
    /// an error that says so.
    #[must_use]
    pub fn answered<T: Message>(self, answer: Result<&T, Refusal>) -> Self {
        let room = (self.room as usize).max(ANSWER_ENVELOPE_BYTES);
        let packed = answer.and_then(|answer| {
            let mut payload = Vec::new();
            let written = answer
                .write(&mut payload)
                .map_err(|error| EnvelopeError::Control(ControlError::Encode(error)));
            let bytes = payload.len();
            let fits = if bytes > room { Err(EnvelopeError::Room { bytes, room }) } else { Ok(payload) };
            let fits = written.and(fits);
            fits.map_err(|error| Refusal::new(crate::RefusalCode::Unsupported, error.to_string()))
        });
        let answered = Self { call: None, payload: Vec::new(), error: None, room: 0, more: 0, ..self };
        match packed {
            Ok(payload) => Self { payload, ..answered },
            Err(refusal) => Self { error: Some(refusal), ..answered },
        }
    }

    /// Returns the envelopes as which an answer is sent: itself, or pieces of its payload.
    pub fn into_pieces(self) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let mut piece = rest.take()?;
            if piece.payload.len() > ANSWER_ENVELOPE_BYTES {
                let payload = piece.payload.split_off(ANSWER_ENVELOPE_BYTES);
                piece.more = payload.len() as u32;
                rest = Some(Self { payload, method: piece.method.clone(), error: None, more: 0, ..piece });
            }
            Some(piece)
        })
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// If the payload is not of that type.
    pub fn payload<T: Message>(&self) -> Result<T, ControlError> {
        Ok(T::read(&self.payload, self.payload.len())?)
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

/// An answer that comes in pieces, as far as it is here.
#[derive(Debug, Default)]
pub struct PiecedAnswer {
    so_far: Option<Envelope>,
}

impl PiecedAnswer {
    /// Adds an envelope. Returns the answer if it is whole by it. `room` is what its command said.
    ///
    /// # Errors
    /// If the envelope is no piece of the answer before, or the answer is longer than `room`, which is seen before memory is
    /// taken for it.
    pub fn add(&mut self, piece: Envelope, room: usize) -> Result<Option<Envelope>, EnvelopeError> {
        let answer = match self.so_far.take() {
            None => piece,
            Some(mut answer) => {
                let is_next = (answer.id, &answer.method) == (piece.id, &piece.method)
                    && !piece.payload.is_empty()
                    && piece.payload.len() as u64 + u64::from(piece.more) == u64::from(answer.more);
                if !is_next {
                    return Err(EnvelopeError::Piece);
                }
                answer.payload.extend_from_slice(&piece.payload);
                Envelope { more: piece.more, error: piece.error, ..answer }
            }
        };
        let (bytes, room) = (answer.payload.len() + answer.more as usize, room.max(MAX_COMMAND_BYTES));
        if bytes > room {
            return Err(EnvelopeError::Room { bytes, room });
        }
        if answer.more == 0 {
            return Ok(Some(answer));
        }
        self.so_far = Some(answer);
        Ok(None)
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
    /// The answer is longer than its asker takes.
    #[error("an answer of {bytes} bytes, at most {room} are taken")]
    Room {
        /// Length of the answer in bytes.
        bytes: usize,
        /// Number of bytes that are taken.
        room: usize,
    },
    /// An envelope is not the next piece of the answer that came before it.
    #[error("a piece of another answer, or of another length, than the one before it")]
    Piece,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::MAX_COMMAND_ANSWER_BYTES;

    fn asked(room: usize) -> Envelope {
        Envelope::command(7, "call", &()).unwrap().with_room(room)
    }

    /// Some message: an envelope with so many bytes in it.
    fn long(bytes: usize) -> Envelope {
        let mut message = Envelope::command(1, "x", &()).unwrap();
        message.payload = (0..bytes).map(|at| at as u8).collect();
        message
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn an_answer_in_pieces_is_whole_again_and_each_piece_fits_an_envelope(
            bytes in prop_oneof![0usize..100, ANSWER_ENVELOPE_BYTES - 9..ANSWER_ENVELOPE_BYTES + 9, 0usize..1 << 20],
        ) {
            let (room, long) = (MAX_COMMAND_ANSWER_BYTES, long(bytes));
            let mut whole = None;
            let mut pieced = PiecedAnswer::default();
            for piece in asked(room).answered(Ok(&long)).into_pieces() {
                prop_assert!(whole.is_none());
                whole = pieced.add(Envelope::decode(&piece.encode().unwrap()).unwrap(), room).unwrap();
            }
            prop_assert_eq!(whole.unwrap().payload::<Envelope>().unwrap(), long);
        }
    }

    #[test]
    fn an_answer_that_is_longer_than_its_asker_takes_is_refused_with_both_lengths() {
        for (room, most) in [(0, ANSWER_ENVELOPE_BYTES), (1 << 20, 1 << 20)] {
            let mut packed = Vec::new();
            long(most).write(&mut packed).unwrap();
            let around = packed.len() - most;
            let refused = asked(room).answered(Ok(&long(most))).error.unwrap();
            assert_eq!(refused.code, crate::RefusalCode::Unsupported);
            let message = format!("an answer of {} bytes, at most {most} are taken", most + around);
            assert_eq!(refused.message, message);
            assert_eq!(asked(room).answered(Ok(&long(most - around))).error, None);
        }
    }

    #[test]
    fn pieces_of_other_answers_or_lengths_are_refused_and_so_is_a_claim_before_memory_is_taken() {
        let room = MAX_COMMAND_ANSWER_BYTES;
        let pieces: Vec<_> = asked(room).answered(Ok(&long(300_000))).into_pieces().collect();
        let second = |change: fn(&mut Envelope)| {
            let (mut pieced, mut piece) = (PiecedAnswer::default(), pieces[1].clone());
            change(&mut piece);
            assert!(matches!(pieced.add(pieces[0].clone(), room), Ok(None)));
            pieced.add(piece, room).map(|whole| whole.is_some())
        };
        assert!(matches!(second(|_| ()), Ok(false)));
        for change in [
            |piece: &mut Envelope| piece.id += 1,
            |piece: &mut Envelope| piece.method.push('x'),
            |piece: &mut Envelope| piece.more += 1,
            |piece: &mut Envelope| piece.payload.clear(),
            |piece: &mut Envelope| piece.payload.push(0),
        ] {
            assert!(matches!(second(change), Err(EnvelopeError::Piece)));
        }
        let claim = Envelope { more: u32::MAX, ..pieces[0].clone() };
        assert!(matches!(PiecedAnswer::default().add(claim, room), Err(EnvelopeError::Room { .. })));
    }
}
