//! One session of a pool, as its owner has it: numbers, retries and streams by the client library's own rules, and
//! the same lanes stepped here to compare.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{GiveUp, Numbering, Patience, Retry, RetryAction, RetryEvent};
use rollhouse_core::{ColumnRef, RunId};
use rollhouse_env::Registry;
use rollhouse_node::{FrameRequest, OwnedSession, SessionPlan};
use rollhouse_wire::{
    Attach, ColumnBuffer, FrameHeader, FrameKind, FrameLayout, Grant, HEADER_BYTES, OpenPool, OpenSession,
    Refusal, SessionId, column_bytes, control,
};

use crate::bug::Bug;
use crate::context::Context;
use crate::inquiry::Inquiry;
use crate::message::{Message, Question, Response};
use crate::network::Site;
use crate::resuming::{Place, Resuming};
use crate::trainer::{Line, lanes_of};

#[derive(Debug)]
pub(crate) struct PoolSession {
    pub(crate) node: usize,
    pool: RunId,
    grant: Grant,
    lease: Duration,
    layout: FrameLayout,
    numbering: Numbering,
    /// The stream it is attached by.
    stream: Option<(u64, u64)>,
    pending: Option<Pending>,
    /// What the caller waits for, and until when.
    asked: Option<Asked>,
    /// `None` if its lanes are not to go on elsewhere.
    resuming: Option<Box<Resuming>>,
    /// How the last request ended, if not with an answer.
    trouble: Option<GiveUp>,
    gone: bool,
    /// The same lanes, stepped here. `None` once it is not known which requests were carried out.
    reference: Option<Box<OwnedSession>>,
    steps: u64,
    /// When its last answer was taken, on the world's clock.
    answered_at: Duration,
    /// Its owner means harm: lanes that go on elsewhere begin anew there, under the same numbers.
    forges: bool,
}

#[derive(Debug, Clone)]
struct Asked {
    kind: FrameKind,
    request: Arc<FrameRequest>,
    deadline: Duration,
}

#[derive(Debug)]
struct Pending {
    kind: FrameKind,
    request: Arc<FrameRequest>,
    retry: Retry,
    next: RetryAction,
    under_way: UnderWay,
    inquiry: Inquiry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnderWay {
    Nothing,
    /// Written on the stream.
    Sent(u32),
    Dialling,
    /// Asked to attach by that number, until then.
    Attaching {
        ask: u64,
        stream: u64,
        conn: u64,
        deadline: Duration,
    },
}

impl PoolSession {
    pub(crate) fn new(
        open: &OpenPool,
        grant: &Grant,
        lease: Duration,
        registry: &Registry,
        resumes: bool,
    ) -> Self {
        let asked = OpenSession {
            session: SessionId { pool: open.pool, index: grant.index },
            incarnation: grant.incarnation,
            secret: grant.secret,
            owner: String::new(),
            first_lane: grant.first_lane,
            lanes: grant.lanes,
            pool_lanes: open.lanes,
            replaces: false,
            settings: open.settings.clone(),
        };
        let plan = Arc::new(SessionPlan::of(&asked, registry, "reference").expect("the node has made it"));
        let entry = registry.get(&open.settings.env).expect("the node has made it");
        let reference = OwnedSession::make(plan, None).expect("the node has made it");
        let layout = FrameLayout::of(entry.spec());
        let places = layout.batch(grant.lanes as usize, false).expect("a small batch");
        let resuming = resumes.then(|| Box::new(Resuming::new(open, grant.lanes, entry.spec(), places)));
        Self {
            node: crate::node::index(&grant.node),
            pool: open.pool,
            grant: grant.clone(),
            lease,
            layout,
            numbering: Numbering::default(),
            stream: None,
            pending: None,
            asked: None,
            resuming,
            trouble: None,
            gone: false,
            reference: Some(Box::new(reference)),
            steps: 0,
            answered_at: Duration::ZERO,
            forges: false,
        }
    }

    /// From now on it is an owner's that means harm; false if its lanes cannot go on elsewhere.
    pub(crate) fn forge(&mut self) -> bool {
        let Some(resuming) = &mut self.resuming else { return false };
        resuming.leave_soon();
        self.forges = true;
        // What its lanes are to answer is not to be known any more.
        self.reference = None;
        true
    }

