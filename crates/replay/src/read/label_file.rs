//! The labels of a folder's episodes, in the file `labels`, which is replaced as a whole.
//!
//! The file also says in which segments a labelled episode lies, so that pinned ones need not be searched for when
//! segments are dropped to keep a budget. To change it, or to drop or prune segments, a process holds `labels.lock`: an
//! episode is pinned while it is there, or its pinning fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rollhouse_core::{EpisodeName, msgpack};
use serde::{Deserialize, Serialize};

use crate::code::episode::EpisodeInfo;
use crate::disk::{Disk, Locking, read_all};
use crate::disk_error::DiskError;
use crate::limits::{MAX_LABELLED, MAX_LABELS_BYTES, MAX_TAGS};
use crate::read::label::{Label, LabelChange};
use crate::read::library::Library;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::stored::lock::STORE_LOCK;
use crate::stored::summary::EpisodeKey;

/// Labels by episode. Episodes without a label are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    labelled: BTreeMap<EpisodeKey, Labelled>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Labelled {
    label: Label,
    /// The segments in which the episode lies.
    segments: RangeInclusive<u64>,
}

/// An error: labels could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The episode could not be found, or the folder not read.
    #[error(transparent)]
    Read(ReadError),
    /// The folder is a store, or in one.
    #[error("{dir} belongs to a coordinator's store: only its coordinator labels its episodes", dir = .0.display())]
    Store(PathBuf),
    /// Somebody else changes the folder's labels, or drops segments.
    #[error("somebody else is changing the labels of {dir}", dir = .0.display())]
    Locked(PathBuf),
    /// The file is damaged, or a newer program wrote it.
    #[error("the labels in {path} are damaged: {what}", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of what is wrong.
        what: &'static str,
    },
    /// The episode would have more tags than one may have.
    #[error("the episode would have {tags} tags, at most {MAX_TAGS} are kept")]
    TooManyTags {
        /// Number of tags it would have.
        tags: usize,
    },
    /// The folder has as many labelled episodes, or as much text in them, as one may have.
    #[error("{dir} has too many labels: at most {MAX_LABELLED} episodes and {MAX_LABELS_BYTES} bytes are kept", dir = .0.display())]
    Full(PathBuf),
    /// A file operation failed.
    #[error(transparent)]
    Disk(DiskError),
}

