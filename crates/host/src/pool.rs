//! The workers that step the lanes of one session, whatever they run.

use std::ops::Range;
use std::time::{Duration, Instant};

use rollhouse_arena::SharedMemory;
use rollhouse_core::{LaneDeadlines, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    CallError, Collected, Image, ImageSize, LateRows, MakeError, Post, RenderError, StateError,
};
use tracing::warn;

use crate::census::Counting;
use crate::config::HostConfig;
use crate::error::HostError;
use crate::host::{Host, Until, WorkerEvent};
use crate::supervisor::{Cause, Restart, WorkerState};
use crate::worker_slot::Memories;

/// Workers, and the *parts* that each of them has: lanes, or blocks of them. A part's number is the session's. All blocks of
/// the session share the pool.
///
/// The pool starts workers, gives them commands, waits for them and ends them, and counts what they have not answered. What
/// a command has, and what lanes do meanwhile, is its protocol's.
#[derive(Debug)]
pub(crate) struct WorkerPool<P: Protocol> {
    pub(crate) host: Host,
    pub(crate) workers: Vec<Worker>,
    pub(crate) protocol: P,
    /// Bytes of a command: kept so that a step allocates none.
    command: Vec<u8>,
}

/// What is known of a worker beside its state.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) parts: Range<usize>,
    /// Whether it is there and its lanes can be used.
    pub(crate) up: bool,
    /// Command that it has not answered.
    pub(crate) outstanding: Outstanding,
    /// Number of its last command to work.
    number: u64,
    /// Whether it was ended for what it sent, and not because it was late.
    lied: bool,
    /// Its answer to the last question.
    answer: Option<Vec<u8>>,
}

/// Command that a worker has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Outstanding {
    #[default]
    Nothing,
    Work,
    /// A question about one of its lanes.
    Question,
    /// The first command, which it gets whenever it is started.
    Setup,
    /// A call of the worker as a whole.
    Call,
}

/// What follows from a worker's answer to its hello.
pub(crate) enum Met {
    /// The worker's lanes can be used.
    Up,
    /// The worker is to be given this command first.
    SetUp(Vec<u8>),
    /// Nothing follows yet.
    Waits,
}

/// A worker that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Index of the worker.
    pub worker: usize,
    /// Cause of its end.
    pub cause: Cause,
    /// Explanation for people.
    pub detail: String,
}

