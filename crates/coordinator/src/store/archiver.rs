//! The archive of a store: the notes on its contents, and the thread that carries segments there.
//!
//! The thread holds the store for moments only, never while it waits for the archive: a store that is given up is free
//! at once, and an interrupted transfer leaves nothing that counts (`rollhouse-archive`). A segment is noted in the
//! file `archived` when it was read back from the archive whole, and may leave the disk only then.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rollhouse_archive::{Checked, SegmentId, Shelf as Target};
use rollhouse_core::{OwnedBytes, panic_message};
use rollhouse_replay::{
    ARCHIVED, Archived, ArchivedSegment, Disk, DiskError, Lines, OpenError, SegmentSummary, SetAside,
    read_all, segment_path,
};
use rollhouse_wire::{Ship, Shipped};
use tracing::{dispatcher, error, info, warn};

use super::archive_plan::{Amount, ArchivePlan, Next, Standing, Task};
use super::arrivals::SPARE_LINES;
use super::away::AwayDisk;
use super::fetched::{ArchiveError, FetchCounts, Fetched, fetch, fetched_dir};
use super::shelf::{Held, Shelf};
use super::{Inner, Store, StoreError, opening};

/// The archive in which a store's segments are kept.
#[derive(Debug)]
pub struct ArchiveConfig {
    /// The archive. Nothing but what a store exports may be put there.
    pub target: rollhouse_archive::Target,
    /// Bytes of segments that are kept on this disk after they were fetched to be read; the one read longest ago goes
    /// first.
    pub cache_bytes: u64,
}

/// Figures of a store and its archive: how many segments are where, and what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArchiveFigures {
    /// Segments that are on this disk and not known to be in the archive.
    pub waiting: Amount,
    /// Time for which the oldest waiting segment has waited.
    pub longest_wait: Duration,
    /// Segments that are on this disk and in the archive.
    pub both: Amount,
    /// Segments that are in the archive only.
    pub away: Amount,
    /// Segments that are damaged on this disk, so that no archive takes them.
    pub unfit: Amount,
    /// Number of times that the archive failed.
    pub failures: u64,
    /// Counts of reads of segments that are in the archive only.
    pub fetches: FetchCounts,
}

/// A store's side of its archive.
#[derive(Debug)]
pub(crate) struct Archive {
    target: Arc<Target>,
    disk: Arc<dyn Disk>,
    pub(crate) away: Arc<AwayDisk>,
    pub(crate) fetched: Arc<Fetched>,
    log: Mutex<Lines>,
    /// Whether nothing was ever noted of this archive: it may have to be made.
    is_new: bool,
    /// Whether it was seen since the store was opened, and half-written files of an earlier process were removed from
    /// it.
    is_seen: AtomicBool,
    wakes: Mutex<Wakes>,
    woken: Condvar,
    began: Instant,
}

#[derive(Debug, Default)]
struct Wakes {
    news: bool,
    stop: bool,
}

/// The thread that archives. Dropping this ends it: the drop waits for the current task at most [`LINGER`] and then leaves
/// it behind.
#[derive(Debug)]
pub(crate) struct Archiver {
    archive: Arc<Archive>,
    ended: Receiver<()>,
}

