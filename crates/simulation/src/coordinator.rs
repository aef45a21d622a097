//! The coordinator's process: the real cluster, store and term, with as little as possible around them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_coordinator::limits::TICK;
use rollhouse_coordinator::{
    Action, Asker, CallFailure, Cluster, DataFolder, Event, LinkId, Receive, Reply, Roster, Store,
    StoreConfig, StoreError, Ticket,
};
use rollhouse_core::RunId;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_wire::{
    GoneSession, Incarnation, Refusal, RefusalCode, Secret, SeenTerm, SessionId, SessionStatus, Ship, Shipped,
};

use crate::bug::Bug;
use crate::cast::{CAPACITY, DATA, NODES, OPEN_DEADLINE, index, name, store_dir};
use crate::context::{Context, Input};
use crate::forger::{self, Forger};
use crate::hostile;
use crate::message::{Message, Question, Response};
use crate::network::Site;
use crate::request::a_pool;
use crate::tickets::Tickets;

/// Most lanes of an owner.
pub(crate) const QUOTA: u32 = 14;

/// One boot of the coordinator.
#[derive(Debug)]
pub(crate) struct Coordinator {
    cluster: Cluster,
    store: Store,
    disk: FaultyDisk,
    _data: DataFolder,
    tickets: Tickets,
    /// The connection on which each node registered last.
    links: [u64; NODES],
    calls: BTreeMap<u64, Call>,
    next_tick: Duration,
    /// The time of its last event.
    seen: Duration,
    /// Pools that it was asked for and not asked to close.
    wanted: BTreeSet<RunId>,
    forger: Forger,
    /// The pools that it was asked to close, by request.
    closes: BTreeMap<Ticket, RunId>,
    /// Owners whose pools it was told to end.
    ended: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Call {
    conn: u64,
    session: SessionId,
    incarnation: Incarnation,
    /// The lanes that it is to open, if it is.
    opens: Option<u32>,
    deadline: Duration,
}

impl Coordinator {
    /// Starts from what is on the disk; `None` if the disk does not let it.
    pub(crate) fn start(
        disk: &FaultyDisk,
        (budget_bytes, least_term): (u64, u64),
        ctx: &mut Context<'_>,
    ) -> Option<Self> {
        let data = DataFolder::open_from(disk, Path::new(DATA), least_term).ok()?;
        let config = StoreConfig { budget_bytes, quarantine_bytes: 1 << 20 };
        let store = Store::open(Arc::new(disk.clone()), &store_dir(), config).ok()?;
        let term = if ctx.has(Bug::ReusesTerm) { 1 } else { data.term() };
        ctx.ledger.term(term);
        // Spread as numbers that are drawn are.
        let boot = ctx.number().wrapping_mul(SPREAD);
        let mut drawn = u128::from(boot) << 64;
        let secrets = Box::new(move || {
            drawn += 1;
            Secret::from_bytes(drawn.to_le_bytes())
        });
        Some(Self {
            cluster: Cluster::new(SeenTerm { term, boot }, Roster::read(disk, Path::new(DATA)), secrets),
            store,
            disk: disk.clone(),
            _data: data,
            tickets: Tickets::default(),
            links: [0; NODES],
            calls: BTreeMap::new(),
            next_tick: Duration::ZERO,
            seen: ctx.now,
            wanted: BTreeSet::new(),
            forger: Forger::default(),
            closes: BTreeMap::new(),
            ended: BTreeSet::new(),
        })
    }

    /// Returns the term with which its status says that it has to be started, if its nodes have seen a later one.
    pub(crate) fn least_term(&self) -> Option<u64> {
        let status = self.cluster.status(self.seen, "simulated", self.store.status());
        status.behind.map(|behind| behind.least_term())
    }

    /// Returns when it wants to be woken.
    pub(crate) fn wake_at(&self) -> Duration {
        self.calls.values().map(|call| call.deadline).fold(self.next_tick, Duration::min)
    }

