//! Pictures that were recorded beside the steps are shown with them, come along wherever the episode goes, and cost
//! nothing but themselves when they are damaged.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{
    ColumnData, ColumnRef, EnvSpec, GameResult, LaneSet, Options, Outcome, RecordRule, RunId, SeedSchedule,
    Start,
};
use rollhouse_env::{Image, ImageSize, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    Beside, Disk, End, Episode, Frame, Importer, PolicyInfo, Portable, PruneRules, Query, Recorder,
    RecorderConfig, Replays, Row, RunHeader, SeekBounds, Seeker, SegmentSummary, SetAside, part_of_run,
    prune, segment_path, write_portable,
};

const DIR: &str = "/data";
const LANES: usize = 5;
/// Steps of the episodes of each lane.
const LENGTHS: [u64; LANES] = [3, 11, 40, 7, 200];
const EVERY: u64 = 4;

/// The picture of a step: its pixels say which one.
fn picture(lane: usize, number: u64, step: u64) -> Image {
    let size = ImageSize::new(16, 12).unwrap();
    let byte = |at: usize| (at as u64 ^ step.wrapping_mul(31) ^ number << 3 ^ (lane as u64) << 5) as u8;
    Image::new(size, (0..size.bytes()).map(byte).collect()).unwrap()
}

fn header(id: &str) -> RunHeader {
    let registry = Registry::builtin();
    let spec: EnvSpec = registry.get(id).unwrap().spec().clone();
    RunHeader {
        run: RunId::from_u128(77 << 64 | 9),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: LANES as u32,
        schedule: SeedSchedule::Continue,
        autoreset: "NextStep".into(),
        max_episode_steps: None,
        policy: PolicyInfo { name: "external".into(), version: 0 },
        record: RecordRule::All,
        program: "frames".into(),
        started_ms: 1_700_000_000_000,
        parent: None,
        arguments: String::new(),
        spec,
    }
}

fn refs(columns: &[ColumnData]) -> Vec<ColumnRef<'_>> {
    columns.iter().map(ColumnData::as_ref).collect()
}

/// Records lanes that are not recomputed for 300 rows, with a picture of every fourth step and of the last.
fn pictures(frames_every: u64) -> Beside {
    Beside { frames_every, ..Beside::default() }
}

fn record(disk: &FaultyDisk, frames_every: u64) -> Vec<u64> {
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default()).unwrap();
    let numbers = record_into(&recorder, frames_every);
    let recorded = recorder.finish().unwrap();
    assert_eq!(recorded.lost_frames, 0);
    numbers
}

fn record_into(recorder: &Recorder, frames_every: u64) -> Vec<u64> {
    let header = header("test/Noise-v0");
    let spec = header.spec.clone();
    let run = recorder.begin_run_with(header, pictures(frames_every)).unwrap();
    let mut block = run.block(0, LANES);
    let rows =
        |column: rollhouse_core::ColumnSpec| ColumnData::zeros(column.dtype, column.elements() * LANES);
    let (actions, obs) =
        (rows(spec.action_column()), spec.obs_columns().into_iter().map(rows).collect::<Vec<_>>());
    let infos: Vec<ColumnData> = spec.info_channels.iter().cloned().map(rows).collect();
    let (obs, infos) = (refs(&obs), refs(&infos));
    let (mut ages, mut numbers, mut over) = ([0; LANES], [0; LANES], LaneSet::first(LANES));
    for row in 0..300 {
        let stepped = !over & LaneSet::first(LANES);
        let now_ms = 1_700_000_000_000 + row;
        block.row(Row {
            stepped,
            begun: LaneSet::NONE,
            actions: actions.as_ref(),
            obs: &obs,
            rewards: &[1.0; LANES],
            infos: &infos,
            now_ms,
        });
        let began = std::mem::take(&mut over);
        for lane in stepped {
            ages[lane] += 1;
            let ends = ages[lane] == LENGTHS[lane];
            if ages[lane] % EVERY == 0 || ends {
                let image = picture(lane, numbers[lane], ages[lane]);
                block.frame(lane, false, Frame::pack(&image).unwrap());
            }
            if ends {
                let outcome = Outcome::Finished { terminated: true, truncated: false };
                let total_reward = ages[lane] as f64;
                block
                    .end(lane, End { outcome, total_reward, hash: 0, result: GameResult::None, score: None });
                (ages[lane], numbers[lane]) = (0, numbers[lane] + 1);
                over.insert(lane);
            }
        }
        for lane in began {
            block.begin(lane, Start::seeded(row), &obs);
            block.frame(lane, true, Frame::pack(&picture(lane, numbers[lane], 0)).unwrap());
        }
    }
    drop((block, run));
    numbers.to_vec()
}

