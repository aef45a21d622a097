//! The control of one session of the cluster: its lease, the report of what it has done, and its end.
//!
//! Its actor looks and ends; the decisions are its [`NodeSession`](crate::NodeSession)'s, in the table. Whoever wants
//! the end begins it there and leaves the cause here, where an actor finds it.

use std::sync::{Arc, Weak};

use rollhouse_core::cut_text;
use rollhouse_wire::limits::MAX_DETAIL_BYTES;
use rollhouse_wire::{EndCause, Incarnation, SessionEnd, SessionId};
use tracing::{Span, info};

use super::Hosting;
use crate::replay_session::ReplaySession;
use crate::session_actor::{Control, Supervised};
use crate::session_handle::SessionHandle;
use crate::session_status::SessionStatus;
use crate::{Exit, Gone};

/// A session of the cluster, as the table and its actors have it.
#[derive(Debug)]
pub(crate) struct SessionControl {
    /// Weak: the table of sessions is in there.
    hosting: Weak<Hosting>,
    id: SessionId,
    incarnation: Incarnation,
    pub(crate) handle: SessionHandle,
    pub(super) status: SessionStatus,
}

impl SessionControl {
    pub(super) fn new(
        hosting: &Arc<Hosting>,
        (id, incarnation): (SessionId, Incarnation),
        handle: SessionHandle,
        status: SessionStatus,
    ) -> Arc<Self> {
        Arc::new(Self { hosting: Arc::downgrade(hosting), id, incarnation, handle, status })
    }

    /// Controls the session to its end. An actor that goes on after another ends again what that had not ended.
    async fn run(&self) {
        let wanted = self.wanted().await;
        let Some(hosting) = self.hosting.upgrade().filter(|_| !self.is_over()) else { return };
        let gone = match &self.handle {
            SessionHandle::Owned(owned) => owned.end(wanted, &hosting.executor, &hosting.figures).await,
            SessionHandle::Collecting { .. } => {
                self.handle.tell(&hosting.figures);
                wanted
            }
            SessionHandle::Replay(_) => wanted,
        };
        if let Some(recorder) = hosting.recorder.clone() {
            // All it recorded is among the spool's bytes before its end is told. What cannot be written is counted
            // as lost by the recorder.
            // Task: write-out.
            let _written = tokio::task::spawn_blocking(move || recorder.write_out()).await;
        }
        self.tell(&hosting, gone);
    }

    /// Waits until the session is to end. One that plays by itself ends when its thread does, and says why.
    async fn wanted(&self) -> Gone {
        let SessionHandle::Collecting { stepping, .. } = &self.handle else {
            self.status.ending().await;
            return self.status.asked().map_or_else(unwatched, |(gone, _)| gone);
        };
        let exit = stepping.watch().await;
        let asked = self.status.asked().map_or(EndCause::Closed, |(gone, _)| gone.cause);
        let gone = gone_by(&exit, asked);
        self.begin_end(gone.cause);
        gone
    }

    /// Begins to end the session in the table, unless that was done. Returns whether it did.
    fn begin_end(&self, cause: EndCause) -> bool {
        let Some(hosting) = self.hosting.upgrade() else { return false };
        let now = hosting.now();
        hosting.table().begin_end(now, self.id, self.incarnation, cause).is_some()
    }

    /// Notes the end in the table, from which the coordinator is told of it.
    fn tell(&self, hosting: &Hosting, Gone { cause, detail }: Gone) {
        let why = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let asked_by = self.status.asked().map_or_else(Span::none, |(_, call)| call);
        asked_by.in_scope(|| {
            info!(cause = cause.word(), "session {} has ended: {}{why}", self.id, cause.word());
        });
        hosting.figures.session_ended(cause);
        if self.handle.replay().is_some() {
            hosting.figures.watching.replays.leave();
        }
        let (session, incarnation, done) = (self.id, self.incarnation, self.handle.counts());
        let mut table = hosting.table();
        let unreached = table.is_unreached(session);
        let detail = cut_text(detail, MAX_DETAIL_BYTES);
        let end = SessionEnd { session, incarnation, cause, detail, done, report: None, unreached };
        table.ended(hosting.now(), end.clone());
        drop(table);
        self.status.end(end);
    }

    /// Ends the session if its lease is over. Somebody who watches a recorded episode keeps it.
    fn look_at_lease(&self, hosting: &Hosting) {
        let lease = hosting.settings.lease;
        if self.handle.replay().is_some_and(|replay| replay.is_watched(lease)) {
            return;
        }
        let overdue = hosting.table().look(hosting.now(), self.id, self.incarnation);
        if overdue.is_some() {
            let detail = format!("nobody was attached for {} s", lease.as_secs());
            self.status.ask_to_end(Gone { cause: EndCause::LeaseEnded, detail });
        }
    }

    /// Ends a replay that cannot go on, or whose node drains: nothing is lost with it. Otherwise sees to it that its
    /// state is reported.
    fn look_at_replay(&self, hosting: &Hosting, replay: &ReplaySession) {
        let drained = || Gone { cause: EndCause::Drained, detail: "the node drains".to_owned() };
        if let Some(gone) = replay.gone().or_else(|| hosting.is_draining().then(drained)) {
            if self.begin_end(gone.cause) {
                self.status.ask_to_end(gone);
            }
        } else if replay.has_turned() {
            hosting.table().touch();
        }
    }
}

impl Supervised for SessionControl {
    fn control(self: Arc<Self>) -> Control {
        Box::pin(async move { self.run().await })
    }

    fn look(&self) {
        let Some(hosting) = self.hosting.upgrade() else { return };
        self.look_at_lease(&hosting);
        self.handle.tell(&hosting.figures);
        if let Some(replay) = self.handle.replay() {
            self.look_at_replay(&hosting, replay);
        }
    }

    fn is_over(&self) -> bool {
        self.status.is_over()
    }

    fn give_up(&self) {
        self.begin_end(EndCause::Failed);
        if let SessionHandle::Collecting { stepping, .. } = &self.handle {
            stepping.give_up();
        }
        let cut_short = |(gone, _)| Gone { detail: "its end was cut short".to_owned(), ..gone };
        let gone = self.status.asked().map_or_else(unwatched, cut_short);
        if let Some(hosting) = self.hosting.upgrade().filter(|_| !self.is_over()) {
            self.tell(&hosting, gone);
        }
    }
}

/// Returns why a session that played by itself is gone; `asked` is the cause for which it was asked to end, if it was.
fn gone_by(exit: &Exit, asked: EndCause) -> Gone {
    let (cause, detail) = match exit {
        Exit::Finished(_) => (EndCause::Finished, String::new()),
        Exit::Cancelled(_) => (asked, String::new()),
        Exit::Failed(error) => (EndCause::Failed, crate::causes::with_causes(error)),
        Exit::Panicked(message) => (EndCause::Failed, format!("its thread panicked: {message}")),
        Exit::Hung(still) => (EndCause::Hung, format!("no progress for {} ms", still.as_millis())),
        Exit::Unwatched => return unwatched(),
    };
    Gone { cause, detail }
}

fn unwatched() -> Gone {
    Gone { cause: EndCause::Failed, detail: "nobody watched it any more".to_owned() }
}
