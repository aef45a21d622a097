//! `rollhouse-bench chaos`: a trainer steps lanes of a cluster whose processes are killed and paused, whose disks are
//! full and whose links are cut.
//!
//! Coordinator and nodes are processes of this program, the trainer is this one, two more are processes of their own
//! that are killed as well. All datagrams between them go through relays in this process, which can be made deaf; a
//! full disk is a limit of file sizes. The trainer compares every frame with that of an engine of its own, and
//! afterwards every episode of the store with those it saw.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rollhouse_cli::certs::write_private;
use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::output::{Output, say};
use rollhouse_client::{Address, Cluster, ConnectOptions, OnLoss, Pool, PoolRequest, Transport};
use rollhouse_core::RunId;
use rollhouse_metrics::ProcessSample;
use rollhouse_wire::Spread;
use serde::Serialize;

use self::audit::{Audit, Held};
use self::killed_trainers::{Lives, Trainers, TrainersAudit};
use self::links::Links;
use self::plan::{Cut, Fault, Harm, Link, Plan, ProcessFault, Target};
use self::processes::Processes;
use self::report::{ChaosResult, Compared, Leaked};
use self::trainer::{Ended, Fill, Progress, Seen, Trainer};
use self::trainer_process::TRAINER_LANES;
use crate::args::ChaosArgs;
use crate::failed::failed;
use crate::scratch::Scratch;

mod audit;
mod killed_trainers;
mod links;
mod plan;
mod processes;
mod report;
mod trainer;
mod trainer_process;

pub(super) use self::trainer_process::train;

/// Runs the bench and prints its figures. It fails, after the figures, if an episode is lost, doubled, invented or
/// changed, if a frame differs, or if anything leaks.
pub(super) fn run(args: &ChaosArgs, out: &mut Output) -> Result<Status, Failure> {
    let folder = Scratch::new()?;
    let result = measure(args, &folder.0)?;
    if args.json {
        out.json(&result)?
    } else {
        result.print(out)?
    }
    if cfg!(debug_assertions) {
        say("note: a development build, with checks that a release build leaves out");
    }
    if result.is_clean() {
        return Ok(Status::Done);
    }
    say(&format!("what the cluster's processes wrote is kept in {}", folder.keep().display()));
    Ok(Status::Found)
}

fn measure(args: &ChaosArgs, folder: &Path) -> Result<ChaosResult, Failure> {
    let before = Held::now()?;
    let each = (0..NODES).flat_map(|node| [Link::TrainerNode(node), Link::NodeCoordinator(node)]);
    let all: Vec<Link> = each.chain([Link::TrainerCoordinator]).collect();
    let mut links = Links::open(&all).map_err(failed)?;
    let mut processes = Processes::start(folder, NODES, &[TRAINER_LANES; TRAINERS], &links)?;
    let connection = folder.join("connection");
    write_private(&connection, &format!("{}\n", processes.connection(None)))?;
    let cluster = connect(&processes.connection(links.address(Link::TrainerCoordinator)))?;
    let pool = cluster.open_pool(request()).map_err(failed)?;
    let run = pool.id();
    let trainer = Trainer::begin(pool)?;
    let others = processes.trainers(links.address(Link::TrainerCoordinator));
    let mut trainers = Trainers::start(folder, &others)?;
    let progress = Progress::default();
    let (storm, played) = thread::scope(|scope| {
        let playing = scope.spawn(|| trainer.play(&progress));
        let mut hit = FaultTargets { processes: &mut processes, links: &mut links, trainers: &mut trainers };
        let storm = Storm::new(args, &progress).rage(&mut hit);
        progress.end.store(true, Ordering::Relaxed);
        (storm, playing.join())
    });
    let (pool, mut seen) = played.map_err(|_| Failure::new(Status::Failed, "the trainer panicked"))?;
    if let Some(failure) = seen.failure.take() {
        return Err(failure);
    }
    let storm = storm?;
    // Those that are left are killed when nothing else happens: there is no excuse for what becomes of their lanes.
    thread::sleep(killed_trainers::SETTLED);
    trainers.turn(Instant::now())?;
    let lives = trainers.end().map_err(failed)?;
    close(&cluster, pool, run)?;
    let sessions = sessions_left(&cluster, &lives)?;
    let (audit, of_trainers) = settled_audit(&seen, &progress.fills(), run, &lives, &connection)?;
    let of_trainers = TrainersAudit { sessions, ..of_trainers };
    let of_services = released(&storm.held, || processes.held())?;
    let resident = processes.resident().map_err(failed)?;
    drop(cluster);
    processes.end()?;
    let datagrams_lost = links.lost();
    drop(links);
    let leaked = Leaked {
        held: released(&[before], || Ok(vec![Held::now()?]))?,
        of_services,
        processes: audit::processes_in(folder)?,
        socket_files: socket_files(folder)?,
    };
    let compared = Compared { audit, trainers: of_trainers, leaked, datagrams_lost };
    Ok(ChaosResult::of(args, &storm, compared, &seen, &progress.fills(), &resident))
}

