//! Manifests, which list the segments of one export. A manifest is written when all segments are there, so that a
//! segment that goes missing later is noticed.

use serde::{Deserialize, Serialize};

use crate::label::{FORMAT, SegmentId};
use crate::limits::MAX_SEGMENTS;

/// The segments of one export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    segments: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    folder: String,
    number: u64,
    crc32c: String,
    bytes: u64,
}

impl Manifest {
    /// Makes an empty manifest.
    pub const fn new() -> Self {
        Self { format: FORMAT, segments: Vec::new() }
    }

    /// Adds a segment of that many bytes.
    pub fn add(&mut self, id: &SegmentId, bytes: u64) {
        let SegmentId { number, folder, crc } = id.clone();
        self.segments.push(Entry { folder, number, crc32c: format!("{crc:08x}"), bytes });
    }

    /// Returns the number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the segments. One whose checksum cannot be read is left out, and then they are fewer than the manifest
    /// says.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.segments.iter().filter_map(|entry| {
            let crc = u32::from_str_radix(&entry.crc32c, 16).ok()?;
            Some(SegmentId { number: entry.number, folder: entry.folder.clone(), crc })
        })
    }

    /// Returns the manifest's name and its text. The same segments give the same name, so that an export that sends
    /// nothing new leaves no further manifest.
    pub(crate) fn encode(&self) -> (String, Vec<u8>) {
        // It consists of plain values: nothing in it can fail to serialise.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        (format!("{MANIFESTS}/{:08x}-{}.json", crc32c::crc32c(&text), self.len()), text)
    }

    /// Reads a manifest of that name, without [`MANIFESTS`] in front; `None` if it is damaged.
    pub(crate) fn decode(name: &str, text: &[u8]) -> Option<Self> {
        let manifest: Self = serde_json::from_slice(text).ok()?;
        let known = manifest.format == FORMAT && manifest.len() <= MAX_SEGMENTS;
        let (of, _) = manifest.encode();
        (known && of == format!("{MANIFESTS}/{name}") && manifest.segments().count() == manifest.len())
            .then_some(manifest)
    }
}

impl Default for Manifest {
    fn default() -> Self {
        Self::new()
    }
}

/// The folder of manifests at a target.
pub(crate) const MANIFESTS: &str = "manifests";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_was_cut_or_changed_anywhere_is_damaged() {
        let mut manifest = Manifest::new();
        for number in 1..4 {
            let id = SegmentId { number, folder: "local-0123abcd".to_owned(), crc: number as u32 };
            manifest.add(&id, 100 * number);
        }
        let (name, text) = manifest.encode();
        let name = name.strip_prefix("manifests/").unwrap();
        assert_eq!(Manifest::decode(name, &text).as_ref(), Some(&manifest));
        assert_eq!(manifest.segments().count(), 3);
        for len in 0..text.len() - 1 {
            assert_eq!(Manifest::decode(name, &text[..len]), None, "{len}");
        }
        for bit in 0..(text.len() - 1) * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::decode(name, &flipped), None, "bit {bit}");
        }
    }
}
