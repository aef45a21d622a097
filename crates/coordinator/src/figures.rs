//! The coordinator's figures, which other threads can read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_wire::{
    ArrivalCounts, BehindStatus, CallHistogram, CallTimes, ClusterStatus, Connection, Effective, LinkFigures,
    LogLine, RefusalCode, RefusalLog, Role, UnfitReason,
};

use crate::audit::{AuditCounts, AuditLog};
use crate::limits::TICK;
use crate::policies::PolicyShelf;
use crate::store::{ArchiveFigures, Store, StoreCounts};
use crate::waiting::WaitingLanes;

/// A coordinator's figures.
#[derive(Debug, Clone)]
pub struct CoordinatorFigures {
    /// The status of the cluster, at most a tick old.
    pub status: ClusterStatus,
    /// Figures of its cluster, as old as the status.
    pub cluster: ClusterFigures,
    /// Counts of the store since its start.
    pub store: StoreCounts,
    /// Number of versions of policies that it keeps, and their bytes.
    pub policies: (u64, u64),
    /// Figures of its archive; `None` without one.
    pub archive: Option<ArchiveFigures>,
    /// Counts of strangers' attempts to connect.
    pub arrivals: ArrivalCounts,
    /// The settings of its socket that are in effect.
    pub effective: Effective,
    /// Number of refused requests by code, and of strangers turned away by reason; each by the role of the peer.
    pub refusals: BTreeMap<(&'static str, Role), u64>,
    /// Number of requests for certificates, by purpose and result.
    pub enrolments: BTreeMap<(CertificateFor, &'static str), u64>,
    /// Times of requests, by the request's word.
    pub calls: BTreeMap<&'static str, CallHistogram>,
    /// Each connection that is open, with its peer's role.
    pub links: Vec<(Role, LinkFigures)>,
    /// Bytes, packets and events of closed connections, added up by role; the other figures are those of the last one.
    pub closed_links: BTreeMap<Role, LinkFigures>,
    /// Counts of its audit.
    pub audit: AuditCounts,
    /// Whether the thread that decides has made progress of late.
    pub alive: bool,
}

/// Figures of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFigures {
    /// Number of pools opened and granted since the coordinator's start.
    pub pools_opened: u64,
    /// Lanes that were refused because no node has room and are expected to be asked for again.
    pub waiting: WaitingLanes,
    /// Number of nodes that have a trouble, by its kind.
    pub unfit_nodes: BTreeMap<UnfitReason, u32>,
}

impl CoordinatorFigures {
    /// Returns how often that code or reason was given, to peers of all roles.
    pub fn refused(&self, word: &str) -> u64 {
        self.refusals.iter().filter(|((of, _), _)| *of == word).map(|(_, count)| count).sum()
    }
}

/// The figures that the coordinator's thread publishes for other threads to read at any time.
#[derive(Debug)]
pub(crate) struct Published {
    state: Mutex<PublishedState>,
    began: Instant,
    /// Whether greater terms are learned from nodes.
    learns: bool,
    /// The changes that were asked for.
    pub(crate) audit: Arc<AuditLog>,
    /// Times of requests.
    pub(crate) calls: CallTimes,
}

/// The purpose of a certificate that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateFor {
    /// A machine joins with it.
    Join,
    /// A node renews its own with it.
    Renewal,
}

impl CertificateFor {
    /// Returns the word in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Renewal => "renewal",
        }
    }
}

#[derive(Debug)]
struct PublishedState {
    status: Option<(ClusterStatus, Instant)>,
    cluster: ClusterFigures,
    arrivals: ArrivalCounts,
    refusals: RefusalLog,
    refused: BTreeMap<(&'static str, Role), u64>,
    enrolments: BTreeMap<(CertificateFor, &'static str), u64>,
    connections: BTreeMap<usize, Connection>,
    closed: BTreeMap<Role, LinkFigures>,
}

impl Published {
    pub(crate) fn new(learns: bool, audit: AuditLog) -> Self {
        let state = PublishedState {
            status: None,
            cluster: ClusterFigures::default(),
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
        let (audit, calls) = (Arc::new(audit), CallTimes::default());
        Self { state: Mutex::new(state), began: Instant::now(), learns, audit, calls }
    }

    pub(crate) fn put(&self, status: ClusterStatus, cluster: ClusterFigures) {
        let mut state = self.lock();
        state.status = Some((status, Instant::now()));
        state.cluster = cluster;
    }

    /// Returns the nodes that have seen a later coordinator, if this one learns its term from them.
    pub(crate) fn wanted_term(&self) -> Option<BehindStatus> {
        let state = self.lock();
        let behind = state.status.as_ref().and_then(|(status, _)| status.behind.clone());
        behind.filter(|_| self.learns)
    }

    pub(crate) fn put_arrivals(&self, arrivals: &ArrivalCounts) {
        self.lock().arrivals.clone_from(arrivals);
    }

    /// Counts a refusal or a peer that was turned away, and returns whether it gets a line in the log.
    pub(crate) fn refused(&self, word: &'static str, whom: Role) -> Option<LogLine> {
        let mut state = self.lock();
        *state.refused.entry((word, whom)).or_default() += 1;
        state.refusals.note(self.began.elapsed(), word)
    }

    /// Counts a certificate that was given, or refused with that code.
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

    /// Returns the figures; `None` before the first tick.
    pub(crate) fn figures(
        &self,
        store: &Store,
        policies: &PolicyShelf,
        effective: Effective,
    ) -> Option<CoordinatorFigures> {
        let state = self.lock();
        let (status, at) = state.status.clone()?;
        let connections: Vec<Connection> = state.connections.values().cloned().collect();
        let figures = CoordinatorFigures {
            status,
            cluster: state.cluster.clone(),
            store: store.counts(),
            policies: policies.counts(),
            archive: store.archive_figures(),
            arrivals: state.arrivals.clone(),
            effective,
            refusals: state.refused.clone(),
            enrolments: state.enrolments.clone(),
            calls: self.calls.histograms(),
            links: Vec::new(),
            closed_links: state.closed.clone(),
            audit: self.audit.counts(),
            alive: at.elapsed() < STUCK_AFTER,
        };
        drop(state);
        let links = connections.iter().map(|c| (c.peer().role, c.figures())).collect();
        Some(CoordinatorFigures { links, ..figures })
    }

    fn lock(&self) -> MutexGuard<'_, PublishedState> {
        // Every change is one assignment, so that a panic leaves none half done.
        self.state.lock()
    }
}

/// Adds up the counts of two connections, and takes the state of the path from the later one.
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

/// Shortest interval between log lines about the same kind of refusal.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Time without a tick after which the thread counts as stuck.
const STUCK_AFTER: Duration = TICK.saturating_mul(12);
