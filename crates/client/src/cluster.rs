//! The coordinator as a trainer or an operator sees it, on the caller's own runtime.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{Pauses, RunId, jitter};
use rollhouse_wire::{
    Asks, AuditPage, AuditQuery, CallError, CallId, CertificateFiles, CloseCode, ClosePool, ClusterStatus,
    Connection, DialError, Dialer, Done, Drain, EnvList, Identity, ListAfter, NodeList, NodeStatus,
    OfferedEnv, OpenPool, PoolOpened, PoolStatus, PoolStatusRequest, RefusalCode, Request, SessionList,
    SessionStatus, Settings, StatusRequest, Trust, Undrain, UnreadAnswer, new_pool_id,
};
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::error::{ConnectError, RequestError};
use crate::network::Network;
use crate::transport::{AttachPlaces, Transport};

/// Options of connecting, beside the connection string.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The bearer token. It takes precedence over the one in the connection string.
    pub token: Option<String>,
    /// The authority by which the cluster is verified. It takes precedence over `ca` in the connection string; one of
    /// both is needed.
    pub ca: Option<Trust>,
    /// A client certificate, in place of a token.
    pub certificate: Option<CertificateFiles>,
    /// Settings of the QUIC endpoint.
    pub settings: Settings,
    /// The transport by which lanes are stepped, unless a pool has its own. It takes precedence over `transport` in the
    /// connection string. `None` stands for that one, or [`Transport::Auto`].
    pub transport: Option<Transport>,
    /// The folder in which to look for nodes' attach sockets, in place of the one that each node names: for containers
    /// that have mounted it elsewhere. A socket in it is believed whichever user's process answers there, so nobody
    /// else may be able to write to it. It takes precedence over `attach` in the connection string.
    pub attach: Option<PathBuf>,
    /// Time for which connecting goes on dialling a coordinator that does not answer or has no room for another
    /// connection. Default [`DEFAULT_TIMEOUT`]. Where the host says that nobody listens, for longer than a coordinator
    /// takes to start again, connecting ends before.
    pub connect_timeout: Duration,
    /// Time that a request may take, waits for a busy cluster included; also the first timeout of pools. Default
    /// [`DEFAULT_TIMEOUT`].
    pub timeout: Duration,
}

/// Items that a list of a cluster is gathered of, in pages.
pub const MAX_LISTED: usize = 1 << 18;
/// Default time that calls wait.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            token: None,
            ca: None,
            certificate: None,
            settings: Settings::default(),
            transport: None,
            attach: None,
            connect_timeout: DEFAULT_TIMEOUT,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

/// A cluster, reached through its coordinator. Clones are handles to the same connections.
///
/// All methods have to be awaited inside the tokio runtime in which it was connected; its connections live for as long
/// as that runtime is driven. Futures can be dropped at any point: the request may have been carried out then.
#[derive(Clone)]
pub struct AsyncCluster {
    shared: Arc<Shared>,
}

struct Shared {
    network: Network,
    transport: Transport,
    timeout: Duration,
    /// Time to wait for a coordinator that is not there.
    patience: Duration,
}

