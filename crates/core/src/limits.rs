//! Every bound that more than one crate relies on, by name.

/// Lanes of one block: the unit that is stepped by one kernel call, recorded as one chunk stream, and lost
/// together when a batch env panics. One bit each in a mask word.
pub const BLOCK_LANES: usize = 64;

/// Lanes of one session. 65,536 lanes of five floats are about 10 MB of arena.
pub const MAX_LANES: usize = 65_536;

/// Stepping threads of one engine.
pub const MAX_THREADS: usize = 256;

/// Columns one observation space may flatten to.
pub const MAX_OBS_COLUMNS: usize = 16;

/// Bytes of an env id.
pub const MAX_ENV_ID_BYTES: usize = 128;

/// Options one lane may be given.
pub const MAX_OPTIONS: usize = 64;

/// Largest seed [`per_episode_seed`](crate::per_episode_seed) returns, exclusive: every value is exact in a
/// double, so no JSON reader rounds it.
pub const PER_EPISODE_SEED_BOUND: u64 = 1 << 53;

/// Steps between two state hashes of an episode.
pub const HASH_WINDOW_STEPS: u64 = 64;
