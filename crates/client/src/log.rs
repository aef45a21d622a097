//! The log of what a session's lanes did, kept by their owner: enough to have another node do it again.
//!
//! It has a row for each answered step: which lanes took their action, and the actions. If all lanes were stepped at
//! once the row has the actions of all, because to leave some out would cost more. An episode is the rows from its
//! beginning on in which its lane took part. Rows are forgotten when no episode that is kept needs them. A steady step
//! costs the copy of its actions, and one that is posted in memory costs it while the node steps
//! ([`SessionLog::post`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::{BLOCK_LANES, MAX_GIVEN_OPTIONS_BYTES};
use rollhouse_core::{Began, Call, ColumnSpec, LaneSet, OptionValue, Space, Start, per_episode_seed};
use rollhouse_wire::options_bytes;

use self::past::Event;
pub(crate) use self::past::PastReader;
use self::rows::Rows;

mod past;
mod rows;

/// Bytes of the log of one lane, on average over a session's lanes: a million steps of CartPole.
pub(crate) const LANE_LOG_BYTES: usize = 1 << 20;

/// Time for which an episode that ended is kept, so that another node can record it as well. A node that died may not
/// have written what ended in its last second, and has not shipped what ended in the last few.
const KEEP_ENDED: Duration = Duration::from_secs(10);

/// Bytes of a session's log, with what is kept of each episode beside its rows, beyond which episodes that ended are
/// forgotten sooner: through shared memory thousands of lanes play hundreds of megabytes a second.
const ENDED_LOG_BYTES: usize = 256 << 20;

/// Bytes of calls that are kept of an episode.
const CALLS_LOG_BYTES: usize = 256 << 10;

/// Number of episodes of a lane for which room is kept that is not used.
const MOST_SPARE_EPISODES: usize = 16;

/// Rows between two searches for rows that nobody needs.
const TRIM_EVERY: usize = 64;

/// The log of one session. `now` is any clock that only goes forward.
#[derive(Debug)]
pub(crate) struct SessionLog {
    action: ColumnSpec,
    /// The least action, if actions are kept as one byte each.
    narrow: Option<i64>,
    /// Bytes of one kept action.
    width: usize,
    limit: usize,
    ended_limit: usize,
    keep_ended: Duration,
    /// Whether steps are kept, or the numbers of episodes only.
    keeps_steps: bool,
    lanes: Vec<LaneLog>,
    /// The rows: one bit per lane that took its action, in whole words, then the actions of all lanes, or of those that
    /// took part.
    rows: Rows,
    /// The column of actions that was posted last, if they are kept in another form.
    posted: Vec<u8>,
    /// The time at which the last row was added.
    now: Duration,
    since_trim: usize,
    /// Options that the reset that is asked for gives to lanes, until it is answered.
    giving: Vec<GivenLane>,
}

/// A lane of the session, and options that it is given.
pub(crate) type GivenLane = (u32, BTreeMap<String, OptionValue>);

#[derive(Debug, Default)]
struct LaneLog {
    /// The lane's episodes, oldest first; only the last may be open.
    episodes: VecDeque<LoggedEpisode>,
    /// Bytes of the calls and options of these episodes.
    kept_bytes: usize,
    /// Number of the lane's next episode.
    next: u64,
    /// The start of the lane's last episode.
    start: Start,
    /// The options that the lane was given, all that are not the pool's.
    options: Given,
    /// Whether the lane has an episode, but not in this log.
    cut: bool,
    /// Whether the lane has begun any episode.
    begun: bool,
}

#[derive(Debug)]
struct LoggedEpisode {
    number: u64,
    start: Start,
    from_row: u64,
    /// The row after its last one, and when that was added; `None` while it is open.
    ended: Option<(u64, Duration)>,
    /// A hash of its state, with the number of the row before which the state had it.
    hash: Option<(u64, u32)>,
    /// The calls that changed it, ascending, each with the number of the row before which it came.
    calls: Vec<(u64, Call)>,
    /// The options that its lane had been given when it began.
    options: Given,
    /// Bytes of these options, of the first episode that has them; 0 of others.
    option_bytes: usize,
}

/// Options that a lane was given; `None` while it was given none.
type Given = Option<Arc<BTreeMap<String, OptionValue>>>;

