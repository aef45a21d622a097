//! The node's end of an attachment.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rollhouse_core::msgpack::Message;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tracing::{Span, error_span};

use crate::call_id::Received;
use crate::control::{self, ControlError};
use crate::endpoint::span_of;
use crate::limits::{ATTACH_DEADLINE, ATTACH_DESCRIPTORS, MAX_ATTACH_MESSAGE_BYTES};
use crate::{Answer, AttachMemory, CallId, MemoryAttached, Refusal, RefusalCode, Request, Versions};

/// A process that is connected to the attach socket and may attach. Dropping it closes the connection.
#[derive(Debug)]
pub struct AttachSocket {
    stream: UnixStream,
    uid: u32,
    call: Option<CallId>,
    span: Span,
}

impl AttachSocket {
    pub(super) const fn new(stream: UnixStream, uid: u32) -> Self {
        Self { stream, uid, call: None, span: Span::none() }
    }

    /// Returns the user id of the process.
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the client's call that the request belongs to, if the request names one.
    pub const fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Returns a span that names that call; log lines inside it carry the call.
    pub const fn span(&self) -> &Span {
        &self.span
    }

    /// Reads the request. Waits at most [`ATTACH_DEADLINE`].
    ///
    /// # Errors
    /// The refusal to answer with if the process asks for anything else; `None` if it is gone, is too slow, or does not
    /// speak our protocol.
    pub async fn request(&mut self) -> Result<AttachMemory, Option<Refusal>> {
        let read = tokio::time::timeout(ATTACH_DEADLINE, self.read_message()).await;
        let bytes = read.map_err(|_| None)?.map_err(|_| None)?;
        let received = match Received::read(&bytes) {
            Ok(received) => received,
            Err(error) => return Err(Some(Refusal::new(RefusalCode::BadRequest, error.to_string()))),
        };
        self.call = received.call();
        self.span = span_of(self.call, &received.request);
        match received.request {
            Request::AttachMemory(asked) => {
                let theirs = Versions { oldest: asked.version, newest: asked.version };
                if Versions::OURS.common(theirs).is_some() {
                    return Ok(asked);
                }
                let Versions { oldest, newest } = Versions::OURS;
                let message = format!("version {} is not from {oldest} to {newest}", asked.version);
                Err(Some(Refusal::new(RefusalCode::Version, message)))
            }
            other => {
                let message = format!("the attach socket does not answer {}", other.word());
                Err(Some(Refusal::new(RefusalCode::Unsupported, message)))
            }
        }
    }

    /// Answers with the session's memory: from now on the owner is attached.
    ///
    /// # Errors
    /// The error of the socket if the owner is gone; `TimedOut` if it does not take the answer within [`ATTACH_DEADLINE`].
    pub async fn accept(
        &mut self,
        attached: MemoryAttached,
        memory: [BorrowedFd<'_>; ATTACH_DESCRIPTORS],
    ) -> io::Result<()> {
        // What was asked for is done; what is logged from here on still names the call.
        self.span = self.call.map_or_else(Span::none, |call| error_span!("attached", %call));
        let bytes = encoded(&Answer::Ok(attached))?;
        let stream = &self.stream;
        let sent = stream.async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ATTACH_DESCRIPTORS))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            beside.push(SendAncillaryMessage::ScmRights(&memory));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(stream.as_fd(), &[IoSlice::new(&bytes)], &mut beside, flags)?)
        });
        let sent =
            tokio::time::timeout(ATTACH_DEADLINE, sent).await.map_err(|_| io::ErrorKind::TimedOut)??;
        // The descriptors go with the first byte.
        let rest = self.stream.write_all(&bytes[sent..]);
        tokio::time::timeout(ATTACH_DEADLINE, rest).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Answers with a refusal. Does not check that the asker has read it.
    pub async fn refuse(&mut self, refusal: Refusal) {
        if let Ok(bytes) = encoded(&Answer::<MemoryAttached>::Refused(refusal)) {
            let _sent = tokio::time::timeout(ATTACH_DEADLINE, self.stream.write_all(&bytes)).await;
        }
    }

    /// Waits until the owner is gone, or sends anything more, which it may not. Cancellation-safe.
    pub async fn gone(&mut self) {
        let mut byte = [0];
        // An end, a byte and an error all mean the same.
        let _end = self.stream.read(&mut byte).await;
    }

    async fn read_message(&mut self) -> io::Result<Vec<u8>> {
        let mut word = [0; 4];
        self.stream.read_exact(&mut word).await?;
        let length = bounded_length(word)?;
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }
}

/// Returns how many bytes follow a length word on an attach socket.
pub(super) fn bounded_length(word: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(word) as usize;
    if length > MAX_ATTACH_MESSAGE_BYTES {
        let message = format!("a message of {length} bytes, at most {MAX_ATTACH_MESSAGE_BYTES} allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(length)
}

pub(super) fn encoded<T: Message>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let invalid = |error: ControlError| io::Error::new(io::ErrorKind::InvalidData, error);
    control::encode(message, &mut bytes).map_err(invalid)?;
    Ok(bytes)
}
