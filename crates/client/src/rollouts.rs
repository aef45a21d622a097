//! Rollouts: fragments that a policy plays, on this machine or on a cluster, while their receiver learns.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_engine::{Engine, Fragment, FragmentColumns, PlayError, Player, Reset};
use rollhouse_policy::{ModelError, PolicyError, model_of};
use rollhouse_wire::{PolicyGiven, PolicyLags};

use crate::blocking::Pool;
use crate::error::StepError;

pub use self::episodes::PlayedEpisode;
use self::episodes::Tally;
pub use self::serving::{MAX_EPISODE_STEPS, MAX_EPISODES_BYTES};
use self::serving::{Order, Played, Serving};

mod episodes;
mod serving;

/// Fragments that a policy plays, one after the other.
///
/// A thread of its own (`rollhouse-play`) plays while the receiver learns: as many fragments as its `staleness` says are under
/// way when one is returned, and an update comes behind those. So a fragment is at most that many updates older than the
/// newest; with 0 it is played by the newest, and nothing is played meanwhile.
///
/// ```text
/// staleness 1:  play 1 | play 2 | update 1 | play 3 | update 2 | ...
///                      | learn from 1     | learn from 2     | ...
/// ```
#[derive(Debug)]
pub struct Rollouts {
    orders: Option<SyncSender<Order>>,
    played: Receiver<Played>,
    thread: Option<JoinHandle<()>>,
    columns: FragmentColumns,
    lanes: usize,
    steps: usize,
    staleness: usize,
    under_way: usize,
    /// Fragments that were returned: they are filled again once nobody looks at them.
    returned: Vec<Arc<Fragment>>,
    tally: Tally,
    version: u64,
    /// Versions of updates, the newest last: as many as a fragment may be older.
    updates: VecDeque<u64>,
    /// What was measured and is not reported yet.
    lags: Arc<Mutex<PolicyLags>>,
    starts: Starts,
}

/// How episodes begin that are played to their ends, and those before the first step.
#[derive(Debug, Clone, Copy)]
struct Starts {
    seed: u64,
    group: usize,
    /// Whether a fragment has one whole episode of each lane.
    whole: bool,
    /// Number of fragments of such episodes so far.
    begun: u64,
}

impl Starts {
    /// Returns the next reset of so many lanes: those of a group have one seed, and each group another than all before.
    fn next(&mut self, lanes: usize) -> Reset {
        let groups = lanes.div_ceil(self.group) as u64;
        let first = self.seed.wrapping_add(self.begun.wrapping_mul(groups));
        self.begun += 1;
        let seed = |lane: usize| Some(first.wrapping_add((lane / self.group) as u64));
        Reset { seeds: (0..lanes).map(seed).collect(), ..Reset::default() }
    }
}

/// What is to be played, and by which policy.
#[derive(Debug, Clone)]
pub struct RolloutsOptions {
    /// Steps of each lane in a fragment, at least 1.
    pub steps: usize,
    /// Number of fragments under way while one is learned from, at most [`MAX_STALENESS`].
    pub staleness: usize,
    /// The seed of the first group of lanes; the next one has `seed + 1`.
    pub seed: u64,
    /// Number of neighbours that begin alike, which divides the lanes: 1 for none.
    pub group: usize,
    /// Whether each fragment has one episode of each lane, from its beginning to its end, however long it takes: `steps` are then
    /// played at a time. Its groups go on from the seeds of the fragment before. Else episodes go on from fragment to fragment.
    pub whole: bool,
    /// The policy, with the seed of what is random about it.
    pub policy: PolicyGiven,
    /// The policy's file; empty for a built-in one.
    pub file: Bytes,
}

/// A fragment, with the episodes that ended in it.
#[derive(Debug, Clone)]
pub struct PlayedBatch {
    /// What the lanes have shown and done.
    pub fragment: Arc<Fragment>,
    /// Episodes that ended in it, by step and lane. Those of lanes that were lost are none.
    pub episodes: Vec<PlayedEpisode>,
    /// Number of episodes that were cut off by the loss of their lane.
    pub lost: u64,
    /// By how many updates its oldest action is older than the newest policy, as it was returned.
    pub lag: u32,
}

