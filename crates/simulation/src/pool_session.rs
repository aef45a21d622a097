//! One session of a pool, as its owner has it: the client library's own driver, polled by hand. The same lanes are stepped
//! here to compare.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Waking, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rollhouse_client::{
    COORDINATOR_AWAY, INQUIRY_DEADLINE, LinkLost, NoMemory, NoPlace, OnLoss, PLACE_WITHIN, Recipe,
    SessionEvent, Transport, Trouble,
};
use rollhouse_coordinator::Reply as Answer;
use rollhouse_core::{ColumnRef, RunId};
use rollhouse_env::Registry;
use rollhouse_wire::{Attach, AttachCallError, CallError, FrameKind, Grant, SessionId, SessionReplaced};

use crate::bug::Bug;
use crate::call::{Call, Line};
use crate::carrier::{Order, Reply, VirtualCarrier};
use crate::cast::{KEPT_FOR, LATE_ENV, index, lanes_of};
use crate::context::Context;
use crate::first_done::FirstDone;
use crate::message::{Message, Question, Response};
use crate::network::Site;
use crate::play::{Kept, LaneRequest, Play, Played};
use crate::reference::{MadeOf, Reference};

pub(crate) struct PoolSession {
    made_of: Arc<MadeOf>,
    carrier: VirtualCarrier,
    /// The driver with its lanes, while nothing is asked of it.
    kept: Option<Box<Kept>>,
    busy: Option<Busy>,
    /// Calls of the driver that have no answer yet.
    calls: BTreeMap<u64, Pending>,
    grant: Grant,
    /// The stream by which it is attached, and its connection.
    stream: Option<(u64, u64)>,
    /// When its node is next told that something is in its memory; `None` if it is not attached by that.
    bell_at: Option<Duration>,
    /// Why the last request has no answer, if it has none.
    trouble: Option<Trouble>,
    /// An engine with the session's lanes, stepped here to compare.
    reference: Reference,
    /// Its lanes under way, if some are sent at a time.
    some: Option<FirstDone>,
    steps: u64,
    /// The time at which its last answer was taken, on the world's clock.
    answered_at: Duration,
    /// Whether its lanes were lost once, and not resumed.
    was_lost: bool,
    /// Whether its lanes are lost, and not being brought back.
    is_out: bool,
}

/// A request that is carried out.
struct Busy {
    kind: FrameKind,
    /// The time until which it prepares.
    settles_until: Duration,
    future: Pin<Box<dyn Future<Output = (Box<Kept>, Play)> + Send>>,
}

#[derive(Debug)]
enum Pending {
    Place { call: Call, moving: bool },
    Status(Call),
    Attach { attach: Attach, memory: bool, node: usize, asked: Option<(u64, u64, u64)>, deadline: Duration },
}

impl PoolSession {
    pub(crate) fn new(recipe: &Arc<Recipe>, grant: &Grant, registry: &Registry, machine: usize) -> Self {
        let open = &recipe.open;
        let made_of = Arc::new(MadeOf::new(recipe, grant, registry));
        let late = *open.settings.env == *LATE_ENV;
        let carrier = VirtualCarrier::default();
        // Those of late lanes are sent some at a time, over the network.
        carrier.0.lock().machine = (!late).then_some(machine);
        Self {
            kept: Some(Box::new(Kept::new(&made_of, grant.clone()))),
            carrier,
            busy: None,
            calls: BTreeMap::new(),
            grant: grant.clone(),
            stream: None,
            bell_at: None,
            trouble: None,
            reference: Reference::new(open, grant, registry),
            some: late.then(|| FirstDone::new(grant.lanes)),
            made_of,
            steps: 0,
            answered_at: Duration::ZERO,
            was_lost: false,
            is_out: false,
        }
    }

    fn resumes(&self) -> bool {
        self.made_of.recipe.on_loss == OnLoss::Resume
    }

    /// Makes its owner hostile from now on. Returns false if its lanes cannot go on elsewhere.
    pub(crate) fn forge(&mut self) -> bool {
        if !self.resumes() || self.was_lost || self.some.is_some() || self.bell_at.is_some() {
            return false;
        }
        self.carrier.0.lock().forges = true;
        // What its lanes are to answer is not to be known any more.
        self.reference.forget();
        true
    }

