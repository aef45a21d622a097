//! The recorder of one block: the stepping thread appends rows and events to a buffer with it, and does nothing else.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Call, ColumnRef, GameResult, Interruption, LaneSet, Options, Outcome, Start};
use rollhouse_env::Target;

use crate::code::buffer::{BEGIN_ESTIMATE, BlockLanes, Buffer, END_ESTIMATE, ROW_ESTIMATE, WINDOW_ESTIMATE};
use crate::code::codec::append_le;
use crate::code::coding::stepped::Rule;
use crate::code::events::{BeginEvents, CODE_HASH, CODE_RESULT_SHIFT, CODE_SCORE, EndEvent, Finish};
use crate::code::frame::Frame;
use crate::code::frame_chunk::FramePlace;
use crate::code::layout::{ActionCoding, Layout};
use crate::code::noted::NotedNow;
use crate::code::own_options::{LanesOptions, OwnOptions};
use crate::code::packed::Packing;
use crate::code::planes::{LowestBits, PlaneBits, SHIFTS};
use crate::limits::{CHUNK_AGE_MS, CHUNK_FRAMES_TARGET_BYTES, CHUNK_ROWS, CHUNK_TARGET_BYTES};
use crate::write::handover::RunShared;
use crate::write::packers::Packers;

/// Records one block of lanes; owned by the thread that steps it.
///
/// No method allocates, locks, reads a clock or makes a system call while the block's buffer has room. A full
/// buffer (about every 8 KiB of recording) is exchanged for an empty one; when none is free, because the disk
/// cannot follow, the exchange waits, and the time waited is counted. Dropping it hands over what it has.
///
/// The fields that most rows touch fill one cache line, beside that of the buffer: with thousands of lanes, each line
/// comes from a farther cache every time.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BlockRecorder {
    all: LaneSet,
    /// Lanes whose episode has begun and not ended.
    open: LaneSet,
    /// Rule that says which lanes step in the next row.
    rule: Rule,
    /// Lanes whose last start is in `starts`.
    told: LaneSet,
    estimates: Estimates,
    /// Whether an episode begins by rule in the row in which a lane rests.
    begins_by_rule: bool,
    observes: bool,
    /// Whether the writer's clock stands for the wall clock of rows.
    driven: bool,
    actions: ActionBits,
    buffer: Buffer,
    shared: Arc<RunShared>,
    lanes: BlockLanes,
    starts: Starts,
    said: SaidNow,
    packers: Packers,
}

/// What those who choose the actions have said of the rows from now on.
#[derive(Debug)]
struct SaidNow {
    /// Version of the policy; 0 if nobody has said it.
    version: u64,
    noted: NotedNow,
    waiting: WaitingCalls,
    options: LanesOptions,
}

/// Calls that changed lanes since their last steps. Each is written with the step that follows it, so that they lie in one
/// chunk; one that no step follows is part of no episode.
#[derive(Debug, Default)]
struct WaitingCalls {
    lanes: LaneSet,
    /// Lane of each call, and the hash of its state before.
    calls: Vec<(usize, u32, Call)>,
}

/// Estimated bytes on disk of what a block records.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Estimates {
    row: u32,
    /// Bytes of an end, with those of the begin that by rule follows it.
    end: u32,
}

/// The way in which a row's actions become bits.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ActionBits {
    /// Whether a row keeps nothing but the lowest bit of each action of a whole block.
    only_lowest: bool,
    /// Whether the least action is odd.
    odd: bool,
    target: Target,
}

/// The starts of a block's episodes, as far as the recorder follows them.
#[derive(Debug)]
struct Starts {
    /// Whether starts are recorded.
    recorded: bool,
    /// Lanes that have begun before, whose last starts the writer knows.
    begun: LaneSet,
    /// Words that every reset draws.
    drawn: u32,
    /// Seed and words of the last start of each lane that is told.
    last: Box<[(u64, u64); BLOCK_LANES]>,
}

const _: () = assert!(std::mem::offset_of!(BlockRecorder, buffer) == 64);

