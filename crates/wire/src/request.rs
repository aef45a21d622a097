//! Requests and answers.

use rollhouse_core::msgpack::{DecodeError, EncodeError, Message};
use serde::de::Error;
use serde::{Deserialize, Serialize};

use crate::{
    AdmitWatcher, Attach, AttachMemory, AuditQuery, ClosePool, CloseSession, Drain, Enroll, EnvPlace,
    FetchEpisode, Heartbeat, ListAfter, OpenCommands, OpenPool, OpenReplay, OpenSession, OpenWatch,
    PoolStatusRequest, Refusal, Register, ReplaceSession, SessionId, Ship, StoreLabel, StoreLabels,
    StoreList, StoreQuery, StoreRead, StoreRepair, Undrain, Versions, Watch,
};

/// The first message on every stream. The side that opens the stream asks, and the other side answers with [`Answer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// First on every connection, once.
    Hello(Hello),
    /// Trainer to coordinator. Answer: [`PoolOpened`](crate::PoolOpened).
    OpenPool(OpenPool),
    /// Trainer to coordinator. Answer: [`PoolStatus`](crate::PoolStatus) as it was at the end.
    ClosePool(ClosePool),
    /// Trainer or viewer to coordinator. Answer: [`PoolStatus`](crate::PoolStatus).
    PoolStatus(PoolStatusRequest),
    /// Viewer to coordinator. Answer: [`ClusterStatus`](crate::ClusterStatus).
    Status,
    /// Viewer to coordinator. Answer: [`NodeList`](crate::NodeList).
    Nodes(ListAfter<String>),
    /// Viewer to coordinator. Answer: [`SessionList`](crate::SessionList).
    Sessions(ListAfter<SessionId>),
    /// Admin to coordinator. Answer: [`Done`].
    Drain(Drain),
    /// Admin to coordinator. Answer: [`Done`].
    Undrain(Undrain),
    /// Node to coordinator. Answer: [`Registered`](crate::Registered).
    Register(Register),
    /// Node to coordinator. Answer: [`HeartbeatTaken`](crate::HeartbeatTaken).
    Heartbeat(Heartbeat),
    /// Node to coordinator, followed by the segment's bytes. Answer: [`Shipped`](crate::Shipped).
    Ship(Ship),
    /// Coordinator to node. Answer: [`SessionOpened`](crate::SessionOpened).
    OpenSession(OpenSession),
    /// Coordinator to node. Answer: [`SessionEnd`](crate::SessionEnd).
    CloseSession(CloseSession),
    /// Owner to node. Answer: [`Attached`](crate::Attached); frames follow.
    Attach(Attach),
    /// Owner to node, over the attach socket. Answer: [`MemoryAttached`](crate::MemoryAttached).
    AttachMemory(AttachMemory),
    /// Owner to node. Answer: [`CommandsOpened`](crate::CommandsOpened); envelopes follow.
    Commands(OpenCommands),
    /// Trainer to coordinator. Answer: [`SessionReplaced`](crate::SessionReplaced).
    ReplaceSession(ReplaceSession),
    /// Viewer to coordinator. Answer: [`StoreListing`](crate::StoreListing).
    StoreList(StoreList),
    /// Viewer to coordinator. Answer: [`StoreData`](crate::StoreData), followed by bytes.
    StoreRead(StoreRead),
    /// Viewer to coordinator. Answer: [`StoreEpisodes`](crate::StoreEpisodes).
    StoreQuery(StoreQuery),
    /// Viewer to coordinator. Answer: [`StoreStats`](crate::StoreStats).
    StoreStats,
    /// Admin to coordinator. Answer: [`StoreRepaired`](crate::StoreRepaired).
    StoreRepair(StoreRepair),
    /// Admin to coordinator. Answer: [`StoreLabelled`](crate::StoreLabelled).
    StoreLabel(StoreLabel),
    /// Viewer to coordinator. Answer: [`StoreLabelPage`](crate::StoreLabelPage).
    StoreLabels(StoreLabels),
    /// A machine that is to be a node, or a node that renews its certificate, to coordinator. Answer:
    /// [`Enrolled`](crate::Enrolled).
    Enroll(Enroll),
    /// Viewer to coordinator. Answer: [`WatchGrant`](crate::WatchGrant).
    Watch(Watch),
    /// Coordinator to node. Answer: [`WatcherAdmitted`](crate::WatcherAdmitted).
    AdmitWatcher(AdmitWatcher),
    /// Viewer to node. Answer: [`WatchOpened`](crate::WatchOpened); envelopes follow.
    OpenWatch(OpenWatch),
    /// Viewer to coordinator. Answer: [`PoolOpened`](crate::PoolOpened).
    OpenReplay(OpenReplay),
    /// Node to coordinator. Answer: [`EpisodeBytes`](crate::EpisodeBytes), followed by bytes.
    FetchEpisode(FetchEpisode),
    /// Viewer to coordinator. Answer: [`EnvList`](crate::EnvList).
    Envs(ListAfter<EnvPlace>),
    /// Admin to coordinator. Answer: [`AuditPage`](crate::AuditPage).
    Audit(AuditQuery),
}

