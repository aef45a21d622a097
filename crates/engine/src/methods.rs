//! The methods of the command channel, with one struct and one handler for each.

use std::collections::BTreeMap;
use std::ops::Range;

use rollhouse_core::{ColumnSpec, EnvSpec, GameResult, OptionValue, Options, Outcome, Start, messages};
use rollhouse_env::EnvEntry;
use serde::{Deserialize, Serialize};

use crate::call_lane::CallLane;
use crate::command::{CommandError, CommandLanes, Effect, Method, Nothing};
use crate::lane_words::AskWords;
use crate::note_steps::NoteSteps;
use crate::options::LaneOptions;
use crate::pace_lanes::PaceLanes;
use crate::render::Render;
use crate::reset::Reset;
use crate::stats::Summary;
use crate::timings::Timings;

/// Range of consecutive lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRange {
    /// First lane of the range.
    pub first: u32,
    /// Number of lanes in the range.
    pub count: u32,
}

impl LaneRange {
    fn range(self) -> Range<usize> {
        // A sum beyond 32 bits names lanes no session has.
        self.first as usize..(self.first as usize).saturating_add(self.count as usize)
    }
}

/// Method that begins episodes, as a reset between two steps does; the lanes' rows are seen in the next frame. Not
/// repeatable: a lane without a seed draws on.
#[derive(Debug, Clone, Copy)]
pub struct ResetLanes;

/// Params of [`ResetLanes`], all of which may be left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResetParams {
    /// Seed or nil for each lane, or empty for none.
    pub seeds: Vec<Option<u64>>,
    /// Flag of each lane that is reset, or empty for all lanes.
    pub mask: Vec<bool>,
    /// Options that the lanes have from now on: one value for all lanes that are reset, or one for each lane.
    pub options: LaneOptions,
}

impl Method for ResetLanes {
    const NAME: &'static str = "reset";
    const REPEATABLE: bool = false;
    const EFFECT: Effect = Effect::Begins;
    type Params = ResetParams;
    type Answer = Nothing;

    fn run(lanes: &mut CommandLanes<'_>, params: ResetParams) -> Result<Nothing, CommandError> {
        lanes.begin_recording()?;
        let ResetParams { seeds, mask, options } = params;
        let given = !options.is_empty();
        lanes.engine.reset(&Reset { seeds, mask, options })?;
        if given {
            // Whoever keeps the log does not know of them.
            lanes.engine.spoil_log()?;
        }
        Ok(Nothing {})
    }
}

/// Method that describes the lanes.
#[derive(Debug, Clone, Copy)]
pub struct Schema;

/// Answer of [`Schema`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaAnswer {
    /// Spec of the lanes' env: spaces, options, info channels.
    pub spec: EnvSpec,
    /// Number of lanes.
    pub lanes: u32,
    /// Name of the autoreset mode, as Gymnasium spells it.
    pub autoreset: String,
    /// Time limit in steps; absent if there is none.
    pub max_episode_steps: Option<u64>,
    /// Columns of a frame: the action first, then observations and info channels.
    pub columns: Vec<ColumnSpec>,
    /// Attributes that [`GetAttributes`] knows.
    pub attributes: Vec<AttributeSpec>,
    /// True if [`Render`](crate::Render) draws the lanes.
    pub renders: bool,
    /// True if the lanes' episodes are recorded, so that options and states stay as they are.
    pub recorded: bool,
    /// Names of the methods that can be called.
    pub methods: Vec<String>,
}

/// Description of an attribute of lanes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeSpec {
    /// Name of the attribute.
    pub name: String,
    /// False if [`SetAttributes`] refuses the attribute whatever its value; an env may still refuse others.
    pub writable: bool,
}

impl Method for Schema {
    const NAME: &'static str = "schema";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = Nothing;
    type Answer = SchemaAnswer;

    fn run(lanes: &mut CommandLanes<'_>, Nothing {}: Nothing) -> Result<SchemaAnswer, CommandError> {
        let recorded = lanes.are_recorded();
        let engine = &*lanes.engine;
        let spec = engine.entry().spec().clone();
        let columns = std::iter::once(spec.action_column()).chain(spec.obs_columns());
        let attributes = known(engine.entry())
            .map(|(name, writable)| AttributeSpec { name, writable: writable && !recorded });
        Ok(SchemaAnswer {
            lanes: engine.lanes() as u32,
            autoreset: engine.autoreset().name().to_owned(),
            max_episode_steps: engine.time_limit(),
            columns: columns.chain(spec.info_channels.iter().cloned()).collect(),
            attributes: attributes.collect(),
            renders: engine.entry().renders(),
            recorded,
            methods: METHODS.iter().map(|&name| name.to_owned()).collect(),
            spec,
        })
    }
}

