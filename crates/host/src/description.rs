//! What a worker says of the env that it has made.

use std::fmt;

use rollhouse_core::limits::{
    MAX_METHODS, MAX_NAME_BYTES, MAX_OBS_COLUMNS, MAX_ROW_ELEMENTS, MAX_SPACE_DEPTH, MAX_STEP_COLUMNS,
};
use rollhouse_core::{
    BadMethod, Bounds, BoxSpace, ColumnSpec, CompositeSpace, DType, DiscreteSpace, MethodSpec,
    ObservationSpace, OptionSpec, Options, OwnDType, Reports, Role, SequenceSpace, Space, StepColumn,
    StepColumns, StepColumnsError, TextSpace, bounded_list,
};
use rollhouse_env::ImageSize;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a worker's answer. The bounds of an image of 1,280 x 720 take less if they are equal.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Answer of a worker to its hello.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Made(Box<Made>),
    Refused(Refusal),
}

#[derive(Debug, Deserialize)]
struct Made {
    observation: Node,
    action: Node,
    max_episode_steps: Option<u32>,
    gymnasium: String,
    #[serde(default)]
    deterministic: bool,
    action_mask: Option<ActionMask>,
    render_mode: Option<String>,
    #[serde(default)]
    picture: Option<Picture>,
    #[serde(default)]
    options: Vec<OptionSpec>,
    #[serde(default, deserialize_with = "bounded_list::<_, MAX_METHODS, _>")]
    methods: Vec<MethodSpec>,
    #[serde(default)]
    reports_actions: bool,
    #[serde(default, deserialize_with = "bounded_list::<_, MAX_STEP_COLUMNS, _>")]
    step_columns: Vec<NotedColumn>,
}

/// Step column that an env notes, as a worker describes it.
#[derive(Debug, Deserialize)]
struct NotedColumn {
    name: String,
    #[serde(with = "crate::remarks::as_name")]
    dtype: DType,
    shape: Vec<usize>,
}

/// Picture that an env draws of itself.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Picture {
    width: usize,
    height: usize,
    /// Number of them that make up a second.
    fps: u32,
}

/// Mask of the actions that a lane may take next, as a worker gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActionMask {
    /// Number of its booleans.
    n: usize,
    by: GivenBy,
}

/// Where an env gives its action mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GivenBy {
    /// The infos of resets and steps have it, as `action_mask`.
    Info,
    /// The env has a method `action_masks`.
    Method,
}

impl ActionMask {
    /// Returns the info channel that it is.
    pub(crate) fn channel(&self) -> ColumnSpec {
        ColumnSpec {
            path: "action_mask".to_owned(),
            dtype: DType::Bool,
            shape: vec![self.n],
            names: Vec::new(),
            role: Role::ActionMask,
        }
    }
}

/// Reason for which a worker does not host an env.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Refusal {
    /// Kind of the reason.
    pub kind: RefusalKind,
    /// Explanation for people.
    pub message: String,
}

/// Kind of reason for which a worker does not host an env.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The env's package is not in the list of those that may be imported.
    NotAllowed,
    /// The module, or the env in it, cannot be imported.
    ImportFailed,
    /// The env does not take the arguments, or they are not the caller's to give.
    KwargsRefused,
    /// The env raised while it was made, or is none.
    MakeFailed,
    /// A space is of a kind or type that columns cannot have.
    SpaceNotSupported,
    /// Envs that were made by the same call have different spaces.
    LanesDiffer,
    /// The env is declared deterministic and is known not to be, or its generator cannot be put back.
    NotDeterministic,
    /// The env is a client of something to which it could not connect, however often it tried.
    ConnectFailed,
    /// The env does not begin an episode with the options.
    OptionsRefused,
    /// The methods that the env lists are not there, or are not described.
    MethodsRefused,
}

