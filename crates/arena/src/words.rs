//! Words of memory that two parties share, and on which one sleeps until the other has written.
//!
//! The protocols (`bell.rs`, `ring.rs`) are written against these traits, so that a model checker can run them.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use crate::mapping::WORD;

/// Words of memory to read. Offsets are in bytes and multiples of 8; outside the memory they panic.
pub(crate) trait Words {
    /// Loads the word, relaxed.
    fn load(&self, offset: usize) -> u64;

    /// Sleeps while the word's low half is `value`, for `most` at most; may return early.
    fn sleep_on(&self, offset: usize, value: u32, most: Duration);

    /// Sets a fence, which a model checker replaces.
    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }

    /// Loads the word, acquired: what its writer wrote before is visible.
    #[inline]
    fn load_acquire(&self, offset: usize) -> u64 {
        let word = self.load(offset);
        Self::fence(Ordering::Acquire);
        word
    }

    /// Copies bytes out from byte `offset`, which need not be aligned. A peer that writes meanwhile decides what they
    /// are.
    #[inline]
    fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        let (mut at, mut bytes) = (offset, bytes);
        let skip = at % WORD;
        if skip != 0 {
            let head = bytes.len().min(WORD - skip);
            let (first, rest) = bytes.split_at_mut(head);
            first.copy_from_slice(&self.load(at - skip).to_ne_bytes()[skip..skip + head]);
            (at, bytes) = (at + head, rest);
        }
        let (words, tail) = bytes.as_chunks_mut::<WORD>();
        self.copy_words(at, words);
        at += words.len() * WORD;
        if !tail.is_empty() {
            let last = self.load(at).to_ne_bytes();
            tail.copy_from_slice(&last[..tail.len()]);
        }
    }

    /// Copies whole words out, each relaxed.
    #[inline]
    fn copy_words(&self, offset: usize, words: &mut [[u8; WORD]]) {
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.load(offset + index * WORD).to_ne_bytes();
        }
    }
}

/// Words of memory to write.
pub(crate) trait WordsMut: Words {
    /// Sets the word, relaxed.
    fn store(&self, offset: usize, value: u64);

    /// Wakes the threads that sleep on the word.
    fn wake_on(&self, offset: usize);

    /// Says in the word that a thread of the writer's is about to sleep. Words on which several threads sleep count them.
    #[inline]
    fn enter(&self, offset: usize) {
        self.store(offset, 1);
    }

    /// Takes back what [`WordsMut::enter`] said.
    #[inline]
    fn leave(&self, offset: usize) {
        self.store(offset, 0);
    }

    /// Sets the word, released: a thread that acquires it sees what was written before.
    #[inline]
    fn store_release(&self, offset: usize, value: u64) {
        Self::fence(Ordering::Release);
        self.store(offset, value);
    }

    /// Copies bytes in at byte `offset`, a multiple of 8; the rest of a last, partial word becomes zero.
    #[inline]
    fn copy_from(&self, offset: usize, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<WORD>();
        for (index, word) in words.iter().enumerate() {
            self.store(offset + index * WORD, u64::from_ne_bytes(*word));
        }
        if !tail.is_empty() {
            let mut last = [0; WORD];
            last[..tail.len()].copy_from_slice(tail);
            self.store(offset + words.len() * WORD, u64::from_ne_bytes(last));
        }
    }
}

/// Sleeps while the word is `value`. Without PRIVATE: the waker is another process, and the word may lie in memory
/// that is read-only here.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, most: Duration) {
    let most = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // Woken, changed meanwhile, interrupted or timed out: the caller looks again in every case.
    let _ = futex::wait(word, futex::Flags::empty(), value, Some(&most));
}

/// Wakes the threads that sleep on the word, in any process.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // Fails only for an address that is not mapped, which a reference is not.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
pub(crate) mod plain {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Words of this process alone, for tests of what is done with words.
    #[derive(Debug)]
    pub(crate) struct Plain(Vec<AtomicU64>);

    impl Plain {
        pub(crate) fn new(bytes: usize) -> Self {
            Self((0..bytes / WORD).map(|_| AtomicU64::new(0)).collect())
        }

        fn word(&self, offset: usize) -> &AtomicU64 {
            assert!(offset.is_multiple_of(WORD), "a word is aligned");
            &self.0[offset / WORD]
        }
    }

    impl Words for Plain {
        fn load(&self, offset: usize) -> u64 {
            self.word(offset).load(Ordering::Relaxed)
        }

        fn sleep_on(&self, _: usize, _: u32, _: Duration) {}
    }

    impl WordsMut for Plain {
        fn store(&self, offset: usize, value: u64) {
            self.word(offset).store(value, Ordering::Relaxed);
        }

        fn wake_on(&self, _: usize) {}
    }

    #[test]
    fn bytes_are_copied_from_and_to_any_place_in_words() {
        let words = Plain::new(64);
        let bytes: Vec<u8> = (1..=64).collect();
        words.copy_from(0, &bytes);
        for start in 0..20 {
            for length in 0..30 {
                let mut copy = vec![0; length];
                words.copy_to(start, &mut copy);
                assert_eq!(copy, bytes[start..start + length]);
            }
        }
        words.copy_from(8, &[9, 9, 9]);
        let mut word = [0; 8];
        words.copy_to(8, &mut word);
        assert_eq!(word, [9, 9, 9, 0, 0, 0, 0, 0]);
    }
}
