//! Opens sessions: lanes that are made here, lanes that play by themselves, and recorded episodes that are fetched.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{Claimant, RecordRule};
use rollhouse_env::EnvEntry;
use rollhouse_host::{EnvRequest, Holder};
use rollhouse_wire::limits::MAX_PAST_BYTES;
use rollhouse_wire::{
    Connection, EndCause, FrameLayout, LaneSettings, OpenSession, Refusal, RefusalCode, ReplayOf,
    SessionOpened, Takes, Unfit, is_pool_of,
};

use super::Hosting;
use super::control::SessionControl;
use crate::episodes;
use crate::executor::{Crew, JobError};
use crate::learning::{asked_for, refusal};
use crate::owned::OwnedSession;
use crate::owned_handle::OwnedHandle;
use crate::plan::{SessionPlan, registered};
use crate::policies::model;
use crate::replay_session::ReplaySession;
use crate::session_handle::SessionHandle;
use crate::session_places::claimant;
use crate::session_status::SessionStatus;
use crate::stepping::{Steppers, Stepping};
use crate::urgency::Urgency;
use crate::{Cancel, Gone};

impl Hosting {
    /// Makes a session, ending an earlier placement of it first. A repeated request for an open session is answered as
    /// such.
    ///
    /// # Errors
    /// The reason for the refusal; nothing is left of the session then.
    pub(crate) async fn open(
        self: &Arc<Self>,
        open: &OpenSession,
        coordinator: Option<&Connection>,
    ) -> Result<SessionOpened, Refusal> {
        check_owner(open)?;
        let policy = match &open.settings.collect {
            Some(collect) => self.stock.policies.file_of(collect, coordinator).await?,
            None => None,
        };
        let wanted = self.wanted(open, policy.clone()).await?;
        self.check_fitness(open).await?;
        let superseded = self.table().superseded(open);
        if let Some(earlier) = superseded {
            let cause = Gone { cause: EndCause::Closed, detail: "placed anew".to_owned() };
            self.end(open.session, earlier, cause).await;
        }
        let Some(cancel) = self.table().open(open)? else {
            let session = self.table().placed(open.session, open.incarnation);
            return session.ok_or_else(closed_meanwhile).map(|session| self.opened(&session.handle));
        };
        let making = Making { hosting: self, open };
        let status = SessionStatus::new(cancel);
        let handle = match wanted {
            Wanted::Lanes(plan) => self.make(plan, open, status.clone()).await?,
            Wanted::Learned(env) => {
                let plan = self.learned(env, open, policy).await?;
                self.make(Arc::new(plan), open, status.clone()).await?
            }
            Wanted::Replay(of) => self.make_replay(of, open, status.clone(), coordinator).await?,
        };
        let opened = self.opened(&handle);
        let session = SessionControl::new(self, (open.session, open.incarnation), handle, status);
        let now = self.now();
        let kept = self.table().opened(now, open.session, open.incarnation, Arc::clone(&session));
        std::mem::forget(making);
        if !kept {
            self.let_go(&session.handle).await;
            return Err(closed_meanwhile());
        }
        self.figures.sessions_opened.add(1);
        if opened.replay {
            self.figures.watching.replays.enter(u64::MAX);
        }
        self.supervision.begin(self.supervision.number(), session);
        Ok(opened)
    }

    /// Learns an env, and returns the plan of the session. What connects meanwhile shows in the table.
    async fn learned(
        &self,
        env: EnvRequest,
        open: &OpenSession,
        policy: Option<Arc<Vec<u8>>>,
    ) -> Result<SessionPlan, Refusal> {
        let shown =
            |watch: &_| self.table().watch_connecting(open.session, open.incarnation, Clone::clone(watch));
        let learning = &self.stock.learning;
        let asked = learning.ask(env);
        shown(&asked.connecting);
        let learned = learning.learn(&asked, claimant(&open.owner, open.operates)).await?;
        let watch = learning.connect_watch(&open.settings.env);
        shown(&watch);
        let holder = Holder {
            owner: claimant(&open.owner, open.operates),
            pool: open.session.pool,
            index: open.session.index,
            placement: (open.incarnation.term, open.incarnation.counter),
        };
        let entry = learned.entry(&watch, Some(holder)).map_err(|error| refusal(&error))?;
        let plan = self.planned(Arc::new(entry), open, policy).await?;
        Ok(plan.connecting_by(watch).giving_up_after(self.settings.deadlines))
    }

