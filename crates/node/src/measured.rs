//! A session that its owner steps, and what is measured of it: the costs of its requests, and what is not reported yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_arena::{Request as MemoryRequest, ServingEnd};
use rollhouse_replay::limits::{CHUNK_AGE_MS, PACKED_AGE_MS};
use rollhouse_wire::{FrameHeader, FrameKind};

use crate::executor::Waits;
use crate::owned::{FrameRequest, MemoryFault, OwnedSession, RequestFault};
use crate::tally::ReportedTally;
use crate::{EnvFigures, NodeFigures};

#[derive(Debug)]
pub(crate) struct MeasuredSession {
    pub(crate) session: OwnedSession,
    /// The figures of the env, which time the session's requests.
    env: Arc<EnvFigures>,
    costs: Costs,
    /// Time at which the counts were last reported, if anything was stepped since.
    stale_since: Option<Instant>,
    /// Recording of the last requests, if it has not been handed over yet.
    unhanded: Option<Unhanded>,
    /// Time at which a request came that waits for lanes.
    waits_since: Option<Instant>,
}

/// What has become of a request.
pub(crate) enum Progress {
    Answered(Result<Bytes, RequestFault>),
    /// It waits for lanes, which are looked at again by that time; now if there is none.
    Waits(Option<Instant>),
    /// The session had ended before its turn came.
    Ended,
}

/// A recording that has not been handed over.
#[derive(Debug, Clone, Copy)]
struct Unhanded {
    /// Time of the last request.
    since: Instant,
    /// Time at which it is handed over unless another request comes before.
    at: Instant,
}

impl Unhanded {
    fn new(since: Instant) -> Self {
        Self { since, at: since + HAND_OVER_AFTER }
    }
}

impl MeasuredSession {
    pub(crate) fn new(session: OwnedSession, env: Arc<EnvFigures>) -> Self {
        let costs = Costs::default();
        Self { session, env, costs, stale_since: None, unhanded: None, waits_since: None }
    }

