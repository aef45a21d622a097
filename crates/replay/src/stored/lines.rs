//! A file of lines that are added one at a time, each durable and with a checksum of its own.
//!
//! ```text
//! <CRC-32C of the rest> <text>
//! ```
//!
//! A line that cannot be read is left out, and the reader is told so.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile, read_range};
use crate::disk_error::DiskError;

/// A file of such lines, while it is written to.
#[derive(Debug)]
pub struct Lines {
    dir: PathBuf,
    path: PathBuf,
    new: PathBuf,
    /// `None` after a failed operation: what is in the file is not known then, and it is written anew.
    file: Option<Box<dyn DiskFile>>,
    count: usize,
}

/// The lines that were read from such a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinesRead {
    /// Each line that is intact, with its place in the file, counted from 1.
    pub lines: Vec<(u64, String)>,
    /// Whether the file is there and every line of it is intact.
    pub whole: bool,
}

impl Lines {
    /// Makes a writer for the file `name` in the folder `dir`. Nothing can be added before the file is written anew.
    pub fn new(dir: &Path, name: &str) -> Self {
        let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
        Self { dir: dir.into(), path, new, file: None, count: 0 }
    }

    /// Reads the lines of the file; there are none if it does not exist. Blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn read(&self, disk: &dyn Disk) -> Result<LinesRead, DiskError> {
        let failed = |error| DiskError::new("read", &self.path, error);
        let file = match disk.open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LinesRead::default()),
            Err(error) => return Err(failed(error)),
        };
        let len = file.len().map_err(failed)?;
        let bytes = read_range(&*file, 0, len.min(MAX_BYTES)).map_err(failed)?;
        let mut read = LinesRead { lines: Vec::new(), whole: len <= MAX_BYTES };
        for (at, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            match decode(line) {
                Some(text) => read.lines.push((at, text.to_owned())),
                None => read.whole &= line.is_empty(),
            }
        }
        // The last one was cut short.
        read.whole &= bytes.last().is_none_or(|&byte| byte == b'\n');
        Ok(read)
    }

    /// Returns whether the file has to be written anew before a line can be added.
    pub const fn is_unsure(&self) -> bool {
        self.file.is_none()
    }

    /// Returns the number of lines.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Adds a line, which has no line break in it. It is durable on return. It is not added if the file has to be
    /// written anew first.
    ///
    /// # Errors
    /// If a file operation fails; then the file has to be written anew.
    pub fn add(&mut self, text: &str) -> Result<(), DiskError> {
        // Put back when it has worked.
        let Some(file) = self.file.take() else { return Ok(()) };
        file.append_all(encode(text).as_bytes()).map_err(|e| DiskError::new("append", &self.path, e))?;
        file.sync_data().map_err(|e| DiskError::new("sync", &self.path, e))?;
        self.file = Some(file);
        self.count += 1;
        Ok(())
    }

    /// Replaces all lines of the file by these. They are durable on return.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn rewrite(
        &mut self,
        disk: &dyn Disk,
        lines: impl IntoIterator<Item = String>,
    ) -> Result<(), DiskError> {
        self.file = None;
        let failed = |operation| {
            let new = self.new.clone();
            move |error| DiskError::new(operation, &new, error)
        };
        match disk.remove(&self.new) {
            // Left by an attempt that failed.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
            _ => {}
        }
        let file = disk.create(&self.new).map_err(failed("create"))?;
        let mut count = 0;
        let text: String = lines.into_iter().inspect(|_| count += 1).map(|line| encode(&line)).collect();
        file.append_all(text.as_bytes()).map_err(failed("append"))?;
        file.sync_data().map_err(failed("sync"))?;
        disk.rename(&self.new, &self.path).map_err(failed("rename"))?;
        disk.sync_dir(&self.dir).map_err(|e| DiskError::new("sync", &self.dir, e))?;
        (self.file, self.count) = (Some(file), count);
        Ok(())
    }
}

fn encode(text: &str) -> String {
    format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()))
}

fn decode(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == crc32c::crc32c(text.as_bytes())).then_some(text)
}

/// Bytes of the file that are looked at: some ten million lines.
const MAX_BYTES: u64 = 1 << 30;
