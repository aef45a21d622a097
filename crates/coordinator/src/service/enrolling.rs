//! Certificates behind requests: nodes ask for them, and what has to be read and written is done on threads of its own.

use std::sync::Arc;
use std::time::SystemTime;

use rollhouse_wire::{Enroll, Enrolled, Peer, Refusal, RefusalCode, Responder, Role, StreamLost, Validity};
use tracing::{info, warn};

use crate::figures::CertificateFor;
use crate::service::Service;

impl Service {
    /// Answers a request with a certificate or a refusal.
    pub(crate) async fn enroll(
        self: &Arc<Self>,
        peer: &Peer,
        enroll: Enroll,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let given = self.give(peer, &enroll).await;
        let what = if peer.role == Role::Join { CertificateFor::Join } else { CertificateFor::Renewal };
        self.published.enrolled(what, given.as_ref().err().map(|refusal| refusal.code));
        self.answer(responder, given).await
    }

    async fn give(self: &Arc<Self>, peer: &Peer, enroll: &Enroll) -> Result<Enrolled, Refusal> {
        let joins = peer.role == Role::Join;
        self.office.pace(peer)?;
        if joins {
            self.name_is_free(&enroll.node).await?;
        }
        let asked = self.office.admit(peer, enroll)?;
        let (node, key) = (asked.node.clone(), asked.key.digest());
        let service = Arc::clone(self);
        // Task: file operation.
        let issuing = tokio::task::spawn_blocking(move || service.office.issue(&asked));
        let failed = |_| Refusal::new(RefusalCode::Internal, "making the certificate failed");
        let issued = issuing.await.map_err(failed).flatten();
        let (enrolled, issued) = issued.inspect_err(|_| self.office.given().failed(&node, key))?;
        let verb = if joins { "joins by the token of" } else { "renews its certificate as" };
        let left = days_left(issued.validity);
        info!(node, "node {node} {verb} {peer}: it holds {left}");
        if issued.is_cut_short {
            let what = "a node's certificate holds shorter than coordinator.node_validity, because the issuer's does; \
                        `rollhouse certs issuer` makes another";
            warn!("{what}");
        }
        Ok(enrolled)
    }

    async fn name_is_free(&self, node: &str) -> Result<(), Refusal> {
        let node = node.to_owned();
        self.see(move |actor, now| actor.cluster().name_is_free(now, &node)).await?
    }
}

fn days_left(validity: Validity) -> String {
    let now = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let left = validity.left(now).as_secs();
    match left / 86_400 {
        0 => format!("{left} s"),
        days => format!("{days} days"),
    }
}
