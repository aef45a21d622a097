//! The origin of a forked episode.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{EpisodeName, RunId};

/// Episode from which another one was forked, and the step up to which both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Parent {
    /// High and low half of the parent's run id.
    run: (u64, u64),
    /// Lane in which the parent was played.
    pub lane: u32,
    /// Number of the parent in its lane.
    pub number: u64,
    /// Last step that the fork has in common with its parent; 0 is the reset.
    pub step: u64,
}

impl Parent {
    /// Names episode `number` of `lane` of `run`, at step `step`.
    pub const fn new(run: RunId, lane: u32, number: u64, step: u64) -> Self {
        let bits = run.as_u128();
        Self { run: ((bits >> 64) as u64, bits as u64), lane, number, step }
    }

    /// Returns the id of the parent's run.
    pub const fn run(&self) -> RunId {
        RunId::from_u128((self.run.0 as u128) << 64 | self.run.1 as u128)
    }

    /// Returns the parent's name.
    pub const fn name(&self) -> EpisodeName {
        EpisodeName { run: self.run().short(), lane: self.lane, number: self.number }
    }
}

/// Prints the parent like `k3f9q2tz-17-203 at step 120`.
impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at step {}", self.name(), self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_keeps_the_whole_id_of_its_run_and_prints_the_name_and_the_step() {
        let run = RunId::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let parent = Parent::new(run, 17, 203, 120);
        assert_eq!(parent.run(), run);
        let name = EpisodeName { run: run.short(), lane: 17, number: 203 };
        assert_eq!(parent.to_string(), format!("{name} at step 120"));
    }
}
