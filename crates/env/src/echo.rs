//! Echo-v0, whose wide observation is made of the actions, for measuring transports.

use rollhouse_core::{
    ColumnMut, ColumnSpec, DType, Determinism, EnvSource, EnvSpec, LaneSet, Role, Space, Start, StateHasher,
};

use crate::dispatch::{Kernel, Target};
use crate::scene::Scene;
use crate::{
    BatchEnv, BlockStep, Ended, EnvEntry, Generator, Image, ImageSize, LaneBlock, RenderError, StateError,
};

/// Makes the registry's entry for the env.
///
/// Only the time limit ends an episode. Observation i of a lane after its step number `steps` is
/// `action[i % 12] + steps % 65536`, in singles: exact for actions that are multiples of 1/256 between -1 and 1,
/// so that a reader can tell by it which action was stepped and how often. After a reset all of it is 0. The info
/// channel `steps` counts the steps of the episode. Rewards are the step's first action.
pub(crate) fn echo() -> EnvEntry {
    EnvEntry::soa(spec(), |target, options| Ok(Echo::new(target, options.len()))).drawn(Echo::SIZE, Echo::FPS)
}

fn spec() -> EnvSpec {
    EnvSpec {
        id: "Echo-v0".into(),
        source: EnvSource::BuiltIn,
        summary:
            "a 100-number observation made of 12-number actions and a count of steps, to measure transports"
                .into(),
        observation_space: Space::f32_box(&[-1.0; OBS], &[COUNT as f32; OBS]).into(),
        action_space: Space::f32_box(&[-1.0; ACTIONS], &[1.0; ACTIONS]),
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: Some(1000),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: vec![ColumnSpec {
            path: "steps".into(),
            dtype: DType::I64,
            shape: Vec::new(),
            names: Vec::new(),
            role: Role::Info,
        }],
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x3cc3_1c8c_dcd9_3ab5;

/// Number of elements in an observation.
const OBS: usize = 100;

/// Number of elements in an action.
pub(crate) const ACTIONS: usize = 12;

/// Modulus of the step count in observations: sums stay exact in singles.
const COUNT: u64 = 1 << 16;

/// A block of Echo lanes.
pub(crate) struct Echo {
    target: Target,
    lanes: Vec<Lane>,
}

#[derive(Debug, Clone)]
struct Lane {
    steps: u64,
    /// Last action of each lane; zeros after a reset.
    action: [f32; ACTIONS],
    /// Generator of each lane, which is only carried along: nothing is drawn.
    generator: Generator,
}

impl Echo {
    fn new(target: Target, lanes: usize) -> Self {
        let lane = Lane { steps: 0, action: [0.0; ACTIONS], generator: Generator::seeded(0) };
        Self { target, lanes: vec![lane; lanes] }
    }
}

impl Lane {
    fn begin(&mut self) {
        (self.steps, self.action) = (0, [0.0; ACTIONS]);
    }

    #[inline(always)]
    fn observe(&self, row: &mut [f32; OBS]) {
        let count = (self.steps % COUNT) as f32;
        let sums = self.action.map(|element| element + count);
        let (whole, rest) = row.as_chunks_mut::<ACTIONS>();
        for part in whole {
            *part = sums;
        }
        rest.copy_from_slice(&sums[..OBS % ACTIONS]);
    }
}

impl LaneBlock for Echo {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.lanes[lane].generator = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.lanes[lane].generator.position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.lanes[lane].generator = Generator::at(start);
    }

    fn state_hash(&self, lane: usize) -> u32 {
        let Lane { steps, action, .. } = &self.lanes[lane];
        let hasher = StateHasher::new().word(*steps);
        action.iter().fold(hasher, |hasher, value| hasher.word(u64::from(value.to_bits()))).finish()
    }

    /// Returns the number of steps of the episode, then the last action.
    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        let Lane { steps, action, .. } = &self.lanes[lane];
        Ok(std::iter::once(*steps as f64).chain(action.iter().copied().map(f64::from)).collect())
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let [steps, action @ ..] = state else {
            return Err(StateError::Length { given: 0, wanted: 1 + ACTIONS });
        };
        let action: &[f64; ACTIONS] =
            action.try_into().map_err(|_| StateError::Length { given: state.len(), wanted: 1 + ACTIONS })?;
        if !(0.0..=MAX_EXACT).contains(steps) || steps.fract() != 0.0 {
            return Err(StateError::Value { index: 0, given: *steps });
        }
        if let Some(index) = action.iter().position(|value| !(*value as f32).is_finite()) {
            return Err(StateError::Value { index: 1 + index, given: action[index] });
        }
        let lane = &mut self.lanes[lane];
        (lane.steps, lane.action) = (*steps as u64, action.map(|value| value as f32));
        Ok(())
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let Lane { steps, action, .. } = self.lanes[lane];
        Ok(Self::picture(&(steps, action), size))
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let Lane { steps, action, .. } = self.lanes[lane];
        Ok(<Self as Scene<_>>::text(&(steps, action), columns))
    }
}

impl BatchEnv for Echo {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let rows = obs_rows(obs, self.lanes.len());
        for lane in lanes & LaneSet::first(self.lanes.len()) {
            self.lanes[lane].begin();
            self.lanes[lane].observe(&mut rows[lane]);
        }
        LaneSet::NONE
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let lanes = self.lanes.len();
        let actions = step.actions.as_f32().map(|actions| actions.as_chunks::<ACTIONS>().0);
        let actions = actions.filter(|rows| rows.len() == lanes);
        let counts = step.infos.first_mut().and_then(ColumnMut::as_i64_mut);
        self.target.run(StepLanes {
            lanes: &mut self.lanes,
            skip: step.skip,
            reset: step.reset,
            actions: actions.expect("the action column has the spec's type and one row per lane"),
            rows: obs_rows(step.obs, lanes),
            counts: counts.expect("the info column has the spec's type"),
            rewards: step.rewards,
        });
        Ended::default()
    }
}

/// Number up to which doubles count without gaps.
const MAX_EXACT: f64 = (1u64 << 53) as f64;

struct StepLanes<'a> {
    lanes: &'a mut [Lane],
    skip: LaneSet,
    reset: LaneSet,
    actions: &'a [[f32; ACTIONS]],
    rows: &'a mut [[f32; OBS]],
    counts: &'a mut [i64],
    rewards: &'a mut [f64],
}

impl Kernel for StepLanes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { lanes, skip, reset, actions, rows, counts, rewards } = self;
        for (index, (lane, row)) in lanes.iter_mut().zip(rows).enumerate() {
            rewards[index] = 0.0;
            if reset.has(index) {
                lane.begin();
            } else if !skip.has(index) {
                lane.steps += 1;
                lane.action = actions[index];
                counts[index] = lane.steps as i64;
                rewards[index] = f64::from(lane.action[0]);
            }
            lane.observe(row);
        }
    }
}

/// Returns the rows of the one observation column.
///
/// # Panics
/// If the caller gave another type or number of rows than the spec says.
fn obs_rows<'a>(columns: &'a mut [ColumnMut<'_>], lanes: usize) -> &'a mut [[f32; OBS]] {
    let rows = columns.first_mut().and_then(ColumnMut::as_f32_mut).map(|column| column.as_chunks_mut().0);
    rows.filter(|rows| rows.len() == lanes).expect("the obs column has the spec's type and a row per lane")
}
