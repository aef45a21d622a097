//! Stepping of lanes that finish when they finish.
//!
//! An engine of such lanes has one crew, the caller's: it posts what lanes are to do and collects their rows, while the
//! lanes are stepped elsewhere. In lockstep a frame is complete when every lane has finished or was given up. In
//! first-done mode the caller takes the lanes that have.

use std::time::Instant;

use rollhouse_arena::Rows;

use crate::block::{Block, Turn};
use crate::timings::Laps;

/// Waits until no lane of the blocks is under way, and accounts for each.
pub(crate) fn settle(blocks: &mut [Block], rows: &mut Rows<'_>, turn: Turn, laps: &mut Laps) {
    loop {
        flush(blocks);
        for block in &mut *blocks {
            block.linger();
            block.collect(rows, turn, laps);
        }
        let Some(due) = blocks.iter().filter_map(Block::due).min() else { return };
        // Lanes whose episode has just ended may have been posted again.
        flush(blocks);
        wait(blocks, due);
    }
}

/// Lets the lanes begin that were posted.
pub(crate) fn flush(blocks: &mut [Block]) {
    for block in blocks {
        if block.with_late(|env| env.flush()).is_some() {
            return;
        }
    }
}

/// Waits until a lane may have finished, at most until `deadline`.
pub(crate) fn wait(blocks: &mut [Block], deadline: Instant) {
    for block in blocks {
        if block.with_late(|env| env.wait(deadline)).is_some() {
            return;
        }
    }
}