impl AsyncCluster {
    /// Connects to the coordinator and is admitted by it. A coordinator that does not answer is dialled again until
    /// [`ConnectOptions::connect_timeout`] is over; the last attempt may take [`Settings::handshake`] per address of the
    /// host longer. If its host says for a second that nobody listens there, connecting ends with
    /// [`DialError::PortClosed`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(address: &Address, options: ConnectOptions) -> Result<Self, ConnectError> {
        let trust = options.ca.or_else(|| address.ca.clone()).ok_or(ConnectError::NoCa)?;
        let identity = Identity::load(trust, options.certificate).map_err(ConnectError::Identity)?;
        let program = concat!("rollhouse-client ", env!("CARGO_PKG_VERSION"));
        let patience = options.settings.handshake;
        let dialer = Dialer::new(identity, options.settings, program);
        let bracket = address.host.contains(':');
        let (open, close) = if bracket { ("[", "]") } else { ("", "") };
        let shared = Shared {
            network: Network::new(
                dialer,
                format!("{open}{}{close}:{}", address.host, address.port),
                options.token.or_else(|| address.token.clone()),
                AttachPlaces::new(options.attach.or_else(|| address.attach.clone())),
            ),
            transport: options.transport.or(address.transport).unwrap_or_default(),
            timeout: options.timeout,
            patience,
        };
        let cluster = Self { shared: Arc::new(shared) };
        let deadline = Instant::now() + options.connect_timeout;
        let (mut attempt, mut closed_since) = (0, None);
        while let Err(error) = cluster.network().coordinator().await {
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            let wait = match &error {
                DialError::PortClosed { .. } => {
                    let since = *closed_since.get_or_insert(now);
                    (now - since < CLOSED_FOR && CLOSED_WAIT < left).then_some(CLOSED_WAIT)
                }
                error => {
                    closed_since = None;
                    dial_again(error, attempt, left)
                }
            };
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(ConnectError::Dial(error)),
            }
            attempt += 1;
        }
        Ok(cluster)
    }

    /// Returns how long calls wait for answers, and the transport of pools that ask for none.
    pub(crate) fn defaults(&self) -> (Duration, Transport) {
        (self.shared.timeout, self.shared.transport)
    }

    /// Returns an id for a pool to be opened, as the coordinator accepts them from this client.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn new_pool_id(&self) -> Result<RunId, RequestError> {
        let deadline = Instant::now() + self.shared.timeout;
        let coordinator = self.coordinator_until(deadline, CallId::generate(), "open_pool").await?;
        Ok(new_pool_id(coordinator.known_as()))
    }

    /// Opens a pool whose nodes choose the actions themselves; it has no lanes to step here. Its id is from
    /// [`AsyncCluster::new_pool_id`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn open_collecting(&self, open: OpenPool) -> Result<PoolOpened, RequestError> {
        self.request(open).await
    }

    /// Returns an overview of the cluster.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn status(&self) -> Result<ClusterStatus, RequestError> {
        self.request(StatusRequest {}).await
    }

    /// Returns the nodes, by name, the first [`MAX_LISTED`] of them.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn nodes(&self) -> Result<NodeList, RequestError> {
        self.first_nodes(MAX_LISTED).await
    }

    /// Returns the first nodes, by name, and how many more there are.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn first_nodes(&self, most: usize) -> Result<NodeList, RequestError> {
        let parts = |NodeList { nodes, omitted }| (nodes, omitted);
        let (nodes, omitted) = self.pages(most, parts, |node: &NodeStatus| node.node.clone()).await?;
        Ok(NodeList { nodes, omitted })
    }

    /// Returns the envs of which pools can be opened, the first [`MAX_LISTED`] of them.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn envs(&self) -> Result<EnvList, RequestError> {
        self.first_envs(MAX_LISTED).await
    }

    /// Returns the first envs of which pools can be opened, by id and dynamics, and how many more there are.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn first_envs(&self, most: usize) -> Result<EnvList, RequestError> {
        let parts = |EnvList { envs, omitted }| (envs, omitted);
        let (envs, omitted) = self.pages(most, parts, OfferedEnv::place).await?;
        Ok(EnvList { envs, omitted })
    }

    /// Returns the open sessions, by name, the first [`MAX_LISTED`] of them.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn sessions(&self) -> Result<SessionList, RequestError> {
        self.first_sessions(MAX_LISTED).await
    }

    /// Returns the first open sessions, by name, and how many more there are.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn first_sessions(&self, most: usize) -> Result<SessionList, RequestError> {
        let parts = |SessionList { sessions, omitted }| (sessions, omitted);
        let key = |session: &SessionStatus| session.report.session;
        let (sessions, omitted) = self.pages(most, parts, key).await?;
        Ok(SessionList { sessions, omitted })
    }

    /// Asks for the pages of a list until there are `most` items, or all; returns them and the number of the others.
    async fn pages<L, T, K: Ord>(
        &self,
        most: usize,
        parts: impl Fn(L) -> (Vec<T>, u32),
        key: impl Fn(&T) -> K,
    ) -> Result<(Vec<T>, u32), RequestError>
    where
        ListAfter<K>: Asks<Answer = L>,
    {
        let (mut items, mut omitted) = parts(self.request(ListAfter { after: None }).await?);
        while omitted > 0 && items.len() < most {
            let Some(last) = items.last().map(&key) else { break };
            let (page, left) = parts(self.request(ListAfter { after: items.last().map(&key) }).await?);
            // An earlier coordinator gives the first page again, and the last one may be of what fits into no message.
            if page.first().is_none_or(|first| key(first) <= last) {
                break;
            }
            items.extend(page);
            omitted = left;
        }
        let beyond = items.len().saturating_sub(most);
        items.truncate(most);
        Ok((items, omitted.saturating_add(u32::try_from(beyond).unwrap_or(u32::MAX))))
    }

    /// Returns the state of a pool.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn pool_status(&self, pool: RunId) -> Result<PoolStatus, RequestError> {
        self.request(PoolStatusRequest { pool, keep: false }).await
    }

    /// Returns the state of a pool that plays by itself, and says that it is still wanted. After the first such call
    /// the pool ends when there is no other within its lease, 30 s. For other pools, and for those of other users, it
    /// only returns the state.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn keep_pool(&self, pool: RunId) -> Result<PoolStatus, RequestError> {
        self.request(PoolStatusRequest { pool, keep: true }).await
    }

    /// Ends a pool, with any kind of stepping: its sessions are closed, open episodes end as `cancelled`. The owner of
    /// a pool and admins may do so.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn close_pool(&self, pool: RunId) -> Result<PoolStatus, RequestError> {
        self.request(ClosePool { pool }).await
    }

    /// Ends a pool as [`AsyncCluster::close_pool`] does, and waits until the store has everything that it recorded or has
    /// set some of it aside; for `timeout` at most. Returns the pool's state then. Cancellation-safe: the pool ends all
    /// the same.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn close_and_store_pool(
        &self,
        pool: RunId,
        timeout: Duration,
    ) -> Result<PoolStatus, RequestError> {
        let mut status = self.close_pool(pool).await?;
        let stored = async {
            while status.is_on_its_way() {
                tokio::time::sleep(BETWEEN_LOOKS).await;
                status = self.pool_status(pool).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(timeout, stored).await {
            Ok(done) => done?,
            Err(_elapsed) => {}
        }
        Ok(status)
    }

    /// Asks a node to take no new sessions and to end when its last session has ended.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn drain(&self, node: impl Into<String>) -> Result<(), RequestError> {
        let Done {} = self.request(Drain { node: node.into() }).await?;
        Ok(())
    }

    /// Returns a page of the audit: who changed what, the newest lines first. For admins.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn audit(&self, query: AuditQuery) -> Result<AuditPage, RequestError> {
        self.request(query).await
    }

    /// Withdraws a request to drain: the node takes new sessions again, unless it has ended or is stopping.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn undrain(&self, node: impl Into<String>) -> Result<(), RequestError> {
        let Done {} = self.request(Undrain { node: node.into() }).await?;
        Ok(())
    }

    /// Sends the coordinator any request that has one answer. The coordinator is dialled anew if the connection was
    /// lost, and asked again while it is busy. Every request here does the same whether it is done once or twice. All
    /// attempts are one call with one [`CallId`], which stands in the logs of the coordinator and of nodes.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn request<R: Asks>(&self, request: R) -> Result<R::Answer, RequestError> {
        let (call, request) = (CallId::generate(), request.into());
        let answer = self.asked(call, &request).await?;
        answer.read().map_err(|error| RequestError::Call { call, error })
    }

    /// Asks until there is an answer. Boxed for the same reason as [`Connection::ask`].
    fn asked<'a>(
        &'a self,
        call: CallId,
        request: &'a Request,
    ) -> Pin<Box<dyn Future<Output = Result<UnreadAnswer, RequestError>> + Send + 'a>> {
        Box::pin(call.traced(request.word(), self.ask(call, request)))
    }

    async fn ask(&self, call: CallId, request: &Request) -> Result<UnreadAnswer, RequestError> {
        let deadline = Instant::now() + self.shared.timeout;
        let mut attempt = 0;
        loop {
            let connection = self.coordinator_until(deadline, call, request.word()).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match connection.ask(request, Some(call), left).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match ask_again(&error, attempt, deadline.saturating_duration_since(Instant::now())) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(RequestError::Call { call, error }),
            }
            attempt += 1;
        }
    }

    /// Returns the connection to the coordinator, dialling if there is none. A coordinator whose port is closed may be
    /// about to start: it is waited for as long as a silent one.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn coordinator(&self) -> Result<Connection, DialError> {
        let until = Instant::now() + self.shared.patience;
        loop {
            match self.shared.network.coordinator().await {
                Err(DialError::PortClosed { .. }) if Instant::now() + CLOSED_WAIT < until => {
                    tokio::time::sleep(CLOSED_WAIT).await;
                }
                dialled => return dialled,
            }
        }
    }

    /// Returns the connection as [`AsyncCluster::coordinator`] does, for a request that is waited for until `deadline`.
    ///
    /// # Errors
    /// [`RequestError::Dial`], and [`CallError::TimedOut`] at the deadline.
    pub(crate) async fn coordinator_until(
        &self,
        deadline: Instant,
        call: CallId,
        request: &'static str,
    ) -> Result<Connection, RequestError> {
        let error = CallError::TimedOut { request, after: self.shared.timeout };
        let dialled = timeout_at(deadline, self.coordinator()).await;
        dialled.map_err(|_| RequestError::Call { call, error })?.map_err(RequestError::Dial)
    }

    /// Returns how long a request may take.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// Closes all connections and waits until the peers know, or have not answered for a few round trips. Pools
    /// of this cluster are lost to their owner.
    pub async fn close(&self) {
        let dialer = self.shared.network.dialer();
        dialer.close(CloseCode::Finished, "the client has ended");
        dialer.closed().await;
    }

    pub(crate) fn network(&self) -> &Network {
        &self.shared.network
    }
}

