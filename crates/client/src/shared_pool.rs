//! A pool that many tasks use. One task owns it; callers have handles, and lanes of their own.
//!
//! ```text
//! SharedPool, SharedLanes ── request ──▶ mailbox (MAX_WAITING_REQUESTS) ──▶ owner ── AsyncPool
//!              ▲                                                              │
//!              └────────────── rows, one for each lane ◀── shelf ◀────────────┘
//! ```
//!
//! Rows do not travel with an answer that could be dropped with its future: they lie on the shelf, a place for each
//! lane, until they are taken in the very poll that returns them.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{ColumnData, ColumnRef, EnvSpec, Outcome, RunId};
use rollhouse_engine::{
    AttributeValue, Image, LaneWords, Method, Received, Reset, SchemaAnswer, StatisticsAnswer,
    StepError as Rules,
};
use rollhouse_wire::PoolStatus;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use self::shelf::Shelf;
use crate::error::{MethodError, RequestError, StepError};
use crate::pool::AsyncPool;

mod shelf;

/// Most requests that wait for the pool, of all its callers. One more is [`SharedError::Busy`].
pub const MAX_WAITING_REQUESTS: usize = 1024;

/// Most requests that wait of one handle, or of the lanes of one caller: others find room whatever it does.
pub const MAX_WAITING_OF_ONE: usize = 16;

/// A pool that many tasks use. Clones are handles to the same pool, each with a share of its own of the requests that
/// may wait.
///
/// A task owns the pool and does what it is asked for in the order in which it was asked. Callers [take](Self::take)
/// lanes, and step those without waiting for anybody else's. What is asked of the pool as a whole, resets and commands
/// wait until every lane that was sent is done, up to the pool's timeout.
///
/// No call waits for room: if too many requests wait already it fails at once with [`SharedError::Busy`]. A request is
/// made when its future is polled first, and carried out from then on even if the future is dropped: nothing is done
/// twice. Of a dropped call the answer is lost, but never a row: see [`SharedLanes`].
///
/// When the last handle is dropped, the pool is closed.
///
/// ```no_run
/// # async fn serve(cluster: rollhouse_client::AsyncCluster) -> Result<(), Box<dyn std::error::Error>> {
/// use rollhouse_client::{PoolRequest, SharedPool};
/// use rollhouse_core::ColumnRef;
/// use rollhouse_engine::Reset;
///
/// let pool = cluster.open_pool(PoolRequest::new("CartPole-v1", 64)).await?;
/// let pool = SharedPool::start(pool, &Reset::default()).await?;
/// let mut lanes = pool.take(&[3, 4])?;
/// let first = lanes.recv(2, pool.timeout()).await?;
/// let rows = lanes.step(ColumnRef::I64(&[0, 1])).await?;
/// assert_eq!((first.reset, rows.lanes), (vec![1, 1], vec![3, 4]));
/// pool.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SharedPool {
    requests: mpsc::Sender<Request>,
    /// The room that this handle has in the mailbox.
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// Lanes of a shared pool that are one caller's until this is dropped. Lanes are named by their numbers in the pool.
///
/// Futures of its methods can be dropped at any point. A row that nobody has received stays with its lane: the next
/// [`SharedLanes::recv`] of the lane's caller has it, whoever that is by then. A lane that was sent and not received is
/// not sent again.
#[derive(Debug)]
pub struct SharedLanes {
    pool: SharedPool,
    lanes: Vec<u32>,
    changed: Arc<Notify>,
}

