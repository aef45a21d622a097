//! The memory of a batch, with which its owner and the threads that step lanes (the shares) take turns.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrayvec::ArrayVec;
use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{ColumnMut, ColumnRef};

use crate::columns::{BatchColumns, Layout, Place, Slot, slot_of};
use crate::memory::Memory;
use crate::patience::Patience;
use crate::placement::{ArenaError, Placement};
use crate::sequence::{Sequence, TimedOut};

/// The owner's side of a batch's memory, which writes actions, starts steps and reads frames.
#[derive(Debug)]
pub struct Arena {
    shared: Arc<Shared>,
    /// Number of turns handed to the shares so far.
    posted: u64,
    /// Number of frames started so far; its parity is the slot of the newest one.
    frame: u64,
    in_flight: bool,
    patience: Patience,
}

/// The side of one thread, which steps the lanes `range`.
#[derive(Debug)]
pub struct Share {
    shared: Arc<Shared>,
    index: usize,
    range: Range<usize>,
    done: u64,
}

#[derive(Debug)]
struct Shared {
    /// Memory of the columns that steps write. Actions lie here too unless `actions` has memory for them.
    memory: Memory,
    /// Memory of the actions, if they lie apart.
    actions: Option<Memory>,
    layout: Layout,
    posted: Sequence,
    done: Vec<Sequence>,
    /// Number of the frame that the posted turn writes. It is written before `posted` is raised and read after it was
    /// seen, so it needs no ordering of its own.
    frame: AtomicU64,
}

/// Columns of an observation, to be read.
pub type ObsRefs<'a> = ArrayVec<ColumnRef<'a>, MAX_OBS_COLUMNS>;
type ObsMuts<'a> = ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>;

impl Arena {
    /// Allocates a batch of `lanes` rows on the heap, split into one share per range.
    ///
    /// # Errors
    /// If the ranges are not disjoint, ascending and inside the batch, if there are too many columns, or if
    /// the batch would be larger than [`MAX_ARENA_BYTES`](crate::MAX_ARENA_BYTES).
    pub fn on_heap(
        columns: &BatchColumns,
        lanes: usize,
        ranges: &[Range<usize>],
        patience: Patience,
    ) -> Result<(Self, Vec<Share>), ArenaError> {
        Self::new(columns, lanes, ranges, patience, Placement::heap())
    }

    /// Makes an arena like [`Arena::on_heap`], in the memory that `placement` stands for.
    ///
    /// # Errors
    /// As [`Arena::on_heap`], and if the memory was laid out for other columns or another number of lanes.
    pub fn new(
        columns: &BatchColumns,
        lanes: usize,
        ranges: &[Range<usize>],
        patience: Patience,
        placement: Placement,
    ) -> Result<(Self, Vec<Share>), ArenaError> {
        let most = columns.obs.len().max(columns.infos.len());
        if most > MAX_OBS_COLUMNS {
            return Err(ArenaError::Columns(most));
        }
        let mut end = 0;
        for range in ranges {
            if range.start < end || range.end < range.start || range.end > lanes {
                return Err(ArenaError::Ranges(range.clone()));
            }
            end = range.end;
        }
        let (layout, memory, actions) = placement.take(columns, lanes)?;
        // Once for all turns, in which the rows of a block are computed over and over.
        let all = 0..lanes;
        layout.slots.iter().flat_map(Slot::places).for_each(|place| memory.check_writable(place.rows(&all)));
        actions.as_ref().unwrap_or(&memory).check_writable(layout.action.rows(&all));
        let shared = Arc::new(Shared {
            memory,
            actions,
            layout,
            posted: Sequence::default(),
            done: ranges.iter().map(|_| Sequence::default()).collect(),
            frame: AtomicU64::new(0),
        });
        let share = |(index, range): (usize, &Range<usize>)| Share {
            shared: Arc::clone(&shared),
            index,
            range: range.clone(),
            done: 0,
        };
        let shares = ranges.iter().enumerate().map(share).collect();
        Ok((Self { shared, posted: 0, frame: 0, in_flight: false, patience }, shares))
    }

