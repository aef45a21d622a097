//! Taking stock: finds the segments in the store's folder when it is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::OwnedBytes;
use rollhouse_replay::{
    Disk, DiskFile, EpisodeKey, FinishedEpisode, OpenError, QUARANTINE, SegmentSummary, SetAside, aside_path,
    rows_path, segment_number, segment_path, summary_path,
};

use super::arrivals::{Arrival, Arrivals, sorted};
use super::away::AwayDisk;
use super::quarantine::Quarantined;
use super::shelf::{Held, Shelf, by_run};
use super::{INCOMING, is_name, opening};

/// Reads what is in the store and writes anew the order in which it came. Segments that are `away`, which is part of
/// the disk, are taken as their entries know them; the rest of those is no longer shown.
pub(super) fn take(
    disk: &dyn Disk,
    dir: &Path,
    arrivals: &mut Arrivals,
    away: Option<&AwayDisk>,
) -> Result<Shelf, OpenError> {
    let mut shelf = Shelf::default();
    let order = arrivals.load(disk).map_err(OpenError::Disk)?;
    let mut names = disk.list(dir).map_err(|e| opening("list", dir, e))?;
    names.sort_unstable();
    let mut found = Vec::new();
    // Files are none either, which is found when they are listed.
    let is_folder = |name: &&String| is_name(name) && ![INCOMING, QUARANTINE].contains(&name.as_str());
    for name in names.iter().filter(is_folder) {
        take_folder((disk, away), dir, name, &mut shelf, &mut found)?;
    }
    for (arrival, _, held) in sorted(found, &order) {
        let owned = order.get(&arrival).map(|(_, owned)| owned.clone()).unwrap_or_default();
        shelf.add(&arrival.0, held.of_owners(owned));
    }
    let aside = take_quarantine(disk, dir)?;
    for (arrival, _, quarantined) in sorted(aside, &order) {
        shelf.set_segment_aside(arrival, quarantined);
    }
    arrivals.rewrite(disk, &shelf.arrivals()).map_err(OpenError::Disk)?;
    Ok(shelf)
}

/// Reads a segment for its summary, and keeps that.
fn summarised(disk: &dyn Disk, dir: &Path, number: u64) -> Result<SegmentSummary, OpenError> {
    let path = segment_path(dir, number);
    let read = disk.open(&path).and_then(|file| SegmentSummary::read(number, &*file));
    let mut summary = read.map_err(|e| opening("read", &path, e))?;
    // A cache: without it the segment is read again next time.
    let _cache = summary.store(disk, dir);
    Ok(summary)
}

/// Finds a folder's segments. Files without a valid byte are not ours.
fn take_folder(
    (disk, away): (&dyn Disk, Option<&AwayDisk>),
    dir: &Path,
    name: &str,
    shelf: &mut Shelf,
    found: &mut Vec<(Arrival, u64, Held)>,
) -> Result<(), OpenError> {
    let dir = dir.join(name);
    let segments = dir.join("segments");
    let files = match disk.list(&segments) {
        Ok(files) => files,
        // A file, or a folder of something else.
        Err(error) if is_no_folder(&error) => return Ok(()),
        Err(error) => return Err(opening("list", &segments, error)),
    };
    let mut numbers: Vec<u64> = files.iter().filter_map(|file| segment_number(file)).collect();
    if numbers.is_empty() {
        remove_emptied(disk, &dir);
        return Ok(());
    }
    let folder = shelf.folder(name);
    numbers.sort_unstable();
    for number in numbers {
        // One at a time: there may be more than fit into memory together.
        let known = SegmentSummary::load(disk, &dir, number);
        if let Some((away, elsewhere)) =
            away.and_then(|away| Some((away, away.away(&segment_path(&dir, number))?)))
            && known.as_ref().is_none_or(|summary| summary.crc() != elsewhere.crc)
        {
            away.remove(name, number);
            continue;
        }
        let summary = known.map_or_else(|| summarised(disk, &dir, number), Ok)?;
        let aside = match SetAside::load(disk, &dir, number) {
            Ok(aside) => aside,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                shelf.counts.damaged += 1;
                SetAside::default()
            }
            Err(error) => return Err(opening("read", &aside_path(&dir, number), error)),
        };
        if !summary.is_whole() {
            shelf.counts.damaged += 1;
        }
        if summary.is_whole() || summary.blocks().next().is_some() {
            let arrival = (folder.clone(), number, summary.crc());
            found.push((arrival, summary.opened_ms(), Held::of(&summary, &aside, OwnedBytes::none())));
        }
    }
    Ok(())
}

/// Finds the segments that are set aside as a whole. Reads each, to know which runs miss something.
fn take_quarantine(disk: &dyn Disk, store: &Path) -> Result<Vec<(Arrival, u64, Quarantined)>, OpenError> {
    let dir = store.join(QUARANTINE);
    move_unread(disk, store, &dir)?;
    let mut found = Vec::new();
    for name in disk.list(&dir).map_err(|e| opening("list", &dir, e))? {
        let Some(arrival) = quarantined_name(&name) else { continue };
        let inside = dir.join(&name);
        let path = segment_path(&inside, arrival.1);
        let file = match disk.open(&path) {
            Ok(file) => file,
            // Its removal was cut short.
            Err(error) if is_no_folder(&error) => {
                remove_emptied(disk, &inside);
                continue;
            }
            Err(error) => return Err(opening("open", &path, error)),
        };
        let read = SegmentSummary::read(arrival.1, &*file)
            .and_then(|summary| Ok((summary.opened_ms(), look_at(disk, store, &arrival, &summary, &*file)?)));
        let (opened_ms, quarantined) = read.map_err(|e| opening("read", &path, e))?;
        found.push((arrival, opened_ms, quarantined));
    }
    Ok(found)
}

