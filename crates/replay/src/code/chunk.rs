//! A chunk's payload: its columns and how they are read. Layout: docs/replay-format.md.

use std::sync::Arc;

use rollhouse_core::limits::HASH_WINDOW_STEPS;
use rollhouse_core::{LANE_BIT, LaneSet, Options, Outcome, Start};
use rollhouse_env::{Kernel, Target};

use crate::code::agents;
use crate::code::calls::{self, CalledAt, ChunkCall};
use crate::code::codec::{Cursor, Malformed, scatter_bits, unzigzag};
use crate::code::coding::{begins, column, ends, stepped, windows};
use crate::code::events::{CODE_HASH, CODE_RESULT_SHIFT, CODE_SCORE, EndEvent};
use crate::code::extent::{EndFacts, LISTED_CODE};
use crate::code::lanes::{BlockState, read_table};
use crate::code::layout::{ActionCoding, Layout};
use crate::code::own_options::{self, OwnOptions};
use crate::code::record::Header;
use crate::code::run::Sampling;
use crate::code::run_record::RunInfo;
use crate::code::walk::{Events, Piece, Visit, walk};
use crate::limits::{CHUNK_ROWS, MAX_CHUNK_COLUMNS, MAX_CHUNK_EVENTS};

/// A decoded chunk. Readers of many chunks use one decoder for all of them.
#[derive(Debug)]
pub(crate) struct Decoder {
    layout: Layout,
    sampling: Sampling,
    first_lane: u32,
    present: u64,
    /// State of the block's lanes after the chunk.
    pub(crate) after: BlockState,
    pub(crate) stepped: Vec<u64>,
    end_keys: Vec<u32>,
    end_flags: Vec<u8>,
    /// Flags of all ends, if every end has the same ones and they are plain.
    uniform_ends: Option<u8>,
    begin_keys: Vec<u32>,
    starts: Vec<Start>,
    /// Parts of episodes: those that ended, in order, then what stays open in every present lane.
    pub(crate) parts: Vec<Part>,
    /// Lane and number of each episode that begins in the chunk.
    begun: Vec<(usize, u64)>,
    beside: Beside,
}

/// What stands in a chunk beside rows, starts and ends, which is seldom anything.
#[derive(Debug, Default)]
struct Beside {
    /// Calls that changed lanes, by lane and episode.
    calls: Vec<ChunkCall>,
    /// Options of lanes that are others than the run's, by lane and episode.
    options: Vec<OwnOptions>,
    /// Returns of the agents in the kept episodes that ended, in their order.
    agents: Vec<f64>,
}

/// The part of one episode that lies in a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    pub(crate) piece: Piece,
    /// Whether the episode is recorded at all.
    pub(crate) kept: bool,
    /// The end of the episode, if it ended in this chunk.
    pub(crate) end: Option<EndEvent>,
    pub(crate) score: Option<f64>,
}

