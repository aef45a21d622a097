//! What carries out the actions of a pool's sessions: the network and this machine's memory, or a simulation of both.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{
    AttachCallError, Attached, ColumnBuffer, FrameHeader, Grant, MemoryAttached, PoolStatus,
    PoolStatusRequest, Refusal, ReplaceSession, SessionReplaced,
};

use crate::session::{NoPlace, RequestBody, SessionEvent};

/// Tells the time, sleeps, opens links to nodes and asks the coordinator, for [`PoolSession`](crate::PoolSession).
/// Every future can be dropped at any point.
pub trait Carrier: Sync {
    /// The stream by which a session may be attached.
    type Stream: SessionStream;
    /// A timer that a session keeps from one wait to the next.
    type Alarm: Default + Send + Sync;

    /// Returns the time on the clock that sessions decide by.
    fn now(&self) -> Duration;

    /// Waits until that time.
    fn sleep_until(&self, until: Duration) -> impl Future<Output = ()> + Send;

    /// Waits until that time by a timer that is kept.
    fn alarm(&self, alarm: &mut Self::Alarm, until: Duration) -> impl Future<Output = ()> + Send;

    /// Attaches a session by a new stream, whose answers have columns of at most so many bytes.
    ///
    /// # Errors
    /// The event that happened instead.
    fn attach_stream(
        &self,
        pool: RunId,
        grant: &Grant,
        max_columns: usize,
    ) -> impl Future<Output = Result<(Self::Stream, Attached), SessionEvent>> + Send;

    /// Asks the session's node for its memory.
    ///
    /// # Errors
    /// See [`NoMemory`].
    fn attach_memory(
        &self,
        pool: RunId,
        grant: &Grant,
    ) -> impl Future<Output = Result<OfferedMemory, NoMemory>> + Send;

    /// Asks the coordinator for another place of a session.
    ///
    /// # Errors
    /// Why there is none now.
    fn replace(
        &self,
        request: ReplaceSession,
    ) -> impl Future<Output = Result<SessionReplaced, NoPlace>> + Send;

    /// Asks the coordinator for the state of a pool; `None` if it does not answer in time.
    fn pool_status(&self, request: PoolStatusRequest) -> impl Future<Output = Option<PoolStatus>> + Send;
}

/// A session's stream to its node, or none. When it is dropped, the node learns that its owner does not listen any more.
pub trait SessionStream: Default + Send + Sync {
    /// The connection on which it runs.
    type Line: Line;

    /// Returns whether requests can be posted.
    fn is_attached(&self) -> bool;

    /// Returns the connection on which it runs, if there is one.
    fn line(&self) -> Option<Self::Line>;

    /// Returns whether the request with that number was not posted on it yet.
    ///
    /// # Errors
    /// See [`LinkLost`].
    fn is_free(&self, number: u32) -> Result<bool, LinkLost>;

    /// Posts a request, once, after [`SessionStream::is_free`].
    fn post(&mut self, number: u32, body: &RequestBody);

    /// Has the posted request answered with the lanes that are done, if it waits for more.
    fn hasten(&mut self);

    /// Waits for the answer to the request with that number; answers to earlier ones are skipped. Can be dropped at any
    /// point.
    ///
    /// # Errors
    /// See [`LinkLost`].
    fn answer(&mut self, number: u32) -> impl Future<Output = Result<LinkAnswer, LinkLost>> + Send;

    /// Takes answers whose columns have so many bytes, from the next one on. A stream without a limit does nothing.
    fn take_up_to(&mut self, max_columns: usize) {
        let _ = max_columns;
    }

    /// Returns the columns of the last answer.
    fn columns(&self) -> Option<&ColumnBuffer>;

    /// Returns the sidecar of the last answer.
    fn sidecar(&self) -> &[u8];

    /// Lets the node go.
    fn detach(&mut self);

    /// Lets the node go because it breaks the protocol.
    fn distrust(&mut self, what: &str);
}

/// A connection to a node.
pub trait Line: Send + Sync {
    /// Returns a number that grows with what is received; `None` if the connection is lost.
    fn received(&self) -> Option<u64>;

    /// Asks the peer's host whether anybody listens at its port.
    fn doubt(&self);
}

/// The answer to a request.
#[derive(Debug)]
pub enum LinkAnswer {
    /// It was carried out.
    Done(FrameHeader),
    /// Nothing has moved.
    Refused(Refusal),
}

/// The link is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLost {
    /// It ended, for whatever reason.
    Ended,
    /// Nobody listens at the node's port any more.
    PortClosed,
}

/// Memory that a node offers to the owner of a session.
pub struct OfferedMemory {
    /// What the node says of the session.
    pub attached: MemoryAttached,
    /// The two files of the memory: outputs and inputs.
    pub files: [OwnedFd; 2],
    /// Whether the node serves this attachment still. The node learns that its owner is gone when this is dropped.
    pub is_open: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Why a node offers no memory.
#[derive(Debug)]
pub enum NoMemory {
    /// The socket does not lead to it.
    Call(AttachCallError),
    /// The node has no attach socket.
    NoSocket,
    /// The node took too long.
    TimedOut,
}