/// Why a call of a shared pool failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SharedError {
    /// As many requests wait as may, of this caller or of all; nothing was asked.
    #[error("too many requests wait for the pool, ask again later")]
    Busy,
    /// The pool was closed.
    #[error("the pool is closed")]
    Closed,
    /// The task that owned the pool has ended without closing it, by a panic or with its runtime.
    #[error("the task that owned the pool has ended")]
    Failed,
    /// The lane is another caller's.
    #[error("lane {lane} is in use")]
    InUse {
        /// The lane's number in the pool.
        lane: u32,
    },
    /// The lane is not one of the caller's.
    #[error("lane {lane} was not taken")]
    NotTaken {
        /// The lane's number in the pool.
        lane: u32,
    },
    /// Lanes that were sent were not done in time; nothing was asked.
    #[error("lanes that were sent are not done within the timeout of {} s", .after.as_secs_f64())]
    UnderWay {
        /// Time that was waited.
        after: Duration,
    },
    /// A reset, step, send or receive failed.
    #[error(transparent)]
    Step(Arc<StepError>),
    /// A command failed.
    #[error(transparent)]
    Method(Arc<MethodError>),
    /// The coordinator did not close the pool.
    #[error(transparent)]
    Request(Arc<RequestError>),
}

impl From<StepError> for SharedError {
    fn from(error: StepError) -> Self {
        Self::Step(Arc::new(error))
    }
}

impl From<Rules> for SharedError {
    fn from(error: Rules) -> Self {
        StepError::from(error).into()
    }
}

impl From<MethodError> for SharedError {
    fn from(error: MethodError) -> Self {
        Self::Method(Arc::new(error))
    }
}

/// The part of a shared pool that its owner and all its callers have.
#[derive(Debug)]
struct Shared {
    id: RunId,
    spec: EnvSpec,
    lanes: usize,
    timeout: Duration,
    shelf: Mutex<Shelf>,
}

struct Request {
    task: Task,
    /// Free again once the owner has taken the request.
    room: OwnedSemaphorePermit,
}

enum Task {
    /// Lanes whose places say that they were asked for, with their actions.
    Send(Vec<u32>, ColumnData),
    Run(Run),
    Close(oneshot::Sender<Result<PoolStatus, RequestError>>),
}

/// Work with the whole pool, or with the reason why it cannot be done.
type Run = Box<dyn for<'a> FnOnce(Result<&'a mut AsyncPool, SharedError>) -> Called<'a, ()> + Send>;

