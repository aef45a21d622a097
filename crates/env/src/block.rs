//! A block of lanes as structure of arrays: what all built-in envs share.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, Lanes, Start, StateHasher, lane_bits};

use crate::dispatch::{Kernel, Target};
use crate::{BatchEnv, BlockStep, Ended, Generator, StateError};

/// Lanes that one kernel iteration handles: one AVX-512 register of doubles.
pub(crate) const GROUP: usize = 8;

/// One number of each lane of a group.
pub(crate) type Row = [f64; GROUP];

/// The equations of an env whose state is `STATE` doubles and whose observation is `OBS` singles.
///
/// Everything here is compiled once per instruction set: implementations are `#[inline(always)]`, use no
/// libm and no `mul_add`, and loop over all lanes of a group without branches.
pub(crate) trait Dynamics<const STATE: usize, const OBS: usize>: Send {
    /// Element of the action column.
    type Action: Action;

    /// What differs between lanes by their options, for one group.
    type Params: Send + Clone;

    /// A new episode's state of lane `lane` of a group.
    fn reset(params: &Self::Params, lane: usize, generator: &mut Generator) -> [f64; STATE];

    /// The observation of a state: the same bits `step` writes for it.
    fn observe(state: &[f64; STATE]) -> [f32; OBS];

    /// Advances the lanes of a group.
    fn step(params: &Self::Params, state: &mut [Row; STATE], step: GroupStep<'_, Self::Action, OBS>);
}

/// What one step of a group reads and writes.
pub(crate) struct GroupStep<'a, A, const OBS: usize> {
    pub(crate) actions: &'a [A; GROUP],
    pub(crate) obs: &'a mut [[f32; OBS]; GROUP],
    pub(crate) rewards: &'a mut [f64; GROUP],
    pub(crate) terminated: &'a mut [bool; GROUP],
}

/// Type of an action column.
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

/// [`BatchEnv`] of some [`Dynamics`].
pub(crate) struct Block<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    target: Target,
    groups: Vec<Group<D, STATE, OBS>>,
    generators: Vec<Generator>,
}