/// The asker's introduction: its program and the versions it speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The versions that the asker speaks.
    pub versions: Versions,
    /// Name and version of the asker's program.
    pub program: String,
    /// A bearer token; absent when a certificate shows who the asker is, or towards a node, where each session's secret
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The answer to [`Hello`]: the asker is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that is spoken from now on.
    pub version: u16,
    /// Name and version of the answering program.
    pub program: String,
    /// The role for which the answering side takes the asker.
    pub role: Role,
    /// The name under which it keeps what the asker owns; empty if it keeps nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
}

/// The role of a peer, which decides what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May open sessions' streams only, each with its secret.
    Anonymous,
    /// May look at the cluster and its store.
    Viewer,
    /// May open and step pools, and look.
    Trainer,
    /// May be let in as a new node, and do nothing else.
    Join,
    /// Hosts sessions.
    Node,
    /// May do everything a trainer may, and drain nodes.
    Admin,
    /// Places sessions on nodes.
    Coordinator,
}

/// The answer to a request that is done and has nothing to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {}

/// The answer to a request: a map with one entry, `ok` or `refused`.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<T> {
    /// The request was done; this is its result.
    Ok(T),
    /// The request was refused.
    Refused(Refusal),
}

impl<T: Message> Message for Answer<T> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Ok(value) => write_answer(Ok(value), out),
            Self::Refused(refusal) => write_answer::<T>(Err(refusal), out),
        }
    }

    fn read(bytes: &[u8], limit: usize) -> Result<Self, DecodeError> {
        if bytes.len() > limit {
            return Err(DecodeError::TooLong { bytes: bytes.len(), limit });
        }
        if let Some(value) = bytes.strip_prefix(&OK) {
            return T::read(value, limit).map(Self::Ok);
        }
        match bytes.strip_prefix(&REFUSED) {
            Some(refusal) => Refusal::read(refusal, limit).map(Self::Refused),
            None => Err(DecodeError::Malformed(Error::custom("neither `ok` nor `refused`"))),
        }
    }
}

/// Appends an answer.
pub(crate) fn write_answer<T: Message>(
    answer: Result<&T, &Refusal>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    match answer {
        Ok(value) => {
            out.extend_from_slice(&OK);
            value.write(out)
        }
        Err(refusal) => {
            out.extend_from_slice(&REFUSED);
            refusal.write(out)
        }
    }
}

/// In msgpack, a map of one entry and its key.
const OK: [u8; 4] = *b"\x81\xa2ok";
const REFUSED: [u8; 9] = *b"\x81\xa7refused";

/// Returns whether these bytes of an answer are a refusal.
pub(crate) fn is_refusal(bytes: &[u8]) -> bool {
    bytes.starts_with(&REFUSED)
}

impl<T> From<Result<T, Refusal>> for Answer<T> {
    fn from(result: Result<T, Refusal>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

impl<T> Answer<T> {
    /// Turns the answer into a result.
    ///
    /// # Errors
    /// The refusal, if the request was refused.
    pub fn into_result(self) -> Result<T, Refusal> {
        match self {
            Self::Ok(value) => Ok(value),
            Self::Refused(refusal) => Err(refusal),
        }
    }
}

impl Role {
    /// Returns the word in certificates, tokens, messages and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Viewer => "viewer",
            Self::Trainer => "trainer",
            Self::Join => "join",
            Self::Node => "node",
            Self::Admin => "admin",
            Self::Coordinator => "coordinator",
        }
    }

