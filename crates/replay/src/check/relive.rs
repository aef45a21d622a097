//! Verifying action logs in the order in which they were recorded.
//!
//! A chunk holds the rows of a block as they were stepped, so its episodes can be verified side by side without being
//! put together first: every row's actions are expanded, the lanes that were stepped are stepped again, and hashes,
//! flags and returns are compared where the chunk has them. A block's lanes stay where they are from one chunk to its
//! next. An episode whose beginning was not met on the way (a chunk before it is damaged or gone) is left to the code
//! that reads episodes one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, EpisodeName, GameResult, LaneSet, Outcome, Verdict};
use rollhouse_env::{Ended, Kernel, Target};

use crate::check::verification::{Verification, not_simulated, ready};
use crate::code::chunk::{Columns, Decoder, Part};
use crate::code::codec::Malformed;
use crate::code::episode::{known_return, start_of};
use crate::code::events::{CODE_HASH, CODE_RESULT_SHIFT};
use crate::code::layout::ActionCoding;
use crate::code::record::Header;
use crate::code::run::RecordKind;
use crate::code::run_record::RunInfo;
use crate::play::divergence::{Divergence, Ending, Replayed, panicked, went_on};
use crate::play::envs::Envs;
use crate::play::simulate::{SimulateError, Simulator};

/// The blocks of all runs, as far as they have been stepped again.
pub(crate) struct Relive<'a> {
    envs: Envs<'a>,
    target: Target,
    /// Blocks by run and first lane.
    blocks: BTreeMap<(u128, u32), Block>,
    plan: Plan,
}

/// One block between two of its chunks.
struct Block {
    simulator: Result<Box<Simulator>, SimulateError>,
    /// Rows of the block before its next chunk.
    position: u64,
    /// Lanes in the middle of an episode that was met from its beginning on.
    known: LaneSet,
    /// Lanes among those in which something has differed.
    failed: LaneSet,
    /// The difference in each failed lane, and after how many steps it was found.
    failures: BTreeMap<usize, (u64, Divergence)>,
    numbers: [u64; BLOCK_LANES],
    totals: [f64; BLOCK_LANES],
    /// Last age of each lane's episode at which a hash agreed.
    agreed: [u64; BLOCK_LANES],
}

/// The events of a chunk, by row.
struct Plan {
    /// Lanes whose episode begins before the row.
    begins: Vec<LaneSet>,
    /// Lanes whose episode ends after that many rows.
    ends: Vec<LaneSet>,
    /// Lanes with a recorded hash, or at the time limit without ending, after that many rows.
    looks: Vec<LaneSet>,
    /// The part that each lane is in, or will be in next.
    current: [u32; BLOCK_LANES],
    /// For each part, the next part of its lane.
    next: Vec<u32>,
    windows: Vec<Vec<(u64, u32)>>,
}

/// A decoded chunk and its origin.
pub(crate) struct Chunk<'a> {
    pub(crate) run: &'a Arc<RunInfo>,
    pub(crate) header: &'a Header,
    pub(crate) decoder: &'a Decoder,
    pub(crate) columns: &'a Columns<'a>,
}

impl<'a> Relive<'a> {
    pub(crate) fn new(envs: Envs<'a>) -> Self {
        Self { envs, target: Target::best(), blocks: BTreeMap::new(), plan: Plan::new() }
    }

    /// Returns whether the chunk can be verified in this way: it is an action log of integers, of lanes with one set of
    /// options, of an env whose lanes nothing but their actions changes, and of none that is a Python package's: blocks are kept,
    /// and processes are not to be.
    pub(crate) fn suits(chunk: &Chunk<'_>) -> bool {
        let Chunk { run, header, decoder, .. } = chunk;
        let planes = matches!(decoder.layout().actions, ActionCoding::Planes { .. });
        let options = run.options_index(header.first_lane);
        let mut lanes = header.first_lane..header.first_lane + u32::from(header.lanes);
        run.recorded == RecordKind::ActionLog
            && planes
            && !run.spec.has_changing_methods()
            && !run.spec.source.is_learned()
            && lanes.all(|lane| run.options_index(lane) == options)
    }

    /// Returns whether the lanes of a chunk that suits have the options of their run. The episodes of others are read one by
    /// one, because they may begin in chunks that were gone through.
    pub(crate) const fn has_options_of_run(chunk: &Chunk<'_>) -> bool {
        !chunk.decoder.has_options()
    }

