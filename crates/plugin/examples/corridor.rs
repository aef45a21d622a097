//! A plug-in in Rust with an `Env`, which is one lane and has options, methods and results.
//!
//! In a crate of one's own: `crate-type = ["cdylib"]` under `[lib]` in Cargo.toml, and the crates rollhouse-core,
//! rollhouse-env and rollhouse-plugin as dependencies.

use rollhouse_core::{
    ColumnMut, ColumnRef, Determinism, EnvSource, EnvSpec, GameResult, MethodSpec, OptionSpec, OptionValue,
    Options, Space, StateHasher, Verdict,
};
use rollhouse_env::{CallError, Env, EnvEntry, Generator, MakeError, StepResult};

/// A corridor whose far end is wanted. Action 1 goes right and 0 left, and one step in eight slips the other way.
struct Corridor {
    cell: i64,
    length: i64,
    /// True if only the far end pays, instead of each step costing 1.
    pays_at_the_end: bool,
    /// Cells on which every step slips.
    ice: Vec<f64>,
}

impl Corridor {
    fn new(options: &Options) -> Result<Self, MakeError> {
        let pays_at_the_end = match options.text("pay") {
            Some("end") => true,
            Some("steps") | None => false,
            Some(other) => {
                return Err(MakeError::Refused {
                    source: format!("`pay` is {other:?}, not steps or end").into(),
                });
            }
        };
        let length = options.int("length").unwrap_or(LENGTH);
        Ok(Self { cell: 0, length, pays_at_the_end, ice: options.list("ice").unwrap_or_default().to_vec() })
    }
}

/// Goes one step.
fn walk(cell: i64, action: i64, generator: &mut Generator) -> i64 {
    let slips = generator.next_u64().is_multiple_of(8);
    let right = (action == 1) != slips;
    (cell + if right { 1 } else { -1 }).max(0)
}

impl Env for Corridor {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.cell = generator.uniform(0.0, self.length as f64 / 3.0) as i64;
        show(self.cell, obs);
    }

    fn step(
        &mut self,
        generator: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        let action = action.as_i64().and_then(|row| row.first()).copied().unwrap_or_default();
        assert!(self.length != PANICS, "a corridor of {PANICS} cells panics");
        let slips = self.ice.contains(&(self.cell as f64));
        self.cell = walk(self.cell, if slips { 1 - action } else { action }, generator);
        show(self.cell, obs);
        let terminated = self.cell >= self.length;
        let reward = if self.pays_at_the_end { f64::from(u8::from(terminated)) } else { -1.0 };
        StepResult { reward, terminated, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().word(self.cell as u64).finish()
    }

    /// An episode is won at the far end, and the score is the part of the way that was made.
    fn verdict(&self) -> Verdict {
        let result = if self.cell >= self.length { GameResult::Win } else { GameResult::Lose };
        Verdict::new(result, Some(self.cell as f64 / self.length as f64))
    }

    fn call(&mut self, generator: &mut Generator, method: &str, payload: &str) -> Result<String, CallError> {
        match (method, payload.parse::<i64>()) {
            ("where", _) => {}
            ("carry", Ok(cell)) if (0..self.length).contains(&cell) => self.cell = cell,
            ("carry", _) => return Err(CallError::refused(format!("`{payload}` is no cell before the end"))),
            ("lure", _) => self.cell = walk(self.cell, 1, generator).min(self.length - 1),
            _ => return Err(CallError::Unsupported),
        }
        Ok(self.cell.to_string())
    }
}

fn show(cell: i64, obs: &mut [ColumnMut<'_>]) {
    if let Some(row) = obs.first_mut().and_then(ColumnMut::as_f32_mut) {
        row[0] = cell as f32;
    }
}

fn spec(methods: Vec<MethodSpec>, options: Vec<OptionSpec>) -> EnvSpec {
    EnvSpec {
        id: "example/Corridor-v0".to_owned(),
        source: EnvSource::BuiltIn,
        summary: "walk to the end of a slippery corridor".to_owned(),
        observation_space: Space::f32_box(&[0.0], &[f32::INFINITY]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["cell".to_owned()],
        action_names: vec!["left".to_owned(), "right".to_owned()],
        max_episode_steps: Some(200),
        determinism: Determinism::Deterministic,
        methods,
        options,
        info_channels: Vec::new(),
        dynamics_hash: 0,
    }
}

/// Length of a corridor where no other is asked for.
const LENGTH: i64 = 10;
/// Length with which a test sees that a panic loses a lane alone.
const PANICS: i64 = 13;

rollhouse_plugin::export_envs!({
    let option = |name: &str, default, summary: &str| OptionSpec {
        name: name.to_owned(),
        default,
        summary: summary.to_owned(),
    };
    let options = vec![
        option("length", OptionValue::Int(LENGTH), "number of cells"),
        option("pay", OptionValue::Text("steps".to_owned()), "steps: each costs 1; end: the far end pays 1"),
        option("ice", OptionValue::List(Vec::new()), "cells on which every step slips"),
    ];
    let methods = vec![
        MethodSpec::reading("where", "tells the cell"),
        MethodSpec::changing("carry", "puts the walker on a cell").with_params(r#"{"type": "integer"}"#),
        MethodSpec::changing("lure", "makes the walker try a step to the right"),
    ];
    vec![EnvEntry::per_lane(spec(methods, options), Corridor::new)]
});
