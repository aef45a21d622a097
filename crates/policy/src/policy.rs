//! The one trait of everything that chooses actions on a node.

use rollhouse_core::{ColumnMut, ColumnRef, DType};

/// Chooses actions for a batch of lanes.
pub trait Policy: Send {
    /// The name recorded with every episode it played.
    fn name(&self) -> &str;

    /// Which version of it acts now; recorded beside the name. Built-in policies stay at 0.
    fn version(&self) -> u64;

    /// Writes one action per lane of the request. Does not allocate and does not block. Equal requests give
    /// equal actions, however a batch is cut into requests.
    ///
    /// # Errors
    /// If the action column is not one of the space the policy was made for; what was written by then is
    /// undefined.
    fn act(&mut self, request: Act<'_>) -> Result<(), ActError>;
}

/// One request for actions: a run of consecutive lanes.
#[derive(Debug)]
pub struct Act<'a> {
    /// The lane of the first row, counted within the run.
    pub first_lane: u32,
    /// How many batch steps were taken before this one.
    pub step: u64,
    /// Observation columns in the spec's order, one row per lane.
    pub obs: &'a [ColumnRef<'a>],
    /// Where the actions go, one row per lane.
    pub actions: ColumnMut<'a>,
}

/// Why a policy could not act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// The action column has another element type.
    #[error("the action column is not of type {wanted}")]
    DType {
        /// What the policy writes.
        wanted: DType,
    },
    /// The action column does not hold a whole number of rows.
    #[error("{given} action elements are not a whole number of actions of {elements}")]
    Rows {
        /// Elements of one action.
        elements: usize,
        /// Elements of the column.
        given: usize,
    },
}

/// Why a policy cannot play in an action space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// An element has no finite bound on one side, so there is no uniform distribution over it.
    #[error("action element {element} ranges over [{low}, {high}], which has no uniform distribution")]
    Unbounded {
        /// Which element, row-major.
        element: usize,
        /// Its lower bound.
        low: f64,
        /// Its upper bound.
        high: f64,
    },
    /// No value of the element's type lies between its bounds.
    #[error("action element {element} has no value in [{low}, {high}]")]
    Empty {
        /// Which element, row-major.
        element: usize,
        /// Its lower bound.
        low: f64,
        /// Its upper bound.
        high: f64,
    },
    /// The space has no value at all, or its bounds and shape disagree.
    #[error("an action space of {elements} elements has {bounds} bounds")]
    Malformed {
        /// Elements its shape calls for.
        elements: usize,
        /// Bounds it has.
        bounds: usize,
    },
}