/// A payload's columns, still coded.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    fixed: [&'a [u8]; column::FIXED],
    steps: Vec<&'a [u8]>,
    noted: Vec<&'a [u8]>,
    repeated_infos: Vec<&'a [u8]>,
    packed: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    /// Finds the columns of a payload; those with unknown ids are skipped.
    pub(crate) fn find(payload: &'a [u8], layout: &Layout) -> Result<Self, Malformed> {
        let (obs, infos) = if layout.recorded.has_observations() {
            (layout.obs_columns.len(), layout.info_columns.len())
        } else {
            (0, 0)
        };
        let mut cursor = Cursor::new(payload);
        let count = cursor.count_of(MAX_CHUNK_COLUMNS, 2, "column count")?;
        let mut directory = cursor;
        for _ in 0..count {
            cursor.varint("column id")?;
            cursor.varint("column length")?;
        }
        let noted = layout.unnoted.len();
        let mut found = Self {
            fixed: [&[]; column::FIXED],
            steps: vec![&[]; obs + infos],
            noted: vec![&[]; noted],
            repeated_infos: vec![&[]; infos],
            packed: vec![&[]; obs + infos],
        };
        for _ in 0..count {
            let id = directory.varint("column id")?;
            let length = directory.varint("column length")?;
            let bytes = cursor.take(usize::try_from(length).unwrap_or(usize::MAX), "column length")?;
            let place = (0..column::FIXED + obs + infos).find(|&place| column::id(place, obs) == id);
            match place {
                Some(place) if place < column::FIXED => found.fixed[place] = bytes,
                Some(place) => found.steps[place - column::FIXED] = bytes,
                None => {
                    if let Some(index) = column::noted_of(id, noted) {
                        found.noted[index] = bytes;
                    } else if let Some(index) = column::repeated_info_of(id, infos) {
                        found.repeated_infos[index] = bytes;
                    } else if let Some(index) = column::packed_of(id, obs, infos) {
                        found.packed[index] = bytes;
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Decoder {
    pub(crate) fn new(layout: Layout, sampling: Sampling) -> Self {
        Self {
            layout,
            sampling,
            first_lane: 0,
            present: 0,
            after: BlockState::new(0),
            stepped: Vec::new(),
            end_keys: Vec::new(),
            end_flags: Vec::new(),
            uniform_ends: None,
            begin_keys: Vec::new(),
            starts: Vec::new(),
            parts: Vec::new(),
            begun: Vec::new(),
            beside: Beside::default(),
        }
    }

    /// Returns about how many bytes of memory the chunk takes that was decoded last.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.stepped[..])
            + size_of_val(&self.end_keys[..])
            + self.end_flags.len()
            + size_of_val(&self.begin_keys[..])
            + size_of_val(&self.starts[..])
            + size_of_val(&self.parts[..])
            + size_of_val(&self.begun[..])
            + size_of_val(&self.beside.calls[..])
            + size_of_val(&self.beside.agents[..])
            + self
                .beside
                .options
                .iter()
                .map(|own| size_of_val(own) + own.difference.as_ref().map_or(0, |own| own.bytes()))
                .sum::<usize>()
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Decodes everything but actions, hashes and observations.
    pub(crate) fn decode<'a>(
        &mut self,
        header: &Header,
        payload: &'a [u8],
    ) -> Result<Columns<'a>, Malformed> {
        let lanes = usize::from(header.lanes);
        let wraps = header.first_lane.checked_add(u32::from(header.lanes)).is_none();
        if !(1..=64).contains(&lanes) || wraps || header.rows as usize > CHUNK_ROWS {
            return Err(Malformed("chunk header"));
        }
        self.first_lane = header.first_lane;
        let columns = Columns::find(payload, &self.layout)?;
        let (present, mut state) =
            read_table(columns.fixed[column::LANES], lanes, header.ms, self.layout.starts)?;
        self.present = present;
        let mut ends = Cursor::new(columns.fixed[column::ENDS]);
        self.read_end_keys(&mut ends)?;
        self.read_stepped(columns.fixed[column::STEPPED], header.rows as usize)?;
        self.read_begins(columns.fixed[column::BEGINS], &state)?;
        let events = Events {
            stepped: &self.stepped,
            ends: &self.end_keys,
            begins: &self.begin_keys,
            starts: &self.starts,
            ms: header.ms,
        };
        self.parts.clear();
        self.begun.clear();
        let mut collect = Collect { parts: &mut self.parts, begun: &mut self.begun };
        walk(&mut state, present, events, &mut collect)?;
        self.after = state;
        self.read_end_values(ends)?;
        let kept = self.parts.iter().filter(|part| part.end.is_some());
        agents::read(columns.fixed[column::AGENTS], self.layout.agents, kept, &mut self.beside.agents)?;
        self.beside.calls = calls::read(columns.fixed[column::CALLS])?;
        self.beside.options = own_options::read(columns.fixed[column::OPTIONS])?;
        for part in &mut self.parts[self.end_keys.len()..] {
            part.kept = self.sampling.keeps(self.first_lane + part.piece.lane as u32, part.piece.number);
        }
        Ok(columns)
    }

    fn read_end_keys(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        self.end_keys.clear();
        self.end_flags.clear();
        self.uniform_ends = None;
        if cursor.left() == 0 {
            return Ok(());
        }
        let count = cursor.count_of(MAX_CHUNK_EVENTS, 1, "end count")?;
        read_keys(cursor, count, &mut self.end_keys)?;
        if cursor.u8("end flags")? == ends::UNIFORM {
            let flags = cursor.u8("end flags")?;
            self.uniform_ends = Some(flags).filter(|&flags| ends::is_plain(flags));
            self.end_flags.resize(count, flags);
        } else {
            self.end_flags.extend_from_slice(cursor.take(count, "end flags")?);
        }
        Ok(())
    }

    fn read_stepped(&mut self, bytes: &[u8], rows: usize) -> Result<(), Malformed> {
        self.stepped.clear();
        let mut cursor = Cursor::new(bytes);
        let head = cursor.u8("stepped column")?;
        let all = self.present;
        if head & stepped::RULE_BITS == stepped::MASKS {
            let width = all.count_ones().div_ceil(8) as usize;
            for _ in 0..rows {
                let mut word = [0; 8];
                word[..width].copy_from_slice(cursor.take(width, "stepped masks")?);
                self.stepped.push(scatter_bits(u64::from_le_bytes(word), all));
            }
            return Ok(());
        }
        let ended = if head & stepped::HAS_ENDED != 0 { cursor.u64("stepped column")? } else { 0 };
        let parked = if head & stepped::HAS_PARKED != 0 { cursor.u64("stepped column")? } else { 0 };
        let skips = head & stepped::RULE_BITS == stepped::SKIPS_AFTER_END;
        let mut rule = stepped::Rule::new(skips, ended, parked);
        let mut exceptions = cursor.count(9, "stepped exceptions")?;
        let mut next = read_exception(&mut cursor, &mut exceptions, 0)?;
        let mut end = 0;
        for row in 0..rows {
            while let Some(key) = self.end_keys.get(end).filter(|&&key| key >> 6 <= row as u32) {
                rule.ended |= 1 << (key & 63);
                end += 1;
            }
            let mut change = 0;
            while let Some((_, more)) = next.filter(|&(at, _)| at == row as u64) {
                change ^= more;
                next = read_exception(&mut cursor, &mut exceptions, row as u64)?;
            }
            self.stepped.push((rule.expected() ^ change) & all);
            rule.after_row(change);
        }
        Ok(())
    }

    fn read_begins(&mut self, bytes: &[u8], state: &BlockState) -> Result<(), Malformed> {
        self.begin_keys.clear();
        self.starts.clear();
        if bytes.is_empty() {
            return Ok(());
        }
        let mut cursor = Cursor::new(bytes);
        let count = cursor.count_of(MAX_CHUNK_EVENTS, 2, "begin count")?;
        read_keys(&mut cursor, count, &mut self.begin_keys)?;
        let mut known: [Start; 64] =
            std::array::from_fn(|lane| state.table.get(lane).map_or(Start::default(), |l| l.start));
        for key in &self.begin_keys {
            let known = &mut known[(key & 63) as usize];
            let head = cursor.varint("begin")?;
            let words = head >> begins::FLAG_BITS;
            known.words = if words >= begins::WIDE {
                cursor.u64("begin: words")?
            } else {
                known.words.wrapping_add(unzigzag(words) as u64)
            };
            if head & begins::NEW_SEED != 0 {
                known.seed = cursor.u64("begin: seed")?;
            }
            known.half = if head & begins::HALF != 0 { Some(cursor.u32("begin: half")?) } else { None };
            self.starts.push(*known);
        }
        Ok(())
    }

    fn read_end_values(&mut self, mut cursor: Cursor<'_>) -> Result<(), Malformed> {
        let ended = self.end_flags.len();
        if let Some(flags) = self.uniform_ends {
            return read_plain_ends(&mut self.parts[..ended], flags, cursor);
        }
        for (part, &flags) in self.parts[..ended].iter_mut().zip(&self.end_flags) {
            let outcome = flags & ends::OUTCOME_BITS;
            part.kept = outcome != ends::NOT_KEPT;
            if !part.kept {
                continue;
            }
            if Outcome::from_code(outcome).is_none() {
                return Err(Malformed("outcome"));
            }
            let length = part.piece.age as i64 as f64;
            let total_reward = match flags >> ends::RETURN_SHIFT & 3 {
                ends::RETURN_LENGTH => length,
                ends::RETURN_MINUS_LENGTH => -length,
                ends::RETURN_INTEGER => unzigzag(cursor.varint("return")?) as f64,
                _ => cursor.f64("return")?,
            };
            let mut code = outcome;
            if flags & ends::EXTRA != 0 {
                let extra = cursor.u8("result")?;
                code |= (extra & 3) << CODE_RESULT_SHIFT;
                if extra & ends::EXTRA_SCORE != 0 {
                    code |= CODE_SCORE;
                    part.score = Some(cursor.f64("score")?);
                }
            }
            let lane = part.piece.lane as u8;
            part.end = Some(EndEvent { total_reward, hash: 0, pos: part.piece.to_row as u16, lane, code });
        }
        for (part, &flags) in self.parts[..ended].iter_mut().zip(&self.end_flags) {
            if let Some(end) = part.end.as_mut().filter(|_| flags & ends::HASH != 0) {
                end.code |= CODE_HASH;
                end.hash = cursor.u32("end hash")?;
            }
        }
        Ok(())
    }

    /// Writes the actions of a row to those of the whole block; discrete actions only. Lanes that were not stepped get
    /// values without meaning.
    pub(crate) fn expand_actions(
        &self,
        columns: &Columns<'_>,
        row: usize,
        target: Target,
        actions: &mut [i64],
    ) -> Result<(), Malformed> {
        let ActionCoding::Planes { start, planes } = self.layout.actions else {
            return Err(Malformed("actions: not discrete"));
        };
        let width = self.present.count_ones().div_ceil(8) as usize;
        actions.fill(start);
        for plane in 0..planes as usize {
            let at = (row * planes as usize + plane) * width;
            let bytes = columns.fixed[column::ACTIONS].get(at..at + width).ok_or(Malformed("actions"))?;
            let mut word = [0; 8];
            word[..width].copy_from_slice(bytes);
            let packed = u64::from_le_bytes(word);
            let word = if self.present == u64::MAX { packed } else { scatter_bits(packed, self.present) };
            target.run(ExpandBits { word, plane, actions });
        }
        Ok(())
    }

    /// Appends the actions of a part as int64 elements; discrete actions only.
    pub(crate) fn discrete_actions(
        &self,
        columns: &Columns<'_>,
        part: &Part,
        out: &mut Vec<i64>,
    ) -> Result<(), Malformed> {
        let ActionCoding::Planes { start, planes } = self.layout.actions else {
            return Err(Malformed("actions: not discrete"));
        };
        let lane = part.piece.lane;
        let bytes = columns.fixed[column::ACTIONS];
        let width = self.present.count_ones().div_ceil(8) as usize;
        let rank = (self.present & LaneSet::first(lane).bits()).count_ones() as usize;
        for row in part.piece.from_row..part.piece.to_row {
            if self.stepped[row] >> lane & 1 == 0 {
                continue;
            }
            let mut action = 0u64;
            for plane in 0..planes as usize {
                let at = (row * planes as usize + plane) * width + rank / 8;
                let byte = bytes.get(at).ok_or(Malformed("actions"))?;
                action |= u64::from(byte >> (rank % 8) & 1) << plane;
            }
            out.push(start.wrapping_add(action as i64));
        }
        Ok(())
    }

    /// Returns the recorded lanes of each row, and how many of them come before each row.
    pub(crate) fn kept_rows(&self) -> (Vec<u64>, Vec<usize>) {
        let mut kept = vec![0u64; self.stepped.len()];
        for part in self.parts.iter().filter(|part| part.kept) {
            for (row, stepped) in
                kept.iter_mut().zip(&self.stepped).take(part.piece.to_row).skip(part.piece.from_row)
            {
                *row |= stepped & 1 << part.piece.lane;
            }
        }
        let mut sum = 0;
        let before = kept.iter().map(|row| {
            sum += row.count_ones() as usize;
            sum - row.count_ones() as usize
        });
        let before = before.collect();
        (kept, before)
    }

    /// Appends the rows of a part from a raw column; `rows` comes from [`Decoder::kept_rows`].
    pub(crate) fn raw_rows(
        bytes: &[u8],
        row_bytes: usize,
        part: &Part,
        rows: &(Vec<u64>, Vec<usize>),
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let lane = part.piece.lane;
        for row in part.piece.from_row..part.piece.to_row {
            if rows.0[row] >> lane & 1 == 1 {
                let index = rows.1[row] + (rows.0[row] & LaneSet::first(lane).bits()).count_ones() as usize;
                let cell = bytes.get(index * row_bytes..(index + 1) * row_bytes);
                out.extend_from_slice(cell.ok_or(Malformed("step column"))?);
            }
        }
        Ok(())
    }

    /// Returns whether the episode began in this chunk.
    pub(crate) fn has_begun(&self, lane: usize, number: u64) -> bool {
        self.begun.contains(&(lane, number))
    }

    /// Returns the first observation of the episode, one row of each observation column that is not packed, if it began in
    /// this chunk.
    pub(crate) fn first_obs<'a>(&self, columns: &Columns<'a>, lane: usize, number: u64) -> Option<&'a [u8]> {
        let mut index = 0;
        for &(begun_lane, begun_number) in &self.begun {
            if (begun_lane, begun_number) == (lane, number) {
                let widths = self.layout.obs_columns.iter().zip(&columns.packed);
                let bytes =
                    widths.filter(|(_, packed)| packed.is_empty()).map(|(bytes, _)| bytes).sum::<usize>();
                return columns.fixed[column::FIRST_OBS].get(index * bytes..(index + 1) * bytes);
            }
            index += usize::from(self.sampling.keeps(self.first_lane + begun_lane as u32, begun_number));
        }
        None
    }

    /// Returns the calls of a part's episode that the chunk has.
    pub(crate) fn calls_of(&self, part: &Part) -> impl Iterator<Item = &CalledAt> {
        let Piece { lane, number, .. } = part.piece;
        calls::of_episode(&self.beside.calls, lane, number).iter().map(|call| &call.at)
    }

    /// Returns how the options of a part's episode differ from those that its run has for its lane; `None` if they do not.
    pub(crate) fn options_of(&self, part: &Part) -> Option<&Arc<Options>> {
        own_options::of_episode(&self.beside.options, part.piece.lane, part.piece.number)
    }

    /// Returns whether an episode of the chunk may have other options than its run.
    pub(crate) const fn has_options(&self) -> bool {
        !self.beside.options.is_empty()
    }

    /// Returns the window hashes of every part: (age, hash), in the order of `parts`.
    pub(crate) fn windows(&self, columns: &Columns<'_>) -> Result<Vec<Vec<(u64, u32)>>, Malformed> {
        let mut found = vec![Vec::new(); self.parts.len()];
        let bytes = columns.fixed[column::WINDOWS];
        if bytes.is_empty() {
            return Ok(found);
        }
        let mut cursor = Cursor::new(bytes);
        let rule = cursor.u8("windows")?;
        let mut order: Vec<usize> = (0..self.parts.len()).filter(|&at| self.parts[at].kept).collect();
        order.sort_by_key(|&at| (self.parts[at].piece.lane, self.parts[at].piece.number));
        if rule == windows::LISTED {
            return self.listed_windows(cursor, found);
        }
        for at in order {
            let Part { piece, end, .. } = &self.parts[at];
            let last = if rule == windows::BEFORE_END && end.is_some() {
                piece.age.saturating_sub(1).max(piece.from_age)
            } else {
                piece.age
            };
            for window in 0..windows::between(piece.from_age, last) {
                let age = (piece.from_age / HASH_WINDOW_STEPS + 1 + window) * HASH_WINDOW_STEPS;
                found[at].push((age, cursor.u32("window hash")?));
            }
        }
        Ok(found)
    }

    fn listed_windows(
        &self,
        mut cursor: Cursor<'_>,
        mut found: Vec<Vec<(u64, u32)>>,
    ) -> Result<Vec<Vec<(u64, u32)>>, Malformed> {
        let count = cursor.count(5, "window count")?;
        let keys = (0..count).map(|_| cursor.varint("window")).collect::<Result<Vec<_>, _>>()?;
        for key in keys {
            let (pos, lane) = ((key >> 6) as usize, (key & 63) as usize);
            let hash = cursor.u32("window hash")?;
            let place = self.parts.iter().position(|part| {
                let piece = &part.piece;
                piece.lane == lane && (piece.from_row < pos || pos == 0) && pos <= piece.to_row
            });
            let Some(at) = place else { return Err(Malformed("window")) };
            let piece = &self.parts[at].piece;
            let rows = self.stepped[piece.from_row..pos].iter();
            let age = piece.from_age + rows.filter(|row| *row >> lane & 1 == 1).count() as u64;
            found[at].push((age, hash));
        }
        Ok(found)
    }
}

impl<'a> Columns<'a> {
    pub(crate) const fn actions(&self) -> &'a [u8] {
        self.fixed[column::ACTIONS]
    }

    /// Returns the actions of a Box as runs; empty if they are not coded so.
    pub(crate) const fn repeated_actions(&self) -> &'a [u8] {
        self.fixed[column::REPEATED_ACTIONS]
    }

    /// Returns the actions of a Box as packed rows; empty if they are not coded so.
    pub(crate) const fn packed_actions(&self) -> &'a [u8] {
        self.fixed[column::PACKED_ACTIONS]
    }

    pub(crate) const fn versions(&self) -> &'a [u8] {
        self.fixed[column::VERSIONS]
    }

    pub(crate) const fn rewards(&self) -> &'a [u8] {
        self.fixed[column::REWARDS]
    }

    /// Returns the step columns.
    pub(crate) fn noted(&self) -> &[&'a [u8]] {
        &self.noted
    }

    /// Returns the observation columns, then the info columns; those that are coded as step columns are empty.
    pub(crate) fn steps(&self) -> &[&'a [u8]] {
        &self.steps
    }

    /// Returns the observation columns, then the info columns, that are packed; the others are empty.
    pub(crate) fn packed(&self) -> &[&'a [u8]] {
        &self.packed
    }

    /// Returns the info columns that are coded as step columns are; the others are empty.
    pub(crate) fn repeated_infos(&self) -> &[&'a [u8]] {
        &self.repeated_infos
    }
}

