//! One lane that is stepped action by action and recorded: for forks, and for playing by hand.

use std::collections::VecDeque;
use std::sync::Arc;

use rollhouse_core::{
    AutoresetMode, ColumnData, ColumnRef, EpisodeName, Interruption, Outcome, Past, PastEvent, PlayedActions,
    RunId,
};
use rollhouse_engine::{ConfigError, Engine, EngineConfig, Reset, ResumeError, StepError};
use rollhouse_env::EnvEntry;
use rollhouse_policy::{Act, ActError, Policy};
use rollhouse_replay::{PlayedStep, RunRecorder};

/// A lane of an engine of its own, which records into a run of one lane. An episode that is open when it is dropped without
/// [`OneLane::close`] is listed as `crashed`.
pub(crate) struct OneLane {
    engine: Engine,
    _recording: RunRecorder,
    run: RunId,
    number: u64,
    steps: u64,
    total_reward: f64,
    reward: Option<f64>,
    action: Option<ColumnData>,
    outcome: Option<Outcome>,
    past: VecDeque<PlayedEpisode>,
}

/// An episode that was played, as far as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlayedEpisode {
    pub(crate) name: EpisodeName,
    pub(crate) steps: u64,
    pub(crate) total_reward: f64,
    pub(crate) outcome: Outcome,
}

/// The reason why a lane could not be stepped.
#[derive(Debug)]
pub(crate) enum LaneError {
    Step(StepError),
    Act(ActError),
    /// Its past could not be repeated.
    Resume(ResumeError),
}

impl OneLane {
    /// Returns the engine's settings: nothing is reset automatically.
    pub(crate) fn config() -> EngineConfig {
        EngineConfig { autoreset: AutoresetMode::Disabled, ..EngineConfig::new(1) }
    }

    /// Makes the lane, recorded as `run`; no episode is open yet.
    pub(crate) fn new(
        entry: &Arc<EnvEntry>,
        config: EngineConfig,
        recording: RunRecorder,
        run: RunId,
    ) -> Result<Self, ConfigError> {
        let engine = Engine::new(entry, config, Some(&recording))?;
        Ok(Self {
            engine,
            _recording: recording,
            run,
            number: 0,
            steps: 0,
            total_reward: 0.0,
            reward: None,
            action: None,
            outcome: None,
            past: VecDeque::new(),
        })
    }

    /// Begins the first episode.
    pub(crate) fn begin(&mut self) -> Result<(), StepError> {
        self.engine.reset(&Reset::all()).map(|_| ())
    }

    /// Ends the open episode as `cancelled` and begins the next one.
    pub(crate) fn begin_next(&mut self) -> Result<(), StepError> {
        let over = self.played();
        self.engine.interrupt(Interruption::Cancelled)?;
        self.engine.reset(&Reset::all())?;
        self.keep(over);
        self.number += 1;
        (self.steps, self.total_reward, self.reward) = (0, 0.0, None);
        (self.action, self.outcome) = (None, None);
        Ok(())
    }

    /// Brings the first episode to where another one stood after `steps` steps with that return; `action` was its last. A policy that
    /// remembers what a lane has shown sees all of it.
    pub(crate) fn resume(
        &mut self,
        past: Vec<Past>,
        (steps, total_reward, action): (u64, f64, Option<ColumnData>),
        policy: Option<&mut dyn Policy>,
    ) -> Result<(), LaneError> {
        match policy.filter(|policy| policy.is_recurrent()) {
            Some(policy) => past.into_iter().try_for_each(|past| self.relive(past, policy))?,
            None => self.engine.replay(past).map_err(LaneError::Resume)?,
        }
        (self.steps, self.total_reward, self.action) = (steps, total_reward, action);
        Ok(())
    }

    /// Repeats a part of the past, and has a policy see what the lane shows before each of its actions.
    fn relive(&mut self, past: Past, policy: &mut dyn Policy) -> Result<(), LaneError> {
        let PastEvent::Played(PlayedActions { count, actions }) = past.what else {
            return self.engine.replay(vec![past]).map_err(LaneError::Resume);
        };
        let elements = self.action_elements();
        for row in 0..count {
            self.look(policy)?;
            let action = actions.as_ref().slice(row * elements, (row + 1) * elements).into();
            let what = PastEvent::Played(PlayedActions { count: 1, actions: action });
            self.engine.replay(vec![Past { what, ..past }]).map_err(LaneError::Resume)?;
            self.steps += 1;
        }
        Ok(())
    }

    /// Takes a step with an action: one row of the action column.
    pub(crate) fn step(&mut self, action: ColumnRef<'_>) -> Result<(), StepError> {
        if !self.engine.actions()?.copy_from(action) {
            let given = action.len();
            return Err(StepError::Length { what: "action elements", given, wanted: self.action_elements() });
        }
        self.action = Some(action.into());
        self.take_step()
    }

    /// Takes a step with the action that a policy chooses.
    pub(crate) fn step_by(&mut self, policy: &mut dyn Policy) -> Result<(), LaneError> {
        self.look(policy)?;
        self.take_step().map_err(LaneError::Step)
    }

