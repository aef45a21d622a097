//! The threads that step sessions whose batches are long or may hang.
//!
//! There is one bounded queue, and owners have turns at it: jobs of one leave it in order, and after each comes another
//! owner's. An owner has at most its share of the places, and a session at most one job. A thread that stays in one job for longer than the deadline is given up: the caller that waits for
//! the job is told, another thread takes its place, and should the first ever return, it lets go of what it holds and
//! ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rollhouse_core::{Claimant, OverShare, SharedBound, Shares, Turns, panic_message};
use rollhouse_wire::Refusal;
use tokio::sync::oneshot;

use crate::data_time::DataTime;
use crate::{HANG_SLACK, HangWatch, NodeFigures, Verdict};

/// Returns whether a job waits for something of the node's own, such as a disk that cannot follow: that is no hang.
pub(crate) type Waits = Box<dyn Fn() -> bool + Send>;

/// Hands jobs to worker threads. When it is dropped, the threads end after the job they are in. Queued jobs are
/// dropped, and the callers that wait for them are told.
#[derive(Debug)]
pub(crate) struct Executor {
    shared: Arc<Shared>,
    hang_deadline: Duration,
    began: Instant,
    watches: Mutex<Vec<Watched>>,
    /// The time of the data thread, which steps what is short by itself.
    data: Mutex<DataTime>,
}

/// Brings a job's result; the channel closes without one when the executor is gone.
pub(crate) type JobResult<R> = oneshot::Receiver<Result<R, JobError>>;

/// Why a job gave nothing back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobError {
    /// It made no progress for this long; its thread is abandoned with all that it holds.
    Hung(Duration),
    /// It panicked outside an env (the engine contains panics inside); with the panic's message.
    Panicked(String),
}

/// The owner has its share of the queue; the job was not taken.
#[derive(Debug)]
pub(crate) struct Full<G> {
    /// The value that the job was given.
    pub(crate) given: G,
    /// The share; `None` if the executor has stopped.
    pub(crate) over: Option<OverShare>,
    /// Time after which a place is likely to be free.
    pub(crate) retry_after: Duration,
}

impl<G> Full<G> {
    /// Returns the refusal of the request that the job was for.
    pub(crate) fn refusal(&self) -> Refusal {
        let ms = self.retry_after.as_millis().max(1) as u64;
        match &self.over {
            Some(over) => Refusal::busy(over.to_string(), ms),
            None => Refusal::busy("the node is going away", ms),
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<QueueState>,
    filled: Condvar,
    figures: Arc<NodeFigures>,
}

struct QueueState {
    /// The jobs that wait. Whoever has a thread takes the next, so that a turn takes no place of its own.
    jobs: Turns<Job>,
    /// The places of the queue.
    places: Shares,
    stopped: bool,
    workers: usize,
    /// Time that a job took lately.
    pace: Duration,
}

struct Job {
    /// Does the job and tells the caller.
    run: Box<dyn FnOnce() + Send>,
    hold: Hold,
    queued: Instant,
}

/// The part of a job that its watch needs.
struct Hold {
    waits: Waits,
    /// Tells the caller that the job hangs; false if the caller has been told something already.
    give_up: Box<dyn FnOnce(JobError) -> bool + Send>,
}

/// The job that a worker is in, for the watch.
struct Current {
    /// Number of the worker's job, counted from its start.
    number: u64,
    /// `None` while it waits for one.
    job: Option<Hold>,
    /// Whether the worker was given up and is to end.
    abandoned: bool,
}

type Slot = Arc<Mutex<Current>>;

struct Watched {
    slot: Slot,
    watch: HangWatch,
}

impl Executor {
    /// Starts `workers` threads that share a queue of `limit` jobs.
    ///
    /// # Errors
    /// If the operating system refuses a thread.
    pub(crate) fn start(
        workers: usize,
        limit: usize,
        hang_deadline: Duration,
        figures: Arc<NodeFigures>,
    ) -> io::Result<Self> {
        let bound = SharedBound::STEPS.with_limit(limit as u64);
        let state = QueueState {
            jobs: Turns::new(bound),
            places: Shares::new(bound),
            stopped: false,
            workers: 0,
            pace: Duration::ZERO,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), filled: Condvar::new(), figures });
        let executor = Self {
            shared,
            hang_deadline,
            began: Instant::now(),
            watches: Mutex::new(Vec::new()),
            data: Mutex::default(),
        };
        for _ in 0..workers {
            executor.start_worker()?;
        }
        Ok(executor)
    }

