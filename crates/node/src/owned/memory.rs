//! Steps a session through memory that its owner has mapped as well.
//!
//! The engine writes observations, rewards and flags where the owner reads them; the owner's actions are copied first
//! and then checked, like everything it writes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rollhouse_arena::{
    ArenaIdent, DEFAULT_RING_BYTES, FrameNotes, MAX_NOTE_BYTES, PeerError, Request, ServeError, ServingEnd,
    SharedArena,
};
use rollhouse_core::{ColumnData, ColumnMut};
use rollhouse_engine::{Engine, Method, Received, Reset, ResetLanes as ResetMethod};
use rollhouse_wire::limits::MAX_COMMAND_BYTES;
use rollhouse_wire::{Envelope, FrameKind, Refusal, RefusalCode, control};

use crate::live::Camera;

use super::{OwnedSession, refusal_of};
use crate::causes::with_causes;

/// Why an attachment by memory is over: its owner breaks the rules.
#[derive(Debug)]
pub enum MemoryFault {
    /// The owner breaks the rules of the layout.
    Peer,
    /// The ring of commands has bytes that are no command.
    Envelope,
    /// The owner takes no answers out of their ring.
    Unread,
}

impl From<PeerError> for MemoryFault {
    fn from(_: PeerError) -> Self {
        Self::Peer
    }
}

/// Time for which an owner may leave answers to commands in a full ring.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);

const _: () = assert!(MAX_COMMAND_BYTES <= DEFAULT_RING_BYTES / 4, "a ring takes every envelope");

impl OwnedSession {
    /// Makes the node's end for a new attachment by memory. At the first attachment the lanes are made anew in shared
    /// memory, since nothing has moved yet. May take as long as the env's maker does.
    ///
    /// # Errors
    /// If the lanes have moved in memory of this process alone, or there is no memory left.
    pub fn attach_memory(&mut self) -> Result<ServingEnd, Refusal> {
        self.forget_gathering();
        if self.memory.is_none() {
            if self.begun && !self.is_paced() {
                let message = "the lanes were stepped over QUIC and cannot be moved into shared memory";
                return Err(Refusal::new(RefusalCode::Unsupported, message));
            }
            self.make_in_shared_memory()?;
        }
        let frames = self.frames_in_memory();
        let Some(memory) = &mut self.memory else {
            return Err(Refusal::new(RefusalCode::Internal, "the session has no shared memory"));
        };
        let end = memory.attach(self.generation + 1, frames);
        let end = end.map_err(|error| no_memory(&error))?;
        self.generation += 1;
        Ok(end)
    }