impl fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllowed => "the import is not allowed",
            Self::ImportFailed => "the import failed",
            Self::KwargsRefused => "the arguments are refused",
            Self::MakeFailed => "the env could not be made",
            Self::SpaceNotSupported => "a space is not supported",
            Self::LanesDiffer => "the lanes differ",
            Self::NotDeterministic => "the env cannot be deterministic",
            Self::ConnectFailed => "the env could not connect",
            Self::OptionsRefused => "the options are refused",
            Self::MethodsRefused => "the methods are refused",
        })
    }
}

/// Reason for which a worker's answer is not an env.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The worker refuses.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer is no JSON of the wanted form.
    #[error("the worker's answer makes no sense")]
    Nonsense(#[source] serde_json::Error),
    /// The answer is longer than the limit.
    #[error("the worker's answer has {0} bytes, may have at most {MAX_ANSWER_BYTES}")]
    TooLong(usize),
    /// The methods are not such as an env may have.
    #[error(transparent)]
    Methods(#[from] BadMethod),
    /// A space is one that this program does not have.
    #[error("{part} space: {why}")]
    Space {
        /// Which of the spaces it is.
        part: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The options that the env declares are none.
    #[error("metadata[\"options\"]: {0}")]
    Options(String),
    /// The step columns that the env declares are none.
    #[error("metadata[\"step_columns\"]: {0}")]
    StepColumns(#[from] StepColumnsError),
}

/// What a worker said of its env, checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Description {
    pub(crate) observation: ObservationSpace,
    pub(crate) action: Space,
    pub(crate) max_episode_steps: Option<u32>,
    /// Version of Gymnasium in the worker.
    pub(crate) gymnasium: String,
    /// Whether the env is declared deterministic.
    pub(crate) deterministic: bool,
    /// Mask of its actions, if it gives one.
    pub(crate) action_mask: Option<ActionMask>,
    /// Whether it is made to draw itself.
    pub(crate) draws: bool,
    /// Size of a picture that it drew, if it was to, and how many make up a second.
    pub(crate) picture: Option<(ImageSize, u32)>,
    /// Options that the env declares, of which each episode is given values.
    pub(crate) options: Vec<OptionSpec>,
    /// Methods that can be called on its lanes.
    pub(crate) methods: Vec<MethodSpec>,
    /// What its rows report of each step.
    pub(crate) reports: Reports,
}

impl Description {
    /// Reads a worker's answer, which may be anything.
    pub(crate) fn read(answer: &[u8]) -> Result<Self, DescriptionError> {
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(DescriptionError::TooLong(answer.len()));
        }
        let made = match serde_json::from_slice(answer).map_err(DescriptionError::Nonsense)? {
            Answer::Made(made) => made,
            Answer::Refused(refusal) => return Err(DescriptionError::Refused(refusal)),
        };
        let of = |part| move |why| DescriptionError::Space { part, why };
        let observation = made.observation.space(0).map_err(of("observation"))?;
        check_size(&observation).map_err(of("observation"))?;
        // What carries an action of several columns is a level above them.
        let action = made.action.space(1).map_err(of("action"))?;
        check_size(&action).map_err(of("action"))?;
        let action = carried(action).map_err(of("action"))?;
        // A limit of no steps is none.
        let max_episode_steps = made.max_episode_steps.filter(|&limit| limit > 0);
        let draws = made.render_mode.as_deref() == Some("rgb_array");
        let picture = made.picture.and_then(|Picture { width, height, fps }| {
            Some((ImageSize::new(width, height).ok()?, fps.max(1)))
        });
        let Made {
            gymnasium,
            deterministic,
            action_mask,
            options,
            methods,
            reports_actions,
            step_columns,
            ..
        } = *made;
        let column = |NotedColumn { name, dtype, shape }| StepColumn { name, dtype, shape };
        let step_columns = StepColumns::new(step_columns.into_iter().map(column).collect())?;
        if let Some(mask) = &action_mask {
            action.check_mask(mask.n).map_err(|error| of("action")(error.to_string()))?;
        }
        MethodSpec::check_all(&methods)?;
        check_options(&options).map_err(DescriptionError::Options)?;
        Ok(Self {
            observation,
            action,
            max_episode_steps,
            gymnasium,
            deterministic,
            action_mask,
            draws,
            picture,
            options,
            methods,
            reports: Reports { actions: reports_actions, step_columns },
        })
    }
}

/// Returns the space of one column, which carries values of several as one.
fn carried(space: ObservationSpace) -> Result<Space, String> {
    match space {
        ObservationSpace::Plain(space) => Ok(space),
        ObservationSpace::Composite(parts) => {
            BoxSpace::of_parts(parts).map(Space::Box).map_err(|error| error.to_string())
        }
    }
}

fn check_size(space: &ObservationSpace) -> Result<(), String> {
    let (columns, elements) = (space.columns().len(), space.elements());
    match () {
        () if columns == 0 => Err("it has no column".to_owned()),
        () if columns > MAX_OBS_COLUMNS => {
            Err(format!("{columns} columns, at most {MAX_OBS_COLUMNS} allowed"))
        }
        () if elements > MAX_ROW_ELEMENTS => {
            Err(format!("{elements} elements, at most {MAX_ROW_ELEMENTS} allowed"))
        }
        () => Ok(()),
    }
}

/// Checks options as an env declares them, with their defaults as if they were given.
///
/// # Errors
/// A message that names the option and the limit.
pub fn check_options(options: &[OptionSpec]) -> Result<(), String> {
    for (at, option) in options.iter().enumerate() {
        let bytes = option.name.len();
        if bytes == 0 || bytes > MAX_NAME_BYTES {
            return Err(format!("a name of {bytes} bytes, must have 1 to {MAX_NAME_BYTES}"));
        }
        if options[..at].iter().any(|other| other.name == option.name) {
            return Err(format!("`{}` is there twice", option.name));
        }
        let bytes = option.summary.len();
        if bytes > MAX_SUMMARY_BYTES {
            let name = &option.name;
            return Err(format!(
                "the summary of `{name}` has {bytes} bytes, at most {MAX_SUMMARY_BYTES} allowed"
            ));
        }
    }
    let defaults: Vec<_> =
        options.iter().map(|option| (option.name.clone(), option.default.clone())).collect();
    Options::check(options, &defaults).map(drop).map_err(|error| error.to_string())
}

/// A space as a worker describes it. Fields that its kind does not have are left out.
#[derive(Debug, Deserialize)]
struct Node {
    kind: Kind,
    #[serde(default)]
    low: Vec<Bound>,
    #[serde(default)]
    high: Vec<Bound>,
    #[serde(default)]
    shape: Vec<usize>,
    #[serde(default)]
    dtype: String,
    /// The elements' own type, if the column carries them in a wider one.
    own: Option<String>,
    #[serde(default)]
    n: u64,
    #[serde(default)]
    nvec: Vec<u64>,
    #[serde(default)]
    starts: Vec<i64>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    spaces: Vec<Node>,
    #[serde(default)]
    min_length: usize,
    #[serde(default)]
    maximum: usize,
    #[serde(default)]
    characters: String,
    #[serde(default)]
    stack: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Box,
    Discrete,
    MultiDiscrete,
    MultiBinary,
    Dict,
    Tuple,
    Text,
    Sequence,
}

/// A bound of a Box: JSON has no numbers for the infinite ones.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bound {
    Number(f64),
    Word(String),
}

