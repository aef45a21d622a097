//! Connections between processes: what is sent on them, when it arrives, and how each end learns that they are no more.

use std::time::Duration;

use rollhouse_coordinator::PortQuestion;

use crate::cast::{index, site_number};
use crate::context::{Input, Output};
use crate::message::Message;
use crate::network::{Conn, HANDSHAKE, IDLE, KEEP_ALIVE, Site};
use crate::world::{Event, World};

impl World {
    pub(crate) fn put_out(&mut self, site: Site, output: Output) {
        match output {
            Output::Dial { conn, to } => {
                let ends = [(site, self.life(site).number), (to, 0)];
                self.traffic
                    .conns
                    .insert(conn, Conn { ends, open: [true, false], heard: [0, 0], welcomed: false });
                self.send(conn, site, Message::Hello, Duration::ZERO);
                let late = self.now + HANDSHAKE;
                self.at(late, Event::HandshakeOver { conn });
            }
            Output::Send { conn, message, after } => self.send(conn, site, message, after),
            Output::Close { conn } => self.close(conn, site),
            Output::AskPort { asked } => self.ask_port(site, asked),
        }
    }

    /// Returns whether answers of hosts are forged.
    fn has_forgers(&self) -> bool {
        self.setup.kinds.network && self.setup.kinds.processes && !self.trouble.healed
    }

    /// Asks a node's host about its port, for the coordinator.
    fn ask_port(&mut self, site: Site, asked: PortQuestion) {
        let node = index(&asked.node);
        if let Some(at) = self.host_says(site, Site::Node(node)) {
            let life = self.life(site).number;
            self.at(at, Event::NodePortClosed { life, asked });
        }
    }

    /// Returns when a site that asks now is told that nobody listens there; `None` if it is told nothing. Now and then
    /// the answer is forged, for a process that runs.
    pub(crate) fn host_says(&mut self, from: Site, to: Site) -> Option<Duration> {
        let life = self.life(to);
        let has_ended = !life.running && !life.silent;
        let forged = self.has_forgers() && self.random.chance(FORGED_PER_MILLE);
        if !has_ended && !forged {
            return None;
        }
        let there = self.traffic.network.arrival(from, to, self.now)?;
        let back = self.traffic.network.arrival(to, from, self.now)?;
        let round_trip = (there - self.now) + (back - self.now);
        // Later than that nobody listens to it any more.
        (round_trip <= ANSWER_WITHIN).then_some(self.now + DOUBTED_WITHIN + round_trip * 2)
    }

    pub(crate) fn send(&mut self, conn: u64, from: Site, message: Message, after: Duration) {
        let Some(known) = self.traffic.conns.get(&conn) else { return };
        let to_second = known.ends[0].0 == from;
        let (own, other) = if to_second { (0, 1) } else { (1, 0) };
        if !known.open[own] {
            return;
        }
        let to = known.ends[other].0;
        if !after.is_zero() {
            let life = known.ends[own].1;
            return self.at(self.now + after, Event::Leaves { conn, from, life, message });
        }
        let often = if message.may_be_stale() { 80 } else { 15 };
        let twice = self.setup.kinds.network
            && !self.trouble.healed
            && message.may_repeat()
            && self.random.chance(often);
        for copy in 0..=u8::from(twice) {
            let channel = (conn, message.channel(), to_second);
            let last = self.traffic.ordered.get(&channel).copied().unwrap_or_default();
            let Some(mut arrives) =
                self.traffic.network.arrival(from, to, self.now).filter(|_| last < Duration::MAX)
            else {
                // What follows on the channel does not overtake it.
                if message.channel() != 0 {
                    self.traffic.ordered.insert(channel, Duration::MAX);
                }
                self.lose_conn(conn, self.now + IDLE);
                continue;
            };
            if message.channel() != 0 {
                arrives = arrives.max(last);
                self.traffic.ordered.insert(channel, arrives);
            }
            if copy > 0 && message.may_be_stale() && self.random.chance(500) {
                arrives += self.random.millis(0, STALEST);
            }
            self.at(arrives, Event::Arrives { conn, to_second, message: message.clone() });
        }
        if matches!((from, &message), (Site::Trainer(_), Message::Frame { .. }))
            && self.has_forgers()
            && self.random.chance(1)
        {
            // A forged word of the node's host.
            self.at(self.now, Event::PortClosed { conn });
        }
        if let (Site::Trainer(index), Message::Frame { .. }) = (from, &message)
            && let Some(late) = self.trouble.loose.remove(&index)
            && !self.trouble.healed
        {
            self.unplug(from, late);
        }
    }

