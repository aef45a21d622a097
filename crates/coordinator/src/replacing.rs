//! Placing sessions anew: their node is lost, has ended them, or is going away.
//!
//! ```text
//! running, lost, ended by its node --asked for by the owner--> opening elsewhere --> running, newer incarnation
//! running, its node is leaving     --asked for by the owner--> opening elsewhere --> running; the old one is closed
//!                                                              opening --cannot be--> as before; ask again
//! ```
//!
//! Only the owner asks, and from the grant on it steps the new placement only: no lane has two owners. The older
//! placement is closed as soon as its node is heard of; that node still delivers the episodes that it had finished
//! there.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::limits::MAX_NAME_BYTES;
use rollhouse_wire::{
    EndCause, NodeState, Refusal, RefusalCode, ReplaceSession, SessionCounts, SessionId, SessionOpened,
    SessionReplaced,
};

use crate::admission::{More, check, check_share};
use crate::cluster::{Cluster, Over};
use crate::event::{Actions, Asker, CallFailure, Reply, Ticket};
use crate::fitness::Fitness;
use crate::layout::Share;
use crate::limits::{MAX_ATTEMPTS, MAX_WAITERS, RETRY_AFTER};
use crate::membership::length;
use crate::opening::{Wanted, stale};
use crate::placements::Key;
use crate::pool::{Pool, Replacing, Session, SessionState, Stage};
use crate::recipe::{EarlierPlacement, Recipe};

/// The way in which a request is answered.
enum Answer {
    /// The session has its place already.
    Granted,
    /// The session is being placed.
    Wait,
    /// The session has to be placed.
    Place,
}

impl Cluster {
    /// Places a session anew, or repeats where it is.
    pub(crate) fn replace_session(
        &mut self,
        now: Duration,
        ticket: Ticket,
        asker: &Asker,
        request: ReplaceSession,
        out: &mut Actions,
    ) {
        let session = SessionId { pool: request.open.pool, index: request.index };
        if check(&request.open).is_ok() {
            self.believe_owner(asker, &request, out);
        }
        let answer = self.judge_replacing(now, asker, &request).and_then(|answer| match answer {
            Answer::Granted => {
                self.answer_replaced(session, vec![ticket], out);
                Ok(())
            }
            Answer::Wait => self.wait_for_place(session, ticket),
            Answer::Place => self.place_elsewhere(now, ticket, asker, &request, out),
        });
        if let Err(refusal) = answer {
            out.refuse(ticket, refusal);
        }
    }

