//! What a session's lanes did, kept by their owner: enough to have another node do it again.
//!
//! A row for each answered step: which lanes took their action, and the actions; those of all lanes if all of them were
//! stepped at once, because to leave some out would cost more. An episode is the rows from its beginning on in which its
//! lane took part. Rows are forgotten when no episode that is kept needs them; a steady step costs the copy of its
//! actions.

use std::collections::VecDeque;
use std::time::Duration;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnSpec, Lanes, Space, Start, lane_bits, mask_of, per_episode_seed};
use rollhouse_wire::Began;

use self::past::Event;
pub use self::past::PastReader;

mod past;

/// Bytes of the log of one lane, on average over a session's lanes: a million steps of CartPole.
pub(crate) const LANE_LOG_BYTES: usize = 1 << 20;

/// How long an episode that ended is kept, so that another node can record it as well: a node that died may not have
/// written what ended in its last second, and has not shipped what ended in the last few.
const KEEP_ENDED: Duration = Duration::from_secs(10);

/// Bytes of a session's log beyond which episodes that ended are forgotten sooner: through shared memory thousands of
/// lanes play hundreds of megabytes a second.
const ENDED_LOG_BYTES: usize = 256 << 20;

/// How often rows that nobody needs are looked for.
const TRIM_EVERY: usize = 64;

/// The log of one session. `now` is any clock that only goes forward.
#[derive(Debug)]
pub struct SessionLog {
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
    /// Number of the first row that is kept.
    first_row: u64,
    /// Of each row: where its actions begin, counted from the first byte ever kept.
    rows: VecDeque<u64>,
    /// One bit per lane, of each row.
    stepped: VecDeque<u64>,
    /// Actions of each row: of all lanes, or of those that took part.
    bytes: VecDeque<u8>,
    bytes_before: u64,
    since_trim: usize,
}

#[derive(Debug, Default)]
struct LaneLog {
    /// Oldest first; only the last may be open.
    episodes: VecDeque<LoggedEpisode>,
    /// Number of the lane's next episode.
    next: u64,
    /// Where the last one started.
    start: Start,
    /// Whether the lane has an episode, but not in this log.
    cut: bool,
    /// Whether it has begun any.
    begun: bool,
}

#[derive(Debug)]
struct LoggedEpisode {
    number: u64,
    start: Start,
    from_row: u64,
    /// The row after its last one, and when that was; `None` while it is open.
    ended: Option<(u64, Duration)>,
    /// The row before which its state had that hash.
    hash: Option<(u64, u32)>,
}

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The numbers of episodes: lanes begin anew elsewhere.
    Numbers,
    /// Open episodes.
    Steps,
    /// And those that have just ended, to be recorded again.
    StepsAndEnded,
}

/// What an answer to a step showed, one flag per lane.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Lanes whose episode the env has ended.
    pub terminated: &'a [u8],
    /// Lanes whose episode was ended otherwise.
    pub truncated: &'a [u8],
    /// Lanes that began an episode instead.
    pub reset: &'a [u8],
}

impl SessionLog {
    /// Of `lanes` lanes of an env with these actions.
    pub fn new(lanes: usize, action: &ColumnSpec, space: &Space, keep: Keep) -> Self {
        let narrow = match space {
            Space::Discrete(space) if space.n <= 256 => Some(space.start),
            _ => None,
        };
        Self {
            width: if narrow.is_some() { 1 } else { action.row_bytes() },
            narrow,
            action: action.clone(),
            limit: lanes * LANE_LOG_BYTES,
            ended_limit: ENDED_LOG_BYTES,
            keep_ended: if keep == Keep::StepsAndEnded { KEEP_ENDED } else { Duration::ZERO },
            keeps_steps: keep != Keep::Numbers,
            lanes: (0..lanes).map(|_| LaneLog::default()).collect(),
            first_row: 0,
            rows: VecDeque::new(),
            stepped: VecDeque::new(),
            bytes: VecDeque::new(),
            bytes_before: 0,
            since_trim: 0,
        }
    }

    /// All lanes were stepped with `actions`, a column of theirs as bytes; `lost` are those whose env has failed.
    pub fn stepped(&mut self, now: Duration, actions: &[u8], shown: Shown<'_>, lost: &[u32]) {
        if !self.keeps_steps {
            return;
        }
        self.rows.push_back(self.bytes_before + self.bytes.len() as u64);
        let size = self.action.row_bytes();
        self.push_actions(&actions[..self.lanes.len() * size]);
        for first in (0..self.lanes.len()).step_by(BLOCK_LANES) {
            let lanes = first..self.lanes.len().min(first + BLOCK_LANES);
            let flags = |column: &[u8]| mask_of(&column[lanes.clone()]);
            let failed = lost.iter().filter(|&&lane| lanes.contains(&(lane as usize)));
            let failed = failed.fold(0, |mask, &lane| mask | 1 << (lane as usize - first));
            self.stepped.push_back(lane_bits(lanes.len()) & !flags(shown.reset) & !failed);
            for lane in Lanes(flags(shown.terminated) | flags(shown.truncated)) {
                self.end(now, first + lane);
            }
        }
        self.after_row(now, lost);
    }

