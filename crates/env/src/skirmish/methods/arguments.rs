//! The arguments of a method: read, and checked against its parameters.

use serde_json::{Map, Value, json};

use super::super::map::{Cell, SIDE};
use crate::CallError;

/// A parameter: its name, its kind, and whether it has to be given.
pub(super) type Param = (&'static str, Kind, bool);

/// Kinds of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    Text,
    Flag,
    /// Ids of units: a number, a list, or a text with ids, a selector, `type:KIND` or `group:NAME`.
    Units,
    Texts,
    List,
    Object,
}

impl Kind {
    fn has(self, value: &Value) -> bool {
        match self {
            Self::Integer => value.is_i64(),
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Units => value.is_string() || value.is_i64() || value.is_array(),
            Self::Texts => value.as_array().is_some_and(|texts| texts.iter().all(Value::is_string)),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    fn schema(self) -> Value {
        match self {
            Self::Integer => json!({"type": "integer"}),
            Self::Text => json!({"type": "string"}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Units => json!({
                "type": ["string", "integer", "array"],
                "description": "ids as `3` or `3,4`, a selector as `all_combat`, `all_idle`, `all_infantry`, \
                    `all_vehicles`, `type:tank` or `group:NAME`",
            }),
            Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::List => json!({"type": "array"}),
            Self::Object => json!({"type": "object"}),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::Text => "a text",
            Self::Flag => "true or false",
            Self::Units => "ids of units, as a text, a number or a list",
            Self::Texts => "a list of texts",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

/// Returns the JSON schema of a method's payload.
pub(super) fn schema(params: &[Param]) -> String {
    let properties: Map<_, _> =
        params.iter().map(|&(name, kind, _)| (name.to_owned(), kind.schema())).collect();
    let required: Vec<_> =
        params.iter().filter(|(.., is_required)| *is_required).map(|(name, ..)| name).collect();
    json!({"type": "object", "properties": properties, "required": required}).to_string()
}

/// Arguments of a call, each of its parameter's kind.
pub(super) struct Arguments(Map<String, Value>);

impl Arguments {
    /// Reads a payload: an object, a list of arguments in the order of the parameters, or nothing.
    ///
    /// # Errors
    /// If it is no JSON, an argument is missing, unknown, or of another kind.
    pub(super) fn read(payload: &str, params: &[Param]) -> Result<Self, CallError> {
        let value = match payload.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text)
                .map_err(|error| CallError::refused(format!("the payload is no JSON: {error}")))?,
        };
        Self::of(value, params)
    }

    /// Takes arguments of a value.
    ///
    /// # Errors
    /// As [`Arguments::read`].
    pub(super) fn of(value: Value, params: &[Param]) -> Result<Self, CallError> {
        let given = match value {
            Value::Null => Map::new(),
            Value::Object(given) => given,
            Value::Array(given) if given.len() <= params.len() => {
                params.iter().map(|(name, ..)| (*name).to_owned()).zip(given).collect()
            }
            Value::Array(given) => {
                let (count, most) = (given.len(), params.len());
                return Err(CallError::refused(format!(
                    "{count} arguments, the method takes at most {most}"
                )));
            }
            _ => return Err(CallError::refused("arguments must be an object or a list")),
        };
        for (name, value) in &given {
            let Some((_, kind, _)) = params.iter().find(|(known, ..)| known == name) else {
                let known: Vec<_> = params.iter().map(|(name, ..)| *name).collect();
                let name: String = name.chars().take(MAX_SHOWN).collect();
                return Err(CallError::refused(format!("unknown argument `{name}`; known are {known:?}")));
            };
            if !value.is_null() && !kind.has(value) {
                return Err(CallError::refused(format!("`{name}` must be {}", kind.name())));
            }
        }
        let missing =
            params.iter().find(|(name, _, needed)| *needed && given.get(*name).is_none_or(Value::is_null));
        match missing {
            Some((name, ..)) => Err(CallError::refused(format!("`{name}` is missing"))),
            None => Ok(Self(given)),
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_str()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.value(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns an integer between two bounds, or `default` if none is given.
    ///
    /// # Errors
    /// If it is out of bounds.
    pub(super) fn integer(&self, name: &str, default: i64, low: i64, high: i64) -> Result<i64, CallError> {
        let value = self.value(name).and_then(Value::as_i64).unwrap_or(default);
        if (low..=high).contains(&value) {
            return Ok(value);
        }
        Err(CallError::refused(format!("`{name}` is {value}, must be from {low} to {high}")))
    }

    /// Returns the id of a unit or building, 0 if none is given.
    ///
    /// # Errors
    /// If there cannot be such an id.
    pub(super) fn id(&self, name: &str) -> Result<u8, CallError> {
        self.integer(name, 0, 0, super::super::actor::ALL_IDS as i64 - 1).map(|id| id as u8)
    }

    /// Returns a cell of two arguments; `None` if neither is given.
    ///
    /// # Errors
    /// If it lies in no grid.
    pub(super) fn cell(&self, x: &str, y: &str) -> Result<Option<Cell>, CallError> {
        if self.value(x).is_none() && self.value(y).is_none() {
            return Ok(None);
        }
        let last = SIDE as i64 - 1;
        let place = |name: &str| self.integer(name, 0, 0, last).map(|place| place as u8);
        Ok(Some(Cell::new(place(x)?, place(y)?)))
    }
}

/// Characters of an unknown name that are repeated.
pub(super) const MAX_SHOWN: usize = 64;
