//! An owner on this machine, attached by memory: its handshake, and the thread that steps its session.
//!
//! ```text
//! task on the data thread                      thread rollhouse-shm-N
//! request, lease ──────── session ───────────▶ makes or finds the memory
//! answer with descriptors ◀──── ends ───────── waits for requests, steps, answers
//! socket ended, taken over, ended ── stop ───▶
//! slot ◀──────────────── session, why ────────
//! ```
//!
//! The session is lent to the thread meanwhile, so a task that takes over or ends the session waits for the thread.
//! A thread that stays in one request for longer than the hang deadline is given up with all that it holds.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_arena::{Request as MemoryRequest, ServeError, ServingEnd, ServingRemote};
use rollhouse_core::{ShareBook, panic_message};
use rollhouse_wire::{
    Asks, AttachMemory, AttachSocket, EndCause, MemoryAttached, Refusal, RefusalCode, failpoint,
};
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::attaching::AttachPlace;
use crate::executor::{JobError, Waits};
use crate::hosting::Hosting;
use crate::measured::{MeasuredSession, waits_for_others};
use crate::owned::Unanswered;
use crate::owned_handle::{Loan, OwnedHandle};
use crate::stepped::Stepped;
use crate::tally::ReportedTally;
use crate::transport::Transport;
use crate::turn::TurnOver;
use crate::{Cancel, Gone, HangWatch, NodeFigures, Verdict};

/// Serves one process that connected to the attach socket, until it goes, another takes over, or the session ends.
pub(crate) async fn serve(
    hosting: Arc<Hosting>,
    mut socket: AttachSocket,
    mut waiting: AttachPlace,
    places: ShareBook,
) {
    failpoint("node.attach.accepted");
    let began = Instant::now();
    let asked = tokio::select! {
        asked = socket.request() => asked,
        () = waiting.given_up() => return,
    };
    drop(waiting);
    let asked = match asked {
        Ok(asked) => asked,
        Err(Some(refusal)) => return refuse(&hosting, &mut socket, refusal).await,
        Err(None) => return,
    };
    failpoint("node.attach.asked");
    let attach = asked.attach();
    let _place = match hosting.admit_memory(&places, &attach) {
        Ok(place) => place,
        Err(refusal) => return refuse(&hosting, &mut socket, refusal).await,
    };
    let attached = hosting.attach(&attach, Transport::SharedMemory).instrument(socket.span().clone()).await;
    let place = match attached {
        Ok(place) => place,
        Err(refusal) => return refuse(&hosting, &mut socket, refusal).await,
    };
    let Stepped::Owned(owned) = &place.session else {
        unreachable!("of other sessions none is let in by memory")
    };
    socket.span().in_scope(|| hosting.answers_owner(AttachMemory::WORD, socket.call(), began, Ok(owned.id)));
    let gone = serve_place(&hosting, owned, place.number, &mut socket).await;
    if let Some(gone) = gone {
        hosting.end(owned.id, owned.incarnation, gone).await;
    }
}

/// Answers with a refusal, which is counted and logged like one on a stream.
async fn refuse(hosting: &Hosting, socket: &mut AttachSocket, refusal: Refusal) {
    socket.span().in_scope(|| hosting.refuses_owner(&refusal));
    socket.refuse(refusal).await;
}

/// Serves an owner that was let in. Returns why the session is gone, if it was lost meanwhile.
async fn serve_place(
    hosting: &Arc<Hosting>,
    owned: &OwnedHandle,
    number: u64,
    socket: &mut AttachSocket,
) -> Option<Gone> {
    let (loan, measured) = match owned.take_out(number).await {
        Ok(lent) => lent,
        Err(Unanswered::Gone(gone)) => {
            let refusal = Refusal::new(RefusalCode::NotFound, gone.detail.clone());
            refuse(hosting, socket, Refusal { ended: Some(gone.cause), ..refusal }).await;
            return Some(gone);
        }
        Err(Unanswered::Replaced | Unanswered::Ended | Unanswered::Fault(_)) => return None,
    };
    let (mut thread, waits) = match Thread::start(hosting, owned, number, measured) {
        Ok(started) => started,
        Err((measured, error)) => {
            loan.give_back(measured, &hosting.figures);
            let message = format!("no thread to step the session: {error}");
            refuse(hosting, socket, Refusal::busy(message, ROOM_RETRY_MS)).await;
            return None;
        }
    };
    let end = thread.watch((owned, waits), number, socket).await;
    settle(hosting, loan, &thread, socket, end).await
}

