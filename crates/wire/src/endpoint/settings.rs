//! Settings of the QUIC library and of the socket, as requested and as in effect.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{AckFrequencyConfig, EndpointConfig, MtuDiscoveryConfig, TransportConfig, VarInt};
use rollhouse_core::SharedBound;
use rustix::net::sockopt;

use super::congestion::SteadyCubic;
use super::reset_key::ResetKey;
use crate::limits::{MAX_STRANGER_BYTES, MAX_STRANGER_STREAMS};

/// The kind of network between two peers, which decides how large datagrams may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// The loopback device, or a network whose devices all carry jumbo frames. Datagrams grow up to
    /// [`LARGEST_DATAGRAM`] as probes get through; segmentation offload is off, because ten segments of more
    /// than 6,550 bytes do not fit into one call and would be lost without a word.
    Jumbo,
    /// Any other path. Datagrams stay within 1,452 bytes; segmentation offload is on, which makes sending there four
    /// times as fast.
    Ethernet,
}

impl Path {
    /// Returns the path to a peer: jumbo if the peer is on this host, or if the operator says that the network is.
    pub fn to(peer: IpAddr, ours: Option<IpAddr>, jumbo: bool) -> Self {
        let here = peer.is_loopback() || ours.is_some_and(|ours| ours.to_canonical() == peer.to_canonical());
        if jumbo || here { Self::Jumbo } else { Self::Ethernet }
    }

    /// Returns the word in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Jumbo => "jumbo",
            Self::Ethernet => "ethernet",
        }
    }
}

/// The settings that an endpoint asks for. The defaults are right unless a measurement says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether every path is [`Path::Jumbo`]. Set it only if every device between all peers carries frames of 9,000
    /// bytes or more and the hosts' devices report it; else probing wastes a few packets per connection and offload is
    /// lost. Default false: only peers on the same host are jumbo.
    pub jumbo: bool,
    /// Bytes asked of the kernel for received and for sent datagrams each (`SO_RCVBUF`, `SO_SNDBUF`). The kernel caps
    /// it at `net.core.rmem_max` and `wmem_max`; [`Effective`] has what it gave. Default 8 MiB: below 4 MiB a burst of
    /// one window loses packets on every path. Worst case of memory: this, once per direction and endpoint.
    pub socket_buffer: usize,
    /// Bytes a peer may send on one stream before we have read them. Default 16 MiB; the peer's value limits what we
    /// send. Worst case of memory: see `receive_window`.
    pub stream_window: u32,
    /// Bytes a peer that is known may send on all streams together before we have read them: the bound of what one
    /// connection can make us hold. Default 64 MiB. A peer that is not known has 64 KiB; one that shows a listener a token,
    /// or a certificate other than a node's, only asks, and has 256 KiB.
    pub receive_window: u32,
    /// Bytes held per connection until they are acknowledged, of a peer that is known. Default 32 MiB, two stream windows:
    /// one slow stream does not stop the others. A peer that is not known has 64 KiB.
    pub send_window: u64,
    /// Time that a peer may take for 256 KiB of an answer that it asked for; then the answer's stream is given up. Default
    /// 30 s: a link of 70 kbit/s is quick enough.
    pub answer_stall: Duration,
    /// Bytes that may always be on the way to a peer, however much was lost; see `congestion.rs`. Default 64 KiB, the
    /// answers of some thirty sessions of 64 lanes. On a path that cannot carry that much per round trip it makes
    /// queues longer.
    pub least_window: u64,
    /// Interval at which something is sent on a silent connection. Default 5 s; must be below half of `idle`.
    pub keep_alive: Duration,
    /// Time after which a silent peer is given up. The smaller of both sides' values holds. Default 15 s; must be below
    /// the lease (30 s), so that a lost connection can be made anew within it.
    pub idle: Duration,
    /// Time that a stranger may take from its first packet to the end of `Hello`, if nobody else needs its place.
    /// Default 5 s.
    pub handshake: Duration,
    /// Number of handshakes under way at a time; a quarter of them from one address. Further ones take the place of the
    /// oldest. Default 256; each holds about 50 KB.
    pub max_handshakes: usize,
    /// Number of handshakes begun per second, in the long run, half of them from one address. Those above it are
    /// dropped unanswered, and the peer's own retransmission tries again a second later. Default 500: with 200 to 300
    /// µs each they take at most an eighth of the thread that also serves live sessions.
    pub handshakes_per_second: u32,
    /// Number of connections open at a time, those that begin and close among them; further ones are refused. Default
    /// 8,192.
    pub max_connections: usize,
    /// The bound of connections of peers that are known, which owners share. Default [`SharedBound::CONNECTIONS`]: below
    /// `max_connections`, so that whoever comes within its share finds room for its handshake.
    pub shares: SharedBound,
    /// The listening side's secret by which peers learn at once that it was restarted. Default none: a new one is
    /// drawn at each start, and peers wait for `idle`.
    pub reset_key: Option<ResetKey>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            jumbo: false,
            socket_buffer: 8 << 20,
            stream_window: 16 << 20,
            receive_window: 64 << 20,
            send_window: 32 << 20,
            answer_stall: Duration::from_secs(30),
            least_window: 64 << 10,
            keep_alive: Duration::from_secs(5),
            idle: Duration::from_secs(15),
            handshake: Duration::from_secs(5),
            max_handshakes: 256,
            handshakes_per_second: 500,
            max_connections: 8192,
            shares: SharedBound::CONNECTIONS,
            reset_key: None,
        }
    }
}

