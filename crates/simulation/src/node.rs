//! A node's process: its registration, table of sessions, sessions, recorder and shipper, and as little as possible
//! around them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rollhouse_arena::ServingEnd;
use rollhouse_env::Registry;
use rollhouse_node::{
    ANSWER_DEADLINE, Cancel, FrameRequest, LinkAction, LinkEvent, Registration, SessionTable, Transport,
    TurnOver, Unanswered, keep_seen, read_seen,
};
use rollhouse_replay::OnOutage;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_wire::{
    Attach, Attached, CloseSession, EndCause, FrameHeader, FrameKind, Heartbeat, Incarnation, NodeLoad,
    OpenSession, Refusal, RefusalCode, Register, ReportLog, SeenTerm, SessionCounts, SessionEnd, SessionId,
    SessionOpened,
};

use crate::cast::{CAPACITY, ENV, LATE_ENV, budget, name};
use crate::context::{Context, Input};
use crate::hosted::Hosted;
use crate::message::{Message, Question, Response};
use crate::network::Site;
use crate::spool::Spool;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// One boot of a node.
#[derive(Debug)]
pub(crate) struct Node {
    index: usize,
    boot: u64,
    registry: Arc<Registry>,
    registration: Registration,
    /// The connection to the coordinator, and whether the coordinator knows the node on it.
    link: Option<(u64, bool)>,
    asks: BTreeMap<u64, Pending>,
    table: SessionTable<u64>,
    reports: ReportLog,
    hosted: BTreeMap<u64, Hosted>,
    streams: BTreeMap<u64, Stream>,
    making: Vec<Making>,
    /// Requests that wait for the recorder.
    waiting: Vec<(u64, FrameHeader, Arc<FrameRequest>)>,
    spool: Spool,
    /// Whether owners are told that they had better move.
    leaving: Arc<AtomicBool>,
    look_at: Duration,
}

#[derive(Debug)]
enum Pending {
    Register { deadline: Duration },
    Beat { deadline: Duration, ends: Vec<SessionEnd>, since: u64, more: bool },
}

#[derive(Debug)]
struct Stream {
    conn: u64,
    hosted: u64,
    number: u64,
    /// The node's end of the memory by which its owner is attached.
    memory: Option<Box<ServingEnd>>,
}

#[derive(Debug)]
struct Making {
    at: Duration,
    conn: u64,
    ask: u64,
    open: Box<OpenSession>,
    /// The session's token.
    token: Cancel,
}

impl Node {
    /// Starts from what is on the disk; `None` if the disk does not let it.
    pub(crate) fn start(
        index: usize,
        boot: u64,
        disk: &FaultyDisk,
        registry: &Arc<Registry>,
        on_outage: OnOutage,
        ctx: &mut Context<'_>,
    ) -> Option<Self> {
        let spool = Spool::open(index, disk, on_outage, ctx)?;
        let seen = read_seen(disk, Path::new(NODE_DATA)).unwrap_or_default();
        let table = SessionTable::new(CAPACITY, LEASE).within(budget(index)).having_seen(seen);
        Some(Self {
            index,
            boot,
            registry: Arc::clone(registry),
            registration: Registration::new(boot),
            link: None,
            asks: BTreeMap::new(),
            table,
            reports: ReportLog::default(),
            hosted: BTreeMap::new(),
            streams: BTreeMap::new(),
            making: Vec::new(),
            waiting: Vec::new(),
            spool,
            leaving: Arc::default(),
            look_at: Duration::ZERO,
        })
    }

    /// Returns when it wants to be woken.
    pub(crate) fn wake_at(&self) -> Duration {
        let asks = self.asks.values().map(Pending::deadline);
        let making = self.making.iter().map(|making| making.at);
        let at = self.look_at.min(self.spool.wake_at());
        asks.chain(making).chain(self.registration.wake_at()).fold(at, Duration::min)
    }

