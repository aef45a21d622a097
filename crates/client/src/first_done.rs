//! First-done stepping: lanes are sent in parts and received as they come.
//!
//! A session has one request under way; further parts of its lanes wait here until it is answered, so that after
//! a lost connection there is never an answer that its node does not have any more.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_arena::Frame;
use rollhouse_core::{AutoresetMode, ColumnData, ColumnRef};
use rollhouse_engine::{BadAction, MAX_SUB_BATCHES, Received, StepError as Rules};
use rollhouse_wire::{ColumnBuffer, FrameHeader, FrameKind, FrameLayout, LostLane, Notes};
use tokio::time::Instant;

use crate::error::StepError;
use crate::join::{Part, run_together};
use crate::link::RowsOf;
use crate::log::LaneFlags;
use crate::pool::AsyncPool;
use crate::pool_session::{Clock, PoolSession, Way};
use crate::session::{Answered, RequestBody, Trouble};
use crate::under_way::{FirstDone, Ready, SentLanes, SessionQueue};

impl AsyncPool {
    /// Sends actions for some lanes, row i of `actions` for `lanes[i]`. Returns when they are on their way.
    ///
    /// # Errors
    /// See [`StepError`]; nothing is sent then. [`Busy`](Rules::Busy) when more than [`MAX_SUB_BATCHES`] parts of
    /// one session wait.
    pub async fn send(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        let clock = self.clock();
        self.settle_sessions(clock, false).await;
        self.refuse_send(lanes, actions)?;
        if self.first_done.is_none() {
            // Rows of lanes that are lost meanwhile show what the last whole batch did.
            self.copy_newest();
        }
        let parts = self.parts_of(lanes, actions);
        let (all, sessions) = (self.lanes(), self.sessions.len());
        let books = self.first_done.get_or_insert_with(|| FirstDone::new(all, sessions));
        for (queue, part) in books.queues.iter_mut().zip(parts) {
            queue.waiting.extend(part);
        }
        for &lane in lanes {
            books.outstanding[lane as usize] = true;
        }
        books.outstanding_lanes += lanes.len();
        // Written once each is polled; the connections' own task, which is due after this one, sends it.
        self.work(|_| true).await;
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Waits until at least `min` lanes that were sent are done. Returns all that are done.
    ///
    /// # Errors
    /// [`NothingOutstanding`](Rules::NothingOutstanding) if fewer than `min` (or none) are outstanding.
    /// [`TimedOut`](Rules::TimedOut) after `timeout`; the lanes stay outstanding then. [`StepError::Refused`] for lanes
    /// that did not move, and are not outstanding any more.
    pub async fn recv(&mut self, min: usize, timeout: Duration) -> Result<Received, StepError> {
        let outstanding = self.first_done.as_ref().map_or(0, |books| books.outstanding_lanes);
        if outstanding < min.max(1) {
            return Err(Rules::NothingOutstanding { wanted: min, outstanding }.into());
        }
        let enough = |ready: &Ready| ready.rows.lanes.len() >= min.max(1) || ready.refused.is_some();
        let waited = tokio::time::timeout(timeout, self.work(enough)).await;
        let Some(books) = &mut self.first_done else { return Err(Rules::TimedOut.into()) };
        let ready = books.ready.get_mut();
        if waited.is_err() && !enough(ready) {
            return Err(Rules::TimedOut.into());
        }
        if let Some((error, lanes)) = ready.refused.take() {
            books.forget(&lanes);
            return Err(error);
        }
        let (rows, losses) = (std::mem::take(&mut ready.rows), std::mem::take(&mut ready.losses));
        books.forget(&rows.lanes);
        self.note_received(&rows, losses);
        Ok(rows)
    }

    /// Returns the number of lanes that were sent and not received.
    pub fn outstanding(&self) -> usize {
        self.first_done.as_ref().map_or(0, |books| books.outstanding_lanes)
    }

    /// Carries on with all that is under way, until all of it is done or `enough` is.
    async fn work(&mut self, enough: impl Fn(&Ready) -> bool) {
        let Self { sessions, batch, cluster, first_done, kind, start, .. } = self;
        let Some(FirstDone { queues, ready, .. }) = first_done else { return };
        let ready = &*ready;
        let receiving = Receiving {
            // How long is waited is decided by who receives.
            way: Way {
                network: cluster.network(),
                clock: Clock { start: *start, deadline: Instant::now() + PATIENCE },
            },
            frame: batch.frame(),
            layout: &kind.layout,
            bools: &kind.bools,
            same_step: kind.autoreset == AutoresetMode::SameStep,
            ready,
        };
        let receiving = &receiving;
        let parts = sessions.iter_mut().zip(queues).enumerate();
        let parts = parts.filter(|(_, (_, queue))| queue.under_way.is_some() || !queue.waiting.is_empty());
        let parts =
            parts.map(|(index, (site, queue))| Box::pin(receiving.serve(index, site, queue)) as Part<'_>);
        let look = || enough(&ready.lock());
        run_together(parts.collect(), look).await;
        self.leave_lost_memory();
    }

    fn note_received(&mut self, rows: &Received, losses: Vec<(usize, Vec<LostLane>)>) {
        for (index, losses) in losses {
            let lanes = self.sessions[index].lanes().clone();
            if let Some(outcome) = self.sessions[index].session.gone().map(|gone| gone.outcome) {
                self.sessions[index].session.report_gone();
                self.note_gone(&lanes, outcome);
            } else {
                self.note_losses(&lanes, &losses);
            }
        }
        self.tidy_losses();
        for (row, &lane) in rows.lanes.iter().enumerate() {
            let over = rows.terminated[row] | rows.truncated[row];
            self.over[lane as usize] = if self.kind.autoreset == AutoresetMode::SameStep { 0 } else { over };
        }
    }

    fn refuse_send(&self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        self.check_ready()?;
        let wanted = lanes.len() * self.kind.layout.action.elements();
        if actions.len() != wanted {
            return Err(Rules::Length { what: "action elements", given: actions.len(), wanted }.into());
        }
        let mut named = vec![false; self.lanes()];
        let outstanding = self.first_done.as_ref().map_or(&[][..], |books| &books.outstanding);
        for &lane in lanes {
            let lane = lane as usize;
            let Some(named) = named.get_mut(lane) else {
                return Err(Rules::NoSuchLane { lane, lanes: self.lanes() }.into());
            };
            if outstanding.get(lane).copied().unwrap_or(false) || std::mem::replace(named, true) {
                return Err(Rules::LaneOutstanding { lane }.into());
            }
            if self.loss(lane).is_some() {
                return Err(Rules::LaneLost { lane }.into());
            }
            if self.kind.autoreset == AutoresetMode::Disabled && self.over[lane] != 0 {
                return Err(Rules::NeedsReset { lane }.into());
            }
        }
        self.refuse_actions(lanes, actions)?;
        let full =
            |books: &FirstDone| books.queues.iter().any(|queue| queue.waiting.len() >= MAX_SUB_BATCHES);
        if self.first_done.as_ref().is_some_and(full) {
            return Err(Rules::Busy { retry_after_ms: BUSY_RETRY_MS }.into());
        }
        Ok(())
    }

    fn refuse_actions(&self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        let check = &self.kind.check;
        if check.all_good(actions) {
            return Ok(());
        }
        match check.first_bad(actions, |row| !self.ignores_action(lanes[row] as usize)) {
            Some(bad) => Err(Rules::Action(BadAction { lane: lanes[bad.lane] as usize, ..bad }).into()),
            None => Ok(()),
        }
    }

    /// Splits the lanes by session: for each its lanes, ascending, with their actions.
    fn parts_of(&self, lanes: &[u32], actions: ColumnRef<'_>) -> Vec<Option<SentLanes>> {
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        order.sort_unstable_by_key(|&index| lanes[index]);
        let mut rest = order.as_slice();
        let parts = self.sessions.iter().map(|site| {
            let range = site.lanes();
            let here = rest.partition_point(|&index| (lanes[index] as usize) < range.end);
            let (part, others) = rest.split_at(here);
            rest = others;
            if part.is_empty() {
                return None;
            }
            let lanes = part.iter().map(|&index| lanes[index] - range.start as u32).collect();
            self.part(lanes, part, actions)
        });
        parts.collect()
    }

    /// Makes a part of a session's lanes; `None` if its frame would be too large, which it never is.
    fn part(&self, lanes: Vec<u32>, rows: &[usize], actions: ColumnRef<'_>) -> Option<SentLanes> {
        let places = self.kind.layout.actions(lanes.len(), true)?;
        let mut buffer = ColumnBuffer::default();
        buffer.resize(places.bytes);
        buffer.bytes_mut().fill(0);
        buffer.set_count(&places.count, lanes.len() as u32);
        buffer.lanes_mut(&places.lanes).copy_from_slice(&lanes);
        let elements = self.kind.layout.action.elements();
        let mut column = buffer.column_mut(&places.actions, self.kind.layout.action.dtype);
        for (to, &from) in rows.iter().enumerate() {
            let action = actions.slice(from * elements, (from + 1) * elements);
            let copied = column.slice(to * elements, (to + 1) * elements).copy_from(action);
            debug_assert!(copied, "actions have the column's type, which was checked");
        }
        Some(SentLanes { lanes, columns: Some(Bytes::copy_from_slice(buffer.bytes())) })
    }
}

/// The state that all sessions share which work at one time.
struct Receiving<'a> {
    way: Way<'a>,
    frame: Frame<'a>,
    layout: &'a FrameLayout,
    bools: &'a [usize],
    same_step: bool,
    ready: &'a Mutex<Ready>,
}

impl Receiving<'_> {
    /// Steps all parts that a session has. Cancellation-safe: the next call goes on where this one was dropped.
    async fn serve(&self, index: usize, site: &mut PoolSession, queue: &mut SessionQueue) {
        loop {
            if queue.under_way.is_none() {
                let Some(part) = queue.waiting.pop_front() else { return };
                queue.under_way = Some(part);
            }
            let Some(part) = &mut queue.under_way else { return };
            if let Some(columns) = part.columns.take() {
                let request = RequestBody { kind: FrameKind::Send, columns, sidecar: Bytes::new() };
                site.ask(request, self.way.clock);
            }
            let answered = site.answer(&self.way).await;
            // Nothing is awaited from here on.
            let Some(part) = queue.under_way.take() else { return };
            let taken = answered.and_then(|header| {
                let rows = self.rows(header, site, &part);
                rows.map_err(|what| site.distrust(self.way.clock.start.elapsed(), what))
            });
            self.deliver(index, site, &part, taken);
        }
    }

