//! Membership: the messages in which nodes tell the coordinator about themselves.

use std::collections::BTreeMap;
use std::fmt;

use rollhouse_core::{Budget, EnvId, Interruption, Weight, bounded_text, bounded_text_or_none, cut_sentence};
use serde::{Deserialize, Serialize};

use crate::limits::{MAX_DETAIL_BYTES, MAX_NAME_BYTES, MAX_OWNER_BYTES, MAX_TRANSPORT_BYTES, MAX_WHY_BYTES};
use crate::session::is_false;
use crate::{Changes, CloseSession, EpisodeCounts, Incarnation, ReplayReport, SessionId, SessionStanding};

/// Registers a node with the coordinator after each (re)connection. Heartbeats tell which sessions run on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// The node's name, which must be the one in its certificate.
    pub node: String,
    /// A number drawn at the node's start: it tells a restarted node from one that was cut off.
    pub boot: u64,
    /// The address at which trainers reach it: host and port.
    pub address: String,
    /// Path of its attach socket, for trainers on its machine; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<String>,
    /// Number of lanes that it takes.
    pub capacity: u32,
    /// Number of threads on which it steps.
    pub threads: u32,
    /// Labels, for placement.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Envs that it has, with their dynamics hash.
    pub envs: BTreeMap<String, u64>,
    /// Kinds of envs that it learns when one is asked for, e.g. `gymnasium:*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// What it has for lanes, and the terms of envs there; absent if it has nothing to say of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The greatest term of a session that is open on it, 0 without any.
    pub term: u64,
    /// The latest coordinator that the node has seen, over its restarts: no older one takes the node in. Absent if it has
    /// seen none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenTerm>,
    /// Name and version of its program.
    pub program: String,
}

/// A coordinator that a node has seen. Two that have one term are told apart by what they drew at their start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeenTerm {
    /// The coordinator's term.
    pub term: u64,
    /// The number that it drew at its start; 0 if it has not said one.
    #[serde(default)]
    pub boot: u64,
}

impl SeenTerm {
    /// Returns whether a coordinator that is `self` is outdated for a node that has seen `other`: it began earlier, or
    /// another has had the same term.
    pub const fn is_behind(self, other: Self) -> bool {
        let differs = self.boot != other.boot && self.boot != 0 && other.boot != 0;
        self.term < other.term || (self.term == other.term && differs)
    }
}

/// The answer to [`Register`]: the coordinator knows the node now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The coordinator's term.
    pub term: u64,
    /// The number that the coordinator drew at its start; 0 from one that draws none.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub boot: u64,
    /// Interval at which the node has to send heartbeats.
    pub heartbeat_ms: u64,
    /// The version of this boot's sessions that the coordinator has; 0 if it has to be told everything.
    pub known: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's")]
const fn is_unsaid(boot: &u64) -> bool {
    *boot == 0
}

/// A node's sign of life to the coordinator, once a second: its control thread still turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Number of the heartbeat on this connection, from 1.
    pub number: u64,
    /// The node's load.
    pub load: NodeLoad,
    /// Changes among its open sessions since the coordinator last took changes in.
    pub changes: Changes,
    /// Sessions that ended and whose end the coordinator has not acknowledged yet.
    pub ended: Vec<SessionEnd>,
    /// The trouble that keeps it from taking sessions, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<Unfit>,
    /// Whether it takes no new sessions and ends when its last has.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draining: bool,
    /// What a lane was measured to weigh there, by the id of its env; at most
    /// [`MAX_WEIGHED_ENVS`](rollhouse_core::limits::MAX_WEIGHED_ENVS).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, Weight>,
    /// Its sessions, open or being opened, whose lanes try to connect; at most
    /// [`MAX_CONNECTING_TOLD`](crate::limits::MAX_CONNECTING_TOLD).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connecting: Vec<ConnectingSession>,
    /// Where the lanes of some sessions stand that play by themselves; of at most
    /// [`MAX_STANDING_LANES`](crate::limits::MAX_STANDING_LANES) lanes together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standings: Vec<SessionStanding>,
}

/// A session whose lanes try to connect to the game or simulator of which their env is a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectingSession {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// How often the lane that has tried longest has tried again.
    pub retries: u32,
}

/// A trouble of a node that is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    /// The sessions that it takes all the same.
    pub takes: Takes,
    /// The kind of the trouble.
    #[serde(default, skip_serializing_if = "UnfitReason::is_unknown")]
    pub reason: UnfitReason,
    /// The trouble in one sentence; of more than [`MAX_WHY_BYTES`](crate::limits::MAX_WHY_BYTES) the middle is left out.
    #[serde(deserialize_with = "cut_sentence::<MAX_WHY_BYTES, _>")]
    pub why: String,
}