/// How much a log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The numbers of episodes: lanes begin anew elsewhere.
    Numbers,
    /// Open episodes as well.
    Steps,
    /// Open episodes, and those that have just ended, to be recorded again.
    StepsAndEnded,
}

/// The flags in an answer to a step, one per lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneFlags<'a> {
    /// Lanes whose episode the env has ended.
    pub terminated: &'a [u8],
    /// Lanes whose episode was ended otherwise.
    pub truncated: &'a [u8],
    /// Lanes that began an episode instead of stepping.
    pub reset: &'a [u8],
}

impl SessionLog {
    /// Makes the log of `lanes` lanes of an env with these actions.
    pub(crate) fn new(lanes: usize, action: &ColumnSpec, space: &Space, keep: Keep) -> Self {
        let narrow = match space {
            Space::Discrete(space) if space.n <= 256 => Some(space.start),
            _ => None,
        };
        let width = if narrow.is_some() { 1 } else { action.row_bytes() };
        Self {
            narrow,
            width,
            action: action.clone(),
            limit: lanes * LANE_LOG_BYTES,
            ended_limit: ENDED_LOG_BYTES,
            keep_ended: if keep == Keep::StepsAndEnded { KEEP_ENDED } else { Duration::ZERO },
            keeps_steps: keep != Keep::Numbers,
            lanes: (0..lanes).map(|_| LaneLog::default()).collect(),
            rows: Rows::new(mask_bytes(lanes) + lanes * width),
            posted: Vec::new(),
            now: Duration::ZERO,
            since_trim: 0,
            giving: Vec::new(),
        }
    }

    /// Notes that all lanes were stepped with `actions`, a column of theirs as bytes; `lost` are those whose env has
    /// failed.
    pub(crate) fn stepped(&mut self, now: Duration, actions: &[u8], flags: LaneFlags<'_>, lost: &[u32]) {
        self.post(|column| column.copy_from_slice(&actions[..column.len()]));
        self.stepped_as_posted(now, flags, lost);
    }

    /// Notes that all lanes are asked for a step with the actions that `copy` puts into a column, as bytes. They become
    /// the next row if the step is [done](Self::stepped_as_posted). Work that is due once in a while is done now, when
    /// nobody waits for it.
    #[inline]
    pub(crate) fn post(&mut self, copy: impl FnOnce(&mut [u8])) {
        if !self.keeps_steps {
            return;
        }
        self.trim_if_due();
        let (head, bytes) = (self.mask_bytes(), self.row_bytes());
        let kept = &mut self.rows.draft(bytes)[head..];
        let Some(start) = self.narrow else { return copy(kept) };
        self.posted.resize(kept.len() * self.action.row_bytes(), 0);
        copy(&mut self.posted);
        let actions = self.posted.as_chunks().0;
        kept.iter_mut().zip(actions).for_each(|(kept, action)| *kept = narrowed(*action, start));
    }

    /// Returns the actions that were posted last, as bytes of their column; empty if no steps are kept.
    pub(crate) fn posted(&self) -> &[u8] {
        if self.narrow.is_some() {
            return &self.posted;
        }
        self.rows.drafted(self.row_bytes()).get(self.mask_bytes()..).unwrap_or_default()
    }

    /// Notes that all lanes were stepped with the actions that were [posted](Self::post) last.
    #[inline]
    pub(crate) fn stepped_as_posted(&mut self, now: Duration, flags: LaneFlags<'_>, lost: &[u32]) {
        if !self.keeps_steps {
            return;
        }
        let (bytes, after) = (self.row_bytes(), self.rows.end() + 1);
        let Self { rows, lanes, .. } = self;
        let (masks, _) = rows.draft(bytes).as_chunks_mut::<MASK_BYTES>();
        for (first, mask) in (0..lanes.len()).step_by(BLOCK_LANES).zip(masks) {
            let block = first..lanes.len().min(first + BLOCK_LANES);
            let flagged = |column: &[u8]| LaneSet::of_flags(&column[block.clone()]);
            let failed = lost.iter().filter(|&&lane| block.contains(&(lane as usize)));
            let failed: LaneSet = failed.map(|&lane| lane as usize - first).collect();
            let stepped = LaneSet::first(block.len()) & !flagged(flags.reset) & !failed;
            *mask = stepped.bits().to_le_bytes();
            for lane in flagged(flags.terminated) | flagged(flags.truncated) {
                lanes[first + lane].end(now, after);
            }
        }
        rows.add(bytes);
        self.after_row(now, lost);
    }

