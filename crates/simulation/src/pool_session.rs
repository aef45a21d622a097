//! One session of a pool, as its owner has it. It carries out what the client library's own [`Session`] decides, and
//! steps the same lanes here to compare.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_client::{
    Answered, COORDINATOR_AWAY, LaneFlags, NoPlace, OnLoss, PLACE_WITHIN, Recipe, RequestBody, Session,
    SessionAction, SessionEvent, Trouble,
};
use rollhouse_coordinator::Reply;
use rollhouse_core::{ColumnRef, RunId};
use rollhouse_env::Registry;
use rollhouse_node::FrameRequest;
use rollhouse_wire::{
    Attach, CallError, ColumnBuffer, FrameHeader, FrameKind, Grant, HEADER_BYTES, Notes, Refusal, SessionId,
    SessionReplaced, control,
};

use crate::asking::Asking;
use crate::bug::Bug;
use crate::call::{Call, Line};
use crate::cast::{KEPT_FOR, LATE_ENV, index, lanes_of};
use crate::context::Context;
use crate::first_done::FirstDone;
use crate::message::{Message, Question, Response, header_of};
use crate::network::Site;
use crate::reference::{MadeOf, Reference};

mod some;

#[derive(Debug)]
pub(crate) struct PoolSession {
    made_of: MadeOf,
    session: Session,
    /// The action that the session wants done next.
    next: SessionAction,
    caller: Caller,
    under_way: UnderWay,
    inquiry: Option<Asking>,
    stream: Option<Stream>,
    /// Why the last request has no answer, if it has none.
    trouble: Option<Trouble>,
    /// An engine with the session's lanes, stepped here to compare.
    reference: Reference,
    /// Its lanes under way, if some are sent at a time.
    some: Option<FirstDone>,
    steps: u64,
    /// The time at which its last answer was taken, on the world's clock.
    answered_at: Duration,
    /// Number of the open or last episode of each lane, as the owner was told.
    episodes: Vec<Option<u64>>,
    /// Whether its lanes were lost once, and not resumed.
    was_lost: bool,
    /// Whether its owner is hostile: lanes that go on elsewhere begin anew there, under the same numbers.
    forges: bool,
}

/// The result that the caller waits for.
#[derive(Debug)]
enum Caller {
    Rests,
    /// The session prepares for a request, at most until the deadline.
    Settles {
        until: Duration,
        /// `None` for some lanes, which are chosen when they can be sent.
        body: Option<RequestBody>,
        deadline: Duration,
    },
    Waits {
        kind: FrameKind,
        deadline: Duration,
    },
}

/// The work that is under way for the session, apart from a request that waits for its answer.
#[derive(Debug)]
enum UnderWay {
    Nothing,
    Dialling,
    /// The request to attach was sent under that number; it is given up at the deadline.
    Attaching {
        ask: u64,
        stream: u64,
        conn: u64,
        deadline: Duration,
    },
    /// The coordinator is asked for another place.
    Placing(Call),
}

/// The stream by which it is attached.
#[derive(Debug)]
struct Stream {
    id: u64,
    conn: u64,
    /// The last request that was written on it.
    posted: Option<(u32, FrameKind, Arc<FrameRequest>)>,
    answers: VecDeque<Bytes>,
}

impl PoolSession {
    pub(crate) fn new(recipe: &Arc<Recipe>, grant: &Grant, registry: &Registry, seed: u64) -> Self {
        let open = &recipe.open;
        let made_of = MadeOf::new(recipe, grant, registry, seed);
        let late = *open.settings.env == *LATE_ENV;
        let some = late.then(|| FirstDone::new(grant.lanes, &made_of.layout));
        Self {
            session: made_of.session(grant.clone()),
            made_of,
            next: SessionAction::Done(Ok(())),
            caller: Caller::Rests,
            under_way: UnderWay::Nothing,
            inquiry: None,
            stream: None,
            trouble: None,
            reference: Reference::new(open, grant, registry),
            some,
            steps: 0,
            answered_at: Duration::ZERO,
            episodes: vec![None; grant.lanes as usize],
            was_lost: false,
            forges: false,
        }
    }

    fn resumes(&self) -> bool {
        self.made_of.recipe.on_loss == OnLoss::Resume
    }

