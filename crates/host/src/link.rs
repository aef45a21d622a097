//! The worker's end of the connection to its host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rollhouse_arena::{Patience, SharedColumns, SharedMemory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpgrp, getpid, getppid, kill_process_group};

use crate::control::{DATA_OFFSET, INLINE_BYTES, Lines, Payload};
use crate::control_group::kill_own_group;
use crate::descendants::{Mark, Root, kill_descendants};
use crate::error::LinkError;
use crate::message::{self, MAX_MESSAGE_BYTES, Message, Received, Tag};
use crate::process::watched;
use crate::worker_socket::{self, JOIN_WITHIN, JoinRefusal};

/// Connection of a worker process to its host.
///
/// While one exists that was opened by a process of the host's, a thread of its own watches the host: when the host ends or hangs up, the worker and all that it
/// started are killed at once, whatever its other threads are doing.
#[derive(Debug)]
pub struct Link {
    socket: Arc<OwnedFd>,
    hello: Vec<u8>,
    /// Number of messages that told of connecting.
    told: u32,
    attached: Option<Attached>,
}

#[derive(Debug)]
struct Attached {
    memory: SharedMemory,
    /// Bell that the host rings when this worker is asleep.
    own_bell: OwnedFd,
    host_bell: OwnedFd,
    sequence: u64,
    /// Time at which the last command was taken.
    commanded: Instant,
    patience: Patience,
}

/// Command of the host.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// Number of the command, in the caller's numbering.
    pub code: u64,
    /// Bytes of the command; often none.
    pub payload: Vec<u8>,
}

