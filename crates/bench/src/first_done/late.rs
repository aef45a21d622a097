//! `rollhouse-bench late`: measures rounds of late sessions over QUIC on a node with few threads for what may wait, and many
//! sessions at rest on several nodes.
//!
//! Each lane does nothing but wait, 1 to 20 ms a step. Coordinator, nodes and trainers are this one process. Nothing is recorded.

use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::output::{Output, say};
use rollhouse_client::{AsyncCluster, AsyncPool, PoolRequest, Transport};
use rollhouse_core::{ColumnData, DType, RecordRule};
use rollhouse_engine::Reset;
use rollhouse_metrics::ProcessSample;
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::local::Local;
use super::timed;
use crate::args::LateArgs;
use crate::failed::failed;
use crate::scratch::Scratch;
use crate::spread::Spread;

/// Measures and prints the figures.
pub(crate) fn run(args: &LateArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let env = || timed::entry(|lane| SLOWEST * (lane as u32 % LANES + 1) / LANES);
    let local = Local::start(&folder.0, (NODES, args.waiting_threads as usize), env)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let result = runtime.block_on(measure(args, &local))?;
    if args.json {
        out.json(&result)?;
    } else {
        result.print(out)?;
    }
    if cfg!(debug_assertions) {
        say("note: a development build, with checks that a release build leaves out");
    }
    Ok(Status::Done)
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct LateResult {
    debug_assertions: bool,
    sessions: u32,
    lanes: u32,
    waiting_threads: u32,
    slowest_ms: f64,
    /// Milliseconds that rounds took beyond the slowest lane: in which all sessions step all of their lanes, and in which they
    /// send all and receive them.
    steps_beyond_ms: Spread,
    sends_beyond_ms: Spread,
    idle_sessions: u32,
    idle_seconds: f64,
    /// Per cent of a core that the process used for each thousand of them.
    idle_core_percent_per_thousand: f64,
}

impl LateResult {
    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let Self { sessions, lanes, waiting_threads, slowest_ms, .. } = self;
        writeln!(
            out,
            "{sessions} late sessions of {lanes} lanes over QUIC, {waiting_threads} threads for what may wait, the slowest lane \
             {slowest_ms} ms a step; milliseconds that a round takes beyond that (5 wanted):"
        )?;
        for (what, beyond) in [("steps", &self.steps_beyond_ms), ("sends", &self.sends_beyond_ms)] {
            writeln!(out, "{what}: median {:.2}, {:.2} to {:.2}", beyond.median, beyond.min, beyond.max)?;
        }
        writeln!(
            out,
            "{} sessions at rest for {:.1} s on {NODES} nodes: {:.3} % of a core a thousand (1 wanted)",
            self.idle_sessions, self.idle_seconds, self.idle_core_percent_per_thousand
        )
    }
}

async fn measure(args: &LateArgs, local: &Local) -> Result<LateResult, Failure> {
    let mut pools = open(&local.trainer(0).await?, timed::ID, args.sessions, LANES).await?;
    let mut beyond = [Vec::new(), Vec::new()];
    for round in 0..args.rounds + WARM_UP {
        for (sends, beyond) in beyond.iter_mut().enumerate() {
            let began = Instant::now();
            pools = play(pools, sends == 1).await?;
            if round >= WARM_UP {
                beyond.push((began.elapsed().as_secs_f64() - SLOWEST.as_secs_f64()) * 1e3);
            }
        }
    }
    drop(pools);
    let mut idle = Vec::new();
    for owner in 0..OWNERS {
        let sessions = args.idle_sessions / OWNERS + u32::from(owner < args.idle_sessions % OWNERS);
        idle.extend(open(&local.trainer(owner as usize).await?, IDLE_ENV, sessions, 1).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let used = || ProcessSample::now().map(|sample| sample.processor_time).map_err(failed);
    let (began, before) = (Instant::now(), used()?);
    tokio::time::sleep(Duration::from_secs(args.idle_seconds.into())).await;
    let (took, used) = (began.elapsed().as_secs_f64(), used()?.saturating_sub(before).as_secs_f64());
    let [steps_beyond_ms, sends_beyond_ms] = beyond.map(Spread::of);
    Ok(LateResult {
        debug_assertions: cfg!(debug_assertions),
        sessions: args.sessions,
        lanes: LANES,
        waiting_threads: args.waiting_threads,
        slowest_ms: SLOWEST.as_secs_f64() * 1e3,
        steps_beyond_ms,
        sends_beyond_ms,
        idle_sessions: idle.len() as u32,
        idle_seconds: took,
        idle_core_percent_per_thousand: used / took * 1e2 / (idle.len().max(1) as f64 / 1e3),
    })
}

/// Opens pools of one session and resets them.
async fn open(
    cluster: &AsyncCluster,
    env: &'static str,
    count: u32,
    lanes: u32,
) -> Result<Vec<AsyncPool>, Failure> {
    let (mut opening, mut pools) = (JoinSet::new(), Vec::new());
    for number in 0..count {
        let (cluster, mut request) = (cluster.clone(), PoolRequest::new(env, lanes));
        request.settings.record = RecordRule::None;
        request.transport = Some(Transport::Quic);
        opening.spawn(async move {
            let mut pool = cluster.open_pool(request).await.map_err(failed)?;
            pool.reset(&Reset::seeded(1, lanes as usize)).await.map_err(failed)?;
            Ok::<_, Failure>(pool)
        });
        if number >= OPENED_AT_A_TIME
            && let Some(opened) = opening.join_next().await
        {
            pools.push(opened.map_err(failed)??);
        }
    }
    while let Some(opened) = opening.join_next().await {
        pools.push(opened.map_err(failed)??);
    }
    Ok(pools)
}

/// Plays a round: all pools step, or send their lanes and receive them, at a time.
async fn play(pools: Vec<AsyncPool>, sends: bool) -> Result<Vec<AsyncPool>, Failure> {
    let (mut playing, mut played) = (JoinSet::new(), Vec::with_capacity(pools.len()));
    for mut pool in pools {
        playing.spawn(async move {
            if sends {
                let lanes: Vec<u32> = (0..LANES).collect();
                let actions = ColumnData::zeros(DType::I64, lanes.len());
                pool.send(&lanes, actions.as_ref()).await.map_err(failed)?;
                pool.recv(lanes.len(), PATIENCE).await.map_err(failed)?;
            } else {
                pool.step().await.map_err(failed)?;
            }
            Ok::<_, Failure>(pool)
        });
    }
    while let Some(pool) = playing.join_next().await {
        played.push(pool.map_err(failed)??);
    }
    Ok(played)
}

/// Lanes of a session that is played. The first takes an eighth of the time of the last.
const LANES: u32 = 8;
const SLOWEST: Duration = Duration::from_millis(20);
/// Env of the sessions at rest.
const IDLE_ENV: &str = "CartPole-v1";
/// Nodes over which sessions at rest are spread, and owners that have them: there are bounds for each.
const NODES: usize = 3;
const OWNERS: u32 = 8;
const OPENED_AT_A_TIME: u32 = 32;
const WARM_UP: u32 = 5;
/// Time to settle: what opening left to do is done.
const SETTLE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);
