//! How the lanes of a session whose node is lost go on elsewhere: what they did is in the client library's own log,
//! and where they go is the coordinator's to say.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{Keep, PastReader, SessionLog, Shown};
use rollhouse_core::EnvSpec;
use rollhouse_node::FrameRequest;
use rollhouse_wire::{
    BatchPlaces, ColumnBuffer, FrameHeader, FrameKind, Grant, HEADER_BYTES, Notes, OpenPool, RefusalCode,
    ReplaceSession, SessionReplaced, control,
};

use crate::call::Call;
use crate::context::Context;
use crate::message::{Question, Response};
use crate::trainer::Line;

/// What is kept of a session so that its lanes can go on elsewhere.
#[derive(Debug)]
pub(crate) struct Resuming {
    open: OpenPool,
    dynamics: u64,
    log: SessionLog,
    places: BatchPlaces,
    /// Number of the open or last episode of each lane, as the owner was told.
    numbers: Vec<Option<u64>>,
    /// What the node that has just got the lanes has not been told yet.
    past: Option<PastReader>,
    placing: Placing,
    /// The node is going away.
    leaving: bool,
    /// The placement took the place of an earlier one.
    replaces: bool,
    /// While it is left: until when that holds a request up.
    moves_until: Option<Duration>,
    /// It is not tried again before.
    not_before: Duration,
}

#[derive(Debug)]
enum Placing {
    No,
    Asked(Call),
    WaitUntil(Duration),
}

/// What came of asking for a place.
#[derive(Debug)]
pub(crate) enum Place {
    /// Nothing yet.
    Pending,
    /// The caller's deadline comes first.
    TimedOut,
    /// There will be none.
    Never,
    /// This one.
    At(Box<SessionReplaced>),
}

impl Resuming {
    pub(crate) fn new(open: &OpenPool, lanes: u32, spec: &EnvSpec, places: BatchPlaces) -> Self {
        let lanes = lanes as usize;
        let keep = Keep::StepsAndEnded;
        Self {
            open: open.clone(),
            dynamics: spec.dynamics_hash,
            log: SessionLog::new(lanes, &spec.action_column(), &spec.action_space, keep),
            places,
            numbers: vec![None; lanes],
            past: None,
            placing: Placing::No,
            leaving: false,
            replaces: false,
            moves_until: None,
            not_before: Duration::ZERO,
        }
    }

    /// Whether a new node has not been told everything yet.
    pub(crate) const fn is_telling(&self) -> bool {
        self.past.is_some()
    }

    /// The next part of what the lanes did; `None` when all is told.
    pub(crate) fn next_part(&mut self) -> Option<FrameRequest> {
        let part = self.past.as_mut().and_then(|past| past.next(&self.log));
        let Some(part) = part else {
            self.past = None;
            return None;
        };
        let mut columns = ColumnBuffer::default();
        columns.resize(part.len());
        columns.bytes_mut().copy_from_slice(&part);
        Some(FrameRequest { columns, sidecar: Vec::new() })
    }

    /// The node that was being told is lost as well.
    pub(crate) fn forget_past(&mut self) {
        self.past = None;
    }

    /// The session is moved with the next request, as if its node were going away.
    pub(crate) fn leave_soon(&mut self) {
        (self.leaving, self.not_before) = (true, Duration::ZERO);
    }

    /// A request comes: a node that goes away is left first, if it is time to try that.
    pub(crate) fn leave(&mut self, now: Duration) {
        if self.leaving && !self.is_telling() && self.not_before <= now {
            self.not_before = now + ASK_AGAIN_AFTER;
            self.moves_until = Some(now + SETTLE_WITHIN);
        }
    }

    /// Whether the session is being moved away from a node that it can be stepped on.
    pub(crate) const fn is_moving(&self) -> bool {
        self.moves_until.is_some()
    }

    /// Asks for another place, if that is due.
    pub(crate) fn place(
        &mut self,
        grant: &Grant,
        deadline: Duration,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        let deadline = self.moves_until.unwrap_or(deadline).min(deadline);
        let moving = self.is_moving();
        match &mut self.placing {
            Placing::WaitUntil(until) if *until > ctx.now => {}
            Placing::No | Placing::WaitUntil(_) => {
                let Grant { index, incarnation, ref node, first_lane, lanes, .. } = *grant;
                let replace = ReplaceSession {
                    open: self.open.clone(),
                    index,
                    incarnation,
                    first_lane,
                    lanes,
                    dynamics: self.dynamics,
                    moving,
                    node: node.clone(),
                    replaces: self.replaces,
                };
                ctx.count("another place asked for");
                let question = Question::ReplaceSession(Box::new(replace));
                let deadline = deadline.min(ctx.now + PLACE_WITHIN);
                let call = Call::new(question, deadline, coordinator, ctx);
                self.placing = Placing::Asked(call);
                self.place(grant, deadline, coordinator, ctx);
            }
            Placing::Asked(call) => {
                if call.go_on(*coordinator, ctx) {
                    return;
                }
                if moving {
                    self.stop_placing();
                } else {
                    self.placing = Placing::WaitUntil(ctx.now + COORDINATOR_AWAY);
                }
            }
        }
    }