type Called<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl SharedPool {
    /// Resets the pool and shares it; the first row of each lane lies ready to be received. The owner is a task of the
    /// runtime that this is called on.
    ///
    /// # Errors
    /// See [`AsyncPool::reset`]; the pool is dropped then.
    pub async fn start(mut pool: AsyncPool, reset: &Reset) -> Result<Self, StepError> {
        pool.reset(reset).await?;
        let (id, spec, lanes, timeout) = (pool.id(), pool.spec().clone(), pool.lanes(), pool.timeout());
        let shelf = Mutex::new(Shelf::new(&pool.kind, lanes));
        let shared = Arc::new(Shared { id, spec, lanes, timeout, shelf });
        shared.shelf.lock().begin(&mut pool, |_| true)?;
        let (requests, mailbox) = mpsc::channel(MAX_WAITING_REQUESTS);
        // Task: owner of a shared pool.
        tokio::spawn(own(pool, mailbox, Arc::clone(&shared)));
        Ok(Self { requests, room: room(), shared })
    }

    /// Returns the pool's id, which is also the run that its episodes are named by.
    pub fn id(&self) -> RunId {
        self.shared.id
    }

    /// Returns the env as the nodes have it.
    pub fn spec(&self) -> &EnvSpec {
        &self.shared.spec
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.shared.lanes
    }

    /// Returns how long calls wait for answers.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// Takes lanes for one caller. A lane that was another's before is where that one has left it: on its way, or with a
    /// row to be received.
    ///
    /// # Errors
    /// [`SharedError::InUse`], [`NoSuchLane`](Rules::NoSuchLane), or [`LaneOutstanding`](Rules::LaneOutstanding) for a
    /// lane that is named twice; none is taken then.
    pub fn take(&self, lanes: &[u32]) -> Result<SharedLanes, SharedError> {
        let changed = Arc::new(Notify::new());
        self.shared.shelf.lock().lend(lanes, &changed)?;
        Ok(SharedLanes { pool: self.clone(), lanes: lanes.to_vec(), changed })
    }

    /// Begins episodes in all lanes, whoever's they are; rows that were not received are replaced by the new ones, and lanes
    /// that wait to be sent are not. This is how a pool goes on after an error that says that it has to be reset.
    ///
    /// # Errors
    /// See [`SharedError`] and [`AsyncPool::reset`].
    pub async fn reset(&self, reset: Reset) -> Result<(), SharedError> {
        let shared = Arc::clone(&self.shared);
        self.ask(move |pool| {
            Box::pin(async move {
                pool.reset(&reset).await?;
                let begun = |lane: usize| reset.mask.get(lane).copied().unwrap_or(true);
                shared.shelf.lock().begin(pool, begun)
            })
        })
        .await
    }

    /// Calls a method of the lanes of one session: see [`AsyncPool::call`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn call<M: Method>(&self, session: usize, params: M::Params) -> Result<M::Answer, SharedError>
    where
        M::Params: Send + Sync + 'static,
        M::Answer: Send + 'static,
    {
        self.ask(move |pool| Box::pin(async move { pool.call::<M>(session, &params).await })).await
    }

    /// Returns an attribute of every lane: see [`AsyncPool::get_attr`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn get_attr(&self, name: String) -> Result<Vec<AttributeValue>, SharedError> {
        self.ask(move |pool| Box::pin(async move { pool.get_attr(&name).await })).await
    }

    /// Sets an attribute of every lane: see [`AsyncPool::set_attr`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn set_attr(&self, name: String, values: Vec<AttributeValue>) -> Result<(), SharedError> {
        self.ask(move |pool| Box::pin(async move { pool.set_attr(&name, &values).await })).await
    }

    /// Says which version of the policy chooses the actions from now on: see [`AsyncPool::set_policy_version`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn set_policy_version(&self, version: u64) -> Result<(), SharedError> {
        self.ask(move |pool| Box::pin(pool.set_policy_version(version))).await
    }

    /// Returns what the lanes of each session have done: see [`AsyncPool::statistics`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn statistics(&self) -> Result<Vec<StatisticsAnswer>, SharedError> {
        self.ask(|pool| Box::pin(pool.statistics())).await
    }

    /// Returns the description of the lanes, as the first session has them.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn schema(&self) -> Result<SchemaAnswer, SharedError> {
        self.ask(|pool| Box::pin(pool.schema())).await
    }

    /// Closes the pool for all callers and returns its last state. Requests that wait behind this one are
    /// [`SharedError::Closed`]; rows that lie ready can still be received.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn close(&self) -> Result<PoolStatus, SharedError> {
        let (answer, answered) = oneshot::channel();
        self.post(Task::Close(answer)).map_err(|error| self.shared.named(error))?;
        let closed = answered.await.map_err(|_| self.shared.ended())?;
        closed.map_err(|error| SharedError::Request(Arc::new(error)))
    }

    /// Has the owner work with the whole pool, once no lane is under way.
    async fn ask<T, E>(
        &self,
        call: impl for<'a> FnOnce(&'a mut AsyncPool) -> Called<'a, Result<T, E>> + Send + 'static,
    ) -> Result<T, SharedError>
    where
        T: Send + 'static,
        E: Into<SharedError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let run: Run = Box::new(move |pool| {
            Box::pin(async move {
                let done = match pool {
                    Ok(pool) => call(pool).await.map_err(E::into),
                    Err(error) => Err(error),
                };
                // A caller that has gone does not want it.
                let _sent = answer.send(done);
            })
        });
        self.post(Task::Run(run)).map_err(|error| self.shared.named(error))?;
        answered.await.map_err(|_| self.shared.ended())?
    }

    /// Puts a request into the mailbox, or says that it is full or closed.
    fn post(&self, task: Task) -> Result<(), SharedError> {
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| SharedError::Busy)?;
        self.requests.try_send(Request { task, room }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SharedError::Busy,
            mpsc::error::TrySendError::Closed(_) => SharedError::Closed,
        })
    }
}

