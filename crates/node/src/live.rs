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
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_wire::{LaneFrame, Refusal};
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use camera::Camera;
use newest::Newest;
pub(crate) use tape::{Begin, Snapshot};

/// The place where the thread that steps a session and its watchers meet.
#[derive(Debug)]
pub(crate) struct Live {
    /// A set of the bits [`WATCHED`], [`CHANGED`] and [`WANTED`]; 0 while nobody watches.
    calls: AtomicU32,
    lanes: Mutex<BTreeMap<u32, Wanted>>,
    /// A number that grows with everything that is shown.
    shown: watch::Sender<u64>,
}

/// A lane that is watched.
#[derive(Debug, Default)]
struct Wanted {
    watchers: usize,
    wants_frame: bool,
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
}

/// A wish for something that a lane is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) lane: u32,
    pub(crate) frame: bool,
    pub(crate) snapshot: bool,
}

impl Default for Live {
    fn default() -> Self {
        Self { calls: AtomicU32::new(0), lanes: Mutex::default(), shown: watch::Sender::new(0) }
    }
}

impl Live {
    /// Returns whether somebody watches. One relaxed load: the data behind it are read under their lock.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.calls.load(Ordering::Relaxed) != 0
    }

    /// Follows a lane.
    ///
    /// # Errors
    /// If as many lanes are followed as may be.
    pub(crate) fn follow(self: &Arc<Self>, lane: u32) -> Result<Following, Refusal> {
        let mut lanes = self.lanes.lock();
        if lanes.len() >= MAX_WATCHED_LANES && !lanes.contains_key(&lane) {
            let message =
                format!("{MAX_WATCHED_LANES} lanes of the session are watched, which is as many as may be");
            return Err(Refusal::busy(message, PLACE_RETRY_MS));
        }
        lanes.entry(lane).or_default().watchers += 1;
        self.calls.fetch_or(WATCHED | CHANGED, Ordering::Relaxed);
        Ok(Following { live: Arc::clone(self), lane })
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
        if lanes.is_empty() {
            self.calls.store(0, Ordering::Relaxed);
        } else {
            self.calls.fetch_and(!CHANGED, Ordering::Relaxed);
        }
        Some(lanes.keys().copied().collect())
    }

    /// Returns the wishes that are open.
    fn take_wishes(&self) -> Vec<Wish> {
        if self.calls.load(Ordering::Relaxed) & WANTED == 0 {
            return Vec::new();
        }
        let mut lanes = self.lanes.lock();
        self.calls.fetch_and(!WANTED, Ordering::Relaxed);
        let wishes = lanes.iter_mut().filter(|(_, wanted)| wanted.wants_frame || wanted.wants_snapshot);
        wishes
            .map(|(&lane, wanted)| Wish {
                lane,
                frame: std::mem::take(&mut wanted.wants_frame),
                snapshot: std::mem::take(&mut wanted.wants_snapshot),
            })
            .collect()
    }

    /// Puts back wishes that could not be fulfilled yet.
    fn put_back(&self, wishes: &[Wish]) {
        let mut lanes = self.lanes.lock();
        for wish in wishes {
            if let Some(wanted) = lanes.get_mut(&wish.lane) {
                wanted.wants_frame |= wish.frame;
                wanted.wants_snapshot |= wish.snapshot;
                self.calls.fetch_or(WANTED, Ordering::Relaxed);
            }
        }
    }

    fn show(&self, lane: u32, frame: Option<LaneFrame>, snapshot: Option<Snapshot>) {
        let mut lanes = self.lanes.lock();
        // Who wanted it may have gone.
        let Some(wanted) = lanes.get_mut(&lane) else { return };
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

    /// Returns the newest frame after the one with the serial number `seen`, and how many between the two were never
    /// seen. Waits for one until `until`; `nudge` is called once one is wanted, for sessions that nobody steps just
    /// now. Cancellation-safe.
    pub(crate) async fn frame(
        &self,
        after: u64,
        until: Instant,
        nudge: impl Fn(),
    ) -> Option<(Arc<LaneFrame>, u64)> {
        // A frame that somebody else asked for a moment ago is new enough.
        let asked = self.live.lanes.lock().get(&self.lane).and_then(|wanted| wanted.asked);
        if self.seen(after).is_none() {
            tokio::time::sleep_until(due(asked, Instant::now()).min(until)).await;
        }
        let find = || self.seen(after);
        let want = |wanted: &mut Wanted| {
            wanted.wants_frame = true;
            wanted.asked = Some(Instant::now());
        };
        self.wait(until, find, want, nudge).await
    }

    /// Returns the lane's episode as it stands now. Waits as [`Following::frame`] does.
    pub(crate) async fn snapshot(&self, until: Instant, nudge: impl Fn()) -> Option<Arc<Snapshot>> {
        let serial = || self.live.lanes.lock().get(&self.lane).map_or(0, |wanted| wanted.snapshot.serial());
        let before = serial();
        let find =
            || self.live.lanes.lock().get(&self.lane)?.snapshot.after(before).map(|(snapshot, _)| snapshot);
        self.wait(until, find, |wanted| wanted.wants_snapshot = true, nudge).await
    }

    fn seen(&self, after: u64) -> Option<(Arc<LaneFrame>, u64)> {
        self.live.lanes.lock().get(&self.lane)?.frame.after(after)
    }

    /// Waits until `find` finds something.
    async fn wait<T>(
        &self,
        until: Instant,
        find: impl Fn() -> Option<T>,
        want: impl FnOnce(&mut Wanted),
        nudge: impl Fn(),
    ) -> Option<T> {
        let mut shown = self.live.shown.subscribe();
        if let Some(found) = find() {
            return Some(found);
        }
        if let Some(wanted) = self.live.lanes.lock().get_mut(&self.lane) {
            want(wanted);
        }
        self.live.calls.fetch_or(WANTED, Ordering::Relaxed);
        nudge();
        loop {
            if let Some(found) = find() {
                return Some(found);
            }
            // The sender lives as long as the session, which this holds.
            tokio::time::timeout_at(until, shown.changed()).await.ok()?.ok()?;
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut lanes = self.live.lanes.lock();
        let last = lanes.get_mut(&self.lane).is_some_and(|wanted| {
            wanted.watchers -= 1;
            wanted.watchers == 0
        });
        if !last {
            return;
        }
        lanes.remove(&self.lane);
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

/// Most lanes of one session that may be watched at a time: each costs every step a few nanoseconds.
pub(crate) const MAX_WATCHED_LANES: usize = 16;
/// Time for which a frame of a lane counts as new: nobody sees more than 30 in a second.
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
        let (first, second) = (live.follow(3).unwrap(), live.follow(3).unwrap());
        assert_eq!(live.take_changed(), Some(vec![3]));
        assert_eq!(live.take_changed(), None);
        drop(first);
        assert!(live.is_watched());
        drop(second);
        assert_eq!(live.take_changed(), Some(vec![]), "tapes are to be put away");
        assert!(!live.is_watched());
    }

    #[test]
    fn so_many_lanes_are_watched_and_a_place_is_free_once_somebody_goes() {
        let live: Arc<Live> = Arc::default();
        let mut all: Vec<_> = (0..MAX_WATCHED_LANES as u32).map(|lane| live.follow(lane).unwrap()).collect();
        assert!(live.follow(99).is_err());
        assert!(live.follow(0).is_ok(), "a lane that is watched already costs nothing more");
        all.pop();
        assert!(live.follow(99).is_ok());
    }

    #[tokio::test]
    async fn a_watcher_that_is_slow_gets_the_newest_frame_and_learns_what_it_missed() {
        let live: Arc<Live> = Arc::default();
        let following = live.follow(0).unwrap();
        for step in 1..=5 {
            live.show(0, Some(frame(step)), None);
        }
        let until = Instant::now() + Duration::from_secs(1);
        let (seen, missed) = following.frame(0, until, || {}).await.unwrap();
        assert_eq!((seen.step, seen.serial, missed), (5, 5, 0), "who has seen none has missed none");
        live.show(0, Some(frame(6)), None);
        live.show(0, Some(frame(7)), None);
        let (seen, missed) = following.frame(5, until, || {}).await.unwrap();
        assert_eq!((seen.step, missed), (7, 1));
        assert!(following.frame(7, Instant::now(), || {}).await.is_none(), "nothing moves");
        assert_eq!(live.take_wishes(), [Wish { lane: 0, frame: true, snapshot: false }]);
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