    /// Prepares for a request, and then makes it.
    pub(crate) fn ask(&mut self, reset: bool, deadline: Duration, ctx: &mut Context<'_>) {
        self.steps += 1;
        let (first, steps) = (self.grant.first_lane, self.steps);
        let mut kept = self.kept.take().expect("one request is made at a time");
        let asked = if reset {
            // As a pool does: lanes that were sent and not received are forgotten. Whether the node has stepped them by then
            // is not known.
            kept.forget_lanes();
            if self.some.as_mut().is_some_and(FirstDone::lose_all) {
                self.reference.forget();
            }
            LaneRequest::Reset
        } else if let Some(some) = &mut self.some {
            LaneRequest::Some(some.draw(ctx))
        } else {
            let actions: Vec<i64> =
                (0..self.grant.lanes).map(|lane| action_of(first + lane, steps)).collect();
            let places = self.made_of.layout.actions(actions.len(), false).expect("a small batch");
            let mut columns = vec![0; places.bytes];
            columns[places.actions].copy_from_slice(ColumnRef::I64(&actions).bytes());
            LaneRequest::Step(Bytes::from(columns), actions)
        };
        if let LaneRequest::Some(drawn) = &asked {
            drawn.lanes.iter().for_each(|&lane| kept.push(lane, action_of(first + lane, steps)));
        }
        self.bell_at = self.bell_at.map(|_| ctx.now);
        let settles_until = ctx.now + SETTLE_WITHIN;
        let carrier = self.carrier.clone();
        self.busy = Some(Busy {
            kind: asked.kind(),
            settles_until,
            future: Box::pin(kept.play(asked, carrier, (settles_until, deadline))),
        });
    }

    /// Does everything that is due.
    pub(crate) fn carry_on(
        &mut self,
        nodes: &mut BTreeMap<usize, Line>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        self.check_hastened(ctx);
        while let Some(busy) = &mut self.busy {
            {
                let mut shared = self.carrier.0.lock();
                (shared.now, shared.wake) = (ctx.now, None);
                shared.received = self.stream.and_then(|(_, conn)| ctx.heard(conn));
                shared.takes_any = ctx.has(Bug::TakesAnyAnswer);
                shared.forges |= ctx.has(Bug::ForgetsPast);
            }
            let polled = busy.future.as_mut().poll(&mut Waking::from_waker(Waker::noop()));
            let orders = std::mem::take(&mut self.carrier.0.lock().orders);
            let rests = orders.is_empty();
            orders.into_iter().for_each(|order| self.carry_out(order, nodes, coordinator, ctx));
            if let Poll::Ready((kept, play)) = polled {
                self.finished(kept, play, ctx);
            }
            self.ring(ctx);
            let answered = self.go_on_calling(nodes, *coordinator, ctx);
            if rests && !answered {
                break;
            }
        }
    }

    /// Tells the node that something may be in its memory.
    fn ring(&mut self, ctx: &mut Context<'_>) {
        let (Some((stream, conn)), Some(at), true) = (self.stream, self.bell_at, self.busy.is_some()) else {
            return;
        };
        if at <= ctx.now {
            self.bell_at = Some(ctx.now + RING_EVERY);
            // What is in the memory may be done whenever the node looks.
            ctx.ledger.placements.written(self.id(), self.grant.incarnation, u32::MAX);
            ctx.send(conn, Message::Bell { stream });
        }
    }

