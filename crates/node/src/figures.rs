//! A node's counters, for those who export them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{GameResult, Outcome};
use rollhouse_wire::{CallTimes, PolicyLags, Role};

/// Counters of a node since its start; each is exact by itself and read without stopping anything.
#[derive(Debug, Default)]
pub struct NodeFigures {
    /// Env steps.
    pub steps: Counter,
    /// Episodes by outcome, in the order of [`Outcome::ALL`].
    pub episodes: [Counter; Outcome::ALL.len()],
    /// What envs said of episodes that ended.
    pub verdicts: VerdictFigures,
    /// Lanes that were started again after a failure.
    pub lane_restarts: Counter,
    /// Reports of sessions that brought something new. Not exported: a node reports again only what may have changed.
    pub(crate) tallies: Counter,
    /// Steps and requests for owners, by env.
    pub envs: Envs,
    /// Durations of requests by the coordinator, and by owners that attach.
    pub calls: CallTimes,
    /// The threads that step, and the requests that wait for them.
    pub threads: ThreadFigures,
    /// Sessions that were opened.
    pub sessions_opened: Counter,
    /// Sessions that ended, by cause, in the order of [`NodeFigures::END_CAUSES`].
    pub sessions_ended: [Counter; NodeFigures::END_CAUSES.len()],
    /// Owners that attached, also again.
    pub attached: Counter,
    /// Requests of owners and of the coordinator that were refused.
    pub refusals: Refusals,
    /// Streams that ended because something that came on them was no request.
    pub malformed: Counter,
    /// Those who watch the node's sessions.
    pub watching: WatchFigures,
    /// Connections to the coordinator that were lost.
    pub coordinator_lost: Counter,
}

/// Figures of what envs said of episodes that ended.
#[derive(Debug, Default)]
pub struct VerdictFigures {
    /// Episodes by their result, in the order of [`GameResult::ALL`].
    pub results: [Counter; GameResult::ALL.len()],
    /// Episodes that were given a score.
    pub scores: Counter,
    /// Sum of these scores.
    pub score_sum: Sum,
}

/// Figures of the threads that step.
#[derive(Debug, Default)]
pub struct ThreadFigures {
    /// Time that requests waited for a worker thread; requests stepped on the data thread wait for none.
    pub queue_wait: Histogram,
    /// Requests that were refused because the work queue was full.
    pub busy: Counter,
    /// Worker threads that hung and were given up.
    pub abandoned: Counter,
}

/// Figures of those who watch a node's sessions, and of what they are shown.
#[derive(Debug, Default)]
pub struct WatchFigures {
    /// Recorded episodes that are shown as sessions, as of the last second.
    pub replays: Gauge,
    /// Streams on which sessions are watched now.
    pub watchers: Gauge,
    /// Frames that were shown to watchers.
    pub frames_shown: Counter,
    /// Frames that a watcher never saw, because a newer one had taken their place.
    pub frames_missed: Counter,
    /// Watchers that were sent away because they did not ask, or did not take what they had asked for.
    pub dropped: Counter,
}

/// Figures by env. The first [`Envs::MOST`] envs that sessions are opened of have their own; all others together count
/// as [`Envs::OTHERS`].
#[derive(Debug, Default)]
pub struct Envs {
    by_env: Mutex<BTreeMap<String, Arc<EnvFigures>>>,
    /// Policies that play them for owners.
    pub policies: Policies,
}

/// Figures of what was done for the owners of one env's sessions. Sessions that play by themselves count in none of it.
#[derive(Debug, Default)]
pub struct EnvFigures {
    /// Env steps.
    pub steps: Counter,
    /// Requests that were answered, by kind.
    pub requests: RequestFigures,
    /// Ticks of live lanes.
    pub live: LiveFigures,
}

/// Figures of ticks that the paces of live lanes asked for.
#[derive(Debug, Default)]
pub struct LiveFigures {
    /// How late ticks began.
    pub lateness: Histogram,
    /// Ticks that were due and not played.
    pub missed: Counter,
}

/// Figures by env and policy. The first [`Policies::MOST`] such pairs have their own; all others together count as
/// [`Envs::OTHERS`] of both.
#[derive(Debug, Default)]
pub struct Policies {
    by_names: Mutex<BTreeMap<(String, String), Arc<PolicyFigures>>>,
    /// Versions of policies that were fetched from the coordinator.
    pub fetched: Counter,
    /// Bytes of these.
    pub fetched_bytes: Counter,
}

