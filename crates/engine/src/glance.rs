//! Views of lanes between two steps, for observers. Looking moves nothing.

use rollhouse_core::Start;

/// View of a lane between two steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// True if an episode is under way.
    pub open: bool,
    /// Number of the episode in the lane; that of the next episode if none is under way.
    pub number: u64,
    /// Number of steps in the episode so far.
    pub steps: u64,
    /// Sum of the episode's rewards so far.
    pub total_reward: f64,
    /// Number of steps in the lane's last episode that ended, and the sum of its rewards; `None` before the first has.
    pub last: Option<(u64, f64)>,
    /// Position of the lane's generator at the episode's reset. It is known of episodes that began after
    /// [`Engine::watch`](crate::Engine::watch) had named the lane.
    pub start: Start,
    /// Position of the lane's generator; `None` while the lane is lost, or others are under way.
    pub position: Option<Start>,
    /// Exact state of the lane, if the env shows it and no other is under way.
    pub state: Option<Vec<f64>>,
    /// Hash of the exact state; `None` while the lane is lost, or others are under way.
    pub hash: Option<u32>,
}
