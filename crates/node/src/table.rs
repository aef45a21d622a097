//! Which sessions of the cluster are here: admission, fences, leases, and ends that are to be told.
//!
//! ```text
//! (asked) --> opening --made--> open --asked, lease over, drained, failed--> ending --> (ended, to be told)
//!             opening --cannot be made--> (gone: the answer said so)
//! ```
//!
//! Pure: every call is given the time; whoever calls does what follows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rollhouse_wire::{
    Attach, EndCause, Incarnation, OpenSession, Refusal, RefusalCode, SessionCounts, SessionEnd, SessionId,
    SessionReport,
};

use crate::lease::Lease;

/// The table; `H` is what a session is reached by.
#[derive(Debug)]
pub(crate) struct SessionTable<H> {
    capacity: u32,
    lease: Duration,
    lanes: u32,
    draining: bool,
    /// The greatest term that asked for something.
    term: u64,
    entries: BTreeMap<SessionId, Entry<H>>,
    /// Incarnations of sessions that ended, oldest first.
    fences: VecDeque<(SessionId, Incarnation)>,
    ends: VecDeque<SessionEnd>,
}

#[derive(Debug)]
struct Entry<H> {
    open: OpenSession,
    lease: Lease,
    stage: Stage<H>,
}

#[derive(Debug)]
enum Stage<H> {
    Opening,
    Open(H),
    Ending(H),
}

/// What an attaching owner gets.
#[derive(Debug)]
pub(crate) struct Attachment<H> {
    pub(crate) session: H,
    /// Tells this attachment from those before and after it.
    pub(crate) number: u64,
}

impl<H: Clone> SessionTable<H> {
    /// No sessions; takes `capacity` lanes and keeps sessions for `lease` without their owner.
    pub(crate) const fn new(capacity: u32, lease: Duration) -> Self {
        Self {
            capacity,
            lease,
            lanes: 0,
            draining: false,
            term: 0,
            entries: BTreeMap::new(),
            fences: VecDeque::new(),
            ends: VecDeque::new(),
        }
    }

    /// Takes a session in. True if it is to be made now, false if that very placement is open already.
    ///
    /// # Errors
    /// An older placement than known, no room, or the node is going away. `Busy` too while an earlier
    /// placement is still here: it has to be ended first.
    pub(crate) fn open(&mut self, now: Duration, open: &OpenSession) -> Result<bool, Refusal> {
        self.fence(open.session, open.incarnation)?;
        match self.entries.get(&open.session) {
            Some(Entry { open: known, stage: Stage::Open(_), .. })
                if known.incarnation == open.incarnation && known.secret == open.secret =>
            {
                return Ok(false);
            }
            Some(_) => {
                let message = format!("session {} is being opened or ended", open.session);
                return Err(Refusal::busy(message, UNDER_WAY_RETRY_MS));
            }
            None => {}
        }
        if self.draining {
            return Err(Refusal::new(RefusalCode::Draining, "the node takes no new sessions"));
        }
        if self.entries.len() >= MAX_SESSIONS {
            let message = format!("the node has {MAX_SESSIONS} sessions, the most it takes");
            return Err(Refusal::busy(message, ROOM_RETRY_MS));
        }
        if self.lanes.saturating_add(open.lanes) > self.capacity {
            let message =
                format!("{} lanes asked for, {} of {} are free", open.lanes, self.free(), self.capacity);
            return Err(Refusal::busy(message, ROOM_RETRY_MS));
        }
        self.term = self.term.max(open.incarnation.term);
        self.lanes += open.lanes;
        let entry = Entry { open: open.clone(), lease: Lease::new(now, self.lease), stage: Stage::Opening };
        self.entries.insert(open.session, entry);
        Ok(true)
    }

    /// An earlier placement of the session, which has to be ended before this one is opened.
    pub(crate) fn superseded(&self, open: &OpenSession) -> Option<Incarnation> {
        let known = self.entries.get(&open.session)?.open.incarnation;
        (known < open.incarnation).then_some(known)
    }

    /// The session was made. False if it has been closed meanwhile: then nothing is known of it any more.
    pub(crate) fn opened(&mut self, now: Duration, id: SessionId, incarnation: Incarnation, session: H) -> bool {
        match self.entry(id, incarnation) {
            Some(entry) if matches!(entry.stage, Stage::Opening) => {
                entry.stage = Stage::Open(session);
                entry.lease = Lease::new(now, entry.lease.length());
                true
            }
            _ => false,
        }
    }

