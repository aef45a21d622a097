//! A session that its owner steps, and what is measured of it: the costs of its requests, and what is not reported yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_arena::{Request as MemoryRequest, ServingEnd};
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
    /// Time of the last request, if its recording has not been handed over yet.
    unflushed_since: Option<Instant>,
    /// Time at which a request came that waits for lanes.
    waits_since: Option<Instant>,
}

impl MeasuredSession {
    pub(crate) fn new(session: OwnedSession, env: Arc<EnvFigures>) -> Self {
        let costs = Costs::default();
        Self { session, env, costs, stale_since: None, unflushed_since: None, waits_since: None }
    }

    /// Returns whether what was done has not been reported for a while.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_since.is_some_and(|since| since.elapsed() >= TELL_EVERY)
    }

    /// Returns whether everything was reported and handed over.
    pub(crate) const fn is_at_rest(&self) -> bool {
        self.stale_since.is_none() && self.unflushed_since.is_none()
    }

    /// Returns whether the next request takes a bounded and short time: it may be done on the data thread.
    pub(crate) fn is_prompt(&self) -> bool {
        self.session.is_prompt() && self.costs.are_prompt()
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
            MemoryRequest::Lanes => self.env.requests.send.observe(took),
            MemoryRequest::Command => return served,
        }
        self.unflushed_since = Some(began);
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
        self.unflushed_since = Some(now);
        if now.duration_since(*self.stale_since.get_or_insert(now)) >= TELL_EVERY {
            self.tell(told, figures);
        }
        Ok(true)
    }

    /// Returns the time from which the session counts as idle and is looked after, unless a request comes before.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        if self.session.live().is_watched() {
            return Some(Instant::now() + WATCHED_LOOK);
        }
        // Somebody may come to watch it.
        Some(self.unflushed_since.map_or_else(|| Instant::now() + IDLE_LOOK, |since| since + FLUSH_AFTER))
    }

    /// Looks after a session that was asked for nothing for a while: shows watchers what they want, reports what was
    /// done and hands over what was recorded.
    pub(crate) fn idle(&mut self, told: &ReportedTally, figures: &NodeFigures) {
        self.session.attend_watchers();
        if self.unflushed_since.is_none_or(|since| since.elapsed() < FLUSH_AFTER) {
            return;
        }
        self.tell(told, figures);
        self.flush_if_idle();
        if self.unflushed_since.is_some() {
            // It could not be: not before a while has passed again.
            self.unflushed_since = Some(Instant::now());
        }
    }

    /// Reports what was done, if there was anything since the last report.
    #[cold]
    pub(crate) fn tell(&mut self, told: &ReportedTally, figures: &NodeFigures) {
        if self.stale_since.take().is_some()
            // An engine of one thread never hangs; one that panicked is gone.
            && let Ok(stats) = self.session.stats()
        {
            told.update((&stats).into(), figures);
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

    /// Waits for lanes, as [`OwnedSession::gather`]: at most for `within`, with looks at `hastened` between.
    pub(crate) fn gather(
        &mut self,
        within: Duration,
        hastened: impl Fn() -> bool,
        figures: &NodeFigures,
    ) -> Option<Bytes> {
        let until = Instant::now() + within;
        loop {
            let last = hastened();
            let answer = self.session.gather(LANE_LOOK, last);
            if answer.is_some() {
                let began = self.waits_since.take().unwrap_or(until);
                self.note(FrameKind::Send, began, figures);
            }
            if answer.is_some() || last || until <= Instant::now() {
                return answer;
            }
        }
    }

    /// Notes a request of that kind that is answered.
    fn note(&mut self, kind: FrameKind, began: Instant, figures: &NodeFigures) {
        let took = began.elapsed();
        self.costs.note(took);
        self.stale_since.get_or_insert(began);
        self.unflushed_since = Some(began);
        if let Some(code) = self.session.take_refused() {
            figures.refusals.add_owner(code.word());
        }
        match kind {
            FrameKind::Reset => self.env.requests.reset.observe(took),
            FrameKind::Send => self.env.requests.send.observe(took),
            _ => self.env.requests.step.observe(took),
        }
    }
}

impl MeasuredSession {
    pub(crate) fn flush_if_idle(&mut self) {
        let idle = self.unflushed_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER);
        if idle && !self.session.recording().is_some_and(|run| run.is_behind()) {
            let flushed = self.session.flush().is_ok();
            self.unflushed_since = self.unflushed_since.filter(|_| !flushed);
        }
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
        self.last.iter().filter(|&&cost| cost < PROMPT_COST).count() > COSTS / 2
    }
}

/// Returns whether stepping waits for the recorder because the disk cannot follow, or for workers that try to connect: that
/// is no hang.
pub(crate) fn waits_for_others(session: &OwnedSession) -> Waits {
    let (recording, connecting) = (session.recording_watch(), session.connecting().clone());
    Box::new(move || recording.is_behind() || connecting.retries().is_some())
}

/// Interval of the looks whether a request that waits for lanes is to be answered without them.
const LANE_LOOK: Duration = Duration::from_millis(1);

/// Interval at which a session in memory that is watched and not stepped shows what is wanted of it.
const WATCHED_LOOK: Duration = Duration::from_millis(50);

/// Interval at which a session in memory that is not stepped learns that it is watched.
const IDLE_LOOK: Duration = Duration::from_millis(500);

/// Longest cost of batches that are stepped on the data thread: a hand-over to another thread and back costs as much.
const PROMPT_COST: Duration = Duration::from_micros(50);

/// Number of requests whose costs are kept; odd, so that one is in the middle.
const COSTS: usize = 5;

/// Greatest age of the reported counts of a session that is being stepped.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Time without a request after which a session hands over what it has recorded. A chunk is closed early then, which
/// costs a reader some bytes; a trainer that steps more often never pays this.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

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
