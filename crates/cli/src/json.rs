//! The objects that `--json` prints of a cluster and of envs, which the Python package gives as they are.
//!
//! docs/json.md has every key. A key is there whatever its value: null where there is none. Not goals: the objects of
//! one command alone, which stand beside it, and messages between processes, which are those of crate wire.

use std::collections::BTreeMap;

use rollhouse_core::Weight;
use rollhouse_wire::{
    BehindStatus, ClusterStatus, EndCause, Extent, GoneSession, NodeStatus, OfferedEnv, PlaysReport,
    PolicyInfo, PoolStatus, ReplayReport, SessionCounts, SessionId, SessionReport, SessionStatus, Unfit,
};
use serde::Serialize;

use crate::human::rfc3339;

mod spaces;

pub use spaces::{EnvObject, StepColumnObject};

/// Returns a dynamics hash as it is printed everywhere: 64 bits do not survive JSON readers as a number.
pub fn dynamics(hash: u64) -> String {
    format!("{hash:016x}")
}

/// The spread of a figure over finished episodes; null where no episode finished, and where it is not known.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    pub(crate) mean: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Spread {
    /// Makes the spread of returns of which a cluster counts the sum alone.
    pub(crate) fn of_sum(done: &SessionCounts) -> Self {
        let mean = (done.episodes > 0).then(|| done.return_sum / done.episodes as f64);
        Self { mean, min: None, max: None }
    }

    /// Adds the least and the greatest.
    pub(crate) fn within(self, Extent(extent): Extent) -> Self {
        Self { min: extent.map(|(least, _)| least), max: extent.map(|(_, greatest)| greatest), ..self }
    }
}

/// The cluster at a glance: `rollhouse status --json`.
#[derive(Debug, Serialize)]
pub struct StatusObject<'a> {
    program: &'a str,
    term: u64,
    uptime_s: u64,
    nodes: BTreeMap<&'static str, u32>,
    capacity: u32,
    lanes: u32,
    pools: u32,
    sessions: u32,
    steps: u64,
    episodes: u64,
    transports: &'a BTreeMap<String, u32>,
    store: StoreObject,
    behind: Option<&'a BehindStatus>,
}

/// The contents of a store, in numbers.
#[derive(Debug, Serialize)]
struct StoreObject {
    segments: u64,
    bytes: u64,
    quarantined: u64,
    set_aside: u64,
}

impl<'a> From<&'a ClusterStatus> for StatusObject<'a> {
    fn from(status: &'a ClusterStatus) -> Self {
        let store = status.store;
        Self {
            program: &status.program,
            term: status.term,
            uptime_s: status.uptime_s,
            nodes: status.nodes.iter().map(|(state, count)| (state.word(), *count)).collect(),
            capacity: status.capacity,
            lanes: status.lanes,
            pools: status.pools,
            sessions: status.sessions,
            steps: status.steps,
            episodes: status.episodes,
            transports: &status.transports,
            store: StoreObject {
                segments: store.segments,
                bytes: store.bytes,
                quarantined: store.quarantined,
                set_aside: store.set_aside,
            },
            behind: status.behind.as_ref(),
        }
    }
}

/// A node: a line of `rollhouse nodes --json`.
#[derive(Debug, Serialize)]
pub struct NodeObject<'a> {
    node: &'a str,
    state: &'static str,
    address: &'a str,
    capacity: u32,
    threads: u32,
    labels: &'a BTreeMap<String, String>,
    kinds: &'a [String],
    sessions: u32,
    #[serde(flatten)]
    load: LoadObject,
    budget: Option<Weight>,
    unfit: Option<UnfitObject<'a>>,
    silent_ms: u64,
    program: &'a str,
}

/// What a node has to do and has done.
#[derive(Debug, Serialize)]
struct LoadObject {
    lanes: u32,
    queued: u32,
    steps: u64,
    episodes: u64,
    spool: SpoolObject,
    taken: Weight,
}

/// What a node has recorded and not shipped yet, and what has left its spool.
#[derive(Debug, Serialize)]
struct SpoolObject {
    bytes: u64,
    left_bytes: u64,
    dropped_episodes: u64,
}

/// A node's trouble.
#[derive(Debug, Serialize)]
struct UnfitObject<'a> {
    takes: rollhouse_wire::Takes,
    reason: rollhouse_wire::UnfitReason,
    why: &'a str,
}

impl<'a> From<&'a NodeStatus> for NodeObject<'a> {
    fn from(status: &'a NodeStatus) -> Self {
        let load = status.load;
        let unfit =
            |unfit: &'a Unfit| UnfitObject { takes: unfit.takes, reason: unfit.reason, why: &unfit.why };
        Self {
            node: &status.node,
            state: status.state.word(),
            address: &status.address,
            capacity: status.capacity,
            threads: status.threads,
            labels: &status.labels,
            kinds: &status.kinds,
            sessions: status.sessions,
            load: LoadObject {
                lanes: load.lanes,
                queued: load.queued,
                steps: load.steps,
                episodes: load.episodes,
                spool: SpoolObject {
                    bytes: load.spool_bytes,
                    left_bytes: load.spool_left,
                    dropped_episodes: load.spool_dropped,
                },
                taken: load.taken,
            },
            budget: status.budget,
            unfit: status.unfit.as_ref().map(unfit),
            silent_ms: status.silent_ms,
            program: &status.program,
        }
    }
}

