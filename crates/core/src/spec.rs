//! The spec of an env, which is what it says about itself.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{MAX_ELEMENT_NAMES, MAX_METHODS, MAX_OBS_COLUMNS, MAX_OPTIONS};
use crate::{
    ColumnData, ColumnSpec, DType, EnvSource, MaskError, MethodSpec, ObservationSpace, OptionSpec, Role,
    Space, StepColumns, bounded_list, split_mix64,
};

/// Everything that is known of an env without running it. There is one spec for each env id, shared by all lanes.
///
/// It is written with its source only where its id does not tell it, and read with what the id tells before anything else: so
/// older recordings and messages have one too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct EnvSpec {
    /// Id of the env: Gymnasium's where it has one, e.g. `CartPole-v1`.
    pub id: String,
    /// Where the env comes from.
    #[serde(
        default,
        skip_serializing_if = "EnvSource::follows_from_id",
        serialize_with = "EnvSource::write",
        deserialize_with = "EnvSource::read"
    )]
    pub source: EnvSource,
    /// One sentence about the env, for listings.
    pub summary: String,
    /// Space of one observation.
    pub observation_space: ObservationSpace,
    /// Space of one action.
    pub action_space: Space,
    /// Name of each element of the observation, column by column. The list is empty where names would say no more than
    /// positions, as in an image.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub observation_names: Vec<String>,
    /// Name of each action (Discrete) or of each element of the action (Box). The list may be empty.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub action_names: Vec<String>,
    /// Time limit in steps; `None` when episodes end only by themselves.
    pub max_episode_steps: Option<u32>,
    /// Whether start and actions decide everything that follows.
    pub determinism: Determinism,
    /// Methods that can be called on a lane between two steps. In messages and files an env without any says nothing of
    /// them.
    #[serde(
        default,
        deserialize_with = "bounded_list::<_, MAX_METHODS, _>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub methods: Vec<MethodSpec>,
    /// Options with which the env can be made.
    #[serde(deserialize_with = "bounded_list::<_, MAX_OPTIONS, _>")]
    pub options: Vec<OptionSpec>,
    /// Columns of info that each step gives beside the observation.
    #[serde(deserialize_with = "bounded_list::<_, MAX_OBS_COLUMNS, _>")]
    pub info_channels: Vec<ColumnSpec>,
    /// Hash of the spec and of the states of a fixed 1,000-step run. It is a constant beside the env that a test
    /// recomputes, so that changed dynamics cannot keep the old hash.
    pub dynamics_hash: u64,
}

impl Serialize for EnvSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for EnvSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spec = Self::deserialize(deserializer)?;
        let of_id = EnvSource::of_id(&spec.id);
        if of_id.is_learned() {
            spec.source = of_id;
        }
        Ok(spec)
    }
}

/// Whether an episode can be recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// Start, options and actions decide every later state, bit by bit. Episodes are recorded as action logs.
    Deterministic,
    /// Something else has an influence. Episodes are recorded in full.
    NonDeterministic,
}

/// Result that the env itself reports of a game; most envs report none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GameResult {
    /// The env knows no winner.
    #[default]
    None,
    /// The policy won.
    Win,
    /// The policy lost.
    Lose,
    /// Nobody won.
    Draw,
}

impl GameResult {
    /// All results that a game can have.
    pub const ALL: [Self; 3] = [Self::Win, Self::Lose, Self::Draw];

    /// Returns the word for the result, which is the same in listings, protocol and filters; `None` if there is none.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Win => Some("win"),
            Self::Lose => Some("lose"),
            Self::Draw => Some("draw"),
        }
    }

    /// Returns the number of the result in files and in the interface of plug-ins.
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Win => 1,
            Self::Lose => 2,
            Self::Draw => 3,
        }
    }

    /// Returns the result of that number; a number of none is [`GameResult::None`].
    pub const fn of_code(code: u8) -> Self {
        match code {
            1 => Self::Win,
            2 => Self::Lose,
            3 => Self::Draw,
            _ => Self::None,
        }
    }
}