/// Reason for which there is no fragment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutsError {
    /// There are no such fragments.
    #[error("{what} = {given}; it is from {least} to {most}")]
    Options {
        /// What was given.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The least that there may be.
        least: u64,
        /// The most.
        most: u64,
    },
    /// What was given is no policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy cannot play in the env.
    #[error("policy `{name}` cannot play here: {error}")]
    Model {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        error: ModelError,
    },
    /// The lanes are no whole groups.
    #[error("{lanes} lanes are no whole groups of {group}")]
    Group {
        /// Number of lanes.
        lanes: usize,
        /// Number of lanes of a group.
        group: usize,
    },
    /// Episodes that are to be played to their ends are too long.
    #[error(
        "whole episodes are not over after {steps} steps and {bytes} bytes; one batch has at most {MAX_EPISODE_STEPS} and \
         {MAX_EPISODES_BYTES}: give the env a time limit, or take fewer lanes"
    )]
    Long {
        /// Steps of each lane so far.
        steps: usize,
        /// Bytes of all lanes so far.
        bytes: usize,
    },
    /// An update notes other columns, or remembers other states, than the policy before.
    #[error(
        "an update notes other step columns, or remembers other states, than the policy that it is to follow"
    )]
    Columns,
    /// An update is of an earlier version.
    #[error("version {given} after {newest}; the versions of updates go up")]
    Version {
        /// The version that was given.
        given: u64,
        /// The newest.
        newest: u64,
    },
    /// The lanes of this machine could not be played.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// The lanes of the cluster could not be played.
    #[error(transparent)]
    Pool(#[from] StepError),
    /// The thread that plays could not be started.
    #[error("the thread that plays could not be started: {0}")]
    Thread(std::io::Error),
    /// It has ended, after an error that was returned.
    #[error("the rollouts have ended")]
    Ended,
}

/// Lanes that can be played.
pub trait PlayedLanes: Send + 'static {
    /// Begins episodes.
    ///
    /// # Errors
    /// The lanes could not be reset.
    fn begin(&mut self, reset: &Reset) -> Result<(), RolloutsError>;

    /// Has them play by a policy from now on. Returns the columns of their fragments.
    ///
    /// # Errors
    /// They go on by the policy that they had.
    fn follow(&mut self, policy: &PolicyGiven, file: Bytes) -> Result<FragmentColumns, RolloutsError>;

    /// Plays until the fragment is full. `at` says how many steps they have taken.
    ///
    /// # Errors
    /// The lanes are not to be played any more.
    fn play(&mut self, at: u64, fragment: &mut Fragment) -> Result<(), RolloutsError>;

    /// Has it counted what was measured of the policy, where somebody counts.
    fn report_lags(&mut self, lags: PolicyLags) {
        let _ = lags;
    }

    /// Returns the number of lanes.
    fn lanes(&self) -> usize;

    /// Ends them, with their open episodes.
    fn end(self);
}

impl Rollouts {
    /// Begins episodes in these lanes, and has them play. Blocks until all have the policy.
    ///
    /// # Errors
    /// See [`RolloutsError`].
    pub fn begin(mut lanes: impl PlayedLanes, options: RolloutsOptions) -> Result<Self, RolloutsError> {
        let RolloutsOptions { steps, staleness, seed, group, whole, policy, file } = options;
        let (count, version) = (lanes.lanes(), policy.version);
        within("steps", steps, 1..=MAX_FRAGMENT_STEPS)?;
        within("staleness", staleness, 0..=MAX_STALENESS)?;
        if group == 0 || count % group != 0 {
            return Err(RolloutsError::Group { lanes: count, group });
        }
        let mut starts = Starts { seed, group, whole, begun: 0 };
        if !whole {
            lanes.begin(&starts.next(count))?;
        }
        let columns = lanes.follow(&policy, file)?;
        let (orders, taken) = sync_channel(staleness + 2);
        let (send, played) = sync_channel(staleness + 1);
        let lags = Arc::<Mutex<PolicyLags>>::default();
        let serving = Serving { lanes, columns: columns.clone(), steps, at: 0, lags: Arc::clone(&lags) };
        // Task: player of rollouts
        let thread = std::thread::Builder::new().name("rollhouse-play".to_owned());
        let thread = thread.spawn(move || serving.serve(&taken, &send)).map_err(RolloutsError::Thread)?;
        Ok(Self {
            orders: Some(orders),
            played,
            thread: Some(thread),
            columns,
            lanes: count,
            steps,
            staleness,
            under_way: 0,
            returned: Vec::new(),
            tally: Tally::new(count),
            version,
            updates: VecDeque::new(),
            lags,
            starts,
        })
    }

