//! The plan of a store's archive: what goes there next, and what may leave the store's disk for it.
//!
//! ```text
//! came -> waiting --proven at the archive--> proven --the disk is wanted--> away      listed and read as before
//!         waiting --damaged here-----------> unfit  --the disk is wanted--> gone      counted as dropped
//! came without any recording --------------> empty  --the disk is wanted--> gone      counted as dropped
//! ```
//!
//! Only a proven segment may leave: one that was sent and read back whole. While the archive does not answer,
//! everything else stays, however full the disk is; nodes are told to come again and keep their segments.
//!
//! Segments are named here by their place in the order in which they came. The plan is a value without clock and disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rollhouse_archive::SegmentId;
use rollhouse_core::{BackOff, RestartDecision};

use crate::limits::MAX_STORE_SEGMENTS;

/// A task for the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// List its segments: the notes on it are incomplete, or are about another archive.
    List,
    /// Take in a segment that it has and of which nothing is known.
    Adopt(SegmentId),
    /// Send the segment at that place in the order, and prove that it is there.
    Send(u64),
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Do this task.
    Do(Task),
    /// Wait that long, or without a limit, unless a segment comes.
    Wait(Option<Duration>),
}

/// The place of a segment: on this disk, in the archive, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is on this disk, and not known to be in the archive.
    Waiting,
    /// It is on this disk and in the archive.
    Proven,
    /// It is damaged on this disk, so that no archive takes it.
    Unfit,
    /// It is in the archive only.
    Away,
    /// It is on this disk and has no recording, so that it is not worth a place in the archive.
    Empty,
}

/// A number of segments, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
}

/// The segments of a store and what its archive has of them.
#[derive(Debug)]
pub(crate) struct ArchivePlan {
    segments: BTreeMap<u64, Kept>,
    /// Waiting segments, each with the number of attempts before it, so that one that fails delays no other.
    turns: BTreeSet<(u32, u64)>,
    proven: BTreeSet<u64>,
    /// Segments that are never archived.
    unfit: BTreeSet<u64>,
    amounts: [Amount; 5],
    lists: bool,
    /// Segments to be taken in, each with its attempts and its bytes, 0 if those are not known.
    adopts: BTreeMap<SegmentId, (u32, u64)>,
    adopt_turns: BTreeSet<(u32, SegmentId)>,
    back_off: BackOff,
    retry_at: Option<Duration>,
    failures: u64,
}

#[derive(Debug)]
struct Kept {
    bytes: u64,
    standing: Standing,
    since: Duration,
    attempts: u32,
}

impl ArchivePlan {
    /// Makes a plan without segments. With `lists` the archive's contents are listed first.
    pub(crate) fn new(lists: bool) -> Self {
        Self {
            segments: BTreeMap::new(),
            turns: BTreeSet::new(),
            proven: BTreeSet::new(),
            unfit: BTreeSet::new(),
            amounts: [Amount::default(); 5],
            lists,
            adopts: BTreeMap::new(),
            adopt_turns: BTreeSet::new(),
            back_off: BackOff::new(0),
            retry_at: None,
            failures: 0,
        }
    }

    /// Adds a segment, which came at that place in the order.
    pub(crate) fn add(&mut self, order: u64, bytes: u64, standing: Standing, now: Duration) {
        self.remove(order);
        self.segments.insert(order, Kept { bytes, standing, since: now, attempts: 0 });
        self.enter(order);
    }

    /// Changes the place of a segment.
    pub(crate) fn becomes(&mut self, order: u64, standing: Standing) {
        self.leave(order);
        if let Some(kept) = self.segments.get_mut(&order) {
            kept.standing = standing;
        }
        self.enter(order);
    }

    /// Removes a segment that is no longer in the store.
    pub(crate) fn remove(&mut self, order: u64) {
        self.leave(order);
        self.segments.remove(&order);
    }

