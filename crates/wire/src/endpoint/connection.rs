//! A connection whose two ends know each other.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use quinn::ConnectionError;
use rollhouse_core::msgpack::Message;
use rollhouse_core::{Claimant, OverShare, Portion, ShareBook};
use tokio::sync::Semaphore;

use super::answer::{CallError, UnreadAnswer};
use super::lost::{CloseCode, ConnectionLost, StreamLost, short_reason};
use super::peer::Peer;
use super::port::{self, PortSilence};
use super::settings::{KnownBounds, Path, STRANGER_WINDOW};
use super::stream::{ByteReceiver, ByteSender};
use super::untaken::Untaken;
use super::{EnvelopeReader, EnvelopeWriter, FrameReader, FrameWriter};
use crate::call_id::request_bytes;
use crate::limits::{MAX_CONTROL_BYTES, MAX_OPEN_REQUESTS, MAX_SESSION_STREAMS, MAX_STRANGER_STREAMS};
use crate::{
    Asks, Attach, Attached, CallId, CommandsOpened, OpenCommands, OpenWatch, PeerCertificate, Request, Role,
    WatchOpened,
};

/// A connection after `Hello`. Clones are handles to the same connection; it closes when the last is dropped.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    inner: quinn::Connection,
    peer: Peer,
    version: u16,
    path: Path,
    certificate: Option<PeerCertificate>,
    bounds: KnownBounds,
    untaken: Untaken,
    known_as: String,
    /// The connection's part of those of its peer, if the peer has shown who it is; held as long as this.
    _portion: Option<Portion>,
    /// Those whose sessions the peer has shown that it may step or watch, for as long as it does.
    admitted: Mutex<BTreeMap<Claimant, (usize, Portion)>>,
    /// Number of times that the peer was admitted.
    admissions: AtomicU64,
    /// Permits for requests of the peer that are unanswered.
    open_requests: Arc<Semaphore>,
    /// Whether somebody has waited for the peer for longer than usual.
    doubted: AtomicBool,
    /// Whether it was closed because nobody listens at the peer's port.
    port_closed: AtomicBool,
}

impl Shared {
    pub(crate) fn is_open(&self) -> bool {
        self.inner.close_reason().is_none()
    }

    /// Returns the peer's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// Returns how many datagrams were sent and how many were received.
    pub(crate) fn datagrams(&self) -> (u64, u64) {
        let stats = self.inner.stats();
        (stats.udp_tx.datagrams, stats.udp_rx.datagrams)
    }

    /// Returns whether somebody has doubted the peer since the last call.
    pub(crate) fn take_doubt(&self) -> bool {
        self.doubted.swap(false, Ordering::Relaxed)
    }

    /// Closes the connection because nobody listens at the peer's port any more. If the peer is there after all, it is
    /// told.
    pub(crate) fn close_as_port_closed(&self) {
        self.port_closed.store(true, Ordering::Relaxed);
        self.inner.close(CloseCode::Finished.number(), b"your port is closed, its host says");
    }

    fn lost(&self, error: ConnectionError) -> ConnectionLost {
        match ConnectionLost::from(error) {
            ConnectionLost::ByUs if self.port_closed.load(Ordering::Relaxed) => ConnectionLost::PortClosed,
            lost => lost,
        }
    }
}

/// What both ends of a connection know after `Hello`.
pub(crate) struct Acquaintance {
    pub(crate) peer: Peer,
    pub(crate) version: u16,
    pub(crate) path: Path,
    pub(crate) certificate: Option<PeerCertificate>,
    pub(crate) bounds: KnownBounds,
    /// The name under which the peer keeps what this side owns there; empty if it keeps nothing.
    pub(crate) known_as: String,
    /// The connection's part of those of its peer.
    pub(crate) portion: Option<Portion>,
}

