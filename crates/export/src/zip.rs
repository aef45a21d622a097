//! A ZIP archive of files that are stored as they are, written front to back.
//!
//! A file's checksum stands behind it (a data descriptor), so that the writer never goes back. A file whose length does
//! not fit into 32 bits has ZIP64's fields. Layout: PKWARE's APPNOTE 6.3.10, sections 4.3 and 4.5.3. Crates that write
//! ZIP bring compressors and encryption, which are not needed here.

use std::io::{self, Write};

use crc32fast::Hasher;

/// An archive that is being written.
pub(crate) struct Zip<'a> {
    out: &'a mut dyn Write,
    /// Number of bytes written so far.
    at: u64,
    files: Vec<File>,
    /// Smallest number that takes ZIP64's fields.
    wide_from: u64,
}

/// A file of the archive.
struct File {
    name: String,
    offset: u64,
    bytes: u64,
    crc: u32,
}

/// A file of the archive that is being written.
pub(crate) struct Entry<'z, 'a> {
    zip: &'z mut Zip<'a>,
    name: String,
    offset: u64,
    bytes: u64,
    is_wide: bool,
    crc: Hasher,
    written: u64,
}

impl<'a> Zip<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, at: 0, files: Vec::new(), wide_from: u32::MAX.into() }
    }

    /// Begins a file of that many bytes.
    pub(crate) fn file(&mut self, name: &str, bytes: u64) -> io::Result<Entry<'_, 'a>> {
        let (offset, is_wide) = (self.at, bytes >= self.wide_from);
        let mut header = Vec::new();
        header.extend(LOCAL);
        header.extend(version(is_wide).to_le_bytes());
        header.extend(common());
        // Checksum and sizes follow behind the file.
        header.extend(0u32.to_le_bytes());
        let size = if is_wide { u32::MAX } else { 0 };
        header.extend([size, size].into_iter().flat_map(u32::to_le_bytes));
        let extra = if is_wide { extra(&[0, 0]) } else { Vec::new() };
        header.extend((name.len() as u16).to_le_bytes());
        header.extend((extra.len() as u16).to_le_bytes());
        header.extend(name.as_bytes());
        header.extend(extra);
        self.put(&header)?;
        Ok(Entry { zip: self, name: name.to_owned(), offset, bytes, is_wide, crc: Hasher::new(), written: 0 })
    }

    /// Writes the list of all files, which ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let from = self.at;
        let files = std::mem::take(&mut self.files);
        for file in &files {
            let is_wide = file.bytes >= self.wide_from || file.offset >= self.wide_from;
            let narrow = |value: u64| if is_wide { u32::MAX } else { value as u32 };
            let mut header = Vec::new();
            header.extend(CENTRAL);
            header.extend((MADE_ON_UNIX | version(true)).to_le_bytes());
            header.extend(version(is_wide).to_le_bytes());
            header.extend(common());
            header.extend(file.crc.to_le_bytes());
            header.extend([narrow(file.bytes); 2].into_iter().flat_map(u32::to_le_bytes));
            let extra = if is_wide { extra(&[file.bytes, file.bytes, file.offset]) } else { Vec::new() };
            header.extend((file.name.len() as u16).to_le_bytes());
            header.extend((extra.len() as u16).to_le_bytes());
            // No comment, the first disk, no internal attributes.
            header.extend([0; 6]);
            header.extend((REGULAR_FILE << 16).to_le_bytes());
            header.extend(narrow(file.offset).to_le_bytes());
            header.extend(file.name.as_bytes());
            header.extend(extra);
            self.put(&header)?;
        }
        self.put_end(from, files.len() as u64)
    }

    fn put_end(&mut self, from: u64, files: u64) -> io::Result<()> {
        let bytes = self.at - from;
        let is_wide = self.at >= self.wide_from || files >= u64::from(u16::MAX);
        let mut end = Vec::new();
        if is_wide {
            let at = self.at;
            end.extend(WIDE_END);
            end.extend(44u64.to_le_bytes());
            end.extend((MADE_ON_UNIX | version(true)).to_le_bytes());
            end.extend(version(true).to_le_bytes());
            end.extend([0; 8]);
            end.extend([files, files, bytes, from].into_iter().flat_map(u64::to_le_bytes));
            end.extend(WIDE_LOCATOR);
            end.extend(0u32.to_le_bytes());
            end.extend(at.to_le_bytes());
            end.extend(1u32.to_le_bytes());
        }
        end.extend(END);
        end.extend([0; 4]);
        let files = if is_wide { u16::MAX } else { files as u16 };
        end.extend([files, files].into_iter().flat_map(u16::to_le_bytes));
        let narrow = |value: u64| if is_wide { u32::MAX } else { value as u32 };
        end.extend([narrow(bytes), narrow(from)].into_iter().flat_map(u32::to_le_bytes));
        end.extend(0u16.to_le_bytes());
        self.put(&end)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl Entry<'_, '_> {
    /// Writes further bytes of the file.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.written += bytes.len() as u64;
        self.zip.put(bytes)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If the output accepts no more bytes, or the file does not have the number of bytes with which it was begun.
    pub(crate) fn end(self) -> io::Result<()> {
        let Self { zip, name, offset, bytes, is_wide, crc, written } = self;
        if written != bytes {
            let what = format!("{name} has {written} bytes, {bytes} were announced");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let crc = crc.finalize();
        let mut descriptor = Vec::from(DESCRIPTOR);
        descriptor.extend(crc.to_le_bytes());
        match is_wide {
            true => descriptor.extend([bytes; 2].into_iter().flat_map(u64::to_le_bytes)),
            false => descriptor.extend([bytes as u32; 2].into_iter().flat_map(u32::to_le_bytes)),
        }
        zip.put(&descriptor)?;
        zip.files.push(File { name, offset, bytes, crc });
        Ok(())
    }
}

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const WIDE_END: [u8; 4] = *b"PK\x06\x06";
const WIDE_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const END: [u8; 4] = *b"PK\x05\x06";

/// Returns the version of the format that a reader needs: 4.5 has ZIP64.
const fn version(is_wide: bool) -> u16 {
    if is_wide { 45 } else { 20 }
}

const MADE_ON_UNIX: u16 = 3 << 8;
/// The file's mode on Unix: a file that its owner writes and all read.
const REGULAR_FILE: u32 = 0o100_644;

/// Returns the fields that all files share: flags (the checksum follows, names are UTF-8), the method (stored), and
/// 1980-01-01, so that equal episodes give equal files.
const fn common() -> [u8; 8] {
    [0x08, 0x08, 0, 0, 0, 0, 0x21, 0]
}

/// Returns ZIP64's field for these numbers.
fn extra(numbers: &[u64]) -> Vec<u8> {
    let mut extra = vec![1, 0];
    extra.extend((8 * numbers.len() as u16).to_le_bytes());
    extra.extend(numbers.iter().copied().flat_map(u64::to_le_bytes));
    extra
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Symptoms of wrong fields are those that other readers have: Python's checks lengths and checksums of all files.
    #[test]
    fn an_archive_is_read_by_others_also_with_the_fields_of_very_large_ones() {
        for wide_from in [u64::from(u32::MAX), 40, 0] {
            let mut bytes = Vec::new();
            let mut zip = Zip { wide_from, ..Zip::new(&mut bytes) };
            for (name, text) in [("a.txt", "some bytes"), ("folder/\u{fc}.txt", ""), ("c", "more")] {
                let mut file = zip.file(name, text.len() as u64).unwrap();
                file.put(text.as_bytes()).unwrap();
                file.end().unwrap();
            }
            zip.finish().unwrap();
            let archive = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(archive.path(), &bytes).unwrap();
            let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\nprint([(n, z.read(n).decode()) for n in z.namelist()])";
            let read = Command::new("python3").args(["-c", script]).arg(archive.path()).output();
            let Ok(read) = read else {
                // Past what catches the output of tests that pass.
                let _said = io::stderr()
                    .write_all(b"reading an archive by Python: skipped, because there is no python3\n");
                return;
            };
            let wanted = "[('a.txt', 'some bytes'), ('folder/\u{fc}.txt', ''), ('c', 'more')]";
            let (shown, said) =
                (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
            assert_eq!(shown.trim_end(), wanted, "{wide_from}: {said}");
        }
    }

    #[test]
    fn a_file_of_another_length_than_announced_is_an_error() {
        let mut bytes = Vec::new();
        let mut zip = Zip::new(&mut bytes);
        let mut file = zip.file("a", 3).unwrap();
        file.put(b"four").unwrap();
        assert_eq!(file.end().unwrap_err().to_string(), "a has 4 bytes, 3 were announced");
    }
}