    /// Returns the action column, to be filled before [`Arena::start`].
    ///
    /// # Panics
    /// If a step is in flight.
    #[inline]
    pub fn actions_mut(&mut self) -> ColumnMut<'_> {
        self.assert_ours();
        let layout = &self.shared.layout;
        // SAFETY: no step is in flight, so no share holds rows, and `&mut self` excludes other owner borrows.
        unsafe { self.shared.actions().write(layout.action.rows(&(0..layout.lanes))) }
    }

    /// Returns the action column with its present values.
    ///
    /// # Panics
    /// If a step is in flight.
    #[inline]
    pub fn actions(&self) -> ColumnRef<'_> {
        self.assert_ours();
        let layout = &self.shared.layout;
        // SAFETY: no step is in flight; the owner itself writes actions only through `&mut self`.
        unsafe { self.shared.actions().read(layout.action.rows(&(0..layout.lanes))) }
    }

    /// Hands the memory to the shares, which write the next frame.
    ///
    /// # Panics
    /// If a step is in flight.
    #[inline]
    pub fn start(&mut self) {
        self.frame += 1;
        self.start_housekeeping();
    }

    /// Hands the memory to the shares for work between two frames, in which they reach the rows of the newest frame.
    ///
    /// # Panics
    /// If a step is in flight.
    #[inline]
    pub fn start_housekeeping(&mut self) {
        self.assert_ours();
        self.posted += 1;
        self.in_flight = true;
        self.shared.frame.store(self.frame, Ordering::Relaxed);
        self.shared.posted.raise(self.posted);
    }

    /// Waits until every share has ended its step; after that the memory is the owner's again. Returns at once if no
    /// step is in flight.
    ///
    /// # Errors
    /// If a share is not done at `deadline`. The step stays in flight: the owner can wait again, or abandon
    /// the arena, whose memory lives on for as long as a share holds it.
    #[inline]
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<(), TimedOut> {
        if self.in_flight {
            for done in &self.shared.done {
                done.wait(self.posted, &mut self.patience, deadline)?;
            }
            self.in_flight = false;
        }
        Ok(())
    }

    /// Returns the frame that the last finished step wrote.
    ///
    /// # Panics
    /// If a step is in flight.
    #[inline]
    pub fn frame(&self) -> Frame<'_> {
        self.assert_ours();
        self.shared.frame(self.frame)
    }

    /// Returns the frame that the last finished step wrote, and the action column to be filled from it.
    ///
    /// # Panics
    /// If a step is in flight.
    #[inline]
    pub fn frame_and_actions(&mut self) -> (Frame<'_>, ColumnMut<'_>) {
        self.assert_ours();
        let layout = &self.shared.layout;
        // SAFETY: as in `actions_mut`; the frame that lives as long never reads the action column, which is a
        // region of its own.
        let actions = unsafe { self.shared.actions().write(layout.action.rows(&(0..layout.lanes))) };
        (self.shared.frame(self.frame), actions)
    }

    /// Returns a handle that keeps the memory alive, for callers that hold addresses of it beyond a frame's lifetime.
    /// The memory never moves.
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.shared) as _
    }

    /// Returns the addresses of the memory, for callers that pin its pages. For shared memory these are all addresses
    /// that are mapped.
    pub fn addresses(&self) -> Range<usize> {
        self.shared.memory.addresses()
    }

    /// Returns the number of frames started so far.
    pub const fn frames(&self) -> u64 {
        self.frame
    }

    #[inline]
    fn assert_ours(&self) {
        assert!(!self.in_flight, "the arena belongs to its shares while a step is in flight");
    }
}

impl Shared {
    #[inline]
    fn actions(&self) -> &Memory {
        self.actions.as_ref().unwrap_or(&self.memory)
    }

    /// Returns the frame `number`, whose slot nobody writes while it is borrowed.
    #[inline]
    fn frame(&self, number: u64) -> Frame<'_> {
        let Layout { lanes, slots, .. } = &self.layout;
        Frame { memory: &self.memory, lanes: *lanes, slot: &slots[slot_of(number)], number }
    }
}

