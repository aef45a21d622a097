//! The side of a connection that dials.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quinn::{Endpoint, TokioRuntime};
use rustls::pki_types::CertificateDer;

use super::answer::CallError;
use super::answer::UnreadAnswer;
use super::connection::{Acquaintance, Connection};
use super::lost::{CloseCode, ConnectionLost, StreamLost, short_reason};
use super::peer::{Credential, Peer};
use super::port;
use super::settings::{Effective, Path, Settings, endpoint_config};
use super::stream::{ByteReceiver, ByteSender};
use crate::call_id::request_bytes;
use crate::identity::{Side, tls_client};
use crate::limits::MAX_CONTROL_BYTES;
use crate::{
    Expected, Hello, Identity, IdentityError, PeerCertificate, ReadGrant, Refusal, Request, Versions, Welcome,
};

/// Makes connections from one socket per address family, which is bound at the first use.
///
/// It must be used inside the tokio runtime of its first use, which alone drives its sockets. A closed connection frees
/// everything it had; the sockets live as long as the dialer.
pub struct Dialer {
    identity: Arc<Identity>,
    settings: Settings,
    program: String,
    sockets: Mutex<Sockets>,
}

#[derive(Default)]
struct Sockets {
    v4: Option<(Endpoint, Effective)>,
    v6: Option<(Endpoint, Effective)>,
}

impl Dialer {
    /// Makes a dialer that shows that identity's certificate, if it has one, to every peer that asks for it. `program`
    /// is this program's name and version.
    pub fn new(identity: Arc<Identity>, settings: Settings, program: impl Into<String>) -> Self {
        Self { identity, settings, program: program.into(), sockets: Mutex::default() }
    }

