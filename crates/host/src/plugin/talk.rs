//! What a host and the worker of a plug-in say to each other, in MessagePack. What is said at each step goes through
//! the slots of the blocks instead.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::msgpack::{self, DecodeError};
use rollhouse_core::{EnvSpec, Options};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Kind of a command beside those of every protocol: a question about a block.
pub(super) const ASK: u64 = 3;

/// First message to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Path of the plug-in, as bytes.
    path: Vec<u8>,
    /// Lanes that the worker makes; `None` if it only has to say what envs there are.
    pub(super) lanes: Option<Lanes>,
}

/// Lanes of one env that a worker makes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lanes {
    /// Number of the env in the plug-in.
    pub(super) env: usize,
    /// Number of blocks for which the worker's memory has room.
    pub(super) room: usize,
    /// Options of each lane, in blocks of [`BLOCK_LANES`].
    pub(super) options: Vec<Options>,
}

/// Answer of a worker that is ready.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The envs of the plug-in, with the dynamics hashes of what they do now.
    Envs {
        /// Hash of the file's bytes.
        file: u64,
        envs: Vec<Described>,
    },
    /// The lanes are made. Env and file are what they were when the envs were asked for.
    Made { file: u64, spec: Box<EnvSpec> },
    /// What is wrong with the plug-in, or why it did not make the lanes.
    Refused(String),
}

/// An env of a plug-in.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Described {
    pub(super) spec: EnvSpec,
    /// Width and height of a picture, and pictures in a second of a video.
    pub(super) drawn: Option<(usize, usize, u32)>,
    /// Whether its lanes may give an episode a result or a score.
    pub(super) verdicts: bool,
    /// Whether its options may be drawn for each episode.
    pub(super) draws_options: bool,
}

/// A question to a worker about one of its blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) block: usize,
    pub(super) what: What,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// Write the facts of all lanes into the slot.
    Facts,
    State {
        lane: usize,
    },
    SetState {
        lane: usize,
        state: Vec<f64>,
    },
    /// Give a lane, whose reset comes next, other options.
    SetOptions {
        lane: usize,
        options: Options,
    },
    /// Call a method on a lane.
    Call {
        lane: usize,
        method: String,
        payload: String,
    },
    Render {
        lane: usize,
        width: usize,
        height: usize,
    },
    Text {
        lane: usize,
        columns: usize,
    },
    /// Make lost lanes anew, all of them if the block has failed.
    Revive {
        lanes: u64,
    },
}

/// Answer of a worker to a question about a block.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum BlockAnswer {
    Done,
    State(Vec<f64>),
    Picture(Vec<u8>),
    Text(String),
    /// What a method answers.
    Answer(String),
    /// The lane has failed.
    LaneLost,
    /// The block has failed.
    BlockLost,
    /// Lanes that can be used again.
    Revived(u64),
    /// The env cannot do it.
    Unsupported,
    /// The env will not do it, for this reason.
    Refused(String),
}

impl Hello {
    pub(super) fn new(path: &Path, lanes: Option<Lanes>) -> Self {
        Self { path: path.as_os_str().as_bytes().to_vec(), lanes }
    }

    pub(super) fn path(&self) -> PathBuf {
        OsString::from_vec(self.path.clone()).into()
    }
}

impl Lanes {
    /// Returns the options of each block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[Options]> {
        self.options.chunks(BLOCK_LANES)
    }
}

/// Returns a message as bytes.
pub(super) fn said<T: Serialize>(message: &T) -> Vec<u8> {
    // Writing to memory does not fail, and no message has a map of unknown length.
    rmp_serde::to_vec_named(message).unwrap_or_default()
}

/// Reads a message. The other side is a program of ours, but what it loaded may have written anything.
pub(super) fn heard<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    msgpack::decode(bytes, bytes.len())
}
