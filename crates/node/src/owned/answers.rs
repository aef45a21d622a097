//! A session's answers: the last one is kept, in case its owner asks for it again.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rollhouse_core::{AutoresetMode, Interruption, Outcome};
use rollhouse_engine::Received;
use rollhouse_wire::{FrameKind, LostLane, Notes, Refusal};

use super::{OwnedSession, refusal_of};
use crate::answer::{Answer, Sidecar};

/// The last answer.
#[derive(Debug)]
pub(super) enum Kept {
    /// It is kept as it was sent.
    Bytes(Bytes),
    /// It is in memory: the newest frame, or a refusal.
    InMemory,
    /// It is in memory: rows of some lanes.
    Rows(Received),
}

impl OwnedSession {
    /// Returns the answer again, if the request with that number was answered last.
    pub fn repeated(&mut self, number: u32) -> Option<Bytes> {
        if number != self.last {
            return None;
        }
        if let Kept::Bytes(answer) = &self.answer {
            return Some(answer.clone());
        }
        // It was given by memory, to an owner that goes on over a stream.
        let answer = match std::mem::replace(&mut self.answer, Kept::Bytes(Bytes::new())) {
            Kept::Bytes(answer) => answer,
            Kept::Rows(received) => self.rows_answer(number, &received),
            Kept::InMemory => match self.refused.take() {
                Some(refusal) => return Some(self.refuse(number, &refusal)),
                None => match self.frame_answer(number) {
                    Ok(answer) => answer,
                    Err(refusal) => return Some(self.refuse(number, &refusal)),
                },
            },
        };
        self.answer = Kept::Bytes(answer.clone());
        Some(answer)
    }

    /// Answers a request with a refusal; nothing moves.
    pub fn refuse(&mut self, number: u32, refusal: &Refusal) -> Bytes {
        let answer = self.new_answer();
        let answer = answer.finish(FrameKind::Refused, false, number, &Sidecar::Refusal(refusal));
        let answer = self.answered(number, answer);
        self.refused = Some(refusal.clone());
        answer
    }

    pub(super) fn answered(&mut self, number: u32, answer: Bytes) -> Bytes {
        self.last = number;
        self.refused = None;
        self.answer = Kept::Bytes(answer.clone());
        answer
    }

    /// Begins an answer in the memory of the last one, if nobody reads that any more.
    pub(super) fn new_answer(&mut self) -> Answer {
        match std::mem::replace(&mut self.answer, Kept::InMemory) {
            Kept::Bytes(bytes) => Answer::reusing(bytes),
            Kept::InMemory | Kept::Rows(_) => Answer::reusing(Bytes::new()),
        }
    }

    /// Makes the newest frame into an answer.
    pub(super) fn frame_answer(&mut self, number: u32) -> Result<Bytes, Refusal> {
        self.look_for_losses_of_frame()?;
        let mut answer = self.new_answer();
        let frame = self.engine.frame().map_err(|error| refusal_of(&error))?;
        let final_obs = self.plan.engine.autoreset == AutoresetMode::SameStep
            && (frame.terminated().contains(&1) || frame.truncated().contains(&1));
        answer.batch(&self.layout, &frame, final_obs);
        let notes = self.notes();
        let sidecar = notes.as_ref().map_or(Sidecar::Nothing, Sidecar::Notes);
        Ok(answer.finish(FrameKind::Batch, final_obs, number, &sidecar))
    }

    pub(super) fn rows_answer(&mut self, number: u32, received: &Received) -> Bytes {
        let over = received.terminated.contains(&1) || received.truncated.contains(&1);
        let final_obs = self.plan.engine.autoreset == AutoresetMode::SameStep && over;
        let mut answer = self.new_answer();
        answer.some(received, final_obs);
        let notes = self.notes();
        let sidecar = notes.as_ref().map_or(Sidecar::Nothing, Sidecar::Notes);
        answer.finish(FrameKind::Rows, final_obs, number, &sidecar)
    }

    /// Finds out which lanes are lost. Returns those that were not at the last look.
    pub(super) fn look_for_losses(&mut self) -> Vec<u32> {
        if self.engine.lost() == 0 {
            self.lost.clear();
            return Vec::new();
        }
        let before = std::mem::take(&mut self.lost);
        let lanes = 0..self.engine.lanes() as u32;
        self.lost = lanes.filter(|&lane| self.engine.is_lost(lane as usize)).collect();
        self.lost.iter().copied().filter(|lane| before.binary_search(lane).is_err()).collect()
    }

    /// Does the same as [`OwnedSession::look_for_losses`], and marks the newest frame's rows of newly lost lanes as
    /// truncated.
    #[inline]
    pub(super) fn look_for_losses_of_frame(&mut self) -> Result<(), Refusal> {
        let new = self.look_for_losses();
        if new.is_empty() {
            return Ok(());
        }
        self.engine.mark_truncated(&new).map_err(|error| refusal_of(&error))
    }

    /// Returns the lanes that were lost at the last look, each with the code of the outcome of its episode.
    pub(super) fn losses(&self) -> impl Iterator<Item = (u32, u8)> {
        let cause = |lane: u32| self.engine.loss(lane as usize).unwrap_or(Interruption::Crashed);
        self.lost.iter().map(move |&lane| (lane, Outcome::Interrupted(cause(lane)).code()))
    }

    /// Returns the notes that go beside an answer's rows; `None` if there is nothing to note.
    fn notes(&mut self) -> Option<Notes> {
        let lost = self.losses().map(|(lane, outcome)| LostLane { lane, outcome }).collect();
        let mut notes = Notes { lost, leaving: self.leaving.load(Ordering::Relaxed), ..Notes::default() };
        self.put_log(&mut notes);
        (!notes.is_empty()).then_some(notes)
    }
}