/// One batch step of a block.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Lanes that took their action.
    pub stepped: LaneSet,
    /// Lanes that began an episode instead of stepping. They have begun before, and their starts follow from the last
    /// ones: see [`BlockRecorder::follow`].
    pub begun: LaneSet,
    /// One action per lane of the block, in the action space's own column; those of lanes that did not step
    /// may be anything.
    pub actions: ColumnRef<'a>,
    /// Observation columns after the step; a lane that ended has its terminal observation here. Only trace and full
    /// recordings read them; else the slice may be empty.
    pub obs: &'a [ColumnRef<'a>],
    /// One reward per lane. Only trace and full recordings read them.
    pub rewards: &'a [f64],
    /// Info columns. Only trace and full recordings read them.
    pub infos: &'a [ColumnRef<'a>],
    /// Wall clock, milliseconds since 1970, read once per batch.
    pub now_ms: u64,
}

/// The end of an episode, whatever ended it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// Outcome of the episode.
    pub outcome: Outcome,
    /// Sum of the episode's rewards, added in the order in which they came.
    pub total_reward: f64,
    /// Hash of the last state. It is not recorded for episodes whose env failed: `crashed`, `hung`, `node_lost`.
    pub hash: u32,
    /// Result of a game, if the env knows who won.
    pub result: GameResult,
    /// The env's own score, if it has one.
    pub score: Option<f64>,
}

impl BlockRecorder {
    pub(crate) fn new(shared: Arc<RunShared>, first_lane: u32, lanes: usize) -> Self {
        let lanes = BlockLanes { first: first_lane, count: lanes };
        let rule = Rule::new(shared.skips_after_end, 0, 0);
        let mut buffer = shared.first_buffer();
        (buffer.lanes, buffer.rule) = (lanes, rule);
        let layout = &shared.layout;
        let noted = NotedNow::new(&layout.unnoted, lanes.count);
        noted.begin(&mut buffer.between.noted);
        let row = layout.estimate(layout.row_bytes(lanes.count)).max(LEAST_ROW_ESTIMATE as u32);
        Self {
            all: lanes.all(),
            open: LaneSet::NONE,
            rule,
            told: LaneSet::NONE,
            estimates: Estimates { row, end: END_ESTIMATE },
            begins_by_rule: false,
            observes: layout.recorded.has_observations(),
            driven: shared.doorbell.driven_ms().is_some(),
            actions: ActionBits::new(layout, lanes.count),
            buffer,
            lanes,
            starts: Starts::new(layout.starts),
            said: SaidNow {
                version: 0,
                noted,
                waiting: WaitingCalls::default(),
                options: LanesOptions::default(),
            },
            packers: Packers::new(layout, lanes.count),
            shared,
        }
    }

    /// Returns whether the recorder reads observations, rewards and infos; where it does not, they may be left empty.
    #[inline]
    pub const fn wants_observations(&self) -> bool {
        self.observes
    }

    /// Says that every reset draws that many words from its lane's generator, and that nothing else draws any. The
    /// start of an episode then follows from the start of the one before, if nobody seeds the generator and it has no
    /// half buffered. Call this before the first row.
    pub fn follow(&mut self, words: u32) {
        self.starts.drawn = words;
        if self.starts.recorded && self.rule.rests_after_end() == 1 {
            self.begins_by_rule = true;
            self.estimates.end = END_ESTIMATE + BEGIN_ESTIMATE;
        }
        self.set_rules();
    }

