//! Speed of pictures: `cargo bench -p rollhouse-env --bench frames`. One item is one picture, so that items per second
//! are frames per second.

use divan::{Bencher, counter::ItemsCount};
use rollhouse_core::{ColumnData, LaneSet, Options};
use rollhouse_env::{BatchEnv, ImageSize, Registry};

fn main() {
    divan::main();
}

fn ids() -> Vec<String> {
    Registry::builtin().shown_ids()
}

/// A lane at the start of an episode.
fn begun(id: &str) -> Box<dyn BatchEnv> {
    let entry = Registry::builtin().get(id).expect("a built-in env");
    let spec = entry.spec();
    let options = Options::check(&spec.options, &[]).expect("defaults are valid");
    let mut block = entry.make_block(&[options]).expect("defaults are valid");
    block.seed(0, 1);
    let mut obs = ColumnData::zeros(spec.obs_columns()[0].dtype, spec.observation_space.elements());
    assert!(block.reset(LaneSet::one(0), &mut [obs.as_mut()]).is_empty());
    block
}

fn pictures(bencher: Bencher<'_, '_>, id: &str, width: usize, height: usize) {
    let block = begun(id);
    let size = ImageSize::new(width, height).expect("an image can have that size");
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| block.render(0, size));
}

/// Pictures as people look at them.
#[divan::bench(args = ids(), sample_count = 20, sample_size = 50)]
fn of_600_by_400(bencher: Bencher<'_, '_>, id: &str) {
    pictures(bencher, id, 600, 400);
}

/// Pictures as models look at them.
#[divan::bench(args = ids(), sample_count = 20, sample_size = 500)]
fn of_64_by_64(bencher: Bencher<'_, '_>, id: &str) {
    pictures(bencher, id, 64, 64);
}

/// Lines of text as terminals show them.
#[divan::bench(args = ids(), sample_count = 20, sample_size = 500)]
fn lines(bencher: Bencher<'_, '_>, id: &str) {
    let block = begun(id);
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| block.text(0, 80));
}
