//! A pool: lanes of one env on one or more nodes, stepped as one batch. On the caller's own runtime.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_arena::Frame;
use rollhouse_core::limits::MAX_LANES;
use rollhouse_core::{
    AutoresetMode, ColumnMut, EnvId, EnvSpec, Interruption, Outcome, RecordRule, RunId, SeedSchedule,
    StepColumns,
};
use rollhouse_engine::ActionCheck;
use rollhouse_wire::limits::MAX_POOL_SESSIONS;
use rollhouse_wire::{
    Connection, FrameLayout, Grant, LaneSettings, LinkFigures, LostLane, OpenPool, PolicyLags, PolicyTaken,
    PoolOpened, PoolStatus, Refusal, RefusalCode, Spread,
};
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::batch::{Batch, bool_columns};
use crate::cluster::AsyncCluster;
use crate::commander::Commander;
use crate::error::{OpenError, RequestError, StepError};
use crate::join::{Part, run_together};
use crate::link::MemoryLink;
use crate::pool_session::PoolSession;
use crate::session::{OnLoss, Recipe};
use crate::transport::Transport;
use crate::under_way::FirstDone;
use crate::wire::Wire;

/// A trainer's request for a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolRequest {
    /// Number of lanes, 1 to [`MAX_LANES`]: all of them or a refusal.
    pub lanes: u32,
    /// The env and the behaviour of the lanes. `collect` must be absent: the lanes of a collecting pool are not stepped
    /// from here.
    pub settings: LaneSettings,
    /// Labels a node must have, each with this value.
    pub labels: BTreeMap<String, String>,
    /// The rule by which lanes are spread over nodes.
    pub spread: Spread,
    /// The transport by which they are stepped; `None` for the connection's.
    pub transport: Option<Transport>,
    /// The rule for lanes whose node is lost; `None` is [`OnLoss::Resume`] where the env allows it, else
    /// [`OnLoss::Report`].
    pub on_loss: Option<OnLoss>,
}

impl PoolRequest {
    /// Asks for `lanes` lanes of that env with its defaults, every episode recorded, on as few nodes as have room.
    pub fn new(env: impl Into<EnvId>, lanes: u32) -> Self {
        let settings = LaneSettings {
            env: env.into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: BTreeMap::new(),
            autoreset: AutoresetMode::default(),
            max_episode_steps: None,
            seeds: SeedSchedule::default(),
            record: RecordRule::default(),
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        };
        let (labels, spread) = (BTreeMap::new(), Spread::default());
        Self { lanes, settings, labels, spread, transport: None, on_loss: None }
    }

    /// Returns what becomes of lost lanes of that env.
    fn on_loss_of(&self, spec: &EnvSpec) -> Result<OnLoss, OpenError> {
        let declared = self.settings.deterministic == Some(true);
        if declared && !can_resume(spec) {
            return Err(OpenError::NotDeclared { env: spec.id.clone() });
        }
        let paced = self.settings.pace.is_some();
        match self.on_loss {
            Some(OnLoss::Resume) if paced => Err(OpenError::LiveLanes { env: spec.id.clone() }),
            None if paced => Ok(OnLoss::Report),
            Some(OnLoss::Resume) if !can_resume(spec) => {
                Err(OpenError::CannotResume { env: spec.id.clone() })
            }
            Some(on_loss) => Ok(on_loss),
            None if can_resume(spec) => Ok(OnLoss::Resume),
            None => Ok(OnLoss::Report),
        }
    }

    /// Returns the request as it is sent to the coordinator.
    pub(crate) fn open(&self, pool: RunId) -> OpenPool {
        let Self { lanes, settings, labels, spread, .. } = self.clone();
        OpenPool { pool, lanes, settings, labels, spread }
    }
}

