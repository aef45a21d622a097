//! Lanes that play by policies on their nodes, and fragments of what they have shown and done.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_client::{
    EmbeddedLanes, MAX_EPISODE_STEPS, PlayedBatch, PlayedLanes, Pool, PoolRequest, Rollouts, RolloutsError,
    RolloutsOptions, StepError, Transport,
};
use rollhouse_core::{AutoresetMode, ColumnRef, split_mix64};
use rollhouse_engine::{Engine, EngineConfig, Fragment, FragmentColumns, Reset};
use rollhouse_env::Registry;
use rollhouse_policy::Sampling;
use rollhouse_wire::{PolicyGiven, Spread};

use crate::nodes::Nodes;

const LANES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// A net of one layer that sees CartPole: weights 4 and 2 biases, as a file of safetensors.
fn net(weights: [f32; 8], biases: [f32; 2]) -> Bytes {
    let header = r#"{"policy.0.weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"policy.0.bias":{"dtype":"F32","shape":[2],"data_offsets":[32,40]}}"#;
    let header = format!("{header:<144}");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(weights.iter().chain(&biases).flat_map(|number| number.to_le_bytes()));
    file.into()
}

/// A net that mostly leans to where the pole does.
fn leaning() -> Bytes {
    net([0.0, 0.0, -2.0, -1.0, 0.0, 0.0, 2.0, 1.0], [0.0, 0.0])
}

/// A net whose actions say its version: the lowest bit of it.
fn telling(version: u64) -> (PolicyGiven, Bytes) {
    let favoured = if version.is_multiple_of(2) { [100.0, 0.0] } else { [0.0, 100.0] };
    (policy(version), net([0.0; 8], favoured))
}

fn policy(version: u64) -> PolicyGiven {
    PolicyGiven { name: "leaning".to_owned(), version, seed: 5, sampling: None, keeps_states: false }
}

fn options(steps: usize, staleness: usize) -> RolloutsOptions {
    RolloutsOptions { steps, staleness, seed: 3, group: 1, whole: false, policy: policy(1), file: leaning() }
}

fn embedded(autoreset: AutoresetMode) -> EmbeddedLanes {
    let env = Registry::builtin().get("CartPole-v1").unwrap();
    let config = EngineConfig { autoreset, ..EngineConfig::new(LANES) };
    EmbeddedLanes::new(Engine::new(&env, config, None).unwrap())
}

fn pool(nodes: &Nodes, autoreset: AutoresetMode) -> Pool {
    let mut request = PoolRequest::new("CartPole-v1", LANES as u32);
    request.settings.autoreset = autoreset;
    request.transport = Some(Transport::Quic);
    request.spread = Spread::Even;
    nodes.connect().open_pool(request).unwrap()
}

fn next(rollouts: &mut Rollouts) -> PlayedBatch {
    rollouts.next(PATIENCE).unwrap().unwrap()
}

/// All that a fragment has, as bytes of its columns.
fn contents(fragment: &Fragment) -> Vec<Vec<u8>> {
    let bytes = |column: ColumnRef<'_>| column.bytes().to_vec();
    let finals = fragment.finals();
    let mut all = vec![
        bytes(fragment.obs(0)),
        bytes(fragment.actions()),
        bytes(ColumnRef::F64(fragment.rewards())),
        fragment.terminated().to_vec(),
        fragment.truncated().to_vec(),
        fragment.reset().to_vec(),
        fragment.lost().to_vec(),
        fragment.versions().iter().flat_map(|version| version.to_le_bytes()).collect(),
        finals.rows.iter().flat_map(|row| row.to_le_bytes()).collect(),
        bytes(finals.obs[0].as_ref()),
    ];
    all.extend(fragment.notes().chain(fragment.states()).map(bytes));
    all
}

fn assert_same(one: &PlayedBatch, other: &PlayedBatch, when: &str) {
    assert_eq!(contents(&one.fragment), contents(&other.fragment), "{when}");
    assert_eq!(one.episodes, other.episodes, "{when}");
}

