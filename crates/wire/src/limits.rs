//! The limits of the protocol, each with a name.

use rollhouse_core::limits::MAX_ANSWER_BYTES;
pub use rollhouse_core::limits::{MAX_CONTROL_DEPTH, MAX_NAME_BYTES};

/// Bytes of one control message without its length word. The largest is the list of a pool's grants: 4,096 of them take
/// about 700 KB.
pub const MAX_CONTROL_BYTES: usize = 1 << 20;
/// Bytes of one control message of a peer that is not known: a hello with the longest token, or a message that shows a
/// session's secret.
pub const MAX_STRANGER_BYTES: usize = 4 << 10;
/// Number of streams that a peer that is not known may have open.
pub const MAX_STRANGER_STREAMS: usize = 16;
/// Bytes of the columns of one frame: 65,536 lanes of 4 KiB.
pub const MAX_FRAME_BYTES: usize = 256 << 20;
/// Bytes of the file of a policy, in one frame or at a coordinator.
pub const MAX_POLICY_BYTES: usize = 64 << 20;
/// Bytes of the columns of a fragment, unless one step has more.
pub const MAX_FRAGMENT_BYTES: usize = 64 << 20;
/// Bytes of a frame's sidecar.
pub const MAX_SIDECAR_BYTES: usize = 1 << 20;
/// Bytes of one envelope of the command channel: a quarter of a ring of shared memory. The image of a lane is the
/// largest thing in one; attributes are fetched in parts.
pub const MAX_COMMAND_BYTES: usize = 128 << 10;
/// Bytes of the payload of an answer to a command, which comes in pieces where it does not fit an envelope: the longest answer
/// of an env's method and what is around it.
pub const MAX_COMMAND_ANSWER_BYTES: usize = MAX_ANSWER_BYTES + (4 << 10);
/// Bytes of an answer's payload in one envelope: the rest of it has a method's name and a few numbers.
pub const ANSWER_ENVELOPE_BYTES: usize = MAX_COMMAND_BYTES - MAX_METHOD_BYTES - 192;
/// Time from the first byte of an envelope to its last.
pub const ENVELOPE_DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);
/// Bytes of the name of a method of the command channel.
pub const MAX_METHOD_BYTES: usize = 64;
/// Commands of one session that a client has unanswered at a time.
pub const MAX_OUTSTANDING_COMMANDS: usize = 64;
/// Number of certificates in one chain: the holder's, its authority's, and a few between them.
pub const MAX_CHAIN: usize = 8;
/// Bytes of a request for a certificate: those that nodes make have about 250, OpenSSL's with a long subject under 1,000.
pub const MAX_CERTIFICATE_REQUEST_BYTES: usize = 2 << 10;
/// Bytes of the certificates that a node is given when it joins; the same again for the authorities it is to trust.
pub const MAX_CERTIFICATES_BYTES: usize = 64 << 10;
/// Number of sessions into which one pool may be split.
pub const MAX_POOL_SESSIONS: usize = 4096;
/// Number of labels of a node, and of labels that a pool may ask for.
pub const MAX_LABELS: usize = 32;
/// Number of entries in one answer to `store_list`; with the longest names they stay within a control message.
pub const MAX_STORE_ENTRIES: usize = 4096;
/// Bytes of a segment that a node may ship: the largest it records with.
pub const MAX_SHIP_BYTES: u64 = 256 << 20;
/// Number of episodes in one answer to `store_query`.
pub const MAX_STORE_EPISODES: usize = 1000;
/// Bytes of the episodes of one answer to `store_query`; the first is given whatever its size.
pub const MAX_STORE_PAGE_BYTES: usize = 512 << 10;
/// Number of versions in one answer to `policies`; with the longest names they stay within a control message.
pub const MAX_POLICIES_LISTED: usize = 1024;
/// Number of lines in one answer to `audit`. Lines are cut, so that as many fit in one control message.
pub const MAX_AUDIT_LINES: usize = 250;
/// Number of damaged stretches that an answer to `store_stats` names.
pub const MAX_STORE_DAMAGE: usize = 1000;
/// Bytes that one `store_read` may ask for.
pub const MAX_STORE_READ_BYTES: usize = 4 << 20;
/// Number of sessions whose changes one heartbeat tells. At up to 600 bytes each, with the ends that the heartbeat
/// tells, they stay within a control message. The next heartbeat tells the rest and follows at once.
pub const MAX_HEARTBEAT_REPORTS: usize = 1024;
/// Number of sessions of which one heartbeat tells that their lanes try to connect.
pub const MAX_CONNECTING_TOLD: usize = 256;
/// Number of lanes of which a heartbeat tells where they stand. At up to 23 bytes each they leave room for the reports.
pub const MAX_STANDING_LANES: usize = 8192;
/// Bytes of an answer for which its asker has [`Settings::answer_stall`](crate::Settings).
pub const ANSWER_PIECE_BYTES: usize = 256 << 10;
/// Bytes of answers on one connection that its peer has not taken yet: eight of the longest.
pub const MAX_UNTAKEN_BYTES: usize = 8 << 20;
/// Bytes of the name under which something is owned: that of a token with its id, or of a certificate.
pub const MAX_OWNER_BYTES: usize = 2 * MAX_NAME_BYTES;
/// Bytes of the word for a transport in a node's report.
pub const MAX_TRANSPORT_BYTES: usize = 32;
/// Bytes of an episode's name as it is printed; the longest has 40.
pub const MAX_EPISODE_NAME_BYTES: usize = 64;
/// Bytes of the sentence about a node's trouble.
pub const MAX_WHY_BYTES: usize = 1024;
/// Bytes of the sentence about the end of a session: those of the ends and reports of a heartbeat fit into a message.
pub const MAX_DETAIL_BYTES: usize = 512;
/// Bytes of the sentence of a refusal.
pub const MAX_REFUSAL_BYTES: usize = 8 << 10;
/// Number of requests that one connection may have unanswered at a time; sessions' streams are counted apart.
pub const MAX_OPEN_REQUESTS: usize = 256;
/// Number of sessions' streams that one connection may have open.
pub const MAX_SESSION_STREAMS: usize = 4096;
/// Bytes of the path of an attach socket: what a Unix socket's address holds, without the final zero.
pub const MAX_ATTACH_PATH_BYTES: usize = 107;
/// Bytes of one message on an attach socket; the longest is a refusal.
pub const MAX_ATTACH_MESSAGE_BYTES: usize = 16 << 10;
/// Number of descriptors beside the answer on an attach socket.
pub const ATTACH_DESCRIPTORS: usize = 2;
/// Time that a node waits for the request of a process that connected to its attach socket.
pub const ATTACH_DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);
/// Number of lanes of a session whose answers carry what a log needs: if all of them begin an episode at a time, and
/// all are lost, that fits in a sidecar.
pub const MAX_LOGGED_LANES: usize = 16_384;
/// Bytes of the columns of one resume frame: what a node replays before it answers.
pub const MAX_PAST_BYTES: usize = 256 << 10;
/// Longest time that one `look` may wait for a frame, in milliseconds.
pub const MAX_LOOK_MS: u32 = 10_000;
/// Bytes of an observation of a lane that is watched, in pieces where it does not fit an envelope, and of its picture.
pub const MAX_WATCHED_ROW_BYTES: usize = 64 << 20;
/// Bytes of the payload of an answer to a watcher: an observation, and what is shown beside it.
pub const MAX_WATCH_ANSWER_BYTES: usize = MAX_WATCHED_ROW_BYTES + (8 << 20);
/// Bytes of actions in one answer to `so_far`: with the rest of the answer they fit in an envelope.
pub const MAX_SO_FAR_BYTES: usize = 64 << 10;
/// Bytes of the file of one recorded episode that a node fetches, and of the episode in its memory.
pub const MAX_REPLAY_BYTES: u64 = 256 << 20;
