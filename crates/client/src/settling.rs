//! Settles sessions before a request: they leave nodes that go away, and lanes that were reported as lost begin anew.

use std::time::Duration;

use tokio::time::Instant;

use crate::carrier::Carrier;
use crate::pool::AsyncPool;
use crate::pool_session::{PoolSession, Way};
use crate::session::OnLoss;

impl AsyncPool {
    /// Settles every session that has something to settle, before a request that will `reset` all lanes or not. Takes a
    /// moment, unless a node is being waited for.
    pub(crate) async fn settle_sessions(&mut self, deadline: Instant, reset: bool) {
        self.carrier.network().look_at_nodes();
        self.leave_lost_memory();
        let now = self.carrier.now();
        let leaves = |site: &PoolSession| site.session.is_leaving() && site.session.can_leave(now);
        if self.in_place && self.sessions.iter().any(leaves) {
            self.leave_memory();
        }
        let due = |site: &PoolSession| {
            site.session.is_leaving() || site.session.gone().is_some_and(|gone| gone.reported)
        };
        if self.sessions.iter().any(due) {
            Box::pin(self.settle_due(due, deadline, reset)).await;
        }
    }

    async fn settle_due(&mut self, due: impl Fn(&PoolSession) -> bool, deadline: Instant, reset: bool) {
        let learned = reset && self.kind.spec.source.is_learned();
        let within = if learned { LEARN_WITHIN } else { SETTLE_WITHIN };
        let deadline = deadline.min(Instant::now() + within);
        let Self { sessions, carrier, .. } = self;
        let way = Way { carrier, deadline: carrier.at(deadline) };
        let mut begun = Vec::new();
        for site in sessions.iter_mut().filter(|site| due(site)) {
            // What is dropped at the deadline is taken up again by the next call.
            if tokio::time::timeout_at(deadline, site.settle(&way, reset)).await == Ok(true) {
                begun.push(site.lanes().clone());
            }
        }
        for lanes in begun {
            if let Some(lost) = self.lost.get_mut(lanes.clone()) {
                lost.fill(None);
            }
            // They wait for a reset, which autoreset gives them.
            self.over[lanes].fill(1);
        }
        self.tidy_losses();
    }

    pub(crate) fn reports_losses(&self) -> bool {
        self.recipe.on_loss == OnLoss::Report
    }
}

/// Time for which a call is held up for lanes that the others do not need.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);

/// Time for which a reset of all lanes is held up for those of an env that another node has to learn first, which takes as
/// long as its packages take to import.
const LEARN_WITHIN: Duration = Duration::from_secs(30);