    /// Returns whether what was done has not been reported for a while.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_since.is_some_and(|since| since.elapsed() >= TELL_EVERY)
    }

    /// Returns whether the next request takes a bounded and short time: it may be done on the data thread.
    pub(crate) fn is_prompt(&self) -> bool {
        self.session.is_prompt() && self.costs.are_prompt()
    }

    /// Returns whether what is done for all lanes at once, such as ending their episodes, is short enough for the thread that
    /// asks for it: then it takes a few hundred microseconds at most.
    pub(crate) fn is_short(&self) -> bool {
        self.session.is_prompt() && self.session.lanes() <= SHORT_LANES
    }

    /// Returns the session.
    pub(crate) const fn session(&mut self) -> &mut OwnedSession {
        &mut self.session
    }

    /// Serves a request by memory, as [`OwnedSession::serve`]. Reports to `told` now and then what was done.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        end: &mut ServingEnd,
        request: MemoryRequest,
        told: &ReportedTally,
        figures: &NodeFigures,
        alive: impl FnMut() -> bool,
    ) -> Result<(), MemoryFault> {
        let began = Instant::now();
        let served = self.session.serve(end, request, alive);
        let took = began.elapsed();
        match request {
            MemoryRequest::Step => self.env.requests.step.observe(took),
            MemoryRequest::Reset => self.env.requests.reset.observe(took),
            MemoryRequest::Lanes | MemoryRequest::Latest => self.env.requests.send.observe(took),
            MemoryRequest::Command => return served,
        }
        self.unhanded = Some(Unhanded::new(began));
        if let Some(code) = self.session.take_refused() {
            figures.refusals.add_owner(code.word());
        }
        if began.duration_since(*self.stale_since.get_or_insert(began)) >= TELL_EVERY {
            self.tell(told, figures);
        }
        served
    }

    /// Answers lanes that are done, as [`OwnedSession::answer_done`].
    pub(crate) fn answer_done(
        &mut self,
        end: &mut ServingEnd,
        patience: Duration,
        told: &ReportedTally,
        figures: &NodeFigures,
    ) -> Result<bool, MemoryFault> {
        if !self.session.answer_done(end, patience)? {
            return Ok(false);
        }
        let now = Instant::now();
        self.unhanded = Some(Unhanded::new(now));
        if now.duration_since(*self.stale_since.get_or_insert(now)) >= TELL_EVERY {
            self.tell(told, figures);
        }
        Ok(true)
    }

    /// Has live lanes tick that are due, as [`OwnedSession::tick_in_memory`].
    pub(crate) fn tick_in_memory(
        &mut self,
        end: &mut ServingEnd,
        told: &ReportedTally,
        figures: &NodeFigures,
    ) -> Result<(), MemoryFault> {
        if self.session.tick_in_memory(end)? {
            self.note_ticks();
            let now = Instant::now();
            self.unhanded = Some(Unhanded::new(now));
            if now.duration_since(*self.stale_since.get_or_insert(now)) >= TELL_EVERY {
                self.tell(told, figures);
            }
        }
        Ok(())
    }

    /// Notes how punctual ticks were that have been played meanwhile.
    fn note_ticks(&mut self) {
        let Some(ticks) = self.session.take_punctuality() else { return };
        ticks.lateness.iter().for_each(|&lateness| self.env.live.lateness.observe(lateness));
        self.env.live.missed.add(ticks.missed);
    }

    /// Returns the time at which a session in memory is looked at unless a request comes before: when it counts as idle, a
    /// live lane is due, or one may be done that is under way.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let idle = self.idle_at();
        if !self.session.is_paced() {
            return idle;
        }
        [idle, self.session.tick_at(), self.tick_done_at()].into_iter().flatten().min()
    }

    /// Returns the time from which the session counts as idle and is looked after, unless a request comes before.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        if self.session.live().is_watched() {
            return Some(Instant::now() + WATCHED_LOOK);
        }
        // Somebody may come to watch it.
        Some(self.unhanded.map_or_else(|| Instant::now() + IDLE_LOOK, |unhanded| unhanded.at))
    }

    /// Looks after a session that was asked for nothing for a while: shows watchers what they want, reports what was
    /// done and hands over what was recorded.
    pub(crate) fn idle(&mut self, told: &ReportedTally, figures: &NodeFigures) {
        self.session.attend_watchers();
        if self.unhanded.is_none_or(|unhanded| unhanded.at > Instant::now()) {
            return;
        }
        self.tell(told, figures);
        self.hand_over_if_idle();
    }

    /// Reports what was done, if there was anything since the last report.
    #[cold]
    pub(crate) fn tell(&mut self, told: &ReportedTally, figures: &NodeFigures) {
        if self.stale_since.take().is_some()
            // An engine of one thread never hangs; one that panicked is gone.
            && let Ok(stats) = self.session.stats()
        {
            told.update((&stats).into(), figures);
            told.set_plays(self.session.plays(), figures);
        }
    }

    /// Carries out a request, as [`OwnedSession::begin`].
    pub(crate) fn begin(
        &mut self,
        header: FrameHeader,
        request: &FrameRequest,
        figures: &NodeFigures,
    ) -> Result<Option<Bytes>, RequestFault> {
        let began = Instant::now();
        let answer = self.session.begin(header, request);
        if let Ok(None) = answer {
            self.waits_since = Some(began);
        } else {
            self.note(header.kind, began, figures);
        }
        answer
    }

    /// Collects lanes of a request of that kind that are done, and answers it if they are enough. Lanes that cannot be slept on
    /// are waited for a moment, and so are those that mostly finish in less, if nobody else wants the thread (`idle`): to take
    /// one again costs as much. Meanwhile watchers are shown what they want.
    pub(crate) fn collect(
        &mut self,
        kind: FrameKind,
        (hastened, idle): (bool, bool),
        figures: &NodeFigures,
    ) -> Progress {
        let sleeps = self.session.descriptor().is_some();
        let mut patience = match sleeps {
            true if idle && self.costs.are_below(QUICK_COST) => QUICK_COST,
            true => Duration::ZERO,
            false if self.session.is_late() => TURN,
            false => Duration::ZERO,
        };
        let mut until = None;
        for _ in 0..LOOKS {
            if let Some(answer) = self.gather(kind, (patience, hastened), figures) {
                return Progress::Answered(Ok(answer));
            }
            self.session.attend_watchers();
            until = self.session.arm();
            if until.is_some() || !sleeps {
                break;
            }
            patience = Duration::ZERO;
        }
        Progress::Waits(until)
    }

    /// Waits for the lanes of a request of that kind, as [`OwnedSession::gather`].
    pub(crate) fn gather(
        &mut self,
        kind: FrameKind,
        (patience, hastened): (Duration, bool),
        figures: &NodeFigures,
    ) -> Option<Bytes> {
        let answer = self.session.gather(patience, hastened)?;
        let began = self.waits_since.take().unwrap_or_else(Instant::now);
        self.note(kind, began, figures);
        Some(answer)
    }

    /// Notes a request of that kind that is answered.
    fn note(&mut self, kind: FrameKind, began: Instant, figures: &NodeFigures) {
        let took = began.elapsed();
        self.costs.note(took);
        self.note_ticks();
        self.stale_since.get_or_insert(began);
        self.unhanded = Some(Unhanded::new(began + took));
        if let Some(code) = self.session.take_refused() {
            figures.refusals.add_owner(code.word());
        }
        if let Some((env, policy, lags)) = self.session.take_lags() {
            figures.envs.policies.of(&env, &policy).observe(&lags);
        }
        match kind {
            FrameKind::Reset => self.env.requests.reset.observe(took),
            FrameKind::Send => self.env.requests.send.observe(took),
            _ => self.env.requests.step.observe(took),
        }
    }
}