impl Clone for SharedPool {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), room: room(), shared: Arc::clone(&self.shared) }
    }
}

impl SharedLanes {
    /// Returns the lanes, in the order in which they were taken.
    pub fn lanes(&self) -> &[u32] {
        &self.lanes
    }

    /// Returns the pool.
    pub const fn pool(&self) -> &SharedPool {
        &self.pool
    }

    /// Returns why a lane is lost, as of the last rows of the pool; `None` if it is not.
    pub fn loss(&self, lane: u32) -> Option<Outcome> {
        self.pool.shared.shelf.lock().loss(lane)
    }

    /// Steps all these lanes once, row i of `actions` for the lane at i, and returns their rows in that order. It waits
    /// for no other caller's lanes. If it is dropped after it was polled, the lanes are stepped, and
    /// [`SharedLanes::recv`] has the rows.
    ///
    /// # Errors
    /// See [`SharedLanes::send`] and [`SharedLanes::recv`].
    pub async fn step(&mut self, actions: ColumnRef<'_>) -> Result<Received, SharedError> {
        let lanes = self.lanes.clone();
        self.send(&lanes, actions).await?;
        self.recv(lanes.len(), self.pool.timeout()).await
    }

    /// Sends actions for some of these lanes, row i of `actions` for `lanes[i]`. Returns when they are on their way. If
    /// it is dropped after it was polled, they are sent all the same; a refusal is then returned by the next call.
    ///
    /// # Errors
    /// [`LaneOutstanding`](Rules::LaneOutstanding) for a lane whose row was not received yet; see also [`SharedError`]
    /// and [`AsyncPool::send`]. Nothing is sent then.
    pub async fn send(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), SharedError> {
        self.refuse_others(lanes)?;
        let task = Task::Send(lanes.to_vec(), ColumnData::from(actions));
        let posted = {
            let mut shelf = self.pool.shared.shelf.lock();
            shelf.refuse_send(lanes)?;
            self.pool.post(task).inspect(|()| shelf.asked(lanes))
        };
        posted.map_err(|error| self.pool.shared.named(error))?;
        self.until(|shelf| shelf.is_sent(lanes)).await
    }

    /// Waits until at least `min` of these lanes that were sent are done. Returns the rows of all that are, in the order of
    /// [`SharedLanes::lanes`]. A dropped future has taken no row.
    ///
    /// # Errors
    /// [`NothingOutstanding`](Rules::NothingOutstanding) if fewer than `min` (or none) of these lanes are outstanding;
    /// [`TimedOut`](Rules::TimedOut) after `timeout`, and the lanes stay outstanding. A refusal of lanes that did not
    /// move, and are not outstanding any more.
    pub async fn recv(&mut self, min: usize, timeout: Duration) -> Result<Received, SharedError> {
        let received = self.until(|shelf| shelf.receive(&self.lanes, min.max(1)));
        tokio::time::timeout(timeout, received).await.unwrap_or(Err(Rules::TimedOut.into()))
    }

    /// Begins episodes in these lanes and returns their first rows. Seeds, mask and options have a row for each of these
    /// lanes, as those of [`AsyncPool::reset`] for each of the pool. Rows of theirs that were not received are replaced. If it
    /// is dropped after it was polled, [`SharedLanes::recv`] has the rows.
    ///
    /// # Errors
    /// See [`SharedError`] and [`AsyncPool::reset`]: a pool whose last reset has failed is reset as a whole.
    pub async fn reset(&mut self, reset: &Reset) -> Result<Received, SharedError> {
        let whole = self.whole(reset)?;
        let flagged = |(row, _): &(usize, &u32)| reset.mask.get(*row).copied().unwrap_or(true);
        let begun: Vec<u32> = self.lanes.iter().enumerate().filter(flagged).map(|(_, lane)| *lane).collect();
        self.pool.reset(whole).await?;
        self.pool.shared.shelf.lock().take(&begun)
    }

