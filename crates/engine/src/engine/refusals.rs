//! The checks with which an engine refuses a call before anything moves.

use rollhouse_core::limits::BLOCK_LANES;

use super::Engine;
use crate::error::StepError;

impl Engine {
    /// Refuses while lanes are sent that have not been received.
    pub(crate) fn refuse_outstanding(&self) -> Result<(), StepError> {
        let outstanding = self.first_done.as_ref().filter(|books| books.outstanding_lanes > 0);
        match outstanding.and_then(|books| books.outstanding.iter().position(|&sent| sent)) {
            Some(lane) => Err(StepError::LaneOutstanding { lane }),
            None => Ok(()),
        }
    }

    #[cold]
    pub(super) fn refuse_bad_actions(&self) -> Result<(), StepError> {
        // The action of a lane that is reset or stands still is ignored, whatever it is.
        let stepping = |lane: usize| {
            let (status, bit) = (&self.status[lane / BLOCK_LANES], lane % BLOCK_LANES);
            !(status.waiting() | status.lost() | status.retired()).has(bit)
        };
        match self.check.first_bad(self.arena.actions(), stepping) {
            Some(bad) => Err(StepError::Action(bad)),
            None => Ok(()),
        }
    }

    pub(super) fn refuse_waiting(&self) -> Result<(), StepError> {
        let waiting =
            (0..).zip(&self.status).find_map(|(block, status)| Some((block, status.waiting().lowest()?)));
        match waiting {
            Some((block, lane)) => Err(StepError::NeedsReset { lane: block * BLOCK_LANES + lane }),
            None => Ok(()),
        }
    }
}
