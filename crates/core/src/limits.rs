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

/// Levels of composite spaces in one observation space: a run's header with as many stays within
/// [`MAX_CONTROL_DEPTH`].
pub const MAX_SPACE_DEPTH: usize = 8;

/// Elements of one lane's row over all columns of a space that is read: an image of 1,280 x 720 has 2.8 million.
pub const MAX_ROW_ELEMENTS: usize = 1 << 22;

/// Names that the elements of a space may have.
pub const MAX_ELEMENT_NAMES: usize = 65_536;

/// Bytes of a name that people give: of a node, a token, a label, a part of a space.
pub const MAX_NAME_BYTES: usize = 128;

/// How deep the maps and lists of a message that comes from outside may be nested; those of the protocol stay under
/// 10, a run's header with the deepest space under 30.
pub const MAX_CONTROL_DEPTH: usize = 32;

/// Bytes of an env id.
pub const MAX_ENV_ID_BYTES: usize = 128;

/// Options one lane may be given.
pub const MAX_OPTIONS: usize = 64;

/// Largest seed [`per_episode_seed`](crate::per_episode_seed) returns, exclusive: every value is exact in a
/// double, so no JSON reader rounds it.
pub const PER_EPISODE_SEED_BOUND: u64 = 1 << 53;

/// Steps between two state hashes of an episode.
pub const HASH_WINDOW_STEPS: u64 = 64;
