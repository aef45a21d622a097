//! The node of one process: the control thread, which the actors of all its sessions share.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::System;
use rollhouse_replay::RunRecorder;

use crate::node_actor::{NodeActor, Supervision};
use crate::parts::{Part, Parts, PartsHealth};
use crate::stepping::{Steppers, Stepping};
use crate::{Cancel, Exit, Progress, Rollout};

/// Hosts sessions in this process. Dropping it ends the control thread; sessions that still step are asked to
/// end and not waited for.
#[derive(Debug)]
pub struct Node {
    supervision: Arc<Supervision>,
    parts: Parts,
    system: System,
    thread: Option<JoinHandle<()>>,
}

/// A rollout under way. Dropping it leaves the rollout running.
#[derive(Debug)]
pub struct RolloutHandle {
    progress: Arc<Progress>,
    exit: Receiver<Arc<Exit>>,
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The control thread could not be started.
    #[error("the control thread could not be started")]
    Thread(#[source] std::io::Error),
    /// The control thread ended before it had a node.
    #[error("the control thread ended before it was ready")]
    Ended,
}

/// Why a session could not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The node has as many sessions or requests as it takes; try again later.
    #[error("the node is busy: it has {MAX_ROLLOUTS} sessions at most")]
    Busy,
    /// The node is going away.
    #[error("the node is going away")]
    Stopped,
}

impl Node {
    /// Starts the control thread.
    ///
    /// # Errors
    /// If the operating system refuses a thread or its event loop.
    pub fn start() -> Result<Self, StartError> {
        let (ready, started) = sync_channel(1);
        let (parts, supervision) = (Parts::new(), Supervision::new());
        let (kept, supervised) = (parts.clone(), Arc::clone(&supervision));
        let control = move || {
            let runner = System::new();
            let actors = Arc::clone(&supervised);
            let keep = kept.keep(Part::Sessions, move || NodeActor::live(Arc::clone(&actors)));
            let begin = async {
                // Task: node actor.
                actix::spawn(keep);
                supervised.begun().await;
            };
            runner.block_on(begin);
            // Nobody waits for the answer only if the starter is gone, and then the loop ends with it.
            if ready.send(System::current()).is_ok() {
                let _code = runner.run();
            }
        };
        // Task: control.
        let thread = std::thread::Builder::new()
            .name("rollhouse-control".to_owned())
            .spawn(control)
            .map_err(StartError::Thread)?;
        let system = started.recv().map_err(|_| StartError::Ended)?;
        Ok(Self { supervision, parts, system, thread: Some(thread) })
    }

    /// Begins a session that steps `rollout`, recorded if there is a `recording` of its own run. Does not
    /// block. How it ends, failures of its start included, is told by the handle. Raising `cancel` ends it
    /// early.
    ///
    /// # Errors
    /// See [`BeginError`]; nothing has begun then.
    pub fn rollout(
        &self,
        rollout: Rollout,
        recording: Option<RunRecorder>,
        cancel: Cancel,
    ) -> Result<RolloutHandle, BeginError> {
        if self.health().failed.is_some() {
            return Err(BeginError::Stopped);
        }
        let number = self.supervision.number();
        let (told, exit) = sync_channel(1);
        let by = Steppers::Own(number);
        let stepping = Stepping::new(by, rollout, recording.map(Arc::new), cancel, Some(told));
        let progress = Arc::clone(&stepping.progress);
        if !self.supervision.begin_within(MAX_ROLLOUTS, number, stepping) {
            return Err(BeginError::Busy);
        }
        Ok(RolloutHandle { progress, exit })
    }

    /// Returns what keeps the node's sessions under control.
    pub(crate) const fn supervision(&self) -> &Arc<Supervision> {
        &self.supervision
    }

    /// Returns how the node's parts fared.
    pub fn health(&self) -> PartsHealth {
        self.parts.health().borrow().clone()
    }