/// Gives the session back, or notes that it is lost. Returns why it is gone in that case.
async fn settle(
    hosting: &Hosting,
    loan: Loan<'_>,
    thread: &Thread,
    socket: &mut AttachSocket,
    end: End,
) -> Option<Gone> {
    let error = match end {
        End::Back(measured, why) => {
            loan.give_back(measured, &hosting.figures);
            match why {
                StopReason::Stopped => {}
                StopReason::Refused(refusal) => refuse(hosting, socket, refusal).await,
                StopReason::Fault => drop(hosting.figures.malformed.add(1)),
            }
            return None;
        }
        End::Panicked(message) => JobError::Panicked(message),
        End::Hung(still) => {
            hosting.figures.threads.abandoned.add(1);
            JobError::Hung(still)
        }
    };
    let gone = loan.lose(error);
    thread.close(gone.cause);
    Some(gone)
}

/// The thread that steps, as its task sees it. When this is dropped, the thread is told to stop.
struct Thread {
    shared: Arc<StepperShared>,
    handed: oneshot::Receiver<MemoryOffer>,
    back: oneshot::Receiver<Result<(Box<MeasuredSession>, StopReason), String>>,
    /// The node's end of the memory, once the owner has got its descriptors.
    remote: Option<ServingRemote>,
    /// Time that one step may take before the session is given up as hung.
    hang_deadline: Duration,
}

/// The state that the task and the thread share.
struct StepperShared {
    stop: AtomicBool,
    /// The session's token.
    cancel: Cancel,
    /// Odd while the thread is in a request.
    beats: AtomicU64,
    /// The session, until the thread takes it.
    measured: Mutex<Option<Box<MeasuredSession>>>,
    told: Arc<ReportedTally>,
    figures: Arc<NodeFigures>,
}

/// The memory that the owner is given.
struct MemoryOffer {
    attached: MemoryAttached,
    outputs: OwnedFd,
    inputs: OwnedFd,
    remote: ServingRemote,
}

/// The way in which the thread came to its end.
enum End {
    Back(Box<MeasuredSession>, StopReason),
    Panicked(String),
    Hung(Duration),
}

/// Why a thread gave the session back.
enum StopReason {
    /// The task told it to stop.
    Stopped,
    /// There is no memory for it.
    Refused(Refusal),
    /// The owner breaks the layout's rules.
    Fault,
}

impl Thread {
    /// Starts the thread with the session `here`, which comes back if no thread can be started. Returns with it the test
    /// of whether the session waits for something else than its lanes' steps, such as its recorder.
    fn start(
        hosting: &Hosting,
        owned: &OwnedHandle,
        number: u64,
        mut measured: Box<MeasuredSession>,
    ) -> Result<(Self, Waits), (Box<MeasuredSession>, std::io::Error)> {
        let (hand, handed) = oneshot::channel();
        let (give_back, back) = oneshot::channel();
        // Once the thread has it, nobody else can ask the session.
        let waits = waits_for_others(measured.session());
        let hang_deadline = hosting.deadlines().of_session(measured.session().is_late());
        let shared = Arc::new(StepperShared {
            stop: AtomicBool::new(false),
            cancel: owned.status.token().clone(),
            beats: AtomicU64::new(1),
            measured: Mutex::new(Some(measured)),
            told: Arc::clone(owned.told()),
            figures: Arc::clone(&hosting.figures),
        });
        let own = Arc::clone(&shared);
        let run = move || {
            let Some(mut measured) = own.take_session() else { return };
            let served = catch_unwind(AssertUnwindSafe(|| {
                let why = own.serve(&mut measured, hand);
                (measured, why)
            }));
            // Whoever gave the thread up has gone; the session goes with this then.
            drop(give_back.send(served.map_err(|panic| panic_message(&*panic))));
        };
        let name = format!("rollhouse-shm-{number}");
        // Task: shared memory.
        match std::thread::Builder::new().name(name).spawn(run) {
            Ok(_) => Ok((Self { shared, handed, back, remote: None, hang_deadline }, waits)),
            Err(error) => match shared.take_session() {
                Some(measured) => Err((measured, error)),
                None => unreachable!("a thread that was not started has taken nothing"),
            },
        }
    }

