//! Waiting for another process: look, give way, sleep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::words::{Words, WordsMut};

/// How one party waits for another process.
///
/// First it spins: a wake-up across cores costs tens of microseconds on a virtual machine, a spinning look a tenth of
/// one. Then it gives its core away again and again, which on a shared core hands it to the very process that is waited
/// for. Then it sleeps, in slices of at most [`SLICE`], before each of which the caller is asked whether that is still
/// worth it.
///
/// Spinning ends itself: not at all where the process has one core, at most as many threads of a process at once as it
/// has cores, and hardly ever once it has not helped [`CREDIT`] times in a row.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Threads of this process that may spin at once; 0 for none.
    spinners: usize,
    /// How often spinning may still fail.
    credit: u32,
    /// Waits since the last look at whether spinning helps again.
    unspun: u32,
}

/// Why waiting ended without what was waited for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unmet<E> {
    /// The deadline passed.
    TimedOut,
    /// The caller said that there is nobody to wait for.
    Gone,
    /// Looking failed.
    Failed(E),
}

/// What a waiter waits with.
pub(crate) struct Wait<'a, W, P> {
    pub(crate) own: &'a W,
    pub(crate) peer: &'a P,
    pub(crate) bell: Bell,
    pub(crate) deadline: Option<Instant>,
}

impl Patience {
    /// For this process, as its cores stand now.
    pub(crate) fn new() -> Self {
        // Counts affinity and cgroup quota.
        let cores = available_parallelism().map_or(1, usize::from);
        Self { spinners: if cores > 1 { cores } else { 0 }, credit: CREDIT, unspun: 0 }
    }

    /// Returns what `ready` gives. `alive` is asked before every slice of sleep, and may take microseconds.
    pub(crate) fn wait<T, E>(
        &mut self,
        wait: &Wait<'_, impl WordsMut, impl Words>,
        mut ready: impl FnMut() -> Result<Option<T>, E>,
        alive: impl FnMut() -> bool,
    ) -> Result<T, Unmet<E>> {
        if let Some(found) = ready().map_err(Unmet::Failed)? {
            return Ok(found);
        }
        if let Some(found) = self.spin(&mut ready).map_err(Unmet::Failed)? {
            return Ok(found);
        }
        if let Some(found) = give_way(&mut ready).map_err(Unmet::Failed)? {
            return Ok(found);
        }
        sleep(wait, ready, alive)
    }

    fn spin<T, E>(&mut self, ready: &mut impl FnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
        if self.credit == 0 {
            self.unspun += 1;
            if self.unspun < TRY_AGAIN_AFTER {
                return Ok(None);
            }
            self.unspun = 0;
        }
        let Some(_place) = Spinner::enter(self.spinners) else { return Ok(None) };
        let mut began = None;
        loop {
            for _ in 0..LOOKS_BETWEEN_CLOCK_READS {
                std::hint::spin_loop();
                if let Some(found) = ready()? {
                    self.credit = CREDIT;
                    return Ok(Some(found));
                }
            }
            // The first round is short, and most waits end in it: it reads no clock.
            if began.get_or_insert_with(Instant::now).elapsed() >= SPIN_TIME {
                self.credit = self.credit.saturating_sub(1);
                return Ok(None);
            }
        }
    }
}

fn give_way<T, E>(ready: &mut impl FnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
    let began = Instant::now();
    while began.elapsed() < YIELD_TIME {
        std::thread::yield_now();
        if let Some(found) = ready()? {
            return Ok(Some(found));
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
    let Wait { own, peer, bell, deadline } = *wait;
    let result = loop {
        let seen = bell.announce(own, peer);
        match ready() {
            Ok(None) => {}
            Ok(Some(found)) => break Ok(found),
            Err(error) => break Err(Unmet::Failed(error)),
        }
        if !alive() {
            break Err(Unmet::Gone);
        }
        let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            break Err(Unmet::TimedOut);
        }
        bell.sleep(peer, seen, left.min(SLICE));
    };
    bell.awake(own);
    result
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

/// Threads of this process that spin in this moment. One for the process, because they compete for its cores whatever
/// arena they belong to.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// About four times the cost of a sleep and a wake-up across cores.
const SPIN_TIME: Duration = Duration::from_micros(100);

/// As long again: gives way to whoever else needs the core.
const YIELD_TIME: Duration = Duration::from_micros(100);

/// The longest one sleeps without looking whether the peer is alive.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Times that spinning may fail in a row before it is given up.
const CREDIT: u32 = 16;

/// Waits without spinning before it is tried again.
const TRY_AGAIN_AFTER: u32 = 64;

const LOOKS_BETWEEN_CLOCK_READS: u32 = 32;
