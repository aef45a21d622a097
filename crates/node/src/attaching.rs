//! Processes that have connected to the attach socket and have not asked for a session yet.
//!
//! ```text
//! connected -> waiting --asks in time--> asked (it counts no more)
//!              waiting --others connect--> given up, the oldest of the user that has most
//! ```
//!
//! Nobody waits for a process that says nothing: each new one has a place at once, and a user who connects without a
//! pause gives up his own oldest.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The waiting processes, by the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attaching(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    by_age: BTreeMap<u64, Connected>,
}

#[derive(Debug)]
struct Connected {
    uid: u32,
    /// Dropped when the process is given up.
    _place: oneshot::Sender<()>,
}

/// The place of a process that has not asked yet. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct AttachPlace {
    number: u64,
    given_up: oneshot::Receiver<()>,
    of: Attaching,
}

impl Attaching {
    /// Gives a place to a process of that user. If there are [`MAX_ATTACHING`] already, the oldest of the user with the
    /// most places gives up its own.
    pub(crate) fn begin(&self, uid: u32) -> AttachPlace {
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        let (place, given_up) = oneshot::channel();
        waiting.by_age.insert(number, Connected { uid, _place: place });
        if waiting.by_age.len() > MAX_ATTACHING {
            waiting.give_up();
        }
        AttachPlace { number, given_up, of: self.clone() }
    }
}

impl Waiting {
    fn give_up(&mut self) {
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for connected in self.by_age.values() {
            *places.entry(connected.uid).or_default() += 1;
        }
        let most = places.into_iter().max_by_key(|&(_, places)| places).map(|(uid, _)| uid);
        let oldest = self.by_age.iter().find(|(_, connected)| Some(connected.uid) == most);
        if let Some(oldest) = oldest.map(|(&number, _)| number) {
            self.by_age.remove(&oldest);
        }
    }
}

impl AttachPlace {
    /// Waits until the place is given to another process. Cancellation-safe.
    pub(crate) async fn given_up(&mut self) {
        // Nothing is ever sent: the sender goes away.
        let _gone = (&mut self.given_up).await;
    }
}

impl Drop for AttachPlace {
    fn drop(&mut self) {
        self.of.0.lock().by_age.remove(&self.number);
    }
}

/// Number of processes that have connected and have not asked yet.
pub(crate) const MAX_ATTACHING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_given_up(place: &mut AttachPlace) -> bool {
        place.given_up.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_user_with_most_waiting_processes_gives_up_his_oldest_and_others_wait_on() {
        let attaching = Attaching::default();
        let mut honest = attaching.begin(7);
        let mut idle: Vec<AttachPlace> = (1..MAX_ATTACHING).map(|_| attaching.begin(9)).collect();
        assert!(!idle.iter_mut().any(is_given_up), "all have a place");
        let mut another = attaching.begin(9);
        let given_up: Vec<usize> = (0..idle.len()).filter(|&at| is_given_up(&mut idle[at])).collect();
        assert_eq!(given_up, [0]);
        assert!(!is_given_up(&mut honest) && !is_given_up(&mut another));
        drop(idle.pop());
        let _one_more = attaching.begin(9);
        let given_up = idle.iter_mut().map(is_given_up).filter(|given_up| *given_up);
        assert_eq!(given_up.count(), 1, "one left by itself");
    }
}