impl Node {
    /// Returns the space. Those of several integers and of bits are boxes of them.
    fn space(mut self, depth: usize) -> Result<ObservationSpace, String> {
        if depth > MAX_SPACE_DEPTH {
            return Err(format!("it is nested more than {MAX_SPACE_DEPTH} deep"));
        }
        let own = self.own.take();
        match self.kind {
            Kind::Box => with_own(self.boxed()?, own),
            Kind::Discrete => {
                let &[start] = &self.starts[..] else {
                    return Err("a Discrete without its start".to_owned());
                };
                if self.n == 0 || start.checked_add_unsigned(self.n - 1).is_none() {
                    return Err(format!("{} integers from {start} are no Discrete", self.n));
                }
                with_own(Space::Discrete(DiscreteSpace { n: self.n, start, own: None }), own)
            }
            Kind::MultiDiscrete => with_own(self.integers()?, own),
            Kind::MultiBinary => {
                let elements = elements(&self.shape)?;
                let (low, high) = (Bounds::all(0.0, elements), Bounds::all(1.0, elements));
                let (shape, dtype) = (self.shape, DType::U8);
                Ok(Space::Box(BoxSpace { low, high, shape, dtype, choices: true, parts: None, own: None })
                    .into())
            }
            Kind::Dict => {
                if self.names.len() != self.spaces.len() {
                    return Err("a Dict whose names do not fit its spaces".to_owned());
                }
                let mut spaces = Vec::with_capacity(self.spaces.len());
                for (name, part) in self.names.into_iter().zip(self.spaces) {
                    if name.len() > MAX_NAME_BYTES {
                        return Err(format!(
                            "a name of {} bytes, at most {MAX_NAME_BYTES} allowed",
                            name.len()
                        ));
                    }
                    spaces.push((name, part.space(depth + 1)?));
                }
                Ok(CompositeSpace::Dict { spaces }.into())
            }
            Kind::Tuple => {
                let spaces = self.spaces.into_iter().map(|part| part.space(depth + 1));
                Ok(CompositeSpace::Tuple { spaces: spaces.collect::<Result<_, _>>()? }.into())
            }
            Kind::Text => {
                let space = TextSpace::new(self.min_length, self.maximum, self.characters);
                Ok(CompositeSpace::from(space.map_err(|error| error.to_string())?).into())
            }
            Kind::Sequence => self.sequence(depth).map(ObservationSpace::from),
        }
    }

