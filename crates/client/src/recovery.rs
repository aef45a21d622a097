//! Lanes whose node is lost, or is going away, go on elsewhere.
//!
//! ```text
//! stepped --gone--> asking the coordinator for a place --grant--> resuming, part by part --> the request again
//!    |                     |  ^ busy, unreachable: wait, until the caller's deadline     | gone again: ask again
//!    |                     '--'                                                         '-----------------^
//!    '--leaving--> asking, once in a while; stepped on until there is a grant
//! ```
//!
//! A session that gets another place is another [`Session`] with a newer incarnation; what the lanes did is in its
//! [`SessionLog`]. Everything here can be dropped at any point and is taken up again by the next call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{EnvSpec, Interruption, Outcome};
use rollhouse_wire::{
    CallError, CallId, DialError, FrameHeader, FrameKind, Grant, LostLane, Notes, OpenPool, RecordRule,
    Refusal, RefusalCode, ReplaceSession, Request, SessionReplaced,
};
use tokio::time::Instant;

use crate::cluster::AsyncCluster;
use crate::lockstep::filled;
use crate::log::{Keep, PastReader, SessionLog, Shown};
use crate::memory_link::{MemoryLink, Shape};
use crate::pool::{AsyncPool, Site};
use crate::session::{Clock, FrameBody, Session, Trouble};
use crate::transport::Transport;

/// What becomes of lanes whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// They are rebuilt on another node, where they stood: the call takes longer, and shows what it would have shown.
    /// Only of envs that are deterministic, and not of a session that hung or failed by itself, which it would do again.
    Resume,
    /// They are shown as lost, with `truncated` set, and begin new episodes elsewhere.
    Report,
}

/// How sessions of a pool are opened elsewhere.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) open: OpenPool,
    pub(crate) dynamics: u64,
    pub(crate) on_loss: OnLoss,
    pub(crate) lease: Duration,
}

/// What a request of a session needs.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) cluster: &'a AsyncCluster,
    pub(crate) recipe: &'a Recipe,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
}

/// How a session's lanes go on elsewhere.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// `None` if its node says nothing that a log could be kept of.
    log: Option<SessionLog>,
    /// What the node that has just got the lanes has not been told yet.
    past: Option<PastReader>,
    /// The request that is under way or was last answered.
    asked: Option<FrameBody>,
    /// Lanes whose past is lost, until a batch has shown it.
    cut: Vec<u32>,
    /// The node is going away.
    leaving: bool,
    /// Its placement took the place of an earlier one.
    replaces: bool,
    /// Another place is not asked for before.
    not_before: Option<Instant>,
    max_columns: usize,
    shape: Arc<Shape>,
}

/// What an answer says that the log is kept of.
pub(crate) struct Answered<'a> {
    /// On the pool's clock.
    pub(crate) now: Duration,
    pub(crate) shown: Shown<'a>,
    pub(crate) notes: &'a Notes,
    /// Whether the node says all that a log needs.
    pub(crate) logs: bool,
}

/// Why there is no other place now.
enum NoPlace {
    /// There may be one later.
    Busy(Duration),
    /// There will be none.
    Never(String),
}

impl Recovery {
    pub(crate) fn new(
        lanes: usize,
        spec: &EnvSpec,
        recipe: &Recipe,
        max_columns: usize,
        shape: Arc<Shape>,
    ) -> Self {
        let keep = match (recipe.on_loss, recipe.open.settings.record) {
            (OnLoss::Report, _) => Keep::Numbers,
            (OnLoss::Resume, RecordRule::None) => Keep::Steps,
            (OnLoss::Resume, _) => Keep::StepsAndEnded,
        };
        let log = SessionLog::new(lanes, &spec.action_column(), &spec.action_space, keep);
        Self {
            log: Some(log),
            past: None,
            asked: None,
            cut: Vec::new(),
            leaving: false,
            replaces: false,
            not_before: None,
            max_columns,
            shape,
        }
    }

