//! The blocking API, for callers without a runtime: the calling thread drives the connections itself.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_arena::Frame;
use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, EnvSpec, Outcome, RunId, StepColumns};
use rollhouse_engine::{AttributeValue, LaneWords, Method, Received, Reset, SchemaAnswer, StatisticsAnswer};
use rollhouse_engine::{Fragment, FragmentColumns, Image, PaceAnswer, PaceControl};
use rollhouse_wire::{
    Asks, AuditPage, AuditQuery, ClusterStatus, EnvList, NodeList, OpenPool, PolicyGiven, PolicyLags,
    PoolOpened, PoolStatus, SessionList, StoreRepaired,
};

use crate::address::Address;
use crate::cluster::{AsyncCluster, ConnectOptions};
use crate::driver::{Driver, Interrupted, Look};
use crate::error::{ConnectError, MethodError, OpenError, RequestError, StepError};
use crate::in_memory::Stepped;
use crate::pool::{AsyncPool, PoolRequest};
use crate::transport::Transport;

/// A cluster, reached through its coordinator. Clones are handles to the same connections, and can be used by
/// several threads at a time.
///
/// Calls block. While none is made, a thread of its own (`rollhouse-care`) keeps the connections alive; it ends
/// with the last handle, pools included. Not to be used inside a tokio runtime: see [`AsyncCluster`].
#[derive(Clone)]
pub struct Cluster {
    // Before the driver: what it holds is driven by it.
    inner: AsyncCluster,
    driver: Arc<Driver>,
    look: Option<Look>,
}