    pub(crate) fn handle(&mut self, input: Input, ctx: &mut Context<'_>) {
        self.tickets.slept(ctx.now.saturating_sub(self.wake_at().max(self.seen)));
        self.seen = ctx.now;
        match input {
            Input::Wake => self.wake(ctx),
            Input::Connected(_) => {}
            Input::Lost(conn) | Input::PortClosed(conn) => self.lost(conn, ctx),
            Input::NodePortClosed(asked) => {
                ctx.count("told that a node's port is closed");
                self.tell(Event::PortClosed(asked), ctx);
            }
            Input::Message { conn, from, message } => match message {
                Message::Ask(ask, question) => self.asked(conn, from, ask, question, ctx),
                Message::Answer(ask, response) => self.called(ask, response, ctx),
                other => panic!("the coordinator is sent {other:?}"),
            },
        }
        self.check(ctx.now);
    }

    /// Checks what must hold after every event.
    fn check(&self, now: Duration) {
        self.tickets.check(now);
        let asked = self.calls.values().filter_map(|call| {
            let node = self.links.iter().position(|&link| link == call.conn)?;
            Some(((call.session, call.incarnation), (node, call.opens?)))
        });
        let sessions = self.cluster.sessions().sessions.into_iter();
        // A hostile node has room for whatever it makes up.
        let sessions = sessions.filter(|session| session.node != forger::NAME);
        let running = sessions.map(|SessionStatus { node, report, .. }| {
            ((report.session, report.incarnation), (index(&node), report.lanes))
        });
        // A session may be told of before the answer to who asked for it.
        let placed: BTreeMap<_, _> = asked.chain(running).collect();
        let mut lanes = [0; NODES];
        for (node, more) in placed.into_values() {
            lanes[node] += more;
            assert!(lanes[node] <= CAPACITY, "{} lanes are placed on node {node}", lanes[node]);
        }
    }

    fn wake(&mut self, ctx: &mut Context<'_>) {
        if ctx.now >= self.next_tick {
            self.next_tick = ctx.now + TICK;
            self.tell(Event::Tick, ctx);
            self.look_at_owners(ctx);
        }
        let over = |call: &Call| call.deadline <= ctx.now;
        let late: Vec<u64> =
            self.calls.iter().filter(|(_, call)| over(call)).map(|(&number, _)| number).collect();
        late.into_iter().for_each(|number| self.call_failed(number, ctx));
    }

    fn lost(&mut self, conn: u64, ctx: &mut Context<'_>) {
        let of_it: Vec<u64> =
            self.calls.iter().filter(|(_, c)| c.conn == conn).map(|(&number, _)| number).collect();
        of_it.into_iter().for_each(|number| self.call_failed(number, ctx));
        self.tell(Event::LinkLost { link: LinkId(conn), leaving: false }, ctx);
    }

    fn asked(&mut self, conn: u64, from: Site, ask: u64, question: Question, ctx: &mut Context<'_>) {
        if let Question::Ship(ship, bytes) = question {
            return self.ship(conn, from, ask, &ship, &bytes, ctx);
        }
        if let Question::PoolStatus(pool) = question {
            let confirmed = |status| self.store.confirm(pool, status);
            let response = match self.cluster.pool_status(ctx.now, pool).map(confirmed) {
                Ok(status) => Response::Pool(Box::new(status)),
                Err(refusal) => Response::Refused(refusal),
            };
            return ctx.send(conn, Message::Answer(ask, response));
        }
        let owner = self.owner(from, &question, ctx);
        if ctx.ledger.owners.is_revoked(&owner) {
            ctx.count("refused as revoked");
            let refusal = Refusal::new(RefusalCode::Unauthenticated, "the token was revoked");
            let response = Response::Reply(Box::new(Reply::Refused(refusal)));
            return ctx.send(conn, Message::Answer(ask, response));
        }
        let ticket = Ticket(ctx.number());
        let link = LinkId(conn);
        let event = match question {
            Question::Register(register) => {
                let node = register.node.clone();
                self.links[index(&node)] = conn;
                Event::Register { link, ticket, node, register }
            }
            Question::Heartbeat(heartbeat) => Event::Heartbeat { link, ticket, heartbeat },
            Question::OpenPool(request) => {
                self.wanted.insert(request.pool);
                Event::OpenPool { ticket, asker: asker(owner, ctx.bug), request }
            }
            Question::ReplaceSession(request) => {
                Event::ReplaceSession { ticket, asker: asker(owner, ctx.bug), request }
            }
            Question::ClosePool(pool) => {
                self.wanted.remove(&pool);
                self.closes.insert(ticket, pool);
                Event::ClosePool { ticket, asker: asker(owner, ctx.bug), pool }
            }
            other => panic!("the coordinator is asked {other:?}"),
        };
        self.tickets.add(ctx.now, ticket, &event, Some((conn, ask)));
        let counts = !matches!(event, Event::Heartbeat { .. });
        self.tell(event, ctx);
        if counts {
            self.check_quotas();
        }
        self.check_shipped(ctx);
    }

