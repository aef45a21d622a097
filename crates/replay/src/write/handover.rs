//! The queues by which full buffers reach the writer thread and empty ones come back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use rollhouse_core::{Claimant, Options, Outcome};

use crate::clock::driven_wall_ms;
use crate::code::buffer::Buffer;
use crate::code::layout::Layout;
use crate::disk_error::DiskError;
use crate::limits::{ALL_SPARE_BYTES, SPARE_BUFFERS, SPARE_BYTES, WAITING_FRAMES_BYTES};

/// The state that the stepping threads of one run share with the writer.
///
/// Both queues have room for all buffers that there are, so a push never fails for want of room.
#[derive(Debug)]
pub(crate) struct RunShared {
    pub(crate) layout: Layout,
    /// Whether a lane rests in the row after its episode's end.
    pub(crate) skips_after_end: bool,
    lanes: usize,
    full: ArrayQueue<Box<Buffer>>,
    free: ArrayQueue<Box<Buffer>>,
    spare: Spare,
    /// Number of available buffers below which the writer is woken.
    wake_under: usize,
    /// Number of run recorders and block recorders that may still bring something.
    handles: AtomicUsize,
    /// Bytes of pictures in full buffers.
    waiting_frames: AtomicUsize,
    /// Outcome with which the open episodes end once the run is cut short, as its code plus 1; 0 if it is not cut
    /// short.
    cut: AtomicU8,
    /// Flag that is raised when the stepping threads are asked to end: they wait for the writer no longer.
    ending: OnceLock<Arc<AtomicBool>>,
    /// Options of the run: one set for all lanes, or one for each.
    options: OnceLock<Box<[Options]>>,
    /// Flag that is raised while the writer has to take nothing of the run's owner, if it has one.
    owner_held: OnceLock<Arc<AtomicBool>>,
    pub(crate) doorbell: Arc<Doorbell>,
}

/// The spare buffers of a run. They are made when none is free, so that a run that is never stepped costs none.
#[derive(Debug)]
struct Spare {
    /// Number of them that were made, and the most there may be.
    made: AtomicUsize,
    most: AtomicUsize,
    /// Number of buffers that may still be made for threads that wait after the flag to end was raised.
    beyond: AtomicUsize,
    /// Bytes of each.
    bytes: usize,
}

/// The state by which stepping threads and the writer thread reach each other without a lock.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    writer: OnceLock<Thread>,
    gone: AtomicBool,
    /// Whether the writer has to take nothing for now.
    held: AtomicBool,
    /// Flags by owner: whether the writer has to take nothing of theirs for now. Those of owners who have no run and are
    /// not held go when another comes.
    owners: Mutex<BTreeMap<Claimant, Arc<AtomicBool>>>,
    /// Whether a run has brought something, or ended, since the writer last went through the runs.
    brought: AtomicBool,
    /// Bytes of the spare buffers of all runs.
    spare_bytes: AtomicUsize,
    stalled_ns: AtomicU64,
    /// Number of chunks that no writer took.
    abandoned: AtomicU64,
    /// Number of pictures that were left out.
    lost_frames: AtomicU64,
    /// Wall clock of the caller that drives the writer, in milliseconds since 1970; 0 if the writer runs by itself.
    driven_ms: AtomicU64,
    /// Whether `outage` holds something; read before each step.
    out: AtomicBool,
    /// The disk's failure, while the writer takes nothing because of it.
    outage: Mutex<Option<DiskError>>,
}

impl RunShared {
    /// Makes the queues for a run of `lanes` lanes, with one handle: the run recorder's.
    pub(crate) fn new(
        layout: Layout,
        lanes: usize,
        skips_after_end: bool,
        doorbell: Arc<Doorbell>,
    ) -> Arc<Self> {
        let block_lanes = lanes.min(rollhouse_core::limits::BLOCK_LANES);
        let buffer_bytes = Buffer::new(&layout, block_lanes).bytes().max(1);
        let spare = (SPARE_BYTES / buffer_bytes).clamp(2, SPARE_BUFFERS);
        let beyond = (2 * lanes).min(ENDING_BUFFERS);
        let most = 2 * lanes + spare + beyond;
        Arc::new(Self {
            full: ArrayQueue::new(most),
            free: ArrayQueue::new(most),
            spare: Spare {
                made: AtomicUsize::new(0),
                most: AtomicUsize::new(spare),
                beyond: AtomicUsize::new(beyond),
                bytes: buffer_bytes,
            },
            wake_under: spare / 2,
            handles: AtomicUsize::new(1),
            waiting_frames: AtomicUsize::new(0),
            cut: AtomicU8::new(0),
            ending: OnceLock::new(),
            options: OnceLock::new(),
            owner_held: OnceLock::new(),
            lanes: block_lanes,
            layout,
            skips_after_end,
            doorbell,
        })
    }

