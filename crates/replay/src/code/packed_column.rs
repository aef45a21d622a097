//! A packed column of a chunk: each lane's rows one after the other, compressed.

use std::collections::BTreeMap;

use rollhouse_core::LaneSet;
use rollhouse_core::limits::BLOCK_LANES;

use crate::code::chunk::{Decoder, Part};
use crate::code::codec::{Cursor, Malformed, put_varint};
use crate::code::packed::rows::{CHANGED, Entry, PackedRows, WHOLE};
use crate::code::packed::stack::Stack;
use crate::code::packed::{Packing, delta};
use crate::limits::{CHUNK_UNPACKED_BYTES, EPISODE_UNPACKED_BYTES};

/// The kept rows and begins of a chunk: of other episodes nothing is written.
pub(crate) struct KeptRows<'a> {
    rows: &'a [u64],
    /// For each lane whether the episodes that began are kept, in their order.
    begins: [Vec<bool>; BLOCK_LANES],
}

impl<'a> KeptRows<'a> {
    /// Takes the lanes that stepped in kept episodes in each row, and of each begin its key and whether it is kept.
    pub(crate) fn new(rows: &'a [u64], keys: &[u32], kept: &[bool]) -> Self {
        let mut begins = [const { Vec::new() }; BLOCK_LANES];
        keys.iter().zip(kept).for_each(|(key, kept)| begins[(key & 63) as usize].push(*kept));
        Self { rows, begins }
    }

    /// Returns the kept entries of each lane.
    fn by_lane(&self, entries: &[Entry]) -> Vec<Vec<usize>> {
        let mut begins = self.begins.each_ref().map(|begins| begins.iter());
        let mut found = vec![Vec::new(); BLOCK_LANES];
        for (index, entry) in entries.iter().enumerate() {
            let lane = usize::from(entry.lane);
            let is_kept = if entry.is_first {
                begins[lane].next().is_some_and(|kept| *kept)
            } else {
                self.rows.get(usize::from(entry.row)).is_some_and(|row| row >> lane & 1 == 1)
            };
            if is_kept {
                found[lane].push(index);
            }
        }
        found
    }
}

/// Appends the column of a chunk; nothing if no row of it is kept.
pub(crate) fn put(packing: &Packing, rows: &PackedRows, kept: &KeptRows<'_>, out: &mut Vec<u8>) {
    let lanes = kept.by_lane(&rows.entries);
    let present = (0..).zip(&lanes).filter(|(_, entries)| !entries.is_empty());
    let mask = present.fold(0u64, |mask, (lane, _)| mask | 1 << lane);
    if mask == 0 {
        return;
    }
    put_varint(out, packing.stacks.len() as u64);
    for stack in &packing.stacks {
        put_varint(out, stack.block() as u64);
        put_varint(out, stack.shift() as u64);
    }
    out.extend_from_slice(&mask.to_le_bytes());
    let (mut plain, mut streams) = (Vec::new(), Vec::new());
    for entries in lanes.iter().filter(|entries| !entries.is_empty()) {
        plain.clear();
        entries.iter().for_each(|&index| plain.extend_from_slice(rows.of_entry(index)));
        let compressed = lz4_flex::block::compress(&plain);
        let stream = if compressed.len() < plain.len() { &compressed } else { &plain };
        put_varint(out, plain.len() as u64);
        put_varint(out, stream.len() as u64);
        streams.extend_from_slice(stream);
    }
    out.append(&mut streams);
}

/// Streams of a chunk's lanes that were decompressed, by column and lane: several episodes may lie in one.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: BTreeMap<(usize, usize), Vec<u8>>,
    bytes: usize,
}

/// A packed column that is read: its bytes, its place among the observation and info columns, the bytes of a row, and
/// whether it has first observations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedColumn<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) place: usize,
    pub(crate) row_bytes: usize,
    pub(crate) has_firsts: bool,
}

/// The rows of one episode's part in the stream of its lane.
#[derive(Debug, Clone, Copy)]
struct PartRows {
    /// Rows before the part's, the part's own, and all of the lane.
    before: usize,
    own: usize,
    all: usize,
}

