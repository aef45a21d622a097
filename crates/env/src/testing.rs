//! Tools for tests: a simulator whose lanes finish late, in an order of its own.

use std::collections::BTreeMap;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    ColumnData, ColumnMut, ColumnSpec, DType, LaneSet, Options, Reports, Start, StepColumn, StepColumns,
    Verdict, random_bits,
};

use crate::{
    BatchEnv, BlockStep, CallError, Collected, EnvEntry, Image, ImageSize, LaneBlock, LateLanes, LateRows,
    MakeError, Post, RenderError, StateError,
};

/// What the lanes of a simulator that are slow do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    /// Seed of the order in which lanes finish.
    pub seed: u64,
    /// Lane of a session that never finishes from its n-th step on: (lane, n).
    pub hangs: Option<(usize, u64)>,
    /// Number of times that the lane which hangs says that it connects; then it goes on.
    pub connects: u32,
    /// Number of times that a lane is asked for before it is back.
    pub comes_back_after: u32,
    /// Lane of a session that finishes only when nothing else is under way.
    pub last: Option<usize>,
    /// Whether all lanes that are under way finish at once.
    pub together: bool,
    /// While it is closed no lane finishes, whatever its session is asked.
    pub gate: Option<&'static Gate>,
    /// Whether a lane takes its default, zeros, in place of every third action or so, as if none had come in time, and
    /// reports what it took, with a version of the policy and the step columns `tick` and `defaulted`.
    pub reports: bool,
    /// Lane of a session whose n-th step reports that: (lane, n, what).
    pub misreports: Option<(usize, u64, Misreport)>,
}

/// What a lane reports that it cannot have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misreport {
    /// An action that is none.
    Action,
    /// A version of the policy before that of its last step.
    Version,
    /// A boolean of 2.
    Note,
    /// Another action than it was given to repeat.
    Otherwise,
}

/// A gate that a test opens and closes; it is made open.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Debug)]
struct GateState {
    closed: bool,
    /// Bells to ring once when it is opened.
    bells: Vec<Arc<Bell>>,
}

/// A descriptor that is readable while it has been rung.
#[derive(Debug)]
struct Bell {
    reader: PipeReader,
    writer: PipeWriter,
    rung: Mutex<bool>,
}

impl Bell {
    fn new() -> Result<Self, MakeError> {
        let (reader, writer) = pipe().map_err(|error| MakeError::Refused { source: error.into() })?;
        Ok(Self { reader, writer, rung: Mutex::new(false) })
    }

    /// Rings it, or silences it.
    fn ring(&self, rings: bool) {
        let mut rung = self.rung.lock();
        if rings != std::mem::replace(&mut *rung, rings) {
            let moved = if rings { (&self.writer).write(&[1]) } else { (&self.reader).read(&mut [0]) };
            assert_eq!(moved.ok(), Some(1), "a pipe of one byte");
        }
    }
}

impl Gate {
    /// Makes an open gate.
    pub const fn new() -> Self {
        Self { state: Mutex::new(GateState { closed: false, bells: Vec::new() }), moved: Condvar::new() }
    }

    /// Opens or closes it.
    pub fn close(&self, closed: bool) {
        let mut state = self.state.lock();
        state.closed = closed;
        if !closed {
            state.bells.drain(..).for_each(|bell| bell.ring(true));
        }
        self.moved.notify_all();
    }

    /// Rings the bell once it is opened; returns whether it is closed.
    fn ring_when_open(&self, bell: &Arc<Bell>) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            state.bells.retain(|known| !Arc::ptr_eq(known, bell));
            state.bells.push(Arc::clone(bell));
        }
        state.closed
    }

    /// Waits until it is open, at most until `deadline`; returns whether it is.
    fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        !self.moved.wait_while_until(&mut state, |state| state.closed, deadline).timed_out() || !state.closed
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// The lanes of a session, which its blocks share: which may finish now.
struct Loop {
    timing: Timing,
    /// Whether info channels are written in rows that began an episode.
    first_infos: bool,
    draws: u64,
    posted: Vec<LaneSet>,
    /// Posted lanes that the loop has been told to begin.
    begun: Vec<LaneSet>,
    free: Vec<LaneSet>,
}

impl Loop {
    /// Returns whether a lane has finished that was not collected.
    fn has_free(&self) -> bool {
        self.free.iter().any(|free| !free.is_empty())
    }

