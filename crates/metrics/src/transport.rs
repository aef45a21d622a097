//! Figures of QUIC.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_wire::Role;

use crate::family::{Family, Kind, Page};

/// What an endpoint has done, and how its connections are now.
#[derive(Debug, Clone, Default)]
pub struct TransportFigures {
    /// Handshakes that were completed.
    pub accepted: u64,
    /// Handshakes that were not, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Requests that were refused, by code.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Bytes of the socket's receive buffer that the system granted.
    pub receive_buffer: u64,
    /// Bytes of its send buffer.
    pub send_buffer: u64,
    /// Open connections by the role of the peer.
    pub links: BTreeMap<Role, LinkFigures>,
}

/// The open connections to peers of one role, taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// How many.
    pub connections: u64,
    /// The longest round trip.
    pub rtt: Duration,
    /// The smallest datagram, in bytes.
    pub mtu: u64,
    /// The smallest congestion window, in bytes.
    pub congestion_window: u64,
    /// Packets sent over them, and over those that are closed.
    pub sent_packets: u64,
    /// Of those, the ones that were lost.
    pub lost_packets: u64,
}

impl TransportFigures {
    /// Every metric of an endpoint.
    pub const FAMILIES: &'static [Family] =
        &[ACCEPTED, REFUSED, REFUSALS, CONNECTIONS, RTT, MTU, WINDOW, SENT, LOST, SOCKET_BUFFER];

    /// Puts the figures on a page.
    pub fn put(&self, page: &mut Page) {
        page.value(&ACCEPTED, self.accepted as f64);
        for (reason, &count) in &self.refused {
            page.labelled(&REFUSED, &[reason], count as f64);
        }
        for (code, &count) in &self.refusals {
            page.labelled(&REFUSALS, &[code], count as f64);
        }
        for (role, link) in &self.links {
            let peer = [role.word()];
            page.labelled(&CONNECTIONS, &peer, link.connections as f64);
            page.labelled(&RTT, &peer, link.rtt.as_secs_f64());
            page.labelled(&MTU, &peer, link.mtu as f64);
            page.labelled(&WINDOW, &peer, link.congestion_window as f64);
            page.labelled(&SENT, &peer, link.sent_packets as f64);
            page.labelled(&LOST, &peer, link.lost_packets as f64);
        }
        for (direction, bytes) in [("receive", self.receive_buffer), ("send", self.send_buffer)] {
            page.labelled(&SOCKET_BUFFER, &[direction], bytes as f64);
        }
    }
}

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, help, kind, labels }
}

const ACCEPTED: Family =
    family("rollhouse_quic_handshakes_total", Kind::Counter, &[], "QUIC handshakes that were completed.");
const REFUSED: Family = family(
    "rollhouse_quic_handshakes_refused_total",
    Kind::Counter,
    &["reason"],
    "QUIC handshakes that were not completed, by reason.",
);
const REFUSALS: Family = family(
    "rollhouse_refusals_total",
    Kind::Counter,
    &["code"],
    "Requests that were refused, by the refusal's code.",
);
const CONNECTIONS: Family = family(
    "rollhouse_quic_connections",
    Kind::Gauge,
    &["peer"],
    "Open QUIC connections, by the role of the peer.",
);
const RTT: Family = family(
    "rollhouse_quic_rtt_seconds",
    Kind::Gauge,
    &["peer"],
    "Longest smoothed round trip of the open connections.",
);
const MTU: Family = family(
    "rollhouse_quic_datagram_bytes",
    Kind::Gauge,
    &["peer"],
    "Smallest of the datagram sizes that the open connections have settled at.",
);
const WINDOW: Family = family(
    "rollhouse_quic_congestion_window_bytes",
    Kind::Gauge,
    &["peer"],
    "Smallest congestion window of the open connections.",
);
const SENT: Family =
    family("rollhouse_quic_packets_sent_total", Kind::Counter, &["peer"], "QUIC packets sent.");
const LOST: Family = family(
    "rollhouse_quic_packets_lost_total",
    Kind::Counter,
    &["peer"],
    "QUIC packets sent and taken for lost.",
);
const SOCKET_BUFFER: Family = family(
    "rollhouse_quic_socket_buffer_bytes",
    Kind::Gauge,
    &["direction"],
    "Socket buffer that the system granted.",
);
