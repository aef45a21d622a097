//! Running returns of an episode whose steps are recorded, so that a seek need not add up all rewards again.

use crate::limits::RETURN_SPACING;

/// Running returns of the steps that were passed, each [`RETURN_SPACING`] steps after the one before.
#[derive(Debug, Default)]
pub(crate) struct Returns(Vec<f64>);

/// A step at which adding up may go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReturnAt {
    /// Steps taken.
    pub(crate) at: u64,
    /// The sum of their rewards, added in their order.
    pub(crate) total_reward: f64,
}

impl Returns {
    /// Adds a step that was passed, if its return is one that is kept. Steps come in their order.
    pub(crate) fn add(&mut self, t: u64, total_reward: f64) {
        if t == (self.0.len() as u64 + 1) * RETURN_SPACING {
            self.0.push(total_reward);
        }
    }

    /// Returns the last return that is known before step `t`.
    pub(crate) fn before(&self, t: u64) -> Option<ReturnAt> {
        let count = usize::try_from(t.saturating_sub(1) / RETURN_SPACING).unwrap_or(usize::MAX);
        let last = count.min(self.0.len());
        let total_reward = *self.0.get(last.checked_sub(1)?)?;
        Some(ReturnAt { at: last as u64 * RETURN_SPACING, total_reward })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_return_before_a_step_is_found() {
        let mut returns = Returns::default();
        assert_eq!(returns.before(u64::MAX), None);
        (1..=3 * RETURN_SPACING).for_each(|t| returns.add(t, t as f64));
        let at = |t| returns.before(t).map(|found| (found.at, found.total_reward as u64));
        assert_eq!(at(RETURN_SPACING), None);
        for step in [1, 2, 3].map(|index| index * RETURN_SPACING) {
            assert_eq!(at(step + 1), Some((step, step)));
            assert_eq!(at(step + RETURN_SPACING).unwrap().0, step);
        }
        assert_eq!(at(u64::MAX), at(3 * RETURN_SPACING + 1));
    }
}