/// A pool on the caller's own runtime: see [`Pool`](crate::Pool), which has the same calls and blocks.
///
/// Futures of its methods can be dropped at any point. A reset or step that was dropped midway leaves lanes whose
/// state is not known: the pool has to be reset. In first-done mode lanes stay outstanding.
///
/// When it is dropped without [`AsyncPool::close`], its streams end, and its sessions with them when their lease is
/// over.
pub struct AsyncPool {
    pub(crate) carrier: Wire,
    pub(crate) kind: LaneKind,
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) sessions: Vec<PoolSession>,
    /// One commander per session, once anything was asked of any.
    pub(crate) commanders: Vec<Commander>,
    pub(crate) batch: Batch,
    /// Whether frames and actions are those in the memory of the one session; the batch is not used then.
    pub(crate) in_place: bool,
    /// One flag per lane: 1 where its episode is over and autoreset has not begun the next one.
    pub(crate) over: Vec<u8>,
    /// The outcome of each lane that is lost; empty while none is.
    pub(crate) lost: Vec<Option<Outcome>>,
    pub(crate) readiness: Readiness,
    pub(crate) first_done: Option<FirstDone>,
    /// Columns that the policy notes by which the lanes play; `None` without one.
    pub(crate) noted: Option<PolicyTaken>,
    /// What is to be reported of that policy with the next fragment.
    pub(crate) lags: PolicyLags,
    pub(crate) timeout: Duration,
    /// The timer for the deadlines of calls.
    pub(crate) alarm: Alarm,
}

/// The env of the pool's lanes, and how they behave.
pub(crate) struct LaneKind {
    pub(crate) spec: EnvSpec,
    pub(crate) autoreset: AutoresetMode,
    pub(crate) seeds: SeedSchedule,
    pub(crate) layout: FrameLayout,
    /// The check of actions before any are sent: a refusal by one node would come after others have stepped.
    pub(crate) check: ActionCheck,
    /// Indices of the observation's columns that hold booleans.
    pub(crate) bools: Vec<usize>,
}

/// Whether the pool's lanes can be stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// There was no reset yet, or a call ended midway.
    NeedsReset,
    Ready,
}

impl AsyncCluster {
    /// Asks for a pool of lanes and attaches to its sessions. Waits while the cluster is busy, up to the timeout.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_pool(&self, request: PoolRequest) -> Result<AsyncPool, OpenError> {
        let (timeout, usual) = self.defaults();
        self.network().tidy();
        let id = self.new_pool_id().await.map_err(OpenError::Request)?;
        let transport = request.transport.unwrap_or(usual);
        let opened = self.request(request.open(id)).await.map_err(OpenError::Request)?;
        let mut made = AsyncPool::new(self.clone(), id, &request, opened, timeout, transport);
        if let Ok(pool) = &mut made {
            pool.attach().await;
            if let (Transport::Shm, Some(error)) = (transport, pool.refused_memory()) {
                made = Err(error);
            }
        }
        if made.is_err() {
            // The first error is the one to tell. A node that has died would be waited for until it is lost.
            let _closed = tokio::time::timeout(CLOSED_WITHIN, self.close_pool(id)).await;
        }
        made
    }
}

impl AsyncPool {
    pub(crate) fn new(
        cluster: AsyncCluster,
        id: RunId,
        request: &PoolRequest,
        opened: PoolOpened,
        timeout: Duration,
        transport: Transport,
    ) -> Result<Self, OpenError> {
        let mut opened = opened;
        if request.settings.pace.is_some() {
            opened.spec = opened.spec.paced();
        }
        let lanes =
            check_grants(&opened.sessions, request.lanes).map_err(|what| OpenError::Grants { what })?;
        let same_step = request.settings.autoreset == AutoresetMode::SameStep;
        let on_loss = request.on_loss_of(&opened.spec)?;
        let batch = Batch::new(&opened.spec, lanes, same_step).map_err(OpenError::Arena)?;
        let layout = FrameLayout::of(&opened.spec);
        let lease = Duration::from_millis(opened.lease_ms);
        let recipe = Recipe { open: request.open(id), dynamics: opened.spec.dynamics_hash, on_loss, lease };
        let recipe = Arc::new(recipe);
        let session = |grant: Grant| {
            let lanes = grant.lanes as usize;
            let session = PoolSession::open(&recipe, &opened.spec, grant, transport);
            session.ok_or(OpenError::TooLarge { lanes })
        };
        let sessions = opened.sessions.into_iter().map(session).collect::<Result<Vec<_>, _>>()?;
        let kind = LaneKind {
            autoreset: request.settings.autoreset,
            seeds: request.settings.seeds,
            layout,
            check: ActionCheck::of(&opened.spec.action_space).with_counted_of(&opened.spec),
            bools: bool_columns(&opened.spec),
            spec: opened.spec,
        };
        Ok(Self {
            carrier: Wire { cluster, start: Instant::now() },
            kind,
            recipe,
            sessions,
            commanders: Vec::new(),
            batch,
            in_place: false,
            over: vec![0; lanes],
            lost: Vec::new(),
            readiness: Readiness::NeedsReset,
            first_done: None,
            noted: None,
            lags: PolicyLags::default(),
            timeout,
            alarm: Alarm::default(),
        })
    }