impl MeasuredSession {
    /// Returns when what was recorded is to be handed over unless a request comes before; `None` if nothing waits for that.
    pub(crate) fn hand_over_at(&self) -> Option<Instant> {
        let unhanded = self.unhanded.filter(|_| self.session.recording().is_some())?;
        Some(unhanded.at)
    }

    /// Returns when the session is to be looked after unless a request comes before; `None` if nothing waits for that.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        [self.session.tick_at(), self.tick_done_at(), self.hand_over_at()].into_iter().flatten().min()
    }

    /// Returns when it is looked whether ticks under way are done; `None` if none is.
    fn tick_done_at(&self) -> Option<Instant> {
        let is_under_way = self.session.is_paced() && self.session.has_under_way();
        is_under_way.then(|| Instant::now() + TICK_LOOK)
    }

    /// Has live lanes tick that are due, and hands over what was recorded.
    pub(crate) fn look_after(&mut self) {
        // An engine that hangs says so to the next request.
        if self.session.tick().unwrap_or(false) {
            self.note_ticks();
            let now = Instant::now();
            self.stale_since.get_or_insert(now);
            self.unhanded = Some(Unhanded::new(now));
        }
        self.hand_over_if_idle();
    }

    /// Hands over what was recorded, if nothing was asked for long enough and the recorder follows.
    pub(crate) fn hand_over_if_idle(&mut self) {
        // Most sessions have nothing to hand over: looking at those has to cost little.
        let Some(Unhanded { since, at }) = self.unhanded else { return };
        let now = Instant::now();
        if at > now {
            return;
        }
        let behind = self.session.recording().is_some_and(|run| run.is_behind());
        let stays = behind || self.session.hand_over(now - since).unwrap_or(true);
        // What could not be handed over, or is not yet to be, is looked at again.
        let at = (now + HAND_OVER_AFTER).max(since + HAND_OVER_REST_AFTER);
        self.unhanded = stays.then_some(Unhanded { since, at });
    }
}

/// The costs of the last requests. They are measured by the clock: on a busy machine a thread may lose its core in the
/// middle of the cheapest batch, which says nothing of the next one. So the median of several counts.
#[derive(Debug)]
struct Costs {
    last: [Duration; COSTS],
    next: usize,
}

impl Default for Costs {
    fn default() -> Self {
        // Nobody knows yet: at first a worker does it.
        Self { last: [PROMPT_COST; COSTS], next: 0 }
    }
}

impl Costs {
    fn note(&mut self, cost: Duration) {
        self.last[self.next] = cost;
        self.next = (self.next + 1) % COSTS;
    }

    /// Returns whether most were cheap enough for the data thread.
    fn are_prompt(&self) -> bool {
        self.are_below(PROMPT_COST)
    }

    /// Returns whether most were below that.
    fn are_below(&self, limit: Duration) -> bool {
        self.last.iter().filter(|&&cost| cost < limit).count() > COSTS / 2
    }
}

/// Returns whether stepping waits for the recorder because the disk cannot follow, or for workers that try to connect: that
/// is no hang.
pub(crate) fn waits_for_others(session: &OwnedSession) -> Waits {
    let (recording, connecting) = (session.recording_watch(), session.connecting().clone());
    Box::new(move || recording.is_behind() || connecting.retries().is_some())
}

