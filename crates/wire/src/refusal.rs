//! Why a request was refused.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CallId, EndCause};

/// A typed refusal: what went wrong, for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of refusal.
    pub code: RefusalCode,
    /// One sentence, lower case, naming value and limit.
    pub message: String,
    /// When asking again makes sense; only with [`RefusalCode::Busy`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Why the session that was asked for is not there any more; only with [`RefusalCode::NotFound`], and only if it is
    /// still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndCause>,
}

/// What kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// No common version of the protocol.
    Version,
    /// No valid token and no valid certificate: unknown, expired or revoked.
    Unauthenticated,
    /// Known, but the role may not do this.
    Forbidden,
    /// A bounded queue is full, or no node has room now; ask again later.
    Busy,
    /// The token's quota does not allow it.
    Quota,
    /// A field is missing, malformed or out of its bounds.
    BadRequest,
    /// No such env, node, pool or session.
    NotFound,
    /// The incarnation named is not the current one.
    Stale,
    /// The node or coordinator is going away.
    Draining,
    /// The request is not known to this version.
    Unsupported,
    /// The fault is on the answering side.
    Internal,
    /// A code of a newer version.
    #[serde(other)]
    Unknown,
}

impl RefusalCode {
    /// Whether the same request may succeed later without anybody changing anything.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Busy | Self::Draining)
    }

    /// The word in messages and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::Busy => "busy",
            Self::Quota => "quota",
            Self::BadRequest => "bad_request",
            Self::NotFound => "not_found",
            Self::Stale => "stale",
            Self::Draining => "draining",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
        }
    }
}

impl Refusal {
    /// A refusal without a time to try again.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_ms: None, ended: None }
    }

    /// The same, which says of which call it is: the logs of coordinator and nodes name that.
    #[must_use]
    pub fn of_call(self, call: CallId) -> Self {
        Self { message: format!("{} (call={call})", self.message), ..self }
    }

    /// "Try again after so many milliseconds."
    pub fn busy(message: impl Into<String>, retry_after_ms: u64) -> Self {
        let retry_after_ms = Some(retry_after_ms);
        Self { code: RefusalCode::Busy, message: message.into(), retry_after_ms, ended: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.word(), self.message)?;
        match self.retry_after_ms {
            Some(ms) => write!(f, "; try again in {ms} ms"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