fn replays(disk: &FaultyDisk, dir: &str) -> Replays {
    Replays::open_scanning(Arc::new(disk.clone()), Path::new(dir)).unwrap()
}

fn loaded(disk: &FaultyDisk, dir: &str) -> Vec<Episode> {
    let replays = replays(disk, dir);
    let infos = replays.list(&Query::default()).unwrap();
    infos.iter().map(|info| replays.load(info).unwrap()).collect()
}

/// The steps that the recorder was shown a picture of.
fn steps_with_picture(length: u64) -> Vec<u64> {
    (0..=length).filter(|step| step % EVERY == 0 || *step == length).collect()
}

#[track_caller]
fn assert_pictures(episode: &Episode) {
    let (lane, number) = (episode.info.name.lane as usize, episode.info.name.number);
    let frames = &episode.steps.as_ref().unwrap().frames;
    let found: Vec<u64> = frames.iter().map(|(step, _)| step).collect();
    let is_whole = episode.info.outcome.is_finished();
    if is_whole {
        assert_eq!(found, steps_with_picture(LENGTHS[lane]), "{}", episode.info.name);
    }
    for (step, frame) in frames.iter() {
        assert_eq!(frame.unpack().unwrap(), picture(lane, number, step), "{} step {step}", episode.info.name);
    }
}

fn segment(disk: &FaultyDisk, dir: &str) -> PathBuf {
    let mut paths = disk.paths();
    paths
        .retain(|path| path.starts_with(dir) && path.extension().is_some_and(|extension| extension == "seg"));
    paths.pop().unwrap()
}

#[test]
fn each_picture_is_read_back_at_its_step() {
    let disk = FaultyDisk::new();
    let numbers = record(&disk, EVERY);
    let episodes = loaded(&disk, DIR);
    assert!(episodes.len() as u64 >= numbers.iter().sum::<u64>() && numbers[0] > 50, "{numbers:?}");
    assert_eq!(replays(&disk, DIR).damage().count(), 0);
    for episode in &episodes {
        assert_eq!(episode.info.run.frames_every, EVERY);
        assert_pictures(episode);
    }
}

#[test]
fn recordings_that_keep_no_observations_or_were_not_asked_have_none() {
    let disk = FaultyDisk::new();
    record(&disk, 0);
    // Nobody looks for what is there all the same.
    assert!(loaded(&disk, DIR).iter().all(|episode| episode.steps.as_ref().unwrap().frames.is_empty()));
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default()).unwrap();
    let run = recorder.begin_run_with(RunHeader { lanes: 1, ..header("CartPole-v1") }, pictures(1)).unwrap();
    let mut block = run.block(0, 1);
    block.begin(0, Start::seeded(1), &[]);
    block.frame(0, true, Frame::pack(&picture(0, 0, 0)).unwrap());
    let actions = ColumnRef::I64(&[1]);
    block.row(Row {
        stepped: LaneSet::one(0),
        begun: LaneSet::NONE,
        actions,
        obs: &[],
        rewards: &[],
        infos: &[],
        now_ms: 5,
    });
    block.frame(0, false, Frame::pack(&picture(0, 0, 1)).unwrap());
    drop((block, run));
    recorder.finish().unwrap();
    let bytes = disk.read(&segment(&disk, DIR)).unwrap();
    assert!(!bytes.windows(4).any(|bytes| bytes == b"IHDR"), "no picture is in it");
}

#[test]
fn a_seeker_shows_the_last_picture_before_each_step_in_any_size() {
    let disk = FaultyDisk::new();
    record(&disk, EVERY);
    let registry = Registry::builtin();
    let episode = loaded(&disk, DIR).into_iter().find(|episode| episode.info.length == 11).unwrap();
    let (lane, number) = (episode.info.name.lane as usize, episode.info.name.number);
    // As of an env that this program does not have.
    let mut foreign = episode;
    let mut run = foreign.info.run.as_ref().clone();
    run.spec.id = "somebody/Else-v0".into();
    foreign.info.run = Arc::new(run);
    let mut seeker = Seeker::new(&registry, Arc::new(foreign), &SeekBounds::default()).unwrap();
    let size = seeker.picture_size().unwrap();
    for (step, shown) in [(0, 0), (3, 0), (4, 4), (7, 4), (11, 11), (10, 8), (1, 0)] {
        seeker.seek(step).unwrap();
        assert_eq!(seeker.picture_step(), Some(shown));
        assert_eq!(seeker.render(size).unwrap(), picture(lane, number, shown));
    }
    let doubled = seeker.render(ImageSize::new(32, 24).unwrap()).unwrap();
    assert_eq!(doubled.pixels()[..3], picture(lane, number, 0).pixels()[..3]);
}

