//! Figures of QUIC.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollhouse_wire::{ArrivalCounts, CallHistogram, CallTimes, Effective, LinkFigures, Role, TimedCall};

use crate::exemplar::Exemplar;
use crate::family::{Family, Histogram, Kind, Page};

/// Figures of a QUIC endpoint: totals since its start, and its present connections.
#[derive(Debug, Clone, Default)]
pub struct TransportSample {
    /// Numbers of connection attempts by their result; `None` for a process that only dials.
    pub arrivals: Option<ArrivalCounts>,
    /// Socket settings that the system granted; `None` if they are not known.
    pub effective: Option<Effective>,
    /// Number of requests that were refused, by code and the role of the peer.
    pub refusals: BTreeMap<(&'static str, Role), u64>,
    /// Times of requests, by the request's word.
    pub calls: BTreeMap<&'static str, CallHistogram>,
    /// Connections by the role of the peer.
    pub links: BTreeMap<Role, Links>,
    /// Time at which the endpoint's certificate, or one that links it to the authority, expires, in seconds since 1970.
    pub certificate_expires: Option<i64>,
}

/// The connections to peers of one role, taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Links {
    /// Number of open connections.
    connections: u64,
    /// Longest round trip of those connections.
    round_trip: Duration,
    /// Smallest datagram size of those connections, in bytes.
    datagram: u16,
    /// Smallest congestion window of those connections, in bytes.
    window: u64,
    sent_packets: u64,
    lost_packets: u64,
    black_holes: u64,
}

impl Links {
    /// Adds a connection that is open.
    pub fn open(&mut self, link: &LinkFigures) {
        let first = self.connections == 0;
        self.connections += 1;
        self.round_trip = self.round_trip.max(link.round_trip);
        self.datagram = if first { link.datagram } else { self.datagram.min(link.datagram) };
        self.window = if first { link.window } else { self.window.min(link.window) };
        self.closed(link);
    }

    /// Adds a connection that is closed: what it has sent stays counted.
    pub fn closed(&mut self, link: &LinkFigures) {
        self.sent_packets += link.sent_packets;
        self.lost_packets += link.lost_packets;
        self.black_holes += link.black_holes;
    }
}

impl TransportSample {
    /// Metrics of an endpoint.
    pub const FAMILIES: &'static [Family] = &[
        ACCEPTED,
        REFUSED,
        REFUSALS,
        CALLS,
        CONNECTIONS,
        RTT,
        DATAGRAM,
        WINDOW,
        SENT,
        LOST,
        BLACK_HOLES,
        SOCKET_BUFFER,
        EXPIRES,
    ];

    /// Puts the figures on a page.
    pub fn put(&self, page: &mut Page) {
        if let Some(arrivals) = &self.arrivals {
            page.value(&ACCEPTED, arrivals.connected as f64);
            page.labelled(&REFUSED, &["full"], arrivals.full as f64);
            page.labelled(&REFUSED, &["too_many_a_second"], arrivals.dropped as f64);
            for (reason, &count) in &arrivals.turned_away {
                page.labelled(&REFUSED, &[reason], count as f64);
            }
        }
        for ((code, role), &count) in &self.refusals {
            page.labelled(&REFUSALS, &[code, role.word()], count as f64);
        }
        for (request, times) in &self.calls {
            page.histogram(&CALLS, &[request], &histogram(times));
        }
        for (role, link) in &self.links {
            let peer = [role.word()];
            page.labelled(&CONNECTIONS, &peer, link.connections as f64);
            if link.connections > 0 {
                page.labelled(&RTT, &peer, link.round_trip.as_secs_f64());
                page.labelled(&DATAGRAM, &peer, f64::from(link.datagram));
                page.labelled(&WINDOW, &peer, link.window as f64);
            }
            page.labelled(&SENT, &peer, link.sent_packets as f64);
            page.labelled(&LOST, &peer, link.lost_packets as f64);
            page.labelled(&BLACK_HOLES, &peer, link.black_holes as f64);
        }
        if let Some(expires) = self.certificate_expires {
            page.value(&EXPIRES, expires as f64);
        }
        if let Some(effective) = &self.effective {
            page.labelled(&SOCKET_BUFFER, &["receive"], effective.receive_buffer as f64);
            page.labelled(&SOCKET_BUFFER, &["send"], effective.send_buffer as f64);
        }
    }
}

fn histogram(times: &CallHistogram) -> Histogram {
    let since_1970 = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let exemplar = |timed: TimedCall| Exemplar {
        trace_id: timed.call.to_string(),
        value: timed.took.as_secs_f64(),
        at: since_1970(timed.at),
    };
    Histogram {
        bounds: CallTimes::BOUNDS.to_vec(),
        counts: times.counts.to_vec(),
        sum: times.sum.as_secs_f64(),
        exemplars: times.newest.iter().map(|newest| newest.map(exemplar)).collect(),
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
    &["code", "peer"],
    "Requests that were refused, by the refusal's code, and connections closed for what came on them, by reason.",
);
const CALLS: Family = family(
    "rollhouse_call_seconds",
    Kind::Histogram,
    &["request"],
    "Time from a request other than a step to the end of its answer, by what was asked.",
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
const DATAGRAM: Family = family(
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
const BLACK_HOLES: Family = family(
    "rollhouse_quic_black_holes_total",
    Kind::Counter,
    &["peer"],
    "Times that large datagrams stopped getting through on a path.",
);
const EXPIRES: Family = family(
    "rollhouse_certificate_expiry_time_seconds",
    Kind::Gauge,
    &[],
    "When the process' certificate expires, in seconds since the start of 1970 (UTC).",
);
const SOCKET_BUFFER: Family = family(
    "rollhouse_quic_socket_buffer_bytes",
    Kind::Gauge,
    &["direction"],
    "Socket buffer that the system granted.",
);