fn connect(connection: &str) -> Result<Cluster, Failure> {
    let address: Address = connection.parse().map_err(failed)?;
    let options =
        ConnectOptions { timeout: PATIENCE, transport: Some(Transport::Quic), ..ConnectOptions::default() };
    Cluster::connect(&address, options, None).map_err(failed)
}

fn request() -> PoolRequest {
    let mut request = PoolRequest::new(ENV, LANES as u32);
    (request.spread, request.on_loss) = (Spread::Even, Some(OnLoss::Resume));
    request
}

/// Closes the pool, and waits until the store has everything that nodes recorded of it, as far as the coordinator
/// knows: a restarted coordinator may never know that of sessions that had gone elsewhere before. The audit shows it
/// then.
fn close(cluster: &Cluster, pool: Pool, run: RunId) -> Result<(), Failure> {
    pool.close().map_err(failed)?;
    let until = Instant::now() + KNOWN_WITHIN;
    while Instant::now() < until && !cluster.pool_status(run).map_err(failed)?.shipped {
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Returns the sessions of killed trainers after their leases are over: none, if all is well.
fn sessions_left(cluster: &Cluster, lives: &Lives) -> Result<u64, Failure> {
    let pools = lives.pools()?;
    let until = Instant::now() + GIVEN_BACK_WITHIN;
    loop {
        let sessions = cluster.sessions().map_err(failed)?.sessions;
        let left = sessions.iter().filter(|session| pools.contains(&session.report.session.pool)).count();
        if left == 0 || Instant::now() >= until {
            return Ok(left as u64);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Repeats the audit until nothing is missing any more, or for as long as shipping may take.
fn settled_audit(
    seen: &Seen,
    fills: &[Fill],
    run: RunId,
    lives: &Lives,
    connection: &Path,
) -> Result<(Audit, TrainersAudit), Failure> {
    let until = Instant::now() + SHIPPED_WITHIN;
    loop {
        let entries = audit::list(connection)?;
        let is_at_risk = |ended: &Ended| ended.is_at_risk(&seen.nodes[ended.node], fills);
        let audit = Audit::of(&seen.lanes, is_at_risk, &audit::finished_of(&entries, run));
        let of_trainers = lives.audit(&entries, TRAINER_LANES as usize)?;
        // A coordinator that was killed has forgotten what nodes still have of the runs.
        let complete = audit.lost.len() as u64 + of_trainers.lost + of_trainers.otherwise == 0;
        if complete || Instant::now() >= until {
            return Ok((audit, of_trainers));
        }
        thread::sleep(Duration::from_secs(1));
    }
}

/// Returns what processes hold beyond what they held before; they are given a while to release it.
fn released(before: &[Held], now: impl Fn() -> Result<Vec<Held>, Failure>) -> Result<Held, Failure> {
    let until = Instant::now() + RELEASED_WITHIN;
    loop {
        let beyond = now()?.into_iter().zip(before).map(|(held, before)| held.beyond(*before));
        let beyond = beyond.fold(Held::default(), Held::plus);
        if beyond == Held::default() || Instant::now() >= until {
            return Ok(beyond);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Counts the sockets that processes left in the folder.
fn socket_files(folder: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::FileTypeExt;
    let mut found = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            let inside = fs::read_dir(path).map_err(failed)?.flatten();
            found += inside.filter(|e| e.file_type().is_ok_and(|kind| kind.is_socket())).count() as u64;
        }
    }
    Ok(found)
}

/// The faults, and how the trainer copes with them.
struct Storm<'a> {
    args: &'a ChaosArgs,
    progress: &'a Progress,
    plan: Plan,
    began: Instant,
    faults: Faults,
    /// Faults that hit lanes, until the trainer has recovered from them.
    open: Vec<Open>,
    recoveries: Vec<Recovery>,
    /// All faults that happened, in their order.
    happened: Vec<Happened>,
    /// Samples of the trainer's process, once a second.
    samples: Vec<Sample>,
    /// Resources that coordinator and nodes held before the first fault.
    held: Vec<Held>,
    undisturbed: f64,
    disturbed: f64,
}

/// A fault that hit lanes, and from which the trainer has not recovered.
#[derive(Debug, Clone, Copy)]
struct Open {
    kind: Kind,
    since: Instant,
    lasts: Duration,
    /// The batch after which the trainer has recovered. `None` while that is not known.
    batch: Option<u64>,
    /// Whether something was silent during it: a process was paused, or a link cut.
    amid_silence: bool,
    /// Whether the coordinator was away during it: without the coordinator no lane gets another place.
    uncoordinated: bool,
}

/// A fault that happened, whether it hit lanes or not.
#[derive(Debug, Clone)]
struct Happened {
    fault: Fault,
    at: Instant,
}

/// Time for which a fault that hit lanes delayed the trainer.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    kind: Kind,
    since: Instant,
    /// Time from its beginning to the end of the first batch that was begun after it.
    took: Duration,
    /// The part of it for which the fault itself lasted.
    lasted: Duration,
    /// Whether something was silent during it.
    amid_silence: bool,
    /// Whether the coordinator was away during it.
    uncoordinated: bool,
}

/// The kind of fault that delayed lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kill,
    Pause,
    Fill,
    Cut,
}

/// A sample of the trainer's process.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Seconds since the first fault.
    seconds: f64,
    resident: u64,
    descriptors: u64,
}

/// Number of faults of each kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Faults {
    node_killed: u64,
    node_paused: u64,
    node_disk_full: u64,
    coordinator_killed: u64,
    coordinator_paused: u64,
    coordinator_disk_full: u64,
    link_cut: u64,
    link_cut_one_way: u64,
    trainer_killed: u64,
}

/// The processes and links to which faults happen.
struct FaultTargets<'a> {
    processes: &'a mut Processes,
    links: &'a mut Links,
    trainers: &'a mut Trainers,
}

