//! A stream on which a session is watched: envelopes come in, frames and episodes go out.
//!
//! The watched session is a [`Source`]: a session whose lanes are stepped, or one that shows a recorded episode and can
//! be moved by its watchers. A watcher asks for one thing after the other, so that never more than one answer waits for
//! it. It is sent away when it has not asked, or not taken an answer, for the node's patience: a lane that is watched
//! costs its steps a little.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::msgpack::Message;
use rollhouse_core::{Claimant, Portion};
use rollhouse_wire::limits::{
    ANSWER_ENVELOPE_BYTES, MAX_LOOK_MS, MAX_SO_FAR_BYTES, MAX_WATCH_ANSWER_BYTES, MAX_WATCHED_ROW_BYTES,
};
use rollhouse_wire::{
    Admittance, CloseCode, Connection, Envelope, EnvelopeReader, EnvelopeWriter, LaneFrame, LanePicture,
    LookAnswer, LookParams, OpenWatch, PauseParams, PlayParams, Refusal, RefusalCode, Request, Responder,
    SeekParams, SessionId, SoFar, SoFarFrom, SoFarParams, SoFarRows, StepParams, StepState,
};
use tokio::time::{sleep_until, timeout};

use crate::NodeFigures;
use crate::hosting::Hosting;
use crate::live::{Begin, Following, Rows, Snapshot};
use crate::player::Move;
use crate::replay_session::{ReplaySession, ReplayedFrame, WatcherPlace};
use crate::session_handle::SessionHandle;

/// Answers an `OpenWatch` and shows what is asked for until the watcher or the session ends. Bytes that are no envelope
/// end the connection with the reason.
pub(crate) async fn serve(
    hosting: Arc<Hosting>,
    connection: Connection,
    open: OpenWatch,
    responder: Responder,
) {
    let (began, asked, call) = (Instant::now(), Request::OpenWatch(open), responder.call());
    let session = SessionId { pool: open.pool, index: open.index };
    let watched = hosting.watched(&open).and_then(|(handle, opened, claimant)| {
        Ok((Place::enter(&hosting, &connection, claimant.clone())?, handle, opened, claimant))
    });
    responder.span(&asked).in_scope(|| {
        let of = watched.as_ref().map(|_| session);
        hosting.answers_owner(asked.word(), call, began, of);
    });
    let (_place, handle, opened, claimant) = match watched {
        Ok(watched) => watched,
        Err(refusal) => {
            // Whether he still wants to hear it is his affair.
            let _told = responder.refuse(refusal).await;
            return;
        }
    };
    let (lanes, patience) = (opened.lanes, hosting.watch_patience());
    let Ok(Ok((reader, writer))) = timeout(patience, responder.accept_envelopes(opened)).await else {
        return;
    };
    let source = Source::of(&handle);
    let mut watcher = Watcher { hosting, claimant, handle, lanes, source, patience };
    watcher.run(&connection, reader, writer).await;
}

/// A watcher's place among the watchers of the node.
struct Place {
    figures: Arc<NodeFigures>,
    _shares: (Admittance, Portion),
}

impl Place {
    fn enter(hosting: &Hosting, connection: &Connection, claimant: Claimant) -> Result<Self, Refusal> {
        let shares = hosting.admit_watching(connection, claimant)?;
        hosting.figures.watching.watchers.enter(u64::MAX);
        Ok(Self { figures: Arc::clone(&hosting.figures), _shares: shares })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.figures.watching.watchers.leave();
    }
}

/// A peer that watches a session.
struct Watcher {
    hosting: Arc<Hosting>,
    claimant: Claimant,
    handle: SessionHandle,
    lanes: u32,
    source: Source,
    patience: Duration,
}

/// The session that is watched.
enum Source {
    /// A session whose lanes an owner or a policy steps.
    Live {
        /// The watcher's place at the lane that it looks at.
        following: Option<Following>,
        /// The lane and the episode of which the watcher asks for parts.
        kept: Option<(u32, Arc<Snapshot>)>,
    },
    /// A recorded episode.
    Replay {
        replay: Arc<ReplaySession>,
        /// The step up to which the watcher asks for parts of the episode.
        upto: u64,
        _present: WatcherPlace,
    },
}

