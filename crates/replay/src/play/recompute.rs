//! Recomputing all steps of an action log at once.

use rollhouse_core::{ColumnSpec, EpisodeName, Interruption, LaneSet, Outcome};
use rollhouse_env::Registry;

use crate::code::episode::{Episode, Steps};
use crate::code::frame::Frames;
use crate::play::envs::Envs;
use crate::play::simulate::{SimulateError, Simulator};
use rollhouse_core::ColumnData;

/// An error: the steps of an episode could not be recomputed.
#[derive(Debug, thiserror::Error)]
pub enum RecomputeError {
    /// The env cannot be made or panics.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The recomputed steps differ from the recording.
    #[error("recomputing {name} gives another {field} at step {step} than was recorded")]
    Differs {
        /// The episode.
        name: EpisodeName,
        /// Name of the value that differs: `state` or `return`.
        field: &'static str,
        /// The step at which it was noticed.
        step: u64,
    },
}

impl Episode {
    /// Recomputes the observations, rewards and infos of every step from the start and the actions. The result is what
    /// was recorded: every recorded state hash and the return are compared.
    ///
    /// # Errors
    /// If the env is not there, has changed, panics, or gives something else than was recorded.
    pub fn recompute(&self, registry: &Registry) -> Result<Steps, RecomputeError> {
        let spec = &self.info.run.spec;
        let entry = Envs::from(registry).entry_of(&self.info.run)?;
        let mut simulator = Simulator::of(&entry, spec, &self.info.lane_options(), 1)?;
        simulator.restore(0, self.info.start);
        if simulator.reset(LaneSet::one(0)) != Some(LaneSet::NONE) {
            return Err(SimulateError::Panicked { steps: 0 }.into());
        }
        let (obs, infos) = (spec.obs_columns(), &spec.info_channels);
        let length = self.info.length as usize;
        let mut steps = Steps {
            first_obs: simulator.obs.clone(),
            obs: rows(&obs, length),
            rewards: Vec::with_capacity(length),
            infos: rows(infos, length),
            frames: Frames::default(),
        };
        let mut windows = self.windows.iter().peekable();
        for row in 0..length {
            let age = row as u64 + 1;
            simulator.call(0, self.calls_after(row as u64))?;
            let elements = simulator.action_elements;
            simulator.actions.copy_row(0, &self.actions, row, elements);
            if simulator.step(LaneSet::one(0)).is_none_or(|ended| !ended.lost.is_empty()) {
                if simulator.without_action().has(0) {
                    return Err(simulator.bad_action(0, row as u64).into());
                }
                return Err(SimulateError::Panicked { steps: row as u64 }.into());
            }
            copy_rows(&mut steps.obs, row, &simulator.obs, &obs);
            copy_rows(&mut steps.infos, row, &simulator.infos, infos);
            steps.rewards.push(simulator.rewards[0]);
            let window = windows.next_if(|&&(at, _)| at == age).map(|&(_, hash)| hash);
            let end = self.end_hash.filter(|_| row + 1 == length);
            if window.is_some() || end.is_some() {
                simulator.hash(LaneSet::one(0));
                let hash = simulator.hashes[0];
                if [window, end].into_iter().flatten().any(|recorded| recorded != hash) {
                    return Err(self.differs("state", age));
                }
            }
        }
        self.check_return(&steps.rewards)?;
        Ok(steps)
    }

    /// Checks that these rewards add up to the recorded return.
    pub(crate) fn check_return(&self, rewards: &[f64]) -> Result<(), RecomputeError> {
        // Cancelled by a begin without an end, an episode has no return.
        let cancelled = Outcome::Interrupted(Interruption::Cancelled);
        let known = self.end_hash.is_some() || self.info.outcome != cancelled;
        let sum = rewards.iter().fold(0.0, |sum, reward| sum + reward);
        match self.info.total_reward.filter(|_| known) {
            Some(recorded) if recorded.to_bits() != f64::to_bits(sum) => {
                Err(self.differs("return", self.info.length))
            }
            _ => Ok(()),
        }
    }

    pub(crate) const fn differs(&self, field: &'static str, step: u64) -> RecomputeError {
        RecomputeError::Differs { name: self.info.name, field, step }
    }
}

fn rows(specs: &[ColumnSpec], rows: usize) -> Vec<ColumnData> {
    specs.iter().map(|spec| ColumnData::zeros(spec.dtype, spec.elements() * rows)).collect()
}

fn copy_rows(to: &mut [ColumnData], row: usize, from: &[ColumnData], specs: &[ColumnSpec]) {
    for ((to, from), spec) in to.iter_mut().zip(from).zip(specs) {
        to.copy_row(row, from, 0, spec.elements());
    }
}
