//! Workers that run a program of this one's own package: they are told more than what lanes do, and say more than rows.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{EnvSpec, LaneSet};
use rollhouse_env::Collected;
use tracing::warn;

use super::{Lane, Stage, Task, Workforce};
use crate::config::HostConfig;
use crate::error::HostError;
use crate::host::{Host, Until, Waited};
use crate::record::{Places, Record};
use crate::supervisor::{Cause, Restart, WorkerState};

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
    pub(crate) workforce: Arc<Mutex<Workforce>>,
}

/// What own workers have beside lanes.
#[derive(Debug, Default)]
pub(super) struct Own {
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

/// What a worker has been told and has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Outstanding {
    #[default]
    Nothing,
    Work,
    Setup,
    Call,
    /// A method of the env of one lane.
    Lane,
}

/// A worker that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Index of the worker.
    pub worker: usize,
    /// Cause of its end.
    pub cause: Cause,
    /// Explanation for people.
    pub detail: String,
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
    /// As [`Host::start`].
    pub fn start(config: HostConfig, ranges: Vec<Range<usize>>) -> Result<Self, HostError> {
        let launched = config.launch_at_start;
        let host = Host::start(config)?;
        let worker = |index| OwnWorker { launched: index < launched, ..OwnWorker::default() };
        let workers = (0..ranges.len()).map(worker).collect();
        let mut workforce = Workforce::new(host, Record::default(), Vec::new(), ranges);
        workforce.own = Some(Own { workers, ..Own::default() });
        Ok(Self { workforce: Arc::new(Mutex::new(workforce)) })
    }

    /// Has the lanes of a worker come back together after a loss, because they step together. Called before lanes are in use.
    pub fn bind_lanes(&self) {
        self.workforce.lock().together = true;
    }

    /// Launches the workers that have not been launched yet.
    ///
    /// # Errors
    /// As [`Host::launch_all`].
    pub fn launch_all(&self) -> Result<(), HostError> {
        let mut workforce = self.workforce.lock();
        workforce.own_mut().workers.iter_mut().for_each(|worker| worker.launched = true);
        workforce.host.launch_all()
    }

    /// Waits for at most `patience` until every worker that was launched has answered its hello, or one is lost. Returns
    /// whether that is so.
    ///
    /// # Errors
    /// As [`Host::wait`]; [`OwnWorkers::lost`] tells of a worker.
    pub fn made(&self, patience: Duration) -> Result<bool, HostError> {
        self.wait_for(patience, |workforce| {
            let own = workforce.own_mut();
            own.lost.is_some() || own.workers.iter().all(|worker| !worker.launched || worker.answer.is_some())
        })
    }

    /// Returns a worker's answer to its hello.
    pub fn answer(&self, worker: usize) -> Option<Vec<u8>> {
        self.workforce.lock().own_mut().workers.get(worker)?.answer.clone()
    }

    /// Returns the first worker that was lost before it was greeted.
    pub fn lost(&self) -> Option<Gone> {
        self.workforce.lock().own_mut().lost.clone()
    }

    /// Makes the memories for lanes of that env. Returns the places that each worker has to be told. Called once.
    ///
    /// # Errors
    /// [`HostError::TooLarge`], and as [`Host::share`].
    pub fn lay_out(&self, spec: &EnvSpec) -> Result<Vec<Places>, HostError> {
        let mut workforce = self.workforce.lock();
        let record = Record::of_talking(spec);
        let lanes = workforce.staff.iter().map(|staff| staff.lanes.len()).max().unwrap_or(0);
        let bytes = record.bytes(lanes).ok_or(HostError::TooLarge { lanes })?;
        workforce.host.share(bytes)?;
        let places = workforce.staff.iter().map(|staff| record.places(staff.lanes.start)).collect();
        workforce.record = record;
        Ok(places)
    }

    /// Gives a worker that has answered its first command, which it is given again whenever it is started again. Its
    /// lanes can be used once it has answered.
    pub fn greet(&self, worker: usize, setup: Vec<u8>) {
        let mut workforce = self.workforce.lock();
        workforce.own_mut().workers[worker].setup = Some(setup);
        workforce.greet(worker);
    }

    /// Waits for at most `patience` until every worker that was greeted has its lanes in use, or one is lost. Returns
    /// whether that is so.
    ///
    /// # Errors
    /// As [`OwnWorkers::made`].
    pub fn greeted(&self, patience: Duration) -> Result<bool, HostError> {
        self.wait_for(patience, |workforce| {
            let own = workforce.own_mut();
            own.lost.is_some() || own.workers.iter().all(|worker| worker.setup.is_none() || worker.settled)
        })
    }

    /// Gives the resets that begin next their options; empty bytes for none.
    pub fn set_options(&self, options: Vec<u8>) {
        self.workforce.lock().own_mut().options = options;
    }

    /// Gives a lane an action beside its column, for the step that is commanded next.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn set_item(&self, lane: usize, item: Vec<u8>) {
        self.workforce.lock().lanes[lane].talk.item = item;
    }

    /// Takes what lanes said of their last rows: those of `lanes`, or all.
    pub fn take_said(&self, lanes: Option<&[u32]>) -> Vec<Said> {
        let mut workforce = self.workforce.lock();
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
                workforce.lanes.iter_mut().enumerate().for_each(|(lane, at)| take(lane, &mut at.talk));
            }
            Some(lanes) => {
                lanes.iter().for_each(|&lane| take(lane as usize, &mut workforce.lanes[lane as usize].talk));
            }
        }
        said
    }

    /// Returns how and why a lane was lost the last time.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn why(&self, lane: usize) -> Why {
        self.workforce.lock().lanes[lane].talk.why()
    }

    /// Waits for at most `patience` until no worker is being started any more or waits for it.
    ///
    /// # Errors
    /// As [`Host::wait`].
    pub fn look_after(&self, patience: Duration) -> Result<(), HostError> {
        let mut workforce = self.workforce.lock();
        workforce.host.wait(Until::AllBack, Some(patience))?;
        workforce.pump();
        Ok(())
    }

    /// Returns whether a worker is being started, or waits for it.
    pub fn are_coming(&self) -> bool {
        let workforce = self.workforce.lock();
        (0..workforce.staff.len()).any(|worker| {
            workforce.host.state(worker).is_coming() || workforce.staff[worker].asked == Outstanding::Setup
        })
    }

    /// Waits for at most `patience` until no worker has anything to do. Returns whether that is so.
    ///
    /// # Errors
    /// As [`Host::wait`].
    pub fn quiet(&self, patience: Duration) -> Result<bool, HostError> {
        self.wait_for(patience, |workforce| {
            (0..workforce.staff.len()).all(|worker| workforce.host.state(worker) != WorkerState::Busy)
        })
    }

    /// Gives every worker a call; no worker may have anything to do. One that does not answer within `timeout` is ended.
    ///
    /// # Errors
    /// As [`Host::post`].
    pub fn call(&self, payloads: &[Vec<u8>], timeout: Option<Duration>) -> Result<(), HostError> {
        let mut workforce = self.workforce.lock();
        for (worker, payload) in payloads.iter().enumerate() {
            workforce.own_mut().workers[worker].reply = None;
            workforce.host.post(worker, CALL, payload, timeout)?;
            workforce.staff[worker].asked = Outstanding::Call;
        }
        Ok(())
    }

    /// Waits for at most `patience` until every worker has answered the call, and takes the answers.
    ///
    /// # Errors
    /// As [`Host::wait`].
    pub fn answers(&self, patience: Duration) -> Result<Option<Answers>, HostError> {
        let there = self.wait_for(patience, |workforce| {
            workforce.staff.iter().all(|staff| staff.asked != Outstanding::Call)
        })?;
        let mut workforce = self.workforce.lock();
        let taken = |worker: &mut OwnWorker| worker.reply.take();
        Ok(if there { workforce.own_mut().workers.iter_mut().map(taken).collect() } else { None })
    }

    /// Returns the process ids of the workers that have a process.
    pub fn process_ids(&self) -> Vec<u32> {
        let workforce = self.workforce.lock();
        (0..workforce.staff.len()).filter_map(|worker| workforce.host.process_id(worker)).collect()
    }

    /// Lets idle workers close their envs, for at most `patience`, and ends all; without patience at once. Lanes that are
    /// under way fail.
    pub fn end(&self, patience: Option<Duration>) {
        let mut workforce = self.workforce.lock();
        if let Some(patience) = patience {
            for worker in 0..workforce.staff.len() {
                // One that takes no command is ended without.
                let _ = workforce.host.post(worker, super::CLOSE, &[], Some(patience));
            }
            let _ = workforce.host.wait(Until::AllReplied, Some(patience));
        }
        workforce.host.end(if patience.is_some() { END_PATIENCE } else { Duration::ZERO });
        for worker in 0..workforce.staff.len() {
            workforce.staff[worker].up = false;
            workforce.fail_lanes(worker, false, "it was ended");
        }
    }

    fn wait_for(
        &self,
        patience: Duration,
        holds: impl Fn(&mut Workforce) -> bool,
    ) -> Result<bool, HostError> {
        let deadline = std::time::Instant::now() + patience;
        let mut workforce = self.workforce.lock();
        loop {
            workforce.pump();
            if holds(&mut workforce) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // A signal is for the caller to look after.
            if workforce.host.wait_for_start(left)? == Waited::Interrupted {
                return Ok(false);
            }
        }
    }
}

