//! Live lanes whose owner has mapped the session's memory.
//!
//! ```text
//! trainer: step   --> into the queues of all lanes --> answered with a frame once each has ticked
//!          lanes  --> into their queues            --> each is answered once it has ticked
//!          latest --> into the queues, if it has any --> answered with a frame at once
//! ```
//!
//! The engine steps its lanes in memory of its own, since the newest rows with what went by are no frame of one step: they are
//! copied into the frames that the trainer reads.

use std::sync::atomic::Ordering;

use rollhouse_arena::{ArenaIdent, BatchColumns, FrameNotes, Request, ServingEnd, SharedArena};
use rollhouse_core::{AutoresetMode, ColumnRef};
use rollhouse_engine::Reset;
use rollhouse_wire::{FrameKind, Refusal};

use super::memory::{MemoryFault, note};
use super::mirror::Mirror;
use super::pacing::Pacing;
use super::{OwnedSession, refusal_of};

impl OwnedSession {
    /// Makes the memory of live lanes, whose rows are copied there.
    pub(super) fn mirror_lanes(&mut self, ident: ArenaIdent) -> Result<SharedArena, Refusal> {
        let final_obs = self.plan.engine.autoreset == AutoresetMode::SameStep;
        let columns = BatchColumns::of(&self.plan.entry.spec().clone().paced(), final_obs);
        let (memory, mirror) = Mirror::new(&columns, self.plan.engine.lanes, ident)?;
        if let Some(pacing) = &mut self.sent.pacing {
            pacing.mirror = Some(mirror);
        }
        Ok(memory)
    }

    /// Returns the number of the newest frame in memory.
    pub(super) fn frames_in_memory(&self) -> u64 {
        let mirror = self.sent.pacing.as_deref().and_then(|pacing| pacing.mirror.as_ref());
        mirror.map_or_else(|| self.engine.frames(), Mirror::number)
    }

    /// Does what the owner of live lanes asks for by memory. A step is answered later.
    pub(super) fn serve_live(&mut self, end: &mut ServingEnd, request: Request) -> Result<(), MemoryFault> {
        let kind = match request {
            Request::Reset => FrameKind::Reset,
            Request::Latest => FrameKind::Latest,
            _ => FrameKind::Step,
        };
        let done = match self.waits_for_disk().or_else(|| self.refuse_paced(kind)) {
            Some(refusal) => Err(refusal),
            None if request == Request::Reset => self.reset_live(end),
            None => self.put_live(end, request),
        };
        match done {
            Ok(()) if request == Request::Step => {
                // From here on the request counts: an owner that attaches again does not give its actions twice.
                self.answer.next_in_memory();
                end.hold();
                self.answer_ticked(end).map(drop)
            }
            done => {
                self.release_lanes(end)?;
                self.answer.next_in_memory();
                self.answer_live(end, done, false);
                if request == Request::Reset
                    && let Some(Pacing { lanes, begins, .. }) = self.sent.pacing.as_deref_mut()
                {
                    lanes.shown(begins);
                }
                Ok(())
            }
        }
    }

    fn reset_live(&mut self, end: &ServingEnd) -> Result<(), Refusal> {
        let asked = end.reset_columns();
        let seeded = asked.seeds.iter().any(Option::is_some);
        let mask = if asked.mask.contains(&false) { asked.mask } else { Vec::new() };
        if let Some(pacing) = &mut self.sent.pacing {
            pacing.begin(&mask);
        }
        let seeds = if seeded { asked.seeds } else { Vec::new() };
        self.begin_episodes(&Reset { seeds, mask, ..Reset::default() }, false)?;
        self.finish_reset()?;
        self.begin_paced()
    }

    /// Puts what the owner has written into the queues: of all lanes for a step, else of those that it names.
    fn put_live(&mut self, end: &ServingEnd, request: Request) -> Result<(), Refusal> {
        let is_step = request == Request::Step;
        let lanes = if is_step { (0..self.lanes() as u32).collect() } else { end.acting_lanes() };
        if !lanes.is_empty() {
            let actions = end.copy_actions_of(&lanes);
            self.put(&lanes, actions.as_ref(), is_step)?;
        }
        // What is due by now is in the rows.
        if is_step { Ok(()) } else { self.tick().map(drop).map_err(|error| refusal_of(&error)) }
    }

