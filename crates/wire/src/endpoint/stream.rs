//! The two directions of a stream, for bytes and for control messages among them.

use quinn::{RecvStream, SendStream};

use super::lost::{CloseCode, StreamLost};
use crate::control::{self, ControlError};

/// The sending direction of a stream. After it is dropped, data that was written is still delivered, and then the
/// stream ends.
#[derive(Debug)]
pub struct ByteSender(pub(crate) SendStream);

impl ByteSender {
    /// Sends all of `bytes` and returns when the connection has taken them, which is as soon as its windows allow. Not
    /// cancellation-safe: some may have been taken.
    ///
    /// # Errors
    /// If the stream is gone.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), StreamLost> {
        Ok(self.0.write_all(bytes).await?)
    }

    /// Ends the stream after what was sent.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn finish(&mut self) -> Result<(), StreamLost> {
        self.0.finish().map_err(|_| StreamLost::ByUs)
    }

    /// Gives the stream up; data that is not delivered yet never is.
    pub fn give_up(&mut self, code: CloseCode) {
        // Already finished and delivered is as good.
        let _reset = self.0.reset(code.number());
    }

    /// Waits until the peer has everything after [`ByteSender::finish`], or has lost interest, or the connection is
    /// gone. Cancellation-safe.
    pub async fn settled(&mut self) {
        let _end = self.0.stopped().await;
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
