//! The 16-byte header of a data frame.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 1 | flags |
//! | 2 | 2 | zero |
//! | 4 | 4 | number of the request that is made or answered |
//! | 8 | 4 | bytes of columns that follow |
//! | 12 | 4 | bytes of the sidecar that follows them |

use crate::limits::{MAX_FRAME_BYTES, MAX_SIDECAR_BYTES};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 16;

/// The kind of a frame: a request of the owner or an answer of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Owner: begin episodes. The sidecar is a [`ResetLanes`](crate::ResetLanes). Answer: `Batch`.
    Reset = 1,
    /// Owner: step every lane; the columns are one action column of all lanes. Answer: `Batch`.
    Step = 2,
    /// Owner: step some lanes; the columns are their count, their numbers and one action each. Answer: `Rows` of the
    /// same lanes, in ascending order; with a sidecar, which is a [`SendLanes`](crate::SendLanes), of those of them that
    /// are done.
    Send = 3,
    /// Owner: bring lanes to where they stood on another node, by what they did there, see
    /// [`put_past`](crate::put_past). Comes before anything else, in as many parts as it takes. Answer: `Resumed`.
    Resume = 4,
    /// Owner: answer the request with this number, a `Send` with a sidecar, with what is done by now. Nothing follows,
    /// and it has no answer of its own.
    Hasten = 5,
    /// Owner: have the lanes play by the session's policy. The sidecar is a [`PlaySteps`](crate::PlaySteps). Answer:
    /// `Fragment`.
    Play = 6,
    /// Owner: choose actions by this policy from now on. The sidecar is a [`PolicyGiven`](crate::PolicyGiven), the columns are
    /// its file. Answer: `Follows`.
    Policy = 7,
    /// Owner: have the session's policy go on with what another node's has remembered of the lanes. The columns are those of
    /// [`FrameLayout::memory`](crate::FrameLayout::memory). Answer: `Resumed`.
    Memory = 8,
    /// Owner: answer with the newest rows of live lanes at once, which takes nothing away from later answers. With columns,
    /// as of a `Send`, it first puts actions into the lanes' queues. Answer: `Batch`.
    Latest = 9,
    /// Node: the rows of all lanes.
    Batch = 17,
    /// Node: the rows of some lanes, their count and numbers first.
    Rows = 18,
    /// Node: the request was refused and nothing has moved; the sidecar is a [`Refusal`](crate::Refusal).
    Refused = 19,
    /// Node: the lanes stand where they stood. Nothing follows.
    Resumed = 20,
    /// Node: what the lanes have shown and done in some steps; the sidecar is a [`FragmentNotes`](crate::FragmentNotes).
    Fragment = 21,
    /// Node: the lanes' actions are chosen by that policy; the sidecar is a [`PolicyTaken`](crate::PolicyTaken).
    Follows = 22,
}

impl FrameKind {
    /// Returns the request whose answer has the frames that came of this one's: playing is stepping.
    #[must_use]
    pub const fn of_frames(self) -> Self {
        if matches!(self, Self::Play) { Self::Step } else { self }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The frame's kind.
    pub kind: FrameKind,
    /// Flag bits, see [`FrameHeader::FINAL_OBS`].
    pub flags: u8,
    /// Number of the request: the owner counts as [`next_number`](FrameHeader::next_number) does; an answer carries its
    /// request's number.
    pub number: u32,
    /// Bytes of columns.
    pub columns: u32,
    /// Bytes of sidecar.
    pub sidecar: u32,
}

impl FrameHeader {
    /// The flag for frames in which the columns of last observations follow the others: some row of the frame has one.
    pub const FINAL_OBS: u8 = 1;

    /// Returns the number of the request after the one with `number`: the first is 1, and 1 follows the largest.
    pub const fn next_number(number: u32) -> u32 {
        if number == u32::MAX { 1 } else { number + 1 }
    }

    /// Writes the header as bytes.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags;
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.columns.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sidecar.to_le_bytes());
        bytes
    }

    /// Reads a header. Lengths are within their limits afterwards, so that buffers of them may be made.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let kind = match bytes[0] {
            1 => FrameKind::Reset,
            2 => FrameKind::Step,
            3 => FrameKind::Send,
            4 => FrameKind::Resume,
            5 => FrameKind::Hasten,
            6 => FrameKind::Play,
            7 => FrameKind::Policy,
            8 => FrameKind::Memory,
            9 => FrameKind::Latest,
            17 => FrameKind::Batch,
            18 => FrameKind::Rows,
            19 => FrameKind::Refused,
            20 => FrameKind::Resumed,
            21 => FrameKind::Fragment,
            22 => FrameKind::Follows,
            other => return Err(FrameError::Kind(other)),
        };
        let flags = bytes[1];
        if flags & !Self::FINAL_OBS != 0 || bytes[2..4] != [0, 0] {
            return Err(FrameError::Flags { flags, reserved: u16::from_le_bytes([bytes[2], bytes[3]]) });
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self { kind, flags, number: word(4), columns: word(8), sidecar: word(12) };
        if header.columns as usize > MAX_FRAME_BYTES {
            return Err(FrameError::Columns(header.columns));
        }
        if header.sidecar as usize > MAX_SIDECAR_BYTES {
            return Err(FrameError::Sidecar(header.sidecar));
        }
        Ok(header)
    }
}

/// The reason why bytes are not a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame has a kind that this version does not know.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// The header has a flag that this version does not know, or something in the bytes that must be zero.
    #[error("a frame with unknown flags {flags:#04x} or reserved bytes {reserved:#06x}")]
    Flags {
        /// The flags.
        flags: u8,
        /// The bytes that must be zero.
        reserved: u16,
    },
    /// The frame has too many bytes of columns.
    #[error("a frame with {0} bytes of columns, at most {MAX_FRAME_BYTES} allowed")]
    Columns(u32),
    /// The frame has too many bytes of sidecar.
    #[error("a frame with a sidecar of {0} bytes, at most {MAX_SIDECAR_BYTES} allowed")]
    Sidecar(u32),
}
