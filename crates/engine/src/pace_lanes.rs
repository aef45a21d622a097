//! The method that pauses live lanes, has them go on, tick and be planned for. It is no action, and changes no lane.

use std::time::Duration;

use rollhouse_core::limits::{MAX_LANES, MAX_PLAN_BYTES};
use rollhouse_core::{ClockEvent, MAX_PLANNING, bounded_list, bounded_text, messages};
use serde::{Deserialize, Serialize};

use crate::command::{CommandError, CommandLanes, Effect, Method};
use crate::error::StepError;

/// Method that has something happen to the clocks of live lanes, and says how they stand.
#[derive(Debug, Clone, Copy)]
pub struct PaceLanes;

/// Params of [`PaceLanes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceParams {
    /// Lanes that are meant; all if there are none.
    #[serde(deserialize_with = "bounded_list::<_, MAX_LANES, _>")]
    pub lanes: Vec<u32>,
    /// What is to happen.
    pub control: PaceControl,
}

/// What happens to clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaceControl {
    /// Nothing: how they stand is asked for.
    Look,
    /// Their worlds stand still until they are resumed.
    Pause,
    /// They go on.
    Resume,
    /// They play so many ticks, also while they are paused.
    Tick(u32),
    /// Their owner plans for so many milliseconds at most, during which they stand still.
    Plan(u64),
    /// The owner has planned, and says so by a text, which is recorded with the next tick unless it is empty.
    EndPlan(#[serde(deserialize_with = "bounded_text::<MAX_PLAN_BYTES, _>")] String),
}

/// Answer of [`PaceLanes`]: how the lanes stand that were meant, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceAnswer {
    /// The word for each lane's state.
    #[serde(deserialize_with = "bounded_list::<_, MAX_LANES, _>")]
    pub states: Vec<String>,
}

impl Method for PaceLanes {
    const NAME: &'static str = "pace";
    const REPEATABLE: bool = false;
    const EFFECT: Effect = Effect::None;
    type Params = PaceParams;
    type Answer = PaceAnswer;

    fn run(lanes: &mut CommandLanes<'_>, params: PaceParams) -> Result<PaceAnswer, CommandError> {
        let count = lanes.engine.lanes();
        let Some((paced, now)) = lanes.paced() else { return Err(StepError::NoPace.into()) };
        let PaceParams { lanes: named, control } = params;
        if let Some(&lane) = named.iter().find(|&&lane| lane as usize >= count) {
            return Err(StepError::NoSuchLane { lane: lane as usize, lanes: count }.into());
        }
        let event = match &control {
            PaceControl::Look => None,
            PaceControl::Pause => Some(ClockEvent::Pause),
            PaceControl::Resume => Some(ClockEvent::Resume),
            PaceControl::Tick(ticks) => Some(ClockEvent::Tick(*ticks)),
            PaceControl::Plan(ms) => Some(ClockEvent::Plan(Duration::from_millis(*ms).min(MAX_PLANNING))),
            PaceControl::EndPlan(_) => Some(ClockEvent::EndPlan),
        };
        if let Some(event) = event {
            let done = paced.control(&named, event, now);
            done.map_err(|(lane, why)| StepError::NotNow { lane, why })?;
        }
        let all: Vec<usize> = if named.is_empty() {
            (0..count).collect()
        } else {
            named.iter().map(|&lane| lane as usize).collect()
        };
        if let PaceControl::EndPlan(text) = control
            && !text.is_empty()
        {
            all.iter().try_for_each(|&lane| lanes.engine.note_plan(lane, &text))?;
        }
        let Some((paced, _)) = lanes.paced() else { return Err(StepError::NoPace.into()) };
        let word = |&lane: &usize| paced.state(lane).map_or(String::new(), |state| state.word().to_owned());
        Ok(PaceAnswer { states: all.iter().map(word).collect() })
    }
}

messages!(PaceParams, PaceAnswer);
