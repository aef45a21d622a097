//! On the operating system's files: the catalogue in any state, locks, sizes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rollhouse_core::RecordRule;
use rollhouse_replay::{
    Labels, Library, Query, RealDisk, Recorder, RecorderConfig, Replays, Sort, SortKey, repair,
};
use tempfile::TempDir;

use crate::model::{Driver, Shape, all};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open(&self) -> Replays {
        Replays::open(Arc::new(RealDisk), self.path()).unwrap()
    }
}

/// Records into a folder; gives bytes written and episodes.
fn large(folder: &Folder, rows: usize, record: RecordRule, segment_bytes: u64) -> (u64, u64) {
    let shape = Shape { record, ..Shape::plain(rows) };
    let config = RecorderConfig { segment_bytes, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(RealDisk), folder.path(), config).unwrap();
    let run = recorder.begin_run(shape.header()).unwrap();
    let mut driver = Driver::new(&shape, run.block(0, 64));
    for _ in 0..rows {
        driver.row();
        driver.model.retain(|_, lived| lived.end.is_none());
    }
    driver.end_all();
    drop(driver);
    drop(run);
    let recorded = recorder.finish().unwrap();
    (recorded.bytes, recorded.episodes)
}

fn names(replays: &Replays) -> Vec<String> {
    all(replays).iter().map(|info| info.name.to_string()).collect()
}

#[test]
fn a_scrambled_deleted_or_unopenable_catalogue_changes_nothing_and_repair_makes_it_anew() {
    let folder = Folder::new();
    let (bytes, episodes) = large(&folder, 6000, RecordRule::Trace, 100 << 10);
    assert!(bytes > 9 << 20, "{bytes} bytes");
    let sled = folder.path().join("catalogue");
    assert!(sled.is_dir(), "the recorder gathers the entries of so many segments");
    let expected = names(&folder.open());
    assert_eq!(expected.len() as u64, episodes);
    let best =
        Query { sort: Sort { key: SortKey::Return, descending: true }, limit: Some(20), ..Query::default() };
    let top: Vec<_> = folder.open().list(&best).unwrap().iter().map(|info| info.name).collect();

    let same = |what: &str| {
        assert_eq!(names(&folder.open()), expected, "{what}");
        let found: Vec<_> = folder.open().list(&best).unwrap().iter().map(|info| info.name).collect();
        assert_eq!(found, top, "{what}");
    };
    same("read twice through the catalogue");

    let db = sled.join("db");
    let mut scrambled = fs::read(&db).unwrap();
    for (at, byte) in scrambled.iter_mut().enumerate().step_by(7) {
        *byte ^= at as u8 | 1;
    }
    fs::write(&db, &scrambled).unwrap();
    same("scrambled");
    fs::write(folder.path().join("catalogue.sum"), "nonsense").unwrap();
    same("scrambled checksum");
    fs::remove_dir_all(&sled).unwrap();
    same("deleted");
    fs::write(&sled, "a file where a folder should be").unwrap();
    same("a file");
    repair(Arc::new(RealDisk), folder.path()).unwrap();
    assert!(sled.is_dir());
    same("repaired");
    // In use by somebody else: sled locks its files.
    let held = sled::Config::new().path(&sled).open().unwrap();
    same("locked");
    drop(held);
}

#[test]
fn random_episodes_cost_less_than_their_budget_on_disk() {
    let folder = Folder::new();
    let (_, episodes) = large(&folder, 10_000, RecordRule::All, 3 << 20);
    let steps: u64 = all(&folder.open()).iter().map(|info| info.length).sum();
    let bytes_in = |inside: &str| -> u64 {
        walk(&folder.path().join(inside)).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
    };
    let bytes = bytes_in("segments");
    let per_step = bytes as f64 / steps as f64;
    let beside_actions = (bytes as f64 - steps as f64 / 8.0) / episodes as f64;
    // The model's returns and flags vary more than CartPole's, which makes it an upper bound.
    assert!(per_step <= 1.1, "{per_step} bytes a step");
    assert!(beside_actions <= 20.0, "{beside_actions} bytes an episode beside its actions");
    // Of which eight are the return, and as many tell how its episode began.
    let listed = (bytes_in("rows") + bytes_in("summaries")) as f64 / episodes as f64;
    assert!(listed <= 24.0, "{listed} bytes an episode for listings");
}

fn walk(dir: &PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_pipe_in_place_of_any_file_of_a_folder_holds_no_reader_up() {
    // Symptom: readers of a folder with a named pipe in place of a segment, an entry, the labels or any other file waited
    // for its writer for ever.
    // Cause: files were opened whatever stood at their path.
    // Fix: everything is opened without waiting, and what is no regular file is refused by what it is.
    let folder = Folder::new();
    large(&folder, 600, RecordRule::Trace, 100 << 10);
    let number = 2;
    let of = |sub: &str, ext: &str| folder.path().join(sub).join(format!("{number:010}.{ext}"));
    let [segment, entry] = [of("segments", "seg"), of("summaries", "sum")];
    assert!(segment.is_file() && entry.is_file(), "{segment:?} {entry:?}");
    let rows = fs::read_dir(folder.path().join("rows")).unwrap().map(|file| file.unwrap().path());
    let set = of("aside", "set");
    fs::create_dir_all(set.parent().unwrap()).unwrap();
    let [labels, spool] = ["labels", "spool"].map(|name| folder.path().join(name));
    for path in rows.chain([entry, labels, set, spool, segment, folder.path().join("writer.lock")]) {
        let _was_there = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Whether it is an error or read without is the reader's affair: that it ends is what counts.
        if let Ok(library) = Library::open(Arc::new(RealDisk), folder.path()) {
            let query = Query { sort: Sort { key: SortKey::Return, descending: true }, ..Query::default() };
            let _listed = library.list(&query);
            let _labels = library.labels();
            let _stats = library.stats();
        }
        let _recording = Recorder::open(Arc::new(RealDisk), folder.path(), RecorderConfig::default());
    }
    let refusal = Labels::load(&RealDisk, folder.path()).unwrap_err();
    assert!(format!("{refusal:?}").contains("a pipe, where a regular file has to be"), "{refusal:?}");
}