    /// Keeps what an answer to a request of all lanes says. Lanes whose past was lost are lost in it. `posted` are the
    /// actions of a step that was posted in memory as a request; those of another request are known from it, and those
    /// of a step without one were [kept](Self::post).
    pub(crate) fn note_batch(
        &mut self,
        answered: &Answered<'_>,
        posted: Option<&[u8]>,
        losses: &mut Vec<LostLane>,
    ) {
        let Self { log, asked, cut, .. } = self;
        // A step that was posted in memory at once is not written down.
        let kind = asked.as_ref().map_or(FrameKind::Step, |asked| asked.kind);
        if !cut.is_empty() {
            let mut cut = std::mem::take(cut);
            if kind == FrameKind::Reset {
                // What was reset has begun anew.
                cut.retain(|&lane| answered.shown.reset.get(lane as usize) == Some(&0));
            }
            let outcome = Outcome::Interrupted(Interruption::NodeLost).code();
            losses.extend(cut.into_iter().map(|lane| LostLane { lane, outcome }));
        }
        if let (Some(log), FrameKind::Step) = (log, kind) {
            let lost: Vec<u32> = losses.iter().map(|loss| loss.lane).collect();
            let asked = asked.as_ref().map(|asked| &asked.columns[..]).filter(|columns| !columns.is_empty());
            match posted.or(asked) {
                Some(actions) => log.stepped(answered.now, actions, answered.shown, &lost),
                None => log.stepped_as_posted(answered.now, answered.shown, &lost),
            }
        }
        self.note_log(answered);
    }

    /// Keeps what an answer about some lanes says, which were stepped with one of `actions` each.
    pub(crate) fn note_rows(&mut self, answered: &Answered<'_>, lanes: &[u32], actions: &[u8]) {
        let mut lost: Vec<u32> = answered.notes.lost.iter().map(|loss| loss.lane).collect();
        lost.extend(&self.cut);
        if let Some(log) = &mut self.log {
            log.stepped_some(answered.now, lanes, actions, answered.shown, &lost);
        }
        self.note_log(answered);
    }

    /// Keeps which episodes began, and how states hash.
    fn note_log(&mut self, answered: &Answered<'_>) {
        let Answered { now, notes, logs, .. } = *answered;
        self.leaving |= notes.leaving;
        if !logs {
            self.log = None;
        }
        let Some(log) = &mut self.log else { return };
        if let (Some(began), Some(hashes)) = (notes.began(), notes.hashes()) {
            began.for_each(|began| log.began(now, &began));
            hashes.for_each(|(lane, hash)| log.stood(lane, hash));
        }
    }

    /// Keeps the actions of a step that was just posted in memory.
    #[inline]
    pub(crate) fn post(&mut self, link: &MemoryLink) {
        self.asked = None;
        if let Some(log) = &mut self.log {
            log.post(|actions| link.copy_actions(actions));
        }
    }

    /// What the lanes do can no more be told from their starts and actions: lost, they stay so.
    pub(crate) fn forget(&mut self) {
        (self.log, self.past) = (None, None);
    }

    /// Whether the node that has just got the lanes has not been told all that they did.
    pub(crate) const fn is_telling(&self) -> bool {
        self.past.is_some()
    }

    fn may_ask(&self) -> bool {
        self.not_before.is_none_or(|at| at <= Instant::now())
    }
}

impl Site {
    /// Whether its lanes are lost, and are not being brought back just now.
    pub(crate) fn is_out(&self, recipe: &Recipe) -> bool {
        self.session.gone().is_some_and(|gone| gone.told || !self.resumes(recipe))
    }

    /// Whether its lanes go on where they stood if its node is lost. What hung or crashed by itself would do so again.
    fn resumes(&self, recipe: &Recipe) -> bool {
        recipe.on_loss == OnLoss::Resume && self.recovery.log.is_some() && !self.session.has_failed()
    }

    /// Whether it is to leave its node now, which is going away.
    pub(crate) fn can_leave(&self, recipe: &Recipe) -> bool {
        let busy = || self.session.is_busy() || self.session.gone().is_some() || self.recovery.past.is_some();
        self.recovery.leaving && !busy() && self.resumes(recipe) && self.recovery.may_ask()
    }

