//! The table of the cluster's sessions on this node: admission, fences, and ends that are to be told. What becomes of
//! each session is decided by its [`NodeSession`].
//!
//! Pure: every call is given the time, and the caller does what follows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use rollhouse_core::{Budget, Claimant, Holdings, OverBudget, Scales, Weight};
use rollhouse_host::ConnectWatch;
use rollhouse_wire::{
    AdmitWatcher, Attach, ConnectingSession, EndCause, Incarnation, OpenSession, OpenWatch, PlaysReport,
    Refusal, RefusalCode, ReplayReport, Secret, SeenTerm, SessionCounts, SessionEnd, SessionId,
    SessionReport,
};

use crate::Cancel;
use crate::node_session::{NodeSession, SessionAction, SessionEvent, SessionState};
use crate::over::{MAX_ENDS, Over};
use crate::session_places::{SessionPlaces, claimant};
use crate::transport::Transport;

/// The sessions of a node; `H` is the handle by which a session is reached.
#[derive(Debug)]
pub struct SessionTable<H> {
    capacity: u32,
    lease: Duration,
    /// What the node has for lanes, and what they weigh.
    scales: Scales,
    held: Holdings,
    places: SessionPlaces,
    draining: bool,
    /// The latest coordinator that took the node in or asked for something; a term of 0 if there was none.
    seen: SeenTerm,
    entries: BTreeMap<SessionId, Entry<H>>,
    /// A number that grows whenever something of an entry may have changed.
    version: u64,
    over: Over,
}

/// The result of an owner's attaching.
#[derive(Debug)]
pub struct Attachment<H> {
    /// The handle by which the session is reached.
    pub session: H,
    /// The number that tells this attachment from those before and after it.
    pub number: u64,
}

impl<H: Clone> SessionTable<H> {
    /// Makes a table without sessions, which takes `capacity` lanes and keeps sessions for `lease` without their owner.
    pub fn new(capacity: u32, lease: Duration) -> Self {
        Self {
            capacity,
            lease,
            scales: Scales::new(Budget::default()),
            held: Holdings::default(),
            places: SessionPlaces::new(),
            draining: false,
            seen: SeenTerm::default(),
            entries: BTreeMap::new(),
            version: 0,
            over: Over::new(),
        }
    }

    /// Returns the table so changed that lanes have to fit within a budget too.
    #[must_use]
    pub fn within(self, budget: Budget) -> Self {
        Self { scales: Scales::new(budget), ..self }
    }

    /// Returns the table of a node that has seen that coordinator before its own start.
    #[must_use]
    pub fn having_seen(self, seen: SeenTerm) -> Self {
        Self { seen, ..self }
    }

    /// Returns what the node has for lanes, and what they weigh.
    pub const fn scales(&self) -> &Scales {
        &self.scales
    }

    /// Takes in what lanes were measured to weigh, by the ids of their envs.
    pub fn measure(&mut self, measured: &BTreeMap<String, Weight>) {
        self.scales.measure(measured);
    }

    /// Returns what the lanes of all sessions here weigh together.
    pub fn taken(&self) -> Weight {
        self.scales.taken(&self.held)
    }

    /// Returns the number of sessions here that play by themselves, of the owner of that one.
    pub fn rollouts_of(&self, open: &OpenSession) -> u64 {
        self.places.rollouts_of(&claimant(&open.owner, open.operates))
    }

