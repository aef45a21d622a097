//! Watched sessions: what their steps leave for watchers.
//!
//! ```text
//! watcher --wants--> Live (one word, one locked list of lanes) <--looks at the word-- stepping thread
//!         <--wakes-- newest frame, episode so far              <--puts------------------/
//! ```
//!
//! The thread that steps a session looks at one word after each step, and does no more while nobody watches. While
//! somebody does, it keeps a [`Tape`] of each watched lane and shows a frame when one is wanted. The next frame that is
//! wanted takes its place, whether or not somebody has seen it. A watcher asks for one frame after the other, so that a
//! slow watcher sees fewer of them and one that hangs costs nothing but its place.

mod camera;
mod newest;
mod tape;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{Claimant, SharedBound, Shares};
use rollhouse_wire::{LaneFrame, Refusal};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use camera::Camera;
use newest::Newest;
pub(crate) use tape::{Begin, Rows, Snapshot};
#[cfg(test)]
pub(crate) use tape::{Row, StepBegin, Tape};

/// The place where the thread that steps a session and its watchers meet.
#[derive(Debug)]
pub(crate) struct Live {
    /// A set of the bits [`WATCHED`], [`CHANGED`] and [`WANTED`]; 0 while nobody watches.
    calls: AtomicU32,
    lanes: Mutex<WatchedLanes>,
    /// A number that grows with everything that is shown.
    shown: watch::Sender<u64>,
}

/// The lanes that are watched, and whose share each is.
#[derive(Debug)]
struct WatchedLanes {
    by_lane: BTreeMap<u32, Wanted>,
    shares: Shares,
}

/// A lane that is watched.
#[derive(Debug, Default)]
struct Wanted {
    /// Those that watch it; the lane counts to the share of the first.
    watchers: Vec<Claimant>,
    wants_frame: bool,
    /// Whether the frame is to have a picture of the lane.
    wants_picture: bool,
    wants_snapshot: bool,
    frame: Newest<LaneFrame>,
    snapshot: Newest<Snapshot>,
    /// Time at which the newest frame was asked for.
    asked: Option<Instant>,
}

/// A watcher's place at a lane; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    live: Arc<Live>,
    lane: u32,
    claimant: Claimant,
}

/// A wish for something that a lane is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) lane: u32,
    pub(crate) frame: bool,
    pub(crate) picture: bool,
    pub(crate) snapshot: bool,
}

impl Default for Live {
    fn default() -> Self {
        let lanes =
            WatchedLanes { by_lane: BTreeMap::new(), shares: Shares::new(SharedBound::WATCHED_LANES) };
        Self { calls: AtomicU32::new(0), lanes: Mutex::new(lanes), shown: watch::Sender::new(0) }
    }
}

