//! Where the lanes of a session that plays by itself stand, so that they can go on elsewhere.

use rollhouse_core::bounded_list;
use serde::{Deserialize, Serialize};

use crate::limits::MAX_STANDING_LANES;
use crate::{Incarnation, SessionCounts, SessionId};

/// Where lanes stand that a node steps by itself: enough to begin their open episodes again and to go on from there.
///
/// Actions of a built-in policy follow from seed, lane and the number of steps before, episodes from seed, lane and number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Number of steps of all lanes together; 0 where each lane is stepped by itself.
    pub batch: u64,
    /// Each lane, in order; at most [`MAX_STANDING_LANES`].
    #[serde(deserialize_with = "bounded_list::<_, MAX_STANDING_LANES, _>")]
    pub lanes: Vec<LaneStanding>,
    /// What the placement had done, without the steps of open episodes.
    pub done: SessionCounts,
}

/// Where one lane stands: the number of its open episode, else of its next one; how often it was stepped before that; and
/// whether it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStanding(pub u64, pub u64, pub bool);

/// Where the lanes of a session stand, as its node reports it. What they had recorded before is among the bytes that the load of
/// the same heartbeat counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStanding {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// Where its lanes stand.
    pub standing: Standing,
}

impl Standing {
    /// Returns how many lanes have an open episode.
    pub fn open(&self) -> u64 {
        self.lanes.iter().filter(|LaneStanding(.., open)| *open).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_core::msgpack::{decode, encode};

    use super::*;
    use crate::limits::{MAX_CONTROL_BYTES, MAX_HEARTBEAT_REPORTS};

    fn standing(lanes: usize) -> Standing {
        let lanes = vec![LaneStanding(u64::MAX, u64::MAX, true); lanes];
        Standing { batch: u64::MAX, lanes, done: SessionCounts::default() }
    }

    #[test]
    fn where_lanes_stand_fits_beside_the_reports_of_a_heartbeat_and_more_lanes_are_refused() {
        let mut bytes = Vec::new();
        encode(&standing(MAX_STANDING_LANES), &mut bytes).unwrap();
        assert!(bytes.len() + 600 * MAX_HEARTBEAT_REPORTS <= MAX_CONTROL_BYTES, "{} bytes", bytes.len());
        assert_eq!(decode::<Standing>(&bytes, MAX_CONTROL_BYTES).unwrap(), standing(MAX_STANDING_LANES));
        bytes.clear();
        encode(&standing(MAX_STANDING_LANES + 1), &mut bytes).unwrap();
        assert!(decode::<Standing>(&bytes, MAX_CONTROL_BYTES).is_err());
    }
}