    /// Sets the owner of the run, of whom nothing is taken while the doorbell says so.
    pub(crate) fn set_owner(&self, owner: &Claimant) {
        // Set once, as the run begins.
        let _set = self.owner_held.set(self.doorbell.owner(owner));
    }

    /// Sets the options of the run: one set for all lanes, or one for each.
    pub(crate) fn set_options(&self, options: &[Options]) {
        // Set once, as the run begins.
        let _set = self.options.set(options.into());
    }

    /// Returns the options that the run has for a lane.
    pub(crate) fn options(&self, lane: u32) -> Option<&Options> {
        match &**self.options.get()? {
            [one] => Some(one),
            each => each.get(lane as usize),
        }
    }

    /// Returns whether the writer has to take nothing of the run's owner for now.
    pub(crate) fn is_owner_held(&self) -> bool {
        self.owner_held.get().is_some_and(|held| held.load(Ordering::Relaxed))
    }

    /// Makes a buffer for a new block, and allows one more spare buffer.
    pub(crate) fn first_buffer(&self) -> Buffer {
        self.spare.most.fetch_add(1, Ordering::Relaxed);
        Buffer::new(&self.layout, self.lanes)
    }

    /// Returns the number of spare buffers that may still be made.
    fn unmade(&self) -> usize {
        let made = self.spare.made.load(Ordering::Relaxed);
        if made < FREE_OF_BOUND {
            return FREE_OF_BOUND - made;
        }
        let room = ALL_SPARE_BYTES.saturating_sub(self.doorbell.spare_bytes.load(Ordering::Relaxed));
        (room / self.spare.bytes).min(self.spare.most.load(Ordering::Relaxed).saturating_sub(made))
    }

    /// Makes a spare buffer if there may be one more. Threads that ask at the same time may exceed the bound
    /// over all runs by one each.
    #[cold]
    fn make(&self) -> Option<Box<Buffer>> {
        let most = self.spare.most.load(Ordering::Relaxed);
        let more = |made: usize| (made < most && self.unmade() > 0).then_some(made + 1);
        self.spare.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(self.made_one())
    }

    /// Makes a buffer for a thread that is asked to end, when the writer has none for it.
    fn make_to_end(&self) -> Option<Box<Buffer>> {
        let less = |beyond: usize| beyond.checked_sub(1);
        self.spare.beyond.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        self.spare.made.fetch_add(1, Ordering::Relaxed);
        Some(self.made_one())
    }

    fn made_one(&self) -> Box<Buffer> {
        self.doorbell.spare_bytes.fetch_add(self.spare.bytes, Ordering::Relaxed);
        Box::new(Buffer::new(&self.layout, self.lanes))
    }

    /// Sets the flag that ends all waiting for the writer once it is raised. The first flag counts.
    pub(crate) fn end_with(&self, flag: Arc<AtomicBool>) {
        let _earlier = self.ending.set(flag);
    }

