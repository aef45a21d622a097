//! The workers that step the lanes of one session.

mod call;
mod exact;
mod lane;
mod own;
mod talk;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_arena::SharedMemory;
use rollhouse_core::{LaneDeadlines, LaneSet, Options, Start, StateHasher, Verdict};
use rollhouse_env::{Collected, LateRows, Post};
use serde::Deserialize;
use tracing::warn;

use crate::host::{Host, Until, WorkerEvent};
use crate::record::{LaneRecord, Record};
use crate::supervisor::{Cause, Restart, WorkerState};
use crate::worker_slot::Memories;

use lane::{Lane, Stage, Task};
pub use own::{Answers, Gone, OwnWorkers, Said, Why};
use own::{Outstanding, Own};
use talk::SAYS_LATER;
pub(crate) use talk::Talk;

/// Workers and the lanes that each of them has. Blocks of the session share it; a lane's number is the session's.
///
/// ```text
///           ┌────────────── collected ──────────────┐
///           ▼                                       │
///         Ready ─ posted ─▶ Waiting ─ dispatched ─▶ UnderWay
///           ▲ │                │ lost                 │ lost
///   revived │ │ lost           ▼                      │
///         Lost ◀─ collected ─ Failing ◀───────────────┘
/// ```
///
/// A lost lane that is posted fails as well, so that each loss is told to who asks for the lane.
#[derive(Debug)]
pub(crate) struct Workforce {
    host: Host,
    record: Record,
    /// Answer that every worker has to give when it is ready.
    expected: Vec<u8>,
    staff: Vec<Staff>,
    lanes: Vec<Lane>,
    /// Bytes of a command, and of a row: kept so that a step allocates none.
    command: Vec<u8>,
    row: Vec<u8>,
    /// What there is beside lanes, if the workers run a program of this one's own; `None` if they are told and heard only
    /// what `rollhouse.env_worker` says.
    own: Option<Own>,
    /// Whether the lanes of a worker step together: they are lost together, and come back together. So a row that is nonsense
    /// ends its worker: no lane can be made anew without the others.
    pub(crate) together: bool,
}

/// What is known of a worker beside its state.
#[derive(Debug)]
struct Staff {
    lanes: Range<usize>,
    /// Whether it is there and made what was expected.
    up: bool,
    /// Number of its last command.
    number: u64,
    /// Whether it was ended for what it said, and not because it was late.
    lied: bool,
    /// What it has been told and has not answered.
    asked: Outstanding,
    /// Its answer to a call of a lane's env, until it is taken.
    heard: Option<Vec<u8>>,
    /// Whether its lanes, which come back together, do.
    returning: bool,
}

/// What a worker adds to its answer: the words of the lanes that were lost, by their number in the worker.
#[derive(Debug, Deserialize)]
struct Words {
    lost: std::collections::BTreeMap<usize, String>,
}

impl Workforce {
    /// Makes the lanes of a host whose workers have these ranges of lanes, each with its records in its worker's memory.
    pub(crate) fn new(host: Host, record: Record, expected: Vec<u8>, ranges: Vec<Range<usize>>) -> Self {
        let exact = record.has_generator();
        let lanes = ranges
            .iter()
            .enumerate()
            .flat_map(|(worker, range)| (0..range.len()).map(move |index| Lane::new(worker, index, exact)));
        let lanes = lanes.collect();
        let staff = |lanes| Staff {
            lanes,
            up: false,
            number: 0,
            lied: false,
            asked: Outstanding::Nothing,
            heard: None,
            returning: false,
        };
        let staff = ranges.into_iter().map(staff).collect();
        let (command, row) = (Vec::new(), Vec::new());
        Self { host, record, expected, staff, lanes, command, row, own: None, together: false }
    }

