//! The generators of a block's lanes, as the host knows them.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{LaneSet, Start};

use super::slot::Slot;

/// What the generators of a block's lanes are to be set to before anything else is done, and where they were when that
/// was last known.
#[derive(Debug)]
pub(super) struct Generators {
    seed: LaneSet,
    restore: LaneSet,
    starts: Box<[Start; BLOCK_LANES]>,
    all: LaneSet,
}

impl Generators {
    /// Makes generators of that many lanes, which were seeded with 0.
    pub(super) fn new(lanes: usize) -> Self {
        let starts = Box::new([Start::seeded(0); BLOCK_LANES]);
        Self { seed: LaneSet::NONE, restore: LaneSet::NONE, starts, all: LaneSet::first(lanes) }
    }

    pub(super) fn seed(&mut self, lane: usize, seed: u64) {
        self.seed.insert(lane);
        self.restore.remove(lane);
        self.starts[lane] = Start::seeded(seed);
    }

    pub(super) fn restore(&mut self, lane: usize, start: Start) {
        self.restore.insert(lane);
        self.seed.remove(lane);
        self.starts[lane] = start;
    }

    /// Returns whether a lane's generator has been set and nothing has drawn from it since.
    pub(super) fn is_set(&self, lane: usize) -> bool {
        (self.seed | self.restore).has(lane)
    }

    /// Returns where a lane's generator was when that was last known.
    pub(super) fn start(&self, lane: usize) -> Start {
        self.starts[lane]
    }

    /// Notes where a lane's generator is.
    pub(super) fn note(&mut self, lane: usize, position: Start) {
        self.starts[lane] = position;
    }

    /// Sets the generators of lanes to where they were when that was last known.
    pub(super) fn set_again(&mut self, lanes: LaneSet) {
        self.restore |= lanes & self.all & !self.seed;
    }

    /// Writes where generators are to be set into the block's slot. Returns the lanes to seed, and those to restore.
    pub(super) fn write(&mut self, slot: Slot<'_>) -> (LaneSet, LaneSet) {
        for lane in self.seed | self.restore {
            slot.put_start(lane, self.starts[lane]);
        }
        (std::mem::take(&mut self.seed), std::mem::take(&mut self.restore))
    }
}