    /// Does what the driver wants done.
    fn carry_out(
        &mut self,
        order: Order,
        nodes: &mut BTreeMap<usize, Line>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        let id = self.id();
        match order {
            Order::Place(call, request) => {
                ctx.count("another place asked for");
                ctx.ledger.owners.gives_up(id);
                let moving = request.moving;
                let question = Question::ReplaceSession(request);
                let asked = Call::new(question, ctx.now + PLACE_WITHIN, coordinator, ctx);
                self.calls.insert(call, Pending::Place { call: asked, moving });
            }
            Order::Status(call, pool) => {
                ctx.count("coordinator asked about a silent node");
                let asked =
                    Call::new(Question::PoolStatus(pool), ctx.now + INQUIRY_DEADLINE, coordinator, ctx);
                self.calls.insert(call, Pending::Status(asked));
            }
            Order::Attach { call, node, attach, memory } => {
                let (node, deadline) = (index(&node), ctx.now + ATTACH_DEADLINE);
                if nodes.get(&node).copied().unwrap_or(Line::None) == Line::None {
                    nodes.insert(node, Line::Dialling(ctx.dial(Site::Node(node))));
                }
                self.calls.insert(call, Pending::Attach { attach, memory, node, asked: None, deadline });
            }
            Order::Forget(call) => self.forget(call, ctx),
            Order::Frame { stream, conn, header, request } => {
                if header.kind == FrameKind::Send {
                    ctx.count("some lanes sent");
                }
                ctx.send(conn, Message::Frame { stream, header, request });
            }
            Order::StreamEnd { stream, conn } => {
                self.stream.take_if(|(own, _)| *own == stream);
                ctx.send(conn, Message::StreamEnd { stream });
            }
            Order::Written { incarnation, number } => {
                ctx.ledger.placements.written(id, incarnation, number);
            }
            Order::Taken { incarnation, asked, answered } => {
                let lanes = lanes_of(&self.grant);
                ctx.ledger.placements.taken(self.pool(), lanes, incarnation, asked, answered);
                self.answered_at = ctx.world_now;
                self.heard_of();
            }
            Order::Count(what) => {
                ctx.count(what);
                self.heard_of();
            }
        }
    }

    /// Forgets a call, and ends the stream on which the session was being attached.
    fn forget(&mut self, call: u64, ctx: &mut Context<'_>) {
        if let Some(Pending::Attach { asked: Some((_, stream, conn)), .. }) = self.calls.remove(&call) {
            ctx.send(conn, Message::StreamEnd { stream });
        }
    }

    /// Notes that the node has answered.
    const fn heard_of(&mut self) {
        if let Some(some) = &mut self.some {
            some.heard();
        }
    }

    // Its calls.

    /// Sends calls for which there is a connection now, and gives up those that take too long. Returns whether any was given
    /// up.
    fn go_on_calling(
        &mut self,
        nodes: &BTreeMap<usize, Line>,
        coordinator: Line,
        ctx: &mut Context<'_>,
    ) -> bool {
        let mut failed = Vec::new();
        for (&number, pending) in &mut self.calls {
            match pending {
                Pending::Place { call, .. } => {
                    if !call.go_on(coordinator, ctx) {
                        failed.push((number, no_place()));
                    }
                }
                Pending::Status(call) => {
                    if !call.go_on(coordinator, ctx) {
                        failed.push((number, Reply::Status(None)));
                    }
                }
                Pending::Attach { asked, deadline, memory, .. } if *deadline <= ctx.now => {
                    if let Some((_, stream, conn)) = *asked {
                        ctx.send(conn, Message::StreamEnd { stream });
                    }
                    failed.push((number, unreached(*memory, false)));
                }
                Pending::Attach { attach, memory, node, asked: asked @ None, .. } => {
                    if let Some(Line::Up(conn)) = nodes.get(node) {
                        let (ask, stream) = (ctx.number(), ctx.number());
                        *asked = Some((ask, stream, *conn));
                        let question = Question::Attach { stream, attach: *attach, memory: *memory };
                        ctx.send(*conn, Message::Ask(ask, question));
                    }
                }
                Pending::Attach { .. } => {}
            }
        }
        let any = !failed.is_empty();
        failed.into_iter().for_each(|(number, reply)| self.reply(number, reply));
        any
    }

    fn reply(&mut self, number: u64, reply: Reply) {
        if self.calls.remove(&number).is_some() {
            self.carrier.reply(number, reply);
        }
    }

