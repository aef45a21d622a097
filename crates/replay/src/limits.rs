//! Every bound of recording and reading, by name.

/// Estimated bytes on disk at which a chunk is closed. At 500 steps an episode may cost 100 bytes; chunks of
/// this size keep the share of header and lane table under 2 bytes of it (arithmetic: docs/replay-format.md).
pub const CHUNK_TARGET_BYTES: usize = 8 * 1024;
/// Milliseconds after its first row at which a chunk is closed by the next row, whatever its size.
pub const CHUNK_AGE_MS: u64 = 100;
/// Milliseconds after its first row at which a chunk with packed columns is closed whatever its rows.
pub const PACKED_AGE_MS: u64 = 1000;
/// Rows at which a chunk with packed columns is closed as others are: the first row of each lane takes most of its bytes.
pub const PACKED_ROWS: u32 = 16;
/// How many times [`CHUNK_TARGET_BYTES`] a chunk with packed columns has of all other columns.
pub const PACKED_CHUNKS: usize = 8;
/// Bytes of an action from which on it is wide: a chunk of an action log has a whole one of each lane, and whatever little
/// changes of it in further rows. So that those count, it has [`WIDE_CHUNKS`] times the bytes of other chunks.
pub const WIDE_ACTION_BYTES: usize = 512;
/// How many times [`CHUNK_TARGET_BYTES`] a chunk of an action log with wide actions has, not coded: 2 MiB of a block, that is 26
/// rows of 64 lanes whose actions have 1.2 KB.
pub const WIDE_CHUNKS: usize = 256;
/// Bytes of packed rows, not compressed, at which a chunk is closed, beside twice those of a whole row of its lanes.
pub const PACKED_TARGET_BYTES: usize = 256 << 10;
/// Rows of one chunk.
pub const CHUNK_ROWS: usize = 4096;
/// Bytes of one record's payload. One row of a trace or full recording must fit.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 20;
/// Bytes of one run's header; the bounds of three million elements take 54 MB.
pub const MAX_RUN_BYTES: usize = 64 << 20;
/// Bytes of memory that the contents of one segment's run headers take; headers beyond it are taken for damage.
pub const MAX_RUNS_MEMORY: usize = 256 << 20;
/// The same at which a recorder goes on with the next segment: many short runs may have coded headers of few bytes.
pub const SEGMENT_RUNS_MEMORY: usize = 64 << 20;
/// Ends, and begins, of one chunk.
pub const MAX_CHUNK_EVENTS: usize = 1 << 20;
/// Columns of one chunk, those that a reader does not know included.
pub const MAX_CHUNK_COLUMNS: usize = 1024;
/// Bytes of the options of a chunk that are others than its run's: of each lane those of two episodes, and what is given
/// before a chunk is closed.
pub const MAX_CHUNK_OPTIONS_BYTES: usize = 8 << 20;
/// Pixels of a picture that is recorded beside the steps: 1280 x 720 and a little more.
pub const MAX_FRAME_PIXELS: usize = 1 << 20;
/// Bytes of one packed picture.
pub const MAX_FRAME_BYTES: usize = 4 << 20;
/// Bytes of packed pictures at which a chunk is closed by its next row.
pub const CHUNK_FRAMES_TARGET_BYTES: usize = 1 << 20;
/// Bytes of packed pictures that one chunk takes; further ones are left out and counted.
pub const CHUNK_FRAMES_BYTES: usize = 64 << 20;
/// Bytes of packed pictures of a run that may wait for the writer; further ones are left out and counted.
pub const WAITING_FRAMES_BYTES: usize = 128 << 20;
/// Bytes of an episode's packed pictures that a reader holds; of more it holds every second one.
pub const EPISODE_FRAMES_BYTES: usize = 256 << 20;
/// Spare buffers of a run beside two per block: how far stepping may run ahead of the writer.
pub const SPARE_BUFFERS: usize = 64;
/// Bytes that values of an episode may take in memory which take fewer on disk: those that repeat, and packed actions.
pub const EPISODE_EXPANDED_BYTES: usize = 256 << 20;
/// The same of all episodes that are read side by side; further ones are read alone.
pub const ALL_EXPANDED_BYTES: usize = 512 << 20;
/// Bytes that an episode's packed columns may take in memory: the 27,000 steps of the longest Atari episode.
pub const EPISODE_UNPACKED_BYTES: usize = 4 << 30;
/// Bytes that the packed rows of a chunk may take in memory, as differences; more are decompressed again.
pub const CHUNK_UNPACKED_BYTES: usize = MAX_PAYLOAD_BYTES;
/// Bytes of memory of decoded chunks that are kept while an episode's beginning is looked for; others are read again.
pub const CHAIN_BYTES: usize = 16 << 20;
/// Bytes the spare buffers of a run may take together; two may be made whatever their size.
pub const SPARE_BYTES: usize = 16 << 20;
/// Bytes the spare buffers of all runs of a recorder may take together; two of each run may be made beyond it.
pub const ALL_SPARE_BYTES: usize = 256 << 20;
/// Runs one recorder has open at a time: as many as a node has sessions.
pub const MAX_OPEN_RUNS: usize = 4096;
/// Bytes at which a segment is sealed and the next one opened, unless configured otherwise.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes at which a segment of episodes that are recorded again is closed: they stay in memory until they have been
/// read back.
pub const AGAIN_SEGMENT_BYTES: u64 = 8 << 20;
/// Largest segment a configuration may ask for: offsets within a segment are 32 bits wide.
pub const MAX_SEGMENT_BYTES: u64 = 2 << 30;
/// Bytes that wait in memory for the next segment's file while the one before is sealed; then the writer waits as well.
pub const UNFLUSHED_BYTES: usize = 16 << 20;
/// Bytes of all segments at which the oldest are dropped, unless configured otherwise.
pub const BUDGET_BYTES: u64 = 20_000_000_000;
/// Bytes of chunks that one catalogue entry covers.
pub const EXTENT_BYTES: u64 = 1 << 20;
/// Bytes of a segment's packed rows at which none are kept: its extents are read instead.
pub const MAX_ROWS_BYTES: usize = 64 << 20;
/// Damage entries kept by name of one folder; further ones are only counted.
pub const MAX_DAMAGE_LISTED: usize = 1000;
/// Sealed segments from which on their entries are gathered in sled: opening fewer files one by one is faster.
pub const GATHERED_FROM: usize = 64;
/// Bytes of all gathered entries: beyond it none is gathered, and readers take those beside the segments.
pub const MAX_GATHERED_BYTES: usize = 32 << 20;
/// The share of a disk, one in so many bytes, below which it counts as nearly full.
pub const SHORT_SHARE: u64 = 20;
/// Free bytes at which no disk counts as nearly full, however large it is: minutes of the fastest recording.
pub const SHORT_BYTES: u64 = 4_000_000_000;
/// Bytes that a budget counts of a segment at least: an empty one takes a block of the disk as well, and memory.
pub const LEAST_SEGMENT_COST: u64 = 4 << 10;
/// Bytes of sled's files at which they are taken for garbage.
pub const MAX_CATALOGUE_BYTES: u64 = 256 << 20;
/// Bytes of segments the catalogue does not know that a recorder scans for it as it finishes.
pub const CATCH_UP_BYTES: u64 = 128 << 20;
/// Folders in a folder that are read together with it.
pub const MAX_SUBFOLDERS: usize = 4096;
/// Folders in a store that are read together: enough for the many thousands that short-lived nodes leave.
pub const MAX_STORE_FOLDERS: usize = 65_536;
/// Bytes of the list of a segment's episodes that are set aside: more than the largest segment has episodes.
pub const MAX_ASIDE_BYTES: u64 = 512 << 20;
/// Bytes of a tag.
pub const MAX_TAG_BYTES: usize = 64;
/// Tags of one episode.
pub const MAX_TAGS: usize = 16;
/// Bytes of a note on an episode.
pub const MAX_NOTE_BYTES: usize = 4096;
/// Labelled episodes of one folder.
pub const MAX_LABELLED: usize = 65_536;
/// Bytes of a folder's labels.
pub const MAX_LABELS_BYTES: u64 = 16 << 20;
/// Bytes of a segment's entry in the catalogue; the segment is scanned instead of keeping a larger one.
pub const MAX_SUMMARY_BYTES: u64 = 16 << 20;
/// Keyframes kept of an episode in which steps are sought: in one of 1,000,000 steps they are 256 apart.
pub const SEEK_KEYFRAMES: usize = 4096;
/// Bytes of all keyframes together.
pub const SEEK_KEYFRAME_BYTES: usize = 64 << 20;
/// Steps between two keyframes before their number reaches its bound.
pub const SEEK_SPACING: u64 = 16;
/// Steps between two running returns that are kept of an episode whose rewards are recorded.
pub const RETURN_SPACING: u64 = 256;
/// Buckets of an episode's timeline: more than any terminal has columns.
pub const TIMELINE_BUCKETS: usize = 4096;
