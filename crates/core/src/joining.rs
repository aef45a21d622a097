//! How actions that wait for one tick become one action.

use std::ops::Range;

use crate::{ColumnData, ColumnRef, CompositeSpace, ObservationSpace, Space};

/// What makes one action of several: the newest, with the items of its sequences behind those of the earlier ones.
///
/// Sequences that stand directly in a Dict or a Tuple are joined, or one that is the whole space: lists of orders. What
/// stands deeper, as a condition's items, is part of the action that it came with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Joining {
    sequences: Vec<Items>,
}

/// The items of a sequence in a row of the column; their number stands behind them.
#[derive(Debug, Clone, PartialEq)]
struct Items {
    place: Range<usize>,
    width: usize,
}

/// What has become of an action that was joined to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Whether nothing of the earlier action is left.
    pub replaced: bool,
    /// Items that had no room.
    pub left_out: usize,
}

impl Joining {
    /// Returns how actions of that space are joined.
    pub fn of(space: &Space) -> Self {
        let Some(parts) = space.parts() else { return Self::default() };
        let mut joining = Self::default();
        let mut first = 0;
        let mut add = |part: &ObservationSpace| {
            let elements = elements(part);
            if let ObservationSpace::Composite(composite) = part
                && let CompositeSpace::Sequence(sequence) = composite
            {
                let width = sequence.item().elements().max(1);
                joining.sequences.push(Items { place: first..first + elements - 1, width });
            }
            first += elements;
        };
        match parts {
            CompositeSpace::Dict { spaces } => spaces.iter().for_each(|(_, part)| add(part)),
            CompositeSpace::Tuple { spaces } => spaces.iter().for_each(add),
            other => add(&other.clone().into()),
        }
        joining
    }

    /// Joins `earlier`, an action's row, to `newest`, the row of the one that came after it: `newest` becomes both.
    pub fn join(&self, earlier: ColumnRef<'_>, newest: &mut ColumnData) -> Joined {
        let mut joined = Joined { replaced: true, left_out: 0 };
        for items in &self.sequences {
            let (of_both, left_out) = match (earlier, &mut *newest) {
                (ColumnRef::I64(earlier), ColumnData::I64(newest)) => items.join(earlier, newest),
                (ColumnRef::F32(earlier), ColumnData::F32(newest)) => items.join(earlier, newest),
                (ColumnRef::F64(earlier), ColumnData::F64(newest)) => items.join(earlier, newest),
                _ => (false, 0),
            };
            joined.replaced &= !of_both;
            joined.left_out += left_out;
        }
        joined
    }
}

impl Items {
    /// Puts the earlier row's items before those of the newest. Returns whether any is there, and how many of the newest had no
    /// room.
    fn join<T: Count>(&self, earlier: &[T], newest: &mut [T]) -> (bool, usize) {
        let (place, most) = (self.place.clone(), self.place.len() / self.width);
        let counts = [earlier, &*newest].map(|row| row.get(place.end).map_or(0, |count| count.items()));
        let [before, after] = counts.map(|count| count.min(most));
        let kept = after.min(most - before);
        if newest.len() <= place.end || earlier.len() <= place.end {
            return (false, 0);
        }
        let (from, to) = (place.start, place.start + before * self.width);
        newest.copy_within(from..from + kept * self.width, to);
        newest[from..to].copy_from_slice(&earlier[from..to]);
        newest[place.end] = T::of(before + kept);
        (before > 0, after - kept)
    }
}

/// An element that is a number of items.
trait Count: Copy {
    fn items(self) -> usize;
    fn of(items: usize) -> Self;
}

macro_rules! counts {
    ($($number:ty),*) => {
        $(impl Count for $number {
            fn items(self) -> usize {
                self as usize
            }

            fn of(items: usize) -> Self {
                items as $number
            }
        })*
    };
}

counts!(i64, f32, f64);

fn elements(part: &ObservationSpace) -> usize {
    match part {
        ObservationSpace::Plain(space) => space.elements(),
        ObservationSpace::Composite(parts) => parts.columns().iter().map(|(_, space)| space.elements()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxSpace, DiscreteSpace, SequenceSpace};

    fn space(parts: &[(&str, ObservationSpace)]) -> Space {
        let spaces = parts.iter().map(|(name, part)| ((*name).to_owned(), part.clone())).collect();
        Space::Box(BoxSpace::of_parts(CompositeSpace::Dict { spaces }).unwrap())
    }

    fn number(n: u64) -> ObservationSpace {
        Space::Discrete(DiscreteSpace { n, start: 0, own: None }).into()
    }

    /// At most three orders of one number each, and a number of ticks.
    fn orders() -> Space {
        let item = Space::Discrete(DiscreteSpace { n: 9, start: 0, own: None });
        let orders = CompositeSpace::Sequence(Box::new(SequenceSpace::new(item, 3, true).unwrap()));
        space(&[("orders", orders.into()), ("ticks", number(50))])
    }

    #[test]
    fn orders_that_wait_for_one_tick_are_given_in_their_order_as_far_as_there_is_room() {
        let joining = Joining::of(&orders());
        let mut newest = ColumnData::I64(vec![3, 4, 0, 2, 7]);
        let joined = joining.join(ColumnRef::I64(&[1, 0, 0, 1, 9]), &mut newest);
        assert_eq!(newest, ColumnData::I64(vec![1, 3, 4, 3, 7]), "the newest says the rest");
        assert_eq!(joined, Joined { replaced: false, left_out: 0 });
        let mut newest = ColumnData::I64(vec![5, 6, 0, 2, 8]);
        let joined = joining.join(ColumnRef::I64(&[1, 2, 0, 2, 9]), &mut newest);
        assert_eq!((newest, joined.left_out), (ColumnData::I64(vec![1, 2, 5, 3, 8]), 1));
    }

    #[test]
    fn of_actions_without_lists_the_newest_is_taken() {
        for space in
            [Space::Discrete(DiscreteSpace { n: 4, start: 0, own: None }), space(&[("a", number(3))])]
        {
            let joining = Joining::of(&space);
            let mut newest = ColumnData::I64(vec![2]);
            let joined = joining.join(ColumnRef::I64(&[1]), &mut newest);
            assert_eq!((newest, joined.replaced), (ColumnData::I64(vec![2]), true));
        }
    }

    #[test]
    fn counts_that_there_cannot_be_are_cut() {
        let joining = Joining::of(&orders());
        let mut newest = ColumnData::I64(vec![1, 2, 3, 400, 7]);
        joining.join(ColumnRef::I64(&[1, 2, 3, -1, 9]), &mut newest);
        assert_eq!(newest, ColumnData::I64(vec![1, 2, 3, 3, 7]));
        let mut short = ColumnData::I64(vec![1]);
        joining.join(ColumnRef::I64(&[1]), &mut short);
        assert_eq!(short, ColumnData::I64(vec![1]));
    }
}