    /// Begins the lane's next episode: its first recorded row is the next one in which the lane is stepped. `first_obs`
    /// are the block's observation columns and are read by trace and full recordings only.
    ///
    /// An episode that is still open in that lane is ended as `cancelled`, without return and hash.
    ///
    /// # Panics
    /// If `lane` is not one of the block's.
    #[inline]
    pub fn begin(&mut self, lane: usize, start: Start, first_obs: &[ColumnRef<'_>]) {
        assert!(lane < self.lanes.count, "lane {lane} of a block of {}", self.lanes.count);
        self.begin_lanes(LaneSet::one(lane), |_| start, first_obs);
    }

    /// Begins an episode in each lane of `lanes`, as [`BlockRecorder::begin`] does. The start of a lane stands at its
    /// place in `starts`.
    ///
    /// # Panics
    /// If one of `lanes` is not one of the block's.
    #[inline]
    pub fn begin_each(&mut self, lanes: LaneSet, starts: &[Start; BLOCK_LANES], first_obs: &[ColumnRef<'_>]) {
        assert!((lanes & !self.all).is_empty(), "lanes of a block of {}", self.lanes.count);
        self.begin_lanes(lanes, |lane| starts[lane], first_obs);
    }

    /// Begins an episode in each lane of `lanes`, whose starts follow from their last ones: see
    /// [`BlockRecorder::follow`]. For lanes that begin in a row, [`Row::begun`] says the same and costs less.
    ///
    /// # Panics
    /// If one of `lanes` is not one of the block's, or has not begun before.
    pub fn begin_following(&mut self, lanes: LaneSet, first_obs: &[ColumnRef<'_>]) {
        assert!((lanes & !self.starts.begun).is_empty(), "lanes that have begun before");
        if self.open_lanes(lanes) {
            self.push_begins(lanes, self.starts.drawn, false);
            // Where they start is not known here any more.
            self.told &= !lanes;
            if self.wants_observations() {
                lanes.into_iter().for_each(|lane| self.push_first_obs(lane, first_obs));
            }
        }
    }

    /// Gives the lane's next episode that number, and those after it the numbers that follow: for lanes that go on from
    /// another recording. If the recorder has anything in its buffer, this hands it over, and may wait as any
    /// hand-over.
    ///
    /// # Panics
    /// If `lane` is not one of the block's, or its episode is open.
    pub fn number(&mut self, lane: usize, number: u64) {
        assert!(lane < self.lanes.count, "lane {lane} of a block of {}", self.lanes.count);
        assert!(!self.open.has(lane), "an open episode has its number");
        self.flush();
        self.buffer.between.numbers.retain(|(of, _)| usize::from(*of) != lane);
        self.buffer.between.numbers.push((lane as u8, number));
    }

    /// Says which version of the policy chooses the actions of the rows from the next one on. It costs a comparison if
    /// the version is as before, and may allocate if not.
    #[inline]
    pub fn policy_version(&mut self, version: u64) {
        if version != self.said.version {
            self.said.version = version;
            self.buffer.change_version(version);
        }
    }

    /// Says what the run's step columns have in the rows from the next one on: one row per lane of the block of each
    /// column. Before the first call nobody has noted anything. A column that is as it was costs a comparison; the first
    /// calls may allocate.
    ///
    /// # Panics
    /// If a column has another type or length than the run's.
    pub fn note(&mut self, columns: &[ColumnRef<'_>]) {
        let buffer = &mut self.buffer;
        buffer.estimate += self.said.noted.note(columns, buffer.rows, &mut buffer.between.noted) as u32;
    }

    /// Says which options the lane has from its episode with that number on, which begins next; they may be distributions.
    /// Without a call a lane has those of the run's header. It costs a comparison where they are these.
    ///
    /// # Panics
    /// If `lane` is not one of the block's.
    pub fn options(&mut self, lane: usize, number: u64, options: &Options) {
        assert!(lane < self.lanes.count, "lane {lane} of a block of {}", self.lanes.count);
        let base = self.shared.options(self.lanes.in_run(lane));
        let difference = (base != Some(options)).then(|| match base {
            Some(base) => options.difference(base),
            None => options.clone(),
        });
        if let Some(own) = self.said.options.give(lane as u8, number, difference) {
            self.buffer.push_options(own);
        }
    }

    /// Returns the options of lanes that are others than the run's.
    pub(crate) fn own_options(&self) -> &[OwnOptions] {
        self.said.options.all()
    }

    /// Records a call that changed the lane between two steps; the lane's state had the hash `before`. Does nothing in a lane
    /// whose episode has not begun. If the episode ends before its next step, it ends in the state that it had before.
    ///
    /// # Panics
    /// If `lane` is not one of the block's.
    pub fn call(&mut self, lane: usize, before: u32, call: Call) {
        assert!(lane < self.lanes.count, "lane {lane} of a block of {}", self.lanes.count);
        if self.open.has(lane) {
            self.said.waiting.lanes.insert(lane);
            self.said.waiting.calls.push((lane, before, call));
        }
    }

    /// Records one batch step. Call [`BlockRecorder::window`] and [`BlockRecorder::end`] for what happened in
    /// it before the next row.
    ///
    /// # Panics
    /// If a column has another type or length than the run's spec says, or one of the lanes that began has not begun
    /// before, has an open episode or stepped.
    #[inline]
    pub fn row(&mut self, row: Row<'_>) {
        // Taken apart, so that a row need not stand in memory to be recorded.
        let Row { stepped, begun, actions, obs, rewards, infos, mut now_ms } = row;
        if self.driven {
            now_ms = self.shared.doorbell.driven_ms().unwrap_or(now_ms);
        }
        if self.buffer.estimate >= CHUNK_TARGET || now_ms.wrapping_sub(self.buffer.opened_ms) >= CHUNK_AGE_MS
        {
            self.turn(now_ms);
        }
        let stepped = stepped & self.all;
        assert!((begun & (self.open | stepped)).is_empty(), "lanes that begin have no episode");
        if !(stepped & self.said.waiting.lanes).is_empty() {
            self.push_calls(stepped);
        }
        let other = (LaneSet::of_bits(self.rule.expected()) ^ stepped) & self.all;
        let by_rule = if self.begins_by_rule { LaneSet::of_bits(self.rule.skipped()) } else { LaneSet::NONE };
        if !(other | by_rule ^ begun).is_empty() {
            self.push_row(stepped, begun, by_rule);
        }
        let buffer = &mut self.buffer;
        self.rule.after_row(other.bits());
        self.open |= begun;
        // Where they start is not known here any more.
        self.told &= !begun;
        buffer.fetch_ahead();
        buffer.rows += 1;
        buffer.estimate += self.estimates.row;
        match actions {
            ColumnRef::I64(actions) if self.actions.only_lowest => {
                let actions = actions.try_into().expect("actions of a row");
                buffer.planes.push(self.actions.lowest(actions) & stepped.bits());
            }
            _ => self.push_actions(actions, stepped),
        }
        if self.observes {
            begun.into_iter().for_each(|lane| self.push_first_obs(lane, obs));
            self.push_step(stepped, obs, rewards, infos);
        }
    }

    /// Records the hash of the lane's state when its age has reached a multiple of the hash window. Call this after
    /// [`BlockRecorder::row`].
    #[inline]
    pub fn window(&mut self, lane: usize, hash: u32) {
        debug_assert!(lane < self.lanes.count);
        let buffer = &mut self.buffer;
        buffer.events.push_window(buffer.rows as usize, lane, hash);
        buffer.estimate += WINDOW_ESTIMATE;
    }

    /// Ends the lane's episode: after [`BlockRecorder::row`], or between rows for interruptions. Does nothing in a lane
    /// whose episode has not begun.
    #[inline]
    pub fn end(&mut self, lane: usize, end: End) {
        debug_assert!(lane < self.lanes.count);
        if !self.open.has(lane) {
            return;
        }
        self.open.remove(lane);
        self.push_end(lane, end);
    }

    /// Ends the episode of each lane of `lanes`, as [`BlockRecorder::end`] does; `finish` says how it ended.
    ///
    /// # Panics
    /// If the episode of one of `lanes` has not begun.
    #[inline]
    pub fn finish_each(&mut self, lanes: LaneSet, mut finish: impl FnMut(usize) -> Finish) {
        assert!((lanes & !self.open).is_empty(), "episodes that have begun");
        self.open &= !lanes;
        self.rule.ended |= lanes.bits();
        let buffer = &mut self.buffer;
        let (pos, before) = (buffer.rows as usize, buffer.events.len());
        for lane in lanes {
            buffer.events.push_finish(pos, lane, finish(lane));
        }
        // An end of two words takes about twice as many bytes.
        buffer.estimate += (buffer.events.len() - before) as u32 * self.estimates.end;
    }

    /// Records a picture of the lane as it is now: after [`BlockRecorder::row`] and before [`BlockRecorder::end`], or,
    /// if `is_first`, after its episode began. The picture is left out, and counted, where more come than the disk can
    /// follow. Recordings that do not keep observations have no pictures.
    ///
    /// # Panics
    /// If `lane` is not one of the block's.
    pub fn frame(&mut self, lane: usize, is_first: bool, frame: Frame) {
        assert!(lane < self.lanes.count, "lane {lane} of a block of {}", self.lanes.count);
        if !self.observes || !self.open.has(lane) {
            return;
        }
        let place = FramePlace { pos: self.buffer.rows as u16, lane: lane as u8, is_first };
        if self.shared.has_too_many_frames() || !self.buffer.frames.push(place, frame) {
            return self.shared.doorbell.lose_frame();
        }
        if self.buffer.frames.bytes() >= CHUNK_FRAMES_TARGET_BYTES {
            self.buffer.estimate = self.buffer.estimate.max(CHUNK_TARGET);
        }
    }

    /// Hands over what the buffer has, so that readers see it soon. Call it when stepping pauses: otherwise only the
    /// next row closes a chunk. May wait as any hand-over.
    pub fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.next_buffer(self.buffer.opened_ms);
        }
    }

    /// Hands over what may not wait any longer once stepping has paused for so long: everything, but for a chunk with packed
    /// columns in which no episode has ended, which stays open until it has paused for [`PACKED_AGE_MS`](crate::limits::PACKED_AGE_MS). Returns whether
    /// something stays. May wait as any hand-over.
    pub fn hand_over(&mut self, paused: Duration) -> bool {
        let paused_ms = u64::try_from(paused.as_millis()).unwrap_or(u64::MAX);
        let waits = self.packers.may_wait(self.buffer.rows, paused_ms);
        if waits && !self.buffer.is_empty() && !self.buffer.events.has_ends() {
            return true;
        }
        if !self.buffer.is_empty() {
            self.flush();
            self.shared.doorbell.ring();
        }
        false
    }

    fn push_end(&mut self, lane: usize, end: End) {
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
    fn push_calls(&mut self, lanes: LaneSet) {
        for (lane, _, call) in self.said.waiting.calls.extract_if(.., |(lane, ..)| lanes.has(*lane)) {
            self.buffer.push_call(lane, call);
        }
        self.said.waiting.lanes &= !lanes;
    }

    #[cold]
    fn abandon(&mut self, lanes: LaneSet) {
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
    fn open_lanes(&mut self, lanes: LaneSet) -> bool {
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

    fn begin_lanes(&mut self, lanes: LaneSet, start: impl Fn(usize) -> Start, first_obs: &[ColumnRef<'_>]) {
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
    fn push_row(&mut self, stepped: LaneSet, begun: LaneSet, by_rule: LaneSet) {
        assert!((begun & !self.starts.begun).is_empty(), "lanes that have begun before");
        let buffer = &mut self.buffer;
        buffer.events.push_row(buffer.rows as usize, stepped.bits(), begun.bits());
        buffer.estimate += ROW_ESTIMATE + (begun & !by_rule).len() as u32 * BEGIN_ESTIMATE;
    }

    fn push_begins(&mut self, lanes: LaneSet, drawn: u32, full: bool) {
        let buffer = &mut self.buffer;
        let pos = buffer.rows as u16;
        buffer.events.push_begins(BeginEvents { lanes: lanes.bits(), drawn, pos, full });
        buffer.estimate += lanes.len() as u32 * BEGIN_ESTIMATE;
    }

    /// Appends the actions that [`BlockRecorder::row`] does not code itself.
    #[inline(never)]
    fn push_actions(&mut self, actions: ColumnRef<'_>, stepped: LaneSet) {
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
    fn push_raw(&mut self, actions: ColumnRef<'_>, bytes: usize) {
        let raw = &mut self.buffer.raw;
        let before = raw.len();
        append_le(raw, actions);
        assert_eq!(raw.len() - before, bytes * self.lanes.count, "bytes of a row of actions");
    }

    fn push_first_obs(&mut self, lane: usize, first_obs: &[ColumnRef<'_>]) {
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
    fn push_step(
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
    fn turn(&mut self, now_ms: u64) {
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
    fn next_buffer(&mut self, now_ms: u64) {
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
    fn set_rules(&mut self) {
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

impl ActionBits {
    fn new(layout: &Layout, lanes: usize) -> Self {
        Self {
            only_lowest: lanes == BLOCK_LANES && layout.actions.planes() == 1,
            odd: matches!(layout.actions, ActionCoding::Planes { start, .. } if start & 1 == 1),
            target: Target::best(),
        }
    }

    /// Returns the lowest bit of each action, counted from the least one.
    #[inline]
    fn lowest(self, actions: &[i64; BLOCK_LANES]) -> u64 {
        self.target.run(LowestBits { actions, start: i64::from(self.odd), shifts: &SHIFTS })
    }
}

impl WaitingCalls {
    /// Forgets the calls of a lane; returns the hash of its state before the first of them.
    #[cold]
    fn forget(&mut self, lane: usize) -> Option<u32> {
        let first = self.calls.iter().find(|(of, ..)| *of == lane).map(|&(_, before, _)| before);
        self.calls.retain(|(of, ..)| *of != lane);
        self.lanes.remove(lane);
        first
    }
}

impl Starts {
    fn new(recorded: bool) -> Self {
        Self { recorded, begun: LaneSet::NONE, drawn: 0, last: Box::new([(0, 0); BLOCK_LANES]) }
    }

    /// Notes the start of a lane. Returns the words that were drawn since the last one, if it follows from that.
    #[inline]
    fn follow(&mut self, lane: usize, start: Start) -> Option<u32> {
        let (seed, words) = std::mem::replace(&mut self.last[lane], (start.seed, start.words));
        let drawn = u32::try_from(start.words.wrapping_sub(words)).ok();
        drawn.filter(|_| seed == start.seed && start.half.is_none())
    }
}

impl Drop for BlockRecorder {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            self.shared.hand_over_last(&mut self.buffer);
        }
        self.shared.release();
    }
}

const CHUNK_TARGET: u32 = CHUNK_TARGET_BYTES as u32;
/// Bytes a row counts at least, so that a chunk of one lane stays within its rows.
const LEAST_ROW_ESTIMATE: usize = CHUNK_TARGET_BYTES / CHUNK_ROWS;

/// Returns whether the env still has a state to hash after an episode with that outcome.
pub(crate) const fn has_state(outcome: Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::Interrupted(Interruption::Crashed | Interruption::Hung | Interruption::NodeLost)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_env::Registry;

    use rollhouse_core::{RecordRule, RunId};

    use crate::code::encode::Encoder;
    use crate::code::lanes::BlockState;
    use crate::code::run::{RecordKind, Sampling};
    use crate::write::handover::Doorbell;

    const TERMINATED: Finish =
        Finish { terminated: true, truncated: false, length: 1, total_reward: 1.0, hash: 7 };

    fn recorder(skips_after_end: bool) -> BlockRecorder {
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        let layout = Layout::new(entry.spec(), RecordKind::ActionLog, true);
        BlockRecorder::new(
            RunShared::new(layout, BLOCK_LANES, skips_after_end, Arc::new(Doorbell::default())),
            0,
            BLOCK_LANES,
        )
    }

    fn started(seed: u64) -> impl Fn(usize) -> Start {
        move |lane| Start {
            seed: seed % 3,
            words: seed % 7 * lane as u64,
            half: seed.is_multiple_of(11).then_some(5),
        }
    }

    /// The result that a writer makes of the buffers of a recorder.
    struct Written {
        encoder: Encoder,
        state: BlockState,
        bytes: Vec<u8>,
    }

    impl Written {
        fn of(recorder: &BlockRecorder) -> Self {
            let sampling = Sampling::new(RunId::from_u128(1), RecordRule::All);
            let autoreset = if recorder.shared.skips_after_end { "NextStep" } else { "SameStep" };
            let encoder = Encoder::new(recorder.shared.layout.clone(), sampling, autoreset);
            Self { encoder, state: BlockState::new(BLOCK_LANES), bytes: Vec::new() }
        }

        fn take(&mut self, recorder: &mut BlockRecorder) {
            assert!(recorder.shared.take_full().is_none(), "all of it is in the recorder's own buffer");
            self.encoder.encode(&mut recorder.buffer, &mut self.state, &mut self.bytes, |_| ()).unwrap();
            recorder.buffer.clear();
            recorder.set_rules();
        }
    }

    proptest! {
        #[test]
        fn lanes_that_begin_and_end_together_are_written_as_single_ones(
            steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 1..40),
        ) {
            let (mut together, mut apart) = (recorder(true), recorder(true));
            let mut written = [Written::of(&together), Written::of(&apart)];
            for (begun, terminated, truncated, seed) in steps {
                let start = started(seed);
                let [begun, terminated, truncated] = [begun, terminated, truncated].map(LaneSet::of_bits);
                together.begin_each(begun, &std::array::from_fn(&start), &[]);
                // Together, abandoned episodes end before the first begins; a buffer's order within a lane counts.
                (begun & apart.open).into_iter().for_each(|lane| apart.abandon(LaneSet::one(lane)));
                apart.open &= !begun;
                begun.into_iter().for_each(|lane| apart.begin(lane, start(lane), &[]));
                let rewards: [f64; BLOCK_LANES] = std::array::from_fn(|lane| lane as f64 - 20.0);
                let hashes: [u32; BLOCK_LANES] = std::array::from_fn(|lane| seed as u32 ^ lane as u32);
                let over = (terminated | truncated) & together.open;
                together.finish_each(over, |lane| {
                    let (terminated, truncated) = (terminated.has(lane), truncated.has(lane));
                    Finish { terminated, truncated, length: 0, total_reward: rewards[lane], hash: hashes[lane] }
                });
                for lane in terminated | truncated {
                    let outcome = Outcome::Finished { terminated: terminated.has(lane), truncated: truncated.has(lane) };
                    let (total_reward, hash) = (rewards[lane], hashes[lane]);
                    apart.end(lane, End { outcome, total_reward, hash, result: GameResult::None, score: None });
                }
                prop_assert_eq!(together.open, apart.open);
                written[0].take(&mut together);
                written[1].take(&mut apart);
            }
            prop_assert_eq!(&written[0].bytes, &written[1].bytes);
        }

        #[test]
        fn lanes_whose_starts_follow_are_written_as_those_whose_starts_are_told(
            skips_after_end: bool,
            drawn in 0u32..5,
            rows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0u8..4), 1..60),
        ) {
            let (mut told, mut following) = (recorder(skips_after_end), recorder(skips_after_end));
            following.follow(drawn);
            let mut starts: [Start; BLOCK_LANES] = std::array::from_fn(|lane| Start::seeded(lane as u64 % 3));
            let (mut begun, mut over) = (LaneSet::NONE, LaneSet::NONE);
            let mut written = [Written::of(&told), Written::of(&following)];
            let draw = |starts: &mut [Start; BLOCK_LANES], lanes| {
                LaneSet::into_iter(lanes).for_each(|lane| starts[lane].words += u64::from(drawn));
            };
            for (row, (lanes, ended, asked, kind)) in rows.into_iter().enumerate() {
                let [lanes, ended, asked] = [lanes, ended, asked].map(LaneSet::of_bits);
                // Between rows, seldom; else in them, mostly as the rule has it.
                let lanes = if begun.is_empty() || kind == 0 { lanes } else { LaneSet::NONE };
                draw(&mut starts, lanes & begun);
                told.begin_each(lanes, &starts, &[]);
                let follow = lanes & begun & !asked;
                following.begin_following(follow, &[]);
                following.begin_each(lanes & !follow, &starts, &[]);
                begun |= lanes;
                let in_row = begun & !told.open & if kind == 1 { asked } else { over };
                draw(&mut starts, in_row);
                let stepped = !in_row & if kind == 2 { !ended } else { LaneSet::ALL };
                let actions = ColumnRef::I64(&[1; BLOCK_LANES]);
                let shown = Row { stepped, begun: LaneSet::NONE, actions, obs: &[], rewards: &[], infos: &[], now_ms: 5 };
                told.row(shown);
                told.begin_each(in_row, &starts, &[]);
                following.row(Row { begun: in_row, ..shown });
                over = ended & told.open & !in_row;
                told.finish_each(over, |_| TERMINATED);
                following.finish_each(over, |_| TERMINATED);
                if row % 8 == 7 {
                    written[0].take(&mut told);
                    written[1].take(&mut following);
                }
            }
            written[0].take(&mut told);
            written[1].take(&mut following);
            prop_assert_eq!(&written[0].bytes, &written[1].bytes);
        }
    }
}
