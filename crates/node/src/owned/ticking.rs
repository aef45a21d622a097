//! Live lanes of an owner's: they tick by their clocks, between its requests as well.
//!
//! ```text
//! request: step, send --> into the lanes' queues, waits for each lane's next tick --> answered with their newest rows
//!          latest     --> into the queues, if it has any; answered with the newest rows at once
//! no request: whoever has the session ticks it at `tick_at`
//! ```

use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_core::{AutoresetMode, ColumnRef};
use rollhouse_engine::{Punctuality, StepError};
use rollhouse_wire::{FrameKind, Refusal, RefusalCode};

use super::pacing::Pacing;
use super::sending::{UNDER_WAY_RETRY_MS, Wanted};
use super::{FrameRequest, OwnedSession, RequestFault, refusal_of};
use crate::answer::Sidecar;

impl OwnedSession {
    /// Returns whether the lanes are live.
    pub(crate) const fn is_paced(&self) -> bool {
        self.sent.pacing.is_some()
    }

    /// Notes that another owner is there than before. Since the last one went, if it had, the lanes stood.
    pub(crate) fn attend(&mut self, away_since: Option<Instant>) {
        if let Some(Pacing { lanes, zero, .. }) = self.sent.pacing.as_deref_mut() {
            let now = zero.elapsed();
            lanes.attend(false, away_since.map_or(now, |since| since.saturating_duration_since(*zero)));
            lanes.attend(true, now);
        }
    }

    /// Refuses what cannot be asked of live lanes.
    pub(super) fn refuse_paced(&self, kind: FrameKind) -> Option<Refusal> {
        let begun = self.sent.pacing.as_deref().is_none_or(|pacing| pacing.lanes.have_begun());
        if !begun && matches!(kind, FrameKind::Step | FrameKind::Send | FrameKind::Latest) {
            return Some(refusal_of(&StepError::NotReset));
        }
        let what = match kind {
            FrameKind::Latest if !self.is_paced() => {
                "its newest rows are those of its last answer: it has no pace"
            }
            FrameKind::Resume if self.is_paced() => "lanes with a pace do not go on elsewhere",
            FrameKind::Policy | FrameKind::Memory | FrameKind::Play if self.is_paced() => {
                "lanes with a pace play by no policy of their node's"
            }
            _ => return None,
        };
        Some(Refusal::new(RefusalCode::Unsupported, what))
    }

