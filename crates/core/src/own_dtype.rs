//! Element types that envs have and columns have not.
//!
//! A column carries such elements in the next type that has all of their values. Whatever moves or records columns knows
//! nothing of it; spaces and arrays in Python are of the env's own type.

use serde::{Deserialize, Serialize};

use crate::{DType, Space};

/// Element type that an env has for values of a space whose column carries them in a wider one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnDType {
    /// Signed byte.
    I8,
    /// Unsigned byte, of choices, which are carried as int64.
    U8,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 32-bit integer, of choices.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE 754 half, 16 bits.
    F16,
}

/// Error of a type that elements of a space cannot have as their own.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadOwnDType {
    /// No type of that name is carried in a wider one.
    #[error("no column carries elements of type `{0}`")]
    Unknown(String),
    /// The column does not have its values, or is of another kind.
    #[error("a column of {} carries no elements of {}", carrier.name(), own.name())]
    Carrier {
        /// The elements' own type.
        own: OwnDType,
        /// Element type of the column.
        carrier: DType,
    },
    /// The space has values that the type does not have.
    #[error("{low} to {high} are not all of {}", own.name())]
    Values {
        /// The elements' own type.
        own: OwnDType,
        /// The least value of the space.
        low: f64,
        /// The greatest value, or number of values, of the space.
        high: f64,
    },
    /// The elements are those of parts, each of which has its own type.
    #[error("elements of a box of parts have no type of their own")]
    Parts,
}

impl OwnDType {
    /// All of them.
    const ALL: [Self; 7] = [Self::I8, Self::U8, Self::I16, Self::U16, Self::I32, Self::U32, Self::F16];

