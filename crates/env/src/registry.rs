//! The registry of envs, which knows how each is made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rollhouse_core::limits::{BLOCK_LANES, MAX_ENV_ID_BYTES, MAX_OBS_COLUMNS};
use rollhouse_core::{BadMethod, EnvSpec, LaneDeadlines, MaskError, MethodSpec, Options};

use crate::dispatch::Target;
use crate::{
    BatchEnv, BlockEnv, Env, ImageSize, InstructionSet, LateLanes, PerLane, classic, echo, grid, skirmish,
    test_envs,
};

/// A table of envs by id. It is cheap to share; any thread may read it and register envs.
///
/// ```
/// use rollhouse_env::Registry;
///
/// let registry = Registry::builtin();
/// assert_eq!(registry.get("CartPole-v1")?.spec().max_episode_steps, Some(500));
/// assert!(registry.get("CartPole-v2").is_err_and(|error| error.nearest[0] == "CartPole-v1"));
/// # Ok::<(), rollhouse_env::UnknownEnv>(())
/// ```
#[derive(Debug, Default)]
pub struct Registry {
    entries: RwLock<BTreeMap<String, Arc<EnvEntry>>>,
}

impl Registry {
    /// Makes a registry without envs.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Makes a registry of the built-in envs: Gymnasium's classic control, a game seen as an image, a strategy game, one
    /// for measuring transports, and under `test/` envs for tests of the machinery.
    pub fn builtin() -> Self {
        let entries = [
            classic::acrobot(),
            classic::cartpole(),
            classic::mountain_car(),
            classic::mountain_car_continuous(),
            classic::pendulum(),
            echo::echo(),
            grid::breakout(),
            skirmish::skirmish(),
            test_envs::called(),
            test_envs::faulty(),
            test_envs::masked(),
            test_envs::noise(),
            test_envs::orders(),
            test_envs::squads(),
        ];
        let entries = entries.into_iter().map(|entry| (entry.spec.id.clone(), Arc::new(entry))).collect();
        Self { entries: RwLock::new(entries) }
    }

    /// Returns the env of that id.
    ///
    /// # Errors
    /// If there is none; the error names the nearest ids.
    pub fn get(&self, id: &str) -> Result<Arc<EnvEntry>, UnknownEnv> {
        let entries = self.entries.read();
        entries.get(id).cloned().ok_or_else(|| UnknownEnv::of(id, entries.keys()))
    }

    /// Returns every id, sorted, with those of [envs for tests](is_for_tests).
    pub fn ids(&self) -> Vec<String> {
        self.entries.read().keys().cloned().collect()
    }

    /// Returns the ids that are shown to users, sorted.
    pub fn shown_ids(&self) -> Vec<String> {
        self.ids().into_iter().filter(|id| !is_for_tests(id)).collect()
    }

    /// Adds an env from outside.
    ///
    /// # Errors
    /// If the id is taken, or as [`check_spec`]; nothing changes then.
    pub fn register(&self, entry: EnvEntry) -> Result<(), RegisterError> {
        check_spec(&entry.spec)?;
        let id = entry.spec.id.clone();
        let mut entries = self.entries.write();
        if entries.contains_key(&id) {
            return Err(RegisterError::Taken { id });
        }
        entries.insert(id, Arc::new(entry));
        Ok(())
    }
}

/// Checks what an env from outside says of itself.
///
/// # Errors
/// If the id is empty, longer than [`MAX_ENV_ID_BYTES`] or none of its source, or there are more than [`MAX_OBS_COLUMNS`]
/// observation columns or info channels, or an action mask that is none of the actions, or methods that are not such as
/// an env may have.
pub fn check_spec(spec: &EnvSpec) -> Result<(), RegisterError> {
    let id = &spec.id;
    if id.is_empty() || id.len() > MAX_ENV_ID_BYTES {
        return Err(RegisterError::Length { bytes: id.len() });
    }
    if !spec.source.fits(id) {
        let id = id.clone();
        return Err(if spec.source.is_learned() {
            RegisterError::Kind { id }
        } else {
            RegisterError::Colon { id }
        });
    }
    let columns = spec.obs_columns().len().max(spec.info_channels.len());
    if columns > MAX_OBS_COLUMNS {
        return Err(RegisterError::Columns { count: columns });
    }
    spec.check_action_mask().map_err(RegisterError::Mask)?;
    MethodSpec::check_all(&spec.methods).map_err(|source| RegisterError::Methods { source })
}

