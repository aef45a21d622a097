//! Compares lanes stepped by a node of a cluster in this process with an echo of as many bytes: the difference is the
//! cost of a step beyond its way there and back.
//!
//! A trainer and its node wait awake for each other ([`Eagerness`]), which an echo does not do by itself. The echo is
//! measured in both ways: asleep, as in any use of QUIC, and awake at both ends, which leaves the cost of the step.

use std::pin::pin;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{Address, Cluster, ConnectOptions, Pool, PoolRequest, Transport};
use rollhouse_core::RecordRule;
use rollhouse_engine::Reset;
use rollhouse_policy::{Act, Builtin, Policy};
use rollhouse_wire::{
    Connection, Eagerness, FrameFault, FrameHeader, FrameKind, FrameLayout, FrameReader, FrameWriter,
    Responder,
};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::{ENV, LANES, MAX_COLUMNS, SIZED, SIZED_AWAKE, Samples, TAKEN, attach, median};
use crate::failed::failed;
use crate::seed::SEED;
use crate::spread::Spread;

/// A pool of lanes, stepped as a trainer does.
pub(super) struct Lanes {
    cluster: Cluster,
    pool: Pool,
    policy: Box<dyn Policy>,
    steps: u64,
}

/// Bytes of a step's frames, without their headers.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct StepBytes {
    request: usize,
    answer: usize,
}

/// The part of the output of `--json` about lanes.
#[derive(Debug, Serialize)]
pub(super) struct LanesResult {
    env: &'static str,
    lanes: u32,
    bytes: StepBytes,
    /// Time of a step of all lanes, from the trainer's call to its return.
    step_us: Spread,
    /// Time of as many bytes there and back, with nothing done to them.
    echo_us: Spread,
    /// Ratio of the two, repetition by repetition.
    ratio: Spread,
    /// Time of the same bytes, awake at both ends as trainer and node are.
    awake_echo_us: Spread,
    /// Ratio of a step to that, repetition by repetition.
    awake_ratio: Spread,
}

/// Seconds of the medians of one repetition.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LanesSample {
    step: f64,
    echo: f64,
    awake_echo: f64,
}

impl Lanes {
    /// Opens the pool in the cluster with that connection string.
    pub(super) fn open(connection: &str) -> Result<Self, Failure> {
        let address: Address = connection.parse().map_err(failed)?;
        // The node is this process: left to itself the pool would be stepped through memory.
        let options = ConnectOptions { transport: Some(Transport::Quic), ..ConnectOptions::default() };
        let cluster = Cluster::connect(&address, options, None).map_err(failed)?;
        let mut request = PoolRequest::new(ENV, LANES);
        request.settings.record = RecordRule::None;
        let mut pool = cluster.open_pool(request).map_err(failed)?;
        pool.reset(&Reset::all()).map_err(failed)?;
        let policy = Builtin::Random.make(&pool.spec().action_space, SEED).map_err(failed)?;
        Ok(Self { cluster, pool, policy, steps: 0 })
    }

    pub(super) fn bytes(&self) -> Result<StepBytes, Failure> {
        let layout = FrameLayout::of(self.pool.spec());
        let lanes = LANES as usize;
        let request = layout.actions(lanes, false).map(|places| places.bytes);
        let answer = layout.batch(lanes, false).map(|places| places.bytes);
        let sizes = request.zip(answer).map(|(request, answer)| StepBytes { request, answer });
        sizes.ok_or_else(|| Failure::new(Status::Failed, format_args!("{LANES} lanes do not fit a frame")))
    }

    /// Steps and adds the time of each step.
    fn step(&mut self, steps: u32, times: &mut Vec<Duration>) -> Result<(), Failure> {
        for _ in 0..steps {
            let act =
                Act { first_lane: 0, step: self.steps, obs: &[], mask: None, actions: self.pool.actions() };
            self.policy.act(act).map_err(failed)?;
            self.steps += 1;
            let began = Instant::now();
            self.pool.step().map_err(failed)?;
            times.push(began.elapsed());
        }
        Ok(())
    }

    pub(super) fn close(self) -> Result<(), Failure> {
        self.pool.close().map_err(failed)?;
        self.cluster.close();
        Ok(())
    }
}

/// Frames of one size in one direction and of another size back.
pub(super) struct Sized {
    reader: FrameReader,
    writer: FrameWriter,
    payload: Vec<u8>,
    answer: usize,
    number: u32,
    eagerness: Option<Eagerness>,
}