    /// Returns the plan for lanes of an env. A net is read and tried by a worker: that may take seconds, in which the node's
    /// heartbeats go on.
    async fn planned(
        &self,
        entry: Arc<EnvEntry>,
        open: &OpenSession,
        policy: Option<Arc<Vec<u8>>>,
    ) -> Result<SessionPlan, Refusal> {
        let (open, program) = (open.clone(), self.settings.program.clone());
        let owner = claimant(&open.owner, open.operates);
        let has_net = policy.is_some();
        let plan = move || {
            let file = policy.as_deref().map_or(&[][..], Vec::as_slice);
            let model = open.settings.collect.as_ref().map(|collect| model(collect, file)).transpose()?;
            SessionPlan::with(entry, &open, model, &program)
        };
        if has_net { self.made_by_worker(&owner, plan).await? } else { plan() }
    }

    /// Returns what kind of session is asked for, checked as far as possible before anything is made.
    async fn wanted(&self, open: &OpenSession, policy: Option<Arc<Vec<u8>>>) -> Result<Wanted, Refusal> {
        match &open.settings.replay {
            None => {
                let LaneSettings { env, env_kwargs, deterministic, infos, .. } = &open.settings;
                if self.stock.learning.has(env) && self.stock.registry.get(env).is_err() {
                    return asked_for(env, env_kwargs, *deterministic, infos).map(Wanted::Learned);
                }
                let plan = self.planned(registered(open, &self.stock.registry)?, open, policy).await?;
                Ok(Wanted::Lanes(Arc::new(plan.giving_up_after(self.settings.deadlines))))
            }
            Some(of) if (open.first_lane, open.lanes, open.pool_lanes) == (0, 1, 1) => {
                Ok(Wanted::Replay(of.clone()))
            }
            Some(_) => {
                let message = format!("lanes = {}; a recorded episode has 1", open.lanes);
                Err(Refusal::new(RefusalCode::BadRequest, message))
            }
        }
    }

    /// Returns the answer for a session that is open.
    fn opened(&self, handle: &SessionHandle) -> SessionOpened {
        let (spec, lease) = (handle.spec().clone(), self.settings.lease);
        SessionOpened { spec, lease_ms: lease.as_millis() as u64, replay: handle.replay().is_some() }
    }

    /// Refuses sessions that the node is not fit for: the coordinator places them elsewhere.
    async fn check_fitness(&self, open: &OpenSession) -> Result<(), Refusal> {
        let records = open.settings.replay.is_none() && open.settings.record != RecordRule::None;
        if let Some(recorder) = self.recorder.clone().filter(|_| records) {
            // What comes of it shows below; a disk that is slow is waited for by those who step.
            // Task: write-out.
            let tried = tokio::task::spawn_blocking(move || recorder.try_disk());
            let _tried = tokio::time::timeout(DISK_PATIENCE, tried).await;
        }
        match self.unfit() {
            Some(Unfit { takes: Takes::Nothing, why, .. }) => Err(Refusal::busy(why, UNFIT_RETRY_MS)),
            Some(Unfit { takes: Takes::Unrecorded, why, .. }) if records => {
                Err(Refusal::busy(why, UNFIT_RETRY_MS))
            }
            _ => Ok(()),
        }
    }

    async fn make(
        self: &Arc<Self>,
        plan: Arc<SessionPlan>,
        open: &OpenSession,
        status: SessionStatus,
    ) -> Result<SessionHandle, Refusal> {
        let token = status.token().clone();
        if plan.collect.is_some() {
            let by = Steppers::Shared {
                executor: Arc::clone(&self.executor),
                owner: claimant(&open.owner, open.operates),
                urgency: Urgency::of_processes(self.table().rollouts_of(open)),
            };
            return self.collecting(&plan, by, token);
        }
        let layout = FrameLayout::of(plan.entry.spec());
        let places = layout.actions(plan.engine.lanes, true);
        let max_columns = places.map_or(0, |places| places.bytes).max(MAX_PAST_BYTES);
        let (recorder, late) = (self.recorder.clone(), plan.entry.is_late());
        let leaving = Arc::clone(&self.departure.leaving);
        let make = move || {
            if token.is_cancelled() {
                return Err(closed_meanwhile());
            }
            OwnedSession::make(plan, recorder).map(|session| session.telling(leaving).until(&token))
        };
        let owner = claimant(&open.owner, open.operates);
        let session = self.made(&owner, late, make).await??;
        let placed = (open.session, open.incarnation);
        let env = self.figures.envs.of(&open.settings.env);
        let owned = OwnedHandle::new(placed, owner, status, max_columns, session, env);
        Ok(SessionHandle::Owned(Arc::new(owned)))
    }

