//! Opening and reading of regular files, whatever stands at their path.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a file to read it. Does not wait: a pipe, socket, device or folder at the path is an error that names it.
///
/// # Errors
/// Gives the operating system's error, and `InvalidInput` for what is no regular file.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    open_regular_with(OpenOptions::new().read(true), path)
}

/// Opens a file with `options` as [`open_regular`] does.
///
/// # Errors
/// Those of [`open_regular`].
pub fn open_regular_with(options: &mut OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    // Opening a pipe waits for its other end, reading one for a writer, and a terminal would become the process's.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let what = match kind {
        kind if kind.is_dir() => "folder",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        kind if kind.is_block_device() || kind.is_char_device() => "device",
        _ => "file of another kind",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a {what}, where a regular file has to be")))
}

/// Returns whether locking a file failed because its file system has no locks.
pub fn has_no_locks(error: &io::Error) -> bool {
    let none = [Errno::NOLCK, Errno::NOTSUP, Errno::NOSYS].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| none.contains(&code))
}

/// Returns an error of locking a file as it is shown: where the file system has no locks, with what to do.
pub fn lock_refused(error: io::Error) -> io::Error {
    if !has_no_locks(&error) {
        return error;
    }
    let message = format!(
        "its file system has no file locks, which let in one writer at a time; choose a folder on a local disk, or on a \
         share with a lock service ({error})"
    );
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Reads a regular file of at most `limit` bytes. May block for as long as the disk takes.
///
/// # Errors
/// Those of [`open_regular`], and `FileTooLarge` beyond the limit, before more than that is in memory.
pub fn read_regular(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    open_regular(path)?.take(limit.saturating_add(1)).read_to_end(&mut contents)?;
    if contents.len() as u64 > limit {
        let message = format!("more than {limit} bytes, which is the limit");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(contents)
}

/// Reads a regular file of at most `limit` bytes as text.
///
/// # Errors
/// Those of [`read_regular`], and `InvalidData` for what is not UTF-8.
pub fn read_regular_text(path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    String::from_utf8(read_regular(path, limit)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::{env, fs, process};

    /// Symptom: on a share without a lock service a recording did not begin, for `No locks available (os error 37)`.
    /// Fix: the message says what has none, what they are for, and what to do.
    #[test]
    fn a_file_system_without_locks_is_named_as_such_and_other_errors_stay_as_they_are() {
        for none in [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS] {
            let shown = lock_refused(none.into()).to_string();
            assert!(shown.starts_with("its file system has no file locks"), "{shown}");
        }
        assert_eq!(lock_refused(Errno::ACCESS.into()).kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_by_what_it_is_and_nobody_waits_for_it() {
        let dir = env::temp_dir().join(format!("rollhouse-regular-{}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        let [pipe, socket, link, there] = ["pipe", "socket", "loop", "there"].map(|name| dir.join(name));
        assert!(process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _listening = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&link, &link).unwrap();
        fs::write(&there, "0123456789").unwrap();
        let refusal = |path: &Path| open_regular(path).unwrap_err();
        assert_eq!(refusal(&pipe).to_string(), "a pipe, where a regular file has to be");
        assert_eq!(refusal(&dir).to_string(), "a folder, where a regular file has to be");
        assert_eq!(refusal(Path::new("/dev/zero")).to_string(), "a device, where a regular file has to be");
        // The system itself opens neither.
        assert!(refusal(&socket).raw_os_error().is_some() && refusal(&link).raw_os_error().is_some());
        assert!(open_regular_with(OpenOptions::new().write(true), &pipe).is_err());
        assert_eq!(read_regular(&there, 10).unwrap(), b"0123456789");
        assert_eq!(read_regular_text(&there, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(refusal(&dir.join("none")).kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&dir).unwrap();
    }
}
