//! The encoder turns a raw buffer into a chunk's payload; it runs on the writer thread.

use std::borrow::Cow;

use rollhouse_core::LaneSet;
use rollhouse_core::limits::HASH_WINDOW_STEPS;

use crate::code::agent_sums::AgentSums;
use crate::code::box_actions::BoxActions;
use crate::code::buffer::Buffer;
use crate::code::buffer_pass::{Ended, Happened, Windows};
use crate::code::calls;
use crate::code::codec::{Malformed, gather_bits, put_varint, zigzag};
use crate::code::coding::{begins, column, ends, stepped, windows};
use crate::code::events::CODE_RESULT_SHIFT;
use crate::code::extent::EndFacts;
use crate::code::lanes::{BlockState, last_starts, put_table};
use crate::code::layout::{ActionCoding, Layout};
use crate::code::own_options;
use crate::code::packed_column::{self, KeptRows};
use crate::code::repeated;
use crate::code::run::Sampling;
use crate::code::versions;
use crate::code::walk::key;
use crate::limits::EPISODE_EXPANDED_BYTES;

/// An encoder of the buffers of one run. It keeps its scratch memory from chunk to chunk.
#[derive(Debug)]
pub(crate) struct Encoder {
    layout: Layout,
    sampling: Sampling,
    /// Whether a lane is not stepped in the row after its episode's end.
    skips_after_end: bool,
    columns: Vec<Vec<u8>>,
    /// Step columns.
    noted: Vec<Vec<u8>>,
    /// Info columns that are shorter as runs; the others are empty.
    repeated_infos: Vec<Vec<u8>>,
    /// Observation columns, then info columns, that are packed; the others are empty.
    packed: Vec<Vec<u8>>,
    /// Chunks whose actions are written as they are, because the ones before got no shorter.
    plain_actions: u32,
    happened: Happened,
    /// Sums of rewards, of an env of several agents.
    agents: Option<AgentSums>,
    /// Flags of the ends that are stored.
    flags: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(layout: Layout, sampling: Sampling, autoreset: &str) -> Self {
        let raw = matches!(layout.actions, ActionCoding::Raw { .. });
        let by_row = raw || layout.recorded.has_observations() || !layout.unnoted.is_empty();
        Self {
            skips_after_end: stepped::skips_after_end(autoreset),
            columns: vec![Vec::new(); column::FIXED + layout.obs_columns.len() + layout.info_columns.len()],
            noted: vec![Vec::new(); layout.unnoted.len()],
            repeated_infos: vec![Vec::new(); layout.info_columns.len()],
            packed: vec![Vec::new(); layout.packings.len()],
            happened: Happened::new(by_row, layout.recorded.has_observations()),
            plain_actions: 0,
            agents: layout.agents.map(AgentSums::new),
            flags: Vec::new(),
            sampling,
            layout,
        }
    }

