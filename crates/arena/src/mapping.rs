//! A mapping of one memfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mremap_fixed, munmap};

/// A memfd mapped as a whole, for as long as this value lives; it needs no descriptor for that. It never moves, and its
/// size is sealed.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

/// Access that this process has to a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// Time at which a file's pages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Each page is made when it is first touched: a page that is never needed costs nothing.
    AsTouched,
    /// All pages are made with the file. A system without memory says so then and not by a bus error later, and no step
    /// waits for a page.
    FromTheStart,
}

// SAFETY: the mapping stays where it is until drop; who may touch which part of it how is decided by the types
// that hold it (`SharedMemory`, `ReadOnlyMemory`, `Memory`).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates and maps a file of `bytes` zero bytes. `seals` are added after the file is mapped.
    pub(crate) fn create(
        name: &str,
        bytes: usize,
        pages: Pages,
        seals: SealFlags,
    ) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        match pages {
            Pages::AsTouched => ftruncate(&fd, bytes as u64)?,
            Pages::FromTheStart => fallocate(&fd, FallocateFlags::empty(), 0, bytes as u64)?,
        }
        let mapping = Self::map(&fd, bytes, pages, Access::ReadWrite)?;
        fcntl_add_seals(&fd, seals)?;
        Ok((mapping, fd))
    }

    /// Maps a file of at most `most` bytes that another process created.
    ///
    /// # Errors
    /// `InvalidInput` if it lacks one of the seals `wanted`, is empty, longer or no whole number of words: nothing is
    /// mapped then; else the kernel's error.
    pub(crate) fn attach(
        fd: BorrowedFd<'_>,
        wanted: SealFlags,
        most: usize,
        pages: Pages,
        access: Access,
    ) -> io::Result<Self> {
        let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        let seals = fcntl_get_seals(fd).map_err(|_| invalid("a file that cannot be sealed".to_owned()))?;
        let missing = wanted.difference(seals);
        if !missing.is_empty() {
            let seals = seal_names(missing);
            return Err(invalid(format!("shared memory is not sealed against {seals}")));
        }
        let bytes = usize::try_from(fstat(fd)?.st_size).unwrap_or(0);
        if bytes > most {
            return Err(invalid(format!("shared memory of {bytes} bytes, at most {most} allowed")));
        }
        if bytes == 0 || !bytes.is_multiple_of(WORD) {
            return Err(invalid(format!("shared memory of {bytes} bytes, a multiple of {WORD} is wanted")));
        }
        Self::map(fd, bytes, pages, access)
    }

    fn map(fd: impl AsFd, bytes: usize, pages: Pages, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = match pages {
            Pages::AsTouched => MapFlags::SHARED,
            Pages::FromTheStart => MapFlags::SHARED | MapFlags::POPULATE,
        };
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    /// Puts another mapping of the same length in the place of this one, at its addresses.
    ///
    /// # Errors
    /// The kernel's error; `InvalidInput` if the lengths differ.
    ///
    /// # Safety
    /// Nobody holds a Rust reference to other things than atomics in this mapping, and both may be accessed alike.
    pub(crate) unsafe fn replace(&self, by: Self) -> io::Result<()> {
        if by.bytes != self.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (from, to) = (by.start.as_ptr().cast(), self.start.as_ptr().cast());
        // SAFETY: `by` is a whole mapping that nobody else knows and that is forgotten below; what lay at `to` is this
        // mapping, whose users see other contents from now on, as whenever a peer writes, by contract.
        unsafe { mremap_fixed(from, by.bytes, by.bytes, MremapFlags::MAYMOVE, to) }?;
        std::mem::forget(by);
        Ok(())
    }

    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once; whoever holds an address of it holds the mapping.
        // An error can only mean that the arguments are wrong, which they are not.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn seal_names(seals: SealFlags) -> String {
    let names = [
        (SealFlags::SHRINK, "shrinking"),
        (SealFlags::GROW, "growing"),
        (SealFlags::FUTURE_WRITE, "writing by others"),
        (SealFlags::SEAL, "further seals"),
    ];
    let named: Vec<_> =
        names.iter().filter(|(seal, _)| seals.contains(*seal)).map(|(_, name)| *name).collect();
    named.join(", ")
}

/// Number of bytes in a word.
pub(crate) const WORD: usize = size_of::<u64>();
