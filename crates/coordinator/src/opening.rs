//! Opening pools: lanes are placed, nodes are asked, and other nodes are asked when they cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EnvId, EnvKind, EnvSource, EnvSpec, LaneState, RunId};
use rollhouse_env::UnknownEnv;
use rollhouse_wire::{
    NodeState, OpenPool, Refusal, RefusalCode, ReplayOf, ReplayReport, SessionId, SessionOpened, Spread,
};

use crate::admission::{More, check, check_share};
use crate::cluster::Cluster;
use crate::event::{Action, Actions, Asker, CallFailure, Reply, Ticket};
use crate::fitness::Fitness;
use crate::layout::{Room, Share, emptiest, place};
use crate::limits::{MAX_ATTEMPTS, MAX_SESSION_LANES, MAX_WAITERS, RETRY_AFTER};
use crate::member::{Dynamics, Member};
use crate::membership::out_of_bounds;
use crate::placements::Key;
use crate::pool::{Activity, Pool, Session, SessionState, Stage};
use crate::rooms::FirstLanes;
use crate::waiting::Want;

impl Cluster {
    /// Counts lanes as waiting if they were refused for want of room. A pool that is not known yet may be placed
    /// already.
    pub(crate) fn waits(
        &mut self,
        now: Duration,
        want: Want,
        (open, lanes): (&OpenPool, u32),
        why: &Refusal,
    ) {
        if why.code == RefusalCode::Busy && self.settles(now).is_none() {
            let weight = self.heaviest(open).times(lanes.into());
            self.waiting.refused(now, want, lanes, weight);
        }
    }

    /// Opens a pool, or repeats the earlier answer.
    pub(crate) fn open_pool(
        &mut self,
        now: Duration,
        ticket: Ticket,
        asker: &Asker,
        request: OpenPool,
        out: &mut Actions,
    ) {
        let id = request.pool;
        let answer = if self.pools.get(&id).is_some() {
            self.open_again(ticket, asker, &request, out)
        } else {
            Ok(Known::No)
        };
        let begun = answer.and_then(|known| match known {
            Known::Yes => Ok(()),
            Known::No => self.begin(now, ticket, asker, request, out),
        });
        if let Err(refusal) = begun {
            out.refuse(ticket, refusal);
        }
    }

