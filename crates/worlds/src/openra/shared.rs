//! What the lanes of a session and their driver share: what is asked of each lane, and what came of it.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rollhouse_codec::openra::FastAdvanceRequest;
use rollhouse_core::{GameResult, StateHasher, Verdict};
use tokio::sync::Notify;

use super::rows::Row;

/// What is shared. Locks are held for moments.
pub(crate) struct Shared {
    state: Mutex<SharedLanes>,
    moved: Condvar,
    /// Wakes the driver.
    pub(crate) asked: Notify,
    pub(crate) bell: Bell,
}

/// The state that is shared.
pub(crate) struct SharedLanes {
    pub(crate) slots: Vec<Slot>,
    /// Whether the engine is connected to.
    pub(crate) is_connected: bool,
    /// Whether nobody has the lanes any more.
    pub(crate) is_closing: bool,
    /// Whether the driver has ended, whatever for.
    pub(crate) has_ended: bool,
    /// Whether who waits wants the bell rung.
    is_armed: bool,
}

/// A lane.
#[derive(Default)]
pub(crate) struct Slot {
    /// Number of what was posted the last time, or given up.
    pub(crate) number: u64,
    pub(crate) is_under_way: bool,
    /// What the driver has not seen yet: first what is given up, then what is posted.
    pub(crate) give_up: Option<String>,
    pub(crate) post: Option<Posted>,
    pub(crate) outcome: Option<Outcome>,
    /// Whether it is of no use before it is revived, and whether it was lost while nothing was posted.
    pub(crate) is_lost: bool,
    pub(crate) is_gone: bool,
    /// Whether it was asked to be revived and waits for the engine.
    pub(crate) is_coming: bool,
    /// Whether its episode is beginning.
    pub(crate) is_beginning: bool,
    pub(crate) why_lost: Option<String>,
    pub(crate) hash: u32,
    pub(crate) verdict: Verdict,
}

/// What is posted to a lane.
#[derive(Debug)]
pub(crate) enum Posted {
    Begin { seed: i32 },
    Step(FastAdvanceRequest),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done { row: Row, reward: f64, begins: bool, ended: Option<GameResult> },
    Lost,
}

impl Shared {
    pub(crate) fn new(lanes: usize) -> std::io::Result<Self> {
        let state = SharedLanes {
            slots: std::iter::repeat_with(Slot::default).take(lanes).collect(),
            is_connected: false,
            is_closing: false,
            has_ended: false,
            is_armed: false,
        };
        Ok(Self { state: Mutex::new(state), moved: Condvar::new(), asked: Notify::new(), bell: Bell::new()? })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedLanes> {
        self.state.lock()
    }

    /// Tells whoever waits that something has happened.
    pub(crate) fn tell(&self, state: &mut SharedLanes) {
        if state.is_armed {
            self.bell.ring(true);
        }
        self.moved.notify_all();
    }

    /// Waits until something can be collected, at most until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) {
        let mut state = self.state.lock();
        let nothing = |state: &mut SharedLanes| !state.has_outcome() && !state.has_ended;
        let _timed_out = self.moved.wait_while_until(&mut state, nothing, deadline);
    }

    /// Waits until the driver has ended, at most until `deadline`.
    pub(crate) fn wait_for_end(&self, deadline: Instant) {
        let mut state = self.state.lock();
        let _timed_out = self.moved.wait_while_until(&mut state, |state| !state.has_ended, deadline);
    }

    /// Has the bell rung from now on; returns whether something can be collected at once.
    pub(crate) fn arm(&self) -> bool {
        let mut state = self.state.lock();
        self.bell.ring(false);
        state.is_armed = true;
        state.has_outcome() || state.slots.iter().any(|slot| slot.is_coming && state.is_connected)
    }
}

impl SharedLanes {
    pub(crate) fn has_outcome(&self) -> bool {
        self.slots.iter().any(|slot| slot.outcome.is_some())
    }

    /// Takes note of what came of what was posted under that number. What is not awaited any more is dropped; returns
    /// whether it was awaited.
    pub(crate) fn done(&mut self, lane: usize, number: u64, done: Done) -> bool {
        let slot = &mut self.slots[lane];
        if slot.number != number || !slot.is_under_way {
            return false;
        }
        slot.is_beginning = false;
        slot.hash = done.row.hash();
        slot.verdict = Verdict::new(done.ended.unwrap_or_default(), None);
        let Done { row, reward, begins, ended } = done;
        slot.outcome = Some(Outcome::Done { row, reward, begins, ended });
        true
    }

    /// Takes note that a lane is lost, as what was posted under that number.
    pub(crate) fn lost(&mut self, lane: usize, number: u64, why: String) -> bool {
        let slot = &mut self.slots[lane];
        if slot.number != number || slot.is_lost {
            return false;
        }
        slot.lose(why);
        true
    }
}

/// A row that was made.
pub(crate) struct Done {
    pub(crate) row: Row,
    pub(crate) reward: f64,
    pub(crate) begins: bool,
    pub(crate) ended: Option<GameResult>,
}

impl Slot {
    /// Posts something; the lane is not under way.
    pub(crate) fn post(&mut self, posted: Posted) {
        self.number += 1;
        self.is_under_way = true;
        self.outcome = None;
        self.is_beginning = matches!(posted, Posted::Begin { .. });
        if self.is_lost && !self.is_beginning {
            // It was lost meanwhile.
            self.outcome = Some(Outcome::Lost);
            return;
        }
        (self.is_lost, self.is_gone, self.is_coming) = (false, false, false);
        self.post = Some(posted);
    }

    /// Loses the lane.
    pub(crate) fn lose(&mut self, why: String) {
        self.is_lost = true;
        self.is_beginning = false;
        self.why_lost = Some(why);
        if self.is_under_way {
            self.outcome = Some(Outcome::Lost);
        } else {
            self.is_gone = true;
        }
    }

    /// Gives up what is under way: nothing is heard of it any more.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.number += 1;
        (self.is_under_way, self.is_beginning, self.is_lost) = (false, false, true);
        (self.post, self.outcome) = (None, None);
        self.give_up = Some(why.to_owned());
        self.why_lost = Some(why.to_owned());
    }
}

impl Row {
    /// Returns a hash of what is shown.
    fn hash(&self) -> u32 {
        let mut hasher = StateHasher::new();
        for column in &self.obs {
            let column = column.as_ref();
            let (words, rest) = column.bytes().as_chunks::<8>();
            hasher = words.iter().fold(hasher, |hasher, word| hasher.word(u64::from_le_bytes(*word)));
            hasher = rest.iter().fold(hasher, |hasher, byte| hasher.word(u64::from(*byte)));
        }
        hasher.finish()
    }
}

/// A descriptor that is readable while it has been rung.
pub(crate) struct Bell {
    pub(crate) reader: PipeReader,
    writer: PipeWriter,
    rung: Mutex<bool>,
}

impl Bell {
    fn new() -> std::io::Result<Self> {
        let (reader, writer) = pipe()?;
        Ok(Self { reader, writer, rung: Mutex::new(false) })
    }

    /// Rings it, or silences it. Its pipe has one byte at most, so neither blocks.
    fn ring(&self, rings: bool) {
        let mut rung = self.rung.lock();
        if *rung != rings {
            let moved = if rings { (&self.writer).write(&[1]) } else { (&self.reader).read(&mut [0]) };
            *rung = if moved.is_ok() { rings } else { *rung };
        }
    }
}
