//! Pools and their sessions, as the coordinator knows them.
//!
//! ```text
//! (asked) -> opening -> open -> ended                    all of its sessions ended by themselves
//!                       open -> closing -> ended         it was closed; nodes have said so, or patience ended
//!            opening -> (none)                           refused: what was opened is closed again
//! (told by nodes) ---> open                              placed by an earlier coordinator: adopted
//! ```

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EnvId, EnvSpec, EpisodeName, RecordRule, RunId};
use rollhouse_wire::{
    EndCause, GoneSession, Grant, Incarnation, OpenPool, OpenSession, PlaysReport, PoolOpened, PoolStatus,
    ReplayReport, Secret, SessionCounts, SessionId, SessionReport, Standing,
};

use crate::event::Ticket;
use crate::limits::{
    ENDED_POOL_WEIGHT, MAX_CLOSED_UNSEEN, MAX_ENDED_WEIGHT, MAX_FAILURE_BYTES, MAX_FAILURES,
    MAX_SESSIONS_WITH_ATTACH, MAX_TRANSPORTS,
};
use crate::member::Member;
use crate::owner_holdings::{Held, Holding, OwnerHoldings, Sum};
use crate::placements::Key;
use crate::recipe::{EarlierPlacement, Recipe};
use crate::remembered::Remembered;

/// A pool of lanes for which a trainer asked.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) owner: Arc<str>,
    /// Whether the owner is an admin, as far as this coordinator knows.
    pub(crate) operates: bool,
    pub(crate) env: EnvId,
    pub(crate) lanes: u32,
    pub(crate) stage: Stage,
    /// The request and its answer; `None` if the pool was adopted: then only its owner and its nodes know the grants.
    pub(crate) asked: Option<PoolRequest>,
    pub(crate) sessions: BTreeMap<u32, Session>,
    /// Requests that wait for it to open or to close.
    pub(crate) waiters: Vec<Ticket>,
    pub(crate) failures: Vec<String>,
    /// Number of ended sessions whose recordings may not be in the store yet.
    pub(crate) unshipped: u32,
    /// Whether an earlier coordinator placed sessions anew: then nobody here knows where their earlier recordings are.
    pub(crate) unknown_past: bool,
    /// The way to open sessions that get another place, once their owner has said it.
    pub(crate) recipe: Option<Recipe>,
    /// The shortest lease of the nodes that opened such sessions last.
    pub(crate) lease_ms: u64,
    /// The steps and episodes of earlier placements, by the session's index.
    pub(crate) before: BTreeMap<u32, SessionCounts>,
    /// Where lanes that play by themselves go on, by the session's index, if they stood elsewhere before.
    pub(crate) resumes: BTreeMap<u32, Standing>,
}

/// The request for a pool, and the answer's facts.
#[derive(Debug)]
pub(crate) struct PoolRequest {
    pub(crate) request: OpenPool,
    /// Dynamics hash of the env on all of its nodes; `None` until the first of those that learn the env has said it.
    pub(crate) dynamics: Option<u64>,
    pub(crate) spec: Option<EnvSpec>,
    pub(crate) lease_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nodes were asked for its sessions and have not all answered.
    Opening,
    /// Its owner has the grants, or was about to get them when the pool was adopted.
    Open,
    /// It was closed at that time, and not all nodes have confirmed it.
    Closing { since: Duration },
    /// Nothing of it runs.
    Ended { closed: bool },
}

/// One of a pool's sessions, in its current placement.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) first_lane: u32,
    pub(crate) lanes: u32,
    pub(crate) incarnation: Incarnation,
    pub(crate) secret: Secret,
    /// Whether it took the place of an earlier placement.
    pub(crate) replaces: bool,
    /// Whether `secret` is known: it is not for placements of an earlier coordinator.
    pub(crate) has_secret: bool,
    pub(crate) node: Arc<str>,
    pub(crate) address: String,
    /// Path of the node's attach socket, if it has one.
    pub(crate) attach: Option<String>,
    /// Whether the node has said that it is open.
    pub(crate) opened: bool,
    /// Nodes on which it was tried.
    pub(crate) tried: Vec<Arc<str>>,
    pub(crate) state: SessionState,
    pub(crate) activity: Activity,
    /// The replacement under way, while it is being opened in place of an earlier placement.
    pub(crate) replacing: Option<Replacing>,
}

/// What a session does, as its node reported it last.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Whether its lanes are being launched.
    pub(crate) launching: bool,
    /// Whether its owner is attached; `None` if it plays by itself.
    pub(crate) attached: Option<bool>,
    pub(crate) transport: Option<String>,
    pub(crate) done: SessionCounts,
    /// The recorded episode that it shows, if it is a replay.
    pub(crate) replay: Option<ReplayReport>,
    /// The policy by which it plays for its owner.
    pub(crate) plays: Option<PlaysReport>,
}

