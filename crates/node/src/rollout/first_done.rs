//! Playing lanes that finish when they finish: each goes on as soon as its row is there, and none waits for another.
//!
//! ```text
//! ready --its action is chosen, it is sent--> under way --its row is received--> ready
//!                                             under way --it is lost--> lost --it is back--> ready
//! ready --it has played what it is to play--> done
//! ```
//!
//! A lane's actions are those that it gets where all lanes are stepped together: they depend on the lane and on how often it
//! was stepped.

use std::ops::Range;
use std::time::{Duration, Instant};

use rollhouse_core::{AutoresetMode, ColumnData, ColumnRef, Goal, LaneState};
use rollhouse_engine::{Engine, Received, StepError};
use rollhouse_policy::{Act, Policy};

use super::{Ended, Stepped, Turn, note};
use crate::RolloutError;
use crate::live::Live;

/// Lanes of a session that plays by itself.
pub(super) struct FirstDone {
    first_lane: u32,
    goal: Goal,
    /// Number of rows that each lane has had, also elsewhere.
    rows: Vec<u64>,
    /// The action that each lane was sent last.
    actions: ColumnData,
    /// Lanes that are to be sent next.
    ready: Vec<u32>,
    /// Lanes that are lost.
    lost: Vec<u32>,
}

impl FirstDone {
    /// Takes lanes that were reset and have had so many rows each before, and chooses their first actions.
    pub(super) fn begin(
        engine: &mut Engine,
        policy: &mut dyn Policy,
        rows: Vec<u64>,
        first_lane: u32,
        goal: Goal,
    ) -> Result<Self, Ended> {
        let column = engine.actions()?;
        let actions = ColumnData::zeros(column.as_ref().dtype(), column.as_ref().len());
        let ready = Vec::with_capacity(rows.len());
        let mut own = Self { first_lane, goal, rows, actions, ready, lost: Vec::new() };
        own.take_first(engine, policy)?;
        Ok(own)
    }

    /// Sends lanes and receives rows for a while.
    pub(super) fn play(&mut self, engine: &mut Engine, turn: &mut Turn<'_>) -> Result<Stepped, Ended> {
        let live = turn.progress.live();
        while !turn.cancel.is_cancelled() {
            self.look_for_lost(engine)?;
            self.send(engine)?;
            let outstanding = engine.outstanding();
            if outstanding == 0 && self.lost.is_empty() {
                return Ok(Stepped::Reached);
            }
            let received = if outstanding == 0 { None } else { self.receive(engine, turn.patience)? };
            let Some(received) = received else {
                let is_idle = outstanding == 0 && !turn.patience.is_zero();
                return Ok(if is_idle { Stepped::WaitsFor(LOOK_FOR_LOST) } else { Stepped::Waits });
            };
            self.film(engine, turn, live, &received);
            self.take(engine, turn.policy, &received)?;
            turn.progress.beat();
            if Instant::now() >= turn.until {
                return Ok(Stepped::Paused);
            }
        }
        Ok(Stepped::Reached)
    }

    /// Returns the number of rows that each lane has had.
    pub(super) fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Chooses the first actions, from what the reset has shown.
    fn take_first(&mut self, engine: &mut Engine, policy: &mut dyn Policy) -> Result<(), Ended> {
        let infos = engine.entry().spec().info_channels.len();
        let frame = engine.frame()?;
        let shown = Received {
            lanes: (0..self.rows.len() as u32).collect(),
            obs: frame.obs_columns().into_iter().map(owned).collect(),
            infos: (0..infos).map(|column| owned(frame.info(column))).collect(),
            ..Received::default()
        };
        self.choose(engine, policy, &shown)
    }

    /// Counts the rows of lanes, and chooses the next actions of those.
    fn take(
        &mut self,
        engine: &mut Engine,
        policy: &mut dyn Policy,
        received: &Received,
    ) -> Result<(), Ended> {
        for &lane in &received.lanes {
            self.rows[lane as usize] += 1;
        }
        self.choose(engine, policy, received)
    }

    /// Chooses the next actions of lanes from their rows. They are sent next, but for those that are lost or done.
    fn choose(&mut self, engine: &mut Engine, policy: &mut dyn Policy, rows: &Received) -> Result<(), Ended> {
        let mask = engine.entry().spec().action_mask();
        if policy.is_recurrent() {
            self.forget_before_episodes(engine.autoreset() == AutoresetMode::SameStep, policy, rows);
        }
        let mut from = 0;
        while from < rows.lanes.len() {
            if self.is_done(engine, rows.lanes[from] as usize) {
                // A policy that remembers lanes sees each row once, also if others step the lane on.
                from += 1;
                continue;
            }
            let to = self.alike(&rows.lanes, from);
            self.act(policy, (rows, mask), from..to)?;
            engine.give_up(policy.failed())?;
            note(engine, policy, Some(&rows.lanes[from..to]))?;
            from = to;
        }
        for &lane in &rows.lanes {
            if engine.is_lost(lane as usize) {
                self.lost.push(lane);
            } else if !self.is_done(engine, lane as usize) {
                self.ready.push(lane);
            }
        }
        Ok(())
    }

    /// Has the policy forget the lanes that begin an episode with their rows.
    fn forget_before_episodes(&self, same_step: bool, policy: &mut dyn Policy, rows: &Received) {
        let flag = |flags: &[u8], row: usize| flags.get(row).is_some_and(|flag| *flag != 0);
        for (row, lane) in rows.lanes.iter().enumerate() {
            let ended = same_step && (flag(&rows.terminated, row) || flag(&rows.truncated, row));
            if ended || flag(&rows.reset, row) {
                policy.begin(self.first_lane + lane);
            }
        }
    }

