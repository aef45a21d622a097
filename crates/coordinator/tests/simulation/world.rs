//! Virtual time, the network, and what must hold after every event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use rollhouse_coordinator::limits::{CLOSE_PATIENCE, MAX_ATTEMPTS, TICK};
use rollhouse_coordinator::{
    Action, Asker, CallFailure, Cluster, Event, LinkId, PortQuestion, Reply, Roster, Ticket,
};
use rollhouse_core::{EnvSpec, RunId};
use rollhouse_env::Registry;
use rollhouse_wire::{
    CloseSession, EndCause, Heartbeat, Incarnation, LaneSettings, OpenPool, OpenSession, PoolOpened, Refusal,
    RefusalCode, Register, Secret, SessionEnd, SessionId, SessionOpened, Spread, StoreStatus,
};

use crate::node::{ENV, Node};
use crate::random::Random;
use crate::trainer::{Doing, Next, Trainer};

/// What goes wrong.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    /// Messages are lost, repeated, and late by seconds.
    pub(crate) network: bool,
    /// Nodes restart, are cut off and drained.
    pub(crate) nodes: bool,
    /// The coordinator restarts. Sessions have leases then: what it forgot must end by itself. Else they have
    /// none, as when nodes play by themselves, and only the coordinator ends them.
    pub(crate) coordinator: bool,
}

impl Faults {
    pub(crate) const NONE: Self = Self { network: false, nodes: false, coordinator: false };
}

/// The env every simulated node has.
pub(crate) fn spec(dynamics: u64) -> EnvSpec {
    static CARTPOLE: LazyLock<EnvSpec> =
        LazyLock::new(|| Registry::builtin().get("CartPole-v1").expect("a built-in env").spec().clone());
    EnvSpec { id: ENV.to_owned(), dynamics_hash: dynamics, ..CARTPOLE.clone() }
}

#[derive(Clone)]
enum Message {
    Register { link: LinkId, register: Register },
    Heartbeat { link: LinkId, heartbeat: Heartbeat },
    Open { trainer: usize, question: u64, request: OpenPool },
    Close { trainer: usize, question: u64, pool: RunId },
    Drain { node: usize },
}

#[derive(Clone)]
enum Call {
    Open(Box<OpenSession>),
    Close(CloseSession),
}

type CallResult = Result<Result<SessionOpened, SessionEnd>, CallFailure>;

enum Happens {
    AtCoordinator { term: u64, message: Message },
    AtAsker { whose: Whose, reply: Reply },
    AtNode { call: u64, link: LinkId, request: Call },
    CallAnswered { call: u64, result: CallResult },
    LinkLost { link: LinkId },
    PortClosed { term: u64, asked: PortQuestion },
    NodeTurn { node: usize, boot: u64 },
    TrainerTurn { trainer: usize, question: u64, deadline: bool },
    Tick { term: u64 },
    Chaos,
}

/// Who waits for an answer.
#[derive(Debug, Clone)]
enum Whose {
    Node { link: LinkId, since: u64, told: Vec<SessionEnd> },
    Trainer { trainer: usize, question: u64 },
    Operator,
}

struct Link {
    node: usize,
    boot: u64,
}

/// How a node reaches the coordinator.
#[derive(Default)]
struct Reach {
    link: Option<LinkId>,
    registered: bool,
    heard: u64,
    cut_until: u64,
}

pub(crate) struct World {
    now: u64,
    happened: u64,
    queue: BTreeMap<(u64, u64), Happens>,
    random: Random,
    faults: Faults,
    calm: bool,
    term: u64,
    started: u64,
    cluster: Cluster,
    /// What the coordinator kept of its nodes.
    roster: Option<Roster>,
    nodes: Vec<Node>,
    reach: Vec<Reach>,
    links: BTreeMap<LinkId, Link>,
    trainers: Vec<Trainer>,
    tickets: BTreeMap<Ticket, (Whose, u64)>,
    calls: BTreeMap<u64, (SessionId, Incarnation, bool)>,
    numbers: u64,
    /// Pools that were granted by this coordinator and that nobody has asked it to close.
    granted: BTreeSet<RunId>,
    incarnations: BTreeSet<(SessionId, Incarnation)>,
    /// Placements that a trainer steps, by trainer.
    in_use: BTreeMap<usize, BTreeSet<(SessionId, Incarnation)>>,
    counted: BTreeMap<&'static str, u64>,
}

