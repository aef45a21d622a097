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

use rollhouse_core::{ColumnData, ColumnRef, Goal, LaneState};
use rollhouse_engine::{Engine, Received, StepError};
use rollhouse_policy::{Act, Policy};

use super::{Ended, PUBLISH_EVERY, note, publish};
use crate::live::{Camera, Live};
use crate::{Cancel, Progress, RolloutError};

/// Lanes of a session that plays by itself.
pub(super) struct FirstDone<'a> {
    engine: &'a mut Engine,
    policy: &'a mut dyn Policy,
    first_lane: u32,
    goal: Goal,
    /// Number of rows that each lane has had since the first reset.
    rows: Vec<u64>,
    /// The action that each lane was sent last.
    actions: ColumnData,
    /// Lanes that are to be sent next.
    ready: Vec<u32>,
    /// Lanes that are lost.
    lost: Vec<u32>,
}

impl<'a> FirstDone<'a> {
    /// Takes lanes that were reset.
    pub(super) fn new(
        engine: &'a mut Engine,
        policy: &'a mut dyn Policy,
        first_lane: u32,
        goal: Goal,
    ) -> Result<Self, Ended> {
        let lanes = engine.lanes();
        let column = engine.actions()?;
        let actions = ColumnData::zeros(column.as_ref().dtype(), column.as_ref().len());
        let (rows, ready) = (vec![0; lanes], Vec::with_capacity(lanes));
        Ok(Self { engine, policy, first_lane, goal, rows, actions, ready, lost: Vec::new() })
    }

    /// Plays until each lane has reached the goal or the end is asked for. Blocks for as long as that takes.
    pub(super) fn play(mut self, progress: &Progress, cancel: &Cancel) -> Result<(), Ended> {
        let (live, mut camera) = (progress.live(), Camera::default());
        let mut shown = Instant::now();
        self.take_first()?;
        while !cancel.is_cancelled() {
            self.look_for_lost()?;
            self.send()?;
            if self.engine.outstanding() == 0 && self.lost.is_empty() {
                return Ok(());
            }
            if let Some(received) = self.receive()? {
                self.film(&mut camera, live, &received);
                self.take(&received)?;
                progress.beat();
            }
            if shown.elapsed() >= PUBLISH_EVERY {
                publish(self.engine, progress)?;
                shown = Instant::now();
            }
        }
        Ok(())
    }

    /// Chooses the first actions, from what the reset has shown.
    fn take_first(&mut self) -> Result<(), Ended> {
        let infos = self.engine.entry().spec().info_channels.len();
        let frame = self.engine.frame()?;
        let shown = Received {
            lanes: (0..self.rows.len() as u32).collect(),
            obs: frame.obs_columns().into_iter().map(owned).collect(),
            infos: (0..infos).map(|column| owned(frame.info(column))).collect(),
            ..Received::default()
        };
        self.choose(&shown)
    }

    /// Counts the rows of lanes, and chooses the next actions of those.
    fn take(&mut self, received: &Received) -> Result<(), Ended> {
        for &lane in &received.lanes {
            self.rows[lane as usize] += 1;
        }
        self.choose(received)
    }

    /// Chooses the next actions of lanes from their rows. They are sent next, but for those that are lost or done.
    fn choose(&mut self, rows: &Received) -> Result<(), Ended> {
        let mut from = 0;
        while from < rows.lanes.len() {
            let to = self.alike(&rows.lanes, from);
            self.act(rows, from..to)?;
            from = to;
        }
        for &lane in &rows.lanes {
            if self.engine.is_lost(lane as usize) {
                self.lost.push(lane);
            } else if !self.is_done(lane as usize) {
                self.ready.push(lane);
            }
        }
        Ok(())
    }

    /// Returns the end of the row of neighbours behind a lane that have been stepped as often.
    fn alike(&self, lanes: &[u32], from: usize) -> usize {
        let rows = |lane: u32| self.rows[lane as usize];
        let like = |pair: &&[u32]| pair[1] == pair[0] + 1 && rows(pair[1]) == rows(pair[0]);
        from + 1 + lanes[from..].windows(2).take_while(like).count()
    }

    /// Has the policy choose the actions of neighbours that have been stepped as often.
    fn act(&mut self, rows: &Received, which: Range<usize>) -> Result<(), Ended> {
        let (of, first) = (rows.lanes.len(), rows.lanes[which.start] as usize);
        let obs: Vec<_> = rows.obs.iter().map(|column| part(column, &which, of)).collect();
        let mask = self.engine.entry().spec().action_mask();
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
        self.policy.act(request).map_err(|error| Ended::Error(RolloutError::Act(error)))?;
        Ok(note(self.engine, self.policy, Some(&rows.lanes[which]))?)
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

    fn is_done(&self, lane: usize) -> bool {
        match self.goal {
            Goal::Batches(batches) => self.rows[lane] >= batches,
            Goal::Episodes(_) => self.engine.has_played(lane),
        }
    }

    /// Sends the lanes that are ready, with their actions.
    fn send(&mut self) -> Result<(), Ended> {
        let (engine, lost) = (&*self.engine, &mut self.lost);
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
        self.engine.send(&self.ready, actions.as_ref())?;
        self.ready.clear();
        Ok(())
    }

    /// Waits for a moment for rows; `None` if none came.
    fn receive(&mut self) -> Result<Option<Received>, Ended> {
        let patience = if self.lost.is_empty() { LOOK_FOR_END } else { LOOK_FOR_LOST };
        if self.engine.outstanding() == 0 {
            std::thread::sleep(patience);
            return Ok(None);
        }
        match self.engine.recv(1, patience) {
            Err(StepError::TimedOut) => Ok(None),
            received => Ok(Some(received?)),
        }
    }

    fn film(&mut self, camera: &mut Camera, live: &Live, received: &Received) {
        if live.is_watched() {
            let (elements, actions) = (self.elements(), self.actions.as_ref());
            let action = |lane: u32| {
                let at = lane as usize;
                Some(actions.slice(at * elements, (at + 1) * elements))
            };
            camera.after_send(self.engine, live, action, received);
        }
    }

    /// Restarts lost lanes whose time has come, and sends those next that are back.
    fn look_for_lost(&mut self) -> Result<(), Ended> {
        if self.lost.is_empty() {
            return Ok(());
        }
        self.engine.restart_lost()?;
        let (engine, ready) = (&*self.engine, &mut self.ready);
        self.lost.retain(|&lane| {
            let lost = engine.is_lost(lane as usize);
            if !lost {
                ready.push(lane);
            }
            lost
        });
        if self.ready.is_empty() && self.engine.outstanding() == 0 {
            return self.look_for_failed();
        }
        Ok(())
    }

    /// Is called when nothing but lost lanes is left. Ends the stepping if they have failed for good.
    #[cold]
    fn look_for_failed(&mut self) -> Result<(), Ended> {
        let states = self.engine.lane_states()?;
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

/// Greatest time after which a session notices that it is to end, while its lanes are under way.
const LOOK_FOR_END: Duration = Duration::from_millis(50);

/// Time between two looks whether lost lanes are back: a fraction of the shortest back-off of a lane.
const LOOK_FOR_LOST: Duration = Duration::from_millis(20);
