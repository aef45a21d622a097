//! A trainer's process: it asks for a pool, steps its lanes, closes it, and begins anew. The client library's own rules
//! decide what it does about failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{DEFAULT_TIMEOUT, OnLoss, Recipe, Trouble, ask_again};
use rollhouse_coordinator::Reply;
use rollhouse_core::RunId;
use rollhouse_env::Registry;
use rollhouse_wire::{CallError, CloseCode, PoolOpened, Refusal, RefusalCode, SessionId, StreamLost};

use crate::call::Line;
use crate::cast::KEPT_FOR;
use crate::context::{Context, Input};
use crate::message::{Message, Question, Response};
use crate::network::Site;
use crate::pool_session::PoolSession;
use crate::request::a_pool;

/// One life of a trainer.
#[derive(Debug)]
pub(crate) struct Trainer {
    registry: Arc<Registry>,
    doing: Doing,
    coordinator: Line,
    /// Connections to nodes, by node.
    nodes: BTreeMap<usize, Line>,
    /// Pause between two steps.
    think: Duration,
    /// Time after which a step is given up.
    patience: Duration,
    /// The time at which a batch of all its lanes that are left was last complete, on the world's clock.
    pub(crate) last_batch: Duration,
    /// Duration of the slowest of those batches.
    pub(crate) slowest_batch: Duration,
}

#[derive(Debug)]
enum Doing {
    Resting {
        until: Duration,
    },
    /// A request to the coordinator, for a pool or to close one.
    Requesting(Request),
    Playing(Box<Pool>),
    /// The trainer has stopped for good.
    Done,
}

#[derive(Debug)]
struct Request {
    question: Question,
    attempt: u32,
    deadline: Duration,
    state: Asking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Connecting,
    Asked(u64),
    Waiting(Duration),
}

#[derive(Debug)]
struct Pool {
    id: RunId,
    sessions: Vec<PoolSession>,
    /// The deadline of the batch under way.
    deadline: Option<Duration>,
    next_at: Duration,
    close_at: Duration,
    needs_reset: bool,
}

impl Trainer {
    pub(crate) fn new(registry: &Arc<Registry>, ctx: &mut Context<'_>) -> Self {
        let patience = if ctx.random.chance(500) { Duration::from_secs(10) } else { DEFAULT_TIMEOUT };
        Self {
            registry: Arc::clone(registry),
            doing: Doing::Resting { until: ctx.now + ctx.random.millis(0, 3000) },
            coordinator: Line::None,
            nodes: BTreeMap::new(),
            think: ctx.random.millis(60, 400),
            patience,
            last_batch: Duration::ZERO,
            slowest_batch: Duration::ZERO,
        }
    }

    /// Plays the episodes of its lanes once more on another node, with other actions, as if there had been none before.
    pub(crate) fn forge(&mut self, ctx: &mut Context<'_>) {
        let kept = self.keeps();
        let Doing::Playing(pool) = &mut self.doing else { return };
        if pool.sessions.iter_mut().filter_map(|session| session.forge().then_some(())).count() > 0 {
            ctx.count("trainer forges");
            ctx.ledger.forges(pool.id);
            // What had ended so shortly before that its log has it, it alone could have had played again.
            if let Some((pool, since)) = kept {
                ctx.ledger.forgets(pool, since);
            }
        }
    }

