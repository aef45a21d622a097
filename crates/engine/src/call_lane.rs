//! The command that calls a method of the env on a lane.

use rollhouse_core::messages;
use serde::{Deserialize, Serialize};

use crate::calls::CallRefused;
use crate::command::{CommandError, CommandLanes, Effect, Method};

/// Method that calls a method of the env on one lane.
#[derive(Debug, Clone, Copy)]
pub struct CallLane;

/// Params of [`CallLane`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallParams {
    /// Lane that is called.
    pub lane: u32,
    /// Name of the env's method.
    pub method: String,
    /// What the method is given: JSON by agreement.
    pub payload: String,
}

/// Answer of [`CallLane`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAnswer {
    /// Answer of the env: JSON by agreement.
    pub answer: String,
}

impl Method for CallLane {
    const NAME: &'static str = "call";
    const REPEATABLE: bool = false;
    const EFFECT: Effect = Effect::Calls;
    type Params = CallParams;
    type Answer = CallAnswer;

    fn run(lanes: &mut CommandLanes<'_>, params: CallParams) -> Result<CallAnswer, CommandError> {
        let CallParams { lane, method, payload } = params;
        match lanes.engine.call(lane as usize, &method, &payload) {
            Ok(answer) => Ok(CallAnswer { answer }),
            Err(CallRefused::Engine(error)) => Err(error.into()),
            Err(refused) => Err(refused.into()),
        }
    }
}

messages!(CallAnswer, CallParams);
