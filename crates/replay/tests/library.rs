//! A folder read together with the folders in it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{EpisodeName, Outcome, RecordRule};
use rollhouse_env::Registry;
use rollhouse_replay::limits::MAX_SUBFOLDERS;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    Disk, EpisodeInfo, Library, LibraryEpisode, OpenError, Query, ReadError, RealDisk, Recorder,
    RecorderConfig, RepairError, Replays, Sort, SortKey, repair_all, segment_path,
};

use crate::stage::{Play, play, play_with};

const DIR: &str = "/data";

/// Where the three recordings of a test lie: the folder itself and two in it.
fn places() -> [PathBuf; 3] {
    [PathBuf::from(DIR), Path::new(DIR).join("a"), Path::new(DIR).join("b")]
}

fn recorded() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let plays = [
        Play { seed: 1, ..Play::new("CartPole-v1", 300) },
        Play { seed: 2, lanes: 5, ..Play::new("CartPole-v1", 900) },
        Play { seed: 3, lanes: 3, ..Play::new("Pendulum-v1", 500) },
    ];
    for (dir, what) in places().iter().zip(&plays) {
        play(Arc::new(disk.clone()), dir, what);
    }
    disk
}

fn open(disk: &FaultyDisk) -> Library {
    Library::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap()
}

/// Every episode of every folder, asked for one by one.
fn each(disk: &FaultyDisk) -> Vec<EpisodeInfo> {
    let folders = places().map(|dir| Replays::open(Arc::new(disk.clone()), &dir).unwrap());
    folders.iter().flat_map(|replays| replays.list(&Query::default()).unwrap()).collect()
}

fn names<'a>(infos: impl IntoIterator<Item = &'a EpisodeInfo>) -> Vec<EpisodeName> {
    infos.into_iter().map(|info| info.name).collect()
}

/// Copies the recordings of one folder to another.
fn copy(disk: &FaultyDisk, from: &Path, to: &Path) {
    disk.create_dir(&to.join("segments")).unwrap();
    for path in disk.paths().iter().filter(|path| path.starts_with(from.join("segments"))) {
        disk.write(&to.join(path.strip_prefix(from).unwrap()), disk.read(path).unwrap());
    }
}

#[test]
fn filters_order_and_limit_hold_over_all_folders() {
    let disk = recorded();
    let library = open(&disk);
    let all = each(&disk);
    let least = all.iter().filter_map(|info| info.total_reward).fold(f64::NEG_INFINITY, f64::max) / 2.0;
    let filters = [
        Query::default(),
        Query { all_outcomes: true, ..Query::default() },
        Query { env: Some("CartPole-v1".into()), ..Query::default() },
        Query { outcome: Some(Outcome::TRUNCATED), ..Query::default() },
        Query { min_return: Some(least), ..Query::default() },
    ];
    for filter in filters {
        for key in [SortKey::Name, SortKey::Return, SortKey::Length, SortKey::Started] {
            for descending in [false, true] {
                for limit in [Some(0), Some(1), Some(20), None] {
                    let sort = Sort { key, descending };
                    let fits = |info: &&EpisodeInfo| {
                        filter.env.as_ref().is_none_or(|env| env == info.env())
                            && filter.outcome.is_none_or(|outcome| outcome == info.outcome)
                            && (filter.all_outcomes || !sort.is_of_merit() || info.outcome.is_finished())
                            && filter.min_return.is_none_or(|least| info.total_reward.unwrap() >= least)
                    };
                    let mut wanted: Vec<&EpisodeInfo> = all.iter().filter(fits).collect();
                    assert!(!wanted.is_empty());
                    wanted.sort_by(|a, b| sort.compare(a, b));
                    wanted.truncate(limit.unwrap_or(usize::MAX));
                    let query = Query { sort, limit, ..filter.clone() };
                    let listed = library.list(&query).unwrap();
                    assert_eq!(names(listed.iter().map(|episode| &episode.info)), names(wanted), "{query:?}");
                }
            }
        }
    }
    assert_eq!(library.count().unwrap(), all.len() as u64);
}

