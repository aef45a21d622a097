//! The node of one process: the control thread, and the actor that owns the table of sessions.
//!
//! ```text
//! (asked) -> watched -> over                      the session ended: its exit goes to who asked for it
//!            watched -> backing off -> watched    its actor panicked: made anew after a back-off
//!                       backing off -> unwatched  too often: cancelled and given up
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix::dev::SendError;
use actix::prelude::*;
use rollhouse_core::{BackOff, RestartDecision};
use rollhouse_replay::RunRecorder;
use tokio::sync::{oneshot, watch};

use crate::parts::{Part, PartExit, Parts, PartsHealth};
use crate::session::{SessionActor, SessionId, Stepping};
use crate::{Cancel, Exit, Progress, Rollout};

/// Hosts sessions in this process. Dropping it ends the control thread; sessions that still step are asked to
/// end and not waited for.
#[derive(Debug)]
pub struct Node {
    actor: watch::Receiver<Option<Addr<NodeActor>>>,
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
        let parts = Parts::new();
        let kept = parts.clone();
        let control = move || {
            let runner = System::new();
            let (actors, actor) = watch::channel(None);
            let keep = kept.keep(Part::Rollouts, move || NodeActor::live(actors.clone()));
            let begin = async {
                // Task: node actor.
                actix::spawn(keep);
                let mut begun = actor.clone();
                // The sender lives with the task.
                drop(begun.wait_for(Option::is_some).await);
            };
            runner.block_on(begin);
            // Nobody waits for the answer only if the starter is gone, and then the loop ends with it.
            if ready.send((actor, System::current())).is_ok() {
                let _code = runner.run();
            }
        };
        // Task: control.
        let thread = std::thread::Builder::new()
            .name("rollhouse-control".to_owned())
            .spawn(control)
            .map_err(StartError::Thread)?;
        let (actor, system) = started.recv().map_err(|_| StartError::Ended)?;
        Ok(Self { actor, parts, system, thread: Some(thread) })
    }

    /// Begins a session that steps `rollout`, recorded if there is a `recording` of its own run. Returns when the
    /// request is queued. How it ends, failures of its start included, is told by the handle. Raising `cancel` ends it
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
        let (reply, answer) = sync_channel(1);
        let (told, exit) = sync_channel(1);
        // Both channels have room for all they ever carry; nobody may be interested any more.
        let reply = Box::new(move |begun| drop(reply.try_send(begun)));
        let told = Box::new(move |exit| drop(told.try_send(exit)));
        self.rollouts().ask(rollout, recording.map(Arc::new), cancel, reply, told)?;
        let progress = answer.recv().map_err(|_| BeginError::Stopped)??;
        Ok(RolloutHandle { progress, exit })
    }

    /// Returns the way to begin sessions without blocking.
    pub(crate) fn rollouts(&self) -> Rollouts {
        Rollouts { actor: self.actor.clone() }
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

/// Begins rollouts from anywhere.
#[derive(Debug, Clone)]
pub(crate) struct Rollouts {
    /// The address of the node actor that was made last.
    actor: watch::Receiver<Option<Addr<NodeActor>>>,
}

impl Rollouts {
    /// Begins a rollout as [`Node::rollout`], without blocking; `told` is called with how it ends, on the control
    /// thread.
    pub(crate) async fn begin(
        &self,
        rollout: Rollout,
        recording: Option<Arc<RunRecorder>>,
        cancel: Cancel,
        told: Reply<Arc<Exit>>,
    ) -> Result<Arc<Progress>, BeginError> {
        let (reply, answer) = oneshot::channel();
        let reply = Box::new(move |begun| drop(reply.send(begun)));
        self.ask(rollout, recording, cancel, reply, told)?;
        answer.await.map_err(|_| BeginError::Stopped)?
    }

    fn ask(
        &self,
        rollout: Rollout,
        recording: Option<Arc<RunRecorder>>,
        cancel: Cancel,
        reply: Reply<Result<Arc<Progress>, BeginError>>,
        told: Reply<Arc<Exit>>,
    ) -> Result<(), BeginError> {
        let request = BeginRollout { rollout: Box::new(rollout), recording, cancel, reply, told };
        let actor = self.actor.borrow().clone().ok_or(BeginError::Stopped)?;
        actor.try_send(request).map_err(|error| match error {
            SendError::Full(_) => BeginError::Busy,
            SendError::Closed(_) => BeginError::Stopped,
        })
    }
}

/// Takes one value, once, without blocking.
pub(crate) type Reply<T> = Box<dyn FnOnce(T) + Send>;

impl Drop for Node {
    fn drop(&mut self) {
        self.system.stop();
        if let Some(thread) = self.thread.take() {
            // A control thread that panicked has said so by itself.
            let _ended = thread.join();
        }
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

/// Owns the table of rollouts: makes their actors, and makes them anew when they panic.
pub(crate) struct NodeActor {
    sessions: BTreeMap<SessionId, Session>,
    begun: u64,
    began: Instant,
    /// The place where the actor shows its address once it has begun.
    shown: watch::Sender<Option<Addr<Self>>>,
    /// Is dropped with the actor, however that ends.
    _alive: oneshot::Sender<()>,
}

struct Session {
    stepping: Arc<Stepping>,
    actor: Option<Addr<SessionActor>>,
    back_off: BackOff,
    told: Reply<Arc<Exit>>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct BeginRollout {
    rollout: Box<Rollout>,
    recording: Option<Arc<RunRecorder>>,
    cancel: Cancel,
    reply: Reply<Result<Arc<Progress>, BeginError>>,
    told: Reply<Arc<Exit>>,
}

/// The notice that a session's actor has ended, with its session or by a panic.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SessionDown {
    pub(crate) id: SessionId,
    pub(crate) ended: Option<Arc<Exit>>,
}

impl NodeActor {
    /// Starts an actor, shows its address, and waits for it to be gone: it never ends by itself.
    async fn live(shown: watch::Sender<Option<Addr<Self>>>) -> Result<(), PartExit> {
        let (alive, gone) = oneshot::channel();
        let sessions = BTreeMap::new();
        let actor = Self { sessions, begun: 0, began: Instant::now(), shown, _alive: alive };
        let _actor = actor.start();
        // Nothing is ever sent.
        let _gone = gone.await;
        Err(PartExit::Gone)
    }

    /// Ends a session's entry and tells the one that asked for it.
    fn over(&mut self, id: SessionId, exit: Arc<Exit>) {
        if let Some(session) = self.sessions.remove(&id) {
            (session.told)(exit);
        }
    }

    /// Handles an actor that went down without its session having ended.
    fn panicked(&mut self, id: SessionId, ctx: &mut Context<Self>) {
        let now = self.began.elapsed();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.actor.take().is_none() {
            // Found by the look already; this is the notice.
            return;
        }
        match session.back_off.failed(now) {
            RestartDecision::RetryAfter(wait) => {
                ctx.run_later(wait, move |node, ctx| node.watch_anew(id, ctx));
            }
            RestartDecision::GiveUp => {
                session.stepping.cancel.cancel();
                self.over(id, Arc::new(Exit::Unwatched));
            }
        }
    }

    fn watch_anew(&mut self, id: SessionId, ctx: &mut Context<Self>) {
        if let Some(session) = self.sessions.get_mut(&id) {
            let actor = SessionActor::new(Arc::clone(&session.stepping), ctx.address());
            session.actor = Some(actor.start());
        }
    }

    /// Finds actors whose notice was lost to a full mailbox.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let down = self.sessions.iter().filter(|(_, s)| s.actor.as_ref().is_some_and(|a| !a.connected()));
        let down: Vec<SessionId> = down.map(|(&id, _)| id).collect();
        for id in down {
            self.panicked(id, ctx);
        }
    }
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        ctx.run_interval(LOOK_EVERY, Self::look);
        // Not before: one that has not begun would, when the thread ends, outside of its event loop.
        self.shown.send_replace(Some(ctx.address()));
    }

    /// Ends all sessions, as nobody would watch them. Also runs while a panic unwinds the actor.
    fn stopped(&mut self, _: &mut Self::Context) {
        for session in self.sessions.values() {
            session.stepping.cancel.cancel();
        }
    }
}

impl Handler<BeginRollout> for NodeActor {
    type Result = ();

    fn handle(&mut self, request: BeginRollout, ctx: &mut Self::Context) {
        let BeginRollout { rollout, recording, cancel, reply, told } = request;
        if self.sessions.len() >= MAX_ROLLOUTS {
            reply(Err(BeginError::Busy));
            return;
        }
        let id = self.begun;
        self.begun += 1;
        let stepping = Stepping::new(id, *rollout, recording, cancel);
        let progress = Arc::clone(&stepping.progress);
        let session = Session { stepping, actor: None, back_off: BackOff::new(id), told };
        self.sessions.insert(id, session);
        self.watch_anew(id, ctx);
        reply(Ok(progress));
    }
}

impl Handler<SessionDown> for NodeActor {
    type Result = ();

    fn handle(&mut self, down: SessionDown, ctx: &mut Self::Context) {
        match down.ended {
            Some(exit) => self.over(down.id, exit),
            None => self.panicked(down.id, ctx),
        }
    }
}

/// Most rollouts that one node hosts at a time. Each has a thread of its own.
pub const MAX_ROLLOUTS: usize = 64;

/// Capacity of the actor's mailbox: a notice from each session, and as many requests.
const MAILBOX: usize = 2 * MAX_ROLLOUTS;

/// Interval at which the actor looks for notices that were lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rollout;
    use crate::session::testing::PanicNow;
    use rollhouse_core::Goal;
    use rollhouse_engine::EngineConfig;
    use rollhouse_env::Registry;
    use rollhouse_policy::Builtin;
    use std::sync::mpsc::SyncSender;

    /// Makes the actor of a session panic and answers when it has.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct PanicSession {
        id: SessionId,
        done: SyncSender<Result<(), MailboxError>>,
    }

    impl Handler<PanicSession> for NodeActor {
        type Result = ();

        fn handle(&mut self, request: PanicSession, ctx: &mut Self::Context) {
            let actor = self.sessions[&request.id].actor.clone().unwrap();
            let panicked = async move { request.done.send(actor.send(PanicNow).await).unwrap() };
            ctx.spawn(panicked.into_actor(self));
        }
    }

    /// Makes the node actor panic.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct PanicNode;

    impl Handler<PanicNode> for NodeActor {
        type Result = ();

        fn handle(&mut self, _: PanicNode, _: &mut Self::Context) {
            panic!("a handler that panics");
        }
    }

    /// Has a session's actor fail as often as it may, in no time.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct UseUpBackOff(SessionId);

    impl Handler<UseUpBackOff> for NodeActor {
        type Result = ();

        fn handle(&mut self, UseUpBackOff(id): UseUpBackOff, _: &mut Self::Context) {
            let now = self.began.elapsed();
            let back_off = &mut self.sessions.get_mut(&id).unwrap().back_off;
            for _ in 0..5 {
                assert!(matches!(back_off.failed(now), RestartDecision::RetryAfter(_)));
            }
        }
    }

    fn actor(node: &Node) -> Addr<NodeActor> {
        node.actor.borrow().clone().unwrap()
    }

    /// Waits until the node's parts fared so.
    fn wait_until(node: &Node, so: impl FnMut(&PartsHealth) -> bool) {
        let mut health = node.parts.health();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(health.wait_for(so)).unwrap();
    }

    fn endless_rollout() -> Rollout {
        let env = Registry::builtin().get("CartPole-v1").unwrap();
        Rollout::new(env, EngineConfig::new(8), 1, Builtin::Random, Goal::Batches(u64::MAX))
    }

    #[test]
    fn a_session_whose_actor_panics_steps_on_and_its_end_is_still_told() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        let handle = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        let (done, panicked) = sync_channel(1);
        actor(&node).try_send(PanicSession { id: 0, done }).unwrap();
        assert!(matches!(panicked.recv().unwrap(), Err(MailboxError::Closed)));
        let before = handle.progress().snapshot().beats;
        while handle.progress().snapshot().beats < before + 100 {
            std::thread::yield_now();
        }
        cancel.cancel();
        // Only an actor made anew can tell.
        let exit = handle.exit.recv().unwrap();
        let Exit::Cancelled(report) = &*exit else { panic!("{exit:?}") };
        assert!(report.stats.steps > 0);
    }

    #[test]
    fn a_session_whose_actor_panics_too_often_is_asked_to_end_and_told_as_unwatched() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        let handle = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        actor(&node).try_send(UseUpBackOff(0)).unwrap();
        let (done, panicked) = sync_channel(1);
        actor(&node).try_send(PanicSession { id: 0, done }).unwrap();
        assert!(matches!(panicked.recv().unwrap(), Err(MailboxError::Closed)));
        assert!(matches!(*handle.exit.recv().unwrap(), Exit::Unwatched));
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn rollouts_end_as_unwatched_when_the_node_actor_panics_and_others_begin_once_it_is_made_anew() {
        let node = Node::start().unwrap();
        let cancel = Cancel::default();
        let lost = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        let (first, mut shown) = (actor(&node), node.actor.clone());
        first.try_send(PanicNode).unwrap();
        assert!(matches!(*lost.wait(Duration::MAX).unwrap(), Exit::Unwatched));
        assert!(cancel.is_cancelled());
        wait_until(&node, |health| health.all_restarts() == 1);
        let last = node.health().last.unwrap();
        assert_eq!(last.to_string(), "the node actor is gone");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        drop(runtime.block_on(shown.wait_for(|actor| *actor != Some(first.clone()))).unwrap());
        let cancel = Cancel::default();
        let next = node.rollout(endless_rollout(), None, cancel.clone()).unwrap();
        cancel.cancel();
        assert!(matches!(*next.exit.recv().unwrap(), Exit::Cancelled(_)));
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