    /// Returns the place where more of the node's parts are kept going.
    pub(crate) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Runs a task on the control thread; it ends with the node.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // A control thread that is gone runs nothing, and whoever waits for the task sees that.
        // Task: of whoever calls.
        let _running = self.system.arbiter().spawn(task);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.system.stop();
        if let Some(thread) = self.thread.take() {
            // A control thread that panicked has said so by itself.
            let _ended = thread.join();
        }
        self.supervision.give_up_all();
    }
}

impl RolloutHandle {
    /// Returns the counters that the session shows while it runs.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Waits at most `timeout` for the end.
    pub fn wait(&self, timeout: Duration) -> Option<Arc<Exit>> {
        match self.exit.recv_timeout(timeout) {
            Ok(exit) => Some(exit),
            Err(RecvTimeoutError::Timeout) => None,
            // The node went away under it.
            Err(RecvTimeoutError::Disconnected) => Some(Arc::new(Exit::Unwatched)),
        }
    }
}

/// Most rollouts that one node hosts at a time. Each has a thread of its own.
pub const MAX_ROLLOUTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rollout;
    use rollhouse_core::Goal;
    use rollhouse_engine::EngineConfig;
    use rollhouse_env::Registry;
    use rollhouse_policy::Builtin;

    fn endless_rollout() -> Rollout {
        let env = Registry::builtin().get("CartPole-v1").unwrap();
        Rollout::new(env, EngineConfig::new(8), 1, Arc::new(Builtin::Random), Goal::Batches(u64::MAX))
    }

    #[test]
    fn a_session_whose_actor_panics_steps_on_and_its_end_is_still_told() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        let handle = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        node.supervision().panic_session(0);
        let before = handle.progress().snapshot().beats;
        while handle.progress().snapshot().beats < before + 100 {
            std::thread::yield_now();
        }
        cancel.cancel();
        let exit = handle.exit.recv().unwrap();
        let Exit::Cancelled(report) = &*exit else { panic!("{exit:?}") };
        assert!(report.stats.steps > 0);
    }

    #[test]
    fn a_session_whose_actor_panics_too_often_is_asked_to_end_and_told_as_unwatched() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        let handle = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        node.supervision().use_up_back_off(0);
        node.supervision().panic_session(0);
        assert!(matches!(*handle.exit.recv().unwrap(), Exit::Unwatched));
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn sessions_go_on_when_the_node_actor_panics_and_the_next_one_takes_them_up() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        let first = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        node.supervision().panic_node();
        assert_eq!(node.health().last.unwrap().to_string(), "the node actor is gone");
        assert!(!cancel.is_cancelled());
        // The next one has its actor made anew, and begins others.
        node.supervision().panic_session(0);
        let second = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        cancel.cancel();
        for handle in [first, second] {
            assert!(matches!(*handle.exit.recv().unwrap(), Exit::Cancelled(_)));
        }
    }

    #[test]
    fn a_session_that_is_asked_to_end_before_its_thread_has_begun_makes_no_lane() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        cancel.cancel();
        let handle = node.rollout(endless_rollout(), None, cancel).unwrap();
        let exit = handle.exit.recv().unwrap();
        let Exit::Cancelled(report) = &*exit else { panic!("{exit:?}") };
        assert_eq!((report.threads, report.stats.steps), (0, 0));
    }

    #[test]
    fn a_node_with_as_many_sessions_as_it_takes_is_busy_until_one_ends() {
        let node = Node::start().unwrap();
        let cancels: Vec<Cancel> = (0..MAX_ROLLOUTS).map(|_| Cancel::default()).collect();
        let begin = |cancel: &Cancel| node.rollout(endless_rollout(), None, cancel.clone());
        let handles: Vec<_> = cancels.iter().map(|cancel| begin(cancel).unwrap()).collect();
        assert_eq!(begin(&Cancel::default()).unwrap_err(), BeginError::Busy);
        cancels[5].cancel();
        handles[5].exit.recv().unwrap();
        let last = Cancel::default();
        let handle = begin(&last).unwrap();
        cancels.iter().chain([&last]).for_each(Cancel::cancel);
        assert!(matches!(*handle.exit.recv().unwrap(), Exit::Cancelled(_)));
    }
}
