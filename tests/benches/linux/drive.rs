//! The trainers: as many sessions as there are, each stepping as fast as its answers come.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use rollhouse_core::{RunId, split_mix64};
use rollhouse_wire::{
    Attach, Dialer, Expected, FrameHeader, FrameKind, HEADER_BYTES, Incarnation, Secret, Settings,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinSet, LocalSet};

use super::serve::client_identity;
use super::{Figures, Plan, SESSIONS, server, wait_for_link};

pub(super) fn run(plan: &Plan, folder: &str) {
    wait_for_link();
    let identity = client_identity(Path::new(folder));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    LocalSet::new().block_on(&runtime, async {
        let dialer = Dialer::new(identity, Settings::default(), "link bench");
        for _ in 0..plan.repeats {
            let both = [over_quic(plan, &dialer).await, over_tcp(plan).await];
            println!("{}", serde_json::to_string(&both).expect("figures are plain"));
        }
    });
}

async fn over_quic(plan: &Plan, dialer: &Dialer) -> Figures {
    let lanes = plan.lanes;
    let connection =
        dialer.dial_address(server(), &Expected::node("link"), None).await.expect("the server listens");
    let mut attached = Vec::new();
    for index in 0..SESSIONS as u32 {
        let attach = Attach {
            pool: RunId::from_u128(1),
            index,
            incarnation: Incarnation::default(),
            secret: Secret::from_bytes([0; 16]),
            log: false,
        };
        let (_, reader, writer) = connection.attach(attach, None, 1 << 20).await.expect("it answers");
        attached.push((reader, writer));
    }
    let mut sessions = JoinSet::new();
    let end = Instant::now() + plan.duration();
    for (mut reader, mut writer) in attached {
        sessions.spawn_local(step_until(end, async move |number| {
            let (header, actions) = request(lanes, number);
            writer.put(header, &[&actions], &[]);
            writer.flush().await.expect("the server is there");
            let answer = reader.read().await.expect("it answers").expect("it goes on");
            assert_eq!(answer.number, number);
        }));
    }
    figures(sessions, plan).await
}

async fn over_tcp(plan: &Plan) -> Figures {
    let lanes = plan.lanes;
    let stream = TcpStream::connect(server()).await.expect("the server listens");
    stream.set_nodelay(true).expect("it is a TCP stream");
    let (mut reader, writer) = stream.into_split();
    let writer = Rc::new(Mutex::new(writer));
    let mut sessions = JoinSet::new();
    let answers = Rc::new(RefCell::new(Vec::new()));
    let end = Instant::now() + plan.duration();
    for index in 0..SESSIONS as u32 {
        let (answered, mut answer) = mpsc::channel::<u32>(1);
        answers.borrow_mut().push(answered);
        let writer = writer.clone();
        sessions.spawn_local(step_until(end, async move |number| {
            let (header, actions) = request(lanes, number);
            let mut whole = BytesMut::with_capacity(4 + HEADER_BYTES + actions.len());
            whole.put_u32_le(index);
            whole.put_slice(&header.encode());
            whole.put_slice(&actions);
            writer.lock().await.write_all(&whole).await.expect("the server is there");
            assert_eq!(answer.recv().await, Some(number));
        }));
    }
    let reading = tokio::task::spawn_local(async move {
        let mut head = [0; 4 + HEADER_BYTES];
        let mut columns = Vec::new();
        while reader.read_exact(&mut head).await.is_ok() {
            let index = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
            let header = FrameHeader::decode(head[4..].try_into().expect("16 bytes")).expect("a frame");
            columns.resize(header.columns as usize, 0);
            reader.read_exact(&mut columns).await.expect("the frame is whole");
            let answered = answers.borrow()[index as usize].clone();
            answered.send(header.number).await.expect("each step waits for its answer");
        }
    });
    let measured = figures(sessions, plan).await;
    reading.abort();
    measured
}

/// A step of all lanes of one session, with actions that change from lane to lane and step to step.
fn request(lanes: usize, number: u32) -> (FrameHeader, Vec<u8>) {
    let actions: Vec<u8> = (0..lanes as u64)
        .flat_map(|lane| (split_mix64(lane << 32 | u64::from(number)) & 1).to_le_bytes())
        .collect();
    let columns = actions.len() as u32;
    (FrameHeader { kind: FrameKind::Step, flags: 0, number, columns, sidecar: 0 }, actions)
}

/// Steps one session until the time is over; how long each step took.
async fn step_until(end: Instant, mut step: impl AsyncFnMut(u32)) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 1.. {
        let sent = Instant::now();
        if sent >= end {
            break;
        }
        step(number).await;
        times.push(sent.elapsed());
    }
    times
}

async fn figures(sessions: JoinSet<Vec<Duration>>, plan: &Plan) -> Figures {
    let mut times: Vec<Duration> = sessions.join_all().await.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    Figures {
        steps_per_second: (times.len() * plan.lanes) as f64 / plan.duration().as_secs_f64(),
        p50_ms: at(0.5),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
    }
}
