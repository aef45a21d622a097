//! Labels: small objects with the facts of one segment at a target.

use std::collections::BTreeSet;
use std::fmt;

use rollhouse_core::RunId;
use rollhouse_replay::{SegmentSummary, SetAside};
use serde::{Deserialize, Serialize};

use crate::error::Flaw;
use crate::limits::MAX_RUNS;

/// The id of a segment: two segments that differ in any byte have different ids, wherever they come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Its number in its folder. It is the first field, so that segments are visited in about the order in which they
    /// were written.
    pub number: u64,
    /// Its folder: the name of its recorder, `-`, and the name of the folder of recordings.
    pub folder: String,
    /// CRC-32C of its bytes.
    pub crc: u32,
}

impl SegmentId {
    /// Returns the name of its recorder and the name of the folder of recordings.
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.folder.rsplit_once('-')
    }

    /// Returns the name of the segment's object.
    pub fn segment_object(&self) -> String {
        format!("{SEGMENTS}/{}/{}.seg", self.folder, self.stem())
    }

    /// Returns the name of the object that lists which of its episodes are set aside.
    pub fn aside_object(&self) -> String {
        format!("{SEGMENTS}/{}/{}.set", self.folder, self.stem())
    }

    /// Returns the name of its label.
    pub fn label_object(&self) -> String {
        format!("{LABELS}/{}/{}.json", self.folder, self.stem())
    }

    fn stem(&self) -> String {
        format!("{:010}-{:08x}", self.number, self.crc)
    }

    /// Returns the segment whose label has that name, without [`LABELS`] in front; `None` if it is not the name of a
    /// label.
    pub(crate) fn of_label(name: &str) -> Option<Self> {
        let (folder, file) = name.split_once('/')?;
        let (number, crc) = file.strip_suffix(".json")?.split_once('-')?;
        let id = Self {
            number: number.parse().ok()?,
            folder: folder.to_owned(),
            crc: u32::from_str_radix(crc, 16).ok()?,
        };
        let known = is_folder(folder) && id.label_object() == format!("{LABELS}/{name}");
        known.then_some(id)
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:010}", self.folder, self.number)
    }
}

/// Returns whether a name may be that of a folder of a store.
fn is_folder(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let spool = name.rsplit_once('-').filter(|(node, _)| !node.is_empty()).map(|(_, spool)| spool);
    name.len() <= MAX_FOLDER_BYTES
        && !name.starts_with('.')
        && name.bytes().all(plain)
        && spool.is_some_and(rollhouse_replay::is_spool_name)
}

/// The facts of a segment that its label has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Version of the label.
    format: u32,
    /// The segment's folder.
    folder: String,
    /// The segment's number.
    number: u64,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// CRC-32C of the segment, as 8 hexadecimal digits.
    crc32c: String,
    /// Length and checksum of the list of episodes that are set aside; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aside: Option<Bytes>,
    /// Number of episodes that ended in it.
    pub episodes: u64,
    /// Wall-clock time at which it was opened, milliseconds since 1970.
    pub opened_ms: u64,
    /// The runs that have something in it, ascending.
    pub runs: Vec<String>,
}

/// Length and checksum of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Bytes {
    bytes: u64,
    crc32c: String,
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc32c: format!("{:08x}", crc32c::crc32c(bytes)) }
    }
}

/// A segment that was found whole: it is decoded, and every checksum is right.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Its id.
    pub id: SegmentId,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its episodes that are set aside.
    pub aside: SetAside,
    /// Number of episodes that ended in it.
    pub episodes: u64,
    opened_ms: u64,
    runs: BTreeSet<RunId>,
}

impl Checked {
    /// Checks the bytes of a segment that should have the number `number` in the folder `folder`. `None` if it is
    /// damaged, not sealed, or has another number.
    pub fn of(folder: &str, number: u64, bytes: Vec<u8>, aside: SetAside) -> Option<Self> {
        let summary = SegmentSummary::of(number, &bytes);
        let runs = summary.runs();
        (summary.is_whole() && runs.len() <= MAX_RUNS).then(|| Self {
            id: SegmentId { number, folder: folder.to_owned(), crc: summary.crc() },
            bytes,
            aside,
            episodes: summary.episodes(),
            opened_ms: summary.opened_ms(),
            runs,
        })
    }
}

