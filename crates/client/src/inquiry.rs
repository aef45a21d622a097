//! Asks the coordinator about a session whose node does not answer: it knows of a loss before a connection is given up.

use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{EndCause, GoneSession, PoolStatus, PoolStatusRequest};

use crate::silence::Silence;

/// Decides when the coordinator is asked about a session while one action is carried out for it, and what the answer
/// means. Pure: time counts from the beginning of that action.
#[derive(Debug)]
pub struct Inquiry {
    pool: RunId,
    session: GoneSession,
    /// The node's silence; `None` before the first look.
    silence: Option<Silence>,
}

impl Inquiry {
    /// Makes the inquiry about that session of the pool.
    pub(crate) const fn new(pool: RunId, session: GoneSession) -> Self {
        Self { pool, session, silence: None }
    }

    /// Returns whether there was a look before.
    pub(crate) const fn has_looked(&self) -> bool {
        self.silence.is_some()
    }

    /// Returns when to [look](Self::look).
    pub fn look_at(&self) -> Duration {
        // Most answers are here before, and nothing is looked at for them.
        self.silence.map_or(FIRST_HEARD, |silence| silence.look_at())
    }

    /// Looks whether the node was heard of since the last look. Returns true if the coordinator is to be asked. `heard`
    /// is any number that grows with what is received of the node; `None` if there is no connection to it.
    pub fn look(&mut self, now: Duration, heard: Option<u64>) -> bool {
        match &mut self.silence {
            Some(silence) => silence.look(now, heard),
            None => {
                self.silence = Some(Silence::new(Duration::ZERO, heard));
                false
            }
        }
    }

    /// Returns the request to the coordinator.
    pub const fn question(&self) -> PoolStatusRequest {
        PoolStatusRequest { pool: self.pool, keep: false }
    }

    /// Takes in the coordinator's answer, `None` if there is none in time. Returns why the session is gone, if it is.
    pub fn answered(&mut self, now: Duration, status: Option<&PoolStatus>) -> Option<EndCause> {
        let GoneSession { index, incarnation, .. } = self.session;
        let is_it = |gone: &&GoneSession| (gone.index, gone.incarnation) == (index, incarnation);
        let found = status.and_then(|status| status.gone.iter().find(is_it));
        if let (None, Some(silence)) = (found, &mut self.silence) {
            silence.asked(now);
        }
        found.map(|gone| gone.cause)
    }
}

/// Time of the first look, which notes what has been heard of the node: long before that is compared with anything.
const FIRST_HEARD: Duration = Duration::from_millis(100);
