//! Rewards: engines send none, so they are weighted differences of what a side has done.

use rollhouse_codec::openra::GameObservation;
use rollhouse_core::GameResult;

/// Names of the counters, in the order of their weights.
pub(crate) const COUNTERS: [&str; 9] = [
    "units_killed",
    "units_lost",
    "buildings_killed",
    "buildings_lost",
    "kills_cost",
    "deaths_cost",
    "assets_value",
    "cash",
    "explored",
];

/// Weights of a reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weights {
    /// Of the differences of [`COUNTERS`].
    pub(crate) counters: [f64; COUNTERS.len()],
    pub(crate) win: f64,
    pub(crate) lose: f64,
}

impl Default for Weights {
    /// Returns those that nobody gives: a thousandth of what was destroyed less what was lost, and 10 for the outcome.
    fn default() -> Self {
        let mut counters = [0.0; COUNTERS.len()];
        (counters[4], counters[5]) = (0.001, -0.001);
        Self { counters, win: 10.0, lose: -10.0 }
    }
}

/// The counters of a game, as they were shown the last time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Counters([f64; COUNTERS.len()]);

impl Counters {
    /// Returns the counters of an observation. What it does not say is as it was before.
    fn of(observation: &GameObservation, before: Self) -> Self {
        let mut counters = before;
        if let Some(military) = observation.military {
            let figures = [
                military.units_killed,
                military.units_lost,
                military.buildings_killed,
                military.buildings_lost,
                military.kills_cost,
                military.deaths_cost,
                military.assets_value,
            ];
            counters.0.iter_mut().zip(figures).for_each(|(counter, figure)| *counter = figure.into());
        }
        if let Some(economy) = observation.economy {
            counters.0[7] = economy.cash.into();
        }
        // Engines do not say it with a game's end.
        let explored = f64::from(observation.explored_percent);
        if explored.is_finite() && !(observation.done && explored == 0.0) {
            counters.0[8] = explored;
        }
        counters
    }

    /// Begins to count, from the first observation of an episode.
    pub(crate) fn begin(&mut self, first: &GameObservation) {
        *self = Self::of(first, Self::default());
    }

    /// Counts on, and returns the reward of what has changed.
    pub(crate) fn reward(
        &mut self,
        shown: &GameObservation,
        ended: Option<GameResult>,
        weights: &Weights,
    ) -> f64 {
        let now = Self::of(shown, *self);
        let changes = now.0.iter().zip(self.0).map(|(now, before)| now - before);
        // One after the other, so that it has the same bits everywhere.
        let counted = changes.zip(weights.counters).fold(0.0, |sum, (change, weight)| sum + change * weight);
        *self = now;
        counted
            + match ended {
                Some(GameResult::Win) => weights.win,
                Some(GameResult::Lose) => weights.lose,
                _ => 0.0,
            }
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_codec::openra::{Economy, Military};

    use super::*;

    fn shown(kills_cost: i32, cash: i32, explored_percent: f32) -> GameObservation {
        GameObservation {
            military: Some(Military { kills_cost, ..Military::default() }),
            economy: Some(Economy { cash, ..Economy::default() }),
            explored_percent,
            ..GameObservation::default()
        }
    }

    #[test]
    fn rewards_are_weighted_differences_and_the_outcome() {
        let mut counters = Counters::default();
        counters.begin(&shown(500, 4000, 10.0));
        let mut weights = Weights::default();
        (weights.counters[7], weights.counters[8]) = (0.5, 2.0);
        assert_eq!(counters.reward(&shown(500, 4000, 10.0), None, &weights), 0.0);
        assert_eq!(counters.reward(&shown(1500, 3998, 11.0), None, &weights), 1.0 - 1.0 + 2.0);
        assert_eq!(counters.reward(&shown(1500, 3998, 11.0), Some(GameResult::Lose), &weights), -10.0);
        assert_eq!(counters.reward(&shown(1500, 3998, 11.0), Some(GameResult::Draw), &weights), 0.0);
    }

    #[test]
    fn what_is_not_said_has_not_changed() {
        let mut counters = Counters::default();
        counters.begin(&shown(500, 4000, 10.0));
        let weights = Weights { counters: [1.0; COUNTERS.len()], win: 3.0, lose: 0.0 };
        let end = GameObservation { done: true, ..GameObservation::default() };
        assert_eq!(counters.reward(&end, Some(GameResult::Win), &weights), 3.0);
        assert_eq!(counters.reward(&shown(500, 4000, f32::NAN), None, &weights), 0.0);
    }
}
