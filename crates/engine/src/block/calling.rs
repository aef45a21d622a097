//! Calls of an env's methods on lanes of a block.

use rollhouse_core::limits::{MAX_ANSWER_BYTES, MAX_CALLS_OF_STEP};
use rollhouse_core::{Call, LaneSet};
use rollhouse_env::CallError;

use super::Block;
use crate::calls::CallFault;
use crate::past::ResumeError;

impl Block {
    /// Calls a method on a lane and returns its answer. What `changes` the lane is recorded, and so are notes, which ask it for
    /// nothing.
    pub(crate) fn call(&mut self, lane: usize, call: &Call, changes: bool) -> Result<String, CallFault> {
        if self.is_lost(lane) {
            return Err(CallFault::Lost);
        }
        if changes && !self.episodes.open().has(lane) {
            return Err(CallFault::NoEpisode);
        }
        let at = (self.episodes.next_number(lane), if changes { self.episodes.age(lane) } else { 0 });
        if changes && *self.standing.called.of(lane, at) >= MAX_CALLS_OF_STEP {
            return Err(CallFault::TooMany);
        }
        let hashes = changes && self.recorder.is_some();
        let before = if hashes { self.ask(|env| env.state_hash(lane)) } else { Some(0) };
        let Some(before) = before.filter(|_| !self.is_lost(lane)) else { return Err(CallFault::Lost) };
        let answer = if call.is_note() {
            Some(Ok(String::new()))
        } else {
            self.ask(|env| env.call(lane, &call.method, &call.payload))
        };
        match answer {
            Some(Ok(answer)) => {
                if changes {
                    *self.standing.called.of(lane, at) += 1;
                    self.note_call(lane, before, call);
                }
                let bytes = answer.len();
                if bytes > MAX_ANSWER_BYTES { Err(CallFault::Answer { bytes }) } else { Ok(answer) }
            }
            Some(Err(CallError::Lost)) => {
                if !self.is_lost(lane) {
                    self.lose_failed(LaneSet::one(lane));
                }
                Err(CallFault::Lost)
            }
            Some(Err(error)) => Err(CallFault::Env(error)),
            None => Err(CallFault::Lost),
        }
    }

    /// Tells the recorder of a call that changed a lane, whose generator may have been drawn from.
    fn note_call(&mut self, lane: usize, before: u32, call: &Call) {
        if !call.is_note() {
            self.starts.untouched.remove(lane);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.call(lane, before, call.clone());
        }
    }

    /// Calls a method on a lane as it was called elsewhere.
    pub(super) fn call_again(&mut self, lane: usize, call: &Call) -> Result<(), ResumeError> {
        self.refuse_idle(lane)?;
        let changes = self.maker.entry.spec().method(&call.method).is_some_and(|method| method.changes);
        let known = changes || call.is_note();
        let called = if known { self.call(lane, call, true) } else { Err(CallFault::NotChanging) };
        match called {
            // Whoever called it has been told.
            Ok(_) | Err(CallFault::Answer { .. }) => Ok(()),
            Err(source) => {
                Err(ResumeError::Call { lane: self.lanes.row(lane), method: call.method.clone(), source })
            }
        }
    }
}