/// Returns whether an env of that id tests the machinery and is no world to train in. Such an env can be made, but is
/// not listed.
pub fn is_for_tests(id: &str) -> bool {
    id.starts_with("test/")
}

type MakeBlock = dyn Fn(InstructionSet, &[Options]) -> Result<Box<dyn BatchEnv>, MakeError> + Send + Sync;
type MakeLate = dyn Fn(&[Options]) -> Result<Vec<Box<dyn LateLanes>>, MakeError> + Send + Sync;
type TryOptions = dyn Fn(&[Options]) -> Result<(), MakeError> + Send + Sync;

/// How the blocks of an env are made.
enum Make {
    /// Block by block.
    Blocks(Box<MakeBlock>),
    /// All at once, because they share what steps them.
    Late(Box<MakeLate>),
}

/// An env of a registry: its spec, and the code that makes blocks of it.
pub struct EnvEntry {
    spec: EnvSpec,
    make: Make,
    bounded: bool,
    draws_options: bool,
    seeds_itself: bool,
    try_options: Option<Box<TryOptions>>,
    drawn: Option<Drawn>,
    deadlines: LaneDeadlines,
    constants: &'static [(&'static str, f64)],
    arguments: String,
}

/// Size and rate of an env's pictures.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    size: ImageSize,
    images_per_second: u32,
}

impl EnvEntry {
    /// Makes an entry whose blocks `make` makes, one lane for each element of the options it is given. `make` may leave
    /// the instruction set unused, but results must not depend on it.
    pub fn new(
        spec: EnvSpec,
        make: impl Fn(InstructionSet, &[Options]) -> Result<Box<dyn BatchEnv>, MakeError> + Send + Sync + 'static,
    ) -> Self {
        Self::made_by(spec, Make::Blocks(Box::new(make)))
    }

    /// Makes an entry whose lanes finish when they finish ([`LateLanes`](crate::LateLanes)). `make` is given the options
    /// of all lanes of a session and makes their blocks, each but the last of [`BLOCK_LANES`] lanes, so that they can
    /// share what steps them.
    pub fn late(
        spec: EnvSpec,
        make: impl Fn(&[Options]) -> Result<Vec<Box<dyn LateLanes>>, MakeError> + Send + Sync + 'static,
    ) -> Self {
        Self::made_by(spec, Make::Late(Box::new(make)))
    }

    fn made_by(spec: EnvSpec, make: Make) -> Self {
        Self {
            spec,
            make,
            bounded: false,
            draws_options: false,
            seeds_itself: false,
            try_options: None,
            drawn: None,
            deadlines: LaneDeadlines::default(),
            constants: &[],
            arguments: String::new(),
        }
    }

