//! A session that plays by itself: it is started, watched that it makes progress, and its exit is told.
//!
//! ```text
//! waiting --watched first--> stepping --exit value--> over
//!                            stepping --no progress for the deadline--> over: the thread is abandoned
//! ```
//!
//! On a node of a cluster it is stepped by jobs of the executor, one after the other, and has no thread while it waits for its
//! turn or for its lanes. A rollout of this process has a thread of its own, which steps on and on.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_core::{Claimant, Interruption, panic_message};
use rollhouse_host::ConnectWatch;
use rollhouse_replay::RunRecorder;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::executor::{Executor, JobError};
use crate::rollout::{Next, POLL, Playing};
use crate::session_actor::{Control, Supervised};
use crate::urgency::Urgency;
use crate::{Cancel, Exit, HangWatch, Progress, Rollout, RolloutError, Verdict};

/// A session that plays by itself, as those who watch it have it.
#[derive(Debug)]
pub(crate) struct Stepping {
    pub(crate) progress: Arc<Progress>,
    pub(crate) cancel: Cancel,
    /// Time that the thread may make no progress; `None` if the executor sees to that, whose threads it has.
    hang_deadline: Option<Duration>,
    waiting: Waiting,
    job: Mutex<Option<Job>>,
    /// The exit of what steps.
    ended: watch::Receiver<Option<Arc<Exit>>>,
    /// The exit that is told: that one, unless it was given up.
    exit: watch::Sender<Option<Arc<Exit>>>,
    /// Where the exit is told besides; it has room for one.
    told: Option<SyncSender<Arc<Exit>>>,
}

/// Shows whether a session waits for something that is no hang.
#[derive(Debug, Clone)]
struct Waiting {
    progress: Arc<Progress>,
    /// Connecting of the lanes' workers.
    connecting: ConnectWatch,
    /// The recording. Weak: what steps alone decides when the run's recorder is released.
    recording: Weak<RunRecorder>,
}

/// The parts that stepping is started with; taken by who watches it first.
#[derive(Debug)]
struct Job {
    playing: Box<Playing>,
    by: Steppers,
    ended: watch::Sender<Option<Arc<Exit>>>,
}

/// The threads that step a session.
#[derive(Debug)]
pub(crate) enum Steppers {
    /// Its own, which has the session's number on its node in its name.
    Own(u64),
    /// Those of the node's executor, by turns of owners.
    Shared {
        executor: Arc<Executor>,
        owner: Claimant,
        /// What the processes get in which lanes are stepped.
        urgency: Urgency,
    },
}

impl Stepping {
    pub(crate) fn new(
        by: Steppers,
        rollout: Rollout,
        recording: Option<Arc<RunRecorder>>,
        cancel: Cancel,
        told: Option<SyncSender<Arc<Exit>>>,
    ) -> Arc<Self> {
        let (sender, ended) = watch::channel(None);
        let hang_deadline = matches!(by, Steppers::Own(_)).then_some(rollout.hang_deadline);
        let progress = Arc::new(Progress::default());
        // It is what is done first.
        progress.launch(rollout.env.is_late());
        let waiting = Waiting {
            progress: Arc::clone(&progress),
            connecting: rollout.connecting.clone(),
            recording: recording.as_ref().map(Arc::downgrade).unwrap_or_default(),
        };
        let playing = Box::new(Playing::new(rollout, recording, Arc::clone(&progress), cancel.clone()));
        let job = Mutex::new(Some(Job { playing, by, ended: sender }));
        let exit = watch::Sender::new(None);
        Arc::new(Self { progress, cancel, hang_deadline, waiting, job, ended, exit, told })
    }