impl<'a> Storm<'a> {
    fn new(args: &'a ChaosArgs, progress: &'a Progress) -> Self {
        Self {
            args,
            progress,
            plan: Plan::new(args.seed, NODES, TRAINERS),
            began: Instant::now(),
            faults: Faults::default(),
            open: Vec::new(),
            recoveries: Vec::new(),
            happened: Vec::new(),
            samples: Vec::new(),
            held: Vec::new(),
            undisturbed: 0.0,
            disturbed: 0.0,
        }
    }

    /// Steps undisturbed for a while, then makes faults happen until there were enough for long enough, and waits until
    /// everything that they hit runs again.
    fn rage(mut self, hit: &mut FaultTargets<'_>) -> Result<Self, Failure> {
        let quarter = Duration::from_secs(15 * u64::from(self.args.minutes));
        let calm = quarter.clamp(LEAST_CALM, MOST_CALM);
        self.began = Instant::now();
        let steps = self.batches();
        while self.began.elapsed() < calm && !self.trainer_has_failed() {
            thread::sleep(LOOK_AGAIN);
        }
        self.undisturbed = self.rate(steps);
        self.held = hit.processes.held()?;

        let steps = self.batches();
        self.began = Instant::now();
        let time = Duration::from_secs(60 * u64::from(self.args.minutes));
        let mut next = self.began;
        let mut fault = self.plan.next();
        let mut alone = false;
        while self.began.elapsed() < time || self.kills() < self.args.kills {
            let (now, well) = self.turn(hit)?;
            let quiet = !alone || well && self.open.is_empty();
            if !quiet {
                next = now + fault.rest;
            } else if now >= next {
                if self.strike(hit, fault, now)? {
                    self.happened.push(Happened { fault, at: now });
                    (next, alone) = (now + fault.rest, fault.alone);
                }
                fault = self.plan.next();
            }
        }
        let until = Instant::now() + PATIENCE;
        while !self.turn(hit)?.1 || !self.open.is_empty() {
            if Instant::now() >= until {
                return Err(Failure::new(Status::Failed, "the trainer did not go on after the last fault"));
            }
        }
        self.disturbed = self.rate(steps);
        Ok(self)
    }