impl std::fmt::Debug for AsyncCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AsyncCluster({})", self.shared.network.host_port())
    }
}

/// Returns the pause after which to repeat a request to the coordinator that failed for the `attempt`-th time (from 0);
/// `None` when repeating makes no sense, or when less time than that is `left`. Pure; the jitter comes from `left`.
pub fn ask_again(error: &CallError, attempt: u32, left: Duration) -> Option<Duration> {
    let wait = match error {
        CallError::Lost(_) if attempt < MAX_LOST => WAITS.first,
        CallError::Refused(refusal) if refusal.code == RefusalCode::Busy => {
            let told = Duration::from_millis(refusal.retry_after_ms.unwrap_or(0));
            with_jitter(WAITS.after(attempt).max(told), left)
        }
        _ => return None,
    };
    (wait < left).then_some(wait)
}

/// Returns the pause after which to dial a coordinator again that could not be reached for the `attempt`-th time (from
/// 0); `None` when dialling makes no sense, or when less time than that is `left`. Pure; the jitter comes from `left`.
fn dial_again(error: &DialError, attempt: u32, left: Duration) -> Option<Duration> {
    let wait = with_jitter(WAITS.after(attempt), left);
    (error.is_transient() && wait < left).then_some(wait)
}

/// Adds up to half of `base` at random, so that callers do not come back together. The last digits of the clock are as
/// good as random.
fn with_jitter(base: Duration, left: Duration) -> Duration {
    base + jitter(base / 2, left.as_nanos() as u64)
}