/// The kind of a node's trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnfitReason {
    /// Its certificate does not hold.
    Certificate,
    /// Its disk takes nothing.
    Disk,
    /// Its spool has come to its limit.
    SpoolFull,
    /// Its disk or its spool is nearly full.
    Room,
    /// The store does not take what it records.
    Shipping,
    /// Nobody listens at the address that it advertises, its host says.
    Address,
    /// An owner did not reach it at the address that it advertises.
    Unreached,
    /// A kind of an earlier or later version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl UnfitReason {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Certificate,
        Self::Disk,
        Self::SpoolFull,
        Self::Room,
        Self::Shipping,
        Self::Address,
        Self::Unreached,
        Self::Unknown,
    ];

    /// Returns the word in messages and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Disk => "disk",
            Self::SpoolFull => "spool_full",
            Self::Room => "room",
            Self::Shipping => "shipping",
            Self::Address => "address",
            Self::Unreached => "unreached",
            Self::Unknown => "unknown",
        }
    }

    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// The new sessions that a node with a trouble takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Takes {
    /// It takes none.
    Nothing,
    /// It takes those that record nothing.
    Unrecorded,
    /// It takes any, but every other node with room goes before it.
    Last,
}

/// Prints the words that follow the node's name in a sentence.
impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "takes no new sessions",
            Self::Unrecorded => "takes no new sessions that are recorded",
            Self::Last => "is given sessions last",
        })
    }
}

/// The answer to a heartbeat: it was taken in, with its `ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatTaken {
    /// The heartbeat's number.
    pub number: u64,
    /// The version of the node's sessions that the coordinator has now.
    pub known: u64,
    /// Sessions the node has to close: they were placed elsewhere or their pool is gone.
    pub close: Vec<CloseSession>,
    /// Whether the node is to take no new sessions and end when the last has.
    pub drain: bool,
    /// Whether a node that drains is to go on instead; one that is stopping does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undrain: bool,
}

/// The load of a node. Counters count from the node's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Lanes of its open sessions.
    pub lanes: u32,
    /// Number of batches that wait for a thread.
    pub queued: u32,
    /// Env steps.
    pub steps: u64,
    /// Finished episodes.
    pub episodes: u64,
    /// Bytes recorded and not yet in the store, buffers included.
    pub spool_bytes: u64,
    /// Bytes that have left the spool: shipped, or dropped because it was full.
    #[serde(default)]
    pub spool_left: u64,
    /// Episodes that were not recorded because the spool was full.
    pub spool_dropped: u64,
    /// What its lanes weigh together.
    #[serde(default, skip_serializing_if = "Weight::is_nothing")]
    pub taken: Weight,
}

/// A session as its node sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionReport {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// Name of the owner's token or certificate.
    #[serde(deserialize_with = "bounded_text::<MAX_OWNER_BYTES, _>")]
    pub owner: String,
    /// Id of its env.
    #[serde(deserialize_with = "EnvId::bounded")]
    pub env: EnvId,
    /// Number of its first lane in the pool.
    pub first_lane: u32,
    /// Number of its lanes.
    pub lanes: u32,
    /// Number of lanes of the whole pool.
    pub pool_lanes: u32,
    /// Whether it took the place of an earlier placement.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
    /// Whether its lanes are being launched, which processes may take long for: nothing is stepped yet.
    #[serde(default, skip_serializing_if = "is_false")]
    pub launching: bool,
    /// Whether its owner is attached; `None` when the node plays by itself.
    pub attached: Option<bool>,
    /// Transport of the attached owner, e.g. `quic`.
    #[serde(default, deserialize_with = "bounded_text_or_none::<MAX_TRANSPORT_BYTES, _>")]
    pub transport: Option<String>,
    /// The steps and episodes that it has done.
    pub done: SessionCounts,
    /// The recorded episode that it shows, if it is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayReport>,
    /// The policy of its owner's by which it plays, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plays: Option<PlaysReport>,
}

/// The policy by which the node plays a session for its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaysReport {
    /// Its name.
    #[serde(deserialize_with = "bounded_text::<MAX_NAME_BYTES, _>")]
    pub policy: String,
    /// The version of its weights.
    pub version: u64,
    /// By how many updates the fragment that the owner was given last was older than the newest policy; `None` before there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u32>,
}

impl fmt::Display for PlaysReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.policy, self.version)?;
        self.lag.map_or(Ok(()), |lag| write!(f, ", lag {lag}"))
    }
}

/// The steps and episodes that a session has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionCounts {
    /// Env steps.
    pub steps: u64,
    /// Finished episodes.
    pub episodes: u64,
    /// Sum of the returns of these episodes.
    pub return_sum: f64,
    /// Number of episodes that were cut from outside.
    pub interrupted: u64,
    /// How the episodes ended; only of sessions that have ended, and empty from earlier nodes.
    #[serde(default, skip_serializing_if = "EpisodeCounts::is_empty")]
    pub detail: EpisodeCounts,
}

