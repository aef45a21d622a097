//! Faults of our own, planted to see that the world finds them.

/// A fault in this world's program. Each is one that others have made, or that we nearly made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The store acknowledges what it has not made durable.
    StoreAcknowledgesBeforeSync,
    /// The store makes contents durable, but not the names of files.
    StoreForgetsToSyncNames,
    /// The recorder seals and counts as durable what it has not synced.
    SpoolAcknowledgesBeforeSync,
    /// A node removes a segment once it was sent, whatever the store answers.
    RemovesWhatWasSent,
    /// A node steps requests on a stream that another has replaced.
    StepsReplacedStreams,
    /// A node takes every request for a new one, also one that it has answered.
    StepsRepeatedRequests,
    /// A node forgets which placements are over, and makes them again.
    ForgetsFences,
    /// A coordinator starts with the term of the one before.
    ReusesTerm,
    /// A node keeps sessions whose lease is over.
    LeasesNeverEnd,
    /// A node does not report which sessions have ended.
    ForgetsEnds,
    /// The coordinator knows no quotas.
    IgnoresQuotas,
    /// A node counts sessions as done that were never opened: their lanes are gone.
    LosesLanes,
    /// A trainer takes the answers of earlier requests.
    TakesAnyAnswer,
    /// Lanes that go on elsewhere are not told what they did.
    ForgetsPast,
    /// The coordinator takes every caller for the owner of the pool that it names.
    MistakesOwners,
    /// When a token is revoked, the pools of all owners are closed.
    RevokesEverybody,
}

impl Bug {
    /// Every fault.
    pub const ALL: [Self; 16] = [
        Self::StoreAcknowledgesBeforeSync,
        Self::StoreForgetsToSyncNames,
        Self::SpoolAcknowledgesBeforeSync,
        Self::RemovesWhatWasSent,
        Self::StepsReplacedStreams,
        Self::StepsRepeatedRequests,
        Self::ForgetsFences,
        Self::ReusesTerm,
        Self::LeasesNeverEnd,
        Self::ForgetsEnds,
        Self::IgnoresQuotas,
        Self::LosesLanes,
        Self::TakesAnyAnswer,
        Self::ForgetsPast,
        Self::MistakesOwners,
        Self::RevokesEverybody,
    ];
}
