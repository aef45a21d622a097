//! Watches sessions, with any kind of owner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::msgpack::Message;
use rollhouse_core::{AutoresetMode, ColumnData, ColumnSpec, Options, RecordRule};
use rollhouse_replay::{Episode, Frame, PolicyInfo, RunHeader, SoFar, StepFrom, Steps};
use rollhouse_wire::limits::MAX_WATCH_ANSWER_BYTES;
use rollhouse_wire::{
    CallError, CallId, DialError, Envelope, EnvelopeFault, EnvelopeReader, EnvelopeWriter, LaneFrame,
    LanePicture, LanePosition, LookAnswer, LookParams, OpenWatch, PiecedAnswer, Refusal, ReplayOf,
    ReplayStanding, SessionId, SoFar as SoFarAnswer, SoFarFrom, SoFarParams, SoFarRows, StepState,
    StreamLost, Watch as WatchRequest, WatchGrant, WatchOpened,
};

use crate::blocking::Cluster;
use crate::cluster::AsyncCluster;
use crate::error::RequestError;

/// A session that is watched: its lanes are looked at and never moved. Looking costs the session next to nothing.
///
/// A watcher asks for one thing at a time. A watch that is not asked for anything for 15 s is ended by its node.
pub struct AsyncWatch {
    grant: WatchGrant,
    opened: WatchOpened,
    run: RunHeader,
    reader: EnvelopeReader,
    writer: EnvelopeWriter,
    asked: u64,
    /// The position with the last answer, if it is a recorded episode.
    pub(crate) standing: Option<ReplayStanding>,
}

/// A watched session as [`AsyncWatch`], for callers without a runtime: calls block.
pub struct Watch {
    pub(crate) inner: AsyncWatch,
    pub(crate) cluster: Cluster,
}

/// Why a session cannot be watched, or not any more.
#[derive(Debug)]
pub enum WatchError {
    /// The coordinator did not say where the session is.
    Request(RequestError),
    /// The node cannot be reached.
    Node(Arc<DialError>),
    /// The node did not let the watcher in.
    Open(CallError),
    /// The node refused the request; the watch goes on.
    Refused(Refusal),
    /// The watch is over: the session has ended, or the connection was lost.
    Over(StreamLost),
    /// The node's answer makes no sense.
    Answer {
        /// The fault in it.
        what: String,
    },
}

impl AsyncCluster {
    /// Watches a session; the role viewer suffices.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub async fn watch(&self, session: SessionId) -> Result<AsyncWatch, WatchError> {
        let grant: WatchGrant = self.request(WatchRequest { session }).await.map_err(WatchError::Request)?;
        let node = self.network().node_at(&grant.node, &grant.address).await.map_err(WatchError::Node)?;
        let open = OpenWatch {
            pool: session.pool,
            index: session.index,
            incarnation: grant.incarnation,
            key: grant.key,
        };
        let (opened, reader, writer) =
            node.watch(open, Some(CallId::generate())).await.map_err(WatchError::Open)?;
        let run = header_of(session, &opened)?;
        Ok(AsyncWatch { grant, opened, run, reader, writer, asked: 0, standing: None })
    }
}

impl AsyncWatch {
    /// Returns the session that is watched.
    pub const fn session(&self) -> SessionId {
        self.grant.session
    }

    /// Returns the name of the node on which the session runs.
    pub fn node(&self) -> &str {
        &self.grant.node
    }

    /// Returns the node's description of the session.
    pub const fn opened(&self) -> &WatchOpened {
        &self.opened
    }

    /// Returns the recorded episode that the session shows, if it shows one: it can be sought and played then.
    pub const fn replay(&self) -> Option<&ReplayOf> {
        self.opened.settings.replay.as_ref()
    }

    /// Returns the position of a recorded episode with the last answer; `None` for lanes that are stepped, and before
    /// the first.
    pub const fn standing(&self) -> Option<ReplayStanding> {
        self.standing
    }

