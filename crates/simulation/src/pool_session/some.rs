//! Sends the lanes of a session some at a time, and takes their rows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_client::{Answered, LaneFlags, SendRequest, SessionEvent, Trouble};
use rollhouse_node::FrameRequest;
use rollhouse_wire::{FrameHeader, FrameKind};

use super::{Caller, PoolSession, Stream, UnderWay, action_of, notes_of};
use crate::context::Context;
use crate::first_done::{SomeRows, columns_of};
use crate::message::Message;

impl PoolSession {
    /// Sends some lanes. The request that is under way is carried on, and hastened if need be.
    pub(super) fn send_some(&mut self, ctx: &mut Context<'_>) {
        self.steps += 1;
        let (first_lane, steps) = (self.session.grant().first_lane, self.steps);
        let Some(some) = &mut self.some else { return };
        some.send(|lane| action_of(first_lane + lane, steps), ctx);
        if some.queue.asked.is_none() {
            return self.ask_some(ctx);
        }
        if some.is_to_hasten() {
            self.session.hasten(SendRequest::hastened_sidecar());
            if let Some(stream) = &self.stream
                && let Some((number, ..)) = stream.posted
            {
                let header =
                    FrameHeader { kind: FrameKind::Hasten, flags: 0, number, columns: 0, sidecar: 0 };
                let request = Arc::new(FrameRequest::default());
                ctx.send(stream.conn, Message::Frame { stream: stream.id, header, request });
            }
        }
        self.next = self.session.awaited(ctx.now, ctx.now + AS_LONG_AS_IT_TAKES, Bytes::new);
        self.under_way = UnderWay::Nothing;
        self.look_after(ctx.now);
    }

    /// Makes the next request of lanes under way, if lanes wait for one or the caller waits for lanes.
    fn ask_some(&mut self, ctx: &Context<'_>) {
        let placed = self.session.grant().incarnation;
        let Some(some) = &mut self.some else { return };
        if some.is_done() || !some.ask(&self.made_of.layout, placed) {
            self.caller = Caller::Rests;
            return;
        }
        let body = some.queue.asked.as_ref().map(SendRequest::body).expect("it was just asked");
        let deadline = ctx.now + AS_LONG_AS_IT_TAKES;
        self.happened(SessionEvent::Requested { body, deadline }, ctx);
    }

    /// Takes an answer with the rows of some lanes.
    pub(super) fn take_some(&mut self, columns: &[u8], sidecar: &[u8], ctx: &mut Context<'_>) {
        let asked = self.some.as_mut().and_then(|some| some.queue.asked.take()).expect("it was asked");
        let (rows, notes) = (SomeRows::read(&self.made_of.layout, columns), notes_of(sidecar));
        let flags =
            LaneFlags { terminated: &rows.terminated, truncated: &rows.truncated, reset: &rows.reset };
        let actions = asked.actions_of(&rows.lanes, &self.made_of.layout);
        let answered = Answered { now: ctx.now, flags, taken: None, notes: &notes };
        self.session.note_rows(&answered, &rows.lanes, &actions);
        let cut = self.session.take_cut(&rows.lanes);
        if let Some(some) = &mut self.some {
            some.take(&asked, &rows);
        }
        if self.resumes() {
            assert!(cut.is_empty() || self.was_lost, "the log has not what lanes {cut:?} did");
            let ended = (0..rows.lanes.len()).filter(|&row| rows.has_ended(row));
            self.note_episodes(ended.map(|row| rows.lanes[row] as usize), &notes, ctx);
        }
        let request = columns_of(&self.made_of.layout, &rows.lanes, &actions);
        if !rows.lanes.is_empty() {
            ctx.count("lanes taken as they were done");
            let request = FrameRequest { columns: request, sidecar: Vec::new() };
            self.reference.compare(self.id(), FrameKind::Send, &request, columns);
        }
        self.ask_some(ctx);
    }

    /// Gives up lanes whose request has no answer.
    pub(super) fn give_up_some(&mut self, trouble: &Trouble) {
        let placed = self.session.grant().incarnation;
        let Some(some) = &mut self.some else { return };
        match trouble {
            Trouble::Refused(_) if some.queue.asked.is_some() => {
                let Some(asked) = some.queue.asked.take() else { return };
                let lanes = some.queue.refused(&asked, placed, None);
                some.give_up(&lanes);
            }
            _ => some.lose_all(&self.made_of.layout, placed),
        }
    }

    /// Checks that lanes that are done are answered.
    pub(super) fn check_hastened(&mut self, ctx: &Context<'_>) {
        let written = |stream: &&Stream| matches!(stream.posted, Some((_, FrameKind::Send, _)));
        let stream = self.stream.as_ref().filter(written).map(|stream| (stream.id, stream.conn));
        if let Some(some) = &mut self.some {
            some.check_hastened(stream, ctx);
        }
    }

    /// Returns whether its lanes are stepped some at a time, whatever became of the last request.
    pub(crate) fn goes_on(&self) -> bool {
        self.some.as_ref().is_some_and(|some| some.has_begun)
    }
}

/// Time for which lanes that were sent are worth a request: whoever receives them decides for how long that is.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(24 * 3600);
