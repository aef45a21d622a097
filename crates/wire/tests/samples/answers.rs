//! Answers, and what watchers say and are told.

use std::collections::BTreeMap;

use rollhouse_wire::{
    Answer, Attached, AuditLine, AuditPage, BehindStatus, CloseSession, ClusterStatus, CommandsOpened, Done,
    EndCause, Enrolled, EnvList, GoneSession, Grant, HeartbeatTaken, LookAnswer, LookParams, MemoryAttached,
    NodeList, NodeState, NodeStatus, OfferedEnv, PoolOpened, PoolStatus, Refusal, RefusalCode, Registered,
    Role, SessionEnd, SessionList, SessionOpened, SessionReplaced, SessionStatus, Shipped, SoFarFrom,
    SoFarParams, StoreData, StoreEntry, StoreLabelPage, StoreListing, StoreRepaired, StoreStatus, WatchGrant,
    WatcherAdmitted, Welcome,
};

use super::values::{
    INCARNATION, POSITION, counts, episodes, labelled, labels, lane_frame, load, report, secret, session,
    so_far, spec, stats, step_state, unfit, weight,
};
use super::{Sample, answer, sample};

pub(super) fn answers() -> Vec<Sample> {
    let grant = Grant {
        index: 1,
        incarnation: INCARNATION,
        secret: secret(),
        node: "n1".into(),
        address: "10.0.0.7:7610".into(),
        attach: Some("/var/lib/rollhouse/attach.sock".into()),
        first_lane: 32,
        lanes: 32,
    };
    let pool_status = PoolStatus {
        open: 1,
        ended: BTreeMap::from([(EndCause::Finished, 1), (EndCause::NodeLost, 2)]),
        gone: vec![GoneSession { index: 2, incarnation: INCARNATION, cause: EndCause::NodeLost }],
        failures: vec!["n2: the env panicked".into()],
        done: counts(),
        shipped: true,
        settled: false,
        set_aside: 0,
    };
    let status = ClusterStatus {
        program: "rollhouse/0.1.0".into(),
        term: 3,
        uptime_s: 86_400,
        nodes: BTreeMap::from([(NodeState::Alive, 2), (NodeState::Draining, 1)]),
        capacity: 8192,
        lanes: 64,
        pools: 1,
        sessions: 2,
        steps: 6_400,
        episodes: 31,
        transports: BTreeMap::from([("quic".into(), 2)]),
        store: StoreStatus { segments: 12, bytes: 1 << 24, ..StoreStatus::default() },
        behind: None,
    };
    let node = NodeStatus {
        node: "n1".into(),
        state: NodeState::Suspect,
        address: "10.0.0.7:7610".into(),
        capacity: 4096,
        threads: 8,
        labels: labels(),
        sessions: 2,
        silent_ms: 3_100,
        load: load(),
        program: "rollhouse/0.1.0".into(),
        kinds: Vec::new(),
        budget: None,
        unfit: None,
    };
    let close = vec![CloseSession { session: session(), incarnation: INCARNATION }];
    let end = SessionEnd {
        session: session(),
        incarnation: INCARNATION,
        cause: EndCause::Closed,
        detail: String::new(),
        done: counts(),
        report: None,
        unreached: false,
    };
    let program = "rollhouse/0.1.0".to_owned();
    let welcome = Welcome { version: 1, program, role: Role::Trainer, owner: String::new() };
    let entry = StoreEntry { name: "0000000012.seg".into(), bytes: Some(1 << 20) };
    vec![
        answer("answer-hello", welcome.clone()),
        answer("answer-hello-owner", Welcome { owner: "ada:k3f9".into(), ..welcome }),
        answer(
            "answer-open_pool",
            PoolOpened { spec: spec(), lease_ms: 30_000, sessions: vec![grant.clone()] },
        ),
        answer("answer-replace_session", SessionReplaced { grant, lease_ms: 30_000 }),
        answer("answer-pool_status", pool_status.clone()),
        answer(
            "answer-pool_status-aside",
            PoolStatus { shipped: false, settled: true, set_aside: 4, ..pool_status },
        ),
        answer("answer-status", status.clone()),
        answer(
            "answer-status-behind",
            ClusterStatus {
                behind: Some(BehindStatus { term: 4, node: "n1".into(), nodes: 2 }),
                ..status.clone()
            },
        ),
        answer(
            "answer-status-aside",
            ClusterStatus { store: StoreStatus { quarantined: 1, set_aside: 4, ..status.store }, ..status },
        ),
        answer(
            "answer-envs",
            EnvList {
                envs: vec![
                    OfferedEnv {
                        env: "CartPole-v1".into(),
                        dynamics_hash: Some(0x0123_4567_89ab_cdef),
                        nodes: 3,
                        free_lanes: 512,
                    },
                    OfferedEnv { env: "gymnasium:*".into(), dynamics_hash: None, nodes: 2, free_lanes: 256 },
                ],
                omitted: 0,
            },
        ),
        answer("answer-nodes", NodeList { nodes: vec![node.clone()], omitted: 0 }),
        answer(
            "answer-nodes-budget",
            NodeList {
                nodes: vec![NodeStatus { budget: Some(weight().times(8)), ..node.clone() }],
                omitted: 0,
            },
        ),
        answer(
            "answer-nodes-unfit",
            NodeList { nodes: vec![NodeStatus { unfit: Some(unfit()), ..node }], omitted: 0 },
        ),
        answer(
            "answer-sessions",
            SessionList {
                sessions: vec![SessionStatus { node: "n1".into(), report: report(), connecting: 0 }],
                omitted: 3,
            },
        ),
        answer("answer-drain", Done {}),
        answer("answer-register", Registered { term: 3, boot: 0, heartbeat_ms: 1_000, known: 40 }),
        answer("answer-register-boot", Registered { term: 3, boot: 41, heartbeat_ms: 1_000, known: 40 }),
        answer(
            "answer-heartbeat",
            HeartbeatTaken { number: 9, known: 42, close, drain: false, undrain: false },
        ),
        answer(
            "answer-heartbeat-undrain",
            HeartbeatTaken { number: 9, known: 42, close: Vec::new(), drain: false, undrain: true },
        ),
        answer("answer-ship", Shipped::Durable),
        answer("answer-open_session", SessionOpened { spec: spec(), lease_ms: 30_000, replay: false }),
        answer("answer-close_session", end),
        answer(
            "answer-attach",
            Attached { lanes: 32, last: 41, logs: false, as_done: false, plays: false, paced: false },
        ),
        answer(
            "answer-attach-as_done",
            Attached { lanes: 32, last: 0, logs: true, as_done: true, plays: false, paced: false },
        ),
        answer(
            "answer-attach-log",
            Attached { lanes: 32, last: 0, logs: true, as_done: false, plays: false, paced: false },
        ),
        answer(
            "answer-attach-plays",
            Attached { lanes: 32, last: 0, logs: true, as_done: true, plays: true, paced: false },
        ),
        answer(
            "answer-attach-paced",
            Attached { lanes: 32, last: 0, logs: false, as_done: true, plays: false, paced: true },
        ),
        answer(
            "answer-attach_memory",
            MemoryAttached { lanes: 32, last: 41, generation: 2, logs: false, refused: None, paced: false },
        ),
        answer("answer-commands", CommandsOpened { lanes: 32 }),
        answer(
            "answer-watch",
            WatchGrant {
                session: session(),
                incarnation: INCARNATION,
                key: secret(),
                node: "n1".into(),
                address: "10.0.0.7:7610".into(),
            },
        ),
        answer("answer-admit_watcher", WatcherAdmitted { key: secret() }),
        sample("watch-look", LookParams { lane: 3, after: 41, wait_ms: 100, picture: false }),
        sample("watch-look-answer", LookAnswer { frame: Some(lane_frame()), replay: None }),
        sample("watch-look-nothing", LookAnswer { frame: None, replay: None }),
        sample("watch-so_far", SoFarParams { lane: 3, from: 0 }),
        sample("watch-so_far-answer", so_far(SoFarFrom::Reset(POSITION))),
        sample("watch-so_far-answer-step", so_far(SoFarFrom::Step(Box::new(step_state())))),
        answer("answer-store_list", StoreListing { entries: vec![entry], more: false }),
        answer("answer-store_read", StoreData { bytes: 65_536, file_bytes: 1 << 20 }),
        answer("answer-store_repair", StoreRepaired { bytes: 65_536, damaged: true }),
        answer("answer-store_label", labelled()),
        answer("answer-audit", AuditPage { lines: vec![audit_line()], more: true }),
        answer("answer-store_labels", StoreLabelPage { labels: vec![labelled()], more: false }),
        answer(
            "answer-enroll",
            Enrolled {
                certificate: "-----BEGIN CERTIFICATE-----\n".into(),
                authorities: "-----BEGIN CERTIFICATE-----\n".into(),
            },
        ),
        answer("answer-store_query", episodes()),
        answer("answer-store_stats", stats()),
        sample("refused", Answer::<Done>::Refused(Refusal::busy("the queue of 64 batches is full", 20))),
        sample("refused-plain", Answer::<Done>::Refused(Refusal::new(RefusalCode::NotFound, "no node `n9`"))),
    ]
}

fn audit_line() -> AuditLine {
    AuditLine {
        number: 1_206,
        at_ms: 1_764_000_000_000,
        by: "admin `ops`".into(),
        from: "192.0.2.7:40404".into(),
        action: "drain".into(),
        subject: "node-1".into(),
    }
}