impl FromStr for GameResult {
    type Err = UnknownResult;

    fn from_str(word: &str) -> Result<Self, UnknownResult> {
        let known = Self::ALL.into_iter().find(|result| result.word() == Some(word));
        known.ok_or_else(|| UnknownResult(word.to_owned()))
    }
}

/// Error of a word that names no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown result `{0}`; known are win, lose, draw")]
pub struct UnknownResult(String);

/// What an env says of an episode that has ended; most envs say nothing, which is the default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Verdict {
    result: GameResult,
    score: Option<f64>,
}

impl Verdict {
    /// Makes a verdict. A score that is not finite is left out.
    pub fn new(result: GameResult, score: Option<f64>) -> Self {
        Self { result, score: score.filter(|score| score.is_finite()) }
    }

    /// Returns the result, [`GameResult::None`] if the env knows no winner.
    pub const fn result(self) -> GameResult {
        self.result
    }

    /// Returns the score, if the env has one. It is finite.
    pub const fn score(self) -> Option<f64> {
        self.score
    }

    /// Returns two words that say the same: the result's number with bit 2 for a score, and the score's bits.
    pub fn to_words(self) -> [u64; 2] {
        let has_score = u64::from(self.score.is_some());
        [u64::from(self.result.code()) | has_score << 2, self.score.unwrap_or_default().to_bits()]
    }

    /// Returns the verdict of two words, whatever they are.
    pub fn of_words([what, score]: [u64; 2]) -> Self {
        let score = (what & 4 != 0).then_some(f64::from_bits(score));
        Self::new(GameResult::of_code((what & 3) as u8), score)
    }

    /// Returns whether the env says nothing.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl EnvSpec {
    /// Returns the columns of an observation in the space's own order.
    pub fn obs_columns(&self) -> Vec<ColumnSpec> {
        let mut names = self.observation_names.iter().cloned();
        let spaces = self.observation_space.columns().into_iter();
        let columns = spaces.map(|(path, space)| {
            let names = names.by_ref().take(space.elements()).collect();
            ColumnSpec { path, ..column(space, Role::Obs, names) }
        });
        columns.collect()
    }

    /// Returns the number of the info channel that is the action mask, if the env gives one.
    pub fn action_mask(&self) -> Option<usize> {
        self.channel(Role::ActionMask)
    }

    /// Returns the number of the first info channel of that role, if there is one.
    pub fn channel(&self, role: Role) -> Option<usize> {
        self.info_channels.iter().position(|channel| channel.role == role)
    }

    /// Returns the number of the info channel with the action that was taken, if rows report it.
    pub fn action_taken(&self) -> Option<usize> {
        self.action_column().place_taken(&self.info_channels)
    }

    /// Returns the spec with info channels of what rows report of their steps, behind those that are recorded as infos.
    #[must_use]
    pub fn with_reports(mut self, reports: &Reports) -> Self {
        let column =
            |path: &str, role, column: ColumnSpec| ColumnSpec { path: path.to_owned(), role, ..column };
        let at = self.info_channels.iter().position(|channel| channel.role.is_remark());
        let mut channels = Vec::new();
        if reports.actions {
            let version = self::column(&Space::discrete(1), Role::PolicyVersion, Vec::new());
            channels.push(column(ACTION_TAKEN, Role::ActionTaken, self.action_column()));
            channels.push(column(POLICY_VERSION, Role::PolicyVersion, version));
        }
        let noted = reports.step_columns.specs().iter().cloned();
        channels.extend(noted.map(|noted| ColumnSpec { role: Role::StepColumn, ..noted }));
        let at = at.unwrap_or(self.info_channels.len());
        self.info_channels.splice(at..at, channels);
        self
    }

    /// Returns the spec of the answers to owners of live lanes: with info channels of what went by.
    #[must_use]
    pub fn paced(mut self) -> Self {
        let gone_by = |path: &str| ColumnSpec {
            path: path.to_owned(),
            ..column(&Space::discrete(1), Role::GoneBy, Vec::new())
        };
        self.info_channels.extend([TICKS, DROPPED, LATE].map(gone_by));
        self
    }

