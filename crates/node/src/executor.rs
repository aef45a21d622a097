//! The threads that step sessions whose batches are long or may hang, and those that play by themselves.
//!
//! There are crews of threads, each with a bounded queue at which owners have turns: jobs of one leave it in order, and after
//! each comes another owner's. An owner has at most its share of the places, and a session at most one job. Jobs that compute for
//! a bounded time have the [`Crew::Computing`], one thread
//! for each core that the node may use. Jobs that may wait, as for lanes that other processes step, have the
//! [`Crew::Waiting`], which grows while every thread of it is in a job and shrinks afterwards. So no job that computes
//! waits for one that waits, and these wait for each other only beyond an owner's share of [`SharedBound::WAITING`].
//!
//! Sessions that play by themselves have the other crews, whose threads yield to these: nobody waits for their steps. A job there
//! is a short time of one session, so an owner's n sessions have an n-th each of what its one would have.
//!
//! A thread that stays in one job for longer than the deadline is given up: the caller that waits for the job is told,
//! another thread takes its place, and should the first ever return, it lets go of what it holds and ends.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rollhouse_core::{Claimant, OverShare, SharedBound, Shares, Turns, panic_message};
use rollhouse_wire::Refusal;
use tokio::sync::oneshot;

use crate::data_time::DataTime;
use crate::deadlines::Deadlines;
use crate::urgency::Urgency;
use crate::{HANG_SLACK, HangWatch, NodeFigures, Verdict};

/// Returns whether a job waits for something of the node's own, such as a disk that cannot follow: that is no hang.
pub(crate) type Waits = Box<dyn Fn() -> bool + Send>;

/// Hands jobs to worker threads. When it is dropped, the threads end after the job they are in. Queued jobs are
/// dropped, and the callers that wait for them are told.
#[derive(Debug)]
pub(crate) struct Executor {
    /// In the order of [`Crew::ALL`].
    crews: [Workers; Crew::ALL.len()],
    began: Instant,
    /// The time of the data thread, which steps what is short by itself.
    data: Mutex<DataTime>,
}

/// The threads that a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crew {
    /// It computes, for a bounded time.
    Computing,
    /// It may wait: for other processes, for programs from outside, for a disk, for recorded episodes to be sought.
    Waiting,
    /// It computes for a session that plays by itself, for a bounded time.
    Playing,
    /// It sends and collects late lanes of a session that plays by itself, and waits for none.
    Tending,
    /// It may wait for a session that plays by itself: as its lanes are made and ended, or in a step that is not bounded.
    Lingering,
}

impl Crew {
    const ALL: [Self; 5] = [Self::Computing, Self::Waiting, Self::Playing, Self::Tending, Self::Lingering];

    /// Returns the turns of owners at so many threads. Of those that compute an owner may have each that is free: nothing
    /// there takes long.
    fn turns(self, threads: usize) -> Turns<Job> {
        let bound = SharedBound::WAITING.with_limit(threads as u64);
        Turns::new(match self {
            Self::Computing | Self::Playing | Self::Tending => {
                SharedBound { limit: u64::MAX, most: u64::MAX, reserve: 0, ..bound }
            }
            Self::Waiting | Self::Lingering => bound,
        })
    }

    /// Returns the least and the most threads, where those that compute are `computing` and those that may wait `waiting`.
    const fn threads(self, computing: usize, waiting: usize) -> (usize, usize) {
        match self {
            Self::Computing => (computing, computing),
            Self::Playing | Self::Tending => (1, computing),
            Self::Waiting | Self::Lingering => (1, waiting),
        }
    }

    /// Returns whether somebody waits for its jobs: they are not of sessions that play by themselves.
    const fn is_waited_for(self) -> bool {
        matches!(self, Self::Computing | Self::Waiting)
    }

    const fn urgency(self) -> Urgency {
        if self.is_waited_for() { Urgency::Usual } else { Urgency::OF_ROLLOUTS }
    }
}

/// The threads of a crew, and their queue.
#[derive(Debug)]
struct Workers {
    shared: Arc<Shared>,
    hang_deadline: Duration,
    began: Instant,
    watches: Mutex<Vec<Watched>>,
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
    crew: Crew,
    /// Least and most threads: between them, threads are started where none is idle, and end when they are idle for long.
    least: usize,
    most: usize,
    figures: Arc<NodeFigures>,
}