    /// The caller waits no more.
    pub(crate) fn stop_placing(&mut self) {
        (self.placing, self.moves_until) = (Placing::No, None);
    }

    pub(crate) fn coordinator_lost(&mut self, now: Duration) {
        if self.is_moving() {
            self.stop_placing();
        } else if matches!(self.placing, Placing::Asked(_)) {
            self.placing = Placing::WaitUntil(now + COORDINATOR_AWAY);
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match &self.placing {
            Placing::No => None,
            Placing::Asked(call) => Some(call.deadline),
            Placing::WaitUntil(until) => Some(*until),
        }
    }

    /// Takes the coordinator's answer in, if it is to this.
    pub(crate) fn answered(
        &mut self,
        ask: u64,
        response: &Response,
        deadline: Duration,
        now: Duration,
    ) -> Place {
        let Placing::Asked(call) = &self.placing else { return Place::Pending };
        if !call.is_answered_by(ask) {
            return Place::Pending;
        }
        self.placing = Placing::No;
        let moving = self.moves_until.take().is_some();
        let refusal = match response {
            Response::Reply(reply) => match &**reply {
                rollhouse_coordinator::Reply::SessionReplaced(replaced) => {
                    let (past, cut) = self.log.past(true);
                    assert!(cut.is_empty(), "the log has not what lanes {cut:?} did");
                    self.past = Some(past);
                    (self.leaving, self.replaces, self.not_before) = (false, true, Duration::ZERO);
                    return Place::At(replaced.clone());
                }
                rollhouse_coordinator::Reply::Refused(refusal) => refusal,
                other => panic!("{other:?} to who asks for a place"),
            },
            other => panic!("{other:?} to who asks for a place"),
        };
        if moving {
            // It stays where it is.
            return Place::Pending;
        }
        if !matches!(refusal.code, RefusalCode::Busy | RefusalCode::Draining) {
            return Place::Never;
        }
        let wait = refusal.retry_after_ms.map_or(COORDINATOR_AWAY, Duration::from_millis).min(LONGEST_WAIT);
        if now + wait >= deadline {
            return Place::TimedOut;
        }
        self.placing = Placing::WaitUntil(now + wait);
        Place::Pending
    }

    /// Keeps what an answer of all lanes says; the lanes whose episodes ended, and which.
    pub(crate) fn note(
        &mut self,
        now: Duration,
        request: (FrameKind, &Arc<FrameRequest>),
        answer: &[u8],
    ) -> Vec<(u32, u64)> {
        let head = answer.first_chunk().map(|bytes| FrameHeader::decode(*bytes).expect("a header of ours"));
        let header = head.expect("an answer has a header");
        let (columns, sidecar) = answer[HEADER_BYTES..].split_at(header.columns as usize);
        let notes: Notes = match sidecar {
            [] => Notes::default(),
            bytes => control::decode(bytes).expect("notes of ours"),
        };
        self.leaving |= notes.leaving;
        let mut ended = Vec::new();
        let flags = |place: &std::ops::Range<usize>| &columns[place.clone()];
        let (terminated, truncated) = (flags(&self.places.terminated), flags(&self.places.truncated));
        if request.0 == FrameKind::Step {
            let shown = Shown { terminated, truncated, reset: flags(&self.places.reset) };
            self.log.stepped(now, request.1.columns.bytes(), shown, &[]);
            for (lane, number) in self.numbers.iter().enumerate() {
                if terminated[lane] | truncated[lane] != 0 {
                    ended.push((lane as u32, number.expect("an episode ends that began")));
                }
            }
        }
        for began in notes.began().expect("whole records") {
            self.log.began(now, &began);
            self.numbers[began.lane as usize] = Some(began.number);
        }
        for (lane, hash) in notes.hashes().expect("whole records") {
            self.log.stood(lane, hash);
        }
        ended
    }
}

/// As the client library's.
const PLACE_WITHIN: Duration = Duration::from_secs(10);
const COORDINATOR_AWAY: Duration = Duration::from_millis(300);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(2);
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