impl Share {
    /// Returns the lanes that this share steps.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Returns whether a turn is in flight that this share has not ended. The owner does nothing else until it has.
    #[inline]
    pub fn has_turn(&self) -> bool {
        self.shared.posted.get() > self.done
    }

    /// Returns a waiter for later turns, which does not hold the share.
    pub fn turns(&self) -> Turns {
        Turns { shared: Arc::clone(&self.shared), seen: self.done }
    }

    /// Returns the rows of the step in flight; `None` if this share has no step to do.
    #[inline]
    pub fn begin(&mut self) -> Option<Rows<'_>> {
        let posted = self.shared.posted.get();
        let slot = slot_of(self.shared.frame.load(Ordering::Relaxed));
        (posted > self.done).then(|| Rows { share: self, turn: posted, slot })
    }
}

/// Waits for the owner's turns on behalf of a thread that shares a [`Share`] with others.
#[derive(Debug)]
pub struct Turns {
    shared: Arc<Shared>,
    seen: u64,
}

impl Turns {
    /// Sleeps until the owner starts a turn that this waiter has not reported yet. Another thread may have ended the
    /// turn for the share by then: see [`Share::has_turn`].
    ///
    /// # Errors
    /// When `deadline` passes first.
    pub fn wait(&mut self, patience: &mut Patience, deadline: Option<Instant>) -> Result<(), TimedOut> {
        self.shared.posted.wait(self.seen + 1, patience, deadline)?;
        self.seen = self.shared.posted.get();
        Ok(())
    }
}

/// Rows of a share during one turn. Dropping them ends the share's turn.
#[derive(Debug)]
pub struct Rows<'a> {
    share: &'a mut Share,
    turn: u64,
    slot: usize,
}

/// Rows of one block of lanes during one step, which are the step's input and output.
#[derive(Debug)]
pub struct BlockRows<'a, 'b> {
    /// Actions, one for each lane.
    pub actions: ColumnRef<'b>,
    /// Observation columns.
    pub obs: &'a mut [ColumnMut<'b>],
    /// Info columns.
    pub infos: &'a mut [ColumnMut<'b>],
    /// Columns for the last observations of episodes that end in this step; empty unless SAME_STEP.
    pub final_obs: &'a mut [ColumnMut<'b>],
    /// Observation columns of the previous frame.
    pub previous_obs: PreviousObs<'b>,
    /// Rewards, one for each lane.
    pub rewards: &'a mut [f64],
    /// Flags, 1 where the episode terminated.
    pub terminated: &'a mut [u8],
    /// Flags, 1 where the episode was truncated.
    pub truncated: &'a mut [u8],
    /// Flags, 1 where the row began an episode instead of stepping.
    pub reset: &'a mut [u8],
}

/// Observation columns of a block's rows in the previous frame, for lanes that do not move.
#[derive(Debug, Clone)]
pub struct PreviousObs<'b> {
    memory: &'b Memory,
    places: &'b [Place],
    lanes: Range<usize>,
}

impl<'b> PreviousObs<'b> {
    /// Returns the columns in the observation's order.
    pub fn columns(&self) -> impl Iterator<Item = ColumnRef<'b>> {
        // SAFETY: a value of this type exists only inside `Rows::with_block`, during a turn, in which
        // nothing writes the other slot.
        self.places.iter().map(|place| unsafe { self.memory.read(place.rows(&self.lanes)) })
    }
}

