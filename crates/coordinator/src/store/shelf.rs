//! The store's knowledge of its segments, which needs no reading of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::OwnedBytes;
use rollhouse_replay::limits::LEAST_SEGMENT_COST;
use rollhouse_replay::{BlockRange, SegmentSummary, SetAside};
use rollhouse_wire::StoreStatus;

use super::StoreCounts;
use super::archive_plan::{ArchivePlan, Standing};
use super::arrivals::Arrival;
use super::counting::{add_all, take_all};
use super::owners::{StoreOwners, node_of};
use super::quarantine::{Quarantine, Quarantined};
use crate::limits::MAX_STORE_SEGMENTS;

/// The segments in stock and those that are set aside.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    folders: BTreeMap<Arc<str>, BTreeMap<u64, Held>>,
    /// All segments in the order in which they came.
    order: BTreeMap<u64, (Arc<str>, u64)>,
    /// Number of segments that ever came.
    came: u64,
    /// Segments in which episodes of a run finished, by the recording to which they belong. Flat, since there may be
    /// millions of runs, each in one segment.
    runs: BTreeSet<OfRun>,
    quarantine: Quarantine,
    /// Number of episodes that are set aside, by run.
    set_aside: BTreeMap<u128, u64>,
    /// The plan of the archive, if there is one.
    pub(crate) archiving: Option<ArchivePlan>,
    /// Segments of each folder in which a pinned episode lies; they are not dropped.
    pinned: BTreeMap<Arc<str>, Vec<RangeInclusive<u64>>>,
    /// The segments that are on this disk.
    here: Stock,
    pub(crate) counts: StoreCounts,
    /// A number for each folder's name that ever was here, and the name.
    numbers: BTreeMap<Arc<str>, u32>,
    names: BTreeMap<u32, Arc<str>>,
    /// Number of segments being received, by node; `drawn` counts all that ever were.
    pub(crate) receiving: BTreeMap<Arc<str>, usize>,
    pub(crate) drawn: u64,
    /// Number of failed reads of segments that may have episodes of one that came.
    unreadable: BTreeMap<(Arc<str>, u64), u32>,
}

/// What segments take of a disk.
#[derive(Debug, Default)]
struct Stock {
    segments: usize,
    bytes: u64,
    /// Whose they are.
    owners: StoreOwners,
    /// What a budget counts: at least [`LEAST_SEGMENT_COST`] for each.
    cost: u64,
}

impl Stock {
    /// Adds a segment, which came at that place in the order and of which the owners have those parts.
    fn add(&mut self, order: u64, bytes: u64, parts: &OwnedBytes) {
        self.segments += 1;
        self.bytes += bytes;
        self.cost += bytes.max(LEAST_SEGMENT_COST);
        self.owners.add(order, parts);
    }

    fn take(&mut self, order: u64, bytes: u64, parts: &OwnedBytes) {
        self.segments -= 1;
        self.bytes -= bytes;
        self.cost -= bytes.max(LEAST_SEGMENT_COST);
        self.owners.remove(order, parts);
    }

    const fn exceeds(&self, budget: u64) -> bool {
        self.cost > budget || self.segments > MAX_STORE_SEGMENTS
    }
}

/// A segment in the store.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    number: u64,
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
    session: u32,
    /// Whether it has no recording of any run.
    is_empty: bool,
    /// Numbers of episodes that finished in it, by run, placement and lanes.
    ranges: Box<[LaneRange]>,
    /// Number of its episodes that are set aside, by run.
    aside: BTreeMap<u128, u64>,
    /// Whose its bytes are, as far as they are an owner's.
    pub(crate) owned: OwnedBytes,
    /// Its place in the order in which segments came.
    pub(crate) order: u64,
}

/// A segment that was taken out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) folder: Arc<str>,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Whether nothing is left in its folder.
    pub(crate) emptied: bool,
}