impl Activity {
    fn of(report: &SessionReport) -> Self {
        // Whether a node tells of an episode, and not of anything that it likes.
        let is_named = |replay: &ReplayReport| replay.episode.parse::<EpisodeName>().is_ok();
        Self {
            launching: report.launching,
            attached: report.attached,
            transport: report.transport.clone(),
            done: report.done,
            replay: report.replay.clone().filter(is_named),
            plays: report.plays.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// Its node has it, or is asked for it.
    Running,
    /// Its node is lost; it runs again when the node comes back.
    Lost,
    /// It is over.
    Ended(EndCause),
}

impl Session {
    /// Makes a session that an earlier coordinator placed on that node, which has reported it.
    pub(crate) fn adopted(report: &SessionReport, member: Option<&Member>, node: &Arc<str>) -> Self {
        Self {
            first_lane: report.first_lane,
            lanes: report.lanes,
            incarnation: report.incarnation,
            secret: Secret::from_bytes([0; 16]),
            replaces: report.replaces,
            has_secret: false,
            node: Arc::clone(node),
            address: member.map(|member| member.registration.address.clone()).unwrap_or_default(),
            attach: member.and_then(|member| member.registration.attach.clone()),
            opened: true,
            tried: Vec::new(),
            state: SessionState::Running,
            activity: Activity::of(report),
            replacing: None,
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, SessionState::Ended(_))
    }

    /// Returns whether the session is only known from its node, which says that an earlier coordinator placed it.
    pub(crate) const fn is_claimed(&self) -> bool {
        !self.has_secret
    }

    pub(crate) fn update(&mut self, report: &SessionReport) {
        self.state = SessionState::Running;
        self.activity = Activity::of(report);
    }

    pub(crate) fn report(&self, pool: &Pool, session: SessionId) -> SessionReport {
        SessionReport {
            session,
            incarnation: self.incarnation,
            owner: pool.owner.to_string(),
            env: pool.env.clone(),
            first_lane: self.first_lane,
            lanes: self.lanes,
            pool_lanes: pool.lanes,
            replaces: self.replaces,
            launching: self.activity.launching || !self.opened,
            attached: self.activity.attached,
            transport: self.activity.transport.clone(),
            done: self.activity.done.brief(),
            replay: self.activity.replay.clone(),
            plays: self.activity.plays.clone(),
        }
    }
}

impl Pool {
    /// Makes a pool whose sessions are about to be asked for.
    pub(crate) fn opening(owner: &str, request: OpenPool, dynamics: Option<u64>, waiter: Ticket) -> Self {
        let pool = Self::open(owner, &request.settings.env, request.lanes);
        let asked = Some(PoolRequest { request, dynamics, spec: None, lease_ms: 0 });
        Self { stage: Stage::Opening, asked, waiters: vec![waiter], ..pool }
    }

    /// Makes a pool that a node has reported.
    pub(crate) fn adopted(report: &SessionReport) -> Self {
        Self::open(&report.owner, &report.env, report.pool_lanes)
    }

    /// Makes a pool that its owner has named and no node has reported.
    pub(crate) fn told_of(owner: &str, open: &OpenPool) -> Self {
        Self::open(owner, &open.settings.env, open.lanes)
    }

    fn open(owner: &str, env: &EnvId, lanes: u32) -> Self {
        Self {
            owner: owner.into(),
            operates: false,
            env: env.clone(),
            lanes,
            stage: Stage::Open,
            asked: None,
            sessions: BTreeMap::new(),
            waiters: Vec::new(),
            failures: Vec::new(),
            unshipped: 0,
            unknown_past: false,
            recipe: None,
            lease_ms: 0,
            before: BTreeMap::new(),
            resumes: BTreeMap::new(),
        }
    }

    /// Returns whether its owner has asked this coordinator for it. Of others only nodes have said that they are.
    pub(crate) const fn is_vouched(&self) -> bool {
        self.asked.is_some() || self.recipe.is_some()
    }

    /// Returns whether lanes from `first` to `end` belong to no session but the one of that index.
    pub(crate) fn are_free(&self, index: u32, first: u32, end: u32) -> bool {
        let mut others = self.sessions.iter().filter(|(other, _)| **other != index);
        others.all(|(_, s)| s.first_lane >= end || s.first_lane + s.lanes <= first)
    }

    /// Returns the request with which it was opened, as far as that is known.
    pub(crate) fn opened_as(&self) -> Option<&OpenPool> {
        let asked = self.asked.as_ref().map(|asked| &asked.request);
        asked.or_else(|| self.recipe.as_ref().map(|recipe| &recipe.open))
    }

    /// Returns the dynamics hash of its env, as far as that is known.
    pub(crate) fn dynamics(&self) -> Option<u64> {
        let asked = self.asked.as_ref().and_then(|asked| asked.dynamics);
        asked.or_else(|| self.recipe.as_ref().map(|recipe| recipe.dynamics))
    }

    /// Returns whether any session of it may run, or may be about to.
    pub(crate) const fn is_live(&self) -> bool {
        !matches!(self.stage, Stage::Ended { .. })
    }

    /// Returns whether its nodes choose the actions. For an adopted pool its sessions tell.
    pub(crate) fn plays_by_itself(&self) -> bool {
        match self.opened_as() {
            Some(open) => open.settings.collect.is_some(),
            None => self.sessions.values().any(|session| session.activity.attached.is_none()),
        }
    }

    /// Returns its sessions that are not over and that nobody has asked to close, without those that are only claimed.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Session> {
        let kept = matches!(self.stage, Stage::Opening | Stage::Open);
        self.sessions.values().filter(move |session| kept && !session.is_over() && !session.is_claimed())
    }

    /// Returns the session, if that is its current placement.
    pub(crate) fn current(&mut self, key: &Key) -> Option<&mut Session> {
        self.sessions.get_mut(&key.0.index).filter(|s| s.incarnation == key.1)
    }

    /// Returns the current placements of the sessions that are not over.
    pub(crate) fn running(&self, pool: RunId) -> Vec<Key> {
        let running = self.sessions.iter().filter(|(_, s)| !s.is_over());
        running.map(|(&index, s)| (SessionId { pool, index }, s.incarnation)).collect()
    }

    /// Returns whether every node has said that its session is open.
    pub(crate) fn all_opened(&self) -> bool {
        self.sessions.values().all(|s| s.opened)
    }

    pub(crate) fn all_over(&self) -> bool {
        self.sessions.values().all(Session::is_over)
    }

    /// Returns whether its ended sessions may have left recordings. For an adopted pool that is not known.
    pub(crate) fn is_recorded(&self) -> bool {
        self.opened_as().is_none_or(|open| open.settings.record != RecordRule::None)
    }

    pub(crate) fn failed(&mut self, what: String) {
        if self.failures.len() < MAX_FAILURES {
            let mut what = what;
            what.truncate(what.floor_char_boundary(MAX_FAILURE_BYTES));
            self.failures.push(what);
        }
    }

    /// Makes the request to a node to open that session.
    pub(crate) fn open_request(&self, session: SessionId) -> Option<OpenSession> {
        let (open, placed) = (self.opened_as()?, self.sessions.get(&session.index)?);
        Some(OpenSession {
            session,
            incarnation: placed.incarnation,
            secret: placed.secret,
            owner: self.owner.to_string(),
            operates: self.operates,
            first_lane: placed.first_lane,
            lanes: placed.lanes,
            pool_lanes: open.lanes,
            replaces: placed.replaces,
            resume: self.resume(session),
            settings: open.settings.clone(),
        })
    }

    /// Returns the answer for the owner, once all sessions are open.
    pub(crate) fn granted(&self) -> Option<PoolOpened> {
        let asked = self.asked.as_ref()?;
        Some(PoolOpened {
            spec: asked.spec.clone()?,
            lease_ms: asked.lease_ms,
            sessions: self.sessions.keys().filter_map(|&index| self.grant(index)).collect(),
        })
    }

    /// Returns the right to step a session in its current placement.
    pub(crate) fn grant(&self, index: u32) -> Option<Grant> {
        let session = self.sessions.get(&index)?;
        let with_attach = self.sessions.len() <= MAX_SESSIONS_WITH_ATTACH;
        Some(Grant {
            index,
            incarnation: session.incarnation,
            secret: session.secret,
            node: session.node.to_string(),
            address: session.address.clone(),
            attach: session.attach.clone().filter(|_| with_attach),
            first_lane: session.first_lane,
            lanes: session.lanes,
        })
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let mut open = 0;
        let mut ended = BTreeMap::new();
        let mut gone = Vec::new();
        let mut done = SessionCounts::default();
        for (&index, session) in &self.sessions {
            let cause = match session.state {
                SessionState::Running => None,
                // It waits for another place.
                SessionState::Lost if self.goes_on() => None,
                SessionState::Lost => Some(EndCause::NodeLost),
                SessionState::Ended(cause) => Some(cause),
            };
            match cause {
                None => open += 1,
                Some(cause) => {
                    *ended.entry(cause).or_default() += 1;
                    gone.push(GoneSession { index, incarnation: session.incarnation, cause });
                }
            }
        }
        for counts in self.sessions.values().map(|session| &session.activity.done).chain(self.before.values())
        {
            done.add(counts);
        }
        PoolStatus {
            open,
            ended,
            gone,
            failures: self.failures.clone(),
            done,
            shipped: self.is_shipped(),
            settled: false,
            set_aside: 0,
        }
    }

    /// Returns whether the recordings of its ended sessions are in the store; once it is closed, those of all sessions.
    /// Returns false as long as that is not known: for lanes that belong to no known session, for a session whose node
    /// is lost or that is being placed anew, and for placements before those that are known.
    fn is_shipped(&self) -> bool {
        let heard = |session: &Session| session.state != SessionState::Lost && session.replacing.is_none();
        let heard = self.sessions.values().all(heard);
        // Of a closed pool a session may still turn up, and goes on until its node has closed it.
        let ended = !self.is_closed() || self.all_over();
        let known = heard && ended && !self.unknown_past && self.covers_lanes();
        !self.is_recorded() || self.unshipped == 0 && known
    }

    /// Returns whether one of its sessions is only known from a node that claims it.
    pub(crate) fn has_claims(&self) -> bool {
        self.sessions.values().any(Session::is_claimed)
    }

    /// Returns whether its owner has closed it.
    const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closing { .. } | Stage::Ended { closed: true })
    }

    /// Returns whether each of its lanes belongs to a known session.
    fn covers_lanes(&self) -> bool {
        let mut of: Vec<(u32, u32)> = self.sessions.values().map(|s| (s.first_lane, s.lanes)).collect();
        of.sort_unstable();
        let end = of.iter().try_fold(0, |next, &(first, lanes)| (first == next).then_some(first + lanes));
        end == Some(self.lanes)
    }
}