    /// Lets some of the lanes under way finish, at least one if any can; returns whether one did.
    fn turn(&mut self) -> bool {
        self.draws += 1;
        let (mut some, mut first) = (false, None);
        for (block, lanes) in self.begun.iter().enumerate() {
            for lane in *lanes {
                let number = block * BLOCK_LANES + lane;
                if self.timing.last == Some(number)
                    && self.begun.iter().map(|lanes| lanes.len()).sum::<usize>() > 1
                {
                    continue;
                }
                first = first.or(Some((block, lane)));
                let finishes = random_bits(self.timing.seed, number as u32, self.draws).is_multiple_of(5);
                if finishes || self.timing.together {
                    self.free[block].insert(lane);
                    some = true;
                }
            }
        }
        if let (false, Some((block, lane))) = (some, first) {
            self.free[block].insert(lane);
            some = true;
        }
        for (begun, free) in self.begun.iter_mut().zip(&self.free) {
            *begun &= !*free;
        }
        some
    }
}

struct Delayed {
    inner: Box<dyn BatchEnv>,
    number: usize,
    shared: Arc<Mutex<Loop>>,
    bell: Arc<Bell>,
    steps: LaneSet,
    resets: LaneSet,
    actions: ColumnData,
    scratch: Vec<ColumnData>,
    infos: Vec<ColumnData>,
    /// Lanes whose action was replaced by the default, and why rows of lanes were refused the last time.
    reported: (LaneSet, BTreeMap<usize, String>),
    rewards: Vec<f64>,
    taken: [u64; BLOCK_LANES],
    hung: LaneSet,
    /// Lanes whose last options were refused.
    refused: LaneSet,
    coming: [u32; BLOCK_LANES],
}

/// Returns an entry whose lanes do what those of `entry` do, late.
pub fn late(entry: &Arc<EnvEntry>, timing: Timing) -> Arc<EnvEntry> {
    let inner = Arc::clone(entry);
    let spec =
        if timing.reports { entry.spec().clone().with_reports(&reports()) } else { entry.spec().clone() };
    let made = EnvEntry::late(spec, move |options| blocks(&inner, timing, options));
    let made = made.with_constants(entry.constants());
    let made = if entry.draws_options() { made.with_drawn_options() } else { made };
    Arc::new(match (entry.render_size(), entry.render_fps()) {
        (Some(size), Some(images_per_second)) => made.drawn(size, images_per_second),
        _ => made,
    })
}

/// What lanes report that report something: the step columns are the number of the lane's step, and whether it took its
/// default.
fn reports() -> Reports {
    let column = |name: &str, dtype| StepColumn { name: name.to_owned(), dtype, shape: Vec::new() };
    let columns = vec![column("tick", DType::I64), column("defaulted", DType::Bool)];
    Reports { actions: true, step_columns: StepColumns::new(columns).expect("two names") }
}

/// Makes the blocks of a session around those of `inner`.
fn blocks(
    inner: &EnvEntry,
    timing: Timing,
    options: &[Options],
) -> Result<Vec<Box<dyn LateLanes>>, MakeError> {
    let blocks = options.len().div_ceil(BLOCK_LANES);
    let none = || vec![LaneSet::NONE; blocks];
    let (posted, begun, free) = (none(), none(), none());
    let first_infos = inner.spec().has_first_infos();
    let shared = Arc::new(Mutex::new(Loop { timing, first_infos, draws: 0, posted, begun, free }));
    let (spec, bell) = (inner.spec(), Arc::new(Bell::new()?));
    let block = |(number, options): (usize, &[Options])| {
        let lanes = options.len();
        let zeros = |column: &ColumnSpec| ColumnData::zeros(column.dtype, lanes * column.elements());
        Ok(Box::new(Delayed {
            inner: inner.make_block(options)?,
            number,
            shared: Arc::clone(&shared),
            bell: Arc::clone(&bell),
            steps: LaneSet::NONE,
            resets: LaneSet::NONE,
            actions: zeros(&spec.action_column()),
            scratch: spec.obs_columns().iter().map(zeros).collect(),
            infos: spec.info_channels.iter().map(zeros).collect(),
            reported: (LaneSet::NONE, BTreeMap::new()),
            rewards: vec![0.0; lanes],
            taken: [0; BLOCK_LANES],
            hung: LaneSet::NONE,
            refused: LaneSet::NONE,
            coming: [0; BLOCK_LANES],
        }) as Box<dyn LateLanes>)
    };
    options.chunks(BLOCK_LANES).enumerate().map(block).collect()
}

impl Delayed {
    fn hangs(&self, lane: usize) -> bool {
        let hangs = self.shared.lock().timing.hangs;
        hangs.is_some_and(|(hung, from)| hung == self.number * BLOCK_LANES + lane && self.taken[lane] >= from)
    }

