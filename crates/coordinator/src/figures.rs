//! What a coordinator shows of itself to other threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rollhouse_wire::{
    ArrivalCounts, CallHistogram, CallTimes, ClusterStatus, Connection, Effective, LinkFigures, LogLine,
    RefusalCode, RefusalLog, Role,
};

use crate::data::learned_term;
use crate::limits::TICK;
use crate::{ArchiveFigures, Store, StoreCounts};

/// A coordinator's figures.
#[derive(Debug, Clone)]
pub struct CoordinatorFigures {
    /// The cluster at a glance, at most a tick old.
    pub status: ClusterStatus,
    /// Pools opened and granted since its start.
    pub pools_opened: u64,
    /// Lanes that were refused for want of room and are expected to be asked for again; at most a second old.
    pub waiting_lanes: u64,
    /// What the store has done since its start.
    pub store: StoreCounts,
    /// What its archive has; `None` without one.
    pub archive: Option<ArchiveFigures>,
    /// How strangers fared.
    pub arrivals: ArrivalCounts,
    /// What came of the settings of its socket.
    pub effective: Effective,
    /// Requests that were refused, by code, and strangers who were turned away, by reason; by the role of whom they met.
    pub refusals: BTreeMap<(&'static str, Role), u64>,
    /// Certificates that were asked for, by what for and what came of it.
    pub enrolments: BTreeMap<(CertificateFor, &'static str), u64>,
    /// Times of requests.
    pub calls: BTreeMap<&'static str, CallHistogram>,
    /// Each connection that is open, with its peer's role.
    pub links: Vec<(Role, LinkFigures)>,
    /// Bytes, packets and events of connections that are no more, added up by role; what else there is of them is
    /// the last one's.
    pub closed_links: BTreeMap<Role, LinkFigures>,
    /// Whether the thread that decides was seen to turn of late.
    pub alive: bool,
}

impl CoordinatorFigures {
    /// How often that code or reason met somebody, whatever his role.
    pub fn refused(&self, word: &str) -> u64 {
        self.refusals.iter().filter(|((of, _), _)| *of == word).map(|(_, count)| count).sum()
    }
}

/// What the coordinator's thread leaves here for others to read at any time.
#[derive(Debug)]
pub(crate) struct Published {
    state: Mutex<State>,
    began: Instant,
    /// Whether greater terms are learned from nodes.
    learns: bool,
    /// Times of requests.
    pub(crate) calls: CallTimes,
}

/// What a certificate is asked for for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateFor {
    /// A machine joins.
    Join,
    /// A node's next one.
    Renewal,
}

impl CertificateFor {
    /// The word in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Renewal => "renewal",
        }
    }
}

