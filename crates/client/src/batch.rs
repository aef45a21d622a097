//! The pool's batch: one set of columns over all lanes, into which every session's answers are written at their rows.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use rollhouse_arena::{Arena, ArenaError, BatchColumns, BlockRows, Frame, Patience, Rows, Share};
use rollhouse_core::{ColumnData, ColumnMut, ColumnRef, DType, EnvSpec};
use rollhouse_engine::Fragment;
use rollhouse_wire::BatchPlaces;

/// The batch of a pool. Two slots alternate, so a frame stays as it is until the second next one is written.
pub struct Batch {
    arena: Arena,
    share: Share,
    lanes: usize,
}

/// The next frame, while answers are written into it. It is begun by the first answer that comes, so that a request
/// that every session refuses leaves the newest frame as it is. The exchanges of all sessions share it and run on one
/// thread, so the lock is never contended.
pub struct Target<'a> {
    turn: Mutex<Turn<'a>>,
}

struct Turn<'a> {
    unbegun: Option<(&'a mut Arena, &'a mut Share)>,
    rows: Option<Rows<'a>>,
}

impl Batch {
    /// Allocates room for `lanes` rows.
    ///
    /// # Errors
    /// If there is no memory left, or they are too many.
    pub fn new(spec: &EnvSpec, lanes: usize, same_step: bool) -> Result<Self, ArenaError> {
        let columns = BatchColumns::of(spec, same_step);
        let (arena, mut shares) =
            Arena::on_heap(&columns, lanes, std::slice::from_ref(&(0..lanes)), Patience::NONE)?;
        let share = shares.pop().ok_or(ArenaError::Ranges(0..lanes))?;
        Ok(Self { arena, share, lanes })
    }

    pub(crate) fn actions_mut(&mut self) -> ColumnMut<'_> {
        self.settle();
        self.arena.actions_mut()
    }

    pub(crate) fn actions(&mut self) -> ColumnRef<'_> {
        self.settle();
        self.arena.actions()
    }

    /// Returns the newest frame.
    pub fn frame(&mut self) -> Frame<'_> {
        self.settle();
        self.arena.frame()
    }

    pub(crate) fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.arena.memory()
    }

    pub(crate) fn addresses(&self) -> Range<usize> {
        self.arena.addresses()
    }

    /// Returns the next frame. If it was begun, it is the newest one when this is dropped.
    pub fn next_frame(&mut self) -> Target<'_> {
        self.settle();
        let unbegun = Some((&mut self.arena, &mut self.share));
        Target { turn: Mutex::new(Turn { unbegun, rows: None }) }
    }

    /// Takes the memory back after a target was dropped: its rows ended their turn then, so this never waits.
    fn settle(&mut self) {
        let settled = self.arena.wait(None);
        debug_assert!(settled.is_ok(), "no other thread holds rows");
    }

    pub(crate) const fn lanes(&self) -> usize {
        self.lanes
    }
}

