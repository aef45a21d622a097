//! Connecting to clusters that are there no longer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::UdpSocket;
use std::time::Duration;

use rollhouse_client::{Address, Cluster, ConnectError, ConnectOptions};
use rollhouse_wire::DialError;

/// Symptom: who connected to a cluster that had ended waited for a minute, though its host said each time that nobody
/// listens there.
#[test]
fn a_closed_port_ends_connecting_however_long_it_may_take() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!("rollhouse://127.0.0.1:{port}?token=rh_0_0&ca=sha256:{}", "0".repeat(64));
    let address: Address = text.parse().unwrap();
    let for_ever =
        ConnectOptions { connect_timeout: Duration::from_secs(1 << 30), ..ConnectOptions::default() };
    let error = Cluster::connect(&address, for_ever, None).unwrap_err();
    assert!(matches!(error, ConnectError::Dial(DialError::PortClosed { .. })), "{error}");
}
