//! The host, which carries out what the supervisor decides.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_arena::{Patience, SharedMemory};
use rollhouse_core::{DeadlineSettings, LaneDeadlines};
use tracing::info;

use crate::census::Counting;
use crate::config::{HostConfig, MAX_WORKERS, WorkerSource};
use crate::connect_watch::{ConnectWatch, Tries};
use crate::control::{DATA_OFFSET, INLINE_BYTES, Lines, Payload, new_memory};
use crate::error::HostError;
use crate::launcher::Launcher;
use crate::link::{QUIET_TIME, ring, silence};
use crate::message::{self, MAX_MESSAGE_BYTES, Tag};
use crate::poller::{Poller, Sign};
use crate::process::Process;
use crate::supervisor::{Action, Cause, Event, Restart, Supervisor, WorkerState};
use crate::worker_slot::{AtStart, Memories, WorkerSlot};
use crate::worker_socket::Place;

/// Worker processes and the memory that each of them shares with this one.
///
/// It belongs to the process that made it: in a forked child every call fails with [`HostError::Forked`], and dropping
/// it there leaves the workers alone. When it is dropped in the process that made it, it kills the workers.
#[derive(Debug)]
pub struct Host {
    supervisor: Supervisor,
    lane_deadlines: LaneDeadlines,
    launcher: Launcher,
    connect_watch: ConnectWatch,
    /// The workers' place in a census, if they are counted.
    counting: Option<Counting>,
    source: WorkerSource,
    slots: Vec<WorkerSlot>,
    max_answer_bytes: usize,
    /// Bytes of the caller in the memory of each worker; `None` while nothing is shared.
    shared: Option<usize>,
    poller: Poller,
    patience: Patience,
    started: Instant,
    owner: u32,
    ended: bool,
    /// Events that the caller has not taken yet. There are at most a few for each worker, because a worker whose event
    /// was taken has to be given a command, launched or lost before there is another.
    events: VecDeque<WorkerEvent>,
}

/// Event of a worker.
#[derive(Debug)]
pub enum WorkerEvent {
    /// The worker is there, or there again.
    Ready {
        /// The worker.
        worker: usize,
        /// Bytes that the worker passed to [`crate::Link::ready`].
        answer: Vec<u8>,
        /// Memory that its last process had, with the offset of the caller's part; the new one has another.
        left: Option<(SharedMemory, usize)>,
    },
    /// The worker answered a command.
    Replied(Reply),
    /// The worker is gone; its process group has been killed.
    Lost {
        /// Worker that was lost.
        worker: usize,
        /// Cause of the loss.
        cause: Cause,
        /// Decision about its restart.
        restart: Restart,
        /// Explanation for people: how the process ended, or what it said wrong.
        detail: String,
    },
}

/// Answer to a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// Worker that answered.
    pub worker: usize,
    /// Number whose meaning is the caller's.
    pub code: u64,
    /// Bytes of the answer; often none.
    pub payload: Vec<u8>,
}

/// Condition for which a host waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// No worker has a command that it has not answered.
    AllReplied,
    /// An event can be taken, or no worker has a command, is being launched or has its turn to be launched.
    AnyEvent,
    /// No worker is being launched or waits to be.
    AllBack,
}

/// Condition on the memories of the workers.
type Seen<'a> = dyn Fn(Memories<'_>) -> bool + 'a;

/// What a wait is for.
#[derive(Clone, Copy)]
struct Awaited<'a> {
    until: Until,
    seen: Option<&'a Seen<'a>>,
    /// Time from which `seen` is asked.
    from: Duration,
}

/// Way in which a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The condition holds.
    Satisfied,
    /// The time is over.
    TimedOut,
    /// A signal was handled. The caller waits again unless the signal wants something else.
    Interrupted,
}

