//! Reset and step in lockstep: one request per session, all written before any answer is waited for, one batch.

use std::ops::Range;

use bytes::Bytes;
use rollhouse_arena::Frame;
use rollhouse_core::limits::MAX_LANES;
use rollhouse_core::{AutoresetMode, ColumnData, Interruption, OptionValue, SeedSchedule};
use rollhouse_engine::{OptionsError, Reset, StepError as Rules};
use rollhouse_wire::limits::{MAX_CONTROL_BYTES, MAX_SIDECAR_BYTES};
use rollhouse_wire::{FrameKind, LostLane, ResetLanes, control};
use tokio::time::Instant;

use crate::batch::column;
use crate::carrier::Carrier;
use crate::error::StepError;
use crate::join::{Part, run_together};
use crate::log::GivenLane;
use crate::pool::{AsyncPool, Readiness};
use crate::pool_session::{PoolSession, Way};
use crate::session::{RequestBody, Trouble};

/// The result of a session's request: the lanes that are lost, or why there is no answer.
type Taken = Result<Vec<LostLane>, Trouble>;

impl AsyncPool {
    /// Begins episodes. Episodes that are open in those lanes end as `cancelled`; lanes that were sent and not
    /// received are forgotten.
    ///
    /// # Errors
    /// See [`StepError`].
    pub async fn reset(&mut self, reset: &Reset) -> Result<Frame<'_>, StepError> {
        let lanes = self.lanes();
        for (what, given) in [("seeds", reset.seeds.len()), ("mask flags", reset.mask.len())] {
            if given != 0 && given != lanes {
                return Err(Rules::Length { what, given, wanted: lanes }.into());
            }
        }
        if matches!(self.kind.seeds, SeedSchedule::PerEpisode { .. })
            && reset.seeds.iter().any(Option::is_some)
        {
            return Err(Rules::SeedsScheduled.into());
        }
        for (name, values) in &reset.options {
            if values.len() != 1 && values.len() != lanes {
                let (name, given) = (name.clone(), values.len());
                return Err(Rules::Options(OptionsError::Length { name, given, lanes }).into());
            }
        }
        let parts = self.sessions.iter().map(|site| reset_of(reset, site.lanes()));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let partial = !reset.mask.is_empty();
        if partial {
            // The others keep their state, which has to be known.
            self.check_ready()?;
            self.forget_under_way();
        }
        self.first_done = None;
        if !reset.options.is_empty() {
            self.give_options(reset).await?;
        }
        for site in &mut self.sessions {
            site.session.give(given_of(reset, &site.lanes().clone()));
        }
        let deadline = self.deadline();
        self.settle_sessions(deadline, !partial).await;
        let ready = std::mem::replace(&mut self.readiness, Readiness::NeedsReset);
        let Self { sessions, carrier, .. } = self;
        let way = Way { carrier, deadline: carrier.at(deadline) };
        for (site, part) in sessions.iter_mut().zip(parts).filter(|(site, _)| !site.session.is_out()) {
            site.ask(part, &way);
        }
        let answered = self.answers(deadline, ready).await;
        for site in &mut self.sessions {
            // What lanes in memory were given before has not begun, and may with any episode.
            let unanswered = site.session.take_unanswered();
            if unanswered && answered.is_err() && site.link.in_place().is_some() {
                site.session.forget();
            }
        }
        answered?;
        let begun = |lane: usize| reset.mask.get(lane).copied().unwrap_or(true);
        self.over.iter_mut().enumerate().filter(|(lane, _)| begun(*lane)).for_each(|(_, over)| *over = 0);
        Ok(self.newest())
    }

    /// Steps every lane once with the actions in [`AsyncPool::actions`].
    ///
    /// # Errors
    /// See [`StepError`]; nothing has moved, unless the error says so.
    pub async fn step(&mut self) -> Result<Frame<'_>, StepError> {
        self.refuse_order()?;
        self.refuse_batch()?;
        self.first_done = None;
        let lost_before = self.lanes_lost();
        let deadline = self.deadline();
        self.settle_sessions(deadline, false).await;
        let ready = std::mem::replace(&mut self.readiness, Readiness::NeedsReset);
        let Self { sessions, batch, kind, in_place, carrier, .. } = self;
        let way = Way { carrier, deadline: carrier.at(deadline) };
        let elements = kind.layout.action.elements();
        for site in sessions.iter_mut().filter(|site| !site.session.is_out()) {
            let range = site.lanes();
            let columns = match site.link.in_place().filter(|_| *in_place) {
                Some(link) => link.columns(),
                None => column(batch.actions().slice(range.start * elements, range.end * elements)),
            };
            site.ask(RequestBody { kind: FrameKind::Step, columns, sidecar: Bytes::new() }, &way);
        }
        self.answers(deadline, ready).await?;
        self.note_ends(&lost_before);
        Ok(self.newest())
    }

    /// Finishes a step that was begun in memory.
    pub(crate) async fn finish_step(&mut self) -> Result<(), StepError> {
        let (deadline, lost_before) = (self.deadline(), self.lanes_lost());
        match self.answers(deadline, Readiness::Ready).await {
            // What was not looked at before it was posted is named as everywhere else.
            Err(refused @ StepError::Refused { .. }) => {
                self.refuse_batch()?;
                Err(refused)
            }
            answered => answered.map(|()| self.note_ends(&lost_before)),
        }
    }

    /// Notes which episodes are over after a step.
    pub(crate) fn note_ends(&mut self, lost_before: &[usize]) {
        if self.kind.autoreset == AutoresetMode::SameStep {
            self.over.fill(0);
        } else {
            let mut over = std::mem::take(&mut self.over);
            let frame = self.newest();
            let flags = frame.terminated().iter().zip(frame.truncated());
            over.iter_mut().zip(flags).for_each(|(over, (a, b))| *over = (a | b) & 1);
            self.over = over;
        }
        // A lane that is back begins an episode before it is stepped, by itself or by a reset.
        for &lane in lost_before {
            let reset = self.newest().reset()[lane] & 1;
            self.over[lane] = 1 - reset;
        }
    }

    pub(crate) fn lanes_lost(&self) -> Vec<usize> {
        (0..self.lost.len()).filter(|&lane| self.lost[lane].is_some()).collect()
    }

    /// Refuses a step that comes out of its turn.
    #[inline]
    pub(crate) fn refuse_order(&self) -> Result<(), StepError> {
        self.check_ready()?;
        if let Some(lane) = self.first_done.as_ref().and_then(|books| books.first_outstanding()) {
            return Err(Rules::LaneOutstanding { lane }.into());
        }
        if self.kind.autoreset == AutoresetMode::Disabled
            && let Some(lane) =
                (0..self.lanes()).find(|&lane| self.over[lane] != 0 && self.loss(lane).is_none())
        {
            return Err(Rules::NeedsReset { lane }.into());
        }
        Ok(())
    }

    /// Refuses a batch with values that are not actions.
    pub(crate) fn refuse_batch(&mut self) -> Result<(), StepError> {
        let Self { sessions, batch, in_place, kind, .. } = self;
        let link =
            if *in_place { sessions.first_mut().and_then(|site| site.link.in_place_mut()) } else { None };
        let mut column = link.and_then(|link| link.actions_mut()).unwrap_or_else(|| batch.actions_mut());
        if kind.check.all_good(column.reborrow().as_ref()) {
            return Ok(());
        }
        let actions = ColumnData::from(column.as_ref());
        match self.kind.check.first_bad(actions.as_ref(), |lane| !self.ignores_action(lane)) {
            Some(bad) => Err(Rules::Action(bad).into()),
            None => Ok(()),
        }
    }

    /// Waits for the answers of all sessions that were asked, and makes them the next frame; the pool is ready then. If
    /// nothing happened but that a node refused, the pool is as `ready` as it was before.
    pub(crate) async fn answers(&mut self, deadline: Instant, ready: Readiness) -> Result<(), StepError> {
        if self.in_place
            && let Some(done) = self.answer_in_place(deadline, ready).await
        {
            return done;
        }
        let reports = self.reports_losses();
        let Self { sessions, batch, carrier, kind, alarm, .. } = self;
        let way = &Way { carrier, deadline: carrier.at(deadline) };
        let (target, bools) = (batch.next_frame(), &kind.bools);
        let mut taken: Vec<Option<Taken>> = Vec::new();
        let waited = match sessions.as_mut_slice() {
            [site] if !site.session.is_out() => {
                let answer = site.take_batch(way, &target, bools);
                let waited = alarm.within(deadline, answer).await;
                waited.map(|result| taken.push(Some(result)))
            }
            sites => {
                taken.resize_with(sites.len(), || None);
                let target = &target;
                let parts = sites.iter_mut().zip(&mut taken).filter(|(site, _)| !site.session.is_out());
                let parts = parts.map(|(site, slot)| {
                    Box::pin(async move { *slot = Some(site.take_batch(way, target, bools).await) })
                        as Part<'_>
                });
                alarm.within(deadline, run_together(parts.collect(), || false)).await
            }
        };
        let unreported = |site: &PoolSession| site.session.gone().is_some_and(|gone| !gone.reported);
        let news = reports && sessions.iter().any(unreported);
        if waited.is_some() && (news || taken.iter().any(|taken| matches!(taken, Some(Ok(_))))) {
            for site in sessions.iter_mut().filter(|site| site.session.gone().is_some()) {
                let now = site.session.report_gone();
                target.stand_still(site.lanes(), now);
            }
        }
        drop(target);
        if waited.is_none() {
            return Err(self.timed_out());
        }
        self.judge(taken, ready, news)
    }

    /// Does the same as [`AsyncPool::answers`] for the one session whose memory the frames lie in. `None` if the
    /// session is gone: frames are the pool's own from then on, and the request goes on as that of any other session.
    async fn answer_in_place(
        &mut self,
        deadline: Instant,
        ready: Readiness,
    ) -> Option<Result<(), StepError>> {
        let Self { sessions, carrier, alarm, .. } = self;
        let (way, site) = (Way { carrier, deadline: carrier.at(deadline) }, sessions.first_mut()?);
        let Some(answer) = alarm.within(deadline, site.answer_here(&way)).await else {
            return Some(Err(self.timed_out()));
        };
        let Some(answer) = answer else {
            self.leave_lost_memory();
            return None;
        };
        let taken = answer.map(|_| site.note_frame(carrier.now()));
        Some(self.judge(vec![Some(taken)], ready, false))
    }

    /// Judges the results of all sessions' requests together, and notes what they mean for the pool.
    pub(crate) fn judge(
        &mut self,
        taken: Vec<Option<Taken>>,
        ready: Readiness,
        news: bool,
    ) -> Result<(), StepError> {
        let (mut moved, mut error) = (false, None);
        for (index, taken) in taken.into_iter().enumerate() {
            let PoolSession { session, .. } = &self.sessions[index];
            let lanes = self.sessions[index].lanes().clone();
            match taken {
                Some(Ok(losses)) => {
                    moved = true;
                    self.note_losses(&lanes, &losses);
                }
                None | Some(Err(Trouble::Gone)) => {
                    let outcome = session.gone().map_or(Interruption::NodeLost, |gone| gone.outcome);
                    self.note_gone(&lanes, outcome);
                }
                Some(Err(Trouble::Refused(refusal))) => {
                    let node = session.grant().node.clone();
                    error.get_or_insert(StepError::Refused { node, refusal });
                }
                Some(Err(Trouble::TimedOut)) => {
                    error.get_or_insert(StepError::TimedOut(session.unanswered(self.timeout)));
                }
            }
        }
        self.tidy_losses();
        if let Some(error) = error {
            if !moved && matches!(error, StepError::Refused { .. }) {
                self.readiness = ready;
            }
            return Err(error);
        }
        // That all are lost is told by their rows first, if it is to be reported. Nothing has moved then.
        if let Some(error) = self.all_lost().filter(|_| !news) {
            self.readiness = ready;
            return Err(error);
        }
        self.readiness = Readiness::Ready;
        Ok(())
    }

    pub(crate) fn timed_out(&self) -> StepError {
        let waiting = self.sessions.iter().find(|site| site.session.is_busy());
        let first = waiting.or(self.sessions.first());
        match first {
            Some(site) => StepError::TimedOut(site.session.unanswered(self.timeout)),
            None => StepError::AllLost { reason: "the pool has no session".to_owned() },
        }
    }
}

