//! One session of a pool, as its owner decides about it: requests, retries, and resuming its lanes elsewhere.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{EnvSpec, Interruption, Outcome};
use rollhouse_policy::LaneStates;
use rollhouse_wire::{EndCause, FrameKind, GoneSession, Grant, Refusal, SessionId};

pub use self::event::{
    COORDINATOR_AWAY, Gone, NoPlace, OnLoss, PLACE_WITHIN, Recipe, RequestBody, SessionAction, SessionEvent,
    Trouble,
};
pub use self::keeping::Answered;
use crate::error::Unanswered;
use crate::inquiry::Inquiry;
use crate::log::{Keep, PastReader, SessionLog};
use crate::numbering::Numbering;
use crate::retry::{GiveUp, Patience, Retry, RetryAction, RetryEvent};

mod elsewhere;
mod event;
mod keeping;

/// Decides what the owner of one session of a pool does next.
///
/// ```text
///               request                   answered, refused, timed out
///   Resting ────────────▶ Requesting ─────────────────────────────────▶ Resting
///    │   ▲                   │ lost
///    │   │ no place          ▼        a place            all is said
///    │   └───── Leaving   Placing ─────────────▶ Resuming ───────────▶ Requesting; Resting if nothing is asked
///    └────────────▲         │  ▲                     │ lost, or the node will not have its lanes
///     settle, its node      │  └─────────────────────┘
///     goes away; refused,   ▼ no place ever; or its lanes are not to be resumed
///     it cannot record
///                         Gone ── settle, once that was reported ──▶ Placing: the lanes begin anew
///
///           posted in memory             awaited
///   Resting ────────────────▶ Posted ──────────────▶ Requesting
///    ▲                          │ answered in memory
///    └──────────────────────────┘
/// ```
///
/// Beside that it is attached to its node or not, which a request brings about by itself; `Retry` decides what becomes
/// of one request. Pure: `now` is any clock that only goes forward, and nothing is done here. The caller that carries
/// actions out may stop at any point and go on with [`Session::awaited`], or with another request.
#[derive(Debug)]
pub struct Session {
    recipe: Arc<Recipe>,
    grant: Grant,
    lease: Duration,
    /// The seed of the jitter of its retries.
    seed: u64,
    attachment: Attachment,
    numbering: Numbering,
    state: Stage,
    /// The request that is under way or was last answered; `None` if nobody waits for one.
    request: Option<RequestBody>,
    /// The time after which nobody waits for the request any more.
    deadline: Duration,
    /// The policy by which its lanes play.
    followed: Option<Followed>,
    /// The log; `None` if the node's answers do not say what a log needs.
    log: Option<SessionLog>,
    /// Lanes whose past is lost, until a batch has shown it.
    cut: Vec<u32>,
    /// Whether the node is going away.
    leaving: bool,
    /// The time before which no other place is asked for unless a caller waits for it.
    not_before: Duration,
    reach: Reach,
}

/// The policy by which lanes play. Another node is sent both.
#[derive(Debug)]
struct Followed {
    policy: RequestBody,
    /// What it remembers of the lanes; `None` if that is nothing.
    memory: Option<LaneStates>,
}

/// How a session gets on with reaching the node of its present placement.
#[derive(Debug, Default)]
struct Reach {
    /// Whether its placement took the place of an earlier one.
    replaces: bool,
    /// Whether the node has taken a stream.
    reached: bool,
    /// The error of the last attempt to reach it, or its last refusal, since it last answered.
    trouble: Option<String>,
}

/// The attachment of a session to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attachment {
    Detached,
    /// The node takes requests. `logs` says whether its answers say what a log needs.
    Attached {
        logs: bool,
    },
}

#[derive(Debug)]
enum Stage {
    /// Nothing is under way.
    Resting,
    /// A request is under way.
    Requesting(Exchange),
    /// A step is under way in memory, without anything that could be repeated.
    Posted,
    /// Its node is going away: another place is asked for.
    Leaving,
    /// Its node is lost: another place is asked for, not before that time.
    Placing { gone: Gone, not_before: Option<Duration> },
    /// Its new node is sent what the lanes did, part by part, and then `behind` that the policy by which they play, and what that
    /// remembers of them.
    Resuming { past: PastReader, part: Option<(RequestBody, Exchange)>, behind: VecDeque<RequestBody> },
    /// Its lanes are lost.
    Gone(Gone),
}

