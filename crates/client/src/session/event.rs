//! The events of a session, and the actions of its owner.

use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::Interruption;
use rollhouse_wire::{
    CallError, DialError, EndCause, FrameKind, OpenPool, Refusal, RefusalCode, SessionReplaced,
};

/// An event in the life of a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// Its owner makes a request, in place of one that is still under way, and waits for its answer until then.
    Requested {
        /// The request, without its number.
        body: RequestBody,
        /// The time until which the owner waits.
        deadline: Duration,
    },
    /// A request is about to be made: there is a moment to leave a node that goes away, or to begin lanes anew.
    Settle {
        /// Whether it will reset all lanes: those that never began anything wait for that.
        reset: bool,
    },
    /// A new stream is attached, or the memory is.
    Attached {
        /// Number of the last request that the node has answered.
        last: u32,
        /// Whether answers say what a log needs.
        logs: bool,
    },
    /// The node is there but does not attach the session.
    AttachRefused(Refusal),
    /// The node did not answer, perhaps with what was seen instead.
    Unreachable(Option<String>),
    /// Nobody listens at the node's port any more, its host says; perhaps with what was seen instead.
    PortClosed(Option<String>),
    /// The stream or the memory by which it was attached has ended.
    Lost,
    /// The answer to the request came.
    Answered,
    /// The node refused the request; nothing has moved.
    Refused(Refusal),
    /// The node broke the protocol, as is said here.
    Distrusted(String),
    /// The time of a wait has come.
    Woken,
    /// The coordinator says that the session is not there any more, and why; its node is silent.
    ReportedGone(EndCause),
    /// The coordinator has another place for it.
    Placed(Box<SessionReplaced>),
    /// The coordinator has no other place.
    NoPlace(NoPlace),
}

/// An action to carry out for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionAction {
    /// Attach it at its node.
    Attach,
    /// Send [the request](super::Session::body), once on each attachment, and wait for the answer.
    Send {
        /// The number of the request.
        number: u32,
    },
    /// Wake it at this time.
    WaitUntil(Duration),
    /// Ask the coordinator for [another place](super::Session::place_request).
    Place,
    /// Do nothing: the request is done, or there is no answer.
    Done(Result<(), Trouble>),
}

/// A request without its number.
#[derive(Debug, Clone)]
pub struct RequestBody {
    /// The kind of its frame.
    pub kind: FrameKind,
    /// Its columns, as a frame has them.
    pub columns: Bytes,
    /// Its sidecar, encoded.
    pub sidecar: Bytes,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The session is gone; see [`Session::gone`](super::Session::gone).
    Gone,
    /// The node refuses for good; nothing has moved in this session.
    Refused(Refusal),
    /// The deadline came first.
    TimedOut,
}

/// Why a session is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The reason in one sentence.
    pub reason: String,
    /// The outcome of the episodes that were open in its lanes.
    pub outcome: Interruption,
    /// The cause of the end, as its node or the coordinator says.
    pub cause: Option<EndCause>,
    /// Whether a batch has reported its lanes as lost.
    pub reported: bool,
}

impl Gone {
    pub(super) const fn new(reason: String, outcome: Interruption, cause: Option<EndCause>) -> Self {
        Self { reason, outcome, cause, reported: false }
    }
}

/// The rule for lanes whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// They are rebuilt on another node, where they stood: the call takes longer, and shows what it would have shown.
    /// This needs an env that is deterministic, and is not done for a session that hung or failed by itself, which it
    /// would do again.
    Resume,
    /// They are shown as lost, with `truncated` set, and begin new episodes elsewhere.
    Report,
}

/// The data with which sessions of a pool are opened elsewhere.
#[derive(Debug)]
pub struct Recipe {
    /// The request by which the pool was opened.
    pub open: OpenPool,
    /// The env's dynamics hash.
    pub dynamics: u64,
    /// The rule for lanes whose node is lost.
    pub on_loss: OnLoss,
    /// Time for which a node keeps a session without hearing of its owner.
    pub lease: Duration,
}

/// Why there is no other place now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// There may be one after this time.
    Busy(Duration),
    /// There will be none, for this reason.
    Never(String),
}

impl NoPlace {
    /// Returns the reason for a coordinator that was not reached.
    pub fn of_dial(error: &DialError) -> Self {
        match error {
            // Nobody is admitted by being patient.
            DialError::Refused(refusal) if !refusal.code.is_transient() => Self::Never(refusal.to_string()),
            _ => Self::Busy(COORDINATOR_AWAY),
        }
    }

    /// Returns the reason for a coordinator that did not answer with a place.
    pub fn of_call(error: CallError) -> Self {
        let CallError::Refused(refusal) = error else { return Self::Busy(COORDINATOR_AWAY) };
        match refusal.code {
            RefusalCode::Busy | RefusalCode::Draining => {
                let wait = refusal.retry_after_ms.map_or(COORDINATOR_AWAY, Duration::from_millis);
                Self::Busy(wait.min(LONGEST_WAIT))
            }
            _ => Self::Never(refusal.message),
        }
    }
}

/// Time that the coordinator may take to find a place: opening a session takes as long as the env's maker.
pub const PLACE_WITHIN: Duration = Duration::from_secs(10);
/// Pause before a coordinator that does not answer is asked again.
pub const COORDINATOR_AWAY: Duration = Duration::from_millis(300);
/// Longest pause: a coordinator that wants to be left alone for longer is asked all the same.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
