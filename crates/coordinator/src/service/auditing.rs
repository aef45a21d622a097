//! The audit behind requests: what changes something for others is written down before it is done.

use std::sync::Arc;

use rollhouse_wire::{
    AuditQuery, Connection, PolicyRef, Refusal, RefusalCode, Request, Responder, Role, StoreLabelChange,
    StreamLost,
};
use tracing::error;

use crate::audit::AuditedChange;
use crate::service::streaming::blocking;
use crate::service::{Reader, Service};

impl Service {
    /// Writes a line about the change that a request asks for, if it is one that is audited.
    ///
    /// # Errors
    /// The line cannot be written; the change is refused then.
    pub(crate) async fn audited(
        self: &Arc<Self>,
        connection: &Connection,
        request: &Request,
    ) -> Result<(), Refusal> {
        let peer = connection.peer();
        let Some((action, subject)) = change(peer.role, request) else { return Ok(()) };
        let (by, from) = (peer.to_string(), peer.address.to_string());
        let change = AuditedChange { by, from, action, subject };
        let audit = Arc::clone(&self.published.audit);
        // Task: file operation.
        let written = tokio::task::spawn_blocking(move || audit.write(change)).await;
        let why = match written {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => why.to_string(),
            Err(_) => "the system refuses a thread".to_owned(),
        };
        error!("the audit cannot be written, so that `{action}` is refused: {why}");
        let message =
            format!("`{action}` is not done, because the coordinator's audit cannot be written: {why}");
        Err(Refusal::new(RefusalCode::Internal, message))
    }

    /// Answers with a page of the audit.
    pub(crate) async fn audit_page(
        &self,
        query: AuditQuery,
        reader: &Reader,
        responder: Responder,
    ) -> Result<(), StreamLost> {
        let audit = Arc::clone(&self.published.audit);
        let page = {
            // Files are read one at a time, as the store's are for whoever asks it.
            let _turn = self.places.questions.turn(&reader.claimant).await;
            blocking(move || Ok(audit.page(query))).await
        };
        let unread =
            |why: String| Refusal::new(RefusalCode::Internal, format!("the audit cannot be read: {why}"));
        self.answer(responder, page.and_then(|page| page.map_err(|error| unread(error.to_string())))).await
    }
}

/// Returns the kind of change that a request asks for, and what it changes; `None` for what is not audited. What owners do
/// with their own pools is not: the log has it, and their lines would drive out those of others.
fn change(role: Role, request: &Request) -> Option<(&'static str, String)> {
    Some(match request {
        Request::ClosePool(close) if role == Role::Admin => ("close_pool", close.pool.to_string()),
        Request::RemovePolicy(remove) if role == Role::Admin => {
            let policy = PolicyRef { name: remove.name.clone(), version: remove.version };
            ("remove_policy", policy.to_string())
        }
        Request::Drain(drain) => ("drain", drain.node.clone()),
        Request::Undrain(undrain) => ("undrain", undrain.node.clone()),
        Request::Enroll(enroll) if role == Role::Join => ("certificate_join", enroll.node.clone()),
        Request::Enroll(enroll) => ("certificate_renewal", enroll.node.clone()),
        Request::StoreRepair(repair) => ("repair", repair.path.clone()),
        Request::StoreLabel(label) if role == Role::Admin => {
            let what = match &label.change {
                StoreLabelChange::Pin { pinned: true } => "pin".to_owned(),
                StoreLabelChange::Pin { pinned: false } => "unpin".to_owned(),
                StoreLabelChange::Tag { tags } => format!("tag {}", tags.join(" ")),
                StoreLabelChange::Untag { tags } => format!("untag {}", tags.join(" ")),
                StoreLabelChange::Note { .. } => "note".to_owned(),
            };
            ("label", format!("{}-{}-{} {what}", label.run, label.lane, label.number))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rollhouse_core::RunId;
    use rollhouse_wire::{RemovePolicy, StoreLabel};

    use super::*;

    #[test]
    fn what_an_admin_removes_of_policies_is_audited_and_what_an_owner_removes_is_not() {
        let remove = RemovePolicy { name: "pong".to_owned(), version: Some(3) };
        let request = Request::RemovePolicy(remove);
        assert_eq!(change(Role::Admin, &request), Some(("remove_policy", "pong@3".to_owned())));
        assert_eq!(change(Role::Trainer, &request), None);
    }

    #[test]
    fn what_an_admin_pins_is_audited_and_what_an_owner_pins_is_not() {
        let pin = StoreLabelChange::Pin { pinned: true };
        let label = StoreLabel { run: RunId::from_u128(7), lane: 1, number: 2, change: pin };
        let request = Request::StoreLabel(label);
        let (kind, subject) = change(Role::Admin, &request).unwrap();
        assert_eq!((kind, subject.ends_with("-1-2 pin")), ("label", true), "{subject}");
        assert_eq!(change(Role::Trainer, &request), None);
    }
}