    /// The session could not be made; who asked is told by the answer.
    pub(crate) fn not_made(&mut self, id: SessionId, incarnation: Incarnation) {
        if self.entry(id, incarnation).is_some_and(|entry| matches!(entry.stage, Stage::Opening)) {
            self.remove(id);
        }
    }

    /// An owner attaches; whoever was attached before is to be sent away.
    ///
    /// # Errors
    /// No such session, another placement, a wrong secret, or one that plays by itself.
    pub(crate) fn attach(&mut self, attach: &Attach) -> Result<Attachment<H>, Refusal> {
        let id = SessionId { pool: attach.pool, index: attach.index };
        let Some(entry) = self.entries.get_mut(&id) else {
            return Err(Refusal::new(RefusalCode::NotFound, format!("no session {id} here")));
        };
        if !entry.open.secret.matches(&attach.secret) {
            let message = format!("the secret shown is not that of session {id}");
            return Err(Refusal::new(RefusalCode::Unauthenticated, message));
        }
        if entry.open.incarnation != attach.incarnation {
            return Err(stale(id, attach.incarnation, entry.open.incarnation));
        }
        if entry.open.settings.collect.is_some() {
            let message = format!("session {id} plays by itself");
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        match &entry.stage {
            Stage::Open(session) => {
                Ok(Attachment { session: session.clone(), number: entry.lease.attached() })
            }
            Stage::Opening => {
                Err(Refusal::busy(format!("session {id} is being opened"), UNDER_WAY_RETRY_MS))
            }
            Stage::Ending(_) => Err(Refusal::new(RefusalCode::NotFound, format!("session {id} has ended"))),
        }
    }

    /// A stream ended.
    pub(crate) fn detached(&mut self, now: Duration, id: SessionId, incarnation: Incarnation, attachment: u64) {
        if let Some(entry) = self.entry(id, incarnation) {
            entry.lease.detached(now, attachment);
        }
    }

    /// Sessions whose owner was not heard of for the time of the lease.
    pub(crate) fn overdue(&self, now: Duration) -> Vec<(SessionId, Incarnation)> {
        let overdue = self.entries.iter().filter(|(_, entry)| {
            let owned = entry.open.settings.collect.is_none();
            owned && matches!(entry.stage, Stage::Open(_)) && entry.lease.is_over(now)
        });
        overdue.map(|(&id, entry)| (id, entry.open.incarnation)).collect()
    }

    /// Begins to end a session: the one who is given it ends it and says so with [`SessionTable::ended`].
    /// `None` if there is nothing to do: it is being made (and will be let go then), ended by someone else, or
    /// is not here.
    pub(crate) fn begin_end(&mut self, id: SessionId, incarnation: Incarnation) -> Option<H> {
        let entry = self.entry(id, incarnation)?;
        match &entry.stage {
            Stage::Open(session) => {
                let session = session.clone();
                entry.stage = Stage::Ending(session.clone());
                Some(session)
            }
            Stage::Opening => {
                self.remove(id);
                self.fence_off(id, incarnation);
                None
            }
            Stage::Ending(_) => None,
        }
    }

    /// A session has ended: it is told until somebody acknowledges it.
    pub(crate) fn ended(&mut self, end: SessionEnd) {
        if self.entry(end.session, end.incarnation).is_some() {
            self.remove(end.session);
        }
        self.fence_off(end.session, end.incarnation);
        if self.ends.len() >= MAX_ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
    }

    /// The end of that placement, if it has not been acknowledged yet.
    pub(crate) fn end_of(&self, id: SessionId, incarnation: Incarnation) -> Option<&SessionEnd> {
        self.ends.iter().find(|end| end.session == id && end.incarnation == incarnation)
    }

    /// Ends that are to be told, oldest first, at most as many as one message takes.
    pub(crate) fn ends(&self) -> Vec<SessionEnd> {
        self.ends.iter().take(ENDS_PER_MESSAGE).cloned().collect()
    }

    /// Somebody has taken those ends in.
    pub(crate) fn acknowledge(&mut self, told: &[SessionEnd]) {
        let known = |end: &SessionEnd| {
            told.iter().any(|t| t.session == end.session && t.incarnation == end.incarnation)
        };
        self.ends.retain(|end| !known(end));
    }

    /// Takes no new sessions from now on.
    pub(crate) const fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether it takes no new sessions.
    pub(crate) const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Every session here, whatever its stage.
    pub(crate) fn all(&self) -> Vec<(SessionId, Incarnation)> {
        self.entries.iter().map(|(&id, entry)| (id, entry.open.incarnation)).collect()
    }

    /// What every open session is reached by.
    pub(crate) fn open_sessions(&self) -> Vec<H> {
        let open = |entry: &Entry<H>| match &entry.stage {
            Stage::Open(session) => Some(session.clone()),
            Stage::Opening | Stage::Ending(_) => None,
        };
        self.entries.values().filter_map(open).collect()
    }

    /// Lanes of all sessions here.
    pub(crate) const fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Sessions here.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is reported of every session that is open; `done` tells what one has done.
    pub(crate) fn reports(&self, done: impl Fn(&H) -> SessionCounts) -> Vec<SessionReport> {
        let report = |entry: &Entry<H>| {
            let session = match &entry.stage {
                Stage::Open(session) | Stage::Ending(session) => session,
                Stage::Opening => return None,
            };
            let open = &entry.open;
            let attached = open.settings.collect.is_none().then(|| entry.lease.is_held());
            Some(SessionReport {
                session: open.session,
                incarnation: open.incarnation,
                owner: open.owner.clone(),
                env: open.settings.env.clone(),
                first_lane: open.first_lane,
                lanes: open.lanes,
                pool_lanes: open.pool_lanes,
                attached,
                transport: (attached == Some(true)).then(|| "quic".to_owned()),
                done: done(session),
            })
        };
        self.entries.values().filter_map(report).collect()
    }

    /// Refuses what an older coordinator asks for, and placements that were here before.
    fn fence(&self, id: SessionId, incarnation: Incarnation) -> Result<(), Refusal> {
        if incarnation.term < self.term {
            let message = format!("term {} is over, {} has begun", incarnation.term, self.term);
            return Err(Refusal::new(RefusalCode::Stale, message));
        }
        if let Some(entry) = self.entries.get(&id)
            && entry.open.incarnation > incarnation
        {
            return Err(stale(id, incarnation, entry.open.incarnation));
        }
        match self.fences.iter().rev().find(|(fenced, at)| *fenced == id && *at >= incarnation) {
            Some((_, at)) => Err(stale(id, incarnation, *at)),
            None => Ok(()),
        }
    }

    fn fence_off(&mut self, id: SessionId, incarnation: Incarnation) {
        if self.fences.len() >= MAX_FENCES {
            self.fences.pop_front();
        }
        self.fences.push_back((id, incarnation));
    }

    fn entry(&mut self, id: SessionId, incarnation: Incarnation) -> Option<&mut Entry<H>> {
        self.entries.get_mut(&id).filter(|entry| entry.open.incarnation == incarnation)
    }

    fn remove(&mut self, id: SessionId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.lanes -= entry.open.lanes;
        }
    }

