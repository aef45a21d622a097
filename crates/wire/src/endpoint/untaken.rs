//! Answers on their way: for how long, and how many bytes of them, a peer may leave untaken.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::answer_bytes;
use super::lost::{CloseCode, StreamLost};
use super::stream::ByteSender;
use crate::Refusal;
use crate::limits::MAX_UNTAKEN_BYTES;

/// The room of one connection for answers that its peer has not taken yet.
#[derive(Debug)]
pub(super) struct Untaken {
    room: Arc<Semaphore>,
    /// Time that the peer may take for [`ANSWER_PIECE_BYTES`](crate::limits::ANSWER_PIECE_BYTES) of an answer.
    stall: Duration,
}

impl Untaken {
    pub(super) fn new(stall: Duration) -> Self {
        Self { room: Arc::new(Semaphore::new(MAX_UNTAKEN_BYTES)), stall }
    }

    pub(super) const fn stall(&self) -> Duration {
        self.stall
    }

    /// Sends an answer and ends its stream. Returns when the connection has taken it; the room is free again when the peer
    /// has. An answer without room becomes a refusal as busy. Not cancellation-safe.
    ///
    /// # Errors
    /// If the asker is gone or takes nothing; its stream is given up then.
    pub(super) async fn deliver(&self, mut send: ByteSender, mut answer: Vec<u8>) -> Result<(), StreamLost> {
        let room = |bytes: usize| Arc::clone(&self.room).try_acquire_many_owned(bytes as u32).ok();
        let mut held = room(answer.len());
        if held.is_none() {
            answer = answer_bytes::<()>(Err(&no_room()));
            held = room(answer.len());
        }
        let Some(held) = held else {
            send.give_up(CloseCode::TooSlow);
            return Err(StreamLost::TooSlow);
        };
        send.write_all(&answer).await?;
        send.finish()?;
        let stall = self.stall;
        // Task: answer on its way.
        tokio::spawn(async move {
            if timeout(stall, send.settled()).await.is_err() {
                send.give_up(CloseCode::TooSlow);
            }
            drop(held);
        });
        Ok(())
    }
}

fn no_room() -> Refusal {
    let message =
        format!("{MAX_UNTAKEN_BYTES} bytes of answers are on their way, which is the most; take them first");
    Refusal::busy(message, BUSY_RETRY_MS)
}

/// Milliseconds after which to ask again: about as long as the answers before take.
const BUSY_RETRY_MS: u64 = 100;