    /// Starts the stepping, unless that was done before, and watches it to its end. Returns how it ended.
    /// Cancellation-safe: a later call goes on watching.
    pub(crate) async fn watch(&self) -> Arc<Exit> {
        let exit = match self.exit() {
            Some(exit) => return exit,
            None => self.watch_to_end().await,
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

    async fn watch_to_end(&self) -> Arc<Exit> {
        let job = self.job.lock().take();
        if let Some(job) = job
            && let Err(error) = self.start(job)
        {
            return Arc::new(Exit::Failed(error));
        }
        let mut ended = self.ended.clone();
        let Some(hang_deadline) = self.hang_deadline else {
            // The sender is dropped unused only with its thread.
            return ended
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|exit| exit.clone())
                .unwrap_or_else(gone);
        };
        let (began, mut watch) = (Instant::now(), HangWatch::new(hang_deadline));
        loop {
            let now = began.elapsed();
            let wait = watch.look_at(now).saturating_sub(now);
            match tokio::time::timeout(wait, ended.wait_for(Option::is_some)).await {
                Ok(Ok(exit)) if exit.is_some() => return exit.clone().unwrap_or_else(gone),
                // The sender is dropped unused only if the thread could not even say that it panicked.
                Ok(_) => return gone(),
                Err(_) => {
                    let (beats, waits) = (self.progress.snapshot().beats, self.waiting.is_no_hang());
                    if let Verdict::Hung(still) = watch.look(began.elapsed(), beats, waits) {
                        self.waiting.give_up(&self.cancel);
                        return Arc::new(Exit::Hung(still));
                    }
                }
            }
        }
    }

    fn start(&self, Job { playing, by, ended }: Job) -> Result<(), RolloutError> {
        match by {
            Steppers::Own(number) => {
                let thread = std::thread::Builder::new().name(format!("rollhouse-session-{number}"));
                let step = move || {
                    let exit = catch_unwind(AssertUnwindSafe(|| playing.run()));
                    let exit = exit.unwrap_or_else(|panic| Exit::Panicked(panic_message(&*panic)));
                    ended.send_replace(Some(Arc::new(exit)));
                };
                // Task: rollout.
                thread.spawn(step).map(drop).map_err(RolloutError::Thread)
            }
            Steppers::Shared { executor, owner, urgency } => {
                let (waiting, cancel) = (self.waiting.clone(), self.cancel.clone());
                let turns = SharedTurns { executor, owner, urgency, waiting, cancel };
                // Task: rollout.
                actix::spawn(async move {
                    let exit = turns.play(playing).await;
                    ended.send_replace(Some(Arc::new(exit)));
                });
                Ok(())
            }
        }
    }
}

impl Waiting {
    fn is_no_hang(&self) -> bool {
        self.progress.is_launching()
            || self.connecting.retries().is_some()
            || self.recording.upgrade().is_some_and(|run| run.is_behind())
    }

    /// Gives up what steps: should it ever move again, it is to end at once.
    fn give_up(&self, cancel: &Cancel) {
        cancel.end(Interruption::Hung);
        if let Some(run) = self.recording.upgrade() {
            run.cut_short(Interruption::Hung);
        }
    }
}

/// The turns of a session at the threads of an executor.
struct SharedTurns {
    executor: Arc<Executor>,
    owner: Claimant,
    urgency: Urgency,
    waiting: Waiting,
    cancel: Cancel,
}

impl SharedTurns {
    /// Has the session stepped to its end. It holds no thread while it waits for its turn or for its lanes.
    async fn play(&self, mut playing: Box<Playing>) -> Exit {
        let mut descriptor = None;
        loop {
            let (crew, urgency) = (playing.crew(), self.urgency);
            let turn = move |mut playing: Box<Playing>| {
                let next = playing.turn_as(urgency);
                // One that is over lets go of everything before anyone learns of it.
                let playing = (!matches!(next, Next::Over(_))).then_some(playing);
                (next, playing)
            };
            let waiting = self.waiting.clone();
            let waits = Box::new(move || waiting.is_no_hang());
            let result = match self.executor.submit_with((crew, &self.owner), playing, turn, waits) {
                Ok(result) => result.await,
                Err(full) if full.over.is_none() => return Exit::Unwatched,
                Err(full) => {
                    tokio::time::sleep(full.retry_after).await;
                    playing = full.given;
                    continue;
                }
            };
            match result {
                Ok(Ok((Next::Over(exit), _))) => return exit,
                Ok(Ok((next, Some(again)))) => {
                    playing = again;
                    match next {
                        Next::After(pause) => self.sleep(None, Some(Instant::now() + pause)).await,
                        Next::Sleep(until) => {
                            if descriptor.is_none() {
                                descriptor = playing.descriptor().and_then(readable);
                            }
                            let until =
                                if descriptor.is_none() { Some(Instant::now() + POLL) } else { until };
                            self.sleep(descriptor.as_ref(), until).await;
                        }
                        Next::Again | Next::Over(_) => {}
                    }
                }
                Ok(Ok((_, None))) => return Exit::Unwatched,
                Ok(Err(JobError::Hung(still))) => {
                    self.waiting.give_up(&self.cancel);
                    return Exit::Hung(still);
                }
                Ok(Err(JobError::Panicked(message))) => return Exit::Panicked(message),
                // The executor has stopped.
                Err(_) => return Exit::Unwatched,
            }
        }
    }

    /// Waits until the lanes may have something to do, the time has come, or the end is asked for.
    async fn sleep(&self, descriptor: Option<&AsyncFd<OwnedFd>>, until: Option<Instant>) {
        let readable = async {
            match descriptor {
                // That it is readable is a hint: the next turn takes what has happened.
                Some(descriptor) => {
                    if let Ok(mut ready) = descriptor.readable().await {
                        ready.clear_ready();
                    }
                }
                None => std::future::pending().await,
            }
        };
        let time = async {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = readable => {}
            () = time => {}
            () = self.cancel.raised() => {}
        }
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

/// Returns what waits for a descriptor; `None` if it cannot be waited for.
#[expect(
    deprecated,
    reason = "of an `OwnedFd` it is safe, and what replaces it is not; until tokio has a safe one again"
)]
fn readable(descriptor: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

fn gone() -> Arc<Exit> {
    Arc::new(Exit::Panicked("the thread is gone".to_owned()))
}
