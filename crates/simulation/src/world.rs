//! The world: virtual time, processes and the network between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_coordinator::PortQuestion;
use rollhouse_core::split_mix64;
use rollhouse_env::Registry;
use rollhouse_replay::OnOutage;
use rollhouse_replay::testing::{Faults as DiskFaults, FaultyDisk};

use crate::bug::Bug;
use crate::cast::{NODES, site_number, spool_dir, store_dir};
use crate::context::{Context, Input};
use crate::coordinator::Coordinator;
use crate::fault::{Fault, FaultKinds, OPERATOR_LOOKS_EVERY, plan};
use crate::late;
use crate::ledger::Ledger;
use crate::message::Message;
use crate::network::{Conn, LINKS, Link, Network, Site};
use crate::node::Node;
use crate::owners::Owners;
use crate::random::Random;
use crate::trainer::Trainer;

/// The settings of a world.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The seed of everything that is left to chance.
    pub seed: u64,
    /// Time during which things go wrong.
    pub time: Duration,
    /// The kinds of faults.
    pub kinds: FaultKinds,
    /// The qualities of all links; `None` draws them.
    pub link: Option<Link>,
    /// A planted fault of the program, if there is one.
    pub bug: Option<Bug>,
    /// Whether each event is printed on standard error.
    pub tell: bool,
}

/// The result of a world.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// A hash over every event, in order.
    pub trace: u64,
    /// Number of occurrences of several things, by name.
    pub counted: BTreeMap<&'static str, u64>,
    /// Number of episodes that were recorded.
    pub episodes: usize,
    /// Time from the end of the last fault until every trainer that steps had stepped a whole batch, and every node was
    /// joined.
    pub recovered_in: Duration,
    /// The longest time that a trainer waited for a batch.
    pub slowest_batch: Duration,
    /// Number of events.
    pub events: u64,
}

/// A cluster in virtual time.
#[derive(Debug)]
pub struct World {
    pub(crate) setup: Setup,
    pub(crate) now: Duration,
    pub(crate) agenda: Agenda,
    pub(crate) random: Random,
    pub(crate) traffic: Traffic,
    pub(crate) sites: BTreeMap<Site, Life>,
    pub(crate) processes: Processes,
    registry: Arc<Registry>,
    pub(crate) disks: BTreeMap<Site, FaultyDisk>,
    pub(crate) ledger: Ledger,
    /// Milliseconds by which the wall clocks of nodes are ahead.
    pub(crate) walls: [i64; NODES],
    numbers: u64,
    pub(crate) trouble: Trouble,
    pub(crate) record: Record,
}

/// What is going to happen, and when.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    pub(crate) events: BTreeMap<(Duration, u64), Event>,
    /// The number of the last event; it breaks ties.
    number: u64,
}

/// The processes that run now.
#[derive(Debug)]
pub(crate) struct Processes {
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) trainers: Vec<Option<Trainer>>,
}

/// The network and what is under way in it.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) network: Network,
    pub(crate) conns: BTreeMap<u64, Conn>,
    /// The earliest time at which the next message of a channel may arrive, by connection, channel and direction.
    pub(crate) ordered: BTreeMap<(u64, u64, bool), Duration>,
}

/// What goes wrong.
#[derive(Debug)]
pub(crate) struct Trouble {
    faults: Vec<Fault>,
    /// Trainers that lose their connections when they write their next request, and by how much that request is late.
    pub(crate) loose: BTreeMap<usize, Duration>,
    /// Whether nothing goes wrong any more, and trainers end what they have.
    pub(crate) healed: bool,
    calm: bool,
    /// Least term with which the operator starts the coordinator.
    pub(crate) least_term: u64,
}

