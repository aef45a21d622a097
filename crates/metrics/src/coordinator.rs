//! Figures of a coordinator.

use std::collections::BTreeMap;

use rollhouse_core::Weight;
use rollhouse_wire::{ClusterStatus, NodeState, UnfitReason};

use crate::family::{Family, Kind, Page};

/// Figures of a coordinator at one moment: its cluster and its store.
#[derive(Debug, Clone)]
pub struct CoordinatorSample {
    /// Summary of the cluster, which `status` shows.
    pub status: ClusterStatus,
    /// Number of times that the coordinator failed and was made anew in its process.
    pub restarts: u64,
    /// Number of pools opened since the coordinator's start.
    pub pools_opened: u64,
    /// Number of lanes that wait for room on a node.
    pub waiting_lanes: u64,
    /// The most that nodes say these lanes weigh together.
    pub waiting_weight: Weight,
    /// Number of nodes that have a trouble, by its kind.
    pub unfit_nodes: BTreeMap<UnfitReason, u32>,
    /// Bytes of recordings taken into the store since the coordinator's start.
    pub stored_bytes: u64,
    /// Number of segments dropped to stay within the store's budget.
    pub store_dropped_segments: u64,
    /// Certificates that were asked for: purpose, result, and number.
    pub enrolments: Vec<(&'static str, &'static str, u64)>,
    /// Number of versions of policies that are kept, and their bytes.
    pub policies: (u64, u64),
    /// Number of lines written to the audit, and of those that could not be written.
    pub audit: (u64, u64),
}

impl CoordinatorSample {
    /// Metrics of a coordinator.
    pub const FAMILIES: &'static [Family] = &[
        TERM,
        RESTARTS,
        NODES,
        REFUSED_NODES,
        UNFIT_NODES,
        CAPACITY,
        LANES,
        WAITING_LANES,
        WAITING_CPU,
        WAITING_MEMORY,
        POOLS,
        POOLS_OPENED,
        SESSIONS,
        STORE_SEGMENTS,
        STORE_BYTES,
        QUARANTINED,
        SET_ASIDE,
        STORED_BYTES,
        DROPPED,
        POLICY_VERSIONS,
        POLICY_BYTES,
        ENROLMENTS,
        AUDIT_LINES,
        AUDIT_FAILURES,
    ];

    /// Puts the figures on a page.
    pub fn put(&self, page: &mut Page) {
        let status = &self.status;
        page.value(&TERM, status.term as f64);
        page.labelled(&RESTARTS, &["panicked"], self.restarts as f64);
        for (state, word) in STATES {
            let count = status.nodes.get(&state).copied().unwrap_or_default();
            page.labelled(&NODES, &[word], f64::from(count));
        }
        let refused = status.behind.as_ref().map_or(0, |behind| behind.nodes);
        page.value(&REFUSED_NODES, f64::from(refused));
        for reason in UnfitReason::ALL {
            let count = self.unfit_nodes.get(&reason).copied().unwrap_or_default();
            page.labelled(&UNFIT_NODES, &[reason.word()], f64::from(count));
        }
        page.value(&CAPACITY, f64::from(status.capacity));
        page.value(&LANES, f64::from(status.lanes));
        page.value(&WAITING_LANES, self.waiting_lanes as f64);
        page.value(&WAITING_CPU, self.waiting_weight.cpu_milli as f64 / 1000.0);
        page.value(&WAITING_MEMORY, self.waiting_weight.memory as f64);
        page.value(&POOLS, f64::from(status.pools));
        page.value(&POOLS_OPENED, self.pools_opened as f64);
        page.value(&SESSIONS, f64::from(status.sessions));
        page.value(&STORE_SEGMENTS, status.store.segments as f64);
        page.value(&STORE_BYTES, status.store.bytes as f64);
        page.value(&POLICY_VERSIONS, self.policies.0 as f64);
        page.value(&POLICY_BYTES, self.policies.1 as f64);
        page.value(&QUARANTINED, status.store.quarantined as f64);
        page.value(&SET_ASIDE, status.store.set_aside as f64);
        page.value(&STORED_BYTES, self.stored_bytes as f64);
        page.value(&DROPPED, self.store_dropped_segments as f64);
        page.value(&AUDIT_LINES, self.audit.0 as f64);
        page.value(&AUDIT_FAILURES, self.audit.1 as f64);
        for &(kind, result, count) in &self.enrolments {
            page.labelled(&ENROLMENTS, &[kind, result], count as f64);
        }
    }
}

