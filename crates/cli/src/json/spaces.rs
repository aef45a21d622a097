//! Envs, spaces and columns as JSON, with NumPy's names of element types.

use std::num::NonZeroU32;

use rollhouse_core::{
    Bounds, ColumnSpec, CompositeSpace, Determinism, EnvSpec, MethodSpec, ObservationSpace, OptionSpec,
    OwnDType, Role, Space,
};
use serde::Serialize;

use super::dynamics;

/// An env: a line of `rollhouse envs --json`. A bound that is not finite is null.
#[derive(Debug, Serialize)]
pub struct EnvObject<'a> {
    env: &'a str,
    summary: &'a str,
    observation_space: SpaceObject<'a>,
    action_space: SpaceObject<'a>,
    observation_names: &'a [String],
    action_names: &'a [String],
    max_episode_steps: Option<u32>,
    deterministic: bool,
    methods: Vec<MethodObject<'a>>,
    options: &'a [OptionSpec],
    info_channels: Vec<InfoObject<'a>>,
    dynamics: String,
}

impl<'a> From<&'a EnvSpec> for EnvObject<'a> {
    fn from(spec: &'a EnvSpec) -> Self {
        Self {
            env: &spec.id,
            summary: &spec.summary,
            observation_space: SpaceObject::from(&spec.observation_space),
            action_space: SpaceObject::from(&spec.action_space),
            observation_names: &spec.observation_names,
            action_names: &spec.action_names,
            max_episode_steps: spec.max_episode_steps,
            deterministic: spec.determinism == Determinism::Deterministic,
            methods: spec.methods.iter().map(MethodObject::from).collect(),
            options: &spec.options,
            info_channels: spec.info_channels.iter().map(InfoObject::from).collect(),
            dynamics: dynamics(spec.dynamics_hash),
        }
    }
}

/// A method that can be called on a lane.
#[derive(Debug, Serialize)]
struct MethodObject<'a> {
    name: &'a str,
    summary: &'a str,
    params: Option<&'a str>,
    changes: bool,
    max_per_second: Option<NonZeroU32>,
}

impl<'a> From<&'a MethodSpec> for MethodObject<'a> {
    fn from(method: &'a MethodSpec) -> Self {
        Self {
            name: &method.name,
            summary: &method.summary,
            params: Some(&*method.params).filter(|schema| !schema.is_empty()),
            changes: method.changes,
            max_per_second: method.max_per_second,
        }
    }
}

/// A column of info that each step gives.
#[derive(Debug, Serialize)]
struct InfoObject<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [usize],
    role: Role,
}

impl<'a> From<&'a ColumnSpec> for InfoObject<'a> {
    fn from(column: &'a ColumnSpec) -> Self {
        Self { name: &column.path, dtype: column.dtype.name(), shape: &column.shape, role: column.role }
    }
}

/// A column in which something was noted of each step.
#[derive(Debug, Serialize)]
pub struct StepColumnObject<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [usize],
}

impl<'a> From<&'a ColumnSpec> for StepColumnObject<'a> {
    fn from(column: &'a ColumnSpec) -> Self {
        Self { name: &column.path, dtype: column.dtype.name(), shape: &column.shape }
    }
}

/// A space, as `rollhouse.env_spec` in Python has it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum SpaceObject<'a> {
    Box {
        kind: &'static str,
        low: &'a Bounds,
        high: &'a Bounds,
        shape: &'a [usize],
        dtype: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parts: Option<Box<Self>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        own: Option<&'static str>,
    },
    Discrete {
        kind: &'static str,
        n: u64,
        start: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        own: Option<&'static str>,
    },
    Dict {
        kind: &'static str,
        spaces: Vec<(&'a str, Self)>,
    },
    Tuple {
        kind: &'static str,
        spaces: Vec<Self>,
    },
    Text {
        kind: &'static str,
        min_length: usize,
        max_length: usize,
        characters: &'a str,
    },
    Sequence {
        kind: &'static str,
        item: Box<Self>,
        maximum: usize,
        stack: bool,
    },
}

impl<'a> From<&'a Space> for SpaceObject<'a> {
    fn from(space: &'a Space) -> Self {
        let own = space.own().map(OwnDType::name);
        match space {
            Space::Discrete(space) => {
                Self::Discrete { kind: "discrete", n: space.n, start: space.start, own }
            }
            Space::Box(space) => Self::Box {
                kind: space.kind(),
                low: &space.low,
                high: &space.high,
                shape: &space.shape,
                dtype: space.dtype.name(),
                parts: space.parts.as_deref().map(|parts| Box::new(Self::from(parts))),
                own,
            },
        }
    }
}

impl<'a> From<&'a CompositeSpace> for SpaceObject<'a> {
    fn from(space: &'a CompositeSpace) -> Self {
        match space {
            CompositeSpace::Dict { spaces } => {
                let part = |(name, space): &'a (String, ObservationSpace)| (name.as_str(), Self::from(space));
                Self::Dict { kind: "dict", spaces: spaces.iter().map(part).collect() }
            }
            CompositeSpace::Tuple { spaces } => {
                Self::Tuple { kind: "tuple", spaces: spaces.iter().map(Self::from).collect() }
            }
            CompositeSpace::Text(text) => Self::Text {
                kind: "text",
                min_length: text.min_length(),
                max_length: text.max_length(),
                characters: text.characters(),
            },
            CompositeSpace::Sequence(sequence) => Self::Sequence {
                kind: "sequence",
                item: Box::new(Self::from(sequence.item())),
                maximum: sequence.maximum(),
                stack: sequence.stack(),
            },
        }
    }
}

impl<'a> From<&'a ObservationSpace> for SpaceObject<'a> {
    fn from(space: &'a ObservationSpace) -> Self {
        match space {
            ObservationSpace::Plain(plain) => Self::from(plain),
            ObservationSpace::Composite(parts) => Self::from(parts),
        }
    }
}
