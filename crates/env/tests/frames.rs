//! Pictures of envs and lines of text about them.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::driver;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use driver::Driver;
use proptest::prelude::*;
use rollhouse_core::{ColumnData, LaneSet};
use rollhouse_env::{
    BatchEnv, EnvEntry, Image, ImageSize, InstructionSet, MAX_IMAGE_SIDE, Registry, RenderError,
};

/// States that are worth a look, each a picture under `golden/frames` in 64 x 64 pixels and in the env's own size.
const SCENES: &[(&str, &str, &[f64])] = &[
    ("CartPole-v1", "start", &[0.02, 0.0, 0.01, 0.0]),
    ("CartPole-v1", "fallen", &[1.6, 0.5, 0.3, 1.0]),
    ("MountainCar-v0", "start", &[-0.5, 0.0]),
    ("MountainCar-v0", "goal", &[0.52, 0.03]),
    ("MountainCarContinuous-v0", "slope", &[0.1, 0.04, 1.0]),
    ("Pendulum-v1", "swing", &[1.2, 3.0]),
    ("Acrobot-v1", "swing", &[1.2, 0.9, 0.0, 0.0]),
    ("Acrobot-v1", "goal", &[-2.4, -0.8, 0.0, 0.0]),
    ("Echo-v0", "step", &[1234.0, 0.5, -0.5, 1.0, -1.0, 0.1, -0.1, 1.2, -1.3, 0.7, 0.3, -0.8, 0.0]),
    ("GridBreakout-v0", "play", &[4.0, 5.0, 1.0, 1.0, 3.0, 4.0, 5.0, 666_666_666.0, 0.0]),
    ("GridBreakout-v0", "miss", &[7.0, 9.0, 1.0, 1.0, 6.0, 8.0, 0.0, 77_777_777.0, 0.0]),
];

fn size(width: usize, height: usize) -> ImageSize {
    ImageSize::new(width, height).unwrap()
}

fn lane_in(id: &str, state: &[f64]) -> Driver {
    let mut driver = Driver::new(id, 1, InstructionSet::best(), &[]);
    driver.block.set_state(0, state).unwrap();
    driver
}

fn colours(image: &Image) -> usize {
    let mut colours: Vec<_> = image.pixels().as_chunks::<3>().0.to_vec();
    colours.sort_unstable();
    colours.dedup();
    colours.len()
}

/// Returns three lanes whose episodes have begun.
fn begun(entry: &EnvEntry) -> Box<dyn BatchEnv> {
    let mut block = entry.make_block(&vec![driver::options(entry, &[]); 3]).unwrap();
    (0..3).for_each(|lane| block.seed(lane, 5 + lane as u64));
    let columns = entry.spec().obs_columns();
    let mut obs: Vec<_> =
        columns.iter().map(|column| ColumnData::zeros(column.dtype, 3 * column.elements())).collect();
    let mut obs: Vec<_> = obs.iter_mut().map(ColumnData::as_mut).collect();
    assert_eq!(block.reset(LaneSet::ALL, &mut obs), LaneSet::NONE);
    block
}

#[test]
fn every_env_that_users_see_draws_itself_in_any_size() {
    let registry = Registry::builtin();
    for id in registry.shown_ids() {
        let entry = registry.get(&id).unwrap();
        let own = entry.render_size().unwrap_or_else(|| panic!("{id} does not draw itself"));
        assert!(entry.renders() && entry.render_fps().is_some_and(|fps| fps > 0), "{id}");
        let block = begun(&entry);
        for wanted in [own, size(64, 64), size(600, 400), size(400, 600), size(1, 1), size(3, 200)] {
            let image = block.render(2, wanted).unwrap();
            assert_eq!(image.size(), wanted, "{id}");
            assert_eq!(image.pixels().len(), wanted.bytes(), "{id}");
        }
        for wanted in [own, size(64, 64)] {
            assert!(colours(&block.render(2, wanted).unwrap()) > 2, "{id}: {wanted} shows nothing");
        }
    }
    let mut driver = Driver::new("test/Noise-v0", 1, InstructionSet::best(), &[]);
    let _ = driver.reset(LaneSet::one(0));
    assert_eq!(driver.block.render(0, size(8, 8)), Err(RenderError::Unsupported));
    assert_eq!(driver.block.text(0, 8), Err(RenderError::Unsupported));
    assert!(!driver.entry.renders() && driver.entry.render_size().is_none());
}