    /// Connects to `host:port` and says hello, with `token` if one is needed. Tries the host's addresses one after the
    /// other, each for at most [`Settings::handshake`], and gives an address up at once if its host says that nobody
    /// listens there. Cancellation-safe.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn dial(
        &self,
        host_port: &str,
        expected: &Expected,
        token: Option<&str>,
    ) -> Result<Connection, DialError> {
        let mut last = None;
        for address in resolve(host_port).await? {
            match self.dial_address(address, expected, token).await {
                Ok(connection) => return Ok(connection),
                // Another address of the same host says nothing else then.
                Err(error @ (DialError::Refused(_) | DialError::Identity { .. })) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| DialError::NoAddress(host_port.to_string())))
    }

    /// Connects to one address as [`Dialer::dial`] does.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn dial_address(
        &self,
        address: SocketAddr,
        expected: &Expected,
        token: Option<&str>,
    ) -> Result<Connection, DialError> {
        let deadline = self.settings.handshake;
        match tokio::time::timeout(deadline, self.connect(address, expected, token)).await {
            Ok(result) => result,
            Err(_) => Err(DialError::TimedOut { address, after: deadline }),
        }
    }

    /// Returns the settings in effect for each socket bound so far.
    pub fn effective(&self) -> Vec<Effective> {
        let sockets = self.sockets.lock();
        [&sockets.v4, &sockets.v6].into_iter().flatten().map(|(_, effective)| *effective).collect()
    }

    /// Closes all connections with that code.
    pub fn close(&self, code: CloseCode, reason: &str) {
        for endpoint in self.endpoints() {
            endpoint.close(code.number(), short_reason(reason));
        }
    }

    /// Waits until all peers have been told that their connections are closed, or have not answered for a few round
    /// trips.
    pub async fn closed(&self) {
        for endpoint in self.endpoints() {
            endpoint.wait_idle().await;
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let sockets = self.sockets.lock();
        [&sockets.v4, &sockets.v6].into_iter().flatten().map(|(endpoint, _)| endpoint.clone()).collect()
    }

    async fn connect(
        &self,
        address: SocketAddr,
        expected: &Expected,
        token: Option<&str>,
    ) -> Result<Connection, DialError> {
        let path = Path::to(address.ip(), local_ip(address), self.settings.jumbo);
        let endpoint = self.endpoint(address).map_err(DialError::Socket)?;
        let (mut config, verdict) =
            tls_client(self.identity.clone(), expected.clone()).map_err(DialError::Tls)?;
        config.transport_config(self.settings.transport(path));
        let connecting = endpoint
            .connect_with(config, address, SERVER_NAME)
            .map_err(|error| DialError::Socket(io::Error::other(error)))?;
        let connected = tokio::select! {
            connected = connecting => connected,
            () = port::port_closed(address) => return Err(DialError::PortClosed { address }),
        };
        let found = match verdict.get() {
            Some(Ok(found)) => found.clone(),
            Some(Err(error)) => return Err(DialError::Identity { address, source: error.clone() }),
            // TLS ends only after the server's certificate was checked.
            None => {
                let lost = connected.err().map_or(ConnectionLost::ByUs, ConnectionLost::from);
                return Err(DialError::Lost { address, source: lost });
            }
        };
        let connection = connected.map_err(|error| DialError::Lost { address, source: error.into() })?;
        let welcome = self.greet(&connection, address, token).await?;
        let peer = Peer {
            role: found.role,
            name: found.name,
            credential: Credential::Certificate,
            max_lanes: None,
            reads: ReadGrant::none(),
            address,
        };
        let chain =
            connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        let certificate = chain.map(|chain| {
            PeerCertificate::new(self.identity.clone(), *chain, Side::Server, Some(expected.clone()))
        });
        let made = Acquaintance {
            peer,
            version: welcome.version,
            path,
            certificate,
            bounds: self.settings.of_known(),
            known_as: welcome.owner,
            portion: None,
        };
        let connection = Connection::new(connection, made);
        connection.watch_port();
        Ok(connection)
    }

    async fn greet(
        &self,
        connection: &quinn::Connection,
        address: SocketAddr,
        token: Option<&str>,
    ) -> Result<Welcome, DialError> {
        let hello = Request::Hello(Hello {
            versions: Versions::OURS,
            program: self.program.clone(),
            token: token.map(str::to_string),
        });
        let answer = async {
            let (send, receive) = connection.open_bi().await.map_err(StreamLost::from)?;
            let (mut send, mut receive) = (ByteSender::asking(send), ByteReceiver(receive));
            send.write_all(&request_bytes(&hello, None).map_err(CallError::Malformed)?).await?;
            send.finish()?;
            UnreadAnswer::new(receive.raw_message(MAX_CONTROL_BYTES).await?)?.read::<Welcome>()
        };
        let welcome = match answer.await {
            Ok(welcome) => welcome,
            Err(CallError::Refused(refusal)) => return Err(DialError::Refused(refusal)),
            Err(CallError::Lost(StreamLost::Connection(source))) => {
                return Err(DialError::Lost { address, source });
            }
            Err(error) => return Err(DialError::Hello(Box::new(error))),
        };
        let spoken = Versions { oldest: welcome.version, newest: welcome.version };
        if Versions::OURS.common(spoken).is_none() {
            connection.close(CloseCode::Malformed.number(), b"a version was chosen that was not offered");
            return Err(DialError::Version { address, chosen: welcome.version });
        }
        Ok(welcome)
    }

    fn endpoint(&self, peer: SocketAddr) -> io::Result<Endpoint> {
        let mut sockets = self.sockets.lock();
        let slot = match peer {
            SocketAddr::V4(_) => &mut sockets.v4,
            SocketAddr::V6(_) => &mut sockets.v6,
        };
        if let Some((endpoint, _)) = slot {
            return Ok(endpoint.clone());
        }
        let (socket, effective) = self.settings.socket(SocketAddr::new(port::any_of(peer), 0))?;
        let endpoint = Endpoint::new(endpoint_config(None), None, socket, Arc::new(TokioRuntime))?;
        *slot = Some((endpoint.clone(), effective));
        Ok(endpoint)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("identity", &self.identity)
            .field("sockets", &self.effective())
            .finish()
    }
}

