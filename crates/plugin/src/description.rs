//! Reads what an env of a plug-in says of itself.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ffi::c_char;
use std::num::NonZeroU32;
use std::{ptr, slice};

use rollhouse_core::limits::{
    MAX_CHARACTERS, MAX_ELEMENT_NAMES, MAX_ENV_ID_BYTES, MAX_METHOD_NAME_BYTES, MAX_METHOD_TEXT_BYTES,
    MAX_METHODS, MAX_NAME_BYTES, MAX_OBS_COLUMNS, MAX_OPTION_NUMBERS, MAX_OPTION_TEXT_BYTES, MAX_OPTIONS,
    MAX_ROW_ELEMENTS, MAX_SPACE_DEPTH,
};
use rollhouse_core::{
    Bounds, BoxSpace, ColumnSpec, CompositeSpace, DType, Determinism, DiscreteSpace, EnvSource, EnvSpec,
    MethodSpec, ObservationSpace, OptionSpec, OptionValue, Role, SequenceSpace, Space, TextSpace,
};
use rollhouse_env::ImageSize;

use crate::abi;
use crate::block::Functions;
use crate::error::{DescriptionError, PluginFault};
use crate::structure::grown;

/// Maximum number of bytes in a summary.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Maximum number of spaces, with parts of parts, in an observation.
const MAX_SPACES: usize = MAX_OBS_COLUMNS * MAX_SPACE_DEPTH;

/// Maximum number of axes of a box.
const MAX_AXES: usize = 64;

/// An env's spec without its dynamics hash, and size and rate of its pictures.
#[derive(Clone)]
pub(crate) struct Described {
    pub(crate) spec: EnvSpec,
    /// Whether the plug-in may give its episodes a result or a score.
    pub(crate) verdicts: bool,
    pub(crate) drawn: Option<(ImageSize, u32)>,
}

/// Asks a plug-in for the description of an env and reads it.
///
/// # Errors
/// The inner `Ok` of a description that makes no sense, the inner `Err` of anything else.
pub(crate) fn described(
    functions: &Functions,
    env: u32,
) -> Result<Described, Result<DescriptionError, PluginFault>> {
    // SAFETY: the table's own function, called with the number of an env that the table has.
    let description = unsafe { (functions.describe)(env) };
    if description.is_null() {
        return Err(Ok(DescriptionError::Null { member: "describe()".to_owned() }));
    }
    // SAFETY: a description begins with its size.
    let size = unsafe { ptr::read_unaligned(description.cast::<u32>()) };
    // SAFETY: a description has as many bytes as it says. Zeros are an empty one.
    let description = unsafe { grown("description", description, size) }.map_err(Err)?;
    read(functions, &description).map_err(Ok)
}

fn read(functions: &Functions, from: &abi::Description) -> Result<Described, DescriptionError> {
    let spaces = list(from.observation, from.observation_count, MAX_SPACES, "observation")?;
    let mut reader = Spaces { spaces, at: 0, member: "observation" };
    let (_, observation_space) = reader.next(0)?;
    if reader.at != spaces.len() {
        return Err(value("observation_count", spaces.len(), format!("{}, with all parts", reader.at)));
    }
    let action_space = action(list(from.action, from.action_count.max(1), MAX_SPACES, "action")?)?;
    let elements = observation_space.elements();
    if elements > MAX_ROW_ELEMENTS {
        return Err(many("observation", elements as u64, MAX_ROW_ELEMENTS));
    }
    let actions = match &action_space {
        Space::Discrete(space) => space.n,
        Space::Box(_) => action_space.elements() as u64,
    };
    let (observation_names, action_names) = (
        names(from.observation_names, from.observation_name_count, elements as u64, "observation_names")?,
        names(from.action_names, from.action_name_count, actions, "action_names")?,
    );
    let drawn = match (from.render_width, from.render_height) {
        (0, 0) => None,
        (width, height) => {
            let size = ImageSize::new(width as usize, height as usize)
                .map_err(|error| value("render_width", width, error.to_string()))?;
            Some((size, at_least_one("render_fps", from.render_fps)?))
        }
    };
    let spec = EnvSpec {
        id: text(from.id, MAX_ENV_ID_BYTES, "id")?,
        source: EnvSource::PlugIn,
        summary: text(from.summary, MAX_TEXT_BYTES, "summary")?,
        observation_space,
        action_space,
        observation_names,
        action_names,
        max_episode_steps: (from.max_episode_steps > 0).then_some(from.max_episode_steps),
        determinism: match from.deterministic {
            0 => Determinism::NonDeterministic,
            1 => Determinism::Deterministic,
            other => return Err(value("deterministic", other, "0 or 1")),
        },
        methods: methods(list(from.methods, from.method_count, MAX_METHODS, "methods")?)?,
        options: options(from)?,
        info_channels: infos(list(from.infos, from.info_count, MAX_OBS_COLUMNS, "infos")?)?,
        dynamics_hash: 0,
    };
    let verdicts = functions.verdict.is_some() && from.no_verdicts == 0;
    Ok(Described { spec, verdicts, drawn })
}

