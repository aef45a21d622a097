//! Speed of Skirmish-v0: `cargo bench -p rollhouse-env --bench skirmish`. Items are ticks of one lane on one core.

use divan::{Bencher, counter::ItemsCount};
use rollhouse_core::{ColumnData, ColumnSpec, EnvSpec, LaneSet, OptionValue, Options};
use rollhouse_env::{BatchEnv, BlockStep, Registry};

fn main() {
    divan::main();
}

/// A lane that gives no orders, and begins the next game where one ends.
struct Table {
    block: Box<dyn BatchEnv>,
    obs: Vec<ColumnData>,
    infos: Vec<ColumnData>,
    action: ColumnData,
}

fn zeros(columns: &[ColumnSpec]) -> Vec<ColumnData> {
    columns.iter().map(|column| ColumnData::zeros(column.dtype, column.elements())).collect()
}

/// Returns the row of an action without orders that advances by so many ticks.
fn row(spec: &EnvSpec, ticks: i64) -> ColumnData {
    let one = |path: &str| match path {
        "ticks" => vec![ticks],
        "check_every" => vec![1],
        _ => Vec::new(),
    };
    let parts = spec.action_parts();
    let mut row = Vec::new();
    for part in &parts {
        let first = row.len();
        row.extend(one(&part.path));
        row.resize(first + part.elements(), 0);
    }
    ColumnData::I64(row)
}

impl Table {
    fn new(ticks: i64, opponent: &str) -> Self {
        let entry = Registry::builtin().get("Skirmish-v0").expect("a built-in env");
        let spec = entry.spec();
        let given = [
            ("opponent".to_owned(), OptionValue::Text(opponent.to_owned())),
            ("time_limit".to_owned(), OptionValue::Int(20_000)),
        ];
        let options = Options::check(&spec.options, &given).expect("options of the env");
        let mut block = entry.make_block(&[options]).expect("options of the env");
        block.seed(0, 1);
        let (obs, infos) = (zeros(&spec.obs_columns()), zeros(&spec.info_channels));
        let mut table = Self { block, obs, infos, action: row(spec, ticks) };
        assert!(!table.step(LaneSet::ALL), "an episode that begins goes on");
        table
    }

    /// Steps, or resets; returns whether the episode ended.
    fn step(&mut self, reset: LaneSet) -> bool {
        let mut obs: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<_> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        let actions = self.action.as_ref();
        let (skip, rewards) = (LaneSet::NONE, &mut [0.0]);
        let step = BlockStep { skip, reset, actions, obs: &mut obs, infos: &mut infos, rewards };
        let ended = self.block.step(step);
        !(ended.terminated | ended.truncated).is_empty()
    }
}

/// Ticks of a step.
const TICKS: &[i64] = &[1, 50, 1000];

fn bench(bencher: Bencher<'_, '_>, ticks: i64, opponent: &str) {
    let mut table = Table::new(ticks, opponent);
    bencher.counter(ItemsCount::new(ticks as usize)).bench_local(|| {
        if table.step(LaneSet::NONE) {
            table.step(LaneSet::ALL);
        }
    });
}

#[divan::bench(args = TICKS, sample_count = 20, sample_size = 200)]
fn without_orders_against_a_beginner(bencher: Bencher<'_, '_>, ticks: i64) {
    bench(bencher, ticks, "beginner");
}

#[divan::bench(args = TICKS, sample_count = 20, sample_size = 200)]
fn without_orders_against_a_hard_player(bencher: Bencher<'_, '_>, ticks: i64) {
    bench(bencher, ticks, "hard");
}