/// Eight lanes; those past the block's last one exist but are never seen.
#[repr(align(64))]
struct Group<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    state: [Row; STATE],
    params: D::Params,
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Block<D, STATE, OBS> {
    /// A block of `lanes` lanes with zero states, seeded with zero; `params` has one entry per group.
    pub(crate) fn new(target: Target, lanes: usize, params: Vec<D::Params>) -> Self {
        debug_assert_eq!(params.len(), lanes.div_ceil(GROUP));
        let groups = params.into_iter().map(|params| Group { state: [[0.0; GROUP]; STATE], params });
        Self { target, groups: groups.collect(), generators: vec![Generator::seeded(0); lanes] }
    }
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Group<D, STATE, OBS> {
    #[inline(always)]
    fn lane(&self, lane: usize) -> [f64; STATE] {
        self.state.map(|row| row[lane])
    }

    #[inline(always)]
    fn set_lane(&mut self, lane: usize, state: &[f64; STATE]) {
        for (row, value) in self.state.iter_mut().zip(state) {
            row[lane] = *value;
        }
    }
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> BatchEnv for Block<D, STATE, OBS> {
    fn lanes(&self) -> usize {
        self.generators.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.generators[lane] = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.generators[lane].position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.generators[lane] = Generator::at(start);
    }

    fn reset(&mut self, lanes: u64, obs: &mut [ColumnMut<'_>]) -> u64 {
        let rows = obs_rows(obs, self.lanes());
        self.target.run(ResetLanes {
            groups: &mut self.groups,
            generators: &mut self.generators,
            lanes,
            rows,
        });
        0
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let lanes = self.lanes();
        let actions = D::Action::rows(step.actions).filter(|rows| rows.len() == lanes);
        let terminated = self.target.run(StepLanes {
            groups: &mut self.groups,
            generators: &mut self.generators,
            skip: step.skip & lane_bits(lanes),
            reset: step.reset & lane_bits(lanes),
            actions: actions.expect("the action column has the spec's type and one row per lane"),
            rows: obs_rows(step.obs, lanes),
            rewards: step.rewards,
        });
        Ended { terminated, truncated: 0, lost: 0 }
    }

    fn state_hashes(&self, lanes: u64, out: &mut [u32; BLOCK_LANES]) {
        let lanes = lanes & lane_bits(self.lanes());
        self.target.run(HashLanes { groups: &self.groups, lanes, out });
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        Ok(self.groups[lane / GROUP].lane(lane % GROUP).to_vec())
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let state = state.try_into().map_err(|_| StateError::Length { given: state.len(), wanted: STATE })?;
        self.groups[lane / GROUP].set_lane(lane % GROUP, state);
        Ok(())
    }
}

/// The rows of the one observation column.
///
/// # Panics
/// If the caller gave another type or number of rows than the spec says.
#[inline(always)]
fn obs_rows<'a, const OBS: usize>(columns: &'a mut [ColumnMut<'_>], lanes: usize) -> &'a mut [[f32; OBS]] {
    let rows = columns.first_mut().and_then(ColumnMut::as_f32_mut).map(|column| column.as_chunks_mut().0);
    rows.filter(|rows| rows.len() == lanes).expect("the obs column has the spec's type and a row per lane")
}

struct ResetLanes<'a, D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    groups: &'a mut [Group<D, STATE, OBS>],
    generators: &'a mut [Generator],
    lanes: u64,
    rows: &'a mut [[f32; OBS]],
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Kernel for ResetLanes<'_, D, STATE, OBS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for lane in Lanes(self.lanes & lane_bits(self.generators.len())) {
            let group = &mut self.groups[lane / GROUP];
            let state = D::reset(&group.params, lane % GROUP, &mut self.generators[lane]);
            group.set_lane(lane % GROUP, &state);
            self.rows[lane] = D::observe(&state);
        }
    }
}

struct StepLanes<'a, D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    groups: &'a mut [Group<D, STATE, OBS>],
    generators: &'a mut [Generator],
    skip: u64,
    reset: u64,
    actions: &'a [D::Action],
    rows: &'a mut [[f32; OBS]],
    rewards: &'a mut [f64],
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Kernel for StepLanes<'_, D, STATE, OBS> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let mut terminated = 0;
        let (full_actions, last_actions) = self.actions.as_chunks::<GROUP>();
        let (full_rows, last_rows) = self.rows.as_chunks_mut::<GROUP>();
        let (full_rewards, last_rewards) = self.rewards.as_chunks_mut::<GROUP>();
        let (full, last) = self.groups.split_at_mut(full_actions.len());
        let ends = full_actions.iter().zip(full_rows).zip(full_rewards);
        for (index, (group, ((actions, obs), rewards))) in full.iter_mut().zip(ends).enumerate() {
            let skip = (self.skip >> (index * GROUP)) as u8;
            terminated |= u64::from(group.step(skip, actions, obs, rewards)) << (index * GROUP);
        }
        if let Some(group) = last.first_mut() {
            let index = full_actions.len();
            let skip = (self.skip >> (index * GROUP)) as u8;
            let flags = group.step_some(skip, last_actions, last_rows, last_rewards);
            terminated |= u64::from(flags) << (index * GROUP);
        }
        for lane in Lanes(self.reset) {
            self.rewards[lane] = 0.0;
        }
        let Self { groups, generators, reset, rows, .. } = self;
        ResetLanes { groups, generators, lanes: reset, rows }.run();
        terminated & !(self.skip | self.reset)
    }
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Group<D, STATE, OBS> {
    /// Steps the lanes that are not in `skip`; returns which of all lanes reached a terminal state.
    #[inline(always)]
    fn step(
        &mut self,
        skip: u8,
        actions: &[D::Action; GROUP],
        obs: &mut [[f32; OBS]; GROUP],
        rewards: &mut [f64; GROUP],
    ) -> u8 {
        let mut terminated = [false; GROUP];
        if skip == 0 {
            D::step(
                &self.params,
                &mut self.state,
                GroupStep { actions, obs, rewards, terminated: &mut terminated },
            );
        } else {
            let before = self.state;
            if skip != u8::MAX {
                D::step(
                    &self.params,
                    &mut self.state,
                    GroupStep { actions, obs, rewards, terminated: &mut terminated },
                );
            }
            for lane in Lanes(u64::from(skip)) {
                let state = before.map(|row| row[lane]);
                self.set_lane(lane, &state);
                obs[lane] = D::observe(&state);
                rewards[lane] = 0.0;
            }
        }
        pack(terminated)
    }

    /// [`Group::step`] of the block's last group, of which only the first `actions.len()` lanes exist.
    #[inline(always)]
    fn step_some(
        &mut self,
        skip: u8,
        actions: &[D::Action],
        obs: &mut [[f32; OBS]],
        rewards: &mut [f64],
    ) -> u8 {
        let lanes = actions.len();
        let (mut all_actions, mut all_obs) = ([D::Action::default(); GROUP], [[0.0; OBS]; GROUP]);
        let mut all_rewards = [0.0; GROUP];
        all_actions[..lanes].copy_from_slice(actions);
        // Lanes that do not exist stand still: their states stay zero.
        let missing = !lane_bits(lanes) as u8;
        let flags = self.step(skip | missing, &all_actions, &mut all_obs, &mut all_rewards);
        obs.copy_from_slice(&all_obs[..lanes]);
        rewards.copy_from_slice(&all_rewards[..lanes]);
        flags & !missing
    }
}

/// Bit i of the result is `flags[i]`.
#[inline(always)]
fn pack(flags: [bool; GROUP]) -> u8 {
    // The product moves byte i's lowest bit to bit 56 + i; no two terms meet.
    (u64::from_le_bytes(flags.map(u8::from)).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

struct HashLanes<'a, D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> {
    groups: &'a [Group<D, STATE, OBS>],
    lanes: u64,
    out: &'a mut [u32; BLOCK_LANES],
}

impl<D: Dynamics<STATE, OBS>, const STATE: usize, const OBS: usize> Kernel for HashLanes<'_, D, STATE, OBS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (out, _) = self.out.as_chunks_mut::<GROUP>();
        for (index, (group, out)) in self.groups.iter().zip(out).enumerate() {
            match (self.lanes >> (index * GROUP)) as u8 {
                0 => {}
                u8::MAX => {
                    for (lane, hash) in out.iter_mut().enumerate() {
                        *hash = hash_state(&group.lane(lane));
                    }
                }
                some => {
                    for lane in Lanes(u64::from(some)) {
                        out[lane] = hash_state(&group.lane(lane));
                    }
                }
            }
        }
    }
}

/// Every NaN counts as the same: which of its bits an operation keeps is up to the machine.
#[inline(always)]
fn hash_state<const STATE: usize>(state: &[f64; STATE]) -> u32 {
    let mut hasher = StateHasher::new();
    for value in state {
        hasher = hasher.f64(if value.is_nan() { f64::NAN } else { *value });
    }
    hasher.finish()
}
