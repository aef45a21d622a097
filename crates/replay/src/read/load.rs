//! Reading whole episodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::code::calls::CalledAt;
use crate::code::chunk::{Columns, Decoder, Part};
use crate::code::codec::Malformed;
use crate::code::episode::{Episode, EpisodeInfo, Steps};
use crate::code::events::CODE_HASH;
use crate::code::frame::Frames;
use crate::code::frame_chunk;
use crate::code::layout::ActionCoding;
use crate::code::packed_column::{self, PackedColumn, Streams};
use crate::code::record::{Header, Kind};
use crate::code::repeated::{self, TOO_LARGE};
use crate::code::run_record::RunInfo;
use crate::code::versions::{self, PolicyVersions};
use crate::disk::DiskFile;
use crate::limits::{ALL_EXPANDED_BYTES, CHAIN_BYTES, EPISODE_EXPANDED_BYTES, EPISODE_UNPACKED_BYTES};
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::stored::run_headers::read_record;
use rollhouse_core::ColumnData;

impl Replays {
    /// Loads everything that is recorded of an episode. Reads only the chunks in which the episode lies.
    ///
    /// # Errors
    /// If part of it is damaged or was dropped, or a file operation fails.
    pub fn load(&self, info: &EpisodeInfo) -> Result<Episode, ReadError> {
        Loader::new(self).load(info)
    }

    /// Loads everything that is recorded of many episodes, in their order; each may fail by itself. Costs least in the
    /// order of [`EpisodeInfo::compare_places`].
    pub fn load_many<'a>(
        &'a self,
        infos: impl IntoIterator<Item = &'a EpisodeInfo> + 'a,
    ) -> impl Iterator<Item = Result<Episode, ReadError>> + 'a {
        let mut loader = Loader::new(self);
        infos.into_iter().map(move |info| loader.load(info))
    }

    /// Returns the segments in which an episode lies, from the first to the last; some between them may have nothing of
    /// it.
    pub(crate) fn span(&self, info: &EpisodeInfo) -> Result<RangeInclusive<u64>, ReadError> {
        let chain = Loader::new(self).chain(info)?;
        let first = chain.last().map_or(info.place.segment, |link| link.place.0);
        Ok(first..=info.place.segment)
    }

    /// Finds the last chunk of a block in the segments before `segment`.
    fn tail_before(&self, segment: u64, info: &EpisodeInfo, first_lane: u32) -> Option<(u64, u64)> {
        self.segments.range(..segment).rev().find_map(|(&number, segment)| {
            let tail = segment.index.tails.iter().find(|tail| {
                tail.first_lane == first_lane
                    && segment.runs.get(tail.run).is_some_and(|run| run.run() == info.run_id())
            })?;
            Some((number, u64::from(tail.offset)))
        })
    }
}

/// A reader of episodes that keeps the chunks it decoded last: an episode costs little after its neighbours.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    replays: &'a Replays,
    /// Decoded chunks, in the order in which they were last used.
    chunks: Vec<Arc<Chunk>>,
}

/// A decoded chunk, with the parts of episodes in it.
#[derive(Debug)]
struct Chunk {
    place: (u64, u64),
    header: Header,
    payload: Vec<u8>,
    /// Payload of the pictures after the chunk.
    frames: Option<Vec<u8>>,
    decoder: Decoder,
    windows: Vec<Vec<(u64, u32)>>,
    rows: (Vec<u64>, Vec<usize>),
}

impl<'a> Loader<'a> {
    pub(crate) const fn new(replays: &'a Replays) -> Self {
        Self { replays, chunks: Vec::new() }
    }

