//! Decides which segment is shipped to the store when, which one leaves the spool, and what happens when that is full.
//!
//! ```text
//! spooled -> waiting -> in flight -> shipped -> taken away      when the store has answered that it has it
//!                       in flight -> aside -> kept              when the store has set it aside
//!            waiting <- in flight                               connection lost, refused, no answer
//!            waiting -> dropped -> taken away                   spool full, policy `drop`
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use rollhouse_core::{Claimant, OwnedBytes, Pauses, WhenFull, jitter};
use rollhouse_replay::SealedSegment;
use rollhouse_wire::Shipped;

use crate::spool_owners::SpoolOwners;

/// Decides about shipping: events come in, actions go out. It has no clock, files or sockets; the caller does what the
/// actions say. Segments go out in the order of their numbers.
#[derive(Debug)]
pub struct Shipper {
    config: ShipperConfig,
    connected: bool,
    /// Sealed segments that are not known to be in the store, by number.
    waiting: BTreeMap<u64, Waiting>,
    /// Segments that were shipped or dropped and are not taken away yet: their bytes, and when to try again after a
    /// failure.
    leaving: BTreeMap<u64, Leaving>,
    /// Bytes of the segment that is being written.
    open_bytes: u64,
    owners: SpoolOwners,
    /// Bytes of segments here that the store had set aside before.
    found_aside: u64,
    held: bool,
    /// Attempts since one succeeded, and the time until which no attempt is made.
    failures: u32,
    resume_at: Duration,
    draws: u64,
    counts: ShipCounts,
    /// Numbers of the last segments that were taken away.
    left: VecDeque<u64>,
    /// Bytes of segments that have left before an older one, by number.
    ahead: BTreeMap<u64, u64>,
}

/// Settings by which a node ships.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShipperConfig {
    /// Bytes that the spool may have on disk, those included that the store has set aside. One that has room for a segment
    /// may be exceeded by two at most: by what is in flight and being written, none of which is dropped.
    pub spool_bytes: u64,
    /// The rule for a spool in which these bytes are used up.
    pub when_full: WhenFull,
    /// The seed of the jitter of retries.
    pub seed: u64,
}

/// An event that the shipper is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShipEvent {
    /// There is a connection to the coordinator.
    Connected,
    /// There is no connection any more; nothing in flight on it will be answered.
    Disconnected,
    /// The task that does the actions is new: nothing is under way, and there is no connection yet.
    Restarted,
    /// The spool has this sealed segment. Telling again what is known changes nothing.
    Spooled(SealedSegment),
    /// The segment that is being written has grown.
    Open {
        /// Its bytes now.
        bytes: u64,
    },
    /// The store has answered.
    Answered {
        /// The number of the segment.
        number: u64,
        /// The answer.
        answer: Shipped,
    },
    /// An attempt failed while the connection is still there.
    Failed {
        /// The number of the segment.
        number: u64,
        /// Time that the store asked to wait, if it did.
        retry_after: Option<Duration>,
    },
    /// There are segments here that the store had set aside before the first event.
    FoundAside {
        /// Bytes of all of them.
        bytes: u64,
    },
    /// A segment is no longer in the spool, or lies where what is set aside does.
    TakenAway {
        /// The number of the segment.
        number: u64,
        /// Episodes that were in it, as far as they could be counted.
        episodes: Option<u64>,
    },
    /// A segment could not be removed or moved.
    Stuck {
        /// The number of the segment.
        number: u64,
    },
    /// Time has passed; see [`Shipper::wake_at`].
    Tick,
}

/// An action that the shipper asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShipAction {
    /// Send it, and tell how it went.
    Ship(SealedSegment),
    /// Remove it from the spool, and tell that it is gone.
    TakeAway {
        /// The number of the segment.
        number: u64,
        /// Whether it was never shipped: its episodes are lost, and to be counted before it is removed.
        dropped: bool,
    },
    /// Move the segment to the place of what is set aside, and tell that it is gone. The store has it, but may drop it,
    /// and nobody reads it there as what it was recorded for.
    SetAside {
        /// The number of the segment.
        number: u64,
    },
    /// Have the recorder take nothing (true), or take what waits (false).
    Hold(bool),
}

