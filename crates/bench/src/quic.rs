//! `rollhouse-bench quic`: compares frames over the cluster's endpoint with a bare stream of the same settings, also
//! with lanes stepped behind them, and lanes stepped by a node with an echo of as many bytes.
//!
//! Two threads of this process, each with a runtime of its own as nodes and clients have it, and one connection over
//! the loopback device. Both variants use the same connection, so that they differ only in what is measured: whether
//! bytes are framed. They take turns, and the one that begins changes with each repetition.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::output::Output;
use rollhouse_cli::table::{Align, Table};
use rollhouse_core::RunId;
use rollhouse_wire::{
    Arrival, Attach, Attached, ByteReceiver, ByteSender, CertificateAuthority, CertificateFiles, CloseCode,
    Connection, Dialer, Expected, FrameHeader, FrameKind, FrameReader, FrameWriter, Identity, Incarnation,
    LinkFigures, Listener, Peer, Request, Responder, Role, Secret, Settings, Trust,
};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::lanes::{Lanes, LanesResult, LanesSample, Sized, StepBytes};
use crate::args::QuicArgs;
use crate::cluster;
use crate::failed::failed;
use crate::scratch::Scratch;
use crate::spread::Spread;

mod behind;
#[cfg(feature = "grpc")]
mod grpc;
mod lanes;

/// Measures and prints the figures.
pub(super) fn run(args: &QuicArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let identities = Identities::make(&folder)?;
    let echo = Echo::start(identities.node.clone())?;
    let local = cluster::start(&folder.0)?;
    let runtime = runtime()?;
    let result = Bench::open(args, &runtime, &identities, echo.address, &local.connection)
        .and_then(|bench| bench.measure(args));
    drop(runtime);
    let (stopped, ended) = (cluster::stop(local), echo.stop());
    let result = result?;
    stopped.and(ended)?;
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    Ok(Status::Done)
}

/// All variants that are measured, with their streams open.
struct Bench<'a> {
    runtime: &'a Runtime,
    dialer: Dialer,
    connection: Connection,
    framed: Framed,
    behind: Framed,
    bare: Bare,
    lanes: Lanes,
    sized: [Sized; 2],
    step_bytes: StepBytes,
    #[cfg(feature = "grpc")]
    grpc: grpc::Peer,
}

impl<'a> Bench<'a> {
    fn open(
        args: &QuicArgs,
        runtime: &'a Runtime,
        identities: &Identities,
        echo: SocketAddr,
        cluster: &str,
    ) -> Result<Self, Failure> {
        let bytes = args.bytes as usize;
        let lanes = Lanes::open(cluster)?;
        let step_bytes = lanes.bytes()?;
        runtime.block_on(async {
            let dialer = Dialer::new(identities.client.clone(), Settings::default(), PROGRAM);
            let expected = Expected { role: Role::Node, name: None };
            let connection = dialer.dial_address(echo, &expected, None).await.map_err(failed)?;
            Ok(Self {
                runtime,
                framed: Framed::open(&connection, FRAMED, vec![7; bytes]).await?,
                behind: Framed::open(&connection, BEHIND, behind::request(bytes)).await?,
                bare: Bare::open(&connection, bytes).await?,
                lanes,
                sized: [
                    Sized::open(&connection, step_bytes, false).await?,
                    Sized::open(&connection, step_bytes, true).await?,
                ],
                step_bytes,
                #[cfg(feature = "grpc")]
                grpc: grpc::Peer::start(bytes).await?,
                dialer,
                connection,
            })
        })
    }