    /// Takes over a step that was begun in memory, if it was: [`Site::answer`] carries it on.
    pub(crate) fn adopt(&mut self, clock: Clock, seed: u64) {
        // Its actions stand in the memory.
        let step = FrameBody { kind: FrameKind::Step, columns: Bytes::new(), sidecar: Bytes::new() };
        self.session.adopt(step.clone(), clock, seed);
        self.recovery.asked = Some(step);
    }

    /// The actions of a step stood in memory only: they have to be sent where the session goes.
    fn keep_posted(&mut self) {
        if let (Some(link), Some(asked)) = (self.session.memory(), &mut self.recovery.asked)
            && asked.kind == FrameKind::Step
            && asked.columns.is_empty()
        {
            let kept = self.recovery.log.as_ref().map(SessionLog::posted);
            asked.columns = filled(link.posted().or(kept).unwrap_or_default());
        }
    }

    /// Makes a request, in place of one that is under way; [`Site::answer`] carries it out.
    pub(crate) fn ask(&mut self, request: FrameBody, way: &Way<'_>) {
        if self.recovery.past.is_none() && self.session.gone().is_none() {
            self.session.ask(request.clone(), way.clock, way.seed);
        }
        self.recovery.asked = Some(request);
    }

    /// Carries out the request that was made: on another node, if the session's is lost and lanes are to be resumed.
    /// Cancellation-safe: the next call goes on where this one was dropped.
    pub(crate) async fn answer(&mut self, way: &Way<'_>) -> Result<FrameHeader, Trouble> {
        loop {
            if self.recovery.past.is_some() {
                match Box::pin(self.resume(way)).await {
                    Ok(()) => {
                        if let Some(request) = self.recovery.asked.clone() {
                            self.session.ask(request, way.clock, way.seed);
                        }
                    }
                    Err(Trouble::Gone) => self.recovery.past = None,
                    Err(Trouble::Refused(refusal)) => Box::pin(self.resume_nothing(way, refusal)).await?,
                    Err(Trouble::TimedOut) => return Err(Trouble::TimedOut),
                }
                if self.recovery.past.is_some() {
                    continue;
                }
            }
            let answered = match self.session.gone() {
                Some(_) => Err(Trouble::Gone),
                None => {
                    let resumes = self.resumes(way.recipe);
                    self.session.answer(way.cluster.network(), way.clock, resumes).await
                }
            };
            match answered {
                Err(Trouble::Gone) if self.resumes(way.recipe) => {
                    self.keep_posted();
                    Box::pin(self.go_elsewhere(way)).await?;
                }
                answered => return answered,
            }
        }
    }

    /// Tells the new node what the lanes did, part by part.
    async fn resume(&mut self, way: &Way<'_>) -> Result<(), Trouble> {
        loop {
            if !self.session.is_busy() {
                let Recovery { past, log, .. } = &mut self.recovery;
                let part = past.as_mut().zip(log.as_ref()).and_then(|(past, log)| past.next(log));
                let Some(columns) = part else {
                    self.recovery.past = None;
                    return Ok(());
                };
                let part = FrameBody { kind: FrameKind::Resume, columns, sidecar: Bytes::new() };
                self.session.tell(part, way.clock, way.seed);
            }
            let resumes = self.resumes(way.recipe);
            let header = self.session.answer(way.cluster.network(), way.clock, resumes).await?;
            if header.kind != FrameKind::Resumed {
                let what = format!("a frame of kind {:?} was not asked for", header.kind);
                return Err(self.session.distrust(&what));
            }
        }
    }

    /// The lanes did something else on the new node, or it will not have them: they begin anew, on yet another.
    async fn resume_nothing(&mut self, way: &Way<'_>, refusal: Refusal) -> Result<(), Trouble> {
        let Some(log) = &mut self.recovery.log else { return Err(Trouble::Refused(refusal)) };
        if self.recovery.cut.len() == self.session.lanes().len() {
            return Err(Trouble::Refused(refusal));
        }
        log.give_up();
        self.recovery.past = None;
        self.go_elsewhere(way).await
    }

