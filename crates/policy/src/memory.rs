//! What a policy remembers of lanes between two steps.

use std::ops::Range;

/// States of lanes, from a first one on, and which of them begin an episode. A policy hands it to the one that takes its place.
#[derive(Debug, Clone, Default)]
pub struct LaneMemory {
    first: u32,
    began: Vec<bool>,
    /// Rows of each state.
    states: Vec<Vec<f32>>,
    /// Numbers of a row of each.
    elements: Vec<usize>,
}

/// What a policy remembers of some lanes, apart from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LaneStates {
    /// Whether a lane begins an episode with what it shows next: its states are zeros.
    pub began: Vec<bool>,
    /// Of each state a row for each lane, one behind the other.
    pub rows: Vec<Vec<f32>>,
}

impl LaneStates {
    /// Has a lane begin an episode.
    pub fn begin(&mut self, lane: usize) {
        let lanes = self.began.len();
        self.began[lane] = true;
        for rows in &mut self.rows {
            let elements = rows.len() / lanes;
            rows[lane * elements..(lane + 1) * elements].fill(0.0);
        }
    }
}

impl LaneMemory {
    /// Makes a memory of no lanes, with states of so many numbers each.
    pub(crate) fn new(elements: Vec<usize>) -> Self {
        Self { states: vec![Vec::new(); elements.len()], elements, ..Self::default() }
    }

    /// Makes a memory of these lanes, of which `first_lane` is the first. `None` if the rows are no whole number of lanes.
    pub fn of(first_lane: u32, lanes: LaneStates) -> Option<Self> {
        let LaneStates { began, rows: states } = lanes;
        let lanes = began.len();
        first_lane.checked_add(u32::try_from(lanes).ok()?)?;
        if lanes == 0 || states.iter().any(|rows| rows.len() % lanes != 0) {
            return None;
        }
        let elements = states.iter().map(|rows| rows.len() / lanes).collect();
        Some(Self { first: first_lane, began, states, elements })
    }

    /// Copies what is remembered of lanes. Those of which nothing is known begin an episode.
    pub fn copy(&self, lanes: Range<u32>) -> LaneStates {
        let mut widened;
        let known =
            if lanes.start >= self.first && lanes.end as usize <= self.first as usize + self.began.len() {
                self
            } else {
                widened = self.clone();
                widened.make_room(&lanes);
                &widened
            };
        let rows = known.rows(&lanes).into_iter().map(<[f32]>::to_vec).collect();
        LaneStates { began: known.began(&lanes).to_vec(), rows }
    }

    /// Takes what a policy before has remembered. States of another form are forgotten: lanes begin with empty ones.
    pub(crate) fn recall(&mut self, memory: Self) {
        if memory.elements == self.elements {
            *self = memory;
        }
    }

    /// Makes room for lanes; those that are new begin an episode.
    pub(crate) fn make_room(&mut self, lanes: &Range<u32>) {
        if self.began.is_empty() {
            self.first = lanes.start;
        }
        let before = self.first.saturating_sub(lanes.start) as usize;
        let behind = (lanes.end as usize).saturating_sub(self.first as usize + self.began.len());
        if before > 0 {
            self.first = lanes.start;
            self.began.splice(0..0, std::iter::repeat_n(true, before));
        }
        self.began.extend(std::iter::repeat_n(true, behind));
        for (rows, elements) in self.states.iter_mut().zip(&self.elements) {
            rows.splice(0..0, std::iter::repeat_n(0.0, before * elements));
            rows.resize(self.began.len() * elements, 0.0);
        }
    }

    /// Has a lane begin an episode.
    pub(crate) fn begin(&mut self, lane: u32) {
        self.make_room(&(lane..lane + 1));
        let at = (lane - self.first) as usize;
        self.began[at] = true;
        for (rows, elements) in self.states.iter_mut().zip(&self.elements) {
            rows[at * elements..(at + 1) * elements].fill(0.0);
        }
    }

    fn places(&self, lanes: &Range<u32>) -> Range<usize> {
        let first = (lanes.start - self.first) as usize;
        first..first + lanes.len()
    }

    pub(crate) fn began(&self, lanes: &Range<u32>) -> &[bool] {
        &self.began[self.places(lanes)]
    }

    pub(crate) fn rows(&self, lanes: &Range<u32>) -> Vec<&[f32]> {
        let places = self.places(lanes);
        let states = self.states.iter().zip(&self.elements);
        states.map(|(rows, elements)| &rows[places.start * elements..places.end * elements]).collect()
    }

    /// Takes the states after a step.
    pub(crate) fn take(&mut self, lanes: &Range<u32>, after: &[Vec<f32>]) {
        let places = self.places(lanes);
        self.began[places.clone()].fill(false);
        for ((rows, elements), after) in self.states.iter_mut().zip(&self.elements).zip(after) {
            rows[places.start * elements..places.end * elements].copy_from_slice(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_keep_their_states_whichever_come_first_and_lose_them_where_they_begin() {
        let mut lanes = LaneMemory::new(vec![2]);
        lanes.make_room(&(5..7));
        assert_eq!((lanes.began(&(5..7)), lanes.rows(&(5..7))), (&[true, true][..], vec![&[0.0; 4][..]]));
        lanes.take(&(5..7), &[vec![1.0, 2.0, 3.0, 4.0]]);
        lanes.make_room(&(3..4));
        lanes.make_room(&(8..9));
        lanes.begin(5);
        let copied = lanes.copy(5..8);
        assert_eq!(copied.began, [true, false, true]);
        assert_eq!(copied.rows, [[0.0, 0.0, 3.0, 4.0, 0.0, 0.0]]);
        assert_eq!(LaneMemory::of(5, copied.clone()).unwrap().copy(5..8), copied);
        let mut begun = copied;
        begun.begin(1);
        assert_eq!((begun.began, begun.rows), (vec![true; 3], vec![vec![0.0; 6]]));
        let short = LaneStates { began: vec![true, false], rows: vec![vec![0.0; 3]] };
        assert!(LaneMemory::of(0, short).is_none());
        let beyond = LaneStates { began: vec![true], rows: Vec::new() };
        assert!(LaneMemory::of(u32::MAX, beyond).is_none());
        assert_eq!(lanes.began(&(3..9)), [true, true, true, false, true, true]);
        assert_eq!(lanes.rows(&(5..7)), [&[0.0, 0.0, 3.0, 4.0][..]]);
    }
}
