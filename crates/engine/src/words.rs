//! What a lane says in words, beside its row.

use rollhouse_core::bounded_text_or_none;
use rollhouse_core::limits::MAX_LANE_WORDS_BYTES;
use serde::{Deserialize, Serialize};

/// What a lane says in words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaneWords {
    /// Why the lane is lost; absent of one that is not, and where nobody knows.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "bounded_text_or_none::<MAX_LANE_WORDS_BYTES, _>"
    )]
    pub lost: Option<String>,
    /// Numbers in the infos of the lane's last row that have no column, as JSON; absent if there are none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "bounded_text_or_none::<MAX_LANE_WORDS_BYTES, _>"
    )]
    pub infos: Option<String>,
}
