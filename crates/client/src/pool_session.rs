//! Carries out what a [`Session`] decides: the one place where its sockets, its memory and the clock are met.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{AutoresetMode, ColumnRef, EnvSpec, RunId};
use rollhouse_wire::{EndCause, FrameHeader, FrameKind, FrameLayout, Grant, LostLane};

use crate::batch::Target;
use crate::carrier::{Carrier, Line, LinkAnswer, LinkLost, SessionStream};
use crate::inquiry::Inquiry;
use crate::link::{BatchAnswer, Link, MemoryAnswer, MemoryLink, Places, Shape, Terms};
use crate::session::{
    Answered, COORDINATOR_AWAY, NoPlace, Recipe, RequestBody, Session, SessionAction, SessionEvent, Trouble,
};
use crate::transport::Transport;
use crate::wire::Wire;

/// A session of a pool with its link, driven over whatever carries its actions out. Requests are made one at a time;
/// `PoolSession::answer` can be dropped at any point and called again.
pub struct PoolSession<C: Carrier = Wire> {
    pub(crate) session: Session,
    pub(crate) link: Link<C::Stream>,
    pub(crate) terms: Terms,
    pub(crate) places: Places,
    pool: RunId,
    /// Its lanes in the pool.
    pub(crate) lanes: Range<usize>,
    /// Steps that it has of the fragment that is asked for.
    pub(crate) played: usize,
    /// The timer of the next look whether the node is silent.
    alarm: C::Alarm,
}

/// The surroundings that a request of a session needs.
pub struct Way<'a, C: Carrier = Wire> {
    /// What carries its actions out.
    pub carrier: &'a C,
    /// The caller's deadline, on the carrier's clock.
    pub deadline: Duration,
}

impl<C: Carrier> PoolSession<C> {
    /// Makes the session of that grant, of a pool that was opened by that recipe, to be stepped by that transport. `None` if
    /// a batch of its lanes is larger than a frame may be.
    pub fn open(recipe: &Arc<Recipe>, spec: &EnvSpec, grant: Grant, transport: Transport) -> Option<Self> {
        let (layout, autoreset) = (FrameLayout::of(spec), recipe.open.settings.autoreset);
        let same_step = autoreset == AutoresetMode::SameStep;
        let (rows, pool) = (grant.lanes as usize, recipe.open.pool);
        let lanes = grant.first_lane as usize..grant.first_lane as usize + rows;
        let plain = layout.batch(rows, false)?;
        let with_final = if same_step { layout.batch(rows, true) } else { None };
        let places = Places { plain, with_final, taken: layout.action_taken() };
        let max_columns = layout.rows(rows, same_step)?.bytes;
        let shape = Shape::new(spec, autoreset, layout);
        let (plays, offers) = (false, false);
        let paced = recipe.open.settings.pace.is_some();
        let terms = Terms { transport, refused_memory: None, shape, max_columns, plays, paced, offers };
        // The id's low bits are random.
        let session = Session::new(Arc::clone(recipe), spec, grant, pool.as_u128() as u64);
        let (link, alarm) = (Link::default(), C::Alarm::default());
        Some(Self { session, link, terms, places, pool, lanes, played: 0, alarm })
    }

    /// Returns what decides about it.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Notes that the caller has reported its lanes as lost.
    pub fn report_gone(&mut self) {
        self.session.report_gone();
    }

    /// Returns the transport by which it is attached now.
    pub fn transport(&self) -> Option<Transport> {
        self.link.transport()
    }

    /// Lets its node go.
    pub fn detach(&mut self) {
        self.link.detach();
    }

    /// Returns its lanes in the pool.
    pub(crate) const fn lanes(&self) -> &Range<usize> {
        &self.lanes
    }

    /// Returns the sidecar of the last answer; empty if it had none, or came by memory.
    pub(crate) fn sidecar(&self) -> &[u8] {
        match &self.link {
            Link::Stream(link) => link.sidecar(),
            Link::Memory(_) => &[],
        }
    }