    /// Notes that those lanes, ascending, were stepped with one of `actions` each; the flags are theirs too.
    pub(crate) fn stepped_some(
        &mut self,
        now: Duration,
        lanes: &[u32],
        actions: &[u8],
        flags: LaneFlags<'_>,
        lost: &[u32],
    ) {
        if !self.keeps_steps {
            return;
        }
        self.trim_if_due();
        let (size, width, after) = (self.action.row_bytes(), self.width, self.rows.end() + 1);
        let (head, bytes) = (self.mask_bytes(), self.row_bytes());
        let (mask, kept) = self.rows.draft(bytes).split_at_mut(head);
        mask.fill(0);
        let mut took = 0;
        for (row, &lane) in lanes.iter().enumerate() {
            if flags.reset[row] != 0 || lost.contains(&lane) {
                continue;
            }
            mask[lane as usize / 8] |= 1 << (lane % 8);
            let action = &actions[row * size..(row + 1) * size];
            let kept = &mut kept[took * width..(took + 1) * width];
            match self.narrow {
                Some(start) => kept.fill(action.first_chunk().map_or(0, |bytes| narrowed(*bytes, start))),
                None => kept.copy_from_slice(action),
            }
            took += 1;
        }
        self.rows.add(head + took * width);
        for (row, &lane) in lanes.iter().enumerate() {
            if flags.terminated[row] | flags.truncated[row] != 0 {
                self.lanes[lane as usize].end(now, after);
            }
        }
        self.after_row(now, lost);
    }

    /// Notes that an episode began in a lane that the session has, after the last row.
    pub(crate) fn began(&mut self, now: Duration, began: &Began) {
        let row = self.rows.end();
        let lane = &mut self.lanes[began.lane as usize];
        lane.end(now, row);
        lane.next = began.number.wrapping_add(1);
        lane.start = began.start;
        (lane.cut, lane.begun) = (!self.keeps_steps, true);
        if !self.keeps_steps {
            return;
        }
        let known = lane.episodes.back().is_some_and(|last| same(&last.options, &lane.options));
        let option_bytes = match &lane.options {
            Some(options) if !known => options_bytes(options).len(),
            _ => 0,
        };
        lane.episodes.push_back(LoggedEpisode {
            number: began.number,
            start: began.start,
            from_row: row,
            ended: None,
            hash: None,
            calls: Vec::new(),
            options: lane.options.clone(),
            option_bytes,
        });
        lane.kept_bytes += option_bytes;
    }

    /// Says which options the reset gives that is asked for next.
    pub(crate) fn give(&mut self, given: Vec<GivenLane>) {
        self.giving = given;
    }

    /// Takes the options of the reset that was asked for.
    pub(crate) fn take_given(&mut self) -> Vec<GivenLane> {
        std::mem::take(&mut self.giving)
    }

    /// Notes that a lane that the session has is given options for its next episodes. Returns false if they are more than
    /// another node would take.
    pub(crate) fn given(&mut self, lane: u32, options: &BTreeMap<String, OptionValue>) -> bool {
        let lane = &mut self.lanes[lane as usize];
        let mut all = lane.options.as_deref().cloned().unwrap_or_default();
        all.extend(options.iter().map(|(name, value)| (name.clone(), value.clone())));
        if options_bytes(&all).len() > MAX_GIVEN_OPTIONS_BYTES {
            return false;
        }
        lane.options = Some(Arc::new(all));
        true
    }

    /// Notes that the state of a lane that the session has had that hash after the last row.
    pub(crate) fn stood(&mut self, lane: u32, hash: u32) {
        let row = self.rows.end();
        if let Some(episode) = self.lanes[lane as usize].open() {
            episode.hash = Some((row, hash));
        }
    }

