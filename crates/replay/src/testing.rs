//! Tools for tests: a disk in memory that fails on demand, and a recorder whose writer is driven in virtual time.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::Clock;
use crate::disk::{Disk, DiskFile, DiskRoom, Locking};
use crate::stored::lock::OpenError;
use crate::write::recorder::Recorder;
use crate::write::recorder_config::RecorderConfig;
use crate::write::writer::{Command, Round, Writer};

/// A disk in memory whose operations fail as told. Clones share the files.
#[derive(Debug, Clone, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<DiskState>>,
    /// Signal for when the faults change: syncs that stall wait for it.
    changed: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct DiskState {
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
    /// The file that this one was renamed over: while the name is not durable, a power cut brings it back.
    replaced: Option<Arc<Mutex<Bytes>>>,
}

#[derive(Debug, Default, Clone)]
struct Bytes {
    data: Vec<u8>,
    synced: usize,
    /// Ranges that a failed sync left neither on the disk nor waiting to get there: the system takes them for clean.
    forgotten: Vec<std::ops::Range<usize>>,
}

/// The faults of a [`FaultyDisk`]: which operations go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Number of the operation that fails, counted from 1 over all operations that change something.
    pub fail_at: Option<u64>,
    /// Whether all operations after it fail too.
    pub fail_on: bool,
    /// Whether it panics instead, as a bug in file handling would.
    pub panics: bool,
    /// Most bytes that an append writes at once.
    pub short_writes: Option<usize>,
    /// Most bytes that all files together hold; a write that would exceed it writes what fits, and the next one fails
    /// as on a full disk. So does making a file.
    pub capacity: Option<u64>,
    /// Whether syncs of files fail. What they should have made durable is lost with the power, and no later sync brings
    /// it to the disk, as on Linux.
    pub fail_syncs: bool,
    /// Whether syncs of files stall; they return once this is set to false.
    pub stall_syncs: bool,
    /// Whether all operations that change something fail, as after a remount on an error.
    pub read_only: bool,
    /// Text that a path must contain to meet the faults above; `None` for all paths.
    pub only: Option<&'static str>,
    /// Text of paths whose syncs of files return without having done anything, as in a program that forgets them.
    pub pretend_syncs: Option<&'static str>,
    /// Text of paths whose syncs of folders return without having done anything.
    pub pretend_dir_syncs: Option<&'static str>,
}

impl Faults {
    fn meet(&self, path: &Path) -> bool {
        self.only.is_none_or(|part| path.to_string_lossy().contains(part))
    }
}

