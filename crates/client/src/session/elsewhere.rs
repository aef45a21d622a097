//! Lets a session's lanes go on without their node: on another, where they stood or anew.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rollhouse_core::Interruption;
use rollhouse_wire::{FrameKind, Grant, Refusal, ReplaceSession, SessionReplaced, put_memory};

use super::{
    Attachment, Followed, Gone, NoPlace, OnLoss, Reach, RequestBody, Session, SessionAction, Stage, Trouble,
};
use crate::numbering::Numbering;
use crate::retry::Patience;

impl Session {
    /// Goes on without its node: elsewhere, if its lanes are to be resumed and a caller waits for that.
    pub(super) fn go_on(&mut self, now: Duration, gone: Gone) -> SessionAction {
        self.attachment = Attachment::Detached;
        if self.request.is_none() { self.not_begun(now, Some(gone)) } else { self.lost(gone) }
    }

    pub(super) fn lost(&mut self, gone: Gone) -> SessionAction {
        let resumes = self.request.is_some() && self.resumes_after(&gone);
        if resumes {
            self.state = Stage::Placing { gone, not_before: None };
            return SessionAction::Place;
        }
        self.state = Stage::Gone(gone);
        SessionAction::Done(Err(Trouble::Gone))
    }

    pub(super) fn distrusted(&mut self, now: Duration, gone: Gone) -> SessionAction {
        if matches!(self.state, Stage::Resuming { .. }) {
            return self.go_on(now, gone);
        }
        self.attachment = Attachment::Detached;
        self.state = Stage::Gone(gone);
        SessionAction::Done(Err(Trouble::Gone))
    }

    /// Prepares for a request: the session leaves a node that goes away, and lanes that were reported as lost begin
    /// anew.
    pub(super) fn settle(&mut self, now: Duration, reset: bool) -> SessionAction {
        match &mut self.state {
            // It leaves with its request, if that is carried on: the caller may wait for another one, or for none.
            Stage::Leaving if self.request.is_some() => SessionAction::Done(Ok(())),
            Stage::Resting | Stage::Leaving => {
                if !self.can_leave(now) {
                    self.state = Stage::Resting;
                    return SessionAction::Done(Ok(()));
                }
                // Also if nobody waits for it to its end: no request is held up again at once.
                self.not_before = now + ASK_AGAIN_AFTER;
                // A step comes next, whatever was asked last.
                (self.request, self.state) = (None, Stage::Leaving);
                SessionAction::Place
            }
            Stage::Gone(gone) | Stage::Placing { gone, .. } if gone.reported && self.not_before <= now => {
                let Some(log) = self.log.as_mut().filter(|log| reset || log.has_begun()) else {
                    return SessionAction::Done(Ok(()));
                };
                log.give_up();
                (self.request, self.state) = (None, Stage::Placing { gone: gone.clone(), not_before: None });
                SessionAction::Place
            }
            _ => SessionAction::Done(Ok(())),
        }
    }

    /// Notes that its node cannot record what is asked for, and returns whether to leave it. Lanes that go on where they
    /// stood leave at once; others, whose open episodes are lost with that, wait for room for a while.
    pub(super) fn may_leave_unrecorded(&mut self, now: Duration) -> bool {
        if self.log.is_none() || self.not_before > now {
            return false;
        }
        match &mut self.state {
            Stage::Requesting(exchange) if self.recipe.on_loss == OnLoss::Report => {
                let since = *exchange.unrecorded.get_or_insert(now);
                // Soon enough that the request can still be answered elsewhere.
                let patience = ROOM_WITHIN.min(self.deadline.saturating_sub(since) / 2);
                now >= since + patience
            }
            _ => true,
        }
    }

