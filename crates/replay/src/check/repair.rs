//! Repairing a folder on request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Disk;
use crate::read::library::{holds_recordings, subfolders};
use crate::read::read_error::ReadError;
use crate::read::replays::{Replays, names_in};
use crate::stored::catalogue;
use crate::stored::lock::{OpenError, lock_folder};
use crate::stored::recover::{RepairReport, recover};
use crate::stored::scan::scan_with_rows;

/// An error: a folder could not be repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It could not be opened for writing; a writer that has it is named.
    #[error(transparent)]
    Open(OpenError),
    /// It could not be read.
    #[error(transparent)]
    Read(ReadError),
}

/// Takes the folder's writer lock, cuts torn tails off, seals what is unsealed, reads every byte, lists the damage
/// and makes the catalogue anew. Blocks for the disk.
///
/// # Errors
/// If the folder is not there, a writer has it, or a file operation fails. Damage is reported, not an error.
pub fn repair(disk: Arc<dyn Disk>, dir: &Path) -> Result<RepairReport, RepairError> {
    names_in(&*disk, dir).map_err(RepairError::Read)?;
    let _lock = lock_folder(&*disk, dir).map_err(RepairError::Open)?;
    let mut report = recover(&*disk, dir).map_err(|error| RepairError::Open(OpenError::Disk(error)))?;
    let replays = Replays::open_scanning(disk.clone(), dir).map_err(RepairError::Read)?;
    report.damage = replays.damage().copied().collect();
    report.incomplete = replays.incomplete().map_err(RepairError::Read)?;
    let whole: Vec<u64> = replays.sealed_indexes().map(|index| index.number).collect();
    catalogue::remove(&*disk, dir);
    for &number in &whole {
        // One at a time: a segment and what is packed of it are in memory meanwhile.
        let file = replays.file(number).map_err(RepairError::Read)?;
        if let Ok(scan) = scan_with_rows(number, &*file) {
            catalogue::add(&*disk, dir, vec![scan.index], &whole);
        }
    }
    catalogue::gather_of(&*disk, dir, &whole);
    Ok(report)
}

/// The result of repairing one of several folders.
#[derive(Debug)]
pub struct FolderRepair {
    /// The folder.
    pub dir: PathBuf,
    /// Report on what was repaired, or the reason why nothing was.
    pub result: Result<RepairReport, RepairError>,
}

/// Repairs the folder `dir` and those directly in it that hold recordings, one after another; a folder that cannot be
/// repaired does not keep the others from it. `dir` is left out if all recordings are in folders in it.
///
/// # Errors
/// If the folder is not there, too many are in it, or it cannot be listed.
pub fn repair_all(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Vec<FolderRepair>, ReadError> {
    let mut dirs = subfolders(&**disk, dir)?;
    if dirs.is_empty() || holds_recordings(&**disk, dir) {
        dirs.insert(0, dir.into());
    }
    let repairs = dirs.into_iter().map(|dir| FolderRepair { result: repair(disk.clone(), &dir), dir });
    Ok(repairs.collect())
}