/// A session: a line of `rollhouse sessions --json`.
#[derive(Debug, Serialize)]
pub struct SessionObject<'a> {
    session: String,
    run: String,
    node: &'a str,
    env: &'a str,
    owner: &'a str,
    first_lane: u32,
    lanes: u32,
    pool_lanes: u32,
    launching: bool,
    connecting: u32,
    attached: Option<bool>,
    transport: Option<&'a str>,
    #[serde(flatten)]
    done: DoneObject,
    #[serde(flatten)]
    shows: ShowsObject<'a>,
    #[serde(flatten)]
    placement: PlacementObject,
}

/// What a session shows or plays beside what its owner does.
#[derive(Debug, Serialize)]
struct ShowsObject<'a> {
    replay: Option<&'a ReplayReport>,
    plays: Option<PlaysObject<'a>>,
}

impl<'a> From<&'a SessionReport> for ShowsObject<'a> {
    fn from(report: &'a SessionReport) -> Self {
        let plays = report.plays.as_ref();
        let plays = plays.map(|PlaysReport { policy, version, lag }| PlaysObject {
            policy,
            version: *version,
            lag: *lag,
        });
        Self { replay: report.replay.as_ref(), plays }
    }
}

/// The policy by which a session plays for its owner.
#[derive(Debug, Serialize)]
struct PlaysObject<'a> {
    policy: &'a str,
    version: u64,
    lag: Option<u32>,
}

/// Which placement of a session it is, and whether it took the place of an earlier one.
#[derive(Debug, Serialize)]
struct PlacementObject {
    incarnation: String,
    replaces: bool,
}

/// What was done: env steps, finished episodes, those that were cut from outside, returns.
#[derive(Debug, Serialize)]
struct DoneObject {
    steps: u64,
    episodes: u64,
    interrupted: u64,
    #[serde(rename = "return")]
    total_reward: Spread,
}

impl From<&SessionCounts> for DoneObject {
    fn from(done: &SessionCounts) -> Self {
        let SessionCounts { steps, episodes, interrupted, .. } = *done;
        Self { steps, episodes, interrupted, total_reward: Spread::of_sum(done) }
    }
}

impl<'a> From<&'a SessionStatus> for SessionObject<'a> {
    fn from(SessionStatus { node, report, connecting }: &'a SessionStatus) -> Self {
        Self {
            session: report.session.to_string(),
            run: report.session.pool.to_string(),
            node,
            env: &report.env,
            owner: &report.owner,
            first_lane: report.first_lane,
            lanes: report.lanes,
            pool_lanes: report.pool_lanes,
            launching: report.launching,
            connecting: *connecting,
            attached: report.attached,
            transport: report.transport.as_deref(),
            done: DoneObject::from(&report.done),
            shows: ShowsObject::from(report),
            placement: PlacementObject {
                incarnation: report.incarnation.to_string(),
                replaces: report.replaces,
            },
        }
    }
}

/// A pool: `rollhouse close --json`.
#[derive(Debug, Serialize)]
pub struct PoolObject<'a> {
    run: String,
    open: u32,
    ended: BTreeMap<&'static str, u32>,
    gone: Vec<GoneObject>,
    failures: &'a [String],
    #[serde(flatten)]
    done: DoneObject,
    stored: bool,
    settled: bool,
    set_aside: u64,
}

/// A session that is gone, and why.
#[derive(Debug, Serialize)]
struct GoneObject {
    session: String,
    cause: &'static str,
    incarnation: String,
}

impl<'a> PoolObject<'a> {
    /// Makes the object of a pool in that state.
    pub fn of(run: rollhouse_core::RunId, status: &'a PoolStatus) -> Self {
        let gone = |GoneSession { index, incarnation, cause }: &GoneSession| GoneObject {
            session: SessionId { pool: run, index: *index }.to_string(),
            cause: cause.word(),
            incarnation: incarnation.to_string(),
        };
        Self {
            run: run.to_string(),
            open: status.open,
            ended: causes(&status.ended),
            gone: status.gone.iter().map(gone).collect(),
            failures: &status.failures,
            done: DoneObject::from(&status.done),
            stored: status.shipped,
            settled: status.settled || status.shipped,
            set_aside: status.set_aside,
        }
    }
}

/// Returns the numbers of ended sessions by the word for their cause.
pub(crate) fn causes(ended: &BTreeMap<EndCause, u32>) -> BTreeMap<&'static str, u32> {
    ended.iter().map(|(cause, count)| (cause.word(), *count)).collect()
}

/// An env that a cluster offers: a line of `rollhouse envs --json --connect`.
#[derive(Debug, Serialize)]
pub struct OfferedObject<'a> {
    env: &'a str,
    dynamics: Option<String>,
    nodes: u32,
    free_lanes: u32,
}

impl<'a> From<&'a OfferedEnv> for OfferedObject<'a> {
    fn from(offered: &'a OfferedEnv) -> Self {
        let OfferedEnv { env, dynamics_hash, nodes, free_lanes } = offered;
        Self { env, dynamics: dynamics_hash.map(dynamics), nodes: *nodes, free_lanes: *free_lanes }
    }
}

/// A version of a policy of a cluster: a line of `rollhouse policy ls --json`.
#[derive(Debug, Serialize)]
pub struct PolicyObject<'a> {
    name: &'a str,
    version: u64,
    bytes: u64,
    format: &'a str,
    sha256: String,
    owner: &'a str,
    put: String,
}

impl<'a> From<&'a PolicyInfo> for PolicyObject<'a> {
    fn from(info: &'a PolicyInfo) -> Self {
        Self {
            name: &info.policy.name,
            version: info.policy.version,
            bytes: info.bytes,
            format: &info.format,
            sha256: info.hash.to_string(),
            owner: &info.owner,
            put: rfc3339(info.put_ms),
        }
    }
}
