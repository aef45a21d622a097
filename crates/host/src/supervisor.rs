//! The supervisor, which decides what to do about each worker and when, without processes and clock.
//!
//! ```text
//! dormant -> queued -> launching -> [connecting ->] idle <-> busy
//!                     <-            no room among all hosts: tried again
//! from launching on -> backoff -> queued                  died, hung or broken
//! from launching on -> failed                             restarted too often, or never ready within its first launch's time
//! ```

use std::time::Duration;

use rollhouse_core::{BackOff, LaneState, RestartDecision, split_mix64};

/// Decides when workers are launched, given up for hung, restarted and left.
///
/// Times are durations since any zero of the caller's clock, which only goes forward. Its methods return the actions
/// that the caller has to take, in order; a worker appears at most twice in one answer.
#[derive(Debug)]
pub struct Supervisor {
    workers: Vec<Worker>,
    max_launching: usize,
    launch_deadline: Option<Duration>,
    connect_deadline: Option<Duration>,
}

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Nobody has needed the worker yet.
    Dormant,
    /// The worker is to be launched when fewer others are launching.
    Queued,
    /// The worker's process has been asked for and has not reported that it is ready.
    Launching,
    /// The worker's process is there, and tries to connect to what its envs are clients of.
    Connecting,
    /// The worker waits for a command.
    Idle,
    /// The worker has a command.
    Busy,
    /// The worker was lost and waits before it is launched again.
    BackOff,
    /// The worker was lost too often and stays so.
    Failed,
}

/// Event of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The worker's process is there and its envs are made.
    Ready,
    /// The worker's process is there, and what its envs are clients of is not.
    Connecting,
    /// The worker was given a command, to be answered by this time; `None` never expires.
    Posted(Option<Duration>),
    /// The worker answered.
    Replied,
    /// The worker's process ended, or answered something that makes no sense.
    Died,
    /// The caller does not wait for the worker any longer.
    GivenUp,
    /// No process may be launched just now. The launch is to be tried again at this time.
    NoRoom(Duration),
}

/// Action that the caller has to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start the worker's process.
    Launch(usize),
    /// End the worker's process group, which may be gone already, and tell that its lanes are lost.
    Lose {
        /// Worker that is lost.
        worker: usize,
        /// Cause of the loss.
        cause: Cause,
        /// Decision about its restart.
        restart: Restart,
    },
}

/// Cause for which a worker was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The worker's process ended or broke.
    Died,
    /// The worker did not answer a command in time, or was given up.
    Hung,
    /// The worker was not ready in time.
    LaunchTimedOut,
    /// The worker had not connected in time.
    ConnectTimedOut,
}

/// Decision about the restart of a lost worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The worker is launched again after this time.
    After(Duration),
    /// The worker died before it was ever ready, for the first time, and is launched again after this time, within what is
    /// left of the time to launch it.
    Again(Duration),
    /// The worker has used up its restarts and is not launched again.
    Never,
}

#[derive(Debug)]
struct Worker {
    state: WorkerState,
    /// Time at which the state ends by itself: the deadline of a launch or command, the end of the back-off, or the
    /// next try of a launch for which there was no room.
    until: Option<Duration>,
    first_launch: FirstLaunch,
    back_off: BackOff,
}

/// First launch of a worker, which is tried once more if its process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstLaunch {
    None,
    /// The worker has time until then. `died` says whether a process of it has died.
    UnderWay {
        by: Option<Duration>,
        died: bool,
    },
    /// The worker was ready once.
    Ready,
}

impl Supervisor {
    /// Makes `workers` dormant workers, of which at most `max_launching` (at least 1) launch at a time once they are
    /// woken. Each has the first of the `deadlines` to launch, and the second to connect if it says that it does (`None`:
    /// it may take for ever). `seed` decides the jitter of restarts.
    pub fn new(
        workers: usize,
        max_launching: usize,
        (launch_deadline, connect_deadline): (Option<Duration>, Option<Duration>),
        seed: u64,
    ) -> Self {
        let worker = |index: usize| Worker {
            state: WorkerState::Dormant,
            until: None,
            first_launch: FirstLaunch::None,
            back_off: BackOff::new(split_mix64(seed ^ index as u64)),
        };
        Self {
            workers: (0..workers).map(worker).collect(),
            max_launching: max_launching.max(1),
            launch_deadline,
            connect_deadline,
        }
    }