const STATES: [(NodeState, &str); 4] = [
    (NodeState::Alive, "alive"),
    (NodeState::Suspect, "suspect"),
    (NodeState::Lost, "lost"),
    (NodeState::Draining, "draining"),
];

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Gauge, labels: &[] }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Counter, labels: &[] }
}

const TERM: Family = gauge("rollhouse_coordinator_term", "Term of the coordinator; one more at each start.");
const RESTARTS: Family = Family {
    name: "rollhouse_coordinator_restarts_total",
    help: "Times that the coordinator ended by itself and was made anew in its process, by cause.",
    kind: Kind::Counter,
    labels: &["cause"],
};
const NODES: Family =
    Family { name: "rollhouse_nodes", help: "Known nodes, by state.", kind: Kind::Gauge, labels: &["state"] };
const REFUSED_NODES: Family = gauge(
    "rollhouse_cluster_refused_nodes",
    "Nodes that are refused because they have seen a later coordinator than this one.",
);
const UNFIT_NODES: Family = Family {
    name: "rollhouse_unfit_nodes",
    help: "Nodes that are there and have a trouble, by its kind.",
    kind: Kind::Gauge,
    labels: &["reason"],
};
const CAPACITY: Family =
    gauge("rollhouse_cluster_capacity_lanes", "Lanes that all nodes that are alive take.");
const LANES: Family = gauge("rollhouse_cluster_lanes", "Lanes of open sessions on all nodes.");
const WAITING_LANES: Family = gauge(
    "rollhouse_cluster_waiting_lanes",
    "Lanes that were asked for and wait because no node has room for them.",
);
const WAITING_CPU: Family = gauge(
    "rollhouse_cluster_waiting_cpu_cores",
    "Cores that the lanes take, by their weights, that were asked for and wait.",
);
const WAITING_MEMORY: Family = gauge(
    "rollhouse_cluster_waiting_memory_bytes",
    "Memory that the lanes take, by their weights, that were asked for and wait.",
);
const POOLS: Family = gauge("rollhouse_pools", "Open pools.");
const POOLS_OPENED: Family = counter("rollhouse_pools_opened_total", "Pools that were opened.");
const SESSIONS: Family = gauge("rollhouse_cluster_sessions", "Open sessions on all nodes.");
const STORE_SEGMENTS: Family = gauge("rollhouse_store_segments", "Segments in the store.");
const POLICY_VERSIONS: Family =
    gauge("rollhouse_policy_versions", "Versions of policies that the coordinator keeps.");
const POLICY_BYTES: Family = gauge("rollhouse_policy_bytes", "Bytes of these policies.");
const STORE_BYTES: Family = gauge("rollhouse_store_bytes", "Bytes of the segments in the store.");
const QUARANTINED: Family = gauge(
    "rollhouse_store_quarantined_segments",
    "Segments set aside as a whole: damaged, or under numbers that were taken.",
);
const SET_ASIDE: Family = gauge(
    "rollhouse_store_set_aside_episodes",
    "Episodes set aside: the store has others of their names, or they are in such segments.",
);
const STORED_BYTES: Family =
    counter("rollhouse_store_received_bytes_total", "Bytes of segments that were taken into the store.");
const DROPPED: Family = counter(
    "rollhouse_store_dropped_segments_total",
    "Segments dropped from the store to stay within its budget.",
);
const AUDIT_LINES: Family =
    counter("rollhouse_audit_lines_total", "Changes that were asked for and written to the audit.");
const AUDIT_FAILURES: Family = counter(
    "rollhouse_audit_failures_total",
    "Changes that were refused because the audit could not be written.",
);
const ENROLMENTS: Family = Family {
    name: "rollhouse_enrolments_total",
    help: "Certificates of nodes that were asked for, by what for and what came of it.",
    kind: Kind::Counter,
    labels: &["kind", "result"],
};