    /// Makes an entry whose lanes are made one by one; `make` is called again when a lane is revived, and for each
    /// episode of a lane with an option that is drawn.
    pub fn per_lane<E: Env + 'static>(
        spec: EnvSpec,
        make: impl Fn(&Options) -> Result<E, MakeError> + Send + Sync + 'static,
    ) -> Self {
        let (make, space) = (Arc::new(make), spec.observation_space.clone());
        let entry = Self::new(spec, move |_, options| {
            let make = Arc::clone(&make);
            Ok(Box::new(PerLane::new(options, move |options| make(options))?.observing(&space)))
        });
        entry.with_drawn_options()
    }

    /// Makes an entry of a block that is compiled for each instruction set.
    pub(crate) fn soa<B: BatchEnv + 'static>(
        spec: EnvSpec,
        make: impl Fn(Target, &[Options]) -> Result<B, MakeError> + Send + Sync + 'static,
    ) -> Self {
        let entry = Self::new(spec, move |set, options| {
            let target = Target::new(set).ok_or(MakeError::InstructionSet { set })?;
            Ok(Box::new(make(target, options)?))
        });
        Self { bounded: true, draws_options: true, ..entry }
    }

    /// Adds that the blocks take other options for each episode ([`crate::LaneBlock::set_options`]), so that options may be
    /// drawn.
    #[must_use]
    pub fn with_drawn_options(self) -> Self {
        Self { draws_options: true, ..self }
    }

    /// Adds that the blocks take other options for each episode, whatever they are, and that `try_options` tells whether
    /// the env works with each of those that it is given.
    #[must_use]
    pub fn with_tried_options(
        self,
        try_options: impl Fn(&[Options]) -> Result<(), MakeError> + Send + Sync + 'static,
    ) -> Self {
        Self { draws_options: true, try_options: Some(Box::new(try_options)), ..self }
    }

    /// Adds that a lane which nobody has seeded seeds itself, so that its first reset needs no seed where nobody wants to know
    /// how its episodes start.
    #[must_use]
    pub fn with_own_seeds(self) -> Self {
        Self { seeds_itself: true, ..self }
    }

    /// Returns whether a lane that nobody has seeded seeds itself.
    pub const fn seeds_itself(&self) -> bool {
        self.seeds_itself
    }

    /// Returns whether blocks take any options, which are tried beforehand ([`EnvEntry::with_tried_options`]).
    pub const fn tries_options(&self) -> bool {
        self.try_options.is_some()
    }

    /// Returns whether options may be drawn for each episode.
    pub const fn draws_options(&self) -> bool {
        self.draws_options
    }

    /// Checks that the env works with everything that may be drawn of a lane's options: with all combinations of the
    /// ends of distributions if there are at most [`BLOCK_LANES`], otherwise with each end beside one of the others.
    /// Options without distributions are tried only if blocks do not look at them as they are made
    /// ([`EnvEntry::with_tried_options`]).
    ///
    /// # Errors
    /// [`MakeError::NotDrawn`], or what a block of those options gives.
    pub fn check_drawn(&self, options: &Options) -> Result<(), MakeError> {
        if let Some(try_options) = &self.try_options {
            return try_options(&options.corners(BLOCK_LANES));
        }
        let Some((name, _)) = options.drawn().next() else { return Ok(()) };
        if !self.draws_options {
            return Err(MakeError::NotDrawn { name: name.to_owned() });
        }
        let refused = |error| match error {
            MakeError::Kept => MakeError::NotDrawn { name: name.to_owned() },
            error => error,
        };
        options.corners(BLOCK_LANES).chunks(BLOCK_LANES).try_for_each(|corners| {
            let mut block = self.make_any_block(InstructionSet::best(), corners)?;
            let mut corners = corners.iter().enumerate();
            corners.try_for_each(|(lane, corner)| block.set_options(lane, corner).map_err(refused))
        })
    }

    /// Checks the options of several lanes as [`EnvEntry::check_drawn`] does those of one. Neighbours mostly have the same.
    ///
    /// # Errors
    /// As [`EnvEntry::check_drawn`].
    pub fn check_drawn_of(&self, lanes: &[Options]) -> Result<(), MakeError> {
        let mut groups = lanes.chunk_by(|one, next| one == next).filter_map(|group| group.first());
        match &self.try_options {
            Some(try_options) => {
                let corners = groups.flat_map(|options| options.corners(BLOCK_LANES));
                try_options(&corners.collect::<Vec<_>>())
            }
            None => groups.try_for_each(|options| self.check_drawn(options)),
        }
    }

    /// Adds the times that late lanes may take where they are waited for ([`BlockEnv::step_at_once`]). Engines have their own.
    #[must_use]
    pub fn with_deadlines(self, deadlines: LaneDeadlines) -> Self {
        Self { deadlines, ..self }
    }

    /// Adds that the env draws itself: [`LaneBlock::render`](crate::LaneBlock::render) gives images, which have the size
    /// `size` where no other is asked for. `images_per_second` of them, one for each step, make up a second of a video.
    #[must_use]
    pub fn drawn(self, size: ImageSize, images_per_second: u32) -> Self {
        Self { drawn: Some(Drawn { size, images_per_second }), ..self }
    }

    /// Adds numbers with which the env's dynamics are compiled, by the names by which users know them.
    #[must_use]
    pub fn with_constants(self, constants: &'static [(&'static str, f64)]) -> Self {
        Self { constants, ..self }
    }

    /// Returns the numbers with which the env's dynamics are compiled, by name. They can be looked at, and are the same
    /// for all lanes.
    pub const fn constants(&self) -> &'static [(&'static str, f64)] {
        self.constants
    }

    /// Adds the arguments with which the env of a Python package is made, a JSON object.
    #[must_use]
    pub fn with_arguments(self, arguments: String) -> Self {
        Self { arguments, ..self }
    }

    /// Returns the arguments with which the env of a Python package is made, a JSON object; empty if there are none.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    /// Returns whether the env draws itself.
    pub const fn renders(&self) -> bool {
        self.drawn.is_some()
    }

    /// Returns the size of an image of the env where no other is asked for; None if the env does not draw itself.
    pub const fn render_size(&self) -> Option<ImageSize> {
        match self.drawn {
            Some(Drawn { size, .. }) => Some(size),
            None => None,
        }
    }

    /// Returns how many images of the env, one for each step, make up a second of a video; None if it does not draw
    /// itself.
    pub const fn render_fps(&self) -> Option<u32> {
        match self.drawn {
            Some(Drawn { images_per_second, .. }) => Some(images_per_second),
            None => None,
        }
    }

    /// Returns whether a step of a lane never waits for anything and takes a bounded time, which is true of the
    /// built-in kernels. Other envs may hang, and are stepped only by threads that can be given up.
    pub const fn is_bounded(&self) -> bool {
        self.bounded
    }

    /// Returns the spec, which is what the env says of itself.
    pub const fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// Makes a block of lanes that finish within the call, one for each element of `options`, on the best instruction set
    /// that this machine has. Its lanes have to be seeded, and reset or put into a state, before they are stepped.
    ///
    /// # Errors
    /// See [`MakeError`]. A panic of the env's own maker is not caught.
    pub fn make_block(&self, options: &[Options]) -> Result<Box<dyn BatchEnv>, MakeError> {
        self.make_block_on(InstructionSet::best(), options)
    }

    /// Makes a block as [`EnvEntry::make_block`] does, on a given instruction set.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn make_block_on(
        &self,
        set: InstructionSet,
        options: &[Options],
    ) -> Result<Box<dyn BatchEnv>, MakeError> {
        check_lanes(options)?;
        match &self.make {
            Make::Blocks(make) => make(set, options),
            Make::Late(_) => Err(MakeError::Late),
        }
    }

    /// Makes a block of whatever lanes the env has, on a given instruction set.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn make_any_block(&self, set: InstructionSet, options: &[Options]) -> Result<BlockEnv, MakeError> {
        check_lanes(options)?;
        self.make_blocks_on(set, options)?.pop().ok_or(MakeError::Lanes { given: options.len() })
    }

    /// Makes the blocks of as many lanes as `options` has elements, each but the last of [`BLOCK_LANES`] lanes. Lanes
    /// that a [`MakeError`] names are lanes of a block.
    ///
    /// # Errors
    /// As [`EnvEntry::make_block_on`], but any number of lanes will do, late ones too: without options there are no blocks.
    pub fn make_blocks_on(
        &self,
        set: InstructionSet,
        options: &[Options],
    ) -> Result<Vec<BlockEnv>, MakeError> {
        match &self.make {
            Make::Blocks(make) => {
                options.chunks(BLOCK_LANES).map(|options| make(set, options).map(BlockEnv::Kernel)).collect()
            }
            Make::Late(make) => {
                Ok(make(options)?.into_iter().map(|env| BlockEnv::Late(env, self.deadlines)).collect())
            }
        }
    }

    /// Returns whether the lanes finish when they finish ([`LateLanes`]).
    pub const fn is_late(&self) -> bool {
        matches!(self.make, Make::Late(_))
    }
}

