//! A block of lanes as structure of arrays, which all built-in envs of classic control share.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, LaneSet, Options, Start, StateHasher};

use crate::dispatch::{Kernel, Target};
use crate::scene::Scene;
use crate::{
    BatchEnv, BlockStep, Ended, Generator, Image, ImageSize, LaneBlock, MakeError, RenderError, StateError,
};

/// One number for each lane of a block.
pub(crate) type Row = [f64; BLOCK_LANES];

/// The equations of an env whose state is `STATE` doubles and whose observation is `OBS` singles.
///
/// Everything here is compiled once per instruction set: implementations are `#[inline(always)]` and use no
/// libm and no `mul_add`. For the loops over lanes to become vector code they must be free of branches, and
/// what they write must come as separate `&mut` arguments of a function, which the compiler may then take
/// not to overlap.
pub(crate) trait Dynamics<const STATE: usize, const OBS: usize>: Scene<[f64; STATE]> + Send {
    /// Element type of the action column.
    type Action: Action;

    /// Parameters that differ between lanes by their options.
    type Params: Params;

    /// Number of 64-bit words that a reset draws.
    const WORDS_PER_RESET: u32;

    /// Draws the state in which a new episode of a lane begins.
    fn reset(params: &Self::Params, lane: usize, generator: &mut Generator) -> [f64; STATE];

    /// Returns the observation of a state, with the same bits that `step` writes for it.
    fn observe(state: &[f64; STATE]) -> [f32; OBS];

    /// Advances the first `lanes` lanes and returns those that are in a terminal state now. `lanes` is a multiple of
    /// [`STRIDE`], and every slice is at least that long.
    fn step(
        params: &Self::Params,
        lanes: usize,
        state: &mut [Row; STATE],
        actions: &[Self::Action],
        obs: &mut [[f32; OBS]],
        rewards: &mut [f64],
    ) -> LaneSet;
}

/// Parameters of the lanes of a block.
pub(crate) trait Params: Default + Send {
    /// Reads the parameters of one lane from its options; those of others stay as they are.
    fn set(&mut self, lane: usize, options: &Options) -> Result<(), MakeError>;

    /// Reads the parameters of up to [`BLOCK_LANES`] lanes.
    fn of(options: &[Options]) -> Result<Self, MakeError> {
        let mut params = Self::default();
        options.iter().enumerate().try_for_each(|(lane, options)| params.set(lane, options))?;
        Ok(params)
    }
}

/// Number of lanes that kernels step at a time: the doubles of an AVX-512 register.
const STRIDE: usize = 8;

/// Element type of an action column.
pub(crate) trait Action: Copy + Default {
    fn rows(column: ColumnRef<'_>) -> Option<&[Self]>;
}

impl Action for i64 {
    #[inline(always)]
    fn rows(column: ColumnRef<'_>) -> Option<&[Self]> {
        column.as_i64()
    }
}

impl Action for f32 {
    #[inline(always)]
    fn rows(column: ColumnRef<'_>) -> Option<&[Self]> {
        column.as_f32()
    }
}

/// A [`BatchEnv`] made of some [`Dynamics`].
pub(crate) struct Block<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    target: Target,
    lanes: Box<LaneTable<D, STATE, OBS>>,
}

