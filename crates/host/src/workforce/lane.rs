//! A lane of a worker, as the host knows it.

use rollhouse_core::limits::PER_EPISODE_SEED_BOUND;
use rollhouse_core::{Start, split_mix64};

use super::exact::Exact;
use super::talk::{AHEAD, SAYS, SAYS_LATER};
use super::{LOST, Talk};
use crate::record::{LaneRecord, Nonsense, Record};
use crate::worker_slot::Memories;

/// What is known of a lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) worker: usize,
    /// Number of the lane in its worker.
    pub(super) index: usize,
    pub(super) stage: Stage,
    /// Seed that the next reset is given.
    pub(super) seed: Option<u64>,
    /// Position as the env's interface tells it, if nothing exact is known: the words are the resets since the seed.
    pub(super) position: Start,
    /// What is known of the lane of an env that is declared deterministic.
    pub(super) exact: Option<Exact>,
    /// Options that resets are given, as JSON; empty if the env has none.
    pub(super) options: Vec<u8>,
    /// Whether the next reset has to make the env anew.
    pub(super) anew: bool,
    /// Whether its worker has ended since its row was written.
    pub(super) orphaned: bool,
    /// Whether it has begun its next episode already.
    pub(super) ahead: bool,
    /// Whether its worker has a picture of its last row, which is to be recorded.
    pub(super) painted: bool,
    /// Whether it is to come back, if it is lost and its worker's lanes come back together.
    pub(super) to_return: bool,
    pub(super) talk: Talk,
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Ready,
    /// The lane is to do this when its worker can be told.
    Waiting(Task),
    /// The lane's answer will have this number.
    UnderWay(u64),
    /// The lane has begun its episode before it was posted, and its row is there.
    Ahead,
    /// The lane's loss is to be collected.
    Failing {
        hung: bool,
    },
    /// The lane has no env; `hung` says of one that has not been told so that its worker was late.
    Lost {
        hung: bool,
    },
}

/// What a lane is to do, as commands have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Nothing = 0,
    Step,
    Reset,
    Seeded,
    Anew,
    /// Reset an env that has played nothing yet, from the seed and the generator's place in the record.
    Placed,
    /// Step as the lane did before, with the action that it took then.
    Again,
}

impl Task {
    /// Returns whether it is a step.
    pub(super) const fn steps(self) -> bool {
        matches!(self, Self::Step | Self::Again)
    }
}

impl Lane {
    /// Makes lane number `index` of a worker, which cannot be used yet and has not been seeded; an `exact` one if its
    /// worker tells where its generator stands.
    pub(super) fn new(worker: usize, index: usize, exact: bool) -> Self {
        Self {
            worker,
            index,
            stage: Stage::LOST,
            seed: None,
            position: Start::seeded(0),
            exact: exact.then(Exact::new),
            options: Vec::new(),
            anew: false,
            orphaned: false,
            ahead: false,
            painted: false,
            to_return: false,
            talk: Talk::default(),
        }
    }

    /// Returns the lane's record in its worker's memory, if there is one.
    #[inline]
    pub(super) fn record<'a>(&self, record: &'a Record, memories: Memories<'a>) -> Option<LaneRecord<'a>> {
        let (memory, at) = memories.of(self.worker)?;
        Some(record.lane(memory, at, self.index))
    }

    /// Returns whether there is something to collect of which no worker has to say more.
    pub(super) const fn is_known(&self) -> bool {
        matches!(self.stage, Stage::Failing { .. } | Stage::Ahead)
    }

    /// Returns whether the lane is under way and its row is there. One that says more with its worker's answer is not
    /// there before that.
    pub(super) fn has_answered(&self, record: &Record, memories: Memories<'_>) -> bool {
        let Stage::UnderWay(wanted) = self.stage else { return false };
        self.record(record, memories).is_some_and(|its| {
            let answer = its.number();
            answer >> 8 == wanted && answer & SAYS_LATER == 0
        })
    }

    /// Gives the next reset a seed.
    pub(super) fn seed(&mut self, seed: u64) {
        (self.seed, self.position) = (Some(seed), Start::seeded(seed));
        if let Some(exact) = &mut self.exact {
            exact.seed(seed);
        }
    }

    pub(super) fn position(&self) -> Start {
        self.exact.as_ref().map_or(self.position, Exact::position)
    }

    /// Puts the lane at a position. If nothing exact is known, what its generator drew there is not known either; but the
    /// same position gives the same episode each time.
    pub(super) fn restore(&mut self, start: Start) {
        match (&mut self.exact, start.plain_seed()) {
            (Some(_), Some(seed)) => self.seed(seed),
            (Some(exact), None) => {
                self.seed = None;
                exact.restore(start);
            }
            (None, _) => (self.seed, self.position) = (Some(seed_at(start)), start),
        }
    }