    /// Those lanes, ascending, were stepped with one of `actions` each; flags are theirs too.
    pub fn stepped_some(
        &mut self,
        now: Duration,
        lanes: &[u32],
        actions: &[u8],
        shown: Shown<'_>,
        lost: &[u32],
    ) {
        if !self.keeps_steps {
            return;
        }
        let size = self.action.row_bytes();
        self.rows.push_back(self.bytes_before + self.bytes.len() as u64);
        let first_word = self.stepped.len();
        self.stepped.extend(std::iter::repeat_n(0, self.words()));
        for (row, &lane) in lanes.iter().enumerate() {
            if shown.reset[row] == 0 && !lost.contains(&lane) {
                self.stepped[first_word + lane as usize / 64] |= 1 << (lane % 64);
                self.push_action(&actions[row * size..(row + 1) * size]);
            }
        }
        for (row, &lane) in lanes.iter().enumerate() {
            if shown.terminated[row] | shown.truncated[row] != 0 {
                self.end(now, lane as usize);
            }
        }
        self.after_row(now, lost);
    }

    /// An episode began in a lane that the session has, after the last row.
    pub fn began(&mut self, now: Duration, began: &Began) {
        let row = self.end_row();
        self.end(now, began.lane as usize);
        let lane = &mut self.lanes[began.lane as usize];
        lane.next = began.number.wrapping_add(1);
        lane.start = began.start;
        (lane.cut, lane.begun) = (!self.keeps_steps, true);
        if !self.keeps_steps {
            return;
        }
        lane.episodes.push_back(LoggedEpisode {
            number: began.number,
            start: began.start,
            from_row: row,
            ended: None,
            hash: None,
        });
    }

    /// The state of a lane that the session has had that hash after the last row.
    pub fn stood(&mut self, lane: u32, hash: u32) {
        let row = self.end_row();
        if let Some(episode) = self.lanes[lane as usize].open() {
            episode.hash = Some((row, hash));
        }
    }

    /// Everything that was played is lost: all lanes have to begin anew.
    pub fn give_up(&mut self) {
        for lane in &mut self.lanes {
            lane.episodes.clear();
            lane.cut = lane.begun;
        }
    }