impl Rows<'_> {
    /// Calls `run` with rows `lanes` of the batch.
    ///
    /// # Panics
    /// If `lanes` is not inside the share.
    #[inline]
    pub fn with_block<R>(
        &mut self,
        lanes: &Range<usize>,
        run: impl FnOnce(&mut BlockRows<'_, '_>) -> R,
    ) -> R {
        let range = &self.share.range;
        let inside = range.start <= lanes.start && lanes.start <= lanes.end && lanes.end <= range.end;
        assert!(inside, "lanes {lanes:?} are not in the share {range:?}");
        let shared = &*self.share.shared;
        let Shared { memory, layout, .. } = shared;
        let slot = &layout.slots[self.slot];
        // SAFETY: until this value is dropped the rows of the share's range belong to it alone: the owner
        // asserts that nothing is in flight before it touches memory, the ranges of other shares are disjoint
        // (`new`), the places of two columns or slots do not overlap (`Layout::new`, `Placement`), and `&mut self`
        // excludes a second call meanwhile; what `run` is given cannot outlive it. `Arena::new` has checked all rows
        // of the batch, in which those of the share lie, and neither layout nor memory change.
        let write = |place: &Place| unsafe { memory.write_checked(place.rows(lanes)) };
        // Pushed in place: moving these arrays would cost more than stepping a small block.
        let (mut obs, mut infos, mut final_obs) = (ObsMuts::new(), ObsMuts::new(), ObsMuts::new());
        slot.obs.iter().for_each(|place| obs.push(write(place)));
        slot.infos.iter().for_each(|place| infos.push(write(place)));
        slot.final_obs.iter().for_each(|place| final_obs.push(write(place)));
        run(&mut BlockRows {
            // SAFETY: as above; during a turn actions are only read.
            actions: unsafe { shared.actions().read_checked(layout.action.rows(lanes)) },
            obs: &mut obs,
            infos: &mut infos,
            final_obs: &mut final_obs,
            previous_obs: PreviousObs {
                memory,
                places: &layout.slots[1 - self.slot].obs,
                lanes: lanes.clone(),
            },
            rewards: doubles(write(&slot.rewards)),
            terminated: bytes(write(&slot.terminated)),
            truncated: bytes(write(&slot.truncated)),
            reset: bytes(write(&slot.reset)),
        })
    }

    /// Gives the rows back to the share without ending its turn, so that [`Share::begin`] returns them again.
    pub fn suspend(self) {
        std::mem::forget(self);
    }
}

impl Drop for Rows<'_> {
    #[inline]
    fn drop(&mut self) {
        self.share.done = self.turn;
        self.share.shared.done[self.share.index].raise(self.turn);
    }
}

/// Output of one step for all lanes. Slices stay readable until the next step; the values stay in memory until the
/// second next.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    memory: &'a Memory,
    lanes: usize,
    slot: &'a Slot,
    number: u64,
}

impl<'a> Frame<'a> {
    /// Makes the frame `number` of a batch of `lanes` rows that lies in `slot` of `memory`.
    ///
    /// # Safety
    /// The slot's places lie in the memory with `lanes` rows, and nothing of this process writes them while the frame
    /// or a slice of it lives.
    pub(crate) const unsafe fn of(memory: &'a Memory, lanes: usize, slot: &'a Slot, number: u64) -> Self {
        Self { memory, lanes, slot, number }
    }

    /// Returns whether the frame lies in the same mapping or allocation as `memory`.
    pub(crate) fn lies_in(&self, memory: &Memory) -> bool {
        self.memory.is_part_of(memory)
    }

    /// Returns the number of rows in the batch.
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the number of the frame. The first written frame is 1; frame 0 is the memory before any step.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the slot in which the frame lies, 0 or 1: frames alternate.
    pub const fn slot_index(&self) -> usize {
        slot_of(self.number)
    }