    /// Makes a request. Of one that is gone nothing is asked.
    pub(crate) fn ask(&mut self, reset: bool, deadline: Duration, ctx: &mut Context<'_>) {
        if self.is_gone() {
            return;
        }
        let (kind, request) = if reset { (FrameKind::Reset, FrameRequest::default()) } else { self.step() };
        let asked = Asked { kind, request: Arc::new(request), deadline };
        self.asked = Some(asked.clone());
        if let Some(resuming) = self.resuming.as_mut().filter(|_| !self.gone && self.pending.is_none()) {
            resuming.leave(ctx.now);
        }
        let first = |resuming: &Resuming| resuming.is_telling() || resuming.is_moving();
        if !self.gone && !self.resuming.as_deref().is_some_and(first) {
            self.begin(asked, ctx);
        }
    }

    /// Begins what is to be carried out next.
    fn begin(&mut self, asked: Asked, ctx: &mut Context<'_>) {
        let Asked { kind, request, deadline } = asked;
        let (lease, seed) = (self.lease, u64::from(self.grant.index) ^ ctx.random.bits());
        let patience = match kind {
            FrameKind::Resume => Patience::until_told(lease, seed),
            _ => Patience { deadline, lease, abandoned: 0, seed },
        };
        let (retry, next) = self.numbering.begin(ctx.now, self.stream.is_some(), patience);
        let inquiry = Inquiry::new(ctx.now, self.heard(ctx));
        self.pending = Some(Pending { kind, request, retry, next, under_way: UnderWay::Nothing, inquiry });
    }

    /// Actions that depend on lane and step.
    fn step(&mut self) -> (FrameKind, FrameRequest) {
        self.steps += 1;
        let lanes = self.grant.lanes as usize;
        let first = u64::from(self.grant.first_lane);
        let action = |lane: usize| {
            (rollhouse_core::random_bits(7, (first + lane as u64) as u32, self.steps) & 1) as i64
        };
        let actions: Vec<i64> = (0..lanes).map(action).collect();
        let places = self.layout.actions(lanes, false).expect("a small batch");
        let mut columns = ColumnBuffer::default();
        columns.resize(places.bytes);
        columns.bytes_mut()[places.actions].copy_from_slice(column_bytes(ColumnRef::I64(&actions)));
        (FrameKind::Step, FrameRequest { columns, sidecar: Vec::new() })
    }

    /// Does what is due.
    pub(crate) fn carry_on(
        &mut self,
        nodes: &mut BTreeMap<usize, Line>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        self.inquire(coordinator, ctx);
        self.go_on(nodes, ctx);
        self.place(coordinator, ctx);
        self.go_on(nodes, ctx);
    }

    /// Does what is to be done next, as long as nothing has to be waited for.
    fn go_on(&mut self, nodes: &mut BTreeMap<usize, Line>, ctx: &mut Context<'_>) {
        loop {
            let Some(asked) = &self.asked else { return };
            if self.pending.is_none() && !self.next(asked.clone(), ctx) {
                return;
            }
            let Some(pending) = &mut self.pending else { return };
            if let UnderWay::Attaching { deadline, .. } = pending.under_way
                && deadline <= ctx.now
            {
                self.give_up_attaching(ctx);
                self.happened(RetryEvent::Unreachable, ctx);
                continue;
            }
            if pending.under_way != UnderWay::Nothing {
                return;
            }
            match pending.next {
                RetryAction::Send { number } => self.send(number, ctx),
                RetryAction::Attach => match nodes.get(&self.node).copied().unwrap_or(Line::None) {
                    Line::Up(conn) => self.attach(conn, ctx),
                    Line::Dialling(_) => pending.under_way = UnderWay::Dialling,
                    Line::None => {
                        pending.under_way = UnderWay::Dialling;
                        nodes.insert(self.node, Line::Dialling(ctx.dial(Site::Node(self.node))));
                    }
                },
                RetryAction::WaitUntil(until) if until <= ctx.now => self.happened(RetryEvent::Woken, ctx),
                RetryAction::WaitUntil(_) => return,
                RetryAction::Finish => {
                    if self.pending.take().is_some_and(|pending| pending.kind != FrameKind::Resume) {
                        self.asked = None;
                    }
                }
                RetryAction::GiveUp(why) => self.given_up(why, ctx),
            }
        }
    }

