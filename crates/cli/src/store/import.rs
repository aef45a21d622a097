//! `rollhouse store import`: takes in recordings from a target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_archive::{Checked, LOCAL, SegmentId};
use rollhouse_coordinator::{Store, StoreConfig, StoreError};
use rollhouse_core::open_regular;
use rollhouse_replay::{OpenError, RealDisk, SegmentSummary, kept_name_of_folder, segment_path};
use rollhouse_wire::{Ship, Shipped};
use serde::Serialize;

use super::progress::Progress;
use super::{LeftOut, say_left_out, segments_of, shelf, target_failure};
use crate::args::StoreImportArgs;
use crate::audit_note;
use crate::failure::{Failure, Status};
use crate::human::{Bytes, counted};
use crate::output::{Output, say};

pub(super) fn run(args: &StoreImportArgs, out: &mut Output) -> Result<Status, Failure> {
    let shelf = shelf(&args.from, &args.target)?;
    let segments = segments_of(&shelf)?;
    let own = own_folders(&args.data);
    // Nothing is dropped here: what is to be kept is the coordinator's to say.
    audit_note::note_of_store(&args.data, "import", shelf.target().shown())?;
    let config = StoreConfig { budget_bytes: u64::MAX, quarantine_bytes: u64::MAX };
    let store = Store::open(Arc::new(RealDisk), &args.data, config).map_err(|error| open_failure(&error))?;
    let mut import = Import { from: shelf.target().shown().to_owned(), ..Import::default() };
    let mut progress = Progress::new("importing", segments.len());
    for id in &segments {
        let done = if is_here(&own, id) {
            import.present += 1;
            Ok(0)
        } else {
            match shelf.fetch(id) {
                Ok(Ok(checked)) => take_in(&store, &checked, &mut import),
                Ok(Err(flaw)) => {
                    import.leave_out(id, flaw.to_string());
                    Ok(0)
                }
                Err(error) => Err(target_failure(&error)),
            }
        };
        if done.is_err() {
            progress.clear();
        }
        progress.add(done?);
    }
    progress.clear();
    import.print(args.json, out)?;
    let clean = import.left_out.is_empty() && import.quarantined == 0 && import.set_aside == 0;
    Ok(if clean { Status::Done } else { Status::Found })
}

/// The result; the field names are part of the interface.
#[derive(Debug, Default, Serialize)]
struct Import {
    from: String,
    segments: u64,
    bytes: u64,
    episodes: u64,
    /// Number of segments that were there already.
    present: u64,
    /// Number of segments set aside as a whole: others have their numbers.
    quarantined: u64,
    /// Number of episodes set aside: others with their names were there.
    set_aside: u64,
    left_out: Vec<LeftOut>,
}

impl Import {
    fn leave_out(&mut self, id: &SegmentId, why: String) {
        self.left_out.push(LeftOut { folder: id.folder.clone(), segment: id.number, why });
    }

    fn print(&self, json: bool, out: &mut Output) -> Result<(), Failure> {
        if json {
            return Ok(out.json(self)?);
        }
        say_left_out(&self.left_out);
        let (segments, episodes) = (counted(self.segments, "segment"), counted(self.episodes, "episode"));
        writeln!(out, "{segments} taken in ({}, {episodes})", Bytes(self.bytes))?;
        writeln!(out, "{} there already", counted(self.present, "segment"))?;
        if self.quarantined > 0 || self.set_aside > 0 {
            let (whole, some) = (counted(self.quarantined, "segment"), counted(self.set_aside, "episode"));
            say(&format!("{whole} and {some} contradict what was there first, and were set aside"));
            say("`rollhouse replay quarantine ls` lists them");
        }
        Ok(())
    }
}

/// Gives a segment to the store and returns the number of its bytes.
fn take_in(store: &Store, checked: &Checked, import: &mut Import) -> Result<u64, Failure> {
    let Checked { id, bytes, aside, episodes, .. } = checked;
    // Labels of other names are none.
    let Some((node, spool)) = id.parts() else { return Ok(0) };
    let before = store.counts();
    let ship = Ship {
        spool: spool.to_owned(),
        segment: id.number,
        bytes: bytes.len() as u64,
        crc: id.crc,
        owned: Vec::new(),
    };
    let shipped = store.take_in(node, &ship, bytes, aside).map_err(|error| store_failure(&error))?;
    match shipped {
        Shipped::Known => import.present += 1,
        Shipped::Quarantined => import.quarantined += 1,
        Shipped::Durable => {
            import.segments += 1;
            import.bytes += ship.bytes;
            import.episodes += episodes;
            // Those that were set aside where they come from are no news.
            let more = store.counts().set_aside - before.set_aside;
            import.set_aside += more.saturating_sub(aside.len() as u64);
            return Ok(ship.bytes);
        }
    }
    Ok(0)
}

/// Returns the folders that were recorded into here and have been exported, by the name under which they were.
fn own_folders(data: &Path) -> BTreeMap<String, PathBuf> {
    let inside = std::fs::read_dir(data).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let dirs = std::iter::once(data.to_owned()).chain(inside);
    dirs.filter_map(|dir| Some((kept_name_of_folder(&RealDisk, &dir).ok()??, dir))).collect()
}

/// Returns whether a folder that was recorded into here has the segment itself: otherwise it is restored beside what is
/// left of the folder.
fn is_here(own: &BTreeMap<String, PathBuf>, id: &SegmentId) -> bool {
    let spool = id.parts().filter(|(node, _)| *node == LOCAL).map(|(_, spool)| spool);
    let Some(dir) = spool.and_then(|spool| own.get(spool)) else { return false };
    let file = open_regular(segment_path(dir, id.number));
    let read = file.and_then(|file| SegmentSummary::read(id.number, &file));
    read.is_ok_and(|summary| summary.crc() == id.crc)
}

fn open_failure(error: &OpenError) -> Failure {
    match error {
        OpenError::Locked { .. } => Failure::of(Status::Refused, error)
            .hint("stop the coordinator whose store it is, or import into another folder"),
        _ => Failure::of(Status::Failed, error),
    }
}

fn store_failure(error: &StoreError) -> Failure {
    Failure::of(Status::Failed, error)
}