/// Reads the space of the actions; one of several columns is carried as one.
fn action(spaces: &[abi::Space]) -> Result<Space, DescriptionError> {
    let mut reader = Spaces { spaces, at: 0, member: "action" };
    let (_, space) = reader.next(0)?;
    if reader.at != spaces.len() {
        return Err(value("action_count", spaces.len(), format!("{}, with all parts", reader.at)));
    }
    match space {
        ObservationSpace::Plain(space) => Ok(space),
        ObservationSpace::Composite(parts) => carrier(parts, "action[0]"),
    }
}

/// Returns the box that carries values of several columns as one.
fn carrier(parts: CompositeSpace, member: &str) -> Result<Space, DescriptionError> {
    let elements: usize = parts.columns().iter().map(|(_, space)| space.elements()).sum();
    if elements > MAX_ROW_ELEMENTS {
        return Err(many(member, elements as u64, MAX_ROW_ELEMENTS));
    }
    BoxSpace::of_parts(parts).map(Space::Box).map_err(|why| value(member, why, "carried exactly"))
}

/// Spaces in the order in which they stand, each before its parts.
struct Spaces<'a> {
    spaces: &'a [abi::Space],
    at: usize,
    member: &'static str,
}

impl Spaces<'_> {
    /// Reads a space with its parts, which is itself a part `depth` spaces deep.
    fn next(&mut self, depth: usize) -> Result<(*const c_char, ObservationSpace), DescriptionError> {
        let at = self.at;
        let member = self.member;
        let of = |field: &str| format!("{member}[{at}].{field}");
        let Some(space) = self.spaces.get(at) else {
            return Err(value(format!("{}_count", self.member), at, "larger: a part is missing"));
        };
        self.at += 1;
        let read = match space.kind {
            abi::BOX => box_space(space, &of)?.into(),
            abi::DISCRETE => discrete(space, &of)?.into(),
            abi::DICT | abi::TUPLE if depth == MAX_SPACE_DEPTH => {
                return Err(many(of("parts"), depth as u64 + 1, MAX_SPACE_DEPTH));
            }
            abi::DICT => {
                let mut spaces: Vec<(String, ObservationSpace)> = Vec::new();
                for _ in 0..at_least_one(of("parts"), space.parts)? {
                    let part = format!("{}[{}].name", self.member, self.at);
                    let (name, space) = self.next(depth + 1)?;
                    let name = text(name, MAX_NAME_BYTES, &part)?;
                    if name.contains('/') || spaces.iter().any(|(other, _)| *other == name) {
                        return Err(value(part, name, "another than its siblings' and without /"));
                    }
                    spaces.push((name, space));
                }
                CompositeSpace::Dict { spaces }.into()
            }
            abi::TUPLE => {
                let parts = at_least_one(of("parts"), space.parts)?;
                let spaces = (0..parts).map(|_| self.next(depth + 1).map(|(_, space)| space));
                CompositeSpace::Tuple { spaces: spaces.collect::<Result<_, _>>()? }.into()
            }
            abi::STRING => string(space, &of)?.into(),
            abi::SEQUENCE => self.sequence(space, depth, &of)?.into(),
            other => {
                return Err(value(
                    of("kind"),
                    other,
                    "that of a box, discrete, dict, tuple, string or sequence",
                ));
            }
        };
        Ok((space.name, read))
    }

    /// Reads the items of a sequence, which follow it.
    fn sequence(
        &mut self,
        space: &abi::Space,
        depth: usize,
        of: &dyn Fn(&str) -> String,
    ) -> Result<CompositeSpace, DescriptionError> {
        if space.parts != 1 {
            return Err(value(of("parts"), space.parts, "1: the space of its items"));
        }
        let stack = match space.start {
            0 => false,
            1 => true,
            other => return Err(value(of("start"), other, "0 or 1")),
        };
        if depth == MAX_SPACE_DEPTH {
            return Err(many(of("parts"), depth as u64 + 1, MAX_SPACE_DEPTH));
        }
        let item = match self.next(depth + 1)?.1 {
            ObservationSpace::Plain(item) => item,
            ObservationSpace::Composite(parts) => carrier(parts, &of("parts"))?,
        };
        let maximum = usize::try_from(space.n).unwrap_or(usize::MAX);
        let made = SequenceSpace::new(item, maximum, stack);
        Ok(made.map_err(|why| value(of("n"), space.n, why.to_string()))?.into())
    }
}