#[test]
fn an_episode_is_found_and_read_in_whichever_folder_it_is() {
    let disk = recorded();
    let library = open(&disk);
    for (at, dir) in places().iter().enumerate() {
        let replays = Replays::open(Arc::new(disk.clone()), dir).unwrap();
        let info = replays.list(&Query::default()).unwrap().swap_remove(at);
        let found = library.find(info.name).unwrap();
        assert_eq!((&found.info, found.folder.dir()), (&info, dir.as_path()));
        assert_eq!(found.folder.load(&found.info).unwrap(), replays.load(&info).unwrap());
    }
    let nobody: EpisodeName = "00000000-1-2".parse().unwrap();
    assert!(matches!(library.find(nobody), Err(ReadError::NoEpisode(name)) if name == nobody));
}

#[test]
fn a_name_that_several_folders_have_differently_is_an_error_that_names_them() {
    let disk = recorded();
    let [_, a, b] = places();
    let c = Path::new(DIR).join("c");
    // The same run and lanes, shown another action than the env got from the second step on.
    let other = Play { seed: 2, lanes: 5, lie_from: Some(1), ..Play::new("CartPole-v1", 900) };
    play(Arc::new(disk.clone()), &c, &other);
    let library = open(&disk);
    let of =
        |dir: &Path| Replays::open(Arc::new(disk.clone()), dir).unwrap().list(&Query::default()).unwrap();
    let twice = of(&a)[0].name;
    let Err(ReadError::InSeveralFolders { name: named, folders }) = library.find(twice) else { panic!() };
    assert_eq!((named, folders), (twice, vec![a.clone(), c]));
    assert!(library.find(of(&b)[0].name).is_ok());
    let listed = library.list(&Query::default()).unwrap();
    let copies: Vec<&LibraryEpisode> = listed.iter().filter(|episode| episode.info.name == twice).collect();
    assert_eq!(copies.len(), 1, "listed once");
    assert_eq!(copies[0].folder.dir(), a, "as the first folder has it");
}

#[test]
fn copies_of_an_episode_are_one_episode() {
    let disk = recorded();
    let before = open(&disk);
    let (count, stats) = (before.count().unwrap(), before.stats().unwrap());
    let names_of = |library: &Library, limit| {
        let query =
            Query { limit, sort: Sort { key: SortKey::Length, descending: true }, ..Query::default() };
        library.list(&query).unwrap().iter().map(|episode| episode.info.name).collect::<Vec<_>>()
    };
    let [_, a, _] = places();
    copy(&disk, &a, &Path::new(DIR).join("0"));
    copy(&disk, &a, &Path::new(DIR).join("z"));
    let library = open(&disk);
    assert_eq!(library.folders().len(), 5);
    assert_eq!(library.count().unwrap(), count);
    let now = library.stats().unwrap();
    assert_eq!((now.runs, now.steps, &now.episodes), (stats.runs, stats.steps, &stats.episodes));
    for limit in [None, Some(1), Some(7)] {
        assert_eq!(names_of(&library, limit), names_of(&before, limit));
    }
    let mut verified = 0;
    library.verify_all(&Registry::builtin(), |found| verified += u64::from(found.ok)).unwrap();
    assert_eq!(verified, count, "each is verified once");
    for info in Replays::open(Arc::new(disk.clone()), &a).unwrap().list(&Query::default()).unwrap() {
        let found = library.find(info.name).unwrap();
        assert_eq!(found.folder.dir(), Path::new(DIR).join("0"), "the first of equal copies");
    }
}

/// Symptom: an episode that one folder has whole could not be found if a folder before it had lost its beginning.
/// Cause: the first folder's "incomplete" ended the search. Fix: it is the answer only if no folder has the episode.
#[test]
fn a_whole_copy_is_found_where_another_folder_has_lost_its_beginning() {
    let disk = FaultyDisk::new();
    let [_, a, _] = places();
    let config = RecorderConfig { segment_bytes: 64 << 10, ..RecorderConfig::default() };
    let what = Play { record: RecordRule::Trace, ..Play::new("CartPole-v1", 2_000) };
    play_with(Arc::new(disk.clone()), &a, config, &what, |_, _, _| {});
    let cut = Path::new(DIR).join("0");
    copy(&disk, &a, &cut);
    disk.remove(&segment_path(&cut, 1)).unwrap();
    let only_cut = Replays::open(Arc::new(disk.clone()), &cut).unwrap();
    let whole = Replays::open(Arc::new(disk.clone()), &a).unwrap();
    let library = open(&disk);
    let mut headless = 0;
    for info in whole.list(&Query::default()).unwrap() {
        headless += u64::from(matches!(only_cut.find(info.name), Err(ReadError::Incomplete { .. })));
        let found = library.find(info.name).unwrap();
        found.folder.load(&found.info).unwrap();
    }
    assert!(headless > 0 && headless == only_cut.incomplete().unwrap());
}