#[test]
fn fragments_of_one_node_and_of_three_are_those_of_this_process() {
    let (one, three) = (Nodes::start(1), Nodes::start(3));
    for autoreset in [AutoresetMode::SameStep, AutoresetMode::NextStep] {
        let mut here = Rollouts::begin(embedded(autoreset), options(50, 0)).unwrap();
        let there = pool(&three, autoreset);
        assert_eq!(there.sessions().count(), 3, "each node has a session");
        let mut on_one = Rollouts::begin(pool(&one, autoreset), options(50, 1)).unwrap();
        let mut on_three = Rollouts::begin(there, options(50, 2)).unwrap();
        let mut ended = 0;
        for fragment in 0..5 {
            let batch = next(&mut here);
            assert_same(&batch, &next(&mut on_one), &format!("{autoreset:?}, one node, fragment {fragment}"));
            assert_same(&batch, &next(&mut on_three), &format!("{autoreset:?}, three, fragment {fragment}"));
            ended += batch.episodes.len();
        }
        assert!(ended > LANES, "{ended} episodes ended");
    }
}

#[test]
fn a_fragment_has_what_each_action_was_chosen_from_and_what_came_of_it() {
    let env = Registry::builtin().get("CartPole-v1").unwrap();
    let config = EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(LANES) };
    let mut engine = Engine::new(&env, config, None).unwrap();
    let mut rollouts = Rollouts::begin(embedded(AutoresetMode::SameStep), options(40, 0)).unwrap();
    engine.reset(&Reset::seeded(3, LANES)).unwrap();
    for _ in 0..3 {
        let PlayedBatch { fragment, .. } = next(&mut rollouts);
        let mut finals = 0;
        for step in 0..fragment.steps() {
            let rows = step * LANES..(step + 1) * LANES;
            let of_frame = |frame: usize| fragment.obs(0).slice(frame * LANES * 4, (frame + 1) * LANES * 4);
            assert_eq!(engine.frame().unwrap().obs(0), of_frame(step));
            let actions = fragment.actions().slice(rows.start, rows.end);
            assert!(engine.actions().unwrap().copy_from(actions));
            let frame = engine.step().unwrap();
            assert_eq!(frame.obs(0), of_frame(step + 1));
            assert_eq!(frame.rewards(), &fragment.rewards()[rows.clone()]);
            assert_eq!(frame.terminated(), &fragment.terminated()[rows.clone()]);
            for (lane, _) in frame.terminated().iter().enumerate().filter(|(_, ended)| **ended == 1) {
                assert_eq!(fragment.finals().rows[finals], (rows.start + lane) as u64);
                let last = frame.final_obs(0).slice(lane * 4, lane * 4 + 4);
                assert_eq!(fragment.finals().obs[0].row(finals, 4), Some(last));
                finals += 1;
            }
        }
        assert_eq!(fragment.finals().rows.len(), finals);
        assert!(fragment.valid().all(|valid| valid == 1));
    }
}

#[test]
fn each_step_has_the_version_of_the_weights_that_chose_its_action() {
    let nodes = Nodes::start(2);
    let same = AutoresetMode::SameStep;
    prove_versions(pool(&nodes, same), 1);
    prove_versions(embedded(same), 0);
}

/// Updates behind each fragment, and looks whether actions say the versions that are written beside them.
fn prove_versions(lanes: impl PlayedLanes, staleness: usize) {
    let (policy, file) = telling(1);
    let options = RolloutsOptions { policy, file, ..options(8, staleness) };
    let mut rollouts = Rollouts::begin(lanes, options).unwrap();
    for updates in 0..6u64 {
        let PlayedBatch { fragment, lag, .. } = next(&mut rollouts);
        let wanted = (updates + 1).saturating_sub(staleness as u64).max(1);
        assert_eq!(u64::from(lag), updates + 1 - wanted, "after {updates} updates");
        let ColumnRef::I64(actions) = fragment.actions() else { panic!("CartPole's actions are numbers") };
        for (&action, &version) in actions.iter().zip(fragment.versions()) {
            assert_eq!((version, action), (wanted, (version % 2) as i64), "after {updates} updates");
        }
        let (policy, file) = telling(updates + 2);
        let mut update = rollouts.update(policy, file).unwrap();
        assert!(update.wait(PATIENCE).unwrap());
    }
}

/// Lanes whose plays and policies take as long as a schedule says: each waits for a permit.
struct Scheduled {
    lanes: EmbeddedLanes,
    permits: Receiver<()>,
}

