//! The try-out of an env that is declared deterministic.
//!
//! Two lanes of one process play a few episodes side by side, with fixed actions. Then each of the episodes is begun again
//! in another process, by its start alone, in an env that has played nothing, and has to show the same. So what is carried
//! over from one episode to the next without the generator's knowing, what lanes of a process share, the clock, and hashes
//! that differ between processes show themselves. What happens later than [`STEPS`] steps does not; hashes of the states
//! that lanes are resumed by go on looking.

use std::ops::Range;
use std::time::{Duration, Instant};

use rollhouse_core::{
    ColumnData, ColumnSpec, Drawing, ElementRange, EnvSpec, LaneSet, Space, Start, random_bits, split_mix64,
};
use rollhouse_env::{LateRows, Post};

use crate::pool::Protocol;
use crate::workforce::{LaneProtocol, PythonPool};

/// A try-out: its lanes, and what they have to do.
pub(crate) struct TryOut {
    pool: PythonPool,
    space: Space,
    /// How actions that are boxes are drawn.
    drawing: Drawing,
    actions: ColumnData,
    /// Columns into which rows go that nobody reads: what lanes show is in their hashes.
    obs: Vec<ColumnData>,
    /// Time that it may take, apart from connecting.
    patience: Duration,
    deadline: Instant,
}

/// Reason for which an env is not taken as deterministic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TryOutError {
    /// An episode did not come out the same again.
    #[error(
        "begun again from the same seed and generator in a new env, its episode {episode} differs at step {step} \
         (0 is the reset)"
    )]
    Differs {
        /// Number of the episode in its lane.
        episode: usize,
        /// First step that gave something else.
        step: usize,
    },
    /// The env failed.
    #[error("failed while it was tried out: {0}")]
    Failed(String),
    /// It took too long.
    #[error("{MAX_STEPS} steps of it, by which it is tried out, took longer than it may to start")]
    TooSlow,
}

/// An episode as it was played the first time.
struct Played {
    start: Start,
    /// Hash of all that it had shown after the reset, and after each step.
    hashes: Vec<u32>,
}

impl TryOut {
    /// Lanes of each worker. Those of the second one play again what those of the first one have played.
    pub(crate) const RANGES: [Range<usize>; 2] = [0..LANES, LANES..2 * LANES];

    /// Makes the try-out of lanes that have done nothing yet.
    pub(crate) fn new(pool: PythonPool, spec: &EnvSpec, patience: Duration) -> Self {
        let rows = |column: &ColumnSpec| ColumnData::zeros(column.dtype, column.elements() * 2 * LANES);
        let (actions, obs) = (rows(&spec.action_column()), spec.obs_columns().iter().map(rows).collect());
        let deadline = Instant::now() + patience;
        let space = spec.action_space.clone();
        let drawing = match &space {
            Space::Box(space) => Drawing::of(space),
            Space::Discrete(_) => Drawing::default(),
        };
        Self { pool, space, drawing, actions, obs, patience, deadline }
    }

    /// Plays, and returns a hash of all that was shown: nodes on which it differs have other dynamics.
    ///
    /// # Errors
    /// [`TryOutError`].
    pub(crate) fn run(mut self) -> Result<u64, TryOutError> {
        let mut played: Vec<Vec<Played>> = (0..LANES).map(|_| Vec::new()).collect();
        (0..LANES).for_each(|lane| self.pool.protocol.seed(lane, lane as u64));
        for episode in 0..EPISODES {
            for (lane, episodes) in played.iter_mut().enumerate() {
                let start = LaneProtocol::position(&mut self.pool, lane);
                episodes.push(Played { start, hashes: Vec::new() });
            }
            self.play(episode, LaneSet::first(LANES), |lane, hash| {
                if let Some(played) = played[lane].last_mut() {
                    played.hashes.push(hash);
                }
                Ok(())
            })?;
        }
        let mut shown = 0;
        for (lane, episodes) in played.iter().enumerate() {
            // The last one first, so that nothing is as it was.
            for (episode, first) in episodes.iter().enumerate().rev() {
                self.pool.protocol.restore(LANES + lane, first.start);
                let mut again = 0;
                self.play(episode, LaneSet::one(LANES + lane), |_, hash| {
                    let step = again;
                    again += 1;
                    if first.hashes.get(step) == Some(&hash) {
                        return Ok(());
                    }
                    Err(TryOutError::Differs { episode, step })
                })?;
                shown = first.hashes.iter().fold(shown, |shown, &hash| split_mix64(shown ^ u64::from(hash)));
            }
        }
        Ok(shown)
    }

