//! From two nodes' recorders through shippers and a store, over a network that fails, to a reader elsewhere.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::stage;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rollhouse_client::{BLOCK_BYTES, CACHE_BYTES, RemoteDisk, StoreReader};
use rollhouse_coordinator::{Receive, Store, StoreConfig, StoreError};
use rollhouse_core::{WhenFull, split_mix64};
use rollhouse_env::Registry;
use rollhouse_node::{ShipAction, ShipEvent, Shipper, ShipperConfig};
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{Disk, Library, Query, Recorder, RecorderConfig, Replays, Spool, repair_all};
use rollhouse_wire::{Ship, Shipped, StoreListing};
use stage::{Play, play, play_with};

const STORE: &str = "/store";
const SPOOL: &str = "/spool";

/// A node's part of the run, recorded and waiting in its spool, and what decides about it.
struct Node {
    name: &'static str,
    spool: Spool,
    _recorder: Recorder,
    shipper: Shipper,
    todo: Vec<ShipAction>,
}

fn part(first_lane: u32) -> Play {
    Play { lanes: 6, first_lane, run_lanes: 12, ..Play::new("CartPole-v1", 240) }
}

impl Node {
    fn new(name: &'static str, first_lane: u32) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
        play_with(disk.clone(), Path::new(SPOOL), config, &part(first_lane), |row, recorder, block| {
            if row % 30 == 29 {
                block.flush();
                recorder.seal().unwrap();
            }
        });
        let recorder = Recorder::open(disk, Path::new(SPOOL), config).unwrap();
        let spool = recorder.spool();
        let config = ShipperConfig {
            spool_bytes: 1 << 30,
            when_full: WhenFull::BackPressure,
            seed: first_lane.into(),
        };
        Self { name, spool, _recorder: recorder, shipper: Shipper::new(config), todo: Vec::new() }
    }

    fn tell(&mut self, now: Duration, event: ShipEvent) {
        self.shipper.handle(now, event, &mut self.todo);
    }
}

/// Two nodes, a store on a disk that fails, and a network between them that does.
struct World {
    word: u64,
    now: Duration,
    disk: FaultyDisk,
    store: Option<Store>,
    nodes: Vec<Node>,
    cut: u64,
    unheard: u64,
    refused: u64,
    restarts: u64,
    known: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let nodes = vec![Node::new("node-a", 0), Node::new("node-b", 6)];
        let disk = FaultyDisk::new();
        let store = Some(open(&disk));
        Self {
            word: seed,
            now: Duration::ZERO,
            disk,
            store,
            nodes,
            cut: 0,
            unheard: 0,
            refused: 0,
            restarts: 0,
            known: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.word = split_mix64(self.word);
        self.word % below
    }

    /// Ships until nothing is left, while things fail now and then.
    fn run(&mut self) {
        for at in 0..self.nodes.len() {
            let sealed = self.nodes[at].spool.sealed();
            for segment in sealed {
                self.nodes[at].tell(self.now, ShipEvent::Spooled(segment));
            }
            self.nodes[at].tell(self.now, ShipEvent::Connected);
        }
        for _ in 0..10_000 {
            if self.nodes.iter().all(|node| node.shipper.is_empty() && node.todo.is_empty()) {
                return;
            }
            self.now += Duration::from_millis(100);
            if self.draw(10) == 0 {
                self.restart();
            }
            if self.draw(4) == 0 {
                let fail_at = Some(self.disk.operations() + 1 + self.draw(12));
                self.disk.set_faults(Faults { fail_at, ..Faults::default() });
            }
            let at = self.draw(2) as usize;
            let todo = std::mem::take(&mut self.nodes[at].todo);
            for action in todo {
                self.act(at, action);
            }
            self.nodes[at].tell(self.now, ShipEvent::Tick);
        }
        panic!("it does not come to rest");
    }

    /// The coordinator's machine loses its power and comes back; all connections with it.
    fn restart(&mut self) {
        self.restarts += 1;
        self.store = None;
        self.disk = self.disk.after_power_cut(|_, _| 0);
        self.store = Some(open(&self.disk));
        for node in &mut self.nodes {
            node.todo.retain(|action| !matches!(action, ShipAction::Ship(_)));
            node.tell(self.now, ShipEvent::Disconnected);
            node.tell(self.now, ShipEvent::Connected);
        }
    }

    fn act(&mut self, at: usize, action: ShipAction) {
        match action {
            ShipAction::Ship(segment) => {
                let number = segment.number;
                let event = match self.ship(at, number) {
                    Some(answer) => {
                        self.known += u64::from(answer == Shipped::Known);
                        ShipEvent::Answered { number, answer }
                    }
                    None => ShipEvent::Failed { number, retry_after: None },
                };
                self.nodes[at].tell(self.now, event);
            }
            ShipAction::TakeAway { number, dropped } => {
                assert!(!dropped);
                self.nodes[at].spool.take_away(number).unwrap();
                self.nodes[at].tell(self.now, ShipEvent::TakenAway { number, episodes: None });
            }
            ShipAction::SetAside { number } => panic!("segment {number} is set aside"),
            ShipAction::Hold(held) => panic!("held: {held}"),
        }
    }

