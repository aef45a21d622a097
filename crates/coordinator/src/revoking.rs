//! Revocation: owners that are not believed any more lose their pools, and nodes their registration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;

use crate::cluster::Cluster;
use crate::event::{Actions, LinkId};
use crate::pool::Stage;

impl Cluster {
    /// Returns the owners of pools that are open or being opened.
    pub fn owners(&self) -> BTreeSet<Arc<str>> {
        let used = self.pools.iter().filter(|(_, pool)| is_used(pool.stage));
        used.map(|(_, pool)| Arc::clone(&pool.owner)).collect()
    }

    /// Ends every pool of an owner, as if the owner had closed them: nodes are asked to end the sessions, and asked
    /// again until they have. The pools' statuses give the reason.
    pub(crate) fn revoke(&mut self, now: Duration, owner: &str, why: &str, out: &mut Actions) {
        let theirs = self.pools.iter().filter(|(_, pool)| &*pool.owner == owner && is_used(pool.stage));
        let theirs: Vec<RunId> = theirs.map(|(id, _)| *id).collect();
        for id in theirs {
            if let Some(pool) = self.pools.get_mut(&id) {
                pool.failed(format!("closed, as its owner `{owner}` is not admitted any more: {why}"));
            }
            self.begin_to_close(now, id, None, out);
        }
    }

    /// Handles a node that is not believed any more: it is lost at once, so that its sessions get other places, and
    /// stays so until it registers again.
    pub(crate) fn link_refused(&mut self, now: Duration, link: LinkId, out: &mut Actions) {
        let Some(name) = self.members.link_refused(link) else { return };
        self.node_lost(now, &name, out);
    }
}

/// Returns whether the owner of a pool at that stage has lanes of it, or is about to have them.
const fn is_used(stage: Stage) -> bool {
    matches!(stage, Stage::Opening | Stage::Open)
}
