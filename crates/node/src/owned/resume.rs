//! Notes for an owner's log, and lanes that go on here where they stood on another node.

use bytes::Bytes;
use rollhouse_arena::LaneNote;
use rollhouse_core::Began;
use rollhouse_engine::{LogEvent, ResumeError};
use rollhouse_wire::limits::MAX_LOGGED_LANES;
use rollhouse_wire::{ColumnBuffer, FrameKind, Notes, Refusal, RefusalCode, began_record, read_past};

use super::{OwnedSession, RequestFault, refusal_of};
use crate::answer::Sidecar;

impl OwnedSession {
    /// Has answers say what an owner's log needs. Returns whether they do.
    pub fn keep_log(&mut self) -> bool {
        let fits = self.lanes() <= MAX_LOGGED_LANES;
        // Refused once lanes were reset: what they began is not known any more.
        !self.is_paced() && (self.engine.keeps_log() || fits && self.engine.keep_log().is_ok())
    }

    /// Returns whether answers say what a log needs.
    pub(crate) const fn keeps_log(&self) -> bool {
        self.engine.keeps_log()
    }

    /// Adds what the last request began to the notes.
    pub(super) fn put_log(&mut self, notes: &mut Notes) {
        self.begins.events.clear();
        self.engine.take_log(&mut self.begins.events);
        let began = self.begins.events.iter().filter(|event| matches!(event, LogEvent::Began(_))).count();
        notes.reserve(began, self.begins.events.len() - began);
        for event in &self.begins.events {
            match *event {
                LogEvent::Began(began) => notes.put_began(&began),
                LogEvent::Hash { lane, hash } => notes.put_hash(lane, hash),
            }
        }
    }

    /// Returns the notes beside rows of those lanes: what the last request began in each.
    pub(super) fn lane_notes(&mut self, lanes: &[u32]) -> Vec<LaneNote> {
        let mut notes = vec![LaneNote::default(); lanes.len()];
        self.begins.events.clear();
        self.engine.take_log(&mut self.begins.events);
        let mut rows: Vec<(u32, usize)> = lanes.iter().copied().zip(0..).collect();
        rows.sort_unstable();
        for event in &self.begins.events {
            let (LogEvent::Began(Began { lane, .. }) | LogEvent::Hash { lane, .. }) = *event;
            let Ok(found) = rows.binary_search_by_key(&lane, |(lane, _)| *lane) else { continue };
            let note = &mut notes[rows[found].1];
            match *event {
                LogEvent::Began(began) => {
                    note.began = Some(began_record(&began));
                }
                LogEvent::Hash { hash, .. } => note.hash = Some(hash),
            }
        }
        notes
    }

    /// Has lanes repeat what they did elsewhere.
    pub(super) fn resume(
        &mut self,
        number: u32,
        columns: &ColumnBuffer,
    ) -> Result<Result<Bytes, Refusal>, RequestFault> {
        if self.astray.is_some() {
            return Ok(Err(self.went_astray()));
        }
        let records = read_past(columns.bytes(), &self.layout.action).map_err(RequestFault::Past)?;
        if let Err(refusal) = self.recording.begin(&self.plan, &mut self.engine) {
            return Ok(Err(refusal));
        }
        self.begun = true;
        if let Err(error) = self.engine.replay(records) {
            let refusal = match &error {
                ResumeError::Engine(error) => refusal_of(error),
                _ => Refusal::new(RefusalCode::BadRequest, error.to_string()),
            };
            self.astray = Some(refusal.clone());
            return Ok(Err(refusal));
        }
        let answer = self.new_answer();
        Ok(Ok(answer.finish(FrameKind::Resumed, false, number, &Sidecar::Nothing)))
    }

    /// Returns the refusal of every request once lanes could not be put where they stood.
    pub(super) fn went_astray(&self) -> Refusal {
        let why = self.astray.as_ref().map_or("", |refusal| &refusal.message);
        Refusal::new(RefusalCode::Internal, format!("the lanes could not be resumed: {why}"))
    }
}
