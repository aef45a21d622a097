//! Sleeping until a late lane may have finished, for callers that wait for much else.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::Engine;
use crate::block::Block;
use crate::block::arm;
use crate::error::StepError;

impl Engine {
    /// Returns the descriptor that is readable when a late lane may have finished, or what steps the lanes has to be looked
    /// after. `None` for lanes that finish within the call, for late ones that have none
    /// ([`LateLanes::descriptor`](rollhouse_env::LateLanes::descriptor)), and once every block is lost.
    ///
    /// The engine's lanes own it. It stays the same while they live, whatever is started again meanwhile. Options that an env
    /// keeps for life replace the lanes, and the descriptor with them: ask again after a reset or `set_attr` with options.
    ///
    /// Whoever sleeps without holding the engine sleeps on a duplicate, which is never readable again after the lanes' end.
    /// Nobody reads from it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.crews.own.blocks.iter().find_map(Block::descriptor)
    }

    /// Announces that the caller sleeps on [`Engine::descriptor`] from now on, and looks once more for what it waits for.
    /// Returns the time at which it has to look again at the latest; `now` if that is at once, `None` if nothing is due by
    /// itself. Does not block.
    ///
    /// To look is to call [`Engine::finish`] or [`Engine::recv`], without patience; unless a step or a reset has begun in
    /// parts, also [`Engine::restart_lost`], which restarts lanes whose back-off is over. Any call takes the announcement
    /// back: the last one before the sleep is this one.
    ///
    /// ```text
    /// begin_step ──▶ finish ─ false ─▶ arm ─ later ─▶ sleep on the descriptor, at most until that time
    ///                  ▲                │ now                           │
    ///                  └────────────────┴───────────────────────────────┘
    /// ```
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn arm(&mut self, now: Instant) -> Result<Option<Instant>, StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        if !self.crews.own.late {
            return Ok((self.outstanding() > 0).then_some(now));
        }
        let blocks = &mut self.crews.own.blocks;
        let look = arm(blocks, now);
        let (begun, under_way) = (self.in_parts.is_some(), blocks.iter().any(|block| block.due().is_some()));
        if begun && !under_way {
            return Ok(Some(now));
        }
        // Lanes that wait for a frame come back in the next one.
        let restart = blocks.iter().filter_map(Block::restart_at).min().filter(|_| !begun);
        let restart = restart.map(|since_start| self.clock.at(since_start));
        Ok([look, restart].into_iter().flatten().min())
    }
}
