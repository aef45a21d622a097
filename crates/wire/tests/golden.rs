//! Every message as bytes: one file each under `golden/`, and all of them for people in `golden/README.md`.
//!
//! `ROLLHOUSE_WRITE_GOLDEN=1 cargo test -p rollhouse-wire --test golden` writes them. Once a version is released
//! its files stay as they are: what they hold must be read forever.
//!
//! `previous/` has the messages of the version before this one, which processes of both say to each other during an upgrade
//! and a roll-back. `ROLLHOUSE_WRITE_PREVIOUS=1` makes today's the previous ones, once after each release.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests outside of test functions")]

mod messagepack;
mod replay_messages;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;

use messagepack::Value;
use rollhouse_core::msgpack::Message;
use rollhouse_core::{
    AutoresetMode, Began, BoxSpace, Budget, ColumnSpec, DType, Determinism, EnvSpec, EnvTerms, Goal,
    OptionSpec, OptionValue, RecordRule, RunId, SeedSchedule, Space, Start, Weight, Workers, messages,
};
use rollhouse_wire::{
    AdmitWatcher, Answer, Attach, AttachMemory, Attached, Changes, ClosePool, CloseSession, ClusterStatus,
    Collect, CommandsOpened, Done, Drain, EndCause, Enroll, Enrolled, EnvList, Envelope, FrameHeader,
    FrameKind, GoneSession, Grant, Heartbeat, HeartbeatTaken, Hello, Incarnation, LaneFrame, LanePosition,
    LaneSettings, LookAnswer, LookParams, LostLane, MemoryAttached, NodeList, NodeLoad, NodeState,
    NodeStatus, Notes, OfferedEnv, OpenCommands, OpenPool, OpenSession, OpenWatch, PoolOpened, PoolStatus,
    PoolStatusRequest, Refusal, RefusalCode, Register, Registered, ReplaceSession, Request, ResetLanes, Role,
    Secret, SendLanes, SessionCounts, SessionEnd, SessionId, SessionList, SessionOpened, SessionReplaced,
    SessionReport, SessionStatus, Ship, Shipped, SoFar, SoFarFrom, SoFarParams, Spread, StepState,
    StoreCount, StoreDamage, StoreData, StoreEntry, StoreEpisode, StoreEpisodes, StoreLabel,
    StoreLabelChange, StoreLabelPage, StoreLabelPlace, StoreLabelled, StoreLabels, StoreList, StoreListing,
    StoreQuery, StoreRead, StoreRepair, StoreRepaired, StoreStats, StoreStatus, Takes, Undrain, Unfit,
    Versions, Watch, WatchGrant, WatcherAdmitted, Welcome, control,
};
use serde::{Deserialize, Serialize};

/// One message, its bytes and how to read them.
struct Sample {
    name: &'static str,
    bytes: Vec<u8>,
    /// Whether these bytes, without a length word, are the message.
    reads: Box<Reads>,
    /// What these bytes, without a length word, mean to this version, as it says it itself.
    said_again: Box<SaidAgain>,
}

type Reads = dyn Fn(&[u8]) -> Result<bool, String>;
type SaidAgain = dyn Fn(&[u8]) -> Result<Vec<u8>, String>;

fn sample<T>(name: &'static str, message: T) -> Sample
where
    T: Message + PartialEq + Debug + 'static,
{
    let mut bytes = Vec::new();
    control::encode(&message, &mut bytes).unwrap();
    let reads = move |bytes: &[u8]| match control::decode::<T>(bytes) {
        Ok(read) => Ok(read == message),
        Err(error) => Err(error.to_string()),
    };
    let said_again = |bytes: &[u8]| {
        let read = control::decode::<T>(bytes).map_err(|error| error.to_string())?;
        let mut again = Vec::new();
        control::encode(&read, &mut again).map_err(|error| error.to_string())?;
        Ok(again.split_off(4))
    };
    Sample { name, bytes, reads: Box::new(reads), said_again: Box::new(said_again) }
}

fn answer<T>(name: &'static str, value: T) -> Sample
where
    T: Message + PartialEq + Debug + 'static,
{
    sample(name, Answer::Ok(value))
}

const POOL: RunId = RunId::from_u128(0x0192_f0e1_d2c3_7000_8123_4567_89ab_cdef);

fn session() -> SessionId {
    SessionId { pool: POOL, index: 1 }
}

const INCARNATION: Incarnation = Incarnation { term: 3, counter: 17 };

fn secret() -> Secret {
    Secret::from_bytes(*b"0123456789abcdef")
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("zone".into(), "a".into())])
}

