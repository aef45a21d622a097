//! Handing over what was recorded, beside whatever the lanes are doing.

use std::sync::mpsc::TrySendError;
use std::time::Duration;

use rollhouse_replay::limits::PACKED_AGE_MS;

use super::Engine;
use crate::error::StepError;
use crate::first_done::ToCrew;

impl Engine {
    /// Hands everything recorded so far to the recorder's writer, as [`Engine::hand_over`] does after a long pause.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn flush(&mut self) -> Result<(), StepError> {
        self.hand_over(Duration::MAX).map(drop)
    }

    /// Hands to the recorder's writer what may not wait any longer once stepping has paused for so long: from
    /// [`CHUNK_AGE_MS`](rollhouse_replay::limits::CHUNK_AGE_MS) on all episodes that have ended, from
    /// [`PACKED_AGE_MS`](rollhouse_replay::limits::PACKED_AGE_MS) on everything. Otherwise only the next step hands it over.
    /// Returns whether something may stay.
    ///
    /// May wait for the writer. It looks at no row and at no action: lanes that were sent or are under way stay so, and
    /// results that were not received can be received. In first-done mode the threads of other crews do it after what they were
    /// sent before, and nobody waits for them.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn hand_over(&mut self, paused: Duration) -> Result<bool, StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        let serves = self.first_done.is_some();
        let mut stays = self.crews.own.hand_over(paused);
        for worker in &self.crews.others {
            if !serves {
                // Between two turns its thread does not hold it.
                stays |= worker.crew.lock().hand_over(paused);
            } else if let Err(TrySendError::Disconnected(_)) = worker.tasks.try_send(ToCrew::HandOver(paused))
            {
                // A crew whose channel is full has much to step, and hands over as it does.
                self.hung = true;
                return Err(StepError::Hung);
            } else {
                stays |= paused < PACKED_AGE;
            }
        }
        Ok(stays)
    }
}

/// Pause after which everything is handed over.
const PACKED_AGE: Duration = Duration::from_millis(PACKED_AGE_MS);
