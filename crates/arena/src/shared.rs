//! Memory that other processes map too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rollhouse_core::ColumnMut;
use rustix::fs::SealFlags;

use crate::bell::Sleeping;
use crate::fetching::{Touch, fetch};
use crate::mapping::{Access, Mapping, Pages, WORD};
use crate::memory::Memory;
use crate::placement::MAX_ARENA_BYTES;
use crate::shared_columns::SharedColumns;
use crate::words::{Words, WordsMut, futex_wait, futex_wake};

/// A memfd of fixed size, mapped here and by any process that is given its descriptor.
///
/// Other processes write it at any time, so it is never a Rust reference: words are atomics, bytes are copied
/// out and in through atomics. What a peer wrote is data to be checked.
///
/// The size is sealed: no peer can shrink the file and turn an access into a bus error.
#[derive(Debug)]
pub struct SharedMemory {
    words: SharedWords,
    fd: OwnedFd,
}

/// Words of a mapping that may be written here, from its first word on.
#[derive(Debug)]
pub(crate) struct SharedWords {
    map: Arc<Mapping>,
    bytes: usize,
}

/// A memfd that only its creator can write, mapped to be read. Its contents change at any time.
#[derive(Debug)]
pub(crate) struct ReadOnlyMemory {
    map: Arc<Mapping>,
    bytes: usize,
}

impl SharedMemory {
    /// Creates a memory of `bytes` zero bytes (rounded up to whole words), in a file that is in no folder and is gone
    /// with its last descriptor and mapping. `name` shows up in /proc/*/maps.
    ///
    /// # Errors
    /// If the kernel refuses, as a rule because there is no memory or no descriptor left.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        Self::create_sealed(name, bytes, Pages::AsTouched, SIZE_SEALS | SealFlags::SEAL)
    }

    /// Creates a memory as [`SharedMemory::create`] does, with all pages from the start.
    pub(crate) fn create_whole(name: &str, bytes: usize) -> io::Result<Self> {
        Self::create_sealed(name, bytes, Pages::FromTheStart, SIZE_SEALS | SealFlags::SEAL)
    }

    /// Creates a memory with all pages from the start, sealed so that no other process can ever map it to be written.
    pub(crate) fn create_published(name: &str, bytes: usize) -> io::Result<Self> {
        Self::create_sealed(name, bytes, Pages::FromTheStart, PUBLISHED_SEALS)
    }

    fn create_sealed(name: &str, bytes: usize, pages: Pages, seals: SealFlags) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(WORD).max(WORD);
        let (mapping, fd) = Mapping::create(name, bytes, pages, seals)?;
        Ok(Self { words: SharedWords::of(mapping), fd })
    }

    /// Maps a memory that another process created.
    ///
    /// # Errors
    /// `InvalidInput` if the file's size is not sealed, more than [`MAX_ARENA_BYTES`] or no whole number of words; else
    /// the kernel's error.
    pub fn attach(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { words: SharedWords::attach(fd.as_fd(), MAX_ARENA_BYTES, Pages::AsTouched)?, fd })
    }

    /// Returns the length in bytes.
    pub const fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns false: the smallest memory has one word.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits the memory as [`SharedWords::split`] does.
    pub(crate) fn split(&mut self, at: usize) -> Memory {
        self.words.split(at)
    }

    /// Ends the words at byte `at`, and returns the part behind it as columns.
    ///
    /// # Panics
    /// If it is not aligned or lies outside.
    pub fn split_columns(&mut self, at: usize) -> SharedColumns {
        SharedColumns::new(self.split(at))
    }

    /// Returns the word at byte `offset`.
    ///
    /// # Panics
    /// If it is not aligned or lies outside.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.words.word(offset)
    }

    /// Announces at the word at byte `offset`, which only this side writes, that this side is about to sleep. It has to look
    /// once more for what it waits for before it does: from then on [`SharedMemory::has_sleeper`] tells the other side.
    pub fn announce_sleep(&self, offset: usize) {
        Sleeping(offset).announce(self);
    }

    /// Takes the announcement back.
    pub fn withdraw_sleep(&self, offset: usize) {
        Sleeping(offset).withdraw(self);
    }

    /// Returns whether the other side has to be woken. It is asked after what that side waits for was stored.
    #[inline]
    pub fn has_sleeper(&self, offset: usize) -> bool {
        Sleeping(offset).is_announced(self)
    }

    /// Copies `bytes` to byte `offset`, which is a multiple of 8. The rest of a last, partial word becomes zero.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.words.copy_from(offset, bytes);
    }

    /// Copies `len` bytes from byte `offset`. A peer that writes meanwhile decides what they are.
    ///
    /// # Panics
    /// If they lie outside.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read_to(offset, &mut bytes);
        bytes
    }

    /// Fills `bytes` from byte `offset`, as [`SharedMemory::read`] does.
    ///
    /// # Panics
    /// If they lie outside.
    pub fn read_to(&self, offset: usize, bytes: &mut [u8]) {
        self.words.copy_to(offset, bytes);
    }

    /// Fills a column from byte `offset`, a multiple of 8, as [`SharedMemory::read`] does.
    ///
    /// # Panics
    /// If the elements lie outside.
    pub fn read_column(&self, offset: usize, mut column: ColumnMut<'_>) {
        self.read_to(offset, column.bytes_mut());
    }
}

