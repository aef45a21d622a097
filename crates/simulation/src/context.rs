//! The parts of the world that a process may use while it handles an event.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_coordinator::PortQuestion;

use crate::bug::Bug;
use crate::ledger::Ledger;
use crate::message::Message;
use crate::network::{Conn, Site};
use crate::random::Random;

/// An event for a process.
#[derive(Debug)]
pub(crate) enum Input {
    /// A connection that it dialled is open.
    Connected(u64),
    /// A connection ended, or could not be made.
    Lost(u64),
    /// A connection could not be made as in `Lost`, and the host there says that nobody listens at the port.
    PortClosed(u64),
    /// The coordinator asked about a node's port, and the host there says that nobody listens.
    NodePortClosed(PortQuestion),
    /// A message came on a connection.
    Message { conn: u64, from: Site, message: Message },
    /// Its time has come; see each process's `wake_at`.
    Wake,
}

/// An effect of a process on the world.
#[derive(Debug)]
pub(crate) enum Output {
    Dial { conn: u64, to: Site },
    Send { conn: u64, message: Message, after: Duration },
    Close { conn: u64 },
    AskPort { asked: PortQuestion },
}

/// The rest of the world, as a process has it for one event.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The time of the process's own clock.
    pub(crate) now: Duration,
    /// The time of the world's clock, for the ledger only.
    pub(crate) world_now: Duration,
    pub(crate) bug: Option<Bug>,
    pub(crate) site: Site,
    pub(crate) conns: &'a BTreeMap<u64, Conn>,
    pub(crate) random: &'a mut Random,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) numbers: &'a mut u64,
    pub(crate) counted: &'a mut BTreeMap<&'static str, u64>,
    pub(crate) out: Vec<Output>,
}

impl Context<'_> {
    /// Returns a number that was never used.
    pub(crate) fn number(&mut self) -> u64 {
        *self.numbers += 1;
        *self.numbers
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counted.entry(what).or_default() += 1;
    }

    pub(crate) fn dial(&mut self, to: Site) -> u64 {
        let conn = self.number();
        self.out.push(Output::Dial { conn, to });
        conn
    }

    pub(crate) fn send(&mut self, conn: u64, message: Message) {
        self.send_after(conn, message, Duration::ZERO);
    }

    /// Sends a message after the time that its preparation took.
    pub(crate) fn send_after(&mut self, conn: u64, message: Message, after: Duration) {
        self.out.push(Output::Send { conn, message, after });
    }

    /// Returns how often anything was received on a connection; `None` if it is lost.
    pub(crate) fn heard(&self, conn: u64) -> Option<u64> {
        let known = self.conns.get(&conn)?;
        let end = usize::from(known.ends[0].0 != self.site);
        known.open[end].then_some(known.heard[end])
    }

    pub(crate) fn ask_port(&mut self, asked: PortQuestion) {
        self.out.push(Output::AskPort { asked });
    }

    pub(crate) fn close(&mut self, conn: u64) {
        self.out.push(Output::Close { conn });
    }
}
