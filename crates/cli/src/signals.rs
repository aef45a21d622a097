//! Ctrl-C: the first asks, the second ends. Writing beyond a limit of file sizes does neither.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};

use crate::failure::{Failure, Status};

/// Raised by the first Ctrl-C (or SIGTERM), which asks the command to end; a second one ends the process at once.
pub(crate) fn ending() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for (signal, code) in [(SIGINT, Status::Interrupted as i32), (SIGTERM, 128 + SIGTERM)] {
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::new(Status::Failed, format_args!("cannot catch Ctrl-C: {error}")))?;
    }
    // So that such a write fails as on a full disk; by default it ends the process.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .map_err(|error| Failure::new(Status::Failed, format_args!("cannot catch SIGXFSZ: {error}")))?;
    Ok(flag)
}