    /// Appends the chunk's payload to `out` and moves `state` behind it; calls `ended` for every kept episode that
    /// ended in it. Returns false, with nothing appended, if no episode of the chunk is kept.
    ///
    /// # Errors
    /// If the buffer contradicts itself, as no block recorder's does.
    pub(crate) fn encode(
        &mut self,
        buffer: &mut Buffer,
        state: &mut BlockState,
        out: &mut Vec<u8>,
        ended: impl FnMut(EndFacts),
    ) -> Result<bool, Malformed> {
        let before = state.clone();
        self.agents.iter_mut().for_each(AgentSums::begin_chunk);
        self.happened.take(buffer, self.sampling, state, ended)?;
        let present = self.happened.present;
        if present == 0 {
            self.park(buffer, &before, state, LaneSet::first(state.lanes).bits());
            return Ok(false);
        }
        self.columns.iter_mut().for_each(Vec::clear);
        put_table(&mut self.columns[column::LANES], &before, present, buffer.opened_ms, self.layout.starts);
        self.put_stepped(buffer, &before, state, present);
        self.put_actions(buffer, present);
        self.put_ends(present);
        self.put_windows();
        self.put_begins(&before, present);
        self.put_steps(buffer);
        self.put_agents(buffer);
        self.put_packed(buffer);
        let repeats = self.may_repeat(&before, buffer.rows);
        self.shorten_infos(repeats);
        self.shorten_actions(buffer.lanes.count, repeats);
        versions::put(&mut self.columns[column::VERSIONS], &buffer.between.versions, buffer.rows);
        calls::put(&mut self.columns[column::CALLS], &mut self.happened.calls, &buffer.between.calls);
        own_options::put(&mut self.columns[column::OPTIONS], &mut buffer.between.options, present);
        self.put_noted(buffer, repeats);
        let id = |place| column::id(place, self.layout.obs_columns.len());
        let columns = self.columns.iter().enumerate().map(|(place, bytes)| (id(place), bytes));
        let noted = self.noted.iter().enumerate().map(|(index, bytes)| (column::noted_id(index), bytes));
        let infos = self.repeated_infos.iter().enumerate();
        let infos = infos.map(|(index, bytes)| (column::repeated_info_id(index), bytes));
        let packed = self.packed.iter().enumerate();
        let obs_columns = self.layout.obs_columns.len();
        let packed = packed.map(|(index, bytes)| (column::packed_id(index, obs_columns), bytes));
        let all = columns.chain(noted).chain(infos).chain(packed);
        let filled = || all.clone().filter(|(_, bytes)| !bytes.is_empty());
        put_varint(out, filled().count() as u64);
        for (id, bytes) in filled() {
            put_varint(out, id);
            put_varint(out, bytes.len() as u64);
        }
        for (_, bytes) in filled() {
            out.extend_from_slice(bytes);
        }
        Ok(true)
    }

    /// Returns the returns of the agents in the kept episodes that ended in the buffer that was coded last, in the order in
    /// which they ended; empty of an env of one.
    pub(crate) fn agent_returns(&self) -> &[f64] {
        self.agents.as_ref().map_or(&[], AgentSums::ended)
    }

    /// Returns the lanes with anything of a kept episode in the buffer that was coded last.
    pub(crate) const fn present(&self) -> u64 {
        self.happened.present
    }

    /// Returns the lanes with a kept episode that began before the buffer that was coded last.
    pub(crate) const fn under_way(&self) -> u64 {
        self.happened.under_way
    }

    /// Returns whether an episode in the chunk that was coded last may have other options than its run.
    pub(crate) fn has_options(&self) -> bool {
        self.happened.present != 0 && !self.columns[column::OPTIONS].is_empty()
    }

    /// Returns the number of lane-steps of the lanes that are present in the chunk that was coded last.
    pub(crate) fn stepped(&self) -> u64 {
        let present = self.happened.present;
        self.happened.stepped.iter().map(|row| u64::from((row & present).count_ones())).sum()
    }

    /// Writes which lanes stepped: by rule with exceptions, or as masks if that is shorter.
    fn put_stepped(&mut self, buffer: &Buffer, before: &BlockState, state: &mut BlockState, present: u64) {
        let exceptions = self.park(buffer, before, state, present);
        let bytes = present.count_ones().div_ceil(8) as usize;
        let out = &mut self.columns[column::STEPPED];
        if exceptions.len() * 9 > self.happened.stepped.len() * bytes {
            out.push(stepped::MASKS);
            for row in &self.happened.stepped {
                out.extend_from_slice(&gather_bits(*row, present).to_le_bytes()[..bytes]);
            }
            return;
        }
        let mut head = if self.skips_after_end { stepped::SKIPS_AFTER_END } else { stepped::ALWAYS };
        let ended = if self.skips_after_end { before.ended & present } else { 0 };
        let parked = before.parked & present;
        head |= if ended != 0 { stepped::HAS_ENDED } else { 0 };
        head |= if parked != 0 { stepped::HAS_PARKED } else { 0 };
        out.push(head);
        for mask in [ended, parked].into_iter().filter(|&mask| mask != 0) {
            out.extend_from_slice(&mask.to_le_bytes());
        }
        put_varint(out, exceptions.len() as u64);
        let mut last = 0;
        for (row, change) in exceptions {
            put_varint(out, row as u64 - last);
            last = row as u64;
            out.extend_from_slice(&change.to_le_bytes());
        }
    }