    /// Makes its owner hostile from now on. Returns false if its lanes cannot go on elsewhere.
    pub(crate) fn forge(&mut self) -> bool {
        if !self.resumes() || self.was_lost || self.some.is_some() {
            return false;
        }
        self.forges = true;
        // What its lanes are to answer is not to be known any more.
        self.reference.forget();
        true
    }

    /// Prepares for a request, and then makes it.
    pub(crate) fn ask(&mut self, reset: bool, deadline: Duration, ctx: &Context<'_>) {
        let body = match reset {
            true => Some(body_of(FrameKind::Reset, Bytes::new())),
            false if self.some.is_some() => None,
            false => Some(self.step()),
        };
        self.caller = Caller::Settles { until: ctx.now + SETTLE_WITHIN, body, deadline };
        self.happened(SessionEvent::Settle { reset }, ctx);
    }

    /// Makes the request, if the session takes any: a session whose lanes are lost is asked nothing.
    fn request(&mut self, ctx: &mut Context<'_>) {
        let Caller::Settles { body, deadline, .. } = std::mem::replace(&mut self.caller, Caller::Rests)
        else {
            return;
        };
        match body {
            _ if self.session.is_out() => {}
            Some(body) => {
                self.caller = Caller::Waits { kind: body.kind, deadline };
                self.happened(SessionEvent::Requested { body, deadline }, ctx);
            }
            None => {
                self.caller = Caller::Waits { kind: FrameKind::Send, deadline };
                self.send_some(ctx);
            }
        }
    }

    /// Returns a step with actions that depend on lane and step.
    fn step(&mut self) -> RequestBody {
        self.steps += 1;
        let Grant { lanes, first_lane, .. } = *self.session.grant();
        let actions: Vec<i64> = (0..lanes).map(|lane| action_of(first_lane + lane, self.steps)).collect();
        let places = self.made_of.layout.actions(lanes as usize, false).expect("a small batch");
        let mut columns = vec![0; places.bytes];
        columns[places.actions].copy_from_slice(ColumnRef::I64(&actions).bytes());
        body_of(FrameKind::Step, Bytes::from(columns))
    }

    /// Does everything that is due.
    pub(crate) fn carry_on(
        &mut self,
        nodes: &mut BTreeMap<usize, Line>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        self.inquire(coordinator, ctx);
        self.check_hastened(ctx);
        while self.go_on(nodes, coordinator, ctx) {}
    }

    /// Does the session's next action. Returns false if something has to be waited for.
    fn go_on(
        &mut self,
        nodes: &mut BTreeMap<usize, Line>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) -> bool {
        if let Caller::Settles { until, .. } = self.caller
            && until <= ctx.now
        {
            self.drop_what_is_under_way(ctx);
            self.request(ctx);
            return true;
        }
        if matches!(self.caller, Caller::Rests) {
            return false;
        }
        match (&mut self.under_way, &self.next) {
            (UnderWay::Attaching { deadline, .. }, _) if *deadline <= ctx.now => {
                self.drop_what_is_under_way(ctx);
                self.happened(SessionEvent::Unreachable(None), ctx);
            }
            (UnderWay::Placing(call), _) => {
                if call.go_on(*coordinator, ctx) {
                    return false;
                }
                self.happened(no_place_yet(), ctx);
            }
            (UnderWay::Dialling | UnderWay::Attaching { .. }, _) => return false,
            (UnderWay::Nothing, SessionAction::Done(_)) => self.done(ctx),
            (UnderWay::Nothing, SessionAction::Send { number }) => return self.send(*number, ctx),
            (UnderWay::Nothing, SessionAction::Attach) => return self.dial(nodes, ctx),
            (UnderWay::Nothing, SessionAction::WaitUntil(until)) if *until <= ctx.now => {
                self.happened(SessionEvent::Woken, ctx);
            }
            (UnderWay::Nothing, SessionAction::WaitUntil(_)) => return false,
            (UnderWay::Nothing, SessionAction::Place) => self.place(coordinator, ctx),
        }
        true
    }

    /// Gives the session an event, and notes the action that it wants next.
    fn happened(&mut self, event: SessionEvent, ctx: &Context<'_>) {
        self.next = self.session.on(ctx.now, event);
        self.under_way = UnderWay::Nothing;
        self.look_after(ctx.now);
    }