/// Adds a bit plane of a row to its actions.
struct ExpandBits<'a> {
    word: u64,
    plane: usize,
    actions: &'a mut [i64],
}

impl Kernel for ExpandBits<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (action, bit) in self.actions.iter_mut().zip(&LANE_BIT) {
            // An action of another program's env may be any number.
            *action = action.wrapping_add(i64::from(self.word & bit != 0) << self.plane);
        }
    }
}

struct Collect<'a> {
    parts: &'a mut Vec<Part>,
    begun: &'a mut Vec<(usize, u64)>,
}

impl Visit for Collect<'_> {
    fn begin(&mut self, lane: usize, number: u64) {
        self.begun.push((lane, number));
    }

    fn end(&mut self, piece: Piece) {
        self.parts.push(Part { piece, kept: false, end: None, score: None });
    }

    fn rest(&mut self, piece: Piece) {
        self.parts.push(Part { piece, kept: false, end: None, score: None });
    }
}

/// Reads the values of ends that all have these plain flags, as in most chunks of an env that pays 1 or -1 a step.
fn read_plain_ends(parts: &mut [Part], flags: u8, mut cursor: Cursor<'_>) -> Result<(), Malformed> {
    let sign = if flags >> ends::RETURN_SHIFT & 3 == ends::RETURN_LENGTH { 1.0 } else { -1.0 };
    let outcome = flags & ends::OUTCOME_BITS;
    let set = |part: &mut Part, hash: u32, code: u8| {
        let Piece { age, to_row, lane, .. } = part.piece;
        let total_reward = sign * (age as i64 as f64);
        part.kept = true;
        part.end = Some(EndEvent { total_reward, hash, pos: to_row as u16, lane: lane as u8, code });
    };
    if flags & ends::HASH == 0 {
        parts.iter_mut().for_each(|part| set(part, 0, outcome));
        return Ok(());
    }
    let hashes = cursor.take(parts.len() * size_of::<u32>(), "end hash")?.as_chunks().0;
    for (part, hash) in parts.iter_mut().zip(hashes) {
        set(part, u32::from_le_bytes(*hash), outcome | CODE_HASH);
    }
    Ok(())
}

