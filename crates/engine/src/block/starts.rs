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
    /// Lanes that have been given a seed since their last episode began.
    pub(super) fresh: LaneSet,
    /// Lanes with an option that each episode draws, and those that were given others. Their starts are always noted.
    pub(super) drawing: LaneSet,
    /// Lanes that were given options for their next episode, which their env does not have yet.
    pub(super) given: LaneSet,
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
            fresh: LaneSet::NONE,
            drawing: LaneSet::NONE,
            given: LaneSet::NONE,
            watched: LaneSet::NONE,
        }
    }

    /// Returns those of `lanes`, which begin an episode, that need a seed of their own: nobody has seeded them, and they do
    /// not seed themselves or somebody needs to know their starts.
    pub(super) fn unseeded(
        &self,
        lanes: LaneSet,
        seed_themselves: bool,
        logged: bool,
        recorded: bool,
    ) -> LaneSet {
        let needed = if logged || recorded || !seed_themselves { lanes } else { lanes & self.watched };
        needed & !self.seeded
    }

    /// Returns those of `lanes`, which begin an episode, whose starts somebody needs, only the env knows,
    /// and are not noted anyway.
    #[inline]
    pub(super) fn unknown(&self, lanes: LaneSet, logged: bool, recorded: bool) -> LaneSet {
        let lanes = lanes & !self.drawing;
        if logged {
            lanes
        } else if recorded {
            lanes & (!self.untouched | self.watched)
        } else {
            lanes & self.watched
        }
    }

    /// Notes the lanes whose options are drawn. Where resets draw nothing, the start of an episode does not follow from
    /// the one before: [`Starts::next`] tells the episodes of such lanes apart.
    pub(super) fn draw_options(&mut self, lanes: LaneSet) {
        self.drawing = lanes | self.given;
        if !lanes.is_empty() {
            self.words_per_reset = self.words_per_reset.filter(|&words| words > 0);
        }
    }

    /// Returns the start of a lane's next episode, whose generator stands at `position`. An episode that would start
    /// where the one before did starts a word later, so that it does not draw the same options; it happens to envs that
    /// draw nothing.
    pub(super) fn next(&self, lane: usize, position: Start) -> Start {
        let repeated = position == self.of[lane] && !self.fresh.has(lane);
        Start { words: position.words.wrapping_add(repeated.into()), ..position }
    }

    /// Notes that the generators of `lanes` were seeded.
    pub(super) fn seed(&mut self, lanes: LaneSet) {
        self.seeded |= lanes;
        self.fresh |= lanes;
        self.untouched &= !lanes;
    }
}