/// The record of what has happened.
#[derive(Debug)]
pub(crate) struct Record {
    /// A hash over every event so far.
    trace: u64,
    /// Number of occurrences of several things, by name.
    pub(crate) counted: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
pub(crate) enum Event {
    Start(Site),
    Wake {
        site: Site,
        life: u64,
    },
    /// A process has done what its message waited for.
    Leaves {
        conn: u64,
        from: Site,
        life: u64,
        message: Message,
    },
    Arrives {
        conn: u64,
        to_second: bool,
        message: Message,
    },
    ConnLost {
        conn: u64,
        second: bool,
    },
    HandshakeOver {
        conn: u64,
    },
    /// The host that a connection was dialled to says that nobody listens there.
    PortClosed {
        conn: u64,
    },
    /// A node's host says to the coordinator of that life that nobody listens there.
    NodePortClosed {
        life: u64,
        asked: PortQuestion,
    },
    /// The ends of a connection look whether the other is there.
    KeepAlive {
        conn: u64,
    },
    Fault(usize),
    /// The operator looks at the coordinator.
    Operator,
}

/// One process, from start to start.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) number: u64,
    pub(crate) running: bool,
    /// Whether it has ended together with its host, which answers nothing.
    pub(crate) silent: bool,
    /// The world's time at which its clock was zero.
    began: Duration,
    /// Time by which its clock has jumped forward.
    pub(crate) jumped: Duration,
    pub(crate) paused_until: Duration,
    /// The time at which it wants to be woken, on the world's clock.
    pub(crate) wakes: Option<Duration>,
}

impl World {
    /// Makes a cluster of three nodes and three trainers, about to start.
    pub fn new(setup: Setup) -> Self {
        let mut random = Random::new(setup.seed);
        let link = setup.link.unwrap_or_else(|| LINKS[random.index(LINKS.len())]);
        let (faults, cuts) = plan(&mut random, setup.kinds, NODES, TRAINERS, setup.time);
        let network = Network::new(link, Random::new(random.bits()), cuts);
        let mut world = Self {
            setup,
            now: Duration::ZERO,
            agenda: Agenda::default(),
            random,
            traffic: Traffic { network, conns: BTreeMap::new(), ordered: BTreeMap::new() },
            sites: BTreeMap::new(),
            processes: Processes {
                coordinator: None,
                nodes: (0..NODES).map(|_| None).collect(),
                trainers: (0..TRAINERS).map(|_| None).collect(),
            },
            registry: Arc::new(late::registry()),
            disks: BTreeMap::new(),
            ledger: Ledger::of(Owners::new(TRAINERS)),
            walls: [0; NODES],
            numbers: 0,
            trouble: Trouble {
                faults: faults.iter().map(|(_, fault)| fault.clone()).collect(),
                loose: BTreeMap::new(),
                healed: false,
                calm: false,
                least_term: 0,
            },
            record: Record { trace: setup.seed, counted: BTreeMap::new() },
        };
        let nodes = (0..NODES).map(Site::Node);
        let trainers = (0..TRAINERS).map(Site::Trainer);
        for site in [Site::Coordinator].into_iter().chain(nodes).chain(trainers) {
            world.sites.insert(site, Life::default());
            let disk = FaultyDisk::new();
            disk.set_faults(world.with_bugs(DiskFaults::default()));
            world.disks.insert(site, disk);
            let at = world.random.millis(0, 200);
            world.at(at, Event::Start(site));
        }
        for node in 0..NODES {
            let path = spool_dir().join("spool");
            world.disks[&Site::Node(node)].write(&path, format!("spool{node:03}").into_bytes());
        }
        if setup.kinds.restores {
            world.at(OPERATOR_LOOKS_EVERY, Event::Operator);
        }
        for (index, (at, _)) in faults.iter().enumerate() {
            world.at(*at, Event::Fault(index));
        }
        world
    }