    /// Returns the refusal in the last answer, if there was one.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.answer.refused.as_ref()
    }

    fn make_in_shared_memory(&mut self) -> Result<(), Refusal> {
        let ident = ArenaIdent {
            term: self.plan.incarnation.term,
            counter: self.plan.incarnation.counter,
            autoreset: self.plan.engine.autoreset.code(),
        };
        if self.is_paced() {
            self.memory = Some(self.mirror_lanes(ident)?);
            return Ok(());
        }
        let columns = Engine::columns(&self.plan.entry, self.plan.engine.autoreset);
        let made = SharedArena::create(&columns, self.plan.engine.lanes, ident, DEFAULT_RING_BYTES);
        let (memory, placement) = made.map_err(|error| no_memory(&error))?;
        let engine = self.engine.moved_to(placement);
        let mut engine = engine.map_err(|error| {
            let refusal = Refusal::new(RefusalCode::Internal, with_causes(&error));
            // Lanes that were on their way are gone.
            self.astray = self.plan.entry.is_late().then(|| refusal.clone());
            refusal
        })?;
        if self.engine.keeps_log() {
            engine.keep_log().map_err(|error| refusal_of(&error))?;
        }
        self.engine = engine;
        self.camera = Camera::default();
        self.live.begin_again();
        self.memory = Some(memory);
        Ok(())
    }

    /// Does what the owner asks for by memory, and answers it. Of commands it does one, so that the caller looks
    /// between two whether to go on. Takes as long as the env does, and up to `ANSWER_DEADLINE` where answers to
    /// commands are not taken, unless `alive` says meanwhile that the attachment is over.
    ///
    /// # Errors
    /// If the owner breaks the layout's rules: the attachment is over then.
    #[inline]
    pub fn serve(
        &mut self,
        end: &mut ServingEnd,
        request: Request,
        alive: impl FnMut() -> bool,
    ) -> Result<(), MemoryFault> {
        if self.is_paced() && !matches!(request, Request::Lanes | Request::Command) {
            return self.serve_live(end, request);
        }
        match request {
            Request::Step => {
                self.settle_lanes(end)?;
                let done = self.step_in_memory(end);
                self.answer_in_memory(end, done);
                Ok(())
            }
            Request::Reset => {
                self.settle_lanes(end)?;
                let asked = end.reset_columns();
                let seeded = asked.seeds.iter().any(Option::is_some);
                let seeds = if seeded { asked.seeds } else { Vec::new() };
                let partial = asked.mask.contains(&false);
                let mask = if partial { asked.mask } else { Vec::new() };
                let waits = self.waits_for_disk().map_or(Ok(()), Err);
                let reset = Reset { seeds, mask, ..Reset::default() };
                let done = waits.and_then(|()| self.begin_episodes(&reset, false));
                let done = done.and_then(|()| self.finish_reset());
                self.answer_in_memory(end, done);
                Ok(())
            }
            Request::Latest => {
                self.settle_lanes(end)?;
                let refusal = self.refuse_paced(FrameKind::Latest);
                self.answer_in_memory(end, refusal.map_or(Ok(()), Err));
                Ok(())
            }
            Request::Lanes => self.serve_lanes(end),
            Request::Command => self.serve_command(end, alive),
        }
    }

    /// Waits until episodes have begun in all lanes that are reset, however long that takes.
    pub(super) fn finish_reset(&mut self) -> Result<(), Refusal> {
        while !self.engine.finish(self.plan.engine.step_deadline).map_err(|error| refusal_of(&error))? {}
        self.show_change();
        self.look_for_losses_of_frame()
    }

    /// Runs the command that waits.
    fn serve_command(
        &mut self,
        end: &mut ServingEnd,
        mut alive: impl FnMut() -> bool,
    ) -> Result<(), MemoryFault> {
        let mut bytes = Vec::new();
        if !end.next_command(&mut bytes)? {
            return Ok(());
        }
        let command = Envelope::decode(&bytes).map_err(|_| MemoryFault::Envelope)?;
        let answer = if command.method == ResetMethod::NAME {
            let message = "a session in shared memory is reset by a request, after set_options";
            let refusal = Refusal::new(RefusalCode::Unsupported, message);
            Envelope { payload: Vec::new(), ..command }.answered::<()>(Err(refusal))
        } else {
            command.span().in_scope(|| self.command(command))
        };
        for piece in answer.into_pieces() {
            // A piece is within the limit of envelopes, which a ring of the default size takes.
            let bytes = piece.encode().map_err(|_| MemoryFault::Envelope)?;
            let deadline = Some(Instant::now() + ANSWER_DEADLINE);
            end.answer_command(&bytes, deadline, &mut alive).map_err(|error| match error {
                ServeError::Peer(fault) => fault.into(),
                ServeError::TimedOut | ServeError::Gone => MemoryFault::Unread,
            })?;
        }
        Ok(())
    }

    #[inline]
    fn step_in_memory(&mut self, end: &ServingEnd) -> Result<(), Refusal> {
        if let Some(refusal) = self.waits_for_disk() {
            return Err(refusal);
        }
        end.copy_actions(self.engine.actions().map_err(|error| refusal_of(&error))?);
        self.engine.step().map_err(|error| refusal_of(&error))?;
        self.show_step();
        self.look_for_losses_of_frame()
    }

    #[inline]
    fn answer_in_memory(&mut self, end: &mut ServingEnd, done: Result<(), Refusal>) {
        self.answer.next_in_memory();
        end.show_leaving(self.leaving.load(Ordering::Relaxed));
        let answered = done.and_then(|()| {
            self.take_frame_notes();
            let lost: Vec<(u32, u8)> = self.losses().collect();
            let frame = self.engine.frame().map_err(|error| refusal_of(&error))?;
            let notes = FrameNotes {
                began: self.begins.notes.began.as_chunks().0,
                hashes: self.begins.notes.hashes.as_chunks().0,
            };
            end.answer_frame(&frame, &lost, &notes);
            Ok(())
        });
        self.answer.refused = answered.err();
        if let Some(refusal) = &self.answer.refused {
            self.answer.untold = Some(refusal.code);
            end.refuse(&note(refusal));
        }
    }

    /// Collects the notes that go beside the newest frame, in memory that is used again and again.
    #[inline]
    fn take_frame_notes(&mut self) {
        let mut notes = std::mem::take(&mut self.begins.notes);
        notes.began.clear();
        notes.hashes.clear();
        self.put_log(&mut notes);
        self.begins.notes = notes;
    }

    /// Sends the lanes that the owner has sent. Those that finish within the call are answered.
    fn serve_lanes(&mut self, end: &mut ServingEnd) -> Result<(), MemoryFault> {
        let mut lanes = Vec::new();
        let requests = end.take_sent(&mut lanes)?;
        self.answer.sent_in_memory(requests);
        if lanes.is_empty() {
            return Ok(());
        }
        let actions = end.copy_actions_of(&lanes);
        let refusal = self.waits_for_disk().or_else(|| self.refuse_paced(FrameKind::Send));
        let sent = match refusal {
            Some(refusal) => Err(refusal),
            None if self.is_paced() => self.send_live(&lanes, actions.as_ref()),
            None => self.post(&lanes, actions.as_ref()),
        };
        match sent {
            Ok(()) if self.is_paced() => self.answer_ticked(end),
            Ok(()) => self.answer_done(end, Duration::ZERO).map(drop),
            Err(refusal) => {
                end.show_leaving(self.leaving.load(Ordering::Relaxed));
                end.refuse_lanes(&lanes, &note(&refusal));
                self.answer.untold = Some(refusal.code);
                self.answer.refused = Some(refusal);
                Ok(())
            }
        }
    }

    /// Returns whether lanes are under way.
    #[inline]
    pub(crate) fn has_under_way(&self) -> bool {
        self.engine.outstanding() > 0
    }

    /// Waits until a lane that is under way is done, at most that long, and answers all that are. Returns whether any is.
    ///
    /// # Errors
    /// If the owner breaks the layout's rules.
    pub(crate) fn answer_done(
        &mut self,
        end: &mut ServingEnd,
        patience: Duration,
    ) -> Result<bool, MemoryFault> {
        // An engine of one thread says nothing else than that none is done.
        let Ok(mut received) = self.engine.recv(1, patience) else { return Ok(false) };
        self.show_received(&mut received);
        self.answer_rows(received, end)?;
        Ok(true)
    }

    /// Answers lanes that were sent with their rows.
    pub(super) fn answer_rows(
        &mut self,
        received: Received,
        end: &mut ServingEnd,
    ) -> Result<(), MemoryFault> {
        land(&received, end);
        end.show_leaving(self.leaving.load(Ordering::Relaxed));
        let lost: Vec<(u32, u8)> = self.losses().collect();
        end.show_lost(&lost);
        end.put_lane_notes(&received.lanes, &self.lane_notes(&received.lanes));
        end.answer_lanes(&received.lanes)?;
        self.answer.keep_rows(received);
        Ok(())
    }

    /// Waits until no lane is under way, however long each takes, and answers them; live lanes with their newest rows.
    ///
    /// # Errors
    /// If the owner breaks the layout's rules.
    pub(crate) fn settle_lanes(&mut self, end: &mut ServingEnd) -> Result<(), MemoryFault> {
        if self.is_paced() {
            return self.release_lanes(end);
        }
        while self.has_under_way() {
            self.answer_done(end, self.plan.engine.step_deadline)?;
        }
        Ok(())
    }
}