#[test]
fn a_damaged_picture_costs_only_pictures() {
    let whole = FaultyDisk::new();
    record(&whole, EVERY);
    let path = segment(&whole, DIR);
    let bytes = whole.read(&path).unwrap();
    let before = loaded(&whole, DIR);
    let at: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, four)| four == b"IDAT").map(|(at, _)| at).collect();
    for at in [at[0], at[at.len() / 2], at[at.len() - 1]] {
        let disk = FaultyDisk::new();
        record(&disk, EVERY);
        disk.flip(&path, at + 6, 3);
        assert_eq!(replays(&disk, DIR).damage().count(), 1, "it is found");
        let after = loaded(&disk, DIR);
        assert_eq!(after.len(), before.len());
        let mut missing = 0;
        for (after, before) in after.iter().zip(&before) {
            let (mut after, mut before) = (after.clone(), before.clone());
            let (after_steps, before_steps) = (after.steps.as_mut().unwrap(), before.steps.as_mut().unwrap());
            let (left, all) =
                (std::mem::take(&mut after_steps.frames), std::mem::take(&mut before_steps.frames));
            missing += all.iter().len() - left.iter().len();
            assert!(left.iter().all(|(step, frame)| all.at(step) == Some((step, frame))));
            assert_eq!(after, before);
        }
        assert!(missing > 0);
    }
}

#[test]
fn pictures_come_along_into_a_file_of_one_episode_and_back() {
    let disk = FaultyDisk::new();
    record(&disk, EVERY);
    let mut importer = Importer::open(Arc::new(disk.clone()), Path::new("/to")).unwrap();
    for episode in loaded(&disk, DIR).iter().filter(|episode| episode.info.name.number < 2) {
        let mut bytes = Vec::new();
        write_portable(episode, &mut bytes, |_| true).unwrap();
        importer.add(&Portable::read(bytes).unwrap()).unwrap();
    }
    drop(importer);
    let there = loaded(&disk, "/to");
    assert!(there.len() >= LANES);
    there.iter().for_each(assert_pictures);
}

#[test]
fn pictures_come_along_into_the_part_of_a_segment_that_is_of_their_run() {
    let disk = FaultyDisk::new();
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
    let other = RunHeader { run: RunId::from_u128(5 << 64 | 3), lanes: 1, ..header("CartPole-v1") };
    let run = recorder.begin_run(other).unwrap();
    let mut block = run.block(0, 1);
    block.begin(0, Start::seeded(1), &[]);
    let actions = ColumnRef::I64(&[1]);
    block.row(Row {
        stepped: LaneSet::one(0),
        begun: LaneSet::NONE,
        actions,
        obs: &[],
        rewards: &[],
        infos: &[],
        now_ms: 5,
    });
    drop((block, run));
    recorder.write_out().unwrap();
    record_into(&recorder, EVERY);
    recorder.finish().unwrap();
    let bytes = disk.read(&segment_path(Path::new(DIR), 1)).unwrap();
    assert_eq!(SegmentSummary::of(1, &bytes).runs().len(), 2);
    let (part, _) = part_of_run(&bytes, header("test/Noise-v0").run, &SetAside::default()).unwrap();
    assert!(part.len() < bytes.len());
    let there = segment_path(Path::new("/part"), 1);
    disk.create_dir(there.parent().unwrap()).unwrap();
    disk.create(&there).unwrap().append_all(&part).unwrap();
    let (of_part, of_all) = (loaded(&disk, "/part"), loaded(&disk, DIR));
    assert_eq!(of_part.len(), of_all.len());
    for episode in &of_part {
        assert_pictures(episode);
        assert!(!episode.steps.as_ref().unwrap().frames.is_empty());
    }
}

#[test]
fn pictures_come_along_when_an_episode_is_recorded_again() {
    let disk = FaultyDisk::new();
    record(&disk, EVERY);
    let before = loaded(&disk, DIR);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let rules = PruneRules { keep_best: Some(2), ..PruneRules::default() };
    let done = prune(&shared, Path::new(DIR), &rules).unwrap().sum();
    assert!(done.episodes > 0 && done.stuck == 0, "{done:?}");
    let after = loaded(&disk, DIR);
    assert_eq!(after.len() as u64 + done.episodes, before.len() as u64);
    assert!(!after.is_empty());
    for episode in &after {
        let was = before.iter().find(|was| was.info.name == episode.info.name).unwrap();
        assert_eq!(episode.steps, was.steps);
        assert_pictures(episode);
    }
}