impl Labels {
    /// Reads the labels of the folder `dir`; there are none if nobody has labelled anything there. Blocks for the disk.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Self, LabelError> {
        let path = labels_path(dir);
        let failed = |error| LabelError::Disk(DiskError::new("read", &path, error));
        let file = match disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let damaged = |what| LabelError::Damaged { path: path.clone(), what };
        if file.len().map_err(failed)? > MAX_LABELS_BYTES {
            return Err(damaged("it has more bytes than any program writes"));
        }
        Self::decode(&read_all(&*file).map_err(failed)?).map_err(damaged)
    }

    /// Replaces the labels of the folder `dir` by these. They are durable on return. The caller holds the lock.
    pub(crate) fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<(), LabelError> {
        let path = labels_path(dir);
        let bytes = self.encode().filter(|bytes| bytes.len() as u64 <= MAX_LABELS_BYTES);
        let bytes = bytes.filter(|_| self.labelled.len() <= MAX_LABELLED);
        let bytes = bytes.ok_or_else(|| LabelError::Full(dir.into()))?;
        let failed = |operation| {
            let path = path.clone();
            move |error| LabelError::Disk(DiskError::new(operation, &path, error))
        };
        let new = path.with_extension("new");
        match disk.remove(&new) {
            // Left by an attempt that was cut short.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        }
        let file = disk.create(&new).map_err(failed("create"))?;
        file.append_all(&bytes).map_err(failed("append"))?;
        file.sync_data().map_err(failed("sync"))?;
        disk.rename(&new, &path).map_err(failed("rename"))?;
        disk.sync_dir(dir).map_err(failed("sync"))
    }

    /// Makes a collection of labels that come from elsewhere, to look them up: they belong to no folder.
    pub fn of_elsewhere(said: impl IntoIterator<Item = (EpisodeKey, Label)>) -> Self {
        let said = said.into_iter().map(|(key, label)| (key, Labelled { label, segments: 0..=0 }));
        Self { labelled: said.collect() }
    }

    /// Returns the label of an episode, if it has one.
    pub fn of(&self, key: &EpisodeKey) -> Option<&Label> {
        self.labelled.get(key).map(|labelled| &labelled.label)
    }

    /// Returns whether an episode is pinned.
    pub fn is_pinned(&self, key: &EpisodeKey) -> bool {
        self.of(key).is_some_and(|label| label.pinned)
    }

    /// Returns whether no episode has a label.
    pub fn is_empty(&self) -> bool {
        self.labelled.is_empty()
    }

    /// Returns the labelled episodes with their labels, in the order of runs, lanes and numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&EpisodeKey, &Label)> {
        self.labelled.iter().map(|(key, labelled)| (key, &labelled.label))
    }

    /// Returns the segments in which pinned episodes lie.
    pub fn pinned_segments(&self) -> Vec<RangeInclusive<u64>> {
        let pinned = self.labelled.values().filter(|labelled| labelled.label.pinned);
        pinned.map(|labelled| labelled.segments.clone()).collect()
    }

    /// Changes the label of an episode that lies in these segments.
    fn change(
        &mut self,
        key: EpisodeKey,
        segments: RangeInclusive<u64>,
        change: &LabelChange,
    ) -> Result<Label, LabelError> {
        let mut label = self.of(&key).cloned().unwrap_or_default();
        label.change(change);
        if label.tags.len() > MAX_TAGS {
            return Err(LabelError::TooManyTags { tags: label.tags.len() });
        }
        if label.is_empty() {
            self.labelled.remove(&key);
        } else {
            self.labelled.insert(key, Labelled { label: label.clone(), segments });
        }
        Ok(label)
    }

    /// Notes that an episode lies in another segment now; returns whether it has a label.
    pub(crate) fn moved(&mut self, key: &EpisodeKey, segment: u64) -> bool {
        let labelled = self.labelled.get_mut(key);
        labelled.map(|labelled| labelled.segments = segment..=segment).is_some()
    }

    /// Forgets an episode that is gone; returns whether it had a label.
    pub(crate) fn forget(&mut self, key: &EpisodeKey) -> bool {
        self.labelled.remove(key).is_some()
    }

    fn join(&mut self, other: Self) {
        for (key, labelled) in other.labelled {
            match self.labelled.get_mut(&key) {
                Some(known) => known.label.join(&labelled.label),
                None => drop(self.labelled.insert(key, labelled)),
            }
        }
    }

    /// Returns the contents of the labels' file; `None` if they cannot be encoded.
    fn encode(&self) -> Option<Vec<u8>> {
        let row = |(key, labelled): (&EpisodeKey, &Labelled)| StoredLabel {
            run: ((key.run >> 64) as u64, key.run as u64),
            lane: key.lane,
            number: key.number,
            segments: (*labelled.segments.start(), *labelled.segments.end()),
            pinned: labelled.label.pinned,
            tags: labelled.label.tags.iter().map(ToString::to_string).collect(),
            note: labelled.label.note.as_ref().map(|note| note.as_str().to_owned()),
        };
        let stored = Stored { format: FORMAT, labels: self.labelled.iter().map(row).collect() };
        let list = rmp_serde::to_vec_named(&stored).ok()?;
        Some([&crc32c::crc32c(&list).to_le_bytes(), &list[..]].concat())
    }

    /// Reads labels from the contents of their file; the error says what is wrong.
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (crc, list) = bytes.split_first_chunk::<4>().ok_or("it is too short")?;
        if crc32c::crc32c(list) != u32::from_le_bytes(*crc) {
            return Err("its checksum is another");
        }
        let stored: Stored =
            msgpack::decode(list, MAX_LABELS_BYTES as usize).map_err(|_| "it is no list of labels")?;
        if stored.format != FORMAT {
            return Err("a newer program wrote it");
        }
        let labelled =
            stored.labels.into_iter().map(StoredLabel::labelled).collect::<Option<BTreeMap<_, _>>>();
        Ok(Self { labelled: labelled.ok_or("a tag or a note in it is none")? })
    }
}