    pub(crate) fn handle(&mut self, input: Input, ctx: &mut Context<'_>) {
        match input {
            Input::Wake => self.wake(ctx),
            Input::Connected(conn) => {
                if self.link.is_some_and(|(link, _)| link == conn) {
                    self.tell(LinkEvent::Connected, ctx);
                }
            }
            Input::Lost(conn) => self.lost(conn, LinkEvent::Lost, ctx),
            Input::PortClosed(conn) => self.lost(conn, LinkEvent::PortClosed, ctx),
            Input::NodePortClosed(asked) => panic!("a node is told {asked:?}"),
            Input::Message { conn, message, .. } => match message {
                Message::Ask(ask, question) => self.asked(conn, ask, question, ctx),
                Message::Answer(ask, response) => self.answered(conn, ask, response, ctx),
                Message::Frame { stream, header, request } => self.frame(stream, header, request, ctx),
                Message::Bell { stream } => self.serve(stream, ctx),
                Message::StreamEnd { stream } => self.detach(stream, ctx),
                other => panic!("a node is sent {other:?}"),
            },
        }
        self.check();
    }

    /// Checks what must hold after every event.
    fn check(&self) {
        let making: u32 = self.making.iter().map(|making| making.open.lanes).sum();
        let held: u32 = self.hosted.values().map(Hosted::lanes).sum();
        let lanes = self.table.lanes();
        assert!(lanes <= CAPACITY, "{lanes} lanes on a node for {CAPACITY}");
        let (taken, total) = (self.table.taken().memory, budget(self.index).total.memory);
        assert!(taken <= total, "{taken} bytes are taken on a node for {total}");
        // One that was closed while it was made is let go when it is.
        assert!(
            held <= lanes && lanes <= held + making,
            "{lanes} lanes counted, {held} held, {making} in the making"
        );
        self.spool.check();
    }

    fn wake(&mut self, ctx: &mut Context<'_>) {
        self.tell(LinkEvent::Tick, ctx);
        let late: Vec<u64> =
            self.asks.iter().filter(|(_, asked)| asked.deadline() <= ctx.now).map(|(&ask, _)| ask).collect();
        for ask in late {
            self.asks.remove(&ask);
            self.tell(LinkEvent::Lost, ctx);
        }
        let due = |making: &Making| making.at <= ctx.now;
        let made: Vec<Making> = self.making.extract_if(.., |making| due(making)).collect();
        made.into_iter().for_each(|making| self.made(making, ctx));
        if ctx.now >= self.look_at {
            self.look_at = ctx.now + LOOK_EVERY;
            for (session, incarnation) in self.table.all() {
                let Some(place) = self.table.look(ctx.now, session, incarnation) else { continue };
                ctx.count("lease ended");
                let held = self.streams.values().any(|stream| stream.hosted == place);
                assert!(!held, "{session} {incarnation}: its lease ends under its owner");
                self.finish((session, incarnation), place, EndCause::LeaseEnded, ctx);
            }
            for hosted in self.hosted.values() {
                let alone = hosted.alone_since.map_or(Duration::ZERO, |since| ctx.now.saturating_sub(since));
                assert!(alone < LEASE, "{} is held for nobody, {alone:?} long", hosted.session);
            }
        }
        self.spool.turn(self.link.filter(|(_, joined)| *joined).map(|(conn, _)| conn), ctx);
        for (stream, header, request) in std::mem::take(&mut self.waiting) {
            self.frame(stream, header, request, ctx);
        }
    }

    // The coordinator.

    fn tell(&mut self, event: LinkEvent, ctx: &mut Context<'_>) {
        match self.registration.handle(ctx.now, event) {
            Some(LinkAction::Dial) => self.link = Some((ctx.dial(Site::Coordinator), false)),
            Some(LinkAction::Register) => {
                let register = Question::Register(Box::new(self.register()));
                let deadline = ctx.now + ANSWER_DEADLINE;
                self.ask(register, Pending::Register { deadline }, ctx);
            }
            Some(LinkAction::Beat { number }) => {
                let (heartbeat, more) = self.heartbeat(number);
                let (deadline, ends) = (ctx.now + ANSWER_DEADLINE, heartbeat.ended.clone());
                let asked = Pending::Beat { deadline, ends, since: heartbeat.changes.since, more };
                self.ask(Question::Heartbeat(Box::new(heartbeat)), asked, ctx);
            }
            Some(LinkAction::Drop) => self.hang_up(ctx),
            Some(LinkAction::Redial) => {
                self.hang_up(ctx);
                self.link = Some((ctx.dial(Site::Coordinator), false));
            }
            None => {}
        }
    }