fn counts() -> SessionCounts {
    SessionCounts { steps: 6_400, episodes: 31, return_sum: 712.5, interrupted: 2 }
}

fn load() -> NodeLoad {
    NodeLoad {
        lanes: 64,
        queued: 1,
        steps: 6_400,
        episodes: 31,
        spool_bytes: 70_000,
        spool_left: 1_000_000,
        spool_dropped: 0,
        taken: Weight::default(),
    }
}

fn weight() -> Weight {
    Weight { cpu_milli: 500, memory: 300 << 20 }
}

fn register() -> Register {
    Register {
        node: "n1".into(),
        boot: 0xfeed_beef,
        address: "10.0.0.7:7610".into(),
        attach: Some("/var/lib/rollhouse/attach.sock".into()),
        capacity: 4096,
        threads: 8,
        labels: labels(),
        envs: BTreeMap::from([("Example-v0".into(), 0x0123_4567_89ab_cdef)]),
        kinds: Vec::new(),
        budget: None,
        term: 3,
        program: "rollhouse/0.1.0".into(),
    }
}

fn with_budget() -> Register {
    let terms = EnvTerms {
        cpu_milli: Some(500),
        memory: Some(300 << 20),
        max_lanes: Some(64),
        max_processes: Some(8),
        workers: Some(Workers { most: 4, lanes: 1 }),
    };
    let (total, envs) = (weight().times(8), [("gymnasium:*".into(), terms)].into());
    Register { budget: Some(Budget { total, stated: true, envs }), ..register() }
}

fn unfit() -> Unfit {
    Unfit { takes: Takes::Unrecorded, why: "no space left on the disk".into() }
}

fn report() -> SessionReport {
    SessionReport {
        session: session(),
        incarnation: INCARNATION,
        owner: "ada".into(),
        env: "CartPole-v1".into(),
        first_lane: 32,
        lanes: 32,
        pool_lanes: 64,
        replaces: false,
        launching: false,
        attached: Some(true),
        transport: Some("quic".into()),
        done: counts(),
        replay: None,
    }
}

fn spec() -> EnvSpec {
    let bounds = BoxSpace {
        low: vec![-4.8, -3.0].into(),
        high: vec![4.8, 3.0].into(),
        shape: vec![2],
        dtype: DType::F32,
        choices: false,
        parts: None,
        own: None,
    };
    EnvSpec {
        id: "Example-v0".into(),
        summary: "an example".into(),
        observation_space: Space::Box(bounds).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["position".into(), "velocity".into()],
        action_names: vec!["left".into(), "right".into()],
        max_episode_steps: Some(500),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![OptionSpec {
            name: "wind".into(),
            default: OptionValue::Bool(false),
            summary: "whether it blows".into(),
        }],
        info_channels: vec![ColumnSpec {
            path: "lives".into(),
            dtype: DType::I32,
            shape: vec![],
            names: vec![],
            role: rollhouse_core::Role::Info,
        }],
        dynamics_hash: 0x0123_4567_89ab_cdef,
    }
}

fn settings() -> LaneSettings {
    LaneSettings {
        env: "Example-v0".into(),
        env_kwargs: String::new(),
        deterministic: None,
        options: BTreeMap::from([
            ("gravity".into(), OptionValue::Float(9.8)),
            ("level".into(), OptionValue::Int(3)),
            ("wind".into(), OptionValue::Bool(true)),
        ]),
        autoreset: AutoresetMode::SameStep,
        max_episode_steps: Some(200),
        seeds: SeedSchedule::PerEpisode { run_seed: 42 },
        record: RecordRule::Sample { probability: 0.25 },
        collect: Some(Collect {
            policy: "random".into(),
            seed: 7,
            goal: Goal::Episodes(1000),
            leased: false,
        }),
        replay: None,
        step_columns: rollhouse_core::StepColumns::default(),
    }
}

