//! Requests.

use std::collections::BTreeMap;

use rollhouse_core::{Clock, Pace};
use rollhouse_wire::{
    AdmitWatcher, Attach, AttachMemory, AuditQuery, Changes, ClosePool, CloseSession, Collect, Drain,
    EndCause, Enroll, Heartbeat, Hello, ListAfter, NodeLoad, OpenCommands, OpenPool, OpenSession, OpenWatch,
    PoolStatusRequest, Register, ReplaceSession, Request, SeenTerm, SessionEnd, SessionReport, Ship, Spread,
    StatusRequest, StoreLabel, StoreLabelChange, StoreLabelPlace, StoreLabels, StoreList, StoreQuery,
    StoreRead, StoreRepair, StoreStatsRequest, Undrain, Versions, Watch,
};

use super::values::{
    INCARNATION, POOL, counts, labels, load, register, report, secret, session, settings, unfit, weight,
    with_budget,
};
use super::{Sample, sample};

pub(crate) fn requests() -> Vec<Sample> {
    let hello = Hello {
        versions: Versions { oldest: 1, newest: 1 },
        program: "rollhouse/0.1.0".into(),
        token: Some("rh_0123456789_secret".into()),
    };
    let open_pool =
        OpenPool { pool: POOL, lanes: 64, settings: settings(), labels: labels(), spread: Spread::Even };
    let end = SessionEnd {
        session: session(),
        incarnation: INCARNATION,
        cause: EndCause::LeaseEnded,
        detail: String::new(),
        done: counts(),
        report: None,
        unreached: false,
    };
    let changes = Changes { since: 40, through: 42, sessions: vec![report()], more: false };
    let heartbeat = Heartbeat {
        number: 9,
        load: load(),
        changes,
        ended: vec![end],
        unfit: None,
        draining: false,
        measured: BTreeMap::new(),
        connecting: Vec::new(),
        standings: Vec::new(),
    };
    let open_session = OpenSession {
        session: session(),
        incarnation: INCARNATION,
        secret: secret(),
        owner: "ada".into(),
        operates: false,
        first_lane: 32,
        lanes: 32,
        pool_lanes: 64,
        replaces: false,
        resume: None,
        settings: settings(),
    };
    let close = CloseSession { session: session(), incarnation: INCARNATION };
    let ship =
        Ship { spool: "k3f9q2tz".into(), segment: 12, bytes: 1 << 20, crc: 0xdead_beef, owned: Vec::new() };
    let attach = Attach { pool: POOL, index: 1, incarnation: INCARNATION, secret: secret(), log: false };
    let replace = ReplaceSession {
        open: open_pool.clone(),
        index: 1,
        incarnation: INCARNATION,
        first_lane: 32,
        lanes: 32,
        dynamics: 0x0123_4567_89ab_cdef,
        moving: true,
        node: String::new(),
        replaces: false,
    };
    let attach_memory = AttachMemory {
        version: 1,
        pool: POOL,
        index: 1,
        incarnation: INCARNATION,
        secret: secret(),
        log: false,
    };
    let commands = OpenCommands { pool: POOL, index: 1, incarnation: INCARNATION, secret: secret() };
    let list = StoreList { path: "n1-k3f9q2tz/segments".into(), after: "0000000011.seg".into() };
    let read = StoreRead { path: "n1-k3f9q2tz/segments/0000000012.seg".into(), offset: 4096, bytes: 65_536 };
    let repair = StoreRepair { path: "n1-k3f9q2tz/segments/0000000012.seg".into() };
    let query = StoreQuery {
        env: Some("CartPole-v1".into()),
        outcome: Some("terminated".into()),
        result: None,
        all_outcomes: false,
        options: Default::default(),
        min_return: Some(150.0),
        min_agent_returns: Default::default(),
        run: Some(POOL.short()),
        sort: "-return".into(),
        limit: 50,
        after: vec![1, 2, 3, 4, 5],
    };
    vec![
        sample("request-hello", Request::Hello(hello)),
        sample("request-open_pool", Request::OpenPool(open_pool)),
        sample("request-close_pool", Request::ClosePool(ClosePool { pool: POOL })),
        sample("request-pool_status", Request::PoolStatus(PoolStatusRequest { pool: POOL, keep: false })),
        sample("request-status", Request::Status(StatusRequest {})),
        sample("request-nodes", Request::Nodes(ListAfter::default())),
        sample("request-sessions", Request::Sessions(ListAfter::default())),
        sample("request-drain", Request::Drain(Drain { node: "n1".into() })),
        sample("request-undrain", Request::Undrain(Undrain { node: "n1".into() })),
        sample("request-register", Request::Register(register())),
        sample("request-heartbeat", Request::Heartbeat(heartbeat)),
        sample("request-ship", Request::Ship(ship)),
        sample("request-envs", Request::Envs(ListAfter::default())),
        sample("request-open_session", Request::OpenSession(open_session)),
        sample("request-close_session", Request::CloseSession(close)),
        sample("request-attach", Request::Attach(attach)),
        sample("request-attach_memory", Request::AttachMemory(attach_memory)),
        sample("request-commands", Request::Commands(commands)),
        sample("request-replace_session", Request::ReplaceSession(replace)),
        sample("request-store_list", Request::StoreList(list)),
        sample("request-store_read", Request::StoreRead(read)),
        sample("request-store_repair", Request::StoreRepair(repair)),
        sample("request-store_query", Request::StoreQuery(query)),
        sample("request-store_stats", Request::StoreStats(StoreStatsRequest {})),
        sample(
            "request-enroll",
            Request::Enroll(Enroll { node: "n1".into(), request: vec![0x30, 0x03, 1, 2, 3] }),
        ),
        sample("request-watch", Request::Watch(Watch { session: session() })),
        sample(
            "request-admit_watcher",
            Request::AdmitWatcher(AdmitWatcher {
                session: session(),
                incarnation: INCARNATION,
                owner: String::new(),
                operates: false,
            }),
        ),
        sample(
            "request-open_watch",
            Request::OpenWatch(OpenWatch { pool: POOL, index: 1, incarnation: INCARNATION, key: secret() }),
        ),
        label("request-store_label", StoreLabelChange::Note { note: Some("why it matters".into()) }),
        sample(
            "request-store_labels",
            Request::StoreLabels(StoreLabels {
                after: Some(StoreLabelPlace { run: POOL, lane: 17, number: 203 }),
            }),
        ),
        sample("request-audit", Request::Audit(AuditQuery { before: Some(1_207), limit: 250 })),
    ]
}