impl SharedWords {
    fn of(mapping: Mapping) -> Self {
        Self { bytes: mapping.bytes(), map: Arc::new(mapping) }
    }

    /// Maps a memory of at most `most` bytes as [`SharedMemory::attach`] does; keeps no descriptor.
    pub(crate) fn attach(fd: BorrowedFd<'_>, most: usize, pages: Pages) -> io::Result<Self> {
        Mapping::attach(fd, SIZE_SEALS, most, pages, Access::ReadWrite).map(Self::of)
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// Ends the words at `at`, a multiple of 8 inside. The bytes from there on are columns, which words do not reach
    /// any more.
    pub(crate) fn split(&mut self, at: usize) -> Memory {
        assert!(at.is_multiple_of(WORD) && at <= self.bytes, "columns must lie in the memory");
        let columns = Memory::mapped(Arc::clone(&self.map), at..self.bytes, Access::ReadWrite);
        self.bytes = at;
        columns
    }

    /// Puts another memory, which nobody else reaches, in the place of this one.
    ///
    /// # Errors
    /// As [`Mapping::replace`].
    ///
    /// # Safety
    /// Nobody holds a slice of the columns behind the words.
    pub(crate) unsafe fn replace(&self, by: Self) -> io::Result<()> {
        let by = Arc::into_inner(by.map).ok_or(io::ErrorKind::ResourceBusy)?;
        // SAFETY: words are atomics, and nobody holds a slice of the columns, by contract.
        unsafe { self.map.replace(by) }
    }

    /// Returns the words from byte `offset` on.
    #[inline]
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let end = count.checked_mul(WORD).and_then(|bytes| bytes.checked_add(offset));
        let inside = offset.is_multiple_of(WORD) && end.is_some_and(|end| end <= self.bytes);
        assert!(inside, "words must lie in the memory");
        // SAFETY: as in `word`.
        unsafe {
            std::slice::from_raw_parts(self.map.start().as_ptr().add(offset).cast::<AtomicU64>(), count)
        }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset + WORD <= self.bytes, "a word must lie in the memory");
        // SAFETY: in range and aligned (asserted; the mapping starts at a page), valid while `self` lives, and
        // every process and thread reaches it through atomics only: the bytes are in no other Rust reference
        // (`split` ends the words where columns begin).
        unsafe { &*self.map.start().as_ptr().add(offset).cast::<AtomicU64>() }
    }
}

impl ReadOnlyMemory {
    /// Maps a memory of at most `most` bytes that another process created and only that process can write.
    ///
    /// # Errors
    /// As [`SharedMemory::attach`]; also if it is not sealed against writing.
    pub(crate) fn attach(fd: BorrowedFd<'_>, most: usize) -> io::Result<Self> {
        let mapping = Mapping::attach(fd, PUBLISHED_SEALS, most, Pages::FromTheStart, Access::Read)?;
        Ok(Self { bytes: mapping.bytes(), map: Arc::new(mapping) })
    }

    /// Splits the memory as [`SharedWords::split`] does.
    pub(crate) fn split(&mut self, at: usize) -> Memory {
        assert!(at.is_multiple_of(WORD) && at <= self.bytes, "columns must lie in the memory");
        let columns = Memory::mapped(Arc::clone(&self.map), at..self.bytes, Access::Read);
        self.bytes = at;
        columns
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset + WORD <= self.bytes, "a word must lie in the memory");
        // SAFETY: as in `SharedWords::word`; the pages cannot be written here, and the word is only loaded, relaxed,
        // which is what atomics on read-only memory may do.
        unsafe { &*self.map.start().as_ptr().add(offset).cast::<AtomicU64>() }
    }
}

impl SharedMemory {
    /// Has the processor fetch the first of the bytes from `offset` on, which are touched soon.
    #[inline]
    pub(crate) fn fetch(&self, offset: usize, bytes: usize, touch: Touch) {
        fetch(self.words.map.start().as_ptr().wrapping_add(offset), bytes, touch);
    }
}

impl ReadOnlyMemory {
    /// Has the processor fetch the first of the bytes from `offset` on, which are read soon.
    #[inline]
    pub(crate) fn fetch(&self, offset: usize, bytes: usize) {
        fetch(self.map.start().as_ptr().wrapping_add(offset), bytes, Touch::Read);
    }
}

