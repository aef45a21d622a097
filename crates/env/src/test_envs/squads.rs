//! test/Squads-v0, whose observations and actions are sequences of small Dicts.

use rollhouse_core::{
    Bounds, BoxSpace, ColumnMut, ColumnRef, CompositeSpace, DType, Determinism, EnvSource, EnvSpec,
    ObservationSpace, SequenceSpace, Space, StateHasher,
};

use crate::{Env, EnvEntry, Generator, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn squads() -> EnvEntry {
    EnvEntry::per_lane(spec(), |_| Ok(Squads { units: Vec::new() }))
}

fn spec() -> EnvSpec {
    let space = space();
    let action = space.clone().and_then(|space| BoxSpace::of_parts(space).ok());
    EnvSpec {
        id: "test/Squads-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "for tests of the machinery: shows the units of its last action, in the other order".into(),
        observation_space: space.map_or_else(|| Space::discrete(1).into(), ObservationSpace::Composite),
        action_space: action.map_or_else(|| Space::discrete(1), Space::Box),
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: Some(40),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Units with a kind, a place and two bits; all of them are small numbers, which one column has.
fn space() -> Option<CompositeSpace> {
    let (low, high) = (Bounds::all(0.0, 2), Bounds::all(1.0, 2));
    let bits =
        BoxSpace { low, high, shape: vec![2], dtype: DType::U8, choices: true, parts: None, own: None };
    let spaces: Vec<(String, ObservationSpace)> = vec![
        ("at".into(), Space::f32_box(&[-1.0, -1.0], &[1.0, 1.0]).into()),
        ("bits".into(), Space::Box(bits).into()),
        ("kind".into(), Space::discrete(3).into()),
    ];
    let unit = Space::Box(BoxSpace::of_parts(CompositeSpace::Dict { spaces }).ok()?);
    Some(SequenceSpace::new(unit, UNITS, false).ok()?.into())
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0xd0c0_ffc1_a131_0f98;

/// Most units.
const UNITS: usize = 4;
/// Numbers of a unit: its place, its bits, its kind.
const WIDTH: usize = 5;

/// The units of the last action, the last one first.
struct Squads {
    units: Vec<[f64; WIDTH]>,
}

impl Squads {
    fn show(&self, obs: &mut [ColumnMut<'_>]) {
        let [ColumnMut::F64(units), ColumnMut::I64([count])] = obs else { return };
        units.fill(0.0);
        let shown = self.units.as_flattened();
        units[..shown.len()].copy_from_slice(shown);
        *count = self.units.len() as i64;
    }
}

impl Env for Squads {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.units = vec![[f64::from(generator.uniform(-1.0, 1.0) as f32), 0.5, 1.0, 0.0, 2.0]];
        self.show(obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        // An action is its columns one after the other: units, and their number.
        let (units, count) = action.as_f64().unwrap_or_default().split_at(UNITS * WIDTH);
        let (units, _) = units[..count[0] as usize * WIDTH].as_chunks();
        self.units = units.iter().rev().copied().collect();
        self.show(obs);
        let reward = self.units.iter().map(|[.., kind]| kind).sum();
        StepResult { reward, terminated: self.units.len() == UNITS, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        let numbers = self.units.as_flattened().iter();
        numbers.fold(StateHasher::new().word(self.units.len() as u64), |hash, &of| hash.f64(of)).finish()
    }
}
