//! The versions of the policy that chose the actions, step by step. Layout: docs/replay-format.md, column 9.

use crate::code::chunk::Part;
use crate::code::codec::{Cursor, Malformed, put_varint};

/// The versions of the policy that chose an episode's actions: runs of steps with the same version.
///
/// A trainer says which version acts ([`BlockRecorder::policy_version`](crate::BlockRecorder::policy_version)). Version
/// 0 stands for steps of which nobody has said it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyVersions {
    /// (steps before, version), ascending in steps, each with another version than the one before. What comes before
    /// the first has version 0.
    runs: Vec<(u64, u64)>,
}

impl PolicyVersions {
    /// Returns the version that chose the action of step `step`, counted from 0.
    pub fn of_step(&self, step: u64) -> u64 {
        let until = self.runs.partition_point(|&(from, _)| from <= step);
        until.checked_sub(1).map_or(0, |at| self.runs[at].1)
    }

    /// Returns (steps before, version) for each step at which the version changes; the first one is 0 steps in, unless
    /// nobody had said a version yet.
    pub fn changes(&self) -> &[(u64, u64)] {
        &self.runs
    }

    /// Returns whether nobody has said which versions acted.
    pub fn is_unknown(&self) -> bool {
        self.runs.is_empty()
    }

    fn add(&mut self, step: u64, version: u64) {
        if self.runs.last().map_or(0, |&(_, last)| last) != version {
            self.runs.push((step, version));
        }
    }

    /// Adds the steps of an episode's part in a chunk. `stepped` has the lanes that stepped in each row, `changes` the
    /// rows from which on another version acts.
    pub(crate) fn take(&mut self, part: &Part, stepped: &[u64], changes: &[(u32, u64)]) {
        let piece = &part.piece;
        if changes.is_empty() {
            return if piece.age > piece.from_age {
                self.add(piece.from_age, 0)
            };
        }
        let (mut age, mut version) = (piece.from_age, 0);
        let mut changes = changes.iter().peekable();
        for (row, lanes) in stepped.iter().enumerate().take(piece.to_row) {
            while let Some(&&(_, next)) = changes.peek().filter(|&&&(at, _)| at as usize <= row) {
                version = next;
                changes.next();
            }
            if row >= piece.from_row && lanes >> piece.lane & 1 == 1 {
                self.add(age, version);
                age += 1;
            }
        }
    }
}

/// Writes the changes of a chunk of `rows` rows; nothing if no version was said.
pub(crate) fn put(out: &mut Vec<u8>, changes: &[(u32, u64)], rows: u32) {
    let mut last = 0;
    for &(row, version) in changes.iter().filter(|&&(row, _)| row < rows) {
        put_varint(out, u64::from(row - last));
        put_varint(out, version);
        last = row;
    }
}

/// Reads the changes of a chunk of `rows` rows.
pub(crate) fn read(bytes: &[u8], rows: u32) -> Result<Vec<(u32, u64)>, Malformed> {
    let mut cursor = Cursor::new(bytes);
    let (mut changes, mut row) = (Vec::new(), 0u64);
    while cursor.left() > 0 {
        let more = cursor.varint("version: row")?;
        let version = cursor.varint("version")?;
        row = row.saturating_add(more);
        if row >= u64::from(rows) || (more == 0 && !changes.is_empty()) {
            return Err(Malformed("version: row"));
        }
        changes.push((row as u32, version));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_changes_behind_the_last_row_are_left_out() {
        let mut bytes = Vec::new();
        put(&mut bytes, &[(0, 3), (7, u64::MAX), (9, 0), (10, 5)], 10);
        assert_eq!(read(&bytes, 10), Ok(vec![(0, 3), (7, u64::MAX), (9, 0)]));
        assert_eq!(read(&[], 10), Ok(Vec::new()));
    }

    #[test]
    fn rows_that_a_chunk_does_not_have_and_rows_twice_are_malformed() {
        let mut bytes = Vec::new();
        put(&mut bytes, &[(4, 1), (5, 2)], 6);
        assert!(read(&bytes, 5).is_err());
        assert!(read(&bytes[..3], 6).is_err());
        assert!(read(&[2, 1, 0, 4], 6).is_err());
    }
}
