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

impl LaneMemory {
    /// Makes a memory of no lanes, with states of so many numbers each.
    pub(crate) fn new(elements: Vec<usize>) -> Self {
        Self { states: vec![Vec::new(); elements.len()], elements, ..Self::default() }
    }

    /// Returns a memory of no lanes with the same states.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.elements.clone())
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
        assert_eq!(lanes.began(&(3..9)), [true, true, true, false, true, true]);
        assert_eq!(lanes.rows(&(5..7)), [&[0.0, 0.0, 3.0, 4.0][..]]);
    }
}
