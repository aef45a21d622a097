//! The dynamics hash, which ties an env's spec to what the env does.

use std::time::Instant;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    BoxSpace, ColumnMut, ColumnSpec, CompositeSpace, DType, Determinism, DiscreteSpace, Drawing,
    ElementRange, EnvSpec, LaneSet, MethodSpec, ObservationSpace, OptionSpec, OptionValue, Options, Role,
    Space, random_bits, split_mix64,
};

use crate::{BlockStep, EnvEntry, InstructionSet, MakeError};

/// Computes what `EnvSpec::dynamics_hash` has to be: a hash of the spec without its texts and of the states of a fixed
/// run of [`DYNAMICS_STEPS`] steps with default options, seeds 0 to 3, hashed actions, and a reset where an episode
/// ends or reaches its time limit. For an env that is not deterministic it hashes the spec alone.
///
/// It is the same on every machine and instruction set. A test of the env compares it with the constant.
///
/// # Errors
/// The env cannot be made with its default options.
pub fn dynamics_hash(entry: &EnvEntry, set: InstructionSet) -> Result<u64, MakeError> {
    let spec = entry.spec();
    let hash = Fold(spec_hash(spec));
    match spec.determinism {
        Determinism::Deterministic => fold_run(hash, entry, set).map(|hash| hash.0),
        Determinism::NonDeterministic => Ok(hash.0),
    }
}

/// Returns the hash of a spec without its texts.
pub fn spec_hash(spec: &EnvSpec) -> u64 {
    Fold(0).spec(spec).0
}

/// Number of steps in the run that [`dynamics_hash`] hashes.
pub const DYNAMICS_STEPS: u64 = 1000;

/// Number of lanes in that run.
const LANES: usize = 4;

fn fold_run(mut hash: Fold, entry: &EnvEntry, set: InstructionSet) -> Result<Fold, MakeError> {
    let spec = entry.spec();
    let defaults = Options::check(&spec.options, &[]).unwrap_or_default();
    let mut block = entry.make_any_block(set, &vec![defaults; LANES])?;
    let mut buffers: Vec<_> = spec.obs_columns().iter().map(Buffer::new).collect();
    let mut info_buffers: Vec<_> = spec.info_channels.iter().map(Buffer::new).collect();
    let mut obs: Vec<_> = buffers.iter_mut().map(Buffer::column).collect();
    let mut infos: Vec<_> = info_buffers.iter_mut().map(Buffer::column).collect();
    let (mut rewards, mut hashes, mut lengths) = ([0.0; LANES], [0; BLOCK_LANES], [0u32; LANES]);
    for lane in 0..LANES {
        block.seed(lane, lane as u64);
    }
    hash = hash.failures(block.reset_at_once(LaneSet::ALL, &mut obs, Instant::now));
    let mut actions = Buffer::new(&spec.action_column());
    let counted = Drawing::of_counted(&spec.action_space);
    let mut reset = LaneSet::NONE;
    for step in 0..DYNAMICS_STEPS {
        actions.draw_actions(&spec.action_space, counted.as_ref(), step);
        let (obs, infos, rewards) = (&mut obs[..], &mut infos[..], &mut rewards[..]);
        let column = actions.column();
        let step = BlockStep { skip: LaneSet::NONE, reset, actions: column.as_ref(), obs, infos, rewards };
        let ended = block.step_at_once(step, Instant::now);
        block.state_hashes(LaneSet::first(LANES), &mut hashes);
        for lane in 0..LANES {
            lengths[lane] = if reset.has(lane) { 0 } else { lengths[lane] + 1 };
            hash = hash.word(u64::from(hashes[lane])).word(rewards[lane].to_bits());
        }
        let timed_out = |lane: &usize| spec.max_episode_steps.is_some_and(|limit| lengths[*lane] >= limit);
        reset = ended.terminated | ended.truncated | (0..LANES).filter(timed_out).collect();
        hash = hash.word(ended.terminated.bits()).word(ended.truncated.bits()).failures(ended.lost);
    }
    Ok(hash)
}