    /// Begins what comes before the request, or the request itself; false if that has to wait.
    fn next(&mut self, asked: Asked, ctx: &mut Context<'_>) -> bool {
        if self.gone || self.resuming.as_ref().is_some_and(|resuming| resuming.is_moving()) {
            return false;
        }
        if (ctx.has(Bug::ForgetsPast) || self.forges)
            && let Some(resuming) = &mut self.resuming
        {
            resuming.forget_past();
        }
        let part = self.resuming.as_mut().filter(|resuming| resuming.is_telling());
        let asked = match part.and_then(|resuming| resuming.next_part()) {
            Some(part) => Asked { kind: FrameKind::Resume, request: Arc::new(part), ..asked },
            None => asked,
        };
        self.begin(asked, ctx);
        true
    }

    fn given_up(&mut self, why: GiveUp, ctx: &mut Context<'_>) {
        let Some(pending) = self.pending.take() else { return };
        match why {
            GiveUp::NodeLost => {
                self.gone = true;
                self.detach(ctx);
                if let Some(resuming) = &mut self.resuming {
                    resuming.forget_past();
                    return;
                }
            }
            GiveUp::Refused(code) => {
                assert!(pending.kind != FrameKind::Resume, "lanes could not be resumed: {code:?}");
                self.numbering.answered();
            }
            GiveUp::TimedOut => {}
        }
        self.stop_with(why);
    }

    /// The caller is told that there is no answer.
    fn stop_with(&mut self, why: GiveUp) {
        self.trouble = Some(why);
        self.asked = None;
        // Which requests were carried out is not known any more.
        self.reference = None;
    }

    /// Asks for another place if its node is lost and the caller waits.
    fn place(&mut self, coordinator: &mut Line, ctx: &mut Context<'_>) {
        if let (Some(resuming), Some(asked)) = (&mut self.resuming, &self.asked)
            && (self.gone || resuming.is_moving())
        {
            resuming.place(&self.grant, asked.deadline, coordinator, ctx);
        }
    }

    /// The coordinator has answered under that number.
    fn placed(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        let (Some(resuming), Some(asked)) = (&mut self.resuming, &self.asked) else { return };
        match resuming.answered(ask, response, asked.deadline, ctx.now) {
            Place::Pending => {}
            Place::TimedOut => self.stop_with(GiveUp::TimedOut),
            Place::Never => {
                ctx.count("no other place for a session");
                self.resuming = None;
                self.stop_with(GiveUp::NodeLost);
            }
            Place::At(replaced) => {
                let (old, new) = (&self.grant, &replaced.grant);
                assert!(new.incarnation > old.incarnation, "a session was given back as it was");
                assert_eq!((new.index, lanes_of(new)), (old.index, lanes_of(old)), "another session");
                ctx.count(if self.gone { "session resumed elsewhere" } else { "session moved" });
                self.detach(ctx);
                let old = &self.grant;
                ctx.ledger.left(SessionId { pool: self.pool, index: old.index }, old.incarnation);
                self.node = crate::node::index(&new.node);
                self.lease = Duration::from_millis(replaced.lease_ms);
                self.grant = replaced.grant;
                self.numbering = Numbering::default();
                self.gone = false;
                if self.forges {
                    // The lanes that it has now are new ones, and begin with a reset.
                    self.stop_with(GiveUp::TimedOut);
                }
            }
        }
    }

    fn send(&mut self, number: u32, ctx: &mut Context<'_>) {
        let Some((stream, conn)) = self.stream else { return self.happened(RetryEvent::Lost, ctx) };
        ctx.ledger.written(self.id(), self.grant.incarnation, number);
        let Some(pending) = &mut self.pending else { return };
        let header = FrameHeader {
            kind: pending.kind,
            flags: 0,
            number,
            columns: pending.request.columns.bytes().len() as u32,
            sidecar: 0,
        };
        pending.under_way = UnderWay::Sent(number);
        self.numbering.written(number);
        ctx.send(conn, Message::Frame { stream, header, request: Arc::clone(&pending.request) });
    }

    fn attach(&mut self, conn: u64, ctx: &mut Context<'_>) {
        let Some(pending) = &mut self.pending else { return };
        let (ask, stream) = (ctx.number(), ctx.number());
        let deadline = ctx.now + ATTACH_DEADLINE;
        pending.under_way = UnderWay::Attaching { ask, stream, conn, deadline };
        let Grant { index, incarnation, secret, .. } = self.grant;
        let attach = Attach { pool: self.pool, index, incarnation, secret, log: self.resuming.is_some() };
        ctx.send(conn, Message::Ask(ask, Question::Attach { stream, attach }));
    }