    /// Queues a job of an owner's session that owns `given`. Nobody has to wait for its result.
    ///
    /// # Errors
    /// If the owner has its share of the queue; the value that was given comes back then.
    pub(crate) fn submit_with<G, R, F>(
        &self,
        owner: &Claimant,
        given: G,
        work: F,
        waits: Waits,
    ) -> Result<JobResult<R>, Full<G>>
    where
        G: Send + 'static,
        R: Send + 'static,
        F: FnOnce(G) -> R + Send + 'static,
    {
        let mut state = self.shared.state.lock();
        let over = if state.stopped { Some(None) } else { state.places.take(owner, 1).err().map(Some) };
        if let Some(over) = over {
            let turns = (state.jobs.queued() / state.workers.max(1)).max(1) as u32;
            let retry_after = (state.pace * turns).clamp(LEAST_RETRY, LONGEST_RETRY);
            return Err(Full { given, over, retry_after });
        }
        let (done, result) = oneshot::channel();
        let tell = Once(Arc::new(Mutex::new(Some(done))));
        let own = tell.clone();
        let run = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(given)));
            own.tell(result.map_err(|panic| JobError::Panicked(panic_message(&*panic))));
        });
        let hold = Hold { waits, give_up: Box::new(move |error| tell.tell(Err(error))) };
        state.jobs.push(owner.clone(), Job { run, hold, queued: Instant::now() });
        drop(state);
        self.shared.filled.notify_one();
        Ok(result)
    }

    /// Queues a job that needs nothing.
    ///
    /// # Errors
    /// If the owner has its share of the queue.
    pub(crate) fn submit<R, F>(
        &self,
        owner: &Claimant,
        work: F,
        waits: Waits,
    ) -> Result<JobResult<R>, Full<()>>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.submit_with(owner, (), |()| work(), waits)
    }

    /// Runs a short job of an owner's session on the calling thread, which is the one that carries requests; `None` if the
    /// owner has its share of that thread's time.
    pub(crate) fn here<R>(&self, owner: &Claimant, work: impl FnOnce() -> R) -> Option<R> {
        let began = self.began.elapsed();
        if !self.data.lock().steps(began, owner) {
            return None;
        }
        let result = work();
        let now = self.began.elapsed();
        self.data.lock().took(now, owner, now.saturating_sub(began));
        Some(result)
    }

    /// Returns the number of jobs that wait for a thread.
    pub(crate) fn queued(&self) -> usize {
        self.shared.state.lock().jobs.queued()
    }

    /// Gives up threads that hang, and starts others for them. It is to be called again after the time that it returns.
    pub(crate) fn look(&self) -> Duration {
        let now = self.began.elapsed();
        let (mut given_up, mut again_at) = (0, now + HANG_SLACK);
        let mut watches = self.watches.lock();
        watches.retain_mut(|watched| {
            let mut current = watched.slot.lock();
            let waits = current.job.as_ref().is_none_or(|hold| (hold.waits)());
            let Verdict::Hung(still) = watched.watch.look(now, current.number, waits) else {
                again_at = again_at.min(watched.watch.look_at(now));
                return true;
            };
            let Some(hold) = current.job.take() else { return true };
            current.abandoned = (hold.give_up)(JobError::Hung(still));
            given_up += u32::from(current.abandoned);
            !current.abandoned
        });
        drop(watches);
        for _ in 0..given_up {
            if self.shared.figures.threads.abandoned.add(1) <= MAX_ABANDONED {
                // A thread that cannot be started now is one worker less; the others go on.
                let _started = self.start_worker();
            }
        }
        if given_up > 0 {
            let workers = self.watches.lock().len();
            self.shared.state.lock().workers = workers;
        }
        again_at.saturating_sub(now)
    }

    /// Starts a worker.
    fn start_worker(&self) -> io::Result<()> {
        let slot: Slot = Arc::new(Mutex::new(Current { number: 0, job: None, abandoned: false }));
        let (shared, own) = (Arc::clone(&self.shared), Arc::clone(&slot));
        // Task: worker.
        std::thread::Builder::new().name("rollhouse-worker".to_owned()).spawn(move || work(&shared, &own))?;
        let mut watches = self.watches.lock();
        watches.push(Watched { slot, watch: HangWatch::new(self.hang_deadline) });
        self.shared.state.lock().workers = watches.len();
        Ok(())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stopped = true;
        let jobs = std::mem::replace(&mut state.jobs, Turns::new(SharedBound::STEPS));
        drop(state);
        self.shared.filled.notify_all();
        drop(jobs);
    }
}

