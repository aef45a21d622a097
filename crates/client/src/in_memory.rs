//! A step on the calling thread alone: nothing but memory lies between it and the nodes.

use std::time::{Duration, Instant};

use crate::carrier::Carrier;
use crate::driver::{LOOK, Look};
use crate::error::StepError;
use crate::link::{MemoryAnswer, MemoryLink, NoAnswer};
use crate::pool::{AsyncPool, Readiness};
use crate::pool_session::PoolSession;

/// The result of a step in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// The newest frame is there.
    Done,
    /// Not every session is attached by memory: nothing was done.
    NotInMemory,
    /// The result is not yet a frame; [`AsyncPool::finish_step`] goes on.
    CarryOn,
}

impl AsyncPool {
    /// Steps every lane once, if every session is attached by memory: without a runtime, a socket or a system call
    /// while the nodes answer quickly. About every 50 ms, `look` is asked whether the caller wants to leave.
    ///
    /// # Errors
    /// The errors of [`AsyncPool::step`].
    #[inline]
    pub(crate) fn step_in_memory(&mut self, look: Option<&Look>) -> Result<Stepped, StepError> {
        let attached = |link: &MemoryLink| link.is_attached() && !link.is_under_way();
        let leaves =
            |site: &PoolSession| site.session.is_leaving() && site.session.can_leave(self.carrier.now());
        let ready = |site: &PoolSession| site.link.in_place().is_some_and(attached) && !leaves(site);
        if !self.sessions.iter().all(ready) {
            return Ok(Stepped::NotInMemory);
        }
        self.refuse_order()?;
        if !self.in_place {
            self.refuse_batch()?;
        }
        // What lies in place is checked by the node, which refuses it before anything moves: between a look of ours
        // and the node's copy others could change it.
        self.first_done = None;
        self.readiness = Readiness::NeedsReset;
        let Self { sessions, batch, kind, in_place, .. } = self;
        let elements = kind.layout.action.elements();
        for site in sessions.iter_mut() {
            let range = site.lanes().clone();
            let actions =
                (!*in_place).then(|| batch.actions().slice(range.start * elements, range.end * elements));
            site.post_in_memory(actions);
        }
        let mut patience = Patience { timeout: self.timeout, until: None, look };
        for index in 0..self.sessions.len() {
            let Some(link) = self.sessions[index].link.in_place_mut() else { continue };
            match patience.wait(link) {
                Ok(MemoryAnswer::Batch) => {}
                Ok(_) | Err(Ended::Lost | Ended::Long) => return Ok(Stepped::CarryOn),
                Err(Ended::TimedOut) => return Err(self.timed_out()),
                Err(Ended::Interrupted) => return Err(StepError::Interrupted),
            }
        }
        self.take_frames()?;
        Ok(Stepped::Done)
    }

    /// Waits on this thread for the lanes for which [`AsyncPool::recv`] is to wait, if all that are under way are in the
    /// memory of one session, and takes none. About every 50 ms, `look` is asked whether the caller wants to leave.
    ///
    /// # Errors
    /// Only [`StepError::Interrupted`]; the lanes stay outstanding.
    pub(crate) fn wait_in_memory(
        &mut self,
        min: usize,
        timeout: Duration,
        look: Option<&Look>,
    ) -> Result<(), StepError> {
        if self.outstanding() < min.max(1) {
            return Ok(());
        }
        let Some(books) = &mut self.first_done else { return Ok(()) };
        let missing = min.max(1).saturating_sub(books.ready.get_mut().rows.lanes.len());
        let mut busy = self.sessions.iter_mut().zip(&books.queues).filter(|(_, queue)| !queue.is_idle());
        let (Some((site, queue)), None) = (busy.next(), busy.next()) else { return Ok(()) };
        let Some(link) = site.link.in_place_mut() else { return Ok(()) };
        if missing == 0 || queue.has_fresh() || !link.want(missing) {
            return Ok(());
        }
        let mut patience = Patience { timeout, until: None, look };
        match patience.wait(link) {
            Err(Ended::Interrupted) => Err(StepError::Interrupted),
            // The rest is done by who receives.
            Ok(_) | Err(Ended::Lost | Ended::Long | Ended::TimedOut) => Ok(()),
        }
    }

    /// Makes the sessions' frames the pool's frame.
    #[inline]
    fn take_frames(&mut self) -> Result<(), StepError> {
        if !self.in_place {
            let Self { sessions, batch, .. } = self;
            let target = batch.next_frame();
            for site in sessions.iter() {
                if let Some(frame) = site.link.in_place().and_then(MemoryLink::frame) {
                    target.land_frame(site.lanes(), &frame);
                }
            }
        }
        let now = self.carrier.now();
        for site in &mut self.sessions {
            site.note_frame(now);
        }
        let losing = !self.lost.is_empty()
            || self.sessions.iter().any(|site| site.link.in_place().is_some_and(MemoryLink::has_lost));
        let lost_before = if losing { self.lanes_lost() } else { Vec::new() };
        if losing {
            for index in 0..self.sessions.len() {
                let site = &self.sessions[index];
                let lanes = site.lanes().clone();
                let losses = site.link.in_place().map(MemoryLink::lost).unwrap_or_default();
                self.note_losses(&lanes, &losses);
            }
            self.tidy_losses();
        }
        self.readiness = Readiness::Ready;
        self.note_ends(&lost_before);
        Ok(())
    }
}

/// The patience of a call that waits.
struct Patience<'a> {
    timeout: Duration,
    /// The deadline, once there was a wait that was not short.
    until: Option<Instant>,
    look: Option<&'a Look>,
}

/// Why a wait ended without an answer.
enum Ended {
    Lost,
    /// The node takes so long that the coordinator should be asked about it meanwhile.
    Long,
    TimedOut,
    Interrupted,
}

impl Patience<'_> {
    #[inline]
    fn wait(&mut self, link: &mut MemoryLink) -> Result<MemoryAnswer, Ended> {
        // Most answers come while it spins: neither clock nor socket is looked at then.
        match link.wait(None, || true) {
            Err(NoAnswer::Stopped) => self.wait_long(link),
            answered => answered.map_err(|_| Ended::Lost),
        }
    }

    #[cold]
    fn wait_long(&mut self, link: &mut MemoryLink) -> Result<MemoryAnswer, Ended> {
        let began = Instant::now();
        let until = *self.until.get_or_insert(began + self.timeout);
        loop {
            let slice = (Instant::now() + LOOK).min(until);
            match link.wait(Some(slice), || false) {
                Err(NoAnswer::Stopped) => {}
                answered => return answered.map_err(|_| Ended::Lost),
            }
            if self.look.is_some_and(|look| look()) {
                return Err(Ended::Interrupted);
            }
            let now = Instant::now();
            if now >= until {
                return Err(Ended::TimedOut);
            }
            if now >= began + LONG {
                return Err(Ended::Long);
            }
        }
    }
}

/// Time to wait for a node before the coordinator is asked about it.
const LONG: Duration = Duration::from_secs(1);