    fn happened(&mut self, event: RetryEvent, ctx: &Context<'_>) {
        let heard = self.heard(ctx);
        if let Some(pending) = &mut self.pending {
            pending.under_way = UnderWay::Nothing;
            pending.next = pending.retry.on(ctx.now, event);
            pending.inquiry = Inquiry::new(ctx.now, heard);
        }
    }

    /// What was heard of the node on its stream's connection.
    fn heard(&self, ctx: &Context<'_>) -> Option<u64> {
        self.stream.and_then(|(_, conn)| ctx.heard(conn))
    }

    /// Asks the coordinator what has become of a node that is silent, if it is time.
    fn inquire(&mut self, coordinator: &mut Line, ctx: &mut Context<'_>) {
        let heard = self.heard(ctx);
        if let Some(pending) = &mut self.pending {
            pending.inquiry.go_on(self.pool, heard, coordinator, ctx);
        }
    }

    pub(crate) fn coordinator_lost(&mut self, ctx: &Context<'_>) {
        if let Some(pending) = &mut self.pending {
            pending.inquiry.coordinator_lost(ctx.now);
        }
        if let Some(resuming) = &mut self.resuming {
            resuming.coordinator_lost(ctx.now);
        }
    }

    /// The coordinator has answered under that number.
    pub(crate) fn told(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        self.placed(ask, response, ctx);
        let Some(pending) = &mut self.pending else { return };
        if pending.inquiry.answered(ask, response, &self.grant, ctx.now) {
            ctx.count("told that a session is gone");
            self.give_up_attaching(ctx);
            self.happened(RetryEvent::ToldGone, ctx);
        }
    }

    /// Ends the stream on which it is being attached: a call that is dropped takes its stream with it.
    fn give_up_attaching(&mut self, ctx: &mut Context<'_>) {
        if let Some(Pending { under_way: UnderWay::Attaching { stream, conn, .. }, .. }) = self.pending {
            ctx.send(conn, Message::StreamEnd { stream });
        }
    }

    pub(crate) fn connected(&mut self, conn: u64, ctx: &mut Context<'_>) {
        if self.pending.as_ref().is_some_and(|pending| pending.under_way == UnderWay::Dialling) {
            self.attach(conn, ctx);
        }
    }

    /// Its connection is no more, or was not made; perhaps for nobody listens at the node's port any more.
    pub(crate) fn lost(&mut self, port_closed: bool, ctx: &mut Context<'_>) {
        self.stream = None;
        if port_closed && self.pending.as_ref().is_some_and(|p| p.under_way != UnderWay::Nothing) {
            ctx.count("told that a node's port is closed");
            return self.happened(RetryEvent::PortClosed { resumes: self.resuming.is_some() }, ctx);
        }
        match self.pending.as_ref().map(|pending| pending.under_way) {
            Some(UnderWay::Sent(_)) => self.happened(RetryEvent::Lost, ctx),
            Some(UnderWay::Dialling | UnderWay::Attaching { .. }) => {
                self.happened(RetryEvent::Unreachable, ctx)
            }
            Some(UnderWay::Nothing) | None => {}
        }
    }

    pub(crate) fn stream_ended(&mut self, stream: u64, ctx: &mut Context<'_>) {
        if self.stream.is_some_and(|(own, _)| own == stream) {
            self.stream = None;
            if matches!(self.pending, Some(Pending { under_way: UnderWay::Sent(_), .. })) {
                self.happened(RetryEvent::Lost, ctx);
            }
        }
    }

    pub(crate) fn attach_answered(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        let Some(Pending { under_way: UnderWay::Attaching { ask: asked, stream, conn, .. }, .. }) =
            self.pending
        else {
            return;
        };
        if ask != asked {
            return;
        }
        let event = match response {
            Response::Attached(attached) => {
                assert_eq!(attached.lanes, self.grant.lanes);
                assert_eq!(attached.logs, self.resuming.is_some(), "whether answers say what a log needs");
                self.stream = Some((stream, conn));
                RetryEvent::Attached { last: attached.last }
            }
            Response::Refused(refusal) => {
                ctx.count("attach refused");
                let retry_after = refusal.retry_after_ms.map(Duration::from_millis);
                RetryEvent::AttachRefused { code: refusal.code, retry_after }
            }
            other => panic!("{other:?} to an owner that attaches"),
        };
        self.happened(event, ctx);
    }

