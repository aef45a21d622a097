//! Envelopes on a stream, each behind its length word.

use std::fmt;
use std::time::Instant;

use super::lost::{CloseCode, StreamLost};
use super::stream::{ByteReceiver, ByteSender, within};
use crate::limits::{ENVELOPE_DEADLINE, MAX_COMMAND_BYTES};
use crate::{Envelope, EnvelopeError};

/// Receives envelopes. Holds one at a time.
#[derive(Debug)]
pub struct EnvelopeReader {
    stream: ByteReceiver,
    word: [u8; 4],
    bytes: Vec<u8>,
    /// Bytes received so far, of the length word first and then of the envelope.
    filled: usize,
    /// When the first of them came.
    begun: Option<Instant>,
}

impl EnvelopeReader {
    /// Makes a reader of envelopes from that stream.
    pub fn new(stream: ByteReceiver) -> Self {
        Self { stream, word: [0; 4], bytes: Vec::new(), filled: 0, begun: None }
    }

    /// Reads the next envelope; `None` when the stream has ended between two. Cancellation-safe: the next call goes on
    /// where this one was dropped.
    ///
    /// # Errors
    /// See [`EnvelopeFault`]; afterwards the stream is of no use. An envelope that is not whole [`ENVELOPE_DEADLINE`] after
    /// its first byte makes the stream [`StreamLost::TooSlow`].
    pub async fn read(&mut self) -> Result<Option<Envelope>, EnvelopeFault> {
        const WORD: usize = size_of::<u32>();
        loop {
            let length = u32::from_le_bytes(self.word) as usize;
            let target = match self.filled.checked_sub(WORD) {
                None => &mut self.word[self.filled..],
                Some(filled) if filled == length => {
                    let envelope = Envelope::decode(&self.bytes);
                    (self.filled, self.begun) = (0, None);
                    self.bytes.clear();
                    return envelope.map(Some).map_err(EnvelopeFault::Envelope);
                }
                Some(filled) => {
                    if length > MAX_COMMAND_BYTES {
                        return Err(EnvelopeFault::Envelope(EnvelopeError::TooLong { bytes: length }));
                    }
                    // Grown as bytes arrive: a length alone must not cost us memory.
                    if filled == self.bytes.len() {
                        self.bytes.resize(length.min(filled + STEP_BYTES), 0);
                    }
                    &mut self.bytes[filled..]
                }
            };
            let left = self.begun.map(|begun| ENVELOPE_DEADLINE.saturating_sub(begun.elapsed()));
            let read = within(left, self.stream.read(target)).await.unwrap_or(Err(StreamLost::TooSlow));
            match read.map_err(EnvelopeFault::Lost)? {
                Some(bytes) => {
                    self.filled += bytes;
                    self.begun.get_or_insert_with(Instant::now);
                }
                None if self.filled == 0 => return Ok(None),
                None => return Err(EnvelopeFault::Lost(StreamLost::Cut)),
            }
        }
    }

    /// Returns the stream, to give it up.
    pub fn stream(&mut self) -> &mut ByteReceiver {
        &mut self.stream
    }
}

/// Sends envelopes.
#[derive(Debug)]
pub struct EnvelopeWriter {
    stream: ByteSender,
}

impl EnvelopeWriter {
    /// Makes a writer of envelopes to that stream.
    pub fn new(stream: ByteSender) -> Self {
        Self { stream }
    }

    /// Sends an envelope and returns when the connection has taken it, as soon as its windows allow. Not
    /// cancellation-safe: afterwards the stream is of no use.
    ///
    /// # Errors
    /// See [`EnvelopeFault`]; an envelope that is too long was not sent.
    pub async fn write(&mut self, envelope: &Envelope) -> Result<(), EnvelopeFault> {
        let bytes = envelope.encode().map_err(EnvelopeFault::Envelope)?;
        let mut message = Vec::with_capacity(size_of::<u32>() + bytes.len());
        // Within the limit of an envelope, which fits the word.
        message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        message.extend_from_slice(&bytes);
        self.stream.write_all(&message).await.map_err(EnvelopeFault::Lost)
    }

    /// Sends an answer, in pieces where it is longer than an envelope. Each has as much time as [`EnvelopeWriter::write`] takes.
    ///
    /// # Errors
    /// As of [`EnvelopeWriter::write`].
    pub async fn write_answer(&mut self, answer: Envelope) -> Result<(), EnvelopeFault> {
        for piece in answer.into_pieces() {
            self.write(&piece).await?;
        }
        Ok(())
    }

    /// Returns the stream, to end it or give it up.
    pub fn stream(&mut self) -> &mut ByteSender {
        &mut self.stream
    }
}

/// The reason why no envelope can be read or sent any more.
#[derive(Debug)]
pub enum EnvelopeFault {
    /// The stream is gone.
    Lost(StreamLost),
    /// The bytes that came, or the value to send, are not an envelope.
    Envelope(EnvelopeError),
}

impl EnvelopeFault {
    /// Returns the code with which the connection has to be closed; `None` if only the stream is gone.
    pub const fn code(&self) -> Option<CloseCode> {
        match self {
            Self::Lost(StreamLost::Cut) => Some(CloseCode::Malformed),
            Self::Lost(_) => None,
            Self::Envelope(EnvelopeError::TooLong { .. }) => Some(CloseCode::TooLong),
            Self::Envelope(_) => Some(CloseCode::Malformed),
        }
    }
}

impl fmt::Display for EnvelopeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::Envelope(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EnvelopeFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(lost) => Some(lost),
            Self::Envelope(error) => std::error::Error::source(error),
        }
    }
}

/// Bytes by which the buffer of an envelope grows ahead of what was received.
const STEP_BYTES: usize = 16 << 10;
