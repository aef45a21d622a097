//! Coming to any step of an episode of 1,000,000 steps, beside verifying it. `recorded in full` is one whose observations
//! and rewards are recorded, as those of Python envs are: it is read at its place.
//!
//! `cargo bench -p rollhouse-replay --bench seeking`
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints what it finds")]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{
    ColumnRef, Determinism, GameResult, LaneSet, Options, Outcome, RecordRule, RunId, SeedSchedule, Start,
    split_mix64,
};
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    End, PolicyInfo, Query, Recorder, RecorderConfig, Replays, Row, RunHeader, SeekBounds, Seeker,
};
use stage::{Play, play};

const STEPS: u64 = 1_000_000;
const REPETITIONS: usize = 5;
const SEEKS: u64 = 2_000;
const IN_FULL: &str = "recorded in full";

fn main() {
    let registry = Registry::builtin();
    for env in ["Pendulum-v1", "Acrobot-v1", "Echo-v0", IN_FULL] {
        let disk = FaultyDisk::new();
        if env == IN_FULL {
            record_in_full(&disk, &registry);
        } else {
            let one = Play { lanes: 1, max_steps: STEPS, ..Play::new(env, STEPS + 1) };
            play(Arc::new(disk.clone()), Path::new("/data"), &one);
        }
        let replays = Replays::open(Arc::new(disk), Path::new("/data")).unwrap();
        let infos = replays.list(&Query { sort: "-length".parse().unwrap(), ..Query::default() }).unwrap();
        let info = &infos[0];
        let episode = Arc::new(replays.load(info).unwrap());
        let (mut verifying, mut passing, mut seeks) = (Vec::new(), Vec::new(), Vec::new());
        let mut keyframes = (0, 0);
        for repetition in 0..REPETITIONS {
            let begun = Instant::now();
            replays
                .verify(std::slice::from_ref(info), &registry, |found| assert!(found.ok, "{found:?}"))
                .unwrap();
            verifying.push(begun.elapsed());
            let mut seeker = Seeker::new(&registry, Arc::clone(&episode), &SeekBounds::default()).unwrap();
            let begun = Instant::now();
            assert!(seeker.pass(u64::MAX));
            passing.push(begun.elapsed());
            keyframes = seeker.keyframes();
            for seek in 0..SEEKS {
                let t = split_mix64(repetition as u64 * SEEKS + seek) % (info.length + 1);
                let begun = Instant::now();
                assert_eq!(seeker.seek(t).unwrap().t, t);
                seeks.push(begun.elapsed());
            }
        }
        for times in [&mut verifying, &mut passing, &mut seeks] {
            times.sort_unstable();
        }
        let rate = |times: &[Duration]| info.length as f64 / times[times.len() / 2].as_secs_f64() / 1e6;
        println!("{env}, {} steps, {} keyframes {} steps apart", info.length, keyframes.0, keyframes.1);
        println!("  verify      {:>9.1?}  {:6.1} M steps/s", verifying[REPETITIONS / 2], rate(&verifying));
        println!("  first pass  {:>9.1?}  {:6.1} M steps/s", passing[REPETITIONS / 2], rate(&passing));
        println!(
            "  seek        {:>9.1?} median, {:.1?} worst",
            seeks[seeks.len() / 2],
            seeks[seeks.len() - 1]
        );
    }
}

/// An episode of that many steps of an env that this program does not have, with an observation of four numbers.
fn record_in_full(disk: &FaultyDisk, registry: &Registry) {
    let mut spec = registry.get("CartPole-v1").unwrap().spec().clone();
    (spec.id, spec.determinism) = (IN_FULL.into(), Determinism::NonDeterministic);
    let recorder =
        Recorder::open(Arc::new(disk.clone()), Path::new("/data"), RecorderConfig::default()).unwrap();
    let header = RunHeader {
        run: RunId::from_u128(1 << 100 | 7),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: 1,
        schedule: SeedSchedule::Continue,
        autoreset: "NextStep".into(),
        max_episode_steps: None,
        policy: PolicyInfo { name: "external".into(), version: 0 },
        record: RecordRule::All,
        program: "bench".into(),
        started_ms: 1_700_000_000_000,
        parent: None,
        arguments: String::new(),
        spec,
    };
    let run = recorder.begin_run(header).unwrap();
    let mut block = run.block(0, 1);
    block.begin(0, Start::seeded(1), &[ColumnRef::F32(&[0.0; 4])]);
    let mut total_reward = 0.0;
    for step in 0..STEPS {
        let reward = (split_mix64(step) % 1000) as f64 / 1000.0;
        total_reward += reward;
        block.row(Row {
            stepped: LaneSet::one(0),
            begun: LaneSet::NONE,
            actions: ColumnRef::I64(&[(step % 2) as i64]),
            obs: &[ColumnRef::F32(&[step as f32; 4])],
            rewards: &[reward],
            infos: &[],
            now_ms: 1_700_000_000_000 + step / 10,
        });
    }
    let outcome = Outcome::Finished { terminated: true, truncated: false };
    block.end(0, End { outcome, total_reward, hash: 0, result: GameResult::None, score: None });
    drop((block, run));
    recorder.finish().unwrap();
}
