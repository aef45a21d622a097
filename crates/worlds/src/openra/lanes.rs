//! The lanes of a session, each of which is a game.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, LaneSet, Start, Verdict};
use rollhouse_env::{Collected, Generator, LaneBlock, LateLanes, LateRows, MakeError, Post};
use tokio::runtime::Builder;

use super::driver::{END_WITHIN, drive};
use super::rows::{ACTION_WIDTH, request};
use super::settings::{Settings, Sight};
use super::shared::{Outcome, Posted, Shared, SharedLanes};

/// A range of a session's lanes. All blocks of the session have one driver.
struct WorldBlock {
    driver: Arc<DriverThread>,
    /// Number of the first lane.
    first: usize,
    generators: Vec<Generator>,
}

/// The thread of the driver; its drop ends it.
struct DriverThread {
    shared: Arc<Shared>,
    sight: Arc<Sight>,
}

/// Makes the blocks of that many lanes. Nothing is connected to before a lane is reset.
pub(crate) fn blocks(
    map: &str,
    settings: &Settings,
    lanes: usize,
) -> Result<Vec<Box<dyn LateLanes>>, MakeError> {
    let refused = |source: std::io::Error| MakeError::Refused { source: source.into() };
    let shared = Arc::new(Shared::new(lanes).map_err(refused)?);
    let runtime =
        Builder::new_current_thread().enable_all().max_blocking_threads(1).build().map_err(refused)?;
    let driver = DriverThread { shared: Arc::clone(&shared), sight: Arc::clone(&settings.sight) };
    let (map, settings) = (map.to_owned(), settings.clone());
    let run = move || {
        let ended = Ended(Arc::clone(&shared));
        runtime.block_on(drive(shared, map, settings));
        // A name that is being looked up is left behind.
        runtime.shutdown_background();
        drop(ended);
    };
    // Task: driver of worlds.
    let thread = std::thread::Builder::new().name("rollhouse-world".to_owned()).spawn(run);
    thread.map_err(refused)?;
    let driver = Arc::new(driver);
    let block = |first: usize| {
        let generators = vec![Generator::seeded(0); BLOCK_LANES.min(lanes - first)];
        Box::new(WorldBlock { driver: Arc::clone(&driver), first, generators }) as Box<dyn LateLanes>
    };
    Ok((0..lanes).step_by(BLOCK_LANES).map(block).collect())
}

/// Tells whoever waits that the driver has ended, also by a panic.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        let under_way = state.slots.iter_mut().filter(|slot| slot.is_under_way && slot.outcome.is_none());
        under_way.for_each(|slot| slot.lose(NO_DRIVER.to_owned()));
        self.0.tell(&mut state);
    }
}

const NO_DRIVER: &str = "the thread that speaks to the engine has ended";

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.asked.notify_one();
        self.shared.wait_for_end(Instant::now() + END_WITHIN);
    }
}

impl WorldBlock {
    fn all(&self) -> LaneSet {
        LaneSet::first(self.generators.len())
    }

    /// Returns the lanes of this block of which something is so.
    fn which(&self, is: impl Fn(&SharedLanes, usize) -> bool) -> LaneSet {
        let state = self.driver.shared.lock();
        self.all().into_iter().filter(|lane| is(&state, self.first + lane)).collect()
    }
}

impl LateLanes for WorldBlock {
    fn post(&mut self, post: Post<'_>) {
        let mut state = self.driver.shared.lock();
        for lane in (post.step | post.reset) & LaneSet::first(self.generators.len()) {
            let posted = if post.reset.has(lane) {
                // 1 to the greatest number that an engine takes: 0 would be drawn there.
                let seed = (self.generators[lane].next_u64() % i32::MAX as u64) as i32 + 1;
                Posted::Begin { seed }
            } else {
                let row = post.actions.slice(lane * ACTION_WIDTH, (lane + 1) * ACTION_WIDTH);
                Posted::Step(request(row, &self.driver.sight))
            };
            let has_ended = state.has_ended;
            let slot = &mut state.slots[self.first + lane];
            slot.post(posted);
            if has_ended {
                slot.lose(NO_DRIVER.to_owned());
            }
        }
    }