/// One request, from its first writing to its answer.
#[derive(Debug)]
struct Exchange {
    retry: Retry,
    next: RetryAction,
    /// The node's last refusal, if it refused.
    refusal: Option<Refusal>,
    /// Whether nobody listened at the node's port any more at the last attempt.
    port_closed: bool,
    /// The time of the first refusal by a node that cannot record.
    unrecorded: Option<Duration>,
}

impl Session {
    /// Makes the session of that grant, of a pool that was opened by that recipe. Jitter comes from `seed`.
    pub fn new(recipe: Arc<Recipe>, spec: &EnvSpec, grant: Grant, seed: u64) -> Self {
        let keep = match (recipe.on_loss, recipe.open.settings.record) {
            (OnLoss::Report, _) => Keep::Numbers,
            (OnLoss::Resume, rollhouse_core::RecordRule::None) => Keep::Steps,
            (OnLoss::Resume, _) => Keep::StepsAndEnded,
        };
        let lanes = grant.lanes as usize;
        let log = SessionLog::new(lanes, &spec.action_column(), &spec.action_space, keep);
        Self {
            lease: recipe.lease,
            recipe,
            grant,
            seed,
            attachment: Attachment::Detached,
            numbering: Numbering::default(),
            state: Stage::Resting,
            request: None,
            deadline: Duration::ZERO,
            followed: None,
            log: Some(log),
            cut: Vec::new(),
            leaving: false,
            not_before: Duration::ZERO,
            reach: Reach::default(),
        }
    }

    /// Takes an event in and returns the action to take. Events that do not belong to the state change nothing and
    /// repeat the state's action.
    pub fn on(&mut self, now: Duration, event: SessionEvent) -> SessionAction {
        use SessionEvent as E;
        match event {
            E::Requested { body, deadline } => self.requested(now, body, deadline),
            E::Settle { reset } => self.settle(now, reset),
            E::Placed(replaced) => self.placed(now, *replaced),
            E::NoPlace(why) => self.no_place(now, why),
            E::Distrusted(what) => {
                let reason = format!("node {}: {what}", self.grant.node);
                self.distrusted(now, Gone::new(reason, Interruption::Crashed, None))
            }
            E::Woken => match &mut self.state {
                Stage::Placing { not_before, .. } if not_before.is_some_and(|at| at <= now) => {
                    *not_before = None;
                    SessionAction::Place
                }
                Stage::Placing { .. } => self.action(),
                _ => self.exchanged(now, RetryEvent::Woken, None),
            },
            event => self.on_link(now, event),
        }
    }

    /// Returns the action for a caller that waits until `deadline`, after the carrying out of actions had stopped. A step
    /// that was [posted](Session::posted) is a request like any other from then on, with the columns that `posted` gives.
    pub fn awaited(
        &mut self,
        now: Duration,
        deadline: Duration,
        posted: impl FnOnce() -> Bytes,
    ) -> SessionAction {
        self.deadline = deadline;
        match &mut self.state {
            Stage::Posted => {
                let body = RequestBody { kind: FrameKind::Step, columns: posted(), sidecar: Bytes::new() };
                self.request = Some(body);
                let (retry, next) = self.numbering.carry_on(now, self.is_attached(), self.patience());
                self.state = Stage::Requesting(Exchange::new(retry, next));
            }
            Stage::Placing { not_before, .. } => *not_before = None,
            Stage::Gone(gone) => {
                let gone = gone.clone();
                return self.lost(gone);
            }
            _ => {}
        }
        self.action()
    }

    /// Returns the action to take now.
    fn action(&self) -> SessionAction {
        match &self.state {
            Stage::Requesting(exchange) | Stage::Resuming { part: Some((_, exchange)), .. } => {
                exchange.action()
            }
            Stage::Leaving | Stage::Placing { not_before: None, .. } => SessionAction::Place,
            Stage::Placing { not_before: Some(at), .. } => SessionAction::WaitUntil(*at),
            Stage::Resting | Stage::Posted | Stage::Resuming { part: None, .. } | Stage::Gone(_) => {
                SessionAction::Done(Err(Trouble::Gone))
            }
        }
    }

