//! Attaches a session by memory.

use std::fmt;
use std::os::fd::OwnedFd;

use rollhouse_arena::{ArenaIdent, AttachError, AttachedArena, BatchColumns, Expected};
use rollhouse_core::{AutoresetMode, ColumnData, EnvSpec, RunId};
use rollhouse_wire::{AttachCallError, FrameLayout, Grant, Notes, Refusal, RefusalCode, failpoint};

use super::Link;
use super::memory::{MemoryAnswer, MemoryLink};
use crate::carrier::{Carrier, NoMemory, OfferedMemory};
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
    /// The node offers none.
    None(NoMemory),
    /// The file that came is not the session's memory.
    Attach(AttachError),
    /// It is the memory of another session, which has this many lanes.
    Lanes(u32),
    /// The node does not say that its lanes are live.
    Pace,
    /// The notes beside the newest frame are malformed.
    Notes(String),
}

impl Shape {
    pub(crate) fn new(spec: &EnvSpec, autoreset: AutoresetMode, layout: FrameLayout) -> Self {
        let columns = BatchColumns::of(spec, autoreset == AutoresetMode::SameStep);
        Self { columns, autoreset: autoreset.code(), layout }
    }
}

/// Asks the session's node for its memory and maps it. If `earlier` is memory that has lost its node, the memory stays
/// where it is. Lanes that are to be `paced` have to be live there. Cancellation-safe.
pub(super) async fn attach<C: Carrier>(
    earlier: &mut Link<C::Stream>,
    (shape, paced): (&Shape, bool),
    carrier: &C,
    pool: RunId,
    grant: &Grant,
) -> Result<SessionEvent, LinkError> {
    let OfferedMemory { attached, files: [outputs, inputs], is_open } =
        carrier.attach_memory(pool, grant).await.map_err(LinkError::None)?;
    if attached.lanes != grant.lanes {
        return Err(LinkError::Lanes(attached.lanes));
    }
    if paced && !attached.paced {
        return Err(LinkError::Pace);
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
        (link.is_open, link.under_way, link.last) = (Some(is_open), None, last);
        (link.answered_before, link.number) = (Some(number), None);
        link
    } else {
        let arena = AttachedArena::open(outputs, inputs, &expected).map_err(LinkError::Attach)?;
        *earlier = Link::Memory(Box::new(MemoryLink {
            arena,
            is_open: Some(is_open),
            layout: shape.layout.clone(),
            under_way: None,
            ready: Vec::new(),
            refused: Vec::new(),
            last,
            answered_before: Some(number),
            number: None,
            notes: Notes::default(),
        }));
        let Link::Memory(link) = earlier else { return Err(LinkError::None(NoMemory::NoSocket)) };
        link
    };
    // If the last request was carried out, its frame is the newest.
    link.read_notes().map_err(LinkError::Notes)?;
    failpoint("client.attach.mapped");
    Ok(SessionEvent::Attached { last: number, logs })
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
            Self::None(NoMemory::Call(AttachCallError::Refused(refusal))) => refusal.clone(),
            error => Refusal::new(RefusalCode::Unsupported, error.sentence()),
        }
    }

    /// Returns whether the node's socket was reached, and the node refused.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::None(NoMemory::Call(AttachCallError::Refused(_))))
    }

    /// Returns whether no process has the session's memory any more, if one had it before.
    pub(crate) fn is_dead(&self) -> bool {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match self {
            Self::None(NoMemory::Call(AttachCallError::Connect(error))) => {
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
            Self::None(NoMemory::Call(error)) => with_source(error),
            Self::Attach(error) => with_source(error),
            Self::Lanes(lanes) => format!("the memory has {lanes} lanes"),
            Self::None(NoMemory::NoSocket) => "the node has no attach socket".to_owned(),
            Self::None(NoMemory::TimedOut) => "the node does not answer at its attach socket".to_owned(),
            Self::Pace => "the node has no live lanes there".to_owned(),
            Self::Notes(what) => what.clone(),
        };
        format!("no shared memory: {what}")
    }
}
