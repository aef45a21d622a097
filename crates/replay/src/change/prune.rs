//! Pruning: removing episodes that nobody wants any more, so that the disk has room again.
//!
//! Only whole segments give room back. A segment of which nothing stays is removed. If little of it stays, that is
//! recorded again into a new segment, and then the old one is removed. If much of it stays, the segment stays whole,
//! with the episodes in it that should have gone. Pinned episodes never go.
//!
//! ```text
//! lock -> new segments, each whole or not at all -> labels say where their episodes lie now -> old segments, oldest first
//! ```
//!
//! A crash anywhere leaves every episode that stays at least once, and readers show it once, as a copy of itself. An
//! episode goes with the segment in which it begins; its parts in later segments are then a rest that no reader lists.
//! So an episode that begins in a segment that stays loses nothing, and after a crash no episode is there in part.

mod deciding;
mod survey;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::change::portable::PortableError;
use crate::change::rerecord::Rerecording;
use crate::clock::wall_ms;
use crate::code::episode::{Episode, EpisodeInfo};
use crate::disk::Disk;
use crate::disk_error::DiskError;
use crate::limits::AGAIN_SEGMENT_BYTES;
use crate::read::label_file::{LabelError, Labels, is_of_store, lock_labels};
use crate::read::library::Library;
use crate::read::order::{Sort, SortKey};
use crate::read::query::Query;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::stored::catalogue;
use crate::stored::index::SegmentIndex;
use crate::stored::lock::{OpenError, lock_folder};
use crate::stored::names::{segment_name, segment_numbers, segments_dir};
use crate::stored::recover::{put_segment, recover};
use crate::stored::scan::scan_bytes_with_rows;
use crate::stored::summary::EpisodeKey;
use crate::write::spool::kept_name_of_folder;

use deciding::beyond;
use survey::Survey;

/// The rules of pruning: an episode goes if every rule lets it go. Pinned episodes never go.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PruneRules {
    /// Only episodes that match this query go; its order and limit mean nothing.
    pub filter: Query,
    /// Only episodes that started before this moment go, in milliseconds since 1970; `None` lets all go.
    pub before_ms: Option<u64>,
    /// Only so many of the oldest segments go that all together take at most this many bytes; `None` lets all go.
    pub keep_bytes: Option<u64>,
    /// Number of episodes of each env that stay because they have the highest returns of all that match the filter; at
    /// most [`MAX_KEPT_BEST`].
    pub keep_best: Option<usize>,
    /// Whether folders are pruned whose segments are shipped or exported, though nothing says that they already were.
    pub unshipped: bool,
}

/// Most episodes of each env that [`PruneRules::keep_best`] keeps.
pub const MAX_KEPT_BEST: usize = 100_000;

/// A report on what pruning would do, or has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// The folders from which something goes, or would go.
    pub folders: Vec<FolderPrune>,
    /// Folders that are left alone because somebody records into them.
    pub busy: Vec<PathBuf>,
    /// Folders that are left alone because they may hold what was not shipped yet: they have a name among the folders
    /// that are shipped or exported.
    pub unshipped: Vec<PathBuf>,
}

/// The part of a [`PrunePlan`] about one folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderPrune {
    /// The folder.
    pub dir: PathBuf,
    /// Number of episodes that go.
    pub episodes: u64,
    /// Number of episodes that should go and still stay: their segments hold too much that stays, or cannot be read as
    /// a whole.
    pub stuck: u64,
    /// Number of episodes that would go if they were not pinned.
    pub pinned: u64,
    /// Number of episodes that are recorded again because their segments go.
    pub again: u64,
    /// Number of segments that go.
    pub segments: u64,
    /// Bytes of the segments that go.
    pub bytes: u64,
    /// Bytes of the segments that replace them; estimated in a plan.
    pub again_bytes: u64,
}

/// A report on what pruning has done.
pub type Pruned = PrunePlan;

/// An error: nothing was pruned; or, if a file operation failed on the way, not everything.
#[derive(Debug)]
pub enum PruneError {
    /// The folder could not be read.
    Read(ReadError),
    /// It could not be opened for writing; a writer that has it is named.
    Open(OpenError),
    /// Its labels could not be read or changed, so that nobody knows what is pinned.
    Label(LabelError),
    /// An episode that stays could not be recorded again. Nothing of its folder was removed.
    Again(PortableError),
    /// The folder is a store, or in one.
    Store(PathBuf),
    /// A file operation failed.
    Disk(DiskError),
}