    /// Goes through the next chunk of its block. Calls `visit` for each episode that ended in it; returns the indices
    /// of the parts whose episodes have to be read one by one.
    pub(crate) fn chunk(
        &mut self,
        chunk: &Chunk<'_>,
        visit: &mut impl FnMut(Verification),
    ) -> Result<Vec<usize>, Malformed> {
        let Chunk { run, header, decoder, columns } = chunk;
        let key = (run.run().as_u128(), header.first_lane);
        if self.blocks.len() >= MAX_BLOCKS && !self.blocks.contains_key(&key) {
            self.blocks.pop_first();
        }
        let block = self.blocks.entry(key).or_insert_with(|| Block::new(self.envs, run, header));
        if block.position != header.position {
            block.forget(LaneSet::ALL);
        }
        block.position = header.position + u64::from(header.rows);
        let limit = run.max_episode_steps.map(u64::from).filter(|&limit| limit > 0);
        self.plan.make(decoder, columns, limit)?;
        for lane in block.known {
            let part = decoder.parts.get(self.plan.current[lane] as usize);
            let goes_on = |part: &Part| part.piece.from_age > 0 && part.piece.number == block.numbers[lane];
            if !part.is_some_and(goes_on) {
                block.forget(LaneSet::one(lane));
            }
        }
        let envs = self.envs;
        let mut pass = Pass { envs, chunk, block, plan: &mut self.plan, limit, apart: Vec::new() };
        pass.empty_episodes(visit);
        pass.cut_before_the_first_row(visit);
        for row in 0..decoder.stepped.len() {
            pass.row(row, self.target, visit)?;
        }
        Ok(pass.apart)
    }
}

impl Block {
    fn new(envs: Envs<'_>, run: &RunInfo, header: &Header) -> Self {
        Self {
            simulator: Self::simulator(envs, run, header),
            position: header.position,
            known: LaneSet::NONE,
            failed: LaneSet::NONE,
            failures: BTreeMap::new(),
            numbers: [0; BLOCK_LANES],
            totals: [0.0; BLOCK_LANES],
            agreed: [0; BLOCK_LANES],
        }
    }

    fn simulator(envs: Envs<'_>, run: &RunInfo, header: &Header) -> Result<Box<Simulator>, SimulateError> {
        ready(envs, run, &run.options(header.first_lane), usize::from(header.lanes))
    }

    /// Stops following the episodes of lanes.
    fn forget(&mut self, lanes: LaneSet) {
        self.known &= !lanes;
        for lane in self.failed & lanes {
            self.failures.remove(&lane);
        }
        self.failed &= !lanes;
    }

    fn fail(&mut self, lane: usize, steps: u64, divergence: Divergence) {
        self.failed.insert(lane);
        self.failures.insert(lane, (steps, divergence));
    }

    /// Returns the lanes in which nothing has differed so far.
    fn agreeing(&self) -> LaneSet {
        self.known & !self.failed
    }
}

impl Plan {
    const fn new() -> Self {
        Self {
            begins: Vec::new(),
            ends: Vec::new(),
            looks: Vec::new(),
            current: [NONE; BLOCK_LANES],
            next: Vec::new(),
            windows: Vec::new(),
        }
    }

    fn make(
        &mut self,
        decoder: &Decoder,
        columns: &Columns<'_>,
        limit: Option<u64>,
    ) -> Result<(), Malformed> {
        let rows = decoder.stepped.len();
        self.windows = decoder.windows(columns)?;
        for sets in [&mut self.begins, &mut self.ends, &mut self.looks] {
            sets.clear();
            sets.resize(rows + 1, LaneSet::NONE);
        }
        self.current = [NONE; BLOCK_LANES];
        self.next.clear();
        self.next.resize(decoder.parts.len(), NONE);
        // Backwards, so that each part finds its successor in its lane's place.
        for (index, part) in decoder.parts.iter().enumerate().rev() {
            let piece = &part.piece;
            if !part.kept || piece.age == 0 {
                continue;
            }
            if piece.from_age == 0 {
                self.begins[piece.from_row].insert(piece.lane);
            }
            if part.end.is_some() {
                self.ends[piece.to_row].insert(piece.lane);
            }
            let limit = limit.filter(|&limit| piece.from_age < limit && limit < piece.age);
            for age in self.windows[index].iter().map(|&(age, _)| age).chain(limit) {
                self.looks[row_of(decoder, part, age)].insert(piece.lane);
            }
            self.next[index] = std::mem::replace(&mut self.current[piece.lane], index as u32);
        }
        Ok(())
    }
}