    fn hang_up(&mut self, ctx: &mut Context<'_>) {
        if let Some((conn, _)) = self.link.take() {
            ctx.close(conn);
        }
        self.asks.clear();
        self.spool.disconnected(ctx);
    }

    fn ask(&mut self, question: Question, asked: Pending, ctx: &mut Context<'_>) {
        let Some((conn, _)) = self.link else { return };
        let ask = ctx.number();
        self.asks.insert(ask, asked);
        ctx.send(conn, Message::Ask(ask, question));
    }

    fn register(&self) -> Register {
        let hash = |env: &str| self.registry.get(env).expect("an env of nodes").spec().dynamics_hash;
        Register {
            node: name(self.index),
            boot: self.boot,
            address: name(self.index),
            attach: None,
            capacity: CAPACITY,
            threads: 1,
            labels: BTreeMap::new(),
            envs: [ENV, LATE_ENV].map(|env| (env.to_owned(), hash(env))).into(),
            kinds: Vec::new(),
            budget: Some(budget(self.index)),
            term: self.table.newest_term(),
            seen: self.table.seen(),
            program: "simulated".to_owned(),
        }
    }

    /// Returns the next heartbeat, and whether there is more to say than fits.
    fn heartbeat(&mut self, number: u64) -> (Heartbeat, bool) {
        let mut load =
            NodeLoad { lanes: self.table.lanes(), taken: self.table.taken(), ..NodeLoad::default() };
        self.spool.load(&mut load);
        self.reports.update(self.table.reports(|_| SessionCounts::default(), |_| false, |_| None, |_| None));
        let changes = self.reports.changes(REPORTS);
        let (ended, all_ends) = self.table.ends();
        let more = changes.more || !all_ends;
        (
            Heartbeat {
                number,
                load,
                changes,
                ended,
                unfit: None,
                draining: false,
                measured: BTreeMap::new(),
                connecting: Vec::new(),
                standings: Vec::new(),
            },
            more,
        )
    }

    fn answered(&mut self, conn: u64, ask: u64, response: Response, ctx: &mut Context<'_>) {
        if self.link.is_none_or(|(link, _)| link != conn) {
            return;
        }
        if self.spool.answered(ask, &response, ctx) {
            return;
        }
        let Some(asked) = self.asks.remove(&ask) else { return };
        let Response::Reply(reply) = response else { panic!("{response:?} to a node") };
        match (asked, *reply) {
            (Pending::Register { .. }, rollhouse_coordinator::Reply::Registered(registered)) => {
                self.link = Some((conn, true));
                self.spool.connected(conn, ctx);
                self.reports.begin(registered.known);
                let coordinator = SeenTerm { term: registered.term, boot: registered.boot };
                match self.table.joined(coordinator) {
                    // A disk that does not take it has the node forget it with its process.
                    Ok(true) => drop(keep_seen(coordinator, self.spool.disk(), Path::new(NODE_DATA))),
                    Ok(false) => {}
                    Err(_) => panic!("a coordinator that is behind has taken node {} in", self.index),
                }
                let heartbeat = Duration::from_millis(registered.heartbeat_ms);
                self.tell(LinkEvent::Registered { heartbeat }, ctx);
            }
            (
                Pending::Beat { ends, since, more, .. },
                rollhouse_coordinator::Reply::HeartbeatTaken(taken),
            ) => {
                self.reports.acknowledge(since, taken.known);
                self.table.acknowledge(&ends);
                self.close_all(taken.close, ctx);
                if taken.drain {
                    self.table.drain();
                    self.leaving.store(true, Ordering::Relaxed);
                }
                self.tell(LinkEvent::Taken { number: taken.number, more }, ctx);
            }
            (_, rollhouse_coordinator::Reply::Refused(_)) => self.tell(LinkEvent::Lost, ctx),
            (_, other) => panic!("{other:?} to a node"),
        }
    }

    fn close_all(&mut self, close: Vec<CloseSession>, ctx: &mut Context<'_>) {
        for CloseSession { session, incarnation } in close {
            ctx.count("session closed as a stray");
            self.end(session, incarnation, EndCause::Closed, ctx);
        }
    }