    /// Checks that what it says is in the store is there.
    fn check_shipped(&self, ctx: &mut Context<'_>) {
        for pool in ctx.ledger.recording() {
            let status = self.cluster.pool_status(ctx.now, pool);
            let status = status.map(|status| self.store.confirm(pool, status));
            if status.is_ok_and(|status| status.open == 0 && status.shipped) {
                ctx.count("pool shipped");
                ctx.ledger.shipped(pool);
            }
        }
    }

    /// Asks for a node to be drained, as an operator does who has no connection here.
    pub(crate) fn drain(&mut self, node: String, ctx: &mut Context<'_>) {
        let ticket = Ticket(ctx.number());
        self.ask_as_nobody(ticket, Event::Drain { ticket, node }, ctx);
    }

    /// Asks for all lanes of all nodes, which are free if nobody has any.
    pub(crate) fn open_everything(&mut self, ctx: &mut Context<'_>) {
        let ticket = Ticket(ctx.number());
        let owner = "last";
        let mut request = Box::new(a_pool(owner, ctx));
        request.lanes = NODES as u32 * CAPACITY;
        let asker = Asker { owner: owner.to_owned(), max_lanes: None, admin: false };
        self.ask_as_nobody(ticket, Event::OpenPool { ticket, asker, request }, ctx);
    }

    fn ask_as_nobody(&mut self, ticket: Ticket, event: Event, ctx: &mut Context<'_>) {
        self.tickets.add(ctx.now, ticket, &event, None);
        self.tell(event, ctx);
    }

    /// Handles a request of a hostile tenant, which is gone at once. Whatever follows, others keep what they had; if
    /// the request is refused at once, everybody does.
    pub(crate) fn harm(&mut self, ctx: &mut Context<'_>) {
        if ctx.random.chance(FORGED_PER_MILLE) {
            return self.forge(ctx);
        }
        let ticket = Ticket(ctx.number());
        let (event, of_another) = hostile::event(&self.cluster, ticket, ctx);
        self.tickets.add(ctx.now, ticket, &event, None);
        let (others, all) = (hostile::of_others(&self.cluster), self.pools(ctx));
        let asked = format!("{event:?}");
        let actions = self.cluster.handle(ctx.now, event);
        let is_refusal = |action: &Action| matches!(action, Action::Answer { ticket: to, reply: Reply::Refused(_) } if *to == ticket);
        let refused = actions.iter().any(is_refusal);
        assert_eq!(
            others,
            hostile::of_others(&self.cluster),
            "of what others have something changed by {asked}"
        );
        assert!(refused || !of_another, "{asked} is taken of what others have");
        if refused {
            ctx.count("harm refused");
            assert_eq!(
                (actions.len(), self.pools(ctx)),
                (1, all),
                "a refusal leaves something behind: {asked}"
            );
        } else {
            ctx.count("owner vanished before its answer");
        }
        actions.into_iter().for_each(|action| self.act(action, ctx));
    }

