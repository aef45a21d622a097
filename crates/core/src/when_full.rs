//! The behaviour of a recorder that has no room.

/// The behaviour of a node whose spool is full, or whose disk takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Stepping waits until there is room, and nothing is lost. While the disk takes nothing, requests of recorded
    /// sessions are refused as busy.
    BackPressure,
    /// The oldest segments that are not being shipped are dropped and counted. While the disk takes nothing, stepping
    /// goes on, and what it would record is counted as lost.
    Drop,
}