    fn measure(mut self, args: &QuicArgs) -> Result<QuicResult, Failure> {
        let mut samples = Samples::default();
        // The first repetition warms up: the path's datagram size is found, windows and buffers grow.
        for repetition in 0..=args.repetitions {
            let mut one = Sample::default();
            self.runtime.block_on(async {
                if repetition % 2 == 0 {
                    self.framed.measure(args.round_trips, &mut one.framed).await?;
                    one.behind = self.behind.round_trips(args.round_trips).await?;
                    self.bare.measure(args.round_trips, &mut one.bare).await
                } else {
                    self.bare.measure(args.round_trips, &mut one.bare).await?;
                    one.behind = self.behind.round_trips(args.round_trips).await?;
                    self.framed.measure(args.round_trips, &mut one.framed).await
                }
            })?;
            let Self { lanes, sized, runtime, .. } = &mut self;
            one.lanes = lanes::measure(lanes, sized, runtime, args.round_trips)?;
            #[cfg(feature = "grpc")]
            self.runtime.block_on(self.grpc.measure(args.round_trips, &mut one.grpc))?;
            if repetition > 0 {
                samples.0.push(one);
            }
        }
        let link = self.connection.figures();
        self.connection.close(CloseCode::Finished, "");
        self.runtime.block_on(self.dialer.closed());
        self.lanes.close()?;
        Ok(QuicResult::of(args, &samples, &link, self.step_bytes))
    }
}

/// Returns the seconds of the median round trip of `bytes` bytes over gRPC.
#[cfg(feature = "grpc")]
pub(super) fn grpc_round_trip(bytes: usize, round_trips: u32) -> Result<f64, Failure> {
    runtime()?.block_on(async {
        let mut peer = grpc::Peer::start(bytes).await?;
        let mut measured = Measured::default();
        peer.measure(round_trips, &mut measured).await?;
        Ok(measured.round_trip)
    })
}

/// The figures of one variant in one repetition.
#[derive(Debug, Default, Clone, Copy)]
struct Measured {
    /// Bytes a second, one way.
    bulk: f64,
    /// Seconds of the median round trip.
    round_trip: f64,
}

#[derive(Debug, Default)]
struct Sample {
    framed: Measured,
    bare: Measured,
    /// Seconds of the median round trip with lanes stepped behind it.
    behind: f64,
    lanes: LanesSample,
    #[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "measured with the feature only"))]
    grpc: Measured,
}

#[derive(Debug, Default)]
struct Samples(Vec<Sample>);

