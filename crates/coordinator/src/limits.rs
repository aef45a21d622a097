//! Every bound and period of the coordinator, by name.

use std::time::Duration;

use rollhouse_core::limits::{BLOCK_LANES, MAX_LANES};
use rollhouse_wire::limits::MAX_POOL_SESSIONS;

/// How often a node is heard of.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// A node that was silent for so long gets no new sessions.
pub const SUSPECT_AFTER: Duration = Duration::from_secs(3);
/// A node that was silent for so long is lost, and its sessions with it unless it comes back.
pub const LOST_AFTER: Duration = Duration::from_secs(5);
/// A node that was silent for so long has its host asked whether its process has ended. A heartbeat that was lost on its
/// way is made up for before.
pub const DOUBT_AFTER: Duration = Duration::from_millis(1500);
/// A node's host is asked about its process no sooner after the last time, whoever has a doubt.
pub const ASK_PORT_EVERY: Duration = Duration::from_millis(250);
/// Hosts of nodes that a coordinator waits for after its start are asked so many at a time.
pub const MAX_PORTS_ASKED: usize = 64;
/// A lost node is forgotten after so much silence; its sessions are over then. Long enough for an owner to go on
/// stepping lanes of a node that only the coordinator cannot reach.
pub const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// After a restart nodes are given so long to come back, unless all that were known before have, or have ended: until
/// then "no room" is "not yet", and no env is unknown.
pub const SETTLE: Duration = LOST_AFTER;
/// How often [`Event::Tick`](crate::Event::Tick) is expected. Losses are noticed so much later at most.
pub const TICK: Duration = Duration::from_millis(250);
/// How often what metrics and health show is made anew: it takes a look at each session.
pub(crate) const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Who closes a pool waits at most so long for its nodes.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// A pool that plays by itself and is leased ends when its owner was not heard of for so long: as long as nodes keep the
/// sessions that owners step.
pub const ROLLOUT_LEASE: Duration = Duration::from_secs(30);
/// When to ask again if nothing better is known.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Lanes of one session that is part of a larger pool: small enough that several threads share a large pool,
/// large enough that a frame's cost does not show.
pub const MAX_SESSION_LANES: u32 = 1024;
/// Lanes of one node.
pub const MAX_NODE_LANES: u32 = 1 << 20;
/// Sessions a node may tell of.
pub const MAX_NODE_SESSIONS: usize = 65_536;
/// Sessions a node is told to close by one answer to a heartbeat; more by the next.
pub const MAX_CLOSES: usize = 4096;
/// Nodes, lost ones that are not forgotten included. Their list fits one control message.
pub const MAX_NODES: usize = 2048;
/// Pools that have not ended.
pub const MAX_POOLS: usize = 16_384;
/// Those of one owner: it takes eight that mean harm to keep everybody else out, and half of a node's sessions at
/// most are of pools of one session that one owner has.
pub const MAX_OWNER_POOLS: usize = 2048;
/// Sessions of one owner's pools, each as long as it is not over and not being closed: two of the largest pools.
pub const MAX_OWNER_SESSIONS: usize = 2 * MAX_POOL_SESSIONS;
/// What the ended pools whose status can still be asked for weigh together: each its sessions and
/// [`ENDED_POOL_WEIGHT`]. Whoever's weigh most has its oldest forgotten first.
pub const MAX_ENDED_WEIGHT: usize = 131_072;
/// What an ended pool weighs besides its sessions.
pub const ENDED_POOL_WEIGHT: usize = 64;
/// Ended sessions whose recordings are not in the store. Beyond, whoever has most has its oldest forgotten, and those
/// pools never count as shipped.
pub const MAX_UNSHIPPED: usize = 1 << 18;
/// Pools that were closed while nothing was known of them. Whoever has closed most has its oldest forgotten first.
pub const MAX_CLOSED_UNSEEN: usize = 4096;
/// What waits for room and is counted. Beyond, the figure is too small, and large enough to tell that there is no room.
pub const MAX_WAITING: usize = 16_384;
/// What was refused for want of room counts as waiting for so long: longer than a client takes to ask again, 3 s.
pub const WAITS_FOR: Duration = Duration::from_secs(5);
/// Requests that wait for one pool to open or close.
pub const MAX_WAITERS: usize = 16;
/// Nodes a session is tried on before its pool is refused.
pub const MAX_ATTEMPTS: usize = 3;
/// Failures a pool's status tells of.
pub const MAX_FAILURES: usize = 8;
/// Bytes of one failure in a pool's status.
pub const MAX_FAILURE_BYTES: usize = 512;
/// Sessions of a pool whose grants name attach sockets: with those of more the list would outgrow a message.
pub const MAX_SESSIONS_WITH_ATTACH: usize = 1024;
/// Owners of whom it is kept that they could not reach a node; the oldest are forgotten first.
pub const MAX_UNREACHED_OWNERS: usize = 64;
/// A node that lives though its host says that its port is closed comes last for so long; then it is tried again.
pub const MISLED_FOR: Duration = Duration::from_secs(60);
/// A node that an owner could not reach comes last for him for so long.
pub const UNREACHED_FOR: Duration = Duration::from_secs(600);
/// Nodes whose faults a refusal names.
pub const MAX_UNFIT_TOLD: usize = 3;
/// How often one holder of a join token, or one node, is given a certificate when it asks without a pause; all together
/// are given them twice as often. Each is a signature and, of a token, a file that is synced.
pub const ENROL_EVERY: Duration = Duration::from_millis(100);
/// So many are given at once before that pace begins: a launcher's nodes come together.
pub const ENROL_BURST: u32 = 64;
/// Holders of tokens and nodes whose paces are kept, each for as long as it lasts.
pub const MAX_ENROLLERS: usize = 4096;
/// A name that was given to a machine is not given to another for so long, which is longer than the first takes to
/// register.
pub const NAME_KEPT_FOR: Duration = Duration::from_secs(30);
/// Names that are kept so.
pub const MAX_ENROLLED_NAMES: usize = 4096;
/// Envs of one node.
pub const MAX_ENVS: usize = 4096;
/// Bytes of the address under which a node is reached.
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
const _: () = assert!(MAX_OWNER_POOLS * 8 <= MAX_POOLS, "one owner leaves pools for others");
const _: () =
    assert!((MAX_SESSION_LANES as usize).is_multiple_of(BLOCK_LANES), "sessions are cut between blocks");
/// Bytes that one connection may have from the coordinator without having said that they came: recordings that it reads
/// are sent no further ahead.
pub(crate) const MAX_UNACKNOWLEDGED_BYTES: u64 = 8 << 20;