    /// Decides how a request is answered; nothing changes. A pool that is not known is judged as its owner describes
    /// it.
    fn judge_replacing(
        &self,
        now: Duration,
        asker: &Asker,
        request: &ReplaceSession,
    ) -> Result<Answer, Refusal> {
        check(&request.open)?;
        if !request.node.is_empty() {
            length("node", &request.node, MAX_NAME_BYTES)?;
        }
        if request.open.settings.collect.is_some() {
            let message = "collect: sessions that play by themselves are not replaced";
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        let id = request.open.pool;
        self.check_follows(SessionId { pool: id, index: request.index }, request.incarnation)?;
        if self.pools.is_closed_unseen(&id) {
            return Err(stale(id, "was closed"));
        }
        let told_of;
        let (pool, is_known) = match self.pools.get(&id) {
            Some(pool) => (pool, true),
            None => {
                // Its nodes may not have come back yet, and tell more than one owner's word; unless that of the session is
                // back without it, or has ended.
                if request.node.is_empty() || self.awaited.is_awaited(&request.node) {
                    self.settles(now).map_or(Ok(()), Err)?;
                }
                told_of = Pool::told_of(&asker.owner, &request.open);
                (&told_of, false)
            }
        };
        if *pool.owner != *asker.owner {
            return Err(Refusal::new(RefusalCode::Forbidden, format!("pool {id} has another owner")));
        }
        match pool.stage {
            Stage::Opening => {
                return Err(Refusal::busy(
                    format!("pool {id} is being opened"),
                    RETRY_AFTER.as_millis() as u64,
                ));
            }
            Stage::Closing { .. } | Stage::Ended { closed: true } => return Err(stale(id, "was closed")),
            Stage::Open | Stage::Ended { closed: false } => {}
        }
        fits(pool, request)?;
        let answer = judge_session(now, self, pool, request)?;
        // A session that is only claimed does not count yet.
        let uncounted = |s: &Session| s.is_over() || s.is_claimed();
        let is_more = pool.sessions.get(&request.index).is_none_or(uncounted);
        if is_more && matches!(answer, Answer::Place) {
            let pools = u64::from(!is_known || !pool.is_live() || !pool.is_vouched());
            let more = More { pools, sessions: 1, lanes: request.lanes };
            check_share(asker, self.pools.held_by(&asker.owner), more)?;
        }
        Ok(answer)
    }

    /// Adds a repeated request to those that wait while the session is being placed.
    fn wait_for_place(&mut self, session: SessionId, ticket: Ticket) -> Result<(), Refusal> {
        let pool = self.pools.get_mut(&session.pool);
        let Some(replacing) =
            pool.and_then(|pool| pool.sessions.get_mut(&session.index)).and_then(|s| s.replacing.as_mut())
        else {
            return Err(Refusal::busy(
                format!("session {session} is being placed"),
                RETRY_AFTER.as_millis() as u64,
            ));
        };
        if replacing.waiters.len() >= MAX_WAITERS {
            let message =
                format!("{MAX_WAITERS} requests wait for session {session}, which is as many as may");
            return Err(Refusal::busy(message, RETRY_AFTER.as_millis() as u64));
        }
        replacing.waiters.push(ticket);
        Ok(())
    }

    fn place_elsewhere(
        &mut self,
        now: Duration,
        ticket: Ticket,
        asker: &Asker,
        request: &ReplaceSession,
        out: &mut Actions,
    ) -> Result<(), Refusal> {
        let ReplaceSession { index, lanes, first_lane, dynamics, .. } = *request;
        let id = request.open.pool;
        let session = SessionId { pool: id, index };
        let pool = self.pools.get(&id);
        let known = pool.and_then(|pool| pool.sessions.get(&index));
        let moving = request.moving && known.is_some_and(|s| s.state == SessionState::Running);
        let before: Vec<Arc<str>> = known.iter().map(|s| Arc::clone(&s.node)).collect();
        let dynamics = pool.and_then(Pool::dynamics).unwrap_or(dynamics);
        let wanted = Wanted { owner: &asker.owner, open: &request.open, dynamics: Some(dynamics) };
        let from = if moving { before.first().and_then(|from| self.members.get(from)) } else { None };
        let stays = from.filter(|member| member.state(now) == NodeState::Alive);
        let least = stays.map(|member| member.fitness(now, wanted.owner, wanted.open).better());
        let least = least.unwrap_or(Fitness::Full);
        let another = |tried: &[Arc<str>]| self.another(now, wanted, lanes, tried, least);
        // Back where it was only if it has to be: its owner may not reach that node.
        let node = another(&before).or_else(|| if moving { None } else { another(&[]) });
        let Some(node) = node else {
            let message = format!("no room for the {lanes} lanes of session {session} now");
            let refusal = Refusal::busy(message, RETRY_AFTER.as_millis() as u64);
            self.waits(now, (id, Some(index)), (&request.open, lanes), &refusal);
            return Err(refusal);
        };
        self.waiting.placed((id, Some(index)));
        // From here on it has a place: what is kept of it stands for something.
        if self.pools.get(&id).is_none() {
            self.pools.insert(id, Pool::told_of(&asker.owner, &request.open));
        }
        self.pools.vouch(id, || Recipe { open: request.open.clone(), dynamics });
        if let Some(pool) = self.pools.get_mut(&id) {
            pool.operates = asker.admin;
        }
        self.pools.revive(id);
        let previous = self.pools.get_mut(&id).and_then(|pool| pool.sessions.remove(&index));
        let ReplaceSession { incarnation, replaces, .. } = *request;
        // What its owner had is not known here, and has still to be waited for.
        let is_told = previous.as_ref().is_none_or(|previous| previous.incarnation < incarnation);
        let earlier =
            is_told.then(|| Box::new(EarlierPlacement { node: request.node.clone(), incarnation, replaces }));
        let mut before = None;
        match previous {
            Some(previous) if moving => before = Some(Box::new(previous)),
            Some(previous) => self.fence_off(session, &previous, out),
            None => {}
        }
        let replacing = Replacing { waiters: vec![ticket], previous: before, earlier, may_pass: false };
        self.assign_anew(session, first_lane, Share { node, lanes }, Vec::new(), replacing, out);
        Ok(())
    }

    pub(crate) fn assign_anew(
        &mut self,
        session: SessionId,
        first_lane: u32,
        share: Share,
        tried: Vec<Arc<str>>,
        replacing: Replacing,
        out: &mut Actions,
    ) {
        self.assign(session, first_lane, share, tried, out);
        let pool = self.pools.get_mut(&session.pool);
        if let Some(placed) = pool.and_then(|pool| pool.sessions.get_mut(&session.index)) {
            placed.replacing = Some(replacing);
        }
    }

    /// Adds the steps and episodes of an earlier placement to those of its pool.
    pub(crate) fn carry_counts(&mut self, session: SessionId, done: SessionCounts) {
        if let Some(pool) = self.pools.get_mut(&session.pool) {
            pool.before.entry(session.index).or_default().add(&done);
        }
    }

    /// Expects the recording of a session that an earlier coordinator placed on a node that has not been heard of yet.
    fn expect_unseen(&mut self, session: SessionId, earlier: &EarlierPlacement) {
        let is_ours = earlier.incarnation.term >= self.term;
        let Some(pool) = self.pools.get_mut(&session.pool).filter(|pool| !is_ours && pool.is_recorded())
        else {
            return;
        };
        // A node without a name cannot be followed up.
        pool.unknown_past |= earlier.replaces || earlier.node.is_empty();
        let key = (session, earlier.incarnation);
        if !earlier.node.is_empty() && self.shipping.expect_unseen(&earlier.node, &pool.owner, key) {
            pool.unshipped += 1;
        }
    }

    /// Leaves an earlier placement: it is closed as soon as its node is heard of, and its recordings may still have to
    /// come.
    fn fence_off(&mut self, session: SessionId, previous: &Session, out: &mut Actions) {
        self.carry_counts(session, previous.activity.done);
        let key = (session, previous.incarnation);
        if self.placements.get(&key).is_none() {
            return;
        }
        self.placements.unwant(&key);
        if !previous.is_over() {
            self.expect_recording(&previous.node, key);
        }
        self.close_unwanted(&previous.node, out);
    }

    /// Returns whether it is a placement for which an owner waits in place of an earlier one.
    pub(crate) fn is_replacing(&mut self, key: &Key) -> bool {
        let session = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(key));
        session.is_some_and(|session| session.replacing.is_some())
    }

