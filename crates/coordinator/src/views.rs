//! What operators and trainers are told of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{
    ClusterStatus, NodeState, NodeStatus, PoolStatus, Refusal, RefusalCode, SessionId, SessionStatus,
    StoreStatus,
};

use crate::Cluster;
use crate::pool::{Pool, Session, SessionState};

impl Cluster {
    /// The cluster at a glance, as `program`; `store` is what the store has.
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
        };
        for member in self.members.iter() {
            let state = member.state(now);
            *status.nodes.entry(state).or_default() += 1;
            if state == NodeState::Alive {
                status.capacity = status.capacity.saturating_add(member.capacity);
            }
            status.steps += member.load.steps;
            status.episodes += member.load.episodes;
        }
        for (_, session) in self.running() {
            status.sessions += 1;
            status.lanes += session.lanes;
            if let Some(transport) = &session.transport {
                *status.transports.entry(transport.clone()).or_default() += 1;
            }
        }
        status
    }

    /// Every node, by name.
    pub fn nodes(&self, now: Duration) -> Vec<NodeStatus> {
        let mut sessions: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, session) in self.running() {
            *sessions.entry(&session.node).or_default() += 1;
        }
        let count = |name: &str| sessions.get(name).copied().unwrap_or(0);
        self.members.iter().map(|member| member.status(now, count(&member.name))).collect()
    }

    /// Every session that runs, by name.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let status = |(pool, id): (&Pool, SessionId), session: &Session| SessionStatus {
            node: session.node.to_string(),
            report: session.report(pool, id),
        };
        self.running().map(|(of, session)| status(of, session)).collect()
    }

    /// How a pool is doing or, for a while after its end, did.
    ///
    /// # Errors
    /// If none of that id is known, or not yet.
    pub fn pool_status(&self, now: Duration, pool: RunId) -> Result<PoolStatus, Refusal> {
        self.pools.get(&pool).map(Pool::status).ok_or_else(|| self.unknown_pool(now, pool))
    }

    pub(crate) fn unknown_pool(&self, now: Duration, pool: RunId) -> Refusal {
        let unknown = || Refusal::new(RefusalCode::NotFound, format!("no pool {pool} is known"));
        self.settles(now).unwrap_or_else(unknown)
    }

    fn running(&self) -> impl Iterator<Item = ((&Pool, SessionId), &Session)> {
        self.pools.iter().flat_map(|(&id, pool)| {
            let sessions = pool.sessions.iter().filter(|(_, s)| s.state == SessionState::Running);
            sessions.map(move |(&index, session)| ((pool, SessionId { pool: id, index }), session))
        })
    }
}