/// Counts of what has become of the segments. At any time `offered = shipped + aside + dropped + waiting`, in segments
/// and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShipCounts {
    /// All segments that were spooled.
    pub offered: Amount,
    /// Segments that are in the store.
    pub shipped: Amount,
    /// Segments that the store has set aside and that are kept here: they are damaged, or it has others under their
    /// numbers.
    pub aside: Amount,
    /// Segments that were not shipped because the spool was full.
    pub dropped: Amount,
    /// Segments of which nothing is decided yet.
    pub waiting: Amount,
    /// Number of those shipped segments that the store had already.
    pub known: u64,
    /// Number of attempts that failed.
    pub failed: u64,
    /// Episodes in the dropped segments.
    pub dropped_episodes: u64,
    /// Bytes of offered segments that had left before, and came back because they could not be removed.
    pub offered_again: u64,
    /// Bytes that have left, up to the oldest segment that waits: of the recording, so many bytes from the beginning on
    /// have left.
    pub left_bytes: u64,
}

/// A number of segments, and their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the segments.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    segment: SealedSegment,
    /// The time at which the segment was first told of.
    since: Duration,
    in_flight: bool,
}

#[derive(Debug, Clone, Copy)]
struct Leaving {
    bytes: u64,
    why: LeaveCause,
    retry_at: Option<Duration>,
}

/// Why a segment leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaveCause {
    Shipped,
    Aside,
    Dropped,
}

impl Shipper {
    /// Makes a shipper with nothing spooled and no connection.
    pub fn new(config: ShipperConfig) -> Self {
        Self {
            config,
            connected: false,
            waiting: BTreeMap::new(),
            leaving: BTreeMap::new(),
            open_bytes: 0,
            owners: SpoolOwners::new(config.spool_bytes),
            found_aside: 0,
            held: false,
            failures: 0,
            resume_at: Duration::ZERO,
            draws: 0,
            counts: ShipCounts {
                offered: Amount::NONE,
                shipped: Amount::NONE,
                aside: Amount::NONE,
                dropped: Amount::NONE,
                waiting: Amount::NONE,
                known: 0,
                failed: 0,
                dropped_episodes: 0,
                offered_again: 0,
                left_bytes: 0,
            },
            left: VecDeque::new(),
            ahead: BTreeMap::new(),
        }
    }

    /// Takes an event in at `now`, the time since any fixed start, and appends the actions to take to `actions`.
    pub fn handle(&mut self, now: Duration, event: ShipEvent, actions: &mut Vec<ShipAction>) {
        match event {
            ShipEvent::Connected => {
                self.connected = true;
                self.failures = 0;
                self.resume_at = now;
            }
            ShipEvent::Disconnected => self.disconnected(),
            ShipEvent::Restarted => {
                self.disconnected();
                self.leaving.values_mut().for_each(|leaving| leaving.retry_at = Some(now));
                // Whoever held the recorder has let it go.
                self.held = false;
                self.owners.let_go();
            }
            ShipEvent::Spooled(segment) => self.spooled(now, segment),
            ShipEvent::Open { bytes } => self.open_bytes = bytes,
            ShipEvent::FoundAside { bytes } => self.found_aside = bytes,
            ShipEvent::Answered { number, answer } => self.answered(number, answer, actions),
            ShipEvent::Failed { number, retry_after } => self.failed(now, number, retry_after),
            ShipEvent::TakenAway { number, episodes } => {
                self.owners.remove(number);
                if self.leaving.remove(&number).is_some_and(|leaving| leaving.why == LeaveCause::Dropped) {
                    self.counts.dropped_episodes += episodes.unwrap_or(0);
                }
                if self.left.len() >= REMEMBERED {
                    self.left.pop_front();
                }
                self.left.push_back(number);
            }
            ShipEvent::Stuck { number } => {
                if let Some(leaving) = self.leaving.get_mut(&number) {
                    leaving.retry_at = Some(now + STUCK_PAUSE);
                }
            }
            ShipEvent::Tick => {}
        }
        self.retry_stuck(now, actions);
        self.keep_limit(actions);
        self.ship(now, actions);
    }

    /// Notes whose the bytes of a segment are that is about to be [`ShipEvent::Spooled`]. Of a segment that is known
    /// nothing changes. Of those of which it is not said, nobody's share is counted.
    pub fn segment_is_of(&mut self, number: u64, owned: impl FnOnce() -> OwnedBytes) {
        if !self.waiting.contains_key(&number) && !self.leaving.contains_key(&number) {
            self.owners.add(number, owned());
        }
    }