/// A segment that leaves this disk for the archive.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) folder: Arc<str>,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// A segment in which episodes of a run finished that belong to one recording: folder, session and placement. A recording
/// never has an episode twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OfRun {
    run: [u64; 2],
    folder: u32,
    session: u32,
    placement: u64,
    number: u64,
}

#[derive(Debug, Clone, Copy)]
struct LaneRange {
    run: [u64; 2],
    placement: u64,
    first_lane: u32,
    end_lane: u32,
    least: u64,
    most: u64,
}

impl Held {
    pub(crate) fn of(summary: &SegmentSummary, aside: &SetAside, owned: OwnedBytes) -> Self {
        Self {
            number: summary.number(),
            bytes: summary.bytes(),
            crc: summary.crc(),
            session: summary.session(),
            is_empty: summary.runs().is_empty(),
            ranges: ranges_of(summary).into(),
            aside: by_run(aside.episodes().map(|aside| aside.key.run)),
            owned,
            order: 0,
        }
    }

    /// Returns the segment as one of those owners.
    pub(crate) fn of_owners(self, owned: OwnedBytes) -> Self {
        Self { owned, ..self }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the recordings that it belongs to; `folder` is the number of its folder.
    fn of_runs(&self, folder: u32) -> impl Iterator<Item = OfRun> {
        let (session, number) = (self.session, self.number);
        self.ranges.iter().map(move |&LaneRange { run, placement, .. }| OfRun {
            run,
            folder,
            session,
            placement,
            number,
        })
    }

    /// Returns the place of the segment when it has come: one without any recording is kept as long as there is room.
    pub(crate) const fn fresh_standing(&self) -> Standing {
        if self.is_empty { Standing::Empty } else { Standing::Waiting }
    }

    /// Returns what it counts for whom in a budget; it is in that folder.
    fn parts(&self, folder: &str) -> OwnedBytes {
        let cost = self.bytes.max(LEAST_SEGMENT_COST);
        self.owned.parts_of(self.bytes.max(1), &node_of(folder)).scaled_to(cost)
    }

    pub(crate) fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }
}

/// Counts how often each run occurs.
pub(crate) fn by_run(runs: impl Iterator<Item = u128>) -> BTreeMap<u128, u64> {
    runs.fold(BTreeMap::new(), |mut sum, run| {
        *sum.entry(run).or_default() += 1;
        sum
    })
}

impl Shelf {
    /// Returns the shared name of a folder, which is noted if it is new.
    pub(crate) fn folder(&mut self, name: &str) -> Arc<str> {
        if let Some((known, _)) = self.folders.get_key_value(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.folders.insert(name.clone(), BTreeMap::new());
        name
    }

    pub(crate) fn has_folder(&self, name: &str) -> bool {
        self.folders.contains_key(name)
    }

    pub(crate) fn folders(&self) -> impl ExactSizeIterator<Item = &str> {
        self.folders.keys().map(|name| &**name)
    }

    /// Returns how many folders of a node's spools there are; `prefix` is the beginning of their names.
    pub(crate) fn folders_of(&self, prefix: &str) -> usize {
        let from = self.folders.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let of_it = from.map(|(name, _)| name).take_while(|name| name.starts_with(prefix));
        of_it.filter(|name| !name[prefix.len()..].contains('-')).count()
    }

    /// Returns the segments of a folder by number; `None` if there is no such folder.
    pub(crate) fn segments(&self, folder: &str) -> Option<&BTreeMap<u64, Held>> {
        self.folders.get(folder)
    }

    pub(crate) fn get(&self, folder: &str, number: u64) -> Option<&Held> {
        self.folders.get(folder)?.get(&number)
    }

    /// Adds a segment that comes after all that are there, and returns its place among them.
    pub(crate) fn add(&mut self, folder: &Arc<str>, held: Held) -> u64 {
        self.came += 1;
        let held = Held { order: self.came, ..held };
        self.here.add(held.order, held.bytes, &held.parts(folder));
        self.order.insert(held.order, (folder.clone(), held.number));
        let of = self.number_of(folder);
        self.runs.extend(held.of_runs(of));
        add_all(&mut self.set_aside, &held.aside);
        let order = held.order;
        self.folders.entry(folder.clone()).or_default().insert(held.number, held);
        order
    }

    /// Returns all segments, the oldest first, each with its place in the order and its folder.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Arc<str>, &Held)> {
        self.order
            .iter()
            .filter_map(|(order, (folder, number))| Some((*order, folder, self.get(folder, *number)?)))
    }

