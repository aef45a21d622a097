//! Sessions that nodes claim to have from an earlier coordinator.
//!
//! ```text
//! (reported) -> claimed, current -> claimed, not current        a newer placement of the session is claimed
//!               claimed -> unwanted                             the owner closes the pool, or says otherwise
//!               claimed -> (gone)                               it ended, or its node is not believed any more
//! ```
//!
//! Nobody but the node vouches for a claim. It counts against its node, and against no owner's share until the owner
//! has asked for the session. It ends nothing that anybody else has, and takes nothing's place: of two placements of a
//! session both stay, and the lease ends the one that its owner has left. What an owner says of its pool goes before
//! every claim.

use std::cmp::Ordering;
use std::sync::Arc;

use rollhouse_core::RunId;
use rollhouse_core::limits::MAX_LANES;
use rollhouse_wire::limits::MAX_POOL_SESSIONS;
use rollhouse_wire::{CloseSession, ReplaceSession, SessionId, SessionReport, is_pool_of};

use crate::cluster::Cluster;
use crate::event::{Actions, Asker};
use crate::limits::MAX_CLOSES;
use crate::placements::Key;
use crate::pool::{Pool, Session, Stage};

impl Cluster {
    /// Takes over a session that an earlier coordinator placed.
    pub(crate) fn claim(&mut self, name: &Arc<str>, report: &SessionReport) {
        let SessionReport { session: id, incarnation, lanes, .. } = *report;
        let key = (id, incarnation);
        if incarnation.term >= self.term {
            // What this coordinator has placed it knows.
            return;
        }
        if self.placements.get(&key).is_some() {
            // Another node claims it, and nobody knows which of the two has recorded it.
            return self.expect_claimed(name, key);
        }
        if !self.placements.takes_claims_of(name) {
            return;
        }
        let Some(stage) = self.claimed_pool(report) else { return };
        let known = self.pools.get(&id.pool).and_then(|pool| pool.sessions.get(&id.index));
        if let Some(known) = known {
            let (older, node) = ((id, known.incarnation), Arc::clone(&known.node));
            let (is_over, done) = (known.is_over(), known.activity.done);
            match known.incarnation.cmp(&incarnation) {
                Ordering::Greater | Ordering::Equal => return self.expect_claimed(name, key),
                Ordering::Less => {}
            }
            if node == *name {
                // A node vouches against itself.
                self.placements.unwant(&older);
            }
            if !is_over {
                self.expect_recording(&node, older);
            }
            self.carry_counts(id, done);
        }
        if stage == (Stage::Ended { closed: false }) {
            self.pools.revive(id.pool);
        }
        let session = Session::adopted(report, self.members.get(name), name);
        if let Some(pool) = self.pools.get_mut(&id.pool) {
            pool.unknown_past |= session.replaces;
        }
        self.pools.insert_session(id, session);
        let env = if report.replay.is_some() { "".into() } else { report.env.clone() };
        let load = self.placed_lanes(name, &env, lanes);
        self.placements.claim(key, name, load);
        if matches!(stage, Stage::Closing { .. } | Stage::Ended { closed: true }) {
            // Its owner has no use for it any more; what it recorded counts.
            self.placements.unwant(&key);
        }
    }

