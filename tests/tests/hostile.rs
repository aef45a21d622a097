//! What those who mean harm can do to a cluster of real processes.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;

use rollhouse_client::{
    Address, Cluster as Connection, ConnectOptions, OnLoss, Pool, PoolRequest, StepError, Transport,
};
use rollhouse_core::ColumnMut;
use rollhouse_engine::Reset;
use rollhouse_tests::{Cluster, Running, json_lines, succeed};
use rollhouse_wire::{Dialer, Expected, Identity, Settings, Trust};

fn connect(file: &str) -> Connection {
    let address: Address = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    Connection::connect(&address, ConnectOptions::default(), None).unwrap()
}

fn open(cluster: &Connection, transport: Transport, on_loss: OnLoss) -> Pool {
    let mut request = PoolRequest::new("CartPole-v1", 8);
    (request.transport, request.on_loss) = (Some(transport), Some(on_loss));
    let mut pool = cluster.open_pool(request).unwrap();
    pool.reset(&Reset::all()).unwrap();
    pool
}

fn step(pool: &mut Pool) -> Result<(), StepError> {
    if let ColumnMut::I64(actions) = pool.actions() {
        actions.fill(1);
    }
    pool.step().map(drop)
}

/// Why the pool cannot be stepped any more; it is stepped until then.
fn stepped_out(pool: &mut Pool) -> String {
    loop {
        match step(pool) {
            Ok(()) => {}
            Err(StepError::AllLost { reason }) => return reason,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Symptom: a trainer whose token was revoked went on stepping, over QUIC and through shared memory, its rollouts played
/// on, and when it lost its lanes it waited for its timeout instead of being told why. Cause: nobody looked at tokens
/// whose holders asked for nothing, and a coordinator that refuses to be dialled was taken for one that is away. Fix: the
/// coordinator looks, and closes the pools at the nodes; a refused dial is told at once.
#[test]
fn whose_token_is_revoked_steps_no_more_by_whatever_transport_and_others_step_on() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let (theirs, others) = (cluster.connection("trainer", &address), cluster.connection("admin", &address));
    let (trainer, admin) = (connect(&theirs), connect(&others));
    let mut remote = open(&trainer, Transport::Quic, OnLoss::Resume);
    let mut shared = open(&trainer, Transport::Shm, OnLoss::Resume);
    let mut other = open(&admin, Transport::Auto, OnLoss::Resume);
    let line = format!("rollout --connect {theirs} --env CartPole-v1 --lanes 8 --episodes 1000000000 --json");
    let rollout = Running::start(cluster.folder(), &line);
    let sessions = || admin.sessions().unwrap().sessions.len();
    while sessions() < 4 {
        step(&mut other).unwrap();
    }

    let tokens = cluster.path("coordinator");
    let listed = json_lines(&tokens, &format!("token ls --json --data {}", tokens.display()));
    let id = listed.iter().find(|token| token["role"] == "trainer").unwrap()["id"].as_str().unwrap();
    succeed(&tokens, &format!("token revoke {id} --data {}", tokens.display()));
    for pool in [&mut remote, &mut shared] {
        let reason = stepped_out(pool);
        assert!(reason.contains("the token was revoked"), "{reason}");
    }
    let done = rollout.wait();
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    while sessions() > 1 {
        step(&mut other).unwrap();
    }
    (0..100).for_each(|_| step(&mut other).unwrap());
    other.close().unwrap();
}

/// Most memory that a process had at a time, in KiB.
fn most_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Symptom: 1,520 connections of nobody in particular, at rest, took a node from 169 to 604 MB, for as long as they liked.
/// Cause: each had the bookkeeping of the 4,352 streams of an owner, 280 kB. Fix: it has that of 16 until it shows a
/// session's secret, and is ended if it does not.
#[test]
fn connections_of_strangers_cost_a_node_little_memory_and_do_not_last() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let node = cluster.node("one", &address);
    let admin = connect(&cluster.connection("admin", &address));
    let at = admin.nodes().unwrap().nodes[0].address.clone();
    let trust = Trust::File(cluster.path("ca").join("ca.pem"));
    let dialer = Dialer::new(Identity::load(trust, None).unwrap(), Settings::default(), "stranger");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // By how much the most memory that the node ever had grows while they are there; they are gone afterwards.
    let strangers = || {
        let before = most_memory(node.id());
        runtime.block_on(async {
            let mut known = Vec::new();
            while known.len() < STRANGERS {
                // One that was dropped on the way, because so many come, is dialled again.
                known.extend(dialer.dial(&at, &Expected::node("one"), None).await);
            }
            let grown = most_memory(node.id()) - before;
            for connection in known {
                connection.closed().await;
            }
            grown
        })
    };
    let grown = strangers();
    println!("{STRANGERS} strangers: {grown} KiB, {} each", grown / STRANGERS as u64);
    assert!(grown <= STRANGERS as u64 * MOST_KIB_EACH, "{grown} KiB for {STRANGERS} connections");
    let again = strangers();
    println!("as many again: {again} KiB");
    assert!(again <= grown / 4, "{again} KiB for those who came later, {grown} for the first");
    let mut pool = open(&admin, Transport::Quic, OnLoss::Resume);
    step(&mut pool).unwrap();
}

/// Connections that ask for nothing: as many as one address may begin at once, so that all of them are open together.
const STRANGERS: usize = 100;
/// Memory that each may take at the most, with a datagram of the loopback device (64 KiB) that the QUIC library keeps for
/// the next one: it was 280 KiB.
const MOST_KIB_EACH: u64 = 144;