    /// Puts the actions of lanes that the owner has sent into their queues.
    pub(super) fn send_live(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<(), Refusal> {
        self.put(lanes, actions, true)?;
        if let Some(mirror) = self.mirror() {
            mirror.sent.extend(lanes);
        }
        Ok(())
    }

    fn mirror(&mut self) -> Option<&mut Mirror> {
        self.sent.pacing.as_deref_mut()?.mirror.as_mut()
    }

    /// Has live lanes tick that are due, and answers the owner what it waits for. Returns whether anything has moved.
    ///
    /// # Errors
    /// If the owner breaks the layout's rules.
    pub(crate) fn tick_in_memory(&mut self, end: &mut ServingEnd) -> Result<bool, MemoryFault> {
        match self.tick() {
            // Lanes that were lost meanwhile, or ticked for a command, are answered as well.
            Ok(moved) => self.answer_ticked(end).map(|()| moved),
            Err(error) => {
                if end.is_held() {
                    self.answer_live(end, Err(refusal_of(&error)), false);
                }
                Ok(true)
            }
        }
    }

    /// Answers lanes that have ticked since they were sent, and a step once all lanes have.
    pub(super) fn answer_ticked(&mut self, end: &mut ServingEnd) -> Result<(), MemoryFault> {
        self.answer_sent(end, false)?;
        let are_ready = self.sent.pacing.as_deref().is_some_and(|pacing| pacing.lanes.are_ready());
        if end.is_held() && are_ready {
            self.answer_live(end, Ok(()), true);
        }
        Ok(())
    }

    /// Answers what is not answered yet with the newest rows, whether they have ticked or not.
    pub(super) fn release_lanes(&mut self, end: &mut ServingEnd) -> Result<(), MemoryFault> {
        self.answer_sent(end, true)?;
        if end.is_held() {
            self.answer_live(end, Ok(()), true);
        }
        Ok(())
    }

    fn answer_sent(&mut self, end: &mut ServingEnd, all: bool) -> Result<(), MemoryFault> {
        let Some(pacing) = self.sent.pacing.as_deref_mut() else { return Ok(()) };
        let now = pacing.now();
        let Pacing { lanes, mirror: Some(mirror), .. } = pacing else { return Ok(()) };
        if mirror.sent.is_empty() {
            return Ok(());
        }
        let ready = if all { mirror.sent.clone() } else { lanes.ready_of(&mirror.sent) };
        if ready.is_empty() {
            return Ok(());
        }
        mirror.sent.retain(|lane| !ready.contains(lane));
        let rows = lanes.rows(&ready, true, now).ascending();
        self.answer_rows(rows, end)
    }

    /// Answers a request with the newest rows of all lanes, or with its refusal; owners take note of what went by if it
    /// `answers`.
    fn answer_live(&mut self, end: &mut ServingEnd, done: Result<(), Refusal>, answers: bool) {
        end.show_leaving(self.leaving.load(Ordering::Relaxed));
        self.answer.refused = done.err();
        if let Some(refusal) = &self.answer.refused {
            self.answer.untold = Some(refusal.code);
            return end.refuse(&note(refusal));
        }
        let lost: Vec<(u32, u8)> = self.losses().collect();
        let Some(pacing) = self.sent.pacing.as_deref_mut() else { return };
        let now = pacing.now();
        let Pacing { lanes, mirror: Some(mirror), .. } = pacing else { return };
        mirror.show(&lanes.rows(&[], answers, now));
        end.answer_frame(&mirror.frame(), &lost, &FrameNotes::default());
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_arena::{Answer, AttachedArena, ReadyLanes};

    use super::*;
    use crate::owned::memory::tests::attached;
    use crate::owned::tests::live;

    /// Serves what is there, and has lanes tick that are due.
    fn serve(session: &mut OwnedSession, end: &mut ServingEnd) {
        let request = end.poll().unwrap().expect("a request is there");
        session.serve(end, request, || true).unwrap();
        session.tick_in_memory(end).unwrap();
    }

    fn begun(lanes: u32) -> (OwnedSession, ServingEnd, AttachedArena) {
        let mut session = live(lanes);
        let (mut end, mut trainer) = attached(&mut session);
        trainer.post_reset(&[], &[]);
        serve(&mut session, &mut end);
        assert_eq!(trainer.wait(None, || true), Ok(Answer::Frame));
        (session, end, trainer)
    }

    fn ticks(trainer: &AttachedArena) -> Vec<i64> {
        // Beside the env's own, the columns of what went by are the last three.
        let infos = trainer.frame().info_columns();
        infos[infos.len() - 3].as_i64().unwrap().to_vec()
    }

    #[test]
    fn a_step_through_memory_is_answered_with_the_tick_that_took_it_and_latest_takes_nothing_away() {
        let (mut session, mut end, mut trainer) = begun(2);
        let rows = |trainer: &AttachedArena| trainer.frame().obs(0).as_f32().unwrap().to_vec();
        let first = rows(&trainer);
        trainer.post_step();
        serve(&mut session, &mut end);
        assert_eq!(trainer.wait(None, || true), Ok(Answer::Frame));
        assert_eq!(ticks(&trainer), [1, 1]);
        let second = rows(&trainer);
        assert_ne!(first, second);
        for _ in 0..2 {
            trainer.post_latest(&[1]);
            let request = end.poll().unwrap().expect("a request is there");
            session.serve(&mut end, request, || true).unwrap();
            assert_eq!(trainer.wait(None, || true), Ok(Answer::Frame));
            assert_eq!(ticks(&trainer)[0], 0, "its world stands while nobody acts");
        }
        assert_eq!(
            ticks(&trainer),
            [0, 2],
            "each of its actions was taken, and no answer has taken the ticks away"
        );
        assert_eq!(rows(&trainer)[..4], second[..4]);
        assert_ne!(rows(&trainer)[4..], second[4..]);
    }

    #[test]
    fn lanes_that_are_sent_one_by_one_are_answered_each_with_its_own_tick() {
        let (mut session, mut end, mut trainer) = begun(3);
        trainer.send(&[2]);
        serve(&mut session, &mut end);
        let mut ready = Vec::new();
        assert_eq!(trainer.wait_lanes(1, &mut ready, None, || true), Ok(ReadyLanes::Ready(1)));
        assert_eq!(ready, [2]);
        trainer.action_row_mut(0).as_i64_mut().unwrap().fill(7);
        trainer.send(&[0]);
        serve(&mut session, &mut end);
        let refused = trainer.wait_lanes(1, &mut ready, None, || true).unwrap();
        assert!(matches!(refused, ReadyLanes::Refused { lanes, .. } if lanes == [0]));
    }

    #[test]
    fn an_owner_that_goes_in_the_middle_of_a_step_finds_it_done_when_it_attaches_again() {
        let (mut session, mut end, mut trainer) = begun(1);
        let last = session.last();
        trainer.post_step();
        let request = end.poll().unwrap().expect("a request is there");
        session.serve(&mut end, request, || true).unwrap();
        assert!(end.is_held() && session.last() == last + 1);
        session.settle_lanes(&mut end).unwrap();
        assert_eq!(trainer.wait(None, || true), Ok(Answer::Frame));
        assert_eq!(ticks(&trainer), [0], "nothing has ticked, and its action waits still");
    }

    #[test]
    fn what_only_live_lanes_have_is_refused_to_an_owner_of_others() {
        let mut session = crate::owned::tests::cartpole(1, AutoresetMode::NextStep);
        let (mut end, mut trainer) = attached(&mut session);
        trainer.post_latest(&[]);
        let request = end.poll().unwrap().expect("a request is there");
        session.serve(&mut end, request, || true).unwrap();
        assert!(matches!(trainer.wait(None, || true), Ok(Answer::Refused(_))));
    }
}
