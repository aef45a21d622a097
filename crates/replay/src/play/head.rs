//! The position in an episode that is played: the machine under [`Playback`](crate::Playback) and
//! [`Seeker`](crate::Seeker).

use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, ColumnSpec, LaneSet};
use rollhouse_env::{Ended, LaneBlock};

use crate::code::episode::Episode;
use crate::play::keyframes::Keyframe;
use crate::play::returns::ReturnAt;
use crate::play::simulate::{SimulateError, Simulator};

/// A position in an episode. It does not hold the episode: the caller gives the same one to each method.
///
/// Observations and rewards come from the recording where it has them, else from the simulator.
#[derive(Debug)]
pub(crate) struct Head {
    simulator: Option<Box<Simulator>>,
    obs_columns: Vec<ColumnSpec>,
    action: ColumnSpec,
    /// Steps taken; `None` before the reset.
    at: Option<u64>,
    reward: f64,
    total_reward: f64,
}

/// One step of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedStep {
    /// Number of the step; 0 is the reset.
    pub t: u64,
    /// The action of this step: one row of the action column; `None` for step 0.
    pub action: Option<ColumnData>,
    /// Reward of this step; `None` for step 0.
    pub reward: Option<f64>,
    /// Sum of the rewards up to this step.
    pub total_reward: f64,
    /// Observation after the action: one row of each column.
    pub obs: Vec<ColumnData>,
    /// Infos of the step: one row of each info channel; empty for step 0, and where they are not known.
    pub infos: Vec<ColumnData>,
    /// Whether the env reached a terminal state in this step.
    pub terminated: bool,
    /// Whether a limit ended the episode at this step.
    pub truncated: bool,
    /// Exact state; `None` where the env does not show it.
    pub state: Option<Vec<f64>>,
}

/// A step that was just taken, as `each` of [`Head::advance`] sees it.
pub(crate) struct Taken<'a> {
    /// Number of the step; the first is 1.
    pub(crate) t: u64,
    pub(crate) reward: f64,
    /// The return up to this step.
    pub(crate) total_reward: f64,
    /// The env that took the step, and the flags it gave; `None` where nothing is simulated.
    pub(crate) env: Option<(&'a dyn LaneBlock, Ended)>,
    /// The simulated observation's columns; none where it is recorded.
    pub(crate) obs: &'a [ColumnMut<'a>],
}

impl Head {
    /// Makes a position before the reset. The simulator, if there is one, has one lane.
    pub(crate) fn new(episode: &Episode, simulator: Option<Box<Simulator>>) -> Self {
        let spec = &episode.info.run.spec;
        Self {
            simulator,
            obs_columns: spec.obs_columns(),
            action: spec.action_column(),
            at: None,
            reward: 0.0,
            total_reward: 0.0,
        }
    }

    /// Returns the steps taken; `None` before the reset.
    pub(crate) const fn at(&self) -> Option<u64> {
        self.at
    }

    pub(crate) const fn simulator(&self) -> Option<&Simulator> {
        match &self.simulator {
            Some(simulator) => Some(simulator),
            None => None,
        }
    }

    /// Moves to step 0.
    pub(crate) fn begin(&mut self, episode: &Episode) -> Result<(), SimulateError> {
        self.at = None;
        if let Some(simulator) = &mut self.simulator {
            simulator.restore(0, episode.info.start);
            if simulator.reset(LaneSet::one(0)) != Some(LaneSet::NONE) {
                return Err(SimulateError::Panicked { steps: 0 });
            }
            if let Some(from) = &episode.from
                && !simulator.go_on_from(from)
            {
                return Err(SimulateError::State { env: episode.info.run.spec.id.clone() });
            }
        }
        let total_reward = episode.from.as_ref().map_or(0.0, |from| from.total_reward);
        (self.at, self.reward, self.total_reward) = (Some(0), 0.0, total_reward);
        Ok(())
    }

    /// Moves to a keyframe; there is no observation until a step has been taken. Returns false if the env did not come
    /// into exactly the state that was kept.
    pub(crate) fn resume(&mut self, episode: &Episode, keyframe: &Keyframe) -> Result<bool, SimulateError> {
        // Only a lane that was reset may be stepped, and one in a terminal state has to be.
        self.begin(episode)?;
        let Some(simulator) = &mut self.simulator else { return Ok(false) };
        if !simulator.resume(keyframe) {
            self.at = None;
            return Ok(false);
        }
        (self.at, self.total_reward) = (Some(keyframe.at), keyframe.total_reward);
        Ok(true)
    }

    /// Moves to a step whose return is known, in a recording that has all steps. Returns false where an env is
    /// simulated beside it.
    pub(crate) fn resume_recorded(
        &mut self,
        episode: &Episode,
        known: ReturnAt,
    ) -> Result<bool, SimulateError> {
        self.begin(episode)?;
        if self.simulator.is_some() {
            return Ok(false);
        }
        (self.at, self.total_reward) = (Some(known.at), known.total_reward);
        Ok(true)
    }