    /// Returns the segment at a place in the order.
    pub(crate) fn at(&self, order: u64) -> Option<(&Arc<str>, &Held)> {
        let (folder, number) = self.order.get(&order)?;
        Some((folder, self.get(folder, *number)?))
    }

    /// Sets which segments an archive has. The plan has all segments that are there: each with its place in the order,
    /// and whether it is on this disk.
    pub(crate) fn archive(&mut self, archiving: ArchivePlan) {
        let away: Vec<u64> = archiving.away().collect();
        away.into_iter().for_each(|order| self.take_from_here(order));
        self.archiving = Some(archiving);
    }

    /// Marks a segment that was added as being in the archive only.
    pub(crate) fn is_away(&mut self, order: u64) {
        let Some(bytes) = self.at(order).map(|(_, held)| held.bytes) else { return };
        self.take_from_here(order);
        if let Some(archiving) = &mut self.archiving {
            archiving.add(order, bytes, Standing::Away, Duration::ZERO);
        }
    }

    /// Lets the oldest segment that the archive has leave this disk, if all here together exceed `budget`. It stays
    /// listed.
    pub(crate) fn let_oldest_leave(&mut self, budget: u64) -> Option<Leaving> {
        let order = self.archiving.as_ref().filter(|_| self.here.exceeds(budget))?.leaves()?;
        let (folder, held) = self.at(order)?;
        let leaving = Leaving { folder: folder.clone(), number: held.number, bytes: held.bytes };
        self.take_from_here(order);
        self.archiving.as_mut()?.becomes(order, Standing::Away);
        Some(leaving)
    }

    /// Notes that the segment at a place in the order is not on this disk any more.
    fn take_from_here(&mut self, order: u64) {
        let Some((bytes, parts)) = self.at(order).map(|(folder, held)| (held.bytes, held.parts(folder)))
        else {
            return;
        };
        self.here.take(order, bytes, &parts);
    }

    /// Returns all segments, the oldest first, and then those that are set aside, likewise; each with whose it is.
    pub(crate) fn arrivals(&self) -> Vec<(Arrival, OwnedBytes)> {
        let held = self.all();
        let held =
            held.map(|(_, folder, held)| ((folder.clone(), held.number, held.crc), held.owned.clone()));
        let aside = self.quarantine.arrivals().map(|arrival| (arrival.clone(), OwnedBytes::none()));
        aside.chain(held).collect()
    }

    /// Returns folder and number of each segment.
    pub(crate) fn places(&self) -> impl Iterator<Item = (String, u64)> {
        self.order.values().map(|(folder, number)| (folder.to_string(), *number))
    }

    /// Returns how many segments are there or set aside.
    pub(crate) fn len(&self) -> usize {
        self.order.len() + self.quarantine.segments().len()
    }

    /// Returns segments of other recordings that may have episodes of a new segment: of the same lanes of its runs,
    /// with numbers that it has. Normally there are none.
    pub(crate) fn rivals(&self, folder: &str, summary: &SegmentSummary) -> Vec<(Arc<str>, u64)> {
        self.rivals_of(folder, summary.session(), &ranges_of(summary))
    }

