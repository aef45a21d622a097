//! `rollhouse-bench first-done`: measures what one slow lane costs the others, in first-done mode on each transport.
//!
//! Lanes of 1 ms a step do nothing but wait; in the second of each pair of runs the first lane takes 100 ms. Coordinator,
//! node and trainer are this one process. Nothing is recorded.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::human::Si;
use rollhouse_cli::output::{Output, say};
use rollhouse_cli::table::{Align, Table};
use rollhouse_client::{Cluster, Pool, PoolRequest, Transport};
use rollhouse_core::{ColumnData, DType, RecordRule};
use rollhouse_engine::{Engine, EngineConfig, Received, Reset};
use rollhouse_env::EnvEntry;
use rollhouse_node::SteppingConfig;
use serde::Serialize;

use self::local::Local;
use self::timed::entry;
use crate::args::FirstDoneArgs;
use crate::failed::failed;
use crate::scratch::Scratch;
use crate::spread::Spread;

pub(super) mod late;
mod local;
mod timed;

/// Measures and prints the figures.
pub(super) fn run(args: &FirstDoneArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let time = Duration::from_millis(args.run_ms);
    let threads = (1, SteppingConfig::default().waiting_threads);
    let alike = Local::start(&folder.0.join("alike"), threads, || entry_of(ALIKE))?;
    let slow = Local::start(&folder.0.join("slow"), threads, || entry_of(SLOW))?;
    let clusters = (alike.connect()?, slow.connect()?);
    let mut transports = Vec::new();
    for transport in [None, Some(Transport::Shm), Some(Transport::Quic)] {
        let mut pairs = Vec::new();
        for _ in 0..args.repetitions {
            let alike = measure(&clusters.0, ALIKE, transport, time)?;
            pairs.push([alike, measure(&clusters.1, SLOW, transport, time)?]);
        }
        transports.push(OnTransport::of(transport, &pairs));
    }
    let result = FirstDoneResult {
        debug_assertions: cfg!(debug_assertions),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        repetitions: args.repetitions,
        lanes: LANES,
        min: MIN,
        transports,
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
struct FirstDoneResult {
    debug_assertions: bool,
    cores: usize,
    repetitions: u32,
    lanes: usize,
    /// Number of lanes for which is waited at a time.
    min: usize,
    transports: Vec<OnTransport>,
}

/// Steps per second of all lanes but the first, on one transport.
#[derive(Debug, Serialize)]
struct OnTransport {
    /// `embedded`, `shm` or `quic`.
    transport: &'static str,
    alike: Spread,
    with_a_slow_lane: Spread,
    /// The second over the first, pair by pair.
    ratio: Spread,
}

impl OnTransport {
    fn of(transport: Option<Transport>, pairs: &[[f64; 2]]) -> Self {
        let of = |figure: &dyn Fn(&[f64; 2]) -> f64| Spread::of(pairs.iter().map(figure).collect());
        Self {
            transport: match transport {
                None => "embedded",
                Some(Transport::Shm) => "shm",
                Some(_) => "quic",
            },
            alike: of(&|pair| pair[0]),
            with_a_slow_lane: of(&|pair| pair[1]),
            ratio: of(&|pair| pair[1] / pair[0]),
        }
    }
}

impl FirstDoneResult {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { lanes, min, repetitions, .. } = self;
        writeln!(
            out,
            "{lanes} lanes of {} ms a step, {min} waited for at a time, {repetitions} pairs of runs: steps per second of \
             the others, and with one lane of {} ms\n",
            ALIKE.as_millis(),
            SLOW.as_millis()
        )?;
        let mut table = Table::new(&[
            ("", Align::Left),
            ("ALIKE", Align::Right),
            ("WITH A SLOW LANE", Align::Right),
            ("RATIO", Align::Right),
            ("MIN", Align::Right),
            ("MAX", Align::Right),
            ("", Align::Left),
        ]);
        for OnTransport { transport, alike, with_a_slow_lane, ratio } in &self.transports {
            table.row(vec![
                (*transport).to_owned(),
                Si(alike.median).to_string(),
                Si(with_a_slow_lane.median).to_string(),
                format!("{:.3}", ratio.median),
                format!("{:.3}", ratio.min),
                format!("{:.3}", ratio.max),
                "0.95 wanted".to_owned(),
            ]);
        }
        table.write(out)
    }
}

/// Returns the env whose lanes take 1 ms a step, but the first `first`.
fn entry_of(first: Duration) -> EnvEntry {
    entry(|lane| if lane == 0 { first } else { ALIKE })
}

/// An engine, or a pool on a node.
enum Lanes {
    Embedded(Box<Engine>),
    Pool(Box<Pool>),
}

impl Lanes {
    fn make(cluster: &Cluster, slow: Duration, transport: Option<Transport>) -> Result<Self, Failure> {
        let Some(transport) = transport else {
            let entry = Arc::new(entry_of(slow));
            let mut engine = Engine::new(&entry, EngineConfig::new(LANES), None).map_err(failed)?;
            engine.reset(&Reset::seeded(1, LANES)).map_err(failed)?;
            return Ok(Self::Embedded(Box::new(engine)));
        };
        let mut request = PoolRequest::new(timed::ID, LANES as u32);
        request.settings.record = RecordRule::None;
        request.transport = Some(transport);
        let mut pool = cluster.open_pool(request).map_err(failed)?;
        pool.reset(&Reset::seeded(1, LANES)).map_err(failed)?;
        Ok(Self::Pool(Box::new(pool)))
    }

    fn turn(&mut self, idle: &[u32]) -> Result<Received, Failure> {
        let actions = ColumnData::zeros(DType::I64, idle.len());
        match self {
            Self::Embedded(engine) => {
                engine.send(idle, actions.as_ref()).map_err(failed)?;
                engine.recv(MIN, PATIENCE).map_err(failed)
            }
            Self::Pool(pool) => {
                pool.send(idle, actions.as_ref()).map_err(failed)?;
                pool.recv(MIN, PATIENCE).map_err(failed)
            }
        }
    }
}

/// Returns the steps per second of all lanes but the first.
fn measure(
    cluster: &Cluster,
    slow: Duration,
    transport: Option<Transport>,
    time: Duration,
) -> Result<f64, Failure> {
    let mut lanes = Lanes::make(cluster, slow, transport)?;
    let mut idle: Vec<u32> = (0..LANES as u32).collect();
    // The first turns warm up.
    for _ in 0..WARM_UP {
        idle = lanes.turn(&idle)?.lanes;
    }
    let (began, mut steps) = (Instant::now(), 0u64);
    while began.elapsed() < time {
        idle = lanes.turn(&idle)?.lanes;
        steps += idle.iter().filter(|&&lane| lane != 0).count() as u64;
    }
    let rate = steps as f64 / began.elapsed().as_secs_f64();
    if let Lanes::Pool(pool) = lanes {
        pool.close().map_err(failed)?;
    }
    Ok(rate)
}

const LANES: usize = 64;
const MIN: usize = 32;
/// Time that a step of each lane takes.
const ALIKE: Duration = Duration::from_millis(1);
/// Time that a step of the slow lane takes.
const SLOW: Duration = Duration::from_millis(100);
const WARM_UP: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);
