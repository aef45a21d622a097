//! Going through an episode step by step: recomputed from an action log, read from a full recording.

use rollhouse_core::ColumnData;
use rollhouse_env::Registry;

use crate::episode::Episode;
use crate::head::Head;
use crate::run::RecordKind;
use crate::simulate::{SimulateError, Simulator};

/// An episode being gone through, forward. Step 0 is what the reset gave; step t is what the t-th action gave.
/// [`Seeker`](crate::Seeker) goes back too.
#[derive(Debug)]
pub struct Playback<'a> {
    episode: &'a Episode,
    head: Head,
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
    /// The sum of rewards until here.
    pub total_reward: f64,
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
    /// If the env is needed and cannot be made, or has other dynamics now.
    pub fn new(registry: &Registry, episode: &'a Episode) -> Result<Self, SimulateError> {
        let simulator = match &episode.steps {
            Some(_) => None,
            None => Some(simulator_of(registry, episode)?),
        };
        Ok(Self { episode, head: Head::new(episode, simulator) })
    }

    /// The next step; `None` after the last.
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

    /// Appends what the next steps gave, `most` at a time, to columns of rows of observations and to `rewards`, in which
    /// that of the reset is 0; gives how many, 0 after the last. Allocates nothing for a step.
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
    /// The episode as it was at step `step`; 0 is the reset. An action log is recomputed up to there;
    /// [`Seeker`](crate::Seeker) keeps what it takes to come to further steps at once.
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

/// One lane of the episode's env, with its options; refused if its dynamics are other ones now.
pub(crate) fn simulator_of(registry: &Registry, episode: &Episode) -> Result<Box<Simulator>, SimulateError> {
    can_be_simulated(registry, episode)?;
    let info = &episode.info;
    Ok(Box::new(Simulator::new(registry, &info.run.spec, &info.options(), 1)?))
}

/// Whether the episode's env is deterministic and still the recorded one.
pub(crate) fn can_be_simulated(registry: &Registry, episode: &Episode) -> Result<(), SimulateError> {
    if episode.info.recorded() == RecordKind::Full {
        return Err(SimulateError::NotRecorded);
    }
    episode.is_of_now(registry)
}