/// Asks the host of `host:port` whether that port is closed. Returns true if the host says so twice, to two sockets,
/// for each of its addresses. Returns false if somebody listens there, if nothing is answered within 300 ms, or if the
/// host is not known. Cancellation-safe; must be called inside a tokio runtime.
pub async fn port_is_closed(host_port: &str) -> bool {
    let Ok(addresses) = resolve(host_port).await else { return false };
    for &address in &addresses {
        if !port::is_closed(address).await {
            return false;
        }
    }
    !addresses.is_empty()
}

/// Resolves the addresses of a host; numeric addresses need no resolver.
pub(crate) async fn resolve(host_port: &str) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(address) = host_port.parse() {
        return Ok(vec![address]);
    }
    let found = tokio::net::lookup_host(host_port)
        .await
        .map_err(|source| DialError::Resolve { address: host_port.to_string(), source })?;
    Ok(found.take(MAX_ADDRESSES).collect())
}

/// Returns which of our addresses reaches that peer: the kernel knows, without a packet being sent.
fn local_ip(peer: SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(port::any_of(peer), 0)).ok()?;
    socket.connect(peer).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// The reason why there is no connection.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug)]
pub enum DialError {
    /// The host's name cannot be resolved.
    Resolve {
        /// The address that was asked for.
        address: String,
        source: io::Error,
    },
    /// The host has no address.
    NoAddress(String),
    /// There is no socket to dial from.
    Socket(io::Error),
    /// TLS cannot be set up.
    Tls(rustls::Error),
    /// The peer is not the expected one.
    Identity { address: SocketAddr, source: IdentityError },
    /// The peer refuses the connection.
    Refused(Refusal),
    /// The peer chose a version that was not offered.
    Version {
        address: SocketAddr,
        /// The version that it chose.
        chosen: u16,
    },
    /// The connection was lost during the handshake.
    Lost { address: SocketAddr, source: ConnectionLost },
    /// The answer to `Hello` was not the expected one.
    Hello(Box<CallError>),
    /// Nobody answered, and the host says that nobody listens at the port.
    PortClosed { address: SocketAddr },
    /// Nobody answered in time.
    TimedOut {
        address: SocketAddr,
        /// Time that was waited.
        after: Duration,
    },
}

impl DialError {
    /// Returns whether dialling again may succeed although nobody changes anything.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::NoAddress(_)
            | Self::Lost { .. }
            | Self::PortClosed { .. }
            | Self::TimedOut { .. } => true,
            Self::Refused(refusal) => refusal.code.is_transient(),
            Self::Socket(_)
            | Self::Tls(_)
            | Self::Identity { .. }
            | Self::Version { .. }
            | Self::Hello(_) => false,
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve { address, .. } => write!(f, "`{address}` cannot be resolved"),
            Self::NoAddress(address) => write!(f, "`{address}` has no address"),
            Self::Socket(_) => f.write_str("there is no socket to dial from"),
            Self::Tls(_) => f.write_str("tls cannot be set up"),
            Self::Identity { address, source } => write!(f, "{address} is not whom it should be: {source}"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Version { address, chosen } => write!(
                f,
                "{address} chose version {chosen}, offered were {} to {}",
                Versions::OURS.oldest,
                Versions::OURS.newest
            ),
            Self::Lost { address, source } => write!(f, "{address}: {source}"),
            Self::Hello(error) => write!(f, "hello was not answered: {error}"),
            Self::PortClosed { address } => write!(f, "nobody listens at {address}"),
            Self::TimedOut { address, after } => {
                write!(f, "{address} did not answer within {} ms", after.as_millis())
            }
        }
    }
}

impl std::error::Error for DialError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Resolve { source, .. } | Self::Socket(source) => Some(source),
            Self::Tls(source) => Some(source),
            Self::Identity { source, .. } => Some(source),
            Self::Refused(refusal) => Some(refusal),
            Self::Lost { source, .. } => Some(source),
            Self::Hello(source) => Some(source),
            Self::NoAddress(_) | Self::Version { .. } | Self::PortClosed { .. } | Self::TimedOut { .. } => {
                None
            }
        }
    }
}

/// The name that TLS requires. Names of the cluster are in the certificates' URIs, and this one is not sent.
const SERVER_NAME: &str = "rollhouse";
/// Number of addresses of one host that are tried.
const MAX_ADDRESSES: usize = 8;