    fn rivals_of(&self, folder: &str, session: u32, ranges: &[LaneRange]) -> Vec<(Arc<str>, u64)> {
        let mut rivals = BTreeSet::new();
        let own_folder = self.numbers.get(folder).copied();
        for ours in ranges {
            let from = OfRun { run: ours.run, folder: 0, session: 0, placement: 0, number: 0 };
            let mut next = self.runs.range(from..).next();
            while let Some(&theirs) = next.filter(|theirs| theirs.run == ours.run) {
                let is_own = (Some(theirs.folder), theirs.session, theirs.placement)
                    == (own_folder, session, ours.placement);
                // A long recording has many segments: they are passed over together.
                let after = if is_own { OfRun { number: u64::MAX, ..theirs } } else { theirs };
                next = self.runs.range((Bound::Excluded(after), Bound::Unbounded)).next();
                if !is_own && self.meets(&theirs, ours) {
                    rivals.extend(self.names.get(&theirs.folder).map(|name| (name.clone(), theirs.number)));
                }
            }
        }
        rivals.into_iter().collect()
    }

    /// Returns whether a segment has lanes of its recording with numbers that are ours too. Beside these there may be more
    /// of our recording in it, which is no rival.
    fn meets(&self, theirs: &OfRun, ours: &LaneRange) -> bool {
        let held = self.names.get(&theirs.folder).and_then(|folder| self.get(folder, theirs.number));
        let mut ranges = held.into_iter().flat_map(|held| held.ranges.iter());
        ranges.any(|range| range.placement == theirs.placement && range.meets(ours))
    }

    /// Returns the number of a folder's name, which is given one if it is new.
    fn number_of(&mut self, folder: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(folder) {
            return *number;
        }
        let number = self.names.last_key_value().map_or(0, |(last, _)| last.wrapping_add(1));
        self.numbers.insert(folder.clone(), number);
        self.names.insert(number, folder.clone());
        number
    }

    /// Counts a failed read of a segment that may have episodes of one that came, and returns whether to do without it
    /// from now on. The new segment is refused a few times before that, because the other may be readable again.
    pub(crate) fn give_up_reading(&mut self, folder: &Arc<str>, number: u64) -> bool {
        let attempts = self.unreadable.entry((folder.clone(), number)).or_default();
        *attempts = attempts.saturating_add(1);
        let over = *attempts > UNREADABLE_ATTEMPTS;
        self.counts.unreadable += u64::from(*attempts == UNREADABLE_ATTEMPTS + 1);
        over
    }

    /// Notes which segments of a folder have pinned episodes.
    pub(crate) fn pin(&mut self, folder: &Arc<str>, segments: Vec<RangeInclusive<u64>>) {
        if segments.is_empty() {
            self.pinned.remove(folder);
        } else {
            self.pinned.insert(folder.clone(), segments);
        }
    }

    /// Keeps segments of a folder from being dropped until [`Shelf::pin`] says what is pinned there; false if not all of those
    /// that an episode begins and ends in are there.
    pub(crate) fn hold(&mut self, folder: &str, segments: RangeInclusive<u64>) -> bool {
        let Some((name, held)) = self.folders.get_key_value(folder) else { return false };
        let are_there = [segments.start(), segments.end()].iter().all(|number| held.contains_key(number));
        if are_there {
            self.pinned.entry(name.clone()).or_default().push(segments);
        }
        are_there
    }

