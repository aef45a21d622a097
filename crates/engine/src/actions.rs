//! The check of actions before anything moves: an engine's, and that of a client before it sends them.

use rollhouse_core::{ColumnRef, Space};
use rollhouse_env::{Kernel, Target};

use crate::error::BadAction;

/// The conditions on an action, prepared for checking whole columns. Floats out of bounds are actions: they go to the
/// env, as in Gymnasium.
#[derive(Debug, Clone)]
pub struct ActionCheck {
    rule: Rule,
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Discrete { n: u64, start: i64 },
    Finite { elements: usize },
}

impl ActionCheck {
    /// Returns the check of the actions of `space`, on the widest instruction set that this machine has.
    pub fn of(space: &Space) -> Self {
        Self::new(space, Target::best())
    }

    pub(crate) fn new(space: &Space, target: Target) -> Self {
        let rule = match space {
            Space::Discrete(space) => Rule::Discrete { n: space.n, start: space.start },
            Space::Box(_) => Rule::Finite { elements: space.elements() },
        };
        Self { rule, target }
    }

    /// Returns the number of elements in one action.
    pub(crate) const fn elements(&self) -> usize {
        match self.rule {
            Rule::Discrete { .. } => 1,
            Rule::Finite { elements } => elements,
        }
    }

    /// Returns whether every row is an action.
    #[inline]
    pub fn all_good(&self, actions: ColumnRef<'_>) -> bool {
        self.target.run(AllGood { rule: self.rule, actions })
    }

    /// Returns the first row that is no action among those for which `counts` holds.
    #[cold]
    pub fn first_bad(&self, actions: ColumnRef<'_>, counts: impl Fn(usize) -> bool) -> Option<BadAction> {
        let elements = self.elements();
        let lanes = actions.len() / elements.max(1);
        (0..lanes).filter(|&lane| counts(lane)).find_map(|lane| {
            let row = actions.slice(lane * elements, (lane + 1) * elements);
            if self.all_good(row) {
                return None;
            }
            let (value, wanted) = match (self.rule, row) {
                (Rule::Discrete { n, start }, ColumnRef::I64(row)) => {
                    let end = i128::from(start) + i128::from(n) - 1;
                    (
                        row.first().map_or_else(String::new, i64::to_string),
                        format!("an integer from {start} to {end}"),
                    )
                }
                (_, row) => (format!("{row:?}"), "finite numbers".to_owned()),
            };
            Some(BadAction { lane, value, wanted })
        })
    }
}

/// Checks a whole column without an early exit, so that the loop becomes vector code.
struct AllGood<'a> {
    rule: Rule,
    actions: ColumnRef<'a>,
}

impl Kernel for AllGood<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        match (self.rule, self.actions) {
            (Rule::Discrete { n, start: 0 }, ColumnRef::I64(values)) if n <= i64::MAX as u64 => {
                // The sign bit of either term is set exactly if the value is below 0 or above n - 1.
                // A space without elements has no action.
                let last = n.wrapping_sub(1) as i64;
                values.iter().fold(0, |bad, &a| bad | a | last.wrapping_sub(a)) >= 0
            }
            (Rule::Discrete { n, start }, ColumnRef::I64(values)) => {
                values.iter().fold(true, |good, &a| good & (a.wrapping_sub(start) as u64).lt(&n))
            }
            (Rule::Finite { .. }, ColumnRef::F32(values)) => {
                values.iter().fold(true, |good, v| good & v.is_finite())
            }
            (Rule::Finite { .. }, ColumnRef::F64(values)) => {
                values.iter().fold(true, |good, v| good & v.is_finite())
            }
            (Rule::Finite { .. }, ColumnRef::U8(_) | ColumnRef::I32(_) | ColumnRef::I64(_)) => true,
            (Rule::Discrete { .. }, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::DiscreteSpace;
    use rollhouse_env::InstructionSet;

    fn check_of(space: &Space) -> ActionCheck {
        ActionCheck::new(space, Target::new(InstructionSet::best()).unwrap())
    }

    proptest! {
        #[test]
        fn exactly_the_integers_of_the_space_pass(
            n in 1u64..10, start in -3i64..4, value in prop_oneof![-6i64..16, any::<i64>()]
        ) {
            let check = check_of(&Space::Discrete(DiscreteSpace { n, start, own: None }));
            let good = (i128::from(start)..i128::from(start) + i128::from(n)).contains(&i128::from(value));
            prop_assert_eq!(check.all_good(ColumnRef::I64(&[start, value, start])), good);
            let bad = check.first_bad(ColumnRef::I64(&[start, value, start]), |_| true);
            prop_assert_eq!(bad.map(|b| b.lane), (!good).then_some(1));
        }
    }

    #[test]
    fn the_extremes_of_an_integer_are_refused_and_a_space_of_none_has_no_action() {
        for action in [i64::MIN, -1, 2, i64::MAX] {
            assert!(!check_of(&Space::discrete(2)).all_good(ColumnRef::I64(&[action])), "{action}");
        }
        for action in [i64::MIN, -1, 0, 1, i64::MAX] {
            let none = Space::discrete(0);
            assert!(!check_of(&none).all_good(ColumnRef::I64(&[action])), "{action}");
        }
    }

    #[test]
    fn floats_must_be_finite_but_may_be_out_of_bounds() {
        let check = check_of(&Space::f32_box(&[-1.0, -1.0], &[1.0, 1.0]));
        assert!(check.all_good(ColumnRef::F32(&[5.0, -7.0])));
        for bad in [f32::NAN, f32::INFINITY] {
            let values = [0.0, 0.0, 0.0, bad];
            assert!(!check.all_good(ColumnRef::F32(&values)));
            assert_eq!(check.first_bad(ColumnRef::F32(&values), |_| true).map(|b| b.lane), Some(1));
            assert_eq!(check.first_bad(ColumnRef::F32(&values), |lane| lane != 1), None);
        }
    }
}