impl Connection {
    pub(crate) fn new(inner: quinn::Connection, made: Acquaintance) -> Self {
        let Acquaintance { peer, version, path, certificate, bounds, known_as, portion } = made;
        let open_requests = Arc::new(Semaphore::new(MAX_OPEN_REQUESTS));
        let (doubted, port_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Shared {
            inner,
            peer,
            version,
            path,
            certificate,
            bounds,
            untaken: Untaken::new(bounds.answer_stall),
            known_as,
            _portion: portion,
            admitted: Mutex::default(),
            admissions: AtomicU64::new(0),
            open_requests,
            doubted,
            port_closed,
        };
        let connection = Self { shared: Arc::new(shared) };
        if connection.is_known() {
            // So many more as are told that they are too many.
            connection.widen(2 * MAX_OPEN_REQUESTS);
        }
        connection
    }

    /// Returns the name under which the peer keeps what this side owns there; empty if it keeps nothing.
    pub fn known_as(&self) -> &str {
        &self.shared.known_as
    }

    /// Returns whether the peer has shown who it is, or steps or watches a session whose secret or key it has shown. A
    /// peer that is not known has a stranger's bounds: [`MAX_STRANGER_STREAMS`] streams and
    /// [`MAX_STRANGER_BYTES`](crate::limits::MAX_STRANGER_BYTES) a message.
    pub fn is_known(&self) -> bool {
        self.peer().role != Role::Anonymous || !self.shared.admitted.lock().is_empty()
    }

    /// Returns the number of times that the peer was admitted to a session.
    pub fn admissions(&self) -> u64 {
        self.shared.admissions.load(Ordering::Relaxed)
    }

    /// Admits an anonymous peer that has shown the secret or the key of a session of that claimant: it is known until the
    /// last of the values that are returned is dropped. The connection counts once as the claimant's meanwhile.
    ///
    /// # Errors
    /// If the claimant has its share of `connections`.
    pub fn admit(&self, connections: &ShareBook, claimant: Claimant) -> Result<Admittance, OverShare> {
        let mut admitted = self.shared.admitted.lock();
        let was_strange = admitted.is_empty();
        match admitted.get_mut(&claimant) {
            Some((times, _)) => *times += 1,
            None => {
                let portion = connections.take(claimant.clone(), 1)?;
                admitted.insert(claimant.clone(), (1, portion));
            }
        }
        self.shared.admissions.fetch_add(1, Ordering::Relaxed);
        if was_strange && self.peer().role == Role::Anonymous {
            self.widen(MAX_OPEN_REQUESTS + MAX_SESSION_STREAMS);
        }
        Ok(Admittance { connection: self.clone(), claimant })
    }

    fn leave(&self, claimant: &Claimant) {
        let mut admitted = self.shared.admitted.lock();
        let Some((times, _)) = admitted.get_mut(claimant) else { return };
        *times -= 1;
        if *times > 0 {
            return;
        }
        admitted.remove(claimant);
        if admitted.is_empty() && self.peer().role == Role::Anonymous {
            let KnownBounds { receive_window, send_window, .. } = self.shared.bounds;
            self.inner().set_receive_window(STRANGER_WINDOW.min(receive_window).into());
            self.inner().set_send_window(u64::from(STRANGER_WINDOW).min(send_window));
            self.inner().set_max_concurrent_bi_streams((MAX_STRANGER_STREAMS as u32).into());
        }
    }

    /// Gives the peer the bounds of a known one. QUIC's bookkeeping takes 64 bytes for each stream that the peer may
    /// open.
    fn widen(&self, streams: usize) {
        self.inner().set_receive_window(self.shared.bounds.receive_window.into());
        self.inner().set_send_window(self.shared.bounds.send_window);
        self.inner().set_max_concurrent_bi_streams((streams as u32).into());
    }

    /// Closes the connection as soon as nobody listens at the peer's port any more. Only for a peer that was dialled:
    /// the address from which a dialling peer sends does not tell where it listens.
    pub(crate) fn watch_port(&self) {
        // Task: port.
        tokio::spawn(watch_port(Arc::downgrade(&self.shared)));
    }

    /// Has the peer's port checked within a second, if the peer was dialled. Call it when an answer takes longer than
    /// usual. A connection whose peer's port is closed ends as [`ConnectionLost::PortClosed`].
    pub fn doubt(&self) {
        self.shared.doubted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn inner(&self) -> &quinn::Connection {
        &self.shared.inner
    }

    /// Returns who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Returns the certificate that the peer showed, believed or not; `None` if it showed none.
    pub fn certificate(&self) -> Option<&PeerCertificate> {
        self.shared.certificate.as_ref()
    }

    /// Returns the version of the protocol that both sides agreed on.
    pub fn version(&self) -> u16 {
        self.shared.version
    }

    /// Sends a request and waits for the answer, at most for `deadline`. Dropping the future takes the request back as
    /// far as possible: the peer learns that nobody reads the answer.
    ///
    /// # Errors
    /// See [`CallError`]. After `Lost` and `TimedOut` the peer may or may not have done what was asked.
    pub async fn call<R: Asks>(&self, request: R, deadline: Duration) -> Result<R::Answer, CallError> {
        self.call_for(request, None, deadline).await
    }

    /// Sends a request as [`Connection::call`] does, as part of a client's call that the peer is told.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub async fn call_for<R: Asks>(
        &self,
        request: R,
        call: Option<CallId>,
        deadline: Duration,
    ) -> Result<R::Answer, CallError> {
        self.ask(&request.into(), call, deadline).await?.read()
    }

    /// Sends a request as [`Connection::call_for`] does, and leaves an answer that is no refusal unread. Boxed, so that
    /// what awaits it is not compiled with all that it does.
    ///
    /// # Errors
    /// Those of [`Connection::call`].
    pub fn ask<'a>(
        &'a self,
        request: &'a Request,
        call: Option<CallId>,
        deadline: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<UnreadAnswer, CallError>> + Send + 'a>> {
        let asked = async move {
            let mut call = self.open_for(request, call).await?;
            call.finish()?;
            call.unread_answer().await
        };
        Box::pin(async move {
            match tokio::time::timeout(deadline, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(CallError::TimedOut { request: request.word(), after: deadline }),
            }
        })
    }