    fn is_pinned(&self, folder: &str, number: u64) -> bool {
        self.pinned.get(folder).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&number)))
    }

    /// Takes a segment out if all here together exceed `budget` and it is not the only one, and its folder, too, if that
    /// was its last: the oldest of the owner that is furthest beyond its share. Segments in which a pinned episode lies
    /// stay. With an archive, only segments that it does not take.
    pub(crate) fn take_oldest(&mut self, budget: u64) -> Option<Taken> {
        if !self.here.exceeds(budget) || self.order.len() < 2 {
            return None;
        }
        let order = match &self.archiving {
            None => {
                let newest = *self.order.last_key_value()?.0;
                let pinned = |(folder, number): &(Arc<str>, u64)| self.is_pinned(folder, *number);
                let may_go = |order: u64| order != newest && !self.order.get(&order).is_some_and(pinned);
                let exceeded = (self.here.cost > budget).then_some(budget);
                let of_owner = self.here.owners.goes_first(exceeded, may_go);
                of_owner.or_else(|| self.order.keys().copied().find(|&order| may_go(order)))?
            }
            Some(archiving) => archiving.given_up()?,
        };
        if self.order.get(&order).is_some_and(|(folder, number)| self.is_pinned(folder, *number)) {
            return None;
        }
        self.take_from_here(order);
        if let Some(archiving) = &mut self.archiving {
            archiving.remove(order);
        }
        let (folder, number) = self.order.remove(&order)?;
        let segments = self.folders.get_mut(&folder)?;
        let held = segments.remove(&number)?;
        let emptied = segments.is_empty();
        if let Some(of) = self.numbers.get(&folder).copied() {
            for of_run in held.of_runs(of) {
                self.runs.remove(&of_run);
            }
        }
        if emptied {
            self.folders.remove(&folder);
            self.pinned.remove(&folder);
            let number = self.numbers.remove(&folder);
            number.map(|number| self.names.remove(&number));
        }
        take_all(&mut self.set_aside, &held.aside);
        self.unreadable.remove(&(folder.clone(), number));
        Some(Taken { folder, number, bytes: held.bytes, emptied })
    }

    /// Returns the segments that are set aside as a whole.
    pub(crate) const fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// Adds a segment that is set aside, after all that are there.
    pub(crate) fn set_segment_aside(&mut self, arrival: Arrival, quarantined: Quarantined) {
        self.came += 1;
        add_all(&mut self.set_aside, &quarantined.runs);
        self.quarantine.add(self.came, arrival, quarantined);
    }

    /// Takes out the segment that was set aside first if all together exceed `limit`, or are too many.
    pub(crate) fn take_oldest_quarantined(&mut self, limit: u64) -> Option<Arrival> {
        let (arrival, quarantined) = self.quarantine.take_oldest(limit)?;
        take_all(&mut self.set_aside, &quarantined.runs);
        Some(arrival)
    }

    /// Returns the number of episodes of a run that are set aside.
    pub(crate) fn set_aside(&self, run: u128) -> u64 {
        self.set_aside.get(&run).copied().unwrap_or(0)
    }

    pub(crate) fn status(&self) -> StoreStatus {
        let away = self.archiving.as_ref().map_or(0, |archiving| archiving.amount(Standing::Away).segments);
        StoreStatus {
            segments: self.order.len() as u64 - away,
            bytes: self.here.bytes,
            quarantined: self.quarantine.segments().len() as u64,
            set_aside: self.set_aside.values().sum(),
            budget: 0,
            received_bytes: self.counts.received_bytes,
        }
    }
}

impl LaneRange {
    fn meets(&self, other: &Self) -> bool {
        self.run == other.run
            && self.first_lane < other.end_lane
            && other.first_lane < self.end_lane
            && self.least <= other.most
            && other.least <= self.most
    }
}

/// Returns the numbers of episodes that finished in a segment, by run, placement and lanes. If one recording has more
/// blocks than [`MAX_RANGES`], neighbours are merged.
fn ranges_of(summary: &SegmentSummary) -> Vec<LaneRange> {
    let range = |block: BlockRange| {
        let (least, most) = block.numbers?;
        let BlockRange { run, placement, first_lane, end_lane, .. } = block;
        let run = run.as_u128();
        let run = [(run >> 64) as u64, run as u64];
        Some(LaneRange { run, placement, first_lane, end_lane, least, most })
    };
    let mut ranges: Vec<LaneRange> = summary.blocks().filter_map(range).collect();
    ranges.sort_by_key(|range| (range.run, range.placement, range.first_lane));
    while ranges.len() > MAX_RANGES {
        let before = ranges.len();
        let mut pairs: Vec<LaneRange> = Vec::with_capacity(before.div_ceil(2));
        let mut joined = true;
        for range in ranges {
            match pairs.last_mut() {
                Some(last) if !joined && (last.run, last.placement) == (range.run, range.placement) => {
                    last.end_lane = last.end_lane.max(range.end_lane);
                    (last.least, last.most) = (last.least.min(range.least), last.most.max(range.most));
                    joined = true;
                }
                _ => {
                    pairs.push(range);
                    joined = false;
                }
            }
        }
        ranges = pairs;
        if ranges.len() == before {
            // As many recordings as blocks: there is nothing to take together.
            break;
        }
    }
    ranges
}