    /// Takes in a node's answer to the request to open a session that is placed anew.
    pub(crate) fn replaced(
        &mut self,
        now: Duration,
        key: &Key,
        result: Result<Box<SessionOpened>, CallFailure>,
        out: &mut Actions,
    ) {
        let opened = match result {
            Ok(opened) => opened,
            Err(CallFailure::Refused(refusal)) => {
                self.placements.remove(key);
                self.note_refused(now, key);
                return self.replace_again(now, key, refusal, out);
            }
            Err(CallFailure::Unknown) => {
                self.placements.unwant(key);
                self.note_refused(now, key);
                let refusal = Refusal::busy("its node did not answer", RETRY_AFTER.as_millis() as u64);
                return self.replace_again(now, key, refusal, out);
            }
        };
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let dynamics = pool.dynamics();
        if dynamics != Some(opened.spec.dynamics_hash) {
            self.placements.unwant(key);
            self.note_refused(now, key);
            let refusal = self.disagreement(key, &opened.spec, dynamics.unwrap_or_default());
            return self.replace_again(now, key, refusal, out);
        }
        pool.lease_ms = opened.lease_ms;
        let Some(session) = pool.current(key) else { return };
        session.opened = true;
        self.note_opened(now, key);
        let Some(session) = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(key)) else {
            return;
        };
        let Some(Replacing { waiters, previous, earlier, .. }) = session.replacing.take() else { return };
        if let Some(previous) = previous {
            self.fence_off(key.0, &previous, out);
        }
        if let Some(earlier) = earlier {
            self.expect_unseen(key.0, &earlier);
        }
        self.unwant_claims_of(key, out);
        self.answer_replaced(key.0, waiters, out);
    }

    /// Tries another node for a session that is placed anew; if there is none, the session goes back to its earlier
    /// state.
    pub(crate) fn replace_again(&mut self, now: Duration, key: &Key, why: Refusal, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let Some(session) = pool.current(key) else { return };
        let (first_lane, lanes, node) = (session.first_lane, session.lanes, Arc::clone(&session.node));
        let mut tried = std::mem::take(&mut session.tried);
        tried.push(Arc::clone(&node));
        let Some(mut replacing) = session.replacing.take() else { return };
        replacing.may_pass |= !is_lasting(why.code);
        self.close_unwanted(&node, out);
        if tried.len() < MAX_ATTEMPTS {
            let mut not = tried.clone();
            not.extend(replacing.previous.as_ref().map(|previous| Arc::clone(&previous.node)));
            if let Some(node) = self.another_for(now, key.0.pool, lanes, &not) {
                let share = Share { node, lanes };
                return self.assign_anew(key.0, first_lane, share, tried, replacing, out);
            }
        }
        let refusal = match replacing.may_pass || self.has_untried(now, key.0.pool, &tried) {
            false => {
                let message = format!("session {} has no other place: node `{node}`: {}", key.0, why.message);
                Refusal::new(why.code, message)
            }
            true => {
                let message = format!("session {} has no other place yet: {}", key.0, why.message);
                Refusal::busy(message, RETRY_AFTER.as_millis() as u64)
            }
        };
        self.give_up_replacing(now, key, replacing, &refusal, out);
    }

    /// Returns whether a node that was not tried hosts lanes of the pool's env, and may have room for them later.
    fn has_untried(&self, now: Duration, pool: RunId, tried: &[Arc<str>]) -> bool {
        let Some((pool, open)) = self.pools.get(&pool).and_then(|pool| Some((pool, pool.opened_as()?)))
        else {
            return false;
        };
        let is_untried = |name: &str| tried.iter().all(|tried| **tried != *name);
        let mut able = self.suitable(open).filter(|(_, dynamics)| dynamics.may_be(pool.dynamics()));
        able.any(|(member, _)| member.state(now) == NodeState::Alive && is_untried(&member.name))
    }

    fn give_up_replacing(
        &mut self,
        now: Duration,
        key: &Key,
        replacing: Replacing,
        refusal: &Refusal,
        out: &mut Actions,
    ) {
        let Replacing { waiters, previous, earlier, .. } = replacing;
        if earlier.is_some() && previous.is_none() {
            // It is as if nobody had asked: the word of one who asks is no reason to know a pool.
            self.forget_session(key.0);
        } else if previous.is_none() && self.stays_lost(now, key) {
            // Nobody asks for it again: it is tried with each tick.
        } else if let Some(session) = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(key)) {
            match previous {
                Some(previous) => *session = *previous,
                None => session.state = SessionState::Ended(EndCause::NodeLost),
            }
        }
        for ticket in waiters {
            out.refuse(ticket, refusal.clone());
        }
        self.settle(key.0.pool, out);
    }

    fn forget_session(&mut self, id: SessionId) {
        let Some(pool) = self.pools.get_mut(&id.pool) else { return };
        pool.sessions.remove(&id.index);
        if pool.sessions.is_empty() {
            self.pools.remove(&id.pool);
        }
    }

    /// Handles the end of the placement from which a session was to move, before it had another: there is no way back.
    pub(crate) fn previous_gone(&mut self, key: &Key, over: &Over<'_>) {
        let session = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.sessions.get_mut(&key.0.index));
        let Some(replacing) = session.and_then(|session| session.replacing.as_mut()) else { return };
        let Some(previous) = replacing.previous.take_if(|previous| previous.incarnation == key.1) else {
            return;
        };
        self.carry_counts(key.0, over.done.unwrap_or(previous.activity.done));
        self.expect_recording(&previous.node, *key);
    }

    /// Stops all replacements of a pool that is being closed; placements that were being left are closed.
    pub(crate) fn stop_replacing(&mut self, id: RunId, refusal: &Refusal, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&id) else { return };
        let mut left = Vec::new();
        for (&index, session) in &mut pool.sessions {
            let Some(Replacing { waiters, previous, earlier, .. }) = session.replacing.take() else {
                continue;
            };
            left.push((SessionId { pool: id, index }, previous, earlier));
            for ticket in waiters {
                out.refuse(ticket, refusal.clone());
            }
        }
        for (session, previous, earlier) in left {
            if let Some(previous) = previous {
                self.fence_off(session, &previous, out);
            }
            if let Some(earlier) = earlier {
                self.expect_unseen(session, &earlier);
            }
        }
    }

    fn answer_replaced(&self, session: SessionId, tickets: Vec<Ticket>, out: &mut Actions) {
        let found = self.pools.get(&session.pool).and_then(|pool| {
            let grant = pool.grant(session.index)?;
            Some(SessionReplaced { grant, lease_ms: pool.lease_ms })
        });
        for ticket in tickets {
            match &found {
                Some(replaced) => out.answer(ticket, Reply::SessionReplaced(Box::new(replaced.clone()))),
                None => out.refuse(ticket, stale(session.pool, "has no such session")),
            }
        }
    }
}

