//! Names every bound on which more than one crate relies.

use std::time::Duration;

/// Maximum number of lanes in one block, which is stepped by one kernel call, recorded as one chunk stream, and lost as
/// a whole when a batch env panics. Each lane has one bit of a mask word.
pub const BLOCK_LANES: usize = 64;

/// Maximum number of lanes in one session. 65,536 lanes of five floats are about 10 MB of arena.
pub const MAX_LANES: usize = 65_536;

/// Maximum number of stepping threads in one engine.
pub const MAX_THREADS: usize = 256;

/// Maximum number of columns in one observation space.
pub const MAX_OBS_COLUMNS: usize = 64;

/// Maximum number of nested composite spaces in one observation space. With as many, a run's header stays within
/// [`MAX_CONTROL_DEPTH`].
pub const MAX_SPACE_DEPTH: usize = 8;

/// Maximum number of elements in one lane's row over all columns of a space that is read. An image of 1,280 x 720 has
/// 2.8 million.
pub const MAX_ROW_ELEMENTS: usize = 1 << 22;

/// Maximum number of characters in the set of those of which the texts of a space consist.
pub const MAX_CHARACTERS: usize = 65_536;

/// Maximum number of names that a space's elements may have.
pub const MAX_ELEMENT_NAMES: usize = 65_536;

/// Maximum number of bytes in a name that people give: of a node, a token, a label, a part of a space.
pub const MAX_NAME_BYTES: usize = 128;

/// Maximum depth to which maps and lists may be nested in a message from outside. Messages of the protocol stay under
/// 10, a run's header with the deepest space under 30.
pub const MAX_CONTROL_DEPTH: usize = 32;

/// Maximum number of bytes in an env id.
pub const MAX_ENV_ID_BYTES: usize = 128;

/// Maximum number of bytes of the JSON object with the arguments of an env that is learned when it is asked for.
pub const MAX_ENV_KWARGS_BYTES: usize = 16 << 10;

/// Maximum number of engines of OpenRA that a machine may connect to.
pub const MAX_ENGINES: usize = 64;

/// Maximum number of kinds of envs that a machine hosts.
pub const MAX_ENV_KINDS: usize = 64;

/// Longest time that may be set for a launch of a worker process, for connecting of an env, for a step and for a reset.
pub const MAX_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// Most launches, or times as long, that opening a session of an env takes which is learned when it is asked for: to learn
/// it; to start the try-out of one that is declared deterministic, and to play it; to have it draw itself; to try its
/// options; and to start its lanes.
pub const LAUNCHES_OF_OPENING: u32 = 6;

/// Time after which a thread or a session that steps and does not come on hangs, unless another is set: longer than any
/// batch of an env that is alive.
pub const HANG_DEADLINE: Duration = Duration::from_secs(60);

/// Maximum time by which a hang of a session is found later than at its deadline; an eighth of the deadline if that is less.
/// The last sign of life is not known more exactly. Looking costs an atomic load.
pub const HANG_SLACK: Duration = Duration::from_millis(500);

/// Time that a lane which finishes when it finishes may take for a step or a reset, unless another is set.
pub const LANE_DEADLINE: Duration = Duration::from_secs(25);

/// Default time for a call of an env's method in another process, and for its picture.
pub const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// Time for any other question to a worker of a plug-in.
pub const ASK_DEADLINE: Duration = Duration::from_secs(10);

/// Time that a worker process has to make its envs, unless another is set: imports of large packages take long on cold
/// disks.
pub const LAUNCH_DEADLINE: Duration = Duration::from_secs(120);

// Whoever is waited for is given up before whoever waits: a question and a call before the lane, a step and the reset after
// it before their session. A worker that is restarted, or connects, is waited for by nobody who steps.
const _: () = assert!(
    HANG_SLACK.as_millis() < ASK_DEADLINE.as_millis()
        && ASK_DEADLINE.as_millis() < CALL_DEADLINE.as_millis()
        && CALL_DEADLINE.as_millis() + HANG_SLACK.as_millis() < LANE_DEADLINE.as_millis()
        && 2 * LANE_DEADLINE.as_millis() + HANG_SLACK.as_millis() < HANG_DEADLINE.as_millis()
        && HANG_DEADLINE.as_millis() < LAUNCH_DEADLINE.as_millis()
        && LAUNCH_DEADLINE.as_millis() <= CONNECT_DEADLINE.as_millis()
        && CONNECT_DEADLINE.as_millis() < MAX_DEADLINE.as_millis()
);