/// One pass through a chunk.
struct Pass<'p, 'c> {
    envs: Envs<'p>,
    chunk: &'p Chunk<'c>,
    block: &'p mut Block,
    plan: &'p mut Plan,
    limit: Option<u64>,
    /// Parts whose episodes were not met from their beginning on.
    apart: Vec<usize>,
}

impl Pass<'_, '_> {
    /// Reports the episodes that ended before their first step, in which nothing can differ.
    fn empty_episodes(&mut self, visit: &mut impl FnMut(Verification)) {
        let empty = self.chunk.decoder.parts.iter().filter(|part| part.end.is_some() && part.piece.age == 0);
        empty.for_each(|part| visit(self.verification(part, None)));
    }

    /// Leaves episodes of earlier chunks that were cut before this chunk's first row to be read one by one.
    fn cut_before_the_first_row(&mut self, visit: &mut impl FnMut(Verification)) {
        for lane in self.plan.ends[0] {
            self.block.forget(LaneSet::one(lane));
            self.conclude(lane, visit);
        }
    }

    fn row(
        &mut self,
        row: usize,
        target: Target,
        visit: &mut impl FnMut(Verification),
    ) -> Result<(), Malformed> {
        let begins = self.plan.begins[row];
        if !begins.is_empty() {
            self.begin(row, begins);
        }
        let stepped = LaneSet::of_bits(self.chunk.decoder.stepped[row]) & self.block.agreeing();
        let ends = self.plan.ends[row + 1];
        let mut ended = Ended::default();
        if let (Ok(simulator), true) = (&mut self.block.simulator, !stepped.is_empty()) {
            let ColumnMut::I64(actions) = simulator.actions.as_mut() else {
                return Err(Malformed("action type"));
            };
            self.chunk.decoder.expand_actions(self.chunk.columns, row, target, actions)?;
            let stepped_again = simulator.step(stepped);
            target.run(AddRewards { totals: &mut self.block.totals, rewards: &simulator.rewards });
            match stepped_again {
                Some(now) => ended = now,
                None => self.lose_block(row),
            }
            if !(ended.lost & stepped).is_empty() {
                self.lose(row, ended.lost & stepped);
            }
        }
        let looks = (self.plan.looks[row + 1] | ended.terminated | ended.truncated | ends) & stepped;
        if !looks.is_empty() {
            self.look(row, looks & self.block.agreeing(), ends, ended);
        }
        for lane in ends {
            self.conclude(lane, visit);
        }
        Ok(())
    }

    /// Begins the next episode of lanes.
    fn begin(&mut self, row: usize, lanes: LaneSet) {
        let Chunk { run, header, decoder, .. } = self.chunk;
        self.block.forget(lanes);
        let Ok(simulator) = &mut self.block.simulator else { return };
        for lane in lanes {
            let Some(part) = decoder.parts.get(self.plan.current[lane] as usize) else { continue };
            let piece = &part.piece;
            debug_assert_eq!((piece.from_row, piece.from_age), (row, 0));
            let global = header.first_lane + lane as u32;
            simulator.restore(lane, start_of(run, global, piece.number, piece.start));
            self.block.numbers[lane] = piece.number;
            (self.block.totals[lane], self.block.agreed[lane]) = (0.0, 0);
        }
        self.block.known |= lanes;
        match simulator.reset(lanes) {
            Some(lost) if !(lost & lanes).is_empty() => self.lose(row, lost & lanes),
            Some(_) => {}
            None => self.lose_block(row),
        }
    }

    /// Notes that the env of `lanes` has panicked in a step.
    #[cold]
    fn lose(&mut self, row: usize, lanes: LaneSet) {
        for lane in lanes {
            let steps = self.age(lane, row);
            let fault = match &self.block.simulator {
                Ok(simulator) => simulator.fault(lane, steps),
                Err(_) => panicked(steps),
            };
            self.block.fail(lane, steps, fault);
        }
        if let Ok(simulator) = &mut self.block.simulator {
            // A lane that is not back fails again in its next reset.
            let _ = simulator.revive(lanes);
        }
    }

    /// Notes that the whole block has panicked, and makes it anew for the episodes to come.
    #[cold]
    fn lose_block(&mut self, row: usize) {
        self.lose(row, self.block.agreeing());
        self.block.simulator = Block::simulator(self.envs, self.chunk.run, self.chunk.header);
    }

