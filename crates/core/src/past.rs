//! What happened to a lane, as its owner keeps it and another node is told it.

use std::collections::BTreeMap;

use crate::column_data::ColumnData;
use crate::method::Call;
use crate::options::OptionValue;
use crate::seed::Start;

/// The beginning of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// Lane in which the episode began: of the session, or a row of the batch.
    pub lane: u32,
    /// Number of the episode in the lane.
    pub number: u64,
    /// Seed and position of the generator at the episode's reset.
    pub start: Start,
}

/// An event in a lane's past.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// Lane to which it happened: of the session, or a row of the batch.
    pub lane: u32,
    /// The event.
    pub what: PastEvent,
}

/// Steps of a lane, with the action of each.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedActions {
    /// Number of steps. The actions do not tell it where one has no element.
    pub count: usize,
    /// One row of the action space's column for each step.
    pub actions: ColumnData,
}

/// Kind of event in a lane's past.
#[derive(Debug, Clone, PartialEq)]
pub enum PastEvent {
    /// An episode began; one that was open ended as `cancelled`.
    Began {
        /// Number of the episode in the lane.
        number: u64,
        /// Seed and position of the generator at the episode's reset. They follow from the number where the schedule
        /// seeds every episode.
        start: Start,
    },
    /// The lane stepped.
    Played(PlayedActions),
    /// The lane was changed by this call.
    Called(Call),
    /// The lane has these options from its next episode on; those that are not named stay as they are.
    Given(BTreeMap<String, OptionValue>),
    /// The lane's state had this hash at that time.
    Stood(u32),
    /// The lane's episode is lost. Its next one has the number `next`, and is seeded as `start` and the schedule say.
    /// The lane waits for its reset, which autoreset gives it; if it is `held`, it stands still in the next batch
    /// first.
    Lost {
        /// Number of the lane's next episode.
        next: u64,
        /// Position from which the lane's generator is seeded.
        start: Start,
        /// True if the lane stands still in the next batch.
        held: bool,
    },
}