    /// Returns whether the threads that step the run are asked to end.
    fn is_ending(&self) -> bool {
        self.ending.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Counts one more handle.
    pub(crate) fn retain(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one handle less. Pairs with the acquire load in [`RunShared::is_over`]: a thread that sees the handle
    /// gone sees what the handle pushed before.
    pub(crate) fn release(&self) {
        if self.handles.fetch_sub(1, Ordering::Release) == 1 {
            self.doorbell.note();
        }
    }

    /// Returns whether nothing can come any more; drain once more after it is true.
    pub(crate) fn is_over(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0
    }

    /// Cuts the run short: nobody waits any more for the threads that step it. The first call counts. Pairs with the
    /// acquire load in [`RunShared::cut`]: what was brought before it is written before the run is cut.
    pub(crate) fn cut_short(&self, outcome: Outcome) {
        let cut = outcome.code() + 1;
        let _earlier = self.cut.compare_exchange(0, cut, Ordering::Release, Ordering::Relaxed);
        self.doorbell.note();
        self.doorbell.ring();
    }

    /// Returns how the run's open episodes end; `None` if it is not cut short.
    pub(crate) fn cut(&self) -> Option<Outcome> {
        Outcome::from_code(self.cut.load(Ordering::Acquire).checked_sub(1)?)
    }

    /// Gives the full buffer to the writer and takes an empty one, waiting for it if there is none.
    pub(crate) fn exchange(&self, buffer: &mut Buffer) {
        if self.cut().is_some() {
            // Nobody is interested any more, and no writer looks.
            return buffer.clear();
        }
        let empty = self.free.pop().or_else(|| self.make()).or_else(|| self.wait_for_free());
        match empty {
            Some(mut empty) => {
                std::mem::swap(buffer, &mut empty);
                self.push_full(empty);
            }
            None => {
                self.doorbell.abandoned.fetch_add(u64::from(self.cut().is_none()), Ordering::Relaxed);
                buffer.clear();
            }
        }
        if self.free.len() + self.unmade() < self.wake_under {
            self.doorbell.ring();
        }
    }

    /// Gives the last buffer of a block to the writer.
    pub(crate) fn hand_over_last(&self, buffer: &mut Buffer) {
        self.push_full(Box::new(std::mem::take(buffer)));
    }

    /// Takes the oldest full buffer.
    pub(crate) fn take_full(&self) -> Option<Box<Buffer>> {
        self.full.pop()
    }

    /// Returns whether pictures are left out for now, because too many wait for the writer.
    pub(crate) fn has_too_many_frames(&self) -> bool {
        self.waiting_frames.load(Ordering::Relaxed) >= WAITING_FRAMES_BYTES
    }

    /// Returns whether no buffer is free: a thread that fills its buffer now waits for the writer.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.free.is_empty() && self.unmade() == 0
    }

    /// Makes a buffer free again. If there is no room for it, it is dropped.
    pub(crate) fn recycle(&self, mut buffer: Box<Buffer>) {
        self.waiting_frames.fetch_sub(buffer.frames.bytes(), Ordering::Relaxed);
        buffer.clear();
        drop(self.free.push(buffer));
    }

    fn push_full(&self, buffer: Box<Buffer>) {
        if self.cut().is_some() {
            return;
        }
        let frames = buffer.frames.bytes();
        self.waiting_frames.fetch_add(frames, Ordering::Relaxed);
        if self.doorbell.gone.load(Ordering::Acquire) || self.full.push(buffer).is_err() {
            self.waiting_frames.fetch_sub(frames, Ordering::Relaxed);
            self.doorbell.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        self.doorbell.note();
    }

    /// Waits for a free buffer: spins shortly, then sleeps between looks. `None` when the writer is gone, and for
    /// threads that are asked to end when [`ENDING_BUFFERS`] are used up.
    #[cold]
    fn wait_for_free(&self) -> Option<Box<Buffer>> {
        let began = Instant::now();
        self.doorbell.ring();
        let found = loop {
            if let Some(buffer) = self.free.pop() {
                break Some(buffer);
            }
            if self.doorbell.gone.load(Ordering::Acquire) || self.cut().is_some() {
                break None;
            }
            if self.is_ending() {
                break self.make_to_end();
            }
            if began.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::park_timeout(NAP);
            }
        };
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.doorbell.stalled_ns.fetch_add(waited, Ordering::Relaxed);
        found
    }
}

impl Drop for RunShared {
    fn drop(&mut self) {
        let bytes = *self.spare.made.get_mut() * self.spare.bytes;
        self.doorbell.spare_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Doorbell {
    /// Counts a picture that was left out.
    pub(crate) fn lose_frame(&self) {
        self.lost_frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of pictures that were left out so far.
    pub(crate) fn lost_frames(&self) -> u64 {
        self.lost_frames.load(Ordering::Relaxed)
    }

    /// Has the writer take nothing, or take what waits.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
        self.ring();
    }

    /// Returns whether the writer has to take nothing for now.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Has the writer take nothing of an owner, or take what waits.
    pub(crate) fn hold_owner(&self, owner: &Claimant, held: bool) {
        self.owner(owner).store(held, Ordering::Relaxed);
        // The writer passed over what they had brought.
        self.note();
        self.ring();
    }

    /// Returns whether the writer has to take nothing of an owner for now.
    pub(crate) fn is_owner_held(&self, owner: &Claimant) -> bool {
        self.owners.lock().get(owner).is_some_and(|held| held.load(Ordering::Relaxed))
    }

    /// Returns the flag that is raised while the owner is held.
    pub(crate) fn owner(&self, owner: &Claimant) -> Arc<AtomicBool> {
        let mut owners = self.owners.lock();
        owners.retain(|_, held| Arc::strong_count(held) > 1 || held.load(Ordering::Relaxed));
        owners.entry(owner.clone()).or_default().clone()
    }

    /// Makes the calling thread the writer from now on.
    pub(crate) fn answer_here(&self) {
        // Set once, by the writer thread as it starts.
        let _already = self.writer.set(std::thread::current());
    }

    /// Has the writer go through the runs when it looks next. Pairs with the acquire in [`Doorbell::take_note`]: a
    /// writer that sees the note sees what was brought before it.
    pub(crate) fn note(&self) {
        self.brought.store(true, Ordering::Release);
    }

    /// Takes the note and returns whether the runs have to be gone through: thousands of silent ones cost as much to
    /// look at as to write. Call it before going through them, so that what comes meanwhile is noted for the next time.
    pub(crate) fn take_note(&self) -> bool {
        self.brought.swap(false, Ordering::Acquire)
    }

    /// Wakes the writer.
    pub(crate) fn ring(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Says that no writer answers any more: threads that wait for a buffer go on without one.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Returns whether no writer answers any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Sets the clock of the caller that drives the writer to `now`.
    pub(crate) fn drive(&self, now: Duration, ahead_ms: i64) {
        self.driven_ms.store(driven_wall_ms(now, ahead_ms), Ordering::Relaxed);
    }

    /// Returns the wall clock of the caller that drives the writer; `None` if the writer runs by itself.
    pub(crate) fn driven_ms(&self) -> Option<u64> {
        Some(self.driven_ms.load(Ordering::Relaxed)).filter(|&ms| ms > 0)
    }

    /// Tells stepping threads whether the writer takes nothing because the disk does not.
    pub(crate) fn tell_outage(&self, outage: Option<DiskError>) {
        if outage.is_some() || self.out.load(Ordering::Relaxed) {
            self.out.store(outage.is_some(), Ordering::Relaxed);
            *self.outage.lock() = outage;
        }
    }

    /// Returns the disk's failure, if the writer takes nothing because of one.
    pub(crate) fn outage(&self) -> Option<DiskError> {
        if !self.out.load(Ordering::Relaxed) {
            return None;
        }
        self.outage.lock().clone()
    }

    /// Returns how long stepping threads waited for the writer, added up over threads.
    pub(crate) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    /// Returns the number of chunks that no writer took.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// Buffers of a run that may be made beyond all other bounds while it ends and the writer takes nothing, at most two a
/// lane. Each block needs one for the step it is in and one for the ends of its episodes.
const ENDING_BUFFERS: usize = 256;
/// Spare buffers of a run that may be made whatever the other runs have.
const FREE_OF_BOUND: usize = 2;
/// Time for which a stepping thread spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Time for which a stepping thread sleeps between two looks for a free buffer.
const NAP: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use rollhouse_env::Registry;

    use super::*;
    use crate::RecordKind;

    #[test]
    fn the_writer_goes_through_the_runs_after_one_brought_something_or_ended_and_not_otherwise() {
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        let layout = Layout::new(entry.spec(), RecordKind::ActionLog, false);
        let doorbell = Arc::new(Doorbell::default());
        let run = RunShared::new(layout, 1, true, doorbell.clone());
        assert!(!doorbell.take_note());
        run.hand_over_last(&mut run.first_buffer());
        assert!(doorbell.take_note() && run.take_full().is_some());
        assert!(!doorbell.take_note());
        run.retain();
        run.release();
        assert!(!doorbell.take_note() && !run.is_over());
        run.release();
        assert!(doorbell.take_note() && run.is_over());
    }
}
