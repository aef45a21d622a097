//! Receives segments: their bytes as they come, and then their place in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{Claimant, OwnedBytes, RunId};
use rollhouse_replay::limits::{MAX_SEGMENT_BYTES, MAX_STORE_FOLDERS};
use rollhouse_replay::{
    AsideEpisode, BlockRange, DiskFile, EpisodeKey, FinishedEpisode, QUARANTINE, SegmentSummary, SetAside,
    aside_path, segment_path,
};
use rollhouse_wire::limits::MAX_SHIP_BYTES;
use rollhouse_wire::{OwnerPart, Ship, Shipped, is_pool_of};

use super::arrivals::{Arrival, Arrivals};
use super::fetched::ArchiveError;
use super::shelf::Held;
use super::stock::{finished_in, look_at, quarantine_dir};
use super::{INCOMING, Inner, Placing, Store, StoreError, folder_of};

/// The first answer to an announced segment.
#[derive(Debug)]
pub enum Receive {
    /// It was received before: its bytes are not needed.
    Answer(Shipped),
    /// Its bytes are awaited.
    Bytes(Receiving),
}

/// A segment whose bytes are arriving. If it is dropped before [`Receiving::finish`], nothing of it is kept.
#[derive(Debug)]
pub struct Receiving {
    store: Store,
    node: Arc<str>,
    folder: String,
    ship: Ship,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    bytes: u64,
    crc: u32,
    /// Episodes of it that are set aside whatever the store has, because they were set aside at its source.
    aside: SetAside,
    answered: bool,
}

impl Store {
    /// Begins to receive a segment that a node announces.
    ///
    /// # Errors
    /// If its name, number or length is out of bounds, too many are being received, or a file operation fails.
    pub fn receive(&self, node: &str, ship: &Ship) -> Result<Receive, StoreError> {
        self.announce(node, ship, MAX_SHIP_BYTES)
    }

    /// Takes in a segment from elsewhere, together with the episodes of it that are set aside, as if its node shipped
    /// it. The answer is durable.
    ///
    /// # Errors
    /// If its name, number or length is out of bounds, or a file operation fails.
    pub fn take_in(
        &self,
        node: &str,
        ship: &Ship,
        bytes: &[u8],
        aside: &SetAside,
    ) -> Result<Shipped, StoreError> {
        let mut receiving = match self.announce(node, ship, MAX_SEGMENT_BYTES)? {
            Receive::Answer(answer) => return Ok(answer),
            Receive::Bytes(receiving) => receiving,
        };
        receiving.aside = aside.clone();
        receiving.write(bytes)?;
        receiving.finish()
    }

    fn announce(&self, node: &str, ship: &Ship, most_bytes: u64) -> Result<Receive, StoreError> {
        let folder = folder_of(node, &ship.spool)?;
        let bounds = [("length", ship.bytes, most_bytes), ("number", ship.segment, MAX_SEGMENT_NUMBER)];
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
            if shelf.quarantine().has(&folder, ship.segment, ship.crc) {
                return Ok(Receive::Answer(Shipped::Quarantined));
            }
            if !shelf.has_folder(&folder) {
                let (all, own) = (shelf.folders().len(), shelf.folders_of(&format!("{node}-")));
                if let Some((folders, most)) = [(all, MAX_STORE_FOLDERS), (own, MAX_NODE_FOLDERS)]
                    .into_iter()
                    .find(|(is, most)| is >= most)
                {
                    return Err(StoreError::TooManyFolders { folders, most });
                }
            }
            let budget = self.inner.config.budget_bytes;
            if shelf.archiving.as_ref().is_some_and(|archiving| archiving.has_no_room(ship.bytes, budget)) {
                return Err(StoreError::Full { archive: self.archive_name() });
            }
            let own = shelf.receiving.get(node).copied().unwrap_or(0);
            let all: usize = shelf.receiving.values().sum();
            if let Some((receiving, _)) =
                [(own, MAX_RECEIVING_OF_NODE), (all, MAX_RECEIVING)].into_iter().find(|(is, most)| is >= most)
            {
                return Err(StoreError::Busy { receiving });
            }
            *shelf.receiving.entry(node.into()).or_default() += 1;
            shelf.drawn += 1;
            shelf.drawn
        };
        let path = self.inner.dir.join(INCOMING).join(format!("{drawn}.part"));
        let mut receiving = Receiving {
            store: self.clone(),
            node: node.into(),
            folder,
            ship: ship.clone(),
            path,
            file: None,
            bytes: 0,
            crc: crc32c::crc32c(&[]),
            aside: SetAside::default(),
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

    /// Judges the segment after all bytes have come, and puts it in its place. The answer is durable.
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
        let mut placing = store.inner.placing.lock();
        placing.settle(&*store.inner.disk)?;
        let read = SegmentSummary::read(self.ship.segment, &*file);
        let mut summary = read.map_err(|e| StoreError::disk("read", &self.path, e))?;
        let held = store.shelf().get(&self.folder, self.ship.segment).map(|held| held.crc);
        match held {
            // It came twice at a time.
            Some(crc) if crc == self.ship.crc => {
                store.shelf().counts.known += 1;
                return Ok(Shipped::Known);
            }
            Some(_) => return self.quarantine(&mut placing, &summary, &*file),
            None => {}
        }
        if !summary.is_whole() {
            return self.quarantine(&mut placing, &summary, &*file);
        }
        let aside = self.contradictions(&summary, &*file)?;
        self.place(&mut placing, &mut summary, &aside)?;
        store.keep_budget();
        Ok(Shipped::Durable)
    }

