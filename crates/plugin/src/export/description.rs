//! What the envs of a plug-in in Rust say of themselves, as the interface has it.

use std::ffi::{CString, c_char};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use rollhouse_core::{
    BoxSpace, CompositeSpace, DType, Determinism, DiscreteSpace, MethodSpec, ObservationSpace, OptionValue,
    Options, Role, Space,
};
use rollhouse_env::{EnvEntry, InstructionSet};

use crate::abi;
use crate::block::plain_value;
use crate::description::DTYPES;

/// Describes an env. What it points to is never freed, as the interface demands.
pub(super) fn description(entry: &EnvEntry) -> abi::Description {
    let spec = entry.spec();
    let mut observation = Vec::new();
    spaces(&spec.observation_space, ptr::null(), &mut observation);
    let action = actions(&spec.action_space);
    let infos = spec.info_channels.iter().map(|channel| {
        let shape = channel.shape.iter().map(|&extent| extent as u64).collect::<Vec<_>>();
        let (axes, dtype) = (shape.len() as u32, dtype(channel.dtype));
        let kind = if channel.role == Role::ActionMask { abi::ACTION_MASK } else { abi::BOX };
        abi::Space { name: kept_text(&channel.path), kind, axes, shape: kept(shape), dtype, ..SPACE }
    });
    let options = spec.options.iter().map(|option| {
        let kind = match option.default {
            OptionValue::Bool(_) => abi::FLAG,
            OptionValue::Int(_) => abi::INTEGER,
            OptionValue::Float(_) => abi::NUMBER,
            OptionValue::Text(_) => abi::TEXT,
            OptionValue::List(_) => abi::LIST,
            // The loader refuses it.
            OptionValue::Drawn(_) => 0,
        };
        let (default_value, sequence) = plain_value(&option.default)
            .unwrap_or((abi::Value { integer: 0, number: 0.0 }, abi::Sequence::NONE));
        let (name, summary) = (kept_text(&option.name), kept_text(&option.summary));
        (abi::OptionOf { name, summary, kind, reserved: 0, default_value }, sequence)
    });
    // The defaults are those of an entry that is exported, which is never freed.
    let (options, option_defaults): (Vec<_>, Vec<_>) = options.unzip();
    let names = |names: &[String]| kept(names.iter().map(|name| kept_text(name)).collect());
    let drawn = entry.render_size();
    abi::Description {
        size: abi::size::<abi::Description>(),
        deterministic: (spec.determinism == Determinism::Deterministic).into(),
        id: kept_text(&spec.id),
        summary: kept_text(&spec.summary),
        observation_count: observation.len() as u32,
        observation: kept(observation),
        action_count: action.len() as u32,
        action: kept(action),
        info_count: spec.info_channels.len() as u32,
        infos: kept(infos.collect()),
        option_count: spec.options.len() as u32,
        options: kept(options),
        observation_name_count: spec.observation_names.len() as u32,
        observation_names: names(&spec.observation_names),
        action_name_count: spec.action_names.len() as u32,
        action_names: names(&spec.action_names),
        max_episode_steps: spec.max_episode_steps.unwrap_or_default(),
        render_width: drawn.map_or(0, |size| size.width() as u32),
        render_height: drawn.map_or(0, |size| size.height() as u32),
        render_fps: entry.render_fps().unwrap_or_default(),
        option_defaults: kept(option_defaults),
        no_verdicts: (!has_verdicts(entry)).into(),
        method_count: spec.methods.len() as u32,
        methods: kept(spec.methods.iter().map(method).collect()),
    }
}

/// Returns the space of actions with its parts behind it.
fn actions(space: &Space) -> Vec<abi::Space> {
    let mut action = Vec::new();
    match space {
        Space::Box(BoxSpace { parts: Some(parts), .. }) => composite(parts, ptr::null(), &mut action),
        space => action.push(plain(space)),
    }
    action
}

fn method(MethodSpec { name, summary, params, changes, max_per_second }: &MethodSpec) -> abi::Method {
    let optional = |text: &str| if text.is_empty() { ptr::null() } else { kept_text(text) };
    abi::Method {
        name: kept_text(name),
        summary: optional(summary),
        params: optional(params),
        changes: (*changes).into(),
        max_per_second: max_per_second.map_or(0, NonZeroU32::get),
    }
}