    /// Watches over the node from now on, if a request is under way.
    fn look_after(&mut self, now: Duration) {
        let asking = || Asking::new(self.session.inquiry(), now);
        self.inquiry = self.session.is_busy().then(asking);
    }

    /// Ends the caller's wait: the request is done.
    fn done(&mut self, ctx: &mut Context<'_>) {
        let SessionAction::Done(result) = &self.next else { return };
        let result = result.clone();
        if matches!(self.caller, Caller::Settles { .. }) {
            if result.is_err() {
                self.detach(ctx);
            }
            return self.request(ctx);
        }
        self.caller = Caller::Rests;
        let Err(trouble) = result else {
            if let Some(some) = &mut self.some {
                some.has_begun = true;
            }
            return;
        };
        self.give_up_some(&trouble);
        if trouble == Trouble::Gone {
            self.detach(ctx);
            self.was_lost = true;
            ctx.ledger.owners.gives_up(self.id());
            // What had just ended there is nobody's to say again.
            ctx.ledger.forgets(self.pool(), self.answered_at.saturating_sub(KEPT_FOR));
            self.session.report_gone();
        }
        self.stop_with(trouble);
    }

    /// Tells the caller that there is no answer.
    fn stop_with(&mut self, why: Trouble) {
        self.trouble = Some(why);
        self.caller = Caller::Rests;
        // Which requests were carried out is not known any more.
        self.reference.forget();
    }

    // Its place.

    fn place(&mut self, coordinator: &mut Line, ctx: &mut Context<'_>) {
        let until = match self.caller {
            Caller::Settles { until, .. } => until,
            Caller::Waits { deadline, .. } => deadline,
            Caller::Rests => return,
        };
        ctx.count("another place asked for");
        ctx.ledger.owners.gives_up(self.id());
        let question = Question::ReplaceSession(Box::new(self.session.place_request()));
        let deadline = until.min(ctx.now + PLACE_WITHIN);
        self.under_way = UnderWay::Placing(Call::new(question, deadline, coordinator, ctx));
    }

    /// Takes in the coordinator's answer with that number.
    fn place_answered(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        let UnderWay::Placing(call) = &self.under_way else { return };
        if !call.is_answered_by(ask) {
            return;
        }
        let Response::Reply(reply) = response else { panic!("{response:?} to who asks for a place") };
        match &**reply {
            Reply::SessionReplaced(replaced) => self.placed(replaced, ctx),
            Reply::Refused(refusal) => {
                let why = NoPlace::of_call(CallError::Refused(refusal.clone()));
                if matches!(why, NoPlace::Never(_)) {
                    ctx.count("no other place for a session");
                }
                self.happened(SessionEvent::NoPlace(why), ctx);
            }
            other => panic!("{other:?} to who asks for a place"),
        }
    }

    fn placed(&mut self, replaced: &SessionReplaced, ctx: &mut Context<'_>) {
        let (old, new) = (self.session.grant().clone(), &replaced.grant);
        assert!(new.incarnation > old.incarnation, "a session was given back as it was");
        assert_eq!((new.index, lanes_of(new)), (old.index, lanes_of(&old)), "another session");
        ctx.count(match (self.session.gone().is_some(), self.session.is_out()) {
            (false, _) => "session moved",
            (true, false) => "session resumed elsewhere",
            (true, true) => "session begun anew",
        });
        self.detach(ctx);
        ctx.ledger.left(self.id(), old.incarnation);
        ctx.ledger.owners.uses(self.id(), new.incarnation);
        if self.forges || ctx.has(Bug::ForgetsPast) {
            // The lanes that it has now are new ones to their node.
            self.session = self.made_of.session(new.clone());
            self.next = SessionAction::Done(Err(Trouble::TimedOut));
            (self.under_way, self.inquiry) = (UnderWay::Nothing, None);
            return;
        }
        let stays = self.session.gone().is_none();
        if !self.resumes() {
            // They left a node that cannot record, and begin anew.
            self.was_lost = true;
            self.reference.forget();
        }
        self.happened(SessionEvent::Placed(Box::new(replaced.clone())), ctx);
        assert!(self.session.grant().incarnation == new.incarnation, "the place was not taken");
        if stays && self.session.is_busy() {
            ctx.count("session moved with the request that its node cannot record");
        }
    }

    // Its link.

