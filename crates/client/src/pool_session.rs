//! Carries out what a [`Session`] decides: the one place where its sockets, its memory and the clock are met.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::RunId;
use rollhouse_wire::{
    Asks, CallError, CallId, Connection, EndCause, FrameHeader, FrameKind, LostLane, PoolStatus,
    ReplaceSession,
};
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::batch::Target;
use crate::inquiry::Inquiry;
use crate::link::{BatchAnswer, Link, LinkAnswer, LinkLost, MemoryLink, Places, Terms};
use crate::network::Network;
use crate::session::{
    Answered, COORDINATOR_AWAY, NoPlace, PLACE_WITHIN, RequestBody, Session, SessionAction, SessionEvent,
    Trouble,
};
use crate::silence::INQUIRY_DEADLINE;
use crate::transport::Transport;

/// A session of a pool with its link. Requests are made one at a time; [`PoolSession::answer`] can be dropped at any
/// point and called again.
pub(crate) struct PoolSession {
    pub(crate) session: Session,
    pub(crate) link: Link,
    pub(crate) terms: Terms,
    pub(crate) places: Places,
    pool: RunId,
    /// Its lanes in the pool.
    pub(crate) lanes: Range<usize>,
    /// Steps that it has of the fragment that is asked for.
    pub(crate) played: usize,
    /// The timer of the next look whether the node is silent.
    alarm: Alarm,
}

/// The surroundings that a request of a session needs.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) network: &'a Network,
    pub(crate) clock: Clock,
}

/// The clock of requests and the deadline of the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Zero of the clock that sessions decide by.
    pub(crate) start: Instant,
    /// The caller's deadline.
    pub(crate) deadline: Instant,
}

impl Clock {
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn until(&self) -> Duration {
        self.deadline - self.start
    }
}

impl PoolSession {
    pub(crate) fn new(session: Session, pool: RunId, terms: Terms, places: Places) -> Self {
        let first = session.grant().first_lane as usize;
        let lanes = first..first + session.grant().lanes as usize;
        Self {
            session,
            link: Link::default(),
            terms,
            places,
            pool,
            lanes,
            played: 0,
            alarm: Alarm::default(),
        }
    }

    /// Returns its lanes in the pool.
    pub(crate) const fn lanes(&self) -> &Range<usize> {
        &self.lanes
    }

    /// Returns the sidecar of the last answer; empty if it had none, or came by memory.
    pub(crate) fn sidecar(&self) -> &[u8] {
        match &self.link {
            Link::Quic(link) => link.sidecar(),
            Link::Memory(_) => &[],
        }
    }

    /// Attaches if it is not attached. If that fails it is tried again at the next request. Cancellation-safe.
    pub(crate) async fn attach_early(&mut self, network: &Network, start: Instant) {
        if !self.link.is_attached() && self.session.gone().is_none() {
            let event = self.link.attach(&mut self.terms, network, self.pool, self.session.grant()).await;
            self.session.on(start.elapsed(), event);
        }
    }