    fn sequence(self, depth: usize) -> Result<CompositeSpace, String> {
        let mut items = self.spaces.into_iter();
        let (Some(item), None) = (items.next(), items.next()) else {
            return Err("a Sequence without the space of its items".to_owned());
        };
        let item = carried(item.space(depth + 1)?)?;
        let space = SequenceSpace::new(item, self.maximum, self.stack);
        space.map(CompositeSpace::from).map_err(|error| error.to_string())
    }

    fn boxed(self) -> Result<Space, String> {
        let dtype = DTYPES.into_iter().find(|dtype| dtype.name() == self.dtype);
        let dtype = dtype.ok_or_else(|| format!("elements of type `{}`", self.dtype))?;
        let elements = elements(&self.shape)?;
        let (low, high) = (bounds(self.low, elements)?, bounds(self.high, elements)?);
        let shape = self.shape;
        Ok(Space::Box(BoxSpace { low, high, shape, dtype, choices: false, parts: None, own: None }))
    }

    fn integers(self) -> Result<Space, String> {
        let elements = elements(&self.shape)?;
        if self.nvec.len() != elements || self.starts.len() != elements {
            return Err(format!("a MultiDiscrete of {} numbers for {elements} elements", self.nvec.len()));
        }
        let low: Vec<f64> = self.starts.iter().map(|&start| start as f64).collect();
        let high: Vec<f64> = low.iter().zip(&self.nvec).map(|(low, &n)| low + n as f64 - 1.0).collect();
        let (low, high, shape) = (low.into(), high.into(), self.shape);
        Ok(Space::Box(BoxSpace {
            low,
            high,
            shape,
            dtype: DType::I64,
            choices: true,
            parts: None,
            own: None,
        }))
    }
}

/// Returns a space whose elements may have a type of their own.
fn with_own(space: Space, own: Option<String>) -> Result<ObservationSpace, String> {
    let Some(own) = own else { return Ok(space.into()) };
    let space = OwnDType::of_name(&own).and_then(|own| space.with_own(own));
    space.map(ObservationSpace::from).map_err(|error| error.to_string())
}

/// Returns the number of elements of that shape.
fn elements(shape: &[usize]) -> Result<usize, String> {
    let product = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    product
        .filter(|&product| product <= MAX_ROW_ELEMENTS)
        .ok_or_else(|| format!("shape {shape:?} has more than {MAX_ROW_ELEMENTS} elements"))
}

