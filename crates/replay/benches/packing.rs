//! What recording images costs: bytes on disk, the stepping thread and the writer thread.
//!
//! `cargo bench -p rollhouse-replay --bench packing`
//!
//! `ROLLHOUSE_FRAMES=FILE:210x160x3` measures the frames of a file as well: rows of bytes of that shape, one after the other.
#![allow(missing_docs, clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{
    BoxSpace, ColumnRef, DType, Determinism, EnvSource, EnvSpec, LaneSet, Options, RecordRule, RunId,
    SeedSchedule, Space, Start,
};
use rollhouse_replay::{PolicyInfo, RealDisk, Recorder, RecorderConfig, Row, RunHeader};

const LANES: usize = 8;
const STEPS: usize = 2000;
/// What a lane's step takes of a core beside recording, as Pong's four frames do.
const STEP_US: u64 = 800;

fn main() {
    measure("like Pong, 210x160x3", &[210, 160, 3], |lane, step| scene(lane, step, 210, 160, 3));
    let plane = |lane, step: usize, back| scene(lane, step.saturating_sub(back), 84, 84, 1);
    measure("its stack, 4x84x84", &[4, 84, 84], |lane, step| {
        (0..4).rev().flat_map(|back| plane(lane, step, back)).collect()
    });
    measure("its stack, 84x84x4", &[84, 84, 4], |lane, step| {
        let planes: Vec<_> = (0..4).rev().map(|back| plane(lane, step, back)).collect();
        (0..84 * 84).flat_map(|at| planes.iter().map(move |plane| plane[at])).collect()
    });
    let mut bits = 1u64;
    let noise: Vec<u8> = (0..1 << 20)
        .map(|_| {
            bits = rollhouse_core::split_mix64(bits);
            bits as u8
        })
        .collect();
    measure("noise, 84x84", &[84, 84], |lane, step| {
        let from = (lane * 31 + step * 977) % (noise.len() - 7056);
        noise[from..from + 7056].to_vec()
    });
    if let Some((file, shape)) =
        std::env::var("ROLLHOUSE_FRAMES").ok().as_deref().and_then(|it| it.split_once(':'))
    {
        let shape: Vec<usize> = shape.split('x').map(|extent| extent.parse().expect("an extent")).collect();
        let (bytes, row) =
            (std::fs::read(file).expect("the file of frames"), shape.iter().product::<usize>());
        let frames = bytes.len() / row;
        measure(file, &shape, |lane, step| {
            let at = (lane * frames / LANES + step) % frames;
            bytes[at * row..(at + 1) * row].to_vec()
        });
    }
}

/// Two paddles, a ball and a score before a ground that does not change.
fn scene(lane: usize, step: usize, height: usize, width: usize, channels: usize) -> Vec<u8> {
    let mut frame = vec![0; height * width * channels];
    let mut fill = |top: usize, left: usize, (rows, columns): (usize, usize), colour: u8| {
        for y in top..(top + rows).min(height) {
            for x in left..(left + columns).min(width) {
                for channel in 0..channels {
                    frame[(y * width + x) * channels + channel] = colour.wrapping_add(channel as u8 * 40);
                }
            }
        }
    };
    let (play, wall) = (height / 6, height / 14);
    let bounce =
        |at: usize, most: usize| if (at / most).is_multiple_of(2) { at % most } else { most - at % most };
    fill(play, 0, (height - 2 * play, width), 87);
    fill(play - wall, 0, (wall, width), 236);
    fill(height - play, 0, (wall, width), 236);
    for digit in 0..8 {
        fill(2 + digit % 4, width / 4 + 3 * digit, (4 + (step / 300 + digit) % 3, 2), 213);
    }
    let paddle = (height / 13, width / 40);
    fill(play + bounce(step * 3 + lane * 11, height / 2), width / 10, paddle, 92);
    fill(play + bounce(step * 5, height / 2), width - width / 10, paddle, 101);
    let ball = (height / 50 + 1, width / 80 + 1);
    fill(play + bounce(step * 7, height / 2), bounce(step * 4 + lane * 13, width - 4), ball, 250);
    frame
}

fn header(shape: &[usize]) -> RunHeader {
    let elements = shape.iter().product();
    let pixels = BoxSpace {
        low: vec![0.0; elements].into(),
        high: vec![255.0; elements].into(),
        shape: shape.to_vec(),
        dtype: DType::U8,
        choices: false,
        parts: None,
        own: None,
    };
    let spec = EnvSpec {
        id: "bench/Images-v0".into(),
        source: EnvSource::BuiltIn,
        summary: String::new(),
        observation_space: Space::Box(pixels).into(),
        action_space: Space::discrete(6),
        observation_names: vec![],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::NonDeterministic,
        methods: Vec::new(),
        options: vec![],
        info_channels: vec![],
        dynamics_hash: 1,
    };
    RunHeader {
        run: RunId::generate(),
        spec,
        options: vec![Options::default()],
        lanes: LANES as u32,
        schedule: SeedSchedule::Continue,
        autoreset: "NextStep".into(),
        max_episode_steps: None,
        policy: PolicyInfo { name: "random".into(), version: 1 },
        record: RecordRule::All,
        program: "bench".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
    }
}

fn measure(name: &str, shape: &[usize], frame: impl Fn(usize, usize) -> Vec<u8>) {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let recorder =
        Recorder::open(Arc::new(RealDisk), folder.path(), RecorderConfig::default()).expect("open");
    let run = recorder.begin_run(header(shape)).expect("begin");
    let mut block = run.block(0, LANES);
    let row = |step| (0..LANES).flat_map(|lane| frame(lane, step)).collect::<Vec<u8>>();
    let mut stepping = Duration::ZERO;
    let actions = [1; LANES];
    for step in 0..=STEPS {
        let pixels = row(step);
        let obs = [ColumnRef::U8(&pixels)];
        let now_ms = step as u64 * LANES as u64 * STEP_US / 1000;
        let began = Instant::now();
        if step == 0 {
            (0..LANES).for_each(|lane| block.begin(lane, Start::seeded(lane as u64), &obs));
        } else {
            block.row(Row {
                stepped: LaneSet::first(LANES),
                begun: LaneSet::NONE,
                actions: ColumnRef::I64(&actions),
                obs: &obs,
                rewards: &[0.0; LANES],
                infos: &[],
                now_ms,
            });
        }
        stepping += began.elapsed();
    }
    drop(block);
    drop(run);
    let recorded = recorder.finish().expect("finish");
    let frames = (STEPS * LANES) as f64;
    let stepping = (stepping.saturating_sub(recorded.stalled)).as_secs_f64() / frames;
    let writing = recorded.busy.as_secs_f64() / frames;
    println!(
        "{name}: {:.0} bytes a step; stepping thread {:.1} us, writer {:.1} us: {:.0} frames/s a core",
        recorded.bytes as f64 / frames,
        stepping * 1e6,
        writing * 1e6,
        1.0 / (stepping + writing),
    );
}
