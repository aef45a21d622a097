//! Observation and action spaces.

use serde::{Deserialize, Serialize};

use crate::DType;

/// The set of values of an observation or an action, with Gymnasium's meaning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Space {
    /// An array with a bound per element.
    Box(BoxSpace),
    /// One of `n` consecutive integers.
    Discrete(DiscreteSpace),
}

/// An array of `shape`; element i lies in `[low[i], high[i]]`, row-major. Bounds may be infinite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoxSpace {
    /// Lower bounds, one per element.
    pub low: Vec<f64>,
    /// Upper bounds, one per element.
    pub high: Vec<f64>,
    /// Extent of each axis; empty for a scalar.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: DType,
}

/// The integers `start .. start + n`, carried as int64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscreteSpace {
    /// How many values there are; at least 1.
    pub n: u64,
    /// The smallest value.
    pub start: i64,
}

impl Space {
    /// A one-dimensional float32 box.
    pub fn f32_box(low: &[f32], high: &[f32]) -> Self {
        debug_assert_eq!(low.len(), high.len());
        Self::Box(BoxSpace {
            low: low.iter().map(|&v| f64::from(v)).collect(),
            high: high.iter().map(|&v| f64::from(v)).collect(),
            shape: vec![low.len()],
            dtype: DType::F32,
        })
    }

    /// The integers `0 .. n`.
    pub const fn discrete(n: u64) -> Self {
        Self::Discrete(DiscreteSpace { n, start: 0 })
    }

    /// Element type of the column that carries a value of this space.
    pub const fn dtype(&self) -> DType {
        match self {
            Self::Box(space) => space.dtype,
            Self::Discrete(_) => DType::I64,
        }
    }

    /// Extent of each axis of one value; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Box(space) => &space.shape,
            Self::Discrete(_) => &[],
        }
    }

    /// Elements of one value.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }
}