    /// Compares lanes that have a recorded hash, or whose env says that the episode is over, or whose recording
    /// says so.
    fn look(&mut self, row: usize, lanes: LaneSet, ends: LaneSet, ended: Ended) {
        let Ok(simulator) = &mut self.block.simulator else { return };
        simulator.hash(lanes);
        for lane in lanes {
            let index = self.plan.current[lane] as usize;
            let part = &self.chunk.decoder.parts[index];
            let is_last = ends.has(lane);
            let t = if is_last { part.piece.age } else { self.age(lane, row) };
            let Ok(simulator) = &self.block.simulator else { return };
            let replayed = Replayed {
                terminated: ended.terminated.has(lane),
                truncated: ended.truncated.has(lane) || self.limit.is_some_and(|limit| t >= limit),
                hash: simulator.hashes[lane],
                total_reward: self.block.totals[lane],
                verdict: if is_last { simulator.verdict(lane) } else { Verdict::default() },
            };
            let agreed = &mut self.block.agreed[lane];
            let window = self.plan.windows[index].iter().find(|&&(age, _)| age == t);
            let mut divergence = None;
            if let Some(&(_, recorded)) = window {
                divergence = replayed.state_differs(*agreed, t, recorded);
                *agreed = t;
            }
            let divergence = divergence.or_else(|| match ending_of(part).filter(|_| is_last) {
                Some(ending) => ending.differs(*agreed, &replayed),
                None => went_on(*agreed, t, &replayed),
            });
            if let Some(divergence) = divergence {
                self.block.fail(lane, t, divergence);
            }
        }
    }

    /// Ends the lane's current episode where its recording does.
    fn conclude(&mut self, lane: usize, visit: &mut impl FnMut(Verification)) {
        let index = self.plan.current[lane];
        let Some(part) = self.chunk.decoder.parts.get(index as usize) else { return };
        self.plan.current[lane] = self.plan.next[index as usize];
        if self.block.simulator.is_ok() && !self.block.known.has(lane) {
            self.apart.push(index as usize);
        } else {
            let failure = self.block.failures.remove(&lane);
            visit(self.verification(part, failure));
        }
        self.block.forget(LaneSet::one(lane));
    }

    fn verification(&self, part: &Part, failure: Option<(u64, Divergence)>) -> Verification {
        let name = self.name(part);
        match (&self.block.simulator, failure) {
            (Err(why), _) => not_simulated(why, name, &self.chunk.run.spec),
            (Ok(_), Some((steps, divergence))) => {
                Verification { name, ok: false, steps, first_divergence: Some(divergence), note: None }
            }
            (Ok(_), None) => {
                Verification { name, ok: true, steps: part.piece.age, first_divergence: None, note: None }
            }
        }
    }

    fn name(&self, part: &Part) -> EpisodeName {
        let lane = self.chunk.header.first_lane + part.piece.lane as u32;
        EpisodeName { run: self.chunk.run.run().short(), lane, number: part.piece.number }
    }

    /// Returns the steps of the lane's current episode after row `row`.
    fn age(&self, lane: usize, row: usize) -> u64 {
        let Chunk { decoder, .. } = self.chunk;
        let Some(part) = decoder.parts.get(self.plan.current[lane] as usize) else { return 0 };
        let rows = decoder.stepped.get(part.piece.from_row..=row).unwrap_or_default();
        part.piece.from_age + rows.iter().map(|stepped| stepped >> lane & 1).sum::<u64>()
    }
}

/// Returns the recorded end of the episode of a part, if it ended there.
fn ending_of(part: &Part) -> Option<Ending> {
    let end = part.end?;
    Some(Ending {
        length: part.piece.age,
        outcome: Outcome::from_code(end.code & 15)?,
        hash: (end.code & CODE_HASH != 0).then_some(end.hash),
        total_reward: known_return(end.total_reward),
        verdict: Verdict::new(GameResult::of_code(end.code >> CODE_RESULT_SHIFT & 3), part.score),
    })
}

/// Returns the number of rows up to the one in which the part's episode reached `age`.
fn row_of(decoder: &Decoder, part: &Part, age: u64) -> usize {
    let mut left = age.saturating_sub(part.piece.from_age);
    for row in part.piece.from_row..part.piece.to_row {
        left -= decoder.stepped[row] >> part.piece.lane & 1;
        if left == 0 {
            return row + 1;
        }
    }
    part.piece.to_row
}

struct AddRewards<'a> {
    totals: &'a mut [f64; BLOCK_LANES],
    rewards: &'a [f64],
}

impl Kernel for AddRewards<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (total, reward) in self.totals.iter_mut().zip(self.rewards) {
            *total += reward;
        }
    }
}

const NONE: u32 = u32::MAX;

/// Blocks that are kept at a time: those of a run with the most lanes.
const MAX_BLOCKS: usize = rollhouse_core::limits::MAX_LANES.div_ceil(BLOCK_LANES);