    /// Attaches, if there is a connection to the node.
    fn dial(&mut self, nodes: &mut BTreeMap<usize, Line>, ctx: &mut Context<'_>) -> bool {
        match nodes.get(&self.node()).copied().unwrap_or(Line::None) {
            Line::Up(conn) => self.attach(conn, ctx),
            Line::Dialling(_) => self.under_way = UnderWay::Dialling,
            Line::None => {
                self.under_way = UnderWay::Dialling;
                nodes.insert(self.node(), Line::Dialling(ctx.dial(Site::Node(self.node()))));
            }
        }
        false
    }

    fn attach(&mut self, conn: u64, ctx: &mut Context<'_>) {
        let (ask, stream) = (ctx.number(), ctx.number());
        let deadline = ctx.now + ATTACH_DEADLINE;
        self.under_way = UnderWay::Attaching { ask, stream, conn, deadline };
        let Grant { index, incarnation, secret, .. } = *self.session.grant();
        let attach = Attach { pool: self.pool(), index, incarnation, secret, log: true };
        ctx.send(conn, Message::Ask(ask, Question::Attach { stream, attach }));
    }

    pub(crate) fn connected(&mut self, conn: u64, ctx: &mut Context<'_>) {
        if matches!(self.under_way, UnderWay::Dialling) {
            self.attach(conn, ctx);
        }
    }

    pub(crate) fn attach_answered(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        let UnderWay::Attaching { ask: asked, stream, conn, .. } = self.under_way else { return };
        if ask != asked {
            return;
        }
        let event = match response {
            Response::Attached(attached) => {
                assert_eq!(attached.lanes, self.session.grant().lanes);
                assert!(attached.logs, "answers do not say what a log needs");
                assert!(attached.as_done, "lanes are not answered as they are done");
                self.stream = Some(Stream { id: stream, conn, posted: None, answers: VecDeque::new() });
                SessionEvent::Attached { last: attached.last, logs: attached.logs }
            }
            Response::Refused(refusal) => {
                ctx.count("attach refused");
                SessionEvent::AttachRefused(refusal.clone())
            }
            other => panic!("{other:?} to an owner that attaches"),
        };
        self.happened(event, ctx);
    }

    /// Writes the request, once on each stream, and takes its answer. Returns false if the answer is not here yet.
    fn send(&mut self, number: u32, ctx: &mut Context<'_>) -> bool {
        let id = self.id();
        let Some(stream) = &mut self.stream else {
            self.happened(SessionEvent::Lost, ctx);
            return true;
        };
        if stream.posted.as_ref().is_none_or(|(posted, ..)| *posted != number) {
            ctx.ledger.placements.written(id, self.session.grant().incarnation, number);
            let body = self.session.body().expect("what is sent has a body");
            let kind = body.kind;
            let mut columns = ColumnBuffer::default();
            columns.resize(body.columns.len());
            columns.bytes_mut().copy_from_slice(&body.columns);
            let request = Arc::new(FrameRequest { columns, sidecar: body.sidecar.to_vec() });
            let (columns, sidecar) = (body.columns.len() as u32, body.sidecar.len() as u32);
            let header = FrameHeader { kind, flags: 0, number, columns, sidecar };
            stream.posted = Some((number, kind, Arc::clone(&request)));
            self.session.written(number);
            if kind == FrameKind::Send {
                ctx.count("some lanes sent");
            }
            ctx.send(stream.conn, Message::Frame { stream: stream.id, header, request });
        }
        while let Some(answer) = stream.answers.pop_front() {
            let header = header_of(&answer);
            if header.number != number && !ctx.has(Bug::TakesAnyAnswer) {
                ctx.count("answer nobody waits for");
                continue;
            }
            self.take(number, header, &answer, ctx);
            return true;
        }
        if matches!(self.caller, Caller::Waits { kind: FrameKind::Send, .. })
            && self.some.as_ref().is_some_and(FirstDone::is_content)
        {
            // They are on their way, and nobody waits for any.
            self.caller = Caller::Rests;
        }
        false
    }

    pub(crate) fn answered(&mut self, stream: u64, answer: &Bytes) {
        if let Some(own) = self.stream.as_mut().filter(|own| own.id == stream) {
            own.answers.push_back(answer.clone());
        }
    }