fn read_keys(cursor: &mut Cursor<'_>, count: usize, out: &mut Vec<u32>) -> Result<(), Malformed> {
    let mut last = 0u64;
    for _ in 0..count {
        last = last.saturating_add(cursor.varint("event key")?);
        if last > MAX_KEY {
            return Err(Malformed("event key"));
        }
        out.push(last as u32);
    }
    Ok(())
}

fn read_exception(
    cursor: &mut Cursor<'_>,
    left: &mut usize,
    after: u64,
) -> Result<Option<(u64, u64)>, Malformed> {
    if *left == 0 {
        return Ok(None);
    }
    *left -= 1;
    let row = after.saturating_add(cursor.varint("stepped exception")?);
    Ok(Some((row, cursor.u64("stepped exception")?)))
}

const MAX_KEY: u64 = (CHUNK_ROWS as u64 + 1) << 6;

impl Decoder {
    /// Makes a decoder for chunks of a run.
    pub(crate) fn of_run(run: &RunInfo) -> Self {
        Self::new(Layout::of_run(run), run.sampling())
    }

    /// Returns the number of lane-steps of the decoded chunk.
    pub(crate) fn steps(&self) -> u64 {
        self.stepped.iter().map(|row| u64::from(row.count_ones())).sum()
    }

    /// Returns the lanes with a kept episode that began in an earlier chunk.
    pub(crate) fn under_way(&self, columns: &Columns<'_>) -> u64 {
        let observes = self.layout().recorded.has_observations();
        let is_under_way = |part: &&Part| {
            let piece = &part.piece;
            // Where observations are recorded, the first one may be all that stands in an earlier chunk.
            let observed = || self.first_obs(columns, piece.lane, piece.number).is_some();
            part.kept && piece.from_row == 0 && (piece.from_age > 0 || observes && !observed())
        };
        self.parts.iter().filter(is_under_way).fold(0, |lanes, part| lanes | 1 << part.piece.lane)
    }

    /// Returns the returns of the agents in the kept episodes that ended, in their order; empty where none were recorded.
    pub(crate) fn agent_returns(&self) -> &[f64] {
        &self.beside.agents
    }

    /// Returns the kept episodes that ended in the decoded chunk.
    pub(crate) fn end_facts(&self, first_lane: u32) -> impl Iterator<Item = EndFacts> {
        self.parts.iter().filter_map(move |part| {
            part.end.map(|end| EndFacts {
                lane: first_lane + part.piece.lane as u32,
                number: part.piece.number,
                code: end.code & LISTED_CODE,
                length: part.piece.age,
                total_reward: end.total_reward,
                started_ms: part.piece.started_ms,
                start: part.piece.start,
                score: part.score,
            })
        })
    }
}