/// Method that says which version of the policy chooses the actions from now on, for recordings.
#[derive(Debug, Clone, Copy)]
pub struct SetPolicyVersion;

/// Params of [`SetPolicyVersion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersionParams {
    /// Version of the policy; 0 stands for one that nobody has said.
    pub version: u64,
}

impl Method for SetPolicyVersion {
    const NAME: &'static str = "policy_version";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = PolicyVersionParams;
    type Answer = Nothing;

    fn run(lanes: &mut CommandLanes<'_>, params: PolicyVersionParams) -> Result<Nothing, CommandError> {
        lanes.engine.set_policy_version(params.version);
        Ok(Nothing {})
    }
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Several doubles: a list of an option. For `state` they are the exact state in an order that the env documents. For `generator` they
    /// are the position of the lane's generator: the lower and upper 32 bits of its seed, those of the number of 64-bit
    /// words drawn since, whether half a word is left over (0 or 1), and that half.
    Vector(Vec<f64>),
    /// One value: of an option or a constant, or for `max_episode_steps` the limit, 0 for none. To be set it may be a
    /// distribution.
    Scalar(OptionValue),
}

/// Method that reads an attribute of lanes: an option's name, a constant's, `state`, `generator` or
/// `max_episode_steps`.
#[derive(Debug, Clone, Copy)]
pub struct GetAttributes;

/// Params of [`GetAttributes`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetParams {
    /// Name of the attribute.
    pub name: String,
    /// Lanes whose attribute is read.
    pub lanes: LaneRange,
}

/// Answer of [`GetAttributes`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attributes {
    /// Values of the attribute, one for each lane.
    pub values: Vec<AttributeValue>,
}

impl Method for GetAttributes {
    const NAME: &'static str = "get_attr";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = GetParams;
    type Answer = Attributes;

    fn run(
        lanes: &mut CommandLanes<'_>,
        GetParams { name, lanes: range }: GetParams,
    ) -> Result<Attributes, CommandError> {
        let engine = &mut *lanes.engine;
        let range = range.range();
        check_name(engine.entry(), &name)?;
        let constant = engine.entry().constants().iter().find(|(constant, _)| *constant == name);
        let values = match name.as_str() {
            STATE => engine.states(range)?.into_iter().map(AttributeValue::Vector).collect(),
            MAX_EPISODE_STEPS => {
                engine.check_lanes(&range)?;
                let limit = OptionValue::Int(engine.time_limit().unwrap_or(0) as i64);
                vec![AttributeValue::Scalar(limit); range.len()]
            }
            GENERATOR => engine.positions(range)?.into_iter().map(AttributeValue::of_position).collect(),
            option => match constant {
                Some((_, value)) => {
                    engine.check_lanes(&range)?;
                    vec![AttributeValue::Scalar(OptionValue::Float(*value)); range.len()]
                }
                None => {
                    let value = |options: Options| options.get(option).cloned().map(AttributeValue::from);
                    // Every lane has a value for each option of its env.
                    engine.options(range)?.into_iter().filter_map(value).collect()
                }
            },
        };
        Ok(Attributes { values })
    }
}

/// Method that sets an attribute of lanes that are not recorded: an option's name, or `state`. Lanes that play go on in
/// the state they are in with another option, or in the state that is set; where their env takes options between episodes only,
/// they refuse.
#[derive(Debug, Clone, Copy)]
pub struct SetAttributes;

/// Params of [`SetAttributes`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetParams {
    /// Name of the attribute.
    pub name: String,
    /// Lanes whose attribute is set.
    pub lanes: LaneRange,
    /// One value for all of them, or one for each.
    pub values: Vec<AttributeValue>,
}

impl Method for SetAttributes {
    const NAME: &'static str = "set_attr";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::Changes;
    type Params = SetParams;
    type Answer = Nothing;

