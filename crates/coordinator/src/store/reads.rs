//! Turns at reading the store's disk.
//!
//! A place at the disk is held while a piece is read, never while it is sent: a peer that does not take its answer
//! delays nobody but itself. The pieces of one owner's requests wait for one another before they wait for others', so
//! that owners are served by turns however much one of them asks for; and each connection has a bounded number of
//! answers under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Places for reads of the store that may block at a time.
#[derive(Debug)]
pub(crate) struct Reads {
    disk: Semaphore,
    /// The semaphore of each owner that has a connection.
    owners: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

/// The places of one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    answers: Semaphore,
    owner: Arc<Semaphore>,
}

/// A place at the disk; it is given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _disk: Option<SemaphorePermit<'a>>,
    _owner: Option<SemaphorePermit<'a>>,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self { disk: Semaphore::new(MAX_READS), owners: Mutex::default() }
    }

    /// Makes a reader for a connection of `owner`.
    pub(crate) fn reader(&self, owner: String) -> Reader {
        let mut owners = self.owners.lock();
        owners.retain(|_, shared| shared.strong_count() > 0);
        let known = owners.get(&owner).and_then(Weak::upgrade);
        let shared = known.unwrap_or_else(|| Arc::new(Semaphore::new(MAX_READS_OF_OWNER)));
        owners.insert(owner, Arc::downgrade(&shared));
        Reader { answers: Semaphore::new(MAX_ANSWERS), owner: shared }
    }

    /// Waits for a place at the disk. Cancellation-safe. None of the semaphores is ever closed; without a permit there
    /// would be one read more.
    pub(crate) async fn turn<'a>(&'a self, reader: &'a Reader) -> Turn<'a> {
        let owner = reader.owner.acquire().await.ok();
        Turn { _owner: owner, _disk: self.disk.acquire().await.ok() }
    }
}

impl Reader {
    /// Waits until the connection has room for another answer, and holds it. Cancellation-safe.
    pub(crate) async fn answer(&self) -> Option<SemaphorePermit<'_>> {
        self.answers.acquire().await.ok()
    }
}

/// Number of reads of the disk at a time.
const MAX_READS: usize = 8;
/// Number of those that one owner has, or waits for before others.
const MAX_READS_OF_OWNER: usize = 2;
/// Number of answers under way to one connection; each has a piece in memory.
const MAX_ANSWERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_ready<T>(waits: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match waits.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Whatever one owner asks for, over however many connections, another's next piece waits for two of his at most.
    #[test]
    fn an_owner_with_many_connections_has_no_more_places_than_one_with_one() {
        let reads = Reads::new();
        let greedy: Vec<Reader> = (0..100).map(|_| reads.reader("greedy".into())).collect();
        let turns: Vec<_> = greedy.iter().filter_map(|reader| is_ready(pin!(reads.turn(reader)))).collect();
        assert_eq!(turns.len(), MAX_READS_OF_OWNER);
        let other = reads.reader("other".into());
        assert!(is_ready(pin!(reads.turn(&other))).is_some());
        drop(turns);
        assert!(is_ready(pin!(reads.turn(&greedy[7]))).is_some());
    }

    #[test]
    fn owners_without_connections_are_forgotten() {
        let reads = Reads::new();
        for owner in 0..1000 {
            drop(reads.reader(format!("owner-{owner}")));
        }
        assert!(reads.owners.lock().len() <= 1);
    }
}
