//! What the server sends on the socket beside observations of steps.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::observation::{StepView, text};

/// Code of an error on the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The message is no JSON.
    InvalidJson,
    /// There is no such type of message.
    UnknownType,
    /// Fields are not as they have to be, or the action lies outside the space.
    ValidationError,
    /// The env refused or failed.
    ExecutionError,
    /// There are as many sockets as may be.
    CapacityReached,
    /// The lane could not be made.
    FactoryError,
    /// The socket cannot go on.
    SessionError,
}

/// How many sockets there are, and may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Number of those that there are.
    pub active: usize,
    /// Maximum number.
    pub most: usize,
}

/// What is said of an episode.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StateView {
    /// Name of the episode; null before the first reset.
    pub episode_id: Option<String>,
    /// Number of steps that were taken in it.
    pub step_count: u64,
    /// Whether it is over.
    pub done: bool,
}

impl Capacity {
    /// Returns the answer to a client for whom there is no place.
    pub fn message(self) -> String {
        let Self { active, most } = self;
        format!("Server at capacity: {active}/{most} sessions active. Cannot accept new connections.")
    }
}

/// Returns an error for the socket. A full server says how many sockets it has, and one that could make no lane of what.
pub fn error(code: Code, message: &str, capacity: Option<Capacity>, factory: Option<&str>) -> Vec<u8> {
    let mut data = Map::new();
    data.insert("message".to_owned(), message.into());
    data.insert("code".to_owned(), json!(code));
    if let Some(Capacity { active, most }) = capacity {
        data.insert("active_sessions".to_owned(), active.into());
        data.insert("max_sessions".to_owned(), most.into());
    }
    if let Some(factory) = factory {
        data.insert("factory_name".to_owned(), factory.into());
    }
    text(&json!({ "type": "error", "data": Value::Object(data) }))
}

/// Returns the error for fields that are not as they have to be.
pub fn faults_reply(faults: &[Fault]) -> Vec<u8> {
    let data = json!({ "message": "Invalid message", "code": Code::ValidationError, "errors": faults });
    text(&json!({ "type": "error", "data": data }))
}

/// Returns the answer to a reset or a step.
pub fn observation_reply(step: &StepView<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(REPLY_BYTES);
    out.extend_from_slice(BEFORE_DATA);
    step.write(&mut out);
    out.push(b'}');
    out
}

/// Returns the data of an answer to a reset or a step, which is the answer of HTTP.
pub fn observation_of(reply: &[u8]) -> &[u8] {
    let data = reply.strip_prefix(BEFORE_DATA).and_then(|data| data.strip_suffix(b"}"));
    data.unwrap_or(reply)
}

/// What stands before the data of an answer to a reset or a step.
const BEFORE_DATA: &[u8] = b"{\"type\":\"observation\",\"data\":";

/// Returns the answer to a question for the state.
pub fn state_reply(state: &StateView) -> Vec<u8> {
    text(&json!({ "type": "state", "data": state }))
}

/// Returns the state as HTTP's routes say it.
pub fn state(state: &StateView) -> Vec<u8> {
    text(state)
}

/// Bytes that most answers have.
const REPLY_BYTES: usize = 256;