#[derive(Debug)]
struct State {
    status: Option<(ClusterStatus, Instant)>,
    pools_opened: u64,
    waiting_lanes: u64,
    /// The greatest of a node's sessions that is above ours, plus one, and the node.
    wanted_term: Option<(u64, String)>,
    arrivals: ArrivalCounts,
    refusals: RefusalLog,
    refused: BTreeMap<(&'static str, Role), u64>,
    enrolments: BTreeMap<(CertificateFor, &'static str), u64>,
    connections: BTreeMap<usize, Connection>,
    closed: BTreeMap<Role, LinkFigures>,
}

impl Published {
    pub(crate) fn new(learns: bool) -> Self {
        let state = State {
            status: None,
            pools_opened: 0,
            waiting_lanes: 0,
            wanted_term: None,
            arrivals: ArrivalCounts::default(),
            refusals: RefusalLog::new(LOG_EVERY),
            refused: BTreeMap::new(),
            // Counted from nothing: the first that is refused is to be seen as one more.
            enrolments: [CertificateFor::Join, CertificateFor::Renewal]
                .map(|what| ((what, Self::GIVEN), 0))
                .into(),
            connections: BTreeMap::new(),
            closed: BTreeMap::new(),
        };
        Self { state: Mutex::new(state), began: Instant::now(), learns, calls: CallTimes::default() }
    }

    pub(crate) fn put(&self, status: ClusterStatus, pools_opened: u64, waiting_lanes: u64) {
        let mut state = self.lock();
        state.status = Some((status, Instant::now()));
        state.pools_opened = pools_opened;
        state.waiting_lanes = waiting_lanes;
    }

    /// A node has told of a term while ours is another; kept if we learn from it.
    pub(crate) fn told_of_term(&self, ours: u64, told: u64, node: &str) {
        let Some(term) = learned_term(ours, told).filter(|_| self.learns) else { return };
        let mut state = self.lock();
        if state.wanted_term.as_ref().is_none_or(|(wanted, _)| *wanted < term) {
            state.wanted_term = Some((term, node.to_owned()));
        }
    }

    pub(crate) fn wanted_term(&self) -> Option<(u64, String)> {
        self.lock().wanted_term.clone()
    }

    pub(crate) fn put_arrivals(&self, arrivals: &ArrivalCounts) {
        self.lock().arrivals.clone_from(arrivals);
    }

    /// Counts a refusal or somebody who was turned away; says whether it gets a line in the log.
    pub(crate) fn refused(&self, word: &'static str, whom: Role) -> Option<LogLine> {
        let mut state = self.lock();
        *state.refused.entry((word, whom)).or_default() += 1;
        state.refusals.note(self.began.elapsed(), word)
    }

    /// A certificate was given, or refused with that code.
    pub(crate) fn enrolled(&self, what: CertificateFor, refused: Option<RefusalCode>) {
        let result = refused.map_or(Self::GIVEN, RefusalCode::word);
        *self.lock().enrolments.entry((what, result)).or_default() += 1;
    }

    const GIVEN: &str = "given";

    pub(crate) fn connected(&self, connection: &Connection) {
        self.lock().connections.insert(connection.id(), connection.clone());
    }

    pub(crate) fn disconnected(&self, connection: &Connection) {
        let last = connection.figures();
        let mut state = self.lock();
        state.connections.remove(&connection.id());
        let before = state.closed.get(&connection.peer().role).copied();
        let sum = before.map_or(last, |before| added(before, last));
        state.closed.insert(connection.peer().role, sum);
    }

    /// The figures; `None` before the first tick.
    pub(crate) fn figures(&self, store: &Store, effective: Effective) -> Option<CoordinatorFigures> {
        let state = self.lock();
        let (status, at) = state.status.clone()?;
        let connections: Vec<Connection> = state.connections.values().cloned().collect();
        let figures = CoordinatorFigures {
            status,
            pools_opened: state.pools_opened,
            waiting_lanes: state.waiting_lanes,
            store: store.counts(),
            archive: store.archive_figures(),
            arrivals: state.arrivals.clone(),
            effective,
            refusals: state.refused.clone(),
            enrolments: state.enrolments.clone(),
            calls: self.calls.histograms(),
            links: Vec::new(),
            closed_links: state.closed.clone(),
            alive: at.elapsed() < STUCK_AFTER,
        };
        drop(state);
        let links = connections.iter().map(|c| (c.peer().role, c.figures())).collect();
        Some(CoordinatorFigures { links, ..figures })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so that a panic leaves none half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What two connections have done, and how the path of the later one was.
fn added(before: LinkFigures, last: LinkFigures) -> LinkFigures {
    LinkFigures {
        sent_bytes: before.sent_bytes + last.sent_bytes,
        received_bytes: before.received_bytes + last.received_bytes,
        sent_packets: before.sent_packets + last.sent_packets,
        lost_packets: before.lost_packets + last.lost_packets,
        congestion_events: before.congestion_events + last.congestion_events,
        black_holes: before.black_holes + last.black_holes,
        ..last
    }
}

/// At most one line per kind of refusal in that time.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// After so many ticks that did not come, the thread is stuck.
const STUCK_AFTER: Duration = TICK.saturating_mul(12);
