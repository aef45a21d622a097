//! The recording of a session: it begins at the first reset, and threads that do not step the session can see it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use rollhouse_core::{Claimant, Interruption};
use rollhouse_engine::Engine;
use rollhouse_replay::{Recorder, RunRecorder};
use rollhouse_wire::Refusal;

use super::refusal_of;
use crate::causes::with_causes;
use crate::plan::SessionPlan;

/// The recording of a session's run, once there is something to record.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The recorder with which it begins at the first reset; `None` when nothing is recorded, and afterwards.
    waiting: Option<Arc<Recorder>>,
    run: Option<Arc<RunRecorder>>,
    watch: RecordingWatch,
    /// The flag that is raised to end the session.
    ending: Arc<AtomicBool>,
}

/// A view of the recording of a session that another thread may have. Does not keep the run open.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordingWatch(Arc<OnceLock<Weak<RunRecorder>>>);

impl Recording {
    /// Makes a recording that begins at the first reset, on that recorder; without one nothing is recorded.
    pub(super) fn on(recorder: Option<Arc<Recorder>>) -> Self {
        Self { waiting: recorder, ..Self::default() }
    }

    /// Returns the recording of a session that ends when `ending` is raised.
    pub(super) fn until(self, ending: Arc<AtomicBool>) -> Self {
        Self { ending, ..self }
    }

    /// Returns whether it begins at the next reset.
    pub(super) const fn is_to_begin(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns why nothing can be recorded now of that owner's session, while stepping is to wait for that: the disk takes
    /// nothing, or the spool is full or has the owner's share.
    pub(super) fn obstacle(&self, owner: &Claimant) -> Option<String> {
        let (outage, is_held, is_owner_held) = match (&self.run, &self.waiting) {
            (Some(run), _) => (run.outage(), run.is_held(), run.is_owner_held()),
            (None, Some(recorder)) => (recorder.outage(), recorder.is_held(), recorder.is_owner_held(owner)),
            (None, None) => return None,
        };
        let held = || match (is_held, is_owner_held) {
            (true, _) => Some(SPOOL_FULL.to_owned()),
            (false, true) => Some(spool_share_full(owner)),
            (false, false) => None,
        };
        outage.map(|error| with_causes(&error)).or_else(held)
    }

    pub(super) const fn run(&self) -> Option<&Arc<RunRecorder>> {
        self.run.as_ref()
    }

    pub(super) fn watch(&self) -> RecordingWatch {
        self.watch.clone()
    }

    /// Begins the recording, if there is to be one and there is none yet.
    pub(super) fn begin(&mut self, plan: &SessionPlan, engine: &mut Engine) -> Result<(), Refusal> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        let run = Arc::new(plan.record_on(waiting)?);
        run.end_with(Arc::clone(&self.ending));
        engine.record_with(&run).map_err(|error| refusal_of(&error))?;
        // A session is recorded once: nothing stands there yet.
        let _set = self.watch.0.set(Arc::downgrade(&run));
        self.run = Some(run);
        self.waiting = None;
        Ok(())
    }
}

impl RecordingWatch {
    /// Returns whether stepping waits for the recorder, or will: that is no hang.
    pub(crate) fn is_behind(&self) -> bool {
        self.run().is_some_and(|run| run.is_behind())
    }

    /// Ends the open episodes of a session whose stepping thread is given up, as far as they were handed over.
    pub(crate) fn cut_short(&self, interruption: Interruption) {
        if let Some(run) = self.run() {
            run.cut_short(interruption);
        }
    }

    fn run(&self) -> Option<Arc<RunRecorder>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

/// The obstacle of a spool that has come to its limit while the store does not take what is in it.
pub(crate) const SPOOL_FULL: &str = "the node's spool is full and waits for the store (spool.limit)";

/// Returns the obstacle of an owner who has its share of the spool while the store does not take what is in it.
pub(crate) fn spool_share_full(owner: &Claimant) -> String {
    format!(
        "the node's spool has as much of `{}`'s as one owner may have there while others have theirs, and waits for the \
         store (spool.limit)",
        owner.name().escape_debug()
    )
}
