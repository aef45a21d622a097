//! The owner's end of an attachment.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg};
use rustix::process::geteuid;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::request::bounded_length;
use crate::call_id::request_bytes;
use crate::control::{self, ControlError};
use crate::limits::{ATTACH_DESCRIPTORS, MAX_ATTACH_PATH_BYTES};
use crate::{Answer, AttachMemory, CallId, MemoryAttached, Refusal, Request};

/// A connection to a node's attach socket. The owner stays attached while it is open.
#[derive(Debug)]
pub struct OwnerSocket {
    stream: std::os::unix::net::UnixStream,
}

impl OwnerSocket {
    /// Connects to the socket at `path` and asks for a session's memory. The memory comes as two descriptors: what the
    /// node writes, and what the owner writes. Nothing is sent to a process of a user other than our own and root,
    /// unless `anybody` is believed. The request is part of the client's call `of`, if there is one. Needs a tokio
    /// runtime. Cancellation-safe: when the future is dropped, the node is told.
    ///
    /// # Errors
    /// See [`AttachCallError`].
    pub async fn attach(
        path: &Path,
        anybody: bool,
        asked: AttachMemory,
        of: Option<CallId>,
    ) -> Result<(Self, MemoryAttached, [OwnedFd; ATTACH_DESCRIPTORS]), AttachCallError> {
        let bytes = path.as_os_str().len();
        if bytes > MAX_ATTACH_PATH_BYTES {
            return Err(AttachCallError::Path { bytes });
        }
        let mut stream = UnixStream::connect(path).await.map_err(AttachCallError::Connect)?;
        let uid = stream.peer_cred().map_err(AttachCallError::Connect)?.uid();
        if !anybody && uid != geteuid().as_raw() && uid != 0 {
            return Err(AttachCallError::Stranger { uid });
        }
        let request = Request::AttachMemory(asked);
        let request = request_bytes(&request, of).map_err(AttachCallError::Message)?;
        // A node that turns us away has answered before it reads, and may have closed its end.
        let _written = stream.write_all(&request).await;
        let (answer, descriptors) = read_answer(&mut stream).await?;
        let attached =
            control::decode::<Answer<MemoryAttached>>(&answer).map_err(AttachCallError::Message)?;
        let attached = attached.into_result().map_err(AttachCallError::Refused)?;
        let given = descriptors.len();
        let memory = <[OwnedFd; ATTACH_DESCRIPTORS]>::try_from(descriptors)
            .map_err(|_| AttachCallError::Descriptors { given })?;
        let stream = stream.into_std().map_err(AttachCallError::Lost)?;
        Ok((Self { stream }, attached, memory))
    }

    /// Returns whether the node is there: it has not closed the connection and has not died. Never blocks.
    pub fn is_open(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [MaybeUninit::<u8>::uninit()];
        // Nothing is ever said on it, so that anything but silence is the end.
        recv(self.stream.as_fd(), &mut byte, flags).err() == Some(rustix::io::Errno::WOULDBLOCK)
    }
}

/// Reads one message and all descriptors that come with it.
async fn read_answer(stream: &mut UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>), AttachCallError> {
    let mut word = [0; 4];
    let (first, descriptors) = receive(stream, &mut word).await?;
    stream.read_exact(&mut word[first..]).await.map_err(AttachCallError::Lost)?;
    let length = bounded_length(word).map_err(AttachCallError::Lost)?;
    let mut bytes = vec![0; length];
    // Descriptors come with the first byte; the kernel drops those that are sent beside later ones.
    stream.read_exact(&mut bytes).await.map_err(AttachCallError::Lost)?;
    Ok((bytes, descriptors))
}

/// Receives the first bytes, at least one, and the descriptors beside them.
async fn receive(stream: &UnixStream, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), AttachCallError> {
    let mut descriptors = Vec::new();
    let received = stream.async_io(Interest::READABLE, || {
        // Room for one more than is right, so that too many are seen.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ATTACH_DESCRIPTORS + 1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(bytes)], &mut beside, flags)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        Ok(received)
    });
    let received = received.await.map_err(AttachCallError::Lost)?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(AttachCallError::Descriptors { given: descriptors.len() + 1 });
    }
    if received.bytes == 0 {
        return Err(AttachCallError::Lost(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok((received.bytes, descriptors))
}

/// The reason why an owner is not attached by memory.
#[derive(Debug, thiserror::Error)]
pub enum AttachCallError {
    /// The path is longer than [`MAX_ATTACH_PATH_BYTES`].
    #[error("the path of the attach socket has {bytes} bytes, at most {MAX_ATTACH_PATH_BYTES}")]
    Path {
        /// Length of the path in bytes.
        bytes: usize,
    },
    /// Nobody answers at the path.
    #[error("the attach socket does not answer")]
    Connect(#[source] io::Error),
    /// A process of another user answers and is not believed.
    #[error("a process of user {uid} answers at the attach socket, not one of ours or root's")]
    Stranger {
        /// The user id of that process.
        uid: u32,
    },
    /// The connection ended, or the bytes that came are not a message.
    #[error("the attach socket ended before it answered")]
    Lost(#[source] io::Error),
    /// The answer cannot be read.
    #[error(transparent)]
    Message(ControlError),
    /// The node refuses.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer does not have [`ATTACH_DESCRIPTORS`] descriptors; those that came are closed.
    #[error("{given} descriptors came with the answer, {ATTACH_DESCRIPTORS} are wanted")]
    Descriptors {
        /// Number of descriptors that came, at least.
        given: usize,
    },
}