fn requests() -> Vec<Sample> {
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
    };
    let open_session = OpenSession {
        session: session(),
        incarnation: INCARNATION,
        secret: secret(),
        owner: "ada".into(),
        first_lane: 32,
        lanes: 32,
        pool_lanes: 64,
        replaces: false,
        settings: settings(),
    };
    let close = CloseSession { session: session(), incarnation: INCARNATION };
    let ship = Ship { spool: "k3f9q2tz".into(), segment: 12, bytes: 1 << 20, crc: 0xdead_beef };
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
        min_return: Some(150.0),
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
        sample("request-status", Request::Status),
        sample("request-nodes", Request::Nodes),
        sample("request-envs", Request::Envs),
        sample("request-sessions", Request::Sessions),
        sample("request-drain", Request::Drain(Drain { node: "n1".into() })),
        sample("request-undrain", Request::Undrain(Undrain { node: "n1".into() })),
        sample("request-register", Request::Register(register())),
        sample("request-heartbeat", Request::Heartbeat(heartbeat)),
        sample("request-ship", Request::Ship(ship)),
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
        sample("request-store_stats", Request::StoreStats),
        sample(
            "request-enroll",
            Request::Enroll(Enroll { node: "n1".into(), request: vec![0x30, 0x03, 1, 2, 3] }),
        ),
        sample("request-watch", Request::Watch(Watch { session: session() })),
        sample(
            "request-admit_watcher",
            Request::AdmitWatcher(AdmitWatcher { session: session(), incarnation: INCARNATION }),
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
    ]
}

fn label(name: &'static str, change: StoreLabelChange) -> Sample {
    sample(name, Request::StoreLabel(StoreLabel { run: POOL, lane: 17, number: 203, change }))
}

fn labelled() -> StoreLabelled {
    StoreLabelled {
        run: POOL,
        lane: 17,
        number: 203,
        pinned: true,
        tags: vec!["best".into()],
        note: Some("why it matters".into()),
    }
}

const POSITION: LanePosition = LanePosition { seed: 7, words: 40, half: Some(5) };

fn lane_frame() -> LaneFrame {
    LaneFrame {
        serial: 42,
        episode: 17,
        step: 3,
        total_reward: 3.0,
        reward: 1.0,
        terminated: false,
        truncated: true,
        action: vec![1, 0, 0, 0, 0, 0, 0, 0],
        obs: vec![0, 0, 128, 63],
        state: vec![0.5, -0.25],
        hash: Some(0xdead_beef),
        position: Some(POSITION),
        moves: 1_000,
    }
}

fn step_state() -> StepState {
    StepState {
        step: 120,
        total_reward: 120.0,
        position: LanePosition { half: None, ..POSITION },
        state: vec![0.5, -0.25],
        hash: 7,
        obs: vec![0, 0, 128, 63],
    }
}

fn so_far(from: SoFarFrom) -> SoFar {
    SoFar {
        episode: 17,
        from,
        steps: 1,
        actions: vec![1, 0, 0, 0, 0, 0, 0, 0],
        terminated: false,
        truncated: false,
        total_reward: 1.0,
        hash: Some(9),
    }
}

/// Requests with fields that are left out of most.
fn further_requests() -> Vec<Sample> {
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
    let keep = PoolStatusRequest { pool: POOL, keep: true };
    vec![
        label("request-store_label-pin", StoreLabelChange::Pin { pinned: true }),
        label("request-store_label-tag", StoreLabelChange::Tag { tags: vec!["best".into()] }),
        label("request-store_label-untag", StoreLabelChange::Untag { tags: vec!["best".into()] }),
        sample("request-open_pool-leased", Request::OpenPool(leased)),
        sample("request-pool_status-keep", Request::PoolStatus(keep)),
        sample("request-heartbeat-retold", Request::Heartbeat(heartbeat)),
        sample("request-heartbeat-measured", Request::Heartbeat(measured)),
        sample("request-register-budget", Request::Register(with_budget())),
        sample("request-replace_session-unknown", Request::ReplaceSession(replace)),
    ]
}

