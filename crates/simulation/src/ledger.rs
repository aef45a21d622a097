//! What really happened, kept beside the cluster; and what must hold of it.
//!
//! Processes tell the ledger what they did. It knows nothing of how they decide, and panics as soon as something
//! happened that must not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::RunId;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Disk, EpisodeKey, Library, Query, SegmentSummary, segment_path};
use rollhouse_wire::{Incarnation, SessionId};

/// A segment of a node's spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) node: usize,
    pub(crate) number: u64,
}

/// What became of a segment that was sealed.
#[derive(Debug)]
struct Sealed {
    bytes: u64,
    episodes: BTreeMap<EpisodeKey, u64>,
    /// The store has acknowledged it.
    acknowledged: bool,
    /// The node has removed it.
    gone: bool,
    /// The node's spool was full and its policy is to drop.
    dropped: bool,
}

/// What was stepped of one placement of a session.
#[derive(Debug, Default)]
struct Stepped {
    /// The stream that may step it.
    stream: u64,
    last: u32,
}

/// What really happened.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    segments: BTreeMap<SegmentId, Sealed>,
    /// Which segment an episode ended in, and its digest.
    episodes: BTreeMap<EpisodeKey, (SegmentId, u64)>,
    /// Episodes that ended, by run and lane.
    lived: BTreeMap<(u128, u32), u64>,
    placements: BTreeMap<(SessionId, Incarnation), Stepped>,
    /// The newest placement that was stepped.
    newest: BTreeMap<SessionId, Incarnation>,
    /// The newest placement whose answers were taken, by pool and lane.
    taken: BTreeMap<(RunId, u32), Incarnation>,
    given: BTreeSet<(SessionId, Incarnation)>,
    /// Placements that are over, by the boot of their node.
    over: BTreeSet<(u64, SessionId, Incarnation)>,
    term: u64,
    /// Folder names of the nodes in the store.
    folders: BTreeMap<usize, String>,
    /// Requests that were carried out.
    pub(crate) requests: u64,
}

impl Ledger {
    /// The coordinator has drawn a placement.
    pub(crate) fn given(&mut self, session: SessionId, incarnation: Incarnation) {
        assert!(self.given.insert((session, incarnation)), "{session} {incarnation} was given twice");
    }

    /// A coordinator has started.
    pub(crate) fn term(&mut self, term: u64) {
        assert!(term > self.term, "term {term} is not greater than {}, which was used before", self.term);
        self.term = term;
    }

    /// A node has made a session's lanes.
    pub(crate) fn made(&mut self, boot: u64, session: SessionId, incarnation: Incarnation) {
        let again = self.over.contains(&(boot, session, incarnation));
        assert!(!again, "{session} {incarnation} is made again after it was over");
    }

    /// A node has ended a session.
    pub(crate) fn over(&mut self, boot: u64, session: SessionId, incarnation: Incarnation) {
        self.over.insert((boot, session, incarnation));
    }

    /// A stream attached to a session.
    pub(crate) fn attached(&mut self, session: SessionId, incarnation: Incarnation, stream: u64) {
        self.placements.entry((session, incarnation)).or_default().stream = stream;
    }

    /// A node carried out a request: the next one of its session, from the stream that attached last, and of no
    /// placement that a newer one has followed.
    pub(crate) fn stepped(&mut self, session: SessionId, incarnation: Incarnation, stream: u64, number: u32) {
        self.requests += 1;
        let stepped = self.placements.entry((session, incarnation)).or_default();
        assert_eq!(stepped.stream, stream, "{session} {incarnation}: two owners step it");
        assert_eq!(
            number,
            stepped.last + 1,
            "{session} {incarnation}: a request is carried out twice or not at all"
        );
        stepped.last = number;
        let newest = self.newest.entry(session).or_insert(incarnation);
        assert!(incarnation >= *newest, "{session}: {incarnation} is stepped after {newest}");
        *newest = incarnation;
    }