    /// Returns NumPy's name for the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::F16 => "float16",
        }
    }

    /// Returns bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 => 4,
        }
    }

    /// Returns the type that NumPy calls so.
    ///
    /// # Errors
    /// [`BadOwnDType::Unknown`].
    pub fn of_name(name: &str) -> Result<Self, BadOwnDType> {
        let known = Self::ALL.into_iter().find(|own| own.name() == name);
        known.ok_or_else(|| BadOwnDType::Unknown(name.to_owned()))
    }

    /// Returns the least and the greatest number of the type.
    const fn range(self) -> (f64, f64) {
        match self {
            Self::I8 => (i8::MIN as f64, i8::MAX as f64),
            Self::U8 => (0.0, u8::MAX as f64),
            Self::I16 => (i16::MIN as f64, i16::MAX as f64),
            Self::U16 => (0.0, u16::MAX as f64),
            Self::I32 => (i32::MIN as f64, i32::MAX as f64),
            Self::U32 => (0.0, u32::MAX as f64),
            Self::F16 => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// Returns whether a column of that type has all values of this one.
    const fn is_carried_by(self, carrier: DType) -> bool {
        match self {
            Self::I8 | Self::U8 | Self::I16 | Self::U16 => matches!(carrier, DType::I32 | DType::I64),
            Self::I32 | Self::U32 => matches!(carrier, DType::I64),
            Self::F16 => matches!(carrier, DType::F32 | DType::F64),
        }
    }
}

impl Space {
    /// Returns the elements' own type, if the column carries them in a wider one.
    pub const fn own(&self) -> Option<OwnDType> {
        match self {
            Self::Box(space) => space.own,
            Self::Discrete(space) => space.own,
        }
    }

    /// Returns this space with elements of a type of their own, which the column carries.
    ///
    /// # Errors
    /// [`BadOwnDType`], if the column or the space's bounds do not fit it.
    pub fn with_own(mut self, own: OwnDType) -> Result<Self, BadOwnDType> {
        if !own.is_carried_by(self.dtype()) {
            return Err(BadOwnDType::Carrier { own, carrier: self.dtype() });
        }
        if self.parts().is_some() {
            return Err(BadOwnDType::Parts);
        }
        let (least, most) = own.range();
        let (low, high) = self.extremes().unwrap_or_default();
        // Gymnasium has numbers of choices in the same type.
        let high = self.most_choices().map_or(high, |choices| high.max(choices));
        if !(least..=most).contains(&low) || !(least..=most).contains(&high) {
            return Err(BadOwnDType::Values { own, low, high });
        }
        match &mut self {
            Self::Box(space) => space.own = Some(own),
            Self::Discrete(space) => space.own = Some(own),
        }
        Ok(self)
    }

    /// Returns the greatest number of values that an element has; `None` for quantities.
    fn most_choices(&self) -> Option<f64> {
        match self {
            Self::Discrete(space) => Some(space.n as f64),
            Self::Box(space) if space.choices => {
                let counts = space.high.iter().zip(space.low.iter()).map(|(high, low)| high - low + 1.0);
                counts.reduce(f64::max)
            }
            Self::Box(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, BoxSpace, CompositeSpace, DiscreteSpace, ObservationSpace, SequenceSpace};

    fn boxed(dtype: DType, low: f64, high: f64) -> Space {
        let (low, high, shape) = (Bounds::all(low, 2), Bounds::all(high, 2), vec![2]);
        Space::Box(BoxSpace { low, high, shape, dtype, choices: false, parts: None, own: None })
    }

    fn choices(low: f64, high: f64) -> Space {
        let Space::Box(space) = boxed(DType::I64, low, high) else { panic!("no box") };
        Space::Box(BoxSpace { choices: true, ..space })
    }

    fn discrete(n: u64, start: i64) -> Space {
        Space::Discrete(DiscreteSpace { n, start, own: None })
    }

    fn narrow() -> ObservationSpace {
        let halves = boxed(DType::F32, -9.0, 9.0).with_own(OwnDType::F16).unwrap();
        let seen = SequenceSpace::new(discrete(3, 5).with_own(OwnDType::U8).unwrap(), 4, true).unwrap();
        let spaces = vec![halves.into(), CompositeSpace::from(seen).into()];
        CompositeSpace::Dict {
            spaces: vec![
                ("pair".into(), CompositeSpace::Tuple { spaces }.into()),
                ("way".into(), choices(-4.0, 3.0).with_own(OwnDType::I8).unwrap().into()),
                ("plain".into(), discrete(2, 0).into()),
            ],
        }
        .into()
    }

    #[test]
    fn elements_have_a_type_of_their_own_if_column_and_bounds_have_it() {
        for (space, own) in [
            (boxed(DType::I32, -128.0, 127.0), OwnDType::I8),
            (boxed(DType::I32, 0.0, 65535.0), OwnDType::U16),
            (boxed(DType::I64, 0.0, 4_294_967_295.0), OwnDType::U32),
            (discrete(5, 250), OwnDType::U8),
            (choices(-3.0, 4.0), OwnDType::I32),
        ] {
            let narrow = space.clone().with_own(own).unwrap();
            assert_eq!((narrow.own(), narrow.dtype()), (Some(own), space.dtype()));
        }
        for (space, own, wrong) in [
            (boxed(DType::I32, 0.0, 1.0), OwnDType::U32, "a column of int32 carries no elements of uint32"),
            (boxed(DType::I32, 0.0, 1.0), OwnDType::F16, "a column of int32 carries no elements of float16"),
            (boxed(DType::F32, 0.0, 1.0), OwnDType::I8, "a column of float32 carries no elements of int8"),
            (boxed(DType::U8, 0.0, 1.0), OwnDType::I8, "a column of uint8 carries no elements of int8"),
            (boxed(DType::I32, -129.0, 1.0), OwnDType::I8, "-129 to 1 are not all of int8"),
            (boxed(DType::I32, 0.0, f64::INFINITY), OwnDType::I16, "0 to inf are not all of int16"),
            (discrete(7, 250), OwnDType::U8, "250 to 256 are not all of uint8"),
            (discrete(128, -64), OwnDType::I8, "-64 to 128 are not all of int8"),
        ] {
            assert_eq!(space.with_own(own).unwrap_err().to_string(), wrong);
        }
        let parts = CompositeSpace::Tuple { spaces: vec![discrete(2, 0).into()] };
        let carrier = Space::Box(BoxSpace::of_parts(parts).unwrap());
        assert_eq!(carrier.with_own(OwnDType::I8), Err(BadOwnDType::Parts));
    }

    #[test]
    fn it_comes_back_from_messages_and_earlier_versions_read_the_column() {
        let space = narrow();
        for bytes in [rmp_serde::to_vec_named(&space).unwrap(), rmp_serde::to_vec(&space).unwrap()] {
            assert_eq!(crate::msgpack::decode::<ObservationSpace>(&bytes, 1 << 12).unwrap(), space);
        }
        let text = serde_json::to_string(&space).unwrap();
        assert_eq!(serde_json::from_str::<ObservationSpace>(&text).unwrap(), space);
        let earlier = text.replace("\"own\":", "\"unheard\":");
        let earlier = serde_json::from_str::<ObservationSpace>(&earlier).unwrap();
        let carried = |space: &ObservationSpace| -> Vec<_> {
            let columns = space.columns().into_iter();
            columns.map(|(path, space)| (path, space.dtype(), space.shape().to_vec())).collect()
        };
        assert_eq!(carried(&earlier), carried(&space));
        assert!(earlier.columns().iter().all(|(_, space)| space.own().is_none()));
        let own: Vec<_> = space.columns().into_iter().map(|(_, space)| space.own()).collect();
        assert_eq!(own, [Some(OwnDType::F16), Some(OwnDType::U8), None, Some(OwnDType::I8), None]);
    }

    #[test]
    fn what_the_column_does_not_carry_is_refused_as_it_is_read() {
        let space = serde_json::from_str::<Space>(r#"{"kind":"discrete","n":3,"start":0,"own":"i8"}"#);
        assert_eq!(space.unwrap().own(), Some(OwnDType::I8));
        for (text, wrong) in [
            (r#"{"kind":"discrete","n":3,"start":0,"own":"i4"}"#, "unknown variant `i4`"),
            (r#"{"kind":"discrete","n":3,"start":0,"own":"u64"}"#, "unknown variant `u64`"),
            (
                r#"{"kind":"discrete","n":3,"start":0,"own":"f16"}"#,
                "a column of int64 carries no elements of float16",
            ),
            (r#"{"kind":"discrete","n":3,"start":-1,"own":"u8"}"#, "-1 to 3 are not all of uint8"),
            (
                r#"{"kind":"box","low":[0],"high":[1],"shape":[],"dtype":"f32","own":"i8"}"#,
                "a column of float32 carries no elements of int8",
            ),
        ] {
            let error = serde_json::from_str::<Space>(text).unwrap_err().to_string();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }
}