    /// Checks that there is at most one action mask, and that it has a boolean for each action.
    ///
    /// # Errors
    /// [`MaskError`] otherwise.
    pub fn check_action_mask(&self) -> Result<(), MaskError> {
        let masks = || self.info_channels.iter().filter(|channel| channel.role == Role::ActionMask);
        match (masks().next(), masks().count()) {
            (None, _) => Ok(()),
            (Some(mask), 1) if mask.dtype == DType::Bool => self.action_space.check_mask(mask.elements()),
            (Some(mask), 1) => Err(MaskError::Type { dtype: mask.dtype }),
            (Some(_), count) => Err(MaskError::Several { count }),
        }
    }

    /// Checks that the columns of an observation have different paths, and so those of an action and those of infos: keys are
    /// joined by `/`, which may be part of a key. Whoever finds a column by its path needs that.
    ///
    /// # Errors
    /// [`SamePath`] otherwise.
    pub fn check_paths(&self) -> Result<(), SamePath> {
        let twice = |what, columns: &[ColumnSpec]| {
            let mut paths = BTreeSet::new();
            match columns.iter().find(|column| !paths.insert(&*column.path)) {
                Some(column) => Err(SamePath { what, path: column.path.clone() }),
                None => Ok(()),
            }
        };
        twice("the observation", &self.obs_columns())?;
        twice("the action", &self.action_parts())?;
        twice("the infos", &self.info_channels)
    }

    /// Returns whether an info channel is written in rows that began an episode.
    pub fn has_first_infos(&self) -> bool {
        self.info_channels.iter().any(|channel| channel.role.is_in_first_rows())
    }

    /// Returns the spec with info channels of what the env says beside what it does. Its hash is another then: where an
    /// env says other things, a node has another one.
    #[must_use]
    pub fn with_remarks(mut self, remarks: Vec<ColumnSpec>) -> Self {
        debug_assert!(remarks.iter().all(|channel| channel.role.is_remark()), "remarks alone");
        self.dynamics_hash ^= hash_of_remarks(&remarks);
        self.info_channels.extend(remarks);
        self
    }

    /// Returns the spec under which episodes are recorded: as it was before [`EnvSpec::with_remarks`], and without the
    /// channels of what is recorded otherwise.
    #[must_use]
    pub fn recorded(&self) -> Self {
        let mut spec = self.clone();
        spec.info_channels.retain(|channel| !channel.role.is_report());
        let remarks = spec.info_channels.extract_if(.., |channel| channel.role.is_remark());
        let remarks: Vec<_> = remarks.collect();
        spec.dynamics_hash ^= hash_of_remarks(&remarks);
        spec
    }

    /// Returns the columns of an action as its space has them: those of a Dict or Tuple by their paths, else the one column.
    pub fn action_parts(&self) -> Vec<ColumnSpec> {
        let Some(parts) = self.action_space.parts() else { return vec![self.action_column()] };
        let columns = parts.columns().into_iter();
        columns.map(|(path, space)| ColumnSpec { path, ..column(space, Role::Action, Vec::new()) }).collect()
    }

    /// Returns rows of actions, as [`EnvSpec::action_column`] has them, as rows of each of [`EnvSpec::action_parts`]; `None` if
    /// they are the only part.
    pub fn split_actions(&self, rows: &ColumnData) -> Option<Vec<ColumnData>> {
        match &self.action_space {
            Space::Box(space) => space.split(rows),
            Space::Discrete(_) => None,
        }
    }

    /// Returns the method of that name, if the env has one.
    pub fn method(&self, name: &str) -> Option<&MethodSpec> {
        self.methods.iter().find(|method| method.name == name)
    }

    /// Returns whether a call may change a lane, so that start and actions alone do not say what it did.
    pub fn has_changing_methods(&self) -> bool {
        self.methods.iter().any(|method| method.changes)
    }

