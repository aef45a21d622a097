//! Leases of pools that play by themselves: they end when their owner is not heard of any more.
//!
//! ```text
//! (opened as leased, or kept by its owner) -> kept --asked for again in time--> kept
//!                                             kept --not heard of for the lease--> closing
//! ```
//!
//! Nodes keep the lease of sessions that an owner steps. For pools that play by themselves only the coordinator hears
//! of the owner; a coordinator that has just started hears of the owner with its next status request.

use std::time::Duration;

use rollhouse_core::RunId;

use crate::cluster::Cluster;
use crate::event::{Actions, Asker};
use crate::limits::ROLLOUT_LEASE;
use crate::pool::Stage;

impl Cluster {
    /// Renews the lease of a pool, if the asker is its owner.
    pub(crate) fn keep(&mut self, now: Duration, asker: &Asker, id: RunId) {
        let pool = self.pools.get(&id);
        if pool.is_some_and(|pool| *pool.owner == *asker.owner && pool.is_live() && pool.plays_by_itself()) {
            self.kept.insert(id, now);
        }
    }

    /// Closes the pools whose lease has ended.
    pub(crate) fn end_unkept(&mut self, now: Duration, out: &mut Actions) {
        let over = self.kept.iter().filter(|(_, heard)| now.saturating_sub(**heard) >= ROLLOUT_LEASE);
        let over: Vec<RunId> = over.map(|(&id, _)| id).collect();
        for id in over {
            self.kept.remove(&id);
            let Some(pool) = self.pools.get_mut(&id) else { continue };
            match pool.stage {
                // Who asked for it waits for the answer: until it is given nothing else can be heard.
                Stage::Opening => {
                    self.kept.insert(id, now);
                }
                Stage::Open => {
                    let lease = ROLLOUT_LEASE.as_secs();
                    pool.failed(format!("closed: its owner did not answer for {lease} s"));
                    self.begin_to_close(now, id, None, out);
                }
                Stage::Closing { .. } | Stage::Ended { .. } => {}
            }
        }
    }
}