/// Time after which it is looked whether ticks are done of live lanes that finish when they finish.
const TICK_LOOK: Duration = Duration::from_millis(1);

/// Interval at which a session in memory that is watched and not stepped shows what is wanted of it.
const WATCHED_LOOK: Duration = Duration::from_millis(50);

/// Interval at which a session in memory that is not stepped learns that it is watched.
const IDLE_LOOK: Duration = Duration::from_millis(500);

/// Longest cost of batches that are stepped on the data thread: a hand-over to another thread and back costs as much.
const PROMPT_COST: Duration = Duration::from_micros(50);

/// Longest cost of requests for whose lanes the worker that has posted them waits.
const QUICK_COST: Duration = Duration::from_millis(1);

/// Most lanes for all of which something is done on the thread that asks for it.
const SHORT_LANES: usize = 1_024;

/// Most looks at lanes of which some may be done, before it is the turn of others.
const LOOKS: usize = 8;

/// Time for which a worker waits for lanes without a descriptor, before it is the turn of others.
const TURN: Duration = Duration::from_millis(5);

/// Number of requests whose costs are kept; odd, so that one is in the middle.
const COSTS: usize = 5;

/// Greatest age of the reported counts of a session that is being stepped.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Time without a request after which a session hands over the episodes that have ended, and what else the next row would
/// close a chunk of.
const HAND_OVER_AFTER: Duration = Duration::from_millis(CHUNK_AGE_MS);

/// Time without a request after which it hands over the rest: chunks of images in which no episode has ended.
const HAND_OVER_REST_AFTER: Duration = Duration::from_millis(PACKED_AGE_MS);

#[cfg(test)]
mod tests {
    use rollhouse_replay::testing::DrivenRecorder;

    use super::*;
    use crate::owned::tests::{fall_behind, recorded, reset, step, waiting_for_the_disk};

    /// A session that has recorded one step of two lanes, `ago` before now.
    fn paused(driven: &DrivenRecorder, ago: Duration) -> MeasuredSession {
        let mut session = MeasuredSession::new(recorded(driven), Arc::default());
        reset(&mut session.session, 1);
        step(&mut session.session, 2, &[0, 1]);
        session.unhanded = Some(Unhanded::new(Instant::now() - ago));
        session
    }

    fn steps_written(driven: &mut DrivenRecorder) -> u64 {
        driven.write_out(Duration::ZERO);
        driven.recorder().status().recorded.steps
    }

    #[test]
    fn what_was_recorded_is_handed_over_once_the_owner_has_paused_and_not_before() {
        let (_, mut driven) = waiting_for_the_disk();
        let mut session = paused(&driven, Duration::ZERO);
        assert!(session.hand_over_at().is_some_and(|at| at <= Instant::now() + HAND_OVER_AFTER));
        session.hand_over_if_idle();
        assert!(session.hand_over_at().is_some());
        assert_eq!(steps_written(&mut driven), 0);
        let mut session = paused(&driven, HAND_OVER_AFTER);
        session.hand_over_if_idle();
        assert_eq!((session.hand_over_at(), steps_written(&mut driven)), (None, 2));
    }

    #[test]
    fn a_session_whose_recorder_is_behind_is_looked_at_again_and_waits_for_nothing() {
        let (_, driven) = waiting_for_the_disk();
        let mut session = MeasuredSession::new(recorded(&driven), Arc::default());
        fall_behind(&mut session.session);
        session.unhanded = Some(Unhanded::new(Instant::now() - HAND_OVER_AFTER));
        session.hand_over_if_idle();
        assert!(session.hand_over_at().is_some_and(|at| at > Instant::now()));
    }

    #[test]
    fn two_dear_requests_among_five_keep_a_session_prompt_and_three_do_not() {
        let (cheap, dear) = (PROMPT_COST / 10, PROMPT_COST * 100);
        let mut costs = Costs::default();
        assert!(!costs.are_prompt(), "nobody knows yet");
        (0..3).for_each(|_| costs.note(cheap));
        assert!(costs.are_prompt());
        (0..2).for_each(|_| costs.note(cheap));
        (0..2).for_each(|_| costs.note(dear));
        assert!(costs.are_prompt());
        costs.note(dear);
        assert!(!costs.are_prompt());
        (0..2).for_each(|_| costs.note(cheap));
        assert!(!costs.are_prompt(), "two cheap ones are not most");
        costs.note(cheap);
        assert!(costs.are_prompt());
    }
}