    /// Runs the whole life of the world: while things go wrong, after that, and until everything is given back.
    ///
    /// # Panics
    /// If anything happens that must not.
    pub fn live(mut self) -> Outcome {
        self.live_until(self.setup.time, |_| false);
        self.heal();
        let healed = self.now;
        self.live_until(healed + RECOVERY, |world| world.has_recovered(healed));
        assert!(self.has_recovered(healed), "not recovered {RECOVERY:?} after the last fault");
        let recovered_in = self.now - healed;
        self.trouble.calm = true;
        self.live_until(self.now + WINDING_UP, |_| false);
        self.seal();
        self.live_until(self.now + SHIPPING, |_| false);
        self.check_end();
        self.open_everything();
        let slowest = self.processes.trainers.iter().flatten().map(|trainer| trainer.slowest_batch).max();
        Outcome {
            slowest_batch: slowest.unwrap_or_default(),
            trace: self.record.trace,
            counted: self.record.counted,
            episodes: self.ledger.episodes(),
            recovered_in,
            events: self.agenda.number,
        }
    }

    pub(crate) fn at(&mut self, at: Duration, event: Event) {
        self.agenda.number += 1;
        self.agenda.events.insert((at, self.agenda.number), event);
    }

    fn live_until(&mut self, end: Duration, enough: impl Fn(&Self) -> bool) {
        while let Some((&(at, _), _)) = self.agenda.events.first_key_value()
            && at <= end
        {
            let Some(((at, _), event)) = self.agenda.events.pop_first() else { break };
            self.now = at;
            self.happen(event);
            if enough(self) {
                return;
            }
        }
        self.now = end;
    }

    pub(crate) fn note(&mut self, words: [u64; 3]) {
        self.record.trace = words.into_iter().fold(self.record.trace, |sum, word| split_mix64(sum ^ word));
        if self.setup.tell {
            eprintln!("{:?} {words:x?}", self.now);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(site) => self.start(site),
            Event::Wake { site, life } => {
                let at = self.life(site);
                if at.number != life || !at.running || at.wakes != Some(self.now) {
                    return;
                }
                if at.paused_until > self.now {
                    let later = at.paused_until;
                    self.sites.entry(site).or_default().wakes = Some(later);
                    return self.at(later, Event::Wake { site, life });
                }
                self.sites.entry(site).or_default().wakes = None;
                self.note([1, site_number(site), self.now.as_nanos() as u64]);
                self.tell(site, Input::Wake);
            }
            Event::Leaves { conn, from, life, message } => {
                if self.life(from).number == life && self.life(from).running {
                    self.send(conn, from, message, Duration::ZERO);
                }
            }
            Event::Arrives { conn, to_second, message } => self.arrives(conn, to_second, message),
            Event::ConnLost { conn, second } => self.conn_lost(conn, second),
            Event::HandshakeOver { conn } => {
                if self.traffic.conns.get(&conn).is_some_and(|known| !known.welcomed) {
                    self.conn_lost(conn, false);
                }
            }
            Event::PortClosed { conn } => self.end_lost(conn, false, Input::PortClosed(conn)),
            Event::NodePortClosed { life, asked } => {
                let coordinator = self.life(Site::Coordinator);
                if (coordinator.number, coordinator.running) == (life, true)
                    && coordinator.paused_until <= self.now
                {
                    self.note([8, asked.boot.unwrap_or(0), asked.at.as_nanos() as u64]);
                    self.tell(Site::Coordinator, Input::NodePortClosed(asked));
                }
            }
            Event::KeepAlive { conn } => self.keep_alive(conn),
            Event::Fault(index) => self.fault(&self.trouble.faults[index].clone()),
            Event::Operator => self.operate(),
        }
    }

    pub(crate) fn life(&self, site: Site) -> &Life {
        &self.sites[&site]
    }

    // Processes.

