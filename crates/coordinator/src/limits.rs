//! The limits and periods of the coordinator, each with a name.

use std::time::Duration;

use rollhouse_core::limits::{BLOCK_LANES, MAX_LANES};
use rollhouse_wire::limits::MAX_POOL_SESSIONS;

/// Interval of a node's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Silence after which a node gets no new sessions.
pub const SUSPECT_AFTER: Duration = Duration::from_secs(3);
/// Silence after which a node is lost, and its sessions with it unless it comes back.
pub const LOST_AFTER: Duration = Duration::from_secs(5);
/// Silence after which a node's host is asked whether its process has ended. A heartbeat that was lost on its way is
/// repeated before that.
pub const DOUBT_AFTER: Duration = Duration::from_millis(1500);
/// Shortest interval between two questions to a node's host about its process.
pub const ASK_PORT_EVERY: Duration = Duration::from_millis(250);
/// Number of hosts that are asked at a time, among those of nodes for which a coordinator waits after its start.
pub const MAX_PORTS_ASKED: usize = 64;
/// Silence after which a lost node is forgotten; its sessions are over then. Long enough for an owner to go on stepping
/// lanes of a node that only the coordinator cannot reach.
pub const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// Time after a restart in which nodes may come back, unless all that were known before have come back or ended. Until
/// then "no room" means "not yet", and no env is unknown.
pub const SETTLE: Duration = LOST_AFTER;
/// Time for which a node that is refused, because it has seen a later coordinator, counts after it last asked: it asks
/// again within seconds.
pub const BEHIND_KEPT: Duration = Duration::from_secs(60);
/// Interval at which [`Event::Tick`](crate::event::Event::Tick) is expected. Losses are noticed at most this much later.
pub const TICK: Duration = Duration::from_millis(250);
/// Interval at which the figures for metrics and health are made again: this looks at each session.
pub(crate) const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Longest time that a request to close a pool waits for its nodes.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// Time after which a leased pool that plays by itself ends if its owner is not heard of: as long as nodes keep the
/// sessions that owners step.
pub const ROLLOUT_LEASE: Duration = Duration::from_secs(30);
/// Time for which lanes that play by themselves wait for another place when their node is lost: long enough for a node to be
/// started again.
pub const RESUME_WITHIN: Duration = Duration::from_secs(300);
/// Time after which to ask again if nothing better is known.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Number of lanes of one session that is part of a larger pool: small enough that several threads share a large pool,
/// large enough that a frame's cost does not show.
pub const MAX_SESSION_LANES: u32 = 1024;
/// Number of lanes of an env that a node has before it has opened any of that env, as long as others have room: one
/// session of a large pool. Anybody can state a large capacity.
pub const FIRST_LANES: u32 = MAX_SESSION_LANES;
/// Number of lanes of one node.
pub const MAX_NODE_LANES: u32 = 1 << 20;
/// Number of sessions that a node may report.
pub const MAX_NODE_SESSIONS: usize = 65_536;
/// Number of sessions that one answer to a heartbeat tells a node to close; the next answer has more.
pub const MAX_CLOSES: usize = 4096;
/// Number of nodes, including lost ones that are not forgotten. Their list fits in one control message.
pub const MAX_NODES: usize = 2048;
/// Number of sessions that one node may claim to have from an earlier coordinator: as many as a node can have. What is
/// claimed beyond that is left alone until its owner asks for it.
pub const MAX_NODE_CLAIMS: usize = 4096;
/// Number of such sessions of all nodes together: it takes sixteen hostile nodes to keep those of others from being
/// known.
pub const MAX_CLAIMS: usize = 16 * MAX_NODE_CLAIMS;
/// Number of sessions in one owner's pools that are not over and not being closed: two of the largest pools.
pub const MAX_OWNER_SESSIONS: usize = 2 * MAX_POOL_SESSIONS;
/// Number of episodes of its own runs that an owner without role admin may have pinned in the store. Each keeps the segments in
/// which it lies, of 256 MiB at most.
pub const MAX_OWN_PINS: usize = 32;
/// Total weight of the ended pools whose status can still be asked for. A pool weighs its sessions and
/// [`ENDED_POOL_WEIGHT`]. The owner with the most weight has its oldest pool forgotten first.
pub const MAX_ENDED_WEIGHT: usize = 131_072;
/// Weight of an ended pool in addition to its sessions.
pub const ENDED_POOL_WEIGHT: usize = 64;
/// Number of ended sessions whose recordings are not in the store. Above it, the owner with the most has its oldest
/// forgotten, and those pools never count as shipped.
pub const MAX_UNSHIPPED: usize = 1 << 18;
/// Number of pools that were closed while nothing was known of them. The owner that has closed most has its oldest
/// forgotten first.
pub const MAX_CLOSED_UNSEEN: usize = 4096;
/// Number of requests that are counted as waiting for room. Above it the figure is too small, but large enough to tell
/// that there is no room.
pub const MAX_WAITING: usize = 16_384;
/// Time for which a request refused because of no room counts as waiting: longer than a client takes to ask again, 3 s.
pub const WAITS_FOR: Duration = Duration::from_secs(5);
/// Number of requests that wait for one pool to open or close.
pub const MAX_WAITERS: usize = 16;
/// Number of nodes on which a session is tried before its pool is refused.
pub const MAX_ATTEMPTS: usize = 3;
/// Number of transports by which running sessions are counted apart.
pub const MAX_TRANSPORTS: usize = 16;
/// Number of segments on the disk of a store, each of which takes a few hundred bytes of memory. Beyond it the oldest are dropped, or
/// leave for the archive, as if they had more bytes than the budget.
pub const MAX_STORE_SEGMENTS: usize = 1 << 20;
/// Bytes of parts of segments that stay in memory for readers who may not read whole ones; one part may be larger.
pub const MAX_CUT_BYTES: usize = 32 << 20;
/// Number of failures in a pool's status.
pub const MAX_FAILURES: usize = 8;
/// Bytes of one failure in a pool's status.
pub const MAX_FAILURE_BYTES: usize = 512;
/// Number of sessions in a pool whose grants name attach sockets: for a larger pool the list would not fit in a
/// message.
pub const MAX_SESSIONS_WITH_ATTACH: usize = 1024;
/// Number of owners that are remembered because they could not reach a node; the oldest are forgotten first.
pub const MAX_UNREACHED_OWNERS: usize = 64;
/// Time for which a node comes last that lives although its host says that its port is closed; then it is tried again.
pub const MISLED_FOR: Duration = Duration::from_secs(60);
/// Time for which a node comes last for an owner that could not reach it.
pub const UNREACHED_FOR: Duration = Duration::from_secs(600);
/// Time for which a node comes last for an env of which it has refused a session; it doubles with each refusal.
pub const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Longest such time.
pub const REFUSED_FOR_MOST: Duration = Duration::from_secs(600);
/// Number of envs of which a node's results are remembered.
pub const MAX_ENV_RESULTS: usize = 256;
/// Number of nodes whose troubles a refusal names.
pub const MAX_UNFIT_TOLD: usize = 3;
/// Interval at which one holder of a join token, or one node, is given a certificate when it asks without a pause; all
/// together are given them twice as often. Each is a signature and, for a token, a file that is synced.
pub const ENROL_EVERY: Duration = Duration::from_millis(100);
/// Number of certificates that are given at once before that pace begins: a launcher's nodes come together.
pub const ENROL_BURST: u32 = 64;
/// Number of holders of tokens and nodes whose paces are kept, each for as long as it lasts.
pub const MAX_ENROLLERS: usize = 4096;
/// Time for which a name that was given to a machine is not given to another: longer than the first takes to register.
pub const NAME_KEPT_FOR: Duration = Duration::from_secs(30);
/// Number of names that are kept in this way.
pub const MAX_ENROLLED_NAMES: usize = 4096;
/// Number of envs of one node.
pub const MAX_ENVS: usize = 4096;
/// Bytes of the address at which a node is reached.
pub const MAX_ADDRESS_BYTES: usize = 256;

const _: () = assert!(
    HEARTBEAT.as_millis() < DOUBT_AFTER.as_millis()
        && DOUBT_AFTER.as_millis() < SUSPECT_AFTER.as_millis()
        && SUSPECT_AFTER.as_millis() < LOST_AFTER.as_millis(),
    "a heartbeat may be late without doubt, doubt comes before suspicion, and suspicion before loss"
);
const _: () = assert!(
    MAX_NODES + MAX_LANES.div_ceil(MAX_SESSION_LANES as usize) <= MAX_POOL_SESSIONS,
    "a pool on every node, and cut into full sessions besides, has no more sessions than a message may list"
);
const _: () =
    assert!((MAX_SESSION_LANES as usize).is_multiple_of(BLOCK_LANES), "sessions are cut between blocks");
/// Bytes that the coordinator may have sent on one connection without an acknowledgement: it sends the recordings that
/// a peer reads no further ahead.
pub(crate) const MAX_UNACKNOWLEDGED_BYTES: u64 = 8 << 20;