    fn asked(&mut self, conn: u64, ask: u64, question: Question, ctx: &mut Context<'_>) {
        match question {
            Question::OpenSession(open) => match self.open(conn, ask, open, ctx) {
                Ok(Some(opened)) => ctx.send(conn, Message::Answer(ask, Response::Opened(Box::new(opened)))),
                Ok(None) => {}
                Err(refusal) => {
                    ctx.count("node refused a session");
                    ctx.send(conn, Message::Answer(ask, Response::Refused(refusal)));
                }
            },
            Question::CloseSession(CloseSession { session, incarnation }) => {
                let ended = self.end(session, incarnation, EndCause::Closed, ctx);
                let answer = ended.map_or_else(|| self.table.answer_close(session, incarnation), Ok);
                let response = answer.map_or_else(Response::Refused, |end| Response::Ended(Box::new(end)));
                ctx.send(conn, Message::Answer(ask, response));
            }
            Question::Attach { stream, attach, memory } => {
                let how = if memory { Transport::SharedMemory } else { Transport::Quic };
                let response = match self.attach(conn, stream, (&attach, how), ctx) {
                    Ok(attached) if memory => self.offer(stream, attached, ctx),
                    attached => attached.map(Response::Attached),
                };
                let response = response.unwrap_or_else(Response::Refused);
                ctx.send(conn, Message::Answer(ask, response));
            }
            other => panic!("a node is asked {other:?}"),
        }
    }

    /// Begins to make a session, ending an earlier placement of it first.
    fn open(
        &mut self,
        conn: u64,
        ask: u64,
        open: Box<OpenSession>,
        ctx: &mut Context<'_>,
    ) -> Result<Option<SessionOpened>, Refusal> {
        if let Some(earlier) = self.table.superseded(&open) {
            self.end(open.session, earlier, EndCause::Closed, ctx);
        }
        let Some(token) = self.table.open(&open)? else { return Ok(Some(self.opened(&open))) };
        let at = ctx.now + ctx.random.millis(0, 40);
        self.making.push(Making { at, conn, ask, open, token });
        Ok(None)
    }

    fn opened(&self, open: &OpenSession) -> SessionOpened {
        let entry = self.registry.get(&open.settings.env).expect("it was found before");
        SessionOpened { spec: entry.spec().clone(), lease_ms: LEASE.as_millis() as u64, replay: false }
    }

    fn made(&mut self, Making { conn, ask, open, token, .. }: Making, ctx: &mut Context<'_>) {
        let recorder = Arc::clone(self.spool.recorder());
        let (session, incarnation) = (open.session, open.incarnation);
        let hosted = match Hosted::make(&open, token, &self.registry, recorder, (&self.leaving, ctx.now)) {
            Ok(hosted) => hosted,
            Err(refusal) => {
                self.table.not_made(ctx.now, session, incarnation);
                return ctx.send(conn, Message::Answer(ask, Response::Refused(refusal)));
            }
        };
        let handle = ctx.number();
        if !self.table.opened(ctx.now, session, incarnation, handle) {
            ctx.count("session closed while it was made");
            let refusal = Refusal::new(RefusalCode::Stale, "the session was closed while it was opened");
            return ctx.send(conn, Message::Answer(ask, Response::Refused(refusal)));
        }
        self.hosted.insert(handle, hosted);
        ctx.ledger.made(session, incarnation);
        ctx.count("session opened");
        let opened = self.opened(&open);
        ctx.send(conn, Message::Answer(ask, Response::Opened(Box::new(opened))));
    }

    /// Ends a session; its end is told until it is acknowledged.
    fn end(
        &mut self,
        session: SessionId,
        incarnation: Incarnation,
        cause: EndCause,
        ctx: &mut Context<'_>,
    ) -> Option<SessionEnd> {
        let handle = self.table.begin_end(ctx.now, session, incarnation, cause)?;
        ctx.ledger.owners.closed(session, incarnation);
        Some(self.finish((session, incarnation), handle, cause, ctx))
    }

