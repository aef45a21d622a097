//! Calls of the methods of a lane's env.

use std::time::{Duration, Instant};

use rollhouse_env::{CallError, Image, ImageSize, RenderError};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{LaneMessages, LaneProtocol, Stage};
use crate::host::Until;
use crate::pool::WorkerPool;
use crate::supervisor::WorkerState;

/// A call, as a worker is told it.
#[derive(Serialize)]
struct CallMessage<'a> {
    /// Number of the lane in its worker.
    lane: usize,
    method: &'a str,
    payload: &'a str,
}

/// A request for a picture, as a worker is told it.
#[derive(Serialize)]
struct RenderMessage {
    /// Number of the lane in its worker.
    lane: usize,
}

/// What a worker answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallAnswer {
    /// The env's answer.
    Answer(String),
    /// The env refuses, and has changed nothing.
    Refused(String),
    /// The env failed, and is gone: why, in words, or of own workers in hexadecimal bytes of the caller's.
    Lost(String),
}

/// Calls a method of a lane's env, none of whose worker's lanes is under way, and waits for the answer. A worker that
/// does not give it within the time of a call is ended.
pub(super) fn call<M: LaneMessages>(
    pool: &mut WorkerPool<LaneProtocol<M>>,
    lane: usize,
    method: &str,
    payload: &str,
) -> Result<String, CallError> {
    let message = CallMessage { lane: pool.protocol.lanes[lane].index, method, payload };
    let answer = ask(pool, lane, CALL_LANE, &message).ok_or(CallError::Lost)?;
    take_answer(pool, lane, &answer)
}

/// Has a lane's env draw itself, as [`call`] has it called. An env that fails in it is not lost by that.
pub(super) fn render<M: LaneMessages>(
    pool: &mut WorkerPool<LaneProtocol<M>>,
    lane: usize,
    size: ImageSize,
) -> Result<Image, RenderError> {
    let message = RenderMessage { lane: pool.protocol.lanes[lane].index };
    let answer = ask(pool, lane, RENDER_LANE, &message).ok_or(RenderError::Lost)?;
    let image = drawn(&answer);
    if image.is_none() {
        let words = String::from_utf8_lossy(&answer[..answer.len().min(MAX_SAID)]);
        warn!(lane, %words, "an env does not draw itself");
    }
    image.ok_or(RenderError::Unsupported)?.scaled(size)
}

/// Fetches the picture that a lane's worker has made of its last row, as a PNG file. A worker that is busy with other lanes
/// for longer than a moment is left alone: then there is none.
pub(super) fn fetch_picture<M: LaneMessages>(
    pool: &mut WorkerPool<LaneProtocol<M>>,
    lane: usize,
) -> Option<Vec<u8>> {
    let (worker, deadline) = (pool.protocol.lanes[lane].worker, Instant::now() + PICTURE_PATIENCE);
    while pool.host.state(worker) == WorkerState::Busy {
        pool.pump();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || pool.host.wait(Until::AnyEvent, Some(left)).is_err() {
            return None;
        }
        pool.pump();
    }
    let message = RenderMessage { lane: pool.protocol.lanes[lane].index };
    let packed = ask(pool, lane, PAINTED_LANE, &message)?;
    packed.starts_with(PNG).then_some(packed)
}

/// Gives a lane's worker a command that is about this lane alone, and waits for the answer; `None` if the lane is lost,
/// before or by it.
fn ask<M: LaneMessages>(
    pool: &mut WorkerPool<LaneProtocol<M>>,
    lane: usize,
    code: u64,
    message: &impl Serialize,
) -> Option<Vec<u8>> {
    let (worker, time) = (pool.protocol.lanes[lane].worker, pool.deadlines().call);
    pool.ask(worker, code, time, |pool| {
        let ready = pool.protocol.lanes[lane].stage == Stage::Ready;
        // Nothing in it can fail to be written.
        ready.then(|| serde_json::to_vec(message).unwrap_or_default())
    })
}

fn take_answer<M: LaneMessages>(
    pool: &mut WorkerPool<LaneProtocol<M>>,
    lane: usize,
    answer: &[u8],
) -> Result<String, CallError> {
    let words = match serde_json::from_slice(answer) {
        Ok(CallAnswer::Refused(message)) => return Err(CallError::Refused { message }),
        Ok(CallAnswer::Answer(answer)) => match follow_generator(pool, lane) {
            true => return Ok(answer),
            false => "its generator is none that can have come of the lane's".to_owned(),
        },
        Ok(CallAnswer::Lost(words)) => words,
        Err(error) => {
            let worker = pool.protocol.lanes[lane].worker;
            warn!(worker, %error, "a worker's answer to a call makes no sense");
            pool.end_worker(worker, true);
            return Err(CallError::Lost);
        }
    };
    if !M::SPEAKS {
        warn!(lane, words, "an env failed in a call; the lane is lost");
    }
    let lane = &mut pool.protocol.lanes[lane];
    match bytes_of(&words).filter(|_| M::SPEAKS) {
        Some(raised) => lane.talk.fail(raised),
        None => lane.talk.end(false, &words),
    }
    (lane.stage, lane.anew) = (Stage::LOST, true);
    Err(CallError::Lost)
}

/// Follows the generator of a lane whose worker reports where it stands: a call may have drawn from it.
fn follow_generator<M: LaneMessages>(pool: &mut WorkerPool<LaneProtocol<M>>, lane: usize) -> bool {
    let LaneProtocol { record, lanes, .. } = &mut pool.protocol;
    let lane = &mut lanes[lane];
    let its = lane.record(record, pool.host.memories());
    its.zip(lane.exact.as_mut()).is_none_or(|(its, exact)| exact.follow(its).is_ok())
}

/// Reads the picture that a worker gives: columns and rows, u32 each, and three bytes a pixel. `None` if it is none.
fn drawn(heard: &[u8]) -> Option<Image> {
    let (width, rest) = heard.split_first_chunk()?;
    let (height, pixels) = rest.split_first_chunk()?;
    let [width, height] = [width, height].map(|side| u32::from_le_bytes(*side) as usize);
    Image::new(ImageSize::new(width, height).ok()?, pixels.to_vec()).ok()
}

/// Returns the bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8)).collect()
}

/// Code of a command that calls a method of a lane's env.
const CALL_LANE: u64 = 5;

/// Code of a command that has a lane's env draw itself.
const RENDER_LANE: u64 = 6;

/// Command to a worker: it gives the picture that it has made of a lane's last row.
const PAINTED_LANE: u64 = 8;

/// Time to wait for a worker that has a picture and is busy.
const PICTURE_PATIENCE: Duration = Duration::from_secs(2);

/// Beginning of a PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Most bytes that are shown of what is no picture.
const MAX_SAID: usize = 1024;
