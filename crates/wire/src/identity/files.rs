//! Files with secrets: readable by their owner only, never half written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Its owner.
    Owner,
    /// Everybody.
    All,
}

/// Puts a file in place of another, durably: after a crash there is the old one or the new one. Blocks on the
/// disk.
pub(crate) fn replace(path: &Path, contents: &[u8], readers: Readers) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = folder.join(name);
    let written = write_new(&new, contents, readers).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // What is left of the attempt is of no use; the error that counts is the first.
        let _gone = fs::remove_file(&new);
    }
    written?;
    File::open(folder)?.sync_all()
}

fn write_new(path: &Path, contents: &[u8], readers: Readers) -> io::Result<()> {
    let mode = match readers {
        Readers::Owner => 0o600,
        Readers::All => 0o644,
    };
    // One that a crashed process of the same number has left would keep its mode.
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// What changes when a file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// Of the file as it is now; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() })
    }
}

/// Reads a file that is not larger than `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut contents = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_readable_by_its_owner_only_and_replaced_whole() {
        let folder = TestFolder::new("files");
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
        let folder = TestFolder::new("files-limit");
        let path = folder.path().join("long");
        replace(&path, &[7; 100], Readers::All).unwrap();
        assert_eq!(read(&path, 100).unwrap().len(), 100);
        assert_eq!(read(&path, 99).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