    pub(crate) fn load(&mut self, info: &EpisodeInfo) -> Result<Episode, ReadError> {
        let mut chain = self.chain(info)?;
        let mut draft = Draft::new(&info.run);
        let malformed = |what: Malformed| ReadError::Malformed { name: info.name, what: what.to_string() };
        while let Some(ChainLink { place, at, chunk }) = chain.pop() {
            let chunk = match chunk {
                Some(chunk) => chunk,
                None => self
                    .chunk(info, place.0, place.1)?
                    .ok_or(ReadError::Incomplete { name: info.name, missing_steps: info.length })?,
            };
            if chunk.decoder.parts.len() <= at {
                // The file was changed between.
                return Err(malformed(Malformed("chunk")));
            }
            let columns = Columns::find(&chunk.payload, chunk.decoder.layout()).map_err(malformed)?;
            let part = &chunk.decoder.parts[at];
            let (decoder, windows) = (&chunk.decoder, &chunk.windows[at]);
            let streams = &mut Streams::default();
            draft.take(decoder, &columns, part, windows, &chunk.rows, streams).map_err(malformed)?;
            if let (Some(frames), Some(steps)) = (&chunk.frames, &mut draft.steps) {
                // Damaged ones are missing, and nothing else is.
                let _pictures = frame_chunk::take(frames, &chunk.decoder, part, &mut steps.frames);
            }
        }
        Ok(draft.finish(info.clone()))
    }

    /// Returns the chunks in which an episode lies, last first.
    fn chain(&mut self, info: &EpisodeInfo) -> Result<Vec<ChainLink>, ReadError> {
        let (mut segment, mut offset) = (info.place.segment, info.place.offset);
        let mut chain: Vec<ChainLink> = Vec::new();
        let (mut missing, mut room) = (info.length, CHAIN_BYTES);
        // First lane and position of the chunk that was found last.
        let mut behind: Option<(u32, u64)> = None;
        loop {
            let incomplete = || ReadError::Incomplete { name: info.name, missing_steps: missing };
            let chunk = self.chunk(info, segment, offset)?.ok_or_else(incomplete)?;
            let header = &chunk.header;
            let same_block = behind.is_none_or(|(first_lane, position)| {
                first_lane == header.first_lane
                    && header.position.checked_add(u64::from(header.rows)) == Some(position)
            });
            behind = Some((header.first_lane, header.position));
            let lane = info.name.lane.checked_sub(header.first_lane).map(|lane| lane as usize);
            if header.tag != info.run.tag() || !same_block {
                return Err(incomplete());
            }
            let mut parts = chunk.decoder.parts.iter();
            let number = info.name.number;
            let here = parts.position(|part| Some(part.piece.lane) == lane && part.piece.number == number);
            let at =
                here.filter(|&at| chunk.decoder.parts[at].piece.age == missing).ok_or_else(incomplete)?;
            let piece = chunk.decoder.parts[at].piece;
            missing = piece.from_age;
            // The first observation may stand at the very end of the chunk before the first step.
            let begun = !info.recorded().has_observations() || {
                let columns = Columns::find(&chunk.payload, chunk.decoder.layout());
                columns.is_ok_and(|columns| {
                    chunk.decoder.first_obs(&columns, piece.lane, piece.number).is_some()
                })
            };
            let (prev, first_lane) = (header.prev, header.first_lane);
            let left = room.checked_sub(chunk.memory());
            room = left.unwrap_or(room);
            chain.push(ChainLink { place: (segment, offset), at, chunk: left.map(|_| chunk) });
            if missing == 0 && begun {
                return Ok(chain);
            }
            if prev != 0 {
                offset = u64::from(prev);
            } else {
                let tail = self.replays.tail_before(segment, info, first_lane);
                (segment, offset) =
                    tail.ok_or(ReadError::Incomplete { name: info.name, missing_steps: missing })?;
            }
        }
    }

