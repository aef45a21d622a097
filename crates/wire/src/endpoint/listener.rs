//! The side of a connection that is dialled.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Endpoint, TokioRuntime, TransportConfig};
use rollhouse_core::{Portion, ShareBook};
use rustls::pki_types::CertificateDer;
use tokio::task::{AbortHandle, JoinSet};

use super::answer::answer_bytes;
use super::connection::{Acquaintance, Connection};

use super::gate::{Admission, Gate};
use super::incoming::{Unreadable, code_of, parse};
use super::lost::{CloseCode, ConnectionLost, StreamLost, short_reason};
use super::peer::{Peer, Stranger};
use super::settings::{Effective, KnownBounds, Path, Settings, endpoint_config};
use super::stream::{ByteReceiver, ByteSender, MessageError};
use crate::call_id::Received;
use crate::identity::{Side, tls_server};
use crate::limits::MAX_STRANGER_BYTES;
use crate::{Hello, Identity, PeerCertificate, Refusal, RefusalCode, Request, Role, Versions, Welcome};

/// Decides for whom a stranger is taken. Called on the thread that serves connections; must not block.
pub type Authenticate = dyn Fn(&Hello, &Stranger) -> Result<Peer, Refusal> + Send + Sync;

/// Accepts connections: TLS, `Hello` and identity, with bounds on the work that strangers may cause.
///
/// ```text
///  first packet ──(gate)──▶ handshake ──▶ Hello ──(authenticate)──▶ Connection
///       │ dropped, refused,     │ deadline     │ refused with a typed answer,
///       ▼ proof of address      ▼              ▼ then closed
/// ```
///
/// Must be made and used inside a tokio runtime with time and I/O; its sockets are driven by that runtime only.
/// One task per handshake, at most [`Settings::max_handshakes`]; they end with the listener.
pub struct Listener {
    endpoint: Endpoint,
    effective: Effective,
    context: Arc<Context>,
    transports: Transports,
    gate: Gate,
    started: Instant,
    handshakes: JoinSet<(u64, Arrival)>,
    /// Handles that end the handshakes under way.
    ends: HashMap<u64, AbortHandle>,
    counts: ArrivalCounts,
}

/// The values that every handshake needs.
struct Context {
    identity: Arc<Identity>,
    authenticate: Box<Authenticate>,
    program: String,
    /// Connections of peers that are known.
    known: ShareBook,
}

/// The QUIC settings for each of the two kinds of path.
struct Transports {
    jumbo: Arc<quinn::ServerConfig>,
    ethernet: Arc<quinn::ServerConfig>,
}

/// The result of one stranger's attempt to connect.
#[derive(Debug)]
pub enum Arrival {
    /// The stranger is known now.
    Connected(Connection),
    /// The stranger was turned away.
    TurnedAway(TurnedAway),
}

/// A stranger who was turned away.
#[derive(Debug)]
pub struct TurnedAway {
    /// The stranger's address.
    pub address: SocketAddr,
    /// The reason why it was turned away.
    pub reason: TurnedAwayReason,
}

/// The reason why a stranger was turned away.
#[derive(Debug)]
pub enum TurnedAwayReason {
    /// The stranger was not believed, or speaks another version; it was told.
    Refused(Refusal),
    /// The stranger did not keep to the protocol.
    Malformed(String),
    /// TLS failed, or the stranger went away.
    Lost(ConnectionLost),
    /// The stranger took longer than [`Settings::handshake`].
    TooSlow,
}

impl TurnedAwayReason {
    /// Returns the word in metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code.word(),
            Self::Malformed(_) => "malformed",
            Self::Lost(_) => "lost",
            Self::TooSlow => "too_slow",
        }
    }
}

impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was turned away: ", self.address)?;
        match &self.reason {
            TurnedAwayReason::Refused(refusal) => refusal.fmt(f),
            TurnedAwayReason::Malformed(text) => f.write_str(text),
            TurnedAwayReason::Lost(lost) => lost.fmt(f),
            TurnedAwayReason::TooSlow => f.write_str("the handshake took too long"),
        }
    }
}