impl Shared {
    /// Waits for the next job; `None` when the executor is gone.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            match state.jobs.pop() {
                Some((owner, job)) => {
                    state.jobs.done(&owner);
                    state.places.give_back(&owner, 1);
                    return Some(job);
                }
                None => self.filled.wait(&mut state),
            }
        }
    }
}

/// Runs a worker's thread: does jobs until the executor is gone or the worker itself is given up.
fn work(shared: &Shared, slot: &Mutex<Current>) {
    while let Some(Job { run, hold, queued }) = shared.next() {
        {
            let mut current = slot.lock();
            current.number += 1;
            current.job = Some(hold);
        }
        let began = Instant::now();
        shared.figures.threads.queue_wait.observe(began.saturating_duration_since(queued));
        run();
        let took = began.elapsed();
        let mut state = shared.state.lock();
        state.pace = (state.pace * 7 + took) / 8;
        drop(state);
        let mut current = slot.lock();
        current.job = None;
        if current.abandoned {
            return;
        }
    }
}

/// Tells the caller one result, from whichever of two sides is first.
struct Once<R>(Arc<Mutex<Option<Teller<R>>>>);

type Teller<R> = oneshot::Sender<Result<R, JobError>>;

impl<R> Clone for Once<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Once<R> {
    /// Tells the result. Returns false if the other side was first.
    fn tell(&self, result: Result<R, JobError>) -> bool {
        let done = self.0.lock().take();
        // Whoever asked may have gone; what the job gave back is dropped then.
        done.map(|done| drop(done.send(result))).is_some()
    }
}

impl std::fmt::Debug for QueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueState")
            .field("jobs", &self.jobs.queued())
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hung(still) => write!(f, "no progress for {} ms", still.as_millis()),
            Self::Panicked(message) => write!(f, "a step panicked: {message}"),
        }
    }
}

/// Threads that may be given up before no others are started for them: each may hold a session's memory for as long as
/// the node lives.
pub(crate) const MAX_ABANDONED: u64 = 64;

/// Shortest pause proposed to a client: one that asks sooner finds the queue full again.
const LEAST_RETRY: Duration = Duration::from_millis(1);

