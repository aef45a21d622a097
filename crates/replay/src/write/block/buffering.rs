//! What a block's recorder puts into its buffers.

use rollhouse_core::{ColumnRef, GameResult, Interruption, LaneSet, Outcome, Start};

use super::{BlockRecorder, CHUNK_TARGET, End, has_state};
use crate::code::buffer::{BEGIN_ESTIMATE, ROW_ESTIMATE};
use crate::code::codec::append_le;
use crate::code::events::{BeginEvents, CODE_HASH, CODE_RESULT_SHIFT, CODE_SCORE, EndEvent};
use crate::code::layout::ActionCoding;
use crate::code::packed::Packing;
use crate::code::planes::{LowestBits, PlaneBits, SHIFTS};

impl BlockRecorder {
    pub(super) fn push_end(&mut self, lane: usize, end: End) {
        let End { outcome, total_reward, mut hash, result, score } = end;
        if self.said.waiting.lanes.has(lane) {
            hash = self.said.waiting.forget(lane).unwrap_or(hash);
        }
        let mut code = outcome.code() | result.code() << CODE_RESULT_SHIFT;
        if has_state(outcome) {
            code |= CODE_HASH;
        }
        if score.is_some() {
            code |= CODE_SCORE;
        }
        let (pos, lane) = (self.buffer.rows as u16, lane as u8);
        self.buffer.events.push_end(EndEvent { total_reward, hash, pos, lane, code }, score);
        self.buffer.estimate += 2 * self.estimates.end;
        self.rule.ended |= 1 << lane;
    }

    /// Writes the waiting calls of `lanes` before the row that comes next.
    #[cold]
    pub(super) fn push_calls(&mut self, lanes: LaneSet) {
        for (lane, _, call) in self.said.waiting.calls.extract_if(.., |(lane, ..)| lanes.has(*lane)) {
            self.buffer.push_call(lane, call);
        }
        self.said.waiting.lanes &= !lanes;
    }

    #[cold]
    pub(super) fn abandon(&mut self, lanes: LaneSet) {
        let outcome = Outcome::Interrupted(Interruption::Cancelled);
        for lane in lanes {
            self.push_end(
                lane,
                End { outcome, total_reward: 0.0, hash: 0, result: GameResult::None, score: None },
            );
        }
    }

    /// Opens the episodes of `lanes`; returns whether their starts are kept.
    #[inline]
    pub(super) fn open_lanes(&mut self, lanes: LaneSet) -> bool {
        if !(lanes & self.open).is_empty() {
            self.abandon(lanes & self.open);
        }
        self.open |= lanes;
        if !self.starts.recorded {
            return false;
        }
        // Begins without rows between them would otherwise grow the buffer without end.
        if self.buffer.estimate >= 2 * CHUNK_TARGET && !self.wants_observations() {
            self.next_buffer(self.buffer.opened_ms);
        }
        true
    }