/// Data of a block's lanes. Lanes past the last one exist but are never seen and stay zero. The rows come first, so
/// that they start on cache lines.
#[repr(C, align(64))]
struct LaneTable<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    state: [Row; STATE],
    params: D::Params,
    generators: Vec<Generator>,
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Block<D, STATE, OBS> {
    /// Makes a block with a lane for each element of `options`. Their states are zero, and their generators are seeded
    /// with zero.
    pub(crate) fn new(target: Target, options: &[Options]) -> Result<Self, MakeError> {
        let params = D::Params::of(options)?;
        let generators = vec![Generator::seeded(0); options.len()];
        let lanes = Box::new(LaneTable { state: [[0.0; BLOCK_LANES]; STATE], params, generators });
        Ok(Self { target, lanes })
    }
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> LaneTable<D, STATE, OBS> {
    #[inline(always)]
    fn lane(&self, lane: usize) -> [f64; STATE] {
        column(&self.state, lane)
    }

    #[inline(always)]
    fn set_lane(&mut self, lane: usize, state: &[f64; STATE]) {
        for (row, value) in self.state.iter_mut().zip(state) {
            row[lane] = *value;
        }
    }
}

/// Returns a lane's state, read from the rows.
#[inline(always)]
fn column<const STATE: usize>(state: &[Row; STATE], lane: usize) -> [f64; STATE] {
    let mut of_lane = [0.0; STATE];
    for (number, row) in of_lane.iter_mut().zip(state) {
        *number = row[lane];
    }
    of_lane
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> LaneBlock for Block<D, STATE, OBS> {
    fn lanes(&self) -> usize {
        self.lanes.generators.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.lanes.generators[lane] = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.lanes.generators[lane].position()
    }

    fn words_per_reset(&self) -> Option<u32> {
        Some(D::WORDS_PER_RESET)
    }

    fn restore(&mut self, lane: usize, start: Start) {
        let generator = &mut self.lanes.generators[lane];
        // Where a recording is played, it mostly stands there already; seeding it anew took a fifth of the time.
        if generator.position() != start {
            *generator = Generator::at(start);
        }
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        assert!(lane < self.lanes(), "lane {lane} of a block of {}", self.lanes());
        self.lanes.params.set(lane, options)
    }

    fn state_hash(&self, lane: usize) -> u32 {
        hash_one(&self.lanes.lane(lane % BLOCK_LANES))
    }

    fn state_hashes(&self, lanes: LaneSet, out: &mut [u32; BLOCK_LANES]) {
        let mut lanes = (lanes & LaneSet::first(self.lanes())).into_iter();
        // Mostly they are few, for which vectors do not pay.
        for lane in lanes.by_ref().take(BLOCK_LANES / 4) {
            out[lane % BLOCK_LANES] = self.state_hash(lane);
        }
        if !lanes.rest().is_empty() {
            self.target.run(HashLanes { table: &self.lanes, lanes: lanes.rest(), out });
        }
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        assert!(lane < self.lanes(), "lane {lane} of a block of {}", self.lanes());
        Ok(self.lanes.lane(lane).to_vec())
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        assert!(lane < self.lanes(), "lane {lane} of a block of {}", self.lanes());
        let state = state.try_into().map_err(|_| StateError::Length { given: state.len(), wanted: STATE })?;
        self.lanes.set_lane(lane, state);
        Ok(())
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        assert!(lane < self.lanes(), "lane {lane} of a block of {}", self.lanes());
        Ok(D::picture(&self.lanes.lane(lane), size))
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        assert!(lane < self.lanes(), "lane {lane} of a block of {}", self.lanes());
        Ok(D::text(&self.lanes.lane(lane), columns))
    }
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> BatchEnv for Block<D, STATE, OBS> {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let rows = obs_rows(obs, self.lanes());
        self.target.run(ResetLanes { table: &mut self.lanes, lanes, rows });
        LaneSet::NONE
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let lanes = self.lanes();
        let actions = D::Action::rows(step.actions).filter(|rows| rows.len() == lanes);
        let terminated = self.target.run(StepLanes {
            table: &mut self.lanes,
            skip: step.skip & LaneSet::first(lanes),
            reset: step.reset & LaneSet::first(lanes),
            actions: actions.expect("the action column has the spec's type and one row per lane"),
            rows: obs_rows(step.obs, lanes),
            rewards: step.rewards,
        });
        Ended { terminated, ..Ended::default() }
    }
}

/// Returns the rows of the one observation column.
///
/// # Panics
/// If the caller gave another type or number of rows than the spec says.
#[inline(always)]
fn obs_rows<'a, const OBS: usize>(columns: &'a mut [ColumnMut<'_>], lanes: usize) -> &'a mut [[f32; OBS]] {
    let rows = columns.first_mut().and_then(ColumnMut::as_f32_mut).map(|column| column.as_chunks_mut().0);
    rows.filter(|rows| rows.len() == lanes).expect("the obs column has the spec's type and a row per lane")
}

struct ResetLanes<'a, D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    table: &'a mut LaneTable<D, STATE, OBS>,
    lanes: LaneSet,
    rows: &'a mut [[f32; OBS]],
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Kernel for ResetLanes<'_, D, STATE, OBS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { table, lanes, rows } = self;
        for lane in lanes & LaneSet::first(table.generators.len()) {
            rows[lane] = table.reset(lane);
        }
    }
}

struct StepLanes<'a, D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    table: &'a mut LaneTable<D, STATE, OBS>,
    skip: LaneSet,
    reset: LaneSet,
    actions: &'a [D::Action],
    rows: &'a mut [[f32; OBS]],
    rewards: &'a mut [f64],
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Kernel for StepLanes<'_, D, STATE, OBS> {
    type Output = LaneSet;

    #[inline(always)]
    fn run(self) -> LaneSet {
        let Self { table, skip, reset, actions, rows, rewards } = self;
        let still = skip | reset;
        let mut terminated = LaneSet::NONE;
        if still != LaneSet::first(actions.len()) {
            terminated = table.step_except(skip, actions, rows, rewards) & !still;
        } else {
            table.observe(skip, rows);
        }
        for lane in skip {
            rewards[lane] = 0.0;
        }
        for lane in reset {
            rewards[lane] = 0.0;
            rows[lane] = table.reset(lane);
        }
        terminated
    }
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> LaneTable<D, STATE, OBS> {
    /// Begins a new episode in a lane and returns its first observation.
    #[inline(always)]
    fn reset(&mut self, lane: usize) -> [f32; OBS] {
        let state = D::reset(&self.params, lane, &mut self.generators[lane]);
        self.set_lane(lane, &state);
        D::observe(&state)
    }

    /// Steps the lanes that are not in `skip` and returns those of all lanes that are in a terminal state now.
    #[inline(always)]
    fn step_except(
        &mut self,
        skip: LaneSet,
        actions: &[D::Action],
        rows: &mut [[f32; OBS]],
        rewards: &mut [f64],
    ) -> LaneSet {
        let lanes = actions.len();
        let padded = lanes.next_multiple_of(STRIDE);
        // Lanes that do not exist stand still too: their states stay zero.
        let still = skip | (LaneSet::first(padded) & !LaneSet::first(lanes));
        let before = if still.is_empty() { None } else { Some(self.state) };
        let terminated = if lanes == BLOCK_LANES {
            // With a number of lanes that the compiler knows, its loops have no rest.
            D::step(&self.params, BLOCK_LANES, &mut self.state, actions, rows, rewards)
        } else {
            let mut all_actions = [D::Action::default(); BLOCK_LANES];
            let (mut all_rows, mut all_rewards) = ([[0.0; OBS]; BLOCK_LANES], [0.0; BLOCK_LANES]);
            all_actions[..lanes].copy_from_slice(actions);
            let terminated =
                D::step(&self.params, padded, &mut self.state, &all_actions, &mut all_rows, &mut all_rewards);
            rows.copy_from_slice(&all_rows[..lanes]);
            rewards.copy_from_slice(&all_rewards[..lanes]);
            terminated
        };
        if let Some(before) = before {
            for lane in still {
                self.set_lane(lane, &column(&before, lane));
            }
            self.observe(skip, rows);
        }
        terminated
    }

    #[inline(always)]
    fn observe(&self, lanes: LaneSet, rows: &mut [[f32; OBS]]) {
        for lane in lanes {
            rows[lane] = D::observe(&self.lane(lane));
        }
    }
}

struct HashLanes<'a, D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    table: &'a LaneTable<D, STATE, OBS>,
    lanes: LaneSet,
    out: &'a mut [u32; BLOCK_LANES],
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Kernel for HashLanes<'_, D, STATE, OBS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // All of them at once as vector code, into a copy because other places must not change.
        let mut hashes = [0; BLOCK_LANES];
        hash_rows(&self.table.state, &mut hashes);
        for (lane, hash) in hashes.iter().enumerate() {
            self.out[lane] = if self.lanes.has(lane) { *hash } else { self.out[lane] };
        }
    }
}