impl Own {
    /// Adds to a command what own workers are told beside it: before what lanes that begin an episode are told, the caller's
    /// options of resets, and behind it actions that are no columns, of lanes that step. The command has `without` bytes
    /// without any of that.
    pub(super) fn add_to(&self, command: &mut Vec<u8>, without: usize, lanes: &mut [Lane]) {
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
}

/// What happens to own workers.
impl Workforce {
    fn own_mut(&mut self) -> &mut Own {
        self.own.get_or_insert_default()
    }

    /// Returns the lanes of a block that have no env and were not collected as lost.
    pub(crate) fn gone(&self, block: Range<usize>) -> Collected {
        let mut gone = Collected::default();
        for (index, lane) in self.lanes[block].iter().enumerate() {
            if let Stage::Lost { hung } = lane.stage {
                if hung { gone.hung.insert(index) } else { gone.lost.insert(index) }
            }
        }
        gone
    }

    /// Takes the pictures of lanes of a block, as [`rollhouse_env::LateLanes::take_pictures`] has it.
    pub(crate) fn take_pictures(
        &mut self,
        block: Range<usize>,
        lanes: LaneSet,
        begun: bool,
    ) -> Vec<(usize, Vec<u8>)> {
        let lanes = lanes & LaneSet::first(block.len());
        if self.own.is_none() {
            let painted = lanes.into_iter().filter(|lane| self.lanes[block.start + lane].painted);
            let painted: Vec<_> = painted.collect();
            let fetch = |lane: usize| Some((lane, self.fetch_picture(block.start + lane)?));
            return painted.into_iter().filter_map(fetch).collect();
        }
        let of = |lane: usize| Some((lane, self.lanes[block.start + lane].talk.take_picture(begun)?));
        lanes.into_iter().filter_map(of).collect()
    }

