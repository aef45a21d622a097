//! The names of segments, and where in a folder they lie.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Disk;

/// Returns the folder in which the segments of the folder `dir` lie.
pub(crate) fn segments_dir(dir: &Path) -> PathBuf {
    dir.join("segments")
}

/// Returns the file name of a segment.
pub fn segment_name(number: u64) -> String {
    format!("{number:010}.seg")
}

/// Returns the number in a segment's file name; `None` if no segment has that name.
pub fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 10)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Returns the numbers of a folder's segments, ascending; none if it has no segments folder.
pub(crate) fn segment_numbers(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u64>> {
    let names = match disk.list(&segments_dir(dir)) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
