//! What is taken from those who are not believed any more: owners lose their pools, nodes their standing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;

use crate::event::Actions;
use crate::pool::Stage;
use crate::{Cluster, LinkId};

impl Cluster {
    /// The owners of pools that are open or being opened.
    pub fn owners(&self) -> BTreeSet<Arc<str>> {
        let used = self.pools.iter().filter(|(_, pool)| is_used(pool.stage));
        used.map(|(_, pool)| Arc::clone(&pool.owner)).collect()
    }

    /// Ends every pool of an owner, as if it had closed them: nodes are asked to end the sessions, and asked again until
    /// they have. The pools' statuses say why.
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

    /// A node is not believed any more: it is lost at once, so that its sessions get other places, and stays so until
    /// it registers again.
    pub(crate) fn link_refused(&mut self, now: Duration, link: LinkId, out: &mut Actions) {
        let Some(name) = self.members.link_refused(link) else { return };
        self.node_lost(now, &name, out);
    }
}

/// Whether its owner has, or is about to have, something of a pool at that stage.
const fn is_used(stage: Stage) -> bool {
    matches!(stage, Stage::Opening | Stage::Open)
}