    /// One attempt; `None` if the node does not learn of an answer.
    fn ship(&mut self, at: usize, number: u64) -> Option<Shipped> {
        let node = &self.nodes[at];
        let (name, spool) = (node.name, node.spool.name().unwrap());
        let file = node.spool.open(number).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        let crc = crc32c::crc32c(&bytes);
        let ship = Ship { spool, segment: number, bytes: bytes.len() as u64, crc, owned: Vec::new() };
        let sent = if self.draw(4) == 0 { self.draw(ship.bytes) as usize } else { bytes.len() };
        let store = self.store.clone().unwrap();
        let answer = match store.receive(name, &ship) {
            Ok(Receive::Answer(answer)) => Ok(answer),
            Ok(Receive::Bytes(mut receiving)) => {
                let written = bytes[..sent].chunks(700).try_for_each(|piece| receiving.write(piece));
                if sent < bytes.len() {
                    self.cut += 1;
                    return None;
                }
                written.and_then(|()| receiving.finish())
            }
            Err(error) => Err(error),
        };
        if answer.is_err() {
            self.refused += 1;
        } else if self.draw(5) == 0 {
            self.unheard += 1;
            return None;
        }
        answer.ok()
    }
}

fn open(disk: &FaultyDisk) -> Store {
    disk.set_faults(Faults::default());
    let config = StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 };
    Store::open(Arc::new(disk.clone()), Path::new(STORE), config).unwrap()
}

/// The store without a network between, counting what is asked.
#[derive(Debug)]
struct Direct {
    store: Store,
    asked: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl StoreReader for Direct {
    fn list(&self, path: &str, after: &str) -> io::Result<StoreListing> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.store.list(path, after).map_err(|error| panic!("{path} was asked for: {error}"))
    }

    fn read(&self, path: &str, offset: u64, bytes: u32) -> io::Result<(Vec<u8>, u64)> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (data, len) = self.store.read(path, offset, bytes).map_err(error_of)?;
        self.read.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok((data, len))
    }
}

fn error_of(error: StoreError) -> io::Error {
    match error {
        StoreError::NotFound(_) => io::ErrorKind::NotFound.into(),
        error => io::Error::other(error),
    }
}

fn remote(store: &Store) -> (Arc<dyn Disk>, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (asked, read) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let direct = Direct { store: store.clone(), asked: asked.clone(), read: read.clone() };
    (Arc::new(RemoteDisk::new(direct)), asked, read)
}

/// Every episode with its actions, in the order of names.
fn contents(library: &Library) -> Vec<String> {
    let listed = library.list(&Query::default()).unwrap();
    let all = listed.iter().map(|episode| episode.folder.load(&episode.info).unwrap());
    all.map(|e| format!("{} {} {:?} {:?}", e.info.name, e.info.outcome.word(), e.end_hash, e.actions))
        .collect()
}

/// The whole run recorded in one folder by one process.
fn alone() -> Vec<String> {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
    play(disk.clone(), Path::new("/alone"), &Play { lanes: 12, ..part(0) });
    contents(&Library::open(disk, Path::new("/alone")).unwrap())
}

fn verified(library: &Library) -> usize {
    let mut verified = 0;
    library
        .verify_all(&Registry::builtin(), |found| {
            assert!(found.ok, "{}", found.name);
            verified += 1;
        })
        .unwrap();
    verified
}

#[test]
fn every_episode_of_two_nodes_is_read_exactly_once_whatever_failed_on_the_way() {
    let wanted = alone();
    let (mut cut, mut unheard, mut refused, mut restarts, mut known) = (0, 0, 0, 0, 0);
    for seed in 0..25 {
        let mut world = World::new(seed);
        world.run();
        (cut, unheard, refused) = (cut + world.cut, unheard + world.unheard, refused + world.refused);
        (restarts, known) = (restarts + world.restarts, known + world.known);
        let store = world.store.unwrap();
        assert_eq!(store.status().quarantined, 0, "seed {seed}");
        let here = Library::open_scanning(Arc::new(world.disk.clone()), Path::new(STORE)).unwrap();
        assert_eq!(contents(&here), wanted, "seed {seed}");
        assert_eq!(here.damage().count(), 0);
        assert_eq!(verified(&here), wanted.len());
        let there = Library::open(remote(&store).0, Path::new("")).unwrap();
        assert_eq!(contents(&there), wanted, "seed {seed}, from elsewhere");
        assert_eq!(verified(&there), wanted.len());
        assert_eq!(there.stats().unwrap(), here.stats().unwrap());
        for node in &world.nodes {
            assert!(node.spool.sealed().is_empty());
        }
    }
    for (what, count) in
        [("cut", cut), ("unheard", unheard), ("refused", refused), ("restarts", restarts), ("known", known)]
    {
        assert!(count > 0, "{what} never happened");
    }
}

