//! The actor that supervises the sessions of a node: it makes their actors, and makes them anew when they panic.
//!
//! ```text
//! (begun) -> controlled -> over                          its session ended
//!            controlled -> backing off -> controlled     its actor panicked: made anew after a back-off
//!                          backing off -> given up       too often: the session is ended
//! ```
//!
//! The sessions outlive the actor as well: one that is made anew takes up those that are there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use parking_lot::Mutex;
use rollhouse_core::{BackOff, RestartDecision};
use tokio::sync::{oneshot, watch};

use crate::parts::PartExit;
use crate::session_actor::{Look, SessionActor, SessionDown, Supervised};

/// The sessions of one node, by number. Any thread may begin one.
pub(crate) struct Supervision {
    sessions: Mutex<Sessions>,
    began: Instant,
    /// The address of the node actor that was made last.
    actor: watch::Sender<Option<Addr<NodeActor>>>,
}

#[derive(Default)]
struct Sessions {
    begun: u64,
    by_number: BTreeMap<u64, Kept>,
}

/// A session that is kept under control.
struct Kept {
    session: Arc<dyn Supervised>,
    actor: Option<Addr<SessionActor>>,
    back_off: BackOff,
    /// The time at which an actor is due, if there is none.
    due: Duration,
}

/// What follows for a session from a look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tended {
    Stays,
    Over,
    GivenUp,
}

impl Supervision {
    pub(crate) fn new() -> Arc<Self> {
        let actor = watch::Sender::new(None);
        Arc::new(Self { sessions: Mutex::default(), began: Instant::now(), actor })
    }

    /// Returns a number for a session of this node that no other one has.
    pub(crate) fn number(&self) -> u64 {
        let mut sessions = self.sessions.lock();
        sessions.begun += 1;
        sessions.begun - 1
    }

    /// Has an actor control a session from now on, until it is over. Does not block.
    pub(crate) fn begin(&self, number: u64, session: Arc<dyn Supervised>) {
        let _begun = self.begin_within(usize::MAX, number, session);
    }

    /// Does the same, unless `most` sessions are not over already. Returns whether it did.
    pub(crate) fn begin_within(&self, most: usize, number: u64, session: Arc<dyn Supervised>) -> bool {
        let kept = Kept { session, actor: None, back_off: BackOff::new(number), due: Duration::ZERO };
        let mut sessions = self.sessions.lock();
        let are_on =
            |sessions: &Sessions| sessions.by_number.values().filter(|s| !s.session.is_over()).count();
        if most < usize::MAX && are_on(&sessions) >= most {
            return false;
        }
        sessions.by_number.insert(number, kept);
        drop(sessions);
        let actor = self.actor.borrow().clone();
        // One that cannot take the notice finds the session at its next look, and so does one that is made anew.
        let _told = actor.map(|actor| actor.try_send(Begun(number)));
        true
    }

    /// Ends every session as one that nobody controls any more.
    pub(crate) fn give_up_all(&self) {
        let all = std::mem::take(&mut self.sessions.lock().by_number);
        all.values().for_each(|kept| kept.session.give_up());
    }

    /// Waits until the first node actor has begun. Cancellation-safe.
    pub(crate) async fn begun(&self) {
        // The sender is here.
        drop(self.actor.subscribe().wait_for(Option::is_some).await);
    }

    /// Looks at one session, and sees to it that it has an actor. With `look`, one that was there looks after it.
    fn tend(&self, number: u64, look: bool, node: &Addr<NodeActor>) {
        let now = self.began.elapsed();
        let mut sessions = self.sessions.lock();
        let Some(kept) = sessions.by_number.get_mut(&number) else { return };
        let session = match kept.tend(number, now, look, node) {
            Tended::Stays => return,
            Tended::Over => None,
            Tended::GivenUp => Some(Arc::clone(&kept.session)),
        };
        sessions.by_number.remove(&number);
        drop(sessions);
        if let Some(session) = session {
            session.give_up();
        }
    }

    /// Looks at every session, and has its actor look after it.
    fn look(&self, node: &Addr<NodeActor>) {
        let numbers: Vec<u64> = self.sessions.lock().by_number.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.tend(number, true, node));
    }
}