pub(super) fn label(name: &'static str, change: StoreLabelChange) -> Sample {
    sample(name, Request::StoreLabel(StoreLabel { run: POOL, lane: 17, number: 203, change }))
}

/// Requests with fields that are left out of most.
pub(super) fn further_requests() -> Vec<Sample> {
    let described = SessionReport { replaces: true, attached: Some(false), transport: None, ..report() };
    let end = SessionEnd {
        session: session(),
        incarnation: INCARNATION,
        cause: EndCause::LeaseEnded,
        detail: String::new(),
        done: counts(),
        report: Some(Box::new(described)),
        unreached: true,
    };
    let heartbeat = Heartbeat {
        number: 1,
        load: load(),
        changes: Changes::default(),
        ended: vec![end],
        unfit: Some(unfit()),
        draining: true,
        measured: BTreeMap::new(),
        connecting: Vec::new(),
        standings: Vec::new(),
    };
    let measured = Heartbeat {
        measured: [("gymnasium:CartPole-v1".into(), weight())].into(),
        load: NodeLoad { taken: weight(), ..load() },
        changes: Changes::default(),
        ..heartbeat.clone()
    };
    let open =
        OpenPool { pool: POOL, lanes: 64, settings: settings(), labels: labels(), spread: Spread::Even };
    let replace = ReplaceSession {
        open,
        index: 1,
        incarnation: INCARNATION,
        first_lane: 32,
        lanes: 32,
        dynamics: 0x0123_4567_89ab_cdef,
        moving: false,
        node: "n1".into(),
        replaces: true,
    };
    let mut leased =
        OpenPool { pool: POOL, lanes: 64, settings: settings(), labels: labels(), spread: Spread::Even };
    leased.settings.collect = leased.settings.collect.map(|collect| Collect { leased: true, ..collect });
    let mut live =
        OpenPool { pool: POOL, lanes: 64, settings: settings(), labels: labels(), spread: Spread::Even };
    (live.settings.collect, live.settings.pace) = (None, Some(Pace { hz: 25.0, clock: Clock::Charged }));
    let keep = PoolStatusRequest { pool: POOL, keep: true };
    vec![
        label("request-store_label-pin", StoreLabelChange::Pin { pinned: true }),
        label("request-store_label-tag", StoreLabelChange::Tag { tags: vec!["best".into()] }),
        label("request-store_label-untag", StoreLabelChange::Untag { tags: vec!["best".into()] }),
        sample("request-open_pool-leased", Request::OpenPool(leased)),
        sample("request-open_pool-live", Request::OpenPool(live)),
        sample("request-pool_status-keep", Request::PoolStatus(keep)),
        sample("request-heartbeat-retold", Request::Heartbeat(heartbeat)),
        sample("request-heartbeat-measured", Request::Heartbeat(measured)),
        sample("request-register-budget", Request::Register(with_budget())),
        sample(
            "request-register-seen",
            Request::Register(Register { seen: Some(SeenTerm { term: 4, boot: 41 }), ..register() }),
        ),
        sample("request-replace_session-unknown", Request::ReplaceSession(replace)),
    ]
}
