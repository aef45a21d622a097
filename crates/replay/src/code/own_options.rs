//! Options with which episodes began that are others than their run's. Layout: docs/replay-format.md, column 11.

use std::sync::Arc;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Options, msgpack};

use crate::code::codec::{Cursor, Malformed, put_varint};
use crate::limits::{MAX_CHUNK_EVENTS, MAX_CHUNK_OPTIONS_BYTES};

/// The options of a lane of a block from an episode on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnOptions {
    pub(crate) lane: u8,
    /// Number of the first episode that has them.
    pub(crate) from: u64,
    /// How they differ from the run's; `None` if they do not.
    pub(crate) difference: Option<Arc<Options>>,
}

impl OwnOptions {
    const fn key(&self) -> (u8, u64) {
        (self.lane, self.from)
    }
}

/// The options of the lanes of a block, as its recorder knows them.
#[derive(Debug, Default)]
pub(crate) struct LanesOptions(Vec<OwnOptions>);

impl LanesOptions {
    /// Notes the options of a lane from episode `from` on, and forgets those of episodes that are over: all but the one
    /// before. Returns what there is to write; `None` if the lane has its run's options as before.
    pub(crate) fn give(&mut self, lane: u8, from: u64, difference: Option<Options>) -> Option<OwnOptions> {
        if difference.is_none() && !self.0.iter().any(|own| own.lane == lane) {
            return None;
        }
        let newest =
            self.0.iter().filter(|own| own.lane == lane && own.from < from).map(|own| own.from).max();
        self.0.retain(|own| own.lane != lane || Some(own.from) == newest);
        // Lanes that are given options together mostly get the same.
        let known = self.0.last().and_then(|own| own.difference.clone());
        let difference = difference.map(|given| match known {
            Some(known) if *known == given => known,
            _ => Arc::new(given),
        });
        let own = OwnOptions { lane, from, difference };
        self.0.push(own.clone());
        Some(own)
    }

    /// Returns the options of all lanes whose options are others than the run's, or were in the episode before.
    pub(crate) fn all(&self) -> &[OwnOptions] {
        &self.0
    }
}

/// Notes options in the list of a chunk, in which an episode begins once.
pub(crate) fn note(list: &mut Vec<OwnOptions>, own: OwnOptions) {
    match list.iter_mut().find(|known| known.key() == own.key()) {
        Some(known) => *known = own,
        None => list.push(own),
    }
}

/// Writes the options of the lanes in `present`; nothing if they are the run's.
pub(crate) fn put(out: &mut Vec<u8>, list: &mut [OwnOptions], present: u64) {
    let is_present = |own: &&OwnOptions| present >> own.lane & 1 == 1;
    if !list.iter().filter(is_present).any(|own| own.difference.is_some()) {
        return;
    }
    list.sort_by_key(OwnOptions::key);
    let mut sets: Vec<&Arc<Options>> = Vec::new();
    let mut places = Vec::new();
    for own in list.iter().filter(is_present) {
        let place = own.difference.as_ref().map_or(0, |given| {
            // Only the latest sets are searched, so that lanes with sets of their own cost no square.
            let from = sets.len().saturating_sub(SEARCHED_SETS);
            let known = sets[from..].iter().position(|known| Arc::ptr_eq(known, given) || *known == given);
            known.map_or_else(
                || {
                    sets.push(given);
                    sets.len()
                },
                |at| from + at + 1,
            )
        });
        places.push((own, place as u64));
    }
    put_varint(out, sets.len() as u64);
    for set in &sets {
        // They are plain values with names; nothing in them can fail to be written.
        let bytes = rmp_serde::to_vec_named(&***set).unwrap_or_default();
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
    put_varint(out, places.len() as u64);
    for (own, place) in places {
        out.push(own.lane);
        put_varint(out, own.from);
        put_varint(out, place);
    }
}

/// Reads the options of a chunk, which are sorted by lane and episode.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<OwnOptions>, Malformed> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    if bytes.len() > MAX_CHUNK_OPTIONS_BYTES {
        return Err(Malformed("options: too many"));
    }
    let mut cursor = Cursor::new(bytes);
    let count = cursor.count_of(MAX_CHUNK_EVENTS, 2, "options: sets")?;
    let mut sets: Vec<Arc<Options>> = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(cursor.varint("options: set")?).unwrap_or(usize::MAX);
        let set = msgpack::decode(cursor.take(length, "options: set")?, MAX_CHUNK_OPTIONS_BYTES);
        sets.push(Arc::new(set.map_err(|_| Malformed("options: set"))?));
    }
    let count = cursor.count_of(MAX_CHUNK_EVENTS, 3, "options: count")?;
    let mut list: Vec<OwnOptions> = Vec::new();
    for _ in 0..count {
        let (lane, from) = (cursor.u8("options: lane")?, cursor.varint("options: episode")?);
        let place = cursor.varint("options: place")?;
        let difference = match usize::try_from(place).unwrap_or(usize::MAX) {
            0 => None,
            place => Some(sets.get(place - 1).ok_or(Malformed("options: place"))?.clone()),
        };
        let own = OwnOptions { lane, from, difference };
        if usize::from(lane) >= BLOCK_LANES || list.last().is_some_and(|last| last.key() >= own.key()) {
            return Err(Malformed("options: order"));
        }
        list.push(own);
    }
    Ok(list)
}