    /// Returns the next thing to do. It stays the same until its result is told.
    pub(crate) fn next(&self, now: Duration) -> Next {
        let task = match (self.turns.first(), self.adopt_turns.first()) {
            _ if self.lists => Task::List,
            // What is on this disk alone goes first; what fails holds up nothing.
            (Some((tried, order)), adopt) if adopt.is_none_or(|(more, _)| tried <= more) => {
                Task::Send(*order)
            }
            (_, Some((_, id))) => Task::Adopt(id.clone()),
            (_, None) => return Next::Wait(None),
        };
        match self.retry_at {
            Some(at) if at > now => Next::Wait(Some(at - now)),
            _ => Next::Do(task),
        }
    }

    /// Notes that the task was done.
    pub(crate) fn done(&mut self, task: &Task) {
        (self.back_off, self.retry_at) = (BackOff::new(self.failures), None);
        match task {
            Task::List => self.lists = false,
            Task::Adopt(id) => {
                if let Some((tried, _)) = self.adopts.remove(id) {
                    self.adopt_turns.remove(&(tried, id.clone()));
                }
            }
            // What became of it is told apart.
            Task::Send(_) => {}
        }
    }

    /// Notes that the task failed. It is tried again after a pause, others of its kind first.
    pub(crate) fn failed(&mut self, task: &Task, now: Duration) {
        self.failures += 1;
        let pause = match self.back_off.failed(now) {
            RestartDecision::RetryAfter(pause) => pause,
            RestartDecision::GiveUp => LONGEST_PAUSE,
        };
        self.retry_at = Some(now + pause);
        match task {
            Task::List => {}
            Task::Adopt(id) => {
                if let Some((tried, _)) = self.adopts.get_mut(id) {
                    self.adopt_turns.remove(&(*tried, id.clone()));
                    *tried += 1;
                    self.adopt_turns.insert((*tried, id.clone()));
                }
            }
            Task::Send(order) => {
                self.leave(*order);
                if let Some(kept) = self.segments.get_mut(order) {
                    kept.attempts += 1;
                }
                self.enter(*order);
            }
        }
    }

    /// Adds a segment that the archive has. Nothing is known of it but its bytes, 0 if those are not known either.
    pub(crate) fn adopts(&mut self, id: SegmentId, bytes: u64) {
        let (tried, known) = self.adopts.entry(id.clone()).or_default();
        *known = bytes.max(*known);
        self.adopt_turns.insert((*tried, id));
    }

