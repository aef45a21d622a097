//! A store with an archive: what is there leaves the disk and is listed and read as before, whatever happens between.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use crate::stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_archive::{Shelf, Target, TargetOptions};
use rollhouse_coordinator::{ArchiveConfig, ArchiveFigures, Receive, Store, StoreConfig, StoreError};
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{ARCHIVED, Disk, RecorderConfig, segment_path, summary_path};
use rollhouse_wire::{RefusalCode, Ship, Shipped, StoreQuery, StoreStats};
use stage::{Play, play_with};
use tempfile::TempDir;

const DIR: &str = "/store";
const FOLDER: &str = "node-a-aaaaaaaa";

/// A folder to archive into, gone at the end of the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::with_prefix("rollhouse-archive-").unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn target(&self) -> Target {
        Target::named(self.path().to_str().unwrap(), &TargetOptions::default()).unwrap()
    }

    /// The files of segments in it.
    fn segments(&self) -> Vec<PathBuf> {
        let inside = fs::read_dir(self.path().join("segments").join(FOLDER)).into_iter().flatten();
        let mut files: Vec<PathBuf> = inside.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

/// Segments as a node seals them.
fn recorded() -> Vec<Vec<u8>> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/spool"));
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    let what = Play { lanes: 4, ..Play::new("CartPole-v1", 480) };
    play_with(Arc::new(disk.clone()), dir, config, &what, |row, recorder, block| {
        if row % 60 == 59 {
            block.flush();
            recorder.seal().unwrap();
        }
    });
    (1..).map_while(|number| disk.read(&segment_path(dir, number))).collect()
}

fn ship(store: &Store, number: usize, bytes: &[u8]) -> Result<Shipped, StoreError> {
    let (len, crc) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let ship =
        Ship { spool: "aaaaaaaa".into(), segment: number as u64 + 1, bytes: len, crc, owned: Vec::new() };
    match store.receive("node-a", &ship)? {
        Receive::Bytes(mut receiving) => {
            receiving.write(bytes)?;
            receiving.finish()
        }
        Receive::Answer(shipped) => Ok(shipped),
    }
}

fn open(disk: &FaultyDisk, budget_bytes: u64, folder: Option<&Folder>) -> Store {
    let config = StoreConfig { budget_bytes, quarantine_bytes: 1 << 20 };
    let archive = folder.map(|folder| ArchiveConfig { target: folder.target(), cache_bytes: 20_000 });
    Store::open_with(Arc::new(disk.clone()), Path::new(DIR), config, archive).unwrap()
}

/// Archives all that waits, or tries to for a while.
fn archive(store: &Store) -> ArchiveFigures {
    let mut now = Duration::from_secs(3600);
    for _ in 0..60 {
        match store.archive_once(now) {
            Some(wait) => now += wait,
            None => break,
        }
    }
    store.archive_figures().unwrap()
}

/// What the store says of all its episodes, and all added up.
fn told(store: &Store) -> (usize, Vec<String>, StoreStats) {
    let query = StoreQuery { limit: 1000, all_outcomes: true, sort: "name".into(), ..StoreQuery::default() };
    let page = store.episodes(&query).unwrap();
    assert!(!page.more);
    let told: Vec<String> = page.episodes.iter().map(|episode| format!("{episode:?}")).collect();
    (told.len(), told, store.stats().unwrap())
}

/// Every segment has the bytes that were shipped, wherever it is read from.
fn read(store: &Store, segments: &[Vec<u8>]) {
    for (number, bytes) in (1..).zip(segments) {
        let (read, len) = store.read(&format!("{FOLDER}/segments/{number:010}.seg"), 0, 1 << 20).unwrap();
        assert_eq!((&read, len), (bytes, bytes.len() as u64), "segment {number}");
    }
}

/// Of two of the segments.
fn budget(segments: &[Vec<u8>]) -> u64 {
    2 * segments.iter().map(|bytes| bytes.len() as u64).max().unwrap()
}

