//! A coordinator's store as a disk that can only be read, so that everything that reads recordings reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_replay::{Disk, DiskFile, Locking, STORE_LOCK};
use rollhouse_wire::StoreListing;

/// Reads the store of a coordinator. Both methods block until the coordinator has answered.
pub trait StoreReader: Send + Sync + fmt::Debug {
    /// Returns a part of a folder's listing, as [`StoreList`](rollhouse_wire::StoreList) asks for it.
    ///
    /// # Errors
    /// An error of kind `NotFound` if there is no such folder, else that of the connection.
    fn list(&self, path: &str, after: &str) -> io::Result<StoreListing>;

    /// Returns a part of a file, as [`StoreRead`](rollhouse_wire::StoreRead) asks for it, and the file's length.
    ///
    /// # Errors
    /// An error of kind `NotFound` if there is no such file, else that of the connection.
    fn read(&self, path: &str, offset: u64, bytes: u32) -> io::Result<(Vec<u8>, u64)>;
}

/// A coordinator's store, for `Library::open(disk, Path::new(""))`. Clones share what was read.
///
/// Files are read in blocks of [`BLOCK_BYTES`], of which the latest used are kept, [`CACHE_BYTES`] of them. Files of a
/// store do not change while they are there, so nothing that was read gets old. A folder is listed once, so that a
/// reader sees the store as it was at its first look. All methods may block for the network; those that would change
/// something fail.
#[derive(Debug, Clone)]
pub struct RemoteDisk {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reader: Box<dyn StoreReader>,
    /// The cache; locked while something is fetched, so that two readers of the same block fetch it once.
    state: Mutex<Cache>,
}

/// The contents of a folder: names, and lengths of files.
type Names = BTreeMap<String, Option<u64>>;

/// The bytes of a block, with the turn of its last use.
type Block = (u64, Arc<[u8]>);

#[derive(Debug, Default)]
struct Cache {
    /// The listing of each folder by its path; `None` if there is no such folder.
    folders: BTreeMap<String, Option<Arc<Names>>>,
    /// The blocks, by file and number.
    blocks: BTreeMap<(Arc<str>, u64), Block>,
    /// Lengths of files that are not listed with one.
    lengths: BTreeMap<Arc<str>, u64>,
    kept: usize,
    turn: u64,
}

impl RemoteDisk {
    /// Makes the disk of the store that `reader` reaches. Fetches nothing yet.
    pub fn new(reader: impl StoreReader + 'static) -> Self {
        Self { shared: Arc::new(Shared { reader: Box::new(reader), state: Mutex::default() }) }
    }

    /// Forgets which files there are, for callers that open the store once more to see what has come. File contents
    /// that were read are kept.
    pub fn look_again(&self) {
        let mut state = self.shared.state.lock();
        state.folders.clear();
        // Those of files that do change: what a listing has no length of.
        state.lengths.clear();
    }
}

impl Shared {
    /// Returns the names in a folder, with lengths; `None` if there is no such folder.
    fn folder(&self, path: &Path) -> io::Result<Option<Arc<Names>>> {
        let Some(path) = remote_path(path) else { return Ok(None) };
        if let Some(known) = self.state.lock().folders.get(&path) {
            return Ok(known.clone());
        }
        // Its own folder says whether it is there: readers look for more folders than a store has.
        let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
        if !path.is_empty() {
            let beside = self.folder(Path::new(above))?;
            if beside.is_none_or(|names| names.get(name) != Some(&None)) {
                return Ok(None);
            }
        }
        let mut state = self.state.lock();
        if let Some(known) = state.folders.get(&path) {
            return Ok(known.clone());
        }
        let listed = match self.fetch_folder(&path) {
            Ok(names) => Some(Arc::new(names)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if state.folders.len() >= MAX_FOLDERS {
            state.folders.clear();
        }
        state.folders.insert(path, listed.clone());
        Ok(listed)
    }

    fn fetch_folder(&self, path: &str) -> io::Result<Names> {
        let mut names = BTreeMap::new();
        let mut after = String::new();
        loop {
            let StoreListing { entries, more } = self.reader.list(path, &after)?;
            let last = entries.last().map(|entry| entry.name.clone());
            names.extend(entries.into_iter().map(|entry| (entry.name, entry.bytes)));
            match last {
                Some(last) if more && last > after => after = last,
                // A store that says that more follow, and gives none, would be asked for ever.
                _ => return Ok(names),
            }
            if names.len() > MAX_NAMES {
                return Err(io::Error::other(format!(
                    "more than {MAX_NAMES} names in {path:?} of the store"
                )));
            }
        }
    }

    /// Returns a file's length as its folder's listing has it.
    fn listed_len(&self, path: &Path) -> io::Result<Option<u64>> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Ok(None);
        };
        Ok(self.folder(dir)?.and_then(|names| names.get(name).copied().flatten()))
    }

    /// Returns the length of a file that is not listed with one, by fetching its first block.
    fn fetched_len(&self, file: &Arc<str>) -> io::Result<u64> {
        let mut state = self.state.lock();
        if let Some(&known) = state.lengths.get(file) {
            return Ok(known);
        }
        let (data, len) = self.reader.read(file, 0, BLOCK_BYTES as u32)?;
        state.keep(file, 0, data.into());
        if state.lengths.len() >= MAX_LENGTHS {
            state.lengths.clear();
        }
        state.lengths.insert(file.clone(), len);
        Ok(len)
    }

