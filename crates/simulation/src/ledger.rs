//! The ledger of what really happened, kept beside the cluster; it checks what must hold.
//!
//! Processes tell the ledger what they did. It knows nothing of how they decide, and panics as soon as something
//! happened that must not happen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EpisodeName, RunId};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Disk, EpisodeKey, Library, Query, ReadError, SegmentSummary, SetAside, segment_path};
use rollhouse_wire::{Incarnation, OwnerPart, SessionId, Shipped, is_pool_of};

use crate::owners::Owners;
use crate::placements::Placements;

/// A segment of a node's spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) node: usize,
    pub(crate) number: u64,
}

/// The fate of a segment that was sealed.
#[derive(Debug)]
struct Sealed {
    bytes: u64,
    episodes: BTreeMap<EpisodeKey, u64>,
    /// Whether the store has acknowledged it.
    acknowledged: bool,
    /// Whether the node has removed it.
    gone: bool,
    /// Whether it was dropped because the node's spool was full.
    dropped: bool,
    /// Number of segments that had come when the store put it in its place, if that was with its acknowledgement.
    arrival: Option<u64>,
    /// Whether the store has dropped it, because others came later.
    evicted: bool,
    /// The runs that are recorded in it.
    runs: BTreeSet<RunId>,
    /// The owners whom its node named as it was shipped, as far as they have runs in it.
    owners: BTreeSet<String>,
}

impl Sealed {
    /// Returns those for whom it counts in the store: its owners, and its node for what is nobody's.
    fn whose(&self, id: &SegmentId) -> impl Iterator<Item = String> + use<'_> {
        let owners = self.owners.iter().map(|owner| format!("owner {owner}"));
        owners.chain([format!("node {}", id.node)])
    }
}

/// The account of a pool whose lanes go on elsewhere.
#[derive(Debug, Default)]
struct Resumed {
    /// Number of times that they did.
    times: u64,
    copies: BTreeMap<EpisodeKey, u64>,
}

impl Resumed {
    /// Counts an episode that was recorded again. Returns whether it may be.
    fn may_repeat(&mut self, key: EpisodeKey) -> bool {
        let copies = self.copies.entry(key).or_default();
        *copies += 1;
        *copies <= self.times
    }
}

/// Everything that really happened.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    segments: BTreeMap<SegmentId, Sealed>,
    /// The segment in which each episode ended, and the episode's digest.
    episodes: BTreeMap<EpisodeKey, (SegmentId, u64)>,
    /// Episodes that ended, by run and lane.
    lived: BTreeMap<(u128, u32), u64>,
    /// The placements of sessions, and who stepped them.
    pub(crate) placements: Placements,
    /// Pools that have been placed since a coordinator last said that all they recorded is in the store.
    recording: BTreeSet<RunId>,
    term: u64,
    /// Whether the coordinator's folder is older than the latest coordinator.
    restored: bool,
    /// Pools whose lanes go on elsewhere.
    resumed: BTreeMap<u128, Resumed>,
    /// Episodes that an owner of such lanes saw end, and when.
    seen: BTreeMap<EpisodeKey, Duration>,
    /// Pools whose owner finishes episodes twice.
    forged: BTreeSet<u128>,
    /// Number of segments that the store has taken. The last of them is in `newest_stored` until it was looked for.
    arrivals: u64,
    newest_stored: Option<SegmentId>,
    /// Folder names of the nodes in the store.
    folders: BTreeMap<usize, String>,
    /// The owners of pools.
    pub(crate) owners: Owners,
}

impl Ledger {
    /// Makes the ledger of a world with these owners.
    pub(crate) fn of(owners: Owners) -> Self {
        Self { owners, ..Self::default() }
    }

    /// Notes that a coordinator has started.
    pub(crate) fn term(&mut self, term: u64) {
        let follows = term > self.term;
        assert!(
            follows || self.restored,
            "term {term} is not greater than {}, which was used before",
            self.term
        );
        self.restored &= !follows;
        self.term = self.term.max(term);
    }

    /// Notes that the coordinator's folder has an earlier term again: coordinators that start in it are behind until one
    /// is given a greater term.
    pub(crate) fn restored(&mut self) {
        self.restored = true;
    }

    /// Notes that a node has made a session's lanes: of each placement they are made once, on one node.
    pub(crate) fn made(&mut self, session: SessionId, incarnation: Incarnation) {
        self.placements.made(session, incarnation);
        self.recording.insert(session.pool);
    }

