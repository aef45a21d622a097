//! Rings of bytes in shared memory, each with one writer, one reader and no locks.
//!
//! A record is its length (u32), its bytes, and padding to a multiple of 8. It never wraps around: where it would, the
//! writer leaves the marker [`SKIP`] and begins again at the ring's first byte. Cursors count all bytes ever written
//! and read. The writer's cursor and the bytes lie in the writer's memory, the reader's cursor in the reader's.
//!
//! The other side may be hostile: whatever its cursor or a length says, nothing outside the ring is reached and each
//! call ends after at most two looks.

use crate::mapping::WORD;
use crate::words::{Words, WordsMut};

/// Place of a ring in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingPlace {
    /// Offset of the ring's first byte, in the writer's memory; a multiple of 8.
    pub(crate) data: usize,
    /// Length of the ring in bytes, a power of two of at least [`MIN_RING_BYTES`].
    pub(crate) bytes: usize,
    /// Offset of the writer's cursor, in the writer's memory.
    pub(crate) written: usize,
    /// Offset of the reader's cursor, in the reader's memory.
    pub(crate) read: usize,
}

/// The writer's end of a ring.
#[derive(Debug)]
pub(crate) struct RingWriter {
    place: RingPlace,
    written: u64,
    /// The reader's cursor as last seen.
    read: u64,
}

/// The reader's end of a ring.
#[derive(Debug)]
pub(crate) struct RingReader {
    place: RingPlace,
    read: u64,
    /// The writer's cursor as last seen.
    written: u64,
}

/// Fault in the other side's part of a ring, or in the record that was to be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The record has more bytes than this ring takes, which is the caller's fault.
    #[error("a record of {bytes} bytes, at most {most} fit the ring")]
    TooLong {
        /// Number of bytes in the record.
        bytes: usize,
        /// Maximum number of bytes in a record.
        most: usize,
    },
    /// The peer's cursor went backwards or too far ahead, or is no multiple of 8.
    #[error("a ring cursor of {cursor}, which must be {least} to {most} in steps of {WORD}")]
    Cursor {
        /// Value of the peer's cursor.
        cursor: u64,
        /// Least value that the cursor can have.
        least: u64,
        /// Greatest value that the cursor can have.
        most: u64,
    },
    /// A record is longer than what the peer has written, or than a record may be.
    #[error("a record of {length} bytes where a ring has {available}")]
    Length {
        /// Length that the peer wrote.
        length: u32,
        /// Number of bytes that are there for the record.
        available: usize,
    },
}

impl RingWriter {
    /// Makes a writer that goes on from its cursor in `own`.
    pub(crate) fn resume(place: RingPlace, own: &impl Words, peer: &impl Words) -> Result<Self, RingError> {
        let written = own.load(place.written);
        check_cursor(written, 0, MOST_WRITTEN)?;
        let read = peer.load(place.read);
        let mut writer = Self { place, written, read: written.saturating_sub(place.bytes as u64) };
        writer.see(read)?;
        Ok(writer)
    }

    /// Writes a record and returns true. Returns false and writes nothing if there is no room for it now.
    ///
    /// # Errors
    /// If it is too long for the ring at all, or the reader's cursor is wrong.
    pub(crate) fn push(
        &mut self,
        own: &impl WordsMut,
        peer: &impl Words,
        record: &[u8],
    ) -> Result<bool, RingError> {
        let most = most_record(self.place.bytes);
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        if record.len() > most {
            return Err(RingError::TooLong { bytes: record.len(), most });
        }
        let size = record_size(record.len());
        let at = self.offset(self.written);
        let skip = if at + size > self.place.bytes { self.place.bytes - at } else { 0 };
        let needed = skip + size;
        if needed > self.room() {
            // Pairs with the reader's release of its cursor: it has copied what it read.
            self.see(peer.load_acquire(self.place.read))?;
            if needed > self.room() {
                return Ok(false);
            }
        }
        let mut at = at;
        if skip > 0 {
            own.store(self.place.data + at, u64::from(SKIP));
            at = 0;
        }
        let start = self.place.data + at;
        let mut first = [0; WORD];
        let head = record.len().min(WORD - LENGTH_BYTES);
        first[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        first[LENGTH_BYTES..LENGTH_BYTES + head].copy_from_slice(&record[..head]);
        own.store(start, u64::from_ne_bytes(first));
        own.copy_from(start + WORD, &record[head..]);
        self.written += needed as u64;
        // Pairs with the reader's acquire of this cursor: it sees the record.
        own.store_release(self.place.written, self.written);
        Ok(true)
    }

    fn see(&mut self, read: u64) -> Result<(), RingError> {
        check_cursor(read, self.read, self.written)?;
        self.read = read;
        Ok(())
    }

    fn room(&self) -> usize {
        self.place.bytes - (self.written - self.read) as usize
    }

    fn offset(&self, cursor: u64) -> usize {
        cursor as usize & (self.place.bytes - 1)
    }
}

impl RingReader {
    /// Makes a reader that goes on from its cursor in `own`.
    pub(crate) fn resume(place: RingPlace, own: &impl Words, peer: &impl Words) -> Result<Self, RingError> {
        let read = own.load(place.read);
        check_cursor(read, 0, MOST_WRITTEN)?;
        let mut reader = Self { place, read, written: read };
        reader.see(peer.load(place.written))?;
        Ok(reader)
    }