    // Requests.

    fn requested(&mut self, now: Duration, body: RequestBody, deadline: Duration) -> SessionAction {
        (self.request, self.deadline) = (Some(body), deadline);
        match &self.state {
            Stage::Resting | Stage::Requesting(_) | Stage::Posted | Stage::Leaving => self.begin(now),
            Stage::Resuming { .. } => self.resume(now),
            Stage::Placing { .. } | Stage::Gone(_) => self.awaited(now, deadline, Bytes::new),
        }
    }

    /// Begins the request; the answer to an earlier one that is still under way will not be taken.
    fn begin(&mut self, now: Duration) -> SessionAction {
        let exchange = self.exchange(now, self.patience());
        let action = exchange.action();
        self.state = Stage::Requesting(exchange);
        action
    }

    fn exchange(&mut self, now: Duration, patience: Patience) -> Exchange {
        let (retry, next) = self.numbering.begin(now, self.is_attached(), patience);
        Exchange::new(retry, next)
    }

    fn is_attached(&self) -> bool {
        self.attachment != Attachment::Detached
    }

    fn patience(&self) -> Patience {
        Patience { deadline: self.deadline, lease: self.silence(), abandoned: 0, seed: self.jitter() }
    }

    /// Returns how long its node is waited for in silence. One that was never reached has done nothing yet that would have
    /// to be done again, so that lanes which are resumed anyway go elsewhere sooner.
    fn silence(&self) -> Duration {
        if self.reach.reached || !self.resumes() { self.lease } else { self.lease.min(NEVER_REACHED) }
    }

    const fn jitter(&self) -> u64 {
        self.seed ^ self.grant.index as u64
    }

    /// Takes in an event of the way to its node and back.
    fn on_link(&mut self, now: Duration, event: SessionEvent) -> SessionAction {
        use SessionEvent as E;
        let resumes = self.resumes();
        let mut refused = None;
        let event = match event {
            E::Answered => RetryEvent::Answered,
            E::Attached { last, logs } => {
                self.attachment = Attachment::Attached { logs };
                (self.reach.reached, self.reach.trouble) = (true, None);
                RetryEvent::Attached { last }
            }
            E::Refused(refusal) => {
                // A refusal is an answer: the node stands at that request.
                self.numbering.answered();
                if refusal.leave && self.may_leave_unrecorded(now) {
                    return self.leave_unrecorded(now, &refusal);
                }
                let event = RetryEvent::Refused { code: refusal.code, retry_after: pause_of(&refusal) };
                refused = Some(refusal);
                event
            }
            E::AttachRefused(refusal) => {
                self.attachment = Attachment::Detached;
                let event = RetryEvent::AttachRefused { code: refusal.code, retry_after: pause_of(&refusal) };
                refused = Some(refusal);
                event
            }
            E::Unreachable(why) => {
                self.attachment = Attachment::Detached;
                self.reach.trouble = why.or(self.reach.trouble.take());
                RetryEvent::Unreachable
            }
            E::PortClosed(why) => {
                self.attachment = Attachment::Detached;
                self.reach.trouble = why.or(self.reach.trouble.take());
                RetryEvent::PortClosed { resumes }
            }
            E::ReportedGone(cause) => return self.reported_gone(now, cause),
            // The others were taken in by who calls this.
            _ => {
                self.attachment = Attachment::Detached;
                RetryEvent::Lost
            }
        };
        if let Some(refusal) = &refused {
            self.reach.trouble = Some(refusal.to_string());
        }
        self.exchanged(now, event, refused)
    }