#[inline(always)]
fn hash_rows<const STATE: usize>(state: &[Row; STATE], hashes: &mut [u32; BLOCK_LANES]) {
    for (lane, hash) in hashes.iter_mut().enumerate() {
        *hash = hash_state(&column(state, lane));
    }
}

/// Returns [`hash_state`] of a state that hardly ever has a NaN: it checks for NaN once instead of once for each
/// number. A sum of infinities is NaN as well; such a state is only hashed the slower way.
#[inline(always)]
fn hash_one<const STATE: usize>(state: &[f64; STATE]) -> u32 {
    if state.iter().sum::<f64>().is_nan() {
        return hash_state(state);
    }
    state.iter().fold(StateHasher::new(), |hasher, &value| hasher.f64(value)).finish()
}

/// Hashes a state so that every NaN counts as the same, because which of its bits an operation keeps is up to the
/// machine.
#[inline(always)]
fn hash_state<const STATE: usize>(state: &[f64; STATE]) -> u32 {
    let mut hasher = StateHasher::new();
    for value in state {
        hasher = hasher.f64(if value.is_nan() { f64::NAN } else { *value });
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_state_hashes_as_among_others_whatever_its_numbers() {
        let other_nan = f64::from_bits(f64::NAN.to_bits() | 5);
        let numbers =
            [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, other_nan, f64::MAX];
        for a in numbers {
            for b in numbers {
                assert_eq!(hash_one(&[a, 1.0, b]), hash_state(&[a, 1.0, b]), "{a} {b}");
            }
        }
    }
}