impl Target<'_> {
    /// Writes a part of a session's columns: `bytes` at offset `at` of a frame over `lanes` laid out by `places`.
    pub(crate) fn land(&self, lanes: &Range<usize>, places: &BatchPlaces, at: usize, bytes: &[u8]) {
        self.rows(lanes, |rows| land(rows, places, at, bytes));
    }

    /// Writes the rows of a whole session from its own frame.
    pub(crate) fn land_frame(&self, lanes: &Range<usize>, frame: &Frame<'_>) {
        self.rows(lanes, |rows| {
            let put = |column: ColumnMut<'_>, from: ColumnRef<'_>| {
                let mut column = column;
                let copied = column.copy_from(from);
                debug_assert!(copied, "both batches are of one env");
            };
            for (index, column) in rows.obs.iter_mut().enumerate() {
                put(column.reborrow(), frame.obs(index));
            }
            for (index, column) in rows.infos.iter_mut().enumerate() {
                put(column.reborrow(), frame.info(index));
            }
            for (index, column) in rows.final_obs.iter_mut().enumerate() {
                put(column.reborrow(), frame.final_obs(index));
            }
            rows.rewards.copy_from_slice(frame.rewards());
            rows.terminated.copy_from_slice(frame.terminated());
            rows.truncated.copy_from_slice(frame.truncated());
            rows.reset.copy_from_slice(frame.reset());
        });
    }

    /// Writes what the last step of a fragment of all lanes has shown.
    pub(crate) fn land_last(&self, fragment: &Fragment) {
        let lanes = fragment.lanes();
        let last = |of_steps: ColumnRef<'_>, parts: usize| {
            let elements = of_steps.len() / parts;
            ColumnData::from(of_steps.slice(of_steps.len() - elements, of_steps.len()))
        };
        self.rows(&(0..lanes), |rows| {
            let frames = fragment.steps() + 1;
            let shown = rows.obs.iter_mut().enumerate().map(|(at, column)| (column, fragment.obs(at)));
            let infos = rows.infos.iter_mut().enumerate().map(|(at, column)| (column, fragment.info(at)));
            for (column, from) in shown.chain(infos) {
                let copied = column.copy_from(last(from, frames).as_ref());
                debug_assert!(copied, "both are of one env");
            }
            let first = (fragment.steps() - 1) * lanes;
            rows.rewards.copy_from_slice(&fragment.rewards()[first..]);
            rows.terminated.copy_from_slice(&fragment.terminated()[first..]);
            rows.truncated.copy_from_slice(&fragment.truncated()[first..]);
            rows.reset.copy_from_slice(&fragment.reset()[first..]);
        });
    }

    /// Returns whether the flags and booleans of `lanes` are all 0 or 1.
    pub(crate) fn flags_are_sound(&self, lanes: &Range<usize>, bools: &[usize]) -> bool {
        self.rows(lanes, |rows| {
            let any = |flags: &[u8]| flags.iter().fold(0, |any, flag| any | flag);
            let obs = bools.iter().map(|&column| any(rows.obs[column].as_ref().bytes()));
            let of_obs = obs.fold(0, |any, flag| any | flag);
            (any(rows.terminated) | any(rows.truncated) | any(rows.reset) | of_obs) <= 1
        })
    }

    /// Fills the rows of a session that is gone: the last observation, reward 0, truncated if it went in this step.
    pub(crate) fn stand_still(&self, lanes: &Range<usize>, gone_now: bool) {
        self.rows(lanes, |rows| {
            for shown in [&mut *rows.obs, &mut *rows.final_obs] {
                for (column, previous) in shown.iter_mut().zip(rows.previous_obs.columns()) {
                    let copied = column.copy_from(previous);
                    debug_assert!(copied, "both slots have the same columns");
                }
            }
            rows.infos.iter_mut().for_each(|column| column.bytes_mut().fill(0));
            rows.rewards.fill(0.0);
            rows.terminated.fill(0);
            rows.truncated.fill(u8::from(gone_now));
            rows.reset.fill(0);
        });
    }

    /// Fills the row of lane `lane` among those of `lanes`: the last observation, reward 0, truncated.
    pub(crate) fn cut(&self, lanes: &Range<usize>, lane: usize) {
        self.rows(lanes, |rows| {
            for shown in [&mut *rows.obs, &mut *rows.final_obs] {
                for (column, previous) in shown.iter_mut().zip(rows.previous_obs.columns()) {
                    let elements = previous.len() / lanes.len();
                    let row = lane * elements..(lane + 1) * elements;
                    let copied =
                        column.slice(row.start, row.end).copy_from(previous.slice(row.start, row.end));
                    debug_assert!(copied, "both slots have the same columns");
                }
            }
            rows.rewards[lane] = 0.0;
            rows.terminated[lane] = 0;
            rows.truncated[lane] = 1;
        });
    }

    fn rows<R>(&self, lanes: &Range<usize>, run: impl FnOnce(&mut BlockRows<'_, '_>) -> R) -> R {
        // What panicked here left the turn as it was.
        let mut turn = self.turn.lock();
        if let Some((arena, share)) = turn.unbegun.take() {
            arena.start();
            turn.rows = share.begin();
        }
        turn.rows.as_mut().expect("a turn that was begun has rows").with_block(lanes, run)
    }
}

/// Copies the part of `bytes` that each column has in the frame, without the padding between columns.
fn land(rows: &mut BlockRows<'_, '_>, places: &BatchPlaces, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    let put = |place: &Range<usize>, column: &mut [u8]| {
        let (from, to) = (place.start.max(at), place.end.min(end));
        if from < to {
            column[from - place.start..to - place.start].copy_from_slice(&bytes[from - at..to - at]);
        }
    };
    let columns = |places: &[Range<usize>], columns: &mut [ColumnMut<'_>]| {
        for (place, column) in places.iter().zip(columns) {
            put(place, column.bytes_mut());
        }
    };
    columns(&places.obs, rows.obs);
    columns(&places.infos, rows.infos);
    put(&places.rewards, ColumnMut::F64(rows.rewards).bytes_mut());
    put(&places.terminated, rows.terminated);
    put(&places.truncated, rows.truncated);
    put(&places.reset, rows.reset);
    columns(&places.final_obs, rows.final_obs);
}

/// Returns the indices of the observation's columns that hold booleans.
pub(crate) fn bool_columns(spec: &EnvSpec) -> Vec<usize> {
    let columns = spec.obs_columns();
    (0..columns.len()).filter(|&column| columns[column].dtype == DType::Bool).collect()
}

/// Returns a column's bytes, filled up as frames have it.
pub(crate) fn column(rows: ColumnRef<'_>) -> Bytes {
    filled(rows.bytes())
}

/// Returns the bytes of a column, filled up as frames have it.
pub(crate) fn filled(bytes: &[u8]) -> Bytes {
    let filled = bytes.len().next_multiple_of(8);
    let mut out = BytesMut::with_capacity(filled);
    out.put_slice(bytes);
    out.put_bytes(0, filled - bytes.len());
    out.freeze()
}