    /// Waits until every worker is there, and puts its lanes to use. Returns what is wrong with the first one that is
    /// lost instead, for more than the time that it is launched once more. Blocks until the host's launch deadline, and its
    /// connect deadline.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        while !self.staff.iter().all(|staff| staff.up) {
            if let Err(error) = self.host.wait_for_start(LOOK_AGAIN) {
                return Err(error.to_string());
            }
            if let Some(lost) = self.take_events() {
                return Err(lost);
            }
        }
        self.lanes.iter_mut().for_each(|lane| lane.stage = Stage::Ready);
        Ok(())
    }

    /// Returns the times that lanes may take for what is waited for here.
    pub(crate) const fn deadlines(&self) -> LaneDeadlines {
        self.host.lane_deadlines()
    }

    /// Gives a lane's next reset a seed.
    pub(crate) fn seed(&mut self, lane: usize, seed: u64) {
        self.lanes[lane].seed(seed);
    }

    /// Gives a lane's next resets options; none if the env has none.
    pub(crate) fn set_options(&mut self, lane: usize, options: &Options) {
        let has_options = options.iter().next().is_some();
        // Nothing in it can fail to be written: its keys are texts.
        let json = has_options.then(|| serde_json::to_vec(options).unwrap_or_default());
        self.lanes[lane].options = json.unwrap_or_default();
    }

    pub(crate) fn position(&self, lane: usize) -> Start {
        self.lanes[lane].position()
    }

    /// Puts a lane's generator at a position.
    pub(crate) fn restore(&mut self, lane: usize, start: Start) {
        self.lanes[lane].restore(start);
    }

    /// Returns a hash of what a lane's episode has shown, if the env is declared deterministic, else of its last
    /// observation.
    pub(crate) fn hash(&self, lane: usize) -> u32 {
        if let Some(exact) = &self.lanes[lane].exact {
            return exact.hash();
        }
        self.record_of(lane).map_or(0, |its| its.hashed(StateHasher::new()).finish())
    }

    /// Returns the record of a lane.
    fn record_of(&self, lane: usize) -> Option<LaneRecord<'_>> {
        self.lanes[lane].record(&self.record, self.host.memories())
    }

    /// Returns what is known of the reason for which a lane was lost the last time. Waits a moment for the words of an env
    /// that has failed, which come with the answer to its worker's command.
    pub(crate) fn why_lost(&mut self, lane: usize) -> String {
        let (worker, deadline) = (self.lanes[lane].worker, Instant::now() + WORDS_WITHIN);
        while self.host.state(worker) == WorkerState::Busy && Instant::now() < deadline {
            self.wait(deadline);
        }
        let Why { hung, detail, .. } = self.lanes[lane].talk.why();
        match (detail.is_empty(), hung) {
            (false, _) => detail,
            (true, true) => "it took too long".to_owned(),
            (true, false) => "its worker was ended for what it wrote".to_owned(),
        }
    }

    /// Returns the infos of a lane's last row that have no column.
    pub(crate) fn further_infos(&self, lane: usize) -> Option<String> {
        self.record_of(lane)?.further()
    }

    /// Returns what the env says of a lane's episode; nothing of one that is lost.
    pub(crate) fn verdict(&self, lane: usize) -> Verdict {
        self.record_of(lane).map(LaneRecord::verdict).unwrap_or_default()
    }

    /// Takes what the lanes of a block are to do, as [`rollhouse_env::LateLanes::post`] has it.
    pub(crate) fn post(&mut self, block: Range<usize>, post: &Post<'_>) {
        let Self { host, record, lanes, row, .. } = self;
        let (memories, count) = (host.memories(), block.len());
        for index in (post.step | post.reset) & LaneSet::first(count) {
            let number = block.start + index;
            let lane = &mut lanes[number];
            let its = lane.record(record, memories);
            let task = lane.task(post.step.has(index), post.repeats && record.reports());
            let ahead = std::mem::take(&mut lane.ahead) && task == Task::Reset;
            match lane.stage {
                Stage::Ready if ahead => {
                    lane.position.words += 1;
                    lane.stage = Stage::Ahead;
                }
                Stage::Ready => lane.stage = Stage::Waiting(task),
                Stage::Lost { hung } => lane.stage = Stage::Failing { hung },
                // It is under way already, which whoever posts knows.
                Stage::Waiting(_) | Stage::UnderWay(_) | Stage::Ahead | Stage::Failing { .. } => continue,
            }
            lane.talk.begin(task.steps());
            if let (true, Some(its)) = (task.steps(), its) {
                its.put_action(post.actions, index, count, row);
            }
            if let Some(exact) = &mut lane.exact {
                if let (Task::Placed, Some(generator), Some(its)) = (task, exact.wanted(), its) {
                    its.put_generator(generator);
                    lane.seed = Some(generator.position().seed);
                }
                exact.post(task.steps());
            }
        }
    }

    /// Tells workers that are idle what was posted for their lanes. Returns whether something happened to a worker since
    /// it was last looked after.
    pub(crate) fn dispatch(&mut self) -> bool {
        let happened = self.pump();
        for worker in 0..self.staff.len() {
            if self.staff[worker].up && self.host.state(worker) == WorkerState::Idle {
                self.command(worker);
            }
        }
        happened
    }

    /// Gives an idle worker a command, if a lane waits for one.
    fn command(&mut self, worker: usize) {
        let staff = &mut self.staff[worker];
        let count = staff.lanes.len();
        let lanes = &mut self.lanes[staff.lanes.clone()];
        if !lanes.iter().any(|lane| matches!(lane.stage, Stage::Waiting(_))) {
            return;
        }
        staff.number += 1;
        staff.returning = false;
        self.command.clear();
        self.command.resize(count * COMMAND_BYTES, Task::Nothing as u8);
        for (index, lane) in lanes.iter_mut().enumerate() {
            let Stage::Waiting(task) = lane.stage else { continue };
            if !task.steps() && !lane.add_options(index, &mut self.command, count * COMMAND_BYTES) {
                continue;
            }
            lane.stage = Stage::UnderWay(staff.number);
            self.command[index] = task as u8;
            if !task.steps() {
                let at = count + index * size_of::<u64>();
                self.command[at..at + size_of::<u64>()].copy_from_slice(&lane.take_seed().to_le_bytes());
            }
        }
        if let Some(own) = &self.own {
            own.add_to(&mut self.command, count * COMMAND_BYTES, lanes);
        }
        staff.asked = Outstanding::Work;
        let code = staff.number << 8 | WORK;
        if let Err(error) = self.host.post(worker, code, &self.command, None) {
            warn!(worker, %error, "a worker cannot be given a command");
            self.end_worker(worker, true);
        }
    }

    /// Waits until a lane may have answered, at most until `deadline`.
    pub(crate) fn wait(&mut self, deadline: Instant) {
        if self.dispatch() || self.lanes.iter().any(Lane::is_known) {
            return;
        }
        let Self { host, record, lanes, .. } = self;
        let seen = |memories: Memories<'_>| lanes.iter().any(|lane| lane.has_answered(record, memories));
        let patience = deadline.saturating_duration_since(Instant::now());
        if let Err(error) = host.wait_or(Until::AnyEvent, &seen, Some(patience)) {
            warn!(%error, "workers cannot be waited for");
            (0..self.staff.len()).for_each(|worker| self.fail_lanes(worker, false, ""));
        }
        self.dispatch();
    }

    /// Returns the descriptor that is readable when workers have to be looked after.
    pub(crate) const fn descriptor(&self) -> &Arc<OwnedFd> {
        self.host.descriptor()
    }

    /// Has workers ring for one who sleeps on the descriptor, as [`rollhouse_env::LateLanes::arm`] has it.
    pub(crate) fn arm(&mut self, now: Instant) -> Option<Instant> {
        if self.dispatch() || self.lanes.iter().any(Lane::is_known) {
            return Some(now);
        }
        let Self { host, record, lanes, staff, .. } = self;
        let seen = |memories: Memories<'_>| lanes.iter().any(|lane| lane.has_answered(record, memories));
        // The last lane of a command is followed by the reply, which always rings.
        let unheard = staff.iter().any(|staff| {
            let under_way = |lane: &&Lane| matches!(lane.stage, Stage::UnderWay(_));
            lanes[staff.lanes.clone()].iter().filter(under_way).nth(1).is_some()
        });
        host.arm(now, &seen, unheard)
    }

    /// Takes a lane out of use whose row was refused; another env takes its place.
    pub(crate) fn refuse(&mut self, lane: usize, why: &str) {
        warn!(lane, why, "a row is refused; its lane is lost");
        self.lanes[lane].lose_by(why);
    }

    /// Writes the rows of a block's lanes that have answered, as [`rollhouse_env::LateLanes::collect`] has it.
    pub(crate) fn collect(&mut self, block: Range<usize>, rows: LateRows<'_, '_>) -> Collected {
        self.pump();
        let mut collected = Collected::default();
        let mut liars = Vec::new();
        let Self { host, record, lanes, row, together, .. } = self;
        let (memories, count) = (host.memories(), block.len());
        for (index, number) in block.enumerate() {
            let lane = &mut lanes[number];
            if let Stage::Failing { hung } = lane.stage {
                let lost = if hung { &mut collected.hung } else { &mut collected.lost };
                lost.insert(index);
                lane.stage = Stage::LOST;
                continue;
            }
            let its = lane.record(record, memories);
            let Some((its, mut flags)) = its.and_then(|its| lane.row(its)) else { continue };
            if self.own.is_some() {
                if flags & SAYS_LATER != 0 && !lane.talk.has_come() {
                    continue;
                }
                let (left, heard) = lane.hear(flags, its);
                if let Err(nonsense) = heard {
                    warn!(lane = number, %nonsense, "a worker's words make no sense");
                    liars.push(lane.worker);
                }
                flags = left;
            }
            if flags == LOST || flags > TERMINATED | TRUNCATED {
                if flags != LOST {
                    warn!(worker = lane.worker, flags, "a worker writes flags that there are not");
                    liars.push(lane.worker);
                }
                if self.own.is_some() {
                    lane.talk.raised();
                }
                (lane.stage, lane.anew) = (Stage::LOST, !lane.orphaned);
                collected.lost.insert(index);
                continue;
            }
            let reward = if lane.stage == Stage::Ahead { Ok(0.0) } else { its.reward() };
            let written = reward.and_then(|reward| {
                rows.rewards[index] = reward;
                its.columns(rows.obs, rows.infos, (index, count), row)?;
                lane.exact.as_mut().map_or(Ok(()), |exact| exact.add(its, reward, flags))
            });
            if let Err(nonsense) = written {
                warn!(lane = number, %nonsense, "an env gives what it cannot; the lane is lost");
                lane.lose_for(&nonsense);
                liars.extend(together.then_some(lane.worker));
                collected.lost.insert(index);
                continue;
            }
            lane.stage = if lane.orphaned { Stage::Lost { hung: lane.talk.is_hung() } } else { Stage::Ready };
            collected.done.insert(index);
            collected.terminated.insert_if(index, flags & TERMINATED != 0);
            collected.truncated.insert_if(index, flags & TRUNCATED != 0);
        }
        liars.into_iter().for_each(|worker| self.end_worker(worker, true));
        collected
    }

    /// Looks whether workers that were seen connecting still do. It is asked after lanes were collected, which are back
    /// before their worker replies.
    pub(crate) fn look_again_at_tries(&mut self) {
        self.host.look_again_at_tries();
    }

    /// Copies the last observations of lanes of a block.
    pub(crate) fn show(&mut self, block: Range<usize>, lanes: LaneSet, rows: &mut LateRows<'_, '_>) {
        let Self { host, record, lanes: all, row, .. } = self;
        for index in lanes & LaneSet::first(block.len()) {
            let Some(its) = all[block.start + index].record(record, host.memories()) else { return };
            // What makes no sense was told when it was collected.
            let _ = its.columns(rows.obs, rows.infos, (index, block.len()), row);
        }
    }

    /// Gives up lanes of a block with their workers, as [`rollhouse_env::LateLanes::give_up`] has it.
    pub(crate) fn give_up(&mut self, block: Range<usize>, lanes: LaneSet, why: &str) -> LaneSet {
        for index in lanes & LaneSet::first(block.len()) {
            let lane = &self.lanes[block.start + index];
            if matches!(lane.stage, Stage::Waiting(_) | Stage::UnderWay(_)) {
                let worker = lane.worker;
                warn!(worker, why, "a worker is given up, with its lanes");
                self.fail_lanes(worker, true, why);
                self.end_worker(worker, false);
            }
        }
        let mut lost = LaneSet::NONE;
        for (index, lane) in self.lanes[block].iter_mut().enumerate() {
            if lane.stage == (Stage::Failing { hung: true }) {
                lane.stage = Stage::LOST;
                lost.insert(index);
            }
        }
        lost
    }

    /// Returns which lanes of a block wait for a worker that tries to connect.
    pub(crate) fn connecting(&mut self, block: Range<usize>) -> LaneSet {
        let lanes = self.lanes[block].iter().enumerate();
        let under_way = |lane: &Lane| matches!(lane.stage, Stage::Waiting(_) | Stage::UnderWay(_));
        lanes
            .filter(|(_, lane)| under_way(lane) && self.host.is_connecting(lane.worker))
            .map(|(index, _)| index)
            .collect()
    }

    /// Makes lost lanes of a block usable whose worker is there. Returns them, and those whose worker is coming.
    pub(crate) fn revive(&mut self, block: Range<usize>, lanes: LaneSet) -> (LaneSet, LaneSet) {
        self.pump();
        if self.together {
            self.gather(block.clone(), lanes);
        }
        let coming = self.coming(block.clone(), lanes);
        let mut revived = LaneSet::NONE;
        for index in lanes & LaneSet::first(block.len()) {
            let lane = &mut self.lanes[block.start + index];
            // One that does not come back is tried again later, and not with the others.
            lane.to_return &= coming.has(index);
            let staff = &self.staff[lane.worker];
            if lane.stage.is_lost() && staff.up && (staff.returning || !self.together) {
                lane.revive();
                revived.insert(index);
            }
        }
        (revived, coming)
    }

    /// Returns which of these lanes are lost and have a worker that is coming.
    pub(crate) fn coming(&self, block: Range<usize>, lanes: LaneSet) -> LaneSet {
        let comes = |index: &usize| {
            let lane = &self.lanes[block.start + index];
            let staff = &self.staff[lane.worker];
            let starts = self.host.state(lane.worker).is_coming() || staff.asked == Outstanding::Setup;
            let waits_for_worker = !staff.up && starts;
            let waits_for_others = self.together && staff.up && !staff.returning;
            lane.stage.is_lost() && (waits_for_worker || waits_for_others)
        };
        (lanes & LaneSet::first(block.len())).into_iter().filter(comes).collect()
    }

    /// Notes that lanes of a block are to come back, and which workers' lanes do so now: those of which every lane is lost
    /// and is to. It is decided as the block of a worker's first lane asks, after which the other blocks ask.
    fn gather(&mut self, block: Range<usize>, lanes: LaneSet) {
        for index in lanes & LaneSet::first(block.len()) {
            self.lanes[block.start + index].to_return = true;
        }
        for staff in self.staff.iter_mut().filter(|staff| block.contains(&staff.lanes.start)) {
            let mine = &self.lanes[staff.lanes.clone()];
            staff.returning = staff.up && mine.iter().all(|lane| lane.stage.is_lost() && lane.to_return);
        }
    }

    /// Looks after the workers without waiting. Returns whether something happened to one.
    fn pump(&mut self) -> bool {
        if let Err(error) = self.host.wait(Until::AnyEvent, Some(Duration::ZERO)) {
            warn!(%error, "workers cannot be looked after");
        }
        let happened = self.host.has_events();
        self.take_events();
        happened
    }

    /// Handles what happened to workers. Returns what is wrong with the last one that was lost, unless its start is tried
    /// again.
    fn take_events(&mut self) -> Option<String> {
        let mut wrong = None;
        while let Some(event) = self.host.next_event() {
            match event {
                WorkerEvent::Ready { worker, answer, left } => {
                    self.keep_rows(worker, left);
                    wrong = self.meet(worker, answer).or(wrong);
                }
                WorkerEvent::Replied(reply) => match std::mem::take(&mut self.staff[reply.worker].asked) {
                    Outstanding::Work => self.hear(reply.worker, &reply.payload),
                    Outstanding::Lane => self.staff[reply.worker].heard = Some(reply.payload),
                    asked => self.hear_other(reply.worker, asked, reply.payload),
                },
                WorkerEvent::Lost { worker, cause, restart, detail } => {
                    let staff = &mut self.staff[worker];
                    // One that was there comes back as it does later.
                    let again = matches!(restart, Restart::Again(_))
                        || staff.up && matches!(restart, Restart::After(_));
                    staff.up = false;
                    let hung = cause == Cause::Hung && !staff.lied;
                    if !staff.lied {
                        warn!(worker, ?cause, ?restart, detail, "a worker is lost, with its lanes");
                        if !again {
                            wrong = Some(detail.clone());
                        }
                    }
                    staff.lied = false;
                    self.fail_lanes(worker, hung, &detail);
                    self.lose(worker, cause, restart, detail);
                }
            }
        }
        wrong
    }

    /// Takes the answer of a worker that is ready. Returns what is wrong with it.
    fn meet(&mut self, worker: usize, answer: Vec<u8>) -> Option<String> {
        if self.own.is_some() {
            self.introduce(worker, answer);
            return None;
        }
        if answer == self.expected {
            (self.staff[worker].up, self.staff[worker].lied) = (true, false);
            return None;
        }
        let told = self.differs(&answer);
        warn!(worker, told, "a worker has another env than the first one; its lanes are lost");
        self.end_worker(worker, true);
        Some(told)
    }

    /// Returns what is wrong with an answer that was not expected.
    fn differs(&self, answer: &[u8]) -> String {
        match crate::description::Description::read(answer) {
            Ok(_) => "its spaces, or its Gymnasium, are others".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Takes the answer to a command, at which every lane of the command has to have its number.
    fn hear(&mut self, worker: usize, payload: &[u8]) {
        if self.own.is_some() {
            self.hear_later(worker, payload);
        } else if !payload.is_empty() {
            match serde_json::from_slice::<Words>(payload) {
                Ok(said) => {
                    for (index, words) in said.lost.into_iter().take(self.staff[worker].lanes.len()) {
                        let lane = self.staff[worker].lanes.start.saturating_add(index);
                        warn!(lane, worker, words, "an env failed; the lane is lost");
                        if let Some(lane) = self.lanes.get_mut(lane) {
                            lane.talk.end(false, &words);
                        }
                    }
                }
                Err(error) => warn!(worker, %error, "a worker's words make no sense"),
            }
        }
        let number = self.staff[worker].number;
        let silent = self.staff[worker].lanes.clone().any(|lane| {
            self.lanes[lane].stage == Stage::UnderWay(number)
                && self.record_of(lane).is_none_or(|its| its.number() >> 8 != number)
        });
        if silent {
            warn!(worker, "a worker has answered without all of its lanes");
            self.end_worker(worker, true);
        }
    }

    /// Ends a worker, with its lanes.
    fn end_worker(&mut self, worker: usize, lied: bool) {
        self.staff[worker].lied |= lied;
        self.staff[worker].up = false;
        self.fail_lanes(worker, !lied, "");
        if let Err(error) = self.host.give_up(worker) {
            warn!(worker, %error, "a worker cannot be ended");
        }
    }

    /// Copies rows that nobody has collected yet out of the memory of a worker's last process, of which nothing else is read
    /// again.
    fn keep_rows(&self, worker: usize, left: Option<(SharedMemory, usize)>) {
        let Some((left, at)) = left else { return };
        for lane in &self.lanes[self.staff[worker].lanes.clone()] {
            let waits = lane.orphaned && matches!(lane.stage, Stage::UnderWay(_) | Stage::Ahead);
            if let (true, Some(its)) = (waits, lane.record(&self.record, self.host.memories())) {
                its.copy_from(self.record.lane(&left, at, lane.index));
            }
        }
    }

    /// Takes the lanes of a worker that has ended, or is about to, out of use. Rows that are complete stay.
    fn fail_lanes(&mut self, worker: usize, hung: bool, detail: &str) {
        let Self { host, record, staff, lanes, .. } = self;
        staff[worker].returning = false;
        for lane in &mut lanes[staff[worker].lanes.clone()] {
            // Its worker makes all of its envs anew.
            (lane.anew, lane.ahead) = (false, false);
            let its = lane.record(record, host.memories());
            let written = |wanted| {
                its.is_some_and(|its| {
                    let answer = its.number();
                    answer >> 8 == wanted && (answer & SAYS_LATER == 0 || lane.talk.has_come())
                })
            };
            match lane.stage {
                Stage::UnderWay(wanted) if written(wanted) => lane.orphaned = true,
                Stage::Ahead => lane.orphaned = true,
                Stage::Waiting(_) | Stage::UnderWay(_) => lane.stage = Stage::Failing { hung },
                Stage::Ready => lane.stage = Stage::Lost { hung },
                Stage::Failing { .. } | Stage::Lost { .. } => continue,
            }
            lane.talk.end(hung, detail);
        }
    }
}

impl Drop for Workforce {
    /// Lets workers that are idle close their envs, for at most [`CLOSE_PATIENCE`], and ends all.
    fn drop(&mut self) {
        for worker in 0..self.staff.len() {
            // One that takes no command is ended without.
            let _ = self.host.post(worker, CLOSE, &[], Some(CLOSE_PATIENCE));
        }
        let _ = self.host.wait(Until::AllReplied, Some(CLOSE_PATIENCE));
        self.host.end(CLOSE_PATIENCE);
    }
}

/// Codes of commands, in their low byte.
const WORK: u64 = 1;

const CLOSE: u64 = 2;

/// Bytes of a command for each lane: its task and its seed.
const COMMAND_BYTES: usize = 1 + size_of::<u64>();

/// How a lane answered, in the low byte of its number.
const TERMINATED: u64 = 1;
const TRUNCATED: u64 = 2;
const LOST: u64 = 4;

/// Time for which workers may close their envs at the end.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time for which the words of an env that has failed are waited for.
const WORDS_WITHIN: Duration = Duration::from_secs(1);