/// Finds what [`prune`] would do with the folder `dir` and those directly in it. Changes nothing, takes no lock, and
/// reads every chunk. Blocks for the disk.
///
/// # Errors
/// If the folder belongs to a store, or cannot be read.
pub fn plan_prune(disk: &Arc<dyn Disk>, dir: &Path, rules: &PruneRules) -> Result<PrunePlan, PruneError> {
    if is_of_store(&**disk, dir) {
        return Err(PruneError::Store(dir.into()));
    }
    let library = Library::open_scanning(disk.clone(), dir).map_err(PruneError::Read)?;
    let judge = Judge::new(&library, rules)?;
    let mut plan = PrunePlan::default();
    for (at, folder) in library.folders().iter().enumerate() {
        if rules.spare(&**disk, folder) {
            plan.unshipped.push(folder.dir().into());
            continue;
        }
        if folder.is_writing() {
            plan.busy.push(folder.dir().into());
            continue;
        }
        let survey = Survey::of(&judge, at, folder)?;
        plan.folders.extend(Some(survey.summary()).filter(FolderPrune::says_something));
    }
    Ok(plan)
}

/// Removes the episodes that the rules let go from the folder `dir` and those directly in it, except from folders that
/// somebody records into. Removed episodes are gone for good; those that were recorded again were read back before, and
/// are durable on return. Blocks for the disk.
///
/// # Errors
/// If the folder belongs to a store, cannot be read, or a file operation fails. Every episode that stays is still
/// there, and pruning again removes what was left.
pub fn prune(disk: &Arc<dyn Disk>, dir: &Path, rules: &PruneRules) -> Result<Pruned, PruneError> {
    if is_of_store(&**disk, dir) {
        return Err(PruneError::Store(dir.into()));
    }
    let mut done = Pruned::default();
    let mut locks = Vec::new();
    let folders = Library::open(disk.clone(), dir).map_err(PruneError::Read)?;
    for folder in folders.folders() {
        let dir = folder.dir();
        if folder.segments.is_empty() {
            continue;
        }
        if rules.spare(&**disk, folder) {
            done.unshipped.push(dir.into());
            continue;
        }
        match lock_folder(&**disk, dir) {
            Ok(lock) => locks.push((dir.to_path_buf(), lock)),
            Err(OpenError::Locked { .. }) => {
                done.busy.push(dir.into());
                continue;
            }
            Err(error) => return Err(PruneError::Open(error)),
        }
        recover(&**disk, dir).map_err(PruneError::Disk)?;
    }
    // Nor does anybody pin anything meanwhile.
    let label_locks = locks.iter().map(|(dir, _)| lock_labels(&**disk, dir));
    let _label_locks = label_locks.collect::<Result<Vec<_>, _>>().map_err(PruneError::Label)?;
    let library = Library::open_scanning(disk.clone(), dir).map_err(PruneError::Read)?;
    let judge = Judge::new(&library, rules)?;
    for (at, folder) in library.folders().iter().enumerate() {
        if locks.iter().any(|(locked, _)| locked == folder.dir()) {
            let survey = Survey::of(&judge, at, folder)?;
            done.folders.extend(Some(carry_out(&survey)?).filter(FolderPrune::says_something));
        }
    }
    Ok(done)
}

impl PruneRules {
    /// Returns whether a folder is left alone because it may hold what was not shipped yet. What a node has shipped it
    /// removes itself, so that what is left has not been, except for the newest segment.
    fn spare(&self, disk: &dyn Disk, folder: &Replays) -> bool {
        // A name that cannot be read is one, too.
        let is_named = || !matches!(kept_name_of_folder(disk, folder.dir()), Ok(None));
        !self.unshipped && !folder.segments.is_empty() && is_named()
    }
}

