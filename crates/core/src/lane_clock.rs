//! The clock of one live lane: which ticks are due.
//!
//! ```text
//! standing --attached--> playing <--pause, resume--> paused
//!                        playing, paused --plan--> planning --time, or its owner ends it--> playing
//!                        playing --the episode ends--> over --its next action--> playing
//!                        any --detached--> standing
//! ```
//!
//! Pure: `now` is any clock that only goes forward, as a duration since its own zero.

use std::time::Duration;

use crate::{Clock, LaneEvent, LaneState, Pace};

/// What happens to a live lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockEvent {
    /// An owner is there.
    Attached,
    /// The owner has gone: the lane stands until one is there again.
    Detached,
    /// An episode has begun.
    Began,
    /// The owner has sent an action.
    Posted,
    /// The owner has been answered.
    Answered,
    /// The episode has ended.
    Ended,
    /// The world is to stand still.
    Pause,
    /// It is to go on.
    Resume,
    /// So many ticks are to be played, also of a world that is paused.
    Tick(u32),
    /// The owner plans for so long at most; the world stands still.
    Plan(Duration),
    /// The owner has planned.
    EndPlan,
}

/// A tick that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// The owner's actions are taken.
    Acting,
    /// None is taken: it stands for time in which the owner thought.
    Thinking,
}

/// What happened to a live lane's clock between two ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Time for which its world stood still.
    pub stood: Duration,
    /// Sum of [`Marks::PAUSED`] and its sisters.
    pub controls: u8,
}

impl Marks {
    /// Bit: it was paused.
    pub const PAUSED: u8 = 1;
    /// Bit: it was resumed.
    pub const RESUMED: u8 = 2;
    /// Bit: ticks were asked for.
    pub const TICKED: u8 = 4;
    /// Bit: its owner planned.
    pub const PLANNED: u8 = 8;
    /// Bit: the owner ended planning, and not the time.
    pub const PLAN_ENDED: u8 = 16;
    /// Bit: no owner was there.
    pub const STOOD: u8 = 32;
}

/// What a live lane cannot do as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lane that is {} cannot {what}", .state.word())]
pub struct NotNow {
    /// The lane's state.
    pub state: LaneState,
    /// What was asked for.
    pub what: &'static str,
}

/// The clock of a live lane. See the file's head.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneClock {
    period: Duration,
    clock: Clock,
    state: LaneState,
    /// State to which an owner comes back.
    before: LaneState,
    /// Time of the next tick, in realtime.
    next: Option<Duration>,
    /// Time at which the owner began to think.
    since: Duration,
    /// Time at which planning ends.
    plan_ends: Duration,
    /// Ticks without an action that are to be played.
    thinking: u32,
    /// Ticks with the owner's actions that are to be played.
    acting: u32,
    /// Ticks that were due and not played.
    late: u64,
    /// What happened since the last tick.
    marks: Marks,
    /// Time since which the world stands still.
    stands_since: Option<Duration>,
}

impl LaneClock {
    /// Returns the clock of a lane that stands.
    pub fn new(pace: Pace) -> Self {
        Self {
            period: pace.period(),
            clock: pace.clock,
            state: LaneState::Standing,
            before: LaneState::Over,
            next: None,
            since: Duration::ZERO,
            plan_ends: Duration::ZERO,
            thinking: 0,
            acting: 0,
            late: 0,
            marks: Marks::default(),
            stands_since: None,
        }
    }

    /// Returns the lane's state.
    pub const fn state(&self) -> LaneState {
        self.state
    }

    /// Returns the ticks that were due and not played, because the machine or an earlier tick was late.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Returns what happened since it was last asked.
    pub fn take_marks(&mut self, now: Duration) -> Marks {
        if let Some(since) = &mut self.stands_since {
            self.marks.stood += now.saturating_sub(*since);
            *since = now;
        }
        std::mem::take(&mut self.marks)
    }