    /// Leaves a node that cannot record what is asked for, with the request: where the lanes go, it is made once more.
    pub(super) fn leave_unrecorded(&mut self, now: Duration, refusal: &Refusal) -> SessionAction {
        self.reach.trouble = Some(refusal.to_string());
        // A node that keeps them, because no other has room, is asked again before the next place is.
        self.not_before = now + ASK_AGAIN_AFTER;
        match &self.state {
            Stage::Requesting(_) => {
                self.state = Stage::Leaving;
                SessionAction::Place
            }
            Stage::Resuming { .. } => {
                let reason = format!("node {} cannot record: {refusal}", self.grant.node);
                self.go_on(now, Gone::new(reason, Interruption::NodeLost, None))
            }
            _ => self.action(),
        }
    }

    pub(super) fn placed(&mut self, now: Duration, replaced: SessionReplaced) -> SessionAction {
        let held = match (&self.state, &self.request) {
            // A step comes next.
            (Stage::Leaving, None) => true,
            // A reset begins the episodes of lanes that nothing is known of; a step must not.
            (Stage::Leaving | Stage::Placing { .. }, request) => {
                request.as_ref().is_some_and(|body| body.kind != FrameKind::Reset)
            }
            _ => return self.action(),
        };
        let SessionReplaced { grant, lease_ms } = replaced;
        let Grant { index, incarnation, first_lane, lanes, .. } = self.grant;
        if (grant.index, grant.first_lane, grant.lanes) != (index, first_lane, lanes)
            || grant.incarnation <= incarnation
        {
            return self.no_place(now, NoPlace::Never("the coordinator gave another session".to_owned()));
        }
        if let (Stage::Leaving, OnLoss::Report, Some(log)) = (&self.state, self.recipe.on_loss, &mut self.log)
        {
            log.give_up();
        }
        self.grant = grant;
        self.lease = if lease_ms == 0 { self.recipe.lease } else { Duration::from_millis(lease_ms) };
        (self.attachment, self.numbering) = (Attachment::Detached, Numbering::default());
        (self.leaving, self.not_before) = (false, Duration::ZERO);
        self.reach = Reach { replaces: true, ..Reach::default() };
        let past = self.log.as_ref().map(|log| log.past(held));
        if past.is_none() && self.followed.is_none() {
            self.state = Stage::Resting;
            return if self.request.is_some() { self.begin(now) } else { SessionAction::Done(Ok(())) };
        }
        if let (None, Some(followed)) = (&past, &mut self.followed) {
            followed.memory = None;
        }
        let (past, cut) = past.unwrap_or_default();
        let left = matches!(self.state, Stage::Leaving) && self.request.is_none();
        // Lanes that begin anew without a request were reported as lost before.
        let behind = self.behind_past(&cut);
        self.cut = if left || self.request.is_some() { cut } else { Vec::new() };
        self.state = Stage::Resuming { past, part: None, behind };
        // Who leaves a node is told of its past by the next request, if none is under way.
        if left { SessionAction::Done(Ok(())) } else { self.resume(now) }
    }

    /// Returns what a node is sent behind the past of the lanes. `new` are those that begin another episode.
    fn behind_past(&mut self, new: &[u32]) -> VecDeque<RequestBody> {
        let Some(Followed { policy, memory }) = &mut self.followed else { return VecDeque::new() };
        let memory = memory.as_mut().map(|memory| {
            new.iter().for_each(|&lane| memory.begin(lane as usize));
            let mut columns = BytesMut::new();
            put_memory(memory, &mut columns);
            RequestBody { kind: FrameKind::Memory, columns: columns.freeze(), sidecar: Bytes::new() }
        });
        [policy.clone()].into_iter().chain(memory).collect()
    }

