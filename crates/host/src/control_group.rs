//! The control group of a worker, where this process may make one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A control group (version 2) with one worker and all that it starts. It is removed when it is dropped, once it is empty.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// Makes a group below that of this process; `None` where there are none, or none may be made.
    pub(crate) fn make() -> Option<Self> {
        static BASE: OnceLock<Option<PathBuf>> = OnceLock::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let base = BASE.get_or_init(|| own_group().inspect(|base| remove_left(base))).as_ref()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self { path };
        // Kernels before 5.14 do not have it.
        group.path.join(KILL).exists().then_some(group)
    }

    /// Puts a process into the group, which has started nothing yet.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn take(&self, process: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), process.to_string())
    }

    /// Kills all processes of the group at once.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join(KILL), "1")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let mut left = LEFT.lock();
        left.push(std::mem::take(&mut self.path));
        // What has just been killed may not be gone yet; it is tried again with the next one.
        left.retain(|path| remove(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound));
    }
}

/// Kills this worker of `host` with all of its group, if it has one. Returns if it has none.
pub(crate) fn kill_own_group(host: u32) {
    let Some(own) = own_group() else { return };
    // It may be in that of a worker which its host runs in.
    let its = format!("{PREFIX}{host}-");
    if own.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(its.as_bytes())) {
        let _killed = fs::write(own.join(KILL), "1");
    }
}

/// Returns the folder of this process's group.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(mounted)?;
    let own = Path::new(mount).join(path);
    own.is_dir().then_some(own)
}

/// Returns where a line of the mounts mounts the whole hierarchy of this process's groups.
fn mounted(line: &str) -> Option<&str> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, place) = (fields.next()?, fields.next()?);
    (after.starts_with("cgroup2 ") && root == "/").then_some(place)
}

/// Removes a group that is empty, with those below it that workers' own workers have left.
fn remove(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Removes empty groups that processes left behind which have ended.
fn remove_left(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            // One that is not empty stays.
            let _removed = remove(&entry.path());
        }
    }
}

/// Groups that were not empty when they were to be removed.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

const PREFIX: &str = "rollhouse-worker-";
const KILL: &str = "cgroup.kill";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_where_it_is_mounted_as_a_whole() {
        let line = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
        assert_eq!(mounted(line), Some("/sys/fs/cgroup"));
        assert_eq!(mounted("30 24 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw"), None);
        assert_eq!(mounted("30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"), None);
    }
}