struct QueueState {
    /// The jobs that wait, and the threads that owners have.
    jobs: Turns<Job>,
    /// The places of the queue.
    places: Shares,
    /// Times at which the jobs that wait were queued, by their numbers.
    since: BTreeMap<u64, Instant>,
    /// Number of the job that was queued last.
    last: u64,
    stopped: bool,
    workers: usize,
    /// Workers that wait for a job.
    idle: usize,
    /// Time that a job took lately.
    pace: Duration,
}

struct Job {
    /// Does the job and tells the caller.
    run: Box<dyn FnOnce() + Send>,
    hold: Hold,
    /// Its number.
    number: u64,
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
    /// Whether the worker has ended.
    over: bool,
}

type Slot = Arc<Mutex<Current>>;

struct Watched {
    slot: Slot,
    watch: HangWatch,
}

impl Executor {
    /// Starts threads for jobs that compute, and one for those that wait, of which there may be more. Each of these crews has a
    /// queue of `limit` jobs, and each other one for a job of every session.
    ///
    /// # Errors
    /// If the operating system refuses a thread.
    pub(crate) fn start(
        (computing, waiting): (usize, usize),
        limit: usize,
        deadlines: Deadlines,
        figures: Arc<NodeFigures>,
    ) -> io::Result<Self> {
        let start = |crew: Crew| {
            // Late lanes are stepped by the crews that wait.
            let hang_deadline = deadlines.of_session(!matches!(crew, Crew::Computing | Crew::Playing));
            let limit = if crew.is_waited_for() { limit } else { SharedBound::ROLLOUTS.limit as usize };
            let threads = crew.threads(computing, waiting);
            Workers::start(crew, threads, limit, (hang_deadline, Arc::clone(&figures)))
        };
        let [a, b, c, d, e] = Crew::ALL.map(start);
        Ok(Self { began: Instant::now(), data: Mutex::default(), crews: [a?, b?, c?, d?, e?] })
    }

    /// Queues a job of an owner's session that owns `given`. Nobody has to wait for its result.
    ///
    /// # Errors
    /// If the owner has its share of the crew's queue; the value that was given comes back then.
    pub(crate) fn submit_with<G, R, F>(
        &self,
        (crew, owner): (Crew, &Claimant),
        given: G,
        work: F,
        waits: Waits,
    ) -> Result<JobResult<R>, Full<G>>
    where
        G: Send + 'static,
        R: Send + 'static,
        F: FnOnce(G) -> R + Send + 'static,
    {
        self.crews[crew as usize].submit(owner, given, work, waits)
    }

    /// Queues a job that needs nothing.
    ///
    /// # Errors
    /// If the owner has its share of the crew's queue.
    pub(crate) fn submit<R, F>(
        &self,
        whose: (Crew, &Claimant),
        work: F,
        waits: Waits,
    ) -> Result<JobResult<R>, Full<()>>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.submit_with(whose, (), |()| work(), waits)
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

    /// Returns the crews for whose jobs somebody waits.
    fn waited_for(&self) -> impl Iterator<Item = &Workers> {
        self.crews.iter().filter(|workers| workers.shared.crew.is_waited_for())
    }

    /// Returns the number of jobs that wait for a thread, and for which somebody waits.
    pub(crate) fn queued(&self) -> usize {
        self.waited_for().map(|workers| workers.shared.state.lock().jobs.queued()).sum()
    }

