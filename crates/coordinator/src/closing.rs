//! Closing pools: nodes are asked to end their sessions, and asked again until they have.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{EndCause, Refusal, RefusalCode, SessionEnd, is_pool_of};

use crate::cluster::{Cluster, Over};
use crate::event::{Actions, Asker, CallFailure, Reply, Ticket};
use crate::limits::{CLOSE_PATIENCE, MAX_WAITERS, RETRY_AFTER};
use crate::opening::stale;
use crate::placements::Key;
use crate::pool::{Pool, SessionState, Stage};

impl Cluster {
    /// Closes a pool. The answer waits until the nodes have said that the sessions are over, or for [`CLOSE_PATIENCE`];
    /// the nodes are asked until they have in any case.
    pub(crate) fn close_pool(
        &mut self,
        now: Duration,
        ticket: Ticket,
        asker: &Asker,
        id: RunId,
        out: &mut Actions,
    ) {
        let Some(pool) = self.pools.get_mut(&id) else {
            let refusal = self.unknown_pool(now, id);
            if refusal.code == RefusalCode::NotFound && is_pool_of(&asker.owner, id) {
                self.waiting.closed(id);
                self.pools.close_unseen(id, &asker.owner);
            }
            return out.refuse(ticket, refusal);
        };
        if *pool.owner != *asker.owner && !asker.admin {
            let message = format!("pool {id} has another owner");
            return out.refuse(ticket, Refusal::new(RefusalCode::Forbidden, message));
        }
        match pool.stage {
            Stage::Ended { closed: false } if self.placements.of_pool(id).next().is_some() => {
                // A placement that another took the place of is still there.
                self.pools.revive(id);
                self.begin_to_close(now, id, Some(ticket), out);
            }
            Stage::Ended { .. } => {
                let status = self.pools.get(&id).map(|pool| self.status_of(pool)).unwrap_or_default();
                out.answer(ticket, Reply::PoolClosed(Box::new(status)));
            }
            Stage::Closing { .. } if pool.waiters.len() >= MAX_WAITERS => {
                let message = format!("{MAX_WAITERS} requests wait for pool {id}, which is as many as may");
                out.refuse(ticket, Refusal::busy(message, RETRY_AFTER.as_millis() as u64));
            }
            Stage::Closing { .. } => pool.waiters.push(ticket),
            Stage::Opening | Stage::Open => self.begin_to_close(now, id, Some(ticket), out),
        }
    }

    /// Closes a pool that is open or opening, and adds the request to those that wait for it.
    pub(crate) fn begin_to_close(
        &mut self,
        now: Duration,
        id: RunId,
        waiter: Option<Ticket>,
        out: &mut Actions,
    ) {
        self.waiting.closed(id);
        let Some(pool) = self.pools.get_mut(&id) else { return };
        for waiter in std::mem::replace(&mut pool.waiters, waiter.into_iter().collect()) {
            out.refuse(waiter, stale(id, "was closed while it opened"));
        }
        pool.stage = Stage::Closing { since: now };
        self.closing.push_back((now, id));
        self.begin_closing(id, out);
    }

    fn begin_closing(&mut self, id: RunId, out: &mut Actions) {
        self.stop_replacing(id, &stale(id, "was closed"), out);
        let Some(pool) = self.pools.get(&id) else { return };
        let keys = pool.running(id);
        self.unwant_pool(id, out);
        for key in &keys {
            let pool = self.pools.get_mut(&id);
            let lost = pool.and_then(|p| p.current(key)).is_some_and(|s| s.state == SessionState::Lost);
            if lost {
                self.over_unheard(key, out);
            }
        }
        self.settle(id, out);
    }

    /// Takes in a node's answer to the request to close a session.
    pub(crate) fn closed(
        &mut self,
        key: Key,
        result: Result<Box<SessionEnd>, CallFailure>,
        out: &mut Actions,
    ) {
        self.placements.close_answered(&key);
        match result {
            Ok(end) => {
                let over = Over { cause: end.cause, detail: &end.detail, done: Some(end.done) };
                self.session_over(&key, &over, out);
            }
            Err(CallFailure::Refused(refusal))
                if matches!(refusal.code, RefusalCode::NotFound | RefusalCode::Stale) =>
            {
                self.gone(&key, out);
            }
            // The node's next heartbeat or registration has it asked again.
            Err(CallFailure::Refused(_) | CallFailure::Unknown) => {}
        }
    }

    /// Handles a placement that was to be closed and is not on its node.
    pub(crate) fn gone(&mut self, key: &Key, out: &mut Actions) {
        self.session_over(key, &Over { cause: EndCause::Closed, detail: "", done: None }, out);
    }

    /// Stops waiting for a session that is being closed, because its node is lost. The placement stays, so that it is
    /// closed if the node comes back.
    pub(crate) fn over_unheard(&mut self, key: &Key, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let Some(session) = pool.current(key).filter(|session| !session.is_over()) else { return };
        session.state = SessionState::Ended(EndCause::NodeLost);
        let node = Arc::clone(&session.node);
        self.standings.forget(&node, key);
        self.expect_recording(&node, *key);
        self.settle(key.0.pool, out);
    }

    /// Answers requests that have waited long enough for pools to close.
    pub(crate) fn end_patience(&mut self, now: Duration, out: &mut Actions) {
        while let Some((since, id)) =
            self.closing.pop_front_if(|(since, _)| now.saturating_sub(*since) >= CLOSE_PATIENCE)
        {
            let waits = |pool: &Pool| matches!(pool.stage, Stage::Closing { since: at } if at == since);
            if self.pools.get(&id).is_some_and(waits) {
                self.end_closed(id, out);
            }
        }
    }

    /// Ends a closing pool and answers the requests that wait for it.
    pub(crate) fn end_closed(&mut self, id: RunId, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&id) else { return };
        let waiters: Vec<Ticket> = std::mem::take(&mut pool.waiters);
        let status = self.pools.get(&id).map(|pool| self.status_of(pool)).unwrap_or_default();
        for ticket in waiters {
            out.answer(ticket, Reply::PoolClosed(Box::new(status.clone())));
        }
        self.pools.end(id, true);
    }
}
