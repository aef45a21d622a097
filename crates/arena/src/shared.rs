//! Memory that other processes map too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A memfd of fixed size, mapped here and by any process that is given its descriptor.
///
/// Other processes write it at any time, so it is never a Rust reference: words are atomics, bytes are copied
/// out and in through atomics. What a peer wrote is data to be checked.
///
/// The size is sealed: no peer can shrink the file and turn an access into a bus error.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    bytes: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping stays where it is until drop and is only reached through atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `bytes` zero bytes (rounded up to whole words), in a file that is in no folder and is gone with its last
    /// descriptor and mapping. `name` shows up in /proc/*/maps.
    ///
    /// # Errors
    /// What the kernel says, as a rule that there is no memory or no descriptor left.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(WORD).max(WORD);
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes as u64)?;
        fcntl_add_seals(&fd, SIZE_SEALS | SealFlags::SEAL)?;
        Self::map(fd, bytes)
    }

    /// Maps a memory that another process created.
    ///
    /// # Errors
    /// `InvalidInput` if the file's size is not sealed or no whole number of words; else what the kernel says.
    pub fn attach(fd: OwnedFd) -> io::Result<Self> {
        let sealed = fcntl_get_seals(&fd)?.contains(SIZE_SEALS);
        let size = usize::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        if !sealed || size == 0 || !size.is_multiple_of(WORD) {
            let message = format!("shared memory of {size} bytes is not sealed against size changes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Self::map(fd, size)
    }

    fn map(fd: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes, fd })
    }

    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Never: the smallest is a word.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The word at byte `offset`.
    ///
    /// # Panics
    /// If it is not aligned or lies outside.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset + WORD <= self.bytes, "a word must lie in the memory");
        // SAFETY: in range and aligned (asserted; the mapping starts at a page), valid while `self` lives, and
        // every process and thread reaches it through atomics only: the bytes are in no other Rust reference.
        unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Copies `bytes` to byte `offset`, which is a multiple of 8. The rest of a last, partial word becomes zero.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(offset + index * WORD).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Copies `len` bytes from byte `offset`, which is a multiple of 8. A peer that writes meanwhile decides
    /// what they are.
    ///
    /// # Panics
    /// If they lie outside.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.next_multiple_of(WORD));
        for index in 0..len.div_ceil(WORD) {
            let word = self.word(offset + index * WORD).load(Ordering::Relaxed);
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once; references to words borrow `self`.
        // An error can only mean that the arguments are wrong, which they are not.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

const WORD: usize = size_of::<u64>();
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let here = SharedMemory::create("test", 4096).unwrap();
        let there = SharedMemory::attach(here.as_fd().try_clone_to_owned().unwrap()).unwrap();
        here.word(8).store(7, Ordering::Release);
        assert_eq!(there.word(8).load(Ordering::Acquire), 7);
        for len in [0, 1, 7, 8, 9, 64, 1001] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            here.write(64, &bytes);
            assert_eq!(there.read(64, len), bytes);
        }
    }

    #[test]
    fn its_size_cannot_be_changed_by_a_peer() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        assert!(ftruncate(&memory, 8).is_err());
        assert!(ftruncate(&memory, 8192).is_err());
        assert!(fcntl_add_seals(&memory, SealFlags::WRITE).is_err());
    }

    #[test]
    fn a_file_whose_size_may_change_is_not_mapped() {
        let fd = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        assert_eq!(SharedMemory::attach(fd).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    #[should_panic(expected = "must lie in the memory")]
    fn nothing_outside_is_reached() {
        SharedMemory::create("test", 64).unwrap().read(60 & !7, 9);
    }
}