#[test]
fn what_is_in_the_archive_leaves_the_disk_and_is_listed_and_read_as_before() {
    let segments = recorded();
    let (disk, plain, folder) = (FaultyDisk::new(), FaultyDisk::new(), Folder::new());
    let (store, all) = (open(&disk, budget(&segments), Some(&folder)), open(&plain, 1 << 30, None));
    for (number, bytes) in segments.iter().enumerate() {
        assert_eq!(ship(&store, number, bytes).unwrap(), Shipped::Durable);
        assert_eq!(ship(&all, number, bytes).unwrap(), Shipped::Durable);
        archive(&store);
    }
    let figures = store.archive_figures().unwrap();
    let count = segments.len() as u64;
    assert_eq!(figures.both.segments + figures.away.segments, count);
    assert!(figures.away.segments >= count - 2 && store.status().bytes <= budget(&segments));
    assert_eq!(
        (store.counts().left_segments, store.counts().dropped_segments),
        (figures.away.segments, 0),
        "nothing is gone"
    );
    assert_eq!(told(&store), told(&all));
    assert_eq!(figures.fetches.misses, 0, "nothing is fetched to be listed");
    assert_eq!(ship(&store, 0, &segments[0]).unwrap(), Shipped::Known);
    read(&store, &segments);
    let fetches = store.archive_figures().unwrap().fetches;
    assert_eq!((fetches.misses, fetches.failed), (figures.away.segments, 0));
    let kept = disk.list(&Path::new(DIR).join("fetched")).unwrap();
    let kept: usize =
        kept.iter().map(|name| disk.read(&Path::new(DIR).join("fetched").join(name)).unwrap().len()).sum();
    assert!(kept > 0 && kept <= 20_000, "{kept}");
    // So after a restart, for which nothing is sent or fetched again.
    drop(store);
    let sent = folder.segments().into_iter().map(|path| fs::metadata(path).unwrap().modified().unwrap());
    let sent: Vec<_> = sent.collect();
    let store = open(&disk, budget(&segments), Some(&folder));
    assert_eq!(told(&store), told(&all));
    let again = archive(&store);
    assert_eq!((again.away, again.both, again.waiting.segments), (figures.away, figures.both, 0));
    assert_eq!(again.fetches.misses, 0);
    let now: Vec<_> =
        folder.segments().into_iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
    assert_eq!(now, sent);
    read(&store, &segments);
}

#[test]
fn while_the_archive_is_away_nothing_leaves_and_nodes_keep_what_has_no_room() {
    let segments = recorded();
    let (disk, folder) = (FaultyDisk::new(), Folder::new());
    let store = open(&disk, budget(&segments), Some(&folder));
    assert_eq!(ship(&store, 0, &segments[0]).unwrap(), Shipped::Durable);
    archive(&store);
    let elsewhere = folder.path().with_extension("away");
    fs::rename(folder.path(), &elsewhere).unwrap();
    let mut number = 1;
    let refused = loop {
        match ship(&store, number, &segments[number]) {
            Ok(shipped) => assert_eq!(shipped, Shipped::Durable),
            Err(error) => break error.refusal(),
        }
        number += 1;
    };
    assert!(
        refused.code == RefusalCode::Busy && refused.message.contains("rollhouse-archive-"),
        "{refused:?}"
    );
    let figures = archive(&store);
    assert!(figures.failures > 2 && figures.longest_wait >= Duration::ZERO);
    assert_eq!(figures.waiting.segments, number as u64 - 1);
    assert!(!folder.path().exists(), "what is away is not made anew in its place");
    assert_eq!(store.counts().dropped_segments, 0);
    // What was archived already has made room; it cannot be read, and is told to be away.
    assert_eq!(figures.away.segments, 1);
    let away = store.read(&format!("{FOLDER}/segments/0000000001.seg"), 0, 100).unwrap_err();
    assert_eq!(away.refusal().code, RefusalCode::Busy, "{away}");
    fs::rename(&elsewhere, folder.path()).unwrap();
    for (at, bytes) in segments.iter().enumerate().skip(number) {
        archive(&store);
        assert_eq!(ship(&store, at, bytes).unwrap(), Shipped::Durable);
    }
    assert_eq!(archive(&store).waiting.segments, 0);
    read(&store, &segments);
}

