//! What lanes have shown and done over several steps.

use std::ops::Range;

use rollhouse_arena::{BatchColumns, Frame};
use rollhouse_core::{ColumnData, ColumnRef, ColumnSpec};

/// What lanes have shown and done over several steps, as learners want it: column by column, the rows of all lanes of one step
/// behind those of the step before.
///
/// Columns of what is *shown* (observations and info channels) have the rows of one frame more than there are steps: frame
/// `t` is what the actions of step `t` were chosen from, frame `t + 1` what came of them. All others have a row for each step.
#[derive(Debug, Clone)]
pub struct Fragment {
    pub(crate) lanes: usize,
    /// Steps that there is room for.
    pub(crate) room: usize,
    /// Steps that it has.
    pub(crate) steps: usize,
    pub(crate) obs: Vec<ColumnData>,
    pub(crate) infos: Vec<ColumnData>,
    pub(crate) rewards: Vec<f64>,
    pub(crate) terminated: Vec<u8>,
    pub(crate) truncated: Vec<u8>,
    pub(crate) reset: Vec<u8>,
    pub(crate) lost: Vec<u8>,
    pub(crate) actions: ColumnData,
    pub(crate) versions: Vec<u64>,
    pub(crate) notes: Vec<ColumnData>,
    /// A row of each lane.
    pub(crate) states: Vec<ColumnData>,
    pub(crate) finals: Finals,
}

/// Last observations of episodes that ended in a step which shows the first one of the next episode.
#[derive(Debug, Clone, Default)]
pub struct Finals {
    /// The row of each: its step times the number of lanes, and its lane. Ascending.
    pub rows: Vec<u64>,
    /// Their observations, column by column.
    pub obs: Vec<ColumnData>,
}

/// The columns of a fragment.
#[derive(Debug, Clone)]
pub struct FragmentColumns {
    /// Columns of one frame, with that of the actions.
    pub batch: BatchColumns,
    /// Columns that the policy notes of each step.
    pub notes: Vec<ColumnSpec>,
    /// Columns of what the policy remembers of each lane; `None` if it remembers nothing.
    pub states: Option<Vec<ColumnSpec>>,
}

impl Fragment {
    /// Makes room for `room` steps of so many lanes.
    pub fn new(columns: &FragmentColumns, lanes: usize, room: usize) -> Self {
        let zeros = |frames: usize, spec: &ColumnSpec| {
            ColumnData::zeros(spec.dtype, frames * lanes * spec.elements())
        };
        let shown = |specs: &[ColumnSpec]| specs.iter().map(|spec| zeros(room + 1, spec)).collect();
        let rows = room * lanes;
        let none = |spec: &ColumnSpec| ColumnData::zeros(spec.dtype, 0);
        Self {
            lanes,
            room,
            steps: 0,
            obs: shown(&columns.batch.obs),
            infos: shown(&columns.batch.infos),
            rewards: vec![0.0; rows],
            terminated: vec![0; rows],
            truncated: vec![0; rows],
            reset: vec![0; rows],
            lost: vec![0; rows],
            actions: zeros(room, &columns.batch.action),
            versions: vec![0; rows],
            notes: columns.notes.iter().map(|spec| zeros(room, spec)).collect(),
            states: columns
                .states
                .iter()
                .flatten()
                .map(|spec| ColumnData::zeros(spec.dtype, lanes * spec.elements()))
                .collect(),
            finals: Finals { rows: Vec::new(), obs: columns.batch.obs.iter().map(none).collect() },
        }
    }

    /// Returns the number of lanes.
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the number of steps that it has.
    pub const fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the number of steps that there is room for.
    pub const fn room(&self) -> usize {
        self.room
    }

    /// Returns the bytes that it takes, but for last observations.
    pub fn bytes(&self) -> usize {
        let columns = self.obs.iter().chain(&self.infos).chain(&self.notes).chain([&self.actions]);
        let of_columns: usize = columns.map(|column| column.as_ref().bytes().len()).sum();
        of_columns + self.rewards.len() * (size_of::<f64>() + size_of::<u64>() + FLAGS)
    }