    /// Returns the chunk at a place; `None` if no intact chunk of the episode's run is there.
    fn chunk(
        &mut self,
        info: &EpisodeInfo,
        segment: u64,
        offset: u64,
    ) -> Result<Option<Arc<Chunk>>, ReadError> {
        let place = (segment, offset);
        if let Some(known) = self.chunks.iter().position(|chunk| chunk.place == place) {
            let chunk = self.chunks.remove(known);
            self.chunks.push(chunk.clone());
            return Ok(Some(chunk));
        }
        let file = self.replays.file(segment)?;
        let Some(chunk) = Chunk::read(info, &*file, place) else { return Ok(None) };
        let chunk = Arc::new(chunk);
        if chunk.memory() <= KEPT_CHUNK_BYTES {
            if self.chunks.len() >= KEPT_CHUNKS {
                self.chunks.remove(0);
            }
            self.chunks.push(chunk.clone());
        }
        Ok(Some(chunk))
    }
}

impl Chunk {
    fn read(info: &EpisodeInfo, file: &dyn DiskFile, place: (u64, u64)) -> Option<Self> {
        let (header, payload) = read_record(file, place.1)?;
        if header.kind != Kind::Chunk || header.tag != info.run.tag() {
            return None;
        }
        let mut decoder = Decoder::of_run(&info.run);
        let columns = decoder.decode(&header, &payload).ok()?;
        let windows = decoder.windows(&columns).ok()?;
        let rows = decoder.kept_rows();
        let frames = if info.run.frames_every > 0 { frames_of(file, place.1, &header) } else { None };
        Some(Self { place, header, payload, frames, decoder, windows, rows })
    }

    /// Returns about how many bytes of memory it takes.
    fn memory(&self) -> usize {
        let hashes = self.windows.iter().map(|windows| size_of_val(&windows[..])).sum::<usize>();
        self.payload.len()
            + self.frames.as_ref().map_or(0, Vec::len)
            + self.decoder.memory()
            + size_of_val(&self.windows[..])
            + hashes
            + size_of_val(&self.rows.0[..])
            + size_of_val(&self.rows.1[..])
    }
}

/// A chunk in which an episode lies.
#[derive(Debug)]
struct ChainLink {
    /// Segment and offset of the chunk.
    place: (u64, u64),
    /// Place of the episode's part in the chunk.
    at: usize,
    /// The chunk, if there was room for it.
    chunk: Option<Arc<Chunk>>,
}

/// Reads the payload of the record of pictures after a chunk; `None` if there is no such record, or it is damaged.
fn frames_of(file: &dyn DiskFile, offset: u64, chunk: &Header) -> Option<Vec<u8>> {
    let (header, payload) = read_record(file, offset + chunk.record_len())?;
    let is_of_chunk =
        header.kind == Kind::Frames && header.tag == chunk.tag && u64::from(header.prev) == offset;
    is_of_chunk.then_some(payload)
}

/// Chunks that a loader keeps: one of each block of 4,096 lanes.
const KEPT_CHUNKS: usize = 64;
/// Bytes of memory of a chunk that a loader keeps; rows of traces may be larger than a whole chunk ought to be.
const KEPT_CHUNK_BYTES: usize = 1 << 20;

/// An episode that is being put together from its parts.
#[derive(Debug)]
pub(crate) struct Draft {
    actions: ColumnData,
    windows: Vec<(u64, u32)>,
    end_hash: Option<u32>,
    versions: PolicyVersions,
    step_columns: Vec<ColumnData>,
    calls: Vec<CalledAt>,
    steps: Option<Steps>,
    /// Memory of values that take less on disk.
    expanded: Expanded,
    /// How much that may be.
    most: Expanded,
    scratch: Vec<u8>,
}

/// Bytes of memory of values that take fewer on disk.
#[derive(Debug, Clone, Copy)]
struct Expanded {
    /// Values that repeat, and actions.
    repeated: usize,
    /// Packed columns.
    unpacked: usize,
}

impl Expanded {
    const fn all(self) -> usize {
        self.repeated + self.unpacked
    }
}