    /// Returns the pools of which no coordinator has said that all they recorded is in the store.
    pub(crate) fn recording(&self) -> Vec<RunId> {
        self.recording.iter().copied().collect()
    }

    /// Notes that the coordinator says that no session of that pool is open, and that all they recorded is in the
    /// store.
    pub(crate) fn shipped(&mut self, pool: RunId) {
        self.recording.remove(&pool);
        let missing = self.segments.iter().find(|(_, sealed)| {
            let of_it = sealed.episodes.keys().any(|key| key.run == pool.as_u128());
            of_it && !sealed.acknowledged && !sealed.dropped
        });
        assert!(missing.is_none(), "{pool} is told as shipped, and {:?} is not", missing.map(|(id, _)| id));
    }

    /// Notes that lanes of that pool go on elsewhere if their node is lost.
    pub(crate) fn resumes(&mut self, pool: RunId) {
        self.resumed.entry(pool.as_u128()).or_default();
    }

    /// Notes that the owner of that pool finishes episodes twice from now on.
    pub(crate) fn forges(&mut self, pool: RunId) {
        self.forged.insert(pool.as_u128());
    }

    /// Notes that the owner of a session has another place for it.
    pub(crate) fn left(&mut self, session: SessionId, incarnation: Incarnation) {
        self.placements.left(session, incarnation);
        self.resumed.entry(session.pool.as_u128()).or_default().times += 1;
    }

    /// Notes that the owner of that pool is gone, or needs it no more: nobody can repeat what ended since then.
    pub(crate) fn forgets(&mut self, pool: RunId, since: Duration) {
        self.seen.retain(|key, at| key.run != pool.as_u128() || *at < since);
    }

    /// Notes that the owner of a lane that goes on elsewhere saw an episode end.
    pub(crate) fn seen(&mut self, pool: RunId, lane: u32, number: u64, at: Duration) {
        let key = EpisodeKey { run: pool.as_u128(), lane, number };
        assert!(self.seen.insert(key, at).is_none(), "{key:?} ended twice for its owner");
    }

    /// Notes how many episodes of a lane have ended so far.
    pub(crate) fn lived(&mut self, run: RunId, lane: u32, episodes: u64) {
        let lived = self.lived.entry((run.as_u128(), lane)).or_default();
        *lived = (*lived).max(episodes);
    }

    /// Notes the name of a node's folder in the store.
    pub(crate) fn folder(&mut self, node: usize, folder: &str) {
        self.folders.insert(node, folder.to_owned());
    }

    /// Notes that a node has sealed a segment: from now on its episodes may not be lost. Returns true if it is new.
    pub(crate) fn sealed(&mut self, id: SegmentId, disk: &FaultyDisk, dir: &Path) -> bool {
        if self.segments.contains_key(&id) {
            return false;
        }
        let file = disk.open(&segment_path(dir, id.number)).expect("what was sealed is there");
        let summary = SegmentSummary::read(id.number, &*file).expect("a disk in memory can be read");
        assert!(summary.is_whole(), "{id:?} was sealed and is not whole");
        let episodes = summary.digests(&*file).expect("a disk in memory can be read");
        for (&key, &digest) in &episodes {
            let lived = self.lived.get(&(key.run, key.lane)).copied().unwrap_or(0);
            assert!(key.number < lived, "{key:?} is recorded, {lived} episodes have ended in its lane");
            let known = self.episodes.insert(key, (id, digest));
            let is_late = known.is_none() && !self.recording.contains(&RunId::from_u128(key.run));
            assert!(!is_late, "{key:?} comes after its pool was told as shipped");
            if let Some((other, known)) = known.filter(|_| !self.forged.contains(&key.run)) {
                // Lanes that went on elsewhere play again what had just ended, and play it alike.
                let again = self.resumed.get_mut(&key.run).is_some_and(|resumed| resumed.may_repeat(key));
                assert!(
                    again && other != id && known == digest,
                    "{key:?} ended in {other:?} and in {id:?} ({known:x}, {digest:x})"
                );
            }
        }
        let bytes = summary.bytes();
        self.segments.insert(
            id,
            Sealed {
                bytes,
                episodes,
                acknowledged: false,
                gone: false,
                dropped: false,
                arrival: None,
                evicted: false,
                runs: summary.runs(),
                owners: BTreeSet::new(),
            },
        );
        true
    }

