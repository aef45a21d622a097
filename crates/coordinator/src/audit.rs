//! The audit of a coordinator: a line for each change that somebody asks for, before it is done.
//!
//! ```text
//! DATA/audit/audit.jsonl      the newest lines, one JSON object each
//! DATA/audit/audit.1.jsonl    the file before, and so on up to audit.7.jsonl; then the oldest lines go
//! DATA/audit/lock             held while a line is written: commands on the coordinator's machine write here too
//! ```
//!
//! A line is on the disk when [`AuditLog::write`] returns. A line that a crash has torn is passed over by readers, and the
//! next one begins on a line of its own.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rollhouse_core::lock_refused;
use rollhouse_wire::limits::MAX_AUDIT_LINES;
use rollhouse_wire::{AuditLine, AuditPage, AuditQuery};

/// A change that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedChange {
    /// Who asks: role and name of a peer, or the user of the machine.
    pub by: String,
    /// The address from which a peer asks; empty on the machine itself.
    pub from: String,
    /// The kind of change.
    pub action: &'static str,
    /// What it changes.
    pub subject: String,
}

/// The audit in a coordinator's folder.
#[derive(Debug)]
pub struct AuditLog {
    dir: PathBuf,
    file_bytes: u64,
    lines: AtomicU64,
    failures: AtomicU64,
}

/// What was written to an audit since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditCounts {
    /// Number of lines.
    pub lines: u64,
    /// Number of lines that could not be written, whose changes were refused.
    pub failures: u64,
}

impl AuditLog {
    /// Makes the audit of the coordinator whose folder is `data`. Nothing is written yet.
    pub fn of(data: &Path) -> Self {
        Self::with_file_bytes(data, FILE_BYTES)
    }

