//! Reading a folder of recordings.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rollhouse_core::{EpisodeName, GameResult, Interruption, Outcome, RunId};

use crate::code::chunk::{Columns, Decoder, Part};
use crate::code::episode::{EpisodeInfo, Place, agents_at, known_return, share_of, start_of};
use crate::code::events::CODE_RESULT_SHIFT;
use crate::code::extent::{EndFacts, Extent};
use crate::code::record::{Header, Kind};
use crate::code::run_record::{KnownRuns, RunInfo};
use crate::disk::{Disk, DiskFile, read_range};
use crate::read::headless::Headless;
use crate::read::read_error::ReadError;
use crate::read::segment::Segment;
use crate::stored::aside::{SetAside, aside_path, asides_dir};
use crate::stored::catalogue::Catalogue;
use crate::stored::damage::{Damage, DamageCause};
use crate::stored::index::SegmentIndex;
use crate::stored::lock::is_written;
use crate::stored::names::{segment_name, segment_numbers, segments_dir};
use crate::stored::rows::{self, PackedRows, RowChunk};
use crate::stored::run_headers::{read_header, read_record};
use crate::stored::run_table::RunKey;
use crate::stored::scan::{Found, Records, Scan, scan};
use crate::stored::summary::{Entry, EpisodeKey, summaries_dir};

/// The recordings of a folder as they were when it was opened. Takes no lock: a writer may go on, and what it adds is
/// seen when the folder is opened again. All methods may block for the disk.
#[derive(Debug)]
pub struct Replays {
    pub(crate) disk: Arc<dyn Disk>,
    dir: PathBuf,
    pub(crate) segments: BTreeMap<u64, Arc<Segment>>,
    pub(crate) headless: Headless,
    /// Runs that were used last.
    known_runs: Arc<KnownRuns>,
    /// Whether a writer had the folder when it was opened.
    writing: bool,
    shows: Shows,
    /// Episodes that were open where a run's recording ends, each with whether its beginning is gone; read once they
    /// are asked for.
    open_ends: OnceLock<Vec<(EpisodeInfo, bool)>>,
}

/// Knowledge of a folder from before it is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before<'a> {
    /// Segments that were read earlier.
    pub(crate) segments: Option<&'a BTreeMap<u64, Arc<Segment>>>,
    /// Catalogue with the entries of other segments.
    pub(crate) catalogue: &'a Catalogue,
    /// Runs that were used last.
    pub(crate) runs: &'a Arc<KnownRuns>,
}

/// A choice of which of a folder's episodes are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// List all that are not set aside.
    Kept,
    /// List only those that are set aside.
    SetAside,
}