impl Settings {
    pub(crate) const fn of_known(&self) -> KnownBounds {
        let Self { receive_window, send_window, answer_stall, .. } = *self;
        KnownBounds { receive_window, send_window, answer_stall }
    }

    /// Returns the settings of a connection over `path` at its beginning: with a stranger's bounds, which the
    /// connection widens once its peer is known.
    pub(crate) fn transport(&self, path: Path) -> Arc<TransportConfig> {
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams((MAX_STRANGER_STREAMS as u32).into())
            .max_concurrent_uni_streams(0u32.into())
            .datagram_receive_buffer_size(None)
            .stream_receive_window(self.stream_window.into())
            .receive_window(STRANGER_WINDOW.min(self.receive_window).into())
            .send_window(u64::from(STRANGER_WINDOW).min(self.send_window))
            .keep_alive_interval(Some(self.keep_alive))
            // Cubic with the default first datagram size: one above the congestion window would never be sent.
            .congestion_controller_factory(Arc::new(SteadyCubic::new(self.least_window)))
            .ack_frequency_config(Some(ack_frequency()));
        let idle = VarInt::try_from(self.idle.as_millis() as u64).unwrap_or(VarInt::MAX);
        transport.max_idle_timeout(Some(idle.into()));
        if path == Path::Jumbo {
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(LARGEST_DATAGRAM);
            transport.mtu_discovery_config(Some(discovery)).enable_segmentation_offload(false);
        }
        Arc::new(transport)
    }

    /// Binds a socket and asks for its buffers.
    pub(crate) fn socket(&self, address: SocketAddr) -> std::io::Result<(UdpSocket, Effective)> {
        let socket = UdpSocket::bind(address)?;
        // Refusals show in what is read back: the kernel caps silently.
        let _asked = sockopt::set_socket_recv_buffer_size(&socket, self.socket_buffer);
        let _asked = sockopt::set_socket_send_buffer_size(&socket, self.socket_buffer);
        let effective = Effective {
            address: socket.local_addr()?,
            settings: *self,
            // The kernel doubles what was asked to make room for its own bookkeeping.
            receive_buffer: sockopt::socket_recv_buffer_size(&socket)? / 2,
            send_buffer: sockopt::socket_send_buffer_size(&socket)? / 2,
        };
        Ok((socket, effective))
    }
}

/// The bounds of a connection whose peer is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownBounds {
    /// Bytes that the peer may have on the way.
    pub(crate) receive_window: u32,
    /// Bytes that are held for the peer until it acknowledges them.
    pub(crate) send_window: u64,
    /// Time that the peer may take for a piece of an answer.
    pub(crate) answer_stall: Duration,
}

