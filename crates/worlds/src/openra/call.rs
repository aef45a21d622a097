//! Calls of an engine, and what becomes of them.

use rollhouse_codec::openra::{
    CreateSessionRequest, DestroySessionRequest, FastAdvanceRequest, GameObservation, GameState, StateRequest,
};

/// A call of the bridge.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rpc {
    Create(CreateSessionRequest),
    State(StateRequest),
    Advance(FastAdvanceRequest),
    Destroy(DestroySessionRequest),
}

/// What an engine answers to a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// Name of the session that is being made.
    Created(String),
    State(GameState),
    Observation(Box<GameObservation>),
    Destroyed,
}

/// Reason for which an engine refuses a call, as far as somebody acts by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// It has no room just now: nothing was done.
    Exhausted,
    /// It has waited for a session of that name and there is none.
    Unavailable,
    /// The session is done.
    Aborted,
    /// The session's world was never registered.
    NotFound,
    /// It knows no sessions: it serves a single one.
    Unimplemented,
    /// Anything else.
    Other,
}

impl Rpc {
    /// Returns the name of the call on the wire.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "CreateSession",
            Self::State(_) => "GetState",
            Self::Advance(_) => "FastAdvance",
            Self::Destroy(_) => "DestroySession",
        }
    }
}
