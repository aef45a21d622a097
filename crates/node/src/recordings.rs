//! The recordings of the pools that have sessions here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rollhouse_core::RunId;
use rollhouse_replay::{BeginError, Recorder, RunRecorder};
use rollhouse_wire::{Refusal, RefusalCode};

use crate::plan::SessionPlan;

/// The node's recorder, and one run per pool: sessions of a pool record into the same run, each its own lanes.
#[derive(Debug)]
pub(crate) struct Recordings {
    recorder: Arc<Recorder>,
    /// Weak: sessions alone decide when a run is over.
    runs: Mutex<BTreeMap<RunId, Weak<RunRecorder>>>,
}

impl Recordings {
    pub(crate) const fn new(recorder: Arc<Recorder>) -> Self {
        Self { recorder, runs: Mutex::new(BTreeMap::new()) }
    }

    /// The run of the session's pool, which is begun if no other session here records it.
    pub(crate) fn run(&self, plan: &SessionPlan) -> Result<Arc<RunRecorder>, Refusal> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.get(&plan.pool).and_then(Weak::upgrade) {
            return Ok(run);
        }
        let Some(header) = plan.run_header() else {
            return Err(Refusal::new(RefusalCode::Internal, "the session is not to be recorded"));
        };
        let run = Arc::new(self.recorder.begin_run(header).map_err(|error| refusal_of(&error))?);
        runs.retain(|_, run| run.strong_count() > 0);
        runs.insert(plan.pool, Arc::downgrade(&run));
        Ok(run)
    }
}

fn refusal_of(error: &BeginError) -> Refusal {
    match error {
        BeginError::TooManyRuns => Refusal::busy(error.to_string(), RUNS_RETRY_MS),
        BeginError::Probability(_) | BeginError::Options { .. } | BeginError::RowTooLarge { .. } => {
            Refusal::new(RefusalCode::BadRequest, error.to_string())
        }
        BeginError::WriterGone => Refusal::new(RefusalCode::Internal, error.to_string()),
    }
}

/// Runs end with their sessions, which takes seconds at least.
const RUNS_RETRY_MS: u64 = 1_000;