/// Checks whether the session that is asked for belongs to the pool.
fn fits(pool: &Pool, request: &ReplaceSession) -> Result<(), Refusal> {
    let ReplaceSession { index, first_lane, lanes, .. } = *request;
    let bad = |message: String| Err(Refusal::new(RefusalCode::BadRequest, message));
    if pool.opened_as().is_some_and(|open| *open != request.open) || pool.lanes != request.open.lanes {
        return bad(format!("pool {} was asked for with other lanes or settings", request.open.pool));
    }
    let end = first_lane.checked_add(lanes).filter(|end| lanes > 0 && *end <= request.open.lanes);
    let Some(end) = end else {
        return bad(format!(
            "lanes {first_lane} and {lanes} from there on of a pool of {}",
            request.open.lanes
        ));
    };
    match pool.sessions.get(&index) {
        Some(known) if (known.first_lane, known.lanes) == (first_lane, lanes) => Ok(()),
        Some(_) => bad(format!("session {index} has other lanes")),
        None => {
            let free = |s: &Session| s.first_lane >= end || s.first_lane + s.lanes <= first_lane;
            if pool.sessions.values().all(free) {
                Ok(())
            } else {
                bad(format!("session {index} does not belong to the pool"))
            }
        }
    }
}

fn judge_session(
    now: Duration,
    cluster: &Cluster,
    pool: &Pool,
    request: &ReplaceSession,
) -> Result<Answer, Refusal> {
    let Some(session) = pool.sessions.get(&request.index) else {
        // It may still turn up on a node that has not come back; one that its owner has lost is not waited for, and has
        // an older incarnation then.
        let settles = if request.moving { cluster.settles(now) } else { None };
        return settles.map_or(Ok(Answer::Place), Err);
    };
    if session.incarnation > request.incarnation {
        return Ok(match session.state {
            SessionState::Ended(_) => Answer::Place,
            _ if session.replacing.is_some() => Answer::Wait,
            _ if session.has_secret => Answer::Granted,
            // An earlier coordinator granted it, and the answer is gone with it.
            _ => Answer::Place,
        });
    }
    if session.incarnation < request.incarnation {
        // A coordinator before this one granted a later placement, whose node has not come back.
        return Ok(if session.replacing.is_some() { Answer::Wait } else { Answer::Place });
    }
    if session.replacing.is_some() {
        // One that is moved is asked for with the placement before.
        return Ok(Answer::Wait);
    }
    match session.state {
        SessionState::Ended(cause @ (EndCause::Closed | EndCause::Finished | EndCause::Hung)) => {
            let what = match cause {
                EndCause::Hung => "hung, and would again",
                _ => "has ended",
            };
            let message = format!("session {} of pool {} {what}", request.index, request.open.pool);
            Err(Refusal::new(RefusalCode::NotFound, message))
        }
        _ => Ok(Answer::Place),
    }
}

/// Returns whether a node that refuses to open a session with that code does so however often it is asked: it does not have
/// the env, as when an import fails there, or must not.
const fn is_lasting(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::NotFound | RefusalCode::Forbidden | RefusalCode::BadRequest)
}
