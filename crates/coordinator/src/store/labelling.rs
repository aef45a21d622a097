//! Labels of the store's episodes (pins, tags and notes), kept in the file `labels` of each folder.
//!
//! Folders outside of stores have the same file, so that the labels go along when a folder of the store is copied.
//! Segments in which a pinned episode lies are not dropped. Changes are made one at a time, under the store's lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use parking_lot::MutexGuard;
use rollhouse_core::RunId;
use rollhouse_replay::{BadLabel, Disk, EpisodeKey, Label, LabelChange, LabelError, Labels, labels_path};
use rollhouse_wire::limits::MAX_STORE_PAGE_BYTES;
use rollhouse_wire::{
    ReadGrant, StoreLabel, StoreLabelChange, StoreLabelPage, StoreLabelled, StoreLabels, is_pool_of,
};

use super::shelf::Shelf;
use super::{Store, StoreError};
use crate::limits::MAX_OWN_PINS;

/// The labels of each folder that has any.
#[derive(Debug, Default)]
pub(super) struct Labelling {
    folders: BTreeMap<Arc<str>, Labels>,
}

impl Labelling {
    /// Reads the labels of all folders, and holds the segments with pinned episodes. In a folder whose labels are damaged
    /// all segments are held, because nobody knows what was pinned.
    pub(super) fn load(disk: &dyn Disk, dir: &Path, shelf: &mut Shelf) -> Result<Self, LabelError> {
        let mut folders = BTreeMap::new();
        let names: Vec<Arc<str>> = shelf.folders().map(Arc::from).collect();
        for name in names {
            match Labels::load(disk, &dir.join(&*name)) {
                Ok(labels) if labels.is_empty() => {}
                Ok(labels) => {
                    shelf.pin(&name, labels.pinned_segments());
                    folders.insert(name, labels);
                }
                Err(LabelError::Damaged { .. }) => {
                    shelf.counts.damaged += 1;
                    shelf.pin(&name, vec![0..=u64::MAX]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { folders })
    }

    /// Returns the number of episodes of an owner's runs that are pinned.
    fn pins_of(&self, owner: &str) -> usize {
        let labels = self.folders.values().flat_map(Labels::iter).filter(|(_, label)| label.pinned);
        let own = labels.filter(|(key, _)| is_pool_of(owner, RunId::from_u128(key.run)));
        own.map(|(key, _)| *key).collect::<BTreeSet<EpisodeKey>>().len()
    }
}

impl Store {
    /// Changes the label of an episode, in every folder that has it, and returns the new label. Durable on return.
    ///
    /// # Errors
    /// If there is no such episode, what is said is out of bounds, or a file operation fails.
    pub fn label(&self, asked: &StoreLabel) -> Result<StoreLabelled, StoreError> {
        self.label_by(asked, |_| Ok(()))
    }

    /// Changes the label of an episode as [`Store::label`] does, for the owner of its run, who may pin a few episodes: what is
    /// pinned takes room that others would have.
    ///
    /// # Errors
    /// As [`Store::label`]; also if the run is another owner's, the change is no pin, or the owner has [`MAX_OWN_PINS`].
    pub fn pin_own(&self, owner: &str, asked: &StoreLabel) -> Result<StoreLabelled, StoreError> {
        let StoreLabelChange::Pin { pinned } = asked.change else {
            return Err(StoreError::Forbidden("tags and notes take role admin".to_owned()));
        };
        if !is_pool_of(owner, asked.run) {
            return Err(StoreError::Forbidden(format!("run {} is not of `{owner}`", asked.run)));
        }
        self.label_by(asked, |labelling| match labelling.pins_of(owner) {
            pins if pinned && pins >= MAX_OWN_PINS => {
                let message =
                    format!("`{owner}` has {pins} pinned episodes, at most {MAX_OWN_PINS} are allowed");
                Err(StoreError::Forbidden(message))
            }
            _ => Ok(()),
        })
    }

    fn label_by(
        &self,
        asked: &StoreLabel,
        allowed: impl Fn(&Labelling) -> Result<(), StoreError>,
    ) -> Result<StoreLabelled, StoreError> {
        let change = change_of(&asked.change)?;
        let key = EpisodeKey { run: asked.run.as_u128(), lane: asked.lane, number: asked.number };
        let mut labelling = self.labelling();
        allowed(&labelling)?;
        let library = self.library(true)?;
        let hold = |folder: &Path, segments: &RangeInclusive<u64>| {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            self.shelf().hold(name, segments.clone())
        };
        let labelled = library.label_in_store(&key, &change, hold);
        // Also of those that were held for a change that failed.
        for folder in library.folders().iter().filter(|folder| folder.dir() != self.inner.dir) {
            let Some(name) = folder.dir().file_name().and_then(|name| name.to_str()) else { continue };
            if folder.find(key.name()).is_ok() {
                self.read_labels(&mut labelling, name)?;
            }
        }
        Ok(labelled_of(&key, &labelled.map_err(failed)?))
    }

    /// Returns a page of labels. Does not block for the disk.
    pub fn labels(&self, asked: StoreLabels) -> StoreLabelPage {
        self.labels_of(&ReadGrant::All, asked)
    }

    /// Returns a page of the labels of episodes that may be read. Does not block for the disk.
    pub fn labels_of(&self, reads: &ReadGrant, asked: StoreLabels) -> StoreLabelPage {
        let after = asked.after.map(|after| EpisodeKey {
            run: after.run.as_u128(),
            lane: after.lane,
            number: after.number,
        });
        let labelling = self.labelling();
        let mut all: BTreeMap<EpisodeKey, Label> = BTreeMap::new();
        let said = labelling.folders.values().flat_map(Labels::iter);
        for (key, label) in said.filter(|(key, _)| after.is_none_or(|after| **key > after)) {
            if reads.has_run(RunId::from_u128(key.run)) {
                all.entry(*key).or_default().join(label);
            }
        }
        drop(labelling);
        let (mut page, mut bytes) = (StoreLabelPage::default(), 0);
        for (key, label) in &all {
            let labelled = labelled_of(key, label);
            let texts = labelled.tags.iter().chain(&labelled.note).map(|text| text.len() + TEXT_BYTES);
            bytes += LABEL_BYTES + texts.sum::<usize>();
            if bytes > MAX_STORE_PAGE_BYTES {
                page.more = true;
                break;
            }
            page.labels.push(labelled);
        }
        page
    }

    /// Reads the labels of a folder again, and holds the segments with pinned episodes.
    fn read_labels(&self, labelling: &mut Labelling, name: &str) -> Result<(), StoreError> {
        let labels = Labels::load(&*self.inner.disk, &self.inner.dir.join(name)).map_err(failed)?;
        let name: Arc<str> = name.into();
        self.shelf().pin(&name, labels.pinned_segments());
        if labels.is_empty() {
            labelling.folders.remove(&name);
        } else {
            labelling.folders.insert(name, labels);
        }
        Ok(())
    }

    /// Forgets the labels of a folder that is gone.
    pub(super) fn forget_labels(&self, name: &str) {
        let path = labels_path(&self.inner.dir.join(name));
        let _none = self.inner.disk.remove(&path);
        self.labelling().folders.remove(name);
    }

    fn labelling(&self) -> MutexGuard<'_, Labelling> {
        self.inner.labelling.lock()
    }
}

fn change_of(asked: &StoreLabelChange) -> Result<LabelChange, StoreError> {
    let bad = |what: &str, text: &str, error: &BadLabel| {
        StoreError::Query(format!("{what} {:?}: {error}", text.chars().take(SHOWN_CHARS).collect::<String>()))
    };
    let words = |tags: &[String]| {
        tags.iter().map(|tag| tag.parse().map_err(|error| bad("tag", tag, &error))).collect::<Result<_, _>>()
    };
    Ok(match asked {
        StoreLabelChange::Pin { pinned } => LabelChange::Pin(*pinned),
        StoreLabelChange::Tag { tags } => LabelChange::Tag(words(tags)?),
        StoreLabelChange::Untag { tags } => LabelChange::Untag(words(tags)?),
        StoreLabelChange::Note { note: None } => LabelChange::Note(None),
        StoreLabelChange::Note { note: Some(note) } => {
            LabelChange::Note(Some(note.parse().map_err(|error| bad("note", note, &error))?))
        }
    })
}

fn labelled_of(key: &EpisodeKey, label: &Label) -> StoreLabelled {
    StoreLabelled {
        run: RunId::from_u128(key.run),
        lane: key.lane,
        number: key.number,
        pinned: label.pinned,
        tags: label.tags.iter().map(ToString::to_string).collect(),
        note: label.note.as_ref().map(|note| note.as_str().to_owned()),
    }
}

fn failed(error: LabelError) -> StoreError {
    match error {
        LabelError::Disk(error) => StoreError::Disk(error),
        LabelError::Read(error) => super::querying::failed(error),
        other => StoreError::Query(other.to_string()),
    }
}

/// Bytes of a label in a page beside its texts, and of a text beside its characters.
const LABEL_BYTES: usize = 96;
const TEXT_BYTES: usize = 8;
/// Characters of a bad tag or note that an error repeats.
const SHOWN_CHARS: usize = 40;