    /// Returns the columns of the fragments.
    pub const fn columns(&self) -> &FragmentColumns {
        &self.columns
    }

    /// Returns the version of the newest policy.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the next fragment; `None` if it is not there within `patience`: the next call goes on to wait.
    ///
    /// # Errors
    /// See [`RolloutsError`]; afterwards they have ended.
    pub fn next(&mut self, patience: Duration) -> Result<Option<PlayedBatch>, RolloutsError> {
        if self.under_way == 0 {
            self.order()?;
        }
        let played = match self.played.recv_timeout(patience) {
            Ok(played) => played,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(RolloutsError::Ended),
        };
        self.under_way -= 1;
        let fragment = Arc::<Fragment>::from(played?);
        while self.under_way < self.staleness {
            self.order()?;
        }
        if !self.starts.whole {
            self.returned.push(Arc::clone(&fragment));
        }
        let (episodes, lost) = self.tally.take(&fragment);
        let oldest = fragment.versions().iter().min().copied().unwrap_or(self.version);
        let lag = self.updates.iter().filter(|&&version| version > oldest).count() as u32;
        self.lags.lock().returned(lag);
        Ok(Some(PlayedBatch { fragment, episodes, lost, lag }))
    }

    /// Has the lanes play by another policy, behind the fragments that are under way. Returns at once; [`Update::wait`] waits
    /// until all nodes have it.
    ///
    /// # Errors
    /// Its version is not above that of the one before, or the rollouts have ended.
    pub fn update(&mut self, policy: PolicyGiven, file: Bytes) -> Result<Update, RolloutsError> {
        if policy.version <= self.version {
            return Err(RolloutsError::Version { given: policy.version, newest: self.version });
        }
        let version = policy.version;
        let (send, done) = sync_channel(1);
        self.send(Order::Follow { policy: Box::new(policy), file, given: Instant::now(), done: send })?;
        self.version = version;
        if self.updates.len() > MAX_STALENESS {
            self.updates.pop_front();
        }
        self.updates.push_back(version);
        Ok(Update { done })
    }

    /// Asks for another fragment.
    fn order(&mut self) -> Result<(), RolloutsError> {
        if self.starts.whole {
            let reset = self.starts.next(self.lanes);
            self.send(Order::PlayEpisodes(Box::new(reset)))?;
            self.under_way += 1;
            return Ok(());
        }
        let free = self.returned.iter().position(|returned| Arc::strong_count(returned) == 1);
        let free = free.and_then(|at| Arc::try_unwrap(self.returned.swap_remove(at)).ok());
        // Those that somebody keeps are his now.
        self.returned.truncate(self.staleness + 2);
        let fragment = free.unwrap_or_else(|| Fragment::new(&self.columns, self.lanes, self.steps));
        self.send(Order::Play(Box::new(fragment)))?;
        self.under_way += 1;
        Ok(())
    }

    fn send(&self, order: Order) -> Result<(), RolloutsError> {
        let orders = self.orders.as_ref().ok_or(RolloutsError::Ended)?;
        orders.send(order).map_err(|_| RolloutsError::Ended)
    }
}

impl Drop for Rollouts {
    /// Ends the thread after what it plays now, and waits for it.
    fn drop(&mut self) {
        self.orders = None;
        // What it has played is nobody's any more.
        let (_, nothing) = sync_channel(0);
        self.played = nothing;
        if let Some(thread) = self.thread.take() {
            // A panic was an end.
            let _ended = thread.join();
        }
    }
}

/// An update that is under way.
#[derive(Debug)]
pub struct Update {
    done: Receiver<Result<FragmentColumns, RolloutsError>>,
}