    /// Takes the answer to the request with that number.
    fn take(&mut self, number: u32, header: FrameHeader, answer: &Bytes, ctx: &mut Context<'_>) {
        if header.kind == FrameKind::Refused {
            let refusal: Refusal = control::decode(&answer[HEADER_BYTES..]).expect("a refusal");
            ctx.count("step refused");
            if let Some(some) = &mut self.some {
                some.heard();
            }
            return self.happened(SessionEvent::Refused(refusal), ctx);
        }
        let Grant { incarnation, .. } = *self.session.grant();
        ctx.ledger.placements.taken(
            self.pool(),
            lanes_of(self.session.grant()),
            incarnation,
            number,
            header.number,
        );
        let (id, resuming) = (self.id(), self.session.is_resuming());
        self.happened(SessionEvent::Answered, ctx);
        self.answered_at = ctx.world_now;
        if !resuming {
            let (columns, sidecar) = answer[HEADER_BYTES..].split_at(header.columns as usize);
            if header.kind == FrameKind::Rows {
                return self.take_some(columns, sidecar, ctx);
            }
            self.note(columns, sidecar, ctx);
            let posted = self.stream.as_ref().and_then(|stream| stream.posted.as_ref());
            if let Some((_, kind, request)) = posted {
                self.reference.compare(id, *kind, request, columns);
            }
        }
    }

    /// Keeps an answer of all lanes.
    fn note(&mut self, columns: &[u8], sidecar: &[u8], ctx: &mut Context<'_>) {
        let mut notes = notes_of(sidecar);
        // Who means harm moves on without need.
        notes.leaving |= self.forges;
        let places = &self.made_of.places;
        let flags = |place: &std::ops::Range<usize>| &columns[place.clone()];
        let flags = LaneFlags {
            terminated: flags(&places.terminated),
            truncated: flags(&places.truncated),
            reset: flags(&places.reset),
        };
        let mut losses = std::mem::take(&mut notes.lost);
        self.session.note_batch(&Answered { now: ctx.now, flags, taken: None, notes: &notes }, &mut losses);
        if !self.resumes() || self.forges {
            return;
        }
        assert!(losses.is_empty() || self.was_lost, "the log has not what lanes {losses:?} did");
        let ended =
            (0..self.episodes.len()).filter(|&lane| flags.terminated[lane] | flags.truncated[lane] != 0);
        self.note_episodes(ended, &notes, ctx);
    }

    /// Notes which lanes' episodes ended, and which then began.
    fn note_episodes(&mut self, ended: impl Iterator<Item = usize>, notes: &Notes, ctx: &mut Context<'_>) {
        let Grant { first_lane, .. } = *self.session.grant();
        for lane in ended {
            let number = self.episodes[lane].expect("an episode ends that began");
            ctx.ledger.seen(self.pool(), first_lane + lane as u32, number, ctx.world_now);
        }
        for began in notes.began().expect("whole records") {
            self.episodes[began.lane as usize] = Some(began.number);
        }
    }

    /// Notes that its connection is lost or could not be made, perhaps because nobody listens at the node's port any
    /// more.
    pub(crate) fn lost(&mut self, port_closed: bool, ctx: &mut Context<'_>) {
        self.stream = None;
        let dialled = matches!(self.under_way, UnderWay::Dialling | UnderWay::Attaching { .. });
        let sent = matches!(self.next, SessionAction::Send { .. });
        if !dialled && !sent || matches!(self.caller, Caller::Rests) {
            return;
        }
        if port_closed {
            ctx.count("told that a node's port is closed");
            self.happened(SessionEvent::PortClosed(None), ctx);
        } else if dialled {
            self.happened(SessionEvent::Unreachable(None), ctx);
        }
        // Who waits for an answer finds that there is no stream.
    }

    pub(crate) fn stream_ended(&mut self, stream: u64) {
        self.stream.take_if(|own| own.id == stream);
    }

    /// Ends its stream.
    pub(crate) fn detach(&mut self, ctx: &mut Context<'_>) {
        if let Some(Stream { id, conn, .. }) = self.stream.take() {
            ctx.send(conn, Message::StreamEnd { stream: id });
        }
    }

    /// Drops a call, and with it the stream on which it was being attached.
    fn drop_what_is_under_way(&mut self, ctx: &mut Context<'_>) {
        if let UnderWay::Attaching { stream, conn, .. } = self.under_way {
            ctx.send(conn, Message::StreamEnd { stream });
        }
        self.under_way = UnderWay::Nothing;
        self.inquiry = None;
    }

