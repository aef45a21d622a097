//! How many processes are being launched at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bounds how many processes are launching at a time, over all hosts that were given a clone of it: starting them all
/// together makes each miss its deadline. A launch lasts until the process reports that it is ready or is lost.
#[derive(Debug, Clone)]
pub struct Launcher {
    bounds: Arc<Bounds>,
}

#[derive(Debug)]
struct Bounds {
    most: usize,
    launching: AtomicUsize,
}

/// A launch under way, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Launching {
    bounds: Arc<Bounds>,
}

impl Launcher {
    /// For at most so many launches at a time, at least 1.
    pub fn new(max_launching: usize) -> Self {
        Self { bounds: Arc::new(Bounds { most: max_launching.max(1), launching: AtomicUsize::new(0) }) }
    }

    /// How many processes may be launching at a time.
    pub fn max_launching(&self) -> usize {
        self.bounds.most
    }

    /// How many are launching now.
    pub fn launching(&self) -> usize {
        self.bounds.launching.load(Ordering::Relaxed)
    }

    /// A place for one more launch; `None` if as many are under way as may be. Does not wait.
    pub(crate) fn begin(&self) -> Option<Launching> {
        let bounds = &self.bounds;
        let room = |launching: usize| (launching < bounds.most).then_some(launching + 1);
        bounds.launching.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Launching { bounds: Arc::clone(bounds) })
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        self.bounds.launching.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_launch_at_a_time_than_allowed_whoever_asks() {
        let launcher = Launcher::new(2);
        let other = launcher.clone();
        let (first, second) = (launcher.begin().unwrap(), other.begin().unwrap());
        assert!(launcher.begin().is_none() && other.begin().is_none());
        drop(first);
        let third = other.begin().unwrap();
        assert_eq!((launcher.launching(), launcher.begin().is_none()), (2, true));
        drop((second, third));
        assert_eq!(launcher.launching(), 0);
    }
}
