//! Notes as the trainer reads them.

use crate::attached::{AttachedArena, TrainerError};
use crate::columns::slot_of;
use crate::header::outputs;
use crate::mapping::WORD;
use crate::notes::{BEGAN, BEGAN_BYTES, HASH_BYTES, HASHED, LaneNote};
use crate::words::Words;

impl AttachedArena {
    /// Copies the records beside the newest frame, one after the other, over `began` and `hashes`. A frame without
    /// records costs one load.
    ///
    /// # Errors
    /// If the node says that there are more than lanes.
    #[inline]
    pub fn frame_notes(&self, began: &mut Vec<u8>, hashes: &mut Vec<u8>) -> Result<(), TrainerError> {
        began.clear();
        hashes.clear();
        let at = self.plan.frame_notes(slot_of(self.frame));
        match self.mapped.outputs.load(at) {
            0 => Ok(()),
            counts => self.copy_notes(at, counts, began, hashes),
        }
    }

    fn copy_notes(
        &self,
        at: usize,
        counts: u64,
        began: &mut Vec<u8>,
        hashes: &mut Vec<u8>,
    ) -> Result<(), TrainerError> {
        let lanes = self.lanes();
        let [episodes, states] = [counts & u64::from(u32::MAX), counts >> 32];
        let most = episodes.max(states);
        if most > lanes as u64 {
            return Err(TrainerError::Answer { word: "notes", value: most, wanted: lanes as u64 });
        }
        began.resize(episodes as usize * BEGAN_BYTES, 0);
        hashes.resize(states as usize * HASH_BYTES, 0);
        self.mapped.outputs.copy_to(at + WORD, began);
        self.mapped.outputs.copy_to(at + WORD + lanes * BEGAN_BYTES, hashes);
        Ok(())
    }

    /// Returns the note beside the row of a lane that [`AttachedArena::wait_lanes`] reported last.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn lane_note(&self, lane: u32) -> LaneNote {
        assert!((lane as usize) < self.lanes(), "lane {lane} is in the batch");
        let at = self.plan.lane_notes(lane as usize);
        let said = self.mapped.outputs.load(at);
        let began = (said & BEGAN != 0).then(|| {
            let mut record = [0; BEGAN_BYTES];
            self.mapped.outputs.copy_to(at + WORD, &mut record);
            record
        });
        LaneNote { began, hash: (said & HASHED != 0).then_some((said >> 32) as u32) }
    }

    /// Returns whether the node is going away, as of its newest answer.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.mapped.outputs.load(outputs::LEAVING.at) != 0
    }
}
