//! The configuration with which an engine is made.

use std::time::Duration;

use rollhouse_core::limits::HANG_DEADLINE;
use rollhouse_core::{AutoresetMode, LaneDeadlines, Options, SeedSchedule};
use rollhouse_env::InstructionSet;

/// Configuration of an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Number of rows in the batch, 1 to [`MAX_LANES`](rollhouse_core::limits::MAX_LANES).
    pub lanes: usize,
    /// Lane of the run in row 0; more than 0 when the run's lanes are spread over several engines. Seeds of episodes
    /// and recordings go by lanes of the run; everything else here counts rows.
    pub first_lane: u32,
    /// Maximum number of threads that step, with the caller's. Fewer are used when a thread would get less than
    /// [`MIN_LANES_PER_THREAD`] lanes: a wake-up costs more than stepping those.
    pub threads: usize,
    /// Rule by which the next episode begins.
    pub autoreset: AutoresetMode,
    /// Time limit in steps: `None` is the env's own, `Some(0)` lifts it.
    pub max_episode_steps: Option<u32>,
    /// Checked options: one set for all lanes, or one for each lane. Empty means the defaults.
    pub options: Vec<Options>,
    /// Rule by which episodes are seeded.
    pub schedule: SeedSchedule,
    /// Instruction set on which kernels run; results do not depend on it.
    pub instruction_set: InstructionSet,
    /// Time that a stepping thread may take for one batch before the engine gives itself up as hung. It does not bound
    /// the caller's own share of the work.
    pub step_deadline: Duration,
    /// Times that a lane which finishes when it finishes may take for a step and for a reset before it is lost as `hung`.
    /// Lanes that are stepped by the engine's threads have none of their own.
    pub lane_deadlines: LaneDeadlines,
}

impl EngineConfig {
    /// Returns the defaults for `lanes` lanes: from the run's lane 0 on, on the caller's thread, NEXT_STEP, the env's
    /// own time limit, default options, Gymnasium's seed schedule, the best instruction set, deadlines of
    /// [`HANG_DEADLINE`](rollhouse_core::limits::HANG_DEADLINE) and
    /// [`LANE_DEADLINE`](rollhouse_core::limits::LANE_DEADLINE).
    pub fn new(lanes: usize) -> Self {
        Self {
            lanes,
            first_lane: 0,
            threads: 1,
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            options: Vec::new(),
            schedule: SeedSchedule::Continue,
            instruction_set: InstructionSet::best(),
            step_deadline: HANG_DEADLINE,
            lane_deadlines: LaneDeadlines::default(),
        }
    }
}

/// Minimum number of lanes for which a further thread is used. Measured: two threads beat one from about 400 lanes of
/// CartPole on, when they spin.
pub const MIN_LANES_PER_THREAD: usize = 256;

/// Maximum number of sub-batches that each thread may have under way in first-done mode, and that the caller may leave
/// unreceived; one more is refused as `Busy`. Late lanes are bounded by their number alone.
pub const MAX_SUB_BATCHES: usize = 1024;