    /// Moves forward to step `to`, which is neither before the position nor past the end, and shows each step on the
    /// way. Allocates nothing for a step.
    pub(crate) fn advance(
        &mut self,
        episode: &Episode,
        to: u64,
        mut each: impl FnMut(&Taken<'_>),
    ) -> Result<(), SimulateError> {
        let Some(at) = self.at else { return Ok(()) };
        let rewards = episode.steps.as_ref().map(|steps| &*steps.rewards);
        let (mut t, mut last, mut total_reward) = (at, self.reward, self.total_reward);
        let mut take =
            |row: usize, simulated: f64, env: Option<(&dyn LaneBlock, Ended)>, obs: &[ColumnMut<'_>]| {
                last = rewards.map_or(simulated, |rewards| rewards.get(row).copied().unwrap_or(0.0));
                total_reward += last;
                t += 1;
                // Of a recording that has observations, those count.
                each(&Taken {
                    t,
                    reward: last,
                    total_reward,
                    env,
                    obs: if rewards.is_some() { &[] } else { obs },
                });
            };
        let (from, end) = (at as usize, to as usize);
        let done = match &mut self.simulator {
            None => {
                (from..end).for_each(|row| take(row, 0.0, None, &[]));
                Ok(())
            }
            Some(simulator) => simulator.run(episode, from..end, |row, reward, env, ended, obs| {
                take(row, reward, Some((env, ended)), obs);
            }),
        };
        if let Err(error) = done {
            self.at = None;
            return Err(error);
        }
        (self.at, self.reward, self.total_reward) = (Some(t), last, total_reward);
        Ok(())
    }

    pub(crate) fn obs_columns(&self) -> &[ColumnSpec] {
        &self.obs_columns
    }

    /// Appends the observation of the reset, which is the current position, to columns of rows.
    pub(crate) fn append_row(&self, episode: &Episode, to: &mut [ColumnData]) {
        let row = match (&episode.steps, &self.simulator) {
            (Some(steps), _) => &steps.first_obs,
            (None, Some(simulator)) => &simulator.obs,
            (None, None) => return,
        };
        for (column, row) in to.iter_mut().zip(row) {
            // Both are of the columns of the recorded spec.
            let appended = column.extend(row.as_ref());
            debug_assert!(appended);
        }
    }

    /// Returns a column of the observation at the current step. Not to be called right after [`Head::resume`].
    pub(crate) fn obs_row<'a>(&'a self, episode: &'a Episode, column: usize) -> Option<ColumnRef<'a>> {
        match (&episode.steps, &self.simulator, self.at?) {
            (Some(steps), _, 0) => steps.first_obs.get(column).map(ColumnData::as_ref),
            (Some(steps), _, t) => {
                let elements = self.obs_columns.get(column)?.elements();
                steps.obs.get(column)?.row(t as usize - 1, elements)
            }
            (None, Some(simulator), _) => simulator.obs.get(column).map(ColumnData::as_ref),
            (None, None, _) => None,
        }
    }

    /// Returns a row of each info channel at the current step; zeros at the reset, which has no infos.
    pub(crate) fn infos(&self, episode: &Episode) -> Vec<ColumnData> {
        let channels = &episode.info.run.spec.info_channels;
        match (&episode.steps, &self.simulator, self.at) {
            (_, _, None | Some(0)) | (None, None, _) => {
                channels.iter().map(|channel| ColumnData::zeros(channel.dtype, channel.elements())).collect()
            }
            (Some(steps), _, Some(t)) => rows_of(&steps.infos, channels, t as usize - 1),
            (None, Some(simulator), _) => rows_of(&simulator.infos, channels, 0),
        }
    }

    /// Returns the current step. Not to be called right after [`Head::resume`], nor before the reset.
    pub(crate) fn shown(&self, episode: &Episode) -> PlayedStep {
        let t = self.at.unwrap_or(0);
        let row = (t as usize).checked_sub(1);
        let obs = match (&episode.steps, &self.simulator, row) {
            (Some(steps), _, None) => steps.first_obs.clone(),
            (Some(steps), _, Some(row)) => rows_of(&steps.obs, &self.obs_columns, row),
            (None, Some(simulator), _) => rows_of(&simulator.obs, &self.obs_columns, 0),
            (None, None, _) => Vec::new(),
        };
        let action = row.map(|row| {
            let elements = self.action.elements();
            let mut action = ColumnData::zeros(self.action.dtype, elements);
            action.copy_row(0, &episode.actions, row, elements);
            action
        });
        let channels = &episode.info.run.spec.info_channels;
        let infos = match (&episode.steps, &self.simulator, row) {
            (Some(steps), _, Some(row)) => rows_of(&steps.infos, channels, row),
            (None, Some(simulator), Some(_)) => rows_of(&simulator.infos, channels, 0),
            (_, _, None) | (None, None, _) => Vec::new(),
        };
        let info = &episode.info;
        let (terminated, truncated) =
            if t == info.length && t > 0 { info.outcome.flags() } else { (false, false) };
        PlayedStep {
            t,
            action,
            reward: row.map(|_| self.reward),
            total_reward: self.total_reward,
            obs,
            infos,
            terminated,
            truncated,
            state: self.simulator.as_ref().and_then(|simulator| simulator.state(0)),
        }
    }
}

fn rows_of(columns: &[ColumnData], specs: &[ColumnSpec], row: usize) -> Vec<ColumnData> {
    let rows = columns.iter().zip(specs).map(|(column, spec)| {
        let mut out = ColumnData::zeros(spec.dtype, spec.elements());
        out.copy_row(0, column, row, spec.elements());
        out
    });
    rows.collect()
}