    /// Waits for another place for as long as the caller does.
    async fn go_elsewhere(&mut self, way: &Way<'_>) -> Result<(), Trouble> {
        loop {
            // A reset begins the episodes of lanes that nothing is known of; a step must not.
            let held = self.recovery.asked.as_ref().is_some_and(|asked| asked.kind != FrameKind::Reset);
            match self.place(way, false, held).await {
                Ok(()) => return Ok(()),
                Err(NoPlace::Never(reason)) => {
                    self.session.give_up_for(reason);
                    return Err(Trouble::Gone);
                }
                Err(NoPlace::Busy(wait)) => {
                    let until = Instant::now() + wait;
                    if until >= way.clock.deadline {
                        return Err(Trouble::TimedOut);
                    }
                    tokio::time::sleep_until(until).await;
                }
            }
        }
    }

    /// Asks for another place, once. If there is one, the session is there, and its past is still to be told. Lanes
    /// whose past is lost are `held` there, or not.
    async fn place(&mut self, way: &Way<'_>, moving: bool, held: bool) -> Result<(), NoPlace> {
        let Grant { index, incarnation, ref node, first_lane, lanes, .. } = *self.session.grant();
        let Recipe { open, dynamics, lease, .. } = way.recipe;
        let replace = ReplaceSession {
            open: open.clone(),
            index,
            incarnation,
            first_lane,
            lanes,
            dynamics: *dynamics,
            moving,
            node: node.clone(),
            replaces: self.recovery.replaces,
        };
        let SessionReplaced { grant, lease_ms } =
            ask_for_place(way, &Request::ReplaceSession(replace)).await?;
        if (grant.index, grant.first_lane, grant.lanes) != (index, first_lane, lanes)
            || grant.incarnation <= incarnation
        {
            return Err(NoPlace::Never("the coordinator gave another session".to_owned()));
        }
        let lease = if lease_ms == 0 { *lease } else { Duration::from_millis(lease_ms) };
        // Its stream ends with it.
        let Recovery { max_columns, shape, .. } = &self.recovery;
        let (pool, shape) = (way.recipe.open.pool, Arc::clone(shape));
        self.session = Session::new(pool, grant, *max_columns, lease, Transport::Quic, shape);
        if let Some((past, cut)) = self.recovery.log.as_ref().map(|log| log.past(held)) {
            (self.recovery.past, self.recovery.cut) = (Some(past), cut);
        }
        (self.recovery.leaving, self.recovery.replaces, self.recovery.not_before) = (false, true, None);
        Ok(())
    }

    /// A session whose node is going away gets another place, if there is one now.
    async fn leave(&mut self, way: &Way<'_>) {
        if !self.can_leave(way.recipe) {
            return;
        }
        // A step comes next, whatever was asked last.
        self.recovery.asked = None;
        // Also if this is dropped: no call is held up again at once.
        self.recovery.not_before = Some(Instant::now() + ASK_AGAIN_AFTER);
        let _there_may_be_a_place_later = self.place(way, true, true).await;
    }

    /// Lanes that were shown as lost begin anew on another node, if there is one now; whether they do.
    async fn begin_anew(&mut self, way: &Way<'_>) -> bool {
        let told = self.session.gone().is_some_and(|gone| gone.told);
        if !told || !self.recovery.may_ask() {
            return false;
        }
        let Some(log) = &mut self.recovery.log else { return false };
        log.give_up();
        (self.recovery.past, self.recovery.asked) = (None, None);
        let begun = match self.place(way, false, false).await {
            Ok(()) => self.resume(way).await.is_ok(),
            Err(_) => false,
        };
        self.recovery.cut.clear();
        if !begun {
            self.recovery.not_before = Some(Instant::now() + ASK_AGAIN_AFTER);
            if self.session.gone().is_none() {
                self.session.give_up_for("its lanes could not be begun anew".to_owned());
                self.session.tell_gone();
            }
        }
        begun
    }

    /// The columns of the request that was answered last.
    pub(crate) fn asked_columns(&self) -> Bytes {
        self.recovery.asked.as_ref().map(|asked| asked.columns.clone()).unwrap_or_default()
    }