impl Samples {
    fn spread(&self, of: impl Fn(&Sample) -> f64) -> Spread {
        let mut values: Vec<f64> = self.0.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Spread { min: at(0), median: (at(last / 2) + at(values.len() / 2)) / 2.0, max: at(last) }
    }
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct QuicResult {
    bytes: u32,
    round_trips: u32,
    repetitions: u32,
    datagram_bytes: u16,
    lost_packets: u64,
    frames: Way,
    bare_stream: Way,
    /// The figures of gRPC; absent unless built with the feature `grpc`.
    grpc_tls: Option<Way>,
    /// Ratio of frames to bare stream, repetition by repetition.
    bulk_ratio: Spread,
    round_trip_ratio: Spread,
    /// Round trip of as many bytes in frames, with lanes stepped behind them.
    with_lanes_behind_us: Spread,
    /// Ratio of that to the bare stream, repetition by repetition.
    with_lanes_behind_ratio: Spread,
    stepped: LanesResult,
}

#[derive(Debug, Serialize)]
struct Way {
    bulk_mb_per_second: Spread,
    round_trip_us: Spread,
}

impl QuicResult {
    fn of(args: &QuicArgs, samples: &Samples, link: &LinkFigures, step_bytes: StepBytes) -> Self {
        let way = |of: fn(&Sample) -> Measured| Way {
            bulk_mb_per_second: samples.spread(|sample| of(sample).bulk / 1e6),
            round_trip_us: samples.spread(|sample| of(sample).round_trip * 1e6),
        };
        Self {
            bytes: args.bytes,
            round_trips: args.round_trips,
            repetitions: args.repetitions,
            datagram_bytes: link.datagram,
            lost_packets: link.lost_packets,
            frames: way(|sample| sample.framed),
            bare_stream: way(|sample| sample.bare),
            #[cfg(feature = "grpc")]
            grpc_tls: Some(way(|sample| sample.grpc)),
            #[cfg(not(feature = "grpc"))]
            grpc_tls: None,
            bulk_ratio: samples.spread(|sample| sample.framed.bulk / sample.bare.bulk),
            round_trip_ratio: samples.spread(|sample| sample.framed.round_trip / sample.bare.round_trip),
            with_lanes_behind_us: samples.spread(|sample| sample.behind * 1e6),
            with_lanes_behind_ratio: samples.spread(|sample| sample.behind / sample.bare.round_trip),
            stepped: LanesResult::of(step_bytes, samples),
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        writeln!(
            out,
            "{} bytes there and back {} times, {} MiB one way; {} repetitions over loopback, datagrams of {} \
             bytes, {} packets lost\n",
            self.bytes,
            self.round_trips,
            BULK_BYTES >> 20,
            self.repetitions,
            self.datagram_bytes,
            self.lost_packets
        )?;
        let mut table = Table::new(&[
            ("", Align::Left),
            ("MIN", Align::Right),
            ("MEDIAN", Align::Right),
            ("MAX", Align::Right),
            ("", Align::Left),
        ]);
        let ways = [
            ("frames", Some(&self.frames)),
            ("bare stream", Some(&self.bare_stream)),
            ("grpc with tls", self.grpc_tls.as_ref()),
        ];
        for (name, way) in ways {
            if let Some(way) = way {
                table.row(way.bulk_mb_per_second.row(name, 1.0, 0, "MB/s one way"));
                table.row(way.round_trip_us.row("", 1.0, 1, "us there and back"));
            }
        }
        table.row(self.bulk_ratio.row("frames / bare", 1.0, 3, "of the speed one way"));
        table.row(self.round_trip_ratio.row("", 1.0, 3, "of the time there and back"));
        let what = format!("{LANES} lanes behind frames");
        table.row(self.with_lanes_behind_us.row(&what, 1.0, 1, "us there and back"));
        table.row(self.with_lanes_behind_ratio.row("the same / bare", 1.0, 3, "of the time there and back"));
        self.stepped.rows().into_iter().for_each(|row| table.row(row));
        table.write(out)?;
        if self.grpc_tls.is_none() {
            writeln!(out, "\ngRPC is measured beside them when this is built with `--features grpc`.")?;
        }
        Ok(())
    }
}

/// Frames on a stream of their own.
struct Framed {
    reader: FrameReader,
    writer: FrameWriter,
    payload: Vec<u8>,
    piece: Vec<u8>,
    number: u32,
}

impl Framed {
    async fn open(connection: &Connection, kind: u32, payload: Vec<u8>) -> Result<Self, Failure> {
        let (_, reader, writer) =
            connection.attach(attach(kind, 0), None, MAX_COLUMNS).await.map_err(failed)?;
        Ok(Self { reader, writer, payload, piece: vec![7; PIECE_BYTES], number: 0 })
    }

    async fn measure(&mut self, round_trips: u32, measured: &mut Measured) -> Result<(), Failure> {
        let began = Instant::now();
        for _ in 0..BULK_BYTES / PIECE_BYTES as u64 {
            let header = self.header(FrameKind::Send, self.piece.len());
            self.writer.put(header, &[&self.piece], &[]);
            self.writer.flush().await.map_err(failed)?;
        }
        // An empty echo: when it is back, everything before it was taken in.
        self.echo(0).await?;
        measured.bulk = BULK_BYTES as f64 / began.elapsed().as_secs_f64();
        measured.round_trip = self.round_trips(round_trips).await?;
        Ok(())
    }

    /// Makes the round trips and returns the seconds of the median one.
    async fn round_trips(&mut self, round_trips: u32) -> Result<f64, Failure> {
        let mut times = Vec::with_capacity(round_trips as usize);
        for _ in 0..round_trips {
            let began = Instant::now();
            self.echo(self.payload.len()).await?;
            times.push(began.elapsed());
        }
        Ok(median(&mut times))
    }

    async fn echo(&mut self, bytes: usize) -> Result<(), Failure> {
        let header = self.header(FrameKind::Step, bytes);
        self.writer.put(header, &[&self.payload[..bytes]], &[]);
        self.writer.flush().await.map_err(failed)?;
        match self.reader.read().await.map_err(failed)? {
            Some(answer) if answer.number == header.number && answer.columns == header.columns => Ok(()),
            answer => Err(Failure::new(Status::Failed, format_args!("expected an echo, got {answer:?}"))),
        }
    }