    /// Takes in an answer of the coordinator or of a node.
    pub(crate) fn told(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        let is_it = |pending: &Pending| match pending {
            Pending::Place { call, .. } | Pending::Status(call) => call.is_answered_by(ask),
            Pending::Attach { asked, .. } => asked.is_some_and(|(asked, ..)| asked == ask),
        };
        let Some((&number, pending)) = self.calls.iter().find(|(_, pending)| is_it(pending)) else { return };
        let reply = match (pending, response) {
            (Pending::Place { moving, .. }, Response::Reply(reply)) => {
                let moving = *moving;
                match &**reply {
                    Answer::SessionReplaced(replaced) => self.placed(replaced, moving, ctx),
                    Answer::Refused(refusal) => {
                        let why = NoPlace::of_call(CallError::Refused(refusal.clone()));
                        if matches!(why, NoPlace::Never(_)) {
                            ctx.count("no other place for a session");
                        }
                        Reply::Placed(Err(why))
                    }
                    other => panic!("{other:?} to who asks for a place"),
                }
            }
            (Pending::Status(_), Response::Pool(status)) => Reply::Status(Some((**status).clone())),
            (Pending::Status(_), _) => Reply::Status(None),
            (Pending::Attach { asked: Some((_, stream, conn)), .. }, Response::Attached(attached)) => {
                assert_eq!(attached.lanes, self.grant.lanes);
                assert!(attached.logs, "answers do not say what a log needs");
                assert!(attached.as_done, "lanes are not answered as they are done");
                (self.stream, self.bell_at) = (Some((*stream, *conn)), None);
                Reply::Attached(Ok((*stream, *conn, *attached)))
            }
            (Pending::Attach { asked: Some((_, stream, conn)), .. }, Response::Memory(memory)) => {
                ctx.count("attached by memory");
                (self.stream, self.bell_at) = (Some((*stream, *conn)), Some(ctx.now));
                Reply::Memory(Ok((*stream, *conn, memory.clone())))
            }
            (Pending::Attach { memory: true, .. }, Response::Refused(refusal)) => {
                ctx.count("attach refused");
                Reply::Memory(Err(NoMemory::Call(AttachCallError::Refused(refusal.clone()))))
            }
            (Pending::Attach { .. }, Response::Refused(refusal)) => {
                ctx.count("attach refused");
                Reply::Attached(Err(SessionEvent::AttachRefused(refusal.clone())))
            }
            (pending, other) => panic!("{other:?} to {pending:?}"),
        };
        self.reply(number, reply);
    }

    fn placed(&mut self, replaced: &SessionReplaced, moving: bool, ctx: &mut Context<'_>) -> Reply {
        let (old, new) = (self.grant.incarnation, &replaced.grant);
        assert!(new.incarnation > old, "a session was given back as it was");
        assert_eq!((new.index, lanes_of(new)), (self.grant.index, lanes_of(&self.grant)), "another session");
        let settles = self.busy.as_ref().is_some_and(|busy| ctx.now < busy.settles_until);
        ctx.count(match (moving, settles) {
            (true, true) => "session moved",
            (true, false) => "session moved with the request that its node cannot record",
            (false, true) if self.is_out => "session begun anew",
            (false, _) => "session resumed elsewhere",
        });
        ctx.ledger.left(self.id(), old);
        ctx.ledger.owners.uses(self.id(), new.incarnation);
        if !self.resumes() {
            // They left a node that cannot record, and begin anew.
            self.was_lost = true;
            self.reference.forget();
        }
        self.grant = new.clone();
        Reply::Placed(Ok(replaced.clone()))
    }

    pub(crate) fn answered(&self, stream: u64, answer: &Bytes) {
        self.carrier.answered(stream, answer);
    }

    /// Notes that a connection to a node is lost or could not be made, perhaps because nobody listens at the node's port any
    /// more.
    pub(crate) fn lost(&mut self, node: usize, conn: u64, port_closed: bool, ctx: &mut Context<'_>) {
        if let Some((stream, _)) = self.stream.take_if(|(_, own)| *own == conn) {
            self.carrier.lost(stream, if port_closed { LinkLost::PortClosed } else { LinkLost::Ended });
        }
        let of_it = |(&number, pending): (&u64, &Pending)| match pending {
            Pending::Attach { node: other, asked, .. } => {
                (*other == node && asked.is_none_or(|(.., own)| own == conn)).then_some(number)
            }
            _ => None,
        };
        for number in self.calls.iter().filter_map(of_it).collect::<Vec<_>>() {
            if port_closed {
                ctx.count("told that a node's port is closed");
            }
            let memory = matches!(self.calls.get(&number), Some(Pending::Attach { memory: true, .. }));
            self.reply(number, unreached(memory, port_closed));
        }
    }

    pub(crate) fn stream_ended(&mut self, stream: u64) {
        self.stream.take_if(|(own, _)| *own == stream);
        self.carrier.lost(stream, LinkLost::Ended);
    }

    pub(crate) fn coordinator_lost(&mut self) {
        let reply = |(&number, pending): (&u64, &Pending)| match pending {
            Pending::Place { .. } => Some((number, no_place())),
            Pending::Status(_) => Some((number, Reply::Status(None))),
            Pending::Attach { .. } => None,
        };
        let failed: Vec<_> = self.calls.iter().filter_map(reply).collect();
        failed.into_iter().for_each(|(number, reply)| self.reply(number, reply));
    }