    fn with_file_bytes(data: &Path, file_bytes: u64) -> Self {
        let (lines, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { dir: data.join(AUDIT), file_bytes, lines, failures }
    }

    /// Writes a line about a change, with texts of at most 1,024 bytes. It is durable on return. Waits for other processes
    /// that write; blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails: the change must not be done then.
    pub fn write(&self, change: AuditedChange) -> io::Result<()> {
        let written = self.append(change);
        let count = if written.is_ok() { &self.lines } else { &self.failures };
        count.fetch_add(1, Ordering::Relaxed);
        written
    }

    /// Returns what was written by this process.
    pub fn counts(&self) -> AuditCounts {
        AuditCounts {
            lines: self.lines.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Reads the newest lines, at most so many, the oldest of them first. Blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails. An audit that is not there has no lines.
    pub fn newest(&self, most: usize) -> io::Result<Vec<AuditLine>> {
        self.newest_before(u64::MAX, most)
    }

    /// Reads a page of at most [`MAX_AUDIT_LINES`] lines. Blocks for the disk, and has one file in memory at a time.
    ///
    /// # Errors
    /// Those of [`AuditLog::newest`].
    pub fn page(&self, query: AuditQuery) -> io::Result<AuditPage> {
        let most = (query.limit as usize).min(MAX_AUDIT_LINES);
        let mut lines = self.newest_before(query.before.unwrap_or(u64::MAX), most + 1)?;
        let more = lines.len() > most;
        if more {
            lines.remove(0);
        }
        Ok(AuditPage { lines, more })
    }

    fn newest_before(&self, before: u64, most: usize) -> io::Result<Vec<AuditLine>> {
        let (mut newest, mut before): (Vec<AuditLine>, u64) = (Vec::new(), before);
        for number in 0..FILES {
            let text = match fs::read(self.path(number)) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            for line in text.lines().rev().filter_map(|line| serde_json::from_str::<AuditLine>(line).ok()) {
                if newest.len() >= most {
                    break;
                }
                // A file that another process has put back meanwhile is read twice.
                if line.number < before {
                    before = line.number;
                    newest.push(line);
                }
            }
        }
        newest.reverse();
        Ok(newest)
    }

    fn append(&self, change: AuditedChange) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let lock = private().truncate(false).open(self.dir.join(LOCK))?;
        lock.lock().map_err(lock_refused)?;
        let number = self.newest(1)?.last().map_or(0, |line| line.number) + 1;
        let AuditedChange { by, from, action, subject } = change;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let (by, subject) = (cut(by), cut(subject));
        let line = AuditLine { number, at_ms, by, from, action: action.to_owned(), subject };
        let mut text = serde_json::to_vec(&line).map_err(io::Error::other)?;
        text.push(b'\n');
        let mut file = self.current(text.len() as u64)?;
        if !ends_a_line(&mut file)? {
            text.insert(0, b'\n');
        }
        file.seek(SeekFrom::End(0))?;
        file.write_all(&text)?;
        file.sync_data()
    }

    /// Opens the file that has room for so many bytes more; the oldest file goes when another one is begun.
    fn current(&self, bytes: u64) -> io::Result<File> {
        let path = self.path(0);
        let length = match fs::metadata(&path) {
            Ok(known) => Some(known.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if length.is_some_and(|length| length > 0 && length + bytes > self.file_bytes) {
            for number in (0..FILES - 1).rev() {
                match fs::rename(self.path(number), self.path(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        let file = private().read(true).truncate(false).open(&path)?;
        if length.is_none_or(|length| length + bytes > self.file_bytes) {
            File::open(&self.dir)?.sync_all()?;
            // The folder itself, if it is new.
            self.dir.parent().map_or(Ok(()), |data| File::open(data)?.sync_all())?;
        }
        Ok(file)
    }

    fn path(&self, number: usize) -> PathBuf {
        let name = if number == 0 { "audit.jsonl".to_owned() } else { format!("audit.{number}.jsonl") };
        self.dir.join(name)
    }
}

/// Returns whether a file is empty or ends with a line feed.
fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).mode(0o600);
    options
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

const AUDIT: &str = "audit";
const LOCK: &str = "lock";
/// Number of files that are kept, the newest among them.
const FILES: usize = 8;
/// Bytes at which a file is closed and the next one begun.
const FILE_BYTES: u64 = 8 << 20;
/// Bytes of a text in a line.
const MAX_TEXT_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(subject: &str) -> AuditedChange {
        let (by, subject) = ("admin `ops`".to_owned(), subject.to_owned());
        AuditedChange { by, from: String::new(), action: "drain", subject }
    }

    fn subjects(log: &AuditLog, most: usize) -> Vec<String> {
        log.newest(most).unwrap().into_iter().map(|line| line.subject).collect()
    }

    #[test]
    fn lines_are_read_in_the_order_in_which_they_were_written_also_around_a_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::of(folder.path());
        assert_eq!(subjects(&log, 10), Vec::<String>::new());
        log.write(line("a")).unwrap();
        log.write(line("b")).unwrap();
        let mut torn = OpenOptions::new().append(true).open(log.path(0)).unwrap();
        torn.write_all(b"{\"at_ms\":1,\"by\":\"adm").unwrap();
        // Another process writes too.
        AuditLog::of(folder.path()).write(line("c")).unwrap();
        assert_eq!(subjects(&log, 10), ["a", "b", "c"]);
        assert_eq!(subjects(&log, 2), ["b", "c"]);
        assert_eq!(log.counts(), AuditCounts { lines: 2, failures: 0 });
    }

    #[test]
    fn files_have_a_bound_in_size_and_number_and_the_oldest_lines_go() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::with_file_bytes(folder.path(), 1_000);
        (0..200).for_each(|number| log.write(line(&number.to_string())).unwrap());
        let files: Vec<u64> = fs::read_dir(&log.dir)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .filter(|length| *length > 0)
            .collect();
        assert!(files.len() == FILES && files.iter().all(|length| *length <= 1_000), "{files:?}");
        let left = subjects(&log, 1_000);
        assert!(left.len() > 50 && left.last().unwrap() == "199", "{}", left.len());
        assert!(left.is_sorted_by_key(|number| number.parse::<u32>().unwrap()));
    }

    #[test]
    fn pages_that_follow_one_another_have_every_line_once_also_when_lines_come_between() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::with_file_bytes(folder.path(), 20_000);
        let all = 2 * MAX_AUDIT_LINES + 7;
        (1..=all).for_each(|number| log.write(line(&number.to_string())).unwrap());
        let (mut numbers, mut before) = (Vec::new(), None);
        loop {
            let page = log.page(AuditQuery { before, limit: u32::MAX }).unwrap();
            assert!(page.lines.len() <= MAX_AUDIT_LINES && page.lines.is_sorted_by_key(|line| line.number));
            numbers.extend(page.lines.iter().rev().map(|line| line.number));
            before = page.lines.first().map(|line| line.number);
            log.write(line("later")).unwrap();
            if !page.more {
                break;
            }
        }
        assert_eq!(numbers, (1..=all as u64).rev().collect::<Vec<_>>());
        let few = log.page(AuditQuery { before: Some(3), limit: 1 }).unwrap();
        assert_eq!((few.lines[0].number, few.lines.len(), few.more), (2, 1, true));
    }

    #[test]
    fn a_line_that_cannot_be_written_is_an_error_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder has to be.
        fs::write(folder.path().join(AUDIT), b"").unwrap();
        let log = AuditLog::of(folder.path());
        log.write(line("a")).unwrap_err();
        assert_eq!(log.counts(), AuditCounts { lines: 0, failures: 1 });
    }

    #[test]
    fn a_text_is_cut_where_a_character_ends() {
        let long = cut("é".repeat(MAX_TEXT_BYTES));
        assert!(long.len() <= MAX_TEXT_BYTES && long.chars().all(|letter| letter == 'é'));
    }
}
