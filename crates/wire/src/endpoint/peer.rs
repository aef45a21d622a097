//! The peer at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use rollhouse_core::Claimant;

use crate::{PeerCertificate, ReadGrant, Role};

/// The other end of a connection, once it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its role, which decides what it may do.
    pub role: Role,
    /// The name in its certificate or of its token; empty for [`Role::Anonymous`].
    pub name: String,
    /// The proof by which it is known.
    pub credential: Credential,
    /// Number of lanes that it may have open at a time; `None` means no bound.
    pub max_lanes: Option<u32>,
    /// The owners whose recordings, pools and sessions it may read.
    pub reads: ReadGrant,
    /// Its address when it connected.
    pub address: SocketAddr,
}

impl Peer {
    /// Returns the name under which it owns pools. Tokens of one name are told apart by their ids: each has its own
    /// quota and pools. A name has no colon.
    pub fn owner(&self) -> String {
        self.credential.owner(&self.name)
    }

    /// Returns who takes parts of shared bounds by what the peer does.
    pub fn claimant(&self) -> Claimant {
        match self.role {
            Role::Node | Role::Admin | Role::Coordinator => Claimant::operator(self.owner()),
            Role::Anonymous | Role::Viewer | Role::Trainer | Role::Join => Claimant::owner(self.owner()),
        }
    }
}

/// The proof by which a peer is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// The peer has shown nothing: each session's secret has to do.
    None,
    /// The peer has shown a certificate.
    Certificate,
    /// The peer has shown a token.
    Token {
        /// The token's id.
        id: String,
        /// The first 8 bytes of the SHA-256 of the secret that was shown: a token may get another.
        secret: u64,
    },
}

impl Credential {
    /// Returns the owner of that name who has shown it.
    pub(crate) fn owner(&self, name: &str) -> String {
        match self {
            Self::Token { id, .. } => format!("{name}:{id}"),
            Self::Certificate | Self::None => name.to_owned(),
        }
    }
}

impl Peer {
    /// Returns the peer that a node takes every owner for: nobody in particular. Each session's secret has to do.
    pub const fn anonymous(stranger: &Stranger) -> Self {
        Self {
            role: Role::Anonymous,
            name: String::new(),
            credential: Credential::None,
            max_lanes: None,
            reads: ReadGrant::none(),
            address: stranger.address,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "{} at {}", self.role.word(), self.address),
            name => write!(f, "{} `{name}` at {}", self.role.word(), self.address),
        }
    }
}

/// A peer that has connected and is not known yet.
#[derive(Debug, Clone)]
pub struct Stranger {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate, which nobody has checked yet; `None` if it showed none.
    pub certificate: Option<PeerCertificate>,
}