impl fmt::Debug for Supervision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervision").finish_non_exhaustive()
    }
}

impl Kept {
    fn tend(&mut self, number: u64, now: Duration, look: bool, node: &Addr<NodeActor>) -> Tended {
        if let Some(actor) = self.actor.as_ref().filter(|actor| actor.connected()) {
            if look {
                // One that has not looked since the last time need not look twice.
                let _asked = actor.try_send(Look);
            }
            return Tended::Stays;
        }
        if self.session.is_over() {
            return Tended::Over;
        }
        if self.actor.take().is_some() {
            match self.back_off.failed(now) {
                RestartDecision::RetryAfter(wait) => self.due = now + wait,
                RestartDecision::GiveUp => return Tended::GivenUp,
            }
        }
        if self.due <= now {
            let actor = SessionActor::new(number, Arc::clone(&self.session), node.clone().recipient());
            self.actor = Some(actor.start());
        }
        Tended::Stays
    }
}

/// Makes the actors of sessions, and looks after them.
pub(crate) struct NodeActor {
    supervision: Arc<Supervision>,
    /// Is dropped with the actor, however that ends.
    _alive: oneshot::Sender<()>,
}

/// The notice that a session has begun.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Begun(u64);

impl NodeActor {
    /// Starts an actor, and waits for it to be gone: it never ends by itself.
    pub(crate) async fn live(supervision: Arc<Supervision>) -> Result<(), PartExit> {
        let (alive, gone) = oneshot::channel();
        let _actor = Self { supervision, _alive: alive }.start();
        // Nothing is ever sent.
        let _gone = gone.await;
        Err(PartExit::Gone)
    }

    /// Looks at a session whose actor has just gone, or is to be made.
    fn tend(&self, number: u64, ctx: &Context<Self>) {
        self.supervision.tend(number, false, &ctx.address());
    }
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        ctx.run_interval(LOOK_EVERY, |node, ctx| node.supervision.look(&ctx.address()));
        self.supervision.look(&ctx.address());
        // Not before: one that has not begun would, when the thread ends, outside of its event loop.
        self.supervision.actor.send_replace(Some(ctx.address()));
    }
}

impl Handler<Begun> for NodeActor {
    type Result = ();

    fn handle(&mut self, Begun(number): Begun, ctx: &mut Self::Context) {
        self.tend(number, ctx);
    }
}

impl Handler<SessionDown> for NodeActor {
    type Result = ();

    fn handle(&mut self, SessionDown(number): SessionDown, ctx: &mut Self::Context) {
        self.tend(number, ctx);
    }
}

/// Capacity of the actor's mailbox. A notice that it has no room for is found by the next look.
const MAILBOX: usize = 1024;

/// Interval of the looks at sessions. One whose actor has panicked gets another at the first look after its back-off.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(crate) mod testing {
    //! Panics of actors, which no handler of ours is meant to have.

    use super::*;
    use crate::session_actor::testing::PanicNow;

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

    impl Supervision {
        /// Has a session's actor panic. Returns once another is due, and that is after the back-off.
        pub(crate) fn panic_session(&self, number: u64) {
            let actor = loop {
                let actor = self.sessions.lock().by_number[&number].actor.clone();
                match actor {
                    Some(actor) => break actor,
                    None => std::thread::yield_now(),
                }
            };
            actor.try_send(PanicNow).unwrap();
            while actor.connected() {
                std::thread::yield_now();
            }
        }

        /// Has a session's actor fail as often as it may, in no time.
        pub(crate) fn use_up_back_off(&self, number: u64) {
            let now = self.began.elapsed();
            let mut sessions = self.sessions.lock();
            let back_off = &mut sessions.by_number.get_mut(&number).unwrap().back_off;
            for _ in 0..5 {
                assert!(matches!(back_off.failed(now), RestartDecision::RetryAfter(_)));
            }
        }

        /// Has the node actor panic, and waits until there is another.
        pub(crate) fn panic_node(&self) {
            let first = self.actor.borrow().clone().unwrap();
            first.try_send(PanicNode).unwrap();
            while *self.actor.borrow() == Some(first.clone()) {
                std::thread::yield_now();
            }
        }
    }
}