    /// Delays everything that is under way on a connection.
    pub(crate) fn delay(&mut self, conn: u64, by: Duration) {
        let of_it = |event: &Event| matches!(event, Event::Arrives { conn: other, .. } if *other == conn);
        for ((at, number), event) in
            self.agenda.events.extract_if(.., |_, event| of_it(event)).collect::<Vec<_>>()
        {
            self.agenda.events.insert((at + by, number), event);
        }
        for (_, last) in self.traffic.ordered.range_mut((conn, 0, false)..=(conn, u64::MAX, true)) {
            *last = last.saturating_add(by);
        }
    }

    /// Stops a connection: neither end hears anything of the other any more.
    pub(crate) fn lose_conn(&mut self, conn: u64, at: Duration) {
        for second in [false, true] {
            let late = self.random.millis(0, 500);
            self.at(at + late, Event::ConnLost { conn, second });
        }
    }

    fn close(&mut self, conn: u64, site: Site) {
        let Some(known) = self.traffic.conns.get_mut(&conn) else { return };
        let second = known.ends[1].0 == site;
        known.open[usize::from(second)] = false;
        let (from, to) = (site, known.ends[usize::from(!second)].0);
        let told = self.traffic.network.arrival(from, to, self.now).unwrap_or(self.now + IDLE);
        self.at(told, Event::ConnLost { conn, second: !second });
    }

    /// Tells one end of a connection that it is lost.
    pub(crate) fn conn_lost(&mut self, conn: u64, second: bool) {
        self.end_lost(conn, second, Input::Lost(conn));
    }

    pub(crate) fn end_lost(&mut self, conn: u64, second: bool, how: Input) {
        let end = usize::from(second);
        let Some(known) = self.traffic.conns.get_mut(&conn).filter(|known| known.open[end]) else { return };
        let (site, life) = known.ends[end];
        let process = &self.sites[&site];
        if process.number == life && process.running && process.paused_until > self.now {
            let later = process.paused_until;
            return self.at(later, Event::ConnLost { conn, second });
        }
        known.open[end] = false;
        if process.number == life && process.running {
            self.note([3, conn, site_number(site)]);
            self.tell(site, how);
        }
    }

    /// Sends a keep-alive from each end that believes in the connection.
    pub(crate) fn keep_alive(&mut self, conn: u64) {
        let Some(&Conn { ends, open, .. }) = self.traffic.conns.get(&conn) else { return };
        for ((site, life), _) in ends.into_iter().zip(open).filter(|(_, open)| *open) {
            let process = self.life(site);
            if process.number == life && process.running && process.paused_until <= self.now {
                self.send(conn, site, Message::Ping, Duration::ZERO);
            }
        }
        if open.contains(&true) {
            self.at(self.now + KEEP_ALIVE, Event::KeepAlive { conn });
        }
    }

    pub(crate) fn arrives(&mut self, conn: u64, to_second: bool, message: Message) {
        let Some(known) = self.traffic.conns.get_mut(&conn) else { return };
        let (own, other) = if to_second { (1, 0) } else { (0, 1) };
        let (site, from) = (known.ends[own].0, known.ends[other].0);
        let process = &self.sites[&site];
        if !process.running {
            if let (Message::Hello, Some(at)) = (&message, self.host_says(from, site)) {
                self.at(at, Event::PortClosed { conn });
            }
            return;
        }
        if process.paused_until > self.now {
            let later = process.paused_until;
            return self.at(later, Event::Arrives { conn, to_second, message });
        }
        match message {
            Message::Hello => {
                known.ends[1].1 = process.number;
                known.open[1] = true;
                return self.send(conn, site, Message::Welcome, Duration::ZERO);
            }
            _ if !known.open[own] || known.ends[own].1 != process.number => {
                if known.open[other] {
                    // It is told that nobody knows the connection here.
                    let told = self.traffic.network.arrival(site, from, self.now).unwrap_or(self.now + IDLE);
                    self.at(told, Event::ConnLost { conn, second: other == 1 });
                }
                return;
            }
            Message::Welcome => {
                known.welcomed = true;
                let later = self.now + KEEP_ALIVE;
                self.at(later, Event::KeepAlive { conn });
            }
            _ => {}
        }
        if let Some(known) = self.traffic.conns.get_mut(&conn) {
            known.heard[own] += 1;
        }
        let (kind, digest) = message.digest();
        self.note([4 + kind, digest, conn]);
        let input = match message {
            Message::Ping => return self.send(conn, site, Message::Pong, Duration::ZERO),
            Message::Pong => return,
            Message::Welcome => Input::Connected(conn),
            message => Input::Message { conn, from, message },
        };
        self.tell(site, input);
    }
}

/// Time for which an asker listens to a host's answer, as in the endpoints.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);
/// Time after which a peer that does not answer is doubted.
pub(crate) const DOUBTED_WITHIN: Duration = Duration::from_millis(100);
/// Answers that are forged, of a thousand questions.
const FORGED_PER_MILLE: u64 = 5;
/// Most milliseconds by which the copy of a request is late.
const STALEST: u64 = 20_000;