    /// Returns for how long the oldest job of a crew that has all of its threads has waited for one; zero if none waits, or nobody
    /// for it.
    pub(crate) fn longest_wait(&self) -> Duration {
        let oldest = |workers: &Workers| {
            let state = workers.shared.state.lock();
            // Beyond an owner's share jobs wait for their own kind.
            state.since.values().next().filter(|_| state.workers >= workers.shared.most).copied()
        };
        let oldest = self.waited_for().filter_map(oldest).min();
        oldest.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Gives up threads that hang, and starts others for them. It is to be called again after the time that it returns.
    pub(crate) fn look(&self) -> Duration {
        self.crews.iter().map(Workers::look).min().unwrap_or(HANG_SLACK)
    }
}

impl Workers {
    fn start(
        crew: Crew,
        (least, most): (usize, usize),
        limit: usize,
        (hang_deadline, figures): (Duration, Arc<NodeFigures>),
    ) -> io::Result<Self> {
        let state = Mutex::new(QueueState {
            jobs: crew.turns(most),
            places: Shares::new(SharedBound::STEPS.with_limit(limit as u64)),
            since: BTreeMap::new(),
            last: 0,
            stopped: false,
            workers: 0,
            idle: 0,
            pace: Duration::ZERO,
        });
        let shared = Arc::new(Shared { state, filled: Condvar::new(), crew, least, most, figures });
        let workers = Self { shared, hang_deadline, began: Instant::now(), watches: Mutex::new(Vec::new()) };
        for _ in 0..least {
            workers.start_worker()?;
        }
        Ok(workers)
    }

    fn submit<G, R, F>(
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
        state.last += 1;
        let (number, queued) = (state.last, Instant::now());
        state.since.insert(number, queued);
        state.jobs.push(owner.clone(), Job { run, hold, number, queued });
        let grows = state.jobs.queued() > state.idle && state.workers < self.shared.most;
        drop(state);
        if grows {
            // Without another thread the job waits for one of those that are there.
            let _started = self.start_worker();
        }
        self.shared.filled.notify_one();
        Ok(result)
    }

    fn look(&self) -> Duration {
        let now = self.began.elapsed();
        let (mut given_up, mut again_at) = (0, now + HANG_SLACK);
        let mut watches = self.watches.lock();
        watches.retain_mut(|watched| {
            let mut current = watched.slot.lock();
            if current.over {
                return false;
            }
            let waits = current.job.as_ref().is_none_or(|hold| (hold.waits)());
            let Verdict::Hung(still) = watched.watch.look(now, current.number, waits) else {
                again_at = again_at.min(watched.watch.look_at(now));
                return true;
            };
            let Some(hold) = current.job.take() else { return true };
            current.abandoned = (hold.give_up)(JobError::Hung(still));
            given_up += usize::from(current.abandoned);
            !current.abandoned
        });
        drop(watches);
        self.shared.state.lock().workers -= given_up;
        for _ in 0..given_up {
            if self.shared.figures.threads.abandoned.add(1) <= MAX_ABANDONED {
                // A thread that cannot be started now is one worker less; the others go on.
                let _started = self.start_worker();
            }
        }
        again_at.saturating_sub(now)
    }