    /// Takes what has happened.
    ///
    /// # Errors
    /// If the lane cannot do that as it stands; nothing has changed.
    pub fn on(&mut self, now: Duration, event: ClockEvent) -> Result<(), NotNow> {
        self.pass(now);
        match event {
            ClockEvent::Attached if self.state == LaneState::Standing => {
                self.state = self.before;
                self.go_on(now, Marks::STOOD);
                self.restart(now);
            }
            ClockEvent::Detached if self.state != LaneState::Standing => {
                (self.before, self.state) = (self.stood(), LaneState::Standing);
                self.stands_since.get_or_insert(now);
                self.forget();
            }
            ClockEvent::Attached | ClockEvent::Detached => {}
            ClockEvent::Began => self.begin(now),
            ClockEvent::Posted => self.post(now)?,
            ClockEvent::Answered => self.since = now,
            ClockEvent::Ended => {
                self.forget();
                self.state = self.to(LaneEvent::EpisodeEnded, "end").unwrap_or(LaneState::Over);
            }
            ClockEvent::Pause if self.state != LaneState::Playing => {
                return Err(NotNow { state: self.state, what: "pause" });
            }
            ClockEvent::Pause => {
                self.charge(now);
                self.state = self.to(LaneEvent::Pause, "pause")?;
                self.next = None;
                self.stop(now, Marks::PAUSED);
            }
            ClockEvent::Resume => {
                self.state = self.to(LaneEvent::Resume, "resume")?;
                self.go_on(now, Marks::RESUMED);
                self.restart(now);
            }
            ClockEvent::Tick(_) if !matches!(self.state, LaneState::Playing | LaneState::Paused) => {
                return Err(NotNow { state: self.state, what: "tick" });
            }
            ClockEvent::Tick(ticks) => {
                self.acting = self.acting.saturating_add(ticks).min(MAX_TICKS);
                self.marks.controls |= Marks::TICKED;
            }
            ClockEvent::Plan(time) => {
                self.state = self.to(LaneEvent::Plan, "plan")?;
                (self.next, self.plan_ends) = (None, now + time.min(MAX_PLANNING));
                self.stop(now, Marks::PLANNED);
            }
            ClockEvent::EndPlan if self.state == LaneState::Planning => {
                self.marks.controls |= Marks::PLAN_ENDED;
                self.end_plan(now);
            }
            ClockEvent::EndPlan => return Err(NotNow { state: self.state, what: "end planning" }),
        }
        Ok(())
    }

