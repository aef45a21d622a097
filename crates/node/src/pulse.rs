//! Shows other threads whether a thread still turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Marks each second on a runtime's thread that it turns. Clones show the same marks.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    began: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), last_ms: Arc::default() }
    }

    /// Marks for ever, on the runtime that it is spawned on.
    pub(crate) async fn run(self) {
        loop {
            self.mark();
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Returns how long ago the last mark was made.
    pub(crate) fn silent(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }

    /// Marks that the thread turns.
    pub(crate) fn mark(&self) {
        // 584 million years of milliseconds.
        self.last_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_turn_is_silent_for_as_long() {
        let began = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let pulse = Pulse { began, last_ms: Arc::default() };
        assert!(pulse.silent() >= Duration::from_secs(60));
        pulse.mark();
        assert!(pulse.clone().silent() < Duration::from_secs(60));
    }
}