    /// Attaches if it is not attached. If that fails it is tried again at the next request. Cancellation-safe.
    pub(crate) async fn attach_early(&mut self, carrier: &C) {
        if !self.link.is_attached() && self.session.gone().is_none() {
            let event = self.link.attach(&mut self.terms, carrier, self.pool, self.session.grant()).await;
            self.session.on(carrier.now(), event);
        }
    }

    /// Makes a request, in place of one that is under way; `PoolSession::answer` carries it out.
    pub fn ask(&mut self, body: RequestBody, way: &Way<'_, C>) {
        self.session.on(way.carrier.now(), SessionEvent::Requested { body, deadline: way.deadline });
    }

    /// Has the request under way answered with the lanes that are done, if it waits for more.
    /// `sidecar` says that, if it is written once more.
    pub(crate) fn hasten(&mut self, sidecar: Bytes) {
        self.session.hasten(sidecar);
        self.link.hasten();
    }

    /// Carries out the request that was made, on another node if the session's is lost and lanes are to be resumed.
    /// Returns its answer's header once the whole answer is in the link. Cancellation-safe: the next call goes on where
    /// this one was dropped.
    pub(crate) async fn answer(&mut self, way: &Way<'_, C>) -> Result<FrameHeader, Trouble> {
        let action = self.awaited(way);
        // A request that has an answer has its header.
        self.carry_out(action, way).await?.ok_or(Trouble::Gone)
    }

    fn awaited(&mut self, way: &Way<'_, C>) -> SessionAction {
        let Self { session, link, .. } = self;
        let posted = || link.in_place().map(MemoryLink::columns).unwrap_or_default();
        session.awaited(way.carrier.now(), way.deadline, posted)
    }

    /// Carries the request out while the session is where it is; `None` if it is not there any more.
    pub(crate) async fn answer_here(&mut self, way: &Way<'_, C>) -> Option<Result<FrameHeader, Trouble>> {
        let (mut action, mut header) = (self.awaited(way), None);
        loop {
            match action {
                SessionAction::Place | SessionAction::Done(Err(Trouble::Gone)) => return None,
                SessionAction::Done(Err(trouble)) => return Some(Err(trouble)),
                SessionAction::Done(Ok(())) => return header.map(Ok),
                next => action = self.act(next, way, &mut header).await,
            }
        }
    }

    /// Prepares for a request: the session leaves a node that goes away, or its lanes begin anew. Returns whether they
    /// have.
    pub async fn settle(&mut self, way: &Way<'_, C>, reset: bool) -> bool {
        let was_gone = self.session.gone().is_some();
        let action = self.session.on(way.carrier.now(), SessionEvent::Settle { reset });
        let settled = self.carry_out(action, way).await;
        was_gone && settled.is_ok() && self.session.gone().is_none()
    }

    async fn carry_out(
        &mut self,
        mut action: SessionAction,
        way: &Way<'_, C>,
    ) -> Result<Option<FrameHeader>, Trouble> {
        let mut header = None;
        loop {
            match action {
                SessionAction::Done(result) => return result.map(|()| header),
                SessionAction::Place => {
                    let placed = Box::pin(self.place(way)).await;
                    action = self.take_in(way.carrier.now(), placed);
                }
                next => action = self.act(next, way, &mut header).await,
            }
        }
    }

    /// Carries out one action, and returns the next; an answer's header is kept. Cancellation-safe.
    async fn act(
        &mut self,
        action: SessionAction,
        way: &Way<'_, C>,
        header: &mut Option<FrameHeader>,
    ) -> SessionAction {
        let Self { session, link, terms, pool, alarm, .. } = self;
        let (carrier, busy) = (way.carrier, session.is_busy());
        let (line, about) = (link.line(), session.inquiry());
        let event = tokio::select! {
            biased;
            event = async {
                match action {
                    SessionAction::Send { number } => send(session, link, number, header, carrier).await,
                    SessionAction::WaitUntil(until) => {
                        carrier.sleep_until(until).await;
                        SessionEvent::Woken
                    }
                    _ => Box::pin(link.attach(terms, carrier, *pool, session.grant())).await,
                }
            } => event,
            cause = ask_when_silent(about, line, carrier, alarm), if busy => SessionEvent::ReportedGone(cause),
        };
        // Nothing is awaited from here on: an event is taken in as a whole or not at all.
        self.take_in(carrier.now(), event)
    }