/// The judge that decides on each episode.
struct Judge<'a> {
    library: &'a Library,
    rules: &'a PruneRules,
    /// The rules' filter, which lets interrupted episodes go as it does others.
    filter: Query,
    labels: Labels,
    /// The episodes with the highest returns, which stay.
    best: BTreeSet<EpisodeKey>,
    /// The segments of each folder that are beyond the size that is kept; `None` without such a rule.
    beyond: Option<Vec<BTreeSet<u64>>>,
    /// Episodes that have several copies.
    copies: BTreeSet<EpisodeKey>,
}

/// The verdict on an episode, as far as it depends on the episode alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Goes,
    Pinned,
    Stays,
}

impl<'a> Judge<'a> {
    fn new(library: &'a Library, rules: &'a PruneRules) -> Result<Self, PruneError> {
        let labels = library.labels().map_err(PruneError::Label)?;
        let mut best = BTreeSet::new();
        if let Some(count) = rules.keep_best {
            let envs: BTreeSet<String> =
                library.stats().map_err(PruneError::Read)?.episodes.into_keys().map(|(env, _)| env).collect();
            for env in envs {
                let sort = Sort { key: SortKey::Return, descending: true };
                let filter = rules.filter.clone();
                if filter.env.as_ref().is_some_and(|wanted| *wanted != env) {
                    continue;
                }
                let query = Query {
                    env: Some(env),
                    sort,
                    limit: Some(count.min(MAX_KEPT_BEST)),
                    after: None,
                    ..filter
                };
                best.extend(
                    library
                        .list(&query)
                        .map_err(PruneError::Read)?
                        .iter()
                        .map(|one| EpisodeKey::of(&one.info)),
                );
            }
        }
        let found = library.copies().map_err(PruneError::Read)?;
        let copies = found.further().iter().map(|(_, info)| EpisodeKey::of(info)).collect();
        let beyond = rules.keep_bytes.map(|keep| segments_beyond(library, keep));
        let filter = Query { all_outcomes: true, ..rules.filter.clone() };
        Ok(Self { library, rules, filter, labels, best, beyond, copies })
    }

    fn verdict(&self, folder: usize, info: &EpisodeInfo) -> Verdict {
        let (rules, key) = (self.rules, EpisodeKey::of(info));
        let is_beyond = |beyond: &Vec<BTreeSet<u64>>| {
            beyond.get(folder).is_some_and(|of| of.contains(&info.place.segment))
        };
        let goes = self.filter.matches(info)
            && rules.before_ms.is_none_or(|before| info.started_ms < before)
            && self.beyond.as_ref().is_none_or(is_beyond)
            && !self.best.contains(&key);
        match (goes, self.labels.is_pinned(&key)) {
            (true, false) => Verdict::Goes,
            (true, true) => Verdict::Pinned,
            (false, _) => Verdict::Stays,
        }
    }
}

fn segments_beyond(library: &Library, keep: u64) -> Vec<BTreeSet<u64>> {
    let mut places = Vec::new();
    let mut facts = Vec::new();
    for (at, folder) in library.folders().iter().enumerate() {
        for (&number, segment) in &folder.segments {
            let newest = segment.index.extents.iter().filter(|extent| extent.episodes() > 0);
            facts.push((
                newest.map(|extent| extent.started_ms.1).max().unwrap_or_default(),
                segment.index.bytes,
            ));
            places.push((at, number));
        }
    }
    let mut beyond_of = vec![BTreeSet::new(); library.folders().len()];
    for at in beyond(&facts, keep) {
        let (folder, number) = places[at];
        beyond_of[folder].insert(number);
    }
    beyond_of
}