impl Words for SharedWords {
    #[inline]
    fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    #[inline]
    fn copy_words(&self, offset: usize, words: &mut [[u8; WORD]]) {
        // One look at the bounds for all of them.
        let from = self.words(offset, words.len());
        for (word, from) in words.iter_mut().zip(from) {
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    fn sleep_on(&self, offset: usize, value: u32, most: Duration) {
        futex_wait(low_half(self.word(offset)), value, most);
    }
}

impl WordsMut for SharedWords {
    #[inline]
    fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    fn wake_on(&self, offset: usize) {
        futex_wake(low_half(self.word(offset)));
    }
}

impl Words for SharedMemory {
    #[inline]
    fn load(&self, offset: usize) -> u64 {
        self.words.load(offset)
    }

    #[inline]
    fn copy_words(&self, offset: usize, words: &mut [[u8; WORD]]) {
        self.words.copy_words(offset, words);
    }

    fn sleep_on(&self, offset: usize, value: u32, most: Duration) {
        self.words.sleep_on(offset, value, most);
    }
}

impl WordsMut for SharedMemory {
    #[inline]
    fn store(&self, offset: usize, value: u64) {
        self.words.store(offset, value);
    }

    fn wake_on(&self, offset: usize) {
        self.words.wake_on(offset);
    }
}

impl Words for ReadOnlyMemory {
    #[inline]
    fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn sleep_on(&self, offset: usize, value: u32, most: Duration) {
        futex_wait(low_half(self.word(offset)), value, most);
    }
}

/// Returns the half of a word that the kernel compares. Only the kernel reads it by this reference.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    const { assert!(cfg!(target_endian = "little"), "the low half of a word is its first") };
    // SAFETY: the first four bytes of an eight-byte atomic, which live as long, are aligned, and are accessed by
    // atomics and the kernel only.
    unsafe { &*std::ptr::from_ref(word).cast::<AtomicU32>() }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const PUBLISHED_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::ColumnRef;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap};

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
    fn columns_of_all_types_and_lengths_come_back_bit_by_bit() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        fn back<T: Copy + Default + PartialEq + std::fmt::Debug>(
            memory: &SharedMemory,
            value: impl Fn(u8) -> T,
            read: impl for<'a> Fn(&'a [T]) -> ColumnRef<'a>,
            write: impl for<'a> Fn(&'a mut [T]) -> ColumnMut<'a>,
        ) {
            for len in [0, 1, 2, 3, 7, 8, 9, 64, 65] {
                let values: Vec<T> = (0..len).map(&value).collect();
                memory.write(64, read(&values).bytes());
                let mut found = vec![T::default(); values.len()];
                memory.read_column(64, write(&mut found));
                assert_eq!(found, values);
            }
        }
        back(&memory, |i| i, |v: &[u8]| ColumnRef::U8(v), |v| ColumnMut::U8(v));
        back(&memory, |i| -i32::from(i), |v: &[i32]| ColumnRef::I32(v), |v| ColumnMut::I32(v));
        back(&memory, |i| -i64::from(i), |v: &[i64]| ColumnRef::I64(v), |v| ColumnMut::I64(v));
        back(&memory, |i| -f32::from(i) / 3.0, |v: &[f32]| ColumnRef::F32(v), |v| ColumnMut::F32(v));
        back(&memory, |i| -f64::from(i) / 3.0, |v: &[f64]| ColumnRef::F64(v), |v| ColumnMut::F64(v));
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
        let error = SharedMemory::attach(fd).unwrap_err();
        assert_eq!(error.to_string(), "shared memory is not sealed against shrinking, growing");
    }

    #[test]
    #[should_panic(expected = "must lie in the memory")]
    fn nothing_outside_is_reached() {
        SharedMemory::create("test", 64).unwrap().read(60 & !7, 9);
    }

    #[test]
    fn a_published_memory_is_written_by_its_creator_alone() {
        let here = SharedMemory::create_published("test", 4096).unwrap();
        let there = ReadOnlyMemory::attach(here.as_fd(), MAX_ARENA_BYTES).unwrap();
        here.word(8).store(7, Ordering::Release);
        assert_eq!(there.load(8), 7);
        // By the descriptor, and by one opened anew from /proc, which has none of the first one's limits.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&here.as_fd()));
        let anew = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        assert!(rustix::io::pwrite(&anew, b"x", 0).is_err());
        for fd in [here.as_fd(), anew.as_fd()] {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            assert!(fallocate(fd, hole, 0, 4096).is_err());
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address the kernel chooses touches no memory in use.
            let mapped = unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, fd, 0) };
            assert!(mapped.is_err());
        }
    }

    #[test]
    fn a_memory_that_others_may_write_is_not_taken_for_a_published_one() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        let error = ReadOnlyMemory::attach(memory.as_fd(), MAX_ARENA_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "shared memory is not sealed against writing by others");
    }
}
