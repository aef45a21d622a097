//! A disk for tests: files in memory, and faults on demand.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile, Locking};

/// Files in memory that fail as told. Clones share the files.
#[derive(Debug, Clone, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, MemoryFile>,
    dirs: std::collections::BTreeSet<PathBuf>,
    locks: BTreeMap<PathBuf, Arc<()>>,
    operations: u64,
    faults: Faults,
}

#[derive(Debug, Default, Clone)]
struct MemoryFile {
    bytes: Arc<Mutex<Bytes>>,
    /// Whether the name survives a power cut.
    durable_name: bool,
}

#[derive(Debug, Default, Clone)]
struct Bytes {
    data: Vec<u8>,
    synced: usize,
}

/// Which operations go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The operation of this number fails, counting from 1 over all operations that change something.
    pub fail_at: Option<u64>,
    /// All operations after it fail too.
    pub fail_on: bool,
    /// Appends write at most this much at once.
    pub short_writes: Option<usize>,
    /// All files together hold at most this many bytes; a write that would exceed it writes what fits and the
    /// next one fails as on a full disk.
    pub capacity: Option<u64>,
}

impl FaultyDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock_state().faults = faults;
    }

    /// Operations so far that change something.
    pub fn operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// What a power cut would leave: names made durable, contents up to the last sync, and of the rest of each
    /// file `tail(path, unsynced bytes)` bytes. No locks, no faults.
    pub fn after_power_cut(&self, tail: impl Fn(&Path, usize) -> usize) -> Self {
        let state = self.lock_state();
        let mut files = BTreeMap::new();
        for (path, file) in state.files.iter().filter(|(_, file)| file.durable_name) {
            let bytes = file.lock();
            let kept = bytes.synced
                + tail(path, bytes.data.len() - bytes.synced).min(bytes.data.len() - bytes.synced);
            let data = bytes.data[..kept].to_vec();
            let bytes = Arc::new(Mutex::new(Bytes { synced: data.len(), data }));
            files.insert(path.clone(), MemoryFile { bytes, durable_name: true });
        }
        let dirs = state.dirs.clone();
        Self { state: Arc::new(Mutex::new(State { files, dirs, ..State::default() })) }
    }

    /// A file's bytes.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.lock_state().files.get(path).map(|file| file.lock().data.clone())
    }

    /// Makes a file have these bytes, durably.
    pub fn write(&self, path: &Path, data: Vec<u8>) {
        let bytes = Arc::new(Mutex::new(Bytes { synced: data.len(), data }));
        self.lock_state().files.insert(path.into(), MemoryFile { bytes, durable_name: true });
    }

    /// Every file's path.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock_state().files.keys().cloned().collect()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation that changes something; fails if it is its turn.
    fn operate(&self) -> io::Result<()> {
        let mut state = self.lock_state();
        state.operations += 1;
        let (now, faults) = (state.operations, state.faults);
        match faults.fail_at {
            Some(at) if now == at || faults.fail_on && now > at => {
                Err(io::Error::other(format!("injected fault at operation {now}")))
            }
            _ => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<MemoryFile> {
        self.lock_state().files.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.operate()?;
        self.lock_state().dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.operate()?;
        let mut state = self.lock_state();
        if state.files.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = MemoryFile::default();
        state.files.insert(path.into(), file.clone());
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.operate()?;
        Ok(Box::new(Handle { disk: self.clone(), file: self.file(path)? }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(Handle { disk: self.clone(), file: self.file(path)? }))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.operate()?;
        let file = self.file(path)?;
        let mut bytes = file.lock();
        bytes.data.truncate(len as usize);
        bytes.synced = bytes.data.len();
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.lock_state();
        if !state.dirs.contains(path) {
            return Err(ErrorKind::NotFound.into());
        }
        // What is below a path follows it in the order of paths.
        let below = (Bound::Excluded(path), Bound::Unbounded);
        let files = state
            .files
            .range::<Path, _>(below)
            .map(|(file, _)| file)
            .take_while(|file| file.starts_with(path));
        let dirs = state.dirs.range::<Path, _>(below).take_while(|dir| dir.starts_with(path));
        let files = files.chain(dirs).filter(|file| file.parent() == Some(path));
        Ok(files.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect())
    }

    fn real_dir(&self, path: &Path) -> Option<PathBuf> {
        self.lock_state().dirs.get(path).cloned()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate()?;
        let mut state = self.lock_state();
        let file = state.files.remove(from).ok_or(ErrorKind::NotFound)?;
        state.files.insert(to.into(), MemoryFile { durable_name: false, ..file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate()?;
        let removed = self.lock_state().files.remove(path);
        removed.map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.operate()?;
        self.lock_state().dirs.remove(path);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.operate()?;
        let mut state = self.lock_state();
        for (_, file) in state.files.iter_mut().filter(|(file, _)| file.parent() == Some(path)) {
            file.durable_name = true;
        }
        Ok(())
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Locking> {
        self.operate()?;
        if self.is_locked(path)? {
            let holder = self.read(path).unwrap_or_default();
            return Ok(Locking::Held(String::from_utf8_lossy(&holder).into_owned()));
        }
        self.write(path, note.as_bytes().to_vec());
        let lock = Arc::new(());
        self.lock_state().locks.insert(path.into(), lock.clone());
        Ok(Locking::Taken(Box::new(lock)))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.lock_state().locks.get(path).is_some_and(|lock| Arc::strong_count(lock) > 1))
    }
}

impl MemoryFile {
    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Handle {
    disk: FaultyDisk,
    file: MemoryFile,
}

impl DiskFile for Handle {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.operate()?;
        let faults = self.disk.lock_state().faults;
        let mut len = bytes.len().min(faults.short_writes.unwrap_or(usize::MAX));
        if let Some(capacity) = faults.capacity {
            let files: Vec<MemoryFile> = self.disk.lock_state().files.values().cloned().collect();
            let used: usize = files.iter().map(|file| file.lock().data.len()).sum();
            let room = usize::try_from(capacity).unwrap_or(usize::MAX).saturating_sub(used);
            if room == 0 && len > 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            len = len.min(room);
        }
        self.file.lock().data.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.file.lock();
        let rest = bytes.data.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.lock().data.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.operate()?;
        let mut bytes = self.file.lock();
        bytes.synced = bytes.data.len();
        Ok(())
    }
}