/// Rows of one column for [`LANES`] lanes.
enum Buffer {
    U8(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Buffer {
    fn new(spec: &ColumnSpec) -> Self {
        let elements = spec.elements() * LANES;
        match spec.dtype {
            DType::Bool | DType::U8 => Self::U8(vec![0; elements]),
            DType::I32 => Self::I32(vec![0; elements]),
            DType::I64 => Self::I64(vec![0; elements]),
            DType::F32 => Self::F32(vec![0.0; elements]),
            DType::F64 => Self::F64(vec![0.0; elements]),
        }
    }

    fn column(&mut self) -> ColumnMut<'_> {
        match self {
            Self::U8(values) => ColumnMut::U8(values),
            Self::I32(values) => ColumnMut::I32(values),
            Self::I64(values) => ColumnMut::I64(values),
            Self::F32(values) => ColumnMut::F32(values),
            Self::F64(values) => ColumnMut::F64(values),
        }
    }

    /// Fills in the actions of step number `step`; `counted` says how those are drawn that have texts or sequences.
    fn draw_actions(&mut self, space: &Space, counted: Option<&Drawing>, step: u64) {
        let elements = space.elements();
        for index in 0..elements * LANES {
            let (lane, element) = (index / elements, index % elements);
            let bits = random_bits(element as u64, lane as u32, step);
            let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
            let number = match space {
                // Exact: no env has 2^53 actions.
                Space::Discrete(space) => (space.start + (bits % space.n) as i64) as f64,
                Space::Box(space) => match counted.map(|drawing| drawing.elements[element]) {
                    None => scale(space.low[element], space.high[element], unit),
                    Some(ElementRange { low, high, whole: false }) => scale(low, high, unit),
                    Some(ElementRange { low, high, whole: true }) => scale(low, high + 1.0, unit).floor(),
                },
            };
            match self {
                Self::U8(values) => values[index] = number as u8,
                Self::I32(values) => values[index] = number as i32,
                Self::I64(values) => values[index] = number as i64,
                Self::F32(values) => values[index] = number as f32,
                Self::F64(values) => values[index] = number,
            }
        }
        if let Some(drawing) = counted {
            drawing.settling.settle(self.column());
        }
    }
}

/// Returns the point at `unit` of the way from `low` to `high`. An end that is not finite counts as 1 from the other.
fn scale(low: f64, high: f64, unit: f64) -> f64 {
    let low = if low.is_finite() { low } else { high.min(0.0) - 1.0 };
    let high = if high.is_finite() { high } else { low + 2.0 };
    low + (high - low) * unit
}

/// A 64-bit hash of words in order.
#[derive(Clone, Copy)]
struct Fold(u64);

impl Fold {
    fn word(self, word: u64) -> Self {
        Self(split_mix64(self.0 ^ word))
    }

    /// Folds in lanes that failed, if there are any: what their rows and hashes say means nothing.
    fn failures(self, lost: LaneSet) -> Self {
        if lost.is_empty() { self } else { self.word(lost.bits()) }
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self.word(bytes.len() as u64), |hash, &byte| hash.word(u64::from(byte)))
    }

    fn strings(self, strings: &[String]) -> Self {
        strings.iter().fold(self.word(strings.len() as u64), |hash, string| hash.bytes(string.as_bytes()))
    }

    fn sizes(self, sizes: &[usize]) -> Self {
        sizes.iter().fold(self.word(sizes.len() as u64), |hash, &size| hash.word(size as u64))
    }

    fn floats(self, floats: impl ExactSizeIterator<Item = f64>) -> Self {
        let count = floats.len() as u64;
        floats.fold(self.word(count), |hash, float| hash.word(float.to_bits()))
    }