    /// Notes that a lane that the session has was changed by a call after the last row. An episode with more calls than are
    /// kept is forgotten.
    pub(crate) fn called(&mut self, lane: u32, call: Call) {
        let row = self.rows.end();
        let lane = &mut self.lanes[lane as usize];
        let Some(episode) = lane.open() else { return };
        let bytes = bytes_of(&call);
        if episode.call_bytes() + bytes <= CALLS_LOG_BYTES {
            episode.calls.push((row, call));
            lane.kept_bytes += bytes;
        } else {
            lane.forget_all();
            lane.cut = true;
        }
    }

    /// Returns whether all lanes have begun an episode.
    pub(crate) fn has_begun(&self) -> bool {
        self.lanes.iter().all(|lane| lane.begun)
    }

    /// Notes that everything that was played is lost: all lanes have to begin anew.
    pub(crate) fn give_up(&mut self) {
        for lane in &mut self.lanes {
            lane.forget_all();
            lane.cut = lane.begun;
        }
    }

    /// Returns what another node has to do, so that the lanes stand there where they stand here. Also returns the lanes
    /// that will not, but stand still in the next batch (if they are to be `held`) and begin an episode then.
    pub(crate) fn past(&self, held: bool) -> (PastReader, Vec<u32>) {
        let mut cut = Vec::new();
        let lanes = (0u32..).zip(&self.lanes).map(|(number, lane)| {
            let mut events = VecDeque::new();
            let idle = lane.episodes.back().is_none_or(|episode| episode.ended.is_some());
            let mut last: &Given = &None;
            for episode in &lane.episodes {
                add_given(&mut last, &episode.options, &mut events);
                self.events_of(episode, &mut events);
            }
            add_given(&mut last, &lane.options, &mut events);
            let lost = |held| Event::Lost { next: lane.next, start: lane.fresh_start(number), held };
            if lane.cut {
                cut.push(number);
                events.push_back(lost(held));
            } else if idle && lane.begun && lane.episodes.is_empty() {
                events.push_back(lost(false));
            }
            events
        });
        let reader = PastReader::new(lanes.collect());
        (reader, cut)
    }

    #[inline]
    const fn mask_bytes(&self) -> usize {
        mask_bytes(self.lanes.len())
    }

    /// Returns the bytes of a row of all lanes.
    #[inline]
    const fn row_bytes(&self) -> usize {
        self.mask_bytes() + self.lanes.len() * self.width
    }

    fn after_row(&mut self, now: Duration, lost: &[u32]) {
        for &lane in lost {
            // Its env is made anew where it is; nobody can say what would have become of it.
            self.lanes[lane as usize].forget_all();
        }
        self.since_trim += 1;
        self.now = now;
    }

    #[inline]
    fn trim_if_due(&mut self) {
        if self.since_trim >= TRIM_EVERY {
            self.since_trim = 0;
            self.trim(self.now);
        }
    }

    /// Forgets what ended long ago, what is more than fits, and rows that nobody needs.
    #[cold]
    fn trim(&mut self, now: Duration) {
        let keep_ended = self.keep_ended;
        self.forget(|episode, last| !last && episode.is_old(now, keep_ended));
        // The last of each lane is where the next one goes on from.
        for (limit, last_too) in [(self.ended_limit, false), (self.limit, true)] {
            // Rows as a share of all that goes with them; and where they are not evenly shared, rows alone.
            for with_episodes in [true, false] {
                let (size, rows) = (self.size(), self.rows.size());
                let excess = size.saturating_sub(limit);
                if excess == 0 {
                    break;
                }
                let share = (rows as u128 * excess as u128 / size as u128) as usize;
                let row = self.rows.holding(if with_episodes { share } else { excess });
                self.forget(|episode, last| episode.from_row < row && (last_too || !last));
            }
        }
    }

    /// Returns the bytes that the log keeps: rows, and what it knows of each episode.
    fn size(&self) -> usize {
        self.rows.size() + self.lanes.iter().map(LaneLog::size).sum::<usize>()
    }

