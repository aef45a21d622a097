//! `rollhouse watch`: shows lanes of a cluster while they are played.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{Cluster, RemoteDisk, Replay, Watch, WatchError};
use rollhouse_core::{ColumnData, ColumnSpec, EnvSpec, EpisodeName, Role};
use rollhouse_replay::{Episode, Library};
use rollhouse_viewer::{LiveFrame, LiveSource, Look, Pictures, ReplayMove, watch};
use rollhouse_wire::{EndCause, LaneFrame, RefusalCode, ReplayStanding, SessionStatus};
use serde::Serialize;

use crate::args::WatchArgs;
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::output::Output;
use crate::python_envs;
use crate::replay::nearest::find_or_nearest;

pub(crate) fn run(args: &WatchArgs, out: &mut Output) -> Result<Status, Failure> {
    if !args.json && !io::stdout().is_terminal() {
        let failure = Failure::new(Status::Usage, "lanes are watched on a terminal, and stdout is not one");
        return Err(failure.hint("--json prints each frame of a lane as a line"));
    }
    let cluster = connect(&args.cluster)?;
    let Some(name) = args.replay else {
        let mut source = Source::of(args.what.as_deref().unwrap_or_default(), cluster)?;
        return look_at(&mut source, args, out);
    };
    let replay = cluster.open_replay(name).map_err(|error| not_opened(&cluster, name, &error))?;
    let done = Source::replay(&replay, cluster.clone()).and_then(|mut source| {
        source.begin(args.at, args.speed).map_err(|error| failure(&error))?;
        look_at(&mut source, args, out).map_err(|failure| source.with_cause(failure))
    });
    // What was watched has been; a replay that cannot be closed now ends with its lease.
    let _closed = replay.close();
    done
}

fn look_at(source: &mut Source, args: &WatchArgs, out: &mut Output) -> Result<Status, Failure> {
    if args.lane >= source.lanes() {
        let message = format_args!("--lane {}: there are {} lanes", args.lane, source.lanes());
        return Err(Failure::new(Status::Usage, message));
    }
    if args.json {
        return print(source, args, out);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let minds_colour = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let pictures = match args.pictures {
        Pictures::Asked if minds_colour => Pictures::Cells,
        pictures => pictures,
    };
    let registry = args.plugins.registry()?;
    let hosted = python_envs::of_recordings(&args.hosting, true)?;
    let learn = python_envs::learner(hosted.as_ref());
    let envs = python_envs::envs(&registry, learn.as_deref());
    // What cannot be watched at all is said before the terminal is taken.
    source.open(args.lane).map_err(|error| failure(&error))?;
    watch(envs, source, args.lane, Look::of(variable), pictures)
        .map_err(|error| Failure::of(Status::Failed, &error))?;
    Ok(Status::Done)
}

/// Prints frames of a lane until its session ends.
fn print(source: &mut Source, args: &WatchArgs, out: &mut Output) -> Result<Status, Failure> {
    let mut left = args.frames.unwrap_or(u64::MAX);
    while left > 0 {
        match source.frame(args.lane, Duration::from_secs(1)) {
            Ok(Some((session, lane, frame))) => {
                let replay = source.standing(args.lane);
                let (action, observation, infos) = source.values(&frame);
                let LaneFrame { episode, step, total_reward, reward, terminated, truncated, .. } = frame;
                let state = frame.state;
                let line = Line {
                    session,
                    lane,
                    episode,
                    step,
                    total_reward,
                    reward,
                    terminated,
                    truncated,
                    action,
                    observation,
                    infos,
                    state,
                    replay,
                };
                out.json(&line)?;
                out.flush()?;
                left -= 1;
            }
            Ok(None) => {}
            Err(WatchError::Over(_)) if left < args.frames.unwrap_or(u64::MAX) => break,
            Err(error) => return Err(failure(&error)),
        }
    }
    Ok(Status::Done)
}

/// A frame as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    session: String,
    /// Number of the lane in the pool.
    lane: u32,
    episode: u64,
    step: u64,
    #[serde(rename = "return")]
    total_reward: f64,
    reward: f64,
    terminated: bool,
    truncated: bool,
    /// Action that led here; null after a reset.
    action: Option<Vec<f64>>,
    /// Numbers of each part of the observation, by its path; null if they are many, as those of an image.
    observation: Option<BTreeMap<String, Vec<f64>>>,
    /// Numbers of the step's infos, by their paths.
    infos: BTreeMap<String, Vec<f64>>,
    state: Vec<f64>,
    replay: Option<ReplayStanding>,
}

/// The sessions of a name, one of which is watched at a time.
struct Source {
    cluster: Cluster,
    sessions: Vec<SessionStatus>,
    /// The index of the open session in the list, its watch, the lane of it that was looked at, and the frame that was
    /// seen last.
    open: Option<(usize, Watch, u32, u64)>,
}