    /// Takes a session in. Returns its token if it is to be made now, `None` if that very placement is open already.
    ///
    /// # Errors
    /// An older placement than known, no room, or the node is going away. `Busy` too while an earlier
    /// placement is still here: it has to be ended first.
    pub fn open(&mut self, open: &OpenSession) -> Result<Option<Cancel>, Refusal> {
        self.fence(open.session, open.incarnation)?;
        match self.entries.get(&open.session) {
            Some(Entry { open: known, session, .. })
                if session.place().is_some()
                    && known.incarnation == open.incarnation
                    && known.secret == open.secret =>
            {
                return Ok(None);
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
        if let Some(ends) = self.over.is_full() {
            let message =
                format!("the node has {ends} ends of sessions to report, at most {MAX_ENDS} allowed");
            return Err(Refusal::busy(message, ROOM_RETRY_MS));
        }
        if self.lanes().saturating_add(open.lanes) > self.capacity {
            let message =
                format!("{} lanes asked for, {} of {} are free", open.lanes, self.free(), self.capacity);
            return Err(Refusal::busy(message, ROOM_RETRY_MS));
        }
        let env = &open.settings.weighed_env();
        let over = |over: OverBudget| Refusal::busy(over.to_string(), ROOM_RETRY_MS);
        self.scales.fits(env, open.lanes, &self.held).map_err(over)?;
        self.places.take(open).map_err(|over| Refusal::busy(over.to_string(), ROOM_RETRY_MS))?;
        let processes = self.scales.processes(env, open.lanes);
        if open.incarnation.term > self.seen.term {
            self.seen = SeenTerm { term: open.incarnation.term, boot: 0 };
        }
        self.held.add(env, open.lanes, processes);
        let cancel = Cancel::default();
        let session = NodeSession::new(self.lease, open.settings.collect.is_none());
        let (cancelled, connecting) = (cancel.clone(), ConnectWatch::default());
        let watchers = Vec::new();
        let entry = Entry { open: open.clone(), processes, cancel: cancelled, connecting, watchers, session };
        self.entries.insert(open.session, entry);
        Ok(Some(cancel))
    }

    /// Returns an earlier placement of the session, which has to be ended before this one is opened.
    pub fn superseded(&self, open: &OpenSession) -> Option<Incarnation> {
        let known = self.entries.get(&open.session)?.open.incarnation;
        (known < open.incarnation).then_some(known)
    }

    /// Notes that the session was made. Returns false if it has been closed meanwhile: then nothing is known of it any
    /// more.
    pub fn opened(&mut self, now: Duration, id: SessionId, incarnation: Incarnation, session: H) -> bool {
        let entry = self.entry(id, incarnation);
        entry.is_some_and(|entry| entry.session.on(now, SessionEvent::Made(session)).is_none())
    }

    /// Notes that the session could not be made; the answer tells the coordinator.
    pub fn not_made(&mut self, now: Duration, id: SessionId, incarnation: Incarnation) {
        let Some(entry) = self.entry(id, incarnation) else { return };
        entry.session.on(now, SessionEvent::NotMade);
        if matches!(entry.session.state(), SessionState::Gone) {
            self.remove(id);
        }
    }

    /// Attaches an owner; the owner that was attached before is to be sent away.
    ///
    /// # Errors
    /// No such session, another placement, a wrong secret, or one that plays by itself.
    pub fn attach(
        &mut self,
        now: Duration,
        attach: &Attach,
        transport: Transport,
    ) -> Result<Attachment<H>, Refusal> {
        self.version += 1;
        let (_, entry) = self.authorised(attach)?;
        match entry.session.on(now, SessionEvent::Attach(transport)) {
            Some(SessionAction::LetIn { place, number }) => Ok(Attachment { session: place, number }),
            _ => Err(under_way(entry.open.session, "changing")),
        }
    }

    /// Returns the session of an owner that shows what an attachment has to show.
    ///
    /// # Errors
    /// The errors of [`SessionTable::attach`].
    pub(crate) fn shown(&mut self, attach: &Attach) -> Result<H, Refusal> {
        self.authorised(attach).map(|(session, _)| session)
    }

    /// Returns the key by which the one that the coordinator names may watch that placement of an open session.
    ///
    /// # Errors
    /// If it is not here, or another placement of it is.
    pub fn admit_watcher(&mut self, admit: &AdmitWatcher) -> Result<Secret, Refusal> {
        let (id, incarnation) = (admit.session, admit.incarnation);
        let entry = self.entries.get_mut(&id).filter(|entry| entry.session.place().is_some());
        let gone = || Refusal::new(RefusalCode::NotFound, format!("no session {id} here"));
        let entry = entry.ok_or_else(gone)?;
        if entry.open.incarnation != incarnation {
            return Err(stale(id, incarnation, entry.open.incarnation));
        }
        let key = entry.open.secret.watch_key(&admit.owner);
        if !admit.owner.is_empty() {
            entry.watchers.retain(|(_, known)| !known.matches(&key));
            if entry.watchers.len() >= MAX_ADMITTED {
                entry.watchers.remove(0);
            }
            entry.watchers.push((claimant(&admit.owner, admit.operates), key));
        }
        Ok(key)
    }

    /// Returns the open session that may be watched by a peer that shows a key, the request that it was opened with, and
    /// whose key it is: the session's owner's, if a coordinator of an earlier version asked for it.
    ///
    /// # Errors
    /// If it is not here, or another placement of it is, and another key.
    pub fn watched(&self, open: &OpenWatch) -> Result<(H, &OpenSession, Claimant), Refusal> {
        let id = SessionId { pool: open.pool, index: open.index };
        let gone = || Refusal::new(RefusalCode::NotFound, format!("no session {id} here"));
        let entry = self.entries.get(&id).ok_or_else(gone)?;
        let known = entry.watchers.iter().find(|(_, key)| key.matches(&open.key));
        let watcher = match known {
            Some((watcher, _)) => watcher.clone(),
            None if entry.open.secret.watch_key("").matches(&open.key) => entry.owner(),
            None => {
                let message = format!("the key shown is not that of session {id}");
                return Err(Refusal::new(RefusalCode::Unauthenticated, message));
            }
        };
        if entry.open.incarnation != open.incarnation {
            return Err(stale(id, open.incarnation, entry.open.incarnation));
        }
        entry.session.place().map(|place| (place.clone(), &entry.open, watcher)).ok_or_else(gone)
    }

    /// Returns the owner of the session of one that shows what an attachment has to show.
    ///
    /// # Errors
    /// The errors of [`SessionTable::attach`].
    pub(crate) fn owner_of(&mut self, attach: &Attach) -> Result<Claimant, Refusal> {
        self.authorised(attach).map(|(_, entry)| entry.owner())
    }

    /// Returns the open session of an owner that shows its secret.
    fn authorised(&mut self, attach: &Attach) -> Result<(H, &mut Entry<H>), Refusal> {
        let id = SessionId { pool: attach.pool, index: attach.index };
        let Some(entry) = self.entries.get_mut(&id) else {
            let refusal = Refusal::new(RefusalCode::NotFound, format!("no session {id} here"));
            return Err(Refusal { ended: self.over.cause_for(attach), ..refusal });
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
        match entry.session.state() {
            SessionState::Detached { place, .. } | SessionState::Attached { place, .. } => {
                Ok((place.clone(), entry))
            }
            SessionState::Opening => Err(under_way(id, "opened")),
            // Asked again, the owner learns why.
            SessionState::Ending { .. } | SessionState::Gone => Err(under_way(id, "ended")),
        }
    }

    /// Notes that the stream of an attachment ended.
    pub fn detached(&mut self, now: Duration, id: SessionId, incarnation: Incarnation, attachment: u64) {
        if let Some(entry) = self.entry(id, incarnation) {
            entry.session.on(now, SessionEvent::Detached(attachment));
        }
    }

    /// Begins to end that placement if its owner was not heard of for the time of its lease. The caller ends it as after
    /// [`SessionTable::begin_end`]. Returns `None` if its lease is not over, or it is not here.
    pub fn look(&mut self, now: Duration, id: SessionId, incarnation: Incarnation) -> Option<H> {
        // Not as all the others: a look changes nothing that is reported.
        let entry = self.entries.get_mut(&id).filter(|entry| entry.open.incarnation == incarnation)?;
        let action = entry.session.on(now, SessionEvent::Look)?;
        let SessionAction::End { place, cause } = action else { return None };
        entry.cancel.end(cause.interruption());
        self.version += 1;
        Some(place)
    }

    /// Begins to end a session, whatever the cause: raises its token, after which nothing that was queued for it runs.
    /// The caller that gets the session ends it and then calls [`SessionTable::ended`]. Returns `None` if there is
    /// nothing to do: the session is being made (and will be let go then), is ended by another caller, or is not here.
    pub fn begin_end(
        &mut self,
        now: Duration,
        id: SessionId,
        incarnation: Incarnation,
        cause: EndCause,
    ) -> Option<H> {
        let entry = self.entry(id, incarnation)?;
        let action = entry.session.on(now, SessionEvent::End(cause))?;
        entry.cancel.end(cause.interruption());
        match action {
            SessionAction::End { place, .. } => Some(place),
            _ => {
                self.remove(id);
                self.over.fence_off(id, incarnation, None);
                None
            }
        }
    }

    /// Returns whether the session waits for an owner that never attached.
    pub fn is_unreached(&self, id: SessionId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.owned() && !entry.session.was_attached())
    }

    /// Notes that a session has ended; the end is told until it is acknowledged.
    pub fn ended(&mut self, now: Duration, mut end: SessionEnd) {
        let mut secret = None;
        if let Some(entry) = self.entry(end.session, end.incarnation) {
            let attached = entry.owned().then_some(false);
            let report = SessionReport { attached, transport: None, ..entry.report(end.done.brief()) };
            end.report = Some(Box::new(report));
            secret = Some(entry.open.secret);
            entry.session.on(now, SessionEvent::Ended);
            self.remove(end.session);
        }
        self.over.fence_off(end.session, end.incarnation, secret.map(|secret| (end.cause, secret)));
        self.over.ended(end);
    }

    /// Returns the end of that placement, if it has not been acknowledged yet.
    pub fn end_of(&self, id: SessionId, incarnation: Incarnation) -> Option<&SessionEnd> {
        self.over.end_of(id, incarnation)
    }

    /// Returns the answer to a request to close that placement, when there is nothing to end.
    ///
    /// # Errors
    /// `Busy` while it is being ended, `NotFound` if it is not here and its end is told or forgotten.
    pub fn answer_close(&self, id: SessionId, incarnation: Incarnation) -> Result<SessionEnd, Refusal> {
        if let Some(end) = self.end_of(id, incarnation) {
            return Ok(end.clone());
        }
        if self.entries.get(&id).is_some_and(|entry| entry.open.incarnation == incarnation) {
            return Err(Refusal::busy(format!("session {id} is being ended"), ENDING_RETRY_MS));
        }
        let message = format!("no placement {incarnation} of session {id} here");
        Err(Refusal::new(RefusalCode::NotFound, message))
    }

    /// Returns ends that are to be told, oldest first, at most as many as one message takes, and whether those are all.
    pub fn ends(&self) -> (Vec<SessionEnd>, bool) {
        self.over.ends()
    }

    /// Notes that the coordinator has taken those ends in.
    pub fn acknowledge(&mut self, told: &[SessionEnd]) {
        self.over.acknowledge(told);
    }

    /// Notes that a coordinator knows the node. A newer one than before knows nothing of what ended under the others: it
    /// is told again. Returns whether the node sees it for the first time.
    ///
    /// # Errors
    /// It is outdated: the node has seen a later one, whose placements it would not know.
    pub fn joined(&mut self, coordinator: SeenTerm) -> Result<bool, Refusal> {
        if coordinator.is_behind(self.seen) {
            let (ours, seen) = (coordinator.term, self.seen.term);
            let message = format!(
                "the coordinator has term {ours}, and this node has seen term {seen} of a later one: if it was restored, it \
                 has to be started with --least-term {}",
                seen.saturating_add(1)
            );
            return Err(Refusal::new(RefusalCode::Stale, message));
        }
        self.over.joined(coordinator.term);
        let is_new = self.seen != coordinator;
        self.seen = coordinator;
        Ok(is_new)
    }

    /// Returns the latest coordinator that the node has seen, if there was one.
    pub fn seen(&self) -> Option<SeenTerm> {
        Some(self.seen).filter(|seen| seen.term > 0)
    }

    /// Returns the greatest term of a session that is here, 0 without any.
    pub fn newest_term(&self) -> u64 {
        self.entries.values().map(|entry| entry.open.incarnation.term).max().unwrap_or(0)
    }

    /// Takes no new sessions from now on.
    pub const fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes new sessions again.
    pub const fn undrain(&mut self) {
        self.draining = false;
    }

    /// Returns whether the node takes no new sessions.
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Returns every session here, whatever its stage.
    pub fn all(&self) -> Vec<(SessionId, Incarnation)> {
        self.entries.iter().map(|(&id, entry)| (id, entry.open.incarnation)).collect()
    }

    /// Returns the handles of all open sessions whose owner is attached.
    pub(crate) fn attended(&self) -> Vec<H> {
        let attended = self.entries.values().filter(|entry| entry.session.is_attached());
        attended.filter_map(|entry| entry.session.place().cloned()).collect()
    }

    /// Returns the open sessions that play by themselves, those after `after` first.
    pub(crate) fn rollouts(&self, after: Bound<SessionId>) -> Vec<(SessionId, Incarnation, H)> {
        let before = match after {
            Bound::Excluded(last) => Bound::Included(last),
            Bound::Included(_) | Bound::Unbounded => after,
        };
        let first = self.entries.range((after, Bound::Unbounded));
        let rest = self.entries.range((Bound::Unbounded, before)).filter(|_| after != Bound::Unbounded);
        let plays = first.chain(rest).filter(|(_, entry)| !entry.owned());
        plays
            .filter_map(|(&id, entry)| Some((id, entry.open.incarnation, entry.session.place()?.clone())))
            .collect()
    }

    /// Returns the number of lanes of all sessions here.
    pub fn lanes(&self) -> u32 {
        // No more than the capacity were let in.
        u32::try_from(self.held.lanes()).unwrap_or(u32::MAX)
    }

    /// Returns whether there is no session here.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of sessions here.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of sessions that an owner steps now, by transport.
    pub fn attached(&self) -> BTreeMap<Transport, u64> {
        let mut attached = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| entry.session.is_attached()) {
            *attached.entry(entry.session.transport()).or_default() += 1;
        }
        attached
    }

    /// Returns a number that grows whenever the reports may have changed, apart from what sessions have done.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Notes that there is a change to report of which the table itself does not know.
    pub(crate) const fn touch(&mut self) {
        self.version += 1;
    }

    /// Returns the handle of that placement, if it is open.
    pub(crate) fn placed(&self, id: SessionId, incarnation: Incarnation) -> Option<H> {
        let entry = self.entries.get(&id).filter(|entry| entry.open.incarnation == incarnation)?;
        entry.session.place().cloned()
    }

    /// Returns the number of sessions whose lanes are being launched, those that are being opened among them; `launching`
    /// tells it of a session that is open.
    pub fn launching(&self, launching: impl Fn(&H) -> bool) -> usize {
        let is_launching = |entry: &&Entry<H>| match entry.session.state() {
            SessionState::Opening => true,
            _ => entry.session.place().is_some_and(&launching),
        };
        self.entries.values().filter(is_launching).count()
    }

    /// Has the connecting of a session's lanes shown by that watch from now on.
    pub fn watch_connecting(&mut self, id: SessionId, incarnation: Incarnation, watch: ConnectWatch) {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.open.incarnation == incarnation);
        if let Some(entry) = entry {
            entry.connecting = watch;
        }
    }