const QUOTA: u32 = 500;
const QUESTION_DEADLINE: u64 = 10_000;
const CALL_DEADLINE: u64 = 10_000;
const IDLE: u64 = 15_000;

impl World {
    pub(crate) fn new(mut random: Random, faults: Faults) -> Self {
        let mut nodes = Vec::new();
        for index in 0..random.within(1, 6) {
            let dynamics = if random.chance(200) { 2 } else { 1 };
            let capacity = *random.pick(&[64, 200, 1000, 3000]);
            nodes.push(Node::new(format!("node-{index}"), index, capacity, dynamics));
        }
        let mut world = Self {
            now: 0,
            happened: 0,
            queue: BTreeMap::new(),
            random,
            faults,
            calm: false,
            term: 1,
            started: 0,
            cluster: Cluster::new(1, None, secrets()),
            roster: None,
            reach: nodes.iter().map(|_| Reach::default()).collect(),
            nodes,
            links: BTreeMap::new(),
            trainers: Vec::new(),
            tickets: BTreeMap::new(),
            calls: BTreeMap::new(),
            numbers: 1000,
            granted: BTreeSet::new(),
            incarnations: BTreeSet::new(),
            in_use: BTreeMap::new(),
            counted: BTreeMap::new(),
        };
        for node in 0..world.nodes.len() {
            world.after(node as u64, Happens::NodeTurn { node, boot: node as u64 });
        }
        for index in 0..8 {
            let owner = format!("owner-{}", index % 3);
            world.add_trainer(Asker { owner, max_lanes: Some(QUOTA), admin: false }, 1 + index * 100);
        }
        world.after(0, Happens::Tick { term: 1 });
        world.after(3000, Happens::Chaos);
        world
    }

    fn add_trainer(&mut self, asker: Asker, after: u64) -> usize {
        let trainer = self.trainers.len();
        let request = OpenPool {
            pool: RunId::from_u128(0),
            lanes: 1,
            settings: settings(),
            labels: BTreeMap::new(),
            spread: Spread::Pack,
        };
        self.trainers.push(Trainer { asker, doing: Doing::Resting, request, question: 0 });
        self.after(after, Happens::TrainerTurn { trainer, question: 0, deadline: false });
        trainer
    }