/// Encodes the part of a reset that is about `lanes`.
///
/// # Errors
/// If its options do not fit a sidecar.
fn reset_of(reset: &Reset, lanes: &Range<usize>) -> Result<RequestBody, StepError> {
    let options = reset.options.iter().map(|(name, values)| {
        let part = if values.len() == 1 { values } else { &values[lanes.clone()] };
        (name.clone(), part.to_vec())
    });
    let part = ResetLanes {
        seeds: reset.seeds.get(lanes.clone()).map(<[_]>::to_vec).unwrap_or_default(),
        mask: reset.mask.get(lanes.clone()).unwrap_or_default().iter().map(|&flag| u8::from(flag)).collect(),
        options: options.collect(),
        kept: !reset.options.is_empty(),
    };
    let sidecar = sidecar(&part).ok_or(Rules::Options(OptionsError::TooLong { limit: MAX_SIDECAR_BYTES }))?;
    Ok(RequestBody { kind: FrameKind::Reset, columns: Bytes::new(), sidecar })
}

/// Returns the options that a reset gives to each of `lanes` that it resets.
fn given_of(reset: &Reset, lanes: &Range<usize>) -> Vec<GivenLane> {
    if reset.options.is_empty() {
        return Vec::new();
    }
    let is_reset = |lane: &usize| reset.mask.get(*lane).copied().unwrap_or(true);
    let of_lane = |lane: usize| {
        let value = |values: &[OptionValue]| values[if values.len() == 1 { 0 } else { lane }].clone();
        let options = reset.options.iter().map(|(name, values)| (name.clone(), value(values)));
        ((lane - lanes.start) as u32, options.collect())
    };
    lanes.clone().filter(is_reset).map(of_lane).collect()
}

/// Encodes the lanes of a reset; `None` if they are too long, which only options can make them.
fn sidecar(part: &ResetLanes) -> Option<Bytes> {
    /// A seed takes 9 bytes and a flag 1; what is around them less than 64.
    const LARGEST: usize = MAX_LANES * 10 + 64;
    const { assert!(LARGEST <= MAX_CONTROL_BYTES && MAX_CONTROL_BYTES <= MAX_SIDECAR_BYTES) };
    let mut bytes = Vec::new();
    control::encode(part, &mut bytes).ok()?;
    Some(Bytes::from(bytes).slice(size_of::<u32>()..))
}