impl Source {
    /// Finds the sessions of that session name, pool or node.
    fn of(what: &str, cluster: Cluster) -> Result<Self, Failure> {
        let all = cluster.sessions().map_err(|error| request_failure(&error))?.sessions;
        let is_meant = |session: &SessionStatus| {
            let id = session.report.session;
            let shown = id.to_string();
            let pool = id.pool.to_string();
            shown == what
                || shown.split('/').next() == Some(what)
                || session.node == what
                || pool == what
                || format!("{pool}/{}", id.index) == what
        };
        let sessions: Vec<_> = all.into_iter().filter(is_meant).collect();
        if sessions.is_empty() {
            let message =
                format!("no open session, pool or node with sessions is called `{}`", what.escape_debug());
            return Err(Failure::new(Status::Usage, message).hint("`rollhouse sessions` shows what there is"));
        }
        Ok(Self { cluster, sessions, open: None })
    }

    /// The session that shows an episode which was just opened.
    fn replay(replay: &Replay, cluster: Cluster) -> Result<Self, Failure> {
        let all = cluster.sessions().map_err(|error| request_failure(&error))?.sessions;
        let sessions: Vec<_> =
            all.into_iter().filter(|session| session.report.session == replay.session()).collect();
        if sessions.is_empty() {
            let cause = cluster.cause_of_end(replay.session()).ok().flatten();
            let message = format!("the replay has ended: {}", cause.map_or("unknown", EndCause::word));
            return Err(Failure::new(Status::Unavailable, message));
        }
        Ok(Self { cluster, sessions, open: None })
    }

    /// Brings a replay to where it is to be watched from.
    fn begin(&mut self, at: u64, speed: Option<f64>) -> Result<(), WatchError> {
        let (watch, ..) = self.open(0)?;
        if at > 0 {
            watch.seek(at)?;
        }
        if let Some(speed) = speed {
            watch.play(speed)?;
        }
        Ok(())
    }

    /// A failure with the reason for which the session has ended, if it has.
    fn with_cause(&self, failure: Failure) -> Failure {
        let Some(session) = self.sessions.first() else { return failure };
        match self.cluster.cause_of_end(session.report.session) {
            Ok(Some(cause)) => failure.hint(format_args!("the session has ended: {}", cause.word())),
            Ok(None) | Err(_) => failure,
        }
    }

    /// Returns the session that has a lane, by its index in the list, and the index of the lane in it.
    fn place(&self, lane: u32) -> (usize, u32) {
        let mut left = lane;
        for (at, session) in self.sessions.iter().enumerate() {
            match left.checked_sub(session.report.lanes) {
                Some(less) => left = less,
                None => return (at, left),
            }
        }
        (0, 0)
    }

    /// Returns the watch of the session that has a lane, opened if it is another session, with the lane's index in it
    /// and the frame of that lane that was seen last.
    fn open(&mut self, lane: u32) -> Result<(&mut Watch, u32, &mut u64), WatchError> {
        let (at, lane) = self.place(lane);
        let known = self.open.take().filter(|(known, ..)| *known == at);
        let (watch, seen) = match known {
            Some((_, watch, of, seen)) => (watch, if of == lane { seen } else { 0 }),
            None => (self.cluster.watch(self.sessions[at].report.session)?, 0),
        };
        let (_, watch, lane, seen) = self.open.insert((at, watch, lane, seen));
        Ok((watch, *lane, seen))
    }

    /// Returns action, observation and infos of a frame as numbers.
    fn values(&self, frame: &LaneFrame) -> Values {
        let Some((_, watch, ..)) = &self.open else { return Values::default() };
        let opened = watch.inner().opened();
        let action = numbers(&frame.action, &[opened.spec.action_column()]).pop().map(|(_, row)| row);
        let columns = opened.spec.obs_columns();
        let elements: usize = columns.iter().map(ColumnSpec::elements).sum();
        let observation =
            (elements <= MAX_PRINTED).then(|| numbers(&frame.obs, &columns).into_iter().collect());
        (action, observation, infos_of(frame, &opened.spec))
    }

    /// Returns the next frame of a lane, with the session's name and the number of the lane in the pool.
    fn frame(&mut self, lane: u32, wait: Duration) -> Result<Option<(String, u32, LaneFrame)>, WatchError> {
        let (watch, lane, seen) = self.open(lane)?;
        let looked = watch.look(lane, *seen, wait);
        if let Err(WatchError::Over(_) | WatchError::Answer { .. }) = &looked {
            self.open = None;
        }
        let Some(frame) = looked? else { return Ok(None) };
        let Some((_, watch, lane, seen)) = &mut self.open else { return Ok(None) };
        *seen = frame.serial;
        let (name, first) = (watch.inner().session().to_string(), watch.inner().opened().first_lane);
        Ok(Some((name, first + *lane, frame)))
    }
}