impl Replays {
    /// Opens the folder `dir`. Segments that the catalogue does not know are scanned.
    ///
    /// # Errors
    /// If the folder is not there or a file operation fails. Damage is no error.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        let (catalogue, runs) = (Catalogue::open(&*disk, dir), Arc::default());
        let before = Before { segments: None, catalogue: &catalogue, runs: &runs };
        Self::open_with(disk, dir, Some(before), Shows::Kept)
    }

    /// Opens the folder as [`Replays::open`] does, but reads every byte and trusts no catalogue: finds all damage.
    ///
    /// # Errors
    /// As [`Replays::open`].
    pub fn open_scanning(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(disk, dir, None, Shows::Kept)
    }

    /// Opens the folder as [`Replays::open`] does, with what is known from before.
    pub(crate) fn open_after(disk: Arc<dyn Disk>, dir: &Path, before: Before<'_>) -> Result<Self, ReadError> {
        Self::open_with(disk, dir, Some(before), Shows::Kept)
    }

    /// Opens the folder as [`Replays::open`] does, but lists and loads only the episodes that are set aside.
    ///
    /// # Errors
    /// As [`Replays::open`].
    pub(crate) fn open_set_aside(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        let (catalogue, runs) = (Catalogue::open(&*disk, dir), Arc::default());
        let before = Before { segments: None, catalogue: &catalogue, runs: &runs };
        Self::open_with(disk, dir, Some(before), Shows::SetAside)
    }

    /// Opens the folder; what was known before and what the catalogue says is trusted, unless `before` is `None`.
    fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        before: Option<Before<'_>>,
        shows: Shows,
    ) -> Result<Self, ReadError> {
        names_in(&*disk, dir)?;
        // Asked before reading: a writer that ends meanwhile has written everything by then.
        let writing = is_written(&*disk, dir).map_err(ReadError::Disk)?;
        let numbers = segment_numbers(&*disk, dir).map_err(|e| ReadError::disk("list", dir, e))?;
        let mut replays = Self {
            disk,
            dir: dir.into(),
            segments: BTreeMap::new(),
            headless: Headless::default(),
            known_runs: before.map_or_else(Arc::default, |before| before.runs.clone()),
            writing,
            shows,
            open_ends: OnceLock::new(),
        };
        let known = |number: &u64| before?.segments?.get(number).filter(|segment| segment.index.sealed);
        let has_entries = replays.disk.real_dir(&summaries_dir(dir)).is_some();
        let catalogue = before.map(|before| before.catalogue).filter(|_| has_entries);
        let has_asides = replays.disk.real_dir(&asides_dir(dir)).is_some();
        let newest = numbers.last().copied();
        for number in numbers {
            if let Some(segment) = known(&number) {
                replays.segments.insert(number, segment.clone());
                continue;
            }
            let catalogued = catalogue.and_then(|catalogue| {
                let Entry { index, runs, .. } = catalogue.entry(&*replays.disk, dir, number)?;
                Some(Segment { index, runs, aside: SetAside::default(), damage: Vec::new(), torn_bytes: 0 })
            });
            let segment = match catalogued {
                Some(segment) => Some(segment),
                None => replays.scan_segment(number, newest == Some(number))?,
            };
            if let Some(mut segment) = segment {
                if has_asides {
                    replays.load_aside(&mut segment)?;
                }
                replays.segments.insert(number, Arc::new(segment));
            }
        }
        let each_end = |segment: &_, extent: &_, visit: &mut dyn FnMut(_, _, _, _)| {
            replays.each_end(segment, extent, visit)
        };
        replays.headless = Headless::of(&replays.segments, &each_end)?;
        Ok(replays)
    }

    /// Reads what is set aside in a segment. If that is damaged, it is listed, and nothing is left out.
    fn load_aside(&self, segment: &mut Segment) -> Result<(), ReadError> {
        let SegmentIndex { number, bytes, .. } = segment.index;
        match SetAside::load(&*self.disk, &self.dir, number) {
            Ok(aside) => segment.aside = aside,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => segment.damage.push(Damage {
                segment: number,
                from: bytes,
                to: bytes,
                cause: DamageCause::Aside,
            }),
            Err(error) => return Err(ReadError::disk("read", &aside_path(&self.dir, number), error)),
        }
        Ok(())
    }

    /// Scans a segment; `None` if it is gone: the writer may have dropped it since the folder was listed.
    fn scan_segment(&self, number: u64, newest: bool) -> Result<Option<Segment>, ReadError> {
        let path = self.path(number);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReadError::disk("open", &path, error)),
        };
        let Scan { index, mut damage, torn_from, .. } =
            scan(number, &*file).map_err(|e| ReadError::disk("read", &path, e))?;
        let torn_bytes = torn_from.map_or(0, |from| index.bytes - from);
        if !index.sealed && !newest {
            damage.push(Damage {
                segment: number,
                from: index.bytes,
                to: index.bytes,
                cause: DamageCause::Unsealed,
            });
        }
        let Entry { mut index, runs, .. } = Entry::new(index);
        index.headers = Vec::new();
        Ok(Some(Segment { index, runs, aside: SetAside::default(), damage, torn_bytes }))
    }

    /// Returns the stretches of segments that are known not to be intact. They are complete only after
    /// [`Replays::open_scanning`]: otherwise, segments that the catalogue knows, and that have not changed since, are
    /// not read as a whole.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.segments.values().flat_map(|segment| &segment.damage)
    }

    /// Returns whether a writer had the folder when it was opened.
    pub const fn is_writing(&self) -> bool {
        self.writing
    }

    /// Counts the episodes that are not listed because their beginning is gone: dropped to keep a budget, lost while
    /// the disk took nothing, or damaged.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn incomplete(&self) -> Result<u64, ReadError> {
        let open = self.open_at_the_end()?.iter().filter(|(_, is_headless)| *is_headless);
        Ok(self.headless.ended() + open.count() as u64)
    }

    /// Visits every episode, in the order in which they ended; those that broke off come last.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn for_each(&self, mut visit: impl FnMut(EpisodeInfo)) -> Result<(), ReadError> {
        for segment in self.segments.values() {
            for extent in &segment.index.extents {
                self.read_extent(segment, extent, &mut visit)?;
            }
        }
        self.broken_off()?.into_iter().for_each(visit);
        Ok(())
    }

    /// Counts the episodes: those that ended, which are not read for it, and those that broke off.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn count(&self) -> Result<u64, ReadError> {
        Ok(self.stats()?.episodes.values().sum())
    }

    /// Returns whether an episode of a segment is listed, given that either those set aside or the others are.
    pub(crate) fn lists(&self, segment: &Segment, info: &EpisodeInfo) -> bool {
        self.lists_end(segment, info.place.offset, || EpisodeKey::of(info))
    }

    /// Returns whether an episode that ended in the chunk at `offset` is listed.
    pub(crate) fn lists_end(&self, segment: &Segment, offset: u64, key: impl FnOnce() -> EpisodeKey) -> bool {
        let aside = !segment.aside.is_empty() && segment.aside.has(offset, key());
        aside == (self.shows == Shows::SetAside)
    }

    /// Returns whether only episodes that are set aside are listed.
    pub(crate) fn shows_set_aside(&self) -> bool {
        self.shows == Shows::SetAside
    }

    /// Returns whether no episode that ended in a segment is listed.
    pub(crate) fn lists_none(&self, segment: &Segment) -> bool {
        self.shows == Shows::SetAside && segment.aside.is_empty()
    }

    /// Returns whether only a part of a segment's episodes is listed, so that the facts about its extents are not
    /// enough.
    pub(crate) fn lists_a_part(&self, segment: &Segment) -> bool {
        !segment.aside.is_empty() || self.shows == Shows::SetAside
    }

    /// Returns the names of the episodes that are set aside.
    pub(crate) fn names_set_aside(&self) -> BTreeSet<EpisodeName> {
        let asides = self.segments.values().flat_map(|segment| segment.aside.episodes());
        let name = |key: &EpisodeKey| EpisodeName {
            run: RunId::from_u128(key.run).short(),
            lane: key.lane,
            number: key.number,
        };
        asides.map(|aside| name(&aside.key)).collect()
    }

    /// Visits the episodes that ended in an extent, except those that are set aside.
    pub(crate) fn read_extent(
        &self,
        segment: &Segment,
        extent: &Extent,
        visit: &mut impl FnMut(EpisodeInfo),
    ) -> Result<(), ReadError> {
        if self.lists_none(segment) {
            return Ok(());
        }
        self.each_chunk(segment, extent, &mut |run, decoder, offset, header, _| {
            let number = segment.index.number;
            let infos = infos(run, decoder, number, offset, header);
            let listed = infos.filter(|info| self.lists(segment, info));
            listed.filter(|info| !self.is_headless(header, info)).for_each(&mut *visit);
        })
    }

    /// Returns whether the beginning of an episode, which ended in the chunk with that header, is gone.
    pub(crate) fn is_headless(&self, header: &Header, info: &EpisodeInfo) -> bool {
        self.headless.has(info.place.segment, header.run, info.name.lane, info.name.number)
    }

    /// Visits the ends in an extent, each with its run's index in the segment, its block's first lane and its chunk's
    /// offset: read from the extent's rows if they are kept, else from its chunks. Ends of episodes that are not listed
    /// are visited too.
    pub(crate) fn each_end(
        &self,
        segment: &Segment,
        extent: &Extent,
        visit: &mut dyn FnMut(u32, u32, u64, EndFacts),
    ) -> Result<(), ReadError> {
        let packed = self.rows(segment, extent);
        if let Some(Ok(chunks)) = packed.as_ref().map(RowChunk::all) {
            for chunk in chunks {
                (0..chunk.len())
                    .for_each(|at| visit(chunk.run, chunk.first_lane, chunk.offset(), chunk.end(at)));
            }
            return Ok(());
        }
        self.each_chunk(segment, extent, &mut |_, decoder, offset, header, _| {
            let first_lane = header.first_lane;
            decoder.end_facts(first_lane).for_each(|end| visit(header.run, first_lane, offset, end));
        })
    }

    /// Visits the ends of the episodes that are listed.
    pub(crate) fn each_listed_end(
        &self,
        segment: &Segment,
        extent: &Extent,
        visit: &mut impl FnMut(&RunKey, EndFacts),
    ) -> Result<(), ReadError> {
        if self.lists_none(segment) {
            return Ok(());
        }
        self.each_end(segment, extent, &mut |run, _, offset, end| {
            let EndFacts { lane, number, .. } = end;
            let Some(info) = segment.runs.get(run) else { return };
            let key = || EpisodeKey { run: info.run().as_u128(), lane, number };
            if self.lists_end(segment, offset, key)
                && !self.headless.has(segment.index.number, run, lane, number)
            {
                visit(info, end);
            }
        })
    }

    /// Reads the rows of an extent, if they are kept.
    pub(crate) fn rows(&self, segment: &Segment, extent: &Extent) -> Option<PackedRows> {
        rows::load(&*self.disk, &self.dir, segment.index.number, extent)
    }

    /// Visits the chunks of an extent, decoded.
    pub(crate) fn each_chunk(
        &self,
        segment: &Segment,
        extent: &Extent,
        visit: &mut impl FnMut(&Arc<RunInfo>, &Decoder, u64, &Header, &Columns<'_>),
    ) -> Result<(), ReadError> {
        let number = segment.index.number;
        let path = self.path(number);
        let file = self.file(number)?;
        let bytes =
            read_range(&*file, extent.from, extent.to).map_err(|e| ReadError::disk("read", &path, e))?;
        let mut decoders: BTreeMap<u32, (Arc<RunInfo>, Decoder)> = BTreeMap::new();
        for found in Records::new(&bytes, extent.from) {
            let Found::Record(offset, header, payload) = found else { continue };
            let key = segment.runs.get(header.run).filter(|run| run.tag() == header.tag);
            let (Kind::Chunk, Some(key)) = (header.kind, key) else { continue };
            let (run, decoder) = match decoders.entry(header.run) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(unknown) => {
                    let Some(run) = self.info(segment, key) else { continue };
                    let decoder = Decoder::of_run(&run);
                    unknown.insert((run, decoder))
                }
            };
            if let Ok(columns) = decoder.decode(&header, payload) {
                visit(run, decoder, offset, &header, &columns);
            }
        }
        Ok(())
    }

    /// Returns the episodes that were open where a run's recording ends, unless the run is still being recorded.
    pub(crate) fn broken_off(&self) -> Result<Vec<EpisodeInfo>, ReadError> {
        if self.shows == Shows::SetAside {
            return Ok(Vec::new());
        }
        let open = self.open_at_the_end()?.iter();
        Ok(open.filter(|(_, is_headless)| !is_headless).map(|(info, _)| info.clone()).collect())
    }

    /// Returns the episodes that were open where a run's recording ends, each with whether its beginning is gone. They
    /// are read once.
    pub(crate) fn open_at_the_end(&self) -> Result<&[(EpisodeInfo, bool)], ReadError> {
        if let Some(known) = self.open_ends.get() {
            return Ok(known);
        }
        let mut open = Vec::new();
        self.read_open_ends(false, |info, is_headless| open.push((info, is_headless)))?;
        Ok(self.open_ends.get_or_init(|| open))
    }

    /// Returns the episodes that are under way in runs that are being recorded, as far as the disk has them: they have
    /// no end yet, and read as `crashed` with the steps that are there. A folder that nobody writes to has none.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn under_way(&self) -> Result<Vec<EpisodeInfo>, ReadError> {
        let mut open = Vec::new();
        if self.writing && self.shows == Shows::Kept {
            self.read_open_ends(true, |info, is_headless| open.extend((!is_headless).then_some(info)))?;
        }
        Ok(open)
    }

    /// Visits the episodes that are open in the last chunks of runs that are being recorded, or of the others.
    fn read_open_ends(
        &self,
        of_live: bool,
        mut visit: impl FnMut(EpisodeInfo, bool),
    ) -> Result<(), ReadError> {
        let mut last: BTreeMap<(u128, u32), (u64, u32, u32)> = BTreeMap::new();
        let mut over = BTreeSet::new();
        let mut session_of = BTreeMap::new();
        for (&number, segment) in &self.segments {
            for tail in &segment.index.tails {
                if let Some(run) = segment.runs.get(tail.run) {
                    last.insert((run.run().as_u128(), tail.first_lane), (number, tail.offset, tail.run));
                }
            }
            for run in &segment.index.runs {
                if let Some(info) = segment.runs.get(run.index) {
                    session_of.insert(info.run().as_u128(), segment.index.session);
                    if run.ended {
                        over.insert(info.run().as_u128());
                    }
                }
            }
        }
        let current = self.segments.values().next_back().map(|segment| segment.index.session);
        for ((run, first_lane), (number, offset, index)) in last {
            let live = self.writing && session_of.get(&run).copied() == current;
            if live != of_live || over.contains(&run) {
                continue;
            }
            let info = self.segments.get(&number).and_then(|s| self.info(s, s.runs.get(index)?));
            let Some(info) = info else { continue };
            let file = self.file(number)?;
            let mut decoder = Decoder::of_run(&info);
            let Some((header, payload)) = read_record(&*file, u64::from(offset)) else { continue };
            if decoder.decode(&header, &payload).is_ok() {
                let open = decoder.parts.iter().filter(|part| part.kept && part.end.is_none());
                let open = open.filter(|part| part.piece.age > 0 && is_rest(part, &header));
                let headless = self.headless.open(run, info.placement, first_lane);
                for part in open {
                    let steps = decoder.steps();
                    let episode = info_of(&info, (&decoder, part), number, u64::from(offset), &header, steps);
                    visit(episode, headless >> part.piece.lane & 1 == 1);
                }
            }
        }
        Ok(())
    }

    /// Returns a run of a segment, which is read unless it was used lately: from the segment's entry, which stays when the
    /// segment is in an archive, else from the segment. `None` if it cannot be read.
    pub(crate) fn info(&self, segment: &Segment, key: &RunKey) -> Option<Arc<RunInfo>> {
        let number = segment.index.number;
        self.known_runs.info((key.run().as_u128(), key.placement, key.crc), || {
            Entry::header(&*self.disk, &self.dir, number, key).or_else(|| {
                let runs = &segment.index.runs;
                let run = runs.iter().find(|run| run.index == key.index)?;
                read_header(&*self.file(number).ok()?, runs, run)
            })
        })
    }

    /// Returns what the catalogue keeps of the segments: one index per sealed segment without damage.
    pub(crate) fn sealed_indexes(&self) -> impl Iterator<Item = &SegmentIndex> {
        let whole =
            self.segments.values().filter(|segment| segment.index.sealed && segment.damage.is_empty());
        whole.map(|segment| &segment.index)
    }

    /// Returns the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of a segment's file.
    pub fn path(&self, number: u64) -> PathBuf {
        segments_dir(&self.dir).join(segment_name(number))
    }

    pub(crate) fn file(&self, number: u64) -> Result<Box<dyn DiskFile>, ReadError> {
        let path = self.path(number);
        self.disk.open(&path).map_err(|e| ReadError::disk("open", &path, e))
    }
}

