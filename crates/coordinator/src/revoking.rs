//! Revocation: owners that are not believed any more lose their pools, and nodes their registration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;

use crate::cluster::Cluster;
use crate::event::{Actions, LinkId};
use crate::pool::{Pool, Stage};

impl Cluster {
    /// Returns the owners of pools that are open or being opened.
    pub fn owners(&self) -> BTreeSet<Arc<str>> {
        let mut owners = BTreeSet::new();
        for (_, pool) in self.pools.iter().filter(|(id, pool)| self.is_used(**id, pool.stage)) {
            // An owner may have thousands of pools: to sort them all would take longer than to look for each.
            if !owners.contains(&pool.owner) {
                owners.insert(Arc::clone(&pool.owner));
            }
        }
        owners
    }

    /// Ends every pool of an owner, as if the owner had closed them: nodes are asked to end the sessions, and asked
    /// again until they have. The pools' statuses give the reason.
    pub(crate) fn revoke(&mut self, now: Duration, owner: &str, why: &str, out: &mut Actions) {
        let is_theirs =
            |(id, pool): &(&RunId, &Pool)| &*pool.owner == owner && self.is_used(**id, pool.stage);
        let theirs = self.pools.iter().filter(is_theirs);
        let theirs: Vec<RunId> = theirs.map(|(id, _)| *id).collect();
        for id in theirs {
            if let Some(pool) = self.pools.get_mut(&id) {
                pool.failed(format!("closed, as its owner `{owner}` is not admitted any more: {why}"));
            }
            self.pools.revive(id);
            self.begin_to_close(now, id, None, out);
        }
    }

    /// Returns whether the owner of a pool at that stage has lanes of it, or is about to have them.
    fn is_used(&self, id: RunId, stage: Stage) -> bool {
        match stage {
            Stage::Opening | Stage::Open => true,
            Stage::Ended { closed: false } => self.placements.of_pool(id).next().is_some(),
            Stage::Closing { .. } | Stage::Ended { closed: true } => false,
        }
    }

    /// Handles a node that is not believed any more: it is lost at once, so that its sessions get other places, and
    /// stays so until it registers again. What it claims of earlier coordinators' sessions is forgotten.
    pub(crate) fn link_refused(&mut self, now: Duration, link: LinkId, out: &mut Actions) {
        let Some(name) = self.members.link_refused(link) else { return };
        self.disbelieve(&name, out);
        self.node_lost(now, &name, out);
    }
}
