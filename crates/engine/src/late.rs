//! Stepping of lanes that finish when they finish.
//!
//! An engine of such lanes has one crew, the caller's: it posts what lanes are to do and collects their rows, while the
//! lanes are stepped elsewhere. In lockstep a frame is complete when every lane has finished or was given up. In
//! first-done mode the caller takes the lanes that have.

use std::time::Instant;

use rollhouse_arena::Rows;

use crate::block::{Block, Turn};
use crate::crew::Crew;
use crate::engine::Engine;
use crate::error::StepError;
use crate::first_done::{Received, Task};
use crate::options::{Change, OptionsError};
use crate::setup::make_envs;
use crate::timings::Laps;

impl Crew {
    /// Steps every lane of the crew once, and waits for all.
    pub(crate) fn step_frame(&mut self, turn: Turn, sampled: bool) {
        let Some(mut rows) = self.share.begin() else { return };
        let mut laps = Laps::start(sampled);
        for block in &mut self.blocks {
            block.post_frame(&mut rows, turn);
        }
        settle(&mut self.blocks, &mut rows, turn, &mut laps);
        drop(rows);
        laps.finish(&mut self.timings);
    }

    /// Posts the lanes of a task.
    pub(crate) fn post_task(&mut self, task: &Task) {
        let Some(mut rows) = self.share.begin() else { return };
        for part in task.parts(&self.blocks) {
            let block = &mut self.blocks[part.block];
            block.post_some(&mut rows, part.actions.as_ref(), part.lanes, task.turn);
        }
        rows.suspend();
        flush(&mut self.blocks);
    }

    /// Returns the rows that are complete by now.
    pub(crate) fn take_ready(&mut self, turn: Turn) -> Received {
        let mut received = Received::default();
        let Some(mut rows) = self.share.begin() else { return received };
        for block in &mut self.blocks {
            let ready = block.collect(&mut rows, turn, &mut Laps::start(false));
            if !ready.is_empty() {
                let range = block.rows().clone();
                rows.with_block(&range, |rows| received.gather(rows, ready, &range));
            }
        }
        rows.suspend();
        flush(&mut self.blocks);
        received
    }

    /// Waits until a lane may have finished or has been under way for too long, at most until `deadline`.
    pub(crate) fn wait_for_any(&mut self, deadline: Instant) {
        let due = self.blocks.iter().filter_map(Block::due).min();
        wait(&mut self.blocks, due.map_or(deadline, |due| due.min(deadline)));
    }

    /// Ends a turn in which lanes were posted: waits for those that are under way, and drops their rows.
    pub(crate) fn end_posting(&mut self, turn: Turn) {
        let Some(mut rows) = self.share.begin() else { return };
        settle(&mut self.blocks, &mut rows, turn, &mut Laps::start(false));
    }
}

impl Engine {
    /// Makes all lanes anew with the options of a change, because their blocks are made together.
    pub(crate) fn change_late_options(&mut self, change: &Change) -> Result<(), StepError> {
        self.lockstep()?;
        let crew = &mut self.crews.own;
        let options = crew.blocks.iter().map(|block| block.options_after(change));
        let options = options.collect::<Result<Vec<_>, OptionsError>>()?;
        let envs = make_envs(&self.entry, self.config.instruction_set, &options.concat());
        let envs = envs.map_err(|error| OptionsError::Make { lane: 0, message: error.to_string() })?;
        let remade = crew.blocks.iter().zip(options).zip(envs);
        let remade = remade.map(|((block, options), env)| block.carried(change, options, env));
        let remade = remade.collect::<Result<Vec<_>, OptionsError>>()?;
        self.end_log()?;
        for (block, remade) in self.crews.own.blocks.iter_mut().zip(remade) {
            block.adopt(remade);
        }
        Ok(())
    }
}

/// Waits until no lane of the blocks is under way, and accounts for each.
pub(crate) fn settle(blocks: &mut [Block], rows: &mut Rows<'_>, turn: Turn, laps: &mut Laps) {
    loop {
        flush(blocks);
        for block in &mut *blocks {
            block.collect(rows, turn, laps);
        }
        let Some(due) = blocks.iter().filter_map(Block::due).min() else { return };
        // Lanes whose episode has just ended may have been posted again.
        flush(blocks);
        wait(blocks, due);
    }
}

fn flush(blocks: &mut [Block]) {
    for block in blocks {
        if block.with_late(|env| env.flush()).is_some() {
            return;
        }
    }
}

fn wait(blocks: &mut [Block], deadline: Instant) {
    for block in blocks {
        if block.with_late(|env| env.wait(deadline)).is_some() {
            return;
        }
    }
}
