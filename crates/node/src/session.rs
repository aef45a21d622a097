//! A session's stepping thread, and the actor that starts and watches it.
//!
//! ```text
//! waiting --actor starts it--> stepping --exit value--> over
//!                              stepping --no progress for the deadline--> abandoned
//! ```
//!
//! The thread belongs to the session, not to the actor: if an actor panics, the thread goes on stepping, and the next
//! actor takes up watching where it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use actix::prelude::*;
use parking_lot::Mutex;
use rollhouse_core::{Interruption, panic_message};
use rollhouse_engine::StepError;
use rollhouse_replay::RunRecorder;
use tokio::sync::watch;

use crate::node::{NodeActor, SessionDown};
use crate::{Cancel, Exit, HangWatch, Progress, Rollout, RolloutError, Verdict};

/// Number of a session on its node.
pub(crate) type SessionId = u64;

/// The state that the actors of one session share with its stepping thread.
#[derive(Debug)]
pub(crate) struct Stepping {
    pub(crate) id: SessionId,
    pub(crate) progress: Arc<Progress>,
    pub(crate) cancel: Cancel,
    hang_deadline: Duration,
    exit: watch::Receiver<Option<Arc<Exit>>>,
    job: Mutex<Option<Job>>,
    /// The recording. Weak: the thread alone decides when the run's recorder is released.
    recording: Weak<RunRecorder>,
}

/// The parts that the thread is started with; taken by the first actor.
#[derive(Debug)]
struct Job {
    rollout: Rollout,
    recording: Option<Arc<RunRecorder>>,
    exit: watch::Sender<Option<Arc<Exit>>>,
}

impl Stepping {
    pub(crate) fn new(
        id: SessionId,
        rollout: Rollout,
        recording: Option<Arc<RunRecorder>>,
        cancel: Cancel,
    ) -> Arc<Self> {
        let (sender, exit) = watch::channel(None);
        let hang_deadline = rollout.hang_deadline;
        let watched = recording.as_ref().map(Arc::downgrade).unwrap_or_default();
        let job = Mutex::new(Some(Job { rollout, recording, exit: sender }));
        Arc::new(Self { id, progress: Arc::default(), cancel, hang_deadline, exit, job, recording: watched })
    }

    /// Starts the thread unless an earlier actor has.
    fn start(&self) -> Result<(), RolloutError> {
        let Some(job) = self.job.lock().take() else { return Ok(()) };
        let (progress, cancel) = (Arc::clone(&self.progress), self.cancel.clone());
        // Task: rollout.
        std::thread::Builder::new()
            .name(format!("rollhouse-session-{}", self.id))
            .spawn(move || {
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
                job.exit.send_replace(Some(Arc::new(exit)));
            })
            .map(drop)
            .map_err(RolloutError::Thread)
    }
}

/// Starts a session's thread, watches it and tells the node how it ended.
#[derive(Debug)]
pub(crate) struct SessionActor {
    stepping: Arc<Stepping>,
    node: Addr<NodeActor>,
    watch: HangWatch,
    began: Instant,
    ended: Option<Arc<Exit>>,
}

impl SessionActor {
    pub(crate) fn new(stepping: Arc<Stepping>, node: Addr<NodeActor>) -> Self {
        let watch = HangWatch::new(stepping.hang_deadline);
        Self { stepping, node, watch, began: Instant::now(), ended: None }
    }

    fn end(&mut self, exit: Arc<Exit>, ctx: &mut Context<Self>) {
        self.ended = Some(exit);
        ctx.stop();
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let beats = self.stepping.progress.snapshot().beats;
        let waits = self.stepping.recording.upgrade().is_some_and(|run| run.is_behind());
        if let Verdict::Hung(still) = self.watch.look(self.began.elapsed(), beats, waits) {
            // Should it ever move again, it is to end at once.
            self.stepping.cancel.end(Interruption::Hung);
            if let Some(run) = self.stepping.recording.upgrade() {
                run.cut_short(Interruption::Hung);
            }
            self.end(Arc::new(Exit::Hung(still)), ctx);
        } else {
            self.look_again(ctx);
        }
    }

    fn look_again(&self, ctx: &mut Context<Self>) {
        let now = self.began.elapsed();
        ctx.run_later(self.watch.look_at(now).saturating_sub(now), Self::look);
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Err(error) = self.stepping.start() {
            self.end(Arc::new(Exit::Failed(error)), ctx);
            return;
        }
        let mut exit = self.stepping.exit.clone();
        let ended = async move { exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone()) };
        let told = ended.into_actor(self).map(|exit, actor, ctx| {
            // The sender is dropped unused only if the thread could not even say that it panicked.
            let exit = exit.unwrap_or_else(|| Arc::new(Exit::Panicked("the thread is gone".to_owned())));
            actor.end(exit, ctx);
        });
        // Task: session actor.
        ctx.spawn(told);
        self.look_again(ctx);
    }

    /// Tells the node that the actor has ended. Also runs while a panic unwinds the actor.
    fn stopped(&mut self, _: &mut Self::Context) {
        let down = SessionDown { id: self.stepping.id, ended: self.ended.take() };
        // A full mailbox loses the notice; the node's own look finds the closed address.
        let _told = self.node.try_send(down);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A handler that panics, which no handler of ours is meant to.

    use super::*;

    #[derive(Debug, Message)]
    #[rtype(result = "()")]
    pub(crate) struct PanicNow;

    impl Handler<PanicNow> for SessionActor {
        type Result = ();

        fn handle(&mut self, _: PanicNow, _: &mut Self::Context) {
            panic!("a handler that panics");
        }
    }
}