    /// Returns whether there may be a record; cheap, and takes nothing.
    #[inline]
    pub(crate) fn pending(&self, peer: &impl Words) -> bool {
        peer.load(self.place.written) != self.read
    }

    /// Copies the next record over `record` and returns true; returns false if there is none.
    ///
    /// # Errors
    /// If the writer's cursor or a length is wrong: the ring is of no use any more.
    pub(crate) fn pop(
        &mut self,
        own: &impl WordsMut,
        peer: &impl Words,
        record: &mut Vec<u8>,
    ) -> Result<bool, RingError> {
        if self.written == self.read {
            // Pairs with the writer's release of its cursor.
            self.see(peer.load_acquire(self.place.written))?;
            if self.written == self.read {
                return Ok(false);
            }
        }
        let mut at = self.offset();
        let mut first = peer.load(self.place.data + at).to_ne_bytes();
        let mut available = (self.written - self.read) as usize;
        let mut length = length_of(first);
        if length == SKIP {
            let skip = self.place.bytes - at;
            // Nothing but a skip is never written, nor one over the whole ring.
            if at == 0 || skip >= available {
                return Err(RingError::Length { length, available });
            }
            (at, available) = (0, available - skip);
            self.read += skip as u64;
            first = peer.load(self.place.data).to_ne_bytes();
            length = length_of(first);
        }
        let most = most_record(self.place.bytes).min(self.place.bytes - at - LENGTH_BYTES);
        let size = match usize::try_from(length) {
            Ok(bytes) if bytes <= most && record_size(bytes) <= available => record_size(bytes),
            _ => return Err(RingError::Length { length, available }),
        };
        let bytes = length as usize;
        let head = bytes.min(WORD - LENGTH_BYTES);
        record.clear();
        record.extend_from_slice(&first[LENGTH_BYTES..LENGTH_BYTES + head]);
        record.resize(bytes, 0);
        peer.copy_to(self.place.data + at + WORD, &mut record[head..]);
        self.read += size as u64;
        // Pairs with the writer's acquire of this cursor: the record was copied.
        own.store_release(self.place.read, self.read);
        Ok(true)
    }

    fn see(&mut self, written: u64) -> Result<(), RingError> {
        check_cursor(written, self.written, self.read.saturating_add(self.place.bytes as u64))?;
        self.written = written;
        Ok(())
    }

    fn offset(&self) -> usize {
        self.read as usize & (self.place.bytes - 1)
    }
}

/// Returns the maximum number of bytes of a record in a ring of `ring` bytes: a quarter, so that a record always fits
/// in an empty ring, wherever its cursor stands.
pub(crate) const fn most_record(ring: usize) -> usize {
    ring / 4
}

fn check_cursor(cursor: u64, least: u64, most: u64) -> Result<(), RingError> {
    let sound = least <= cursor && cursor <= most && cursor.is_multiple_of(WORD as u64);
    sound.then_some(()).ok_or(RingError::Cursor { cursor, least, most })
}

const fn record_size(bytes: usize) -> usize {
    (LENGTH_BYTES + bytes).next_multiple_of(WORD)
}

fn length_of(first: [u8; WORD]) -> u32 {
    u32::from_le_bytes([first[0], first[1], first[2], first[3]])
}

/// Number of bytes after which a ring is taken for a damaged one: at 10 GB/s after 29 years.
const MOST_WRITTEN: u64 = 1 << 63;

/// Marker in the place of a length, which says that the next record is at the ring's first byte.
const SKIP: u32 = u32::MAX;
const LENGTH_BYTES: usize = size_of::<u32>();

/// Number of bytes in the smallest ring.
pub const MIN_RING_BYTES: usize = 4096;

/// Number of bytes in the largest ring.
pub const MAX_RING_BYTES: usize = 64 << 20;

/// Number of bytes in a ring unless another size is asked for: records have up to 128 KiB.
pub const DEFAULT_RING_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::words::plain::Plain;

    const BYTES: usize = MIN_RING_BYTES;
    const PLACE: RingPlace = RingPlace { data: 64, bytes: BYTES, written: 0, read: 0 };

    struct Rig {
        /// The writer's memory and the reader's.
        sides: [Plain; 2],
        writer: RingWriter,
        reader: RingReader,
    }

