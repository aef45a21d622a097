//! The segments that the store has set aside as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::arrivals::Arrival;
use super::counting::{add_all, take_all};

/// The segments that are set aside as a whole.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    segments: BTreeMap<Arrival, Quarantined>,
    /// The segments in the order in which they came.
    order: BTreeMap<u64, Arrival>,
    bytes: u64,
    /// Number of damaged ones that have something of a run, by the low bits of its id.
    damaged: BTreeMap<u32, u64>,
}

/// A segment that is set aside as a whole.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pub(crate) bytes: u64,
    /// Number of its episodes that are nowhere else, by run.
    pub(crate) runs: BTreeMap<u128, u64>,
    /// For a damaged segment, the low bits of the ids of all runs of which it has something, readable or not.
    pub(crate) damaged: BTreeSet<u32>,
}

impl Quarantine {
    pub(crate) fn has(&self, folder: &str, number: u64, crc: u32) -> bool {
        self.segments.contains_key(&(folder.into(), number, crc))
    }

    pub(crate) fn segments(&self) -> impl ExactSizeIterator<Item = (&Arrival, &Quarantined)> {
        self.segments.iter()
    }

    /// Returns the segments in the order in which they came.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.order.values()
    }

    /// Returns the bytes of one of them.
    pub(crate) fn bytes_of(&self, arrival: &Arrival) -> Option<u64> {
        Some(self.segments.get(arrival)?.bytes)
    }

    /// Returns whether a damaged segment has something of a run.
    pub(crate) fn has_damage_of(&self, run: u128) -> bool {
        self.damaged.contains_key(&(run as u32))
    }

    /// Adds a segment; `order` is its place among all that ever came.
    pub(super) fn add(&mut self, order: u64, arrival: Arrival, quarantined: Quarantined) {
        self.bytes += quarantined.bytes;
        add_all(&mut self.damaged, &once_each(&quarantined.damaged));
        self.order.insert(order, arrival.clone());
        self.segments.insert(arrival, quarantined);
    }

    /// Takes out the segment that was set aside first if all together exceed `limit`, or are too many.
    pub(super) fn take_oldest(&mut self, limit: u64) -> Option<(Arrival, Quarantined)> {
        if self.bytes <= limit && self.segments.len() <= MAX_QUARANTINED {
            return None;
        }
        let (_, arrival) = self.order.pop_first()?;
        let quarantined = self.segments.remove(&arrival)?;
        self.bytes -= quarantined.bytes;
        take_all(&mut self.damaged, &once_each(&quarantined.damaged));
        Some((arrival, quarantined))
    }
}

fn once_each(tags: &BTreeSet<u32>) -> BTreeMap<u32, u64> {
    tags.iter().map(|&tag| (tag, 1)).collect()
}

/// Number of segments that are set aside as a whole. It is bounded as their bytes are, because one may have no byte.
const MAX_QUARANTINED: usize = 4_096;