/// Time for which an env may try to connect to the game or simulator of which it is a client, unless another is set.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(120);

/// Number of times that an env tries again to connect, unless it is told otherwise: as many as fit into
/// [`CONNECT_DEADLINE`].
pub const CONNECT_RETRIES: u32 = 120;

/// Maximum number of times that an env may be told to try again to connect.
pub const MAX_CONNECT_RETRIES: u32 = 10_000;

/// Maximum number of envs and kinds of envs for which a node has terms, and of envs of which it tells a measured weight.
pub const MAX_WEIGHED_ENVS: usize = 64;

/// Maximum number of plug-ins that a process is told to load.
pub const MAX_PLUGINS: usize = 64;

/// Maximum number of options that one lane may be given.
pub const MAX_OPTIONS: usize = 64;

/// Maximum number of methods that one env may have.
pub const MAX_METHODS: usize = 128;

/// Maximum number of bytes in the name of an env's method.
pub const MAX_METHOD_NAME_BYTES: usize = 64;

/// Maximum number of bytes in the summary of an env's method, and in the schema of its payload.
pub const MAX_METHOD_TEXT_BYTES: usize = 4096;

/// Maximum number of bytes of what a lane says in words beside its rows: why it is lost, and infos that have no column.
pub const MAX_LANE_WORDS_BYTES: usize = 1024;

/// Maximum number of bytes in the text with which planning ends.
pub const MAX_PLAN_BYTES: usize = 16 << 10;

/// Maximum number of bytes that a call of an env's method is given.
pub const MAX_CALL_BYTES: usize = 64 << 10;

/// Maximum number of bytes of the answer to a call of an env's method.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Maximum number of calls that may change one lane between two of its steps.
pub const MAX_CALLS_OF_STEP: usize = 16;

/// Maximum number of bytes in an option's text.
pub const MAX_OPTION_TEXT_BYTES: usize = 4096;

/// Maximum number of numbers in an option's list.
pub const MAX_OPTION_NUMBERS: usize = 1024;

/// Maximum number of values that an option's distribution chooses from.
pub const MAX_OPTION_CHOICES: usize = 1024;

/// Maximum number of values that the distributions of all options of a lane choose from: an env is tried with each.
pub const MAX_CHOICES_OF_LANE: usize = 4096;

/// Bytes of a lane's options that an episode is begun with and that its run does not have, as [`Options::bytes`] counts them:
/// each chunk of a recording repeats them for each of its lanes.
///
/// [`Options::bytes`]: crate::Options::bytes
pub const MAX_EPISODE_OPTIONS_BYTES: usize = 16 << 10;

/// Maximum number of bytes of the options that a lane was given, as its owner tells another node of them.
pub const MAX_GIVEN_OPTIONS_BYTES: usize = 64 << 10;

/// Upper bound, exclusive, of the seeds that [`per_episode_seed`](crate::per_episode_seed) returns. Every value is
/// exact in a double, so no JSON reader rounds it.
pub const PER_EPISODE_SEED_BOUND: u64 = 1 << 53;

/// Maximum number of step columns of a run: what is noted of each step by those who choose the actions.
pub const MAX_STEP_COLUMNS: usize = 16;

/// Maximum number of bytes of one lane's row over all step columns of a run.
pub const MAX_STEP_COLUMN_BYTES: usize = 64 << 10;

/// Maximum number of bytes in the name of a step column.
pub const MAX_STEP_COLUMN_NAME_BYTES: usize = 64;

/// Number of steps between two state hashes of an episode.
pub const HASH_WINDOW_STEPS: u64 = 64;

/// Maximum number of owners that are named of what several have recorded together: a segment, or all that is open.
pub const MAX_OWNERS_NAMED: usize = 64;
