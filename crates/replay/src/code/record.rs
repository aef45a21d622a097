//! Record headers, which have a fixed width and stand before every payload in a segment. Layout: docs/replay-format.md.

/// Bytes of a record header.
pub(crate) const HEADER_BYTES: usize = 64;
/// The resync mark: eight bytes that begin every record. Like PNG's, it has a byte above 127 and a line end,
/// so that text-mode transfers break it visibly.
pub(crate) const MARK: [u8; 8] = *b"\x89RHrec\r\n";
/// Version of the format.
pub(crate) const VERSION: u8 = 1;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first record of a segment: it has the segment's number.
    Segment,
    /// The header of a run: what its episodes share.
    Run,
    /// Rows of a block of lanes.
    Chunk,
    /// Everything before an offset has reached the disk.
    Mark,
    /// Nothing follows.
    Seal,
    /// The run ended in order; its writer did not break off episodes that are still open.
    RunEnd,
    /// Pictures of lanes in the chunk before it.
    Frames,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Segment, Self::Run, Self::Chunk, Self::Mark, Self::Seal, Self::RunEnd, Self::Frames];

    const fn code(self) -> u8 {
        self as u8 + 1
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// A record's header. Fields that a kind has no use for are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Chunk: lanes of the block.
    pub(crate) lanes: u16,
    pub(crate) payload_len: u32,
    /// Chunk, run, run end: index of the run in this segment.
    pub(crate) run: u32,
    /// Chunk: the block's first lane.
    pub(crate) first_lane: u32,
    /// Chunk: rows.
    pub(crate) rows: u32,
    /// Chunk: offset of the block's previous chunk in this segment, 0 if there is none. Frames: of the chunk. Run: 1 more
    /// than the index of the run against whose header this one is coded, 0 if it is whole.
    pub(crate) prev: u32,
    /// Chunk: rows of the block before this chunk. Mark: the durable offset. Segment: its number.
    pub(crate) position: u64,
    /// Wall clock in milliseconds since 1970; of a chunk, of its first row.
    pub(crate) ms: u64,
    /// Chunk, run, run end: the low 32 bits of the run id. Segment: random.
    pub(crate) tag: u32,
    pub(crate) payload_crc: u32,
}

impl Header {
    /// Makes a header of `kind` with nothing else set.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            lanes: 0,
            payload_len: 0,
            run: 0,
            first_lane: 0,
            rows: 0,
            prev: 0,
            position: 0,
            ms: 0,
            tag: 0,
            payload_crc: 0,
        }
    }

    /// Returns the bytes of the whole record, header and payload.
    pub(crate) const fn record_len(&self) -> u64 {
        HEADER_BYTES as u64 + self.payload_len as u64
    }

    /// Returns the header's bytes, with its checksum. The checksum covers bytes 0 to 59, and with them the payload's
    /// length and checksum.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(AT_MARK, &MARK);
        put(AT_VERSION, &[VERSION]);
        put(AT_KIND, &[self.kind.code()]);
        put(AT_LANES, &self.lanes.to_le_bytes());
        put(AT_PAYLOAD_LEN, &self.payload_len.to_le_bytes());
        put(AT_RUN, &self.run.to_le_bytes());
        put(AT_FIRST_LANE, &self.first_lane.to_le_bytes());
        put(AT_ROWS, &self.rows.to_le_bytes());
        put(AT_PREV, &self.prev.to_le_bytes());
        put(AT_POSITION, &self.position.to_le_bytes());
        put(AT_MS, &self.ms.to_le_bytes());
        put(AT_TAG, &self.tag.to_le_bytes());
        put(AT_PAYLOAD_CRC, &self.payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&out[..AT_HEADER_CRC]);
        out[AT_HEADER_CRC..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header in these bytes. `None` if mark, version, kind or checksum are wrong, or a number is so large
    /// that no recording reaches it and adding to it could overflow.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        if bytes[..MARK.len()] != MARK || bytes[AT_VERSION] != VERSION {
            return None;
        }
        if crc32c::crc32c(&bytes[..AT_HEADER_CRC]) != u32_at(bytes, AT_HEADER_CRC) {
            return None;
        }
        if u64_at(bytes, AT_POSITION) > MAX_POSITION || u64_at(bytes, AT_MS) > MAX_MS {
            return None;
        }
        Some(Self {
            kind: Kind::of(bytes[AT_KIND])?,
            lanes: u16::from_le_bytes([bytes[AT_LANES], bytes[AT_LANES + 1]]),
            payload_len: u32_at(bytes, AT_PAYLOAD_LEN),
            run: u32_at(bytes, AT_RUN),
            first_lane: u32_at(bytes, AT_FIRST_LANE),
            rows: u32_at(bytes, AT_ROWS),
            prev: u32_at(bytes, AT_PREV),
            position: u64_at(bytes, AT_POSITION),
            ms: u64_at(bytes, AT_MS),
            tag: u32_at(bytes, AT_TAG),
            payload_crc: u32_at(bytes, AT_PAYLOAD_CRC),
        })
    }
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Largest number of rows and largest offset: a lane that makes 10^9 steps a second reaches it after 146 years.
const MAX_POSITION: u64 = 1 << 62;
/// Latest wall clock, in milliseconds since 1970: the year 140,000.
const MAX_MS: u64 = 1 << 52;