fn string(space: &abi::Space, of: &dyn Fn(&str) -> String) -> Result<CompositeSpace, DescriptionError> {
    let codes = list(space.shape, space.axes, MAX_CHARACTERS, &of("shape"))?;
    let (mut characters, mut known) = (String::new(), BTreeSet::new());
    for &code in codes {
        let character = u32::try_from(code).ok().and_then(char::from_u32);
        let character = character.filter(|&character| known.insert(character));
        characters.push(character.ok_or_else(|| value(of("shape"), code, "another character's code point"))?);
    }
    let least = usize::try_from(space.start).map_err(|_| value(of("start"), space.start, "at least 0"))?;
    let made = TextSpace::new(least, usize::try_from(space.n).unwrap_or(usize::MAX), characters);
    Ok(made.map_err(|why| value(of("n"), space.n, why.to_string()))?.into())
}

fn box_space(space: &abi::Space, of: &dyn Fn(&str) -> String) -> Result<Space, DescriptionError> {
    let (shape, elements) = shape(space, of)?;
    if space.bounds != 1 && space.bounds != elements as u64 {
        return Err(value(of("bounds"), space.bounds, format!("1 or {elements}, as `shape` says")));
    }
    // Fits: it is 1 or at most MAX_ROW_ELEMENTS.
    let count = space.bounds as u32;
    let bounds = |from, field: &str| -> Result<Bounds, DescriptionError> {
        let given = list(from, count, MAX_ROW_ELEMENTS, &of(field))?;
        Ok(if given.len() == elements { given.to_vec().into() } else { Bounds::all(given[0], elements) })
    };
    let (low, high) = (bounds(space.low, "low")?, bounds(space.high, "high")?);
    let in_order = |index: usize| low[index].partial_cmp(&high[index]).is_some_and(Ordering::is_le);
    if let Some(index) = (0..elements).find(|&index| !in_order(index)) {
        return Err(value(of(&format!("low[{index}]")), low[index], format!("at most {}", high[index])));
    }
    Ok(Space::Box(BoxSpace {
        low,
        high,
        shape,
        dtype: dtype(space.dtype, of)?,
        choices: false,
        parts: None,
        own: None,
    }))
}

fn discrete(space: &abi::Space, of: &dyn Fn(&str) -> String) -> Result<Space, DescriptionError> {
    // The largest value has to be an int64.
    let last = space.n.checked_sub(1).and_then(|more| space.start.checked_add_unsigned(more));
    match last {
        Some(_) => Ok(Space::Discrete(DiscreteSpace { n: space.n, start: space.start, own: None })),
        None => Err(value(of("n"), space.n, format!("1 to 2^63 - {}", space.start))),
    }
}

