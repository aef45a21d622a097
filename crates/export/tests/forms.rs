//! What is written out of episodes, read again.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::stage;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};

use rollhouse_core::{ColumnData, CompositeSpace, ObservationSpace, RecordRule, Space};
use rollhouse_env::{ImageSize, Registry};
use rollhouse_export::{ExportError, Format, Settings, write};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Episode, Playback, Query, Replays, RunInfo, SeekBounds, Seeker};
use serde_json::Value;
use stage::{Play, play};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// The longest episode of a play.
fn recorded(one: &Play) -> Arc<Episode> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/data"));
    play(Arc::new(disk.clone()), dir, one);
    let replays = Replays::open(Arc::new(disk), dir).unwrap();
    let sort = "-length".parse().unwrap();
    let query = Query { sort, all_outcomes: true, limit: Some(1), ..Query::default() };
    Arc::new(replays.load(&replays.list(&query).unwrap()[0]).unwrap())
}

fn written(format: Format, episode: &Arc<Episode>) -> Vec<u8> {
    written_as(&Settings::new(format), episode)
}

fn written_as(settings: &Settings, episode: &Arc<Episode>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(settings, &REGISTRY, episode, &mut bytes, &mut |_| true).unwrap();
    bytes
}

fn lines(episode: &Arc<Episode>) -> Vec<Value> {
    let text = String::from_utf8(written(Format::Jsonl, episode)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_are_written_as_they_always_were() {
    let episode = recorded(&Play { lanes: 1, max_steps: 2, ..Play::new("CartPole-v1", 3) });
    assert_eq!(String::from_utf8(written(Format::Jsonl, &episode)).unwrap(), CARTPOLE);
    let episode = recorded(&Play { lanes: 1, max_steps: 1, ..Play::new("MountainCarContinuous-v0", 2) });
    assert_eq!(String::from_utf8(written(Format::Jsonl, &episode)).unwrap(), CAR);
}

const CARTPOLE: &str = r#"{"t":0,"obs":[-0.004870225,-0.023651801,0.040292487,0.03285182]}
{"t":1,"action":1,"reward":1.0,"obs":[-0.0053432616,0.17086987,0.04094952,-0.24685109],"terminated":false,"truncated":false}
{"t":2,"action":1,"reward":1.0,"obs":[-0.001925864,0.36538377,0.0360125,-0.52634156],"terminated":false,"truncated":true}
"#;

const CAR: &str = r#"{"t":0,"obs":[-0.5097405,0.0]}
{"t":1,"action":[0.9615514],"reward":-0.09245811483834246,"obs":[-0.50840205,0.0013384196],"terminated":false,"truncated":true}
"#;

#[test]
fn lines_hold_each_step_to_the_bit_and_traces_give_the_same() {
    let one = Play { lanes: 3, ..Play::new("Acrobot-v1", 230) };
    let (logged, traced) = (recorded(&one), recorded(&Play { record: RecordRule::Trace, ..one }));
    assert_eq!(written(Format::Jsonl, &logged), written(Format::Jsonl, &traced));
    let lines = lines(&logged);
    assert_eq!(lines.len() as u64, logged.info.length + 1);
    let mut playback = Playback::new(&*REGISTRY, &logged).unwrap();
    for line in &lines {
        let step = playback.next_step().unwrap().unwrap();
        let shown: Vec<f64> =
            line["obs"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let wanted: Vec<f64> = (0..shown.len()).map(|index| step.obs[0].number(index)).collect();
        // Singles are written with as many digits as a single needs.
        let singles = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect::<Vec<_>>();
        assert_eq!(singles(shown), singles(wanted));
        assert_eq!((line["t"].as_u64(), line["reward"].as_f64()), (Some(step.t), step.reward));
    }
}

#[test]
fn who_asks_to_stop_is_heard_and_a_writer_that_fails_is_told_apart() {
    let episode = recorded(&Play { lanes: 1, max_steps: 20_000, ..Play::new("Pendulum-v1", 20_001) });
    let mut told = Vec::new();
    let mut watch = |step| {
        told.push(step);
        step < 4096
    };
    let settings = Settings::new(Format::Jsonl);
    let stopped = write(&settings, &REGISTRY, &episode, &mut Vec::new(), &mut watch);
    assert!(matches!(stopped, Err(ExportError::Stopped)), "{stopped:?}");
    assert_eq!(told, [0, 1024, 2048, 3072, 4096]);
    let full = write(&settings, &REGISTRY, &episode, &mut Full, &mut |_| true);
    assert!(matches!(full, Err(ExportError::Write(_))), "{full:?}");
}

/// A disk without room.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// For how many hundredths of a second a picture is shown, and its pixels.
type TimedPicture = (u16, Vec<u8>);

/// Every picture of a GIF, as the `gif` crate's reader puts it together.
fn pictures_of(gif: &[u8]) -> (Vec<TimedPicture>, (usize, usize)) {
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::Indexed);
    let mut decoder = options.read_info(gif).unwrap();
    let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
    let palette = decoder.global_palette().unwrap().to_vec();
    let mut screen = vec![0; width * height * 3];
    let mut pictures = Vec::new();
    while let Some(frame) = decoder.read_next_frame().unwrap() {
        for (index, &pixel) in frame.buffer.iter().enumerate() {
            if frame.transparent == Some(pixel) {
                continue;
            }
            let (x, y) = (index % usize::from(frame.width), index / usize::from(frame.width));
            let at = (usize::from(frame.top) + y) * width + usize::from(frame.left) + x;
            let colour = &palette[usize::from(pixel) * 3..][..3];
            screen[at * 3..][..3].copy_from_slice(colour);
        }
        pictures.push((frame.delay, screen.clone()));
    }
    (pictures, (width, height))
}

#[test]
fn a_gif_shows_each_step_as_the_env_draws_it_for_as_long_as_it_takes() {
    let episode = recorded(&Play { lanes: 2, ..Play::new("GridBreakout-v0", 40) });
    let (pictures, size) = pictures_of(&written(Format::Gif, &episode));
    assert_eq!(size, (400, 400));
    let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(&episode), &SeekBounds::default()).unwrap();
    let mut shown = pictures.into_iter();
    let (mut hundredths, mut last) = (0, Vec::new());
    for t in 0..=episode.info.length {
        seeker.seek(t).unwrap();
        let image = seeker.render(ImageSize::new(400, 400).unwrap()).unwrap();
        // A picture that stays as it was is shown for longer.
        if image.pixels() != last {
            let (delay, picture) = shown.next().unwrap();
            assert!(picture.iter().zip(image.pixels()).all(|(a, b)| a.abs_diff(*b) <= 12), "step {t}");
            hundredths += u64::from(delay);
            last = image.pixels().to_vec();
        }
    }
    assert!(shown.next().is_none());
    // 15 steps a second, and a second at the end.
    assert_eq!(hundredths, (episode.info.length as f64 * 100.0 / 15.0).round() as u64 + 100);
}

#[test]
fn films_have_the_size_steps_and_speed_that_are_chosen() {
    let episode = recorded(&Play { lanes: 1, ..Play::new("Pendulum-v1", 31) });
    let settings =
        Settings { every: 10, size: ImageSize::new(61, 40).ok(), fps: Some(5), ..Settings::new(Format::Gif) };
    let (pictures, size) = pictures_of(&written_as(&settings, &episode));
    assert_eq!((pictures.len(), size), (4, (61, 40)));
    assert_eq!(pictures.iter().map(|(delay, _)| *delay).collect::<Vec<_>>(), [20, 20, 20, 100]);
}

#[test]
fn a_png_is_the_step_that_was_asked_for_bit_by_bit() {
    let episode = recorded(&Play { lanes: 1, ..Play::new("CartPole-v1", 12) });
    let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(&episode), &SeekBounds::default()).unwrap();
    for at in [Some(3), None] {
        let bytes = written_as(&Settings { at, ..Settings::new(Format::Png) }, &episode);
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        seeker.seek(at.unwrap_or(episode.info.length)).unwrap();
        let image = seeker.render(ImageSize::new(600, 400).unwrap()).unwrap();
        assert!(pixels == image.pixels(), "{at:?}");
    }
    let beyond = Settings { at: Some(1000), ..Settings::new(Format::Png) };
    let error = write(&beyond, &REGISTRY, &episode, &mut Vec::new(), &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("step 1000 was asked for"), "{error}");
}