    const fn free(&self) -> u32 {
        self.capacity - self.lanes
    }
}

fn stale(id: SessionId, asked: Incarnation, known: Incarnation) -> Refusal {
    Refusal::new(RefusalCode::Stale, format!("placement {asked} of session {id} is over, {known} was the last"))
}

/// An end without steps, for what ended before it began.
pub(crate) fn end_of(
    id: SessionId,
    incarnation: Incarnation,
    cause: EndCause,
    detail: String,
    done: SessionCounts,
) -> SessionEnd {
    SessionEnd { session: id, incarnation, cause, detail, done }
}

/// Sessions one node takes: the reports of all of them still fit one heartbeat, at up to 560 bytes each.
pub const MAX_SESSIONS: usize = 1_536;

/// Placements that ended and are remembered, so that a late message does not open them again. A coordinator's
/// messages are late by seconds at most.
const MAX_FENCES: usize = 4_096;

/// Ends that wait for an acknowledgement. A coordinator that was away for longer learns of the others from their
/// absence.
const MAX_ENDS: usize = 4_096;

/// Ends told in one message, so that it stays within its bound.
const ENDS_PER_MESSAGE: usize = 256;

/// Opening and ending take milliseconds.
const UNDER_WAY_RETRY_MS: u64 = 20;

/// Room comes when another session ends.
const ROOM_RETRY_MS: u64 = 1_000;
