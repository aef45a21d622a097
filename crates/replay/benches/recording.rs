//! What recording costs the stepping thread and the writer thread.
//!
//! `cargo bench -p rollhouse-replay --bench recording`
#![allow(missing_docs, clippy::print_stdout)]

use std::sync::Arc;

use divan::counter::ItemsCount;
use rollhouse_core::{
    ColumnRef, Determinism, EnvSource, EnvSpec, GameResult, LaneSet, Options, Outcome, RecordRule, RunId,
    SeedSchedule, Space, Start, split_mix64,
};
use rollhouse_replay::{
    BlockRecorder, End, PolicyInfo, RealDisk, Recorder, RecorderConfig, Row, RunHeader, RunRecorder,
};

fn main() {
    divan::main();
}

fn header(lanes: u32, schedule: SeedSchedule) -> RunHeader {
    let spec = EnvSpec {
        id: "CartPole-v1".into(),
        source: EnvSource::BuiltIn,
        summary: String::new(),
        observation_space: Space::f32_box(&[-4.8; 4], &[4.8; 4]).into(),
        action_space: Space::discrete(2),
        observation_names: vec![],
        action_names: vec![],
        max_episode_steps: Some(500),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![],
        info_channels: vec![],
        dynamics_hash: 1,
    };
    RunHeader {
        run: RunId::generate(),
        spec,
        options: vec![Options::default()],
        lanes,
        schedule,
        autoreset: "NextStep".into(),
        max_episode_steps: Some(500),
        policy: PolicyInfo { name: "random".into(), version: 1 },
        record: RecordRule::All,
        program: "bench".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
    }
}

/// Steps that look like random CartPole: one lane in 22 ends in each row and resets in the next.
struct Script {
    actions: Vec<[i64; 64]>,
    ends: Vec<LaneSet>,
}

impl Script {
    fn new() -> Self {
        let mut bits = 1;
        let mut next = || {
            bits = split_mix64(bits);
            bits
        };
        let actions = (0..4).map(|_| std::array::from_fn(|_| (next() & 1) as i64)).collect();
        let ends = (0..1024).map(|_| (0..64).filter(|_| next() % 22 == 0).collect());
        Self { ends: ends.collect(), actions }
    }
}

struct Block {
    recorder: Option<BlockRecorder>,
    resetting: LaneSet,
    row: usize,
}

impl Block {
    fn new(run: Option<&RunRecorder>, index: u32) -> Self {
        let mut recorder = run.map(|run| run.block(index * 64, 64));
        if let Some(recorder) = &mut recorder {
            for lane in 0..64 {
                recorder.begin(lane, Start::seeded(lane as u64), &[]);
            }
        }
        Self { recorder, resetting: LaneSet::NONE, row: index as usize * 37 }
    }

    #[inline]
    fn step(&mut self, script: &Script, now_ms: u64) {
        let stepped = !self.resetting;
        let actions = ColumnRef::I64(&script.actions[self.row % 4]);
        let ended = script.ends[self.row % 1024] & stepped;
        if let Some(recorder) = &mut self.recorder {
            recorder.row(Row {
                stepped,
                begun: LaneSet::NONE,
                actions,
                obs: &[],
                rewards: &[],
                infos: &[],
                now_ms,
            });
            for lane in ended {
                let end = End {
                    outcome: Outcome::TERMINATED,
                    total_reward: 22.0,
                    hash: self.row as u32,
                    result: GameResult::None,
                    score: None,
                };
                recorder.end(lane, end);
            }
            for lane in self.resetting {
                recorder.begin(lane, Start { seed: 1, words: 4 * self.row as u64, half: None }, &[]);
            }
        }
        self.resetting = ended;
        self.row += 1;
    }
}

