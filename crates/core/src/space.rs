//! Observation and action spaces.

use serde::Serialize;

use crate::{Bounds, DType, OwnDType, SequenceSpace, TextSpace};

/// Set of values of one column, with Gymnasium's meaning: of an action, of an observation or of a part of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Space {
    /// An array with a bound per element.
    Box(BoxSpace),
    /// One of `n` consecutive integers.
    Discrete(DiscreteSpace),
}

/// Set of values of an observation, with Gymnasium's meaning: one column, or several under names or positions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ObservationSpace {
    /// The observation is one column.
    Plain(Space),
    /// The observation has several parts.
    Composite(CompositeSpace),
}

/// Space of several columns: of spaces under names or positions, in that order, or of what has as many items as it says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CompositeSpace {
    /// The parts have names.
    Dict {
        /// Name and space of each part.
        spaces: Vec<(String, ObservationSpace)>,
    },
    /// The parts have positions.
    Tuple {
        /// Space of each part.
        spaces: Vec<ObservationSpace>,
    },
    /// The values are texts.
    #[serde(rename = "dict")]
    Text(Box<TextSpace>),
    /// The values are sequences.
    #[serde(rename = "dict")]
    Sequence(Box<SequenceSpace>),
}

/// Arrays of `shape` whose element i lies in `[low[i], high[i]]`, row-major. Bounds may be infinite.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BoxSpace {
    /// Lower bounds, one per element.
    pub low: Bounds,
    /// Upper bounds, one per element.
    pub high: Bounds,
    /// Extent of each axis; empty for a scalar.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: DType,
    /// Whether each element is a choice among its whole numbers instead of a quantity: a MultiDiscrete of Gymnasium's, of
    /// int64, or a MultiBinary, of uint8 where Gymnasium has int8.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub choices: bool,
    /// Space of several columns whose elements these are, one after the other, where an action of several columns is carried
    /// as one ([`BoxSpace::of_parts`]); `None` for an ordinary box.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Box<CompositeSpace>>,
    /// The elements' own type, if `dtype` is a wider one that carries them ([`Space::with_own`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnDType>,
}

/// Integers `start .. start + n`, carried as int64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DiscreteSpace {
    /// Number of values; at least 1.
    pub n: u64,
    /// The smallest value.
    pub start: i64,
    /// The values' own type, if it is another than int64 ([`Space::with_own`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnDType>,
}

impl Space {
    /// Returns a one-dimensional float32 box.
    pub fn f32_box(low: &[f32], high: &[f32]) -> Self {
        debug_assert_eq!(low.len(), high.len());
        Self::Box(BoxSpace {
            low: low.iter().map(|&v| f64::from(v)).collect::<Vec<_>>().into(),
            high: high.iter().map(|&v| f64::from(v)).collect::<Vec<_>>().into(),
            shape: vec![low.len()],
            dtype: DType::F32,
            choices: false,
            parts: None,
            own: None,
        })
    }

    /// Returns the space of the integers `0 .. n`.
    pub const fn discrete(n: u64) -> Self {
        Self::Discrete(DiscreteSpace { n, start: 0, own: None })
    }

    /// Returns the element type of the column that carries a value of this space.
    pub const fn dtype(&self) -> DType {
        match self {
            Self::Box(space) => space.dtype,
            Self::Discrete(_) => DType::I64,
        }
    }

    /// Returns the space of several columns whose elements these are, if an action of several is carried as one.
    pub fn parts(&self) -> Option<&CompositeSpace> {
        match self {
            Self::Box(space) => space.parts.as_deref(),
            Self::Discrete(_) => None,
        }
    }