    /// Returns the end of the row of neighbours behind a lane that have been stepped as often.
    fn alike(&self, lanes: &[u32], from: usize) -> usize {
        let rows = |lane: u32| self.rows[lane as usize];
        let like = |pair: &&[u32]| pair[1] == pair[0] + 1 && rows(pair[1]) == rows(pair[0]);
        from + 1 + lanes[from..].windows(2).take_while(like).count()
    }

    /// Has the policy choose the actions of neighbours that have been stepped as often.
    fn act(
        &mut self,
        policy: &mut dyn Policy,
        (rows, mask): (&Received, Option<usize>),
        which: Range<usize>,
    ) -> Result<(), Ended> {
        let (of, first) = (rows.lanes.len(), rows.lanes[which.start] as usize);
        let obs: Vec<_> = rows.obs.iter().map(|column| part(column, &which, of)).collect();
        let mask = mask.map(|column| part(&rows.infos[column], &which, of));
        let elements = self.elements();
        let mut actions = self.actions.as_mut();
        let request = Act {
            first_lane: self.first_lane + first as u32,
            step: self.rows[first],
            obs: &obs,
            mask: mask.and_then(|mask| mask.as_u8()),
            actions: actions.slice(first * elements, (first + which.len()) * elements),
        };
        policy.act(request).map_err(|error| Ended::Error(RolloutError::Act(error)))
    }

    /// Returns the number of elements of an action.
    fn elements(&self) -> usize {
        self.actions.len() / self.rows.len()
    }

    /// Returns the action that a lane was given last.
    fn action(&self, lane: u32) -> ColumnRef<'_> {
        let (at, elements) = (lane as usize, self.elements());
        self.actions.as_ref().slice(at * elements, (at + 1) * elements)
    }

    fn is_done(&self, engine: &Engine, lane: usize) -> bool {
        match self.goal {
            Goal::Batches(batches) => self.rows[lane] >= batches || engine.has_played(lane),
            Goal::Episodes(_) => engine.has_played(lane),
        }
    }

    /// Sends the lanes that are ready, with their actions.
    fn send(&mut self, engine: &mut Engine) -> Result<(), Ended> {
        let lost = &mut self.lost;
        self.ready.retain(|&lane| {
            let is_lost = engine.is_lost(lane as usize);
            if is_lost {
                lost.push(lane);
            }
            !is_lost
        });
        if self.ready.is_empty() {
            return Ok(());
        }
        let mut actions = ColumnData::zeros(self.actions.as_ref().dtype(), 0);
        for &lane in &self.ready {
            let appended = actions.extend(self.action(lane));
            debug_assert!(appended, "rows of one column have one type");
        }
        engine.send(&self.ready, actions.as_ref())?;
        self.ready.clear();
        Ok(())
    }

    /// Waits for a moment for rows; `None` if none came.
    fn receive(&self, engine: &mut Engine, patience: Duration) -> Result<Option<Received>, Ended> {
        let patience = if self.lost.is_empty() { patience } else { patience.min(LOOK_FOR_LOST) };
        match engine.recv(1, patience) {
            Err(StepError::TimedOut) => Ok(None),
            received => Ok(Some(received?)),
        }
    }

    fn film(&self, engine: &mut Engine, turn: &mut Turn<'_>, live: &Live, received: &Received) {
        if live.is_watched() {
            let (elements, actions) = (self.elements(), self.actions.as_ref());
            let action = |lane: u32| {
                let at = lane as usize;
                Some(actions.slice(at * elements, (at + 1) * elements))
            };
            turn.camera.after_send(engine, live, action, received);
        }
    }

    /// Restarts lost lanes whose time has come, and sends those next that are back.
    fn look_for_lost(&mut self, engine: &mut Engine) -> Result<(), Ended> {
        if self.lost.is_empty() {
            return Ok(());
        }
        engine.restart_lost()?;
        let ready = &mut self.ready;
        self.lost.retain(|&lane| {
            let lost = engine.is_lost(lane as usize);
            if !lost {
                ready.push(lane);
            }
            lost
        });
        if self.ready.is_empty() && engine.outstanding() == 0 {
            return self.look_for_failed(engine);
        }
        Ok(())
    }

    /// Is called when nothing but lost lanes is left. Ends the stepping if they have failed for good.
    #[cold]
    fn look_for_failed(&mut self, engine: &mut Engine) -> Result<(), Ended> {
        let states = engine.lane_states()?;
        let failed = self.lost.iter().filter(|&&lane| states[lane as usize] == LaneState::Failed).count();
        if failed < self.lost.len() {
            return Ok(());
        }
        if matches!(self.goal, Goal::Batches(_)) && failed < self.rows.len() {
            // The others have reached it.
            self.lost.clear();
            return Ok(());
        }
        Err(Ended::Lanes(failed))
    }
}

fn owned(column: ColumnRef<'_>) -> ColumnData {
    let mut owned = ColumnData::zeros(column.dtype(), 0);
    let copied = owned.extend(column);
    debug_assert!(copied, "a column is of its own type");
    owned
}

/// Returns some of the rows of a column that has `of`.
fn part<'a>(column: &'a ColumnData, which: &Range<usize>, of: usize) -> ColumnRef<'a> {
    let elements = column.len() / of;
    column.as_ref().slice(which.start * elements, which.end * elements)
}

/// Time between two looks whether lost lanes are back, on a thread that waits: a fraction of the shortest back-off of a lane.
const LOOK_FOR_LOST: Duration = Duration::from_millis(20);
