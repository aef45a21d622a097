//! Replay sessions: recorded episodes that are opened on a node, and what those who watch one may ask of it.

use rollhouse_core::{LaneState, RunId, bounded_text};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::limits::MAX_EPISODE_NAME_BYTES;

/// Viewer to coordinator: open a recorded episode of the store as a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReplay {
    /// The pool that it is to be: drawn by the asker, as in [`OpenPool`](crate::OpenPool).
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// The episode's name, as it is printed.
    pub episode: String,
}

/// The recorded episode that a session shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayOf {
    /// Its name, as it is printed.
    pub episode: String,
    /// The dynamics hash of its env when it was recorded.
    pub dynamics: u64,
    /// Whether every step's observation is recorded, so that the env is not needed.
    pub full: bool,
}

/// Node to coordinator: the file of one recorded episode, whose bytes follow the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchEpisode {
    /// Its name, as it is printed.
    pub episode: String,
}

/// The episode is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeBytes {
    /// Bytes of its file, which follow.
    pub bytes: u64,
}

/// The entry in listings of a session that shows a recorded episode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The episode's name, as it is printed.
    #[serde(deserialize_with = "bounded_text::<MAX_EPISODE_NAME_BYTES, _>")]
    pub episode: String,
    /// `Loading`, `Paused`, `Replaying` or `Over`.
    pub state: LaneState,
}

/// The position of a replay, which is the same for all watchers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReplayStanding {
    /// `Paused`, `Replaying` or `Over`.
    pub state: LaneState,
    /// The step it stands at; 0 is the reset.
    pub step: u64,
    /// Steps of the episode.
    pub length: u64,
    /// Its speed when it plays; at 1 it passes [`REPLAY_STEPS_PER_SECOND`].
    pub speed: f64,
}

/// Asks a replay to go to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekParams {
    /// The step to go to; 0 is the reset.
    pub step: u64,
}

/// Asks a replay to go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlayParams {
    /// The speed, from [`SLOWEST_REPLAY`] to [`FASTEST_REPLAY`].
    #[serde(default = "normal_speed")]
    pub speed: f64,
}

/// Asks a replay to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PauseParams {}

/// Asks a replay to stand still some steps on or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepParams {
    /// The number of steps; a negative number goes back. The replay goes no further than the episode.
    #[serde(default = "one_step")]
    pub by: i64,
}

impl SeekParams {
    /// The method's name.
    pub const METHOD: &'static str = "seek";
}

impl PlayParams {
    /// The method's name.
    pub const METHOD: &'static str = "play";
}

impl PauseParams {
    /// The method's name.
    pub const METHOD: &'static str = "pause";
}

impl StepParams {
    /// The method's name.
    pub const METHOD: &'static str = "step";
}

const fn normal_speed() -> f64 {
    1.0
}

const fn one_step() -> i64 {
    1
}

/// Steps that a replay passes in a second at speed 1; recordings do not say how long a step took.
pub const REPLAY_STEPS_PER_SECOND: f64 = 30.0;
/// The slowest speed of a replay.
pub const SLOWEST_REPLAY: f64 = 0.0625;
/// The fastest speed of a replay.
pub const FASTEST_REPLAY: f64 = 64.0;