    /// Handles a repeated request for a known pool: it waits with the others, or gets the same answer again.
    fn open_again(
        &mut self,
        ticket: Ticket,
        asker: &Asker,
        request: &OpenPool,
        out: &mut Actions,
    ) -> Result<Known, Refusal> {
        let id = request.pool;
        let Some(pool) = self.pools.get_mut(&id) else { return Ok(Known::No) };
        if *pool.owner != *asker.owner {
            return Err(Refusal::new(RefusalCode::Forbidden, format!("pool {id} has another owner")));
        }
        let Some(asked) = &pool.asked else { return self.open_adopted_again(id, out) };
        if asked.request != *request {
            let message = format!("pool {id} was asked for with other lanes or settings");
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        match pool.stage {
            Stage::Opening if pool.waiters.len() >= MAX_WAITERS => {
                let message = format!("{MAX_WAITERS} requests wait for pool {id}, which is as many as may");
                return Err(Refusal::busy(message, RETRY_AFTER.as_millis() as u64));
            }
            Stage::Opening => pool.waiters.push(ticket),
            Stage::Open | Stage::Ended { closed: false } => self.answer_granted(id, vec![ticket], out),
            Stage::Closing { .. } | Stage::Ended { closed: true } => return Err(stale(id, "was closed")),
        }
        Ok(Known::Yes)
    }

    /// Handles a repeated request for a pool that an earlier coordinator opened, whose answer is gone with it. If
    /// nobody ever got the answer, the pool is placed anew; else the holder of the grants steps its lanes.
    fn open_adopted_again(&mut self, id: RunId, out: &mut Actions) -> Result<Known, Refusal> {
        let Some(pool) = self.pools.get(&id) else { return Ok(Known::No) };
        let idle =
            |s: &Session| s.is_over() || s.activity.attached == Some(false) && s.activity.done.steps == 0;
        if pool.stage != Stage::Open || !pool.sessions.values().all(idle) {
            return Err(stale(id, "was opened before this coordinator started, and runs or has ended"));
        }
        self.drop_pool(id, out);
        Ok(Known::No)
    }

    fn begin(
        &mut self,
        now: Duration,
        ticket: Ticket,
        asker: &Asker,
        request: OpenPool,
        out: &mut Actions,
    ) -> Result<(), Refusal> {
        check(&request)?;
        if self.pools.is_closed_unseen(&request.pool) {
            return Err(stale(request.pool, "was closed"));
        }
        let held = self.pools.held_by(&asker.owner);
        let more = More { pools: 1, sessions: 0, lanes: request.lanes };
        check_share(asker, held, more)?;
        let id = request.pool;
        let chosen = self.choose(now, &asker.owner, &request);
        let (dynamics, shares) =
            chosen.inspect_err(|why| self.waits(now, (id, None), (&request, request.lanes), why))?;
        check_share(asker, held, More { sessions: shares.len(), ..more })?;
        self.waiting.placed((id, None));
        if request.settings.collect.as_ref().is_some_and(|collect| collect.leased) {
            self.kept.insert(id, now);
        }
        let pool = Pool::opening(&asker.owner, request, dynamics.known(), ticket);
        self.pools.insert(id, Pool { operates: asker.admin, ..pool });
        let mut first_lane = 0;
        for (index, share) in (0..).zip(shares) {
            let lanes = share.lanes;
            self.assign(SessionId { pool: id, index }, first_lane, share, Vec::new(), out);
            first_lane += lanes;
        }
        Ok(())
    }

    /// Chooses nodes for the lanes, all with the same dynamics. Among several dynamics those are taken with which most
    /// nodes have opened such sessions, then those that most nodes have, then those with most room: any node can state
    /// any hash and any room. Nodes that come last are used only if the others have no room.
    fn choose(
        &self,
        now: Duration,
        owner: &str,
        request: &OpenPool,
    ) -> Result<(Dynamics, Vec<Share>), Refusal> {
        let ways = Fitness::TAKES.into_iter().flat_map(|least| FirstLanes::ALL.map(|first| (least, first)));
        let laid = ways.filter_map(|(least, first)| self.lay(now, owner, request, least, first)).next();
        laid.ok_or_else(|| self.no_room(now, owner, request))
    }

    /// Lays the lanes over nodes of at least that fitness.
    fn lay(
        &self,
        now: Duration,
        owner: &str,
        request: &OpenPool,
        least: Fitness,
        first: FirstLanes,
    ) -> Option<(Dynamics, Vec<Share>)> {
        let able = self.suitable(request).filter(|(member, _)| {
            member.takes_sessions(now).is_some() && member.fitness(now, owner, request) >= least
        });
        let able = able.map(|(member, dynamics)| (dynamics, member));
        let session = if request.spread == Spread::Single { u32::MAX } else { MAX_SESSION_LANES };
        let mut rooms: BTreeMap<Dynamics, Vec<Room>> = BTreeMap::new();
        for (dynamics, room) in self.rooms(able, request, session, first) {
            rooms.entry(dynamics).or_default().push(room);
        }
        let (mut shown, mut stated): (BTreeMap<Dynamics, usize>, BTreeMap<Dynamics, usize>) =
            Default::default();
        for (member, dynamics) in self.suitable(request) {
            *stated.entry(dynamics).or_default() += 1;
            *shown.entry(dynamics).or_default() +=
                usize::from(member.results.has_opened(&request.settings.env));
        }
        let placed = rooms.into_iter().filter_map(|(dynamics, rooms)| {
            let free: u64 = rooms.iter().map(|room| u64::from(room.free)).sum();
            // The last of equals: the greatest hash, which is as good as any and always the same.
            let rank = (shown.get(&dynamics), stated.get(&dynamics), free, dynamics);
            place(rooms, request.lanes, request.spread).map(|shares| (rank, dynamics, shares))
        });
        placed.max_by_key(|(rank, ..)| *rank).map(|(_, dynamics, shares)| (dynamics, shares))
    }

    /// Returns the nodes that are not lost and have the env and the labels, with the env's dynamics.
    pub(crate) fn suitable<'a>(
        &'a self,
        request: &'a OpenPool,
    ) -> impl Iterator<Item = (&'a Member, Dynamics)> {
        let labelled =
            self.members.iter().filter(|m| !m.is_lost() && m.registration.has_labels(&request.labels));
        labelled.filter_map(|member| Some((member, member.registration.dynamics_for(&request.settings)?)))
    }