/// Refuses another number of lanes than a block has.
const fn check_lanes(options: &[Options]) -> Result<(), MakeError> {
    if options.is_empty() || options.len() > BLOCK_LANES {
        return Err(MakeError::Lanes { given: options.len() });
    }
    Ok(())
}

impl fmt::Debug for EnvEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvEntry").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Reason for which a block could not be made. All but [`MakeError::Refused`] are the caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The number of lanes is not 1 to [`BLOCK_LANES`].
    #[error("{given} lanes asked for; a block has 1 to {BLOCK_LANES}")]
    Lanes {
        /// Number of lanes that were asked for.
        given: usize,
    },
    /// The lanes of the env finish when they finish, and lanes were asked for that finish within the call.
    #[error("lanes of this env finish when they finish, not within the call that steps them")]
    Late,
    /// An option has a value with which the env cannot work.
    #[error("option `{name}` of lane {lane} is {value}, must be {wanted}")]
    Option {
        /// Lane of the block, counted from 0.
        lane: usize,
        /// Name of the option.
        name: &'static str,
        /// Value that was given.
        value: f64,
        /// Condition that the value must meet.
        wanted: String,
    },
    /// The options were checked against another env's schema.
    #[error("options of lane {lane} have no `{name}`")]
    Missing {
        /// Lane of the block, counted from 0.
        lane: usize,
        /// Name of the option that is missing.
        name: &'static str,
    },
    /// The env's lanes keep their options, and one is a distribution.
    #[error(
        "option `{name}` cannot be drawn for each episode: lanes of this env keep the options they are made with"
    )]
    NotDrawn {
        /// Name of the option.
        name: String,
    },
    /// The env's lanes keep the options that they have.
    #[error("lanes of this env keep the options they are made with")]
    Kept,
    /// This machine does not have the instruction set.
    #[error("this machine has no {set}")]
    InstructionSet {
        /// Instruction set that was asked for.
        set: InstructionSet,
    },
    /// The env itself failed to start.
    #[error("the env could not be made")]
    Refused {
        /// Reason that the env gave.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl MakeError {
    /// Returns the same error for a block in which the lane has the number `number`.
    pub(crate) fn in_lane(self, number: usize) -> Self {
        match self {
            Self::Option { name, value, wanted, .. } => Self::Option { lane: number, name, value, wanted },
            Self::Missing { name, .. } => Self::Missing { lane: number, name },
            other => other,
        }
    }

    pub(crate) const fn option(lane: usize, name: &'static str, value: f64, wanted: String) -> Self {
        Self::Option { lane, name, value, wanted }
    }
}