    /// Returns an observation column: steps + 1 frames.
    ///
    /// # Panics
    /// If the env has no such column.
    pub fn obs(&self, column: usize) -> ColumnRef<'_> {
        part(&self.obs[column], self.room + 1, 0..self.steps + 1)
    }

    /// Returns the column of an info channel: steps + 1 frames.
    ///
    /// # Panics
    /// If the env has no such channel.
    pub fn info(&self, channel: usize) -> ColumnRef<'_> {
        part(&self.infos[channel], self.room + 1, 0..self.steps + 1)
    }

    /// Returns the rewards.
    pub fn rewards(&self) -> &[f64] {
        &self.rewards[..self.rows()]
    }

    /// Returns which steps ended an episode: 1 where one did.
    pub fn terminated(&self) -> &[u8] {
        &self.terminated[..self.rows()]
    }

    /// Returns which steps cut an episode off: 1 where one did, also in rows of lanes that were just lost.
    pub fn truncated(&self) -> &[u8] {
        &self.truncated[..self.rows()]
    }

    /// Returns which rows began an episode in place of stepping.
    pub fn reset(&self) -> &[u8] {
        &self.reset[..self.rows()]
    }

    /// Returns which rows are of lanes that are lost.
    pub fn lost(&self) -> &[u8] {
        &self.lost[..self.rows()]
    }

    /// Returns for each row whether the lane has stepped in it: 1 in what a learner may learn from. Rows that began an episode
    /// and rows of lost lanes have 0.
    pub fn valid(&self) -> impl Iterator<Item = u8> {
        self.reset().iter().zip(self.lost()).map(|(&reset, &lost)| u8::from(reset == 0 && lost == 0))
    }

    /// Returns the actions that were taken.
    pub fn actions(&self) -> ColumnRef<'_> {
        part(&self.actions, self.room, 0..self.steps)
    }

    /// Returns the version of the weights that chose each action.
    pub fn versions(&self) -> &[u64] {
        &self.versions[..self.rows()]
    }

    /// Returns what the policy has noted in one of its columns.
    ///
    /// # Panics
    /// If the policy has no such column.
    pub fn note(&self, column: usize) -> ColumnRef<'_> {
        part(&self.notes[column], self.room, 0..self.steps)
    }

    /// Returns what the policy has noted, column by column.
    pub fn notes(&self) -> impl Iterator<Item = ColumnRef<'_>> {
        (0..self.notes.len()).map(|column| self.note(column))
    }

    /// Returns what the policy remembered in one of its states before the first step: a row of each lane, zeros where an episode
    /// begins with that step.
    ///
    /// # Panics
    /// If the policy has no such state.
    pub fn state(&self, column: usize) -> ColumnRef<'_> {
        self.states[column].as_ref()
    }

    /// Returns what the policy remembered before the first step, state by state.
    pub fn states(&self) -> impl Iterator<Item = ColumnRef<'_>> {
        self.states.iter().map(ColumnData::as_ref)
    }

    /// Returns the last observations of episodes that ended in rows which show the next one.
    pub const fn finals(&self) -> &Finals {
        &self.finals
    }

    /// Begins anew, with a frame from which the first actions are chosen.
    ///
    /// # Panics
    /// If the frame has other columns.
    pub fn begin(&mut self, frame: &Frame<'_>) {
        self.steps = 0;
        self.finals.clear();
        self.show(frame);
    }

    /// Takes what a policy remembers of some lanes before the first step: rows of each state.
    ///
    /// # Panics
    /// If the rows are no states of so many lanes.
    pub fn remember(&mut self, lanes: &Range<usize>, states: &[Vec<f32>]) {
        for (column, rows) in self.states.iter_mut().zip(states) {
            let elements = column.len() / self.lanes;
            let mut column = column.as_mut();
            let taken =
                column.slice(lanes.start * elements, lanes.end * elements).copy_from(ColumnRef::F32(rows));
            assert!(taken, "{} numbers of {} lanes", rows.len(), lanes.len());
        }
    }

    /// Takes what a policy has chosen and noted for the next step.
    ///
    /// # Panics
    /// If there is no room for another step, or columns have other lengths.
    pub fn choose(&mut self, actions: ColumnRef<'_>, notes: &[ColumnData], version: u64) {
        let rows = self.steps * self.lanes..(self.steps + 1) * self.lanes;
        self.versions[rows].fill(version);
        put(&mut self.actions, self.room, self.steps, actions);
        for (column, noted) in self.notes.iter_mut().zip(notes) {
            put(column, self.room, self.steps, noted.as_ref());
        }
    }

    /// Takes what came of the step; `lost` says of which lanes it is not known.
    ///
    /// # Panics
    /// If the frame has other columns, or there was no room for another step.
    pub fn step(&mut self, frame: &Frame<'_>, same_step: bool, lost: &[u32]) {
        let (first, lanes) = (self.steps * self.lanes, self.lanes);
        let rows = first..first + lanes;
        self.rewards[rows.clone()].copy_from_slice(frame.rewards());
        self.terminated[rows.clone()].copy_from_slice(frame.terminated());
        self.truncated[rows.clone()].copy_from_slice(frame.truncated());
        self.reset[rows.clone()].copy_from_slice(frame.reset());
        self.lost[rows.clone()].fill(0);
        lost.iter().for_each(|&lane| self.lost[rows.start + lane as usize] = 1);
        if same_step {
            self.keep_finals(frame);
        }
        self.steps += 1;
        self.show(frame);
    }

    /// Takes what lanes that stepped report of the last step: the actions that they took, and the versions of the policy.
    pub(crate) fn report(&mut self, actions: Option<ColumnRef<'_>>, versions: Option<&[i64]>) {
        let first = (self.steps - 1) * self.lanes;
        let elements = self.actions.len() / (self.room * self.lanes);
        for lane in 0..self.lanes {
            let row = first + lane;
            if self.reset[row] | self.lost[row] == 1 {
                continue;
            }
            if let Some(actions) = actions {
                let taken = actions.slice(lane * elements, (lane + 1) * elements);
                let set = self.actions.set_row(row, elements, taken);
                debug_assert!(set, "both are actions of one env");
            }
            if let Some(versions) = versions {
                self.versions[row] = versions[lane].cast_unsigned();
            }
        }
    }

    fn keep_finals(&mut self, frame: &Frame<'_>) {
        let flags = frame.terminated().iter().zip(frame.truncated());
        let ended = flags.enumerate().filter(|(_, (terminated, truncated))| **terminated | **truncated == 1);
        for (lane, _) in ended {
            self.finals.rows.push((self.steps * self.lanes + lane) as u64);
            for (column, kept) in self.finals.obs.iter_mut().enumerate() {
                let last = frame.final_obs(column);
                let elements = last.len() / self.lanes;
                let appended = kept.extend(last.slice(lane * elements, (lane + 1) * elements));
                debug_assert!(appended, "both are observations of one env");
            }
        }
    }

    fn show(&mut self, frame: &Frame<'_>) {
        let (at, frames) = (self.steps, self.room + 1);
        for (column, shown) in self.obs.iter_mut().enumerate() {
            put(shown, frames, at, frame.obs(column));
        }
        for (channel, shown) in self.infos.iter_mut().enumerate() {
            put(shown, frames, at, frame.info(channel));
        }
    }

    pub(crate) const fn rows(&self) -> usize {
        self.steps * self.lanes
    }
}