fn answers() -> Vec<Sample> {
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
        store: StoreStatus { segments: 12, bytes: 1 << 24, quarantined: 0, set_aside: 0 },
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
        answer("answer-register", Registered { term: 3, heartbeat_ms: 1_000, known: 40 }),
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
        answer("answer-attach", Attached { lanes: 32, last: 41, logs: false, as_done: false }),
        answer("answer-attach-as_done", Attached { lanes: 32, last: 0, logs: true, as_done: true }),
        answer("answer-attach-log", Attached { lanes: 32, last: 0, logs: true, as_done: false }),
        answer(
            "answer-attach_memory",
            MemoryAttached { lanes: 32, last: 41, generation: 2, logs: false, refused: None },
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
        sample("watch-look", LookParams { lane: 3, after: 41, wait_ms: 100 }),
        sample("watch-look-answer", LookAnswer { frame: Some(lane_frame()), replay: None }),
        sample("watch-look-nothing", LookAnswer { frame: None, replay: None }),
        sample("watch-so_far", SoFarParams { lane: 3, from: 0 }),
        sample("watch-so_far-answer", so_far(SoFarFrom::Reset(POSITION))),
        sample("watch-so_far-answer-step", so_far(SoFarFrom::Step(Box::new(step_state())))),
        answer("answer-store_list", StoreListing { entries: vec![entry], more: false }),
        answer("answer-store_read", StoreData { bytes: 65_536, file_bytes: 1 << 20 }),
        answer("answer-store_repair", StoreRepaired { bytes: 65_536, damaged: true }),
        answer("answer-store_label", labelled()),
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

fn sidecars() -> Vec<Sample> {
    let reset = ResetLanes { seeds: vec![Some(7), None], mask: vec![1, 0], options: BTreeMap::new() };
    let options = BTreeMap::from([
        ("low".to_owned(), vec![OptionValue::Float(-0.05), OptionValue::Int(0)]),
        ("wind".to_owned(), vec![OptionValue::Bool(true)]),
    ]);
    let with_options = ResetLanes { options, ..ResetLanes::default() };
    let start = Start { seed: 7, words: 12, half: Some(0xabcd) };
    let mut log = Notes::default();
    log.put_began(&Began { lane: 5, number: 203, start });
    log.put_hash(6, 0xdead_beef);
    vec![
        sample(
            "attach-log",
            Request::Attach(Attach {
                pool: POOL,
                index: 1,
                incarnation: INCARNATION,
                secret: secret(),
                log: true,
            }),
        ),
        sample("sidecar-reset", reset),
        sample("sidecar-reset-options", with_options),
        sample("sidecar-send", SendLanes { min: 32 }),
        sample("sidecar-notes", Notes { lost: vec![LostLane { lane: 5, outcome: 3 }], ..Notes::default() }),
        sample("sidecar-notes-log", log),
        sample("sidecar-notes-leaving", Notes { leaving: true, ..Notes::default() }),
        sample("sidecar-refused", Refusal::new(RefusalCode::BadRequest, "action 9 of lane 3, at most 1")),
    ]
}

#[derive(Serialize, Deserialize)]
struct RenderParams {
    lane: u32,
}

#[derive(Serialize, Deserialize)]
struct RenderAnswer {
    height: u32,
}

messages!(RenderParams, RenderAnswer);

fn envelopes() -> Vec<Sample> {
    let command = Envelope::command(7, "render", &RenderParams { lane: 3 }).unwrap();
    let answered = command.clone().answered(Ok(&RenderAnswer { height: 160 }));
    let refused = Refusal::new(RefusalCode::Unsupported, "image of lane 3: the env does not draw itself");
    let refused = command.clone().answered::<()>(Err(refused));
    vec![
        sample("envelope-command", command),
        sample("envelope-answer", answered),
        sample("envelope-error", refused),
    ]
}

fn samples() -> Vec<Sample> {
    let replays = replay_messages::requests().into_iter().chain(replay_messages::others());
    requests()
        .into_iter()
        .chain(replays)
        .chain(further_requests())
        .chain(answers())
        .chain(sidecars())
        .chain(envelopes())
        .collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The whole page for people.
fn page(samples: &[Sample]) -> String {
    let mut text = String::from(
        "# Golden messages of version 1\n\nEach file is one control message as it stands on the wire: its length \
         as a little-endian u32, then msgpack. Sidecars are kept the same way here, though a frame's header has \
         their length instead. Written by `ROLLHOUSE_WRITE_GOLDEN=1 cargo test -p rollhouse-wire --test golden`; \
         the same test without the variable compares.\n",
    );
    for sample in samples {
        let value = Value::read(&sample.bytes[4..]).unwrap();
        writeln!(text, "\n## {}.bin\n\n{} bytes\n\n```\n{value:#}\n```", sample.name, sample.bytes.len())
            .unwrap();
    }
    let header = FrameHeader { kind: FrameKind::Step, flags: 0, number: 2, columns: 256, sidecar: 0 };
    writeln!(text, "\n## frame-header.bin\n\n{header:?}\n").unwrap();
    writeln!(text, "```\n{:02x?}\n```", header.encode()).unwrap();
    text
}

fn header() -> [u8; 16] {
    FrameHeader { kind: FrameKind::Step, flags: 0, number: 2, columns: 256, sidecar: 0 }.encode()
}

/// A page of one episode.
fn episodes() -> StoreEpisodes {
    let episode = StoreEpisode {
        run: POOL,
        lane: 17,
        number: 203,
        env: "CartPole-v1".into(),
        seed: Some(1234),
        length: 181,
        total_reward: Some(181.0),
        outcome: "terminated".into(),
        result: None,
        score: None,
        started_ms: 1_790_000_000_000,
        policy: "random".into(),
        dynamics: 0x1122_3344_5566_7788,
        bytes: 60,
        parent: None,
    };
    StoreEpisodes { episodes: vec![episode], after: vec![1, 2, 3, 4, 5], more: true }
}

fn stats() -> StoreStats {
    let count = StoreCount { env: "CartPole-v1".into(), outcome: "terminated".into(), episodes: 9 };
    let damage = StoreDamage {
        folder: "n1-k3f9q2tz".into(),
        segment: 12,
        from: 4096,
        to: 8192,
        cause: "payload".into(),
    };
    StoreStats {
        episodes: vec![count],
        steps: 1629,
        runs: 1,
        folders: 1,
        segments: 2,
        bytes: 65_536,
        incomplete: 3,
        damage: vec![damage],
    }
}

#[test]
fn every_message_has_the_bytes_it_always_had() {
    let samples = samples();
    let write = std::env::var_os("ROLLHOUSE_WRITE_GOLDEN").is_some();
    let page = page(&samples);
    let mut files: Vec<(String, Vec<u8>)> =
        samples.iter().map(|sample| (format!("{}.bin", sample.name), sample.bytes.clone())).collect();
    files.push(("frame-header.bin".into(), header().to_vec()));
    files.push(("README.md".into(), page.into_bytes()));
    for (name, bytes) in &files {
        let path = folder().join(name);
        if write {
            std::fs::write(&path, bytes).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(kept == *bytes, "{name} differs from what is written now");
    }
    let kept = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(kept, files.len(), "every file belongs to a message");
}

#[test]
fn every_message_reads_back_and_unknown_fields_are_ignored() {
    for sample in samples() {
        let bytes = &sample.bytes[4..];
        assert_eq!((sample.reads)(bytes), Ok(true), "{}", sample.name);
        let value = Value::read(bytes).unwrap();
        assert_eq!(value.write(), bytes, "{}: the printer reads all of it", sample.name);
        if let Some(newer) = newer(value) {
            assert_eq!((sample.reads)(&newer.write()), Ok(true), "{} of a newer version", sample.name);
        }
    }
}

/// The message with fields this version does not know: a number, and a nested map. `None` if it is a mere word.
fn newer(mut value: Value) -> Option<Value> {
    let Value::Map(fields) = &mut value else { panic!("{value} is no map") };
    let inner = match &mut fields[..] {
        [(Value::Text(tag), inner)] if matches!(tag.as_str(), "ok" | "refused") => match inner {
            Value::Map(inner) => inner,
            _ => return None,
        },
        _ => fields,
    };
    inner.insert(0, (Value::Text("zz_first".into()), Value::Unsigned(7)));
    let nested = Value::Map(vec![(Value::Text("a".into()), Value::List(vec![Value::Nil]))]);
    inner.push((Value::Text("zz_last".into()), nested));
    Some(value)
}

#[test]
fn every_request_has_a_golden_message_and_a_word() {
    let all = requests().into_iter().chain(replay_messages::requests());
    let names: Vec<&str> = all.map(|sample| sample.name).collect();
    let words: Vec<String> = Request::WORDS.iter().map(|word| format!("request-{word}")).collect();
    assert_eq!(names, words);
}

/// The messages of the previous version, by name and without their length words.
fn previous() -> BTreeMap<String, Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("previous");
    if std::env::var_os("ROLLHOUSE_WRITE_PREVIOUS").is_some() {
        for sample in samples() {
            std::fs::write(folder.join(format!("{}.bin", sample.name)), &sample.bytes).unwrap();
        }
    }
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let messages = files.filter(|path| path.extension().is_some_and(|extension| extension == "bin"));
    let read = messages.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap().split_off(4))
    });
    read.collect()
}