impl Source {
    fn of(handle: &SessionHandle) -> Self {
        match handle.replay() {
            Some(replay) => Self::Replay { replay: Arc::clone(replay), upto: 0, _present: replay.enter() },
            None => Self::Live { following: None, kept: None },
        }
    }
}

/// Why a watcher is sent away.
enum End {
    ByWatcher,
    Session,
    /// It did not ask, or did not take what it had asked for.
    Hangs,
    Fault(CloseCode, String),
}

impl Watcher {
    async fn run(&mut self, connection: &Connection, mut reader: EnvelopeReader, mut writer: EnvelopeWriter) {
        let handle = self.handle.clone();
        let end = tokio::select! {
            // What ends the session wins over what is asked of it.
            biased;
            () = handle.over() => End::Session,
            end = self.answer_all(&mut reader, &mut writer) => end,
        };
        let code = match end {
            End::ByWatcher => {
                // Already finished or lost is as good.
                let _finished = writer.stream().finish();
                return;
            }
            End::Session => CloseCode::SessionEnded,
            End::Hangs => {
                self.hosting.figures.watching.dropped.add(1);
                CloseCode::TooSlow
            }
            End::Fault(code, reason) => {
                self.hosting.figures.malformed.add(1);
                return connection.close(code, &reason);
            }
        };
        writer.stream().give_up(code);
        reader.stream().give_up(code);
    }

