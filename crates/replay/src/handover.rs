//! The way of full buffers to the writer thread and of empty ones back.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::buffer::{Buffer, Layout};
use crate::limits::{SPARE_BUFFERS, SPARE_BYTES};

/// What the stepping threads of one run and the writer share.
///
/// Both queues are bounded by the number of buffers there are, so a push never fails for want of room.
#[derive(Debug)]
pub(crate) struct RunShared {
    pub(crate) layout: Layout,
    lanes: usize,
    full: ArrayQueue<Box<Buffer>>,
    free: ArrayQueue<Box<Buffer>>,
    /// Free buffers under which the writer is woken.
    wake_under: usize,
    /// The run recorder and the block recorders that may still bring something.
    handles: AtomicUsize,
    pub(crate) doorbell: Arc<Doorbell>,
}

/// How stepping threads and the writer thread reach each other without a lock.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    writer: OnceLock<Thread>,
    gone: AtomicBool,
    stalled_ns: AtomicU64,
    /// Chunks that no writer took.
    abandoned: AtomicU64,
}

impl RunShared {
    /// Queues and spare buffers for a run of `lanes` lanes, with one handle: the run recorder's.
    pub(crate) fn new(layout: Layout, lanes: usize, doorbell: Arc<Doorbell>) -> Arc<Self> {
        let block_lanes = lanes.min(rollhouse_core::limits::BLOCK_LANES);
        let first = Buffer::new(&layout, block_lanes);
        let spare = (SPARE_BYTES / first.bytes().max(1)).clamp(2, SPARE_BUFFERS);
        let most = 2 * lanes + spare;
        let shared = Self {
            full: ArrayQueue::new(most),
            free: ArrayQueue::new(most),
            wake_under: spare / 2,
            handles: AtomicUsize::new(1),
            lanes: block_lanes,
            layout,
            doorbell,
        };
        shared.recycle(first);
        for _ in 1..spare {
            shared.recycle(Buffer::new(&shared.layout, block_lanes));
        }
        Arc::new(shared)
    }

    /// A buffer for a new block; adds another to the spare ones.
    pub(crate) fn first_buffer(&self) -> Box<Buffer> {
        self.recycle(Buffer::new(&self.layout, self.lanes));
        Buffer::new(&self.layout, self.lanes)
    }

    /// One more handle.
    pub(crate) fn retain(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// One handle less. Pairs with the acquire load in [`RunShared::is_over`]: what a handle pushed before is
    /// seen by whoever sees it gone.
    pub(crate) fn release(&self) {
        self.handles.fetch_sub(1, Ordering::Release);
    }

    /// Whether nothing can come any more; drain once more after it is true.
    pub(crate) fn is_over(&self) -> bool {
        self.handles.load(Ordering::Acquire) == 0
    }

    /// Gives the full buffer to the writer and takes an empty one, waiting for it if there is none.
    pub(crate) fn exchange(&self, buffer: &mut Box<Buffer>) {
        let empty = match self.free.pop() {
            Some(empty) => Some(empty),
            None => self.wait_for_free(),
        };
        match empty {
            Some(empty) => {
                let full = std::mem::replace(buffer, empty);
                self.push_full(full);
            }
            None => {
                self.doorbell.abandoned.fetch_add(1, Ordering::Relaxed);
                buffer.clear();
            }
        }
        if self.free.len() < self.wake_under {
            self.doorbell.ring();
        }
    }

    /// Gives the last buffer of a block to the writer.
    pub(crate) fn hand_over_last(&self, buffer: &mut Buffer) {
        self.push_full(Box::new(std::mem::take(buffer)));
    }

    /// A full buffer, oldest first.
    pub(crate) fn take_full(&self) -> Option<Box<Buffer>> {
        self.full.pop()
    }

    /// Whether no buffer is free: whoever fills one now waits for the writer.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.free.is_empty()
    }

    /// Makes a buffer free again. One more than there is room for is let go.
    pub(crate) fn recycle(&self, mut buffer: Box<Buffer>) {
        buffer.clear();
        drop(self.free.push(buffer));
    }

    fn push_full(&self, buffer: Box<Buffer>) {
        if self.doorbell.gone.load(Ordering::Acquire) || self.full.push(buffer).is_err() {
            self.doorbell.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spins shortly, then sleeps between looks. `None` when the writer is gone.
    #[cold]
    fn wait_for_free(&self) -> Option<Box<Buffer>> {
        let began = Instant::now();
        self.doorbell.ring();
        let found = loop {
            if let Some(buffer) = self.free.pop() {
                break Some(buffer);
            }
            if self.doorbell.gone.load(Ordering::Acquire) {
                break None;
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

impl Doorbell {
    /// The calling thread is the writer from now on.
    pub(crate) fn answer_here(&self) {
        // Set once, by the writer thread as it starts.
        let _already = self.writer.set(std::thread::current());
    }

    /// Wakes the writer.
    pub(crate) fn ring(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// No writer answers any more: whoever waits for a buffer goes on without.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// How long stepping threads waited for the writer, added up over threads.
    pub(crate) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed))
    }

    /// Chunks that no writer took.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// How long a stepping thread spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long it sleeps between two looks.
const NAP: Duration = Duration::from_micros(200);
