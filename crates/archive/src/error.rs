//! Errors of targets, and flaws of segments at them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A failure at a target.
#[derive(Debug, Clone)]
pub struct TargetError {
    /// The kind of failure: tells the caller what can be done about it.
    pub fault: TargetFault,
    /// The operation that was attempted, with the name of the object or of the target.
    what: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of a target's failure, which tells what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetFault {
    /// The target's name makes no sense, or there is no such target. Another name may help.
    Name,
    /// The target refuses access. Other credentials or rights may help.
    Refused,
    /// The target does not answer, or says that it cannot now. A later attempt may help.
    Unavailable,
    /// The disk, or the target, failed in another way.
    Failed,
}

impl TargetError {
    pub(crate) fn new(fault: TargetFault, what: impl Into<String>) -> Self {
        Self { fault, what: what.into(), source: None }
    }

    pub(crate) fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for TargetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// A flaw of a segment at a target. Such a segment never counts as whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The object is not there.
    Missing {
        /// Name of the object.
        object: String,
    },
    /// The object does not have the bytes that its label says.
    Bytes {
        /// Name of the object.
        object: String,
        /// Bytes and CRC-32C, as the label has them.
        labelled: (u64, u32),
        /// Bytes and CRC-32C, as they were found.
        found: (u64, u32),
    },
    /// The object has the bytes that its label says, but their content is wrong.
    Content {
        /// Name of the object.
        object: String,
        /// The content that was expected, in words.
        what: &'static str,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { object } => write!(f, "{object} is missing"),
            Self::Bytes { object, labelled, found } => write!(
                f,
                "{object} has {} bytes with CRC {:08x}, its label says {} and {:08x}",
                found.0, found.1, labelled.0, labelled.1
            ),
            Self::Content { object, what } => write!(f, "{object}: {what}"),
        }
    }
}

impl Error for Flaw {}
