//! Steps and resets of late lanes in parts, for callers that look at something else while lanes are under way.

use std::time::{Duration, Instant};

use rollhouse_core::LaneDeadlines;

use super::Engine;
use crate::block::Turn;
use crate::error::StepError;
use crate::reset::Reset;

impl Engine {
    /// Begins what [`Engine::step`] does; [`Engine::finish`] ends it. Any other call waits until it has ended. Lanes that
    /// finish within the call have ended it when this returns.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn begin_step(&mut self) -> Result<(), StepError> {
        if !self.crews.own.late {
            return self.step().map(drop);
        }
        self.prepare_step()?;
        let exact = self.lost() > 0;
        let (turn, _) = self.clock.begin_batch(self.recording.backlog.is_some(), exact);
        self.arena.start();
        self.crews.own.post_frame(turn);
        self.in_parts = Some(turn);
        Ok(())
    }

    /// Begins what [`Engine::reset`] does, as [`Engine::begin_step`] begins a step.
    ///
    /// # Errors
    /// As [`Engine::reset`].
    pub fn begin_reset(&mut self, reset: &Reset) -> Result<(), StepError> {
        if !self.crews.own.late {
            return self.reset(reset).map(drop);
        }
        let reset = self.prepare_reset(reset)?;
        self.arena.start();
        self.crews.own.post_job(&move |block, rows| block.reset_as(&reset, rows));
        self.in_parts = Some(self.clock.now());
        Ok(())
    }

    /// Waits for at most `patience` until all lanes have done what was begun. Returns whether they have; the newest frame
    /// is theirs then. With nothing begun it returns true.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn finish(&mut self, patience: Duration) -> Result<bool, StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        let Some(turn) = self.in_parts else { return Ok(true) };
        if !self.crews.own.finish(turn, Instant::now() + patience) {
            return Ok(false);
        }
        self.in_parts = None;
        self.wait()?;
        Ok(true)
    }

    /// Ends what was begun, however long it takes.
    #[cold]
    pub(super) fn finish_parts(&mut self) -> Result<(), StepError> {
        while !self.finish(LOOK_AGAIN)? {}
        Ok(())
    }

    /// Notes which late lanes were lost while they did nothing, and makes lost lanes anew whose back-off is over, as the
    /// next step would. They wait for a reset then. Lanes that were sent stay so.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn restart_lost(&mut self) -> Result<(), StepError> {
        let Turn { since_start, .. } = self.clock.now();
        if self.first_done.is_some() && self.crews.own.late {
            self.crews.own.restart(since_start);
            return Ok(());
        }
        self.lockstep()?;
        self.on_blocks(false, move |block, _| block.restart_now(since_start))
    }

    /// Sets the times that a late lane may be under way from now on; see
    /// [`EngineConfig::lane_deadlines`](crate::EngineConfig::lane_deadlines). Lanes that were sent are waited for, and their results
    /// dropped.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn set_lane_deadlines(&mut self, deadlines: LaneDeadlines) -> Result<(), StepError> {
        self.lockstep()?;
        self.config.lane_deadlines = deadlines;
        self.on_blocks(false, move |block, _| block.set_lane_deadlines(deadlines))
    }
}

const LOOK_AGAIN: Duration = Duration::from_secs(1);