/// A store with all of it, and its disk.
fn filled() -> (FaultyDisk, Store) {
    let mut world = World::new(1);
    world.run();
    let store = world.store.take().unwrap();
    (world.disk.clone(), store)
}

#[test]
fn a_reader_elsewhere_does_not_read_segments_to_list_what_is_in_them() {
    let (_disk, store) = filled();
    let (disk, asked, read) = remote(&store);
    let library = Library::open(disk.clone(), Path::new("")).unwrap();
    let segments = store.status().segments;
    // The store's folder and its lock, then each folder of a spool and its two; one summary per segment.
    assert!(
        asked.load(Ordering::Relaxed) <= segments + 12,
        "{} of {segments}",
        asked.load(Ordering::Relaxed)
    );
    let episodes = library.list(&Query::default()).unwrap();
    let listed = asked.load(Ordering::Relaxed);
    assert!(listed <= 2 * segments + 12, "a listing reads rows alone: {listed} of {segments}");
    let load = || episodes.iter().for_each(|episode| drop(episode.folder.load(&episode.info).unwrap()));
    load();
    let loaded = asked.load(Ordering::Relaxed);
    assert!(loaded > listed, "segments are read for what is in the episodes");
    load();
    assert_eq!(asked.load(Ordering::Relaxed), loaded, "what was read once is kept");
    assert!(read.load(Ordering::Relaxed) < 3 * store.status().bytes + segments * 4096);
    // Opening again on the same disk asks nothing.
    Library::open(disk, Path::new("")).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), loaded);
}

#[test]
fn a_store_cannot_be_changed_from_elsewhere() {
    let (_disk, store) = filled();
    let (disk, ..) = remote(&store);
    let repairs = repair_all(&disk, Path::new("")).unwrap();
    assert!(!repairs.is_empty());
    for repair in repairs {
        let error = repair.result.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("the coordinator repairs it when it starts"), "{error}: {cause}");
    }
    assert!(Recorder::open(disk, Path::new("node-a"), RecorderConfig::default()).is_err());
}

#[test]
fn what_is_not_there_is_said_to_be_missing() {
    let (_disk, store) = filled();
    let (disk, ..) = remote(&store);
    let folder = Library::open(disk.clone(), Path::new("nobody")).unwrap_err();
    assert!(matches!(folder, rollhouse_replay::ReadError::NoFolder(_)), "{folder}");
    for path in ["/etc/passwd", "../x", "node-a/segments/0000000001.seg"] {
        let error = disk.open(Path::new(path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{path}");
    }
    assert!(disk.real_dir(Path::new("store.lock")).is_none());
    assert!(disk.is_locked(Path::new("store.lock")).unwrap());
    let library = Library::open(disk, Path::new("")).unwrap();
    assert!(library.folders()[1..].iter().all(|folder: &Arc<Replays>| folder.is_writing()));
}

/// One file of arbitrary bytes, so large that not all of it is kept.
#[derive(Debug)]
struct Large {
    bytes: u64,
    asked: Arc<AtomicU64>,
}

impl Large {
    fn at(offset: u64) -> u8 {
        split_mix64(offset / 8) as u8
    }
}

impl StoreReader for Large {
    fn list(&self, _: &str, _: &str) -> io::Result<StoreListing> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn read(&self, _: &str, offset: u64, bytes: u32) -> io::Result<(Vec<u8>, u64)> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(bytes as usize <= rollhouse_wire::limits::MAX_STORE_READ_BYTES);
        let end = self.bytes.min(offset + u64::from(bytes));
        Ok(((offset..end).map(Self::at).collect(), self.bytes))
    }
}

#[test]
fn large_files_are_read_in_blocks_and_a_bounded_part_of_them_is_kept() {
    let bytes = (CACHE_BYTES + 3 * BLOCK_BYTES + 77) as u64;
    let asked = Arc::<AtomicU64>::default();
    let disk = RemoteDisk::new(Large { bytes, asked: asked.clone() });
    let file = disk.open(Path::new("a/segments/0000000001.seg")).unwrap();
    assert_eq!(file.len().unwrap(), bytes);
    let check = |from: u64, len: usize| {
        let mut buffer = vec![0; len];
        let mut filled = 0;
        while filled < len {
            let read = file.read_at(&mut buffer[filled..], from + filled as u64).unwrap();
            assert!(read > 0);
            filled += read;
        }
        let wrong = buffer.iter().enumerate().find(|(at, byte)| **byte != Large::at(from + *at as u64));
        assert_eq!(wrong, None);
    };
    check(0, 10 * BLOCK_BYTES);
    // The first block came with the length, four at a time after it.
    assert_eq!(asked.load(Ordering::Relaxed), 1 + 3);
    check(5, 100);
    check(3 * BLOCK_BYTES as u64 - 5, 10);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    check(bytes - 77, 77);
    assert_eq!(file.read_at(&mut [0; 9], bytes).unwrap(), 0);
    check(0, bytes as usize);
    let before = asked.load(Ordering::Relaxed);
    check(0, 1);
    assert_eq!(asked.load(Ordering::Relaxed), before + 1, "the oldest made room");
}