    /// Hands the memory over, and waits until the owner, its turn or the thread itself ends.
    async fn watch(
        &mut self,
        (owned, waits): (&OwnedHandle, Waits),
        number: u64,
        socket: &mut AttachSocket,
    ) -> End {
        let mut watch = HangWatch::new(self.hang_deadline);
        let began = Instant::now();
        let mut look = pin!(tokio::time::sleep(Duration::ZERO));
        let (mut wants_memory, mut watched) = (true, true);
        loop {
            tokio::select! {
                biased;
                back = &mut self.back => return match back {
                    Ok(Ok((measured, why))) => End::Back(measured, why),
                    Ok(Err(message)) => End::Panicked(message),
                    Err(_) => End::Panicked("its thread ended without a word".to_owned()),
                },
                handed = &mut self.handed, if wants_memory => {
                    wants_memory = false;
                    if let Ok(handed) = handed && self.hand_over(handed, socket).await.is_err() {
                        watched = false;
                        self.stop();
                    }
                }
                () = socket.gone(), if watched => {
                    watched = false;
                    self.stop();
                }
                over = owned.status.turned_away(number), if watched => {
                    watched = false;
                    if over == TurnOver::Ended {
                        self.close(EndCause::Closed);
                    }
                    self.stop();
                }
                () = &mut look => {
                    if let Some(remote) = &self.remote {
                        remote.beat();
                    }
                    if !watched {
                        self.stop();
                    }
                    let beats = self.shared.beats.load(Ordering::Relaxed);
                    let at_rest = beats.is_multiple_of(2) || waits();
                    let now = began.elapsed();
                    if let Verdict::Hung(still) = watch.look(now, beats, at_rest) {
                        return End::Hung(still);
                    }
                    let next = tokio::time::Instant::now() + watch.look_at(now).saturating_sub(now);
                    look.as_mut().reset(next);
                }
            }
        }
    }

    async fn hand_over(&mut self, handed: MemoryOffer, socket: &mut AttachSocket) -> std::io::Result<()> {
        let MemoryOffer { attached, outputs, inputs, remote } = handed;
        self.remote = Some(remote);
        failpoint("node.attach.made");
        socket.accept(attached, [outputs.as_fd(), inputs.as_fd()]).await?;
        failpoint("node.attach.answered");
        Ok(())
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(remote) = &self.remote {
            remote.rouse();
        }
    }

