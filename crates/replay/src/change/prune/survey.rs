//! The survey of a folder: what it holds, and what of that goes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::change::prune::deciding::{Contents, goes};
use crate::change::prune::{FolderPrune, Judge, PruneError, Verdict};
use crate::code::episode::EpisodeInfo;
use crate::code::extent::Extent;
use crate::read::replays::Replays;
use crate::read::segment::Segment;
use crate::stored::summary::EpisodeKey;

/// A folder that was looked through.
pub(super) struct Survey<'a> {
    judge: &'a Judge<'a>,
    /// The folder's place in the library.
    at: usize,
    pub(super) folder: &'a Replays,
    segments: BTreeMap<u64, Contents>,
    /// Episodes that lie in several segments, or have not ended.
    spanning: Vec<Spanning>,
    /// Segments that go.
    pub(super) going: BTreeSet<u64>,
    /// Number of other episodes that should go, by the segment in which each lies.
    candidates: BTreeMap<u64, u64>,
    /// Episodes among those that have labels.
    labelled: Vec<(u64, EpisodeKey)>,
    pinned: u64,
}

struct Spanning {
    info: EpisodeInfo,
    segments: RangeInclusive<u64>,
    verdict: Verdict,
}

impl<'a> Survey<'a> {
    pub(super) fn of(judge: &'a Judge<'a>, at: usize, folder: &'a Replays) -> Result<Self, PruneError> {
        let contents = |(&number, segment): (&u64, &std::sync::Arc<Segment>)| {
            // What is set aside is a store's, and left alone.
            let is_damaged = !segment.index.sealed || !segment.is_intact() || !segment.aside.is_empty();
            (number, Contents { bytes: segment.index.bytes, is_damaged, ..Contents::default() })
        };
        let mut survey = Self {
            judge,
            at,
            folder,
            segments: folder.segments.iter().map(contents).collect(),
            spanning: Vec::new(),
            going: BTreeSet::new(),
            candidates: BTreeMap::new(),
            labelled: Vec::new(),
            pinned: 0,
        };
        for segment in folder.segments.values() {
            survey.look_at(segment)?;
        }
        for info in folder.broken_off().map_err(PruneError::Read)? {
            if survey.is_listed(&info)? {
                survey.take_spanning(info);
            }
        }
        let going = survey.segments.iter().filter(|(_, contents)| goes(contents));
        survey.going = going.map(|(number, _)| *number).collect();
        Ok(survey)
    }

    fn look_at(&mut self, segment: &Segment) -> Result<(), PruneError> {
        let mut entering = entering_lanes(segment);
        for extent in &segment.index.extents {
            for info in self.listed(segment, extent)? {
                if entering.remove(&(info.run_id().as_u128(), info.run.placement, info.name.lane)) {
                    self.take_spanning(info);
                } else {
                    self.take(segment.index.number, &info);
                }
            }
        }
        Ok(())
    }

    /// Returns the listed episodes that ended in an extent; of several copies one is listed.
    fn listed(&self, segment: &Segment, extent: &Extent) -> Result<Vec<EpisodeInfo>, PruneError> {
        let mut found = Vec::new();
        let read = self.folder.read_extent(segment, extent, &mut |info| found.push(info));
        read.map_err(PruneError::Read)?;
        let mut listed = Vec::with_capacity(found.len());
        for info in found {
            if self.is_listed(&info)? {
                listed.push(info);
            }
        }
        Ok(listed)
    }

    fn is_listed(&self, info: &EpisodeInfo) -> Result<bool, PruneError> {
        let copies = self.judge.library.copies().map_err(PruneError::Read)?;
        Ok(!copies.have(info) || copies.is_chosen(self.at, info))
    }

    fn take(&mut self, number: u64, info: &EpisodeInfo) {
        let (verdict, key) = (self.verdict(info), EpisodeKey::of(info));
        self.pinned += u64::from(verdict == Verdict::Pinned);
        let Some(contents) = self.segments.get_mut(&number) else { return };
        if verdict == Verdict::Goes {
            contents.going += 1;
            *self.candidates.entry(number).or_default() += 1;
            self.labelled.extend(self.judge.labels.of(&key).map(|_| (number, key)));
        } else {
            contents.again += again_bytes(info);
        }
    }

    fn take_spanning(&mut self, info: EpisodeInfo) {
        let Ok(segments) = self.folder.span(&info) else {
            // It cannot be recorded again, so that what there is of it stays.
            if let Some(contents) = self.segments.get_mut(&info.place.segment) {
                contents.is_damaged = true;
            }
            return;
        };
        let verdict = self.verdict(&info);
        self.pinned += u64::from(verdict == Verdict::Pinned);
        let share = again_bytes(&info) / (segments.end() - segments.start() + 1);
        for (_, contents) in self.segments.range_mut(segments.clone()) {
            match verdict {
                Verdict::Goes => contents.going += 1,
                Verdict::Pinned | Verdict::Stays => contents.again += share,
            }
        }
        self.spanning.push(Spanning { info, segments, verdict });
    }

