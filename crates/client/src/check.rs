//! Checks data before it is used: actions before anything is sent, because with several nodes a refusal by one would
//! come after others have stepped; and what nodes say of lanes.

use rollhouse_core::{ColumnRef, Space};
use rollhouse_engine::BadAction;
use rollhouse_wire::{LostLane, Notes};

/// Returns whether every row is an action. Floats out of bounds are actions: they go to the env, as in Gymnasium.
pub(crate) fn all_good(space: &Space, actions: ColumnRef<'_>) -> bool {
    match (space, actions) {
        (Space::Discrete(space), ColumnRef::I64(values)) => {
            // As an offset from the start: what lies below it wraps around to a great number.
            values.iter().fold(true, |good, &a| good & ((a.wrapping_sub(space.start) as u64) < space.n))
        }
        (Space::Discrete(_), _) => false,
        (Space::Box(_), ColumnRef::F32(values)) => values.iter().fold(true, |good, v| good & v.is_finite()),
        (Space::Box(_), ColumnRef::F64(values)) => values.iter().fold(true, |good, v| good & v.is_finite()),
        (Space::Box(_), ColumnRef::U8(_) | ColumnRef::I32(_) | ColumnRef::I64(_)) => true,
    }
}

/// Returns the first row that is no action, among those for which `counts` holds. The lane in the result is the row's
/// number.
#[cold]
pub(crate) fn first_bad(
    space: &Space,
    actions: ColumnRef<'_>,
    counts: impl Fn(usize) -> bool,
) -> Option<BadAction> {
    let elements = space.elements();
    let rows = actions.len() / elements.max(1);
    (0..rows).filter(|&row| counts(row)).find_map(|row| {
        let one = actions.slice(row * elements, (row + 1) * elements);
        if all_good(space, one) {
            return None;
        }
        let (value, wanted) = match (space, one) {
            (Space::Discrete(space), ColumnRef::I64(values)) => {
                let end = i128::from(space.start) + i128::from(space.n) - 1;
                let value = values.first().map_or_else(String::new, i64::to_string);
                (value, format!("an integer from {} to {end}", space.start))
            }
            (_, values) => (format!("{values:?}"), "finite numbers".to_owned()),
        };
        Some(BadAction { lane: row, value, wanted })
    })
}

/// Checks that an answer only speaks of lanes that the session has.
pub(crate) fn check_notes(notes: &Notes, losses: &[LostLane], lanes: usize) -> Result<(), String> {
    let malformed = || "notes that are not a whole number of records".to_owned();
    let began = notes.began().ok_or_else(malformed)?.map(|began| began.lane).max();
    let hashed = notes.hashes().ok_or_else(malformed)?.map(|(lane, _)| lane).max();
    let lost = losses.iter().map(|loss| loss.lane).max();
    match began.max(hashed).max(lost) {
        Some(lane) if lane as usize >= lanes => Err(format!("notes of lane {lane} of a session of {lanes}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::DiscreteSpace;

    proptest! {
        #[test]
        fn exactly_the_space_is_good(n in 1u64..1_000, start in -1_000i64..1_000, action in -3_000i64..3_000) {
            let space = Space::Discrete(DiscreteSpace { n, start });
            let inside = action >= start && action < start + n as i64;
            prop_assert_eq!(all_good(&space, ColumnRef::I64(&[start, action])), inside);
            let bad = first_bad(&space, ColumnRef::I64(&[start, action]), |_| true);
            prop_assert_eq!(bad.map(|bad| bad.lane), (!inside).then_some(1));
        }
    }

    #[test]
    fn the_extremes_of_an_integer_are_refused() {
        let space = Space::discrete(2);
        for action in [i64::MIN, -1, 2, i64::MAX] {
            assert!(!all_good(&space, ColumnRef::I64(&[action])), "{action}");
        }
    }

    #[test]
    fn rows_that_do_not_count_may_be_anything() {
        let space = Space::f32_box(&[0.0, 0.0], &[1.0, 1.0]);
        let actions = [1.0, f32::NAN, 5.0, 0.0];
        assert!(!all_good(&space, ColumnRef::F32(&actions)));
        assert!(first_bad(&space, ColumnRef::F32(&actions), |row| row != 0).is_none());
        assert_eq!(first_bad(&space, ColumnRef::F32(&actions), |_| true).unwrap().lane, 0);
    }
}
