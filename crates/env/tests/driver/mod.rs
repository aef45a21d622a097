//! A block with its columns, driven from outside as the engine does.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnRef, LaneSet, OptionValue, Options, Space, random_bits};
use rollhouse_env::{BatchEnv, BlockStep, Ended, EnvEntry, InstructionSet, Registry};

pub(crate) const CLASSIC: [&str; 5] =
    ["Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"];

/// Every built-in env that is not for tests.
pub(crate) const BUILTIN: [&str; 7] = [
    "Acrobot-v1",
    "CartPole-v1",
    "Echo-v0",
    "GridBreakout-v0",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
];

/// Actions of either kind.
#[derive(Debug, Clone)]
pub(crate) enum Actions {
    Integers(Vec<i64>),
    Floats(Vec<f32>),
}

impl Actions {
    pub(crate) fn column(&self) -> ColumnRef<'_> {
        match self {
            Self::Integers(values) => ColumnRef::I64(values),
            Self::Floats(values) => ColumnRef::F32(values),
        }
    }

    /// The actions of one of `lanes` lanes, for `times` lanes.
    pub(crate) fn repeated(&self, lane: usize, lanes: usize, times: usize) -> Self {
        let width = self.column().len() / lanes;
        let range = lane * width..(lane + 1) * width;
        match self {
            Self::Integers(values) => Self::Integers(values[range].repeat(times)),
            Self::Floats(values) => Self::Floats(values[range].repeat(times)),
        }
    }
}

pub(crate) struct Driver {
    pub(crate) entry: Arc<EnvEntry>,
    pub(crate) block: Box<dyn BatchEnv>,
    pub(crate) obs: ColumnData,
    pub(crate) infos: Vec<ColumnData>,
    pub(crate) rewards: Vec<f64>,
}

/// A byte that is no pixel.
const SPOILT: u8 = 7;

pub(crate) fn options(entry: &EnvEntry, given: &[(&str, OptionValue)]) -> Options {
    let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Options::check(&entry.spec().options, &given).unwrap()
}

impl Driver {
    pub(crate) fn new(id: &str, lanes: usize, set: InstructionSet, given: &[(&str, OptionValue)]) -> Self {
        let entry = Registry::builtin().get(id).unwrap();
        let lane_options = vec![options(&entry, given); lanes];
        Self::with(entry, set, &lane_options)
    }

    pub(crate) fn with(entry: Arc<EnvEntry>, set: InstructionSet, lane_options: &[Options]) -> Self {
        let lanes = lane_options.len();
        let block = entry.make_block_on(set, lane_options).unwrap();
        let spec = entry.spec();
        let zeros = |dtype, elements| ColumnData::zeros(dtype, lanes * elements);
        let obs = zeros(spec.obs_columns()[0].dtype, spec.observation_space.elements());
        let infos =
            spec.info_channels.iter().map(|channel| zeros(channel.dtype, channel.elements())).collect();
        let mut driver = Self { entry, block, obs, infos, rewards: vec![f64::NAN; lanes] };
        driver.spoil_obs();
        driver
    }

    pub(crate) fn lanes(&self) -> usize {
        self.rewards.len()
    }

    pub(crate) fn seed_all(&mut self, base: u64) {
        for lane in 0..self.lanes() {
            self.block.seed(lane, base + lane as u64);
        }
    }

    pub(crate) fn reset(&mut self, lanes: LaneSet) -> LaneSet {
        self.block.reset(lanes, &mut [self.obs.as_mut()])
    }

    pub(crate) fn step(&mut self, skip: LaneSet, reset: LaneSet, actions: &Actions) -> Ended {
        let mut infos: Vec<_> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        self.block.step(BlockStep {
            skip,
            reset,
            actions: actions.column(),
            obs: &mut [self.obs.as_mut()],
            infos: &mut infos,
            rewards: &mut self.rewards,
        })
    }

    /// Actions of every lane in step `step`, some of a float one out of bounds.
    pub(crate) fn actions(&self, key: u64, step: u64) -> Actions {
        let bits = |lane| random_bits(key, lane as u32, step);
        match &self.entry.spec().action_space {
            Space::Discrete(space) => {
                Actions::Integers((0..self.lanes()).map(|lane| (bits(lane) % space.n) as i64).collect())
            }
            Space::Box(space) => {
                let wide = 1.2 * space.high[0];
                let unit = |lane| (bits(lane) >> 11) as f64 / (1u64 << 53) as f64;
                Actions::Floats(
                    (0..self.lanes() * space.low.len())
                        .map(|place| ((unit(place) * 2.0 - 1.0) * wide) as f32)
                        .collect(),
                )
            }
        }
    }

    /// The observations of an env that gives singles.
    pub(crate) fn singles(&self) -> &[f32] {
        self.obs.as_ref().as_f32().unwrap()
    }

    pub(crate) fn obs_row(&self, lane: usize) -> &[f32] {
        let width = self.obs.len() / self.lanes();
        &self.singles()[lane * width..(lane + 1) * width]
    }

    /// The observation of an env that gives bytes.
    pub(crate) fn pixels(&self, lane: usize) -> &[u8] {
        let width = self.obs.len() / self.lanes();
        self.obs.row(lane, width).unwrap().as_u8().unwrap()
    }

    /// Writes what no env writes over every observation.
    pub(crate) fn spoil_obs(&mut self) {
        match &mut self.obs {
            ColumnData::U8(values) => values.fill(SPOILT),
            ColumnData::F32(values) => values.fill(f32::NAN),
            other => panic!("no built-in env gives {other:?}"),
        }
    }

    /// Whether nothing of [`Driver::spoil_obs`] is left.
    pub(crate) fn all_obs_written(&self) -> bool {
        match &self.obs {
            ColumnData::U8(values) => values.iter().all(|&value| value != SPOILT),
            ColumnData::F32(values) => values.iter().all(|value| !value.is_nan()),
            _ => false,
        }
    }

    pub(crate) fn hashes(&self) -> [u32; BLOCK_LANES] {
        let mut hashes = [0; BLOCK_LANES];
        self.block.state_hashes(LaneSet::ALL, &mut hashes);
        hashes
    }

    /// Everything of one lane that others may see, as bits.
    pub(crate) fn lane_bits(&self, lane: usize) -> (Vec<u64>, Vec<u32>, u64) {
        let state = self.block.state(lane).unwrap().into_iter().map(f64::to_bits).collect();
        let obs = match &self.obs {
            ColumnData::U8(_) => self.pixels(lane).iter().copied().map(u32::from).collect(),
            _ => self.obs_row(lane).iter().map(|value| value.to_bits()).collect(),
        };
        (state, obs, self.rewards[lane].to_bits())
    }
}