impl Host {
    /// Starts the first [`HostConfig::launch_at_start`] workers. They report by [`WorkerEvent::Ready`] when [`Host::wait`] is called.
    ///
    /// # Errors
    /// [`HostError::Workers`], [`HostError::TooLong`] for a hello, [`HostError::Os`]. A program that cannot be
    /// started is no error but the loss of its worker.
    pub fn start(config: HostConfig) -> Result<Self, HostError> {
        let workers = config.hellos.len();
        if workers == 0 || workers > MAX_WORKERS {
            return Err(HostError::Workers(workers));
        }
        let seed = RandomState::new().hash_one(std::process::id());
        let joining = match &config.source {
            WorkerSource::Program(_) => None,
            WorkerSource::Socket(socket) => Some(socket.descriptor()),
        };
        let poller = Poller::new(joining)?;
        let max_launching = match &config.source {
            WorkerSource::Program(_) => config.launcher.max_launching(),
            // All places are open at once.
            WorkerSource::Socket(_) => workers,
        };
        let mut host = Self {
            supervisor: Supervisor::new(
                workers,
                max_launching,
                (config.launch_deadline, config.connect_deadline),
                seed,
            ),
            lane_deadlines: config.lane_deadlines,
            launcher: config.launcher,
            connect_watch: config.connect_watch,
            counting: None,
            source: config.source,
            slots: config.hellos.iter().map(|hello| WorkerSlot::new(hello)).collect::<Result<_, _>>()?,
            max_answer_bytes: config.max_answer_bytes,
            shared: None,
            poller,
            patience: Patience::among(workers + 1),
            started: Instant::now(),
            owner: std::process::id(),
            ended: false,
            events: VecDeque::new(),
        };
        host.wake(config.launch_at_start);
        Ok(host)
    }

    /// Launches the workers that have not been launched yet, each with a deadline of its own.
    ///
    /// # Errors
    /// [`HostError::Forked`], [`HostError::Ended`].
    pub fn launch_all(&mut self) -> Result<(), HostError> {
        self.check_usable()?;
        self.wake(self.slots.len());
        Ok(())
    }

    /// Counts the workers, each from when it is ready until it ends. To be called before the first wait.
    pub(crate) fn count_by(&mut self, counting: Counting) {
        self.counting = Some(counting);
    }

    /// Creates a memory for each worker, with `bytes` for the caller. A worker is given its memory when it is ready: at once
    /// if it is, else as its event is taken or as it is given its first command. A worker that is started again gets a
    /// new one, because what its last process left behind may still write to the one before. It is called once.
    ///
    /// # Errors
    /// [`HostError::Os`], [`HostError::Forked`], [`HostError::Ended`].
    pub fn share(&mut self, bytes: usize) -> Result<(), HostError> {
        self.check_usable()?;
        let memories: Vec<_> = self.slots.iter().map(|_| new_memory(bytes)).collect::<Result<_, _>>()?;
        for (slot, memory) in self.slots.iter_mut().zip(memories) {
            slot.first_memory = Some(memory);
        }
        self.shared = Some(bytes);
        (0..self.slots.len()).for_each(|worker| drop(self.attach(worker)));
        Ok(())
    }

    /// Returns the memory of a worker and the offset at which the caller's part begins, as [`Memories::of`] does.
    #[inline]
    pub fn memory(&self, worker: usize) -> Option<(&SharedMemory, usize)> {
        self.memories().of(worker)
    }