    /// Takes in an event of the request under way.
    fn exchanged(&mut self, now: Duration, event: RetryEvent, refusal: Option<Refusal>) -> SessionAction {
        let (Stage::Requesting(exchange) | Stage::Resuming { part: Some((_, exchange)), .. }) =
            &mut self.state
        else {
            return self.action();
        };
        match event {
            RetryEvent::PortClosed { .. } => exchange.port_closed = true,
            RetryEvent::Attached { .. } | RetryEvent::AttachRefused { .. } => exchange.port_closed = false,
            _ => {}
        }
        if refusal.is_some() {
            exchange.refusal = refusal;
        }
        exchange.next = exchange.retry.on(now, event);
        match exchange.next {
            RetryAction::Finish => self.finished(now),
            RetryAction::GiveUp(why) => self.given_up(now, why, None),
            RetryAction::Send { .. } | RetryAction::Attach | RetryAction::WaitUntil(_) => exchange.action(),
        }
    }

    fn finished(&mut self, now: Duration) -> SessionAction {
        self.reach.trouble = None;
        self.numbering.answered();
        if let Stage::Resuming { part, .. } = &mut self.state {
            *part = None;
            return self.resume(now);
        }
        self.state = Stage::Resting;
        SessionAction::Done(Ok(()))
    }

    fn reported_gone(&mut self, now: Duration, cause: EndCause) -> SessionAction {
        match self.state {
            Stage::Requesting(_) | Stage::Resuming { .. } => {
                self.given_up(now, GiveUp::NodeLost, Some(cause))
            }
            _ => self.action(),
        }
    }

    fn given_up(&mut self, now: Duration, why: GiveUp, cause: Option<EndCause>) -> SessionAction {
        let (exchange, resuming) = match std::mem::replace(&mut self.state, Stage::Resting) {
            Stage::Requesting(exchange) => (Some(exchange), false),
            Stage::Resuming { part, .. } => (part.map(|(_, exchange)| exchange), true),
            _ => (None, false),
        };
        let port_closed = exchange.as_ref().is_some_and(|exchange| exchange.port_closed);
        let refusal = exchange.and_then(|exchange| exchange.refusal);
        match why {
            GiveUp::TimedOut => SessionAction::Done(Err(Trouble::TimedOut)),
            GiveUp::Refused(code) => {
                let refusal = refusal.unwrap_or_else(|| Refusal::new(code, "no reason was given"));
                if resuming {
                    return self.refused_past(now, refusal);
                }
                SessionAction::Done(Err(Trouble::Refused(refusal)))
            }
            GiveUp::NodeLost => {
                let cause = cause.or(refusal.as_ref().and_then(|refusal| refusal.ended));
                let reason = self.reason(cause, refusal, port_closed);
                let outcome = cause.map_or(Interruption::NodeLost, EndCause::interruption);
                self.go_on(now, Gone::new(reason, outcome, cause))
            }
        }
    }

    /// Returns why its node does not have it any more, in words.
    fn reason(&self, cause: Option<EndCause>, refusal: Option<Refusal>, port_closed: bool) -> String {
        let (id, node) =
            (SessionId { pool: self.recipe.open.pool, index: self.grant.index }, &self.grant.node);
        match (cause, refusal) {
            (Some(EndCause::NodeLost), _) => format!("the coordinator reports that node {node} is lost"),
            (Some(cause), _) => {
                let word = Outcome::Interrupted(cause.interruption()).word();
                format!("session {id} on node {node} has ended: {word}")
            }
            (None, Some(refusal)) => format!("node {node} does not have session {id} any more: {refusal}"),
            (None, None) if port_closed => format!("nobody listens at the port of node {node}"),
            (None, None) => format!("node {node} did not answer for {} s", self.silence().as_secs()),
        }
    }

    // What those who carry actions out have to know.

    /// Returns the request to send, without its number, when an action is [`SessionAction::Send`].
    pub const fn body(&self) -> Option<&RequestBody> {
        match &self.state {
            Stage::Resuming { part: Some((body, _)), .. } => Some(body),
            _ => self.request.as_ref(),
        }
    }

    /// Notes that the request was written under that number. Whether it arrives is not known before there is an answer.
    pub const fn written(&mut self, number: u32) {
        self.numbering.written(number);
    }

    /// Returns the inquiry about its node while an action is carried out for a request, from the action's beginning on.
    pub fn inquiry(&self) -> Inquiry {
        let Grant { index, incarnation, .. } = self.grant;
        // The cause is what is asked for.
        let session = GoneSession { index, incarnation, cause: EndCause::NodeLost };
        Inquiry::new(self.recipe.open.pool, session)
    }

