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
use rollhouse_core::{Claimant, Interruption, contained, panic_message};
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
    /// What stepping is started with; taken by who watches it first.
    job: Mutex<Option<(Box<Playing>, Steppers)>>,
    /// The exit, once there is one: that of what steps, unless it was given up before.
    exit: watch::Sender<Option<Arc<Exit>>>,
    /// Where the exit is sent besides; it has room for one.
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
        let (job, exit) = (Mutex::new(Some((playing, by))), watch::Sender::new(None));
        Arc::new(Self { progress, cancel, hang_deadline, waiting, job, exit, told })
    }

    /// Starts the stepping, unless that was done before, and watches it to its end. Returns how it ended.
    /// Cancellation-safe: a later call goes on watching.
    pub(crate) async fn watch(self: &Arc<Self>) -> Arc<Exit> {
        let job = self.job.lock().take();
        if let Some((playing, by)) = job {
            self.start(playing, by);
        }
        let Some(hang_deadline) = self.hang_deadline else { return self.over().await };
        let (began, mut watch) = (Instant::now(), HangWatch::new(hang_deadline));
        loop {
            let now = began.elapsed();
            let wait = watch.look_at(now).saturating_sub(now);
            if let Ok(exit) = tokio::time::timeout(wait, self.over()).await {
                return exit;
            }
            let (beats, waits) = (self.progress.snapshot().beats, self.waiting.is_no_hang());
            if let Verdict::Hung(still) = watch.look(began.elapsed(), beats, waits) {
                self.waiting.give_up(&self.cancel);
                self.end(Exit::Hung(still));
            }
        }
    }

    /// Waits for the exit. Cancellation-safe.
    pub(crate) async fn over(&self) -> Arc<Exit> {
        let mut exits = self.exit.subscribe();
        // The sender is here.
        let exit = exits.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        exit.unwrap_or_else(|| Arc::new(Exit::Unwatched))
    }

    /// Notes how it ended, unless that is known.
    fn end(&self, exit: Exit) {
        let exit = Arc::new(exit);
        let is_first = self.exit.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert_with(|| Arc::clone(&exit));
            is_first
        });
        if let Some(told) = self.told.as_ref().filter(|_| is_first) {
            // Nobody may be interested any more.
            let _told = told.try_send(exit);
        }
    }

    fn start(self: &Arc<Self>, playing: Box<Playing>, by: Steppers) {
        let stepping = Arc::clone(self);
        match by {
            Steppers::Own(number) => {
                let thread = std::thread::Builder::new().name(format!("rollhouse-session-{number}"));
                let step = move || {
                    let exit = catch_unwind(AssertUnwindSafe(|| playing.run()));
                    stepping.end(exit.unwrap_or_else(|panic| Exit::Panicked(panic_message(&*panic))));
                };
                // Task: rollout.
                if let Err(error) = thread.spawn(step) {
                    self.end(Exit::Failed(RolloutError::Thread(error)));
                }
            }
            Steppers::Shared { executor, owner, urgency } => {
                // Task: rollout.
                actix::spawn(async move {
                    let exit = contained(stepping.play(playing, &executor, (&owner, urgency))).await;
                    stepping.end(exit.unwrap_or_else(Exit::Panicked));
                });
            }
        }
    }

    /// Has the session stepped to its end. It holds no thread while it waits for its turn or for its lanes.
    async fn play(
        &self,
        mut playing: Box<Playing>,
        executor: &Executor,
        (owner, urgency): (&Claimant, Urgency),
    ) -> Exit {
        let mut descriptor = None;
        loop {
            let crew = playing.crew();
            let turn = move |mut playing: Box<Playing>| {
                let next = playing.turn_as(urgency);
                // One that is over lets go of everything before anyone learns of it.
                let playing = (!matches!(next, Next::Over(_))).then_some(playing);
                (next, playing)
            };
            let waiting = self.waiting.clone();
            let waits = Box::new(move || waiting.is_no_hang());
            let result = match executor.submit_with((crew, owner), playing, turn, waits) {
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
        self.end(Exit::Unwatched);
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
