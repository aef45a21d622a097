//! A cluster whose nodes do at once what they are asked to, and what it is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_coordinator::{
    Action, Asker, CallFailure, Cluster, Event, LinkId, PortQuestion, Reply, Roster, SecretSource, Ticket,
};
use rollhouse_core::{AutoresetMode, EnvSpec, RunId, SeedSchedule, StepColumns};
use rollhouse_env::Registry;
use rollhouse_wire::{
    EndCause, Grant, Incarnation, LaneSettings, OpenPool, OpenSession, Refusal, Register, ReplaceSession,
    Secret, SeenTerm, SessionCounts, SessionEnd, SessionOpened, SessionReplaced, Spread, Standing,
};

/// A pool of `ada`: its last 4 bytes tell its owner.
pub(crate) const POOL: RunId = RunId::from_u128(0x33e6_ddaf);

pub(crate) fn spec() -> EnvSpec {
    Registry::builtin().get("CartPole-v1").unwrap().spec().clone()
}

pub(crate) fn open_pool(lanes: u32) -> OpenPool {
    OpenPool {
        pool: POOL,
        lanes,
        settings: LaneSettings {
            env: "CartPole-v1".into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: BTreeMap::new(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedSchedule::Continue,
            record: rollhouse_core::RecordRule::All,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
        labels: BTreeMap::new(),
        spread: Spread::Even,
    }
}

pub(crate) fn asker(owner: &str) -> Asker {
    Asker { owner: owner.to_owned(), max_lanes: None, admin: false }
}

fn secrets() -> SecretSource {
    let mut drawn = 0u128;
    Box::new(move || {
        drawn += 1;
        Secret::from_bytes(drawn.to_le_bytes())
    })
}

/// A cluster whose nodes do at once what they are asked to.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) now: Duration,
    tickets: u64,
    pub(crate) links: BTreeMap<LinkId, &'static str>,
    /// Nodes that do not open sessions.
    pub(crate) full: Vec<&'static str>,
    /// Nodes that answer so to whatever they are to open, and how often they have.
    pub(crate) liars: BTreeMap<&'static str, CallFailure>,
    pub(crate) refused: usize,
    /// Nodes that know of no recorded episodes.
    pub(crate) old: Vec<&'static str>,
    /// Dynamics of the envs that nodes learn.
    pub(crate) learned: BTreeMap<&'static str, u64>,
    /// What was kept of the nodes.
    pub(crate) roster: Option<Roster>,
    /// Whose hosts were asked whether they had ended.
    pub(crate) ports_asked: Vec<PortQuestion>,
    /// The request to close a pool that was answered last, later than at once.
    pub(crate) answered: Option<Ticket>,
    /// What nodes were asked to open, and to close.
    pub(crate) opened: Vec<(&'static str, Incarnation)>,
    pub(crate) closed: Vec<(&'static str, Incarnation)>,
    /// Where lanes that were opened went on.
    pub(crate) resumed: Vec<Option<Standing>>,
}

impl Stage {
    pub(crate) fn new(term: u64, nodes: &[&'static str]) -> Self {
        Self::of(SeenTerm { term, boot: term }, nodes)
    }

    pub(crate) fn of(own: SeenTerm, nodes: &[&'static str]) -> Self {
        let mut stage = Self {
            cluster: Cluster::new(own, None, secrets()),
            now: Duration::from_secs(if own.term > 1 { 10 } else { 0 }),
            tickets: 0,
            links: BTreeMap::new(),
            full: Vec::new(),
            liars: BTreeMap::new(),
            refused: 0,
            old: Vec::new(),
            learned: BTreeMap::new(),
            roster: None,
            ports_asked: Vec::new(),
            answered: None,
            opened: Vec::new(),
            closed: Vec::new(),
            resumed: Vec::new(),
        };
        nodes.iter().for_each(|node| stage.join(node, 1));
        stage
    }

    /// The coordinator is started again, knowing what the one before kept.
    pub(crate) fn restart(&mut self) {
        let term = self.cluster.term() + 1;
        self.cluster = Cluster::new(SeenTerm { term, boot: term }, self.roster.clone(), secrets());
        self.now = Duration::ZERO;
        self.links.clear();
        self.ports_asked.clear();
    }

    pub(crate) fn join(&mut self, node: &'static str, boot: u64) {
        self.register(node, register_of(node, boot, spec().dynamics_hash));
    }

    /// A node joins that has room for so many lanes.
    pub(crate) fn join_with(&mut self, node: &'static str, capacity: u32) {
        self.register(node, Box::new(Register { capacity, ..*register_of(node, 1, spec().dynamics_hash) }));
    }

    /// A node joins whose env has those dynamics.
    pub(crate) fn join_of(&mut self, node: &'static str, dynamics: u64) {
        self.register(node, register_of(node, 1, dynamics));
    }

    /// A node joins that learns envs of those kinds, all with the same dynamics.
    pub(crate) fn join_learning(&mut self, node: &'static str, kinds: &[&str], dynamics: u64) {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        self.learned.insert(node, dynamics);
        self.register(node, Box::new(Register { kinds, ..*register_of(node, 1, spec().dynamics_hash) }));
    }

    fn register(&mut self, node: &'static str, register: Box<Register>) {
        self.try_register(node, register).unwrap();
    }

    pub(crate) fn try_register(
        &mut self,
        node: &'static str,
        register: Box<Register>,
    ) -> Result<(), Refusal> {
        let link = LinkId(self.links.len() as u64 + 1);
        self.links.insert(link, node);
        let ticket = self.ticket();
        match self.tell(Event::Register { link, ticket, node: node.to_owned(), register }) {
            Some(Reply::Registered(_)) => Ok(()),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Tells the cluster, does what it says, and gives the last answer.
    pub(crate) fn tell(&mut self, event: Event) -> Option<Reply> {
        let own = match &event {
            Event::ClosePool { ticket, .. } => Some(*ticket),
            _ => None,
        };
        let mut events = vec![event];
        let mut answer = None;
        while let Some(event) = events.pop() {
            for action in self.cluster.handle(self.now, event) {
                match action {
                    Action::Answer { ticket, reply: Reply::PoolClosed(_) } if Some(ticket) != own => {
                        self.answered = Some(ticket);
                    }
                    Action::Answer { reply, .. } => answer = Some(reply),
                    Action::Open { link, request } => events.push(self.open(link, &request)),
                    Action::Close { link, request } => {
                        let node = self.links[&link];
                        self.closed.push((node, request.incarnation));
                        let end = SessionEnd {
                            session: request.session,
                            incarnation: request.incarnation,
                            cause: EndCause::Closed,
                            detail: String::new(),
                            done: SessionCounts { steps: 10, ..SessionCounts::default() },
                            report: None,
                            unreached: false,
                        };
                        let (session, incarnation) = (request.session, request.incarnation);
                        events.push(Event::Closed { session, incarnation, result: Ok(Box::new(end)) });
                    }
                    Action::KeepRoster(roster) => self.roster = Some(roster),
                    Action::AskPort { asked, .. } => self.ports_asked.push(asked),
                    Action::Disconnect { .. } => {}
                }
            }
        }
        answer
    }

    pub(crate) fn open(&mut self, link: LinkId, request: &OpenSession) -> Event {
        let (session, incarnation) = (request.session, request.incarnation);
        let node = self.links[&link];
        let result = if let Some(failure) = self.liars.get(node) {
            self.refused += 1;
            Err(failure.clone())
        } else if self.full.contains(&node) {
            Err(CallFailure::Refused(Refusal::busy("full", 10)))
        } else {
            self.opened.push((node, incarnation));
            self.resumed.push(request.resume.as_deref().cloned());
            let mut spec = spec();
            // A recorded episode is shown as it was recorded.
            spec.dynamics_hash =
                request.settings.replay.as_ref().map_or(spec.dynamics_hash, |of| of.dynamics);
            let env = &request.settings.env;
            if **env != *spec.id {
                spec.dynamics_hash = self.learned[node];
                (spec.id, spec.source) = (env.to_string(), env.source().clone());
            }
            let replay = request.settings.replay.is_some() && !self.old.contains(&node);
            Ok(Box::new(SessionOpened { spec, lease_ms: 30_000, replay }))
        };
        Event::Opened { session, incarnation, result }
    }

    pub(crate) fn open_pool(&mut self, lanes: u32) -> Vec<Grant> {
        let ticket = self.ticket();
        let (asker, request) = (asker("ada"), Box::new(open_pool(lanes)));
        match self.tell(Event::OpenPool { ticket, asker, request }) {
            Some(Reply::PoolOpened(opened)) => opened.sessions,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn replace_as(
        &mut self,
        owner: &str,
        replace: ReplaceSession,
    ) -> Result<SessionReplaced, Refusal> {
        let ticket = self.ticket();
        let event = Event::ReplaceSession { ticket, asker: asker(owner), request: Box::new(replace) };
        match self.tell(event) {
            Some(Reply::SessionReplaced(replaced)) => Ok(*replaced),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn replace(&mut self, grant: &Grant, lanes: u32) -> Result<Grant, Refusal> {
        self.replace_as("ada", asked(grant, lanes)).map(|replaced| replaced.grant)
    }

    pub(crate) fn lose(&mut self, node: &str, leaving: bool) {
        let link = *self.links.iter().rev().find(|(_, name)| **name == node).unwrap().0;
        self.tell(Event::LinkLost { link, leaving });
        self.now += Duration::from_secs(6);
        // The others are heard of.
        let others: Vec<LinkId> = self.links.iter().filter(|(_, n)| **n != node).map(|(l, _)| *l).collect();
        for link in others {
            self.beat(link);
        }
        self.tell(Event::Tick);
    }

    pub(crate) fn beat(&mut self, link: LinkId) {
        let ticket = self.ticket();
        let heartbeat = Box::new(heartbeat(self.tickets));
        self.tell(Event::Heartbeat { link, ticket, heartbeat });
    }
}

pub(crate) fn asked(grant: &Grant, lanes: u32) -> ReplaceSession {
    let Grant { index, incarnation, first_lane, lanes: of, .. } = *grant;
    let dynamics = spec().dynamics_hash;
    ReplaceSession {
        open: open_pool(lanes),
        index,
        incarnation,
        first_lane,
        lanes: of,
        dynamics,
        moving: false,
        node: String::new(),
        replaces: false,
    }
}

pub(crate) fn register_of(node: &str, boot: u64, dynamics: u64) -> Box<Register> {
    Box::new(Register {
        node: node.to_owned(),
        boot,
        address: format!("{node}:1"),
        attach: None,
        capacity: 64,
        threads: 1,
        labels: BTreeMap::new(),
        envs: BTreeMap::from([("CartPole-v1".to_owned(), dynamics)]),
        kinds: Vec::new(),
        budget: None,
        term: 0,
        seen: None,
        program: "test".to_owned(),
    })
}

pub(crate) fn heartbeat(number: u64) -> rollhouse_wire::Heartbeat {
    rollhouse_wire::Heartbeat {
        number,
        load: Default::default(),
        changes: Default::default(),
        ended: Vec::new(),
        unfit: None,
        draining: false,
        measured: BTreeMap::new(),
        connecting: Vec::new(),
        standings: Vec::new(),
    }
}