    fn run(lanes: &mut CommandLanes<'_>, params: SetParams) -> Result<Nothing, CommandError> {
        let SetParams { name, lanes: range, values } = params;
        let recorded = lanes.are_recorded();
        let engine = &mut *lanes.engine;
        let range = range.range();
        if !check_name(engine.entry(), &name)? {
            return Err(CommandError::ReadOnly { name });
        }
        if recorded {
            return Err(CommandError::Step(crate::OptionsError::Recorded.into()));
        }
        engine.check_lanes(&range)?;
        if values.len() != 1 && values.len() != range.len() {
            return Err(CommandError::Length { name, given: values.len(), lanes: range.len() });
        }
        if name == STATE {
            let states: Option<Vec<_>> = values.into_iter().map(AttributeValue::into_vector).collect();
            let states = states.ok_or(CommandError::Value { name, wanted: "a list of numbers" })?;
            let states = match <[_; 1]>::try_from(states) {
                Ok([one]) => vec![one; range.len()],
                Err(each) => each,
            };
            engine.set_states(range, states)?;
        } else {
            let values = values.into_iter().map(OptionValue::from).collect();
            engine.set_options(range, BTreeMap::from([(name, values)]))?;
        }
        Ok(Nothing {})
    }
}

impl From<OptionValue> for AttributeValue {
    fn from(value: OptionValue) -> Self {
        match value {
            OptionValue::List(values) => Self::Vector(values),
            value => Self::Scalar(value),
        }
    }
}

impl From<AttributeValue> for OptionValue {
    fn from(value: AttributeValue) -> Self {
        match value {
            AttributeValue::Vector(values) => Self::List(values),
            AttributeValue::Scalar(value) => value,
        }
    }
}

impl AttributeValue {
    fn of_position(Start { seed, words, half }: Start) -> Self {
        let halves = |word: u64| [f64::from(word as u32), f64::from((word >> 32) as u32)];
        let left = [half.is_some().into(), half.unwrap_or_default().into()];
        Self::Vector([halves(seed), halves(words), left].concat())
    }

    fn into_vector(self) -> Option<Vec<f64>> {
        match self {
            Self::Vector(values) => Some(values),
            Self::Scalar(_) => None,
        }
    }
}

/// Method that gives options to lanes, several at once. Lanes that play go on in the state they are in; where their env takes
/// options between episodes only, where they are recorded, and where their owner keeps the options in its log, they have them
/// from the next one on.
#[derive(Debug, Clone, Copy)]
pub struct SetOptions;

/// Params of [`SetOptions`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SetOptionsParams {
    /// Flag of each lane that gets the options, or empty for all lanes.
    #[serde(default)]
    pub mask: Vec<bool>,
    /// Values by the name of the option: one for all those lanes, or one for each lane of the session.
    pub options: LaneOptions,
    /// Whether the owner adds the options to its log: the lanes have them from their next episodes on, also where they are
    /// recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

impl Method for SetOptions {
    const NAME: &'static str = "set_options";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::Changes;
    type Params = SetOptionsParams;
    type Answer = Nothing;

    fn run(lanes: &mut CommandLanes<'_>, params: SetOptionsParams) -> Result<Nothing, CommandError> {
        let (recorded, SetOptionsParams { mask, options, kept }) = (lanes.are_recorded(), params);
        if kept && (lanes.engine.entry().draws_options() || !recorded) {
            lanes.engine.give_options(mask, options, recorded)?;
        } else if recorded {
            return Err(CommandError::Step(crate::OptionsError::Recorded.into()));
        } else {
            lanes.engine.set_options_where(mask, options)?;
        }
        Ok(Nothing {})
    }
}

/// Method that tells what the lanes have done since they were made, and how the time was spent.
#[derive(Debug, Clone, Copy)]
pub struct Statistics;

/// Answer of [`Statistics`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatisticsAnswer {
    /// Number of env steps, summed over lanes.
    pub steps: u64,
    /// Number of episodes by the word of their outcome. Outcomes that did not occur are left out.
    pub outcomes: BTreeMap<String, u64>,
    /// Number of episodes by the word of the result that their env gave them. Results that did not occur are left out.
    #[serde(default)]
    pub results: BTreeMap<String, u64>,
    /// Summary of the returns of finished episodes.
    pub returns: SummaryAnswer,
    /// Summary of the lengths of finished episodes, in steps.
    pub lengths: SummaryAnswer,
    /// Number of lanes that were started again after a failure.
    pub restarts: u64,
    /// Number of lanes whose env has failed and is not back.
    pub lost: u64,
    /// Timings of the batches.
    pub timings: Timings,
}

