//! Live lanes: worlds that tick by a clock, and an owner that acts when it acts.
//!
//! ```text
//! action --queue of 16--> joined --tick due--> one step of the lane, recorded as any
//!                                               row --> takes the place of the one before, with what went by
//!                                               a row that ends an episode stays until it is answered
//! ```
//!
//! Pure: whoever steps the engine asks which lanes are due and with which actions, and gives the rows.

use std::collections::VecDeque;
use std::time::Duration;

use rollhouse_core::{
    AutoresetMode, ClockEvent, ColumnData, ColumnRef, EnvSpec, Joining, LaneClock, LaneState, Marks, NotNow,
    Pace, Tick,
};
use rollhouse_env::ActionCheck;
use rollhouse_policy::{Act, Noop, Policy};

use crate::{BadAction, Frame, Received};

/// Lanes of one batch that tick by clocks. `now` is any clock that only goes forward, as a duration since its own zero.
#[derive(Debug)]
pub struct PacedLanes {
    lanes: Vec<PacedLane>,
    /// The newest row of each lane, ascending, without what went by.
    rows: Received,
    /// What a world takes that nobody gives an action.
    no_op: ColumnData,
    joining: Joining,
    check: ActionCheck,
    autoreset: AutoresetMode,
    punctuality: Punctuality,
}

/// How punctual ticks were that a pace asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Punctuality {
    /// How late each tick began, of the first [`MAX_NOTED_TICKS`].
    pub lateness: Vec<Duration>,
    /// Ticks that were due and not played.
    pub missed: u64,
}

/// A live lane.
#[derive(Debug)]
struct PacedLane {
    clock: LaneClock,
    queue: VecDeque<ColumnData>,
    /// The tick that is under way.
    under_way: Option<Tick>,
    /// Whether the owner waits for a row of it.
    awaited: bool,
    /// Whether its newest row ends an episode and has not been answered: nothing takes its place.
    holds_end: bool,
    /// Whether something had happened to its clock before its last tick.
    marked: bool,
    /// What went by since it was answered.
    gone_by: GoneBy,
    /// Ticks that the clock had counted as late when it was answered.
    late_before: u64,
}

/// What went by of a lane between two answers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct GoneBy {
    reward: f64,
    ticks: i64,
    dropped: i64,
}

/// Error of an action for a live lane.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PostError {
    /// The action is none of the env's.
    #[error(transparent)]
    Action(#[from] BadAction),
    /// The lane takes none as it stands.
    #[error("lane {lane}: {why}")]
    NotNow {
        /// The lane.
        lane: usize,
        /// Why not.
        why: NotNow,
    },
    /// The lane's episode is over, and lanes begin none by themselves.
    #[error("the episode of lane {lane} is over: reset it first")]
    NeedsReset {
        /// The lane.
        lane: usize,
    },
}

impl PacedLanes {
    /// Makes that many lanes of an env, which stand until an owner is there and their episodes begin.
    pub fn new(spec: &EnvSpec, pace: Pace, lanes: usize, autoreset: AutoresetMode) -> Self {
        let lane = || PacedLane {
            clock: LaneClock::new(pace),
            queue: VecDeque::new(),
            under_way: None,
            awaited: false,
            holds_end: false,
            marked: false,
            gone_by: GoneBy::default(),
            late_before: 0,
        };
        Self {
            lanes: std::iter::repeat_with(lane).take(lanes).collect(),
            rows: Received::default(),
            no_op: no_op(spec),
            joining: Joining::of(&spec.action_space),
            check: ActionCheck::of(&spec.action_space).with_counted_of(spec),
            autoreset,
            punctuality: Punctuality::default(),
        }
    }

    /// Takes the rows of lanes whose episodes have begun: those of `mask`, or all if it is empty.
    pub fn begin(&mut self, frame: &Frame<'_>, mask: &[bool], now: Duration) {
        let all = Received::of_frame(frame);
        if self.rows.lanes.is_empty() {
            self.rows = all;
        } else {
            let begun = |lane: &usize| mask.get(*lane).copied().unwrap_or(true);
            (0..self.lanes.len()).filter(begun).for_each(|lane| self.rows.copy_row(lane, &all, lane));
        }
        for (lane, paced) in self.lanes.iter_mut().enumerate() {
            if mask.get(lane).copied().unwrap_or(true) {
                paced.queue.clear();
                (paced.awaited, paced.holds_end, paced.under_way) = (false, false, None);
                (paced.gone_by, paced.late_before) = (GoneBy::default(), paced.clock.late());
                paced.on(now, ClockEvent::Began);
            }
        }
    }