    /// Returns the time that a worker has to launch.
    pub const fn launch_deadline(&self) -> Option<Duration> {
        self.launch_deadline
    }

    /// Returns the time that a worker has to connect.
    pub const fn connect_deadline(&self) -> Option<Duration> {
        self.connect_deadline
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the state of a worker.
    pub fn state(&self, worker: usize) -> WorkerState {
        self.workers[worker].state
    }

    /// Returns the state of the lanes of a worker. `Playing` covers every state in which the worker's envs are there.
    pub fn lane_state(&self, worker: usize) -> LaneState {
        match self.workers[worker].state {
            WorkerState::Dormant | WorkerState::Queued => LaneState::Idle,
            WorkerState::Launching => LaneState::Launching,
            WorkerState::Connecting => LaneState::Connecting,
            WorkerState::Idle | WorkerState::Busy => LaneState::Playing,
            WorkerState::BackOff => LaneState::BackOff,
            WorkerState::Failed => LaneState::Failed,
        }
    }

    /// Launches those of the first `workers` workers that have not been launched yet.
    pub fn wake(&mut self, now: Duration, workers: usize) -> Vec<Action> {
        for worker in self.workers.iter_mut().take(workers).filter(|w| w.state == WorkerState::Dormant) {
            worker.enter(WorkerState::Queued, None);
        }
        self.with_launches(now, Vec::new())
    }

    /// Handles an event. An event that does not belong to the worker's state (an answer of a worker that has just been
    /// given up, the end of a process that was killed) changes nothing.
    pub fn on(&mut self, now: Duration, worker: usize, event: Event) -> Vec<Action> {
        use WorkerState as S;
        let w = &mut self.workers[worker];
        match (w.state, event) {
            (S::Launching | S::Connecting, Event::Ready) => {
                w.first_launch = FirstLaunch::Ready;
                w.enter(S::Idle, None);
            }
            (S::Busy, Event::Replied) => w.enter(S::Idle, None),
            (S::Launching, Event::Connecting) => {
                // What is left of the launch is not taken away.
                let until = w.until.zip(self.connect_deadline).map(|(launch, time)| launch.max(now + time));
                w.enter(S::Connecting, until);
            }
            (S::Idle, Event::Posted(until)) => w.enter(S::Busy, until),
            (S::Launching | S::Connecting | S::Idle | S::Busy, Event::Died | Event::GivenUp) => {
                let cause = if event == Event::Died { Cause::Died } else { Cause::Hung };
                let lost = w.lose(now, worker, cause);
                return self.with_launches(now, vec![lost]);
            }
            (S::Launching, Event::NoRoom(until)) => {
                if let FirstLaunch::UnderWay { by: Some(by), .. } = &mut w.first_launch {
                    // Waiting for room is not launching.
                    *by += until.saturating_sub(now);
                }
                w.enter(S::Queued, Some(until));
                // There is no room for others either.
                return Vec::new();
            }
            _ => return Vec::new(),
        }
        self.with_launches(now, Vec::new())
    }

    /// Does what is due at `now`: deadlines that passed, back-offs that are over, launches for which there is room.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            if worker.until.is_none_or(|until| now < until) {
                continue;
            }
            match worker.state {
                WorkerState::Launching => actions.push(worker.lose(now, index, Cause::LaunchTimedOut)),
                WorkerState::Connecting => actions.push(worker.lose(now, index, Cause::ConnectTimedOut)),
                WorkerState::Busy => actions.push(worker.lose(now, index, Cause::Hung)),
                WorkerState::BackOff | WorkerState::Queued => worker.enter(WorkerState::Queued, None),
                WorkerState::Dormant | WorkerState::Idle | WorkerState::Failed => {}
            }
        }
        self.with_launches(now, actions)
    }

    /// Returns the time at which [`Supervisor::tick`] has something to do next, if nothing happens before.
    pub fn next_due(&self) -> Option<Duration> {
        self.workers.iter().filter_map(|worker| worker.until).min()
    }

    fn with_launches(&mut self, now: Duration, mut actions: Vec<Action>) -> Vec<Action> {
        let launching = self.workers.iter().filter(|w| w.state == WorkerState::Launching).count();
        let until = self.launch_deadline.map(|deadline| now + deadline);
        let queued = self.workers.iter_mut().enumerate();
        let queued = queued.filter(|(_, w)| w.state == WorkerState::Queued && w.until.is_none());
        for (index, worker) in queued.take(self.max_launching.saturating_sub(launching)) {
            let until = worker.begin(now, until);
            worker.enter(WorkerState::Launching, until);
            actions.push(Action::Launch(index));
        }
        actions
    }
}

