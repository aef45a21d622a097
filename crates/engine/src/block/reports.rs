//! What rows of late lanes report of their steps. It is checked, and takes the place of what was posted.

use rollhouse_arena::BlockRows;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, DType, EnvSpec, LaneSet, Role};
use rollhouse_env::{ActionCheck, BadAction};

use super::BlockLanes;

/// The info channels with what rows report, and what is known of the lanes' last reports.
pub(super) struct RowReports {
    /// Number of the channel with the action that was taken, and how such actions are checked.
    action: Option<(usize, ActionCheck)>,
    /// Number of the channel with the version of the policy.
    version: Option<usize>,
    /// Numbers of the step columns of booleans.
    booleans: Vec<usize>,
    /// Version that each lane reported last; 0 if none.
    versions: [u64; BLOCK_LANES],
    /// Whether lanes do again what they did elsewhere.
    pub(super) repeats: bool,
}

/// Reason for which a row that reports what was done is refused. Its lane is lost.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum ReportFault {
    #[error("the action that the lane took is none: {0}")]
    Action(BadAction),
    #[error("the lane took another action than the one that it was given to repeat")]
    NotRepeated,
    #[error("the policy's version went back from {before} to {reported}")]
    Version { before: u64, reported: i64 },
    #[error("step column `{column}` has a boolean of {value}")]
    Boolean { column: String, value: u8 },
}

impl RowReports {
    /// Returns what rows of that env report; `None` if they report nothing that has to be looked at.
    pub(super) fn of(spec: &EnvSpec) -> Option<Box<Self>> {
        let action = spec.action_taken().map(|at| (at, ActionCheck::of(&spec.action_space)));
        let is_boolean = |at: &usize| {
            let channel = &spec.info_channels[*at];
            channel.role == Role::StepColumn && channel.dtype == DType::Bool
        };
        let booleans: Vec<usize> = (0..spec.info_channels.len()).filter(is_boolean).collect();
        let version = spec.channel(Role::PolicyVersion);
        let reports = action.is_some() || version.is_some() || !booleans.is_empty();
        reports
            .then(|| Box::new(Self { action, version, booleans, versions: [0; BLOCK_LANES], repeats: false }))
    }

    /// Forgets what lanes reported whose env is another now.
    pub(super) fn forget(&mut self, lanes: LaneSet) {
        lanes.into_iter().for_each(|lane| self.versions[lane] = 0);
    }

    /// Takes what the row of a lane that stepped reports: its action is put in the place of the one with which it was posted.
    /// Returns the version of the policy; `None` if the row reports none.
    ///
    /// # Errors
    /// [`ReportFault`]; nothing is taken then.
    pub(super) fn take(
        &mut self,
        lane: usize,
        lanes: &BlockLanes,
        columns: &BlockRows<'_, '_>,
        posted: &mut ColumnData,
        spec: &EnvSpec,
    ) -> Result<Option<u64>, ReportFault> {
        let (infos, rows) = (&columns.infos, lanes.count());
        for &at in &self.booleans {
            if let ColumnRef::U8(row) = row_of(&infos[at], lane, rows)
                && let Some(&value) = row.iter().find(|&&value| value > 1)
            {
                return Err(ReportFault::Boolean { column: spec.info_channels[at].path.clone(), value });
            }
        }
        let version = self.version.and_then(|at| infos[at].as_ref().as_i64().map(|versions| versions[lane]));
        let reported = version.filter(|&version| version != 0);
        let version = reported.map(|version| u64::try_from(version).unwrap_or(0));
        if let (Some(version), Some(reported)) = (version, reported)
            && version < self.versions[lane].max(1)
        {
            return Err(ReportFault::Version { before: self.versions[lane], reported });
        }
        if let Some((at, check)) = &self.action {
            let taken = row_of(&infos[*at], lane, rows);
            if let Some(bad) = check.first_bad(taken, |_| true) {
                return Err(ReportFault::Action(BadAction { lane: lanes.row(lane), ..bad }));
            }
            let elements = taken.len();
            let given = posted.as_ref().slice(lane * elements, (lane + 1) * elements);
            if self.repeats && taken.bytes() != given.bytes() {
                return Err(ReportFault::NotRepeated);
            }
            let set = posted.set_row(lane, elements, taken);
            debug_assert!(set, "the channel has the type of actions");
        }
        if let Some(version) = version {
            self.versions[lane] = version;
        }
        Ok(version)
    }
}

fn row_of<'a>(column: &'a ColumnMut<'_>, lane: usize, lanes: usize) -> ColumnRef<'a> {
    let column = column.as_ref();
    let elements = column.len() / lanes;
    column.slice(lane * elements, (lane + 1) * elements)
}