/// Parses the id of a pool or run as it is printed: 32 hexadecimal digits, with hyphens or without.
pub fn run_named(text: &str) -> Option<RunId> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let is_id = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| u128::from_str_radix(&digits, 16).ok()).flatten().map(RunId::from_u128)
}

/// Pause between two looks at a pool whose recordings are on their way to the store.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Pause before a coordinator whose port is closed is dialled again.
const CLOSED_WAIT: Duration = Duration::from_millis(100);
/// Time for which the port of a coordinator has to be closed before whoever connects is refused: one that starts again at
/// once listens by then.
const CLOSED_FOR: Duration = Duration::from_secs(1);
/// Waits before the coordinator is asked or dialled again.
const WAITS: Pauses = Pauses { first: Duration::from_millis(20), longest: Duration::from_secs(2) };
/// Number of lost connections after which a request is given up.
const MAX_LOST: u32 = 3;

#[cfg(test)]
mod tests {
    use rollhouse_wire::{Refusal, StoreRead};

    use super::*;

    #[test]
    fn only_a_busy_cluster_is_asked_again_and_not_before_it_said() {
        let left = Duration::from_secs(10);
        let busy = CallError::Refused(Refusal::busy("no room", 300));
        let wait = ask_again(&busy, 0, left).unwrap();
        assert!(wait >= Duration::from_millis(300) && wait < Duration::from_millis(450), "{wait:?}");
        assert_eq!(ask_again(&busy, 0, Duration::from_millis(100)), None);
        for code in [RefusalCode::NotFound, RefusalCode::Quota, RefusalCode::Forbidden] {
            assert_eq!(ask_again(&CallError::Refused(Refusal::new(code, "no")), 0, left), None);
        }
    }