/// Where a reader that knows `older` and passes over fields that it does not know finds something missing in `newer`, or
/// something of another kind, or, if values are to be the same, another value.
fn misses(older: &Value, newer: &Value, same_values: bool) -> Option<String> {
    match (older, newer) {
        (Value::Map(older), Value::Map(newer)) => older.iter().find_map(|(key, value)| {
            let Some((_, found)) = newer.iter().find(|(name, _)| name == key) else {
                return Some(format!("{key} is missing"));
            };
            misses(value, found, same_values).map(|what| format!("{key}: {what}"))
        }),
        (Value::List(older), Value::List(newer)) => {
            if same_values && older.len() != newer.len() {
                return Some(format!("{} values, not {}", newer.len(), older.len()));
            }
            older.iter().zip(newer).find_map(|(older, newer)| misses(older, newer, same_values))
        }
        // A number takes the shortest form that holds it.
        (Value::Unsigned(_) | Value::Signed(_), Value::Unsigned(_) | Value::Signed(_)) if !same_values => {
            None
        }
        // A word is a name for one of several things, and is read by its name.
        _ if older == newer => None,
        _ if !same_values && std::mem::discriminant(older) == std::mem::discriminant(newer) => None,
        _ => Some(format!("{newer} in place of {older}")),
    }
}

