//! How long calls took: counted by length, so that millions of them take little memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

/// Counts of times. A time is known to a 64th of itself, the longest exactly.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    counts: Vec<u64>,
    total: u64,
    longest: Duration,
}

impl Waits {
    fn add(&mut self, wait: Duration) {
        let at = bucket(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.longest = self.longest.max(wait);
    }

    /// Returns the smallest time that at least this share of all does not exceed, in milliseconds.
    fn quantile_ms(&self, share: f64) -> Option<f64> {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let at = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some((largest(at) as f64 / 1e3).min(self.longest.as_secs_f64() * 1e3))
    }
}

/// Returns the bucket of a time in microseconds: each power of two has 64 of them.
fn bucket(micros: u64) -> usize {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(7);
    64 * shift as usize + (micros >> shift) as usize
}

/// Returns the longest time of a bucket.
const fn largest(bucket: usize) -> u64 {
    let shift = (bucket / 64).saturating_sub(1);
    let place = (bucket - 64 * shift) as u64;
    ((place + 1) << shift) - 1
}

/// What somebody honest waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// A step of all lanes of the trainer that is compared.
    Step,
    /// A page of episodes and the state of the cluster.
    Question,
    /// A pool, from asking for it until its lanes are reset.
    Opening,
}

/// How long honest clients waited, alone and beside tenants who flood.
#[derive(Debug, Default)]
pub(super) struct WaitBook {
    beside: AtomicBool,
    calls: Mutex<[[Waits; 2]; 3]>,
}

impl WaitBook {
    /// Notes a wait, as one of the time in which it ends.
    pub(super) fn add(&self, call: Call, wait: Duration) {
        let beside = usize::from(self.beside.load(Ordering::Relaxed));
        self.calls.lock()[call as usize][beside].add(wait);
    }

    /// Forgets all waits: those that follow are ones alone.
    pub(super) fn begin(&self) {
        *self.calls.lock() = <[[Waits; 2]; 3]>::default();
    }

    /// Has the waits that follow be ones beside tenants.
    pub(super) fn tenants_come(&self) {
        self.beside.store(true, Ordering::Relaxed);
    }

    pub(super) fn figures(&self) -> Vec<CallWaits> {
        let calls = self.calls.lock();
        [(Call::Step, "step"), (Call::Question, "question"), (Call::Opening, "opening")]
            .map(|(call, name)| CallWaits::of(name, &calls[call as usize]))
            .into()
    }
}

/// The waits for one kind of call.
#[derive(Debug, Serialize)]
pub(super) struct CallWaits {
    pub(super) call: &'static str,
    pub(super) alone: WaitFigures,
    pub(super) beside: WaitFigures,
    /// The figures beside tenants by those alone: of the median, the 99th percentile and the longest.
    pub(super) ratios: [Option<f64>; 3],
}

#[derive(Debug, Serialize)]
pub(super) struct WaitFigures {
    pub(super) count: u64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
}

impl CallWaits {
    fn of(call: &'static str, [alone, beside]: &[Waits; 2]) -> Self {
        let (alone, beside) = (WaitFigures::of(alone), WaitFigures::of(beside));
        let ratio = |of: fn(&WaitFigures) -> Option<f64>| Some(of(&beside)? / of(&alone)?.max(LEAST_MS));
        let ratios = [ratio(|waits| waits.p50_ms), ratio(|waits| waits.p99_ms), ratio(|waits| waits.max_ms)];
        Self { call, alone, beside, ratios }
    }

    /// Returns whether nobody waited more than twice as long as alone.
    pub(super) fn is_fair(&self) -> bool {
        self.ratios.iter().all(|ratio| ratio.is_some_and(|ratio| ratio <= MOST_RATIO))
    }
}

impl WaitFigures {
    fn of(waits: &Waits) -> Self {
        Self {
            count: waits.total,
            p50_ms: waits.quantile_ms(0.5),
            p99_ms: waits.quantile_ms(0.99),
            max_ms: (waits.total > 0).then_some(waits.longest.as_secs_f64() * 1e3),
        }
    }
}

/// The most that somebody honest may wait, by what it is alone.
const MOST_RATIO: f64 = 2.0;
/// Times below one microsecond are none.
const LEAST_MS: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_times_to_a_64th_and_the_longest_is_exact() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile_ms(0.5), None);
        (1..=1000).for_each(|ms| waits.add(Duration::from_millis(ms)));
        for (share, ms) in [(0.001, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = waits.quantile_ms(share).unwrap();
            assert!((found / ms - 1.0).abs() <= 1.0 / 64.0, "{share}: {found} for {ms}");
        }
        assert_eq!(waits.quantile_ms(1.0), Some(1000.0));
    }

    #[test]
    fn every_time_is_in_a_bucket_that_ends_at_it_or_shortly_after_it() {
        for micros in (0..5_000).chain([u64::from(u32::MAX), 1 << 40, (1 << 40) + 12_345]) {
            let end = largest(bucket(micros));
            assert!(end >= micros && end - micros <= micros / 64, "{micros}: {end}");
            assert_eq!(bucket(end), bucket(micros), "{micros}");
            assert_eq!(bucket(end + 1), bucket(micros) + 1, "{micros}");
        }
    }

    #[test]
    fn a_call_is_fair_if_neither_median_nor_99th_percentile_nor_longest_is_more_than_doubled() {
        let fair = |beside: [u64; 3]| {
            let book = WaitBook::default();
            let add = |[most, some, longest]: [u64; 3]| {
                for (count, ms) in [(980, most), (19, some), (1, longest)] {
                    (0..count).for_each(|_| book.add(Call::Opening, Duration::from_millis(ms)));
                }
            };
            add([7; 3]);
            book.begin();
            add([10, 100, 1000]);
            book.tenants_come();
            add(beside);
            let figures = book.figures();
            let [step, _, opening] = figures.as_slice() else { panic!("three calls") };
            assert!(!step.is_fair(), "nothing was shown of it");
            opening.is_fair()
        };
        assert!(fair([19, 190, 1990]));
        assert!(!fair([21, 190, 1990]));
        assert!(!fair([19, 210, 1990]));
        assert!(!fair([19, 190, 2010]));
    }
}
