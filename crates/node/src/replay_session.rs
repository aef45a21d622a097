//! A session that shows a recorded episode: its position, and the frame that is recomputed there.
//!
//! ```text
//! watchers --look, seek, play, pause, step--> Player (where it stands) --the step--> Seeker, with a worker --frame-->
//! owner ----reset, step, send---------------> the same                                                    --rows--->
//! ```
//!
//! Nothing runs while nobody looks. A seeker whose worker panicked, or whose caller went away in the middle, is made
//! anew for the next caller; one that hangs ends the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::{Claimant, ColumnData, EnvSpec, LaneState};
use rollhouse_engine::Received;
use rollhouse_env::Registry;
use rollhouse_replay::{Episode, PlayedStep, RecomputeError, SeekBounds, Seeker};
use rollhouse_wire::limits::{MAX_PAST_BYTES, MAX_SO_FAR_BYTES};
use rollhouse_wire::{
    EndCause, FrameHeader, FrameKind, FrameLayout, Incarnation, LaneFrame, Refusal, RefusalCode,
    ReplayReport, ReplayStanding, SessionId, SoFar, SoFarFrom,
};
use tokio::sync::{Mutex as TurnMutex, MutexGuard as TurnGuard, watch};
use tokio::time::Instant;

use crate::Gone;
use crate::answer::{Answer, Sidecar};
use crate::executor::{Crew, Executor, JobError};
use crate::owned::{FrameRequest, RequestFault, Unanswered, check_header};
use crate::player::{Move, MoveError, Player, PlayerView};
use crate::session_status::SessionStatus;
use crate::turn::TurnOver;

/// One replay session.
#[derive(Debug)]
pub(crate) struct ReplaySession {
    pub(crate) id: SessionId,
    pub(crate) incarnation: Incarnation,
    /// The one whose session it is.
    of: Claimant,
    registry: Arc<Registry>,
    episode: Arc<Episode>,
    layout: FrameLayout,
    began: Instant,
    /// The position, locked for moments only.
    player: Mutex<Player>,
    /// A number that grows with every move, for those that wait for a frame.
    moves: watch::Sender<u64>,
    /// The seeker. The holder of the lock may use it.
    slot: TurnMutex<SeekerSlot>,
    pub(crate) status: SessionStatus,
    /// The last answer to the owner.
    owner: TurnMutex<Answered>,
    presence: Mutex<Presence>,
    reported: ReportedState,
    /// Why the session cannot go on, if so.
    gone: Mutex<Option<Gone>>,
}

#[derive(Debug, Default)]
struct SeekerSlot {
    /// The seeker; `None` while a worker has it, and if it did not come back.
    seeker: Option<Box<Seeker<'static>>>,
    /// The newest frame, and when it was made.
    shown: Option<(ReplayedFrame, Instant)>,
}

/// A frame, and the position of the replay at that time.
#[derive(Debug, Clone)]
pub(crate) struct ReplayedFrame {
    pub(crate) frame: Arc<LaneFrame>,
    pub(crate) standing: ReplayStanding,
}

#[derive(Debug, Default)]
struct Answered {
    last: u32,
    answer: Bytes,
}

/// The watchers of a replay.
#[derive(Debug, Default)]
struct Presence {
    watchers: usize,
    /// The time at which the last watcher went.
    left: Option<Instant>,
}

/// A watcher's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct WatcherPlace(Arc<ReplaySession>);

/// The state that was reported last, as its index in [`LaneState::ALL`].
#[derive(Debug, Default)]
struct ReportedState(AtomicU8);

impl ReportedState {
    fn note(&self, state: LaneState) {
        self.0.store(Self::index(state), Ordering::Relaxed);
    }

    fn differs(&self, state: LaneState) -> bool {
        self.0.load(Ordering::Relaxed) != Self::index(state)
    }