    /// Returns segments that the archive was known to have and that are not listed.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = (&SegmentId, u64)> {
        self.adopts.iter().filter(|(_, (_, bytes))| *bytes > 0).map(|(id, (_, bytes))| (id, *bytes))
    }

    /// Returns whether all segments of the archive are known here.
    pub(crate) fn is_settled(&self) -> bool {
        !self.lists && self.adopts.is_empty()
    }

    /// Returns the places of the segments that the archive certainly has, on this disk or not.
    pub(crate) fn archived(&self) -> impl Iterator<Item = u64> {
        let there = |(_, kept): &(&u64, &Kept)| matches!(kept.standing, Standing::Proven | Standing::Away);
        self.segments.iter().filter(there).map(|(order, _)| *order)
    }

    /// Returns the places of the segments that are in the archive alone.
    pub(crate) fn away(&self) -> impl Iterator<Item = u64> {
        self.segments.iter().filter(|(_, kept)| kept.standing == Standing::Away).map(|(order, _)| *order)
    }

    /// Returns the segment that leaves this disk first: the oldest of those that may, unless it is the newest of all.
    pub(crate) fn leaves(&self) -> Option<u64> {
        self.oldest_of(&self.proven)
    }

    /// Returns the segment that is given up first: one that is never archived.
    pub(crate) fn given_up(&self) -> Option<u64> {
        self.oldest_of(&self.unfit)
    }

    /// Returns whether a segment of that many bytes has no room in a budget because nothing more may leave for it.
    pub(crate) fn has_no_room(&self, bytes: u64, budget: u64) -> bool {
        let waiting = self.amount(Standing::Waiting);
        waiting.segments >= MAX_STORE_SEGMENTS as u64
            || waiting.segments > 0 && waiting.bytes.saturating_add(bytes) > budget
    }

    /// Returns the amount of segments in that place.
    pub(crate) const fn amount(&self, standing: Standing) -> Amount {
        self.amounts[standing as usize]
    }

    /// Returns how many tasks have failed.
    pub(crate) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns how long the oldest waiting segment has waited.
    pub(crate) fn longest_wait(&self, now: Duration) -> Duration {
        let waiting = self.segments.values().find(|kept| kept.standing == Standing::Waiting);
        waiting.map_or(Duration::ZERO, |kept| now.saturating_sub(kept.since))
    }

    fn oldest_of(&self, places: &BTreeSet<u64>) -> Option<u64> {
        let newest = self.segments.keys().next_back();
        places.first().filter(|order| newest != Some(order)).copied()
    }

    fn enter(&mut self, order: u64) {
        let Some(kept) = self.segments.get(&order) else { return };
        match kept.standing {
            Standing::Waiting => self.turns.insert((kept.attempts, order)),
            Standing::Proven => self.proven.insert(order),
            Standing::Unfit | Standing::Empty => self.unfit.insert(order),
            Standing::Away => true,
        };
        let amount = &mut self.amounts[kept.standing as usize];
        amount.segments += 1;
        amount.bytes += kept.bytes;
    }

    fn leave(&mut self, order: u64) {
        let Some(kept) = self.segments.get(&order) else { return };
        match kept.standing {
            Standing::Waiting => self.turns.remove(&(kept.attempts, order)),
            Standing::Proven => self.proven.remove(&order),
            Standing::Unfit | Standing::Empty => self.unfit.remove(&order),
            Standing::Away => true,
        };
        let amount = &mut self.amounts[kept.standing as usize];
        amount.segments -= 1;
        amount.bytes -= kept.bytes;
    }
}

