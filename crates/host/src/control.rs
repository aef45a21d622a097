//! The control part of the shared memory, through which host and workers send each other commands and replies.
//!
//! ```text
//! per worker   command line, 128 bytes: sequence, code, payload length, host wants the bell
//!              reply line,   128 bytes: sequence, code, payload length, worker is asleep,
//!                                       how often the worker has tried to connect
//! per worker   inline areas: command payload, reply payload
//! the rest     the caller's
//! ```
//!
//! Each line is written by one side; the lines keep 128 bytes apart because processors fetch cache lines in pairs. A
//! sleeper announces itself and then looks at the sequence again; the other side raises the sequence and then looks
//! whether there is a sleeper ([`SharedMemory::announce_sleep`]): one of the two sees the other.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rollhouse_arena::SharedMemory;

/// Maximum number of bytes of a payload that lies in the shared memory; longer payloads travel as descriptors.
pub const INLINE_BYTES: usize = 64 << 10;

/// Layout of the memory of a host with that many workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    workers: usize,
}

/// Command line and reply line of one worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    memory: &'a SharedMemory,
    line: usize,
    areas: usize,
}

/// Head of a command or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) code: u64,
    /// Length of the payload. The reader checks it: the peer may have written anything.
    pub(crate) len: u64,
}

impl Layout {
    pub(crate) const fn new(workers: usize) -> Self {
        Self { workers }
    }

    /// Returns the offset at which the caller's part begins, which is a page's.
    pub(crate) const fn data_offset(self) -> usize {
        self.areas() + self.workers * 2 * INLINE_BYTES
    }

    const fn areas(self) -> usize {
        (self.workers * 2 * LINE_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the lines of a worker.
    ///
    /// # Panics
    /// If there is no such worker.
    pub(crate) fn lines(self, memory: &SharedMemory, worker: usize) -> Lines<'_> {
        assert!(worker < self.workers, "a worker has lines only if it exists");
        let areas = self.areas() + worker * 2 * INLINE_BYTES;
        Lines { memory, line: worker * 2 * LINE_BYTES, areas }
    }
}

impl Lines<'_> {
    /// Sets both sequences, on the host's side. It may only be called while no worker is attached to the lines.
    pub(crate) fn reset(self, sequence: u64) {
        for word in [ASLEEP, WANTS_BELL, CONNECTING] {
            self.memory.word(self.line + word).store(0, Relaxed);
        }
        self.memory.word(self.line + REPLY + SEQUENCE).store(sequence, Relaxed);
        self.memory.word(self.line + SEQUENCE).store(sequence, Release);
    }

    /// Writes command number `sequence`, on the host's side, and returns whether the worker has to be woken.
    pub(crate) fn command(self, sequence: u64, code: u64, inline: Payload<'_>) -> bool {
        self.put(0, self.areas, sequence, code, inline);
        self.memory.has_sleeper(self.line + ASLEEP)
    }

    /// Writes reply number `sequence`, on the worker's side, and returns whether the host has to be woken.
    pub(crate) fn reply(self, sequence: u64, code: u64, inline: Payload<'_>) -> bool {
        self.put(REPLY, self.areas + INLINE_BYTES, sequence, code, inline);
        self.wants_bell()
    }

    fn put(self, line: usize, area: usize, sequence: u64, code: u64, payload: Payload<'_>) {
        let line = self.line + line;
        let len = match payload {
            Payload::Inline(bytes) => {
                self.memory.write(area, bytes);
                bytes.len()
            }
            Payload::Elsewhere(len) => len,
        };
        self.memory.word(line + CODE).store(code, Relaxed);
        self.memory.word(line + LEN).store(len as u64, Relaxed);
        // Pairs with the loads in `commanded` and `replied`.
        self.memory.word(line + SEQUENCE).store(sequence, Release);
    }

    /// Returns the number of the last command, on the worker's side.
    #[inline]
    pub(crate) fn commanded(self) -> u64 {
        self.memory.word(self.line + SEQUENCE).load(Acquire)
    }

    /// Returns the number of the last reply, on the host's side.
    #[inline]
    pub(crate) fn replied(self) -> u64 {
        self.memory.word(self.line + REPLY + SEQUENCE).load(Acquire)
    }

    /// Returns the head of the command that the worker has just seen.
    pub(crate) fn command_head(self) -> Head {
        self.head(0)
    }

    /// Returns the head of the reply that the host has just seen.
    pub(crate) fn reply_head(self) -> Head {
        self.head(REPLY)
    }