    // What became of its request.

    fn finished(&mut self, mut kept: Box<Kept>, play: Play, ctx: &mut Context<'_>) {
        let kind = self.busy.take().map_or(FrameKind::Step, |busy| busy.kind);
        let Play { played, before } = play;
        match played {
            Played::Out => {}
            Played::Replaced(grant) => {
                *kept = Kept::new(&self.made_of, grant);
                self.stop_with(Trouble::TimedOut);
            }
            Played::Late => {
                ctx.count(if kind == FrameKind::Reset { "reset timed out" } else { "step timed out" });
                if self.some.is_some() && kind == FrameKind::Send {
                    // They stay under way.
                    self.take_some(&mut kept, &before, ctx);
                    self.trouble = Some(Trouble::TimedOut);
                } else {
                    self.stop_with(Trouble::TimedOut);
                }
            }
            Played::Answered(Err(trouble)) => self.without_answer(&mut kept, trouble, ctx),
            Played::Answered(Ok((body, losses))) => {
                if kept.session.transport() == Some(Transport::Shm) {
                    self.answered_at = ctx.world_now;
                    ctx.count("stepped by memory");
                }
                assert!(
                    losses.is_empty() || self.was_lost || !self.resumes(),
                    "the log has not what lanes {losses:?} did"
                );
                let (id, frame) = (self.id(), kept.batch.frame());
                if let Some(some) = &mut self.some {
                    some.has_begun = true;
                }
                let first = self.grant.first_lane as usize;
                let own = first..first + self.grant.lanes as usize;
                self.reference.compare_batch(id, &body, &frame, (&self.made_of.places, own.clone()));
                let over = |&lane: &usize| frame.terminated()[lane] | frame.truncated()[lane] != 0;
                let ended: Vec<u32> = own.filter(over).map(|lane| (lane - first) as u32).collect();
                self.note_episodes(&ended, &before, ctx);
            }
            Played::Sent => {
                self.take_some(&mut kept, &before, ctx);
                if kept.is_newly_lost() {
                    self.without_answer(&mut kept, Trouble::Gone, ctx);
                } else if let Some(trouble) = kept.take_refused() {
                    self.without_answer(&mut kept, trouble, ctx);
                }
            }
        }
        let session = kept.session.session();
        assert_eq!(session.grant().incarnation, self.grant.incarnation, "the place was not taken");
        self.is_out = session.is_out();
        self.kept = Some(kept);
    }

    /// Notes that a request has no answer.
    fn without_answer(&mut self, kept: &mut Kept, trouble: Trouble, ctx: &mut Context<'_>) {
        if let Some(some) = &mut self.some
            && !matches!(trouble, Trouble::Refused(_))
        {
            some.lose_all();
            kept.forget_lanes();
        }
        if trouble == Trouble::Gone {
            self.was_lost = true;
            ctx.ledger.owners.gives_up(self.id());
            // What had just ended there is nobody's to say again.
            ctx.ledger.forgets(self.pool(), self.answered_at.saturating_sub(KEPT_FOR));
            kept.session.report_gone();
        }
        self.stop_with(trouble);
    }

    /// Notes that there is no answer, for the caller.
    fn stop_with(&mut self, why: Trouble) {
        self.trouble = Some(why);
        // Which requests were carried out is not known any more.
        self.reference.forget();
    }

    /// Takes the rows of lanes that were sent. Those of the node are compared; those that the driver has made for lanes that
    /// are lost show what was shown last.
    fn take_some(&mut self, kept: &mut Kept, before: &[Option<u64>], ctx: &mut Context<'_>) {
        let Some(some) = &mut self.some else { return };
        let (rows, refused) = kept.take_rows();
        some.give_up(&refused);
        if rows.lanes.is_empty() {
            return;
        }
        let first = self.grant.first_lane;
        let lanes: Vec<u32> = rows.lanes.iter().map(|lane| lane - first).collect();
        some.take(&lanes);
        // Steps of the node have a reward of 1.
        let is_made = |&row: &usize| rows.truncated[row] == 1 && rows.rewards[row] == 0.0;
        let (made, given): (Vec<usize>, Vec<usize>) = (0..lanes.len()).partition(is_made);
        if !made.is_empty() {
            ctx.count("lanes shown as lost");
            assert!(
                self.was_lost || kept.session.session().is_lost(),
                "lanes {made:?} of {lanes:?} are shown as lost and are not"
            );
            kept.check_made(&rows, &made);
        }
        if given.is_empty() {
            return;
        }
        ctx.count("lanes taken as they were done");
        let id = SessionId { pool: self.made_of.recipe.open.pool, index: self.grant.index };
        self.reference.compare_rows(id, (&lanes, &kept.actions), (&rows, &given), &self.made_of.layout);
        let ended = given.iter().filter(|&&row| rows.terminated[row] | rows.truncated[row] != 0);
        let ended: Vec<u32> = ended.map(|&row| lanes[row]).collect();
        self.note_episodes(&ended, before, ctx);
    }

