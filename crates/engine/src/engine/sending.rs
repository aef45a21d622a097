//! First-done mode, in which lanes are sent some at a time and received as they are done.

use std::time::{Duration, Instant};

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{AutoresetMode, ColumnRef, LaneSet};
use rollhouse_env::BadAction;

use super::{Engine, Stage};
use crate::block::Block;
use crate::config::MAX_SUB_BATCHES;
use crate::crew::Order;
use crate::error::StepError;
use crate::first_done::{FirstDone, Received, Task, ToCrew, pick, receive};

impl Engine {
    /// Sends actions for some lanes: row i of `actions` is for `lanes[i]`. The lanes are stepped in sub-batches, one
    /// for each thread, and can be received as they are done.
    ///
    /// # Errors
    /// [`StepError::Busy`] when too much is under way, [`StepError::LaneOutstanding`] for a lane that has not been
    /// received or is named twice, [`StepError::LaneLost`], [`StepError::NoSuchLane`], [`StepError::Length`], and what
    /// [`Engine::step`] refuses. Nothing is sent then.
    pub fn send(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        self.refuse_send(lanes, actions)?;
        self.enter_first_done()?;
        self.stage = Stage::Playing;
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        order.sort_unstable_by_key(|&index| lanes[index]);
        let turn = self.clock.now();
        let Some(books) = &mut self.first_done else { return Err(StepError::Hung) };
        for &lane in lanes {
            books.outstanding[lane as usize] = true;
        }
        books.outstanding_lanes += lanes.len();
        // The other crews first: they work while the caller's thread does its own part.
        for crew in (0..=self.crews.others.len()).rev() {
            let range =
                if crew == 0 { self.crews.own.range() } else { self.crews.others[crew - 1].range.clone() };
            let part: Vec<usize> =
                order.iter().copied().filter(|&i| range.contains(&(lanes[i] as usize))).collect();
            if part.is_empty() {
                continue;
            }
            let actions = pick(actions, self.action.elements(), part.iter().copied());
            let task = Task { lanes: part.iter().map(|&i| lanes[i]).collect(), actions, turn };
            if crew == 0 && self.crews.own.late {
                self.crews.own.post_task(&task);
            } else if crew == 0 {
                books.ready.extend(self.crews.own.do_task(&task));
            } else {
                books.under_way[crew] += 1;
                if self.crews.others[crew - 1].tasks.send(ToCrew::Step(task)).is_err() {
                    self.hung = true;
                    return Err(StepError::Hung);
                }
            }
        }
        Ok(())
    }