    fn index(state: LaneState) -> u8 {
        LaneState::ALL.iter().position(|&of| of == state).unwrap_or_default() as u8
    }
}

/// The row that a worker has found at a step.
struct Found {
    played: PlayedStep,
    infos: Vec<ColumnData>,
    hash: Option<u32>,
    position: Option<rollhouse_core::Start>,
}

impl ReplaySession {
    /// Makes a session that shows an episode from its reset on. Blocks for as long as making its env and one reset
    /// take.
    ///
    /// # Errors
    /// If the episode has to be recomputed, and cannot be: the message has both dynamics hashes if those differ.
    pub(crate) fn make(
        placed: (SessionId, Incarnation),
        of: Claimant,
        status: SessionStatus,
        registry: Arc<Registry>,
        episode: Episode,
    ) -> Result<Self, Refusal> {
        let episode = Arc::new(episode);
        let seeker = make_seeker(&registry, &episode)?;
        let mut player = Player::new(episode.info.length);
        player.loaded();
        Ok(Self {
            id: placed.0,
            incarnation: placed.1,
            of,
            layout: FrameLayout::of(&episode.info.run.spec),
            registry,
            episode,
            began: Instant::now(),
            player: Mutex::new(player),
            moves: watch::Sender::new(0),
            slot: TurnMutex::new(SeekerSlot { seeker: Some(seeker), shown: None }),
            status,
            owner: TurnMutex::default(),
            presence: Mutex::default(),
            reported: ReportedState::default(),
            gone: Mutex::default(),
        })
    }

    /// Returns the env as it was recorded.
    pub(crate) fn spec(&self) -> &EnvSpec {
        &self.episode.info.run.spec
    }

    /// Returns the entry of the replay in a listing, and notes its state as reported.
    pub(crate) fn report(&self) -> ReplayReport {
        let state = self.state();
        self.reported.note(state);
        ReplayReport { episode: self.episode.info.name.to_string(), state }
    }

    /// Returns whether its state is another than the one that was reported last.
    pub(crate) fn has_turned(&self) -> bool {
        self.reported.differs(self.state())
    }

    fn state(&self) -> LaneState {
        self.player().look(self.now()).standing.state
    }

    /// Returns why it cannot go on, if it cannot: the node ends such a session at its next look.
    pub(crate) fn gone(&self) -> Option<Gone> {
        self.gone.lock().clone()
    }

