//! Why a target did not do what was asked.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Something failed at a target.
#[derive(Debug, Clone)]
pub struct TargetError {
    /// What the caller can do about it.
    pub fault: TargetFault,
    /// What was attempted, with the name of the object or of the target.
    what: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What a caller can do about a target's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetFault {
    /// The target was named in a way that makes no sense, or is not there: another name.
    Name,
    /// The target does not let us: other credentials or rights.
    Refused,
    /// The target does not answer, or says that it cannot now: later.
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

/// What is wrong with a segment that is kept at a target. It is never taken for whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The object is not there.
    Missing {
        /// Its name.
        object: String,
    },
    /// The object has other bytes than its label says.
    Bytes {
        /// Its name.
        object: String,
        /// Bytes and CRC-32C as the label has them.
        labelled: (u64, u32),
        /// As they are.
        found: (u64, u32),
    },
    /// The object has the bytes that its label says, and they are not what they should be.
    Content {
        /// Its name.
        object: String,
        /// What they are not.
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