    /// Notes whose the bytes are of the segment that is being written.
    pub fn open_is_of(&mut self, owned: &OwnedBytes) {
        self.owners.set_open(owned);
    }

    /// Returns the owners of whom the recorder is to take nothing, because they have their share of the spool.
    pub const fn held_owners(&self) -> &BTreeSet<Claimant> {
        self.owners.held()
    }

    /// Returns when to send a [`ShipEvent::Tick`] at the latest; `None` if nothing waits for time to pass.
    pub fn wake_at(&self) -> Option<Duration> {
        let stuck = self.leaving.values().filter_map(|leaving| leaving.retry_at).min();
        let idle = self.waiting.values().any(|waiting| !waiting.in_flight);
        let retry = (self.connected && idle && self.in_flight() < IN_FLIGHT).then_some(self.resume_at);
        stuck.into_iter().chain(retry).min()
    }

    /// Returns the counts of what has become of the segments.
    pub const fn counts(&self) -> ShipCounts {
        self.counts
    }

    /// Returns the bytes that are recorded and not in the store: those of sealed segments and of the one being written.
    pub const fn unshipped_bytes(&self) -> u64 {
        self.counts.waiting.bytes + self.open_bytes
    }

    /// Returns the time since which the oldest sealed segment waits that is not in the store, by the first event that
    /// told of it; `None` if none waits.
    pub fn oldest_since(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| waiting.since).min()
    }

    /// Returns whether everything that was sealed is in the store, set aside or dropped.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether the store, which is connected, has taken nothing of what waits for several attempts.
    pub fn is_failing(&self) -> bool {
        self.connected && self.failures >= FAILING_AFTER && !self.is_empty()
    }

    /// Returns whether the recorder is to take nothing.
    pub const fn is_held(&self) -> bool {
        self.held
    }

    fn disconnected(&mut self) {
        self.connected = false;
        self.waiting.values_mut().for_each(|waiting| waiting.in_flight = false);
    }

    fn spooled(&mut self, now: Duration, segment: SealedSegment) {
        let number = segment.number;
        if self.waiting.contains_key(&number) || self.leaving.contains_key(&number) {
            return;
        }
        if self.left.contains(&number) {
            self.left.retain(|left| *left != number);
            self.counts.offered_again += segment.bytes;
        }
        self.waiting.insert(number, Waiting { segment, since: now, in_flight: false });
        self.counts.offered.add(segment.bytes);
        self.counts.waiting.add(segment.bytes);
    }

    /// Takes in an answer of the store. It also counts when its attempt was given up: the store has the segment.
    fn answered(&mut self, number: u64, answer: Shipped, actions: &mut Vec<ShipAction>) {
        let Some(Waiting { segment, .. }) = self.waiting.remove(&number) else { return };
        self.failures = 0;
        self.counts.waiting.take(segment.bytes);
        match answer {
            Shipped::Durable | Shipped::Known => {
                self.counts.shipped.add(segment.bytes);
                self.counts.known += u64::from(answer == Shipped::Known);
                self.leave(segment, LeaveCause::Shipped, actions);
            }
            Shipped::Quarantined => {
                self.counts.aside.add(segment.bytes);
                self.leave(segment, LeaveCause::Aside, actions);
            }
        }
    }

    fn leave(&mut self, segment: SealedSegment, why: LeaveCause, actions: &mut Vec<ShipAction>) {
        self.ahead.insert(segment.number, segment.bytes);
        let oldest = self.waiting.keys().next().copied().unwrap_or(u64::MAX);
        while let Some(left) = self.ahead.first_entry().filter(|left| *left.key() < oldest) {
            self.counts.left_bytes += left.remove();
        }
        self.leaving.insert(segment.number, Leaving { bytes: segment.bytes, why, retry_at: None });
        actions.push(why.action(segment.number));
    }

    fn failed(&mut self, now: Duration, number: u64, retry_after: Option<Duration>) {
        let Some(waiting) = self.waiting.get_mut(&number).filter(|waiting| waiting.in_flight) else { return };
        waiting.in_flight = false;
        self.counts.failed += 1;
        let base = PAUSES.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        // Jitter takes away up to a quarter, so that nodes do not come back together.
        self.draws += 1;
        let pause = base - jitter(base / 4, self.config.seed ^ self.draws);
        let asked = retry_after.unwrap_or_default().min(PAUSES.longest);
        self.resume_at = self.resume_at.max(now + pause.max(asked));
    }

    fn retry_stuck(&mut self, now: Duration, actions: &mut Vec<ShipAction>) {
        for (&number, leaving) in &mut self.leaving {
            if leaving.retry_at.is_some_and(|at| at <= now) {
                leaving.retry_at = None;
                actions.push(leaving.why.action(number));
            }
        }
    }

    fn used(&self) -> u64 {
        let leaving = self.leaving.values().filter(|leaving| leaving.why != LeaveCause::Aside);
        self.unshipped_bytes() + leaving.map(|leaving| leaving.bytes).sum::<u64>() + self.aside_bytes()
    }

    /// Returns the bytes at which the spool is full.
    pub const fn limit(&self) -> u64 {
        self.config.spool_bytes
    }

    /// Returns the bytes of all segments that the store has set aside.
    const fn aside_bytes(&self) -> u64 {
        self.found_aside + self.counts.aside.bytes
    }

    fn keep_limit(&mut self, actions: &mut Vec<ShipAction>) {
        let limit = self.config.spool_bytes;
        match self.config.when_full {
            WhenFull::BackPressure => {
                // Room for a tenth before stepping goes on, so that it does not stop again at once.
                let bound = if self.held { limit - limit / 10 } else { limit };
                let hold = self.used() > bound;
                if hold != self.held {
                    self.held = hold;
                    actions.push(ShipAction::Hold(hold));
                }
                self.owners.keep_shares();
            }
            WhenFull::Drop => {
                // What is about to be removed makes room soon and counts no more.
                while self.unshipped_bytes() + self.aside_bytes() > limit {
                    let resting = self.waiting.values().filter(|waiting| !waiting.in_flight);
                    let numbers = resting.map(|waiting| waiting.segment.number);
                    let Some(number) = self.owners.goes_first(numbers) else { return };
                    let Some(Waiting { segment, .. }) = self.waiting.remove(&number) else { return };
                    self.owners.remove(number);
                    self.counts.waiting.take(segment.bytes);
                    self.counts.dropped.add(segment.bytes);
                    self.leave(segment, LeaveCause::Dropped, actions);
                }
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.in_flight).count()
    }

    fn ship(&mut self, now: Duration, actions: &mut Vec<ShipAction>) {
        if !self.connected || now < self.resume_at {
            return;
        }
        let free = IN_FLIGHT.saturating_sub(self.in_flight());
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.in_flight).take(free) {
            waiting.in_flight = true;
            actions.push(ShipAction::Ship(waiting.segment));
        }
    }
}