    /// Adds everything of a spec on which a recording depends, which leaves out the texts. Each struct is taken apart
    /// in full, so that a new field does not compile until it is dealt with here.
    fn spec(self, spec: &EnvSpec) -> Self {
        let EnvSpec {
            id,
            // Its id tells it, or it is no part of what the env does.
            source: _,
            summary: _,
            observation_space,
            action_space,
            observation_names,
            action_names,
            max_episode_steps,
            determinism,
            methods,
            options,
            info_channels,
            dynamics_hash: _,
        } = spec;
        let hash = self.bytes(id.as_bytes()).observation(observation_space).space(action_space);
        let hash = hash.strings(observation_names).strings(action_names);
        let hash = hash.word(max_episode_steps.map_or(u64::MAX, u64::from));
        let hash = hash.word(match determinism {
            Determinism::Deterministic => 0,
            Determinism::NonDeterministic => 1,
        });
        let hash = options.iter().fold(hash.word(options.len() as u64), Self::option);
        let hash = info_channels.iter().fold(hash.word(info_channels.len() as u64), Self::channel);
        // No env had methods when the first hashes were made.
        methods.iter().fold(hash, Self::method)
    }

    fn observation(self, space: &ObservationSpace) -> Self {
        match space {
            ObservationSpace::Plain(space) => self.space(space),
            ObservationSpace::Composite(parts) => self.composite(parts),
        }
    }

    fn composite(self, space: &CompositeSpace) -> Self {
        match space {
            CompositeSpace::Dict { spaces } => {
                let hash = self.word(2).word(spaces.len() as u64);
                spaces.iter().fold(hash, |hash, (name, space)| hash.bytes(name.as_bytes()).observation(space))
            }
            CompositeSpace::Tuple { spaces } => {
                spaces.iter().fold(self.word(3).word(spaces.len() as u64), Self::observation)
            }
            CompositeSpace::Text(space) => {
                let hash = self.word(4).word(space.min_length() as u64).word(space.max_length() as u64);
                hash.bytes(space.characters().as_bytes())
            }
            CompositeSpace::Sequence(space) => {
                let hash = self.word(5).space(space.item()).word(space.maximum() as u64);
                hash.word(u64::from(space.stack()))
            }
        }
    }

    fn space(self, space: &Space) -> Self {
        let hash = match space {
            Space::Box(BoxSpace { low, high, shape, dtype, choices, parts, own: _ }) => {
                let hash = self
                    .word(0)
                    .floats(low.iter())
                    .floats(high.iter())
                    .sizes(shape)
                    .bytes(dtype.name().as_bytes());
                let hash = if *choices { hash.word(1) } else { hash };
                match parts.as_deref() {
                    Some(parts) => hash.composite(parts),
                    None => hash,
                }
            }
            Space::Discrete(DiscreteSpace { n, start, own: _ }) => self.word(1).word(*n).word(*start as u64),
        };
        // No env had a type of its own when the first hashes were made.
        space.own().map_or(hash, |own| hash.bytes(own.name().as_bytes()))
    }

    fn option(self, OptionSpec { name, default, summary: _ }: &OptionSpec) -> Self {
        let hash = self.bytes(name.as_bytes());
        match default {
            OptionValue::Bool(value) => hash.word(0).word(u64::from(*value)),
            OptionValue::Int(value) => hash.word(1).word(*value as u64),
            OptionValue::Float(value) => hash.word(2).word(value.to_bits()),
            OptionValue::Text(value) => hash.word(3).bytes(value.as_bytes()),
            OptionValue::List(values) => hash.word(4).floats(values.iter().copied()),
            // No default is drawn.
            OptionValue::Drawn(_) => hash.word(5),
        }
    }

    /// Adds what recordings depend on: how often a method may be called is no part of it.
    fn method(
        self,
        MethodSpec { name, changes, summary: _, params: _, max_per_second: _ }: &MethodSpec,
    ) -> Self {
        self.bytes(name.as_bytes()).word(u64::from(*changes))
    }

    fn channel(self, ColumnSpec { path, dtype, shape, names, role }: &ColumnSpec) -> Self {
        let hash = self.bytes(path.as_bytes()).bytes(dtype.name().as_bytes()).sizes(shape).strings(names);
        // Channels had one role when the first hashes were made.
        if *role == Role::Info { hash } else { hash.word(*role as u64) }
    }
}