impl Live {
    /// Returns whether somebody watches. One relaxed load: the data behind it are read under their lock.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.calls.load(Ordering::Relaxed) != 0
    }

    /// Follows a lane. One that is followed already costs nobody anything more.
    ///
    /// # Errors
    /// If the watcher has its share of the lanes that are followed.
    pub(crate) fn follow(self: &Arc<Self>, lane: u32, watcher: &Claimant) -> Result<Following, Refusal> {
        let mut lanes = self.lanes.lock();
        let WatchedLanes { by_lane, shares } = &mut *lanes;
        if !by_lane.contains_key(&lane) {
            let taken = shares.take(watcher, 1);
            taken.map_err(|over| Refusal::busy(over.to_string(), PLACE_RETRY_MS))?;
        }
        by_lane.entry(lane).or_default().watchers.push(watcher.clone());
        self.calls.fetch_or(WATCHED | CHANGED, Ordering::Relaxed);
        Ok(Following { live: Arc::clone(self), lane, claimant: watcher.clone() })
    }

    /// Notes that the session was made anew: its new stepper has to be told which lanes are watched.
    pub(crate) fn begin_again(&self) {
        if self.is_watched() {
            self.calls.fetch_or(CHANGED, Ordering::Relaxed);
        }
    }

    /// Returns the lanes that are watched, if they have changed since the last call. After the last watcher has gone
    /// this is the empty list once, and afterwards nothing is asked of the stepping thread.
    fn take_changed(&self) -> Option<Vec<u32>> {
        if self.calls.load(Ordering::Relaxed) & CHANGED == 0 {
            return None;
        }
        let lanes = self.lanes.lock();
        if lanes.by_lane.is_empty() {
            self.calls.store(0, Ordering::Relaxed);
        } else {
            self.calls.fetch_and(!CHANGED, Ordering::Relaxed);
        }
        Some(lanes.by_lane.keys().copied().collect())
    }

    /// Returns the wishes that are open.
    fn take_wishes(&self) -> Vec<Wish> {
        if self.calls.load(Ordering::Relaxed) & WANTED == 0 {
            return Vec::new();
        }
        let mut lanes = self.lanes.lock();
        self.calls.fetch_and(!WANTED, Ordering::Relaxed);
        let wishes =
            lanes.by_lane.iter_mut().filter(|(_, wanted)| wanted.wants_frame || wanted.wants_snapshot);
        wishes
            .map(|(&lane, wanted)| Wish {
                lane,
                frame: std::mem::take(&mut wanted.wants_frame),
                picture: std::mem::take(&mut wanted.wants_picture),
                snapshot: std::mem::take(&mut wanted.wants_snapshot),
            })
            .collect()
    }

    /// Puts back wishes that could not be fulfilled yet.
    fn put_back(&self, wishes: &[Wish]) {
        let mut lanes = self.lanes.lock();
        for wish in wishes {
            if let Some(wanted) = lanes.by_lane.get_mut(&wish.lane) {
                wanted.wants_frame |= wish.frame;
                wanted.wants_picture |= wish.picture;
                wanted.wants_snapshot |= wish.snapshot;
                self.calls.fetch_or(WANTED, Ordering::Relaxed);
            }
        }
    }

    fn show(&self, lane: u32, frame: Option<LaneFrame>, snapshot: Option<Snapshot>) {
        let mut lanes = self.lanes.lock();
        // Who wanted it may have gone.
        let Some(wanted) = lanes.by_lane.get_mut(&lane) else { return };
        if let Some(frame) = frame {
            wanted.frame.put(|serial| LaneFrame { serial, ..frame });
        }
        if let Some(snapshot) = snapshot {
            wanted.snapshot.put(|_| snapshot);
        }
        drop(lanes);
        self.shown.send_modify(|shown| *shown += 1);
    }
}

impl Following {
    /// Returns the number of the lane.
    pub(crate) const fn lane(&self) -> u32 {
        self.lane
    }

    /// Returns the newest frame after the one with the serial number `after`, and how many between the two were never
    /// seen. One that is made for it has a picture if that is wanted and there can be one. Waits for one until `until`, and
    /// meanwhile for `nudge`, which has sessions show what is wanted that nobody steps just now. Cancellation-safe if that is.
    pub(crate) async fn frame(
        &self,
        (after, picture): (u64, bool),
        until: Instant,
        nudge: impl Future<Output = ()>,
    ) -> Option<(Arc<LaneFrame>, u64)> {
        // A frame that somebody else asked for a moment ago is new enough.
        let asked = self.live.lanes.lock().by_lane.get(&self.lane).and_then(|wanted| wanted.asked);
        if self.seen(after).is_none() {
            tokio::time::sleep_until(due(asked, Instant::now()).min(until)).await;
        }
        let find = || self.seen(after);
        let want = |wanted: &mut Wanted| {
            wanted.wants_frame = true;
            wanted.wants_picture |= picture;
            wanted.asked = Some(Instant::now());
        };
        self.wait(until, find, want, nudge).await
    }

