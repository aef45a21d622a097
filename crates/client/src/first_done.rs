//! First-done stepping: lanes are sent some at a time and received as they come.
//!
//! A session has one request under way, so that after a lost connection there is never an answer that its node does not
//! have any more. It names all lanes of the session that are under way, and is answered with those that are done; the
//! next one names the others again. So a session that goes on elsewhere needs nothing but its last request, and a node
//! that answers a request as a whole has left none. Lanes that are sent meanwhile wait here, and hasten its answer.

use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_arena::Frame;
use rollhouse_core::{AutoresetMode, ColumnData, ColumnRef};
use rollhouse_engine::{BadAction, Received, StepError as Rules};
use rollhouse_wire::{FrameHeader, FrameLayout, LostLane, Notes};

use crate::carrier::Carrier;
use crate::error::StepError;
use crate::join::{Part, run_together};
use crate::link::RowsOf;
use crate::log::LaneFlags;
use crate::pool::AsyncPool;
use crate::pool_session::{PoolSession, Way};
use crate::session::{Answered, Trouble};
use crate::under_way::{FirstDone, Ready, SendRequest, SessionQueue};

impl AsyncPool {
    /// Sends actions for some lanes, row i of `actions` for `lanes[i]`. Returns when they are on their way.
    ///
    /// # Errors
    /// See [`StepError`]; nothing is sent then.
    pub async fn send(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
        let deadline = self.deadline();
        self.settle_sessions(deadline, false).await;
        self.refuse_send(lanes, actions)?;
        if self.first_done.is_none() {
            // Rows of lanes that are lost meanwhile show what the last whole batch did.
            self.copy_newest();
        }
        let Self { sessions, kind, first_done, .. } = self;
        let books = first_done.get_or_insert_with(|| {
            FirstDone::new(sessions.iter().map(|site| site.lanes().len()), &kind.layout)
        });
        let elements = kind.layout.action.elements();
        for (row, &lane) in lanes.iter().enumerate() {
            let session = sessions.partition_point(|site| site.lanes().end <= lane as usize);
            let first = sessions[session].lanes().start as u32;
            books.queues[session].push(lane - first, actions.slice(row * elements, (row + 1) * elements));
            books.outstanding[lane as usize] = true;
        }
        books.outstanding_lanes += lanes.len();
        // Written once each is polled; the connections' own task, which is due after this one, sends it.
        self.work(0).await;
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
        if let Some(books) = &mut self.first_done {
            books.wanted = min.max(1);
        }
        let waited = tokio::time::timeout(timeout, self.work(min.max(1))).await;
        let Some(books) = &mut self.first_done else { return Err(Rules::TimedOut.into()) };
        let ready = books.ready.get_mut();
        if waited.is_err() && !ready.is_enough(min.max(1)) {
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

    /// Returns whether a lane was sent and not received.
    pub(crate) fn is_outstanding(&self, lane: usize) -> bool {
        self.first_done.as_ref().is_some_and(|books| books.outstanding[lane])
    }

    /// Carries on with all that is under way, until all of it is done or that many lanes are ready.
    async fn work(&mut self, wanted: usize) {
        let Self { sessions, batch, carrier, first_done, kind, .. } = self;
        let Some(FirstDone { queues, ready, wanted: usual, .. }) = first_done else { return };
        let (ready, busy) = (&*ready, queues.iter().filter(|queue| !queue.is_idle()).count());
        let receiving = Receiving {
            // How long is waited is decided by who receives.
            way: Way { carrier, deadline: carrier.now() + PATIENCE },
            frame: batch.frame(),
            layout: &kind.layout,
            bools: &kind.bools,
            same_step: kind.autoreset == AutoresetMode::SameStep,
            ready,
            wanted,
            usual: *usual,
            alone: busy == 1,
        };
        let receiving = &receiving;
        let parts = sessions.iter_mut().zip(queues).enumerate();
        let parts = parts.filter(|(_, (_, queue))| !queue.is_idle());
        let parts =
            parts.map(|(index, (site, queue))| Box::pin(receiving.serve(index, site, queue)) as Part<'_>);
        let look = || ready.lock().is_enough(wanted);
        run_together(parts.collect(), look).await;
        self.leave_lost_memory();
    }

    /// Ends the logs of sessions with lanes under way, before they are dropped and some of them go on: what those did will
    /// not be known.
    pub(crate) fn forget_under_way(&mut self) {
        let Some(FirstDone { queues, .. }) = &self.first_done else { return };
        let busy = self.sessions.iter_mut().zip(queues).filter(|(_, queue)| !queue.is_idle());
        busy.for_each(|(site, _)| site.session.forget());
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

    pub(crate) fn refuse_send(&self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), StepError> {
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
        self.refuse_actions(lanes, actions)
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
}

/// The state that all sessions share which work at one time.
pub struct Receiving<'a, C: Carrier> {
    /// The surroundings of their requests.
    pub way: Way<'a, C>,
    /// The last whole batch, which lanes that are lost meanwhile show.
    pub frame: Frame<'a>,
    /// The layout of their columns.
    pub layout: &'a FrameLayout,
    /// Indices of the observation's columns that hold booleans.
    pub bools: &'a [usize],
    /// Whether rows have last observations.
    pub same_step: bool,
    /// Where rows are put.
    pub ready: &'a Mutex<Ready>,
    /// Number of lanes that are to be ready.
    pub wanted: usize,
    /// Number of lanes for which the caller usually waits.
    pub usual: usize,
    /// Whether all lanes under way are those of one session.
    pub alone: bool,
}

impl<C: Carrier> Receiving<'_, C> {
    /// Steps all lanes that a session has to step, until enough are ready. Cancellation-safe: the next call goes on where
    /// this one was dropped.
    pub async fn serve(&self, index: usize, site: &mut PoolSession<C>, queue: &mut SessionQueue) {
        loop {
            if site.session.is_lost() {
                // As are lanes that no request has named: one that asked for another place would go on with those that were
                // shown as lost.
                return self.lose(index, site, queue);
            }
            if !self.ask(site, queue) {
                return;
            }
            let answered = site.answer(&self.way).await;
            // Nothing is awaited from here on.
            let Some(asked) = queue.asked.take() else { return };
            let taken = answered.and_then(|header| {
                let rows = self.rows(header, site, &asked);
                rows.map_err(|what| site.distrust(self.way.carrier.now(), what))
            });
            self.deliver(index, site, queue, (&asked, taken));
        }
    }

    /// Has a request under way, if lanes wait for one or too few are ready. Returns whether one is.
    fn ask(&self, site: &mut PoolSession<C>, queue: &mut SessionQueue) -> bool {
        let min = self.missing();
        if queue.asked.is_some() {
            if queue.is_to_hasten((self.wanted > 0).then_some(min)) {
                site.hasten(SendRequest::hastened_sidecar());
            }
            return true;
        }
        if !queue.has_fresh() && self.ready.lock().is_enough(self.wanted) {
            return false;
        }
        let placed = site.session.grant().incarnation;
        let Some(asked) = queue.ask(self.layout, min, placed) else { return false };
        site.ask(asked.body(), &self.way);
        true
    }

    /// Returns the number of lanes for which the next request is to wait. What is done by other sessions may suffice.
    fn missing(&self) -> usize {
        let wanted = if self.wanted == 0 { self.usual } else { self.wanted };
        let ready = self.ready.lock().rows.lanes.len();
        if self.alone { wanted.saturating_sub(ready).max(1) } else { 1 }
    }

    fn deliver(
        &self,
        index: usize,
        site: &mut PoolSession<C>,
        queue: &mut SessionQueue,
        (asked, taken): (&SendRequest, Result<(Received, Vec<LostLane>), Trouble>),
    ) {
        let first = site.lanes().start as u32;
        let of_pool = |lanes: &[u32]| lanes.iter().map(|lane| first + lane).collect::<Vec<u32>>();
        let grant = site.session.grant();
        let mut ready = self.ready.lock();
        let error = match taken {
            Ok((rows, losses)) => {
                queue.answered(asked, rows.lanes.iter().map(|lane| lane - first));
                append(&mut ready.rows, rows);
                ready.losses.push((index, losses));
                return;
            }
            // Its rows are made with those of all other lanes of the session.
            Err(Trouble::Gone) => return,
            Err(Trouble::Refused(refusal)) => StepError::Refused { node: grant.node.clone(), refusal },
            Err(Trouble::TimedOut) => StepError::TimedOut(site.session.unanswered(PATIENCE)),
        };
        let lanes = of_pool(&queue.refused(asked, grant.incarnation, site.link.refused_lanes()));
        // One at a time is told; the lanes of another one are told with it.
        match &mut ready.refused {
            Some((_, refused)) => refused.extend(lanes),
            None => ready.refused = Some((error, lanes)),
        }
    }

    /// Gives up all lanes that a lost session has to step.
    fn lose(&self, index: usize, site: &PoolSession<C>, queue: &mut SessionQueue) {
        let first = site.lanes().start as u32;
        let lanes = queue.take_all().into_iter().map(|lane| first + lane).collect();
        let mut ready = self.ready.lock();
        append(&mut ready.rows, self.rows_of_gone(lanes));
        ready.losses.push((index, Vec::new()));
    }

    /// Returns the rows of an answer.
    fn rows(
        &self,
        header: FrameHeader,
        site: &mut PoolSession<C>,
        asked: &SendRequest,
    ) -> Result<(Received, Vec<LostLane>), String> {
        let session = site.lanes().clone();
        let of = RowsOf {
            layout: self.layout,
            bools: self.bools,
            same_step: self.same_step,
            lanes: &asked.lanes,
            session: &session,
        };
        let (mut rows, notes) = site.link.rows(header, &of)?;
        self.keep(site, asked, &mut rows, &notes);
        Ok((rows, notes.lost))
    }

    /// Keeps what the session's log needs. Lanes whose past was lost with their node are shown as cut.
    fn keep(&self, site: &mut PoolSession<C>, asked: &SendRequest, rows: &mut Received, notes: &Notes) {
        let first = site.lanes().start as u32;
        let lanes: Vec<u32> = rows.lanes.iter().map(|lane| lane - first).collect();
        let flags =
            LaneFlags { terminated: &rows.terminated, truncated: &rows.truncated, reset: &rows.reset };
        let taken = site.places.taken.map(|number| rows.infos[number].as_ref().bytes());
        let answered = Answered { now: self.way.carrier.now(), flags, taken, notes };
        site.session.note_rows(&answered, &lanes, &asked.actions_of(&lanes, self.layout));
        for lane in site.session.take_cut(&lanes) {
            let Ok(row) = lanes.binary_search(&lane) else { continue };
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
        let obs: Vec<ColumnData> = obs.collect();
        let zeros = |specs: &[rollhouse_core::ColumnSpec]| {
            specs
                .iter()
                .map(|spec| ColumnData::zeros(spec.dtype, count * spec.elements()))
                .collect::<Vec<_>>()
        };
        Received {
            final_obs: if self.same_step { obs.clone() } else { Vec::new() },
            obs,
            infos: zeros(&self.layout.infos),
            rewards: vec![0.0; count],
            terminated: vec![0; count],
            truncated: vec![1; count],
            reset: vec![0; count],
            lanes,
        }
    }
}

impl Ready {
    /// Returns whether that many lanes are ready, or a refusal is to be told.
    fn is_enough(&self, wanted: usize) -> bool {
        self.rows.lanes.len() >= wanted || self.refused.is_some()
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