/// Returns how the options of an episode differ from those that its run has for its lane; `None` if they do not.
pub(crate) fn of_episode(list: &[OwnOptions], lane: usize, number: u64) -> Option<&Arc<Options>> {
    let to = list.partition_point(|own| (usize::from(own.lane), own.from) <= (lane, number));
    let newest = list[..to].last().filter(|own| usize::from(own.lane) == lane)?;
    newest.difference.as_ref()
}

/// Sets among which one is searched that is written already.
const SEARCHED_SETS: usize = 16;

#[cfg(test)]
mod tests {
    use rollhouse_core::{OptionSpec, OptionValue};

    use super::*;

    fn options(g: f64) -> Options {
        let spec = OptionSpec { name: "g".into(), default: OptionValue::Float(0.0), summary: String::new() };
        Options::check(&[spec], &[("g".into(), OptionValue::Float(g))]).unwrap()
    }

    fn own(lane: u8, from: u64, g: Option<f64>) -> OwnOptions {
        OwnOptions { lane, from, difference: g.map(options).map(Arc::new) }
    }

    fn written(list: &[OwnOptions], present: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, &mut list.to_vec(), present);
        bytes
    }

    #[test]
    fn an_episode_has_the_options_that_its_lane_was_given_last_before_it() {
        let list = [own(3, 7, Some(2.0)), own(3, 2, Some(1.0)), own(3, 9, None), own(5, 0, Some(2.0))];
        let read = read(&written(&list, u64::MAX)).unwrap();
        let of = |lane, number| of_episode(&read, lane, number).map(|own| own.float("g").unwrap());
        assert_eq!(
            [1, 2, 6, 7, 8, 9, 90].map(|number| of(3, number)),
            [None, Some(1.0), Some(1.0), Some(2.0), Some(2.0), None, None]
        );
        assert_eq!((of(5, 0), of(4, 100), of(6, 0)), (Some(2.0), None, None));
        assert_eq!(written(&list, 1 << 4), b"", "no lane that is present has any");
    }

    #[test]
    fn of_each_lane_the_options_of_two_episodes_are_known() {
        let mut lanes = LanesOptions::default();
        assert_eq!(lanes.give(1, 0, None), None);
        for from in 0..100 {
            assert!(lanes.give(1, from, Some(options(from as f64))).is_some());
            assert!(lanes.give(2, from, Some(options(from as f64))).is_some());
            assert!(lanes.all().len() <= 4);
        }
        assert_eq!(lanes.give(1, 100, None), Some(own(1, 100, None)));
        let of_lane = lanes.all().iter().filter(|own| own.lane == 1);
        assert_eq!(of_lane.map(|own| own.from).collect::<Vec<_>>(), [99, 100]);
    }

    #[test]
    fn options_out_of_order_of_no_lane_or_of_no_set_are_malformed() {
        let bytes = written(&[own(3, 2, Some(1.0)), own(3, 7, None)], u64::MAX);
        assert_eq!(read(&bytes).unwrap().len(), 2);
        for cut in 1..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{cut} bytes");
        }
        let entries = bytes.len() - 6;
        for (at, byte) in [(0, 64), (1, 3), (2, 0xC0), (entries, 64), (entries + 2, 2), (entries + 4, 1)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert!(read(&bytes).is_err(), "byte {at} is {byte}");
        }
        assert!(read(&vec![0; MAX_CHUNK_OPTIONS_BYTES + 1]).is_err());
    }
}