    /// Finds the rows in which other lanes stepped than the rule says, and by which lanes they differ. Leaves in
    /// `state` which lanes are parked after the last row.
    fn park(
        &self,
        buffer: &Buffer,
        before: &BlockState,
        state: &mut BlockState,
        present: u64,
    ) -> Vec<(usize, u64)> {
        let mut rule = stepped::Rule::new(self.skips_after_end, before.ended, before.parked);
        let (happened, all) = (&self.happened, LaneSet::first(before.lanes).bits());
        if rule == buffer.rule {
            // As ever, unless a buffer was lost: the block's recorder has followed the rule already.
            state.parked = happened.rule.parked & all;
            let exceptions = happened.exceptions.iter().map(|&(row, change)| (row, change & present));
            return exceptions.filter(|(_, change)| *change != 0).collect();
        }
        let mut exceptions = Vec::new();
        let mut next = 0;
        for (row, &actual) in happened.stepped.iter().enumerate() {
            while let Some(key) = happened.ends.keys.get(next).filter(|&&key| key >> 6 <= row as u32) {
                rule.ended |= 1 << (key & 63);
                next += 1;
            }
            let change = (rule.expected() ^ actual) & all;
            if change & present != 0 {
                exceptions.push((row, change & present));
            }
            rule.after_row(change);
        }
        state.parked = rule.parked & all;
        exceptions
    }

    fn put_actions(&mut self, buffer: &Buffer, present: u64) {
        let out = &mut self.columns[column::ACTIONS];
        let bytes = present.count_ones().div_ceil(8) as usize;
        if present == u64::MAX {
            let from = out.len();
            out.resize(from + buffer.planes.len() * size_of::<u64>(), 0);
            for (to, word) in out[from..].as_chunks_mut().0.iter_mut().zip(&buffer.planes) {
                *to = word.to_le_bytes();
            }
            return;
        }
        let all = present == buffer.lanes.all().bits();
        for word in &buffer.planes {
            let word = if all { *word } else { gather_bits(*word, present) };
            out.extend_from_slice(&word.to_le_bytes()[..bytes]);
        }
    }

    fn put_ends(&mut self, present: u64) {
        let out = &mut self.columns[column::ENDS];
        let all = &self.happened.ends;
        let count = put_keys(out, &all.keys, present);
        if count == 0 {
            return;
        }
        self.flags.clear();
        self.flags.extend(all.each.iter().map(|end| end.flags));
        if count < all.each.len() {
            let mut keys = all.keys.iter();
            self.flags.retain(|_| keys.next().is_some_and(|key| is_present(*key, present)));
        }
        let (any, every) = self.flags.iter().fold((0, !0), |(any, every), &f| (any | f, every & f));
        if any == every {
            out.extend_from_slice(&[ends::UNIFORM, any]);
        } else {
            out.push(ends::EACH);
            out.extend_from_slice(&self.flags);
        }
        let kept = |end: &&Ended| end.flags & ends::OUTCOME_BITS != ends::NOT_KEPT;
        if any & (ends::EXTRA | 2 << ends::RETURN_SHIFT) != 0 {
            let mut scores = all.scores.iter().peekable();
            for (index, end) in all.each.iter().enumerate() {
                let score = scores_until(&mut scores, index);
                if kept(&end) {
                    put_return(out, end);
                    if ends::has_extra(&end.event) {
                        out.push(end.event.code >> CODE_RESULT_SHIFT & 3 | u8::from(score.is_some()) << 2);
                        out.extend(score.map(f64::to_le_bytes).into_iter().flatten());
                    }
                }
            }
        }
        let hashes = self.flags.iter().filter(|&flags| flags & ends::HASH != 0).count();
        let from = out.len();
        out.resize(from + hashes * size_of::<u32>(), 0);
        let hashed = all.each.iter().filter(|end| end.flags & ends::HASH != 0);
        for (to, end) in out[from..].as_chunks_mut().0.iter_mut().zip(hashed) {
            *to = end.event.hash.to_le_bytes();
        }
    }