impl Cluster {
    /// Connects to the coordinator and is admitted by it. Blocks for as long as [`AsyncCluster::connect`] takes.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        address: &Address,
        options: ConnectOptions,
        look: Option<Look>,
    ) -> Result<Self, ConnectError> {
        let driver = Arc::new(Driver::new().map_err(ConnectError::Runtime)?);
        let connected = driver.run(AsyncCluster::connect(address, options), look.as_ref());
        let inner = connected.map_err(|Interrupted| ConnectError::Interrupted)??;
        Ok(Self { inner, driver, look })
    }

    /// Asks for a pool of lanes and attaches to its sessions. Waits while the cluster is busy, up to the timeout.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_pool(&self, request: PoolRequest) -> Result<Pool, OpenError> {
        let opened = self.driver.run(self.inner.open_pool(request), self.look.as_ref());
        let inner = opened.map_err(|Interrupted| OpenError::Request(RequestError::Interrupted))??;
        Ok(Pool { inner: Some(inner), cluster: self.clone() })
    }

    /// Returns the same cluster, whose calls nobody looks at: those of pools that another thread than the caller's plays.
    #[must_use]
    pub fn unlooked(&self) -> Self {
        Self { look: None, ..self.clone() }
    }

    /// Returns an id for a pool to be opened, as the coordinator accepts them from this client.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn new_pool_id(&self) -> Result<RunId, RequestError> {
        self.run(self.inner.new_pool_id())
    }

    /// Opens a pool whose nodes choose the actions themselves; it has no lanes to step here. Its id is from
    /// [`Cluster::new_pool_id`].
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn open_collecting(&self, open: OpenPool) -> Result<PoolOpened, RequestError> {
        self.run(self.inner.open_collecting(open))
    }

    /// Returns an overview of the cluster.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn status(&self) -> Result<ClusterStatus, RequestError> {
        self.run(self.inner.status())
    }

    /// Returns the nodes, by name, the first [`MAX_LISTED`](crate::MAX_LISTED) of them.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn nodes(&self) -> Result<NodeList, RequestError> {
        self.run(self.inner.nodes())
    }

    /// Returns the first of them, and how many more there are.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn first_nodes(&self, most: usize) -> Result<NodeList, RequestError> {
        self.run(self.inner.first_nodes(most))
    }

    /// Returns the envs of which pools can be opened, the first [`MAX_LISTED`](crate::MAX_LISTED) of them.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn envs(&self) -> Result<EnvList, RequestError> {
        self.run(self.inner.envs())
    }

    /// Returns the first of them, and how many more there are.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn first_envs(&self, most: usize) -> Result<EnvList, RequestError> {
        self.run(self.inner.first_envs(most))
    }

    /// Returns the open sessions, by name, the first [`MAX_LISTED`](crate::MAX_LISTED) of them.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn sessions(&self) -> Result<SessionList, RequestError> {
        self.run(self.inner.sessions())
    }

    /// Returns the first of them, and how many more there are.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn first_sessions(&self, most: usize) -> Result<SessionList, RequestError> {
        self.run(self.inner.first_sessions(most))
    }

    /// Returns the state of a pool.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn pool_status(&self, pool: RunId) -> Result<PoolStatus, RequestError> {
        self.run(self.inner.pool_status(pool))
    }

    /// Keeps a self-playing pool open, as [`AsyncCluster::keep_pool`] does.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn keep_pool(&self, pool: RunId) -> Result<PoolStatus, RequestError> {
        self.run(self.inner.keep_pool(pool))
    }

    /// Ends a pool, as [`AsyncCluster::close_pool`] does.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn close_pool(&self, pool: RunId) -> Result<PoolStatus, RequestError> {
        self.run(self.inner.close_pool(pool))
    }

    /// Ends a pool and waits for its recordings, as [`AsyncCluster::close_and_store_pool`] does.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn close_and_store_pool(&self, pool: RunId, timeout: Duration) -> Result<PoolStatus, RequestError> {
        self.run(self.inner.close_and_store_pool(pool, timeout))
    }

    /// Asks a node to take no new sessions and to end when its last session has ended.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn drain(&self, node: impl Into<String>) -> Result<(), RequestError> {
        self.run(self.inner.drain(node))
    }

    /// Returns a page of the audit: who changed what, the newest lines first. For admins.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn audit(&self, query: AuditQuery) -> Result<AuditPage, RequestError> {
        self.run(self.inner.audit(query))
    }

    /// Withdraws a request to drain.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn undrain(&self, node: impl Into<String>) -> Result<(), RequestError> {
        self.run(self.inner.undrain(node))
    }

    /// Has the coordinator read a segment of the store again and make anew what it keeps beside it. Takes a second or
    /// so for the largest segment.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn repair_store(&self, path: impl Into<String>) -> Result<StoreRepaired, RequestError> {
        self.run(self.inner.repair_store(path))
    }

    /// Sends the coordinator any request that has one answer.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn request<R: Asks>(&self, request: R) -> Result<R::Answer, RequestError> {
        self.run(self.inner.request(request))
    }

    /// Closes all connections and waits until the peers know, or have not answered for a few round trips. Pools
    /// of this cluster are lost to their owner.
    pub fn close(&self) {
        // Nobody looks, so nothing interrupts it.
        let _closed = self.driver.run(self.inner.close(), None);
    }

    pub(crate) fn run<T>(
        &self,
        future: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        self.drive(future)
    }

    /// Drives a future that has errors of its own.
    pub(crate) fn drive<T, E: From<RequestError>>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let done = self.driver.run(future, self.look.as_ref());
        done.map_err(|Interrupted| RequestError::Interrupted)?
    }

    pub(crate) fn inner(&self) -> &AsyncCluster {
        &self.inner
    }
}

/// A pool: lanes of one env on one or more nodes, stepped as one batch. Row i belongs to lane i.
///
/// It has the engine's semantics: three autoreset modes, partial resets, lockstep and first-done. A step is one
/// round trip to each node. What a step returned stays in memory until the second next step or reset.
///
/// When a connection is lost, it is made again and the last request repeated, which steps nothing twice. Lanes
/// whose node went away go on elsewhere: where they stood, or with new episodes, see [`OnLoss`](crate::OnLoss).
/// A node that was restarted says so as soon as it is reached; one that stays silent is waited for until the
/// coordinator takes it for lost, about 7 s. Without a coordinator that is 15 s until its connection counts as lost, then
/// as long as a lease, 30 s. Calls wait that long, or up to their timeout.
///
/// When it is dropped, it asks the coordinator to close it, without waiting for the answer.
#[derive(Debug)]
pub struct Pool {
    /// The pool; `None` only while it is closed.
    inner: Option<AsyncPool>,
    cluster: Cluster,
}