    /// Starts a worker, unless there are as many as there may be.
    fn start_worker(&self) -> io::Result<()> {
        {
            let mut state = self.shared.state.lock();
            if state.workers >= self.shared.most {
                return Ok(());
            }
            state.workers += 1;
        }
        let slot: Slot =
            Arc::new(Mutex::new(Current { number: 0, job: None, abandoned: false, over: false }));
        let (shared, own) = (Arc::clone(&self.shared), Arc::clone(&slot));
        // Task: worker.
        let started = std::thread::Builder::new()
            .name("rollhouse-worker".to_owned())
            .spawn(move || work(&shared, &own));
        if let Err(error) = started {
            self.shared.state.lock().workers -= 1;
            return Err(error);
        }
        self.watches.lock().push(Watched { slot, watch: HangWatch::new(self.hang_deadline) });
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stopped = true;
        let jobs = std::mem::replace(&mut state.jobs, self.shared.crew.turns(self.shared.most));
        drop(state);
        self.shared.filled.notify_all();
        drop(jobs);
    }
}

impl Shared {
    /// Waits for the next job; `None` when the executor is gone, or after a while in which there was none for a thread
    /// beyond the least.
    fn next(&self) -> Option<(Claimant, Job)> {
        let mut state = self.state.lock();
        let until = Instant::now() + IDLE;
        loop {
            if state.stopped {
                return None;
            }
            if let Some((owner, job)) = state.jobs.pop() {
                state.since.remove(&job.number);
                state.places.give_back(&owner, 1);
                return Some((owner, job));
            }
            state.idle += 1;
            let over = if state.workers > self.least {
                self.filled.wait_until(&mut state, until).timed_out()
            } else {
                self.filled.wait(&mut state);
                false
            };
            state.idle -= 1;
            if over && state.jobs.queued() == 0 && state.workers > self.least {
                state.workers -= 1;
                return None;
            }
        }
    }
}

/// Runs a worker's thread: does jobs until there are none for it or the worker itself is given up.
fn work(shared: &Shared, slot: &Mutex<Current>) {
    shared.crew.urgency().apply();
    while let Some((owner, Job { run, hold, queued, .. })) = shared.next() {
        {
            let mut current = slot.lock();
            current.number += 1;
            current.job = Some(hold);
        }
        let began = Instant::now();
        if shared.crew.is_waited_for() {
            shared.figures.threads.queue_wait.observe(began.saturating_duration_since(queued));
        }
        run();
        let took = began.elapsed();
        let mut state = shared.state.lock();
        state.pace = (state.pace * 7 + took) / 8;
        state.jobs.done(&owner);
        drop(state);
        let mut current = slot.lock();
        current.job = None;
        if current.abandoned {
            return;
        }
    }
    slot.lock().over = true;
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

/// Time after which a thread beyond the least ends, if it had no job.
const IDLE: Duration = Duration::from_secs(10);

/// Threads that may be given up before no others are started for them: each may hold a session's memory for as long as
/// the node lives.
pub(crate) const MAX_ABANDONED: u64 = 64;

/// Shortest pause proposed to a client: one that asks sooner finds the queue full again.
const LEAST_RETRY: Duration = Duration::from_millis(1);

/// Longest pause proposed to a client: the pace of a slower queue is not worth guessing.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
impl Executor {
    /// Starts one thread for each crew, so that a test can keep it busy.
    pub(crate) fn of_one(hang_deadline: Duration, figures: Arc<NodeFigures>) -> Self {
        Self::start((1, 1), 8, Deadlines::of_sessions(hang_deadline), figures).unwrap()
    }
}

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
        let first = executor.submit((Crew::Computing, &ada()), work, never()).unwrap();
        begun.recv().unwrap();
        let (order, done) = sync_channel(64);
        let mut queued = Vec::new();
        loop {
            let order = order.clone();
            match executor.submit((Crew::Computing, &ada()), move || order.send("ada").unwrap(), never()) {
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
            queued.push(executor.submit((Crew::Computing, &Claimant::owner(owner)), step, never()).unwrap());
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
        Executor::start(
            (workers, SharedBound::WAITING.limit as usize),
            limit,
            Deadlines::of_sessions(deadline),
            Arc::default(),
        )
        .unwrap()
    }

    #[test]
    fn a_full_queue_gives_the_job_back_with_a_time_to_try_again() {
        let executor = executor(1, 1, Duration::from_secs(60));
        let (work, begun, let_go) = held(1);
        let first = executor.submit((Crew::Computing, &ada()), work, never()).unwrap();
        begun.recv().unwrap();
        let second = executor.submit((Crew::Computing, &ada()), || 2, never()).unwrap();
        assert_eq!(executor.queued(), 1);
        let full = executor.submit((Crew::Computing, &ada()), || 3, never()).unwrap_err();
        assert!((LEAST_RETRY..=LONGEST_RETRY).contains(&full.retry_after));
        let_go.send(()).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), Ok(1));
        assert_eq!(second.blocking_recv().unwrap(), Ok(2));
        assert_eq!(full.given, ());
    }

    #[test]
    fn a_panic_is_told_and_the_thread_goes_on() {
        let executor = executor(1, 8, Duration::from_secs(60));
        let panics =
            executor.submit((Crew::Computing, &ada()), || -> u32 { panic!("told to") }, never()).unwrap();
        assert_eq!(panics.blocking_recv().unwrap(), Err(JobError::Panicked("told to".to_owned())));
        let next = executor.submit((Crew::Computing, &ada()), || 4, never()).unwrap();
        assert_eq!(next.blocking_recv().unwrap(), Ok(4));
    }