    /// Returns the sessions whose lanes try to connect, those that are being opened among them.
    pub fn connecting(&self) -> impl Iterator<Item = ConnectingSession> {
        self.entries.values().filter_map(|entry| {
            let OpenSession { session, incarnation, .. } = entry.open;
            entry.connecting.retries().map(|retries| ConnectingSession { session, incarnation, retries })
        })
    }

    /// Returns the report of every session that is open; `done` tells what a session has done, `launching` whether its
    /// lanes are being launched, `replay` which recorded episode it shows, `plays` by which policy it plays for its owner.
    pub fn reports(
        &self,
        done: impl Fn(&H) -> SessionCounts,
        launching: impl Fn(&H) -> bool,
        replay: impl Fn(&H) -> Option<ReplayReport>,
        plays: impl Fn(&H) -> Option<PlaysReport>,
    ) -> Vec<SessionReport> {
        let report = |entry: &Entry<H>| match entry.session.state() {
            SessionState::Detached { place, .. }
            | SessionState::Attached { place, .. }
            | SessionState::Ending { place } => {
                let (launching, replay, plays) = (launching(place), replay(place), plays(place));
                Some(SessionReport { launching, replay, plays, ..entry.report(done(place)) })
            }
            SessionState::Opening | SessionState::Gone => None,
        };
        self.entries.values().filter_map(report).collect()
    }

