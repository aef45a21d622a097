//! The clocks of live lanes of an owner's, and what its request waits for.

use std::time::{Duration, Instant};

use rollhouse_core::Pace;
use rollhouse_engine::PacedLanes;

use super::mirror::Mirror;
use crate::plan::SessionPlan;

/// Live lanes, and the time since they were made.
#[derive(Debug)]
pub(super) struct Pacing {
    pub(super) lanes: PacedLanes,
    pub(super) zero: Instant,
    /// Lanes for which the request under way waits.
    pub(super) awaited: Vec<u32>,
    /// Lanes whose episodes the request under way begins; all if there are none.
    pub(super) begins: Vec<bool>,
    /// The time until which no tick begins, for a command.
    pub(super) held_until: Option<Instant>,
    /// The frames in memory, once an owner has attached by it.
    pub(super) mirror: Option<Mirror>,
}

impl Pacing {
    pub(super) fn of(plan: &SessionPlan, pace: Pace) -> Self {
        let (spec, engine) = (plan.entry.spec(), &plan.engine);
        let lanes = PacedLanes::new(spec, pace, engine.lanes, engine.autoreset);
        Self {
            lanes,
            zero: Instant::now(),
            awaited: Vec::new(),
            begins: Vec::new(),
            held_until: None,
            mirror: None,
        }
    }

    /// Returns the time by the lanes' clocks.
    pub(super) fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    /// Returns the clocks, and the time by them.
    pub(super) fn clocks(&mut self) -> (&mut PacedLanes, Duration) {
        let now = self.now();
        (&mut self.lanes, now)
    }

    /// Returns whether no tick begins now.
    pub(super) fn is_held(&self) -> bool {
        self.held_until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn begin(&mut self, mask: &[bool]) {
        mask.clone_into(&mut self.begins);
    }
}