    /// Returns the extent of each axis of one value; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Box(space) => &space.shape,
            Self::Discrete(_) => &[],
        }
    }

    /// Returns the number of elements of one value.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Returns the least and the greatest number that an element may be; `None` if there is no element.
    pub(crate) fn extremes(&self) -> Option<(f64, f64)> {
        match self {
            Self::Discrete(space) => Some((space.start as f64, space.start as f64 + (space.n as f64 - 1.0))),
            Self::Box(space) => {
                let low = space.low.numbers().iter().copied().reduce(f64::min)?;
                Some((low, space.high.numbers().iter().copied().reduce(f64::max)?))
            }
        }
    }

    /// Returns the number of booleans of an action mask: a Discrete space's values, or the values of all elements of a
    /// MultiDiscrete or MultiBinary one together. `None` for quantities, which have no mask.
    pub fn choices(&self) -> Option<u64> {
        match self {
            Self::Discrete(space) => Some(space.n),
            Self::Box(space) if space.choices => {
                let values = space.high.iter().zip(space.low.iter()).map(|(high, low)| high - low + 1.0);
                Some(values.sum::<f64>() as u64)
            }
            Self::Box(_) => None,
        }
    }

    /// Checks the number of booleans in a mask of these actions.
    ///
    /// # Errors
    /// [`MaskError`] if it is not that of [`Space::choices`].
    pub fn check_mask(&self, booleans: usize) -> Result<(), MaskError> {
        match self.choices() {
            Some(choices) if choices == booleans as u64 => Ok(()),
            Some(choices) => Err(MaskError::Size { booleans, choices }),
            None => Err(MaskError::Uncounted),
        }
    }
}

/// Error of an action mask that does not fit its action space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The mask has too few or too many booleans.
    #[error("a mask of {booleans} actions, it has {choices}")]
    Size {
        /// Number of booleans in the mask.
        booleans: usize,
        /// Number of choices in the space.
        choices: u64,
    },
    /// The actions are quantities.
    #[error("a mask of actions that are not counted")]
    Uncounted,
    /// The mask is no column of booleans.
    #[error("a mask of {}, must be of bool", dtype.name())]
    Type {
        /// Element type of the mask.
        dtype: DType,
    },
    /// There is more than one mask.
    #[error("{count} masks, may have one")]
    Several {
        /// Number of masks.
        count: usize,
    },
}

impl BoxSpace {
    /// Returns the word for Gymnasium's space of this kind: `box`, `multi_discrete` or `multi_binary`.
    pub const fn kind(&self) -> &'static str {
        match (self.choices, self.dtype) {
            (false, _) => "box",
            (true, DType::U8) => "multi_binary",
            (true, _) => "multi_discrete",
        }
    }

    /// Returns the number of bytes of one value.
    pub fn row_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

impl ObservationSpace {
    /// Returns the spaces of all columns in the space's own order, each with its path: empty for a plain space, else
    /// names and positions joined by `/`.
    pub fn columns(&self) -> Vec<(String, &Space)> {
        let mut columns = Vec::new();
        self.collect(String::new(), &mut columns);
        columns
    }

    /// Returns the space, if it is one column.
    pub const fn plain(&self) -> Option<&Space> {
        match self {
            Self::Plain(space) => Some(space),
            Self::Composite(_) => None,
        }
    }

    /// Returns the number of elements of one value, over all columns.
    pub fn elements(&self) -> usize {
        self.columns().iter().map(|(_, space)| space.elements()).sum()
    }

    /// Returns the texts and sequences among its parts, at any depth.
    pub fn counted(&self) -> Vec<&CompositeSpace> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Composite(parts) => parts.counted(),
        }
    }

    /// Returns the columns that are numbers of items of texts and sequences: the index of each, and its greatest number.
    pub fn counts(&self) -> Vec<(usize, usize)> {
        let (mut counts, mut columns) = (Vec::new(), 0);
        self.count(&mut columns, &mut counts);
        counts
    }

    fn count(&self, columns: &mut usize, counts: &mut Vec<(usize, usize)>) {
        let most = match self {
            Self::Plain(_) => return *columns += 1,
            Self::Composite(CompositeSpace::Dict { spaces }) => {
                return spaces.iter().for_each(|(_, space)| space.count(columns, counts));
            }
            Self::Composite(CompositeSpace::Tuple { spaces }) => {
                return spaces.iter().for_each(|space| space.count(columns, counts));
            }
            Self::Composite(CompositeSpace::Text(text)) => text.max_length(),
            Self::Composite(CompositeSpace::Sequence(sequence)) => sequence.maximum(),
        };
        counts.push((*columns + 1, most));
        *columns += 2;
    }

    fn collect<'a>(&'a self, path: String, columns: &mut Vec<(String, &'a Space)>) {
        match self {
            Self::Plain(space) => columns.push((path, space)),
            Self::Composite(parts) => parts.collect(&path, columns),
        }
    }
}

impl CompositeSpace {
    /// Returns the spaces of all columns, as [`ObservationSpace::columns`] does.
    pub fn columns(&self) -> Vec<(String, &Space)> {
        let mut columns = Vec::new();
        self.collect("", &mut columns);
        columns
    }

