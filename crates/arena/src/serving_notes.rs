//! Notes as the node writes them.

use crate::columns::slot_of;
use crate::header::outputs;
use crate::mapping::WORD;
use crate::notes::{BEGAN, BEGAN_BYTES, FrameNotes, HASHED, LaneNote};
use crate::serving::ServingEnd;
use crate::words::WordsMut;

impl ServingEnd {
    /// Writes the records beside the frame `frame`, so that they are seen with it. In the steady step that is one word.
    ///
    /// # Panics
    /// If there are more records of a kind than lanes.
    #[inline]
    pub(crate) fn put_frame_notes(&self, frame: u64, notes: &FrameNotes<'_>) {
        let FrameNotes { began, hashes } = notes;
        let at = self.plan.frame_notes(slot_of(frame));
        self.outputs.store(at, began.len() as u64 | (hashes.len() as u64) << 32);
        if began.is_empty() && hashes.is_empty() {
            return;
        }
        let lanes = self.plan.places.lanes;
        assert!(began.len() <= lanes && hashes.len() <= lanes, "at most one record of a kind per lane");
        self.outputs.copy_from(at + WORD, began.as_flattened());
        self.outputs.copy_from(at + WORD + lanes * BEGAN_BYTES, hashes.as_flattened());
    }

    /// Writes the notes beside the rows of those lanes, before [`ServingEnd::answer_lanes`]; one note for each lane.
    ///
    /// # Panics
    /// If a lane is not in the batch.
    pub fn put_lane_notes(&mut self, lanes: &[u32], notes: &[LaneNote]) {
        for (&lane, note) in lanes.iter().zip(notes) {
            assert!((lane as usize) < self.plan.places.lanes, "lane {lane} is in the batch");
            let at = self.plan.lane_notes(lane as usize);
            let began = if note.began.is_some() { BEGAN } else { 0 };
            let hash = note.hash.map_or(0, |hash| HASHED | u64::from(hash) << 32);
            self.outputs.store(at, began | hash);
            if let Some(began) = &note.began {
                self.outputs.copy_from(at + WORD, began);
            }
        }
    }

    /// Sets whether the node is going away, which the trainer learns with the next answer.
    #[inline]
    pub fn show_leaving(&mut self, leaving: bool) {
        if self.leaving != leaving {
            self.leaving = leaving;
            self.outputs.store(outputs::LEAVING.at, u64::from(leaving));
        }
    }
}