    fn deliver(
        &self,
        index: usize,
        site: &mut PoolSession,
        part: &SentLanes,
        taken: Result<(Received, Vec<LostLane>), Trouble>,
    ) {
        let first = site.lanes().start as u32;
        let lanes = || part.lanes.iter().map(|lane| first + lane).collect();
        let node = || site.session.grant().node.clone();
        let mut ready = self.ready.lock();
        let error = match taken {
            Ok((rows, losses)) => {
                append(&mut ready.rows, rows);
                ready.losses.push((index, losses));
                return;
            }
            Err(Trouble::Gone) => {
                append(&mut ready.rows, self.rows_of_gone(lanes()));
                ready.losses.push((index, Vec::new()));
                return;
            }
            Err(Trouble::Refused(refusal)) => StepError::Refused { node: node(), refusal },
            Err(Trouble::TimedOut) => StepError::TimedOut(site.session.unanswered(PATIENCE)),
        };
        // One at a time is told; the lanes of another one are told with it.
        match &mut ready.refused {
            Some((_, refused)) => refused.extend(lanes()),
            None => ready.refused = Some((error, lanes())),
        }
    }

    /// Returns the rows of an answer.
    fn rows(
        &self,
        header: FrameHeader,
        site: &mut PoolSession,
        part: &SentLanes,
    ) -> Result<(Received, Vec<LostLane>), String> {
        let of = RowsOf {
            layout: self.layout,
            bools: self.bools,
            same_step: self.same_step,
            lanes: &part.lanes,
            session: site.lanes(),
        };
        let (mut rows, notes) = site.link.rows(header, &of)?;
        self.keep(site, part, &mut rows, &notes);
        Ok((rows, notes.lost))
    }