/// The contents of the file after its checksum; unknown fields are ignored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    format: u32,
    labels: Vec<StoredLabel>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredLabel {
    run: (u64, u64),
    lane: u32,
    number: u64,
    segments: (u64, u64),
    pinned: bool,
    tags: Vec<String>,
    note: Option<String>,
}

impl StoredLabel {
    fn labelled(self) -> Option<(EpisodeKey, Labelled)> {
        let run = u128::from(self.run.0) << 64 | u128::from(self.run.1);
        let tags = self.tags.iter().map(|tag| tag.parse().ok()).collect::<Option<BTreeSet<_>>>()?;
        let note = self.note.map(|note| note.parse().ok()).map_or(Some(None), |note| note.map(Some))?;
        let label = Label { pinned: self.pinned, tags, note };
        let segments = self.segments.0..=self.segments.1;
        Some((EpisodeKey { run, lane: self.lane, number: self.number }, Labelled { label, segments }))
    }
}

/// The lock of a folder's labels, held as long as this value lives.
#[derive(Debug)]
pub(crate) struct LabelsLock {
    _held: Box<dyn Send + Sync + fmt::Debug>,
}

/// Takes the lock of the labels of the folder `dir`, after a bounded number of attempts.
pub(crate) fn lock_labels(disk: &dyn Disk, dir: &Path) -> Result<LabelsLock, LabelError> {
    for attempt in 0..LOCK_ATTEMPTS {
        if attempt > 0 {
            std::thread::park_timeout(LOCK_PAUSE);
        }
        if let Some(lock) = try_lock_labels(disk, dir).map_err(LabelError::Disk)? {
            return Ok(lock);
        }
    }
    Err(LabelError::Locked(dir.into()))
}

/// Takes the lock without waiting; `None` if somebody else has it.
pub(crate) fn try_lock_labels(disk: &dyn Disk, dir: &Path) -> Result<Option<LabelsLock>, DiskError> {
    let path = dir.join(LOCK);
    let note = format!("process {}", std::process::id());
    match disk.lock(&path, &note).map_err(|error| DiskError::new("lock", &path, error))? {
        Locking::Taken(held) => Ok(Some(LabelsLock { _held: held })),
        Locking::Held(_) => Ok(None),
    }
}

impl Library {
    /// Returns the labels of the episodes of all folders. Blocks for the disk.
    ///
    /// # Errors
    /// If a folder's labels cannot be read, or are damaged.
    pub fn labels(&self) -> Result<Labels, LabelError> {
        let mut all = Labels::default();
        for folder in self.folders() {
            all.join(Labels::load(&*folder.disk, folder.dir())?);
        }
        Ok(all)
    }

    /// Changes the label of an episode in every folder that has it, and returns the new label. It is durable on return.
    /// Does not take the folder's writer lock: a recording goes on. Blocks for the disk.
    ///
    /// # Errors
    /// If there is no such episode, a folder belongs to a store, a limit is exceeded, or a file operation fails.
    pub fn label(&self, name: EpisodeName, change: &LabelChange) -> Result<Label, LabelError> {
        // Says why there is none, or that several are meant.
        let meant = self.find(name).map_err(LabelError::Read)?;
        self.label_each(&EpisodeKey::of(&meant.info), |folder, info| {
            let (disk, dir) = (&*folder.disk, folder.dir());
            if is_of_store(disk, dir) {
                return Err(LabelError::Store(dir.into()));
            }
            let _lock = lock_labels(disk, dir)?;
            change_label(folder, info, change, |_| true)
        })
    }

    /// Changes the label of an episode, as [`Library::label`] does, in a store whose lock the caller holds. The caller
    /// changes one label at a time: the folders' own locks are not taken. `hold` is called with a folder and the
    /// segments in which the episode lies there, and keeps those from then on; it returns false if they are gone.
    ///
    /// # Errors
    /// As [`Library::label`], but for the store.
    pub fn label_in_store(
        &self,
        key: &EpisodeKey,
        change: &LabelChange,
        hold: impl Fn(&Path, &RangeInclusive<u64>) -> bool,
    ) -> Result<Label, LabelError> {
        self.find(key.name()).map_err(LabelError::Read)?;
        self.label_each(key, |folder, info| {
            change_label(folder, info, change, |segments| hold(folder.dir(), segments))
        })
    }

