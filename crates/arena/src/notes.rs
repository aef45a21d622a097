//! Notes that go beside a frame, or beside the row of a single lane: the episodes that began, and hashes of states. The
//! records are the caller's, of fixed size; this code checks that they lie in the memory.

use crate::arena::slot_of;
use crate::attached::{AttachedArena, TrainerError};
use crate::header::outputs;
use crate::mapping::WORD;
use crate::memory::ALIGNMENT;
use crate::serving::ServingEnd;
use crate::words::{Words, WordsMut};

/// Records that go beside a frame, of each kind at most one for each lane.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameNotes<'a> {
    /// Records of episodes that began.
    pub began: &'a [[u8; BEGAN_BYTES]],
    /// Records of state hashes.
    pub hashes: &'a [[u8; HASH_BYTES]],
}

/// Note that goes beside the row of a single lane.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaneNote {
    /// Record of the episode that began, if one did.
    pub began: Option<[u8; BEGAN_BYTES]>,
    /// Hash of the lane's state, if it is due.
    pub hash: Option<u32>,
}

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

/// Returns the number of bytes that the records beside one frame take; `None` if it overflows.
pub(crate) fn frame_notes_bytes(lanes: usize) -> Option<usize> {
    let records = lanes.checked_mul(BEGAN_BYTES + HASH_BYTES)?;
    records.checked_add(WORD)?.checked_next_multiple_of(ALIGNMENT)
}

/// Number of bytes in the record of an episode that began.
pub const BEGAN_BYTES: usize = 32;
/// Number of bytes in the record of a hash, which includes its lane.
pub const HASH_BYTES: usize = 8;
/// Number of bytes in the note beside the row of a single lane.
pub(crate) const LANE_NOTE_BYTES: usize = WORD + BEGAN_BYTES;
/// Flag of a note with an episode that began. Flags lie in a note's first word, whose high half is the hash.
const BEGAN: u64 = 1;
const HASHED: u64 = 2;
