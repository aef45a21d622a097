//! Verifying recordings: their episodes are stepped again and compared.

use std::collections::VecDeque;
use std::sync::Arc;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnSpec, LaneSet, Options, Verdict};
use rollhouse_env::Ended;

use crate::check::relive::{Chunk, Relive};
use crate::check::verification::{NOT_HERE, Verification, not_simulated, ready};
use crate::code::episode::{Episode, EpisodeInfo};
use crate::code::run::RecordKind;
use crate::code::run_record::RunInfo;
use crate::play::divergence::{
    Divergence, Ending, Replayed, Value, differs, has_return, panicked, refused_call, went_on,
};
use crate::play::envs::Envs;
use crate::play::simulate::{SimulateError, Simulator};
use crate::read::load::{Assembled, Assembler, Loader};
use crate::read::read_error::ReadError;
use crate::read::replays::{Replays, info_of};

impl Replays {
    /// Verifies every episode that a listing has, front to back; calls `visit` for each, in no particular order.
    ///
    /// # Errors
    /// If a file operation fails. What is found goes to `visit`.
    pub fn verify_all<'e>(
        &self,
        envs: impl Into<Envs<'e>>,
        mut visit: impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        let (envs, aside) = (envs.into(), self.names_set_aside());
        if aside.is_empty() {
            return self.verify_chunks(envs, &mut visit);
        }
        let mut others = |found: Verification| {
            if !aside.contains(&found.name) {
                visit(found);
            }
        };
        self.verify_chunks(envs, &mut others)?;
        // Of such a name there may be one that is set aside and one that is not: the latter are taken one by one.
        let mut infos = Vec::new();
        self.for_each(|info| infos.extend(aside.contains(&info.name).then_some(info)))?;
        self.verify(&infos, envs, visit)
    }

    /// Verifies every episode that has its chunks in this folder, set aside or not.
    fn verify_chunks(&self, envs: Envs<'_>, visit: &mut impl FnMut(Verification)) -> Result<(), ReadError> {
        let mut verifier = Verifier::new(envs);
        let mut relive = Relive::new(envs);
        let mut assembler = Assembler::default();
        let mut apart = Vec::new();
        for segment in self.segments.values() {
            for extent in &segment.index.extents {
                let number = segment.index.number;
                self.each_chunk(segment, extent, &mut |run, decoder, offset, header, columns| {
                    let chunk = Chunk { run, header, decoder, columns };
                    // Of an episode whose beginning is gone only the end is here.
                    let mut visit = |found: Verification| {
                        if !self.headless.has(number, header.run, found.name.lane, found.name.number) {
                            visit(found);
                        }
                    };
                    // A chunk that does not decode further is damage that opening the folder lists.
                    if Relive::suits(&chunk) && !Relive::has_options_of_run(&chunk) {
                        let infos = crate::read::replays::infos(run, decoder, number, offset, header);
                        return apart.extend(infos.filter(|info| !self.is_headless(header, info)));
                    }
                    if Relive::suits(&chunk) {
                        let unmet = relive.chunk(&chunk, &mut visit).unwrap_or_default();
                        let steps = decoder.steps();
                        let info = |at: usize| {
                            info_of(run, (decoder, &decoder.parts[at]), number, offset, header, steps)
                        };
                        let infos = unmet.into_iter().map(info);
                        return apart.extend(infos.filter(|info| !self.is_headless(header, info)));
                    }
                    let infos = crate::read::replays::infos(run, decoder, number, offset, header);
                    let id = run.run().as_u128();
                    let done = assembler.add(id, header, decoder, columns, infos, run);
                    for episode in done.unwrap_or_default() {
                        match episode {
                            Assembled::Whole(episode) => verifier.add(episode, &mut visit),
                            Assembled::Incomplete(info) => visit(incomplete(&info, info.length)),
                            Assembled::Apart(info) => apart.push(*info),
                        }
                    }
                })?;
                self.verify_with(&mut verifier, &std::mem::take(&mut apart), visit)?;
            }
        }
        self.verify_with(&mut verifier, &self.broken_off()?, visit)?;
        verifier.finish(visit);
        Ok(())
    }

    /// Verifies the given episodes; calls `visit` for each, in no particular order.
    ///
    /// # Errors
    /// If a file operation fails. Damage goes to `visit`.
    pub fn verify<'e>(
        &self,
        infos: &[EpisodeInfo],
        envs: impl Into<Envs<'e>>,
        mut visit: impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        let mut verifier = Verifier::new(envs.into());
        self.verify_with(&mut verifier, infos, &mut visit)?;
        verifier.finish(&mut visit);
        Ok(())
    }

    fn verify_with(
        &self,
        verifier: &mut Verifier<'_>,
        infos: &[EpisodeInfo],
        visit: &mut impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        let mut loader = Loader::new(self);
        for info in infos {
            match loader.load(info) {
                Ok(episode) => verifier.add(Box::new(episode), visit),
                Err(ReadError::Incomplete { missing_steps, .. }) => visit(incomplete(info, missing_steps)),
                Err(ReadError::Malformed { .. }) => visit(incomplete(info, info.length)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A verifier with episodes that wait to be simulated, grouped by the simulator that they need.
struct Verifier<'a> {
    envs: Envs<'a>,
    groups: Vec<Group>,
}

/// Episodes of one run: with one set of options, unless their env takes others for each episode.
struct Group {
    run: Arc<RunInfo>,
    lane_options: Options,
    /// Whether an episode of the queue has other options than `lane_options`.
    varied: bool,
    /// The simulator of all queues; `None` of an env in processes of its own, which live for one queue.
    simulator: Option<Result<Box<Simulator>, SimulateError>>,
    // Boxed, because they are moved from queue to lane, and are large.
    queue: VecDeque<Box<Episode>>,
    steps: u64,
    /// Bytes of memory of the queue.
    bytes: u64,
}

/// An episode in a lane of the simulator, with data that is only read when something may have happened.
struct Slot {
    /// Steps taken up to the last look, and their return.
    step: u64,
    total_reward: f64,
    /// Age of the episode at the next recorded hash.
    next_due: u64,
    next_window: usize,
    /// The last step at which a hash agreed.
    agreed: u64,
    episode: Box<Episode>,
}

impl<'a> Verifier<'a> {
    const fn new(envs: Envs<'a>) -> Self {
        Self { envs, groups: Vec::new() }
    }

    fn add(&mut self, episode: Box<Episode>, visit: &mut impl FnMut(Verification)) {
        let run = &episode.info.run;
        if run.recorded == RecordKind::Full {
            return visit(check_whole(&episode, NOT_DETERMINISTIC));
        }
        let options = episode.info.lane_options();
        let found = self.groups.iter().position(|group| group.takes(run, &options));
        let at = found.unwrap_or_else(|| {
            if self.groups.len() >= MAX_GROUPS {
                self.groups.remove(0).run_queue(self.envs, visit);
            }
            self.groups.push(Group::new(self.envs, run.clone(), options.clone()));
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.varied |= group.lane_options != options;
        group.steps = group.steps.saturating_add(episode.info.length);
        group.bytes = group.bytes.saturating_add(episode.info.bytes_in_memory());
        group.queue.push_back(episode);
        if group.steps >= QUEUE_STEPS || group.bytes >= QUEUE_BYTES || group.queue.len() >= QUEUE_EPISODES {
            group.run_queue(self.envs, visit);
        }
        let bytes =
            |groups: &[Group]| groups.iter().fold(0, |sum: u64, group| sum.saturating_add(group.bytes));
        while bytes(&self.groups) >= ALL_QUEUES_BYTES {
            let Some(largest) = self.groups.iter_mut().max_by_key(|group| group.bytes) else { break };
            largest.run_queue(self.envs, visit);
        }
    }

    fn finish(mut self, visit: &mut impl FnMut(Verification)) {
        self.groups.iter_mut().for_each(|group| group.run_queue(self.envs, visit));
    }
}

impl Group {
    fn new(envs: Envs<'_>, run: Arc<RunInfo>, lane_options: Options) -> Self {
        let simulator = (!envs.hosts(&run)).then(|| ready(envs, &run, &lane_options, BLOCK_LANES));
        Self { run, lane_options, varied: false, simulator, queue: VecDeque::new(), steps: 0, bytes: 0 }
    }

    /// Returns whether an episode of that run with those options can be simulated with the others.
    fn takes(&self, run: &Arc<RunInfo>, options: &Options) -> bool {
        let takes_any = match &self.simulator {
            Some(Ok(simulator)) => simulator.takes_options(),
            Some(Err(_)) => false,
            None => !run.spec.options.is_empty(),
        };
        Arc::ptr_eq(&self.run, run) && (takes_any || self.lane_options == *options)
    }

    /// Simulates what is queued, 64 episodes at a time.
    fn run_queue(&mut self, envs: Envs<'_>, visit: &mut impl FnMut(Verification)) {
        (self.steps, self.bytes) = (0, 0);
        let varied = std::mem::take(&mut self.varied);
        let mut queue = std::mem::take(&mut self.queue);
        if let Some(Ok(simulator)) = &mut self.simulator {
            simulator.vary(varied);
        }
        match &mut self.simulator {
            Some(Ok(simulator)) => {
                let rest = Batch::new(&self.run, simulator).run(queue, visit);
                // Only if every lane was lost is anything left.
                rest.iter().for_each(|one| visit(failed(one, 0, "panic", Value::Nothing, Value::Nothing)));
            }
            Some(Err(why)) => queue.iter().for_each(|episode| visit(not_ready(why, episode))),
            // Each pass takes some along, so that there are at most as many as episodes.
            None => {
                while !queue.is_empty() {
                    let lanes = queue.len().min(self.run.lanes as usize).clamp(1, BLOCK_LANES);
                    queue = match ready(envs, &self.run, &self.lane_options, lanes) {
                        Ok(mut simulator) => {
                            simulator.vary(varied);
                            Batch::new(&self.run, &mut simulator).run(queue, visit)
                        }
                        Err(why) => {
                            return queue.iter().for_each(|episode| visit(not_ready(&why, episode)));
                        }
                    };
                }
            }
        }
    }
}

/// Returns the verification of an episode that is not simulated.
fn not_ready(why: &SimulateError, episode: &Episode) -> Verification {
    match why {
        // What was recorded of it is whole all the same.
        SimulateError::NotHosted { .. } if episode.steps.is_some() => check_whole(episode, NOT_HERE),
        why => not_simulated(why, episode.info.name, &episode.info.run.spec),
    }
}

/// One pass of the simulator over a queue of episodes.
struct Batch<'a> {
    simulator: &'a mut Simulator,
    obs: Vec<ColumnSpec>,
    infos: Vec<ColumnSpec>,
    limit: Option<u64>,
    slots: [Option<Box<Slot>>; BLOCK_LANES],
    busy: LaneSet,
    /// Lanes that can still be used.
    usable: LaneSet,
    /// Lanes whose episodes hold every observation: they are compared in every step.
    traced: LaneSet,
    /// Lanes whose episodes have calls.
    called: LaneSet,
    // What every step of every lane touches, side by side.
    steps: [u64; BLOCK_LANES],
    /// Age at which a lane is looked at next: a recorded hash, the end or the time limit.
    next_look: [u64; BLOCK_LANES],
    totals: [f64; BLOCK_LANES],
    /// Actions of the lane's episode, if each is one integer; else empty.
    discrete: [Vec<i64>; BLOCK_LANES],
}

impl<'a> Batch<'a> {
    fn new(run: &RunInfo, simulator: &'a mut Simulator) -> Self {
        let usable = LaneSet::first(simulator.lanes());
        Self {
            simulator,
            obs: run.spec.obs_columns(),
            infos: run.spec.info_channels.clone(),
            limit: run.max_episode_steps.map(u64::from).filter(|&limit| limit > 0),
            slots: [const { None }; BLOCK_LANES],
            busy: LaneSet::NONE,
            usable,
            traced: LaneSet::NONE,
            called: LaneSet::NONE,
            steps: [0; BLOCK_LANES],
            next_look: [0; BLOCK_LANES],
            totals: [0.0; BLOCK_LANES],
            discrete: [const { Vec::new() }; BLOCK_LANES],
        }
    }

    /// Goes through the queue. Returns what is left of it when every lane has been lost.
    fn run(
        mut self,
        mut queue: VecDeque<Box<Episode>>,
        visit: &mut impl FnMut(Verification),
    ) -> VecDeque<Box<Episode>> {
        loop {
            let took = self.fill(&mut queue, visit);
            if !self.busy.is_empty() {
                self.step(visit);
            } else if !took {
                break;
            }
        }
        queue
    }

    /// Puts waiting episodes into free lanes; returns whether there were any. Those without steps are over at once.
    fn fill(&mut self, queue: &mut VecDeque<Box<Episode>>, visit: &mut impl FnMut(Verification)) -> bool {
        let free = self.usable & !self.busy;
        if free.is_empty() {
            return false;
        }
        let mut begun = LaneSet::NONE;
        for lane in free {
            let Some(episode) = queue.pop_front() else { break };
            self.simulator.restore_of(lane, &episode.info);
            self.take(lane, episode);
            begun.insert(lane);
        }
        if begun.is_empty() {
            return false;
        }
        self.busy |= begun;
        match self.simulator.reset(begun) {
            Some(lost) => self.lose(lost & begun, visit),
            None => {
                self.lose_all(visit);
                return true;
            }
        }
        for lane in begun & self.busy {
            let Some(slot) = &self.slots[lane] else { continue };
            let empty = slot.episode.info.length == 0;
            if let Some(divergence) = self.first_obs_differs(lane, slot) {
                self.close(lane, Some(divergence), visit);
            } else if empty {
                self.close(lane, None, visit);
            }
        }
        true
    }

    /// Puts an episode into a free lane.
    fn take(&mut self, lane: usize, mut episode: Box<Episode>) {
        (self.steps[lane], self.totals[lane]) = (0, 0.0);
        self.traced.remove(lane);
        self.traced.insert_if(lane, episode.steps.is_some());
        self.called.remove(lane);
        self.called.insert_if(lane, !episode.calls.is_empty());
        if let (1, ColumnData::I64(actions)) = (self.simulator.action_elements, &mut episode.actions) {
            self.discrete[lane] = std::mem::take(actions);
        }
        let slot = Box::new(Slot::new(episode));
        self.next_look[lane] = slot.next_look(self.limit);
        self.slots[lane] = Some(slot);
    }

    fn step(&mut self, visit: &mut impl FnMut(Verification)) {
        if !(self.busy & self.called).is_empty() {
            self.call(visit);
        }
        let mut looks = self.advance();
        let stepped = self.busy;
        let Some(ended) = self.simulator.step(stepped) else { return self.lose_all(visit) };
        self.lose(ended.lost & stepped, visit);
        for (total, reward) in self.totals.iter_mut().zip(&self.simulator.rewards) {
            *total += reward;
        }
        looks |= ended.terminated | ended.truncated | self.traced;
        looks &= self.busy;
        let (due, last) = self.due_and_last(looks);
        if !(due | last).is_empty() {
            self.simulator.hash(due | last);
        }
        for lane in looks {
            let Some(mut slot) = self.slots[lane].take() else { continue };
            (slot.step, slot.total_reward) = (self.steps[lane], self.totals[lane]);
            let is_last = last.has(lane);
            let hash = (due | last).has(lane).then(|| self.simulator.hashes[lane]);
            let divergence = self.differs(lane, &mut slot, ended, hash, is_last);
            self.next_look[lane] = slot.next_look(self.limit);
            self.slots[lane] = Some(slot);
            if divergence.is_some() || is_last {
                self.close(lane, divergence, visit);
            }
        }
    }

    /// Repeats the calls that came before the next steps.
    fn call(&mut self, visit: &mut impl FnMut(Verification)) {
        for lane in self.busy & self.called {
            let step = self.steps[lane];
            let Some(slot) = &self.slots[lane] else { continue };
            match self.simulator.call(lane, slot.episode.calls_after(step)) {
                Ok(()) => {}
                Err(SimulateError::Call { method, .. }) => {
                    self.close(lane, Some(refused_call(step, method)), visit);
                }
                Err(_) => return self.lose_all(visit),
            }
        }
    }

    /// Hands the simulator every busy lane's next action; returns the lanes that have to be looked at.
    fn advance(&mut self) -> LaneSet {
        let elements = self.simulator.action_elements;
        let mut looks = LaneSet::NONE;
        for lane in self.busy {
            let step = self.steps[lane];
            if let (1, ColumnData::I64(actions)) = (elements, &mut self.simulator.actions) {
                // Decoding has checked that there are as many actions as steps.
                actions[lane] = self.discrete[lane].get(step as usize).copied().unwrap_or_default();
            } else if let Some(slot) = &self.slots[lane] {
                self.simulator.actions.copy_row(lane, &slot.episode.actions, step as usize, elements);
            }
            self.steps[lane] = step + 1;
            looks.insert_if(lane, step + 1 == self.next_look[lane]);
        }
        looks
    }

    /// Returns those of the lanes `looks` that are at a recorded hash, and those that are at their last step.
    fn due_and_last(&self, looks: LaneSet) -> (LaneSet, LaneSet) {
        let (mut due, mut last) = (LaneSet::NONE, LaneSet::NONE);
        for lane in looks {
            let Some(slot) = &self.slots[lane] else { continue };
            due.insert_if(lane, self.steps[lane] == slot.next_due);
            last.insert_if(lane, self.steps[lane] == slot.episode.info.length);
        }
        (due, last)
    }

    /// Returns the first difference of the step just taken.
    fn differs(
        &self,
        lane: usize,
        slot: &mut Slot,
        ended: Ended,
        hash: Option<u32>,
        is_last: bool,
    ) -> Option<Divergence> {
        let t = slot.step;
        if slot.episode.steps.is_some()
            && let Some(divergence) = self.step_differs(lane, slot)
        {
            return Some(divergence);
        }
        let replayed = Replayed {
            terminated: ended.terminated.has(lane),
            truncated: ended.truncated.has(lane) || self.limit.is_some_and(|limit| t >= limit),
            hash: hash.unwrap_or_default(),
            total_reward: slot.total_reward,
            verdict: if is_last { self.simulator.verdict(lane) } else { Verdict::default() },
        };
        if let Some(&(age, recorded)) = slot.episode.windows.get(slot.next_window)
            && age == t
        {
            slot.next_window += 1;
            slot.next_due = slot.episode.windows.get(slot.next_window).map_or(u64::MAX, |&(age, _)| age);
            if let Some(divergence) = replayed.state_differs(slot.agreed, t, recorded) {
                return Some(divergence);
            }
            slot.agreed = t;
        }
        if !is_last {
            return went_on(slot.agreed, t, &replayed);
        }
        let ending = Ending {
            length: t,
            outcome: slot.episode.info.outcome,
            hash: slot.episode.end_hash,
            total_reward: slot.episode.info.total_reward,
            verdict: slot.episode.info.verdict(),
        };
        ending.differs(slot.agreed, &replayed)
    }

    fn first_obs_differs(&self, lane: usize, slot: &Slot) -> Option<Divergence> {
        let steps = slot.episode.steps.as_ref()?;
        let columns = self.obs.iter().zip(&steps.first_obs).zip(&self.simulator.obs);
        columns
            .into_iter()
            .find_map(|((spec, recorded), replayed)| row_differs(0, spec, (recorded, 0), (replayed, lane)))
    }

    /// Returns the first difference in reward, observation and infos of the step just taken, for trace recordings.
    fn step_differs(&self, lane: usize, slot: &Slot) -> Option<Divergence> {
        let steps = slot.episode.steps.as_ref()?;
        let (t, row) = (slot.step, slot.step as usize - 1);
        let columns = self.obs.iter().zip(&steps.obs).zip(&self.simulator.obs);
        let infos = self.infos.iter().zip(&steps.infos).zip(&self.simulator.infos);
        for ((spec, recorded), replayed) in columns.chain(infos) {
            if let Some(divergence) = row_differs(t, spec, (recorded, row), (replayed, lane)) {
                return Some(divergence);
            }
        }
        let (recorded, replayed) = (steps.rewards.get(row).copied()?, self.simulator.rewards[lane]);
        (recorded.to_bits() != replayed.to_bits())
            .then(|| differs(t, t, "reward", Value::Number(recorded), Value::Number(replayed)))
    }

    fn close(&mut self, lane: usize, divergence: Option<Divergence>, visit: &mut impl FnMut(Verification)) {
        self.busy.remove(lane);
        let Some(slot) = self.slots[lane].take() else { return };
        visit(Verification {
            name: slot.episode.info.name,
            ok: divergence.is_none(),
            steps: self.steps[lane],
            first_divergence: divergence,
            note: None,
        });
    }

    /// Ends an episode whose lane was lost with its process, or failed in it: what it would have shown is not known.
    fn close_lost(&mut self, lane: usize, why: &str, visit: &mut impl FnMut(Verification)) {
        self.busy.remove(lane);
        let Some(slot) = self.slots[lane].take() else { return };
        let steps = self.steps[lane].saturating_sub(1);
        let place = match self.steps[lane] {
            0 => "its reset".to_owned(),
            step => format!("step {step}"),
        };
        let note = Some(format!("not recomputed to its end: {place} was lost: {why}"));
        visit(Verification { name: slot.episode.info.name, ok: false, steps, first_divergence: None, note });
    }

    fn lose(&mut self, lanes: LaneSet, visit: &mut impl FnMut(Verification)) {
        if lanes.is_empty() {
            return;
        }
        for lane in lanes {
            let step = self.steps[lane];
            if self.simulator.without_action().has(lane) {
                // The step that it was to be counts as taken.
                self.close(lane, Some(self.simulator.fault(lane, step.saturating_sub(1))), visit);
                continue;
            }
            match self.simulator.why_lost(lane) {
                Some(why) => self.close_lost(lane, &why, visit),
                None => self.close(lane, Some(panicked(step)), visit),
            }
        }
        let unasked = lanes & self.simulator.without_action();
        self.usable &= !lanes | unasked | self.simulator.revive(lanes & !unasked);
    }

    fn lose_all(&mut self, visit: &mut impl FnMut(Verification)) {
        self.usable = LaneSet::NONE;
        let busy = self.busy;
        for lane in busy {
            let step = self.steps[lane];
            let panicked = Value::Text("the env panicked in a lane of this block".into());
            self.close(lane, Some(differs(step, step, "panic", Value::Nothing, panicked)), visit);
        }
    }
}

impl Slot {
    fn new(episode: Box<Episode>) -> Self {
        let next_due = episode.windows.first().map_or(u64::MAX, |&(age, _)| age);
        Self { step: 0, next_due, total_reward: 0.0, next_window: 0, agreed: 0, episode }
    }

    /// Returns the next age at which something may differ: a recorded hash, the end, or the time limit, which an
    /// episode of another program may have passed.
    fn next_look(&self, limit: Option<u64>) -> u64 {
        let length = self.episode.info.length;
        let limit = limit.filter(|&limit| limit > self.step).unwrap_or(u64::MAX);
        self.next_due.min(length).min(limit)
    }
}

fn row_differs(
    t: u64,
    spec: &ColumnSpec,
    recorded: (&ColumnData, usize),
    replayed: (&ColumnData, usize),
) -> Option<Divergence> {
    let elements = spec.elements();
    let at = recorded.0.first_difference(recorded.1, replayed.0, replayed.1, elements)?;
    let number = |side: (&ColumnData, usize)| Value::Number(side.0.number(side.1 * elements + at));
    Some(differs(t, t, &spec.element_name(at), number(recorded), number(replayed)))
}

fn failed(episode: &Episode, step: u64, field: &str, recorded: Value, replayed: Value) -> Verification {
    Verification {
        name: episode.info.name,
        ok: false,
        steps: 0,
        first_divergence: Some(differs(step, step, field, recorded, replayed)),
        note: None,
    }
}

fn incomplete(info: &EpisodeInfo, missing_steps: u64) -> Verification {
    let missing = Value::Text(format!("the first {missing_steps} steps cannot be read"));
    Verification {
        name: info.name,
        ok: false,
        steps: 0,
        first_divergence: Some(differs(1, missing_steps.max(1), "recording", missing, Value::Nothing)),
        note: None,
    }
}

/// Checks an episode that cannot be stepped again, as `note` says: only whether it is complete.
fn check_whole(episode: &Episode, note: &str) -> Verification {
    let (length, spec) = (episode.info.length, &episode.info.run.spec);
    let whole = episode.steps.as_ref().is_some_and(|steps| {
        let columns = spec.obs_columns();
        // A column may have rows without an element.
        let first = steps.first_obs.iter().zip(&columns).all(|(row, column)| row.len() == column.elements());
        steps.rewards.len() as u64 == length && first
    });
    let sum = episode.steps.iter().flat_map(|steps| &steps.rewards).fold(0.0, |sum, reward| sum + reward);
    let recorded = episode.info.total_reward.filter(|_| has_return(episode.info.outcome, episode.end_hash));
    let divergence = if !whole {
        let missing = Value::Text("steps are missing".into());
        Some(differs(0, length, "recording", missing, Value::Nothing))
    } else {
        recorded
            .filter(|recorded: &f64| recorded.to_bits() != f64::to_bits(sum))
            .map(|recorded| differs(1, length.max(1), "return", Value::Number(recorded), Value::Number(sum)))
    };
    Verification {
        name: episode.info.name,
        ok: divergence.is_none(),
        steps: length,
        first_divergence: divergence,
        note: Some(format!("not recomputed: {note}; complete and with intact checksums")),
    }
}

const NOT_DETERMINISTIC: &str = "the env is not deterministic";
/// Simulators that are kept at a time.
const MAX_GROUPS: usize = 32;
/// Steps of a group that are collected before they are simulated together.
const QUEUE_STEPS: u64 = 1 << 19;
/// Bytes of memory of a group's episodes that are collected before they are simulated together.
const QUEUE_BYTES: u64 = 64 << 20;
/// The same of all groups.
const ALL_QUEUES_BYTES: u64 = 256 << 20;
/// Episodes of a group that are collected before they are simulated together.
const QUEUE_EPISODES: usize = 8192;
