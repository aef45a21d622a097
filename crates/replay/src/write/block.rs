//! The recorder of one block: the stepping thread appends rows and events to a buffer with it, and does nothing else.

mod buffering;

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Call, ColumnRef, GameResult, Interruption, LaneSet, Options, Outcome, Start};
use rollhouse_env::Target;

use crate::code::buffer::{BEGIN_ESTIMATE, BlockLanes, Buffer, END_ESTIMATE, WINDOW_ESTIMATE};
use crate::code::coding::stepped::Rule;
use crate::code::events::Finish;
use crate::code::frame::Frame;
use crate::code::frame_chunk::FramePlace;
use crate::code::layout::{ActionCoding, Layout};
use crate::code::noted::NotedNow;
use crate::code::own_options::{LanesOptions, OwnOptions};
use crate::code::planes::{LowestBits, SHIFTS};
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
mod tests;
