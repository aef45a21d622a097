//! Why a token is not accepted, and why tokens cannot be read or changed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::MAX_TOKENS;
use crate::Role;

/// The reason why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// The text is not a token, no token has its id, or the secret is wrong; a stranger is not told which.
    #[error("the token is not valid")]
    NotValid,
    /// The token was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The token has another secret by now, and the one that was shown holds no longer.
    #[error("the token's secret was replaced, and the time for changing over is past")]
    Replaced,
    /// The token has expired.
    #[error("the token expired {ago} s ago", ago = .ago.as_secs())]
    Expired {
        /// Time since it expired.
        ago: Duration,
    },
}

/// The reason why tokens cannot be read or changed.
#[expect(missing_docs, reason = "the fields' names say what they are")]
#[derive(Debug)]
pub enum TokenFileError {
    /// The file cannot be read.
    Read { path: PathBuf, source: io::Error },
    /// The file does not hold tokens.
    Parse { path: PathBuf, source: serde_json::Error },
    /// The file cannot be written.
    Write { path: PathBuf, source: io::Error },
    /// There is no token with that id.
    Unknown(String),
    /// No token is made for that role: it needs a certificate.
    Role(Role),
    /// The text is not a name.
    Name(String),
    /// It is a join token without an end or terms, or another token with terms.
    Terms,
    /// It names owners to read, and is of a role that reads everything or nothing.
    Reads(Role),
    /// A token that does not hold any more is not rotated.
    Over(String, TokenRefused),
    /// There are [`MAX_TOKENS`] tokens already.
    TooMany,
    /// The operating system's generator gave nothing.
    NoRandomness,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, .. } => write!(f, "{} cannot be read", path.display()),
            Self::Parse { path, source } => write!(f, "{} does not hold tokens: {source}", path.display()),
            Self::Write { path, .. } => write!(f, "{} cannot be written", path.display()),
            Self::Unknown(id) => write!(f, "there is no token `{id}`"),
            Self::Over(id, why) => write!(f, "token `{id}` is not rotated: {why}; make another"),
            Self::Role(role) => {
                write!(f, "no token is made for the role {}, which needs a certificate", role.word())
            }
            Self::Name(name) => write!(
                f,
                "`{name}` is not a name; a name has 1 to {} letters, digits, `.`, `_` or `-`",
                crate::limits::MAX_NAME_BYTES
            ),
            Self::Terms => f.write_str(
                "a join token needs a time and a number of nodes, and no other token has a number of nodes",
            ),
            Self::Reads(role) => {
                write!(
                    f,
                    "whose recordings are read is set for viewers and trainers, not for the role {}",
                    role.word()
                )
            }
            Self::TooMany => write!(f, "there are {MAX_TOKENS} tokens already, the most that are kept"),
            Self::NoRandomness => f.write_str("the operating system gave no random bytes"),
        }
    }
}

impl std::error::Error for TokenFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::Parse { source, .. } => Some(source),
            Self::Unknown(_)
            | Self::Over(..)
            | Self::Role(_)
            | Self::Name(_)
            | Self::Terms
            | Self::Reads(_)
            | Self::TooMany
            | Self::NoRandomness => None,
        }
    }
}
