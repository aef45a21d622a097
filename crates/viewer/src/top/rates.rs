//! Rates: what was counted between two samples, per second.

use std::collections::BTreeMap;

use rollhouse_wire::SessionCounts;

use crate::top::Sample;

/// The rates per second between two samples. Where a counter went back, its process is another one: there is no rate
/// until the next sample.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// Steps and episodes of the cluster per second.
    pub(crate) all: Option<(f64, f64)>,
    /// The mean return of the episodes of open sessions that ended meanwhile.
    pub(crate) mean: Option<f64>,
    /// Bytes per second that came to the store.
    pub(crate) stored: Option<f64>,
    nodes: BTreeMap<String, f64>,
    sessions: BTreeMap<String, SessionRate>,
}

/// Steps and episodes per second, and the mean return of those episodes.
type SessionRate = (f64, f64, Option<f64>);

impl Rates {
    pub(crate) fn take(&mut self, before: Option<&Sample>, now: &Sample) {
        self.forget();
        let Some(before) = before else { return };
        let seconds = now.at.saturating_sub(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let per_second = |now: u64, before: u64| now.checked_sub(before).map(|count| count as f64 / seconds);
        let (was, is) = (&before.status, &now.status);
        // Another term is another coordinator, which counts anew.
        if was.term == is.term {
            self.all = per_second(is.steps, was.steps).zip(per_second(is.episodes, was.episodes));
        }
        self.stored = per_second(is.store.bytes, was.store.bytes);
        let known: BTreeMap<_, _> = before.nodes.0.iter().map(|node| (&node.node, node.load.steps)).collect();
        for node in &now.nodes.0 {
            let rate = known.get(&node.node).and_then(|was| per_second(node.load.steps, *was));
            self.nodes.extend(rate.map(|rate| (node.node.clone(), rate)));
        }
        let known: BTreeMap<_, _> =
            before.sessions.0.iter().map(|one| (one.report.session.to_string(), one.report.done)).collect();
        let mut ended = SessionCounts::default();
        for one in &now.sessions.0 {
            let (name, done) = (one.report.session.to_string(), one.report.done);
            let Some(was) = known.get(&name) else { continue };
            let rates = per_second(done.steps, was.steps).zip(per_second(done.episodes, was.episodes));
            let Some((steps, episodes)) = rates else { continue };
            let since = SessionCounts {
                episodes: done.episodes - was.episodes,
                return_sum: done.return_sum - was.return_sum,
                ..SessionCounts::default()
            };
            ended.add(&since);
            self.sessions.insert(name, (steps, episodes, mean(&since)));
        }
        self.mean = mean(&ended);
    }

    /// Forgets all rates until two more samples have come.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn node(&self, name: &str) -> Option<f64> {
        self.nodes.get(name).copied()
    }

    /// Returns the steps and episodes per second of a session, and the mean return of those episodes.
    pub(crate) fn session(&self, name: &str) -> (Option<f64>, Option<f64>, Option<f64>) {
        match self.sessions.get(name) {
            Some(&(steps, episodes, mean)) => (Some(steps), Some(episodes), mean),
            None => (None, None, None),
        }
    }
}

/// Returns the mean return of finished episodes, if there are any.
pub(crate) fn mean(done: &SessionCounts) -> Option<f64> {
    (done.episodes > 0).then(|| done.return_sum / done.episodes as f64)
}