    /// Notes whom a node names as the owners of a segment that it ships.
    pub(crate) fn shipped_as(&mut self, id: SegmentId, owned: &[OwnerPart]) {
        let sealed = self.segments.get_mut(&id).expect("only what was sealed is shipped");
        if !sealed.acknowledged {
            let has_runs = |part: &&OwnerPart| sealed.runs.iter().any(|&run| is_pool_of(&part.owner, run));
            sealed.owners = owned.iter().filter(has_runs).map(|part| part.owner.clone()).collect();
        }
    }

    /// Notes that the store has acknowledged a segment. The store keeps one aside only if it has it already: a power
    /// cut can bring back a segment that was removed, without the bytes that a failed sync had left nowhere but in
    /// memory.
    pub(crate) fn acknowledged(&mut self, folder: &str, number: u64, shipped: Shipped) {
        let Some((&node, _)) = self.folders.iter().find(|(_, name)| *name == folder) else {
            panic!("{folder} is no node's");
        };
        let sealed =
            self.segments.get_mut(&SegmentId { node, number }).expect("only what was sealed is shipped");
        let has_it = sealed.acknowledged;
        assert!(
            shipped != Shipped::Quarantined || has_it,
            "{folder} {number}: nothing here contradicts anything"
        );
        sealed.acknowledged = true;
        if shipped == Shipped::Durable {
            self.arrivals += 1;
            (sealed.arrival, sealed.evicted) = (Some(self.arrivals), false);
            self.newest_stored = Some(SegmentId { node, number });
        }
    }

    /// Returns the folders that nodes have in the store.
    pub(crate) fn store_folders(&self) -> Vec<String> {
        self.folders.values().cloned().collect()
    }

    /// Checks what the store has after it has taken a segment: that one in any case, and of the others of each owner, or
    /// of each node, those that came last.
    pub(crate) fn check_there(&mut self, there: BTreeMap<String, BTreeSet<u64>>) {
        let is_there = |id: &SegmentId| {
            let numbers = self.folders.get(&id.node).and_then(|folder| there.get(folder));
            numbers.is_some_and(|numbers| numbers.contains(&id.number))
        };
        if let Some(newest) = self.newest_stored.take() {
            assert!(is_there(&newest), "{newest:?} was told as durable and dropped in the same moment");
        }
        let mut oldest: BTreeMap<String, u64> = BTreeMap::new();
        for (id, sealed) in self.segments.iter().filter(|(id, _)| is_there(id)) {
            let Some(arrival) = sealed.arrival else { continue };
            for whose in sealed.whose(id) {
                let known = oldest.entry(whose).or_insert(arrival);
                *known = (*known).min(arrival);
            }
        }
        for (id, sealed) in
            self.segments.iter_mut().filter(|(_, sealed)| sealed.acknowledged && !sealed.evicted)
        {
            let numbers = self.folders.get(&id.node).and_then(|folder| there.get(folder));
            if numbers.is_some_and(|numbers| numbers.contains(&id.number)) {
                continue;
            }
            let before = |arrival: u64| {
                let comes_first = |whose: &String| oldest.get(whose).is_none_or(|&oldest| arrival < oldest);
                sealed.whose(id).any(|whose| comes_first(&whose))
            };
            let in_turn = sealed.arrival.is_none_or(before);
            assert!(in_turn, "{id:?} was dropped, and what came before it was not");
            sealed.evicted = true;
        }
    }

    /// Notes that a node removes a segment that it did not decide to drop.
    pub(crate) fn removed(&mut self, id: SegmentId) {
        let sealed = self.segments.get_mut(&id).expect("only what was sealed is removed");
        sealed.gone = true;
        assert!(sealed.acknowledged, "{id:?} was removed and the store never had it");
    }

    /// Notes that a node drops a segment because its spool is full.
    pub(crate) fn dropped(&mut self, id: SegmentId) {
        let sealed = self.segments.get_mut(&id).expect("only what was sealed is dropped");
        (sealed.gone, sealed.dropped) = (true, true);
    }

    /// Checks that what a power cut leaves of a node's disk has everything that was sealed and not removed.
    pub(crate) fn check_spool(&self, node: usize, image: &FaultyDisk, dir: &Path) {
        let from = SegmentId { node, number: 0 };
        for (id, sealed) in self.segments.range(from..).take_while(|(id, _)| id.node == node) {
            if !sealed.gone {
                assert_whole(image, dir, id.number, sealed);
            }
        }
    }