    #[test]
    fn who_cannot_be_reached_is_dialled_again_until_the_timeout_and_who_refuses_is_not() {
        let silent = DialError::NoAddress("nowhere".to_owned());
        let mut left = Duration::from_secs(60);
        let mut attempts = 0;
        while let Some(wait) = dial_again(&silent, attempts, left) {
            assert!(wait <= WAITS.longest * 3 / 2, "{wait:?}");
            (left, attempts) = (left - wait, attempts + 1);
        }
        assert!(left < WAITS.longest * 3 / 2 && attempts > 20, "{left:?} left after {attempts} attempts");
        let refused = DialError::Refused(Refusal::new(RefusalCode::Unauthenticated, "the token was revoked"));
        assert_eq!(dial_again(&refused, 0, Duration::from_secs(60)), None);
    }

    /// Symptom: a request that may take a moment took as long as dialling a silent coordinator does, 5 s and more. Cause:
    /// its time counted for the answer alone. Fix: dialling is within it.
    #[tokio::test]
    async fn a_request_takes_no_longer_than_it_may_although_nobody_answers_the_dialling() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let ca = crate::trust_of(&format!("sha256:{}", "0".repeat(64))).unwrap();
        let dialer = Dialer::new(Identity::load(ca, None).unwrap(), Settings::default(), "test");
        let (timeout, patience) = (Duration::from_millis(20), Settings::default().handshake);
        let network = Network::new(dialer, address, None, AttachPlaces::new(None));
        let shared = Arc::new(Shared { network, transport: Transport::Auto, timeout, patience });
        let cluster = AsyncCluster { shared };
        let read = StoreRead { path: "x".to_owned(), offset: 0, bytes: 1 };
        let ends = [
            cluster.status().await.map(drop),
            cluster.read_store(read).await.map(drop),
            cluster.new_pool_id().await.map(drop),
        ];
        for end in ends {
            let Err(RequestError::Call { error: CallError::TimedOut { after, .. }, .. }) = end else {
                panic!("{end:?}");
            };
            assert_eq!(after, timeout);
        }
    }

    #[test]
    fn a_run_is_named_by_what_it_prints_and_by_nothing_else() {
        let run = RunId::generate();
        assert_eq!(run_named(&run.to_string()), Some(run));
        assert_eq!(run_named(&run.to_string().replace('-', "")), Some(run));
        for text in ["", "k3f9q2tz", "+1234567890123456789012345678901", &"0".repeat(33), "0x00"] {
            assert_eq!(run_named(text), None, "{text}");
        }
    }

    #[test]
    fn waits_grow_up_to_their_limit() {
        let busy = CallError::Refused(Refusal::new(RefusalCode::Busy, "no room"));
        for attempt in 0..40 {
            let wait = ask_again(&busy, attempt, Duration::from_secs(60)).unwrap();
            assert!(wait >= WAITS.first && wait <= WAITS.longest * 3 / 2, "{wait:?}");
        }
    }
}
