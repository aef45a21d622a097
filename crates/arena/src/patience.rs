//! Waits for another thread or process: looks, gives its core away, sleeps.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::words::{Words, WordsMut};

/// Waits for another thread or process in three stages.
///
/// First it spins: a wake-up across cores costs tens of microseconds on a virtual machine, a spinning look a tenth of
/// one. Then it gives its core away again and again, which on a shared core hands it to the very process for which it
/// waits. Then it sleeps: in an arena on a futex, elsewhere on what the caller has ([`Patience::poll`] is the two stages
/// before).
///
/// Spinning has its bounds. Fewer threads of a process spin at once than it has cores, so that the awaited process has
/// one, and a process on one core never spins. A party for which spinning has failed 16 times in a row hardly
/// ever spins. If the answer comes as soon as the core is given away, the spinner had kept the core from the other
/// process; if it does not come before sleep, it costs a wake-up anyway.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Number of threads of this process that may spin at once; 0 for none.
    spinners: usize,
    /// Whether this party gives its core away before it sleeps.
    yields: bool,
    /// Number of times that spinning may still fail.
    credit: u32,
    /// Number of waits since it was last checked whether spinning helps again.
    unspun: u32,
}

/// Reason for which waiting ended without success.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unmet<E> {
    /// The deadline passed.
    TimedOut,
    /// The caller said that there is nobody left for whom to wait.
    Gone,
    /// Looking failed.
    Failed(E),
}

/// Memory, bell and bounds of one wait.
pub(crate) struct Wait<'a, W, P> {
    pub(crate) own: &'a W,
    pub(crate) peer: &'a P,
    pub(crate) bell: Bell,
    pub(crate) deadline: Option<Instant>,
    /// Longest time to sleep before it is asked whether somebody is still there to wait for.
    pub(crate) slice: Duration,
}

impl Patience {
    /// Patience of a party that sleeps at once.
    pub const NONE: Self = Self { spinners: 0, yields: false, credit: CREDIT, unspun: 0 };

    /// Makes the patience of a party in this process, for the cores that it has now.
    pub(crate) fn new() -> Self {
        Self { spinners: cores() - 1, yields: true, credit: CREDIT, unspun: 0 }
    }

    /// Makes the patience of one of `parties` threads and processes that wait for each other: they spin only if there is a
    /// core for each (affinity and cgroup quota counted).
    pub fn among(parties: usize) -> Self {
        if parties <= cores() { Self::new() } else { Self { yields: true, ..Self::NONE } }
    }

    /// Looks until `ready` returns a value, for less than a millisecond of its own: it spins where that helps, then gives the core
    /// away. Returns `None` if the caller may as well sleep.
    #[inline]
    pub fn poll<T>(&mut self, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        let found = self.look(&mut || Ok::<_, Infallible>(ready()), None);
        found.unwrap_or_else(|never| match never {})
    }

    /// Waits until `ready` returns a value, and returns it. `alive` is asked before every slice of sleep, and may take
    /// microseconds.
    #[inline]
    pub(crate) fn wait<T, E>(
        &mut self,
        wait: &Wait<'_, impl WordsMut, impl Words>,
        mut ready: impl FnMut() -> Result<Option<T>, E>,
        alive: impl FnMut() -> bool,
    ) -> Result<T, Unmet<E>> {
        match self.look(&mut ready, wait.deadline).map_err(Unmet::Failed)? {
            Some(found) => Ok(found),
            None => sleep(wait, ready, alive),
        }
    }

    #[inline]
    fn look<T, E>(
        &mut self,
        ready: &mut impl FnMut() -> Result<Option<T>, E>,
        deadline: Option<Instant>,
    ) -> Result<Option<T>, E> {
        match ready()? {
            None => self.look_on(ready, deadline),
            found => Ok(found),
        }
    }

    fn look_on<T, E>(
        &mut self,
        ready: &mut impl FnMut() -> Result<Option<T>, E>,
        deadline: Option<Instant>,
    ) -> Result<Option<T>, E> {
        let spun = match self.spin(ready, deadline)? {
            Spun::Found(found) => return Ok(Some(found)),
            Spun::InVain => true,
            Spun::Not => false,
        };
        let gave_way = if self.yields { give_way(ready, deadline)? } else { None };
        let in_vain = gave_way.as_ref().is_none_or(|(_, yields)| *yields == 1);
        if spun && in_vain {
            self.credit = self.credit.saturating_sub(1);
        }
        Ok(gave_way.map(|(found, _)| found))
    }

    fn spin<T, E>(
        &mut self,
        ready: &mut impl FnMut() -> Result<Option<T>, E>,
        deadline: Option<Instant>,
    ) -> Result<Spun<T>, E> {
        if self.credit == 0 {
            self.unspun += 1;
            if self.unspun < TRY_AGAIN_AFTER {
                return Ok(Spun::Not);
            }
            self.unspun = 0;
        }
        let Some(_place) = Spinner::enter(self.spinners) else { return Ok(Spun::Not) };
        let mut ends = None;
        loop {
            for _ in 0..LOOKS_BETWEEN_CLOCK_READS {
                std::hint::spin_loop();
                if let Some(found) = ready()? {
                    self.credit = CREDIT;
                    return Ok(Spun::Found(found));
                }
            }
            // The first round is short, and most waits end in it: it reads no clock.
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Spun::Not);
            }
            if now >= *ends.get_or_insert(now + SPIN_TIME) {
                return Ok(Spun::InVain);
            }
        }
    }
}

/// Result of spinning.
enum Spun<T> {
    Found(T),
    InVain,
    /// Spinning was not tried, or not for long enough to tell.
    Not,
}

