//! The one descriptor that says that something has happened to a worker of a host.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::HostError;
use crate::log::Log;
use crate::worker_slot::{WorkerSlot, new_bell};

/// An epoll descriptor with the host's bell, and of each worker that has a process the process, the connection and the
/// output. It is the same for as long as the host lives: what a worker that is started again has is added to it.
///
/// What ends is taken out before it is closed: a child that was forked may hold it open.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: Arc<OwnedFd>,
    /// Bell that workers ring when the host sleeps for their replies, or one on the descriptor.
    pub(crate) bell: OwnedFd,
    /// Whether workers ring for one who sleeps on the descriptor.
    pub(crate) armed: bool,
    /// Time of the last command, since the host was started.
    pub(crate) posted: Duration,
}

/// What the descriptors of a host say.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    /// Whether the bell rings.
    pub(crate) bell: bool,
    /// Whether a program has connected to the socket of workers, or sent something there.
    pub(crate) joining: bool,
    /// What those of workers say of which one says something.
    pub(crate) workers: BTreeMap<usize, Sign>,
}

/// What the descriptors of a worker say.
#[derive(Debug, Default)]
pub(crate) struct Sign {
    pub(crate) ended: bool,
    /// Whether its connection has a message that is waited for, or is closed.
    pub(crate) spoke: bool,
    pub(crate) printed: bool,
    /// Whether nothing is printed after that.
    pub(crate) printed_last: bool,
}

impl Poller {
    /// Makes one that knows the bell, and the descriptor of programs that connect if there is one.
    ///
    /// # Errors
    /// [`HostError::Os`].
    pub(crate) fn new(joining: Option<&OwnedFd>) -> Result<Self, HostError> {
        let (epoll, bell) = (Arc::new(epoll::create(CreateFlags::CLOEXEC)?), new_bell()?);
        epoll::add(&*epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        if let Some(joining) = joining {
            epoll::add(&*epoll, joining, EventData::new_u64(JOINING), EventFlags::IN)?;
        }
        Ok(Self { epoll, bell, armed: false, posted: Duration::ZERO })
    }

    /// Returns the descriptor, which is readable while there are signs. Nobody reads from it.
    pub(crate) const fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.epoll
    }

    /// Adds a worker whose process has been started.
    pub(crate) fn add(&self, worker: usize, slot: &WorkerSlot) -> io::Result<()> {
        for (kind, source) in sources(slot).into_iter().enumerate() {
            if let Some(source) = source {
                let data = EventData::new_u64((worker * KINDS + kind) as u64);
                epoll::add(&self.epoll, source, data, EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Notes that no message is waited for from a worker: only the end of the connection is a sign from now on.
    pub(crate) fn expect_nothing(&self, worker: usize, slot: &WorkerSlot) -> io::Result<()> {
        let Some(socket) = &slot.socket else { return Ok(()) };
        let data = EventData::new_u64((worker * KINDS + SPOKE) as u64);
        Ok(epoll::modify(&self.epoll, socket, data, EventFlags::empty())?)
    }

    /// Takes a worker out whose process is about to be ended.
    pub(crate) fn remove(&self, slot: &WorkerSlot) {
        sources(slot).into_iter().flatten().for_each(|source| self.forget(source));
    }

    /// Takes out the output of a worker.
    pub(crate) fn remove_output(&self, slot: &WorkerSlot) {
        sources(slot)[PRINTED].into_iter().for_each(|source| self.forget(source));
    }

    fn forget(&self, source: BorrowedFd<'_>) {
        // One that was not added needs no more.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Sleeps for at most `patience` until there are signs of the host's `workers`. Returns `None` if a signal came.
    pub(crate) fn sleep(
        &self,
        workers: usize,
        patience: Option<Duration>,
    ) -> Result<Option<Signs>, HostError> {
        if patience != Some(Duration::ZERO) {
            let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
            match poll(&mut [PollFd::new(&*self.epoll, PollFlags::IN)], patience.as_ref()) {
                Err(rustix::io::Errno::INTR) => return Ok(None),
                result => result?,
            };
        }
        let mut events = Vec::with_capacity(2 + workers * KINDS);
        epoll::wait(&*self.epoll, spare_capacity(&mut events), Some(&Timespec::default()))?;
        let mut signs = Signs::default();
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            signs.bell |= data == BELL;
            signs.joining |= data == JOINING;
            let number = usize::try_from(data).ok().filter(|_| data != BELL && data != JOINING);
            let Some((worker, kind)) = number.map(split) else { continue };
            let sign: &mut Sign = signs.workers.entry(worker).or_default();
            match kind {
                ENDED => sign.ended = true,
                SPOKE => sign.spoke = true,
                _ => (sign.printed, sign.printed_last) = (true, flags.contains(EventFlags::HUP)),
            }
        }
        Ok(Some(signs))
    }
}

const fn split(number: usize) -> (usize, usize) {
    (number / KINDS, number % KINDS)
}

/// Returns the descriptors of a worker, by their kind.
fn sources(slot: &WorkerSlot) -> [Option<BorrowedFd<'_>>; KINDS] {
    let process = slot.process.as_ref();
    [
        slot.ends(),
        slot.socket.as_ref().map(AsFd::as_fd),
        process.and_then(|process| process.log()).and_then(Log::descriptor),
    ]
}

/// Kinds of descriptors of a worker.
const ENDED: usize = 0;
const SPOKE: usize = 1;
const PRINTED: usize = 2;
const KINDS: usize = 3;
/// Numbers that stand for the bell, and for programs that connect.
const BELL: u64 = u64::MAX;
const JOINING: u64 = u64::MAX - 1;