    fn flush(&mut self) {
        self.driver.shared.asked.notify_one();
    }

    fn wait(&mut self, deadline: Instant) {
        self.driver.shared.wait(deadline);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.driver.shared.bell.reader.as_fd())
    }

    fn arm(&mut self, now: Instant) -> Option<Instant> {
        self.driver.shared.arm().then_some(now)
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        let LateRows { obs, infos, rewards } = rows;
        let mut collected = Collected::default();
        let mut outcomes = Vec::new();
        let mut state = self.driver.shared.lock();
        for lane in self.all() {
            let slot = &mut state.slots[self.first + lane];
            if let Some(outcome) = slot.outcome.take() {
                slot.is_under_way = false;
                outcomes.push((lane, outcome));
            }
        }
        drop(state);
        for (lane, outcome) in outcomes {
            let Outcome::Done { row, reward, begins, ended } = outcome else {
                collected.lost.insert(lane);
                continue;
            };
            let mut fits = true;
            for (to, from) in obs.iter_mut().zip(&row.obs) {
                let width = from.len();
                fits &= to.slice(lane * width, (lane + 1) * width).copy_from(from.as_ref());
            }
            for (to, info) in infos.iter_mut().zip(row.infos).filter(|_| !begins) {
                if let ColumnMut::I32(column) = to {
                    column[lane] = info;
                }
            }
            // The columns are those of the spec, of which rows are made.
            debug_assert!(fits, "rows have the spec's columns");
            rewards[lane] = reward;
            collected.done.insert(lane);
            collected.terminated.insert_if(lane, ended.is_some());
        }
        collected
    }

    fn give_up(&mut self, lanes: LaneSet, why: &str) -> LaneSet {
        let mut state = self.driver.shared.lock();
        let lanes = lanes & self.all();
        lanes.into_iter().for_each(|lane| state.slots[self.first + lane].give_up(why));
        drop(state);
        self.flush();
        lanes
    }

    fn refuse(&mut self, lane: usize, why: &str) {
        self.driver.shared.lock().slots[self.first + lane].give_up(why);
        self.flush();
    }

    fn connecting(&mut self) -> LaneSet {
        self.which(|state, lane| state.slots[lane].is_under_way && state.slots[lane].is_beginning)
    }

    fn gone(&self) -> Collected {
        let lost = self.which(|state, lane| state.slots[lane].is_gone);
        Collected { lost, ..Collected::default() }
    }

    fn why_lost(&mut self, lane: usize) -> Option<String> {
        self.driver.shared.lock().slots[self.first + lane].why_lost.clone()
    }

    fn coming(&self) -> LaneSet {
        self.which(|state, lane| state.slots[lane].is_coming)
    }
}

impl LaneBlock for WorldBlock {
    fn lanes(&self) -> usize {
        self.generators.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.generators[lane] = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.generators[lane].position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.generators[lane] = Generator::at(start);
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.driver.shared.lock().slots[self.first + lane].hash
    }

    fn has_verdicts(&self) -> bool {
        true
    }

    fn verdict(&self, lane: usize) -> Verdict {
        self.driver.shared.lock().slots[self.first + lane].verdict
    }

    /// Lanes whose engine is connected to are back at once; others are coming until it is.
    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let mut back = LaneSet::NONE;
        let mut state = self.driver.shared.lock();
        let (is_connected, has_ended) = (state.is_connected, state.has_ended);
        for lane in lanes & self.all() {
            let slot = &mut state.slots[self.first + lane];
            if !slot.is_lost || has_ended {
                continue;
            }
            slot.is_coming = !is_connected;
            if is_connected {
                (slot.is_lost, slot.is_gone) = (false, false);
                back.insert(lane);
            }
        }
        drop(state);
        self.flush();
        back
    }
}