    /// Returns the block of a file with that number, fetching it together with those after it, up to `end`, that are
    /// not there.
    fn block(&self, file: &Arc<str>, number: u64, end: u64) -> io::Result<Arc<[u8]>> {
        let mut state = self.state.lock();
        if let Some(known) = state.touch(file, number) {
            return Ok(known);
        }
        let missing = (number + 1..end.min(number + MOST_BLOCKS))
            .take_while(|&next| !state.blocks.contains_key(&(file.clone(), next)));
        let blocks = 1 + missing.count() as u64;
        let bytes = u32::try_from(blocks).unwrap_or(1) * BLOCK_BYTES as u32;
        let (data, _) = self.reader.read(file, number * BLOCK_BYTES as u64, bytes)?;
        let mut first = None;
        for at in 0..blocks as usize {
            let from = data.len().min(at * BLOCK_BYTES);
            let block: Arc<[u8]> = data[from..data.len().min(from + BLOCK_BYTES)].into();
            first.get_or_insert_with(|| block.clone());
            state.keep(file, number + at as u64, block);
        }
        Ok(first.unwrap_or_default())
    }
}

impl Cache {
    fn touch(&mut self, file: &Arc<str>, number: u64) -> Option<Arc<[u8]>> {
        self.turn += 1;
        let (used, block) = self.blocks.get_mut(&(file.clone(), number))?;
        *used = self.turn;
        Some(block.clone())
    }

    fn keep(&mut self, file: &Arc<str>, number: u64, block: Arc<[u8]>) {
        self.turn += 1;
        self.kept += block.len() + BLOCK_OVERHEAD;
        if let Some((_, old)) = self.blocks.insert((file.clone(), number), (self.turn, block)) {
            self.kept -= old.len() + BLOCK_OVERHEAD;
        }
        while self.kept > CACHE_BYTES {
            let oldest = self.blocks.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            let Some((_, gone)) = oldest.and_then(|key| self.blocks.remove(&key)) else { return };
            self.kept -= gone.len() + BLOCK_OVERHEAD;
        }
    }
}

/// Returns a path as the store names it; `None` if the store cannot have such a path.
fn remote_path(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => parts.push(part.to_str()?),
            std::path::Component::CurDir => {}
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

impl Disk for RemoteDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn create(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(read_only())
    }

    fn open_append(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(read_only())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let name = remote_path(path).ok_or(io::ErrorKind::NotFound)?;
        let file = Arc::<str>::from(name);
        let len = match self.shared.listed_len(path)? {
            Some(len) => len,
            None => self.shared.fetched_len(&file)?,
        };
        Ok(Box::new(RemoteFile { shared: self.shared.clone(), file, len }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.shared.folder(path)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(names.keys().cloned().collect())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn lock(&self, _: &Path, _: &str) -> io::Result<Locking> {
        Err(read_only())
    }

    /// Returns whether a lock is held. The coordinator that answers holds its store's lock, which stands in the
    /// listing; no other is ever held.
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        if path.file_name() != Some(STORE_LOCK.as_ref()) {
            return Ok(false);
        }
        Ok(self.shared.listed_len(path)?.is_some())
    }

    fn real_dir(&self, path: &Path) -> Option<PathBuf> {
        // What is listed with a length in the folder above is a file; that spares asking.
        if self.shared.listed_len(path).ok()?.is_some() {
            return None;
        }
        self.shared.folder(path).ok().flatten().map(|_| path.to_path_buf())
    }
}

/// An open file of a store.
#[derive(Debug)]
struct RemoteFile {
    shared: Arc<Shared>,
    file: Arc<str>,
    len: u64,
}

impl DiskFile for RemoteFile {
    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(read_only())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if buffer.is_empty() || offset >= self.len {
            return Ok(0);
        }
        let block = BLOCK_BYTES as u64;
        let end = self.len.min(offset.saturating_add(buffer.len() as u64));
        let data = self.shared.block(&self.file, offset / block, end.div_ceil(block))?;
        let rest = data.get((offset % block) as usize..).unwrap_or_default();
        if rest.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} of the store has {} bytes and ends before {offset}", self.file, self.len),
            ));
        }
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(read_only())
    }
}

fn read_only() -> io::Error {
    io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "a coordinator's store is only read from elsewhere; the coordinator repairs it when it starts",
    )
}

/// Least bytes that are fetched.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Most bytes of blocks that are kept.
pub const CACHE_BYTES: usize = 64 << 20;
/// Most blocks that are fetched at a time.
const MOST_BLOCKS: u64 = (rollhouse_wire::limits::MAX_STORE_READ_BYTES / BLOCK_BYTES) as u64;
/// Bytes that a block counts beside its own, so that many small files are bounded too.
const BLOCK_OVERHEAD: usize = 256;
/// Most folders whose listing is kept: two in each that readers take, and some.
const MAX_FOLDERS: usize = 16_384;
/// Most lengths of files that are kept.
const MAX_LENGTHS: usize = 65_536;
/// Most names of one folder.
const MAX_NAMES: usize = 4 << 20;
const _: () = assert!(MOST_BLOCKS >= 1);