    /// Returns the episodes of the segment that are in the store with other contents, or stand earlier in the segment
    /// itself, and those that were set aside at its source.
    fn contradictions(&self, summary: &SegmentSummary, file: &dyn DiskFile) -> Result<SetAside, StoreError> {
        let mut aside = self.aside.clone();
        let rivals = self.store.shelf().rivals(&self.folder, summary);
        if rivals.is_empty() && !repeats(summary) {
            return Ok(aside);
        }
        let ours = summary.finished(file).map_err(|e| StoreError::disk("read", &self.path, e))?;
        let names: BTreeSet<EpisodeKey> = ours.iter().map(|episode| episode.key).collect();
        let mut first: BTreeMap<EpisodeKey, u64> = BTreeMap::new();
        for (folder, number) in rivals {
            for theirs in self.read_rival(&folder, number)? {
                if names.contains(&theirs.key) {
                    first.entry(theirs.key).or_insert(theirs.digest);
                }
            }
        }
        for FinishedEpisode { key, offset, digest } in ours {
            if self.aside.has(offset, key) {
                continue;
            }
            if *first.entry(key).or_insert(digest) != digest {
                aside.insert(AsideEpisode { offset, key });
            }
        }
        Ok(aside)
    }

    /// Returns the episodes that finished in another segment, without those set aside there. A segment that cannot be
    /// read counts as empty after a few attempts: it must not keep others' segments out for ever.
    fn read_rival(&self, folder: &Arc<str>, number: u64) -> Result<Vec<FinishedEpisode>, StoreError> {
        let Inner { disk, dir, .. } = &*self.store.inner;
        let dir = dir.join(&**folder);
        match finished_in(&**disk, &dir, number) {
            Ok(finished) => Ok(finished),
            // What is in the archive is waited for: nothing is placed beside what it may contradict unseen.
            Err(error) if ArchiveError::behind(&error).is_some_and(|error| error.is_away) => {
                Err(StoreError::disk("read", &segment_path(&dir, number), error))
            }
            Err(_) if self.store.shelf().give_up_reading(folder, number) => Ok(Vec::new()),
            Err(error) => Err(StoreError::disk("read", &segment_path(&dir, number), error)),
        }
    }

    fn place(
        &self,
        placing: &mut Placing,
        summary: &mut SegmentSummary,
        aside: &SetAside,
    ) -> Result<(), StoreError> {
        let Inner { disk, dir, .. } = &*self.store.inner;
        let folder = dir.join(&self.folder);
        let number = self.ship.segment;
        let beside = aside_path(&folder, number);
        // Also if an earlier attempt has left something there that no longer holds.
        if !aside.is_empty() || disk.open(&beside).is_ok() {
            aside.store(&**disk, &folder, number).map_err(|e| StoreError::disk("write", &beside, e))?;
        }
        let owned = self.owned(summary);
        self.note(&mut placing.arrivals, &owned)?;
        let path = segment_path(&folder, number);
        placing.unsure = Some(path.clone());
        self.move_to(&path, &[&folder, dir])?;
        placing.unsure = None;
        // A cache: without it the segment is read when the store is next opened.
        let _cache = summary.store(&**disk, &folder);
        let mut shelf = self.store.shelf();
        let folder = shelf.folder(&self.folder);
        let held = Held::of(summary, aside, owned);
        let standing = held.fresh_standing();
        let order = shelf.add(&folder, held);
        shelf.counts.received += 1;
        shelf.counts.received_bytes += self.bytes;
        shelf.counts.set_aside += aside.len() as u64;
        if let (Some(archive), Some(archiving)) = (&self.store.inner.archive, &mut shelf.archiving) {
            archiving.add(order, self.bytes, standing, archive.now());
            archive.wake();
        }
        Ok(())
    }

