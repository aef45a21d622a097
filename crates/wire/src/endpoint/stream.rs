//! The two directions of a stream, for bytes and for control messages among them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{RecvStream, SendStream, StreamId, Written};
use tokio::time::timeout;

use super::lost::{CloseCode, StreamLost};
use crate::control::{self, ControlError};
use crate::limits::ANSWER_PIECE_BYTES;

/// The sending direction of a stream. After it is dropped, data that was written is still delivered, and then the
/// stream ends.
#[derive(Debug)]
pub struct ByteSender {
    stream: SendStream,
    /// Time that the peer may take for [`ANSWER_PIECE_BYTES`]; `None` leaves that to whoever sends.
    stall: Option<Duration>,
}

impl ByteSender {
    /// Makes the sending direction of a stream that this side opened: its owner has a deadline for the whole.
    pub(crate) const fn asking(stream: SendStream) -> Self {
        Self { stream, stall: None }
    }

    /// Makes the sending direction of a stream that the peer opened, who has so long to take each piece.
    pub(crate) const fn answering(stream: SendStream, stall: Duration) -> Self {
        Self { stream, stall: Some(stall) }
    }

    pub(crate) fn id(&self) -> StreamId {
        self.stream.id()
    }

    /// Sends all of `bytes` and returns when the connection has taken them, which is as soon as its windows allow. Not
    /// cancellation-safe: some may have been taken.
    ///
    /// # Errors
    /// If the stream is gone, or a peer that asked takes nothing: then the stream is given up.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), StreamLost> {
        for piece in bytes.chunks(ANSWER_PIECE_BYTES) {
            let stall = self.stall;
            let written = self.stream.write_all(piece);
            match within(stall, written).await {
                Some(written) => written?,
                None => return Err(self.untaken()),
            }
        }
        Ok(())
    }

    /// Sends some of `pieces` and returns how many as a whole, and how many bytes; the peer is given what is left of its
    /// time since `since`. Cancellation-safe.
    ///
    /// # Errors
    /// As [`ByteSender::write_all`].
    pub(crate) async fn write_pieces(
        &mut self,
        pieces: &mut [Bytes],
        since: Instant,
    ) -> Result<Written, StreamLost> {
        let stall = self.stall.map(|stall| stall.saturating_sub(since.elapsed()));
        let written = self.stream.write_chunks(pieces);
        match within(stall, written).await {
            Some(written) => Ok(written?),
            None => Err(self.untaken()),
        }
    }

    fn untaken(&mut self) -> StreamLost {
        self.give_up(CloseCode::TooSlow);
        StreamLost::TooSlow
    }

    /// Ends the stream after what was sent.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn finish(&mut self) -> Result<(), StreamLost> {
        self.stream.finish().map_err(|_| StreamLost::ByUs)
    }

    /// Has what is sent wait for all other streams of the connection that have something to send.
    pub fn yield_to_others(&mut self) {
        // One that is finished has nothing to send.
        let _late = self.stream.set_priority(LEAST_PRIORITY);
    }

    /// Gives the stream up; data that is not delivered yet never is.
    pub fn give_up(&mut self, code: CloseCode) {
        // Already finished and delivered is as good.
        let _reset = self.stream.reset(code.number());
    }

    /// Waits until the peer has everything after [`ByteSender::finish`], or has lost interest, or the connection is
    /// gone. Cancellation-safe.
    pub async fn settled(&mut self) {
        let _end = self.stream.stopped().await;
    }
}

/// Waits for `done`, at most for `limit` if there is one; `None` if that is over.
pub(super) async fn within<T>(limit: Option<Duration>, done: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, done).await.ok(),
        None => Some(done.await),
    }
}

/// The receiving direction of a stream. When it is dropped, the peer is told that nobody reads any more.
#[derive(Debug)]
pub struct ByteReceiver(pub(crate) RecvStream);

impl ByteReceiver {
    /// Receives some bytes into `buffer`; `None` at the stream's end. Cancellation-safe.
    ///
    /// # Errors
    /// If the stream is gone.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, StreamLost> {
        Ok(self.0.read(buffer).await?)
    }

    /// Fills `buffer`. Not cancellation-safe: some bytes may have been received.
    ///
    /// # Errors
    /// [`StreamLost::Cut`] if the stream ends before `buffer` is full.
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), StreamLost> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]).await? {
                Some(bytes) => filled += bytes,
                None => return Err(StreamLost::Cut),
            }
        }
        Ok(())
    }

    /// Tells the peer that nobody reads any more.
    pub fn give_up(&mut self, code: CloseCode) {
        // Already at its end is as good.
        let _stopped = self.0.stop(code.number());
    }

    /// Receives the bytes of one control message of at most `most` bytes, without its length word.
    pub(crate) async fn raw_message(&mut self, most: usize) -> Result<Vec<u8>, MessageError> {
        let length = self.message_length(most).await?;
        self.message_of(length).await
    }

    /// Reads the length of a message, of which nothing else is read yet.
    pub(crate) async fn message_length(&mut self, most: usize) -> Result<usize, MessageError> {
        let mut word = [0; 4];
        self.read_exact(&mut word).await.map_err(MessageError::Lost)?;
        control::length(word, most).map_err(MessageError::Control)
    }

    /// Reads a message whose length was read.
    pub(crate) async fn message_of(&mut self, length: usize) -> Result<Vec<u8>, MessageError> {
        // Grown as bytes arrive: a length alone costs the peer nothing and must not cost us memory.
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let filled = bytes.len();
            bytes.resize(length.min(filled + MESSAGE_STEP_BYTES), 0);
            self.read_exact(&mut bytes[filled..]).await.map_err(MessageError::Lost)?;
        }
        Ok(bytes)
    }
}

/// The reason why a control message could not be sent or received.
#[derive(Debug)]
pub(crate) enum MessageError {
    Lost(StreamLost),
    Control(ControlError),
}

/// Bytes by which the buffer of a message grows ahead of what was received.
pub(super) const MESSAGE_STEP_BYTES: usize = 16 << 10;

/// Priority of streams that wait for others, which have 0.
const LEAST_PRIORITY: i32 = -1;
