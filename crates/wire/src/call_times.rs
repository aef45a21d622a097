//! How long requests took, with the calls that took so long.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::CallId;

/// Times from reading a request to its answer, by the request's word. Steps are none: what is noted here costs a lock.
#[derive(Debug, Default)]
pub struct CallTimes(Mutex<BTreeMap<&'static str, CallHistogram>>);

/// Times of one kind of request in buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallHistogram {
    /// How many times each bucket has, not added up; the last is for what took longer than all bounds.
    pub counts: [u64; CallTimes::BOUNDS.len() + 1],
    /// The sum of all times.
    pub sum: Duration,
    /// The newest time in each bucket whose request named the client's call it was part of.
    pub newest: [Option<TimedCall>; CallTimes::BOUNDS.len() + 1],
}

/// A call of a client for which a request took so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedCall {
    /// The call.
    pub call: CallId,
    /// How long the request took.
    pub took: Duration,
    /// When it was answered.
    pub at: SystemTime,
}

impl CallTimes {
    /// Upper bounds of the buckets in seconds.
    pub const BOUNDS: [f64; 9] = [0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 10.0, 60.0];

    /// A request of that word was answered at `at` after `took`; it was part of `call`, if it said so. Does not block.
    pub fn note(&self, request: &'static str, call: Option<CallId>, took: Duration, at: SystemTime) {
        let bucket = Self::BOUNDS.partition_point(|&bound| bound < took.as_secs_f64());
        let mut times = self.lock();
        let times = times.entry(request).or_default();
        times.counts[bucket] += 1;
        times.sum = times.sum.saturating_add(took);
        if let Some(call) = call {
            times.newest[bucket] = Some(TimedCall { call, took, at });
        }
    }

    /// Each kind of request that was answered, with its times.
    pub fn histograms(&self) -> BTreeMap<&'static str, CallHistogram> {
        self.lock().clone()
    }

    /// Held for moments only.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, CallHistogram>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_keeps_the_newest_call_that_fell_into_it() {
        let times = CallTimes::default();
        let [first, second] = [CallId::generate(), CallId::generate()];
        let (now, ms) = (SystemTime::UNIX_EPOCH, Duration::from_millis);
        times.note("open_pool", Some(first), ms(20), now);
        times.note("open_pool", Some(second), ms(50), now);
        times.note("open_pool", None, ms(30), now);
        times.note("open_pool", Some(first), ms(70_000), now);
        times.note("status", None, ms(1), now);
        let histograms = times.histograms();
        let opened = &histograms["open_pool"];
        assert_eq!((opened.counts[3], opened.counts[9], opened.sum), (3, 1, ms(70_100)));
        assert_eq!(opened.newest[3], Some(TimedCall { call: second, took: ms(50), at: now }));
        assert_eq!(opened.newest[9].map(|timed| timed.call), Some(first));
        assert_eq!((histograms["status"].counts[0], histograms["status"].newest[0]), (1, None));
    }
}
