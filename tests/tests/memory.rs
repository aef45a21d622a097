//! What programs take of memory at most when others send, or leave untaken, what is made to take much.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::Address;
use rollhouse_core::limits::HASH_WINDOW_STEPS;
use rollhouse_core::{
    ColumnData, DType, GameResult, LaneSet, Options, Outcome, RecordRule, RunId, SeedSchedule, StepColumn,
    StepColumns, per_episode_seed,
};
use rollhouse_env::{BlockStep, Registry};
use rollhouse_replay::limits::EPISODE_EXPANDED_BYTES;
use rollhouse_replay::{Beside, End, PolicyInfo, RealDisk, Recorder, RecorderConfig, Row, RunHeader};
use rollhouse_tests::{Cluster, Done, Folder, rollhouse, segment_bytes, succeed};
use rollhouse_wire::limits::{MAX_OPEN_REQUESTS, MAX_UNTAKEN_BYTES};
use rollhouse_wire::{Dialer, Expected, Identity, Settings, StoreQuery, Trust};

/// Most memory that a process has had, in bytes; `None` once it has ended.
fn most_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Runs a command line, and gives the most memory that it had.
fn measured(data: &Path, line: &str) -> u64 {
    let mut child = rollhouse(data, line).spawn().unwrap();
    let mut most = 0;
    // It says little, which pipes hold.
    while child.try_wait().unwrap().is_none() {
        most = most.max(most_memory(child.id()).unwrap_or(0));
    }
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "rollhouse {line}: {}{}", done.stdout, done.stderr);
    most
}

/// Symptom: 20 connections whose askers took no answer brought a coordinator to 2.3 GB. Cause: answers that nobody takes
/// stayed, 115 MB of each connection. Fix: those of a connection have `MAX_UNTAKEN_BYTES`.
#[test]
fn connections_that_take_no_answers_cost_a_coordinator_no_more_than_each_may_leave_untaken() {
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let file = cluster.connection("admin", &address);
    succeed(
        cluster.folder(),
        &format!("rollout --connect {file} --env CartPole-v1 --lanes 64 --episodes 1500 --seed 1"),
    );
    let token = |file: &str| {
        let address: Address = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        address.token.unwrap()
    };
    let (theirs, others) = (token(&file), token(&cluster.connection("viewer", &address)));
    let trust = Trust::File(cluster.path("ca").join("ca.pem"));
    // What a peer takes by itself is little.
    let narrow = Settings { stream_window: 16 << 10, ..Settings::default() };
    let dialer = Dialer::new(Identity::load(trust, None).unwrap(), narrow, "takes nothing");
    let query = StoreQuery { sort: "name".to_owned(), limit: 1000, ..StoreQuery::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let before = most_memory(coordinator.id()).unwrap();
    let (page, after) = runtime.block_on(async {
        let dial = |token| dialer.dial(&address, &Expected::COORDINATOR, Some(token));
        let honest = dial(&others).await.unwrap();
        let page = honest.call(query.clone(), PATIENCE).await.unwrap();
        let (mut untaken, mut connections) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let connection = dial(&theirs).await.unwrap();
            for _ in 0..MAX_OPEN_REQUESTS {
                // One that has no place is refused, which is an answer as well.
                if let Ok(mut call) = connection.open(&query.clone().into()).await {
                    call.finish().unwrap();
                    untaken.push(call);
                }
            }
            connections.push(connection);
        }
        // Another owner is answered all the same.
        let _page = honest.call(query.clone(), PATIENCE).await.unwrap();
        (page, most_memory(coordinator.id()).unwrap())
    });
    assert_eq!(page.episodes.len(), 1000);
    let grown = after - before;
    let most = CONNECTIONS as u64 * (2 * MAX_UNTAKEN_BYTES as u64 + (4 << 20));
    // An answer is there twice while it is sent: as it was coded, and as QUIC holds it.
    println!("{CONNECTIONS} connections: {} MiB", grown >> 20);
    assert!(grown < most, "{} MiB of {} MiB", grown >> 20, most >> 20);
}

