//! Requests and answers.

use rollhouse_core::msgpack::{DecodeError, EncodeError, Message};
use serde::de::Error;
use serde::{Deserialize, Serialize};

use crate::{
    AdmitWatcher, Attach, AttachMemory, Attached, AuditPage, AuditQuery, ClosePool, CloseSession,
    ClusterStatus, CommandsOpened, Drain, Enroll, Enrolled, EnvList, EnvPlace, EpisodeBytes, FetchEpisode,
    FetchPolicy, Heartbeat, HeartbeatTaken, ListAfter, MemoryAttached, NodeList, OpenCommands, OpenPool,
    OpenReplay, OpenSession, OpenWatch, PolicyBytes, PolicyList, PolicyPut, PolicyRemoved, PolicyVersion,
    PoolOpened, PoolStatus, PoolStatusRequest, PutPolicy, Refusal, Register, Registered, RemovePolicy,
    ReplaceSession, SessionEnd, SessionId, SessionList, SessionOpened, SessionReplaced, Ship, Shipped,
    StatusRequest, StoreData, StoreEpisodes, StoreLabel, StoreLabelPage, StoreLabelled, StoreLabels,
    StoreList, StoreListing, StoreQuery, StoreRead, StoreRepair, StoreRepaired, StoreStats,
    StoreStatsRequest, Undrain, Versions, Watch, WatchGrant, WatchOpened, WatcherAdmitted,
};

/// A message that asks for something: what is said first on a stream, by the side that opens it.
pub trait Asks: Into<Request> {
    /// The word in messages and metrics.
    const WORD: &'static str;
    /// The answer, unless it is refused.
    type Answer: Message;
}

/// Makes of a table of all requests their enum and what is known of each: word, message, answer, and who may ask.
macro_rules! requests {
    ($($word:literal: $variant:ident($asked:ty) => $answer:ident, $askers:ident;)*) => {
        /// The first message on every stream. The side that opens the stream asks, and the other side answers with
        /// [`Answer`].
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type")]
        pub enum Request {
            $(
                #[doc = concat!("`", $word, "`; the answer is [`", stringify!($answer), "`].")]
                #[serde(rename = $word)]
                $variant($asked),
            )*
        }

        $(
            impl Asks for $asked {
                const WORD: &'static str = $word;
                type Answer = $answer;
            }

            impl From<$asked> for Request {
                fn from(asked: $asked) -> Self {
                    Self::$variant(asked)
                }
            }
        )*

        impl Request {
            /// The words of all requests of this version.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
            /// The roles of those who may ask for each of them.
            #[cfg(test)]
            const ASKERS: &'static [&'static [Role]] = &[$($askers),*];

            /// Returns the word in messages and metrics, which is also its `type` on the wire.
            pub const fn word(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word,)*
                }
            }

            /// Returns the roles of those who may ask for it.
            pub const fn askers(&self) -> &'static [Role] {
                match self {
                    $(Self::$variant(_) => $askers,)*
                }
            }
        }
    };
}