    /// Returns the memories of the workers.
    #[inline]
    pub fn memories(&self) -> Memories<'_> {
        Memories::of_slots(&self.slots)
    }

    /// Returns the times that lanes may take for what is waited for here.
    pub(crate) const fn lane_deadlines(&self) -> LaneDeadlines {
        self.lane_deadlines
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.slots.len()
    }

    /// Returns the state of a worker.
    pub fn state(&self, worker: usize) -> WorkerState {
        self.supervisor.state(worker)
    }

    /// Returns the process id of a worker that has a process.
    pub fn process_id(&self, worker: usize) -> Option<u32> {
        self.slots[worker].process_id()
    }

    /// Gives an idle worker a command, to be answered within `timeout` (`None` waits for ever). A worker that does not
    /// answer in time is hung and killed. Does not block. The worker sees what is in its memory by now.
    ///
    /// # Errors
    /// [`HostError::NotIdle`], also before [`Host::share`]; [`HostError::TooLong`], [`HostError::Os`],
    /// [`HostError::Forked`], [`HostError::Ended`]. The worker has not been given the command then.
    pub fn post(
        &mut self,
        worker: usize,
        code: u64,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<(), HostError> {
        self.check_usable()?;
        // One whose event was not taken yet.
        drop(self.attach(worker));
        if self.shared.is_none() || self.supervisor.state(worker) != WorkerState::Idle {
            return Err(HostError::NotIdle(worker));
        }
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(HostError::TooLong(bytes.len()));
        }
        let slot = &mut self.slots[worker];
        let mut payload = Payload::Inline(bytes);
        if let Some(socket) = slot.socket.as_ref().filter(|_| bytes.len() > INLINE_BYTES) {
            let stashed = message::stash(bytes)?;
            // A worker that has just died refuses; that it is dead is found while waiting for its answer.
            let _ = message::send(socket, Tag::Payload, 0, &[stashed.as_fd()]);
            payload = Payload::Elsewhere(bytes.len());
        }
        slot.sequence += 1;
        if slot.lines().is_some_and(|lines| lines.command(slot.sequence, code, payload)) {
            ring(&slot.bell)?;
        }
        let now = self.started.elapsed();
        self.poller.posted = now;
        let actions = self.supervisor.on(now, worker, Event::Posted(timeout.map(|timeout| now + timeout)));
        self.act(actions);
        Ok(())
    }

    /// Waits until the condition `until` holds, for at most `timeout` (`None`: for ever). It looks after all workers
    /// meanwhile and queues their events for [`Host::next_event`].
    ///
    /// # Errors
    /// [`HostError::Os`], [`HostError::Forked`], [`HostError::Ended`].
    pub fn wait(&mut self, until: Until, timeout: Option<Duration>) -> Result<Waited, HostError> {
        let from = self.started.elapsed();
        self.wait_for(Awaited { until, seen: None, from }, timeout)
    }

    /// Waits for an event, also for that of a worker that is launched again after its back-off, for at most `patience`.
    ///
    /// # Errors
    /// As [`Host::wait`].
    pub(crate) fn wait_for_start(&mut self, patience: Duration) -> Result<Waited, HostError> {
        use WorkerState as S;
        let has = |wanted: &[S]| {
            (0..self.slots.len()).any(|worker| wanted.contains(&self.supervisor.state(worker)))
        };
        let moves = has(&[S::Busy, S::Queued, S::Launching, S::Connecting]);
        // No event is waited for if workers do nothing but back off.
        let until = if has(&[S::BackOff]) && !moves { Until::AllBack } else { Until::AnyEvent };
        self.wait(until, Some(patience))
    }

    /// Waits as [`Host::wait`] does, but only until `seen` holds, which is about numbers that busy workers publish
    /// ([`crate::Link::publish`]). It is given the memories, and is first asked when the wait has lasted for 1 ms: being
    /// woken for each of many quick lanes would cost more than the lanes.
    ///
    /// # Errors
    /// As [`Host::wait`].
    pub fn wait_or(
        &mut self,
        until: Until,
        seen: &Seen<'_>,
        timeout: Option<Duration>,
    ) -> Result<Waited, HostError> {
        let from = self.started.elapsed() + QUIET_TIME;
        self.wait_for(Awaited { until, seen: Some(seen), from }, timeout)
    }

    fn wait_for(&mut self, awaited: Awaited<'_>, timeout: Option<Duration>) -> Result<Waited, HostError> {
        self.check_usable()?;
        let begun = self.started.elapsed();
        let deadline = timeout.map(|timeout| begun + timeout);
        self.disarm()?;
        let mut look_again = awaited.seen.map(|_| awaited.from);
        self.collect();
        if timeout != Some(Duration::ZERO) && !self.is_satisfied(awaited) {
            self.look(awaited);
            self.collect();
        }
        loop {
            self.tick();
            if self.needs_watching() {
                self.watch(Some(Duration::ZERO), awaited)?;
            }
            if self.is_satisfied(awaited) {
                return Ok(Waited::Satisfied);
            }
            let now = self.started.elapsed();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(Waited::TimedOut);
            }
            let wake = [deadline, self.supervisor.next_due(), self.socket_due(), look_again];
            let wake = wake.into_iter().flatten().min();
            if !self.watch(wake.map(|wake| wake.saturating_sub(now)), awaited)? {
                return Ok(Waited::Interrupted);
            }
            // A worker that began late was quiet later, so that it looks once more, each time after twice the time.
            let now = self.started.elapsed();
            look_again = look_again.map(|look| if look > now { look } else { now + (now - begun) });
        }
    }

    /// Kills a worker that has a process and launches it again as after any loss, whose event has the cause
    /// [`Cause::Hung`]. It does nothing to a worker without a process. Blocks as long as a process group takes to end.
    ///
    /// # Errors
    /// [`HostError::Forked`], [`HostError::Ended`].
    pub fn give_up(&mut self, worker: usize) -> Result<(), HostError> {
        self.check_usable()?;
        let actions = self.supervisor.on(self.started.elapsed(), worker, Event::GivenUp);
        self.act(actions);
        Ok(())
    }

    /// Looks whether workers that were seen connecting still do.
    pub(crate) fn look_again_at_tries(&mut self) {
        if self.slots.iter().any(|slot| slot.tries.is_some()) {
            self.look_at_tries();
        }
    }

    /// Returns whether a worker that has a command tries to connect, and has done so for less than its deadline.
    pub(crate) fn is_connecting(&mut self, worker: usize) -> bool {
        self.look_at_tries();
        let deadline = self.supervisor.connect_deadline();
        let late = |tries: &Tries| deadline.is_some_and(|deadline| tries.since.elapsed() >= deadline);
        self.slots[worker].tries.is_some_and(|tries| tries.retries > 0 && !late(&tries))
    }

    /// Returns whether there is an event to take.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the next event, in the order in which events were noticed. A worker that is ready is given its memory: until
    /// then [`Host::memory`] is that of its last process, so that the events before can be handled by it.
    pub fn next_event(&mut self) -> Option<WorkerEvent> {
        let mut event = self.events.pop_front();
        if let Some(WorkerEvent::Ready { worker, left, .. }) = &mut event {
            *left = self.attach(*worker);
        }
        event
    }

    /// Ends all workers: those without a command may end by themselves within `grace`, then all process groups
    /// are killed. Nothing can be posted afterwards. Does nothing in a forked child.
    pub fn end(&mut self, grace: Duration) {
        if self.check_usable().is_err() {
            return;
        }
        let deadline = Instant::now() + grace;
        let mut ending = Vec::new();
        for (worker, slot) in self.slots.iter_mut().enumerate() {
            self.poller.remove(slot);
            slot.counted = None;
            if let Some(process) = slot.process.take() {
                if self.supervisor.state(worker) == WorkerState::Idle {
                    process.ends_within(deadline.saturating_duration_since(Instant::now()));
                }
                ending.push(process);
            }
            (slot.socket, slot.guest, slot.launching, slot.tries) = (None, None, None, None);
        }
        Process::end_all(ending);
        self.show_tries();
        self.ended = true;
    }

    fn check_usable(&self) -> Result<(), HostError> {
        match () {
            () if self.owner != std::process::id() => Err(HostError::Forked),
            () if self.ended => Err(HostError::Ended),
            () => Ok(()),
        }
    }

    fn is_satisfied(&self, awaited: Awaited<'_>) -> bool {
        self.is_seen(awaited) || self.holds(awaited.until)
    }

    fn is_seen(&self, awaited: Awaited<'_>) -> bool {
        let Some(seen) = awaited.seen.filter(|_| self.started.elapsed() >= awaited.from) else {
            return false;
        };
        seen(self.memories())
    }

    fn holds(&self, until: Until) -> bool {
        let none = |states: &[WorkerState]| {
            (0..self.slots.len()).all(|worker| !states.contains(&self.supervisor.state(worker)))
        };
        use WorkerState as S;
        match until {
            Until::AllReplied => none(&[S::Busy]),
            Until::AllBack => (0..self.slots.len()).all(|worker| !self.state(worker).is_coming()),
            Until::AnyEvent => {
                !self.events.is_empty() || none(&[S::Busy, S::Queued, S::Launching, S::Connecting])
            }
        }
    }

    fn busy(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.slots.len()).filter(|&worker| self.supervisor.state(worker) == WorkerState::Busy)
    }

    fn has_replied(&self, worker: usize) -> bool {
        let slot = &self.slots[worker];
        slot.lines().is_some_and(|lines| lines.replied() == slot.sequence)
    }

    /// Spins and yields for replies.
    fn look(&mut self, awaited: Awaited<'_>) {
        let mut patience = self.patience;
        let (first, last) = (self.busy().next(), self.busy().next_back());
        if let (Some(first), Some(last)) = (first, last) {
            let answered = || match awaited.until {
                // Usually the last one posted is the last to answer; its neighbours are looked at after it.
                Until::AllReplied => {
                    self.has_replied(last) && self.busy().all(|worker| self.has_replied(worker))
                }
                Until::AnyEvent => (first..=last).any(|worker| self.has_replied(worker)),
                Until::AllBack => true,
            };
            patience.poll(|| answered().then_some(()));
        }
        self.patience = patience;
    }

    /// Takes the replies that are there.
    fn collect(&mut self) {
        for worker in 0..self.slots.len() {
            if self.supervisor.state(worker) == WorkerState::Busy && self.has_replied(worker) {
                self.take_reply(worker);
            }
        }
    }

    fn take_reply(&mut self, worker: usize) {
        let Some(lines) = self.slots[worker].lines() else { return };
        let head = lines.reply_head();
        let payload = match usize::try_from(head.len) {
            Ok(len) if len <= INLINE_BYTES => Ok(lines.reply_payload(len)),
            _ => self.slots[worker].payload(self.max_answer_bytes),
        };
        match payload {
            Ok(payload) => {
                if self.slots[worker].tries.take().is_some() {
                    self.show_tries();
                }
                self.supervisor.on(self.started.elapsed(), worker, Event::Replied);
                self.events.push_back(WorkerEvent::Replied(Reply { worker, code: head.code, payload }));
            }
            Err(what) => self.died(worker, what),
        }
    }

    /// Returns whether some worker is in a state in which only descriptors tell what happens to it.
    fn needs_watching(&self) -> bool {
        (0..self.slots.len()).any(|worker| self.is_starting(worker))
    }

    /// Returns whether a worker's process is there and not ready.
    fn is_starting(&self, worker: usize) -> bool {
        matches!(self.supervisor.state(worker), WorkerState::Launching | WorkerState::Connecting)
    }

    /// Sleeps until a worker replies, dies or becomes ready, or `patience` is over. Returns false if a signal came.
    fn watch(&mut self, patience: Option<Duration>, awaited: Awaited<'_>) -> Result<bool, HostError> {
        let sleeping = patience != Some(Duration::ZERO);
        let bells: Vec<usize> = match awaited.until {
            _ if !sleeping => Vec::new(),
            // All have to reply: whichever this one is, the others are looked at when it has.
            Until::AllReplied => self.busy().next_back().into_iter().collect(),
            _ => self.busy().collect(),
        };
        self.want_bells(&bells, true);
        let there = |host: &Self| host.busy().any(|worker| host.has_replied(worker)) || host.is_seen(awaited);
        let woken = if sleeping && there(self) { Ok(true) } else { self.poll(patience) };
        self.want_bells(&bells, false);
        let woken = woken?;
        self.collect();
        if sleeping {
            self.look_at_tries();
        }
        Ok(woken)
    }

    fn want_bells(&self, workers: &[usize], wants: bool) {
        for lines in workers.iter().filter_map(|&worker| self.slots[worker].lines()) {
            lines.set_wants_bell(wants);
        }
    }

    fn poll(&mut self, patience: Option<Duration>) -> Result<bool, HostError> {
        let Some(signs) = self.poller.sleep(self.slots.len(), patience)? else { return Ok(false) };
        if signs.bell {
            silence(&self.poller.bell);
        }
        for (worker, Sign { ended, spoke, printed, printed_last }) in signs.workers {
            if printed_last {
                self.poller.remove_output(&self.slots[worker]);
            }
            if printed && let Some(process) = &mut self.slots[worker].process {
                process.drain_log();
            }
            if spoke && self.is_starting(worker) {
                self.hear(worker);
            } else if ended || spoke {
                self.collect();
                self.died(worker, "it ended".to_owned());
            }
        }
        if signs.joining {
            self.admit();
        }
        Ok(true)
    }

    /// Returns the descriptor that is readable while something has happened to a worker that was not looked at. It is
    /// closed with the last handle to it, and tells nothing any more once the host has ended.
    pub(crate) const fn descriptor(&self) -> &Arc<OwnedFd> {
        self.poller.descriptor()
    }

    /// Has workers ring for one who sleeps on [`Host::descriptor`], until something is waited for here. Does not block.
    /// Returns the time at which to wait again at the latest: `now` if there is something to take, or `seen` holds, which
    /// is asked after workers know of the sleeper.
    ///
    /// What workers publish of the first millisecond of a command rings nobody ([`Host::wait_or`]). Where something may be
    /// `unheard` of, the time is that of the next look for it.
    pub(crate) fn arm(&mut self, now: Instant, seen: &Seen<'_>, unheard: bool) -> Option<Instant> {
        self.check_usable().ok()?;
        self.poller.armed = true;
        let busy: Vec<usize> = self.busy().collect();
        self.want_bells(&busy, true);
        if !self.events.is_empty()
            || busy.iter().any(|&worker| self.has_replied(worker))
            || seen(self.memories())
        {
            return Some(now);
        }
        let since = now.saturating_duration_since(self.started);
        let age = since.saturating_sub(self.poller.posted);
        let look =
            unheard.then(|| if age < QUIET_TIME { self.poller.posted + QUIET_TIME } else { since + age });
        let due = [self.supervisor.next_due(), self.socket_due(), look].into_iter().flatten().min()?;
        Some(self.started + due)
    }

    /// Looks at what has happened to workers while one slept on the descriptor.
    fn disarm(&mut self) -> Result<(), HostError> {
        if std::mem::take(&mut self.poller.armed) {
            let all: Vec<usize> = (0..self.slots.len()).collect();
            self.want_bells(&all, false);
            self.poll(Some(Duration::ZERO))?;
            self.look_at_tries();
        }
        Ok(())
    }

    /// Gives programs that have connected their places.
    fn admit(&mut self) {
        use WorkerState as S;
        let WorkerSource::Socket(socket) = &mut self.source else { return };
        let place = |(worker, slot): (usize, &WorkerSlot)| {
            let place = match self.supervisor.state(worker) {
                S::Launching if slot.socket.is_none() => Place::Free,
                S::Dormant | S::Queued | S::BackOff => Place::Coming,
                S::Failed => Place::GivenUp,
                S::Launching | S::Connecting | S::Idle | S::Busy => Place::Taken,
            };
            (place, slot.process_id())
        };
        let places: Vec<_> = self.slots.iter().enumerate().map(place).collect();
        for (worker, guest) in socket.admit(self.started.elapsed(), &places) {
            info!(worker, process = guest.process, "a program has become a worker");
            let taken = self.slots[worker].take(guest);
            if let Err(error) = taken.and_then(|()| self.poller.add(worker, &self.slots[worker])) {
                self.died(worker, format!("it could not be given its hello: {error}"));
            }
        }
    }

    /// Returns the time at which something is due at the socket, if workers connect to one.
    fn socket_due(&self) -> Option<Duration> {
        let WorkerSource::Socket(socket) = &self.source else { return None };
        socket.next_due()
    }

    /// Takes the message of a worker that is being started.
    fn hear(&mut self, worker: usize) {
        match self.slots[worker].said_at_start(self.max_answer_bytes) {
            Ok(AtStart::Connecting(retries)) => {
                self.slots[worker].launching = None;
                self.take_tries(worker, retries);
                self.show_tries();
                let actions = self.supervisor.on(self.started.elapsed(), worker, Event::Connecting);
                self.act(actions);
            }
            Ok(AtStart::Ready(answer)) => {
                (self.slots[worker].launching, self.slots[worker].tries) = (None, None);
                self.show_tries();
                let process = self.process_id(worker);
                self.slots[worker].counted = self
                    .counting
                    .as_ref()
                    .zip(process)
                    .and_then(|(counting, process)| counting.enter(worker, process));
                let actions = self.supervisor.on(self.started.elapsed(), worker, Event::Ready);
                self.events.push_back(WorkerEvent::Ready { worker, answer, left: None });
                self.act(actions);
                if let Err(error) = self.poller.expect_nothing(worker, &self.slots[worker]) {
                    self.died(worker, format!("its connection cannot be watched: {error}"));
                }
            }
            Err(what) => self.died(worker, what),
        }
    }

    /// Looks how often workers that have a command have tried to connect.
    fn look_at_tries(&mut self) {
        let mut news = false;
        for worker in 0..self.slots.len() {
            if self.supervisor.state(worker) != WorkerState::Busy {
                continue;
            }
            let said = self.slots[worker].lines().map_or(0, Lines::connecting);
            if said != self.slots[worker].tries.map_or(0, |tries| tries.retries.into()) {
                self.take_tries(worker, said);
                news = true;
            }
        }
        if news {
            self.show_tries();
        }
    }

    fn take_tries(&mut self, worker: usize, said: u64) {
        if Tries::told(&mut self.slots[worker].tries, said, &self.connect_watch) {
            info!(worker, "a worker tries to connect");
        }
    }

    fn show_tries(&self) {
        let tries = self.slots.iter().filter_map(|slot| slot.tries);
        self.connect_watch.show(tries.map(|tries| tries.retries).max().unwrap_or(0));
    }

    /// Gives an idle worker its memory, unless nothing is shared or it has it. Returns that of its last process.
    fn attach(&mut self, worker: usize) -> Option<(SharedMemory, usize)> {
        let (bytes, workers) = (self.shared?, self.slots.len());
        if self.slots[worker].attached || self.supervisor.state(worker) != WorkerState::Idle {
            return None;
        }
        match self.slots[worker].attach(bytes, workers, &self.poller.bell) {
            Ok(left) => left.map(|memory| (memory, DATA_OFFSET)),
            Err(error) => {
                self.died(worker, format!("it could not be given its memory: {error}"));
                None
            }
        }
    }

    fn died(&mut self, worker: usize, what: String) {
        let actions = self.supervisor.on(self.started.elapsed(), worker, Event::Died);
        self.act_on_loss(actions, Some(what));
    }

    fn wake(&mut self, workers: usize) {
        let actions = self.supervisor.wake(self.started.elapsed(), workers);
        self.act(actions);
    }

    fn tick(&mut self) {
        let actions = self.supervisor.tick(self.started.elapsed());
        self.act(actions);
        // A place may have become free for one that waits, or one has waited for too long.
        if self.socket_due().is_some() {
            self.admit();
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        self.act_on_loss(actions, None);
    }

    fn act_on_loss(&mut self, actions: Vec<Action>, what: Option<String>) {
        for action in actions {
            match action {
                Action::Launch(worker) => self.launch(worker),
                Action::Lose { worker, cause, restart } => {
                    let (tries, guest) = (self.slots[worker].tries, self.slots[worker].guest.is_some());
                    self.poller.remove(&self.slots[worker]);
                    let (ended, said) = self.slots[worker].end();
                    self.show_tries();
                    let mut detail = match (&what, cause) {
                        (_, Cause::ConnectTimedOut) => {
                            let retries = tries.map_or(0, |tries| tries.retries);
                            let (time, set) =
                                (self.supervisor.connect_deadline(), |names: Names| names.connect);
                            let late = self.killed_after(time, set);
                            format!("{late}, as it tried to connect, after {retries} retries")
                        }
                        (_, Cause::LaunchTimedOut) if let WorkerSource::Socket(socket) = &self.source => {
                            let time = self.supervisor.launch_deadline().unwrap_or_default();
                            let folder = socket.folder().display();
                            format!("no program took its place at {folder} and was ready within {time:?}")
                        }
                        (_, Cause::LaunchTimedOut) => {
                            self.killed_after(self.supervisor.launch_deadline(), |names| names.launch)
                        }
                        (_, Cause::Hung) if guest => "disconnected at its deadline".to_owned(),
                        (_, Cause::Hung) => "killed at its deadline".to_owned(),
                        (Some(what), Cause::Died) => {
                            ended.map_or_else(|| what.clone(), |ended| format!("{what}: {ended}"))
                        }
                        (None, Cause::Died) => ended.unwrap_or_default(),
                    };
                    if !said.is_empty() {
                        detail = format!("{detail}; its last output: {said}");
                    }
                    self.events.push_back(WorkerEvent::Lost { worker, cause, restart, detail });
                }
            }
        }
    }

    /// Says that a worker that was not ready in time was killed, and which setting sets the time.
    fn killed_after(&self, time: Option<Duration>, setting: impl Fn(Names) -> &'static str) -> String {
        let time = time.map(|time| format!(" of {time:?}")).unwrap_or_default();
        let setting = self.lane_deadlines.settings.map(|names| format!(", which `{}` sets", setting(names)));
        format!("killed at its deadline{time}{}", setting.unwrap_or_default())
    }

    fn launch(&mut self, worker: usize) {
        let WorkerSource::Program(program) = &self.source else {
            // Its place is free; who takes it is seen at the socket.
            return;
        };
        let Some(launching) = self.launcher.begin() else {
            let now = self.started.elapsed();
            let none = self.supervisor.on(now, worker, Event::NoRoom(now + ROOM_RETRY));
            return self.act(none);
        };
        self.slots[worker].launching = Some(launching);
        let started = self.slots[worker].start(program);
        if let Err(error) = started.and_then(|()| self.poller.add(worker, &self.slots[worker])) {
            self.died(worker, format!("it could not be started: {error}"));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

type Names = &'static DeadlineSettings;

/// Time after which a launch is tried again for which there was no room.
const ROOM_RETRY: Duration = Duration::from_millis(50);