    /// Returns the refusal of lanes that could not be placed: whether they can be later, and else what is wrong with
    /// the request.
    fn no_room(&self, now: Duration, owner: &str, request: &OpenPool) -> Refusal {
        let retry = RETRY_AFTER.as_millis() as u64;
        if let Some(refusal) = self.settles(now) {
            return refusal;
        }
        if self.members.iter().all(Member::is_lost) {
            let none = "no node is registered".to_owned();
            let behind = self.behind.status().map(|behind| format!("{none}: {behind}"));
            return Refusal::busy(behind.unwrap_or(none), retry);
        }
        let env = &request.settings.env;
        let present: Vec<&Member> = self.members.iter().filter(|m| !m.is_lost()).collect();
        let replay = request.settings.replay.as_ref();
        let needs_env = replay.is_none_or(|of| !of.full);
        let hosts = |member: &&Member| {
            member.registration.envs.contains_key(&**env) || member.registration.learns(env)
        };
        if needs_env && !present.iter().any(hosts) {
            if env.source().is_learned() {
                return unknown_kind(env, &present);
            }
            let mut known: Vec<&String> = present.iter().flat_map(|m| m.registration.envs.keys()).collect();
            known.sort();
            known.dedup();
            let unknown = UnknownEnv::of(env, known.into_iter());
            return Refusal::new(RefusalCode::NotFound, unknown.to_string());
        }
        if let Some(of) = replay
            && !present.iter().any(|member| member.registration.dynamics_for(&request.settings).is_some())
        {
            return other_dynamics(of, env, &present);
        }
        let mut capacity: BTreeMap<Dynamics, u64> = BTreeMap::new();
        for (member, dynamics) in self.suitable(request).filter(|(m, _)| !m.drain.is_on()) {
            let (most, here) = (capacity.entry(dynamics).or_default(), u64::from(self.most(member, request)));
            *most = if request.spread == Spread::Single { here.max(*most) } else { *most + here };
        }
        match capacity.into_values().max() {
            None => {
                let message = format!("labels: no node that has `{env}` has them all and is not draining");
                Refusal::new(RefusalCode::NotFound, message)
            }
            Some(most) if most < u64::from(request.lanes) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let mut refusal = out_of_bounds("lanes", u64::from(request.lanes), 1, most);
                refusal.message += &self.over_budget(now, owner, request);
                refusal
            }
            Some(_) => {
                let unfit = self.unfit_for(now, owner, request);
                let over = self.over_budget(now, owner, request);
                let message = format!("no room for {} lanes of `{env}` now{unfit}{over}", request.lanes);
                Refusal::busy(message, retry)
            }
        }
    }

    /// Places a session on a node and asks the node to open it.
    pub(crate) fn assign(
        &mut self,
        session: SessionId,
        first_lane: u32,
        share: Share,
        tried: Vec<Arc<str>>,
        out: &mut Actions,
    ) {
        let Share { node, lanes } = share;
        let incarnation = self.next_incarnation();
        let secret = (self.secrets)();
        let Some(member) = self.members.get(&node) else { return };
        let (address, attach, link) =
            (member.registration.address.clone(), member.registration.attach.clone(), member.link());
        let Some(pool) = self.pools.get_mut(&session.pool) else { return };
        let settings = pool.opened_as().map(|open| &open.settings);
        let replay = settings
            .and_then(|settings| settings.replay.as_ref())
            .map(|of| ReplayReport { episode: of.episode.clone(), state: LaneState::Loading });
        let placed = Session {
            first_lane,
            lanes,
            incarnation,
            secret,
            replaces: pool.stage == Stage::Open,
            has_secret: true,
            node: Arc::clone(&node),
            address,
            attach,
            opened: false,
            tried,
            state: SessionState::Running,
            activity: Activity { replay, ..Activity::default() },
            replacing: None,
        };
        pool.sessions.insert(session.index, placed);
        if let (Some(link), Some(request)) = (link, pool.open_request(session)) {
            let load = self.placed_lanes(&node, &request.settings.weighed_env(), lanes);
            self.placements.ask((session, incarnation), &node, load);
            out.push(Action::Open { link, request: Box::new(request) });
        }
    }

    /// Takes in a node's answer to the request to open a session.
    pub(crate) fn opened(
        &mut self,
        now: Duration,
        key: Key,
        result: Result<Box<SessionOpened>, CallFailure>,
        out: &mut Actions,
    ) {
        let node = self.placements.get(&key).map(|placement| Arc::clone(&placement.node));
        self.placements.open_answered(&key);
        if self.is_replacing(&key) {
            return self.replaced(now, &key, result, out);
        }
        if !self.is_opening(&key) {
            return self.opened_late(&key, node.as_deref(), &result, out);
        }
        match result {
            Ok(opened) if self.is_no_replay(&key, &opened) => {
                self.placements.unwant(&key);
                let name = node.as_deref().unwrap_or_default();
                self.close_unwanted(name, out);
                let message = format!("node `{name}` is of a version that shows no recorded episodes");
                self.place_again(now, &key, Refusal::new(RefusalCode::Unsupported, message), out);
            }
            Ok(opened) => self.accept(now, &key, *opened, out),
            Err(failure) if self.ended_already(&key) => self.settle_ended(&key, failure, out),
            Err(CallFailure::Refused(refusal)) => {
                self.placements.remove(&key);
                self.open_refused(now, &key, node.as_deref(), refusal, out);
            }
            Err(CallFailure::Unknown) => {
                self.placements.unwant(&key);
                self.note_refused(now, &key);
                let name = node.as_deref().unwrap_or_default();
                self.close_unwanted(name, out);
                let why = Refusal::busy(format!("node `{name}` did not answer"), 0);
                self.place_again(now, &key, why, out);
            }
        }
    }

    /// Handles an answer for a placement that is not wanted any more.
    fn opened_late(
        &mut self,
        key: &Key,
        node: Option<&str>,
        result: &Result<Box<SessionOpened>, CallFailure>,
        out: &mut Actions,
    ) {
        if let Err(CallFailure::Refused(_)) = result {
            self.gone(key, out);
        } else if let Some(node) = node {
            self.close_unwanted(node, out);
        }
    }

    /// Returns whether a node has made a lane where a recorded episode was to be shown.
    fn is_no_replay(&self, key: &Key, opened: &SessionOpened) -> bool {
        let open = self.pools.get(&key.0.pool).and_then(Pool::opened_as);
        open.is_some_and(|open| open.settings.replay.is_some()) && !opened.replay
    }

    /// Notes that a node has opened a session of an opening pool.
    fn accept(&mut self, now: Duration, key: &Key, opened: SessionOpened, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let Some(asked) = pool.asked.as_mut() else { return };
        let SessionOpened { spec, lease_ms, .. } = opened;
        let dynamics = *asked.dynamics.get_or_insert(spec.dynamics_hash);
        if spec.id != *asked.request.settings.env || spec.dynamics_hash != dynamics {
            let refusal = self.disagreement(key, &spec, dynamics);
            self.placements.unwant(key);
            self.note_refused(now, key);
            return self.place_again(now, key, refusal, out);
        }
        asked.lease_ms = if asked.spec.is_some() { asked.lease_ms.min(lease_ms) } else { lease_ms };
        asked.spec = Some(spec);
        if let Some(session) = pool.current(key) {
            session.opened = true;
        }
        self.note_opened(now, key);
        self.settle(key.0.pool, out);
    }

    /// Returns the refusal of a pool whose nodes have different envs under its env's id.
    pub(crate) fn disagreement(&self, key: &Key, spec: &EnvSpec, dynamics: u64) -> Refusal {
        let pool = self.pools.get(&key.0.pool);
        let env = pool.map_or("", |pool| &*pool.env);
        let node = |session: Option<&Session>| session.map_or("", |session| &*session.node).to_owned();
        let own = node(pool.and_then(|pool| pool.sessions.get(&key.0.index)));
        let other = pool.and_then(|pool| pool.sessions.values().find(|session| session.opened));
        let (opened, hash) = (spec.id.escape_debug(), spec.dynamics_hash);
        let message = match other {
            None => format!(
                "node `{own}` registered `{env}` with dynamics {dynamics:016x} and opened `{opened}` with {hash:016x}"
            ),
            Some(other) => format!(
                "nodes do not agree on `{env}`: it has dynamics {dynamics:016x} on node `{}` and {hash:016x} on node `{own}`",
                node(Some(other))
            ),
        };
        Refusal::new(RefusalCode::Internal, message)
    }

    fn ended_already(&mut self, key: &Key) -> bool {
        let session = self.pools.get_mut(&key.0.pool).and_then(|pool| pool.current(key));
        session.is_some_and(|session| session.is_over())
    }

    /// Handles a session that was over before its node's answer came, while the answer was lost: it had been open.
    fn settle_ended(&mut self, key: &Key, failure: CallFailure, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        if pool.asked.as_ref().is_some_and(|asked| asked.spec.is_some()) {
            if let Some(session) = pool.current(key) {
                session.opened = true;
            }
            return self.settle(key.0.pool, out);
        }
        let refusal = match failure {
            CallFailure::Refused(refusal) => refusal,
            CallFailure::Unknown => Refusal::busy("a session ended while its pool opened", 0),
        };
        self.roll_back(key.0.pool, &refusal, out);
    }

    /// Handles a node's refusal to open a session. A reason that holds elsewhere too refuses the pool, if another node
    /// gives one as well or there is none to ask.
    fn open_refused(
        &mut self,
        now: Duration,
        key: &Key,
        node: Option<&str>,
        refusal: Refusal,
        out: &mut Actions,
    ) {
        let name = node.unwrap_or_default();
        let told = Refusal { message: format!("node `{name}`: {}", refusal.message), ..refusal };
        match told.code {
            // It is the node that is behind or leaving; the asker may find room when it asks again.
            RefusalCode::Draining | RefusalCode::Stale => {
                let drains = told.code == RefusalCode::Draining;
                if let Some(member) = self.members.get_mut(name).filter(|_| drains) {
                    member.drain.hear(true);
                }
                self.place_again(now, key, Refusal::busy(told.message, 0), out);
            }
            RefusalCode::Busy | RefusalCode::Internal | RefusalCode::Unknown => {
                self.note_refused(now, key);
                self.place_again(now, key, told, out);
            }
            RefusalCode::BadRequest
            | RefusalCode::NotFound
            | RefusalCode::Unsupported
            | RefusalCode::Quota
            | RefusalCode::Forbidden
            | RefusalCode::Unauthenticated
            | RefusalCode::Version => {
                let pool = self.pools.get(&key.0.pool);
                let is_first = pool
                    .and_then(|pool| pool.sessions.get(&key.0.index))
                    .is_some_and(|session| session.tried.is_empty());
                let shown = pool.zip(self.members.get(name));
                let is_known = shown.is_some_and(|(pool, member)| member.results.has_opened(&pool.env));
                if is_first && !is_known {
                    self.place_again(now, key, told, out);
                } else {
                    self.roll_back(key.0.pool, &told, out);
                }
            }
        }
    }

    /// Asks another node for a session of an opening pool; if there is none, the pool is refused.
    pub(crate) fn place_again(&mut self, now: Duration, key: &Key, why: Refusal, out: &mut Actions) {
        let Some(pool) = self.pools.get_mut(&key.0.pool) else { return };
        let Some(session) = pool.current(key) else { return };
        let (first_lane, lanes) = (session.first_lane, session.lanes);
        let mut tried = std::mem::take(&mut session.tried);
        tried.push(Arc::clone(&session.node));
        let next =
            if tried.len() < MAX_ATTEMPTS { self.another_for(now, key.0.pool, lanes, &tried) } else { None };
        match next {
            Some(node) => self.assign(key.0, first_lane, Share { node, lanes }, tried, out),
            None => {
                let retry = why.retry_after_ms.map(|ms| ms.max(RETRY_AFTER.as_millis() as u64));
                self.roll_back(key.0.pool, &Refusal { retry_after_ms: retry, ..why }, out);
            }
        }
    }

    /// Returns the emptiest of the fittest nodes that were not tried and have room for lanes of the pool.
    pub(crate) fn another_for(
        &self,
        now: Duration,
        pool: RunId,
        lanes: u32,
        tried: &[Arc<str>],
    ) -> Option<Arc<str>> {
        let pool = self.pools.get(&pool)?;
        let (owner, open) = (&*pool.owner, pool.opened_as()?);
        let wanted = Wanted { owner, open, dynamics: pool.dynamics() };
        self.another(now, wanted, lanes, tried, Fitness::Full)
    }

    /// Returns the emptiest of the fittest nodes that were not tried, are as fit as `least` and have room for the lanes
    /// that are wanted.
    pub(crate) fn another(
        &self,
        now: Duration,
        wanted: Wanted<'_>,
        lanes: u32,
        tried: &[Arc<str>],
        least: Fitness,
    ) -> Option<Arc<str>> {
        let fitness = |member: &Member| member.fitness(now, wanted.owner, wanted.open);
        let able = self.suitable(wanted.open).filter(|(member, dynamics)| {
            dynamics.may_be(wanted.dynamics)
                && member.state(now) == NodeState::Alive
                && member.takes_sessions(now).is_some()
                && !tried.contains(&member.name)
        });
        let able: Vec<_> = able.map(|(member, _)| (fitness(member), member)).collect();
        let rooms = |fit: Fitness, first| {
            let fit = able.iter().copied().filter(move |(fitness, _)| *fitness == fit);
            self.rooms(fit, wanted.open, u32::MAX, first).map(|(_, room)| room).collect::<Vec<Room>>()
        };
        let fit_enough = Fitness::TAKES.into_iter().filter(|&fit| fit >= least);
        let mut ways = fit_enough.flat_map(|fit| FirstLanes::ALL.map(|first| (fit, first)));
        ways.find_map(|(fit, first)| emptiest(rooms(fit, first), lanes))
    }

    /// Refuses a pool that was opening, and closes the sessions of it that were opened.
    fn roll_back(&mut self, id: RunId, refusal: &Refusal, out: &mut Actions) {
        for ticket in self.drop_pool(id, out) {
            out.refuse(ticket, refusal.clone());
        }
    }

    /// Forgets a pool, closes its placements, and returns the requests that wait for it.
    fn drop_pool(&mut self, id: RunId, out: &mut Actions) -> Vec<Ticket> {
        let Some(pool) = self.pools.remove(&id) else { return Vec::new() };
        self.unwant_pool(id, out);
        pool.waiters
    }

    /// Answers each of the requests with the pool's grants.
    pub(crate) fn answer_granted(&self, id: RunId, tickets: Vec<Ticket>, out: &mut Actions) {
        let granted = self.pools.get(&id).and_then(Pool::granted);
        for ticket in tickets {
            match &granted {
                Some(opened) => out.answer(ticket, Reply::PoolOpened(Box::new(opened.clone()))),
                None => out.refuse(ticket, stale(id, "has no grants")),
            }
        }
    }

    /// Notes that the node of a session has opened it, and that those that would not were wrong.
    pub(crate) fn note_opened(&mut self, now: Duration, key: &Key) {
        let Some(pool) = self.pools.get(&key.0.pool) else { return };
        let (Some(session), env) = (pool.sessions.get(&key.0.index), &pool.env) else { return };
        for node in &session.tried {
            if let Some(member) = self.members.get_mut(node) {
                member.results.refused(now, env);
            }
        }
        if let Some(member) = self.members.get_mut(&session.node) {
            member.results.opened(now, env);
        }
    }

    /// Notes that the node of a session has refused it.
    pub(crate) fn note_refused(&mut self, now: Duration, key: &Key) {
        let Some(pool) = self.pools.get(&key.0.pool) else { return };
        let Some(session) = pool.sessions.get(&key.0.index) else { return };
        if let Some(member) = self.members.get_mut(&session.node) {
            member.results.refused(now, &pool.env);
        }
    }
}