    /// Calls a method of the env on one of these lanes: see [`AsyncPool::call_method`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn call_method(
        &mut self,
        lane: u32,
        method: String,
        payload: String,
    ) -> Result<String, SharedError> {
        self.refuse_others(&[lane])?;
        let called = self.pool.ask(move |pool| {
            Box::pin(async move { pool.call_method(lane as usize, &method, &payload).await })
        });
        called.await
    }

    /// Notes what step columns have in the steps that these lanes take from now on, with a row for each of them: see
    /// [`AsyncPool::note`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn note(&mut self, columns: Vec<(usize, ColumnData)>) -> Result<(), SharedError> {
        let lanes = self.lanes.clone();
        self.pool.ask(move |pool| Box::pin(async move { pool.note(Some(&lanes), &columns).await })).await
    }

    /// Returns images of these lanes as they are now: see [`AsyncPool::render`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn render(&mut self, size: Option<(u32, u32)>) -> Result<Vec<Image>, SharedError> {
        let lanes = self.lanes.clone();
        let drawn = self.pool.ask(move |pool| {
            Box::pin(async move {
                let mut images = Vec::with_capacity(lanes.len());
                for lane in lanes.into_iter().map(|lane| lane as usize) {
                    images.extend(pool.render(lane..lane + 1, size).await?);
                }
                Ok::<_, MethodError>(images)
            })
        });
        drawn.await
    }

    /// Returns what these lanes say in words: see [`AsyncPool::words`].
    ///
    /// # Errors
    /// See [`SharedError`].
    pub async fn words(&mut self) -> Result<Vec<LaneWords>, SharedError> {
        let lanes = self.lanes.clone();
        self.pool.ask(move |pool| Box::pin(async move { pool.words(&lanes).await })).await
    }

    /// Waits until `look` finds what it looks for, in the poll in which it does.
    async fn until<T>(
        &self,
        look: impl Fn(&mut Shelf) -> ControlFlow<Result<T, SharedError>>,
    ) -> Result<T, SharedError> {
        loop {
            if let ControlFlow::Break(found) = look(&mut self.pool.shared.shelf.lock()) {
                return found;
            }
            self.changed.notified().await;
        }
    }

    fn refuse_others(&self, lanes: &[u32]) -> Result<(), SharedError> {
        match lanes.iter().find(|lane| !self.lanes.contains(lane)) {
            Some(&lane) => Err(SharedError::NotTaken { lane }),
            None => Ok(()),
        }
    }

    /// Returns the reset of the pool that resets these lanes alone.
    fn whole(&self, reset: &Reset) -> Result<Reset, SharedError> {
        let (all, own) = (self.pool.lanes(), self.lanes.len());
        let lengths = [("seeds", reset.seeds.len()), ("mask flags", reset.mask.len())];
        let lengths = lengths.into_iter().filter(|(_, given)| *given != 0);
        let lengths =
            lengths.chain(reset.options.values().map(|values| ("values of an option", values.len())));
        for (what, given) in lengths {
            let is_for_all = what == "values of an option" && given == 1;
            if given != own && !is_for_all {
                return Err(Rules::Length { what, given, wanted: own }.into());
            }
        }
        let mut whole = Reset { mask: vec![false; all], ..Reset::default() };
        if !reset.seeds.is_empty() {
            whole.seeds = vec![None; all];
        }
        for (name, values) in &reset.options {
            let count = if values.len() == 1 { 1 } else { all };
            whole.options.insert(name.clone(), vec![values[0].clone(); count]);
        }
        for (row, lane) in self.lanes.iter().map(|&lane| lane as usize).enumerate() {
            whole.mask[lane] = reset.mask.get(row).copied().unwrap_or(true);
            if let Some(seed) = reset.seeds.get(row) {
                whole.seeds[lane] = *seed;
            }
            for (name, values) in reset.options.iter().filter(|(_, values)| values.len() > 1) {
                if let Some(all) = whole.options.get_mut(name) {
                    all[lane] = values[row].clone();
                }
            }
        }
        if !whole.mask.contains(&false) {
            whole.mask.clear();
        }
        Ok(whole)
    }
}

