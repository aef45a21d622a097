//! Plays real envs straight on block and recorder, as the engine does under NEXT_STEP.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::limits::HASH_WINDOW_STEPS;
use rollhouse_core::{
    ColumnData, ColumnMut, DType, Drawing, GameResult, Interruption, LaneSet, Options, Outcome, RecordRule,
    RunId, SeedSchedule, Space, Start, StepColumn, StepColumns, per_episode_seed, random_bits, split_mix64,
};
use rollhouse_env::{BlockStep, Registry};
use rollhouse_replay::{
    Beside, BlockRecorder, Disk, End, PolicyInfo, Recorded, Recorder, RecorderConfig, Row, RunHeader,
};

/// What is played.
#[derive(Debug, Clone)]
pub struct Play {
    pub env: &'static str,
    pub lanes: usize,
    /// Which lane of the run the first is, of how many; 0 of just these.
    pub first_lane: u32,
    pub run_lanes: u32,
    pub rows: u64,
    pub record: RecordRule,
    pub per_episode: bool,
    pub seed: u64,
    /// The run that it is recorded as, if that is not drawn from the seed.
    pub run: Option<RunId>,
    pub max_steps: u64,
    /// From this step of each episode on the recorder is shown another action than the env got.
    pub lie_from: Option<u64>,
    /// Number of rows after which another version of the policy acts; 0 if nobody says which does.
    pub version_rows: u64,
    /// Whether something is noted of each step: see [`noted`].
    pub noted: bool,
}

impl Play {
    pub fn new(env: &'static str, rows: u64) -> Self {
        Self {
            env,
            lanes: 64,
            first_lane: 0,
            run_lanes: 0,
            rows,
            record: RecordRule::All,
            per_episode: true,
            seed: 7,
            run: None,
            max_steps: 200,
            lie_from: None,
            version_rows: 0,
            noted: false,
        }
    }
}

impl Play {
    /// Which version of the policy acts in a row.
    pub fn version_of(&self, row: u64) -> u64 {
        row.checked_div(self.version_rows).map_or(0, |turn| 1 + turn % 3)
    }
}

/// The step columns of a play in which something is noted.
pub fn step_columns() -> StepColumns {
    let column =
        |name: &str, dtype, shape: &[usize]| StepColumn { name: name.into(), dtype, shape: shape.into() };
    let columns = vec![
        column("row", DType::I64, &[]),
        column("turn", DType::F32, &[]),
        column("pair", DType::I32, &[2]),
        column("said_never", DType::F64, &[3]),
    ];
    StepColumns::new(columns).unwrap()
}

/// What is noted of a step of each of so many lanes: the row, a number that is the same for 37 rows, and one that is the
/// same for each lane.
pub fn noted(row: u64, lanes: usize) -> Vec<ColumnData> {
    vec![
        ColumnData::I64(vec![row as i64; lanes]),
        ColumnData::F32(vec![(row / 37) as f32; lanes]),
        ColumnData::I32((0..lanes as i32).flat_map(|lane| [lane, -7]).collect()),
        ColumnData::F64(vec![f64::NAN; 3 * lanes]),
    ]
}

/// The run that a play is recorded as.
pub fn run_of(play: &Play) -> RunId {
    if let Some(run) = play.run {
        return run;
    }
    let high = split_mix64(play.seed ^ play.env.len() as u64);
    let low = split_mix64(play.seed ^ u64::from(play.env.as_bytes()[0]));
    RunId::from_u128(u128::from(high) << 64 | u128::from(low))
}

/// Plays and records; every open episode is cancelled at the end.
pub fn play(disk: Arc<dyn Disk>, dir: &Path, play: &Play) -> Recorded {
    play_with(disk, dir, RecorderConfig::default(), play, |_, _, _| {})
}

