//! Messages of clients on the socket.

use serde_json::value::RawValue;

use super::body::ResetRequest;
use super::fault::{BadBody, Fault, shown};
use super::parts::Parts;

/// A message of a client.
#[derive(Debug)]
pub enum ClientMessage<'a> {
    /// An episode is to begin.
    Reset(ResetRequest),
    /// A step is to be taken; the text is that of an object with the action ([`super::read_action`]).
    Step(&'a str),
    /// The state is asked for.
    State,
    /// The socket is to be closed.
    Close,
    /// A request of JSON-RPC, whose text this is ([`super::RpcRequest`]).
    Mcp(&'a str),
}

/// Reason for which a message cannot be taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadMessage {
    /// It is no JSON.
    #[error("Invalid JSON: {0}")]
    Json(String),
    /// It is no object.
    #[error("a message is an object with a `type`")]
    NoObject,
    /// There are no messages of its type.
    #[error("Unknown message type: {0}")]
    Type(String),
    /// Fields of it are not as they have to be.
    #[error("Invalid message")]
    Fields(Vec<Fault>),
}

impl<'a> ClientMessage<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// See [`BadMessage`].
    pub fn read(text: &'a str) -> Result<Self, BadMessage> {
        let parts = Parts::of(text, ["type", "data"]).map_err(|error| match error {
            BadBody::Json(why) => BadMessage::Json(why),
            BadBody::Fields(_) => BadMessage::NoObject,
        })?;
        let kind = parts.values[0].map(RawValue::get).unwrap_or_default();
        let word = serde_json::from_str::<String>(kind).unwrap_or_else(|_| shown(kind));
        if !KINDS.contains(&&*word) {
            return Err(BadMessage::Type(shown(&word)));
        }
        let [_, data] = parts.only().map_err(fields)?;
        if matches!(&*word, "state" | "close") {
            // Pydantic knows no field of theirs but the type.
            let fault = data.map(|_| BadMessage::Fields(vec![Fault::extra("data")]));
            return fault.map_or(Ok(if word == "state" { Self::State } else { Self::Close }), Err);
        }
        let data = match data.map(RawValue::get) {
            Some(data) if data.starts_with('{') => data,
            None if word == "reset" => "{}",
            None => return Err(BadMessage::Fields(vec![Fault::missing("data")])),
            Some(_) => {
                let fault = Fault::new("dict_type", "Input should be a valid dictionary");
                return Err(BadMessage::Fields(vec![fault.within("data")]));
            }
        };
        match &*word {
            "reset" => ResetRequest::read(data).map(Self::Reset).map_err(fields),
            "step" => Ok(Self::Step(data)),
            _ => Ok(Self::Mcp(data)),
        }
    }
}

/// The types of messages.
const KINDS: [&str; 5] = ["reset", "step", "state", "close", "mcp"];

fn fields(error: BadBody) -> BadMessage {
    match error {
        BadBody::Json(why) => BadMessage::Json(why),
        BadBody::Fields(faults) => BadMessage::Fields(faults),
    }
}
