//! First-done stepping, in which lanes are sent in sub-batches and received as they are ready.
//!
//! While it lasts the crews keep their turn; lanes travel as messages, gathered copies both ways, so that a
//! lane can be read while its neighbours are being stepped. Going back to lockstep ends the turn.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_arena::{BlockRows, Frame, Patience};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, LaneSet};

use crate::block::{Block, Turn};

/// Rows of some lanes, gathered so that row i of every column belongs to `lanes[i]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Received {
    /// Rows of the batch to which the lanes belong, in the order in which they were ready.
    pub lanes: Vec<u32>,
    /// Observation columns.
    pub obs: Vec<ColumnData>,
    /// Info columns.
    pub infos: Vec<ColumnData>,
    /// Last observations of episodes that ended in this step (SAME_STEP only).
    pub final_obs: Vec<ColumnData>,
    /// Rewards, one for each lane.
    pub rewards: Vec<f64>,
    /// Flags, 1 where the episode terminated.
    pub terminated: Vec<u8>,
    /// Flags, 1 where the episode was truncated.
    pub truncated: Vec<u8>,
    /// Flags, 1 where the row began an episode instead of stepping.
    pub reset: Vec<u8>,
}

/// Lanes of one crew that were sent together.
#[derive(Debug)]
pub(crate) struct Task {
    /// Rows of the batch, ascending.
    pub(crate) lanes: Vec<u32>,
    /// Actions of these lanes, one row for each.
    pub(crate) actions: ColumnData,
    pub(crate) turn: Turn,
}

/// A message to the thread of another crew than the caller's.
#[derive(Debug)]
pub(crate) enum ToCrew {
    /// Step these lanes and leave their rows.
    Step(Task),
    /// Hand over what was recorded, once stepping has paused for so long. It leaves no result.
    HandOver(Duration),
    /// No more tasks come.
    End,
}

/// Channels by which a crew's thread takes tasks and leaves results. Both channels have room for every task that the
/// owner lets be under way, so a crew never waits to leave a result.
pub(crate) struct TaskChannels {
    /// Channel of the tasks. Only the crew's own thread takes from it; the lock is never contended.
    pub(crate) tasks: Mutex<Receiver<ToCrew>>,
    pub(crate) results: SyncSender<(usize, Received)>,
    /// Number of the crew.
    pub(crate) crew: usize,
}

/// The owner's account of everything under way.
#[derive(Debug)]
pub(crate) struct FirstDone {
    /// True for each lane that was sent and not received.
    pub(crate) outstanding: Vec<bool>,
    pub(crate) outstanding_lanes: usize,
    /// Number of sub-batches under way in each crew.
    pub(crate) under_way: Vec<usize>,
    /// Results of the caller's own crew, and the rest of those of others.
    pub(crate) ready: VecDeque<Received>,
}

impl FirstDone {
    pub(crate) fn new(lanes: usize, crews: usize) -> Self {
        Self {
            outstanding: vec![false; lanes],
            outstanding_lanes: 0,
            under_way: vec![0; crews],
            ready: VecDeque::new(),
        }
    }
}

/// Returns the next message, if it comes before `deadline`.
pub(crate) fn receive<T>(from: &Receiver<T>, patience: &mut Patience, deadline: Instant) -> Option<T> {
    let left = || deadline.saturating_duration_since(Instant::now());
    look(from, patience).or_else(|| from.recv_timeout(left()).ok())
}

/// Polls for a message for as long as that is worth it: a wake-up costs more than most tasks.
pub(crate) fn look<T>(from: &Receiver<T>, patience: &mut Patience) -> Option<T> {
    patience.poll(|| from.try_recv().ok())
}

/// Lanes of a task that are in one block.
pub(crate) struct Part {
    /// Index of the block in its crew.
    pub(crate) block: usize,
    /// Lanes of the block.
    pub(crate) lanes: LaneSet,
    /// Column of the block's rows with the actions of these lanes, and zeros elsewhere.
    pub(crate) actions: ColumnData,
}

