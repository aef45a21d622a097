//! Turns by owner at what the coordinator does a bounded number of at a time: those that wait do so without a thread.

use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::{Claimant, SharedBound, Turns};
use tokio::sync::oneshot;

/// A line at the places of a shared bound. Clones are handles to the same.
#[derive(Debug, Clone)]
pub(crate) struct TurnLine(Arc<Mutex<Turns<oneshot::Sender<Turn>>>>);

/// A place of the bound; it is given back, and the next in turn has it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None` once the place was given back.
    line: Option<TurnLine>,
    claimant: Claimant,
}

impl TurnLine {
    pub(crate) fn new(bound: SharedBound) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(bound))))
    }

    /// Waits for a place. Cancellation-safe: the place of one that waits no more goes to the next.
    pub(crate) async fn turn(&self, claimant: &Claimant) -> Turn {
        let (sender, turn) = oneshot::channel();
        self.0.lock().push(claimant.clone(), sender);
        self.serve();
        match turn.await {
            Ok(turn) => turn,
            // Whoever is in the line is served, or waits no more. Without a place there would be one more at a time.
            Err(_) => Turn { line: None, claimant: claimant.clone() },
        }
    }

    /// Gives free places to the next in turn.
    fn serve(&self) {
        let mut turns = self.0.lock();
        while let Some((claimant, sender)) = turns.pop() {
            let turn = Turn { line: Some(self.clone()), claimant };
            if let Err(mut unwanted) = sender.send(turn) {
                unwanted.line = None;
                turns.done(&unwanted.claimant);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.0.lock().done(&self.claimant);
            line.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready<T>(waits: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match waits.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Symptom: `replay ls` of one took 33 s while another asked the store questions without a pause, and so did that of
    /// an admin. Cause: questions were answered in the order in which they came. Fix: owners have turns, and a place is
    /// kept for admins.
    #[test]
    fn one_who_asks_without_a_pause_holds_up_neither_another_owner_nor_an_admin() {
        for bound in [SharedBound::QUESTIONS, SharedBound::READS, SharedBound::ANSWERS, SharedBound::FETCHES]
        {
            let line = TurnLine::new(bound);
            let (greedy, other) = (Claimant::owner("greedy"), Claimant::owner("other"));
            let admin = Claimant::operator("admin");
            let mut asked: Vec<_> = (0..1000).map(|_| Box::pin(line.turn(&greedy))).collect();
            let turns: Vec<Turn> = asked.iter_mut().filter_map(|turn| is_ready(turn.as_mut())).collect();
            assert!(turns.len() as u64 <= (bound.limit - bound.reserve).div_ceil(2), "{}", bound.what);
            assert!(is_ready(pin!(line.turn(&other))).is_some(), "{}", bound.what);
            assert!(is_ready(pin!(line.turn(&admin))).is_some(), "{}", bound.what);
        }
    }

    #[test]
    fn a_place_goes_to_the_next_that_still_waits() {
        let line = TurnLine::new(SharedBound::EPISODES);
        let ada = Claimant::owner("ada");
        let first = is_ready(pin!(line.turn(&ada))).unwrap();
        let mut gone = Box::pin(line.turn(&ada));
        assert!(is_ready(gone.as_mut()).is_none());
        let mut waits = Box::pin(line.turn(&ada));
        assert!(is_ready(waits.as_mut()).is_none());
        drop(gone);
        drop(first);
        let second = is_ready(waits.as_mut());
        assert!(second.is_some());
        drop(second);
        assert!(is_ready(pin!(line.turn(&ada))).is_some());
    }
}