impl Draft {
    pub(crate) fn new(run: &RunInfo) -> Self {
        let RunInfo { spec, recorded, step_columns, .. } = run;
        let empty = |dtype| ColumnData::zeros(dtype, 0);
        let obs = || spec.obs_columns().iter().map(|c| empty(c.dtype)).collect::<Vec<_>>();
        let steps = recorded.has_observations().then(|| Steps {
            first_obs: obs(),
            obs: obs(),
            rewards: Vec::new(),
            infos: spec.info_channels.iter().map(|c| empty(c.dtype)).collect(),
            frames: Frames::default(),
        });
        Self {
            actions: empty(spec.action_space.dtype()),
            windows: Vec::new(),
            end_hash: None,
            versions: PolicyVersions::default(),
            step_columns: step_columns.unknown(0),
            calls: Vec::new(),
            steps,
            expanded: Expanded { repeated: 0, unpacked: 0 },
            most: Expanded { repeated: EPISODE_EXPANDED_BYTES, unpacked: EPISODE_UNPACKED_BYTES },
            scratch: Vec::new(),
        }
    }

    /// Adds the part of the episode that a chunk has. Parts must come in order. `streams` are those of the chunk.
    pub(crate) fn take(
        &mut self,
        decoder: &Decoder,
        columns: &Columns<'_>,
        part: &Part,
        windows: &[(u64, u32)],
        rows: &(Vec<u64>, Vec<usize>),
        streams: &mut Streams,
    ) -> Result<(), Malformed> {
        let before = self.most.repeated.saturating_sub(self.expanded.repeated);
        let mut left = before;
        self.windows.extend_from_slice(windows);
        self.end_hash = part.end.filter(|end| end.code & CODE_HASH != 0).map(|end| end.hash);
        let layout = decoder.layout();
        match (layout.actions, &mut self.actions) {
            (ActionCoding::Planes { .. }, ColumnData::I64(actions)) => {
                // Ages are counted over rows, of which a chunk has at most 4096.
                let steps = (part.piece.age - part.piece.from_age) as usize;
                left = left.checked_sub(steps * size_of::<i64>()).ok_or(TOO_LARGE)?;
                actions.reserve(steps);
                decoder.discrete_actions(columns, part, actions)?;
            }
            (ActionCoding::Raw { bytes }, actions) => {
                self.scratch.clear();
                match (columns.repeated_actions(), columns.packed_actions()) {
                    ([], []) => Decoder::raw_rows(columns.actions(), bytes, part, rows, &mut self.scratch)?,
                    (runs, []) => repeated::read(runs, bytes, part, rows, &mut left, &mut self.scratch)?,
                    (_, packed) => {
                        let place = layout.packings.len();
                        let column =
                            PackedColumn { bytes: packed, place, row_bytes: bytes, has_firsts: false };
                        let before = self.most.unpacked.saturating_sub(self.expanded.unpacked);
                        let mut left = before;
                        column.read(decoder, part, &rows.0, streams, &mut left, &mut self.scratch)?;
                        self.expanded.unpacked += before - left;
                    }
                }
                append_le(actions, &self.scratch)?;
            }
            (ActionCoding::Planes { .. }, _) => return Err(Malformed("action type")),
        }
        let changes = versions::read(columns.versions(), decoder.stepped.len() as u32)?;
        self.versions.take(part, &decoder.stepped, &changes);
        let noted = columns.noted().iter().zip(&layout.unnoted);
        for ((column, unnoted), target) in noted.zip(&mut self.step_columns) {
            self.scratch.clear();
            repeated::read(column, unnoted.len(), part, rows, &mut left, &mut self.scratch)?;
            append_le(target, &self.scratch)?;
        }
        for called in decoder.calls_of(part) {
            if !(part.piece.from_age..part.piece.age).contains(&called.step) {
                return Err(Malformed("call: step"));
            }
            self.calls.push(called.clone());
        }
        self.take_steps(decoder, columns, part, rows, &mut left)?;
        self.take_packed(decoder, columns, part, &rows.0, streams)?;
        self.expanded.repeated += before - left;
        Ok(())
    }