    /// Gives lanes their default in place of the action that they were posted with, as if that had not come in time.
    fn choose(&mut self, step: LaneSet) {
        let elements = self.actions.as_ref().len() / self.lanes();
        let none = ColumnData::zeros(self.actions.as_ref().dtype(), elements);
        for lane in step {
            let number = (self.number * BLOCK_LANES + lane) as u32;
            let late = random_bits(CHOICES, number, self.taken[lane]).is_multiple_of(3);
            self.reported.0.insert_if(lane, late);
            if late {
                assert!(self.actions.set_row(lane, elements, none.as_ref()), "actions of one type");
            }
        }
    }

    /// Writes what the lanes of `steps` have done, behind the channels of the env within.
    fn report(&self, infos: &mut [ColumnMut<'_>], steps: LaneSet) {
        let timing = self.shared.lock().timing;
        let [actions, ColumnMut::I64(versions), ColumnMut::I64(ticks), ColumnMut::U8(defaulted)] =
            &mut infos[self.infos.len()..]
        else {
            return;
        };
        let elements = self.actions.as_ref().len() / self.lanes();
        for lane in steps {
            let at = (self.number * BLOCK_LANES + lane, self.taken[lane]);
            let wrong =
                timing.misreports.filter(|&(lane, step, _)| (lane, step) == at).map(|(.., what)| what);
            let taken = self.actions.as_ref().slice(lane * elements, (lane + 1) * elements);
            let mut column = actions.reborrow();
            let mut row = column.slice(lane * elements, (lane + 1) * elements);
            assert!(row.copy_from(taken), "the channel has the type of actions");
            if let (Some(wrong), ColumnMut::I64(row)) = (wrong, row) {
                row[0] = match wrong {
                    Misreport::Action => -1,
                    _ => row[0] ^ i64::from(wrong == Misreport::Otherwise),
                };
            }
            versions[lane] = if wrong == Some(Misreport::Version) { 1 } else { FIRST_VERSION + at.1 as i64 };
            ticks[lane] = at.1 as i64;
            defaulted[lane] =
                if wrong == Some(Misreport::Note) { 2 } else { self.reported.0.has(lane).into() };
        }
    }
}

impl LaneBlock for Delayed {
    fn lanes(&self) -> usize {
        self.inner.lanes()
    }
    fn seed(&mut self, lane: usize, seed: u64) {
        self.inner.seed(lane, seed);
    }
    fn position(&self, lane: usize) -> Start {
        self.inner.position(lane)
    }
    fn restore(&mut self, lane: usize, start: Start) {
        self.inner.restore(lane, start);
    }
    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let given = self.inner.set_options(lane, options);
        self.refused.insert_if(lane, given.is_err());
        given
    }
    fn state_hash(&self, lane: usize) -> u32 {
        self.inner.state_hash(lane)
    }
    fn has_verdicts(&self) -> bool {
        self.inner.has_verdicts()
    }
    fn verdict(&self, lane: usize) -> Verdict {
        self.inner.verdict(lane)
    }
    fn take_failed(&mut self) -> LaneSet {
        self.inner.take_failed()
    }
    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let after = self.shared.lock().timing.comes_back_after;
        let mut back = LaneSet::NONE;
        for lane in lanes {
            self.coming[lane] += 1;
            if self.coming[lane] > after {
                self.coming[lane] = 0;
                let lane = LaneSet::one(lane);
                back |= if (lane & self.hung).is_empty() { self.inner.revive(lane) } else { lane };
                self.hung &= !lane;
                self.refused &= !lane;
            }
        }
        back
    }
    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        self.inner.state(lane)
    }
    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        self.inner.set_state(lane, state)
    }
    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        self.inner.call(lane, method, payload)
    }
    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        self.inner.render(lane, size)
    }
    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        self.inner.text(lane, columns)
    }
}

impl LateLanes for Delayed {
    fn post(&mut self, post: Post<'_>) {
        let elements = self.actions.as_ref().len() / self.lanes();
        let (given, wanted) = (post.actions, (self.actions.as_ref().dtype(), self.actions.len()));
        let refused = (post.step | post.reset) & self.refused;
        assert!(refused.is_empty(), "lanes {refused:?} are posted whose options were refused");
        for lane in post.step {
            assert_eq!((given.dtype(), given.len()), wanted, "one action for each lane");
            assert!(!(self.steps | self.resets).has(lane), "lane {lane} is under way");
            let action = given.slice(lane * elements, (lane + 1) * elements);
            assert!(self.actions.set_row(lane, elements, action), "actions of the spec's type");
        }
        let reports = self.shared.lock().timing.reports;
        if reports && post.repeats {
            self.reported.0 &= !post.step;
        } else if reports {
            self.choose(post.step);
        }
        self.steps |= post.step;
        self.resets |= post.reset;
        let hanging: LaneSet = post.step.into_iter().filter(|&lane| self.hangs(lane)).collect();
        self.shared.lock().posted[self.number] |= (post.step | post.reset) & !hanging;
    }