    /// Returns column `index` of the observation.
    ///
    /// # Panics
    /// If the observation has no such column.
    pub fn obs(&self, index: usize) -> ColumnRef<'a> {
        self.read(&self.slot.obs[index])
    }

    /// Returns column `index` of the last observations of episodes that ended in this step (SAME_STEP only).
    ///
    /// # Panics
    /// If there is no such column.
    pub fn final_obs(&self, index: usize) -> ColumnRef<'a> {
        self.read(&self.slot.final_obs[index])
    }

    /// Returns info column `index`.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn info(&self, index: usize) -> ColumnRef<'a> {
        self.read(&self.slot.infos[index])
    }

    /// Returns all columns of the observation.
    pub fn obs_columns(&self) -> ObsRefs<'a> {
        self.slot.obs.iter().map(|place| self.read(place)).collect()
    }

    /// Returns all info columns.
    pub fn info_columns(&self) -> Vec<ColumnRef<'a>> {
        self.slot.infos.iter().map(|place| self.read(place)).collect()
    }

    /// Returns all columns of the last observations (SAME_STEP only).
    pub fn final_obs_columns(&self) -> Vec<ColumnRef<'a>> {
        self.slot.final_obs.iter().map(|place| self.read(place)).collect()
    }

    /// Returns the rewards, one for each lane.
    pub fn rewards(&self) -> &'a [f64] {
        self.read(&self.slot.rewards).as_f64().unwrap_or(&[])
    }

    /// Returns flags that are 1 where the episode terminated in this step.
    pub fn terminated(&self) -> &'a [u8] {
        self.read(&self.slot.terminated).as_u8().unwrap_or(&[])
    }

    /// Returns flags that are 1 where the episode was truncated in this step.
    pub fn truncated(&self) -> &'a [u8] {
        self.read(&self.slot.truncated).as_u8().unwrap_or(&[])
    }

    /// Returns flags that are 1 where the row began an episode instead of stepping: NEXT_STEP's dead transitions, which
    /// learners must mask.
    pub fn reset(&self) -> &'a [u8] {
        self.read(&self.slot.reset).as_u8().unwrap_or(&[])
    }

    fn read(&self, place: &Place) -> ColumnRef<'a> {
        // SAFETY: a frame borrows the arena, and no step can start (`&mut`) while it does; without a step
        // no share holds rows. Other frames are made by `of`, whose caller promises the same.
        unsafe { self.memory.read(place.rows(&(0..self.lanes))) }
    }
}

/// Returns the elements of a column of rewards. The layout gives rewards the type f64 and flags the type u8, and this
/// is called for those alone.
fn doubles(column: ColumnMut<'_>) -> &mut [f64] {
    match column {
        ColumnMut::F64(values) => values,
        _ => &mut [],
    }
}