    /// Gives the request to send lanes that is under way another sidecar, with which it is written from now on: a node that
    /// has it already is told otherwise.
    pub fn hasten(&mut self, sidecar: Bytes) {
        if let Some(request) = self.request.as_mut().filter(|request| request.kind == FrameKind::Send) {
            request.sidecar = sidecar;
        }
    }

    /// Returns whether a request is under way.
    pub const fn is_busy(&self) -> bool {
        matches!(self.state, Stage::Requesting(_) | Stage::Posted | Stage::Resuming { part: Some(_), .. })
    }

    /// Returns whether the node that has just got the lanes has not been told all that they did.
    pub const fn is_resuming(&self) -> bool {
        matches!(self.state, Stage::Resuming { .. })
    }

    /// Returns the grant of its present place.
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the number of the last episode that began in a lane, as far as the log knows.
    pub fn last_episode(&self, lane: u32) -> Option<u64> {
        self.log.as_ref()?.last_episode(lane)
    }

    /// Returns why it is gone; `None` while it is not.
    pub const fn gone(&self) -> Option<&Gone> {
        match &self.state {
            Stage::Gone(gone) | Stage::Placing { gone, .. } => Some(gone),
            _ => None,
        }
    }

    /// Returns whether its lanes are lost, and nobody brings them back for now.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, Stage::Gone(_))
    }

    /// Returns whether it is where it was granted last, and is not about to leave.
    pub const fn is_settled(&self) -> bool {
        !matches!(self.state, Stage::Gone(_) | Stage::Placing { .. } | Stage::Leaving)
    }

    /// Notes that a batch has reported its lanes as lost. Returns whether that was the first time.
    pub fn report_gone(&mut self) -> bool {
        match &mut self.state {
            Stage::Gone(gone) | Stage::Placing { gone, .. } => !std::mem::replace(&mut gone.reported, true),
            _ => false,
        }
    }

    /// Returns whether its lanes are lost, and are not being brought back just now.
    pub fn is_out(&self) -> bool {
        self.gone().is_some_and(|gone| gone.reported || !self.resumes_after(gone))
    }

    /// Returns whether its lanes go on where they stood if its node is lost.
    fn resumes(&self) -> bool {
        self.recipe.on_loss == OnLoss::Resume && self.log.is_some()
    }

    /// Returns whether its lanes go on where they stood after this loss: a session that hung or crashed by itself would
    /// do so again.
    fn resumes_after(&self, gone: &Gone) -> bool {
        self.resumes() && !matches!(gone.cause, Some(EndCause::Hung | EndCause::Failed))
    }

    /// Returns whether its node has said that it goes away.
    #[inline]
    pub const fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Returns whether it is to leave its node now, which is going away.
    pub fn can_leave(&self, now: Duration) -> bool {
        let rests = matches!(self.state, Stage::Resting | Stage::Leaving);
        self.leaving && rests && self.resumes() && self.not_before <= now
    }

    /// Returns the error that its node has not answered for so long, with what is known of the reason.
    pub(crate) fn unanswered(&self, after: Duration) -> Unanswered {
        let Grant { node, address, .. } = &self.grant;
        Unanswered { after, node: node.clone(), address: address.clone(), last: self.reach.trouble.clone() }
    }
}

impl Exchange {
    const fn new(retry: Retry, next: RetryAction) -> Self {
        Self { retry, next, refusal: None, port_closed: false, unrecorded: None }
    }

    const fn action(&self) -> SessionAction {
        match self.next {
            RetryAction::Send { number } => SessionAction::Send { number },
            RetryAction::WaitUntil(until) => SessionAction::WaitUntil(until),
            RetryAction::Attach | RetryAction::Finish | RetryAction::GiveUp(_) => SessionAction::Attach,
        }
    }
}

fn pause_of(refusal: &Refusal) -> Option<Duration> {
    refusal.retry_after_ms.map(Duration::from_millis)
}

/// Time for which a node is waited for that was never reached: long enough for a second handshake to begin.
const NEVER_REACHED: Duration = Duration::from_secs(8);