impl Archive {
    /// Reads the notes of the store in `dir` on it. Blocks for the disk.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: ArchiveConfig,
    ) -> Result<(Self, Archived), OpenError> {
        let noted = Archived::read(&*disk, dir).map_err(OpenError::Disk)?;
        let target = Arc::new(Target::new(config.target));
        let cache = fetched_dir(dir);
        let fetched = Fetched::open(disk.clone(), cache.clone(), config.cache_bytes, target.clone());
        let fetched = Arc::new(fetched.map_err(|error| opening("empty", &cache, error))?);
        let away = Arc::new(AwayDisk::new(disk.clone(), dir, fetched.clone()));
        noted.segments.iter().for_each(|segment| away.add(segment.clone()));
        let is_new = noted.target != target.target().shown()
            && (!noted.target.is_empty() || noted.segments.is_empty());
        let archive = Self {
            target,
            away,
            fetched,
            log: Mutex::new(Lines::new(dir, ARCHIVED)),
            is_new,
            is_seen: AtomicBool::new(false),
            wakes: Mutex::default(),
            woken: Condvar::new(),
            began: Instant::now(),
            disk,
        };
        Ok((archive, noted))
    }

    /// Sets for each segment in stock whether the archive has it, and writes the notes anew.
    pub(super) fn take_stock(
        &self,
        noted: &Archived,
        shelf: &mut Shelf,
        dir: &Path,
    ) -> Result<(), OpenError> {
        let is_same = noted.target == self.target.target().shown();
        let mut archiving = ArchivePlan::new(!is_same || !noted.whole);
        let by_place = noted.segments.iter().map(|known| ((known.folder.as_str(), known.number), known));
        let mut known: BTreeMap<(&str, u64), &ArchivedSegment> = by_place.collect();
        for (order, folder, held) in shelf.all() {
            let fresh = held.fresh_standing();
            let standing = match known.remove(&(&**folder, held.number())) {
                Some(known) if (known.crc, known.bytes) == (held.crc, held.bytes) => {
                    let path = segment_path(&dir.join(&**folder), held.number());
                    let is_away = self.away.away(&path).is_some();
                    // What another archive had is to be proven of this one.
                    if is_away {
                        Standing::Away
                    } else if is_same {
                        Standing::Proven
                    } else {
                        fresh
                    }
                }
                _ => fresh,
            };
            archiving.add(order, held.bytes, standing, self.began.elapsed());
        }
        // Those are there, and nothing is known of them here: they are read from there.
        for left in known.into_values() {
            self.away.remove(&left.folder, left.number);
            if shelf.get(&left.folder, left.number).is_none() {
                archiving.adopts(super::away::id_of(left), left.bytes);
            }
        }
        shelf.archive(archiving);
        let lines = self.lines(shelf);
        let mut log = self.log.lock();
        log.rewrite(&*self.disk, lines).map_err(OpenError::Disk)
    }

    /// Returns the lines of the file. They do not name the archive before all that it has is listed: a start before
    /// that has to look again.
    fn lines(&self, shelf: &Shelf) -> Vec<String> {
        let Some(archiving) = &shelf.archiving else { return Vec::new() };
        let target =
            archiving.is_settled().then(|| Archived::target_line(self.target.target().shown())).into_iter();
        let unlisted = archiving.unlisted().map(|(id, bytes)| {
            let SegmentId { number, folder, crc } = id.clone();
            ArchivedSegment { folder, number, crc, bytes }
        });
        let archived = archiving.archived().filter_map(|order| shelf.at(order));
        let archived = archived.map(|(folder, held)| noted_as(folder, held));
        target.chain(archived.chain(unlisted).map(|segment| segment.line())).collect()
    }

    /// Writes the file anew.
    fn write(&self, store: &Store) -> Result<(), DiskError> {
        let mut log = self.log.lock();
        let lines = self.lines(&store.shelf());
        log.rewrite(&*self.disk, lines)
    }

    /// Notes that the archive has a segment. Durable on return.
    fn note(&self, store: &Store, segment: &ArchivedSegment) -> Result<(), DiskError> {
        let mut log = self.log.lock();
        let there = store.shelf().len();
        if log.is_unsure() || log.count() > 2 * there + SPARE_LINES {
            let lines = self.lines(&store.shelf());
            log.rewrite(&*self.disk, lines)?;
        }
        log.add(&segment.line())
    }

    /// Wakes the thread, because a segment came.
    pub(crate) fn wake(&self) {
        self.wakes.lock().news = true;
        self.woken.notify_all();
    }

    /// Ends the thread and all waits for the archive.
    pub(crate) fn stop(&self) {
        self.wakes.lock().stop = true;
        self.woken.notify_all();
        self.fetched.stop();
    }

    /// Waits for news, at most that long, and returns whether to go on.
    fn wait(&self, most: Option<Duration>) -> bool {
        let until = most.map(|most| Instant::now() + most);
        let mut wakes = self.wakes.lock();
        while !wakes.news && !wakes.stop {
            match until {
                Some(until) if self.woken.wait_until(&mut wakes, until).timed_out() => break,
                Some(_) => {}
                None => self.woken.wait(&mut wakes),
            }
        }
        // A pause is not cut short by what comes.
        wakes.news = false;
        !wakes.stop
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Archiver {
    /// Starts the thread, if the store has an archive. Its log lines go to the caller's `tracing` subscriber.
    pub(crate) fn start(store: &Store) -> io::Result<Option<Self>> {
        let Some(archive) = store.inner.archive.clone() else { return Ok(None) };
        let (weak, working) = (Arc::downgrade(&store.inner), Arc::clone(&archive));
        let (end, ended) = sync_channel(1);
        let heard = dispatcher::get_default(Clone::clone);
        // Task: archive.
        std::thread::Builder::new().name("rollhouse-archive".to_owned()).spawn(move || {
            dispatcher::with_default(&heard, || {
                while let Some(next) = archive_next(&weak, working.now()) {
                    if let Next::Wait(most) = next
                        && !working.wait(most)
                    {
                        break;
                    }
                }
            });
            // Room for the one word; nobody may wait for it.
            let _told = end.try_send(());
        })?;
        Ok(Some(Self { archive, ended }))
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        self.archive.stop();
        let _ended = self.ended.recv_timeout(LINGER);
    }
}

impl Store {
    /// Does the next task for the archive, if one is due at `now`, a time since the store was opened. Returns how long
    /// to wait before the next call; `None` if a segment has to come first. Blocks for the disk and the archive.
    pub fn archive_once(&self, now: Duration) -> Option<Duration> {
        match archive_next(&Arc::downgrade(&self.inner), now) {
            Some(Next::Do(_)) => Some(Duration::ZERO),
            Some(Next::Wait(wait)) => wait,
            None => None,
        }
    }

    /// Returns the figures; `None` without an archive. Does not block for the disk.
    pub fn archive_figures(&self) -> Option<ArchiveFigures> {
        let archive = self.inner.archive.as_ref()?;
        let fetches = archive.fetched.counts();
        let shelf = self.shelf();
        let archiving = shelf.archiving.as_ref()?;
        Some(ArchiveFigures {
            waiting: archiving.amount(Standing::Waiting),
            longest_wait: archiving.longest_wait(archive.now()),
            both: archiving.amount(Standing::Proven),
            away: archiving.amount(Standing::Away),
            unfit: archiving.amount(Standing::Unfit),
            failures: archiving.failures(),
            fetches,
        })
    }

    /// Returns the archive's name in messages; empty without one.
    pub(super) fn archive_name(&self) -> String {
        self.inner.archive.as_ref().map_or_else(String::new, |archive| archive.target.target().shown().into())
    }

    /// Notes that the archive certainly has the segment at that place. Durable on return; it may leave the disk from
    /// now on.
    fn is_archived(&self, archive: &Archive, order: u64) -> Result<(), TaskFailure> {
        let noted = self.shelf().at(order).map(|(folder, held)| noted_as(folder, held));
        // Gone since.
        let Some(segment) = noted else { return Ok(()) };
        archive.note(self, &segment).map_err(|error| TaskFailure::Here(error.to_string()))?;
        archive.away.add(segment);
        if let Some(archiving) = &mut self.shelf().archiving {
            archiving.becomes(order, Standing::Proven);
        }
        self.keep_budget();
        Ok(())
    }

    /// Takes a segment of the archive into the listing, without its bytes, if the catalogue still knows all of it.
    fn is_listed_again(&self, archive: &Archive, segment: &ArchivedSegment, has_aside: bool) -> Option<()> {
        let ArchivedSegment { folder, number, crc, .. } = segment;
        let (disk, dir) = (&*archive.away, self.inner.dir.join(folder));
        let known = SegmentSummary::load(disk, &dir, *number).filter(|summary| summary.crc() == *crc)?;
        let aside = SetAside::load(disk, &dir, *number).ok()?;
        // Without its folder readers do not look for it.
        disk.list(segment_path(&dir, *number).parent()?).ok()?;
        (aside.is_empty() != has_aside).then_some(())?;
        archive.note(self, segment).ok()?;
        let mut shelf = self.shelf();
        let folder = shelf.folder(folder);
        let order = shelf.add(&folder, Held::of(&known, &aside, OwnedBytes::none()));
        shelf.is_away(order);
        shelf.counts.adopted += 1;
        Some(())
    }
}

/// The reason why a task was not done.
enum TaskFailure {
    /// The archive failed.
    There(ArchiveError),
    /// The store failed.
    Here(String),
}

impl From<ArchiveError> for TaskFailure {
    fn from(error: ArchiveError) -> Self {
        Self::There(error)
    }
}

impl From<StoreError> for TaskFailure {
    fn from(error: StoreError) -> Self {
        Self::Here(error.to_string())
    }
}

/// Does the next task and returns it; `None` if the store is gone, or has no archive.
fn archive_next(store: &Weak<Inner>, now: Duration) -> Option<Next> {
    let held = || Some(Store { inner: store.upgrade()? });
    let (archive, next) = {
        let store = held()?;
        let archive = store.inner.archive.clone()?;
        let next = store.shelf().archiving.as_ref()?.next(now);
        (archive, next)
    };
    let Next::Do(task) = &next else { return Some(next) };
    let done = catch_unwind(AssertUnwindSafe(|| perform(store, &archive, task)));
    let done = done.unwrap_or_else(|panic| Err(TaskFailure::Here(panic_message(&*panic))));
    let store = held()?;
    let settled = {
        let mut shelf = store.shelf();
        let archiving = shelf.archiving.as_mut()?;
        match done {
            Ok(()) => archiving.done(task),
            Err(trouble) => {
                archiving.failed(task, now.max(archive.now()));
                let (TaskFailure::There(ArchiveError { what, .. }) | TaskFailure::Here(what)) = &trouble;
                if let (Task::Adopt(id), TaskFailure::There(ArchiveError { is_away: false, .. })) =
                    (task, &trouble)
                {
                    error!(segment = %id, "what is in the archive only cannot be listed: {what}");
                    archiving.done(task);
                } else {
                    warn!("archiving waits: {what}");
                }
            }
        }
        archiving.is_settled() && !matches!(task, Task::Send(_))
    };
    if settled && let Err(error) = archive.write(&store) {
        // The next start looks at the archive again.
        warn!("what the archive has cannot be noted: {error}");
    }
    Some(next)
}

/// Carries out a task. The store is held only while its disk is at work.
fn perform(store: &Weak<Inner>, archive: &Archive, task: &Task) -> Result<(), TaskFailure> {
    if !archive.is_seen.load(Ordering::Relaxed) {
        let target = archive.target.target();
        let ready = if archive.is_new { target.prepare() } else { target.is_there() };
        ready.map_err(|error| ArchiveError::of(target.shown(), &error))?;
        archive.is_seen.store(true, Ordering::Relaxed);
    }
    match task {
        Task::List => list(store, archive),
        Task::Adopt(id) => adopt(store, archive, id),
        Task::Send(order) => send(store, archive, *order),
    }
}

fn list(store: &Weak<Inner>, archive: &Archive) -> Result<(), TaskFailure> {
    let (shelf, target) = (&archive.target, archive.target.target());
    let there = shelf.segments();
    let there = there.map_err(|error| ArchiveError::of(target.shown(), &error))?;
    let Some(inner) = store.upgrade() else { return Ok(()) };
    let store = Store { inner };
    let mut shelf = store.shelf();
    let unknown: Vec<SegmentId> = there
        .into_iter()
        .filter(|id| shelf.get(&id.folder, id.number).is_none())
        .filter(|id| !shelf.quarantine().has(&id.folder, id.number, id.crc))
        .collect();
    if let Some(archiving) = &mut shelf.archiving {
        if !unknown.is_empty() {
            let (segments, archive) = (unknown.len(), target.shown());
            info!("{segments} segments that the archive {archive} has are taken into the listing");
        }
        unknown.into_iter().for_each(|id| archiving.adopts(id, 0));
    }
    Ok(())
}

fn adopt(store: &Weak<Inner>, archive: &Archive, id: &SegmentId) -> Result<(), TaskFailure> {
    let label = archive.target.label(id);
    let label = label.map_err(|error| ArchiveError::of(archive.target.target().shown(), &error))?;
    let again = || {
        let (label, store) = (label?, Store { inner: store.upgrade()? });
        let SegmentId { number, folder, crc } = id.clone();
        let segment = ArchivedSegment { folder, number, crc, bytes: label.bytes };
        archive.away.add(segment.clone());
        let listed = store.is_listed_again(archive, &segment, label.has_aside());
        if listed.is_none() {
            archive.away.remove(&id.folder, id.number);
        }
        listed
    };
    if again().is_none() {
        let checked = fetch(&archive.target, id)?;
        let (Some(inner), Some((node, spool))) = (store.upgrade(), id.parts()) else { return Ok(()) };
        let store = Store { inner };
        let bytes = checked.bytes.len() as u64;
        let ship =
            Ship { spool: spool.to_owned(), segment: id.number, bytes, crc: id.crc, owned: Vec::new() };
        let shipped = store.take_in(node, &ship, &checked.bytes, &checked.aside)?;
        let order = store.shelf().get(&id.folder, id.number).map(|held| held.order);
        if let (Shipped::Durable | Shipped::Known, Some(order)) = (shipped, order) {
            store.is_archived(archive, order)?;
        }
    }
    Ok(())
}

fn send(store: &Weak<Inner>, archive: &Archive, order: u64) -> Result<(), TaskFailure> {
    let read = {
        let Some(inner) = store.upgrade() else { return Ok(()) };
        let store = Store { inner };
        let Some(place) = store.shelf().at(order).map(|(folder, held)| (folder.clone(), held.number()))
        else {
            return Ok(());
        };
        let (folder, number) = place;
        let dir = store.inner.dir.join(&*folder);
        let bytes = archive.disk.open(&segment_path(&dir, number)).and_then(|file| read_all(&*file));
        let aside = SetAside::load(&*archive.disk, &dir, number);
        bytes
            .and_then(|bytes| Ok(Checked::of(&folder, number, bytes, aside?)))
            .ok()
            .flatten()
            .ok_or((dir, number))
    };
    match read {
        Ok(checked) => prove(&archive.target, &checked)?,
        Err((dir, number)) => {
            // It is in the way of no other, and goes when the disk is wanted, as it would without an archive.
            let path = segment_path(&dir, number);
            warn!(path = %path.display(), "a segment is damaged here, and is not archived");
            let Some(inner) = store.upgrade() else { return Ok(()) };
            if let Some(archiving) = &mut (Store { inner }).shelf().archiving {
                archiving.becomes(order, Standing::Unfit);
            }
            return Ok(());
        }
    }
    let Some(inner) = store.upgrade() else { return Ok(()) };
    Store { inner }.is_archived(archive, order)
}

/// Sends a segment to an archive and reads it back from there. A damaged copy there is sent anew.
fn prove(target: &Target, checked: &Checked) -> Result<(), ArchiveError> {
    let shown = target.target().shown();
    let failed = |error| ArchiveError::of(shown, &error);
    target.keep(checked).map_err(failed)?;
    let is_there = |back: Result<Checked, ArchiveError>| match back {
        Ok(back) => Ok(back == *checked),
        Err(error) if error.is_away => Err(error),
        Err(_) => Ok(false),
    };
    if is_there(fetch(target, &checked.id))? {
        return Ok(());
    }
    warn!(segment = %checked.id, "a segment is damaged in the archive {shown}, and is sent anew");
    target.keep_anew(checked).map_err(failed)?;
    let back = fetch(target, &checked.id)?;
    let what = || format!("segment {} came back from the archive {shown} as another", checked.id);
    (back == *checked).then_some(()).ok_or_else(|| ArchiveError::failed(what()))
}

fn noted_as(folder: &str, held: &Held) -> ArchivedSegment {
    let Held { bytes, crc, .. } = *held;
    ArchivedSegment { folder: folder.to_owned(), number: held.number(), crc, bytes }
}

/// Time for which a stopping thread waits for the current task to end.
const LINGER: Duration = Duration::from_secs(1);
