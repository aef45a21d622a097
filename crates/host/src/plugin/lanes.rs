//! The lanes of a block of a plug-in, as the host knows them.

use rollhouse_core::{ColumnData, ColumnMut, ColumnSpec, EnvSpec, LaneSet};
use rollhouse_env::{Collected, LateRows};

use super::generators::Generators;
use super::slot::{Layout, Slot};
use crate::worker_slot::Memories;

/// What the lanes of a block are doing, and what is known of them.
#[derive(Debug)]
pub(super) struct BlockLanes {
    pub(super) worker: usize,
    /// Number of the block in its worker.
    pub(super) index: usize,
    pub(super) lanes: usize,
    /// Lanes that step and that reset in the next command.
    pub(super) waiting: Option<Moves>,
    /// Lanes that step and that reset in a command, and its number.
    pub(super) under_way: Option<(u64, Moves)>,
    /// Lanes whose loss is to be collected.
    pub(super) failing: LaneSet,
    /// Lanes whose loss is to be collected, and whose worker was late.
    pub(super) hung: LaneSet,
    /// Lanes that cannot be used until they are revived.
    pub(super) lost: LaneSet,
    /// Those of `lost` that need no more than a reset once their worker is there.
    pub(super) renewed: LaneSet,
    /// Which of the two places the next actions go to.
    pub(super) place: usize,
    pub(super) generators: Generators,
    /// Lanes of which the slot has the facts.
    pub(super) known: LaneSet,
    /// Whether facts have been asked for, so that they come with the rows from then on.
    pub(super) facts: bool,
    /// Columns into which rows go of which some are left alone.
    scratch: Scratch,
}

/// Lanes that step, and lanes that begin an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Moves {
    pub(super) step: LaneSet,
    pub(super) reset: LaneSet,
}

#[derive(Debug)]
struct Scratch {
    obs: Vec<ColumnData>,
    infos: Vec<ColumnData>,
    /// Which of `infos` are there in rows that began an episode.
    in_first_rows: Vec<bool>,
    rewards: Vec<f64>,
}

impl BlockLanes {
    /// Makes block number `index` of a worker.
    pub(super) fn new((worker, index): (usize, usize), lanes: usize, spec: &EnvSpec) -> Self {
        let rows = |column: &ColumnSpec| ColumnData::zeros(column.dtype, column.elements() * lanes);
        Self {
            worker,
            index,
            lanes,
            waiting: None,
            under_way: None,
            failing: LaneSet::NONE,
            hung: LaneSet::NONE,
            lost: LaneSet::first(lanes),
            renewed: LaneSet::NONE,
            place: 0,
            generators: Generators::new(lanes),
            known: LaneSet::NONE,
            facts: false,
            scratch: Scratch {
                obs: spec.obs_columns().iter().map(rows).collect(),
                infos: spec.info_channels.iter().map(rows).collect(),
                in_first_rows: spec
                    .info_channels
                    .iter()
                    .map(|channel| channel.role.is_in_first_rows())
                    .collect(),
                rewards: vec![0.0; lanes],
            },
        }
    }

    /// Returns the block's slot in its worker's memory, if there is one.
    #[inline]
    pub(super) fn slot<'a>(&self, layout: &'a Layout, memories: Memories<'a>) -> Option<Slot<'a>> {
        let (memory, at) = memories.of(self.worker)?;
        Some(layout.slot(memory, at, self.index))
    }

    /// Returns whether the block is done with its command; `None` if it has none.
    pub(super) fn is_done(&self, layout: &Layout, memories: Memories<'_>) -> Option<bool> {
        let (command, _) = self.under_way?;
        Some(self.slot(layout, memories).is_some_and(|slot| slot.is_done(command)))
    }

    /// Notes that the lanes are there for the first time.
    pub(super) fn begin(&mut self) {
        self.lost = LaneSet::NONE;
    }

    /// Returns the lanes that are posted.
    pub(super) fn posted(&self) -> LaneSet {
        let moves = self.waiting.into_iter().chain(self.under_way.map(|(_, moves)| moves));
        moves.fold(LaneSet::NONE, |lanes, Moves { step, reset }| lanes | step | reset)
    }

    /// Returns whether a loss is to be collected.
    pub(super) fn is_failing(&self) -> bool {
        !(self.failing | self.hung).is_empty()
    }

    /// Loses `lanes`, of which `renewed` need no more than a reset once their worker is there; `hung` if that was late.
    pub(super) fn lose(&mut self, lanes: LaneSet, renewed: LaneSet, hung: bool) {
        let posted = self.posted() & lanes;
        *(if hung { &mut self.hung } else { &mut self.failing }) |= posted;
        (self.waiting, self.under_way) = (None, None);
        self.lost |= lanes;
        self.renewed = (self.renewed & !lanes) | renewed;
        self.known &= !lanes;
    }

    /// Takes the losses that are to be collected.
    pub(super) fn take_failing(&mut self) -> Collected {
        let (lost, hung) = (std::mem::take(&mut self.failing), std::mem::take(&mut self.hung));
        Collected { lost, hung, ..Collected::default() }
    }

    /// Copies the rows of lanes that moved. Returns the lanes with a boolean that is none.
    pub(super) fn read(&mut self, slot: Slot<'_>, moves: Moves, rows: LateRows<'_, '_>) -> LaneSet {
        let (moved, all) = (moves.step | moves.reset, LaneSet::first(self.lanes));
        let mut wrong = LaneSet::NONE;
        if moved == all {
            wrong |= slot.obs(rows.obs);
            slot.rewards(rows.rewards);
        } else {
            let Scratch { obs, rewards, .. } = &mut self.scratch;
            let mut columns: Vec<ColumnMut<'_>> = obs.iter_mut().map(ColumnData::as_mut).collect();
            wrong |= slot.obs(&mut columns);
            slot.rewards(rewards);
            for (to, from) in rows.obs.iter_mut().zip(obs) {
                copy_rows(to, from, moved, self.lanes);
            }
            moved.into_iter().for_each(|lane| rows.rewards[lane] = rewards[lane]);
        }
        let Scratch { infos, in_first_rows, .. } = &mut self.scratch;
        let told = |first: bool| if first { moved } else { moves.step };
        let any = told(in_first_rows.contains(&true));
        if !rows.infos.is_empty() && !any.is_empty() {
            let mut columns: Vec<ColumnMut<'_>> = infos.iter_mut().map(ColumnData::as_mut).collect();
            wrong |= slot.infos(&mut columns) & any;
            for ((to, from), &first) in rows.infos.iter_mut().zip(infos).zip(&*in_first_rows) {
                copy_rows(to, from, told(first), self.lanes);
            }
        }
        wrong
    }
}

/// Copies the rows of `lanes` out of a column of `count` rows.
fn copy_rows(to: &mut ColumnMut<'_>, from: &ColumnData, lanes: LaneSet, count: usize) {
    let width = from.as_ref().len() / count.max(1);
    for lane in lanes {
        let (start, end) = (lane * width, (lane + 1) * width);
        let copied = to.slice(start, end).copy_from(from.as_ref().slice(start, end));
        debug_assert!(copied, "columns of one place have one type");
    }
}