    fn take_in(&mut self, now: Duration, event: SessionEvent) -> SessionAction {
        if let SessionEvent::Distrusted(what) = &event {
            self.link.distrust(what);
        }
        let placed = matches!(event, SessionEvent::Placed(_));
        let before = self.session.grant().incarnation;
        let action = self.session.on(now, event);
        if placed && self.session.grant().incarnation != before {
            // Its stream ends with it. Memory is had by the first attachment of a pool only.
            self.link = Link::default();
            self.terms.transport = Transport::Quic;
        } else if self.session.gone().is_some() {
            self.link.detach();
        }
        action
    }

    /// Gives the session up because its node breaks the protocol.
    pub(crate) fn distrust(&mut self, now: Duration, what: String) -> Trouble {
        self.take_in(now, SessionEvent::Distrusted(what));
        Trouble::Gone
    }

    /// Asks the coordinator for another place, once.
    async fn place(&mut self, way: &Way<'_, C>) -> SessionEvent {
        tokio::select! {
            biased;
            placed = way.carrier.replace(self.session.place_request()) => match placed {
                Ok(replaced) => SessionEvent::Placed(Box::new(replaced)),
                Err(why) => SessionEvent::NoPlace(why),
            },
            () = way.carrier.sleep_until(way.deadline) => {
                SessionEvent::NoPlace(NoPlace::Busy(COORDINATOR_AWAY))
            }
        }
    }

    /// Carries the session's request out and copies its answer's columns into the target. Returns the lanes that are
    /// lost.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub async fn take_batch(
        &mut self,
        way: &Way<'_, C>,
        target: &Target<'_>,
        bools: &[usize],
    ) -> Result<Vec<LostLane>, Trouble> {
        let header = self.answer(way).await?;
        let now = way.carrier.now();
        self.land(now, header, target, bools).map_err(|what| self.distrust(now, what))
    }

    fn land(
        &mut self,
        now: Duration,
        header: FrameHeader,
        target: &Target<'_>,
        bools: &[usize],
    ) -> Result<Vec<LostLane>, String> {
        let Self { session, link, places, lanes, .. } = self;
        let batch = link.batch(header, places)?;
        batch.land(target, lanes);
        if !target.flags_are_sound(lanes, bools) {
            return Err("a batch with flags that are neither 0 nor 1".to_owned());
        }
        let (notes, mut losses) = link.notes(lanes.len())?;
        let known = losses.len();
        let taken = places.taken.map(|number| batch.info(number));
        let answered = Answered { now, flags: batch.flags(), taken, notes: &notes };
        session.note_batch(&answered, &mut losses);
        losses[known..].iter().for_each(|loss| target.cut(lanes, loss.lane as usize));
        Ok(losses)
    }

    /// Posts a step in the session's memory, with these actions or those that stand there. Returns false if it is not
    /// attached by memory, or something is under way.
    #[inline]
    pub fn post_in_memory(&mut self, actions: Option<ColumnRef<'_>>) -> bool {
        let Self { session, link, .. } = self;
        let free = |link: &&mut MemoryLink| link.is_attached() && !link.is_under_way();
        let Some(link) = link.in_place_mut().filter(free) else { return false };
        if let (Some(actions), Some(mut to)) = (actions, link.actions_mut()) {
            let copied = to.copy_from(actions);
            debug_assert!(copied, "both columns are those of one space");
        }
        link.step(session);
        true
    }

    /// Takes the answer to a step that was [posted](Self::post_in_memory), if it is there, as
    /// [`take_batch`](Self::take_batch) does.
    pub fn answered_in_memory(&mut self, now: Duration, target: &Target<'_>) -> Option<Vec<LostLane>> {
        let link = self.link.in_place_mut().filter(|link| link.has_news())?;
        let Ok(MemoryAnswer::Batch) = link.wait(None, || true) else { return None };
        target.land_frame(&self.lanes, &link.frame()?);
        let (known, losses) = (link.lost().len(), self.note_frame(now));
        losses[known..].iter().for_each(|loss| target.cut(&self.lanes, loss.lane as usize));
        Some(losses)
    }

    /// Keeps the notes of the newest frame in the session's memory. Returns the lanes that are lost.
    #[inline]
    pub(crate) fn note_frame(&mut self, now: Duration) -> Vec<LostLane> {
        let Self { session, link, places, .. } = self;
        let Some((link, frame)) = link.in_place().and_then(|link| Some((link, link.frame()?))) else {
            return Vec::new();
        };
        let mut losses = link.lost();
        let batch = BatchAnswer::Frame(frame);
        let taken = places.taken.map(|number| batch.info(number));
        let answered = Answered { now, flags: batch.flags(), taken, notes: link.notes() };
        session.note_batch(&answered, &mut losses);
        losses
    }
}