/// Returns a bound for each element; a single one is that of all.
fn bounds(given: Vec<Bound>, elements: usize) -> Result<Bounds, String> {
    let given = given.into_iter().map(|bound| match bound {
        Bound::Number(number) => Ok(number),
        Bound::Word(word) => word
            .parse::<f64>()
            .ok()
            .filter(|number| !number.is_nan())
            .ok_or_else(|| format!("bound `{word}`")),
    });
    let given = given.collect::<Result<Vec<f64>, String>>()?;
    match given[..] {
        [bound] => Ok(Bounds::all(bound, elements)),
        _ if given.len() == elements => Ok(given.into()),
        _ => Err(format!("{} bounds for {elements} elements", given.len())),
    }
}

/// Maximum number of bytes in the summary of an option.
const MAX_SUMMARY_BYTES: usize = 1024;

/// Types that workers name.
pub(crate) const DTYPES: [DType; 6] =
    [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(observation: &str, action: &str) -> Result<Description, DescriptionError> {
        let answer = format!(
            r#"{{"made":{{"observation":{observation},"action":{action},"max_episode_steps":500,"gymnasium":"1.2.2"}}}}"#
        );
        Description::read(answer.as_bytes())
    }

    const TWO: &str = r#"{"kind":"discrete","n":2,"starts":[0]}"#;

    fn kind(space: &Space) -> Option<&'static str> {
        match space {
            Space::Box(space) => Some(space.kind()),
            Space::Discrete(_) => None,
        }
    }

    #[test]
    fn spaces_of_every_kind_become_columns() {
        let observation = r#"{"kind":"dict","names":["b","a"],"spaces":[
            {"kind":"box","low":["-inf"],"high":[1.5,2],"shape":[2],"dtype":"float32"},
            {"kind":"tuple","spaces":[{"kind":"multi_binary","shape":[3]},
                {"kind":"multi_discrete","nvec":[3,4],"starts":[0,-1],"shape":[2]}]}]}"#;
        let description = read(observation, r#"{"kind":"discrete","n":3,"starts":[-1]}"#).unwrap();
        let columns = description.observation.columns();
        let shown: Vec<_> =
            columns.iter().map(|(path, space)| (path.as_str(), space.dtype(), space.elements())).collect();
        assert_eq!(shown, [("b", DType::F32, 2), ("a/0", DType::U8, 3), ("a/1", DType::I64, 2)]);
        let Space::Box(bounds) = columns[0].1.clone() else { panic!("no box") };
        assert_eq!((bounds.low, bounds.high), (Bounds::all(f64::NEG_INFINITY, 2), vec![1.5, 2.0].into()));
        assert_eq!(
            columns.iter().filter_map(|(_, space)| kind(space)).collect::<Vec<_>>(),
            ["box", "multi_binary", "multi_discrete"]
        );
        let Space::Box(bounds) = columns[2].1.clone() else { panic!("no box") };
        assert_eq!((bounds.low, bounds.high), (vec![0.0, -1.0].into(), Bounds::all(2.0, 2)));
        assert_eq!(description.action, Space::Discrete(DiscreteSpace { n: 3, start: -1, own: None }));
        assert_eq!(description.max_episode_steps, Some(500));
    }

    #[test]
    fn a_type_that_columns_have_not_is_carried_and_one_that_does_not_fit_is_refused() {
        let boxed = r#"{"kind":"box","low":[-1],"high":[9],"shape":[2],"dtype":"int32","own":"int8"}"#;
        let few = r#"{"kind":"multi_discrete","nvec":[3],"starts":[-9],"shape":[1],"own":"int16"}"#;
        let two = TWO.replace("}", r#","own":"uint8"}"#);
        let seen = format!(r#"{{"kind":"sequence","maximum":3,"spaces":[{two}]}}"#);
        let observation = format!(r#"{{"kind":"tuple","spaces":[{boxed},{few},{seen},{TWO}]}}"#);
        let description = read(&observation, &two).unwrap();
        let columns = description.observation.columns();
        let shown: Vec<_> = columns.iter().map(|(_, space)| (space.dtype(), space.own())).collect();
        let (items, count) = ((DType::I64, Some(OwnDType::U8)), (DType::I64, None));
        let leaves = [(DType::I32, Some(OwnDType::I8)), (DType::I64, Some(OwnDType::I16))];
        assert_eq!(shown, [&leaves[..], &[items, count, count]].concat());
        assert_eq!(description.action.own(), Some(OwnDType::U8));
        for (space, wrong) in [
            (boxed.replace("int8", "int64"), "no column carries elements of type `int64`"),
            (boxed.replace("int8", "float16"), "a column of int32 carries no elements of float16"),
            (boxed.replace("int8", "uint16"), "-1 to 9 are not all of uint16"),
            (two.replace("uint8", "complex64"), "no column carries elements of type `complex64`"),
            (few.replace("[3]", "[300]").replace("int16", "int8"), "-9 to 300 are not all of int8"),
        ] {
            let error = read(&space, TWO).unwrap_err().to_string();
            assert!(error.starts_with("observation space") && error.contains(wrong), "{space}: {error}");
        }
    }

    #[test]
    fn texts_and_sequences_are_two_columns_each() {
        let text = r#"{"kind":"text","min_length":1,"maximum":4,"characters":"ab"}"#;
        let sequence = format!(r#"{{"kind":"sequence","maximum":3,"stack":true,"spaces":[{TWO}]}}"#);
        let observation = format!(r#"{{"kind":"dict","names":["says","did"],"spaces":[{text},{sequence}]}}"#);
        let description = read(&observation, TWO).unwrap();
        let columns = description.observation.columns();
        let shown: Vec<_> =
            columns.iter().map(|(path, space)| (path.as_str(), space.dtype(), space.elements())).collect();
        let (codes, items) = (("says/codes", DType::U8, 4), ("did/items", DType::I64, 3));
        assert_eq!(shown, [codes, ("says/count", DType::I64, 1), items, ("did/count", DType::I64, 1)]);
        let action = format!(r#"{{"kind":"tuple","spaces":[{text},{sequence}]}}"#);
        for (action, elements) in [(text, 5), (action.as_str(), 9)] {
            let Space::Box(carrier) = read(TWO, action).unwrap().action else { panic!("no box") };
            assert_eq!((carrier.dtype, &carrier.shape[..]), (DType::I64, &[elements][..]));
        }
        let long = text.replace('4', "4194304");
        let long = format!(r#"{{"kind":"tuple","spaces":[{long},{TWO}]}}"#);
        for (observation, action, wrong) in [
            (text.replace('4', "99999999999"), TWO, "at most 99999999999 items"),
            (text.replace(":1", ":5"), TWO, "texts of 5 to 4 characters"),
            (sequence.replace(TWO, ""), TWO, "without the space of its items"),
            (sequence.replace(":3", ":0"), TWO, "at most 0 items"),
            (sequence.replace(TWO, text), TWO, "have texts or sequences among them"),
            (text.to_owned(), long.as_str(), "4194306 elements"),
        ] {
            let error = read(&observation, action).unwrap_err().to_string();
            assert!(error.contains(wrong), "{observation}: {error}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused_by_what_is_wrong() {
        let read = |options: &str| {
            let answer = format!(
                r#"{{"made":{{"observation":{TWO},"action":{TWO},"max_episode_steps":null,"gymnasium":"1.2.2","options":{options}}}}}"#
            );
            Description::read(answer.as_bytes())
        };
        let option =
            |name: &str, default: &str| format!(r#"{{"name":"{name}","default":{default},"summary":"s"}}"#);
        let told = [("g", "9.5"), ("n", "3"), ("on", "true"), ("map", "\"flat\""), ("gates", "[1,2.5]")];
        let described = read(&format!("[{}]", told.map(|(name, of)| option(name, of)).join(","))).unwrap();
        let names: Vec<_> = described.options.iter().map(|option| option.name.as_str()).collect();
        assert_eq!(names, ["g", "n", "on", "map", "gates"]);
        let many: Vec<_> = (0..65).map(|at| option(&format!("o{at}"), "1")).collect();
        for (options, wrong) in [
            (option("", "1"), "a name of 0 bytes"),
            (option(&"n".repeat(129), "1"), "a name of 129 bytes"),
            (format!("{},{}", option("n", "1"), option("n", "2")), "`n` is there twice"),
            (option("n", r#"{"uniform":[1,2]}"#), "`n` takes a distribution"),
            (many.join(","), "65 options given"),
            (format!(r#"{{"name":"n","default":1,"summary":"{}"}}"#, "s".repeat(1025)), "1025 bytes"),
        ] {
            let error = read(&format!("[{options}]")).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        for nonsense in
            [option("n", "null"), option("n", "[true]"), option("n", &format!("\"{}\"", "t".repeat(4097)))]
        {
            assert!(
                matches!(read(&format!("[{nonsense}]")), Err(DescriptionError::Nonsense(_))),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn lies_about_spaces_are_refused_by_what_is_wrong() {
        let deep = format!("{}{TWO}{}", r#"{"kind":"tuple","spaces":["#.repeat(10), "]}".repeat(10));
        for (observation, wrong) in [
            (
                r#"{"kind":"box","low":[0],"high":[1],"shape":[4294967296,4294967296],"dtype":"uint8"}"#,
                "elements",
            ),
            (r#"{"kind":"box","low":[0,1],"high":[1],"shape":[3],"dtype":"uint8"}"#, "2 bounds for 3"),
            (r#"{"kind":"box","low":[0],"high":[1],"shape":[3],"dtype":"float16"}"#, "`float16`"),
            (r#"{"kind":"box","low":["nan"],"high":[1],"shape":[3],"dtype":"uint8"}"#, "`nan`"),
            (r#"{"kind":"discrete","n":2,"starts":[9223372036854775807]}"#, "no Discrete"),
            (r#"{"kind":"discrete","n":2}"#, "without its start"),
            (r#"{"kind":"dict","names":["a"],"spaces":[]}"#, "names do not fit"),
            (r#"{"kind":"tuple","spaces":[]}"#, "no column"),
            (r#"{"kind":"multi_discrete","nvec":[1],"starts":[0],"shape":[2]}"#, "for 2 elements"),
            (deep.as_str(), "deep"),
        ] {
            let error = read(observation, TWO).unwrap_err().to_string();
            assert!(
                error.starts_with("observation space") && error.contains(wrong),
                "{observation}: {error}"
            );
        }
        let nothing = read(TWO, r#"{"kind":"tuple","spaces":[]}"#).unwrap_err().to_string();
        assert!(nothing.starts_with("action space") && nothing.contains("no column"), "{nothing}");
    }

    #[test]
    fn an_action_of_several_columns_is_carried_as_one_that_knows_its_parts() {
        let push = r#"{"kind":"box","low":[-1],"high":[1],"shape":[2],"dtype":"float32"}"#;
        let action = format!(r#"{{"kind":"dict","names":["hare","cart"],"spaces":[{TWO},{push}]}}"#);
        let Space::Box(carrier) = read(TWO, &action).unwrap().action else { panic!("no box") };
        assert_eq!((carrier.dtype, &carrier.shape[..]), (DType::F64, &[3][..]));
        assert_eq!(carrier.part_names(), ["hare", "cart[0]", "cart[1]"]);
    }

    #[test]
    fn a_refusal_has_its_kind_and_anything_else_makes_no_sense() {
        let refused = br#"{"refused":{"kind":"import_failed","message":"no module"}}"#;
        let Err(DescriptionError::Refused(refusal)) = Description::read(refused) else {
            panic!("not refused")
        };
        assert_eq!(refusal.to_string(), "the import failed: no module");
        for nonsense in [&b""[..], b"{}", b"[1]", br#"{"refused":{"kind":"mood","message":""}}"#, b"\xff"] {
            assert!(
                matches!(Description::read(nonsense), Err(DescriptionError::Nonsense(_))),
                "{nonsense:?}"
            );
        }
    }
}
