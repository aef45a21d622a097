//! Asks the processor for memory that is read or written soon.
//!
//! What a peer on another core has written, or has read since it was written here, comes by a transfer between the cores of
//! 0.1 µs to 0.2 µs. Lines that are touched one after the other, each where the last one says, wait for a transfer each;
//! those that were asked for at a time, or while something else was waited for, do not.

/// The way in which memory is touched soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

/// Has the processor fetch the first lines of some memory. It is a hint, and accesses nothing. Does nothing on processors
/// that are not x86-64.
#[inline]
pub(crate) fn fetch(start: *const u8, bytes: usize, touch: Touch) {
    for line in (0..bytes.min(MOST_BYTES)).step_by(LINE) {
        let line = start.wrapping_add(line);
        // SAFETY: hints that access no memory, fault nowhere whatever the address, and set no flag.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match touch {
                Touch::Read => std::arch::asm!(
                    "prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly)
                ),
                Touch::Write => std::arch::asm!(
                    "prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly)
                ),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (line, touch);
    }
}

/// Most bytes that are asked for at a time: those of a small batch's column. Of longer ones the processor fetches the rest by
/// itself.
const MOST_BYTES: usize = 512;

const LINE: usize = 64;
