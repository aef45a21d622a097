//! The lines that commands on a coordinator's machine add to its audit, before they change something.

use std::path::Path;

use rollhouse_coordinator::{AuditLine, AuditLog};

use crate::failure::{Failure, Status};

/// Writes a line about a change to a coordinator's folder that this command is about to make.
///
/// # Errors
/// The line cannot be written; the change must not be made then.
pub(crate) fn note(data: &Path, action: &str, subject: &str) -> Result<(), Failure> {
    let by = format!("user {} of the coordinator's machine", rustix::process::getuid().as_raw());
    AuditLog::of(data).write(&AuditLine::new(by, action, subject)).map_err(|error| {
        let what = format_args!(
            "nothing was changed, because the audit in {} cannot be written: {error}",
            data.display()
        );
        Failure::new(Status::Failed, what)
    })
}

/// Writes a line about a change to a store, if it is a coordinator's.
///
/// # Errors
/// The line cannot be written; the change must not be made then.
pub(crate) fn note_of_store(store: &Path, action: &str, subject: &str) -> Result<(), Failure> {
    let data = store.parent().filter(|data| data.join(OF_COORDINATOR).exists() && store.ends_with(STORE));
    data.map_or(Ok(()), |data| note(data, action, subject))
}

/// A file that every coordinator has in its folder once it was started.
const OF_COORDINATOR: &str = "coordinator.lock";
/// The name of the store in a coordinator's folder.
const STORE: &str = "store";