    /// Returns the verdict on an episode. One that has several copies stays: otherwise a copy that the listing left out
    /// would appear.
    fn verdict(&self, info: &EpisodeInfo) -> Verdict {
        match self.judge.verdict(self.at, info) {
            Verdict::Goes if self.judge.copies.contains(&EpisodeKey::of(info)) => Verdict::Stays,
            verdict => verdict,
        }
    }

    /// Returns whether an episode that lies in several segments goes: it goes with the segment in which it begins.
    fn goes_along(&self, spanning: &Spanning) -> bool {
        spanning.verdict == Verdict::Goes && self.going.contains(spanning.segments.start())
    }

    /// Returns the report on the folder before anything was done.
    pub(super) fn summary(&self) -> FolderPrune {
        let in_going = |(number, count): (&u64, &u64)| self.going.contains(number).then_some(*count);
        let whole: u64 = self.candidates.iter().filter_map(in_going).sum();
        let all: u64 = self.candidates.values().sum();
        let along = self.spanning.iter().filter(|spanning| self.goes_along(spanning)).count() as u64;
        let wanted = self.spanning.iter().filter(|spanning| spanning.verdict == Verdict::Goes).count() as u64;
        let going = self.going.iter().filter_map(|number| self.segments.get(number));
        let (bytes, again_bytes) =
            going.fold((0, 0), |(bytes, again), of| (bytes + of.bytes, again + of.again));
        FolderPrune {
            dir: self.folder.dir().into(),
            episodes: whole + along,
            stuck: all - whole + wanted - along,
            pinned: self.pinned,
            again: 0,
            segments: self.going.len() as u64,
            bytes,
            again_bytes,
        }
    }

    /// Returns the episodes that end in a segment, stay, and have a part in a segment that goes, in the order of their
    /// places. They have to be recorded again, unless an equally good copy stays.
    pub(super) fn again_in(&self, number: u64) -> Result<Vec<EpisodeInfo>, PruneError> {
        let Some(segment) = self.folder.segments.get(&number) else { return Ok(Vec::new()) };
        let of_segment = || self.spanning.iter().filter(|spanning| spanning.info.place.segment == number);
        let spanning: BTreeSet<EpisodeKey> = of_segment().map(|one| EpisodeKey::of(&one.info)).collect();
        let is_again = |one: &&Spanning| {
            !self.goes_along(one) && self.going.range(one.segments.clone()).next().is_some()
        };
        let mut again: Vec<EpisodeInfo> = of_segment().filter(is_again).map(|one| one.info.clone()).collect();
        if self.going.contains(&number) {
            for extent in &segment.index.extents {
                let stays = |info: &EpisodeInfo| {
                    self.verdict(info) != Verdict::Goes && !spanning.contains(&EpisodeKey::of(info))
                };
                again.extend(self.listed(segment, extent)?.into_iter().filter(stays));
            }
        }
        again.sort_by(EpisodeInfo::compare_places);
        let copies = self.judge.library.copies().map_err(PruneError::Read)?;
        again.retain(|info| {
            !copies.further().iter().any(|(folder, other)| *folder == self.at && self.stays_as(info, other))
        });
        Ok(again)
    }

    /// Returns whether another copy of an episode stays and is the same.
    fn stays_as(&self, info: &EpisodeInfo, other: &EpisodeInfo) -> bool {
        let is_copy = EpisodeKey::of(info) == EpisodeKey::of(other) && info.standing() == other.standing();
        is_copy
            && !self.going.contains(&other.place.segment)
            && matches!(
                (self.folder.load(info), self.folder.load(other), self.folder.span(other)),
                (Ok(a), Ok(b), Ok(span)) if a.has_contents_of(&b) && self.going.range(span.clone()).next().is_none()
            )
    }

    /// Returns the episodes with labels that go.
    pub(super) fn gone_with_labels(&self) -> impl Iterator<Item = EpisodeKey> {
        let whole =
            self.labelled.iter().filter(|(number, _)| self.going.contains(number)).map(|(_, key)| *key);
        let along = self.spanning.iter().filter(|spanning| self.goes_along(spanning));
        whole.chain(along.map(|spanning| EpisodeKey::of(&spanning.info)))
    }
}

/// Returns the lanes that enter a segment with an episode under way: run, placement and lane.
fn entering_lanes(segment: &Segment) -> BTreeSet<(u128, u64, u32)> {
    let mut lanes = BTreeSet::new();
    for entering in &segment.index.entering {
        let (run, of) = entering.lanes();
        if let Some(run) = segment.runs.get(run) {
            lanes.extend(of.map(|lane| (run.run().as_u128(), run.placement, lane)));
        }
    }
    lanes
}

/// Returns about how many bytes an episode takes once it is recorded again, by itself.
const fn again_bytes(info: &EpisodeInfo) -> u64 {
    info.bytes.saturating_add(info.length).saturating_add(AGAIN_BYTES)
}

/// Bytes of the chunk headers of an episode that is recorded again.
const AGAIN_BYTES: u64 = 160;