/// Gives a segment in `quarantine/<folder>/<number>-<crc>.seg`, where earlier versions put it and nothing read it, a
/// folder of its own.
fn move_unread(disk: &dyn Disk, store: &Path, dir: &Path) -> Result<(), OpenError> {
    for name in disk.list(dir).map_err(|e| opening("list", dir, e))? {
        let inside = dir.join(&name);
        let files = match disk.list(&inside) {
            Ok(files) if quarantined_name(&name).is_none() => files,
            Ok(_) => continue,
            Err(error) if is_no_folder(&error) => continue,
            Err(error) => return Err(opening("list", &inside, error)),
        };
        let known = |file: &String| -> Option<(u64, u32)> {
            let (number, crc) = file.strip_suffix(".seg")?.split_once('-')?;
            Some((number.parse().ok()?, u32::from_str_radix(crc, 16).ok()?))
        };
        for file in &files {
            let Some((number, crc)) = known(file) else { continue };
            let to = quarantine_dir(store, &(name.as_str().into(), number, crc));
            let path = segment_path(&to, number);
            let own = path.parent().unwrap_or(&to);
            disk.create_dir(own).map_err(|e| opening("create", own, e))?;
            disk.rename(&inside.join(file), &path).map_err(|e| opening("rename", &path, e))?;
            for changed in [own, &to, dir] {
                disk.sync_dir(changed).map_err(|e| opening("sync", changed, e))?;
            }
        }
        let _stays = disk.remove_dir(&inside);
    }
    Ok(())
}

/// Reads a segment that is set aside as a whole, to find what it has that is nowhere else.
pub(super) fn look_at(
    disk: &dyn Disk,
    store: &Path,
    arrival: &Arrival,
    summary: &SegmentSummary,
    file: &dyn DiskFile,
) -> io::Result<Quarantined> {
    let damaged = if summary.is_whole() { BTreeSet::new() } else { summary.run_tags(file)? };
    let runs = missing_runs(disk, store, arrival, summary, file)?;
    Ok(Quarantined { bytes: summary.bytes(), runs, damaged })
}

/// Returns the episodes that finished in a segment that is set aside and are not in the segment with its number, by
/// run.
fn missing_runs(
    disk: &dyn Disk,
    store: &Path,
    (folder, number, _): &Arrival,
    summary: &SegmentSummary,
    file: &dyn DiskFile,
) -> io::Result<BTreeMap<u128, u64>> {
    // If that cannot be read, nothing is known to be there.
    let there = finished_in(disk, &store.join(&**folder), *number).unwrap_or_default();
    let there: BTreeMap<EpisodeKey, u64> = there.iter().map(|known| (known.key, known.digest)).collect();
    let finished = summary.finished(file)?;
    let missing = finished.iter().filter(|episode| there.get(&episode.key) != Some(&episode.digest));
    let names: BTreeSet<EpisodeKey> = missing.map(|episode| episode.key).collect();
    Ok(by_run(names.iter().map(|key| key.run)))
}

/// Removes a spool's folder after all of its segments were dropped: nodes come and go, and readers accept a limited
/// number of folders. A folder that cannot be removed, or still has something in it, stays until the store is opened
/// again.
pub(super) fn remove_emptied(disk: &dyn Disk, dir: &Path) {
    let inside = [segment_path(dir, 0), summary_path(dir, 0), aside_path(dir, 0), rows_path(dir, 0)];
    for folder in inside.iter().filter_map(|path| path.parent()).chain([dir]) {
        let _stays = disk.remove_dir(folder);
    }
}

/// Returns the folder of a segment that is set aside as a whole: readers read it like any other.
pub(super) fn quarantine_dir(store: &Path, (folder, number, crc): &Arrival) -> PathBuf {
    store.join(QUARANTINE).join(quarantine_name(folder, *number, *crc))
}

pub(super) fn quarantine_name(folder: &str, number: u64, crc: u32) -> String {
    format!("{folder}.{number:010}-{crc:08x}")
}

pub(super) fn quarantined_name(name: &str) -> Option<Arrival> {
    let (folder, rest) = name.rsplit_once('.')?;
    let (number, crc) = rest.split_once('-')?;
    let arrival = (Arc::from(folder), number.parse().ok()?, u32::from_str_radix(crc, 16).ok()?);
    (quarantine_name(folder, arrival.1, arrival.2) == name).then_some(arrival)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the episodes that finished in a segment of the folder `dir` and are not set aside; none if there is no such
/// segment.
pub(super) fn finished_in(disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<Vec<FinishedEpisode>> {
    let file = match disk.open(&segment_path(dir, number)) {
        Ok(file) => file,
        // Dropped to keep the budget.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let known = SegmentSummary::load(disk, dir, number);
    let summary = known.map_or_else(|| SegmentSummary::read(number, &*file), Ok)?;
    let aside = SetAside::load(disk, dir, number)?;
    let mut finished = summary.finished(&*file)?;
    finished.retain(|episode| !aside.has(episode.offset, episode.key));
    Ok(finished)
}