    impl Rig {
        fn new() -> Self {
            // Exactly the ring behind the cursor: one word more or less would be a panic.
            let sides = [Plain::new(64 + BYTES), Plain::new(8)];
            let writer = RingWriter::resume(PLACE, &sides[0], &sides[1]).unwrap();
            let reader = RingReader::resume(PLACE, &sides[1], &sides[0]).unwrap();
            Self { sides, writer, reader }
        }

        fn push(&mut self, record: &[u8]) -> Result<bool, RingError> {
            self.writer.push(&self.sides[0], &self.sides[1], record)
        }

        fn pop(&mut self) -> Result<Option<Vec<u8>>, RingError> {
            let mut record = vec![7; 3];
            let popped = self.reader.pop(&self.sides[1], &self.sides[0], &mut record)?;
            Ok(popped.then_some(record))
        }
    }

    /// A record's length, mostly short, sometimes near the limit.
    fn length() -> impl Strategy<Value = usize> {
        prop_oneof![3 => 0..40usize, 1 => 0..=most_record(BYTES), 1 => Just(most_record(BYTES))]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_in_order(moves in prop::collection::vec((any::<bool>(), length()), 1..400)) {
            let mut rig = Rig::new();
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            let (mut number, mut bytes) = (0u8, 0);
            for (push, length) in moves {
                if push {
                    number = number.wrapping_add(1);
                    let record = vec![number; length];
                    let pushed = rig.push(&record).unwrap();
                    // There is room for it however the ring stands while three quarters of it are free.
                    prop_assert!(pushed || bytes > BYTES / 4);
                    if pushed {
                        bytes += record_size(length);
                        model.push_back(record);
                    }
                } else {
                    let record = rig.pop().unwrap();
                    bytes -= record.as_ref().map_or(0, |record| record_size(record.len()));
                    prop_assert_eq!(record, model.pop_front());
                }
                // Either side may go on from what stands in memory alone.
                let [own, peer] = &rig.sides;
                prop_assert_eq!(RingWriter::resume(PLACE, own, peer).unwrap().written, rig.writer.written);
                prop_assert_eq!(RingReader::resume(PLACE, peer, own).unwrap().read, rig.reader.read);
            }
        }

        /// A writer that writes anything anywhere in its memory: the reader gives records or names what is wrong.
        #[test]
        fn a_hostile_writer_gets_nothing_but_an_error(
            moves in prop::collection::vec((0..5u8, length(), 0..(64 + BYTES) / 8, any::<u64>()), 1..200),
        ) {
            let mut rig = Rig::new();
            let mut failed = false;
            for (what, length, word, value) in moves {
                match what {
                    0 => rig.sides[0].store(word * 8, value),
                    1 => rig.sides[0].store(0, value),
                    2 => rig.sides[0].store(0, rig.reader.read + value % (2 * BYTES as u64) / 8 * 8),
                    // Its own writer may have stopped at what it did to itself.
                    3 => drop(rig.push(&vec![1; length])),
                    _ => match rig.pop() {
                        Ok(Some(record)) => prop_assert!(record.len() <= most_record(BYTES)),
                        Ok(None) => {}
                        Err(error) => {
                            prop_assert!(!error.to_string().is_empty());
                            failed = true;
                        }
                    },
                }
                if failed {
                    break;
                }
            }
        }

        /// A reader whose cursor says anything: the writer never overwrites what an honest reader would still read,
        /// as far as the cursors that it believes say.
        #[test]
        fn a_hostile_reader_gets_nothing_but_an_error(
            moves in prop::collection::vec((0..3u8, length(), any::<u64>()), 1..200),
        ) {
            let mut rig = Rig::new();
            for (what, length, value) in moves {
                match what {
                    0 => rig.sides[1].store(0, value),
                    1 => rig.sides[1].store(0, rig.writer.written.wrapping_sub(value % (2 * BYTES as u64))),
                    _ => {
                        if let Err(error) = rig.push(&vec![1; length]) {
                            let cursor = matches!(error, RingError::Cursor { .. });
                            prop_assert!(cursor, "{}", error);
                            break;
                        }
                        prop_assert!(rig.writer.written - rig.writer.read <= BYTES as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn a_record_longer_than_a_quarter_of_the_ring_is_refused_by_name() {
        let error = Rig::new().push(&vec![0; most_record(BYTES) + 1]).unwrap_err();
        assert_eq!(error.to_string(), "a record of 1025 bytes, at most 1024 fit the ring");
    }

    #[test]
    fn a_skip_that_leads_nowhere_is_an_error_and_no_endless_loop() {
        let mut rig = Rig::new();
        rig.sides[0].store(64, u64::from(SKIP));
        rig.sides[0].store(0, BYTES as u64);
        assert!(matches!(rig.pop(), Err(RingError::Length { length: SKIP, .. })));
    }
}
