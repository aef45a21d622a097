//! A session on a node: the real one, the turn at it, and what became of its lanes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_arena::{Request as MemoryRequest, ServingEnd};
use rollhouse_core::{Interruption, PastEvent};
use rollhouse_env::Registry;
use rollhouse_node::{Cancel, FrameRequest, OwnedSession, RequestFault, SessionPlan, Turn};
use rollhouse_replay::Recorder;
use rollhouse_wire::{
    Attached, FrameHeader, FrameKind, FrameLayout, HEADER_BYTES, Incarnation, MemoryAttached, Notes,
    OpenSession, Refusal, SessionId, control, read_past,
};

use crate::first_done::{SomeRows, named};
use crate::ledger::Ledger;
use crate::message::{Memory, header_of};

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
    /// The stream whose request waits for lanes.
    pub(crate) waits: Option<u64>,
    first_lane: u32,
    layout: FrameLayout,
    lanes: Vec<Lane>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// Number of episodes that ended.
    ended: u64,
    open: bool,
    /// Whether it is sent and not answered: it may have ended an episode, or begun one.
    sent: bool,
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
            waits: None,
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
    ) -> Result<Option<Bytes>, RequestFault> {
        let answer = self.owned.begin(header, request)?;
        if header.kind == FrameKind::Send {
            let lanes = named(&self.layout, &request.columns);
            lanes.iter().for_each(|&lane| self.lanes[lane as usize].sent = true);
        }
        self.note(header.kind, request, answer.as_ref(), ledger);
        Ok(answer)
    }

    /// Makes the memory for an owner that was attached, and the node's end of it.
    pub(crate) fn offer(&mut self, attached: &Attached) -> Result<(Box<ServingEnd>, Memory), Refusal> {
        let end = self.owned.attach_memory()?;
        let file = |file: BorrowedFd<'_>| file.try_clone_to_owned().expect("a descriptor is free");
        let files = Arc::new([file(end.outputs_fd()), file(end.inputs_fd())]);
        let attached = MemoryAttached {
            lanes: attached.lanes,
            last: attached.last,
            generation: end.generation(),
            logs: attached.logs,
            refused: self.owned.last_refusal().cloned(),
            paced: attached.paced,
        };
        Ok((Box::new(end), Memory { attached, files }))
    }

    /// Does what its owner asks for by memory. Any step may end an episode of each lane.
    pub(crate) fn serve(&mut self, end: &mut ServingEnd, request: MemoryRequest, ledger: &mut Ledger) {
        self.owned.serve(end, request, || true).expect("an owner of ours");
        self.owned.hand_over(Duration::MAX).expect("an engine of one thread");
        self.lanes.iter_mut().for_each(|lane| lane.ended += 1);
        self.tell(ledger);
    }

    /// Answers the request that waits for lanes with those that are done.
    pub(crate) fn gather(&mut self, ledger: &mut Ledger) -> Option<Bytes> {
        let answer = self.owned.gather(Duration::ZERO, true);
        self.note(FrameKind::Send, &FrameRequest::default(), answer.as_ref(), ledger);
        answer
    }

    /// Notes what a request of that kind did to episodes.
    fn note(&mut self, kind: FrameKind, request: &FrameRequest, answer: Option<&Bytes>, ledger: &mut Ledger) {
        // What is stepped in virtual time is at least as far apart as the age at which chunks are closed.
        self.owned.hand_over(Duration::MAX).expect("an engine of one thread");
        let Some(answer) = answer else { return self.tell(ledger) };
        let (answered, contents) = (header_of(answer), &answer[HEADER_BYTES..]);
        let (columns, sidecar) = contents.split_at(answered.columns as usize);
        if answered.kind == FrameKind::Resumed {
            self.note_past(request.columns.bytes());
        }
        if answered.kind == FrameKind::Batch {
            if kind == FrameKind::Reset {
                self.end_open();
                self.lanes.iter_mut().for_each(|lane| lane.open = true);
            } else {
                self.note_flags(columns);
            }
            self.note_began(sidecar);
        }
        if answered.kind == FrameKind::Rows {
            self.note_rows(&SomeRows::read(&self.layout, columns));
            self.note_began(sidecar);
        }
        self.tell(ledger);
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

    fn note_rows(&mut self, rows: &SomeRows) {
        for (row, &lane) in rows.lanes.iter().enumerate() {
            let lane = &mut self.lanes[lane as usize];
            lane.sent = false;
            lane.open |= rows.reset[row] == 1;
            if rows.has_ended(row) {
                lane.ended += 1;
                lane.open = false;
            }
        }
    }

    /// Notes the episodes that began elsewhere, and go on here or were over there.
    fn note_past(&mut self, past: &[u8]) {
        for record in read_past(past, &self.layout.action).expect("it was carried out") {
            if let PastEvent::Began { number, .. } = record.what {
                self.lanes[record.lane as usize] = Lane { ended: number, open: true, sent: false };
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
            let lane = &mut self.lanes[began.lane as usize];
            (lane.ended, lane.open) = (began.number, true);
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
            ledger.lived(self.session.pool, self.first_lane + row as u32, lane.ended + u64::from(lane.sent));
        }
    }
}