fn shape(space: &abi::Space, of: &dyn Fn(&str) -> String) -> Result<(Vec<usize>, usize), DescriptionError> {
    let (mut shape, mut elements) = (Vec::new(), 1u64);
    for &extent in list(space.shape, space.axes, MAX_AXES, &of("shape"))? {
        elements = elements.saturating_mul(extent);
        if extent == 0 {
            return Err(value(of("shape"), 0, "at least 1 on each axis"));
        }
        if elements > MAX_ROW_ELEMENTS as u64 {
            return Err(many(of("shape"), elements, MAX_ROW_ELEMENTS));
        }
        // Fits: no extent is above the number of elements.
        shape.push(extent as usize);
    }
    Ok((shape, elements as usize))
}

fn dtype(number: u32, of: &dyn Fn(&str) -> String) -> Result<DType, DescriptionError> {
    match DTYPES.get((number as usize).wrapping_sub(1)) {
        Some(&dtype) => Ok(dtype),
        None => Err(value(of("dtype"), number, "that of an element type")),
    }
}

/// Element types in the order of their numbers, which begin with 1.
pub(crate) const DTYPES: [DType; 6] =
    [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];

fn infos(spaces: &[abi::Space]) -> Result<Vec<ColumnSpec>, DescriptionError> {
    let columns = spaces.iter().enumerate().map(|(at, space)| {
        let of = |field: &str| format!("infos[{at}].{field}");
        let role = match space.kind {
            abi::BOX => Role::Info,
            abi::ACTION_MASK => Role::ActionMask,
            other => return Err(value(of("kind"), other, "that of a box or an action mask")),
        };
        let path = text(space.name, MAX_NAME_BYTES, &of("name"))?;
        let (shape, _) = shape(space, &of)?;
        Ok(ColumnSpec { path, dtype: dtype(space.dtype, &of)?, shape, names: Vec::new(), role })
    });
    columns.collect()
}

fn methods(given: &[abi::Method]) -> Result<Vec<MethodSpec>, DescriptionError> {
    let methods = given.iter().enumerate().map(|(at, method)| {
        let of = |field: &str| format!("methods[{at}].{field}");
        let optional = |from: *const c_char, field: &str| match from.is_null() {
            true => Ok(String::new()),
            false => text(from, MAX_METHOD_TEXT_BYTES, &of(field)),
        };
        Ok(MethodSpec {
            name: text(method.name, MAX_METHOD_NAME_BYTES, &of("name"))?,
            summary: optional(method.summary, "summary")?,
            params: optional(method.params, "params")?,
            changes: match method.changes {
                0 => false,
                1 => true,
                other => return Err(value(of("changes"), other, "0 or 1")),
            },
            max_per_second: NonZeroU32::new(method.max_per_second),
        })
    });
    methods.collect()
}

fn options(from: &abi::Description) -> Result<Vec<OptionSpec>, DescriptionError> {
    let given = list(from.options, from.option_count, MAX_OPTIONS, "options")?;
    let sequences = match from.option_defaults.is_null() {
        true => &[],
        false => list(from.option_defaults, from.option_count, MAX_OPTIONS, "option_defaults")?,
    };
    let mut options: Vec<OptionSpec> = Vec::new();
    for (at, option) in given.iter().enumerate() {
        let default = default_of(at, option, sequences.get(at).unwrap_or(&abi::Sequence::NONE))?;
        let of = |field: &str| format!("options[{at}].{field}");
        let name = text(option.name, MAX_NAME_BYTES, &of("name"))?;
        if options.iter().any(|other| other.name == name) {
            return Err(value(of("name"), name, "another than those before"));
        }
        let summary = text(option.summary, MAX_TEXT_BYTES, &of("summary"))?;
        options.push(OptionSpec { name, default, summary });
    }
    Ok(options)
}

