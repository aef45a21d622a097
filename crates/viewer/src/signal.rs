//! Signals that end the process, which must not leave the terminal as it is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::screen_guard;

/// A signal that asks the process to end.
pub(crate) struct Signal {
    /// Number of the signal; 0 while there is none.
    number: Arc<AtomicI32>,
    catching: Handle,
}

impl Signal {
    pub(crate) fn catch() -> io::Result<Self> {
        let number = Arc::new(AtomicI32::new(0));
        let caught = Arc::clone(&number);
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let catching = signals.handle();
        // Task: signals of the viewer.
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in &mut signals {
                caught.store(signal, Ordering::Relaxed);
                // The other thread obeys, unless it is kept by something else: a disk, or a terminal that takes nothing.
                thread::sleep(GRACE);
                screen_guard::give_back();
                let _ended = emulate_default_handler(signal);
            }
        })?;
        Ok(Self { number, catching })
    }

    pub(crate) fn caught(&self) -> Option<i32> {
        Some(self.number.load(Ordering::Relaxed)).filter(|&number| number > 0)
    }

    /// Ends the process in the way of the signal that was caught, if there was one.
    pub(crate) fn obey(&self) {
        if let Some(signal) = self.caught() {
            // It does not return for these.
            let _ended = emulate_default_handler(signal);
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.catching.close();
    }
}

/// Time after a signal at which the process ends at the latest.
const GRACE: Duration = Duration::from_secs(1);