/// What the host and the workers of a pool send each other, and what is known of the lanes by it.
pub(crate) trait Protocol: Sized + Send + 'static {
    /// Whether rows are looked for before the pool sleeps at all, and not first after a moment.
    const LOOKS_FIRST: bool;

    /// Notes that all workers are there for the first time.
    fn begin(&mut self);

    /// Takes a worker's answer to its hello. The error says what is wrong with it.
    fn meet(&mut self, worker: usize, answer: Vec<u8>) -> Result<Met, String>;

    /// Notes that the worker of these parts has answered its first command, or a call.
    fn take_reply(&mut self, worker: usize, to: Outstanding, parts: Range<usize>, payload: Vec<u8>) {
        let _ = (worker, to, parts, payload);
    }

    /// Notes that a worker has ended, which had not answered `to`.
    fn take_end(&mut self, gone: Gone, to: Outstanding, restart: Restart) {
        let _ = (gone, to, restart);
    }

    /// Writes command `number` of an idle worker. Returns whether it has anything to do.
    fn command(
        &mut self,
        worker: (usize, Range<usize>),
        number: u64,
        memories: Memories<'_>,
        command: &mut Vec<u8>,
    ) -> bool;

    /// Returns whether something can be collected that no worker has to do first.
    fn has_losses(&self) -> bool;

    /// Returns whether a row is there.
    fn has_rows(&self, memories: Memories<'_>) -> bool;

    /// Returns whether the worker of these parts may have done one of them without ringing: several are under way. The last
    /// part of a command is followed by the reply, which always rings.
    fn is_unheard(&self, parts: Range<usize>) -> bool;

    /// Takes what came with the answer to a command. The error says what is wrong with it; it ends the worker.
    fn take_words(&mut self, worker: usize, parts: Range<usize>, payload: &[u8]) -> Result<(), String>;

    /// Returns whether a part has not done what command `number` had for it.
    fn is_silent(&self, parts: Range<usize>, number: u64, memories: Memories<'_>) -> bool;

    /// Takes the parts of a worker that has ended, or is about to, out of use. Rows that are complete may stay.
    fn lose(&mut self, worker: (usize, Range<usize>), memories: Memories<'_>, hung: bool, why: &str);

    /// Copies rows that nobody has collected yet out of the memory of a worker's last process.
    fn keep_rows(&self, parts: Range<usize>, memories: Memories<'_>, left: (&SharedMemory, usize)) {
        let _ = (parts, memories, left);
    }

    // What follows is about the lanes of a block, a range of the session's, or about one of the session's lanes. Each does what the method of the same name of `LateLanes` or `BatchEnv` says.

    fn post(pool: &mut WorkerPool<Self>, block: Range<usize>, post: &Post<'_>);
    fn linger(&mut self, block: Range<usize>, memories: Memories<'_>) {
        let _ = (block, memories);
    }
    fn collect(pool: &mut WorkerPool<Self>, block: Range<usize>, rows: LateRows<'_, '_>) -> Collected;
    /// Returns the workers of those of the lanes that are under way.
    fn workers_of(&self, block: Range<usize>, lanes: LaneSet) -> Vec<usize>;
    /// Takes the lanes whose worker was given up.
    fn take_given_up(&mut self, block: Range<usize>) -> LaneSet;
    fn revive(pool: &mut WorkerPool<Self>, block: Range<usize>, lanes: LaneSet) -> LaneSet;
    fn coming(pool: &WorkerPool<Self>, block: Range<usize>, lanes: LaneSet) -> LaneSet;
    fn connecting(pool: &mut WorkerPool<Self>, block: Range<usize>) -> LaneSet {
        let _ = (pool, block);
        LaneSet::NONE
    }
    fn gone(&self, block: Range<usize>) -> Collected {
        let _ = block;
        Collected::default()
    }
    fn refuse(&mut self, lane: usize, why: &str) {
        let _ = (lane, why);
    }
    fn why_lost(pool: &mut WorkerPool<Self>, lane: usize) -> Option<String> {
        let _ = (pool, lane);
        None
    }
    fn further_infos(&self, lane: usize, memories: Memories<'_>) -> Option<String> {
        let _ = (lane, memories);
        None
    }
    fn take_pictures(
        pool: &mut WorkerPool<Self>,
        block: Range<usize>,
        lanes: LaneSet,
        begun: bool,
    ) -> Vec<(usize, Vec<u8>)> {
        let _ = (pool, block, lanes, begun);
        Vec::new()
    }

    fn seed(&mut self, lane: usize, seed: u64);
    fn position(pool: &mut WorkerPool<Self>, lane: usize) -> Start;
    fn restore(&mut self, lane: usize, start: Start);
    fn set_options(pool: &mut WorkerPool<Self>, lane: usize, options: &Options) -> Result<(), MakeError>;
    fn hash(pool: &mut WorkerPool<Self>, lane: usize) -> u32;
    fn has_verdicts(&self) -> bool;
    fn verdict(pool: &mut WorkerPool<Self>, lane: usize) -> Verdict;
    fn state(pool: &mut WorkerPool<Self>, lane: usize) -> Result<Vec<f64>, StateError> {
        let _ = (pool, lane);
        Err(StateError::Unsupported)
    }
    fn set_state(pool: &mut WorkerPool<Self>, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let _ = (pool, lane, state);
        Err(StateError::Unsupported)
    }
    fn call(
        pool: &mut WorkerPool<Self>,
        lane: usize,
        method: &str,
        payload: &str,
    ) -> Result<String, CallError>;
    fn render(pool: &mut WorkerPool<Self>, lane: usize, size: ImageSize) -> Result<Image, RenderError>;
    fn text(pool: &mut WorkerPool<Self>, lane: usize, columns: usize) -> Result<String, RenderError> {
        let _ = (pool, lane, columns);
        Err(RenderError::Unsupported)
    }
}

impl<P: Protocol> WorkerPool<P> {
    /// Starts workers, of which each has a range of parts. They are counted if somebody counts, and have memories with
    /// `bytes` for the protocol once that is known.
    ///
    /// # Errors
    /// As [`Host::start`] and [`Host::share`].
    pub(crate) fn start(
        config: HostConfig,
        counting: Option<Counting>,
        bytes: Option<usize>,
        parts: Vec<Range<usize>>,
        protocol: P,
    ) -> Result<Self, HostError> {
        let mut host = Host::start(config)?;
        if let Some(counting) = counting {
            host.count_by(counting);
        }
        if let Some(bytes) = bytes {
            host.share(bytes)?;
        }
        let worker = |parts| Worker {
            parts,
            up: false,
            outstanding: Outstanding::Nothing,
            number: 0,
            lied: false,
            answer: None,
        };
        let workers = parts.into_iter().map(worker).collect();
        Ok(Self { host, workers, protocol, command: Vec::new() })
    }

    /// Waits until every worker is there, and puts its lanes to use. Returns what is wrong with the first one that is
    /// lost instead, for more than the time that it is launched once more. Blocks until the host's launch deadline, and its
    /// connect deadline.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        while !self.workers.iter().all(|worker| worker.up) {
            if let Err(error) = self.host.wait_for_start(LOOK_AGAIN) {
                return Err(error.to_string());
            }
            if let Some(wrong) = self.take_events() {
                return Err(wrong);
            }
        }
        self.protocol.begin();
        Ok(())
    }

    /// Returns the times that lanes may take for what is waited for here.
    pub(crate) const fn deadlines(&self) -> LaneDeadlines {
        self.host.lane_deadlines()
    }

    /// Gives workers that are idle what was posted for their parts. Returns whether something happened to a worker since
    /// it was last looked after.
    pub(crate) fn dispatch(&mut self) -> bool {
        let happened = self.pump();
        for worker in 0..self.workers.len() {
            if self.workers[worker].up && self.host.state(worker) == WorkerState::Idle {
                self.command(worker);
            }
        }
        happened
    }

    /// Gives an idle worker a command, if a part waits for one.
    fn command(&mut self, worker: usize) {
        let Self { host, workers, protocol, command } = self;
        let (number, parts) = (workers[worker].number + 1, workers[worker].parts.clone());
        command.clear();
        if protocol.command((worker, parts), number, host.memories(), command) {
            workers[worker].number = number;
            let posted = host.post(worker, number << KIND_BITS | WORK, command, None);
            self.note_posted(worker, Outstanding::Work, posted);
        }
    }

    /// Notes that a worker was given a command; one that cannot be is ended. Returns whether it was.
    fn note_posted(&mut self, worker: usize, what: Outstanding, posted: Result<(), HostError>) -> bool {
        match posted {
            Ok(()) => self.workers[worker].outstanding = what,
            Err(error) => {
                warn!(worker, %error, ?what, "a worker cannot be given a command");
                self.end_worker(worker, true);
                return false;
            }
        }
        true
    }

    /// Gives a worker its first command, unless it has ended meanwhile: then it gets it when it is back.
    pub(crate) fn set_up(&mut self, worker: usize, setup: &[u8]) {
        if self.host.state(worker) == WorkerState::Idle {
            let posted = self.host.post(worker, SETUP, setup, None);
            self.note_posted(worker, Outstanding::Setup, posted);
        }
    }

    /// Waits until a row may be there, at most until `deadline`.
    pub(crate) fn wait(&mut self, deadline: Instant) {
        if self.dispatch() || self.protocol.has_losses() {
            return;
        }
        let Self { host, protocol, .. } = self;
        let seen = |memories: Memories<'_>| protocol.has_rows(memories);
        let there = P::LOOKS_FIRST && seen(host.memories());
        let patience = deadline.saturating_duration_since(Instant::now());
        if !there && let Err(error) = host.wait_or(Until::AnyEvent, &seen, Some(patience)) {
            warn!(%error, "workers cannot be waited for");
            (0..self.workers.len()).for_each(|worker| self.lose_parts(worker, false, ""));
        }
        self.dispatch();
    }

    /// Has workers ring for one who sleeps on the host's descriptor, as [`rollhouse_env::LateLanes::arm`] has it.
    pub(crate) fn arm(&mut self, now: Instant) -> Option<Instant> {
        if self.dispatch() || self.protocol.has_losses() {
            return Some(now);
        }
        let Self { host, workers, protocol, .. } = self;
        let seen = |memories: Memories<'_>| protocol.has_rows(memories);
        let unheard = workers.iter().any(|worker| protocol.is_unheard(worker.parts.clone()));
        host.arm(now, &seen, unheard)
    }

    /// Gives up lanes of a block with their workers, as [`rollhouse_env::LateLanes::give_up`] has it.
    pub(crate) fn give_up(&mut self, block: Range<usize>, lanes: LaneSet, why: &str) -> LaneSet {
        for worker in self.protocol.workers_of(block.clone(), lanes & LaneSet::first(block.len())) {
            warn!(worker, why, "a worker is given up, with its lanes");
            self.lose_parts(worker, true, why);
            self.end_worker(worker, false);
        }
        self.protocol.take_given_up(block)
    }

    /// Returns whether a worker's lanes cannot be used because it is being started.
    pub(crate) fn is_coming(&self, worker: usize) -> bool {
        let Worker { up, outstanding, .. } = self.workers[worker];
        !up && (self.host.state(worker).is_coming() || outstanding == Outstanding::Setup)
    }

    /// Asks a worker, once it is idle, what `question` returns then, and waits for the answer; `None` if it was lost, before
    /// or by it, or if there is no question then. A worker that does not answer within `time` is ended.
    pub(crate) fn ask(
        &mut self,
        worker: usize,
        code: u64,
        time: Duration,
        question: impl FnOnce(&mut Self) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let deadline = Instant::now() + time;
        let idle = |pool: &Self| pool.host.state(worker) == WorkerState::Idle;
        if !self.wait_for_worker(worker, deadline, idle) {
            return None;
        }
        let question = question(self)?;
        let posted = self.host.post(worker, code, &question, Some(time + GIVE_UP_GRACE));
        self.workers[worker].answer = None;
        let answered = |pool: &Self| pool.workers[worker].answer.is_some();
        if !self.note_posted(worker, Outstanding::Question, posted)
            || !self.wait_for_worker(worker, deadline, answered)
        {
            return None;
        }
        self.workers[worker].answer.take()
    }

    /// Waits until something holds of a worker that is there; ends the worker if it takes too long. Returns whether it
    /// holds.
    fn wait_for_worker(&mut self, worker: usize, deadline: Instant, holds: impl Fn(&Self) -> bool) -> bool {
        loop {
            self.pump();
            if !self.workers[worker].up {
                return false;
            }
            if holds(self) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = self.deadlines().why_not_called();
                self.lose_parts(worker, true, &why);
                self.end_worker(worker, false);
                return false;
            }
            if let Err(error) = self.host.wait(Until::AnyEvent, Some(left)) {
                warn!(%error, "workers cannot be looked after");
                return false;
            }
        }
    }

    /// Looks after the workers without waiting. Returns whether something happened to one.
    pub(crate) fn pump(&mut self) -> bool {
        if let Err(error) = self.host.wait(Until::AnyEvent, Some(Duration::ZERO)) {
            warn!(%error, "workers cannot be looked after");
        }
        let happened = self.host.has_events();
        self.take_events();
        happened
    }

    /// Handles what happened to workers. Returns what is wrong with the last one that was lost, unless its start is tried
    /// again.
    fn take_events(&mut self) -> Option<String> {
        let mut wrong = None;
        while let Some(event) = self.host.next_event() {
            match event {
                WorkerEvent::Ready { worker, answer, left } => {
                    if let Some((left, at)) = left {
                        let parts = self.workers[worker].parts.clone();
                        self.protocol.keep_rows(parts, self.host.memories(), (&left, at));
                    }
                    wrong = self.meet(worker, answer).or(wrong);
                }
                WorkerEvent::Replied(reply) => self.take_reply(reply.worker, reply.payload),
                WorkerEvent::Lost { worker, cause, restart, detail } => {
                    let known = &mut self.workers[worker];
                    // One that was there comes back as it does later.
                    let again = matches!(restart, Restart::Again(_))
                        || known.up && matches!(restart, Restart::After(_));
                    let (lied, to) =
                        (std::mem::take(&mut known.lied), std::mem::take(&mut known.outstanding));
                    if !lied {
                        warn!(worker, ?cause, ?restart, detail, "a worker is lost, with its lanes");
                        if !again {
                            wrong = Some(detail.clone());
                        }
                    }
                    self.lose_parts(worker, cause == Cause::Hung && !lied, &detail);
                    self.protocol.take_end(Gone { worker, cause, detail }, to, restart);
                }
            }
        }
        wrong
    }

    /// Takes the answer of a worker that is ready. Returns what is wrong with it.
    fn meet(&mut self, worker: usize, answer: Vec<u8>) -> Option<String> {
        match self.protocol.meet(worker, answer) {
            Ok(Met::Up) => (self.workers[worker].up, self.workers[worker].lied) = (true, false),
            Ok(Met::SetUp(setup)) => self.set_up(worker, &setup),
            Ok(Met::Waits) => {}
            Err(wrong) => {
                warn!(worker, wrong, "a worker cannot be used; its lanes are lost");
                self.end_worker(worker, true);
                return Some(wrong);
            }
        }
        None
    }

    /// Takes the answer to a command. At that to work every part of the command has to be done.
    fn take_reply(&mut self, worker: usize, payload: Vec<u8>) {
        let Self { host, workers, protocol, .. } = self;
        let known = &mut workers[worker];
        let parts = known.parts.clone();
        let wrong = match std::mem::take(&mut known.outstanding) {
            Outstanding::Work => {
                let taken = protocol.take_words(worker, parts.clone(), &payload);
                let silent = protocol.is_silent(parts, known.number, host.memories());
                taken.err().or(silent.then(|| "it has answered without all of its lanes".to_owned()))
            }
            Outstanding::Question => {
                known.answer = Some(payload);
                None
            }
            to => {
                if to == Outstanding::Setup {
                    (known.up, known.lied) = (true, false);
                }
                protocol.take_reply(worker, to, parts, payload);
                None
            }
        };
        if let Some(wrong) = wrong {
            warn!(worker, wrong, "a worker's answer makes no sense");
            self.end_worker(worker, true);
        }
    }

    /// Ends a worker, with its lanes; `lied` if it is ended for what it sent.
    pub(crate) fn end_worker(&mut self, worker: usize, lied: bool) {
        self.workers[worker].lied |= lied;
        self.lose_parts(worker, !lied, "");
        if let Err(error) = self.host.give_up(worker) {
            warn!(worker, %error, "a worker cannot be ended");
        }
    }

    pub(crate) fn lose_parts(&mut self, worker: usize, hung: bool, why: &str) {
        let Self { host, workers, protocol, .. } = self;
        workers[worker].up = false;
        protocol.lose((worker, workers[worker].parts.clone()), host.memories(), hung, why);
    }

    /// Lets workers close their envs as soon as they are idle, for at most `patience`.
    pub(crate) fn close(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut closing = vec![false; self.workers.len()];
        // Those of a forked child are its parent's.
        while self.host.wait(Until::AnyEvent, Some(Duration::ZERO)).is_ok() {
            // Nobody is left to be told of it.
            while self.host.next_event().is_some() {}
            for (worker, closing) in closing.iter_mut().enumerate() {
                if !*closing && self.host.state(worker) == WorkerState::Idle {
                    // One that takes no command is ended without.
                    let _ = self.host.post(worker, CLOSE, &[], Some(patience));
                    *closing = true;
                }
            }
            let busy = (0..closing.len()).any(|worker| self.host.state(worker) == WorkerState::Busy);
            let left = deadline.saturating_duration_since(Instant::now());
            if !busy || left.is_zero() || self.host.wait(Until::AnyEvent, Some(left)).is_err() {
                return;
            }
        }
    }
}

impl<P: Protocol> Drop for WorkerPool<P> {
    fn drop(&mut self) {
        self.close(CLOSE_PATIENCE);
        self.host.end(CLOSE_PATIENCE);
    }
}

/// Bits of a command's code that say what it is; the others are the number of a command to work.
pub(crate) const KIND_BITS: u32 = 8;
/// Kinds of commands that workers of every protocol know. Others are their protocol's.
pub(crate) const WORK: u64 = 1;
pub(crate) const CLOSE: u64 = 2;
pub(crate) const SETUP: u64 = 3;

/// Time for which workers may close their envs at the end.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time that the host has beside that of a question: the one who waits for the answer says why the worker is ended.
const GIVE_UP_GRACE: Duration = Duration::from_secs(2);