/// How far what learners are given lags behind their policy, as they measure it.
#[derive(Debug, Default)]
pub struct PolicyFigures {
    /// By how many updates fragments were older than the newest policy when they were returned.
    pub data_lag: Updates,
    /// Times from an update to all nodes having it.
    pub publishing: Histogram,
}

/// Counts of numbers of updates in buckets.
#[derive(Debug, Default)]
pub struct Updates {
    buckets: [AtomicU64; Updates::BOUNDS.len() + 1],
    sum: AtomicU64,
}

/// Durations of requests, the env's part and the encoding of the answer included.
#[derive(Debug, Default)]
pub struct RequestFigures {
    /// Resets.
    pub reset: Histogram,
    /// Steps of all lanes.
    pub step: Histogram,
    /// Steps of some lanes.
    pub send: Histogram,
}

/// Counts of refusals by word (a refusal's code, or the reason for which a connection was closed) and by the role
/// refused.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<RefusalCounts>);

type RefusalCounts = BTreeMap<(&'static str, Role), u64>;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

/// A sum of numbers, which may be negative.
#[derive(Debug, Default)]
pub struct Sum(AtomicU64);

/// Counts of durations in buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; Histogram::BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl NodeFigures {
    /// The causes for which sessions end on a node.
    pub const END_CAUSES: [rollhouse_wire::EndCause; 6] = {
        use rollhouse_wire::EndCause as E;
        [E::Finished, E::Closed, E::LeaseEnded, E::Drained, E::Hung, E::Failed]
    };

    pub(crate) fn session_ended(&self, cause: rollhouse_wire::EndCause) {
        let index = Self::END_CAUSES.iter().position(|&known| known == cause);
        if let Some(counter) = index.and_then(|index| self.sessions_ended.get(index)) {
            counter.add(1);
        }
    }

    /// Returns the number of finished episodes.
    pub fn finished(&self) -> u64 {
        let finished = Outcome::ALL.iter().zip(&self.episodes).filter(|(outcome, _)| outcome.is_finished());
        finished.map(|(_, count)| count.get()).sum()
    }
}

impl Envs {
    /// Most envs that are counted apart.
    pub const MOST: usize = 64;
    /// The name under which all other envs are counted.
    pub const OTHERS: &'static str = "others";

    /// Returns each env that was met, with its figures.
    pub fn all(&self) -> Vec<(String, Arc<EnvFigures>)> {
        self.by_env.lock().iter().map(|(env, figures)| (env.clone(), Arc::clone(figures))).collect()
    }

    /// Returns the figures of an env.
    pub(crate) fn of(&self, env: &str) -> Arc<EnvFigures> {
        let mut envs = self.by_env.lock();
        let full = envs.len() >= Self::MOST && !envs.contains_key(env);
        let name = if full { Self::OTHERS } else { env };
        Arc::clone(envs.entry(name.to_owned()).or_default())
    }
}

impl Policies {
    /// Most pairs that are counted apart.
    pub const MOST: usize = 64;

    /// Returns each env and policy that were met, with their figures.
    pub fn all(&self) -> Vec<((String, String), Arc<PolicyFigures>)> {
        self.by_names.lock().iter().map(|(names, figures)| (names.clone(), Arc::clone(figures))).collect()
    }

    /// Returns the figures of a policy that plays an env.
    pub(crate) fn of(&self, env: &str, policy: &str) -> Arc<PolicyFigures> {
        let mut policies = self.by_names.lock();
        let names = (env.to_owned(), policy.to_owned());
        let is_counted = policies.contains_key(&names)
            || policies.len() < Self::MOST && rollhouse_wire::is_policy_name(policy);
        let others = || (Envs::OTHERS.to_owned(), Envs::OTHERS.to_owned());
        Arc::clone(policies.entry(if is_counted { names } else { others() }).or_default())
    }
}

impl PolicyFigures {
    pub(crate) fn observe(&self, lags: &PolicyLags) {
        lags.data.iter().for_each(|&updates| self.data_lag.observe(u64::from(updates)));
        lags.publishing_us.iter().for_each(|&us| self.publishing.observe(Duration::from_micros(us)));
    }
}

impl Updates {
    /// Upper bounds of the buckets; one more bucket takes greater numbers.
    pub const BOUNDS: [u64; 8] = [0, 1, 2, 4, 8, 16, 32, 64];