/// Carries out what a survey has found.
fn carry_out(survey: &Survey<'_>) -> Result<FolderPrune, PruneError> {
    let (disk, dir) = (&*survey.folder.disk, survey.folder.dir());
    let mut done = survey.summary();
    if survey.going.is_empty() {
        return Ok(done);
    }
    let segments = segments_dir(dir);
    let failed = |operation, path: &Path, error| PruneError::Disk(DiskError::new(operation, path, error));
    let mut present = segment_numbers(disk, dir).map_err(|error| failed("list", &segments, error))?;
    let mut writer = Rerecorder::new(disk, dir, present.last().map_or(1, |last| last + 1));
    for &number in survey.folder.segments.keys() {
        let infos = survey.again_in(number)?;
        for episode in survey.folder.load_many(&infos) {
            writer.add(episode.map_err(PruneError::Read)?)?;
        }
    }
    writer.turn()?;
    let made = writer.made;
    let mut labels = Labels::load(disk, dir).map_err(PruneError::Label)?;
    let moved = made.iter().flat_map(|made| made.episodes.iter().map(move |key| (key, made.index.number)));
    // Each of them is to be told.
    if moved.fold(false, |any, (key, segment)| labels.moved(key, segment) | any) {
        labels.store(disk, dir).map_err(PruneError::Label)?;
    }
    for &number in &survey.going {
        let path = segments.join(segment_name(number));
        disk.remove(&path).map_err(|error| failed("remove", &path, error))?;
        // One after another, so that of no episode that goes the beginning stays alone.
        disk.sync_dir(&segments).map_err(|error| failed("sync", &segments, error))?;
    }
    if survey.gone_with_labels().fold(false, |any, key| labels.forget(&key) | any) {
        labels.store(disk, dir).map_err(PruneError::Label)?;
    }
    done.again = made.iter().map(|made| made.episodes.len() as u64).sum();
    done.again_bytes = made.iter().map(|made| made.index.bytes).sum();
    present.retain(|number| !survey.going.contains(number));
    present.extend(made.iter().map(|made| made.index.number));
    catalogue::forget_gathered(disk, dir);
    catalogue::add(disk, dir, made.into_iter().map(|made| made.index).collect(), &present);
    Ok(done)
}

/// A recorder that records episodes again, into one segment after another.
struct Rerecorder<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    /// The segment that is being made. Even an empty one is written: numbers go on from it, so that none is used again.
    current: Rerecording,
    /// The episodes in the current segment.
    originals: Vec<Episode>,
    made: Vec<NewSegment>,
}

/// A segment that was made.
struct NewSegment {
    index: SegmentIndex,
    episodes: Vec<EpisodeKey>,
}

impl<'a> Rerecorder<'a> {
    fn new(disk: &'a dyn Disk, dir: &'a Path, number: u64) -> Self {
        let current = Rerecording::new(number, wall_ms());
        Self { disk, dir, current, originals: Vec::new(), made: Vec::new() }
    }

    fn add(&mut self, episode: Episode) -> Result<(), PruneError> {
        if self.current.len() >= AGAIN_SEGMENT_BYTES {
            self.turn()?;
        }
        self.current.add(&episode).map_err(PruneError::Again)?;
        self.originals.push(episode);
        Ok(())
    }

    /// Writes the current segment and goes on with the next one.
    fn turn(&mut self) -> Result<(), PruneError> {
        let number = self.current.number();
        let full = std::mem::replace(&mut self.current, Rerecording::new(number + 1, wall_ms()));
        let episodes = self.originals.iter().map(|episode| EpisodeKey::of(&episode.info)).collect();
        let bytes = full.finish(&std::mem::take(&mut self.originals)).map_err(PruneError::Again)?;
        put_segment(self.disk, self.dir, number, &bytes).map_err(PruneError::Disk)?;
        self.made.push(NewSegment { index: scan_bytes_with_rows(number, &bytes).index, episodes });
        Ok(())
    }
}

impl FolderPrune {
    /// Returns whether anything in the folder was to go.
    const fn says_something(&self) -> bool {
        self.episodes + self.stuck + self.pinned + self.segments > 0
    }
}

impl PrunePlan {
    /// Returns the sum over all folders.
    pub fn sum(&self) -> FolderPrune {
        let mut sum = FolderPrune::default();
        for of in &self.folders {
            sum.episodes += of.episodes;
            sum.stuck += of.stuck;
            sum.pinned += of.pinned;
            sum.again += of.again;
            sum.segments += of.segments;
            sum.bytes += of.bytes;
            sum.again_bytes += of.again_bytes;
        }
        sum
    }
}

impl fmt::Display for PruneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Label(error) => error.fmt(f),
            Self::Again(error) => write!(f, "an episode that stays could not be recorded again: {error}"),
            Self::Store(dir) => write!(f, "{} belongs to a coordinator's store", dir.display()),
            Self::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PruneError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => error.source(),
            Self::Open(error) => error.source(),
            Self::Label(error) => error.source(),
            Self::Again(error) => error.source(),
            Self::Disk(error) => error.source(),
            Self::Store(_) => None,
        }
    }
}
