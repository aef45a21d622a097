//! The arguments of a reset.

use crate::options::LaneOptions;

/// Lanes to reset, and their seeds and options.
#[derive(Debug, Clone, Default)]
pub struct Reset {
    /// Seed of each lane, or empty for none. A lane without a seed draws on, or is seeded by the schedule; a schedule
    /// that seeds every episode takes no other seed.
    pub seeds: Vec<Option<u64>>,
    /// Flag of each lane that is reset, or empty for all lanes. Lanes left out keep their state and observation.
    pub mask: Vec<bool>,
    /// Options that lanes have from this reset on, until they are given others: one value for all lanes that are reset,
    /// or one for each lane of the batch. Recordings have them with the episodes that begin with them.
    pub options: LaneOptions,
}

impl Reset {
    /// Returns whether the lane of that row is reset.
    pub(crate) fn resets(&self, row: usize) -> bool {
        self.mask.get(row).copied().unwrap_or(true)
    }

    /// Resets all lanes without seeds.
    pub fn all() -> Self {
        Self::default()
    }

    /// Resets all lanes, lane i with `seed + i`, as Gymnasium's vector envs do.
    pub fn seeded(seed: u64, lanes: usize) -> Self {
        Self { seeds: (0..lanes as u64).map(|i| Some(seed.wrapping_add(i))).collect(), ..Self::default() }
    }
}
