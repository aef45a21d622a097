//! What happens to a session, and what its owner does about it.

use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::Interruption;
use rollhouse_wire::{
    CallError, DialError, EndCause, FrameKind, OpenPool, Refusal, RefusalCode, SessionReplaced,
};

/// Something that happens to a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// Its owner makes a request, in place of one that is still under way, and waits for its answer until then.
    Requested {
        /// What is asked.
        body: RequestBody,
        /// Until when.
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
    /// The node is there but does not have it attached.
    AttachRefused(Refusal),
    /// The node did not answer, perhaps with what was seen instead.
    Unreachable(Option<String>),
    /// Nobody listens at the node's port any more, its host says; perhaps with what was seen instead.
    PortClosed(Option<String>),
    /// What it was attached by has ended.
    Lost,
    /// The answer to what was sent came.
    Answered,
    /// The node refused what was sent; nothing has moved.
    Refused(Refusal),
    /// The node does not keep to the protocol, as is said here.
    Distrusted(String),
    /// The time of a wait has come.
    Woken,
    /// The coordinator says that it is not there any more, and why; its node is silent.
    ReportedGone(EndCause),
    /// The coordinator has another place for it.
    Placed(Box<SessionReplaced>),
    /// The coordinator has none.
    NoPlace(NoPlace),
}

/// What is to be done for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionAction {
    /// Attach it at its node.
    Attach,
    /// Send [what is asked](super::Session::body), once on each attachment, and wait for the answer.
    Send {
        /// Under that number.
        number: u32,
    },
    /// Wake it then.
    WaitUntil(Duration),
    /// Ask the coordinator for [another place](super::Session::place_request).
    Place,
    /// Nothing: what was asked for is done, or there is no answer.
    Done(Result<(), Trouble>),
}

/// What is asked, but for its number.
#[derive(Debug, Clone)]
pub struct RequestBody {
    /// Of which kind it is.
    pub kind: FrameKind,
    /// Columns as a frame has them.
    pub columns: Bytes,
    /// What goes beside them.
    pub sidecar: Bytes,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The session is gone; see [`Session::gone`](super::Session::gone).
    Gone,
    /// The node will not do it; nothing has moved in this session.
    Refused(Refusal),
    /// The deadline came first.
    TimedOut,
}

/// Why a session is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// One sentence.
    pub reason: String,
    /// How the episodes end that were open in its lanes.
    pub outcome: Interruption,
    /// Why it has ended, as its node or the coordinator says.
    pub cause: Option<EndCause>,
    /// Whether a batch has reported its lanes as lost.
    pub reported: bool,
}

impl Gone {
    pub(super) const fn new(reason: String, outcome: Interruption, cause: Option<EndCause>) -> Self {
        Self { reason, outcome, cause, reported: false }
    }
}

/// What becomes of lanes whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// They are rebuilt on another node, where they stood: the call takes longer, and shows what it would have shown.
    /// Only of envs that are deterministic, and not of a session that hung or failed by itself, which it would do again.
    Resume,
    /// They are shown as lost, with `truncated` set, and begin new episodes elsewhere.
    Report,
}

/// How sessions of a pool are opened elsewhere.
#[derive(Debug)]
pub struct Recipe {
    /// As the pool was asked for.
    pub open: OpenPool,
    /// The env's dynamics hash.
    pub dynamics: u64,
    /// What becomes of lanes whose node is lost.
    pub on_loss: OnLoss,
    /// How long a node keeps a session without hearing of its owner.
    pub lease: Duration,
}

/// Why there is no other place now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// There may be one after so long.
    Busy(Duration),
    /// There will be none, for this reason.
    Never(String),
}

impl NoPlace {
    /// The coordinator was not reached.
    pub fn of_dial(error: &DialError) -> Self {
        match error {
            // Nobody is admitted by being patient.
            DialError::Refused(refusal) if !refusal.code.is_transient() => Self::Never(refusal.to_string()),
            _ => Self::Busy(COORDINATOR_AWAY),
        }
    }

    /// The coordinator did not answer with a place.
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

/// How long the coordinator may take to find a place: opening a session takes as long as the env's maker.
pub const PLACE_WITHIN: Duration = Duration::from_secs(10);
/// When a coordinator that does not answer is asked again.
pub const COORDINATOR_AWAY: Duration = Duration::from_millis(300);
/// A coordinator that wants to be left alone for longer is asked all the same.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