/// Sum, mean and range of a quantity. Mean and range are absent if there was no value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SummaryAnswer {
    /// Sum of all values.
    pub sum: f64,
    /// Mean of all values.
    pub mean: Option<f64>,
    /// Least value.
    pub min: Option<f64>,
    /// Greatest value.
    pub max: Option<f64>,
}

impl From<Summary> for SummaryAnswer {
    fn from(summary: Summary) -> Self {
        Self { sum: summary.sum(), mean: summary.mean(), min: summary.min(), max: summary.max() }
    }
}

impl Method for Statistics {
    const NAME: &'static str = "statistics";
    const REPEATABLE: bool = true;
    const EFFECT: Effect = Effect::None;
    type Params = Nothing;
    type Answer = StatisticsAnswer;

    fn run(lanes: &mut CommandLanes<'_>, Nothing {}: Nothing) -> Result<StatisticsAnswer, CommandError> {
        let engine = &mut *lanes.engine;
        engine.refuse_outstanding()?;
        let (stats, timings) = (engine.stats()?, engine.timings()?);
        let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
        for (outcome, count) in Outcome::ALL.iter().zip(stats.outcomes).filter(|(_, count)| *count > 0) {
            // Several outcomes have the same word: those with one flag, and those with both.
            *outcomes.entry(outcome.word().to_owned()).or_default() += count;
        }
        let results = GameResult::ALL.iter().zip(stats.results).filter(|(_, count)| *count > 0);
        let results =
            results.filter_map(|(result, count)| Some((result.word()?.to_owned(), count))).collect();
        Ok(StatisticsAnswer {
            steps: stats.steps,
            outcomes,
            results,
            returns: stats.returns.into(),
            lengths: stats.lengths.into(),
            restarts: stats.restarts,
            lost: engine.lost() as u64,
            timings,
        })
    }
}

/// Name of the attribute with a lane's exact state.
const STATE: &str = "state";

/// Name of the attribute with the time limit.
const MAX_EPISODE_STEPS: &str = "max_episode_steps";

/// Name of the attribute with the position of a lane's generator.
const GENERATOR: &str = "generator";

/// Returns the attributes of an env's lanes, and whether each can be set.
fn known(entry: &EnvEntry) -> impl Iterator<Item = (String, bool)> {
    let options = entry.spec().options.iter().map(|option| (option.name.as_str(), true));
    let lanes = [(STATE, true), (MAX_EPISODE_STEPS, false), (GENERATOR, false)];
    let constants = entry.constants().iter().map(|(name, _)| (*name, false));
    options.chain(lanes).chain(constants).map(|(name, writable)| (name.to_owned(), writable))
}

/// Returns whether the attribute of that name can be set, or the error that there is none.
fn check_name(entry: &EnvEntry, name: &str) -> Result<bool, CommandError> {
    if let Some((_, writable)) = known(entry).find(|(known, _)| known == name) {
        return Ok(writable);
    }
    let known = known(entry).map(|(name, _)| name).collect();
    let name = name.chars().take(MAX_ECHOED_CHARS).collect();
    Err(CommandError::UnknownAttribute { name, known })
}

/// Maximum number of characters of an unknown name that an error repeats.
const MAX_ECHOED_CHARS: usize = 128;

/// Action that needs the type of a method.
pub trait Dispatch {
    /// Result of the action.
    type Output;

    /// Carries the action out for the method `M`.
    fn with<M: Method>(self) -> Self::Output;
}

macro_rules! methods {
    ($($method:ty),* $(,)?) => {
        /// Names of all methods.
        pub const METHODS: &[&str] = &[$(<$method as Method>::NAME),*];

        /// Calls `dispatch` with the method of that name; `None` if there is none.
        pub fn dispatch<D: Dispatch>(name: &str, dispatch: D) -> Option<D::Output> {
            $(if name == <$method as Method>::NAME {
                return Some(dispatch.with::<$method>());
            })*
            None
        }
    };
}

methods![
    AskWords,
    CallLane,
    GetAttributes,
    NoteSteps,
    PaceLanes,
    Render,
    ResetLanes,
    Schema,
    SetAttributes,
    SetOptions,
    SetPolicyVersion,
    Statistics
];

messages!(
    Attributes,
    Nothing,
    SchemaAnswer,
    StatisticsAnswer,
    GetParams,
    PolicyVersionParams,
    ResetParams,
    SetOptionsParams,
    SetParams
);