impl Task {
    /// Returns the task's lanes block by block. `blocks` are those of the crew, one after the other.
    pub(crate) fn parts(&self, blocks: &[Block]) -> Vec<Part> {
        let first_row = blocks.first().map_or(0, |block| block.rows().start);
        let (mut parts, mut from) = (Vec::new(), 0);
        while let Some(&lane) = self.lanes.get(from) {
            let block = (lane as usize - first_row) / BLOCK_LANES;
            let range = blocks[block].rows();
            let to = from + self.lanes[from..].partition_point(|&lane| (lane as usize) < range.end);
            let lanes = &self.lanes[from..to];
            let actions = scatter(self.actions.as_ref(), from..to, self.lanes.len(), lanes, range);
            let lanes = lanes.iter().map(|&lane| lane as usize - range.start).collect();
            parts.push(Part { block, lanes, actions });
            from = to;
        }
        parts
    }
}

/// Returns a column of the block's rows that has the task's rows in their places and zeros elsewhere.
fn scatter(
    actions: ColumnRef<'_>,
    which: std::ops::Range<usize>,
    of: usize,
    lanes: &[u32],
    rows: &std::ops::Range<usize>,
) -> ColumnData {
    let elements = actions.len() / of;
    let mut column = ColumnData::zeros(actions.dtype(), rows.len() * elements);
    for (index, &lane) in which.zip(lanes) {
        let row = lane as usize - rows.start;
        let set = column.set_row(row, elements, actions.slice(index * elements, (index + 1) * elements));
        debug_assert!(set, "a task's rows lie in its block");
    }
    column
}

impl Received {
    pub(crate) fn gather(
        &mut self,
        rows: &BlockRows<'_, '_>,
        lanes: LaneSet,
        range: &std::ops::Range<usize>,
    ) {
        let columns = |buffers: &mut Vec<ColumnData>, columns: &[ColumnMut<'_>]| {
            if buffers.is_empty() {
                buffers.extend(columns.iter().map(|c| ColumnData::zeros(c.as_ref().dtype(), 0)));
            }
            for (buffer, column) in buffers.iter_mut().zip(columns) {
                let elements = column.as_ref().len() / range.len();
                for lane in lanes {
                    append(buffer, column.as_ref().slice(lane * elements, (lane + 1) * elements));
                }
            }
        };
        columns(&mut self.obs, rows.obs);
        columns(&mut self.infos, rows.infos);
        columns(&mut self.final_obs, rows.final_obs);
        for lane in lanes {
            self.lanes.push((range.start + lane) as u32);
            self.rewards.push(rows.rewards[lane]);
            self.terminated.push(rows.terminated[lane]);
            self.truncated.push(rows.truncated[lane]);
            self.reset.push(rows.reset[lane]);
        }
    }

    /// Returns the rows in ascending order of their lanes.
    #[must_use]
    pub fn ascending(self) -> Self {
        if self.lanes.is_sorted() {
            return self;
        }
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        order.sort_unstable_by_key(|&row| self.lanes[row]);
        let columns = |columns: &[ColumnData]| {
            let of = |column: &ColumnData| {
                pick(column.as_ref(), column.as_ref().len() / order.len(), order.iter().copied())
            };
            columns.iter().map(of).collect()
        };
        let flags = |flags: &[u8]| order.iter().map(|&row| flags[row]).collect();
        Self {
            obs: columns(&self.obs),
            infos: columns(&self.infos),
            final_obs: columns(&self.final_obs),
            rewards: order.iter().map(|&row| self.rewards[row]).collect(),
            terminated: flags(&self.terminated),
            truncated: flags(&self.truncated),
            reset: flags(&self.reset),
            lanes: order.iter().map(|&row| self.lanes[row]).collect(),
        }
    }