impl PackedColumn<'_> {
    /// Appends the rows of an episode's part, its first observation before them if the episode begins in the chunk. `rows`
    /// comes from [`Decoder::kept_rows`]. What they take in memory is taken from the bytes that are `left` to the episode.
    ///
    /// # Errors
    /// If the column does not have the part's rows, or [`TOO_LARGE`].
    pub(crate) fn read(
        &self,
        decoder: &Decoder,
        part: &Part,
        rows: &[u64],
        streams: &mut Streams,
        left: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let places = self.places(decoder, part, rows);
        self.read_rows(part.piece.lane, &places, streams, left, out)
    }

    fn read_rows(
        &self,
        lane: usize,
        places: &PartRows,
        streams: &mut Streams,
        left: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        if places.own == 0 {
            return Ok(());
        }
        *left = left.checked_sub(places.own.saturating_mul(self.row_bytes)).ok_or(TOO_LARGE)?;
        let mut cursor = Cursor::new(self.bytes);
        let stacks = self.read_stacks(&mut cursor)?;
        let stream = self.lane_stream(cursor, lane, places.all, streams)?;
        let mut entries = Entries { cursor: Cursor::new(stream), stacks, row_bytes: self.row_bytes };
        for _ in 0..places.before {
            entries.skip()?;
        }
        let from = out.len();
        for _ in 0..places.own {
            entries.read(from, out)?;
        }
        Ok(())
    }

    /// Returns where the part's rows are in the stream of its lane.
    fn places(&self, decoder: &Decoder, part: &Part, rows: &[u64]) -> PartRows {
        let mut places = PartRows { before: 0, own: 0, all: 0 };
        let mut is_before = true;
        for other in decoder.parts.iter().filter(|other| other.kept && other.piece.lane == part.piece.lane) {
            let piece = &other.piece;
            let stepped = rows[piece.from_row..piece.to_row].iter().filter(|row| *row >> piece.lane & 1 == 1);
            let first = self.has_firsts && decoder.has_begun(piece.lane, piece.number);
            let count = stepped.count() + usize::from(first);
            if piece.number == part.piece.number {
                (places.own, is_before) = (count, false);
            } else if is_before {
                places.before += count;
            }
            places.all += count;
        }
        places
    }

    fn read_stacks(&self, cursor: &mut Cursor<'_>) -> Result<Vec<Stack>, Malformed> {
        let count = cursor.count_of(MAX_STACKS, 2, WHAT)?;
        (0..count).map(|_| Stack::read(self.row_bytes, cursor.varint(WHAT)?, cursor.varint(WHAT)?)).collect()
    }

    /// Returns the stream of a lane that has `entries` rows, decompressed.
    fn lane_stream<'s>(
        &self,
        mut cursor: Cursor<'_>,
        lane: usize,
        entries: usize,
        streams: &'s mut Streams,
    ) -> Result<&'s [u8], Malformed> {
        let mask = cursor.u64(WHAT)?;
        let mut found = None;
        let mut before = 0usize;
        for other in LaneSet::of_bits(mask) {
            let (plain, stored) = (cursor.varint(WHAT)?, cursor.varint(WHAT)?);
            let stored = usize::try_from(stored).map_err(|_| Malformed(WHAT))?;
            if other == lane {
                found = Some((plain, before, stored));
            }
            before = before.checked_add(stored).ok_or(Malformed(WHAT))?;
        }
        let (plain, before, stored) = found.ok_or(Malformed(WHAT))?;
        cursor.take(before, WHAT)?;
        let stored = cursor.take(stored, WHAT)?;
        // Neither rows nor LZ4 can be longer: no memory is taken for what cannot be there.
        let of_rows = entries.saturating_mul(1 + delta::most_bytes(self.row_bytes)).min(CHUNK_UNPACKED_BYTES);
        let most = of_rows.min(stored.len().saturating_mul(MOST_OF_A_BYTE));
        let plain = usize::try_from(plain).ok().filter(|plain| *plain <= most).ok_or(Malformed(WHAT))?;
        streams.of((self.place, lane), plain, stored)
    }
}

impl Streams {
    fn of(&mut self, at: (usize, usize), plain: usize, stored: &[u8]) -> Result<&[u8], Malformed> {
        if !self.streams.contains_key(&at) {
            if self.bytes > CHUNK_UNPACKED_BYTES - plain {
                self.streams.clear();
                self.bytes = 0;
            }
            let stream = if plain == stored.len() { stored.to_vec() } else { decompress(plain, stored)? };
            self.bytes += plain;
            self.streams.insert(at, stream);
        }
        self.streams.get(&at).map(Vec::as_slice).ok_or(Malformed(WHAT))
    }
}