impl WorkerState {
    /// Returns whether the worker is being started, or will be.
    pub const fn is_coming(self) -> bool {
        matches!(self, Self::Queued | Self::Launching | Self::Connecting | Self::BackOff)
    }
}

impl Worker {
    fn enter(&mut self, state: WorkerState, until: Option<Duration>) {
        (self.state, self.until) = (state, until);
    }

    /// Notes a launch that may last until then, and returns until when it may: the first ones have their time together, and
    /// one that has waited in the queue for longer than that has its own.
    fn begin(&mut self, now: Duration, until: Option<Duration>) -> Option<Duration> {
        match &mut self.first_launch {
            FirstLaunch::None => self.first_launch = FirstLaunch::UnderWay { by: until, died: false },
            FirstLaunch::UnderWay { by, .. } if by.is_none_or(|by| now < by) => return *by,
            FirstLaunch::UnderWay { by, .. } => *by = until,
            FirstLaunch::Ready => {}
        }
        until
    }

    fn lose(&mut self, now: Duration, worker: usize, cause: Cause) -> Action {
        let restart = match (self.back_off.failed(now), &mut self.first_launch) {
            (RestartDecision::RetryAfter(wait), FirstLaunch::UnderWay { by: Some(by), .. })
                if now + wait >= *by =>
            {
                Restart::Never
            }
            (RestartDecision::RetryAfter(wait), FirstLaunch::UnderWay { died: died @ false, .. })
                if cause == Cause::Died =>
            {
                *died = true;
                Restart::Again(wait)
            }
            (RestartDecision::RetryAfter(wait), _) => Restart::After(wait),
            (RestartDecision::GiveUp, _) => Restart::Never,
        };
        match restart {
            Restart::After(wait) | Restart::Again(wait) => self.enter(WorkerState::BackOff, Some(now + wait)),
            Restart::Never => self.enter(WorkerState::Failed, None),
        }
        Action::Lose { worker, cause, restart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAUNCH: Duration = Duration::from_secs(60);
    const CONNECT: Duration = Duration::from_secs(100);
    const DEADLINES: (Option<Duration>, Option<Duration>) = (Some(LAUNCH), Some(CONNECT));

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn playing(workers: usize) -> Supervisor {
        let mut supervisor = Supervisor::new(workers, workers, DEADLINES, 1);
        supervisor.wake(Duration::ZERO, workers);
        for worker in 0..workers {
            supervisor.on(Duration::ZERO, worker, Event::Ready);
        }
        supervisor
    }

    #[test]
    fn a_dormant_worker_is_launched_when_it_is_woken_and_has_its_whole_deadline_from_then() {
        let mut supervisor = Supervisor::new(2, 2, DEADLINES, 1);
        assert_eq!(supervisor.tick(LAUNCH * 9), []);
        assert_eq!(supervisor.wake(LAUNCH * 9, 1), [Action::Launch(0)]);
        assert_eq!(supervisor.state(1), WorkerState::Dormant);
        assert_eq!(supervisor.wake(LAUNCH * 10 - seconds(1), 2), [Action::Launch(1)]);
        let actions = supervisor.tick(LAUNCH * 10);
        assert!(matches!(actions[..], [Action::Lose { worker: 0, .. }]), "{actions:?}");
        assert_eq!(supervisor.next_due().map(|due| due > LAUNCH * 10), Some(true));
    }

    #[test]
    fn no_more_launch_at_once_than_allowed_and_each_that_is_ready_makes_room() {
        let mut supervisor = Supervisor::new(3, 2, DEADLINES, 1);
        assert_eq!(supervisor.wake(Duration::ZERO, 3), [Action::Launch(0), Action::Launch(1)]);
        assert_eq!(supervisor.tick(Duration::ZERO), []);
        assert_eq!(supervisor.on(seconds(1), 1, Event::Ready), [Action::Launch(2)]);
        assert_eq!(supervisor.state(1), WorkerState::Idle);
    }

    #[test]
    fn an_unanswered_command_is_a_hang_of_that_worker_alone() {
        let mut supervisor = playing(2);
        supervisor.on(seconds(1), 0, Event::Posted(Some(seconds(5))));
        supervisor.on(seconds(1), 1, Event::Posted(Some(seconds(5))));
        supervisor.on(seconds(2), 1, Event::Replied);
        assert_eq!(supervisor.next_due(), Some(seconds(5)));
        assert_eq!(supervisor.tick(seconds(4)), []);
        let actions = supervisor.tick(seconds(5));
        assert!(matches!(actions[..], [Action::Lose { worker: 0, cause: Cause::Hung, .. }]), "{actions:?}");
        assert_eq!(supervisor.state(1), WorkerState::Idle);
        // It answers after all: too late.
        assert_eq!(supervisor.on(seconds(5), 0, Event::Replied), []);
        assert_eq!(supervisor.state(0), WorkerState::BackOff);
    }

    #[test]
    fn a_worker_that_is_never_ready_is_lost_at_its_launch_deadline() {
        let mut supervisor = Supervisor::new(1, 1, DEADLINES, 1);
        supervisor.wake(Duration::ZERO, 1);
        let actions = supervisor.tick(LAUNCH);
        assert!(matches!(actions[..], [Action::Lose { cause: Cause::LaunchTimedOut, .. }]), "{actions:?}");
    }

    #[test]
    fn a_worker_that_connects_has_a_deadline_of_its_own_and_makes_room_for_others() {
        let mut supervisor = Supervisor::new(2, 1, DEADLINES, 1);
        assert_eq!(supervisor.wake(Duration::ZERO, 2), [Action::Launch(0)]);
        assert_eq!(supervisor.on(seconds(5), 0, Event::Connecting), [Action::Launch(1)]);
        assert_eq!(supervisor.lane_state(0), LaneState::Connecting);
        assert_eq!(supervisor.on(seconds(50), 0, Event::Connecting), [], "the first time counts");
        supervisor.on(seconds(6), 1, Event::Ready);
        assert_eq!(supervisor.tick(LAUNCH), []);
        let actions = supervisor.tick(CONNECT + seconds(5));
        assert!(
            matches!(actions[..], [Action::Lose { worker: 0, cause: Cause::ConnectTimedOut, .. }]),
            "{actions:?}"
        );
        let mut supervisor = Supervisor::new(1, 1, (Some(LAUNCH), Some(seconds(1))), 1);
        supervisor.wake(Duration::ZERO, 1);
        supervisor.on(seconds(5), 0, Event::Connecting);
        assert_eq!(supervisor.tick(LAUNCH - seconds(1)), [], "the rest of the launch is left");
        supervisor.on(LAUNCH - seconds(1), 0, Event::Ready);
        assert_eq!(supervisor.state(0), WorkerState::Idle);
    }

    #[test]
    fn a_worker_that_dies_before_it_was_ever_ready_is_launched_once_more_in_the_time_that_is_left() {
        let restart = |actions: Vec<Action>| match actions[..] {
            [Action::Lose { restart, .. }] => restart,
            _ => panic!("{actions:?}"),
        };
        let mut supervisor = Supervisor::new(1, 1, DEADLINES, 1);
        supervisor.wake(Duration::ZERO, 1);
        let again = restart(supervisor.on(seconds(20), 0, Event::Died));
        assert!(matches!(again, Restart::Again(_)), "{again:?}");
        assert_eq!(supervisor.tick(seconds(21)), [Action::Launch(0)]);
        assert_eq!(supervisor.next_due(), Some(LAUNCH));
        assert!(matches!(restart(supervisor.on(seconds(22), 0, Event::Died)), Restart::After(_)));
        assert_eq!(supervisor.tick(seconds(24)), [Action::Launch(0)]);
        assert_eq!(restart(supervisor.tick(LAUNCH)), Restart::Never);
        // Waiting for room takes none of it.
        let mut supervisor = Supervisor::new(1, 1, DEADLINES, 1);
        supervisor.wake(Duration::ZERO, 1);
        assert_eq!(supervisor.on(Duration::ZERO, 0, Event::NoRoom(seconds(90))), []);
        assert_eq!(supervisor.tick(seconds(90)), [Action::Launch(0)]);
        assert_eq!(supervisor.next_due(), Some(LAUNCH + seconds(90)));
        // One that was ready has the whole time again.
        let mut supervisor = playing(1);
        assert!(matches!(restart(supervisor.on(LAUNCH, 0, Event::Died)), Restart::After(_)));
        assert_eq!(supervisor.tick(LAUNCH + seconds(1)), [Action::Launch(0)]);
        assert_eq!(supervisor.next_due(), Some(2 * LAUNCH + seconds(1)));
    }

    #[test]
    fn a_worker_that_dies_at_every_launch_is_left_after_five_restarts() {
        let mut supervisor = Supervisor::new(1, 1, DEADLINES, 1);
        let (mut now, mut launches) = (Duration::ZERO, 0);
        while supervisor.state(0) != WorkerState::Failed {
            for action in supervisor.wake(now, 1).into_iter().chain(supervisor.tick(now)).collect::<Vec<_>>()
            {
                assert_eq!(action, Action::Launch(0));
                launches += 1;
                supervisor.on(now, 0, Event::Died);
            }
            now = supervisor.next_due().unwrap_or(now);
        }
        assert_eq!(launches, 6);
        assert_eq!(supervisor.tick(now + seconds(100_000)), []);
        assert_eq!(supervisor.lane_state(0), LaneState::Failed);
    }

    /// What the caller of a supervisor keeps: which processes there are.
    #[derive(Default)]
    struct Model {
        alive: Vec<bool>,
        launches_open: Vec<bool>,
    }

    proptest! {
        /// Seeded simulation of a caller and its workers, which do anything at any time.
        #[test]
        fn processes_are_launched_and_lost_in_turns_and_never_more_than_allowed(
            workers in 1_usize..6,
            max_launching in 1_usize..4,
            steps in proptest::collection::vec((0_usize..6, 0_u8..8, 0_u64..3_000), 1..200),
        ) {
            let mut supervisor = Supervisor::new(workers, max_launching, DEADLINES, 7);
            let mut model = Model { alive: vec![false; workers], launches_open: vec![false; workers] };
            let mut now = Duration::ZERO;
            for (worker, what, wait) in steps {
                now += Duration::from_millis(wait);
                let worker = worker % workers;
                let event = match what {
                    5 if model.alive[worker] => Some(Event::GivenUp),
                    0 if model.launches_open[worker] => Some(Event::Ready),
                    1 => Some(Event::Posted(Some(now + seconds(2)))),
                    2 => Some(Event::Replied),
                    3 if model.alive[worker] => Some(Event::Died),
                    4 if model.launches_open[worker] && supervisor.state(worker) == WorkerState::Launching => {
                        Some(Event::NoRoom(now + seconds(1)))
                    }
                    7 if model.launches_open[worker] => Some(Event::Connecting),
                    _ => None,
                };
                match event {
                    Some(Event::Ready) => model.launches_open[worker] = false,
                    Some(Event::NoRoom(_)) => {
                        (model.alive[worker], model.launches_open[worker]) = (false, false);
                    }
                    _ => {}
                }
                let mut actions = match event {
                    Some(event) => supervisor.on(now, worker, event),
                    None => supervisor.wake(now, worker + 1),
                };
                actions.extend(supervisor.tick(now));
                for action in actions {
                    match action {
                        Action::Launch(worker) => {
                            prop_assert!(!model.alive[worker], "launched twice");
                            (model.alive[worker], model.launches_open[worker]) = (true, true);
                        }
                        Action::Lose { worker, .. } => {
                            prop_assert!(model.alive[worker], "lost twice");
                            (model.alive[worker], model.launches_open[worker]) = (false, false);
                        }
                    }
                }
                for (worker, &alive) in model.alive.iter().enumerate() {
                    let state = supervisor.state(worker);
                    use WorkerState as S;
                    let wants = matches!(state, S::Launching | S::Connecting | S::Idle | S::Busy);
                    prop_assert_eq!(alive, wants, "{:?}", state);
                }
                let launching =
                    (0..workers).filter(|&w| supervisor.state(w) == WorkerState::Launching).count();
                prop_assert!(launching <= max_launching);
                // Whatever waits for time has a time; nothing that is due was left undone.
                if let Some(due) = supervisor.next_due() {
                    prop_assert!(due > now);
                }
            }
        }
    }
}
