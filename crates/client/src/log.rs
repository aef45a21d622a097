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

    /// Returns the number of the last episode that began in a lane.
    pub(crate) fn last_episode(&self, lane: u32) -> Option<u64> {
        let lane = &self.lanes[lane as usize];
        lane.begun.then(|| lane.next.wrapping_sub(1))
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
mod tests;
