//! This module reads and writes what a store notes of its segments that are kept in an archive: the file `archived`
//! beside its folders.
//!
//! ```text
//! target <TARGET>
//! <folder> <number> <CRC-32C of the segment> <its bytes>
//! ```
//!
//! Each is a line with a checksum ([`lines`](crate::stored::lines)). A line is durable before the segment may be removed here, so
//! that one which has a line and no file is in the archive, and nothing is missing without being named.

use std::path::Path;

use crate::disk::Disk;
use crate::disk_error::DiskError;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::stored::lines::Lines;

/// A segment that an archive has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchivedSegment {
    /// Name of the segment's folder in the store.
    pub folder: String,
    /// Number of the segment in that folder.
    pub number: u64,
    /// CRC-32C over all bytes of the segment.
    pub crc: u32,
    /// Length of the segment in bytes.
    pub bytes: u64,
}

/// The list of the segments that a store has in its archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archived {
    /// The archive, as the file names it; empty if that is not known.
    pub target: String,
    /// The segments it has, each once.
    pub segments: Vec<ArchivedSegment>,
    /// Whether the file was there and intact, so that `segments` misses none.
    pub whole: bool,
}

impl ArchivedSegment {
    /// Returns the text of the segment's line in the file.
    pub fn line(&self) -> String {
        let Self { folder, number, crc, bytes } = self;
        format!("{folder} {number} {crc:08x} {bytes}")
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let (folder, number, crc, bytes) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            folder: folder.to_owned(),
            number: number.parse().ok()?,
            crc: u32::from_str_radix(crc, 16).ok()?,
            bytes: bytes.parse().ok()?,
        })
    }
}

impl Archived {
    /// Reads what the store in the folder `dir` says. Blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, DiskError> {
        let read = Lines::new(dir, ARCHIVED).read(disk)?;
        let mut archived = Self { whole: read.whole, ..Self::default() };
        for (_, line) in read.lines {
            match line.strip_prefix(TARGET) {
                Some(target) => target.clone_into(&mut archived.target),
                None => archived.segments.extend(ArchivedSegment::of_line(&line)),
            }
        }
        archived.segments.sort_unstable();
        archived.segments.dedup();
        Ok(archived)
    }

    /// Returns the line that names the archive.
    pub fn target_line(target: &str) -> String {
        format!("{TARGET}{target}")
    }
}

/// Checks that no folder that was opened lacks a segment which the store at `dir` has only in an archive.
pub(crate) fn none_is_away(disk: &dyn Disk, dir: &Path, opened: &[&Replays]) -> Result<(), ReadError> {
    let archived = Archived::read(disk, dir).map_err(ReadError::Disk)?;
    let is_here = |segment: &&ArchivedSegment| {
        let name = Some(segment.folder.as_ref());
        let mut folders = opened.iter().filter(|folder| folder.dir().file_name() == name);
        folders.any(|folder| folder.segments.contains_key(&segment.number))
    };
    let away = archived.segments.iter().filter(|segment| !is_here(segment)).count();
    match away {
        0 => Ok(()),
        away => Err(ReadError::Archived { dir: dir.into(), segments: away as u64, target: archived.target }),
    }
}

/// Name of the file in the store's folder.
pub const ARCHIVED: &str = "archived";
const TARGET: &str = "target ";
