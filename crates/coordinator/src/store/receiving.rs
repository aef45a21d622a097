//! Receiving a segment: bytes as they come, then its place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rollhouse_replay::limits::MAX_SUBFOLDERS;
use rollhouse_replay::{DiskFile, EpisodeKey, SegmentSummary, segment_path};
use rollhouse_wire::limits::MAX_SHIP_BYTES;
use rollhouse_wire::{Ship, Shipped};

use super::shelf::Held;
use super::{INCOMING, Inner, QUARANTINE, Store, StoreError, is_name, quarantined_path};

/// What becomes of an announced segment.
#[derive(Debug)]
pub enum Receive {
    /// It was received before: its bytes are not needed.
    Answer(Shipped),
    /// Its bytes are awaited.
    Bytes(Receiving),
}

/// A segment whose bytes are arriving. Dropped before [`Receiving::finish`], nothing of it is kept.
#[derive(Debug)]
pub struct Receiving {
    store: Store,
    folder: String,
    ship: Ship,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    bytes: u64,
    crc: u32,
    answered: bool,
}

impl Store {
    /// A node announces a segment.
    ///
    /// # Errors
    /// If its name, number or length cannot be, too many are being received, or a file operation fails.
    pub fn receive(&self, node: &str, ship: &Ship) -> Result<Receive, StoreError> {
        let folder = format!("{node}-{}", ship.spool);
        if node.is_empty() || ship.spool.is_empty() || !is_name(&folder) {
            return Err(StoreError::Name(folder));
        }
        let bounds = [("length", ship.bytes, MAX_SHIP_BYTES), ("number", ship.segment, MAX_SEGMENT_NUMBER)];
        if let Some((what, given, most)) = bounds.into_iter().find(|(_, given, most)| given > most) {
            return Err(StoreError::Segment { what, given, most });
        }
        let drawn = {
            let mut shelf = self.shelf();
            let known = shelf.get(&folder, ship.segment);
            if known.is_some_and(|held| (held.bytes, held.crc) == (ship.bytes, ship.crc)) {
                shelf.counts.known += 1;
                return Ok(Receive::Answer(Shipped::Known));
            }
            if shelf.is_quarantined(&folder, ship.segment, ship.crc) {
                return Ok(Receive::Answer(Shipped::Quarantined));
            }
            if !shelf.has_folder(&folder) && shelf.folders().len() >= MAX_SUBFOLDERS {
                return Err(StoreError::TooManyFolders { folders: MAX_SUBFOLDERS });
            }
            if shelf.receiving >= MAX_RECEIVING {
                return Err(StoreError::Busy { receiving: shelf.receiving });
            }
            shelf.receiving += 1;
            shelf.drawn += 1;
            shelf.drawn
        };
        let path = self.inner.dir.join(INCOMING).join(format!("{drawn}.part"));
        let mut receiving = Receiving {
            store: self.clone(),
            folder,
            ship: ship.clone(),
            path,
            file: None,
            bytes: 0,
            crc: crc32c::crc32c(&[]),
            answered: false,
        };
        let made = self.inner.disk.create(&receiving.path);
        receiving.file = Some(made.map_err(|e| StoreError::disk("create", &receiving.path, e))?);
        Ok(Receive::Bytes(receiving))
    }
}

