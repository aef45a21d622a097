//! Fragments of all lanes, put together of parts that several nodes have played.

use std::ops::Range;

use rollhouse_core::{ColumnData, ColumnRef};

use crate::Fragment;

/// What some lanes have shown and done over some steps of a fragment. Each column has the rows of these lanes of one step
/// behind those of the step before.
#[derive(Debug)]
pub struct FragmentPart<'a> {
    /// The first of the steps, counted in the fragment.
    pub at: usize,
    /// Number of steps.
    pub steps: usize,
    /// The lanes.
    pub lanes: Range<usize>,
    /// Observations of the frames that came of the steps, column by column.
    pub obs: Vec<ColumnRef<'a>>,
    /// Info channels of the same frames.
    pub infos: Vec<ColumnRef<'a>>,
    /// Actions that were taken.
    pub actions: ColumnRef<'a>,
    /// What the policy has noted, column by column.
    pub notes: Vec<ColumnRef<'a>>,
    /// Rewards.
    pub rewards: &'a [f64],
    /// Which steps ended an episode.
    pub terminated: &'a [u8],
    /// Which steps cut one off.
    pub truncated: &'a [u8],
    /// Which rows began one in place of stepping.
    pub reset: &'a [u8],
    /// The version of the weights that chose the actions.
    pub version: u64,
    /// Versions that the env has reported in place of that.
    pub versions: Option<&'a [i64]>,
    /// Rows of the part that have last observations.
    pub finals: &'a [u32],
    /// These observations, column by column.
    pub final_obs: Vec<ColumnRef<'a>>,
}

/// Where the rows of a part are in a fragment.
struct Place<'a> {
    of: usize,
    lanes: &'a Range<usize>,
    steps: usize,
}

impl Fragment {
    /// Writes the rows of a part, none of whose lanes is lost. What [`Fragment::steps`] returns stays as it is.
    ///
    /// # Panics
    /// If the part has other columns, or goes beyond the fragment.
    pub fn land(&mut self, part: &FragmentPart<'_>) {
        let place = Place { of: self.lanes, lanes: &part.lanes, steps: part.steps };
        for (column, from) in self.obs.iter_mut().zip(&part.obs) {
            place.put(column, part.at + 1, *from);
        }
        for (column, from) in self.infos.iter_mut().zip(&part.infos) {
            place.put(column, part.at + 1, *from);
        }
        for (column, from) in self.notes.iter_mut().zip(&part.notes) {
            place.put(column, part.at, *from);
        }
        place.put(&mut self.actions, part.at, part.actions);
        place.copy(&mut self.rewards, part.at, part.rewards);
        place.copy(&mut self.terminated, part.at, part.terminated);
        place.copy(&mut self.truncated, part.at, part.truncated);
        place.copy(&mut self.reset, part.at, part.reset);
        let rows = part.steps * part.lanes.len();
        place.copy(&mut self.lost, part.at, &vec![0; rows]);
        let version =
            |row: usize| part.versions.map_or(part.version, |versions| versions[row].cast_unsigned());
        place.copy(&mut self.versions, part.at, &(0..rows).map(version).collect::<Vec<_>>());
        self.land_finals(part);
    }

    fn land_finals(&mut self, part: &FragmentPart<'_>) {
        let lanes = part.lanes.len();
        let row = |&row: &u32| {
            let (step, lane) = (row as usize / lanes, row as usize % lanes);
            ((part.at + step) * self.lanes + part.lanes.start + lane) as u64
        };
        self.finals.rows.extend(part.finals.iter().map(row));
        for (column, from) in self.finals.obs.iter_mut().zip(&part.final_obs) {
            let appended = column.extend(*from);
            debug_assert!(appended, "both are observations of one env");
        }
    }

    /// Says that lanes are lost in a step. `cut` are those whose episode was cut off in it.
    pub fn lose(&mut self, step: usize, lost: impl Iterator<Item = usize>, cut: impl Iterator<Item = usize>) {
        let first = step * self.lanes;
        lost.for_each(|lane| self.lost[first + lane] = 1);
        cut.for_each(|lane| self.truncated[first + lane] = 1);
    }

    /// Fills the rows of lanes of which nothing is known from a step on: the last observation, reward 0, lost, and truncated in
    /// the first row if they were lost `now`.
    pub fn stand_still(&mut self, from: usize, lanes: &Range<usize>, now: bool) {
        let of = self.lanes;
        for column in self.obs.iter_mut().chain(&mut self.infos) {
            let elements = column.len() / ((self.room + 1) * of);
            let rows =
                |frame: usize| (frame * of + lanes.start) * elements..(frame * of + lanes.end) * elements;
            let Range { start, end } = rows(from);
            let last = ColumnData::from(column.as_ref().slice(start, end));
            for frame in from + 1..=self.room {
                let Range { start, end } = rows(frame);
                let copied = column.as_mut().slice(start, end).copy_from(last.as_ref());
                debug_assert!(copied, "both are rows of one column");
            }
        }
        for step in from..self.room {
            let rows = step * of + lanes.start..step * of + lanes.end;
            self.rewards[rows.clone()].fill(0.0);
            self.terminated[rows.clone()].fill(0);
            self.truncated[rows.clone()].fill(u8::from(now && step == from));
            self.reset[rows.clone()].fill(0);
            self.lost[rows].fill(1);
        }
    }

    /// Says that all parts are there: the fragment has all the steps that there is room for.
    pub fn land_all(&mut self) {
        self.steps = self.room;
        self.finals.sort();
    }
}

impl Place<'_> {
    /// Writes the part's rows from a frame or step on.
    fn put(&self, column: &mut ColumnData, at: usize, from: ColumnRef<'_>) {
        let width = from.len() / (self.steps * self.lanes.len());
        for (step, row) in (at..).take(self.steps).enumerate() {
            let start = (row * self.of + self.lanes.start) * width;
            let many = self.lanes.len() * width;
            let fits = column
                .as_mut()
                .slice(start, start + many)
                .copy_from(from.slice(step * many, (step + 1) * many));
            assert!(fits, "a part has the columns of its fragment");
        }
    }

    fn copy<T: Copy>(&self, column: &mut [T], at: usize, from: &[T]) {
        for (rows, row) in from.chunks_exact(self.lanes.len()).zip(at..) {
            let start = row * self.of + self.lanes.start;
            column[start..start + rows.len()].copy_from_slice(rows);
        }
    }
}
