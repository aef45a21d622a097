//! Lanes that wait for room: requests for them were refused because no node has any, and will be repeated.
//!
//! Only the asker knows that it waits: it asks until it has its lanes or gives up. So a refused request counts as
//! waiting for a little longer than a client takes to ask again. Autoscalers go by the sum: each waiting lane wants a
//! place on a node that is not there yet.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_core::{RunId, Weight};

use crate::limits::{MAX_WAITING, WAITS_FOR};

/// A pool that is to be opened, or one of its sessions (by index) that is to have another place.
pub(crate) type Want = (RunId, Option<u32>);

/// The requests that were refused for want of room, with the time of the last refusal.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    refused: BTreeMap<Want, Refused>,
}

#[derive(Debug)]
struct Refused {
    at: Duration,
    lanes: u32,
    weight: Weight,
}

/// All that waits for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingLanes {
    /// Number of lanes.
    pub lanes: u64,
    /// The most that nodes say they weigh together.
    pub weight: Weight,
}

impl Waiting {
    /// Counts a request that was refused for want of room. Beyond [`MAX_WAITING`] that have not been given up, another
    /// is not counted.
    pub(crate) fn refused(&mut self, now: Duration, want: Want, lanes: u32, weight: Weight) {
        if self.refused.len() >= MAX_WAITING {
            self.tick(now);
        }
        if self.refused.len() < MAX_WAITING || self.refused.contains_key(&want) {
            self.refused.insert(want, Refused { at: now, lanes, weight });
        }
    }

    /// Removes a request that has its place.
    pub(crate) fn placed(&mut self, want: Want) {
        self.refused.remove(&want);
    }

    /// Removes a pool and its sessions, which nobody wants any more.
    pub(crate) fn closed(&mut self, pool: RunId) {
        let of_pool = self.refused.range((pool, None)..=(pool, Some(u32::MAX)));
        let wants: Vec<Want> = of_pool.map(|(&want, _)| want).collect();
        for want in wants {
            self.refused.remove(&want);
        }
    }

    /// Forgets requests that were not repeated in time.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.refused.retain(|_, refused| refused.waits(now));
    }

    /// Returns all that waits.
    pub(crate) fn all(&self, now: Duration) -> WaitingLanes {
        let waiting = self.refused.values().filter(|refused| refused.waits(now));
        waiting.fold(WaitingLanes::default(), |sum, refused| WaitingLanes {
            lanes: sum.lanes + u64::from(refused.lanes),
            weight: sum.weight.plus(refused.weight),
        })
    }
}

impl Refused {
    fn waits(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < WAITS_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_full_of_who_has_given_up_takes_who_waits() {
        let mut waiting = Waiting::default();
        for pool in 0..MAX_WAITING as u128 {
            waiting.refused(Duration::ZERO, (RunId::from_u128(pool), None), 1, Weight::default());
        }
        let late = (RunId::from_u128(u128::MAX), None);
        waiting.refused(Duration::ZERO, late, 1, Weight::default());
        assert_eq!(waiting.all(Duration::ZERO).lanes, MAX_WAITING as u64, "one more is not counted");
        waiting.refused(WAITS_FOR, late, 8, Weight { cpu_milli: 4000, memory: 7 });
        let weight = Weight { cpu_milli: 4000, memory: 7 };
        assert_eq!(waiting.all(WAITS_FOR), WaitingLanes { lanes: 8, weight });
    }
}