/// Returns the value that was found, and how many times the core was given away before.
fn give_way<T, E>(
    ready: &mut impl FnMut() -> Result<Option<T>, E>,
    deadline: Option<Instant>,
) -> Result<Option<(T, u32)>, E> {
    let ends = Instant::now() + YIELD_TIME;
    let ends = deadline.map_or(ends, |deadline| deadline.min(ends));
    let mut yields = 0u32;
    while Instant::now() < ends {
        std::thread::yield_now();
        yields = yields.saturating_add(1);
        if let Some(found) = ready()? {
            return Ok(Some((found, yields)));
        }
    }
    Ok(None)
}

#[cold]
pub(crate) fn sleep<T, E>(
    wait: &Wait<'_, impl WordsMut, impl Words>,
    mut ready: impl FnMut() -> Result<Option<T>, E>,
    mut alive: impl FnMut() -> bool,
) -> Result<T, Unmet<E>> {
    let Wait { own, peer, bell, deadline, slice } = *wait;
    loop {
        let seen = bell.announce(own, peer);
        let result = match ready() {
            Ok(None) if !alive() => Err(Unmet::Gone),
            Ok(None) => {
                let left =
                    deadline.map_or(slice, |deadline| deadline.saturating_duration_since(Instant::now()));
                if left.is_zero() {
                    Err(Unmet::TimedOut)
                } else {
                    bell.sleep(peer, seen, left.min(slice));
                    bell.sleeping.withdraw(own);
                    continue;
                }
            }
            Ok(Some(found)) => Ok(found),
            Err(error) => Err(Unmet::Failed(error)),
        };
        bell.sleeping.withdraw(own);
        return result;
    }
}

/// Returns the number of cores of this process, affinity and cgroup quota counted; at least 1.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// A place among the threads of this process that spin.
struct Spinner;

impl Spinner {
    fn enter(most: usize) -> Option<Self> {
        // A count and nothing else: no memory is ordered by it.
        if SPINNING.fetch_add(1, Ordering::Relaxed) < most {
            return Some(Self);
        }
        SPINNING.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Number of threads of this process that spin in this moment. There is one count for the process, because its threads
/// compete for its cores whatever arena they belong to.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// Longest time to spin: about four times the cost of a sleep and a wake-up across cores.
const SPIN_TIME: Duration = Duration::from_micros(100);

/// Longest time to give the core away. It is longer because others can use the core meanwhile, but too short to be seen
/// in a process that idles.
const YIELD_TIME: Duration = Duration::from_micros(200);

/// Longest time to sleep without asking whether a peer in another process is alive.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Number of times in a row that spinning may fail before it is given up.
const CREDIT: u32 = 16;

/// Number of waits without spinning before it is tried again.
const TRY_AGAIN_AFTER: u32 = 64;

const LOOKS_BETWEEN_CLOCK_READS: u32 = 32;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::bell::Sleeping;
    use crate::words::plain::Plain;

    const BELL: Bell = Bell { sleeping: Sleeping(0), wake: 8 };

    /// Waits for what is there once `there` says so of the number of looks and of whether the waiter has come to sleep.
    fn wait(patience: &mut Patience, there: impl Fn(u32, bool) -> bool) {
        let words = Plain::new(16);
        let wait = Wait { own: &words, peer: &words, bell: BELL, deadline: None, slice: SLICE };
        let (mut looks, slept) = (0, Cell::new(false));
        let ready = || {
            looks += 1;
            Ok::<_, Infallible>(there(looks, slept.get()).then_some(()))
        };
        let alive = || {
            slept.set(true);
            true
        };
        assert_eq!(patience.wait(&wait, ready, alive), Ok(()));
        assert_eq!(words.load(BELL.sleeping.0), 0, "who is awake says so");
    }

    fn patience() -> Patience {
        // As many as other tests of this process may have.
        Patience { spinners: usize::MAX, yields: true, credit: CREDIT, unspun: 0 }
    }

    #[test]
    fn spinning_in_vain_is_given_up_and_tried_again_now_and_then() {
        let mut patience = patience();
        for left in (0..CREDIT).rev() {
            wait(&mut patience, |_, slept| slept);
            assert_eq!(patience.credit, left);
        }
        for unspun in 1..TRY_AGAIN_AFTER {
            wait(&mut patience, |looks, _| looks == 2);
            assert_eq!((patience.credit, patience.unspun), (0, unspun));
        }
        wait(&mut patience, |looks, _| looks == 2);
        assert_eq!((patience.credit, patience.unspun), (CREDIT, 0));
    }

    #[test]
    fn who_may_not_spin_does_not() {
        assert!(Spinner::enter(0).is_none());
        let mut patience = Patience { spinners: 0, ..patience() };
        for _ in 0..2 * CREDIT {
            wait(&mut patience, |_, slept| slept);
        }
        assert_eq!(patience.credit, CREDIT, "what was not tried did not fail");
    }

    #[test]
    fn who_is_not_alive_is_not_waited_for() {
        let words = Plain::new(16);
        let wait = Wait { own: &words, peer: &words, bell: BELL, deadline: None, slice: SLICE };
        let never = || Ok::<Option<()>, Infallible>(None);
        assert_eq!(patience().wait(&wait, never, || false), Err(Unmet::Gone));
        let late = Wait { deadline: Some(Instant::now()), ..wait };
        let mut patience_of_late = patience();
        assert_eq!(patience_of_late.wait(&late, never, || true), Err(Unmet::TimedOut));
        assert_eq!(patience_of_late.credit, CREDIT, "a deadline that had passed says nothing of spinning");
        assert_eq!(patience().wait(&late, || Err::<Option<()>, _>(7), || true), Err(Unmet::Failed(7)));
    }
}