fn decompress(plain: usize, stored: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = vec![0; plain];
    match lz4_flex::block::decompress_into(stored, &mut out) {
        Ok(written) if written == plain => Ok(out),
        _ => Err(Malformed(WHAT)),
    }
}

/// The entries of one lane, read one after the other.
struct Entries<'a> {
    cursor: Cursor<'a>,
    stacks: Vec<Stack>,
    row_bytes: usize,
}

impl Entries<'_> {
    fn stack(&self, head: u8) -> Result<Stack, Malformed> {
        let index = usize::from(head) - usize::from(CHANGED) - 1;
        self.stacks.get(index).copied().ok_or(Malformed(WHAT))
    }

    fn skip(&mut self) -> Result<(), Malformed> {
        match self.cursor.u8(WHAT)? {
            WHOLE => self.cursor.take(self.row_bytes, WHAT).map(|_| ()),
            CHANGED => delta::skip(&mut self.cursor, self.row_bytes),
            head => {
                let stack = self.stack(head)?;
                delta::skip(&mut self.cursor, stack.new_bytes(self.row_bytes))
            }
        }
    }

    /// Appends the next row to those of its episode, which begin at `from`.
    fn read(&mut self, from: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let head = self.cursor.u8(WHAT)?;
        if head == WHOLE {
            out.extend_from_slice(self.cursor.take(self.row_bytes, WHAT)?);
            return Ok(());
        }
        let at = out.len();
        // Nothing is known of rows of other episodes: they may not have been kept.
        let last = at.checked_sub(self.row_bytes).filter(|last| *last >= from).ok_or(Malformed(WHAT))?;
        out.extend_from_within(last..at);
        let row = &mut out[at..];
        if head == CHANGED {
            return delta::apply(&mut self.cursor, row);
        }
        let stack = self.stack(head)?;
        let mut new = Vec::new();
        stack.take_new(row, &mut new);
        delta::apply(&mut self.cursor, &mut new)?;
        stack.push(row, &new);
        Ok(())
    }
}

/// What is said of an episode whose packed columns take more than [`EPISODE_UNPACKED_BYTES`].
pub(crate) const TOO_LARGE: Malformed =
    Malformed("episode: its packed columns take more than 4294967296 bytes of memory");
const _: () = assert!(EPISODE_UNPACKED_BYTES == 4_294_967_296, "as TOO_LARGE says");

