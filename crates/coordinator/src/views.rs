//! Views of the cluster for operators and trainers.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_core::msgpack::Message;
use rollhouse_wire::limits::MAX_CONTROL_BYTES;
use rollhouse_wire::{
    ClusterStatus, EnvList, EnvPlace, Incarnation, ListAfter, NodeList, NodeState, OfferedEnv, PoolStatus,
    ReadGrant, Refusal, RefusalCode, SessionId, SessionList, SessionStatus, StoreStatus, UnfitReason,
    control,
};

use crate::cluster::Cluster;
use crate::event::LinkId;
use crate::member::Member;
use crate::pool::{Pool, Running, Session, SessionState};
use crate::standings::Standing;
use crate::waiting::WaitingLanes;

impl Cluster {
    /// Returns the lanes that were refused because no node has room, and whose askers are expected to ask again.
    pub fn waiting_lanes(&self, now: Duration) -> WaitingLanes {
        self.waiting.all(now)
    }

    /// Returns the number of nodes that are there and have a trouble, by its kind.
    pub(crate) fn unfit_nodes(&self, now: Duration) -> BTreeMap<UnfitReason, u32> {
        let mut nodes = BTreeMap::new();
        for member in self.members.iter().filter(|member| !member.is_lost()) {
            if let Some(unfit) = member.unfit_now(now) {
                *nodes.entry(unfit.reason).or_default() += 1;
            }
        }
        nodes
    }

    /// Returns the status of the cluster. `program` is the coordinator's program, and `store` the contents of the
    /// store.
    pub fn status(&self, now: Duration, program: &str, store: StoreStatus) -> ClusterStatus {
        let mut status = ClusterStatus {
            program: program.to_owned(),
            term: self.term,
            uptime_s: now.as_secs(),
            nodes: BTreeMap::new(),
            capacity: 0,
            lanes: 0,
            pools: u32::try_from(self.pools.live()).unwrap_or(u32::MAX),
            sessions: 0,
            steps: 0,
            episodes: 0,
            transports: BTreeMap::new(),
            store,
            behind: self.behind.status(),
        };
        for member in self.members.iter() {
            let state = member.state(now);
            *status.nodes.entry(state).or_default() += 1;
            if state == NodeState::Alive {
                status.capacity = status.capacity.saturating_add(member.registration.capacity);
            }
            // A node may say anything.
            status.steps = status.steps.saturating_add(member.load.steps);
            status.episodes = status.episodes.saturating_add(member.load.episodes);
        }
        let Running { sessions, lanes, transports } = self.pools.running().clone();
        ClusterStatus { sessions, lanes, transports, ..status }
    }