/// Returns the names in a folder of recordings, in no order.
pub(crate) fn names_in(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, ReadError> {
    disk.list(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::NoFolder(dir.into()),
        _ => ReadError::disk("list", dir, error),
    })
}

/// Returns the kept episodes that ended in a decoded chunk.
pub(crate) fn infos(
    run: &Arc<RunInfo>,
    decoder: &Decoder,
    segment: u64,
    offset: u64,
    header: &Header,
) -> impl Iterator<Item = EpisodeInfo> {
    let steps = decoder.steps();
    let ended = decoder.parts.iter().filter(|part| part.end.is_some());
    let agents = decoder.agent_returns();
    let episodes = ended.clone().count();
    ended.enumerate().map(move |(at, part)| EpisodeInfo {
        agents: agents_at(agents, at, episodes),
        ..info_of(run, (decoder, part), segment, offset, header, steps)
    })
}

const fn is_rest(part: &Part, header: &Header) -> bool {
    part.piece.to_row == header.rows as usize
}

pub(crate) fn info_of(
    run: &Arc<RunInfo>,
    (decoder, part): (&Decoder, &Part),
    segment: u64,
    offset: u64,
    header: &Header,
    chunk_steps: u64,
) -> EpisodeInfo {
    let lane = header.first_lane + part.piece.lane as u32;
    let number = part.piece.number;
    let end = part.end;
    let crashed = Outcome::Interrupted(Interruption::Crashed);
    EpisodeInfo {
        name: EpisodeName { run: run.run().short(), lane, number },
        run: run.clone(),
        start: start_of(run, lane, number, part.piece.start),
        length: part.piece.age,
        total_reward: end.and_then(|end| known_return(end.total_reward)),
        outcome: end.and_then(|end| Outcome::from_code(end.code & 15)).unwrap_or(crashed),
        result: end.map_or(GameResult::None, |end| GameResult::of_code(end.code >> CODE_RESULT_SHIFT & 3)),
        score: part.score,
        agents: None,
        started_ms: part.piece.started_ms,
        bytes: share_of(header.record_len(), part.piece.age, chunk_steps),
        own_options: decoder.options_of(part).cloned(),
        place: Place { segment, offset },
    }
}