/// Posts the session's request, once, and waits for its answer, whose header is kept.
async fn send<C: Carrier>(
    session: &mut Session,
    link: &mut Link<C::Stream>,
    number: u32,
    header: &mut Option<FrameHeader>,
    carrier: &C,
) -> SessionEvent {
    let lost = |lost| match lost {
        LinkLost::Ended => SessionEvent::Lost,
        LinkLost::PortClosed => SessionEvent::PortClosed(None),
    };
    let free = match link.is_free(number, carrier).await {
        Ok(free) => free,
        Err(why) => return lost(why),
    };
    let Some(body) = session.body() else { return SessionEvent::Lost };
    let kind = body.kind;
    if free {
        link.post(number, body);
        session.written(number);
    }
    match link.answer(number, kind, carrier).await {
        Ok(LinkAnswer::Done(done)) if answer_to(kind).is_some_and(|wanted| done.kind != wanted) => {
            SessionEvent::Distrusted(format!("a frame of kind {:?} was not asked for", done.kind))
        }
        Ok(LinkAnswer::Done(done)) => {
            *header = Some(done);
            SessionEvent::Answered
        }
        Ok(LinkAnswer::Refused(refusal)) => SessionEvent::Refused(refusal),
        Err(why) => lost(why),
    }
}

/// Returns the kind of the answer to a request that has no rows.
const fn answer_to(kind: FrameKind) -> Option<FrameKind> {
    match kind {
        FrameKind::Resume => Some(FrameKind::Resumed),
        FrameKind::Policy => Some(FrameKind::Follows),
        FrameKind::Play => Some(FrameKind::Fragment),
        _ => None,
    }
}

/// Resolves with the reason when the node is silent and the session is gone; never otherwise. Cancellation-safe.
async fn ask_when_silent<C: Carrier>(
    about: Inquiry,
    line: Option<impl Line>,
    carrier: &C,
    alarm: &mut C::Alarm,
) -> EndCause {
    let start = carrier.now();
    let mut inquiry = about;
    loop {
        carrier.alarm(alarm, start + inquiry.look_at()).await;
        // A node that is inside a long step is sent nothing, and its port not asked about otherwise.
        if let (true, Some(line)) = (inquiry.has_looked(), &line) {
            line.doubt();
        }
        if inquiry.look(carrier.now() - start, line.as_ref().and_then(Line::received)) {
            let status = Box::pin(carrier.pool_status(inquiry.question())).await;
            if let Some(cause) = inquiry.answered(carrier.now() - start, status.as_ref()) {
                return cause;
            }
        }
    }
}
