//! Ctrl-C: the first asks, the second ends. Writing beyond a limit of file sizes does neither, nor do signals that ask
//! other services to read their files again, which these do by themselves.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

use crate::failure::{Failure, Status};

/// As [`ending`], for services: they outlive the terminal they were started from, and signals that many services read
/// their files again by do not end them.
pub(crate) fn ending_of_service() -> Result<Arc<AtomicBool>, Failure> {
    for signal in [SIGHUP, SIGUSR1, SIGUSR2] {
        ignore(signal)?;
    }
    ending()
}

/// Has a signal do nothing; by default it ends the process.
fn ignore(signal: i32) -> Result<(), Failure> {
    let caught = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    caught.map(drop).map_err(|error| {
        Failure::new(Status::Failed, format_args!("cannot catch the signal {signal}: {error}"))
    })
}

/// Raised by the first Ctrl-C (or SIGTERM), which asks the command to end; a second one ends the process at once.
pub(crate) fn ending() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for (signal, code) in [(SIGINT, Status::Interrupted as i32), (SIGTERM, 128 + SIGTERM)] {
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::new(Status::Failed, format_args!("cannot catch Ctrl-C: {error}")))?;
    }
    // So that such a write fails as on a full disk.
    ignore(SIGXFSZ)?;
    Ok(flag)
}