    fn header(&mut self, kind: FrameKind, bytes: usize) -> FrameHeader {
        self.number = FrameHeader::next_number(self.number);
        // Both lengths are within the limit of a frame.
        FrameHeader { kind, flags: 0, number: self.number, columns: bytes as u32, sidecar: 0 }
    }
}

/// Bytes on streams of their own: one for bulk, one for round trips.
struct Bare {
    bulk: (ByteReceiver, ByteSender),
    echo: (ByteReceiver, ByteSender),
    payload: Vec<u8>,
    piece: Vec<u8>,
}

impl Bare {
    async fn open(connection: &Connection, bytes: usize) -> Result<Self, Failure> {
        let streams = async |kind| {
            let mut call = connection.open(&Request::Attach(attach(kind, bytes as u32))).await?;
            call.answer::<Attached>().await?;
            Ok::<_, rollhouse_wire::CallError>((call.receive, call.send))
        };
        Ok(Self {
            bulk: streams(BULK).await.map_err(failed)?,
            echo: streams(ECHO).await.map_err(failed)?,
            payload: vec![7; bytes],
            piece: vec![7; PIECE_BYTES],
        })
    }

    async fn measure(&mut self, round_trips: u32, measured: &mut Measured) -> Result<(), Failure> {
        let began = Instant::now();
        let (receive, send) = &mut self.bulk;
        for _ in 0..BULK_BYTES / PIECE_BYTES as u64 {
            send.write_all(&self.piece).await.map_err(failed)?;
        }
        receive.read_exact(&mut [0]).await.map_err(failed)?;
        measured.bulk = BULK_BYTES as f64 / began.elapsed().as_secs_f64();
        let (receive, send) = &mut self.echo;
        let mut times = Vec::with_capacity(round_trips as usize);
        for _ in 0..round_trips {
            let began = Instant::now();
            send.write_all(&self.payload).await.map_err(failed)?;
            receive.read_exact(&mut self.payload).await.map_err(failed)?;
            times.push(began.elapsed());
        }
        measured.round_trip = median(&mut times);
        Ok(())
    }
}

/// The other end, on a thread of its own.
struct Echo {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Echo {
    fn start(identity: Arc<Identity>) -> Result<Self, Failure> {
        let (bound, address) = sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("bench-echo".to_owned())
            .spawn(move || runtime()?.block_on(serve(identity, bound, stopped)))
            .map_err(failed)?;
        match address.recv() {
            Ok(address) => Ok(Self { address, stop, thread }),
            // It ended before it was bound, and says why.
            Err(_) => Err(joined(thread)
                .err()
                .unwrap_or_else(|| Failure::new(Status::Failed, format_args!("the echoing thread ended")))),
        }
    }

    fn stop(self) -> Result<(), Failure> {
        // If nobody listens any more, the thread has ended by itself and says why.
        let _stopped = self.stop.send(());
        joined(self.thread)
    }
}

fn joined(thread: JoinHandle<Result<(), Failure>>) -> Result<(), Failure> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Failure::new(Status::Failed, format_args!("the echoing thread panicked"))))
}

async fn serve(
    identity: Arc<Identity>,
    bound: SyncSender<SocketAddr>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let admit = Box::new(|_: &_, stranger: &_| Ok(Peer { role: Role::Node, ..Peer::anonymous(stranger) }));
    let mut listener =
        Listener::bind(([127, 0, 0, 1], 0).into(), identity, Settings::default(), PROGRAM, admit)
            .map_err(failed)?;
    // The other side waits for it, or has gone, which `stopped` tells.
    let _told = bound.send(listener.effective().address);
    loop {
        tokio::select! {
            arrival = listener.accept() => {
                if let Some(Arrival::Connected(connection)) = arrival {
                    tokio::spawn(answer(connection));
                }
            }
            _ = &mut stopped => return Ok(()),
        }
    }
}

