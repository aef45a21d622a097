//! Ctrl-C: the first asks, the second ends. SIGHUP asks a service to read its files again. Writing beyond a limit of file
//! sizes ends nothing, nor do signals by which other services reopen theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

use crate::failure::{Failure, Status};

/// What signals ask a service for.
#[derive(Debug)]
pub(crate) struct Asked {
    end: Arc<AtomicBool>,
    reread: Arc<AtomicBool>,
}

impl Asked {
    /// Whether it is to end.
    pub(crate) fn wants_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether it is to read its files again; what was asked so is forgotten.
    pub(crate) fn wants_reread(&self) -> bool {
        self.reread.swap(false, Ordering::Relaxed)
    }
}

/// As [`ending`], for services: they outlive the terminal they were started from, and signals by which many services
/// reopen their files do not end them.
pub(crate) fn of_service() -> Result<Asked, Failure> {
    for signal in [SIGUSR1, SIGUSR2] {
        catch(signal)?;
    }
    Ok(Asked { reread: catch(SIGHUP)?, end: ending()? })
}

/// Has a signal raise a flag and do nothing else; by default it ends the process.
fn catch(signal: i32) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let caught = signal_hook::flag::register(signal, Arc::clone(&flag));
    caught.map(|_| flag).map_err(|error| {
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
    catch(SIGXFSZ)?;
    Ok(flag)
}
