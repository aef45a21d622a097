//! The cluster as a value: it takes events and returns actions.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::limits::MAX_NAME_BYTES;
use rollhouse_wire::{
    CloseSession, EndCause, Heartbeat, HeartbeatTaken, Incarnation, Refusal, RefusalCode, Register,
    Registered, Secret, SeenTerm, SessionCounts, SessionId, SessionReport,
};

use crate::behind::Behind;
use crate::event::{Action, Actions, Event, LinkId, Reply, Ticket};
use crate::lane_standings::LaneStandings;
use crate::limits::{HEARTBEAT, RETRY_AFTER, SETTLE, TICK};
use crate::member::Member;
use crate::membership::{Beat, Change, Membership, length};
use crate::placements::{Key, Placements};
use crate::pool::{Pool, Pools, SessionState, Stage, node_share};
use crate::roster::{Awaited, PortQuestion, Roster};
use crate::shipping::Shipping;
use crate::waiting::Waiting;

/// Draws secrets. They must come from a cryptographic generator wherever strangers can reach a node.
pub type SecretSource = Box<dyn FnMut() -> Secret + Send>;

/// Everything that the coordinator knows about its cluster, and all its decisions.
///
/// It takes events and returns actions, in the order in which they are to be done. It has no clock, sockets or files:
/// `now` is the time since the coordinator started and never goes back. Only its term and its [`Roster`] are durable: a
/// restarted coordinator learns the rest from its nodes.
pub struct Cluster {
    pub(crate) term: u64,
    /// The number that tells this coordinator from another of the same term.
    boot: u64,
    /// Counters of its placements: it has given those from `start` on, without `end`, which is the next.
    counters: Range<u64>,
    pub(crate) secrets: SecretSource,
    pub(crate) members: Membership,
    pub(crate) placements: Placements,
    pub(crate) pools: Pools,
    pub(crate) shipping: Shipping,
    /// Pools that began to close in the last [`CLOSE_PATIENCE`](crate::limits::CLOSE_PATIENCE), with the time.
    pub(crate) closing: VecDeque<(Duration, RunId)>,
    /// Pools that end when their owner is not heard of, with the time at which it was last.
    pub(crate) kept: BTreeMap<RunId, Duration>,
    pub(crate) standings: LaneStandings,
    pub(crate) waiting: Waiting,
    pools_opened: u64,
    /// Nodes of an earlier coordinator that have not been heard of yet.
    pub(crate) awaited: Awaited,
    /// Nodes that have seen a later coordinator.
    pub(crate) behind: Behind,
}

/// The end of a session.
pub(crate) struct Over<'a> {
    pub(crate) cause: EndCause,
    /// The failure in words, or empty.
    pub(crate) detail: &'a str,
    /// The steps and episodes that it had done, if its node has said so.
    pub(crate) done: Option<SessionCounts>,
}

impl Cluster {
    /// Makes a cluster without nodes. The term of `own` is greater than that of every earlier coordinator of the folder;
    /// its number is drawn, so that a coordinator of a restored folder is not taken for the one that had its term before.
    /// `roster` has the nodes that the last one knew, if it could save them.
    pub fn new(own: SeenTerm, roster: Option<Roster>, secrets: SecretSource) -> Self {
        Self {
            term: own.term,
            boot: own.boot,
            counters: first_counter(own.boot)..first_counter(own.boot),
            secrets,
            members: Membership::default(),
            placements: Placements::default(),
            pools: Pools::default(),
            shipping: Shipping::default(),
            closing: VecDeque::new(),
            kept: BTreeMap::new(),
            standings: LaneStandings::default(),
            waiting: Waiting::default(),
            pools_opened: 0,
            awaited: Awaited::new(roster),
            behind: Behind::default(),
        }
    }

    /// Returns the coordinator's term.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Returns the number of pools that were opened and granted.
    pub const fn pools_opened(&self) -> u64 {
        self.pools_opened
    }