    /// Returns the column of an action.
    pub fn action_column(&self) -> ColumnSpec {
        let names = match self.action_space {
            Space::Box(_) => self.action_names.clone(),
            Space::Discrete(_) => Vec::new(),
        };
        column(&self.action_space, Role::Action, names)
    }
}

/// What the rows of an env report of each step beside what the step gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reports {
    /// Whether they report the action that was taken, and the version of the policy that chose it.
    pub actions: bool,
    /// Step columns that the env notes.
    pub step_columns: StepColumns,
}

/// Path of the info channel with the ticks that went by of a live lane.
pub const TICKS: &str = "ticks";

/// Path of the info channel with the actions of a live lane's owner that were not taken.
pub const DROPPED: &str = "dropped";

/// Path of the info channel with the ticks of a live lane that were due and not played.
pub const LATE: &str = "late";

/// Path of the info channel with the action that was taken.
pub const ACTION_TAKEN: &str = "action_taken";

/// Path of the info channel with the version of the policy that chose the action.
pub const POLICY_VERSION: &str = "policy_version";

/// Returns a hash of those channels; 0 of none.
fn hash_of_remarks(remarks: &[ColumnSpec]) -> u64 {
    let add = |hash: u64, word: u64| split_mix64(hash ^ word);
    remarks.iter().fold(0, |hash, ColumnSpec { path, dtype, shape, names: _, role }| {
        let hash = path.bytes().chain(dtype.name().bytes()).fold(hash, |hash, byte| add(hash, byte.into()));
        let hash = shape.iter().fold(hash, |hash, &extent| add(hash, extent as u64));
        add(hash, *role as u64)
    })
}

/// Error of two columns that have the same path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} has two columns called `{path}`: keys are joined by `/`; give one of these keys another name"
)]
pub struct SamePath {
    what: &'static str,
    path: String,
}

