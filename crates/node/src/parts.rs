//! Keeps going the parts that a node needs for as long as it lives: a part that ends is made anew.
//!
//! ```text
//! running --panicked, gone--> backing off --> running
//!                             backing off --too often--> failed     for good: the node is to be stopped
//! running --done--> (over)                                          it was asked to end
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{BackOff, RestartDecision, contained};
use tokio::sync::watch;

/// A part that is kept going.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The actor that supervises the sessions.
    Sessions,
    /// The task that keeps the connection to the coordinator.
    Link,
    /// The task that ships recordings.
    Shipping,
    /// The thread that serves owners.
    Data,
    /// The task that lets owners on this machine in.
    Attach,
    /// The thread that writes recordings.
    Recorder,
}

/// The way in which a part ended without being asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartExit {
    /// It panicked, with this message.
    Panicked(String),
    /// It is gone without a message.
    Gone,
    /// It could not begin again, for this reason.
    Failed(String),
    /// Somebody has removed its folder.
    Removed(PathBuf),
}

/// The end of a part that was not asked to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mishap {
    /// The part that ended.
    pub part: Part,
    /// The way in which it ended.
    pub exit: PartExit,
}

/// The state of a node's parts, and how often they ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartsHealth {
    /// Number of times that each part ended and was or will be made anew, by the word for how it ended.
    pub restarts: BTreeMap<(Part, &'static str), u64>,
    /// The last end of a part.
    pub last: Option<Arc<Mishap>>,
    /// The part that ended too often, or cannot be made anew: the node does not work any more and is to be stopped.
    pub failed: Option<Arc<Mishap>>,
}

impl PartsHealth {
    /// Returns how often any part ended and was or will be made anew.
    pub fn all_restarts(&self) -> u64 {
        self.restarts.values().sum()
    }
}

impl Part {
    /// Returns the word for it in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sessions => "node_actor",
            Self::Link => "link",
            Self::Shipping => "shipping",
            Self::Data => "data",
            Self::Attach => "attach",
            Self::Recorder => "recorder",
        }
    }
}

impl Mishap {
    /// Returns whether rollhouse itself is to blame.
    pub const fn is_bug(&self) -> bool {
        !matches!(self.exit, PartExit::Removed(_))
    }
}

impl PartExit {
    /// Returns the word for it in metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Panicked(_) => "panicked",
            Self::Gone => "gone",
            Self::Failed(_) => "failed",
            Self::Removed(_) => "removed",
        }
    }
}

/// Keeps parts going. Clones share one account of how parts fared.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    began: Instant,
    health: watch::Sender<PartsHealth>,
}

impl Parts {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), health: watch::Sender::default() }
    }

    /// Returns a receiver of how the parts fared.
    pub(crate) fn health(&self) -> watch::Receiver<PartsHealth> {
        self.health.subscribe()
    }

    /// Runs the part that `make` makes until it says that it is done, which it only does when it was asked to end. A
    /// part that ends otherwise is made anew after a back-off, and left as failed when it ends too often.
    ///
    /// Needs a tokio runtime with timers.
    pub(crate) async fn keep<F>(self, part: Part, make: impl FnMut() -> F)
    where
        F: Future<Output = Result<(), PartExit>>,
    {
        self.keep_pausing(part, make, tokio::time::sleep).await;
    }

    /// Does the same as [`Parts::keep`] with another clock: `pause` waits.
    async fn keep_pausing<F, P>(
        self,
        part: Part,
        mut make: impl FnMut() -> F,
        mut pause: impl FnMut(Duration) -> P,
    ) where
        F: Future<Output = Result<(), PartExit>>,
        P: Future<Output = ()>,
    {
        let mut back_off = BackOff::new(part as u64);
        loop {
            let exit = match contained(make()).await {
                Ok(Ok(())) => return,
                Ok(Err(exit)) => exit,
                Err(message) => PartExit::Panicked(message),
            };
            let mishap = Mishap { part, exit };
            match back_off.failed(self.began.elapsed()) {
                RestartDecision::RetryAfter(wait) => {
                    self.ended(mishap);
                    pause(wait).await;
                }
                RestartDecision::GiveUp => return self.failed(mishap),
            }
        }
    }

    fn ended(&self, mishap: Mishap) {
        self.health.send_modify(|health| {
            *health.restarts.entry((mishap.part, mishap.exit.word())).or_default() += 1;
            health.last = Some(Arc::new(mishap));
        });
    }

    /// Notes a part that does not work any more and cannot be made anew. Only the first is kept.
    pub(crate) fn failed(&self, mishap: Mishap) {
        self.health.send_modify(|health| {
            let mishap = Arc::new(mishap);
            health.last = Some(Arc::clone(&mishap));
            health.failed.get_or_insert(mishap);
        });
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sessions => "the node actor",
            Self::Link => "the link to the coordinator",
            Self::Shipping => "shipping",
            Self::Data => "the data thread",
            Self::Attach => "the attach socket",
            Self::Recorder => "the recorder",
        })
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exit {
            PartExit::Panicked(message) => write!(f, "{} panicked: {message}", self.part),
            PartExit::Gone => write!(f, "{} is gone", self.part),
            PartExit::Failed(message) => write!(f, "{} could not begin again: {message}", self.part),
            PartExit::Removed(folder) => {
                write!(f, "{} has lost its folder: somebody has removed {}", self.part, folder.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a part that `make` makes, and the back-offs, which take no time.
    fn kept<F>(part: Part, make: impl FnMut() -> F) -> (PartsHealth, Vec<Duration>)
    where
        F: Future<Output = Result<(), PartExit>>,
    {
        let parts = Parts::new();
        let (health, mut pauses) = (parts.health(), Vec::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(parts.keep_pausing(part, make, |pause| {
            pauses.push(pause);
            std::future::ready(())
        }));
        (health.borrow().clone(), pauses)
    }

    #[test]
    fn a_part_that_panics_is_made_anew_within_a_second_and_is_over_when_it_says_so() {
        let mut made = 0;
        let (health, pauses) = kept(Part::Link, || {
            made += 1;
            let first = made == 1;
            async move {
                tokio::task::yield_now().await;
                if first { panic!("the first does") } else { Ok(()) }
            }
        });
        assert_eq!(made, 2);
        assert!(pauses.len() == 1 && pauses[0] <= Duration::from_secs(1), "{pauses:?}");
        let exit = PartExit::Panicked("the first does".to_owned());
        let last = Some(Arc::new(Mishap { part: Part::Link, exit }));
        let restarts = [((Part::Link, "panicked"), 1)].into();
        assert_eq!(health, PartsHealth { restarts, last, failed: None });
    }

    #[test]
    fn a_part_that_ends_again_and_again_is_made_five_times_more_and_left_as_failed() {
        let mut made = 0;
        let (health, pauses) = kept(Part::Data, || {
            made += 1;
            async { Err(PartExit::Gone) }
        });
        assert_eq!((made, pauses.len()), (6, 5));
        let mishap = Arc::new(Mishap { part: Part::Data, exit: PartExit::Gone });
        assert_eq!(mishap.to_string(), "the data thread is gone");
        let last = Some(Arc::clone(&mishap));
        let restarts = [((Part::Data, "gone"), 5)].into();
        assert_eq!(health, PartsHealth { restarts, last, failed: Some(mishap) });
    }
}