/// Counts of strangers' attempts since the listener was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrivalCounts {
    /// Handshakes that were begun.
    pub begun: u64,
    /// Strangers that were asked to prove their address first.
    pub proof_asked: u64,
    /// Refused because too many handshakes or connections were open.
    pub full: u64,
    /// Dropped because too many came per second.
    pub dropped: u64,
    /// Strangers that became known.
    pub connected: u64,
    /// Strangers that were turned away, by [`TurnedAwayReason::word`], and `given_up` for those that gave their place
    /// to another when all were taken.
    pub turned_away: BTreeMap<&'static str, u64>,
}

impl Listener {
    /// Binds `address` (port 0 for any) and listens. `program` is this program's name and version.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(
        address: SocketAddr,
        identity: Arc<Identity>,
        settings: Settings,
        program: impl Into<String>,
        authenticate: Box<Authenticate>,
    ) -> Result<Self, BindError> {
        if identity.certified().is_none() {
            return Err(BindError::NoCertificate);
        }
        let error = |source| BindError::Socket { address, source };
        let (socket, effective) = settings.socket(address).map_err(error)?;
        let base = tls_server(identity.clone()).map_err(BindError::Tls)?;
        let transports = Transports::new(base, &settings);
        let endpoint = Endpoint::new(
            endpoint_config(settings.reset_key.as_ref()),
            Some((*transports.ethernet).clone()),
            socket,
            Arc::new(TokioRuntime),
        )
        .map_err(error)?;
        Ok(Self {
            endpoint,
            effective,
            context: Arc::new(Context {
                identity,
                authenticate,
                program: program.into(),
                known: ShareBook::new(settings.shares),
            }),
            transports,
            gate: Gate::new(
                settings.max_handshakes,
                settings.max_connections,
                settings.handshakes_per_second,
            ),
            started: Instant::now(),
            handshakes: JoinSet::new(),
            ends: HashMap::new(),
            counts: ArrivalCounts::default(),
        })
    }

    /// Waits for the next stranger that has become known or was turned away; `None` after [`Listener::close`]. Nothing
    /// is admitted while nobody waits here. Cancellation-safe.
    pub async fn accept(&mut self) -> Option<Arrival> {
        loop {
            tokio::select! {
                Some(arrival) = self.handshakes.join_next() => {
                    // A handshake does not panic; one that is given up for another was counted then.
                    let Ok((id, arrival)) = arrival else { continue };
                    self.gate.ended(id);
                    self.ends.remove(&id);
                    self.count(&arrival);
                    return Some(arrival);
                }
                incoming = self.endpoint.accept() => self.admit(incoming?),
            }
        }
    }

    /// Returns the bound address and the settings in effect.
    pub fn effective(&self) -> Effective {
        self.effective
    }

    /// Returns the counts of strangers' attempts.
    pub fn counts(&self) -> &ArrivalCounts {
        &self.counts
    }

    /// Closes all connections with that code, and accepts no more.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.endpoint.close(code.number(), short_reason(reason));
    }

    /// Waits until all peers have been told of [`Listener::close`], or have not answered for a few round trips.
    pub async fn closed(&self) {
        self.endpoint.wait_idle().await;
    }

    fn admit(&mut self, incoming: quinn::Incoming) {
        let proven = incoming.remote_address_validated();
        // The library counts the strangers that wait here, too.
        let connections = self.endpoint.open_connections();
        let from = incoming.remote_address().ip();
        match self.gate.admit(self.started.elapsed(), from, connections, proven) {
            Admission::Begin { id, instead_of } => {
                if let Some(end) = instead_of.and_then(|other| self.ends.remove(&other)) {
                    end.abort();
                    *self.counts.turned_away.entry(GIVEN_UP).or_default() += 1;
                }
                self.begin(id, incoming);
            }
            Admission::Prove => {
                self.counts.proof_asked += 1;
                // It fails only if he has proven it already.
                if let Err(error) = incoming.retry() {
                    error.into_incoming().ignore();
                }
            }
            Admission::Refuse => {
                self.counts.full += 1;
                incoming.refuse();
            }
            Admission::Drop => {
                self.counts.dropped += 1;
                incoming.ignore();
            }
        }
    }

    fn begin(&mut self, id: u64, incoming: quinn::Incoming) {
        self.counts.begun += 1;
        let address = incoming.remote_address();
        let settings = &self.effective.settings;
        let path = Path::to(address.ip(), incoming.local_ip(), settings.jumbo);
        let deadline = settings.handshake;
        let config = self.transports.of(path);
        let (context, bounds) = (self.context.clone(), settings.of_known());
        // Task: handshake.
        let end = self.handshakes.spawn(async move {
            let greeted = greet(incoming, config, path, bounds, &context);
            let reason = match tokio::time::timeout(deadline, greeted).await {
                Ok(Ok(connection)) => return (id, Arrival::Connected(connection)),
                Ok(Err(reason)) => reason,
                Err(_) => TurnedAwayReason::TooSlow,
            };
            (id, Arrival::TurnedAway(TurnedAway { address, reason }))
        });
        self.ends.insert(id, end);
    }

    fn count(&mut self, arrival: &Arrival) {
        match arrival {
            Arrival::Connected(_) => self.counts.connected += 1,
            Arrival::TurnedAway(away) => {
                *self.counts.turned_away.entry(away.reason.word()).or_default() += 1;
            }
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("effective", &self.effective).field("counts", &self.counts).finish()
    }
}