    /// Plays an episode in each of `lanes`, as far as it goes and at most [`STEPS`] steps of it. `visit` is given the hash
    /// of each row.
    fn play(
        &mut self,
        episode: usize,
        lanes: LaneSet,
        mut visit: impl FnMut(usize, u32) -> Result<(), TryOutError>,
    ) -> Result<(), TryOutError> {
        let mut playing = lanes;
        for step in 0..=STEPS {
            let (stepping, resetting) =
                if step == 0 { (LaneSet::NONE, playing) } else { (playing, LaneSet::NONE) };
            for lane in stepping {
                let turn = (episode * STEPS + step) as u64;
                draw(&self.space, &self.drawing, &mut self.actions, lane, turn);
            }
            let over = self.moved(stepping, resetting)?;
            playing.into_iter().try_for_each(|lane| visit(lane, LaneProtocol::hash(&mut self.pool, lane)))?;
            playing &= !over;
            if playing.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Steps and resets lanes, and waits for all of them. Returns those whose episodes are over.
    fn moved(&mut self, step: LaneSet, reset: LaneSet) -> Result<LaneSet, TryOutError> {
        let post = Post { step, reset, actions: self.actions.as_ref(), repeats: true };
        LaneProtocol::post(&mut self.pool, ALL, &post);
        self.pool.dispatch();
        let (mut missing, mut over) = (step | reset, LaneSet::NONE);
        loop {
            let mut obs: Vec<_> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
            let rows = LateRows { obs: &mut obs, infos: &mut [], rewards: &mut [0.0; 2 * LANES] };
            let collected = LaneProtocol::collect(&mut self.pool, ALL, rows);
            if let Some(lane) = (collected.lost | collected.hung).lowest() {
                let why = LaneProtocol::why_lost(&mut self.pool, lane);
                return Err(TryOutError::Failed(why.unwrap_or_default()));
            }
            missing &= !collected.done;
            over |= collected.terminated | collected.truncated;
            if missing.is_empty() {
                return Ok(over);
            }
            if self.deadline <= Instant::now() {
                if LaneProtocol::connecting(&mut self.pool, ALL).is_empty() {
                    return Err(TryOutError::TooSlow);
                }
                self.deadline = Instant::now() + self.patience;
            }
            self.pool.wait(self.deadline);
        }
    }
}

/// Writes an action of the space into row `row` of a column; the same for each `row % LANES` and `turn`.
fn draw(space: &Space, drawing: &Drawing, actions: &mut ColumnData, row: usize, turn: u64) {
    let elements = space.elements();
    for element in 0..elements {
        let bits = random_bits(element as u64, (row % LANES) as u32, turn);
        let at = row * elements + element;
        if let (Space::Discrete(space), ColumnData::I64(values)) = (space, &mut *actions) {
            // A sum within 64 bits: the last choice has a number.
            values[at] = space.start.wrapping_add((bits % space.n) as i64);
            continue;
        }
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
        let ElementRange { low, high, whole } = drawing.elements[element];
        let (low, high) = ends(low, high);
        let number =
            if whole { low + (unit * (high - low + 1.0)).floor() } else { low + (high - low) * unit };
        match actions {
            ColumnData::U8(values) => values[at] = number as u8,
            ColumnData::I32(values) => values[at] = number as i32,
            ColumnData::I64(values) => values[at] = number as i64,
            ColumnData::F32(values) => values[at] = number as f32,
            ColumnData::F64(values) => values[at] = number,
        }
    }
    drawing.settling.settle(actions.as_mut().slice(row * elements, (row + 1) * elements));
}

/// Returns ends to draw between. One that is far away counts as 1 from the other, or from 0.
fn ends(low: f64, high: f64) -> (f64, f64) {
    let near = |end: f64| end.abs() <= FAR;
    let low = if near(low) { low } else { high.clamp(-FAR, 0.0) - 1.0 };
    (low, if near(high) { high } else { low + 2.0 })
}

/// Lanes of the try-out.
const ALL: Range<usize> = 0..2 * LANES;
/// Lanes that play side by side, each of which has a lane that plays the same again.
const LANES: usize = 2;
/// Episodes of each lane. The first one is seeded, and each other goes on from the one before.
const EPISODES: usize = 3;
/// Most steps of an episode.
const STEPS: usize = 64;
/// Most steps of all.
const MAX_STEPS: usize = 2 * LANES * EPISODES * STEPS;
/// Bound beyond which an action is not looked for.
const FAR: f64 = 1e6;