    fn flush(&mut self) {
        let Loop { posted, begun, .. } = &mut *self.shared.lock();
        for (posted, begun) in posted.iter_mut().zip(begun) {
            *begun |= std::mem::take(posted);
        }
    }

    fn wait(&mut self, deadline: Instant) {
        let gate = self.shared.lock().timing.gate;
        if gate.is_some_and(|gate| !gate.wait(deadline)) {
            return;
        }
        let mut shared = self.shared.lock();
        if !shared.turn() {
            drop(shared);
            // Nothing that is under way can finish. It may return early, and does, as often as there is time for.
            std::thread::yield_now();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.reader.as_fd())
    }

    fn arm(&mut self, now: Instant) -> Option<Instant> {
        self.bell.ring(false);
        let mut shared = self.shared.lock();
        let closed = shared.timing.gate.is_some_and(|gate| gate.ring_when_open(&self.bell));
        // What can finish does so while one sleeps.
        if !closed && shared.turn() {
            self.bell.ring(true);
        }
        let coming = self.coming.iter().any(|&asked| asked > 0);
        (shared.has_free() || coming).then_some(now)
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        let (free, first_infos) = {
            let shared = &mut *self.shared.lock();
            (std::mem::take(&mut shared.free[self.number]), shared.first_infos)
        };
        let (steps, resets) = (self.steps & free, self.resets & free);
        if free.is_empty() {
            return Collected::default();
        }
        self.steps &= !free;
        self.resets &= !free;
        let mut obs: Vec<ColumnMut<'_>> = self.scratch.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<ColumnMut<'_>> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        let ended = self.inner.step(BlockStep {
            skip: !(steps | resets),
            reset: resets,
            actions: self.actions.as_ref(),
            obs: &mut obs,
            infos: &mut infos,
            rewards: &mut self.rewards,
        });
        steps.into_iter().for_each(|lane| self.taken[lane] += 1);
        let lanes = self.inner.lanes();
        let mut lost = ended.lost & free;
        if first_infos {
            lost |= self.inner.first_infos(resets & !lost, &mut infos);
        }
        for lane in free & !lost {
            rows.rewards[lane] = self.rewards[lane];
            copy(rows.obs, &self.scratch, lane, lanes);
        }
        for lane in if first_infos { free } else { steps } & !lost {
            copy(rows.infos, &self.infos, lane, lanes);
        }
        self.report(rows.infos, steps & !lost);
        let (terminated, truncated) = (ended.terminated & steps, ended.truncated & steps);
        Collected { done: free & !lost, terminated, truncated, lost, hung: LaneSet::NONE }
    }

    fn give_up(&mut self, lanes: LaneSet, _why: &str) -> LaneSet {
        self.steps &= !lanes;
        self.resets &= !lanes;
        self.hung |= lanes;
        let shared = &mut *self.shared.lock();
        shared.posted[self.number] &= !lanes;
        shared.begun[self.number] &= !lanes;
        shared.free[self.number] &= !lanes;
        lanes
    }

    fn refuse(&mut self, lane: usize, why: &str) {
        self.hung.insert(lane);
        self.reported.1.insert(lane, why.to_owned());
    }

    fn why_lost(&mut self, lane: usize) -> Option<String> {
        self.reported.1.get(&lane).cloned()
    }

    fn connecting(&mut self) -> LaneSet {
        let Loop { timing, posted, .. } = &mut *self.shared.lock();
        let Some((lane, _)) = timing.hangs.filter(|&(lane, _)| lane / BLOCK_LANES == self.number) else {
            return LaneSet::NONE;
        };
        if timing.connects == 0 {
            return LaneSet::NONE;
        }
        timing.connects -= 1;
        let lane = LaneSet::one(lane % BLOCK_LANES);
        if timing.connects == 0 {
            timing.hangs = None;
            posted[self.number] |= lane;
        }
        lane
    }

    fn coming(&self) -> LaneSet {
        (0..self.lanes()).filter(|&lane| self.coming[lane] > 0).collect()
    }
}

/// Seed of the lanes' choices.
const CHOICES: u64 = 11;

/// Version of the policy that a lane reports of its first step; each later one has the next.
pub const FIRST_VERSION: i64 = 100;

fn copy(to: &mut [ColumnMut<'_>], from: &[ColumnData], lane: usize, lanes: usize) {
    for (to, from) in to.iter_mut().zip(from) {
        let width = from.as_ref().len() / lanes;
        let row = from.as_ref().slice(lane * width, (lane + 1) * width);
        assert!(to.slice(lane * width, (lane + 1) * width).copy_from(row), "columns of one type");
    }
}