    /// Takes the next tick that is due, if one is. One that is late is not made up for but counted.
    pub fn take(&mut self, now: Duration) -> Option<Tick> {
        self.pass(now);
        if self.thinking > 0 {
            self.thinking -= 1;
            return Some(Tick::Thinking);
        }
        if self.acting > 0 {
            self.acting -= 1;
            return Some(Tick::Acting);
        }
        let next = self.next.filter(|&next| next <= now && self.state == LaneState::Playing)?;
        let missed = ((now - next).as_nanos() / self.period.as_nanos().max(1)) as u64;
        self.late += missed;
        let passed = self.period.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1));
        self.next = Some(next + passed);
        Some(Tick::Acting)
    }

    /// Returns how late the next tick is that the pace asks for; `None` if it asks for none now.
    pub fn lateness(&self, now: Duration) -> Option<Duration> {
        if self.thinking > 0 || self.acting > 0 || self.state != LaneState::Playing {
            return None;
        }
        now.checked_sub(self.next?)
    }

    /// Returns the time at which something is due next: now or earlier if it is; `None` if nothing will be by itself.
    pub fn due_at(&self) -> Option<Duration> {
        if self.thinking > 0 || self.acting > 0 {
            return Some(Duration::ZERO);
        }
        match self.state {
            LaneState::Playing => self.next,
            LaneState::Planning => Some(self.plan_ends),
            _ => None,
        }
    }

    /// Sees what time alone changes.
    fn pass(&mut self, now: Duration) {
        if self.state == LaneState::Planning && now >= self.plan_ends {
            self.end_plan(self.plan_ends);
        }
    }

    fn begin(&mut self, now: Duration) {
        self.forget();
        (self.marks, self.stands_since) = (Marks::default(), None);
        match self.state {
            LaneState::Standing => self.before = LaneState::Playing,
            _ => self.state = LaneState::Playing,
        }
        self.restart(now);
    }

    fn post(&mut self, now: Duration) -> Result<(), NotNow> {
        match (self.state, self.clock) {
            (LaneState::Over, _) => self.acting = 1,
            (LaneState::Playing, Clock::Realtime) => {}
            (LaneState::Playing, Clock::Agent) => self.acting = (self.acting + 1).min(MAX_TICKS),
            (LaneState::Playing, Clock::Charged) => {
                self.charge(now);
                self.acting = (self.acting + 1).min(MAX_TICKS);
            }
            (state, _) => return Err(NotNow { state, what: "take an action" }),
        }
        Ok(())
    }

    /// Has the time be played in which the owner thought, if it is charged.
    fn charge(&mut self, now: Duration) {
        if self.clock != Clock::Charged || self.state != LaneState::Playing {
            return;
        }
        let ticks = now.saturating_sub(self.since).as_nanos() / self.period.as_nanos().max(1);
        let (ticks, room) = (ticks as u64, u64::from(MAX_TICKS - self.thinking));
        self.late += ticks.saturating_sub(room);
        self.thinking += ticks.min(room) as u32;
        self.since = now;
    }

    fn end_plan(&mut self, now: Duration) {
        self.state = LaneState::Playing;
        self.go_on(now, 0);
        self.restart(now);
    }

    /// Notes that the world stands still from now on.
    fn stop(&mut self, now: Duration, control: u8) {
        self.marks.controls |= control;
        self.stands_since.get_or_insert(now);
    }

    /// Notes that it goes on, if it does.
    fn go_on(&mut self, now: Duration, control: u8) {
        self.marks.controls |= control;
        if self.state == LaneState::Playing
            && let Some(since) = self.stands_since.take()
        {
            self.marks.stood += now.saturating_sub(since);
        }
    }

    /// Has time run from now on.
    fn restart(&mut self, now: Duration) {
        self.since = now;
        let runs = self.clock == Clock::Realtime && self.state == LaneState::Playing;
        self.next = runs.then(|| now + self.period);
    }

    fn forget(&mut self) {
        (self.next, self.thinking, self.acting) = (None, 0, 0);
    }

    /// Returns the state in which an owner that comes finds the lane.
    const fn stood(&self) -> LaneState {
        match self.state {
            LaneState::Planning => LaneState::Playing,
            state => state,
        }
    }

    fn to(&self, event: LaneEvent, what: &'static str) -> Result<LaneState, NotNow> {
        self.state.on(event).map_err(|_| NotNow { state: self.state, what })
    }
}

/// Most ticks that a lane is to play at once: of thinking, and of a call.
pub const MAX_TICKS: u32 = 5_000;

