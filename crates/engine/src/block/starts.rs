//! The starts of the next episodes of a block's lanes.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{LaneSet, SeedSchedule, Start};

/// Starts of the lanes' episodes, and what is known of their generators.
pub(crate) struct Starts {
    pub(super) schedule: SeedSchedule,
    /// Number of words that the env draws in every reset, if it says so.
    pub(super) words_per_reset: Option<u32>,
    /// Start of each lane's episode, the newest that was asked for.
    pub(super) of: Box<[Start; BLOCK_LANES]>,
    /// Lanes that have been given a seed.
    pub(super) seeded: LaneSet,
    /// Lanes whose last begin was recorded and whose generator nobody has seeded or moved since. If the env says how
    /// many words a reset draws, the start of their next episode follows from that.
    pub(super) untouched: LaneSet,
    /// Lanes whose starts are noted for observers ([`Engine::watch`](crate::Engine::watch)).
    pub(super) watched: LaneSet,
}

impl Starts {
    pub(crate) fn new(schedule: SeedSchedule, words_per_reset: Option<u32>) -> Self {
        let of = Box::new([Start::default(); BLOCK_LANES]);
        Self {
            schedule,
            words_per_reset,
            of,
            seeded: LaneSet::NONE,
            untouched: LaneSet::NONE,
            watched: LaneSet::NONE,
        }
    }

    /// Returns those of `lanes`, which begin an episode, whose starts somebody needs and that only the env knows.
    #[inline]
    pub(super) fn unknown(&self, lanes: LaneSet, logged: bool, recorded: bool) -> LaneSet {
        if logged {
            lanes
        } else if recorded || !self.watched.is_empty() {
            lanes & (!self.untouched | self.watched)
        } else {
            LaneSet::NONE
        }
    }

    /// Notes that the generators of `lanes` were seeded.
    pub(super) fn seed(&mut self, lanes: LaneSet) {
        self.seeded |= lanes;
        self.untouched &= !lanes;
    }
}