    /// Takes which of those lanes have lost their past, and were not shown as lost yet.
    pub(crate) fn take_cut(&mut self, lanes: &[u32]) -> Vec<u32> {
        let (shown, left) = self.recovery.cut.drain(..).partition(|lane| lanes.contains(lane));
        self.recovery.cut = left;
        shown
    }
}

impl AsyncPool {
    /// What comes before a request: lanes that were shown as lost begin anew elsewhere, and sessions leave nodes that
    /// go away. Takes a moment, unless a node is being waited for.
    pub(crate) async fn settle_sessions(&mut self, clock: Clock) {
        self.cluster.network().look_at_nodes();
        self.leave_lost_memory();
        if self.in_place && self.sessions.iter().any(|site| site.can_leave(&self.recipe)) {
            self.leave_memory();
        }
        let due = |site: &Site| site.recovery.leaving || site.session.gone().is_some_and(|gone| gone.told);
        if self.sessions.iter().any(due) {
            Box::pin(self.settle_due(due, clock)).await;
        }
    }

    async fn settle_due(&mut self, due: impl Fn(&Site) -> bool, clock: Clock) {
        let deadline = clock.deadline.min(Instant::now() + SETTLE_WITHIN);
        let Self { sessions, cluster, recipe, seed, .. } = self;
        let way = Way { cluster, recipe, clock: Clock { deadline, ..clock }, seed: *seed };
        let mut begun = Vec::new();
        for site in sessions.iter_mut().filter(|site| due(site)) {
            // What is dropped at the deadline is taken up again by the next call.
            let settled = tokio::time::timeout_at(deadline, async {
                site.leave(&way).await;
                site.begin_anew(&way).await
            });
            if settled.await == Ok(true) {
                begun.push(site.session.lanes().clone());
            }
        }
        for lanes in begun {
            if let Some(lost) = self.lost.get_mut(lanes.clone()) {
                lost.fill(None);
            }
            // They wait for a reset, which autoreset gives them.
            self.over[lanes].fill(1);
        }
        self.tidy_losses();
    }

    pub(crate) fn reports_losses(&self) -> bool {
        self.recipe.on_loss == OnLoss::Report
    }
}

async fn ask_for_place(way: &Way<'_>, request: &Request) -> Result<SessionReplaced, NoPlace> {
    let ask = async {
        let connection = way.cluster.network().coordinator().await.map_err(|error| match error {
            // Nobody is admitted by being patient.
            DialError::Refused(refusal) if !refusal.code.is_transient() => {
                NoPlace::Never(refusal.to_string())
            }
            _ => NoPlace::Busy(COORDINATOR_AWAY),
        })?;
        let call = CallId::generate();
        let asked = connection.call_for::<SessionReplaced>(request, Some(call), PLACE_WITHIN);
        call.traced(request.word(), asked).await.map_err(|error| match error {
            CallError::Refused(refusal) => match refusal.code {
                RefusalCode::Busy | RefusalCode::Draining => {
                    let wait = refusal.retry_after_ms.map_or(COORDINATOR_AWAY, Duration::from_millis);
                    NoPlace::Busy(wait.min(LONGEST_WAIT))
                }
                _ => NoPlace::Never(refusal.of_call(call).message),
            },
            _ => NoPlace::Busy(COORDINATOR_AWAY),
        })
    };
    match tokio::time::timeout_at(way.clock.deadline, ask).await {
        Ok(placed) => placed,
        Err(_) => Err(NoPlace::Busy(COORDINATOR_AWAY)),
    }
}

/// Whether lanes of that env can be resumed.
pub(crate) fn can_resume(spec: &EnvSpec) -> bool {
    spec.determinism == rollhouse_core::Determinism::Deterministic
}

/// How long the coordinator may take to find a place: opening a session takes as long as the env's maker.
const PLACE_WITHIN: Duration = Duration::from_secs(10);
/// When a coordinator that does not answer is asked again.
const COORDINATOR_AWAY: Duration = Duration::from_millis(300);
/// A coordinator that wants to be left alone for longer is asked all the same.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// When a place is asked for again that nobody waits for.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// How long a call is held up for lanes that others do not need.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