impl PlayedLanes for Scheduled {
    fn begin(&mut self, reset: &Reset) -> Result<(), RolloutsError> {
        self.lanes.begin(reset)
    }

    fn follow(&mut self, policy: &PolicyGiven, file: Bytes) -> Result<FragmentColumns, RolloutsError> {
        self.permits.recv().map_err(|_| RolloutsError::Ended)?;
        self.lanes.follow(policy, file)
    }

    fn play(&mut self, at: u64, fragment: &mut Fragment) -> Result<(), RolloutsError> {
        self.permits.recv().map_err(|_| RolloutsError::Ended)?;
        self.lanes.play(at, fragment)
    }

    fn lanes(&self) -> usize {
        LANES
    }

    fn end(self) {
        self.lanes.end();
    }
}

/// Takes batches and updates behind each, in an order of the nodes' progress and the learner's that the seed draws. Returns the
/// greatest lag.
fn greatest_lag(seed: u64, staleness: usize) -> u32 {
    let (permit, permits) = std::sync::mpsc::sync_channel(MOST_AHEAD);
    // Who is as far ahead as that needs no more.
    let let_on = |many: u64| (0..many).for_each(|_| permit.try_send(()).unwrap_or_default());
    let mut random = seed;
    let mut draw = |below: u64| {
        random = split_mix64(random);
        random % below
    };
    let_on(1);
    let lanes = Scheduled { lanes: embedded(AutoresetMode::SameStep), permits };
    let (policy, file) = telling(1);
    let mut rollouts =
        Rollouts::begin(lanes, RolloutsOptions { policy, file, ..options(3, staleness) }).unwrap();
    let (mut updates, mut batches, mut greatest, mut newest) = (0, 0, 0, 0);
    while batches < 12 {
        // Nodes may be ahead by all that was asked of them, or by nothing.
        let_on(draw(4));
        let Some(PlayedBatch { fragment, lag, .. }) = rollouts.next(Duration::ZERO).unwrap() else {
            let_on(1);
            continue;
        };
        batches += 1;
        let versions = fragment.versions();
        let (least, most) = (*versions.iter().min().unwrap(), *versions.iter().max().unwrap());
        assert_eq!(least, most, "an update came in the middle of a fragment");
        assert!(least >= newest, "a batch is older than the one before");
        newest = least;
        assert_eq!(u64::from(lag), updates + 1 - least, "seed {seed}");
        assert!(lag as usize <= staleness, "seed {seed}: {lag} updates behind, with staleness {staleness}");
        greatest = greatest.max(lag);
        if draw(3) > 0 {
            updates += 1;
            let (policy, file) = telling(updates + 1);
            // Whether the nodes have it is not waited for.
            let _under_way = rollouts.update(policy, file).unwrap();
        }
    }
    let_on(MOST_AHEAD as u64);
    greatest
}

/// Permits that may wait: more than a schedule has orders under way.
const MOST_AHEAD: usize = 64;

#[test]
fn no_batch_is_older_than_the_staleness_says_in_any_of_two_hundred_schedules() {
    for staleness in [0, 1, 2, 4] {
        let lags = (0..50).map(|seed| greatest_lag(seed * 4 + staleness as u64, staleness));
        assert_eq!(lags.max(), Some(staleness as u32), "some are as old as they may be");
    }
}

#[test]
fn lanes_whose_node_goes_away_show_what_they_would_have_shown() {
    let mut nodes = Nodes::start(3);
    let same = AutoresetMode::SameStep;
    let mut here = Rollouts::begin(embedded(same), options(50, 0)).unwrap();
    let mut there = Rollouts::begin(pool(&nodes, same), options(50, 0)).unwrap();
    for fragment in 0..6 {
        if fragment == 2 || fragment == 4 {
            nodes.stop(fragment / 2);
        }
        assert_same(&next(&mut here), &next(&mut there), &format!("fragment {fragment}"));
    }
}

/// A net of CartPole that remembers what lanes have shown.
#[cfg(feature = "onnx")]
fn remembering(staleness: usize, whole: bool) -> RolloutsOptions {
    let file = Bytes::from_static(include_bytes!("../../policy/tests/onnx/cartpole_gru.onnx"));
    RolloutsOptions { file, whole, ..options(50, staleness) }
}

