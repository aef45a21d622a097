//! A plug-in in Rust with a `BatchEnv`, which is all lanes of a block: the corridor of `corridor.rs` without options.

use rollhouse_core::{
    ColumnMut, Determinism, EnvSource, EnvSpec, GameResult, LaneSet, Space, Start, StateHasher, Verdict,
};
use rollhouse_env::{BatchEnv, BlockStep, Ended, EnvEntry, Generator, LaneBlock};

/// Length of each corridor.
const LENGTH: i64 = 10;

/// Corridors of ten cells, side by side. Action 1 goes right and 0 left, and one step in eight slips the other way.
struct Corridors {
    cells: Vec<i64>,
    generators: Vec<Generator>,
}

impl LaneBlock for Corridors {
    fn lanes(&self) -> usize {
        self.cells.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.generators[lane] = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.generators[lane].position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.generators[lane] = Generator::at(start);
    }

    fn state_hash(&self, lane: usize) -> u32 {
        StateHasher::new().word(self.cells[lane] as u64).finish()
    }

    fn has_verdicts(&self) -> bool {
        true
    }

    /// An episode is won at the far end, and the score is the part of the way that was made.
    fn verdict(&self, lane: usize) -> Verdict {
        let result = if self.cells[lane] >= LENGTH { GameResult::Win } else { GameResult::Lose };
        Verdict::new(result, Some(self.cells[lane] as f64 / LENGTH as f64))
    }
}

impl BatchEnv for Corridors {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        for lane in lanes & LaneSet::first(self.lanes()) {
            self.cells[lane] = self.generators[lane].uniform(0.0, LENGTH as f64 / 3.0) as i64;
            show(self.cells[lane], obs, lane);
        }
        LaneSet::NONE
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let mut ended = Ended::default();
        let actions = step.actions.as_i64().unwrap_or_default();
        step.rewards.fill(0.0);
        for (lane, &action) in actions.iter().enumerate() {
            if !(step.skip | step.reset).has(lane) {
                self.cells[lane] = walk(self.cells[lane], action, &mut self.generators[lane]);
                step.rewards[lane] = -1.0;
                ended.terminated.insert_if(lane, self.cells[lane] >= LENGTH);
            }
            show(self.cells[lane], step.obs, lane);
        }
        ended.lost |= self.reset(step.reset, step.obs);
        ended
    }
}

/// Goes one step.
fn walk(cell: i64, action: i64, generator: &mut Generator) -> i64 {
    let slips = generator.next_u64().is_multiple_of(8);
    let right = (action == 1) != slips;
    (cell + if right { 1 } else { -1 }).max(0)
}

fn show(cell: i64, obs: &mut [ColumnMut<'_>], lane: usize) {
    if let Some(rows) = obs.first_mut().and_then(ColumnMut::as_f32_mut) {
        rows[lane] = cell as f32;
    }
}

rollhouse_plugin::export_envs!({
    let spec = EnvSpec {
        id: "example/Corridors-v0".to_owned(),
        source: EnvSource::BuiltIn,
        summary: "walk to the end of a slippery corridor".to_owned(),
        observation_space: Space::f32_box(&[0.0], &[f32::INFINITY]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["cell".to_owned()],
        action_names: vec!["left".to_owned(), "right".to_owned()],
        max_episode_steps: Some(200),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: Vec::new(),
        dynamics_hash: 0,
    };
    vec![EnvEntry::new(spec, |_, options| {
        let generators = vec![Generator::seeded(0); options.len()];
        Ok(Box::new(Corridors { cells: vec![0; options.len()], generators }))
    })]
});