/// As [`play`], and shows recorder and block after each row.
pub fn play_with(
    disk: Arc<dyn Disk>,
    dir: &Path,
    config: RecorderConfig,
    play: &Play,
    after_row: impl FnMut(u64, &Recorder, &mut BlockRecorder),
) -> Recorded {
    let recorder = Recorder::open(disk, dir, config).unwrap();
    play_into(&recorder, play, after_row);
    recorder.finish().unwrap()
}

/// As [`play_with`], into a recorder that goes on.
pub fn play_into(
    recorder: &Recorder,
    play: &Play,
    mut after_row: impl FnMut(u64, &Recorder, &mut BlockRecorder),
) {
    let first = play.first_lane;
    let registry = Registry::builtin();
    let entry = registry.get(play.env).unwrap();
    let spec = entry.spec();
    let options = Options::check(&spec.options, &[]).unwrap();
    let lanes = play.lanes;
    let mut env = entry.make_block(&vec![options.clone(); lanes]).unwrap();
    let schedule = if play.per_episode {
        SeedSchedule::PerEpisode { run_seed: play.seed }
    } else {
        SeedSchedule::Continue
    };
    let run_lanes = play.run_lanes.max(first + lanes as u32);
    let header = RunHeader {
        run: run_of(play),
        spec: spec.clone(),
        options: vec![options],
        lanes: run_lanes,
        schedule,
        autoreset: "NextStep".into(),
        max_episode_steps: Some(play.max_steps as u32),
        policy: PolicyInfo { name: "random".into(), version: 1 },
        record: play.record,
        program: "stage".into(),
        started_ms: 1_700_000_000_000,
        parent: None,
        arguments: String::new(),
    };
    let step_columns = if play.noted { step_columns() } else { StepColumns::default() };
    let beside = Beside { step_columns, ..Beside::default() };
    let run = recorder.begin_lanes_with(header, first..first + lanes as u32, beside).unwrap();
    let mut block = run.block(first, lanes);
    let zeros =
        |column: &rollhouse_core::ColumnSpec| ColumnData::zeros(column.dtype, column.elements() * lanes);
    let mut obs: Vec<ColumnData> = spec.obs_columns().iter().map(zeros).collect();
    let mut infos: Vec<ColumnData> = spec.info_channels.iter().map(zeros).collect();
    let mut actions = zeros(&spec.action_column());
    let mut shown = actions.clone();
    let mut rewards = vec![0.0; lanes];
    let (mut numbers, mut ages, mut totals) = (vec![0u64; lanes], vec![0u64; lanes], vec![0.0; lanes]);
    let mut hashes = [0; 64];
    let all = LaneSet::first(lanes);
    let mut reset = all;
    for lane in 0..lanes {
        env.seed(lane, play.seed + u64::from(first) + lane as u64);
    }
    for row in 0..play.rows {
        let now_ms = 1_700_000_000_000 + row / 4;
        let mut starts = [Start::default(); 64];
        for lane in reset {
            if play.per_episode {
                env.seed(lane, per_episode_seed(play.seed, first + lane as u32, numbers[lane]));
            }
            starts[lane] = env.position(lane);
        }
        for (lane, age) in ages.iter().enumerate() {
            let bits = random_bits(play.seed, first + lane as u32, row);
            let lies = play.lie_from.is_some_and(|from| age + 1 >= from);
            fill(&spec.action_space, &mut actions, lane, bits);
            fill(&spec.action_space, &mut shown, lane, if lies { split_mix64(bits) } else { bits });
        }
        let stepped = all & !reset;
        let ended = {
            let mut obs: Vec<_> = obs.iter_mut().map(ColumnData::as_mut).collect();
            let mut infos: Vec<_> = infos.iter_mut().map(ColumnData::as_mut).collect();
            env.step(BlockStep {
                skip: LaneSet::NONE,
                reset,
                actions: actions.as_ref(),
                obs: &mut obs,
                infos: &mut infos,
                rewards: &mut rewards,
            })
        };
        let obs: Vec<_> = obs.iter().map(ColumnData::as_ref).collect();
        let infos: Vec<_> = infos.iter().map(ColumnData::as_ref).collect();
        block.policy_version(play.version_of(row));
        if play.noted {
            let noted = noted(row, lanes);
            block.note(&noted.iter().map(ColumnData::as_ref).collect::<Vec<_>>());
        }
        block.row(Row {
            stepped,
            begun: LaneSet::NONE,
            actions: shown.as_ref(),
            obs: &obs,
            rewards: &rewards,
            infos: &infos,
            now_ms,
        });
        let mut over = LaneSet::NONE;
        let mut due = LaneSet::NONE;
        for lane in stepped {
            ages[lane] += 1;
            totals[lane] += rewards[lane];
            due.insert_if(lane, ages[lane].is_multiple_of(HASH_WINDOW_STEPS));
            let limit = ages[lane] >= play.max_steps;
            over.insert_if(lane, (ended.terminated | ended.truncated).has(lane) || limit);
        }
        env.state_hashes(due | over, &mut hashes);
        for lane in due {
            block.window(lane, hashes[lane]);
        }
        for lane in over {
            let terminated = ended.terminated.has(lane);
            let truncated = ended.truncated.has(lane) || ages[lane] >= play.max_steps;
            let outcome = Outcome::Finished { terminated, truncated };
            let (total_reward, verdict) = (totals[lane], env.verdict(lane));
            let (result, score) = (verdict.result(), verdict.score());
            block.end(lane, End { outcome, total_reward, hash: hashes[lane], result, score });
            numbers[lane] += 1;
            (ages[lane], totals[lane]) = (0, 0.0);
        }
        for lane in reset {
            block.begin(lane, starts[lane], &obs);
        }
        reset = over;
        after_row(row, recorder, &mut block);
    }
    env.state_hashes(all, &mut hashes);
    for lane in all & !reset {
        let outcome = Outcome::Interrupted(Interruption::Cancelled);
        let total_reward = totals[lane];
        block.end(
            lane,
            End { outcome, total_reward, hash: hashes[lane], result: GameResult::None, score: None },
        );
    }
    drop(block);
    drop(run);
}

