//! Grants to watch sessions: the cluster finds the session, and its node admits the watcher.

use std::time::Duration;

use rollhouse_wire::{
    AdmitWatcher, CallError, Refusal, Responder, Role, StreamLost, Watch, WatchGrant, WatcherAdmitted,
};

use crate::service::Service;

impl Service {
    /// Answers with the place at which a session can be watched, and the key. The session's node gives the key, so that
    /// a coordinator that has just started can answer as well. The frames do not pass through the coordinator.
    pub(crate) async fn watch(&self, watch: Watch, responder: Responder) -> Result<(), StreamLost> {
        let grant = self.watch_grant(watch, &responder).await;
        self.answer(responder, grant).await
    }

    async fn watch_grant(&self, Watch { session }: Watch, asker: &Responder) -> Result<WatchGrant, Refusal> {
        let (place, node) = self.see(move |actor, now| actor.watch_place(now, session)).await??;
        let (owner, operates) = (asker.peer().owner(), asker.peer().role == Role::Admin);
        let admit = AdmitWatcher { session, incarnation: place.incarnation, owner, operates };
        let admitted = node.call_for(admit, asker.call(), ADMIT_DEADLINE).await;
        let WatcherAdmitted { key } = admitted.map_err(|error| match error {
            CallError::Refused(refusal) => refusal,
            _ => Refusal::busy(format!("the node of session {session} does not answer"), ADMIT_RETRY_MS),
        })?;
        let (incarnation, node, address) = (place.incarnation, place.node, place.address);
        Ok(WatchGrant { session, incarnation, key, node, address })
    }
}

/// Time within which a living node answers a question that needs only a look-up.
const ADMIT_DEADLINE: Duration = Duration::from_secs(2);
const ADMIT_RETRY_MS: u64 = 500;
