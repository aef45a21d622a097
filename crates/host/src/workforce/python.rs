//! What workers of `rollhouse.env_worker` send beside rows: words of lanes that are lost, in JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use tracing::warn;

use super::lane::Lane;
use super::{LaneMessages, LaneProtocol};
use crate::description::Description;
use crate::pool::{Met, WorkerPool};

/// Messages of workers of Python envs, which all describe one env.
#[derive(Debug)]
pub(crate) struct PythonMessages {
    /// Answer that every worker has to give when it is ready.
    pub(crate) expected: Vec<u8>,
}

/// Pool of workers that step lanes of Python envs.
pub(crate) type PythonPool = WorkerPool<LaneProtocol<PythonMessages>>;

/// What a worker adds to its answer: the words of the lanes that were lost, by their number in the worker.
#[derive(Debug, Deserialize)]
struct Words {
    lost: BTreeMap<usize, String>,
}

impl LaneMessages for PythonMessages {
    const SPEAKS: bool = false;

    fn meet(&mut self, _: usize, answer: Vec<u8>) -> Result<Met, String> {
        if answer == self.expected {
            return Ok(Met::Up);
        }
        Err(match Description::read(&answer) {
            Ok(_) => "its spaces, or its Gymnasium, are others".to_owned(),
            Err(error) => error.to_string(),
        })
    }

    fn take_words(&mut self, lanes: &mut [Lane], payload: &[u8]) -> Result<(), String> {
        if payload.is_empty() {
            return Ok(());
        }
        match serde_json::from_slice::<Words>(payload) {
            Ok(Words { lost }) => {
                for (lane, words) in lost {
                    if let Some(known) = lanes.get_mut(lane) {
                        warn!(lane, worker = known.worker, words, "an env failed; the lane is lost");
                        known.talk.end(false, &words);
                    }
                }
            }
            // Its rows say all that is needed.
            Err(error) => warn!(%error, "a worker's words make no sense"),
        }
        Ok(())
    }
}
