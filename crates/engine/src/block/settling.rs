//! Stepping of lanes that finish when they finish.
//!
//! An engine of such lanes has one crew, the caller's: it posts what lanes are to do and collects their rows, while the
//! lanes are stepped elsewhere. In lockstep a frame is complete when every lane has finished or was given up. In
//! first-done mode the caller takes the lanes that have.

use std::time::Instant;

use rollhouse_arena::Rows;

use super::{Block, Turn};
use crate::timings::Laps;

/// Waits until no lane of the blocks is under way, at most until `deadline`, and accounts for each. Returns whether none
/// is.
pub(crate) fn settle(
    blocks: &mut [Block],
    rows: &mut Rows<'_>,
    turn: Turn,
    laps: &mut Laps,
    deadline: Option<Instant>,
) -> bool {
    loop {
        flush(blocks);
        let now = Instant::now();
        note_time(blocks, now);
        for block in &mut *blocks {
            block.linger();
            // All are waited for; which were complete by now does not matter.
            let _ = block.collect(rows, turn, laps);
        }
        let Some(due) = blocks.iter().filter_map(Block::due).min() else { return true };
        // Lanes whose episode has just ended may have been posted again.
        flush(blocks);
        if deadline.is_some_and(|deadline| deadline <= now) {
            blocks.iter_mut().for_each(Block::hand_over_if_due);
            return false;
        }
        wait(blocks, deadline.map_or(due, |deadline| due.min(deadline)));
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

/// Waits until a lane may have finished, at most until `deadline`. Meanwhile blocks hand over what they have recorded: no
/// row closes their chunks while their lanes take long.
pub(crate) fn wait(blocks: &mut [Block], deadline: Instant) {
    let hand_over = blocks.iter().filter_map(Block::hand_over_at).min();
    let until = hand_over.map_or(deadline, |at| at.min(deadline));
    for block in &mut *blocks {
        if block.with_late(|env| env.wait(until)).is_some() {
            break;
        }
    }
    note_time(blocks, Instant::now());
    blocks.iter_mut().for_each(Block::hand_over_if_due);
}

/// Gives the blocks the time.
pub(crate) fn note_time(blocks: &mut [Block], now: Instant) {
    blocks.iter_mut().for_each(|block| block.note_time(now));
}

/// Arms the descriptor of the blocks' lanes. Returns the time at which the caller has to look again at the latest, but for
/// restarts.
pub(crate) fn arm(blocks: &mut [Block], now: Instant) -> Option<Instant> {
    if blocks.iter().any(Block::is_ready) {
        return Some(now);
    }
    let look = blocks.iter_mut().find_map(|block| block.with_late(|env| env.arm(now))).flatten();
    let due = blocks.iter().flat_map(|block| [block.due(), block.hand_over_at()]).flatten();
    due.chain(look).min()
}