/// Longest time for which an owner plans.
pub const MAX_PLANNING: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ClockEvent as E;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn playing(clock: Clock) -> LaneClock {
        let mut lane = LaneClock::new(Pace { hz: 25.0, clock });
        lane.on(at(0), E::Attached).unwrap();
        lane.on(at(0), E::Began).unwrap();
        lane
    }

    fn ticks(lane: &mut LaneClock, now: Duration) -> Vec<Tick> {
        std::iter::from_fn(|| lane.take(now)).collect()
    }

    #[test]
    fn in_realtime_a_world_ticks_whatever_its_owner_does_and_counts_what_it_missed() {
        let mut lane = playing(Clock::Realtime);
        assert_eq!(ticks(&mut lane, at(39)), []);
        assert_eq!(ticks(&mut lane, at(40)), [Tick::Acting]);
        assert_eq!(lane.due_at(), Some(at(80)));
        lane.on(at(41), E::Posted).unwrap();
        assert_eq!(ticks(&mut lane, at(41)), [], "an action waits for the next tick");
        assert_eq!(ticks(&mut lane, at(245)), [Tick::Acting]);
        assert_eq!((lane.late(), lane.due_at()), (4, Some(at(280))));
    }

    #[test]
    fn by_the_agents_clock_a_world_is_frozen_until_it_acts() {
        let mut lane = playing(Clock::Agent);
        assert_eq!((ticks(&mut lane, at(10_000)), lane.due_at()), (vec![], None));
        lane.on(at(10_000), E::Posted).unwrap();
        assert_eq!(ticks(&mut lane, at(10_000)), [Tick::Acting]);
    }

    #[test]
    fn thinking_that_is_charged_is_played_before_the_action() {
        let mut lane = playing(Clock::Charged);
        lane.on(at(130), E::Posted).unwrap();
        assert_eq!(ticks(&mut lane, at(130)), [Tick::Thinking, Tick::Thinking, Tick::Thinking, Tick::Acting]);
        lane.on(at(140), E::Answered).unwrap();
        lane.on(at(179), E::Posted).unwrap();
        assert_eq!(ticks(&mut lane, at(179)), [Tick::Acting]);
        lane.on(at(179), E::Answered).unwrap();
        lane.on(at(300_000), E::Posted).unwrap();
        assert_eq!(ticks(&mut lane, at(300_000)).len(), MAX_TICKS as usize + 1);
        assert_eq!(lane.late(), 7_495 - u64::from(MAX_TICKS));
    }

    #[test]
    fn a_paused_world_ticks_only_as_often_as_it_is_asked_to() {
        let mut lane = playing(Clock::Realtime);
        lane.on(at(10), E::Pause).unwrap();
        assert_eq!(lane.on(at(10), E::Pause), Err(NotNow { state: LaneState::Paused, what: "pause" }));
        let refused = lane.on(at(10), E::Posted).unwrap_err();
        assert_eq!(refused.to_string(), "a lane that is paused cannot take an action");
        assert_eq!(ticks(&mut lane, at(5_000)), []);
        lane.on(at(5_000), E::Tick(3)).unwrap();
        assert_eq!(ticks(&mut lane, at(5_000)).len(), 3);
        lane.on(at(5_001), E::Resume).unwrap();
        assert_eq!((lane.due_at(), lane.late()), (Some(at(5_041)), 0));
    }

    #[test]
    fn how_long_a_world_stood_and_why_is_known_of_its_next_tick() {
        let mut lane = playing(Clock::Realtime);
        assert_eq!(lane.take_marks(at(10)), Marks::default());
        lane.on(at(10), E::Pause).unwrap();
        lane.on(at(30), E::Tick(1)).unwrap();
        assert_eq!(ticks(&mut lane, at(30)).len(), 1);
        assert_eq!(lane.take_marks(at(30)), Marks { stood: at(20), controls: Marks::PAUSED | Marks::TICKED });
        lane.on(at(50), E::Plan(at(100))).unwrap();
        assert_eq!(ticks(&mut lane, at(190)).len(), 1, "40 ms after its time was over");
        assert_eq!(lane.take_marks(at(190)), Marks { stood: at(120), controls: Marks::PLANNED });
        lane.on(at(200), E::Detached).unwrap();
        lane.on(at(500), E::Attached).unwrap();
        assert_eq!(lane.take_marks(at(600)), Marks { stood: at(300), controls: Marks::STOOD });
    }

    #[test]
    fn planning_ends_by_its_owner_or_by_time() {
        for ended in [false, true] {
            let mut lane = playing(Clock::Realtime);
            lane.on(at(5), E::Plan(at(1_000))).unwrap();
            assert_eq!((lane.state(), lane.due_at()), (LaneState::Planning, Some(at(1_005))));
            assert!(lane.on(at(6), E::Posted).is_err());
            if ended {
                lane.on(at(100), E::EndPlan).unwrap();
                assert_eq!(lane.due_at(), Some(at(140)));
            } else {
                assert_eq!(ticks(&mut lane, at(1_005)), []);
                assert_eq!((lane.state(), lane.due_at()), (LaneState::Playing, Some(at(1_045))));
            }
            assert!(lane.on(at(2_000), E::EndPlan).is_err());
        }
    }

    #[test]
    fn a_lane_stands_until_an_owner_is_there_and_while_none_is() {
        let mut lane = LaneClock::new(Pace { hz: 25.0, clock: Clock::Realtime });
        lane.on(at(0), E::Began).unwrap();
        assert_eq!((lane.state(), lane.due_at()), (LaneState::Standing, None));
        lane.on(at(900), E::Attached).unwrap();
        assert_eq!((lane.state(), lane.due_at()), (LaneState::Playing, Some(at(940))));
        lane.on(at(930), E::Detached).unwrap();
        assert_eq!(ticks(&mut lane, at(9_000)), []);
        lane.on(at(9_000), E::Attached).unwrap();
        assert_eq!((lane.due_at(), lane.late()), (Some(at(9_040)), 0));
    }

    #[test]
    fn a_lane_whose_episode_has_ended_plays_nothing_until_its_owner_acts() {
        for clock in Clock::ALL {
            let mut lane = playing(clock);
            lane.on(at(50), E::Ended).unwrap();
            assert_eq!((lane.state(), ticks(&mut lane, at(9_000))), (LaneState::Over, vec![]));
            lane.on(at(9_000), E::Posted).unwrap();
            assert_eq!(ticks(&mut lane, at(9_000)), [Tick::Acting], "the next episode begins in it");
            lane.on(at(9_000), E::Began).unwrap();
            assert_eq!(lane.state(), LaneState::Playing);
        }
    }

    fn event() -> impl Strategy<Value = ClockEvent> {
        prop_oneof![
            4 => Just(E::Posted),
            2 => Just(E::Answered),
            1 => Just(E::Attached),
            1 => Just(E::Detached),
            1 => Just(E::Began),
            1 => Just(E::Ended),
            1 => Just(E::Pause),
            1 => Just(E::Resume),
            1 => (0_u32..9_000).prop_map(E::Tick),
            1 => (0_u64..500).prop_map(|ms| E::Plan(at(ms))),
            1 => Just(E::EndPlan),
        ]
    }

    proptest! {
        /// Whatever happens: the ticks of a world that plays by time, and those that it missed, are those that time had; and
        /// what it is asked at the time that it names is never in vain for ever.
        #[test]
        fn no_tick_is_played_twice_and_none_that_was_due_is_forgotten(
            script in prop::collection::vec((0_u64..300, event()), 1..80),
            clock in prop::sample::select(Clock::ALL.to_vec()),
        ) {
            let mut lane = playing(clock);
            let (mut now, mut played) = (0, 0_u64);
            for (pause, event) in script {
                now += pause;
                while let Some(tick) = lane.take(at(now)) {
                    played += 1;
                    prop_assert!(!(clock == Clock::Agent && tick == Tick::Thinking));
                    prop_assert!(matches!(lane.state(), LaneState::Playing | LaneState::Paused | LaneState::Over));
                }
                prop_assert!(lane.due_at().is_none_or(|due| due > at(now)));
                let before = lane.clone();
                let refused = lane.on(at(now), event).is_err();
                // A refusal changes nothing but what time does.
                prop_assert!(!refused || lane.state() == before.state());
            }
            if clock == Clock::Realtime {
                // Beside those of calls, at most one in 40 ms.
                prop_assert!(lane.late() <= now / 40);
            }
            prop_assert!(played <= 80 * u64::from(MAX_TICKS) * 2 + now / 40);
        }
    }
}
