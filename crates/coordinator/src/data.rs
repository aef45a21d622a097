//! The coordinator's folder: its lock and its term, beside the store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rollhouse_replay::{Disk, Locking};

/// A coordinator's folder, held by this process until dropped.
#[derive(Debug)]
pub struct DataFolder {
    term: u64,
    _lock: Box<dyn Send + Sync + fmt::Debug>,
}

impl DataFolder {
    /// Takes the folder, which is made if it is not there, and raises the term. The new term is on the disk when this
    /// returns: after a crash at any point the next term is greater than any that was ever used. Blocks for the disk.
    ///
    /// # Errors
    /// See [`DataError`]. The term may have been raised all the same.
    pub fn open(disk: &dyn Disk, dir: &Path) -> Result<Self, DataError> {
        Self::open_from(disk, dir, 0)
    }

    /// Takes the folder as [`DataFolder::open`] does, with a term of at least `least`, for a folder whose terms were
    /// lost or are behind.
    ///
    /// # Errors
    /// Those of [`DataFolder::open`]; [`DataError::Term`] if `least` is more than [`MAX_TERM`].
    pub fn open_from(disk: &dyn Disk, dir: &Path, least: u64) -> Result<Self, DataError> {
        if least > MAX_TERM {
            return Err(DataError::Term(least));
        }
        let failed = |operation: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| DataError::Disk { operation, path, source }
        };
        disk.create_dir(dir).map_err(failed("create", dir))?;
        let lock = dir.join(LOCK);
        let note = format!("process {}", std::process::id());
        let held = match disk.lock(&lock, &note).map_err(failed("lock", &lock))? {
            Locking::Taken(held) => held,
            Locking::Held(holder) => return Err(DataError::Held { dir: dir.to_owned(), holder }),
        };
        let names = disk.list(dir).map_err(failed("list", dir))?;
        let before: Vec<u64> = names.iter().filter_map(|name| term_of(name)).collect();
        let term = before.iter().max().map_or(1, |last| last + 1).max(least);
        let path = dir.join(format!("{TERM}{term}"));
        disk.create(&path).map_err(failed("create", &path))?;
        disk.sync_dir(dir).map_err(failed("sync", dir))?;
        for term in before {
            // One that stays is smaller and does no harm.
            let _gone = disk.remove(&dir.join(format!("{TERM}{term}")));
        }
        Ok(Self { term, _lock: held })
    }

    /// Returns the term, which is greater than that of every coordinator that had the folder before.
    pub const fn term(&self) -> u64 {
        self.term
    }
}

/// Returns whether a coordinator learns from nodes that there were greater terms than its own. It does if its folder is
/// almost new, so that it may stand in for one that was lost, or if its operator or a node has just raised it to a `least`
/// term. Nodes refuse any other, because it may be a coordinator that others took over from.
pub(crate) const fn learns_terms(term: u64, least: u64) -> bool {
    term <= YOUNG || term == least
}

/// Returns the term that a file stands for. It has few enough digits that the next term is a number, too.
fn term_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(TERM)?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && digits.len() <= MAX_TERM_DIGITS;
    plain.then(|| digits.parse().ok()).flatten()
}

/// The reason why a coordinator cannot use its folder.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The term that is asked for is too great.
    #[error("term {0} is asked for, at most {MAX_TERM} allowed")]
    Term(u64),
    /// Another process has the folder.
    #[error("{dir} belongs to a coordinator that runs ({holder})", dir = .dir.display())]
    Held {
        dir: PathBuf,
        /// The other process, in its own words.
        holder: String,
    },
    /// A file operation failed.
    #[error("cannot {operation} {path}", path = .path.display())]
    Disk { operation: &'static str, path: PathBuf, source: io::Error },
}

const LOCK: &str = "coordinator.lock";
/// The name of an empty file begins with this and goes on with the term: a file without contents cannot be torn.
const TERM: &str = "term-";
const MAX_TERM_DIGITS: usize = 18;
/// The greatest term that is accepted from outside: enough terms are left for all starts after it.
pub const MAX_TERM: u64 = 1 << 48;
/// Number of starts for which a folder counts as new.
const YOUNG: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_replay::testing::{Faults, FaultyDisk};

    const DIR: &str = "/data";

    fn raise(disk: &FaultyDisk) -> Result<u64, DataError> {
        DataFolder::open(disk, Path::new(DIR)).map(|folder| folder.term())
    }

    #[test]
    fn every_start_has_a_greater_term() {
        let disk = FaultyDisk::new();
        assert_eq!([1, 2, 3].map(|_| raise(&disk).unwrap()), [1, 2, 3]);
    }

    #[test]
    fn a_second_coordinator_on_the_folder_is_refused_while_the_first_lives() {
        let disk = FaultyDisk::new();
        let first = DataFolder::open(&disk, Path::new(DIR)).unwrap();
        assert!(matches!(raise(&disk), Err(DataError::Held { .. })));
        drop(first);
        assert_eq!(raise(&disk).unwrap(), 2);
    }

    #[test]
    fn no_term_is_used_twice_whatever_fails_and_whenever_the_power_goes() {
        for fail_at in 1..20 {
            let mut disk = FaultyDisk::new();
            let mut used = vec![raise(&disk).unwrap()];
            disk.set_faults(Faults {
                fail_at: Some(disk.operations() + fail_at),
                fail_on: true,
                ..Faults::default()
            });
            used.extend(raise(&disk));
            disk = disk.after_power_cut(|_, unsynced| unsynced / 2);
            used.push(raise(&disk).unwrap());
            assert!(used.is_sorted_by(|a, b| a < b), "{used:?} with a fault at operation {fail_at}");
        }
    }

    #[test]
    fn a_term_that_is_asked_for_is_a_floor_and_has_a_bound() {
        let disk = FaultyDisk::new();
        let from = |least| DataFolder::open_from(&disk, Path::new(DIR), least).map(|folder| folder.term());
        assert_eq!([from(0).unwrap(), from(7).unwrap(), from(7).unwrap()], [1, 7, 8]);
        assert!(matches!(from(MAX_TERM + 1), Err(DataError::Term(_))));
        assert_eq!([from(MAX_TERM).unwrap(), from(0).unwrap()], [MAX_TERM, MAX_TERM + 1]);
    }

    #[test]
    fn only_a_folder_that_is_as_good_as_new_or_was_just_raised_learns_of_greater_terms() {
        assert!(learns_terms(1, 0) && learns_terms(YOUNG, 0) && learns_terms(1000, 1000));
        // One that an earlier start has raised goes by its folder again, although the setting stays.
        assert!(!learns_terms(YOUNG + 1, 0) && !learns_terms(1001, 1000));
    }

    #[test]
    fn other_files_of_the_folder_are_no_terms() {
        let disk = FaultyDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        for name in ["term-", "term-x", "term--1", "term-9999999999999999999", "tokens.json", "term-41"] {
            disk.create(&Path::new(DIR).join(name)).unwrap();
        }
        assert_eq!(raise(&disk).unwrap(), 42);
    }
}
