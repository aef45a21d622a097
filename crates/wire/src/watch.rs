//! Watching sessions: the requests of a viewer to the coordinator and to a node, and their answers.

use rollhouse_core::{EnvSpec, RunId, Start};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::session::is_false;
use crate::{Incarnation, LaneSettings, ReplayStanding, Secret, SessionId};

/// Asks the coordinator where a session can be watched, and by what key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The session.
    pub session: SessionId,
}

/// The right to watch one placement of a session. It does not let its holder step the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchGrant {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The key to show to the node.
    pub key: Secret,
    /// The node's name.
    pub node: String,
    /// The address at which the node is reached: host and port.
    pub address: String,
}

/// Asks a node, on behalf of the coordinator, for the key with which a placement of a session is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmitWatcher {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// Name of the token or certificate of the one that watches, whose share its watching counts to; empty for
    /// coordinators of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Whether that is an admin, who has of the places that nodes reserve.
    #[serde(default, skip_serializing_if = "is_false")]
    pub operates: bool,
}

/// The answer to [`AdmitWatcher`]: the key.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WatcherAdmitted {
    /// The key, which follows from the session's secret and does not reveal it ([`Secret::watch_key`]).
    pub key: Secret,
}

/// The first message of a stream on which a session is watched, from viewer to node. After the answer the stream
/// carries [`Envelope`](crate::Envelope)s: the viewer's have the methods `look` and `so_far`,
/// and on a replay those that move it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenWatch {
    /// The pool of the session.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Index of the session in its pool.
    pub index: u32,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The key from the [`WatchGrant`].
    pub key: Secret,
}

/// The answer to [`OpenWatch`]: the session is watched, and its lanes are these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchOpened {
    /// The env as the node has it.
    pub spec: EnvSpec,
    /// Number of the session's first lane in the pool.
    pub first_lane: u32,
    /// Number of its lanes.
    pub lanes: u32,
    /// Number of lanes of the whole pool.
    pub pool_lanes: u32,
    /// Settings of the lanes.
    pub settings: LaneSettings,
    /// Name and version of the node's program.
    pub program: String,
}

/// Asks for the newest frame of a lane that the asker has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookParams {
    /// Index of the lane in the session, counted from its first.
    pub lane: u32,
    /// Serial number of the last frame that was seen of this lane; 0 if none was.
    #[serde(default)]
    pub after: u64,
    /// Time to wait for a frame, at most [`MAX_LOOK_MS`](crate::limits::MAX_LOOK_MS).
    #[serde(default)]
    pub wait_ms: u32,
    /// Whether the lane is to be drawn where its env draws itself and shows no state.
    #[serde(default, skip_serializing_if = "is_false")]
    pub picture: bool,
}

impl LookParams {
    /// The method's name.
    pub const METHOD: &'static str = "look";
}

/// The answer to [`LookParams`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LookAnswer {
    /// The newest frame; `None` if the lane has not moved since.
    pub frame: Option<LaneFrame>,
    /// The position, if the session is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayStanding>,
}

/// A lane as it was between two steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneFrame {
    /// Serial number, which grows with every frame that is shown of the lane.
    pub serial: u64,
    /// Number of the episode in the lane.
    pub episode: u64,
    /// Number of steps of the episode so far.
    pub step: u64,
    /// Sum of the rewards of these steps.
    pub total_reward: f64,
    /// Reward of the last step.
    pub reward: f64,
    /// Whether the last step came to a terminal state.
    pub terminated: bool,
    /// Whether a limit cut the episode.
    pub truncated: bool,
    /// The action that led here, as in a column; empty after a reset.
    #[serde(with = "serde_bytes")]
    pub action: Vec<u8>,
    /// One row of each observation column, back to back.
    #[serde(with = "serde_bytes")]
    pub obs: Vec<u8>,
    /// One row of each info channel, back to back; empty after a reset, and where there is none.
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub infos: Vec<u8>,
    /// A picture of the lane, as a PNG file; empty unless one was asked for and the env shows no state.
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub picture: Vec<u8>,
    /// The exact state; empty where the env does not show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<f64>,
    /// The hash of the state; absent while the lane is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
    /// The position of the lane's generator; absent while the lane is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<LanePosition>,
    /// Number of steps and resets of the session since it is watched.
    pub moves: u64,
}

/// Asks for a lane's episode as far as it has come, in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoFarParams {
    /// Index of the lane in the session, counted from its first.
    pub lane: u32,
    /// Number of actions to leave out: those of earlier parts. With 0 the episode is taken as it stands now, and
    /// further parts belong to the same one.
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
    /// Number of the episode in the lane.
    pub episode: u64,
    /// The point from which it is known.
    pub from: SoFarFrom,
    /// Number of its steps that are known.
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
    /// What the steps of this part have shown, where the env shows no state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<SoFarRows>,
}

/// What steps of a lane have shown whose env shows no state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SoFarRows {
    /// The observation before the first step that is known: one row of each column, back to back.
    #[serde(with = "serde_bytes")]
    pub first_obs: Vec<u8>,
    /// The observations after the steps, likewise, one after the other.
    #[serde(with = "serde_bytes")]
    pub obs: Vec<u8>,
    /// The rewards of the steps.
    pub rewards: Vec<f64>,
    /// Pictures that were made of some of the steps, by the number of the step; 0 is before the first that is known.
    #[serde(default)]
    pub pictures: Vec<LanePicture>,
}

/// A picture of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanePicture {
    /// Number of the step.
    pub at: u64,
    /// A PNG file.
    #[serde(with = "serde_bytes")]
    pub png: Vec<u8>,
}

/// The position of a lane's generator: a [`Start`] as messages carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanePosition {
    /// The seed of the lane's last seeded reset.
    pub seed: u64,
    /// Number of 64-bit words drawn since.
    pub words: u64,
    /// The half of the last word that is left over, if there is one.
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

/// The point from which an episode is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoFarFrom {
    /// It is known from its reset.
    Reset(LanePosition),
    /// It is known from a later step: nobody had watched before, or it has more actions than are kept.
    Step(Box<StepState>),
}

/// All that a lane needs to go on from a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// Number of steps before it.
    pub step: u64,
    /// Sum of the rewards of these steps.
    pub total_reward: f64,
    /// The position of the lane's generator.
    pub position: LanePosition,
    /// The exact state of the env.
    pub state: Vec<f64>,
    /// The hash of the state.
    pub hash: u32,
    /// One row of each observation column, back to back.
    #[serde(with = "serde_bytes")]
    pub obs: Vec<u8>,
}
