//! A bell that wakes a sleeping party: no wake-up is lost, and a party that is awake costs its peer no system call.
//!
//! ```text
//! waiter                                   waker
//! sleeping = 1                             what is waited for is stored
//! ── fence (SeqCst) ──                     ── fence (SeqCst) ──
//! seen = wake                              sleeping?  no: done
//! is it there now?  yes: sleeping = 0                 yes: wake += 1, futex wake
//! futex wait while wake == seen
//! ```
//!
//! One of the two sees the other (Dekker's pattern): if the waker reads that nobody sleeps, its fence came first, and
//! the waiter's second look finds what was stored. If it reads that someone does, either the waiter has `seen` the new
//! count and its second look finds it, or the kernel compares the counts, or the waiter is in the kernel and is woken.
//!
//! `sleeping` lies in the waiter's memory and `wake` in the waker's: each word has one writer. Where several threads wait
//! for one waker, `sleeping` counts them. Who has descriptors to sleep on has a [`Sleeping`] alone: the kernel counts then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::words::{Words, WordsMut};

/// Offset of the word that tells whether a waiter sleeps or is about to; in the waiter's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sleeping(pub(crate) usize);

/// Places of the two words of a bell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bell {
    pub(crate) sleeping: Sleeping,
    /// Offset of the word that counts wake-ups, 32 bits; in the waker's memory.
    pub(crate) wake: usize,
}

impl Sleeping {
    /// Announces that this party is about to sleep. The party has to look once more for what it waits for before it
    /// does.
    pub(crate) fn announce(self, own: &impl WordsMut) {
        own.enter(self.0);
        fence(own, Ordering::SeqCst);
    }

    /// Takes the announcement back.
    pub(crate) fn withdraw(self, own: &impl WordsMut) {
        own.leave(self.0);
    }

    /// Returns whether the peer has to be woken. It is to be called after what the peer waits for was stored.
    #[inline]
    pub(crate) fn is_announced(self, peer: &impl Words) -> bool {
        fence(peer, Ordering::SeqCst);
        peer.load(self.0) != 0
    }
}

impl Bell {
    /// Announces as [`Sleeping::announce`] does, and returns the count to call [`Bell::sleep`] with after the second look.
    pub(crate) fn announce(self, own: &impl WordsMut, peer: &impl Words) -> u32 {
        self.sleeping.announce(own);
        // Acquired: whoever sees a new count sees what it was raised for.
        peer.load_acquire(self.wake) as u32
    }

    /// Sleeps until the peer wakes this party, for `most` at most; may return early.
    pub(crate) fn sleep(self, peer: &impl Words, seen: u32, most: Duration) {
        peer.sleep_on(self.wake, seen, most);
    }

    /// Wakes the peer if it sleeps. It is to be called after what the peer waits for was stored.
    #[inline]
    pub(crate) fn ring(self, own: &impl WordsMut, peer: &impl Words) {
        if self.sleeping.is_announced(peer) {
            self.wake_up(own);
        }
    }

    #[cold]
    fn wake_up(self, own: &impl WordsMut) {
        let count = (own.load(self.wake) as u32).wrapping_add(1);
        own.store(self.wake, u64::from(count));
        own.wake_on(self.wake);
    }
}

fn fence<W: Words>(_: &W, order: Ordering) {
    W::fence(order);
}
