//! Refusals, which say why a request is not done.

use std::fmt;

use rollhouse_core::cut_sentence;
use serde::{Deserialize, Serialize};

use crate::limits::MAX_REFUSAL_BYTES;

use crate::{CallId, EndCause};

/// A typed refusal: the reason for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of refusal.
    pub code: RefusalCode,
    /// One sentence, lower case, that names the value and the limit; of more than
    /// [`MAX_REFUSAL_BYTES`](crate::limits::MAX_REFUSAL_BYTES) the middle is left out.
    #[serde(deserialize_with = "cut_sentence::<MAX_REFUSAL_BYTES, _>")]
    pub message: String,
    /// Time after which asking again makes sense; only with [`RefusalCode::Busy`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The reason why the session that was asked for is gone; only with [`RefusalCode::NotFound`], and only if it is
    /// still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndCause>,
    /// Whether the session's lanes are better resumed on another node than waited for on this one: it cannot record
    /// them. Only with [`RefusalCode::Busy`], and only of a session's requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave: bool,
}

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The two sides have no common version of the protocol.
    Version,
    /// The peer has no valid token and no valid certificate: unknown, expired or revoked.
    Unauthenticated,
    /// The peer is known, but its role may not do this.
    Forbidden,
    /// A bounded queue is full, or no node has room now; ask again later.
    Busy,
    /// The token's quota does not allow it.
    Quota,
    /// A field is missing, malformed or out of its bounds.
    BadRequest,
    /// There is no such env, node, pool or session.
    NotFound,
    /// The given incarnation is not the current one.
    Stale,
    /// The node or coordinator is going away.
    Draining,
    /// This version does not know the request.
    Unsupported,
    /// The fault is on the answering side.
    Internal,
    /// A code of a newer version.
    #[serde(other)]
    Unknown,
}

impl RefusalCode {
    /// Returns whether the same request may succeed later although nobody changes anything.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Busy | Self::Draining)
    }

    /// Returns the word in messages and metrics.
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
    /// Makes a refusal without a time to try again.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_ms: None, ended: None, leave: false }
    }

    /// Adds to the message which call it belongs to: the logs of coordinator and nodes name that call.
    #[must_use]
    pub fn of_call(self, call: CallId) -> Self {
        Self { message: format!("{} (call={call})", self.message), ..self }
    }

    /// Makes a refusal with [`RefusalCode::Busy`] that asks the peer to try again after `retry_after_ms` milliseconds.
    pub fn busy(message: impl Into<String>, retry_after_ms: u64) -> Self {
        let retry_after_ms = Some(retry_after_ms);
        Self { retry_after_ms, ..Self::new(RefusalCode::Busy, message) }
    }

    /// Adds that the session's lanes are better resumed on another node.
    #[must_use]
    pub fn leaving(self) -> Self {
        Self { leave: true, ..self }
    }
}

/// Shows the sentence alone; programs read the code.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A sentence says more than the word for its kind.
        f.write_str(if self.message.is_empty() { self.code.word() } else { &self.message })?;
        match self.retry_after_ms {
            Some(ms) => write!(f, "; try again in {ms} ms"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `internal: a control message ...` on the command line and in exceptions. Cause: the word for programs stood before
    /// the sentence for people. Fix: it is a field of its own, and shown where there is no sentence.
    #[test]
    fn a_refusal_is_shown_by_its_sentence_and_by_its_word_where_it_has_none() {
        let shown = |code, message: &str| Refusal::new(code, message).to_string();
        assert_eq!(shown(RefusalCode::Internal, "the disk has failed"), "the disk has failed");
        assert_eq!(shown(RefusalCode::Draining, ""), "draining");
        let busy = Refusal::busy("no node has room", 500);
        assert_eq!(busy.to_string(), "no node has room; try again in 500 ms");
    }
}