#[cfg(feature = "onnx")]
#[test]
fn what_a_net_remembers_of_lanes_is_in_each_fragment_and_goes_along_when_their_node_goes_away() {
    for (autoreset, whole) in
        [(AutoresetMode::SameStep, false), (AutoresetMode::NextStep, false), (AutoresetMode::SameStep, true)]
    {
        let mut nodes = Nodes::start(3);
        let mut here = Rollouts::begin(embedded(autoreset), remembering(0, whole)).unwrap();
        let there = pool(&nodes, autoreset);
        let mut there = Rollouts::begin(there, remembering(1, whole)).unwrap();
        for fragment in 0..6 {
            if fragment == 2 || fragment == 4 {
                nodes.stop(fragment / 2);
            }
            let batch = next(&mut here);
            let states: Vec<f32> =
                batch.fragment.states().flat_map(|rows| rows.as_f32().unwrap().to_vec()).collect();
            let remembers = states.iter().any(|&number| number != 0.0);
            assert_eq!(remembers, !whole && fragment > 0, "{autoreset:?}, fragment {fragment}");
            assert_same(&batch, &next(&mut there), &format!("{autoreset:?}, {whole}, fragment {fragment}"));
        }
    }
}

#[test]
fn what_is_no_policy_of_the_env_is_refused_with_its_numbers_and_the_lanes_go_on() {
    let nodes = Nodes::start(1);
    let mut lanes = pool(&nodes, AutoresetMode::SameStep);
    let seeded = Reset::seeded(3, LANES);
    lanes.reset(&seeded).unwrap();
    let refusal = |error: StepError| match error {
        StepError::Refused { refusal, .. } => refusal.message,
        other => panic!("{other}"),
    };
    let garbage = lanes.follow(&policy(1), Bytes::from_static(b"no file of safetensors"));
    assert!(refusal(garbage.map(drop).unwrap_err()).contains("`leaning` cannot play here"));
    let unknown = PolicyGiven { name: "greedy".to_owned(), ..policy(1) };
    let unknown = refusal(lanes.follow(&unknown, Bytes::new()).map(drop).unwrap_err());
    assert!(unknown.contains("unknown policy `greedy`"), "{unknown}");
    let three = String::from_utf8(leaning()[8..152].to_vec()).unwrap().replace("[2,4]", "[4,2]");
    let mut wrong = leaning()[..8].to_vec();
    wrong.extend_from_slice(three.as_bytes());
    wrong.extend_from_slice(&leaning()[152..]);
    let wrong = refusal(lanes.follow(&policy(1), wrong.into()).map(drop).unwrap_err());
    assert!(wrong.contains("cannot play here"), "{wrong}");
    lanes.follow(&policy(1), leaning()).unwrap();
    let columns = lanes.fragment_columns().unwrap();
    let mut fragment = Fragment::new(&columns, LANES, 20);
    lanes.play(0, &mut fragment).unwrap();
    assert_eq!(fragment.steps(), 20);
    lanes.step().unwrap();
}

#[test]
fn an_episode_for_which_a_policy_can_choose_no_action_ends_alone_and_its_lane_begins_the_next() {
    let nodes = Nodes::start(2);
    // It pushes a cart where it goes already, and its outputs are no finite numbers once that is faster than 1.
    let breaking = || net([0.0, -f32::MAX, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0]);
    for autoreset in [AutoresetMode::SameStep, AutoresetMode::NextStep] {
        let options = || RolloutsOptions { file: breaking(), ..options(60, 0) };
        let mut here = Rollouts::begin(embedded(autoreset), options()).unwrap();
        let mut there = Rollouts::begin(pool(&nodes, autoreset), options()).unwrap();
        let (mut lost, mut played) = (0, 0);
        for number in 0..3 {
            let batch = next(&mut here);
            assert_same(&batch, &next(&mut there), &format!("{autoreset:?}, fragment {number}"));
            let fragment = &batch.fragment;
            let ColumnRef::F32(obs) = fragment.obs(0) else { panic!("CartPole shows numbers") };
            for (row, &is_lost) in fragment.lost().iter().enumerate() {
                let began = fragment.reset()[row];
                let ended = fragment.terminated()[row] | fragment.truncated()[row];
                if is_lost == 1 {
                    assert_eq!((began, fragment.truncated()[row], fragment.rewards()[row]), (1, 1, 0.0));
                    assert!(obs[row * 4 + 1].abs() > 1.0, "its policy broke");
                    assert!(obs[(row + LANES) * 4 + 1].abs() <= 0.05, "a new episode is shown");
                } else if began | ended == 0 {
                    played += 1;
                }
            }
            lost += batch.lost;
        }
        assert!(lost > 0 && played > 100, "{lost} episodes lost, {played} steps");
    }
}

