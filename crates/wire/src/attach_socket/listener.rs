//! The node's listening socket, at which owners of this machine ask for memory.

use std::fmt;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::UnixListener;

use super::request::{AttachSocket, encoded};
use crate::limits::MAX_ATTACH_PATH_BYTES;
use crate::{Answer, MemoryAttached, Refusal, RefusalCode};

/// A listening attach socket. Dropping it removes its file, unless another file has taken its place.
#[derive(Debug)]
pub struct AttachListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file that was bound.
    file: (u64, u64),
    uids: Vec<u32>,
}

/// A process that has connected to the attach socket.
#[derive(Debug)]
pub enum LocalArrival {
    /// The process belongs to a user that may attach.
    Admitted(AttachSocket),
    /// The process belongs to another user. Nothing was read from it; it is told so, and the connection is closed.
    TurnedAway {
        /// The user id of the process.
        uid: u32,
    },
}

impl AttachListener {
    /// Binds a socket at `path` for processes of these users; root and the user of this process may always attach. A
    /// file that a dead process has left at the path is replaced. Needs a tokio runtime.
    ///
    /// Only its owner may use the file, or also its group if other users are named. The same holds for its folder if that
    /// is not there and made: containers share folders to which everybody may write, and a folder inside one is safe. A
    /// folder that is there belongs to this user or to root, and nobody else may write to it, unless it is sticky.
    ///
    /// # Errors
    /// See [`AttachBindError`].
    pub fn bind(path: &Path, uids: &[u32]) -> Result<Self, AttachBindError> {
        let bytes = path.as_os_str().len();
        if bytes == 0 || bytes > MAX_ATTACH_PATH_BYTES {
            return Err(AttachBindError::Length { path: path.to_owned(), bytes });
        }
        let own = geteuid().as_raw();
        let mut allowed = vec![own, 0];
        allowed.extend_from_slice(uids);
        let others = uids.iter().any(|uid| ![own, 0].contains(uid));
        let folder = folder_of(path);
        make_folder(folder, if others { 0o750 } else { 0o700 })?;
        check_folder(folder)?;
        remove_stale(path)?;
        let failed = |source| AttachBindError::Io { path: path.to_owned(), source };
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Who connects before this is looked at like anybody else.
        let mode = if others { 0o660 } else { 0o600 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(failed)?;
        let file = std::fs::symlink_metadata(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), file: (file.dev(), file.ino()), uids: allowed })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next process that connects. Cancellation-safe.
    ///
    /// # Errors
    /// The error of the operating system, mostly that no descriptors are left: worth trying again later.
    pub async fn accept(&self) -> io::Result<LocalArrival> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        if !self.uids.contains(&uid) {
            let message = format!("user {uid} may not attach to sessions of this node");
            let refusal = Answer::<MemoryAttached>::Refused(Refusal::new(RefusalCode::Forbidden, message));
            if let Ok(bytes) = encoded(&refusal) {
                // There is room for it in a new connection; whether it is heard is the asker's affair.
                let _sent = stream.try_write(&bytes);
            }
            return Ok(LocalArrival::TurnedAway { uid });
        }
        Ok(LocalArrival::Admitted(AttachSocket::new(stream, uid)))
    }
}

impl Drop for AttachListener {
    fn drop(&mut self) {
        let ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // A file that stays behind answers nobody, and the next start removes it.
            let _removed = std::fs::remove_file(&self.path);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the folder unless it is there; its parent must exist.
fn make_folder(folder: &Path, mode: u32) -> Result<(), AttachBindError> {
    match std::fs::DirBuilder::new().mode(mode).create(folder) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(AttachBindError::Io { path: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Checks that nobody else owns the folder or may write to it: such a user could put another socket in this one's
/// place.
fn check_folder(folder: &Path) -> Result<(), AttachBindError> {
    let failed = |source| AttachBindError::Io { path: folder.to_owned(), source };
    let found = std::fs::metadata(folder).map_err(failed)?;
    let (mode, owner) = (found.mode() & 0o7777, found.uid());
    let (others_write, sticky) = (mode & 0o022 != 0, mode & 0o1000 != 0);
    if others_write && !sticky {
        return Err(AttachBindError::OpenFolder { folder: folder.to_owned(), mode });
    }
    if ![geteuid().as_raw(), 0].contains(&owner) {
        return Err(AttachBindError::ForeignFolder { folder: folder.to_owned(), owner });
    }
    Ok(())
}

fn remove_stale(path: &Path) -> Result<(), AttachBindError> {
    let failed = |source| AttachBindError::Io { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(AttachBindError::NoSocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match BlockingStream::connect(path) {
        Ok(_) => Err(AttachBindError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// The reason why an attach socket cannot be bound.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug)]
pub enum AttachBindError {
    /// The path is empty or longer than [`MAX_ATTACH_PATH_BYTES`].
    Length {
        path: PathBuf,
        /// Length of the path in bytes.
        bytes: usize,
    },
    /// The folder belongs to another user, who could put another file in the socket's place.
    ForeignFolder {
        folder: PathBuf,
        /// User id of the folder's owner.
        owner: u32,
    },
    /// Users other than the folder's owner could put another file in the socket's place.
    OpenFolder {
        folder: PathBuf,
        /// Permission bits of the folder.
        mode: u32,
    },
    /// A file at the path is not a socket.
    NoSocket { path: PathBuf },
    /// Another process answers at the path.
    InUse { path: PathBuf },
    /// The operating system refuses.
    Io {
        /// The file or folder that was touched.
        path: PathBuf,
        source: io::Error,
    },
}

impl fmt::Display for AttachBindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { path, bytes } => {
                let path = path.display();
                write!(f, "attach socket {path}: {bytes} bytes, it is from 1 to {MAX_ATTACH_PATH_BYTES}")
            }
            Self::OpenFolder { folder, mode } => {
                let folder = folder.display();
                write!(f, "attach socket: others may write to folder {folder} (mode {mode:04o})")
            }
            Self::ForeignFolder { folder, owner } => {
                write!(f, "attach socket: folder {} is user {owner}'s", folder.display())
            }
            Self::NoSocket { path } => {
                write!(f, "attach socket {}: a file that is not a socket is in the way", path.display())
            }
            Self::InUse { path } => {
                write!(f, "attach socket {}: another process answers there", path.display())
            }
            Self::Io { path, .. } => write!(f, "attach socket: {}", path.display()),
        }
    }
}

impl std::error::Error for AttachBindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Length { .. }
            | Self::OpenFolder { .. }
            | Self::ForeignFolder { .. }
            | Self::NoSocket { .. }
            | Self::InUse { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_of_another_user_is_turned_away_before_anything_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attach.sock");
        let mut listener = AttachListener::bind(&path, &[]).unwrap();
        listener.uids = vec![geteuid().as_raw() + 1];
        let mut stranger = BlockingStream::connect(&path).unwrap();
        let arrival = listener.accept().await.unwrap();
        assert!(matches!(arrival, LocalArrival::TurnedAway { uid } if uid == geteuid().as_raw()));
        let mut said = Vec::new();
        io::Read::read_to_end(&mut stranger, &mut said).unwrap();
        let refusal = crate::control::decode::<Answer<MemoryAttached>>(&said[4..]).unwrap().into_result();
        assert_eq!(refusal.unwrap_err().code, RefusalCode::Forbidden);
    }
}
