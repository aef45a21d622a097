//! Calls of the methods of a lane's env.

use std::time::{Duration, Instant};

use rollhouse_env::{CallError, Image, ImageSize, RenderError};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::own::Outstanding;
use super::{Stage, Workforce};
use crate::host::Until;
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
enum Heard {
    /// The env's answer.
    Answer(String),
    /// The env refuses, and has changed nothing.
    Refused(String),
    /// The env failed, and is gone: why, in words, or of own workers in hexadecimal bytes of the caller's.
    Lost(String),
}

impl Workforce {
    /// Calls a method of a lane's env, none of whose worker's lanes is under way, and waits for the answer. A worker that
    /// does not give it within the time of a call is ended.
    pub(crate) fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        let told = CallMessage { lane: self.lanes[lane].index, method, payload };
        let heard = self.ask(lane, CALL_LANE, &told).ok_or(CallError::Lost)?;
        self.take_answer(lane, &heard)
    }

    /// Has a lane's env draw itself, as [`Workforce::call`] has it called. An env that fails in it is not lost by that.
    pub(crate) fn render(&mut self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let told = RenderMessage { lane: self.lanes[lane].index };
        let heard = self.ask(lane, RENDER_LANE, &told).ok_or(RenderError::Lost)?;
        let image = drawn(&heard);
        if image.is_none() {
            let said = String::from_utf8_lossy(&heard[..heard.len().min(MAX_SAID)]);
            warn!(lane, %said, "an env does not draw itself");
        }
        image.ok_or(RenderError::Unsupported)?.scaled(size)
    }

    /// Fetches the picture that a lane's worker has made of its last row, as a PNG file. A worker that is busy with other lanes
    /// for longer than a moment is left alone: then there is none.
    pub(super) fn fetch_picture(&mut self, lane: usize) -> Option<Vec<u8>> {
        let (worker, deadline) = (self.lanes[lane].worker, Instant::now() + PICTURE_PATIENCE);
        self.lanes[lane].painted = false;
        while self.host.state(worker) == WorkerState::Busy {
            self.pump();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.host.wait(Until::AnyEvent, Some(left)).is_err() {
                return None;
            }
            self.pump();
        }
        let told = RenderMessage { lane: self.lanes[lane].index };
        let packed = self.ask(lane, PAINTED_LANE, &told)?;
        packed.starts_with(PNG).then_some(packed)
    }

    /// Gives a lane's worker a command that is about this lane alone, and waits for the answer; `None` if the lane is lost,
    /// before or by it.
    fn ask(&mut self, lane: usize, code: u64, told: &impl Serialize) -> Option<Vec<u8>> {
        let worker = self.lanes[lane].worker;
        let time = self.host.lane_deadlines().call;
        let deadline = Instant::now() + time;
        let idle = |workforce: &Self| workforce.host.state(worker) == WorkerState::Idle;
        if !self.wait_for_worker(worker, deadline, idle) || self.lanes[lane].stage != Stage::Ready {
            return None;
        }
        // Nothing in it can fail to be written.
        let told = serde_json::to_vec(told).unwrap_or_default();
        if let Err(error) = self.host.post(worker, code, &told, Some(time + GIVE_UP_GRACE)) {
            warn!(worker, %error, "a worker cannot be given a call");
            self.end_worker(worker, true);
            return None;
        }
        (self.staff[worker].asked, self.staff[worker].heard) = (Outstanding::Lane, None);
        if !self.wait_for_worker(worker, deadline, |workforce| workforce.staff[worker].heard.is_some()) {
            return None;
        }
        self.staff[worker].heard.take()
    }

    /// Waits until something holds of a worker that is there; ends the worker if it takes too long. Returns whether it
    /// holds.
    fn wait_for_worker(&mut self, worker: usize, deadline: Instant, holds: impl Fn(&Self) -> bool) -> bool {
        loop {
            self.pump();
            if !self.staff[worker].up {
                return false;
            }
            if holds(self) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = self.host.lane_deadlines().why_not_called();
                self.fail_lanes(worker, true, &why);
                self.end_worker(worker, false);
                return false;
            }
            if let Err(error) = self.host.wait(Until::AnyEvent, Some(left)) {
                warn!(%error, "workers cannot be looked after");
                return false;
            }
        }
    }

    fn take_answer(&mut self, lane: usize, heard: &[u8]) -> Result<String, CallError> {
        let words = match serde_json::from_slice(heard) {
            Ok(Heard::Refused(message)) => return Err(CallError::Refused { message }),
            Ok(Heard::Answer(answer)) => match self.follow_generator(lane) {
                true => return Ok(answer),
                false => "its generator is none that can have come of the lane's".to_owned(),
            },
            Ok(Heard::Lost(words)) => words,
            Err(error) => {
                let worker = self.lanes[lane].worker;
                warn!(worker, %error, "a worker's answer to a call makes no sense");
                self.end_worker(worker, true);
                return Err(CallError::Lost);
            }
        };
        let own = self.own.is_some();
        if !own {
            warn!(lane, words, "an env failed in a call; the lane is lost");
        }
        let lane = &mut self.lanes[lane];
        match bytes_of(&words).filter(|_| own) {
            Some(raised) => lane.talk.fail(raised),
            None => lane.talk.end(false, &words),
        }
        (lane.stage, lane.anew) = (Stage::LOST, true);
        Err(CallError::Lost)
    }

    /// Follows the generator of a lane whose worker tells where it stands: a call may have drawn from it.
    fn follow_generator(&mut self, lane: usize) -> bool {
        let Self { host, record, lanes, .. } = self;
        let lane = &mut lanes[lane];
        let its = lane.record(record, host.memories());
        its.zip(lane.exact.as_mut()).is_none_or(|(its, exact)| exact.follow(its).is_ok())
    }
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

/// Time that the host has beside that of a call: the one who waits for the answer says why the worker is ended.
const GIVE_UP_GRACE: Duration = Duration::from_secs(2);