    /// Returns the newest frame of a lane after the one with the serial number `after` (0 for any). Waits at most
    /// `wait` for one, and as long as a frame takes among all that the node's watchers are given. Not cancellation-safe:
    /// afterwards the watch is of no use.
    ///
    /// # Errors
    /// See [`WatchError`]; `BadRequest` if `wait` is longer than [`MAX_LOOK_MS`](rollhouse_wire::limits::MAX_LOOK_MS).
    pub async fn look(
        &mut self,
        lane: u32,
        after: u64,
        wait: Duration,
    ) -> Result<Option<LaneFrame>, WatchError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        // Others are drawn where they are looked at.
        let picture = self.opened.spec.source.is_learned();
        let params = LookParams { lane, after, wait_ms, picture };
        let LookAnswer { frame, replay } = self.ask(LookParams::METHOD, &params).await?;
        self.standing = replay;
        Ok(frame)
    }

    /// Returns a lane's episode as far as it has come: from its reset on, or from where it began to be watched. Not
    /// cancellation-safe.
    ///
    /// # Errors
    /// See [`WatchError`]; `Busy` while no episode is under way.
    pub async fn so_far(&mut self, lane: u32) -> Result<Episode, WatchError> {
        let action = self.opened.spec.action_column();
        let mut actions = ColumnData::zeros(action.dtype, 0);
        let elements = action.elements();
        let mut from = 0;
        let mut shown: Option<SoFarRows> = None;
        let answer = loop {
            let mut answer: SoFarAnswer = self.ask(SoFarParams::METHOD, &SoFarParams { lane, from }).await?;
            if let Some(rows) = answer.rows.take() {
                let all = shown.get_or_insert_default();
                add_rows(all, rows, &answer.from);
            }
            let (before, was_all) = (from, from == answer.steps);
            let taken = actions.extend_le(&answer.actions);
            from = match &shown {
                Some(rows) => rows.rewards.len() as u64,
                // Actions without an element have nothing to be sent.
                None => actions.len().checked_div(elements).map_or(answer.steps, |rows| rows as u64),
            };
            let whole = taken && actions.len() as u64 == from * elements as u64;
            if !whole || from > answer.steps || from < answer.steps && from == before {
                return Err(unlike("the actions of an episode"));
            }
            // A wide first observation comes alone, behind the last step.
            let lacks_first = shown.as_ref().is_some_and(|rows| rows.first_obs.is_empty());
            if from == answer.steps && (was_all || !lacks_first || self.row_bytes() == 0) {
                break answer;
            }
        };
        let steps = shown.map(|rows| self.steps_of(rows, answer.steps)).transpose()?;
        let (start, from) = match answer.from {
            SoFarFrom::Reset(start) => (start.into(), None),
            SoFarFrom::Step(at) => (at.position.into(), Some(self.step_of(*at)?)),
        };
        Ok(self.episode(SoFar {
            run: self.run.clone(),
            lane: self.opened.first_lane + lane,
            number: answer.episode,
            start,
            from,
            length: answer.steps,
            actions,
            hash: answer.hash,
            ended: (answer.terminated, answer.truncated),
            total_reward: answer.total_reward,
            steps,
        }))
    }

    /// Returns a frame as an episode of no steps, which looks as the lane did then. Where the env does not show its state, it
    /// has what the lane showed.
    ///
    /// # Errors
    /// If the frame is not one of this session.
    pub fn shown(&self, lane: u32, frame: &LaneFrame) -> Result<Episode, WatchError> {
        let recomputed = frame.hash.zip(frame.position).filter(|_| !frame.state.is_empty());
        let unknown = (0, LanePosition { seed: 0, words: 0, half: None });
        let (hash, position) = recomputed.unwrap_or(unknown);
        let at = StepState {
            step: frame.step,
            total_reward: frame.total_reward,
            position,
            state: if recomputed.is_some() { frame.state.clone() } else { Vec::new() },
            hash,
            obs: frame.obs.clone(),
        };
        let action = self.opened.spec.action_column();
        let steps = match recomputed {
            Some(_) => None,
            None => {
                let picture = LanePicture { at: 0, png: frame.picture.clone() };
                let pictures = if frame.picture.is_empty() { Vec::new() } else { vec![picture] };
                let first_obs = frame.obs.clone();
                Some(self.steps_of(SoFarRows { first_obs, pictures, ..SoFarRows::default() }, 0)?)
            }
        };
        Ok(self.episode(SoFar {
            run: self.run.clone(),
            lane: self.opened.first_lane + lane,
            number: frame.episode,
            start: position.into(),
            from: Some(self.step_of(at)?),
            length: 0,
            actions: ColumnData::zeros(action.dtype, 0),
            hash: recomputed.map(|(hash, _)| hash),
            ended: (frame.terminated, frame.truncated),
            total_reward: frame.total_reward,
            steps,
        }))
    }

    /// Returns the bytes of an observation.
    fn row_bytes(&self) -> usize {
        self.opened.spec.obs_columns().iter().map(ColumnSpec::row_bytes).sum()
    }

    /// Returns what a lane showed in `steps` steps.
    fn steps_of(&self, rows: SoFarRows, steps: u64) -> Result<Steps, WatchError> {
        let SoFarRows { first_obs, obs, rewards, pictures } = rows;
        let first_obs = self.obs_rows(&first_obs, 1)?;
        if rewards.len() as u64 != steps || obs.len() != self.row_bytes() * rewards.len() {
            return Err(unlike("the observations of an episode"));
        }
        let picture = |LanePicture { at, png }: LanePicture| Some((at, Frame::of_bytes(png).ok()?));
        Ok(Steps {
            first_obs,
            obs: self.obs_rows(&obs, rewards.len())?,
            // They are not sent.
            infos: Vec::new(),
            rewards,
            frames: pictures.into_iter().filter_map(picture).collect(),
        })
    }

    /// Returns rows of each observation column, which lie back to back row by row.
    fn obs_rows(&self, bytes: &[u8], count: usize) -> Result<Vec<ColumnData>, WatchError> {
        let specs = self.opened.spec.obs_columns();
        let mut columns: Vec<_> = specs.iter().map(|spec| ColumnData::zeros(spec.dtype, 0)).collect();
        let mut rest = bytes;
        for _ in 0..count {
            for (column, spec) in columns.iter_mut().zip(&specs) {
                let split = rest.split_at_checked(spec.row_bytes());
                let (own, others) = split.ok_or_else(|| unlike("an observation"))?;
                if !column.extend_le(own) {
                    return Err(unlike("an observation"));
                }
                rest = others;
            }
        }
        Ok(columns)
    }

    /// Returns the episode under its own name: a recorded one has another than the pool that shows it.
    fn episode(&self, so_far: SoFar) -> Episode {
        let mut episode = Episode::from(so_far);
        if let Some(name) = self.replay().and_then(|of| of.episode.parse().ok()) {
            episode.info.name = name;
        }
        episode
    }

    fn step_of(&self, at: StepState) -> Result<StepFrom, WatchError> {
        let obs = self.obs_rows(&at.obs, 1)?;
        let StepState { step, total_reward, position, state, hash, .. } = at;
        Ok(StepFrom { step, total_reward, position: position.into(), state, hash, obs })
    }

    pub(crate) async fn ask<P: Message, T: Message>(
        &mut self,
        method: &str,
        params: &P,
    ) -> Result<T, WatchError> {
        let asked = Envelope::command(self.asked + 1, method, params);
        let asked = asked.map_err(|error| unlike(&error.to_string()))?.with_room(MAX_WATCH_ANSWER_BYTES);
        let answer = self.exchange(asked).await?;
        answer.payload().map_err(|error| unlike(&error.to_string()))
    }

    async fn exchange(&mut self, asked: Envelope) -> Result<Envelope, WatchError> {
        self.asked = asked.id;
        self.writer.write(&asked).await.map_err(over)?;
        let mut pieced = PiecedAnswer::default();
        let answer = loop {
            let piece = self.reader.read().await.map_err(over)?.ok_or(WatchError::Over(StreamLost::Cut))?;
            let whole = pieced.add(piece, MAX_WATCH_ANSWER_BYTES);
            if let Some(whole) = whole.map_err(|error| unlike(&error.to_string()))? {
                break whole;
            }
        };
        match answer.error {
            _ if answer.id != self.asked => Err(unlike("an answer to something else")),
            Some(refusal) => Err(WatchError::Refused(refusal)),
            None => Ok(answer),
        }
    }
}

