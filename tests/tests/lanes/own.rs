//! Lanes in workers that run a program of the trainer's own, as `vectorize` has them: this very program, which steps kernels.

use std::time::Duration;

use rollhouse_core::{
    ColumnMut, ColumnRef, Determinism, EnvSpec, LaneDeadlines, LaneSet, OptionValue, Options,
};
use rollhouse_env::{BatchEnv, BlockEnv, BlockStep, EnvEntry, InstructionSet, LateLanes, MakeError};
use rollhouse_host::{
    Command, ConnectWatch, Environment, HostConfig, Launcher, Link, MAX_MESSAGE_BYTES, Output, OwnWorkers,
    Program, WorkerSource,
};
use serde::Deserialize;

use super::foretold::foretold;

/// Number of workers of a session.
pub(crate) const WORKERS: usize = 3;

const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the entry of the foretold env in own workers, those of each session anew.
pub(crate) fn entry() -> EnvEntry {
    // What a program's lanes draw is not known to whoever has them.
    let spec = EnvSpec { determinism: Determinism::NonDeterministic, ..foretold().spec().clone() };
    let of_session = spec.clone();
    let made = EnvEntry::late(spec, move |options| blocks(&of_session, options));
    made.with_tried_options(|_| Ok(())).with_own_seeds()
}

fn blocks(spec: &EnvSpec, options: &[Options]) -> Result<Vec<Box<dyn LateLanes>>, MakeError> {
    let lanes = options.len();
    let count = WORKERS.min(lanes);
    let ranges: Vec<_> = (0..count).map(|at| lanes * at / count..lanes * (at + 1) / count).collect();
    let program = Program {
        path: std::env::current_exe().unwrap().into(),
        arguments: [WORKER, "--exact", "--nocapture", &std::process::id().to_string()].map(Into::into).into(),
        environment: Environment::Inherited,
        output: Output::Kept,
        memory: None,
    };
    let config = HostConfig {
        source: WorkerSource::Program(program),
        hellos: ranges.iter().map(|range| range.len().to_string().into_bytes()).collect(),
        launch_at_start: count,
        launch_deadline: Some(PATIENCE),
        connect_deadline: None,
        lane_deadlines: LaneDeadlines::default(),
        connect_watch: ConnectWatch::default(),
        launcher: Launcher::new(count),
        max_answer_bytes: MAX_MESSAGE_BYTES,
    };
    let workers = OwnWorkers::start(config, ranges).unwrap();
    assert!(workers.made(PATIENCE).unwrap() && workers.lost().is_none(), "{:?}", workers.lost());
    for (worker, places) in workers.lay_out(spec).unwrap().iter().enumerate() {
        workers.greet(worker, serde_json::to_vec(places).unwrap());
    }
    assert!(workers.greeted(PATIENCE).unwrap() && workers.lost().is_none(), "{:?}", workers.lost());
    let made = workers.entry(spec.clone()).make_blocks_on(InstructionSet::best(), options)?;
    let late = |block| match block {
        BlockEnv::Late(env, _) => env,
        BlockEnv::Kernel(_) => panic!("workers step nothing within the call"),
    };
    Ok(made.into_iter().map(late).collect())
}

/// Not a test by itself: what workers run, whose last argument is the process id of their host.
#[test]
fn a_worker_of_its_own() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|name| name == WORKER) {
        work(Link::open(arguments.last().unwrap().parse().unwrap()).unwrap());
    }
}

const WORKER: &str = "lanes::own::a_worker_of_its_own";

#[derive(Deserialize)]
struct Places {
    stride: usize,
    reward: usize,
    action: usize,
    observation: [usize; 2],
    infos: [usize; 1],
}

