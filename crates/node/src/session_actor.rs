//! The actor of a session: it keeps the session's lease, tells what it has done, ends it, and says why it ended.
//!
//! ```text
//! (begun) --the node actor makes it--> controlling --its session is over--> gone
//!                                      controlling --it panics--> gone: the node actor makes another after a back-off
//! ```
//!
//! Lanes, streams and threads belong to the session, not to its actor. They go on while there is none, and the next
//! actor goes on where the last one was. No step passes through an actor.

use std::pin::Pin;
use std::sync::Arc;

use actix::prelude::*;

/// A session as its actors have it: it outlives each of them.
pub(crate) trait Supervised: Send + Sync {
    /// Returns the control of the session, which ends with it. It may be dropped at any time and begun again.
    fn control(self: Arc<Self>) -> Control;

    /// Looks after the session: called about once a second.
    fn look(&self);

    /// Returns whether it has ended, and its end was told.
    fn is_over(&self) -> bool;

    /// Ends it as one that nobody controls any more.
    fn give_up(&self);
}

/// The control of a session.
pub(crate) type Control = Pin<Box<dyn Future<Output = ()>>>;

/// Controls one session, and tells the node actor when it is gone.
pub(crate) struct SessionActor {
    number: u64,
    session: Arc<dyn Supervised>,
    node: Recipient<SessionDown>,
}

/// The request to look after the session.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Look;

/// The notice that a session's actor is gone, with its session or by a panic.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SessionDown(pub(crate) u64);

impl SessionActor {
    pub(crate) const fn new(number: u64, session: Arc<dyn Supervised>, node: Recipient<SessionDown>) -> Self {
        Self { number, session, node }
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let control = Arc::clone(&self.session).control().into_actor(self);
        // Task: session actor.
        ctx.spawn(control.map(|(), _, ctx| ctx.stop()));
    }

    /// Tells the node that the actor has ended. Also runs while a panic unwinds the actor.
    fn stopped(&mut self, _: &mut Self::Context) {
        // A full mailbox loses the notice; the node's own look finds the closed address.
        let _told = self.node.try_send(SessionDown(self.number));
    }
}

impl Handler<Look> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Look, _: &mut Self::Context) {
        self.session.look();
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A handler that panics, which no handler of ours is meant to.

    use super::*;

    #[derive(Debug, Message)]
    #[rtype(result = "()")]
    pub(crate) struct PanicNow;

    impl Handler<PanicNow> for SessionActor {
        type Result = ();

        fn handle(&mut self, _: PanicNow, _: &mut Self::Context) {
            panic!("a handler that panics");
        }
    }
}