fn column(space: &Space, role: Role, names: Vec<String>) -> ColumnSpec {
    ColumnSpec { path: String::new(), dtype: space.dtype(), shape: space.shape().to_vec(), names, role }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StepColumn, StepColumnsError, msgpack};

    #[test]
    fn a_verdict_leaves_out_a_score_that_is_not_finite() {
        for score in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Verdict::new(GameResult::Win, Some(score)).score(), None);
            assert!(Verdict::new(GameResult::None, Some(score)).is_none());
        }
        assert_eq!(Verdict::new(GameResult::None, Some(0.0)).score(), Some(0.0));
    }

    fn channel(path: &str, role: Role) -> ColumnSpec {
        ColumnSpec { path: path.to_owned(), dtype: DType::I64, shape: Vec::new(), names: Vec::new(), role }
    }

    /// A spec of a trivial env.
    fn spec(id: &str, source: EnvSource) -> EnvSpec {
        EnvSpec {
            id: id.to_owned(),
            source,
            summary: String::new(),
            observation_space: Space::discrete(2).into(),
            action_space: Space::discrete(2),
            observation_names: Vec::new(),
            action_names: Vec::new(),
            max_episode_steps: None,
            determinism: Determinism::Deterministic,
            methods: Vec::new(),
            options: Vec::new(),
            info_channels: Vec::new(),
            dynamics_hash: 7,
        }
    }

    #[test]
    fn a_spec_has_its_source_wherever_it_is_read_and_is_written_with_it_where_the_id_does_not_tell() {
        for (id, source, is_written) in [
            ("CartPole-v1", EnvSource::BuiltIn, false),
            ("Corridor-v0", EnvSource::PlugIn, true),
            ("vector:envpool:Pong-v5", EnvSource::of_id("vector:envpool:Pong-v5"), false),
            ("bullet://Maze", EnvSource::of_id("bullet://Maze"), false),
        ] {
            let spec = spec(id, source);
            let bytes = rmp_serde::to_vec_named(&spec).unwrap();
            assert_eq!(bytes.windows(6).any(|word| word == b"source"), is_written, "{id}");
            assert_eq!(msgpack::decode::<EnvSpec>(&bytes, bytes.len()).unwrap(), spec);
            assert_eq!(serde_json::from_slice::<EnvSpec>(&serde_json::to_vec(&spec).unwrap()).unwrap(), spec);
        }
        // Whatever a peer says, an id with a colon is believed before it; and a word that is not known is as good as none.
        let lie = serde_json::to_string(&spec("a:B", EnvSource::PlugIn)).unwrap();
        let read = |text: &str| serde_json::from_str::<EnvSpec>(text).unwrap().source;
        assert_eq!(read(&lie), EnvSource::of_id("a:B"));
        assert_eq!(read(&lie.replace("a:B", "B").replace("plug_in", "moon")), EnvSource::BuiltIn);
    }

    #[test]
    fn what_rows_report_stands_between_infos_and_remarks_and_is_not_recorded_as_infos() {
        let noted = StepColumn { name: "margin".to_owned(), dtype: DType::F32, shape: vec![3] };
        let step_columns = StepColumns::new(vec![noted.clone()]).unwrap();
        let reports = Reports { actions: true, step_columns };
        let spec = EnvSpec {
            info_channels: vec![channel("kept", Role::Info)],
            ..spec("a:B", EnvSource::of_id("a:B"))
        };
        let one = spec.clone().with_remarks(vec![channel("lives", Role::Remark)]).with_reports(&reports);
        let other = spec.clone().with_reports(&reports).with_remarks(vec![channel("lives", Role::Remark)]);
        assert_eq!(one, other);
        let roles: Vec<_> = one.info_channels.iter().map(|channel| channel.role).collect();
        let reported = [Role::ActionTaken, Role::PolicyVersion, Role::StepColumn];
        assert_eq!(roles, [&[Role::Info][..], &reported, &[Role::Remark]].concat());
        assert_eq!((one.action_taken(), one.recorded()), (Some(1), spec));
        // A channel of another type is not taken for an action.
        let mut wrong = one.clone();
        wrong.info_channels[1].dtype = DType::F32;
        assert_eq!(wrong.action_taken(), None);
        // What owner and env declare alike is one column; what they declare otherwise is refused.
        let own = |dtype| StepColumns::new(vec![StepColumn { dtype, ..noted.clone() }]).unwrap();
        assert_eq!(own(DType::F32).and_of(&one), Ok(own(DType::F32)));
        assert!(matches!(own(DType::F64).and_of(&one), Err(StepColumnsError::Twice { .. })));
        assert_eq!(StepColumns::default().and_of(&one), Ok(own(DType::F32)));
    }

    #[test]
    fn remarks_are_no_part_of_what_is_recorded_and_tell_nodes_apart() {
        let info_channels = vec![channel("kept", Role::Info)];
        let spec = EnvSpec { info_channels, ..spec("a:B", EnvSource::of_id("a:B")) };
        let of = |path| spec.clone().with_remarks(vec![channel(path, Role::Remark)]);
        assert_ne!(of("lives").dynamics_hash, spec.dynamics_hash);
        assert_ne!(of("lives").dynamics_hash, of("level").dynamics_hash);
        assert_eq!(of("lives").recorded(), spec);
        assert_eq!(spec.recorded(), spec);
    }

    #[test]
    fn a_verdict_is_read_from_its_words_and_any_words_are_one() {
        for score in [None, Some(0.0), Some(-1.5)] {
            for result in GameResult::ALL.into_iter().chain([GameResult::None]) {
                let verdict = Verdict::new(result, score);
                assert_eq!(Verdict::of_words(verdict.to_words()), verdict);
            }
        }
        assert_eq!(Verdict::of_words([u64::MAX, f64::NAN.to_bits()]), Verdict::new(GameResult::Draw, None));
    }

    #[test]
    fn every_result_is_read_from_its_word_and_number_and_no_result_has_no_word() {
        for result in GameResult::ALL {
            assert_eq!(result.word().map(str::parse), Some(Ok(result)));
            assert_eq!(GameResult::of_code(result.code()), result);
        }
        assert_eq!(GameResult::None.word(), None);
        assert!("none".parse::<GameResult>().is_err());
    }
}
