//! Attaches a session by memory.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use rollhouse_arena::{ArenaIdent, AttachError, AttachedArena, BatchColumns, Expected};
use rollhouse_core::{AutoresetMode, ColumnData, EnvSpec, RunId};
use rollhouse_wire::{
    Asks, AttachCallError, AttachMemory, Attached, CallId, FrameLayout, Grant, Notes, OwnerSocket, Refusal,
    RefusalCode, VERSION, failpoint,
};

use super::Link;
use super::memory::{MemoryAnswer, MemoryLink};
use super::stream::ATTACH_DEADLINE;
use crate::network::Network;
use crate::session::SessionEvent;

/// The shape that a session's memory must have.
#[derive(Debug)]
pub(crate) struct Shape {
    columns: BatchColumns,
    autoreset: u64,
    layout: FrameLayout,
}

/// Why a session is not attached by memory.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// The socket does not lead to it.
    Call(AttachCallError),
    /// The file that came is not the session's memory.
    Attach(AttachError),
    /// The node has no attach socket.
    NoSocket,
    /// It is the memory of another session, which has this many lanes.
    Lanes(u32),
    /// The node took too long.
    TimedOut,
    /// The notes beside the newest frame are malformed.
    Notes(String),
}

impl Shape {
    pub(crate) fn new(spec: &EnvSpec, autoreset: AutoresetMode, layout: FrameLayout) -> Self {
        let columns = BatchColumns::of(spec, autoreset == AutoresetMode::SameStep);
        Self { columns, autoreset: autoreset.code(), layout }
    }
}

/// Asks at the node's socket for the memory of a session of that pool. If `earlier` is memory that has lost its node,
/// the memory stays where it is. Cancellation-safe.
pub(super) async fn attach(
    earlier: &mut Link,
    shape: &Shape,
    network: &Network,
    pool: RunId,
    grant: &Grant,
) -> Result<SessionEvent, LinkError> {
    let Some(socket) = network.attach().socket(grant) else { return Err(LinkError::NoSocket) };
    let Grant { index, incarnation, secret, .. } = *grant;
    let asked = AttachMemory { version: VERSION, pool, index, incarnation, secret, log: true };
    let call = CallId::generate();
    let mapped = map(earlier, &socket, network.attach().anybody(), (asked, call), grant, shape);
    let attach = call.traced(AttachMemory::WORD, mapped);
    let Attached { last, logs, .. } =
        tokio::time::timeout(ATTACH_DEADLINE, attach).await.map_err(|_| LinkError::TimedOut)??;
    Ok(SessionEvent::Attached { last, logs })
}

/// Asks at that socket, as part of the call `of`, and maps what comes. Returns what the node says of the session.
async fn map(
    earlier: &mut Link,
    socket: &Path,
    anybody: bool,
    (asked, of): (AttachMemory, CallId),
    grant: &Grant,
    shape: &Shape,
) -> Result<Attached, LinkError> {
    failpoint("client.attach.asking");
    let call = OwnerSocket::attach(socket, anybody, asked, Some(of));
    let (socket, attached, [outputs, inputs]) = call.await.map_err(|error| match error {
        AttachCallError::Refused(refusal) => LinkError::Call(AttachCallError::Refused(refusal.of_call(of))),
        error => LinkError::Call(error),
    })?;
    failpoint("client.attach.answered");
    if attached.lanes != grant.lanes {
        return Err(LinkError::Lanes(attached.lanes));
    }
    let ident = ArenaIdent {
        term: grant.incarnation.term,
        counter: grant.incarnation.counter,
        autoreset: shape.autoreset,
    };
    let lanes = grant.lanes as usize;
    let expected = Expected { columns: &shape.columns, lanes, ident, generation: attached.generation };
    let (number, logs) = (attached.last, attached.logs);
    let last = attached.refused.map_or(MemoryAnswer::Batch, MemoryAnswer::Refused);
    let link = if let Link::Memory(link) = earlier {
        link.renew(outputs, inputs, &expected)?;
        (link.socket, link.under_way, link.last) = (Some(socket), None, last);
        (link.answered_before, link.number) = (Some(number), None);
        link
    } else {
        let arena = AttachedArena::open(outputs, inputs, &expected).map_err(LinkError::Attach)?;
        *earlier = Link::Memory(Box::new(MemoryLink {
            arena,
            socket: Some(socket),
            layout: shape.layout.clone(),
            under_way: None,
            ready: Vec::new(),
            refused: Vec::new(),
            last,
            answered_before: Some(number),
            number: None,
            notes: Notes::default(),
        }));
        let Link::Memory(link) = earlier else { return Err(LinkError::NoSocket) };
        link
    };
    // If the last request was carried out, its frame is the newest.
    link.read_notes().map_err(LinkError::Notes)?;
    failpoint("client.attach.mapped");
    Ok(Attached { lanes: grant.lanes, last: number, logs, as_done: true, plays: false })
}

impl MemoryLink {
    /// Takes the trainer's new file in, with the actions of the old one: they may have to be posted again. A node lets an
    /// owner go once what was sent is done, so that lanes are known that need not be sent again.
    fn renew(&mut self, outputs: OwnedFd, inputs: OwnedFd, expected: &Expected<'_>) -> Result<(), LinkError> {
        let rows = 0..self.arena.lanes() as u32;
        let mut actions = ColumnData::zeros(self.layout.action.dtype, 0);
        let still = self.arena.outstanding() == 0;
        if !still {
            let done = self.arena.take_done(&mut self.ready);
            done.map_err(|error| LinkError::Notes(error.to_string()))?;
        }
        for lane in rows.filter(|_| still) {
            let appended = actions.extend(self.arena.action_row_mut(lane).as_ref());
            debug_assert!(appended, "the column has the layout's type");
        }
        self.arena.renew(outputs, inputs, expected).map_err(LinkError::Attach)?;
        if still {
            let copied = self.arena.actions_mut().copy_from(actions.as_ref());
            debug_assert!(copied, "both are the same column");
        }
        Ok(())
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal().fmt(f)
    }
}

impl LinkError {
    /// Returns the refusal for a request that needs the attachment.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::Call(AttachCallError::Refused(refusal)) => refusal.clone(),
            error => Refusal::new(RefusalCode::Unsupported, error.sentence()),
        }
    }

    /// Returns whether the node's socket was reached, and the node refused.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Call(AttachCallError::Refused(_)))
    }

    /// Returns whether no process has the session's memory any more, if one had it before.
    pub(crate) fn is_dead(&self) -> bool {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match self {
            Self::Call(AttachCallError::Connect(error)) => {
                matches!(error.kind(), ConnectionRefused | NotFound)
            }
            _ => false,
        }
    }

    fn sentence(&self) -> String {
        let with_source = |error: &dyn std::error::Error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let what = match self {
            Self::Call(error) => with_source(error),
            Self::Attach(error) => with_source(error),
            Self::Lanes(lanes) => format!("the memory has {lanes} lanes"),
            Self::NoSocket => "the node has no attach socket".to_owned(),
            Self::TimedOut => "the node does not answer at its attach socket".to_owned(),
            Self::Notes(what) => what.clone(),
        };
        format!("no shared memory: {what}")
    }
}