/// Returns whether a lane of the env may give an episode a result or a score; one that cannot be made may.
fn has_verdicts(entry: &EnvEntry) -> bool {
    let Ok(options) = Options::check(&entry.spec().options, &[]) else { return true };
    let made = catch_unwind(AssertUnwindSafe(|| {
        let block = entry.make_block_on(InstructionSet::best(), &[options]);
        block.map_or(true, |block| block.has_verdicts())
    }));
    made.unwrap_or(true)
}

/// A box without axes, bounds and name.
const SPACE: abi::Space = abi::Space {
    name: ptr::null(),
    kind: abi::BOX,
    dtype: 0,
    parts: 0,
    axes: 0,
    shape: ptr::null(),
    low: ptr::null(),
    high: ptr::null(),
    bounds: 0,
    start: 0,
    n: 0,
};

/// Adds a space under that name, with its parts behind it.
fn spaces(space: &ObservationSpace, name: *const c_char, to: &mut Vec<abi::Space>) {
    match space {
        ObservationSpace::Plain(space) => to.push(abi::Space { name, ..plain(space) }),
        ObservationSpace::Composite(space) => composite(space, name, to),
    }
}

fn composite(space: &CompositeSpace, name: *const c_char, to: &mut Vec<abi::Space>) {
    match space {
        CompositeSpace::Dict { spaces: parts } => {
            to.push(abi::Space { name, kind: abi::DICT, parts: parts.len() as u32, ..SPACE });
            parts.iter().for_each(|(name, space)| spaces(space, kept_text(name), to));
        }
        CompositeSpace::Tuple { spaces: parts } => {
            to.push(abi::Space { name, kind: abi::TUPLE, parts: parts.len() as u32, ..SPACE });
            parts.iter().for_each(|space| spaces(space, ptr::null(), to));
        }
        CompositeSpace::Text(text) => {
            let codes: Vec<u64> =
                text.characters().chars().map(|character| u32::from(character).into()).collect();
            let (axes, start, n) = (codes.len() as u32, text.min_length() as i64, text.max_length() as u64);
            to.push(abi::Space { name, kind: abi::STRING, axes, shape: kept(codes), start, n, ..SPACE });
        }
        CompositeSpace::Sequence(sequence) => {
            let (start, n) = (sequence.stack().into(), sequence.maximum() as u64);
            to.push(abi::Space { name, kind: abi::SEQUENCE, parts: 1, start, n, ..SPACE });
            match sequence.item().parts() {
                Some(parts) => composite(parts, ptr::null(), to),
                None => to.push(plain(sequence.item())),
            }
        }
    }
}

fn plain(space: &Space) -> abi::Space {
    match space {
        Space::Discrete(DiscreteSpace { n, start, own: _ }) => {
            abi::Space { kind: abi::DISCRETE, n: *n, start: *start, ..SPACE }
        }
        Space::Box(BoxSpace { low, high, shape, dtype: of, choices: _, parts: _, own: _ }) => {
            // One is that of all elements.
            let bounds = low.numbers().len().max(high.numbers().len());
            abi::Space {
                dtype: dtype(*of),
                axes: shape.len() as u32,
                shape: kept(shape.iter().map(|&extent| extent as u64).collect()),
                bounds: bounds as u64,
                low: kept(low.iter().take(bounds).collect()),
                high: kept(high.iter().take(bounds).collect()),
                ..SPACE
            }
        }
    }
}

/// Returns the number of an element type.
fn dtype(of: DType) -> u32 {
    (1..).zip(DTYPES).find(|&(_, dtype)| dtype == of).map_or(0, |(number, _)| number)
}

/// Returns a list that is never freed.
fn kept<T>(list: Vec<T>) -> *const T {
    Vec::leak(list).as_ptr()
}

/// Returns a text that is never freed; NULL, which the loader refuses, if there is a 0 in it.
fn kept_text(text: &str) -> *const c_char {
    CString::new(text).map_or(ptr::null(), |text| text.into_raw().cast_const())
}
