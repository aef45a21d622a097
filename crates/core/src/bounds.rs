//! Bounds of the elements of a box.

use std::ops::Index;

use serde::{Serialize, Serializer};

/// A bound for each element of a box. Images have the same for each of tens of thousands, which is kept once.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// One that is that of all elements, or one each.
    numbers: Vec<f64>,
    elements: usize,
}

impl Bounds {
    /// Returns the same bound for so many elements.
    pub fn all(bound: f64, elements: usize) -> Self {
        Self { numbers: if elements == 0 { Vec::new() } else { vec![bound] }, elements }
    }

    /// Returns the bounds of so many elements that a message gives, one that is that of all or one each; `None` if they
    /// are neither.
    pub(crate) fn given(numbers: Vec<f64>, elements: usize) -> Option<Self> {
        match numbers[..] {
            [bound] => Some(Self::all(bound, elements)),
            _ => (numbers.len() == elements).then(|| numbers.into()),
        }
    }

    /// Returns the number of elements.
    pub const fn len(&self) -> usize {
        self.elements
    }

    /// Returns whether there is no element.
    pub const fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Iterates over the bounds of all elements.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.elements).map(|element| self[element])
    }

    /// Returns the numbers that are kept: one that is that of all elements, or one each.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }
}

impl Index<usize> for Bounds {
    type Output = f64;

    fn index(&self, element: usize) -> &f64 {
        assert!(element < self.elements, "element {element} of {}", self.elements);
        self.numbers.get(element).unwrap_or(&self.numbers[0])
    }
}

impl From<Vec<f64>> for Bounds {
    fn from(numbers: Vec<f64>) -> Self {
        let elements = numbers.len();
        match numbers[..] {
            [first, ref others @ ..] if others.iter().all(|other| other.to_bits() == first.to_bits()) => {
                Self::all(first, elements)
            }
            _ => Self { numbers, elements },
        }
    }
}

/// Writes one each, as all versions read them; those of more elements than `APART` that are the same as one.
impl Serialize for Bounds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.numbers.len() == 1 && self.elements > APART {
            return to.collect_seq(&self.numbers);
        }
        to.collect_seq(self.iter())
    }
}

/// Most elements whose bounds are written one by one although they are the same: earlier versions read nothing else, and
/// the bounds of several times as many fit into no message.
const APART: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bound_of_all_elements_is_kept_once_and_written_once_if_there_are_many() {
        for (elements, written) in [(0, 0), (1, 1), (3, 3), (APART, APART), (APART + 1, 1)] {
            let bounds = Bounds::from(vec![2.5; elements]);
            assert_eq!(bounds, Bounds::all(2.5, elements));
            assert_eq!((bounds.len(), bounds.numbers().len()), (elements, elements.min(1)));
            assert!(bounds.iter().all(|bound| bound == 2.5) && bounds.iter().len() == elements);
            let text = serde_json::to_string(&bounds).expect("it is written");
            let numbers: Vec<f64> = serde_json::from_str(&text).expect("they are numbers");
            assert_eq!(numbers.len(), written);
            assert_eq!(Bounds::given(numbers, elements), Some(bounds));
        }
        assert_eq!(Bounds::given(vec![1.0, 2.0], 3), None);
        let apart = Bounds::from(vec![0.0, -0.0]);
        assert_eq!((apart[1].to_bits(), apart.numbers().len()), ((-0.0_f64).to_bits(), 2));
    }
}