    /// Handles what a hostile node says of the sessions of others: nobody is asked to close anything, nobody's request is
    /// refused, and what this coordinator has placed is as it was.
    ///
    /// One request may be answered: that to close a pool of an earlier coordinator. This one knows such a pool by what nodes
    /// say alone. It waits until all nodes have told of what they have, and each that claims a session of the pool has said
    /// that it has ended. The hostile node is one of those, and may be the last: nobody else has anything of the pool then,
    /// and if it counts as stored, it is.
    fn forge(&mut self, ctx: &mut Context<'_>) {
        let ticket = Ticket(ctx.number());
        let event = self.forger.event(&self.cluster, ticket, ctx);
        self.tickets.add(ctx.now, ticket, &event, None);
        let sessions = self.cluster.sessions().sessions.into_iter();
        let of_others = sessions.filter(|session| session.node != forger::NAME);
        let others_have: BTreeSet<RunId> = of_others.map(|session| session.report.session.pool).collect();
        let (placed, said) = (self.placed_here(), format!("{event:?}"));
        for action in self.cluster.handle(ctx.now, event) {
            let of_its_own = match &action {
                Action::Answer { ticket: to, reply: Reply::PoolClosed(status) } if *to != ticket => {
                    let pool = self.closes[to];
                    if self.store.confirm(pool, (**status).clone()).shipped {
                        ctx.ledger.shipped(pool);
                    }
                    let is_claimed = |gone: &GoneSession| gone.incarnation.term < self.cluster.term();
                    status.open == 0 && !others_have.contains(&pool) && status.gone.iter().any(is_claimed)
                }
                Action::Answer { ticket: to, .. } => *to == ticket,
                Action::Close { link, .. } => *link == forger::LINK,
                Action::KeepRoster(_) => true,
                _ => false,
            };
            assert!(of_its_own, "{action:?} follows from {said}");
            self.act(action, ctx);
        }
        assert_eq!(placed, self.placed_here(), "what was placed has changed by {said}");
        ctx.count("report forged");
    }

    /// Has the hostile node's certificate revoked: it is not believed any more.
    pub(crate) fn expose(&mut self, ctx: &mut Context<'_>) {
        self.tell(Event::LinkRefused { link: forger::LINK }, ctx);
        self.forger = Forger::default();
        let sessions = self.cluster.sessions().sessions;
        assert!(sessions.iter().all(|session| session.node != forger::NAME), "{sessions:?}");
    }

    /// Returns the sessions that this boot of the coordinator has placed.
    fn placed_here(&self) -> Vec<SessionStatus> {
        let term = self.cluster.term();
        let sessions = self.cluster.sessions().sessions.into_iter();
        sessions.filter(|session| session.report.incarnation.term == term).collect()
    }

    /// Returns the number of pools that have not ended.
    fn pools(&self, ctx: &Context<'_>) -> u32 {
        self.cluster.status(ctx.now, "simulated", self.store.status()).pools
    }

    /// Returns the owner for a request. A pool that was asked for before keeps the owner it had then; nodes have none.
    fn owner(&self, from: Site, question: &Question, ctx: &mut Context<'_>) -> String {
        let Site::Trainer(trainer) = from else { return String::new() };
        let pool = match question {
            Question::OpenPool(request) => request.pool,
            Question::ReplaceSession(request) => request.open.pool,
            Question::ClosePool(pool) => *pool,
            other => panic!("a trainer asks {other:?}"),
        };
        ctx.ledger.owners.of(pool).unwrap_or_else(|| panic!("trainer {trainer} asks for {pool} as nobody"))
    }

    /// Ends what owners have whose tokens were revoked, as the coordinator's actor does, and nothing of others.
    fn look_at_owners(&mut self, ctx: &mut Context<'_>) {
        let everybody = ctx.has(Bug::RevokesEverybody);
        for owner in self.cluster.owners() {
            if !(ctx.ledger.owners.is_revoked(&owner) || everybody && ctx.ledger.owners.is_any_revoked()) {
                continue;
            }
            ctx.count("pools of a revoked owner closed");
            let before = self.sessions_of_others(ctx);
            self.tell(Event::Revoked { owner: Arc::clone(&owner), why: "revoked".to_owned() }, ctx);
            self.ended.insert(owner);
            assert_eq!(self.sessions_of_others(ctx), before, "a session of another owner has gone");
        }
    }