#[test]
fn pictures_look_as_the_committed_ones() {
    let mut others = Vec::new();
    for &(id, name, state) in SCENES {
        let driver = lane_in(id, state);
        for size in [size(64, 64), driver.entry.render_size().unwrap()] {
            let image = driver.block.render(0, size).unwrap();
            let file = format!("{id}-{name}-{size}.png");
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/frames").join(&file);
            // Exactly: nothing that is drawn with depends on the machine.
            if read(&golden).as_ref() != Some(&image) {
                let drawn = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&file);
                write(&drawn, &image);
                others.push(format!("{} is not {}", drawn.display(), golden.display()));
            }
        }
    }
    assert!(others.is_empty(), "look at them, and replace those that are to look so:\n{}", others.join("\n"));
}

fn read(path: &PathBuf) -> Option<Image> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path).ok()?)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
    Some(Image::new(size(info.width as usize, info.height as usize), pixels).unwrap())
}

fn write(path: &PathBuf, image: &Image) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut encoder = png::Encoder::new(file, image.width() as u32, image.height() as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    encoder.write_header().unwrap().write_image_data(image.pixels()).unwrap();
}

#[test]
fn drawing_a_lane_changes_nothing_of_it() {
    for id in driver::BUILTIN {
        let [mut drawn, mut plain] = [(); 2].map(|()| Driver::new(id, 5, InstructionSet::best(), &[]));
        for driver in [&mut drawn, &mut plain] {
            driver.seed_all(9);
            let _ = driver.reset(LaneSet::ALL);
        }
        for step in 0..30 {
            for lane in 0..5 {
                let image = drawn.block.render(lane, size(48, 32)).unwrap();
                assert_eq!(drawn.block.render(lane, size(48, 32)).unwrap(), image, "{id}");
                drawn.block.text(lane, 80).unwrap();
                assert_eq!(drawn.lane_bits(lane), plain.lane_bits(lane), "{id} step {step}");
                assert_eq!(drawn.block.position(lane), plain.block.position(lane), "{id} step {step}");
            }
            assert_eq!(drawn.hashes(), plain.hashes(), "{id} step {step}");
            let actions = plain.actions(1, step);
            let ended = plain.step(LaneSet::NONE, LaneSet::NONE, &actions);
            assert_eq!(drawn.step(LaneSet::NONE, LaneSet::NONE, &actions), ended, "{id} step {step}");
            let _ = drawn.reset(ended.terminated);
            let _ = plain.reset(ended.terminated);
        }
    }
}

#[test]
fn a_picture_shows_the_state_and_nothing_of_what_led_there() {
    for id in driver::BUILTIN {
        let mut played = Driver::new(id, 3, InstructionSet::Portable, &[]);
        played.seed_all(4);
        let _ = played.reset(LaneSet::ALL);
        for step in 0..7 {
            let actions = played.actions(2, step);
            let ended = played.step(LaneSet::NONE, LaneSet::NONE, &actions);
            let _ = played.reset(ended.terminated);
        }
        let put = lane_in(id, &played.block.state(1).unwrap());
        let (one, other) = (played.block.render(1, size(96, 64)), put.block.render(0, size(96, 64)));
        assert_eq!(one.unwrap(), other.unwrap(), "{id}");
        assert_eq!(played.block.text(1, 60), put.block.text(0, 60), "{id}");
    }
}

