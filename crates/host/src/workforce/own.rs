//! Workers that run a program of this one's own package: they are told more than what lanes do, and say more than rows.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::EnvSpec;

use super::{Lane, LaneMessages, LaneProtocol, Task};
use crate::config::HostConfig;
use crate::error::HostError;
use crate::host::{Until, Waited};
use crate::pool::{Gone, Met, Outstanding, WorkerPool};
use crate::record::{Places, Record};
use crate::supervisor::{Restart, WorkerState};

/// Workers of the process that started them, which trusts them as it trusts itself: hellos, answers, calls and words of
/// lanes are the caller's bytes, and nothing here reads them. No other machine can reach it.
///
/// ```text
/// start ──▶ made ──▶ lay_out ──▶ greet ──▶ entry: lanes of an engine
///           answers   places      setups
/// ```
///
/// A worker that is lost and started again is greeted again in the same way.
#[derive(Debug, Clone)]
pub struct OwnWorkers {
    pub(crate) pool: Arc<Mutex<OwnPool>>,
}

/// Pool of workers of the process's own.
pub(crate) type OwnPool = WorkerPool<LaneProtocol<Own>>;

/// What own workers have beside lanes.
#[derive(Debug, Default)]
pub(crate) struct Own {
    workers: Vec<OwnWorker>,
    /// Options of the resets that are commanded next.
    options: Vec<u8>,
    /// First worker that was lost before it was greeted.
    lost: Option<Gone>,
}

#[derive(Debug, Default)]
struct OwnWorker {
    launched: bool,
    answer: Option<Vec<u8>>,
    setup: Option<Vec<u8>>,
    /// Whether its lanes are in use; from then on they come back through the engine.
    settled: bool,
    reply: Option<Result<Vec<u8>, Gone>>,
}

/// What workers answered to a call, one after the other.
pub type Answers = Vec<Result<Vec<u8>, Gone>>;

/// How and why a lane was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// True if something was late.
    pub hung: bool,
    /// What is known of the end of its worker; empty if it was late.
    pub detail: String,
    /// What the lane itself said of its failure; empty if its worker ended.
    pub raised: Vec<u8>,
}

/// What a lane said of its last row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The lane.
    pub lane: usize,
    /// Words about a step.
    pub stepped: Option<Vec<u8>>,
    /// Words about the beginning of an episode.
    pub begun: Option<Vec<u8>>,
}

impl OwnWorkers {
    /// Starts the first [`HostConfig::launch_at_start`] workers, of which each has a range of lanes.
    ///
    /// # Errors
    /// As [`crate::Host::start`].
    pub fn start(config: HostConfig, ranges: Vec<Range<usize>>) -> Result<Self, HostError> {
        let launched = config.launch_at_start;
        let worker = |index| OwnWorker { launched: index < launched, ..OwnWorker::default() };
        let workers = (0..ranges.len()).map(worker).collect();
        let protocol =
            LaneProtocol::new(Record::default(), &ranges, false, Own { workers, ..Own::default() });
        let pool = WorkerPool::start(config, None, None, ranges, protocol)?;
        Ok(Self { pool: Arc::new(Mutex::new(pool)) })
    }

    /// Has the lanes of a worker come back together after a loss, because they step together. Called before lanes are in use.
    pub fn bind_lanes(&self) {
        self.pool.lock().protocol.together = true;
    }

    /// Launches the workers that have not been launched yet.
    ///
    /// # Errors
    /// As [`crate::Host::launch_all`].
    pub fn launch_all(&self) -> Result<(), HostError> {
        let mut pool = self.pool.lock();
        pool.protocol.messages.workers.iter_mut().for_each(|worker| worker.launched = true);
        pool.host.launch_all()
    }

    /// Waits for at most `patience` until every worker that was launched has answered its hello, or one is lost. Returns
    /// whether that is so.
    ///
    /// # Errors
    /// As [`crate::Host::wait`]; [`OwnWorkers::lost`] tells of a worker.
    pub fn made(&self, patience: Duration) -> Result<bool, HostError> {
        self.wait_for(patience, |pool| {
            let own = &pool.protocol.messages;
            own.lost.is_some() || own.workers.iter().all(|worker| !worker.launched || worker.answer.is_some())
        })
    }

    /// Returns a worker's answer to its hello.
    pub fn answer(&self, worker: usize) -> Option<Vec<u8>> {
        self.pool.lock().protocol.messages.workers.get(worker)?.answer.clone()
    }

    /// Returns the first worker that was lost before it was greeted.
    pub fn lost(&self) -> Option<Gone> {
        self.pool.lock().protocol.messages.lost.clone()
    }