#[test]
fn lanes_of_one_run_in_several_folders_are_one_run() {
    let disk = FaultyDisk::new();
    let whole = Play { seed: 9, lanes: 20, ..Play::new("CartPole-v1", 400) };
    play(Arc::new(disk.clone()), Path::new("/whole"), &whole);
    for (dir, first_lane) in places()[1..].iter().zip([0, 10]) {
        play(Arc::new(disk.clone()), dir, &Play { lanes: 10, first_lane, run_lanes: 20, ..whole.clone() });
    }
    disk.create_dir(Path::new(DIR)).unwrap();
    let library = open(&disk);
    let alone = Replays::open(Arc::new(disk.clone()), Path::new("/whole")).unwrap();
    let wanted = alone.list(&Query::default()).unwrap();
    let listed = library.list(&Query::default()).unwrap();
    assert_eq!(names(listed.iter().map(|episode| &episode.info)), names(&wanted));
    assert_eq!(library.stats().unwrap().runs, 1);
    for (episode, info) in listed.iter().zip(&wanted) {
        let (split, alone) = (episode.folder.load(&episode.info).unwrap(), alone.load(info).unwrap());
        assert_eq!((split.actions, split.end_hash), (alone.actions, alone.end_hash), "{}", info.name);
    }
    let mut verified = 0;
    library.verify_all(&Registry::builtin(), |found| verified += u64::from(found.ok)).unwrap();
    assert_eq!(verified, wanted.len() as u64);
}

#[test]
fn stats_add_up_and_everything_is_verified() {
    let disk = recorded();
    let library = open(&disk);
    let sum = library.stats().unwrap();
    let parts = places().map(|dir| Replays::open(Arc::new(disk.clone()), &dir).unwrap().stats().unwrap());
    assert_eq!((sum.runs, sum.segments, sum.writing), (3, 3, false));
    assert_eq!(sum.steps, parts.iter().map(|part| part.steps).sum::<u64>());
    assert_eq!(sum.bytes, parts.iter().map(|part| part.bytes).sum::<u64>());
    for (key, count) in &sum.episodes {
        let of_parts = parts.iter().filter_map(|part| part.episodes.get(key));
        assert_eq!(*count, of_parts.sum::<u64>(), "{key:?}");
    }
    let mut verified = Vec::new();
    library.verify_all(&Registry::builtin(), |found| verified.push((found.name, found.ok))).unwrap();
    assert!(verified.iter().all(|(_, ok)| *ok));
    let mut found: Vec<EpisodeName> = verified.into_iter().map(|(name, _)| name).collect();
    let mut wanted = names(&each(&disk));
    found.sort_unstable_by_key(ToString::to_string);
    wanted.sort_unstable_by_key(ToString::to_string);
    assert_eq!(found, wanted);
}

#[test]
fn episodes_of_several_folders_are_verified_together() {
    let disk = recorded();
    let episodes: Vec<LibraryEpisode> = open(&disk).list(&"-length".parse().map(sorted).unwrap()).unwrap();
    let mut steps = 0;
    let wanted: u64 = episodes.iter().map(|episode| episode.info.length).sum();
    LibraryEpisode::verify(episodes, &Registry::builtin(), |found| {
        assert!(found.ok, "{found:?}");
        steps += found.steps;
    })
    .unwrap();
    assert_eq!(steps, wanted);
}

fn sorted(sort: Sort) -> Query {
    Query { sort, ..Query::default() }
}