    /// Returns the state of each node, by name.
    pub(crate) fn standings(&self, now: Duration) -> impl Iterator<Item = Standing<'_>> {
        self.members.iter().map(move |member| Standing {
            node: &member.name,
            address: &member.registration.address,
            state: member.state(now),
            unfit: member.unfit_now(now),
        })
    }

    /// Returns the nodes, by name, as many as fit into a message.
    pub fn nodes(&self, now: Duration) -> NodeList {
        self.nodes_after(now, &ListAfter::default())
    }

    /// Returns a page of the nodes, by name.
    pub fn nodes_after(&self, now: Duration, page: &ListAfter<String>) -> NodeList {
        let mut sessions: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, session) in self.running() {
            *sessions.entry(&session.node).or_default() += 1;
        }
        let count = |name: &str| sessions.get(name).copied().unwrap_or(0);
        let after = page.after.as_deref();
        let rest = self.members.iter().filter(|member| after.is_none_or(|after| &*member.name > after));
        let (nodes, omitted) = fitting(rest.map(|member| member.status(now, count(&member.name))));
        NodeList { nodes, omitted }
    }

    /// Returns a page of the envs of nodes that are alive, and the kinds of envs that these learn, by id and dynamics.
    pub fn envs_after(&self, now: Duration, page: &ListAfter<EnvPlace>) -> EnvList {
        let mut offered: BTreeMap<(String, Option<u64>), (u32, u32)> = BTreeMap::new();
        for member in self.members.iter().filter(|member| member.state(now) == NodeState::Alive) {
            let free = member.registration.capacity.saturating_sub(member.load.lanes);
            let room = |env: &str| free.min(self.free(member, &env.into(), u32::MAX));
            let envs = member.registration.envs.iter().map(|(env, hash)| (env.clone(), Some(*hash)));
            let kinds = member.registration.kinds.iter().map(|kind| (kind.to_string(), None));
            for env in envs.chain(kinds) {
                let room = room(&env.0);
                let (nodes, free_lanes) = offered.entry(env).or_default();
                *nodes += 1;
                *free_lanes = free_lanes.saturating_add(room);
            }
        }
        let all = offered.into_iter().map(|((env, dynamics_hash), (nodes, free_lanes))| OfferedEnv {
            env,
            dynamics_hash,
            nodes,
            free_lanes,
        });
        let is_behind = |env: &OfferedEnv| page.after.as_ref().is_none_or(|after| env.place() > *after);
        let (envs, omitted) = fitting(all.filter(is_behind));
        EnvList { envs, omitted }
    }

    /// Returns the sessions that run, by name, as many as fit into a message.
    pub fn sessions(&self) -> SessionList {
        self.sessions_of(&ReadGrant::All, &ListAfter::default())
    }

    /// Returns a page of the running sessions that may be read, by name.
    pub fn sessions_of(&self, reads: &ReadGrant, page: &ListAfter<SessionId>) -> SessionList {
        let connecting = |id: SessionId, session: &Session| {
            let told = self.members.get(&session.node).map(|member| &member.sessions.connecting);
            told.and_then(|told| told.get(&(id, session.incarnation))).copied().unwrap_or(0)
        };
        let status = |(pool, id): (&Pool, SessionId), session: &Session| SessionStatus {
            node: session.node.to_string(),
            report: session.report(pool, id),
            connecting: connecting(id, session),
        };
        let readable = self.running().filter(|((pool, _), _)| reads.has_owner(&pool.owner));
        let rest = readable.filter(|((_, id), _)| page.after.is_none_or(|after| *id > after));
        let (sessions, omitted) = fitting(rest.map(|(of, session)| status(of, session)));
        SessionList { sessions, omitted }
    }

    /// Returns the status of a pool, also for a while after its end.
    ///
    /// # Errors
    /// If no pool with that id is known, or not yet.
    pub fn pool_status(&self, now: Duration, pool: RunId) -> Result<PoolStatus, Refusal> {
        let known = self.pools.get(&pool).ok_or_else(|| self.unknown_pool(now, pool))?;
        Ok(self.status_of(known))
    }

    /// Returns the state of a known pool.
    pub(crate) fn status_of(&self, known: &Pool) -> PoolStatus {
        let mut status = known.status();
        // Of a pool of an earlier coordinator other placements may still turn up than those that were told of, on a node that
        // is away, however long.
        status.shipped &= known.asked.is_some() || self.is_settled() && self.knows_placements(known);
        status
    }

    pub(crate) fn unknown_pool(&self, now: Duration, pool: RunId) -> Refusal {
        let unknown = || Refusal::new(RefusalCode::NotFound, format!("no pool {pool} is known"));
        self.settles(now).unwrap_or_else(unknown)
    }

    /// Returns the place at which a running session can be watched: its node's link, on which the key can be had, and
    /// the other facts of a grant.
    ///
    /// # Errors
    /// If the session does not run, or is not known to run yet.
    pub(crate) fn watch_place(&self, now: Duration, id: SessionId) -> Result<WatchPlace, Refusal> {
        let pool = self.pools.get(&id.pool).ok_or_else(|| self.unknown_pool(now, id.pool))?;
        let session = pool.sessions.get(&id.index).filter(|session| session.state == SessionState::Running);
        let gone = || Refusal::new(RefusalCode::NotFound, format!("session {id} does not run"));
        let session = session.ok_or_else(gone)?;
        let away = || {
            Refusal::busy(format!("the node of session {id} has sent no report for a while"), AWAY_RETRY_MS)
        };
        Ok(WatchPlace {
            link: self.members.get(&session.node).and_then(Member::link).ok_or_else(away)?,
            incarnation: session.incarnation,
            node: session.node.to_string(),
            address: session.address.clone(),
        })
    }

    fn running(&self) -> impl Iterator<Item = ((&Pool, SessionId), &Session)> {
        self.pools.iter().flat_map(|(&id, pool)| {
            let sessions = pool.sessions.iter().filter(|(_, s)| s.state == SessionState::Running);
            sessions.map(move |(&index, session)| ((pool, SessionId { pool: id, index }), session))
        })
    }
}

/// The place at which a session can be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchPlace {
    pub(crate) link: LinkId,
    pub(crate) incarnation: Incarnation,
    pub(crate) node: String,
    pub(crate) address: String,
}

/// Milliseconds after which to ask again: a node that has lost its connection dials again within seconds.
pub(crate) const AWAY_RETRY_MS: u64 = 500;