    /// Notes that a worker has answered its hello, and greets it if it was greeted before.
    pub(super) fn introduce(&mut self, worker: usize, answer: Vec<u8>) {
        self.own_mut().workers[worker].answer = Some(answer);
        self.greet(worker);
    }

    fn greet(&mut self, worker: usize) {
        if self.host.state(worker) != WorkerState::Idle {
            // It has ended meanwhile, and is greeted when it is back.
            return;
        }
        let Some(setup) = self.own_mut().workers[worker].setup.clone() else { return };
        match self.host.post(worker, SETUP, &setup, None) {
            Ok(()) => self.staff[worker].asked = Outstanding::Setup,
            Err(error) => {
                warn!(worker, %error, "a worker cannot be greeted");
                self.end_worker(worker, true);
            }
        }
    }

    /// Takes the answer to a greeting or a call.
    pub(super) fn hear_other(&mut self, worker: usize, asked: Outstanding, payload: Vec<u8>) {
        match asked {
            Outstanding::Setup => {
                (self.staff[worker].up, self.staff[worker].lied) = (true, false);
                if !std::mem::replace(&mut self.own_mut().workers[worker].settled, true) {
                    let lanes = self.staff[worker].lanes.clone();
                    self.lanes[lanes].iter_mut().for_each(|lane| lane.stage = Stage::Ready);
                }
            }
            Outstanding::Call => self.own_mut().workers[worker].reply = Some(Ok(payload)),
            Outstanding::Work | Outstanding::Lane | Outstanding::Nothing => {}
        }
    }

    /// Keeps what came with the answer to a command: for each lane that says something its number and length as u32, and
    /// its words.
    pub(super) fn hear_later(&mut self, worker: usize, payload: &[u8]) {
        let lanes = self.staff[worker].lanes.clone();
        let mut rest = payload;
        while let Some((head, after)) = rest.split_first_chunk::<8>() {
            let [lane, len] = [&head[..4], &head[4..]]
                .map(|half| half.try_into().map_or(u32::MAX, u32::from_le_bytes) as usize);
            let Some((words, after)) = after.split_at_checked(len) else { break };
            match self.lanes[lanes.clone()].get_mut(lane) {
                Some(lane) => lane.talk.come(words),
                None => break,
            }
            rest = after;
        }
        if !rest.is_empty() {
            warn!(worker, "a worker's words make no sense");
            self.end_worker(worker, true);
        }
    }

    /// Notes that a worker has ended.
    pub(super) fn lose(&mut self, worker: usize, cause: Cause, restart: Restart, detail: String) {
        let asked = std::mem::take(&mut self.staff[worker].asked);
        let Some(own) = &mut self.own else { return };
        let gone = Gone { worker, cause, detail };
        if asked == Outstanding::Call {
            own.workers[worker].reply = Some(Err(gone.clone()));
        }
        let again = match restart {
            Restart::Again(_) => true,
            // It was there. One that ends when it is greeted would do so again.
            Restart::After(_) => own.workers[worker].answer.is_some() && asked == Outstanding::Nothing,
            Restart::Never => false,
        };
        if !own.workers[worker].settled && !again {
            own.lost.get_or_insert(gone);
        }
    }
}

/// Codes of commands beside those of lanes.
const SETUP: u64 = 3;
const CALL: u64 = 4;

/// Time for which workers that have closed their envs may end by themselves.
const END_PATIENCE: Duration = Duration::from_secs(1);
