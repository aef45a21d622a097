//! The protocol on which two processes of a cluster agree: control messages, data frames, and their limits.
//!
//! Every QUIC stream is opened by one [`Request`] and answered by one [`Answer`], both msgpack maps behind a
//! length word (see [`control`]). On a session's stream data frames follow: a [`FrameHeader`], columns as they
//! lie in memory ([`FrameLayout`]), and a bounded sidecar when there is something to say; on its command stream
//! [`Envelope`]s follow. An owner on the node's own machine is handed the session's memory over a Unix socket instead
//! of frames ([`AttachListener`]). `docs/protocol.md`
//! describes every message and the frame byte by byte.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | handshake | the listener's runtime | given up | counted as turned away |
//! | port | the dialler's runtime, one per connection: looks whether the peer's port is closed | a peer whose process has ended is waited for as a silent one is | ends with its connection |
//! | answer on its way | its connection's runtime: waits until the peer has it | the answer is not waited for any more | its stream is given up |
//! | reading of a request | its connection's task | given up | its stream ends |
//!
//! Not a goal: deciding anything. Who may join, where lanes go and when to try again is decided by the crates
//! coordinator, node and client. Start reading at [`Request`], then [`FrameHeader`].
#![forbid(unsafe_code)]

mod attach_socket;
mod audit;
mod call_id;
mod call_times;
mod command;
pub mod control;
mod endpoint;
mod episode_counts;
mod failpoint;
mod frame;
mod hex;
mod identity;
pub mod ids;
mod join;
mod layout;
pub mod limits;
mod member;
mod messages;
mod past;
mod playing;
mod policy;
mod pool;
mod read_grant;
mod refusal;
mod refusal_log;
mod replay;
mod reports;
mod request;
mod session;
mod sidecar;
mod standing;
mod status;
mod store;
mod store_label;
mod store_query;
mod token;
mod version;
mod watch;

pub use attach_socket::{
    AttachBindError, AttachCallError, AttachListener, AttachSocket, LocalArrival, OwnerSocket,
};
pub use audit::{AuditLine, AuditPage, AuditQuery};
pub use call_id::{CallId, NoCallId};
pub use call_times::{CallHistogram, CallTimes, TimedCall};
pub use command::{CommandsOpened, Envelope, EnvelopeError, OpenCommands, PiecedAnswer};
pub use endpoint::{
    Admittance, Arrival, ArrivalCounts, Authenticate, BindError, ByteReceiver, ByteSender, Call, CallError,
    CloseCode, Connection, ConnectionLost, Credential, DialError, Dialer, Eagerness, Effective,
    EnvelopeFault, EnvelopeReader, EnvelopeWriter, FrameFault, FrameReader, FrameWriter, LARGEST_DATAGRAM,
    LinkFigures, Listener, MAX_REASON_BYTES, Path, Peer, REQUEST_DEADLINE, Refused, RequestShares, Requests,
    ResetKey, Responder, Settings, Stranger, StreamLost, TurnedAway, TurnedAwayReason, UnreadAnswer,
    port_is_closed,
};
pub use episode_counts::{EpisodeCounts, Extent, Tallies};
pub use failpoint::failpoint;
pub use frame::{FrameError, FrameHeader, FrameKind, HEADER_BYTES};
pub use identity::{
    AuthorityError, Begins, CA_CERTIFICATE, CA_KEY, CertificateAuthority, CertificateFiles, Certified,
    Expected, Fingerprint, FingerprintError, Identity, IdentityError, IdentityFileError, Issued,
    IssuedToNode, JoinedError, JoinedFolder, KeyRequest, KeyRequestError, NodeIssuer, PeerCertificate,
    Readers, RequestedKey, Revoked, ShownCertificate, Trust, Validity, is_name, replace_file,
    show_certificates,
};
pub use ids::{Incarnation, Secret, SessionId, is_pool_of, new_pool_id, pool_id_of};
pub use join::{Enroll, Enrolled, JoinRefused, JoinTerms};
pub use layout::{
    ActionPlaces, BatchPlaces, ColumnBuffer, FragmentPlaces, FrameLayout, MemoryPlaces, put_memory,
};
pub use member::{
    ConnectingSession, EndCause, Heartbeat, HeartbeatTaken, NodeLoad, PlaysReport, Register, Registered,
    SeenTerm, SessionCounts, SessionEnd, SessionReport, Takes, Unfit, UnfitReason,
};
pub use past::{PastError, options_bytes, put_past, put_played, read_past};
pub use playing::{FragmentNotes, PlaySteps, PolicyGiven, PolicyLags, PolicyTaken, StepNotes};
pub use policy::{
    BadPolicyRef, FetchPolicy, POLICY_NAME_RULE, PolicyBytes, PolicyFile, PolicyHash, PolicyInfo, PolicyList,
    PolicyPut, PolicyRef, PolicyRemoved, PolicyVersion, PutPolicy, RemovePolicy, is_policy_name,
};
pub use pool::{
    ClosePool, Collect, Grant, InfoSettings, LaneSettings, OpenPool, PoolOpened, PoolStatusRequest,
    ReplaceSession, SessionReplaced, Spread,
};
pub use read_grant::{BadReadGrant, MAX_READ_OWNERS, ReadGrant};
pub use refusal::{Refusal, RefusalCode};
pub use refusal_log::{LogLine, RefusalLog};
pub use replay::{
    EpisodeBytes, FASTEST_REPLAY, FetchEpisode, OpenReplay, PauseParams, PlayParams, REPLAY_STEPS_PER_SECOND,
    ReplayOf, ReplayReport, ReplayStanding, SLOWEST_REPLAY, SeekParams, StepParams,
};
pub use reports::{Changes, NotTaken, ReportLog, ReportView};
pub use request::{Answer, Asks, Done, Hello, Request, Role, Welcome};
pub use session::{Attach, AttachMemory, Attached, CloseSession, MemoryAttached, OpenSession, SessionOpened};
pub use sidecar::{BEGAN_BYTES, LostLane, Notes, ResetLanes, SendLanes, began_of, began_record};
pub use standing::{LaneStanding, SessionStanding, Standing};
pub use status::{
    BehindStatus, ClusterStatus, Drain, EnvList, EnvPlace, GoneSession, ListAfter, NodeList, NodeState,
    NodeStatus, OfferedEnv, PoolStatus, SessionList, SessionStatus, StatusRequest, StoreStatus, Undrain,
};
pub use store::{
    OwnerPart, Ship, Shipped, StoreData, StoreEntry, StoreList, StoreListing, StoreRead, StoreRepair,
    StoreRepaired,
};
pub use store_label::{
    StoreLabel, StoreLabelChange, StoreLabelPage, StoreLabelPlace, StoreLabelled, StoreLabels,
};
pub use store_query::{
    StoreCount, StoreDamage, StoreEpisode, StoreEpisodes, StoreQuery, StoreResult, StoreStats,
    StoreStatsRequest,
};
pub use token::{MAX_TOKENS, NewToken, TokenFileError, TokenRecord, TokenRefused, TokenStore, Tokens};
pub use version::{ALPN, OLDEST_VERSION, VERSION, Versions};
pub use watch::{
    AdmitWatcher, LaneFrame, LanePicture, LanePosition, LookAnswer, LookParams, OpenWatch, SoFar, SoFarFrom,
    SoFarParams, SoFarRows, StepState, Watch, WatchGrant, WatchOpened, WatcherAdmitted,
};
