//! test/Masked-v0, a walk whose infos say which actions it takes.

use rollhouse_core::{
    ColumnMut, ColumnRef, ColumnSpec, DType, Determinism, EnvSource, EnvSpec, GameResult, Role, Space,
    StateHasher, Verdict,
};

use super::faulty::write;
use crate::{Env, EnvEntry, Generator, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn masked() -> EnvEntry {
    EnvEntry::per_lane(spec(), |_| Ok(Masked { cell: 0, fell: false }))
}

fn spec() -> EnvSpec {
    EnvSpec {
        id: "test/Masked-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "for tests of the machinery: a corridor of cells, in each of which two of four actions are allowed".into(),
        observation_space: Space::f32_box(&[0.0], &[CELLS as f32]).into(),
        action_space: Space::discrete(ACTIONS as u64),
        observation_names: vec!["cell".into()],
        action_names: Vec::new(),
        max_episode_steps: Some(50),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: vec![ColumnSpec {
            path: "action_mask".into(),
            dtype: DType::Bool,
            shape: vec![ACTIONS],
            names: Vec::new(),
            role: Role::ActionMask,
        }],
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x3998_4ff3_f004_66a5;

const ACTIONS: usize = 4;
/// Number of the last cell, where an episode is won.
const CELLS: u64 = 20;

/// One walk. An action that is not allowed ends the episode, which is lost then; others go as many cells as their number.
struct Masked {
    cell: u64,
    fell: bool,
}

impl Masked {
    const fn allows(&self, action: u64) -> bool {
        (self.cell + action).is_multiple_of(2)
    }

    fn show(&self, infos: &mut [ColumnMut<'_>]) {
        if let Some(mask) = infos.first_mut().and_then(ColumnMut::as_u8_mut) {
            for (action, flag) in (0..).zip(mask) {
                *flag = u8::from(self.allows(action));
            }
        }
    }
}

impl Env for Masked {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        (self.cell, self.fell) = ((generator.uniform(0.0, 4.0)) as u64, false);
        write(obs, self.cell as f64);
    }

    fn first_infos(&self, infos: &mut [ColumnMut<'_>]) {
        self.show(infos);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        infos: &mut [ColumnMut<'_>],
    ) -> StepResult {
        let action = action.as_i64().map_or(0, |action| action[0] as u64);
        self.fell = !self.allows(action);
        self.cell = (self.cell + action + 1).min(CELLS);
        write(obs, self.cell as f64);
        self.show(infos);
        StepResult { reward: 1.0, terminated: self.fell || self.cell == CELLS, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().word(self.cell).word(u64::from(self.fell)).finish()
    }

    fn verdict(&self) -> Verdict {
        match self.fell {
            true => Verdict::new(GameResult::Lose, None),
            false if self.cell == CELLS => Verdict::new(GameResult::Win, None),
            false => Verdict::default(),
        }
    }
}
