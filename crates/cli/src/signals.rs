//! Signals. The first Ctrl-C asks a command to end, the second ends it. SIGHUP asks a service to read its files again.
//! Writing beyond a limit of file sizes ends nothing, and neither do signals with which other services reopen their
//! files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

use crate::failure::{Failure, Status};

/// The flags that signals to a service raise.
#[derive(Debug)]
pub(crate) struct ServiceSignals {
    end: Arc<AtomicBool>,
    reread: Arc<AtomicBool>,
}

impl ServiceSignals {
    /// Returns whether it is to end.
    pub(crate) fn wants_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Returns whether it is to read its files again, and forgets the request.
    pub(crate) fn wants_reread(&self) -> bool {
        self.reread.swap(false, Ordering::Relaxed)
    }
}

/// Catches signals as [`ending`] does, for services: they outlive the terminal from which they were started, and
/// signals with which many services reopen their files do not end them.
pub(crate) fn of_service() -> Result<ServiceSignals, Failure> {
    for signal in [SIGUSR1, SIGUSR2] {
        catch(signal)?;
    }
    Ok(ServiceSignals { reread: catch(SIGHUP)?, end: ending()? })
}

/// Makes a signal raise a flag and do nothing else; by default it ends the process.
fn catch(signal: i32) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let caught = signal_hook::flag::register(signal, Arc::clone(&flag));
    caught.map(|_| flag).map_err(|error| {
        Failure::new(Status::Failed, format_args!("cannot catch the signal {signal}: {error}"))
    })
}

/// Returns a flag that the first Ctrl-C (or SIGTERM) raises, which asks the command to end; a second one ends the
/// process at once.
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
