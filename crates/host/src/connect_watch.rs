//! What workers say of their connecting, for those who watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rollhouse_core::limits::{CONNECT_DEADLINE, CONNECT_RETRIES, MAX_CONNECT_RETRIES};

/// Rules by which envs that are clients of something try again to connect to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// Number of times that an env tries again; 0 tells its first failure.
    pub retries: u32,
    /// Maximum time from the first failure until it has connected.
    pub deadline: Duration,
}

/// How often the workers of one host have tried to connect. Clones share it, and any thread may look.
#[derive(Debug, Clone, Default)]
pub struct ConnectWatch {
    retries: Arc<AtomicU32>,
    /// Retries of all hosts whose watches are counted together.
    all: Arc<AtomicU64>,
}

/// Connecting of one worker, as its host knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tries {
    /// Time at which the worker first said so.
    pub(crate) since: Instant,
    /// Number of its retries; 0 if it has connected since.
    pub(crate) retries: u32,
}

impl Default for Connect {
    fn default() -> Self {
        Self { retries: CONNECT_RETRIES, deadline: CONNECT_DEADLINE }
    }
}

impl ConnectWatch {
    /// Returns a watch whose retries are added to `all`.
    pub(crate) fn counted_in(all: &Arc<AtomicU64>) -> Self {
        Self { retries: Arc::default(), all: Arc::clone(all) }
    }

    /// Returns how often the worker that has tried most often has tried again to connect; `None` if no worker connects.
    pub fn retries(&self) -> Option<u32> {
        Some(self.retries.load(Ordering::Relaxed)).filter(|&retries| retries > 0)
    }

    /// Shows the retries of the worker that has most.
    pub(crate) fn show(&self, retries: u32) {
        self.retries.store(retries, Ordering::Relaxed);
    }

    /// Adds up a retry.
    fn count(&self) {
        self.all.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tries {
    /// Takes in what a worker says, which may be anything. Returns whether it is the first that it says.
    pub(crate) fn told(known: &mut Option<Self>, said: u64, watch: &ConnectWatch) -> bool {
        let retries = u32::try_from(said).unwrap_or(u32::MAX).min(MAX_CONNECT_RETRIES);
        let first = known.is_none();
        let tries = known.get_or_insert_with(|| Self { since: Instant::now(), retries: 0 });
        if retries > 0 && retries != tries.retries {
            watch.count();
        }
        tries.retries = retries;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_say_is_bounded_and_each_retry_is_counted_once() {
        let all = Arc::new(AtomicU64::new(0));
        let (watch, mut tries) = (ConnectWatch::counted_in(&all), None);
        assert!(Tries::told(&mut tries, 1, &watch));
        for said in [1, 2, 2, 3, 0, u64::MAX] {
            assert!(!Tries::told(&mut tries, said, &watch));
        }
        assert_eq!((tries.unwrap().retries, all.load(Ordering::Relaxed)), (MAX_CONNECT_RETRIES, 4));
        watch.show(7);
        assert_eq!(watch.clone().retries(), Some(7));
        watch.show(0);
        assert_eq!(watch.retries(), None);
    }
}
