//! What is kept of a lane whose env is declared deterministic, so that its episodes can be begun again elsewhere.

use rollhouse_core::{Start, StateHasher};
use rollhouse_env::Generator;

use crate::record::{LaneRecord, Nonsense};

/// Place of a lane's generator, and a hash of all that its episode has shown.
///
/// The state of such an env is hidden. What stands for it is everything that came out since the reset (observations,
/// rewards, flags), and the generator, which every row tells.
#[derive(Debug)]
pub(super) struct Exact {
    generator: Generator,
    shown: StateHasher,
    /// Whether the row that comes next is the first of an episode.
    begins: bool,
    /// Whether the lane has to be brought to the generator's place before its next reset: its own stands elsewhere.
    moved: bool,
}

impl Exact {
    /// Makes what is kept of a lane whose next reset has the seed 0.
    pub(super) fn new() -> Self {
        Self { generator: Generator::seeded(0), shown: StateHasher::new(), begins: true, moved: false }
    }

    pub(super) const fn position(&self) -> Start {
        self.generator.position()
    }

    /// Returns a hash of the episode so far.
    pub(super) const fn hash(&self) -> u32 {
        let Start { words, half, .. } = self.generator.position();
        let half = match half {
            Some(half) => half as u64 | 1 << 32,
            None => 0,
        };
        self.shown.word(words).word(half).finish()
    }

    /// Notes that the lane's next reset has a seed.
    pub(super) fn seed(&mut self, seed: u64) {
        (self.generator, self.moved) = (Generator::seeded(seed), false);
    }

    /// Brings the lane to where its generator stood before a reset without a seed.
    pub(super) fn restore(&mut self, start: Start) {
        if self.generator.position() != start {
            (self.generator, self.moved) = (Generator::at(start), true);
        }
    }

    /// Notes that the lane's env is new, and has drawn nothing.
    pub(super) const fn renew(&mut self) {
        self.moved = true;
    }

    /// Returns where the generator has to be put before the next reset, if it is not there.
    pub(super) const fn wanted(&self) -> Option<&Generator> {
        if self.moved { Some(&self.generator) } else { None }
    }

    /// Notes that the lane's next row is that of a step, or of a reset.
    pub(super) const fn post(&mut self, steps: bool) {
        self.begins = !steps;
    }

    /// Adds the row that the lane has written, with its flags.
    ///
    /// # Errors
    /// If the generator is not one that can have come of the lane's.
    pub(super) fn add(&mut self, record: LaneRecord<'_>, reward: f64, flags: u64) -> Result<(), Nonsense> {
        let shown = if self.begins { StateHasher::new() } else { self.shown };
        self.moved &= !self.begins;
        self.shown = record.hashed(shown).f64(reward).word(flags);
        self.follow(record)
    }

    /// Follows the generator to where the lane says that it stands.
    ///
    /// # Errors
    /// If it is not one that can have come of the lane's.
    pub(super) fn follow(&mut self, record: LaneRecord<'_>) -> Result<(), Nonsense> {
        let followed = record.generator().is_some_and(|(state, half)| self.generator.follow(state, half));
        if followed { Ok(()) } else { Err(Nonsense::Generator) }
    }
}