    /// Keeps what the session's log needs. Lanes whose past was lost with their node are shown as cut.
    fn keep(&self, site: &mut PoolSession, part: &SentLanes, rows: &mut Received, notes: &Notes) {
        let asked = site.session.asked_columns();
        let actions =
            self.layout.actions(part.lanes.len(), true).and_then(|places| asked.get(places.actions));
        let flags =
            LaneFlags { terminated: &rows.terminated, truncated: &rows.truncated, reset: &rows.reset };
        let answered = Answered { now: self.way.clock.start.elapsed(), flags, notes };
        site.session.note_rows(&answered, &part.lanes, actions.unwrap_or_default());
        for lane in site.session.take_cut(&part.lanes) {
            let Ok(row) = part.lanes.binary_search(&lane) else { continue };
            let lane = site.lanes().start + lane as usize;
            for (column, (to, spec)) in rows.obs.iter_mut().zip(&self.layout.obs).enumerate() {
                let elements = spec.elements();
                let last = self.frame.obs(column).slice(lane * elements, (lane + 1) * elements);
                let set = to.set_row(row, elements, last);
                debug_assert!(set, "the frame has the layout's types");
            }
            (rows.rewards[row], rows.terminated[row], rows.truncated[row]) = (0.0, 0, 1);
        }
    }