    /// Attaches to all sessions, each once; a session that fails is tried again by the first reset. Keeps the lease of
    /// a pool that is opened long before it is used.
    pub(crate) async fn attach(&mut self) {
        let Self { sessions, carrier, .. } = self;
        let parts = sessions.iter_mut().map(|site| Box::pin(site.attach_early(carrier)) as Part<'_>);
        run_together(parts.collect(), || false).await;
        self.in_place =
            matches!(self.sessions.as_slice(), [site] if site.link.transport() == Some(Transport::Shm));
    }

    /// Returns the error of a pool that is to be stepped through memory and has a session that cannot be.
    pub(crate) fn refused_memory(&self) -> Option<OpenError> {
        let without = |site: &&PoolSession| site.link.transport() != Some(Transport::Shm);
        let site = self.sessions.iter().find(without)?;
        let unknown = || Refusal::new(RefusalCode::Unknown, "the node was not reached");
        let refusal = site.terms.refused_memory.clone().unwrap_or_else(unknown);
        Some(OpenError::NoMemory { node: site.session.grant().node.clone(), refusal })
    }

    /// Returns the transport by which each session is stepped, in the order of [`AsyncPool::sessions`]; `None` for one
    /// that is not attached.
    pub fn transports(&self) -> impl Iterator<Item = Option<Transport>> {
        self.sessions.iter().map(|site| site.link.transport())
    }

    /// Returns the pool's id, which is also the run that its episodes are named by.
    pub fn id(&self) -> RunId {
        self.recipe.open.pool
    }

    /// Returns the columns in which something can be noted of each step.
    pub fn step_columns(&self) -> &StepColumns {
        &self.recipe.open.settings.step_columns
    }

    /// Returns the env as the nodes have it.
    pub fn spec(&self) -> &EnvSpec {
        &self.kind.spec
    }

    /// Returns the number of lanes: rows of the batch.
    pub fn lanes(&self) -> usize {
        self.batch.lanes()
    }

    /// Returns the place of each session: the name of its node, and its lanes of the batch.
    pub fn sessions(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.sessions.iter().map(|site| (site.session.grant().node.as_str(), site.lanes().clone()))
    }

    /// Returns how long calls wait for answers. At first this is the cluster's timeout.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets how long calls wait for answers.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns a handle that keeps the memory of frames alive, for callers that hold addresses of it. The memory never
    /// moves. A read through such an address sees what a frame of the same parity shows, and unspecified numbers while
    /// one is being written.
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        match self.link() {
            Some(link) => link.arena().memory(),
            None => self.batch.memory(),
        }
    }

    /// Returns the addresses of the memory that frames lie in, for callers that pin its pages.
    pub fn addresses(&self) -> Range<usize> {
        match self.link() {
            Some(link) => {
                let [outputs, _] = link.arena().addresses();
                outputs
            }
            None => self.batch.addresses(),
        }
    }

