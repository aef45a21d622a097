//! Statistics of an engine since it was made.

use rollhouse_core::{GameResult, Outcome, Verdict};

use crate::episodes::Finished;

/// Counts since the engine was made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Number of env steps, summed over lanes; rows of autoreset do not count.
    pub steps: u64,
    /// Number of episodes by outcome, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Number of finished episodes by the result that their env gave them, in the order of [`GameResult::ALL`].
    pub results: [u64; GameResult::ALL.len()],
    /// Summary of the scores that envs gave finished episodes.
    pub scores: Summary,
    /// Summary of the returns of finished episodes.
    pub returns: Summary,
    /// Summary of the lengths of finished episodes, in steps.
    pub lengths: Summary,
    /// Number of lanes that were started again after a failure.
    pub restarts: u64,
}

/// Sum, mean and range of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Stats {
    /// Returns the number of finished episodes, which the env itself or the time limit ended.
    pub const fn finished(&self) -> u64 {
        self.lengths.count
    }

    pub(crate) fn episode(&mut self, outcome: Outcome, episode: Finished) {
        self.outcomes[usize::from(outcome.code())] += 1;
        if outcome.is_finished() {
            self.returns.add(episode.total_reward);
            // Signed because that is one instruction; no episode has 2^63 steps.
            self.lengths.add(episode.length as i64 as f64);
        }
    }

    /// Counts what the env says of a finished episode.
    pub(crate) fn verdict(&mut self, verdict: Verdict) {
        // The number of no result is 0.
        if let Some(index) = verdict.result().code().checked_sub(1) {
            self.results[usize::from(index)] += 1;
        }
        if let Some(score) = verdict.score() {
            self.scores.add(score);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.restarts += other.restarts;
        for (sum, count) in self.outcomes.iter_mut().zip(other.outcomes) {
            *sum += count;
        }
        for (sum, count) in self.results.iter_mut().zip(other.results) {
            *sum += count;
        }
        self.scores.merge(&other.scores);
        self.returns.merge(&other.returns);
        self.lengths.merge(&other.lengths);
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self { count: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl Summary {
    /// Returns the number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum.
    pub const fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns the mean; `None` if there was no value.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Returns the least value; `None` if there was none but NaN.
    pub fn min(&self) -> Option<f64> {
        (self.min <= self.max).then_some(self.min)
    }

    /// Returns the greatest value; `None` if there was none but NaN.
    pub fn max(&self) -> Option<f64> {
        (self.min <= self.max).then_some(self.max)
    }

    #[inline]
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        // Plain comparisons: `f64::min` takes care of NaN, which costs more than the rest.
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_neither_the_least_nor_the_greatest() {
        let of = |values: &[f64]| {
            let mut summary = Summary::default();
            values.iter().for_each(|&value| summary.add(value));
            (summary.count(), summary.min(), summary.max())
        };
        assert_eq!(of(&[]), (0, None, None));
        assert_eq!(of(&[f64::NAN, f64::NAN]), (2, None, None));
        assert_eq!(of(&[2.0, f64::NAN, -1.0]), (3, Some(-1.0), Some(2.0)));
        assert_eq!(of(&[f64::INFINITY]), (1, Some(f64::INFINITY), Some(f64::INFINITY)));
    }
}