/// Error of an id that no env has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEnv {
    /// Id that was asked for, cut to [`MAX_ENV_ID_BYTES`].
    pub id: String,
    /// The ids that are spelt most like it, at most [`NEAREST`], nearest first.
    pub nearest: Vec<String>,
}

/// Maximum number of ids that an [`UnknownEnv`] names.
pub const NEAREST: usize = 3;

impl UnknownEnv {
    /// Makes the error that `id` is not among the `known` ids. Envs for tests are named only if `id` begins as theirs
    /// do.
    pub fn of<'a>(id: &str, known: impl Iterator<Item = &'a String>) -> Self {
        let id = id[..id.floor_char_boundary(MAX_ENV_ID_BYTES)].to_owned();
        let shown = known.filter(|known| !is_for_tests(known) || is_for_tests(&id));
        let mut nearest: Vec<_> = shown.map(|known| (spelling_distance(&id, known), known)).collect();
        nearest.sort();
        let nearest = nearest.into_iter().take(NEAREST).map(|(_, known)| known.clone()).collect();
        Self { id, nearest }
    }
}

impl fmt::Display for UnknownEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown env `{}`", self.id)?;
        if self.nearest.is_empty() { Ok(()) } else { write!(f, "; nearest are {}", self.nearest.join(", ")) }
    }
}

impl std::error::Error for UnknownEnv {}

/// Returns Levenshtein's distance, comparing letters without case.
fn spelling_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Reason for which an env was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The registry has an env of that id.
    #[error("env id `{id}` is registered already")]
    Taken {
        /// Id that is taken.
        id: String,
    },
    /// The id is empty or longer than [`MAX_ENV_ID_BYTES`].
    #[error("env id has {bytes} bytes, must have 1 to {MAX_ENV_ID_BYTES}")]
    Length {
        /// Number of bytes in the id.
        bytes: usize,
    },
    /// The program or a plug-in has the env, and the id is not one of theirs.
    #[error(
        "env id `{id}` has a colon, as have ids of Python packages and other worlds alone; give it one without"
    )]
    Colon {
        /// Id of the env.
        id: String,
    },
    /// The env is of a Python package or another world, and the id tells another source.
    #[error(
        "env id `{id}` does not name the package or kind of worlds of its env: package.module:Class or KIND://NAME"
    )]
    Kind {
        /// Id of the env.
        id: String,
    },
    /// There are more observation columns or info channels than [`MAX_OBS_COLUMNS`].
    #[error("env has {count} columns of one kind, may have at most {MAX_OBS_COLUMNS}")]
    Columns {
        /// Number of columns.
        count: usize,
    },
    /// The action mask does not fit the actions.
    #[error("action space: {0}")]
    Mask(MaskError),
    /// The methods are not such as an env may have.
    #[error("env has {source}")]
    Methods {
        /// Fault in the methods.
        source: BadMethod,
    },
}