/// Longest pause proposed to a client: the pace of a slower queue is not worth guessing.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    fn never() -> Waits {
        Box::new(|| false)
    }

    /// A job that says that it began, waits until it is let go and gives `value`.
    fn held(value: u32) -> (impl FnOnce() -> u32 + Send, Receiver<()>, SyncSender<()>) {
        let (began, begun) = sync_channel(1);
        let (let_go, go) = sync_channel(1);
        let work = move || {
            began.send(()).unwrap();
            go.recv().unwrap();
            value
        };
        (work, begun, let_go)
    }

    fn ada() -> Claimant {
        Claimant::owner("ada")
    }

    /// Symptom: while one owner's many sessions kept every thread busy, a step of another's only session waited behind all
    /// of theirs, or was refused because the queue was full. Cause: one queue, in the order of arrival. Fix: owners have
    /// turns, and shares of the queue.
    #[test]
    fn a_step_of_one_owners_only_session_waits_for_one_of_anothers_many() {
        let executor = executor(1, 64, Duration::from_secs(60));
        let (work, begun, let_go) = held(0);
        let first = executor.submit(&ada(), work, never()).unwrap();
        begun.recv().unwrap();
        let (order, done) = sync_channel(64);
        let mut queued = Vec::new();
        loop {
            let order = order.clone();
            match executor.submit(&ada(), move || order.send("ada").unwrap(), never()) {
                Ok(result) => queued.push(result),
                Err(full) => {
                    assert!(full.over.unwrap().to_string().contains("`ada` has"));
                    break;
                }
            }
        }
        for owner in ["bob", "cyd"] {
            let order = order.clone();
            let step = move || order.send(owner).unwrap();
            queued.push(executor.submit(&Claimant::owner(owner), step, never()).unwrap());
        }
        let_go.send(()).unwrap();
        let first_three: Vec<_> = done.iter().take(3).collect();
        assert_eq!(first_three, ["ada", "bob", "cyd"]);
        assert_eq!(first.blocking_recv().unwrap(), Ok(0));
        for result in queued {
            assert_eq!(result.blocking_recv().unwrap(), Ok(()));
        }
    }

    fn executor(workers: usize, limit: usize, deadline: Duration) -> Executor {
        Executor::start(workers, limit, deadline, Arc::default()).unwrap()
    }

    #[test]
    fn a_full_queue_gives_the_job_back_with_a_time_to_try_again() {
        let executor = executor(1, 1, Duration::from_secs(60));
        let (work, begun, let_go) = held(1);
        let first = executor.submit(&ada(), work, never()).unwrap();
        begun.recv().unwrap();
        let second = executor.submit(&ada(), || 2, never()).unwrap();
        assert_eq!(executor.queued(), 1);
        let full = executor.submit(&ada(), || 3, never()).unwrap_err();
        assert!((LEAST_RETRY..=LONGEST_RETRY).contains(&full.retry_after));
        let_go.send(()).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), Ok(1));
        assert_eq!(second.blocking_recv().unwrap(), Ok(2));
        assert_eq!(full.given, ());
    }

    #[test]
    fn a_panic_is_told_and_the_thread_goes_on() {
        let executor = executor(1, 8, Duration::from_secs(60));
        let panics = executor.submit(&ada(), || -> u32 { panic!("told to") }, never()).unwrap();
        assert_eq!(panics.blocking_recv().unwrap(), Err(JobError::Panicked("told to".to_owned())));
        let next = executor.submit(&ada(), || 4, never()).unwrap();
        assert_eq!(next.blocking_recv().unwrap(), Ok(4));
    }

    #[test]
    fn a_thread_that_hangs_is_given_up_and_another_takes_the_next_job() {
        let executor = executor(1, 8, Duration::ZERO);
        let (work, begun, let_go) = held(1);
        let hung = executor.submit(&ada(), work, never()).unwrap();
        begun.recv().unwrap();
        // The first look sees the job, the second that it has not moved.
        executor.look();
        executor.look();
        assert!(matches!(hung.blocking_recv().unwrap(), Err(JobError::Hung(_))));
        let next = executor.submit(&ada(), || 5, never()).unwrap();
        assert_eq!(next.blocking_recv().unwrap(), Ok(5));
        let_go.send(()).unwrap();
    }

    #[test]
    fn a_job_that_waits_for_the_disk_is_no_hang() {
        let executor = executor(1, 8, Duration::ZERO);
        let (work, begun, let_go) = held(1);
        let waiting = executor.submit(&ada(), work, Box::new(|| true)).unwrap();
        begun.recv().unwrap();
        for _ in 0..5 {
            executor.look();
        }
        let_go.send(()).unwrap();
        assert_eq!(waiting.blocking_recv().unwrap(), Ok(1));
    }

    #[test]
    fn what_is_queued_when_the_executor_goes_is_dropped_and_told() {
        let executor = executor(1, 8, Duration::from_secs(60));
        let (work, begun, let_go) = held(1);
        let first = executor.submit(&ada(), work, never()).unwrap();
        begun.recv().unwrap();
        let second = executor.submit(&ada(), || 2, never()).unwrap();
        drop(executor);
        assert!(second.blocking_recv().is_err());
        let_go.send(()).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), Ok(1));
    }
}