    /// Adds a watcher, until the returned place is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> WatcherPlace {
        self.presence.lock().watchers += 1;
        WatcherPlace(Arc::clone(self))
    }

    /// Returns whether anybody watches it, or did until less than `lease` ago.
    pub(crate) fn is_watched(&self, lease: Duration) -> bool {
        let presence = self.presence.lock();
        presence.watchers > 0 || presence.left.is_some_and(|left| left.elapsed() < lease)
    }

    /// Sends earlier attachments away, and returns the number of the last request that was answered.
    pub(crate) async fn take_over(&self, attachment: u64) -> u32 {
        self.status.take_over(attachment);
        self.owner.lock().await.last
    }

    /// Returns the bytes of the largest request's columns.
    pub(crate) fn max_columns(&self) -> usize {
        self.layout.actions(LANES, true).map_or(0, |places| places.bytes).max(MAX_PAST_BYTES)
    }

    /// Returns the newest frame after the one with the serial number `after`. Waits for one until `until`. Not
    /// cancellation-safe: the seeker has to be made anew if this is dropped while a worker has it.
    ///
    /// # Errors
    /// If there is no place for the work, or the env does not come to the step as it did.
    pub(crate) async fn look(
        &self,
        after: u64,
        until: Instant,
        executor: &Executor,
    ) -> Result<Option<ReplayedFrame>, Refusal> {
        let mut moves = self.moves.subscribe();
        loop {
            moves.mark_unchanged();
            let now = self.now();
            let (shows, next) = {
                let mut player = self.player();
                (player.look(now), player.next_at(now))
            };
            if shows.serial > after {
                return self.show(after, executor).await.map(Some);
            }
            let next = next.map_or(until, |next| (self.began + next).min(until));
            tokio::select! {
                // The sender lives as long as this.
                _ = moves.changed() => {}
                () = tokio::time::sleep_until(next) => {
                    if Instant::now() >= until && self.player().look(self.now()).serial <= after {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Returns the position now.
    pub(crate) fn stands(&self) -> ReplayStanding {
        self.player().look(self.now()).standing
    }

    /// Moves it, and returns the frame that it shows then.
    ///
    /// # Errors
    /// The errors of [`ReplaySession::look`], and a move that it cannot make.
    pub(crate) async fn go(&self, asked: Move, executor: &Executor) -> Result<ReplayedFrame, Refusal> {
        self.shift(asked)?;
        self.show(u64::MAX, executor).await
    }

    fn shift(&self, asked: Move) -> Result<PlayerView, Refusal> {
        let shows = self.player().on(self.now(), asked);
        self.moves.send_modify(|moves| *moves += 1);
        shows.map_err(|error: MoveError| Refusal::new(RefusalCode::BadRequest, error.to_string()))
    }

    /// Returns the frame of the present step, or one after `after` that was made a moment ago.
    async fn show(&self, after: u64, executor: &Executor) -> Result<ReplayedFrame, Refusal> {
        let mut slot = self.slot.lock().await;
        let shows = self.player().look(self.now());
        let kept = slot.shown.as_ref().filter(|(shown, made)| {
            let serial = shown.frame.serial;
            serial == shows.serial || serial > after && made.elapsed() < FRAME_EVERY
        });
        if let Some((shown, _)) = kept {
            return Ok(shown.clone());
        }
        let found = self.find(&mut slot, shows.standing.step, executor).await?;
        let shown =
            ReplayedFrame { frame: Arc::new(self.frame_of(found, shows.serial)), standing: shows.standing };
        slot.shown = Some((shown.clone(), Instant::now()));
        Ok(shown)
    }

    /// Lets a worker go to a step.
    async fn find(
        &self,
        slot: &mut TurnGuard<'_, SeekerSlot>,
        step: u64,
        executor: &Executor,
    ) -> Result<Found, Refusal> {
        let (registry, episode) = (Arc::clone(&self.registry), Arc::clone(&self.episode));
        let work = move |seeker: Option<Box<Seeker<'static>>>| -> Result<_, Refusal> {
            let mut seeker = match seeker {
                Some(seeker) => seeker,
                None => make_seeker(&registry, &episode)?,
            };
            let found = find(&mut seeker, step);
            Ok((seeker, found))
        };
        let submitted =
            executor.submit_with((Crew::Waiting, &self.of), slot.seeker.take(), work, Box::new(|| false));
        let done = match submitted {
            Ok(done) => done.await,
            Err(full) => {
                let refusal = full.refusal();
                slot.seeker = full.given;
                return Err(refusal);
            }
        };
        match done {
            Ok(Ok(Ok((seeker, found)))) => {
                slot.seeker = Some(seeker);
                found
            }
            Ok(Ok(Err(refusal))) => Err(refusal),
            Ok(Err(error)) => {
                let detail = format!("the replay: {error}");
                if matches!(error, JobError::Hung(_)) {
                    *self.gone.lock() = Some(Gone { cause: EndCause::Hung, detail: detail.clone() });
                }
                Err(Refusal::new(RefusalCode::Internal, detail))
            }
            Err(_) => Err(Refusal::new(RefusalCode::Draining, "the node is going away")),
        }
    }

    fn frame_of(&self, found: Found, serial: u64) -> LaneFrame {
        let Found { played, hash, position, .. } = found;
        let bytes = |columns: &[ColumnData]| -> Vec<u8> {
            columns.iter().flat_map(|column| column.as_ref().bytes().iter().copied()).collect()
        };
        LaneFrame {
            serial,
            episode: self.episode.info.name.number,
            step: played.t,
            total_reward: played.total_reward,
            reward: played.reward.unwrap_or(0.0),
            terminated: played.terminated,
            truncated: played.truncated,
            action: played
                .action
                .as_ref()
                .map(|action| bytes(std::slice::from_ref(action)))
                .unwrap_or_default(),
            obs: bytes(&played.obs),
            infos: Vec::new(),
            picture: Vec::new(),
            state: played.state.unwrap_or_default(),
            hash,
            position: position.map(Into::into),
            moves: serial,
        }
    }

    /// Returns the recorded episode up to step `upto`, with as many of its actions, from `from` on, as fit an
    /// answer.
    ///
    /// # Errors
    /// If there are fewer actions than `from`.
    pub(crate) fn so_far(&self, upto: u64, from: u64) -> Result<SoFar, Refusal> {
        let (info, whole) = (&self.episode.info, upto == self.episode.info.length);
        if from > upto {
            let message = format!("from = {from}; {upto} actions are known of the episode");
            return Err(Refusal::new(RefusalCode::BadRequest, message));
        }
        let bytes = self.episode.actions.as_ref().bytes();
        let row = self.layout.action.row_bytes();
        let rest = bytes.get(from as usize * row..upto as usize * row).unwrap_or_default();
        let fitting = rest.len().min(MAX_SO_FAR_BYTES / row.max(1) * row);
        let (terminated, truncated) = if whole { info.outcome.flags() } else { (false, false) };
        Ok(SoFar {
            episode: info.name.number,
            from: SoFarFrom::Reset(info.start.into()),
            steps: upto,
            actions: rest.get(..fitting).unwrap_or_default().to_vec(),
            terminated,
            truncated,
            total_reward: if whole { info.total_reward.unwrap_or_default() } else { 0.0 },
            hash: self.episode.end_hash.filter(|_| whole),
            rows: None,
        })
    }

    /// Answers one request of an owner with the recorded row at which it arrives. The actions in the request make no
    /// difference.
    pub(crate) async fn answer(
        &self,
        attachment: u64,
        header: FrameHeader,
        request: &FrameRequest,
        executor: &Executor,
    ) -> Result<Bytes, Unanswered> {
        let mut owner = self.owner.lock().await;
        match self.status.turn().admit(attachment) {
            Ok(()) => {}
            Err(TurnOver::Replaced) => return Err(Unanswered::Replaced),
            Err(TurnOver::Ended) => return Err(Unanswered::Ended),
        }
        check_header(header, owner.last, LANES, &self.layout).map_err(Unanswered::Fault)?;
        if header.number == owner.last {
            return Ok(owner.answer.clone());
        }
        if header.kind == FrameKind::Send {
            self.check_lanes(request).map_err(Unanswered::Fault)?;
        }
        let answer = match self.row_for(header.kind, executor).await {
            Ok(row) => {
                let mut answer = Answer::reusing(Bytes::new());
                let kind = if header.kind == FrameKind::Send {
                    answer.some(&row, false);
                    FrameKind::Rows
                } else {
                    answer.all(&row);
                    FrameKind::Batch
                };
                answer.finish(kind, false, header.number, &Sidecar::Nothing)
            }
            Err(refusal) => {
                let refused = Sidecar::Refusal(&refusal);
                Answer::reusing(Bytes::new()).finish(FrameKind::Refused, false, header.number, &refused)
            }
        };
        *owner = Answered { last: header.number, answer: answer.clone() };
        Ok(answer)
    }

    fn check_lanes(&self, request: &FrameRequest) -> Result<(), RequestFault> {
        let columns = &request.columns;
        let given = columns.count().unwrap_or(0);
        let fault = RequestFault::Lanes { given, lanes: LANES };
        let places = self.layout.actions(LANES, true).ok_or(fault)?;
        let fits = given == 1 && columns.bytes().len() == places.bytes && columns.lanes(&places.lanes) == [0];
        if fits { Ok(()) } else { Err(fault) }
    }

    /// Returns the row at which a request arrives.
    async fn row_for(&self, kind: FrameKind, executor: &Executor) -> Result<Received, Refusal> {
        if kind == FrameKind::Resume {
            let message = "a recorded episode is not resumed: it is sought";
            return Err(Refusal::new(RefusalCode::Unsupported, message));
        }
        // Nobody else looks between the move and the row.
        let mut slot = self.slot.lock().await;
        let over = self.stands().step == self.episode.info.length;
        let asked = if kind == FrameKind::Reset || over { Move::Seek(0) } else { Move::Step(1) };
        self.shift(Move::Pause)?;
        let shows = self.shift(asked)?;
        let found = self.find(&mut slot, shows.standing.step, executor).await?;
        let flag = |flag: bool| vec![u8::from(flag)];
        Ok(Received {
            lanes: vec![0],
            rewards: vec![found.played.reward.unwrap_or(0.0)],
            terminated: flag(found.played.terminated),
            truncated: flag(found.played.truncated),
            reset: flag(found.played.t == 0),
            obs: found.played.obs,
            infos: found.infos,
            final_obs: Vec::new(),
        })
    }

    fn player(&self) -> MutexGuard<'_, Player> {
        self.player.lock()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for WatcherPlace {
    fn drop(&mut self) {
        let mut presence = self.0.presence.lock();
        presence.watchers -= 1;
        presence.left = Some(Instant::now());
    }
}

fn make_seeker(registry: &Arc<Registry>, episode: &Arc<Episode>) -> Result<Box<Seeker<'static>>, Refusal> {
    let made = Seeker::shared(Arc::clone(registry), Arc::clone(episode), &SeekBounds::default());
    made.map(Box::new).map_err(|error: RecomputeError| {
        let message = format!("{}: {}", episode.info.name, crate::causes::with_causes(&error));
        Refusal::new(RefusalCode::BadRequest, message)
    })
}

/// Seeks a step, and refuses one that does not come out as it was recorded.
fn find(seeker: &mut Seeker<'static>, step: u64) -> Result<Found, Refusal> {
    let internal = |message: String| Refusal::new(RefusalCode::Internal, message);
    let played = seeker.seek(step).map_err(|error| internal(crate::causes::with_causes(&error)))?;
    let recomputed = seeker.episode().steps.is_none();
    if let Some(found) = seeker.divergence().filter(|found| recomputed && found.from <= step) {
        let message = format!(
            "step {step} is not shown: recomputed, another {} comes out at step {} to {}",
            found.field, found.from, found.to
        );
        return Err(internal(message));
    }
    let (hash, position) = seeker.standing().unzip();
    Ok(Found { played, infos: seeker.infos(), hash, position })
}

/// Number of lanes of a replay.
pub(crate) const LANES: usize = 1;
/// Time for which a frame counts as new, however many watch: without a request for it nobody is shown more than about 30 a
/// second.
const FRAME_EVERY: Duration = Duration::from_millis(33);

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the list of sessions showed a replay as over for good, while its watchers saw it paused.
    /// Cause: the state of the last look counted as reported, and a report between two looks counted for nothing.
    /// Fix: the state that stands in a report counts, and a look only compares.
    #[test]
    fn a_replay_that_is_back_in_the_state_of_the_last_look_has_turned_if_another_was_reported_meanwhile() {
        let reported = ReportedState::default();
        reported.note(LaneState::Paused);
        assert!(!reported.differs(LaneState::Paused));
        reported.note(LaneState::Over);
        assert!(reported.differs(LaneState::Paused));
        assert!(reported.differs(LaneState::Paused), "a look reports nothing");
    }
}
