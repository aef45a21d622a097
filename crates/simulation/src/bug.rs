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
    /// A coordinator starts with the term of the one before.
    ReusesTerm,
    /// The coordinator knows no quotas.
    IgnoresQuotas,
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
    pub const ALL: [Self; 9] = [
        Self::StoreAcknowledgesBeforeSync,
        Self::StoreForgetsToSyncNames,
        Self::SpoolAcknowledgesBeforeSync,
        Self::ReusesTerm,
        Self::IgnoresQuotas,
        Self::TakesAnyAnswer,
        Self::ForgetsPast,
        Self::MistakesOwners,
        Self::RevokesEverybody,
    ];
}