    /// Writes the window hashes by lane and age; their places follow from the ages unless the engine left some out.
    fn put_windows(&mut self) {
        let Windows { each, due, at_end } = &mut self.happened.windows;
        let out = &mut self.columns[column::WINDOWS];
        let found = each.len() as u64;
        if found == 0 && *due == 0 {
            return;
        }
        each.sort_unstable_by_key(|window| (window.lane, window.pos));
        let aligned = each.iter().all(|w| w.age > 0 && w.age % HASH_WINDOW_STEPS == 0);
        let distinct = each.is_sorted_by(|a, b| (a.lane, a.pos) < (b.lane, b.pos));
        if aligned && distinct && found == *due {
            out.push(windows::ALL);
        } else if aligned && distinct && found == *due - *at_end {
            out.push(windows::BEFORE_END);
        } else {
            out.push(windows::LISTED);
            put_varint(out, found);
            for window in &*each {
                put_varint(out, u64::from(key(window.pos, window.lane)));
            }
        }
        for window in &*each {
            out.extend_from_slice(&window.hash.to_le_bytes());
        }
    }

    fn put_begins(&mut self, before: &BlockState, present: u64) {
        let out = &mut self.columns[column::BEGINS];
        let all = &self.happened.begins;
        let count = put_keys(out, &all.keys, present);
        if count == 0 {
            return;
        }
        if let Some(drawn) = all.all_drew {
            let head = zigzag(i64::from(drawn)) << begins::FLAG_BITS;
            if head < 0x80 {
                out.resize(out.len() + count, head as u8);
            } else {
                (0..count).for_each(|_| put_varint(out, head));
            }
            return;
        }
        let mut known = last_starts(before);
        for (key, start) in all.keys.iter().zip(&all.starts) {
            if !is_present(*key, present) {
                continue;
            }
            let known = &mut known[(key & 63) as usize];
            let words = zigzag(start.words.wrapping_sub(known.1) as i64);
            let seed = if start.seed != known.0 { begins::NEW_SEED } else { 0 };
            let flags = seed | if start.half.is_some() { begins::HALF } else { 0 };
            put_varint(out, words.min(begins::WIDE) << begins::FLAG_BITS | flags);
            if words >= begins::WIDE {
                out.extend_from_slice(&start.words.to_le_bytes());
            }
            if start.seed != known.0 {
                out.extend_from_slice(&start.seed.to_le_bytes());
            }
            if let Some(half) = start.half {
                out.extend_from_slice(&half.to_le_bytes());
            }
            *known = (start.seed, start.words);
        }
    }

    /// Writes the returns of each agent in the episodes that ended, by the rewards in the columns of observations.
    fn put_agents(&mut self, buffer: &Buffer) {
        if let Some(sums) = &mut self.agents {
            let mut out = std::mem::take(&mut self.columns[column::AGENTS]);
            let rewards = &self.columns[column::obs(sums.column())];
            sums.chunk(buffer.lanes, &self.happened, rewards, &mut out);
            self.columns[column::AGENTS] = out;
        }
    }

    /// Returns whether values may be coded as runs: a reader takes so much of an episode that is coded so, and no more.
    fn may_repeat(&self, before: &BlockState, rows: u32) -> bool {
        let action = match self.layout.actions {
            ActionCoding::Planes { .. } => size_of::<i64>(),
            ActionCoding::Raw { bytes } => bytes,
        };
        let step = action + self.layout.noted_bytes() + self.layout.info_columns.iter().sum::<usize>();
        let oldest = before.table.iter().map(|lane| lane.age).max().unwrap_or(0);
        oldest.saturating_add(rows.into()).saturating_mul(step as u64) <= EPISODE_EXPANDED_BYTES as u64
    }

    /// Writes the step columns of the lanes that were stepped in kept episodes.
    fn put_noted(&mut self, buffer: &Buffer, repeats: bool) {
        self.noted.iter_mut().for_each(Vec::clear);
        let columns = self.noted.iter_mut().zip(&self.layout.unnoted).zip(&buffer.between.noted);
        for ((out, unnoted), noted) in columns {
            noted.put(&self.happened.kept_rows, (buffer.lanes.count, unnoted.len()), repeats, out);
        }
    }