impl LiveSource for Source {
    fn lanes(&self) -> u32 {
        self.sessions.iter().fold(0, |sum, session| sum.saturating_add(session.report.lanes))
    }

    fn name(&self, lane: u32) -> String {
        let session = &self.sessions[self.place(lane).0];
        format!("session {} on {} for {}", session.report.session, session.node, session.report.owner)
    }

    fn look(&mut self, lane: u32, wait: Duration) -> Result<Option<LiveFrame>, String> {
        let Some((_, _, frame)) = self.frame(lane, wait).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let Some((_, watch, lane, _)) = &self.open else { return Ok(None) };
        let episode = watch.inner().shown(*lane, &frame).map_err(|error| error.to_string())?;
        let mut action = ColumnData::zeros(episode.info.run.spec.action_column().dtype, 0);
        let action = (!frame.action.is_empty() && action.extend_le(&frame.action)).then_some(action);
        let ended = (frame.terminated, frame.truncated);
        Ok(Some(LiveFrame { episode, action, reward: frame.reward, ended }))
    }

    fn so_far(&mut self, lane: u32) -> Result<Episode, String> {
        let (watch, lane, _) = self.open(lane).map_err(|error| error.to_string())?;
        watch.so_far(lane).map_err(|error| error.to_string())
    }

    fn standing(&self, _lane: u32) -> Option<ReplayStanding> {
        let (_, watch, ..) = self.open.as_ref()?;
        watch.inner().standing()
    }

    fn go(&mut self, lane: u32, to: ReplayMove) -> Result<(), String> {
        let (watch, ..) = self.open(lane).map_err(|error| error.to_string())?;
        let moved = match to {
            ReplayMove::Seek(step) => watch.seek(step),
            ReplayMove::Step(by) => watch.step(by),
            ReplayMove::Play(speed) => watch.play(speed),
            ReplayMove::Pause => watch.pause(),
        };
        // The frame is what is looked at next.
        moved.map(drop).map_err(|error| error.to_string())
    }
}

/// Action, observation and infos of a frame as numbers.
type Values = (Option<Vec<f64>>, Option<BTreeMap<String, Vec<f64>>>, BTreeMap<String, Vec<f64>>);

/// Returns the numbers of a row of columns that lie back to back, by the columns' paths; none if they are not there.
fn numbers(mut bytes: &[u8], columns: &[ColumnSpec]) -> Vec<(String, Vec<f64>)> {
    let mut found = Vec::new();
    for column in columns {
        let Some((own, rest)) = bytes.split_at_checked(column.row_bytes()) else { break };
        let mut row = ColumnData::zeros(column.dtype, 0);
        if !row.extend_le(own) {
            break;
        }
        found.push((column.path.clone(), (0..row.len()).map(|at| row.number(at)).collect()));
        bytes = rest;
    }
    found
}

/// Returns the numbers in the infos of a step that its env has said.
fn infos_of(frame: &LaneFrame, spec: &EnvSpec) -> BTreeMap<String, Vec<f64>> {
    let channels = &spec.info_channels;
    let rows = numbers(&frame.infos, channels);
    let mask = channels.iter().position(|channel| channel.role == Role::RemarkMask);
    let are_there = mask.and_then(|at| rows.get(at)).map(|(_, row)| row.clone());
    let mut said = are_there.iter().flatten();
    let shown = rows.into_iter().zip(channels).filter(|(_, channel)| match channel.role {
        Role::ActionMask => true,
        Role::RemarkMask => false,
        role => {
            let is_there = are_there.is_none() || said.next().is_some_and(|&there| there != 0.0);
            is_there && role != Role::FirstRemark
        }
    });
    shown.map(|(row, _)| row).collect()
}

/// Most numbers of an observation that are printed.
const MAX_PRINTED: usize = 4096;

/// Returns the failure to open an episode; where there is none of the name, it names the nearest ones.
fn not_opened(cluster: &Cluster, name: EpisodeName, error: &WatchError) -> Failure {
    let is_unknown =
        matches!(error, WatchError::Request(error) if error.refusal() == Some(RefusalCode::NotFound));
    let library =
        is_unknown.then(|| Library::open(Arc::new(RemoteDisk::new(cluster.clone())), Path::new("")));
    match library {
        Some(Ok(library)) => find_or_nearest(&library, name).err().unwrap_or_else(|| failure(error)),
        Some(Err(_)) | None => failure(error),
    }
}

fn failure(error: &WatchError) -> Failure {
    match error {
        WatchError::Request(error) => request_failure(error),
        WatchError::Over(_) | WatchError::Node(_) => Failure::of(Status::Unavailable, error),
        WatchError::Open(_) | WatchError::Refused(_) => Failure::of(Status::Refused, error),
        WatchError::Answer { .. } => Failure::of(Status::Failed, error),
    }
}