    /// Makes something by a thread that steps; if it is `late`, by one that waits for processes, which take seconds to
    /// start.
    async fn made<T: Send + 'static>(
        &self,
        owner: &Claimant,
        late: bool,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        if late { self.apart.run(owner.clone(), make).await } else { self.made_by_worker(owner, make).await }
    }

    /// Has a thread that steps make something.
    async fn made_by_worker<T: Send + 'static>(
        &self,
        owner: &Claimant,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let made = self.executor.submit((Crew::Waiting, owner), make, Box::new(|| false));
        let made = made.map_err(|full| full.refusal())?;
        match made.await {
            Ok(made) => made.map_err(|error: JobError| {
                Refusal::new(RefusalCode::Internal, format!("what was to be made: {error}"))
            }),
            Err(_) => Err(Refusal::new(RefusalCode::Draining, "the node is going away")),
        }
    }

    /// Fetches a recorded episode and has a worker make the session that shows it.
    async fn make_replay(
        self: &Arc<Self>,
        of: ReplayOf,
        open: &OpenSession,
        status: SessionStatus,
        coordinator: Option<&Connection>,
    ) -> Result<SessionHandle, Refusal> {
        let internal = |message: String| Refusal::new(RefusalCode::Internal, message);
        let Some(coordinator) = coordinator else {
            return Err(internal("there is no coordinator to fetch the episode from".to_owned()));
        };
        let file = episodes::fetch(coordinator, &of).await?;
        let (placed, registry) = ((open.session, open.incarnation), Arc::clone(&self.stock.registry));
        let owner = claimant(&open.owner, open.operates);
        let whose = owner.clone();
        let make = move || ReplaySession::make(placed, whose, status, registry, episodes::read(file, &of)?);
        let late = self.stock.registry.get(&open.settings.env).is_ok_and(|entry| entry.is_late());
        let session = self.made(&owner, late, make).await??;
        Ok(SessionHandle::Replay(Arc::new(session)))
    }

    /// Returns a session that plays by itself. Its actor starts it.
    fn collecting(&self, plan: &SessionPlan, by: Steppers, cancel: Cancel) -> Result<SessionHandle, Refusal> {
        let Some(rollout) = plan.rollout(self.settings.deadlines) else {
            return Err(Refusal::new(RefusalCode::Internal, "the session does not play by itself"));
        };
        let recorder = self.recorder.as_ref().filter(|_| plan.is_recorded());
        let recording = recorder.map(|recorder| plan.record_on(recorder)).transpose()?.map(Arc::new);
        let stepping = Stepping::new(by, rollout, recording, cancel, None);
        let entry = Arc::clone(&plan.entry);
        Ok(SessionHandle::Collecting { stepping, told: Arc::default(), entry })
    }
}

/// A kind of session that is to be made.
enum Wanted {
    Lanes(Arc<SessionPlan>),
    /// Lanes of an env that has to be learned.
    Learned(EnvRequest),
    Replay(ReplayOf),
}

/// Refuses a session under the id of another owner's pool: what is recorded under an id is that owner's, whatever a
/// coordinator says.
fn check_owner(open: &OpenSession) -> Result<(), Refusal> {
    let (pool, owner) = (open.session.pool, open.owner.escape_debug());
    if is_pool_of(&open.owner, pool) {
        return Ok(());
    }
    let message = format!("session: {pool} is not an id of a pool of `{owner}`");
    Err(Refusal::new(RefusalCode::BadRequest, message))
}

fn closed_meanwhile() -> Refusal {
    Refusal::new(RefusalCode::Stale, "the session was closed while it was opened")
}

/// Takes a session that is being made out of the table again, unless it is forgotten.
struct Making<'a> {
    hosting: &'a Hosting,
    open: &'a OpenSession,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let now = self.hosting.now();
        self.hosting.table().not_made(now, self.open.session, self.open.incarnation);
    }
}

/// Time to wait for the recorder's disk before a session is opened all the same.
const DISK_PATIENCE: Duration = Duration::from_secs(2);

/// Pause after which the coordinator may try again: mending a node takes longer, but others have room meanwhile.
const UNFIT_RETRY_MS: u64 = 1_000;