    pub(crate) fn answered(&mut self, stream: u64, answer: &[u8], ctx: &mut Context<'_>) {
        if self.stream.is_none_or(|(own, _)| own != stream) {
            return;
        }
        let Some(Pending { under_way: UnderWay::Sent(number), .. }) = self.pending else { return };
        let header = answer.first_chunk().map(|bytes| FrameHeader::decode(*bytes).expect("a header of ours"));
        let header = header.expect("an answer has a header");
        if header.number != number && !ctx.has(Bug::TakesAnyAnswer) {
            return ctx.count("answer nobody waits for");
        }
        if header.kind == FrameKind::Refused {
            let refusal: Refusal = control::decode(&answer[HEADER_BYTES..]).expect("a refusal");
            ctx.count("step refused");
            self.numbering.answered();
            let retry_after = refusal.retry_after_ms.map(Duration::from_millis);
            return self.happened(RetryEvent::Refused { code: refusal.code, retry_after }, ctx);
        }
        ctx.ledger.taken(self.pool, lanes_of(&self.grant), self.grant.incarnation, number, header.number);
        self.note(answer, ctx);
        self.answered_at = ctx.world_now;
        self.compare(&answer[HEADER_BYTES..HEADER_BYTES + header.columns as usize]);
        self.numbering.answered();
        self.happened(RetryEvent::Answered, ctx);
    }

    /// Keeps what an answer of all lanes says.
    fn note(&mut self, answer: &[u8], ctx: &mut Context<'_>) {
        let (Some(resuming), Some(pending)) = (&mut self.resuming, &self.pending) else { return };
        if self.forges {
            return;
        }
        if pending.kind != FrameKind::Resume {
            for (lane, number) in resuming.note(ctx.now, (pending.kind, &pending.request), answer) {
                ctx.ledger.seen(self.pool, self.grant.first_lane + lane, number, ctx.world_now);
            }
        }
    }

    /// The answer is what these lanes give when each request is carried out once, in order.
    fn compare(&mut self, columns: &[u8]) {
        let (Some(reference), Some(pending)) = (&mut self.reference, &self.pending) else { return };
        if pending.kind == FrameKind::Resume {
            return;
        }
        let header = FrameHeader {
            kind: pending.kind,
            flags: 0,
            number: FrameHeader::next_number(reference.last()),
            columns: pending.request.columns.bytes().len() as u32,
            sidecar: 0,
        };
        let expected = reference.handle(header, &pending.request).expect("the node has done it");
        assert!(
            expected[HEADER_BYTES..HEADER_BYTES + columns.len()] == *columns,
            "session {} of pool {:?} answers other numbers than its lanes give",
            self.grant.index,
            self.pool
        );
    }

    /// Ends its stream.
    pub(crate) fn detach(&mut self, ctx: &mut Context<'_>) {
        if let Some((stream, conn)) = self.stream.take() {
            ctx.send(conn, Message::StreamEnd { stream });
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.asked.as_ref()?;
        let Some(pending) = &self.pending else {
            return self.resuming.as_ref()?.wake_at();
        };
        let own = match (pending.under_way, pending.next) {
            (UnderWay::Attaching { deadline, .. }, _) => Some(deadline),
            (UnderWay::Nothing, RetryAction::WaitUntil(until)) => Some(until),
            _ => None,
        };
        own.into_iter().chain([pending.inquiry.wake_at()]).min()
    }

    const fn id(&self) -> SessionId {
        SessionId { pool: self.pool, index: self.grant.index }
    }

    pub(crate) const fn answered_at(&self) -> Duration {
        self.answered_at
    }

    /// The caller's deadline has come: whatever is under way is not waited for.
    pub(crate) fn time_out(&mut self, ctx: &mut Context<'_>) {
        let Some(asked) = &self.asked else { return };
        ctx.count(if asked.kind == FrameKind::Reset { "reset timed out" } else { "step timed out" });
        // What a new node is being told goes on with the next request.
        let telling = self.resuming.as_ref().is_some_and(|resuming| resuming.is_telling());
        if !telling {
            self.give_up_attaching(ctx);
            self.pending = None;
        }
        if let Some(resuming) = &mut self.resuming {
            resuming.stop_placing();
        }
        self.stop_with(GiveUp::TimedOut);
    }

    pub(crate) const fn is_at_rest(&self) -> bool {
        self.asked.is_none()
    }

    /// Whether its lanes are lost for good.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone && self.resuming.is_none()
    }

    pub(crate) const fn take_trouble(&mut self) -> Option<GiveUp> {
        self.trouble.take()
    }
}

/// As the client library's.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