/// An action from random bits.
fn fill(space: &Space, actions: &mut ColumnData, lane: usize, bits: u64) {
    match (space, actions) {
        (Space::Discrete(space), ColumnData::I64(values)) => {
            values[lane] = space.start + (bits % space.n) as i64;
        }
        (Space::Box(space), ColumnData::F32(values)) => {
            let unit = (bits >> 40) as f64 / (1u64 << 24) as f64;
            values[lane] = (space.low[0] + unit * (space.high[0] - space.low[0])) as f32;
        }
        (Space::Box(space), ColumnData::I64(values)) => {
            let Drawing { elements, settling } = Drawing::of(space);
            let row = &mut values[lane * elements.len()..][..elements.len()];
            for (at, (value, range)) in row.iter_mut().zip(&elements).enumerate() {
                let count = (range.high - range.low) as u64 + 1;
                *value = range.low as i64 + (bits.rotate_right(7 * at as u32) % count) as i64;
            }
            settling.settle(ColumnMut::I64(row));
        }
        (Space::Box(space), ColumnData::F64(values)) => {
            let Drawing { elements, settling } = Drawing::of(space);
            let row = &mut values[lane * elements.len()..][..elements.len()];
            for (at, (value, range)) in row.iter_mut().zip(&elements).enumerate() {
                let unit = (bits.rotate_right(7 * at as u32) >> 40) as f64 / (1u64 << 24) as f64;
                let extent = range.high - range.low;
                *value =
                    range.low + if range.whole { (unit * (extent + 1.0)).floor() } else { unit * extent };
            }
            settling.settle(ColumnMut::F64(row));
        }
        (space, actions) => panic!("{space:?} {actions:?}"),
    }
}
