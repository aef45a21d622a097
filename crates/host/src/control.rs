//! The control part of a worker's memory, through which the worker and its host send each other commands and replies.
//!
//! ```text
//! command line, 128 bytes: sequence, code, payload length, host wants the bell
//! reply line,   128 bytes: sequence, code, payload length, worker is asleep,
//!                          how often the worker has tried to connect
//! inline areas: command payload, reply payload
//! the rest: the caller's
//! ```
//!
//! A memory belongs to one process: no other worker maps it, and a worker that is started again gets another. So whatever a
//! process writes, and what it left behind still does, reaches nobody but the host, which checks it.
//!
//! Each line is written by one side; the lines keep 128 bytes apart because processors fetch cache lines in pairs. A
//! sleeper announces itself and then looks at the sequence again; the other side raises the sequence and then looks
//! whether there is a sleeper ([`SharedMemory::announce_sleep`]): one of the two sees the other.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rollhouse_arena::SharedMemory;

/// Maximum number of bytes of a payload that lies in a worker's memory; longer payloads travel as descriptors.
pub const INLINE_BYTES: usize = 64 << 10;

/// Offset at which the caller's part of a memory begins, which is a page's.
pub(crate) const DATA_OFFSET: usize = REPLY_AREA + INLINE_BYTES;

/// Command line and reply line of a worker, in its memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    memory: &'a SharedMemory,
}

/// Head of a command or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) code: u64,
    /// Length of the payload. The reader checks it: the peer may have written anything.
    pub(crate) len: u64,
}

/// Creates the memory of a worker, with `bytes` for the caller.
pub(crate) fn new_memory(bytes: usize) -> io::Result<SharedMemory> {
    SharedMemory::create("rollhouse", DATA_OFFSET + bytes)
}

impl<'a> Lines<'a> {
    /// Returns the lines in a memory.
    #[inline]
    pub(crate) const fn of(memory: &'a SharedMemory) -> Self {
        Self { memory }
    }

    /// Sets both sequences, on the host's side, in a memory that no worker has been given yet.
    pub(crate) fn begin(self, sequence: u64) {
        self.memory.word(REPLY + SEQUENCE).store(sequence, Relaxed);
        self.memory.word(SEQUENCE).store(sequence, Release);
    }

    /// Writes command number `sequence`, on the host's side, and returns whether the worker has to be woken.
    pub(crate) fn command(self, sequence: u64, code: u64, inline: Payload<'_>) -> bool {
        self.put(0, COMMAND_AREA, sequence, code, inline);
        self.memory.has_sleeper(ASLEEP)
    }

    /// Writes reply number `sequence`, on the worker's side, and returns whether the host has to be woken.
    pub(crate) fn reply(self, sequence: u64, code: u64, inline: Payload<'_>) -> bool {
        self.put(REPLY, REPLY_AREA, sequence, code, inline);
        self.wants_bell()
    }

    fn put(self, line: usize, area: usize, sequence: u64, code: u64, payload: Payload<'_>) {
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
        self.memory.word(SEQUENCE).load(Acquire)
    }

    /// Returns the number of the last reply, on the host's side.
    #[inline]
    pub(crate) fn replied(self) -> u64 {
        self.memory.word(REPLY + SEQUENCE).load(Acquire)
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
        let word = |word: usize| self.memory.word(line + word).load(Acquire);
        Head { code: word(CODE), len: word(LEN) }
    }

    /// Returns the payload of the last command, which is inline, on the worker's side.
    pub(crate) fn command_payload(self, len: usize) -> Vec<u8> {
        self.memory.read(COMMAND_AREA, len)
    }

    /// Returns the payload of the last reply, which is inline, on the host's side.
    pub(crate) fn reply_payload(self, len: usize) -> Vec<u8> {
        self.memory.read(REPLY_AREA, len)
    }

    /// Sets whether the worker sleeps for a command. The worker reads [`Lines::commanded`] once more after setting it.
    pub(crate) fn set_asleep(self, asleep: bool) {
        self.say(ASLEEP, asleep);
    }

    /// Sets how often the worker has tried again to connect, on its side, and returns whether the host has to be woken.
    pub(crate) fn set_connecting(self, retries: u64) -> bool {
        self.memory.word(CONNECTING).store(retries, Release);
        self.wants_bell()
    }

    /// Returns how often the worker has tried again to connect, on the host's side; 0 if it does not.
    pub(crate) fn connecting(self) -> u64 {
        self.memory.word(CONNECTING).load(Acquire)
    }

    /// Returns whether the host sleeps, on the worker's side, which has just written what the host reads when it wakes.
    pub(crate) fn wants_bell(self) -> bool {
        self.memory.has_sleeper(WANTS_BELL)
    }

    /// Sets whether the host sleeps for a reply. The host reads [`Lines::replied`] once more after setting it.
    pub(crate) fn set_wants_bell(self, wants: bool) {
        self.say(WANTS_BELL, wants);
    }

    fn say(self, word: usize, sleeps: bool) {
        if sleeps {
            self.memory.announce_sleep(word);
        } else {
            self.memory.withdraw_sleep(word);
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

const LINE_BYTES: usize = 128;
const REPLY: usize = LINE_BYTES;
/// Areas of inline payloads, of which the first begins at a page.
const COMMAND_AREA: usize = 4096;
const REPLY_AREA: usize = COMMAND_AREA + INLINE_BYTES;
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
    fn lines_and_areas_and_the_callers_part_lie_apart() {
        let memory = new_memory(64).unwrap();
        let lines = Lines::of(&memory);
        let [command, reply] = [1, 2].map(|byte| vec![byte; INLINE_BYTES]);
        lines.begin(6);
        assert_eq!((lines.commanded(), lines.replied()), (6, 6));
        lines.command(7, 10, Payload::Inline(&command));
        lines.reply(8, 20, Payload::Inline(&reply));
        assert_eq!((lines.commanded(), lines.replied()), (7, 8));
        let len = INLINE_BYTES as u64;
        assert_eq!(lines.command_head(), Head { code: 10, len });
        assert_eq!(lines.reply_head(), Head { code: 20, len });
        assert_eq!(lines.command_payload(INLINE_BYTES), command);
        assert_eq!(lines.reply_payload(INLINE_BYTES), reply);
        assert_eq!(memory.read(DATA_OFFSET, 64), [0; 64]);
    }

    #[test]
    fn whoever_sleeps_is_to_be_woken() {
        let memory = new_memory(0).unwrap();
        let lines = Lines::of(&memory);
        assert!(!lines.command(1, 0, Payload::Inline(&[])));
        lines.set_asleep(true);
        assert!(lines.command(2, 0, Payload::Inline(&[])));
        assert!(!lines.reply(1, 0, Payload::Inline(&[])));
        lines.set_wants_bell(true);
        assert!(lines.reply(2, 0, Payload::Inline(&[])));
        lines.set_asleep(false);
        lines.set_wants_bell(false);
        assert!(!lines.command(3, 0, Payload::Inline(&[])) && !lines.reply(3, 0, Payload::Inline(&[])));
    }
}