    /// Notes that the owner has seen which lanes were begun: those of `mask`, or all if it is empty.
    pub fn shown(&mut self, mask: &[bool]) {
        let begun = |lane: &usize| mask.get(*lane).copied().unwrap_or(true);
        (0..self.rows.lanes.len()).filter(begun).for_each(|lane| self.rows.forget_flags(lane));
    }

    /// Notes that an owner is there, or has gone. Without one, lanes stand.
    pub fn attend(&mut self, is_there: bool, now: Duration) {
        let event = if is_there { ClockEvent::Attached } else { ClockEvent::Detached };
        self.lanes.iter_mut().for_each(|lane| lane.on(now, event));
    }

    /// Has something happen to the clocks of some lanes, or of all if `lanes` is empty.
    ///
    /// # Errors
    /// The first lane that cannot do that as it stands; nothing has changed.
    pub fn control(
        &mut self,
        lanes: &[u32],
        event: ClockEvent,
        now: Duration,
    ) -> Result<(), (usize, NotNow)> {
        let all: Vec<usize> = if lanes.is_empty() {
            (0..self.lanes.len()).collect()
        } else {
            lanes.iter().map(|&lane| lane as usize).collect()
        };
        for &lane in &all {
            let Some(paced) = self.lanes.get(lane) else { continue };
            paced.clock.clone().on(now, event).map_err(|why| (lane, why))?;
        }
        for lane in all {
            if let Some(paced) = self.lanes.get_mut(lane) {
                paced.on(now, event);
            }
        }
        Ok(())
    }