const WHAT: &str = "packed column";
/// Stacks that a column may name.
const MAX_STACKS: usize = 16;
/// Bytes that one byte of LZ4 gives at most.
const MOST_OF_A_BYTE: usize = 255;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rollhouse_core::split_mix64;

    use super::*;
    use crate::code::packed::rows::Packer;

    const SHAPE: [usize; 3] = [4, 5, 6];
    const ROW: usize = 120;

    fn packing() -> Packing {
        Packing { row_bytes: ROW, stacks: Stack::possible(&SHAPE, 1) }
    }

    /// Some row after `before`: the same, a few bytes changed, a frame pushed, or all new.
    fn next_row(before: &[u8], dice: u64) -> Vec<u8> {
        let bytes = (0..ROW as u64).map(|at| split_mix64(dice ^ at << 8) as u8).collect::<Vec<_>>();
        let mut row = before.to_vec();
        match dice % 4 {
            0 => row[dice as usize / 4 % ROW] ^= 1,
            1 => packing().stacks[0].push(&mut row, &bytes[..ROW / 4]),
            2 => row = bytes,
            _ => {}
        }
        row
    }

    fn column(bytes: &[u8]) -> PackedColumn<'_> {
        PackedColumn { bytes, place: 0, row_bytes: ROW, has_firsts: true }
    }

    fn read(bytes: &[u8], lane: usize, places: PartRows) -> Result<Vec<u8>, Malformed> {
        let (mut left, mut out) = (places.own * ROW, Vec::new());
        column(bytes).read_rows(lane, &places, &mut Streams::default(), &mut left, &mut out)?;
        assert_eq!(left, 0);
        Ok(out)
    }

    /// Packs the rows of two lanes, of which each has an episode of `first` rows and one of the others. Of lane 1 the first
    /// one is not kept.
    fn packed(rows: &[[Vec<u8>; 2]], first: usize) -> Vec<u8> {
        let (mut packer, mut to) = (Packer::new(packing(), 2), PackedRows::default());
        for (row, lanes) in rows.iter().enumerate() {
            for (lane, now) in lanes.iter().enumerate() {
                if row == first {
                    packer.begin_episode(lane);
                }
                packer.push(now, row as u16, lane, row == first, &mut to);
            }
        }
        let kept: Vec<u64> = (0..rows.len()).map(|row| if row < first { 1 } else { 3 }).collect();
        let (keys, begun) = ([first as u32 * 64, first as u32 * 64 + 1], [true; 2]);
        let mut out = Vec::new();
        put(&packing(), &to, &KeptRows::new(&kept, &keys, &begun), &mut out);
        out
    }

    proptest! {
        #[test]
        fn rows_of_kept_episodes_read_back_and_hostile_bytes_give_no_more_of_them(
            dice in prop::collection::vec(any::<[u64; 2]>(), 2..60),
            cut: prop::sample::Index,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            claimed in 0usize..200,
        ) {
            let mut rows: Vec<[Vec<u8>; 2]> = Vec::new();
            let mut last = [vec![7; ROW], vec![9; ROW]];
            for dice in &dice {
                last = [next_row(&last[0], dice[0]), next_row(&last[1], dice[1])];
                rows.push(last.clone());
            }
            let first = cut.index(rows.len() - 1) + 1;
            let bytes = packed(&rows, first);
            let all = |lane: usize, from: usize, to: usize| {
                rows[from..to].iter().flat_map(|row| row[lane].clone()).collect::<Vec<u8>>()
            };
            let (count, later) = (rows.len(), rows.len() - first);
            let places = |before, own, all| PartRows { before, own, all };
            prop_assert_eq!(read(&bytes, 0, places(0, first, count)), Ok(all(0, 0, first)));
            prop_assert_eq!(read(&bytes, 0, places(first, later, count)), Ok(all(0, first, count)));
            prop_assert_eq!(read(&bytes, 1, places(0, later, later)), Ok(all(1, first, count)));
            prop_assert!(read(&bytes, 2, places(0, 1, 1)).is_err(), "a lane without rows");
            prop_assert!(read(&bytes, 1, places(0, later + 1, later + 1)).is_err(), "more rows than there are");
            // Whatever the bytes, as many rows are read as are asked for, or none.
            let mut hostile = bytes;
            for (at, byte) in changes {
                let at = at.index(hostile.len());
                hostile[at] = byte;
            }
            if let Ok(found) = read(&hostile, 0, places(0, claimed, claimed)) {
                prop_assert_eq!(found.len(), claimed * ROW);
            }
        }

        #[test]
        fn arbitrary_bytes_are_a_column_or_malformed(
            bytes in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200), claimed in 0usize..50,
        ) {
            if let Ok(found) = read(&bytes, 0, PartRows { before: 0, own: claimed, all: claimed }) {
                prop_assert_eq!(found.len(), claimed * ROW);
            }
        }
    }

    #[test]
    fn a_stream_that_claims_more_than_its_rows_or_its_bytes_can_give_is_refused_before_memory_is_taken() {
        let claiming = |plain: u64, stored: &[u8]| {
            let mut bytes = vec![0];
            bytes.extend_from_slice(&1u64.to_le_bytes());
            put_varint(&mut bytes, plain);
            put_varint(&mut bytes, stored.len() as u64);
            bytes.extend_from_slice(stored);
            bytes
        };
        let one = PartRows { before: 0, own: 1, all: 1 };
        for plain in [1 + ROW as u64 + 17, 1 << 40, u64::MAX] {
            assert_eq!(read(&claiming(plain, &[0; 8]), 0, one), Err(Malformed(WHAT)));
        }
        let many = PartRows { before: 0, own: 1, all: 1 << 30 };
        assert_eq!(read(&claiming(8 * 255 + 1, &[0; 8]), 0, many), Err(Malformed(WHAT)));
        let (mut left, mut out) = (ROW - 1, Vec::new());
        let refused = column(&[]).read_rows(0, &one, &mut Streams::default(), &mut left, &mut out);
        assert_eq!(refused, Err(TOO_LARGE));
    }
}