impl LeaveCause {
    const fn action(self, number: u64) -> ShipAction {
        match self {
            Self::Aside => ShipAction::SetAside { number },
            Self::Shipped | Self::Dropped => {
                ShipAction::TakeAway { number, dropped: matches!(self, Self::Dropped) }
            }
        }
    }
}

impl Amount {
    const NONE: Self = Self { segments: 0, bytes: 0 };

    const fn add(&mut self, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
    }

    const fn take(&mut self, bytes: u64) {
        self.segments -= 1;
        self.bytes -= bytes;
    }
}

/// Spreads bytes over time: over any stretch of time no more pass than the rate allows, and one piece.
#[derive(Debug)]
pub struct Pace {
    per_second: Option<NonZeroU64>,
    free_at: Duration,
}

impl Pace {
    /// Makes a pace of so many bytes a second, or one without bound for `None`.
    pub const fn new(per_second: Option<NonZeroU64>) -> Self {
        Self { per_second, free_at: Duration::ZERO }
    }

    /// Returns how long to wait at `now` before the next piece of `bytes` bytes is sent. The piece is taken to be sent
    /// then.
    pub fn wait(&mut self, now: Duration, bytes: u64) -> Duration {
        let Some(per_second) = self.per_second else { return Duration::ZERO };
        let send_at = self.free_at.max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.get());
        self.free_at = send_at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        send_at - now
    }
}

/// Most segments that are sent at a time: one travels while the store makes the other durable.
const IN_FLIGHT: usize = 2;
/// Number of segments that are remembered after they left: only the newest is kept for a while after it was taken away.
const REMEMBERED: usize = 16;
/// Pauses after failures.
const PAUSES: Pauses = Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(30) };
/// Number of attempts without a success after which the store counts as taking nothing.
const FAILING_AFTER: u32 = 3;
/// Pause before a segment that could not be removed is tried again.
const STUCK_PAUSE: Duration = Duration::from_secs(10);
