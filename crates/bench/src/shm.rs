//! `rollhouse-bench shm`: measures a step through shared memory, beside the engine alone, QUIC and gRPC.
//!
//! The node is a process of its own, `rollhouse up`, started from this very program; the trainer is this one. Nothing
//! is recorded. A step of the trainer is that of a training loop: actions written, step, rewards read.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::human::Si;
use rollhouse_cli::output::{Output, say};
use rollhouse_cli::table::{Align, Table};
use rollhouse_client::{Address, Cluster, ConnectOptions, Pool, PoolRequest, Transport};
use rollhouse_core::{ColumnData, ColumnMut, RecordRule};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_wire::Spread as Laid;
use serde::Serialize;

use self::beside::Beside;
use self::node::{Node, OneCore};
use crate::args::ShmArgs;
use crate::failed::failed;
use crate::scratch::Scratch;
use crate::spread::Spread;

mod beside;
mod node;

/// Measures and prints the figures.
pub(super) fn run(args: &ShmArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let node = Node::start(&folder.0.join("two-cores"))?;
    let small = small(args, &node)?;
    let large = large(args, &node)?;
    let idle = idle(&node)?;
    let beside = beside::measure(&node, Duration::from_millis(args.beside_ms))?;
    drop(node);
    let shared_core = one_core(args, &folder)?;
    let result = ShmResult {
        debug_assertions: cfg!(debug_assertions),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        repetitions: args.repetitions,
        small,
        large,
        idle,
        beside,
        shared_core,
    };
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    if cfg!(debug_assertions) {
        say("note: a development build, with checks that a release build leaves out");
    }
    Ok(Status::Done)
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct ShmResult {
    debug_assertions: bool,
    cores: usize,
    repetitions: u32,
    small: Small,
    large: Large,
    idle: Idle,
    beside: Beside,
    /// Figures with both processes on one core; absent if this process may not choose its cores.
    shared_core: Option<SharedCore>,
}

/// 64 lanes of CartPole: microseconds a step.
#[derive(Debug, Serialize)]
struct Small {
    lanes: usize,
    engine_us: Spread,
    shm_us: Spread,
    /// Difference of shared memory to the engine, repetition by repetition.
    shm_over_engine_us: Spread,
    quic_us: Spread,
    /// Time of as many bytes there and back as the batch has; absent unless built with the feature `grpc`.
    grpc_us: Option<f64>,
}

/// Times with an observation of 100 floats in each of 4,096 lanes, all of which the trainer adds up; the engine alone
/// and shared memory in turn, so that a tail that is the machine's shows in both.
#[derive(Debug, Serialize)]
struct Large {
    lanes: usize,
    batches: usize,
    engine: Times,
    shm: Times,
    /// Number of pages, for each batch, that the trainer's process had to be given while it stepped through shared
    /// memory.
    page_faults: f64,
}

/// The spread of a step's time, in microseconds.
#[derive(Debug, Serialize)]
struct Times {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Time on a core of either process, in milliseconds, during a second in which nobody asks for a step.
#[derive(Debug, Serialize)]
struct Idle {
    seconds: f64,
    trainer_ms: f64,
    node_ms: f64,
}

/// Microseconds of a step with both processes on one core.
#[derive(Debug, Serialize)]
struct SharedCore {
    engine_us: Spread,
    shm_us: Spread,
    shm_over_engine_us: Spread,
}

fn small(args: &ShmArgs, node: &Node) -> Result<Small, Failure> {
    let mut engine = engine(ENV, SMALL_LANES, None)?;
    let mut shm = node.pool(ENV, SMALL_LANES, Transport::Shm, None)?;
    let mut quic = node.pool(ENV, SMALL_LANES, Transport::Quic, None)?;
    let [mut alone, mut memory, mut stream] = [const { Vec::new() }; 3];
    // The first repetition warms up.
    for repetition in 0..=args.repetitions {
        let times = [
            time(args.steps, &mut engine)?,
            time(args.steps, &mut shm)?,
            time(args.steps.div_ceil(QUIC_SHARE), &mut quic)?,
        ];
        if repetition > 0 {
            alone.push(times[0]);
            memory.push(times[1]);
            stream.push(times[2]);
        }
    }
    let over = memory.iter().zip(&alone).map(|(shm, engine)| shm - engine).collect();
    Ok(Small {
        lanes: SMALL_LANES,
        engine_us: spread(alone),
        shm_us: spread(memory),
        shm_over_engine_us: spread(over),
        quic_us: spread(stream),
        grpc_us: grpc(SMALL_BYTES, args.steps.div_ceil(QUIC_SHARE))?,
    })
}

fn large(args: &ShmArgs, node: &Node) -> Result<Large, Failure> {
    let mut engine = engine(WIDE_ENV, LARGE_LANES, Some(0))?;
    let mut pool = node.pool(WIDE_ENV, LARGE_LANES, Transport::Shm, Some(0))?;
    time(WIDE_STEPS, &mut engine)?;
    time(WIDE_STEPS, &mut pool)?;
    let mut alone = Vec::with_capacity(args.batches as usize);
    let mut shared = Vec::with_capacity(args.batches as usize);
    let mut faults = 0;
    while shared.len() < args.batches as usize {
        let steps = WIDE_STEPS.min(args.batches - shared.len() as u32);
        for step in 0..steps {
            let began = Instant::now();
            fill(engine.actions().map_err(failed)?, u64::from(step));
            let frame = engine.step().map_err(failed)?;
            black_box(sum(frame.obs(0).as_f32().unwrap_or(&[])));
            alone.push(began.elapsed());
        }
        let before = node::page_faults()?;
        for step in 0..steps {
            let began = Instant::now();
            fill(pool.actions(), u64::from(step));
            let frame = pool.step().map_err(failed)?;
            black_box(sum(frame.obs(0).as_f32().unwrap_or(&[])));
            shared.push(began.elapsed());
        }
        faults += node::page_faults()? - before;
    }
    let page_faults = faults as f64 / shared.len() as f64;
    let (lanes, batches) = (LARGE_LANES, shared.len());
    Ok(Large { lanes, batches, engine: Times::of(alone), shm: Times::of(shared), page_faults })
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |share: f64| {
            let rank = (times.len() as f64 * share).ceil() as usize;
            times.get(rank.saturating_sub(1)).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
        };
        Self { p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
    }
}

/// Adds values up as NumPy does: in several sums at once. One alone would wait for each addition, 4 cycles of 409,600.
fn sum(values: &[f32]) -> f32 {
    let (parts, rest) = values.as_chunks::<32>();
    let mut sums = [0.0; 32];
    for part in parts {
        for (sum, value) in sums.iter_mut().zip(part) {
            *sum += value;
        }
    }
    sums.iter().chain(rest).sum()
}

/// Measures an idle second with a session attached, after its last step.
fn idle(node: &Node) -> Result<Idle, Failure> {
    let mut pool = node.pool(ENV, SMALL_LANES, Transport::Shm, None)?;
    time(100, &mut pool)?;
    // Spinning, if it does not end by itself, is to show, and its first moments are not.
    std::thread::sleep(Duration::from_millis(50));
    let before = [node::processor_time(None)?, node::processor_time(Some(node.id()))?];
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let seconds = began.elapsed().as_secs_f64();
    let after = [node::processor_time(None)?, node::processor_time(Some(node.id()))?];
    let ms = |index: usize| (after[index] - before[index]).as_secs_f64() * 1e3;
    Ok(Idle { seconds, trainer_ms: ms(0), node_ms: ms(1) })
}

fn one_core(args: &ShmArgs, folder: &Scratch) -> Result<Option<SharedCore>, Failure> {
    let Some(_pinned) = OneCore::pin() else { return Ok(None) };
    // Inherited by the node.
    let node = Node::start(&folder.0.join("one-core"))?;
    let mut engine = engine(ENV, SMALL_LANES, None)?;
    let mut pool = node.pool(ENV, SMALL_LANES, Transport::Shm, None)?;
    let (mut alone, mut memory) = (Vec::new(), Vec::new());
    for repetition in 0..=args.repetitions {
        let times = [time(args.steps, &mut engine)?, time(args.steps.div_ceil(QUIC_SHARE), &mut pool)?];
        if repetition > 0 {
            alone.push(times[0]);
            memory.push(times[1]);
        }
    }
    let over = memory.iter().zip(&alone).map(|(shm, engine)| shm - engine).collect();
    Ok(Some(SharedCore {
        engine_us: spread(alone),
        shm_us: spread(memory),
        shm_over_engine_us: spread(over),
    }))
}

/// Lanes that are stepped as in a training loop.
trait Steps {
    fn step(&mut self, actions: &ColumnData) -> Result<(), Failure>;
    fn reset(&mut self) -> Result<ColumnData, Failure>;
}

impl Steps for Engine {
    #[inline]
    fn step(&mut self, actions: &ColumnData) -> Result<(), Failure> {
        let copied = self.actions().map_err(failed)?.copy_from(actions.as_ref());
        debug_assert!(copied, "they were copied from this column");
        black_box(Engine::step(self).map_err(failed)?.rewards());
        Ok(())
    }

    fn reset(&mut self) -> Result<ColumnData, Failure> {
        Engine::reset(self, &Reset::seeded(crate::seed::SEED, self.lanes())).map_err(failed)?;
        let mut actions = self.actions().map_err(failed)?;
        fill(actions.reborrow(), 0);
        Ok(ColumnData::from(actions.as_ref()))
    }
}

impl Steps for Pool {
    #[inline]
    fn step(&mut self, actions: &ColumnData) -> Result<(), Failure> {
        let copied = self.actions().copy_from(actions.as_ref());
        debug_assert!(copied, "they were copied from this column");
        black_box(Pool::step(self).map_err(failed)?.rewards());
        Ok(())
    }

    fn reset(&mut self) -> Result<ColumnData, Failure> {
        let lanes = self.lanes();
        Pool::reset(self, &Reset::seeded(crate::seed::SEED, lanes)).map_err(failed)?;
        let mut actions = self.actions();
        fill(actions.reborrow(), 0);
        Ok(ColumnData::from(actions.as_ref()))
    }
}

/// Steps and returns the microseconds of a step.
fn time(steps: u32, lanes: &mut impl Steps) -> Result<f64, Failure> {
    let actions = lanes.reset()?;
    let began = Instant::now();
    for _ in 0..steps {
        lanes.step(&actions)?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(steps))
}

/// Writes valid actions that differ from lane to lane and from step to step.
fn fill(actions: ColumnMut<'_>, step: u64) {
    match actions {
        ColumnMut::I64(actions) => {
            (0..).zip(actions).for_each(|(lane, action)| *action = ((lane + step) % 2) as i64)
        }
        ColumnMut::F32(actions) => {
            (0..).zip(actions).for_each(|(index, action)| *action = ((index + step) % 128) as f32 / 256.0)
        }
        // The envs here take no others.
        _ => {}
    }
}

fn engine(env: &str, lanes: usize, max_episode_steps: Option<u32>) -> Result<Engine, Failure> {
    let entry = Registry::builtin().get(env).map_err(failed)?;
    Engine::new(&entry, EngineConfig { max_episode_steps, ..EngineConfig::new(lanes) }, None).map_err(failed)
}

impl Node {
    fn pool(
        &self,
        env: &str,
        lanes: usize,
        transport: Transport,
        max_episode_steps: Option<u32>,
    ) -> Result<Pool, Failure> {
        let address: Address = self.connection().parse().map_err(failed)?;
        let cluster = Cluster::connect(&address, ConnectOptions::default(), None).map_err(failed)?;
        let mut request = PoolRequest::new(env, lanes as u32);
        request.settings.record = RecordRule::None;
        request.settings.max_episode_steps = max_episode_steps;
        request.spread = Laid::Single;
        request.transport = Some(transport);
        cluster.open_pool(request).map_err(failed)
    }
}

#[cfg(feature = "grpc")]
fn grpc(bytes: usize, round_trips: u32) -> Result<Option<f64>, Failure> {
    super::quic::grpc_round_trip(bytes, round_trips).map(|seconds| Some(seconds * 1e6))
}

#[cfg(not(feature = "grpc"))]
fn grpc(_: usize, _: u32) -> Result<Option<f64>, Failure> {
    Ok(None)
}

impl ShmResult {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { small, shared_core, .. } = self;
        writeln!(
            out,
            "{} lanes of {ENV}, two processes, {} repetitions; microseconds a step\n",
            small.lanes, self.repetitions
        )?;
        let mut table = Table::new(&[
            ("", Align::Left),
            ("MIN", Align::Right),
            ("MEDIAN", Align::Right),
            ("MAX", Align::Right),
            ("", Align::Left),
        ]);
        table.row(small.engine_us.row("engine alone", 1.0, 3, ""));
        table.row(small.shm_us.row("shared memory", 1.0, 3, ""));
        table.row(small.shm_over_engine_us.row("  over the engine", 1.0, 3, "2 wanted"));
        table.row(small.quic_us.row("quic", 1.0, 1, ""));
        if let Some(grpc) = small.grpc_us {
            let us = format!("{grpc:.1}");
            table.row(vec![
                "grpc with tls".to_owned(),
                String::new(),
                us,
                String::new(),
                "bytes only".to_owned(),
            ]);
        }
        if let Some(shared) = shared_core {
            table.row(shared.shm_us.row("shared memory, one core", 1.0, 2, ""));
            table.row(shared.shm_over_engine_us.row("  over the engine", 1.0, 2, "20 wanted"));
        }
        table.write(out)?;
        self.print_others(out)
    }

    /// Prints what is no row of the table.
    fn print_others(&self, out: &mut Output) -> io::Result<()> {
        let Self { small, large, idle, beside, .. } = self;
        writeln!(
            out,
            "\n{} lanes of 100 floats, all added up by the trainer, {} batches: {:.0} us (median), {:.0} us (99th \
             percentile; 500 wanted), {:.0} us at most; the engine alone, in turn with it: {:.0}, {:.0} and {:.0} us. \
             The trainer had {:.2} page faults a batch.",
            large.lanes,
            large.batches,
            large.shm.p50_us,
            large.shm.p99_us,
            large.shm.max_us,
            large.engine.p50_us,
            large.engine.p99_us,
            large.engine.max_us,
            large.page_faults
        )?;
        writeln!(
            out,
            "Idle for {:.1} s: {:.0} ms of a core in the trainer, {:.0} ms in the node.",
            idle.seconds, idle.trainer_ms, idle.node_ms
        )?;
        let Beside { trainers, shm, quic } = beside;
        writeln!(
            out,
            "{trainers} trainers of {} lanes through memory make {} steps a second and as many over QUIC {}; on the node at \
             the same time {} and {}: {:.0} % and {:.0} % of that.",
            small.lanes,
            Si(shm.alone),
            Si(quic.alone),
            Si(shm.beside),
            Si(quic.beside),
            shm.share() * 100.0,
            quic.share() * 100.0
        )
    }
}

fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let last = values.len().saturating_sub(1);
    Spread { min: at(0), median: (at(last / 2) + at(values.len() / 2)) / 2.0, max: at(last) }
}

const ENV: &str = "CartPole-v1";
const SMALL_LANES: usize = 64;
/// Bytes of observations, rewards and flags of a batch.
const SMALL_BYTES: usize = SMALL_LANES * (4 * 4 + 8 + 3);
/// Number of steps by memory for each step over a network.
const QUIC_SHARE: u32 = 20;
/// An env that writes every float of its observation in each step.
const WIDE_ENV: &str = "Echo-v0";
const LARGE_LANES: usize = 4096;
const WIDE_STEPS: u32 = 200;