    /// Sends a request and leaves both directions open: for requests that are followed by bytes, or whose answer is
    /// followed by bytes or frames. Waits while the peer allows no further stream.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn open(&self, request: &Request) -> Result<Call, CallError> {
        self.open_for(request, None).await
    }

    /// Sends a request as [`Connection::open`] does, as part of a client's call that the peer is told.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn open_for(&self, request: &Request, of: Option<CallId>) -> Result<Call, CallError> {
        let (send, receive) = self.inner().open_bi().await.map_err(StreamLost::from)?;
        let mut call = Call { send: ByteSender::asking(send), receive: ByteReceiver(receive) };
        let bytes = request_bytes(request, of).map_err(CallError::Malformed)?;
        call.send.write_all(&bytes).await?;
        Ok(call)
    }

    /// Attaches to a session and returns the two directions of its stream; part of a client's call if there is one. The
    /// node's frames have at most `max_columns` bytes of columns.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn attach(
        &self,
        attach: Attach,
        of: Option<CallId>,
        max_columns: usize,
    ) -> Result<(Attached, FrameReader, FrameWriter), CallError> {
        let mut call = self.open_for(&Request::Attach(attach), of).await?;
        let attached = call.answer().await?;
        Ok((attached, FrameReader::new(call.receive, max_columns), FrameWriter::new(call.send)))
    }

    /// Opens the command stream of a session and returns its two directions; part of a client's call if there is one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn commands(
        &self,
        open: OpenCommands,
        of: Option<CallId>,
    ) -> Result<(CommandsOpened, EnvelopeReader, EnvelopeWriter), CallError> {
        let mut call = self.open_for(&Request::Commands(open), of).await?;
        let opened = call.answer().await?;
        Ok((opened, EnvelopeReader::new(call.receive), EnvelopeWriter::new(call.send)))
    }

    /// Opens a stream on which a session is watched and returns its two directions; part of a client's call if there is
    /// one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn watch(
        &self,
        open: OpenWatch,
        of: Option<CallId>,
    ) -> Result<(WatchOpened, EnvelopeReader, EnvelopeWriter), CallError> {
        let mut call = self.open_for(&Request::OpenWatch(open), of).await?;
        let opened = call.answer().await?;
        Ok((opened, EnvelopeReader::new(call.receive), EnvelopeWriter::new(call.send)))
    }

    /// Returns the room for answers that the peer has not taken yet.
    pub(super) fn untaken(&self) -> &Untaken {
        &self.shared.untaken
    }

    /// Returns the permits for requests of the peer that are unanswered.
    pub(super) fn open_requests(&self) -> Arc<Semaphore> {
        Arc::clone(&self.shared.open_requests)
    }

    /// Closes the connection with all of its streams, at once; data that is not delivered yet never is.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.inner().close(code.number(), short_reason(reason));
    }

    /// Waits until the connection is gone. Cancellation-safe.
    pub async fn closed(&self) -> ConnectionLost {
        self.shared.lost(self.inner().closed().await)
    }

    /// Returns why the connection is gone; `None` if it is still there as far as is known.
    pub fn lost(&self) -> Option<ConnectionLost> {
        self.inner().close_reason().map(|error| self.shared.lost(error))
    }

    /// Returns the connection's figures as they are now.
    pub fn figures(&self) -> LinkFigures {
        let stats = self.inner().stats();
        LinkFigures {
            path: self.shared.path,
            datagram: stats.path.current_mtu,
            round_trip: stats.path.rtt,
            window: stats.path.cwnd,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            congestion_events: stats.path.congestion_events,
            black_holes: stats.path.black_holes_detected,
        }
    }

    /// Returns a number that tells this connection from the others of the process while it lives.
    pub fn id(&self) -> usize {
        self.inner().stable_id()
    }
}