/// Copies rows of single lanes to where their owner reads them.
fn land(received: &Received, end: &mut ServingEnd) {
    let mut rows = end.lane_rows();
    let lanes = &received.lanes;
    let columns = |to: &mut [ColumnMut<'_>], from: &[ColumnData]| {
        for (to, from) in to.iter_mut().zip(from) {
            land_column(lanes, to, from);
        }
    };
    columns(&mut rows.obs, &received.obs);
    columns(&mut rows.infos, &received.infos);
    columns(&mut rows.final_obs, &received.final_obs);
    if let ColumnMut::F64(rewards) = &mut rows.rewards {
        lanes.iter().zip(&received.rewards).for_each(|(&lane, &reward)| rewards[lane as usize] = reward);
    }
    let flags = [
        (&mut rows.terminated, &received.terminated),
        (&mut rows.truncated, &received.truncated),
        (&mut rows.reset, &received.reset),
    ];
    for (to, from) in flags {
        if let ColumnMut::U8(to) = to {
            lanes.iter().zip(from).for_each(|(&lane, &flag)| to[lane as usize] = flag);
        }
    }
}

fn land_column(lanes: &[u32], to: &mut ColumnMut<'_>, from: &ColumnData) {
    let elements = from.as_ref().len() / lanes.len().max(1);
    for (row, &lane) in lanes.iter().enumerate() {
        let lane = lane as usize;
        let copied = to
            .reborrow()
            .slice(lane * elements, (lane + 1) * elements)
            .copy_from(from.as_ref().slice(row * elements, (row + 1) * elements));
        debug_assert!(copied, "both are columns of the same env");
    }
}

