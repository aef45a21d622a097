//! The record after a chunk, with pictures of its lanes. Layout: docs/replay-format.md.

use rollhouse_core::limits::BLOCK_LANES;

use crate::code::chunk::{Decoder, Part};
use crate::code::codec::{Cursor, Malformed, put_varint};
use crate::code::frame::{Frame, Frames};
use crate::limits::{CHUNK_FRAMES_BYTES, CHUNK_ROWS};

/// Pictures of one chunk's lanes, as the stepping thread leaves them.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    frames: Vec<(FramePlace, Frame)>,
    bytes: usize,
}

/// The place of a picture in its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FramePlace {
    /// Rows of the chunk before the picture.
    pub(crate) pos: u16,
    pub(crate) lane: u8,
    /// Whether the picture shows what a reset gave: an episode may end and the next begin at one place.
    pub(crate) is_first: bool,
}

impl FrameBuffer {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a picture; false if there are too many.
    pub(crate) fn push(&mut self, place: FramePlace, frame: Frame) -> bool {
        if self.bytes + frame.bytes().len() > CHUNK_FRAMES_BYTES {
            return false;
        }
        self.bytes += frame.bytes().len();
        self.frames.push((place, frame));
        true
    }

    /// Appends the pictures of lanes in `present` as a payload; nothing if there are none.
    pub(crate) fn put(&self, present: u64, out: &mut Vec<u8>) {
        let kept = || self.frames.iter().filter(|(place, _)| present >> place.lane & 1 == 1);
        if kept().next().is_none() {
            return;
        }
        out.push(VERSION);
        put_varint(out, kept().count() as u64);
        let mut last = 0;
        for (place, frame) in kept() {
            // Pictures come in the order of the rows, and those of one row in any order of lanes.
            put_varint(out, u64::from(place.pos - last));
            last = place.pos;
            out.push(place.lane << 1 | u8::from(place.is_first));
            put_varint(out, frame.bytes().len() as u64);
        }
        kept().for_each(|(_, frame)| out.extend_from_slice(frame.bytes()));
    }
}

/// Reads the pictures in a payload.
pub(crate) fn read(payload: &[u8]) -> Result<Vec<(FramePlace, &[u8])>, Malformed> {
    let mut cursor = Cursor::new(payload);
    if cursor.u8("version of pictures")? != VERSION {
        return Err(Malformed("version of pictures"));
    }
    let count = cursor.count(LEAST_ENTRY_BYTES, "picture count")?;
    let mut bytes = cursor;
    for _ in 0..count {
        bytes.varint("picture")?;
        bytes.u8("picture")?;
        bytes.varint("picture")?;
    }
    let mut found = Vec::with_capacity(count);
    let mut pos = 0u64;
    for _ in 0..count {
        pos = pos.saturating_add(cursor.varint("picture")?);
        let (lane, length) = (cursor.u8("picture")?, cursor.varint("picture")?);
        if pos > CHUNK_ROWS as u64 || usize::from(lane >> 1) >= BLOCK_LANES {
            return Err(Malformed("picture"));
        }
        let place = FramePlace { pos: pos as u16, lane: lane >> 1, is_first: lane & 1 == 1 };
        found.push((place, bytes.take(usize::try_from(length).unwrap_or(usize::MAX), "picture length")?));
    }
    if bytes.left() > 0 { Err(Malformed("picture length")) } else { Ok(found) }
}

/// Adds to `to` the pictures in a payload that belong to one part of the chunk before it.
pub(crate) fn take(payload: &[u8], decoder: &Decoder, part: &Part, to: &mut Frames) -> Result<(), Malformed> {
    for (place, bytes) in
        read(payload)?.into_iter().filter(|(place, _)| place.lane as usize == part.piece.lane)
    {
        if let Some(step) = step_of(place, decoder, part)
            && let Ok(frame) = Frame::of_bytes(bytes)
        {
            to.push(step, frame);
        }
    }
    Ok(())
}

/// Returns the step of a part that a picture shows; `None` if it shows another episode.
fn step_of(place: FramePlace, decoder: &Decoder, part: &Part) -> Option<u64> {
    let (piece, pos) = (&part.piece, usize::from(place.pos));
    let rows = decoder.stepped.get(piece.from_row..pos).filter(|_| pos <= piece.to_row)?;
    let stepped = rows.iter().filter(|&&lanes| lanes >> piece.lane & 1 == 1).count() as u64;
    let step = piece.from_age + stepped;
    (place.is_first == (step == 0)).then_some(step)
}

/// Version of the payload's layout.
const VERSION: u8 = 1;
/// Bytes that a picture's entry takes at least: rows, lane and length.
const LEAST_ENTRY_BYTES: usize = 3;

const _: () = assert!(CHUNK_ROWS < u16::MAX as usize && BLOCK_LANES <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(pos: u16, lane: u8, is_first: bool) -> FramePlace {
        FramePlace { pos, lane, is_first }
    }

    fn payload(present: u64) -> Vec<u8> {
        let mut buffer = FrameBuffer::default();
        for (index, place) in
            [place(0, 3, true), place(2, 3, false), place(2, 1, false), place(300, 63, true)]
                .into_iter()
                .enumerate()
        {
            assert!(buffer.push(place, Frame::of_bytes(vec![index as u8; index * 50]).unwrap()));
        }
        let mut out = Vec::new();
        buffer.put(present, &mut out);
        out
    }

    #[test]
    fn pictures_read_back_those_of_absent_lanes_left_out() {
        let all = payload(u64::MAX);
        let found = read(&all).unwrap();
        let wanted = [place(0, 3, true), place(2, 3, false), place(2, 1, false), place(300, 63, true)];
        assert_eq!(found.iter().map(|(place, _)| *place).collect::<Vec<_>>(), wanted);
        assert!(found.iter().enumerate().all(|(index, (_, bytes))| *bytes == vec![index as u8; index * 50]));
        let some = payload(1 << 3 | 1 << 63);
        assert_eq!(read(&some).unwrap().iter().map(|(place, _)| place.lane).collect::<Vec<_>>(), [3, 3, 63]);
        assert!(payload(1 << 5).is_empty());
    }

    #[test]
    fn cut_or_strange_payloads_are_malformed() {
        let whole = payload(u64::MAX);
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = whole.clone();
            bytes[at] = to;
            bytes
        };
        assert!(read(&changed(0, 2)).is_err(), "another version");
        assert!(read(&changed(3, 200)).is_err(), "a lane beyond a block's");
        assert!(read(&changed(1, 127)).is_err(), "more pictures than fit");
        assert!(read(&[whole, vec![0]].concat()).is_err(), "bytes behind the last picture");
    }

    #[test]
    fn a_chunk_takes_no_more_pictures_than_its_bound() {
        let mut buffer = FrameBuffer::default();
        let one = Frame::of_bytes(vec![0; 1 << 20]).unwrap();
        let taken = (0..1000).take_while(|_| buffer.push(place(1, 0, false), one.clone())).count();
        assert_eq!(taken, CHUNK_FRAMES_BYTES >> 20);
    }
}