    /// Forgets the first episodes of each lane for which `is_to_be` returns true, and rows that nobody needs. Its
    /// second argument tells whether the episode is also the lane's last.
    fn forget(&mut self, is_to_be: impl Fn(&LoggedEpisode, bool) -> bool) {
        let mut needed = self.rows.end();
        for lane in &mut self.lanes {
            while let Some(first) = lane.episodes.front() {
                if !is_to_be(first, lane.episodes.len() == 1) {
                    needed = needed.min(first.from_row);
                    break;
                }
                lane.cut = first.ended.is_none();
                lane.kept_bytes -= first.call_bytes() + first.option_bytes;
                lane.episodes.pop_front();
            }
            if lane.episodes.capacity() > 2 * MOST_SPARE_EPISODES.max(lane.episodes.len()) {
                lane.episodes.shrink_to(lane.episodes.len());
            }
        }
        self.rows.forget_before(needed);
    }

    fn events_of(&self, episode: &LoggedEpisode, events: &mut VecDeque<Event>) {
        events.push_back(Event::Began { number: episode.number, start: episode.start });
        let end = episode.ended.map_or_else(|| self.rows.end(), |(row, _)| row);
        let mut from = episode.from_row;
        let mut marks: Vec<(u64, Event)> =
            episode.hash.iter().map(|&(row, hash)| (row, Event::Stood(hash))).collect();
        // A hash is that of the row that was just played, and calls come after it.
        marks.extend(episode.calls.iter().map(|(row, call)| (*row, Event::Called(call.clone()))));
        marks.sort_by_key(|(row, _)| *row);
        for (row, event) in marks {
            events.push_back(Event::Played { from, to: row });
            events.push_back(event);
            from = row;
        }
        events.push_back(Event::Played { from, to: end });
    }

    /// Returns the lane's action in a row, if it took part.
    fn action<'a>(&self, lane: usize, row: &'a [u8]) -> Option<&'a [u8]> {
        let (masks, actions) = row.split_at(self.mask_bytes());
        let (masks, _) = masks.as_chunks();
        let (word, bit) = (lane / BLOCK_LANES, lane % BLOCK_LANES);
        let set = |mask: &[u8; MASK_BYTES]| LaneSet::of_bits(u64::from_le_bytes(*mask));
        let mine = set(&masks[word]);
        if !mine.has(bit) {
            return None;
        }
        let rank = if row.len() == self.row_bytes() {
            lane
        } else {
            masks[..word].iter().map(|mask| set(mask).len()).sum::<usize>()
                + (mine & LaneSet::first(bit)).len()
        };
        Some(&actions[rank * self.width..(rank + 1) * self.width])
    }
}

impl LaneLog {
    /// Returns the start of the next episode if nobody knows where the generator stood.
    const fn fresh_start(&self, lane: u32) -> Start {
        Start::seeded(per_episode_seed(self.start.seed, lane, self.next))
    }

    /// Notes that the lane's episode has ended before that row, if the lane is in one.
    #[inline]
    fn end(&mut self, now: Duration, row: u64) {
        if let Some(episode) = self.open() {
            episode.ended = Some((row, now));
        }
        self.cut = false;
    }

    #[inline]
    fn open(&mut self) -> Option<&mut LoggedEpisode> {
        self.episodes.back_mut().filter(|episode| episode.ended.is_none())
    }

    fn forget_all(&mut self) {
        self.episodes.clear();
        self.kept_bytes = 0;
    }

    /// Returns the bytes of what is known of its episodes beside their rows.
    fn size(&self) -> usize {
        self.episodes.len() * size_of::<LoggedEpisode>() + self.kept_bytes
    }
}

/// Adds options that a lane has from then on, unless it has them already.
fn add_given<'a>(last: &mut &'a Given, options: &'a Given, events: &mut VecDeque<Event>) {
    if let Some(given) = options.as_ref().filter(|_| !same(last, options)) {
        *last = options;
        events.push_back(Event::Given(given.clone()));
    }
}

/// Returns whether both are the same options, given at once.
fn same(one: &Given, other: &Given) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Returns the bytes of a call that is kept.
const fn bytes_of(call: &Call) -> usize {
    call.method.len() + call.payload.len() + size_of::<(u64, Call)>()
}

impl LoggedEpisode {
    fn call_bytes(&self) -> usize {
        self.calls.iter().map(|(_, call)| bytes_of(call)).sum()
    }

    fn is_old(&self, now: Duration, keep: Duration) -> bool {
        self.ended.is_some_and(|(_, at)| now.saturating_sub(at) >= keep)
    }
}

