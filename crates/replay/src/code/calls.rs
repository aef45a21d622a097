//! The calls that changed an episode's lane. Layout: docs/replay-format.md, column 10.

use rollhouse_core::Call;
use rollhouse_core::limits::{BLOCK_LANES, MAX_CALL_BYTES, MAX_METHOD_NAME_BYTES};

use crate::code::codec::{Cursor, Malformed, put_varint};
use crate::limits::MAX_CHUNK_EVENTS;

/// A call that changed an episode's lane, and its place among the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledAt {
    /// Number of steps that the episode had taken before.
    pub step: u64,
    /// The call.
    pub call: Call,
}

/// Returns those of an episode's calls, ascending by step, that came after `step` steps and before the next one.
pub(crate) fn calls_at(calls: &[CalledAt], step: u64) -> &[CalledAt] {
    if calls.is_empty() {
        return calls;
    }
    let from = calls.partition_point(|called| called.step < step);
    let to = calls.partition_point(|called| called.step <= step);
    &calls[from..to]
}

/// A call in a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkCall {
    pub(crate) lane: u8,
    /// Number of the episode in the lane.
    pub(crate) number: u64,
    pub(crate) at: CalledAt,
}

/// The place of a call that a buffer has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallPlace {
    pub(crate) lane: u8,
    pub(crate) number: u64,
    pub(crate) age: u64,
    /// Place of the call in the buffer's list.
    pub(crate) index: usize,
}

/// Writes the calls of a chunk, which are sorted by lane and episode; nothing if there are none.
pub(crate) fn put(out: &mut Vec<u8>, places: &mut [CallPlace], calls: &[Call]) {
    if places.is_empty() {
        return;
    }
    places.sort_by_key(|place| (place.lane, place.number));
    put_varint(out, places.len() as u64);
    for CallPlace { lane, number, age, index } in places {
        let Some(Call { method, payload }) = calls.get(*index) else { continue };
        out.push(*lane);
        put_varint(out, *number);
        put_varint(out, *age);
        for text in [method, payload] {
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Reads the calls of a chunk.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<ChunkCall>, Malformed> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut cursor = Cursor::new(bytes);
    let count = cursor.count_of(MAX_CHUNK_EVENTS, LEAST_BYTES, "call count")?;
    let mut calls: Vec<ChunkCall> = Vec::new();
    for _ in 0..count {
        let lane = cursor.u8("call: lane")?;
        let number = cursor.varint("call: episode")?;
        let step = cursor.varint("call: step")?;
        let method = text(&mut cursor, MAX_METHOD_NAME_BYTES, "call: method")?;
        let payload = text(&mut cursor, MAX_CALL_BYTES, "call: payload")?;
        let before = calls.last().map(|call| (call.lane, call.number, call.at.step));
        if usize::from(lane) >= BLOCK_LANES || before.is_some_and(|before| before > (lane, number, step)) {
            return Err(Malformed("call: order"));
        }
        calls.push(ChunkCall { lane, number, at: CalledAt { step, call: Call { method, payload } } });
    }
    Ok(calls)
}

/// Returns those of a chunk's calls that belong to an episode.
pub(crate) fn of_episode(calls: &[ChunkCall], lane: usize, number: u64) -> &[ChunkCall] {
    if calls.is_empty() {
        return calls;
    }
    let key = |call: &ChunkCall| (usize::from(call.lane), call.number);
    let from = calls.partition_point(|call| key(call) < (lane, number));
    let to = calls.partition_point(|call| key(call) <= (lane, number));
    &calls[from..to]
}

fn text(cursor: &mut Cursor<'_>, most: usize, what: &'static str) -> Result<String, Malformed> {
    let length = usize::try_from(cursor.varint(what)?).unwrap_or(usize::MAX);
    if length > most {
        return Err(Malformed(what));
    }
    let bytes = cursor.take(length, what)?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed(what))
}

/// Bytes that a call takes at least.
const LEAST_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, payload: &str) -> Call {
        Call { method: method.into(), payload: payload.into() }
    }

    fn written(places: &[(u8, u64, u64)], calls: &[Call]) -> Vec<u8> {
        let place = |(index, &(lane, number, age))| CallPlace { lane, number, age, index };
        let mut places: Vec<_> = places.iter().enumerate().map(place).collect();
        let mut bytes = Vec::new();
        put(&mut bytes, &mut places, calls);
        bytes
    }

    #[test]
    fn what_is_written_is_read_by_episode_in_the_order_in_which_it_happened() {
        let calls = [call("push", "1"), call("push", "2"), call("shake", ""), call("push", "3")];
        let bytes = written(&[(5, 1, 9), (0, 7, 0), (5, 0, 64), (5, 1, 9)], &calls);
        let read = read(&bytes).unwrap();
        let of = |lane, number| -> Vec<(u64, &str)> {
            let found = of_episode(&read, lane, number).iter();
            found.map(|call| (call.at.step, call.at.call.payload.as_str())).collect()
        };
        assert_eq!(of(5, 1), [(9, "1"), (9, "3")]);
        assert_eq!(of(5, 0), [(64, "")]);
        assert_eq!(of(0, 7), [(0, "2")]);
        assert_eq!(of(0, 8), []);
    }

    #[test]
    fn calls_out_of_order_of_no_lane_or_that_are_too_long_are_malformed() {
        let one = written(&[(63, 1, 2)], &[call("push", "5")]);
        assert_eq!(read(&one).unwrap().len(), 1);
        for (at, byte) in [(1, 64), (4, 65), (4, 200), (9, 2), (5, 0xFF)] {
            let mut bytes = one.clone();
            bytes[at] = byte;
            assert!(read(&bytes).is_err(), "byte {at} is {byte}");
        }
        for cut in 1..one.len() {
            assert!(read(&one[..cut]).is_err(), "{cut} bytes");
        }
        let mut twice = written(&[(3, 1, 2), (4, 1, 2)], &[call("a", ""), call("b", "")]);
        assert!(read(&twice).is_ok());
        twice[1] = 5;
        assert_eq!(read(&twice), Err(Malformed("call: order")));
        let long = written(&[(0, 0, 0)], &[call("a", &"x".repeat(MAX_CALL_BYTES + 1))]);
        assert_eq!(read(&long), Err(Malformed("call: payload")));
    }

    #[test]
    fn calls_of_a_step_are_those_between_it_and_the_next() {
        let at = |step| CalledAt { step, call: call("push", "1") };
        let calls = [at(0), at(3), at(3), at(9)];
        assert_eq!([0, 1, 3, 9, 10].map(|step| calls_at(&calls, step).len()), [1, 0, 2, 1, 0]);
    }
}