    /// Codes info columns as runs where that is shorter, if they may be.
    fn shorten_infos(&mut self, repeats: bool) {
        self.repeated_infos.iter_mut().for_each(Vec::clear);
        if repeats && self.layout.recorded.has_observations() {
            let plain = &mut self.columns[column::obs(self.layout.obs_columns.len())..];
            let columns = plain.iter_mut().zip(&self.layout.info_columns).zip(&mut self.repeated_infos);
            for ((plain, &bytes), out) in columns {
                if repeated::put_shorter(plain, &self.happened.kept_rows, bytes, out) {
                    plain.clear();
                }
            }
        }
    }

    /// Codes the actions of a Box as runs, if they may be, or packed, where that is shorter.
    fn shorten_actions(&mut self, lanes: usize, repeats: bool) {
        let ActionCoding::Raw { bytes } = self.layout.actions else { return };
        self.plain_actions = self.plain_actions.saturating_sub(1);
        if self.plain_actions > 0 {
            return;
        }
        let (plain, coded) = self.columns.split_at_mut(column::REPEATED_ACTIONS);
        let [runs, packed, ..] = coded else { return };
        let Happened { kept_rows, ends, .. } = &self.happened;
        let plain = &mut plain[column::ACTIONS];
        let actions = BoxActions { plain, row_bytes: bytes, kept: kept_rows, ends: &ends.keys, lanes };
        if actions.shorten(repeats, runs, packed) {
            plain.clear();
        } else {
            self.plain_actions = PLAIN_CHUNKS;
        }
    }

    /// Writes the packed columns.
    fn put_packed(&mut self, buffer: &Buffer) {
        self.packed.iter_mut().for_each(Vec::clear);
        if buffer.packed.is_empty() {
            return;
        }
        let begins = &self.happened.begins;
        let kept = KeptRows::new(&self.happened.kept_rows, &begins.keys, &begins.kept);
        let packings = self.layout.packings.iter().zip(&mut self.packed);
        let columns = packings.filter_map(|(packing, out)| packing.as_ref().map(|packing| (packing, out)));
        for ((packing, out), rows) in columns.zip(&buffer.packed) {
            packed_column::put(packing, rows, &kept, out);
        }
    }

    /// Writes the raw columns: rows of the lanes that were stepped in kept episodes.
    fn put_steps(&mut self, buffer: &Buffer) {
        let layout = &self.layout;
        let full = layout.recorded.has_observations();
        let mut shape: Vec<(usize, usize)> = Vec::new();
        if let ActionCoding::Raw { bytes } = layout.actions {
            shape.push((column::ACTIONS, bytes));
        }
        if full {
            let raw = |(index, _): &(usize, _)| layout.packings[*index].is_none();
            let all = layout.obs_columns.iter().chain(&layout.info_columns).enumerate();
            let (infos_from, all) = (column::obs(layout.obs_columns.len()), all.filter(raw));
            shape.extend(all.map(|(index, &bytes)| (column::obs(index), bytes)));
            let at = shape.iter().position(|(place, _)| *place >= infos_from).unwrap_or(shape.len());
            shape.insert(at, (column::REWARDS, size_of::<f64>()));
        }
        let mut raw = &buffer.raw[..];
        for &kept in &self.happened.kept_rows {
            for &(index, bytes) in &shape {
                let (lanes, rest) = raw.split_at(bytes * buffer.lanes.count);
                raw = rest;
                if kept == buffer.lanes.all().bits() {
                    self.columns[index].extend_from_slice(lanes);
                } else {
                    for lane in LaneSet::of_bits(kept) {
                        self.columns[index].extend_from_slice(&lanes[lane * bytes..][..bytes]);
                    }
                }
            }
        }
        if full {
            let rows = buffer.first_obs.chunks_exact(layout.obs_bytes.max(1));
            for (row, _) in rows.zip(&self.happened.begins.kept).filter(|(_, kept)| **kept) {
                self.columns[column::FIRST_OBS].extend_from_slice(row);
            }
        }
    }
}

/// Chunks of which one is tried, where actions do not repeat: to try costs the writer as much as all else.
const PLAIN_CHUNKS: u32 = 32;

#[inline]
const fn is_present(key: u32, present: u64) -> bool {
    present >> (key & 63) & 1 == 1
}