    /// Returns the lane's episode as it stands now. Waits as [`Following::frame`] does.
    pub(crate) async fn snapshot(
        &self,
        until: Instant,
        nudge: impl Future<Output = ()>,
    ) -> Option<Arc<Snapshot>> {
        let serial =
            || self.live.lanes.lock().by_lane.get(&self.lane).map_or(0, |wanted| wanted.snapshot.serial());
        let before = serial();
        let find = || {
            self.live
                .lanes
                .lock()
                .by_lane
                .get(&self.lane)?
                .snapshot
                .after(before)
                .map(|(snapshot, _)| snapshot)
        };
        self.wait(until, find, |wanted| wanted.wants_snapshot = true, nudge).await
    }

    fn seen(&self, after: u64) -> Option<(Arc<LaneFrame>, u64)> {
        self.live.lanes.lock().by_lane.get(&self.lane)?.frame.after(after)
    }

    /// Waits until `find` finds something.
    async fn wait<T>(
        &self,
        until: Instant,
        find: impl Fn() -> Option<T>,
        want: impl FnOnce(&mut Wanted),
        nudge: impl Future<Output = ()>,
    ) -> Option<T> {
        let mut shown = self.live.shown.subscribe();
        if let Some(found) = find() {
            return Some(found);
        }
        if let Some(wanted) = self.live.lanes.lock().by_lane.get_mut(&self.lane) {
            want(wanted);
        }
        self.live.calls.fetch_or(WANTED, Ordering::Relaxed);
        let (mut nudge, mut nudged) = (pin!(nudge), false);
        loop {
            if let Some(found) = find() {
                return Some(found);
            }
            tokio::select! {
                biased;
                () = nudge.as_mut(), if !nudged => nudged = true,
                // The sender lives as long as the session, which this holds.
                changed = tokio::time::timeout_at(until, shown.changed()) => changed.ok()?.ok()?,
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut lanes = self.live.lanes.lock();
        let WatchedLanes { by_lane, shares } = &mut *lanes;
        let Some(wanted) = by_lane.get_mut(&self.lane) else { return };
        let at = wanted.watchers.iter().position(|watcher| *watcher == self.claimant);
        if let Some(at) = at {
            wanted.watchers.remove(at);
        }
        match wanted.watchers.first() {
            Some(next) if at == Some(0) => return shares.pass_on(&self.claimant, next, 1),
            Some(_) => return,
            None => shares.give_back(&self.claimant, 1),
        }
        by_lane.remove(&self.lane);
        // Whoever steps puts his tapes away with the next step.
        self.live.calls.fetch_or(CHANGED, Ordering::Relaxed);
    }
}

/// Returns the time at which the next frame of a lane may be wanted, after one that was wanted at `asked`.
fn due(asked: Option<Instant>, now: Instant) -> Instant {
    asked.map_or(now, |asked| now.max(asked + FRAME_EVERY))
}

/// Bit: somebody watches.
const WATCHED: u32 = 1;
/// Bit: other lanes are watched than before.
const CHANGED: u32 = 2;
/// Bit: a frame or an episode is wanted.
const WANTED: u32 = 4;

/// Time for which a frame of a lane counts as new: nobody sees more than about 30 in a second.
const FRAME_EVERY: Duration = Duration::from_millis(33);
/// Pause after which a refused watcher may try again: places come when watchers go.
const PLACE_RETRY_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(step: u64) -> LaneFrame {
        LaneFrame {
            serial: 0,
            episode: 0,
            step,
            total_reward: 0.0,
            reward: 0.0,
            terminated: false,
            truncated: false,
            action: Vec::new(),
            obs: Vec::new(),
            infos: Vec::new(),
            picture: Vec::new(),
            state: Vec::new(),
            hash: None,
            position: None,
            moves: step,
        }
    }

    #[test]
    fn nobody_watches_once_the_last_has_gone() {
        let live: Arc<Live> = Arc::default();
        assert!(!live.is_watched());
        let (first, second) = (live.follow(3, &ada()).unwrap(), live.follow(3, &ada()).unwrap());
        assert_eq!(live.take_changed(), Some(vec![3]));
        assert_eq!(live.take_changed(), None);
        drop(first);
        assert!(live.is_watched());
        drop(second);
        assert_eq!(live.take_changed(), Some(vec![]), "tapes are to be put away");
        assert!(!live.is_watched());
    }

    fn ada() -> Claimant {
        Claimant::owner("ada")
    }

    /// Follows as many lanes from `first` on as the watcher is let follow.
    fn follow_all(live: &Arc<Live>, watcher: &Claimant, first: u32) -> Vec<Following> {
        (first..).map_while(|lane| live.follow(lane, watcher).ok()).collect()
    }

    /// Symptom: one viewer followed 16 lanes of a session, and nobody else saw any of it. Cause: lanes were counted
    /// without regard to who watches them. Fix: shares by owner.
    #[test]
    fn one_who_watches_all_lanes_that_it_may_leaves_some_to_another_and_to_an_admin() {
        let live: Arc<Live> = Arc::default();
        let mut adas = follow_all(&live, &ada(), 0);
        assert!(adas.len() < SharedBound::WATCHED_LANES.limit as usize);
        assert!(live.follow(99, &ada()).is_err());
        assert!(live.follow(0, &ada()).is_ok(), "a lane that is watched already costs nothing more");
        let bobs = follow_all(&live, &Claimant::owner("bob"), 100);
        let admins = follow_all(&live, &Claimant::operator("root"), 200);
        assert!(!bobs.is_empty() && !admins.is_empty());
        drop((bobs, admins));
        adas.pop();
        assert!(live.follow(99, &ada()).is_ok(), "a place is free once somebody goes");
    }

    #[test]
    fn a_lane_counts_to_another_watcher_of_it_when_the_first_has_gone() {
        let live: Arc<Live> = Arc::default();
        let bob = Claimant::owner("bob");
        let adas = follow_all(&live, &ada(), 0);
        let bobs: Vec<_> = adas.iter().map(|following| live.follow(following.lane, &bob).unwrap()).collect();
        drop(adas);
        assert!(live.follow(99, &bob).is_err(), "they are bob's now");
        assert!(live.follow(99, &ada()).is_ok());
        drop(bobs);
        assert!(live.follow(99, &bob).is_ok());
    }

    #[tokio::test]
    async fn a_watcher_that_is_slow_gets_the_newest_frame_and_learns_what_it_missed() {
        let live: Arc<Live> = Arc::default();
        let following = live.follow(0, &ada()).unwrap();
        for step in 1..=5 {
            live.show(0, Some(frame(step)), None);
        }
        let until = Instant::now() + Duration::from_secs(1);
        let (seen, missed) = following.frame((0, false), until, async {}).await.unwrap();
        assert_eq!((seen.step, seen.serial, missed), (5, 5, 0), "who has seen none has missed none");
        live.show(0, Some(frame(6)), None);
        live.show(0, Some(frame(7)), None);
        let (seen, missed) = following.frame((5, false), until, async {}).await.unwrap();
        assert_eq!((seen.step, missed), (7, 1));
        assert!(following.frame((7, false), Instant::now(), async {}).await.is_none(), "nothing moves");
        assert_eq!(live.take_wishes(), [Wish { lane: 0, frame: true, picture: false, snapshot: false }]);
        assert_eq!(live.take_wishes(), []);
    }

    /// However many watch a lane: who asks a moment after another waits until that one's frame is no longer new.
    #[test]
    fn no_more_than_30_frames_a_second_are_asked_of_a_lane() {
        let now = Instant::now();
        assert_eq!(due(None, now), now);
        assert_eq!(due(Some(now), now), now + FRAME_EVERY);
        assert_eq!(due(Some(now), now + Duration::from_secs(1)), now + Duration::from_secs(1));
        assert!(FRAME_EVERY * 30 >= Duration::from_millis(990));
    }
}