    async fn answer_all(&mut self, reader: &mut EnvelopeReader, writer: &mut EnvelopeWriter) -> End {
        loop {
            let asked = match timeout(self.patience, reader.read()).await {
                Ok(Ok(Some(asked))) => asked,
                Ok(Ok(None)) => return End::ByWatcher,
                Ok(Err(fault)) => {
                    return fault.code().map_or(End::ByWatcher, |code| End::Fault(code, fault.to_string()));
                }
                Err(_) => return End::Hangs,
            };
            let mut answer = self.answer(asked).await;
            let bytes = answer.payload.len();
            let admitted = (bytes > ANSWER_ENVELOPE_BYTES)
                .then(|| self.hosting.admit_watch_bytes(self.claimant.clone(), bytes))
                .transpose();
            // Held until the watcher has taken the answer.
            let _admitted = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    answer = answered::<()>(answer, Err(refusal));
                    None
                }
            };
            for piece in answer.into_pieces() {
                match timeout(self.patience, writer.write(&piece)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return End::ByWatcher,
                    Err(_) => return End::Hangs,
                }
            }
        }
    }

    async fn answer(&mut self, asked: Envelope) -> Envelope {
        let envelope = Envelope { payload: Vec::new(), error: None, ..asked.clone() };
        match asked.method.as_str() {
            LookParams::METHOD => match params(&asked) {
                Ok(params) => answered(envelope, self.look(params, WatchRoom::of(asked.room)).await),
                Err(refusal) => answered::<()>(envelope, Err(refusal)),
            },
            SoFarParams::METHOD => match params(&asked) {
                Ok(params) => answered(envelope, self.so_far(params, WatchRoom::of(asked.room)).await),
                Err(refusal) => answered::<()>(envelope, Err(refusal)),
            },
            _ => match self.asked_move(&asked) {
                Ok((replay, asked)) => answered(envelope, self.go(&replay, asked).await),
                Err(refusal) => answered::<()>(envelope, Err(refusal)),
            },
        }
    }

    async fn look(&mut self, params: LookParams, room: WatchRoom) -> Result<LookAnswer, Refusal> {
        let LookParams { lane, after, wait_ms, picture } = params;
        if wait_ms > MAX_LOOK_MS {
            let message = format!("wait_ms = {wait_ms}; at most {MAX_LOOK_MS} are allowed");
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        self.check_lane(lane)?;
        let (hosting, handle) = (Arc::clone(&self.hosting), self.handle.clone());
        let figures = &hosting.figures;
        // With many watchers each sees fewer frames, so that together they cost the thread that answers owners little.
        let pace = Duration::from_micros(figures.watching.watchers.get() * ANSWER_PACE_US);
        let now = tokio::time::Instant::now();
        let until = now + Duration::from_millis(wait_ms.into()).max(pace);
        if let Source::Replay { replay, .. } = &self.source {
            sleep_until(now + pace).await;
            let shown = replay.look(after, until, &hosting.executor).await?;
            figures.watching.frames_shown.add(u64::from(shown.is_some()));
            let standing = shown.as_ref().map_or_else(|| replay.stands(), |shown| shown.standing);
            let frame = shown.map(|shown| (*shown.frame).clone());
            return Ok(LookAnswer { frame, replay: Some(standing) });
        }
        let following = self.follow(lane)?;
        sleep_until(now + pace).await;
        let nudge = handle.attend_watchers(&hosting.executor);
        let frame = following.frame((after, picture), until, nudge).await.map(|(frame, missed)| {
            figures.watching.frames_shown.add(1);
            figures.watching.frames_missed.add(missed);
            let has_room = frame.picture.len() + frame.obs.len() <= room.row;
            let picture = if has_room { frame.picture.clone() } else { Vec::new() };
            LaneFrame { picture, ..(*frame).clone() }
        });
        Ok(LookAnswer { frame, replay: None })
    }

    async fn so_far(&mut self, asked: SoFarParams, room: WatchRoom) -> Result<SoFar, Refusal> {
        let SoFarParams { lane, from } = asked;
        self.check_lane(lane)?;
        let kept = match &mut self.source {
            Source::Replay { replay, upto, .. } => {
                if from == 0 {
                    *upto = replay.stands().step;
                }
                return replay.so_far(*upto, from);
            }
            Source::Live { kept, .. } => kept.take(),
        };
        let kept = match kept.filter(|(of, _)| *of == lane && from > 0) {
            Some((_, snapshot)) => snapshot,
            None if from > 0 => {
                let message = "from = 0 comes before further parts of an episode";
                return Err(Refusal::new(RefusalCode::BadRequest, message));
            }
            None => self.snapshot_of(lane).await?,
        };
        let part = part_of(&kept, from, room);
        if let Source::Live { kept: keep, .. } = &mut self.source {
            *keep = Some((lane, kept));
        }
        part
    }

    /// Returns the move of a recorded episode that an envelope's method asks for.
    fn asked_move(&self, asked: &Envelope) -> Result<(Arc<ReplaySession>, Move), Refusal> {
        let unsupported = |message: String| Refusal::new(RefusalCode::Unsupported, message);
        let method = asked.method.as_str();
        let moves = [SeekParams::METHOD, PlayParams::METHOD, PauseParams::METHOD, StepParams::METHOD];
        if !moves.contains(&method) {
            let known = [LookParams::METHOD, SoFarParams::METHOD].into_iter().chain(moves);
            let known: Vec<_> = known.collect();
            let message = format!("a watch has no method `{method}`; there are {}", known.join(", "));
            return Err(unsupported(message));
        }
        let Source::Replay { replay, .. } = &self.source else {
            return Err(unsupported(format!("`{method}` is for recorded episodes; these lanes are stepped")));
        };
        let asked = match method {
            SeekParams::METHOD => Move::Seek(params::<SeekParams>(asked)?.step),
            PlayParams::METHOD => Move::Play(params::<PlayParams>(asked)?.speed),
            PauseParams::METHOD => {
                let PauseParams {} = params(asked)?;
                Move::Pause
            }
            _ => Move::Step(params::<StepParams>(asked)?.by),
        };
        Ok((Arc::clone(replay), asked))
    }

    async fn go(&self, replay: &ReplaySession, asked: Move) -> Result<LookAnswer, Refusal> {
        let ReplayedFrame { frame, standing } = replay.go(asked, &self.hosting.executor).await?;
        self.hosting.figures.watching.frames_shown.add(1);
        Ok(LookAnswer { frame: Some((*frame).clone()), replay: Some(standing) })
    }

    async fn snapshot_of(&mut self, lane: u32) -> Result<Arc<Snapshot>, Refusal> {
        let (hosting, handle) = (Arc::clone(&self.hosting), self.handle.clone());
        let following = self.follow(lane)?;
        let until = tokio::time::Instant::now() + SNAPSHOT_WAIT;
        let taken = following.snapshot(until, handle.attend_watchers(&hosting.executor)).await;
        taken.ok_or_else(|| {
            let why = "none is under way, or the env does not show its state";
            Refusal::busy(format!("no episode of lane {lane} is known: {why}"), SNAPSHOT_RETRY_MS)
        })
    }

    fn check_lane(&self, lane: u32) -> Result<(), Refusal> {
        if lane >= self.lanes {
            let message = format!("lane = {lane}; the session has {} lanes", self.lanes);
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        Ok(())
    }

    /// Returns the watcher's place at that lane; it leaves the one before.
    fn follow(&mut self, lane: u32) -> Result<&Following, Refusal> {
        let (Source::Live { following, .. }, Some(live)) = (&mut self.source, self.handle.live()) else {
            return Err(Refusal::new(RefusalCode::Internal, "nobody steps a recorded episode"));
        };
        let known = match following.take().filter(|following| following.lane() == lane) {
            Some(known) => known,
            None => live.follow(lane, &self.claimant)?,
        };
        Ok(following.insert(known))
    }
}

fn answered<T: Message>(envelope: Envelope, answer: Result<T, Refusal>) -> Envelope {
    envelope.answered(answer.as_ref().map_err(Clone::clone))
}

fn params<T: Message>(asked: &Envelope) -> Result<T, Refusal> {
    asked.payload().map_err(|error| {
        let message = format!("params of `{}`: {error}", asked.method);
        Refusal::new(RefusalCode::BadRequest, message)
    })
}

/// Bytes that a watcher takes of what a lane shows.
#[derive(Debug, Clone, Copy)]
struct WatchRoom {
    /// Most bytes of an observation and a picture.
    row: usize,
    /// Most bytes of two observations in one answer.
    two_rows: usize,
    /// Bytes of a part of an episode, but for one step of it.
    part: usize,
}

impl WatchRoom {
    /// An answer that comes in one envelope.
    const ENVELOPE: Self = Self { row: 112 << 10, two_rows: 96 << 10, part: MAX_SO_FAR_BYTES };
    /// An answer that comes in pieces.
    const PIECES: Self =
        Self { row: MAX_WATCHED_ROW_BYTES, two_rows: MAX_WATCHED_ROW_BYTES, part: 16 * MAX_SO_FAR_BYTES };

    const fn of(room: u32) -> Self {
        if (room as usize) < MAX_WATCH_ANSWER_BYTES { Self::ENVELOPE } else { Self::PIECES }
    }
}

/// Returns the episode with as many of its actions, from `from` on, as fit an answer; where what the lane has shown is kept, at
/// least one. The observation before them comes alone, behind the last action, where two observations do not fit.
fn part_of(snapshot: &Snapshot, from: u64, room: WatchRoom) -> Result<SoFar, Refusal> {
    let Snapshot { tape, start, hash } = snapshot;
    let first = match tape.begin() {
        Begin::Reset => 0,
        Begin::Step(at) => at.step,
    };
    let steps = tape.steps() - first;
    if from > steps {
        let message = format!("from = {from}; {steps} actions are known of the episode");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    let shown = tape.rows().map_or(0, |rows| row_of(rows, steps));
    if shown > room.row {
        let most = room.row;
        let message =
            format!("an observation of {shown} bytes is too large to be watched: at most {most} are taken");
        return Err(Refusal::new(RefusalCode::Unsupported, message));
    }
    let comes_alone = 2 * shown > room.two_rows;
    let has_first = !comes_alone || from == steps;
    let at = match tape.begin() {
        Begin::Reset => SoFarFrom::Reset((*start).into()),
        Begin::Step(at) => SoFarFrom::Step(Box::new(StepState {
            step: at.step,
            total_reward: at.total_reward,
            position: at.position.into(),
            state: at.state.clone(),
            hash: at.hash,
            obs: if has_first { at.obs.clone() } else { Vec::new() },
        })),
    };
    let bytes = tape.actions().as_ref().bytes();
    let row = bytes.len().checked_div(steps as usize).unwrap_or(0);
    // What is shown takes half of a part at most, but for one row; pictures have the rest.
    let most = if tape.rows().is_some() { room.part / 2 } else { room.part };
    let wide = row + if tape.rows().is_some() { shown + size_of::<f64>() } else { 0 };
    let least = u64::from(tape.rows().is_some());
    let until = steps.min(from + ((most / wide.max(1)) as u64).max(least));
    let rows = tape.rows().map(|rows| {
        let is_first = (comes_alone || from == 0) && has_first && matches!(tape.begin(), Begin::Reset);
        let is_last = until == steps && (from < steps || steps == 0);
        let part = rows_of(rows, from..until, (shown, is_last), room);
        SoFarRows { first_obs: if is_first { rows.first_obs.clone() } else { Vec::new() }, ..part }
    });
    let (terminated, truncated) = tape.ended();
    Ok(SoFar {
        episode: tape.number(),
        from: at,
        steps,
        actions: bytes.get(from as usize * row..until as usize * row).unwrap_or_default().to_vec(),
        terminated,
        truncated,
        total_reward: tape.total_reward(),
        hash: *hash,
        rows,
    })
}

/// Returns the bytes of an observation that a lane has shown in so many steps.
fn row_of(rows: &Rows, steps: u64) -> usize {
    rows.obs.len().checked_div(steps as usize).unwrap_or(rows.first_obs.len())
}

/// Returns what a lane has shown in those steps, each of which has so many bytes of observations. A part has the pictures before
/// its actions, the last one also that behind its last.
fn rows_of(rows: &Rows, steps: Range<u64>, (shown, is_last): (usize, bool), room: WatchRoom) -> SoFarRows {
    let (from, until) = (steps.start as usize, steps.end as usize);
    let taken = shown * (until - from).max(1);
    let mut left = (room.part / 2).min(room.row.saturating_sub(taken));
    let pictures = rows.pictures.iter().filter(|(at, picture)| {
        let is_part = steps.contains(at) || is_last && *at == steps.end;
        let fits = is_part && picture.len() <= left;
        left -= if fits { picture.len() } else { 0 };
        fits
    });
    SoFarRows {
        first_obs: Vec::new(),
        pictures: pictures.map(|(at, png)| LanePicture { at: *at, png: png.to_vec() }).collect(),
        obs: rows.obs.get(from * shown..until * shown).unwrap_or_default().to_vec(),
        rewards: rows.rewards.get(from..until).unwrap_or_default().to_vec(),
    }
}

/// Microseconds that each watcher adds to the time between two of its frames: together they see 500 a second at most.
const ANSWER_PACE_US: u64 = 2_000;
/// Time to wait for the episode of a lane: until its session is stepped next.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(2);
const SNAPSHOT_RETRY_MS: u64 = 500;

#[cfg(test)]
mod tests {
    use rollhouse_core::{ColumnData, ColumnRef, Start};

    use super::*;
    use crate::live::{Row, StepBegin, Tape};

    /// Returns what a lane without a state has shown in so many steps since it is watched, in observations of so many bytes.
    fn shown(bytes: usize, steps: u8) -> Snapshot {
        let at = StepBegin { step: 7, obs: vec![99; bytes], ..StepBegin::default() };
        let tape = Tape::new(1, Begin::Step(Box::new(at)), &ColumnData::F32(Vec::new()));
        let mut tape = tape.keeping_rows();
        tape.keep_picture(&Arc::from([0_u8]));
        for step in 0..steps {
            let row = Row {
                reset: false,
                terminated: false,
                truncated: false,
                reward: step.into(),
                action: ColumnRef::F32(&[]),
                obs: &|| vec![step; bytes],
            };
            tape.step(row, false);
            tape.keep_picture(&Arc::from([step + 1]));
        }
        Snapshot { tape, start: Start::default(), hash: None }
    }

    /// Asks for all parts of a past. Returns what they have, and the observation that it began to be watched with.
    fn parts(snapshot: &Snapshot, steps: u8, room: usize) -> (SoFarRows, Vec<u8>) {
        let (mut all, mut first) = (SoFarRows::default(), Vec::new());
        loop {
            let from = all.rewards.len() as u64;
            let asked = Envelope::command(1, SoFarParams::METHOD, &SoFarParams { lane: 0, from });
            let asked = asked.unwrap().with_room(room);
            let part = part_of(snapshot, from, WatchRoom::of(asked.room)).unwrap();
            let answer = answered(asked, Ok(part.clone()));
            assert_eq!(answer.error, None);
            let sent: Vec<_> = answer.into_pieces().map(|piece| piece.encode().unwrap()).collect();
            assert!(sent.len() == 1 || room > 0, "from {from}: {} pieces", sent.len());
            let rows = part.rows.expect("it shows no state");
            all.obs.extend(rows.obs);
            all.rewards.extend(rows.rewards);
            all.pictures.extend(rows.pictures);
            let SoFarFrom::Step(at) = part.from else { panic!("it began to be watched in a step") };
            first = if at.obs.is_empty() { first } else { at.obs };
            if from == u64::from(steps) {
                return (all, first);
            }
        }
    }

    #[test]
    fn the_parts_of_a_past_have_all_of_it_once_and_fit_what_its_watcher_takes_whatever_an_observation_takes()
    {
        let envelope = [0, 8, 40_000, 60_000, 100_800, WatchRoom::ENVELOPE.row].map(|bytes| (bytes, 0));
        let pieces = [8, 100_800, 1 << 20, 3 << 20].map(|bytes| (bytes, MAX_WATCH_ANSWER_BYTES));
        for (bytes, room) in envelope.into_iter().chain(pieces) {
            for steps in [0_u8, 1, 2] {
                let (all, first) = parts(&shown(bytes, steps), steps, room);
                let rewards: Vec<f64> = (0..steps).map(f64::from).collect();
                let obs: Vec<u8> = (0..steps).flat_map(|step| vec![step; bytes]).collect();
                assert_eq!((&all.rewards, all.obs == obs, first == vec![99; bytes]), (&rewards, true, true));
                let pictures: Vec<_> =
                    all.pictures.iter().map(|picture| (picture.at, picture.png[0])).collect();
                let has_room = bytes < WatchRoom::of(room as u32).row;
                let wanted = (0..=steps).filter(|_| has_room).map(|at| (at.into(), at));
                assert_eq!(pictures, wanted.collect::<Vec<_>>(), "{bytes} bytes, {steps} steps");
            }
        }
    }

    /// Symptom: of a lane with observations of 112 KiB or more nothing was seen. Cause: an answer had to fit an envelope. Fix:
    /// answers come in pieces to those who take them.
    #[test]
    fn the_longest_observation_is_shown_in_pieces_and_a_longer_one_is_refused_with_both_numbers() {
        let (_, first) = parts(&shown(MAX_WATCHED_ROW_BYTES, 0), 0, MAX_WATCH_ANSWER_BYTES);
        assert_eq!(first.len(), MAX_WATCHED_ROW_BYTES);
        for (room, most) in [(0, "114688"), (MAX_WATCH_ANSWER_BYTES as u32, "67108864")] {
            let room = WatchRoom::of(room);
            let refused = part_of(&shown(room.row + 1, 1), 0, room).unwrap_err();
            assert_eq!(refused.code, RefusalCode::Unsupported);
            assert!(refused.message.ends_with(&format!("at most {most} are taken")), "{refused:?}");
        }
    }
}