fn run(bencher: divan::Bencher<'_, '_>, blocks: u32, schedule: Option<SeedSchedule>) {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let recorder =
        Recorder::open(Arc::new(RealDisk), folder.path(), RecorderConfig::default()).expect("open");
    let run = schedule.map(|schedule| recorder.begin_run(header(blocks * 64, schedule)).expect("begin"));
    let script = Script::new();
    let mut blocks: Vec<_> = (0..blocks).map(|b| Block::new(run.as_ref(), b)).collect();
    let mut now = 0;
    let mut steps = 0;
    bencher.counter(ItemsCount::new(64 * blocks.len())).bench_local(|| {
        now += 1;
        steps += 64 * blocks.len() as u64;
        for block in &mut blocks {
            block.step(&script, now / 1000);
        }
        divan::black_box_drop(&mut blocks);
    });
    drop(blocks);
    drop(run);
    let recorded = recorder.finish().expect("finish");
    let per_step = |nanos: u128| nanos as f64 / steps as f64;
    println!(
        "\n   writer busy {:.2} ns a lane-step, stepping thread stalled {:.3} ns, {:.3} bytes a lane-step",
        per_step(recorded.busy.as_nanos()),
        per_step(recorded.stalled.as_nanos()),
        recorded.bytes as f64 / steps as f64,
    );
}

/// The loop around the recorder, to be subtracted from the other two.
#[divan::bench(args = [1, 64], sample_size = 2000, sample_count = 50)]
fn row_not_recorded(bencher: divan::Bencher<'_, '_>, blocks: u32) {
    run(bencher, blocks, None);
}

#[divan::bench(args = [1, 64], sample_size = 2000, sample_count = 50)]
fn row_per_episode(bencher: divan::Bencher<'_, '_>, blocks: u32) {
    run(bencher, blocks, Some(SeedSchedule::PerEpisode { run_seed: 1 }));
}

#[divan::bench(args = [1, 64], sample_size = 2000, sample_count = 50)]
fn row_continue(bencher: divan::Bencher<'_, '_>, blocks: u32) {
    run(bencher, blocks, Some(SeedSchedule::Continue));
}

/// Rows of 64 lanes whose actions are sixteen orders of 1 KiB in all: none is given, one is, or all are drawn anew.
#[divan::bench(args = ["none", "one", "all"], sample_size = 20, sample_count = 50)]
fn row_of_orders(bencher: divan::Bencher<'_, '_>, given: &str) {
    const ELEMENTS: usize = 256;
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let recorder =
        Recorder::open(Arc::new(RealDisk), folder.path(), RecorderConfig::default()).expect("open");
    let mut header = header(64, SeedSchedule::PerEpisode { run_seed: 1 });
    header.spec.action_space = Space::f32_box(&[-1.0; ELEMENTS], &[1.0; ELEMENTS]);
    let run = recorder.begin_run(header).expect("begin");
    let mut block = run.block(0, 64);
    (0..64).for_each(|lane| block.begin(lane, Start::seeded(lane as u64), &[]));
    let rows: Vec<Vec<f32>> = (0..64u64)
        .map(|row| {
            let action = |at: usize| {
                let bits = split_mix64(row << 32 | at as u64);
                let order = split_mix64(row << 32 | (at / ELEMENTS) as u64) % 16;
                let is_given = given == "all" || given == "one" && (at % ELEMENTS / 16) as u64 == order;
                if is_given { f32::from_bits((bits >> 34) as u32) } else { -1.0 }
            };
            (0..64 * ELEMENTS).map(action).collect()
        })
        .collect();
    let mut row = 0;
    bencher.counter(ItemsCount::new(64usize)).bench_local(|| {
        let actions = ColumnRef::F32(&rows[row % 64]);
        let (stepped, begun, now_ms) = (LaneSet::ALL, LaneSet::NONE, row as u64 / 10);
        block.row(Row { stepped, begun, actions, obs: &[], rewards: &[], infos: &[], now_ms });
        row += 1;
    });
    drop((block, run));
    let recorded = recorder.finish().expect("finish");
    let steps = (64 * row) as f64;
    println!(
        "\n   writer busy {:.0} ns a lane-step, {:.1} bytes a lane-step",
        recorded.busy.as_nanos() as f64 / steps,
        recorded.bytes as f64 / steps,
    );
}