#[test]
fn lanes_without_a_policy_and_lanes_in_memory_do_not_play() {
    let nodes = Nodes::start(1);
    let mut lanes = pool(&nodes, AutoresetMode::SameStep);
    lanes.reset(&Reset::seeded(3, LANES)).unwrap();
    assert!(lanes.fragment_columns().is_none());
    let columns = rollhouse_engine::FragmentColumns {
        states: None,
        batch: Engine::columns(&Registry::builtin().get("CartPole-v1").unwrap(), AutoresetMode::SameStep),
        notes: Vec::new(),
    };
    let refused = lanes.play(0, &mut Fragment::new(&columns, LANES, 2)).unwrap_err();
    assert!(matches!(refused, StepError::Rules(rollhouse_engine::StepError::NoPolicy)), "{refused}");
    let mut request = PoolRequest::new("CartPole-v1", LANES as u32);
    request.transport = Some(Transport::Shm);
    let mut lanes = nodes.connect().open_pool(request).unwrap();
    let refused = lanes.follow(&policy(1), leaning()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("transport quic"), "{refused}");
}

#[test]
fn updates_that_go_back_or_note_something_else_are_refused_and_the_lanes_go_on() {
    let mut rollouts = Rollouts::begin(embedded(AutoresetMode::SameStep), options(8, 0)).unwrap();
    let back = rollouts.update(policy(1), leaning()).map(drop).unwrap_err();
    assert!(matches!(back, RolloutsError::Version { given: 1, newest: 1 }), "{back}");
    let random = PolicyGiven { name: "random".to_owned(), ..policy(2) };
    let mut update = rollouts.update(random, Bytes::new()).unwrap();
    assert!(matches!(update.wait(PATIENCE).unwrap_err(), RolloutsError::Columns));
    let batch = next(&mut rollouts);
    assert!(batch.fragment.versions().iter().all(|&version| version == 1));
    let too_many = options(8, 65);
    let refused = Rollouts::begin(embedded(AutoresetMode::SameStep), too_many).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "staleness = 65; it is from 0 to 64");
}

#[test]
fn a_batch_that_somebody_keeps_is_never_written_again() {
    let mut rollouts = Rollouts::begin(embedded(AutoresetMode::SameStep), options(8, 1)).unwrap();
    let kept = next(&mut rollouts);
    let before = contents(&kept.fragment);
    let later: Vec<Arc<Fragment>> = (0..6).map(|_| next(&mut rollouts).fragment).collect();
    assert_eq!(before, contents(&kept.fragment));
    assert!(later.windows(2).all(|pair| contents(&pair[0]) != contents(&pair[1])));
}

#[test]
fn episodes_that_do_not_end_are_not_played_for_ever() {
    let env = Registry::builtin().get("CartPole-v1").unwrap();
    let config = EngineConfig { max_episode_steps: Some(0), ..EngineConfig::new(1) };
    let lanes = EmbeddedLanes::new(Engine::new(&env, config, None).unwrap());
    // It balances, and nothing else ends an episode.
    let sampling = Some(Sampling { deterministic: true, ..Sampling::default() });
    let policy = PolicyGiven { sampling, ..policy(1) };
    let file = net([0.0, 0.0, 0.0, 0.0, 0.4, 1.2, 12.0, 4.0], [0.0, 0.0]);
    let options = RolloutsOptions { whole: true, policy, file, ..options(4096, 0) };
    let mut rollouts = Rollouts::begin(lanes, options).unwrap();
    let refused = rollouts.next(PATIENCE).map(drop).unwrap_err();
    assert!(matches!(refused, RolloutsError::Long { steps: MAX_EPISODE_STEPS, .. }), "{refused}");
    assert!(matches!(rollouts.next(PATIENCE), Err(RolloutsError::Ended)));
}