    /// Makes a request, in place of one that is under way; [`PoolSession::answer`] carries it out.
    pub(crate) fn ask(&mut self, body: RequestBody, clock: Clock) {
        self.session.on(clock.now(), SessionEvent::Requested { body, deadline: clock.until() });
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
    pub(crate) async fn answer(&mut self, way: &Way<'_>) -> Result<FrameHeader, Trouble> {
        let action = self.awaited(way);
        // A request that has an answer has its header.
        self.carry_out(action, way).await?.ok_or(Trouble::Gone)
    }

    fn awaited(&mut self, way: &Way<'_>) -> SessionAction {
        let Self { session, link, .. } = self;
        let posted = || link.in_place().map(MemoryLink::columns).unwrap_or_default();
        session.awaited(way.clock.now(), way.clock.until(), posted)
    }

    /// Carries the request out while the session is where it is; `None` if it is not there any more.
    pub(crate) async fn answer_here(&mut self, way: &Way<'_>) -> Option<Result<FrameHeader, Trouble>> {
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
    pub(crate) async fn settle(&mut self, way: &Way<'_>, reset: bool) -> bool {
        let was_gone = self.session.gone().is_some();
        let action = self.session.on(way.clock.now(), SessionEvent::Settle { reset });
        let settled = self.carry_out(action, way).await;
        was_gone && settled.is_ok() && self.session.gone().is_none()
    }

    async fn carry_out(
        &mut self,
        mut action: SessionAction,
        way: &Way<'_>,
    ) -> Result<Option<FrameHeader>, Trouble> {
        let mut header = None;
        loop {
            match action {
                SessionAction::Done(result) => return result.map(|()| header),
                SessionAction::Place => {
                    let placed = Box::pin(self.place(way)).await;
                    action = self.take_in(way.clock.now(), placed);
                }
                next => action = self.act(next, way, &mut header).await,
            }
        }
    }

    /// Carries out one action, and returns the next; an answer's header is kept. Cancellation-safe.
    async fn act(
        &mut self,
        action: SessionAction,
        way: &Way<'_>,
        header: &mut Option<FrameHeader>,
    ) -> SessionAction {
        let Self { session, link, terms, pool, alarm, .. } = self;
        let (clock, busy) = (way.clock, session.is_busy());
        let (connection, about) = (link.connection().cloned(), session.inquiry());
        let event = tokio::select! {
            biased;
            event = async {
                match action {
                    SessionAction::Send { number } => send(session, link, number, header).await,
                    SessionAction::WaitUntil(until) => {
                        tokio::time::sleep_until(clock.start + until).await;
                        SessionEvent::Woken
                    }
                    _ => Box::pin(link.attach(terms, way.network, *pool, session.grant())).await,
                }
            } => event,
            cause = ask_when_silent(about, connection, way, alarm), if busy => SessionEvent::ReportedGone(cause),
        };
        // Nothing is awaited from here on: an event is taken in as a whole or not at all.
        self.take_in(clock.now(), event)
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
    async fn place(&mut self, way: &Way<'_>) -> SessionEvent {
        let request = self.session.place_request();
        let ask = async {
            let connection = way.network.coordinator().await.map_err(|error| NoPlace::of_dial(&error))?;
            let call = CallId::generate();
            let asked = connection.call_for(request, Some(call), PLACE_WITHIN);
            call.traced(ReplaceSession::WORD, asked).await.map_err(|error| match error {
                CallError::Refused(refusal) => NoPlace::of_call(CallError::Refused(refusal.of_call(call))),
                error => NoPlace::of_call(error),
            })
        };
        match tokio::time::timeout_at(way.clock.deadline, ask).await {
            Ok(Ok(replaced)) => SessionEvent::Placed(Box::new(replaced)),
            Ok(Err(why)) => SessionEvent::NoPlace(why),
            Err(_) => SessionEvent::NoPlace(NoPlace::Busy(COORDINATOR_AWAY)),
        }
    }

    /// Carries the session's request out and copies its answer's columns into the target. Returns the lanes that are
    /// lost.
    pub(crate) async fn take_batch(
        &mut self,
        way: &Way<'_>,
        target: &Target<'_>,
        bools: &[usize],
    ) -> Result<Vec<LostLane>, Trouble> {
        let header = self.answer(way).await?;
        let now = way.clock.now();
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
async fn send(
    session: &mut Session,
    link: &mut Link,
    number: u32,
    header: &mut Option<FrameHeader>,
) -> SessionEvent {
    let lost = |lost| match lost {
        LinkLost::Ended => SessionEvent::Lost,
        LinkLost::PortClosed => SessionEvent::PortClosed(None),
    };
    let free = match link.is_free(number).await {
        Ok(free) => free,
        Err(why) => return lost(why),
    };
    let Some(body) = session.body() else { return SessionEvent::Lost };
    let kind = body.kind;
    if free {
        link.post(number, body);
        session.written(number);
    }
    match link.answer(number, kind).await {
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
async fn ask_when_silent(
    about: Inquiry,
    connection: Option<Connection>,
    way: &Way<'_>,
    alarm: &mut Alarm,
) -> EndCause {
    let start = Instant::now();
    let mut inquiry = about;
    // Bytes received of the node; `None` without a connection.
    let heard = || {
        let connected = connection.as_ref().filter(|connection| connection.lost().is_none());
        connected.map(|connection| connection.figures().received_bytes)
    };
    loop {
        alarm.until(start + inquiry.look_at()).await;
        // A node that is inside a long step is sent nothing, and its port not asked about otherwise.
        if let (true, Some(connection)) = (inquiry.has_looked(), &connection) {
            connection.doubt();
        }
        if inquiry.look(start.elapsed(), heard()) {
            let status = Box::pin(ask(way.network, &inquiry)).await;
            if let Some(cause) = inquiry.answered(start.elapsed(), status.as_ref()) {
                return cause;
            }
        }
    }
}

/// Asks the coordinator for the state of the session's pool; `None` if it does not answer in time.
async fn ask(network: &Network, inquiry: &Inquiry) -> Option<PoolStatus> {
    let asked = async {
        let connection = network.coordinator().await.ok()?;
        connection.call(inquiry.question(), INQUIRY_DEADLINE).await.ok()
    };
    tokio::time::timeout(INQUIRY_DEADLINE, asked).await.ok()?
}
