//! Sessions get another place when their owner asks for one, and never have two.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_coordinator::{Action, Asker, CallFailure, Cluster, Event, LinkId, Reply, Ticket};
use rollhouse_core::{EnvSpec, RunId};
use rollhouse_env::Registry;
use rollhouse_wire::{
    AutoresetMode, EndCause, Grant, Incarnation, LaneSettings, OpenPool, OpenSession, Refusal, RefusalCode,
    Register, ReplaceSession, Secret, SeedRule, SessionCounts, SessionEnd, SessionOpened, SessionReplaced,
    Spread,
};

const POOL: RunId = RunId::from_u128(7);

fn spec() -> EnvSpec {
    Registry::builtin().get("CartPole-v1").unwrap().spec().clone()
}

fn open_pool(lanes: u32) -> OpenPool {
    OpenPool {
        pool: POOL,
        lanes,
        settings: LaneSettings {
            env: "CartPole-v1".to_owned(),
            options: BTreeMap::new(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedRule::Continue,
            record: rollhouse_wire::RecordRule::All,
            collect: None,
        },
        labels: BTreeMap::new(),
        spread: Spread::Even,
    }
}

fn asker(owner: &str) -> Asker {
    Asker { owner: owner.to_owned(), max_lanes: None, admin: false }
}

/// A cluster whose nodes do at once what they are asked to.
struct Stage {
    cluster: Cluster,
    now: Duration,
    tickets: u64,
    links: BTreeMap<LinkId, &'static str>,
    /// Nodes that do not open sessions.
    full: Vec<&'static str>,
    /// What nodes were asked to open, and to close.
    opened: Vec<(&'static str, Incarnation)>,
    closed: Vec<(&'static str, Incarnation)>,
}

impl Stage {
    fn new(term: u64, nodes: &[&'static str]) -> Self {
        let mut drawn = 0;
        let secrets = Box::new(move || {
            drawn += 1;
            Secret::from_bytes([drawn; 16])
        });
        let mut stage = Self {
            cluster: Cluster::new(term, secrets),
            now: Duration::from_secs(if term > 1 { 10 } else { 0 }),
            tickets: 0,
            links: BTreeMap::new(),
            full: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
        };
        nodes.iter().for_each(|node| stage.join(node, 1));
        stage
    }

    fn join(&mut self, node: &'static str, boot: u64) {
        let link = LinkId(self.links.len() as u64 + 1);
        self.links.insert(link, node);
        let dynamics = spec().dynamics_hash;
        let register = register_of(node, boot, dynamics);
        let ticket = self.ticket();
        let reply = self.tell(Event::Register { link, ticket, node: node.to_owned(), register });
        assert!(matches!(reply, Some(Reply::Registered(_))), "{reply:?}");
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Tells the cluster, does what it says, and gives the last answer.
    fn tell(&mut self, event: Event) -> Option<Reply> {
        let mut events = vec![event];
        let mut answer = None;
        while let Some(event) = events.pop() {
            for action in self.cluster.handle(self.now, event) {
                match action {
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
                        };
                        let (session, incarnation) = (request.session, request.incarnation);
                        events.push(Event::Closed { session, incarnation, result: Ok(Box::new(end)) });
                    }
                    Action::Disconnect { .. } => {}
                }
            }
        }
        answer
    }

    fn open(&mut self, link: LinkId, request: &OpenSession) -> Event {
        let (session, incarnation) = (request.session, request.incarnation);
        let node = self.links[&link];
        let result = if self.full.contains(&node) {
            Err(CallFailure::Refused(Refusal::busy("full", 10)))
        } else {
            self.opened.push((node, incarnation));
            Ok(Box::new(SessionOpened { spec: spec(), lease_ms: 30_000 }))
        };
        Event::Opened { session, incarnation, result }
    }

    fn open_pool(&mut self, lanes: u32) -> Vec<Grant> {
        let ticket = self.ticket();
        let (asker, request) = (asker("ada"), Box::new(open_pool(lanes)));
        match self.tell(Event::OpenPool { ticket, asker, request }) {
            Some(Reply::PoolOpened(opened)) => opened.sessions,
            other => panic!("{other:?}"),
        }
    }

    fn replace_as(&mut self, owner: &str, replace: ReplaceSession) -> Result<SessionReplaced, Refusal> {
        let ticket = self.ticket();
        let event = Event::ReplaceSession { ticket, asker: asker(owner), request: Box::new(replace) };
        match self.tell(event) {
            Some(Reply::SessionReplaced(replaced)) => Ok(*replaced),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn replace(&mut self, grant: &Grant, lanes: u32) -> Result<Grant, Refusal> {
        self.replace_as("ada", asked(grant, lanes)).map(|replaced| replaced.grant)
    }

    fn lose(&mut self, node: &str, leaving: bool) {
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

    fn beat(&mut self, link: LinkId) {
        let ticket = self.ticket();
        let heartbeat = Box::new(heartbeat(self.tickets));
        self.tell(Event::Heartbeat { link, ticket, heartbeat });
    }
}

fn asked(grant: &Grant, lanes: u32) -> ReplaceSession {
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

fn register_of(node: &str, boot: u64, dynamics: u64) -> Box<Register> {
    Box::new(Register {
        node: node.to_owned(),
        boot,
        address: format!("{node}:1"),
        attach: None,
        capacity: 64,
        threads: 1,
        labels: BTreeMap::new(),
        envs: BTreeMap::from([("CartPole-v1".to_owned(), dynamics)]),
        term: 0,
        program: "test".to_owned(),
    })
}

fn heartbeat(number: u64) -> rollhouse_wire::Heartbeat {
    rollhouse_wire::Heartbeat {
        number,
        load: Default::default(),
        changes: Default::default(),
        ended: Vec::new(),
    }
}

#[test]
fn a_session_of_a_lost_node_gets_a_place_elsewhere_and_the_old_one_is_fenced() {
    let mut stage = Stage::new(1, &["a", "b", "c"]);
    let grants = stage.open_pool(6);
    stage.lose("a", false);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap();
    let new = stage.replace(lost, 6).unwrap();
    assert!(new.node != "a" && new.incarnation > lost.incarnation && new.secret != lost.secret);
    assert_eq!((new.index, new.first_lane, new.lanes), (lost.index, lost.first_lane, lost.lanes));
    // Asked again, with the placement that the owner knows, the answer is the same.
    assert_eq!(stage.replace(lost, 6).unwrap(), new);
    assert_eq!(stage.opened.iter().filter(|(_, incarnation)| *incarnation == new.incarnation).count(), 1);
    // The old node comes back: what it has is closed.
    stage.links.insert(LinkId(99), "a");
    let ticket = stage.ticket();
    let register = register_of("a", 1, spec().dynamics_hash);
    stage.tell(Event::Register { link: LinkId(99), ticket, node: "a".to_owned(), register });
    assert_eq!(stage.closed, [("a", lost.incarnation)]);
}

#[test]
fn a_session_that_its_owner_misses_is_closed_where_it_was_before_it_is_placed_elsewhere() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let new = stage.replace(&grants[0], 2).unwrap();
    assert_eq!(stage.closed, [(if grants[0].node == "a" { "a" } else { "b" }, grants[0].incarnation)]);
    assert!(new.incarnation > grants[0].incarnation);
}

#[test]
fn a_session_that_is_moved_stays_where_it_is_until_it_has_another_place() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let (here, there) = (grants[0].clone(), grants[1].node.clone());
    let moving = ReplaceSession { moving: true, ..asked(&here, 2) };
    stage.full = if there == "a" { vec!["a"] } else { vec!["b"] };
    let refusal = stage.replace_as("ada", moving.clone()).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert_eq!(stage.closed, []);
    stage.full.clear();
    let new = stage.replace_as("ada", moving).unwrap().grant;
    assert_eq!(new.node, there);
    assert_eq!(stage.closed.len(), 1, "now it is closed where it was");
    assert_eq!(stage.closed[0].1, here.incarnation);
}

#[test]
fn a_coordinator_that_has_just_started_places_by_the_owners_word_once_its_nodes_had_time_to_come_back() {
    let mut before = Stage::new(1, &["a", "b"]);
    let grants = before.open_pool(2);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap();
    let mut stage = Stage::new(2, &["b"]);
    stage.now = Duration::from_secs(1);
    assert_eq!(stage.replace(lost, 2).unwrap_err().code, RefusalCode::Busy);
    stage.now = Duration::from_secs(6);
    stage.beat(LinkId(1));
    let new = stage.replace(lost, 2).unwrap();
    assert_eq!((new.node.as_str(), new.incarnation.term), ("b", 2));
}

#[test]
fn a_node_that_dies_while_it_opens_a_session_is_replaced_by_another_one() {
    let mut stage = Stage::new(1, &["a", "b", "c"]);
    let grants = stage.open_pool(3);
    stage.lose("a", false);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap().clone();
    stage.full = vec!["b"];
    assert_eq!(stage.replace(&lost, 3).unwrap().node, "c");
    // No other place at all: later there may be one.
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    stage.lose("a", false);
    let lost = grants.iter().find(|grant| grant.node == "a").unwrap().clone();
    stage.full = vec!["b"];
    assert_eq!(stage.replace(&lost, 2).unwrap_err().code, RefusalCode::Busy);
    stage.full.clear();
    assert_eq!(stage.replace(&lost, 2).unwrap().node, "b");
}

#[test]
fn a_pool_whose_only_session_ended_with_its_node_goes_on() {
    let mut stage = Stage::new(1, &["a"]);
    let grants = stage.open_pool(1);
    stage.lose("a", true);
    stage.join("b", 1);
    let new = stage.replace(&grants[0], 1).unwrap();
    assert_eq!(new.node, "b");
    let ticket = stage.ticket();
    let closed = stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: POOL });
    let Some(Reply::PoolClosed(status)) = closed else { panic!("{closed:?}") };
    assert_eq!(status.done.steps, 10);
    assert_eq!(stage.closed.last(), Some(&("b", new.incarnation)));
}

#[test]
fn who_is_not_the_owner_or_asks_for_other_lanes_gets_no_place() {
    let mut stage = Stage::new(1, &["a", "b"]);
    let grants = stage.open_pool(2);
    let good = asked(&grants[0], 2);
    let code = |stage: &mut Stage, owner: &str, replace| stage.replace_as(owner, replace).unwrap_err().code;
    assert_eq!(code(&mut stage, "eve", good.clone()), RefusalCode::Forbidden);
    let wrong = [
        ReplaceSession { lanes: 2, ..good.clone() },
        ReplaceSession { index: 7, ..good.clone() },
        ReplaceSession { first_lane: 1, ..good.clone() },
        ReplaceSession { open: open_pool(3), ..good.clone() },
        ReplaceSession { first_lane: u32::MAX, index: 9, ..good.clone() },
    ];
    for replace in wrong {
        assert_eq!(code(&mut stage, "ada", replace), RefusalCode::BadRequest);
    }
    let ticket = stage.ticket();
    stage.tell(Event::ClosePool { ticket, asker: asker("ada"), pool: POOL });
    assert_eq!(code(&mut stage, "ada", good), RefusalCode::Stale);
}