    /// Refuses requests of an older coordinator, and placements that were here before.
    fn fence(&self, id: SessionId, incarnation: Incarnation) -> Result<(), Refusal> {
        if incarnation.term < self.seen.term {
            let message = format!("term {} is over, {} has begun", incarnation.term, self.seen.term);
            return Err(Refusal::new(RefusalCode::Stale, message));
        }
        if let Some(entry) = self.entries.get(&id)
            && entry.open.incarnation > incarnation
        {
            return Err(stale(id, incarnation, entry.open.incarnation));
        }
        self.over.fenced(id, incarnation).map_or(Ok(()), |known| Err(stale(id, incarnation, known)))
    }

    fn entry(&mut self, id: SessionId, incarnation: Incarnation) -> Option<&mut Entry<H>> {
        self.version += 1;
        self.entries.get_mut(&id).filter(|entry| entry.open.incarnation == incarnation)
    }

    fn remove(&mut self, id: SessionId) {
        self.version += 1;
        if let Some(entry) = self.entries.remove(&id) {
            self.held.remove(&entry.open.settings.weighed_env(), entry.open.lanes, entry.processes);
            self.places.give_back(&entry.open);
        }
    }

    fn free(&self) -> u32 {
        self.capacity - self.lanes()
    }
}

/// A session in the table; `H` is the handle by which it is reached.
#[derive(Debug)]
struct Entry<H> {
    open: OpenSession,
    /// Number of worker processes that it counts as.
    processes: u32,
    /// The session's token, raised to end it.
    cancel: Cancel,
    /// Connecting of the workers that its lanes have, or of the one that its env is learned from.
    connecting: ConnectWatch,
    /// Those that may watch it, with their keys; the one that was admitted last is at the end.
    watchers: Vec<(Claimant, Secret)>,
    session: NodeSession<H>,
}