/// Appends the keys of lanes in `present`: how many they are, then each one's difference from the one before. Returns
/// how many they are; nothing is appended if that is 0.
fn put_keys(out: &mut Vec<u8>, keys: &[u32], present: u64) -> usize {
    let mut keys = Cow::Borrowed(keys);
    if present != u64::MAX && !keys.iter().all(|key| is_present(*key, present)) {
        keys.to_mut().retain(|key| is_present(*key, present));
    }
    if keys.is_empty() {
        return 0;
    }
    put_varint(out, keys.len() as u64);
    let mut last = 0;
    let (groups, rest) = keys.as_chunks::<KEYS_AT_ONCE>();
    for group in groups {
        let mut differences = *group;
        differences[0] -= last;
        for (difference, before) in differences[1..].iter_mut().zip(group) {
            *difference -= before;
        }
        last = group[KEYS_AT_ONCE - 1];
        if differences.iter().fold(0, |any, difference| any | difference) < 0x80 {
            out.extend_from_slice(&differences.map(|difference| difference as u8));
        } else {
            differences.iter().for_each(|&difference| put_varint(out, u64::from(difference)));
        }
    }
    for &key in rest {
        put_varint(out, u64::from(key - last));
        last = key;
    }
    keys.len()
}

/// Keys whose differences are taken together, and mostly are a byte each.
const KEYS_AT_ONCE: usize = 16;

fn scores_until<'a>(
    scores: &mut std::iter::Peekable<impl Iterator<Item = &'a (u32, f64)>>,
    index: usize,
) -> Option<f64> {
    while scores.next_if(|(at, _)| (*at as usize) < index).is_some() {}
    scores.next_if(|(at, _)| *at as usize == index).map(|&(_, score)| score)
}