    /// Returns the column of actions, to be filled before [`AsyncPool::step`]. In a pool of one session that is stepped
    /// through memory it is the memory that the node reads.
    #[inline]
    pub fn actions(&mut self) -> ColumnMut<'_> {
        let Self { sessions, batch, in_place, .. } = self;
        let link =
            if *in_place { sessions.first_mut().and_then(|site| site.link.in_place_mut()) } else { None };
        // While a request is under way that nobody waits for, the pool is not ready, and these go nowhere.
        link.and_then(|link| link.actions_mut()).unwrap_or_else(|| batch.actions_mut())
    }

    /// Returns the column of actions, if it is the memory that the node reads: in a pool of one session that is stepped
    /// through memory. It stays where it is for as long as [`AsyncPool::is_in_place`]. If it is written to during a
    /// step, through an address that was kept, that decides which action is taken, and the node refuses values that are
    /// no actions.
    pub fn actions_in_place(&mut self) -> Option<ColumnMut<'_>> {
        if !self.in_place {
            return None;
        }
        self.sessions.first_mut()?.link.in_place_mut()?.actions_mut()
    }

    /// Returns whether frames and actions lie in the memory of the one session. They do from the first attachment on,
    /// until the session's node is lost or going away: from then on they are the pool's own.
    #[inline]
    pub const fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Makes frames and actions the pool's own from now on. They begin as they stand in the memory of the one session.
    pub(crate) fn leave_memory(&mut self) {
        if !self.in_place {
            return;
        }
        if let Some(site) = self.sessions.first_mut() {
            let gone = site.session.gone().is_some();
            if let Some(link) = site.link.in_place_mut() {
                if gone {
                    link.forget_request();
                }
                link.copy_actions(self.batch.actions_mut().bytes_mut());
            }
        }
        self.copy_newest();
        self.in_place = false;
    }

    /// Leaves the memory of a session that is gone, is about to leave its node, or is elsewhere already.
    pub(crate) fn leave_lost_memory(&mut self) {
        let out = |site: &PoolSession| !site.session.is_settled() || site.link.in_place().is_none();
        if self.in_place && self.sessions.iter().any(out) {
            self.leave_memory();
        }
    }

    /// Makes the newest frame that lies in the one session's memory the pool's own as well.
    pub(crate) fn copy_newest(&mut self) {
        let Self { sessions, batch, in_place, .. } = self;
        let Some(site) = sessions.first().filter(|_| *in_place) else { return };
        if let Some(frame) = site.link.in_place().and_then(MemoryLink::frame) {
            batch.next_frame().land_frame(site.lanes(), &frame);
        }
    }

    /// Returns the memory that frames lie in, if it is that of the one session.
    #[inline]
    pub(crate) fn link(&self) -> Option<&MemoryLink> {
        if self.in_place { self.sessions.first().and_then(|site| site.link.in_place()) } else { None }
    }

    /// Returns the newest frame, wherever it lies.
    #[inline]
    pub(crate) fn newest(&mut self) -> Frame<'_> {
        let Self { sessions, batch, in_place, .. } = self;
        let link = if *in_place { sessions.first().and_then(|site| site.link.in_place()) } else { None };
        link.and_then(|link| link.frame()).unwrap_or_else(|| batch.frame())
    }

    /// Returns the newest frame. Its slices stay readable until the next call; the values in memory stay until the
    /// second next reset or step.
    ///
    /// # Errors
    /// [`NotReset`](rollhouse_engine::StepError::NotReset) before the first reset, and after a call that ended midway.
    pub fn frame(&mut self) -> Result<Frame<'_>, StepError> {
        self.check_ready()?;
        Ok(self.newest())
    }

    /// Returns why a lane is lost: its env failed and is not back yet, or its node went away; `None` if it is not lost.
    pub fn loss(&self, lane: usize) -> Option<Outcome> {
        self.lost.get(lane).copied().flatten()
    }

    /// Returns the number of lanes that are lost now.
    pub fn lost(&self) -> usize {
        self.lost.iter().flatten().count()
    }

    /// Returns each session's node and the figures of the connection to it, for people.
    pub fn connections(&self) -> impl Iterator<Item = (&str, Option<LinkFigures>)> {
        self.sessions.iter().map(|site| {
            let figures = site.link.connection().map(Connection::figures);
            (site.session.grant().node.as_str(), figures)
        })
    }

    /// Ends the pool and returns its last state: its sessions are closed, open episodes end as `cancelled`.
    ///
    /// # Errors
    /// See [`RequestError`]; its streams are ended in any case, and its sessions with their lease.
    pub async fn close(mut self) -> Result<PoolStatus, RequestError> {
        self.end_streams();
        self.carrier.cluster.close_pool(self.id()).await
    }

    pub(crate) fn end_streams(&mut self) {
        self.sessions.iter_mut().for_each(|site| site.link.detach());
        self.commanders.clear();
    }

    pub(crate) fn check_ready(&self) -> Result<(), StepError> {
        match self.readiness {
            Readiness::Ready => Ok(()),
            Readiness::NeedsReset => Err(rollhouse_engine::StepError::NotReset.into()),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Returns whether a lane's next action is ignored: it is reset or stands still.
    pub(crate) fn ignores_action(&self, lane: usize) -> bool {
        self.over[lane] != 0 || self.loss(lane).is_some()
    }

    /// Notes which lanes of a session are lost, as its node says, and why.
    pub(crate) fn note_losses(&mut self, lanes: &Range<usize>, notes: &[LostLane]) {
        if notes.is_empty() && self.lost.is_empty() {
            return;
        }
        self.lost.resize(self.batch.lanes(), None);
        self.lost[lanes.clone()].fill(None);
        for note in notes {
            // Lanes that the session does not have were refused when the answer was checked.
            let lane = lanes.start + note.lane as usize;
            let outcome = Outcome::from_code(note.outcome).filter(|outcome| !outcome.is_finished());
            self.lost[lane] = outcome.or(Some(Outcome::Interrupted(Interruption::Crashed)));
        }
    }

    /// Notes that the lanes of a session that is gone are lost, and why.
    pub(crate) fn note_gone(&mut self, lanes: &Range<usize>, outcome: Interruption) {
        self.lost.resize(self.batch.lanes(), None);
        self.lost[lanes.clone()].fill(Some(Outcome::Interrupted(outcome)));
    }

    /// Empties the list of losses when none is left.
    pub(crate) fn tidy_losses(&mut self) {
        if self.lost.iter().all(Option::is_none) {
            self.lost.clear();
        }
    }

    /// Returns the error of a pool all of whose sessions are gone.
    pub(crate) fn all_lost(&self) -> Option<StepError> {
        let gone = |site: &PoolSession| site.session.gone().map(|gone| gone.reason.clone());
        let reasons: Option<Vec<String>> = self.sessions.iter().map(gone).collect();
        let reason = reasons?.into_iter().next()?;
        Some(StepError::AllLost { reason })
    }
}

/// Returns whether lanes of that env can be resumed.
fn can_resume(spec: &EnvSpec) -> bool {
    spec.determinism == rollhouse_core::Determinism::Deterministic
}

impl std::fmt::Debug for AsyncPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncPool")
            .field("id", &self.id())
            .field("env", &self.kind.spec.id)
            .field("lanes", &self.lanes())
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

/// Returns the number of lanes of all grants, and checks that they follow each other without gaps.
fn check_grants(grants: &[Grant], wanted: u32) -> Result<usize, String> {
    if grants.is_empty() || grants.len() > MAX_POOL_SESSIONS {
        return Err(format!("{} sessions, must be 1 to {MAX_POOL_SESSIONS}", grants.len()));
    }
    let mut next = 0u64;
    for grant in grants {
        if u64::from(grant.first_lane) != next || grant.lanes == 0 {
            return Err(format!(
                "session {} has lanes from {} on, {next} was to be next",
                grant.index, grant.first_lane
            ));
        }
        next += u64::from(grant.lanes);
    }
    if next != u64::from(wanted) || next > MAX_LANES as u64 {
        return Err(format!("{next} lanes, {wanted} were asked for and a pool has at most {MAX_LANES}"));
    }
    Ok(next as usize)
}

/// Time to wait for the end of a pool that could not be made. The coordinator goes on with it.
const CLOSED_WITHIN: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use rollhouse_env::Registry;

    use super::*;

    #[test]
    fn lanes_that_are_asked_for_as_deterministic_and_opened_as_others_are_refused_by_name() {
        // Nodes of an earlier version ignore the declaration.
        let spec = |id| Registry::builtin().get(id).unwrap().spec().clone();
        let (noise, cart_pole) = (spec("test/Noise-v0"), spec("CartPole-v1"));
        let mut request = PoolRequest::new("test/Noise-v0", 1);
        for (declared, refused) in [(None, false), (Some(false), false), (Some(true), true)] {
            request.settings.deterministic = declared;
            assert!(matches!(request.on_loss_of(&cart_pole), Ok(OnLoss::Resume)));
            let on_loss = request.on_loss_of(&noise);
            assert_eq!(matches!(&on_loss, Err(OpenError::NotDeclared { env }) if *env == noise.id), refused);
            assert_eq!(matches!(on_loss, Ok(OnLoss::Report)), !refused);
        }
    }
}