impl FaultyDisk {
    /// Makes an empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock_state().faults = faults;
        self.changed.notify_all();
    }

    /// Flips one bit of a file.
    ///
    /// # Panics
    /// If the file is not there or ends before that byte.
    pub fn flip(&self, path: &Path, byte: usize, bit: u32) {
        let state = self.lock_state();
        state.files[path].lock().data[byte] ^= 1 << (bit % 8);
    }

    /// Returns whether a file and its name survive a power cut with at least `len` bytes.
    pub fn is_durable(&self, path: &Path, len: u64) -> bool {
        let state = self.lock_state();
        state.files.get(path).is_some_and(|file| {
            let bytes = file.lock();
            file.durable_name && bytes.synced as u64 >= len && bytes.forgotten.is_empty()
        })
    }

    /// Returns the bytes of all files.
    pub fn used(&self) -> u64 {
        self.lock_state().used()
    }

    /// Returns the number of operations so far that change something.
    pub fn operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// Returns the disk that a power cut would leave: names that were made durable, contents up to the last sync, and
    /// of the rest of each file `tail(path, unsynced bytes)` bytes. It has no locks and no faults.
    pub fn after_power_cut(&self, tail: impl Fn(&Path, usize) -> usize) -> Self {
        let state = self.lock_state();
        let mut files = BTreeMap::new();
        for (path, file) in &state.files {
            let durable = if file.durable_name { Some(&file.bytes) } else { file.replaced.as_ref() };
            let Some(bytes) = durable else { continue };
            let bytes = bytes.lock();
            let kept = bytes.synced
                + tail(path, bytes.data.len() - bytes.synced).min(bytes.data.len() - bytes.synced);
            let mut data = bytes.data[..kept].to_vec();
            for gap in &bytes.forgotten {
                let end = gap.end.min(kept);
                data[gap.start.min(end)..end].fill(0);
            }
            let bytes = Arc::new(Mutex::new(Bytes { synced: data.len(), data, ..Bytes::default() }));
            files.insert(path.clone(), MemoryFile { bytes, durable_name: true, replaced: None });
        }
        let dirs = state.dirs.clone();
        let state = DiskState { files, dirs, ..DiskState::default() };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    /// Returns a file's bytes; `None` if there is no such file.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.lock_state().files.get(path).map(|file| file.lock().data.clone())
    }

    /// Replaces a file's contents by these bytes, durably.
    pub fn write(&self, path: &Path, data: Vec<u8>) {
        let bytes = Arc::new(Mutex::new(Bytes { synced: data.len(), data, ..Bytes::default() }));
        self.lock_state().files.insert(path.into(), MemoryFile { bytes, durable_name: true, replaced: None });
    }

    /// Returns the paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock_state().files.keys().cloned().collect()
    }

    fn lock_state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock()
    }

    /// Counts an operation that changes something at `path`; fails if it is its turn.
    fn operate(&self, path: &Path) -> io::Result<Faults> {
        let mut state = self.lock_state();
        state.operations += 1;
        let (now, faults) = (state.operations, state.faults);
        let Faults { pretend_syncs, pretend_dir_syncs, .. } = faults;
        if !faults.meet(path) {
            return Ok(Faults { pretend_syncs, pretend_dir_syncs, ..Faults::default() });
        }
        match faults.fail_at {
            Some(at) if now == at || faults.fail_on && now > at => {
                drop(state);
                assert!(!faults.panics, "injected panic at operation {now}");
                Err(io::Error::other(format!("injected fault at operation {now}")))
            }
            _ if faults.read_only => Err(ErrorKind::ReadOnlyFilesystem.into()),
            _ => Ok(faults),
        }
    }

    fn file(&self, path: &Path) -> io::Result<MemoryFile> {
        self.lock_state().files.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Disk for FaultyDisk {
    fn room(&self, _dir: &Path) -> Option<DiskRoom> {
        let total = self.lock_state().faults.capacity?;
        Some(DiskRoom { free: total.saturating_sub(self.used()), total })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if self.lock_state().dirs.contains(path) {
            return Ok(());
        }
        self.operate(path)?;
        self.lock_state().dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let faults = self.operate(path)?;
        let mut state = self.lock_state();
        if state.files.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if faults.capacity.is_some_and(|capacity| state.used() >= capacity) {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = MemoryFile::default();
        state.files.insert(path.into(), file.clone());
        Ok(Box::new(Handle { disk: self.clone(), file, path: path.into() }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.operate(path)?;
        Ok(Box::new(Handle { disk: self.clone(), file: self.file(path)?, path: path.into() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(Handle { disk: self.clone(), file: self.file(path)?, path: path.into() }))
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
        self.operate(to)?;
        let mut state = self.lock_state();
        let file = state.files.remove(from).ok_or(ErrorKind::NotFound)?;
        let replaced = state.files.get(to).and_then(|old| match old.durable_name {
            true => Some(old.bytes.clone()),
            false => old.replaced.clone(),
        });
        state.files.insert(to.into(), MemoryFile { durable_name: false, replaced, ..file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.lock_state().files.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        self.operate(path)?;
        let removed = self.lock_state().files.remove(path);
        removed.map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.operate(path)?;
        self.lock_state().dirs.remove(path);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let faults = self.operate(path)?;
        if pretends(faults.pretend_dir_syncs, path) {
            return Ok(());
        }
        let mut state = self.lock_state();
        for (_, file) in state.files.iter_mut().filter(|(file, _)| file.parent() == Some(path)) {
            file.durable_name = true;
            file.replaced = None;
        }
        Ok(())
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Locking> {
        self.operate(path)?;
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
        self.bytes.lock()
    }
}

fn pretends(part: Option<&str>, path: &Path) -> bool {
    part.is_some_and(|part| path.to_string_lossy().contains(part))
}

impl DiskState {
    fn used(&self) -> u64 {
        self.files.values().map(|file| file.lock().data.len() as u64).sum()
    }
}

#[derive(Debug)]
struct Handle {
    disk: FaultyDisk,
    file: MemoryFile,
    path: PathBuf,
}

impl DiskFile for Handle {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let faults = self.disk.operate(&self.path)?;
        let mut len = bytes.len().min(faults.short_writes.unwrap_or(usize::MAX));
        if let Some(capacity) = faults.capacity {
            let room = usize::try_from(capacity.saturating_sub(self.disk.used())).unwrap_or(usize::MAX);
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
        let faults = self.disk.operate(&self.path)?;
        if faults.stall_syncs {
            let mut state = self.disk.lock_state();
            self.disk.changed.wait_while(&mut state, |state| state.faults.stall_syncs);
        }
        if pretends(faults.pretend_syncs, &self.path) {
            return Ok(());
        }
        let mut bytes = self.file.lock();
        let end = bytes.data.len();
        if faults.fail_syncs {
            let gap = bytes.synced..end;
            bytes.forgotten.extend((!gap.is_empty()).then_some(gap));
            bytes.synced = end;
            return Err(io::Error::other("injected fault of a sync"));
        }
        bytes.synced = end;
        Ok(())
    }
}

/// A recorder without threads: its owner sets the time and decides when its writer does a round. Calls of [`Recorder`]
/// that wait for the writer would wait for ever; those here take their place. Time stands still within a call, and
/// syncs are done by the writer itself.
#[derive(Debug)]
pub struct DrivenRecorder {
    recorder: Arc<Recorder>,
    writer: Writer,
    ahead_ms: i64,
}

impl DrivenRecorder {
    /// Opens a folder at `now`, on a clock of the caller's that only goes forward. `session` replaces the number that
    /// recorders draw; it has to be another one each time.
    ///
    /// # Errors
    /// As [`Recorder::open`].
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: RecorderConfig,
        session: u32,
        now: Duration,
    ) -> Result<Self, OpenError> {
        let (recorder, writer) = Recorder::with_writer(disk, dir, config, session, Clock::Driven(now, 0))?;
        Ok(Self { recorder: Arc::new(recorder), writer, ahead_ms: 0 })
    }

    /// Returns the recorder, with which runs begin.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Sets the wall clock so many milliseconds ahead of the driven one, or behind it if they are negative.
    pub const fn set_wall(&mut self, ahead_ms: i64) {
        self.ahead_ms = ahead_ms;
    }

    /// Lets the writer do what it has to do at `now`.
    pub fn turn(&mut self, now: Duration) {
        while self.writer.round_at(now, self.ahead_ms) == Round::Worked {}
    }

    /// Codes and counts everything that was handed over.
    pub fn write_out(&mut self, now: Duration) {
        self.ask(now, Command::WriteOut);
    }

    /// Makes everything durable that was handed over.
    pub fn sync(&mut self, now: Duration) {
        self.ask(now, Command::Sync);
    }

    /// Seals the segment that is being written.
    pub fn seal(&mut self, now: Duration) {
        self.ask(now, Command::Seal);
    }

    fn ask(&mut self, now: Duration, command: impl FnOnce(SyncSender<()>) -> Command) {
        // What begins a run may wait in front of it.
        self.turn(now);
        let (done, _answered) = sync_channel(1);
        // The writer is here, so its end of the channel is.
        let _sent = self.recorder.send(command(done));
        self.turn(now);
    }
}
