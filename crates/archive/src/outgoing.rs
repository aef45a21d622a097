//! The segments that an export carries: the sealed segments of a folder or a store, or the parts of them that belong to
//! some runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use rollhouse_core::RunId;
use rollhouse_replay::{
    Disk, DiskError, Library, ReadError, Replays, STORE_LOCK, SealedHere, is_spool_name, name_of_folder,
    name_of_part, part_of_run,
};

use crate::label::Checked;

/// A segment that is to be carried to a target, or the part of it that belongs to one run.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The folder under which it goes.
    pub folder: String,
    /// Its number there and here.
    pub number: u64,
    /// Length in bytes of the segment from which it is taken.
    pub bytes: u64,
    sealed: SealedHere,
    run: Option<RunId>,
    here: Arc<Replays>,
}

/// The recordings that are to be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All recordings: each segment goes as it is.
    All,
    /// The recordings of these runs, by their short ids: each goes in segments of its own.
    Runs(BTreeSet<u64>),
}

/// The segments of a library that are to be carried.
#[derive(Debug, Clone, Default)]
pub struct Carried {
    /// The segments, in about the order in which they were written.
    pub segments: Vec<Outgoing>,
    /// The runs that have something in these segments.
    pub runs: BTreeSet<RunId>,
    /// Number of segments without a seal, which are not carried.
    pub unsealed: u64,
}

/// The error for a folder that has no name among those that are carried elsewhere, and cannot be given one.
#[derive(Debug)]
pub struct OutgoingError(DiskError);

impl Carried {
    /// Finds the segments to carry in the library that was opened at `root`. A folder that belongs to no store is given
    /// a name if it has none: the file `spool` in it. Blocks for the disk.
    ///
    /// # Errors
    /// If a folder cannot be named.
    pub fn of(disk: &dyn Disk, library: &Library, which: &Selection) -> Result<Self, OutgoingError> {
        let mut carried = Self::default();
        let root = library.folders().first().map(|folder| folder.dir().to_path_buf()).unwrap_or_default();
        let is_store = disk.list(&root).is_ok_and(|names| names.iter().any(|name| name == STORE_LOCK));
        for here in library.folders() {
            carried.unsealed += here.unsealed_here();
            let mut sealed = here.sealed_here().filter(|sealed| wants(which, sealed)).peekable();
            if sealed.peek().is_none() {
                continue;
            }
            let stored = if is_store && here.dir() != root { stored_name(disk, here) } else { None };
            let folder = match stored {
                Some(name) => name,
                None => own_name(disk, here)?,
            };
            sealed.for_each(|sealed| carried.add(here, &folder, sealed, which));
        }
        carried.segments.sort_by(|a, b| (a.number, &a.folder).cmp(&(b.number, &b.folder)));
        Ok(carried)
    }

    fn add(&mut self, here: &Arc<Replays>, folder: &str, sealed: SealedHere, which: &Selection) {
        let runs: Vec<Option<RunId>> = match which {
            Selection::All => {
                self.runs.extend(&sealed.runs);
                vec![None]
            }
            Selection::Runs(asked) => {
                let of_them = sealed.runs.iter().filter(|run| asked.contains(&run.short()));
                self.runs.extend(of_them.clone());
                of_them.map(|run| Some(*run)).collect()
            }
        };
        for run in runs {
            let folder = match (run, folder.rsplit_once('-')) {
                (Some(run), Some((node, spool))) => format!("{node}-{}", name_of_part(spool, run)),
                _ => folder.to_owned(),
            };
            let (number, bytes) = (sealed.number, sealed.bytes);
            self.segments.push(Outgoing {
                folder,
                number,
                bytes,
                sealed: sealed.clone(),
                run,
                here: here.clone(),
            });
        }
    }
}

impl Outgoing {
    /// Reads the segment and checks every byte; `None` if it is damaged. Blocks for the disk; takes as much memory as
    /// the segment has bytes, and as much again for a part of it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self) -> Result<Option<Checked>, ReadError> {
        let bytes = self.here.segment_bytes(self.number)?;
        let aside = &self.sealed.aside;
        let Some(run) = self.run else {
            return Ok(Checked::of(&self.folder, self.number, bytes, aside.clone()));
        };
        let part = part_of_run(&bytes, run, aside);
        drop(bytes);
        Ok(part.and_then(|(bytes, aside)| Checked::of(&self.folder, self.number, bytes, aside)))
    }

    /// Returns the folder here.
    pub fn here(&self) -> &Replays {
        &self.here
    }
}

fn wants(which: &Selection, sealed: &SealedHere) -> bool {
    match which {
        Selection::All => true,
        Selection::Runs(asked) => sealed.runs.iter().any(|run| asked.contains(&run.short())),
    }
}

/// Returns the name of a store's folder, which it has already; `None` for a folder beside it that was recorded into.
fn stored_name(disk: &dyn Disk, here: &Replays) -> Option<String> {
    let name = here.dir().file_name()?.to_str()?.to_owned();
    let (node, spool) = name.rsplit_once('-')?;
    let inside = disk.list(here.dir()).unwrap_or_default();
    let recorded = inside.iter().any(|name| name == WRITER_LOCK);
    (!node.is_empty() && is_spool_name(spool) && !recorded).then_some(name)
}

fn own_name(disk: &dyn Disk, here: &Replays) -> Result<String, OutgoingError> {
    let spool = name_of_folder(disk, here.dir()).map_err(OutgoingError)?;
    Ok(format!("{LOCAL}-{spool}"))
}

impl std::fmt::Display for OutgoingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a folder of recordings cannot be given the name under which it is exported")
    }
}

impl std::error::Error for OutgoingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The lock file of a folder that is recorded into: no store's folder has one.
const WRITER_LOCK: &str = "writer.lock";
/// The word in place of a node's name in the names of folders that no node has.
pub const LOCAL: &str = "local";