    /// A trainer that asked under a number took an answer.
    pub(crate) fn taken(
        &mut self,
        pool: RunId,
        lanes: std::ops::Range<u32>,
        incarnation: Incarnation,
        asked: u32,
        answered: u32,
    ) {
        assert_eq!(asked, answered, "an answer was taken for an answer to request {asked}");
        for lane in lanes {
            let newest = self.taken.entry((pool, lane)).or_insert(incarnation);
            assert!(incarnation >= *newest, "lane {lane}: {incarnation} answers after {newest}");
            *newest = incarnation;
        }
    }

    /// So many episodes of a lane have ended so far.
    pub(crate) fn lived(&mut self, run: RunId, lane: u32, episodes: u64) {
        let lived = self.lived.entry((run.as_u128(), lane)).or_default();
        *lived = (*lived).max(episodes);
    }

    /// A node's folder in the store.
    pub(crate) fn folder(&mut self, node: usize, folder: &str) {
        self.folders.insert(node, folder.to_owned());
    }

    /// A node has sealed a segment: from now on its episodes may not be lost. True if it is new.
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
            if let Some((other, known)) = self.episodes.insert(key, (id, digest)) {
                panic!("{key:?} ended in {other:?} and in {id:?} ({known:x}, {digest:x})");
            }
        }
        let bytes = summary.bytes();
        self.segments
            .insert(id, Sealed { bytes, episodes, acknowledged: false, gone: false, dropped: false });
        true
    }

    /// The store has acknowledged a segment.
    pub(crate) fn acknowledged(&mut self, folder: &str, number: u64) {
        let Some((&node, _)) = self.folders.iter().find(|(_, name)| *name == folder) else {
            panic!("{folder} is no node's");
        };
        let sealed =
            self.segments.get_mut(&SegmentId { node, number }).expect("only what was sealed is shipped");
        sealed.acknowledged = true;
    }

    /// A node removes a segment that it did not decide to drop.
    pub(crate) fn removed(&mut self, id: SegmentId) {
        let sealed = self.segments.get_mut(&id).expect("only what was sealed is removed");
        sealed.gone = true;
        assert!(sealed.acknowledged, "{id:?} was removed and the store never had it");
    }

    /// A node drops a segment because its spool is full.
    pub(crate) fn dropped(&mut self, id: SegmentId) {
        let sealed = self.segments.get_mut(&id).expect("only what was sealed is dropped");
        (sealed.gone, sealed.dropped) = (true, true);
    }

    /// What a power cut leaves of a node's disk has everything that was sealed and not removed.
    pub(crate) fn check_spool(&self, node: usize, image: &FaultyDisk, dir: &Path) {
        let from = SegmentId { node, number: 0 };
        for (id, sealed) in self.segments.range(from..).take_while(|(id, _)| id.node == node) {
            if !sealed.gone {
                assert_whole(image, dir, id.number, sealed);
            }
        }
    }

    /// What a power cut leaves of the store's disk has everything that was acknowledged.
    pub(crate) fn check_store(&self, image: &FaultyDisk, store: &Path) {
        for (id, sealed) in self.segments.iter().filter(|(_, sealed)| sealed.acknowledged) {
            assert_whole(image, &store.join(&self.folders[&id.node]), id.number, sealed);
        }
    }

    /// Everything that was sealed is in the store, once, and nothing else is listed as finished.
    pub(crate) fn check_end(&self, disk: &FaultyDisk, store: &Path) {
        let mut kept = 0;
        for (id, sealed) in &self.segments {
            assert!(sealed.acknowledged || sealed.dropped, "{id:?} never came to the store");
            kept += if sealed.acknowledged { sealed.episodes.len() } else { 0 };
        }
        self.check_store(&disk.after_power_cut(|_, _| 0), store);
        if !self.segments.values().any(|sealed| sealed.acknowledged) {
            return;
        }
        let library = Library::open_scanning(Arc::new(disk.clone()), store).expect("the store can be read");
        assert_eq!(library.damage().count(), 0, "the store is damaged");
        let list = library.list(&Query::default()).expect("the store can be read");
        let mut names = BTreeSet::new();
        let mut ended = 0;
        for episode in &list {
            let info = &episode.info;
            assert!(names.insert(info.name.to_string()), "{} is listed twice", info.name);
            ended += usize::from(info.outcome.is_finished());
        }
        assert_eq!(ended, kept, "finished episodes in the store, and that were sealed");
    }

    /// Episodes that were sealed.
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