    fn take_steps(
        &mut self,
        decoder: &Decoder,
        columns: &Columns<'_>,
        part: &Part,
        rows: &(Vec<u64>, Vec<usize>),
        left: &mut usize,
    ) -> Result<(), Malformed> {
        let layout = decoder.layout();
        let Some(steps) = &mut self.steps else { return Ok(()) };
        if let Some(first) = decoder.first_obs(columns, part.piece.lane, part.piece.number) {
            let mut rest = first;
            let all = steps.first_obs.iter_mut().zip(&layout.obs_columns).zip(columns.packed());
            for ((column, &bytes), _) in all.filter(|(_, packed)| packed.is_empty()) {
                let row = rest.split_off(..bytes).ok_or(Malformed("first observation"))?;
                column.clear();
                append_le(column, row)?;
            }
        }
        let widths = layout.obs_columns.iter().chain(&layout.info_columns);
        let targets = steps.obs.iter_mut().chain(&mut steps.infos);
        let no_repeated = layout.obs_columns.iter().map(|_| &[][..]);
        let repeated = no_repeated.chain(columns.repeated_infos().iter().copied());
        let coded = columns.steps().iter().zip(repeated);
        let raw =
            coded.zip(widths).zip(targets).zip(columns.packed()).filter(|(_, packed)| packed.is_empty());
        for ((((column, repeated), &bytes), target), _) in raw {
            self.scratch.clear();
            match repeated {
                [] => Decoder::raw_rows(column, bytes, part, rows, &mut self.scratch)?,
                repeated => repeated::read(repeated, bytes, part, rows, left, &mut self.scratch)?,
            }
            append_le(target, &self.scratch)?;
        }
        self.scratch.clear();
        Decoder::raw_rows(columns.rewards(), size_of::<f64>(), part, rows, &mut self.scratch)?;
        let rewards = self.scratch.as_chunks().0.iter();
        steps.rewards.extend(rewards.map(|bytes| f64::from_le_bytes(*bytes)));
        Ok(())
    }

    fn take_packed(
        &mut self,
        decoder: &Decoder,
        columns: &Columns<'_>,
        part: &Part,
        rows: &[u64],
        streams: &mut Streams,
    ) -> Result<(), Malformed> {
        let layout = decoder.layout();
        let Some(steps) = &mut self.steps else { return Ok(()) };
        let mut left = self.most.unpacked.saturating_sub(self.expanded.unpacked);
        let before = left;
        let begins = decoder.has_begun(part.piece.lane, part.piece.number);
        let widths = layout.obs_columns.iter().chain(&layout.info_columns);
        let targets = steps.obs.iter_mut().chain(&mut steps.infos);
        let packed = columns.packed().iter().zip(widths).zip(targets).enumerate();
        for (place, ((bytes, &row_bytes), target)) in packed.filter(|(_, ((bytes, _), _))| !bytes.is_empty())
        {
            let mut first = steps.first_obs.get_mut(place);
            let column = PackedColumn { bytes, place, row_bytes, has_firsts: first.is_some() };
            self.scratch.clear();
            column.read(decoder, part, rows, streams, &mut left, &mut self.scratch)?;
            let mut rest = &self.scratch[..];
            if let Some(first) = first.as_mut().filter(|_| begins) {
                first.clear();
                append_le(first, rest.split_off(..row_bytes).ok_or(Malformed("first observation"))?)?;
            }
            append_le(target, rest)?;
        }
        self.expanded.unpacked += before - left;
        Ok(())
    }

    pub(crate) fn finish(self, info: EpisodeInfo) -> Episode {
        let Self { actions, windows, end_hash, versions, step_columns, calls, steps, .. } = self;
        Episode {
            info,
            actions,
            windows,
            end_hash,
            policy_versions: versions,
            step_columns,
            calls,
            steps,
            from: None,
        }
    }
}

