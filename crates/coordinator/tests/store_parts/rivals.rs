//! What the store reads again when a segment comes.

use std::io;

use parking_lot::Mutex;
use rollhouse_replay::{DiskFile, Locking};

use super::*;

/// A disk that notes which files are opened, and cannot open some.
#[derive(Debug, Clone)]
struct Watched {
    disk: FaultyDisk,
    opened: Arc<Mutex<Vec<PathBuf>>>,
    broken: Arc<Mutex<Option<PathBuf>>>,
}

impl Watched {
    fn new(disk: &FaultyDisk) -> Self {
        Self { disk: disk.clone(), opened: Arc::default(), broken: Arc::default() }
    }

    fn store(&self) -> Store {
        let config = StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 };
        Store::open(Arc::new(self.clone()), Path::new(DIR), config).unwrap()
    }

    /// Segments that were opened since it was last asked.
    fn segments(&self) -> Vec<PathBuf> {
        let opened = std::mem::take(&mut *self.opened.lock());
        opened.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "seg")).collect()
    }
}

impl Disk for Watched {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(path)
    }
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_append(path)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.broken.lock().as_deref() == Some(path) {
            return Err(io::Error::other("the disk cannot read this"));
        }
        self.opened.lock().push(path.into());
        self.disk.open(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn lock(&self, path: &Path, note: &str) -> io::Result<Locking> {
        self.disk.lock(path, note)
    }
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_locked(path)
    }
    fn real_dir(&self, path: &Path) -> Option<PathBuf> {
        self.disk.real_dir(path)
    }
}

#[test]
fn only_segments_are_read_again_that_can_have_the_same_episodes() {
    let disk = FaultyDisk::new();
    let watched = Watched::new(&disk);
    let store = watched.store();
    // On each node a run whose episodes are short, with high numbers, lies in the same segments as one with few.
    let busy = Play { max_steps: 4, ..cart_pole() };
    let slow = Play { seed: 5, max_steps: 30, ..cart_pole() };
    let together = |node, plays: &[Play]| {
        let mut parcel = recorded_together(node, plays);
        parcel.ship.segment = 1;
        parcel
    };
    let first = together("node-a", &[busy.clone(), slow.clone()]);
    assert_eq!(ship(&store, &first).unwrap(), Shipped::Durable);
    watched.segments();
    // The other node has other lanes of the busy run: what they have in common is a run and numbers, no lane.
    let other = Play { first_lane: 4, run_lanes: 8, ..busy };
    let second = together("node-b", &[other, Play { seed: 6, ..slow.clone() }]);
    assert_eq!(ship(&store, &second).unwrap(), Shipped::Durable);
    let read = |segments: &[PathBuf], node: &str| {
        segments.iter().any(|path| path.starts_with(format!("/store/{node}-aaaaaaaa")))
    };
    assert!(!read(&watched.segments(), "node-a"), "nothing of it can be there");
    // Where lanes and numbers meet, it is looked at.
    let third = together("node-c", &[slow]);
    assert_eq!(ship(&store, &third).unwrap(), Shipped::Durable);
    let again = watched.segments();
    assert!(read(&again, "node-a") && !read(&again, "node-b"), "{again:?}");
    assert_eq!(store.status().set_aside, 0, "it is the same play");
}

/// Lanes that moved: the second node's first episodes have the numbers after the first node's last.
///
/// Symptom: after an ordinary drain each new segment of a run had the store read all segments of it that another node
/// had delivered: gigabytes at a day's worth. Cause: of a segment the store knew the numbers of its episodes over all
/// runs and lanes together. Fix: it knows them by run and block of lanes.
#[test]
fn segments_from_before_a_drain_are_not_read_for_those_after_it() {
    let disk = FaultyDisk::new();
    let watched = Watched::new(&disk);
    let store = watched.store();
    // Beside them each segment has a run whose episodes have all of these numbers.
    let slow = Play { lanes: 1, max_steps: 5, ..Play::new("Pendulum-v1", 600) };
    let spool = FaultyDisk::new();
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    play_with(Arc::new(spool.clone()), Path::new("/spool"), config, &slow, |row, recorder, block| {
        if row % 60 == 59 {
            block.flush();
            let busy = Play { lanes: 1, seed: 1000 + row, max_steps: 1, ..Play::new("CartPole-v1", 300) };
            play_into(recorder, &busy, |_, _, _| {});
            recorder.seal().unwrap();
        }
    });
    let of = |number| {
        let bytes = spool.read(&segment_path(Path::new("/spool"), number))?;
        Some(parcel("node-a", "aaaaaaaa", number, bytes))
    };
    let long: Vec<Parcel> = (1..).map_while(of).collect();
    let (before, after) = long.split_at(long.len() / 2);
    for parcel in before {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
    }
    watched.segments();
    let known: Vec<PathBuf> = (1..before.len() as u64)
        .map(|number| segment_path(Path::new("/store/node-a-aaaaaaaa"), number))
        .collect();
    for parcel in after {
        let moved = Parcel { node: "node-b", ..parcel.clone() };
        assert_eq!(ship(&store, &moved).unwrap(), Shipped::Durable);
        let again = watched.segments();
        assert!(!again.iter().any(|path| known.contains(path)), "{again:?}");
    }
}

/// Symptom: a segment of the store that could not be read had every shipment refused, for ever, that shared a lane with
/// it. Fix: after a few attempts the store does without it, and counts it.
#[test]
fn a_segment_that_cannot_be_read_does_not_keep_others_out_for_ever() {
    let disk = FaultyDisk::new();
    let watched = Watched::new(&disk);
    let store = watched.store();
    let first = recorded("node-a", &cart_pole());
    assert_eq!(ship(&store, &first[0]).unwrap(), Shipped::Durable);
    let broken = segment_path(Path::new("/store/node-a-aaaaaaaa"), 1);
    *watched.broken.lock() = Some(broken);
    let copy = Parcel { node: "node-b", ..first[0].clone() };
    let answers: Vec<_> = (0..4).map(|_| ship(&store, &copy)).collect();
    assert!(answers[..3].iter().all(|answer| matches!(answer, Err(StoreError::Disk(_)))), "{answers:?}");
    assert!(matches!(answers[3], Ok(Shipped::Durable)), "{answers:?}");
    assert_eq!(store.counts().unreadable, 1);
}