/// Longest pause before an archive is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a model world does to a store with an archive.
    #[derive(Debug, Clone)]
    enum Happens {
        Comes(u64),
        /// The next task is tried, and the archive answers or not.
        Works(bool),
        /// The next one is found damaged here.
        Damaged,
        /// So many bytes are wanted on the disk.
        Drops(u64),
        Passes(u64),
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            3 => (1..100u64).prop_map(Happens::Comes),
            4 => any::<bool>().prop_map(Happens::Works),
            1 => Just(Happens::Damaged),
            2 => (0..400u64).prop_map(Happens::Drops),
            2 => (0..90_000u64).prop_map(Happens::Passes),
        ]
    }

    proptest! {
        /// A model of the archive is kept beside: what leaves the disk is there, what is given up was found damaged, and
        /// nobody is tried before the pause is over.
        #[test]
        fn only_what_is_in_the_archive_leaves_the_disk_and_all_gets_there_once_it_answers(
            world in proptest::collection::vec(happens(), 0..120),
        ) {
            let mut archiving = ArchivePlan::new(false);
            let (mut there, mut damaged, mut here) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
            let (mut now, mut came, mut until) = (Duration::ZERO, 0, Duration::ZERO);
            let mut budget = u64::MAX;
            for happening in world {
                match happening {
                    Happens::Comes(bytes) => {
                        let refused = archiving.has_no_room(bytes, budget);
                        let waits: u64 = here.iter().filter(|(order, _)| !there.contains(*order) && !damaged.contains(*order)).map(|(_, bytes)| *bytes).sum();
                        prop_assert_eq!(refused, waits > 0 && waits + bytes > budget);
                        if !refused {
                            came += 1;
                            here.insert(came, bytes);
                            archiving.add(came, bytes, Standing::Waiting, now);
                        }
                    }
                    Happens::Works(answers) => match archiving.next(now) {
                        Next::Do(Task::Send(order)) => {
                            prop_assert!(now >= until && here.contains_key(&order) && !there.contains(&order));
                            if answers {
                                there.insert(order);
                                archiving.becomes(order, Standing::Proven);
                                archiving.done(&Task::Send(order));
                            } else {
                                archiving.failed(&Task::Send(order), now);
                                prop_assert!(matches!(archiving.next(now), Next::Wait(Some(_))));
                                until = now + Duration::from_millis(1);
                            }
                        }
                        Next::Do(other) => prop_assert!(false, "{other:?}"),
                        Next::Wait(pause) => {
                            let waits = here.keys().any(|order| !there.contains(order) && !damaged.contains(order));
                            prop_assert_eq!(pause.is_some(), waits);
                            prop_assert!(pause.is_none_or(|pause| pause <= LONGEST_PAUSE));
                        }
                    },
                    Happens::Damaged => if let Next::Do(Task::Send(order)) = archiving.next(now) {
                        damaged.insert(order);
                        archiving.becomes(order, Standing::Unfit);
                        archiving.done(&Task::Send(order));
                    },
                    Happens::Drops(wanted) => {
                        budget = wanted;
                        while here.values().sum::<u64>() > wanted {
                            if let Some(order) = archiving.leaves() {
                                prop_assert!(there.contains(&order) && order != came);
                                prop_assert!(there.iter().find(|place| here.contains_key(place)) == Some(&order), "the oldest first");
                                here.remove(&order);
                                archiving.becomes(order, Standing::Away);
                            } else if let Some(order) = archiving.given_up() {
                                prop_assert!(damaged.contains(&order));
                                here.remove(&order);
                                archiving.remove(order);
                            } else {
                                break;
                            }
                        }
                    }
                    Happens::Passes(ms) => now += Duration::from_millis(ms),
                }
                let local = [Standing::Waiting, Standing::Proven, Standing::Unfit].map(|standing| archiving.amount(standing));
                prop_assert_eq!(local.iter().map(|amount| amount.bytes).sum::<u64>(), here.values().sum::<u64>());
                prop_assert_eq!(archiving.archived().collect::<BTreeSet<_>>(), there.clone());
            }
            // From now on it answers.
            for _ in 0..2 * came {
                match archiving.next(now) {
                    Next::Do(task @ Task::Send(order)) => {
                        there.insert(order);
                        archiving.becomes(order, Standing::Proven);
                        archiving.done(&task);
                    }
                    Next::Do(other) => prop_assert!(false, "{other:?}"),
                    Next::Wait(Some(pause)) => now += pause,
                    Next::Wait(None) => break,
                }
            }
            prop_assert_eq!(archiving.amount(Standing::Waiting), Amount::default());
            prop_assert_eq!(archiving.longest_wait(now), Duration::ZERO);
            prop_assert_eq!(there.len() + damaged.len(), came as usize);
        }
    }

    #[test]
    fn a_segment_that_fails_lets_the_others_go_first_and_what_the_archive_has_is_looked_at_before_all() {
        let mut archiving = ArchivePlan::new(true);
        let id = SegmentId { number: 1, folder: "node-a-0123abcd".to_owned(), crc: 7 };
        (1..=2).for_each(|order| archiving.add(order, 10, Standing::Waiting, Duration::ZERO));
        archiving.adopts(id.clone(), 0);
        let mut now = Duration::ZERO;
        let mut tried = Vec::new();
        while let Next::Do(task) = archiving.next(now) {
            tried.push(task.clone());
            if task == Task::Send(1) && tried.len() < 4 {
                archiving.failed(&task, now);
                let Next::Wait(Some(pause)) = archiving.next(now) else { panic!("a pause") };
                now += pause;
                continue;
            }
            if let Task::Send(order) = task {
                archiving.becomes(order, Standing::Proven);
            }
            archiving.done(&task);
        }
        assert_eq!(tried, [Task::List, Task::Send(1), Task::Send(2), Task::Adopt(id), Task::Send(1)]);
        assert_eq!((archiving.failures(), archiving.is_settled()), (1, true));
    }
}
