//! What a trainer does: asks for a pool until it knows what came of it, uses it, closes it, begins anew.

use rollhouse_core::RunId;
use rollhouse_wire::{OpenPool, RefusalCode};

use rollhouse_coordinator::{Asker, Reply};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing until its next turn.
    Resting,
    /// It asks for the pool.
    Asking,
    /// It has the pool.
    Using,
    /// It closes the pool.
    Closing,
}

pub(crate) struct Trainer {
    pub(crate) asker: Asker,
    pub(crate) doing: Doing,
    pub(crate) request: OpenPool,
    /// Counts its questions: an answer to an earlier one is not waited for any more.
    pub(crate) question: u64,
}

/// When the trainer's next turn is, in what it does now.
pub(crate) enum Next {
    After(u64),
    /// It waits for the answer it has just been given to matter no more.
    Unchanged,
}

impl Trainer {
    pub(crate) fn pool(&self) -> RunId {
        self.request.pool
    }

    /// Whether lanes of the pool are held by it: their nodes hear of their owner.
    pub(crate) fn owns(&self) -> bool {
        self.doing == Doing::Using
    }

    /// Takes an answer; `after` is how long it uses a pool.
    pub(crate) fn answered(&mut self, reply: &Reply, after: u64) -> Next {
        match (self.doing, reply) {
            (Doing::Asking, Reply::PoolOpened(_)) => {
                self.doing = Doing::Using;
                Next::After(after)
            }
            // The same pool again: its id makes the question safe to repeat.
            (Doing::Asking, Reply::Refused(refusal)) if refusal.code == RefusalCode::Busy => {
                Next::After(refusal.retry_after_ms.unwrap_or(1000))
            }
            (Doing::Asking, Reply::Refused(refusal)) if refusal.code == RefusalCode::Stale => {
                self.doing = Doing::Closing;
                Next::After(1)
            }
            (Doing::Asking, Reply::Refused(_)) | (Doing::Closing, Reply::PoolClosed(_)) => {
                self.doing = Doing::Resting;
                Next::After(after)
            }
            (Doing::Closing, Reply::Refused(refusal)) if refusal.code == RefusalCode::NotFound => {
                self.doing = Doing::Resting;
                Next::After(after)
            }
            (Doing::Closing, Reply::Refused(_)) => Next::After(1000),
            _ => Next::Unchanged,
        }
    }
}
