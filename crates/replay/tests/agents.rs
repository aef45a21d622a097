//! The return of each agent in an episode of several stands where the episode ended, and is the sum of its rewards.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{
    BoxSpace, ColumnData, CompositeSpace, DType, Determinism, EnvSpec, GameResult, Interruption, LaneSet,
    ObservationSpace, Options, Outcome, RecordRule, RunId, SeedSchedule, Space, Start, split_mix64,
};
use rollhouse_env::Registry;
use rollhouse_replay::{
    Beside, End, EpisodeInfo, PolicyInfo, Query, RealDisk, Recorder, RecorderConfig, Replays, Row, RunHeader,
    rows_path,
};

const AGENTS: [&str; 3] = ["tortoise", "hare", "a/fox"];
const LANES: usize = 5;

fn numbers(dtype: DType, elements: usize) -> ObservationSpace {
    Space::Box(BoxSpace {
        low: vec![-1e9; elements].into(),
        high: vec![1e9; elements].into(),
        shape: vec![elements],
        dtype,
        choices: false,
        parts: None,
        own: None,
    })
    .into()
}

/// An env of several agents as the adapter of the Python package makes it, whose flags nobody looks at here.
fn spec() -> EnvSpec {
    let dict = |spaces: Vec<(String, ObservationSpace)>| CompositeSpace::Dict { spaces }.into();
    let observed = AGENTS.map(|name| (name.to_owned(), numbers(DType::F32, 2)));
    let parts = [
        ("observations", dict(observed.into())),
        ("rewards", numbers(DType::F64, AGENTS.len())),
        ("terminations", numbers(DType::F32, 1)),
        ("truncations", numbers(DType::F32, 1)),
        ("alive", numbers(DType::F32, 1)),
    ];
    let observation_space = dict(parts.map(|(name, space)| (name.to_owned(), space)).into());
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let determinism = Determinism::NonDeterministic;
    EnvSpec {
        id: "test:Chase".into(),
        observation_space,
        determinism,
        info_channels: Vec::new(),
        ..entry.spec().clone()
    }
}

/// Plays episodes of some steps each, with rewards that no two orders add up to the same; it hangs in the middle of some.
fn play(dir: &Path, record: RecordRule) {
    let (spec, agents) = (spec(), AGENTS.len());
    let recorder = Recorder::open(Arc::new(RealDisk), dir, RecorderConfig::default()).unwrap();
    let header = RunHeader {
        run: RunId::from_u128(77),
        spec: spec.clone(),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: LANES as u32,
        schedule: SeedSchedule::Continue,
        autoreset: "NextStep".into(),
        max_episode_steps: None,
        policy: PolicyInfo { name: "random".into(), version: 1 },
        record,
        program: "test".into(),
        started_ms: 1_700_000_000_000,
        parent: None,
        arguments: String::new(),
    };
    let run = recorder.begin_run_with(header, Beside::default()).unwrap();
    let mut block = run.block(0, LANES);
    let mut obs: Vec<_> = spec
        .obs_columns()
        .iter()
        .map(|column| ColumnData::zeros(column.dtype, column.elements() * LANES))
        .collect();
    let at = spec.obs_columns().iter().position(|column| column.path == "rewards").unwrap();
    let all = LaneSet::first(LANES);
    let mut reset = all;
    for row in 0..400_u64 {
        let stepped = all & !reset;
        let by_agent: Vec<f64> = (0..agents * LANES)
            .map(|element| {
                // Rewards of a reset are none, and not added.
                let bits = split_mix64(row << 20 | element as u64) as i64;
                bits as f64 / 1e15 * if element % agents == 1 { 1e-7 } else { 1.0 }
            })
            .collect();
        let rewards: Vec<f64> = by_agent.chunks(agents).map(|of_lane| of_lane.iter().sum()).collect();
        obs[at] = ColumnData::F64(by_agent);
        let obs: Vec<_> = obs.iter().map(ColumnData::as_ref).collect();
        let actions = ColumnData::I64(vec![1; LANES]);
        let (begun, now_ms) = (LaneSet::NONE, 1_700_000_000_000 + row);
        block.row(Row {
            stepped,
            begun,
            actions: actions.as_ref(),
            obs: &obs,
            rewards: &rewards,
            infos: &[],
            now_ms,
        });
        let is_over = |lane: &usize| split_mix64(row ^ (*lane as u64) << 32).is_multiple_of(9);
        // From the last lane to the first: those of a row are written in another order than they end in.
        let over: Vec<usize> = stepped.into_iter().filter(is_over).collect();
        for &lane in over.iter().rev() {
            let outcome = match row % 7 {
                0 => Outcome::Interrupted(Interruption::Crashed),
                even => Outcome::Finished { terminated: even % 2 == 0, truncated: even % 2 == 1 },
            };
            let (result, total_reward) = (GameResult::None, row as f64 / 3.0);
            block.end(lane, End { outcome, total_reward, hash: 1, result, score: None });
        }
        reset.into_iter().for_each(|lane| block.begin(lane, Start::seeded(row), &obs));
        reset = over.into_iter().fold(LaneSet::NONE, |set, lane| set | LaneSet::one(lane));
        if row % 37 == 36 {
            block.flush();
        }
        if row % 110 == 109 {
            recorder.seal().unwrap();
        }
    }
    block.flush();
    run.cut_short(Interruption::Hung);
    drop((block, run));
    recorder.finish().unwrap();
}