    fn start(&mut self, site: Site) {
        if self.life(site).running {
            return;
        }
        self.numbers += 1;
        let life = Life { number: self.numbers, running: true, began: self.now, ..Life::default() };
        self.note([2, site_number(site), self.now.as_nanos() as u64]);
        let number = life.number;
        self.sites.insert(site, life);
        let disk = self.disks[&site].clone();
        let registry = Arc::clone(&self.registry);
        let least = self.trouble.least_term;
        let small = self.setup.kinds.clocks && !self.setup.seed.is_multiple_of(2);
        let budget = if small { SMALL_BUDGET } else { u64::MAX };
        let started = match site {
            Site::Coordinator => {
                self.processes.coordinator =
                    self.with_context(site, |ctx| Coordinator::start(&disk, (budget, least), ctx));
                self.processes.coordinator.is_some()
            }
            Site::Node(index) => {
                let on_outage = if index.is_multiple_of(2) { OnOutage::Wait } else { OnOutage::Lose };
                let node = self
                    .with_context(site, |ctx| Node::start(index, number, &disk, &registry, on_outage, ctx));
                self.processes.nodes[index] = node;
                if let Some(node) = &mut self.processes.nodes[index] {
                    node.set_wall(self.walls[index]);
                }
                self.processes.nodes[index].is_some()
            }
            Site::Trainer(index) => {
                let trainer = self.with_context(site, |ctx| Trainer::new(&registry, ctx));
                self.processes.trainers[index] = Some(trainer);
                true
            }
        };
        if started {
            self.tell(site, Input::Wake);
        } else {
            // Whoever starts processes tries again.
            *self.record.counted.entry("process could not start").or_default() += 1;
            self.sites.entry(site).or_default().running = false;
            let again = self.now + Duration::from_secs(1);
            self.at(again, Event::Start(site));
        }
    }

    /// Runs a part of a process, and does what it asks for.
    pub(crate) fn with_context<T>(&mut self, site: Site, run: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let local = self.now - self.sites[&site].began + self.sites[&site].jumped;
        let mut ctx = Context {
            now: local,
            world_now: self.now,
            bug: self.setup.bug,
            site,
            conns: &self.traffic.conns,
            random: &mut self.random,
            ledger: &mut self.ledger,
            numbers: &mut self.numbers,
            counted: &mut self.record.counted,
            out: Vec::new(),
        };
        let done = run(&mut ctx);
        let out = ctx.out;
        for output in out {
            self.put_out(site, output);
        }
        done
    }

    pub(crate) fn tell(&mut self, site: Site, input: Input) {
        let calm = self.trouble.calm;
        if self.setup.tell && !matches!(input, Input::Wake) {
            let mut what = format!("{input:?}");
            what.truncate(what.floor_char_boundary(MOST_TOLD));
            eprintln!("{:?} {site:?}: {what}", self.now);
        }
        match site {
            Site::Coordinator => {
                let Some(mut process) = self.processes.coordinator.take() else { return };
                let harmed = self.setup.kinds.tenants && !self.trouble.healed && matches!(input, Input::Wake);
                self.with_context(site, |ctx| {
                    process.handle(input, ctx);
                    if harmed && ctx.random.chance(HARM_PER_MILLE) {
                        process.harm(ctx);
                    }
                });
                let wake = process.wake_at();
                self.processes.coordinator = Some(process);
                self.wake(site, Some(wake));
            }
            Site::Node(index) => {
                let Some(mut process) = self.processes.nodes[index].take() else { return };
                self.with_context(site, |ctx| process.handle(input, ctx));
                let wake = process.wake_at();
                self.processes.nodes[index] = Some(process);
                self.wake(site, Some(wake));
            }
            Site::Trainer(index) => {
                let Some(mut process) = self.processes.trainers[index].take() else { return };
                self.with_context(site, |ctx| process.handle(input, calm, ctx));
                let wake = process.wake_at();
                self.processes.trainers[index] = Some(process);
                self.wake(site, wake);
            }
        }
    }

    /// Has a process woken at `at` of its own clock.
    fn wake(&mut self, site: Site, at: Option<Duration>) {
        let Some(at) = at else { return };
        let life = self.sites.entry(site).or_default();
        // Never at once: each wake is to find something due.
        let at = (life.began + at).saturating_sub(life.jumped).max(self.now + SHORTEST_SLEEP);
        if life.wakes.is_none_or(|earlier| at < earlier) {
            life.wakes = Some(at);
            let life = life.number;
            self.at(at, Event::Wake { site, life });
        }
    }