    /// Returns the sessions of owners whose tokens are valid.
    fn sessions_of_others(&self, ctx: &Context<'_>) -> Vec<(SessionId, Incarnation)> {
        let sessions = self.cluster.sessions().sessions;
        let kept = sessions.iter().filter(|session| {
            let closed = self.cluster.pool_status(ctx.now, session.report.session.pool);
            closed.is_ok_and(|status| status.failures.is_empty())
                && !ctx.ledger.owners.is_revoked(&session.report.owner)
        });
        kept.map(|session| (session.report.session, session.report.incarnation)).collect()
    }

    fn tell(&mut self, event: Event, ctx: &mut Context<'_>) {
        for action in self.cluster.handle(ctx.now, event) {
            self.act(action, ctx);
        }
    }

    fn act(&mut self, action: Action, ctx: &mut Context<'_>) {
        match action {
            Action::Answer { ticket, reply } => self.answer(ticket, reply, ctx),
            Action::Disconnect { link } if link == forger::LINK => {}
            Action::Disconnect { link } => ctx.close(link.0),
            Action::AskPort { asked, .. } if *asked.node == *forger::NAME => {}
            Action::AskPort { asked, .. } => ctx.ask_port(asked),
            Action::KeepRoster(roster) => {
                ctx.count(match roster.write(&self.disk, Path::new(DATA)) {
                    Ok(()) => "roster kept",
                    Err(_) => "roster not kept",
                });
            }
            Action::Open { link, request } => {
                let key = (request.session, request.incarnation);
                ctx.ledger.placements.given(key.0, key.1);
                let ended = self.ended.contains(request.owner.as_str());
                assert!(!ended, "{} gets a place and is revoked", request.owner);
                self.call(link, key, OPEN_DEADLINE, Question::OpenSession(request), ctx);
            }
            Action::Close { link, .. } if link == forger::LINK => ctx.count("forger asked to close"),
            Action::Close { link, request } => {
                let key = (request.session, request.incarnation);
                self.call(link, key, CLOSE_DEADLINE, Question::CloseSession(request), ctx);
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply, ctx: &mut Context<'_>) {
        let asker = self.tickets.answered(ticket);
        match &reply {
            Reply::PoolOpened(_) => ctx.count("pool granted"),
            Reply::PoolClosed(_) => ctx.count("pool closed"),
            Reply::SessionReplaced(_) => ctx.count("session replaced"),
            Reply::Registered(_) => ctx.count("node registered"),
            // Of an owner who may have the lanes when others of its own have ended.
            Reply::Refused(refusal) if refusal.message.contains("its quota is") => ctx.count("quota"),
            Reply::Refused(refusal) => ctx.count(refusal.code.word()),
            Reply::HeartbeatTaken(_) | Reply::Done => {}
        }
        if let Some((conn, ask)) = asker {
            ctx.send(conn, Message::Answer(ask, Response::Reply(Box::new(reply))));
        }
    }

    fn call(
        &mut self,
        link: LinkId,
        (session, incarnation): (SessionId, Incarnation),
        patience: Duration,
        question: Question,
        ctx: &mut Context<'_>,
    ) {
        let number = ctx.number();
        let opens = if let Question::OpenSession(open) = &question { Some(open.lanes) } else { None };
        let deadline = ctx.now + patience;
        self.calls.insert(number, Call { conn: link.0, session, incarnation, opens, deadline });
        ctx.send(link.0, Message::Ask(number, question));
    }

    fn called(&mut self, number: u64, response: Response, ctx: &mut Context<'_>) {
        let Some(Call { session, incarnation, opens, .. }) = self.calls.remove(&number) else { return };
        let event = match (opens.is_some(), response) {
            (true, Response::Opened(opened)) => Event::Opened { session, incarnation, result: Ok(opened) },
            (true, Response::Refused(refusal)) => {
                Event::Opened { session, incarnation, result: Err(CallFailure::Refused(refusal)) }
            }
            (false, Response::Ended(end)) => Event::Closed { session, incarnation, result: Ok(end) },
            (false, Response::Refused(refusal)) => {
                Event::Closed { session, incarnation, result: Err(CallFailure::Refused(refusal)) }
            }
            (_, other) => panic!("a node answers {other:?}"),
        };
        self.tell(event, ctx);
        self.check_quotas();
    }

    fn call_failed(&mut self, number: u64, ctx: &mut Context<'_>) {
        let Some(Call { session, incarnation, opens, .. }) = self.calls.remove(&number) else { return };
        ctx.count("call to a node without an answer");
        let event = if opens.is_some() {
            Event::Opened { session, incarnation, result: Err(CallFailure::Unknown) }
        } else {
            Event::Closed { session, incarnation, result: Err(CallFailure::Unknown) }
        };
        self.tell(event, ctx);
    }

    /// Takes a segment in as the service does: in pieces, and with the answer after its place is durable.
    fn ship(&mut self, conn: u64, from: Site, ask: u64, ship: &Ship, bytes: &[u8], ctx: &mut Context<'_>) {
        let Site::Node(node) = from else { panic!("{from:?} ships") };
        let name = name(node);
        let response = match self.receive(&name, ship, bytes) {
            Ok(shipped) => {
                ctx.ledger.acknowledged(&format!("{name}-{}", ship.spool), ship.segment, shipped);
                ctx.count(match shipped {
                    Shipped::Known => "segment known",
                    Shipped::Quarantined => "segment kept aside",
                    Shipped::Durable => "segment stored",
                });
                if self.store.counts().set_aside > 0 {
                    ctx.count("episode set aside");
                }
                ctx.ledger.check_there(self.numbers_there(ctx.ledger.store_folders()));
                Response::Shipped(shipped)
            }
            Err(error) => {
                ctx.count("segment refused");
                Response::Refused(error.refusal())
            }
        };
        // A disk takes from under one to some hundred milliseconds for its syncs.
        let slow = if ctx.random.chance(50) { 500 } else { 5 };
        let after = ctx.random.millis(0, slow);
        ctx.send_after(conn, Message::Answer(ask, response), after);
    }

    /// Returns the segments that the store has, by the names of their folders.
    fn numbers_there(&self, folders: Vec<String>) -> BTreeMap<String, BTreeSet<u64>> {
        let numbers = |folder: String| {
            let listed = self.store.list(&format!("{folder}/segments"), "");
            let entries = listed.map(|listing| listing.entries).unwrap_or_default();
            let numbers = entries.iter().filter_map(|entry| rollhouse_replay::segment_number(&entry.name));
            (folder, numbers.collect())
        };
        folders.into_iter().map(numbers).collect()
    }

    fn receive(&self, node: &str, ship: &Ship, bytes: &[u8]) -> Result<Shipped, StoreError> {
        match self.store.receive(node, ship)? {
            Receive::Answer(shipped) => Ok(shipped),
            Receive::Bytes(mut receiving) => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    receiving.write(piece)?;
                }
                receiving.finish()
            }
        }
    }

