//! Grants to watch sessions: the cluster finds the session, and its node admits the watcher.

use std::time::Duration;

use rollhouse_wire::{
    AdmitWatcher, CallError, Refusal, Request, Responder, Role, StreamLost, Watch, WatchGrant,
    WatcherAdmitted,
};
use tokio::sync::oneshot;

use crate::actor::{Look, ViewReply, ViewRequest};
use crate::service::{Service, going_away, no_room};

impl Service {
    /// Answers with the place at which a session can be watched, and the key. The session's node gives the key, so that
    /// a coordinator that has just started can answer as well. The frames do not pass through the coordinator.
    pub(crate) async fn watch(&self, watch: Watch, responder: Responder) -> Result<(), StreamLost> {
        match self.watch_grant(watch, &responder).await {
            Ok(grant) => responder.respond(Ok(grant)).await,
            Err(refusal) => self.refuse(responder, refusal).await,
        }
    }

    async fn watch_grant(&self, Watch { session }: Watch, asker: &Responder) -> Result<WatchGrant, Refusal> {
        let (reply, heard) = oneshot::channel();
        let asked = self.actor.try_send(Look { what: ViewRequest::Watch(session), reply });
        asked.map_err(|error| no_room(&error))?;
        let (place, node) = match heard.await {
            Ok(ViewReply::Watch(found)) => found?,
            Ok(_) | Err(_) => return Err(going_away()),
        };
        let (owner, operates) = (asker.peer().owner(), asker.peer().role == Role::Admin);
        let admit = AdmitWatcher { session, incarnation: place.incarnation, owner, operates };
        let request = Request::AdmitWatcher(admit);
        let admitted = node.call_for::<WatcherAdmitted>(&request, asker.call(), ADMIT_DEADLINE).await;
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
