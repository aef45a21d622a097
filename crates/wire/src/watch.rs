//! Watching sessions: what a viewer asks the coordinator and a node for, and what it is shown.

use rollhouse_core::{EnvSpec, RunId, Start};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::{Incarnation, LaneSettings, ReplayStanding, Secret, SessionId};

/// Viewer to coordinator: where a session can be watched, and by what key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Which session.
    pub session: SessionId,
}

/// The right to watch one placement of a session. It does not let its holder step the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchGrant {
    /// Which session.
    pub session: SessionId,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// What the node is shown.
    pub key: Secret,
    /// The node's name.
    pub node: String,
    /// Where it is reached: host and port.
    pub address: String,
}

/// Coordinator to node: by what key a placement of a session is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmitWatcher {
    /// Which session.
    pub session: SessionId,
    /// Which placement of it.
    pub incarnation: Incarnation,
}

/// The key.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WatcherAdmitted {
    /// Follows from the session's secret, and tells nothing of it ([`Secret::watch_key`]).
    pub key: Secret,
}

/// Viewer to node: the first message of a stream on which a session is watched. After the answer it carries
/// [`Envelope`](crate::Envelope)s: of the viewer, the methods `look` and `so_far`, and of a replay those that move it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenWatch {
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Which of its sessions.
    pub index: u32,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// From the [`WatchGrant`].
    pub key: Secret,
}

/// The session is watched: what its lanes are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchOpened {
    /// The env as the node has it.
    pub spec: EnvSpec,
    /// The session's first lane in the pool.
    pub first_lane: u32,
    /// Its lanes.
    pub lanes: u32,
    /// Lanes of the whole pool.
    pub pool_lanes: u32,
    /// How they behave.
    pub settings: LaneSettings,
    /// Name and version of the node's program.
    pub program: String,
}

/// Asks for the newest frame of a lane that the asker has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookParams {
    /// Which of the session's lanes, counted from its first.
    pub lane: u32,
    /// The serial number of the last frame that was seen of this lane; 0 if none was.
    #[serde(default)]
    pub after: u64,
    /// How long to wait for one, at most [`MAX_LOOK_MS`](crate::limits::MAX_LOOK_MS).
    #[serde(default)]
    pub wait_ms: u32,
}

impl LookParams {
    /// The method's name.
    pub const METHOD: &'static str = "look";
}

/// What is new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LookAnswer {
    /// `None` if the lane has not moved since.
    pub frame: Option<LaneFrame>,
    /// Where it stands, if it is a recorded episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayStanding>,
}

/// A lane as it was between two steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneFrame {
    /// Grows with every frame that is shown of the lane.
    pub serial: u64,
    /// Number of its episode in the lane.
    pub episode: u64,
    /// Steps of it.
    pub step: u64,
    /// The sum of their rewards.
    pub total_reward: f64,
    /// What the last step gave.
    pub reward: f64,
    /// Whether it came to a terminal state.
    pub terminated: bool,
    /// Whether a limit cut the episode.
    pub truncated: bool,
    /// The action that led here, as in a column; empty after a reset.
    #[serde(with = "serde_bytes")]
    pub action: Vec<u8>,
    /// One row of each observation column, back to back.
    #[serde(with = "serde_bytes")]
    pub obs: Vec<u8>,
    /// The exact state; empty where the env does not show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<f64>,
    /// The hash of that; absent while the lane is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
    /// Where the lane's generator stands; absent while the lane is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<LanePosition>,
    /// Steps and resets of the session since it is watched.
    pub moves: u64,
}

/// Asks for a lane's episode as far as it has come, in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoFarParams {
    /// Which of the session's lanes, counted from its first.
    pub lane: u32,
    /// Actions to leave out: those of earlier parts. With 0 the episode is taken as it stands now, and further parts
    /// are of that.
    #[serde(default)]
    pub from: u64,
}

impl SoFarParams {
    /// The method's name.
    pub const METHOD: &'static str = "so_far";
}

/// A lane's episode as far as it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoFar {
    /// Its number in the lane.
    pub episode: u64,
    /// Where it is known from.
    pub from: SoFarFrom,
    /// Steps that are known of it.
    pub steps: u64,
    /// Actions of those steps, as in a column, from the one asked for on: as many as fit.
    #[serde(with = "serde_bytes")]
    pub actions: Vec<u8>,
    /// Whether the last step came to a terminal state.
    pub terminated: bool,
    /// Whether a limit cut the episode there.
    pub truncated: bool,
    /// The sum of all its rewards.
    pub total_reward: f64,
    /// The hash of the state it has come to, where the env shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
}

/// Where a lane's generator stands: a [`Start`] as it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanePosition {
    /// The seed of its last seeded reset.
    pub seed: u64,
    /// 64-bit words drawn since.
    pub words: u64,
    /// The half of the last word that is left over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<u32>,
}

impl From<Start> for LanePosition {
    fn from(Start { seed, words, half }: Start) -> Self {
        Self { seed, words, half }
    }
}

impl From<LanePosition> for Start {
    fn from(LanePosition { seed, words, half }: LanePosition) -> Self {
        Self { seed, words, half }
    }
}

/// Where an episode is known from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoFarFrom {
    /// From its reset.
    Reset(LanePosition),
    /// From a later step on: nobody had watched before, or there were more than are kept.
    Step(Box<StepState>),
}

/// All that a lane needs to go on from a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// Steps before it.
    pub step: u64,
    /// The sum of their rewards.
    pub total_reward: f64,
    /// Where the lane's generator stood.
    pub position: LanePosition,
    /// Its exact state.
    pub state: Vec<f64>,
    /// The hash of that.
    pub hash: u32,
    /// One row of each observation column, back to back.
    #[serde(with = "serde_bytes")]
    pub obs: Vec<u8>,
}