    /// Checks that no owner has more lanes than its quota in pools that were granted here and are in use. A closed pool
    /// counts no more, and a grant of an earlier coordinator stands.
    fn check_quotas(&self) {
        let mut lanes: BTreeMap<String, u32> = BTreeMap::new();
        let sessions = self.cluster.sessions().sessions;
        let wanted =
            sessions.into_iter().filter(|session| self.wanted.contains(&session.report.session.pool));
        for session in wanted {
            *lanes.entry(session.report.owner).or_default() += session.report.lanes;
        }
        for (owner, lanes) in lanes {
            assert!(lanes <= QUOTA, "{owner} has {lanes} lanes, its quota is {QUOTA}");
        }
    }

    /// Checks that nothing is placed, asked for or open.
    pub(crate) fn check_idle(&self) {
        let sessions = self.cluster.sessions().sessions;
        assert!(sessions.is_empty(), "sessions are placed: {sessions:?}");
        assert!(self.calls.is_empty(), "nodes are being asked");
        self.tickets.check_idle();
    }
}

fn asker(owner: String, bug: Option<Bug>) -> Asker {
    let max_lanes = (bug != Some(Bug::IgnoresQuotas)).then_some(QUOTA);
    Asker { owner, max_lanes, admin: false }
}

/// Reports of a hostile node, of a thousand harms.
const FORGED_PER_MILLE: u64 = 400;
/// An odd number whose multiples differ in their upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const PIECE_BYTES: usize = 4096;
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