    /// Puts actions into the queues of lanes, for which the request waits.
    pub(super) fn act(
        &mut self,
        number: u32,
        (lanes, actions): (&[u32], ColumnRef<'_>),
        min: Option<usize>,
    ) -> Result<Option<Bytes>, Refusal> {
        self.put(lanes, actions, true)?;
        if let Some(pacing) = &mut self.sent.pacing {
            lanes.clone_into(&mut pacing.awaited);
        }
        self.wait_for(number, Wanted::Ticks { min })
    }

    /// Puts actions into the queues of lanes, whose owner waits for their ticks if it is `awaited`.
    pub(super) fn put(
        &mut self,
        lanes: &[u32],
        actions: ColumnRef<'_>,
        awaited: bool,
    ) -> Result<(), Refusal> {
        let Self { sent, engine, .. } = self;
        let Some(pacing) = sent.pacing.as_deref_mut() else { return Ok(()) };
        let now = pacing.now();
        let lost = |lane: usize| engine.is_lost(lane);
        let posted = pacing.lanes.post((lanes, actions), awaited, now, lost);
        posted.map_err(|error| Refusal::new(RefusalCode::BadRequest, error.to_string()))
    }

    /// Answers a request for the newest rows, after putting its actions into the queues.
    pub(super) fn latest(
        &mut self,
        number: u32,
        request: &FrameRequest,
    ) -> Result<Result<Bytes, Refusal>, RequestFault> {
        if !request.columns.bytes().is_empty() {
            let named = self.named(&request.columns)?;
            if let Err(refusal) = self.put(named.lanes, named.actions, false) {
                return Ok(Err(refusal));
            }
        }
        if let Err(error) = self.tick() {
            return Ok(Err(refusal_of(&error)));
        }
        Ok(Ok(self.paced_batch(number, false)))
    }

    /// Returns when the next tick is due: at once if it was; `None` if none is by itself.
    pub(crate) fn tick_at(&self) -> Option<Instant> {
        let pacing = self.sent.pacing.as_deref()?;
        let due = pacing.zero + pacing.lanes.due_at()?;
        Some(pacing.held_until.map_or(due, |held| held.max(due)))
    }

    /// Returns how punctual the ticks were since this was asked last; `None` if there were none.
    pub(crate) fn take_punctuality(&mut self) -> Option<Punctuality> {
        let punctuality = self.sent.pacing.as_deref_mut()?.lanes.take_punctuality();
        (punctuality != Punctuality::default()).then_some(punctuality)
    }

    /// Plays the ticks that are due, for a while, and takes the rows of late lanes that are done. Returns whether anything has
    /// moved.
    ///
    /// # Errors
    /// If the engine hangs.
    pub(crate) fn tick(&mut self) -> Result<bool, StepError> {
        if !self.is_paced() {
            // Lanes that are under way are those of requests, which take their rows.
            return Ok(false);
        }
        let (began, mut moved) = (Instant::now(), false);
        while self.tick_once()? {
            moved = true;
            if began.elapsed() >= SLICE {
                break;
            }
        }
        Ok(moved)
    }

    fn tick_once(&mut self) -> Result<bool, StepError> {
        // Rows of late lanes that have come meanwhile.
        let mut moved = self.take_ticked()?;
        let Self { sent, engine, .. } = self;
        let Some(pacing) = sent.pacing.as_deref_mut() else { return Ok(false) };
        if pacing.is_held() {
            return Ok(moved);
        }
        let now = pacing.now();
        let (due, actions) = pacing.lanes.due(now, |lane| engine.is_lost(lane));
        if !due.is_empty() {
            self.note_marks(&due, now)?;
            self.post(&due, actions.as_ref()).map_err(|_| StepError::Hung)?;
            moved = true;
            self.take_ticked()?;
        }
        self.lose_paced();
        Ok(moved)
    }

    /// Holds ticks for a moment, so that a command which found one under way finds none when it is asked again.
    pub(super) fn hold_ticks(&mut self, is_held: bool) {
        if let Some(pacing) = self.sent.pacing.as_deref_mut() {
            pacing.held_until = is_held.then(|| Instant::now() + HELD_FOR);
        }
    }

    /// Notes what happened to the clocks of lanes before they tick.
    fn note_marks(&mut self, due: &[u32], now: Duration) -> Result<(), StepError> {
        let Self { sent, engine, .. } = self;
        let Some(pacing) = sent.pacing.as_deref_mut().filter(|_| engine.is_recording()) else {
            return Ok(());
        };
        let (lanes, stood, controls) = pacing.lanes.marks(due, now);
        let last = engine.step_columns().specs().len();
        if lanes.is_empty() || last < 2 {
            return Ok(());
        }
        engine.note(last - 2, Some(&lanes), ColumnRef::I64(&stood))?;
        engine.note(last - 1, Some(&lanes), ColumnRef::U8(&controls))
    }

    /// Takes the rows that are there of lanes that tick. Returns whether there were any.
    fn take_ticked(&mut self) -> Result<bool, StepError> {
        if self.engine.outstanding() == 0 {
            return Ok(false);
        }
        let mut received = match self.engine.recv(1, Duration::ZERO) {
            Err(StepError::TimedOut | StepError::NothingOutstanding { .. }) => return Ok(false),
            received => received?,
        };
        self.show_received(&mut received);
        if let Some(pacing) = self.sent.pacing.as_deref_mut() {
            let now = pacing.now();
            pacing.lanes.take(&received, now);
        }
        Ok(!received.lanes.is_empty())
    }

    /// Ends the episodes of lanes that were lost.
    fn lose_paced(&mut self) {
        let lost = self.look_for_losses();
        if let Some(pacing) = self.sent.pacing.as_deref_mut().filter(|_| !lost.is_empty()) {
            let now = pacing.now();
            pacing.lanes.lose(&lost, now);
        }
    }

    /// Answers a request once enough of the lanes have ticked for which it waits.
    pub(super) fn ticks_done(&mut self, number: u32, min: Option<usize>) -> Result<Option<Bytes>, Refusal> {
        self.tick().map_err(|error| refusal_of(&error))?;
        let Some(pacing) = self.sent.pacing.as_deref_mut() else { return Ok(None) };
        let Some(min) = min else {
            let is_done = pacing.lanes.are_ready();
            return Ok(is_done.then(|| self.paced_batch(number, true)));
        };
        let ready: Vec<u32> = pacing.lanes.ready_of(&pacing.awaited);
        if ready.len() < min.min(pacing.awaited.len()) {
            return Ok(None);
        }
        let now = pacing.now();
        let rows = pacing.lanes.rows(&ready, true, now);
        Ok(Some(self.rows_answer(number, &rows)))
    }

    /// Takes the first rows of episodes that were begun, and answers with all.
    pub(super) fn paced_reset(&mut self, number: u32) -> Result<Bytes, Refusal> {
        self.begin_paced()?;
        // Ends of lanes that were left alone are in the answer to a step.
        let answer = self.paced_batch(number, false);
        if let Some(Pacing { lanes, begins, .. }) = self.sent.pacing.as_deref_mut() {
            lanes.shown(begins);
        }
        Ok(answer)
    }

    /// Takes the first rows of episodes that were begun.
    pub(super) fn begin_paced(&mut self) -> Result<(), Refusal> {
        let Self { sent, engine, .. } = self;
        if let Some(pacing) = sent.pacing.as_deref_mut() {
            let now = pacing.now();
            let frame = engine.frame().map_err(|error| refusal_of(&error))?;
            pacing.lanes.begin(&frame, &pacing.begins, now);
        }
        self.lose_paced();
        Ok(())
    }

    /// Makes the newest rows of all lanes into an answer; owners take note of what went by if it `answers`.
    pub(super) fn paced_batch(&mut self, number: u32, answers: bool) -> Bytes {
        let rows = match self.sent.pacing.as_deref_mut() {
            Some(pacing) => {
                let now = pacing.now();
                pacing.lanes.rows(&[], answers, now)
            }
            None => Default::default(),
        };
        let over = rows.terminated.contains(&1) || rows.truncated.contains(&1);
        let final_obs = self.plan.engine.autoreset == AutoresetMode::SameStep && over;
        let mut answer = self.new_answer();
        answer.all(&rows);
        if final_obs {
            answer.last(&rows);
        }
        let notes = self.notes();
        let sidecar = notes.as_ref().map_or(Sidecar::Nothing, Sidecar::Notes);
        answer.finish(FrameKind::Batch, final_obs, number, &sidecar)
    }
}

/// Time for which a command that found a tick under way is waited for: its owner asks again sooner.
const HELD_FOR: Duration = Duration::from_millis(200);
const _: () = assert!(HELD_FOR.as_millis() as u64 > UNDER_WAY_RETRY_MS);

/// Time for which ticks that are due are played before others have their turn.
const SLICE: Duration = Duration::from_millis(10);