/// Reads the default of option number `at`.
fn default_of(
    at: usize,
    option: &abi::OptionOf,
    sequence: &abi::Sequence,
) -> Result<OptionValue, DescriptionError> {
    let of = |field: &str| format!("options[{at}].{field}");
    let abi::Value { integer, number } = option.default_value;
    let length =
        || u32::try_from(integer).map_err(|_| value(of("default_value.integer"), integer, "a length"));
    Ok(match option.kind {
        abi::FLAG if integer == 0 || integer == 1 => OptionValue::Bool(integer == 1),
        abi::FLAG => return Err(value(of("default_value.integer"), integer, "0 or 1, as it is a flag")),
        abi::INTEGER => OptionValue::Int(integer),
        abi::NUMBER if number.is_finite() => OptionValue::Float(number),
        abi::NUMBER => return Err(value(of("default_value.number"), number, "finite")),
        abi::TEXT => {
            let member = format!("option_defaults[{at}].text");
            let bytes = list(sequence.text.cast::<u8>(), length()?, MAX_OPTION_TEXT_BYTES, &member)?;
            let text = std::str::from_utf8(bytes).map_err(|error| value(&member, error, "UTF-8"))?;
            OptionValue::Text(text.to_owned())
        }
        abi::LIST => {
            let member = format!("option_defaults[{at}].numbers");
            let numbers = list(sequence.numbers, length()?, MAX_OPTION_NUMBERS, &member)?;
            if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
                return Err(value(&member, number, "finite"));
            }
            OptionValue::List(numbers.to_vec())
        }
        other => {
            return Err(value(of("kind"), other, "that of a flag, an integer, a number, a text or a list"));
        }
    })
}

/// Reads names: none, or `wanted` of them.
fn names(
    from: *const *const c_char,
    count: u32,
    wanted: u64,
    member: &str,
) -> Result<Vec<String>, DescriptionError> {
    let given = list(from, count, MAX_ELEMENT_NAMES, member)?;
    if !given.is_empty() && given.len() as u64 != wanted {
        return Err(value(format!("{member}, their number"), given.len(), format!("0 or {wanted}")));
    }
    let named = given.iter().enumerate();
    named.map(|(at, &name)| text(name, MAX_NAME_BYTES, &format!("{member}[{at}]"))).collect()
}

/// Returns a list of the plug-in's.
fn list<'a, T>(from: *const T, count: u32, most: usize, member: &str) -> Result<&'a [T], DescriptionError> {
    if count as usize > most {
        return Err(many(member, count.into(), most));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(DescriptionError::Null { member: member.to_owned() });
    }
    if !from.is_aligned() {
        return Err(value(member, "unaligned", "a pointer to its type"));
    }
    // SAFETY: a description's lists have as many elements as it says, and stay as they are for as long as the process
    // lives, as rollhouse.h demands. All element types are numbers and pointers, of which any bits are values.
    Ok(unsafe { slice::from_raw_parts(from, count as usize) })
}

/// Reads a text that ends with 0, and looks at no more than `most` bytes and one.
fn text(from: *const c_char, most: usize, member: &str) -> Result<String, DescriptionError> {
    if from.is_null() {
        return Err(DescriptionError::Null { member: member.to_owned() });
    }
    let wrong = || DescriptionError::Text { member: member.to_owned(), most };
    // SAFETY: a text goes on until its 0, behind which nothing is read.
    let byte = |at| unsafe { from.cast::<u8>().add(at).read() };
    let length = (0..=most).find(|&at| byte(at) == 0).filter(|&length| length > 0).ok_or_else(wrong)?;
    let read = String::from_utf8((0..length).map(byte).collect()).map_err(|_| wrong())?;
    if read.chars().any(char::is_control) { Err(wrong()) } else { Ok(read) }
}

fn at_least_one(member: impl Into<String>, number: u32) -> Result<u32, DescriptionError> {
    if number == 0 { Err(value(member, 0, "at least 1")) } else { Ok(number) }
}

fn many(member: impl Into<String>, given: u64, most: usize) -> DescriptionError {
    DescriptionError::Many { member: member.into(), given, most: most as u64 }
}

fn value(member: impl Into<String>, given: impl ToString, wanted: impl Into<String>) -> DescriptionError {
    DescriptionError::Value { member: member.into(), given: given.to_string(), wanted: wanted.into() }
}
