//! A hostile node: it has a certificate and no lanes, and says that it has sessions which others have.

use rollhouse_coordinator::{Cluster, Event, LinkId, Ticket};
use rollhouse_wire::{Changes, EndCause, Heartbeat, NodeLoad, Register, SessionEnd, SessionReport};

use crate::context::Context;

/// Its name.
pub(crate) const NAME: &str = "forger";
/// Its connection, which no other node has.
pub(crate) const LINK: LinkId = LinkId(u64::MAX);

/// What it has said to one boot of the coordinator.
#[derive(Debug, Default)]
pub(crate) struct Forger {
    number: u64,
}

impl Forger {
    /// Returns what it says next: first that it is there, then what it has forged.
    pub(crate) fn event(&mut self, cluster: &Cluster, ticket: Ticket, ctx: &mut Context<'_>) -> Event {
        self.number += 1;
        if self.number == 1 {
            let (node, register) = (NAME.to_owned(), Box::new(registration()));
            return Event::Register { link: LINK, ticket, node, register };
        }
        let sessions = cluster.sessions().sessions.into_iter();
        let others: Vec<SessionReport> =
            sessions.filter(|session| session.node != NAME).map(|session| session.report).collect();
        let mut forged = Vec::new();
        if !others.is_empty() {
            let one = others[ctx.random.index(others.len())].clone();
            forged.push(forge(one, cluster.term(), ctx));
        }
        let over = ctx.random.chance(300);
        let ended = if over { forged.drain(..).map(end_of).collect() } else { Vec::new() };
        let changes = Changes { since: 0, through: self.number, sessions: forged, more: false };
        let heartbeat = Heartbeat {
            number: self.number,
            load: NodeLoad::default(),
            changes,
            ended,
            unfit: None,
            draining: false,
            measured: Default::default(),
            connecting: Vec::new(),
            standings: Vec::new(),
        };
        Event::Heartbeat { link: LINK, ticket, heartbeat: Box::new(heartbeat) }
    }
}

/// Makes a report of another's session wrong, or tells it as it is.
fn forge(mut report: SessionReport, term: u64, ctx: &mut Context<'_>) -> SessionReport {
    match ctx.random.within(0, 5) {
        0 => report.incarnation.counter += 1,
        1 => report.incarnation.counter = report.incarnation.counter.saturating_sub(1),
        2 => report.session.index += 1,
        3 => (report.lanes, report.pool_lanes) = (report.lanes + 1, report.pool_lanes + 1),
        4 => report.owner.push('+'),
        _ => {}
    }
    if ctx.random.chance(300) {
        report.incarnation.term = ctx.random.within(1, term);
    }
    report
}

fn end_of(report: SessionReport) -> SessionEnd {
    SessionEnd {
        session: report.session,
        incarnation: report.incarnation,
        cause: EndCause::Finished,
        detail: String::new(),
        done: report.done,
        report: Some(Box::new(report)),
        unreached: false,
    }
}

fn registration() -> Register {
    Register {
        node: NAME.to_owned(),
        boot: 1,
        address: "forger:1".to_owned(),
        attach: None,
        capacity: 1,
        threads: 1,
        labels: Default::default(),
        envs: Default::default(),
        kinds: Vec::new(),
        budget: None,
        term: 0,
        seen: None,
        program: "forged".to_owned(),
    }
}