    /// Does what is due at this moment. Returns whether nothing is wrong except what the trainer has yet to recover
    /// from.
    fn turn(&mut self, hit: &mut FaultTargets<'_>) -> Result<(Instant, bool), Failure> {
        thread::sleep(TURN);
        let now = Instant::now();
        let FaultTargets { processes, links, trainers } = hit;
        trainers.turn(now)?;
        let whole = links.turn(now);
        let well = processes.turn(now)? && whole;
        for fill in self.progress.fills().iter_mut().rev().take_while(|fill| fill.until.is_none()) {
            let has_room = processes.node(&fill.node).is_none_or(|node| processes.has_room(node));
            fill.until = has_room.then_some(now);
        }
        let batches = self.batches();
        let silence = !whole || processes.is_one_paused();
        let away = !processes.is_up(Target::Coordinator);
        self.open.retain_mut(|open| {
            open.amid_silence |= silence;
            open.uncoordinated |= away;
            // A full disk is noticed later than it is full: what counts is the first batch after it.
            let known = open.batch.is_some() || now >= open.since + open.lasts;
            let over = known && batches >= *open.batch.get_or_insert(batches + 2);
            if over {
                let took = now - open.since;
                let Open { kind, since, lasts, amid_silence, uncoordinated, .. } = *open;
                let lasted = lasts.min(took);
                self.recoveries.push(Recovery { kind, since, took, lasted, amid_silence, uncoordinated });
            }
            !over
        });
        let seconds = self.began.elapsed().as_secs_f64();
        if self.samples.last().is_none_or(|last| seconds - last.seconds >= SAMPLE_EVERY) {
            let ProcessSample { resident_bytes: resident, .. } = ProcessSample::now().map_err(failed)?;
            let Held { sockets, descriptors, .. } = Held::now()?;
            self.samples.push(Sample { seconds, resident, descriptors: sockets + descriptors });
        }
        if self.trainer_has_failed() {
            self.open.clear();
            return Err(Failure::new(Status::Failed, "a step of the trainer failed"));
        }
        Ok((now, well))
    }

    /// Does harm to a process, and tells the trainers that lanes of theirs may be lost by it.
    fn hurt(
        &self,
        hit: &mut FaultTargets<'_>,
        (target, blow): (Target, ProcessFault),
        lasts: Duration,
        now: Instant,
    ) -> Result<(), Failure> {
        let FaultTargets { processes, trainers, .. } = hit;
        let until = now + lasts;
        if let (Some(node), ProcessFault::Kill | ProcessFault::Fill) = (processes.name(target), blow) {
            trainers.harmed(node, if blow == ProcessFault::Fill { lasts } else { Duration::ZERO });
        }
        match blow {
            ProcessFault::Kill => processes.kill(target, until),
            ProcessFault::Pause => processes.pause(target, until),
            ProcessFault::Fill => {
                if let Some(node) = processes.name(target) {
                    let fill = Fill { node: node.to_owned(), from: now, until: None };
                    self.progress.fills().push(fill);
                }
                processes.fill(target, until)
            }
        }
        .map_err(failed)
    }