impl Update {
    /// Waits until all nodes have it. Returns false if they have not within `patience`.
    ///
    /// # Errors
    /// They do not follow it, and go on by the one before.
    pub fn wait(&mut self, patience: Duration) -> Result<bool, RolloutsError> {
        match self.done.recv_timeout(patience) {
            Ok(followed) => followed.map(|_| true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(RolloutsError::Ended),
        }
    }
}

/// Lanes of this process, and the policy that plays them.
#[derive(Debug)]
pub struct EmbeddedLanes {
    engine: Engine,
    player: Option<Player>,
    /// What its lanes need for as long as they are played.
    kept: Box<dyn Any + Send>,
}

impl EmbeddedLanes {
    /// Takes the lanes of an engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine, player: None, kept: Box::new(()) }
    }

    /// Keeps something until the lanes have ended, such as the processes that step them.
    #[must_use]
    pub fn keeping(self, kept: impl Any + Send) -> Self {
        Self { kept: Box::new(kept), ..self }
    }
}

impl PlayedLanes for EmbeddedLanes {
    fn begin(&mut self, reset: &Reset) -> Result<(), RolloutsError> {
        self.engine.reset(reset).map_err(PlayError::Step)?;
        Ok(())
    }

    fn follow(&mut self, policy: &PolicyGiven, file: Bytes) -> Result<FragmentColumns, RolloutsError> {
        let PolicyGiven { name, version, seed, sampling, .. } = policy;
        let model = model_of(name, *version, *sampling, &file)?;
        let refused = |error| RolloutsError::Model { name: name.clone(), error };
        let Self { engine, player, .. } = self;
        let player = match player {
            None => player.insert(Player::new(engine, &*model, *seed).map_err(refused)?),
            Some(player) if !player.is_like(&*model, engine.entry().spec()) => {
                return Err(RolloutsError::Columns);
            }
            Some(player) => {
                player.follow(engine, &*model, *seed).map_err(refused)?;
                player
            }
        };
        Ok(player.columns(engine))
    }

    fn play(&mut self, at: u64, fragment: &mut Fragment) -> Result<(), RolloutsError> {
        let Self { engine, player: Some(player), .. } = self else { return Err(RolloutsError::Ended) };
        player.stand_at(at);
        fragment.begin(&engine.frame().map_err(PlayError::Step)?);
        while !player.play(engine, fragment, PATIENCE)? {}
        Ok(())
    }

    fn lanes(&self) -> usize {
        self.engine.lanes()
    }

    fn end(self) {
        // What an engine that hangs has not handed over is lost.
        let _closed = self.engine.close();
        drop(self.kept);
    }
}

impl PlayedLanes for Pool {
    fn begin(&mut self, reset: &Reset) -> Result<(), RolloutsError> {
        self.reset(reset)?;
        Ok(())
    }

    fn follow(&mut self, policy: &PolicyGiven, file: Bytes) -> Result<FragmentColumns, RolloutsError> {
        let of = |columns: &FragmentColumns| (columns.notes.clone(), columns.states.clone());
        let before = self.fragment_columns();
        Self::follow(self, policy, file)?;
        let columns = self.fragment_columns().ok_or(RolloutsError::Ended)?;
        if before.is_some_and(|before| of(&before) != of(&columns)) {
            return Err(RolloutsError::Columns);
        }
        Ok(columns)
    }

    fn play(&mut self, at: u64, fragment: &mut Fragment) -> Result<(), RolloutsError> {
        Ok(Self::play(self, at, fragment)?)
    }

    fn report_lags(&mut self, lags: PolicyLags) {
        Self::report_lags(self, lags);
    }

    fn lanes(&self) -> usize {
        Self::lanes(self)
    }

    fn end(self) {
        // One that nobody closed ends with its leases.
        let _closed = self.close();
    }
}

fn within(
    what: &'static str,
    given: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<(), RolloutsError> {
    if range.contains(&given) {
        return Ok(());
    }
    let (least, most) = (*range.start() as u64, *range.end() as u64);
    Err(RolloutsError::Options { what, given: given as u64, least, most })
}

/// Steps of each lane in a fragment.
pub const MAX_FRAGMENT_STEPS: usize = 65_536;

/// Number of fragments under way.
pub const MAX_STALENESS: usize = 64;

/// Time between two looks at late lanes.
const PATIENCE: Duration = Duration::from_secs(1);
