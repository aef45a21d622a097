//! The children of this process: the workers that it started, and orphans that it got.

use std::collections::BTreeSet;
use std::io;
use std::process::Child;

use parking_lot::{Mutex, RwLock};
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, getpid, set_child_subreaper, waitid, waitpid};

use crate::descendants::all;

/// Makes this process the parent of what its workers have started and whose parents end. It has to call [`reap_orphans`] now
/// and then from here on, as the first process of a container has to in any case. It is for programs that start no other
/// processes than workers: which children are orphans is known by that.
///
/// # Errors
/// If the kernel refuses it.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Reaps children of this process that have ended and that it did not start, and waits for none. Where there are some, it
/// reads a small file of each process that there is.
pub fn reap_orphans() {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, ended), Ok(Some(_))) {
        return;
    }
    // No child is being started and not known yet.
    let _none_starts = STARTING.write();
    let own = std::process::id();
    let ended = all().into_iter().filter(|process| process.is_over && process.parent == own);
    for orphan in ended.filter(|process| !STARTED.lock().contains(&process.id)) {
        // An error means that somebody else has reaped it.
        let _reaped = orphan.pid().map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
}

/// Starts a child by `start`, which is not reaped as an orphan.
pub(crate) fn started(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let _known = STARTING.read();
    let child = start()?;
    STARTED.lock().insert(child.id());
    Ok(child)
}

/// Forgets a child that has been reaped.
pub(crate) fn reaped(child: u32) {
    STARTED.lock().remove(&child);
}

/// Children that were started and not reaped. There is one set of them, as there is one of children.
static STARTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Held for reading while a child is started that is not in [`STARTED`] yet.
static STARTING: RwLock<()> = RwLock::new(());
