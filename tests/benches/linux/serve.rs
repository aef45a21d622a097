//! The engines, behind a QUIC listener and a TCP listener.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_wire::{
    Arrival, Attached, CertificateAuthority, CertificateFiles, Connection, FrameHeader, FrameKind,
    FrameLayout, HEADER_BYTES, Identity, Listener, Peer, Request, Role, Settings, Trust,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Plan, SESSIONS, server, wait_for_link};

/// Lanes of one session, and the frames that step them.
struct Session {
    engine: Engine,
    layout: FrameLayout,
}

impl Session {
    fn new(lanes: usize, seed: u64) -> Self {
        let entry = Registry::builtin().get("CartPole-v1").expect("it is built in");
        let mut engine = Engine::new(&entry, EngineConfig::new(lanes), None).expect("they can be made");
        engine.reset(&Reset::seeded(seed, lanes)).expect("they can be reset");
        Self { engine, layout: FrameLayout::of(entry.spec()) }
    }

    /// Steps with actions as they are carried; the answer, header first.
    fn step(&mut self, number: u32, actions: &[u8]) -> Bytes {
        let mut to = self.engine.actions().expect("the engine lives");
        for (to, from) in
            to.as_i64_mut().expect("Discrete is int64").iter_mut().zip(actions.as_chunks::<8>().0)
        {
            *to = i64::from_le_bytes(*from);
        }
        let places = self.layout.batch(self.engine.lanes(), false).expect("they fit a frame");
        let frame = self.engine.step().expect("random actions are valid");
        let columns = places.bytes as u32;
        let header = FrameHeader { kind: FrameKind::Batch, flags: 0, number, columns, sidecar: 0 };
        let mut answer = BytesMut::with_capacity(HEADER_BYTES + places.bytes);
        answer.put_slice(&header.encode());
        for index in 0..places.obs.len() {
            answer.put_slice(frame.obs(index).bytes());
        }
        frame.rewards().iter().for_each(|reward| answer.put_f64_le(*reward));
        for flags in [frame.terminated(), frame.truncated(), frame.reset()] {
            answer.put_slice(flags);
        }
        answer.freeze()
    }
}

/// Makes what both children need to know each other.
pub(super) fn make_identity(folder: &Path) {
    std::fs::create_dir_all(folder).expect("temporary folders can be made");
    let day = Duration::from_secs(86_400);
    let authority = CertificateAuthority::create(folder, day).expect("the folder is empty");
    let issued = authority.issue(Role::Node, "link", day).expect("the name is plain");
    issued.write(&folder.join("node.pem"), &folder.join("node.key")).expect("the folder can be written");
}

pub(super) fn run(plan: &Plan, folder: &str) {
    let lanes = plan.lanes;
    wait_for_link();
    let folder = Path::new(folder);
    let files = CertificateFiles { certificate: folder.join("node.pem"), key: folder.join("node.key") };
    let identity =
        Identity::load(Trust::File(folder.join("ca.pem")), Some(files)).expect("the parent made it");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let authenticate = Box::new(|_: &_, stranger: &_| Ok(Peer { role: Role::Node, ..Peer::anonymous(stranger) }));
        let mut listener =
            Listener::bind(server(), identity, Settings::default(), "link bench", authenticate)
                .expect("the port is free in its own namespace");
        let tcp = TcpListener::bind(server()).await.expect("the port is free in its own namespace");
        println!("ready");
        loop {
            tokio::select! {
                arrival = listener.accept() => match arrival.expect("it is not closed") {
                    Arrival::Connected(connection) => _ = tokio::task::spawn_local(serve_quic(connection, lanes)),
                    Arrival::TurnedAway(away) => panic!("{away:?}"),
                },
                accepted = tcp.accept() => {
                    let (stream, _) = accepted.expect("it can be accepted");
                    tokio::task::spawn_local(serve_tcp(stream, lanes));
                }
            }
        }
    });
}

async fn serve_quic(connection: Connection, lanes: usize) {
    let mut requests = connection.requests();
    while let Ok((request, responder)) = requests.next().await {
        let Request::Attach(attach) = request else { panic!("{request:?}") };
        let mut session = Session::new(lanes, u64::from(attach.index));
        tokio::task::spawn_local(async move {
            let attached = Attached {
                lanes: lanes as u32,
                last: 0,
                logs: false,
                as_done: false,
                plays: false,
                paced: false,
            };
            let (mut reader, mut writer) =
                responder.accept_frames(attached, 1 << 20).await.expect("the client is there");
            while let Ok(Some(header)) = reader.read().await {
                writer.put_encoded(session.step(header.number, reader.columns().bytes()));
                writer.flush().await.expect("the client is there");
            }
        });
    }
}

/// Frames of all sessions, each behind its session's number in four bytes.
async fn serve_tcp(mut stream: TcpStream, lanes: usize) {
    stream.set_nodelay(true).expect("it is a TCP stream");
    let mut sessions: Vec<Session> = (0..SESSIONS as u64).map(|seed| Session::new(lanes, seed)).collect();
    let mut head = [0; 4 + HEADER_BYTES];
    let mut actions = vec![0; lanes * 8];
    while stream.read_exact(&mut head).await.is_ok() {
        stream.read_exact(&mut actions).await.expect("the frame is whole");
        let index = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let header = FrameHeader::decode(head[4..].try_into().expect("16 bytes")).expect("a frame");
        let answer = sessions[index as usize].step(header.number, &actions);
        let mut whole = BytesMut::with_capacity(4 + answer.len());
        whole.put_u32_le(index);
        whole.put_slice(&answer);
        stream.write_all(&whole).await.expect("the client is there");
    }
}

/// What the other child knows: the authority.
pub(super) fn client_identity(folder: &Path) -> Arc<Identity> {
    Identity::load(Trust::File(folder.join("ca.pem")), None).expect("the parent made it")
}
