//! Messages over a socket between a host and one worker.
//!
//! A message is a tag and a number; anything longer travels as the descriptor of a memfd. So a message is never sent in
//! part, no side ever waits for the other to read, and nothing is copied through the socket.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Maximum number of bytes in the payload of a message, command or reply: 1 GiB. Only as many bytes are allocated as
/// the payload has.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// First message from host to worker. Its descriptor has the hello's bytes.
    Hello = 1,
    /// Message from worker to host, sent once. Its descriptor has the answer's bytes.
    Ready,
    /// Message from host to worker, sent once, with the worker's memory, its bell and the host's bell. The number is that
    /// of all workers.
    Attach,
    /// Message of either side, with the payload of a command or reply that does not fit its inline area.
    Payload,
    /// Message from a worker that is not ready to its host: it has tried so many times to connect, and tries again.
    Connecting,
    /// First message of a program that the host has not started: it wants the place of that number, and shows the key.
    Join,
    /// Answer to a program that does not become a worker. The number says why.
    Refused,
}

/// What a program sends first that wants to become a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// Number of its place, or [`ANY_PLACE`].
    pub(crate) place: u64,
    pub(crate) key: [u8; KEY_BYTES],
}

/// Number that stands for any place.
pub(crate) const ANY_PLACE: u64 = u64::MAX;
/// Bytes of the key that such a program shows.
pub(crate) const KEY_BYTES: usize = 32;

/// Message with its number and descriptors.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) tag: Tag,
    pub(crate) number: u64,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Result of receiving.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    /// No message is there yet (never when told to block).
    Nothing,
    /// The other side closed its end.
    Closed,
}

/// Makes a connected pair of sockets that keep messages apart.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message with at most [`MAX_DESCRIPTORS`] descriptors, without blocking.
///
/// # Errors
/// The kernel's error; `WouldBlock` if the other side has left many messages unread.
pub(crate) fn send(
    socket: &OwnedFd,
    tag: Tag,
    number: u64,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = header(tag, number);
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors in a message"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// Receives one message, waiting for it only if `block`.
///
/// # Errors
/// `InvalidData` for what no version of this crate sends; else the kernel's error.
pub(crate) fn receive(socket: &OwnedFd, block: bool) -> io::Result<Received> {
    let mut bytes = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let waiting = if block { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let mut reset = false;
    let received = loop {
        let flags = waiting | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(received) => break received,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Received::Nothing),
            // The other side left something unread as it closed its end; what it sent before comes after that.
            Err(rustix::io::Errno::CONNRESET) if !std::mem::replace(&mut reset, true) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Closed),
            Err(error) => return Err(error.into()),
        }
    };
    if received.bytes == 0 {
        return Ok(Received::Closed);
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    let [tag, number] = [word(&bytes[..8]), word(&bytes[8..])];
    // A worker does not join again.
    let tags = [Tag::Hello, Tag::Ready, Tag::Attach, Tag::Payload, Tag::Connecting, Tag::Refused];
    let tag = tags.into_iter().find(|&t| t as u64 == tag);
    match tag {
        Some(tag) if received.bytes == HEADER_BYTES => {
            Ok(Received::Message(Message { tag, number, descriptors }))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message of an unknown kind")),
    }
}

/// Sends what a program sends first that wants to become a worker. One that has been refused already finds the answer.
///
/// # Errors
/// The kernel's error.
pub(crate) fn send_join(socket: &OwnedFd, Join { place, key }: Join) -> io::Result<()> {
    let bytes = [&header(Tag::Join, place)[..], &key].concat();
    match rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL) {
        Ok(_) | Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Receives that message, of a program that may be anybody; `None` if there is none yet.
///
/// # Errors
/// `InvalidData` for anything else; also for a connection that was closed.
pub(crate) fn receive_join(socket: &OwnedFd) -> io::Result<Option<Join>> {
    // One byte more than it has, so that what is longer is seen. Descriptors that come with it are dropped by the kernel.
    let mut bytes = [0; JOIN_BYTES + 1];
    match rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Ok((JOIN_BYTES, _)) if word(&bytes[..8]) == Tag::Join as u64 => {}
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no first message of a worker")),
    }
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&bytes[HEADER_BYTES..JOIN_BYTES]);
    Ok(Some(Join { place: word(&bytes[8..HEADER_BYTES]), key }))
}

fn header(tag: Tag, number: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&(tag as u64).to_ne_bytes());
    bytes[8..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// Puts bytes into a sealed memfd.
///
/// # Errors
/// The kernel's error; `InvalidInput` beyond [`MAX_MESSAGE_BYTES`].
pub(crate) fn stash(bytes: &[u8]) -> io::Result<OwnedFd> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(too_long(bytes.len() as u64, MAX_MESSAGE_BYTES));
    }
    let fd = memfd_create("rollhouse-message", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// Returns the bytes of a memfd that [`stash`] made, at most `most`.
///
/// # Errors
/// `InvalidInput` beyond `most`, before anything is allocated, and for a descriptor of anything else, which may never give
/// what it announces; else the kernel's error.
pub(crate) fn unstash(fd: OwnedFd, most: usize) -> io::Result<Vec<u8>> {
    if !fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message that is no sealed memory"));
    }
    let size = u64::try_from(fstat(fd.as_fd())?.st_size).unwrap_or(u64::MAX);
    let len = usize::try_from(size).ok().filter(|&len| len <= most);
    let mut bytes = vec![0; len.ok_or_else(|| too_long(size, most))?];
    File::from(fd).read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn too_long(bytes: u64, most: usize) -> io::Error {
    let message = format!("a message of {bytes} bytes is longer than the limit of {most} bytes");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Seals of a message's memory: nobody changes it or its length any more.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

const HEADER_BYTES: usize = 16;
const JOIN_BYTES: usize = HEADER_BYTES + KEY_BYTES;
/// Maximum number of descriptors in one message.
const MAX_DESCRIPTORS: usize = 3;
const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_what_is_too_long_for_it() {
        let (here, there) = pair().unwrap();
        let bytes: Vec<u8> = (0..1_000_000).map(|i| i as u8).collect();
        let stashed = stash(&bytes).unwrap();
        send(&here, Tag::Payload, 9, &[stashed.as_fd()]).unwrap();
        let Received::Message(mut message) = receive(&there, true).unwrap() else { panic!("no message") };
        assert_eq!((message.tag, message.number), (Tag::Payload, 9));
        assert_eq!(unstash(message.descriptors.remove(0), bytes.len()).unwrap(), bytes);
        assert!(matches!(receive(&there, false).unwrap(), Received::Nothing));
    }

    #[test]
    fn what_is_too_long_or_no_sealed_memory_is_refused_before_it_is_read() {
        let refusal = |fd: OwnedFd| unstash(fd, 1000).unwrap_err().to_string();
        let long = refusal(stash(&[7; 1001]).unwrap());
        assert_eq!(long, "a message of 1001 bytes is longer than the limit of 1000 bytes");
        let open = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let (pipe, _writer) = io::pipe().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        for fd in [open, pipe.into(), file.into()] {
            assert_eq!(refusal(fd), "a message that is no sealed memory");
        }
    }

    #[test]
    fn an_end_that_is_closed_is_noticed_and_so_is_nonsense() {
        let (here, there) = pair().unwrap();
        let flags = SendFlags::empty();
        sendmsg(&here, &[IoSlice::new(&[9; 16])], &mut SendAncillaryBuffer::default(), flags).unwrap();
        assert_eq!(receive(&there, true).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(here);
        assert!(matches!(receive(&there, true).unwrap(), Received::Closed));
    }
}
