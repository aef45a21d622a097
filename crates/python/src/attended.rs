//! Lanes that are looked after while Python does something else: what they have recorded is handed over in a pause, and what
//! becomes of the folder's disk is noted for them.
//!
//! ```text
//! caller:  lock ─ step ─ unlock          lock ─ step ─ unlock
//! keeper:  look: used ............ look: not used since ─ gate ─ lock ─ hand over ─ unlock
//! ```
//!
//! A caller pays one load for it. The keeper never takes the interpreter's lock, and ends with its folder.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_replay::RecorderWatch;
use rollhouse_replay::limits::CHUNK_AGE_MS;

use crate::news::{DiskLook, News};

/// What a pause in stepping holds back.
pub(crate) trait HandOver: Send {
    /// Hands over what may not wait any longer once stepping has paused for so long. Returns whether something may stay.
    fn hand_over(&mut self, paused: Duration) -> bool;
}

/// A state that one caller at a time uses, and that a keeper looks after in pauses.
pub(crate) struct Attended<T> {
    state: Mutex<T>,
    /// Held by the keeper for as long as it has the state, so that a caller distinguishes it from another caller.
    gate: Mutex<()>,
    /// Whether a caller has used the state since the keeper last looked.
    used: AtomicBool,
    keeper: OnceLock<Arc<KeeperShared>>,
    pub(crate) news: News,
}

/// The thread that looks after everything that is recorded into one folder.
pub(crate) struct Keeper(Arc<KeeperShared>);

struct KeeperShared {
    attended: Mutex<Vec<Pausing>>,
    /// Whether the keeper sleeps until somebody is used again.
    asleep: AtomicBool,
    ended: AtomicBool,
    thread: OnceLock<Thread>,
    disk: Mutex<DiskLook>,
}

/// One that is looked after, and its pause.
struct Pausing {
    of: Weak<dyn Attend>,
    /// Time since when it has not been used.
    since: Instant,
    /// Whether it may have something that was not handed over.
    stays: bool,
}

/// What the keeper asks of those whom it looks after.
trait Attend: Send + Sync {
    /// Returns whether it was used since the last call.
    fn take_used(&self) -> bool;

    /// Returns whether it was used since [`Attend::take_used`].
    fn is_used(&self) -> bool;

    /// Hands over, unless a caller uses it just now. Returns whether something may stay.
    fn hand_over(&self, paused: Duration) -> bool;

    fn news(&self) -> &News;
}

impl<T> Attended<T> {
    pub(crate) fn new(state: T) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(state),
            gate: Mutex::new(()),
            used: AtomicBool::new(false),
            keeper: OnceLock::new(),
            news: News::default(),
        })
    }

    /// Takes the state; `None` if another caller has it. A keeper that has it is waited for: it hands over and leaves.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let state = self.state.try_lock().or_else(|| self.try_lock_after_keeper())?;
        if !self.used.load(Ordering::Relaxed) {
            self.stir();
        }
        Some(state)
    }

    #[cold]
    fn try_lock_after_keeper(&self) -> Option<MutexGuard<'_, T>> {
        let _gate = self.gate.lock();
        self.state.try_lock()
    }

    /// Takes the state of one that nobody uses any more.
    pub(crate) fn lock_last(&self) -> MutexGuard<'_, T> {
        self.state.lock()
    }

    /// Notes that the state is used, and wakes a keeper that sleeps. Both sides set their own flag before they look at the
    /// other's.
    #[cold]
    fn stir(&self) {
        self.used.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.get()
            && keeper.asleep.load(Ordering::SeqCst)
        {
            keeper.wake();
        }
    }
}

impl<T: HandOver + 'static> Attended<T> {
    /// Has the keeper look after it from now on, for as long as it lives.
    pub(crate) fn keep_by(self: &Arc<Self>, keeper: &Keeper) {
        let attended: Arc<dyn Attend> = Arc::clone(self) as _;
        let disk = keeper.0.disk.lock();
        // What was found before is news to this one.
        disk.standing().into_iter().for_each(|item| self.news.push(item));
        let mut all = keeper.0.attended.lock();
        all.retain(|one| one.of.strong_count() > 0);
        all.push(Pausing { of: Arc::downgrade(&attended), since: Instant::now(), stays: true });
        drop((all, disk));
        // Of a state that is kept already, which does not happen, the first keeper stays.
        let _first = self.keeper.set(Arc::clone(&keeper.0));
        keeper.0.wake();
    }
}

impl<T: HandOver> Attend for Attended<T> {
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::SeqCst)
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::SeqCst)
    }

    fn hand_over(&self, paused: Duration) -> bool {
        let _gate = self.gate.lock();
        // A caller that has it hands over by itself.
        self.state.try_lock().is_none_or(|mut state| state.hand_over(paused))
    }

    fn news(&self) -> &News {
        &self.news
    }
}

impl Keeper {
    /// Starts the keeper of a folder whose recorder `watch` watches. Without a thread for it nothing is lost but what waits
    /// when the process is killed.
    pub(crate) fn start(watch: RecorderWatch) -> Self {
        let shared = Arc::new(KeeperShared {
            attended: Mutex::default(),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            thread: OnceLock::new(),
            disk: Mutex::new(DiskLook::new(watch)),
        });
        let own = Arc::clone(&shared);
        // Task: keeper.
        let spawned = std::thread::Builder::new().name("rollhouse-keeper".into()).spawn(move || own.run());
        if let Ok(thread) = spawned {
            let _set = shared.thread.set(thread.thread().clone());
        }
        Self(shared)
    }

    /// Looks at the folder's disk now, and notes what is new for those that record there.
    pub(crate) fn look_at_disk(&self) {
        self.0.look_at_disk();
    }
}

impl KeeperShared {
    /// Runs the thread until the folder is given up.
    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            self.look_at_disk();
            let rests = self.look();
            std::thread::park_timeout(if rests && self.may_sleep() { LOOK_AT_REST } else { LOOK });
            self.asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Hands over what those that pause hold back. Returns whether nothing is left.
    fn look(&self) -> bool {
        let mut rests = true;
        for one in &mut *self.attended.lock() {
            let Some(of) = one.of.upgrade() else { continue };
            let now = Instant::now();
            if of.take_used() {
                (one.since, one.stays) = (now, true);
            } else if one.stays {
                // It was used last before `since`, after the look before that.
                let paused = now - one.since + LOOK;
                one.stays = paused < HAND_OVER_AFTER || of.hand_over(paused);
            }
            rests &= !one.stays;
        }
        rests
    }

    /// Notes that the keeper goes to sleep. Returns false if somebody was used meanwhile.
    fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.attended.lock().iter().any(|one| one.of.upgrade().is_some_and(|of| of.is_used()))
    }

    fn look_at_disk(&self) {
        let mut disk = self.disk.lock();
        for item in disk.look() {
            for one in &*self.attended.lock() {
                if let Some(of) = one.of.upgrade() {
                    of.news().push(item.clone());
                }
            }
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Drop for Keeper {
    /// Ends the thread, which is not waited for.
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.wake();
    }
}

/// Pause after which what has ended is handed over.
const HAND_OVER_AFTER: Duration = Duration::from_millis(CHUNK_AGE_MS);
/// Time between two looks of a keeper while somebody is stepped: a pause is seen within two.
const LOOK: Duration = Duration::from_millis(CHUNK_AGE_MS / 2);
/// Time between two looks at the disk while nobody is.
const LOOK_AT_REST: Duration = Duration::from_secs(1);