    /// Makes the memories for lanes of that env. Returns the places that each worker has to be told. Called once.
    ///
    /// # Errors
    /// [`HostError::TooLarge`], and as [`crate::Host::share`].
    pub fn lay_out(&self, spec: &EnvSpec) -> Result<Vec<Places>, HostError> {
        let mut pool = self.pool.lock();
        let record = Record::of_talking(spec);
        let lanes = pool.workers.iter().map(|worker| worker.parts.len()).max().unwrap_or(0);
        let bytes = record.bytes(lanes).ok_or(HostError::TooLarge { lanes })?;
        pool.host.share(bytes)?;
        let places = pool.workers.iter().map(|worker| record.places(worker.parts.start)).collect();
        pool.protocol.record = record;
        Ok(places)
    }

    /// Gives a worker that has answered its first command, which it is given again whenever it is started again. Its
    /// lanes can be used once it has answered.
    pub fn greet(&self, worker: usize, setup: Vec<u8>) {
        let mut pool = self.pool.lock();
        pool.protocol.messages.workers[worker].setup = Some(setup.clone());
        pool.set_up(worker, &setup);
    }

    /// Waits for at most `patience` until every worker that was greeted has its lanes in use, or one is lost. Returns
    /// whether that is so.
    ///
    /// # Errors
    /// As [`OwnWorkers::made`].
    pub fn greeted(&self, patience: Duration) -> Result<bool, HostError> {
        self.wait_for(patience, |pool| {
            let own = &pool.protocol.messages;
            own.lost.is_some() || own.workers.iter().all(|worker| worker.setup.is_none() || worker.settled)
        })
    }

    /// Gives the resets that begin next their options; empty bytes for none.
    pub fn set_options(&self, options: Vec<u8>) {
        self.pool.lock().protocol.messages.options = options;
    }

    /// Gives a lane an action beside its column, for the step that is commanded next.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn set_item(&self, lane: usize, item: Vec<u8>) {
        self.pool.lock().protocol.lanes[lane].talk.item = item;
    }

    /// Takes what lanes said of their last rows: those of `lanes`, or all.
    pub fn take_said(&self, lanes: Option<&[u32]>) -> Vec<Said> {
        let mut pool = self.pool.lock();
        let mut said = Vec::new();
        let mut take = |lane: usize, talk: &mut super::Talk| {
            if let (stepped, begun) = talk.take()
                && (stepped.is_some() || begun.is_some())
            {
                let [stepped, begun] = [stepped, begun].map(|words| words.map(<[u8]>::to_vec));
                said.push(Said { lane, stepped, begun });
            }
        };
        match lanes {
            None => {
                pool.protocol.lanes.iter_mut().enumerate().for_each(|(lane, at)| take(lane, &mut at.talk));
            }
            Some(lanes) => {
                lanes
                    .iter()
                    .for_each(|&lane| take(lane as usize, &mut pool.protocol.lanes[lane as usize].talk));
            }
        }
        said
    }

    /// Returns how and why a lane was lost the last time.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn why(&self, lane: usize) -> Why {
        self.pool.lock().protocol.lanes[lane].talk.why()
    }

    /// Waits for at most `patience` until no worker is being started any more or waits for it.
    ///
    /// # Errors
    /// As [`crate::Host::wait`].
    pub fn look_after(&self, patience: Duration) -> Result<(), HostError> {
        let mut pool = self.pool.lock();
        pool.host.wait(Until::AllBack, Some(patience))?;
        pool.pump();
        Ok(())
    }

    /// Returns whether a worker is being started, or waits for it.
    pub fn are_coming(&self) -> bool {
        let pool = self.pool.lock();
        (0..pool.workers.len()).any(|worker| {
            pool.host.state(worker).is_coming() || pool.workers[worker].outstanding == Outstanding::Setup
        })
    }

    /// Waits for at most `patience` until no worker has anything to do. Returns whether that is so.
    ///
    /// # Errors
    /// As [`crate::Host::wait`].
    pub fn quiet(&self, patience: Duration) -> Result<bool, HostError> {
        self.wait_for(patience, |pool| {
            (0..pool.workers.len()).all(|worker| pool.host.state(worker) != WorkerState::Busy)
        })
    }

    /// Gives every worker a call; no worker may have anything to do. One that does not answer within `timeout` is ended.
    ///
    /// # Errors
    /// As [`crate::Host::post`].
    pub fn call(&self, payloads: &[Vec<u8>], timeout: Option<Duration>) -> Result<(), HostError> {
        let mut pool = self.pool.lock();
        for (worker, payload) in payloads.iter().enumerate() {
            pool.protocol.messages.workers[worker].reply = None;
            pool.host.post(worker, CALL, payload, timeout)?;
            pool.workers[worker].outstanding = Outstanding::Call;
        }
        Ok(())
    }

    /// Waits for at most `patience` until every worker has answered the call, and takes the answers.
    ///
    /// # Errors
    /// As [`crate::Host::wait`].
    pub fn answers(&self, patience: Duration) -> Result<Option<Answers>, HostError> {
        let there = self.wait_for(patience, |pool| {
            pool.workers.iter().all(|worker| worker.outstanding != Outstanding::Call)
        })?;
        let mut pool = self.pool.lock();
        let taken = |worker: &mut OwnWorker| worker.reply.take();
        Ok(if there { pool.protocol.messages.workers.iter_mut().map(taken).collect() } else { None })
    }

    /// Returns the process ids of the workers that have a process.
    pub fn process_ids(&self) -> Vec<u32> {
        let pool = self.pool.lock();
        (0..pool.workers.len()).filter_map(|worker| pool.host.process_id(worker)).collect()
    }

    /// Lets idle workers close their envs, for at most `patience`, and ends all; without patience at once. Lanes that are
    /// under way fail.
    pub fn end(&self, patience: Option<Duration>) {
        let mut pool = self.pool.lock();
        if let Some(patience) = patience {
            pool.close(patience);
        }
        pool.host.end(if patience.is_some() { END_PATIENCE } else { Duration::ZERO });
        for worker in 0..pool.workers.len() {
            pool.lose_parts(worker, false, "it was ended");
        }
    }

    fn wait_for(&self, patience: Duration, holds: impl Fn(&mut OwnPool) -> bool) -> Result<bool, HostError> {
        let deadline = std::time::Instant::now() + patience;
        let mut pool = self.pool.lock();
        loop {
            pool.pump();
            if holds(&mut pool) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // A signal is for the caller to look after.
            if pool.host.wait_for_start(left)? == Waited::Interrupted {
                return Ok(false);
            }
        }
    }
}