    pub(super) fn no_place(&mut self, now: Duration, why: NoPlace) -> SessionAction {
        let gone = match &self.state {
            Stage::Placing { gone, .. } => gone.clone(),
            Stage::Leaving if self.request.is_none() => {
                self.state = Stage::Resting;
                return SessionAction::Done(Ok(()));
            }
            // Its node keeps it, and is asked again.
            Stage::Leaving => return self.begin(now),
            _ => return self.action(),
        };
        if self.request.is_none() {
            return self.not_begun(now, Some(gone));
        }
        let trouble = match why {
            NoPlace::Never(reason) => {
                self.state = Stage::Gone(Gone { reason, reported: false, ..gone });
                Trouble::Gone
            }
            NoPlace::Busy(wait) if now + wait < self.deadline => {
                self.state = Stage::Placing { gone, not_before: Some(now + wait) };
                return SessionAction::WaitUntil(now + wait);
            }
            NoPlace::Busy(_) => {
                self.state = Stage::Gone(gone);
                Trouble::TimedOut
            }
        };
        SessionAction::Done(Err(trouble))
    }

    /// Tells the new node the next part of what the lanes did; then goes on with the request, if there is one.
    pub(super) fn resume(&mut self, now: Duration) -> SessionAction {
        let Stage::Resuming { past, part, behind } = &mut self.state else { return self.action() };
        if part.is_some() {
            return self.action();
        }
        let columns = self.log.as_ref().and_then(|log| past.next(log));
        let body = match columns {
            Some(columns) => Some(RequestBody { kind: FrameKind::Resume, columns, sidecar: Bytes::new() }),
            None => behind.pop_front(),
        };
        let Some(body) = body else {
            self.state = Stage::Resting;
            return if self.request.is_some() { self.begin(now) } else { SessionAction::Done(Ok(())) };
        };
        let exchange = self.exchange(now, Patience::until_told(self.silence(), self.jitter()));
        let action = exchange.action();
        if let Stage::Resuming { part, .. } = &mut self.state {
            *part = Some((body, exchange));
        }
        action
    }

    /// Gives up lanes that did something else on the new node, or that it refuses: they begin anew, on yet another.
    pub(super) fn refused_past(&mut self, now: Duration, refusal: Refusal) -> SessionAction {
        let reason = format!("node {} does not resume its lanes: {refusal}", self.grant.node);
        let gone = Gone::new(reason, Interruption::NodeLost, None);
        if self.request.is_none() {
            return self.not_begun(now, None);
        }
        let all_cut = self.cut.len() == self.grant.lanes as usize;
        match &mut self.log {
            Some(log) if !all_cut => {
                log.give_up();
                self.go_on(now, gone)
            }
            _ => {
                self.attachment = Attachment::Detached;
                self.state = Stage::Gone(gone);
                SessionAction::Done(Err(Trouble::Refused(refusal)))
            }
        }
    }

    /// Notes that lanes that were to begin anew do not: they stay lost.
    fn not_begun(&mut self, now: Duration, gone: Option<Gone>) -> SessionAction {
        let anew = || Gone::new("its lanes could not be begun anew".to_owned(), Interruption::NodeLost, None);
        self.cut.clear();
        self.not_before = now + ASK_AGAIN_AFTER;
        self.attachment = Attachment::Detached;
        self.state = Stage::Gone(Gone { reported: true, ..gone.unwrap_or_else(anew) });
        SessionAction::Done(Err(Trouble::Gone))
    }

    /// Returns the request to the coordinator when an action is [`SessionAction::Place`].
    pub fn place_request(&self) -> ReplaceSession {
        let Grant { index, incarnation, ref node, first_lane, lanes, .. } = self.grant;
        ReplaceSession {
            open: self.recipe.open.clone(),
            index,
            incarnation,
            first_lane,
            lanes,
            dynamics: self.recipe.dynamics,
            moving: matches!(self.state, Stage::Leaving),
            node: node.clone(),
            replaces: self.reach.replaces,
        }
    }
}

/// Pause before a place is asked for again that nobody waits for.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Time for which lanes whose loss is reported wait for their node to record again before they leave it: spools that are
/// full for moments, and disks that are cleared at once, cost no episode.
const ROOM_WITHIN: Duration = Duration::from_secs(10);