    /// Notes which episodes its owner saw end.
    fn note_episodes(&self, ended: &[u32], before: &[Option<u64>], ctx: &mut Context<'_>) {
        if !self.resumes() || self.carrier.0.lock().forges {
            return;
        }
        for &lane in ended {
            let Some(number) = before[lane as usize] else { continue };
            ctx.ledger.seen(self.pool(), self.grant.first_lane + lane, number, ctx.world_now);
        }
    }

    /// Checks that lanes that are done are answered.
    fn check_hastened(&mut self, ctx: &Context<'_>) {
        let stream =
            self.stream.filter(|_| self.busy.as_ref().is_some_and(|busy| busy.kind == FrameKind::Send));
        if let Some(some) = &mut self.some {
            some.check_hastened(stream, ctx);
        }
    }

    /// Lets its node go for good.
    pub(crate) fn detach(&mut self, ctx: &mut Context<'_>) {
        (self.busy, self.kept) = (None, None);
        let orders = std::mem::take(&mut self.carrier.0.lock().orders);
        for order in orders {
            match order {
                Order::StreamEnd { stream, conn } => ctx.send(conn, Message::StreamEnd { stream }),
                Order::Forget(call) => self.forget(call, ctx),
                _ => {}
            }
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.busy.as_ref()?;
        let calls = self.calls.values().map(|pending| match pending {
            Pending::Place { call, .. } | Pending::Status(call) => call.deadline,
            Pending::Attach { deadline, .. } => *deadline,
        });
        calls.chain(self.carrier.0.lock().wake).min()
    }

    fn pool(&self) -> RunId {
        self.made_of.recipe.open.pool
    }

    fn id(&self) -> SessionId {
        SessionId { pool: self.pool(), index: self.grant.index }
    }

    pub(crate) const fn answered_at(&self) -> Duration {
        self.answered_at
    }

    pub(crate) const fn is_at_rest(&self) -> bool {
        self.busy.is_none()
    }

    /// Returns whether its lanes are lost, and not being brought back.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_out
    }

    pub(crate) const fn take_trouble(&mut self) -> Option<Trouble> {
        self.trouble.take()
    }

    /// Returns whether its lanes are stepped some at a time, whatever became of the last request.
    pub(crate) fn goes_on(&self) -> bool {
        self.some.as_ref().is_some_and(|some| some.has_begun)
    }
}

impl std::fmt::Debug for PoolSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolSession")
            .field("grant", &self.grant)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// Returns the action of a lane in a step.
fn action_of(lane: u32, step: u64) -> i64 {
    (rollhouse_core::random_bits(7, lane, step) & 1) as i64
}

/// Returns the reply to who did not reach a node, or nobody at its port.
fn unreached(memory: bool, port_closed: bool) -> Reply {
    let refused = || AttachCallError::Connect(std::io::ErrorKind::ConnectionRefused.into());
    match (memory, port_closed) {
        (true, true) => Reply::Memory(Err(NoMemory::Call(refused()))),
        (true, false) => Reply::Memory(Err(NoMemory::TimedOut)),
        (false, true) => Reply::Attached(Err(SessionEvent::PortClosed(None))),
        (false, false) => Reply::Attached(Err(SessionEvent::Unreachable(None))),
    }
}

const fn no_place() -> Reply {
    Reply::Placed(Err(NoPlace::Busy(COORDINATOR_AWAY)))
}

/// Time for a node to answer a request to attach, as in the client library.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which a node is told of what is in its memory, should it have been busy.
const RING_EVERY: Duration = Duration::from_millis(50);