    /// Returns the rows of all lanes of a frame.
    pub(crate) fn of_frame(frame: &Frame<'_>) -> Self {
        let lanes = frame.reset().len();
        let all = |columns: &[ColumnRef<'_>]| columns.iter().map(|&column| column.into()).collect();
        Self {
            lanes: (0..lanes as u32).collect(),
            obs: all(&frame.obs_columns()),
            infos: all(&frame.info_columns()),
            final_obs: all(&frame.final_obs_columns()),
            rewards: frame.rewards().to_vec(),
            terminated: frame.terminated().to_vec(),
            truncated: frame.truncated().to_vec(),
            reset: frame.reset().to_vec(),
        }
    }

    /// Puts row `from` of another result of the same batch in the place of row `to`.
    pub(crate) fn copy_row(&mut self, to: usize, other: &Self, from: usize) {
        let rows = (self.lanes.len().max(1), other.lanes.len().max(1));
        let columns = |mine: &mut [ColumnData], theirs: &[ColumnData]| {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                let elements = mine.len() / rows.0;
                let copied = mine.copy_row(to, theirs, from, elements);
                debug_assert!(copied, "columns of one place have one type");
            }
        };
        columns(&mut self.obs, &other.obs);
        columns(&mut self.infos, &other.infos);
        columns(&mut self.final_obs, &other.final_obs);
        self.rewards[to] = other.rewards[from];
        self.terminated[to] = other.terminated[from];
        self.truncated[to] = other.truncated[from];
        self.reset[to] = other.reset[from];
    }

    /// Returns the rows at those places, in that order.
    pub(crate) fn picked(&self, places: &[u32]) -> Self {
        let rows = self.lanes.len().max(1);
        let places = || places.iter().map(|&place| place as usize);
        let columns = |columns: &[ColumnData]| {
            columns.iter().map(|column| pick(column.as_ref(), column.len() / rows, places())).collect()
        };
        let flags = |flags: &[u8]| places().map(|place| flags[place]).collect();
        Self {
            lanes: places().map(|place| self.lanes[place]).collect(),
            obs: columns(&self.obs),
            infos: columns(&self.infos),
            final_obs: columns(&self.final_obs),
            rewards: places().map(|place| self.rewards[place]).collect(),
            terminated: flags(&self.terminated),
            truncated: flags(&self.truncated),
            reset: flags(&self.reset),
        }
    }

    /// Forgets that a row ended or began an episode.
    pub(crate) fn forget_flags(&mut self, row: usize) {
        (self.terminated[row], self.truncated[row], self.reset[row]) = (0, 0, 0);
    }

    /// Adds the rows of another result of the same batch.
    pub fn append(&mut self, other: Self) {
        if self.lanes.is_empty() {
            *self = other;
            return;
        }
        let columns = |to: &mut Vec<ColumnData>, from: &[ColumnData]| {
            to.iter_mut().zip(from).for_each(|(to, from)| append(to, from.as_ref()));
        };
        columns(&mut self.obs, &other.obs);
        columns(&mut self.infos, &other.infos);
        columns(&mut self.final_obs, &other.final_obs);
        self.lanes.extend(other.lanes);
        self.rewards.extend(other.rewards);
        self.terminated.extend(other.terminated);
        self.truncated.extend(other.truncated);
        self.reset.extend(other.reset);
    }
}

/// Returns the rows `order` of a column, whose rows have that many elements.
pub(crate) fn pick(column: ColumnRef<'_>, elements: usize, order: impl Iterator<Item = usize>) -> ColumnData {
    let mut picked = ColumnData::zeros(column.dtype(), 0);
    for index in order {
        append(&mut picked, column.slice(index * elements, (index + 1) * elements));
    }
    picked
}

/// Appends the elements of a column of the same type.
fn append(to: &mut ColumnData, from: ColumnRef<'_>) {
    let appended = to.extend(from);
    debug_assert!(appended, "columns of one place have one type");
}