/// Returns the refusal of an episode that no node recomputes: it names the hash of the recording, and those of the nodes.
fn other_dynamics(of: &ReplayOf, env: &str, present: &[&Member]) -> Refusal {
    let mut now: Vec<u64> =
        present.iter().filter_map(|member| member.registration.envs.get(env).copied()).collect();
    now.sort_unstable();
    now.dedup();
    let now: Vec<String> = now.iter().take(MAX_HASHES).map(|hash| format!("{hash:016x}")).collect();
    let message = format!(
        "{}: no node has the dynamics of `{env}` that it was recorded with: {:016x} then, {} now",
        of.episode,
        of.dynamics,
        now.join(", ")
    );
    Refusal::new(RefusalCode::BadRequest, message)
}

/// Returns the refusal of an env that no node learns.
fn unknown_kind(env: &EnvId, present: &[&Member]) -> Refusal {
    let hosted = present.iter().flat_map(|member| &member.registration.kinds);
    let needed = match env.source() {
        EnvSource::Foreign(kind) => {
            let message = format!("no node hosts worlds of the kind `{kind}`, for `{env}`");
            return Refusal::new(RefusalCode::NotFound, message);
        }
        python => python.kinds().iter().map(EnvKind::name).collect::<Vec<_>>().join("` and `"),
    };
    let hosted: BTreeSet<&str> = hosted.filter(|kind| kind.is_package()).map(EnvKind::name).collect();
    let hosted: Vec<&str> = hosted.into_iter().take(MAX_HASHES).collect();
    let hosted = match hosted.as_slice() {
        [] => "no node hosts any: the setting python.interpreter of a node names the Python that does"
            .to_owned(),
        some => {
            format!("nodes host envs of {}: the setting python.allow of a node lists them", some.join(", "))
        }
    };
    let message = format!("no node hosts Python envs of package `{needed}`, for `{env}`; {hosted}");
    Refusal::new(RefusalCode::NotFound, message)
}

/// Dynamics hashes, or packages, that a refusal names.
const MAX_HASHES: usize = 8;

enum Known {
    Yes,
    No,
}

/// The lanes that are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) owner: &'a str,
    /// The request with which their pool is opened.
    pub(crate) open: &'a OpenPool,
    /// Dynamics hash of their env; `None` if no node has said it yet.
    pub(crate) dynamics: Option<u64>,
}

pub(crate) fn stale(pool: RunId, what: &str) -> Refusal {
    Refusal::new(RefusalCode::Stale, format!("pool {pool} {what}"))
}