#[test]
fn whatever_a_power_cut_leaves_every_segment_that_was_acknowledged_is_listed_once_and_read() {
    let segments = recorded();
    let expected = {
        let all = open(&FaultyDisk::new(), 1 << 30, None);
        segments.iter().enumerate().for_each(|(number, bytes)| assert!(ship(&all, number, bytes).is_ok()));
        told(&all)
    };
    let folder = Folder::new();
    let (mut disk, mut shipped) = (FaultyDisk::new(), 0);
    // Each round fails an operation a little later, and goes on from what a power cut leaves then.
    for fail_at in 1..100 {
        let store = open(&disk, budget(&segments), Some(&folder));
        disk.set_faults(Faults {
            fail_at: Some(disk.operations() + 1 + fail_at % 41),
            fail_on: true,
            ..Faults::default()
        });
        while shipped < segments.len() && ship(&store, shipped, &segments[shipped]).is_ok() {
            shipped += 1;
            let _waits = store.archive_once(Duration::from_secs(3600));
        }
        let _waits = archive(&store);
        disk.set_faults(Faults::default());
        drop(store);
        disk = disk.after_power_cut(|_, _| 0);
        let store = open(&disk, budget(&segments), Some(&folder));
        // Entries are a cache, which nothing makes durable: what lost its own is fetched for them.
        archive(&store);
        read(&store, &segments[..shipped]);
        if shipped == segments.len() {
            assert_eq!(told(&store), expected);
        }
    }
    assert_eq!(shipped, segments.len());
    assert!(
        disk.list(&Path::new(DIR).join(FOLDER).join("segments")).unwrap().len() < shipped,
        "some have left"
    );
}

#[test]
fn what_is_noted_of_the_archive_may_be_deleted_or_scrambled_and_is_learned_from_there() {
    let segments = recorded();
    let (disk, folder) = (FaultyDisk::new(), Folder::new());
    let store = open(&disk, budget(&segments), Some(&folder));
    for (number, bytes) in segments.iter().enumerate() {
        ship(&store, number, bytes).unwrap();
        archive(&store);
    }
    let (expected, figures) = (told(&store), store.archive_figures().unwrap());
    drop(store);
    let path = Path::new(DIR).join(ARCHIVED);
    let noted = disk.read(&path).unwrap();
    let scrambled = |at: usize| {
        let mut bytes = noted.clone();
        let at = at % bytes.len();
        bytes[at] ^= 1;
        Some(bytes)
    };
    let cases =
        [None, Some(Vec::new()), Some(noted[..noted.len() / 2].to_vec()), scrambled(3), scrambled(120)];
    for (at, case) in cases.into_iter().enumerate() {
        match case {
            Some(bytes) => disk.write(&path, bytes),
            None => disk.remove(&path).unwrap(),
        }
        let store = open(&disk, budget(&segments), Some(&folder));
        let again = archive(&store);
        assert!(told(&store).1 == expected.1, "case {at}");
        assert_eq!((again.away, again.fetches.misses), (figures.away, 0), "case {at}: nothing is fetched");
        read(&store, &segments);
    }
    // Without the catalogue's entries they are fetched, and take as much of the disk as there is for them.
    disk.remove(&path).unwrap();
    for number in 1..=segments.len() as u64 {
        let _gone = disk.remove(&summary_path(&Path::new(DIR).join(FOLDER), number));
    }
    let store = open(&disk, budget(&segments), Some(&folder));
    archive(&store);
    assert_eq!(told(&store).0, expected.0);
    assert!(told(&store).1 == expected.1);
    assert!(store.status().bytes <= budget(&segments));
    read(&store, &segments);
    // So of a coordinator that begins with nothing but the archive.
    let disk = FaultyDisk::new();
    let store = open(&disk, budget(&segments), Some(&folder));
    assert_eq!(archive(&store).waiting.segments, 0);
    assert_eq!(told(&store).0, expected.0);
    assert!(told(&store).1 == expected.1);
    read(&store, &segments);
}