impl SessionCounts {
    /// Adds the counts of another session. A node may report any numbers: sums saturate at their largest value.
    pub fn add(&mut self, other: &Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.episodes = self.episodes.saturating_add(other.episodes);
        self.return_sum += other.return_sum;
        self.interrupted = self.interrupted.saturating_add(other.interrupted);
        self.detail.add(&other.detail);
    }

    /// Returns the counts without how the episodes ended.
    #[must_use]
    pub fn brief(self) -> Self {
        Self { detail: EpisodeCounts::default(), ..self }
    }
}

/// The end of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The reason why it ended.
    pub cause: EndCause,
    /// One sentence about the failure when something failed, else empty; of more than
    /// [`MAX_DETAIL_BYTES`](crate::limits::MAX_DETAIL_BYTES) the middle is left out.
    #[serde(default, deserialize_with = "cut_sentence::<MAX_DETAIL_BYTES, _>")]
    pub detail: String,
    /// The steps and episodes that it had done.
    pub done: SessionCounts,
    /// The session's last report, for a coordinator that has never heard of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<SessionReport>>,
    /// Whether it waited for an owner who never attached: the node may be out of owners' reach.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unreached: bool,
}

/// The reason why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// It reached its goal.
    Finished,
    /// It was closed by its owner or an operator.
    Closed,
    /// Its owner was not heard of for the time of the lease.
    LeaseEnded,
    /// The node left in order.
    Drained,
    /// The node was lost or restarted. Only the coordinator gives this cause.
    NodeLost,
    /// Its lanes made no progress.
    Hung,
    /// Something failed.
    Failed,
}

impl EndCause {
    /// Returns the word in messages, listings and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Closed => "closed",
            Self::LeaseEnded => "lease_ended",
            Self::Drained => "drained",
            Self::NodeLost => "node_lost",
            Self::Hung => "hung",
            Self::Failed => "failed",
        }
    }

    /// Returns how the session's open episodes end, as their owner sees it.
    pub const fn interruption(self) -> Interruption {
        match self {
            Self::Drained => Interruption::Evicted,
            Self::NodeLost => Interruption::NodeLost,
            Self::Hung => Interruption::Hung,
            Self::Failed => Interruption::Crashed,
            Self::LeaseEnded => Interruption::Disconnected,
            Self::Finished | Self::Closed => Interruption::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_CONTROL_BYTES;
    use rollhouse_core::RunId;
    use rollhouse_core::msgpack::{DecodeError, decode, encode};
    use serde::de::DeserializeOwned;

    fn read<T: Serialize + DeserializeOwned>(message: &T) -> Result<T, DecodeError> {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        decode(&bytes, MAX_CONTROL_BYTES)
    }

    /// Symptom: `status`, `nodes` and `sessions` failed for everybody while one node said long things, which the coordinator
    /// also held. Cause: texts in reports, ends and troubles had no bound but a message's. Fix: names are refused beyond
    /// theirs, and of sentences the middle is left out.
    #[test]
    fn texts_of_a_node_are_bounded_as_they_are_read() {
        let (session, incarnation) =
            (SessionId { pool: RunId::from_u128(7), index: 0 }, Incarnation { term: 1, counter: 1 });
        let report = SessionReport {
            session,
            incarnation,
            owner: "ada".to_owned(),
            env: "CartPole-v1".into(),
            first_lane: 0,
            lanes: 1,
            pool_lanes: 1,
            replaces: false,
            launching: false,
            attached: None,
            transport: None,
            done: SessionCounts::default(),
            replay: None,
            plays: None,
        };
        assert_eq!(read(&report).unwrap(), report);
        let long = || "x".repeat(100_000);
        let shown = ReplayReport { episode: long(), state: rollhouse_core::LaneState::Paused };
        for bad in [
            SessionReport { owner: long(), ..report.clone() },
            SessionReport { env: long().into(), ..report.clone() },
            SessionReport { transport: Some(long()), ..report.clone() },
            SessionReport { replay: Some(shown), ..report },
        ] {
            let error = read(&bad).unwrap_err().to_string();
            assert!(error.contains("a text of 100000 bytes, at most "), "{error}");
        }
        let end = SessionEnd {
            session,
            incarnation,
            cause: EndCause::Failed,
            detail: format!("it failed: {}, for a reason", long()),
            done: SessionCounts::default(),
            report: None,
            unreached: false,
        };
        let detail = read(&end).unwrap().detail;
        assert!(detail.len() <= MAX_DETAIL_BYTES, "{} bytes", detail.len());
        assert!(detail.starts_with("it failed: ") && detail.ends_with(", for a reason"), "{detail}");
        let unfit = read(&Unfit { takes: Takes::Nothing, reason: UnfitReason::Disk, why: long() }).unwrap();
        assert!(unfit.why.len() <= MAX_WHY_BYTES);
        let refusal = read(&crate::Refusal::new(crate::RefusalCode::Internal, long())).unwrap();
        assert!(refusal.message.len() <= crate::limits::MAX_REFUSAL_BYTES);
    }
}