impl LaneMessages for Own {
    const SPEAKS: bool = true;

    fn meet(&mut self, worker: usize, answer: Vec<u8>) -> Result<Met, String> {
        let worker = &mut self.workers[worker];
        worker.answer = Some(answer);
        Ok(worker.setup.clone().map_or(Met::Waits, Met::SetUp))
    }

    /// Adds before what lanes that begin an episode are given the caller's options of resets, and behind it actions that are
    /// no columns, of lanes that step.
    fn add_to(&self, command: &mut Vec<u8>, without: usize, lanes: &mut [Lane]) {
        let mut items = Vec::new();
        for (index, lane) in lanes.iter_mut().enumerate() {
            let task = command[index];
            if task == Task::Nothing as u8 {
                continue;
            }
            // A lane that begins an episode has no use for the action that it was sent.
            let item = std::mem::take(&mut lane.talk.item);
            if task == Task::Step as u8 && !item.is_empty() {
                items.extend((index as u32).to_le_bytes());
                items.extend((item.len() as u32).to_le_bytes());
                items.extend(item);
            }
        }
        if self.options.is_empty() && items.is_empty() && command.len() == without {
            return;
        }
        let length = (self.options.len() as u32).to_le_bytes();
        command.splice(without..without, length.into_iter().chain(self.options.iter().copied()));
        command.extend(items);
    }

    /// Keeps for each lane that has some its words, behind its number and their length as u32.
    fn take_words(&mut self, lanes: &mut [Lane], payload: &[u8]) -> Result<(), String> {
        let mut rest = payload;
        while let Some((head, after)) = rest.split_first_chunk::<8>() {
            let [lane, len] = [&head[..4], &head[4..]]
                .map(|half| half.try_into().map_or(u32::MAX, u32::from_le_bytes) as usize);
            let Some((words, after)) = after.split_at_checked(len) else { break };
            let Some(lane) = lanes.get_mut(lane) else { break };
            lane.talk.come(words);
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err("it has words of no lane".to_owned()) }
    }

    fn take_reply(&mut self, worker: usize, to: Outstanding, payload: Vec<u8>) -> bool {
        let worker = &mut self.workers[worker];
        if to == Outstanding::Call {
            worker.reply = Some(Ok(payload));
        }
        to == Outstanding::Setup && !std::mem::replace(&mut worker.settled, true)
    }

    fn take_end(&mut self, gone: Gone, to: Outstanding, restart: Restart) {
        let worker = &mut self.workers[gone.worker];
        if to == Outstanding::Call {
            worker.reply = Some(Err(gone.clone()));
        }
        let again = match restart {
            Restart::Again(_) => true,
            // It was there. One that ends when it is greeted would do so again.
            Restart::After(_) => worker.answer.is_some() && to == Outstanding::Nothing,
            Restart::Never => false,
        };
        if !worker.settled && !again {
            self.lost.get_or_insert(gone);
        }
    }
}

/// Code of a command beside those of lanes.
const CALL: u64 = 4;

/// Time for which workers that have closed their envs may end by themselves.
const END_PATIENCE: Duration = Duration::from_secs(1);
