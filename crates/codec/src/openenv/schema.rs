//! Spaces as JSON Schema.

use rollhouse_core::{BoxSpace, ColumnSpec, CompositeSpace, DType, EnvSpec, ObservationSpace, Space};
use serde_json::{Map, Value, json};

use super::observation::shown_infos;

/// Whose values a schema describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Actions, whose bounds clients keep.
    Action,
    /// Observations: envs show numbers that are not finite as null, and may leave their bounds.
    Observation,
}

/// Most elements of a list whose bounds are said one by one.
const MAX_APART: usize = 64;

/// Returns the schema of an action's object.
pub(crate) fn action(spec: &EnvSpec) -> Value {
    let mut value = plain(&spec.action_space, Side::Action);
    match &spec.action_space {
        Space::Discrete(space) if !spec.action_names.is_empty() => {
            let name =
                |(place, name): (i64, &String)| format!("{}: {name}", space.start.saturating_add(place));
            let names: Vec<_> = (0..).zip(&spec.action_names).map(name).collect();
            value["description"] = names.join(", ").into();
        }
        // Parts have their own names.
        Space::Box(space) if space.parts.is_none() && !spec.action_names.is_empty() => {
            value["description"] = spec.action_names.join(", ").into();
        }
        _ => {}
    }
    let metadata = json!({ "type": "object", "additionalProperties": true, "description": "passed over" });
    json!({
        "title": "Action",
        "type": "object",
        "additionalProperties": false,
        "required": ["action"],
        "properties": { "action": value, "metadata": metadata },
    })
}

/// Returns the schema of an observation's object, with reward and end of the episode beside it.
pub(crate) fn observation(spec: &EnvSpec) -> Value {
    let mut value = space(&spec.observation_space, Side::Observation);
    if spec.observation_space.plain().is_some() && !spec.observation_names.is_empty() {
        value["description"] = spec.observation_names.join(", ").into();
    }
    let flag = |what: &str| json!({ "type": "boolean", "description": what });
    let mut properties = Map::new();
    let mut add = |name: &str, value: Value| properties.insert(name.to_owned(), value);
    add("obs", value);
    add("terminated", flag("whether the episode ended by itself"));
    add("truncated", flag("whether the episode was cut, as by its time limit"));
    add("done", flag("whether the episode is over"));
    add("reward", json!({ "type": ["number", "null"], "description": "null after a reset" }));
    add("metadata", json!({ "type": "object", "additionalProperties": true }));
    let infos: Map<String, Value> =
        shown_infos(spec).map(|(_, channel)| (channel.path.clone(), column(channel))).collect();
    if !infos.is_empty() {
        let infos = json!({ "type": "object", "additionalProperties": false, "properties": infos });
        add("infos", infos);
    }
    json!({
        "title": "Observation",
        "type": "object",
        "additionalProperties": false,
        "required": ["obs", "terminated", "truncated"],
        "properties": properties,
    })
}

/// Returns the schema of a state.
pub(crate) fn state() -> Value {
    json!({
        "title": "State",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "episode_id": { "type": ["string", "null"], "description": "null before the first reset" },
            "step_count": { "type": "integer", "minimum": 0 },
            "done": { "type": "boolean" },
        },
    })
}

fn space(space: &ObservationSpace, side: Side) -> Value {
    match space {
        ObservationSpace::Plain(space) => plain(space, side),
        ObservationSpace::Composite(parts) => composite(parts, side),
    }
}

fn plain(space: &Space, side: Side) -> Value {
    match space {
        Space::Discrete(space) => {
            let last = i128::from(space.start) + i128::from(space.n) - 1;
            json!({ "type": "integer", "minimum": space.start, "maximum": i64::try_from(last).unwrap_or(i64::MAX) })
        }
        Space::Box(space) => match &space.parts {
            Some(parts) => composite(parts, side),
            None => boxed(space, side),
        },
    }
}

fn composite(parts: &CompositeSpace, side: Side) -> Value {
    match parts {
        CompositeSpace::Dict { spaces } => {
            let names: Vec<_> = spaces.iter().map(|(name, _)| name).collect();
            let parts: Map<String, Value> =
                spaces.iter().map(|(name, part)| (name.clone(), space(part, side))).collect();
            json!({ "type": "object", "additionalProperties": false, "required": names, "properties": parts })
        }
        CompositeSpace::Tuple { spaces } => {
            let parts: Vec<_> = spaces.iter().map(|part| space(part, side)).collect();
            list(spaces.len(), &json!({ "prefixItems": parts, "items": false }))
        }
        CompositeSpace::Text(text) => {
            let (least, most) = (text.min_length(), text.max_length());
            let characters = format!("characters of {:?}", text.characters());
            json!({ "type": "string", "minLength": least, "maxLength": most, "description": characters })
        }
        CompositeSpace::Sequence(sequence) => {
            json!({ "type": "array", "maxItems": sequence.maximum(), "items": plain(sequence.item(), side) })
        }
    }
}

fn boxed(space: &BoxSpace, side: Side) -> Value {
    let elements = space.low.len();
    let are_same = space.low.numbers().len() <= 1 && space.high.numbers().len() <= 1;
    if let ([_], false, true) = (&space.shape[..], are_same, elements <= MAX_APART) {
        let bounds = space.low.iter().zip(space.high.iter());
        let items: Vec<_> = bounds.map(|bounds| element(space.dtype, bounds, side)).collect();
        return list(elements, &json!({ "prefixItems": items, "items": false }));
    }
    let low = space.low.numbers().iter().copied().fold(f64::INFINITY, f64::min);
    let high = space.high.numbers().iter().copied().fold(f64::NEG_INFINITY, f64::max);
    nested(&space.shape, element(space.dtype, (low, high), side))
}

fn column(channel: &ColumnSpec) -> Value {
    let unbounded = (f64::NEG_INFINITY, f64::INFINITY);
    nested(&channel.shape, element(channel.dtype, unbounded, Side::Observation))
}

fn nested(shape: &[usize], element: Value) -> Value {
    shape.iter().rev().fold(element, |items, extent| list(*extent, &json!({ "items": items })))
}

fn list(items: usize, of: &Value) -> Value {
    let mut list = json!({ "type": "array", "minItems": items, "maxItems": items });
    if let (Value::Object(list), Value::Object(of)) = (&mut list, of) {
        list.extend(of.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    list
}

fn element(dtype: DType, (low, high): (f64, f64), side: Side) -> Value {
    let is_real = matches!(dtype, DType::F32 | DType::F64);
    let mut element = match (dtype, is_real, side) {
        (DType::Bool, _, _) => return json!({ "type": "boolean" }),
        (_, false, _) => json!({ "type": "integer" }),
        (_, _, Side::Action) => json!({ "type": "number" }),
        (_, _, Side::Observation) => json!({ "type": ["number", "null"] }),
    };
    if side == Side::Action || !is_real {
        for (name, bound) in [("minimum", low), ("maximum", high)] {
            if bound.is_finite() {
                element[name] = match (is_real, dtype) {
                    (false, _) => json!(bound as i64),
                    // With the digits of the type, as the numbers have them.
                    (_, DType::F32) => digits(bound as f32),
                    _ => json!(bound),
                };
            }
        }
    }
    element
}

/// Returns a float32 with as many digits as it needs.
fn digits(number: f32) -> Value {
    serde_json::from_str(&serde_json::to_string(&number).unwrap_or_default()).unwrap_or(Value::Null)
}
