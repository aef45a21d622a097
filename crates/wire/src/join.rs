//! Joining: how a machine asks to be a node, what it is given, and what a join token allows.

use std::fmt;

use serde::{Deserialize, Serialize};

use rollhouse_core::{NODE_NAME_RULE, is_node_name};

use crate::{TokenFileError, TokenRefused};

/// Asks the coordinator for a certificate as that node. Sent by the holder of a join token, or by a node that has a
/// certificate and wants its next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enroll {
    /// The name under which the node goes; for a node that has a certificate, its own name.
    pub node: String,
    /// PKCS #10, DER, at most [`MAX_CERTIFICATE_REQUEST_BYTES`](crate::limits::MAX_CERTIFICATE_REQUEST_BYTES): an ECDSA
    /// key of the curve P-256, signed with SHA-256. Names in it are ignored.
    #[serde(with = "serde_bytes")]
    pub request: Vec<u8>,
}

/// A certificate for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    /// PEM: the node's certificate, then those that link it to the authority, the authority's own last.
    pub certificate: String,
    /// PEM: the authorities that the coordinator trusts, which the node is to trust as well.
    pub authorities: String,
}

/// The nodes that a join token lets in, and how many it has let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinTerms {
    /// The name of the only node that may join, if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The prefix that nodes' names must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// Number of nodes that the token lets in; a node that joins again counts again.
    pub uses: u32,
    /// Number of nodes that it has let in.
    #[serde(default)]
    pub used: u32,
}

impl JoinTerms {
    /// Returns terms for that many nodes of any names.
    pub const fn new(uses: u32) -> Self {
        Self { node: None, name_prefix: None, uses, used: 0 }
    }

    /// Checks whether a node of that name may be let in, in addition to those before it.
    ///
    /// # Errors
    /// [`JoinRefused::Name`] or [`JoinRefused::UsedUp`].
    pub fn admit(&self, node: &str) -> Result<(), JoinRefused> {
        let name = || JoinRefused::Name { node: node.chars().take(200).collect(), terms: self.clone() };
        let begins = self.name_prefix.as_ref().is_none_or(|prefix| node.starts_with(prefix.as_str()));
        let is_it = self.node.as_ref().is_none_or(|only| only == node);
        if !(is_node_name(node) && begins && is_it) {
            return Err(name());
        }
        if self.used >= self.uses { Err(JoinRefused::UsedUp { uses: self.uses }) } else { Ok(()) }
    }
}

/// Prints the names and the number of uses, in words that follow "a token".
impl fmt::Display for JoinTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.name_prefix) {
            (Some(node), _) => write!(f, "for the node `{node}`"),
            (None, Some(prefix)) => write!(f, "for nodes whose names begin with `{prefix}`"),
            (None, None) => f.write_str("for nodes of any name"),
        }
    }
}

/// The reason why a join token does not let a node in.
#[derive(Debug)]
pub enum JoinRefused {
    /// The name is malformed, or the token is not for it.
    Name {
        /// The name, cut to what fits in a line.
        node: String,
        /// The terms of the token.
        terms: JoinTerms,
    },
    /// The token has let in as many nodes as it may.
    UsedUp {
        /// Number of nodes that it may let in.
        uses: u32,
    },
    /// The token does not hold, or is not a join token.
    Token(TokenRefused),
    /// The use of the token cannot be saved.
    File(TokenFileError),
}

impl fmt::Display for JoinRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { node, .. } if !is_node_name(node) => {
                write!(f, "`{node}` is not a node's name; a node's name has {NODE_NAME_RULE}")
            }
            Self::Name { node, terms } => write!(f, "the token is {terms}, not for `{node}`"),
            Self::UsedUp { uses: 1 } => f.write_str("the token was for one node, which has joined"),
            Self::UsedUp { uses } => write!(f, "the token was for {uses} nodes, and as many have joined"),
            Self::Token(refused) => refused.fmt(f),
            Self::File(_) => f.write_str("the token's use cannot be saved"),
        }
    }
}

impl std::error::Error for JoinRefused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Token(refused) => Some(refused),
            Self::File(error) => Some(error),
            Self::Name { .. } | Self::UsedUp { .. } => None,
        }
    }
}

impl From<TokenFileError> for JoinRefused {
    fn from(error: TokenFileError) -> Self {
        Self::File(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_admit_the_names_they_name_and_no_more_than_so_many() {
        let any = JoinTerms::new(2);
        assert!(any.admit("a").is_ok());
        assert!(matches!(any.admit("a b"), Err(JoinRefused::Name { .. })));
        assert!(matches!(
            JoinTerms { used: 2, ..any.clone() }.admit("a"),
            Err(JoinRefused::UsedUp { uses: 2 })
        ));
        let only = JoinTerms { node: Some("gpu-1".into()), ..any.clone() };
        assert!(only.admit("gpu-1").is_ok() && only.admit("gpu-10").is_err());
        let some = JoinTerms { name_prefix: Some("gpu-".into()), ..any };
        assert!(some.admit("gpu-10").is_ok() && some.admit("cpu-1").is_err());
    }
}