    /// Changes the label of an episode in every folder that has it.
    fn label_each(
        &self,
        key: &EpisodeKey,
        change: impl Fn(&Replays, &EpisodeInfo) -> Result<Label, LabelError>,
    ) -> Result<Label, LabelError> {
        let name = key.name();
        let (mut said, mut is_there) = (Label::default(), false);
        for folder in self.folders() {
            match folder.find(name) {
                Ok(info) if EpisodeKey::of(&info) == *key => {
                    is_there = true;
                    said.join(&change(folder, &info)?);
                }
                Ok(_) | Err(ReadError::NoEpisode(_) | ReadError::Incomplete { .. }) => {}
                Err(error) => return Err(LabelError::Read(error)),
            }
        }
        // Another run may have one of that name.
        if is_there { Ok(said) } else { Err(LabelError::Read(ReadError::NoEpisode(name))) }
    }
}

/// Changes a folder's labels; nobody else changes them meanwhile.
fn change_label(
    folder: &Replays,
    info: &EpisodeInfo,
    change: &LabelChange,
    hold: impl Fn(&RangeInclusive<u64>) -> bool,
) -> Result<Label, LabelError> {
    let (disk, dir) = (&*folder.disk, folder.dir());
    // Nobody drops or prunes anything from here on; what was dropped since the folder was opened is not there to be read.
    let segments = folder.span(info).map_err(LabelError::Read)?;
    if !hold(&segments) {
        return Err(LabelError::Read(ReadError::NoEpisode(info.name)));
    }
    let mut labels = Labels::load(disk, dir)?;
    let label = labels.change(EpisodeKey::of(info), segments, change)?;
    labels.store(disk, dir)?;
    Ok(label)
}

/// Returns whether a folder is a store, or in one: only the store's coordinator changes what it holds.
pub(crate) fn is_of_store(disk: &dyn Disk, dir: &Path) -> bool {
    let has_store_lock = |dir: &Path| disk.open(&dir.join(STORE_LOCK)).is_ok();
    has_store_lock(dir) || dir.parent().is_some_and(has_store_lock)
}

/// Returns the path of the labels of the folder `dir`.
pub fn labels_path(dir: &Path) -> PathBuf {
    dir.join("labels")
}

const FORMAT: u32 = 1;
const LOCK: &str = "labels.lock";
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Labels {
        let mut labels = Labels::default();
        for number in 0..20 {
            let key =
                EpisodeKey { run: u128::MAX - u128::from(number), lane: u32::MAX, number: number << 40 };
            for change in [
                LabelChange::Pin(number % 2 == 0),
                LabelChange::Tag(vec!["best".parse().unwrap(), format!("t{number}").parse().unwrap()]),
                LabelChange::Note(Some("\u{1b}[31m".parse().unwrap())),
            ] {
                labels.change(key, number..=number + 1, &change).unwrap();
            }
        }
        labels
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        assert_eq!(Labels::decode(&some().encode().unwrap()), Ok(some()));
    }

    #[test]
    fn a_file_that_was_cut_or_flipped_anywhere_is_damaged_and_nothing_else() {
        let bytes = some().encode().unwrap();
        for len in 0..bytes.len() {
            assert!(Labels::decode(&bytes[..len]).is_err(), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Labels::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_episode_has_a_bounded_number_of_tags() {
        let key = EpisodeKey { run: 1, lane: 0, number: 0 };
        let tags =
            |count: usize| LabelChange::Tag((0..count).map(|at| format!("t{at}").parse().unwrap()).collect());
        let mut labels = Labels::default();
        labels.change(key, 1..=1, &tags(MAX_TAGS)).unwrap();
        let more = labels.change(key, 1..=1, &tags(MAX_TAGS + 1));
        assert!(matches!(more, Err(LabelError::TooManyTags { .. })), "{more:?}");
        assert_eq!(labels.of(&key).unwrap().tags.len(), MAX_TAGS);
    }
}