    /// Sets the segment aside as a whole: it is damaged, or another one has its number.
    fn quarantine(
        &self,
        placing: &mut Placing,
        summary: &SegmentSummary,
        file: &dyn DiskFile,
    ) -> Result<Shipped, StoreError> {
        let Inner { disk, dir, .. } = &*self.store.inner;
        let arrival = self.arrival();
        let quarantined = look_at(&**disk, dir, &arrival, summary, file);
        let quarantined = quarantined.map_err(|e| StoreError::disk("read", &self.path, e))?;
        let folder = quarantine_dir(dir, &arrival);
        let path = segment_path(&folder, self.ship.segment);
        self.note(&mut placing.arrivals, &OwnedBytes::none())?;
        self.move_to(&path, &[&folder, &dir.join(QUARANTINE)])?;
        {
            let mut shelf = self.store.shelf();
            shelf.set_segment_aside(arrival, quarantined);
            shelf.counts.quarantined += 1;
        }
        self.store.keep_budget();
        Ok(Shipped::Quarantined)
    }

    fn arrival(&self) -> Arrival {
        (self.folder.as_str().into(), self.ship.segment, self.ship.crc)
    }

    /// Returns whose the segment's bytes are as far as its node says so of owners who have runs in it: an owner's name is
    /// hashed into the ids of its runs.
    fn owned(&self, summary: &SegmentSummary) -> OwnedBytes {
        let runs = summary.runs();
        let has_runs = |part: &&OwnerPart| runs.iter().any(|&run| is_pool_of(&part.owner, run));
        let claimant = |part: &OwnerPart| match part.operates {
            true => Claimant::operator(&*part.owner),
            false => Claimant::owner(&*part.owner),
        };
        let owned = self.ship.owned.iter().filter(has_runs).map(|part| (claimant(part), part.bytes));
        owned.collect()
    }

    /// Notes that the segment comes after all that are there.
    fn note(&self, arrivals: &mut Arrivals, owned: &OwnedBytes) -> Result<(), StoreError> {
        let store = &self.store;
        let there = store.shelf().len();
        let known = || store.shelf().arrivals();
        arrivals.note(&*store.inner.disk, (&self.arrival(), owned), known, there).map_err(StoreError::Disk)
    }

    /// Gives the file its name and makes that durable, together with its folder and the folders in `above`, which lie
    /// over it.
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
        if let Some(receiving) = shelf.receiving.get_mut(&self.node) {
            *receiving -= 1;
            if *receiving == 0 {
                shelf.receiving.remove(&self.node);
            }
        }
        shelf.counts.failed += u64::from(!self.answered);
    }
}

/// Returns whether the segment may have an episode twice: lanes of a run under two placements.
fn repeats(summary: &SegmentSummary) -> bool {
    let mut blocks: Vec<BlockRange> = summary.blocks().filter(|block| block.numbers.is_some()).collect();
    blocks.sort_by_key(|block| (block.run, block.first_lane));
    let mut reach: Option<(RunId, u32)> = None;
    blocks.iter().any(|block| {
        let overlaps = reach.is_some_and(|(run, end)| run == block.run && end > block.first_lane);
        let end = reach.filter(|(run, _)| *run == block.run).map_or(0, |(_, end)| end).max(block.end_lane);
        reach = Some((block.run, end));
        overlaps
    })
}

/// Number of segments that are received at a time.
const MAX_RECEIVING: usize = 64;
/// Number of those from one node: twice as many as a node sends.
const MAX_RECEIVING_OF_NODE: usize = 4;
/// Number of folders of one node: it has another spool after its data folder was lost, and no node takes all that
/// readers accept.
const MAX_NODE_FOLDERS: usize = 4_096;
/// Largest number of a segment: file names have ten digits.
const MAX_SEGMENT_NUMBER: u64 = 9_999_999_999;