    /// Returns the number of numbers in each bucket, not added up.
    pub fn counts(&self) -> [u64; Self::BOUNDS.len() + 1] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// Returns the sum of all numbers.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    fn observe(&self, updates: u64) {
        let bucket = Self::BOUNDS.partition_point(|&bound| bound < updates);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(updates, Ordering::Relaxed);
    }
}

impl Refusals {
    /// Returns each word and role that was met, with its count.
    pub fn counts(&self) -> RefusalCounts {
        self.0.lock().clone()
    }

    pub(crate) fn add(&self, word: &'static str, whom: Role) {
        *self.0.lock().entry((word, whom)).or_default() += 1;
    }

    /// Counts a refusal of a session's owner, who need not say who it is.
    pub(crate) fn add_owner(&self, word: &'static str) {
        self.add(word, Role::Anonymous);
    }
}

impl Counter {
    /// Returns the number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `more`, and returns the new number.
    pub(crate) fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed) + more
    }
}

impl Gauge {
    /// Returns the number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one, unless there are `most` already. Returns whether it did.
    pub(crate) fn enter(&self, most: u64) -> bool {
        let more = |now: u64| (now < most).then_some(now + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes one away.
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sum {
    /// Returns the sum now.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Adds `more`, if the sum stays finite: nothing could be added to one that is not.
    pub(crate) fn add(&self, more: f64) {
        let sum = |now| Some(f64::from_bits(now) + more).filter(|sum| sum.is_finite()).map(f64::to_bits);
        // What is refused leaves the sum as it was.
        let _refused = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }
}

impl Histogram {
    /// Upper bounds of the buckets in seconds; one more bucket takes longer durations.
    pub const BOUNDS: [f64; 13] =
        [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 5e-2, 0.25, 1.0, 10.0];

    /// Returns the number of durations in each bucket, not added up.
    pub fn counts(&self) -> [u64; Self::BOUNDS.len() + 1] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed))
    }

    /// Counts a duration. Neither locks nor waits.
    pub fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = Self::BOUNDS.partition_point(|&bound| bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envs_beyond_the_first_are_counted_together() {
        let envs = Envs::default();
        for number in 0..Envs::MOST + 10 {
            envs.of(&format!("env-{number}")).steps.add(1);
        }
        envs.of("env-3").steps.add(1);
        let all: BTreeMap<String, Arc<EnvFigures>> = envs.all().into_iter().collect();
        assert_eq!(all.len(), Envs::MOST + 1);
        assert_eq!((all["env-3"].steps.get(), all[Envs::OTHERS].steps.get()), (2, 10));
    }

    #[test]
    fn lags_are_counted_by_env_and_policy_and_those_of_more_than_a_few_together() {
        let policies = Policies::default();
        for number in 0..Policies::MOST as u32 + 3 {
            let lags = PolicyLags { data: vec![number, 1], publishing_us: vec![20] };
            policies.of("Pong-v0", &format!("pong-{number}")).observe(&lags);
        }
        policies.of("Pong-v0", "no name").observe(&PolicyLags { data: vec![100], publishing_us: Vec::new() });
        let all: BTreeMap<_, _> = policies.all().into_iter().collect();
        assert_eq!(all.len(), Policies::MOST + 1);
        let of = |policy: &str| &all[&("Pong-v0".to_owned(), policy.to_owned())];
        assert_eq!(of("pong-2").data_lag.counts(), [0, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!((of("pong-7").data_lag.sum(), of("pong-7").publishing.counts()[1]), (8, 1));
        let others = &all[&(Envs::OTHERS.to_owned(), Envs::OTHERS.to_owned())];
        assert_eq!((others.data_lag.counts()[8], others.publishing.counts()[1]), (3, 3));
    }

    #[test]
    fn a_sum_goes_up_and_down_and_stays_finite() {
        let sum = Sum::default();
        for more in [2.5, -4.0, f64::NAN, f64::INFINITY, -f64::MAX, -f64::MAX, f64::MAX] {
            sum.add(more);
        }
        assert_eq!(sum.get(), -1.5 - f64::MAX + f64::MAX);
    }

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for us in [10, 11, 60, 100_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[3], counts[13]), (1, 1, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 4);
        assert_eq!(histogram.sum(), Duration::from_micros(100_000_081));
    }
}