impl Transports {
    fn new(base: quinn::ServerConfig, settings: &Settings) -> Self {
        let with = |transport: Arc<TransportConfig>| {
            let mut config = base.clone();
            config
                .transport_config(transport)
                .max_incoming(MAX_WAITING)
                .incoming_buffer_size(WAITING_BYTES)
                .incoming_buffer_size_total(WAITING_BYTES * MAX_WAITING as u64 / 4);
            Arc::new(config)
        };
        Self {
            jumbo: with(settings.transport(Path::Jumbo)),
            ethernet: with(settings.transport(Path::Ethernet)),
        }
    }

    fn of(&self, path: Path) -> Arc<quinn::ServerConfig> {
        match path {
            Path::Jumbo => self.jumbo.clone(),
            Path::Ethernet => self.ethernet.clone(),
        }
    }
}

/// Carries a stranger from its first packet to a connection.
async fn greet(
    incoming: quinn::Incoming,
    config: Arc<quinn::ServerConfig>,
    path: Path,
    bounds: KnownBounds,
    context: &Context,
) -> Result<Connection, TurnedAwayReason> {
    let lost = |error: quinn::ConnectionError| TurnedAwayReason::Lost(error.into());
    let connection = incoming.accept_with(config).map_err(lost)?.await.map_err(lost)?;
    let (send, receive) = connection.accept_bi().await.map_err(lost)?;
    let (mut send, mut receive) = (ByteSender::answering(send, bounds.answer_stall), ByteReceiver(receive));
    let hello = match hello(&mut receive).await {
        Ok(hello) => hello,
        Err(NoHello::Lost(lost)) => return Err(TurnedAwayReason::Lost(lost)),
        Err(NoHello::Bad(code, text)) => {
            connection.close(code.number(), short_reason(&text));
            return Err(TurnedAwayReason::Malformed(text));
        }
    };
    match introduce(&connection, &hello, context) {
        Ok(Introduced { peer, version, certificate, portion }) => {
            let welcome =
                Welcome { version, program: context.program.clone(), role: peer.role, owner: peer.owner() };
            let sent = send.write_all(&answer_bytes(Ok(&welcome))).await;
            if let (Err(lost), _) | (_, Err(lost)) = (sent, send.finish()) {
                return Err(TurnedAwayReason::Lost(connection_of(lost)));
            }
            let known_as = String::new();
            // Only nodes send a coordinator more than requests; whoever is anonymous steps sessions.
            let receive_window = match peer.role {
                Role::Anonymous | Role::Node => bounds.receive_window,
                _ => bounds.receive_window.min(REQUESTER_WINDOW),
            };
            let bounds = KnownBounds { receive_window, ..bounds };
            let made = Acquaintance { peer, version, path, certificate, bounds, known_as, portion };
            Ok(Connection::new(connection, made))
        }
        Err(refusal) => {
            // He is to read why before the connection goes; if he does not, that is his loss.
            let told = async {
                let _sent = send.write_all(&answer_bytes::<()>(Err(&refusal))).await;
                let _finished = send.finish();
                send.settled().await;
            };
            let _told = tokio::time::timeout(LINGER, told).await;
            connection.close(CloseCode::Refused.number(), short_reason(&refusal.message));
            Err(TurnedAwayReason::Refused(refusal))
        }
    }
}

