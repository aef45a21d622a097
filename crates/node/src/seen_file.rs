//! The file in which a node keeps the latest coordinator that it has seen, so that it refuses older ones after its own
//! restart too. A node that cannot read or write it goes on: it refuses them for as long as it runs.

use std::io;
use std::path::Path;

use rollhouse_replay::Disk;
use rollhouse_wire::SeenTerm;

/// Reads the latest coordinator that the node of that folder has seen; `None` if none is kept that can be read. Blocks
/// for the disk.
pub fn read_seen(disk: &dyn Disk, dir: &Path) -> Option<SeenTerm> {
    let file = disk.open(&dir.join(FILE)).ok()?;
    let length = usize::try_from(file.len().ok()?).ok().filter(|&bytes| bytes <= MAX_BYTES)?;
    let (mut text, mut at) = (vec![0; length], 0);
    while at < length {
        at += file.read_at(&mut text[at..], at as u64).ok().filter(|&read| read > 0)?;
    }
    let text = std::str::from_utf8(&text).ok()?.strip_suffix('\n')?;
    let (term, boot) = text.split_once(' ')?;
    Some(SeenTerm { term: term.parse().ok()?, boot: boot.parse().ok()? })
}

/// Keeps that coordinator in place of the earlier one; it is on the disk when this returns. Blocks for the disk.
///
/// # Errors
/// The error of the operating system. The earlier one is kept then, or none.
pub fn keep_seen(seen: SeenTerm, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let (path, new) = (dir.join(FILE), dir.join(NEW));
    disk.create_dir(dir)?;
    if let Err(error) = disk.remove(&new)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let file = disk.create(&new)?;
    file.append_all(format!("{} {}\n", seen.term, seen.boot).as_bytes())?;
    file.sync_data()?;
    disk.rename(&new, &path)?;
    disk.sync_dir(dir)
}

/// The term, a space, what its coordinator drew, a line feed.
const FILE: &str = "seen-term";
const NEW: &str = "seen-term.new";
/// Two numbers of 20 digits.
const MAX_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_replay::testing::{Faults, FaultyDisk};

    const SEEN: SeenTerm = SeenTerm { term: 41, boot: u64::MAX };

    #[test]
    fn what_was_kept_is_read_after_a_power_cut_whatever_fails_while_the_next_is_kept() {
        let dir = Path::new("/node");
        for fail_at in 0..10 {
            let disk = FaultyDisk::new();
            assert_eq!(read_seen(&disk, dir), None);
            keep_seen(SEEN, &disk, dir).unwrap();
            let next = SeenTerm { term: 42, boot: 7 };
            disk.set_faults(Faults { fail_at: Some(disk.operations() + fail_at), ..Faults::default() });
            let kept = keep_seen(next, &disk, dir);
            let after = read_seen(&disk.after_power_cut(|_, unsynced| unsynced / 2), dir);
            let expected: &[SeenTerm] = if kept.is_ok() { &[next] } else { &[SEEN, next] };
            assert!(after.is_some_and(|seen| expected.contains(&seen)), "{after:?} with fault {fail_at}");
        }
    }

    #[test]
    fn anything_else_in_its_place_counts_as_nothing_seen() {
        for text in ["", "41", "41 7", "41 x\n", "-1 7\n", "41 7\n\n", &"9".repeat(MAX_BYTES + 1)] {
            let disk = FaultyDisk::new();
            disk.create(Path::new("/seen-term")).unwrap().append_all(text.as_bytes()).unwrap();
            assert_eq!(read_seen(&disk, Path::new("/")), None, "{text:?}");
        }
    }
}
