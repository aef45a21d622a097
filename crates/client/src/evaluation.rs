//! How well policies play: each lane's first episode, and what two policies differ by on the same ones.

use std::time::Duration;

use rollhouse_core::split_mix64;

use crate::rollouts::{PlayedEpisode, Rollouts, RolloutsError};

/// Plays until the first episode of each lane is over, however long it takes. Returns these episodes by lane; `None` where a lane
/// was lost in its own.
///
/// # Errors
/// See [`RolloutsError`]. Where a step takes longer than `patience`, it is waited for again, as often as `go_on` says so.
pub fn first_episodes(
    rollouts: &mut Rollouts,
    lanes: usize,
    patience: Duration,
    mut go_on: impl FnMut() -> bool,
) -> Result<Vec<Option<PlayedEpisode>>, RolloutsError> {
    let (mut first, mut open) = (vec![None; lanes], vec![true; lanes]);
    while open.contains(&true) && go_on() {
        let Some(batch) = rollouts.next(patience)? else { continue };
        let mut ended = batch.episodes.iter().peekable();
        for (row, &lost) in batch.fragment.lost().iter().enumerate() {
            let (step, lane) = ((row / lanes) as u32, row % lanes);
            let episode = ended.next_if(|episode| (episode.step, episode.lane as usize) == (step, lane));
            if open[lane] && (episode.is_some() || lost == 1) {
                (first[lane], open[lane]) = (episode.copied(), false);
            }
        }
    }
    Ok(first)
}

/// What one policy has beyond another on the same episodes: the mean of the differences, and the interval in which the mean of all
/// such episodes lies with 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The mean difference of the returns.
    pub mean: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Number of pairs of episodes of which both came to their end.
    pub pairs: usize,
}

impl Difference {
    /// Compares returns of the same episodes, and leaves out pairs of which one is missing. `None` of fewer than two pairs. The
    /// interval is that of Efron's percentile bootstrap: of the means of 2,000 draws of as many pairs, with repetition, 2.5 %
    /// lie below it and 2.5 % above. Equal returns give equal intervals.
    pub fn of(better: &[Option<f64>], than: &[Option<f64>]) -> Option<Self> {
        let pairs: Vec<f64> = better.iter().zip(than).filter_map(|(a, b)| Some((*a)? - (*b)?)).collect();
        let count = pairs.len();
        if count < 2 {
            return None;
        }
        let mean = |sum: f64| sum / count as f64;
        let mut words = 0..;
        let mut draw = || (split_mix64(words.next().unwrap_or_default()) % count as u64) as usize;
        let mut means: Vec<f64> =
            (0..RESAMPLES).map(|_| mean((0..count).map(|_| pairs[draw()]).sum())).collect();
        means.sort_by(f64::total_cmp);
        let at = |part: f64| means[((RESAMPLES as f64 * part) as usize).min(RESAMPLES - 1)];
        Some(Self { mean: mean(pairs.iter().sum()), low: at(0.025), high: at(0.975), pairs: count })
    }

    /// Returns whether the interval has no difference of 0.
    pub fn is_clear(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Draws of the bootstrap, as [`Difference::of`] says.
const RESAMPLES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns of so many episodes around a mean, which differ by up to 10 from it.
    fn returns(seed: u64, mean: f64, count: u64) -> Vec<Option<f64>> {
        (0..count)
            .map(|at| Some(mean + (split_mix64(seed << 32 | at) % 2_001) as f64 / 100.0 - 10.0))
            .collect()
    }

    #[test]
    fn a_difference_is_clear_where_it_is_far_from_what_chance_makes() {
        let (a, b) = (returns(1, 105.0, 200), returns(2, 100.0, 200));
        let difference = Difference::of(&a, &b).unwrap();
        assert!((difference.mean - 5.0).abs() < 1.5 && difference.is_clear(), "{difference:?}");
        assert!(difference.low < difference.mean && difference.mean < difference.high);
        let back = Difference::of(&b, &a).unwrap();
        assert!((back.mean + difference.mean).abs() < 1e-9 && back.is_clear());
        let same = Difference::of(&a, &a).unwrap();
        assert_eq!((same.mean, same.low, same.high, same.is_clear()), (0.0, 0.0, 0.0, false));
    }

    #[test]
    fn the_interval_has_the_true_difference_about_as_often_as_it_says() {
        let holds = |seed: u64| {
            let found =
                Difference::of(&returns(2 * seed, 101.0, 60), &returns(2 * seed + 1, 100.0, 60)).unwrap();
            u32::from((found.low..=found.high).contains(&1.0))
        };
        let held: u32 = (1..=100).map(holds).sum();
        assert!((88..=100).contains(&held), "{held} of 100");
    }

    #[test]
    fn episodes_of_which_one_is_lost_are_left_out() {
        let a = [Some(1.0), None, Some(3.0), Some(5.0)];
        let b = [Some(0.0), Some(9.0), None, Some(2.0)];
        let found = Difference::of(&a, &b).unwrap();
        assert_eq!((found.pairs, found.mean), (2, 2.0));
        assert_eq!(Difference::of(&a[..2], &b[..2]), None);
    }
}