    /// Puts an action for each of some lanes into their queues. The owner waits for their rows if it is `awaited`, but not for
    /// those of lanes that are `lost`.
    ///
    /// # Errors
    /// See [`PostError`]; nothing has changed then.
    pub fn post(
        &mut self,
        (lanes, actions): (&[u32], ColumnRef<'_>),
        awaited: bool,
        now: Duration,
        lost: impl Fn(usize) -> bool,
    ) -> Result<(), PostError> {
        self.refuse(lanes, actions, now)?;
        let elements = self.no_op.len();
        for (row, &lane) in lanes.iter().enumerate() {
            let Some(paced) = self.lanes.get_mut(lane as usize) else { continue };
            if paced.holds_end || lost(lane as usize) {
                // The owner has not seen that row yet: what it does is for an episode that is over.
                paced.gone_by.dropped += 1;
                continue;
            }
            if paced.queue.len() == MAX_QUEUED_ACTIONS {
                paced.queue.pop_front();
                paced.gone_by.dropped += 1;
            }
            paced.queue.push_back(actions.slice(row * elements, (row + 1) * elements).into());
            paced.awaited |= awaited;
            paced.on(now, ClockEvent::Posted);
        }
        Ok(())
    }

    fn refuse(&self, lanes: &[u32], actions: ColumnRef<'_>, now: Duration) -> Result<(), PostError> {
        if !self.check.all_good(actions)
            && let Some(bad) = self.check.first_bad(actions, |_| true)
        {
            return Err(BadAction { lane: lanes[bad.lane] as usize, ..bad }.into());
        }
        for &lane in lanes {
            let lane = lane as usize;
            let Some(paced) = self.lanes.get(lane) else { continue };
            match paced.clock.state() {
                _ if paced.holds_end => {}
                LaneState::Over if self.autoreset == AutoresetMode::Disabled => {
                    return Err(PostError::NeedsReset { lane });
                }
                _ => paced
                    .clock
                    .clone()
                    .on(now, ClockEvent::Posted)
                    .map_err(|why| PostError::NotNow { lane, why })?,
            }
        }
        Ok(())
    }

    /// Returns the lanes that tick now, ascending, and a row of actions for each; the caller steps them and gives their rows
    /// to [`PacedLanes::take`]. Lanes that are `lost` do not tick, and nobody waits for them.
    pub fn due(&mut self, now: Duration, lost: impl Fn(usize) -> bool) -> (Vec<u32>, ColumnData) {
        let (mut due, mut actions) = (Vec::new(), ColumnData::zeros(self.no_op.as_ref().dtype(), 0));
        for (lane, paced) in self.lanes.iter_mut().enumerate() {
            if lost(lane) {
                paced.lose(now);
                continue;
            }
            if paced.under_way.is_some() {
                continue;
            }
            let (lateness, missed) = (paced.clock.lateness(now), paced.clock.late());
            let Some(tick) = paced.clock.take(now) else { continue };
            self.punctuality.note(lateness, paced.clock.late() - missed);
            let action = match tick {
                Tick::Acting => paced.joined(&self.joining),
                Tick::Thinking => None,
            };
            let appended = actions.extend(action.as_ref().unwrap_or(&self.no_op).as_ref());
            debug_assert!(appended, "actions have the type of their column");
            paced.under_way = Some(tick);
            due.push(lane as u32);
        }
        (due, actions)
    }

    /// Returns how punctual ticks were since this was asked last.
    pub fn take_punctuality(&mut self) -> Punctuality {
        std::mem::take(&mut self.punctuality)
    }

    /// Returns what happened to the clocks of lanes that are due before their ticks, where something did or nothing did for the
    /// first time again: the lanes, for how many milliseconds their worlds stood still, and why.
    pub fn marks(&mut self, due: &[u32], now: Duration) -> (Vec<u32>, Vec<i64>, Vec<u8>) {
        let (mut lanes, mut stood, mut controls) = (Vec::new(), Vec::new(), Vec::new());
        for &lane in due {
            let Some(paced) = self.lanes.get_mut(lane as usize) else { continue };
            let marks = paced.clock.take_marks(now);
            let is_marked = marks != Marks::default();
            if is_marked || paced.marked {
                lanes.push(lane);
                stood.push(marks.stood.as_millis() as i64);
                controls.push(marks.controls);
            }
            paced.marked = is_marked;
        }
        (lanes, stood, controls)
    }

    /// Takes the rows of lanes that have ticked, each in the place of the one before.
    pub fn take(&mut self, received: &Received, now: Duration) {
        for (row, &lane) in received.lanes.iter().enumerate() {
            let Some(paced) = self.lanes.get_mut(lane as usize) else { continue };
            let tick = paced.under_way.take();
            // An action that came while the lane was under way waits for the tick that takes it.
            paced.awaited &= tick == Some(Tick::Thinking) || !paced.queue.is_empty();
            if received.reset[row] != 0 {
                paced.gone_by = GoneBy { dropped: paced.gone_by.dropped, ..GoneBy::default() };
                paced.on(now, ClockEvent::Began);
            } else {
                paced.gone_by.ticks += 1;
                paced.gone_by.reward += received.rewards[row];
            }
            if received.terminated[row] | received.truncated[row] != 0 {
                paced.end(now);
                paced.holds_end = true;
            }
            self.rows.copy_row(lane as usize, received, row);
        }
    }

    /// Notes that lanes were lost: their episodes are over.
    pub fn lose(&mut self, lanes: &[u32], now: Duration) {
        for &lane in lanes {
            let Some(paced) = self.lanes.get_mut(lane as usize) else { continue };
            paced.lose(now);
            if let Some(truncated) = self.rows.truncated.get_mut(lane as usize) {
                *truncated = 1;
                paced.holds_end = true;
            }
        }
    }

    /// Returns those of some lanes that have a row for their owner that is newer than its last action.
    pub fn ready_of(&self, lanes: &[u32]) -> Vec<u32> {
        let is = |lane: &u32| self.lanes.get(*lane as usize).is_some_and(|paced| !paced.awaited);
        lanes.iter().copied().filter(is).collect()
    }

    /// Returns whether no lane's owner waits for a row.
    pub fn are_ready(&self) -> bool {
        self.lanes.iter().all(|paced| !paced.awaited)
    }

    /// Returns the newest rows of some lanes with the sums of what went by since their last answer, and says that this is one if
    /// it `answers`. Of an empty list, those of all.
    pub fn rows(&mut self, lanes: &[u32], answers: bool, now: Duration) -> Received {
        let all: Vec<u32>;
        let lanes = if lanes.is_empty() {
            all = (0..self.lanes.len() as u32).collect();
            &all
        } else {
            lanes
        };
        let mut rows = self.rows.picked(lanes);
        let mut gone_by: [Vec<i64>; 3] = Default::default();
        for (row, &lane) in lanes.iter().enumerate() {
            let Some(paced) = self.lanes.get_mut(lane as usize) else { continue };
            let GoneBy { reward, ticks, dropped } = paced.gone_by;
            rows.rewards[row] = reward;
            let late = paced.clock.late() - paced.late_before;
            gone_by.iter_mut().zip([ticks, dropped, late as i64]).for_each(|(to, value)| to.push(value));
            if answers {
                self.rows.forget_flags(lane as usize);
                paced.answered(self.autoreset, now);
            }
        }
        rows.infos.extend(gone_by.map(ColumnData::I64));
        rows
    }

    /// Returns the time at which a lane is due; `None` if none is by itself.
    pub fn due_at(&self) -> Option<Duration> {
        let due = |lane: &PacedLane| lane.clock.due_at().filter(|_| lane.under_way.is_none());
        self.lanes.iter().filter_map(due).min()
    }

    /// Returns whether episodes of all lanes have begun at some time: before that there are no rows.
    pub const fn have_begun(&self) -> bool {
        !self.rows.lanes.is_empty()
    }

    /// Returns the state of a lane's world.
    pub fn state(&self, lane: usize) -> Option<LaneState> {
        self.lanes.get(lane).map(|paced| paced.clock.state())
    }
}

impl Punctuality {
    fn note(&mut self, lateness: Option<Duration>, missed: u64) {
        self.lateness.extend(lateness.filter(|_| self.lateness.len() < MAX_NOTED_TICKS));
        self.missed += missed;
    }
}

impl PacedLane {
    fn on(&mut self, now: Duration, event: ClockEvent) {
        // What a lane cannot do as it stands was refused before.
        let _refused = self.clock.on(now, event);
    }

