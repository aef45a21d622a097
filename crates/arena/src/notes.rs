//! Notes that go beside a frame, or beside the row of a single lane: the episodes that began, and hashes of states. The
//! records are the caller's, of fixed size; this code checks that they lie in the memory.

use crate::mapping::WORD;
use crate::memory::ALIGNMENT;

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
pub(crate) const BEGAN: u64 = 1;
/// Flag of a note with a hash.
pub(crate) const HASHED: u64 = 2;
