//! The audit of a coordinator, as an admin asks for it.

use serde::{Deserialize, Serialize};

/// A change that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// Number of the line: each is greater than those of all lines before it.
    pub number: u64,
    /// Wall clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who asked: role and name of a peer, or the user of the machine.
    pub by: String,
    /// The address from which a peer asked; empty on the machine itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The kind of change.
    pub action: String,
    /// What it changes.
    pub subject: String,
}

/// Asks the coordinator for its audit, a page at a time, the newest lines first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditQuery {
    /// Only lines before that number; all if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Number of lines, at most [`MAX_AUDIT_LINES`](crate::limits::MAX_AUDIT_LINES).
    pub limit: u32,
}

/// A part of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditPage {
    /// The newest lines that were asked for, the oldest of them first.
    pub lines: Vec<AuditLine>,
    /// Whether there are lines before these.
    pub more: bool,
}