#[test]
fn an_env_without_a_picture_has_none_and_one_that_is_unknown_now_shows_what_it_recorded() {
    let plain = recorded(&Play { lanes: 1, ..Play::new("test/Faulty-v0", 10) });
    let error = write(&Settings::new(Format::Gif), &REGISTRY, &plain, &mut Vec::new(), &mut |_| true);
    assert!(error.unwrap_err().to_string().contains("does not draw itself"));
    let game = Play { lanes: 1, record: RecordRule::Trace, ..Play::new("GridBreakout-v0", 10) };
    let mut seen = Episode::clone(&recorded(&game));
    // As a grey image of 40 x 10 pixels.
    let mut run = RunInfo::clone(&seen.info.run);
    if let ObservationSpace::Plain(Space::Box(image)) = &mut run.spec.observation_space {
        image.shape = vec![10, 40];
    }
    seen.info.run = Arc::new(run);
    let none = Registry::empty();
    let mut bytes = Vec::new();
    write(&Settings::new(Format::Gif), &none, &Arc::new(seen), &mut bytes, &mut |_| true).unwrap();
    let (pictures, size) = pictures_of(&bytes);
    assert!(pictures.len() > 3, "{}", pictures.len());
    assert_eq!(size, (40, 10));
    let log = recorded(&Play { record: RecordRule::All, ..game });
    let error = write(&Settings::new(Format::Gif), &none, &log, &mut Vec::new(), &mut |_| true);
    assert!(error.unwrap_err().to_string().contains("unknown env"));
}