impl Pool {
    /// Returns the pool with calls that nobody looks at: for another thread than the caller's.
    #[must_use]
    pub fn unlooked(mut self) -> Self {
        self.cluster = self.cluster.unlooked();
        self
    }

    /// Returns the pool's id, which is also the run that its episodes are named by.
    pub fn id(&self) -> RunId {
        self.pool().id()
    }

    /// Returns the env as the nodes have it.
    pub fn spec(&self) -> &EnvSpec {
        self.pool().spec()
    }

    /// Returns the columns in which something can be noted of each step.
    pub fn step_columns(&self) -> &StepColumns {
        self.pool().step_columns()
    }

    /// Returns the number of lanes: rows of the batch.
    pub fn lanes(&self) -> usize {
        self.pool().lanes()
    }

    /// Returns the place of each session: the name of its node, and its lanes of the batch.
    pub fn sessions(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.pool().sessions()
    }

    /// Returns how long calls wait for answers. At first this is the cluster's timeout.
    pub fn timeout(&self) -> Duration {
        self.pool().timeout()
    }

    /// Sets how long calls wait for answers.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.pool_mut().set_timeout(timeout);
    }

    /// Returns the transport by which each session is stepped: see [`AsyncPool::transports`].
    pub fn transports(&self) -> impl Iterator<Item = Option<Transport>> {
        self.pool().transports()
    }

    /// Returns a handle that keeps the memory of frames alive: see [`AsyncPool::memory`].
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.pool().memory()
    }

    /// Returns the addresses of that memory, for callers that pin its pages.
    pub fn addresses(&self) -> Range<usize> {
        self.pool().addresses()
    }

    /// Returns whether frames and actions lie in the memory of the one session: see [`AsyncPool::is_in_place`].
    #[inline]
    pub fn is_in_place(&self) -> bool {
        self.pool().is_in_place()
    }

    /// Begins episodes. Episodes that are open in those lanes end as `cancelled`; lanes that were sent and not
    /// received are forgotten.
    ///
    /// # Errors
    /// See [`StepError`].
    pub fn reset(&mut self, reset: &Reset) -> Result<Frame<'_>, StepError> {
        self.step_with(async |pool| pool.reset(reset).await.map(drop))?;
        self.frame()
    }

    /// Has the lanes play by a policy from now on: see [`AsyncPool::follow`].
    ///
    /// # Errors
    /// See [`StepError`].
    pub fn follow(&mut self, policy: &PolicyGiven, file: Bytes) -> Result<&StepColumns, StepError> {
        self.step_with(async |pool| pool.follow(policy, file).await.map(drop))?;
        self.pool().noted().ok_or_else(|| rollhouse_engine::StepError::NoPolicy.into())
    }

    /// Returns what the policy notes of each step by which the lanes play; `None` without one.
    pub fn noted(&self) -> Option<&StepColumns> {
        self.pool().noted()
    }

    /// Has a node count what was measured of the policy: see [`AsyncPool::report_lags`].
    pub fn report_lags(&mut self, lags: PolicyLags) {
        self.pool_mut().report_lags(lags);
    }

    /// Returns the columns of the fragments of this pool; `None` before it follows a policy.
    pub fn fragment_columns(&self) -> Option<FragmentColumns> {
        self.pool().fragment_columns()
    }

    /// Plays until the fragment is full: see [`AsyncPool::play`].
    ///
    /// # Errors
    /// See [`StepError`].
    pub fn play(&mut self, at: u64, fragment: &mut Fragment) -> Result<(), StepError> {
        self.step_with(async |pool| pool.play(at, fragment).await)
    }

    /// Returns the column of actions, to be filled before [`Pool::step`].
    pub fn actions(&mut self) -> ColumnMut<'_> {
        self.pool_mut().actions()
    }

    /// Returns the column of actions, if it is the memory that the node reads: see [`AsyncPool::actions_in_place`].
    pub fn actions_in_place(&mut self) -> Option<ColumnMut<'_>> {
        self.pool_mut().actions_in_place()
    }

    /// Steps every lane once with the actions in [`Pool::actions`].
    ///
    /// # Errors
    /// See [`StepError`]; nothing has moved, unless the error says so.
    pub fn step(&mut self) -> Result<Frame<'_>, StepError> {
        let Self { inner, cluster } = self;
        let pool = inner.as_mut().expect("only close and drop take it");
        match pool.step_in_memory(cluster.look.as_ref())? {
            Stepped::Done => {}
            Stepped::NotInMemory => self.step_with(async |pool| pool.step().await.map(drop))?,
            Stepped::CarryOn => self.step_with(async |pool| pool.finish_step().await)?,
        }
        self.frame()
    }

    /// Returns the newest rows of live lanes at once: see [`AsyncPool::latest`].
    ///
    /// # Errors
    /// See [`StepError`].
    pub fn latest(&mut self) -> Result<Frame<'_>, StepError> {
        self.step_with(async |pool| pool.latest().await.map(drop))?;
        self.frame()
    }

    /// Puts actions into the queues of live lanes: see [`AsyncPool::act`].
    ///
    /// # Errors
    /// See [`StepError`]; nothing is put anywhere then.
    pub fn act(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<Frame<'_>, StepError> {
        self.step_with(async |pool| pool.act(lanes, actions).await.map(drop))?;
        self.frame()
    }

    /// Has something happen to the clocks of live lanes: see [`AsyncPool::control`].
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn control(&mut self, lanes: &[u32], control: PaceControl) -> Result<Vec<PaceAnswer>, MethodError> {
        self.ask_with(async |pool| pool.control(lanes, control).await)
    }

    /// Returns the newest frame.
    ///
    /// # Errors
    /// See [`AsyncPool::frame`].
    pub fn frame(&mut self) -> Result<Frame<'_>, StepError> {
        self.pool_mut().frame()
    }

    /// Sends actions for some lanes, row i of `actions` for `lanes[i]`. Returns when they are on their way.
    ///
    /// # Errors
    /// See [`AsyncPool::send`].
    pub fn send(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        self.step_with(async |pool| pool.send(lanes, actions).await)
    }

    /// Waits until at least `min` lanes that were sent are done. Returns all that are done.
    ///
    /// # Errors
    /// See [`AsyncPool::recv`].
    pub fn recv(&mut self, min: usize, timeout: Duration) -> Result<Received, StepError> {
        let began = Instant::now();
        let Self { inner, cluster } = self;
        let pool = inner.as_mut().expect("only close and drop take it");
        pool.wait_in_memory(min, timeout.min(LONGEST_WAIT), cluster.look.as_ref())?;
        let left = timeout.saturating_sub(began.elapsed());
        self.step_with(async |pool| pool.recv(min, left).await)
    }

    /// Returns the number of lanes that were sent and not received.
    pub fn outstanding(&self) -> usize {
        self.pool().outstanding()
    }

    /// Calls a method of the lanes of one session: see [`AsyncPool::call`].
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn call<M: Method>(&mut self, session: usize, params: &M::Params) -> Result<M::Answer, MethodError>
    where
        M::Params: Sync,
    {
        self.ask_with(async |pool| pool.call::<M>(session, params).await)
    }

    /// Returns an attribute of every lane: see [`AsyncPool::get_attr`].
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn get_attr(&mut self, name: &str) -> Result<Vec<AttributeValue>, MethodError> {
        self.ask_with(async |pool| pool.get_attr(name).await)
    }

    /// Sets an attribute of every lane: see [`AsyncPool::set_attr`].
    ///
    /// # Errors
    /// See [`AsyncPool::set_attr`].
    pub fn set_attr(&mut self, name: &str, values: &[AttributeValue]) -> Result<(), MethodError> {
        self.ask_with(async |pool| pool.set_attr(name, values).await)
    }

    /// Calls a method of the env on one lane: see [`AsyncPool::call_method`].
    ///
    /// # Errors
    /// See [`AsyncPool::call_method`].
    pub fn call_method(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, MethodError> {
        self.ask_with(async |pool| pool.call_method(lane, method, payload).await)
    }

    /// Says which version of the policy chooses the actions from now on: see [`AsyncPool::set_policy_version`].
    ///
    /// # Errors
    /// See [`AsyncPool::set_policy_version`].
    pub fn set_policy_version(&mut self, version: u64) -> Result<(), MethodError> {
        self.ask_with(async |pool| pool.set_policy_version(version).await)
    }

    /// Notes what step columns have in the steps that lanes take from now on: see [`AsyncPool::note`].
    ///
    /// # Errors
    /// See [`AsyncPool::note`].
    pub fn note(
        &mut self,
        lanes: Option<&[u32]>,
        columns: &[(usize, ColumnData)],
    ) -> Result<(), MethodError> {
        self.ask_with(async |pool| pool.note(lanes, columns).await)
    }

    /// Returns images of those lanes as they are now: see [`AsyncPool::render`].
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn render(
        &mut self,
        lanes: Range<usize>,
        size: Option<(u32, u32)>,
    ) -> Result<Vec<Image>, MethodError> {
        self.ask_with(async |pool| pool.render(lanes, size).await)
    }

    /// Returns what lanes say in words, as [`AsyncPool::words`] does.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn words(&mut self, lanes: &[u32]) -> Result<Vec<LaneWords>, MethodError> {
        self.ask_with(async |pool| pool.words(lanes).await)
    }

    /// Returns what the lanes of each session have done, and how the time was spent.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn statistics(&mut self) -> Result<Vec<StatisticsAnswer>, MethodError> {
        self.ask_with(async |pool| pool.statistics().await)
    }

    /// Returns the description of the lanes, as the first session has them.
    ///
    /// # Errors
    /// See [`MethodError`].
    pub fn schema(&mut self) -> Result<SchemaAnswer, MethodError> {
        self.ask_with(async |pool| pool.schema().await)
    }

    /// Returns why a lane is lost; `None` if it is not.
    pub fn loss(&self, lane: usize) -> Option<Outcome> {
        self.pool().loss(lane)
    }

    /// Returns the number of lanes that are lost now.
    pub fn lost(&self) -> usize {
        self.pool().lost()
    }

    /// Returns the cluster that the pool belongs to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Ends the pool and returns its last state: its sessions are closed, open episodes end as `cancelled`.
    ///
    /// # Errors
    /// See [`RequestError`]; its streams are ended in any case, and its sessions with their lease.
    pub fn close(mut self) -> Result<PoolStatus, RequestError> {
        let pool = self.inner.take().expect("only close and drop take it");
        self.cluster.run(pool.close())
    }

    fn step_with<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut AsyncPool) -> Result<T, StepError>,
    ) -> Result<T, StepError> {
        let Self { inner, cluster } = self;
        let pool = inner.as_mut().expect("only close and drop take it");
        cluster.driver.run(call(pool), cluster.look.as_ref()).map_err(|Interrupted| StepError::Interrupted)?
    }

    fn ask_with<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut AsyncPool) -> Result<T, MethodError>,
    ) -> Result<T, MethodError> {
        let Self { inner, cluster } = self;
        let pool = inner.as_mut().expect("only close and drop take it");
        cluster
            .driver
            .run(call(pool), cluster.look.as_ref())
            .map_err(|Interrupted| MethodError::Interrupted)?
    }

    fn pool(&self) -> &AsyncPool {
        self.inner.as_ref().expect("only close and drop take it")
    }

    fn pool_mut(&mut self) -> &mut AsyncPool {
        self.inner.as_mut().expect("only close and drop take it")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(mut pool) = self.inner.take() {
            pool.end_streams();
            let (cluster, id) = (self.cluster.inner.clone(), pool.id());
            // Nobody is left to be told of errors; if it cannot be asked, the leases end the sessions.
            self.cluster.driver.begin(async move { drop(cluster.close_pool(id).await) });
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({:?})", self.inner)
    }
}

/// Longest time for which a caller waits for lanes in memory at a time.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);