    /// Takes over a session that an earlier coordinator placed, and that was over before this one heard of it.
    pub(crate) fn claim_over(&mut self, name: &Arc<str>, report: &SessionReport) {
        let key = (report.session, report.incarnation);
        let current = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(&key));
        match current.map(|session| *session.node == **name) {
            Some(true) => {}
            Some(false) => self.expect_claimed(name, key),
            None => self.claim(name, report),
        }
    }

    /// Notes that a node may have recorded something of a session that another has as well, of an earlier coordinator.
    fn expect_claimed(&mut self, name: &Arc<str>, key: Key) {
        if key.1.term < self.term {
            self.expect_recording(name, key);
        }
    }

    /// Returns the stage of the pool to which a claimed session belongs. The pool is made if need be. `None` if the
    /// session is not to be taken over.
    fn claimed_pool(&mut self, report: &SessionReport) -> Option<Stage> {
        let SessionReport { session, first_lane, lanes, pool_lanes, .. } = *report;
        let end = first_lane.checked_add(lanes)?;
        let sound = lanes > 0
            && end <= pool_lanes
            && pool_lanes as usize <= MAX_LANES
            && (session.index as usize) < MAX_POOL_SESSIONS
            && is_pool_of(&report.owner, session.pool);
        if !sound {
            return None;
        }
        if self.pools.get(&session.pool).is_none() {
            if self.pools.is_closed_unseen(&session.pool) {
                return None;
            }
            self.pools.insert(session.pool, Pool::adopted(report));
        }
        let pool = self.pools.get(&session.pool)?;
        let fits = pool.asked.is_none()
            && *pool.owner == *report.owner
            && pool.lanes == pool_lanes
            && pool.are_free(session.index, first_lane, end);
        fits.then_some(pool.stage)
    }

    /// Returns the sessions that a node runs and that it is to close, because nobody wants them.
    pub(crate) fn strays(&mut self, name: &Arc<str>) -> Vec<CloseSession> {
        let removed = self.placements.removed();
        let Some(member) = self.members.get(name).filter(|member| member.sessions.strayless != Some(removed))
        else {
            return Vec::new();
        };
        let (mut strays, mut lanes, mut unknown) = (Vec::new(), 0u32, false);
        for (key @ &(session, incarnation), of) in member.sessions.view.sessions() {
            if self.placements.is_on(key, name) {
                continue;
            }
            unknown = true;
            lanes = lanes.saturating_add(of);
            if strays.len() < MAX_CLOSES && self.is_unwanted(key) {
                strays.push(CloseSession { session, incarnation });
            }
        }
        if let Some(member) = self.members.get_mut(name) {
            member.sessions.strayless = (!unknown).then_some(removed);
            member.sessions.stray_lanes = lanes;
        }
        strays
    }

    /// Returns whether it is known that nobody wants a session that is no known placement of its node. That another node
    /// claims to have it is no reason.
    fn is_unwanted(&self, &(session, incarnation): &Key) -> bool {
        if incarnation.term >= self.term {
            // What this coordinator has placed it knows.
            return true;
        }
        let Some(pool) = self.pools.get(&session.pool) else {
            return self.pools.is_closed_unseen(&session.pool);
        };
        let newer = |known: &Session| !known.is_claimed() && known.incarnation > incarnation;
        let closed = matches!(pool.stage, Stage::Closing { .. } | Stage::Ended { closed: true });
        closed || pool.asked.is_some() || pool.sessions.get(&session.index).is_some_and(newer)
    }

    /// Drops what nodes claim of an owner's pool and its owner says otherwise.
    pub(crate) fn believe_owner(&mut self, asker: &Asker, request: &ReplaceSession, out: &mut Actions) {
        let id = request.open.pool;
        let Some(pool) = self.pools.get_mut(&id).filter(|pool| *pool.owner == *asker.owner) else { return };
        if !matches!(pool.stage, Stage::Open | Stage::Ended { closed: false }) || pool.asked.is_some() {
            return;
        }
        let other_pool = pool.recipe.is_none() && pool.lanes != request.open.lanes;
        let wrong = pool.sessions.iter().filter(|(index, session)| {
            session.is_claimed() && (other_pool || contradicts(**index, session, request))
        });
        let named =
            |(&index, session): (&u32, &Session)| (SessionId { pool: id, index }, session.incarnation);
        let wrong: Vec<Key> = wrong.map(named).collect();
        for (session, _) in &wrong {
            pool.sessions.remove(&session.index);
        }
        if other_pool && pool.sessions.is_empty() {
            pool.lanes = request.open.lanes;
        }
        for key in wrong {
            self.unwant_now(&key, out);
        }
    }

    /// Has a placement closed by its node.
    fn unwant_now(&mut self, key: &Key, out: &mut Actions) {
        let Some(node) = self.placements.get(key).map(|placement| Arc::clone(&placement.node)) else {
            return;
        };
        self.placements.unwant(key);
        self.close_unwanted(&node, out);
    }

    /// Has all placements of a pool closed, those that are not current among them.
    pub(crate) fn unwant_pool(&mut self, id: RunId, out: &mut Actions) {
        let placed: Vec<(Key, Arc<str>)> =
            self.placements.of_pool(id).map(|(key, node)| (*key, Arc::clone(node))).collect();
        for (key, _) in &placed {
            self.placements.unwant(key);
        }
        for (_, node) in &placed {
            self.close_unwanted(node, out);
        }
    }

    /// Has claimed placements of a session closed, which has another place at its owner's request.
    pub(crate) fn unwant_claims_of(&mut self, key: &Key, out: &mut Actions) {
        let claimed = self.placements.of_pool(key.0.pool).map(|(key, _)| *key);
        let older = claimed.filter(|(session, placed)| *session == key.0 && placed.term < self.term);
        let older: Vec<Key> = older.collect();
        for key in older {
            self.unwant_now(&key, out);
        }
    }

    /// Forgets the sessions that a node claims, because it is not believed any more. When it registers again it tells of
    /// all that it has. That recordings of them may be missing stays: a pool is never called stored for want of news.
    pub(crate) fn disbelieve(&mut self, name: &Arc<str>, out: &mut Actions) {
        let claimed = self.placements.claimed_by(name);
        for key in &claimed {
            self.placements.remove(key);
        }
        for id in self.pools.disbelieve(name) {
            self.kept.remove(&id);
            self.settle(id, out);
        }
        if let Some(member) = self.members.get_mut(name) {
            member.sessions = Default::default();
        }
    }
}

/// Returns whether a claimed session cannot be one of a pool of which its owner says that.
fn contradicts(index: u32, claimed: &Session, said: &ReplaceSession) -> bool {
    if index != said.index {
        let (end, said_end) =
            (claimed.first_lane + claimed.lanes, said.first_lane.saturating_add(said.lanes));
        return claimed.first_lane < said_end && said.first_lane < end;
    }
    let elsewhere =
        claimed.incarnation == said.incarnation && !said.node.is_empty() && *claimed.node != *said.node;
    elsewhere || (claimed.first_lane, claimed.lanes) != (said.first_lane, said.lanes)
}