    /// Returns whether a peer of this role may ask for that. `Hello` comes before there is a role.
    pub const fn may(self, request: &Request) -> bool {
        use Request::{
            AdmitWatcher, Attach, AttachMemory, Audit, ClosePool, CloseSession, Commands, Drain, Enroll,
            Envs, FetchEpisode, Heartbeat, Hello, Nodes, OpenPool, OpenReplay, OpenSession, OpenWatch,
            PoolStatus, Register, ReplaceSession, Sessions, Ship, Status, StoreLabel, StoreLabels, StoreList,
            StoreQuery, StoreRead, StoreRepair, StoreStats, Undrain, Watch,
        };
        match request {
            Hello(_) => false,
            // The session's secret decides.
            Attach(_) | AttachMemory(_) | Commands(_) | OpenWatch(_) => !matches!(self, Self::Join),
            Enroll(_) => matches!(self, Self::Join | Self::Node),
            Status | Nodes(_) | Envs(_) | Sessions(_) | PoolStatus(_) | StoreList(_) | StoreRead(_)
            | StoreQuery(_) | StoreStats | StoreLabels(_) | Watch(_) | OpenReplay(_) | ClosePool(_) => {
                matches!(self, Self::Viewer | Self::Trainer | Self::Admin)
            }
            OpenPool(_) | ReplaceSession(_) => matches!(self, Self::Trainer | Self::Admin),
            Drain(_) | Undrain(_) | StoreRepair(_) | StoreLabel(_) | Audit(_) => {
                matches!(self, Self::Admin)
            }
            Register(_) | Heartbeat(_) | Ship(_) | FetchEpisode(_) => matches!(self, Self::Node),
            OpenSession(_) | CloseSession(_) | AdmitWatcher(_) => matches!(self, Self::Coordinator),
        }
    }
}

impl Request {
    /// The words of all requests of this version.
    pub const WORDS: [&'static str; 33] = [
        "hello",
        "open_pool",
        "close_pool",
        "pool_status",
        "status",
        "nodes",
        "envs",
        "sessions",
        "drain",
        "undrain",
        "register",
        "heartbeat",
        "ship",
        "open_session",
        "close_session",
        "attach",
        "attach_memory",
        "commands",
        "replace_session",
        "store_list",
        "store_read",
        "store_repair",
        "store_query",
        "store_stats",
        "enroll",
        "watch",
        "admit_watcher",
        "open_watch",
        "store_label",
        "store_labels",
        "audit",
        "open_replay",
        "fetch_episode",
    ];

    /// Returns the word in messages and metrics, which is also its `type` on the wire.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::OpenPool(_) => "open_pool",
            Self::ClosePool(_) => "close_pool",
            Self::PoolStatus(_) => "pool_status",
            Self::Status => "status",
            Self::Nodes(_) => "nodes",
            Self::Envs(_) => "envs",
            Self::Sessions(_) => "sessions",
            Self::Drain(_) => "drain",
            Self::Undrain(_) => "undrain",
            Self::Register(_) => "register",
            Self::Heartbeat(_) => "heartbeat",
            Self::Ship(_) => "ship",
            Self::OpenSession(_) => "open_session",
            Self::CloseSession(_) => "close_session",
            Self::Attach(_) => "attach",
            Self::AttachMemory(_) => "attach_memory",
            Self::Commands(_) => "commands",
            Self::ReplaceSession(_) => "replace_session",
            Self::StoreList(_) => "store_list",
            Self::StoreRead(_) => "store_read",
            Self::StoreRepair(_) => "store_repair",
            Self::StoreQuery(_) => "store_query",
            Self::StoreStats => "store_stats",
            Self::Enroll(_) => "enroll",
            Self::Watch(_) => "watch",
            Self::AdmitWatcher(_) => "admit_watcher",
            Self::OpenWatch(_) => "open_watch",
            Self::OpenReplay(_) => "open_replay",
            Self::FetchEpisode(_) => "fetch_episode",
            Self::StoreLabel(_) => "store_label",
            Self::StoreLabels(_) => "store_labels",
            Self::Audit(_) => "audit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_may_open_recorded_episodes_and_nodes_alone_fetch_them() {
        let pool = rollhouse_core::RunId::from_u128(7);
        let episode = || "k3f9q2tz-17-203".to_owned();
        let open = Request::OpenReplay(OpenReplay { pool, episode: episode() });
        let close = Request::ClosePool(ClosePool { pool });
        let fetch = Request::FetchEpisode(FetchEpisode { episode: episode() });
        let may = |request: &Request| {
            let roles = [
                Role::Anonymous,
                Role::Viewer,
                Role::Trainer,
                Role::Join,
                Role::Node,
                Role::Admin,
                Role::Coordinator,
            ];
            roles.into_iter().filter(|role| role.may(request)).collect::<Vec<_>>()
        };
        assert_eq!(may(&open), [Role::Viewer, Role::Trainer, Role::Admin]);
        assert_eq!(may(&close), [Role::Viewer, Role::Trainer, Role::Admin], "of one's own");
        assert_eq!(may(&fetch), [Role::Node]);
    }
}