/// A recorded episode of an env with these two observations, of two elements each.
fn of_two(first: (&str, ObservationSpace), second: (&str, ObservationSpace)) -> Arc<Episode> {
    let mut episode =
        Episode::clone(&recorded(&Play { record: RecordRule::Trace, ..Play::new("CartPole-v1", 30) }));
    let spaces = [first, second].map(|(key, space)| (key.to_owned(), space)).to_vec();
    let mut run = RunInfo::clone(&episode.info.run);
    run.spec.observation_space = CompositeSpace::Dict { spaces }.into();
    run.spec.observation_names = Vec::new();
    episode.info.run = Arc::new(run);
    let split = |columns: &mut Vec<ColumnData>| {
        let ColumnData::F32(all) = &columns[0] else { panic!("floats") };
        let half = |from: usize| -> Vec<f32> {
            all.chunks(4).flat_map(|row| row[from..from + 2].iter().copied()).collect()
        };
        *columns = vec![ColumnData::F32(half(0)), ColumnData::F32(half(2))];
    };
    let steps = episode.steps.as_mut().unwrap();
    split(&mut steps.first_obs);
    split(&mut steps.obs);
    Arc::new(episode)
}

fn pair() -> ObservationSpace {
    Space::f32_box(&[-9.0; 2], &[9.0; 2]).into()
}

