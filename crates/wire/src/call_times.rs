//! Histograms of how long requests took, each bucket with the call that fell into it last.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::CallId;

/// Times from reading a request to its answer, by the request's word. Steps are not counted here, because each note
/// takes a lock.
#[derive(Debug, Default)]
pub struct CallTimes(Mutex<BTreeMap<&'static str, CallHistogram>>);

/// The times of one kind of request in buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallHistogram {
    /// Number of times in each bucket, not cumulative; the last bucket is for times above all bounds.
    pub counts: [u64; CallTimes::BOUNDS.len() + 1],
    /// Sum of all times.
    pub sum: Duration,
    /// The newest time in each bucket whose request named a client's call.
    pub newest: [Option<TimedCall>; CallTimes::BOUNDS.len() + 1],
}

/// A client's call and how long one of its requests took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedCall {
    /// The client's call.
    pub call: CallId,
    /// Time from reading the request to its answer.
    pub took: Duration,
    /// The moment at which the request was answered.
    pub at: SystemTime,
}

impl CallTimes {
    /// Upper bounds of the buckets in seconds.
    pub const BOUNDS: [f64; 9] = [0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 10.0, 60.0];

    /// Counts a request of that word that was answered at `at` after `took`. `call` is the call that it named, if any.
    /// Does not block.
    pub fn note(&self, request: &'static str, call: Option<CallId>, took: Duration, at: SystemTime) {
        let bucket = Self::BOUNDS.partition_point(|&bound| bound < took.as_secs_f64());
        let mut times = self.0.lock();
        let times = times.entry(request).or_default();
        times.counts[bucket] += 1;
        times.sum = times.sum.saturating_add(took);
        if let Some(call) = call {
            times.newest[bucket] = Some(TimedCall { call, took, at });
        }
    }

    /// Returns the times of each kind of request that was answered.
    pub fn histograms(&self) -> BTreeMap<&'static str, CallHistogram> {
        self.0.lock().clone()
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