const AT_MARK: usize = 0;
const AT_VERSION: usize = 8;
const AT_KIND: usize = 9;
const AT_LANES: usize = 10;
const AT_PAYLOAD_LEN: usize = 12;
const AT_RUN: usize = 16;
const AT_FIRST_LANE: usize = 20;
const AT_ROWS: usize = 24;
const AT_PREV: usize = 28;
const AT_POSITION: usize = 32;
const AT_MS: usize = 40;
const AT_TAG: usize = 48;
const AT_PAYLOAD_CRC: usize = 52;
/// Offset of the header's checksum; bytes 56 to 59 are zero.
const AT_HEADER_CRC: usize = 60;
const _: () = assert!(AT_HEADER_CRC + 4 == HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            lanes: 64,
            payload_len: 8000,
            run: 3,
            first_lane: 128,
            rows: 270,
            prev: 12_345,
            position: 1 << 40,
            ms: 1_700_000_000_000,
            tag: 0xDEAD_BEEF,
            payload_crc: 77,
            ..Header::new(Kind::Chunk)
        }
    }

    #[test]
    fn a_header_reads_back() {
        assert_eq!(Header::decode(&sample().encode()), Some(sample()));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn the_format_document_gives_the_fields_their_offsets() {
        let doc = include_str!("../../../../docs/replay-format.md");
        let offset = |name: &str| {
            let line = doc.lines().find(|l| l.split('|').nth(3).is_some_and(|c| c.trim() == name));
            let cell = line.unwrap_or_else(|| panic!("no row for {name}")).split('|').nth(1).unwrap();
            cell.trim().parse::<usize>().unwrap()
        };
        for (name, at) in [
            ("mark", AT_MARK),
            ("version", AT_VERSION),
            ("kind", AT_KIND),
            ("lanes", AT_LANES),
            ("payload length", AT_PAYLOAD_LEN),
            ("run", AT_RUN),
            ("first lane", AT_FIRST_LANE),
            ("rows", AT_ROWS),
            ("prev", AT_PREV),
            ("position", AT_POSITION),
            ("ms", AT_MS),
            ("tag", AT_TAG),
            ("payload CRC", AT_PAYLOAD_CRC),
            ("header CRC", AT_HEADER_CRC),
        ] {
            assert_eq!(offset(name), at, "{name}");
        }
        let mark = MARK.map(|byte| format!("{byte:02X}")).join(" ");
        assert!(doc.contains(&format!("`{mark}`")), "{mark}");
    }
}