    /// Takes in an event and returns the actions to do. Every request is answered exactly once, by this call or a later
    /// one.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut out = Actions::default();
        let was_settled = self.is_settled();
        let doubted = match &event {
            // Its owner says that a session is gone: others' may be as well.
            Event::ReplaceSession { request, .. } if !request.moving => Some(request.node.clone()),
            _ => None,
        };
        match event {
            Event::Register { link, ticket, node, register } => {
                match self.register(now, link, &node, &register, &mut out) {
                    Ok(registered) => out.answer(ticket, Reply::Registered(registered)),
                    Err(refusal) => out.refuse(ticket, refusal),
                }
            }
            Event::Heartbeat { link, ticket, heartbeat } => {
                match self.heartbeat(now, link, &heartbeat, &mut out) {
                    Ok(taken) => out.answer(ticket, Reply::HeartbeatTaken(taken)),
                    Err(refusal) => out.refuse(ticket, refusal),
                }
            }
            Event::LinkLost { link, leaving } => self.link_lost(now, link, leaving, &mut out),
            Event::LinkRefused { link } => self.link_refused(now, link, &mut out),
            Event::Revoked { owner, why } => self.revoke(now, &owner, &why, &mut out),
            Event::OpenPool { ticket, asker, request } => {
                self.open_pool(now, ticket, &asker, *request, &mut out);
            }
            Event::ClosePool { ticket, asker, pool } => {
                self.close_pool(now, ticket, &asker, pool, &mut out);
            }
            Event::ReplaceSession { ticket, asker, request } => {
                self.replace_session(now, ticket, &asker, *request, &mut out);
            }
            Event::KeepPool { asker, pool } => self.keep(now, &asker, pool),
            Event::Opened { session, incarnation, result } => {
                self.opened(now, (session, incarnation), result, &mut out);
            }
            Event::Closed { session, incarnation, result } => {
                let node =
                    self.placements.get(&(session, incarnation)).map(|placed| Arc::clone(&placed.node));
                if let (Some(node), Ok(end)) = (node, &result) {
                    self.note_reach(now, &node, end);
                }
                self.closed((session, incarnation), result, &mut out);
            }
            Event::Drain { ticket, node } => self.drain(ticket, &node, true, &mut out),
            Event::Undrain { ticket, node } => self.drain(ticket, &node, false, &mut out),
            Event::PortClosed(asked) => self.port_closed(now, &asked, &mut out),
            Event::Tick => self.tick(now, &mut out),
        }
        self.settle_closing(was_settled, &mut out);
        if let Some(node) = doubted {
            self.doubt(now, &node, &mut out);
        }
        self.doubt_asked(now, &mut out);
        if self.members.take_changed() {
            out.push(Action::KeepRoster(self.roster()));
        }
        out.into_vec()
    }

    fn register(
        &mut self,
        now: Duration,
        link: LinkId,
        certified: &str,
        register: &Register,
        out: &mut Actions,
    ) -> Result<Registered, Refusal> {
        if register.node != certified {
            return Err(Refusal::new(
                RefusalCode::Forbidden,
                format!("the certificate is for node `{certified}`, not for the name given"),
            ));
        }
        let own = SeenTerm { term: self.term, boot: self.boot };
        self.behind.check(now, own, register)?;
        let arrival = self.members.register(now, link, register)?;
        if let Some(link) = arrival.replaced {
            out.push(Action::Disconnect { link });
        }
        if arrival.restarted {
            self.node_gone(now, &arrival.name, out);
            self.shipping.restarted(&arrival.name);
        } else {
            self.node_returned(&arrival.name);
        }
        self.close_unwanted(&arrival.name, out);
        self.arrived(&arrival.name);
        let known = self.members.get(&arrival.name).map_or(0, |member| member.sessions.view.version());
        self.behind.joined(&arrival.name);
        let (term, boot) = (self.term, self.boot);
        Ok(Registered { term, boot, heartbeat_ms: HEARTBEAT.as_millis() as u64, known })
    }

    fn heartbeat(
        &mut self,
        now: Duration,
        link: LinkId,
        heartbeat: &Heartbeat,
        out: &mut Actions,
    ) -> Result<HeartbeatTaken, Refusal> {
        let beat = self.members.beat(now, link, heartbeat)?;
        let name = Arc::clone(&beat.member.name);
        let (drain, undrain) = beat.member.drain.orders();
        let known = beat.member.sessions.view.version();
        let (number, close) = (heartbeat.number, Vec::new());
        let mut taken = HeartbeatTaken { number, known, close, drain, undrain };
        let Beat { outdated, changed, returned, .. } = beat;
        if outdated {
            return Ok(taken);
        }
        if returned {
            self.node_returned(&name);
        }
        if changed {
            self.take_reports(&name, &heartbeat.changes.sessions);
            if let Some(member) = self.members.get_mut(&name) {
                member.sessions.strayless = None;
                let reached = heartbeat.changes.sessions.iter().filter(|s| s.attached == Some(true));
                reached.for_each(|session| member.reach.unreached.clear(&session.owner));
            }
        }
        self.take_standings(&name, &heartbeat.load, &heartbeat.standings);
        for end in &heartbeat.ended {
            let key = (end.session, end.incarnation);
            self.forget_on(&name, &key);
            self.note_reach(now, &name, end);
            if let Some(report) = &end.report
                && (report.session, report.incarnation) == key
                && !self.placements.is_on(&key, &name)
            {
                self.claim_over(&name, report);
            }
            if self.placements.wanted_on(&key, &name).is_some() {
                let over = Over { cause: end.cause, detail: &end.detail, done: Some(end.done) };
                self.over_or_on(now, &key, &over, out);
            }
        }
        let view =
            self.members.get(&name).filter(|member| member.is_complete()).map(|member| &member.sessions.view);
        for pool in self.shipping.beat(&name, &heartbeat.load, &heartbeat.ended, view) {
            if let Some(pool) = self.pools.get_mut(&pool) {
                pool.unshipped = pool.unshipped.saturating_sub(1);
            }
        }
        self.arrived(&name);
        taken.close = self.strays(&name);
        self.close_unwanted(&name, out);
        Ok(taken)
    }

    /// Handles the end of a connection. A node that left in order is not missed.
    fn link_lost(&mut self, now: Duration, link: LinkId, leaving: bool, out: &mut Actions) {
        let Some(name) = self.members.link_lost(link) else { return };
        if leaving {
            self.members.remove(&name);
            self.node_gone(now, &name, out);
            self.shipping.restarted(&name);
        } else {
            self.doubt(now, &name, out);
        }
    }

    /// Has a node's host asked whether the node's process has ended.
    fn doubt(&mut self, now: Duration, name: &str, out: &mut Actions) {
        if let Some((address, asked)) = self.members.doubt(now, name) {
            out.push(Action::AskPort { address, asked });
        }
    }

    /// Asks about nodes that are to open sessions: they may have died since their last heartbeat, and others wait for
    /// those sessions.
    fn doubt_asked(&mut self, now: Duration, out: &mut Actions) {
        let opening = |action: &Action| match action {
            Action::Open { link, .. } => self.members.on_link(*link),
            _ => None,
        };
        let names: Vec<_> = out.iter().filter_map(opening).collect();
        names.iter().for_each(|name| self.doubt(now, name, out));
    }

    /// Handles the answer of a host that a node's process has ended. If that is wrong, the node is back with its next
    /// registration, and its sessions with it, unless their owners have left them.
    fn port_closed(&mut self, now: Duration, asked: &PortQuestion, out: &mut Actions) {
        if asked.boot.is_none() {
            self.awaited.done(&asked.node);
            return;
        }
        let Some(link) = self.members.port_closed(asked) else { return };
        if let Some(link) = link {
            out.push(Action::Disconnect { link });
        }
        self.node_lost(now, &asked.node, out);
    }

    /// Takes in a node's reports of the sessions that it runs.
    fn take_reports(&mut self, name: &Arc<str>, reports: &[SessionReport]) {
        for report in reports {
            let key = (report.session, report.incarnation);
            match self.placements.wanted_on(&key, name) {
                Some(true) => {
                    let pool = self.pools.get_mut(&report.session.pool);
                    if let Some(session) = pool.and_then(|pool| pool.current(&key)) {
                        session.update(report);
                    }
                }
                // It is being closed.
                Some(false) => {}
                // One that is not taken over may be a stray.
                None => self.claim(name, report),
            }
        }
    }

    /// Restores a node that was taken for lost, and its sessions until it tells of their ends.
    fn node_returned(&mut self, name: &Arc<str>) {
        for key in self.placements.on(name) {
            let session = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(&key));
            if let Some(session) = session.filter(|session| session.state == SessionState::Lost) {
                session.state = SessionState::Running;
            }
        }
    }

    /// Notes that a session is not on that node any more.
    pub(crate) fn forget_on(&mut self, name: &str, &(session, incarnation): &Key) {
        if let Some(member) = self.members.get_mut(name) {
            member.sessions.view.ended(session, incarnation);
        }
    }

    /// Notes that the recording of a placement has still to come from its node.
    pub(crate) fn expect_recording(&mut self, node: &Arc<str>, key: Key) {
        let pool = self.pools.get_mut(&key.0.pool).filter(|pool| pool.is_recorded());
        let Some(pool) = pool else { return };
        // What only the node vouches for counts against the node.
        let claimed = key.1.term < self.term;
        let share = if claimed { node_share(node) } else { Arc::clone(&pool.owner) };
        if self.shipping.ended(node, &share, key) {
            pool.unshipped += 1;
        }
    }

    /// Ends everything that was placed on a node, because nothing of it runs there any more.
    fn node_gone(&mut self, now: Duration, name: &Arc<str>, out: &mut Actions) {
        for key in self.placements.on(name) {
            let opening = self.is_opening(&key);
            if self.is_replacing(&key) {
                self.placements.remove(&key);
                let why = Refusal::busy(format!("node `{name}` went away"), 0);
                self.replace_again(now, &key, why, out);
            } else if opening {
                self.placements.remove(&key);
                let why = Refusal::busy(format!("node `{name}` went away"), 0);
                self.place_again(now, &key, why, out);
            } else {
                let over = Over { cause: EndCause::NodeLost, detail: "", done: None };
                self.over_or_on(now, &key, &over, out);
            }
        }
    }

    /// Notes that a placement is gone from its node. If it was the current one, its session is over.
    pub(crate) fn session_over(&mut self, key: &Key, over: &Over<'_>, out: &mut Actions) {
        let Some(placement) = self.placements.remove(key) else { return };
        self.forget_on(&placement.node, key);
        self.standings.forget(&placement.node, key);
        self.previous_gone(key, over);
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let Some(session) = pool.current(key).filter(|session| !session.is_over()) else {
            return self.settle(key.0.pool, out);
        };
        session.state = SessionState::Ended(over.cause);
        session.activity.attached = session.activity.attached.map(|_| false);
        session.activity.done = over.done.unwrap_or(session.activity.done);
        if !over.detail.is_empty() {
            pool.failed(format!("session {} on `{}`: {}", key.0, placement.node, over.detail));
        }
        self.expect_recording(&placement.node, *key);
        self.settle(key.0.pool, out);
    }

    /// Moves a pool to its next stage if nothing holds it back.
    pub(crate) fn settle(&mut self, id: RunId, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&id) else { return };
        if pool.stage == Stage::Opening && pool.all_opened() {
            pool.stage = Stage::Open;
            self.pools_opened += 1;
            let waiters = std::mem::take(&mut pool.waiters);
            self.answer_granted(id, waiters, out);
        }
        let Some(stage) = self.pools.get(&id).filter(|pool| pool.all_over()).map(|pool| pool.stage) else {
            return;
        };
        match stage {
            Stage::Open => self.pools.end(id, false),
            Stage::Closing { .. } if self.waits_for_claims(id) => {}
            Stage::Closing { .. } => self.end_closed(id, out),
            Stage::Opening | Stage::Ended { .. } => {}
        }
    }

    /// Ends the closing pools that waited for nodes of an earlier coordinator alone, once none of those is waited for.
    fn settle_closing(&mut self, was_settled: bool, out: &mut Actions) {
        if was_settled || !self.is_settled() {
            return;
        }
        let closing: Vec<RunId> = self.closing.iter().map(|(_, id)| *id).collect();
        closing.into_iter().for_each(|id| self.settle(id, out));
    }

    /// Asks a node to close the sessions that nobody wants, unless it is being asked already.
    pub(crate) fn close_unwanted(&mut self, name: &str, out: &mut Actions) {
        let Some(link) = self.members.get(name).and_then(|member| member.link()) else { return };
        for (session, incarnation) in self.placements.begin_closing(name) {
            out.push(Action::Close { link, request: CloseSession { session, incarnation } });
        }
    }

    /// Asks a node to take no new sessions and to end when its last has, or takes that back.
    fn drain(&mut self, ticket: Ticket, name: &str, drain: bool, out: &mut Actions) {
        if let Err(refusal) = length("node", name, MAX_NAME_BYTES) {
            return out.refuse(ticket, refusal);
        }
        match self.members.get_mut(name) {
            Some(member) => {
                if drain {
                    member.drain.ask();
                } else {
                    member.drain.take_back();
                }
                out.answer(ticket, Reply::Done);
            }
            None => {
                let message = format!("no node `{}` is registered", name.escape_debug());
                out.refuse(ticket, Refusal::new(RefusalCode::NotFound, message));
            }
        }
    }

    /// Notes that a node has told of all that it runs, so that it is known again.
    fn arrived(&mut self, name: &str) {
        if self.members.get(name).is_some_and(Member::is_complete) {
            self.awaited.heard(name);
        }
    }

    /// Returns the nodes for which the next coordinator is to wait.
    fn roster(&self) -> Roster {
        let here = self.members.iter().map(|member| (&member.name, &*member.registration.address));
        let all = self.awaited.iter().chain(here);
        Roster(all.map(|(name, address)| (name.to_string(), address.to_owned())).collect())
    }

    fn tick(&mut self, now: Duration, out: &mut Actions) {
        if now >= SETTLE {
            self.awaited.give_up();
        }
        for (address, asked) in self.awaited.doubtful(now) {
            out.push(Action::AskPort { address, asked });
        }
        for name in self.members.doubtful(now) {
            self.doubt(now, &name, out);
        }
        for change in self.members.tick(now) {
            match change {
                Change::Lost(name) => self.node_lost(now, &name, out),
                Change::Forgotten(name) => {
                    self.node_gone(now, &name, out);
                    self.shipping.forget(&name);
                }
            }
        }
        self.end_patience(now, out);
        self.end_unkept(now, out);
        self.find_places(now, out);
        self.waiting.tick(now);
        self.behind.tick(now);
    }

    /// Handles a silent node: its sessions are lost unless it comes back, and those that are just opening go elsewhere.
    pub(crate) fn node_lost(&mut self, now: Duration, name: &Arc<str>, out: &mut Actions) {
        for key in self.placements.on(name) {
            if self.placements.wanted_on(&key, name) == Some(false) {
                self.over_unheard(&key, out);
            } else if self.is_replacing(&key) {
                self.placements.unwant(&key);
                let why = Refusal::busy(format!("node `{name}` has sent no report for a while"), 0);
                self.replace_again(now, &key, why, out);
            } else if self.is_opening(&key) {
                self.placements.unwant(&key);
                let why = Refusal::busy(format!("node `{name}` has sent no report for a while"), 0);
                self.place_again(now, &key, why, out);
            } else if self.go_on_elsewhere(now, &key, out) {
                // It is lost for as long as no other node takes it.
            } else if let Some(session) = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(&key))
            {
                session.state = SessionState::Lost;
            }
        }
    }

    /// Returns whether it is a current placement of a pool whose asker has no answer yet.
    pub(crate) fn is_opening(&mut self, key: &Key) -> bool {
        let pool = self.pools.get_mut(&key.0.pool).filter(|pool| pool.stage == Stage::Opening);
        pool.is_some_and(|pool| pool.current(key).is_some())
    }

    /// Returns a refusal while nodes of an earlier coordinator may not have come back yet: something unknown may still
    /// turn up.
    pub(crate) fn settles(&self, now: Duration) -> Option<Refusal> {
        (self.term > 1 && now < SETTLE && !self.awaited.are_all_here()).then(|| {
            let message = "the coordinator has just started and waits for its nodes";
            Refusal::busy(message, TICK.as_millis() as u64)
        })
    }

    /// Returns whether nodes of an earlier coordinator are not waited for any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.term == 1 || self.awaited.are_all_here()
    }

    /// Returns whether no node of an earlier coordinator that is away can have other placements of a pool's sessions than
    /// those that are known. Of a session that one node claims another may have recorded more, and newer ones.
    pub(crate) fn knows_placements(&self, pool: &Pool) -> bool {
        self.awaited.is_all_heard() || !pool.has_claims()
    }

    /// Returns whether a closing pool of which nodes claim sessions waits for more than those that are known: for nodes of
    /// an earlier coordinator that may claim others still, and for all placements on nodes that can be asked. That one
    /// node says of its own that it has ended is no news of the others.
    fn waits_for_claims(&self, id: RunId) -> bool {
        let can_be_asked = |node: &str| self.members.get(node).is_some_and(|member| !member.is_lost());
        self.pools.get(&id).is_some_and(Pool::has_claims)
            && (!self.is_settled() || self.placements.of_pool(id).any(|(_, node)| can_be_asked(node)))
    }

    pub(crate) fn next_incarnation(&mut self) -> Incarnation {
        let counter = self.counters.end;
        self.counters.end += 1;
        Incarnation { term: self.term, counter }
    }

    /// Refuses to place a session again that another coordinator placed in this term or a later one: this one's folder was
    /// restored, and any placement that it gives could be older than the one which the owner has. That is the owner's word,
    /// which counts for its own session alone.
    pub(crate) fn check_follows(&self, session: SessionId, earlier: Incarnation) -> Result<(), Refusal> {
        if earlier.term < self.term || (earlier.term == self.term && self.counters.contains(&earlier.counter))
        {
            return Ok(());
        }
        let (own, seen) = (self.term, earlier.term);
        let message = format!(
            "session {session} was placed by another coordinator, of term {seen}, and this one has term {own}: if its folder \
             was restored, it has to be started with `--least-term {}`",
            seen.saturating_add(1)
        );
        Err(Refusal::busy(message, RETRY_AFTER.as_millis() as u64))
    }
}

/// Returns the counter of a coordinator's first placement. Two that have the same term, because the folder of one was
/// restored, begin at different ones, so that no two placements are taken for one.
const fn first_counter(boot: u64) -> u64 {
    (boot >> COUNTER_BITS) + 1
}

/// Bits of a counter that count: a coordinator gives fewer placements than they can tell apart.
const COUNTER_BITS: u32 = 24;

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("term", &self.term)
            .field("counters", &self.counters)
            .field("members", &self.members)
            .field("placements", &self.placements)
            .field("pools", &self.pools)
            .finish_non_exhaustive()
    }
}