    fn head(self, line: usize) -> Head {
        let word = |word: usize| self.memory.word(self.line + line + word).load(Acquire);
        Head { code: word(CODE), len: word(LEN) }
    }

    /// Returns the payload of the last command, which is inline, on the worker's side.
    pub(crate) fn command_payload(self, len: usize) -> Vec<u8> {
        self.memory.read(self.areas, len)
    }

    /// Returns the payload of the last reply, which is inline, on the host's side.
    pub(crate) fn reply_payload(self, len: usize) -> Vec<u8> {
        self.memory.read(self.areas + INLINE_BYTES, len)
    }

    /// Sets whether the worker sleeps for a command. The worker reads [`Lines::commanded`] once more after setting it.
    pub(crate) fn set_asleep(self, asleep: bool) {
        self.say(ASLEEP, asleep);
    }

    /// Sets how often the worker has tried again to connect, on its side, and returns whether the host has to be woken.
    pub(crate) fn set_connecting(self, retries: u64) -> bool {
        self.memory.word(self.line + CONNECTING).store(retries, Release);
        self.wants_bell()
    }

    /// Returns how often the worker has tried again to connect, on the host's side; 0 if it does not.
    pub(crate) fn connecting(self) -> u64 {
        self.memory.word(self.line + CONNECTING).load(Acquire)
    }

    /// Returns whether the host sleeps, on the worker's side, which has just written what the host reads when it wakes.
    pub(crate) fn wants_bell(self) -> bool {
        self.memory.has_sleeper(self.line + WANTS_BELL)
    }

    /// Sets whether the host sleeps for a reply. The host reads [`Lines::replied`] once more after setting it.
    pub(crate) fn set_wants_bell(self, wants: bool) {
        self.say(WANTS_BELL, wants);
    }

    fn say(self, word: usize, sleeps: bool) {
        if sleeps {
            self.memory.announce_sleep(self.line + word);
        } else {
            self.memory.withdraw_sleep(self.line + word);
        }
    }
}

/// Payload of a command or reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// The payload is short enough for the inline area.
    Inline(&'a [u8]),
    /// A message of this length has been sent before.
    Elsewhere(usize),
}

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 128;
const REPLY: usize = LINE_BYTES;
const SEQUENCE: usize = 0;
const CODE: usize = 8;
const LEN: usize = 16;
/// Offset of the flag on the command line, which the host writes.
const WANTS_BELL: usize = 24;
/// Offset of the flag on the reply line, which the worker writes.
const ASLEEP: usize = REPLY + 24;
/// Offset of the worker's retries on the reply line.
const CONNECTING: usize = REPLY + 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_areas_of_all_workers_lie_apart() {
        let layout = Layout::new(3);
        let memory = SharedMemory::create("test", layout.data_offset() + 64).unwrap();
        let payload = |worker: usize, side: u8| vec![worker as u8 * 2 + side; INLINE_BYTES];
        for worker in 0..3 {
            let lines = layout.lines(&memory, worker);
            lines.command(worker as u64 + 1, 10 + worker as u64, Payload::Inline(&payload(worker, 0)));
            lines.reply(worker as u64 + 1, 20 + worker as u64, Payload::Inline(&payload(worker, 1)));
        }
        for worker in 0..3 {
            let lines = layout.lines(&memory, worker);
            assert_eq!((lines.commanded(), lines.replied()), (worker as u64 + 1, worker as u64 + 1));
            let len = INLINE_BYTES as u64;
            assert_eq!(lines.command_head(), Head { code: 10 + worker as u64, len });
            assert_eq!(lines.reply_head(), Head { code: 20 + worker as u64, len });
            assert_eq!(lines.command_payload(INLINE_BYTES), payload(worker, 0));
            assert_eq!(lines.reply_payload(INLINE_BYTES), payload(worker, 1));
        }
        assert_eq!(memory.read(layout.data_offset(), 64), [0; 64]);
    }

    #[test]
    fn whoever_sleeps_is_to_be_woken() {
        let layout = Layout::new(1);
        let memory = SharedMemory::create("test", layout.data_offset()).unwrap();
        let lines = layout.lines(&memory, 0);
        assert!(!lines.command(1, 0, Payload::Inline(&[])));
        lines.set_asleep(true);
        assert!(lines.command(2, 0, Payload::Inline(&[])));
        assert!(!lines.reply(1, 0, Payload::Inline(&[])));
        lines.set_wants_bell(true);
        assert!(lines.reply(2, 0, Payload::Inline(&[])));
        lines.reset(2);
        assert!(!lines.command(3, 0, Payload::Inline(&[])) && !lines.reply(3, 0, Payload::Inline(&[])));
    }
}