    #[test]
    fn a_thread_that_hangs_is_given_up_and_another_takes_the_next_job() {
        let executor = executor(1, 8, Duration::ZERO);
        let (work, begun, let_go) = held(1);
        let hung = executor.submit((Crew::Computing, &ada()), work, never()).unwrap();
        begun.recv().unwrap();
        // The first look sees the job, the second that it has not moved.
        executor.look();
        executor.look();
        assert!(matches!(hung.blocking_recv().unwrap(), Err(JobError::Hung(_))));
        let next = executor.submit((Crew::Computing, &ada()), || 5, never()).unwrap();
        assert_eq!(next.blocking_recv().unwrap(), Ok(5));
        let_go.send(()).unwrap();
    }

    #[test]
    fn a_job_that_waits_for_the_disk_is_no_hang() {
        let executor = executor(1, 8, Duration::ZERO);
        let (work, begun, let_go) = held(1);
        let waiting = executor.submit((Crew::Computing, &ada()), work, Box::new(|| true)).unwrap();
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
        let first = executor.submit((Crew::Computing, &ada()), work, never()).unwrap();
        begun.recv().unwrap();
        let second = executor.submit((Crew::Computing, &ada()), || 2, never()).unwrap();
        drop(executor);
        assert!(second.blocking_recv().is_err());
        let_go.send(()).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), Ok(1));
    }

    /// Symptom: six sessions of an env with steps of 20 s kept everybody else on the node waiting for 57 s. Cause: they
    /// held the threads that step kernels while they waited for their processes. Fix: jobs that may wait have threads
    /// of their own, each one.
    #[test]
    fn jobs_that_wait_keep_neither_those_that_compute_nor_each_other_waiting() {
        let executor = executor(1, 64, Duration::from_secs(60));
        let waiting: Vec<_> = (0..9)
            .map(|value| {
                let (work, begun, let_go) = held(value);
                let result = executor.submit((Crew::Waiting, &ada()), work, never()).unwrap();
                // Each begins although none of those before has ended.
                begun.recv().unwrap();
                (value, result, let_go)
            })
            .collect();
        let computed = executor.submit((Crew::Computing, &ada()), || 100, never()).unwrap();
        assert_eq!(computed.blocking_recv().unwrap(), Ok(100));
        assert_eq!(executor.longest_wait(), Duration::ZERO);
        for (value, result, let_go) in waiting {
            let_go.send(()).unwrap();
            assert_eq!(result.blocking_recv().unwrap(), Ok(value));
        }
    }

    #[test]
    fn while_every_thread_is_in_a_job_the_longest_wait_grows() {
        let executor = executor(1, 8, Duration::from_secs(60));
        let (work, begun, let_go) = held(1);
        let first = executor.submit((Crew::Computing, &ada()), work, never()).unwrap();
        begun.recv().unwrap();
        let second = executor.submit((Crew::Computing, &ada()), || 2, never()).unwrap();
        let before = executor.longest_wait();
        while executor.longest_wait() == before {}
        let_go.send(()).unwrap();
        assert_eq!(first.blocking_recv().unwrap(), Ok(1));
        assert_eq!(second.blocking_recv().unwrap(), Ok(2));
        assert_eq!(executor.longest_wait(), Duration::ZERO);
    }

    #[test]
    fn an_owner_that_has_its_share_of_the_threads_that_wait_leaves_others_theirs() {
        let deadlines = Deadlines::of_sessions(Duration::from_secs(60));
        let executor = Executor::start((1, 4), 64, deadlines, Arc::default()).unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|value| {
                let (work, begun, let_go) = held(value);
                (value, executor.submit((Crew::Waiting, &ada()), work, never()).unwrap(), begun, let_go)
            })
            .collect();
        // Two begin, which are as many as one owner may have of four; the third waits for one of them to end.
        waiting[..2].iter().for_each(|(_, _, begun, _)| begun.recv().unwrap());
        let other = Claimant::owner("bert");
        let done = executor.submit((Crew::Waiting, &other), || 10, never()).unwrap();
        assert_eq!(done.blocking_recv().unwrap(), Ok(10));
        assert!(waiting[2..].iter().all(|(_, _, begun, _)| begun.try_recv().is_err()));
        for (value, result, _, let_go) in waiting {
            let_go.send(()).unwrap();
            assert_eq!(result.blocking_recv().unwrap(), Ok(value));
        }
    }
}