impl Receiving {
    /// Takes the next bytes. After an error it is of no further use.
    ///
    /// # Errors
    /// If more arrive than were announced, or they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        if self.bytes > self.ship.bytes {
            return Err(self.arrived());
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.append_all(bytes).map_err(|e| StoreError::disk("append", &self.path, e))
    }

    /// All bytes have come: judges them and puts the segment on its place. What it answers is durable.
    ///
    /// # Errors
    /// If the bytes are not those that were announced, or a file operation fails; it may be shipped again then.
    pub fn finish(mut self) -> Result<Shipped, StoreError> {
        let answer = self.judge();
        self.answered = answer.is_ok();
        answer
    }

    fn judge(&mut self) -> Result<Shipped, StoreError> {
        if (self.bytes, self.crc) != (self.ship.bytes, self.ship.crc) {
            return Err(self.arrived());
        }
        let Some(file) = self.file.take() else { return Err(self.arrived()) };
        file.sync_data().map_err(|e| StoreError::disk("sync", &self.path, e))?;
        let store = self.store.clone();
        let _one = store.inner.placing.lock().unwrap_or_else(PoisonError::into_inner);
        let read = SegmentSummary::read(self.ship.segment, &*file);
        let summary = read.map_err(|e| StoreError::disk("read", &self.path, e))?;
        let held = store.shelf().get(&self.folder, self.ship.segment).map(|held| held.crc);
        match held {
            // It came twice at a time.
            Some(crc) if crc == self.ship.crc => {
                store.shelf().counts.known += 1;
                return Ok(Shipped::Known);
            }
            Some(_) => return self.quarantine(),
            None => {}
        }
        if !summary.is_whole() || self.contradicts(&summary, &*file)? {
            return self.quarantine();
        }
        self.place(&summary)?;
        store.keep_budget();
        Ok(Shipped::Durable)
    }

    /// Whether an episode of the segment is in the store with other contents.
    fn contradicts(&self, summary: &SegmentSummary, file: &dyn DiskFile) -> Result<bool, StoreError> {
        let rivals = self.store.shelf().rivals(&self.folder, summary);
        if rivals.is_empty() {
            return Ok(false);
        }
        let ours = summary.digests(file).map_err(|e| StoreError::disk("read", &self.path, e))?;
        let Inner { disk, dir, .. } = &*self.store.inner;
        for (folder, number) in rivals {
            let dir = dir.join(&*folder);
            let path = segment_path(&dir, number);
            let digests = disk.open(&path).and_then(|file| {
                let known = SegmentSummary::load(&**disk, &dir, number);
                known.map_or_else(|| SegmentSummary::read(number, &*file), Ok)?.digests(&*file)
            });
            let theirs = digests.map_err(|e| StoreError::disk("read", &path, e))?;
            if differ(&ours, &theirs) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn place(&self, summary: &SegmentSummary) -> Result<(), StoreError> {
        let Inner { disk, dir, .. } = &*self.store.inner;
        let folder = dir.join(&self.folder);
        let path = segment_path(&folder, self.ship.segment);
        self.move_to(&path, &[&folder, dir])?;
        // A cache: without it the segment is read when the store is next opened.
        let _cache = summary.store(&**disk, &folder);
        let mut shelf = self.store.shelf();
        let folder = shelf.folder(&self.folder);
        shelf.add(&folder, Held::of(summary), summary);
        shelf.counts.received += 1;
        shelf.counts.received_bytes += self.bytes;
        Ok(())
    }

    fn quarantine(&self) -> Result<Shipped, StoreError> {
        let aside = self.store.inner.dir.join(QUARANTINE);
        let folder = aside.join(&self.folder);
        let path = quarantined_path(&folder, self.ship.segment, self.ship.crc);
        self.move_to(&path, &[&aside])?;
        {
            let mut shelf = self.store.shelf();
            shelf.quarantine(&self.folder, self.ship.segment, self.ship.crc, self.bytes);
            shelf.counts.quarantined += 1;
        }
        self.store.keep_budget();
        Ok(Shipped::Quarantined)
    }

    /// Gives the file its name and makes that durable, together with the folders it is in, of which `above` are
    /// those over its own.
    fn move_to(&self, path: &Path, above: &[&Path]) -> Result<(), StoreError> {
        let disk = &self.store.inner.disk;
        let own = path.parent().unwrap_or(path);
        disk.create_dir(own).map_err(|e| StoreError::disk("create", own, e))?;
        for dir in above {
            disk.sync_dir(dir).map_err(|e| StoreError::disk("sync", dir, e))?;
        }
        disk.rename(&self.path, path).map_err(|e| StoreError::disk("rename", path, e))?;
        disk.sync_dir(own).map_err(|e| StoreError::disk("sync", own, e))
    }

    fn arrived(&self) -> StoreError {
        StoreError::Arrived { announced: (self.ship.bytes, self.ship.crc), arrived: (self.bytes, self.crc) }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Not there any more if it has its place; what cannot be removed is when the store is next opened.
        let _gone = self.store.inner.disk.remove(&self.path);
        let mut shelf = self.store.shelf();
        shelf.receiving -= 1;
        shelf.counts.failed += u64::from(!self.answered);
    }
}

/// Whether an episode that both have is not the same.
fn differ(ours: &BTreeMap<EpisodeKey, u64>, theirs: &BTreeMap<EpisodeKey, u64>) -> bool {
    theirs.iter().any(|(key, digest)| ours.get(key).is_some_and(|ours| ours != digest))
}

/// Segments that are received at a time.
const MAX_RECEIVING: usize = 64;
/// File names have ten digits.
const MAX_SEGMENT_NUMBER: u64 = 9_999_999_999;
