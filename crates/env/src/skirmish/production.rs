//! What a side produces: three lines, each of one item after the other.

use arrayvec::ArrayVec;

use super::kinds::{Item, Line};
use super::map::Cell;

/// The lines of production of a side.
#[derive(Debug, Clone, PartialEq, Default, Hash)]
pub(crate) struct Production {
    /// Items of each line, the one that is worked on first.
    pub(crate) lines: [ArrayVec<Job, MAX_JOBS>; 3],
    /// Place of the building that was chosen to produce each line's items.
    pub(crate) primary: [Option<u8>; 3],
}

/// Maximum number of items that a line has at a time.
pub(crate) const MAX_JOBS: usize = 8;

/// An item that is produced. It was paid as it was ordered.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub(crate) struct Job {
    pub(crate) item: Item,
    /// Half ticks that are left: with enough power two are done in a tick.
    pub(crate) left: u32,
    /// Where a building is to be placed as soon as it is ready.
    pub(crate) place: Option<Cell>,
}

impl Job {
    pub(crate) const fn new(item: Item, place: Option<Cell>) -> Self {
        Self { item, left: item.ticks() * 2, place }
    }

    pub(crate) const fn is_ready(&self) -> bool {
        self.left == 0
    }

    /// Returns the part that is done, in percent.
    pub(crate) const fn percent(&self) -> i64 {
        let all = self.item.ticks() * 2;
        ((all - self.left) * 100 / all) as i64
    }
}

impl Production {
    pub(crate) fn line(&self, line: Line) -> &ArrayVec<Job, MAX_JOBS> {
        &self.lines[line as usize]
    }

    pub(crate) fn line_mut(&mut self, line: Line) -> &mut ArrayVec<Job, MAX_JOBS> {
        &mut self.lines[line as usize]
    }

    /// Returns all items that are produced, line by line.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.lines.iter().flatten()
    }

    /// Returns the building that is ready to be placed.
    pub(crate) fn ready(&self) -> Option<&Job> {
        self.line(Line::Structures).first().filter(|job| job.is_ready())
    }
}