/// Steps each lane as a block of its own until the host is gone or has enough.
fn work(mut link: Link) {
    let lanes: usize = std::str::from_utf8(link.hello()).unwrap().parse().unwrap();
    link.ready(b"here").unwrap();
    let entry = foretold();
    let defaults = Options::check(&entry.spec().options, &[]).unwrap();
    let make = |options: &Options| entry.make_block(std::slice::from_ref(options));
    let mut envs: Vec<_> = (0..lanes).map(|_| make(&defaults).unwrap()).collect();
    let mut given = vec![defaults; lanes];
    let mut places = None;
    while let Ok(Command { code, payload }) = link.receive() {
        match code & 0xff {
            WORK => {
                read_options(&payload, lanes, &mut given, &entry.spec().options);
                let places: &Places = places.as_ref().unwrap();
                for lane in 0..lanes {
                    let at = lanes + lane * 8;
                    let seed = u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
                    let flags = match payload[lane] {
                        NOTHING => continue,
                        STEP => step(&link, places, lane, envs[lane].as_mut(), false),
                        task => begin(&mut envs[lane], make(&given[lane]), (task != RESET).then_some(seed))
                            .map_or(LOST, |env| step(&link, places, lane, env, true)),
                    };
                    link.publish(lane * places.stride, code >> 8 << 8 | flags).unwrap();
                }
            }
            SETUP => places = Some(serde_json::from_slice(&payload).unwrap()),
            _ => return,
        }
        link.reply(0, &[]).unwrap();
    }
}

/// Reads the options of lanes that begin episodes: behind tasks and seeds, and the length of what the caller says of resets.
fn read_options(payload: &[u8], lanes: usize, given: &mut [Options], schema: &[rollhouse_core::OptionSpec]) {
    let mut rest = payload.get(lanes * 9 + 4..).unwrap_or_default();
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let [lane, bytes] =
            [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize);
        let options: std::collections::BTreeMap<String, OptionValue> =
            serde_json::from_slice(&after[..bytes]).unwrap();
        given[lane] = Options::check(schema, &options.into_iter().collect::<Vec<_>>()).unwrap();
        rest = &after[bytes..];
    }
}

/// Puts a new env with a lane's options in the place of the last one, whose generator goes on unless there is a seed.
fn begin(
    env: &mut Box<dyn BatchEnv>,
    made: Result<Box<dyn BatchEnv>, MakeError>,
    seed: Option<u64>,
) -> Option<&mut dyn BatchEnv> {
    let before = env.position(0);
    *env = made.ok()?;
    match seed {
        Some(seed) => env.seed(0, seed),
        None => env.restore(0, before),
    }
    Some(env.as_mut())
}

/// Steps a lane, or begins its episode, and writes its row.
fn step(link: &Link, places: &Places, lane: usize, env: &mut dyn BatchEnv, begins: bool) -> u64 {
    let (memory, offset) = link.memory().unwrap();
    let at = offset + lane * places.stride;
    let action = i64::from_ne_bytes(memory.read(at + places.action, 8).try_into().unwrap());
    let (mut count, mut mark, mut echo, mut reward) = ([0; 2], [0.0], [0.0], [0.0]);
    let ended = env.step(BlockStep {
        skip: LaneSet::NONE,
        reset: if begins { LaneSet::one(0) } else { LaneSet::NONE },
        actions: ColumnRef::I64(&[action]),
        obs: &mut [ColumnMut::I64(&mut count), ColumnMut::F64(&mut mark)],
        infos: &mut [ColumnMut::F64(&mut echo)],
        rewards: &mut reward,
    });
    if ended.lost.has(0) {
        return LOST;
    }
    memory.write(at + places.observation[0], &count.map(i64::to_ne_bytes).concat());
    memory.write(at + places.observation[1], &mark[0].to_ne_bytes());
    memory.write(at + places.reward, &reward[0].to_ne_bytes());
    if !begins {
        memory.write(at + places.infos[0], &echo[0].to_ne_bytes());
    }
    u64::from(ended.terminated.has(0))
}

/// Codes of commands, what lanes are to do, and the answer of one whose env failed.
const WORK: u64 = 1;
const SETUP: u64 = 3;
const NOTHING: u8 = 0;
const STEP: u8 = 1;
const RESET: u8 = 2;
const LOST: u64 = 4;