enum NoHello {
    Lost(ConnectionLost),
    Bad(CloseCode, String),
}

/// Reads the first request of a connection.
async fn hello(receive: &mut ByteReceiver) -> Result<Hello, NoHello> {
    let bytes = match receive.raw_message(MAX_STRANGER_BYTES).await {
        Ok(bytes) => bytes,
        Err(MessageError::Lost(StreamLost::Cut)) => {
            return Err(NoHello::Bad(CloseCode::Malformed, "the first stream ended within hello".into()));
        }
        Err(MessageError::Lost(lost)) => return Err(NoHello::Lost(connection_of(lost))),
        Err(MessageError::Control(error)) => return Err(NoHello::Bad(code_of(&error), error.to_string())),
    };
    match parse(&bytes) {
        Ok(Received { request: Request::Hello(hello), .. }) => Ok(hello),
        Ok(other) => Err(NoHello::Bad(
            CloseCode::OutOfOrder,
            format!("the first request of a connection is hello, not {}", other.request.word()),
        )),
        Err(Unreadable::Unknown(word)) => Err(NoHello::Bad(
            CloseCode::OutOfOrder,
            format!("the first request of a connection is hello, not `{word}`"),
        )),
        Err(Unreadable::Malformed(error)) => Err(NoHello::Bad(code_of(&error), error.to_string())),
    }
}

/// The peer's identity and the version that is spoken.
struct Introduced {
    peer: Peer,
    version: u16,
    certificate: Option<PeerCertificate>,
    /// The connection's part of those of its peer; `None` of a peer that is anonymous.
    portion: Option<Portion>,
}

fn introduce(
    connection: &quinn::Connection,
    hello: &Hello,
    context: &Context,
) -> Result<Introduced, Refusal> {
    let version = Versions::OURS.common(hello.versions).ok_or_else(|| {
        let (ours, theirs) = (Versions::OURS, hello.versions);
        Refusal::new(
            RefusalCode::Version,
            format!(
                "no common version: {} speaks {} to {}, {} speaks {} to {}",
                context.program, ours.oldest, ours.newest, hello.program, theirs.oldest, theirs.newest
            ),
        )
    })?;
    let chain =
        connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificate =
        chain.map(|chain| PeerCertificate::new(context.identity.clone(), *chain, Side::Client, None));
    let stranger = Stranger { address: connection.remote_address(), certificate };
    let peer = (context.authenticate)(hello, &stranger)?;
    let portion = match peer.role {
        Role::Anonymous => None,
        _ => Some(context.known.take(peer.claimant(), 1).map_err(|over| {
            Refusal::busy(over.to_string(), u64::try_from(FULL_RETRY.as_millis()).unwrap_or(u64::MAX))
        })?),
    };
    Ok(Introduced { peer, version, certificate: stranger.certificate, portion })
}

/// Returns the loss of the connection that a lost stream stands for: in effect the connection is lost, whichever of the
/// two went first.
fn connection_of(lost: StreamLost) -> ConnectionLost {
    match lost {
        StreamLost::Connection(lost) => lost,
        other => ConnectionLost::Transport(other.to_string()),
    }
}

/// The reason why an endpoint cannot listen.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be bound.
    #[error("udp {address} cannot be bound")]
    Socket { address: SocketAddr, source: io::Error },
    /// A listening endpoint has to show a certificate, and there is none.
    #[error("a listening endpoint needs a certificate")]
    NoCertificate,
    /// TLS cannot be set up.
    #[error("tls cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// Number of strangers' first packets that wait to be looked at.
const MAX_WAITING: usize = 1024;
/// Bytes of further packets that are kept for each of them: a first flight fits.
const WAITING_BYTES: u64 = 16 << 10;
/// The word in metrics for handshakes that were given up for others.
const GIVEN_UP: &str = "given_up";
/// Bytes that a peer that only asks may send before we have read them.
const REQUESTER_WINDOW: u32 = 256 << 10;
/// Pause after which a peer that has its share of connections may try again: some of them close.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// Time that a refusal is given to arrive.
const LINGER: Duration = Duration::from_secs(1);