impl Cluster {
    /// Watches a session as [`AsyncCluster::watch`] does. Blocks until the node has let the watcher in.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn watch(&self, session: SessionId) -> Result<Watch, WatchError> {
        let inner = self.drive(self.inner().watch(session))?;
        Ok(Watch { inner, cluster: self.clone() })
    }
}

impl Watch {
    /// Returns the asynchronous watch, for calls that do not wait.
    pub const fn inner(&self) -> &AsyncWatch {
        &self.inner
    }

    /// Returns a frame as [`AsyncWatch::look`] does. Blocks for that time and a round trip; if the node is silent, until
    /// the connection counts as lost.
    ///
    /// # Errors
    /// Those of [`AsyncWatch::look`].
    pub fn look(&mut self, lane: u32, after: u64, wait: Duration) -> Result<Option<LaneFrame>, WatchError> {
        self.cluster.drive(self.inner.look(lane, after, wait))
    }

    /// Returns a lane's episode as [`AsyncWatch::so_far`] does. Blocks for as long as its parts take.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn so_far(&mut self, lane: u32) -> Result<Episode, WatchError> {
        self.cluster.drive(self.inner.so_far(lane))
    }
}

/// Returns the header under which the lanes' episodes would be recorded.
/// Adds what a part of an episode has shown to the parts before. The observation before the first step comes with some part.
fn add_rows(all: &mut SoFarRows, part: SoFarRows, from: &SoFarFrom) {
    let SoFarRows { mut first_obs, obs, rewards, pictures } = part;
    if let SoFarFrom::Step(at) = from {
        first_obs.clone_from(&at.obs);
    }
    if all.first_obs.is_empty() {
        all.first_obs = first_obs;
    }
    all.obs.extend(obs);
    all.rewards.extend(rewards);
    all.pictures.extend(pictures);
}