#[test]
fn what_is_damaged_in_the_archive_is_sent_anew_while_it_is_here_and_named_when_it_is_read() {
    let segments = recorded();
    let (disk, folder) = (FaultyDisk::new(), Folder::new());
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[100] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    {
        // Somebody has exported the first, and it has rotten since.
        let other = FaultyDisk::new();
        let store = open(&other, 1 << 30, Some(&folder));
        ship(&store, 0, &segments[0]).unwrap();
        archive(&store);
        flip(&folder.segments()[0]);
    }
    let store = open(&disk, budget(&segments), Some(&folder));
    ship(&store, 0, &segments[0]).unwrap();
    assert_eq!(archive(&store).both.segments, 1);
    assert_eq!(fs::read(&folder.segments()[0]).unwrap(), segments[0]);
    for (number, bytes) in segments.iter().enumerate().skip(1) {
        ship(&store, number, bytes).unwrap();
        archive(&store);
    }
    assert!(store.archive_figures().unwrap().away.segments >= 2);
    flip(&folder.segments()[0]);
    fs::remove_file(&folder.segments()[1]).unwrap();
    for (number, what) in [(1, "CRC"), (2, "missing")] {
        let error = store.read(&format!("{FOLDER}/segments/{number:010}.seg"), 0, 100).unwrap_err();
        let refusal = error.refusal();
        assert_eq!(refusal.code, RefusalCode::Internal);
        for word in [what, &format!("{FOLDER}/{number:010}"), folder.path().to_str().unwrap()] {
            assert!(refusal.message.contains(word), "{word} in {}", refusal.message);
        }
    }
    assert_eq!(store.archive_figures().unwrap().fetches.failed, 2);
    assert!(!Shelf::new(folder.target()).segments().unwrap().is_empty());
}

#[test]
fn a_segment_that_is_damaged_here_is_not_archived_and_is_what_the_budget_drops() {
    let segments = recorded();
    let (disk, folder) = (FaultyDisk::new(), Folder::new());
    let store = open(&disk, budget(&segments), Some(&folder));
    ship(&store, 0, &segments[0]).unwrap();
    let path = segment_path(&Path::new(DIR).join(FOLDER), 1);
    let mut bytes = segments[0].clone();
    bytes[200] ^= 1;
    disk.write(&path, bytes);
    let figures = archive(&store);
    assert_eq!((figures.unfit.segments, figures.waiting.segments), (1, 0));
    assert!(folder.segments().is_empty());
    for (number, bytes) in segments.iter().enumerate().skip(1) {
        ship(&store, number, bytes).unwrap();
        archive(&store);
    }
    let figures = store.archive_figures().unwrap();
    assert_eq!(
        figures.both.segments
            + figures.away.segments
            + figures.unfit.segments
            + store.counts().dropped_segments,
        segments.len() as u64
    );
}

/// A sealed segment without any recording, as docs/replay-format.md has it.
fn empty(number: u64) -> Vec<u8> {
    let record = |kind: u8, position: u64, tag: u32| {
        let mut header = [0; 64];
        header[..8].copy_from_slice(b"\x89RHrec\r\n");
        (header[8], header[9]) = (1, kind);
        header[32..40].copy_from_slice(&position.to_le_bytes());
        header[48..52].copy_from_slice(&tag.to_le_bytes());
        let crc = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        header
    };
    [record(1, number, 7), record(5, 64, 0)].concat()
}

/// Symptom: a node that shipped segments without anything in them filled the archive, and the memory of the coordinator,
/// which lists all that is there: the budget let them leave the disk for it. Cause: what has no recording went to the
/// archive as well. Fix: it does not, and is dropped when the disk is wanted.
#[test]
fn segments_without_a_recording_are_never_archived_and_are_dropped_when_the_disk_is_wanted() {
    let (folder, disk, segments) = (Folder::new(), FaultyDisk::new(), recorded());
    let store = open(&disk, 10 * (4 << 10), Some(&folder));
    assert_eq!(ship(&store, 0, &segments[0]).unwrap(), Shipped::Durable);
    for number in 1..=100 {
        assert_eq!(ship(&store, number, &empty(number as u64 + 1)).unwrap(), Shipped::Durable);
    }
    let figures = archive(&store);
    assert_eq!(folder.segments().len(), 1, "{figures:?}");
    assert!(store.status().segments <= 11, "{:?}", store.status());
    assert!(store.counts().dropped_segments >= 90, "{:?}", store.counts());
    read(&store, &segments[..1]);
    drop(store);
    let store = open(&disk, u64::MAX, Some(&folder));
    archive(&store);
    assert_eq!(folder.segments().len(), 1, "nor after a start");
}