/// Sums of the rewards that the steps of an episode have.
fn sums(replays: &Replays, info: &EpisodeInfo) -> Vec<(String, f64)> {
    let episode = replays.load(info).unwrap();
    let at = info.run.spec.obs_columns().iter().position(|column| column.path == "rewards").unwrap();
    let rewards = &episode.steps.unwrap().obs[at];
    let sum = |agent| {
        let of_agent = (agent..rewards.len()).step_by(AGENTS.len());
        of_agent.map(|at| rewards.number(at)).fold(0.0, |sum, reward| sum + reward)
    };
    AGENTS.iter().enumerate().map(|(at, agent)| ((*agent).to_owned(), sum(at))).collect()
}

fn returns(info: &EpisodeInfo) -> Vec<(String, f64)> {
    info.agent_returns().map(|(agent, total)| (agent.to_owned(), total)).collect()
}

#[test]
fn each_agents_return_is_the_sum_of_its_rewards_whatever_a_listing_reads() {
    for record in [RecordRule::All, RecordRule::Sample { probability: 0.4 }] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        play(dir, record);
        let all = Query { all_outcomes: true, ..Query::default() };
        let scanned = Replays::open_scanning(Arc::new(RealDisk), dir).unwrap();
        let expected: Vec<_> = scanned.list(&all).unwrap();
        assert!(expected.len() > 60 && rows_path(dir, 1).is_file(), "{}", expected.len());
        let mut hung = 0;
        for info in &expected {
            if info.outcome == Outcome::Interrupted(Interruption::Hung) {
                // Nobody knows what came after what was handed over.
                assert_eq!((info.total_reward, returns(info)), (None, Vec::new()));
                hung += 1;
            } else {
                assert_eq!(returns(info), sums(&scanned, info), "{}", info.name);
            }
        }
        assert!(hung > 0);
        for without_rows in [false, true] {
            if without_rows {
                (1..=4).for_each(|number| fs::remove_file(rows_path(dir, number)).unwrap_or_default());
            }
            let replays = Replays::open(Arc::new(RealDisk), dir).unwrap();
            assert_eq!(replays.list(&all).unwrap(), expected);
            for info in &expected {
                assert_eq!(&replays.find(info.name).unwrap(), info);
            }
            for (agent, least) in [("hare", 0.0), ("tortoise", -1e4), ("a/fox", 2e4), ("wolf", f64::MIN)] {
                let wanted = (agent.to_owned(), least);
                let query = Query { min_agent_returns: vec![wanted.clone()], ..all.clone() };
                let fits = |info: &&EpisodeInfo| {
                    returns(info).iter().any(|(of, total)| *of == agent && *total >= least)
                };
                let fitting: Vec<_> = expected.iter().filter(fits).cloned().collect();
                assert_eq!(replays.list(&query).unwrap(), fitting, "{wanted:?}");
                assert_eq!(agent == "wolf", fitting.is_empty());
            }
        }
    }
}