    /// Checks that what a power cut leaves of the store's disk has everything that was acknowledged.
    pub(crate) fn check_store(&self, image: &FaultyDisk, store: &Path) {
        for (id, sealed) in self.segments.iter().filter(|(_, sealed)| sealed.acknowledged && !sealed.evicted)
        {
            assert_whole(image, &store.join(&self.folders[&id.node]), id.number, sealed);
        }
    }

    /// Checks that everything that was sealed is in the store, once, and that nothing else is listed as finished. Nor
    /// may anything be missing that the owner of lanes that go on elsewhere saw end, unless disks were `lossy`.
    pub(crate) fn check_end(&self, disk: &FaultyDisk, store: &Path, lossy: bool) {
        let mut kept: BTreeSet<EpisodeKey> = BTreeSet::new();
        for (id, sealed) in &self.segments {
            assert!(sealed.acknowledged || sealed.dropped, "{id:?} never came to the store");
            kept.extend(sealed.episodes.keys().filter(|_| sealed.acknowledged));
        }
        self.check_store(&disk.after_power_cut(|_, _| 0), store);
        for key in self.seen.keys().filter(|_| !lossy) {
            let sealed =
                self.segments.values().any(|sealed| sealed.dropped && sealed.episodes.contains_key(key));
            assert!(kept.contains(key) || sealed, "{key:?} ended for its owner, and is nowhere");
        }
        if !self.segments.values().any(|sealed| sealed.acknowledged) {
            return;
        }
        let expected = self.check_aside(disk, store);
        let library = Library::open_scanning(Arc::new(disk.clone()), store).expect("the store can be read");
        assert_eq!(library.damage().count(), 0, "the store is damaged");
        let list = library.list(&Query::default()).expect("the store can be read");
        let mut listed = BTreeSet::new();
        for info in list.iter().map(|episode| &episode.info) {
            let (run, EpisodeName { lane, number, .. }) = (info.run_id().as_u128(), info.name);
            let key = EpisodeKey { run, lane, number };
            assert!(listed.insert(key), "{} is listed twice", info.name);
            let is_known = !info.outcome.is_finished() || expected.contains(&key);
            assert!(is_known, "{} is listed as finished, and nobody finished it", info.name);
        }
        for key in expected.difference(&listed) {
            let run = RunId::from_u128(key.run).short();
            let name = EpisodeName { run, lane: key.lane, number: key.number };
            // Its beginning was dropped, by a node or by the store.
            let found = library.find(name).map(|episode| episode.info.outcome);
            let is_incomplete = matches!(found, Err(ReadError::Incomplete { .. }));
            assert!(is_incomplete, "{name} is in the store as finished, and not listed so: {found:?}");
        }
    }

    /// Checks that nothing is set aside but what an owner finished twice itself, of which one version is left. Returns
    /// the finished episodes that the store has.
    fn check_aside(&self, disk: &FaultyDisk, store: &Path) -> BTreeSet<EpisodeKey> {
        let mut versions: BTreeMap<EpisodeKey, u64> = BTreeMap::new();
        for (id, _) in self.segments.iter().filter(|(_, sealed)| sealed.acknowledged && !sealed.evicted) {
            let dir = store.join(&self.folders[&id.node]);
            let file = disk.open(&segment_path(&dir, id.number)).expect("it was just looked at");
            let summary = SegmentSummary::read(id.number, &*file).expect("a disk in memory can be read");
            let aside = SetAside::load(disk, &dir, id.number).expect("what is set aside can be read");
            for episode in summary.finished(&*file).expect("a disk in memory can be read") {
                let key = episode.key;
                if aside.has(episode.offset, key) {
                    assert!(self.forged.contains(&key.run), "{key:?} is set aside by another's doing");
                } else if let Some(other) = versions.insert(key, episode.digest) {
                    assert_eq!(other, episode.digest, "{key:?} is in the store with two contents");
                }
            }
        }
        versions.into_keys().collect()
    }

    /// Returns the number of episodes that were sealed.
    pub(crate) fn episodes(&self) -> usize {
        self.episodes.len()
    }
}

fn assert_whole(disk: &FaultyDisk, dir: &Path, number: u64, sealed: &Sealed) {
    let path = segment_path(dir, number);
    let file = disk.open(&path).unwrap_or_else(|_| panic!("{} is lost", path.display()));
    let summary = SegmentSummary::read(number, &*file).expect("a disk in memory can be read");
    assert!(summary.is_whole() && summary.bytes() == sealed.bytes, "{} is damaged", path.display());
    let digests = summary.digests(&*file).expect("a disk in memory can be read");
    assert_eq!(digests, sealed.episodes, "{} has other episodes", path.display());
}