impl Sized {
    pub(super) async fn open(
        connection: &Connection,
        bytes: StepBytes,
        awake: bool,
    ) -> Result<Self, Failure> {
        let StepBytes { request, answer } = bytes;
        let attach = attach(if awake { SIZED_AWAKE } else { SIZED }, answer as u32);
        let (_, reader, writer) = connection.attach(attach, None, MAX_COLUMNS).await.map_err(failed)?;
        let eagerness = awake.then(Eagerness::default);
        Ok(Self { reader, writer, payload: vec![7; request], answer, number: 0, eagerness })
    }

    /// Makes round trips and adds the time of each.
    async fn echo(&mut self, round_trips: u32, times: &mut Vec<Duration>) -> Result<(), Failure> {
        for _ in 0..round_trips {
            self.number = FrameHeader::next_number(self.number);
            // Both lengths are within the limit of a frame.
            let columns = self.payload.len() as u32;
            let header =
                FrameHeader { kind: FrameKind::Step, flags: 0, number: self.number, columns, sidecar: 0 };
            let began = Instant::now();
            self.writer.put(header, &[&self.payload], &[]);
            self.writer.flush().await.map_err(failed)?;
            let answer = read(&mut self.reader, self.eagerness.as_ref()).await.map_err(failed)?;
            times.push(began.elapsed());
            if answer.is_none_or(|a| (a.number, a.columns as usize) != (self.number, self.answer)) {
                return Err(Failure::new(Status::Failed, format_args!("no answer but {answer:?}")));
            }
        }
        Ok(())
    }
}

async fn read(
    reader: &mut FrameReader,
    eagerness: Option<&Eagerness>,
) -> Result<Option<FrameHeader>, FrameFault> {
    let mut read = pin!(reader.read());
    if let Some(eagerness) = eagerness
        && let Some(header) = eagerness.wait(read.as_mut()).await
    {
        return header;
    }
    read.await
}

/// Measures all variants. They take turns every few steps, so that all meet the same machine: threads that wake each
/// other can be half as fast in one second as in the next.
pub(super) fn measure(
    lanes: &mut Lanes,
    [asleep, awake]: &mut [Sized; 2],
    runtime: &Runtime,
    round_trips: u32,
) -> Result<LanesSample, Failure> {
    let (mut steps, mut echoes, mut awake_echoes) = (Vec::new(), Vec::new(), Vec::new());
    while (steps.len() as u32) < round_trips {
        lanes.step(TURN, &mut steps)?;
        runtime.block_on(asleep.echo(TURN, &mut echoes))?;
        runtime.block_on(awake.echo(TURN, &mut awake_echoes))?;
    }
    let [step, echo, awake_echo] = [&mut steps, &mut echoes, &mut awake_echoes].map(|times| median(times));
    Ok(LanesSample { step, echo, awake_echo })
}

/// Number of steps, or round trips, in a turn.
const TURN: u32 = 20;

/// Answers at the other end of [`Sized`].
pub(super) async fn answer_sized(responder: Responder, bytes: usize, awake: bool) -> Option<()> {
    let (mut reader, mut writer) = responder.accept_frames(TAKEN, MAX_COLUMNS).await.ok()?;
    let payload = vec![7; bytes.min(MAX_COLUMNS)];
    let eagerness = awake.then(Eagerness::default);
    while let Ok(Some(header)) = read(&mut reader, eagerness.as_ref()).await {
        let columns = payload.len() as u32;
        let answer = FrameHeader { kind: FrameKind::Batch, columns, ..header };
        writer.put(answer, &[&payload], &[]);
        writer.flush().await.ok()?;
    }
    Some(())
}

impl LanesResult {
    pub(super) fn of(bytes: StepBytes, samples: &Samples) -> Self {
        Self {
            env: ENV,
            lanes: LANES,
            bytes,
            step_us: samples.spread(|sample| sample.lanes.step * 1e6),
            echo_us: samples.spread(|sample| sample.lanes.echo * 1e6),
            ratio: samples.spread(|sample| sample.lanes.step / sample.lanes.echo),
            awake_echo_us: samples.spread(|sample| sample.lanes.awake_echo * 1e6),
            awake_ratio: samples.spread(|sample| sample.lanes.step / sample.lanes.awake_echo),
        }
    }

    pub(super) fn rows(&self) -> [Vec<String>; 5] {
        let what = format!("{} lanes of {}", self.lanes, self.env);
        let StepBytes { request, answer } = self.bytes;
        [
            self.step_us.row(&what, 1.0, 1, "us a step"),
            self.echo_us.row(&format!("{request} and {answer} bytes"), 1.0, 1, "us there and back"),
            self.ratio.row("lanes / bytes", 1.0, 3, "of the time there and back (1.25 is wanted)"),
            self.awake_echo_us.row("the bytes, awake", 1.0, 1, "us there and back"),
            self.awake_ratio.row("lanes / bytes, awake", 1.0, 3, "of the time there and back"),
        ]
    }
}