impl Held for Pool {
    fn counts_for(&self) -> Option<(Arc<str>, Sum)> {
        let sum = || Sum {
            operated: u64::from(self.operates),
            owned: u64::from(!self.operates),
            sessions: self.kept().count(),
            lanes: self.kept().map(|session| u64::from(session.lanes)).sum(),
        };
        (self.is_live() && self.is_vouched()).then(|| (Arc::clone(&self.owner), sum()))
    }
}

/// All pools: those that run, and a bounded number of those that ended.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    all: BTreeMap<RunId, Pool>,
    /// Pools that ended, in the order of their ends.
    ended: Remembered<RunId>,
    /// Pools that their owners closed while nothing was known of them.
    closed_unseen: Remembered<RunId>,
    /// Counts of the running sessions, made when they are asked for and kept until something changes: in a cluster at
    /// rest nothing does.
    running: OnceCell<Running>,
    /// The holdings of owners, brought up to date when they are asked for.
    holdings: RefCell<OwnerHoldings>,
}

/// Counts of the sessions that run in all pools together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    pub(crate) sessions: u32,
    pub(crate) lanes: u32,
    /// Number of sessions by their transport.
    pub(crate) transports: BTreeMap<String, u32>,
}

impl Pools {
    /// Returns the counts of running sessions, as of the last change.
    pub(crate) fn running(&self) -> &Running {
        self.running.get_or_init(|| {
            let mut running = Running::default();
            let sessions = self.all.values().flat_map(|pool| pool.sessions.values());
            for session in sessions.filter(|session| session.state == SessionState::Running) {
                running.sessions += 1;
                running.lanes += session.lanes;
                if let Some(transport) = &session.activity.transport {
                    let many = running.transports.len() >= MAX_TRANSPORTS;
                    let is_counted = !many || running.transports.contains_key(transport);
                    let word = if is_counted { transport } else { OTHER_TRANSPORTS };
                    *running.transports.entry(word.to_owned()).or_default() += 1;
                }
            }
            running
        })
    }