const CONNECTIONS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Records one long episode, of whose steps the same is noted again and again: few bytes that are many in memory.
fn record(dir: &Path, steps: u64) {
    let registry = Registry::builtin();
    let entry = registry.get("MountainCar-v0").unwrap();
    let spec = entry.spec().clone();
    let options = Options::check(&spec.options, &[]).unwrap();
    let mut env = entry.make_block(std::slice::from_ref(&options)).unwrap();
    let column = |at| StepColumn { name: format!("still_{at}"), dtype: DType::F64, shape: [2].into() };
    let header = RunHeader {
        run: RunId::from_u128(7 << 70 | 7),
        spec: spec.clone(),
        options: vec![options],
        lanes: 1,
        schedule: SeedSchedule::PerEpisode { run_seed: 7 },
        autoreset: "NextStep".into(),
        max_episode_steps: Some(steps as u32),
        policy: PolicyInfo { name: "still".into(), version: 1 },
        record: RecordRule::All,
        program: "test".into(),
        started_ms: 1_700_000_000_000,
        parent: None,
        arguments: String::new(),
    };
    let step_columns = StepColumns::new((0..COLUMNS).map(column).collect()).unwrap();
    let recorder = Recorder::open(Arc::new(RealDisk), dir, RecorderConfig::default()).unwrap();
    let run = recorder.begin_run_with(header, Beside { step_columns, ..Beside::default() }).unwrap();
    let mut block = run.block(0, 1);
    let zeros = |column: &rollhouse_core::ColumnSpec| ColumnData::zeros(column.dtype, column.elements());
    let mut obs: Vec<ColumnData> = spec.obs_columns().iter().map(zeros).collect();
    let (actions, mut rewards, mut hashes) = (ColumnData::I64(vec![1]), [0.0], [0; 64]);
    let still = vec![ColumnData::F64(vec![0.25, 4.0]); COLUMNS];
    env.seed(0, per_episode_seed(7, 0, 0));
    let (start, one) = (env.position(0), LaneSet::one(0));
    let mut total_reward = 0.0;
    for row in 0..=steps {
        let reset = if row == 0 { one } else { LaneSet::NONE };
        // No chunk is closed because it gets old.
        let now_ms = 1_700_000_000_000;
        let mut columns: Vec<_> = obs.iter_mut().map(ColumnData::as_mut).collect();
        let ended = env.step(BlockStep {
            skip: LaneSet::NONE,
            reset,
            actions: actions.as_ref(),
            obs: &mut columns,
            infos: &mut [],
            rewards: &mut rewards,
        });
        assert!((ended.terminated | ended.truncated).is_empty());
        let columns: Vec<_> = obs.iter().map(ColumnData::as_ref).collect();
        block.note(&still.iter().map(ColumnData::as_ref).collect::<Vec<_>>());
        let (stepped, begun) = (one & !reset, LaneSet::NONE);
        let actions = actions.as_ref();
        block.row(Row { stepped, begun, actions, obs: &columns, rewards: &rewards, infos: &[], now_ms });
        if row == 0 {
            block.begin(0, start, &columns);
            continue;
        }
        total_reward += rewards[0];
        if row.is_multiple_of(HASH_WINDOW_STEPS) || row == steps {
            env.state_hashes(one, &mut hashes);
        }
        if row.is_multiple_of(HASH_WINDOW_STEPS) {
            block.window(0, hashes[0]);
        }
    }
    let (outcome, result) = (Outcome::TRUNCATED, GameResult::None);
    block.end(0, End { outcome, total_reward, hash: hashes[0], result, score: None });
    drop((block, run));
    recorder.finish().unwrap();
}

/// Columns of 16 bytes a step.
const COLUMNS: usize = 16;

/// Symptom: a recording of 4.2 MB took 1.66 GB to import, verify or export. Cause: all chunks of an episode were held
/// decoded, and nothing bounded what repeats. Fix: an episode's repeated values take `EPISODE_EXPANDED_BYTES`, and chunks
/// are read again where they are needed.
#[test]
fn a_small_recording_of_many_repeated_values_takes_bounded_memory_to_import_verify_and_export() {
    let (folder, into) = (Folder::new(), Folder::new());
    let data = folder.path().join("data");
    // Beyond, a writer repeats nothing.
    let steps = EPISODE_EXPANDED_BYTES / (16 * COLUMNS + 8) - 1;
    record(&data, steps as u64);
    assert!(segment_bytes(&data) < 4_200_000, "{} bytes", segment_bytes(&data));
    let listed = succeed(&data, "replay ls --json");
    let episode: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(episode["length"], steps);
    let name = episode["id"].as_str().unwrap();
    let file = folder.path().join("one.rhr");
    for line in [
        format!("replay export {name} --format rhr -o {}", file.display()),
        format!("replay verify {name}"),
        format!("replay import {} --data {}", file.display(), into.path().join("data").display()),
        format!("replay export {name} --format npz -o {}", folder.path().join("one.npz").display()),
    ] {
        let most = measured(&data, &line);
        println!("rollhouse {line}: {} MiB", most >> 20);
        assert!(most < MOST_BYTES, "rollhouse {line}: {} MiB", most >> 20);
    }
}

/// Twice what an episode's repeated values take, as columns grow, and some.
const MOST_BYTES: u64 = 2 * EPISODE_EXPANDED_BYTES as u64 + (256 << 20);
