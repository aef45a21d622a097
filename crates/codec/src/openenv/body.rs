//! Bodies of requests: resets, steps, questions about tasks.

use std::fmt;

use rollhouse_core::OptionValue;
use rollhouse_core::limits::MAX_OPTIONS;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::{BadBody, Fault, Scalar};
use super::parts::Parts;

/// How an episode is to begin. Other fields are passed over, as OpenEnv's own server does where an env does not know them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResetRequest {
    /// Seed of the episode.
    pub seed: Option<u64>,
    /// Name of the episode, of at most 255 characters.
    pub episode_id: Option<String>,
    /// Options that the lane has from this reset on.
    pub options: Vec<(String, OptionValue)>,
}

/// A step by HTTP.
#[derive(Debug, Clone, Copy)]
pub struct StepBody<'a> {
    /// Text of the object with the action ([`super::read_action`]).
    pub action: &'a str,
}

/// A question about tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskQuestion {
    /// All tasks of a split.
    List,
    /// How many a split has.
    Count,
    /// One task.
    One,
    /// Several tasks.
    Range,
}

/// Most characters of names that clients give.
const MAX_NAME: usize = 255;

impl ResetRequest {
    /// Reads the text of an object.
    ///
    /// # Errors
    /// If it is none, or a field is not as it has to be.
    pub fn read(text: &str) -> Result<Self, BadBody> {
        let [seed, episode_id, options] = Parts::of(text, ["seed", "episode_id", "options"])?.values;
        let seed = given(seed).map(|text| seed_of(text).map_err(|fault| fault.within("seed")));
        let episode_id = name(episode_id, "episode_id")?;
        let options = given(options).map(|text| {
            let bad =
                |error: serde_json::Error| Fault::new("value_error", error.to_string()).within("options");
            serde_json::from_str::<Named>(text).map_err(bad)
        });
        let options = options.transpose()?.map(|named| named.0).unwrap_or_default();
        Ok(Self { seed: seed.transpose()?, episode_id, options })
    }
}

impl<'a> StepBody<'a> {
    /// Reads the text of an object.
    ///
    /// # Errors
    /// If it is none, or a field is not as it has to be.
    pub fn read(text: &'a str) -> Result<Self, BadBody> {
        let [action, timeout, request] = Parts::of(text, ["action", "timeout_s", "request_id"])?.values;
        let action = action.map(RawValue::get).ok_or_else(|| Fault::missing("action"))?;
        if let Some(text) = given(timeout) {
            let seconds = serde_json::from_str::<f64>(text);
            let fault = match seconds {
                Ok(seconds) if seconds > 0.0 => None,
                Ok(seconds) => Some(
                    Fault::new("greater_than", "Input should be greater than 0").of(Scalar::Float(seconds)),
                ),
                Err(_) => Some(Fault::new("float_type", "Input should be a valid number")),
            };
            if let Some(fault) = fault {
                return Err(fault.within("timeout_s").into());
            }
        }
        name(request, "request_id")?;
        Ok(Self { action })
    }
}

impl TaskQuestion {
    /// Returns the name of the method that OpenEnv's own server does not find in an env without tasks.
    pub const fn method(self) -> &'static str {
        match self {
            Self::List => "list_tasks",
            Self::Count => "num_tasks",
            Self::One => "get_task",
            Self::Range => "get_task_range",
        }
    }

    /// Checks the body of the question; nothing is kept of it, for our envs have no tasks.
    ///
    /// # Errors
    /// If it is no object, or a field is not as it has to be.
    pub fn check(self, text: &str) -> Result<(), BadBody> {
        let wanted: &[&str] = if self == Self::One { &["index"] } else { &[] };
        let allowed: &[&str] = if self == Self::Range { &["start", "stop"] } else { wanted };
        let [split, numbers @ ..] = Parts::of(text, ["split", "index", "start", "stop"])?.only()?;
        let split = split.ok_or_else(|| Fault::missing("split"))?;
        if serde_json::from_str::<String>(split.get()).is_err() {
            return Err(Fault::new("string_type", "Input should be a valid string").within("split").into());
        }
        for (number, name) in numbers.into_iter().zip(["index", "start", "stop"]) {
            let is_null = |text: &str| text == "null" && !wanted.contains(&name);
            match number.map(RawValue::get) {
                None if wanted.contains(&name) => return Err(Fault::missing(name).into()),
                Some(_) if !allowed.contains(&name) => return Err(Fault::extra(name).into()),
                Some(text) if !is_null(text) && serde_json::from_str::<i64>(text).is_err() => {
                    return Err(Fault::new("int_type", "Input should be a valid integer")
                        .within(name)
                        .into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the text of a field that is there and not null.
fn given(part: Option<&RawValue>) -> Option<&str> {
    part.map(RawValue::get).filter(|text| *text != "null")
}

fn seed_of(text: &str) -> Result<u64, Fault> {
    if let Ok(seed) = serde_json::from_str::<u64>(text) {
        return Ok(seed);
    }
    let number = serde_json::from_str::<f64>(text);
    let number = number.map_err(|_| Fault::new("int_type", "Input should be a valid integer"))?;
    if number < 0.0 {
        let fault = Fault::new("greater_than_equal", "Input should be greater than or equal to 0");
        return Err(fault.of(Scalar::Float(number)));
    }
    if number.fract() != 0.0 || number > EXACT {
        let why = "Input should be a valid integer, got a number with a fractional part or beyond 64 bits";
        return Err(Fault::new("int_from_float", why).of(Scalar::Float(number)));
    }
    Ok(number as u64)
}

/// Number up to which float64 has every integer.
const EXACT: f64 = (1_u64 << 53) as f64;

/// Reads a name of at most 255 characters, if one is given.
fn name(part: Option<&RawValue>, field: &str) -> Result<Option<String>, Fault> {
    let Some(text) = given(part) else { return Ok(None) };
    let read = serde_json::from_str::<String>(text);
    let read = read.map_err(|_| Fault::new("string_type", "Input should be a valid string").within(field))?;
    if read.chars().count() > MAX_NAME {
        let why = format!("String should have at most {MAX_NAME} characters");
        return Err(Fault::new("string_too_long", why).within(field));
    }
    Ok(Some(read))
}

/// Options by their names, of which there are no more than an env may have.
struct Named(Vec<(String, OptionValue)>);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(NamedVisitor)
    }
}

struct NamedVisitor;

impl<'de> Visitor<'de> for NamedVisitor {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of options by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
        let mut options = Vec::new();
        while let Some(option) = map.next_entry()? {
            if options.len() == MAX_OPTIONS {
                return Err(A::Error::custom(format_args!("more than {MAX_OPTIONS} options")));
            }
            options.push(option);
        }
        Ok(Named(options))
    }
}