    pub(crate) fn get(&self, id: &RunId) -> Option<&Pool> {
        self.all.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &RunId) -> Option<&mut Pool> {
        let pool = self.all.get_mut(id)?;
        self.running.take();
        self.holdings.get_mut().changes(*id);
        Some(pool)
    }

    pub(crate) fn insert(&mut self, id: RunId, pool: Pool) {
        self.running.take();
        self.holdings.get_mut().changes(id);
        self.all.insert(id, pool);
    }

    /// Takes a pool out.
    pub(crate) fn remove(&mut self, id: &RunId) -> Option<Pool> {
        self.ended.remove(id);
        self.running.take();
        self.holdings.get_mut().gone(*id);
        self.all.remove(id)
    }

    /// Returns the number of pools that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.all.len() - self.ended.len()
    }

    /// Notes how a pool's owner says that it was opened.
    pub(crate) fn vouch(&mut self, id: RunId, recipe: impl FnOnce() -> Recipe) {
        if let Some(pool) = self.get_mut(&id) {
            pool.recipe.get_or_insert_with(recipe);
        }
    }

    /// Removes the sessions that only that node vouches for. Returns the pools that had some and are left.
    pub(crate) fn disbelieve(&mut self, node: &str) -> Vec<RunId> {
        let (mut left, mut gone) = (Vec::new(), Vec::new());
        self.running.take();
        for (&id, pool) in &mut self.all {
            self.holdings.get_mut().changes(id);
            let before = pool.sessions.len();
            for session in pool.sessions.values_mut() {
                if let Some(replacing) = &mut session.replacing {
                    replacing.previous.take_if(|previous| previous.is_claimed() && &*previous.node == node);
                }
            }
            pool.sessions.retain(|_, session| !session.is_claimed() || &*session.node != node);
            if pool.sessions.is_empty() && !pool.is_vouched() && pool.waiters.is_empty() {
                gone.push(id);
            } else if pool.sessions.len() < before {
                left.push(id);
            }
        }
        gone.iter().for_each(|id| drop(self.remove(id)));
        left
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RunId, &Pool)> {
        self.all.iter()
    }

    /// Returns the holding of an owner. Looks at the pools that may have changed since the last call.
    pub(crate) fn held_by(&self, owner: &str) -> Holding {
        self.holdings.borrow_mut().of(owner, &self.all)
    }

    /// Notes that an owner has closed a pool of which nothing is known: if it turns up, it is not to be adopted.
    pub(crate) fn close_unseen(&mut self, id: RunId, owner: &str) {
        self.closed_unseen.insert(id, &owner.into(), 1);
        while self.closed_unseen.len() > MAX_CLOSED_UNSEEN {
            self.closed_unseen.forget();
        }
    }

    /// Returns whether its owner has closed that pool before anything was known of it.
    pub(crate) fn is_closed_unseen(&self, id: &RunId) -> bool {
        self.closed_unseen.contains(id)
    }

    /// Adds a session to a pool, or puts it in the place of an earlier placement.
    pub(crate) fn insert_session(&mut self, id: SessionId, session: Session) {
        let Some(pool) = self.get_mut(&id.pool) else { return };
        let is_new = pool.sessions.insert(id.index, session).is_none();
        if is_new && !pool.is_live() {
            self.ended.weigh(&id.pool, 1);
        }
    }

    /// Makes a pool that has ended live again.
    pub(crate) fn revive(&mut self, id: RunId) {
        let Some(pool) = self.get_mut(&id).filter(|pool| !pool.is_live()) else { return };
        pool.stage = Stage::Open;
        self.ended.remove(&id);
    }

    /// Ends a pool, which is remembered for a while.
    pub(crate) fn end(&mut self, id: RunId, closed: bool) {
        let Some(pool) = self.get_mut(&id).filter(|pool| pool.is_live()) else { return };
        pool.stage = Stage::Ended { closed };
        let share = match pool.sessions.values().next() {
            Some(session) if !pool.is_vouched() => node_share(&session.node),
            _ => Arc::clone(&pool.owner),
        };
        let weight = ENDED_POOL_WEIGHT + pool.sessions.len();
        self.ended.insert(id, &share, weight);
        while self.ended.weight() > MAX_ENDED_WEIGHT {
            let Some(forgotten) = self.ended.forget() else { break };
            self.holdings.get_mut().gone(forgotten);
            self.all.remove(&forgotten);
        }
    }
}

/// Returns the name in whose share of the coordinator's memory counts what only that node vouches for. No owner has a
/// name with a space.
pub(crate) fn node_share(node: &str) -> Arc<str> {
    format!("node {node}").into()
}

/// A session that is being opened in another place.
#[derive(Debug)]
pub(crate) struct Replacing {
    /// Requests that wait for it.
    pub(crate) waiters: Vec<Ticket>,
    /// The session in its earlier place, if it goes on there until the new one is open.
    pub(crate) previous: Option<Box<Session>>,
    /// The earlier placement, if only its owner has named it: an earlier coordinator placed it there.
    pub(crate) earlier: Option<Box<EarlierPlacement>>,
    /// Whether a node has refused it for a reason that passes.
    pub(crate) may_pass: bool,
}

/// What sessions of further transports are counted as: nodes may name any.
const OTHER_TRANSPORTS: &str = "other";