    /// Takes what waits for a tick, as one action; `None` if nothing does.
    fn joined(&mut self, joining: &Joining) -> Option<ColumnData> {
        let mut newest = self.queue.pop_back()?;
        while let Some(earlier) = self.queue.pop_back() {
            let joined = joining.join(earlier.as_ref(), &mut newest);
            self.gone_by.dropped += i64::from(joined.replaced || joined.left_out > 0);
        }
        Some(newest)
    }

    /// Ends the episode: what waits for a tick of it is dropped.
    fn end(&mut self, now: Duration) {
        self.gone_by.dropped += self.queue.len() as i64;
        self.queue.clear();
        self.awaited = false;
        self.on(now, ClockEvent::Ended);
    }

    fn lose(&mut self, now: Duration) {
        self.under_way = None;
        if self.clock.state() != LaneState::Over {
            self.end(now);
        }
        self.awaited = false;
    }

    fn answered(&mut self, autoreset: AutoresetMode, now: Duration) {
        (self.gone_by, self.late_before) = (GoneBy::default(), self.clock.late());
        self.holds_end = false;
        // With SAME_STEP the row that ended an episode is the first one of the next.
        let began = autoreset == AutoresetMode::SameStep && self.clock.state() == LaneState::Over;
        self.on(now, if began { ClockEvent::Began } else { ClockEvent::Answered });
    }
}

/// Returns what the policy `noop` does; zeros in a space that has no action.
fn no_op(spec: &EnvSpec) -> ColumnData {
    let column = spec.action_column();
    let mut row = ColumnData::zeros(column.dtype, column.elements());
    if let Ok(mut policy) = Noop::new(&spec.action_space) {
        let request = Act { first_lane: 0, step: 0, obs: &[], mask: None, actions: row.as_mut() };
        let acted = policy.act(request);
        debug_assert!(acted.is_ok(), "it was made for this column");
    }
    row
}

/// Most ticks whose lateness is noted until somebody asks.
pub const MAX_NOTED_TICKS: usize = 1024;

/// Most actions that wait for one tick of a lane; the oldest goes.
pub const MAX_QUEUED_ACTIONS: usize = 16;