    /// Returns when it wants to be woken.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match &self.doing {
            Doing::Resting { until } => Some(*until),
            Doing::Requesting(request) => Some(match request.state {
                Asking::Waiting(until) => until.min(request.deadline),
                Asking::Connecting | Asking::Asked(_) => request.deadline,
            }),
            Doing::Playing(pool) => {
                let sessions = pool.sessions.iter().filter_map(PoolSession::wake_at);
                let next = if pool.deadline.is_some() { pool.deadline } else { Some(pool.next_at) };
                sessions.chain(next).min()
            }
            Doing::Done => None,
        }
    }

    pub(crate) fn handle(&mut self, input: Input, calm: bool, ctx: &mut Context<'_>) {
        match input {
            Input::Wake => {}
            Input::Connected(conn) => self.connected(conn),
            Input::Lost(conn) => self.lost(conn, false, ctx),
            Input::PortClosed(conn) => self.lost(conn, true, ctx),
            Input::NodePortClosed(asked) => panic!("a trainer is told {asked:?}"),
            Input::Message { conn, message, .. } => match message {
                Message::Answer(ask, response) => self.answered(ask, response, ctx),
                Message::Answered { stream, answer } => {
                    if let Doing::Playing(pool) = &mut self.doing {
                        for session in &mut pool.sessions {
                            session.answered(stream, &answer);
                        }
                    }
                }
                // Something is in the memory of a session: each looks.
                Message::Bell { .. } => {}
                Message::StreamEnd { stream } => {
                    if let Doing::Playing(pool) = &mut self.doing {
                        pool.sessions.iter_mut().for_each(|session| session.stream_ended(stream));
                    }
                }
                other => panic!("a trainer is sent {other:?} on {conn}"),
            },
        }
        self.go_on(calm, ctx);
    }

    // Connections.

    fn connected(&mut self, conn: u64) {
        if self.coordinator == Line::Dialling(conn) {
            self.coordinator = Line::Up(conn);
        }
        if let Some(line) = self.nodes.values_mut().find(|line| **line == Line::Dialling(conn)) {
            *line = Line::Up(conn);
        }
    }

    fn lost(&mut self, conn: u64, port_closed: bool, ctx: &mut Context<'_>) {
        let is_it = |line: &Line| matches!(line, Line::Dialling(c) | Line::Up(c) if *c == conn);
        if is_it(&self.coordinator) {
            let dialled = matches!(self.coordinator, Line::Dialling(_));
            self.coordinator = Line::None;
            if let Doing::Playing(pool) = &mut self.doing {
                pool.sessions.iter_mut().for_each(PoolSession::coordinator_lost);
            }
            if let Doing::Requesting(request) = &mut self.doing {
                if dialled {
                    // A coordinator that cannot be reached is told to the caller, who comes again later.
                    ctx.count("coordinator out of reach");
                    self.rest(ctx);
                } else if matches!(request.state, Asking::Asked(_)) {
                    let lost = CallError::Lost(StreamLost::ByPeer(CloseCode::ShuttingDown));
                    self.failed(&lost, ctx);
                }
            }
        }
        if let Some((&node, line)) = self.nodes.iter_mut().find(|(_, line)| is_it(line)) {
            *line = Line::None;
            if let Doing::Playing(pool) = &mut self.doing {
                pool.sessions.iter_mut().for_each(|session| session.lost(node, conn, port_closed, ctx));
            }
        }
    }

    // The coordinator.

    fn request(&mut self, question: Question, ctx: &Context<'_>) {
        let deadline = ctx.now + DEFAULT_TIMEOUT;
        self.doing = Doing::Requesting(Request { question, attempt: 0, deadline, state: Asking::Connecting });
    }

    fn answered(&mut self, ask: u64, response: Response, ctx: &mut Context<'_>) {
        if let Doing::Playing(pool) = &mut self.doing {
            for session in &mut pool.sessions {
                session.told(ask, &response, ctx);
            }
            return;
        }
        let Doing::Requesting(request) = &mut self.doing else { return };
        if request.state != Asking::Asked(ask) {
            return;
        }
        let Response::Reply(reply) = response else { return };
        match *reply {
            Reply::PoolOpened(opened) => self.opened(&opened, ctx),
            Reply::PoolClosed(_) => self.rest(ctx),
            Reply::Refused(refusal) => {
                check_refusal(&refusal);
                self.failed(&CallError::Refused(refusal), ctx);
            }
            other => panic!("{other:?} to a trainer"),
        }
    }

    /// Makes a failed request again, if the client library would.
    fn failed(&mut self, error: &CallError, ctx: &mut Context<'_>) {
        let Doing::Requesting(request) = &mut self.doing else { return };
        match ask_again(error, request.attempt, request.deadline.saturating_sub(ctx.now)) {
            Some(wait) => {
                request.attempt += 1;
                request.state = Asking::Waiting(ctx.now + wait);
            }
            None => self.rest(ctx),
        }
    }

    fn rest(&mut self, ctx: &mut Context<'_>) {
        self.doing = Doing::Resting { until: ctx.now + ctx.random.millis(200, 3000) };
    }

    fn opened(&mut self, opened: &PoolOpened, ctx: &mut Context<'_>) {
        let Doing::Requesting(Request { question: Question::OpenPool(open), .. }) = &self.doing else {
            return;
        };
        let mut next = 0;
        for grant in &opened.sessions {
            assert_eq!(grant.first_lane, next, "a lane has no owner or two");
            next += grant.lanes;
        }
        assert_eq!(next, open.lanes, "lanes of a pool");
        ctx.count("pool opened");
        let lease = Duration::from_millis(opened.lease_ms);
        let resumes = ctx.random.chance(600);
        if resumes {
            ctx.ledger.resumes(open.pool);
        }
        let entry = self.registry.get(&open.settings.env).expect("the nodes have made it");
        let on_loss = if resumes { OnLoss::Resume } else { OnLoss::Report };
        let recipe = Recipe { open: (**open).clone(), dynamics: entry.spec().dynamics_hash, on_loss, lease };
        let recipe = Arc::new(recipe);
        for grant in &opened.sessions {
            let session = SessionId { pool: open.pool, index: grant.index };
            ctx.ledger.owners.uses(session, grant.incarnation);
        }
        let Site::Trainer(machine) = ctx.site else { unreachable!("it is a trainer") };
        let session =
            |grant: &rollhouse_wire::Grant| PoolSession::new(&recipe, grant, &self.registry, machine);
        let sessions = opened.sessions.iter().map(session).collect();
        let plays = ctx.random.millis(5_000, 40_000);
        self.doing = Doing::Playing(Box::new(Pool {
            id: open.pool,
            sessions,
            deadline: None,
            next_at: ctx.now,
            close_at: ctx.now + plays,
            needs_reset: true,
        }));
    }

    // What is next.

    fn go_on(&mut self, calm: bool, ctx: &mut Context<'_>) {
        match &mut self.doing {
            Doing::Done => {}
            Doing::Resting { until } => {
                if calm {
                    self.doing = Doing::Done;
                } else if *until <= ctx.now {
                    let Site::Trainer(trainer) = ctx.site else { unreachable!("it is a trainer") };
                    let owner = ctx.ledger.owners.now(trainer);
                    let asked = a_pool(&owner, ctx);
                    ctx.ledger.owners.asks(asked.pool, owner);
                    let question = Question::OpenPool(Box::new(asked));
                    self.request(question, ctx);
                    self.go_on(calm, ctx);
                }
            }
            Doing::Requesting(_) => self.go_on_requesting(ctx),
            Doing::Playing(_) => self.go_on_playing(calm, ctx),
        }
    }

    fn go_on_requesting(&mut self, ctx: &mut Context<'_>) {
        let Doing::Requesting(request) = &mut self.doing else { return };
        if request.deadline <= ctx.now {
            // What was asked for may be there all the same: leases end it.
            ctx.count("request timed out");
            return self.rest(ctx);
        }
        if matches!(request.state, Asking::Waiting(until) if until <= ctx.now) {
            request.state = Asking::Connecting;
        }
        if request.state == Asking::Connecting {
            match self.coordinator {
                Line::None => self.coordinator = Line::Dialling(ctx.dial(Site::Coordinator)),
                Line::Dialling(_) => {}
                Line::Up(conn) => {
                    let ask = ctx.number();
                    request.state = Asking::Asked(ask);
                    ctx.send(conn, Message::Ask(ask, request.question.clone()));
                }
            }
        }
    }

    fn go_on_playing(&mut self, calm: bool, ctx: &mut Context<'_>) {
        let Doing::Playing(pool) = &mut self.doing else { return };
        for session in &mut pool.sessions {
            session.carry_on(&mut self.nodes, &mut self.coordinator, ctx);
        }
        if pool.sessions.iter().all(PoolSession::is_at_rest)
            && let Some(deadline) = pool.deadline.take()
        {
            let took = (ctx.now + self.patience).saturating_sub(deadline);
            self.slowest_batch = self.slowest_batch.max(took);
            pool.next_at = ctx.now + self.think;
            for session in &mut pool.sessions {
                match session.take_trouble() {
                    None => {}
                    Some(Trouble::TimedOut | Trouble::Refused(_)) => {
                        ctx.count("step given up");
                        // Lanes that are sent some at a time go on.
                        pool.needs_reset |= !session.goes_on();
                    }
                    Some(Trouble::Gone) => ctx.count("session lost"),
                }
            }
            if !pool.needs_reset {
                ctx.count("batch stepped");
                self.last_batch = ctx.world_now;
            }
        }
        if pool.deadline.is_none() && pool.next_at <= ctx.now {
            let all_lost = pool.sessions.iter().all(PoolSession::is_gone);
            if calm || all_lost || pool.close_at <= ctx.now {
                let id = pool.id;
                pool.sessions.iter_mut().for_each(|session| session.detach(ctx));
                if let Some((pool, since)) = self.keeps() {
                    ctx.ledger.forgets(pool, since);
                }
                ctx.ledger.owners.gives_up_pool(id);
                self.request(Question::ClosePool(id), ctx);
                return self.go_on_requesting(ctx);
            }
            let deadline = ctx.now + self.patience;
            let reset = std::mem::take(&mut pool.needs_reset);
            for session in &mut pool.sessions {
                session.ask(reset, deadline, ctx);
                session.carry_on(&mut self.nodes, &mut self.coordinator, ctx);
            }
            pool.deadline = Some(deadline);
            if pool.sessions.iter().all(PoolSession::is_at_rest) {
                // Lanes were sent, and none is waited for.
                self.go_on_playing(calm, ctx);
            }
        }
    }

    /// Returns its pool, and the time since which it keeps what ended there, on the world's clock.
    pub(crate) fn keeps(&self) -> Option<(RunId, Duration)> {
        let Doing::Playing(pool) = &self.doing else { return None };
        let last = pool.sessions.iter().map(PoolSession::answered_at).min()?;
        Some((pool.id, last.saturating_sub(KEPT_FOR)))
    }

    /// Returns the pool that it steps.
    pub(crate) fn pool(&self) -> Option<RunId> {
        if let Doing::Playing(pool) = &self.doing { Some(pool.id) } else { None }
    }

    /// Returns whether it wants nothing more.
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.doing, Doing::Done)
    }

    /// Returns whether it steps lanes, or waits for an answer to a step.
    pub(crate) fn is_playing(&self) -> bool {
        matches!(&self.doing, Doing::Playing(pool) if !pool.sessions.iter().all(PoolSession::is_gone))
    }
}

/// Checks that a refusal is one that an honest trainer may get; its token may be revoked all the same.
fn check_refusal(refusal: &Refusal) {
    let may = matches!(
        refusal.code,
        RefusalCode::Busy
            | RefusalCode::Quota
            | RefusalCode::Stale
            | RefusalCode::NotFound
            | RefusalCode::BadRequest
            | RefusalCode::Unauthenticated
    );
    assert!(may, "{refusal} to a trainer");
}