fn put_return(out: &mut Vec<u8>, end: &Ended) {
    let total_reward = end.event.total_reward;
    match end.flags >> ends::RETURN_SHIFT & 3 {
        ends::RETURN_INTEGER => put_varint(out, zigzag(total_reward as i64)),
        ends::RETURN_FLOAT => out.extend_from_slice(&total_reward.to_le_bytes()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rollhouse_core::limits::BLOCK_LANES;
    use rollhouse_core::{ColumnRef, RecordRule, RunId, Start};
    use rollhouse_env::Registry;

    use super::*;
    use crate::code::chunk::Decoder;
    use crate::code::events::Finish;
    use crate::code::record::{Header, Kind};
    use crate::code::run::RecordKind;
    use crate::write::block::{BlockRecorder, Row};
    use crate::write::handover::{Doorbell, RunShared};

    const TERMINATED: Finish =
        Finish { terminated: true, truncated: false, length: 1, total_reward: 1.0, hash: 7 };

    /// Finishes an episode; in half of the lanes the return is not the length.
    fn terminated(lane: usize) -> Finish {
        Finish { total_reward: (lane % 2) as f64, ..TERMINATED }
    }

    proptest! {
        #[test]
        fn rows_are_found_again_whichever_lanes_stepped_and_exceptions_are_those_of_the_written_rule(
            skips_after_end: bool,
            lanes in prop_oneof![Just(BLOCK_LANES), 1..=BLOCK_LANES],
            rows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0u8..8), 1..60),
        ) {
            let entry = Registry::builtin().get("CartPole-v1").unwrap();
            let layout = Layout::new(entry.spec(), RecordKind::ActionLog, true);
            let run = RunShared::new(layout.clone(), lanes, skips_after_end, Arc::new(Doorbell::default()));
            let mut recorder = BlockRecorder::new(run.clone(), 0, lanes);
            let all = LaneSet::first(lanes).bits();
            let autoreset = if skips_after_end { "NextStep" } else { "SameStep" };
            let sampling = Sampling::new(RunId::from_u128(1), RecordRule::All);
            let mut encoder = Encoder::new(layout, sampling, autoreset);
            let mut state = BlockState::new(lanes);
            let mut told = Vec::new();
            let (mut rested, mut open) = (0, all);
            recorder.follow(4);
            recorder.begin_each(LaneSet::of_bits(all), &[Start::seeded(1); BLOCK_LANES], &[]);
            for (stepped, ended, others, kind) in rows {
                // Mostly as the rule has it.
                let begun = if kind == 1 { 0 } else { rested & !open };
                let stepped = !begun & if kind == 0 { stepped } else { !rested };
                let actions = ColumnRef::I64(&[1; BLOCK_LANES][..lanes]);
                let (step, begin) = (LaneSet::of_bits(stepped), LaneSet::of_bits(begun));
                recorder.row(Row { stepped: step, begun: begin, actions, obs: &[], rewards: &[], infos: &[], now_ms: 1 });
                told.push(stepped & all);
                let ended = ended & open;
                rested = if skips_after_end { ended } else { 0 };
                recorder.finish_each(LaneSet::of_bits(ended), terminated);
                let later = if kind == 1 { others & all } else { 0 };
                recorder.begin_following(LaneSet::of_bits(later), &[]);
                open = open & !ended | begun | later;
                if kind == 2 {
                    recorder.flush();
                    let mut found = Vec::new();
                    while let Some(mut buffer) = run.take_full() {
                        let before = state.clone();
                        encoder.encode(&mut buffer, &mut state, &mut Vec::new(), |_| ()).unwrap();
                        found.extend_from_slice(&encoder.happened.stepped);
                        let exceptions = encoder.park(&buffer, &before, &mut state, all);
                        let parked = state.parked;
                        buffer.rule = stepped::Rule::new(!skips_after_end, !0, !0);
                        prop_assert_eq!(encoder.park(&buffer, &before, &mut state, all), exceptions);
                        prop_assert_eq!(state.parked, parked);
                    }
                    prop_assert_eq!(&found, &told);
                    told.clear();
                }
            }
        }

        #[test]
        fn readers_count_as_the_writer_does_whenever_episodes_begin_and_end(
            skips_after_end: bool,
            starts: bool,
            rows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0u8..8), 1..60),
        ) {
            let entry = Registry::builtin().get("CartPole-v1").unwrap();
            let layout = Layout::new(entry.spec(), RecordKind::ActionLog, starts);
            let run = RunShared::new(layout.clone(), BLOCK_LANES, skips_after_end, Arc::new(Doorbell::default()));
            let mut recorder = BlockRecorder::new(run.clone(), 0, BLOCK_LANES);
            let sampling = Sampling::new(RunId::from_u128(1), RecordRule::All);
            let autoreset = if skips_after_end { "NextStep" } else { "SameStep" };
            let mut encoder = Encoder::new(layout.clone(), sampling, autoreset);
            let mut decoder = Decoder::new(layout, sampling);
            let mut state = BlockState::new(BLOCK_LANES);
            let (mut rested, mut open) = (0, 0);
            for (stepped, ended, begun, kind) in rows {
                let stepped = if kind == 0 { stepped } else { !rested };
                let actions = ColumnRef::I64(&[1; BLOCK_LANES]);
                let (stepped, none) = (LaneSet::of_bits(stepped), LaneSet::NONE);
                recorder.row(Row { stepped, begun: none, actions, obs: &[], rewards: &[], infos: &[], now_ms: 1 });
                let ended = ended & open;
                recorder.finish_each(LaneSet::of_bits(ended), terminated);
                rested = if skips_after_end { ended } else { 0 };
                open = open & !ended | begun;
                // Twice: what the first begins ends as the second does, in the row in which another may have ended.
                recorder.begin_each(LaneSet::of_bits(begun), &[Start::seeded(1); BLOCK_LANES], &[]);
                recorder.begin_each(LaneSet::of_bits(begun & ended), &[Start::seeded(2); BLOCK_LANES], &[]);
                if kind == 1 {
                    recorder.flush();
                }
                while let Some(mut buffer) = run.take_full() {
                    let (mut payload, mut written) = (Vec::new(), Vec::new());
                    if !encoder.encode(&mut buffer, &mut state, &mut payload, |end| written.push(end)).unwrap() {
                        continue;
                    }
                    let (lanes, rows, ms) = (BLOCK_LANES as u16, buffer.rows, buffer.opened_ms);
                    decoder.decode(&Header { lanes, rows, ms, ..Header::new(Kind::Chunk) }, &payload).unwrap();
                    let mut read: Vec<EndFacts> = decoder.end_facts(0).collect();
                    written.sort_by_key(|end| (end.lane, end.number));
                    read.sort_by_key(|end| (end.lane, end.number));
                    prop_assert_eq!(read, written);
                }
            }
        }
    }
}