async fn answer(connection: Connection) {
    let mut requests = connection.requests();
    // Anything else than an attachment is refused before it gets here.
    while let Ok((Request::Attach(attach), responder)) = requests.next().await {
        tokio::spawn(async move {
            // Whatever ends a stream shows at the side that measures.
            let _ended = match attach.index {
                FRAMED => framed(responder).await,
                BULK => bulk(responder).await,
                BEHIND => behind::answer(responder).await,
                SIZED | SIZED_AWAKE => {
                    let (bytes, awake) = (attach.incarnation.counter as usize, attach.index == SIZED_AWAKE);
                    lanes::answer_sized(responder, bytes, awake).await
                }
                _ => echo(responder, attach.incarnation.counter as usize).await,
            };
        });
    }
}

const TAKEN: Attached =
    Attached { lanes: 0, last: 0, logs: false, as_done: false, plays: false, paced: false };

async fn framed(responder: Responder) -> Option<()> {
    let (mut reader, mut writer) = responder.accept_frames(TAKEN, MAX_COLUMNS).await.ok()?;
    while let Ok(Some(header)) = reader.read().await {
        if header.kind == FrameKind::Step {
            let answer = FrameHeader { kind: FrameKind::Batch, ..header };
            writer.put(answer, &[reader.columns().bytes()], &[]);
            writer.flush().await.ok()?;
        }
    }
    Some(())
}

async fn bulk(responder: Responder) -> Option<()> {
    let (mut receive, mut send) = responder.accept(TAKEN).await.ok()?;
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let mut left = BULK_BYTES;
        while left > 0 {
            left -= receive.read(&mut buffer).await.ok()?? as u64;
        }
        send.write_all(&[1]).await.ok()?;
    }
}

async fn echo(responder: Responder, bytes: usize) -> Option<()> {
    let (mut receive, mut send) = responder.accept(TAKEN).await.ok()?;
    let mut buffer = vec![0; bytes.min(MAX_COLUMNS)];
    loop {
        receive.read_exact(&mut buffer).await.ok()?;
        send.write_all(&buffer).await.ok()?;
    }
}

/// An authority and a node's certificate, in the bench's folder.
struct Identities {
    node: Arc<Identity>,
    client: Arc<Identity>,
}

impl Identities {
    fn make(folder: &Scratch) -> Result<Self, Failure> {
        let authority = CertificateAuthority::create(&folder.0, HOUR).map_err(failed)?;
        let files =
            CertificateFiles { certificate: folder.0.join("node.pem"), key: folder.0.join("node.key") };
        let issued = authority.issue(Role::Node, "bench", HOUR).map_err(failed)?;
        issued.write(&files.certificate, &files.key).map_err(failed)?;
        let trust = Trust::File(folder.0.join(rollhouse_wire::CA_CERTIFICATE));
        Ok(Self {
            node: Identity::load(trust.clone(), Some(files)).map_err(failed)?,
            client: Identity::load(trust, None).map_err(failed)?,
        })
    }
}

/// Makes the request that tells the echoing side how to use a stream: by the index, and for round trips by their bytes.
fn attach(kind: u32, bytes: u32) -> Attach {
    let incarnation = Incarnation { term: 0, counter: u64::from(bytes) };
    Attach {
        pool: RunId::from_u128(0),
        index: kind,
        incarnation,
        secret: Secret::from_bytes([0; 16]),
        log: false,
    }
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(f64::NAN, Duration::as_secs_f64)
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(failed)
}

const PROGRAM: &str = concat!("rollhouse/", env!("CARGO_PKG_VERSION"));
const HOUR: Duration = Duration::from_secs(3600);
/// Bytes that are sent one way in each repetition.
const BULK_BYTES: u64 = 256 << 20;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of the largest frame that is echoed.
const MAX_COLUMNS: usize = 16 << 20;
const FRAMED: u32 = 0;
const BULK: u32 = 1;
const ECHO: u32 = 2;
const SIZED: u32 = 3;
const BEHIND: u32 = 4;
const SIZED_AWAKE: u32 = 5;
/// The env that is stepped behind frames, and by a node.
const ENV: &str = "CartPole-v1";
const LANES: u32 = 64;
