//! Sessions that play by themselves go on elsewhere when their node is lost or goes away.
//!
//! ```text
//! running --its node is lost, ends it as it drains--> opening elsewhere --> running, newer incarnation
//!                                                     no node takes it --> lost; tried with each tick --too long--> over
//! lost --its node comes back first--> running
//! ```
//!
//! Nobody asks for it: nobody steps such lanes. Their node reports where they stand. What they had recorded before is safe once
//! as much has left the node's spool as was in it, and from there they go on. What was played since is played again, under the
//! same names and with the same numbers, so that the store takes either copy. Of lanes that are not deterministic the open
//! episodes are lost, and they begin others.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{Determinism, Interruption, Outcome};
use rollhouse_wire::{EndCause, NodeLoad, SessionId, SessionStanding, Standing};

use crate::cluster::{Cluster, Over};
use crate::event::Actions;
use crate::layout::Share;
use crate::limits::RESUME_WITHIN;
use crate::placements::Key;
use crate::pool::{Pool, Replacing, SessionState, Stage};

impl Cluster {
    /// Takes in where lanes stand on a node, and how much has left its spool.
    pub(crate) fn take_standings(&mut self, node: &Arc<str>, load: &NodeLoad, reports: &[SessionStanding]) {
        self.standings.shipped(node, load);
        for SessionStanding { session, incarnation, standing } in reports {
            let key = (*session, *incarnation);
            if self.placements.wanted_on(&key, node) != Some(true) {
                continue;
            }
            let Some(pool) = self.pools.get_mut(&session.pool) else { continue };
            // Lanes that are not deterministic play nothing again.
            let (is_needed, plays) = (pool.is_recorded() && pool.is_deterministic(), pool.plays_by_itself());
            let fits = pool.current(&key).is_some_and(|s| s.lanes as usize == standing.lanes.len());
            if fits && plays {
                self.standings.report(node, key, load, is_needed, standing.clone());
            }
        }
    }

    /// Has the lanes of a placement go on elsewhere, if they play by themselves and are to go on. Returns whether they are; for
    /// as long as no node takes them the session is lost.
    pub(crate) fn go_on_elsewhere(&mut self, now: Duration, key: &Key, out: &mut Actions) -> bool {
        if !self.goes_on(key) {
            return false;
        }
        let pool = self.pools.get_mut(&key.0.pool);
        let Some(session) = pool.and_then(|pool| pool.current(key)) else { return false };
        session.state = SessionState::Lost;
        let (node, first_lane, lanes) = (Arc::clone(&session.node), session.first_lane, session.lanes);
        self.standings.homeless.entry(*key).or_insert(now);
        let not = [Arc::clone(&node)];
        let is_gone = self.placements.get(key).is_none();
        let another = self.another_for(now, key.0.pool, lanes, &not);
        // It returns to the same node only if that one has restarted.
        let another = another.or_else(|| self.another_for(now, key.0.pool, lanes, &[]).filter(|_| is_gone));
        let Some(another) = another else { return true };
        self.leave(key, &node);
        self.close_unwanted(&node, out);
        let replacing = Replacing { waiters: Vec::new(), previous: None, earlier: None, may_pass: false };
        self.assign_anew(key.0, first_lane, Share { node: another, lanes }, Vec::new(), replacing, out);
        true
    }

    /// Leaves a placement whose lanes go on elsewhere, and notes from where.
    fn leave(&mut self, key: &Key, node: &Arc<str>) {
        self.placements.unwant(key);
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let is_deterministic = pool.is_deterministic();
        let standing = self.standings.take(node, key);
        self.standings.homeless.remove(key);
        if let Some(standing) = standing {
            let mut done = standing.done;
            if !is_deterministic {
                let lost = Outcome::Interrupted(Interruption::NodeLost).code();
                done.interrupted += standing.open();
                done.detail.outcomes.0[usize::from(lost)] += standing.open();
            }
            pool.before.entry(key.0.index).or_default().add(&done);
            pool.resumes.insert(key.0.index, standing);
        }
        if !is_deterministic {
            // What it recorded is nowhere else.
            self.expect_recording(node, *key);
        }
    }

    /// Looks again for places for sessions that have none, and gives up those that have waited too long.
    pub(crate) fn find_places(&mut self, now: Duration, out: &mut Actions) {
        for (key, since) in self.standings.homeless.clone() {
            let pool = self.pools.get_mut(&key.0.pool);
            let is_lost =
                pool.and_then(|pool| pool.current(&key)).is_some_and(|s| s.state == SessionState::Lost);
            if !is_lost {
                self.standings.homeless.remove(&key);
            } else if now.saturating_sub(since) >= RESUME_WITHIN {
                self.standings.homeless.remove(&key);
                self.over_unheard(&key, out);
            } else {
                self.go_on_elsewhere(now, &key, out);
            }
        }
    }

    /// Notes that no node has taken a session that was to go on elsewhere: others are asked later.
    pub(crate) fn stays_lost(&mut self, now: Duration, key: &Key) -> bool {
        if !self.goes_on(key) {
            return false;
        }
        let pool = self.pools.get_mut(&key.0.pool);
        let Some(session) = pool.and_then(|pool| pool.current(key)) else { return false };
        session.state = SessionState::Lost;
        self.standings.homeless.entry(*key).or_insert(now);
        true
    }

    /// Notes that a placement is gone from its node: its lanes go on elsewhere, or its session is over.
    pub(crate) fn over_or_on(&mut self, now: Duration, key: &Key, over: &Over<'_>, out: &mut Actions) {
        let goes_away = matches!(over.cause, EndCause::NodeLost | EndCause::Drained);
        if !goes_away || !self.goes_on(key) {
            return self.session_over(key, over, out);
        }
        if let Some(placement) = self.placements.remove(key) {
            self.forget_on(&placement.node, key);
        }
        self.go_on_elsewhere(now, key, out);
    }

    /// Returns whether the lanes of a current placement go on elsewhere by themselves.
    fn goes_on(&mut self, key: &Key) -> bool {
        let pool = self.pools.get_mut(&key.0.pool).filter(|pool| pool.stage == Stage::Open && pool.goes_on());
        pool.and_then(|pool| pool.current(key)).is_some_and(|session| !session.is_over())
    }
}

impl Pool {
    /// Returns whether its sessions go on elsewhere by themselves.
    pub(crate) fn goes_on(&self) -> bool {
        self.opened_as().is_some_and(|open| open.settings.collect.is_some())
    }

    /// Returns whether its lanes do the same again wherever they are.
    fn is_deterministic(&self) -> bool {
        let spec = self.asked.as_ref().and_then(|asked| asked.spec.as_ref());
        spec.is_some_and(|spec| spec.determinism == Determinism::Deterministic)
    }

    /// Returns where the lanes of a session go on.
    pub(crate) fn resume(&self, session: SessionId) -> Option<Box<Standing>> {
        self.resumes.get(&session.index).cloned().map(Box::new)
    }
}