fn header_of(session: SessionId, opened: &WatchOpened) -> Result<RunHeader, WatchError> {
    let WatchOpened { spec, settings, pool_lanes, program, .. } = opened;
    let given: Vec<_> = settings.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let options = Options::check(&spec.options, &given).map_err(|error| unlike(&error.to_string()))?;
    let policy = settings.collect.as_ref().map_or("external", |collect| &collect.policy);
    Ok(RunHeader {
        run: session.pool,
        options: vec![options],
        lanes: *pool_lanes,
        schedule: settings.seeds,
        autoreset: match settings.autoreset {
            AutoresetMode::NextStep => "NextStep",
            AutoresetMode::SameStep => "SameStep",
            AutoresetMode::Disabled => "Disabled",
        }
        .to_owned(),
        max_episode_steps: match settings.max_episode_steps {
            None => spec.max_episode_steps,
            Some(limit) => (limit > 0).then_some(limit),
        },
        policy: PolicyInfo { name: policy.to_owned(), version: 0 },
        record: RecordRule::All,
        program: program.clone(),
        // A run's id is a UUIDv7: its upper 48 bits are the wall clock when it was drawn.
        started_ms: (session.pool.as_u128() >> 80) as u64,
        parent: None,
        arguments: settings.env_kwargs.clone(),
        spec: spec.recorded(),
    })
}

fn over(fault: EnvelopeFault) -> WatchError {
    match fault {
        EnvelopeFault::Lost(lost) => WatchError::Over(lost),
        EnvelopeFault::Envelope(error) => unlike(&error.to_string()),
    }
}

pub(crate) fn unlike(what: &str) -> WatchError {
    WatchError::Answer { what: what.to_owned() }
}

impl fmt::Debug for AsyncWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsyncWatch({} on {})", self.grant.session, self.grant.node)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Node(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Over(_) => f.write_str("the session is not watched any more"),
            Self::Answer { what } => write!(f, "the node answers what makes no sense: {what}"),
        }
    }
}

impl std::error::Error for WatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => error.source(),
            Self::Node(error) => error.source(),
            Self::Open(error) => error.source(),
            Self::Over(lost) => Some(lost),
            Self::Refused(_) | Self::Answer { .. } => None,
        }
    }
}

impl From<RequestError> for WatchError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}