/// Rules of docs/protocol.md for what may change within a version of the protocol: fields may be added, none may vanish or
/// change its kind or its meaning.
#[test]
fn messages_of_the_previous_version_mean_what_they_meant_and_it_reads_ours() {
    let (previous, samples) = (previous(), samples());
    assert!(previous.len() >= 60, "{} messages", previous.len());
    for (name, bytes) in &previous {
        let ours = samples.iter().find(|sample| sample.name == name);
        let ours = ours.unwrap_or_else(|| panic!("nothing says {name} any more"));
        let theirs = Value::read(bytes).unwrap();
        let again = (ours.said_again)(bytes).unwrap_or_else(|error| panic!("{name} is not read: {error}"));
        let again = Value::read(&again).unwrap();
        assert_eq!(misses(&theirs, &again, true), None, "{name} has another meaning");
        let said = Value::read(&ours.bytes[4..]).unwrap();
        assert_eq!(misses(&theirs, &said, false), None, "{name} is not what the previous version reads");
    }
}

#[test]
fn a_field_that_vanished_or_changed_its_kind_is_found_and_one_that_was_added_is_not() {
    let field = |name: &str, value| (Value::Text(name.into()), value);
    let message = |fields: &[(Value, Value)]| Value::Map(fields.to_vec());
    let older = message(&[field("a", Value::Unsigned(1)), field("b", message(&[field("c", Value::Nil)]))]);
    let added = message(&[
        field("new", Value::Nil),
        field("a", Value::Unsigned(300)),
        field("b", message(&[field("c", Value::Nil), field("d", Value::Nil)])),
    ]);
    assert_eq!(misses(&older, &added, false), None);
    assert!(misses(&older, &added, true).is_some(), "another number");
    let vanished = message(&[field("a", Value::Unsigned(1)), field("b", message(&[]))]);
    assert!(misses(&older, &vanished, false).is_some());
    let changed =
        message(&[field("a", Value::Text("1".into())), field("b", message(&[field("c", Value::Nil)]))]);
    assert!(misses(&older, &changed, false).is_some());
}
