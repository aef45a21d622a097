//! The messages between sites.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use rollhouse_coordinator::Reply;
use rollhouse_core::RunId;
use rollhouse_node::FrameRequest;
use rollhouse_wire::{
    Attach, Attached, CloseSession, FrameHeader, Heartbeat, MemoryAttached, OpenPool, OpenSession,
    PoolStatus, Refusal, Register, ReplaceSession, SessionEnd, SessionOpened, Ship, Shipped,
};

/// A message that one site sends to another on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// Begins the connection.
    Hello,
    /// The connection is there.
    Welcome,
    /// A request, under a number that the asker chose.
    Ask(u64, Question),
    /// The answer to the request with that number.
    Answer(u64, Response),
    /// A request on a session's stream.
    Frame { stream: u64, header: FrameHeader, request: Arc<FrameRequest> },
    /// Something was put into the memory by which a stream's owner is attached.
    Bell { stream: u64 },
    /// The answer to a frame.
    Answered { stream: u64, answer: Bytes },
    /// The node ends a stream.
    StreamEnd { stream: u64 },
    /// A keep-alive; sent and answered by connections, not by processes.
    Ping,
    /// The answer to a keep-alive.
    Pong,
}

#[derive(Debug, Clone)]
pub(crate) enum Question {
    Register(Box<Register>),
    Heartbeat(Box<Heartbeat>),
    Ship(Ship, Arc<Vec<u8>>),
    OpenPool(Box<OpenPool>),
    ClosePool(RunId),
    ReplaceSession(Box<ReplaceSession>),
    PoolStatus(RunId),
    OpenSession(Box<OpenSession>),
    CloseSession(CloseSession),
    Attach { stream: u64, attach: Attach, memory: bool },
}

/// A session's memory, as its owner is given it.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) attached: MemoryAttached,
    pub(crate) files: Arc<[OwnedFd; 2]>,
}

#[derive(Debug, Clone)]
pub(crate) enum Response {
    Reply(Box<Reply>),
    Shipped(Shipped),
    Opened(Box<SessionOpened>),
    Ended(Box<SessionEnd>),
    Attached(Attached),
    Memory(Memory),
    Pool(Box<PoolStatus>),
    Refused(Refusal),
}

impl Message {
    /// Returns the message's channel. Messages of one channel arrive in the order in which they were sent; 0 is no
    /// channel.
    pub(crate) const fn channel(&self) -> u64 {
        match self {
            Self::Frame { stream, .. }
            | Self::Answered { stream, .. }
            | Self::Bell { stream }
            | Self::StreamEnd { stream }
            | Self::Ask(_, Question::Attach { stream, .. }) => *stream,
            Self::Hello | Self::Welcome | Self::Ask(..) | Self::Answer(..) | Self::Ping | Self::Pong => 0,
        }
    }

    /// Returns whether it may come twice and must do no harm then, since an asker may ask again.
    pub(crate) const fn may_repeat(&self) -> bool {
        matches!(self, Self::Ask(_, question) if !matches!(question, Question::Attach { .. }))
    }

    /// Returns whether it may come again long after it mattered.
    pub(crate) const fn may_be_stale(&self) -> bool {
        matches!(
            self,
            Self::Ask(
                _,
                Question::OpenPool(_)
                    | Question::ClosePool(_)
                    | Question::ReplaceSession(_)
                    | Question::OpenSession(_)
                    | Question::CloseSession(_)
            )
        )
    }

    /// Returns a number for its kind, and one for its contents, for the trace.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let crc = |bytes: &[u8]| u64::from(crc32c::crc32c(bytes));
        match self {
            Self::Hello => (1, 0),
            Self::Welcome => (2, 0),
            Self::Ask(ask, question) => match question {
                Question::Register(register) => (3, *ask << 16 | register.term),
                Question::Heartbeat(beat) => (4, beat.load.steps << 16 | beat.number),
                Question::Ship(ship, _) => (5, ship.segment << 32 ^ ship.bytes << 16 ^ u64::from(ship.crc)),
                Question::OpenPool(open) => (6, open.pool.as_u128() as u64 ^ u64::from(open.lanes)),
                Question::ClosePool(pool) => (7, pool.as_u128() as u64),
                Question::OpenSession(open) => (8, open.incarnation.counter << 32 | u64::from(open.lanes)),
                Question::CloseSession(close) => (9, close.incarnation.counter),
                Question::Attach { stream, .. } => (10, *stream),
                Question::ReplaceSession(replace) => {
                    (24, u64::from(replace.index) << 32 ^ replace.incarnation.counter)
                }
                Question::PoolStatus(pool) => (20, pool.as_u128() as u64),
            },
            Self::Answer(ask, response) => match response {
                Response::Reply(reply) => (11, *ask ^ crc(format!("{reply:?}").as_bytes())),
                Response::Shipped(shipped) => (12, *ask << 8 | *shipped as u64),
                Response::Opened(_) => (13, *ask),
                Response::Ended(end) => (14, end.done.steps),
                Response::Attached(attached) => (15, u64::from(attached.last)),
                Response::Memory(memory) => {
                    (25, memory.attached.generation << 32 | u64::from(memory.attached.last))
                }
                Response::Pool(status) => (21, *ask ^ crc(format!("{status:?}").as_bytes())),
                Response::Refused(refusal) => (16, crc(refusal.message.as_bytes())),
            },
            Self::Frame { header, .. } => (17, crc(&header.encode())),
            Self::Answered { answer, .. } => (18, crc(answer)),
            Self::Bell { stream } => (26, *stream),
            Self::StreamEnd { stream } => (19, *stream),
            Self::Ping => (22, 0),
            Self::Pong => (23, 0),
        }
    }
}

/// Returns the header of an answer.
pub(crate) fn header_of(answer: &[u8]) -> FrameHeader {
    let header = answer.first_chunk().map(|bytes| FrameHeader::decode(*bytes).expect("a header of ours"));
    header.expect("an answer has a header")
}
