//! The layout of a run's buffers and chunks: sizes that follow from its spec.

use rollhouse_core::{ColumnData, EnvSpec, SeedSchedule, Space, StepColumns};

use crate::code::codec::append_le;
use crate::code::run::RecordKind;
use crate::code::run_record::RunInfo;
use crate::limits::MAX_PAYLOAD_BYTES;

/// Sizes that follow from a run's spec and decide how its buffers are made and closed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// Coding of the actions.
    pub(crate) actions: ActionCoding,
    /// Kind of the recording: how much of each step the run keeps.
    pub(crate) recorded: RecordKind,
    /// Whether the start of every episode is noted: not when it follows from run seed, lane and number.
    pub(crate) starts: bool,
    /// Bytes of one lane's observation over all columns.
    pub(crate) obs_bytes: usize,
    /// Bytes of one lane's infos over all columns.
    pub(crate) info_bytes: usize,
    /// Row bytes of each observation column.
    pub(crate) obs_columns: Vec<usize>,
    /// Row bytes of each info column.
    pub(crate) info_columns: Vec<usize>,
    /// One row of each step column, of which nobody has noted anything.
    pub(crate) unnoted: Vec<Vec<u8>>,
}

/// The form in which a buffer keeps actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActionCoding {
    /// Integers `start .. start + n` as this many bit planes.
    Planes {
        /// The smallest action.
        start: i64,
        /// ceil(log2 n).
        planes: u32,
    },
    /// Little-endian elements, this many bytes a lane.
    Raw {
        /// Bytes of one lane's action.
        bytes: usize,
    },
}

impl ActionCoding {
    /// Chooses the coding for actions of `space`.
    pub(crate) fn of(space: &Space) -> Self {
        match space {
            Space::Discrete(space) => {
                Self::Planes { start: space.start, planes: 64 - space.n.saturating_sub(1).leading_zeros() }
            }
            Space::Box(space) => Self::Raw { bytes: space.row_bytes() },
        }
    }

    /// Returns the number of bit planes per row.
    pub(crate) const fn planes(self) -> usize {
        match self {
            Self::Planes { planes, .. } => planes as usize,
            Self::Raw { .. } => 0,
        }
    }
}

impl Layout {
    /// Computes the sizes for a run of `spec`.
    pub(crate) fn new(spec: &EnvSpec, recorded: RecordKind, starts: bool) -> Self {
        let obs_columns: Vec<_> = spec.obs_columns().iter().map(|c| c.row_bytes()).collect();
        let info_columns: Vec<_> = spec.info_channels.iter().map(|c| c.row_bytes()).collect();
        Self {
            actions: ActionCoding::of(&spec.action_space),
            recorded,
            starts: starts || recorded.has_observations(),
            obs_bytes: obs_columns.iter().sum(),
            info_bytes: info_columns.iter().sum(),
            obs_columns,
            info_columns,
            unnoted: Vec::new(),
        }
    }

    /// Computes the sizes for a run that is recorded.
    pub(crate) fn of_run(run: &RunInfo) -> Self {
        let starts = run.schedule() == SeedSchedule::Continue;
        Self::new(&run.spec, run.recorded, starts).with_step_columns(&run.step_columns)
    }

    /// Returns the same sizes for a run with step columns.
    pub(crate) fn with_step_columns(self, columns: &StepColumns) -> Self {
        let bytes = |column: &ColumnData| {
            let mut row = Vec::new();
            append_le(&mut row, column.as_ref());
            row
        };
        Self { unnoted: columns.unknown(1).iter().map(bytes).collect(), ..self }
    }

    /// Returns the bytes of one row of all step columns.
    pub(crate) fn noted_bytes(&self) -> usize {
        self.unnoted.iter().map(Vec::len).sum()
    }

    /// Returns the bytes on disk of one row of `lanes` lanes, without ends and hashes.
    pub(crate) fn row_bytes(&self, lanes: usize) -> usize {
        let actions = match self.actions {
            ActionCoding::Planes { planes, .. } => planes as usize * lanes.div_ceil(8),
            ActionCoding::Raw { bytes } => bytes * lanes,
        };
        actions + if self.recorded.has_observations() { self.step_bytes() * lanes } else { 0 }
    }

    /// Returns the bytes that a trace or full recording keeps of one lane-step beside the action.
    pub(crate) const fn step_bytes(&self) -> usize {
        self.obs_bytes + size_of::<f64>() + self.info_bytes
    }

    /// Returns whether one row with a reset of every lane fits a chunk.
    pub(crate) fn fits(&self, lanes: usize) -> bool {
        self.row_bytes(lanes) + 2 * self.obs_bytes * lanes < MAX_PAYLOAD_BYTES / 2
    }
}