impl Label {
    /// Makes the label of a segment.
    pub fn of(checked: &Checked) -> Self {
        let Checked { id, bytes, aside, episodes, opened_ms, runs } = checked;
        Self {
            format: FORMAT,
            folder: id.folder.clone(),
            number: id.number,
            bytes: bytes.len() as u64,
            crc32c: format!("{:08x}", id.crc),
            aside: (!aside.is_empty()).then(|| Bytes::of(&aside.encode())),
            episodes: *episodes,
            opened_ms: *opened_ms,
            runs: runs.iter().map(|run| run.to_string()).collect(),
        }
    }

    /// Returns the text of the label's object.
    pub fn encode(&self) -> Vec<u8> {
        // It consists of plain values: nothing in it can fail to serialise.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads the label of a segment; `None` if it cannot be read, or is another segment's.
    pub fn decode(id: &SegmentId, text: &[u8]) -> Option<Self> {
        let label: Self = serde_json::from_slice(text).ok()?;
        let same = label.format == FORMAT
            && label.folder == id.folder
            && label.number == id.number
            && label.crc32c == format!("{:08x}", id.crc)
            && label.runs.len() <= MAX_RUNS
            // A field whose name was changed would count as absent.
            && label.encode() == text;
        same.then_some(label)
    }

    /// Returns whether some of the segment's episodes are set aside.
    pub const fn has_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Checks the objects to which the label belongs.
    pub(crate) fn check(
        &self,
        id: &SegmentId,
        bytes: Option<Vec<u8>>,
        aside: Option<Vec<u8>>,
    ) -> Result<Checked, Flaw> {
        let object = id.segment_object();
        let bytes = self.check_bytes(&object, (self.bytes, &self.crc32c), bytes)?;
        let aside = match &self.aside {
            None => SetAside::default(),
            Some(labelled) => {
                let object = id.aside_object();
                let bytes = self.check_bytes(&object, (labelled.bytes, &labelled.crc32c), aside)?;
                let damaged = |_| Flaw::Content { object, what: "it is not a list of episodes" };
                SetAside::decode(&bytes).map_err(damaged)?
            }
        };
        let flaw = |what| Flaw::Content { object: id.segment_object(), what };
        let checked = Checked::of(&id.folder, id.number, bytes, aside);
        let checked = checked.ok_or_else(|| flaw("it is not a whole segment with that number"))?;
        if Self::of(&checked) != *self {
            return Err(flaw("its label does not fit what is in it"));
        }
        Ok(checked)
    }

    fn check_bytes(
        &self,
        object: &str,
        (labelled, crc): (u64, &str),
        bytes: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Flaw> {
        let Some(bytes) = bytes else { return Err(Flaw::Missing { object: object.to_owned() }) };
        let found = (bytes.len() as u64, crc32c::crc32c(&bytes));
        let crc = u32::from_str_radix(crc, 16).unwrap_or(!found.1);
        if found != (labelled, crc) {
            let object = object.to_owned();
            return Err(Flaw::Bytes { object, labelled: (labelled, crc), found });
        }
        Ok(bytes)
    }
}

/// The folder of segments at a target.
const SEGMENTS: &str = "segments";
/// The folder of labels at a target.
pub(crate) const LABELS: &str = "labels";
/// The version of labels and manifests.
pub(crate) const FORMAT: u32 = 1;
/// Bytes of a folder's name: the most that a store accepts.
const MAX_FOLDER_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_known_by_the_name_of_its_label_and_by_no_other_name() {
        let id = SegmentId { number: 7, folder: "a-b-0123abcd".to_owned(), crc: 0xBEEF };
        assert_eq!(id.segment_object(), "segments/a-b-0123abcd/0000000007-0000beef.seg");
        assert_eq!(id.label_object(), "labels/a-b-0123abcd/0000000007-0000beef.json");
        assert_eq!(SegmentId::of_label("a-b-0123abcd/0000000007-0000beef.json"), Some(id.clone()));
        assert_eq!(id.parts(), Some(("a-b", "0123abcd")));
        for other in [
            "a-b-0123abcd/7-0000beef.json",
            "a-b-0123abcd/0000000007-0000BEEF.json",
            "a-b-0123abcd/0000000007-0000beef.seg",
            "-0123abcd/0000000007-0000beef.json",
            "a-0123/0000000007-0000beef.json",
            "../x-0123abcd/0000000007-0000beef.json",
            ".x-0123abcd/0000000007-0000beef.json",
            "0000000007-0000beef.json",
        ] {
            assert_eq!(SegmentId::of_label(other), None, "{other}");
        }
    }
}
