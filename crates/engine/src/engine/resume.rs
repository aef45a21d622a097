//! The log of episodes that begin here, and the replay of episodes that began elsewhere.

use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, Past, PastEvent};
use rollhouse_env::BadAction;

use super::{Engine, Log, Stage};
use crate::block::BlockPast;
use crate::error::StepError;
use crate::past::{LogEvent, ResumeError};

impl Engine {
    /// Keeps a log from now on, which [`Engine::take_log`] returns.
    ///
    /// # Errors
    /// [`StepError::Begun`] after the first reset, or once options were set; [`StepError::Hung`].
    pub fn keep_log(&mut self) -> Result<(), StepError> {
        self.lockstep()?;
        if self.stage != Stage::New || self.log == Log::Spoilt {
            return Err(StepError::Begun);
        }
        self.log = Log::Kept;
        self.on_blocks(false, |block, _| block.keep_log(true))
    }

    /// Ends the log, because lanes are changed by other things than their starts and actions, so that a log of those no
    /// longer says what they did.
    pub(crate) fn end_log(&mut self) -> Result<(), StepError> {
        match std::mem::replace(&mut self.log, Log::Spoilt) {
            Log::Kept => self.on_blocks(false, |block, _| block.keep_log(false)),
            Log::Off | Log::Spoilt => Ok(()),
        }
    }

    /// Returns whether a log is kept; it is not once options or states were set.
    pub const fn keeps_log(&self) -> bool {
        matches!(self.log, Log::Kept)
    }

    /// Adds the log of the last reset or step, or of what was sent since, to `out`: the episodes that began and the
    /// hashes that were due, by lane, in the order in which they happened. A log that is not taken before the next
    /// reset or step is lost. Take it when nothing is on its way.
    pub fn take_log(&self, out: &mut Vec<LogEvent>) {
        if self.keeps_log() {
            self.status.iter().for_each(|status| status.take_log(out));
        }
    }

    /// Makes lanes of an engine that has done nothing yet do what they did elsewhere. It may be called several times,
    /// with one part after the other. The lanes then stand where they stood, with everything that belongs to it: steps,
    /// return and number of the open episode, pending autoreset, generator. Everything that is played again is recorded
    /// like anything else, and counted in no statistics. The frame shows the lanes' observations, and no reward and no
    /// flag.
    ///
    /// Takes as long as the env needs for it.
    ///
    /// # Errors
    /// See [`ResumeError`]; the engine is of no further use then.
    pub fn replay(&mut self, past: Vec<Past>) -> Result<(), ResumeError> {
        self.lockstep()?;
        if self.stage == Stage::Playing {
            return Err(StepError::Begun.into());
        }
        let pasts = self.sort_past(past)?;
        self.stage = Stage::Replaying;
        let turn = self.clock.now();
        let shared = Arc::new((Mutex::new(pasts), Mutex::new(None)));
        let of_blocks = Arc::clone(&shared);
        self.on_blocks(true, move |block, rows| {
            let index = block.rows().start / BLOCK_LANES;
            let past = of_blocks.0.lock()[index].take();
            // Every block has one, and its turn once.
            let Some(mut past) = past else { return };
            if let Err(error) = block.replay(rows, &mut past, turn) {
                of_blocks.1.lock().get_or_insert(error);
            }
        })?;
        // Whoever knows the past needs no log of it.
        self.status.iter().for_each(|status| status.clear_log());
        let error = shared.1.lock().take();
        error.map_or(Ok(()), Err)
    }

    /// Has the lane of each row begin with that episode, of an engine that has done nothing yet. Where each episode has a seed of
    /// its own, the lanes then play what they would have played after those before.
    ///
    /// # Errors
    /// [`StepError::Begun`] after the first reset, [`StepError::Hung`].
    pub fn begin_with(
        &mut self,
        number: impl Fn(usize) -> u64 + Send + Sync + 'static,
    ) -> Result<(), StepError> {
        self.lockstep()?;
        if self.stage != Stage::New {
            return Err(StepError::Begun);
        }
        self.on_blocks(false, move |block, _| block.begin_with(&number))
    }

    /// Checks the events and sorts them by block.
    fn sort_past(&self, past: Vec<Past>) -> Result<Vec<Option<BlockPast>>, ResumeError> {
        let elements = self.action.elements();
        // Booleans lie in bytes.
        let dtype = ColumnData::zeros(self.action.dtype, 0).as_ref().dtype();
        let lanes = self.lanes();
        let of_block = |block: usize| BLOCK_LANES.min(lanes - block * BLOCK_LANES);
        let mut pasts: Vec<Option<BlockPast>> = (0..self.status.len())
            .map(|block| Some(BlockPast::new(of_block(block), dtype, elements)))
            .collect();
        for Past { lane, what } in past {
            let lane = lane as usize;
            if lane >= lanes {
                return Err(ResumeError::NoSuchLane { lane, lanes });
            }
            if let PastEvent::Played(played) = &what {
                let column = played.actions.as_ref();
                if column.dtype() != dtype || played.count.checked_mul(elements) != Some(column.len()) {
                    return Err(ResumeError::Column { lane });
                }
                if let Some(bad) = self.check.first_bad(column, |_| true) {
                    return Err(ResumeError::Action(BadAction { lane, ..bad }));
                }
            }
            if let Some(block) = &mut pasts[lane / BLOCK_LANES] {
                block.push(lane % BLOCK_LANES, what);
            }
        }
        Ok(pasts)
    }
}
