//! Returns and lengths of episodes, added up from the rows that a trainer gets. What is counted of them has to be the same.

use rollhouse_engine::{StatisticsAnswer, SummaryAnswer};

use super::rows::Row;

/// The sums of the open episodes of all lanes, and of those that have finished.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    open: Vec<Sum>,
    finished: Vec<Sum>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    reward: f64,
    steps: u64,
}

impl Returns {
    /// Begins episodes in the lanes of a mask; in all of them if it is empty.
    pub(crate) fn begin(&mut self, lanes: usize, mask: &[bool]) {
        self.open.resize(lanes, Sum::default());
        let begun = |(lane, _): &(usize, &mut Sum)| mask.get(*lane).copied().unwrap_or(true);
        self.open.iter_mut().enumerate().filter(begun).for_each(|(_, sum)| *sum = Sum::default());
    }

    /// Adds the row of a lane, which may have been lost before it, or by it.
    pub(crate) fn add(&mut self, lane: usize, row: &Row, is_lost: bool) {
        let sum = &mut self.open[lane];
        sum.reward += f64::from_bits(row.reward);
        sum.steps += u64::from(!is_lost);
        if row.flags[2] == 1 {
            *sum = Sum::default();
        }
        // Whoever loses a lane sees its row as truncated.
        if row.flags[0] == 1 || row.flags[1] == 1 && !is_lost {
            self.finished.push(*sum);
        }
        if row.is_over() {
            *sum = Sum::default();
        }
    }

    /// Compares with what was counted, in one or several sessions.
    pub(crate) fn check(&self, counted: &[StatisticsAnswer], what: &str) {
        let finished: u64 = counted
            .iter()
            .flat_map(|one| ["terminated", "truncated"].map(|word| one.outcomes.get(word)))
            .flatten()
            .sum();
        assert_eq!(self.finished.len() as u64, finished, "{what}: finished episodes");
        for (name, of, answer) in [
            (
                "returns",
                (|sum: &Sum| sum.reward) as fn(&Sum) -> f64,
                (|one| one.returns) as fn(&StatisticsAnswer) -> SummaryAnswer,
            ),
            ("lengths", |sum| sum.steps as f64, |one| one.lengths),
        ] {
            let values = || self.finished.iter().map(of);
            let answers = || counted.iter().map(answer);
            // Episodes are added up in another order than they were counted in.
            let (counted, summed) = (answers().map(|one| one.sum).sum::<f64>(), values().sum::<f64>());
            let apart = (counted - summed).abs();
            assert!(apart <= summed.abs() * 1e-12, "{what}: {name} {counted}, not {summed}");
            let (least, most) = (answers().filter_map(|one| one.min), answers().filter_map(|one| one.max));
            assert_eq!(least.reduce(f64::min), values().reduce(f64::min), "{what}: {name}");
            assert_eq!(most.reduce(f64::max), values().reduce(f64::max), "{what}: {name}");
        }
    }
}