    // The coordinator.

    /// Asks the coordinator about a node that is silent, if it is time.
    fn inquire(&mut self, coordinator: &mut Line, ctx: &mut Context<'_>) {
        if matches!(self.caller, Caller::Rests) {
            return;
        }
        let heard = self.stream.as_ref().and_then(|stream| ctx.heard(stream.conn));
        if let Some(asking) = &mut self.inquiry {
            asking.go_on(heard, coordinator, ctx);
        }
    }

    pub(crate) fn coordinator_lost(&mut self, ctx: &Context<'_>) {
        if let Some(asking) = &mut self.inquiry {
            asking.unanswered(ctx.now);
        }
        if matches!(self.under_way, UnderWay::Placing(_)) {
            self.happened(no_place_yet(), ctx);
        }
    }

    /// Takes in the coordinator's answer with that number.
    pub(crate) fn told(&mut self, ask: u64, response: &Response, ctx: &mut Context<'_>) {
        self.place_answered(ask, response, ctx);
        let asking = self.inquiry.as_mut();
        if let Some(cause) = asking.and_then(|asking| asking.answered(ask, response, ctx.now)) {
            ctx.count("told that a session is gone");
            self.drop_what_is_under_way(ctx);
            self.happened(SessionEvent::ReportedGone(cause), ctx);
        }
    }

    // Its caller.

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let settled = match self.caller {
            Caller::Rests => return None,
            Caller::Settles { until, .. } => Some(until),
            Caller::Waits { .. } => None,
        };
        let own = match (&self.under_way, &self.next) {
            (UnderWay::Attaching { deadline, .. }, _) => Some(*deadline),
            (UnderWay::Placing(call), _) => Some(call.deadline),
            (UnderWay::Nothing, SessionAction::WaitUntil(until)) => Some(*until),
            _ => None,
        };
        let asking = self.inquiry.as_ref().map(Asking::wake_at);
        settled.into_iter().chain(own).chain(asking).min()
    }

    /// Ends the wait at the caller's deadline: whatever is under way is not waited for.
    pub(crate) fn time_out(&mut self, ctx: &mut Context<'_>) {
        if let Caller::Waits { kind, .. } = self.caller {
            ctx.count(if kind == FrameKind::Reset { "reset timed out" } else { "step timed out" });
            self.drop_what_is_under_way(ctx);
            if kind == FrameKind::Send {
                // They stay under way.
                (self.trouble, self.caller) = (Some(Trouble::TimedOut), Caller::Rests);
                return;
            }
            self.stop_with(Trouble::TimedOut);
        }
    }

    fn pool(&self) -> RunId {
        self.made_of.recipe.open.pool
    }

    fn id(&self) -> SessionId {
        SessionId { pool: self.made_of.recipe.open.pool, index: self.session.grant().index }
    }

    /// Returns the index of its node.
    pub(crate) fn node(&self) -> usize {
        index(&self.session.grant().node)
    }

    pub(crate) const fn answered_at(&self) -> Duration {
        self.answered_at
    }

    pub(crate) const fn is_at_rest(&self) -> bool {
        matches!(self.caller, Caller::Rests)
    }

    /// Returns whether its lanes are lost, and not being brought back.
    pub(crate) fn is_gone(&self) -> bool {
        self.session.is_out()
    }

    pub(crate) const fn take_trouble(&mut self) -> Option<Trouble> {
        self.trouble.take()
    }
}

/// Returns the action of a lane in a step.
fn action_of(lane: u32, step: u64) -> i64 {
    (rollhouse_core::random_bits(7, lane, step) & 1) as i64
}

fn notes_of(sidecar: &[u8]) -> Notes {
    match sidecar {
        [] => Notes::default(),
        bytes => control::decode(bytes).expect("notes of ours"),
    }
}

const fn body_of(kind: FrameKind, columns: Bytes) -> RequestBody {
    RequestBody { kind, columns, sidecar: Bytes::new() }
}

const fn no_place_yet() -> SessionEvent {
    SessionEvent::NoPlace(NoPlace::Busy(COORDINATOR_AWAY))
}

/// Time for a node to answer a request to attach, as in the client library.
const ATTACH_DEADLINE: Duration = Duration::from_secs(10);
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
