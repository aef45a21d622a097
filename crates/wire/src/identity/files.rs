//! Files with secrets: only their owner can read them, they are never half written, and they belong to the owner of
//! their folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::SystemTime;

pub(crate) use rollhouse_core::read_regular as read;

/// The users who may read a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Only the file's owner may read it.
    Owner,
    /// Everybody may read it.
    All,
}

/// Puts a file in place of another, durably: after a crash the old one or the new one is there. The new file has the
/// owner and the mode of the old one; without an old one it belongs to the owner of the folder. So root can change the
/// files of a service that runs as another user, and the service can still read them. Blocks on the disk.
///
/// # Errors
/// The error of the operating system; also `PermissionDenied` for a user who can write into the folder but cannot make
/// files that belong to its owner.
pub fn replace(path: &Path, contents: &[u8], readers: Readers) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = folder.join(name);
    let written = write_new(&new, contents, &Kept::of(path, folder, readers)?);
    let written = written.and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // What is left of the attempt is of no use; the error that counts is the first.
        let _gone = fs::remove_file(&new);
    }
    written?;
    File::open(folder)?.sync_all()
}

/// The owner and the mode that a file is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Kept {
    /// Returns the owner and mode for a file that takes the place of the one at `path`, or is new in `folder`.
    pub(crate) fn of(path: &Path, folder: &Path, readers: Readers) -> io::Result<Self> {
        let mode = match readers {
            Readers::Owner => 0o600,
            Readers::All => 0o644,
        };
        match fs::metadata(path) {
            Ok(old) => Ok(Self { owner: old.uid(), group: old.gid(), mode: old.mode() & 0o777 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = fs::metadata(folder)?;
                Ok(Self { owner: folder.uid(), group: folder.gid(), mode })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives owner and mode to a file that was just made.
    pub(crate) fn give(self, file: &File) -> io::Result<()> {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (self.owner, self.group) {
            let owner = self.owner;
            fchown(file, Some(self.owner), Some(self.group)).map_err(|error| {
                let what =
                    format!("it has to belong to user {owner}: run this as that user, or as root ({error})");
                io::Error::new(error.kind(), what)
            })?;
        }
        if made.mode() & 0o777 == self.mode {
            return Ok(());
        }
        // Whatever the process' own mask is.
        file.set_permissions(fs::Permissions::from_mode(self.mode))
    }
}

fn write_new(path: &Path, contents: &[u8], kept: &Kept) -> io::Result<()> {
    // One that a crashed process of the same number has left would keep its mode.
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    kept.give(&file)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// The properties of a file that change when it is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// Returns the stamp of the file as it is now; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() })
    }
}

/// Bytes of the largest PEM file that is read: dozens of certificates.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: after `token create` as root a coordinator that ran as another user took no new token and did not start
    /// again. Cause: the file that took the place of the old one was root's. Fix: owner and mode stay, and a new file
    /// is of whom its folder is. (Where the test does not run as root, the folder is its own user's.)
    #[test]
    fn what_takes_the_place_of_a_file_keeps_its_owner_and_mode_and_what_is_new_is_of_whom_the_folder_is() {
        let folder = tempfile::tempdir().unwrap();
        // To anybody else but root this is refused, and the folder stays theirs.
        let _given = std::os::unix::fs::chown(folder.path(), Some(12_345), Some(54_321));
        let owner = |path: &Path| fs::metadata(path).map(|of| (of.uid(), of.gid())).unwrap();
        let path = folder.path().join("tokens.json");
        replace(&path, b"one", Readers::Owner).unwrap();
        assert_eq!(owner(&path), owner(folder.path()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two", Readers::Owner).unwrap();
        assert_eq!(owner(&path), owner(folder.path()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_secret_is_readable_by_its_owner_only_and_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        replace(&path, b"one", Readers::Owner).unwrap();
        let first = Stamp::of(&path);
        replace(&path, b"two", Readers::Owner).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(Stamp::of(&path), first, "a replaced file is told from the old one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_above_the_limit_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        replace(&path, &[7; 100], Readers::All).unwrap();
        assert_eq!(read(&path, 100).unwrap().len(), 100);
        assert_eq!(read(&path, 99).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
