//! The numbers that a net gets of an observation.

use rollhouse_core::{ColumnRef, ObservationSpace, Space};

use crate::ModelError;

/// Makes rows of inputs of observation columns, in the space's order: a quantity is one number, a choice among `n` is `n`
/// numbers of which one is 1. Each may be centred and scaled.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    parts: Vec<Part>,
    count: usize,
    scaling: Option<Scaling>,
}

/// How inputs are centred and scaled before a net gets them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scaling {
    /// Taken away from each input.
    pub(crate) mean: Vec<f32>,
    /// What is left is multiplied by this.
    pub(crate) factor: Vec<f32>,
    /// The result is cut to this on both sides.
    pub(crate) clip: f32,
}

/// Inputs of a column.
#[derive(Debug, Clone)]
enum Part {
    /// Its elements.
    Numbers { elements: usize },
    /// One of so many for each element: its least value, and the number of values.
    Choices(Vec<(i64, usize)>),
}

impl Inputs {
    /// Makes the inputs of a space for a net that has so many.
    ///
    /// # Errors
    /// The space has texts or sequences, or another number of inputs than `wanted`.
    pub(crate) fn of(
        space: &ObservationSpace,
        wanted: usize,
        scaling: Option<Scaling>,
    ) -> Result<Self, ModelError> {
        if !space.counted().is_empty() {
            return Err(ModelError::Counted);
        }
        let inputs = Self { scaling, ..Self::all_of(space) };
        match inputs.count {
            count if count == wanted => Ok(inputs),
            env => Err(ModelError::Inputs { net: wanted, env }),
        }
    }

    /// Makes the inputs of a space without texts and sequences, as they are.
    pub(crate) fn all_of(space: &ObservationSpace) -> Self {
        let parts: Vec<Part> = space.columns().into_iter().map(|(_, space)| Part::of(space)).collect();
        let count = parts.iter().map(Part::count).fold(0, usize::saturating_add);
        Self { parts, count, scaling: None }
    }

    /// Returns the number of inputs.
    #[cfg(feature = "onnx")]
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Writes the inputs of `rows` rows, one after the other.
    pub(crate) fn write(&self, obs: &[ColumnRef<'_>], rows: usize, out: &mut Vec<f32>) {
        out.clear();
        out.resize(rows * self.count, 0.0);
        let mut first = 0;
        for (part, column) in self.parts.iter().zip(obs) {
            part.write(*column, out, self.count, first);
            first += part.count();
        }
        if let Some(Scaling { mean, factor, clip }) = &self.scaling {
            for row in out.chunks_exact_mut(self.count) {
                for ((number, mean), factor) in row.iter_mut().zip(mean).zip(factor) {
                    *number = ((*number - mean) * factor).clamp(-clip, *clip);
                }
            }
        }
    }
}

impl Part {
    fn of(space: &Space) -> Self {
        match space {
            Space::Discrete(space) => Self::Choices(vec![(space.start, space.n as usize)]),
            Space::Box(space) if space.kind() == "multi_discrete" => {
                let values = space.low.iter().zip(space.high.iter());
                Self::Choices(
                    values
                        .map(|(low, high)| (low as i64, ((high - low) as usize).saturating_add(1)))
                        .collect(),
                )
            }
            Space::Box(_) => Self::Numbers { elements: space.elements() },
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Numbers { elements } => *elements,
            Self::Choices(choices) => choices.iter().fold(0, |sum, (_, values)| sum.saturating_add(*values)),
        }
    }

    /// Writes the inputs of a column into rows of `stride` numbers, from `first` on.
    fn write(&self, column: ColumnRef<'_>, out: &mut [f32], stride: usize, first: usize) {
        let rows = out.chunks_exact_mut(stride.max(1)).map(|row| &mut row[first..]);
        match self {
            Self::Numbers { elements } => copy(column, *elements, rows),
            Self::Choices(choices) => {
                for (row, inputs) in rows.enumerate() {
                    let mut place = 0;
                    for (at, (least, values)) in choices.iter().enumerate() {
                        let value = whole(column, row * choices.len() + at).wrapping_sub(*least);
                        if (0..*values as i64).contains(&value) {
                            inputs[place + value as usize] = 1.0;
                        }
                        place += values;
                    }
                }
            }
        }
    }
}

/// Copies elements of a column to the beginning of each row, as singles.
pub(crate) fn copy<'a>(column: ColumnRef<'_>, elements: usize, rows: impl Iterator<Item = &'a mut [f32]>) {
    fn each<'a, T: Copy>(
        from: &[T],
        elements: usize,
        rows: impl Iterator<Item = &'a mut [f32]>,
        single: impl Fn(T) -> f32,
    ) {
        for (from, row) in from.chunks_exact(elements.max(1)).zip(rows) {
            row.iter_mut().zip(from).for_each(|(to, from)| *to = single(*from));
        }
    }
    match column {
        ColumnRef::F32(from) => each(from, elements, rows, |number| number),
        ColumnRef::F64(from) => each(from, elements, rows, |number| number as f32),
        ColumnRef::U8(from) => each(from, elements, rows, f32::from),
        ColumnRef::I32(from) => each(from, elements, rows, |number| number as f32),
        ColumnRef::I64(from) => each(from, elements, rows, |number| number as f32),
    }
}

fn whole(column: ColumnRef<'_>, at: usize) -> i64 {
    match column {
        ColumnRef::I64(values) => values[at],
        ColumnRef::I32(values) => i64::from(values[at]),
        ColumnRef::U8(values) => i64::from(values[at]),
        ColumnRef::F32(values) => values[at] as i64,
        ColumnRef::F64(values) => values[at] as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::CompositeSpace;

    #[test]
    fn a_choice_is_one_of_its_values_and_a_quantity_is_itself() {
        let parts = vec![
            ("choice".to_owned(), ObservationSpace::Plain(Space::discrete(3))),
            ("numbers".to_owned(), ObservationSpace::Plain(Space::f32_box(&[-9.0, -9.0], &[9.0, 9.0]))),
        ];
        let space = ObservationSpace::Composite(CompositeSpace::Dict { spaces: parts });
        let inputs = Inputs::of(&space, 5, None).unwrap();
        let mut out = vec![7.0; 3];
        let columns = [ColumnRef::I64(&[2, 0]), ColumnRef::F32(&[1.5, -2.0, 3.0, 4.0])];
        inputs.write(&columns, 2, &mut out);
        assert_eq!(out, [0.0, 0.0, 1.0, 1.5, -2.0, 1.0, 0.0, 0.0, 3.0, 4.0]);
        assert!(matches!(Inputs::of(&space, 4, None), Err(ModelError::Inputs { net: 4, env: 5 })));
    }

    #[test]
    fn inputs_are_centred_scaled_and_cut() {
        let space = ObservationSpace::Plain(Space::f32_box(&[-9.0, -9.0], &[9.0, 9.0]));
        let scaling = Scaling { mean: vec![1.0, 0.0], factor: vec![2.0, 100.0], clip: 10.0 };
        let mut out = Vec::new();
        Inputs::of(&space, 2, Some(scaling)).unwrap().write(&[ColumnRef::F32(&[3.0, -4.0])], 1, &mut out);
        assert_eq!(out, [4.0, -10.0]);
    }
}
