//! What a coordinator relies on of a node: fencing, capacity, leases, and ends that are told until they are heard.

use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::RunId;
use rollhouse_wire::{
    CloseSession, EndCause, Heartbeat, HeartbeatTaken, Incarnation, NodeLoad, OpenSession, Refusal,
    RefusalCode, Register, Registered, ReportLog, SessionCounts, SessionEnd, SessionId, SessionOpened,
    SessionReport,
};

use crate::world::spec;

pub(crate) const LEASE_MS: u64 = 30_000;
/// Sessions whose changes one heartbeat tells.
const REPORTS: usize = 3;
pub(crate) const ENV: &str = "Sim-v0";

pub(crate) struct Held {
    pub(crate) incarnation: Incarnation,
    pub(crate) lanes: u32,
    report: SessionReport,
    /// When its owner was last heard of.
    pub(crate) owner_at: u64,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) boot: u64,
    pub(crate) capacity: u32,
    pub(crate) dynamics: u64,
    pub(crate) draining: bool,
    pub(crate) sessions: BTreeMap<SessionId, Held>,
    pub(crate) term: u64,
    /// The newest incarnation seen of each session, kept for as long as the node lives.
    seen: BTreeMap<SessionId, Incarnation>,
    ended: Vec<SessionEnd>,
    /// Ends that a coordinator has heard of: the next one has to.
    told: Vec<SessionEnd>,
    heartbeats: u64,
    log: ReportLog,
}

impl Node {
    pub(crate) fn new(name: String, boot: u64, capacity: u32, dynamics: u64) -> Self {
        Self {
            name,
            boot,
            capacity,
            dynamics,
            draining: false,
            sessions: BTreeMap::new(),
            term: 0,
            seen: BTreeMap::new(),
            ended: Vec::new(),
            told: Vec::new(),
            heartbeats: 0,
            log: ReportLog::default(),
        }
    }

    pub(crate) fn lanes(&self) -> u32 {
        self.sessions.values().map(|held| held.lanes).sum()
    }

    pub(crate) fn register(&mut self) -> Register {
        self.heartbeats = 0;
        Register {
            node: self.name.clone(),
            boot: self.boot,
            address: format!("{}:7610", self.name),
            attach: None,
            capacity: self.capacity,
            threads: 1,
            labels: BTreeMap::new(),
            envs: BTreeMap::from([(ENV.to_owned(), self.dynamics)]),
            term: self.sessions.values().map(|held| held.incarnation.term).max().unwrap_or(0),
            program: "simulated".to_owned(),
        }
    }

    fn reports(&self) -> Vec<SessionReport> {
        self.sessions.values().map(|held| held.report.clone()).collect()
    }

    /// False: the coordinator is older than one it knew.
    pub(crate) fn registered(&mut self, registered: &Registered) -> bool {
        if registered.term < self.term {
            return false;
        }
        if registered.term > self.term {
            self.ended.append(&mut self.told);
        }
        self.term = registered.term;
        self.log.begin(registered.known);
        true
    }

    pub(crate) fn heartbeat(&mut self) -> Heartbeat {
        self.heartbeats += 1;
        self.log.update(self.reports());
        // Few at a time, so that what is told in parts is met as well.
        let changes = self.log.changes(REPORTS);
        let load = NodeLoad { lanes: self.lanes(), ..NodeLoad::default() };
        Heartbeat {
            number: self.heartbeats,
            load,
            changes,
            ended: self.ended.clone(),
            unfit: None,
            draining: false,
        }
    }

    /// `told` are the ends that the heartbeat carried, `since` is where its changes began.
    pub(crate) fn taken(&mut self, taken: &HeartbeatTaken, since: u64, told: &[SessionEnd]) {
        self.log.acknowledge(since, taken.known);
        self.told.extend(self.ended.extract_if(.., |end| told.contains(end)));
        self.draining |= taken.drain;
        self.close_all(&taken.close);
    }

    fn close_all(&mut self, close: &[CloseSession]) {
        for close in close {
            if self.sessions.get(&close.session).is_some_and(|held| held.incarnation == close.incarnation) {
                self.end(close.session, EndCause::Closed);
            }
        }
    }

    pub(crate) fn open(&mut self, request: &OpenSession, now: u64) -> Result<SessionOpened, Refusal> {
        let OpenSession { session, incarnation, lanes, .. } = *request;
        let seen = self.seen.get(&session).copied().unwrap_or_default();
        let held = self.sessions.get(&session).map(|held| held.incarnation);
        let opened = SessionOpened { spec: spec(self.dynamics), lease_ms: LEASE_MS, replay: false };
        if held == Some(incarnation) {
            return Ok(opened);
        }
        if incarnation.term < self.term || incarnation <= seen {
            return Err(Refusal::new(RefusalCode::Stale, "a newer incarnation was seen"));
        }
        if self.draining {
            return Err(Refusal::new(RefusalCode::Draining, "draining"));
        }
        let others = self.lanes() - self.sessions.get(&session).map_or(0, |held| held.lanes);
        if others + lanes > self.capacity {
            return Err(Refusal::busy("capacity", 500));
        }
        if held.is_some() {
            self.end(session, EndCause::Closed);
        }
        self.seen.insert(session, incarnation);
        let report = SessionReport {
            session,
            incarnation,
            owner: request.owner.clone(),
            env: request.settings.env.clone(),
            first_lane: request.first_lane,
            lanes,
            pool_lanes: request.pool_lanes,
            replaces: request.replaces,
            attached: Some(false),
            transport: None,
            done: SessionCounts::default(),
            replay: None,
        };
        self.sessions.insert(session, Held { incarnation, lanes, report, owner_at: now });
        Ok(opened)
    }

    pub(crate) fn close(&mut self, request: &CloseSession) -> Result<SessionEnd, Refusal> {
        let seen = self.seen.entry(request.session).or_default();
        *seen = (*seen).max(request.incarnation);
        match self.sessions.get(&request.session) {
            Some(held) if held.incarnation == request.incarnation => {
                Ok(self.end(request.session, EndCause::Closed))
            }
            Some(held) if held.incarnation > request.incarnation => {
                Err(Refusal::new(RefusalCode::Stale, "a newer incarnation runs"))
            }
            _ => Err(Refusal::new(RefusalCode::NotFound, "no such session")),
        }
    }

    /// Owners of these pools are heard of; the sessions of others end when their lease does, if they have one.
    pub(crate) fn leases(&mut self, owned: &BTreeSet<RunId>, now: u64, end: bool) -> u64 {
        for (id, held) in &mut self.sessions {
            if owned.contains(&id.pool) {
                held.owner_at = now;
                held.report.attached = Some(true);
                held.report.done.steps += 1;
            } else if held.report.attached == Some(true) {
                held.report.attached = Some(false);
            }
        }
        let over: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, h)| end && now - h.owner_at >= LEASE_MS)
            .map(|(&id, _)| id)
            .collect();
        for &id in &over {
            self.end(id, EndCause::LeaseEnded);
        }
        over.len() as u64
    }

    fn end(&mut self, session: SessionId, cause: EndCause) -> SessionEnd {
        let held = self.sessions.remove(&session).expect("only sessions that are held are ended");
        let end = SessionEnd {
            session,
            incarnation: held.incarnation,
            cause,
            detail: String::new(),
            done: held.report.done,
            report: Some(Box::new(held.report)),
            unreached: false,
        };
        self.ended.push(end.clone());
        end
    }
}
