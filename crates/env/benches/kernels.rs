//! Speed of the kernels: `cargo bench -p rollhouse-env`. One iteration is one call for a whole block.

use divan::{Bencher, counter::ItemsCount};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, LaneSet, Options, Space, random_bits};
use rollhouse_env::{BatchEnv, BlockStep, InstructionSet, Registry};

fn main() {
    divan::main();
}

const ENVS: &[&str] =
    &["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"];

/// Instruction set and env of every case this machine can run.
fn cases() -> Vec<(InstructionSet, &'static str)> {
    InstructionSet::available().flat_map(|set| ENVS.iter().map(move |&id| (set, id))).collect()
}

fn label((set, id): &(InstructionSet, &'static str)) -> String {
    format!("{id} {set}")
}

/// Batches of actions that are cycled through, so that no step repeats the last one's.
const BATCHES: usize = 64;

/// A full block with its columns.
struct Fixture {
    block: Box<dyn BatchEnv>,
    obs: Vec<f32>,
    integers: Vec<i64>,
    floats: Vec<f32>,
    rewards: Vec<f64>,
    discrete: bool,
}

impl Fixture {
    fn new((set, id): (InstructionSet, &str)) -> Self {
        let entry = Registry::builtin().get(id).expect("a built-in env");
        let spec = entry.spec();
        let options = Options::check(&spec.options, &[]).expect("defaults are valid");
        let mut block = entry.make_block_on(set, &vec![options; BLOCK_LANES]).expect("defaults are valid");
        let mut obs = vec![0.0; BLOCK_LANES * spec.observation_space.elements()];
        for lane in 0..BLOCK_LANES {
            block.seed(lane, lane as u64);
        }
        assert!(block.reset(LaneSet::ALL, &mut [ColumnMut::F32(&mut obs)]).is_empty());
        let n = match &spec.action_space {
            Space::Discrete(space) => space.n,
            Space::Box(_) => 2,
        };
        let bits = |i: usize| random_bits(1, (i % BLOCK_LANES) as u32, (i / BLOCK_LANES) as u64);
        let integers = (0..BATCHES * BLOCK_LANES).map(|i| (bits(i) % n) as i64).collect();
        let floats = (0..BATCHES * BLOCK_LANES).map(|i| (bits(i) % 2001) as f32 / 1000.0 - 1.0).collect();
        let discrete = matches!(spec.action_space, Space::Discrete(_));
        Self { block, obs, integers, floats, rewards: vec![0.0; BLOCK_LANES], discrete }
    }

    /// One step of every lane; returns which lanes ended.
    fn step(&mut self, batch: usize, reset: LaneSet) -> LaneSet {
        let range = (batch % BATCHES) * BLOCK_LANES..(batch % BATCHES + 1) * BLOCK_LANES;
        let actions = match self.discrete {
            true => ColumnRef::I64(&self.integers[range]),
            false => ColumnRef::F32(&self.floats[range]),
        };
        let (obs, infos) = (&mut [ColumnMut::F32(&mut self.obs)], &mut []);
        let step = BlockStep { skip: LaneSet::NONE, reset, actions, obs, infos, rewards: &mut self.rewards };
        self.block.step(step).terminated
    }
}

/// Random actions, lanes that ended are reset in the next step; items are lane-steps.
#[divan::bench(args = cases().iter().map(label).collect::<Vec<_>>(), sample_count = 20, sample_size = 2000)]
fn step(bencher: Bencher<'_, '_>, case: &str) {
    let mut fixture = Fixture::new(find(case));
    let (mut batch, mut ended) = (0, LaneSet::NONE);
    bencher.counter(ItemsCount::new(BLOCK_LANES)).bench_local(|| {
        ended = fixture.step(batch, ended);
        batch += 1;
    });
}

/// Every lane of a block begins an episode.
#[divan::bench(args = cases().iter().map(label).collect::<Vec<_>>(), sample_count = 20, sample_size = 500)]
fn reset(bencher: Bencher<'_, '_>, case: &str) {
    let mut fixture = Fixture::new(find(case));
    bencher
        .counter(ItemsCount::new(BLOCK_LANES))
        .bench_local(|| fixture.block.reset(LaneSet::ALL, &mut [ColumnMut::F32(&mut fixture.obs)]));
}

/// State hashes of all lanes of a block.
#[divan::bench(args = cases().iter().map(label).collect::<Vec<_>>(), sample_count = 20, sample_size = 2000)]
fn state_hashes(bencher: Bencher<'_, '_>, case: &str) {
    let fixture = Fixture::new(find(case));
    let mut hashes = [0; BLOCK_LANES];
    bencher
        .counter(ItemsCount::new(BLOCK_LANES))
        .bench_local(|| fixture.block.state_hashes(divan::black_box(LaneSet::ALL), &mut hashes));
}

/// State hashes of three lanes: about what ends in a step of random CartPole.
#[divan::bench(args = cases().iter().map(label).collect::<Vec<_>>(), sample_count = 20, sample_size = 2000)]
fn state_hashes_of_three_lanes(bencher: Bencher<'_, '_>, case: &str) {
    let fixture = Fixture::new(find(case));
    let mut hashes = [0; BLOCK_LANES];
    bencher.counter(ItemsCount::new(3usize)).bench_local(|| {
        fixture.block.state_hashes(divan::black_box([3, 17, 60].into_iter().collect()), &mut hashes)
    });
}

fn find(case: &str) -> (InstructionSet, &'static str) {
    let cases = cases();
    *cases.iter().find(|c| label(c) == case).expect("divan passes the labels it was given")
}

/// Sine and cosine of one angle, small and wide by turns.
#[divan::bench(sample_count = 20, sample_size = 10_000)]
fn sin_cos(bencher: Bencher<'_, '_>) {
    let mut angle = 0.1;
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        angle = if angle > 50.0 { 0.1 } else { angle + 0.7 };
        rollhouse_env::sin_cos(divan::black_box(angle))
    });
}

/// Seeding a generator.
#[divan::bench(sample_count = 20, sample_size = 10_000)]
fn seed(bencher: Bencher<'_, '_>) {
    let mut seed = 0u64;
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        seed += 1;
        rollhouse_env::Generator::seeded(divan::black_box(seed))
    });
}