    /// Waits until at least `min` lanes that were sent are done, and returns all that are.
    ///
    /// # Errors
    /// [`StepError::NothingOutstanding`] if fewer than `min` (or none) are outstanding,
    /// [`StepError::TimedOut`] after `timeout`, when the lanes stay outstanding; [`StepError::Hung`].
    pub fn recv(&mut self, min: usize, timeout: Duration) -> Result<Received, StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        let outstanding = self.outstanding();
        let (Some(books), true) = (&mut self.first_done, outstanding >= min.max(1)) else {
            return Err(StepError::NothingOutstanding { wanted: min, outstanding });
        };
        let deadline = Instant::now() + timeout;
        let mut ready: usize = books.ready.iter().map(|result| result.lanes.len()).sum();
        while self.crews.own.late {
            let result = self.crews.own.take_ready(self.clock.now());
            if !result.lanes.is_empty() {
                ready += result.lanes.len();
                books.ready.push_back(result);
            }
            if ready >= min.max(1) {
                break;
            }
            if Instant::now() >= deadline {
                return Err(StepError::TimedOut);
            }
            self.crews.own.wait_for_any(deadline);
        }
        loop {
            let next = if ready >= min.max(1) {
                self.crews.results.try_recv().ok()
            } else {
                Some(
                    receive(&self.crews.results, &mut self.crews.patience, deadline)
                        .ok_or(StepError::TimedOut)?,
                )
            };
            let Some((crew, result)) = next else { break };
            books.under_way[crew] -= 1;
            ready += result.lanes.len();
            books.ready.push_back(result);
        }
        let mut received = Received::default();
        for result in books.ready.drain(..) {
            received.append(result);
        }
        for &lane in &received.lanes {
            books.outstanding[lane as usize] = false;
        }
        books.outstanding_lanes -= received.lanes.len();
        Ok(received)
    }

    /// Returns the number of lanes that were sent and not received.
    pub fn outstanding(&self) -> usize {
        self.first_done.as_ref().map_or(0, |books| books.outstanding_lanes)
    }

    /// Returns whether a lane was sent and not received.
    pub fn is_outstanding(&self, lane: usize) -> bool {
        self.first_done.as_ref().is_some_and(|books| books.outstanding.get(lane) == Some(&true))
    }

    /// Returns the blocks while lanes that finish when they finish are sent and not received, for what can be done beside
    /// them: whatever is done between two steps would wait for them and drop their rows.
    pub(super) fn blocks_beside(&mut self) -> Option<&mut [Block]> {
        (self.outstanding() > 0 && self.crews.own.late).then_some(&mut self.crews.own.blocks[..])
    }

    #[cold]
    pub(super) fn leave_first_done(&mut self) -> Result<(), StepError> {
        self.first_done = None;
        for worker in &self.crews.others {
            // A full channel has its place soon: the crew takes tasks until it meets this one.
            if worker.tasks.send(ToCrew::End).is_err() {
                self.hung = true;
                return Err(StepError::Hung);
            }
        }
        self.crews.pass(self.clock.now());
        self.wait()?;
        while self.crews.results.try_recv().is_ok() {}
        Ok(())
    }

    fn enter_first_done(&mut self) -> Result<(), StepError> {
        if self.first_done.is_none() {
            self.crews.give(Order::Serve, self.clock.now());
            self.first_done = Some(FirstDone::new(self.lanes(), 1 + self.crews.others.len()));
            self.arena.start_housekeeping();
        }
        Ok(())
    }

    fn refuse_send(&self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        if self.hung {
            return Err(StepError::Hung);
        }
        if self.stage == Stage::New {
            return Err(StepError::NotReset);
        }
        let wanted = lanes.len() * self.check.elements();
        if actions.len() != wanted {
            return Err(StepError::Length { what: "action elements", given: actions.len(), wanted });
        }
        let mut named = vec![LaneSet::NONE; self.status.len()];
        for &lane in lanes {
            let lane = lane as usize;
            if lane >= self.lanes() {
                return Err(StepError::NoSuchLane { lane, lanes: self.lanes() });
            }
            let (block, bit) = (lane / BLOCK_LANES, lane % BLOCK_LANES);
            let books = self.first_done.as_ref();
            if books.is_some_and(|books| books.outstanding[lane]) || named[block].has(bit) {
                return Err(StepError::LaneOutstanding { lane });
            }
            named[block].insert(bit);
            let status = &self.status[block];
            if status.lost().has(bit) {
                return Err(StepError::LaneLost { lane });
            }
            if self.config.autoreset == AutoresetMode::Disabled && status.waiting().has(bit) {
                return Err(StepError::NeedsReset { lane });
            }
        }
        self.refuse_sent_actions(lanes, actions)?;
        let full = self.first_done.as_ref().is_some_and(|books| {
            books.ready.len() >= MAX_SUB_BATCHES || books.under_way.iter().any(|&n| n >= MAX_SUB_BATCHES)
        });
        if full { Err(StepError::Busy { retry_after_ms: BUSY_RETRY_MS }) } else { Ok(()) }
    }

    fn refuse_sent_actions(&self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        if self.check.all_good(actions) {
            return Ok(());
        }
        let stepping = |index: usize| {
            let lane = lanes[index] as usize;
            !self.status[lane / BLOCK_LANES].waiting().has(lane % BLOCK_LANES)
        };
        match self.check.first_bad(actions, stepping) {
            Some(bad) => Err(StepError::Action(BadAction {
                lane: lanes.get(bad.lane).map_or(0, |&l| l as usize),
                ..bad
            })),
            None => Ok(()),
        }
    }
}

/// Pause after which a client is likely to find room. A sub-batch takes microseconds to milliseconds.
const BUSY_RETRY_MS: u64 = 1;