/// The right of a peer to be known as one who steps or watches sessions; the peer is known for as long as it has one. Made by [`Connection::admit`].
#[derive(Debug)]
pub struct Admittance {
    connection: Connection,
    claimant: Claimant,
}

impl Drop for Admittance {
    fn drop(&mut self) {
        self.connection.leave(&self.claimant);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.shared.peer)
    }
}

/// Figures of a connection: what it has sent and received, and the state of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFigures {
    /// The kind of path, as judged at the start.
    pub path: Path,
    /// Bytes of the largest datagram that gets through.
    pub datagram: u16,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Bytes that may be on the way.
    pub window: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Bytes of datagrams received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that were not acknowledged in time.
    pub lost_packets: u64,
    /// Number of times the window was made smaller.
    pub congestion_events: u64,
    /// Number of times large datagrams stopped getting through.
    pub black_holes: u64,
}

/// A request that was sent, and its stream. After it is dropped, data that was sent is still delivered, and nobody
/// reads the answer.
#[derive(Debug)]
pub struct Call {
    /// The direction towards the peer.
    pub send: ByteSender,
    /// The direction from the peer.
    pub receive: ByteReceiver,
}

impl Call {
    /// Ends the sending direction: nothing follows the request.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn finish(&mut self) -> Result<(), CallError> {
        Ok(self.send.finish()?)
    }

    /// Reads the answer; bytes after it stay on the stream. Not cancellation-safe.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn answer<T: Message>(&mut self) -> Result<T, CallError> {
        self.unread_answer().await?.read()
    }

    async fn unread_answer(&mut self) -> Result<UnreadAnswer, CallError> {
        UnreadAnswer::new(self.receive.raw_message(MAX_CONTROL_BYTES).await?)
    }

    /// Gives the request up in both directions.
    pub fn cancel(mut self) {
        self.send.give_up(CloseCode::Finished);
        self.receive.give_up(CloseCode::Finished);
    }
}

/// Closes a connection when its peer answers nothing and the peer's port is closed. Ends with the connection.
async fn watch_port(connection: Weak<Shared>) {
    let mut silence = PortSilence::default();
    loop {
        tokio::time::sleep(silence.pause()).await;
        let address = {
            let Some(connection) = connection.upgrade().filter(|connection| connection.is_open()) else {
                return;
            };
            let (sent, heard) = connection.datagrams();
            if !silence.look(sent, heard, connection.take_doubt()) {
                continue;
            }
            connection.address()
        };
        if port::is_closed(address).await
            && let Some(connection) = connection.upgrade()
        {
            return connection.close_as_port_closed();
        }
    }
}
