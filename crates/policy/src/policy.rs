//! The trait of everything that chooses actions on a node.

use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, DType};

use crate::LaneMemory;

/// A policy, which chooses actions for a batch of lanes.
pub trait Policy: Send {
    /// Returns the name that is recorded with every episode that the policy played.
    fn name(&self) -> &str;

    /// Returns the version of the policy that acts now, which is recorded beside the name. Built-in policies stay at 0.
    fn version(&self) -> u64;

    /// Writes one action for each lane of the request. Does not allocate and does not block. Equal requests give equal
    /// actions, however a batch is cut into requests.
    ///
    /// # Errors
    /// If the action column is not one of the space the policy was made for; what was written by then is
    /// undefined.
    fn act(&mut self, request: Act<'_>) -> Result<(), ActError>;

    /// Returns what it notes of the actions of the last request: a row for each of its lanes, of each column that its model
    /// declares ([`Model::columns`](crate::Model::columns)).
    fn notes(&self) -> &[ColumnData] {
        &[]
    }

    /// Returns the lanes of the last request for which it could choose nothing, ascending, counted within the run. Their rows
    /// have some action of the space, which means nothing.
    fn failed(&self) -> &[u32] {
        &[]
    }

    /// Returns whether what it chooses depends on what a lane has shown before in its episode: then it has to be told of
    /// beginnings ([`Policy::begin`]), and cannot go on with an episode whose beginning it has not seen.
    fn is_recurrent(&self) -> bool {
        false
    }

    /// Says that a lane, counted within the run, begins an episode with what it shows in its next request. Lanes of which
    /// there has been no request begin one in any case.
    fn begin(&mut self, lane: u32) {
        let _ = lane;
    }

    /// Returns what it remembers of lanes; `None` if it is not recurrent.
    fn memory(&self) -> Option<&LaneMemory> {
        None
    }

    /// Takes what another policy has remembered of lanes, in place of what it remembers itself, and goes on with their episodes.
    /// States of another form are forgotten: lanes begin with empty ones.
    fn recall(&mut self, memory: LaneMemory) {
        let _ = memory;
    }
}

/// Request for the actions of consecutive lanes.
#[derive(Debug)]
pub struct Act<'a> {
    /// Lane of the first row, counted within the run.
    pub first_lane: u32,
    /// Number of batch steps that were taken before this one.
    pub step: u64,
    /// Observation columns in the spec's order, with one row for each lane.
    pub obs: &'a [ColumnRef<'a>],
    /// Action mask of each lane, a boolean for each action it may or may not take next; `None` if the env gives none.
    pub mask: Option<&'a [u8]>,
    /// Column into which the actions are written, with one row for each lane.
    pub actions: ColumnMut<'a>,
}

/// Reason for which a policy could not act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// The action column has another element type.
    #[error("the action column is not of type {wanted}")]
    DType {
        /// Element type that the policy writes.
        wanted: DType,
    },
    /// The action column does not hold a whole number of rows.
    #[error("{given} action elements are not a whole number of actions of {elements}")]
    Rows {
        /// Number of elements in one action.
        elements: usize,
        /// Number of elements in the column.
        given: usize,
    },
    /// The action mask has another length.
    #[error("an action mask of {given} booleans, {wanted} are wanted")]
    Mask {
        /// Number of booleans for all lanes of the request.
        wanted: usize,
        /// Number that was given.
        given: usize,
    },
    /// What the policy computed for the lane is no finite number.
    #[error("the policy's outputs are no finite numbers")]
    NotFinite,
}

/// Reason for which a policy cannot play in an action space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// An element has no finite bound on one side, so there is no uniform distribution over it.
    #[error("action element {element} ranges over [{low}, {high}], which has no uniform distribution")]
    Unbounded {
        /// Index of the element, row-major.
        element: usize,
        /// Lower bound of the element.
        low: f64,
        /// Upper bound of the element.
        high: f64,
    },
    /// No value of the element's type lies between its bounds.
    #[error("action element {element} has no value in [{low}, {high}]")]
    Empty {
        /// Index of the element, row-major.
        element: usize,
        /// Lower bound of the element.
        low: f64,
        /// Upper bound of the element.
        high: f64,
    },
    /// The space has no value at all, or its bounds and shape disagree.
    #[error("an action space of {elements} elements has {bounds} bounds")]
    Malformed {
        /// Number of elements for which the shape calls.
        elements: usize,
        /// Number of bounds that the space has.
        bounds: usize,
    },
}