#[test]
fn damage_is_listed_with_its_folder() {
    let disk = recorded();
    let file = Path::new(DIR).join("b/segments/0000000001.seg");
    let mut bytes = disk.read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.write(&file, bytes);
    let library = Library::open_scanning(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    let files: Vec<PathBuf> = library.damage().map(|(folder, damage)| folder.path(damage.segment)).collect();
    assert!(!files.is_empty() && files.iter().all(|path| *path == file), "{files:?}");
}

#[test]
fn every_folder_that_no_writer_has_is_repaired() {
    let disk = recorded();
    let [main, a, b] = places();
    for dir in [&main, &a] {
        let file = dir.join("segments/0000000001.seg");
        let mut bytes = disk.read(&file).unwrap();
        // The seal and a little more, as a crash leaves it.
        bytes.truncate(bytes.len() - 70);
        disk.write(&file, bytes);
    }
    let writer = Recorder::open(Arc::new(disk.clone()), &b, RecorderConfig::default()).unwrap();
    let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let [of_main, of_a, of_b] = repair_all(&as_disk, &main).unwrap().try_into().unwrap();
    for (repair, dir) in [(of_main, &main), (of_a, &a)] {
        assert_eq!(&repair.dir, dir);
        assert_eq!(repair.result.unwrap().sealed, [1]);
    }
    assert_eq!(of_b.dir, b);
    assert!(matches!(of_b.result, Err(RepairError::Open(OpenError::Locked { .. }))));
    assert!(open(&disk).is_writing());
    drop(writer);
    assert!(!open(&disk).is_writing());
}

#[test]
fn a_folder_of_folders_is_not_made_a_recording_itself() {
    let disk = FaultyDisk::new();
    let [main, a, _] = places();
    play(Arc::new(disk.clone()), &a, &Play { lanes: 2, ..Play::new("CartPole-v1", 50) });
    let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let repairs = repair_all(&as_disk, &main).unwrap();
    assert_eq!(repairs.into_iter().map(|repair| repair.dir).collect::<Vec<_>>(), [a]);
    assert_eq!(disk.real_dir(&main.join("segments")), None);
    // Without any recordings the folder itself is what was asked for.
    let empty = Path::new("/empty");
    disk.create_dir(empty).unwrap();
    assert_eq!(repair_all(&as_disk, empty).unwrap().len(), 1);
}

#[test]
fn folders_are_read_by_name_and_too_many_are_an_error() {
    let disk = FaultyDisk::new();
    let dir = Path::new(DIR);
    for at in (0..MAX_SUBFOLDERS).rev() {
        disk.create_dir(&dir.join(format!("python-{at:04}/segments"))).unwrap();
    }
    disk.create_dir(&dir.join("notes")).unwrap();
    let library = open(&disk);
    assert_eq!(library.folders().len(), 1 + MAX_SUBFOLDERS);
    assert!(library.folders().is_sorted_by(|a, b| a.dir() < b.dir()));
    disk.create_dir(&dir.join("python-more/segments")).unwrap();
    let error = Library::open(Arc::new(disk.clone()), dir).unwrap_err();
    assert!(matches!(&error, ReadError::TooManyFolders { dir: which, .. } if which == dir), "{error}");
    assert!(error.to_string().contains("4096"), "{error}");
}

#[test]
fn a_link_to_a_folder_that_is_read_shows_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    play(Arc::new(RealDisk), dir, &Play { lanes: 2, seed: 1, ..Play::new("CartPole-v1", 60) });
    play(Arc::new(RealDisk), &dir.join("a"), &Play { lanes: 2, seed: 2, ..Play::new("CartPole-v1", 60) });
    let listed = || Library::open(Arc::new(RealDisk), dir).unwrap().list(&Query::default()).unwrap().len();
    let without = listed();
    std::os::unix::fs::symlink(dir.join("a"), dir.join("latest")).unwrap();
    std::os::unix::fs::symlink(dir, dir.join("here")).unwrap();
    std::os::unix::fs::symlink(dir.join("gone"), dir.join("nowhere")).unwrap();
    fs::write(dir.join("file"), b"no folder").unwrap();
    assert_eq!(listed(), without);
}