/// Encodes a refusal as the owner's client reads it, cut to what memory has room for.
pub(super) fn note(refusal: &Refusal) -> Vec<u8> {
    let mut refusal = refusal.clone();
    refusal.message.truncate(refusal.message.floor_char_boundary(MOST_NOTED));
    let mut bytes = Vec::new();
    match control::encode(&refusal, &mut bytes) {
        // Without its length word.
        Ok(()) => bytes.split_off(4),
        Err(_) => Vec::new(),
    }
}

pub(super) fn no_memory(error: &std::io::Error) -> Refusal {
    Refusal::new(RefusalCode::Internal, format!("no shared memory for the session: {error}"))
}

/// Most bytes of a refusal's sentence; the names and numbers around it take less than the rest.
const MOST_NOTED: usize = MAX_NOTE_BYTES - 256;

#[cfg(test)]
pub(super) mod tests {

    use rollhouse_arena::{Answer, AttachedArena, BatchColumns, Expected, ReadyLanes};
    use rollhouse_core::AutoresetMode;
    use rollhouse_engine::{Nothing, Statistics};
    use rollhouse_replay::testing::Faults;

    use super::*;
    use crate::owned::tests::{cartpole, fill, recorded, waiting_for_the_disk};

    /// An owner that has mapped the session's memory.
    pub(in crate::owned) fn attached(session: &mut OwnedSession) -> (ServingEnd, AttachedArena) {
        let end = session.attach_memory().unwrap();
        let [outputs, inputs] =
            [end.outputs_fd(), end.inputs_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
        let autoreset = session.plan.engine.autoreset;
        let columns = columns_of(session);
        let ident = ArenaIdent { term: 1, counter: 1, autoreset: autoreset.code() };
        let (lanes, generation) = (session.lanes(), end.generation());
        let expected = Expected { columns: &columns, lanes, ident, generation };
        let trainer = AttachedArena::open(outputs, inputs, &expected).unwrap();
        (end, trainer)
    }

    fn columns_of(session: &OwnedSession) -> BatchColumns {
        let autoreset = session.plan.engine.autoreset;
        if session.is_paced() {
            let spec = session.plan.entry.spec().clone().paced();
            return BatchColumns::of(&spec, autoreset == AutoresetMode::SameStep);
        }
        Engine::columns(&session.plan.entry, autoreset)
    }

    /// Serves what is there.
    fn serve(session: &mut OwnedSession, end: &mut ServingEnd) {
        let request = end.poll().unwrap().expect("a request is there");
        session.serve(end, request, || true).unwrap();
    }

    fn reset(session: &mut OwnedSession, end: &mut ServingEnd, trainer: &mut AttachedArena) {
        trainer.post_reset(&[], &[]);
        serve(session, end);
        assert_eq!(trainer.wait(None, || true), Ok(Answer::Frame));
    }

    /// Symptom: with back-pressure and a full disk a session whose lanes are sent through memory stopped in the middle of
    /// a step, and could neither be ended nor drained. Cause: sent lanes were stepped without asking the recorder whether
    /// it takes anything. Fix: they are refused as busy, as steps are.
    #[test]
    fn lanes_sent_through_memory_are_refused_while_the_disk_is_full_and_step_when_there_is_room() {
        let (disk, mut driven) = waiting_for_the_disk();
        let mut session = recorded(&driven);
        let (mut end, mut trainer) = attached(&mut session);
        reset(&mut session, &mut end, &mut trainer);
        let send = |session: &mut OwnedSession, end: &mut ServingEnd, trainer: &mut AttachedArena| {
            let mut ready = Vec::new();
            trainer.send(&[0, 1]);
            serve(session, end);
            let told = trainer.wait_lanes(2, &mut ready, Some(Instant::now()), || true).unwrap();
            match told {
                ReadyLanes::Ready(count) => Ok(count),
                ReadyLanes::Refused { lanes, note } => {
                    Err((lanes, control::decode::<Refusal>(&note).unwrap()))
                }
            }
        };
        assert_eq!(send(&mut session, &mut end, &mut trainer), Ok(2));
        fill(&disk, &mut session, &mut driven);
        for _ in 0..3 {
            let (lanes, refused) = send(&mut session, &mut end, &mut trainer).unwrap_err();
            assert_eq!((lanes, refused.code), (vec![0, 1], RefusalCode::Busy));
            assert!(refused.message.starts_with("no space left on the disk: "), "{refused}");
        }
        assert_eq!(session.stats().unwrap().steps, 2, "nothing moved");
        disk.set_faults(Faults::default());
        driven.turn(Duration::from_secs(12));
        assert_eq!(send(&mut session, &mut end, &mut trainer), Ok(2));
        assert_eq!(session.stats().unwrap().steps, 4);
    }

    /// Symptom: a trainer that kept the ring of commands full was given up as hung, and its thread went on. Cause: all
    /// commands that waited were one request, in which nobody looks whether to go on. Fix: each is one.
    #[test]
    fn one_request_through_memory_is_one_command_however_many_wait() {
        let mut session = cartpole(2, AutoresetMode::NextStep);
        let (mut end, mut trainer) = attached(&mut session);
        for id in 0..3 {
            let asked = Envelope::command(id, Statistics::NAME, &Nothing {}).unwrap().encode().unwrap();
            trainer.send_command(&asked, Some(Instant::now()), || true).unwrap();
        }
        let mut answers = 0;
        let mut answer = Vec::new();
        while let Some(request) = end.poll().unwrap() {
            assert_eq!(request, Request::Command);
            session.serve(&mut end, request, || true).unwrap();
            answers += 1;
            assert_eq!(trainer.next_answer(&mut answer, Some(Instant::now()), || true), Ok(()));
            let next = trainer.next_answer(&mut answer, Some(Instant::now()), || true);
            assert!(next.is_err(), "after request {answers}");
        }
        assert_eq!(answers, 3);
    }
}