/// Symptom: of `Dict({"arm/wrist": ..., "arm": Dict({"wrist": ...})})` one column was lost, and Parquet files could not be
/// read. Cause: keys are joined by `/`, and nobody looked whether the names were still different. Fix: they are compared
/// before anything is written.
#[test]
fn columns_that_would_have_one_name_are_refused_by_it_before_anything_is_written() {
    let nested = CompositeSpace::Dict { spaces: vec![("wrist".to_owned(), pair())] };
    let joined = of_two(("arm/wrist", pair()), ("arm", nested.into()));
    let elements = of_two(("arm", pair()), ("arm/0", pair()));
    let by_element = |format: &Format| !matches!(format, Format::Jsonl | Format::Npz);
    let formats = [
        Format::Jsonl,
        Format::Npz,
        #[cfg(feature = "mcap")]
        Format::Mcap,
        #[cfg(feature = "parquet")]
        Format::Parquet,
    ];
    let none = Registry::empty();
    for format in formats {
        let mut bytes = Vec::new();
        let error = write(&Settings::new(format), &none, &joined, &mut bytes, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains("arm/wrist"), "{format:?}: {error}");
        assert!(bytes.is_empty(), "{format:?}");
        // Elements are called by their places below their column: `arm/0`, which has elements itself.
        let result = write(&Settings::new(format), &none, &elements, &mut bytes, &mut |_| true);
        assert!(result.is_ok() && !bytes.is_empty(), "{format:?}: {result:?}");
    }
    let scalar = Space::discrete(2).into();
    let mut episode = Episode::clone(&of_two(("arm", pair()), ("arm/0", scalar)));
    let steps = episode.steps.as_mut().unwrap();
    for column in [&mut steps.first_obs[1], &mut steps.obs[1]] {
        *column = ColumnData::I64(vec![1; column.len() / 2]);
    }
    let episode = Arc::new(episode);
    for format in formats {
        let mut bytes = Vec::new();
        let result = write(&Settings::new(format), &none, &episode, &mut bytes, &mut |_| true);
        if by_element(&format) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("arm/0") && bytes.is_empty(), "{format:?}: {error}");
        } else {
            assert!(result.is_ok(), "{format:?}: {result:?}");
        }
    }
}

/// Whether there is a Python that has NumPy; says so where there is none.
fn has_numpy(test: &str) -> bool {
    let mut probe = Command::new("python3");
    probe.args(["-c", "import numpy"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        // Past what catches the output of tests that pass.
        let why = format!("{test}: skipped, because there is no python3 with numpy\n");
        io::stderr().write_all(why.as_bytes()).unwrap();
        return false;
    }
    true
}

#[test]
fn arrays_are_read_by_numpy_and_hold_every_step_to_the_bit() {
    let test = "arrays_are_read_by_numpy_and_hold_every_step_to_the_bit";
    if !has_numpy(test) {
        return;
    }
    let script = r#"
import json, sys
import numpy as np
arrays = np.load(sys.argv[1], allow_pickle=False)
meta = json.loads(str(arrays["meta"]))
lines = [json.loads(line) for line in sys.stdin]
steps = lines[1:]
assert meta["length"] == len(steps), meta
assert sorted(arrays) == sorted(["meta", "obs", "action", "reward", "terminated", "truncated"]), sorted(arrays)
def same(name, values):
    wanted = np.asarray(values, arrays[name].dtype)
    assert arrays[name].shape == wanted.shape and (arrays[name] == wanted).all(), (name, arrays[name], wanted)
same("obs", np.reshape([line["obs"] for line in lines], arrays["obs"].shape))
same("action", [step["action"] for step in steps])
for name in ["reward", "terminated", "truncated"]:
    same(name, [step[name] for step in steps])
print(meta["env"], arrays["obs"].dtype, arrays["obs"].shape[1:], arrays["action"].dtype, arrays["terminated"].dtype)
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("episode.npz");
    for (env, wanted) in [
        ("CartPole-v1", "CartPole-v1 float32 (4,) int64 bool\n"),
        ("Pendulum-v1", "Pendulum-v1 float32 (3,) float32 bool\n"),
        ("GridBreakout-v0", "GridBreakout-v0 uint8 (10, 10, 4) int64 bool\n"),
    ] {
        let episode = recorded(&Play { lanes: 2, ..Play::new(env, 90) });
        std::fs::write(&path, written(Format::Npz, &episode)).unwrap();
        let mut python = Command::new("python3");
        python
            .args(["-c", script])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = python.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&written(Format::Jsonl, &episode)).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            wanted,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
