//! What messages have in them.

use std::collections::BTreeMap;

use rollhouse_core::{
    AutoresetMode, BoxSpace, Budget, ColumnSpec, DType, Determinism, EnvSource, EnvSpec, EnvTerms, Goal,
    OptionSpec, OptionValue, RecordRule, RunId, SeedSchedule, Space, Weight, Workers,
};
use rollhouse_wire::{
    Collect, Incarnation, LaneFrame, LanePosition, LaneSettings, NodeLoad, Register, Secret, SessionCounts,
    SessionId, SessionReport, SoFar, SoFarFrom, StepState, StoreCount, StoreDamage, StoreEpisode,
    StoreEpisodes, StoreLabelled, StoreStats, Takes, Unfit, UnfitReason,
};

pub(super) const POOL: RunId = RunId::from_u128(0x0192_f0e1_d2c3_7000_8123_4567_89ab_cdef);

pub(super) fn session() -> SessionId {
    SessionId { pool: POOL, index: 1 }
}

pub(super) const INCARNATION: Incarnation = Incarnation { term: 3, counter: 17 };

pub(super) fn secret() -> Secret {
    Secret::from_bytes(*b"0123456789abcdef")
}

pub(super) fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("zone".into(), "a".into())])
}

pub(super) fn counts() -> SessionCounts {
    SessionCounts {
        steps: 6_400,
        episodes: 31,
        return_sum: 712.5,
        interrupted: 2,
        ..SessionCounts::default()
    }
}

pub(super) fn load() -> NodeLoad {
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

pub(super) fn weight() -> Weight {
    Weight { cpu_milli: 500, memory: 300 << 20 }
}

pub(super) fn register() -> Register {
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
        seen: None,
        program: "rollhouse/0.1.0".into(),
    }
}

pub(super) fn with_budget() -> Register {
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

pub(super) fn unfit() -> Unfit {
    Unfit { takes: Takes::Unrecorded, reason: UnfitReason::Disk, why: "no space left on the disk".into() }
}

pub(super) fn report() -> SessionReport {
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
        plays: None,
    }
}

pub(super) fn spec() -> EnvSpec {
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
        source: EnvSource::BuiltIn,
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

pub(super) fn settings() -> LaneSettings {
    LaneSettings {
        env: "Example-v0".into(),
        env_kwargs: String::new(),
        deterministic: None,
        infos: Default::default(),
        pace: None,
        options: BTreeMap::from([
            ("gravity".into(), OptionValue::Float(9.8)),
            ("level".into(), OptionValue::Int(3)),
            ("wind".into(), OptionValue::Bool(true)),
        ]),
        autoreset: AutoresetMode::SameStep,
        max_episode_steps: Some(200),
        seeds: SeedSchedule::PerEpisode { run_seed: 42 },
        record: RecordRule::Sample { probability: 0.25 },
        collect: Some(Collect::new("random", 7, Goal::Episodes(1000))),
        replay: None,
        step_columns: rollhouse_core::StepColumns::default(),
    }
}

pub(super) fn labelled() -> StoreLabelled {
    StoreLabelled {
        run: POOL,
        lane: 17,
        number: 203,
        pinned: true,
        tags: vec!["best".into()],
        note: Some("why it matters".into()),
    }
}

pub(super) const POSITION: LanePosition = LanePosition { seed: 7, words: 40, half: Some(5) };

pub(super) fn lane_frame() -> LaneFrame {
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
        infos: Vec::new(),
        picture: Vec::new(),
        state: vec![0.5, -0.25],
        hash: Some(0xdead_beef),
        position: Some(POSITION),
        moves: 1_000,
    }
}

pub(super) fn step_state() -> StepState {
    StepState {
        step: 120,
        total_reward: 120.0,
        position: LanePosition { half: None, ..POSITION },
        state: vec![0.5, -0.25],
        hash: 7,
        obs: vec![0, 0, 128, 63],
    }
}

pub(super) fn so_far(from: SoFarFrom) -> SoFar {
    SoFar {
        episode: 17,
        from,
        steps: 1,
        actions: vec![1, 0, 0, 0, 0, 0, 0, 0],
        terminated: false,
        truncated: false,
        total_reward: 1.0,
        hash: Some(9),
        rows: None,
    }
}

/// A page of one episode.
pub(super) fn episodes() -> StoreEpisodes {
    let episode = StoreEpisode {
        run: POOL,
        lane: 17,
        number: 203,
        env: "CartPole-v1".into(),
        seed: Some(1234),
        length: 181,
        total_reward: Some(181.0),
        outcome: "terminated".into(),
        beside: Default::default(),
        started_ms: 1_790_000_000_000,
        policy: "random".into(),
        dynamics: 0x1122_3344_5566_7788,
        bytes: 60,
        parent: None,
    };
    StoreEpisodes { episodes: vec![episode], after: vec![1, 2, 3, 4, 5], more: true, by_options: false }
}

pub(super) fn stats() -> StoreStats {
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
        no_numbers: 0,
        runs: 1,
        folders: 1,
        segments: 2,
        bytes: 65_536,
        incomplete: 3,
        damage: vec![damage],
    }
}
