//! The contents of a frame's sidecar.

use std::collections::BTreeMap;

use rollhouse_core::{Began, OptionValue, Start};
use serde::{Deserialize, Serialize};

/// The lanes that a node has to reset, and how, from the owner.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ResetLanes {
    /// One seed (or none) per lane of the session, or empty for none at all.
    #[serde(default)]
    pub seeds: Vec<Option<u64>>,
    /// One byte, 0 or 1, per lane of the session, or empty for all lanes.
    #[serde(default, with = "serde_bytes")]
    pub mask: Vec<u8>,
    /// Options that the lanes have from this reset on: one value for all lanes that are reset, or one per lane of the
    /// session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<OptionValue>>,
    /// Whether the owner adds the options to its log. Only then recorded lanes take any, and answers go on to carry what a log
    /// needs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub kept: bool,
}

/// How a `Send` is to be answered, from the owner.
///
/// The request names all lanes that the owner waits for. Those that an earlier request has named are under way, if no
/// answer had their rows, and are not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SendLanes {
    /// Number of lanes that are to be done before it is answered, or all if fewer are under way; with 0 it is answered at
    /// once.
    #[serde(default)]
    pub min: u32,
}

/// Notes of a node to the owner, beside a batch or rows in which something out of the ordinary happened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes {
    /// Lanes whose env failed and is not back yet. Their row is their last observation, reward 0, truncated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostLane>,
    /// Episodes that began, for owners that keep a log ([`Attach::log`](crate::Attach::log)): 32 bytes each, see
    /// [`began_record`].
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub began: Vec<u8>,
    /// Hashes of the states of lanes whose steps are a multiple of 64, for the same owners: 8 bytes each, see
    /// [`Notes::put_hash`].
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<u8>,
    /// Whether the node is going away: the owner should move the session.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaving: bool,
}

/// Returns the record of an episode that began: lane (bit 31: there is a buffered half) and half, 4 bytes each; number,
/// seed and words drawn, 8 each.
#[inline]
pub fn began_record(began: &Began) -> [u8; BEGAN_BYTES] {
    let Began { lane, number, start } = *began;
    let marked = lane & !HALF | u32::from(start.half.is_some()) << 31;
    let head = u64::from(marked) | u64::from(start.half.unwrap_or(0)) << 32;
    let mut record = [0; BEGAN_BYTES];
    let (words, _) = record.as_chunks_mut();
    words[0] = head.to_le_bytes();
    words[1] = number.to_le_bytes();
    words[2] = start.seed.to_le_bytes();
    words[3] = start.words.to_le_bytes();
    record
}

/// Reads the record of an episode that began.
#[inline]
pub fn began_of(record: &[u8; BEGAN_BYTES]) -> Began {
    let word = |at: usize| u64::from_le_bytes(record.as_chunks().0[at]);
    let (head, number, seed, words) = (word(0), word(1), word(2), word(3));
    let (marked, half) = (head as u32, (head >> 32) as u32);
    let half = (marked & HALF != 0).then_some(half);
    Began { lane: marked & !HALF, number, start: Start { seed, words, half } }
}

impl Notes {
    /// Returns whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.began.is_empty() && self.hashes.is_empty() && !self.leaving
    }

    /// Makes room for that many episodes that began, and hashes.
    pub fn reserve(&mut self, began: usize, hashes: usize) {
        self.began.reserve_exact(began * BEGAN_BYTES);
        self.hashes.reserve_exact(hashes * 8);
    }

    /// Adds an episode that began.
    #[inline]
    pub fn put_began(&mut self, began: &Began) {
        self.began.extend_from_slice(&began_record(began));
    }

    /// Adds the hash of a lane's state: lane and hash, 4 bytes each.
    #[inline]
    pub fn put_hash(&mut self, lane: u32, hash: u32) {
        self.hashes.extend_from_slice(&lane.to_le_bytes());
        self.hashes.extend_from_slice(&hash.to_le_bytes());
    }

    /// Returns the episodes that began; `None` if the bytes are not a whole number of records.
    #[inline]
    pub fn began(&self) -> Option<impl Iterator<Item = Began>> {
        let (records, rest) = self.began.as_chunks::<BEGAN_BYTES>();
        rest.is_empty().then(|| records.iter().map(began_of))
    }

    /// Returns lanes and the hashes of their states; `None` if the bytes are not a whole number of records.
    #[inline]
    pub fn hashes(&self) -> Option<impl Iterator<Item = (u32, u32)>> {
        let (records, rest) = self.hashes.as_chunks::<8>();
        let read = |record: &[u8; 8]| {
            let (words, _) = record.as_chunks::<4>();
            (u32::from_le_bytes(words[0]), u32::from_le_bytes(words[1]))
        };
        rest.is_empty().then(|| records.iter().map(read))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Bytes of the record of an episode that began.
pub const BEGAN_BYTES: usize = 32;

/// The bit in a lane's number that says that there is a buffered half.
const HALF: u32 = 1 << 31;

/// A lane whose env failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLane {
    /// Lane of the session.
    pub lane: u32,
    /// The outcome of its episode, by [`Outcome::code`](rollhouse_core::Outcome::code).
    pub outcome: u8,
}