    /// Makes a fault happen, if its target is well. Returns whether it happened.
    fn strike(&mut self, hit: &mut FaultTargets<'_>, fault: Fault, now: Instant) -> Result<bool, Failure> {
        let until = now + fault.lasts;
        let (counter, kind, node) = match fault.harm {
            Harm::Trainer(index) => {
                let playing = hit.trainers.is_playing(index)?;
                if playing {
                    hit.trainers.kill(index, until).map_err(failed)?;
                    self.faults.trainer_killed += 1;
                }
                return Ok(playing);
            }
            Harm::Link(link, _) if !hit.links.is_whole(link) => return Ok(false),
            Harm::Process(target, _) if !hit.processes.is_up(target) => return Ok(false),
            Harm::Process(target, ProcessFault::Fill) if !hit.processes.has_room(target) => return Ok(false),
            Harm::Link(link, cut) => {
                hit.links.cut(link, cut, until);
                let counter = match cut {
                    Cut::Both => &mut self.faults.link_cut,
                    Cut::There | Cut::Back => &mut self.faults.link_cut_one_way,
                };
                let node = if let Link::TrainerNode(node) = link { Some(Target::Node(node)) } else { None };
                (counter, Kind::Cut, node)
            }
            Harm::Process(target, blow) => {
                self.hurt(hit, (target, blow), fault.lasts, now)?;
                let is_node = matches!(target, Target::Node(_));
                let faults = &mut self.faults;
                let (counter, kind) = match (is_node, blow) {
                    (true, ProcessFault::Kill) => (&mut faults.node_killed, Kind::Kill),
                    (true, ProcessFault::Pause) => (&mut faults.node_paused, Kind::Pause),
                    (true, ProcessFault::Fill) => (&mut faults.node_disk_full, Kind::Fill),
                    (false, ProcessFault::Kill) => (&mut faults.coordinator_killed, Kind::Kill),
                    (false, ProcessFault::Pause) => (&mut faults.coordinator_paused, Kind::Pause),
                    (false, ProcessFault::Fill) => (&mut faults.coordinator_disk_full, Kind::Fill),
                };
                (counter, kind, is_node.then_some(target))
            }
        };
        *counter += 1;
        let name = node.and_then(|node| hit.processes.name(node));
        if name.is_some_and(|name| self.progress.nodes().iter().any(|node| node == name)) {
            // The batch after the one that is under way was begun later than this.
            let batch = (kind != Kind::Fill).then(|| self.batches() + 2);
            self.open.push(Open {
                kind,
                since: now,
                lasts: fault.lasts,
                batch,
                amid_silence: false,
                uncoordinated: false,
            });
        }
        Ok(true)
    }

    fn kills(&self) -> u64 {
        self.faults.node_killed + self.faults.coordinator_killed + self.faults.trainer_killed
    }

    fn batches(&self) -> u64 {
        self.progress.batches.load(Ordering::Acquire)
    }

    /// Returns the steps a second since there were `steps` batches.
    fn rate(&self, steps: u64) -> f64 {
        (self.batches() - steps) as f64 * LANES as f64 / self.began.elapsed().as_secs_f64()
    }

    fn trainer_has_failed(&self) -> bool {
        self.progress.failed.load(Ordering::Relaxed)
    }
}

/// The env. Its episodes last some hundreds of steps, so that a long run has not too many of them.
const ENV: &str = "Acrobot-v1";
const LANES: usize = 64;
const NODES: usize = 3;
/// Number of trainers that are processes of their own.
const TRAINERS: usize = 2;
/// Longest wait for a step or anything else: several faults in turn take less.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time within which recordings must be known: nodes that could not ship try again within 30 s.
const KNOWN_WITHIN: Duration = Duration::from_secs(35);
const SHIPPED_WITHIN: Duration = Duration::from_secs(60);
/// Time within which sessions must end: connections are given up after 15 s, and a lease is 30 s.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);
const RELEASED_WITHIN: Duration = Duration::from_secs(10);
/// Shortest time for which the trainer steps before the first fault: a quarter of the whole time, within these two.
const LEAST_CALM: Duration = Duration::from_secs(5);
const MOST_CALM: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const TURN: Duration = Duration::from_millis(2);
/// Seconds between samples of memory.
const SAMPLE_EVERY: f64 = 1.0;
