//! The host's side of one worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rollhouse_arena::SharedMemory;
use rustix::event::{EventfdFlags, eventfd};

use crate::census::InCensus;
use crate::config::Program;
use crate::connect_watch::Tries;
use crate::control::{DATA_OFFSET, Lines, new_memory};
use crate::error::HostError;
use crate::launcher::Launching;
use crate::link::silence;
use crate::message::{self, MAX_MESSAGE_BYTES, Message, Received, Tag};
use crate::process::Process;
use crate::worker_socket::Guest;

/// Host's side of one worker.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    hello: OwnedFd,
    /// The process, if the host has started it.
    pub(crate) process: Option<Process>,
    /// The program, if others have.
    pub(crate) guest: Option<(u32, Option<OwnedFd>)>,
    /// Launch of the worker, until it reports that it is ready or that it connects.
    pub(crate) launching: Option<Launching>,
    /// Place of the process in a census, from when it is ready.
    pub(crate) counted: Option<InCensus>,
    /// Connecting of the worker, since its start or since its last command.
    pub(crate) tries: Option<Tries>,
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) bell: OwnedFd,
    /// Number of the last command.
    pub(crate) sequence: u64,
    /// Memory of the process that the worker has, or had last; `None` if none was given any yet.
    pub(crate) memory: Option<SharedMemory>,
    /// Memory for the first process.
    pub(crate) first_memory: Option<SharedMemory>,
    /// Whether the process has been given its memory.
    pub(crate) attached: bool,
}

/// Memories of the workers of a host, of which each is shared with one worker.
#[derive(Debug, Clone, Copy)]
pub struct Memories<'a> {
    slots: &'a [WorkerSlot],
}

impl<'a> Memories<'a> {
    pub(crate) const fn of_slots(slots: &'a [WorkerSlot]) -> Self {
        Self { slots }
    }

    /// Returns the memory of a worker and the offset at which the caller's part begins; `None` before
    /// [`Host::share`](crate::Host::share) and before the worker is ready. A worker that is lost has that of its last
    /// process until the event is taken that says that it is there again.
    ///
    /// # Panics
    /// If there is no such worker.
    #[inline]
    pub fn of(self, worker: usize) -> Option<(&'a SharedMemory, usize)> {
        self.slots[worker].memory.as_ref().map(|memory| (memory, DATA_OFFSET))
    }
}

impl WorkerSlot {
    /// Makes the slot of a worker whose first message is `hello`.
    pub(crate) fn new(hello: &[u8]) -> Result<Self, HostError> {
        if hello.len() > MAX_MESSAGE_BYTES {
            return Err(HostError::TooLong(hello.len()));
        }
        let (process, guest, launching, counted, tries, socket, sequence) =
            (None, None, None, None, None, None, 0);
        let (memory, first_memory, attached) = (None, None, false);
        let (hello, bell) = (message::stash(hello)?, new_bell()?);
        Ok(Self {
            hello,
            process,
            guest,
            launching,
            counted,
            tries,
            socket,
            bell,
            sequence,
            memory,
            first_memory,
            attached,
        })
    }

    /// Returns the lines of the worker's memory, if it has one.
    #[inline]
    pub(crate) fn lines(&self) -> Option<Lines<'_>> {
        self.memory.as_ref().map(Lines::of)
    }

    /// Gives a ready process a memory of its own, with `bytes` for the caller, and the bells; `workers` is the number of all
    /// workers. Returns the memory of the process before, which that one may write to for ever if it left something behind.
    pub(crate) fn attach(
        &mut self,
        bytes: usize,
        workers: usize,
        host_bell: &OwnedFd,
    ) -> io::Result<Option<SharedMemory>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let memory = match self.first_memory.take() {
            Some(memory) => memory,
            None => new_memory(bytes)?,
        };
        Lines::of(&memory).begin(self.sequence);
        silence(&self.bell);
        let descriptors = [memory.as_fd(), self.bell.as_fd(), host_bell.as_fd()];
        message::send(socket, Tag::Attach, workers as u64, &descriptors)?;
        self.attached = true;
        Ok(self.memory.replace(memory))
    }

    /// Starts the process and sends the hello.
    pub(crate) fn start(&mut self, program: &Program) -> io::Result<()> {
        let (ours, theirs) = message::pair()?;
        self.process = Some(Process::spawn(program, theirs)?);
        self.greet(ours)
    }

    /// Takes a program that has connected, and sends the hello.
    pub(crate) fn take(&mut self, Guest { socket, process, pidfd }: Guest) -> io::Result<()> {
        self.guest = Some((process, pidfd));
        self.greet(socket)
    }

    fn greet(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.attached = false;
        message::send(&socket, Tag::Hello, 0, &[self.hello.as_fd()])?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Returns the id of the worker's process.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id).or(self.guest.as_ref().map(|&(id, _)| id))
    }

    /// Returns the descriptor that is readable when the process has ended, if there is one.
    pub(crate) fn ends(&self) -> Option<BorrowedFd<'_>> {
        let guest = || Some(self.guest.as_ref()?.1.as_ref()?.as_fd());
        self.process.as_ref().map(Process::descriptor).or_else(guest)
    }

    /// Ends the process, if there is one, or disconnects a program that others have started. Returns how it ended, and the last lines that it said.
    pub(crate) fn end(&mut self) -> (Option<String>, String) {
        (self.socket, self.guest, self.launching, self.counted, self.tries) = (None, None, None, None, None);
        let Some(process) = self.process.take() else { return (None, String::new()) };
        let (ended, said) = process.end();
        let ended =
            ended.map_or_else(|| "the kernel has not ended it yet".to_owned(), |status| status.to_string());
        (Some(ended), said)
    }

    /// Returns the payload of a reply, of at most `most` bytes, whose message has to be there, or what is wrong if it is
    /// not.
    pub(crate) fn payload(&self, most: usize) -> Result<Vec<u8>, String> {
        match self.receive()? {
            message if message.tag == Tag::Payload => bytes_of(message, most),
            _ => Err(OUT_OF_TURN.to_owned()),
        }
    }

    /// Returns what a worker says that is not ready yet, at most `most` bytes, which has to be there, or what is wrong if it
    /// is not.
    pub(crate) fn said_at_start(&self, most: usize) -> Result<AtStart, String> {
        let message = self.receive()?;
        match message.tag {
            Tag::Ready => bytes_of(message, most).map(AtStart::Ready),
            Tag::Connecting => Ok(AtStart::Connecting(message.number)),
            _ => Err(OUT_OF_TURN.to_owned()),
        }
    }

    fn receive(&self) -> Result<Message, String> {
        let socket = self.socket.as_ref().ok_or("it has no connection")?;
        match message::receive(socket, false) {
            Ok(Received::Message(message)) => Ok(message),
            Ok(Received::Nothing) => Err("it did not send what it announced".to_owned()),
            Ok(Received::Closed) => Err("it hung up".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What a worker says before it takes commands.
#[derive(Debug)]
pub(crate) enum AtStart {
    /// Its answer to the hello: it is ready.
    Ready(Vec<u8>),
    /// How often it has tried again to connect.
    Connecting(u64),
}

fn bytes_of(mut message: Message, most: usize) -> Result<Vec<u8>, String> {
    let fd = message.descriptors.pop().ok_or("it sent a message without its bytes")?;
    message::unstash(fd, most).map_err(|error| error.to_string())
}

const OUT_OF_TURN: &str = "it sent a message out of turn";

/// Makes a bell that nobody has rung.
pub(crate) fn new_bell() -> Result<OwnedFd, HostError> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}