impl Link {
    /// Takes the socket to the host from standard input, which reads nothing from now on, and waits for the
    /// first message. `host` is the process id of the host.
    ///
    /// # Errors
    /// [`LinkError::HostGone`] if it is; [`LinkError::Protocol`] for a message out of turn or without its bytes; else the
    /// error of the socket or the kernel.
    pub fn open(host: u32) -> Result<Self, LinkError> {
        let socket = Arc::new(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(null)?;
        watch(host, Arc::clone(&socket))?;
        Self::begin(socket)
    }

    /// Connects to the host that listens in `folder` ([`WorkerSource::Socket`](crate::WorkerSource::Socket)) and waits for
    /// the first message: this process was not started by the host, and nothing here ends it. When the host ends, hangs up
    /// or gives it up, [`Link::receive`] fails. `place` is the number of the worker that it becomes; `None` is any that is
    /// free. Blocks for at most [`HELLO_WITHIN`] until the host listens, and as long until it answers.
    ///
    /// # Errors
    /// [`LinkError::Refused`]; [`LinkError::Os`], also for a folder that others may enter; else as for [`Link::open`].
    pub fn connect(folder: &Path, place: Option<usize>) -> Result<Self, LinkError> {
        let deadline = Instant::now() + HELLO_WITHIN;
        let socket = loop {
            match worker_socket::join(folder, place) {
                Ok(socket) => break Arc::new(socket),
                // The host may be started after its workers.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(KNOCK_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        };
        let patience = Timespec::try_from(HELLO_WITHIN).ok();
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], patience.as_ref())? {
            0 => Err(LinkError::Protocol("the host did not answer in time")),
            _ => Self::begin(socket),
        }
    }

    fn begin(socket: Arc<OwnedFd>) -> Result<Self, LinkError> {
        let mut message = receive_message(&socket, Tag::Hello)?;
        let hello = message.descriptors.pop().ok_or(LinkError::Protocol("a hello without its bytes"))?;
        Ok(Self { socket, hello: message::unstash(hello, MAX_MESSAGE_BYTES)?, told: 0, attached: None })
    }

    /// Returns the first message, which [`crate::HostConfig::hellos`] has for this worker.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Tells the host that this worker can take commands, and waits until it is given its memory.
    ///
    /// # Errors
    /// As for [`Link::open`].
    pub fn ready(&mut self, answer: &[u8]) -> Result<(), LinkError> {
        let answer = message::stash(answer)?;
        message::send(&self.socket, Tag::Ready, 0, &[answer.as_fd()])?;
        let message = receive_message(&self.socket, Tag::Attach)?;
        let workers = usize::try_from(message.number).unwrap_or(usize::MAX);
        let Ok([memory, own_bell, host_bell]) = <[OwnedFd; 3]>::try_from(message.descriptors) else {
            return Err(LinkError::Protocol("a memory without its bells"));
        };
        let memory = SharedMemory::attach(memory)?;
        if memory.len() < DATA_OFFSET {
            return Err(LinkError::Protocol("a memory that has no lines"));
        }
        let sequence = Lines::of(&memory).replied();
        let (commanded, patience) = (Instant::now(), Patience::among(workers.saturating_add(1)));
        self.attached = Some(Attached { memory, own_bell, host_bell, sequence, commanded, patience });
        Ok(())
    }

    /// Returns the memory that this worker shares with its host alone, and the offset at which the caller's part of it
    /// begins; `None` before [`Link::ready`].
    pub fn memory(&self) -> Option<(&SharedMemory, usize)> {
        self.attached.as_ref().map(|attached| (&attached.memory, DATA_OFFSET))
    }

    /// Ends the words of the caller's part at its byte `offset`, and returns what lies behind it as columns.
    ///
    /// # Errors
    /// [`LinkError::Protocol`] before [`Link::ready`], or if there is no such word.
    pub(crate) fn take_columns(&mut self, offset: usize) -> Result<SharedColumns, LinkError> {
        let attached = self.attached.as_mut().ok_or(NOT_READY)?;
        let at = offset.checked_add(DATA_OFFSET);
        match at.filter(|&at| at.is_multiple_of(8) && at <= attached.memory.len()) {
            Some(at) => Ok(attached.memory.split_columns(at)),
            None => Err(LinkError::Protocol("columns outside of the memory")),
        }
    }

    /// Waits for the next command. Blocks for as long as the host has none.
    ///
    /// # Errors
    /// `Interrupted` inside [`LinkError::Os`] if a signal was handled meanwhile: call it again.
    /// [`LinkError::Protocol`] before [`Link::ready`]. Else as for [`Link::open`].
    pub fn receive(&mut self) -> Result<Command, LinkError> {
        let attached = self.attached.as_mut().ok_or(NOT_READY)?;
        attached.wait(&self.socket)?;
        attached.sequence += 1;
        attached.commanded = Instant::now();
        let lines = Lines::of(&attached.memory);
        let head = lines.command_head();
        let payload = match usize::try_from(head.len) {
            Ok(len) if len <= INLINE_BYTES => lines.command_payload(len),
            Ok(len) if len <= MAX_MESSAGE_BYTES => payload(receive_message(&self.socket, Tag::Payload)?)?,
            _ => return Err(LinkError::TooLong(head.len)),
        };
        Ok(Command { code: head.code, payload })
    }

    /// Writes `number` to the word at byte `offset` of the caller's part. What this process wrote to the memory before is
    /// visible to a host that sees the number. A host that sleeps is woken, but only if the command is older than
    /// a millisecond: it looks by itself at what came before that.
    ///
    /// # Errors
    /// [`LinkError::Protocol`] before [`Link::ready`], or if there is no such word. Else as for [`Link::open`].
    pub fn publish(&self, offset: usize, number: u64) -> Result<(), LinkError> {
        self.publish_all(&[(offset, number)])
    }

    /// Writes numbers to words as [`Link::publish`] does, and wakes the host once for all of them.
    ///
    /// # Errors
    /// As [`Link::publish`]; the numbers before the one that is refused are written.
    pub fn publish_all(&self, numbers: &[(usize, u64)]) -> Result<(), LinkError> {
        let attached = self.attached.as_ref().ok_or(NOT_READY)?;
        let room = attached.memory.len() - DATA_OFFSET;
        for &(offset, number) in numbers {
            if !offset.is_multiple_of(8) || offset > room.saturating_sub(8) {
                return Err(LinkError::Protocol("a number for a word that is not there"));
            }
            attached.memory.word(DATA_OFFSET + offset).store(number, Ordering::Release);
        }
        let lines = Lines::of(&attached.memory);
        // The clock is read only where it decides.
        if lines.wants_bell() && attached.commanded.elapsed() >= QUIET_TIME {
            ring(&attached.host_bell)?;
        }
        Ok(())
    }

    /// Tells the host how often this worker has tried again to connect to what its envs are clients of; 0 once they have
    /// connected. Before [`Link::ready`] only the first [`MAX_TOLD`] calls are told, which fit the socket of a host that
    /// does not read just now.
    ///
    /// # Errors
    /// As for [`Link::open`].
    pub fn connecting(&mut self, retries: u64) -> Result<(), LinkError> {
        match &self.attached {
            Some(attached) => {
                let lines = Lines::of(&attached.memory);
                if lines.set_connecting(retries) {
                    ring(&attached.host_bell)?;
                }
            }
            None if self.told < MAX_TOLD => {
                self.told += 1;
                message::send(&self.socket, Tag::Connecting, retries, &[])?;
            }
            None => {}
        }
        Ok(())
    }

    /// Answers the last command.
    ///
    /// # Errors
    /// [`LinkError::Protocol`] before [`Link::ready`]. Else as for [`Link::open`]; also if `bytes` are more than
    /// [`MAX_MESSAGE_BYTES`].
    pub fn reply(&mut self, code: u64, bytes: &[u8]) -> Result<(), LinkError> {
        let attached = self.attached.as_ref().ok_or(NOT_READY)?;
        let inline = if bytes.len() <= INLINE_BYTES {
            Payload::Inline(bytes)
        } else {
            let stashed = message::stash(bytes)?;
            message::send(&self.socket, Tag::Payload, 0, &[stashed.as_fd()])?;
            Payload::Elsewhere(bytes.len())
        };
        let lines = Lines::of(&attached.memory);
        if lines.reply(attached.sequence, code, inline) {
            ring(&attached.host_bell)?;
        }
        Ok(())
    }
}

impl Attached {
    /// Waits until there is a command that has not been taken.
    fn wait(&mut self, socket: &OwnedFd) -> Result<(), LinkError> {
        let lines = Lines::of(&self.memory);
        let sequence = self.sequence;
        let commanded = || lines.commanded() != sequence;
        if self.patience.poll(|| commanded().then_some(())).is_some() {
            return Ok(());
        }
        lines.set_asleep(true);
        let result = loop {
            if commanded() {
                break Ok(());
            }
            let mut fds = [PollFd::new(&self.own_bell, PollFlags::IN), PollFd::new(socket, HUNG_UP)];
            if let Err(error) = poll(&mut fds, None) {
                break Err(LinkError::Os(error.into()));
            }
            if !fds[1].revents().is_empty() {
                break Err(LinkError::HostGone);
            }
            silence(&self.own_bell);
        };
        lines.set_asleep(false);
        result
    }
}

/// Wakes the process that polls the bell.
pub(crate) fn ring(bell: &OwnedFd) -> io::Result<()> {
    match rustix::io::write(bell, &1_u64.to_ne_bytes()) {
        // Its counter is full: it is ringing.
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes back what [`ring`] did, so that the bell can be rung again.
pub(crate) fn silence(bell: &OwnedFd) {
    // An error means that it is not ringing.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

fn receive_message(socket: &OwnedFd, wanted: Tag) -> Result<Message, LinkError> {
    match message::receive(socket, true)? {
        Received::Message(message) if message.tag == wanted => Ok(message),
        Received::Message(Message { tag: Tag::Refused, number, .. }) => {
            Err(JoinRefusal::of_number(number).map_or(LinkError::HostGone, LinkError::Refused))
        }
        Received::Message(_) => Err(LinkError::Protocol("a message out of turn")),
        Received::Nothing | Received::Closed => Err(LinkError::HostGone),
    }
}

fn payload(mut message: Message) -> Result<Vec<u8>, LinkError> {
    let fd = message.descriptors.pop().ok_or(LinkError::Protocol("a payload without its bytes"))?;
    Ok(message::unstash(fd, MAX_MESSAGE_BYTES)?)
}

/// Starts the thread that ends this process when the host ends or hangs up.
fn watch(host: u32, socket: Arc<OwnedFd>) -> Result<(), LinkError> {
    let parent = getppid().filter(|parent| parent.as_raw_nonzero().get().unsigned_abs() == host);
    let parent = watched(parent.ok_or(LinkError::HostGone)?)?;
    // The parent may have ended between the two; then this process has another parent now.
    if getppid().map(Pid::as_raw_pid).map(i32::unsigned_abs) != Some(host) {
        return Err(LinkError::HostGone);
    }
    // What runs here may change its environment.
    let mark = Mark::of_this_process();
    // Task: watch.
    std::thread::Builder::new().name("rollhouse-watch".to_owned()).spawn(move || {
        loop {
            let mut fds =
                [PollFd::new(&parent, PollFlags::IN), PollFd::from_borrowed_fd(socket.as_fd(), HUNG_UP)];
            if poll(&mut fds, None).is_ok_and(|ready| ready > 0) {
                end_all(host, mark.as_ref());
            }
        }
    })?;
    Ok(())
}

/// Ends this process, a worker of `host`, and what it started.
fn end_all(host: u32, mark: Option<&Mark>) {
    kill_own_group(host);
    kill_descendants(&[Root { process: getpid(), mark }]);
    let group = getpgrp();
    // Whoever started this by hand, in a group that is not its own, loses this process alone.
    let _ = if group == getpid() {
        kill_process_group(group, Signal::KILL)
    } else {
        rustix::process::kill_process(getpid(), Signal::KILL)
    };
}

/// Age of a command from which what its worker publishes wakes the host. In commands that take less time, waking it for
/// each of many lanes would cost more than the lanes.
pub(crate) const QUIET_TIME: Duration = Duration::from_millis(1);
/// Maximum number of messages that tell of connecting before a worker is ready.
pub const MAX_TOLD: u32 = 160;
/// Pause between two tries to connect to a host that does not listen yet.
const KNOCK_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time that a program waits for a host to listen, and then for its answer.
pub const HELLO_WITHIN: Duration = JOIN_WITHIN.saturating_mul(6);
const NOT_READY: LinkError = LinkError::Protocol("a command before the worker was ready");
/// Events for the end of the connection. The set is empty because poll reports errors and hang-ups without being asked.
const HUNG_UP: PollFlags = PollFlags::empty();
