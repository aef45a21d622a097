//! Folders that only their owner can open.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::Path;

use crate::failure::{Failure, Status};

/// Makes a folder that only its owner can open, and the folders above it. New folders belong to the owner of the one
/// above: root makes folders for services that run as other users.
pub fn private_folder(folder: &Path) -> Result<(), Failure> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let make = |path: &Path| {
        DirBuilder::new().mode(0o700).create(path)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (above, made) = (fs::metadata(above)?, fs::metadata(path)?);
        if (above.uid(), above.gid()) == (made.uid(), made.gid()) || made.uid() != ROOT {
            return Ok(());
        }
        chown(path, Some(above.uid()), Some(above.gid()))
    };
    let made = missing.into_iter().rev().try_for_each(|path| match make(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    made.map_err(|error| cannot_write(folder, &error))?;
    if folder.is_dir() { Ok(()) } else { Err(cannot_write(folder, &io::ErrorKind::NotADirectory.into())) }
}

pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Status::Failed, format_args!("{} cannot be written: {error}", path.display()))
}

/// The id of the user whose folders are given away.
const ROOT: u32 = 0;