/// Asks the peer to acknowledge at once. The default is to wait 25 ms for a second packet to acknowledge together with
/// the first: with little on the way the sender would take that much longer to see that one is missing.
fn ack_frequency() -> AckFrequencyConfig {
    let mut frequency = AckFrequencyConfig::default();
    frequency.max_ack_delay(Some(Duration::from_millis(2)));
    frequency
}

/// Returns the endpoint's side of the datagram size: what it is ready to receive, whatever the path.
pub(crate) fn endpoint_config(reset_key: Option<&ResetKey>) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    if let Some(key) = reset_key {
        key.apply(&mut config);
    }
    // It cannot fail: the value lies between QUIC's bounds of 1,200 and 65,527.
    let _set = config.max_udp_payload_size(LARGEST_DATAGRAM);
    config
}

/// The settings in effect, for the log at start and for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effective {
    /// The bound address.
    pub address: SocketAddr,
    /// The settings that were asked for.
    pub settings: Settings,
    /// Bytes the kernel gives to received datagrams.
    pub receive_buffer: usize,
    /// Bytes the kernel gives to datagrams to send.
    pub send_buffer: usize,
}

/// Prints one line for the log.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = &self.settings;
        write!(
            f,
            "quic on {}: datagrams up to {LARGEST_DATAGRAM} bytes without offload to {}, up to 1452 with it to \
             others; socket buffers {} and {} bytes of {} asked; windows {} per stream, {} received, {} sent; \
             cubic, never under {} KiB; keep-alive {} s, idle {} s; {} handshakes at a time, {} a second",
            self.address,
            if asked.jumbo { "all peers" } else { "peers on this host" },
            self.receive_buffer,
            self.send_buffer,
            asked.socket_buffer,
            asked.stream_window,
            asked.receive_window,
            asked.send_window,
            asked.least_window / 1024,
            asked.keep_alive.as_secs_f64(),
            asked.idle.as_secs_f64(),
            asked.max_handshakes,
            asked.handshakes_per_second,
        )
    }
}

/// Bytes that an unknown peer may send before we have read them: a message on each of its streams.
pub(super) const STRANGER_WINDOW: u32 = (MAX_STRANGER_BYTES * MAX_STRANGER_STREAMS) as u32;
/// Bytes of the largest datagram that QUIC allows.
pub const LARGEST_DATAGRAM: u16 = 65_527;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_on_this_host_get_large_datagrams_by_whatever_address() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(Path::to(ip("127.0.0.1"), None, false), Path::Jumbo);
        assert_eq!(Path::to(ip("::1"), None, false), Path::Jumbo);
        assert_eq!(Path::to(ip("10.0.0.7"), Some(ip("10.0.0.7")), false), Path::Jumbo);
        assert_eq!(Path::to(ip("::ffff:10.0.0.7"), Some(ip("10.0.0.7")), false), Path::Jumbo);
        assert_eq!(Path::to(ip("10.0.0.8"), Some(ip("10.0.0.7")), false), Path::Ethernet);
        assert_eq!(Path::to(ip("10.0.0.8"), None, true), Path::Jumbo);
    }

    #[test]
    fn a_connection_is_believed_in_for_less_than_a_lease_and_longer_than_two_keep_alives() {
        let settings = Settings::default();
        assert!(settings.keep_alive * 2 < settings.idle);
        assert!(settings.idle < Duration::from_secs(30));
    }

    #[test]
    fn known_peers_leave_room_for_handshakes_and_for_connections_that_close() {
        let settings = Settings::default();
        let begins = settings.max_handshakes + settings.handshakes_per_second as usize;
        assert!(settings.shares.limit as usize + begins < settings.max_connections);
    }

    #[test]
    fn the_socket_says_what_the_kernel_gave() {
        let (socket, effective) = Settings::default().socket("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(effective.address, socket.local_addr().unwrap());
        assert!(effective.receive_buffer > 0 && effective.receive_buffer <= 8 << 20);
        assert!(effective.to_string().contains(&format!("socket buffers {}", effective.receive_buffer)));
    }
}