    /// Has a policy choose the next action from what the lane shows.
    fn look(&mut self, policy: &mut dyn Policy) -> Result<(), LaneError> {
        let masked = self.engine.entry().spec().action_mask();
        let (frame, actions) = self.engine.frame_and_actions().map_err(LaneError::Step)?;
        let obs = frame.obs_columns();
        let mask = masked.and_then(|column| frame.info(column).as_u8());
        let request = Act { first_lane: 0, step: self.steps, obs: &obs, mask, actions };
        policy.act(request).map_err(LaneError::Act)?;
        drop(obs);
        if !policy.failed().is_empty() {
            return Err(LaneError::Act(ActError::NotFinite));
        }
        Ok(())
    }

    fn take_step(&mut self) -> Result<(), StepError> {
        let frame = self.engine.step()?;
        let (reward, terminated) = (frame.rewards()[0], frame.terminated()[0] == 1);
        let truncated = frame.truncated()[0] == 1;
        if self.engine.is_lost(0) {
            // The step that it failed in is none.
            self.outcome = Some(Outcome::Interrupted(Interruption::Crashed));
            return Ok(());
        }
        self.steps += 1;
        self.total_reward += reward;
        self.reward = Some(reward);
        self.outcome = (terminated || truncated).then_some(Outcome::Finished { terminated, truncated });
        Ok(())
    }

    /// Returns how the episode ended, once it has.
    pub(crate) const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Returns the number of steps of the episode.
    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the name of the episode.
    pub(crate) const fn name(&self) -> EpisodeName {
        EpisodeName { run: self.run.short(), lane: 0, number: self.number }
    }

    /// Returns the episode as far as it has come; an open one counts as cancelled.
    pub(crate) fn played(&self) -> PlayedEpisode {
        let outcome = self.outcome.unwrap_or(Outcome::Interrupted(Interruption::Cancelled));
        let (name, steps, total_reward) = (self.name(), self.steps, self.total_reward);
        PlayedEpisode { name, steps, total_reward, outcome }
    }

    /// Returns how many episodes it has begun, and the last of them, at most [`MAX_KEPT`].
    pub(crate) fn all_played(&self) -> (u64, impl Iterator<Item = PlayedEpisode>) {
        (self.number + 1, self.past.iter().copied().chain([self.played()]))
    }

    fn keep(&mut self, over: PlayedEpisode) {
        if self.past.len() + 1 >= MAX_KEPT {
            self.past.pop_front();
        }
        self.past.push_back(over);
    }

    /// Returns the step at which the episode stands.
    pub(crate) fn shown(&mut self) -> Result<PlayedStep, StepError> {
        let (terminated, truncated) = self.outcome.map_or((false, false), Outcome::flags);
        let (t, reward, total_reward) = (self.steps, self.reward, self.total_reward);
        let action = self.action.clone();
        let frame = self.engine.frame()?;
        let obs = frame.obs_columns().iter().map(|column| ColumnData::from(*column)).collect();
        let infos = Vec::new();
        Ok(PlayedStep { t, action, reward, total_reward, obs, infos, terminated, truncated, state: None })
    }

    /// Returns the engine that steps it, to draw it.
    #[cfg(feature = "viewer")]
    pub(crate) const fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Ends the open episode and hands everything to the recorder.
    pub(crate) fn close(&mut self) -> Result<(), StepError> {
        self.engine.interrupt(Interruption::Cancelled)?;
        self.engine.flush()
    }

    fn action_elements(&self) -> usize {
        self.engine.entry().spec().action_space.elements()
    }
}

impl std::fmt::Display for LaneError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(error) => error.fmt(f),
            Self::Resume(error) => error.fmt(f),
            Self::Act(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LaneError {}

/// Number of episodes that are listed at the end.
const MAX_KEPT: usize = 20;

#[cfg(test)]
mod tests {
    use rollhouse_core::ColumnMut;
    use rollhouse_env::Registry;
    use rollhouse_policy::Builtin;
    use rollhouse_replay::testing::FaultyDisk;
    use rollhouse_replay::{Query, Recorder, RecorderConfig, Replays};

    use super::*;
    use crate::recording::header_of;

    #[test]
    fn what_it_tells_of_its_episodes_is_what_is_recorded() {
        let (disk, dir) = (FaultyDisk::new(), std::path::Path::new("/data"));
        let recorder = Recorder::open(Arc::new(disk.clone()), dir, RecorderConfig::default()).unwrap();
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        let header = header_of(&entry, OneLane::config(), "hand", None);
        let run = header.run;
        let recording = recorder.begin_run(header).unwrap();
        let mut lane = OneLane::new(&entry, OneLane::config(), recording, run).unwrap();
        lane.begin().unwrap();
        let mut policy = Builtin::Random.make(&entry.spec().action_space, 7).unwrap();
        while lane.outcome().is_none() {
            lane.step_by(&mut *policy).unwrap();
        }
        lane.begin_next().unwrap();
        for _ in 0..3 {
            lane.step(ColumnMut::I64(&mut [1]).as_ref()).unwrap();
        }
        assert_eq!(lane.shown().unwrap().t, 3);
        lane.close().unwrap();
        let (count, told) = lane.all_played();
        let told: Vec<_> = told.collect();
        assert_eq!((count, told.len()), (2, 2));
        drop(lane);
        recorder.finish().unwrap();
        let replays = Replays::open(Arc::new(disk), dir).unwrap();
        let found = replays.list(&Query::default()).unwrap();
        assert_eq!(found.len(), 2);
        for (told, found) in told.iter().zip(&found) {
            assert_eq!((told.name, told.steps, told.outcome), (found.name, found.length, found.outcome));
            assert_eq!(Some(told.total_reward), found.total_reward);
        }
    }
}