fn bytes(column: ColumnMut<'_>) -> &mut [u8] {
    match column {
        ColumnMut::U8(values) => values,
        _ => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::{ColumnSpec, DType, Role};

    fn columns() -> BatchColumns {
        let column = |dtype, shape: &[usize], role| ColumnSpec {
            path: String::new(),
            dtype,
            shape: shape.to_vec(),
            names: vec![],
            role,
        };
        BatchColumns {
            action: column(DType::I64, &[], Role::Action),
            obs: vec![column(DType::F32, &[3], Role::Obs), column(DType::U8, &[2, 2], Role::Obs)],
            infos: vec![],
            final_obs: true,
        }
    }

    fn one(range: &Range<usize>) -> &[Range<usize>] {
        std::slice::from_ref(range)
    }

    fn echo(share: &mut Share) {
        let range = share.range();
        share.begin().unwrap().with_block(&range, |rows| {
            for (reward, action) in rows.rewards.iter_mut().zip(rows.actions.as_i64().unwrap()) {
                *reward = *action as f64;
            }
        });
    }

    #[test]
    fn shares_on_other_threads_see_every_action_and_the_owner_every_reward() {
        let lanes = 100;
        let ranges = [0..30, 30..64, 64..100];
        let (mut arena, shares) = Arena::on_heap(&columns(), lanes, &ranges, Patience::among(4)).unwrap();
        let threads: Vec<_> = shares
            .into_iter()
            .map(|mut share| {
                let mut turns = share.turns();
                std::thread::spawn(move || {
                    for _ in 0..500 {
                        turns.wait(&mut { Patience::NONE }, None).unwrap();
                        echo(&mut share);
                    }
                })
            })
            .collect();
        for step in 0..500i64 {
            for (lane, action) in arena.actions_mut().as_i64_mut().unwrap().iter_mut().enumerate() {
                *action = step * 1000 + lane as i64;
            }
            arena.start();
            arena.wait(None).unwrap();
            for (lane, &reward) in arena.frame().rewards().iter().enumerate() {
                assert_eq!(reward, (step * 1000 + lane as i64) as f64);
            }
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn a_frame_keeps_its_values_until_the_second_next_step() {
        let (mut arena, mut shares) = Arena::on_heap(&columns(), 2, one(&(0..2)), Patience::NONE).unwrap();
        let mut addresses = Vec::new();
        for step in 0..4 {
            arena.actions_mut().as_i64_mut().unwrap().fill(step);
            arena.start();
            echo(&mut shares[0]);
            arena.wait(None).unwrap();
            addresses.push(arena.frame().rewards().as_ptr());
        }
        assert_eq!(addresses[0], addresses[2]);
        assert_ne!(addresses[0], addresses[1]);
    }

    #[test]
    fn housekeeping_and_suspended_turns_stay_in_the_newest_frame() {
        let (mut arena, mut shares) = Arena::on_heap(&columns(), 2, one(&(0..2)), Patience::NONE).unwrap();
        arena.actions_mut().as_i64_mut().unwrap().fill(5);
        arena.start();
        echo(&mut shares[0]);
        arena.wait(None).unwrap();
        arena.start_housekeeping();
        shares[0].begin().unwrap().suspend();
        assert_eq!(arena.wait(Some(Instant::now())), Err(TimedOut));
        shares[0].begin().unwrap().with_block(&(1..2), |rows| rows.rewards[0] = 6.0);
        arena.wait(None).unwrap();
        assert_eq!(arena.frame().rewards(), [5.0, 6.0]);
    }

    #[test]
    fn the_previous_observation_can_be_read_during_a_step() {
        let (mut arena, mut shares) = Arena::on_heap(&columns(), 2, one(&(0..2)), Patience::NONE).unwrap();
        arena.start();
        let fill = |rows: &mut BlockRows<'_, '_>| rows.obs[0].as_f32_mut().unwrap().fill(7.0);
        shares[0].begin().unwrap().with_block(&(0..2), fill);
        arena.wait(None).unwrap();
        arena.start();
        shares[0].begin().unwrap().with_block(&(1..2), |rows| {
            let previous: Vec<_> = rows.previous_obs.columns().collect();
            assert_eq!(previous[0].as_f32(), Some(&[7.0f32; 3][..]));
            assert_eq!(rows.obs[0].as_ref().as_f32(), Some(&[0.0f32; 3][..]));
        });
        arena.wait(None).unwrap();
    }

    #[test]
    #[should_panic(expected = "in flight")]
    fn the_owner_cannot_read_while_a_step_is_in_flight() {
        let (mut arena, _shares) = Arena::on_heap(&columns(), 2, one(&(0..2)), Patience::NONE).unwrap();
        arena.start();
        arena.frame();
    }

    #[test]
    fn a_share_that_never_answers_is_given_up_at_the_deadline() {
        let (mut arena, shares) = Arena::on_heap(&columns(), 2, one(&(0..2)), Patience::NONE).unwrap();
        arena.start();
        assert_eq!(arena.wait(Some(Instant::now())), Err(TimedOut));
        drop(arena);
        drop(shares);
    }

    #[test]
    fn overlapping_ranges_and_absurd_sizes_are_refused() {
        let make =
            |lanes, ranges: &[Range<usize>]| Arena::on_heap(&columns(), lanes, ranges, Patience::NONE).err();
        assert_eq!(make(4, &[0..2, 1..4]), Some(ArenaError::Ranges(1..4)));
        assert_eq!(make(4, one(&(0..5))), Some(ArenaError::Ranges(0..5)));
        assert_eq!(make(usize::MAX / 2, &[]), Some(ArenaError::Size));
    }

    #[test]
    fn every_column_starts_on_a_cache_line_of_its_own() {
        let (mut arena, _shares) = Arena::on_heap(&columns(), 5, &[], Patience::NONE).unwrap();
        assert_eq!(arena.actions_mut().as_i64_mut().unwrap().as_ptr() as usize % 64, 0);
        let frame = arena.frame();
        assert_eq!(frame.obs(0).as_f32().unwrap().as_ptr() as usize % 64, 0);
        assert_eq!(frame.obs(1).as_u8().unwrap().as_ptr() as usize % 64, 0);
    }
}