    pub(crate) fn counted(&self) -> BTreeMap<&'static str, u64> {
        self.counted.clone()
    }

    /// Lets time pass.
    pub(crate) fn live_for(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some((&(at, _), _)) = self.queue.first_key_value()
            && at <= end
        {
            let (_, happens) = self.queue.pop_first().expect("it was just seen");
            self.now = at;
            self.happen(happens);
            self.check();
        }
        self.now = end;
    }

    /// Ends the faults, has every trainer close its pool, and finds everything given back.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.reach.iter_mut().for_each(|reach| reach.cut_until = 0);
        self.live_for(120_000);
        for trainer in &self.trainers {
            assert_eq!(trainer.doing, Doing::Resting, "a trainer never learned what became of its pool");
        }
        let held: u32 = self.nodes.iter().map(Node::lanes).sum();
        assert_eq!(held, 0, "lanes are held for nobody");
        let status = self.cluster.status(self.time(), "test", StoreStatus::default());
        assert_eq!((status.pools, status.sessions, status.lanes), (0, 0, 0));
        assert!(self.tickets.is_empty(), "requests were never answered");
        assert!(self.calls.is_empty());
        self.everything_is_free_again();
    }

    /// A pool of all lanes of the nodes that can share one opens.
    fn everything_is_free_again(&mut self) {
        let mut room: BTreeMap<u64, u32> = BTreeMap::new();
        for node in &self.nodes {
            *room.entry(node.dynamics).or_default() += node.capacity;
        }
        let lanes = room.into_values().max().expect("there are nodes");
        let asker = Asker { owner: "last".to_owned(), max_lanes: None, admin: false };
        let trainer = self.add_trainer(asker, u64::MAX / 2);
        self.trainers[trainer].request.lanes = lanes;
        self.trainers[trainer].request.pool = RunId::from_u128(u128::MAX);
        self.ask(trainer, Doing::Asking);
        self.live_for(1000);
        assert_eq!(self.trainers[trainer].doing, Doing::Using, "{lanes} lanes are not free");
        assert_eq!(self.nodes.iter().map(Node::lanes).sum::<u32>(), lanes);
    }

    /// What must hold at any time.
    fn check(&self) {
        let mut holders = BTreeSet::new();
        for node in &self.nodes {
            assert!(node.lanes() <= node.capacity, "{} is over its capacity", node.name);
            for (session, held) in &node.sessions {
                assert!(
                    holders.insert((*session, held.incarnation)),
                    "{session} {} is held twice",
                    held.incarnation
                );
            }
        }
        for (whose, latest) in self.tickets.values() {
            assert!(self.now <= *latest, "an answer is late: {whose:?}");
        }
        let mut on_node: BTreeMap<String, u32> = BTreeMap::new();
        let mut of_owner: BTreeMap<String, u32> = BTreeMap::new();
        for session in self.cluster.sessions().sessions {
            *on_node.entry(session.node).or_default() += session.report.lanes;
            if self.granted.contains(&session.report.session.pool) {
                *of_owner.entry(session.report.owner).or_default() += session.report.lanes;
            }
        }
        for node in &self.nodes {
            let placed = on_node.get(&node.name).copied().unwrap_or(0);
            assert!(placed <= node.capacity, "{placed} lanes are placed on {}", node.name);
        }
        for (owner, lanes) in of_owner {
            assert!(owner == "last" || lanes <= QUOTA, "{owner} has {lanes} lanes");
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now - self.started)
    }

    fn count(&mut self, what: &'static str) {
        *self.counted.entry(what).or_default() += 1;
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn after(&mut self, ms: u64, happens: Happens) {
        self.happened += 1;
        self.queue.insert((self.now.saturating_add(ms), self.happened), happens);
    }

    fn faulty(&mut self, per_mille: u64) -> bool {
        self.faults.network && !self.calm && self.random.chance(per_mille)
    }

    /// How long a message travels; `None` when it is lost.
    fn travel(&mut self) -> Option<u64> {
        if self.faulty(20) {
            None
        } else if self.faulty(30) {
            Some(self.random.within(100, 5000))
        } else {
            Some(self.random.within(1, 30))
        }
    }

    fn send(&mut self, message: Message) {
        for _ in 0..=u8::from(self.faulty(30)) {
            if let Some(ms) = self.travel() {
                self.after(ms, Happens::AtCoordinator { term: self.term, message: message.clone() });
            }
        }
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::AtCoordinator { term, message } if term == self.term => self.at_coordinator(message),
            Happens::AtCoordinator { .. } => {}
            Happens::AtAsker { whose, reply } => self.at_asker(whose, &reply),
            Happens::AtNode { call, link, request } => self.at_node(call, link, request),
            Happens::CallAnswered { call, result } => self.call_answered(call, result),
            Happens::LinkLost { link } => self.tell(Event::LinkLost { link, leaving: false }),
            Happens::PortClosed { term, asked } if term == self.term => {
                self.count("port closed");
                self.tell(Event::PortClosed(asked));
            }
            Happens::PortClosed { .. } => {}
            Happens::NodeTurn { node, boot } if self.nodes[node].boot == boot => self.node_turn(node),
            Happens::NodeTurn { .. } => {}
            Happens::TrainerTurn { trainer, question, deadline } => {
                if self.trainers[trainer].question == question {
                    self.trainer_turn(trainer, deadline);
                }
            }
            Happens::Tick { term } if term == self.term => {
                self.tell(Event::Tick);
                self.after(TICK.as_millis() as u64, Happens::Tick { term });
            }
            Happens::Tick { .. } => {}
            Happens::Chaos => self.chaos(),
        }
    }

    // Coordinator.

    fn at_coordinator(&mut self, message: Message) {
        let ticket = Ticket(self.number());
        let (whose, event) = match message {
            Message::Register { link, register } => {
                if !self.reaches(link) {
                    return;
                }
                let node = register.node.clone();
                let register = Box::new(register);
                (
                    Whose::Node { link, since: 0, told: Vec::new() },
                    Event::Register { link, ticket, node, register },
                )
            }
            Message::Heartbeat { link, heartbeat } => {
                if !self.reaches(link) {
                    return;
                }
                let (since, told) = (heartbeat.changes.since, heartbeat.ended.clone());
                let heartbeat = Box::new(heartbeat);
                (Whose::Node { link, since, told }, Event::Heartbeat { link, ticket, heartbeat })
            }
            Message::Open { trainer, question, request } => {
                let asker = self.trainers[trainer].asker.clone();
                let request = Box::new(request);
                (Whose::Trainer { trainer, question }, Event::OpenPool { ticket, asker, request })
            }
            Message::Close { trainer, question, pool } => {
                self.granted.remove(&pool);
                let asker = self.trainers[trainer].asker.clone();
                (Whose::Trainer { trainer, question }, Event::ClosePool { ticket, asker, pool })
            }
            Message::Drain { node } => {
                (Whose::Operator, Event::Drain { ticket, node: self.nodes[node].name.clone() })
            }
        };
        let patience = match event {
            Event::OpenPool { .. } => MAX_ATTEMPTS as u64 * CALL_DEADLINE,
            _ => CLOSE_PATIENCE.as_millis() as u64,
        };
        self.tickets.insert(ticket, (whose, self.now + patience + TICK.as_millis() as u64));
        self.tell(event);
    }

    fn tell(&mut self, event: Event) {
        for action in self.cluster.handle(self.time(), event) {
            match action {
                Action::Answer { ticket, reply } => self.answer(ticket, reply),
                Action::Disconnect { link } => {
                    self.links.remove(&link);
                }
                Action::AskPort { asked, .. } => {
                    // Of a process that has ended; now and then the answer is forged, or late.
                    let is_it = |node: &Node| match asked.boot {
                        Some(boot) => node.boot == boot,
                        None => node.name == *asked.node,
                    };
                    let has_ended = !self.nodes.iter().any(is_it);
                    let told = if has_ended {
                        900
                    } else if self.calm || !self.faults.network {
                        0
                    } else {
                        20
                    };
                    if self.random.chance(told)
                        && let Some(ms) = self.travel()
                    {
                        self.after(ms, Happens::PortClosed { term: self.term, asked });
                    }
                }
                // Now and then that fails, and nothing is kept.
                Action::KeepRoster(roster) => self.roster = (!self.faulty(50)).then_some(roster),
                Action::Open { link, request } => {
                    let key = (request.session, request.incarnation);
                    assert!(self.incarnations.insert(key), "an incarnation was given twice");
                    self.call(link, key, Call::Open(request));
                }
                Action::Close { link, request } => {
                    self.call(link, (request.session, request.incarnation), Call::Close(request));
                }
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply) {
        let (whose, _) = self.tickets.remove(&ticket).expect("a request is answered once");
        if let (Whose::Trainer { trainer, .. }, Reply::PoolOpened(opened)) = (&whose, &reply) {
            self.check_grants(&self.trainers[*trainer].request, opened);
        }
        if let (Whose::Trainer { trainer, .. }, Reply::PoolOpened(_)) = (&whose, &reply) {
            self.granted.insert(self.trainers[*trainer].pool());
        }
        if let Some(ms) = self.travel() {
            self.after(ms, Happens::AtAsker { whose, reply });
        }
    }

    /// The grants are the pool's lanes, each once, on nodes that step them alike.
    fn check_grants(&self, request: &OpenPool, opened: &PoolOpened) {
        let mut next = 0;
        for grant in &opened.sessions {
            assert_eq!(grant.first_lane, next);
            next += grant.lanes;
            let node = self.nodes.iter().find(|node| node.name == grant.node).expect("a known node");
            assert_eq!(node.dynamics, opened.spec.dynamics_hash);
        }
        assert!(next == request.lanes || self.faults.network, "{next} of {} lanes", request.lanes);
    }

    fn call(&mut self, link: LinkId, key: (SessionId, Incarnation), request: Call) {
        let call = self.number();
        self.calls.insert(call, (key.0, key.1, matches!(request, Call::Open(_))));
        for _ in 0..=u8::from(self.faulty(30)) {
            if let Some(ms) = self.travel() {
                self.after(ms, Happens::AtNode { call, link, request: request.clone() });
            }
        }
        let unknown = Happens::CallAnswered { call, result: Err(CallFailure::Unknown) };
        self.after(CALL_DEADLINE, unknown);
    }

    fn call_answered(&mut self, call: u64, result: CallResult) {
        let Some((session, incarnation, open)) = self.calls.remove(&call) else { return };
        let failed = |failure: CallFailure| failure;
        let event = if open {
            let result = result.map_err(failed).map(|answer| Box::new(answer.expect("it was to open")));
            Event::Opened { session, incarnation, result }
        } else {
            let result = result.map_err(failed).map(|answer| Box::new(answer.expect_err("it was to close")));
            Event::Closed { session, incarnation, result }
        };
        self.tell(event);
    }

    fn restart_coordinator(&mut self) {
        self.count("coordinator restarted");
        self.term += 1;
        self.started = self.now;
        self.cluster = Cluster::new(self.term, self.roster.clone(), secrets());
        self.links.clear();
        self.tickets.clear();
        self.calls.clear();
        self.granted.clear();
        self.after(0, Happens::Tick { term: self.term });
    }

    // Nodes.

    /// Whether messages pass on a connection now.
    fn reaches(&self, link: LinkId) -> bool {
        let link = self.links.get(&link).filter(|link| self.nodes[link.node].boot == link.boot);
        link.is_some_and(|link| self.reach[link.node].cut_until <= self.now)
    }

    fn at_node(&mut self, call: u64, link: LinkId, request: Call) {
        if !self.reaches(link) {
            return;
        }
        let index = self.links[&link].node;
        let overloaded = self.faulty(50);
        let (node, now) = (&mut self.nodes[index], self.now);
        let answer = match &request {
            Call::Open(_) if overloaded => Err(Refusal::busy("overloaded", 100)),
            Call::Open(request) => node.open(request, now).map(Ok),
            Call::Close(request) => {
                assert_unused(&self.in_use, request);
                node.close(request).map(Err)
            }
        };
        match &answer {
            Err(refusal) if refusal.code == RefusalCode::Stale => self.count("node refused stale"),
            Err(refusal) if refusal.message == "capacity" => self.count("node refused for capacity"),
            _ => {}
        }
        if let Some(ms) = self.travel() {
            let result = answer.map_err(CallFailure::Refused);
            self.after(ms, Happens::CallAnswered { call, result });
        }
    }

    fn node_turn(&mut self, index: usize) {
        let used = self.trainers.iter().filter(|t| t.owns()).map(Trainer::pool);
        let ended = self.nodes[index].leases(&used.collect(), self.now, self.faults.coordinator);
        if ended > 0 {
            self.count("lease ended");
        }
        if self.nodes[index].draining && self.nodes[index].lanes() == 0 {
            self.count("node drained");
            return self.restart_node(index);
        }
        let silent = self.now - self.reach[index].heard > IDLE;
        let linked = self.reach[index].link.filter(|link| self.links.contains_key(link) && !silent);
        match linked {
            Some(link) if self.reach[index].registered => {
                let heartbeat = self.nodes[index].heartbeat();
                self.send(Message::Heartbeat { link, heartbeat });
            }
            Some(_) if self.now - self.reach[index].heard < 2000 => {}
            _ => self.dial(index),
        }
        let boot = self.nodes[index].boot;
        self.after(1000, Happens::NodeTurn { node: index, boot });
    }

    fn dial(&mut self, index: usize) {
        self.hang_up(index);
        let link = LinkId(self.number());
        self.links.insert(link, Link { node: index, boot: self.nodes[index].boot });
        let reach = &mut self.reach[index];
        (reach.link, reach.registered, reach.heard) = (Some(link), false, self.now);
        let register = self.nodes[index].register();
        self.send(Message::Register { link, register });
    }

    /// The connection ends; the coordinator sees it at once or when it was idle for too long.
    fn hang_up(&mut self, index: usize) {
        let Some(link) = self.reach[index].link.take() else { return };
        if self.links.remove(&link).is_some() {
            let seen = if self.random.chance(500) { 0 } else { IDLE };
            self.after(seen, Happens::LinkLost { link });
        }
    }

    fn restart_node(&mut self, index: usize) {
        self.count("node restarted");
        self.hang_up(index);
        let boot = self.number();
        let old = &self.nodes[index];
        self.nodes[index] = Node::new(old.name.clone(), boot, old.capacity, old.dynamics);
        let away = self.random.within(100, 9000);
        self.after(away, Happens::NodeTurn { node: index, boot });
    }

    fn at_asker(&mut self, whose: Whose, reply: &Reply) {
        match whose {
            Whose::Operator => {}
            Whose::Trainer { trainer, question } if self.trainers[trainer].question == question => {
                self.at_trainer(trainer, reply);
            }
            Whose::Trainer { .. } => {}
            Whose::Node { link, since, told } => {
                if self.reaches(link) {
                    self.at_registered(link, since, &told, reply);
                }
            }
        }
    }

    fn at_registered(&mut self, link: LinkId, since: u64, told: &[SessionEnd], reply: &Reply) {
        let index = self.links[&link].node;
        if self.reach[index].link != Some(link) {
            return;
        }
        let (node, now) = (&mut self.nodes[index], self.now);
        let mut told_to_close = false;
        let reach = &mut self.reach[index];
        match reply {
            Reply::Registered(registered) => {
                reach.registered = node.registered(registered);
                reach.heard = now;
            }
            Reply::HeartbeatTaken(taken) => {
                taken.close.iter().for_each(|close| assert_unused(&self.in_use, close));
                told_to_close = !taken.close.is_empty();
                node.taken(taken, since, told);
                reach.heard = now;
            }
            Reply::Refused(_) => {
                reach.registered = false;
                self.hang_up(index);
            }
            other => panic!("{other:?} is no answer to a node"),
        }
        if told_to_close {
            self.count("node was told to close");
        }
    }

    // Trainers.

    fn at_trainer(&mut self, index: usize, reply: &Reply) {
        match reply {
            Reply::PoolOpened(opened) => {
                self.count("pool opened");
                if self.trainers[index].doing == Doing::Asking {
                    let pool = self.trainers[index].pool();
                    let grants = opened.sessions.iter();
                    let keys = grants.map(|g| (SessionId { pool, index: g.index }, g.incarnation)).collect();
                    self.in_use.insert(index, keys);
                }
            }
            Reply::PoolClosed(status) => {
                self.count("pool closed");
                if status.ended.contains_key(&EndCause::NodeLost) {
                    self.count("pool lost sessions");
                }
            }
            Reply::Refused(refusal) => match refusal.code {
                RefusalCode::Busy => self.count("refused busy"),
                RefusalCode::Quota => self.count("refused quota"),
                RefusalCode::Stale => self.count("refused stale"),
                RefusalCode::NotFound => self.count("refused not found"),
                RefusalCode::BadRequest if self.trainers[index].doing == Doing::Asking => {
                    assert!(refusal.message.starts_with("lanes is"), "{refusal}");
                }
                _ => panic!("{refusal} to a trainer that {:?}", self.trainers[index].doing),
            },
            other => panic!("{other:?} is no answer to a trainer"),
        }
        let after = self.random.within(2000, 15_000);
        if let Next::After(ms) = self.trainers[index].answered(reply, after) {
            self.trainers[index].question += 1;
            let question = self.trainers[index].question;
            self.after(ms, Happens::TrainerTurn { trainer: index, question, deadline: false });
        }
    }

    fn trainer_turn(&mut self, index: usize, deadline: bool) {
        if deadline {
            self.count("asked again");
        }
        let gives_up = self.calm || self.random.chance(100);
        match self.trainers[index].doing {
            Doing::Resting if self.calm => {}
            Doing::Resting => {
                let pool = RunId::from_u128(u128::from(self.number()));
                let lanes = *self.random.pick(&[1, 16, 64, 100, 200, 400, 600]);
                let spread = *self.random.pick(&[Spread::Pack, Spread::Even]);
                let request = &mut self.trainers[index].request;
                (request.pool, request.lanes, request.spread) = (pool, lanes, spread);
                self.ask(index, Doing::Asking);
            }
            Doing::Asking if gives_up => self.ask(index, Doing::Closing),
            Doing::Using => self.ask(index, Doing::Closing),
            doing @ (Doing::Asking | Doing::Closing) => self.ask(index, doing),
        }
    }

    fn ask(&mut self, index: usize, doing: Doing) {
        self.in_use.remove(&index);
        let trainer = &mut self.trainers[index];
        trainer.doing = doing;
        trainer.question += 1;
        let question = trainer.question;
        let message = match doing {
            Doing::Asking => Message::Open { trainer: index, question, request: trainer.request.clone() },
            _ => Message::Close { trainer: index, question, pool: trainer.pool() },
        };
        self.send(message);
        self.after(QUESTION_DEADLINE, Happens::TrainerTurn { trainer: index, question, deadline: true });
    }

    // Faults.

    fn chaos(&mut self) {
        if self.calm || !self.faults.nodes {
            return;
        }
        let node = self.random.within(0, self.nodes.len() as u64 - 1) as usize;
        match self.random.within(0, 9) {
            0 if self.faults.coordinator => self.restart_coordinator(),
            0..=2 => self.restart_node(node),
            3 | 4 => self.hang_up(node),
            5..=7 => {
                self.count("cut off");
                self.reach[node].cut_until = self.now + self.random.within(1000, 25_000);
            }
            _ => self.send(Message::Drain { node }),
        }
        let next = self.random.within(500, 6000);
        self.after(next, Happens::Chaos);
    }
}

/// Nobody ends a session that a trainer steps.
fn assert_unused(
    in_use: &BTreeMap<usize, BTreeSet<(SessionId, Incarnation)>>,
    CloseSession { session, incarnation }: &CloseSession,
) {
    let used = in_use.values().any(|keys| keys.contains(&(*session, *incarnation)));
    assert!(!used, "{session} {incarnation} is closed while its owner steps it");
}

fn settings() -> LaneSettings {
    LaneSettings {
        env: ENV.to_owned(),
        options: BTreeMap::new(),
        autoreset: rollhouse_core::AutoresetMode::NextStep,
        max_episode_steps: None,
        seeds: rollhouse_core::SeedSchedule::Continue,
        record: rollhouse_wire::RecordRule::None,
        collect: None,
        replay: None,
    }
}

fn secrets() -> rollhouse_coordinator::SecretSource {
    let mut drawn = 0u128;
    Box::new(move || {
        drawn += 1;
        Secret::from_bytes(drawn.to_le_bytes())
    })
}