/// Number of ranges of numbers that are kept of a segment.
const MAX_RANGES: usize = 64;
/// Number of times that a new segment is refused because another one that it may contradict cannot be read.
const UNREADABLE_ATTEMPTS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn range(placement: u64, first_lane: u32, least: u64, most: u64) -> LaneRange {
        LaneRange { run: [0, 7], placement, first_lane, end_lane: first_lane + 64, least, most }
    }

    fn held(number: u64, session: u32, ranges: &[LaneRange]) -> Held {
        let (ranges, aside) = (ranges.into(), BTreeMap::new());
        Held {
            number,
            bytes: 1_000,
            crc: 1,
            session,
            is_empty: false,
            ranges,
            aside,
            owned: OwnedBytes::none(),
            order: 0,
        }
    }

    /// Symptom: a node that shipped segments of a hundred bytes filled the coordinator's disk and memory, and the budget
    /// dropped none of them. Cause: the budget counted the bytes of segments alone. Fix: each counts as much as the disk takes
    /// for it at least, and their number is bounded.
    #[test]
    fn empty_segments_are_dropped_for_the_budget_too() {
        let mut shelf = Shelf::default();
        let folder = shelf.folder("node-1-a");
        for number in 1..=100 {
            shelf.add(&folder, Held { bytes: 128, ..held(number, 3, &[]) });
        }
        let dropped = std::iter::from_fn(|| shelf.take_oldest(10 * LEAST_SEGMENT_COST)).count();
        assert_eq!((dropped, shelf.len()), (90, 10));
        assert_eq!(shelf.status().bytes, 10 * 128, "what is shown are bytes");
    }

    /// Symptom: a coordinator that was shipped short episodes of one rollout read each segment's predecessor as well, held
    /// the names of all episodes of both, and had over 2 GiB after 100 million of them. Cause: a rollout has several
    /// sessions on a node, each recorded under a placement of its own; a segment in which they stand together was taken for
    /// a rival of the next because of the next one's own lanes. Fix: only the lanes of the other recording count.
    #[test]
    fn sessions_of_one_rollout_that_are_recorded_together_are_no_rivals() {
        let mut shelf = Shelf::default();
        let folder = shelf.folder("node-1-a");
        shelf.add(&folder, held(1, 3, &[range(10, 0, 0, 40), range(11, 64, 0, 41)]));
        // Some lanes were quicker than others, so that numbers overlap.
        let next = [range(10, 0, 39, 80), range(11, 64, 40, 80)];
        assert_eq!(shelf.rivals_of(&folder, 3, &next), []);
        // Lanes that went on elsewhere and came back, and those of another recorder.
        let again = [range(12, 64, 41, 90)];
        assert_eq!(shelf.rivals_of(&folder, 3, &again), [(folder.clone(), 1)]);
        assert_eq!(shelf.rivals_of(&folder, 4, &next), [(folder.clone(), 1)]);
        assert_eq!(shelf.rivals_of("node-2-b", 3, &next), [(folder.clone(), 1)]);
        assert_eq!(shelf.rivals_of("node-2-b", 3, &[range(10, 128, 0, 40)]), []);
    }
}