    /// Returns the rows of lanes whose session is gone: the observations of the last whole batch, reward 0, truncated.
    fn rows_of_gone(&self, lanes: Vec<u32>) -> Received {
        let count = lanes.len();
        let obs = self.layout.obs.iter().enumerate().map(|(column, spec)| {
            let (elements, all) = (spec.elements(), self.frame.obs(column));
            let mut rows = ColumnData::zeros(spec.dtype, 0);
            for &lane in &lanes {
                let (start, end) = (lane as usize * elements, (lane as usize + 1) * elements);
                let appended = rows.extend(all.slice(start, end));
                debug_assert!(appended, "the frame has the layout's types");
            }
            rows
        });
        let zeros = |specs: &[rollhouse_core::ColumnSpec]| {
            specs
                .iter()
                .map(|spec| ColumnData::zeros(spec.dtype, count * spec.elements()))
                .collect::<Vec<_>>()
        };
        Received {
            obs: obs.collect(),
            infos: zeros(&self.layout.infos),
            final_obs: if self.same_step { zeros(&self.layout.obs) } else { Vec::new() },
            rewards: vec![0.0; count],
            terminated: vec![0; count],
            truncated: vec![1; count],
            reset: vec![0; count],
            lanes,
        }
    }
}

/// Appends the rows of another result.
fn append(to: &mut Received, from: Received) {
    if to.lanes.is_empty() {
        *to = from;
        return;
    }
    let columns = |to: &mut Vec<ColumnData>, from: &[ColumnData]| {
        for (to, from) in to.iter_mut().zip(from) {
            let appended = to.extend(from.as_ref());
            debug_assert!(appended, "columns of one place have one type");
        }
    };
    columns(&mut to.obs, &from.obs);
    columns(&mut to.infos, &from.infos);
    columns(&mut to.final_obs, &from.final_obs);
    to.lanes.extend(from.lanes);
    to.rewards.extend(from.rewards);
    to.terminated.extend(from.terminated);
    to.truncated.extend(from.truncated);
    to.reset.extend(from.reset);
}

/// Patience of requests of lanes that were sent: they are worth trying for as long as somebody may receive them.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Pause after which a sender may try again: a part takes microseconds to milliseconds, and receiving what is ready
/// makes room.
const BUSY_RETRY_MS: u64 = 1;
