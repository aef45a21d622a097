//! Options with which an env is made.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::limits::MAX_OPTIONS;

/// Value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// True or false.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// A double.
    Float(f64),
}

/// Description of one option of an env.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptionSpec {
    /// Name of the option: Gymnasium's where it has one.
    pub name: String,
    /// Value of an option that is not given. Its kind is the kind that the option takes.
    pub default: OptionValue,
    /// What the option does, with its unit.
    pub summary: String,
}

/// Checked options of one lane, with a value for every name of the env's schema.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Options(BTreeMap<String, OptionValue>);

impl Options {
    /// Checks `given` against the schema and adds the defaults of options that are not given.
    ///
    /// # Errors
    /// If a name is unknown, a value is of another kind (an integer is taken where a float is wanted) or not finite,
    /// or there are too many; nothing is kept then.
    pub fn check(schema: &[OptionSpec], given: &[(String, OptionValue)]) -> Result<Self, OptionError> {
        if given.len() > MAX_OPTIONS {
            return Err(OptionError::TooMany { count: given.len() });
        }
        let mut values: BTreeMap<_, _> = schema.iter().map(|s| (s.name.clone(), s.default)).collect();
        for (name, value) in given {
            let Some(slot) = values.get_mut(name) else {
                let known = schema.iter().map(|s| s.name.clone()).collect();
                return Err(OptionError::Unknown { name: name.clone(), known });
            };
            *slot = slot.accept(*value).ok_or_else(|| OptionError::Kind {
                name: name.clone(),
                wanted: slot.kind(),
                given: *value,
            })?;
        }
        Ok(Self(values))
    }

    /// Returns the float of that name. The schema's own names always have one.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(OptionValue::Float(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the integer of that name.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(OptionValue::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the flag of that name.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.0.get(name) {
            Some(OptionValue::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the value of that name.
    pub fn get(&self, name: &str) -> Option<OptionValue> {
        self.0.get(name).copied()
    }

    /// Returns every name and value, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, OptionValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl OptionValue {
    /// Converts `value` to the kind of this option; `None` if it cannot be.
    fn accept(self, value: Self) -> Option<Self> {
        match (self, value) {
            (Self::Bool(_), Self::Bool(_)) | (Self::Int(_), Self::Int(_)) => Some(value),
            (Self::Float(_), Self::Float(float)) if float.is_finite() => Some(value),
            (Self::Float(_), Self::Int(int)) => Some(Self::Float(int as f64)),
            _ => None,
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Bool(_) => "true or false",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a finite number",
        }
    }
}

/// Reads a value by hand, because the code that serde derives keeps a copy of whatever stands in the place of a value.
impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl Visitor<'_> for ValueVisitor {
    type Value = OptionValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or a number")
    }

    fn visit_bool<E>(self, value: bool) -> Result<OptionValue, E> {
        Ok(OptionValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OptionValue, E> {
        Ok(OptionValue::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<OptionValue, E> {
        let fits = i64::try_from(value).map(OptionValue::Int);
        fits.map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E>(self, value: f64) -> Result<OptionValue, E> {
        Ok(OptionValue::Float(value))
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(OptionsVisitor)
    }
}

struct OptionsVisitor;

impl<'de> Visitor<'de> for OptionsVisitor {
    type Value = Options;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of at most {MAX_OPTIONS} options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
        let mut values = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if values.len() == MAX_OPTIONS {
                return Err(A::Error::custom(format_args!("more than {MAX_OPTIONS} options")));
            }
            values.insert(name, value);
        }
        Ok(Options(values))
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
        }
    }
}

/// Reason for which options were refused.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionError {
    /// The env has no option of that name.
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of the options that the env has.
        known: Vec<String>,
    },
    /// The value is of another kind.
    Kind {
        /// Name of the option.
        name: String,
        /// Kind of value that the option takes.
        wanted: &'static str,
        /// Value that was given.
        given: OptionValue,
    },
    /// There are more options than [`MAX_OPTIONS`].
    TooMany {
        /// Number of options that were given.
        count: usize,
    },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } if known.is_empty() => {
                write!(f, "unknown option `{name}`; this env takes none")
            }
            Self::Unknown { name, known } => {
                write!(f, "unknown option `{name}`; known are {}", known.join(", "))
            }
            Self::Kind { name, wanted, given } => write!(f, "option `{name}` takes {wanted}, got {given}"),
            Self::TooMany { count } => write!(f, "{count} options given, at most {MAX_OPTIONS} are taken"),
        }
    }
}

impl std::error::Error for OptionError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Vec<OptionSpec> {
        vec![
            OptionSpec { name: "g".into(), default: OptionValue::Float(10.0), summary: "gravity".into() },
            OptionSpec { name: "shaped".into(), default: OptionValue::Bool(false), summary: "reward".into() },
        ]
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let options = Options::check(&schema(), &[("g".into(), OptionValue::Int(3))]).unwrap();
        assert_eq!(options.float("g"), Some(3.0));
        assert_eq!(options.flag("shaped"), Some(false));
    }

    #[test]
    fn unknown_names_wrong_kinds_and_nan_are_refused() {
        let check = |name: &str, value| Options::check(&schema(), &[(name.into(), value)]);
        assert!(matches!(check("gee", OptionValue::Int(3)), Err(OptionError::Unknown { .. })));
        assert!(matches!(check("shaped", OptionValue::Int(1)), Err(OptionError::Kind { .. })));
        assert!(matches!(check("g", OptionValue::Float(f64::NAN)), Err(OptionError::Kind { .. })));
    }
}
