//! The frames that the owner of live lanes reads in memory.

use rollhouse_arena::{
    Arena, ArenaError, ArenaIdent, BatchColumns, DEFAULT_RING_BYTES, Frame, Patience, Share, SharedArena,
};
use rollhouse_core::{ColumnData, ColumnMut};
use rollhouse_engine::Received;
use rollhouse_wire::{Refusal, RefusalCode};

use super::memory::no_memory;
use crate::causes::with_causes;

/// The frames that an owner of live lanes reads, and what it waits for.
#[derive(Debug)]
pub(super) struct Mirror {
    frames: Arena,
    share: Share,
    /// Lanes that were sent one by one and not answered.
    pub(super) sent: Vec<u32>,
}

impl Mirror {
    /// Makes the memory of a session, and the mirror in it.
    pub(super) fn new(
        columns: &BatchColumns,
        lanes: usize,
        ident: ArenaIdent,
    ) -> Result<(SharedArena, Self), Refusal> {
        let made = SharedArena::create(columns, lanes, ident, DEFAULT_RING_BYTES);
        let (memory, placement) = made.map_err(|error| no_memory(&error))?;
        let internal = |error: &ArenaError| Refusal::new(RefusalCode::Internal, with_causes(error));
        let made = Arena::new(columns, lanes, std::slice::from_ref(&(0..lanes)), Patience::NONE, placement);
        let (frames, mut shares) = made.map_err(|error| internal(&error))?;
        let share =
            shares.pop().ok_or_else(|| Refusal::new(RefusalCode::Internal, "an arena of no lanes"))?;
        Ok((memory, Self { frames, share, sent: Vec::new() }))
    }

    /// Copies the rows of all lanes into the next frame.
    pub(super) fn show(&mut self, rows: &Received) {
        self.frames.start();
        if let Some(mut turn) = self.share.begin() {
            turn.with_block(&(0..rows.lanes.len()), |block| {
                let columns = |to: &mut [ColumnMut<'_>], from: &[ColumnData]| {
                    for (to, from) in to.iter_mut().zip(from) {
                        let copied = to.copy_from(from.as_ref());
                        debug_assert!(copied, "both are columns of the same env");
                    }
                };
                columns(block.obs, &rows.obs);
                columns(block.infos, &rows.infos);
                columns(block.final_obs, &rows.final_obs);
                block.rewards.copy_from_slice(&rows.rewards);
                block.terminated.copy_from_slice(&rows.terminated);
                block.truncated.copy_from_slice(&rows.truncated);
                block.reset.copy_from_slice(&rows.reset);
            });
        }
        let ended = self.frames.wait(None);
        debug_assert!(ended.is_ok(), "the turn has ended, and no deadline was set");
    }

    /// Returns the newest frame.
    pub(super) fn frame(&self) -> Frame<'_> {
        self.frames.frame()
    }

    /// Returns the number of the newest frame.
    pub(super) const fn number(&self) -> u64 {
        self.frames.frames()
    }
}
