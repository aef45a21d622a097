//! Backup and restore of the coordinator's folder while the cluster works, as docs/operations.md has them.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rollhouse_cli::failure::{Failure, Status};

use super::logged::{COORDINATOR, log_of};
use crate::failed::failed;
use crate::itself;

/// The backup of a cluster's coordinator, and what happens to it on a thread of its own.
pub(super) struct Backups {
    folder: PathBuf,
    /// Whether there is a whole one.
    has_one: bool,
    under_way: Option<(Work, JoinHandle<Result<(), Failure>>)>,
    refusals: Option<Refusals>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    BackUp,
    Restore,
}

/// The log of a restored coordinator, in which refusals of nodes name the term that it needs.
struct Refusals {
    log: PathBuf,
    from: u64,
    look_at: Instant,
    until: Instant,
}

impl Backups {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), has_one: false, under_way: None, refusals: None }
    }

    /// Begins to copy the folder of the coordinator, which may run.
    pub(super) fn back_up(&mut self) {
        self.begin(Work::BackUp, back_up);
    }

    /// Returns whether there is a backup and nothing is under way.
    pub(super) fn can_restore(&mut self) -> bool {
        // A failure is reported in the next turn.
        self.has_one && self.under_way.is_none()
    }

    /// Begins to put the backup in place of the folder of the coordinator, which has ended.
    pub(super) fn restore(&mut self) {
        self.begin(Work::Restore, restore);
    }

    fn begin(&mut self, work: Work, run: fn(&Path) -> Result<(), Failure>) {
        let folder = self.folder.clone();
        self.under_way = Some((work, thread::spawn(move || run(&folder))));
    }

    /// Returns whether a backup has just taken the folder's place. The next one is made after each.
    pub(super) fn has_restored(&mut self) -> Result<bool, Failure> {
        let Some((work, thread)) = self.under_way.take_if(|(_, thread)| thread.is_finished()) else {
            return Ok(false);
        };
        thread.join().map_err(|_| Failure::new(Status::Failed, "a backup panicked"))??;
        self.has_one = true;
        Ok(work == Work::Restore)
    }

    /// Returns whether nothing is under way, and no restored coordinator may have to be started once more.
    pub(super) const fn is_settled(&self) -> bool {
        self.under_way.is_none() && self.refusals.is_none()
    }

    /// Looks into that log, from its end on, for the term that a restored coordinator needs.
    pub(super) fn look_for_refusals(&mut self, log: &Path, now: Instant) -> Result<(), Failure> {
        let from = fs::metadata(log).map_err(failed)?.len();
        let (log, until) = (log.to_owned(), now + REFUSED_WITHIN);
        self.refusals = Some(Refusals { log, from, look_at: now, until });
        Ok(())
    }

    /// Returns the term with which a restored coordinator has to be started once more, when that is known. The next
    /// backup is made when it is not needed any more.
    pub(super) fn least_term(&mut self, now: Instant) -> Result<Option<String>, Failure> {
        let Some(refusals) = self.refusals.as_mut().filter(|refusals| now >= refusals.look_at) else {
            return Ok(None);
        };
        refusals.look_at = now + LOOK_EVERY;
        let mut log = fs::File::open(&refusals.log).map_err(failed)?;
        log.seek(SeekFrom::Start(refusals.from)).map_err(failed)?;
        let mut said = String::new();
        log.read_to_string(&mut said).map_err(failed)?;
        let term = named_term(&said);
        if term.is_some() || now >= refusals.until {
            self.refusals = None;
            if self.under_way.is_none() {
                self.back_up();
            }
        }
        Ok(term)
    }
}

/// Returns the term that a coordinator asks to be started with, if it does.
fn named_term(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("--least-term ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

/// Copies the folder of the coordinator, which may run, in place of an earlier copy. Files come and go while it is copied;
/// `cp` says so, and it is copied once more.
fn back_up(folder: &Path) -> Result<(), Failure> {
    let backup = folder.join(BACKUP);
    let mut copied = Ok(());
    for _ in 0..MOST_COPIES {
        remove(&backup)?;
        copied = copy(&folder.join(COORDINATOR), &backup);
        if copied.is_ok() {
            break;
        }
    }
    copied
}

/// Puts the last backup in place of the folder of the coordinator, which has ended, and takes what was recorded since
/// then into its store from the folder that was there. Blocks until that is done.
fn restore(folder: &Path) -> Result<(), Failure> {
    let (data, lost) = (folder.join(COORDINATOR), folder.join(LOST));
    remove(&lost)?;
    fs::rename(&data, &lost).map_err(failed)?;
    copy(&folder.join(BACKUP), &data)?;
    let (lost_store, store, recordings) = (lost.join(STORE), data.join(STORE), folder.join(RECORDINGS));
    let words = ["store", "export", "--all", "--data"];
    rollhouse(folder, |command| command.args(words).arg(&lost_store).arg("--to").arg(&recordings))?;
    let words = ["store", "import", "--from"];
    rollhouse(folder, |command| command.args(words).arg(&recordings).arg("--data").arg(&store))
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let done = Command::new("cp").arg("-a").args([from, to]).output().map_err(failed)?;
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(()),
        false => Err(Failure::new(Status::Failed, format_args!("cp -a {}: {said}", from.display()))),
    }
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

fn rollhouse(folder: &Path, words: impl FnOnce(&mut Command) -> &mut Command) -> Result<(), Failure> {
    let mut command = itself::command().map_err(failed)?;
    words(&mut command).current_dir(folder).stdin(Stdio::null());
    let done = command.output().map_err(failed)?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    fs::write(log_of(folder, "restore"), &said).map_err(failed)?;
    match done.status.success() {
        true => Ok(()),
        false => Err(Failure::new(Status::Failed, "the backup could not be restored").hint(said)),
    }
}

const BACKUP: &str = "backup";
const LOST: &str = "coordinator-lost";
const STORE: &str = "store";
const RECORDINGS: &str = "recordings";
/// Number of copies after which a folder is not whole for another reason than that it is in use.
const MOST_COPIES: usize = 10;
/// Time within which nodes have reported to a restored coordinator that they have seen a later one: they dial within some seconds.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_term_that_a_restored_coordinator_asks_for_is_read_from_its_log() {
        let refused = "node one has seen term 43: start it with --least-term 44, if no other runs\n";
        assert_eq!(named_term(refused), Some("44".to_owned()));
        assert_eq!(named_term("coordinator, term 42, listens on 127.0.0.1:7600\n"), None);
        assert_eq!(named_term("start it with --least-term "), None);
    }
}
