//! What a peer notices of an endpoint that was killed and listens again.
#![allow(clippy::unwrap_used, reason = "helpers of tests outside of test functions")]

use crate::common;

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use common::{Cluster, dialer, localhost};
use rollhouse_wire::{
    Connection, ConnectionLost, DialError, Expected, Listener, Peer, ResetKey, Role, Settings, StatusRequest,
};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn bind(cluster: &Cluster, address: SocketAddr, settings: Settings) -> Listener {
    let identity = cluster.identity(Role::Node, "n1");
    let admit = |_: &_, stranger: &_| Ok(Peer::anonymous(stranger));
    Listener::bind(address, identity, settings, "node/test", Box::new(admit)).unwrap()
}

/// A connection to a node that was killed since, and the node as it listens again.
fn restarted(cluster: &Cluster, settings: Settings) -> (Runtime, Connection, Runtime, Listener) {
    let (ready, bound) = sync_channel(1);
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let client = runtime();
    let (address, connection) = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let node = runtime();
            let mut listener = {
                let _inside = node.enter();
                bind(cluster, localhost(), settings)
            };
            ready.send(listener.effective().address).unwrap();
            let mut known = Vec::new();
            node.block_on(async {
                let serve = async {
                    while let Some(arrival) = listener.accept().await {
                        known.push(arrival);
                    }
                };
                tokio::select! { () = serve => {}, _ = killed => {} }
            });
            // What sends is gone before anything could say good-bye.
            drop(node);
        });
        let address = bound.recv().unwrap();
        let dial = dialer(cluster.nobody());
        let expected = Expected::node("n1");
        let connection = client.block_on(dial.dial(&address.to_string(), &expected, None)).unwrap();
        kill.send(()).unwrap();
        first.join().unwrap();
        (address, connection)
    });
    let node = runtime();
    let listener = {
        let _inside = node.enter();
        bind(cluster, address, settings)
    };
    (client, connection, node, listener)
}

/// How a peer that asks for something learns that its connection is no more.
fn lost(cluster: &Cluster, settings: Settings) -> ConnectionLost {
    let (client, connection, node, mut listener) = restarted(cluster, settings);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            node.block_on(async {
                tokio::select! { _ = listener.accept() => {}, _ = ended => {} }
            });
        });
        let asked = connection.call(StatusRequest {}, Duration::from_secs(60));
        client.block_on(asked).unwrap_err();
        let lost = client.block_on(connection.closed());
        end.send(()).unwrap();
        serving.join().unwrap();
        lost
    })
}

#[test]
fn a_node_that_listens_again_with_its_key_tells_its_earlier_peers_that_it_has_forgotten_them() {
    let cluster = Cluster::new();
    let key = ResetKey::kept_in(&cluster.path().join("reset.key")).unwrap();
    let settings = Settings { reset_key: Some(key), ..Settings::default() };
    let lost = lost(&cluster, settings);
    assert!(matches!(lost, ConnectionLost::Forgotten), "{lost}");
}

/// Symptom: who had asked something of a process that was killed waited for 15 s, if it was not started again. Cause: its
/// host's word that the port is closed reaches no socket of QUIC. Fix: a socket of its own asks.
#[test]
fn who_waits_for_a_process_that_has_ended_learns_it_from_its_host() {
    let cluster = Cluster::new();
    let (client, connection, node, listener) = restarted(&cluster, Settings::default());
    drop((node, listener));
    let asked = connection.call(StatusRequest {}, Duration::from_secs(60));
    client.block_on(asked).unwrap_err();
    assert_eq!(client.block_on(connection.closed()), ConnectionLost::PortClosed);
    assert_eq!(connection.lost(), Some(ConnectionLost::PortClosed));
}

/// Symptom: dialling a process that was not there took 5 s. Cause and fix as above.
#[test]
fn who_dials_a_port_that_nobody_has_learns_it_from_its_host() {
    let cluster = Cluster::new();
    let socket = std::net::UdpSocket::bind(localhost()).unwrap();
    let address = socket.local_addr().unwrap();
    let dialer = dialer(cluster.nobody());
    let dial = || runtime().block_on(dialer.dial_address(address, &Expected::node("n1"), None)).unwrap_err();
    drop(socket);
    assert!(matches!(dial(), DialError::PortClosed { address: told } if told == address));
}