    /// Ends all faults, apart from those of the links.
    fn heal(&mut self) {
        self.trouble.healed = true;
        if let Some(mut coordinator) = self.processes.coordinator.take() {
            self.with_context(Site::Coordinator, |ctx| coordinator.expose(ctx));
            self.processes.coordinator = Some(coordinator);
        }
        self.disks.values().for_each(|disk| disk.set_faults(self.with_bugs(DiskFaults::default())));
    }

    /// Returns whether every node is joined, and every trainer that has lanes has stepped them since.
    fn has_recovered(&self, since: Duration) -> bool {
        let joined = |node: &Option<Node>| node.as_ref().is_some_and(Node::is_joined);
        let steps = |trainer: &Option<Trainer>| {
            trainer.as_ref().is_some_and(|trainer| !trainer.is_playing() || trainer.last_batch > since)
        };
        self.processes.coordinator.is_some()
            && self.processes.nodes.iter().all(joined)
            && self.processes.trainers.iter().all(steps)
    }

    /// Has every node seal what it recorded, so that it can be shipped.
    fn seal(&mut self) {
        for index in 0..NODES {
            let Some(mut node) = self.processes.nodes[index].take() else { continue };
            self.with_context(Site::Node(index), |ctx| node.seal(ctx));
            self.processes.nodes[index] = Some(node);
        }
    }

    /// Has the coordinator open a pool of all lanes, which are free. The links are good for that: on one that breaks
    /// connections every few seconds, all nodes are seldom there at once.
    fn open_everything(&mut self) {
        self.traffic.network.mend();
        let is_full =
            |world: &Self| world.processes.nodes.iter().all(|node| node.as_ref().is_some_and(Node::is_full));
        // A call on a connection that has broken is lost, and who asks for a pool asks again.
        for _ in 0..OPENINGS {
            if let Some(mut coordinator) = self.processes.coordinator.take() {
                self.with_context(Site::Coordinator, |ctx| coordinator.open_everything(ctx));
                let wake = coordinator.wake_at();
                self.processes.coordinator = Some(coordinator);
                self.wake(Site::Coordinator, Some(wake));
            }
            self.live_until(self.now + OPENING, is_full);
            if is_full(self) {
                return;
            }
        }
        panic!("not all lanes are free");
    }

    fn check_end(&self) {
        for trainer in &self.processes.trainers {
            assert!(
                trainer.as_ref().is_some_and(Trainer::is_done),
                "a trainer never came to an end: {trainer:?}"
            );
        }
        self.processes.coordinator.as_ref().expect("the coordinator runs").check_idle();
        self.processes.nodes.iter().for_each(|node| node.as_ref().expect("the nodes run").check_idle());
        let lossy = self.setup.kinds.disks;
        self.ledger.check_end(&self.disks[&Site::Coordinator], &store_dir(), lossy);
    }
}

/// Requests of a hostile tenant, of a thousand times that the coordinator wakes.
const HARM_PER_MILLE: u64 = 200;
/// Bytes of a store that has to drop what came first.
const SMALL_BUDGET: u64 = 40_000;
const TRAINERS: usize = 3;
/// Time after the last fault within which everything has recovered, whatever it was. Connections to processes that were
/// killed are believed in for [`IDLE`], requests on them for some seconds more, and a lease gives up the rest.
const RECOVERY: Duration = Duration::from_secs(60);
/// Time in which pools are closed, and forgotten sessions end with their lease.
const WINDING_UP: Duration = Duration::from_secs(80);
/// Time for the longest pause of a shipper, and an attempt.
const SHIPPING: Duration = Duration::from_secs(70);
/// Time in which a pool opens on any link, if nothing is lost that has to be waited for.
const OPENING: Duration = Duration::from_secs(5);
/// Number of times that a pool is asked for.
const OPENINGS: usize = 12;
/// Most bytes of one event that are printed.
const MOST_TOLD: usize = 400;
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);
