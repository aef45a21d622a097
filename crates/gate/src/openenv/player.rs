//! A lane and the episode that it plays. Its calls block for as long as its world takes.

use std::sync::Arc;

use rollhouse_codec::openenv::{ResetRequest, StateView, StepView, observation_reply};
use rollhouse_core::ColumnData;

use crate::lanes::{Lane, LaneError, Lanes, contained};
use crate::names::random_name;

/// A lane, and what is known of its episode.
pub(crate) struct Player {
    lanes: Arc<dyn Lanes>,
    /// `None` once the lane has failed: the next reset makes another.
    lane: Option<Box<dyn Lane>>,
    state: StateView,
    phase: Phase,
}

/// Where an episode stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unbegun,
    Playing,
    Over,
    Failed,
}

/// Reason for which an env did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlayError {
    #[error("no episode has begun; send a reset first")]
    Unbegun,
    #[error("the episode is over; send a reset")]
    Over,
    #[error("the episode was lost with its env; send a reset")]
    Failed,
    #[error("{}", .0.with_causes())]
    Lane(#[from] LaneError),
}

impl Player {
    /// Makes a lane.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn make(lanes: Arc<dyn Lanes>) -> Result<Self, LaneError> {
        let lane = make(&*lanes)?;
        Ok(Self { lanes, lane: Some(lane), state: StateView::default(), phase: Phase::Unbegun })
    }

    /// Returns what is said of the episode.
    pub(crate) const fn state(&self) -> &StateView {
        &self.state
    }

    /// Begins an episode and returns the answer.
    ///
    /// # Errors
    /// If the env refuses or fails; an episode that was played goes on if it refused.
    pub(crate) fn reset(&mut self, request: &ResetRequest) -> Result<Vec<u8>, PlayError> {
        if self.lane.is_none() {
            self.lane = Some(make(&*self.lanes)?);
        }
        self.work(|lane| lane.begin(request.seed, &request.options))?;
        let episode_id = request.episode_id.clone().or_else(random_name);
        self.state = StateView { episode_id, ..StateView::default() };
        self.phase = Phase::Playing;
        self.show(false)
    }

    /// Takes a step and returns the answer.
    ///
    /// # Errors
    /// If there is no episode that is played, or the env refuses or fails.
    pub(crate) fn step(&mut self, action: &ColumnData) -> Result<Vec<u8>, PlayError> {
        match self.phase {
            Phase::Unbegun => return Err(PlayError::Unbegun),
            Phase::Over => return Err(PlayError::Over),
            Phase::Failed => return Err(PlayError::Failed),
            Phase::Playing => {}
        }
        self.work(|lane| lane.step(action.as_ref()))?;
        self.state.step_count += 1;
        self.show(true)
    }

    /// Ends the lane; an episode that is played counts as cancelled.
    pub(crate) fn close(self) {
        if let Some(lane) = self.lane {
            let _closed = contained(|| lane.close());
        }
    }

    /// Returns what the lane shows after a reset or a step.
    fn show(&mut self, is_step: bool) -> Result<Vec<u8>, PlayError> {
        let lanes = Arc::clone(&self.lanes);
        let (mut reply, mut done) = (Vec::new(), false);
        self.work(|lane| {
            lane.look(&mut |row| {
                let reward = is_step.then_some(row.reward);
                let (terminated, truncated) = (is_step && row.terminated, is_step && row.truncated);
                let spec = lanes.spec();
                let step = StepView { spec, obs: row.obs, infos: row.infos, reward, terminated, truncated };
                done = terminated || truncated;
                reply = observation_reply(&step);
            })
        })?;
        if done {
            self.phase = Phase::Over;
            self.state.done = true;
        }
        Ok(reply)
    }

    /// Has the lane do something. One that has failed is closed.
    fn work(&mut self, work: impl FnOnce(&mut dyn Lane) -> Result<(), LaneError>) -> Result<(), PlayError> {
        let Some(lane) = &mut self.lane else { return Err(PlayError::Failed) };
        let done = contained(|| work(&mut **lane)).unwrap_or(Err(LaneError::Lost));
        if done.as_ref().is_err_and(LaneError::is_end) {
            self.phase = Phase::Failed;
            self.state.done = self.state.episode_id.is_some();
            if let Some(lane) = self.lane.take() {
                let _closed = contained(|| lane.close());
            }
        }
        Ok(done?)
    }
}

fn make(lanes: &dyn Lanes) -> Result<Box<dyn Lane>, LaneError> {
    contained(|| lanes.make(&[])).unwrap_or(Err(LaneError::Lost))
}
