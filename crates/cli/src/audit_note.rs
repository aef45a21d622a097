//! The lines that commands on the machine of a coordinator or an authority add to its audit, before they change something.

use std::path::Path;

use rollhouse_coordinator::{AuditLog, AuditedChange};

use crate::failure::{Failure, Status};

/// Writes a line about a change to a coordinator's or an authority's folder that this command is about to make, or about what
/// is made with it.
///
/// # Errors
/// The line cannot be written; the change must not be made then.
pub(crate) fn note(data: &Path, action: &'static str, subject: &str) -> Result<(), Failure> {
    let by = format!("user {} of its machine", rustix::process::getuid().as_raw());
    let change = AuditedChange { by, from: String::new(), action, subject: subject.to_owned() };
    AuditLog::of(data).write(change).map_err(|error| {
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
pub(crate) fn note_of_store(store: &Path, action: &'static str, subject: &str) -> Result<(), Failure> {
    let data = store.parent().filter(|data| data.join(OF_COORDINATOR).exists() && store.ends_with(STORE));
    data.map_or(Ok(()), |data| note(data, action, subject))
}

/// A file that every coordinator has in its folder once it was started.
const OF_COORDINATOR: &str = "coordinator.lock";
/// The name of the store in a coordinator's folder.
const STORE: &str = "store";