    /// What another node has to do, so that the lanes stand there where they stand; and which lanes will not, but stand
    /// still in the next batch (if they are to be `held`) and begin an episode then.
    pub fn past(&self, held: bool) -> (PastReader, Vec<u32>) {
        let mut cut = Vec::new();
        let lanes = (0u32..).zip(&self.lanes).map(|(number, lane)| {
            let mut events = VecDeque::new();
            let idle = lane.episodes.back().is_none_or(|episode| episode.ended.is_some());
            lane.episodes.iter().for_each(|episode| self.events_of(episode, &mut events));
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

    /// Bytes it holds.
    fn size(&self) -> usize {
        self.bytes.len() + self.stepped.len() * 8 + self.rows.len() * 8
    }

    fn words(&self) -> usize {
        self.lanes.len().div_ceil(64)
    }

    /// The row that comes next.
    fn end_row(&self) -> u64 {
        self.first_row + self.rows.len() as u64
    }

    /// Those of all lanes.
    fn push_actions(&mut self, actions: &[u8]) {
        let Some(start) = self.narrow else { return self.bytes.extend(actions) };
        let mut kept = [0; BLOCK_LANES];
        for block in actions.as_chunks().0.chunks(BLOCK_LANES) {
            kept.iter_mut().zip(block).for_each(|(kept, action)| *kept = narrowed(*action, start));
            self.bytes.extend(&kept[..block.len()]);
        }
    }

    fn push_action(&mut self, action: &[u8]) {
        match self.narrow {
            Some(start) => {
                self.bytes.push_back(action.first_chunk().map_or(0, |bytes| narrowed(*bytes, start)));
            }
            None => self.bytes.extend(action),
        }
    }

    fn end(&mut self, now: Duration, lane: usize) {
        let row = self.end_row();
        let lane = &mut self.lanes[lane];
        if let Some(episode) = lane.open() {
            episode.ended = Some((row, now));
        }
        lane.cut = false;
    }

    fn after_row(&mut self, now: Duration, lost: &[u32]) {
        for &lane in lost {
            // Its env is made anew where it is; nobody can say what would have become of it.
            let lane = &mut self.lanes[lane as usize];
            if lane.open().is_some() {
                lane.episodes.pop_back();
            }
            lane.episodes.clear();
        }
        self.since_trim += 1;
        if self.since_trim >= TRIM_EVERY {
            self.since_trim = 0;
            self.trim(now);
        }
    }

    /// Forgets what ended long ago, what is more than fits, and rows that nobody needs.
    fn trim(&mut self, now: Duration) {
        for lane in &mut self.lanes {
            while lane.episodes.front().is_some_and(|e| e.is_old(now, self.keep_ended))
                && lane.episodes.len() > 1
            {
                lane.episodes.pop_front();
            }
        }
        self.drop_rows();
        for (limit, last_too) in [(self.ended_limit, false), (self.limit, true)] {
            let excess = self.size().saturating_sub(limit);
            if excess > 0 {
                self.forget_before(self.first_row + self.rows_of(excess) as u64, last_too);
            }
        }
    }

    /// How many of the oldest rows have at least so many bytes.
    fn rows_of(&self, bytes: usize) -> usize {
        let of_row = (self.words() + 1) * 8;
        let before = |rows: usize| {
            let until = self.rows.get(rows).copied().unwrap_or(self.bytes_before + self.bytes.len() as u64);
            rows * of_row + (until - self.bytes_before) as usize
        };
        let (mut low, mut high) = (0, self.rows.len());
        while low < high {
            let middle = (low + high) / 2;
            if before(middle) < bytes { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Forgets episodes that began before that row: all but the last of each lane, where the next one goes on from, or
    /// those too.
    fn forget_before(&mut self, row: u64, last_too: bool) {
        for lane in &mut self.lanes {
            while let Some(episode) = lane.episodes.front()
                && episode.from_row < row
                && (last_too || lane.episodes.len() > 1)
            {
                lane.cut = episode.ended.is_none();
                lane.episodes.pop_front();
            }
        }
        self.drop_rows();
    }

    fn drop_rows(&mut self) {
        let fronts = self.lanes.iter().filter_map(|lane| Some(lane.episodes.front()?.from_row));
        let from = fronts.min().unwrap_or_else(|| self.end_row());
        let dropped = (from - self.first_row) as usize;
        self.rows.drain(..dropped);
        self.stepped.drain(..dropped * self.words());
        let first_byte = self.rows.front().copied().unwrap_or(self.bytes_before + self.bytes.len() as u64);
        self.bytes.drain(..(first_byte - self.bytes_before) as usize);
        (self.first_row, self.bytes_before) = (from, first_byte);
    }

    fn events_of(&self, episode: &LoggedEpisode, events: &mut VecDeque<Event>) {
        events.push_back(Event::Began { number: episode.number, start: episode.start });
        let end = episode.ended.map_or_else(|| self.end_row(), |(row, _)| row);
        let mut from = episode.from_row;
        if let Some((row, hash)) = episode.hash {
            events.push_back(Event::Played { from, to: row });
            events.push_back(Event::Stood(hash));
            from = row;
        }
        events.push_back(Event::Played { from, to: end });
    }

    /// The lane's action in a row, if it took part.
    fn action(&self, lane: usize, row: u64) -> Option<impl Iterator<Item = u8>> {
        let row = (row - self.first_row) as usize;
        let words = row * self.words();
        let (word, bit) = (lane / 64, lane % 64);
        let mine = self.stepped[words + word];
        if mine >> bit & 1 == 0 {
            return None;
        }
        let (at, end) = (self.rows[row], self.rows.get(row + 1).copied());
        let end = end.unwrap_or(self.bytes_before + self.bytes.len() as u64);
        let rank = if (end - at) as usize == self.lanes.len() * self.width {
            lane
        } else {
            let before: u32 = (0..word).map(|word| self.stepped[words + word].count_ones()).sum();
            (before + (mine & ((1 << bit) - 1)).count_ones()) as usize
        };
        let at = (at - self.bytes_before) as usize + rank * self.width;
        Some(self.bytes.range(at..at + self.width).copied())
    }
}

impl LaneLog {
    /// Where the next episode starts if nobody knows where the generator stood.
    const fn fresh_start(&self, lane: u32) -> Start {
        Start::seeded(per_episode_seed(self.start.seed, lane, self.next))
    }

    fn open(&mut self) -> Option<&mut LoggedEpisode> {
        self.episodes.back_mut().filter(|episode| episode.ended.is_none())
    }
}

impl LoggedEpisode {
    fn is_old(&self, now: Duration, keep: Duration) -> bool {
        self.ended.is_some_and(|(_, at)| now.saturating_sub(at) >= keep)
    }
}

/// An action of a small discrete space as one byte: below 256 over the start, as it was checked to be one.
const fn narrowed(action: [u8; 8], start: i64) -> u8 {
    i64::from_le_bytes(action).wrapping_sub(start) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::{ColumnData, random_bits};
    use rollhouse_engine::{Autoreset, Engine, EngineConfig, Happened, LogEvent, Past, Reset};
    use rollhouse_env::Registry;
    use rollhouse_wire::limits::MAX_PAST_BYTES;
    use rollhouse_wire::{PastEvent, column_bytes, read_past};

    struct Play {
        engine: Engine,
        events: Vec<LogEvent>,
        space: Space,
    }

    impl Play {
        fn new(id: &str, lanes: usize, autoreset: Autoreset) -> Self {
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
                    LogEvent::Began { lane, number, start } => log.began(now, &Began { lane, number, start }),
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
                    log.stepped(
                        now,
                        column_bytes(actions.as_ref()),
                        Shown { terminated, truncated, reset },
                        &[],
                    );
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
                let shown =
                    Shown { terminated: &rows.terminated, truncated: &rows.truncated, reset: &rows.reset };
                log.stepped_some(now, &lanes, column_bytes(some.as_ref()), shown, &[]);
                self.note(now, log);
            }
            (rows.obs[0].clone(), rows.reset, rows.rewards)
        }
    }

    fn replay(log: &SessionLog, into: &mut Engine, held: bool) -> Vec<u32> {
        let (mut reader, cut) = log.past(held);
        while let Some(part) = reader.next(log) {
            assert!(part.len() <= MAX_PAST_BYTES);
            let past = read_past(&part, &log.action).unwrap().into_iter().map(|record| Past {
                lane: record.lane,
                what: match record.what {
                    PastEvent::Began { number, start } => Happened::Began { number, start },
                    PastEvent::Played(actions) => Happened::Played(actions),
                    PastEvent::Stood(hash) => Happened::Stood(hash),
                    PastEvent::Lost { next, start, held } => Happened::Lost { next, start, held },
                },
            });
            into.replay(past.collect()).unwrap();
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
            let autoreset = if same_step { Autoreset::SameStep } else { Autoreset::NextStep };
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
    fn a_log_that_is_full_forgets_the_oldest_episodes_and_tells_whose() {
        let mut play = Play::new("Pendulum-v1", 3, Autoreset::NextStep);
        let mut log = play.log("Pendulum-v1", Duration::from_secs(1_000_000));
        log.limit = 3_000;
        play.engine.reset(&Reset::seeded(9, 3)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..190 {
            play.turn(turn, Some(&mut log));
            assert!(log.size() <= log.limit + TRIM_EVERY * 40, "{}", log.size());
        }
        let mut second = Play::new("Pendulum-v1", 3, Autoreset::NextStep);
        let cut = replay(&log, &mut second.engine, true);
        assert!(!cut.is_empty(), "190 steps of 3 lanes take more");
        let (_, reset, rewards) = second.turn(301, None);
        for &lane in &cut {
            assert_eq!((reset[lane as usize], rewards[lane as usize]), (0, 0.0), "it is held");
        }
    }

    #[test]
    fn much_that_is_played_has_ended_episodes_forgotten_sooner_and_open_ones_kept() {
        let mut play = Play::new("CartPole-v1", 70, Autoreset::NextStep);
        let mut log = play.log("CartPole-v1", Duration::from_secs(1_000_000));
        log.ended_limit = 20_000;
        play.engine.reset(&Reset::seeded(9, 70)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..3_000 {
            play.turn(turn, Some(&mut log));
        }
        // An open episode of 500 steps may hold as many rows.
        assert!(log.size() <= 20_000 + (500 + TRIM_EVERY) * 90, "{}", log.size());
        let mut second = Play::new("CartPole-v1", 70, Autoreset::NextStep);
        assert_eq!(replay(&log, &mut second.engine, true), Vec::<u32>::new());
        for turn in 3_000..3_060 {
            assert_eq!(play.turn(turn, None), second.turn(turn, None));
        }
    }

    #[test]
    fn what_ended_long_ago_and_rows_that_nobody_needs_are_forgotten() {
        let mut play = Play::new("CartPole-v1", 8, Autoreset::NextStep);
        let mut log = play.log("CartPole-v1", Duration::from_secs(100));
        play.engine.reset(&Reset::seeded(9, 8)).unwrap();
        play.note(Duration::ZERO, &mut log);
        for turn in 0..20_000 {
            play.turn(turn, Some(&mut log));
            assert!(log.rows.len() <= 100 + 500 + TRIM_EVERY);
        }
        log.give_up();
        log.trim(Duration::from_secs(20_000));
        assert_eq!(log.size(), 0);
        let mut second = Play::new("CartPole-v1", 8, Autoreset::NextStep);
        assert_eq!(replay(&log, &mut second.engine, false), (0..8).collect::<Vec<_>>());
        let (_, reset, _) = second.turn(20_001, None);
        assert!(reset.iter().all(|&flag| flag == 1));
    }
}
