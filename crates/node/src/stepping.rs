//! The stepping thread of a session that plays by itself: it is started, watched that it makes progress, and its exit
//! is told.
//!
//! ```text
//! waiting --watched first--> stepping --exit value--> over
//!                            stepping --no progress for the deadline--> over: the thread is abandoned
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_core::{Interruption, panic_message};
use rollhouse_engine::StepError;
use rollhouse_host::ConnectWatch;
use rollhouse_replay::RunRecorder;
use tokio::sync::watch;

use crate::session_actor::{Control, Supervised};
use crate::urgency::Urgency;
use crate::{Cancel, Exit, HangWatch, Progress, Rollout, RolloutError, Verdict};

/// A session that plays by itself, as those who watch it have it.
#[derive(Debug)]
pub(crate) struct Stepping {
    /// Its number on its node.
    number: u64,
    urgency: Urgency,
    pub(crate) progress: Arc<Progress>,
    pub(crate) cancel: Cancel,
    hang_deadline: Duration,
    /// Connecting of the lanes' workers.
    connecting: ConnectWatch,
    job: Mutex<Option<Job>>,
    /// The exit of the thread.
    ended: watch::Receiver<Option<Arc<Exit>>>,
    /// The exit that is told: the thread's, unless it was given up.
    exit: watch::Sender<Option<Arc<Exit>>>,
    /// Where the exit is told besides; it has room for one.
    told: Option<SyncSender<Arc<Exit>>>,
    /// The recording. Weak: the thread alone decides when the run's recorder is released.
    recording: Weak<RunRecorder>,
}

/// The parts that the thread is started with; taken by who watches it first.
#[derive(Debug)]
struct Job {
    rollout: Rollout,
    recording: Option<Arc<RunRecorder>>,
    ended: watch::Sender<Option<Arc<Exit>>>,
}

impl Stepping {
    pub(crate) fn new(
        (number, urgency): (u64, Urgency),
        rollout: Rollout,
        recording: Option<Arc<RunRecorder>>,
        cancel: Cancel,
        told: Option<SyncSender<Arc<Exit>>>,
    ) -> Arc<Self> {
        let (sender, ended) = watch::channel(None);
        let (hang_deadline, connecting) = (rollout.hang_deadline, rollout.connecting.clone());
        let watched = recording.as_ref().map(Arc::downgrade).unwrap_or_default();
        let progress = Progress::default();
        // It is what its thread does first.
        progress.launch(rollout.env.is_late());
        let job = Mutex::new(Some(Job { rollout, recording, ended: sender }));
        Arc::new(Self {
            number,
            urgency,
            progress: Arc::new(progress),
            cancel,
            hang_deadline,
            connecting,
            job,
            ended,
            exit: watch::Sender::new(None),
            told,
            recording: watched,
        })
    }

    /// Starts the thread, unless that was done before, and watches it to its end. Returns how it ended.
    /// Cancellation-safe: a later call goes on watching.
    pub(crate) async fn watch(&self) -> Arc<Exit> {
        let exit = match self.exit() {
            Some(exit) => return exit,
            None => self.watch_thread().await,
        };
        self.tell(&exit);
        exit
    }

    /// Returns a receiver of the exit that is told.
    pub(crate) fn exits(&self) -> watch::Receiver<Option<Arc<Exit>>> {
        self.exit.subscribe()
    }

    fn exit(&self) -> Option<Arc<Exit>> {
        self.exit.borrow().clone()
    }

    fn tell(&self, exit: &Arc<Exit>) {
        self.exit.send_replace(Some(Arc::clone(exit)));
        if let Some(told) = &self.told {
            // Nobody may be interested any more.
            let _told = told.try_send(Arc::clone(exit));
        }
    }

    async fn watch_thread(&self) -> Arc<Exit> {
        if let Err(error) = self.start() {
            return Arc::new(Exit::Failed(error));
        }
        let (began, mut watch) = (Instant::now(), HangWatch::new(self.hang_deadline));
        let mut ended = self.ended.clone();
        loop {
            let now = began.elapsed();
            let wait = watch.look_at(now).saturating_sub(now);
            match tokio::time::timeout(wait, ended.wait_for(Option::is_some)).await {
                Ok(Ok(exit)) if exit.is_some() => return exit.clone().unwrap_or_else(gone),
                // The sender is dropped unused only if the thread could not even say that it panicked.
                Ok(_) => return gone(),
                Err(_) => {
                    if let Some(still) = self.look(&mut watch, began.elapsed()) {
                        return Arc::new(Exit::Hung(still));
                    }
                }
            }
        }
    }

    /// Looks whether the thread makes progress. Returns for how long it has not, if it hangs.
    fn look(&self, watch: &mut HangWatch, now: Duration) -> Option<Duration> {
        let beats = self.progress.snapshot().beats;
        let waits = self.progress.is_launching()
            || self.connecting.retries().is_some()
            || self.recording.upgrade().is_some_and(|run| run.is_behind());
        let Verdict::Hung(still) = watch.look(now, beats, waits) else { return None };
        // Should it ever move again, it is to end at once.
        self.cancel.end(Interruption::Hung);
        if let Some(run) = self.recording.upgrade() {
            run.cut_short(Interruption::Hung);
        }
        Some(still)
    }

    /// Starts the thread unless that was done before.
    fn start(&self) -> Result<(), RolloutError> {
        let Some(job) = self.job.lock().take() else { return Ok(()) };
        let (progress, cancel, urgency) = (Arc::clone(&self.progress), self.cancel.clone(), self.urgency);
        // Task: rollout.
        std::thread::Builder::new()
            .name(format!("rollhouse-session-{}", self.number))
            .spawn(move || {
                urgency.apply();
                let run = || job.rollout.run(job.recording.as_deref(), &progress, &cancel);
                let exit = match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(report)) if cancel.is_cancelled() => Exit::Cancelled(Box::new(report)),
                    Ok(Ok(report)) => Exit::Finished(Box::new(report)),
                    // One of several stepping threads did not answer.
                    Ok(Err(RolloutError::Step(StepError::Hung))) => {
                        if let Some(run) = &job.recording {
                            run.cut_short(Interruption::Hung);
                        }
                        Exit::Hung(job.rollout.engine.step_deadline)
                    }
                    Ok(Err(error)) => Exit::Failed(error),
                    Err(panic) => Exit::Panicked(panic_message(&*panic)),
                };
                // The run's recorder is released before anyone learns that the session is over.
                drop(job.recording);
                job.ended.send_replace(Some(Arc::new(exit)));
            })
            .map(drop)
            .map_err(RolloutError::Thread)
    }
}

impl Supervised for Stepping {
    fn control(self: Arc<Self>) -> Control {
        Box::pin(async move { drop(self.watch().await) })
    }

    /// The thread is looked at more often, by who watches it.
    fn look(&self) {}

    fn is_over(&self) -> bool {
        self.exit.borrow().is_some()
    }

    fn give_up(&self) {
        self.cancel.cancel();
        if !self.is_over() {
            self.tell(&Arc::new(Exit::Unwatched));
        }
    }
}

fn gone() -> Arc<Exit> {
    Arc::new(Exit::Panicked("the thread is gone".to_owned()))
}