/// An assembler of episodes that reads every chunk once, front to back.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The episode under way in each lane of each run.
    open: BTreeMap<(u128, u32), Underway>,
    /// Bytes of memory that values of these take and that take fewer on disk.
    expanded: usize,
}

#[derive(Debug)]
struct Underway {
    number: u64,
    age: u64,
    /// What there is of it; `None` if it has no room beside the others.
    draft: Option<Draft>,
}

impl Underway {
    fn expanded(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.expanded.all())
    }
}

/// An episode whose end the assembler has reached.
#[derive(Debug)]
pub(crate) enum Assembled {
    /// The whole episode.
    Whole(Box<Episode>),
    /// Its first steps are missing.
    Incomplete(Box<EpisodeInfo>),
    /// It had no room beside others and is to be loaded by itself.
    Apart(Box<EpisodeInfo>),
}

impl Assembler {
    /// Adds a decoded chunk; returns the episodes that ended in it, one for each of `infos`, which must be those of
    /// this chunk in order.
    pub(crate) fn add(
        &mut self,
        run: u128,
        header: &Header,
        decoder: &Decoder,
        columns: &Columns<'_>,
        mut infos: impl Iterator<Item = EpisodeInfo>,
        of: &RunInfo,
    ) -> Result<Vec<Assembled>, Malformed> {
        let full = decoder.layout().recorded.has_observations();
        let windows = decoder.windows(columns)?;
        let layout = decoder.layout();
        let rows = if full || layout.actions.planes() == 0 || !layout.unnoted.is_empty() {
            decoder.kept_rows()
        } else {
            (Vec::new(), Vec::new())
        };
        let (mut done, mut streams) = (Vec::new(), Streams::default());
        for (part, windows) in decoder.parts.iter().zip(&windows).filter(|(part, _)| part.kept) {
            let piece = &part.piece;
            let key = (run, header.first_lane + piece.lane as u32);
            // What begins after another part of its lane cannot have been under way before.
            let began_here = piece.from_age == 0 && piece.from_row > 0;
            let known = if began_here { None } else { self.open.remove(&key) };
            self.expanded -= known.as_ref().map_or(0, Underway::expanded);
            let known = known.filter(|u| u.number == piece.number && u.age == piece.from_age);
            let draft = match known {
                Some(underway) => Some(underway.draft),
                None if piece.from_age == 0 => Some(Some(Draft::new(of))),
                None => None,
            };
            let draft = match draft {
                Some(Some(mut draft)) => {
                    let room = ALL_EXPANDED_BYTES.saturating_sub(self.expanded);
                    draft.most = Expanded { repeated: EPISODE_EXPANDED_BYTES.min(room), unpacked: room };
                    match draft.take(decoder, columns, part, windows, &rows, &mut streams) {
                        Ok(()) => Some(Some(draft)),
                        Err(TOO_LARGE | packed_column::TOO_LARGE) => Some(None),
                        Err(malformed) => return Err(malformed),
                    }
                }
                other => other,
            };
            if part.end.is_some() {
                let Some(info) = infos.next() else { return Err(Malformed("ends")) };
                done.push(match draft {
                    Some(Some(draft)) => Assembled::Whole(Box::new(draft.finish(info))),
                    Some(None) => Assembled::Apart(Box::new(info)),
                    None => Assembled::Incomplete(Box::new(info)),
                });
            } else if let Some(draft) = draft.filter(|_| piece.age > 0 || full) {
                let underway = Underway { number: piece.number, age: piece.age, draft };
                self.expanded += underway.expanded();
                // What was under way in the lane is gone.
                let before = self.open.insert(key, underway);
                self.expanded -= before.as_ref().map_or(0, Underway::expanded);
            }
        }
        Ok(done)
    }
}

fn append_le(column: &mut ColumnData, bytes: &[u8]) -> Result<(), Malformed> {
    if column.extend_le(bytes) { Ok(()) } else { Err(Malformed("column length")) }
}