    pub(super) fn begin_lanes(
        &mut self,
        lanes: LaneSet,
        start: impl Fn(usize) -> Start,
        first_obs: &[ColumnRef<'_>],
    ) {
        if !self.open_lanes(lanes) {
            return;
        }
        for lane in lanes {
            let start = start(lane);
            let follows = self.starts.follow(lane, start).filter(|_| self.told.has(lane));
            self.push_begins(LaneSet::one(lane), follows.unwrap_or_default(), follows.is_none());
            if follows.is_none() {
                self.buffer.full_starts.push(start);
            }
        }
        self.starts.begun |= lanes;
        self.told |= lanes;
        if self.wants_observations() {
            lanes.into_iter().for_each(|lane| self.push_first_obs(lane, first_obs));
        }
    }

    /// Notes a row in which other lanes step or begin than the rules say.
    #[cold]
    pub(super) fn push_row(&mut self, stepped: LaneSet, begun: LaneSet, by_rule: LaneSet) {
        assert!((begun & !self.starts.begun).is_empty(), "lanes that have begun before");
        let buffer = &mut self.buffer;
        buffer.events.push_row(buffer.rows as usize, stepped.bits(), begun.bits());
        buffer.estimate += ROW_ESTIMATE + (begun & !by_rule).len() as u32 * BEGIN_ESTIMATE;
    }

    pub(super) fn push_begins(&mut self, lanes: LaneSet, drawn: u32, full: bool) {
        let buffer = &mut self.buffer;
        let pos = buffer.rows as u16;
        buffer.events.push_begins(BeginEvents { lanes: lanes.bits(), drawn, pos, full });
        buffer.estimate += lanes.len() as u32 * BEGIN_ESTIMATE;
    }

    /// Appends the actions that [`BlockRecorder::row`] does not code itself.
    #[inline(never)]
    pub(super) fn push_actions(&mut self, actions: ColumnRef<'_>, stepped: LaneSet) {
        match (self.shared.layout.actions, actions) {
            (ActionCoding::Planes { start, planes }, ColumnRef::I64(actions)) => {
                assert_eq!(actions.len(), self.lanes.count, "actions of a row");
                for plane in 0..planes {
                    let bits = match actions.try_into() {
                        Ok(actions) if plane == 0 => {
                            self.actions.target.run(LowestBits { actions, start, shifts: &SHIFTS })
                        }
                        _ => self.actions.target.run(PlaneBits { actions, start, plane }),
                    };
                    self.buffer.planes.push(bits & stepped.bits());
                }
            }
            (ActionCoding::Raw { bytes }, actions) => self.push_raw(actions, bytes),
            _ => panic!("discrete actions are int64"),
        }
    }

    #[inline(never)]
    pub(super) fn push_raw(&mut self, actions: ColumnRef<'_>, bytes: usize) {
        let raw = &mut self.buffer.raw;
        let before = raw.len();
        append_le(raw, actions);
        assert_eq!(raw.len() - before, bytes * self.lanes.count, "bytes of a row of actions");
    }

    pub(super) fn push_first_obs(&mut self, lane: usize, first_obs: &[ColumnRef<'_>]) {
        let (layout, buffer) = (&self.shared.layout, &mut self.buffer);
        assert_eq!(first_obs.len(), layout.obs_columns.len(), "observation columns");
        let before = buffer.first_obs.len();
        let columns = || first_obs.iter().zip(&layout.packings);
        for (column, _) in columns().filter(|(_, packing)| packing.is_none()) {
            let elements = column.len() / self.lanes.count;
            append_le(&mut buffer.first_obs, column.slice(lane * elements, (lane + 1) * elements));
        }
        let packed = columns().filter(|(_, packing)| packing.is_some()).map(|(column, _)| column);
        self.packers.begin_episode(lane, buffer.rows, packed, &mut buffer.packed);
        assert_eq!(buffer.first_obs.len() - before, layout.obs_bytes, "bytes of a first observation");
        buffer.estimate += layout.estimate(layout.obs_bytes);
    }

    #[inline(never)]
    pub(super) fn push_step(
        &mut self,
        stepped: LaneSet,
        obs: &[ColumnRef<'_>],
        rewards: &[f64],
        infos: &[ColumnRef<'_>],
    ) {
        let (layout, buffer) = (&self.shared.layout, &mut self.buffer);
        let before = buffer.raw.len();
        assert_eq!(obs.len(), layout.obs_columns.len(), "observation columns");
        assert_eq!(infos.len(), layout.info_columns.len(), "info columns");
        let (of_obs, of_infos) = layout.packings.split_at(obs.len());
        let columns = |packed: bool| {
            let are = move |(_, packing): &(_, &Option<Packing>)| packing.is_some() == packed;
            let obs = obs.iter().zip(of_obs).filter(are).map(|(column, _)| column);
            (obs, infos.iter().zip(of_infos).filter(are).map(|(column, _)| column))
        };
        let (raw_obs, raw_infos) = columns(false);
        let rewards = [ColumnRef::F64(rewards)];
        raw_obs.chain(&rewards).chain(raw_infos).for_each(|column| append_le(&mut buffer.raw, *column));
        let bytes = buffer.raw.len() - before;
        assert_eq!(bytes, layout.step_bytes() * self.lanes.count, "bytes of a recorded row");
        let (packed_obs, packed_infos) = columns(true);
        let packed = packed_obs.chain(packed_infos);
        if self.packers.step(stepped, buffer.rows - 1, packed, &mut buffer.packed) {
            buffer.estimate = buffer.estimate.max(CHUNK_TARGET);
        }
    }

    /// Exchanges the buffer before a row at `now_ms`, when it is full or old.
    #[cold]
    #[inline(never)]
    pub(super) fn turn(&mut self, now_ms: u64) {
        let buffer = &mut self.buffer;
        let is_full = buffer.estimate >= CHUNK_TARGET;
        if buffer.rows == 0 && !is_full {
            buffer.opened_ms = now_ms;
        } else if is_full || !self.packers.may_wait(buffer.rows, now_ms.wrapping_sub(buffer.opened_ms)) {
            self.next_buffer(now_ms);
        }
    }

    /// Exchanges the buffer if it has anything, and opens the next at `now_ms`.
    #[cold]
    #[inline(never)]
    pub(super) fn next_buffer(&mut self, now_ms: u64) {
        if !self.buffer.is_empty() {
            self.shared.exchange(&mut self.buffer);
            self.packers.begin_chunk();
            self.buffer.fetch_first();
            self.buffer.lanes = self.lanes;
            self.set_rules();
        }
        self.buffer.opened_ms = now_ms;
    }

    /// Tells the writer the rules that hold from the buffer's first row on.
    pub(super) fn set_rules(&mut self) {
        self.buffer.rule = self.rule;
        self.buffer.drawn = self.starts.drawn;
        self.buffer.begins_by_rule = self.begins_by_rule;
        if self.said.version != 0 && self.buffer.between.versions.is_empty() {
            self.buffer.change_version(self.said.version);
        }
        self.said.noted.begin(&mut self.buffer.between.noted);
        self.buffer.between.options.clear();
        self.buffer.between.options.extend_from_slice(self.said.options.all());
    }
}
