//! Runs commands of a session: an envelope comes in, an envelope goes out.

use rollhouse_engine::{CommandError, CommandFault, CommandLanes, Dispatch, METHODS, Method, dispatch};
use rollhouse_wire::{Envelope, Refusal, RefusalCode};

/// Runs a command on the lanes. Takes as long as the lanes' envs do.
pub(crate) fn run(mut lanes: CommandLanes<'_>, command: Envelope) -> Envelope {
    let method = command.method.clone();
    match dispatch(&method, Run { lanes: &mut lanes, command: &command }) {
        Some(answer) => answer,
        None => {
            let message = format!("no method `{method}`; there are {}", METHODS.join(", "));
            command.answered::<()>(Err(Refusal::new(RefusalCode::Unsupported, message)))
        }
    }
}

/// A command that is about to run with its method's types.
struct Run<'a, 'b> {
    lanes: &'a mut CommandLanes<'b>,
    command: &'a Envelope,
}

impl Dispatch for Run<'_, '_> {
    type Output = Envelope;

    fn with<M: Method>(self) -> Envelope {
        // The params are not carried back.
        let asked = Envelope { payload: Vec::new(), ..self.command.clone() };
        let params = match self.command.payload::<M::Params>() {
            Ok(params) => params,
            Err(error) => {
                let message = format!("params of `{}`: {error}", M::NAME);
                return asked.answered::<()>(Err(Refusal::new(RefusalCode::BadRequest, message)));
            }
        };
        match M::run(self.lanes, params) {
            Ok(answer) => asked.answered(Ok(&answer)),
            Err(error) => asked.answered::<()>(Err(refusal_of(&error))),
        }
    }
}

fn refusal_of(error: &CommandError) -> Refusal {
    let code = match error.fault() {
        CommandFault::Caller => RefusalCode::BadRequest,
        CommandFault::Unsupported => RefusalCode::Unsupported,
        CommandFault::Busy => RefusalCode::Busy,
        CommandFault::Lanes => RefusalCode::Internal,
    };
    Refusal { retry_after_ms: error.retry_after_ms(), ..Refusal::new(code, error.to_string()) }
}
