//! The layout of a run's buffers and chunks: sizes that follow from its spec.

use rollhouse_core::{ColumnData, EnvSpec, SeedSchedule, Space, StepColumns};

use crate::code::agents::AgentRewards;
use crate::code::codec::append_le;
use crate::code::packed::Packing;
use crate::code::run::RecordKind;
use crate::code::run_record::RunInfo;
use crate::limits::{
    CHUNK_TARGET_BYTES, MAX_PAYLOAD_BYTES, PACKED_CHUNKS, PACKED_TARGET_BYTES, WIDE_ACTION_BYTES, WIDE_CHUNKS,
};

/// Sizes that follow from a run's spec and decide how its buffers are made and closed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// Coding of the actions.
    pub(crate) actions: ActionCoding,
    /// Kind of the recording: how much of each step the run keeps.
    pub(crate) recorded: RecordKind,
    /// Whether the start of every episode is noted: not when it follows from run seed, lane and number.
    pub(crate) starts: bool,
    /// Bytes of one lane's observation over all columns that are not packed.
    pub(crate) obs_bytes: usize,
    /// Bytes of one lane's infos over all columns that are not packed.
    pub(crate) info_bytes: usize,
    /// Row bytes of each observation column.
    pub(crate) obs_columns: Vec<usize>,
    /// Row bytes of each info column.
    pub(crate) info_columns: Vec<usize>,
    /// How each observation column, then each info column, is packed; `None` if it is recorded as it is.
    pub(crate) packings: Vec<Option<Packing>>,
    /// The observation column that has a reward of each agent, of an env of several.
    pub(crate) agents: Option<AgentRewards>,
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
        let columns = spec.obs_columns().into_iter().chain(spec.info_channels.iter().cloned());
        let packings: Vec<_> = columns.map(|column| Packing::of(&column)).collect();
        let agents = AgentRewards::of(spec).filter(|of| packings[of.column].is_none());
        let (packed_obs, packed_infos) = packings.split_at(obs_columns.len());
        let raw = |bytes: &[usize], packings: &[Option<Packing>]| {
            bytes.iter().zip(packings).filter(|(_, packing)| packing.is_none()).map(|(bytes, _)| bytes).sum()
        };
        Self {
            actions: ActionCoding::of(&spec.action_space),
            recorded,
            starts: starts || recorded.has_observations(),
            obs_bytes: raw(&obs_columns, packed_obs),
            info_bytes: raw(&info_columns, packed_infos),
            obs_columns,
            info_columns,
            packings,
            agents: agents.filter(|_| recorded.has_observations()),
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

    /// Returns how the packed columns are packed; none if observations are not recorded.
    pub(crate) fn packed(&self) -> impl Iterator<Item = &Packing> {
        self.packings.iter().flatten().filter(|_| self.recorded.has_observations())
    }

    /// Returns the bytes of one lane's row over all packed columns.
    pub(crate) fn packed_bytes(&self) -> usize {
        self.packed().map(Packing::row_bytes).sum()
    }

    /// Returns the bytes of packed rows of `lanes` lanes, not compressed, at which a chunk is closed.
    pub(crate) fn packed_target(&self, lanes: usize) -> usize {
        2 * self.packed_bytes() * lanes + PACKED_TARGET_BYTES
    }

    /// Returns the bytes of all columns but the packed ones at which a chunk is closed.
    pub(crate) fn raw_target(&self) -> usize {
        CHUNK_TARGET_BYTES * self.chunks()
    }

    /// Returns what so many bytes of such a column count of [`CHUNK_TARGET_BYTES`].
    pub(crate) fn estimate(&self, bytes: usize) -> u32 {
        (bytes / self.chunks()) as u32
    }

    fn chunks(&self) -> usize {
        let is_log = !self.recorded.has_observations();
        match self.actions {
            _ if self.packed_bytes() > 0 => PACKED_CHUNKS,
            ActionCoding::Raw { bytes } if is_log && bytes >= WIDE_ACTION_BYTES => WIDE_CHUNKS,
            _ => 1,
        }
    }

    /// Returns the bytes on disk of one row of `lanes` lanes, without ends, hashes and packed columns.
    pub(crate) fn row_bytes(&self, lanes: usize) -> usize {
        let actions = match self.actions {
            ActionCoding::Planes { planes, .. } => planes as usize * lanes.div_ceil(8),
            ActionCoding::Raw { bytes } => bytes * lanes,
        };
        actions + if self.recorded.has_observations() { self.step_bytes() * lanes } else { 0 }
    }

    /// Returns the bytes that a trace or full recording keeps of one lane-step beside the action and packed columns.
    pub(crate) const fn step_bytes(&self) -> usize {
        self.obs_bytes + size_of::<f64>() + self.info_bytes
    }

    /// Returns the bytes of memory that what is recorded of one lane-step takes where nothing is coded.
    pub(crate) fn step_memory(&self) -> usize {
        let action = match self.actions {
            ActionCoding::Planes { .. } => size_of::<i64>(),
            ActionCoding::Raw { bytes } => bytes,
        };
        let observed =
            if self.recorded.has_observations() { self.step_bytes() + self.packed_bytes() } else { 0 };
        action + observed + self.noted_bytes()
    }

    /// Returns whether one row with a reset of every lane fits a chunk.
    pub(crate) fn fits(&self, lanes: usize) -> bool {
        let packed = 3 * self.packed_bytes() * lanes;
        let noted = self.noted_bytes() * lanes;
        self.row_bytes(lanes) + 2 * self.obs_bytes * lanes + packed + noted < MAX_PAYLOAD_BYTES / 2
    }
}
