//! The launcher, which bounds how many processes launch at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bound on the number of processes that launch at a time, over all hosts that were given a clone of it. Without it,
/// processes that start all together would each miss their deadline. A launch lasts until the process reports that it
/// is ready or that it connects, or is lost.
#[derive(Debug, Clone)]
pub struct Launcher {
    bounds: Arc<Bounds>,
}

#[derive(Debug)]
struct Bounds {
    most: usize,
    launching: AtomicUsize,
}

/// Launch under way, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Launching {
    bounds: Arc<Bounds>,
}

impl Launcher {
    /// Makes a launcher for at most that many launches at a time, at least 1.
    pub fn new(max_launching: usize) -> Self {
        Self { bounds: Arc::new(Bounds { most: max_launching.max(1), launching: AtomicUsize::new(0) }) }
    }

    /// Returns how many processes may be launching at a time.
    pub fn max_launching(&self) -> usize {
        self.bounds.most
    }

    /// Returns how many processes are launching now.
    pub fn launching(&self) -> usize {
        self.bounds.launching.load(Ordering::Relaxed)
    }

    /// Takes a place for one more launch; `None` if all places are taken. Does not wait.
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