    /// Tells the owner that nothing more comes, for good.
    fn close(&self, cause: EndCause) {
        if let Some(remote) = &self.remote {
            remote.close(cause as u64);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl StepperShared {
    fn take_session(&self) -> Option<Box<MeasuredSession>> {
        self.measured.lock().take()
    }

    /// Steps the session on the thread until it is told to stop, the owner breaks a rule, or there is no memory.
    fn serve(&self, measured: &mut MeasuredSession, hand: oneshot::Sender<MemoryOffer>) -> StopReason {
        let last = measured.session().last();
        let mut end = match measured.session().attach_memory() {
            Ok(end) => end,
            Err(refusal) => return StopReason::Refused(refusal),
        };
        let descriptors = (end.outputs_fd().try_clone_to_owned(), end.inputs_fd().try_clone_to_owned());
        let (Ok(outputs), Ok(inputs)) = descriptors else {
            return StopReason::Refused(Refusal::busy("the node has no descriptors left", ROOM_RETRY_MS));
        };
        let attached = MemoryAttached {
            lanes: measured.session().lanes() as u32,
            last,
            generation: end.generation(),
            logs: measured.session().keeps_log(),
            refused: measured.session().last_refusal().cloned(),
            paced: measured.session().is_paced(),
        };
        if hand.send(MemoryOffer { attached, outputs, inputs, remote: end.remote() }).is_err() {
            return StopReason::Stopped;
        }
        let why = self.serve_requests(measured, &mut end);
        // An owner that attaches again finds done what was sent. The session's end sees to that itself.
        if !self.cancel.is_cancelled() {
            let _broken = measured.session().settle_lanes(&mut end);
        }
        why
    }

    fn serve_requests(&self, measured: &mut MeasuredSession, end: &mut ServingEnd) -> StopReason {
        let goes_on = || !self.stop.load(Ordering::Relaxed);
        loop {
            // At rest while it waits.
            self.beat();
            let request = match self.next_request(measured, end, &goes_on) {
                Ok(request) => request,
                Err(why) => return why,
            };
            self.beat();
            // Who waits asks only before it sleeps, and a trainer may always have a request waiting.
            if self.cancel.is_cancelled() || !goes_on() {
                return StopReason::Stopped;
            }
            failpoint("node.attach.request");
            if measured.serve(end, request, &self.told, &self.figures, goes_on).is_err() {
                return if goes_on() { StopReason::Fault } else { StopReason::Stopped };
            }
            failpoint("node.attach.answer");
        }
    }

    /// Notes that the thread is in a request from now on, or is not any more. It alone does.
    fn beat(&self) {
        self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Waits for a request, and answers meanwhile lanes that are under way as they are done.
    fn next_request(
        &self,
        measured: &mut MeasuredSession,
        end: &mut ServingEnd,
        goes_on: &impl Fn() -> bool,
    ) -> Result<MemoryRequest, StopReason> {
        loop {
            if measured.session().is_paced() {
                self.beat();
                let ticked = measured.tick_in_memory(end, &self.told, &self.figures);
                self.beat();
                ticked.map_err(|_| StopReason::Fault)?;
            } else if measured.session().has_under_way()
                && let Some(request) = self.attend_lanes(measured, end, goes_on)?
            {
                return Ok(request);
            }
            let at = measured.look_at();
            // Worlds that tick by time wake their thread often: to be awake in between would cost more than the ticks.
            let waited = if measured.session().tick_at().is_some() {
                end.wait_asleep(at, goes_on)
            } else {
                end.wait(at, goes_on)
            };
            match waited {
                Ok(request) => return Ok(request),
                Err(ServeError::TimedOut) => measured.idle(&self.told, &self.figures),
                Err(ServeError::Gone) => return Err(StopReason::Stopped),
                Err(ServeError::Peer(_)) => return Err(StopReason::Fault),
            }
        }
    }

    /// Answers lanes that are under way as they are done, until a request comes; `None` once no lane is under way.
    fn attend_lanes(
        &self,
        measured: &mut MeasuredSession,
        end: &mut ServingEnd,
        goes_on: &impl Fn() -> bool,
    ) -> Result<Option<MemoryRequest>, StopReason> {
        let (mut idle_at, mut look, mut awake) = (measured.idle_at(), LOOK_FIRST, true);
        while measured.session().has_under_way() {
            if self.cancel.is_cancelled() || !goes_on() {
                return Err(StopReason::Stopped);
            }
            // Whoever has the lanes for which it waited mostly sends again at once.
            match end.wait_beside_lanes(Instant::now() + LOOK_LAST, awake, goes_on) {
                Ok(None) => {}
                Ok(request) => return Ok(request),
                Err(ServeError::Peer(_)) => return Err(StopReason::Fault),
                Err(ServeError::Gone | ServeError::TimedOut) => return Err(StopReason::Stopped),
            }
            // The longer nothing comes, the less it matters how soon a request is seen.
            let patience = if end.is_waited_for() { look } else { Duration::ZERO };
            awake = measured
                .answer_done(end, patience, &self.told, &self.figures)
                .map_err(|_| StopReason::Fault)?;
            look = if awake { LOOK_FIRST } else { (look * 2).min(LOOK_LAST) };
            if idle_at.is_some_and(|at| at <= Instant::now()) {
                measured.idle(&self.told, &self.figures);
                idle_at = measured.idle_at();
            }
        }
        Ok(None)
    }
}

/// Time for which lanes under way are waited for before the owner's next request is looked for, first and at last. The last
/// is also the time for which a request is waited for before it is looked whether lanes are done.
const LOOK_FIRST: Duration = Duration::from_micros(50);
const LOOK_LAST: Duration = Duration::from_millis(1);

/// Pause after which a refused owner may try again: room comes when another owner detaches.
const ROOM_RETRY_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use rollhouse_arena::{Answer, ArenaIdent, AttachedArena, Expected};
    use rollhouse_core::{AutoresetMode, Claimant};
    use rollhouse_engine::Engine;
    use rollhouse_env::Registry;
    use rollhouse_replay::RecorderConfig;
    use rollhouse_replay::testing::{DrivenRecorder, FaultyDisk};

    use super::*;
    use crate::hosting::tests::{hosting, open};
    use crate::owned::tests::{cartpole, fall_behind, recorded};
    use crate::session_status::SessionStatus;

    /// Symptom: a session in shared memory that waited for its disk was given up as hung.
    /// Cause: whether it waits was asked after the thread had taken the session, which was known to wait for nothing then.
    /// Fix: it is asked before the thread is started.
    #[test]
    fn a_session_is_known_to_wait_however_soon_its_thread_has_taken_it() {
        let disk = Arc::new(FaultyDisk::new());
        let (dir, config) = (std::path::Path::new("/spool"), RecorderConfig::default());
        let driven = DrivenRecorder::open(disk, dir, config, 1, Duration::ZERO).unwrap();
        let mut session = recorded(&driven);
        fall_behind(&mut session);
        let node = crate::Node::start().unwrap();
        let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
        let open = open("CartPole-v1");
        let placed = (open.session, open.incarnation);
        let other = cartpole(2, AutoresetMode::NextStep);
        let owner = Claimant::owner("trainer");
        let owned = OwnedHandle::new(placed, owner, SessionStatus::default(), 0, other, Arc::default());
        let measured = Box::new(MeasuredSession::new(session, Arc::default()));
        let Ok((thread, waits)) = Thread::start(&hosting, &owned, 1, measured) else { panic!("a thread") };
        while thread.shared.measured.lock().is_some() {
            std::thread::yield_now();
        }
        assert!(waits());
    }

    /// Symptom: a trainer that was taken over, or whose session ended, went on being served as long as it always had a
    /// request waiting; ended by its hang deadline, its thread went on. Cause: whether to stop was asked before sleeping
    /// alone. Fix: it is asked before each request.
    #[test]
    fn a_thread_that_is_told_to_stop_serves_nothing_more_though_a_request_waits() {
        let shared = StepperShared {
            stop: AtomicBool::new(false),
            cancel: Cancel::default(),
            beats: AtomicU64::new(1),
            measured: Mutex::new(None),
            told: Arc::default(),
            figures: Arc::default(),
        };
        let mut measured = MeasuredSession::new(cartpole(2, AutoresetMode::NextStep), Arc::default());
        let (hand, handed) = oneshot::channel();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| shared.serve(&mut measured, hand));
            let MemoryOffer { attached, outputs, inputs, .. } = handed.blocking_recv().unwrap();
            let autoreset = AutoresetMode::NextStep;
            let columns = Engine::columns(&Registry::builtin().get("CartPole-v1").unwrap(), autoreset);
            let ident = ArenaIdent { term: 1, counter: 1, autoreset: autoreset.code() };
            let expected = Expected { columns: &columns, lanes: 2, ident, generation: attached.generation };
            let mut trainer = AttachedArena::open(outputs, inputs, &expected).unwrap();
            trainer.post_reset(&[], &[]);
            assert_eq!(trainer.wait(None, || !thread.is_finished()), Ok(Answer::Frame));
            shared.stop.store(true, Ordering::Relaxed);
            trainer.post_step();
            assert!(matches!(thread.join().unwrap(), StopReason::Stopped));
            assert!(!trainer.is_answered());
        });
    }
}