impl Finals {
    /// Puts them in the order of their rows.
    pub(crate) fn sort(&mut self) {
        if self.rows.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_unstable_by_key(|&at| self.rows[at]);
        let of = self.rows.len();
        for column in &mut self.obs {
            let mut sorted = ColumnData::zeros(column.as_ref().dtype(), 0);
            for &at in &order {
                let appended = sorted.extend(part(column, of, at..at + 1));
                debug_assert!(appended, "both are of one type");
            }
            *column = sorted;
        }
        self.rows.sort_unstable();
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.obs.iter_mut().for_each(ColumnData::clear);
    }
}

/// Flags of a row: terminated, truncated, reset and lost.
const FLAGS: usize = 4;

/// Returns some of the `of` parts of a column, which are of one length.
pub(crate) fn part(column: &ColumnData, of: usize, parts: Range<usize>) -> ColumnRef<'_> {
    let elements = column.len() / of;
    column.as_ref().slice(parts.start * elements, parts.end * elements)
}

/// Writes one of the `of` parts of a column.
fn put(column: &mut ColumnData, of: usize, at: usize, from: ColumnRef<'_>) {
    let elements = column.len() / of;
    let fits = column.set_row(at, elements, from);
    assert!(fits, "a part of {elements} elements, not {}", from.len());
}
