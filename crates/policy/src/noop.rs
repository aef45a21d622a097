//! A policy that does as little as the action space allows.

use rollhouse_core::{ColumnMut, DType, Drawing, ElementRange, Space};

use crate::{Act, ActError, Policy, SpaceError};

/// A policy that gives every lane the action nearest to zero: 0 where the space contains it, else the bound nearest to
/// it. Of texts and sequences that is the shortest.
#[derive(Debug, Clone)]
pub struct Noop {
    action: Action,
}

#[derive(Debug, Clone)]
enum Action {
    Discrete(i64),
    Box { dtype: DType, row: Vec<f64> },
}

impl Noop {
    /// Makes the policy for one action space.
    ///
    /// # Errors
    /// If the space holds no value.
    pub fn new(space: &Space) -> Result<Self, SpaceError> {
        let action = match space {
            Space::Discrete(space) if space.n == 0 => {
                return Err(SpaceError::Malformed { elements: 1, bounds: 0 });
            }
            Space::Discrete(space) => {
                let last = space.start.saturating_add_unsigned(space.n - 1);
                Action::Discrete(0.clamp(space.start, last))
            }
            Space::Box(space) => {
                let elements = space.shape.iter().product::<usize>();
                let Drawing { elements: ranges, settling } = Drawing::of(space);
                if elements == 0 || ranges.len() != elements {
                    return Err(SpaceError::Malformed { elements, bounds: ranges.len() });
                }
                let row = ranges.iter().enumerate().map(|(element, &ElementRange { low, high, .. })| {
                    nearest_to_zero(space.dtype, low, high).ok_or(SpaceError::Empty { element, low, high })
                });
                let mut row = row.collect::<Result<Vec<_>, _>>()?;
                settling.settle(ColumnMut::F64(&mut row));
                Action::Box { dtype: space.dtype, row }
            }
        };
        Ok(Self { action })
    }
}

/// Returns the value of that type nearest to zero in `[low, high]`, if there is one.
fn nearest_to_zero(dtype: DType, low: f64, high: f64) -> Option<f64> {
    let float = matches!(dtype, DType::F32 | DType::F64);
    let (first, last) = if float { (low, high) } else { (low.ceil(), high.floor()) };
    // The comparison is also false for a bound that is NaN.
    (first <= last).then(|| 0f64.max(first).min(last))
}

impl Policy for Noop {
    fn name(&self) -> &str {
        "noop"
    }

    fn version(&self) -> u64 {
        0
    }

    fn act(&mut self, request: Act<'_>) -> Result<(), ActError> {
        let (dtype, row) = match (&self.action, request.actions) {
            (Action::Discrete(action), ColumnMut::I64(rows)) => {
                rows.fill(*action);
                return Ok(());
            }
            (Action::Discrete(_), _) => return Err(ActError::DType { wanted: DType::I64 }),
            (Action::Box { dtype, row }, actions) => (*dtype, Rows { row, actions }),
        };
        row.fill(dtype)
    }
}

/// A row and the column in which it is to be repeated.
struct Rows<'a> {
    row: &'a [f64],
    actions: ColumnMut<'a>,
}

impl Rows<'_> {
    fn fill(self, dtype: DType) -> Result<(), ActError> {
        let given = self.actions.as_ref().len();
        if !given.is_multiple_of(self.row.len()) {
            return Err(ActError::Rows { elements: self.row.len(), given });
        }
        match (dtype, self.actions) {
            (DType::Bool | DType::U8, ColumnMut::U8(rows)) => repeat(self.row, rows, |v| v as u8),
            (DType::I32, ColumnMut::I32(rows)) => repeat(self.row, rows, |v| v as i32),
            (DType::I64, ColumnMut::I64(rows)) => repeat(self.row, rows, |v| v as i64),
            (DType::F32, ColumnMut::F32(rows)) => repeat(self.row, rows, |v| v as f32),
            (DType::F64, ColumnMut::F64(rows)) => repeat(self.row, rows, |v| v),
            (wanted, _) => return Err(ActError::DType { wanted }),
        }
        Ok(())
    }
}

fn repeat<T>(row: &[f64], rows: &mut [T], convert: impl Fn(f64) -> T) {
    for (value, &element) in rows.iter_mut().zip(row.iter().cycle()) {
        *value = convert(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::{BoxSpace, DiscreteSpace, TextSpace};

    proptest! {
        #[test]
        fn a_discrete_noop_is_the_value_nearest_to_zero(start in -20i64..20, n in 1u64..20) {
            let mut rows = [99; 3];
            let mut policy = Noop::new(&Space::Discrete(DiscreteSpace { n, start, own: None })).unwrap();
            policy.act(Act { first_lane: 0, step: 0, obs: &[], mask: None, actions: ColumnMut::I64(&mut rows) }).unwrap();
            let nearest = (start..start + n as i64).min_by_key(|v| v.abs());
            prop_assert!(rows.iter().all(|&a| Some(a) == nearest));
        }
    }

    #[test]
    fn a_box_noop_repeats_the_value_nearest_to_zero_in_every_row() {
        let low = vec![-1.0, 0.5, f64::NEG_INFINITY];
        let high = vec![1.0, 2.0, -3.0];
        let space = Space::Box(BoxSpace {
            low: low.into(),
            high: high.into(),
            shape: vec![3],
            dtype: DType::F32,
            choices: false,
            parts: None,
            own: None,
        });
        let mut rows = [f32::NAN; 6];
        let mut policy = Noop::new(&space).unwrap();
        policy
            .act(Act { first_lane: 0, step: 0, obs: &[], mask: None, actions: ColumnMut::F32(&mut rows) })
            .unwrap();
        assert_eq!(rows, [0.0, 0.5, -3.0, 0.0, 0.5, -3.0]);
    }

    #[test]
    fn a_noop_text_is_the_shortest() {
        let text = TextSpace::new(2, 3, "yz".to_owned()).unwrap();
        let mut rows = [9; 8];
        let mut policy = Noop::new(&Space::Box(BoxSpace::of_parts(text.into()).unwrap())).unwrap();
        let actions = ColumnMut::I64(&mut rows);
        policy.act(Act { first_lane: 0, step: 0, obs: &[], mask: None, actions }).unwrap();
        assert_eq!(rows, [121, 121, 0, 2, 121, 121, 0, 2]);
    }

    #[test]
    fn a_space_without_a_value_is_refused() {
        assert!(matches!(Noop::new(&Space::discrete(0)), Err(SpaceError::Malformed { .. })));
        let space = Space::Box(BoxSpace {
            low: vec![0.2].into(),
            high: vec![0.8].into(),
            shape: vec![1],
            dtype: DType::U8,
            choices: false,
            parts: None,
            own: None,
        });
        assert!(matches!(Noop::new(&space), Err(SpaceError::Empty { element: 0, .. })));
    }

    #[test]
    fn a_column_of_another_type_is_refused() {
        let mut policy = Noop::new(&Space::discrete(2)).unwrap();
        let request =
            Act { first_lane: 0, step: 0, obs: &[], mask: None, actions: ColumnMut::F32(&mut [0.0]) };
        assert_eq!(policy.act(request), Err(ActError::DType { wanted: DType::I64 }));
    }
}