    /// Returns the texts and sequences among the parts, as [`ObservationSpace::counted`] does.
    pub fn counted(&self) -> Vec<&Self> {
        match self {
            Self::Dict { spaces } => spaces.iter().flat_map(|(_, space)| space.counted()).collect(),
            Self::Tuple { spaces } => spaces.iter().flat_map(ObservationSpace::counted).collect(),
            Self::Text(_) | Self::Sequence(_) => vec![self],
        }
    }

    fn collect<'a>(&'a self, path: &str, columns: &mut Vec<(String, &'a Space)>) {
        let below = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}/{part}") };
        match self {
            Self::Dict { spaces } => {
                spaces.iter().for_each(|(name, space)| space.collect(below(name), columns));
            }
            Self::Tuple { spaces } => {
                let places = spaces.iter().enumerate();
                places.for_each(|(place, space)| space.collect(below(&place.to_string()), columns));
            }
            Self::Text(space) => {
                columns.extend(space.columns().map(|(name, space)| (below(name), space)));
            }
            Self::Sequence(space) => {
                columns.extend(space.columns().map(|(name, space)| (below(name), space)));
            }
        }
    }
}

impl From<Space> for ObservationSpace {
    fn from(space: Space) -> Self {
        Self::Plain(space)
    }
}

impl From<CompositeSpace> for ObservationSpace {
    fn from(space: CompositeSpace) -> Self {
        Self::Composite(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> ObservationSpace {
        let pair = CompositeSpace::Tuple {
            spaces: vec![Space::discrete(3).into(), Space::f32_box(&[0.0; 2], &[1.0; 2]).into()],
        };
        CompositeSpace::Dict {
            spaces: vec![("b".to_owned(), Space::discrete(2).into()), ("a".to_owned(), pair.into())],
        }
        .into()
    }

    #[test]
    fn columns_stand_in_the_spaces_own_order_under_their_paths() {
        let space = nested();
        let columns = space.columns();
        let paths: Vec<&str> = columns.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["b", "a/0", "a/1"]);
        assert_eq!(space.elements(), 4);
        let plain = ObservationSpace::from(Space::discrete(2));
        assert_eq!(plain.columns(), [(String::new(), &Space::discrete(2))]);
    }

    #[test]
    fn spaces_come_back_from_msgpack_with_and_without_names_of_fields() {
        for space in [Space::discrete(3).into(), Space::f32_box(&[0.0, -1.0], &[1.0, 2.0]).into(), nested()] {
            for bytes in [rmp_serde::to_vec_named(&space).unwrap(), rmp_serde::to_vec(&space).unwrap()] {
                assert_eq!(crate::msgpack::decode::<ObservationSpace>(&bytes, 1 << 10).unwrap(), space);
            }
        }
    }

    #[test]
    fn what_is_no_space_is_refused_with_what_it_lacks() {
        for (text, wrong) in [
            ("{}", "missing field `kind`"),
            (
                r#"{"kind":"box","low":[0,0],"high":[1],"shape":[3],"dtype":"f32"}"#,
                "2 lower and 1 upper bounds",
            ),
            (r#"{"spaces":[],"kind":"dict"}"#, "`kind` stands before `spaces`"),
            (r#"{"kind":"sphere"}"#, "unknown variant"),
            (r#"{"kind":"discrete","n":2}"#, "missing field `start`"),
        ] {
            let error = serde_json::from_str::<ObservationSpace>(text).unwrap_err().to_string();
            assert!(error.contains(wrong), "{text}: {error}");
        }
        let pair = serde_json::to_string(&nested()).unwrap();
        assert!(serde_json::from_str::<Space>(&pair).is_err(), "a plain space is one column");
    }

    #[test]
    fn a_plain_space_is_written_as_ever_and_nested_ones_come_back() {
        let plain = ObservationSpace::from(Space::f32_box(&[0.0], &[1.0]));
        let text = serde_json::to_string(&plain).unwrap();
        assert_eq!(text, serde_json::to_string(plain.plain().unwrap()).unwrap());
        for space in [plain, nested()] {
            let text = serde_json::to_string(&space).unwrap();
            assert_eq!(serde_json::from_str::<ObservationSpace>(&text).unwrap(), space);
        }
    }
}
