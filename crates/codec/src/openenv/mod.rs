//! OpenEnv: messages of its socket `/ws`, bodies of its HTTP routes and JSON-RPC of `/mcp`, as package `openenv` 0.10.0
//! speaks them.
//!
//! [`ClientMessage::read`] is the way in of the socket, [`ResetRequest`], [`StepBody`] and [`RpcRequest`] read
//! bodies. No value is made of the parts of a message before it is known what they are: an action is read element by
//! element into the row that an env takes ([`read_action`]), whose size the space says. Observations are written from rows.
//!
//! An action is `{"action": VALUE}` and an observation `{"obs": VALUE, ...}`, whatever the space: a number, a text, nested
//! lists, or an object for a Dict.

mod action;
mod api;
mod body;
mod fault;
mod message;
mod observation;
mod parts;
mod reply;
mod rpc;
mod schema;
mod value;

pub use action::read_action;
pub use api::{detail, environments, health, metadata, openapi, schemas};
pub use body::{ResetRequest, StepBody, TaskQuestion};
pub use fault::{BadBody, Fault, body_faults};
pub use message::{BadMessage, ClientMessage};
pub use observation::StepView;
pub use reply::{
    Capacity, Code, StateView, error, faults_reply, observation_of, observation_reply, state, state_reply,
};
pub use rpc::{BadRpc, RpcCode, RpcId, RpcRequest, mcp_reply, rpc_closed, rpc_created, rpc_error};

/// Bytes of the longest message of a client whose actions have so many elements; longer ones are refused before they are read.
pub const fn most_bytes(action_elements: usize) -> usize {
    let most = BASE_BYTES + ELEMENT_BYTES * action_elements;
    if most < MAX_BYTES { most } else { MAX_BYTES }
}

/// Bytes that a message may have beside the elements of its action.
const BASE_BYTES: usize = 1 << 20;
/// Bytes that an element of an action may have.
const ELEMENT_BYTES: usize = 40;
/// Bytes of the longest message of all, which is that of OpenEnv's own server.
const MAX_BYTES: usize = 16 << 20;
