//! A session on a node: the real one, the turn at it, and what became of its lanes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{Interruption, PastEvent};
use rollhouse_env::Registry;
use rollhouse_node::{Cancel, FrameRequest, OwnedSession, RequestFault, SessionPlan, Turn};
use rollhouse_replay::Recorder;
use rollhouse_wire::{
    FrameHeader, FrameKind, FrameLayout, HEADER_BYTES, Incarnation, Notes, OpenSession, Refusal, SessionId,
    control, read_past,
};

use crate::ledger::Ledger;

/// One session, as its node has it.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) session: SessionId,
    pub(crate) incarnation: Incarnation,
    pub(crate) owned: OwnedSession,
    pub(crate) turn: Turn,
    pub(crate) token: Cancel,
    /// The time since which nobody is attached, on the node's clock.
    pub(crate) alone_since: Option<Duration>,
    first_lane: u32,
    layout: FrameLayout,
    lanes: Vec<Lane>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// Number of episodes that ended.
    ended: u64,
    open: bool,
}

impl Hosted {
    /// Makes the lanes.
    pub(crate) fn make(
        open: &OpenSession,
        token: Cancel,
        registry: &Registry,
        recorder: Arc<Recorder>,
        (leaving, now): (&Arc<AtomicBool>, Duration),
    ) -> Result<Self, Refusal> {
        let plan = Arc::new(SessionPlan::of(open, registry, "simulated")?);
        let entry = registry.get(&open.settings.env);
        let layout = FrameLayout::of(entry.expect("the plan has found it").spec());
        let owned = OwnedSession::make(plan, Some(recorder))?.telling(Arc::clone(leaving));
        Ok(Self {
            session: open.session,
            incarnation: open.incarnation,
            owned,
            turn: Turn::default(),
            token,
            alone_since: Some(now),
            first_lane: open.first_lane,
            layout,
            lanes: vec![Lane::default(); open.lanes as usize],
        })
    }

    /// Carries out a request that was checked, and notes what it did to episodes.
    pub(crate) fn carry_out(
        &mut self,
        header: FrameHeader,
        request: &FrameRequest,
        ledger: &mut Ledger,
    ) -> Result<Bytes, RequestFault> {
        let answer = self.owned.handle(header, request)?;
        // What is stepped in virtual time is at least as far apart as the age at which chunks are closed.
        self.owned.flush().expect("an engine of one thread");
        let kind = FrameHeader::decode(answer[..HEADER_BYTES].try_into().expect("a whole header"));
        let answered = kind.expect("a header of ours");
        if answered.kind == FrameKind::Resumed {
            self.note_past(request.columns.bytes());
        }
        if answered.kind == FrameKind::Batch {
            if header.kind == FrameKind::Reset {
                self.end_open();
                self.lanes.iter_mut().for_each(|lane| lane.open = true);
            } else {
                self.note_flags(&answer[HEADER_BYTES..]);
            }
            self.note_began(&answer[HEADER_BYTES + answered.columns as usize..]);
        }
        self.tell(ledger);
        Ok(answer)
    }

    /// Ends the session; open episodes end with `cause`.
    pub(crate) fn finish(mut self, cause: Interruption, ledger: &mut Ledger) {
        self.end_open();
        self.tell(ledger);
        self.owned.finish(cause).expect("an engine of one thread");
    }

    pub(crate) fn lanes(&self) -> u32 {
        self.lanes.len() as u32
    }

    fn note_flags(&mut self, columns: &[u8]) {
        let places = self.layout.batch(self.lanes.len(), false).expect("a small batch");
        let flag = |place: &std::ops::Range<usize>, lane: usize| columns[place.start + lane] == 1;
        for (row, lane) in self.lanes.iter_mut().enumerate() {
            lane.open |= flag(&places.reset, row);
            if flag(&places.terminated, row) || flag(&places.truncated, row) {
                lane.ended += 1;
                lane.open = false;
            }
        }
    }

    /// Notes the episodes that began elsewhere, and go on here or were over there.
    fn note_past(&mut self, past: &[u8]) {
        for record in read_past(past, &self.layout.action).expect("it was carried out") {
            if let PastEvent::Began { number, .. } = record.what {
                self.lanes[record.lane as usize] = Lane { ended: number, open: true };
            }
        }
    }

    /// Notes from the numbers of episodes how many episodes lanes that came from elsewhere had before.
    fn note_began(&mut self, sidecar: &[u8]) {
        if sidecar.is_empty() {
            return;
        }
        let notes: Notes = control::decode(sidecar).expect("notes of ours");
        for began in notes.began().expect("whole records") {
            self.lanes[began.lane as usize] = Lane { ended: began.number, open: true };
        }
    }

    fn end_open(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.open) {
            lane.ended += 1;
            lane.open = false;
        }
    }

    fn tell(&self, ledger: &mut Ledger) {
        for (row, lane) in self.lanes.iter().enumerate() {
            ledger.lived(self.session.pool, self.first_lane + row as u32, lane.ended);
        }
    }
}