/// Returns as many items, the first, as fit into one message, and the number of those that do not.
fn fitting<T: Message>(items: impl Iterator<Item = T>) -> (Vec<T>, u32) {
    let (mut left, mut omitted, mut unfit) = (LIST_BYTES, 0, 0);
    let (mut fit, mut written) = (Vec::new(), Vec::new());
    for item in items {
        written.clear();
        let bytes = control::encode(&item, &mut written).map(|()| written.len()).ok();
        // One that fits into no message is passed over: others come behind it.
        let Some(bytes) = bytes.filter(|bytes| *bytes <= LIST_BYTES) else {
            unfit += 1;
            continue;
        };
        match left.checked_sub(bytes).filter(|_| omitted == 0) {
            Some(rest) => {
                left = rest;
                fit.push(item);
            }
            None => omitted += 1,
        }
    }
    (fit, omitted + unfit)
}

/// Bytes of a list: a message without the room for what surrounds the list.
const LIST_BYTES: usize = MAX_CONTROL_BYTES - 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::{LaneState, Weight};
    use rollhouse_wire::{
        NodeLoad, NodeStatus, PlaysReport, ReplayReport, SessionCounts, SessionReport, Takes, Unfit,
    };

    #[test]
    fn the_longest_lists_fit_into_a_message() {
        let (steps, interrupted) = (u64::MAX, u64::MAX);
        let done = SessionCounts {
            steps,
            episodes: steps,
            return_sum: 0.1,
            interrupted,
            ..SessionCounts::default()
        };
        let session = SessionStatus {
            connecting: u32::MAX,
            node: "n".repeat(128),
            report: SessionReport {
                session: SessionId { pool: RunId::from_u128(u128::MAX), index: u32::MAX },
                incarnation: Incarnation { term: u64::MAX, counter: u64::MAX },
                owner: String::new(),
                env: "e".repeat(128).into(),
                first_lane: u32::MAX,
                lanes: u32::MAX,
                pool_lanes: u32::MAX,
                replaces: true,
                launching: true,
                attached: Some(false),
                transport: Some("shared-memory".to_owned()),
                done,
                replay: Some(ReplayReport {
                    episode: "k3f9q2tz-4294967295-18446744073709551615".to_owned(),
                    state: LaneState::Replaying,
                }),
                plays: Some(PlaysReport { policy: "p".repeat(64), version: u64::MAX, lag: Some(u32::MAX) }),
            },
        };
        let (sessions, omitted) = fitting((0..3000).map(|_| session.clone()));
        assert_eq!(sessions.len() + omitted as usize, 3000);
        assert!(omitted > 0);
        let mut bytes = Vec::new();
        control::encode(&SessionList { sessions, omitted }, &mut bytes).unwrap();
        let load = NodeLoad {
            lanes: u32::MAX,
            queued: u32::MAX,
            steps: u64::MAX,
            episodes: u64::MAX,
            spool_bytes: u64::MAX,
            spool_left: u64::MAX,
            spool_dropped: u64::MAX,
            taken: Weight { cpu_milli: u64::MAX, memory: u64::MAX },
        };
        let node = NodeStatus {
            node: String::new(),
            state: NodeState::Draining,
            address: String::new(),
            capacity: u32::MAX,
            threads: u32::MAX,
            labels: BTreeMap::new(),
            sessions: u32::MAX,
            silent_ms: u64::MAX,
            load,
            program: String::new(),
            kinds: Vec::new(),
            budget: Some(Weight { cpu_milli: u64::MAX, memory: u64::MAX }),
            unfit: Some(Unfit { takes: Takes::Unrecorded, reason: UnfitReason::Disk, why: String::new() }),
        };
        let (nodes, omitted) = fitting((0..3000).map(|_| node.clone()));
        assert!(omitted > 0);
        bytes.clear();
        control::encode(&NodeList { nodes, omitted }, &mut bytes).unwrap();
        // Symptom: `nodes` and `sessions` failed for everybody when nodes said long things.
        // Cause: the texts that were counted were not all that an item has.
        // Fix: an item counts with the bytes that it has in the message.
        let wordy = NodeStatus {
            kinds: (0..64).map(|kind| format!("{kind}{}:*", "k".repeat(120))).collect(),
            unfit: Some(Unfit { takes: Takes::Nothing, reason: UnfitReason::Disk, why: "w".repeat(1024) }),
            ..node
        };
        let (nodes, omitted) = fitting((0..1000).map(|_| wordy.clone()));
        assert!(omitted > 0 && nodes.len() > 50);
        bytes.clear();
        control::encode(&NodeList { nodes, omitted }, &mut bytes).unwrap();
        let long = "u".repeat(MAX_CONTROL_BYTES);
        let endless = NodeStatus {
            unfit: Some(Unfit { takes: Takes::Nothing, reason: UnfitReason::Disk, why: long }),
            ..wordy
        };
        assert_eq!(fitting([endless].into_iter()), (Vec::new(), 1));
    }
}
