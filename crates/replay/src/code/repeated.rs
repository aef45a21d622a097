//! Columns of a chunk whose values may repeat: step columns and info columns. Layout: docs/replay-format.md, columns
//! 144 + i and 160 + i.

use rollhouse_core::LaneSet;

use crate::code::chunk::{Decoder, Part};
use crate::code::codec::{Cursor, Malformed, put_varint};
use crate::code::coding::repeated::{PLAIN, RUNS};
use crate::limits::EPISODE_EXPANDED_BYTES;

/// Runs of equal values that are being appended to a column, as long as it does not get too long.
pub(crate) struct Runs<'a> {
    out: &'a mut Vec<u8>,
    /// Length of `out` above which the runs are too long.
    most: usize,
    count: usize,
    last: &'a [u8],
}

impl<'a> Runs<'a> {
    /// Begins a column of runs that take at most `plain` bytes, those of the values themselves.
    pub(crate) fn begin(plain: usize, out: &'a mut Vec<u8>) -> Self {
        let most = out.len() + plain;
        out.push(RUNS);
        Self { out, most, count: 0, last: &[] }
    }

    /// Adds a value that `count` steps have. Returns false if the column got too long, which is no use any more then.
    pub(crate) fn push(&mut self, count: usize, value: &'a [u8]) -> bool {
        let same = self.count == 0 || value == self.last;
        let fits = same || self.put();
        self.count = count + if same { self.count } else { 0 };
        self.last = value;
        fits
    }

    /// Ends the column. Returns false if it got too long.
    pub(crate) fn finish(mut self) -> bool {
        self.count == 0 || self.put()
    }

    fn put(&mut self) -> bool {
        put_varint(self.out, self.count as u64);
        self.out.extend_from_slice(self.last);
        self.out.len() <= self.most
    }
}

/// Appends a column as runs that stands row by row in `plain`, with the values of the lanes that `kept` has for each row.
/// Returns false, with nothing appended, if that is not shorter.
pub(crate) fn put_shorter(plain: &[u8], kept: &[u64], row_bytes: usize, out: &mut Vec<u8>) -> bool {
    let from = out.len();
    if plain.is_empty() {
        return false;
    }
    let mut runs = Runs::begin(plain.len() - 1, out);
    let lanes = kept.iter().fold(0, |lanes, row| lanes | row);
    for lane in LaneSet::of_bits(lanes) {
        let (lanes_before, mut before) = (LaneSet::first(lane).bits(), 0);
        for row in kept {
            if row >> lane & 1 == 1 {
                let at = (before + (row & lanes_before).count_ones() as usize) * row_bytes;
                if !runs.push(1, &plain[at..at + row_bytes]) {
                    out.truncate(from);
                    return false;
                }
            }
            before += row.count_ones() as usize;
        }
    }
    let shorter = runs.finish();
    if !shorter {
        out.truncate(from);
    }
    shorter
}

/// Appends the values of an episode's part from a column of its chunk that is coded so; `rows` comes from [`Decoder::kept_rows`].
/// What is coded as runs is taken from the bytes that are `left` to the episode.
///
/// # Errors
/// If the column does not have a value for each of the part's steps, or [`TOO_LARGE`].
pub(crate) fn read(
    bytes: &[u8],
    row_bytes: usize,
    part: &Part,
    rows: &(Vec<u64>, Vec<usize>),
    left: &mut usize,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let lane = part.piece.lane;
    let here = part.piece.from_row..part.piece.to_row;
    let steps = |rows: &[u64]| rows.iter().filter(|row| *row >> lane & 1 == 1).count();
    let wanted = steps(&rows.0[here.clone()]);
    if wanted == 0 {
        return Ok(());
    }
    let mut cursor = Cursor::new(bytes);
    if cursor.u8(WHAT)? == PLAIN {
        return Decoder::raw_rows(&bytes[1..], row_bytes, part, rows, out);
    }
    *left = left.checked_sub(wanted.saturating_mul(row_bytes)).ok_or(TOO_LARGE)?;
    let lanes_before = LaneSet::first(lane).bits();
    let mut skipped = rows.0.iter().map(|row| (row & lanes_before).count_ones() as usize).sum::<usize>();
    skipped += steps(&rows.0[..here.start]);
    let mut missing = wanted;
    while missing > 0 {
        let count = usize::try_from(cursor.varint(WHAT)?).unwrap_or(0);
        if count == 0 {
            return Err(Malformed(WHAT));
        }
        let value = cursor.take(row_bytes, WHAT)?;
        let taken = count.saturating_sub(skipped).min(missing);
        skipped = skipped.saturating_sub(count);
        (0..taken).for_each(|_| out.extend_from_slice(value));
        missing -= taken;
    }
    Ok(())
}

/// What is said of an episode whose values take more than [`EPISODE_EXPANDED_BYTES`](crate::limits::EPISODE_EXPANDED_BYTES).
pub(crate) const TOO_LARGE: Malformed =
    Malformed("episode: its repeated values and its actions take more than 268435456 bytes of memory");

pub(crate) const WHAT: &str = "step column";
const _: () = assert!(EPISODE_EXPANDED_BYTES == 268_435_456, "as TOO_LARGE says");