    /// Makes a lost lane usable. The generator of an env that is made anew is anywhere unless it is put somewhere.
    pub(super) fn revive(&mut self) {
        (self.stage, self.orphaned, self.to_return) = (Stage::Ready, false, false);
        match (&mut self.exact, self.seed) {
            (_, Some(_)) => {}
            (Some(exact), None) => exact.renew(),
            (None, None) => self.seed = Some(seed_at(self.position)),
        }
    }

    /// Notes that the lane's env failed; what it `speaks` of its row is why. It is made anew then.
    pub(super) fn fail(&mut self, speaks: bool) {
        if speaks {
            self.talk.raised();
        }
        (self.stage, self.anew) = (Stage::LOST, !self.orphaned);
    }

    /// Notes that the lane is lost for what it wrote; its env is made anew then.
    pub(super) fn lose_for(&mut self, nonsense: &Nonsense) {
        self.talk.nonsense(nonsense);
        (self.stage, self.anew) = (Stage::LOST, !self.orphaned);
    }

    /// Notes that the lane is lost because its row was refused.
    pub(super) fn lose_by(&mut self, why: &str) {
        self.talk.end(false, why);
        (self.stage, self.anew) = (Stage::LOST, !self.orphaned);
    }

    /// Returns what the lane does when it is posted: a step, of one that may choose its action one that `repeats`, or
    /// whatever reset it needs.
    pub(super) fn task(&self, steps: bool, repeats: bool) -> Task {
        match () {
            () if steps && repeats => Task::Again,
            () if steps => Task::Step,
            () if self.exact.as_ref().is_some_and(|exact| exact.wanted().is_some()) => Task::Placed,
            () if self.anew => Task::Anew,
            () if self.seed.is_some() => Task::Seeded,
            () => Task::Reset,
        }
    }

    /// Takes the seed that the next reset is told.
    pub(super) fn take_seed(&mut self) -> u64 {
        let seed = self.seed.take().unwrap_or_else(|| seed_at(self.position));
        self.position.words += 1;
        self.anew = false;
        seed
    }

    /// Adds the lane's options, if it has some, to a command that has `without` bytes without any: the lane's number in the
    /// worker and their length as u32, and they. Returns false if they are to go with the next command, because there is
    /// much already.
    pub(super) fn add_options(&self, number: usize, command: &mut Vec<u8>, without: usize) -> bool {
        if self.options.is_empty() {
            return true;
        }
        if command.len() > without && command.len() + self.options.len() > without + MAX_OPTIONS_BYTES {
            return false;
        }
        command.extend((number as u32).to_le_bytes());
        command.extend((self.options.len() as u32).to_le_bytes());
        command.extend(&self.options);
        true
    }

    /// Returns the record in which the lane's row is, and the flags of the answer, if the row is there; notes whether there is
    /// a picture of it.
    pub(super) fn row<'a>(&mut self, its: LaneRecord<'a>) -> Option<(LaneRecord<'a>, u64)> {
        match self.stage {
            Stage::UnderWay(wanted) => {
                let answer = its.number();
                if answer >> 8 != wanted {
                    return None;
                }
                self.painted = answer & PAINTED != 0;
                Some((its, answer & 0xff & !PAINTED))
            }
            // What it says is where its row is.
            Stage::Ahead => Some((its.ahead(), SAYS)),
            Stage::Ready | Stage::Waiting(_) | Stage::Failing { .. } | Stage::Lost { .. } => None,
        }
    }

    /// Takes in what a worker of this one's own says beside the row. Returns the flags that are left, which say how the
    /// row ended, and whether the words made sense.
    pub(super) fn hear(&mut self, flags: u64, its: LaneRecord<'_>) -> (u64, Result<(), Nonsense>) {
        let speaks = flags & (SAYS | SAYS_LATER) != 0;
        let heard = if speaks { self.talk.hear(flags, its) } else { Ok(()) };
        let left = flags & !(SAYS | SAYS_LATER | AHEAD);
        if flags & AHEAD != 0 {
            self.ahead = left != LOST;
        }
        (left, heard)
    }
}

/// Flag in the low byte of a lane's number: its worker has a picture of the row, which is to be recorded.
const PAINTED: u64 = 64;

impl Stage {
    pub(super) const LOST: Self = Self::Lost { hung: false };

    pub(super) const fn is_lost(self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// Bytes of options in a command, beyond which lanes wait for the next one.
const MAX_OPTIONS_BYTES: usize = 1 << 20;

/// Returns the seed that stands for a position: itself at a seeded reset, else one that follows from both.
const fn seed_at(start: Start) -> u64 {
    match start.words {
        0 => start.seed,
        words => split_mix64(split_mix64(start.seed) ^ words) % PER_EPISODE_SEED_BOUND,
    }
}
