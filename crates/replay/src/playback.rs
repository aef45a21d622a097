//! Going through an episode step by step: recomputed from an action log, read from a full recording.

use rollhouse_core::ColumnSpec;
use rollhouse_env::Registry;

use crate::episode::{Episode, Steps};
use crate::run::RecordKind;
use crate::simulate::{SimulateError, Simulator};
use rollhouse_core::ColumnData;

/// An episode being gone through. Step 0 is what the reset gave; step t is what the t-th action gave.
#[derive(Debug)]
pub struct Playback<'a> {
    episode: &'a Episode,
    obs_columns: Vec<ColumnSpec>,
    action_elements: usize,
    source: Source<'a>,
    /// Steps given so far; `None` before step 0.
    at: Option<u64>,
}

#[derive(Debug)]
enum Source<'a> {
    Simulated(Box<Simulator>),
    Recorded(&'a Steps),
}

/// One step of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedStep {
    /// Which step; 0 is the reset.
    pub t: u64,
    /// The action that led here: one row of the action column; `None` for step 0.
    pub action: Option<ColumnData>,
    /// What it gave.
    pub reward: Option<f64>,
    /// The observation after it: one row of each column.
    pub obs: Vec<ColumnData>,
    /// Whether the env reached a terminal state here.
    pub terminated: bool,
    /// Whether a limit cut the episode here.
    pub truncated: bool,
    /// The exact state, where the env shows it.
    pub state: Option<Vec<f64>>,
}

impl<'a> Playback<'a> {
    /// Starts before step 0.
    ///
    /// # Errors
    /// If the env is needed and cannot be made.
    pub fn new(registry: &Registry, episode: &'a Episode) -> Result<Self, SimulateError> {
        let info = &episode.info;
        let spec = &info.run.spec;
        let source = match &episode.steps {
            Some(steps) => Source::Recorded(steps),
            None if info.recorded() == RecordKind::Full => return Err(SimulateError::NotRecorded),
            None => Source::Simulated(Box::new(Simulator::new(registry, spec, &info.options(), 1)?)),
        };
        let action_elements = spec.action_column().elements();
        Ok(Self { episode, obs_columns: spec.obs_columns(), action_elements, source, at: None })
    }

    /// The next step; `None` after the last.
    ///
    /// # Errors
    /// If the env panics.
    pub fn next_step(&mut self) -> Result<Option<PlayedStep>, SimulateError> {
        let info = &self.episode.info;
        let Some(done) = self.at else {
            let obs = self.first_obs()?;
            self.at = Some(0);
            let state = self.state();
            return Ok(Some(PlayedStep {
                t: 0,
                action: None,
                reward: None,
                obs,
                terminated: false,
                truncated: false,
                state,
            }));
        };
        if done >= info.length {
            return Ok(None);
        }
        let row = done as usize;
        let mut action = ColumnData::zeros(self.action_dtype(), self.action_elements);
        action.copy_row(0, &self.episode.actions, row, self.action_elements);
        let (reward, obs) = match &mut self.source {
            Source::Recorded(steps) => {
                let reward = steps.rewards.get(row).copied().unwrap_or(0.0);
                (reward, rows_of(&steps.obs, &self.obs_columns, row))
            }
            Source::Simulated(simulator) => {
                simulator.actions.copy_row(0, &action, 0, self.action_elements);
                let ended = simulator.step(1).filter(|ended| ended.lost & 1 == 0);
                ended.ok_or(SimulateError::Panicked { steps: done })?;
                (simulator.rewards[0], rows_of(&simulator.obs, &self.obs_columns, 0))
            }
        };
        let t = done + 1;
        self.at = Some(t);
        let (terminated, truncated) = if t == info.length { info.outcome.flags() } else { (false, false) };
        let state = self.state();
        Ok(Some(PlayedStep {
            t,
            action: Some(action),
            reward: Some(reward),
            obs,
            terminated,
            truncated,
            state,
        }))
    }

    fn first_obs(&mut self) -> Result<Vec<ColumnData>, SimulateError> {
        match &mut self.source {
            Source::Recorded(steps) => Ok(steps.first_obs.clone()),
            Source::Simulated(simulator) => {
                simulator.restore(0, self.episode.info.start);
                match simulator.reset(1) {
                    Some(0) => Ok(rows_of(&simulator.obs, &self.obs_columns, 0)),
                    _ => Err(SimulateError::Panicked { steps: 0 }),
                }
            }
        }
    }

    fn state(&self) -> Option<Vec<f64>> {
        match &self.source {
            Source::Simulated(simulator) => simulator.state(0),
            Source::Recorded(_) => None,
        }
    }

    fn action_dtype(&self) -> rollhouse_core::DType {
        self.episode.info.run.spec.action_space.dtype()
    }
}

impl Episode {
    /// The episode as it was at step `step`; 0 is the reset. An action log is recomputed up to there.
    ///
    /// # Errors
    /// If the episode is shorter, or the env is needed and cannot be made or panics.
    pub fn seek(&self, registry: &Registry, step: u64) -> Result<PlayedStep, SimulateError> {
        let length = self.info.length;
        if step > length {
            return Err(SimulateError::NoSuchStep { step, length });
        }
        let mut playback = Playback::new(registry, self)?;
        if self.steps.is_some() && step > 0 {
            playback.at = Some(step - 1);
        }
        loop {
            match playback.next_step()? {
                Some(found) if found.t == step => return Ok(found),
                Some(_) => {}
                None => return Err(SimulateError::NoSuchStep { step, length }),
            }
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