requests! {
    "hello": Hello(Hello) => Welcome, NOBODY;
    "open_pool": OpenPool(OpenPool) => PoolOpened, TRAINERS;
    "close_pool": ClosePool(ClosePool) => PoolStatus, READERS;
    "pool_status": PoolStatus(PoolStatusRequest) => PoolStatus, READERS;
    "status": Status(StatusRequest) => ClusterStatus, READERS;
    "nodes": Nodes(ListAfter<String>) => NodeList, READERS;
    "sessions": Sessions(ListAfter<SessionId>) => SessionList, READERS;
    "drain": Drain(Drain) => Done, ADMINS;
    "undrain": Undrain(Undrain) => Done, ADMINS;
    "register": Register(Register) => Registered, NODES;
    "heartbeat": Heartbeat(Heartbeat) => HeartbeatTaken, NODES;
    "ship": Ship(Ship) => Shipped, NODES;
    "envs": Envs(ListAfter<EnvPlace>) => EnvList, READERS;
    "open_session": OpenSession(OpenSession) => SessionOpened, COORDINATORS;
    "close_session": CloseSession(CloseSession) => SessionEnd, COORDINATORS;
    "attach": Attach(Attach) => Attached, ANYBODY;
    "attach_memory": AttachMemory(AttachMemory) => MemoryAttached, ANYBODY;
    "commands": Commands(OpenCommands) => CommandsOpened, ANYBODY;
    "replace_session": ReplaceSession(ReplaceSession) => SessionReplaced, TRAINERS;
    "store_list": StoreList(StoreList) => StoreListing, READERS;
    "store_read": StoreRead(StoreRead) => StoreData, READERS;
    "store_repair": StoreRepair(StoreRepair) => StoreRepaired, ADMINS;
    "store_query": StoreQuery(StoreQuery) => StoreEpisodes, READERS;
    "store_stats": StoreStats(StoreStatsRequest) => StoreStats, READERS;
    "enroll": Enroll(Enroll) => Enrolled, JOINING;
    "watch": Watch(Watch) => WatchGrant, READERS;
    "admit_watcher": AdmitWatcher(AdmitWatcher) => WatcherAdmitted, COORDINATORS;
    "open_watch": OpenWatch(OpenWatch) => WatchOpened, ANYBODY;
    "store_label": StoreLabel(StoreLabel) => StoreLabelled, TRAINERS;
    "store_labels": StoreLabels(StoreLabels) => StoreLabelPage, READERS;
    "audit": Audit(AuditQuery) => AuditPage, ADMINS;
    "open_replay": OpenReplay(OpenReplay) => PoolOpened, READERS;
    "fetch_episode": FetchEpisode(FetchEpisode) => EpisodeBytes, NODES;
    "put_policy": PutPolicy(PutPolicy) => PolicyPut, TRAINERS;
    "policies": Policies(ListAfter<PolicyVersion>) => PolicyList, READERS;
    "fetch_policy": FetchPolicy(FetchPolicy) => PolicyBytes, NODES_AND_READERS;
    "remove_policy": RemovePolicy(RemovePolicy) => PolicyRemoved, TRAINERS;
}

/// `hello` comes before there is a role.
const NOBODY: &[Role] = &[];
/// The session's secret decides.
const ANYBODY: &[Role] =
    &[Role::Anonymous, Role::Viewer, Role::Trainer, Role::Node, Role::Admin, Role::Coordinator];
const READERS: &[Role] = &[Role::Viewer, Role::Trainer, Role::Admin];
const TRAINERS: &[Role] = &[Role::Trainer, Role::Admin];
const ADMINS: &[Role] = &[Role::Admin];
const NODES: &[Role] = &[Role::Node];
const NODES_AND_READERS: &[Role] = &[Role::Viewer, Role::Trainer, Role::Node, Role::Admin];
const JOINING: &[Role] = &[Role::Join, Role::Node];
const COORDINATORS: &[Role] = &[Role::Coordinator];

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

    /// Returns whether a peer of this role may ask for that.
    pub fn may(self, request: &Request) -> bool {
        request.askers().contains(&self)
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

    #[test]
    fn the_page_of_the_protocol_has_a_row_for_each_request_with_those_who_may_ask_for_it() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md")).unwrap();
        // What is said first has a section of its own.
        for (word, askers) in Request::WORDS.iter().zip(Request::ASKERS).skip(1) {
            let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{word}` | ")));
            let says = row.map(|row| row.split(" | ").next().unwrap());
            let names: Vec<_> = askers.iter().map(|role| role.word()).collect();
            let wanted = match *word {
                "attach_memory" => "a process on the node's machine".to_owned(),
                _ if *askers == ANYBODY => "anybody".to_owned(),
                _ => names.join(", "),
            };
            assert_eq!(says, Some(wanted.as_str()), "{word}");
        }
    }
}
