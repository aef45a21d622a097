//! A session's answers: the last one is kept, in case its owner asks for it again.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rollhouse_core::{AutoresetMode, Interruption, Outcome};
use rollhouse_engine::Received;
use rollhouse_wire::{FrameHeader, FrameKind, LostLane, Notes, Refusal, RefusalCode};

use super::{OwnedSession, refusal_of};
use crate::answer::{Answer, Sidecar};

/// The last request that was answered, and its answer.
#[derive(Debug, Default)]
pub(super) struct LastAnswer {
    /// Number of the request; 0 if none was answered.
    pub(super) number: u32,
    pub(super) kept: Kept,
    /// The answer, if it was a refusal.
    pub(super) refused: Option<Refusal>,
    /// The code of that refusal, until it has been counted.
    pub(super) untold: Option<RefusalCode>,
    /// Lanes that were lost in it, ascending.
    lost: Vec<u32>,
}

impl LastAnswer {
    /// Makes the next answer the last one. It is in memory.
    #[inline]
    pub(super) fn next_in_memory(&mut self) {
        self.number = FrameHeader::next_number(self.number);
        self.kept = Kept::InMemory;
    }

    /// Makes so many further requests of lanes the last ones. Their rows come in memory.
    pub(super) fn sent_in_memory(&mut self, requests: u64) {
        // Numbers go round without 0.
        let most = u64::from(u32::MAX);
        let later = (u64::from(self.number) + most - 1 + requests % most) % most;
        self.number = if requests == 0 { self.number } else { later as u32 + 1 };
        (self.kept, self.refused) = (Kept::Rows(Received::default()), None);
    }

    /// Keeps rows that were answered in memory since the last request.
    pub(super) fn keep_rows(&mut self, received: Received) {
        match &mut self.kept {
            Kept::Rows(rows) => rows.append(received),
            Kept::Bytes(_) | Kept::InMemory => self.kept = Kept::Rows(received),
        }
    }

    /// Keeps an answer as it was sent.
    fn keep(&mut self, number: u32, answer: Bytes) {
        self.number = number;
        self.refused = None;
        self.kept = Kept::Bytes(answer);
    }
}

/// An answer that is kept.
#[derive(Debug)]
pub(super) enum Kept {
    /// It is kept as it was sent.
    Bytes(Bytes),
    /// It is in memory: the newest frame, or a refusal.
    InMemory,
    /// It is in memory: rows of some lanes.
    Rows(Received),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl OwnedSession {
    /// Returns the answer again, if the request with that number was answered last.
    pub fn repeated(&mut self, number: u32) -> Option<Bytes> {
        if number != self.answer.number {
            return None;
        }
        if let Kept::Bytes(answer) = &self.answer.kept {
            return Some(answer.clone());
        }
        // It was given by memory, to an owner that goes on over a stream.
        let answer = match std::mem::take(&mut self.answer.kept) {
            Kept::Bytes(answer) => answer,
            Kept::Rows(received) => self.rows_answer(number, &received.ascending()),
            Kept::InMemory => match self.answer.refused.take() {
                Some(refusal) => return Some(self.refuse(number, &refusal)),
                // Its rows have gone on.
                None if self.is_paced() => self.paced_batch(number, false),
                None => match self.frame_answer(number) {
                    Ok(answer) => answer,
                    Err(refusal) => return Some(self.refuse(number, &refusal)),
                },
            },
        };
        self.answer.kept = Kept::Bytes(answer.clone());
        Some(answer)
    }

    /// Answers a request with a refusal; nothing moves.
    pub fn refuse(&mut self, number: u32, refusal: &Refusal) -> Bytes {
        let answer = self.new_answer();
        let answer = answer.finish(FrameKind::Refused, false, number, &Sidecar::Refusal(refusal));
        let answer = self.answered(number, answer);
        self.answer.refused = Some(refusal.clone());
        answer
    }

    pub(super) fn answered(&mut self, number: u32, answer: Bytes) -> Bytes {
        self.answer.keep(number, answer.clone());
        answer
    }

    /// Begins an answer in the memory of the last one, if nobody reads that any more.
    pub(super) fn new_answer(&mut self) -> Answer {
        match std::mem::replace(&mut self.answer.kept, Kept::InMemory) {
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
            self.answer.lost.clear();
            return Vec::new();
        }
        let before = std::mem::take(&mut self.answer.lost);
        let lanes = 0..self.engine.lanes() as u32;
        self.answer.lost = lanes.filter(|&lane| self.engine.is_lost(lane as usize)).collect();
        self.answer.lost.iter().copied().filter(|lane| before.binary_search(lane).is_err()).collect()
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
        self.answer.lost.iter().map(move |&lane| (lane, Outcome::Interrupted(cause(lane)).code()))
    }

    /// Returns the notes that go beside an answer's rows; `None` if there is nothing to note.
    pub(super) fn notes(&mut self) -> Option<Notes> {
        let notes = self.notes_of_losses(&[]);
        (!notes.is_empty()).then_some(notes)
    }

    /// Returns the notes that go beside rows, with the lanes whose episodes a policy has given up in them.
    pub(super) fn notes_of_losses(&mut self, given_up: &[u32]) -> Notes {
        let outcome = Outcome::Interrupted(Interruption::Policy).code();
        let given_up = given_up.iter().map(|&lane| (lane, outcome));
        let lost = self.losses().chain(given_up).map(|(lane, outcome)| LostLane { lane, outcome }).collect();
        let mut notes = Notes { lost, leaving: self.leaving.load(Ordering::Relaxed), ..Notes::default() };
        self.put_log(&mut notes);
        notes
    }
}