/// Returns the bytes of the bits in a row that tell which lanes took part.
#[inline]
const fn mask_bytes(lanes: usize) -> usize {
    lanes.div_ceil(BLOCK_LANES) * MASK_BYTES
}

/// Bytes of one bit for each lane of a block.
const MASK_BYTES: usize = BLOCK_LANES / 8;

/// Returns an action of a small discrete space as one byte: below 256 over the start, as it was checked to be one.
const fn narrowed(action: [u8; 8], start: i64) -> u8 {
    i64::from_le_bytes(action).wrapping_sub(start) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::AutoresetMode;
    use rollhouse_core::limits::MAX_CALL_BYTES;
    use rollhouse_core::{ColumnData, random_bits};
    use rollhouse_engine::{Engine, EngineConfig, LogEvent, Reset};
    use rollhouse_env::Registry;
    use rollhouse_wire::limits::MAX_PAST_BYTES;
    use rollhouse_wire::read_past;

    struct Play {
        engine: Engine,
        events: Vec<LogEvent>,
        space: Space,
    }

    impl Play {
        fn new(id: &str, lanes: usize, autoreset: AutoresetMode) -> Self {
            let entry = Registry::builtin().get(id).unwrap();
            let config = EngineConfig { autoreset, ..EngineConfig::new(lanes) };
            let mut engine = Engine::new(&entry, config, None).unwrap();
            engine.keep_log().unwrap();
            Self { engine, events: Vec::new(), space: entry.spec().action_space.clone() }
        }

        fn log(&self, id: &str, keep: Duration) -> SessionLog {
            let spec = Registry::builtin().get(id).unwrap().spec().clone();
            let mut log = SessionLog::new(
                self.engine.lanes(),
                &spec.action_column(),
                &spec.action_space,
                Keep::StepsAndEnded,
            );
            log.keep_ended = keep;
            log
        }

        fn note(&mut self, now: Duration, log: &mut SessionLog) {
            self.events.clear();
            self.engine.take_log(&mut self.events);
            for event in &self.events {
                match *event {
                    LogEvent::Began(began) => log.began(now, &began),
                    LogEvent::Hash { lane, hash } => log.stood(lane, hash),
                }
            }
        }

        fn actions(&self, turn: u64) -> ColumnData {
            let bits = (0..self.engine.lanes() as u32).map(|lane| random_bits(5, lane, turn));
            match self.space {
                Space::Discrete(_) => ColumnData::I64(bits.map(|bits| (bits & 1) as i64).collect()),
                Space::Box(_) => ColumnData::F32(bits.map(|bits| bits as f32 / u64::MAX as f32).collect()),
            }
        }

        /// One turn; what it showed.
        fn turn(&mut self, turn: u64, log: Option<&mut SessionLog>) -> (ColumnData, Vec<u8>, Vec<f64>) {
            let now = Duration::from_secs(turn);
            let actions = self.actions(turn);
            let some = turn.is_multiple_of(3).then(|| {
                (0..self.engine.lanes() as u32)
                    .filter(|&lane| random_bits(1, lane, turn) & 1 == 0)
                    .collect::<Vec<_>>()
            });
            let Some(lanes) = some.filter(|lanes| !lanes.is_empty()) else {
                assert!(self.engine.actions().unwrap().copy_from(actions.as_ref()));
                let frame = self.engine.step().unwrap();
                let shown =
                    (ColumnData::from(frame.obs(0)), frame.reset().to_vec(), frame.rewards().to_vec());
                let flags = [frame.terminated(), frame.truncated(), frame.reset()].map(<[u8]>::to_vec);
                if let Some(log) = log {
                    let [terminated, truncated, reset] = &flags;
                    // One that was refused, first.
                    log.post(|column| column.fill(7));
                    let bytes = actions.as_ref().bytes();
                    log.post(|column| column.copy_from_slice(bytes));
                    assert_eq!(log.posted(), bytes);
                    log.stepped_as_posted(now, LaneFlags { terminated, truncated, reset }, &[]);
                    self.note(now, log);
                }
                return shown;
            };
            let mut some = ColumnData::zeros(actions.as_ref().dtype(), 0);
            for &lane in &lanes {
                assert!(some.extend(actions.as_ref().slice(lane as usize, lane as usize + 1)));
            }
            self.engine.send(&lanes, some.as_ref()).unwrap();
            let rows = self.engine.recv(lanes.len(), Duration::from_secs(60)).unwrap();
            if let Some(log) = log {
                let shown = LaneFlags {
                    terminated: &rows.terminated,
                    truncated: &rows.truncated,
                    reset: &rows.reset,
                };
                log.stepped_some(now, &lanes, some.as_ref().bytes(), shown, &[]);
                self.note(now, log);
            }
            (rows.obs[0].clone(), rows.reset, rows.rewards)
        }
    }

    fn replay(log: &SessionLog, into: &mut Engine, held: bool) -> Vec<u32> {
        let (mut reader, cut) = log.past(held);
        while let Some(part) = reader.next(log) {
            assert!(part.len() <= MAX_PAST_BYTES);
            into.replay(read_past(&part, &log.action).unwrap()).unwrap();
        }
        cut
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn another_engine_that_does_what_is_logged_goes_on_in_the_same_way(
            id in prop::sample::select(vec!["CartPole-v1", "Pendulum-v1"]),
            lanes in 1usize..140, same_step: bool, turns in 0u64..300, keep in 0u64..100,
        ) {
            let autoreset = if same_step { AutoresetMode::SameStep } else { AutoresetMode::NextStep };
            let mut first = Play::new(id, lanes, autoreset);
            let mut log = first.log(id, Duration::from_secs(keep));
            first.engine.reset(&Reset::seeded(9, lanes)).unwrap();
            first.note(Duration::ZERO, &mut log);
            for turn in 0..turns {
                first.turn(turn, Some(&mut log));
            }
            let mut second = Play::new(id, lanes, autoreset);
            prop_assert_eq!(replay(&log, &mut second.engine, true), Vec::<u32>::new());
            for turn in turns..turns + 60 {
                prop_assert_eq!(first.turn(turn, None), second.turn(turn, None));
            }
        }
    }

    #[test]
    fn calls_are_told_where_they_came_and_an_episode_with_too_many_is_cut() {
        let mut play = Play::new("test/Called-v0", 2, AutoresetMode::NextStep);
        let mut log = play.log("test/Called-v0", Duration::from_secs(100));
        play.engine.reset(&Reset::seeded(9, 2)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..70 {
            for lane in [0, 1].into_iter().filter(|lane| (turn + lane) % 5 == 0) {
                let call = Call { method: "push".into(), payload: "2".into() };
                play.engine.call(lane as usize, &call.method, &call.payload).unwrap();
                log.called(lane as u32, call);
            }
            play.turn(turn, Some(&mut log));
        }
        let mut second = Play::new("test/Called-v0", 2, AutoresetMode::NextStep);
        assert_eq!(replay(&log, &mut second.engine, true), Vec::<u32>::new());
        for turn in 70..90 {
            assert_eq!(play.turn(turn, None), second.turn(turn, None));
        }
        let long = Call { method: "push".into(), payload: "x".repeat(MAX_CALL_BYTES) };
        (0..2).for_each(|_| log.called(1, long.clone()));
        let (mut reader, cut) = log.past(true);
        assert_eq!(cut, Vec::<u32>::new());
        while let Some(part) = reader.next(&log) {
            assert!(!part.is_empty() && part.len() <= MAX_PAST_BYTES);
        }
        (0..3).for_each(|_| log.called(1, long.clone()));
        assert_eq!(log.past(true).1, [1]);
    }

    #[test]
    fn a_log_that_is_full_forgets_the_oldest_episodes_and_tells_whose() {
        let mut play = Play::new("Pendulum-v1", 3, AutoresetMode::NextStep);
        let mut log = play.log("Pendulum-v1", Duration::from_secs(1_000_000));
        log.limit = 3_000 + 3 * size_of::<LoggedEpisode>();
        play.engine.reset(&Reset::seeded(9, 3)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..190 {
            play.turn(turn, Some(&mut log));
            assert!(log.rows.size() <= log.limit + TRIM_EVERY * 40, "{}", log.rows.size());
        }
        let mut second = Play::new("Pendulum-v1", 3, AutoresetMode::NextStep);
        let cut = replay(&log, &mut second.engine, true);
        assert!(!cut.is_empty(), "190 steps of 3 lanes take more");
        let (_, reset, rewards) = second.turn(301, None);
        for &lane in &cut {
            assert_eq!((reset[lane as usize], rewards[lane as usize]), (0, 0.0), "it is held");
        }
    }

    #[test]
    fn much_that_is_played_has_ended_episodes_forgotten_sooner_and_open_ones_kept() {
        let mut play = Play::new("CartPole-v1", 70, AutoresetMode::NextStep);
        let mut log = play.log("CartPole-v1", Duration::from_secs(1_000_000));
        log.ended_limit = 20_000;
        play.engine.reset(&Reset::seeded(9, 70)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..3_000 {
            play.turn(turn, Some(&mut log));
        }
        // An open episode of 500 steps may hold as many rows.
        assert!(log.rows.size() <= 20_000 + (500 + TRIM_EVERY) * 90, "{}", log.rows.size());
        let mut second = Play::new("CartPole-v1", 70, AutoresetMode::NextStep);
        assert_eq!(replay(&log, &mut second.engine, true), Vec::<u32>::new());
        for turn in 3_000..3_060 {
            assert_eq!(play.turn(turn, None), second.turn(turn, None));
        }
    }

    /// Symptom: at ten million steps a second a trainer's log took half a gigabyte more than its limit.
    /// Cause: the limit was that of the rows alone, and what is kept of each episode that ended is more than its rows.
    /// Fix: both are counted, calls as well.
    #[test]
    fn episodes_that_ended_count_for_the_limit_of_a_log_however_short_they_are() {
        let spec = Registry::builtin().get("test/Called-v0").unwrap().spec().clone();
        let (lanes, zeros, ones) = (64, [0; 64], [1; 64]);
        let mut log = SessionLog::new(lanes, &spec.action_column(), &spec.action_space, Keep::StepsAndEnded);
        log.ended_limit = 200_000;
        let actions = vec![0; lanes * spec.action_column().row_bytes()];
        let mut most = 0;
        for number in 0..2_000 {
            let now = Duration::from_micros(number);
            for lane in 0..lanes as u32 {
                log.began(now, &Began { lane, number, start: Start::default() });
                if number % 4 == 0 {
                    log.called(lane, Call { method: "push".into(), payload: "2".repeat(100) });
                }
            }
            let flags = LaneFlags { terminated: &ones, truncated: &zeros, reset: &zeros };
            log.stepped(now, &actions, flags, &[]);
            let episodes = log.lanes.iter().flat_map(|lane| &lane.episodes);
            let of_episodes: usize = episodes.map(|one| size_of_val(one) + one.call_bytes()).sum();
            most = most.max(log.rows.size() + of_episodes);
        }
        // The last of each lane stays, and what comes until the next look.
        let step = lanes * (size_of::<LoggedEpisode>() + 200) + lanes + 16;
        assert!(most <= 200_000 + (TRIM_EVERY + 1) * step, "{most}");
        assert!(
            log.lanes.iter().all(|lane| !lane.episodes.is_empty()),
            "the last is where the next goes on from"
        );
    }

    #[test]
    fn what_ended_long_ago_and_rows_that_nobody_needs_are_forgotten() {
        let mut play = Play::new("CartPole-v1", 8, AutoresetMode::NextStep);
        let mut log = play.log("CartPole-v1", Duration::from_secs(100));
        play.engine.reset(&Reset::seeded(9, 8)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..20_000 {
            play.turn(turn, Some(&mut log));
            assert!(log.rows.range(0..u64::MAX).count() <= 100 + 500 + TRIM_EVERY);
        }
        log.give_up();
        log.trim(Duration::from_secs(20_000));
        assert_eq!(log.rows.size(), 0);
        let mut second = Play::new("CartPole-v1", 8, AutoresetMode::NextStep);
        assert_eq!(replay(&log, &mut second.engine, false), (0..8).collect::<Vec<_>>());
        let (_, reset, _) = second.turn(20_001, None);
        assert!(reset.iter().all(|&flag| flag == 1));
    }
}
