//! What a cluster costs its coordinator: `cargo bench -p rollhouse-coordinator`.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use divan::{Bencher, black_box};
use rollhouse_coordinator::{Cluster, Event, LinkId, Ticket};
use rollhouse_core::RunId;
use rollhouse_wire::{
    Changes, Heartbeat, Incarnation, NodeLoad, PoolOpened, PoolStatus, Register, Request, Role, Secret,
    SeenTerm, SessionCounts, SessionId, SessionReport, control, pool_id_of,
};

#[path = "../tests/serving/stage.rs"]
mod stage;

fn main() {
    divan::main();
}

const NODES: u64 = 1000;
const LANES: u32 = 100;

/// A session of half a node's lanes.
fn report(node: u64, index: u32, steps: u64) -> SessionReport {
    let owner = format!("trainer-{}", node % 50);
    SessionReport {
        session: SessionId { pool: pool_id_of(&owner, RunId::from_u128(u128::from(node + 1) << 32)), index },
        incarnation: Incarnation { term: 1, counter: node * 2 + u64::from(index) + 1 },
        owner,
        env: "CartPole-v1".into(),
        first_lane: index * LANES / 2,
        lanes: LANES / 2,
        pool_lanes: LANES,
        replaces: false,
        launching: false,
        attached: Some(true),
        transport: Some("quic".to_owned()),
        done: SessionCounts {
            steps,
            episodes: steps / 20,
            return_sum: steps as f64,
            ..SessionCounts::default()
        },
        replay: None,
        plays: None,
    }
}

fn register(node: u64) -> Register {
    Register {
        node: format!("node-{node:04}"),
        boot: node,
        address: format!("10.0.{}.{}:7610", node / 256, node % 256),
        attach: Some("/var/lib/rollhouse/attach.sock".to_owned()),
        capacity: LANES,
        threads: 2,
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        envs: BTreeMap::from([("CartPole-v1".to_owned(), 1)]),
        kinds: Vec::new(),
        budget: None,
        term: 1,
        seen: None,
        program: "bench".to_owned(),
    }
}

/// A cluster of 1,000 nodes and 100,000 lanes, all in use, and heartbeats of every node as bytes.
fn cluster() -> (Cluster, Vec<Vec<u8>>) {
    // The sessions are of the term before: they are taken over as after a restart.
    let mut cluster =
        Cluster::new(SeenTerm { term: 2, boot: 1 }, None, Box::new(|| Secret::from_bytes([7; 16])));
    let mut beats = Vec::new();
    for node in 0..NODES {
        let register = Box::new(register(node));
        let name = register.node.clone();
        let event = Event::Register { link: LinkId(node), ticket: Ticket(node), node: name, register };
        cluster.handle(Duration::ZERO, event);
        let heartbeat = Heartbeat {
            number: 1,
            load: NodeLoad { lanes: LANES, ..NodeLoad::default() },
            changes: Changes {
                since: 0,
                through: 1,
                sessions: (0..2).map(|index| report(node, index, 1 << 40)).collect(),
                more: false,
            },
            ended: Vec::new(),
            unfit: None,
            draining: false,
            measured: BTreeMap::new(),
            connecting: Vec::new(),
            standings: Vec::new(),
        };
        let mut bytes = Vec::new();
        control::encode(&Request::Heartbeat(heartbeat), &mut bytes).expect("a heartbeat fits");
        beats.push(bytes);
    }
    (cluster, beats)
}

/// One second of a cluster of 1,000 nodes and 100,000 lanes: a heartbeat of each, decoded, taken in and answered,
/// and four ticks with the status that is published. Divided by a second it is a share of one core.
#[divan::bench(sample_count = 100, sample_size = 1)]
fn a_second_of_heartbeats(bencher: Bencher<'_, '_>) {
    let (mut cluster, beats) = cluster();
    let mut second = 0;
    bencher.bench_local(|| {
        second += 1;
        let now = Duration::from_secs(second);
        let mut answers = 0;
        for (node, bytes) in (0..).zip(&beats) {
            let request = control::decode::<Request>(&bytes[4..]).expect("it was just encoded");
            let Request::Heartbeat(mut heartbeat) = request else { unreachable!("it was a heartbeat") };
            heartbeat.number = second;
            (heartbeat.changes.since, heartbeat.changes.through) = (second - 1, second);
            let (link, ticket) = (LinkId(node), Ticket(second * NODES + node));
            let event = Event::Heartbeat { link, ticket, heartbeat: Box::new(heartbeat) };
            answers += black_box(cluster.handle(now, event)).len();
        }
        for _ in 0..4 {
            cluster.handle(now, Event::Tick);
            black_box(cluster.status(now, "bench", rollhouse_wire::StoreStatus::default()));
        }
        assert_eq!(answers as u64, NODES);
    });
}

/// A pool of 4,096 lanes on four nodes opens over loopback, and closes.
#[divan::bench(sample_count = 100, sample_size = 1)]
fn a_pool_of_4096_lanes_opens_and_closes(bencher: Bencher<'_, '_>) {
    let stage = stage::Stage::new();
    let coordinator = stage.coordinator();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_nodes, trainer) = runtime.block_on(async {
        let mut nodes = Vec::new();
        for name in ["node-a", "node-b", "node-c", "node-d"] {
            let node = stage.node(coordinator.address(), name).await;
            node.register(1024).await.expect("it is taken in");
            nodes.push(node);
        }
        (nodes, stage.holder(coordinator.address(), Role::Trainer).await)
    });
    bencher.bench_local(|| {
        runtime.block_on(async {
            let request = trainer.pool(4096);
            let close = rollhouse_wire::ClosePool { pool: request.pool };
            let opened: PoolOpened = trainer.ask(request).await.expect("there is room");
            assert_eq!(opened.sessions.len(), 4);
            let _closed: PoolStatus = trainer.ask(close).await.expect("it is open");
        });
    });
}