impl<H> Entry<H> {
    /// Returns the owner, who has the session's places.
    fn owner(&self) -> Claimant {
        claimant(&self.open.owner, self.open.operates)
    }

    /// Returns whether an owner steps the session.
    const fn owned(&self) -> bool {
        self.open.settings.collect.is_none()
    }

    fn report(&self, done: SessionCounts) -> SessionReport {
        let open = &self.open;
        let attached = self.owned().then(|| self.session.is_attached());
        SessionReport {
            session: open.session,
            incarnation: open.incarnation,
            owner: open.owner.clone(),
            env: open.settings.env.clone(),
            first_lane: open.first_lane,
            lanes: open.lanes,
            pool_lanes: open.pool_lanes,
            replaces: open.replaces,
            launching: false,
            attached,
            transport: (attached == Some(true)).then(|| self.session.transport().word().to_owned()),
            done,
            replay: None,
            plays: None,
        }
    }
}

/// Returns the refusal of a request for a session that is being `changed`.
fn under_way(id: SessionId, changed: &str) -> Refusal {
    Refusal::busy(format!("session {id} is being {changed}"), UNDER_WAY_RETRY_MS)
}

fn stale(id: SessionId, asked: Incarnation, known: Incarnation) -> Refusal {
    Refusal::new(
        RefusalCode::Stale,
        format!("placement {asked} of session {id} is over, {known} was the last"),
    )
}

/// Number of those that are remembered because they may watch one session.
const MAX_ADMITTED: usize = 256;

/// Pause after which a request may be repeated: opening and ending take milliseconds.
const UNDER_WAY_RETRY_MS: u64 = 20;

/// Pause after which a request may be repeated: ending takes milliseconds, unless a step hangs.
const ENDING_RETRY_MS: u64 = 50;

/// Pause after which a request may be repeated: room comes when another session ends.
const ROOM_RETRY_MS: u64 = 1_000;

#[cfg(test)]
mod tests;
