//! Playing an episode step by step: it is recomputed from an action log, or read from a full recording.

use std::sync::Arc;

use rollhouse_core::ColumnData;
use rollhouse_env::{EnvEntry, Registry};

use crate::code::episode::Episode;
use crate::code::run::RecordKind;
use crate::play::envs::Envs;
use crate::play::head::{Head, PlayedStep};
use crate::play::simulate::{SimulateError, Simulator};

/// An episode that is played forward. Step 0 is what the reset gave; step t is what the t-th action gave.
/// [`Seeker`](crate::Seeker) goes back too.
#[derive(Debug)]
pub struct Playback<'a> {
    episode: &'a Episode,
    head: Head,
}

impl<'a> Playback<'a> {
    /// Makes a playback that stands before step 0.
    ///
    /// # Errors
    /// If the env is needed and cannot be made, or has other dynamics now.
    pub fn new<'e>(envs: impl Into<Envs<'e>>, episode: &'a Episode) -> Result<Self, SimulateError> {
        let simulator = match &episode.steps {
            Some(_) => None,
            None => Some(simulator_of(envs.into(), episode)?),
        };
        Ok(Self { episode, head: Head::new(episode, simulator) })
    }

    /// Takes the next step and returns it; `None` after the last.
    ///
    /// # Errors
    /// If the env panics.
    pub fn next_step(&mut self) -> Result<Option<PlayedStep>, SimulateError> {
        match self.head.at() {
            None => self.head.begin(self.episode)?,
            Some(done) if done >= self.episode.info.length => return Ok(None),
            Some(done) => self.head.advance(self.episode, done + 1, |_| {})?,
        }
        Ok(Some(self.head.shown(self.episode)))
    }

    /// Takes at most `most` steps and appends their observations, as rows, to columns and their rewards to `rewards`;
    /// the reward of the reset is 0. Returns how many steps were taken, 0 after the last. Allocates nothing for a step.
    ///
    /// # Errors
    /// If the env panics.
    pub fn next_rows(
        &mut self,
        most: usize,
        obs: &mut [ColumnData],
        rewards: &mut Vec<f64>,
    ) -> Result<usize, SimulateError> {
        let length = self.episode.info.length;
        let mut taken = 0;
        if self.head.at().is_none() && most > 0 {
            self.head.begin(self.episode)?;
            self.head.append_row(self.episode, obs);
            rewards.push(0.0);
            taken = 1;
        }
        let at = self.head.at().unwrap_or(length);
        let to = at + (length - at).min((most - taken) as u64);
        self.head.advance(self.episode, to, |step| {
            rewards.push(step.reward);
            for (column, row) in obs.iter_mut().zip(step.obs) {
                // Both are of the columns of the recorded spec.
                let appended = column.extend(row.as_ref());
                debug_assert!(appended);
            }
        })?;
        if let Some(steps) = &self.episode.steps {
            for ((column, rows), spec) in obs.iter_mut().zip(&steps.obs).zip(self.head.obs_columns()) {
                let (from, to) = (at as usize * spec.elements(), to as usize * spec.elements());
                let appended = column.extend(rows.as_ref().slice(from, to));
                debug_assert!(appended);
            }
        }
        Ok(taken + (to - at) as usize)
    }
}

impl Episode {
    /// Returns step `step` of the episode; 0 is the reset. An action log is recomputed up to that step; a
    /// [`Seeker`](crate::Seeker) keeps what it needs to come to further steps quickly.
    ///
    /// # Errors
    /// If the episode is shorter, or the env is needed and cannot be made or panics.
    pub fn seek(&self, registry: &Registry, step: u64) -> Result<PlayedStep, SimulateError> {
        let length = self.info.length;
        if step > length {
            return Err(SimulateError::NoSuchStep { step, length });
        }
        let mut playback = Playback::new(registry, self)?;
        playback.head.begin(self)?;
        playback.head.advance(self, step, |_| {})?;
        Ok(playback.head.shown(self))
    }
}

/// Makes a simulator with one lane of the episode's env, with the lane's options.
pub(crate) fn simulator_of(envs: Envs<'_>, episode: &Episode) -> Result<Box<Simulator>, SimulateError> {
    let (entry, info) = (entry_to_simulate(envs, episode)?, &episode.info);
    Ok(Box::new(Simulator::of(&entry, &info.run.spec, &info.lane_options(), 1)?))
}

/// Returns the episode's env, if it is deterministic and still the recorded one.
pub(crate) fn entry_to_simulate(envs: Envs<'_>, episode: &Episode) -> Result<Arc<EnvEntry>, SimulateError> {
    let has_steps = episode.steps.is_some();
    if has_steps && episode.from.as_ref().is_some_and(|from| from.state.is_empty()) {
        return Err(SimulateError::Hidden);
    }
    match episode.info.recorded() {
        RecordKind::Full if has_steps => Err(SimulateError::NotDeterministic),
        RecordKind::Full => Err(SimulateError::NotRecorded),
        RecordKind::ActionLog | RecordKind::Trace => envs.entry_of(&episode.info.run),
    }
}