impl Drop for SharedLanes {
    fn drop(&mut self) {
        self.pool.shared.shelf.lock().give_back(&self.lanes);
    }
}

impl Shared {
    /// Returns the error of a request that was not taken; of a mailbox that is closed, why it is.
    fn named(&self, error: SharedError) -> SharedError {
        if matches!(error, SharedError::Closed) { self.ended() } else { error }
    }

    /// Returns the error of a pool whose owner is no more.
    fn ended(&self) -> SharedError {
        self.shelf.lock().ended.clone().unwrap_or(SharedError::Failed)
    }
}

fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_WAITING_OF_ONE))
}

/// Tells callers that the owner is no more, however it has ended.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.shelf.lock().end(SharedError::Failed);
    }
}

/// Owns the pool until it is closed or nobody has a handle any more.
async fn own(mut pool: AsyncPool, mut mailbox: mpsc::Receiver<Request>, shared: Arc<Shared>) {
    let ending = Ending(shared);
    let shelf = &ending.0.shelf;
    let answer = loop {
        // Neither waits for the other for ever: one of those that are ready is drawn.
        let request = tokio::select! {
            request = mailbox.recv() => request,
            received = pool.recv(1, LONG), if pool.outstanding() > 0 => {
                shelf.lock().land(&pool, received);
                continue;
            }
        };
        let Some(Request { task, room }) = request else { break None };
        drop(room);
        match task {
            Task::Send(lanes, actions) => {
                let overtaken = shelf.lock().overtaken(&lanes);
                let sent = match overtaken {
                    Some(lane) => Err(Rules::LaneOutstanding { lane }.into()),
                    None => pool.send(&lanes, actions.as_ref()).await,
                };
                shelf.lock().sent(&lanes, sent);
            }
            Task::Run(run) => run(rest(&mut pool, shelf).await).await,
            Task::Close(answer) => break Some(answer),
        }
    };
    mailbox.close();
    let closed = pool.close().await;
    shelf.lock().end(SharedError::Closed);
    // What still waits ends with the mailbox.
    if let Some(answer) = answer {
        let _sent = answer.send(closed);
    }
}

/// Returns the pool once no lane is under way, if that is within its timeout.
async fn rest<'a>(pool: &'a mut AsyncPool, shelf: &Mutex<Shelf>) -> Result<&'a mut AsyncPool, SharedError> {
    let after = pool.timeout();
    let deadline = tokio::time::Instant::now() + after;
    while pool.outstanding() > 0 {
        let received = tokio::time::timeout_at(deadline, pool.recv(1, LONG)).await;
        let Ok(received) = received else { return Err(SharedError::UnderWay { after }) };
        shelf.lock().land(pool, received);
    }
    Ok(pool)
}

/// Time for which lanes are waited for at a time.
const LONG: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_nodes::Nodes;
    use crate::{AsyncCluster, PoolRequest};

    #[tokio::test]
    async fn a_panic_of_the_owner_is_an_error_of_every_caller() {
        let nodes = Nodes::start(1);
        let cluster = AsyncCluster::connect(&nodes.address(), nodes.options()).await.unwrap();
        let pool = cluster.open_pool(PoolRequest::new("CartPole-v1", 2)).await.unwrap();
        let pool = SharedPool::start(pool, &Reset::default()).await.unwrap();
        let mut lanes = pool.take(&[0]).unwrap();
        lanes.recv(1, LONG).await.unwrap();
        let panics = pool.ask::<(), SharedError>(|_| panic!("a fault of the owner"));
        let (panicked, stepped) = tokio::join!(panics, lanes.step(ColumnRef::I64(&[1])));
        assert!(matches!(panicked, Err(SharedError::Failed)), "{panicked:?}");
        assert!(matches!(stepped, Err(SharedError::Failed)), "{stepped:?}");
    }
}