    /// Ends a session that has begun to end.
    fn finish(
        &mut self,
        (session, incarnation): (SessionId, Incarnation),
        handle: u64,
        cause: EndCause,
        ctx: &mut Context<'_>,
    ) -> SessionEnd {
        let mut hosted = self.hosted.remove(&handle).expect("what is open is hosted");
        hosted.turn.end();
        let of_it: Vec<u64> =
            self.streams.iter().filter(|(_, s)| s.hosted == handle).map(|(&id, _)| id).collect();
        for stream in of_it {
            let conn = self.streams.remove(&stream).expect("it was just listed").conn;
            ctx.send(conn, Message::StreamEnd { stream });
        }
        hosted.finish(cause.interruption(), ctx.ledger);
        self.spool.write_out(ctx);
        let (detail, done) = (String::new(), SessionCounts::default());
        let (report, unreached) = (None, false);
        let end = SessionEnd { session, incarnation, cause, detail, done, report, unreached };
        self.table.ended(ctx.now, end.clone());
        end
    }

    // Owners.

    fn attach(
        &mut self,
        conn: u64,
        stream: u64,
        (attach, how): (&Attach, Transport),
        ctx: &mut Context<'_>,
    ) -> Result<Attached, Refusal> {
        let attachment = self.table.attach(ctx.now, attach, how)?;
        let (handle, number) = (attachment.session, attachment.number);
        let hosted = self.hosted.get_mut(&handle).expect("what is open is hosted");
        hosted.turn.take_over(number);
        ctx.ledger.placements.attached(hosted.session, hosted.incarnation, stream);
        let logs = attach.log && hosted.owned.keep_log();
        let (lanes, last) = (hosted.lanes(), hosted.owned.last());
        let attached = Attached { lanes, last, logs, as_done: true, plays: false, paced: false };
        let turn = hosted.turn;
        let sent_away =
            |stream: &Stream| stream.hosted == handle && turn.admit(stream.number) == Err(TurnOver::Replaced);
        let replaced: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| sent_away(stream)).map(|(&id, _)| id).collect();
        for old in replaced {
            ctx.count("stream replaced");
            let old_conn = self.streams.get(&old).map_or(conn, |stream| stream.conn);
            self.detach(old, ctx);
            ctx.send(old_conn, Message::StreamEnd { stream: old });
        }
        self.streams.insert(stream, Stream { conn, hosted: handle, number, memory: None });
        if let Some(hosted) = self.hosted.get_mut(&handle) {
            hosted.alone_since = None;
        }
        Ok(attached)
    }

    /// Offers an owner that was attached the memory of its session, if it can be had.
    fn offer(&mut self, stream: u64, attached: Attached, ctx: &mut Context<'_>) -> Result<Response, Refusal> {
        let to = self.streams.get_mut(&stream).expect("it was just attached");
        let hosted = self.hosted.get_mut(&to.hosted).expect("streams end with their session");
        match hosted.offer(&attached) {
            Ok((end, memory)) => {
                to.memory = Some(end);
                Ok(Response::Memory(memory))
            }
            Err(refusal) => {
                self.detach(stream, ctx);
                Err(refusal)
            }
        }
    }

    /// Does what is asked for in the memory of a stream's owner.
    fn serve(&mut self, stream: u64, ctx: &mut Context<'_>) {
        let Some(Stream { conn, hosted, number, memory: Some(end) }) = self.streams.get_mut(&stream) else {
            return;
        };
        let session = self.hosted.get_mut(hosted).expect("streams end with their session");
        if session.turn.admit(*number).is_err() {
            return;
        }
        if session.owned.recording().is_some_and(|run| run.is_behind() && run.outage().is_none()) {
            // A thread would wait for a buffer here; the owner rings again.
            return ctx.count("request waited for the recorder");
        }
        while let Some(request) = end.poll().expect("an owner of ours") {
            let asked = session.owned.last() + 1;
            ctx.ledger.placements.stepped(session.session, session.incarnation, stream, asked);
            session.serve(end, request, ctx.ledger);
        }
        let conn = *conn;
        self.spool.write(ctx);
        ctx.send(conn, Message::Bell { stream });
    }

    fn detach(&mut self, stream: u64, ctx: &mut Context<'_>) {
        // Nobody waits for lanes any more; whoever attaches next may ask for the answer again.
        self.gather(stream, ctx);
        let Some(Stream { hosted, number, .. }) = self.streams.remove(&stream) else { return };
        let Some(session) = self.hosted.get_mut(&hosted) else { return };
        self.table.detached(ctx.now, session.session, session.incarnation, number);
        if !self.streams.values().any(|stream| stream.hosted == hosted) {
            session.alone_since = Some(ctx.now);
        }
    }

    fn lost(&mut self, conn: u64, how: LinkEvent, ctx: &mut Context<'_>) {
        let of_it: Vec<u64> =
            self.streams.iter().filter(|(_, s)| s.conn == conn).map(|(&id, _)| id).collect();
        of_it.into_iter().for_each(|stream| self.detach(stream, ctx));
        if self.link.is_some_and(|(link, _)| link == conn) {
            self.tell(how, ctx);
        }
    }

    /// Answers the request of a stream that waits for lanes with those that are done.
    fn gather(&mut self, stream: u64, ctx: &mut Context<'_>) -> Option<Bytes> {
        let hosted = self.hosted.get_mut(&self.streams.get(&stream)?.hosted)?;
        hosted.waits.take_if(|waits| *waits == stream)?;
        ctx.count("request hastened");
        hosted.gather(ctx.ledger)
    }

    fn frame(&mut self, stream: u64, header: FrameHeader, request: Arc<FrameRequest>, ctx: &mut Context<'_>) {
        let Some(&Stream { conn, hosted: handle, number, .. }) = self.streams.get(&stream) else { return };
        if self.waiting.iter().any(|(other, ..)| *other == stream) {
            // A stream's requests are answered in the order in which they came.
            return self.waiting.push((stream, header, request));
        }
        if let Some(answer) = self.gather(stream, ctx) {
            self.spool.write(ctx);
            ctx.send(conn, Message::Answered { stream, answer });
        }
        if header.kind == FrameKind::Hasten {
            return;
        }
        let hosted = self.hosted.get_mut(&handle).expect("streams end with their session");
        let answer = match hosted.owned.admit(hosted.turn, number, &hosted.token, header) {
            Err(Unanswered::Replaced | Unanswered::Ended) => return,
            Err(other) => panic!("a trainer of ours is not answered: {other:?}"),
            Ok(Some(answer)) => {
                ctx.count("request repeated");
                answer
            }
            Ok(None) => {
                if hosted.owned.recording().is_some_and(|run| run.is_behind() && run.outage().is_none()) {
                    // A thread would wait for a buffer here.
                    ctx.count("request waited for the recorder");
                    return self.waiting.push((stream, header, request));
                }
                ctx.ledger.placements.stepped(hosted.session, hosted.incarnation, stream, header.number);
                let answer = hosted.carry_out(header, &request, ctx.ledger);
                match answer
                    .unwrap_or_else(|fault| panic!("a trainer of ours sends what is no request: {fault}"))
                {
                    Some(answer) => answer,
                    None => {
                        hosted.waits = Some(stream);
                        return;
                    }
                }
            }
        };
        self.spool.write(ctx);
        ctx.send(conn, Message::Answered { stream, answer });
    }

    /// Checks that no sessions, unacknowledged ends or unshipped segments are left.
    pub(crate) fn check_idle(&self) {
        assert_eq!(self.table.lanes(), 0, "lanes are held for nobody");
        assert!(self.table.ends().0.is_empty(), "ends were never heard");
        self.spool.check_idle();
    }

    /// Sets its wall clock ahead by so many milliseconds.
    pub(crate) fn set_wall(&mut self, ahead_ms: i64) {
        self.spool.set_wall(ahead_ms);
    }

    /// Returns whether each of its lanes belongs to a session that is open.
    pub(crate) fn is_full(&self) -> bool {
        self.hosted.values().map(Hosted::lanes).sum::<u32>() == CAPACITY
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.link.is_some_and(|(_, joined)| joined)
    }

    /// Seals what it has recorded, as a node that is stopped in order does.
    pub(crate) fn seal(&mut self, ctx: &mut Context<'_>) {
        self.spool.seal(ctx);
    }
}

impl Pending {
    const fn deadline(&self) -> Duration {
        match self {
            Self::Register { deadline } | Self::Beat { deadline, .. } => *deadline,
        }
    }
}

/// Sessions whose changes one heartbeat tells: few, so that what is told in parts is met as well.
const REPORTS: usize = 3;
/// Interval at which the node looks after its sessions, as its data thread does.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The folder in which a node keeps which coordinator it has seen.
const NODE_DATA: &str = "/node";
