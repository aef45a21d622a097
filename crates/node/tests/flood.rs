//! A flood of strangers' first packets, while a session of the node is being stepped.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::cluster;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cluster::{Authority, Coordinator, Owner, session};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, Endpoint, EndpointConfig};
use rollhouse_node::ClusterNode;
use rollhouse_wire::{ALPN, FrameKind, Settings};
use rustls::RootCertStore;

/// First packets that are sent: two seconds of ten thousand a second.
const PACKETS: usize = 20_000;
/// As many of them are different strangers' at a time. One that was turned away is a new stranger when it comes again.
const STRANGERS: usize = 1_000;
/// Addresses they come from.
const SOCKETS: usize = 8;

/// The first packet of a client, valid in every way, which is the most work a single packet can cause.
fn first_packet(config: &ClientConfig, to: SocketAddr) -> Vec<u8> {
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
    let now = Instant::now();
    let (_, mut connection) = endpoint.connect(now, config.clone(), to, "rollhouse").unwrap();
    let mut packet = Vec::new();
    let sent = connection.poll_transmit(now, 1, &mut packet).unwrap();
    packet.truncate(sent.size);
    packet
}

fn strangers(to: SocketAddr) -> Vec<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    (0..STRANGERS).map(|_| first_packet(&config, to)).collect()
}

#[test]
fn twenty_thousand_strangers_leave_a_session_stepping_and_begin_no_more_handshakes_than_allowed() {
    let authority = Authority::new();
    let coordinator = Coordinator::start(&authority);
    let node = ClusterNode::start(authority.node("n1", &coordinator)).unwrap();
    coordinator.registered();
    let open = session(1, "CartPole-v1", 64);
    coordinator.open(&open).unwrap();
    let owner = Owner::dial(&authority, &node);
    let mut stepper = owner.attach(&open);
    stepper.reset(1);
    let packets = strangers(node.address());
    let (began, over) = (Instant::now(), AtomicBool::new(false));
    let mut number = 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
            let sockets: Vec<_> = (0..SOCKETS).map(|_| socket()).collect();
            for (index, packet) in packets.iter().cycle().take(PACKETS).enumerate() {
                let sent = sockets[index % SOCKETS].send_to(packet, node.address()).unwrap();
                assert_eq!(sent, packet.len());
            }
            over.store(true, Ordering::Relaxed);
        });
        // Each step is answered, with its number, for as long as they come and a while longer.
        while !over.load(Ordering::Relaxed) || number < 500 {
            number += 1;
            let answer = stepper.step(number, &[i64::from(number % 2); 64]);
            assert_eq!((answer.header.kind, answer.header.number), (FrameKind::Batch, number));
        }
    });
    // Counted within the next second; what the socket's buffer did not hold was dropped by the kernel.
    let seen = std::iter::repeat_with(|| {
        std::thread::yield_now();
        let arrivals = node.arrivals();
        let all = arrivals.begun + arrivals.proof_asked + arrivals.full + arrivals.dropped;
        (all, arrivals)
    });
    let (all, arrivals) = seen.into_iter().find(|(all, _)| *all > 1_000).unwrap();
    assert!(all <= PACKETS as u64 + 1, "{arrivals:?}");
    let Settings { handshakes_per_second, .. } = Settings::default();
    let allowed = f64::from(handshakes_per_second) * (1.0 + began.elapsed().as_secs_f64());
    assert!((arrivals.begun as f64) <= allowed + 1.0, "{arrivals:?}, {allowed} allowed");
    assert_eq!(arrivals.connected, 1, "the owner alone: {arrivals:?}");
    assert!(arrivals.proof_asked + arrivals.full + arrivals.dropped > 0, "{arrivals:?}");
    stepper.step(number + 1, &[0; 64]);
}