#[test]
fn a_size_out_of_bounds_is_refused_before_anything_is_drawn() {
    let side = MAX_IMAGE_SIDE;
    assert!(ImageSize::new(side, 2048).is_ok() && ImageSize::new(1, side).is_ok());
    for (width, height) in [
        (0, 1),
        (1, 0),
        (side + 1, 1),
        (1, side + 1),
        (side, 2049),
        (usize::MAX, usize::MAX),
        (0, usize::MAX),
    ] {
        assert_eq!(ImageSize::new(width, height), Err(RenderError::Size { width, height }));
    }
    let error = ImageSize::new(5000, 3).unwrap_err().to_string();
    assert_eq!(
        error,
        "an image cannot have 5000 x 3 pixels: a side has 1 to 4096, the whole at most 8388608"
    );
    assert!(matches!(Image::new(size(2, 2), vec![0; 11]), Err(RenderError::Bytes { bytes: 11, .. })));
}

#[test]
fn a_lane_is_told_in_one_line_of_the_columns_there_are() {
    let told = |id, state| lane_in(id, state).block.text(0, 60).unwrap();
    assert_eq!(
        told("CartPole-v1", &[0.6, 0.0, 0.1, 0.0]),
        "|----------------[/]---------| x   +0.60 m  pole   +5.73 deg"
    );
    assert_eq!(
        told("CartPole-v1", &[-2.5, 0.0, -0.5, 0.0]),
        "|<---------------------------| x   -2.50 m  pole  -28.65 deg"
    );
    assert_eq!(
        told("MountainCar-v0", &[-0.5, -0.012]),
        "|----....______o_____....----''''\"\"P\"\"| x   -0.50  v -0.0120"
    );
    assert_eq!(
        told("Pendulum-v1", &[std::f64::consts::TAU + 1.0, 0.5]),
        "|........o...^............| angle  +57.30 deg    +0.50 rad/s"
    );
    assert_eq!(
        told("Acrobot-v1", &[0.5, -0.2, 0.0, 0.0]),
        "|o.............|....| tip   -1.83  links  +28.65  -11.46 deg"
    );
    for id in driver::BUILTIN {
        let mut driver = Driver::new(id, 1, InstructionSet::best(), &[]);
        driver.seed_all(3);
        let _ = driver.reset(LaneSet::one(0));
        for columns in [0, 1, 2, 3, 10, 20, 40, 79, 200, usize::MAX] {
            let line = driver.block.text(0, columns).unwrap();
            assert!(line.len() <= columns && line.chars().all(|c| matches!(c, ' '..='~')), "{id}: {line}");
            assert_eq!(line.is_empty(), columns < 3, "{id}: {line}");
        }
    }
}

/// Any bits of a double, and those that make trouble.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (-4.0..4.0f64),
        prop::sample::select(vec![
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            1e5,
            1e17,
            1e39,
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_state_can_be_drawn(
        numbers in prop::collection::vec(number(), 13),
        width in 1usize..200,
        height in 1usize..200,
        columns in 0usize..100,
    ) {
        for (id, numbers_of_state) in [
            ("CartPole-v1", 4),
            ("MountainCar-v0", 2),
            ("MountainCarContinuous-v0", 3),
            ("Pendulum-v1", 2),
            ("Acrobot-v1", 4),
            ("Echo-v0", 13),
        ] {
            let mut driver = Driver::new(id, 1, InstructionSet::best(), &[]);
            // Echo's actions are finite singles and its count is whole: others never are in it.
            if driver.block.set_state(0, &numbers[..numbers_of_state]).is_err() {
                let echo = numbers.iter().map(|number| f64::from((*number as f32).clamp(-1e30, 1e30)));
                let echo = echo.map(|number| if number.is_nan() { 1.0 } else { number });
                let count = numbers[0].to_bits() >> 12;
                let state: Vec<f64> = std::iter::once(count as f64).chain(echo.skip(1)).collect();
                driver.block.set_state(0, &state).unwrap();
            }
            let image = driver.block.render(0, size(width, height)).unwrap();
            prop_assert_eq!(image.size(), size(width, height));
            let line = driver.block.text(0, columns).unwrap();
            prop_assert!(line.len() <= columns && line.chars().all(|c| matches!(c, ' '..='~')), "{}", line);
        }
    }
}
