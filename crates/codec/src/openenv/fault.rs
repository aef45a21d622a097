//! What is wrong with the fields of a message, in the words of OpenEnv's own server, which are Pydantic's.

use serde::{Serialize, Serializer};
use serde_json::json;

use super::observation::text;

/// A field that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fault {
    #[serde(rename = "type")]
    kind: &'static str,
    loc: Vec<Place>,
    msg: String,
    /// The number or the word that was found; null where it was a list, an object or a long text.
    input: Option<Scalar>,
}

/// A step on the way to a field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Place {
    Name(String),
    Index(usize),
}

/// A value without parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Bool(bool),
    Int(i64),
    Whole(u64),
    Float(f64),
    Text(String),
}

/// Reason for which a body cannot be taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadBody {
    /// It is no JSON.
    #[error("{0}")]
    Json(String),
    /// It is no object, or fields of it are not as they have to be.
    #[error("{} fields are not as they have to be", .0.len())]
    Fields(Vec<Fault>),
}

/// Characters of a text that is shown in a fault.
const MAX_SHOWN: usize = 64;

impl Fault {
    pub(crate) fn new(kind: &'static str, msg: impl Into<String>) -> Self {
        Self { kind, loc: Vec::new(), msg: msg.into(), input: None }
    }

    /// Makes the fault of a field that is not there.
    pub(crate) fn missing(name: &str) -> Self {
        Self::new("missing", "Field required").within(name)
    }

    /// Makes the fault of a field that should not be there.
    pub(crate) fn extra(name: &str) -> Self {
        Self::new("extra_forbidden", "Extra inputs are not permitted").within(&shown(name))
    }

    pub(crate) fn of(mut self, input: Scalar) -> Self {
        self.input = Some(input);
        self
    }

    pub(crate) fn at(mut self, loc: Vec<Place>) -> Self {
        self.loc = loc;
        self
    }

    /// Makes the fault of a body that is not there.
    pub fn no_body() -> Self {
        Self::new("missing", "Field required")
    }

    /// Makes the fault of a field that is no object.
    pub fn no_object(name: &str) -> Self {
        Self::new("dict_type", "Input should be a valid dictionary").within(name)
    }

    /// Returns the fault as one of a part of `name`.
    #[must_use]
    pub fn within(mut self, name: &str) -> Self {
        self.loc.insert(0, Place::Name(name.to_owned()));
        self
    }

    /// Returns Pydantic's word for the kind of the fault.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }
}

/// Returns the answer of HTTP to a body that cannot be taken; the places of its fields begin with `body` where those of
/// OpenEnv's own server do.
pub fn body_faults(bad: BadBody, is_of_body: bool) -> Vec<u8> {
    let faults = match bad {
        BadBody::Json(why) => vec![Fault::new("json_invalid", format!("JSON decode error: {why}"))],
        BadBody::Fields(faults) => faults,
    };
    let within = |fault: Fault| if is_of_body { fault.within("body") } else { fault };
    let faults: Vec<_> = faults.into_iter().map(within).collect();
    text(&json!({ "detail": faults }))
}

impl Scalar {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(shown(text))
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Int(value) => to.serialize_i64(*value),
            Self::Whole(value) => to.serialize_u64(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::Text(value) => to.serialize_str(value),
        }
    }
}

impl From<Fault> for BadBody {
    fn from(fault: Fault) -> Self {
        Self::Fields(vec![fault])
    }
}

/// Returns the beginning of a text.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
