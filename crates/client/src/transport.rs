//! The transports by which lanes are stepped, and the places at which memory is asked for.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rollhouse_wire::Grant;

/// The transport by which a pool's sessions are stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Shared memory where a session's node answers at its attach socket on this machine, QUIC otherwise. Decided
    /// for each session when it is first attached.
    #[default]
    Auto,
    /// Shared memory; a pool that cannot have it is not opened. Lanes whose node is lost go on over QUIC all the same.
    Shm,
    /// QUIC.
    Quic,
}

impl Transport {
    /// Returns the word for it in connection strings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Quic => "quic",
        }
    }
}

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        match text {
            "auto" => Ok(Self::Auto),
            "shm" => Ok(Self::Shm),
            "quic" => Ok(Self::Quic),
            other => Err(UnknownTransport(other.chars().take(16).collect())),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The error for a word that names no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transport `{0}` is none of auto, shm, quic")]
pub struct UnknownTransport(String);

/// The places where attach sockets are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachPlaces {
    /// The folder in which a container has mounted the nodes' sockets.
    folder: Option<PathBuf>,
}

impl AttachPlaces {
    pub(crate) const fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Returns the path of the socket of a grant's node, if it has one.
    pub(crate) fn socket(&self, grant: &Grant) -> Option<PathBuf> {
        let advertised = Path::new(grant.attach.as_ref()?);
        match &self.folder {
            None => Some(advertised.to_owned()),
            // A name that tries to lead out of the folder has none.
            Some(folder) => Some(folder.join(advertised.file_name()?)),
        }
    }

    /// Returns whether a socket is believed whichever user's process answers there: in a container the node's user may
    /// have another number, and the folder was named by the caller.
    pub(crate) const fn anybody(&self) -> bool {
        self.folder.is_some()
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_wire::{Incarnation, Secret};

    use super::*;

    fn grant(attach: Option<&str>) -> Grant {
        Grant {
            index: 0,
            incarnation: Incarnation { term: 1, counter: 1 },
            secret: Secret::from_bytes([0; 16]),
            node: "n1".to_owned(),
            address: "127.0.0.1:7610".to_owned(),
            attach: attach.map(str::to_owned),
            first_lane: 0,
            lanes: 1,
        }
    }

    #[test]
    fn a_folder_of_the_callers_own_stands_for_the_advertised_one() {
        let there = AttachPlaces::new(None);
        assert_eq!(there.socket(&grant(None)), None);
        assert_eq!(there.socket(&grant(Some("/data/a.sock"))), Some("/data/a.sock".into()));
        let here = AttachPlaces::new(Some("/mnt/node".into()));
        assert_eq!(here.socket(&grant(Some("/data/a.sock"))), Some("/mnt/node/a.sock".into()));
        assert_eq!(here.socket(&grant(Some("/data/.."))), None);
        assert!(here.anybody() && !there.anybody());
    }

    #[test]
    fn words_read_back_and_others_are_refused_by_name() {
        for transport in [Transport::Auto, Transport::Shm, Transport::Quic] {
            assert_eq!(transport.word().parse(), Ok(transport));
        }
        let error = "tcp".parse::<Transport>().unwrap_err();
        assert_eq!(error.to_string(), "transport `tcp` is none of auto, shm, quic");
    }
}
